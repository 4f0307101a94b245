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
use crate::ledger::{CacheFigures, Ledger, LedgerPart, Phase, RankRow};
use crate::statistics;

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
        let per_rank = |figure: &dyn Fn(&RankRow) -> Option<f64>| -> Vec<f64> {
            part.rows(epoch, phase).filter_map(|(_, row)| figure(row)).collect()
        };
        let au = Spread::of(&per_rank(&au_percent));
        let rates = per_rank(&|row| samples_per_second(row, phase));
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

/// AU of one rank: compute time of the steps in the window over the time of the window.
fn au_percent(row: &RankRow) -> Option<f64> {
    let window = row.window;
    (window.steps > 0 && window.time_ns.0 > 0)
        .then(|| 100.0 * window.compute_ns.0 as f64 / window.time_ns.0 as f64)
}

/// Samples over time. Training counts the metric window; evaluation counts every step, as in DLIO. If samples failed,
/// batches in the window count with the average number of samples.
fn samples_per_second(row: &RankRow, phase: Phase) -> Option<f64> {
    let batch = row.samples_planned.checked_div(row.steps_planned)?;
    let (steps, time) = match phase {
        Phase::Train => (row.window.steps, row.window.time_ns),
        Phase::Eval => (row.steps, row.steps_ns()),
    };
    let (came, failed) = (row.samples_delivered, row.failed.samples);
    let full = if failed == 0 { 1.0 } else { came as f64 / (came + failed) as f64 };
    (steps > 0 && time.0 > 0).then(|| (steps * batch) as f64 * full / time.seconds())
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

    /// Whether the mean AU reaches the target.
    pub fn meets(&self, au_target: f64) -> Option<bool> {
        // AU is a ratio of measured times; a run exactly at its target must not fail because of rounding.
        self.au_percent.map(|au| au.mean + 1e-9 >= 100.0 * au_target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::MetricWindow;
    use crate::units::Nanos;

    #[test]
    fn spread_is_the_population_deviation() {
        assert_eq!(Spread::of(&[2.0, 4.0]), Some(Spread { mean: 3.0, stdev: 1.0 }));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_window_without_steps_or_time_has_no_figures() {
        let row = |steps, compute, time| RankRow {
            steps_planned: 10,
            samples_planned: 240,
            window: MetricWindow { steps, compute_ns: Nanos(compute), time_ns: Nanos(time) },
            ..RankRow::default()
        };
        assert_eq!(au_percent(&row(0, 0, 10)), None);
        assert_eq!(au_percent(&row(5, 5, 0)), None);
        assert_eq!(au_percent(&row(5, 5, 10)), Some(50.0));
        assert_eq!(samples_per_second(&row(5, 0, 1_000_000_000), Phase::Train), Some(120.0));
        assert_eq!(samples_per_second(&row(0, 0, 1_000_000_000), Phase::Train), None);
        let eval = RankRow { steps: 10, wait_ns: Nanos(2_000_000_000), ..row(5, 0, 1_000_000_000) };
        assert_eq!(samples_per_second(&eval, Phase::Eval), Some(120.0), "evaluation excludes nothing");
    }
}
