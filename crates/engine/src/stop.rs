//! The wish that a run end early, set from a signal handler or by a failing part, seen by everybody who loops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Debug, Default)]
pub struct Stop {
    wished: Arc<AtomicBool>,
}

impl Stop {
    /// A stop that `flag` triggers, for instance one that a signal handler sets.
    pub fn on(flag: Arc<AtomicBool>) -> Stop {
        Stop { wished: flag }
    }

    pub fn wish(&self) {
        // Relaxed: the flag carries no data; whoever sees it late stops a little later.
        self.wished.store(true, Ordering::Relaxed);
    }

    /// The flag itself, for those who know nothing of runs.
    pub fn flag(&self) -> &AtomicBool {
        &self.wished
    }

    pub fn wished(&self) -> bool {
        self.wished.load(Ordering::Relaxed)
    }
}
