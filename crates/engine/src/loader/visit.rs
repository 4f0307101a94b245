//! Maps samples to byte ranges: which reads fetch neighbouring samples of one file. For files that feedline wrote the
//! ranges are computed. For existing files they are found from metadata, which the caller reads.

use std::ops::Range;

use format::{Extent, Obstacle, SourceFile};
use model::files::FileEntry;
use model::ledger::{RankRow, RepeatedReads};
use model::names::Name;
use model::order::Unit;
use model::plan::{ComputedData, ReplayPlan};
use store::{Footprint, StoreError};

use super::phase_run::PhaseRun;
use crate::asking::{Metadata, MetadataError, ParseStep, TargetFile};

/// Why reading a sample failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{name}: {cause}")]
    Format { name: String, cause: Obstacle },
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error("{0}")]
    Files(String),
    /// The bytes cannot be decoded.
    #[error("{name}: {cause}")]
    Damaged { name: String, cause: String },
    #[error("{last}; more errors than reader.error_limit: {limit}")]
    TooMany { limit: String, last: String },
}

impl ReadError {
    /// Whether the fetch was only cancelled because its bytes are no longer needed.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self, ReadError::Store(StoreError::GivenUp))
    }

    /// Whether other files may still be read.
    pub(super) fn is_about_a_file(&self) -> bool {
        match self {
            ReadError::Store(cause) => cause.is_about_a_file(),
            ReadError::Format { .. } | ReadError::Metadata(_) | ReadError::Damaged { .. } => true,
            ReadError::Files(_) | ReadError::TooMany { .. } => false,
        }
    }

    /// The kind under which it is counted.
    pub(super) fn kind(&self) -> String {
        match self {
            ReadError::Store(cause) => cause.kind(),
            ReadError::Format { .. } | ReadError::Metadata(_) | ReadError::Damaged { .. } => {
                "damaged".to_owned()
            }
            ReadError::Files(_) | ReadError::TooMany { .. } => "unlisted".to_owned(),
        }
    }
}

/// What a reader has read about the existing file that it is in.
#[derive(Debug, Default)]
pub(super) struct KnownFile {
    file: Option<u64>,
    name: Name,
    entry: FileEntry,
    pub(super) metadata: Metadata,
}

impl KnownFile {
    /// Turns to a file and returns its size and version. If the reader stays in the file, its metadata is kept.
    fn turn_to(&mut self, run: &PhaseRun<'_>, file: u64) -> Result<FileEntry, ReadError> {
        if self.file != Some(file) {
            self.file = None;
            self.entry = run.input.files.entry(file, &mut self.name).map_err(ReadError::Files)?;
            self.metadata.clear();
            self.file = Some(file);
        }
        Ok(self.entry)
    }
}

/// A visit to a file.
#[derive(Debug)]
pub(super) struct Visit {
    /// Number of the file in its split.
    pub(super) file: u64,
    pub(super) entry: FileEntry,
    /// The number of bytes of its reads, or the metadata that must be read first.
    pub(super) next: ParseStep<u64>,
}

/// Computes visits. One per thread, so that values that are equal for all files are computed once.
#[derive(Debug)]
pub(super) struct Visits {
    pub(super) name: Name,
    /// The reads of the current visit, and the samples that they fetch in any file if all files are alike.
    pub(super) reads: Vec<Extent>,
    reads_of: Option<Range<u64>>,
    /// Bytes that these reads ask for, each counted once.
    pub(super) needed_bytes: u64,
    /// The same as ranges that do not overlap.
    needed: Vec<Extent>,
    /// The requests of a replayed job, while they are made from the reads.
    requests: Vec<Extent>,
}

impl Visits {
    pub(super) fn new() -> Visits {
        Visits {
            name: Name::default(),
            reads: Vec::new(),
            reads_of: None,
            needed_bytes: 0,
            needed: Vec::new(),
            requests: Vec::new(),
        }
    }

    /// Divides the reads into the requests of a replayed job, and repeats them.
    fn replay(&mut self, plan: &ReplayPlan) {
        if plan.reads_as_formatted() {
            return;
        }
        self.requests.clear();
        for _ in 0..plan.reads_of_sample {
            self.reads.iter().for_each(|range| plan.requests.divide(*range, &mut self.requests));
        }
        std::mem::swap(&mut self.reads, &mut self.requests);
    }

