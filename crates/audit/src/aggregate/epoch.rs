//! One epoch of one loader while it is observed: waits, fetches and file calls become its row.

use std::collections::{BTreeMap, HashMap, VecDeque};

use model::observed::{Calls, EpochRow, IoCounts, SamplePattern, ValueCounts, WorkerRow};
use model::units::Nanos;

use super::batches::Batches;
use super::faults::EpochMappings;
use super::files::FileTable;
use super::flight::Flight;
use super::places::Places;
use super::visits::FileVisits;
use crate::event::{ProcessIndex, ProcessSample, Sample, SeenCall};
use crate::layout::{Op, POSITIONED};
use crate::observe::Paths;

/// Reads of a fetch that are kept to find what samples have in common, and distinct sequences of reads.
const FETCH_READS: usize = 4096;
const PATTERNS: usize = 256;
/// Reads of a sequence, and sequences in the row.
const PATTERN_READS: usize = 64;
const ROW_PATTERNS: usize = 8;
/// Written bytes that make the writes of a rank a checkpoint.
pub(super) const CHECKPOINT_BYTES: u64 = 1 << 20;

/// A worker in an epoch.
#[derive(Debug, Default)]
pub(super) struct EpochWorker {
    pub(super) row: WorkerRow,
    /// Ends of fetches whose batches were not taken yet.
    ready: VecDeque<u64>,
    /// CPU and run queue when it began.
    base: Option<(u64, u64)>,
}

/// A fetch that has begun.
#[derive(Debug, Default)]
pub(super) struct OpenFetch {
    pub(super) begin_ns: u64,
    pub(super) file_ns: u64,
    reads: Vec<(u64, u64, u64)>,
    cut: bool,
    /// The thread and the end of the call before, and times between calls.
    before: Option<(u32, u64)>,
    gaps: ValueCounts,
}

impl OpenFetch {
    pub(super) fn begin(at: u64) -> OpenFetch {
        OpenFetch { begin_ns: at, ..OpenFetch::default() }
    }

    pub(super) fn call(&mut self, event: &SeenCall) {
        self.file_ns += event.duration_ns;
        let before = self.before.replace((event.tid, event.end_ns()));
        if let Some((_, end_ns)) = before.filter(|(tid, _)| *tid == event.tid) {
            self.gaps.record(event.start_ns.saturating_sub(end_ns));
        }
        if matches!(event.op, Op::Read | Op::BufferedRead) && event.result > 0 {
            if self.reads.len() < FETCH_READS {
                self.reads.push((event.file, u64::try_from(event.offset).unwrap_or(0), event.bytes()));
            } else {
                self.cut = true;
            }
        }
    }

    /// The reads of each sample, if they can be told apart: the same number each, or a file each.
    fn by_sample(&self, samples: u64) -> Vec<&[(u64, u64, u64)]> {
        let samples = usize::try_from(samples).unwrap_or(0);
        if self.cut || samples == 0 || self.reads.is_empty() {
            return Vec::new();
        }
        let by_file: Vec<_> = self.reads.chunk_by(|one, other| one.0 == other.0).collect();
        if by_file.len() == samples {
            by_file
        } else if self.reads.len().is_multiple_of(samples) {
            self.reads.chunks(self.reads.len() / samples).collect()
        } else {
            Vec::new()
        }
    }
}

/// An epoch.
#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) row: EpochRow,
    pub(super) is_open: bool,
    /// The rank's own process.
    pub(super) rank_process: ProcessIndex,
    /// The thread that trains: what others write does not stop it.
    thread: u32,
    pub(super) batches: Batches,
    pub(super) loader_workers: u64,
    wait: Option<(u64, i64)>,
    /// When the rank got its last batch, and the steady part began.
    got_ns: Option<u64>,
    steady_from_ns: Option<u64>,
    group: Vec<u64>,
    pub(super) workers: BTreeMap<u64, EpochWorker>,
    pub(super) visits: FileVisits,
    pub(super) places: Places,
    flight: Flight,
    ready: u64,
    patterns: HashMap<Vec<(i64, u64)>, u64>,
    examined: u64,
    checkpoint_from: Option<u64>,
    checkpoint_in_step: u64,
    written: Calls,
    fetched: u64,
    /// Counts of the kernel when it began; those at its end are set by the first sample after it.
    pub(super) base: Option<(Option<u64>, u64)>,
    pub(super) waits_for_sample: bool,
    pub(super) mappings: EpochMappings,
}

