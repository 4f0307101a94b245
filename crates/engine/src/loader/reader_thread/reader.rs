//! What a reader waits for, which samples it reads next, and the counts of samples that it delivers or leaves out.

use std::ops::Range;

use format::Extent;
use model::digest::placed_run;
use model::ledger::{RankRow, SampleDigest};
use model::spec::Preprocess;
use model::units::Nanos;
use store::Buffer;

use super::super::phase_run::PhaseRun;
use super::super::queue::Chunk;
use super::super::status::ReaderActivity;
use super::super::visit::KnownFile;
use super::metadata::MetadataRead;

/// What a reader waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReaderState {
    /// A chunk.
    Idle,
    /// This range of metadata, which locates its samples.
    Metadata(Extent),
    /// Its samples.
    Samples,
    /// Their preprocessing.
    Preprocessing,
}

impl ReaderState {
    /// The state as shown on the status board.
    pub(super) fn shown(self) -> ReaderActivity {
        match self {
            ReaderState::Idle => ReaderActivity::Nothing,
            ReaderState::Metadata(_) => ReaderActivity::Metadata,
            ReaderState::Samples => ReaderActivity::Fetching,
            ReaderState::Preprocessing => ReaderActivity::Preparing,
        }
    }
}

/// One reader.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) queue: usize,
    /// Its number in its rank, and the index of its rank's account.
    pub(super) number: usize,
    pub(super) account: usize,
    pub(super) state: ReaderState,
    pub(super) chunk: Option<Chunk>,
    /// Positions of the chunk that are still to be read, and the rank's range of the order.
    pub(super) left: Range<u64>,
    pub(super) stretch: Range<u64>,
    /// The next samples, if they have been looked up already: their position, and which they are.
    pub(super) ahead: Option<(u64, Range<u64>)>,
    /// The samples being read, and the size of one.
    pub(super) samples: Range<u64>,
    pub(super) each: f64,
    /// Bytes of their fetch, and the metadata that was read before it.
    pub(super) asked: u64,
    pub(super) metadata: Option<MetadataRead>,
    /// Whether these are the first samples of its rank.
    pub(super) begins: bool,
    /// The reader's position on its timeline, and the start of the current operation.
    pub(super) at: Nanos,
    pub(super) began: Nanos,
    pub(super) tally: RankRow,
    /// Samples and order of the tally without the current samples.
    pub(super) before: (SampleDigest, u64),
    pub(super) known: KnownFile,
    pub(super) kept: Vec<Buffer>,
    pub(super) spare: Option<Buffer>,
    /// The ranges of its fetch, if the bytes are compared afterwards.
    pub(super) ranges: Vec<Extent>,
}

impl Reader {
    pub(super) fn new(run: &PhaseRun<'_>, queue: usize, number: usize, account: usize) -> Reader {
        let shards = &run.phase.shards;
        let first = shards.position(run.first_rank + queue as u64, 0);
        Reader {
            queue,
            number,
            account,
            state: ReaderState::Idle,
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
            tally: RankRow::default(),
            before: (SampleDigest::default(), 0),
            known: KnownFile::default(),
            kept: Vec::new(),
            spare: None,
            ranges: Vec::new(),
        }
    }

    /// Begins the next samples of the chunk, neighbours in one file together; returns whether there are any.
    pub(super) fn next_samples(&mut self, run: &PhaseRun<'_>) -> bool {
        let Some((position, samples)) = self.ahead.take().or_else(|| self.look_up(run)) else { return false };
        self.samples = samples.clone();
        let RankRow { samples_delivered, digest, order, .. } = self.tally;
        self.before = (SampleDigest { samples: samples_delivered, digest }, order);
        self.deliver(position, &samples);
        let per_file = run.input.split.samples_per_file;
        if per_file == 1 || run.plan.whole_files {
            return true;
        }
        while let Some((position, samples)) = self.look_up(run) {
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
    fn look_up(&mut self, run: &PhaseRun<'_>) -> Option<(u64, Range<u64>)> {
        if self.left.is_empty() {
            return None;
        }
        let (position, neighbours) = run.phase.place(&self.stretch, self.left.start);
        let most = match run.plan.whole_files {
            true => 1,
            false => neighbours.min(self.left.end - self.left.start),
        };
        let (sample, count) = run.order.run(position, most);
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
        tally.failed += SampleDigest { samples, digest: tally.digest - before.digest };
        (tally.samples_delivered, tally.digest, tally.order) = (before.samples, before.digest, order);
        (self.begins, self.metadata) = (false, None);
        // The metadata that was read may be wrong.
        self.known = KnownFile::default();
    }

    /// The number of the file that holds the current samples.
    pub(super) fn file(&self, run: &PhaseRun<'_>) -> u64 {
        match run.input.split.samples_per_file {
            // Most files hold one sample, and the division would take as long as the rest.
            1 => self.samples.start,
            several => self.samples.start / several,
        }
    }

    /// The buffer for the bytes of a fetch; `None` if they are dropped. `compared`: they are compared afterwards.
    pub(super) fn buffer(&mut self, run: &PhaseRun<'_>, compared: bool) -> Option<Buffer> {
        match run.readers.pools.get(self.queue) {
            Some(pool) => Some(pool.buffer()),
            None if compared || run.plan.loader.preprocess.kind == Preprocess::Decode => {
                Some(self.spare.take().unwrap_or_default())
            }
            None => None,
        }
    }

    /// Keeps the bytes of the samples for the batch, or only their buffer for the next samples.
    pub(super) fn put_by(&mut self, run: &PhaseRun<'_>, bytes: Option<Buffer>) {
        match bytes {
            Some(buffer) if !run.readers.pools.is_empty() => self.kept.push(buffer),
            bytes => self.spare = bytes.or_else(|| self.spare.take()),
        }
    }
}
