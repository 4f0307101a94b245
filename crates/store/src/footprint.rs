//! The parts of files that this process's own reads can have loaded into the page cache since an epoch began. A file
//! that is read several times in an epoch is partly cached by earlier reads and their read-ahead. Pages that were
//! resident but are outside of this footprint were loaded by something else.
//!
//! The footprint is a set of blocks, and a set of exact ranges, each in a Bloom filter of fixed size, so memory does
//! not depend on the data set. If the data set has more blocks than the filter can hold, only a random subset of its
//! regions is tracked. A false positive takes a page for one of feedline's own; at the filter's capacity that happens
//! to one block in thousands.

use std::sync::atomic::{AtomicU64, Ordering};

use model::extent::Extent;
use model::order::mix;

use crate::page_cache;

/// The smallest unit of the footprint: half of the default read-ahead window of Linux. With larger windows it is
/// larger, so that a read marks about a dozen blocks.
const LEAST_BLOCK: u64 = 64 << 10;
const BLOCKS_AHEAD: u64 = 8;
/// The unit in which the subset is drawn.
const REGION: u64 = 16 << 20;
/// Blocks that one fetch can mark: read-ahead, read-around, the range itself, and metadata.
const BLOCKS_PER_FETCH: u64 = 32;

/// Salts, so that the keys of blocks, ranges and regions differ.
const BLOCKS: u64 = 0x626c_6f63;
const RANGES: u64 = 0x7261_6e67;
const REGIONS: u64 = 0x7265_6769;

#[derive(Debug)]
pub struct Footprint {
    blocks: Filter,
    ranges: Filter,
    block: u64,
    /// How far read-ahead reaches beyond a range that is read; read-around reaches half as far before it.
    reach: u64,
    /// Blocks are tracked in one of this many regions, and ranges in one of this many.
    one_in: u64,
    ranges_one_in: u64,
    seed: u64,
}

/// What an epoch can read: files, their bytes, and the maximum number of fetches.
#[derive(Clone, Copy, Debug)]
pub struct EpochReads {
    pub files: u64,
    pub bytes: u64,
    pub fetches: u64,
}

impl Footprint {
    /// `at_least_one_in`: track at most one region in this many. `readahead`: the largest read-ahead window.
    pub fn new(reads: EpochReads, at_least_one_in: u64, readahead: u64, seed: u64) -> Footprint {
        // The kernel starts the next window while the previous one is being read, and doubles both for a file with the
        // advice of sequential reads.
        let reach = readahead.saturating_mul(4);
        let block = (reach / BLOCKS_AHEAD).checked_next_power_of_two().unwrap_or(REGION);
        let block = block.clamp(LEAST_BLOCK, REGION);
        let blocks = (reads.bytes / block).saturating_add(reads.files);
        let blocks = blocks.min(reads.fetches.saturating_mul(BLOCKS_PER_FETCH));
        // A fetch has about two ranges, metadata and samples. If it has more, the filter fills up early.
        let ranges = reads.fetches.saturating_mul(2);
        Footprint {
            blocks: Filter::new(blocks),
            ranges: Filter::new(ranges),
            block,
            reach,
            one_in: blocks.div_ceil(CAPACITY).max(at_least_one_in).max(1),
            ranges_one_in: ranges.div_ceil(CAPACITY).max(1),
            seed,
        }
    }

    /// Whether blocks are tracked in the region that contains `offset` of a file.
    pub(crate) fn follows(&self, file: u64, offset: u64) -> bool {
        self.one_in == 1 || self.region(file, offset).is_multiple_of(self.one_in)
    }

    /// Adds exactly this range of a file; returns whether it was added before. `None` if it is not tracked.
    pub fn repeats(&self, file: u64, range: Extent) -> Option<bool> {
        let is_followed = self.region(file, range.offset).is_multiple_of(self.ranges_one_in);
        let key = || mix(mix(mix(self.seed ^ RANGES, file), range.offset), range.len);
        (is_followed && !self.ranges.is_full()).then(|| self.ranges.add(key()))
    }

