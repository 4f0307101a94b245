//! A reader thread runs one reader or many. Each reader claims chunks of batches, fetches their samples one after
//! another and delivers them to the batch. The thread continues with whichever reader's fetch has ended, and sleeps
//! when all readers wait. After warm-up it allocates nothing and takes no lock while there is work.
//!
//! Each reader has its own timeline: a request to a simulated device, or a pause, begins when the previous one ended on
//! that timeline. So a thread that wakes late delays no reader; the delay is recorded as lateness in the ledger when
//! the batch is taken.

mod loss;
mod metadata;
mod reader;
mod recording;
mod replay;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use model::histogram::Latencies;
use model::ledger::{CheckedFetches, Counted, Errors, PARTS, RankRow, RepeatedReads, SampleDigest, part_of};
use model::plan::Discipline;
use model::requests::RequestCounts;
use model::spec::Preprocess;
use model::timeline::Timeline;
use model::units::Nanos;
use store::{Buffer, Fetch, FetchWait, Fetched, FinishedFetch, Lane, Purpose, SpanSink, Traffic};

use super::checking::Checker;
use super::phase_run::{PhaseFailure, PhaseRun};
use super::preprocess::{PreprocessTask, PreprocessedSamples, panic_text};
use super::queue::Chunk;
use super::status::ThreadStatus;
use super::traced::ThreadSpans;
use super::visit::{ReadError, Visits};
use crate::accelerators::Drive;
use crate::asking::ParseStep;
use crate::cache;
use crate::events::Emitter;
use crate::meter::Monotonic;
use crate::waits;
use metadata::MetadataRead;
use reader::{Reader, ReaderState};

/// How long a thread sleeps at most before it checks whether the run should stop.
const LOOK_AROUND: Nanos = Nanos(100_000_000);

/// What the readers of one thread delivered: to each rank, and in each part of the epoch.
#[derive(Debug)]
pub(crate) struct Delivered {
    /// By queue: counts and digests only; the accelerators record the times.
    pub(crate) accounts: Vec<(usize, RankRow)>,
    pub(crate) parts: Vec<SampleDigest>,
    pub(crate) latencies: Latencies,
    pub(crate) timeline: Timeline,
    /// Maximum number of fetches in flight.
    pub(crate) most_in_flight: u64,
    pub(crate) checked: CheckedFetches,
    pub(crate) errors: Errors,
    /// Pages that were resident before they were read.
    pub(crate) counted: Counted,
    /// Bytes that were requested, each counted once per fetch.
    pub(crate) needed_bytes: u64,
    pub(crate) repeats: RepeatedReads,
    /// Requests to an object store.
    pub(crate) requests: RequestCounts,
}

/// Runs the readers of thread `thread` until the phase has no more chunks for them, and returns what they delivered. A
/// failure or a panic is stored in the run and ends the phase for all threads.
pub(crate) fn read(run: &PhaseRun<'_>, drive: &Drive<'_>, thread: usize) -> Delivered {
    let _left = waits::leave_to_phase();
    Monotonic::sharpen_this_thread();
    let readers = run.readers.assignment.readers(thread);
    let checker = Checker::new(run, readers.len());
    let spans = ThreadSpans::new(run, &readers);
    let spans = spans.as_ref();
    let traffic = Traffic {
        readers: readers.len(),
        lanes: run.readers.assignment.thread_count(),
        lane: thread,
        transfer: run.plan.loader.transfer_bytes as usize,
        clock: run.clock.as_now(),
        give_up: run.control.abort.flag(),
        witness: checker.witness(),
        tracks: &run.readers.status.station(thread).tracks,
        proof: cache::proof(run, thread),
        spans: spans.map(|spans| spans as &dyn SpanSink),
    };
    let (mut delivered, mut at) = (Delivered::nothing(), (run.first_rank, 0));
    if let Some((queue, _)) = readers.first() {
        at.0 += *queue as u64;
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        replay::await_start(run);
        let lane = run.input.store.lane(traffic)?;
        let mut reading = ReaderThread::new(run, drive, thread, lane, (&checker, spans), &readers);
        let outcome = catch_unwind(AssertUnwindSafe(|| reading.serve()));
        at = reading.at_work;
        delivered = reading.finish();
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }));
    let cause = match outcome {
        // A fetch that was cancelled because the phase ends is not a failure of its own.
        Ok(Err(cause)) if !cause.is_given_up() => cause.to_string(),
        Ok(_) => return delivered,
        Err(panic) => format!("a reader panicked: {}", panic_text(&*panic)),
    };
    run.fail(PhaseFailure { rank: at.0, step: at.1, cause });
    delivered
}

