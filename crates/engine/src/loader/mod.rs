//! Brings batches to the accelerators: one queue of bounded depth per rank, and readers that fill it. Nothing here
//! outlives a phase of an epoch, so nothing can be stale in the next.

mod queue;
mod reader;

pub(crate) use queue::Queue;
pub(crate) use reader::{Delivered, Failure, Job, read};