    fn region(&self, file: u64, offset: u64) -> u64 {
        mix(mix(self.seed ^ REGIONS, file), offset / REGION)
    }

    /// Adds what a read of this range of a file can load into memory.
    pub(crate) fn mark(&self, file: u64, range: Extent, file_bytes: u64) {
        let end = range.end().saturating_add(self.reach).min(file_bytes).max(range.end());
        for block in range.offset.saturating_sub(self.reach / 2) / self.block..end.div_ceil(self.block) {
            if self.follows(file, block * self.block) {
                self.blocks.add(self.key(file, block));
            }
        }
    }

    /// The number of pages of a range that are in blocks of the footprint.
    pub(crate) fn pages(&self, file: u64, range: Extent) -> u64 {
        let blocks = range.offset / self.block..range.end().div_ceil(self.block);
        let known = blocks.filter(|block| self.blocks.has(self.key(file, *block)));
        known.map(|block| page_cache::pages_of(self.part(range, block))).sum()
    }

    /// The part of a range that is in one block.
    fn part(&self, range: Extent, block: u64) -> Extent {
        let offset = range.offset.max(block * self.block);
        Extent { offset, len: range.end().min((block + 1) * self.block) - offset }
    }

    fn key(&self, file: u64, block: u64) -> u64 {
        mix(mix(self.seed ^ BLOCKS, file), block)
    }
}

/// A Bloom filter of at most 1 MiB. Each key sets 4 bits of one word; with two keys per word 8 of 64 bits are set, and
/// (8/64)^4 is 1 in 4,096.
#[derive(Debug)]
struct Filter {
    words: Vec<AtomicU64>,
    keys: AtomicU64,
}

const LEAST_WORDS: u64 = 1 << 10;
const MOST_WORDS: u64 = 1 << 17;
const CAPACITY: u64 = 2 * MOST_WORDS;

impl Filter {
    /// For about this many keys; if they are too many, only some are added.
    fn new(keys: u64) -> Filter {
        let words = (keys.min(CAPACITY) / 2).next_power_of_two().clamp(LEAST_WORDS, MOST_WORDS);
        Filter { words: (0..words).map(|_| AtomicU64::new(0)).collect(), keys: AtomicU64::new(0) }
    }

    /// Returns whether the key was present before. Relaxed here and below: bits are only ever set, and publish no other
    /// data.
    fn add(&self, key: u64) -> bool {
        let (word, bits) = self.place(key);
        // Most keys are present: a load costs less than a write.
        if word.load(Ordering::Relaxed) & bits == bits {
            return true;
        }
        let was_there = word.fetch_or(bits, Ordering::Relaxed) & bits == bits;
        self.keys.fetch_add(u64::from(!was_there), Ordering::Relaxed);
        was_there
    }

    fn has(&self, key: u64) -> bool {
        let (word, bits) = self.place(key);
        word.load(Ordering::Relaxed) & bits == bits
    }

    fn is_full(&self) -> bool {
        self.keys.load(Ordering::Relaxed) >= 2 * self.words.len() as u64
    }

    fn place(&self, key: u64) -> (&AtomicU64, u64) {
        let bits = (0..4).fold(0, |bits, i| bits | 1 << (key >> (6 * i) & 63));
        // The number of words is a power of two.
        (&self.words[(key >> 24) as usize & (self.words.len() - 1)], bits)
    }
}

