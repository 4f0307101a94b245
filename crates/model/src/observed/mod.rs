//! What `feedline audit` observed of a job of another program: processes, loaders, epochs, workers and files, as
//! counts and times. A part of the ledger. Rules ([`crate::ledger`] has the figures that runs have, too) are judged
//! from it, and workloads are inferred from it.
//!
//! What is not known is `None` or empty, never 0. Figures of files come from a uniform sample of the files, and say
//! so.

mod finding;
mod io;
mod spread;

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

pub use finding::{Certainty, EpochTime, Fault, FaultOutcome, Findings, RuleAnswer, Severity};
pub use io::{Calls, IoCounts};
pub use spread::ValueCounts;

use crate::units::Nanos;

/// Everything that was observed of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// How it was observed.
    pub source: Source,
    /// The command, as typed, with secrets hidden.
    pub command: Vec<String>,
    pub exit: JobExit,
    /// From the start of the job to its end.
    pub wall_ns: Nanos,
    pub host: JobHost,
    pub coverage: Visibility,
    pub overhead: Option<Overhead>,
    /// Processes of the job in order of their start; the rest is summed up in the last one.
    pub processes: Vec<ProcessRow>,
    /// Data loaders, of each rank.
    pub loaders: Vec<LoaderRow>,
    /// Epochs of each loader, in order of their start.
    pub epochs: Vec<EpochRow>,
    /// Operations outside of epochs, by rank: before the first epoch and between them.
    pub outside: Vec<OutsideRow>,
    pub files: FileFigures,
    /// The storage that data files are on, largest first.
    pub storage: Vec<StorageRow>,
    /// Places in Python code that open data files, most opens first.
    pub sites: Vec<SiteRow>,
}

/// How a job was observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// By the preload library and /proc.
    #[default]
    Preload,
    /// From the output of strace.
    Strace,
    /// From a trace of DFTracer or feedline.
    Trace,
}

/// How the job ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobExit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

/// The host, as far as rules need it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobHost {
    pub name: String,
    pub cores: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// The limit of the control group, if it is lower.
    pub memory_limit_bytes: Option<u64>,
    /// Size of /dev/shm, and the most that was used while the job ran.
    pub shm_bytes: Option<u64>,
    pub shm_used_bytes: Option<u64>,
    /// Soft limit of open files of a process.
    pub open_files_limit: Option<u64>,
    /// Pages that had to be read again soon after they were evicted (`workingset_refault_file`), in bytes.
    pub refault_bytes: Option<u64>,
}

/// What was seen and what was not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Visibility {
    pub events: u64,
    /// Events that were dropped because a ring was full. Totals include them, details do not.
    pub events_dropped: u64,
    /// Bytes that the kernel copied to the processes (`rchar`), and those that were recorded; of processes with both.
    pub copied_bytes: Option<u64>,
    pub recorded_bytes: u64,
    pub processes_seen: u64,
    /// Processes of the job that could not be observed.
    pub unseen: Vec<UnseenProcess>,
    /// Processes that used io_uring, whose reads are not seen.
    pub uring_processes: u64,
    /// Calls on descriptors that the library does not track.
    pub untracked_calls: u64,
    /// Whether Python marks were received from a rank; without them there are no waits.
    pub marks: bool,
    /// Notes of the library and the marks.
    pub notes: Vec<String>,
    /// How page faults of mappings were observed: `perf`, `rss`, or not at all.
    pub faults: Option<String>,
    /// The source has no durations of calls: they are all 0.
    #[serde(default)]
    pub untimed: bool,
}

impl Visibility {
    /// The share of the copied bytes that was recorded, 0 to 1.
    pub fn share(&self) -> Option<f64> {
        let copied = self.copied_bytes.filter(|bytes| *bytes > 0)?;
        Some((self.recorded_bytes as f64 / copied as f64).min(1.0))
    }

    /// The share, if so much was not recorded that findings can be wrong.
    pub fn low_share(&self) -> Option<f64> {
        let missing = self.copied_bytes.unwrap_or(0).saturating_sub(self.recorded_bytes);
        self.share().filter(|share| *share < RECORDED && missing > UNRECORDED_BYTES)
    }
}

/// Below this share of the copied bytes, something reads past the library (audit trial: equal to the byte).
const RECORDED: f64 = 0.98;
/// The dynamic loader reads the headers of libraries before the library can observe it: up to some 100 KiB for each
/// program that starts.
const UNRECORDED_BYTES: u64 = 1 << 20;

/// A process that could not be observed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnseenProcess {
    pub pid: u32,
    pub command: String,
    /// Why, as a sentence part: `statically linked`.
    pub reason: String,
    /// Bytes that it read, if known.
    pub read_bytes: Option<u64>,
}

