//! In which order, and by which reader, the places of a data set were read first in an epoch. A place is where a reader
//! begins or jumps to. Of many places a uniform sample is kept, the same in every epoch.

use std::collections::HashMap;

use model::observed::EpochFiles;

use super::again::PassCount;
use crate::layout::file_hash;

/// Places kept.
const MOST: usize = 16_384;

/// First access of a place.
#[derive(Clone, Copy, Debug)]
struct First {
    position: u32,
    reader: u32,
}

/// Places of one epoch.
#[derive(Debug, Default)]
pub(super) struct Places {
    seen: HashMap<u64, First>,
    /// Leading zero bits that the hash of a place must have.
    bits: u32,
    next: u32,
    passes: PassCount,
}

/// How two epochs compare.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Likeness {
    /// Rank correlation of the order, over this many places that both have.
    pub(super) correlation: Option<f64>,
    pub(super) places: u64,
    /// Share of these that the same reader read, and what chance would give.
    pub(super) same_reader: Option<f64>,
    pub(super) chance: Option<f64>,
    /// Share of the earlier epoch's places that were read again.
    pub(super) repeated: Option<f64>,
}

impl Likeness {
    pub(super) fn show(self, figures: &mut EpochFiles) {
        figures.order_correlation = self.correlation;
        figures.order_places = self.places;
        figures.same_reader_share = self.same_reader;
        figures.same_reader_chance = self.chance;
        figures.repeated_places = self.repeated;
    }
}

impl Places {
    pub(super) fn read(&mut self, inode: u64, offset: u64, reader: u32) {
        let hash = place(inode, offset);
        if hash.leading_zeros() < self.bits {
            return;
        }
        self.passes.visit(hash);
        if self.seen.contains_key(&hash) {
            return;
        }
        self.seen.insert(hash, First { position: self.next, reader });
        self.next = self.next.saturating_add(1);
        while self.seen.len() > MOST {
            self.bits += 1;
            let bits = self.bits;
            self.seen.retain(|hash, _| hash.leading_zeros() >= bits);
            self.passes.thin(|hash| hash.leading_zeros() >= bits);
        }
    }

    pub(super) fn compare(&self, earlier: &Places) -> Likeness {
        let bits = self.bits.max(earlier.bits);
        let in_sample = |hash: &u64| hash.leading_zeros() >= bits;
        let mut both: Vec<(First, First)> = self
            .seen
            .iter()
            .filter(|(hash, _)| in_sample(hash))
            .filter_map(|(hash, now)| Some((*now, *earlier.seen.get(hash)?)))
            .collect();
        let before = earlier.seen.keys().filter(|hash| in_sample(hash)).count();
        if both.is_empty() {
            let repeated = (before > 0).then_some(0.0);
            return Likeness { repeated, ..Likeness::default() };
        }
        let count = both.len() as f64;
        let same = both.iter().filter(|(now, then)| now.reader == then.reader).count() as f64;
        let share = |which: fn(&(First, First)) -> u32| {
            let mut shares: HashMap<u32, f64> = HashMap::new();
            both.iter().for_each(|pair| *shares.entry(which(pair)).or_default() += 1.0 / count);
            shares
        };
        let (now, then) = (share(|pair| pair.0.reader), share(|pair| pair.1.reader));
        let chance = now.iter().map(|(reader, share)| share * then.get(reader).unwrap_or(&0.0)).sum();
        both.sort_unstable_by_key(|(now, _)| now.position);
        let then: Vec<u32> = both.iter().map(|(_, then)| then.position).collect();
        Likeness {
            correlation: rank_correlation(&then),
            places: both.len() as u64,
            same_reader: Some(same / count),
            chance: Some(chance),
            repeated: Some(count / before.max(1) as f64),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// How often all places were gone through.
    pub(super) fn passes(&self) -> u64 {
        self.passes.passes()
    }

    /// How the order in which a reader began its files correlates with that of these inodes: the mean of the readers.
    pub(super) fn correlation_with(&self, inodes: impl Iterator<Item = u64>) -> Option<f64> {
        let mut by_reader: HashMap<u32, Vec<u32>> = HashMap::new();
        for first in inodes.filter_map(|inode| self.seen.get(&place(inode, 0))) {
            by_reader.entry(first.reader).or_default().push(first.position);
        }
        let found: Vec<f64> = by_reader
            .values()
            .filter(|files| files.len() > 2)
            .filter_map(|files| rank_correlation(files))
            .collect();
        (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
    }
}

fn place(inode: u64, offset: u64) -> u64 {
    file_hash(inode ^ file_hash(offset ^ 0x5bd1_e995))
}

/// Spearman's correlation of distinct values with their index.
fn rank_correlation(values: &[u32]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let mut by_value: Vec<usize> = (0..values.len()).collect();
    by_value.sort_unstable_by_key(|index| values.get(*index));
    let squares: f64 =
        by_value.iter().enumerate().map(|(rank, index)| (rank as f64 - *index as f64).powi(2)).sum();
    let count = values.len() as f64;
    Some(1.0 - 6.0 * squares / (count * (count * count - 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(order: impl Iterator<Item = u64>, readers: u64, shift: u64) -> Places {
        let mut places = Places::default();
        order.for_each(|file| places.read(file, 0, ((file + shift) % readers) as u32));
        places
    }

    #[test]
    fn the_same_order_correlates() {
        let first = places(0..1000, 4, 0);
        let again = places(0..1000, 4, 0).compare(&first);
        assert_eq!((again.correlation, again.places, again.same_reader), (Some(1.0), 1000, Some(1.0)));
        assert!((again.chance.unwrap() - 0.25).abs() < 0.01 && again.repeated == Some(1.0), "{again:?}");
        let backwards = places((0..1000).rev(), 4, 1).compare(&first);
        assert_eq!((backwards.correlation, backwards.same_reader), (Some(-1.0), Some(0.0)));
        let shuffled = places((0..1000).map(|file| file * 379 % 1000), 4, 0).compare(&first);
        assert!(shuffled.correlation.unwrap().abs() < 0.3, "{shuffled:?}");
    }

    #[test]
    fn files_in_the_order_of_their_names_are_recognised() {
        let found = places(0..100, 4, 0);
        assert_eq!(found.correlation_with(0..100), Some(1.0));
        assert_eq!(found.correlation_with((0..100).rev()), Some(-1.0));
        assert_eq!(found.correlation_with(500..600), None);
    }

    #[test]
    fn other_places_do_not_compare() {
        let first = places(0..100, 2, 0);
        assert_eq!(places(1000..1100, 2, 0).compare(&first).repeated, Some(0.0));
        assert_eq!(places(0..100, 2, 0).compare(&Places::default()), Likeness::default());
    }

    #[test]
    fn a_sample_of_many_places_is_kept() {
        let first = places(0..200_000, 8, 0);
        assert!(first.seen.len() <= MOST && first.seen.len() > MOST / 4);
        let again = places(0..200_000, 8, 0).compare(&first);
        assert_eq!(again.correlation, Some(1.0));
        let twice = places((0..2).flat_map(|_| 0..200_000), 8, 0);
        assert_eq!((first.passes(), twice.passes()), (1, 2));
    }
}
