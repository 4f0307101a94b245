//! Keys of `framework`, `model` and `checkpoint`: the model, and the size of its checkpoints.

use super::super::names::{CheckpointMode, Datatype, Framework, SaveMode};
use super::super::schema::KeyStatus::{NoEffect, Used, WithCheckpoints};
use super::super::schema::ValueKind::{
    Choice, Flag, FlagOrCount, Integer, Integers, Map, Number, NumberOrZero, Text,
};
use super::super::schema::{KeyRow, row};
use super::{COUNT, LONGEST, RECORDED, SHORTEST};

const NO_TENSORS: &str = "feedline keeps no tensors in memory to merge";
/// Every layer has its own entry in the files of a checkpoint.
const LAYERS: i64 = 1_000_000;
const CLASS: &str = "feedline loads no Python classes";

pub(super) const ROWS: &[KeyRow] = &[
    row(
        "framework",
        Choice(Framework::NAMES),
        "tensorflow",
        Used,
        "framework whose input pipeline is emulated",
    ),
    row("model.name", Text, "default", Used, "label of the results"),
    row("model.type", Text, "null", Used, "kind of model; `transformer` shapes the checkpoint"),
    row("model.model_size_bytes", Integer(0, COUNT), "10240", WithCheckpoints, "bytes of a flat model state")
        .bytes()
        .aliases(&["model.model_size", "checkpoint.model_size"]),
    row(
        "model.model_datatype",
        Choice(Datatype::NAMES),
        "fp16",
        WithCheckpoints,
        "element type of the model state",
    )
    .aliases(&["checkpoint.checkpoint_model_datatype"]),
    row(
        "model.optimizer_datatype",
        Choice(Datatype::NAMES),
        "fp32",
        WithCheckpoints,
        "element type of the optimizer state",
    )
    .aliases(&["checkpoint.checkpoint_optimizer_data_type"]),
    row(
        "model.optimization_groups",
        Integers(0),
        "[]",
        WithCheckpoints,
        "explicit optimizer tensors, in elements",
    )
    .aliases(&["checkpoint.optimization_groups"]),
    row("model.num_layers", Integer(-1, LAYERS), "-1", WithCheckpoints, "layers; -1: no layer state")
        .aliases(&["checkpoint.num_layers"]),
    row(
        "model.layer_parameters",
        Integers(0),
        "[]",
        WithCheckpoints,
        "explicit tensors of one layer, in elements",
    )
    .aliases(&["checkpoint.layer_parameters"]),
    row("model.parallelism.tensor", Integer(1, COUNT), "1", WithCheckpoints, "tensor parallelism").aliases(
        &[
            "checkpoint.tensor_parallelism",
            "model.tensor_parallelism",
            "model.parallelism.tensor_parallelism",
        ],
    ),
    row("model.parallelism.pipeline", Integer(1, COUNT), "1", WithCheckpoints, "pipeline parallelism")
        .aliases(&[
            "checkpoint.pipeline_parallelism",
            "model.pipeline_parallelism",
            "model.parallelism.pipeline_parallelism",
        ]),
    row(
        "model.parallelism.data",
        Integer(-1, COUNT),
        "-1",
        WithCheckpoints,
        "data parallelism; -1: as many as the ranks allow",
    ),
    row("model.parallelism.zero_stage", Integer(-1, 3), "0", WithCheckpoints, "ZeRO stage; -1 is 0"),
    row(
        "model.transformer.vocab_size",
        Integer(1, COUNT),
        "32000",
        WithCheckpoints,
        "words of the vocabulary",
    ),
    row("model.transformer.hidden_size", Integer(1, COUNT), "2048", WithCheckpoints, "width of a layer"),
    row(
        "model.transformer.ffn_hidden_size",
        Integer(1, COUNT),
        "8192",
        WithCheckpoints,
        "width of the feed-forward part",
    ),
    row("model.transformer.num_attention_heads", Integer(1, COUNT), "32", WithCheckpoints, "attention heads"),
    row("model.transformer.num_kv_heads", Integer(1, COUNT), "8", WithCheckpoints, "key-value heads"),
];

