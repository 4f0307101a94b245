//! Figures from a ledger: AU, samples per second and bytes per second, by DLIO's formulas if they have DLIO's names,
//! and how every rank spent its time. Only the ledger is used, so a job without a plan has figures, too. A value that
//! cannot be measured is `None`, never 0.

mod clock;
mod nodes;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use clock::difference as clock_difference;
pub use nodes::{NodeFigures, agreement, nodes, nodes_of_epoch, slowest};

use crate::digest::Digest;
use crate::histogram::Quantiles;
use crate::ledger::{BlockWindow, CacheFigures, Ledger, LedgerPart, MetricWindow, Phase, RankRow};
use crate::requests::RequestFigures;
use crate::statistics;
use crate::units::Nanos;

/// Mean and population standard deviation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub mean: f64,
    pub stdev: f64,
}

impl Spread {
    /// Of these values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let mean = statistics::mean(values)?;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        Some(Spread { mean, stdev: (squares / values.len() as f64).sqrt() })
    }
}

/// The figures of one phase of one epoch. Times are sums over ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochFigures {
    pub epoch: u64,
    pub samples_planned: u64,
    pub samples_delivered: u64,
    /// Samples that could not be read and were left out of their batches.
    pub samples_failed: u64,
    pub bytes_read: u64,
    /// Which samples were delivered.
    pub digest: Digest,
    /// In which order, as 16 hexadecimal digits.
    pub order: String,
    /// Mean over ranks of compute time / time, in the metric window, in percent.
    pub au_percent: Option<f64>,
    /// Standard deviation of that over ranks.
    pub au_stdev_ranks_percent: Option<f64>,
    /// Sum over ranks of samples / time, in the metric window.
    pub samples_per_second: Option<f64>,
    /// The same in bytes that were actually read.
    pub mib_per_second: Option<f64>,
    /// By the clock: everything delivered / the time from the start of the phase to the last batch, including the first
    /// steps and checkpoints.
    #[serde(default)]
    pub clock_samples_per_second: Option<f64>,
    #[serde(default)]
    pub clock_mib_per_second: Option<f64>,
    pub wait_seconds: f64,
    pub copy_seconds: f64,
    pub compute_seconds: f64,
    pub barrier_seconds: f64,
    /// Waiting for checkpoints between steps; not part of the metric window.
    #[serde(default)]
    pub checkpoint_seconds: f64,
    pub harness_seconds: f64,
    /// Mean and maximum delay of the host behind the accelerator timeline.
    pub lateness_mean_seconds: f64,
    pub lateness_max_seconds: f64,
    /// Latencies by kind of operation, over all ranks; kinds that did not occur are missing.
    pub latency: BTreeMap<String, Quantiles>,
    /// Bytes from the storage, and pages in memory before they were read.
    pub cache: CacheFigures,
    /// Requests to an object store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestFigures>,
}

impl EpochFigures {
    fn new(ledger: &Ledger, phase: Phase, epoch: u64) -> EpochFigures {
        let total = ledger.total(epoch, phase);
        let rates = Rates::new(ledger, phase, epoch);
        EpochFigures {
            epoch,
            samples_planned: total.samples_planned,
            samples_delivered: total.samples_delivered,
            samples_failed: total.failed.samples,
            bytes_read: total.bytes_read,
            digest: total.digest,
            order: format!("{:016x}", total.order),
            au_percent: rates.au_percent,
            au_stdev_ranks_percent: rates.au_stdev_ranks_percent,
            samples_per_second: rates.samples_per_second,
            mib_per_second: rates.mib_per_second,
            clock_samples_per_second: rates.clock_samples_per_second,
            clock_mib_per_second: rates.clock_mib_per_second,
            wait_seconds: total.wait_ns.seconds(),
            copy_seconds: total.copy_ns.seconds(),
            compute_seconds: total.compute_ns.seconds(),
            barrier_seconds: total.barrier_ns.seconds(),
            checkpoint_seconds: total.checkpoint_ns.seconds(),
            harness_seconds: total.harness_ns.seconds(),
            lateness_mean_seconds: total.lateness_ns_sum.seconds() / total.steps.max(1) as f64,
            lateness_max_seconds: total.lateness_ns_max.seconds(),
            latency: ledger.node_total(epoch, phase).latencies.summaries(),
            cache: ledger.cache(epoch, phase).figures(),
            requests: Some(RequestFigures::of(&ledger.whole(), epoch, phase))
                .filter(|requests| requests.requests > 0),
        }
    }
}

/// The figures of each epoch with rows of this phase, one at a time: there may be many epochs, and their figures are
/// large.
pub fn epochs(ledger: &Ledger, phase: Phase) -> impl Iterator<Item = EpochFigures> {
    ledger.epochs(phase).into_iter().map(move |epoch| EpochFigures::new(ledger, phase, epoch))
}

/// The rates of one phase of one epoch; each as in `EpochFigures`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    pub au_percent: Option<f64>,
    pub au_stdev_ranks_percent: Option<f64>,
    pub samples_per_second: Option<f64>,
    pub mib_per_second: Option<f64>,
    pub clock_samples_per_second: Option<f64>,
    pub clock_mib_per_second: Option<f64>,
}

