//! When a run took place, how long it took, and how much CPU time it used.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// The times of a run over all nodes; empty if they were not recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTimes {
    /// Local time, in a form that sorts.
    pub start: String,
    pub end: String,
    /// Of the node that took longest.
    #[serde(rename = "wall_ns")]
    pub wall: Nanos,
    /// Of all nodes together.
    #[serde(rename = "cpu_ns")]
    pub cpu: Nanos,
}

impl AddAssign for RunTimes {
    fn add_assign(&mut self, other: RunTimes) {
        let RunTimes { start, end, wall, cpu } = other;
        if self.start.is_empty() || (!start.is_empty() && start < self.start) {
            self.start = start;
        }
        if end > self.end {
            self.end = end;
        }
        self.wall = self.wall.max(wall);
        self.cpu += cpu;
    }
}