/// What observing cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// Measured before the job started: additional time of a positioned read, and of an open with its close.
    pub ns_per_call: f64,
    pub ns_per_open: f64,
    pub calls: u64,
    pub opens: u64,
    /// CPU time of the observing process.
    pub own_cpu_ns: Nanos,
    /// Added time / wall time, of the process with the largest share; 0 to 1.
    pub share: f64,
}

/// A process of the job: one image, from its start or `exec` to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessRow {
    pub pid: u32,
    pub parent: u32,
    /// Start and end, from the start of the job.
    pub start_ns: Nanos,
    pub end_ns: Nanos,
    pub command: String,
    /// Forked without an `exec`.
    pub forked: bool,
    /// The rank that it belongs to, counted from 0 in order of their first epoch; `None`: to none.
    pub rank: Option<u64>,
    /// Its number, if it is a worker of a loader.
    pub worker: Option<u64>,
    /// All calls, and those on data files.
    pub all: IoCounts,
    pub data: IoCounts,
    /// Calls on program code: opens and bytes.
    pub code_opens: u64,
    /// Threads at most, and when it was forked: those of its parent.
    pub threads: u64,
    pub parent_threads: Option<u64>,
    pub cpu_ns: Option<Nanos>,
    pub run_queue_ns: Option<Nanos>,
    /// Memory when first and last measured.
    pub memory: Option<MemoryChange>,
    /// Bytes written into pipes before the first batch of the rank arrived.
    pub pipe_bytes_early: u64,
    /// Data files that were open at once at most, and at the end.
    pub open_files_most: u64,
    pub open_files_end: u64,
    /// The longest time without any operation or CPU time, for a process that is blocked.
    pub idle_ns: Nanos,
    /// Ended by this signal, if known.
    pub signal: Option<i32>,
}

/// Memory of a process, first and last measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryChange {
    pub private_dirty_first: u64,
    pub private_dirty_last: u64,
    pub shared_dirty_first: u64,
    pub shared_dirty_last: u64,
}

/// A data loader of a rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoaderRow {
    pub rank: u64,
    pub loader: u64,
    pub framework: TrainingFramework,
    pub workers: u64,
    pub persistent: bool,
    pub iterable: bool,
    pub start_method: StartMethod,
    pub pin_memory: bool,
    /// Samples are shuffled anew in each epoch after they were read (tf.data).
    #[serde(default)]
    pub shuffles: bool,
    /// As configured; the observed one is in the epochs.
    pub batch: Option<u64>,
    pub prefetch: Option<u64>,
    /// Worker processes that were started in all epochs.
    pub worker_starts: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrainingFramework {
    Pytorch,
    Tensorflow,
    Keras,
    /// Epochs and waits come from a trace that does not name the framework.
    Other,
    /// No marks: an epoch is a pass over the files.
    #[default]
    Unknown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StartMethod {
    #[default]
    Fork,
    Spawn,
    Forkserver,
}

/// One epoch of one loader of one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochRow {
    pub rank: u64,
    pub loader: u64,
    /// From 1.
    pub epoch: u64,
    /// From the start of the job.
    pub begin_ns: Nanos,
    pub end_ns: Nanos,
    /// Whether its iterator was used to the end.
    pub complete: bool,
    pub batches: u64,
    pub samples: Option<u64>,
    /// From the beginning of the epoch to the first request for a batch: starting workers.
    pub start_ns: Nanos,
    /// Waiting for the first batch.
    pub first_wait_ns: Nanos,
    /// Waiting for batches (without the first `2 x workers`): until the worker had loaded it, and from then on
    /// until the rank had it.
    pub blocked_ns: Nanos,
    pub handover_ns: Nanos,
    /// The same of all batches.
    pub blocked_all_ns: Nanos,
    pub handover_all_ns: Nanos,
    /// From a batch to the request for the next one, of all batches.
    pub compute_ns: Nanos,
    /// Batches, samples and time after the first `2 x workers` batches.
    pub steady_batches: u64,
    pub steady_samples: u64,
    pub steady_ns: Nanos,
    /// Time between marks of checkpoints, or writing and flushing large files by the rank.
    pub checkpoint_ns: Nanos,
    pub checkpoint_bytes: u64,
    /// Whether gradients were recorded when it began: without them it is an evaluation.
    #[serde(default)]
    pub gradients: Option<bool>,
    /// Whether the rank changed its data set object since the epoch before.
    #[serde(default)]
    pub data_set_changed: Option<bool>,
    /// Batches whose values were compared with those of the same number in the epoch before, and equal ones.
    #[serde(default)]
    pub batches_compared: u64,
    #[serde(default)]
    pub batches_equal: u64,
    /// Calls on data files by the rank and its workers, and those of the rank alone.
    pub io: IoCounts,
    pub rank_io: IoCounts,
    /// The rank's own reads that fall into waits or into the time between batches (without workers: loading).
    pub rank_fetch_ns: Nanos,
    pub workers: Vec<WorkerRow>,
    /// Bytes that the kernel read from devices for the job (`read_bytes`), and that the devices served to all programs.
    pub issued_bytes: Option<u64>,
    pub served_bytes: Option<u64>,
    /// Sizes of reads, weighted by number; and time of opens, reads, fetches of a batch, waits, compute and
    /// hand-over of a step, and of everything but file calls per sample.
    pub read_sizes: ValueCounts,
    pub open_times: ValueCounts,
    pub read_times: ValueCounts,
    pub fetch_times: ValueCounts,
    pub wait_times: ValueCounts,
    pub compute_times: ValueCounts,
    pub handover_times: ValueCounts,
    pub think_times: ValueCounts,
    /// Within a fetch, from a call on data files to the next one.
    #[serde(default)]
    pub call_gaps: ValueCounts,
    /// Time with this number of reads in flight, by number; index 0 is no read.
    pub in_flight_ns: Vec<Nanos>,
    /// Sizes of reads in bytes: those in write windows (checkpoints) apart.
    pub read_times_in_checkpoints: ValueCounts,
    /// Groups of `workers` batches, and those in which the longest wait is more than three times the sum of the
    /// others.
    pub groups: u64,
    pub convoy_groups: u64,
    /// Batches that were loaded but not requested yet, at most.
    pub ready_most: u64,
    pub files: EpochFiles,
    /// Requests of a sample: the most frequent sequences of reads, as sizes.
    pub sample_patterns: Vec<SamplePattern>,
}

