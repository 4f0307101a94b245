//! All ranks in one process: the last one here is the last one.

use std::ops::Range;

use model::units::Nanos;

use super::World;

/// A run in one process.
#[derive(Clone, Copy, Debug)]
pub struct Solo {
    ranks: u64,
}

impl Solo {
    pub fn new(ranks: u64) -> Solo {
        Solo { ranks }
    }
}

impl World for Solo {
    fn ranks(&self) -> Range<u64> {
        0..self.ranks
    }

    fn node(&self) -> u64 {
        0
    }

    fn meet(&self, last_here: Nanos) -> Nanos {
        last_here
    }
}
