//! Keys and values of earlier DLIO versions and of its branches, so that a workload file of any MLPerf round can be
//! used. A key that only moved is an alias in the row of its present name; here are the rest: keys that have no effect,
//! and values that were renamed. No list of known keys shows them.

use super::super::schema::KeyStatus::NoEffect;
use super::super::schema::ValueKind::Anything;
use super::super::schema::{KeyRow, row};

/// Sections with another name: that name, and the one in the table.
pub(in super::super) const SECTIONS: &[(&str, &str)] = &[
    ("data_reader", "reader"),
    ("data_loader", "reader"),
    ("transformer", "model.transformer"),
    // The same columns, under the name of the format.
    ("dataset.arrow", "dataset.parquet"),
];

/// Sections that can be given as a word, and the key that they then mean: `model: unet3d`, `compat: dlio`.
pub(in super::super) const WORD_FOR: &[(&str, &str)] =
    &[("model", "model.name"), ("compat", super::compat::ALL)];

/// Values with another name or meaning today: key, earlier value, present value.
pub(in super::super) const VALUES: &[(&str, &str, &str)] = &[
    ("dataset.format", "dlio_tfrecord", "tfrecord"),
    ("dataset.format", "dlio_hdf5", "hdf5"),
    ("dataset.format", "dlio_csv", "csv"),
    ("dataset.format", "dlio_npz", "npz"),
    ("dataset.format", "dlio_jpeg", "jpeg"),
    ("dataset.format", "dlio_png", "png"),
    ("reader.data_loader", "dlio_tensorflow", "tensorflow"),
    ("reader.data_loader", "dlio_pytorch", "pytorch"),
    ("reader.data_loader", "dlio_dali", "dali"),
    ("reader.data_loader", "native_tensorflow", "tensorflow"),
    ("reader.data_loader", "native_pytorch", "pytorch"),
    // PyTorch's loader; storage_type says that the files are in DAOS.
    ("reader.data_loader", "daos_pytorch", "pytorch"),
    ("checkpoint.type", "collective", "rank_zero"),
    ("checkpoint.type", "independent", "all_ranks"),
    // The default before stages were checked.
    ("model.parallelism.zero_stage", "-1", "0"),
];

const HYDRA: &str = "it belongs to Hydra, not to the workload";
const STORAGE: &str = "DLIO reads it only below 'storage'";
const READER: &str = "DLIO reads it only below 'reader'";
const PROFILER: &str = "feedline takes its own measurements and starts no profiler";
const LOG: &str = "feedline logs to stderr";
const TENSORS: &str = "feedline keeps no tensors in memory to merge";
const REMOTE: &str = "this kind of storage is not supported yet";
const EVAL: &str = "only an unmerged branch of DLIO evaluated within an epoch";
const BRANCH: &str = "only an unmerged branch of DLIO reads it";
const SIZE: &str = "no version of DLIO reads it; dataset.record_length_bytes is the size of a sample";
const SPREAD: &str = "no version of DLIO reads it; dataset.record_length_bytes_stdev is the deviation";
const MODEL: &str = "no version of DLIO reads it here; it belongs below 'model'";

const fn without_effect(key: &'static str, why: &'static str) -> KeyRow {
    row(key, Anything, "null", NoEffect(why), "appears in files of earlier DLIO versions")
}

