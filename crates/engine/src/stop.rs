//! How work ends early: by a stop request from outside, from a signal handler or from a part that failed, which all
//! loops check; because the run has ended at another member; or by the watchdog, if the work makes no progress.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::units::Nanos;

type AbandonHook = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Clone, Default)]
pub struct Stop {
    wished: Arc<AtomicBool>,
    /// It is wished because the run has ended at another member.
    elsewhere: Arc<AtomicBool>,
    patience: Option<Nanos>,
    abandon: Option<AbandonHook>,
}

impl Stop {
    /// A stop that `flag` triggers, for instance one that a signal handler sets.
    pub fn on(flag: Arc<AtomicBool>) -> Stop {
        Stop { wished: flag, ..Stop::default() }
    }

    /// Sets what is done about work that does not end after a stop request, because its threads hang in the kernel. The
    /// function gets a text that lists the pending operations, and is not expected to return.
    pub fn or_abandon(self, abandon: impl Fn(&str) + Send + Sync + 'static) -> Stop {
        Stop { abandon: Some(Arc::new(abandon)), ..self }
    }

    /// The same with a stall timeout: the time without progress after which work counts as stuck; `None`: never.
    pub fn with_patience(&self, patience: Option<Nanos>) -> Stop {
        Stop { patience, ..self.clone() }
    }

    pub fn wish(&self) {
        // Relaxed: the flag publishes no data; a thread that reads it late stops a little later.
        self.wished.store(true, Ordering::Relaxed);
    }

    /// Stops work that continues although the run has ended at another member. This is no stop request: the cause is
    /// what ended the run there.
    pub(crate) fn end_here(&self) {
        if !self.wished() {
            self.elsewhere.store(true, Ordering::Relaxed);
            self.wish();
        }
    }

    /// The flag itself, for code that does not use this type.
    pub fn flag(&self) -> &AtomicBool {
        &self.wished
    }

    pub fn wished(&self) -> bool {
        self.wished.load(Ordering::Relaxed)
    }

    /// Whether a stop was requested, and not only the end of a run that has ended at another member.
    pub fn requested(&self) -> bool {
        self.wished() && !self.elsewhere.load(Ordering::Relaxed)
    }

    pub(crate) fn patience(&self) -> Option<Nanos> {
        self.patience
    }

    /// Whether anything is done about work that is stuck.
    pub(crate) fn is_watchful(&self) -> bool {
        self.patience.is_some() || self.abandon.is_some()
    }

    /// Abandons work that does not end.
    pub(crate) fn abandon(&self, message: &str) {
        if let Some(abandon) = &self.abandon {
            abandon(message);
        }
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wished, patience) = (self.wished(), self.patience);
        f.debug_struct("Stop").field("wished", &wished).field("patience", &patience).finish_non_exhaustive()
    }
}
