//! Variants of a plan, each a new plan: the same work without storage, a few steps of it, the short calibration run,
//! and the runs that a stall analysis compares.
//!
//! A variant keeps the estimate of the original plan, which is an upper bound.

use super::{
    CachePlan, MetricPlan, PhasePlan, Placement, Plan, PlanError, PreprocessPlan, StorePlan, TrainingPlan,
};
use crate::checkpoint::CheckpointPlan;
use crate::ledger::{BlockRecord, StepRecord};
use crate::spec::{CacheState, Preprocess, Time};

/// The approximate length of a calibration.
const CALIBRATION_SECONDS: f64 = 1.0;
/// Longer steps are shortened to this. The harness weighs more in a short step, so the ceiling found is a lower bound.
const LONGEST_STEP: f64 = 0.05;
/// The number of steps if they have no compute time.
const MOST_STEPS: u64 = 4000;
/// The record of a step. A block of steps has a record of its own, and may be as short as a step.
const STEP_RECORD_BYTES: u64 = (size_of::<StepRecord>() + size_of::<BlockRecord>()) as u64;
/// The record of an epoch, with /proc/meminfo.
const EPOCH_RECORD_BYTES: u64 = 8 << 10;

impl Plan {
    /// The same training without storage: on the null backend, without page cache preparation and checkpoints. The
    /// threads stay, because their cost is part of feedline's own ceiling.
    #[must_use]
    pub fn on_null_backend(&self) -> Plan {
        let training = self.training.clone().map(TrainingPlan::on_null_backend);
        Plan { training, checkpoint: None, ..self.clone() }
    }

    /// One training epoch with at most `steps` steps, without evaluation. An error if no step is left to measure.
    pub fn probe(&self, steps: u64) -> Result<Plan, PlanError> {
        let training = self.trained()?.clone().probe(steps);
        training.metric.check(&training.train)?;
        Ok(Plan { training: Some(training), ..self.clone() })
    }

    /// The same with another metric window.
    pub fn with_window(&self, exclude_start_steps: u64, exclude_end_steps: u64) -> Result<Plan, PlanError> {
        let training = self.trained()?.clone().with_window(exclude_start_steps, exclude_end_steps);
        training.metric.check(&training.train)?;
        Ok(Plan { training: Some(training), ..self.clone() })
    }

    /// The same with a record of every step, whose memory is added to the plan.
    #[must_use]
    pub fn recording_steps(&self, placement: &Placement) -> Plan {
        self.with_training(|training| training.recording_steps(placement))
    }

    /// The same with the page cache in this state before each epoch; unchanged if nothing is read through it.
    #[must_use]
    pub fn with_cache(&self, state: CacheState) -> Plan {
        self.with_training(|training| TrainingPlan {
            cache: training.cache.map(|cache| CachePlan { state, drop_host: false, ..cache }),
            ..training
        })
    }

    /// The same without preprocessing.
    #[must_use]
    pub fn without_preprocessing(&self) -> Plan {
        self.with_training(TrainingPlan::without_preprocessing)
    }

    /// The same without compute time.
    #[must_use]
    pub fn without_compute(&self) -> Plan {
        self.with_training(|training| training.with_compute(Time::Constant(0.0)))
    }

    fn with_training(&self, change: impl FnOnce(TrainingPlan) -> TrainingPlan) -> Plan {
        Plan { training: self.training.clone().map(change), ..self.clone() }
    }
}

impl TrainingPlan {
    /// The short run on the null backend that measures feedline's own ceiling, without preprocessing and copying, which
    /// belong to the workload.
    #[must_use]
    pub fn calibration(&self) -> TrainingPlan {
        let compute = match self.train.compute.mean() > LONGEST_STEP {
            true => Time::Constant(LONGEST_STEP),
            false => self.train.compute,
        };
        let seconds = compute.mean();
        let steps = if seconds > 0.0 { (CALIBRATION_SECONDS / seconds).ceil() as u64 } else { MOST_STEPS };
        let excluded = self.metric.exclude_start_steps.min(1);
        let brief = self.clone().with_compute(compute).probe(steps.clamp(2, MOST_STEPS));
        let mut brief = brief.with_window(excluded, 0).without_preprocessing().on_null_backend();
        (brief.device.copy_bytes_per_second, brief.record_steps) = (None, false);
        brief
    }

    /// Adds the memory of checkpoints to the plan. Every process of a host has its own buffers.
    pub(super) fn beside(self, checkpoint: &CheckpointPlan, processes: u64) -> TrainingPlan {
        let estimate = checkpoint.memory().iter().fold(self.estimate, |estimate, term| {
            estimate.with_memory(&term.what, term.bytes.saturating_mul(processes), &term.lower)
        });
        TrainingPlan { estimate, ..self }
    }

    fn recording_steps(self, placement: &Placement) -> TrainingPlan {
        let (evals, eval_steps) =
            self.eval.as_ref().map_or((0, 0), |eval| (eval.times(self.epochs), eval.phase.shards.steps));
        let steps = self.epochs.saturating_mul(self.train.shards.steps);
        let steps =
            steps.saturating_add(evals.saturating_mul(eval_steps)).saturating_mul(placement.ranks_per_host);
        let epochs = self.epochs.saturating_mul(placement.processes_per_host);
        let bytes =
            steps.saturating_mul(STEP_RECORD_BYTES).saturating_add(epochs.saturating_mul(EPOCH_RECORD_BYTES));
        let what = format!("records of {steps} steps");
        let keys = "train.epochs, dataset.num_files_train or train.total_training_steps";
        TrainingPlan { estimate: self.estimate.with_memory(&what, bytes, keys), record_steps: true, ..self }
    }

    fn on_null_backend(self) -> TrainingPlan {
        TrainingPlan { store: StorePlan::null(), cache: None, ..self }
    }

    fn probe(self, steps: u64) -> TrainingPlan {
        let train = PhasePlan { shards: self.train.shards.at_most(Some(steps)), ..self.train };
        TrainingPlan { train, eval: None, epochs: 1, ..self }
    }

    fn with_window(self, exclude_start_steps: u64, exclude_end_steps: u64) -> TrainingPlan {
        let metric = MetricPlan { exclude_start_steps, exclude_end_steps, ..self.metric };
        TrainingPlan { metric, ..self }
    }

    fn with_compute(self, compute: Time) -> TrainingPlan {
        TrainingPlan { train: PhasePlan { compute, ..self.train }, ..self }
    }

    fn without_preprocessing(self) -> TrainingPlan {
        let mut plan = self;
        plan.loader.preprocess = PreprocessPlan { kind: Preprocess::None, ..plan.loader.preprocess };
        plan
    }
}
