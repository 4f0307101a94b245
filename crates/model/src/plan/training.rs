//! The training part of a plan: the data set, what each rank reads and does in an epoch, how batches are copied to it,
//! and how figures are computed from steps.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::data::{self, Data, FileSource, Measure, Split};
use super::{
    CachePlan, Discipline, Estimate, FieldDifference, LoaderPlan, PlanError, ReplayPlan, Request, StorePlan,
    differences, loader,
};
use crate::checkpoint::CheckpointPlan;
use crate::ledger::Phase;
use crate::order::{DealtFiles, EpochOrder, Interleave, Order, Shards, Unit, mix};
use crate::spec::{Access, Semantics, Shuffle, Spec, Time, Verify};
use crate::times;
use crate::units::Nanos;

/// Training or evaluation: what each rank reads and does in one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhasePlan {
    pub phase: Phase,
    pub shards: Shards,
    pub order: Order,
    /// Files that a rank interleaves.
    pub interleave: Interleave,
    /// Emulated compute time per step.
    pub compute: Time,
    /// Whether all ranks synchronize after every step.
    pub barrier: bool,
}

impl PhasePlan {
    /// The order of one epoch, as it is divided among the ranks. Epochs count from 1.
    pub fn epoch_order(&self, epoch: u64) -> EpochOrder {
        self.order.epoch(epoch).divided(&self.shards)
    }

    /// The position in the order that is read at `position` of a rank's `stretch`, and how many following samples may
    /// come from the same file.
    pub fn place(&self, stretch: &Range<u64>, position: u64) -> (u64, u64) {
        // Files begin at multiples of their samples: in the whole order, or in that of a rank with files of its own.
        let origin = if self.shards.dealt.is_some() { stretch.start } else { 0 };
        let shifted = stretch.start - origin..stretch.end - origin;
        let (place, run) = self.interleave.place(&shifted, self.order.samples_per_file, position - origin);
        (place + origin, run)
    }
}

/// How batches are copied to an accelerator's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DevicePlan {
    /// Bytes per second from host to accelerator; `None`: no copy time.
    pub copy_bytes_per_second: Option<f64>,
    /// Whether the next batch is copied while the accelerator computes.
    pub overlapped: bool,
}

/// How figures are computed from steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricPlan {
    /// The target for accelerator utilization, 0 to 1.
    pub au_target: f64,
    pub exclude_start_steps: u64,
    pub exclude_end_steps: u64,
    /// Nominal bytes per sample, on which DLIO's MB/s figures are based.
    pub record_length_bytes: f64,
}

impl MetricPlan {
    /// Checks that the metric window has steps.
    pub(super) fn check(&self, train: &PhasePlan) -> Result<(), PlanError> {
        let (start, end, steps) = (self.exclude_start_steps, self.exclude_end_steps, train.shards.steps);
        match start.saturating_add(end) >= steps {
            true => Err(PlanError::NothingToMeasure { steps, start, end }),
            false => Ok(()),
        }
    }
}

/// The training part of a plan. Its fields are keys of plan.json at the same level as those of the plan (`written.rs`).
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TrainingPlan {
    pub format: String,
    pub store: StorePlan,
    /// How samples are read from files.
    pub access: Access,
    pub epochs: u64,
    /// Seed of the content and of compute times.
    pub seed: u64,
    /// How much of the data is compared with the expected content.
    pub verify: Verify,
    /// Whether all ranks draw the same compute times.
    #[serde(default)]
    pub shared_draws: bool,
    /// Whether each sample reads the whole file that it is in.
    #[serde(default)]
    pub whole_files: bool,
    pub data: Data,
    pub train: PhasePlan,
    pub eval: Option<EvalPlan>,
    pub loader: LoaderPlan,
    #[serde(default)]
    pub replay: ReplayPlan,
    /// How the page cache is handled; `None` if nothing is read through it.
    #[serde(default)]
    pub cache: Option<CachePlan>,
    pub device: DevicePlan,
    pub metric: MetricPlan,
    pub estimate: Estimate,
    /// Whether each process records every step of its ranks. It changes what is reported, not what is done, so it is
    /// not part of plan.json.
    #[serde(skip)]
    pub record_steps: bool,
}

/// Evaluation, and the epochs after which it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvalPlan {
    #[serde(flatten)]
    pub phase: PhasePlan,
    pub first_epoch: u64,
    pub every_epochs: u64,
}

