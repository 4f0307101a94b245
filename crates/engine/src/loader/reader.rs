//! A reader thread: claims chunks of batches, turns positions into byte ranges, fetches them and keeps its own
//! account of what was delivered. After warm-up it allocates nothing and takes no lock while there is work.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use format::{Extent, File, Format, Obstacle, Seen};
use model::digest::placed_run;
use model::files::FileList;
use model::ledger::{PARTS, Part, Row, part_of};
use model::names::Name;
use model::order::{EpochOrder, Unit};
use model::plan::{Data, PhasePlan, Split};
use model::sizes::Sizes;
use store::{Fetch, Lane, Store, StoreError};

use super::Queue;
use super::queue::Chunk;
use crate::asking::{AskError, Cost, Subject, ask};
use crate::bell::Bell;
use crate::meter::Clock;
use crate::pulse::Pulse;
use crate::stop::Stop;

/// How long a reader sleeps before it looks whether the run should stop.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// What ended the work, and where.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) rank: u64,
    pub(crate) step: u64,
    pub(crate) cause: String,
}

/// Everything that the readers of one phase share.
pub(crate) struct Job<'a> {
    pub(crate) phase: &'a PhasePlan,
    pub(crate) order: EpochOrder,
    pub(crate) split: &'a Split,
    /// Names and sizes of the split's files.
    pub(crate) files: &'a dyn FileList,
    pub(crate) data: &'a Data,
    pub(crate) format: &'a dyn Format,
    pub(crate) store: &'a dyn Store,
    pub(crate) transfer_bytes: usize,
    /// First rank of this process; queue i belongs to rank `first_rank` + i.
    pub(crate) first_rank: u64,
    pub(crate) queues: &'a [Queue],
    /// Wakes readers; bell g belongs to reader group g.
    pub(crate) work_bells: &'a [Bell],
    /// Wakes the accelerators' driver.
    pub(crate) batch_bell: &'a Bell,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) pulse: &'a Pulse,
    /// Asked for from outside.
    pub(crate) stop: &'a Stop,
    /// Asked for by a part that failed.
    pub(crate) abort: &'a Stop,
    pub(crate) failure: &'a Mutex<Option<Failure>>,
}

impl Job<'_> {
    pub(crate) fn ending(&self) -> bool {
        self.stop.wished() || self.abort.wished()
    }

    /// Keeps the first failure and ends the phase for everybody.
    pub(crate) fn fail(&self, failure: Failure) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        self.abort.wish();
        self.batch_bell.ring(usize::MAX);
        self.work_bells.iter().for_each(|bell| bell.ring(usize::MAX));
    }
}

/// What one reader delivered: to each of its ranks, and in each part of the epoch.
#[derive(Debug)]
pub(crate) struct Delivered {
    /// Counts and digests only; times are the accelerators' business.
    pub(crate) accounts: Vec<Row>,
    pub(crate) parts: Vec<Part>,
}

/// Reads for the queues `queues` (numbers into the job's) until the phase has no more chunks, and returns the account
/// of what was delivered. A failure or a panic ends the phase for everybody and is kept in the job.
pub(crate) fn read(job: &Job<'_>, group: usize, queues: &[usize]) -> Delivered {
    let mut delivered = Delivered {
        accounts: vec![Row::default(); queues.len()],
        parts: vec![Part::default(); PARTS as usize],
    };
    let mut reader = Reader {
        job,
        lane: job.store.lane(job.transfer_bytes),
        name: Name::default(),
        reads: Vec::new(),
        reads_of: None,
        seen: Seen::default(),
        seen_of: None,
        at: (0, 0),
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| reader.serve(group, queues, &mut delivered)));
    let (rank, step) = reader.at;
    match outcome {
        // A fetch that was given up because the phase ends is no failure of its own.
        Ok(Ok(()) | Err(ReadError::Store(StoreError::GivenUp))) => {}
        Ok(Err(cause)) => job.fail(Failure { rank, step, cause: cause.to_string() }),
        Err(panic) => {
            let cause = format!("a reader panicked: {}", panic_text(&*panic));
            job.fail(Failure { rank, step, cause });
        }
    }
    delivered
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

struct Reader<'a, 'j> {
    job: &'a Job<'j>,
    lane: Box<dyn Lane + 'a>,
    name: Name,
    /// The reads of the visit at hand, and the samples that they bring in any file, where all files are alike.
    reads: Vec<Extent>,
    reads_of: Option<Range<u64>>,
    /// What has been seen of a foreign file's metadata, and which file that is.
    seen: Seen,
    seen_of: Option<u64>,
    /// Rank and step at work, for the message if it fails.
    at: (u64, u64),
}

