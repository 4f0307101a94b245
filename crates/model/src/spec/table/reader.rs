//! Keys of `reader` (DLIO also accepts them below `data_reader`): how the data set is read.

use super::super::names::{
    Access, CacheProof, CacheState, Loader, OnError, Preprocess, Readahead, Retain, Verify,
};
use super::super::schema::KeyStatus::{NoEffect, Unhonoured, Used};
use super::super::schema::ValueKind::{
    Choice, Flag, Integer, Integers, Number, NumberOrZero, Requests, Shuffle, Text, Time,
};
use super::super::schema::{KeyRow, row};
use super::{COUNT, LONGEST, MOST};

/// More readers per rank than any machine has threads.
const THREADS: i64 = 65_536;

const FETCH_TO_MEMORY: &str = "feedline delivers the bytes as read and builds no tensor of another shape";
const NO_PYTHON: &str = "feedline has no Python worker processes";
const CLASS: &str = "feedline loads no Python classes";
/// Reads smaller than a disk sector or larger than a reader's memory are typos.
const TRANSFERS: (i64, i64) = (512, 1 << 30);
/// More repetitions per sample than any job has.
const REPEATS: i64 = 10_000;
/// Seconds. Shorter pauses occur in any run.
const SHORTEST_STALL: f64 = 0.001;

