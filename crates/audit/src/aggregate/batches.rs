//! Whether the batches of an epoch are those of the epoch before, by hashes of a few of their values.

/// Batches of an epoch that are compared.
const MOST: usize = 256;
/// Fewer batches, or fewer different ones, say nothing.
const FEWEST: usize = 4;

/// Hashes of the first batches of an epoch: of the first and of the last tensor.
#[derive(Debug, Default)]
pub(super) struct Batches([Vec<u64>; 2]);

impl Batches {
    pub(super) fn add(&mut self, hashes: [u64; 2]) {
        for (kept, hash) in self.0.iter_mut().zip(hashes) {
            if kept.len() < MOST {
                kept.push(hash);
            }
        }
    }

    /// Batches that were compared, and equal ones: of the tensor with more equal ones, because augmentation changes
    /// images and leaves labels as they are.
    pub(super) fn compare(&self, earlier: &Batches) -> (u64, u64) {
        let pairs = self.0.iter().zip(&earlier.0);
        pairs.filter_map(|(now, then)| equal(now, then)).max_by_key(|(_, equal)| *equal).unwrap_or((0, 0))
    }
}

fn equal(now: &[u64], then: &[u64]) -> Option<(u64, u64)> {
    let different: std::collections::BTreeSet<&u64> = now.iter().filter(|hash| **hash != 0).collect();
    let compared = now.len().min(then.len());
    // Constant values, such as padding, are equal in any order.
    if compared < FEWEST || different.len() < FEWEST.max(now.len() / 2) {
        return None;
    }
    let equal = now.iter().zip(then).filter(|(one, other)| one == other).count();
    Some((compared as u64, equal as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(first: impl Iterator<Item = u64>, last: u64) -> Batches {
        let mut batches = Batches::default();
        first.for_each(|hash| batches.add([hash, last]));
        batches
    }

    #[test]
    fn equal_batches_are_counted() {
        let first = batches(1..1000, 7);
        assert_eq!(batches(1..1000, 7).compare(&first), (MOST as u64, MOST as u64));
        assert_eq!(batches((1..1000).rev(), 7).compare(&first), (MOST as u64, 0));
        assert_eq!(batches([1, 2, 9, 4].into_iter(), 7).compare(&first), (4, 3));
    }

    #[test]
    fn constant_values_say_nothing() {
        let constant = || batches([5; 100].into_iter(), 7);
        assert_eq!(constant().compare(&constant()), (0, 0));
        assert_eq!(batches(1..4, 7).compare(&batches(1..4, 7)), (0, 0));
    }
}
