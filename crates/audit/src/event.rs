//! What the sources of an audit (rings of a running job, traces) hand to the aggregation: one stream of events of
//! all processes in order of time, and samples of the kernel's own counts in between.

use model::observed::IoCounts;

use crate::layout::{CODE, FdKind, Op, TextKind};

/// The number of a process in the order of [`EventSink::process`]. An image: `exec` begins a new one.
pub type ProcessIndex = usize;

/// Receives everything that is observed of a job. Times are nanoseconds from the start of the job.
///
/// A source calls it in order of time: events by their end (`start_ns` + `duration_ns`), texts where they were sent,
/// samples at their time. [`EventSink::process`] comes before anything else of a process.
pub trait EventSink {
    /// A process starts; its index is the number of processes before it.
    fn process(&mut self, start: &ProcessStart);
    fn event(&mut self, process: ProcessIndex, event: &SeenCall);
    /// `id` and `device`: what the text belongs to, as [`TextKind`] says.
    fn text(&mut self, process: ProcessIndex, kind: TextKind, id: u64, device: u32, text: &str);
    fn sample(&mut self, sample: &Sample);
    fn fault(&mut self, process: ProcessIndex, fault: &PageFault);
    /// Page faults are observed, and so much of them was missed since the last call.
    fn faults_missed(&mut self, missed: &MissedFaults);
    /// A process ended, and all of its events were delivered.
    fn end(&mut self, process: ProcessIndex, end: &ProcessEnd);
    /// How many leading zero bits the hash of a file must have for its details to be kept.
    fn sample_bits(&self) -> u32;
}

/// The start of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessStart {
    pub pid: u32,
    pub parent: u32,
    pub start_ns: u64,
    /// A new program; otherwise a fork of its parent.
    pub executed: bool,
    pub command: String,
    /// RANK and WORLD_SIZE, or their equivalents of other launchers.
    pub rank: Option<u64>,
    pub ranks: Option<u64>,
}

/// The end of a process, with totals that are exact whatever happened to events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessEnd {
    pub end_ns: u64,
    /// All calls, and those on data files.
    pub all: IoCounts,
    pub data: IoCounts,
    pub events_dropped: u64,
    pub untracked_calls: u64,
    /// Whether it set up an io_uring.
    pub uring: bool,
    /// Ended by this signal, if known.
    pub signal: Option<i32>,
}

/// One call. Fields are those of [`crate::layout::Event`]; see there for what each operation puts in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenCall {
    pub op: Op,
    /// The kind of descriptor; of [`Op::Mark`] the mark.
    pub kind: u8,
    pub flags: u16,
    pub tid: u32,
    pub fd: i32,
    pub start_ns: u64,
    pub duration_ns: u64,
    pub file: u64,
    pub device: u32,
    pub offset: i64,
    pub asked: u64,
    pub result: i64,
}

impl SeenCall {
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }

    /// Whether it concerns a regular file that is not program code.
    pub fn is_data(&self) -> bool {
        self.kind == FdKind::Regular as u8 && self.flags & CODE == 0 && self.op != Op::Mark
    }

    /// Bytes that it moved.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.result).unwrap_or(0)
    }
}

/// A page fault in a mapping of a data file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageFault {
    pub at_ns: u64,
    pub tid: u32,
    pub file: u64,
    pub device: u32,
    /// Where the page begins in the file.
    pub offset: u64,
    /// It waited for storage.
    pub is_major: bool,
}

/// Page faults that were not observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissedFaults {
    /// Faults of any kind that found no room.
    pub lost: u64,
    /// Time in which there were mappings, and only major faults were observed.
    pub blind_ns: u64,
}

/// Counts of the kernel, at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub at_ns: u64,
    /// Processes that exist.
    pub processes: Vec<ProcessSample>,
    /// `read_bytes` of all processes of the job, from its start on; also of those that ended.
    pub issued_bytes: Option<u64>,
    /// Bytes that each device delivered to all programs, from the start of the job on: `major << 20 | minor`.
    pub devices: Vec<(u32, u64)>,
    pub shm_used_bytes: Option<u64>,
    pub refault_bytes: Option<u64>,
}

/// Counts of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessSample {
    pub process: ProcessIndex,
    pub threads: u64,
    pub cpu_ns: u64,
    pub run_queue_ns: u64,
    /// `Private_Dirty` and `Shared_Dirty` of `smaps_rollup`, at most once per second.
    pub memory: Option<(u64, u64)>,
    /// Of mappings of data files: bytes mapped and bytes resident, at most once per second.
    pub mapped: Option<(u64, u64)>,
}
