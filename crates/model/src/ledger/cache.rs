//! What was seen of the page cache in one phase: what was done to it before, which pages were in memory right before
//! they were read, and how many bytes the storage below it delivered meanwhile. Exact counts that add up; what could
//! not be told stands here with its reason.

use std::collections::BTreeSet;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::statistics::Confidence;
use crate::units::Nanos;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheSeen {
    pub made: Made,
    pub counted: Counted,
    /// Bytes that fetches asked for, those that a fetch asks for more than once counted once: libraries read parts of
    /// a file again, which no storage sees.
    pub needed_bytes: u64,
    /// What came from the storage, by the kernel's counter that fits its file system.
    pub storage: Amount,
    /// Whether that counter may miss some of it: then a small number shows nothing.
    pub storage_is_least: bool,
    /// What the block device below the files delivered, to whomever.
    pub device: Amount,
    /// What could not be told, and why.
    pub untold: BTreeSet<String>,
}

/// How the cache was made ready for the phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Files that were looked at, and their pages.
    pub files: u64,
    pub pages: u64,
    /// Those of the pages that were in memory before and after.
    pub found: u64,
    pub after: u64,
    /// How often the whole host's cache was emptied.
    pub host_drops: u64,
    pub time_ns: Nanos,
}

/// Fetches that brought bytes, by what is known of their pages; and the pages of those that were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    pub fetches: u64,
    /// Not drawn into the sample.
    pub left_out: u64,
    /// The kernel did not say.
    pub refused: u64,
    /// Nobody asked: who knows where these bytes came from.
    pub unasked: u64,
    pub pages: u64,
    /// In memory right before they were read.
    pub resident: u64,
    /// The sum of squares of the pages of each fetch, which says what a sample of unequal fetches is worth.
    pub pages_squared: u64,
}

/// A number of bytes that not everyone could tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    pub bytes: u64,
    /// How often it was told, and how often it could not be.
    pub told: u64,
    pub untold: u64,
}

impl Amount {
    pub fn new(bytes: Option<u64>) -> Amount {
        let told = u64::from(bytes.is_some());
        Amount { bytes: bytes.unwrap_or(0), told, untold: 1 - told }
    }

    /// `None` if somebody could not tell.
    pub fn known(&self) -> Option<u64> {
        (self.told > 0 && self.untold == 0).then_some(self.bytes)
    }
}

impl Counted {
    /// Adds a fetch whose pages were counted.
    pub fn add(&mut self, resident: u64, pages: u64) {
        let pages_squared = pages.saturating_mul(pages);
        *self += Counted { fetches: 1, pages, resident, pages_squared, ..Counted::default() };
    }

    /// The share of the pages that were in memory, 0 to 1.
    pub fn resident_share(&self) -> Option<f64> {
        (self.pages > 0).then(|| self.resident as f64 / self.pages as f64)
    }

    /// Where that share lies. Of all fetches it is known; of a sample it is Wilson's interval for as many fetches as
    /// unequal ones are worth (Kish): each fetch's share lies between 0 and 1, so it varies at most as a coin does.
    pub fn resident_interval(&self) -> Option<Confidence> {
        let share = self.resident_share()?;
        if self.left_out == 0 {
            return Some(Confidence { low: share, high: share });
        }
        let worth = (self.pages as f64).powi(2) / self.pages_squared.max(1) as f64;
        let squared = NORMAL_95 * NORMAL_95;
        let middle = (share + squared / (2.0 * worth)) / (1.0 + squared / worth);
        let variance = share * (1.0 - share) / worth + squared / (4.0 * worth * worth);
        let reach = NORMAL_95 * variance.sqrt() / (1.0 + squared / worth);
        Some(Confidence { low: (middle - reach).max(0.0), high: (middle + reach).min(1.0) })
    }
}

/// The normal distribution's quantile for an interval of 95 %.
const NORMAL_95: f64 = 1.959_964;

/// What a result says about the cache in one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheFigures {
    /// Bytes from the storage over bytes needed; below 1 the rest came from memory.
    pub storage_share: Option<f64>,
    pub storage_bytes: Option<u64>,
    pub device_bytes: Option<u64>,
    /// Share of the pages in memory right before they were read, and its interval where a sample was counted.
    pub resident_share: Option<f64>,
    pub resident_interval: Option<Confidence>,
    pub made: Made,
    pub counted: Counted,
    pub untold: BTreeSet<String>,
}

