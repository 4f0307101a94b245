//! From the request of a front end to a finished ledger. A front end fills in an [`Ask`], which becomes a [`Settled`]
//! run with a plan; [`run`] returns a complete ledger. A [`study`] settles and runs a
//! workload several times.
//!
//! This crate reads host facts (memory, cores, limits) and decides what can run. It does not print and has no flags or
//! exit codes: an [`Error`] says how the work ended, and an [`Observer`] shows its progress.

mod ask;
mod backend;
mod check;
mod checkpoint;
mod data_set;
mod error;
mod folder;
mod listing;
mod members;
mod observe;
mod run;
mod settle;
pub mod study;
mod tiers;

pub use ask::{Ask, Asked, Generate, WorkloadText};
pub use backend::{DEFAULT_STORE, format_of, mode, select};
pub use data_set::{DataSetTask, default_writers};
pub use error::{Error, ErrorKind};
pub use folder::{check_folder, local, make_folder, quoted};
pub use listing::listing_threads;
pub use observe::{Goal, Observer, Silent, Unit, observed};
pub use run::{Measured, Task, calibrate, fault, measure, run};
pub use settle::{Settled, settle};
