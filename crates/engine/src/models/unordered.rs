//! The protocols with fences, but all other operations relaxed.

mod sync {
    use loom::sync::atomic;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, fence};
    pub(super) use std::sync::TryLockError;

    pub(super) use crate::models::primitives::{Condvar, Mutex, MutexGuard};

    pub(super) struct Ordering;

    #[expect(non_upper_case_globals, reason = "the names of the standard library")]
    impl Ordering {
        pub(super) const Relaxed: atomic::Ordering = atomic::Ordering::Relaxed;
        pub(super) const Acquire: atomic::Ordering = atomic::Ordering::Relaxed;
        pub(super) const Release: atomic::Ordering = atomic::Ordering::Relaxed;
        pub(super) const AcqRel: atomic::Ordering = atomic::Ordering::Relaxed;
        pub(super) const SeqCst: atomic::Ordering = atomic::Ordering::SeqCst;
    }
}

protocols!();
