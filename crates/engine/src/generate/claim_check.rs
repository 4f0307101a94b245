//! Looks from time to time, while files are written, whether another generator has claimed the folder. A lock keeps
//! others out; on storage without locks, the one that began earlier has to notice and end.

use std::sync::atomic::{AtomicU64, Ordering};

use model::units::Nanos;
use store::{Files, Now, StoreError};

use crate::meter::Monotonic;

/// How often: one small request in this time does not slow the writers down.
const EVERY: Nanos = Nanos(if cfg!(test) { 0 } else { 5_000_000_000 });

/// When to look next, for all writers together.
pub(super) struct ClaimCheck {
    clock: Monotonic,
    due: AtomicU64,
}

impl Default for ClaimCheck {
    fn default() -> ClaimCheck {
        ClaimCheck { clock: Monotonic::new(), due: AtomicU64::new(EVERY.0) }
    }
}

impl ClaimCheck {
    /// An error if another generator has claimed the folder. Usually only looks at the clock.
    pub(super) fn check(&self, files: &dyn Files) -> Result<(), StoreError> {
        // Relaxed: the value only decides which writer looks.
        let (now, due) = (self.clock.now(), self.due.load(Ordering::Relaxed));
        let next = (now + EVERY).0;
        let is_mine = now.0 >= due
            && self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_mine { files.check_guard() } else { Ok(()) }
    }
}