pub(super) const ROWS: &[KeyRow] = &[
    row(
        "reader.data_loader",
        Choice(Loader::NAMES),
        "null",
        Used,
        "data loader to emulate; default: the framework's own",
    )
    .later(&["custom", "none"], "this loader cannot be emulated; the framework's own loader is used"),
    row("reader.batch_size", Integer(1, COUNT), "1", Used, "samples per training step and rank")
        .aliases(&["dataset.batch_size"]),
    row("reader.batch_size_eval", Integer(1, COUNT), "1", Used, "samples per evaluation step and rank")
        .aliases(&["dataset.batch_size_eval"]),
    row("reader.read_threads", Integer(0, THREADS), "1", Used, "readers per rank"),
    row(
        "reader.max_auto_threads",
        Integer(1, THREADS),
        "8",
        Used,
        "maximum of the read_threads that compat.read_threads chooses",
    ),
    row("reader.write_threads", Integer(1, THREADS), "1", Used, "writers per rank while generating"),
    row("reader.prefetch_size", Integer(0, COUNT), "2", Used, "batches prefetched per reader"),
    row("reader.file_shuffle", Shuffle, "'off'", Used, "order of the files")
        .aliases(&["reader.read_shuffle"]),
    row("reader.sample_shuffle", Shuffle, "'off'", Used, "order of the samples")
        .aliases(&["reader.memory_shuffle"]),
    row(
        "reader.computation_threads",
        Integer(1, THREADS),
        "1",
        Used,
        "samples of a tfrecord stream that TensorFlow's map preprocesses in parallel",
    )
    .aliases(&["reader.computatation_threads"]),
    row(
        "reader.shuffle_size",
        Integer(0, COUNT),
        "1024",
        Used,
        "samples that TensorFlow's shuffle buffer reads before it delivers the first",
    ),
    row(
        "reader.transfer_size",
        Integer(TRANSFERS.0, TRANSFERS.1),
        "null",
        Used,
        "bytes per read if a reader streams a file (tfrecord, csv); otherwise the maximum size of a read",
    )
    .bytes(),
    row(
        "reader.requests",
        Requests,
        "[]",
        Used,
        "sizes of the requests of a sample, in order; the last one repeats, rest is all remaining bytes",
    ),
    row("reader.rereads", Integer(1, REPEATS), "1", Used, "how often the bytes of a sample are read"),
    row(
        "reader.opens_per_sample",
        Integer(0, REPEATS),
        "1",
        Used,
        "how often a file is opened when it is read; 0: a reader keeps it open; not 1: needs blocking calls",
    ),
    row(
        "reader.stats_per_sample",
        Integer(0, REPEATS),
        "0",
        Used,
        "stat calls when a file is read; needs a backend with blocking calls",
    ),
    row(
        "reader.in_flight_limit",
        Integer(1, THREADS),
        "null",
        Used,
        "reads of a rank at once at most, as if readers shared a lock; needs a backend with blocking calls",
    ),
    row(
        "reader.start_time",
        Time,
        "0",
        Used,
        "seconds that starting the readers takes at the beginning of each epoch",
    )
    .seconds(),
    row(
        "reader.start_once",
        Flag,
        "false",
        Used,
        "readers stay from epoch to epoch: only the first one begins with start_time",
    ),
    row(
        "reader.access",
        Choice(Access::NAMES),
        "framework",
        Used,
        "reads of the framework's own reader, or of exactly the bytes of the samples",
    ),
    row("reader.odirect", Flag, "false", Used, "bypass the page cache"),
    row(
        "reader.readahead",
        Choice(Readahead::NAMES),
        "normal",
        Used,
        "advice to the kernel about future reads; dontcache leaves nothing in the page cache",
    ),
    row(
        "reader.cache",
        Choice(CacheState::NAMES),
        "cold",
        Used,
        "page cache when an epoch starts: without the data set, with all of it, unchanged, or cold only in the first",
    ),
    row(
        "reader.cache_proof",
        Choice(CacheProof::NAMES),
        "exact",
        Used,
        "fetches whose pages in memory are counted right before the read: all, a random sample, none",
    ),
    row(
        "reader.drop_caches",
        Flag,
        "false",
        Used,
        "make the cache cold by dropping the whole host's caches, including file names and attributes; needs root",
    ),
    row(
        "reader.retain",
        Choice(Retain::NAMES),
        "none",
        Used,
        "what stays in memory until the accelerator takes it: nothing, or whole batches as in a framework",
    ),
    row(
        "reader.verify",
        Choice(Verify::NAMES),
        "sample",
        Used,
        "how much of the generated data is compared with its expected content: nothing, a sample, everything",
    ),
    row("reader.ordered", Flag, "true", Used, "deliver batches in order; otherwise as they become ready"),
    row(
        "reader.interleave_cycle",
        Integer(1, THREADS),
        "null",
        Used,
        "files that TensorFlow interleaves; default: read_threads for tfrecord, 1 otherwise",
    ),
    row("reader.interleave_block", Integer(1, COUNT), "1", Used, "samples per file and turn"),
    row("reader.preprocess_time", Time, "0", Used, "seconds of preprocessing per sample").seconds(),
    row(
        "reader.preprocess_time_stdev",
        Number(0.0, LONGEST),
        "null",
        Used,
        "standard deviation of preprocess_time",
    )
    .seconds(),
    row(
        "reader.preprocess",
        Choice(Preprocess::NAMES),
        "sleep",
        Used,
        "how that time is spent: sleep, burn (CPU), decode (of the real bytes), none",
    ),
    row(
        "reader.preprocess_bytes",
        Number(1.0, MOST),
        "null",
        Used,
        "sample size that preprocess_time refers to; other sizes take proportional time",
    )
    .bytes(),
    row(
        "reader.preprocess_threads",
        Integer(1, THREADS),
        "null",
        Used,
        "samples per rank that are preprocessed in parallel; default: each reader preprocesses its own",
    ),
    row(
        "reader.preprocess_slow_share",
        Number(0.0, 1.0),
        "0",
        Used,
        "share of the samples that take preprocess_slow_factor times as long",
    )
    .share(),
    row(
        "reader.preprocess_slow_factor",
        Number(1.0, LONGEST),
        "1",
        Used,
        "how many times as long those take",
    ),
    row(
        "reader.on_error",
        Choice(OnError::NAMES),
        "stop",
        Used,
        "if a sample cannot be read: end the run, or count the error and leave the sample out of its batch",
    ),
    row(
        "reader.error_limit",
        Integer(0, COUNT),
        "100",
        Used,
        "maximum number of counted errors; one more ends the run",
    ),
    row(
        "reader.stall_timeout",
        NumberOrZero(SHORTEST_STALL, LONGEST),
        "60",
        Used,
        "seconds without progress after which a run ends and reports what is blocked; 0: never",
    )
    .seconds(),
    row(
        "reader.read_type",
        Choice(&["on_demand", "memory"]),
        "on_demand",
        NoEffect("feedline always reads on demand and keeps nothing"),
        "when samples are read",
    )
    .quiet(&["on_demand"]),
    row(
        "reader.file_access",
        Choice(&["multi", "shared", "collective", "mpio", "posix"]),
        "multi",
        NoEffect("DLIO itself never uses it"),
        "how files are shared",
    )
    .aliases(&["dataset.file_access"]),
    row(
        "reader.dont_use_mmap",
        Flag,
        "false",
        NoEffect("feedline's readers never map files"),
        "no memory mapping",
    )
    .quiet(&["true"]),
    row("reader.multiprocessing_context", Text, "spawn", NoEffect(NO_PYTHON), "how Python starts workers"),
    row("reader.pin_memory", Flag, "true", NoEffect("there is no device to copy to"), "page-locked batches")
        .quiet(&["false"]),
    row(
        "reader.transformed_record_dims",
        Integers(1),
        "[]",
        NoEffect(FETCH_TO_MEMORY),
        "shape of the delivered tensor",
    ),
    row(
        "reader.transformed_record_element_type",
        Text,
        "uint8",
        NoEffect(FETCH_TO_MEMORY),
        "type of that tensor",
    ),
    row(
        "reader.data_loader_sampler",
        Choice(&["iterative", "index", "none"]),
        "null",
        NoEffect("the order of samples follows from the shuffle keys alone"),
        "how DLIO assigns samples",
    ),
    row("reader.data_loader_classname", Text, "null", NoEffect(CLASS), "Python class of the loader"),
    row("reader.reader_classname", Text, "null", Unhonoured(CLASS), "Python class of the reader"),
];
