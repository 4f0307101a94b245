//! When checkpoints are saved: between epochs, between steps, or on their own without training.

use serde::{Deserialize, Serialize};

use crate::spec::Spec;
use crate::units::Nanos;

/// When training pauses for a checkpoint, or how many are saved without training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// After epoch `first`, and then every `every` epochs.
    Epochs { first: u64, every: u64 },
    /// After every `every` steps, counted from the start of each epoch.
    Steps { every: u64 },
    /// Without training: `saves` are saved, then `restores` restored, each after a pause.
    Alone { saves: u64, restores: u64, pause: Nanos },
}

/// DLIO uses the absolute value of its default of -1 s.
const DEFAULT_PAUSE: f64 = 1.0;

impl Schedule {
    /// The schedule of a workload; `None` if it saves no checkpoints.
    pub fn of(spec: &Spec) -> Option<Schedule> {
        let asked = &spec.checkpoint;
        if !spec.workflow.checkpoint {
            return None;
        }
        if !spec.workflow.train {
            let count = |number: i64| u64::try_from(number).unwrap_or(0);
            let pause = asked.time_between_checkpoints;
            return Some(Schedule::Alone {
                saves: count(asked.num_checkpoints_write),
                restores: count(asked.num_checkpoints_read),
                pause: Nanos::from_seconds(if pause < 0.0 { DEFAULT_PAUSE } else { pause }),
            });
        }
        match u64::try_from(asked.steps_between_checkpoints) {
            Ok(0) => None,
            Ok(every) => Some(Schedule::Steps { every }),
            Err(_) => Some(Schedule::Epochs {
                first: asked.checkpoint_after_epoch.max(1),
                every: asked.epochs_between_checkpoints.max(1),
            }),
        }
    }

    /// Whether there is nothing to do: nothing to save or restore without training.
    pub fn is_empty(&self) -> bool {
        matches!(self, Schedule::Alone { saves: 0, restores: 0, .. })
    }

    /// Whether a checkpoint follows this epoch, counted from 1.
    pub fn after_epoch(&self, epoch: u64) -> bool {
        match self {
            Schedule::Epochs { first, every } => epoch >= *first && (epoch - first).is_multiple_of(*every),
            _ => false,
        }
    }

    /// Whether a checkpoint follows this step of an epoch, counted from 1.
    pub fn after_step(&self, step: u64) -> bool {
        match self {
            Schedule::Steps { every } => step > 0 && step.is_multiple_of(*every),
            _ => false,
        }
    }

    /// How many checkpoints are saved between the steps of an epoch with `steps` steps.
    pub(crate) fn within_epoch(&self, steps: u64) -> u64 {
        match self {
            Schedule::Steps { every } => steps.saturating_sub(1) / every,
            _ => 0,
        }
    }

    /// How many checkpoints a run saves.
    pub fn saves(&self, epochs: u64, steps: u64) -> u64 {
        match self {
            Schedule::Epochs { first, every } if epochs >= *first => (epochs - first) / every + 1,
            Schedule::Epochs { .. } => 0,
            Schedule::Steps { every } => (steps / every).saturating_mul(epochs),
            Schedule::Alone { saves, .. } => *saves,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{self, WorkloadSource};

    fn schedule(text: &str) -> Option<Schedule> {
        Schedule::of(&spec::read(WorkloadSource { name: "test", text }, &[]).unwrap().spec)
    }

    #[test]
    fn epochs_steps_or_alone() {
        let epochs = schedule(
            "workflow: {checkpoint: true}\ncheckpoint: {checkpoint_after_epoch: 2, epochs_between_checkpoints: 3}",
        )
        .unwrap();
        assert_eq!((1..=9).filter(|epoch| epochs.after_epoch(*epoch)).collect::<Vec<_>>(), [2, 5, 8]);
        assert_eq!((epochs.saves(9, 100), epochs.saves(1, 100)), (3, 0));
        let steps =
            schedule("workflow: {checkpoint: true}\ncheckpoint: {steps_between_checkpoints: 4}").unwrap();
        assert_eq!((0..=12).filter(|step| steps.after_step(*step)).collect::<Vec<_>>(), [4, 8, 12]);
        assert!(!steps.after_epoch(4));
        assert_eq!(steps.saves(3, 10), 6);
        let alone = "workflow: {train: false, checkpoint: true}\n\
            checkpoint: {num_checkpoints_write: 3, num_checkpoints_read: 2}";
        assert_eq!(
            schedule(alone),
            Some(Schedule::Alone { saves: 3, restores: 2, pause: Nanos(1_000_000_000) })
        );
        assert_eq!(schedule("workflow: {train: true}"), None);
        assert_eq!(
            schedule("workflow: {checkpoint: true}\ncheckpoint: {steps_between_checkpoints: 0}"),
            None
        );
    }
}
