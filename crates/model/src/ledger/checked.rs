//! Comparisons of the bytes read with the expected content, and their cost.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// A fetch reads the bytes of one file that a reader needs at a time. Each fetch is counted in one field only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedFetches {
    /// Fetches with compared bytes.
    pub fetches: u64,
    /// Fetches of generated files without compared bytes: their expected content is too expensive to compute.
    pub unknown: u64,
    /// Fetches of existing files: their expected content is unknown.
    pub foreign: u64,
    /// Fetches that returned wrong bytes.
    pub wrong: u64,
    /// Bytes that were compared and correct.
    pub bytes: u64,
    /// Time spent comparing; not part of any read.
    pub ns: Nanos,
}

impl AddAssign for CheckedFetches {
    fn add_assign(&mut self, other: CheckedFetches) {
        let CheckedFetches { fetches, unknown, foreign, wrong, bytes, ns } = other;
        self.fetches += fetches;
        self.unknown += unknown;
        self.foreign += foreign;
        self.wrong += wrong;
        self.bytes += bytes;
        self.ns += ns;
    }
}
