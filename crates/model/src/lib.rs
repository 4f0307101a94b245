//! The data types of feedline and the pure functions between them.
//!
//! Three documents describe a run. A [`spec::Spec`] is the checked content of a workload file and its overrides. A
//! [`plan::Plan`] is everything that will be done, and a function of spec, ranks and host. A [`ledger::Ledger`] is what
//! was observed. Figures and verdicts are computed from these documents and nothing else, so that they can be
//! recomputed from a result at any time.
//!
//! **In:** text (YAML, overrides, JSON of earlier results) and numbers. **Out:** values and text.
//! **Side effects:** none. No file, socket, clock, thread or environment variable; `tidy` tests this.
//!
//! # Modules
//!
//! - From text to spec: `spec`; `hydra` composes the text from the files and arguments of DLIO; `warning` for findings
//!   that do not end a run; `units` for bytes and nanoseconds; `secret` for values that are never shown.
//! - What will be done: `plan`; `order` (shuffling and shards), `times` (lengths of emulated steps), `checkpoint`
//!   (files of a model, schedule, manifest, records of saves).
//! - The data set: `location` (path or URL), `objects` (places in object stores, and how to reach them); `names`,
//!   `files`, `sizes`, `shape` and `extent` describe its files; `catalog` is the encoded list of existing files,
//!   `manifest` the description of generated ones.
//! - The JSON documents: `document` (their kinds and versions).
//! - What was observed: `ledger`, with `histogram` (latencies), `timeline` (activity over time), `requests` (of
//!   object stores) and `digest` (which samples were delivered); `spans` (single operations, for traces).
//! - What was observed of the job of another program: `observed`, with the findings about it.
//! - Several runs: `study` (the next trial of a search, the grid of a sweep, attribution of time).
//! - What it means: `metrics` (figures such as AU), `statistics` (repeated measurements), `verdict` (the rules that
//!   decide whether the figures can be trusted), `mlperf` (the rules of MLPerf Storage, for results of any program).
//!
//! # Invariants
//!
//! - The same spec, ranks and host give the same plan, and a plan is never modified. Variants are new plans.
//! - Adding ledgers is commutative and associative, and every addition names all fields, so that a new field does not
//!   compile until its addition is defined.
//! - A ledger contains counts and times, never estimates. A value that could not be measured is absent, not 0.

pub mod catalog;
pub mod checkpoint;
pub mod digest;
pub mod document;
pub mod extent;
pub mod files;
pub mod histogram;
pub mod hydra;
pub mod ledger;
pub mod location;
pub mod manifest;
pub mod metrics;
pub mod mlperf;
pub mod names;
pub mod objects;
pub mod observed;
pub mod order;
pub mod plan;
pub mod requests;
pub mod secret;
pub mod shape;
pub mod sizes;
pub mod spans;
pub mod spec;
pub mod statistics;
pub mod study;
pub mod timeline;
pub mod times;
pub mod units;
pub mod verdict;
pub mod warning;
