//! The AU of a whole epoch, estimated from a run of some of its steps.
//!
//! The AU of a few steps is too high: batches that were ready before the metric window took no time in it. The rate at
//! which samples arrive does not have this error, because every sample is counted when it is read. So the steps that
//! the run did not do are assumed to take as long as samples take to arrive, and the variation of that time between
//! parts of the run gives the interval.

use crate::ledger::{Ledger, Phase};
use crate::metrics::Figures;
use crate::plan::TrainingPlan;
use crate::statistics::{Confidence, FEWEST, mean, mean_half_width};
use crate::timeline::Timeline;

/// The parts of a run whose times are compared.
const PARTS: u64 = 10;

/// AU in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AuEstimate {
    pub percent: f64,
    /// 95 %; `None` if the run is too short for one.
    pub interval: Option<Confidence>,
}

/// The AU of an epoch with this many steps in the metric window, from the finished run of a plan. `None` without
/// figures.
pub fn estimate(ledger: &Ledger, plan: &TrainingPlan, window_steps: u64) -> Option<AuEstimate> {
    let figures = Figures::new(ledger, Phase::Train)?;
    let measured = figures.au_percent?.mean;
    let epochs: Vec<f64> = figures.epochs.iter().filter_map(|epoch| epoch.au_percent).collect();
    if let Some(half) = mean_half_width(&epochs) {
        let interval = Confidence { low: measured - half, high: (measured + half).min(100.0) };
        return Some(AuEstimate { percent: measured, interval: Some(interval) });
    }
    let arrivals = Arrivals {
        timeline: &ledger.node_total(1, Phase::Train).timeline,
        step_samples: plan.train.shards.batch * plan.ranks(),
        step_seconds: plan.train.compute.mean(),
        batches_ahead: plan.batches_ahead(),
    };
    let seen = SeenWindow { au_percent: measured, steps: plan.window_steps() };
    Some(extended(seen, window_steps, arrivals.pace()))
}

/// The metric window of a run.
#[derive(Clone, Copy)]
struct SeenWindow {
    au_percent: f64,
    steps: u64,
}

/// How the samples of a run arrived.
struct Arrivals<'a> {
    timeline: &'a Timeline,
    /// Samples of a step of all ranks, and its compute time.
    step_samples: u64,
    step_seconds: f64,
    batches_ahead: u64,
}

/// The AU at which samples arrive, and the relative half-width of the interval of the time between them.
#[derive(Clone, Copy)]
struct ArrivalPace {
    au_percent: f64,
    uncertainty: f64,
}

impl Arrivals<'_> {
    /// `None` if the run is too short. The first and the last batches are left out: queues fill and readers end.
    fn pace(&self) -> Option<ArrivalPace> {
        let edge = self.batches_ahead.saturating_add(1).saturating_mul(self.step_samples);
        let middle = self.timeline.total().samples.checked_sub(edge.saturating_mul(2))?;
        let steps = middle / self.step_samples.max(1);
        let parts = steps.min(PARTS);
        if parts < FEWEST as u64 {
            return None;
        }
        let steps_of_part = steps / parts;
        let counts = (0..=parts).map(|part| edge + part * steps_of_part * self.step_samples);
        let times = times_at(self.timeline, counts);
        let lengths: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let (mean, half) = (mean(&lengths).filter(|mean| *mean > 0.0)?, mean_half_width(&lengths)?);
        let au_percent = 100.0 * steps_of_part as f64 * self.step_seconds / mean;
        Some(ArrivalPace { au_percent, uncertainty: half / mean })
    }
}

/// When each of these numbers of samples had arrived, in seconds. The numbers ascend.
fn times_at(timeline: &Timeline, counts: impl Iterator<Item = u64>) -> Vec<f64> {
    let length = timeline.interval().seconds();
    let mut intervals = timeline.intervals().iter().map(|interval| interval.samples).enumerate();
    let (mut before, mut current) = (0, intervals.next());
    let mut times = Vec::new();
    for count in counts {
        while let Some((_, samples)) = current.filter(|(_, samples)| before + samples < count) {
            before += samples;
            current = intervals.next();
        }
        let Some((index, samples)) = current else { break };
        let share = (count - before) as f64 / samples.max(1) as f64;
        times.push((index as f64 + share) * length);
    }
    times
}

