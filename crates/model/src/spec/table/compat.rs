//! Keys of `compat`: whose behaviour a run has where feedline deliberately differs from DLIO. `spec/compat.rs` resolves
//! them; docs/guides/dlio.md lists the differences.

use super::super::names::Semantics;
use super::super::schema::KeyStatus::Used;
use super::super::schema::ValueKind::Choice;
use super::super::schema::{KeyRow, row};

/// The key for all others; `compat: dlio` sets it.
pub(in super::super) const ALL: &str = "compat.all";

const fn difference(key: &'static str, help: &'static str) -> KeyRow {
    row(key, Choice(Semantics::NAMES), "null", Used, help)
}

pub(in super::super) const ROWS: &[KeyRow] = &[
    difference(ALL, "feedline's or DLIO's behaviour for every key of this section that is not given"),
    difference("compat.order", "dlio: file_shuffle shuffles if it is given, and sample_shuffle does not"),
    difference("compat.shards", "dlio: files are dealt to the ranks, floor(files / ranks) to each"),
    difference(
        "compat.whole_files",
        "dlio: each sample of an npz, npy, csv or hdf5 file reads the whole file",
    ),
    difference("compat.read_threads", "dlio: read_threads 1 is cores / ranks, at most max_auto_threads"),
    difference("compat.prefetch", "dlio: prefetch_size 0 is 2 batches per worker (pytorch) or 2 (dali)"),
    difference("compat.cache", "dlio: reader.cache is as-is unless it is given"),
    difference("compat.verify", "dlio: reader.verify is none unless it is given"),
    difference("compat.draws", "dlio: all ranks draw the same computation times"),
    difference("compat.eval_figures", "dlio: figures of evaluation are divided by the number of ranks"),
    difference("compat.compression", "dlio: compression has no effect, except on hdf5 and csv"),
    difference(
        "compat.columns",
        "dlio: all columns of a parquet file are read, also those with `read: false`",
    ),
    difference("compat.record_length", "dlio: the earlier name dataset.record_length has no effect"),
    difference("compat.model_size", "dlio: the earlier name model.model_size has no effect"),
    difference(
        "compat.checkpoint_step",
        "dlio: the checkpoint after an epoch has the number of the next step",
    ),
    difference("compat.fsync", "dlio: checkpoints are always flushed"),
    difference(
        "compat.restore_cache",
        "dlio: checkpoints are restored from the page cache if they are in it",
    ),
];
