//! Reads samples from several files in turn, like tf.data's interleave: a permutation of one rank's part of the order,
//! computed on demand.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The number of files that are read in turn, and the number of samples per turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interleave {
    pub cycle: u64,
    pub block: u64,
}

impl Interleave {
    /// One file after the other.
    pub const NONE: Interleave = Interleave { cycle: 1, block: 1 };

    /// The position in the order that is read at `position` of a rank's `stretch`, and how many following samples come
    /// from the same file. Only files entirely in the stretch take part; a partial file at its start or end is read in
    /// place.
    pub fn place(&self, stretch: &Range<u64>, per_file: u64, position: u64) -> (u64, u64) {
        if self.cycle <= 1 || per_file == 1 {
            return (position, stretch.end - position);
        }
        let first = stretch.start.next_multiple_of(per_file);
        let last = stretch.end / per_file * per_file;
        if !(first..last).contains(&position) {
            let stop = if position < first { first.min(stretch.end) } else { stretch.end };
            return (position, stop - position);
        }
        let round = self.cycle * per_file;
        let begin = first + (position - first) / round * round;
        let files = self.cycle.min((last - begin) / per_file);
        let (file, within, run) = self.turn(position - begin, files, per_file);
        (begin + file * per_file + within, run)
    }

    /// After `taken` samples: which of `files` files is next, the place in it, and the samples left in this turn.
    fn turn(&self, taken: u64, files: u64, per_file: u64) -> (u64, u64, u64) {
        let block = self.block.clamp(1, per_file);
        let whole = per_file / block;
        if taken < files * whole * block {
            let turn = taken / block;
            return (turn % files, turn / files * block + taken % block, block - taken % block);
        }
        // Samples that do not fill a block come last.
        let (rest, beyond) = (per_file % block, taken - files * whole * block);
        (beyond / rest, whole * block + beyond % rest, rest - beyond % rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taken(cycle: u64, block: u64, per_file: u64, stretch: Range<u64>) -> Vec<u64> {
        let interleave = Interleave { cycle, block };
        stretch.clone().map(|position| interleave.place(&stretch, per_file, position).0).collect()
    }

    #[test]
    fn files_take_turns() {
        assert_eq!(taken(2, 1, 3, 0..6), [0, 3, 1, 4, 2, 5]);
        assert_eq!(taken(2, 2, 3, 0..6), [0, 1, 3, 4, 2, 5]);
        assert_eq!(taken(2, 1, 2, 0..6), [0, 2, 1, 3, 4, 5], "the last round has one file");
        assert_eq!(taken(2, 1, 2, 1..6), [1, 2, 4, 3, 5], "a partial file comes first");
        assert_eq!(taken(1, 1, 3, 0..6), [0, 1, 2, 3, 4, 5]);
        assert_eq!(taken(9, 1, 2, 0..4), [0, 2, 1, 3], "fewer files than turns");
    }

    proptest! {
        #[test]
        fn every_position_is_read_once_and_runs_are_contiguous(
            cycle in 1u64..6, block in 1u64..6, per_file in 1u64..9, start in 0u64..40, len in 1u64..80,
        ) {
            let stretch = start..start + len;
            let all = taken(cycle, block, per_file, stretch.clone());
            let interleave = Interleave { cycle, block };
            for position in stretch.clone() {
                let (first, run) = interleave.place(&stretch, per_file, position);
                prop_assert!(run >= 1);
                let end = (position + run).min(stretch.end);
                let expected: Vec<u64> = (first..first + (end - position)).collect();
                prop_assert_eq!(&all[(position - start) as usize..(end - start) as usize], &expected[..]);
            }
            let mut sorted = all;
            sorted.sort_unstable();
            prop_assert_eq!(sorted, stretch.collect::<Vec<_>>());
        }
    }
}
