//! Byte ranges of a file that were read, merged where they touch.

/// Ranges kept per file and process.
const MOST: usize = 4096;

/// Disjoint ranges in ascending order, as (begin, end).
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Adds a range. False if there are too many to keep it.
    pub(super) fn add(&mut self, begin: u64, end: u64) -> bool {
        if begin >= end {
            return true;
        }
        // Those that touch the new one: from the first that ends at or after its begin.
        let first = self.0.partition_point(|(_, old_end)| *old_end < begin);
        let after = first + self.0[first..].partition_point(|(old_begin, _)| *old_begin <= end);
        if first == after {
            if self.0.len() >= MOST {
                return false;
            }
            self.0.insert(first, (begin, end));
            return true;
        }
        let merged = (self.0[first].0.min(begin), self.0[after - 1].1.max(end));
        self.0[first] = merged;
        self.0.drain(first + 1..after);
        true
    }

    pub(super) fn add_all(&mut self, other: &Ranges) {
        other.0.iter().for_each(|(begin, end)| {
            self.add(*begin, *end);
        });
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|(begin, end)| end - begin).sum()
    }

    /// The same, unless summing up would take long.
    pub(super) fn bytes_if_small(&self) -> Option<u64> {
        (self.0.len() <= 16).then(|| self.bytes())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_that_touch_are_merged() {
        let mut ranges = Ranges::default();
        for (begin, end) in [(10, 20), (30, 40), (20, 30), (0, 5), (5, 5), (4, 11)] {
            assert!(ranges.add(begin, end));
        }
        assert_eq!(ranges.0, [(0, 40)]);
    }

    #[test]
    fn too_many_ranges_are_refused() {
        let mut ranges = Ranges::default();
        let kept = (0..5000u64).filter(|number| ranges.add(number * 10, number * 10 + 1)).count();
        assert_eq!((kept, ranges.len(), ranges.bytes()), (MOST, MOST, MOST as u64));
        assert!(ranges.add(0, 10), "one that touches another needs no room");
    }

    proptest! {
        #[test]
        fn bytes_are_those_of_a_bitmap(reads in proptest::collection::vec((0u64..300, 0u64..40), 0..60)) {
            let mut ranges = Ranges::default();
            let mut bitmap = [false; 400];
            for (begin, length) in reads {
                prop_assert!(ranges.add(begin, begin + length));
                bitmap[begin as usize..(begin + length) as usize].fill(true);
            }
            prop_assert_eq!(ranges.bytes(), bitmap.iter().filter(|set| **set).count() as u64);
            prop_assert!(ranges.0.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
