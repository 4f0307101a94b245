//! The second reading of a trace: every event goes to the process that made it. A rank and a reader of feedline are
//! threads; here they are processes, as those of the loaders that they stand for.

use std::collections::{BTreeMap, HashMap};

use super::record::{TraceRecord, whole};
use super::survey::{ActorKey, RankTrack, Survey, is_preparation, is_sample, is_save, is_wait};
use crate::event::{ProcessEnd, ProcessIndex, ProcessStart, SeenCall};
use crate::layout::{FdKind, Mark, Op, POSITIONED, WRITABLE};
use crate::trace::feed::{TraceFeed, mark};

/// A loader of a trace: framework 4, and workers that stay.
const LOADER: i64 = 4 << 24 | 1 << 16;
/// Where a file stands is not known.
const NOWHERE: i64 = -1;

/// An open file.
#[derive(Clone, Copy, Debug)]
struct OpenHandle {
    tid: u32,
    fd: i32,
    position: i64,
    flags: u16,
}

/// Samples of one step that a process loads: what the loader of a framework calls a fetch.
#[derive(Clone, Copy, Debug)]
struct StepFetch {
    step: Option<(i64, i64)>,
    tid: u32,
    start_ns: u64,
    end_ns: u64,
    samples: i64,
}

/// A process of the trace.
#[derive(Debug)]
struct Actor {
    index: ProcessIndex,
    last_ns: u64,
    open: HashMap<u64, Vec<OpenHandle>>,
    next_fd: i32,
    fetch: Option<StepFetch>,
}

impl Actor {
    /// A sample was loaded or prepared. Those of one step are one fetch.
    fn loads(&mut self, record: &TraceRecord<'_>, (start_ns, end_ns): (u64, u64), feed: &mut TraceFeed<'_>) {
        let step = whole(&record.args.epoch).zip(whole(&record.args.step));
        let samples = i64::from(is_sample(record));
        match &mut self.fetch {
            Some(fetch) if fetch.step == step && (step.is_some() || samples == 0) => {
                fetch.end_ns = fetch.end_ns.max(end_ns);
                fetch.samples += samples;
            }
            _ => {
                self.end_fetch(feed);
                self.fetch = Some(StepFetch { step, tid: record.tid, start_ns, end_ns, samples });
            }
        }
    }

    fn end_fetch(&mut self, feed: &mut TraceFeed<'_>) {
        let Some(StepFetch { tid, start_ns, end_ns, samples, .. }) = self.fetch.take() else { return };
        feed.event(self.index, mark(Mark::FetchBegin, tid, start_ns, [samples, 0, 0]));
        feed.event(self.index, mark(Mark::FetchEnd, tid, end_ns, [samples, 0, 0]));
    }

    /// The handle of a file that this thread opened, or any other thread.
    fn handle(&mut self, file: u64, tid: u32) -> &mut OpenHandle {
        let next_fd = &mut self.next_fd;
        let handles = self.open.entry(file).or_default();
        let own = handles.iter().rposition(|handle| handle.tid == tid);
        let at = own.or_else(|| handles.len().checked_sub(1)).unwrap_or_else(|| {
            *next_fd += 1;
            handles.push(OpenHandle { tid, fd: *next_fd, position: NOWHERE, flags: 0 });
            0
        });
        &mut handles[at]
    }

    fn opened(&mut self, file: u64, tid: u32, flags: u16) -> i32 {
        self.next_fd += 1;
        let handle = OpenHandle { tid, fd: self.next_fd, position: 0, flags };
        self.open.entry(file).or_default().push(handle);
        self.next_fd
    }

    /// A call on an open file: which handle, and where it begins.
    fn use_handle(&mut self, call: &mut SeenCall, record: &TraceRecord<'_>) {
        let handle = self.handle(call.file, record.tid);
        call.fd = handle.fd;
        call.flags |= handle.flags;
        let given = whole(&record.args.offset);
        match (call.op, given) {
            (Op::Seek, _) => {
                // `fseek` returns 0 and not the position.
                let is_stream = record.name.starts_with('f');
                let at = if is_stream { given } else { Some(call.result) };
                handle.position = at.filter(|at| *at >= 0).unwrap_or(NOWHERE);
                call.offset = handle.position;
                call.asked = whole(&record.args.whence).map_or(0, i64::unsigned_abs);
            }
            (Op::Read | Op::BufferedRead | Op::Write, Some(at)) => {
                call.flags |= if record.name.starts_with('p') { POSITIONED } else { 0 };
                call.offset = at;
            }
            (Op::Read | Op::BufferedRead | Op::Write, None) => {
                call.offset = handle.position;
                handle.position += if handle.position < 0 { 0 } else { call.result.max(0) };
            }
            _ => {}
        }
        if call.op == Op::Close {
            self.closed(call.file, call.fd);
        }
    }

