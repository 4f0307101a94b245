//! Sleeping until something may have changed, without a lock in the path of the threads that change it. A bell has one
//! listener; ringing costs one fence and one load while the listener is awake.

use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use store::Waker;

use super::sync::{AtomicBool, Condvar, Mutex, Ordering, fence};

#[derive(Debug, Default)]
pub(crate) struct Bell {
    asleep: AtomicBool,
    /// Whether the sleeping listener could begin more work.
    free: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
    /// Ends the listener's sleep if it sleeps elsewhere.
    waker: OnceLock<Arc<dyn Waker>>,
}

impl Bell {
    /// Wakes the listener if it sleeps; returns whether it did. Call it after the change that the listener waits for.
    pub(crate) fn ring(&self) -> bool {
        // Pairs with the fence in `doze`: either `wake` sees the sleeper, or the sleeper's check sees the change.
        fence(Ordering::SeqCst);
        self.wake()
    }

    fn wake(&self) -> bool {
        // Of several threads that ring, one wakes it. Relaxed: the fences order it.
        let (asleep, relaxed) = (&self.asleep, Ordering::Relaxed);
        if !asleep.load(relaxed) || asleep.compare_exchange(true, false, relaxed, relaxed).is_err() {
            return false;
        }
        // Taking the lock orders the notification after the sleeper's check-and-sleep, which holds it.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
        true
    }

    /// Wakes the listener if it sleeps and could begin more work; returns whether it did.
    pub(crate) fn ring_if_free(&self) -> bool {
        // As in `ring`: either these loads see the sleeper, or the sleeper's check sees what there is to take on.
        fence(Ordering::SeqCst);
        self.free.load(Ordering::Relaxed) && self.wake()
    }

    /// To be called before a sleep.
    pub(crate) fn set_free(&self, free: bool) {
        // Relaxed: the fence in `doze` comes after it.
        self.free.store(free, Ordering::Relaxed);
    }

    /// Sets what ends the sleep of a listener that waits for storage.
    pub(crate) fn set_waker(&self, waker: Arc<dyn Waker>) {
        let _ = self.waker.set(waker);
    }

    /// Sleeps until it rings or `ready` holds, at most `timeout`.
    pub(crate) fn wait(&self, timeout: Duration, ready: impl Fn() -> bool) {
        self.doze(&ready, || {
            let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            let asleep = |_: &mut ()| self.asleep.load(Ordering::Relaxed);
            let waited = self.changed.wait_timeout_while(guard, timeout, asleep);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        });
    }

    /// Calls `sleep`, which the bell's waker ends, unless `ready` holds.
    pub(crate) fn doze(&self, ready: impl Fn() -> bool, sleep: impl FnOnce()) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !ready() {
            sleep();
        }
        // A store would do. A swap, because `models` needs one (see its limits); it costs little beside the sleep.
        self.asleep.swap(false, Ordering::Relaxed);
    }
}
