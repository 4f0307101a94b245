//! The port through which a front end shows progress. The session says what starts and how large it is; the events and
//! live counters come from the engine.

use engine::meter::Monotonic;
use engine::{Events, Progress};
use model::units::Nanos;
use store::Now;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivityUnit {
    /// Samples that accelerators train with, whose utilization is shown, too.
    Samples,
    Files,
}

impl ActivityUnit {
    pub fn name(self) -> &'static str {
        match self {
            ActivityUnit::Samples => "samples",
            ActivityUnit::Files => "files",
        }
    }
}

/// The size of an activity.
#[derive(Clone, Copy, Debug)]
pub struct Activity {
    pub what: &'static str,
    pub unit: ActivityUnit,
    /// 0 if unknown: then there is no percentage and no remaining time.
    pub total: u64,
}

impl Activity {
    /// How many of the total are done, and their bytes.
    pub fn done(&self, progress: &Progress) -> (u64, u64) {
        match self.unit {
            ActivityUnit::Samples => (progress.samples, progress.bytes),
            ActivityUnit::Files => (progress.files, progress.file_bytes),
        }
    }
}

/// A display of progress.
pub trait Observer: Sync {
    /// Calls `work`, and meanwhile shows the events and counters that it writes.
    fn during(&self, goal: &Activity, events: &Events, work: &mut dyn FnMut());
}

/// Shows nothing.
#[derive(Clone, Copy, Debug)]
pub struct SilentObserver;

impl Observer for SilentObserver {
    fn during(&self, _goal: &Activity, _events: &Events, work: &mut dyn FnMut()) {
        work();
    }
}

/// Does work while an observer shows it; returns the time that it took, too.
pub fn observed<T>(observer: &dyn Observer, goal: Activity, work: impl FnOnce(&Events) -> T) -> (T, Nanos) {
    let (events, mut work, mut done) = (Events::default(), Some(work), None);
    let mut once = || {
        if let Some(work) = work.take() {
            let clock = Monotonic::new();
            let value = work(&events);
            done = Some((value, clock.now()));
        }
    };
    observer.during(&goal, &events, &mut once);
    // If the observer did not call it, the work is done here.
    once();
    match done {
        Some(done) => done,
        None => unreachable!("the work was done once"),
    }
}