impl Epoch {
    pub(super) fn new(
        row: EpochRow,
        (rank_process, thread): (ProcessIndex, u32),
        loader_workers: u64,
    ) -> Epoch {
        let begin = row.begin_ns.0;
        Epoch {
            row,
            is_open: true,
            rank_process,
            thread,
            batches: Batches::default(),
            loader_workers,
            wait: None,
            got_ns: None,
            steady_from_ns: None,
            group: Vec::new(),
            workers: BTreeMap::new(),
            visits: FileVisits::default(),
            places: Places::default(),
            flight: Flight::new(begin),
            ready: 0,
            patterns: HashMap::new(),
            examined: 0,
            checkpoint_from: None,
            checkpoint_in_step: 0,
            written: Calls::default(),
            fetched: 0,
            base: None,
            waits_for_sample: false,
            mappings: EpochMappings::default(),
        }
    }

    /// Batches at the start of an epoch that are no measure of its speed.
    fn warm_up(&self) -> u64 {
        2 * self.loader_workers
    }

    pub(super) fn wait_begins(&mut self, at: u64, worker: i64) {
        match self.got_ns {
            None if self.wait.is_none() => self.row.start_ns = Nanos(at).since(self.row.begin_ns),
            None => {}
            Some(got) => {
                let step = at.saturating_sub(got).saturating_sub(self.checkpoint_in_step);
                self.row.compute_ns += Nanos(step);
                self.row.compute_times.record(step);
            }
        }
        self.checkpoint_in_step = 0;
        self.wait = Some((at, worker));
    }

    /// The rank has a batch; `samples` if known.
    pub(super) fn wait_ends(&mut self, at: u64, samples: Option<u64>) {
        let (begin, worker) = self.wait.take().unwrap_or((at, -1));
        let wait = at.saturating_sub(begin);
        let worker = u64::try_from(worker).ok().and_then(|number| self.workers.get_mut(&number));
        let fetched = worker.and_then(|worker| worker.ready.pop_front());
        let blocked = fetched.map_or(wait, |fetched| fetched.saturating_sub(begin).min(wait));
        let handover = wait - blocked;
        let index = self.row.batches;
        if index == 0 {
            self.row.first_wait_ns = Nanos(wait);
        }
        self.ready = self.ready.saturating_sub(1);
        self.row.batches += 1;
        self.row.blocked_all_ns += Nanos(blocked);
        self.row.handover_all_ns += Nanos(handover);
        if let Some(samples) = samples {
            *self.row.samples.get_or_insert(0) += samples;
        }
        if index >= self.warm_up() {
            self.steady(at, begin, blocked, handover, samples);
        } else if index + 1 == self.warm_up() {
            self.steady_from_ns = Some(at);
        }
        self.got_ns = Some(at);
        self.row.end_ns = Nanos(at);
    }

    fn steady(&mut self, at: u64, begin: u64, blocked: u64, handover: u64, samples: Option<u64>) {
        let from = *self.steady_from_ns.get_or_insert(begin);
        self.row.blocked_ns += Nanos(blocked);
        self.row.handover_ns += Nanos(handover);
        self.row.steady_batches += 1;
        self.row.steady_samples += samples.unwrap_or(0);
        self.row.steady_ns = Nanos(at.saturating_sub(from));
        self.row.wait_times.record(blocked + handover);
        self.row.handover_times.record(handover);
        self.group.push(blocked);
        let workers = usize::try_from(self.loader_workers).unwrap_or(usize::MAX);
        if workers >= 2 && self.group.len() >= workers {
            let (most, sum) = (self.group.iter().max().copied().unwrap_or(0), self.group.iter().sum::<u64>());
            self.row.groups += 1;
            // A wait that is no longer than passing a batch on is no wait.
            let is_wait = most > 2 * handover.max(100_000);
            self.row.convoy_groups += u64::from(is_wait && most > 3 * (sum - most));
            self.group.clear();
        }
    }