impl Delivered {
    fn nothing() -> Delivered {
        Delivered {
            accounts: Vec::new(),
            parts: vec![SampleDigest::default(); PARTS as usize],
            latencies: Latencies::default(),
            timeline: Timeline::default(),
            most_in_flight: 0,
            checked: CheckedFetches::default(),
            errors: Errors::default(),
            counted: Counted::default(),
            needed_bytes: 0,
            requests: RequestCounts::default(),
            repeats: RepeatedReads::default(),
        }
    }
}

/// The result of requesting a reader's samples.
enum FetchStart {
    /// A fetch is in flight.
    Fetch,
    /// No fetch is needed.
    Nothing,
    /// The samples cannot be read and are left out.
    Loss,
}

/// The readers of a queue that have no chunk.
#[derive(Debug)]
struct IdleReaders {
    queue: usize,
    readers: Vec<usize>,
    /// The bound of the queue at their last failed claim.
    seen: Option<u64>,
}

/// The readers that share a thread.
struct ReaderThread<'a, 'r, 'd> {
    run: &'a PhaseRun<'r>,
    drive: &'a Drive<'d>,
    thread: usize,
    /// Where the readers record their current work.
    station: &'a ThreadStatus,
    lane: Box<dyn Lane + 'a>,
    checker: &'a Checker<'a>,
    /// Where operations are recorded, if a listener asks for them.
    spans: Option<&'a ThreadSpans>,
    readers: Vec<Reader>,
    /// One entry per account.
    idle: Vec<IdleReaders>,
    /// Readers in a pause, and when it ends.
    pauses: BinaryHeap<Reverse<(Nanos, usize)>>,
    prepared: Vec<PreprocessedSamples>,
    visits: Visits,
    in_flight: u64,
    /// The requests that the live counters include.
    told: RequestCounts,
    delivered: Delivered,
    emitter: Emitter,
    /// Rank and step of the current work, for the error message.
    at_work: (u64, u64),
}

