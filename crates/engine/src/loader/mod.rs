//! Brings batches to the accelerators: one queue of bounded depth per rank, and reader threads that run the ranks'
//! readers and fill the queues. All of it is built anew for each phase of an epoch, so no state carries over.

mod assignment;
mod buffer_pool;
mod checking;
mod phase_run;
mod preprocess;
mod queue;
#[cfg(test)]
#[path = "queue/tests.rs"]
pub(crate) mod queue_tests;
mod read_limit;
mod reader_thread;
mod status;
mod tolerance;
mod traced;
mod visit;

use crate::sync;

pub(crate) use phase_run::{PhaseControl, PhaseFailure, PhaseInput, PhaseReaders, PhaseRun};
pub(crate) use preprocess::panic_text;
pub(crate) use queue::Queue;
pub(crate) use reader_thread::{Delivered, read};
