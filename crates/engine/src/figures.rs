//! The figures of a run that are known while it runs: values, without the atomics that they are read from. Those of
//! several members add up, and those of a ledger have the same form.

use std::ops::Add;

use model::ledger::{Ledger, LedgerPart, Phase, RankRow};
use model::requests::RequestCounts;
use model::units::Nanos;
use serde::{Deserialize, Serialize};

/// Up to this many ranks, the figures of each are known to listeners; of more, those that waited longest and shortest.
pub const MOST_RANKS_SHOWN: u64 = 64;

/// A snapshot of the counters: totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Samples that were handled for training and evaluation, and their bytes.
    pub samples: u64,
    pub bytes: u64,
    /// Those of the samples that could not be read.
    pub failed: u64,
    /// Files that were generated, listed, or saved and restored in checkpoints, and their bytes.
    pub files: u64,
    pub file_bytes: u64,
    /// Files whose pages were prepared for a phase.
    pub prepared: u64,
    /// Steps that have begun, and those that have ended, over all ranks.
    pub begun: u64,
    pub steps: u64,
    /// The parts of the time of the steps that have ended, over all ranks.
    pub wait: Nanos,
    pub copy: Nanos,
    pub compute: Nanos,
    pub barrier: Nanos,
    /// Waiting for checkpoints between steps, over all ranks.
    pub checkpoint: Nanos,
    pub errors: u64,
    pub requests: RequestCounts,
    /// Fetches in flight, and accelerators that wait for a batch, now.
    pub in_flight: u64,
    pub waiting: u64,
    pub checkpoints: CheckpointProgress,
}

/// The checkpoints of a run. All members save each of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointProgress {
    /// Checkpoints of this run that are complete on a tier, those that were drained, and restores that succeeded.
    pub saves: u64,
    pub drained: u64,
    pub restores: u64,
    /// Bytes of the complete checkpoints that the members of the run saved.
    pub bytes: u64,
    /// Whether training waits for a save, and whether a checkpoint is being drained, now.
    pub saving: u64,
    pub draining: u64,
    /// Checkpoints on the fast tier that are not on the last one, now.
    pub undrained: u64,
}

impl Add for CheckpointProgress {
    type Output = CheckpointProgress;

    fn add(self, other: CheckpointProgress) -> CheckpointProgress {
        let CheckpointProgress { saves, drained, restores, bytes, saving, draining, undrained } = other;
        CheckpointProgress {
            saves: self.saves.max(saves),
            drained: self.drained.max(drained),
            restores: self.restores.max(restores),
            bytes: self.bytes + bytes,
            saving: self.saving.max(saving),
            draining: self.draining.max(draining),
            undrained: self.undrained.max(undrained),
        }
    }
}

impl Add for Progress {
    type Output = Progress;

    fn add(self, other: Progress) -> Progress {
        let Progress {
            samples,
            bytes,
            failed,
            files,
            file_bytes,
            prepared,
            begun,
            steps,
            wait,
            copy,
            compute,
            barrier,
            checkpoint,
            errors,
            requests: more_requests,
            in_flight,
            waiting,
            checkpoints,
        } = other;
        let mut requests = self.requests;
        requests += more_requests;
        Progress {
            samples: self.samples + samples,
            bytes: self.bytes + bytes,
            failed: self.failed + failed,
            files: self.files + files,
            file_bytes: self.file_bytes + file_bytes,
            prepared: self.prepared + prepared,
            begun: self.begun + begun,
            steps: self.steps + steps,
            wait: self.wait + wait,
            copy: self.copy + copy,
            compute: self.compute + compute,
            barrier: self.barrier + barrier,
            checkpoint: self.checkpoint + checkpoint,
            errors: self.errors + errors,
            requests,
            in_flight: self.in_flight + in_flight,
            waiting: self.waiting + waiting,
            checkpoints: self.checkpoints + checkpoints,
        }
    }
}

impl Progress {
    /// What one node of a run, or the whole run, did according to its ledger. Files are not part of a ledger.
    pub fn of_part(part: &LedgerPart<'_>, ledger: &Ledger) -> Progress {
        let mut progress = Progress::default();
        for phase in [Phase::Train, Phase::Eval] {
            for epoch in ledger.epochs(phase) {
                let mut rank = RankProgress::default();
                rank.add_row(&part.total(epoch, phase));
                progress.add_rank(&rank);
                let observed = part.observed(epoch, phase);
                progress.errors += observed.errors.count();
                progress.requests += observed.requests;
            }
        }
        progress
    }

    /// What a run did according to its ledger.
    pub fn of_ledger(ledger: &Ledger) -> Progress {
        let saves = ledger.checkpoints.saves.iter().filter(|save| save.is_complete());
        let restores = ledger.checkpoints.restores.iter().filter(|restore| restore.failure.is_none());
        let checkpoints = CheckpointProgress {
            saves: saves.clone().count() as u64,
            drained: saves.clone().filter(|save| save.drain_ns.is_some()).count() as u64,
            restores: restores.count() as u64,
            bytes: saves.map(|save| save.bytes).sum(),
            ..CheckpointProgress::default()
        };
        Progress { checkpoints, ..Progress::of_part(&ledger.whole(), ledger) }
    }

