//! The protocols with each read-modify-write split into a load and a store.

mod sync {
    pub(super) use loom::sync::atomic::{Ordering, fence};
    pub(super) use std::sync::TryLockError;

    pub(super) use crate::models::primitives::{Condvar, Mutex, MutexGuard};
    pub(super) use crate::models::primitives::{SplitBool as AtomicBool, SplitU64 as AtomicU64};
}

protocols!();