impl EpochRow {
    pub fn wall_ns(&self) -> Nanos {
        self.end_ns.since(self.begin_ns)
    }
}

/// What a worker did in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerRow {
    pub worker: u64,
    pub pid: u32,
    /// Whether its process was started for this epoch.
    pub started: bool,
    pub fetches: u64,
    pub samples: u64,
    pub fetch_ns: Nanos,
    /// Calls on data files within fetches: their time.
    pub file_ns: Nanos,
    pub io: IoCounts,
    pub code_opens: u64,
    pub cpu_ns: Option<Nanos>,
    pub run_queue_ns: Option<Nanos>,
    pub memory: Option<MemoryChange>,
    /// From the start of the process to its first fetch.
    pub start_ns: Option<Nanos>,
}

/// Figures of the files of an epoch, from the sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochFiles {
    /// Files of the sample that were opened or read; each stands for 1 / share files.
    pub sampled: u64,
    pub share: f64,
    /// Bytes asked of them; distinct bytes of each process, summed over processes; distinct bytes of all processes.
    pub asked_bytes: u64,
    pub process_distinct_bytes: u64,
    pub distinct_bytes: u64,
    /// Distinct bytes of the process that has the most of them.
    #[serde(default)]
    pub process_distinct_most: u64,
    /// Whether ranges of a file were too many to be kept.
    pub ranges_cut: bool,
    /// Pairs of a process and a file that it opened, and the opens.
    pub pairs: u64,
    pub opens: u64,
    /// Opens of the file that one process opened most often.
    pub opens_most: u64,
    /// How unevenly files are opened: variance / mean of the opens of a file. Near 1 if files are drawn at random.
    #[serde(default)]
    pub opens_spread: Option<f64>,
    /// How often all places were gone through one after the other within this epoch, begun passes included.
    #[serde(default)]
    pub passes: u64,
    /// The rank correlation of the order of the files of a reader with the order of their names, its mean.
    #[serde(default)]
    pub order_by_name: Option<f64>,
    /// The rank correlation of the order of first access with that of the epoch before, over this many places; -1
    /// to 1.
    pub order_correlation: Option<f64>,
    pub order_places: u64,
    /// Share of the places that the same worker read in the epoch before, and what chance would give.
    pub same_reader_share: Option<f64>,
    pub same_reader_chance: Option<f64>,
    /// Share of the places of the epoch before that were read again.
    pub repeated_places: Option<f64>,
    /// Reads on descriptors that were inherited, which use the shared position, and the processes that made them.
    pub shared_offset_reads: u64,
    pub shared_offset_processes: u64,
    /// Examples: path and figure.
    pub most_opened: Option<FileExample>,
    pub most_repeated: Option<FileExample>,
    pub shared_offset: Option<FileExample>,
    /// Mappings of data files, summed over processes: bytes mapped and bytes resident at most. The latter are not known
    /// if mappings were given up in this epoch.
    pub mapped_bytes: Option<u64>,
    pub resident_bytes: Option<u64>,
    /// How much more of them became resident in this epoch: at most so much was used that was not before.
    #[serde(default)]
    pub resident_growth_bytes: Option<u64>,
    /// Page faults in mappings of data files, if they were recorded (see [`Visibility::faults`]): all of them; those
    /// that went on where the one before of the same thread and file left off (at most 2 MiB further); those that
    /// waited for storage.
    pub faults: Option<u64>,
    pub faults_sequential: Option<u64>,
    #[serde(default)]
    pub faults_major: Option<u64>,
    /// Distinct bytes of the pages with faults: at least so much was used. Those of the aligned pieces of 2 MiB
    /// around them, which is what one fault maps at most: no more than that was used because of faults.
    #[serde(default)]
    pub fault_page_bytes: Option<u64>,
    #[serde(default)]
    pub fault_piece_bytes: Option<u64>,
    /// Faults that were lost, and the time in which only those that wait for storage were recorded.
    #[serde(default)]
    pub faults_lost: u64,
    #[serde(default)]
    pub faults_blind_ns: Nanos,
    /// Folders listed, listings, and processes that listed.
    pub folders: u64,
    pub listings: u64,
    pub listing_processes: u64,
}

