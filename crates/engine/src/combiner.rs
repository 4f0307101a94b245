//! State that any thread can advance without waiting for its lock: a thread that finds the state locked leaves the work
//! to the thread that holds it. One thread sleeps until the state has something to do by itself.

use std::sync::PoisonError;

use model::units::Nanos;

use super::bell::Bell;
use super::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, TryLockError, fence};

/// State that changes when something happens elsewhere or a moment comes.
pub(crate) trait Advance {
    /// Does everything that can be done now. Returns the moment at which there is something to do again although
    /// nothing happens, or `None` if the sleeping thread has to look at once.
    fn advance(&mut self) -> Option<Nanos>;
}

#[derive(Debug)]
pub(crate) struct Combiner<T> {
    state: Mutex<T>,
    /// Something has happened since a thread last began to advance the state.
    dirty: AtomicBool,
    /// The sleeping thread has to look.
    called: AtomicBool,
    /// When the sleeping thread looks by itself.
    deadline: AtomicU64,
}

impl<T: Advance> Combiner<T> {
    pub(crate) fn new(state: T) -> Combiner<T> {
        let (dirty, called) = (AtomicBool::new(false), AtomicBool::new(false));
        Combiner { state: Mutex::new(state), dirty, called, deadline: AtomicU64::new(0) }
    }

    /// Advances the state after a change elsewhere. If another thread holds the state, that thread does it. `bell` is
    /// the sleeping thread's; it rings if that thread would look too late.
    pub(crate) fn nudge(&self, bell: &Bell) {
        // A swap and not a store: it continues the release sequence of a nudge whose flag it overwrites. So the thread
        // that clears the flag sees what all nudging threads did before.
        self.dirty.swap(true, Ordering::Release);
        // Pairs with the fence after an unlock, below and in the thread that holds the lock: if `try_lock` fails here,
        // that thread unlocks later, this fence comes before its fence, and its check sees the flag.
        fence(Ordering::SeqCst);
        while let Some(mut state) = self.try_lock() {
            if self.dirty.swap(false, Ordering::Acquire) {
                let next = state.advance();
                // Relaxed: the sleeping thread writes it while it holds the lock.
                let deadline = Nanos(self.deadline.load(Ordering::Relaxed));
                if next.is_none_or(|next| next < deadline) {
                    // Relaxed: the bell has the fence.
                    self.called.store(true, Ordering::Relaxed);
                    bell.ring();
                }
            }
            drop(state);
            fence(Ordering::SeqCst);
            if !self.dirty.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// For the sleeping thread: advances the state before the thread looks at it with `lock`.
    pub(crate) fn look(&self, bell: &Bell) {
        // Relaxed: a call after the thread has looked comes from a thread that locked the state after it.
        self.called.store(false, Ordering::Relaxed);
        self.nudge(bell);
    }

    /// For the sleeping thread, in the check that the bell makes after its fence: whether it has to look again, because
    /// it was called or because a nudge found the state locked by this thread.
    pub(crate) fn is_called(&self) -> bool {
        self.called.load(Ordering::Relaxed) || self.dirty.load(Ordering::Relaxed)
    }

    /// For the sleeping thread, which checks `is_called` before it sleeps.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For any thread: shows the state, unless another thread holds it. A nudge that finds it locked meanwhile is left
    /// to the sleeping thread.
    pub(crate) fn inspect<R>(&self, bell: &Bell, show: impl FnOnce(&T) -> R) -> Option<R> {
        let shown = show(&*self.try_lock()?);
        // As in `nudge`.
        fence(Ordering::SeqCst);
        if self.dirty.load(Ordering::Relaxed) {
            bell.ring();
        }
        Some(shown)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// For the sleeping thread: notes until when it sleeps, while it holds the lock or no other thread needs to know.
    pub(crate) fn set_deadline(&self, deadline: Nanos) {
        self.deadline.store(deadline.0, Ordering::Relaxed);
    }

    /// Until when the sleeping thread sleeps. Without the lock it may be outdated.
    pub(crate) fn deadline(&self) -> Nanos {
        Nanos(self.deadline.load(Ordering::Relaxed))
    }

    pub(crate) fn into_inner(self) -> T {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
