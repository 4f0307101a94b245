//! What was seen of saves and restores: the four times of a save, and what a restore brought.

use serde::{Deserialize, Serialize};

use super::manifest::Moment;
use crate::units::Nanos;

/// One save.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    pub moment: Moment,
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
    /// What went wrong on the way, whether or not it came out right in the end.
    pub troubles: Vec<String>,
}

impl Saved {
    pub fn new(moment: Moment, began: Nanos) -> Saved {
        Saved {
            moment,
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
            troubles: Vec::new(),
        }
    }

    /// Whether it is complete on any tier.
    pub fn is_complete(&self) -> bool {
        self.fast_ns.is_some() || self.durable_ns.is_some()
    }
}

/// One restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

impl Restored {
    /// The share that came from memory, 0 to 1; `None` where nobody can tell.
    pub fn cached_share(&self) -> Option<f64> {
        let (pages, cached) = (self.pages?, self.pages_cached?);
        (pages > 0).then(|| cached as f64 / pages as f64)
    }
}