    fn closed(&mut self, file: u64, fd: i32) {
        if let Some(handles) = self.open.get_mut(&file) {
            handles.retain(|handle| handle.fd != fd);
            if handles.is_empty() {
                self.open.remove(&file);
            }
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Actors<'a> {
    survey: &'a Survey,
    origin: f64,
    actors: BTreeMap<ActorKey, Actor>,
}

/// The operation of a call by its name.
fn op_of(name: &str) -> Option<Op> {
    let name = name.trim_start_matches("__").trim_end_matches("64");
    Some(match name {
        "open" | "openat" | "creat" | "fopen" => Op::Open,
        "read" | "pread" | "readv" | "preadv" => Op::Read,
        "fread" | "fgets" => Op::BufferedRead,
        "write" | "pwrite" | "writev" | "pwritev" | "fwrite" => Op::Write,
        "close" | "fclose" => Op::Close,
        "lseek" | "fseek" | "fseeko" => Op::Seek,
        "stat" | "lstat" | "fstat" | "xstat" | "lxstat" | "fxstat" | "fstatat" | "fxstatat" | "statx"
        | "access" => Op::Stat,
        "opendir" => Op::List,
        "mmap" => Op::Map,
        "fsync" | "fdatasync" => Op::Sync,
        "sendfile" => Op::Move,
        _ => return None,
    })
}

/// Bytes that a call moved, or what it returned.
fn result_of(record: &TraceRecord<'_>, op: Op) -> i64 {
    let args = &record.args;
    let returned = whole(&args.ret);
    match (op, whole(&args.bytes)) {
        (Op::Read | Op::Write, Some(bytes)) => bytes,
        // Elements, not bytes.
        (Op::BufferedRead | Op::Write, _) if record.name.starts_with('f') => {
            returned.unwrap_or(0).saturating_mul(whole(&args.size).unwrap_or(1))
        }
        _ => returned.unwrap_or(0),
    }
}

impl<'a> Actors<'a> {
    /// Starts the processes that train, and marks their epochs.
    pub(super) fn new(survey: &'a Survey, feed: &mut TraceFeed<'_>) -> Actors<'a> {
        let mut actors = Actors { survey, origin: survey.origin.unwrap_or(0.0), actors: BTreeMap::new() };
        let is_rank = |track: &RankTrack| track.reader.is_none();
        for (key, track) in &survey.tracks {
            if is_rank(track) {
                actors.actor(*key, 0, feed);
            }
        }
        for (key, track) in survey.tracks.iter().filter(|(_, track)| is_rank(track)) {
            let readers: Vec<(ActorKey, u32)> = survey
                .tracks
                .iter()
                .filter(|(other, of)| other.0 == key.0 && of.rank == track.rank)
                .filter_map(|(other, of)| Some((*other, of.reader?)))
                .collect();
            actors.train(*key, key.0, &readers, feed);
        }
        let pids: Vec<u32> = survey.processes.keys().copied().collect();
        let is_feedline = |pid: u32| survey.tracks.keys().any(|key| key.0 == pid);
        for pid in pids.iter().copied().filter(|pid| !is_feedline(*pid)) {
            let is_rank = survey.processes.get(&pid).is_some_and(|process| !process.trainings().is_empty());
            if !is_rank {
                continue;
            }
            let works = |other: &u32| {
                let loads = survey.processes.get(other).is_some_and(|process| process.loads);
                *other != pid && loads && survey.rank_of(*other) == Some(pid)
            };
            let workers = pids.iter().copied().filter(works).zip(0..).map(|(pid, number)| ((pid, 0), number));
            actors.train((pid, 0), pid, &workers.collect::<Vec<_>>(), feed);
        }
        actors
    }

    /// Marks the epochs of a rank, and its workers in the first one.
    fn train(&mut self, key: ActorKey, pid: u32, workers: &[(ActorKey, u32)], feed: &mut TraceFeed<'_>) {
        let rank = self.actor(key, 0, feed);
        let Some(process) = self.survey.processes.get(&pid) else { return };
        let ns = |at: f64| ((at - self.origin).max(0.0) * 1e3).round() as u64;
        let spans: Vec<(u64, u64)> =
            process.trainings().iter().map(|(start, end)| (ns(*start), ns(*end))).collect();
        let about = LOADER | workers.len() as i64;
        for (number, (start, end)) in spans.iter().copied().enumerate() {
            if number == 0 {
                feed.event(rank, mark(Mark::Loader, key.1, start, [0, about, 0]));
            }
            feed.event(rank, mark(Mark::EpochBegin, key.1, start, [0, number as i64, -1]));
            if number == 0 {
                for (worker, name) in workers {
                    let worker = self.actor(*worker, self.pid(key), feed);
                    let numbers = [i64::from(*name), workers.len() as i64, 0];
                    feed.event(worker, mark(Mark::Worker, key.1, start, numbers));
                }
            }
            feed.event(rank, mark(Mark::EpochEnd, key.1, end, [0, number as i64, 0]));
        }
    }

    /// The number of a process in the result.
    fn pid(&self, (pid, track): ActorKey) -> u32 {
        if self.survey.tracks.contains_key(&(pid, track)) { pid << 16 | track } else { pid }
    }

    /// Who an event belongs to.
    fn key(&self, record: &TraceRecord<'_>) -> ActorKey {
        let key = (record.pid, record.tid);
        if self.survey.tracks.contains_key(&key) { key } else { (record.pid, 0) }
    }

    fn actor(&mut self, key: ActorKey, parent: u32, feed: &mut TraceFeed<'_>) -> ProcessIndex {
        if let Some(actor) = self.actors.get(&key) {
            return actor.index;
        }
        let known = self.survey.processes.get(&key.0);
        let of_trace = known.map_or(0, |process| process.parent);
        // Parents come first, so that the aggregation knows them.
        let is_other = of_trace != key.0 && !self.actors.contains_key(&(of_trace, 0));
        if is_other && self.survey.processes.contains_key(&of_trace) {
            self.actor((of_trace, 0), 0, feed);
        }
        let command = match self.survey.tracks.get(&key) {
            Some(RankTrack { rank, reader: None }) => format!("rank {rank}"),
            Some(RankTrack { rank, reader: Some(reader) }) => format!("rank {rank} reader {reader}"),
            None => known.map(|process| process.command.clone()).unwrap_or_default(),
        };
        let parent = if parent != 0 { parent } else { of_trace };
        let is_track = self.survey.tracks.contains_key(&key);
        let executed = parent == 0 || !is_track && !self.survey.processes.contains_key(&parent);
        let start = ProcessStart { pid: self.pid(key), parent, executed, command, ..ProcessStart::default() };
        let index = feed.process(&start);
        self.actors.insert(key, Actor { index, last_ns: 0, open: HashMap::new(), next_fd: 2, fetch: None });
        index
    }

    pub(super) fn add(&mut self, record: &TraceRecord<'_>, feed: &mut TraceFeed<'_>) {
        let key = self.key(record);
        let (start, duration) = record.span(self.origin);
        let end = start + duration;
        if record.is_call() {
            self.actor(key, 0, feed);
            self.call(key, record, feed);
        } else if is_wait(record) {
            let index = self.actor(key, 0, feed);
            feed.event(index, mark(Mark::WaitBegin, record.tid, start, [0, 0, -1]));
            feed.event(index, mark(Mark::WaitEnd, record.tid, end, [0, 0, -1]));
        } else if is_sample(record) || is_preparation(record) {
            self.actor(key, 0, feed);
            if let Some(actor) = self.actors.get_mut(&key) {
                actor.loads(record, (start, end), feed);
            }
        } else if is_save(record) {
            // The checkpoints of feedline have a track of their own.
            let rank = self.survey.tracks.iter().find(|(at, track)| at.0 == key.0 && track.reader.is_none());
            let index = self.actor(rank.map_or(key, |(rank, _)| *rank), 0, feed);
            feed.event(index, mark(Mark::Checkpoint, record.tid, start, [1, 0, 0]));
            feed.event(index, mark(Mark::Checkpoint, record.tid, end, [0, 0, 0]));
        }
        if let Some(actor) = self.actors.get_mut(&key) {
            actor.last_ns = actor.last_ns.max(end);
        }
    }

    /// A call of the C library.
    fn call(&mut self, key: ActorKey, record: &TraceRecord<'_>, feed: &mut TraceFeed<'_>) {
        let Some(op) = op_of(&record.name) else { return };
        let Some(actor) = self.actors.get_mut(&key) else { return };
        let file = record.file().unwrap_or(0);
        let (kind, flags) = match self.survey.classes.get(&file) {
            Some((_, flags)) if op == Op::List => (FdKind::Folder, *flags),
            Some(class) => *class,
            None if file == 0 => (FdKind::Unknown, 0),
            None => (FdKind::Regular, 0),
        };
        let (start_ns, duration_ns) = record.span(self.origin);
        let mut call = SeenCall {
            op,
            kind: kind as u8,
            flags,
            tid: record.tid,
            fd: -1,
            start_ns,
            duration_ns,
            file,
            device: 0,
            offset: NOWHERE,
            asked: whole(&record.args.count).and_then(|count| u64::try_from(count).ok()).unwrap_or(0),
            result: result_of(record, op),
        };
        match op {
            // DFTracer does not say which descriptor an open returned.
            Op::Open if call.result >= 0 => {
                let writes = whole(&record.args.flags).is_some_and(|flags| flags & 3 != 0);
                call.flags |= if writes { WRITABLE } else { 0 };
                call.fd = actor.opened(file, record.tid, call.flags);
                (call.result, call.offset) = (call.fd.into(), 0);
            }
            Op::Open | Op::Stat | Op::Map | Op::Move | Op::List => {}
            _ => actor.use_handle(&mut call, record),
        }
        feed.event(actor.index, call);
    }

    /// Ends all processes. Returns the end of the trace.
    pub(super) fn finish(mut self, feed: &mut TraceFeed<'_>) -> u64 {
        self.actors.values_mut().for_each(|actor| actor.end_fetch(feed));
        feed.flush();
        let end = feed.passed_ns();
        for actor in self.actors.into_values() {
            feed.end(actor.index, &ProcessEnd { end_ns: actor.last_ns, ..ProcessEnd::default() });
        }
        end
    }
}
