//! The blocks of one rank in one phase, and their metric windows: as in DLIO, the first steps of every block are
//! excluded. Each step is recorded if the plan asks for it.

use model::ledger::{BlockRecord, BlockWindow, PhaseRecord, StepRecord};
use model::plan::MetricPlan;
use model::units::Nanos;

/// The blocks so far.
#[derive(Debug)]
pub(super) struct Blocks {
    /// When the current block began, and the time of its steps outside the window.
    began: Nanos,
    excluded: Nanos,
    current: BlockWindow,
    closed: Vec<BlockRecord>,
    /// `None`: steps are not recorded.
    steps: Option<Vec<StepRecord>>,
}

impl Blocks {
    /// The first block begins. `records`: the number of steps to record.
    pub(super) fn new(began: Nanos, records: Option<u64>) -> Blocks {
        let steps = records.map(|steps| Vec::with_capacity(steps as usize));
        let (excluded, current, closed) = (Nanos::ZERO, BlockWindow::default(), Vec::with_capacity(1));
        Blocks { began, excluded, current, closed, steps }
    }

    /// Adds a step of a phase of `planned` steps.
    pub(super) fn add(&mut self, metric: &MetricPlan, planned: u64, step: StepRecord) {
        let place = self.current.steps;
        self.current.steps += 1;
        if place >= metric.exclude_start_steps && place + metric.exclude_end_steps < planned {
            self.current.window.steps += 1;
            self.current.window.compute_ns += step.compute;
        } else {
            self.excluded += step.load + step.compute;
        }
        if let Some(steps) = &mut self.steps {
            steps.push(step);
        }
    }

    /// Number of the current block, from 1.
    pub(super) fn number(&self) -> u64 {
        self.closed.len() as u64 + 1
    }

    /// The current block, if it ends at `at`; `None` if it has no steps: after a checkpoint that follows the last one.
    pub(super) fn ending(&self, at: Nanos) -> Option<BlockRecord> {
        let mut seen = self.current;
        seen.window.time_ns = at.since(self.began) - self.excluded;
        (seen.steps > 0 || self.closed.is_empty()).then_some(BlockRecord {
            began: self.began,
            ended: at,
            seen,
        })
    }

    /// A checkpoint ends the block; the next one begins after it.
    pub(super) fn pause(&mut self, from: Nanos, until: Nanos) {
        self.closed.extend(self.ending(from));
        (self.began, self.excluded, self.current) = (until, Nanos::ZERO, BlockWindow::default());
    }

    /// All blocks; the last one ends at `at`.
    pub(super) fn finish(mut self, at: Nanos) -> (Vec<BlockWindow>, Option<PhaseRecord>) {
        self.pause(at, at);
        let windows = self.closed.iter().map(|block| block.seen).collect();
        let blocks = self.closed;
        (windows, self.steps.map(|steps| PhaseRecord { blocks, steps }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of 3 ns load and 7 ns compute, a barrier of 1 ns after each, and a checkpoint of 100 ns after two of them.
    #[test]
    fn every_block_excludes_its_first_steps_and_the_checkpoint_is_in_none() {
        let metric = MetricPlan {
            au_target: 0.9,
            exclude_start_steps: 1,
            exclude_end_steps: 0,
            record_length_bytes: 1.0,
        };
        let step = StepRecord { load: Nanos(3), compute: Nanos(7) };
        let mut blocks = Blocks::new(Nanos(50), Some(5));
        (0..2).for_each(|_| blocks.add(&metric, 5, step));
        blocks.pause(Nanos(72), Nanos(172));
        (0..3).for_each(|_| blocks.add(&metric, 5, step));
        let (windows, record) = blocks.finish(Nanos(205));
        let seen: Vec<_> = windows
            .iter()
            .map(|BlockWindow { steps, window }| {
                (*steps, window.steps, window.compute_ns.0, window.time_ns.0)
            })
            .collect();
        // The barrier of the excluded step stays in the time, as in DLIO.
        assert_eq!(seen, [(2, 1, 7, 22 - 10), (3, 2, 14, 33 - 10)]);
        let record = record.unwrap();
        let spans: Vec<_> = record.blocks.iter().map(|block| (block.began.0, block.ended.0)).collect();
        assert_eq!((spans, record.steps), (vec![(50, 72), (172, 205)], vec![step; 5]));
    }

    #[test]
    fn a_checkpoint_after_the_last_step_begins_no_block() {
        let metric = MetricPlan {
            au_target: 0.9,
            exclude_start_steps: 0,
            exclude_end_steps: 0,
            record_length_bytes: 1.0,
        };
        let mut blocks = Blocks::new(Nanos(0), None);
        blocks.add(&metric, 1, StepRecord::default());
        blocks.pause(Nanos(5), Nanos(9));
        assert_eq!(blocks.ending(Nanos(9)), None);
        let (windows, record) = blocks.finish(Nanos(9));
        assert_eq!((windows.len(), record), (1, None));
        let (windows, _) = Blocks::new(Nanos(0), None).finish(Nanos(3));
        assert_eq!(
            windows[0].window.time_ns,
            Nanos(3),
            "a phase that ended before its first step has a block"
        );
    }
}
