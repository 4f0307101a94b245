//! Observations of the page cache in one phase: how it was prepared, which pages were in memory right before they were
//! read, and how many bytes the storage delivered meanwhile. These are exact counts that add up. Facts that could not
//! be determined are recorded with the reason.

use std::collections::BTreeSet;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::statistics::Confidence;
use crate::units::Nanos;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedCache {
    /// The files that the phase reads. All nodes read the same files.
    #[serde(default)]
    pub stored: FileTotals,
    pub made: CachePreparation,
    pub counted: Counted,
    /// Bytes that fetches requested. Bytes that one fetch requests more than once count once: libraries re-read parts
    /// of a file, and those requests never reach the storage.
    pub needed_bytes: u64,
    /// If files are read more than once in an epoch: how much was requested before.
    #[serde(default)]
    pub repeats: RepeatedReads,
    /// How a sample of the files is stored.
    #[serde(default)]
    pub layout: StorageLayout,
    /// Bytes that the storage delivered, from the kernel counter that fits the file system.
    pub storage: ReportedBytes,
    /// Whether that counter may miss bytes; a low value then proves nothing.
    pub storage_is_least: bool,
    /// Bytes that the block device below the files delivered, to any process.
    pub device: ReportedBytes,
    /// Bytes that the network interfaces of the host received, for any process. Recorded in runs of several processes.
    #[serde(default, skip_serializing_if = "ReportedBytes::is_empty")]
    pub network: ReportedBytes,
    /// Why something could not be determined.
    pub untold: BTreeSet<String>,
}

/// The files of a split; zero if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTotals {
    pub files: u64,
    pub bytes: u64,
}

impl FileTotals {
    /// Two nodes' values for the same files: equal, or one of them is unknown.
    fn larger(self, other: FileTotals) -> FileTotals {
        let FileTotals { files, bytes } = other;
        FileTotals { files: self.files.max(files), bytes: self.bytes.max(bytes) }
    }
}

/// How the cache was prepared for the phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachePreparation {
    /// The examined files, and their pages.
    pub files: u64,
    pub pages: u64,
    /// The pages that were in memory before and after.
    pub found: u64,
    pub after: u64,
    /// How often the page cache of the whole host was dropped.
    pub host_drops: u64,
    pub time_ns: Nanos,
}

/// Ranges of files that an epoch requests again, which the storage need not deliver twice. If there are too many to
/// track, those of a random subset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepeatedReads {
    /// Bytes needed in the subset, as in `needed_bytes`.
    pub needed_bytes: u64,
    /// Those that an earlier fetch of the epoch requested in exactly the same range.
    pub repeated_bytes: u64,
}

/// How files are stored. A sample is examined before each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageLayout {
    pub files: u64,
    pub bytes: u64,
    /// Holes, and blocks that were reserved but never written: both read as zeros without access to storage.
    pub hole_bytes: u64,
    pub compressed_bytes: u64,
    /// Stored inside the file's metadata.
    pub inline_bytes: u64,
}

/// Fetches that read bytes, by what is known about their pages; and the pages of those that were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    pub fetches: u64,
    /// Not in the sample.
    pub left_out: u64,
    /// The kernel did not report the pages.
    pub refused: u64,
    /// Among these, fetches of files that belong to another user.
    #[serde(default)]
    pub not_permitted: u64,
    /// Not counted, although the lane should have done so: the source of these bytes is unknown.
    pub unasked: u64,
    /// Among `fetches`, those with only some of their pages counted.
    #[serde(default)]
    pub in_part: u64,
    pub pages: u64,
    /// In memory right before they were read.
    pub resident: u64,
    /// The sum over fetches of the square of their pages, which gives the effective size of a sample of unequal
    /// fetches.
    pub pages_squared: u64,
    /// If files are read more than once in an epoch: the pages that were compared with this process's own earlier
    /// reads, and those that were in memory although none of these reads explains it.
    #[serde(default)]
    pub followed: u64,
    #[serde(default)]
    pub foreign: u64,
}

