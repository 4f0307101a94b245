//! Brings batches to the accelerators: one queue of bounded depth per rank, and reader threads that run the ranks'
//! readers and fill the queues. All of it is built anew for each phase of an epoch, so no state carries over.

mod board;
mod checking;
mod job;
mod preprocess;
mod queue;
mod reader_thread;
mod shelf;
mod tolerance;
mod visit;

pub(crate) use board::Board;
pub(crate) use job::{Deal, Failure, Job};
pub(crate) use preprocess::{Preprocessing, panic_text};
pub(crate) use queue::Queue;
pub(crate) use reader_thread::{Delivered, read};
pub(crate) use shelf::Shelf;
pub(crate) use tolerance::Tolerance;
