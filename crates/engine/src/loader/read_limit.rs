//! The lock that the readers of a replayed job share: it limits the reads of a rank that are in flight.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a reader waits at most before it checks whether the run should stop.
const LOOK_AROUND: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct ReadLimit {
    free: Mutex<u64>,
    freed: Condvar,
}

/// A read that may be in flight until this is dropped.
#[derive(Debug)]
pub(super) struct ReadPermit<'a>(&'a ReadLimit);

impl ReadLimit {
    pub(super) fn new(most: u64) -> ReadLimit {
        ReadLimit { free: Mutex::new(most), freed: Condvar::new() }
    }

    /// Waits until a read may begin; `None` if the run ends first.
    pub(super) fn enter(&self, ending: impl Fn() -> bool) -> Option<ReadPermit<'_>> {
        let mut free = self.lock();
        while *free == 0 {
            if ending() {
                return None;
            }
            let waited = self.freed.wait_timeout(free, LOOK_AROUND);
            free = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *free -= 1;
        Some(ReadPermit(self))
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ReadPermit<'_> {
    fn drop(&mut self) {
        *self.0.lock() += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn no_more_than_the_limit_are_inside_and_all_get_in() {
        let (limit, inside, most) = (ReadLimit::new(2), AtomicU64::new(0), AtomicU64::new(0));
        let entered = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let permit = limit.enter(|| false);
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        entered.fetch_add(1, Ordering::SeqCst);
                        drop(permit);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 2);
        assert_eq!(entered.into_inner(), 300);
        let both = (limit.enter(|| false), limit.enter(|| false));
        assert!(limit.enter(|| true).is_none(), "a run that ends waits no longer");
        drop(both);
        assert!(limit.enter(|| true).is_some());
    }
}
