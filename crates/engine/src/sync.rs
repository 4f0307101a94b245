//! The primitives of the wake-up protocols. `bell`, `combiner`, `loader/queue` and `events/ring` take them from here,
//! so that `models` can compile the same files with loom's.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, TryLockError};