    pub(super) fn worker(&mut self, number: u64, pid: u32) -> &mut EpochWorker {
        let worker = self.workers.entry(number).or_default();
        worker.row.worker = number;
        worker.row.pid = pid;
        worker
    }

    /// A fetch ended; `worker` is `None` in the rank itself.
    pub(super) fn fetched(&mut self, at: u64, fetch: &OpenFetch, samples: u64, worker: Option<(u64, u32)>) {
        let (took, file_ns) = (at.saturating_sub(fetch.begin_ns), fetch.file_ns);
        self.row.fetch_times.record(took);
        self.row.call_gaps += &fetch.gaps;
        self.fetched += samples;
        if let Some(think) = took.saturating_sub(file_ns).checked_div(samples) {
            self.row.think_times.record_n(think, samples);
        }
        for sample in fetch.by_sample(samples) {
            let first = sample.first().map_or(0, |(_, offset, _)| *offset as i64);
            let reads: Vec<(i64, u64)> = sample
                .iter()
                .take(PATTERN_READS)
                .map(|(_, offset, length)| ((*offset as i64).wrapping_sub(first), *length))
                .collect();
            if self.patterns.len() < PATTERNS || self.patterns.contains_key(&reads) {
                *self.patterns.entry(reads).or_default() += 1;
            }
        }
        self.examined += samples;
        let Some((number, pid)) = worker else {
            self.row.rank_fetch_ns += Nanos(took);
            return;
        };
        let state = self.worker(number, pid);
        state.row.fetches += 1;
        state.row.samples += samples;
        state.row.fetch_ns += Nanos(took);
        state.row.file_ns += Nanos(file_ns);
        state.ready.push_back(at);
        self.ready += 1;
        self.row.ready_most = self.row.ready_most.max(self.ready);
    }

    /// Calls on data files by the rank or a worker.
    pub(super) fn call(
        &mut self,
        process: ProcessIndex,
        event: &SeenCall,
        is_sequential: bool,
        worker: Option<(u64, u32)>,
    ) {
        add_call(&mut self.row.io, event, is_sequential);
        if process == self.rank_process {
            add_call(&mut self.row.rank_io, event, is_sequential);
            let is_write = matches!(event.op, Op::Write | Op::Sync) && event.tid == self.thread;
            if is_write && self.checkpoint_from.is_none() {
                self.written.add(event.bytes(), Nanos(event.duration_ns), false);
            }
        }
        if let Some((number, pid)) = worker {
            add_call(&mut self.worker(number, pid).row.io, event, is_sequential);
        }
        match event.op {
            Op::Open if event.result >= 0 => self.row.open_times.record(event.duration_ns),
            Op::Read | Op::BufferedRead if event.result > 0 => {
                self.row.read_sizes.record(event.bytes());
                match self.checkpoint_from {
                    Some(_) => self.row.read_times_in_checkpoints.record(event.duration_ns),
                    None => self.row.read_times.record(event.duration_ns),
                }
                self.flight.add(event.start_ns, event.end_ns());
            }
            Op::Write if self.checkpoint_from.is_some() && process == self.rank_process => {
                self.row.checkpoint_bytes += event.bytes();
            }
            _ => {}
        }
    }

    pub(super) fn checkpoint(&mut self, thread: u32, at: u64, begins: bool) {
        if thread != self.thread {
            return;
        }
        if begins {
            self.checkpoint_from = Some(at);
        } else if let Some(from) = self.checkpoint_from.take() {
            self.row.checkpoint_ns += Nanos(at.saturating_sub(from));
            self.checkpoint_in_step += at.saturating_sub(from);
        }
    }

