//! What was seen of saves and restores: the four times of a save, what a restore brought, and what steps of training
//! took while something went on in the background.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::manifest::Moment;
use crate::units::Nanos;

/// CPU time that the process used in a span, and CPU time that there was: the span times the cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cpu {
    pub used_ns: Nanos,
    pub core_ns: Nanos,
}

/// One save.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Saved {
    pub moment: Moment,
    /// Its number among all checkpoints of the folder.
    #[serde(default)]
    pub serial: u64,
    pub bytes: u64,
    pub files: u64,
    /// When it began, on the run's clock.
    pub began: Nanos,
    /// For how long training stood still, and how much of that for a free slot or memory.
    pub blocked_ns: Nanos,
    pub back_pressure_ns: Nanos,
    /// From the beginning until it was durable on the fast tier and on the last one; `None` if it never was, or without
    /// a fast tier.
    pub fast_ns: Option<Nanos>,
    pub durable_ns: Option<Nanos>,
    /// What the drain took by itself.
    pub drain_ns: Option<Nanos>,
    /// The slowest rank's time for writing its files, and rank 0's, which is what DLIO reports.
    pub slowest_rank_ns: Nanos,
    pub first_rank_ns: Nanos,
    /// While training waited.
    pub cpu: Cpu,
    /// What went wrong on the way, whether or not it came out right in the end.
    pub troubles: Vec<String>,
}

impl Saved {
    pub fn new(moment: Moment, began: Nanos) -> Saved {
        Saved {
            moment,
            serial: 0,
            bytes: 0,
            files: 0,
            began,
            blocked_ns: Nanos::ZERO,
            back_pressure_ns: Nanos::ZERO,
            fast_ns: None,
            durable_ns: None,
            drain_ns: None,
            slowest_rank_ns: Nanos::ZERO,
            first_rank_ns: Nanos::ZERO,
            cpu: Cpu::default(),
            troubles: Vec::new(),
        }
    }

    /// Whether it is complete on any tier.
    pub fn is_complete(&self) -> bool {
        self.fast_ns.is_some() || self.durable_ns.is_some()
    }
}

/// One restore.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Restored {
    pub moment: Moment,
    /// Whether it came from the fast tier.
    pub from_fast: bool,
    pub bytes: u64,
    pub files: u64,
    pub began: Nanos,
    pub took_ns: Nanos,
    pub slowest_rank_ns: Nanos,
    pub first_rank_ns: Nanos,
    /// Pages of the files, and those of them that were in memory right before; `None` where nobody can tell.
    pub pages: Option<u64>,
    pub pages_cached: Option<u64>,
    /// Bytes that were compared with what was saved.
    pub verified_bytes: u64,
    pub cpu: Cpu,
    /// Why it came to nothing, if it did.
    pub failure: Option<String>,
}

/// How long steps of training took, from the end of the last to their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steps {
    pub count: u64,
    pub time_ns: Nanos,
}

impl Steps {
    pub fn add(&mut self, time: Nanos) {
        self.count += 1;
        self.time_ns += time;
    }

    pub fn mean(self) -> Option<Nanos> {
        self.time_ns.0.checked_div(self.count).map(Nanos)
    }
}

impl AddAssign for Steps {
    fn add_assign(&mut self, other: Steps) {
        self.count += other.count;
        self.time_ns += other.time_ns;
    }
}

/// All that was seen of checkpoints in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoints {
    pub saves: Vec<Saved>,
    pub restores: Vec<Restored>,
    /// Steps while a checkpoint was on its way in the background, and all others.
    pub steps_beside: Steps,
    pub steps_apart: Steps,
}

impl Checkpoints {
    pub fn is_empty(&self) -> bool {
        *self == Checkpoints::default()
    }

    /// By how much steps take longer while a checkpoint is on its way in the background: 1 is not at all.
    pub fn step_slowdown(&self) -> Option<f64> {
        let (beside, apart) = (self.steps_beside.mean()?, self.steps_apart.mean()?);
        (apart > Nanos::ZERO).then(|| beside.seconds() / apart.seconds())
    }
}

impl AddAssign for Checkpoints {
    fn add_assign(&mut self, other: Checkpoints) {
        // Kept sorted, so that addition commutes.
        self.saves.extend(other.saves);
        self.saves.sort();
        self.restores.extend(other.restores);
        self.restores.sort();
        self.steps_beside += other.steps_beside;
        self.steps_apart += other.steps_apart;
    }
}

impl Restored {
    pub fn new(moment: Moment, began: Nanos) -> Restored {
        Restored {
            moment,
            from_fast: false,
            bytes: 0,
            files: 0,
            began,
            took_ns: Nanos::ZERO,
            slowest_rank_ns: Nanos::ZERO,
            first_rank_ns: Nanos::ZERO,
            pages: None,
            pages_cached: None,
            verified_bytes: 0,
            cpu: Cpu::default(),
            failure: None,
        }
    }

    /// The share that came from memory, 0 to 1; `None` where nobody can tell.
    pub fn cached_share(&self) -> Option<f64> {
        let (pages, cached) = (self.pages?, self.pages_cached?);
        (pages > 0).then(|| cached as f64 / pages as f64)
    }
}
