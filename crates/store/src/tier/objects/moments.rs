//! Which moments are being changed. The background thread of a run completes and removes checkpoints while another one
//! begins them: two changes of one moment must not overlap, and changes of different moments may.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use model::checkpoint::manifest::Moment;

/// One lock for each moment.
#[derive(Debug, Default)]
pub(super) struct MomentLocks {
    changing: Mutex<BTreeSet<Moment>>,
    changed: Condvar,
}

/// Keeps other threads from changing a moment until it is dropped.
#[derive(Debug)]
pub(super) struct MomentGuard<'a> {
    locks: &'a MomentLocks,
    moment: Moment,
}

impl MomentLocks {
    fn changing(&self) -> MutexGuard<'_, BTreeSet<Moment>> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other thread changes this moment.
    pub(super) fn lock(&self, moment: Moment) -> MomentGuard<'_> {
        let mut changing = self.changing();
        while !changing.insert(moment) {
            changing = self.changed.wait(changing).unwrap_or_else(PoisonError::into_inner);
        }
        MomentGuard { locks: self, moment }
    }
}

impl Drop for MomentGuard<'_> {
    fn drop(&mut self) {
        self.locks.changing().remove(&self.moment);
        self.locks.changed.notify_all();
    }
}
