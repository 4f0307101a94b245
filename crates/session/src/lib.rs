//! From a request of a front end to a complete ledger.
//!
//! A front end fills in an [`Ask`]: a workload, typed overrides, ranks, locations. Reading the workload gives an
//! [`Asked`], [`settle`] makes a [`Settled`] run with a plan, and [`run`] returns its ledger, which is complete.
//! A [`study`] settles and runs a workload several times. Two front ends with the same `Ask` get the same plan.
//!
//! **In:** an [`Ask`], the facts about this host, a world, an [`Observer`] for progress.
//! **Out:** plans, ledgers, warnings, typed errors. **Side effects:** host facts (memory, cores, limits), and those of
//! the engine. The crate does not print and has no flags or exit codes: an [`Error`] says why the work ended, and the
//! front end chooses the exit code.
//!
//! # Modules
//!
//! - `ask`: the request, and the workload that was read for it.
//! - `settle`: from request to plan. `backend` selects the format and the I/O backend, `listing` the catalog of
//!   existing files, `object_listing` that of objects, `tiers` the locations of checkpoints.
//! - `check`: whether the plan can run on this host, with this data set and this much memory.
//! - `members`: what the processes of a run share, so that all of them compute the same plan; `likeness`: what they
//!   must have in common.
//! - `run`: training and calibration; `ledgers`: the sum over all processes of a run.
//! - `checkpoint`: saving and restoring; `data_set`: writing missing files;
//!   `existing`: files that another program wrote, without a catalog.
//! - `objects`: how to reach an object store, by the workload, the environment and profile files.
//! - `observe`: the ports for progress and for traces; `folder`: folders and other places that the user names;
//!   `error`: every reason not to run.
//!
//! # Invariants
//!
//! - Usage errors are found by [`settle`], before the first I/O on the data set.
//! - A ledger is complete when [`run`] returns it. No caller adds to it.

mod ask;
mod backend;
mod check;
mod checkpoint;
mod data_set;
mod error;
mod existing;
mod folder;
mod ledgers;
mod likeness;
mod listing;
mod members;
mod object_listing;
mod objects;
mod observe;
mod run;
mod settle;
pub mod study;
mod tiers;

pub use ask::{Ask, Asked, CountOrigin, FileCounts, Generate, WorkloadText};
pub use backend::{DEFAULT_STORE, ask_of_place, format_of, mode, select};
pub use data_set::{DataSetTask, data_set, default_writers};
pub use error::{Error, ErrorKind, MemberFailure};
pub use folder::{check_folder, check_place, local, make_folder, path_argument, place_argument, quoted};
pub use likeness::MemberDifference;
pub use listing::listing_threads;
pub use members::{SharedFailure, agree, of_member_0};
pub use object_listing::{LISTED_AT_ONCE, state_folder};
pub use objects::credentials_from;
pub use observe::{
    Activity, ActivityUnit, ObservedWork, Observer, RecordedRun, Recorder, SilentObserver, observed,
};
pub use run::{CalibrationTime, MeasuredRun, RunTask, calibrate, fault, measure, run};
pub use settle::{Settled, settle};