impl Rates {
    fn new(ledger: &Ledger, phase: Phase, epoch: u64) -> Rates {
        Rates::of(&ledger.whole(), phase, epoch)
    }

    /// An unfinished epoch has counts but no rates: they would describe a different amount of work. So would a ledger
    /// that lacks the rows of a process.
    fn of(part: &LedgerPart<'_>, phase: Phase, epoch: u64) -> Rates {
        let total = part.total(epoch, phase);
        if !total.is_finished() || part.lacks_rows() {
            return Rates::default();
        }
        let per_rank = |figure: fn(&RankRow, &[BlockWindow], Phase) -> Option<f64>| -> Vec<f64> {
            let rows = part.rows(epoch, phase);
            rows.filter_map(|(rank, row)| figure(row, &part.blocks(epoch, phase, rank), phase)).collect()
        };
        let au = Spread::of(&per_rank(|_, blocks, _| over_blocks(blocks, block_au_percent)));
        let rates = per_rank(samples_per_second);
        let rate = (!rates.is_empty()).then(|| rates.iter().sum::<f64>());
        let whole = total.last_batch_ns.seconds();
        let clock_rate = (whole > 0.0).then(|| total.samples_delivered as f64 / whole);
        let bytes_per_sample = total.bytes_read as f64 / total.samples_delivered.max(1) as f64;
        let in_mib = |rate: f64| rate * bytes_per_sample / f64::from(1 << 20);
        Rates {
            au_percent: au.map(|au| au.mean),
            au_stdev_ranks_percent: au.map(|au| au.stdev),
            samples_per_second: rate,
            mib_per_second: rate.map(in_mib),
            clock_samples_per_second: clock_rate,
            clock_mib_per_second: clock_rate.map(in_mib),
        }
    }
}

/// AU of each rank in one phase of one epoch, as in `EpochFigures`.
pub fn rank_au_percent(
    ledger: &Ledger,
    phase: Phase,
    epoch: u64,
) -> impl Iterator<Item = (u64, Option<f64>)> + use<'_> {
    let whole = ledger.whole();
    let rows = whole.rows(epoch, phase);
    rows.map(move |(rank, row)| {
        let blocks = whole.blocks(epoch, phase, rank);
        (rank, over_blocks(&blocks, block_au_percent).filter(|_| row.is_finished()))
    })
}

/// AU of a block: compute time of the steps in its window over the time of the window.
pub fn block_au_percent(block: &BlockWindow) -> Option<f64> {
    let MetricWindow { steps, compute_ns, time_ns } = block.window;
    (steps > 0 && time_ns.0 > 0).then(|| 100.0 * compute_ns.0 as f64 / time_ns.0 as f64)
}

/// Samples per second in the window of a block.
pub fn block_samples_per_second(block: &BlockWindow, batch: u64) -> Option<f64> {
    rate(block.window.steps, batch, block.window.time_ns)
}

fn rate(steps: u64, batch: u64, time: Nanos) -> Option<f64> {
    (steps > 0 && time.0 > 0).then(|| (steps * batch) as f64 / time.seconds())
}

/// The mean of a figure over the blocks of a rank, weighted by their steps. As in DLIO, a block without a step in its
/// window counts as 0, which lowers the mean. `None` if no block has one.
fn over_blocks(blocks: &[BlockWindow], figure: impl Fn(&BlockWindow) -> Option<f64>) -> Option<f64> {
    if let [block] = blocks {
        return figure(block);
    }
    let figures: Vec<Option<f64>> = blocks.iter().map(figure).collect();
    figures.iter().any(Option::is_some).then(|| {
        let weighted =
            figures.iter().zip(blocks).map(|(figure, block)| figure.unwrap_or(0.0) * block.steps as f64);
        weighted.sum::<f64>() / blocks.iter().map(|block| block.steps).sum::<u64>() as f64
    })
}

/// Samples over time. Training counts the metric windows of its blocks; evaluation counts every step, as in DLIO. If
/// samples failed, batches in the window count with the average number of samples.
fn samples_per_second(row: &RankRow, blocks: &[BlockWindow], phase: Phase) -> Option<f64> {
    let batch = row.samples_planned.checked_div(row.steps_planned)?;
    let (came, failed) = (row.samples_delivered, row.failed.samples);
    let full = if failed == 0 { 1.0 } else { came as f64 / (came + failed) as f64 };
    let of_batches = match phase {
        Phase::Train => over_blocks(blocks, |block| block_samples_per_second(block, batch)),
        Phase::Eval => rate(row.steps, batch, row.steps_ns()),
    };
    of_batches.map(|rate| rate * full)
}

/// The figures of a run's training or evaluation phases.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// For each epoch.
    pub epochs: Vec<Rates>,
    /// Over epochs.
    pub au_percent: Option<Spread>,
    pub samples_per_second: Option<Spread>,
    pub mib_per_second: Option<Spread>,
    pub clock_samples_per_second: Option<Spread>,
    pub clock_mib_per_second: Option<Spread>,
}

