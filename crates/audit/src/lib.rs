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
//! - `layout`: the memory shared with the job, the same source as in the preload library.
//! - `judge`: rules, from observations to findings.

pub mod event;
pub mod infer;
pub mod judge;
#[path = "../preload/src/layout.rs"]
pub mod layout;
mod observe;
pub mod trace;

pub use observe::{ObserveError, ObserveOptions, Progress, observe};

/// Which paths of the job's files are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paths {
    None,
    #[default]
    Examples,
    All,
}

/// The work of the process that measures what a call of the preload library costs.
pub fn calibrate_child() {}