impl EvalPlan {
    /// How often it runs in this number of epochs.
    pub fn times(&self, epochs: u64) -> u64 {
        (epochs + self.every_epochs).saturating_sub(self.first_epoch) / self.every_epochs
    }

    pub fn follows(&self, epoch: u64) -> bool {
        epoch >= self.first_epoch && (epoch - self.first_epoch).is_multiple_of(self.every_epochs)
    }
}

impl TrainingPlan {
    /// Makes the training plan of a workload.
    pub fn resolve(spec: &Spec, request: &Request<'_>) -> Result<TrainingPlan, PlanError> {
        request.placement.check(request.ranks)?;
        if !spec.workflow.train {
            return Err(PlanError::no_training(spec));
        }
        let data = match request.listed {
            Some(FileSource::Listed(listed)) => Data::of_listed(spec, request.measure, listed)?,
            Some(FileSource::Found(found)) => Data::of_found(spec, request.measure, found)?,
            Some(FileSource::Computed(_) | FileSource::Unrestored) | None => {
                Data::resolve(spec, request.measure)?
            }
        };
        let train = train_phase(spec, request, &data)?;
        let eval = spec.workflow.evaluation.then(|| eval_phase(spec, request, &data)).transpose()?;
        let loader = LoaderPlan::resolve(spec, request, &data)?;
        let metric = metric(spec, &train)?;
        let estimate = Estimate::new(spec, request, &data, &train, eval.as_ref(), &loader);
        let cache = CachePlan::resolve(spec, request, &loader)?;
        Ok(TrainingPlan {
            format: spec.dataset.format.clone(),
            store: request.store.clone(),
            access: spec.reader.access,
            epochs: spec.train.epochs,
            seed: spec.train.seed,
            verify: spec.reader.verify,
            whole_files: spec.reads_whole_files(),
            shared_draws: spec.compat.draws == Semantics::Dlio,
            data,
            train,
            eval,
            loader,
            replay: ReplayPlan::resolve(spec, request.store)?,
            cache,
            device: device(spec),
            metric,
            estimate,
            record_steps: false,
        })
    }

    /// The compute time of a step of a rank.
    pub fn compute_time(&self, phase: &PhasePlan, epoch: u64, rank: u64, step: u64) -> Nanos {
        let rank = if self.shared_draws { 0 } else { rank };
        times::draw(&phase.compute, self.seed, epoch, rank, step)
    }

    /// Ranks that train.
    pub fn ranks(&self) -> u64 {
        self.train.shards.ranks
    }

    /// Adds the tables that plan.json omits, computed from the workload of the plan. An error if the workload has a
    /// different data set.
    pub(super) fn restored(
        self,
        spec: &Spec,
        measure: Option<&dyn Measure>,
    ) -> Result<TrainingPlan, PlanError> {
        if self.data.listed().is_some() {
            return Ok(self);
        }
        let data = Data::resolve(spec, measure)?;
        match differences(&self.data, &data).into_iter().next() {
            Some(FieldDifference { field, here, there }) => Err(PlanError::OtherData { field, here, there }),
            None => Ok(TrainingPlan { data, ..self }),
        }
    }

    /// The maximum number of batches of one rank that can be ready when a training step ends. For the metric window,
    /// reading them took no time.
    pub(crate) fn batches_ahead(&self) -> u64 {
        // The copy to the device requests the next batch while the accelerator computes.
        let copied = self.device.copy_bytes_per_second.is_some() && self.device.overlapped;
        self.loader.batches_ahead(self.train.shards.batch).max(u64::from(copied))
    }

    /// The minimum number of steps in the metric window such that at most 5 % of its batches can have been prefetched
    /// before it. Queues fill before the first step of an epoch, and whenever training pauses for a checkpoint.
    pub fn steps_to_measure(&self, checkpoint: Option<&CheckpointPlan>) -> u64 {
        let pauses = checkpoint.map_or(0, |plan| plan.schedule.within_epoch(self.train.shards.steps));
        STEPS_PER_BATCH_AHEAD.saturating_mul(self.batches_ahead().max(1)).saturating_mul(1 + pauses)
    }

    /// Steps of a training epoch that do not count.
    pub(crate) fn excluded_steps(&self) -> u64 {
        self.metric.exclude_start_steps.saturating_add(self.metric.exclude_end_steps)
    }