impl CacheSeen {
    /// `stored`: the bytes of all files of the split.
    pub fn figures(&self, stored: u64) -> CacheFigures {
        CacheFigures {
            storage_share: self.storage_share(stored),
            storage_bytes: self.storage.known(),
            device_bytes: self.device.known(),
            resident_share: self.counted.resident_share(),
            resident_interval: self.counted.resident_interval().filter(|_| self.counted.left_out > 0),
            made: self.made,
            counted: self.counted,
            untold: self.untold.clone(),
        }
    }

    /// What came from the storage over what had to come from there: what was asked for, but never more than there is,
    /// since an epoch needs no byte twice. `None` if nothing was needed, or nobody knows.
    pub fn storage_share(&self, stored: u64) -> Option<f64> {
        let needed = self.needed_bytes.min(stored);
        self.storage.known().filter(|_| needed > 0).map(|bytes| bytes as f64 / needed as f64)
    }
}

impl AddAssign<&CacheSeen> for CacheSeen {
    fn add_assign(&mut self, other: &CacheSeen) {
        self.made += other.made;
        self.counted += other.counted;
        self.needed_bytes += other.needed_bytes;
        self.storage += other.storage;
        self.storage_is_least |= other.storage_is_least;
        self.device += other.device;
        self.untold.extend(other.untold.iter().cloned());
    }
}

impl AddAssign for Made {
    fn add_assign(&mut self, other: Made) {
        self.files += other.files;
        self.pages += other.pages;
        self.found += other.found;
        self.after += other.after;
        self.host_drops += other.host_drops;
        self.time_ns += other.time_ns;
    }
}

impl AddAssign for Counted {
    fn add_assign(&mut self, other: Counted) {
        self.fetches += other.fetches;
        self.left_out += other.left_out;
        self.refused += other.refused;
        self.unasked += other.unasked;
        self.pages += other.pages;
        self.resident += other.resident;
        // Saturating still commutes and associates; beyond it a sample is worth no less than it says.
        self.pages_squared = self.pages_squared.saturating_add(other.pages_squared);
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        self.bytes += other.bytes;
        self.told += other.told;
        self.untold += other.untold;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_known_when_everybody_told() {
        let sum = |parts: &[Option<u64>]| {
            let mut sum = Amount::default();
            parts.iter().for_each(|part| sum += Amount::new(*part));
            sum.known()
        };
        assert_eq!(
            [sum(&[]), sum(&[Some(3), Some(4)]), sum(&[Some(3), None]), sum(&[None])],
            [None, Some(7), None, None]
        );
        assert_eq!(sum(&[Some(0)]), Some(0), "zero is a number");
    }

    #[test]
    fn a_sample_has_an_interval_and_a_whole_has_none() {
        let mut counted = Counted::default();
        assert_eq!(counted.resident_interval(), None);
        (0..100).for_each(|fetch| counted.add(if fetch < 10 { 28 } else { 0 }, 28));
        assert_eq!(counted.resident_interval(), Some(Confidence { low: 0.1, high: 0.1 }));
        counted.left_out = 1500;
        let Confidence { low, high } = counted.resident_interval().unwrap();
        // Wilson's interval for 10 of 100, from a table.
        assert!((low - 0.0552).abs() < 1e-4 && (high - 0.1744).abs() < 1e-4, "{low} {high}");
        let mut none = Counted { left_out: 1, ..Counted::default() };
        (0..100).for_each(|_| none.add(0, 28));
        let high = none.resident_interval().unwrap().high;
        assert!((high - 0.0370).abs() < 1e-4, "nothing in 100 is not nothing at all: {high}");
    }

    #[test]
    fn few_large_fetches_are_worth_less_than_many_small_ones() {
        let mut counted = Counted { left_out: 1, ..Counted::default() };
        (0..100).for_each(|_| counted.add(1, 10));
        let even = counted.resident_interval().unwrap();
        counted.add(1000, 10_000);
        let uneven = counted.resident_interval().unwrap();
        assert!(uneven.low < even.low && uneven.high > even.high, "{uneven:?} {even:?}");
    }
}
