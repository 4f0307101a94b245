//! Compares fetched bytes with the expected content of the files, as far as the plan asks for it: a few hundred bytes
//! of every MiB that a reader fetches, at offsets that differ between files and epochs, or every byte. Bytes are
//! compared as they arrive and are not kept. The exception is compressed files, which can only be regenerated as a
//! whole.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use format::{ComparisonResult, Extent, FileParts};
use model::ledger::CheckedFetches;
use model::names::{Name, Pattern};
use model::order::mix;
use model::spec::Verify;
use model::units::Nanos;
use store::{FinishedFetch, StoreError, Witness};

use super::phase_run::PhaseRun;
use crate::truth::{LITTLE_EFFORT, Truth};

/// One sample is compared in each stretch of this many bytes.
const STRETCH: u64 = 1 << 20;
/// Size of a sample in bytes, and its alignment. No format has this many bytes at an aligned offset that are the same
/// in every file.
const SAMPLE: u64 = 512;

/// A counter that only one thread uses. It is atomic because a `Witness` and a `SpanSink` must be
/// `Sync`.
#[derive(Debug, Default)]
pub(super) struct ThreadCounter(AtomicU64);

impl ThreadCounter {
    pub(super) fn new(value: u64) -> ThreadCounter {
        ThreadCounter(AtomicU64::new(value))
    }

    // Relaxed: only the thread that runs the readers reads or writes it.
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn add(&self, more: u64) -> u64 {
        let before = self.get();
        self.set(before + more);
        before
    }
}

/// The fetch of one reader, and the result of its comparison so far.
#[derive(Debug, Default)]
struct FetchCheck {
    tag: ThreadCounter,
    /// The key from which the sample offsets are drawn.
    key: ThreadCounter,
    /// Bytes of the fetch, and bytes that have arrived.
    total: ThreadCounter,
    came: ThreadCounter,
    compared: ThreadCounter,
    ns: ThreadCounter,
    wrong: ThreadCounter,
}

/// The checks of one thread's readers.
pub(super) struct Checker<'a> {
    run: &'a PhaseRun<'a>,
    /// Whether the plan asks for comparison and the store delivers bytes.
    wanted: bool,
    truth: Option<Truth<'a>>,
    /// File names of a generated data set that is read through a catalog; they give the files' numbers.
    patterns: Option<[Pattern; 2]>,
    watches: Vec<FetchCheck>,
}

/// The tag of a file whose number is unknown.
const UNKNOWN: u64 = u64::MAX;

impl<'a> Checker<'a> {
    pub(super) fn new(run: &'a PhaseRun<'a>, readers: usize) -> Checker<'a> {
        let wanted = run.plan.verify != Verify::None && run.input.store.capabilities().brings_bytes;
        let truth = run.input.truth.filter(|_| wanted);
        let listed = truth.filter(|_| run.plan.data.listed().is_some());
        let patterns =
            listed.map(|truth| [&truth.data.train, &truth.data.valid].map(|split| split.names.pattern()));
        let watches = (0..readers).map(|_| FetchCheck::default()).collect();
        Checker { run, wanted, truth, patterns, watches }
    }

    /// Whether the bytes of a fetch must be kept together to be compared.
    pub(super) fn wants_whole(&self) -> bool {
        self.run.plan.verify == Verify::Full && self.truth.is_some_and(|truth| !truth.data.exact)
    }

    /// The witness that compares the bytes as they arrive, if they are compared that way.
    pub(super) fn witness(&self) -> Option<&dyn Witness> {
        self.truth.filter(|truth| truth.data.exact).map(|_| self as &dyn Witness)
    }

    /// A reader is about to fetch `reads` of a file of its split. Returns the file's number in the data set.
    pub(super) fn begin(&self, reader: usize, file: u64, name: &Name, reads: &[Extent]) -> u64 {
        let tag = self.number(file, name).unwrap_or(UNKNOWN);
        if self.truth.is_some() {
            let watch = &self.watches[reader];
            let first = reads.first().map_or(0, |read| read.offset);
            watch.tag.set(tag);
            watch.key.set(mix(mix(self.run.plan.seed, self.run.epoch), mix(tag, first)));
            watch.total.set(reads.iter().map(|read| read.len).sum());
            for number in [&watch.came, &watch.compared, &watch.ns, &watch.wrong] {
                number.set(0);
            }
        }
        tag
    }

    fn number(&self, file: u64, name: &Name) -> Option<u64> {
        let (Some([train, valid]), Some(truth)) = (&self.patterns, self.truth) else {
            return Some(self.run.input.split.first_file + file);
        };
        let first = truth.data.valid.first_file;
        train.index(name).or_else(|| valid.index(name).map(|index| first + index))
    }

    /// A fetch of these ranges has ended. Adds the result of its comparison to `checked`, and returns how much of the
    /// fetch's time the comparison took.
    pub(super) fn end(
        &self,
        done: &FinishedFetch,
        ranges: &[Extent],
        checked: &mut CheckedFetches,
    ) -> Result<Nanos, StoreError> {
        if !self.wanted {
            return Ok(Nanos::ZERO);
        }
        let Some(truth) = self.truth else {
            checked.foreign += u64::from(done.outcome.is_ok());
            return Ok(Nanos::ZERO);
        };
        let watch = &self.watches[done.reader];
        let within = Nanos(watch.ns.get());
        let mut judged = Ok(());
        if let (true, Some(kept), Ok(_)) = (self.wants_whole(), &done.kept, &done.outcome) {
            let (tag, parts) = (watch.tag.get(), FileParts { ranges, bytes: kept.bytes() });
            judged = if tag == UNKNOWN { Ok(()) } else { self.compare(truth, done.reader, tag, parts) };
        }
        let (bytes, wrong, ns) = (watch.compared.get(), watch.wrong.get(), Nanos(watch.ns.get()));
        let whole = done.outcome.is_ok() && judged.is_ok();
        *checked += CheckedFetches {
            fetches: u64::from(whole && bytes > 0),
            unknown: u64::from(whole && bytes == 0),
            foreign: 0,
            wrong,
            bytes,
            ns,
        };
        judged.map(|()| within)
    }

    fn compare(
        &self,
        truth: Truth<'_>,
        reader: usize,
        tag: u64,
        parts: FileParts<'_>,
    ) -> Result<(), StoreError> {
        let (run, watch) = (self.run, &self.watches[reader]);
        let effort = if run.plan.verify == Verify::Full { u64::MAX } else { LITTLE_EFFORT };
        let begin = run.clock.now();
        let outcome = truth.compare(run.input.format, tag, parts, effort);
        watch.ns.add(run.clock.now().since(begin).0);
        let ComparisonResult { bytes, wrong } =
            outcome.map_err(|error| StoreError::Refused(error.to_string()))?;
        watch.compared.add(bytes);
        let Some(wrong) = wrong else { return Ok(()) };
        watch.wrong.set(1);
        Err(truth.objection(run.input.format, run.input.store, tag, parts, wrong))
    }
}

