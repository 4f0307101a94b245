//! Keys of `reader` (DLIO also reads them below `data_reader`): how the data set is read.

use super::super::names::{
    Access, CacheProof, CacheState, Loader, OnError, Preprocess, Readahead, Retain, Verify,
};
use super::super::schema::Status::{NoEffect, Unhonoured, Used};
use super::super::schema::ValueKind::{
    Choice, Flag, Integer, Integers, Number, NumberOrZero, Shuffle, Text, Time,
};
use super::super::schema::{Row, row};
use super::{COUNT, LONGEST, MOST};

/// More readers in one rank than any machine has threads.
const THREADS: i64 = 65_536;

const FETCH_TO_MEMORY: &str = "feedline hands on the bytes it read and builds no tensor of another shape";
const NO_PYTHON: &str = "feedline has no Python worker processes";
const CLASS: &str = "feedline loads no Python classes";
/// Reads below a disk's sector and beyond what a reader can hold are slips of the finger.
const TRANSFERS: (i64, i64) = (512, 1 << 30);
/// Seconds. Any run has pauses as short as this.
const SHORTEST_STALL: f64 = 0.001;

pub(super) const ROWS: &[Row] = &[
    row(
        "reader.data_loader",
        Choice(Loader::NAMES),
        "null",
        Used,
        "data loader that is emulated; by framework",
    )
    .later(&["custom", "none"], "there is no such loader to emulate; the framework's own is used"),
    row("reader.batch_size", Integer(1, COUNT), "1", Used, "samples of one training step and rank"),
    row("reader.batch_size_eval", Integer(1, COUNT), "1", Used, "samples of one evaluation step and rank"),
    row("reader.read_threads", Integer(0, THREADS), "1", Used, "readers of one rank"),
    row("reader.write_threads", Integer(1, THREADS), "1", Used, "writers of one rank while generating"),
    row("reader.prefetch_size", Integer(0, COUNT), "2", Used, "batches fetched ahead per reader"),
    row("reader.file_shuffle", Shuffle, "'off'", Used, "order of the files"),
    row("reader.sample_shuffle", Shuffle, "'off'", Used, "order of the samples"),
    row(
        "reader.computation_threads",
        Integer(1, THREADS),
        "1",
        Used,
        "samples of a tfrecord stream that TensorFlow's map preprocesses at once",
    ),
    row(
        "reader.shuffle_size",
        Integer(0, COUNT),
        "1024",
        Used,
        "samples that TensorFlow's shuffle buffer reads ahead of what it hands on",
    ),
    row(
        "reader.transfer_size",
        Integer(TRANSFERS.0, TRANSFERS.1),
        "null",
        Used,
        "bytes of one read, where a reader streams a file (tfrecord, csv); the largest read elsewhere",
    ),
    row(
        "reader.access",
        Choice(Access::NAMES),
        "framework",
        Used,
        "reads as the framework's own reader makes them, or just the bytes of the samples",
    ),
    row("reader.odirect", Flag, "false", Used, "read past the page cache"),
    row(
        "reader.readahead",
        Choice(Readahead::NAMES),
        "normal",
        Used,
        "what the kernel is told about the reads to come; dontcache leaves nothing in the page cache",
    ),
    row(
        "reader.cache",
        Choice(CacheState::NAMES),
        "cold",
        Used,
        "what of the data set is in the page cache when an epoch begins: nothing, everything, or what happens to be",
    ),
    row(
        "reader.cache_proof",
        Choice(CacheProof::NAMES),
        "exact",
        Used,
        "of which fetches the pages in memory are counted right before they are read: all, some at random, none",
    ),
    row(
        "reader.drop_caches",
        Flag,
        "false",
        Used,
        "to make the cache cold, empty the whole host's, names and attributes of files included; needs root",
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
        "what of the data that feedline generated is compared when it is read: nothing, a sample of it, all",
    ),
    row("reader.ordered", Flag, "true", Used, "deliver batches in order; else as they become ready"),
    row(
        "reader.interleave_cycle",
        Integer(1, THREADS),
        "null",
        Used,
        "files that TensorFlow takes samples from in turn; by default read_threads for tfrecord, 1 elsewhere",
    ),
    row("reader.interleave_block", Integer(1, COUNT), "1", Used, "samples that it takes from each in turn"),
    row("reader.preprocess_time", Time, "0", Used, "seconds a reader works on one sample"),
    row("reader.preprocess_time_stdev", Number(0.0, LONGEST), "null", Used, "spread of preprocess_time"),
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
        "size of the sample that preprocess_time is for; others take in proportion",
    ),
    row(
        "reader.preprocess_threads",
        Integer(1, THREADS),
        "null",
        Used,
        "samples of one rank that are preprocessed at once; by default each reader does its own",
    ),
    row(
        "reader.preprocess_slow_share",
        Number(0.0, 1.0),
        "0",
        Used,
        "share of the samples that take preprocess_slow_factor times as long",
    ),
    row("reader.preprocess_slow_factor", Number(1.0, LONGEST), "1", Used, "how much longer those take"),
    row(
        "reader.on_error",
        Choice(OnError::NAMES),
        "stop",
        Used,
        "what a sample that cannot be read does: it ends the run, or it is counted and left out of its batch",
    ),
    row(
        "reader.error_limit",
        Integer(0, COUNT),
        "100",
        Used,
        "errors that are counted; one more ends the run",
    ),
    row(
        "reader.stall_timeout",
        NumberOrZero(SHORTEST_STALL, LONGEST),
        "60",
        Used,
        "seconds without progress after which a run ends and reports what is blocked; 0 waits forever",
    ),
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
    ),
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
        "shape of the tensor handed on",
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
        "how DLIO hands out samples",
    ),
    row("reader.data_loader_classname", Text, "null", NoEffect(CLASS), "Python class of the loader"),
    row("reader.reader_classname", Text, "null", Unhonoured(CLASS), "Python class of the reader"),
];