/// Why reading a sample failed.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{name}: {cause}")]
    Format { name: String, cause: Obstacle },
    #[error(transparent)]
    Foreign(#[from] AskError),
    #[error("{0}")]
    Files(String),
}

impl Reader<'_, '_> {
    fn serve(&mut self, group: usize, queues: &[usize], delivered: &mut Delivered) -> Result<(), ReadError> {
        let job = self.job;
        let exhausted = || queues.iter().all(|queue| job.queues[*queue].exhausted());
        let claimable = || queues.iter().any(|queue| job.queues[*queue].claimable());
        while !job.ending() {
            let mut idle = true;
            for (account, &queue) in delivered.accounts.iter_mut().zip(queues) {
                if let Some(chunk) = job.queues[queue].claim() {
                    idle = false;
                    let brought = self.bring(queue, chunk)?;
                    *account += brought;
                    let part = Part { samples: brought.samples_delivered, digest: brought.digest };
                    delivered.parts[self.part(queue, chunk)] += part;
                    self.hand_over(group, queue, chunk);
                }
            }
            if idle {
                if exhausted() {
                    return Ok(());
                }
                job.work_bells[group].wait(LOOK_AROUND, || job.ending() || claimable() || exhausted());
            }
        }
        Ok(())
    }

    fn hand_over(&self, group: usize, queue: usize, chunk: Chunk) {
        let batches = &self.job.queues[queue];
        if batches.complete(chunk, || self.job.clock.now()) {
            self.job.batch_bell.ring(1);
            // This reader takes on one chunk of what there may be room for now; the rest is for its fellows.
            if batches.chunks_per_step() > 1 {
                self.job.work_bells[group].ring(batches.chunks_per_step() - 1);
            }
        }
    }

    /// Fetches the samples of one chunk. Neighbours in one file are one visit to it.
    fn bring(&mut self, queue: usize, chunk: Chunk) -> Result<Row, ReadError> {
        let job = self.job;
        let rank = job.first_rank + queue as u64;
        self.at = (rank, chunk.step);
        let first = job.phase.shards.position(rank, chunk.step) + chunk.first;
        let mut account = Row::default();
        let mut pending: Option<Range<u64>> = None;
        // What a rank begins in the middle of, another rank has read, in another process: it must read it itself.
        let mut begins = chunk.step == 0 && chunk.first == 0;
        let mut in_flight = 0;
        let (mut position, end) = (first, first + chunk.samples);
        while position < end {
            let (sample, count) = job.order.run(position, end - position);
            account.samples_delivered += count;
            account.digest.insert_run(sample, count);
            account.order = account.order.wrapping_add(placed_run(position, sample, count));
            position += count;
            let next = sample..sample + count;
            match &mut pending {
                Some(so_far) if self.go_together(so_far, &next) => so_far.end = next.end,
                _ => {
                    if let Some(samples) = pending.replace(next) {
                        self.visit(&samples, begins, &mut in_flight, &mut account)?;
                        begins = false;
                    }
                }
            }
        }
        if let Some(samples) = pending {
            self.visit(&samples, begins, &mut in_flight, &mut account)?;
        }
        while in_flight > 0 {
            self.reap(&mut in_flight, &mut account)?;
        }
        job.pulse.add(account.samples_delivered, account.bytes_read);
        Ok(account)
    }

    /// Whether the second samples follow the first in the same file.
    fn go_together(&self, samples: &Range<u64>, next: &Range<u64>) -> bool {
        let per_file = self.job.split.samples_per_file;
        samples.end == next.start && !next.start.is_multiple_of(per_file)
    }

    /// The part of the epoch that a chunk belongs to.
    fn part(&self, queue: usize, chunk: Chunk) -> usize {
        let shards = &self.job.phase.shards;
        let rank = self.job.first_rank + queue as u64;
        part_of(rank * shards.steps + chunk.step, shards.ranks * shards.steps)
    }

