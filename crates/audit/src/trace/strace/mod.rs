//! Reads the output of strace: one file of `strace -f`, or a file for each thread of `strace -ff`, whose lines are
//! merged by time.

mod calls;
mod children;
mod line;
mod table;
mod time;

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::ffi::OsString;

use model::observed::JobExit;

use self::line::{CallLine, LineBody, name_of, parse_call, parse_line};
use self::table::{Descriptor, TracedProcess};
use self::time::LineClock;
use super::feed::TraceFeed;
use super::input::{InputLines, TraceFiles, pid_of};
use super::{StrangeLines, TraceFacts, TraceInputError};
use crate::event::{EventSink, ProcessEnd};

/// Whether the first lines of a file are from strace.
pub(super) fn is_strace(start: &[u8]) -> bool {
    let says_something = |line: &[u8]| {
        let line = std::str::from_utf8(line).ok().and_then(parse_line);
        line.is_some_and(|line| line.body != LineBody::Ignored || line.tid.is_some())
    };
    start.split(|byte| *byte == b'\n').any(says_something)
}

/// A line of one of the files.
#[derive(Debug)]
struct QueuedLine {
    at_ns: u64,
    /// When it is its turn among the files.
    turn_ns: u64,
    text: String,
}

/// One file.
struct StraceFile {
    lines: InputLines,
    clock: LineClock,
    /// The thread of a file of `strace -ff`.
    tid: Option<u32>,
    next: Option<QueuedLine>,
}

impl StraceFile {
    /// Takes the next line out of the file.
    fn fill(&mut self, strange: &mut StrangeLines) -> Result<(), TraceInputError> {
        self.next = None;
        while let Some(bytes) = self.lines.next()? {
            let text = std::str::from_utf8(bytes).ok();
            let Some((text, line)) = text.and_then(|text| Some((text, parse_line(text)?))) else {
                if bytes.iter().any(|byte| !byte.is_ascii_whitespace()) && self.lines.cut.is_none() {
                    strange.add(&self.lines.name, self.lines.number);
                }
                continue;
            };
            let at_ns = self.clock.at(line.time);
            // A child can run before the call that made it returns.
            let turn_ns = match &line.body {
                LineBody::Call(call) if !children::makes_child(call.name) => {
                    at_ns + call.duration_ns.unwrap_or(0)
                }
                _ => at_ns,
            };
            self.next = Some(QueuedLine { at_ns, turn_ns, text: text.to_owned() });
            break;
        }
        Ok(())
    }
}

/// Reads all files.
pub(super) fn read(files: &TraceFiles, sink: &mut dyn EventSink) -> Result<TraceFacts, TraceInputError> {
    let mut reader = StraceReader::new(TraceFeed::new(sink, 0));
    let count = files.files.len();
    let mut inputs = Vec::new();
    let mut turns = BinaryHeap::new();
    for (number, path) in files.files.iter().enumerate() {
        let lines = InputLines::open(path, count)?;
        let mut file = StraceFile { lines, clock: LineClock::default(), tid: pid_of(path), next: None };
        file.fill(&mut reader.strange)?;
        turns.extend(file.next.as_ref().map(|line| Reverse((line.turn_ns, number))));
        inputs.push(file);
    }
    while let Some(Reverse((_, number))) = turns.pop() {
        let Some(file) = inputs.get_mut(number) else { continue };
        let Some(line) = file.next.take() else { continue };
        let is_known = reader.line(&line, file.tid);
        if !is_known {
            reader.strange.add(&file.lines.name, file.lines.number);
        }
        file.fill(&mut reader.strange)?;
        turns.extend(file.next.as_ref().map(|line| Reverse((line.turn_ns, number))));
    }
    if reader.calls == 0 {
        let name = inputs.first().map(|file| file.lines.name.clone()).unwrap_or_default();
        return Err(TraceInputError::Foreign(name, 1, "no call of strace follows".to_owned()));
    }
    Ok(reader.finish(&inputs))
}

/// A call that has begun.
#[derive(Debug)]
struct BegunCall {
    at_ns: u64,
    text: String,
    /// The child that was seen before the call returned.
    child: Option<u32>,
    /// What a `close` closes: another thread can be given its number before the call returns.
    closing: Option<Descriptor>,
}

/// A call that has returned.
#[derive(Clone, Copy)]
struct ReturnedCall<'a> {
    call: &'a CallLine<'a>,
    tid: u32,
    pid: u32,
    start_ns: u64,
    /// The child that is already known.
    child: Option<u32>,
    /// What a `close` closes, if it is already known.
    closing: Option<&'a Descriptor>,
}

impl ReturnedCall<'_> {
    fn end_ns(&self) -> u64 {
        self.start_ns + self.call.duration_ns.unwrap_or(0)
    }
}

/// The state of the job while its trace is read.
struct StraceReader<'a> {
    feed: TraceFeed<'a>,
    strange: StrangeLines,
    /// The process of each thread, and all processes that live.
    threads: HashMap<u32, u32>,
    processes: BTreeMap<u32, TracedProcess>,
    begun: BTreeMap<u32, BegunCall>,
    /// The first process, and how it ended.
    first: Option<u32>,
    command: Vec<OsString>,
    exit: JobExit,
    origin_ns: Option<u64>,
    last_ns: u64,
    calls: u64,
    has_durations: bool,
    /// Processes whose parent is not known.
    strays: u64,
    unknown_files: u64,
    /// Folders, by number: a call that opens one need not say so.
    folders: HashSet<u64>,
}