    pub(super) fn end(&mut self, at: u64, complete: bool) {
        if !self.is_open {
            return;
        }
        self.is_open = false;
        self.waits_for_sample = true;
        self.row.complete = complete;
        if complete || self.row.batches == 0 {
            self.row.end_ns = Nanos(at);
        }
        // Writes without marks are a checkpoint if there are many bytes; otherwise a log.
        if self.row.checkpoint_bytes == 0 && self.written.bytes >= CHECKPOINT_BYTES {
            self.row.checkpoint_bytes = self.written.bytes;
            self.row.checkpoint_ns += self.written.ns;
            self.row.compute_ns = self.row.compute_ns.since(self.written.ns);
        }
        if self.row.samples.is_none() && self.fetched > 0 {
            self.row.samples = Some(self.fetched);
        }
        self.row.in_flight_ns = std::mem::take(&mut self.flight).finish(self.row.end_ns.0);
        let mut patterns: Vec<SamplePattern> = std::mem::take(&mut self.patterns)
            .into_iter()
            .map(|(reads, samples)| SamplePattern { reads, samples, examined: self.examined })
            .collect();
        patterns.sort_by(|one, other| other.samples.cmp(&one.samples).then(one.reads.cmp(&other.reads)));
        patterns.truncate(ROW_PATTERNS);
        self.row.sample_patterns = patterns;
    }

    /// Counts of a worker's process.
    pub(super) fn worker_sample(&mut self, number: u64, sample: &ProcessSample) {
        let Some(worker) = self.workers.get_mut(&number) else { return };
        let (cpu, queue) = *worker.base.get_or_insert((sample.cpu_ns, sample.run_queue_ns));
        worker.row.cpu_ns = Some(Nanos(sample.cpu_ns.saturating_sub(cpu)));
        worker.row.run_queue_ns = Some(Nanos(sample.run_queue_ns.saturating_sub(queue)));
        if let Some((private, shared)) = sample.memory {
            let memory = worker.row.memory.get_or_insert_with(|| super::processes::memory(private, shared));
            (memory.private_dirty_last, memory.shared_dirty_last) = (private, shared);
        }
    }

    /// What a worker had used before the epoch.
    pub(super) fn worker_base(&mut self, number: u64, base: (u64, u64)) {
        if let Some(worker) = self.workers.get_mut(&number) {
            worker.base.get_or_insert(base);
        }
    }

    /// The figures of its files, when it has ended.
    pub(super) fn finish_files(&mut self, files: &FileTable, paths: Paths, observes_faults: bool) {
        // The epoch may wait for counts of the kernel, but not with all of its visits.
        let visits = std::mem::take(&mut self.visits);
        self.row.files = visits.figures(files.bits(), |file| files.path(file, paths));
        self.mappings.show(&mut self.row.files, observes_faults);
    }

    /// What was resident in mappings right after its end.
    pub(super) fn last_mappings(&mut self, sample: Option<&Sample>, observes_faults: bool) {
        for counts in sample.into_iter().flat_map(|sample| &sample.processes) {
            if let Some(mapped) = counts.mapped {
                self.mappings.last_sample(counts.process, mapped);
            }
        }
        self.mappings.show(&mut self.row.files, observes_faults);
    }

    /// The row, when nothing more can come.
    pub(super) fn into_row(mut self) -> EpochRow {
        self.row.workers = self.workers.into_values().map(|worker| worker.row).collect();
        self.row
    }
}

/// Adds a call to counts.
pub(super) fn add_call(counts: &mut IoCounts, event: &SeenCall, is_sequential: bool) {
    let calls = match event.op {
        Op::Open => &mut counts.opens,
        Op::Read | Op::BufferedRead => &mut counts.reads,
        Op::Close => &mut counts.closes,
        Op::Seek => &mut counts.seeks,
        Op::Stat => &mut counts.stats,
        Op::List => &mut counts.listings,
        Op::Map => &mut counts.maps,
        Op::Write => &mut counts.writes,
        Op::Sync => &mut counts.syncs,
        _ => return,
    };
    let moved = if matches!(event.op, Op::Read | Op::BufferedRead | Op::Write) { event.bytes() } else { 0 };
    calls.add(moved, Nanos(event.duration_ns), event.result < 0 && event.op != Op::Map);
    if matches!(event.op, Op::Read | Op::BufferedRead) {
        counts.positioned += u64::from(event.flags & POSITIONED != 0);
        if is_sequential {
            counts.sequential.add(moved, Nanos(event.duration_ns), false);
        }
    }
}
