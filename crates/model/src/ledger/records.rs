//! Each step of the ranks of one process, for front ends that report them. Recorded on request only, and neither
//! gathered nor written with the ledger: a long run has too many steps for that.

use std::collections::BTreeMap;

use super::{BlockWindow, Phase};
use crate::units::Nanos;

/// One step of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepRecord {
    /// From the request for the batch until it is in the accelerator's memory.
    pub load: Nanos,
    pub compute: Nanos,
}

/// One block, on the run's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRecord {
    pub began: Nanos,
    pub ended: Nanos,
    pub seen: BlockWindow,
}

/// The blocks of a rank in one phase of one epoch, and the steps of all of them in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhaseRecord {
    pub blocks: Vec<BlockRecord>,
    pub steps: Vec<StepRecord>,
}

impl PhaseRecord {
    /// Each block with its steps.
    pub fn each(&self) -> impl Iterator<Item = (&BlockRecord, &[StepRecord])> {
        let mut rest = self.steps.as_slice();
        self.blocks.iter().map(move |block| {
            let (steps, after) = rest.split_at(rest.len().min(block.seen.steps as usize));
            rest = after;
            (block, steps)
        })
    }
}

/// One epoch, on the run's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochRecord {
    pub began: Nanos,
    /// When training ended, including the checkpoint after it; `None` if the run does not train.
    pub trained: Option<Nanos>,
    /// When the epoch ended, including evaluation; `None` if the run ended before.
    pub ended: Option<Nanos>,
    /// /proc/meminfo of this host when the epoch began.
    pub meminfo: Vec<(String, String)>,
}

/// What one process recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunRecords {
    /// The wall clock when the run's clock was 0, since 1970.
    pub origin: Nanos,
    pub epochs: BTreeMap<u64, EpochRecord>,
    /// By epoch, phase and rank.
    pub phases: BTreeMap<(u64, Phase, u64), PhaseRecord>,
}

impl RunRecords {
    /// The ranks with records, in order.
    pub fn ranks(&self) -> Vec<u64> {
        let mut ranks: Vec<u64> = self.phases.keys().map(|(.., rank)| *rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// The wall clock at a moment of the run, since 1970.
    pub fn wall(&self, at: Nanos) -> Nanos {
        self.origin + at
    }

    /// Adds the records of another process or thread. Different ones have different ranks.
    pub(super) fn extend(&mut self, other: RunRecords) {
        let RunRecords { origin, epochs, phases } = other;
        self.origin = self.origin.max(origin);
        self.epochs.extend(epochs);
        self.phases.extend(phases);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_split_into_their_blocks() {
        let step = |load| StepRecord { load: Nanos(load), compute: Nanos(1) };
        let block = |steps| BlockRecord {
            seen: BlockWindow { steps, ..BlockWindow::default() },
            ..BlockRecord::default()
        };
        let record =
            PhaseRecord { blocks: vec![block(2), block(0), block(1)], steps: (0..3).map(step).collect() };
        let loads: Vec<Vec<u64>> =
            record.each().map(|(_, steps)| steps.iter().map(|step| step.load.0).collect()).collect();
        assert_eq!(loads, [vec![0, 1], vec![], vec![2]]);
    }
}