/// A number of bytes that may be unknown on some nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedBytes {
    pub bytes: u64,
    /// How often it was known, and how often it was not.
    pub told: u64,
    pub untold: u64,
}

impl ReportedBytes {
    pub fn new(bytes: Option<u64>) -> ReportedBytes {
        let told = u64::from(bytes.is_some());
        ReportedBytes { bytes: bytes.unwrap_or(0), told, untold: 1 - told }
    }

    fn is_empty(&self) -> bool {
        *self == ReportedBytes::default()
    }

    /// `None` if it was unknown at least once.
    pub fn known(&self) -> Option<u64> {
        (self.told > 0 && self.untold == 0).then_some(self.bytes)
    }
}

impl Counted {
    /// Adds a fetch with all of its pages counted.
    pub fn add(&mut self, resident: u64, pages: u64) {
        let pages_squared = pages.saturating_mul(pages);
        *self += Counted { fetches: 1, pages, resident, pages_squared, ..Counted::default() };
    }

    /// The share of pages in memory, 0 to 1.
    pub fn resident_share(&self) -> Option<f64> {
        (self.pages > 0).then(|| self.resident as f64 / self.pages as f64)
    }

    /// The confidence interval of that share; exact if all pages of all fetches were counted. A sample of unequal
    /// fetches counts as the equivalent number of equal ones (Kish). Each fetch's share is between 0 and 1, so it
    /// varies at most as a coin does.
    pub fn resident_interval(&self) -> Option<Confidence> {
        let is_sample = self.left_out > 0 || self.in_part > 0;
        Some(Counted::interval(self.resident_share()?, self.fetches_worth(), is_sample))
    }

    fn fetches_worth(&self) -> f64 {
        (self.pages as f64).powi(2) / self.pages_squared.max(1) as f64
    }

    /// The share of the tracked pages that this process did not load into memory.
    pub fn foreign_share(&self) -> Option<f64> {
        (self.followed > 0).then(|| self.foreign as f64 / self.followed as f64)
    }

    /// The confidence interval of that share. Pages are tracked in groups of about `group` neighbours, which may be
    /// correlated.
    fn foreign_interval(&self, group: u64) -> Option<Confidence> {
        let is_subset = self.left_out > 0 || self.followed < self.pages;
        let groups = (self.followed as f64 / group.max(1) as f64).max(1.0);
        let worth = if is_subset { groups } else { self.fetches_worth() };
        Some(Counted::interval(self.foreign_share()?, worth, is_subset || self.in_part > 0))
    }

    /// Wilson's interval for a share in a sample of this size.
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

/// The page size for an estimate of how many pages are correlated, and the pages of a region (`store::Footprint`).
const PAGE: u64 = 4096;
const REGION_PAGES: u64 = (16 << 20) / PAGE;

/// The normal distribution's quantile for a 95 % interval.
const NORMAL_95: f64 = 1.959_964;

/// The figures for the page cache in one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheFigures {
    /// Bytes from the storage over bytes needed; below 1 the rest came from memory.
    pub storage_share: Option<f64>,
    pub storage_bytes: Option<u64>,
    pub device_bytes: Option<u64>,
    /// Share of pages in memory right before they were read, and its interval if a sample was counted.
    pub resident_share: Option<f64>,
    pub resident_interval: Option<Confidence>,
    /// Share of pages in memory that no earlier read of this process explains, if files are read again.
    pub foreign_share: Option<f64>,
    pub foreign_interval: Option<Confidence>,
    pub made: CachePreparation,
    pub counted: Counted,
    pub layout: StorageLayout,
    pub untold: BTreeSet<String>,
}

impl ObservedCache {
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

