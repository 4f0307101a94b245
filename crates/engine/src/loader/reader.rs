//! A reader thread: claims chunks of batches, turns positions into byte ranges, fetches them and keeps its own
//! account of what was delivered. After warm-up it allocates nothing and takes no lock while there is work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use format::{Extent, Format};
use model::digest::placed_run;
use model::files::FileList;
use model::ledger::{PARTS, Part, Row, part_of};
use model::names::Name;
use model::order::EpochOrder;
use model::plan::{Data, PhasePlan, Split};
use store::{Fetch, Lane, Store, StoreError};

use super::Queue;
use super::queue::Chunk;
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
    let mut reader =
        Reader { job, lane: job.store.lane(job.transfer_bytes), name: Name::default(), at: (0, 0) };
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
    /// Rank and step at work, for the message if it fails.
    at: (u64, u64),
}

/// Why reading a sample failed.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Format(#[from] format::FormatError),
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

    /// Fetches the samples of one chunk. Neighbours in one file become one operation.
    fn bring(&mut self, queue: usize, chunk: Chunk) -> Result<Row, ReadError> {
        let job = self.job;
        let rank = job.first_rank + queue as u64;
        self.at = (rank, chunk.step);
        let first = job.phase.shards.position(rank, chunk.step) + chunk.first;
        let mut account = Row::default();
        let mut pending: Option<(u64, Wanted)> = None;
        let mut in_flight = 0;
        let (mut position, end) = (first, first + chunk.samples);
        while position < end {
            let (sample, count) = job.order.run(position, end - position);
            account.samples_delivered += count;
            account.digest.insert_run(sample, count);
            account.order = account.order.wrapping_add(placed_run(position, sample, count));
            position += count;
            let (file, wanted) = self.locate(sample, count)?;
            let joined =
                pending.filter(|(open, _)| *open == file).and_then(|(_, so_far)| so_far.join(wanted));
            if let (Some((open, so_far)), None) = (pending, joined) {
                self.fetch(open, so_far, &mut in_flight, &mut account)?;
            }
            pending = Some((file, joined.unwrap_or(wanted)));
        }
        if let Some((file, wanted)) = pending {
            self.fetch(file, wanted, &mut in_flight, &mut account)?;
        }
        while in_flight > 0 {
            self.reap(&mut in_flight, &mut account)?;
        }
        job.pulse.add(account.samples_delivered, account.bytes_read);
        Ok(account)
    }

    /// The part of the epoch that a chunk belongs to.
    fn part(&self, queue: usize, chunk: Chunk) -> usize {
        let shards = &self.job.phase.shards;
        let rank = self.job.first_rank + queue as u64;
        part_of(rank * shards.steps + chunk.step, shards.ranks * shards.steps)
    }

    /// The file of `count` neighbouring samples from `sample` on, as a number within the split, and what is wanted
    /// of it.
    fn locate(&self, sample: u64, count: u64) -> Result<(u64, Wanted), ReadError> {
        let job = self.job;
        let per_file = job.split.samples_per_file;
        if per_file == 1 {
            return Ok((sample, Wanted::Whole));
        }
        let (file, index) = (sample / per_file, sample % per_file);
        // Neighbouring samples lie one behind the other in every format, so the ends say it all.
        let extent =
            job.data.sizes.with_shape(job.split.first_file + file, job.data.element, per_file, |shape| {
                let last = job.format.extent(shape, index + count - 1)?;
                job.format.extent(shape, index).map(|first| union(first, last))
            })?;
        Ok((file, Wanted::Range(extent)))
    }

    fn fetch(
        &mut self,
        file: u64,
        wanted: Wanted,
        in_flight: &mut usize,
        account: &mut Row,
    ) -> Result<(), ReadError> {
        if *in_flight == self.lane.capacity() {
            self.reap(in_flight, account)?;
        }
        let file_bytes = self.job.files.entry(file, &mut self.name).map_err(ReadError::Files)?;
        let extent = match wanted {
            Wanted::Whole => Extent { offset: 0, len: file_bytes },
            Wanted::Range(extent) => extent,
        };
        let to_end = extent.offset + extent.len == file_bytes;
        let give_up = self.job.abort.flag();
        let fetch = Fetch { name: &self.name, offset: extent.offset, len: extent.len, to_end, give_up };
        self.lane.submit(file, &fetch)?;
        *in_flight += 1;
        account.bytes_planned += extent.len;
        Ok(())
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

/// What is wanted of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Whole,
    Range(Extent),
}

impl Wanted {
    /// Both as one fetch, where that reads nothing that neither wants.
    fn join(self, other: Wanted) -> Option<Wanted> {
        match (self, other) {
            (Wanted::Range(a), Wanted::Range(b)) => {
                let touch = b.offset <= a.offset + a.len && a.offset <= b.offset + b.len;
                touch.then(|| Wanted::Range(union(a, b)))
            }
            _ => None,
        }
    }
}

fn union(a: Extent, b: Extent) -> Extent {
    let offset = a.offset.min(b.offset);
    Extent { offset, len: (a.offset + a.len).max(b.offset + b.len) - offset }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_ranges_become_one() {
        let at = |offset, len| Wanted::Range(Extent { offset, len });
        assert_eq!(at(0, 10).join(at(10, 5)), Some(at(0, 15)));
        assert_eq!(at(10, 5).join(at(0, 10)), Some(at(0, 15)));
        assert_eq!(at(0, 10).join(at(0, 10)), Some(at(0, 10)), "the same range twice is one fetch");
        assert_eq!(at(0, 10).join(at(11, 5)), None);
        assert_eq!(Wanted::Whole.join(Wanted::Whole), None, "one-sample files are one fetch each");
    }
}
