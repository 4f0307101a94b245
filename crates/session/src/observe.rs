//! The port through which a front end shows how far the work is. The session says what begins and what it comes to; the
//! events and live counters are the engine's.

use engine::meter::Monotonic;
use engine::{Events, Progress};
use model::units::Nanos;
use store::Now;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Samples that accelerators are trained with, whose utilisation is worth showing, too.
    Samples,
    Files,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Unit::Samples => "samples",
            Unit::Files => "files",
        }
    }
}

/// What an activity comes to.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    pub what: &'static str,
    pub unit: Unit,
    /// 0 if it is unknown: then there is neither percentage nor time left.
    pub total: u64,
}

impl Goal {
    /// How many of the total are done, and their bytes.
    pub fn done(&self, progress: &Progress) -> (u64, u64) {
        match self.unit {
            Unit::Samples => (progress.samples, progress.bytes),
            Unit::Files => (progress.files, progress.file_bytes),
        }
    }
}

/// A display of progress.
pub trait Observer: Sync {
    /// Calls `work`, and shows meanwhile the events and counters that it writes to.
    fn during(&self, goal: &Goal, events: &Events, work: &mut dyn FnMut());
}

/// Shows nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Observer for Silent {
    fn during(&self, _goal: &Goal, _events: &Events, work: &mut dyn FnMut()) {
        work();
    }
}

/// Does work while an observer shows it, and says how long it took.
pub fn observed<T>(observer: &dyn Observer, goal: Goal, work: impl FnOnce(&Events) -> T) -> (T, Nanos) {
    let (events, mut work, mut done) = (Events::default(), Some(work), None);
    let mut once = || {
        if let Some(work) = work.take() {
            let clock = Monotonic::new();
            let value = work(&events);
            done = Some((value, clock.now()));
        }
    };
    observer.during(&goal, &events, &mut once);
    // An observer that has not called it loses no work.
    once();
    match done {
        Some(done) => done,
        None => unreachable!("the work was done once"),
    }
}