impl<'a, 'r, 'd> ReaderThread<'a, 'r, 'd> {
    fn new(
        run: &'a PhaseRun<'r>,
        drive: &'a Drive<'d>,
        thread: usize,
        lane: Box<dyn Lane + 'a>,
        (checker, spans): (&'a Checker<'a>, Option<&'a ThreadSpans>),
        roles: &[(usize, usize)],
    ) -> Self {
        if let Some(waker) = lane.waker() {
            run.readers.work_bells[thread].set_waker(waker);
        }
        let mut delivered = Delivered::nothing();
        let mut idle: Vec<IdleReaders> = Vec::new();
        let mut readers = Vec::with_capacity(roles.len());
        for (place, (queue, number)) in roles.iter().enumerate() {
            if delivered.accounts.last().is_none_or(|(last, _)| last != queue) {
                delivered.accounts.push((*queue, RankRow::default()));
                idle.push(IdleReaders { queue: *queue, readers: Vec::new(), seen: None });
            }
            let account = idle.len() - 1;
            idle[account].readers.push(place);
            readers.push(Reader::new(run, *queue, *number, account));
        }
        let pauses = BinaryHeap::with_capacity(readers.len());
        let (prepared, visits) = (Vec::with_capacity(readers.len()), Visits::new());
        let at_work = (run.first_rank, 0);
        ReaderThread {
            run,
            drive,
            thread,
            station: run.readers.status.station(thread),
            lane,
            checker,
            spans,
            readers,
            idle,
            pauses,
            prepared,
            visits,
            in_flight: 0,
            told: RequestCounts::default(),
            delivered,
            emitter: Emitter::default(),
            at_work,
        }
    }

    fn serve(&mut self) -> Result<(), ReadError> {
        while !self.run.ending() {
            let mut progress = self.put_idle_to_work()?;
            // At most one round, so that readers that are always ready do not starve the others.
            for _ in 0..self.readers.len() {
                let Some(done) = self.lane.reap() else { break };
                progress = true;
                self.arrive(done)?;
            }
            progress |= self.end_pauses()?;
            progress |= self.take_prepared()?;
            if !progress {
                if self.nothing_left() {
                    return Ok(());
                }
                self.rest();
            }
        }
        Ok(())
    }

    /// Lets readers without a chunk claim one, if the queue has released more since their last attempt.
    fn put_idle_to_work(&mut self) -> Result<bool, ReadError> {
        let mut progress = false;
        for account in 0..self.idle.len() {
            let idle = &mut self.idle[account];
            if !idle.could_claim(self.run) {
                continue;
            }
            idle.seen = Some(self.run.readers.queues[idle.queue].bound());
            for i in (0..self.idle[account].readers.len()).rev() {
                let place = self.idle[account].readers[i];
                let reader = &self.readers[place];
                if let Some(chunk) = self.run.readers.queues[reader.queue].claim(reader.number) {
                    self.idle[account].readers.swap_remove(i);
                    progress = true;
                    self.readers[place].at = self.run.clock.now();
                    self.begin(place, chunk);
                    self.advance(place)?;
                }
            }
        }
        Ok(progress)
    }

    /// Continues with a reader until it has to wait or finds no chunk.
    fn advance(&mut self, place: usize) -> Result<(), ReadError> {
        loop {
            let reader = &mut self.readers[place];
            if !reader.next_samples(self.run) {
                if let Some(chunk) = reader.chunk.take() {
                    self.hand_over(place, chunk);
                }
                let reader = &self.readers[place];
                match self.run.readers.queues[reader.queue].claim(reader.number) {
                    Some(chunk) => self.begin(place, chunk),
                    None => {
                        let idle = &mut self.idle[reader.account];
                        idle.readers.push(place);
                        idle.seen = None;
                        self.turn(place, ReaderState::Idle);
                        return Ok(());
                    }
                }
                continue;
            }
            if self.ask(place)? {
                return Ok(());
            }
        }
    }

    /// Requests the reader's samples; returns whether it has to wait.
    fn ask(&mut self, place: usize) -> Result<bool, ReadError> {
        Ok(match self.fetch(place)? {
            FetchStart::Fetch => true,
            FetchStart::Nothing => self.preprocess(place, None),
            FetchStart::Loss => false,
        })
    }

    fn begin(&mut self, place: usize, chunk: Chunk) {
        let reader = &mut self.readers[place];
        let first = self.run.phase.shards.position(self.run.first_rank + reader.queue as u64, chunk.step);
        reader.left = first + chunk.first..first + chunk.first + chunk.samples;
        reader.begins = chunk.number == 0;
        reader.chunk = Some(chunk);
        reader.tally = RankRow::default();
    }

    /// Submits the reader's next fetch: of its samples, or of metadata that is needed to locate them.
    fn fetch(&mut self, place: usize) -> Result<FetchStart, ReadError> {
        self.turn_to(place);
        let (run, reader) = (self.run, &mut self.readers[place]);
        if run.plan.loader.discipline == Discipline::Synthetic {
            return Ok(FetchStart::Nothing);
        }
        let file = reader.file(run);
        self.station.posts[place].visits(file, self.at_work.1, reader.at);
        if let Some(spans) = self.spans {
            spans.turn_to_file(place, file);
        }
        self.turn(place, ReaderState::Samples);
        let reader = &mut self.readers[place];
        let visit =
            self.visits.prepare(run, reader.begins, &reader.samples, &mut reader.known, &mut reader.tally);
        let visit = match visit {
            Ok(visit) => visit,
            Err(cause) => return self.lose(place, cause).map(|()| FetchStart::Loss),
        };
        reader.asked = match visit.next {
            ParseStep::Answer(bytes) => bytes,
            ParseStep::Read(range) => {
                self.fetch_metadata(place, visit.entry, range);
                return Ok(FetchStart::Fetch);
            }
        };
        reader.begins = false;
        reader.each = visit.entry.bytes as f64 / run.input.split.samples_per_file as f64;
        if self.visits.reads.is_empty() {
            self.end_metadata(place);
            let reader = &mut self.readers[place];
            if !run.readers.tolerance.has_lost(file) {
                return Ok(FetchStart::Nothing);
            }
            reader.leave_out();
            return Ok(FetchStart::Loss);
        }
        if let Err(cause) = self.examine_file(place, visit.entry) {
            self.readers[place].tally.bytes_failed += self.readers[place].asked;
            return self.lose(place, cause.into()).map(|()| FetchStart::Loss);
        }
        let reader = &mut self.readers[place];
        let into = reader.buffer(run, self.checker.wants_whole());
        if self.checker.wants_whole() {
            reader.ranges.clone_from(&self.visits.reads);
        }
        let number = self.checker.begin(place, visit.file, &self.visits.name, &self.visits.reads);
        let fetch = Fetch {
            name: &self.visits.name,
            purpose: Purpose::Samples(number),
            ranges: &self.visits.reads,
            file_bytes: visit.entry.bytes,
            version: visit.entry.version,
            keep_open: run.plan.data.streams || run.plan.replay.opens_per_sample == 0,
            at: reader.at,
            into,
        };
        let limit = run.readers.limits.get(reader.queue);
        let permit = limit.map(|limit| limit.enter(|| run.ending()));
        self.lane.submit(place, fetch);
        drop(permit);
        self.delivered.needed_bytes += self.visits.needed_bytes;
        if let Some(footprint) = run.input.footprint {
            self.delivered.repeats += self.visits.repeats(footprint, visit.file);
        }
        self.count_in_flight();
        Ok(FetchStart::Fetch)
    }

    /// Counts a submitted fetch as in flight.
    fn count_in_flight(&mut self) {
        self.in_flight += 1;
        self.delivered.most_in_flight = self.delivered.most_in_flight.max(self.in_flight);
        self.run.threads[self.thread].set(self.in_flight);
    }

    /// Sets the reader's state, and shows it on the status board.
    fn turn(&mut self, place: usize, state: ReaderState) {
        self.readers[place].state = state;
        self.station.posts[place].turns_to(state.shown());
    }

    /// Records rank and step of the current work, for messages.
    fn turn_to(&mut self, place: usize) {
        let reader = &self.readers[place];
        let step = reader.chunk.map_or(0, |chunk| chunk.step);
        self.at_work = (self.run.first_rank + reader.queue as u64, step);
        if let Some(spans) = self.spans {
            spans.turn_to_step(place, step);
        }
    }

    /// A fetch has ended.
    fn arrive(&mut self, done: FinishedFetch) -> Result<(), ReadError> {
        self.in_flight -= 1;
        self.run.threads[self.thread].set(self.in_flight);
        self.turn_to(done.reader);
        self.readers[done.reader].at = done.at;
        match self.readers[done.reader].state {
            ReaderState::Metadata(range) => self.take_metadata(done, range),
            ReaderState::Idle | ReaderState::Samples | ReaderState::Preprocessing => self.take_samples(done),
        }
    }

    /// The fetch of a reader's samples has ended.
    fn take_samples(&mut self, done: FinishedFetch) -> Result<(), ReadError> {
        let (run, reader) = (self.run, &mut self.readers[done.reader]);
        let compared = self.checker.end(&done, &reader.ranges, &mut self.delivered.checked);
        let outcome = compared.and_then(|spent| Ok((done.outcome?, spent)));
        let (Fetched { bytes, opens, reads, probe }, spent) = match outcome {
            Ok(brought) => brought,
            Err(cause) => {
                reader.tally.bytes_failed += reader.asked;
                self.lose(done.reader, cause.into())?;
                return self.advance(done.reader);
            }
        };
        cache::book(&mut self.delivered.counted, probe, bytes);
        reader.tally.bytes_read += bytes;
        reader.tally.opens += opens;
        reader.tally.reads += reads;
        let metadata = reader.metadata.take().unwrap_or(MetadataRead { began: done.began, bytes: 0 });
        let (samples, all) = (reader.samples.end - reader.samples.start, bytes + metadata.bytes);
        self.delivered.timeline.add(done.at.since(run.begin), all, samples);
        self.record_sample(done.reader, (metadata.began, done.at.since(metadata.began) - spent), all);
        if self.preprocess(done.reader, done.kept) {
            return Ok(());
        }
        self.advance(done.reader)
    }

    /// Starts the preprocessing of the reader's samples; returns whether the reader has to wait for it.
    fn preprocess(&mut self, place: usize, bytes: Option<Buffer>) -> bool {
        let (run, reader) = (self.run, &mut self.readers[place]);
        let plan = &run.plan.loader.preprocess;
        reader.began = reader.at;
        if !plan.works() {
            reader.put_by(run, bytes);
            return false;
        }
        self.turn(place, ReaderState::Preprocessing);
        let reader = &mut self.readers[place];
        let span = run.readers.preprocessing.span(run.plan.seed, run.epoch, &reader.samples, reader.each);
        if plan.kind == Preprocess::Sleep {
            reader.at = run.readers.preprocessing.pause(reader.queue, reader.at, span);
            reader.put_by(run, bytes);
            self.pauses.push(Reverse((reader.at, place)));
            return true;
        }
        let (rank, step) = self.at_work;
        run.readers.preprocessing.submit(PreprocessTask {
            thread: self.thread,
            reader: place,
            rank,
            step,
            span,
            bytes,
        });
        true
    }

    fn end_pauses(&mut self) -> Result<bool, ReadError> {
        let mut progress = false;
        while let Some(Reverse((at, place))) = self.pauses.peek().copied() {
            if at > self.run.clock.now() {
                break;
            }
            self.pauses.pop();
            progress = true;
            self.go_on(place)?;
        }
        Ok(progress)
    }

    fn take_prepared(&mut self) -> Result<bool, ReadError> {
        if !self.run.plan.loader.preprocess.computes() {
            return Ok(false);
        }
        let mut prepared = std::mem::take(&mut self.prepared);
        self.run.readers.preprocessing.take(self.thread, &mut prepared);
        let progress = !prepared.is_empty();
        for done in prepared.drain(..) {
            let reader = &mut self.readers[done.reader];
            reader.at = done.at;
            if let Some(cause) = done.damage {
                let name = self.run.file_name(reader.file(self.run));
                self.turn_to(done.reader);
                self.lose(done.reader, ReadError::Damaged { name, cause })?;
                self.advance(done.reader)?;
                continue;
            }
            reader.put_by(self.run, done.bytes);
            self.go_on(done.reader)?;
        }
        self.prepared = prepared;
        Ok(progress)
    }

    /// The preprocessing of the reader's samples has ended.
    fn go_on(&mut self, place: usize) -> Result<(), ReadError> {
        let reader = &self.readers[place];
        self.record_preprocessing(place, (reader.began, reader.at.since(reader.began)));
        self.advance(place)
    }

    /// Adds a chunk to its batch, and wakes the threads that wait for it.
    fn hand_over(&mut self, place: usize, chunk: Chunk) {
        let (run, reader) = (self.run, &mut self.readers[place]);
        if let Some(pool) = run.readers.pools.get(reader.queue) {
            pool.keep(chunk.step, &mut reader.kept);
        }
        let tally = reader.tally;
        self.delivered.accounts[reader.account].1 += tally;
        let rank = run.first_rank + reader.queue as u64;
        let shards = &run.phase.shards;
        let part = part_of(rank * shards.steps + chunk.step, shards.ranks * shards.steps);
        let mut all = SampleDigest { samples: tally.samples_delivered, digest: tally.digest };
        all += tally.failed;
        self.delivered.parts[part] += all;
        let (queue, at) = (reader.queue, reader.at);
        run.ranks[queue].add_samples(tally.samples_delivered, tally.failed.samples, tally.bytes_read);
        let change = run.readers.queues[queue].complete(chunk, at, tally.bytes_read);
        run.wake_for(queue, &change.room);
        if change.awaited {
            self.drive.nudge();
        }
        self.tell_requests();
    }

    /// Whether all readers are idle and no chunk is left for them.
    fn nothing_left(&self) -> bool {
        let idle: usize = self.idle.iter().map(|idle| idle.readers.len()).sum();
        idle == self.readers.len() && self.exhausted()
    }

    fn exhausted(&self) -> bool {
        self.readers.iter().all(|reader| self.run.readers.queues[reader.queue].exhausted(reader.number))
    }

    /// Sleeps until there may be work.
    fn rest(&mut self) {
        self.tell_requests();
        let (run, bell) = (self.run, &self.run.readers.work_bells[self.thread]);
        let pause = self.pauses.peek().map(|Reverse((at, _))| *at);
        let awaits = self.lane.awaits();
        let until = match awaits {
            FetchWait::Moment(at) => Some(pause.map_or(at, |pause| pause.min(at))),
            _ => pause,
        };
        self.station.sleeps(until);
        let now = run.clock.now();
        let most = until.map_or(LOOK_AROUND, |until| until.since(now).min(LOOK_AROUND));
        let (idle, thread) = (&self.idle, self.thread);
        bell.set_free(idle.iter().any(|idle| !idle.readers.is_empty()));
        let computes = run.plan.loader.preprocess.computes();
        let ready = || {
            run.ending()
                || idle.iter().any(|idle| idle.could_claim(run))
                || (computes && run.readers.preprocessing.has_some(thread))
        };
        if awaits == FetchWait::Medium {
            let lane = &mut self.lane;
            bell.doze(ready, || lane.wait(most));
        } else {
            bell.wait(Duration::from_nanos(most.0), ready);
        }
    }
}

impl IdleReaders {
    /// Whether the queue has released more chunks since the readers' last attempt.
    fn could_claim(&self, run: &PhaseRun<'_>) -> bool {
        !self.readers.is_empty() && self.seen != Some(run.readers.queues[self.queue].bound())
    }
}
