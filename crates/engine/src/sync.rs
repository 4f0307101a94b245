//! The primitives of the wake-up protocols. `bell` and `loader/queue` take them from here, so that models can compile
//! the same files with primitives that a model checker controls.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Condvar, Mutex};