    /// Computes the reads that fetch neighbouring samples of one file; there may be none. `begins`: these are the
    /// rank's first samples. If they start in the middle of a unit, the rank reads the whole unit, since the rank that
    /// has its first sample may be in another process.
    pub(super) fn prepare(
        &mut self,
        run: &PhaseRun<'_>,
        begins: bool,
        samples: &Range<u64>,
        known: &mut KnownFile,
        account: &mut RankRow,
    ) -> Result<Visit, ReadError> {
        let per_file = run.input.split.samples_per_file;
        // Most files hold one sample, and the division would take as long as the rest.
        let file = if per_file == 1 { samples.start } else { samples.start / per_file };
        let within = samples.start - file * per_file..samples.end - file * per_file;
        let entry;
        if run.plan.whole_files {
            entry = run.input.files.entry(file, &mut self.name).map_err(ReadError::Files)?;
            self.take_whole(entry.bytes);
            self.replay(&run.plan.replay);
        } else if let Some(data) = run.plan.data.computed().filter(|data| data.exact) {
            entry = run.input.files.entry(file, &mut self.name).map_err(ReadError::Files)?;
            self.compute(run, data, file, &within, begins)?;
        } else {
            entry = known.turn_to(run, file)?;
            self.name.clone_from(&known.name);
            if let ParseStep::Read(range) =
                self.find(run, entry.bytes, &within, begins, &mut known.metadata)?
            {
                return Ok(Visit { file, entry, next: ParseStep::Read(range) });
            }
        }
        let bytes = self.reads.iter().map(|range| range.len).sum::<u64>();
        account.bytes_planned += bytes;
        Ok(Visit { file, entry, next: ParseStep::Answer(bytes) })
    }

    /// One read of a whole file.
    fn take_whole(&mut self, file_bytes: u64) {
        self.reads.clear();
        self.reads_of = None;
        self.reads.push(Extent { offset: 0, len: file_bytes });
        self.add_up();
    }

    /// Finds the reads in an existing file, as far as the metadata read so far allows.
    fn find(
        &mut self,
        run: &PhaseRun<'_>,
        file_bytes: u64,
        samples: &Range<u64>,
        begins: bool,
        metadata: &mut Metadata,
    ) -> Result<ParseStep<()>, ReadError> {
        self.reads.clear();
        self.reads_of = None;
        let (Visits { name, reads, .. }, held) = (&mut *self, run.input.split.samples_per_file);
        let step = if run.input.store.capabilities().holds_files {
            let subject = TargetFile { format: run.input.format.name(), name, bytes: file_bytes };
            metadata.ask(subject, |look| {
                let unit = run.input.format.unit_of(look, held, run.plan.data.unit)?;
                let paid = paid(run.plan.data.streams, unit, samples, held, begins);
                match paid.is_empty() {
                    true => Ok(()),
                    false => run.input.format.reads(SourceFile::Foreign { look, samples: held }, paid, reads),
                }
            })?
        } else {
            // There is no metadata to read: every sample is an equal share of its file.
            let bytes = u128::from(file_bytes);
            let share = |sample: u64| (bytes * u128::from(sample) / u128::from(held)) as u64;
            let (offset, end) = (share(samples.start), share(samples.end));
            reads.push(Extent { offset, len: end - offset });
            ParseStep::Answer(())
        };
        if step == ParseStep::Answer(()) {
            self.add_up();
            self.replay(&run.plan.replay);
        }
        Ok(step)
    }

    /// Computes the reads of a file that feedline wrote.
    fn compute(
        &mut self,
        run: &PhaseRun<'_>,
        data: ComputedData<'_>,
        file: u64,
        samples: &Range<u64>,
        begins: bool,
    ) -> Result<(), ReadError> {
        let per_file = run.input.split.samples_per_file;
        let paid = paid(data.streams, data.unit, samples, per_file, begins);
        if self.reads_of.as_ref() == Some(&paid) {
            return Ok(());
        }
        self.reads.clear();
        self.reads_of = data.is_uniform().then(|| paid.clone());
        self.needed_bytes = 0;
        self.needed.clear();
        if paid.is_empty() {
            return Ok(());
        }
        let (number, reads) = (run.input.split.first_file + file, &mut self.reads);
        data.with_shape(number, |shape| run.input.format.reads(SourceFile::Ours(shape), paid, reads))
            .map_err(|cause| ReadError::Format { name: self.name.to_string(), cause })?;
        self.add_up();
        self.replay(&run.plan.replay);
        Ok(())
    }

