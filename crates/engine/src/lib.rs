//! Does what a plan says: generates data sets, trains on them, saves and restores checkpoints.
//!
//! [`train`] runs a training plan. For each phase it starts reader threads, which fetch samples through the lanes of a
//! store, and emulated accelerators, which consume the batches on timelines. It emits [`Events`] while it works and
//! returns a ledger. The engine never prints, and has no flags or exit codes.
//!
//! **In:** plans, a format, a store, a [`World`] (the processes of the run) and a [`Stop`] (how work ends early).
//! **Out:** ledgers, events, generated files, checkpoints. **Side effects:** threads, the clock, /proc; files only
//! through a store.
//!
//! # Modules
//!
//! - Training: `train`, `loader` (queues and reader threads), `accelerators`, [`world`] (members and barriers), `bell`
//!   and `combiner` (waiting and wake-ups; `sync` has their primitives, `models` checks them), `calibrate` (the same
//!   plan on the null backend).
//! - Data sets: [`generate`], [`catalog`] (lists existing files), `probe` (whether a data set is there), `found`
//!   (sizes of existing files), `listed` (sizes by a listing that all members share), `sharing` (whether all members
//!   see one place), `inspect`, `asking` and `file_reader` (metadata of existing files), `truth` (expected content, for
//!   verification).
//! - Checkpoints: [`checkpoint`].
//! - The page cache and what is below it: `cache` (prepares and checks it before a phase), `backing` (bytes that the
//!   storage delivered).
//! - Supervision: `watchdog` (progress of a phase), [`waits`] (system calls that do not return), `stop`.
//! - Measurement: [`meter`] (the only clock), `events`, `counters` and `figures` (what happens in a
//!   run, as it happens), [`host`] (facts about this host).
//!
//! # Invariants
//!
//! - Time is read in [`meter`] only. A late wake-up shifts no step; it is recorded as lateness.
//! - After warm-up, a sample causes no allocation, no lock and no formatting. Threads count in ledgers of their own,
//!   which are added up at the end.
//! - Every run ends: with a ledger, with an error, or with a report of the system call that does not return.

// `models` compiles some files again, with other primitives.
#![cfg_attr(test, allow(clippy::duplicate_mod))]

mod accelerators;
mod asking;
mod backing;
mod bell;
#[cfg(test)]
#[path = "bell/tests.rs"]
mod bell_tests;
mod cache;
mod calibrate;
pub mod catalog;
pub mod checkpoint;
mod combiner;
mod counters;
mod events;
mod figures;
mod file_reader;
mod found;
pub mod generate;
pub mod host;
mod inspect;
mod listed;
mod loader;
pub mod meter;
#[cfg(test)]
mod models;
mod probe;
mod sharing;
mod stop;
mod sync;
mod train;
mod truth;
pub mod waits;
mod watchdog;
pub mod world;

pub use asking::MetadataError;
pub use cache::{CacheError, check as check_cache};
pub use calibrate::calibrate;
pub use events::{Detail, DrainedEvents, Event, EventStream, Events, SpanRequest, SpanStream, StampedEvent};
pub use figures::{CheckpointProgress, LiveFigures, MOST_RANKS_SHOWN, Progress, RankProgress};
pub use file_reader::AskError;
pub use found::{FindError, find_sizes};
pub use inspect::Inspection;
pub use probe::{FileCheck, first_missing};
pub use sharing::{SharingError, make_shared_folder};
pub use stop::Stop;
pub use train::{SplitFiles, TrainingSetup, train};
pub use truth::Truth;
pub use world::{Exchange, Solo, World};
