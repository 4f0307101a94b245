//! The processes of a job: which belongs to which rank and loader, and the row of each.

use std::collections::HashMap;

use model::observed::{IoCounts, MemoryChange, ProcessRow};
use model::units::Nanos;

use super::epoch::{OpenFetch, add_call};
use super::faults::FaultOrder;
use super::visits::FileKey;
use crate::event::{ProcessEnd, ProcessIndex, ProcessSample, ProcessStart, SeenCall};
use crate::layout::{CODE, FdKind, Op};

/// Rows of processes in a result, and processes that are kept after their end. The rest is summed up in the last row.
const MOST_ROWS: usize = 4096;
/// CPU time between two samples that shows that a process is active.
const ACTIVE_NS: u64 = 1_000_000;

/// A worker of a loader: the loader's rank and number there, and the worker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkerOf {
    pub(super) rank: usize,
    pub(super) loader: u64,
    pub(super) number: u64,
}

/// A descriptor of a data file.
#[derive(Clone, Copy, Debug)]
struct Open {
    next: u64,
    is_own: bool,
}

/// One process.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) row: ProcessRow,
    pub(super) parent: Option<ProcessIndex>,
    /// The rank that it is.
    pub(super) rank: Option<usize>,
    pub(super) worker: Option<WorkerOf>,
    pub(super) fetch: Option<OpenFetch>,
    pub(super) site: Option<u64>,
    pub(super) latest: ProcessSample,
    pub(super) faults: FaultOrder,
    pub(super) is_alive: bool,
    seen_all: IoCounts,
    seen_data: IoCounts,
    open: HashMap<i32, Open>,
    active_ns: u64,
    /// The rank it belongs to, found when there were so many ranks.
    found_rank: (usize, Option<usize>),
}

pub(super) fn memory(private: u64, shared: u64) -> MemoryChange {
    MemoryChange {
        private_dirty_first: private,
        private_dirty_last: private,
        shared_dirty_first: shared,
        shared_dirty_last: shared,
    }
}

impl Process {
    /// Updates descriptors and counts. Returns whether a read began where the one before ended, and where it began.
    pub(super) fn call(&mut self, event: &SeenCall) -> (bool, Option<u64>) {
        self.active(event.end_ns());
        let is_data = event.is_data();
        let offset = u64::try_from(event.offset).ok();
        let mut is_sequential = false;
        match event.op {
            Op::Open if is_data && event.result >= 0 => {
                self.close(event.result as i32);
                self.open.insert(event.result as i32, Open { next: 0, is_own: true });
                self.row.open_files_end += 1;
                self.row.open_files_most = self.row.open_files_most.max(self.row.open_files_end);
            }
            Op::Open if event.flags & CODE != 0 => self.row.code_opens += 1,
            Op::Close => self.close(event.fd),
            Op::Read | Op::BufferedRead if is_data => {
                let open = self.open.entry(event.fd).or_insert(Open { next: u64::MAX, is_own: false });
                is_sequential = offset.is_some_and(|offset| offset == open.next);
                open.next = offset.map_or(u64::MAX, |offset| offset + event.bytes());
            }
            _ => {}
        }
        add_call(&mut self.seen_all, event, is_sequential);
        if is_data {
            add_call(&mut self.seen_data, event, is_sequential);
        }
        (is_sequential, offset)
    }

    fn close(&mut self, fd: i32) {
        let is_own = self.open.remove(&fd).is_some_and(|open| open.is_own);
        self.row.open_files_end -= u64::from(is_own);
    }

    fn active(&mut self, at: u64) {
        self.row.idle_ns = self.row.idle_ns.max(Nanos(at.saturating_sub(self.active_ns)));
        self.active_ns = self.active_ns.max(at);
    }

