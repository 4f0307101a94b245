//! The protocols without their fences.

mod sync {
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(super) use std::sync::TryLockError;

    pub(super) use crate::models::primitives::{Condvar, Mutex, MutexGuard};

    pub(super) fn fence(_: Ordering) {}
}

protocols!();
