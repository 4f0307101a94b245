//! Observes a job of another program, judges how it reads its input, and infers a workload that reads the same way.
//!
//! **In:** a command, or a trace of one. **Out:** a ledger, findings, a workload. **Side effects:** starts the job,
//! and reads what its processes write into shared memory and what the kernel says about them in /proc. It prints
//! nothing.
//!
//! # From a command to findings
//!
//! The job is started with a library in `LD_PRELOAD` and a folder in front of `PYTHONPATH`. The library (`preload/`,
//! a crate of its own without the standard library) records the calls that concern files; the folder (`python/`)
//! marks epochs, batches and waits. Both write into memory that this crate reads while the job runs. Totals are
//! exact; details are kept of a uniform sample of the files, so that memory is bounded.
//!
//! The result is one document, `model::observed::Observed`. Rules and inference read nothing else, so that they can
//! be tested on documents and repeated on old results.
//!
//! # Modules
//!
//! - `event`: the stream of events and samples between sources and aggregation.
//! - `source`: the live source: runs a job, reads its rings and /proc.
//! - `aggregate`: from the stream to `Observed`, in bounded memory.
//! - `observe`: runs a job with both, and makes a ledger of it.
//! - `layout`: the memory shared with the job, the same source as in the preload library.
//! - `file_class`: which files are data and which are program code, also shared with the library.
//! - `judge`: rules, from observations to findings.
//! - `trace`: traces of other tools as a source.
//! - `infer`: a workload that reads as the job did.

pub mod aggregate;
pub mod event;
#[path = "../preload/src/file_class.rs"]
pub mod file_class;
pub mod infer;
pub mod judge;
#[path = "../preload/src/layout.rs"]
pub mod layout;
pub mod observe;
pub mod source;
pub mod trace;

pub use observe::{AuditProgress, ObserveError, ObserveOptions, Paths, observe};
pub use source::{calibrate_child, observes, page_faults};
