//! Hands events of a trace to the aggregation in order of time, with names of files. Traces have no inode numbers:
//! a file is what its path, or the trace's own number for it, is.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::event::{EventSink, ProcessEnd, ProcessIndex, ProcessStart, SeenCall};
use crate::file_class::{code_flag, kind};
use crate::layout::{FdKind, Mark, Op, TextKind, is_kept};

/// Files whose names were sent lately, in places by number.
const NAMED: usize = 1 << 16;

/// The number of a file with this name: FNV-1a, and never 0.
pub(super) fn file_number(name: &[u8]) -> u64 {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    name.iter().fold(0xcbf2_9ce4_8422_2325, hash).max(1)
}

/// Kind and flags of a file that is known by its path only.
pub(super) fn class_of(path: &[u8]) -> (FdKind, u16) {
    let is_shared_memory = path.starts_with(b"/dev/shm/");
    let mode = match path {
        _ if path.starts_with(b"pipe:") => libc::S_IFIFO,
        _ if path.starts_with(b"/dev/") && !is_shared_memory => libc::S_IFCHR,
        _ if path.starts_with(b"anon_inode:") => libc::S_IFCHR,
        // `socket:[4711]`, and with -yy `TCP:[127.0.0.1:80]`.
        _ if !path.starts_with(b"/") && path.ends_with(b"]") && path.contains(&b'[') => libc::S_IFSOCK,
        _ => libc::S_IFREG,
    };
    class_of_mode(mode, path)
}

/// The same with its mode.
pub(super) fn class_of_mode(mode: u32, path: &[u8]) -> (FdKind, u16) {
    let kind = kind(mode, path);
    let is_file = matches!(kind, FdKind::Regular | FdKind::Folder);
    (kind, if is_file { code_flag(path) } else { 0 })
}

/// A mark, as the marks of Python programs.
pub(super) fn mark(mark: Mark, tid: u32, at_ns: u64, [a, b, c]: [i64; 3]) -> SeenCall {
    SeenCall {
        op: Op::Mark,
        kind: mark as u8,
        flags: 0,
        tid,
        fd: -1,
        start_ns: at_ns,
        duration_ns: 0,
        file: a as u64,
        device: 0,
        offset: b,
        asked: c as u64,
        result: 0,
    }
}

/// An event that waits for its turn.
#[derive(Debug, PartialEq, Eq)]
struct FedEvent {
    at_ns: u64,
    number: u64,
    process: ProcessIndex,
    call: SeenCall,
}

impl Ord for FedEvent {
    fn cmp(&self, other: &FedEvent) -> std::cmp::Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

impl PartialOrd for FedEvent {
    fn partial_cmp(&self, other: &FedEvent) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The way into the aggregation.
pub(super) struct TraceFeed<'a> {
    sink: &'a mut dyn EventSink,
    /// Events that are held to be ordered.
    window: usize,
    waiting: BinaryHeap<Reverse<FedEvent>>,
    number: u64,
    processes: ProcessIndex,
    passed_ns: u64,
    named: Vec<u64>,
    /// Bytes of reads and of data that was moved.
    pub(super) recorded_bytes: u64,
}

impl<'a> TraceFeed<'a> {
    pub(super) fn new(sink: &'a mut dyn EventSink, window: usize) -> TraceFeed<'a> {
        TraceFeed {
            sink,
            window,
            waiting: BinaryHeap::new(),
            number: 0,
            processes: 0,
            passed_ns: 0,
            named: vec![0; NAMED],
            recorded_bytes: 0,
        }
    }

    /// The latest time that was passed on.
    pub(super) fn passed_ns(&self) -> u64 {
        self.passed_ns
    }

    pub(super) fn process(&mut self, start: &ProcessStart) -> ProcessIndex {
        self.sink.process(start);
        self.processes += 1;
        self.processes - 1
    }

    /// The name of a data file.
    pub(super) fn name(&mut self, file: u64, path: &str) {
        if !is_kept(file, self.sink.sample_bits()) {
            return;
        }
        if let Some(place) = self.named.get_mut((file % NAMED as u64) as usize)
            && *place != file
        {
            *place = file;
            self.sink.text(0, TextKind::Path, file, 0, path);
        }
    }

    /// An event that takes its turn when it ends.
    pub(super) fn event(&mut self, process: ProcessIndex, call: SeenCall) {
        if matches!(call.op, Op::Read | Op::BufferedRead | Op::Move) {
            self.recorded_bytes = self.recorded_bytes.saturating_add(call.bytes());
        }
        self.number += 1;
        let event = FedEvent { at_ns: call.end_ns(), number: self.number, process, call };
        self.waiting.push(Reverse(event));
        while self.waiting.len() > self.window {
            self.pass();
        }
    }

    fn pass(&mut self) {
        let Some(Reverse(FedEvent { at_ns, process, mut call, .. })) = self.waiting.pop() else { return };
        if call.op != Op::Mark {
            // What comes too late is passed on as if it had ended now.
            call.start_ns += self.passed_ns.saturating_sub(at_ns);
        }
        self.passed_ns = self.passed_ns.max(at_ns);
        self.sink.event(process, &call);
    }

    /// The end of a process, after everything that waits.
    pub(super) fn end(&mut self, process: ProcessIndex, end: &ProcessEnd) {
        self.flush();
        self.passed_ns = self.passed_ns.max(end.end_ns);
        self.sink.end(process, end);
    }

    pub(super) fn flush(&mut self) {
        while !self.waiting.is_empty() {
            self.pass();
        }
    }
}
