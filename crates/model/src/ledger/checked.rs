//! What was compared of the bytes that came with what the files should hold, and what that took.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// A fetch brings what a reader reads of one file at a time; each is counted in one place only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Fetches of which something was compared.
    pub fetches: u64,
    /// Fetches of our files of which nothing was: what should stand in them takes too much to find out.
    pub unknown: u64,
    /// Fetches of files that somebody else wrote: nobody knows what they should hold.
    pub foreign: u64,
    /// Fetches that brought wrong bytes.
    pub wrong: u64,
    /// Bytes that were compared, and were right.
    pub bytes: u64,
    /// From the moment a comparison began to the moment it ended; no part of any read.
    pub ns: Nanos,
}

impl AddAssign for Checked {
    fn add_assign(&mut self, other: Checked) {
        let Checked { fetches, unknown, foreign, wrong, bytes, ns } = other;
        self.fetches += fetches;
        self.unknown += unknown;
        self.foreign += foreign;
        self.wrong += wrong;
        self.bytes += bytes;
        self.ns += ns;
    }
}