impl<'a> StraceReader<'a> {
    fn new(feed: TraceFeed<'a>) -> StraceReader<'a> {
        StraceReader {
            feed,
            strange: StrangeLines::default(),
            threads: HashMap::new(),
            processes: BTreeMap::new(),
            begun: BTreeMap::new(),
            first: None,
            command: Vec::new(),
            exit: JobExit::default(),
            origin_ns: None,
            last_ns: 0,
            calls: 0,
            has_durations: false,
            strays: 0,
            unknown_files: 0,
            folders: HashSet::new(),
        }
    }

    /// One line. False: it does not fit those before.
    fn line(&mut self, queued: &QueuedLine, tid: Option<u32>) -> bool {
        let Some(line) = parse_line(&queued.text) else { return false };
        if line.body == LineBody::Ignored && line.tid.is_none() {
            return true;
        }
        let origin = *self.origin_ns.get_or_insert(queued.at_ns);
        let at_ns = queued.at_ns.saturating_sub(origin);
        self.last_ns = self.last_ns.max(queued.turn_ns.saturating_sub(origin));
        let tid = line.tid.or(tid).unwrap_or_else(|| self.sole_thread());
        let pid = self.process_of(tid);
        match line.body {
            LineBody::Call(call) => {
                self.returned(ReturnedCall {
                    call: &call,
                    tid,
                    pid,
                    start_ns: at_ns,
                    child: None,
                    closing: None,
                });
            }
            LineBody::Unfinished(text) => {
                let closing = self.begun_close(pid, text);
                self.begun.insert(tid, BegunCall { at_ns, text: text.to_owned(), child: None, closing });
            }
            LineBody::Resumed(rest) => {
                let Some(begun) = self.begun.remove(&tid) else { return false };
                let text = begun.text + rest;
                let Some(call) = parse_call(&text) else { return false };
                let (start_ns, child, closing) = (begun.at_ns, begun.child, begun.closing.as_ref());
                self.returned(ReturnedCall { call: &call, tid, pid, start_ns, child, closing });
            }
            LineBody::Exited(code) => self.gone(tid, at_ns, JobExit { code: Some(code), signal: None }),
            LineBody::Killed(name) => {
                self.gone(tid, at_ns, JobExit { code: None, signal: children::signal(name) });
            }
            LineBody::Superseded => self.gone(tid, at_ns, JobExit::default()),
            LineBody::Ignored => {}
        }
        true
    }

    fn returned(&mut self, done: ReturnedCall<'_>) {
        self.calls += 1;
        self.has_durations |= done.call.duration_ns.is_some();
        self.last_ns = self.last_ns.max(done.end_ns());
        if children::makes_child(done.call.name) {
            self.made_child(&done);
        } else if matches!(done.call.name, "execve" | "execveat") {
            self.executed(&done);
        } else {
            self.call(&done);
        }
    }

    /// The thread of lines that name none: strace leaves the number out as long as there is only one.
    fn sole_thread(&self) -> u32 {
        let mut threads = self.threads.keys();
        match (threads.next(), threads.next()) {
            (Some(only), None) => *only,
            _ => self.first.unwrap_or(0),
        }
    }

    fn finish(mut self, files: &[StraceFile]) -> TraceFacts {
        // Calls that never returned, such as reads of a process that was killed.
        let unfinished = self.begun.values().filter(|begun| name_of(&begun.text).is_some()).count();
        let ends: Vec<u32> = self.processes.keys().copied().collect();
        for pid in ends {
            self.end_process(pid, self.last_ns, None);
        }
        let mut notes: Vec<String> = files.iter().filter_map(|file| file.lines.cut.clone()).collect();
        notes.extend(self.strange.note());
        let is_timed = files.iter().any(|file| file.clock.is_timed);
        if !is_timed {
            notes.push("The trace has no times (strace -ttt): only the order of calls is known.".to_owned());
        } else if files.len() > 1 && files.iter().any(|file| file.clock.is_relative) {
            let note =
                "Times are differences (strace -r): the order of calls of different threads is not known.";
            notes.push(note.to_owned());
        }
        if !self.has_durations {
            notes
                .push("The trace has no durations (strace -T): how long calls took is not known.".to_owned());
        }
        if self.unknown_files > 0 {
            let count = self.unknown_files;
            notes.push(format!(
                "{count} calls use descriptors whose files are not known: strace -y names them."
            ));
        }
        if self.strays > 0 {
            notes.push(format!("The parents of {} processes are not known.", self.strays));
        }
        if unfinished > 0 {
            notes.push(format!("{unfinished} calls had not returned when the trace ended."));
        }
        notes.push("Sizes of files are known as far as they were read.".to_owned());
        TraceFacts {
            command: self.command,
            exit: self.exit,
            wall_ns: if is_timed { self.last_ns.max(self.feed.passed_ns()) } else { 0 },
            untimed: !self.has_durations,
            recorded_bytes: self.feed.recorded_bytes,
            notes,
        }
    }

    /// A process ends; its row is complete.
    fn end_process(&mut self, pid: u32, at_ns: u64, signal: Option<i32>) {
        let Some(process) = self.processes.remove(&pid) else { return };
        self.threads.retain(|_, of| *of != pid);
        self.end_image(&process, at_ns, signal);
    }

    fn end_image(&mut self, process: &TracedProcess, at_ns: u64, signal: Option<i32>) {
        self.unknown_files += process.untracked;
        let Some(index) = process.index else { return };
        let end = ProcessEnd {
            end_ns: at_ns,
            untracked_calls: 0,
            uring: process.has_uring,
            signal,
            ..ProcessEnd::default()
        };
        self.feed.end(index, &end);
    }
}
