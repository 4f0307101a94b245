//! Primitives that loom does not have: a mutex and a condition variable like those of the standard library, and atomics
//! that are too weak.

use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, TryLockError, TryLockResult};
use std::time::Duration;

use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A mutex whose `try_lock` may read that it is locked after it was unlocked. With loom's own mutex it cannot, but with
/// that of the standard library it can: a failing `try_lock` is a relaxed load.
#[derive(Debug)]
pub(super) struct Mutex<T> {
    inner: loom::sync::Mutex<T>,
    locked: AtomicBool,
}

#[derive(Debug)]
pub(super) struct MutexGuard<'a, T> {
    inner: Option<loom::sync::MutexGuard<'a, T>>,
    locked: &'a AtomicBool,
}

impl<T> Mutex<T> {
    pub(super) fn new(data: T) -> Mutex<T> {
        Mutex { inner: loom::sync::Mutex::new(data), locked: AtomicBool::new(false) }
    }

    pub(super) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let inner = self.inner.lock().unwrap();
        self.locked.store(true, Ordering::Relaxed);
        Ok(MutexGuard { inner: Some(inner), locked: &self.locked })
    }

    pub(super) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        if self.locked.load(Ordering::Relaxed) {
            return Err(TryLockError::WouldBlock);
        }
        let inner = self.inner.try_lock().map_err(|_| TryLockError::WouldBlock)?;
        self.locked.store(true, Ordering::Relaxed);
        Ok(MutexGuard { inner: Some(inner), locked: &self.locked })
    }

    pub(super) fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().unwrap()
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        // A model that has failed takes its threads down, and cannot run operations any more.
        if !std::thread::panicking() {
            self.locked.store(false, Ordering::Release);
        }
    }
}

/// A condition variable whose waits do not time out.
#[derive(Debug, Default)]
pub(super) struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub(super) fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        _: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, ())> {
        while condition(&mut *guard) {
            guard.locked.store(false, Ordering::Release);
            guard.inner = guard.inner.take().map(|inner| self.0.wait(inner).unwrap());
            guard.locked.store(true, Ordering::Relaxed);
        }
        Ok((guard, ()))
    }

    pub(super) fn notify_one(&self) {
        self.0.notify_one();
    }
}

/// An atomic whose read-modify-writes are a load and a store.
macro_rules! split {
    ($split:ident, $atomic:ident, $value:ty) => {
        #[derive(Debug, Default)]
        pub(super) struct $split($atomic);

        impl $split {
            pub(super) fn new(value: $value) -> $split {
                $split($atomic::new(value))
            }

            pub(super) fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }

            pub(super) fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
            }

            fn change(&self, change: impl FnOnce($value) -> $value) -> $value {
                let before = self.0.load(Ordering::Acquire);
                self.0.store(change(before), Ordering::Release);
                before
            }

            pub(super) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                _: Ordering,
                _: Ordering,
            ) -> Result<$value, $value> {
                let before = self.0.load(Ordering::Acquire);
                if before != current {
                    return Err(before);
                }
                self.0.store(new, Ordering::Release);
                Ok(before)
            }
        }
    };
}

split!(SplitBool, AtomicBool, bool);
split!(SplitU64, AtomicU64, u64);

impl SplitBool {
    pub(super) fn swap(&self, value: bool, _: Ordering) -> bool {
        self.change(|_| value)
    }
}

impl SplitU64 {
    pub(super) fn fetch_add(&self, value: u64, _: Ordering) -> u64 {
        self.change(|before| before + value)
    }

    pub(super) fn fetch_sub(&self, value: u64, _: Ordering) -> u64 {
        self.change(|before| before.wrapping_sub(value))
    }

    pub(super) fn fetch_max(&self, value: u64, _: Ordering) -> u64 {
        self.change(|before| before.max(value))
    }

    pub(super) fn compare_exchange_weak(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.compare_exchange(current, new, success, failure)
    }
}
