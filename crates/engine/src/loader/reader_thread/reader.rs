//! What a reader waits for, which samples it reads next, and the counts of samples that it delivers or leaves out.

use std::ops::Range;

use format::Extent;
use model::digest::placed_run;
use model::ledger::{Part, Row};
use model::units::Nanos;
use store::Buffer;

use super::super::board::Doing;
use super::super::job::Job;
use super::super::visit::Known;
use super::Reader;

/// What a reader waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A chunk.
    Idle,
    /// This range of metadata, which locates its samples.
    Metadata(Extent),
    /// Its samples.
    Samples,
    /// Their preprocessing.
    Preprocessing,
}

impl State {
    /// The state as shown on the board.
    pub(super) fn shown(self) -> Doing {
        match self {
            State::Idle => Doing::Nothing,
            State::Metadata(_) => Doing::Metadata,
            State::Samples => Doing::Fetching,
            State::Preprocessing => Doing::Preparing,
        }
    }
}

impl Reader {
    pub(super) fn new(job: &Job<'_>, queue: usize, number: usize, account: usize) -> Reader {
        let shards = &job.phase.shards;
        let first = shards.position(job.first_rank + queue as u64, 0);
        Reader {
            queue,
            number,
            account,
            state: State::Idle,
            chunk: None,
            left: 0..0,
            stretch: first..first + shards.steps * shards.batch,
            ahead: None,
            samples: 0..0,
            each: 0.0,
            asked: 0,
            metadata: None,
            begins: false,
            at: Nanos::ZERO,
            began: Nanos::ZERO,
            tally: Row::default(),
            before: (Part::default(), 0),
            known: Known::default(),
            kept: Vec::new(),
            spare: None,
            ranges: Vec::new(),
        }
    }

    /// Begins the next samples of the chunk, neighbours in one file together; returns whether there are any.
    pub(super) fn next_samples(&mut self, job: &Job<'_>) -> bool {
        let Some((position, samples)) = self.ahead.take().or_else(|| self.look_up(job)) else { return false };
        self.samples = samples.clone();
        let Row { samples_delivered, digest, order, .. } = self.tally;
        self.before = (Part { samples: samples_delivered, digest }, order);
        self.deliver(position, &samples);
        let per_file = job.split.samples_per_file;
        if per_file == 1 {
            return true;
        }
        while let Some((position, samples)) = self.look_up(job) {
            if samples.start != self.samples.end || samples.start.is_multiple_of(per_file) {
                self.ahead = Some((position, samples));
                break;
            }
            self.samples.end = samples.end;
            self.deliver(position, &samples);
        }
        true
    }

    /// The next consecutive samples, and their position in the order.
    fn look_up(&mut self, job: &Job<'_>) -> Option<(u64, Range<u64>)> {
        if self.left.is_empty() {
            return None;
        }
        let per_file = job.split.samples_per_file;
        let (position, run) = job.phase.interleave.place(&self.stretch, per_file, self.left.start);
        let most = run.min(self.left.end - self.left.start);
        let (sample, count) = job.order.run(position, most);
        self.left.start += count;
        Some((position, sample..sample + count))
    }

    fn deliver(&mut self, position: u64, samples: &Range<u64>) {
        let count = samples.end - samples.start;
        self.tally.samples_delivered += count;
        self.tally.digest.insert_run(samples.start, count);
        self.tally.order = self.tally.order.wrapping_add(placed_run(position, samples.start, count));
    }

    /// Removes the current samples from the tally: the batch is delivered without them.
    pub(super) fn leave_out(&mut self) {
        let (before, order) = self.before;
        let tally = &mut self.tally;
        let samples = tally.samples_delivered - before.samples;
        tally.failed += Part { samples, digest: tally.digest - before.digest };
        (tally.samples_delivered, tally.digest, tally.order) = (before.samples, before.digest, order);
        (self.begins, self.metadata) = (false, None);
        // The metadata that was read may be wrong.
        self.known = Known::default();
    }

    /// The number of the file that holds the current samples.
    pub(super) fn file(&self, job: &Job<'_>) -> u64 {
        match job.split.samples_per_file {
            // Most files hold one sample, and the division would take as long as the rest.
            1 => self.samples.start,
            several => self.samples.start / several,
        }
    }

    /// Keeps the bytes of the samples for the batch, or only their buffer for the next samples.
    pub(super) fn put_by(&mut self, job: &Job<'_>, bytes: Option<Buffer>) {
        match bytes {
            Some(buffer) if !job.shelves.is_empty() => self.kept.push(buffer),
            bytes => self.spare = bytes.or_else(|| self.spare.take()),
        }
    }
}