    /// `inherited`: what it shared with its parent when it was forked. A worker can copy most of it before its memory
    /// is read for the first time.
    pub(super) fn sample(&mut self, at: u64, sample: &ProcessSample, inherited: Option<u64>) {
        if sample.cpu_ns >= self.latest.cpu_ns + ACTIVE_NS {
            self.active(at);
        }
        self.row.threads = self.row.threads.max(sample.threads);
        self.row.cpu_ns = Some(Nanos(sample.cpu_ns));
        self.row.run_queue_ns = Some(Nanos(sample.run_queue_ns));
        if let Some((private, shared)) = sample.memory {
            let memory = self.row.memory.get_or_insert_with(|| match inherited {
                Some(inherited) => memory(0, inherited.max(shared)),
                None => memory(private, shared),
            });
            (memory.private_dirty_last, memory.shared_dirty_last) = (private, shared);
        }
        // Mappings are read less often than the rest.
        let mapped = sample.mapped.or(self.latest.mapped);
        self.latest = ProcessSample { mapped, ..sample.clone() };
    }

    fn end(&mut self, end: &ProcessEnd) {
        self.is_alive = false;
        self.active(end.end_ns);
        self.row.end_ns = Nanos(end.end_ns);
        self.row.signal = end.signal;
        // Sources without exact totals of their own leave them empty.
        let has_totals = end.all != IoCounts::default();
        self.row.all = if has_totals { end.all } else { self.seen_all };
        self.row.data = if has_totals { end.data } else { self.seen_data };
        for (row, seen) in [(&mut self.row.all, self.seen_all), (&mut self.row.data, self.seen_data)] {
            row.sequential = seen.sequential;
            row.positioned = seen.positioned;
        }
        self.open = HashMap::new();
        self.fetch = None;
        self.faults = FaultOrder::default();
    }
}

/// A process, or what remains of one that ended.
#[derive(Debug)]
enum Kept {
    Whole(Box<Process>),
    /// Its parent.
    Summed(Option<ProcessIndex>),
}

impl Kept {
    fn parent(&self) -> Option<ProcessIndex> {
        match self {
            Kept::Whole(process) => process.parent,
            Kept::Summed(parent) => *parent,
        }
    }
}

/// All processes.
#[derive(Debug, Default)]
pub(super) struct Processes {
    all: Vec<Kept>,
    /// Those that are whole.
    whole: usize,
    /// The sum of the others.
    further: Option<Box<ProcessRow>>,
    /// The latest process with a number.
    by_pid: HashMap<u32, ProcessIndex>,
    ranks: usize,
}

impl Processes {
    pub(super) fn start(&mut self, start: &ProcessStart) {
        let known = self.by_pid.get(&start.parent).copied();
        let before = self.by_pid.insert(start.pid, self.all.len());
        // The same process with a new program has the same parent, and what it was before.
        let mut process =
            Process { parent: known, is_alive: true, active_ns: start.start_ns, ..Process::default() };
        let forked = !start.executed;
        let parent_threads = known.and_then(|parent| self.get(parent)).map(|parent| parent.latest.threads);
        process.row = ProcessRow {
            pid: start.pid,
            parent: start.parent,
            start_ns: Nanos(start.start_ns),
            end_ns: Nanos(start.start_ns),
            command: start.command.clone(),
            forked,
            parent_threads: parent_threads.filter(|_| forked),
            ..ProcessRow::default()
        };
        let replaced = before.and_then(|before| self.get_mut(before)).filter(|before| before.is_alive);
        if let Some(replaced) = replaced.filter(|_| start.executed) {
            process.parent = replaced.parent;
        }
        self.all.push(Kept::Whole(Box::new(process)));
        self.whole += 1;
    }

    pub(super) fn end(&mut self, index: ProcessIndex, end: &ProcessEnd) {
        let is_one_too_many = self.whole > MOST_ROWS;
        let Some(kept) = self.all.get_mut(index) else { return };
        let Kept::Whole(process) = kept else { return };
        process.end(end);
        if is_one_too_many && process.rank.is_none() {
            add_row(self.further.get_or_insert_default(), &process.row);
            *kept = Kept::Summed(process.parent);
            self.whole -= 1;
        }
    }

    pub(super) fn get(&self, index: ProcessIndex) -> Option<&Process> {
        match self.all.get(index)? {
            Kept::Whole(process) => Some(process),
            Kept::Summed(_) => None,
        }
    }

