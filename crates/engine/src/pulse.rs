//! What is happening right now, for whoever draws progress: counters that workers add to in passing and that a
//! display polls. Nothing in a result comes from here.

use std::sync::atomic::{AtomicU64, Ordering};

use model::units::Nanos;

/// Live counters. Relaxed throughout: a display may see a moment's mixture.
#[derive(Debug, Default)]
pub struct Pulse {
    samples: AtomicU64,
    bytes: AtomicU64,
    epoch: AtomicU64,
    steps: AtomicU64,
    busy_ns: AtomicU64,
    time_ns: AtomicU64,
    /// Files whose pages have been looked at before the phase; one more than they are while that goes on.
    preparing: AtomicU64,
}

/// One look at the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Samples read, or files written, since the start.
    pub samples: u64,
    pub bytes: u64,
    /// The epoch at work; 0 before the first.
    pub epoch: u64,
    /// Steps that rank after rank has begun, over all epochs.
    pub steps: u64,
    /// Files that have been made ready for the next phase, while that goes on.
    pub preparing: Option<u64>,
    /// Compute time and whole time of these steps, over all ranks.
    pub busy: Nanos,
    pub time: Nanos,
}

impl Progress {
    /// AU so far in percent.
    pub fn au_percent(&self) -> Option<f64> {
        (self.time.0 > 0).then(|| 100.0 * self.busy.0 as f64 / self.time.0 as f64)
    }
}

impl Pulse {
    pub(crate) fn add(&self, samples: u64, bytes: u64) {
        self.samples.fetch_add(samples, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn begin_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    pub(crate) fn begin_preparing(&self) {
        self.preparing.store(1, Ordering::Relaxed);
    }

    /// So many files more were made ready.
    pub(crate) fn prepare(&self, files: u64) {
        self.preparing.fetch_add(files, Ordering::Relaxed);
    }

    /// All files are ready.
    pub(crate) fn prepared(&self) {
        self.preparing.store(0, Ordering::Relaxed);
    }

    pub(crate) fn step(&self, busy: Nanos, time: Nanos) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.busy_ns.fetch_add(busy.0, Ordering::Relaxed);
        self.time_ns.fetch_add(time.0, Ordering::Relaxed);
    }

    pub(crate) fn idle(&self, time: Nanos) {
        self.time_ns.fetch_add(time.0, Ordering::Relaxed);
    }

    pub fn look(&self) -> Progress {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Progress {
            samples: load(&self.samples),
            bytes: load(&self.bytes),
            epoch: load(&self.epoch),
            steps: load(&self.steps),
            preparing: load(&self.preparing).checked_sub(1),
            busy: Nanos(load(&self.busy_ns)),
            time: Nanos(load(&self.time_ns)),
        }
    }
}