    /// The totals of this and of later work; what is true only for a moment is that of the later work.
    pub fn then(self, later: Progress) -> Progress {
        let (earlier, after) = (self.checkpoints, later.checkpoints);
        let checkpoints = CheckpointProgress {
            saves: earlier.saves + after.saves,
            drained: earlier.drained + after.drained,
            restores: earlier.restores + after.restores,
            bytes: earlier.bytes + after.bytes,
            ..after
        };
        Progress { checkpoints, in_flight: later.in_flight, waiting: later.waiting, ..self + later }
    }

    /// AU so far in percent: the share of compute time in the time of steps.
    pub fn au_percent(&self) -> Option<f64> {
        au_percent(self.compute, self.wait + self.copy + self.compute + self.barrier)
    }

    pub(crate) fn add_rank(&mut self, rank: &RankProgress) {
        self.samples += rank.samples + rank.failed;
        self.failed += rank.failed;
        self.bytes += rank.bytes;
        self.begun += rank.begun;
        self.steps += rank.steps;
        self.wait += rank.wait;
        self.copy += rank.copy;
        self.compute += rank.compute;
        self.barrier += rank.barrier;
        self.checkpoint += rank.checkpoint;
    }
}

fn au_percent(compute: Nanos, time: Nanos) -> Option<f64> {
    (time.0 > 0).then(|| 100.0 * compute.0 as f64 / time.0 as f64)
}

/// A snapshot of the counters of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankProgress {
    pub rank: u64,
    /// The step of the phase that began last, from 1; 0 before the first.
    pub step: u64,
    /// Steps of the run that have begun, and those that have ended.
    pub begun: u64,
    pub steps: u64,
    /// Samples that were delivered, those that could not be read, and bytes.
    pub samples: u64,
    pub failed: u64,
    pub bytes: u64,
    pub wait: Nanos,
    pub copy: Nanos,
    pub compute: Nanos,
    pub barrier: Nanos,
    pub checkpoint: Nanos,
}

impl RankProgress {
    /// AU so far in percent.
    pub fn au_percent(&self) -> Option<f64> {
        au_percent(self.compute, self.wait + self.copy + self.compute + self.barrier)
    }

    /// The figures of the rank in this and in later work.
    pub fn then(&self, later: RankProgress) -> RankProgress {
        RankProgress {
            begun: self.begun + later.begun,
            steps: self.steps + later.steps,
            samples: self.samples + later.samples,
            failed: self.failed + later.failed,
            bytes: self.bytes + later.bytes,
            wait: self.wait + later.wait,
            copy: self.copy + later.copy,
            compute: self.compute + later.compute,
            barrier: self.barrier + later.barrier,
            checkpoint: self.checkpoint + later.checkpoint,
            ..later
        }
    }

    /// Adds a row of a ledger.
    pub fn add_row(&mut self, row: &RankRow) {
        self.begun += row.steps;
        self.steps += row.steps;
        self.samples += row.samples_delivered;
        self.failed += row.failed.samples;
        self.bytes += row.bytes_read;
        self.wait += row.wait_ns;
        self.copy += row.copy_ns;
        self.compute += row.compute_ns;
        self.barrier += row.barrier_ns;
        self.checkpoint += row.checkpoint_ns;
    }
}

/// The live figures of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveFigures {
    pub totals: Progress,
    /// All ranks of this member, or, if the run has more than [`MOST_RANKS_SHOWN`], those that waited longest and
    /// shortest for data.
    pub ranks: Vec<RankProgress>,
    /// The number of this member's ranks.
    pub rank_count: u64,
    /// Whether the work has ended, so that these are its last figures.
    pub ended: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Members save a checkpoint together, so their counts are not added, but the bytes are.
    #[test]
    fn a_checkpoint_of_several_members_counts_once() {
        let of = |bytes| CheckpointProgress { saves: 3, bytes, draining: 1, ..CheckpointProgress::default() };
        let sum = of(10) + of(20);
        assert_eq!((sum.saves, sum.bytes, sum.draining), (3, 30, 1));
    }

    #[test]
    fn work_after_other_work_adds_up() {
        let of = |saves| Progress {
            samples: 7,
            in_flight: saves,
            checkpoints: CheckpointProgress { saves, undrained: saves, ..CheckpointProgress::default() },
            ..Progress::default()
        };
        let both = of(2).then(of(3));
        assert_eq!((both.samples, both.in_flight), (14, 3));
        assert_eq!((both.checkpoints.saves, both.checkpoints.undrained), (5, 3));
    }
}
