//! Merges byte ranges of a file into reads: as pyarrow requests the columns of a row group, or only the bytes. It
//! must not know what the ranges contain.

use crate::Extent;
use model::spec::Access;

/// pyarrow also reads the gap between two columns, if it is no longer than this
/// (`CacheOptions::hole_size_limit`).
const PYARROW_HOLE: u64 = 8 << 10;
/// pyarrow adds no column to a read that would become longer than this (`CacheOptions::range_size_limit`); a
/// longer column is read at once.
const PYARROW_MOST: u64 = 32 << 20;

/// Merges ranges, which arrive in ascending order, into reads.
#[derive(Debug)]
pub(super) struct ReadMerger {
    hole: u64,
    most: u64,
    read: Option<Extent>,
}

impl ReadMerger {
    pub(super) fn new(access: Access) -> ReadMerger {
        let (hole, most) = match access {
            Access::Framework => (PYARROW_HOLE, PYARROW_MOST),
            Access::Extent => (0, u64::MAX),
        };
        ReadMerger { hole, most, read: None }
    }

    pub(super) fn push(&mut self, place: Extent, reads: &mut Vec<Extent>) {
        if place.len == 0 {
            return;
        }
        if let Some(read) = &mut self.read {
            let near = place.offset <= read.end().saturating_add(self.hole);
            let end = place.end().max(read.end());
            if near && end - read.offset <= self.most {
                read.len = end - read.offset;
                return;
            }
        }
        reads.extend(self.read.replace(place));
    }

    /// Ends the current read.
    pub(super) fn finish(&mut self, reads: &mut Vec<Extent>) {
        reads.extend(self.read.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(access: Access, places: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let (mut join, mut reads) = (ReadMerger::new(access), Vec::new());
        places.iter().for_each(|&(offset, len)| join.push(Extent { offset, len }, &mut reads));
        join.finish(&mut reads);
        reads.iter().map(|read| (read.offset, read.len)).collect()
    }

    /// Recorded with strace of pyarrow 26.
    #[test]
    fn columns_are_merged_like_pyarrows() {
        let columns = |start: u64, len: u64, wanted: &[u64]| {
            wanted.iter().map(|column| (start + column * len, len)).collect::<Vec<_>>()
        };
        assert_eq!(
            joined(Access::Framework, &columns(4_928_204, 24_641, &[0, 1, 3, 10, 11, 199])),
            [(4_928_204, 49_282), (5_002_127, 24_641), (5_174_614, 49_282), (9_831_763, 24_641)]
        );
        let all: Vec<u64> = (0..200).collect();
        let mut all = columns(4, 480_267, &all);
        all[199].1 += 1;
        assert_eq!(
            joined(Access::Framework, &all),
            [(4, 33_138_423), (33_138_427, 33_138_423), (66_276_850, 29_776_555)]
        );
        let large = [(4, 33_583_829), (33_583_833, 33_583_829), (67_167_662, 67_146_241)];
        assert_eq!(joined(Access::Framework, &large), large);
        assert_eq!(joined(Access::Framework, &[(0, 10), (10 + 8192, 5), (15 + 2 * 8192 + 1, 5)]).len(), 2);
    }

    #[test]
    fn extents_are_merged_if_they_are_adjacent() {
        assert_eq!(joined(Access::Extent, &[(0, 5), (5, 5), (11, 1), (20, 0)]), [(0, 10), (11, 1)]);
    }
}
