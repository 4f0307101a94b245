//! The spec: the user's request, typed and complete. Fields have the names of DLIO's keys. Each field states its key
//! once; reading and writing both use that line, so they cannot diverge.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::check::Setting;
use super::error::SpecError;
use super::names::{
    Access, CacheProof, CacheState, CheckpointMode, Datatype, Framework, Loader, OnError, PlottedFigure,
    Preprocess, Readahead, Retain, SaveMode, Semantics, Shuffle, StorageType, Verify,
};
use super::request_sizes::RequestSizes;
use super::time::Time;
use crate::secret::Secret;
use crate::shape::Element;

/// The checked settings by key; reading a field removes its setting.
#[derive(Debug)]
pub(super) struct Settings(pub BTreeMap<&'static str, Setting>);

impl Settings {
    fn take<F: SpecField>(&mut self, key: &'static str) -> Result<F, SpecError> {
        self.0.remove(key).and_then(F::from_setting).ok_or_else(|| SpecError::Table(key.into()))
    }
}

/// A type of a field of the spec.
trait SpecField: Sized {
    fn from_setting(setting: Setting) -> Option<Self>;
    fn to_setting(&self) -> Setting;
}

macro_rules! spec {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$field_doc:meta])* $field:ident : $type:ty = $key:literal,)*
        $(; $($(#[$part_doc:meta])* $part:ident : $part_type:ident,)*)?
    })+) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
            $($($(#[$part_doc])* pub $part: $part_type,)*)?
        }

        impl $name {
            pub(super) fn read(settings: &mut Settings) -> Result<$name, SpecError> {
                Ok($name {
                    $($field: settings.take($key)?,)*
                    $($($part: $part_type::read(settings)?,)*)?
                })
            }

            pub(super) fn write(&self, out: &mut Vec<(&'static str, Setting)>) {
                $(out.push(($key, self.$field.to_setting()));)*
                $($(self.$part.write(out);)*)?
            }
        }
    )+ };
}

