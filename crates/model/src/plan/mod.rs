//! What will be done: frozen, complete, printable. A plan is a pure function of the spec, the ranks and the host;
//! the engine does what stands here and decides nothing of its own.

#[cfg(test)]
pub(crate) mod bare;
mod cache;
mod data;
mod differences;
mod estimate;
mod idle;
mod loader;
pub(crate) mod store;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

pub use cache::CachePlan;
pub use data::{
    ComputedData, Data, FileBytes, FileSize, FileSource, Listed, ListedSplit, Measure, SizeTables, Split,
};
pub use differences::{Difference, differences};
pub use estimate::{Demand, Estimate, MemoryTerm, SizeRule};
pub use idle::idle;
pub use loader::{Discipline, LoaderPlan, PreprocessPlan, Threads, Window};
pub use store::{Medium, Mode, StorePlan};

use crate::checkpoint::CheckpointPlan;
use crate::ledger::Phase;
use crate::order::{Interleave, Order, Shards, Unit, mix};
use crate::spec::{Access, Shuffle, Spec, Time, Verify};
use crate::units::{Bytes, counted, grouped};

/// What the plan depends on besides the spec.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What the run is called: the workload's name or the file's stem.
    pub workload: &'a str,
    /// Emulated accelerators, over all hosts.
    pub ranks: u64,
    pub hosts: u64,
    /// Memory of one host, measured or as declared.
    pub host_memory_bytes: u64,
    pub cores: u64,
    pub store: &'a StorePlan,
    /// Most memory for buffers and batches on each host; `None`: what they need.
    pub memory: Option<u64>,
    /// Fresh per run; the seed of shuffles that are to be `random`.
    pub entropy: u64,
    /// The format's size arithmetic; `None` for a format that this version cannot write or read yet.
    pub measure: Option<&'a dyn Measure>,
    /// The catalog that lists the files; without one their names are computed.
    pub listed: Option<&'a Listed>,
}

/// Training or evaluation: what each rank reads and does in one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhasePlan {
    pub phase: Phase,
    pub shards: Shards,
    pub order: Order,
    /// Files that a rank takes samples from in turn.
    pub interleave: Interleave,
    /// Emulated work per step.
    pub compute: Time,
    /// Whether all ranks meet after every step.
    pub barrier: bool,
}

/// How batches reach an accelerator's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DevicePlan {
    /// Bytes per second from host to accelerator; `None`: batches are there at once.
    pub copy_bytes_per_second: Option<f64>,
    /// Whether the next batch is copied while the accelerator computes.
    pub overlapped: bool,
}

/// How steps become figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricPlan {
    /// The share of busy time that the accelerators should reach, 0 to 1.
    pub au_target: f64,
    pub exclude_start_steps: u64,
    pub exclude_end_steps: u64,
    /// Nominal bytes per sample, which DLIO's MB/s figures are made of.
    pub record_length_bytes: f64,
}

/// A run, settled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub workload: String,
    pub model: String,
    pub format: String,
    pub store: StorePlan,
    /// How samples are taken out of files.
    pub access: Access,
    pub ranks: u64,
    pub hosts: u64,
    pub epochs: u64,
    /// Seed of content and of compute-time draws.
    pub seed: u64,
    /// How much of what is read is compared with what the files should hold.
    pub verify: Verify,
    pub data: Data,
    pub train: PhasePlan,
    pub eval: Option<EvalPlan>,
    pub loader: LoaderPlan,
    /// What is done about the page cache; `None` where nothing is read through it.
    #[serde(default)]
    pub cache: Option<CachePlan>,
    pub device: DevicePlan,
    pub metric: MetricPlan,
    pub estimate: Estimate,
    /// Checkpoints that training pauses for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointPlan>,
}

/// Evaluation and the epochs after which it happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvalPlan {
    #[serde(flatten)]
    pub phase: PhasePlan,
    pub first_epoch: u64,
    pub every_epochs: u64,
}

impl EvalPlan {
    /// How often it happens in so many epochs.
    pub fn times(&self, epochs: u64) -> u64 {
        (epochs + self.every_epochs).saturating_sub(self.first_epoch) / self.every_epochs
    }

    pub fn follows(&self, epoch: u64) -> bool {
        epoch >= self.first_epoch && (epoch - self.first_epoch).is_multiple_of(self.every_epochs)
    }
}

