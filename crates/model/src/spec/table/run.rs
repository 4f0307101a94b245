//! Keys of the run as a whole: workflow, train, evaluation, metric, output, profiling, logging, sweep.

use super::super::names::PlottedFigure;
use super::super::schema::KeyStatus::{InDropIn, NoEffect, Used};
use super::super::schema::ValueKind::{Choice, Flag, Integer, Map, Number, NumberOrZero, Text, Texts, Time};
use super::super::schema::{KeyRow, row};
use super::{COUNT, LONGEST, RECORDED};

const PROFILERS: &[&str] = &["none", "iostat", "darshan", "tensorboard"];
/// GB/s, from a serial line to more than any bus. Other values have a wrong unit.
const COPY_RATES: (f64, f64) = (1e-6, 1e6);
/// The maximum number of runs of each cell of a sweep.
pub(crate) const MOST_REPEATS: i64 = 1000;
const OWN_LOG: &str = "feedline logs to stderr";
const OWN_EXIT: &str = "an invalid verdict always has an exit code of its own";
const NO_PROFILER: &str = "feedline takes its own measurements and starts no profiler";

pub(super) const WORKFLOW: &[KeyRow] = &[
    row("workflow.generate_data", Flag, "false", Used, "write the data set first"),
    row("workflow.train", Flag, "true", Used, "read the data set as a training job does"),
    row("workflow.evaluation", Flag, "false", Used, "evaluate between epochs").aliases(&["train.do_eval"]),
    row("workflow.checkpoint", Flag, "false", Used, "write checkpoints while training, or alone")
        .aliases(&["checkpoint.do_checkpoint"]),
    row("workflow.profiling", Flag, "false", NoEffect(NO_PROFILER), "start DLIO's profiler")
        .quiet(&["false"]),
    row(
        "workflow.query",
        Text,
        "null",
        NoEffect("only dlio_benchmark_query reads it"),
        "key that dlio_benchmark_query prints",
    ),
    row("workflow.debug", Flag, "false", NoEffect("DLIO itself never reads it"), "appears in shipped files")
        .quiet(&["false"]),
];

pub(super) const ROWS: &[KeyRow] = &[
    row("train.epochs", Integer(1, RECORDED), "1", Used, "passes over the training set"),
    row("train.computation_time", Time, "0", Used, "seconds the accelerator computes per step").seconds(),
    row(
        "train.computation_time_stdev",
        Number(0.0, LONGEST),
        "null",
        Used,
        "standard deviation of computation_time",
    )
    .seconds(),
    row(
        "train.handover_time",
        Time,
        "0",
        Used,
        "seconds from a loaded batch to the step that uses it; neither waiting nor computing",
    )
    .seconds(),
    row(
        "train.handover_time_stdev",
        Number(0.0, LONGEST),
        "null",
        Used,
        "standard deviation of handover_time",
    )
    .seconds(),
    row(
        "train.total_training_steps",
        Integer(-1, COUNT),
        "-1",
        Used,
        "maximum steps per epoch; -1 or 0: the whole epoch",
    ),
    row("train.seed", Integer(0, COUNT), "123", Used, "seed of all shuffles"),
    row("train.seed_change_epoch", Flag, "true", Used, "shuffle differently in every epoch"),
    row(
        "train.device_copy_rate",
        NumberOrZero(COPY_RATES.0, COPY_RATES.1),
        "0",
        Used,
        "GB/s at which batches are copied to the accelerator; 0: no copy time",
    ),
    row(
        "train.device_prefetch",
        Flag,
        "true",
        Used,
        "copy the next batch to the accelerator while it computes; otherwise between steps",
    ),
    row("evaluation.eval_time", Time, "0", Used, "seconds the accelerator computes per evaluation step")
        .seconds()
        .aliases(&["train.eval_time"]),
    row("evaluation.eval_time_stdev", Number(0.0, LONGEST), "null", Used, "standard deviation of eval_time")
        .seconds(),
    row("evaluation.eval_after_epoch", Integer(0, COUNT), "1", Used, "first epoch with an evaluation")
        .aliases(&["train.eval_after_epoch"]),
    row(
        "evaluation.epochs_between_evals",
        Integer(0, COUNT),
        "1",
        Used,
        "epochs from one evaluation to the next; 0 is 1",
    )
    .aliases(&["train.epochs_between_evals"]),
];

pub(super) const OUTPUT: &[KeyRow] = &[
    row("output.folder", Text, "null", Used, "folder of the results").aliases(&["output_folder"]),
    row("output.log_file", Text, "dlio.log", InDropIn(OWN_LOG), "name of the log file of dlio_benchmark"),
    row("output.strict", Flag, "false", InDropIn(OWN_EXIT), "an invalid verdict makes dlio_benchmark fail"),
    row(
        "output.metric.exclude_start_steps",
        Integer(0, COUNT),
        "1",
        Used,
        "steps at the start of an epoch that the metrics exclude",
    ),
    row(
        "output.metric.exclude_end_steps",
        Integer(0, COUNT),
        "0",
        Used,
        "steps at the end of an epoch that the metrics exclude",
    ),
    row("profiling.profiler", Choice(PROFILERS), "iostat", NoEffect(NO_PROFILER), "DLIO's profiler")
        .quiet(&["none"]),
    row("profiling.iostat_devices", Texts, "[]", NoEffect(NO_PROFILER), "devices that DLIO's iostat watches"),
    row("metric.au", Number(0.0, 1.0), "0.90", Used, "target accelerator utilisation, as a fraction").share(),
    row("logging", Map, "{}", NoEffect("DLIO itself never reads it"), "appears in shipped files"),
    row("sweep.over", Texts, "[]", Used, "axes of `feedline sweep`, each as KEY=VALUE,VALUE"),
    row("sweep.repeat", Integer(1, MOST_REPEATS), "5", Used, "runs of each cell of a sweep"),
    row("sweep.plot", Choice(PlottedFigure::NAMES), "null", Used, "figure that the plot of a sweep shows"),
];
