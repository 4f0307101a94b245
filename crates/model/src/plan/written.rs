//! The form of plan.json. The order of its keys matters, because the digest is computed from the text: the fields of
//! training surround the numbers of ranks and hosts, and absent values have no key.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{
    CachePlan, Data, DevicePlan, Estimate, EvalPlan, LoaderPlan, MetricPlan, PhasePlan, Plan, ReplayPlan,
    StorePlan, TrainingPlan,
};
use crate::checkpoint::CheckpointPlan;
use crate::spec::{Access, Verify};

#[derive(Serialize)]
struct WrittenPlan<'a> {
    workload: &'a str,
    model: &'a str,
    #[serde(flatten)]
    source: Option<WrittenInput<'a>>,
    ranks: u64,
    hosts: u64,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    compat: &'a [String],
    #[serde(flatten)]
    training: Option<WrittenTraining<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: &'a Option<CheckpointPlan>,
    /// With training, the estimate includes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
}

/// What training reads, and how.
#[derive(Serialize)]
struct WrittenInput<'a> {
    format: &'a str,
    store: &'a StorePlan,
    access: Access,
}

/// The rest of training.
#[derive(Serialize)]
struct WrittenTraining<'a> {
    epochs: u64,
    seed: u64,
    verify: Verify,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    shared_draws: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    whole_files: bool,
    data: &'a Data,
    train: &'a PhasePlan,
    eval: &'a Option<EvalPlan>,
    loader: &'a LoaderPlan,
    #[serde(skip_serializing_if = "ReplayPlan::is_default")]
    replay: &'a ReplayPlan,
    cache: Option<CachePlan>,
    device: DevicePlan,
    metric: MetricPlan,
    estimate: &'a Estimate,
}

impl<'a> WrittenTraining<'a> {
    fn split(plan: &'a TrainingPlan) -> (WrittenInput<'a>, WrittenTraining<'a>) {
        let TrainingPlan {
            format,
            store,
            access,
            epochs,
            seed,
            verify,
            shared_draws,
            whole_files,
            data,
            train,
            eval,
            loader,
            replay,
            cache,
            device,
            metric,
            estimate,
            record_steps: _,
        } = plan;
        let source = WrittenInput { format, store, access: *access };
        let training = WrittenTraining {
            epochs: *epochs,
            seed: *seed,
            verify: *verify,
            shared_draws: *shared_draws,
            whole_files: *whole_files,
            data,
            train,
            eval,
            loader,
            replay,
            cache: *cache,
            device: *device,
            metric: *metric,
            estimate,
        };
        (source, training)
    }
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Plan { workload, model, ranks, hosts, compat, training, checkpoint } = self;
        let memory_bytes = training.is_none().then(|| self.memory_bytes());
        let (source, training) = training.as_ref().map(WrittenTraining::split).unzip();
        let (ranks, hosts) = (*ranks, *hosts);
        WrittenPlan { workload, model, source, ranks, hosts, compat, training, checkpoint, memory_bytes }
            .serialize(serializer)
    }
}

/// The keys that do not belong to training.
#[derive(Deserialize)]
struct PlanHead {
    workload: String,
    model: String,
    ranks: u64,
    hosts: u64,
    #[serde(default)]
    compat: Vec<String>,
    #[serde(default)]
    checkpoint: Option<CheckpointPlan>,
}

/// A flattened optional part that is damaged would count as absent, so the keys decide: a plan that trains has the key
/// `train`.
impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Plan, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let head = PlanHead::deserialize(&value).map_err(D::Error::custom)?;
        let PlanHead { workload, model, ranks, hosts, compat, checkpoint } = head;
        let training = match value.get("train") {
            Some(_) => Some(TrainingPlan::deserialize(&value).map_err(D::Error::custom)?),
            None => None,
        };
        if training.is_none() && checkpoint.is_none() {
            return Err(D::Error::custom("the plan neither trains nor saves checkpoints"));
        }
        Ok(Plan { workload, model, ranks, hosts, compat, training, checkpoint })
    }
}