impl Figures {
    /// `None` if the phase has no rows.
    pub fn new(ledger: &Ledger, phase: Phase) -> Option<Figures> {
        let epochs = ledger.epochs(phase).into_iter();
        let epochs: Vec<Rates> = epochs.map(|epoch| Rates::new(ledger, phase, epoch)).collect();
        let over = |figure: fn(&Rates) -> Option<f64>| {
            Spread::of(&epochs.iter().filter_map(figure).collect::<Vec<_>>())
        };
        let [au_percent, samples_per_second, mib_per_second, clock_samples_per_second, clock_mib_per_second] = [
            over(|epoch| epoch.au_percent),
            over(|epoch| epoch.samples_per_second),
            over(|epoch| epoch.mib_per_second),
            over(|epoch| epoch.clock_samples_per_second),
            over(|epoch| epoch.clock_mib_per_second),
        ];
        (!epochs.is_empty()).then_some(Figures {
            epochs,
            au_percent,
            samples_per_second,
            mib_per_second,
            clock_samples_per_second,
            clock_mib_per_second,
        })
    }

    /// All figures, multiplied by a factor.
    #[must_use]
    pub fn times(mut self, factor: f64) -> Figures {
        let rates = |rates: &mut Rates| {
            let Rates {
                au_percent,
                au_stdev_ranks_percent,
                samples_per_second,
                mib_per_second,
                clock_samples_per_second,
                clock_mib_per_second,
            } = rates;
            let all = [
                au_percent,
                au_stdev_ranks_percent,
                samples_per_second,
                mib_per_second,
                clock_samples_per_second,
                clock_mib_per_second,
            ];
            all.into_iter().flatten().for_each(|rate| *rate *= factor);
        };
        self.epochs.iter_mut().for_each(rates);
        let spreads = [
            &mut self.au_percent,
            &mut self.samples_per_second,
            &mut self.mib_per_second,
            &mut self.clock_samples_per_second,
            &mut self.clock_mib_per_second,
        ];
        for Spread { mean, stdev } in spreads.into_iter().flatten() {
            *mean *= factor;
            *stdev *= factor;
        }
        self
    }

    /// Whether the mean AU reaches the target.
    pub fn meets(&self, au_target: f64) -> Option<bool> {
        // AU is a ratio of measured times; a run exactly at its target must not fail because of rounding.
        self.au_percent.map(|au| au.mean + 1e-9 >= 100.0 * au_target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_the_population_deviation() {
        assert_eq!(Spread::of(&[2.0, 4.0]), Some(Spread { mean: 3.0, stdev: 1.0 }));
        assert_eq!(Spread::of(&[]), None);
    }

    fn block(steps: u64, window: u64, compute: u64, time: u64) -> BlockWindow {
        let (compute_ns, time_ns) = (Nanos(compute), Nanos(time));
        BlockWindow { steps, window: MetricWindow { steps: window, compute_ns, time_ns } }
    }

    #[test]
    fn a_window_without_steps_or_time_has_no_figures() {
        let au = |window, compute, time| over_blocks(&[block(6, window, compute, time)], block_au_percent);
        assert_eq!(au(0, 0, 10), None);
        assert_eq!(au(5, 5, 0), None);
        assert_eq!(au(5, 5, 10), Some(50.0));
        let row = RankRow { steps_planned: 10, samples_planned: 240, ..RankRow::default() };
        let second = 1_000_000_000;
        let train = |window| samples_per_second(&row, &[block(6, window, 0, second)], Phase::Train);
        assert_eq!((train(5), train(0)), (Some(120.0), None));
        let eval = RankRow { steps: 10, wait_ns: Nanos(2 * second), ..row };
        let rate = samples_per_second(&eval, &[block(10, 5, 0, second)], Phase::Eval);
        assert_eq!(rate, Some(120.0), "evaluation excludes nothing");
    }

    /// By hand: blocks of 10, 6 and 1 steps, each without its first step. AU 90 % and 50 %, and 0 for the block whose
    /// window is empty: (90 x 10 + 50 x 6 + 0 x 1) / 17. Steps per second: 9 / 1 s and 5 / 2 s:
    /// (9 x 10 + 2.5 x 6 + 0) / 17.
    #[test]
    fn blocks_are_weighted_by_their_steps() {
        let second = 1_000_000_000;
        let blocks =
            [block(10, 9, 9 * second / 10, second), block(6, 5, second, 2 * second), block(1, 0, 0, 7)];
        let au = over_blocks(&blocks, block_au_percent).unwrap();
        assert!((au - 1200.0 / 17.0).abs() < 1e-12, "{au}");
        let rate = over_blocks(&blocks, |block| block_samples_per_second(block, 4)).unwrap();
        assert!((rate - 4.0 * 105.0 / 17.0).abs() < 1e-12, "{rate}");
        assert_eq!(over_blocks(&blocks[2..], block_au_percent), None, "nothing was measured");
    }
}