    pub(super) fn get_mut(&mut self, index: ProcessIndex) -> Option<&mut Process> {
        match self.all.get_mut(index)? {
            Kept::Whole(process) => Some(process),
            Kept::Summed(_) => None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn alive(&self) -> usize {
        self.whole().filter(|process| process.is_alive).count()
    }

    fn whole(&self) -> impl Iterator<Item = &Process> {
        (0..self.all.len()).filter_map(|index| self.get(index))
    }

    /// The process becomes a rank, if it is none.
    pub(super) fn make_rank(&mut self, index: ProcessIndex) -> usize {
        let next = self.ranks;
        let Some(process) = self.get_mut(index) else { return 0 };
        let rank = *process.rank.get_or_insert(next);
        self.ranks = self.ranks.max(rank + 1);
        rank
    }

    /// The rank that a process belongs to: the nearest of its ancestors that is one.
    pub(super) fn rank_of(&mut self, index: ProcessIndex) -> Option<usize> {
        let (when, found) = self.get(index)?.found_rank;
        if when == self.ranks {
            return found;
        }
        let mut at = Some(index);
        let mut rank = None;
        // Parents have smaller indices, so that this ends.
        while let Some((index, kept)) = at.and_then(|at| Some((at, self.all.get(at)?))) {
            rank = self.get(index).and_then(|process| process.rank);
            at = kept.parent().filter(|parent| rank.is_none() && *parent < index);
        }
        let ranks = self.ranks;
        self.get_mut(index)?.found_rank = (ranks, rank);
        rank
    }

    /// Memory that the parent of a forked process has written, as it was last read.
    pub(super) fn inherited(&self, index: ProcessIndex) -> Option<u64> {
        let process = self.get(index).filter(|process| process.row.forked)?;
        let memory = self.get(process.parent?)?.row.memory.as_ref()?;
        Some(memory.private_dirty_last + memory.shared_dirty_last)
    }

    /// The text of a call site: of the process or of an ancestor that it was forked from.
    pub(super) fn ancestors(&self, index: ProcessIndex) -> impl Iterator<Item = ProcessIndex> + '_ {
        std::iter::successors(Some(index), |at| {
            self.all.get(*at).and_then(Kept::parent).filter(|parent| parent < at)
        })
    }

    /// Bytes written into pipes while the rank has no batch yet.
    pub(super) fn early_pipe(&mut self, index: ProcessIndex, event: &SeenCall) {
        let is_pipe_write = event.op == Op::Write && event.kind == FdKind::Pipe as u8;
        if is_pipe_write && let Some(process) = self.get_mut(index) {
            process.row.pipe_bytes_early += event.bytes();
        }
    }

    /// The rows in order of start.
    pub(super) fn into_rows(mut self) -> Vec<ProcessRow> {
        for index in 0..self.all.len() {
            let rank = self.rank_of(index);
            if let Some(process) = self.get_mut(index) {
                process.row.rank = rank.map(|rank| rank as u64);
                process.row.worker = process.worker.map(|worker| worker.number);
            }
        }
        let whole = self.all.into_iter().filter_map(|kept| match kept {
            Kept::Whole(process) => Some(process.row),
            Kept::Summed(_) => None,
        });
        let mut rows: Vec<ProcessRow> = whole.collect();
        let more = rows.split_off(rows.len().min(MOST_ROWS));
        for row in more.iter().chain(self.further.as_deref()) {
            if let Some(last) = rows.last_mut() {
                last.command = "further processes".into();
                add_row(last, row);
            }
        }
        rows
    }
}

/// Adds what a process did to a row of several.
fn add_row(sum: &mut ProcessRow, row: &ProcessRow) {
    sum.all += row.all;
    sum.data += row.data;
    sum.code_opens += row.code_opens;
    sum.end_ns = sum.end_ns.max(row.end_ns);
}

/// The key of the file that an event concerns.
pub(super) fn file_of(event: &SeenCall) -> FileKey {
    (event.device, event.file)
}