pub(in super::super) const ROWS: &[KeyRow] = &[
    without_effect("defaults", HYDRA),
    without_effect("app_name", "no version of DLIO reads it"),
    without_effect("logdir", LOG),
    without_effect("reporting", PROFILER),
    without_effect(
        "workflow.do_eval",
        "no version of DLIO reads it; workflow.evaluation turns evaluation on",
    ),
    without_effect("workflow.log_level", LOG),
    without_effect("output.log_level", LOG),
    without_effect("profiling.devices", PROFILER),
    without_effect("profiling.iostat_command", PROFILER),
    without_effect("profiling.darshan_preload", PROFILER),
    without_effect("dataset.data_dir", "no version of DLIO reads it; dataset.data_folder is the folder"),
    without_effect("dataset.num_files", "no version of DLIO reads it; dataset.num_files_train is the number"),
    without_effect("dataset.record-length", SIZE),
    without_effect("dataset.record_length_std", SPREAD),
    without_effect("dataset.eval_num_samples_per_file", EVAL),
    without_effect("dataset.file_list_train", "the names of the files are computed, or those of a catalog"),
    without_effect("dataset.files_per_record", BRANCH),
    without_effect("dataset.original_num_files_train", BRANCH),
    without_effect("dataset.original_num_files_eval", BRANCH),
    without_effect("dataset.num_files_train_on_disk", "dataset.num_files_generated has replaced it"),
    without_effect("dataset.num_files_eval_on_disk", "dataset.num_files_generated has replaced it"),
    without_effect("dataset.synthetic_file_list", "feedline computes file names and never lists a folder"),
    without_effect("dataset.daos_pool", REMOTE),
    without_effect("dataset.daos_cont", REMOTE),
    without_effect("dataset.storage_type", STORAGE),
    without_effect("dataset.storage_root", STORAGE),
    without_effect("dataset.storage_options", STORAGE),
    without_effect("reader.storage_type", STORAGE),
    without_effect("reader.storage_root", STORAGE),
    without_effect("reader.storage_library", STORAGE),
    without_effect("reader.storage_options", STORAGE),
    without_effect("reader.protocol", STORAGE),
    without_effect("reader.prefetch", "reader.prefetch_size has replaced it"),
    without_effect("reader.transformed_sample", "reader.transformed_record_dims has replaced it"),
    without_effect(
        "reader.transformed_sample_type",
        "reader.transformed_record_element_type has replaced it",
    ),
    without_effect("reader.eval_every_step", EVAL),
    without_effect("reader.steps_between_evals", EVAL),
    without_effect("reader.eval_num_samples_per_file", EVAL),
    without_effect("train.batch_size", READER),
    without_effect("train.epoch", "no version of DLIO reads it; train.epochs is the number of epochs"),
    without_effect("train.total_eval_steps", EVAL),
    without_effect("train.communication", BRANCH),
    without_effect("train.compute", BRANCH),
    without_effect("evaluation.eval_every_step", EVAL),
    without_effect("evaluation.steps_between_evals", EVAL),
    without_effect("evaluation.eval_num_samples_per_file", EVAL),
    without_effect("model.transformer.num_layers", "DLIO reads model.num_layers"),
    without_effect("model.zero_stage", "DLIO reads it only below 'model.parallelism'"),
    without_effect("checkpoint.model_datatype", MODEL),
    without_effect("checkpoint.optimizer_datatype", MODEL),
    without_effect("checkpoint.total_training_steps", "DLIO reads it only below 'train'"),
    without_effect(
        "checkpoint.recovery_after_steps",
        "all checkpoints are saved first; checkpoint.num_checkpoints_read is the number to restore afterwards",
    ),
    without_effect("checkpoint.checkpoint_mechanism", "feedline loads no Python classes"),
    without_effect("checkpoint.checkpoint_daos_pool", REMOTE),
    without_effect("checkpoint.checkpoint_daos_cont", REMOTE),
    without_effect("checkpoint.checkpoint_daos_chunk_size", REMOTE),
    without_effect("checkpoint.checkpoint_daos_chunks_limit", REMOTE),
    without_effect("checkpoint.hash_consing", TENSORS),
    without_effect("checkpoint.hash_consing_chunk_size", TENSORS),
    without_effect("checkpoint.ksm_init", TENSORS),
    without_effect("checkpoint.ksm_madv_mergeable_id", TENSORS),
    without_effect("checkpoint.ksm_high_ram_trigger", TENSORS),
    without_effect("checkpoint.ksm_low_ram_exit", TENSORS),
    without_effect("checkpoint.ksm_await_time", TENSORS),
    without_effect("generator.buffer_size", "feedline generates block by block in bounded memory"),
    without_effect(
        "generator.num_workers",
        "DLIO never reads it; reader.write_threads is the number of writers",
    ),
    without_effect("reader.checkpoint_folder", "DLIO reads it only below 'checkpoint'"),
    without_effect("reader.data_loader_root", "DLIO never reads it; storage.storage_root is the folder"),
    without_effect("reader.seed", "DLIO reads it only below 'train'"),
    without_effect("reader.shuffle", "DLIO never reads it; file_shuffle and sample_shuffle set the order"),
    without_effect("storage.endpoint_uris", REMOTE),
    without_effect("storage.load_balance_strategy", REMOTE),
    without_effect("storage.use_mpi_endpoint_distribution", REMOTE),
    without_effect("storage.fsspec_plugin", REMOTE),
    without_effect("storage.fsspec_extra_params", REMOTE),
    without_effect("storage.storage_options.connection_string", REMOTE),
    without_effect("storage.storage_options.account_url", REMOTE),
];