    /// Merges the reads into disjoint ranges. Libraries read some bytes twice, but the storage delivers them once.
    fn add_up(&mut self) {
        self.needed.clear();
        self.needed.extend_from_slice(&self.reads);
        self.needed.sort_unstable_by_key(|read| read.offset);
        let mut end = 0;
        for read in &mut self.needed {
            let offset = read.offset.max(end);
            end = end.max(read.end());
            *read = Extent { offset, len: end - offset };
        }
        self.needed_bytes = self.needed.iter().map(|range| range.len).sum();
    }

    /// Counts the needed bytes that the phase has read before, as far as they are tracked, and adds them to the
    /// footprint.
    pub(super) fn repeats(&self, footprint: &Footprint, file: u64) -> RepeatedReads {
        let mut sum = RepeatedReads::default();
        for range in self.needed.iter().filter(|range| range.len > 0) {
            if let Some(repeats) = footprint.repeats(file, *range) {
                sum.needed_bytes += range.len;
                sum.repeated_bytes += if repeats { range.len } else { 0 };
            }
        }
        sum
    }
}

/// The samples whose reads belong to a visit. If the unit of reading is larger than a sample, a loader reads the unit
/// once and takes its other samples from memory: the visit that holds a unit's first sample reads all of the unit, and
/// other visits read nothing of it. A rank that `begins` in the middle of a unit reads it, too, so that each unit is
/// read once by each rank that delivers samples of it. For streams the format decides.
fn paid(streams: bool, unit: Unit, samples: &Range<u64>, per_file: u64, begins: bool) -> Range<u64> {
    let unit = match unit {
        _ if streams => return samples.clone(),
        Unit::Sample => return samples.clone(),
        Unit::Group(rows) => rows.clamp(1, per_file),
        Unit::File | Unit::None => per_file,
    };
    let first_of = |sample: u64| sample.div_ceil(unit).saturating_mul(unit).min(per_file);
    let start = if begins { samples.start / unit * unit } else { first_of(samples.start) };
    start..first_of(samples.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_read_twice_are_needed_once() {
        let needed = |reads: &[(u64, u64)]| {
            let mut visits = Visits::new();
            visits.reads = reads.iter().map(|(offset, len)| Extent { offset: *offset, len: *len }).collect();
            visits.add_up();
            visits.needed_bytes
        };
        for (reads, bytes) in [
            (&[][..], 0),
            (&[(10, 5)], 5),
            (&[(100, 50), (0, 20)], 70),
            (&[(0, 100), (20, 30), (90, 20)], 110),
            (&[(5, 0), (5, 10), (5, 10)], 10),
        ] {
            assert_eq!(needed(reads), bytes, "{reads:?}");
        }
    }

    #[test]
    fn every_unit_is_read_once_for_any_split_into_visits() {
        for (unit, per_file) in
            [(Unit::Group(4), 10), (Unit::Group(4), 8), (Unit::File, 7), (Unit::Group(99), 5)]
        {
            for visit in 1..=per_file {
                let mut all = Vec::new();
                for first in (0..per_file).step_by(visit as usize) {
                    let samples = first..(first + visit).min(per_file);
                    all.extend(paid(false, unit, &samples, per_file, first == 0));
                }
                assert_eq!(all, (0..per_file).collect::<Vec<_>>(), "{unit:?} in visits of {visit}");
            }
        }
        assert_eq!(paid(false, Unit::Sample, &(3..5), 9, true), 3..5);
        assert_eq!(paid(false, Unit::Group(4), &(1..4), 9, false), 4..4, "the unit was read before");
        assert_eq!(paid(false, Unit::Group(4), &(1..4), 9, true), 0..4, "by another rank");
        assert_eq!(paid(false, Unit::File, &(3..5), 9, true), 0..9);
    }
}