/// Why there can be no such run. Each is a mistake in what was asked for, found before any I/O.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    #[error("--ranks must be from 1 to {MOST_RANKS}, not {0}")]
    Ranks(u64),
    #[error(
        "--hosts must be at least 1 and divide --ranks: {ranks} ranks cannot be spread evenly over {hosts} hosts"
    )]
    UnevenHosts { ranks: u64, hosts: u64 },
    #[error(
        "{phase}: one step of {ranks} ranks x batch {batch} needs {} samples, but there are only {} \
         ({files} files x {samples_per_file}); lower --ranks or {}, or raise {}",
        grouped(ranks.saturating_mul(*batch)), grouped(files.saturating_mul(*samples_per_file)),
        batch_key(*phase), files_key(*phase)
    )]
    TooFewSamples { phase: Phase, ranks: u64, batch: u64, files: u64, samples_per_file: u64 },
    #[error(
        "train: an epoch has {steps} steps, and output.metric excludes {start} at the start and {end} at the end: no \
         step is left to measure; lower output.metric.exclude_start_steps or exclude_end_steps, or raise \
         dataset.num_files_train or train.total_training_steps"
    )]
    NothingToMeasure { steps: u64, start: u64, end: u64 },
    #[error(
        "train: the data set is too small for {}: {window} steps of an epoch count, and {needed} are needed, \
         {STEPS_PER_BATCH_AHEAD} for each batch that can be ready in advance ({ahead}), so that prefetch does not make \
         the result; raise dataset.num_files_train (or train.total_training_steps), or lower \
         reader.prefetch_size or reader.batch_size",
        counted(*ranks, "rank")
    )]
    WindowTooShort { ranks: u64, window: u64, needed: u64, ahead: u64 },
    #[error(
        "train.total_training_steps asks for {asked} steps per epoch, but the data set allows only {possible}; raise \
         dataset.num_files_train or lower train.total_training_steps"
    )]
    TooManySteps { asked: u64, possible: u64 },
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
        "the data set would have {0} bytes, more than there are addresses for (2^64); lower dataset.num_files_train, \
         num_files_eval or num_files_generated, or the size of a file (dataset.num_samples_per_file, \
         record_length_bytes, record_dims)"
    )]
    TooManyBytes(u128),
    #[error(
        "--memory grants {granted} for buffers and batches, but {}the smallest buffers need {needed}; grant more, or \
         lower --ranks, reader.read_threads or reader.batch_size",
        batch.map(|batch| format!("one batch per rank (of {batch}) and ")).unwrap_or_default()
    )]
    TooLittleMemory { granted: Bytes, needed: Bytes, batch: Option<Bytes> },
    #[error(
        "reader.interleave_cycle has no effect with the {0} loader: only tensorflow takes samples from files in turn"
    )]
    NoInterleave(&'static str),
    #[error("data.{field} is {here} in the plan, but {there} by the workload: they are not of one run")]
    OtherData { field: String, here: String, there: String },
    #[error(
        "reader.drop_caches empties the host's page cache to make it cold, but reader.cache is {0}; take one of the \
         two away"
    )]
    DropsWhatIsWanted(&'static str),
    #[error("this workload trains on nothing: workflow.train is false{hint}")]
    NoTraining { hint: &'static str },
}

/// The keys that give the size of a batch and the number of files of a phase.
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

impl Plan {
    /// Settles everything.
    pub fn resolve(spec: &Spec, request: &Request<'_>) -> Result<Plan, PlanError> {
        check_ranks(request.ranks, request.hosts)?;
        if !spec.workflow.train {
            return Err(PlanError::NoTraining { hint: no_training_hint(spec) });
        }
        let data = match request.listed {
            Some(listed) => Data::of_listed(spec, request.measure, listed)?,
            None => Data::resolve(spec, request.measure)?,
        };
        let train = train_phase(spec, request, &data)?;
        let eval = spec.workflow.evaluation.then(|| eval_phase(spec, request, &data)).transpose()?;
        let loader = LoaderPlan::resolve(spec, request, &data)?;
        let metric = metric(spec, &train)?;
        let estimate = Estimate::new(spec, request, &data, &train, eval.as_ref(), &loader);
        let cache = CachePlan::resolve(spec, request, &loader)?;
        Ok(Plan {
            workload: request.workload.to_owned(),
            model: spec.model.name.clone(),
            format: spec.dataset.format.clone(),
            store: request.store.clone(),
            access: spec.reader.access,
            ranks: request.ranks,
            hosts: request.hosts,
            epochs: spec.train.epochs,
            seed: spec.train.seed,
            verify: spec.reader.verify,
            data,
            train,
            eval,
            loader,
            cache,
            device: device(spec),
            metric,
            estimate,
            checkpoint: None,
        })
    }

    /// Gives a plan that was read back the tables that are not written with it, from the workload that it was made of.
    /// Refused if that workload has another data set.
    pub fn restore(&mut self, spec: &Spec, measure: Option<&dyn Measure>) -> Result<(), PlanError> {
        if self.data.listed().is_some() {
            return Ok(());
        }
        let data = Data::resolve(spec, measure)?;
        if let Some(Difference { field, here, there }) = differences(&self.data, &data).into_iter().next() {
            return Err(PlanError::OtherData { field, here, there });
        }
        self.data = data;
        Ok(())
    }

    /// Identifies the work: two runs with one digest did the same thing in the same order. What depends on the host
    /// alone (estimates, threads) and the run's name are left out.
    pub fn digest(&self) -> String {
        digest(self, &["estimate", "workload", "loader.threads"])
    }

    /// The same with checkpoints, which take memory.
    #[must_use]
    pub fn with_checkpoints(mut self, checkpoint: Option<CheckpointPlan>) -> Plan {
        if let Some(plan) = &checkpoint {
            let keys = "checkpoint.pool_size, checkpoint.files_in_flight or checkpoint.chunk_size";
            self.estimate.add_memory("checkpoint buffers", plan.memory_bytes(), keys);
        }
        Plan { checkpoint, ..self }
    }

    /// The most batches of one rank that can be ready when a step of training ends: read, as far as the metric window
    /// is concerned, in no time.
    pub fn batches_ahead(&self) -> u64 {
        // The copy to the device asks for the next batch while the accelerator computes.
        let copied = self.device.copy_bytes_per_second.is_some() && self.device.overlapped;
        self.loader.batches_ahead(self.train.shards.batch).max(u64::from(copied))
    }

    /// The fewest steps in the metric window with which at most 5 % of its batches can have been ready in advance. The
    /// queues fill before the first step of an epoch, and again whenever training pauses for a checkpoint.
    pub fn steps_to_measure(&self) -> u64 {
        let pauses =
            self.checkpoint.as_ref().map_or(0, |plan| plan.schedule.within_epoch(self.train.shards.steps));
        STEPS_PER_BATCH_AHEAD.saturating_mul(self.batches_ahead().max(1)).saturating_mul(1 + pauses)
    }

    /// Steps of an epoch of training that count for AU and throughput.
    fn window_steps(&self) -> u64 {
        let MetricPlan { exclude_start_steps, exclude_end_steps, .. } = self.metric;
        self.train.shards.steps.saturating_sub(exclude_start_steps.saturating_add(exclude_end_steps))
    }

    /// Refuses a metric window that is too short for what can be ready in advance.
    pub fn check_window(&self) -> Result<(), PlanError> {
        let (ranks, window, needed) = (self.ranks, self.window_steps(), self.steps_to_measure());
        match window < needed {
            true => {
                Err(PlanError::WindowTooShort { ranks, window, needed, ahead: self.batches_ahead().max(1) })
            }
            false => Ok(()),
        }
    }

    /// Samples that the whole run delivers.
    pub fn samples(&self) -> u64 {
        let evals = self
            .eval
            .as_ref()
            .map_or(0, |eval| eval.times(self.epochs).saturating_mul(eval.phase.shards.delivered()));
        self.epochs.saturating_mul(self.train.shards.delivered()).saturating_add(evals)
    }

    /// Whether a phase comes back to a file in one epoch, so that one read may bring what the next one asks for.
    pub fn reads_again(&self, phase: Phase) -> bool {
        self.split(phase).samples_per_file > 1 || self.data.listed().is_some() || !self.data.exact
    }

    /// The phases of an epoch, in order.
    pub fn phases(&self, epoch: u64) -> impl Iterator<Item = &PhasePlan> {
        let eval = self.eval.as_ref().filter(|eval| eval.follows(epoch)).map(|eval| &eval.phase);
        std::iter::once(&self.train).chain(eval)
    }

    /// The plan of a phase.
    pub fn phase(&self, phase: Phase) -> Option<&PhasePlan> {
        match phase {
            Phase::Train => Some(&self.train),
            Phase::Eval => self.eval.as_ref().map(|eval| &eval.phase),
        }
    }

    /// The files that a phase reads.
    pub fn split(&self, phase: Phase) -> &Split {
        match phase {
            Phase::Train => &self.data.train,
            Phase::Eval => &self.data.valid,
        }
    }
}

/// A hash of a plan as it is written, without the fields of these paths.
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

/// Steps to measure for each batch that can be ready in advance.
const STEPS_PER_BATCH_AHEAD: u64 = 20;

/// More accelerators than any machine has; beyond this a number of ranks is a slip of the finger.
const MOST_RANKS: u64 = 1 << 20;

/// Refuses numbers of ranks and hosts that cannot be.
pub fn check_ranks(ranks: u64, hosts: u64) -> Result<(), PlanError> {
    if !(1..=MOST_RANKS).contains(&ranks) {
        return Err(PlanError::Ranks(ranks));
    }
    if hosts == 0 || !ranks.is_multiple_of(hosts) {
        return Err(PlanError::UnevenHosts { ranks, hosts });
    }
    Ok(())
}

fn no_training_hint(spec: &Spec) -> &'static str {
    match (spec.workflow.generate_data, spec.workflow.checkpoint) {
        (_, true) => "; it writes checkpoints only: use 'feedline run' or 'feedline plan'",
        (true, false) => "; to make its data set use 'feedline generate'",
        (false, false) => " and workflow.generate_data is false too",
    }
}

