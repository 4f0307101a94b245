//! Sleeping until something may have changed, without a lock on the way of those who change it: ringing costs one
//! fence and one load while nobody sleeps.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Bell {
    sleepers: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Bell {
    /// Wakes up to `count` sleepers. Call it after the change that they wait for.
    pub(crate) fn ring(&self, count: usize) {
        // Pairs with the fence in `wait`: either this load sees the sleeper, or the sleeper's check sees the change.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) == 0 {
            return;
        }
        // Taking the lock orders the notification after a sleeper's check-and-sleep, which holds it.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        if count == 1 { self.changed.notify_one() } else { self.changed.notify_all() }
    }

    /// Sleeps until `ready` holds, at most `timeout`. Says whether it holds.
    pub(crate) fn wait(&self, timeout: Duration, ready: impl Fn() -> bool) -> bool {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(guard, timeout, |()| !ready());
        let (guard, result) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        !result.timed_out()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn no_ring_is_lost() {
        // Ping-pong: each side waits for the other's count; a lost wake-up would show as a wait of a minute.
        let (here, there) = (Bell::default(), Bell::default());
        let (ping, pong) = (AtomicU64::new(0), AtomicU64::new(0));
        let minute = Duration::from_secs(60);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=5000 {
                    assert!(there.wait(minute, || ping.load(Ordering::Acquire) >= round));
                    pong.store(round, Ordering::Release);
                    here.ring(1);
                }
            });
            for round in 1..=5000 {
                ping.store(round, Ordering::Release);
                there.ring(1);
                assert!(here.wait(minute, || pong.load(Ordering::Acquire) >= round));
            }
        });
    }

    #[test]
    fn a_wait_ends_by_itself() {
        assert!(!Bell::default().wait(Duration::from_millis(1), || false));
        assert!(Bell::default().wait(Duration::from_secs(60), || true));
    }
}
