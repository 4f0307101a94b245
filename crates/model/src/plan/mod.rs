//! The plan: frozen, complete and printable. A plan is a pure function of the spec, the ranks and the host. The engine
//! executes it and makes no decisions of its own.

#[cfg(test)]
pub(crate) mod bare;
mod cache;
mod data;
mod differences;
mod estimate;
mod idle;
mod loader;
mod replay;
mod requests;
pub(crate) mod store;
mod training;
mod variants;
mod written;

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

pub use cache::CachePlan;
pub use data::{
    ComputedData, Data, FileBytes, FileSize, FileSource, FoundFiles, ListOrigin, Listed, ListedSplit,
    Measure, SizeTables, Split,
};
pub use differences::{FieldDifference, differences};
pub use estimate::{Demand, Estimate, MemoryTerm, SizeRule};
pub use idle::idle;
pub use loader::{Discipline, LoaderPlan, PreprocessPlan, ReadWindow, Threads};
pub use replay::ReplayPlan;
pub use requests::{PARTS_OF_ONE_SIZE, RequestDemand, RequestPlan, WINDOW_BYTES};
pub use store::{Medium, Mode, StorePlan};

use training::STEPS_PER_BATCH_AHEAD;
pub use training::{DevicePlan, EvalPlan, MetricPlan, PhasePlan, TrainingPlan};

use crate::checkpoint::{CheckpointPlan, GeometryError, SaveRequest};
use crate::ledger::Phase;
use crate::spec::Spec;
use crate::units::{Bytes, counted, grouped};

/// What the plan depends on in addition to the spec.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The name of the run: the workload's name or the file's stem.
    pub workload: &'a str,
    /// Emulated accelerators on all hosts.
    pub ranks: u64,
    pub placement: Placement,
    /// Memory of one host, measured or declared.
    pub host_memory_bytes: u64,
    pub cores: u64,
    pub store: &'a StorePlan,
    /// Maximum memory for buffers and batches on each host; `None`: as much as they need.
    pub memory: Option<u64>,
    /// Fresh per run; the seed of `random` shuffles.
    pub entropy: u64,
    /// The format's size arithmetic; `None` for a format that this version cannot write or read yet.
    pub measure: Option<&'a dyn Measure>,
    /// The existing files that are read; without them, names and sizes are computed.
    pub listed: Option<&'a FileSource>,
}

/// How the ranks of a run are spread over hosts and processes. The numbers are those of the host and the process with
/// the most ranks, because a plan must fit on every host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Placement {
    pub hosts: u64,
    /// On all hosts.
    pub processes: u64,
    pub processes_per_host: u64,
    pub ranks_per_host: u64,
    pub ranks_per_process: u64,
}

impl Placement {
    /// Ranks that are spread evenly. If they do not divide, the first processes have one more.
    pub fn even(ranks: u64, hosts: u64, processes_per_host: u64) -> Placement {
        let processes = hosts.saturating_mul(processes_per_host).max(1);
        let (each, more) = (ranks / processes, ranks % processes);
        // The processes with one more rank are on the first hosts.
        let ranks_per_host =
            each.saturating_mul(processes_per_host).saturating_add(more.min(processes_per_host));
        let ranks_per_process = ranks.div_ceil(processes);
        Placement { hosts, processes, processes_per_host, ranks_per_host, ranks_per_process }
    }

    /// Checks that every process has a rank.
    pub fn check(&self, ranks: u64) -> Result<(), PlanError> {
        check_ranks(ranks, self.hosts)?;
        match ranks < self.processes {
            true => Err(PlanError::TooManyProcesses { ranks, processes: self.processes }),
            false => Ok(()),
        }
    }
}