spec! {
    /// The user's request, with all defaults filled in.
    Spec {
        framework: Framework = "framework",
        ;
        model: ModelSpec,
        workflow: WorkflowSpec,
        dataset: DatasetSpec,
        reader: ReaderSpec,
        train: TrainSpec,
        evaluation: EvaluationSpec,
        checkpoint: CheckpointSpec,
        storage: StorageSpec,
        output: OutputSpec,
        metric: MetricSpec,
        sweep: SweepSpec,
        compat: CompatSpec,
    }
    ModelSpec {
        name: String = "model.name",
        r#type: Option<String> = "model.type",
        model_size_bytes: u64 = "model.model_size_bytes",
        model_datatype: Datatype = "model.model_datatype",
        optimizer_datatype: Datatype = "model.optimizer_datatype",
        optimization_groups: Vec<u64> = "model.optimization_groups",
        /// -1: no layer state.
        num_layers: i64 = "model.num_layers",
        layer_parameters: Vec<u64> = "model.layer_parameters",
        ;
        parallelism: ParallelismSpec,
        transformer: TransformerSpec,
    }
    ParallelismSpec {
        tensor: u64 = "model.parallelism.tensor",
        pipeline: u64 = "model.parallelism.pipeline",
        /// -1: ranks / (tensor * pipeline).
        data: i64 = "model.parallelism.data",
        zero_stage: u64 = "model.parallelism.zero_stage",
    }
    TransformerSpec {
        vocab_size: u64 = "model.transformer.vocab_size",
        hidden_size: u64 = "model.transformer.hidden_size",
        ffn_hidden_size: u64 = "model.transformer.ffn_hidden_size",
        num_attention_heads: u64 = "model.transformer.num_attention_heads",
        num_kv_heads: u64 = "model.transformer.num_kv_heads",
    }
    WorkflowSpec {
        generate_data: bool = "workflow.generate_data",
        train: bool = "workflow.train",
        evaluation: bool = "workflow.evaluation",
        checkpoint: bool = "workflow.checkpoint",
    }
    DatasetSpec {
        /// A name that DLIO knows; the format registry decides whether it can be read.
        format: String = "dataset.format",
        data_folder: String = "dataset.data_folder",
        file_prefix: String = "dataset.file_prefix",
        num_files_train: u64 = "dataset.num_files_train",
        num_files_eval: u64 = "dataset.num_files_eval",
        /// The N of the file names; `None`: `num_files_train`.
        num_files_generated: Option<u64> = "dataset.num_files_generated",
        /// `None`: the catalog next to the data, if there is one; `off`: none.
        catalog: Option<String> = "dataset.catalog",
        num_samples_per_file: u64 = "dataset.num_samples_per_file",
        num_subfolders_train: u64 = "dataset.num_subfolders_train",
        num_subfolders_eval: u64 = "dataset.num_subfolders_eval",
        /// May have a fraction: resnet50 has 114660.07.
        record_length_bytes: f64 = "dataset.record_length_bytes",
        record_length_bytes_stdev: f64 = "dataset.record_length_bytes_stdev",
        size_law: String = "dataset.size_law",
        /// Set with the lognormal law only.
        size_sigma: Option<f64> = "dataset.size_sigma",
        /// Share of the content that a compressor can remove, 0 to 0.95.
        compressible: f64 = "dataset.compressible",
        /// Empty: the length applies.
        record_dims: Vec<u64> = "dataset.record_dims",
        record_element_type: Element = "dataset.record_element_type",
        /// The format registry decides how a format applies it.
        compression: String = "dataset.compression",
        compression_level: u64 = "dataset.compression_level",
        ;
        hdf5: Hdf5Spec,
        parquet: ParquetSpec,
    }
    Hdf5Spec {
        /// Empty: the data is not chunked.
        chunk_dims: Vec<u64> = "dataset.hdf5.chunk_dims",
        num_dset_per_record: u64 = "dataset.hdf5.num_dset_per_record",
        /// Empty: not resizable.
        max_shape: Vec<u64> = "dataset.hdf5.max_shape",
    }
    ParquetSpec {
        /// Empty: one column `data` of bytes.
        columns: Vec<Column> = "dataset.parquet.columns",
        row_group_size: u64 = "dataset.parquet.row_group_size",
    }
    ReaderSpec {
        data_loader: Loader = "reader.data_loader",
        batch_size: u64 = "reader.batch_size",
        batch_size_eval: u64 = "reader.batch_size_eval",
        /// 0 requests reading inside the training process; the plan uses one reader instead.
        read_threads: u64 = "reader.read_threads",
        /// The maximum of the number that replaces 1 by DLIO's rule.
        max_auto_threads: u64 = "reader.max_auto_threads",
        write_threads: u64 = "reader.write_threads",
        prefetch_size: u64 = "reader.prefetch_size",
        file_shuffle: Shuffle = "reader.file_shuffle",
        sample_shuffle: Shuffle = "reader.sample_shuffle",
        transfer_size: Option<u64> = "reader.transfer_size",
        requests: RequestSizes = "reader.requests",
        rereads: u64 = "reader.rereads",
        opens_per_sample: u64 = "reader.opens_per_sample",
        stats_per_sample: u64 = "reader.stats_per_sample",
        /// Of a rank; `None`: no limit.
        in_flight_limit: Option<u64> = "reader.in_flight_limit",
        /// Per phase.
        start_time: Time = "reader.start_time",
        start_once: bool = "reader.start_once",
        access: Access = "reader.access",
        odirect: bool = "reader.odirect",
        readahead: Readahead = "reader.readahead",
        cache: CacheState = "reader.cache",
        cache_proof: CacheProof = "reader.cache_proof",
        drop_caches: bool = "reader.drop_caches",
        retain: Retain = "reader.retain",
        verify: Verify = "reader.verify",
        ordered: bool = "reader.ordered",
        shuffle_size: u64 = "reader.shuffle_size",
        /// `None`: by loader and format.
        interleave_cycle: Option<u64> = "reader.interleave_cycle",
        interleave_block: u64 = "reader.interleave_block",
        computation_threads: u64 = "reader.computation_threads",
        preprocess: Preprocess = "reader.preprocess",
        /// Per sample.
        preprocess_time: Time = "reader.preprocess_time",
        /// `None`: all samples take the same time.
        preprocess_bytes: Option<f64> = "reader.preprocess_bytes",
        preprocess_threads: Option<u64> = "reader.preprocess_threads",
        preprocess_slow_share: f64 = "reader.preprocess_slow_share",
        preprocess_slow_factor: f64 = "reader.preprocess_slow_factor",
        on_error: OnError = "reader.on_error",
        error_limit: u64 = "reader.error_limit",
        /// Seconds; 0 waits forever.
        stall_timeout: f64 = "reader.stall_timeout",
    }
    TrainSpec {
        epochs: u64 = "train.epochs",
        /// Per step.
        computation_time: Time = "train.computation_time",
        /// Per step.
        handover_time: Time = "train.handover_time",
        /// Maximum steps of one epoch.
        total_training_steps: Option<u64> = "train.total_training_steps",
        seed: u64 = "train.seed",
        seed_change_epoch: bool = "train.seed_change_epoch",
        /// GB/s from host to accelerator; 0: no copy time.
        device_copy_rate: f64 = "train.device_copy_rate",
        device_prefetch: bool = "train.device_prefetch",
    }
    EvaluationSpec {
        /// Per step.
        eval_time: Time = "evaluation.eval_time",
        eval_after_epoch: u64 = "evaluation.eval_after_epoch",
        epochs_between_evals: u64 = "evaluation.epochs_between_evals",
    }
    CheckpointSpec {
        checkpoint_folder: String = "checkpoint.checkpoint_folder",
        checkpoint_after_epoch: u64 = "checkpoint.checkpoint_after_epoch",
        epochs_between_checkpoints: u64 = "checkpoint.epochs_between_checkpoints",
        /// -1: count epochs; 0: never.
        steps_between_checkpoints: i64 = "checkpoint.steps_between_checkpoints",
        fsync: bool = "checkpoint.fsync",
        time_between_checkpoints: f64 = "checkpoint.time_between_checkpoints",
        num_checkpoints_write: i64 = "checkpoint.num_checkpoints_write",
        num_checkpoints_read: i64 = "checkpoint.num_checkpoints_read",
        /// By how many ranks; 0: each rank restores its own part.
        recovery_rank_shift: u64 = "checkpoint.recovery_rank_shift",
        rank_sync: bool = "checkpoint.rank_sync",
        mode: CheckpointMode = "checkpoint.mode",
        mode_of_save: SaveMode = "checkpoint.mode_of_save",
        /// `None`: the backend of the run.
        store: Option<String> = "checkpoint.store",
        /// The fast tier before the last one.
        burst_folder: Option<String> = "checkpoint.burst_folder",
        /// Its I/O backend; `None`: that of the last tier.
        burst_store: Option<String> = "checkpoint.burst_store",
        burst_slots: u64 = "checkpoint.burst_slots",
        /// Bytes per second; `None`: no limit.
        drain_rate: Option<u64> = "checkpoint.drain_rate",
        pool_size: u64 = "checkpoint.pool_size",
        /// `None`: all.
        keep_last: Option<u64> = "checkpoint.keep_last",
        files_in_flight: u64 = "checkpoint.files_in_flight",
        chunk_size: u64 = "checkpoint.chunk_size",
        serialize_time: f64 = "checkpoint.serialize_time",
    }
    StorageSpec {
        storage_type: StorageType = "storage.storage_type",
        storage_root: String = "storage.storage_root",
        /// `None`: by storage_type and reader.odirect.
        store: Option<String> = "storage.store",
        ;
        objects: ObjectSpec,
    }
    /// How to reach an object store. Without a value, the environment and the service's own defaults decide.
    ObjectSpec {
        endpoint_uris: Vec<String> = "storage.endpoint_uris",
        /// `None`: all of them.
        endpoint_count: Option<u64> = "storage.endpoint_count",
        use_mpi_endpoint_distribution: bool = "storage.use_mpi_endpoint_distribution",
        /// Wins over `account_name`.
        account: Option<String> = "storage.account",
        account_key: Option<Secret> = "storage.account_key",
        sas_token: Option<Secret> = "storage.sas_token",
        anonymous: bool = "storage.anonymous",
        ca_bundle: Option<String> = "storage.ca_bundle",
        proxy: Option<Secret> = "storage.proxy",
        requests_in_flight: u64 = "storage.requests_in_flight",
        part_size: u64 = "storage.part_size",
        parts_in_flight: u64 = "storage.parts_in_flight",
        /// Wins over `s3_max_attempts`.
        retry_attempts: Option<u64> = "storage.retry_attempts",
        retry_deadline: f64 = "storage.retry_deadline",
        silence_timeout: f64 = "storage.silence_timeout",
        endpoint_url: Option<String> = "storage.storage_options.endpoint_url",
        secure: bool = "storage.storage_options.secure",
        region: Option<String> = "storage.storage_options.region",
        /// Whether paths contain the bucket even if no endpoint is given.
        s3_force_path_style: bool = "storage.storage_options.s3_force_path_style",
        uri_scheme: String = "storage.storage_options.uri_scheme",
        use_full_object_uri: bool = "storage.storage_options.use_full_object_uri",
        access_key_id: Option<Secret> = "storage.storage_options.access_key_id",
        secret_access_key: Option<Secret> = "storage.storage_options.secret_access_key",
        session_token: Option<Secret> = "storage.storage_options.session_token",
        s3_profile: Option<String> = "storage.storage_options.s3_profile",
        connection_string: Option<Secret> = "storage.storage_options.connection_string",
        account_url: Option<String> = "storage.storage_options.account_url",
        account_name: Option<String> = "storage.storage_options.account_name",
        /// Per reader; the smaller of the two counts.
        prefetch_window: Option<u64> = "storage.storage_options.prefetch_window",
        max_outstanding: Option<u64> = "storage.storage_options.max_outstanding",
        s3_max_attempts: u64 = "storage.storage_options.s3_max_attempts",
    }
    OutputSpec {
        folder: Option<String> = "output.folder",
        /// The name of the log that the DLIO front end writes.
        log_file: String = "output.log_file",
        /// Whether the DLIO front end fails if the verdict is invalid.
        strict: bool = "output.strict",
        ;
        metric: OutputMetricSpec,
    }
    OutputMetricSpec {
        exclude_start_steps: u64 = "output.metric.exclude_start_steps",
        exclude_end_steps: u64 = "output.metric.exclude_end_steps",
    }
    MetricSpec {
        /// The target AU, from 0 to 1.
        au: f64 = "metric.au",
    }
    /// Whose behaviour the run has where feedline deliberately differs from DLIO.
    CompatSpec {
        order: Semantics = "compat.order",
        shards: Semantics = "compat.shards",
        whole_files: Semantics = "compat.whole_files",
        read_threads: Semantics = "compat.read_threads",
        prefetch: Semantics = "compat.prefetch",
        cache: Semantics = "compat.cache",
        verify: Semantics = "compat.verify",
        draws: Semantics = "compat.draws",
        eval_figures: Semantics = "compat.eval_figures",
        compression: Semantics = "compat.compression",
        columns: Semantics = "compat.columns",
        record_length: Semantics = "compat.record_length",
        model_size: Semantics = "compat.model_size",
        checkpoint_step: Semantics = "compat.checkpoint_step",
        fsync: Semantics = "compat.fsync",
        restore_cache: Semantics = "compat.restore_cache",
    }
    /// What `feedline sweep` does with this workload if its flags do not say.
    SweepSpec {
        /// The axes of the grid, each as `KEY=VALUE,VALUE,..`.
        over: Vec<String> = "sweep.over",
        repeat: u64 = "sweep.repeat",
        /// `None`: by what the sweep compares.
        plot: Option<PlottedFigure> = "sweep.plot",
    }
}