pub(super) const CHECKPOINT: &[KeyRow] = &[
    row("checkpoint.checkpoint_folder", Text, "./checkpoints/", WithCheckpoints, "folder of the checkpoints")
        .aliases(&["checkpoint.output_folder"]),
    row(
        "checkpoint.checkpoint_after_epoch",
        Integer(0, COUNT),
        "1",
        WithCheckpoints,
        "first epoch with a checkpoint",
    ),
    row(
        "checkpoint.epochs_between_checkpoints",
        Integer(1, COUNT),
        "1",
        WithCheckpoints,
        "epochs from one checkpoint to the next",
    ),
    row(
        "checkpoint.steps_between_checkpoints",
        Integer(-1, COUNT),
        "-1",
        WithCheckpoints,
        "steps from one checkpoint to the next; -1: count epochs",
    ),
    row("checkpoint.fsync", Flag, "false", WithCheckpoints, "wait until the checkpoint is durable"),
    row(
        "checkpoint.time_between_checkpoints",
        Number(-1.0, LONGEST),
        "-1",
        WithCheckpoints,
        "seconds of pause before each checkpoint",
    )
    .seconds(),
    row(
        "checkpoint.num_checkpoints_write",
        Integer(-1, RECORDED),
        "-1",
        WithCheckpoints,
        "checkpoints to write, without training",
    )
    .aliases(&["checkpoint.num_checkpoints"]),
    row(
        "checkpoint.num_checkpoints_read",
        Integer(-1, RECORDED),
        "-1",
        WithCheckpoints,
        "checkpoints to read, without training",
    ),
    row(
        "checkpoint.recovery_rank_shift",
        FlagOrCount,
        "false",
        WithCheckpoints,
        "how many ranks further the part is that a rank restores; true: 1",
    )
    .aliases(&["checkpoint.load_rank_shift"]),
    row("checkpoint.rank_sync", Flag, "false", WithCheckpoints, "barrier inside the timed interval"),
    row(
        "checkpoint.mode",
        Choice(CheckpointMode::NAMES),
        "default",
        WithCheckpoints,
        "whole model, or a subset of its ranks",
    ),
    row(
        "checkpoint.randomize_tensor",
        Flag,
        "true",
        NoEffect("the content is always random, so that no layer can compress it"),
        "random content instead of ones",
    )
    .quiet(&["true"]),
    row(
        "checkpoint.type",
        Choice(&["rank_zero", "all_ranks"]),
        "rank_zero",
        NoEffect("DLIO itself never uses it: every rank writes its own part"),
        "which ranks write",
    ),
    row(
        "checkpoint.checkpoint_mechanism_classname",
        Text,
        "null",
        NoEffect(CLASS),
        "Python class that writes",
    ),
    row(
        "checkpoint.mode_of_save",
        Choice(SaveMode::NAMES),
        "direct",
        WithCheckpoints,
        "what training waits for: durable files, a copy in memory, or a fast tier that is drained later",
    ),
    row(
        "checkpoint.store",
        Text,
        "null",
        WithCheckpoints,
        "I/O backend of checkpoints ('feedline docs stores'); null: the backend of the run",
    ),
    row(
        "checkpoint.burst_folder",
        Text,
        "null",
        WithCheckpoints,
        "folder of the fast tier, for burst-buffer",
    ),
    row(
        "checkpoint.burst_store",
        Text,
        "null",
        WithCheckpoints,
        "I/O backend of the fast tier ('feedline docs stores')",
    ),
    row(
        "checkpoint.burst_slots",
        Integer(1, COUNT),
        "2",
        WithCheckpoints,
        "maximum checkpoints on the fast tier that are not drained yet",
    ),
    row(
        "checkpoint.drain_rate",
        Integer(1, COUNT),
        "null",
        WithCheckpoints,
        "maximum bytes per second of a drain",
    )
    .bytes(),
    row(
        "checkpoint.pool_size",
        Integer(1, COUNT),
        "4294967296",
        WithCheckpoints,
        "maximum bytes of snapshots in memory, for async",
    )
    .bytes(),
    row(
        "checkpoint.keep_last",
        Integer(1, COUNT),
        "null",
        WithCheckpoints,
        "number of complete checkpoints to keep; older ones are removed",
    ),
    row(
        "checkpoint.files_in_flight",
        Integer(1, 64),
        "2",
        WithCheckpoints,
        "files per rank that are written or read in parallel",
    ),
    row("checkpoint.chunk_size", Integer(4096, 1 << 30), "1048576", WithCheckpoints, "bytes of one write")
        .bytes(),
    row(
        "checkpoint.serialize_time",
        NumberOrZero(SHORTEST, LONGEST),
        "0",
        WithCheckpoints,
        "seconds to gather the tensors",
    )
    .seconds(),
    row("checkpoint.ksm", Map, "null", NoEffect(NO_TENSORS), "kernel same-page merging of the tensors"),
];