/// The AU of an epoch whose first steps were seen.
fn extended(seen: SeenWindow, window_steps: u64, pace: Option<ArrivalPace>) -> AuEstimate {
    let Some(pace) = pace else { return AuEstimate { percent: seen.au_percent, interval: None } };
    // Samples can arrive faster than steps use them, while queues fill.
    let later = pace.au_percent.min(seen.au_percent);
    let rest = window_steps.saturating_sub(seen.steps);
    let (done, rest) = (seen.steps as f64, rest as f64);
    let percent = (done + rest) / (done / seen.au_percent + rest / later);
    let low = percent / (1.0 + pace.uncertainty);
    let high = if pace.uncertainty < 1.0 { percent / (1.0 - pace.uncertainty) } else { 100.0 };
    AuEstimate { percent, interval: Some(Confidence { low, high: high.min(100.0) }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;

    /// One sample per step, which computes for 100 ms; samples arrive at these times.
    fn pace(batches_ahead: u64, arrivals: impl Iterator<Item = f64>) -> Option<ArrivalPace> {
        let mut timeline = Timeline::default();
        arrivals.for_each(|at| timeline.add(Nanos::from_seconds(at), 1, 1));
        Arrivals { timeline: &timeline, step_samples: 1, step_seconds: 0.1, batches_ahead }.pace()
    }

    #[test]
    fn the_pace_of_a_steady_device_is_exact() {
        for (between, au) in [(0.125, 80.0), (0.1, 100.0), (0.4, 25.0)] {
            let pace = pace(4, (1..=200).map(|sample| f64::from(sample) * between)).unwrap();
            assert!((pace.au_percent - au).abs() < 0.2, "{between}: {}", pace.au_percent);
            assert!(pace.uncertainty < 0.01, "{between}: {}", pace.uncertainty);
        }
    }

    #[test]
    fn samples_that_fill_the_queue_do_not_count() {
        // Nine samples arrive at once, then the device delivers one every 200 ms.
        let pace = pace(8, (0..200).map(|sample: u32| f64::from(sample.saturating_sub(9)) * 0.2)).unwrap();
        assert!((pace.au_percent - 50.0).abs() < 0.5, "{}", pace.au_percent);
    }

    #[test]
    fn a_device_that_varies_has_a_wide_interval() {
        // Every second part takes three times as long: 150 and 50 ms per sample.
        let mut at = 0.0;
        let arrivals = (0..220u32).map(|sample| {
            at += if (sample + 10) / 20 % 2 == 0 { 0.15 } else { 0.05 };
            at
        });
        let pace = pace(9, arrivals.collect::<Vec<_>>().into_iter()).unwrap();
        assert!((pace.au_percent - 100.0).abs() < 5.0, "{}", pace.au_percent);
        assert!((0.3..0.5).contains(&pace.uncertainty), "{}", pace.uncertainty);
    }

    #[test]
    fn a_short_run_has_no_pace() {
        assert!(pace(8, (0..22).map(f64::from)).is_none());
        assert!(pace(0, std::iter::empty()).is_none());
        // After the edges five steps remain, the fewest for an interval.
        assert!(pace(8, (0..23).map(f64::from)).is_some());
    }

    #[test]
    fn the_rest_of_the_epoch_runs_at_the_pace_of_arrivals() {
        let seen = SeenWindow { au_percent: 90.0, steps: 100 };
        let pace = |au_percent| Some(ArrivalPace { au_percent, uncertainty: 0.1 });
        let of = |steps, pace| extended(seen, steps, pace);
        assert!((of(1_000_000_000, pace(80.0)).percent - 80.0).abs() < 0.01);
        // 100 steps take 100 / 0.9 and the other 100 take 100 / 0.8.
        assert!((of(200, pace(80.0)).percent - 84.706).abs() < 0.001);
        assert!((of(100, pace(80.0)).percent - 90.0).abs() < 1e-9, "the run was the whole epoch");
        assert!((of(1000, pace(120.0)).percent - 90.0).abs() < 1e-9, "queues were filling");
        let interval = of(100, pace(80.0)).interval.unwrap();
        assert!((interval.low - 90.0 / 1.1).abs() < 1e-9 && (interval.high - 100.0).abs() < 1e-9);
        assert_eq!(of(1000, None), AuEstimate { percent: 90.0, interval: None });
    }
}