    /// Steps of a training epoch in the metric window.
    pub fn window_steps(&self) -> u64 {
        self.train.shards.steps.saturating_sub(self.excluded_steps())
    }

    /// Checks that the metric window is long enough for the batches that can be ready in advance.
    pub fn check_window(&self, checkpoint: Option<&CheckpointPlan>) -> Result<(), PlanError> {
        let (ranks, window, needed) = (self.ranks(), self.window_steps(), self.steps_to_measure(checkpoint));
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

    /// Whether a phase reads a file more than once in an epoch, so that one read may load pages that the next one
    /// needs.
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

/// Steps to measure per batch that can be ready in advance.
pub(super) const STEPS_PER_BATCH_AHEAD: u64 = 20;

fn train_phase(spec: &Spec, request: &Request<'_>, data: &Data) -> Result<PhasePlan, PlanError> {
    let cap = spec.train.total_training_steps;
    let shards = shards(spec, Phase::Train, &data.train, request.ranks, spec.reader.batch_size)?.at_most(cap);
    let order = order(spec, request, data, &data.train, &shards);
    let interleave = loader::interleave(spec, request, data, &data.train, &order);
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
    let shards = shards(spec, Phase::Eval, &data.valid, request.ranks, spec.reader.batch_size_eval)?;
    // Differs from the seed of training: the two splits are different files.
    let order = order(spec, request, data, &data.valid, &shards);
    let order = Order { seed: mix(order.seed, u64::from_le_bytes(*b"evaluate")), ..order };
    let interleave = loader::interleave(spec, request, data, &data.valid, &order);
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
        // DLIO adds 0 to the epoch of the next evaluation, so every further epoch is evaluated.
        every_epochs: spec.evaluation.epochs_between_evals.max(1),
    })
}

fn shards(spec: &Spec, phase: Phase, split: &Split, ranks: u64, batch: u64) -> Result<Shards, PlanError> {
    let (files, samples_per_file) = (split.files, split.samples_per_file);
    let shards = match spec.compat.shards {
        Semantics::Feedline => Shards::new(split.samples(), ranks, batch, None),
        Semantics::Dlio => Shards::of_files(files, samples_per_file, ranks, batch),
    };
    if shards.steps == 0 {
        if shards.dealt.is_some() {
            return Err(PlanError::TooFewFiles { phase, ranks, batch, files, samples_per_file });
        }
        return Err(PlanError::TooFewSamples { phase, ranks, batch, files, samples_per_file });
    }
    Ok(shards)
}

/// The order of every epoch of a phase.
fn order(spec: &Spec, request: &Request<'_>, data: &Data, split: &Split, shards: &Shards) -> Order {
    // Files that no rank has are not shuffled among the others.
    let dealt = shards.dealt.map(|DealtFiles { files_per_rank }| files_per_rank * shards.ranks);
    let order = match spec.compat.order {
        Semantics::Feedline => requested_order(spec, request, data, split),
        Semantics::Dlio => dlio_order(spec, split),
    };
    Order { files: dealt.unwrap_or(split.files), ..order }
}

/// DLIO's order. Only whole files move: lists of samples are shuffled, but not used. TensorFlow lists tfrecord files
/// before they are shuffled.
fn dlio_order(spec: &Spec, split: &Split) -> Order {
    let listed = loader::discipline(spec) == Discipline::Tensorflow && spec.dataset.format == "tfrecord";
    let shuffles = spec.reader.file_shuffle != Shuffle::Off && !listed;
    Order {
        files: split.files,
        samples_per_file: split.samples_per_file,
        unit: if shuffles { Unit::File } else { Unit::None },
        seed: spec.train.seed,
        reshuffle: spec.train.seed_change_epoch,
    }
}

/// The order that the shuffle keys request, as far as the format allows: single samples if they can be read alone, and
/// row groups of Parquet. A TFRecord file is read from start to end; the framework's shuffle buffer mixes samples after
/// they were read, which does not affect storage. `random` is fresh in each run; `seed` follows train.seed.
fn requested_order(spec: &Spec, request: &Request<'_>, data: &Data, split: &Split) -> Order {
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
    let metric = MetricPlan {
        au_target: spec.metric.au,
        exclude_start_steps: spec.output.metric.exclude_start_steps,
        exclude_end_steps: spec.output.metric.exclude_end_steps,
        record_length_bytes: data::nominal_record_bytes(spec),
    };
    metric.check(train)?;
    Ok(metric)
}