/// One column of a parquet row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    pub dtype: String,
    /// Elements per row.
    pub size: u64,
    /// Whether training reads it.
    pub read: bool,
}

/// A field whose setting is one variant, converted by a move.
macro_rules! plain_fields {
    ($($type:ty => $variant:ident),+ $(,)?) => { $(
        impl SpecField for $type {
            fn from_setting(setting: Setting) -> Option<Self> {
                match setting { Setting::$variant(value) => Some(value), _ => None }
            }
            fn to_setting(&self) -> Setting { Setting::$variant(self.clone()) }
        }
    )+ };
}
plain_fields! {
    bool => Flag, i64 => Integer, f64 => Number, String => Text, Time => Time, Vec<Column> => Columns,
    RequestSizes => Requests,
    Vec<String> => Texts, Secret => Secret,
}

/// A field with a fixed set of words.
macro_rules! word_fields {
    ($($type:ty),+ $(,)?) => { $(
        impl SpecField for $type {
            fn from_setting(setting: Setting) -> Option<Self> {
                match setting { Setting::Text(word) => <$type>::named(&word), _ => None }
            }
            fn to_setting(&self) -> Setting { Setting::Text(self.name().into()) }
        }
    )+ };
}
word_fields! {
    Access, CacheProof, CacheState, Framework, Loader, Shuffle, StorageType, Datatype, CheckpointMode, Element, OnError,
    PlottedFigure, Preprocess, Readahead, Retain, SaveMode, Verify,
}

