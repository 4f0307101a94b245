//! What a replayed job does in addition to reading every sample once: the requests of a sample, repeated reads, calls
//! for metadata, locks, and time that neither storage nor accelerator takes. A plan without any of it has no such part.

use serde::{Deserialize, Serialize};

use super::{PhasePlan, PlanError, StorePlan, Threads, TrainingPlan};
use crate::order::mix;
use crate::spec::{RequestSizes, Spec, Time};
use crate::times;
use crate::units::Nanos;

/// Seeds of the draws, so that they differ from those of the compute time.
const HANDOVER_DRAWS: u64 = 0x68_616e_646f_7665;
const START_DRAWS: u64 = 0x73_7461_7274;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayPlan {
    /// The requests of each range that a sample consists of.
    pub requests: RequestSizes,
    /// How often the bytes of a sample are read.
    pub reads_of_sample: u64,
    /// Opens and stats of the file for each visit to it. Without opens, a reader keeps its file open.
    pub opens_per_sample: u64,
    pub stats_per_sample: u64,
    /// Fetches of a rank that are in flight at once at most.
    pub in_flight_limit: Option<u64>,
    /// From the beginning of a phase until its readers start.
    pub start: Time,
    /// Whether only the first epoch begins with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub start_once: bool,
    /// From a batch that is ready to the step that uses it.
    pub handover: Time,
}

impl Default for ReplayPlan {
    fn default() -> ReplayPlan {
        ReplayPlan {
            requests: RequestSizes::default(),
            reads_of_sample: 1,
            opens_per_sample: 1,
            stats_per_sample: 0,
            in_flight_limit: None,
            start: Time::Constant(0.0),
            start_once: false,
            handover: Time::Constant(0.0),
        }
    }
}

impl ReplayPlan {
    pub(super) fn resolve(spec: &Spec, store: &StorePlan) -> Result<ReplayPlan, PlanError> {
        let reader = &spec.reader;
        let plan = ReplayPlan {
            requests: reader.requests.clone(),
            reads_of_sample: reader.rereads,
            opens_per_sample: reader.opens_per_sample,
            stats_per_sample: reader.stats_per_sample,
            in_flight_limit: reader.in_flight_limit,
            start: reader.start_time,
            start_once: reader.start_once,
            handover: spec.train.handover_time,
        };
        let blocks = store.threads == Threads::PerReader && !store.is_objects();
        match plan.blocking_key().filter(|_| !blocks) {
            Some(key) => Err(PlanError::NeedsBlockingCalls(key)),
            None => Ok(plan),
        }
    }

    /// A key that only a backend can honour in which each reader has a thread that waits for its calls.
    fn blocking_key(&self) -> Option<&'static str> {
        [
            ("reader.opens_per_sample", self.opens_per_sample != 1),
            ("reader.stats_per_sample", self.stats_per_sample > 0),
            ("reader.in_flight_limit", self.in_flight_limit.is_some()),
        ]
        .into_iter()
        .find_map(|(key, given)| given.then_some(key))
    }

    pub(super) fn is_default(&self) -> bool {
        *self == ReplayPlan::default()
    }

    /// Whether samples are read as their format says.
    pub fn reads_as_formatted(&self) -> bool {
        self.requests.is_empty() && self.reads_of_sample == 1
    }
}

impl TrainingPlan {
    /// How long a batch takes from the loader to the step of a rank.
    pub fn handover_time(&self, phase: &PhasePlan, epoch: u64, rank: u64, step: u64) -> Nanos {
        let seed = mix(self.seed, HANDOVER_DRAWS ^ phase.phase as u64);
        times::draw(&self.replay.handover, seed, epoch, rank, step)
    }

    /// The AU in percent that no storage and no client exceeds: the hand-over of batches is not computing.
    pub fn highest_au_percent(&self) -> f64 {
        let (compute, handover) = (self.train.compute.mean(), self.replay.handover.mean());
        if compute > 0.0 { 100.0 * compute / (compute + handover) } else { 100.0 }
    }

    /// How long the start of the readers takes in an epoch.
    pub fn start_time(&self, phase: &PhasePlan, epoch: u64) -> Nanos {
        if self.replay.start_once && epoch > 1 {
            return Nanos::ZERO;
        }
        let seed = mix(self.seed, START_DRAWS ^ phase.phase as u64);
        times::draw(&self.replay.start, seed, epoch, 0, 0)
    }
}
