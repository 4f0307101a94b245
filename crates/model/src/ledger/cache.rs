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
    /// The files that the phase reads. All nodes read from the same ones.
    #[serde(default)]
    pub stored: Stored,
    pub made: Made,
    pub counted: Counted,
    /// Bytes that fetches asked for, those that a fetch asks for more than once counted once: libraries read parts of
    /// a file again, which no storage sees.
    pub needed_bytes: u64,
    /// Where files are read more than once in an epoch, how much of that was asked for before.
    #[serde(default)]
    pub repeats: Repeats,
    /// How some of the files are stored.
    #[serde(default)]
    pub layout: Layout,
    /// What came from the storage, by the kernel's counter that fits its file system.
    pub storage: Amount,
    /// Whether that counter may miss some of it: then a small number shows nothing.
    pub storage_is_least: bool,
    /// What the block device below the files delivered, to whomever.
    pub device: Amount,
    /// What could not be told, and why.
    pub untold: BTreeSet<String>,
}

/// The files of a split; zero where they are not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    pub files: u64,
    pub bytes: u64,
}

impl Stored {
    /// What two nodes say of the same files: it is the same, or one of them does not know.
    fn larger(self, other: Stored) -> Stored {
        let Stored { files, bytes } = other;
        Stored { files: self.files.max(files), bytes: self.bytes.max(bytes) }
    }
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

/// Ranges of files that an epoch asks for again, which the storage need not deliver twice. Where there are too many to
/// remember, those of a random subset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeats {
    /// Bytes of the subset that were needed, as in `needed_bytes`.
    pub needed_bytes: u64,
    /// Those of them that an earlier fetch of the epoch had asked for, in exactly the same range.
    pub repeated_bytes: u64,
}

/// How files are stored. Some are looked at before each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    pub files: u64,
    pub bytes: u64,
    /// Holes, and blocks that were reserved but never written: both are read as zeros, from no storage.
    pub hole_bytes: u64,
    pub compressed_bytes: u64,
    /// Stored inside the file's metadata.
    pub inline_bytes: u64,
}

/// Fetches that brought bytes, by what is known of their pages; and the pages of those that were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    pub fetches: u64,
    /// Not drawn into the sample.
    pub left_out: u64,
    /// The kernel did not say.
    pub refused: u64,
    /// Of these, the fetches of files that belong to another user.
    #[serde(default)]
    pub not_permitted: u64,
    /// Not counted by a lane that should have: it is unknown where these bytes came from.
    pub unasked: u64,
    /// Of `fetches`, those of which only some pages could be asked about.
    #[serde(default)]
    pub in_part: u64,
    pub pages: u64,
    /// In memory right before they were read.
    pub resident: u64,
    /// The sum of squares of the pages of each fetch, which says what a sample of unequal fetches is worth.
    pub pages_squared: u64,
    /// Where files are read more than once in an epoch: the pages that were compared with this process's own earlier
    /// reads, and those of them that were in memory though none of these reads explains it.
    #[serde(default)]
    pub followed: u64,
    #[serde(default)]
    pub foreign: u64,
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
    /// Adds a fetch all of whose pages were counted.
    pub fn add(&mut self, resident: u64, pages: u64) {
        let pages_squared = pages.saturating_mul(pages);
        *self += Counted { fetches: 1, pages, resident, pages_squared, ..Counted::default() };
    }

    /// The share of the pages that were in memory, 0 to 1.
    pub fn resident_share(&self) -> Option<f64> {
        (self.pages > 0).then(|| self.resident as f64 / self.pages as f64)
    }

    /// Where that share lies: it is exact if all pages of all fetches were counted. A sample of unequal fetches is
    /// worth as much as this many equal ones (Kish): each fetch's share lies between 0 and 1, so it varies at most as a
    /// coin does.
    pub fn resident_interval(&self) -> Option<Confidence> {
        let is_sample = self.left_out > 0 || self.in_part > 0;
        Some(Counted::interval(self.resident_share()?, self.fetches_worth(), is_sample))
    }

    fn fetches_worth(&self) -> f64 {
        (self.pages as f64).powi(2) / self.pages_squared.max(1) as f64
    }

    /// The share of the followed pages that something else than this process has brought into memory.
    pub fn foreign_share(&self) -> Option<f64> {
        (self.followed > 0).then(|| self.foreign as f64 / self.followed as f64)
    }

    /// Where that share lies. Pages are followed in groups of about `group` neighbours, which may all be alike.
    fn foreign_interval(&self, group: u64) -> Option<Confidence> {
        let is_subset = self.left_out > 0 || self.followed < self.pages;
        let groups = (self.followed as f64 / group.max(1) as f64).max(1.0);
        let worth = if is_subset { groups } else { self.fetches_worth() };
        Some(Counted::interval(self.foreign_share()?, worth, is_subset || self.in_part > 0))
    }

    /// Wilson's interval for a share of a sample of this size.
    fn interval(share: f64, worth: f64, is_sample: bool) -> Confidence {
        if !is_sample {
            return Confidence { low: share, high: share };
        }
        let squared = NORMAL_95 * NORMAL_95;
        let middle = (share + squared / (2.0 * worth)) / (1.0 + squared / worth);
        let variance = share * (1.0 - share) / worth + squared / (4.0 * worth * worth);
        let reach = NORMAL_95 * variance.sqrt() / (1.0 + squared / worth);
        Confidence { low: (middle - reach).max(0.0), high: (middle + reach).min(1.0) }
    }
}