/// feedline's behaviour is the default, so it is not written.
impl SpecField for Semantics {
    fn from_setting(setting: Setting) -> Option<Self> {
        match setting {
            Setting::Nothing => Some(Semantics::Feedline),
            Setting::Text(word) => Semantics::named(&word),
            _ => None,
        }
    }

    fn to_setting(&self) -> Setting {
        match self {
            Semantics::Feedline => Setting::Nothing,
            Semantics::Dlio => Setting::Text(self.name().into()),
        }
    }
}

/// Counts fit into `i64` because of the bounds of their kinds.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl SpecField for u64 {
    fn from_setting(setting: Setting) -> Option<Self> {
        i64::from_setting(setting).and_then(|number| u64::try_from(number).ok())
    }

    fn to_setting(&self) -> Setting {
        Setting::Integer(signed(*self))
    }
}

/// DLIO's -1, 0 and null all mean "none".
impl SpecField for Option<u64> {
    fn from_setting(setting: Setting) -> Option<Self> {
        match setting {
            Setting::Nothing => Some(None),
            Setting::Integer(number) => Some(u64::try_from(number).ok().filter(|count| *count > 0)),
            _ => None,
        }
    }

    fn to_setting(&self) -> Setting {
        self.map_or(Setting::Nothing, |count| Setting::Integer(signed(count)))
    }
}

/// An optional field.
macro_rules! optional_fields {
    ($($type:ty),+ $(,)?) => { $(
        impl SpecField for Option<$type> {
            fn from_setting(setting: Setting) -> Option<Self> {
                match setting {
                    Setting::Nothing => Some(None),
                    setting => <$type>::from_setting(setting).map(Some),
                }
            }
            fn to_setting(&self) -> Setting {
                self.as_ref().map_or(Setting::Nothing, SpecField::to_setting)
            }
        }
    )+ };
}
optional_fields! { f64, String, Secret, PlottedFigure }

impl SpecField for Vec<u64> {
    fn from_setting(setting: Setting) -> Option<Self> {
        match setting {
            Setting::Integers(items) => items.into_iter().map(|item| u64::try_from(item).ok()).collect(),
            _ => None,
        }
    }

    fn to_setting(&self) -> Setting {
        Setting::Integers(self.iter().copied().map(signed).collect())
    }
}