/// A number for a file, computed from its name, eight bytes at a time.
pub(crate) fn key_of(name: &[u8]) -> u64 {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let words = name.chunks_exact(8);
    let rest = number(words.remainder());
    mix(words.fold(name.len() as u64, |key, word| mix(key, number(word))), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, len: u64) -> Extent {
        Extent { offset, len }
    }

    fn print_of(bytes: u64, fetches: u64, readahead: u64) -> Footprint {
        Footprint::new(EpochReads { files: 8, bytes, fetches }, 1, readahead, 7)
    }

    #[test]
    fn a_read_covers_itself_and_its_read_ahead_only() {
        let print = print_of(1 << 30, 1000, 64 << 10);
        assert_eq!(print.one_in, 1);
        print.mark(1, range(10 << 20, 4096), 1 << 30);
        for (file, offset, covered) in [
            (1, 10 << 20, 1),
            (1, (10 << 20) + (256 << 10), 1),
            (1, (10 << 20) + (512 << 10), 0),
            (1, (10 << 20) - (128 << 10), 1),
            (1, (10 << 20) - (256 << 10), 0),
            (2, 10 << 20, 0),
        ] {
            assert_eq!(print.pages(file, range(offset, 1)), covered, "{file} {offset}");
        }
        let page = rustix::param::page_size() as u64;
        let long = range((10 << 20) + (256 << 10), 1 << 20);
        assert_eq!(print.pages(1, long), print.block / page, "up to the end of the last block");
        assert_eq!(print.pages(1, range(10 << 20, 0)), 0);
        print.mark(3, range(0, 4096), 4096);
        assert_eq!(print.pages(3, range(64 << 10, 1)), 0, "no read-ahead beyond the end of a file");
    }

    #[test]
    fn only_an_equal_range_repeats() {
        let print = print_of(1 << 30, 1000, 0);
        let answers = [(1, 0, 10), (1, 0, 11), (1, 0, 10), (2, 0, 10), (1, 0, 11)]
            .map(|(file, offset, len)| print.repeats(file, range(offset, len)));
        assert_eq!(answers, [Some(false), Some(false), Some(true), Some(false), Some(true)]);
    }

    #[test]
    fn more_ranges_than_expected_are_not_tracked() {
        let print = print_of(1 << 30, 100_000, 0);
        let room = 2 * print.ranges.words.len() as u64;
        let followed = (0..2 * room).filter(|i| print.repeats(1, range(*i, 1)).is_some()).count() as u64;
        assert!((room..room + room / 100).contains(&followed), "{followed} of {room}");
        let wrong = (0..100_000).filter(|i| print.ranges.has(mix(99, *i))).count();
        assert!(wrong < 200, "{wrong} of 100,000 keys that were never added");
    }

    #[test]
    fn a_large_data_set_is_tracked_in_part_and_the_filter_stays_sparse() {
        let bytes = 1 << 40;
        let print = print_of(bytes, u64::MAX, 128 << 10);
        assert!(print.one_in > 1);
        let mut followed = 0;
        for region in 0..bytes / REGION {
            if print.follows(5, region * REGION) {
                followed += 1;
                print.mark(5, range(region * REGION, REGION), bytes);
            }
        }
        let expected = (bytes / REGION / print.one_in) as f64;
        assert!(
            expected > 500.0 && (followed as f64 / expected - 1.0).abs() < 0.1,
            "{followed} of {expected}"
        );
        let wrong = (0..100_000).filter(|block| print.pages(6, range(block * LEAST_BLOCK, 1)) > 0).count();
        assert!(wrong < 200, "{wrong} of 100,000 blocks of a file that was never read");
    }

    #[test]
    fn many_small_samples_in_few_bytes_are_tracked_completely() {
        // Neighbours are read together, so the number of samples says little about ranges and nothing about blocks.
        assert_eq!(print_of(64 << 20, 4_000_000, 128 << 10).one_in, 1);
        // Also a large data set of which a small part is read.
        assert_eq!(print_of(1 << 40, 1000, 128 << 10).one_in, 1);
        let reads = EpochReads { files: 1, bytes: 4096, fetches: 1 };
        assert_eq!(Footprint::new(reads, 16, 0, 3).one_in, 16);
    }

    #[test]
    fn names_have_different_numbers() {
        let names: [&[u8]; 6] = [b"", b"a", b"b", b"train/img_1", b"train/img_2", b"tracks/img_1"];
        for (i, name) in names.iter().enumerate() {
            assert!(names[..i].iter().all(|other| key_of(other) != key_of(name)), "{i}");
        }
    }
}