fn train_phase(spec: &Spec, request: &Request<'_>, data: &Data) -> Result<PhasePlan, PlanError> {
    let cap = spec.train.total_training_steps;
    let shards = shards(Phase::Train, &data.train, request.ranks, spec.reader.batch_size)?;
    if let Some(asked) = cap.filter(|asked| *asked > shards.steps) {
        return Err(PlanError::TooManySteps { asked, possible: shards.steps });
    }
    let shards = Shards::new(shards.samples, shards.ranks, shards.batch, cap);
    let order = order(spec, request, data, &data.train);
    let interleave = loader::interleave(spec, data, &data.train, &order);
    Ok(PhasePlan {
        phase: Phase::Train,
        shards,
        order,
        interleave,
        compute: spec.train.computation_time,
        barrier: true,
    })
}

fn eval_phase(spec: &Spec, request: &Request<'_>, data: &Data) -> Result<EvalPlan, PlanError> {
    if data.valid.files == 0 {
        return Err(PlanError::NoEvalFiles);
    }
    let shards = shards(Phase::Eval, &data.valid, request.ranks, spec.reader.batch_size_eval)?;
    // The seed is turned away from training's: the two splits are different files.
    let order = order(spec, request, data, &data.valid);
    let order = Order { seed: mix(order.seed, u64::from_le_bytes(*b"evaluate")), ..order };
    let interleave = loader::interleave(spec, data, &data.valid, &order);
    let phase = PhasePlan {
        phase: Phase::Eval,
        shards,
        order,
        interleave,
        compute: spec.evaluation.eval_time,
        barrier: false,
    };
    Ok(EvalPlan {
        phase,
        first_epoch: spec.evaluation.eval_after_epoch,
        every_epochs: spec.evaluation.epochs_between_evals,
    })
}