/// Why a run is impossible. Each is a mistake in the request, found before any I/O.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    #[error("--ranks must be from 1 to {MOST_RANKS}, not {0}")]
    Ranks(u64),
    #[error("--hosts must be at least 1, not 0")]
    NoHosts,
    #[error("{ranks} ranks cannot be spread over {hosts} hosts; lower --hosts, or raise --ranks")]
    TooManyHosts { ranks: u64, hosts: u64 },
    #[error(
        "{ranks} ranks cannot be spread over {processes} processes: every process has at least one rank; lower \
         --processes-per-host, or raise --ranks"
    )]
    TooManyProcesses { ranks: u64, processes: u64 },
    #[error(
        "{phase}: one step of {ranks} ranks x batch {batch} needs {} samples, but there are only {} \
         ({files} files x {samples_per_file}); lower --ranks or {}, or raise {}",
        grouped(ranks.saturating_mul(*batch)), grouped(files.saturating_mul(*samples_per_file)),
        batch_key(*phase), files_key(*phase)
    )]
    TooFewSamples { phase: Phase, ranks: u64, batch: u64, files: u64, samples_per_file: u64 },
    #[error(
        "{phase}: every rank gets whole files (compat.shards: dlio), but {files} files of {} on {ranks} ranks fill no \
         batch of {batch} on each; lower --ranks or {}, raise {}, or set compat.shards=feedline",
        counted(*samples_per_file, "sample"), batch_key(*phase), files_key(*phase)
    )]
    TooFewFiles { phase: Phase, ranks: u64, batch: u64, files: u64, samples_per_file: u64 },
    #[error(
        "train: an epoch has {steps} steps, and output.metric excludes {start} at the start and {end} at the end: no \
         step is left to measure; lower output.metric.exclude_start_steps or exclude_end_steps, or raise \
         dataset.num_files_train or train.total_training_steps"
    )]
    NothingToMeasure { steps: u64, start: u64, end: u64 },
    #[error(
        "train: the data set is too small for {}: the metric window has {window} steps, but needs {needed}, \
         {STEPS_PER_BATCH_AHEAD} for each batch that can be ready in advance ({ahead}), so that prefetching does not \
         decide the result; raise dataset.num_files_train (or train.total_training_steps), or lower \
         reader.prefetch_size or reader.batch_size",
        counted(*ranks, "rank")
    )]
    WindowTooShort { ranks: u64, window: u64, needed: u64, ahead: u64 },
    #[error("workflow.evaluation is on, but dataset.num_files_eval is 0: there is nothing to evaluate on")]
    NoEvalFiles,
    #[error(
        "dataset.num_files_generated is {generated}, fewer than the {read} files of dataset.num_files_train"
    )]
    MoreReadThanGenerated { generated: u64, read: u64 },
    #[error("dataset.file_prefix '{0}' must be a plain name: not empty, without '/'")]
    Prefix(String),
    #[error("{0}")]
    Format(String),
    #[error(
        "{phase}: {samples} samples are more than feedline can order (2^48); lower {} or dataset.num_samples_per_file",
        files_key(*phase)
    )]
    TooManySamples { phase: Phase, samples: u128 },
    #[error(
        "the data set would have {0} bytes, more than the maximum of 2^64; lower dataset.num_files_train, \
         num_files_eval or num_files_generated, or the size of a file (dataset.num_samples_per_file, \
         record_length_bytes, record_dims)"
    )]
    TooManyBytes(u128),
    #[error(
        "--memory allows {granted} for buffers and batches, but {}the smallest buffers need {needed}; raise it, or \
         lower --ranks, reader.read_threads or reader.batch_size",
        batch.map(|batch| format!("one batch per rank (of {batch}) and ")).unwrap_or_default()
    )]
    TooLittleMemory { granted: Bytes, needed: Bytes, batch: Option<Bytes> },
    #[error("reader.interleave_cycle has no effect with the {0} loader: only tensorflow interleaves files")]
    NoInterleave(&'static str),
    #[error("data.{field} is {here} in the plan, but {there} in the workload: they belong to different runs")]
    OtherData { field: String, here: String, there: String },
    #[error(
        "reader.drop_caches empties the host's page cache to make it cold, but reader.cache is {0}; remove one of \
         them"
    )]
    DropsWhatIsWanted(&'static str),
    #[error(
        "{0} needs a backend with blocking calls, in which each reader has a thread; set storage.store=posix"
    )]
    NeedsBlockingCalls(&'static str),
    #[error("this workload does not train: workflow.train is false{hint}")]
    NoTraining { hint: &'static str },
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    #[error(
        "there is nothing to do: set checkpoint.num_checkpoints_write or checkpoint.num_checkpoints_read"
    )]
    NothingToSave,
}

/// A hint for a workload that saves checkpoints but does not train.
const ONLY_CHECKPOINTS: &str = "; it writes checkpoints only: use 'feedline run' or 'feedline plan'";

impl PlanError {
    fn no_training(spec: &Spec) -> PlanError {
        let hint = match (spec.workflow.generate_data, spec.workflow.checkpoint) {
            (_, true) => ONLY_CHECKPOINTS,
            (true, false) => "; to write its data set, use 'feedline generate'",
            (false, false) => " and workflow.generate_data is false too",
        };
        PlanError::NoTraining { hint }
    }
}

/// The key for the batch size of a phase.
fn batch_key(phase: Phase) -> &'static str {
    match phase {
        Phase::Train => "reader.batch_size",
        Phase::Eval => "reader.batch_size_eval",
    }
}

fn files_key(phase: Phase) -> &'static str {
    match phase {
        Phase::Train => "dataset.num_files_train",
        Phase::Eval => "dataset.num_files_eval",
    }
}

/// A complete run. It trains, saves checkpoints, or both. A plan is never modified; the constructors in `variants.rs`
/// make variants.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub workload: String,
    pub model: String,
    /// Emulated accelerators on all hosts.
    pub ranks: u64,
    pub hosts: u64,
    /// The keys of `compat` with DLIO's behaviour.
    pub compat: Vec<String>,
    pub training: Option<TrainingPlan>,
    /// Checkpoints that training pauses for or, without training, that are saved and restored on their own.
    pub checkpoint: Option<CheckpointPlan>,
}

/// Memory of a program that does not train, without checkpoint buffers: code, stacks, rings.
const PROGRAM_BYTES: u64 = 12 << 20;