    /// Reads neighbouring samples of one file.
    fn visit(
        &mut self,
        samples: &Range<u64>,
        begins: bool,
        in_flight: &mut usize,
        account: &mut Row,
    ) -> Result<(), ReadError> {
        let job = self.job;
        let per_file = job.split.samples_per_file;
        // Most files hold one sample, and a division takes as long as the rest.
        let file = if per_file == 1 { samples.start } else { samples.start / per_file };
        let within = samples.start - file * per_file..samples.end - file * per_file;
        let file_bytes = job.files.entry(file, &mut self.name).map_err(ReadError::Files)?;
        if job.data.listed.is_some() || !job.data.exact {
            while *in_flight > 0 {
                self.reap(in_flight, account)?;
            }
            self.reads.clear();
            self.find(file, &within, begins, file_bytes, account)?;
        } else {
            self.compute(file, &within, begins)?;
        }
        if self.reads.is_empty() {
            return Ok(());
        }
        if *in_flight == self.lane.capacity() {
            self.reap(in_flight, account)?;
        }
        let (ranges, give_up) = (self.reads.as_slice(), job.abort.flag());
        account.bytes_planned += ranges.iter().map(|range| range.len).sum::<u64>();
        let fetch = Fetch { name: &self.name, ranges, file_bytes, keep_open: job.data.streams, give_up };
        self.lane.submit(file, &fetch)?;
        *in_flight += 1;
        Ok(())
    }

    /// Works out the reads of a file that we wrote.
    fn compute(&mut self, file: u64, samples: &Range<u64>, begins: bool) -> Result<(), ReadError> {
        let (job, per_file) = (self.job, self.job.split.samples_per_file);
        let paid = paid(job.data.streams, job.data.unit, samples, per_file, begins);
        if self.reads_of.as_ref() == Some(&paid) {
            return Ok(());
        }
        self.reads.clear();
        self.reads_of = matches!(job.data.sizes, Sizes::Same(_)).then(|| paid.clone());
        if paid.is_empty() {
            return Ok(());
        }
        let (number, element, reads) = (job.split.first_file + file, job.data.element, &mut self.reads);
        job.data
            .sizes
            .with_shape(number, element, per_file, |shape| job.format.reads(File::Ours(shape), paid, reads))
            .map_err(|cause| ReadError::Format { name: self.name.to_string(), cause })
    }

    /// Finds the reads of a file that somebody else wrote by looking into it.
    fn find(
        &mut self,
        file: u64,
        samples: &Range<u64>,
        begins: bool,
        file_bytes: u64,
        account: &mut Row,
    ) -> Result<(), ReadError> {
        let (job, held) = (self.job, self.job.split.samples_per_file);
        if !job.store.capabilities().holds_files {
            // There is nothing to look at: every sample is an equal share of its file.
            let share = |sample: u64| (u128::from(file_bytes) * u128::from(sample) / u128::from(held)) as u64;
            let (offset, end) = (share(samples.start), share(samples.end));
            self.reads.push(Extent { offset, len: end - offset });
            return Ok(());
        }
        // A reader that stays in a file keeps what it knows of it.
        if self.seen_of.replace(file) != Some(file) {
            self.seen.clear();
        }
        let subject = Subject { format: job.format.name(), name: &self.name, bytes: file_bytes };
        let (lane, seen, reads) = (&mut *self.lane, &mut self.seen, &mut self.reads);
        let mut cost = Cost::default();
        let found = ask(lane, subject, seen, &mut cost, |look| {
            reads.clear();
            let unit = job.format.unit_of(look, held, job.data.unit)?;
            let paid = paid(job.data.streams, unit, samples, held, begins);
            match paid.is_empty() {
                true => Ok(()),
                false => job.format.reads(File::Foreign { look, samples: held }, paid, reads),
            }
        });
        account.bytes_planned += cost.bytes;
        account.bytes_read += cost.bytes;
        account.opens += cost.opens;
        account.reads += cost.reads;
        Ok(found?)
    }

    fn reap(&mut self, in_flight: &mut usize, account: &mut Row) -> Result<(), ReadError> {
        match self.lane.reap()? {
            Some(done) => {
                *in_flight -= 1;
                account.bytes_read += done.bytes;
                account.opens += done.opens;
                account.reads += done.reads;
            }
            // The lane has forgotten fetches: what they should have brought stays missing, and the verdict says so.
            None => *in_flight = 0,
        }
        Ok(())
    }
}

/// The samples whose reads a visit pays for. Where the smallest part of a file that can be read is larger than a
/// sample, a loader reads it once and takes neighbouring samples out of memory: the visit that holds a part's first
/// sample reads all of it, the others nothing. A rank that `begins` in the middle of a part reads it, too, so that
/// each part is read once by each rank that delivers samples of it. A stream is shared out by its format.
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
    fn every_unit_is_read_once_however_visits_are_cut() {
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
        assert_eq!(paid(false, Unit::Group(4), &(1..4), 9, false), 4..4, "the part was read before");
        assert_eq!(paid(false, Unit::Group(4), &(1..4), 9, true), 0..4, "by another rank");
        assert_eq!(paid(false, Unit::File, &(3..5), 9, true), 0..9);
    }
}