    /// The confidence interval of the share of foreign pages. Whole files, or regions of large ones, are tracked; their
    /// pages may be correlated.
    pub(crate) fn foreign_interval(&self) -> Option<Confidence> {
        let FileTotals { files, bytes } = self.stored;
        self.counted.foreign_interval((bytes / files.max(1) / PAGE).clamp(1, REGION_PAGES))
    }

    /// Bytes from the storage over bytes that had to come from there. `None` if none were needed or the number is
    /// unknown.
    pub fn storage_share(&self) -> Option<f64> {
        let needed = self.distinct_bytes();
        self.storage.known().filter(|_| needed > 0.0).map(|bytes| bytes as f64 / needed)
    }

    /// Bytes that had to come from the storage: the requested bytes without repetitions, at most the size of the files.
    fn distinct_bytes(&self) -> f64 {
        let RepeatedReads { needed_bytes, repeated_bytes } = self.repeats;
        let once = 1.0 - repeated_bytes as f64 / needed_bytes.max(1) as f64;
        let most = if self.stored.bytes == 0 { f64::INFINITY } else { self.stored.bytes as f64 };
        (self.needed_bytes as f64 * once).min(most)
    }
}

impl AddAssign<&ObservedCache> for ObservedCache {
    fn add_assign(&mut self, other: &ObservedCache) {
        let ObservedCache {
            stored,
            made,
            counted,
            needed_bytes,
            repeats,
            layout,
            storage,
            storage_is_least,
            device,
            network,
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
        self.network += *network;
        self.untold.extend(untold.iter().cloned());
    }
}

impl AddAssign for CachePreparation {
    fn add_assign(&mut self, other: CachePreparation) {
        let CachePreparation { files, pages, found, after, host_drops, time_ns } = other;
        self.files += files;
        self.pages += pages;
        self.found += found;
        self.after += after;
        self.host_drops += host_drops;
        self.time_ns += time_ns;
    }
}

impl AddAssign for RepeatedReads {
    fn add_assign(&mut self, other: RepeatedReads) {
        let RepeatedReads { needed_bytes, repeated_bytes } = other;
        self.needed_bytes += needed_bytes;
        self.repeated_bytes += repeated_bytes;
    }
}

impl AddAssign for StorageLayout {
    fn add_assign(&mut self, other: StorageLayout) {
        let StorageLayout { files, bytes, hole_bytes, compressed_bytes, inline_bytes } = other;
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
        // Saturating addition still commutes and associates; only samples of billions of pages reach the limit.
        self.pages_squared = self.pages_squared.saturating_add(pages_squared);
        self.followed += followed;
        self.foreign += foreign;
    }
}

impl AddAssign for ReportedBytes {
    fn add_assign(&mut self, other: ReportedBytes) {
        let ReportedBytes { bytes, told, untold } = other;
        self.bytes += bytes;
        self.told += told;
        self.untold += untold;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_known_if_every_part_is() {
        let sum = |parts: &[Option<u64>]| {
            let mut sum = ReportedBytes::default();
            parts.iter().for_each(|part| sum += ReportedBytes::new(*part));
            sum.known()
        };
        assert_eq!(
            [sum(&[]), sum(&[Some(3), Some(4)]), sum(&[Some(3), None]), sum(&[None])],
            [None, Some(7), None, None]
        );
        assert_eq!(sum(&[Some(0)]), Some(0), "zero is a number");
    }

    #[test]
    fn a_sample_has_an_interval_and_a_full_count_has_none() {
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
        assert!((high - 0.0370).abs() < 1e-4, "none in a sample of 100 does not prove none in all: {high}");
    }

    #[test]
    fn a_few_large_fetches_weigh_less_than_many_small_ones() {
        let mut counted = Counted { left_out: 1, ..Counted::default() };
        (0..100).for_each(|_| counted.add(1, 10));
        let even = counted.resident_interval().unwrap();
        counted.add(1000, 10_000);
        let uneven = counted.resident_interval().unwrap();
        assert!(uneven.low < even.low && uneven.high > even.high, "{uneven:?} {even:?}");
    }
}