impl Plan {
    /// Makes the plan. `saving` says where checkpoints go; without it none are saved.
    pub fn resolve(
        spec: &Spec,
        request: &Request<'_>,
        saving: Option<&SaveRequest>,
    ) -> Result<Plan, PlanError> {
        request.placement.check(request.ranks)?;
        let training = spec.workflow.train.then(|| TrainingPlan::resolve(spec, request)).transpose()?;
        let checkpoint = saving.map(|saving| CheckpointPlan::resolve(spec, saving)).transpose()?.flatten();
        let training = match (training, &checkpoint) {
            (None, None) => return Err(PlanError::no_training(spec)),
            (None, Some(plan)) if plan.schedule.is_empty() => return Err(PlanError::NothingToSave),
            (Some(training), Some(checkpoint)) => {
                Some(training.beside(checkpoint, request.placement.processes_per_host))
            }
            (training, _) => training,
        };
        Ok(Plan {
            workload: request.workload.to_owned(),
            model: spec.model.name.clone(),
            ranks: request.ranks,
            hosts: request.placement.hosts,
            compat: spec.compat.dlio_keys().into_iter().map(str::to_owned).collect(),
            training,
            checkpoint,
        })
    }

    /// Adds the tables that plan.json omits to a plan that was read back, computed from its workload. An error if the
    /// workload has a different data set.
    pub fn restored(self, spec: &Spec, measure: Option<&dyn Measure>) -> Result<Plan, PlanError> {
        let training = self.training.map(|training| training.restored(spec, measure)).transpose()?;
        Ok(Plan { training, ..self })
    }

    /// The training part; an error if there is none.
    pub fn trained(&self) -> Result<&TrainingPlan, PlanError> {
        self.training.as_ref().ok_or(PlanError::NoTraining { hint: ONLY_CHECKPOINTS })
    }

    /// Identifies the work: two runs with the same digest did the same work in the same order. Excludes the run's name
    /// and whatever depends only on the host (estimates, threads).
    pub fn digest(&self) -> String {
        digest(self, &["estimate", "workload", "loader.threads", "memory_bytes"])
    }

    /// Memory that the run uses on each host.
    pub fn memory_bytes(&self) -> u64 {
        match (&self.training, &self.checkpoint) {
            (Some(training), _) => training.estimate.memory_bytes,
            (None, Some(checkpoint)) => checkpoint.memory_bytes().saturating_add(PROGRAM_BYTES),
            (None, None) => 0,
        }
    }

    /// The I/O backend of the run: the one that training reads from, or the one that keeps checkpoints.
    pub fn store(&self) -> Option<&StorePlan> {
        let of_training = self.training.as_ref().map(|training| &training.store);
        of_training.or_else(|| self.checkpoint.as_ref().map(|checkpoint| &checkpoint.last))
    }

    /// The backend's name as a user writes it.
    pub fn store_name(&self) -> &str {
        self.store().map_or("", |store| &store.text)
    }

    /// Whether the run's backend (see `store`) is a simulated device.
    pub fn is_simulated(&self) -> bool {
        match (&self.training, &self.checkpoint) {
            (Some(training), _) => training.store.is_simulated(),
            (None, Some(checkpoint)) => checkpoint.is_simulated(),
            (None, None) => false,
        }
    }

    /// The rule by which a backend injects faults, if any.
    pub(crate) fn injected_faults(&self) -> Option<&str> {
        let of_training = self.training.as_ref().and_then(|training| training.store.faults.as_deref());
        of_training.or_else(|| self.checkpoint.as_ref()?.injected_faults())
    }

    /// The number of checkpoints to save.
    pub fn saves(&self) -> u64 {
        let Some(checkpoint) = &self.checkpoint else { return 0 };
        let (epochs, steps) =
            self.training.as_ref().map_or((0, 0), |plan| (plan.epochs, plan.train.shards.steps));
        checkpoint.schedule.saves(epochs, steps)
    }
}

/// A hash of the serialized plan, without the fields with these paths.
pub(crate) fn digest(plan: &impl Serialize, without: &[&str]) -> String {
    let mut value = serde_json::to_value(plan).unwrap_or_default();
    for path in without {
        let (parent, key) = path.split_once('.').map_or((None, *path), |(parent, key)| (Some(parent), key));
        let map = match parent {
            Some(parent) => value.get_mut(parent).and_then(|value| value.as_object_mut()),
            None => value.as_object_mut(),
        };
        map.map(|map| map.remove(key));
    }
    let hash = Sha256::digest(value.to_string().as_bytes());
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// More accelerators than any machine has; a larger number is a typo.
pub(crate) const MOST_RANKS: u64 = 1 << 20;

/// Checks the numbers of ranks and hosts.
pub fn check_ranks(ranks: u64, hosts: u64) -> Result<(), PlanError> {
    if !(1..=MOST_RANKS).contains(&ranks) {
        return Err(PlanError::Ranks(ranks));
    }
    match hosts {
        0 => Err(PlanError::NoHosts),
        _ if hosts > ranks => Err(PlanError::TooManyHosts { ranks, hosts }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