impl FetchCheck {
    /// The range of one stretch's sample within `came` bytes that start at `offset` of the file and follow `before`
    /// other bytes of the fetch.
    fn sample(&self, stretch: u64, before: u64, offset: u64, came: u64) -> Option<Range<usize>> {
        let start = stretch * STRETCH;
        let len = STRETCH.min(self.total.get().saturating_sub(start)).max(1);
        let place = (start + mix(self.key.get(), stretch) % len).checked_sub(before)?;
        if place >= came {
            return None;
        }
        // Both ends are within `came`, which is the length of a slice.
        let sector = (offset + place) / SAMPLE * SAMPLE;
        let from = sector.saturating_sub(offset);
        Some(from as usize..(sector + SAMPLE - offset).min(came) as usize)
    }
}

impl Witness for Checker<'_> {
    fn see(&self, reader: usize, tag: u64, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let Some(truth) = self.truth.filter(|_| tag != UNKNOWN && !bytes.is_empty()) else { return Ok(()) };
        let watch = &self.watches[reader];
        let before = watch.came.add(bytes.len() as u64);
        if self.run.plan.verify == Verify::Full {
            let ranges = [Extent { offset, len: bytes.len() as u64 }];
            return self.compare(truth, reader, tag, FileParts { ranges: &ranges, bytes });
        }
        let came = bytes.len() as u64;
        for stretch in before / STRETCH..=(before + came - 1) / STRETCH {
            if let Some(part) = watch.sample(stretch, before, offset, came) {
                let ranges = [Extent { offset: offset + part.start as u64, len: part.len() as u64 }];
                self.compare(truth, reader, tag, FileParts { ranges: &ranges, bytes: &bytes[part] })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sampled ranges of a fetch that begins at `offset` and arrives in transfers.
    fn places(key: u64, offset: u64, total: u64, transfer: u64) -> Vec<Range<u64>> {
        let watch = FetchCheck::default();
        watch.key.set(key);
        watch.total.set(total);
        let mut places = Vec::new();
        for before in (0..total).step_by(transfer as usize) {
            let came = transfer.min(total - before);
            for stretch in before / STRETCH..=(before + came - 1) / STRETCH {
                let part = watch.sample(stretch, before, offset + before, came);
                places.extend(part.map(|part| {
                    assert!(part.start < part.end && part.end as u64 <= came);
                    offset + before + part.start as u64..offset + before + part.end as u64
                }));
            }
        }
        places
    }

    #[test]
    fn every_stretch_has_one_sample_at_any_transfer_size() {
        for total in [1, 100, 511, 4000, STRETCH - 1, STRETCH, STRETCH + 1, 5 * STRETCH + 77] {
            for offset in [0, 35, 4096] {
                let whole = places(3, offset, total, total);
                assert_eq!(whole.len() as u64, total.div_ceil(STRETCH));
                assert!(whole.iter().all(|place| place.end - place.start <= SAMPLE));
                for transfer in [1 << 12, 1 << 16, 1 << 20, 3 << 20] {
                    let cut = places(3, offset, total, transfer);
                    assert_eq!(cut.len(), whole.len(), "{total} bytes in transfers of {transfer}");
                    let inside = |(cut, whole): (&Range<u64>, &Range<u64>)| {
                        whole.start <= cut.start && cut.end <= whole.end
                    };
                    assert!(cut.iter().zip(&whole).all(inside), "{cut:?} of {whole:?}");
                }
            }
        }
    }

    #[test]
    fn sample_offsets_differ_between_fetches_and_cover_the_whole_fetch() {
        const FETCH: u64 = 16 * SAMPLE;
        let mut sectors = [0; 16];
        for key in 0..1600 {
            let place = places(mix(7, key), 0, FETCH, FETCH).remove(0);
            assert_eq!(place.end - place.start, SAMPLE);
            sectors[(place.start / SAMPLE) as usize] += 1;
        }
        // The expected count is 100, its standard deviation about 10; the bounds are six deviations away.
        assert!(sectors.iter().all(|count| (40..160).contains(count)), "{sectors:?}");
    }
}