fn shards(phase: Phase, split: &Split, ranks: u64, batch: u64) -> Result<Shards, PlanError> {
    let shards = Shards::new(split.samples(), ranks, batch, None);
    if shards.steps == 0 {
        let (files, samples_per_file) = (split.files, split.samples_per_file);
        return Err(PlanError::TooFewSamples { phase, ranks, batch, files, samples_per_file });
    }
    Ok(shards)
}

/// What the shuffle keys promise, within what the format allows to move: single samples where they can be read alone,
/// row groups of parquet; a TFRecord file is read from front to back, and the framework's shuffle buffer mixes samples
/// after they were read, which storage does not see. `random` is fresh in each run, `seed` follows train.seed.
fn order(spec: &Spec, request: &Request<'_>, data: &Data, split: &Split) -> Order {
    let (files, samples) = (spec.reader.file_shuffle, spec.reader.sample_shuffle);
    let whole_files = if files == Shuffle::Off { Unit::None } else { Unit::File };
    let unit = match (samples, data.unit) {
        (Shuffle::Off, _) | (_, Unit::File | Unit::None) => whole_files,
        (_, Unit::Group(rows)) => Unit::Group(rows.clamp(1, split.samples_per_file)),
        (_, Unit::Sample) => Unit::Sample,
    };
    let random = files == Shuffle::Random || samples == Shuffle::Random;
    Order {
        files: split.files,
        samples_per_file: split.samples_per_file,
        unit,
        seed: if random { request.entropy } else { spec.train.seed },
        reshuffle: random || spec.train.seed_change_epoch,
    }
}

fn device(spec: &Spec) -> DevicePlan {
    let rate = spec.train.device_copy_rate;
    DevicePlan {
        copy_bytes_per_second: (rate > 0.0).then_some(rate * 1e9),
        overlapped: spec.train.device_prefetch,
    }
}

fn metric(spec: &Spec, train: &PhasePlan) -> Result<MetricPlan, PlanError> {
    let (start, end) = (spec.output.metric.exclude_start_steps, spec.output.metric.exclude_end_steps);
    let steps = train.shards.steps;
    if start.saturating_add(end) >= steps {
        return Err(PlanError::NothingToMeasure { steps, start, end });
    }
    Ok(MetricPlan {
        au_target: spec.metric.au,
        exclude_start_steps: start,
        exclude_end_steps: end,
        record_length_bytes: data::nominal_record_bytes(spec),
    })
}

#[cfg(test)]
mod tests;
