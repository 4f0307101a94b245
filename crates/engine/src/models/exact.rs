//! The protocols as they are.

mod sync {
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    pub(super) use std::sync::TryLockError;

    pub(super) use crate::models::primitives::{Condvar, Mutex, MutexGuard};
}

protocols!();
