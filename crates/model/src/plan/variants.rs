//! Variants of a plan, each a new plan: the same work without storage, a few steps of it, the brief run by which the
//! instrument measures itself, and the runs whose times a stall analysis compares.
//!
//! A variant keeps the estimate of the plan that it was made from: it takes no more than that.

use super::{CachePlan, MetricPlan, PhasePlan, Plan, PlanError, PreprocessPlan, StorePlan, TrainingPlan};
use crate::checkpoint::CheckpointPlan;
use crate::order::Shards;
use crate::spec::{CacheState, Preprocess, Time};

/// About how long a calibration takes.
const CALIBRATION_SECONDS: f64 = 1.0;
/// Longer steps are cut to this: what the harness adds to a step weighs more in a short one, so the ceiling found is a
/// lower bound of the real one.
const LONGEST_STEP: f64 = 0.05;
/// Steps when they have no compute time to count by.
const MOST_STEPS: u64 = 4000;

impl Plan {
    /// The same training without storage: from the null backend, with no page cache to prepare and no checkpoints. The
    /// threads stay, since what they cost is part of the instrument's own ceiling.
    #[must_use]
    pub fn on_null_backend(&self) -> Plan {
        let training = self.training.clone().map(TrainingPlan::on_null_backend);
        Plan { training, checkpoint: None, ..self.clone() }
    }

    /// One epoch of training with at most `steps` steps, without evaluation. Refused if no step is left to measure.
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

    /// The same with the page cache in this state before each epoch; as it is where nothing is read through it.
    #[must_use]
    pub fn with_cache(&self, state: CacheState) -> Plan {
        self.with_training(|training| TrainingPlan {
            cache: training.cache.map(|cache| CachePlan { state, drop_host: false, ..cache }),
            ..training
        })
    }

    /// The same with samples that need no preprocessing.
    #[must_use]
    pub fn without_preprocessing(&self) -> Plan {
        self.with_training(TrainingPlan::without_preprocessing)
    }

    /// The same with accelerators that compute nothing.
    #[must_use]
    pub fn without_compute(&self) -> Plan {
        self.with_training(|training| training.with_compute(Time::Constant(0.0)))
    }

    fn with_training(&self, change: impl FnOnce(TrainingPlan) -> TrainingPlan) -> Plan {
        Plan { training: self.training.clone().map(change), ..self.clone() }
    }
}

impl TrainingPlan {
    /// The brief run on the null backend that finds the instrument's own ceiling. What preprocessing and copying cost
    /// is the workload's and not the instrument's.
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
        brief.device.copy_bytes_per_second = None;
        brief
    }

    /// The plan beside checkpoints, which take memory.
    pub(super) fn beside(self, checkpoint: &CheckpointPlan) -> TrainingPlan {
        let keys = "checkpoint.pool_size, checkpoint.files_in_flight or checkpoint.chunk_size";
        let estimate = self.estimate.with_memory("checkpoint buffers", checkpoint.memory_bytes(), keys);
        TrainingPlan { estimate, ..self }
    }

    fn on_null_backend(self) -> TrainingPlan {
        TrainingPlan { store: StorePlan::null(), cache: None, ..self }
    }

    fn probe(self, steps: u64) -> TrainingPlan {
        let Shards { samples, ranks, batch, steps: possible, .. } = self.train.shards;
        let shards = Shards::new(samples, ranks, batch, Some(steps.min(possible)));
        let train = PhasePlan { shards, ..self.train };
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