/// A file and a figure about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileExample {
    /// Empty if paths are not to be written.
    pub path: String,
    pub count: u64,
    pub offset: Option<u64>,
    pub bytes: Option<u64>,
}

/// A sequence of reads that samples have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplePattern {
    /// Offset from the start of the sample's first read, and length, in order; cut after 64.
    pub reads: Vec<(i64, u64)>,
    /// Samples with it, of those that were examined.
    pub samples: u64,
    pub examined: u64,
}

/// Operations outside of epochs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutsideRow {
    /// `None`: processes that belong to no rank.
    pub rank: Option<u64>,
    /// Before the first epoch, and after it.
    pub before: IoCounts,
    pub after: IoCounts,
    pub before_ns: Nanos,
    /// Checkpoints that the rank writes between two epochs: time of its training thread, and bytes.
    #[serde(default)]
    pub checkpoint_ns: Nanos,
    #[serde(default)]
    pub checkpoint_bytes: u64,
    pub listings: u64,
    pub folders: u64,
}

/// The data files of the job, from the sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileFigures {
    /// Files in the sample, and how many files there are by its estimate.
    pub sampled: u64,
    pub estimated: u64,
    /// Leading zero bits of the hash of a file in the sample.
    pub sample_bits: u32,
    pub sizes: ValueCounts,
    /// Sum of the sizes, by estimate.
    pub bytes: u64,
    /// The deepest folders that hold data files, with the number of files of the sample; at most 64. Empty if paths
    /// are not to be written.
    pub folders: Vec<(String, u64)>,
    /// File name suffixes by frequency.
    pub suffixes: Vec<(String, u64)>,
    /// Examples of paths.
    pub examples: Vec<String>,
    /// Samples per file: median of the samples that touched a file of the sample in an epoch.
    pub samples_per_file: Option<f64>,
    /// Files opened with O_DIRECT, of the sample.
    pub direct: u64,
    /// Bytes of the sample's files in the page cache before the job, and after it.
    pub resident_before_bytes: Option<u64>,
    pub resident_after_bytes: Option<u64>,
}

/// Storage that data files are on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageRow {
    /// Device number as `major:minor`.
    pub device: String,
    /// Mount point, file system and source.
    pub mount: String,
    pub file_system: String,
    pub source: String,
    pub bytes: u64,
    pub read_ahead_kb: Option<u64>,
    /// Whether it is rotational.
    pub rotational: Option<bool>,
    /// The most that the device delivered in a second of the job.
    pub most_bytes_per_second: Option<u64>,
}

/// A place in the code that opens data files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteRow {
    /// `train.py:31 in __getitem__`.
    pub place: String,
    /// Opens of data files that were attributed to it; a sample.
    pub opens: u64,
}

impl AddAssign for Observed {
    /// Observations of another host: rows are appended, ranks renumbered by the caller.
    fn add_assign(&mut self, other: Observed) {
        let Observed {
            source: _,
            command: _,
            exit,
            wall_ns,
            host: _,
            coverage,
            overhead,
            processes,
            loaders,
            epochs,
            outside,
            files: _,
            storage,
            sites,
        } = other;
        if self.exit.code == Some(0) {
            self.exit = exit;
        }
        self.wall_ns = self.wall_ns.max(wall_ns);
        self.coverage.events += coverage.events;
        self.coverage.events_dropped += coverage.events_dropped;
        self.coverage.processes_seen += coverage.processes_seen;
        self.coverage.unseen.extend(coverage.unseen);
        self.overhead = self.overhead.or(overhead);
        self.processes.extend(processes);
        self.loaders.extend(loaders);
        self.epochs.extend(epochs);
        self.outside.extend(outside);
        self.storage.extend(storage);
        self.sites.extend(sites);
    }
}