/// The size of a page for an estimate of how many of them are alike, and the pages of a region (`store::Footprint`).
const PAGE: u64 = 4096;
const REGION_PAGES: u64 = (16 << 20) / PAGE;

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
    /// Share of the pages in memory that no earlier read of this process explains, where files are read again.
    pub foreign_share: Option<f64>,
    pub foreign_interval: Option<Confidence>,
    pub made: Made,
    pub counted: Counted,
    pub layout: Layout,
    pub untold: BTreeSet<String>,
}

impl CacheSeen {
    pub fn figures(&self) -> CacheFigures {
        CacheFigures {
            storage_share: self.storage_share(),
            storage_bytes: self.storage.known(),
            device_bytes: self.device.known(),
            resident_share: self.counted.resident_share(),
            resident_interval: self.counted.resident_interval().filter(Confidence::is_wide),
            foreign_share: self.counted.foreign_share(),
            foreign_interval: self.foreign_interval().filter(Confidence::is_wide),
            made: self.made,
            counted: self.counted,
            layout: self.layout,
            untold: self.untold.clone(),
        }
    }

    /// Where the share of foreign pages lies. What is followed are whole files, or regions of large ones, whose pages
    /// may all be alike.
    pub fn foreign_interval(&self) -> Option<Confidence> {
        let Stored { files, bytes } = self.stored;
        self.counted.foreign_interval((bytes / files.max(1) / PAGE).clamp(1, REGION_PAGES))
    }

    /// What came from the storage over what had to come from there. `None` if nothing was needed, or it is not known.
    pub fn storage_share(&self) -> Option<f64> {
        let needed = self.distinct_bytes();
        self.storage.known().filter(|_| needed > 0.0).map(|bytes| bytes as f64 / needed)
    }

    /// What had to come from the storage: what was asked for, without what was asked for again, and never more than
    /// there is.
    fn distinct_bytes(&self) -> f64 {
        let Repeats { needed_bytes, repeated_bytes } = self.repeats;
        let once = 1.0 - repeated_bytes as f64 / needed_bytes.max(1) as f64;
        let most = if self.stored.bytes == 0 { f64::INFINITY } else { self.stored.bytes as f64 };
        (self.needed_bytes as f64 * once).min(most)
    }
}

impl AddAssign<&CacheSeen> for CacheSeen {
    fn add_assign(&mut self, other: &CacheSeen) {
        let CacheSeen {
            stored,
            made,
            counted,
            needed_bytes,
            repeats,
            layout,
            storage,
            storage_is_least,
            device,
            untold,
        } = other;
        self.stored = self.stored.larger(*stored);
        self.made += *made;
        self.counted += *counted;
        self.needed_bytes += needed_bytes;
        self.repeats += *repeats;
        self.layout += *layout;
        self.storage += *storage;
        self.storage_is_least |= storage_is_least;
        self.device += *device;
        self.untold.extend(untold.iter().cloned());
    }
}

impl AddAssign for Made {
    fn add_assign(&mut self, other: Made) {
        let Made { files, pages, found, after, host_drops, time_ns } = other;
        self.files += files;
        self.pages += pages;
        self.found += found;
        self.after += after;
        self.host_drops += host_drops;
        self.time_ns += time_ns;
    }
}

impl AddAssign for Repeats {
    fn add_assign(&mut self, other: Repeats) {
        let Repeats { needed_bytes, repeated_bytes } = other;
        self.needed_bytes += needed_bytes;
        self.repeated_bytes += repeated_bytes;
    }
}

impl AddAssign for Layout {
    fn add_assign(&mut self, other: Layout) {
        let Layout { files, bytes, hole_bytes, compressed_bytes, inline_bytes } = other;
        self.files += files;
        self.bytes += bytes;
        self.hole_bytes += hole_bytes;
        self.compressed_bytes += compressed_bytes;
        self.inline_bytes += inline_bytes;
    }
}

impl AddAssign for Counted {
    fn add_assign(&mut self, other: Counted) {
        let Counted {
            fetches,
            left_out,
            refused,
            not_permitted,
            unasked,
            in_part,
            pages,
            resident,
            pages_squared,
            followed,
            foreign,
        } = other;
        self.fetches += fetches;
        self.left_out += left_out;
        self.refused += refused;
        self.not_permitted += not_permitted;
        self.unasked += unasked;
        self.in_part += in_part;
        self.pages += pages;
        self.resident += resident;
        // Saturating still commutes and associates; beyond it a sample is worth no less than it says.
        self.pages_squared = self.pages_squared.saturating_add(pages_squared);
        self.followed += followed;
        self.foreign += foreign;
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        let Amount { bytes, told, untold } = other;
        self.bytes += bytes;
        self.told += told;
        self.untold += untold;
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
