//! The blocks of a phase: the steps from its start or from a checkpoint to the next checkpoint or its end. DLIO
//! computes AU and throughput for each block, so the ledger has the metric window of each.

use std::borrow::Cow;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::{Ledger, MetricWindow, Phase};

/// One block of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockWindow {
    /// All steps, including those outside the window.
    pub steps: u64,
    pub window: MetricWindow,
}

impl AddAssign for BlockWindow {
    fn add_assign(&mut self, BlockWindow { steps, window }: BlockWindow) {
        self.steps += steps;
        self.window += window;
    }
}

impl Ledger {
    /// Adds the blocks of a rank. A single block is not kept: the row of the rank has its window.
    pub fn add_blocks(&mut self, epoch: u64, phase: Phase, rank: u64, blocks: Vec<BlockWindow>) {
        if blocks.len() < 2 {
            return;
        }
        let sum = self.blocks.entry((epoch, phase, rank)).or_default();
        if sum.len() < blocks.len() {
            sum.resize(blocks.len(), BlockWindow::default());
        }
        sum.iter_mut().zip(blocks).for_each(|(sum, block)| *sum += block);
    }

    /// The blocks of a rank in one phase of one epoch. Ledgers of earlier versions have one for each phase.
    pub fn blocks(&self, epoch: u64, phase: Phase, rank: u64) -> Cow<'_, [BlockWindow]> {
        let key = (epoch, phase, rank);
        let whole = || {
            let row = self.ranks.get(&key);
            row.map(|row| BlockWindow { steps: row.steps, window: row.window }).into_iter().collect()
        };
        self.blocks.get(&key).map_or_else(|| Cow::Owned(whole()), |blocks| Cow::Borrowed(blocks.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::RankRow;
    use crate::units::Nanos;

    fn block(steps: u64) -> BlockWindow {
        let (compute_ns, time_ns) = (Nanos(10 * steps), Nanos(20 * steps));
        BlockWindow { steps, window: MetricWindow { steps: steps - 1, compute_ns, time_ns } }
    }

    #[test]
    fn a_phase_without_checkpoints_is_one_block() {
        let mut ledger = Ledger::default();
        let row = RankRow { steps: 5, window: block(5).window, ..RankRow::default() };
        ledger.add(1, Phase::Train, 3, row);
        ledger.add_blocks(1, Phase::Train, 3, vec![block(5)]);
        assert_eq!(*ledger.blocks(1, Phase::Train, 3), [block(5)]);
        assert!(ledger.blocks(1, Phase::Train, 4).is_empty());
        assert!(!serde_json::to_string(&ledger).unwrap().contains("\"blocks\""));
    }

    #[test]
    fn blocks_are_written_read_and_added() {
        let mut ledger = Ledger::default();
        ledger.add_blocks(1, Phase::Train, 3, vec![block(5), block(2)]);
        let read: Ledger = serde_json::from_str(&serde_json::to_string(&ledger).unwrap()).unwrap();
        assert_eq!(read, ledger);
        ledger += read;
        ledger.add_blocks(1, Phase::Train, 3, vec![BlockWindow::default(), block(4), block(1)]);
        let steps: Vec<u64> = ledger.blocks(1, Phase::Train, 3).iter().map(|block| block.steps).collect();
        assert_eq!(steps, [10, 8, 1]);
    }
}
