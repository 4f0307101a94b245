//! Checkpoint keys that are valid but have no effect in a plan.

use super::{CheckpointPlan, Schedule};
use crate::spec::SaveMode;

type Keys = &'static [&'static str];

const OF_TWO_TIERS: Keys = &["checkpoint.burst_store", "checkpoint.burst_slots", "checkpoint.drain_rate"];
const OF_ASYNC: Keys = &["checkpoint.pool_size"];
const OF_EPOCHS: Keys = &["checkpoint.checkpoint_after_epoch", "checkpoint.epochs_between_checkpoints"];
const OF_STEPS: Keys = &["checkpoint.steps_between_checkpoints"];
const OF_ALONE: Keys = &[
    "checkpoint.num_checkpoints_write",
    "checkpoint.num_checkpoints_read",
    "checkpoint.time_between_checkpoints",
    "checkpoint.recovery_rank_shift",
];
/// Sections that describe training, and their keys that have an effect without it.
const OF_TRAINING: Keys = &["dataset.", "reader.", "train.", "evaluation.", "output.metric.", "metric."];
const WITHOUT_TRAINING: Keys = &["reader.cache", "reader.odirect", "reader.stall_timeout", "train.seed"];

/// Why a given key has no effect in this plan; `None` if it has one, or is not about checkpoints.
pub fn idle(plan: &CheckpointPlan, key: &str) -> Option<&'static str> {
    let of = |keys: Keys| keys.contains(&key);
    let alone = matches!(plan.schedule, Schedule::Alone { .. });
    match plan.save {
        _ if plan.fast.is_none() && of(OF_TWO_TIERS) => return Some("there is no fast tier"),
        SaveMode::Direct | SaveMode::BurstBuffer if of(OF_ASYNC) => {
            return Some("checkpoint.mode_of_save is not async");
        }
        _ => {}
    }
    match plan.schedule {
        Schedule::Alone { .. } if of(OF_EPOCHS) || of(OF_STEPS) => Some("there is no training"),
        Schedule::Alone { .. } if key == "workflow.generate_data" => {
            Some("without training no data is read; use 'feedline generate' to write it")
        }
        Schedule::Steps { .. } if of(OF_EPOCHS) => {
            Some("checkpoint.steps_between_checkpoints takes precedence")
        }
        Schedule::Steps { .. } | Schedule::Epochs { .. } if of(OF_ALONE) => {
            Some("it applies only to checkpoints without training")
        }
        _ if alone && OF_TRAINING.iter().any(|section| key.starts_with(section)) && !of(WITHOUT_TRAINING) => {
            Some("there is no training")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SaveRequest, Scale};
    use super::*;
    use crate::plan::bare::buffered;
    use crate::spec::{WorkloadSource, read};

    #[test]
    fn keys_without_effect_are_named_with_the_reason() {
        let plan = |text: &str| {
            let spec = read(WorkloadSource { name: "test", text }, &[]).unwrap().spec;
            let last = buffered().clone();
            let request = SaveRequest { ranks: 1, scale: Scale::WHOLE, last, fast: None };
            CheckpointPlan::resolve(&spec, &request).unwrap().unwrap()
        };
        let alone = plan("workflow: {train: false, checkpoint: true}");
        let steps = plan("workflow: {checkpoint: true}\ncheckpoint: {steps_between_checkpoints: 5}");
        for (plan, key, why) in [
            (&alone, "checkpoint.drain_rate", Some("there is no fast tier")),
            (&alone, "checkpoint.pool_size", Some("checkpoint.mode_of_save is not async")),
            (&alone, "checkpoint.steps_between_checkpoints", Some("there is no training")),
            (&alone, "reader.read_threads", Some("there is no training")),
            (&alone, "reader.cache", None),
            (&alone, "checkpoint.num_checkpoints_read", None),
            (
                &steps,
                "checkpoint.num_checkpoints_read",
                Some("it applies only to checkpoints without training"),
            ),
            (
                &steps,
                "checkpoint.checkpoint_after_epoch",
                Some("checkpoint.steps_between_checkpoints takes precedence"),
            ),
            (&steps, "reader.read_threads", None),
        ] {
            assert_eq!(idle(plan, key), why, "{key}");
        }
    }
}
