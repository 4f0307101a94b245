//! How long the runs of a search are, in steps, and how long they and the search take, in seconds. Times are estimates
//! for users.

use super::search::{Bounds, Depth, Trial, bisect};
use crate::plan::TrainingPlan;

/// A probe has enough steps to compute for this long, if that is more than the steps that a measurement needs.
const PROBE_SECONDS: f64 = 2.0;
/// The time of a short confirmation: at least, and at most where AU is close to the target.
const SHORT_SECONDS: f64 = 20.0;
const LONGEST_SHORT_SECONDS: f64 = 80.0;
/// The interval of a short confirmation is to be this many times narrower than the distance to the target.
const MARGIN: f64 = 2.0;

/// The steps of the runs of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunLengths {
    /// The fewest steps of an epoch whose metric window is long enough.
    pub fewest: u64,
    pub probe: u64,
    /// Compute time of a step.
    step_seconds: f64,
}

impl RunLengths {
    /// For a workload on one rank; `probe` replaces the number of steps of a probe.
    pub fn of(plan: &TrainingPlan, probe: Option<u64>) -> RunLengths {
        let fewest = plan.steps_to_measure(None).saturating_add(plan.excluded_steps());
        let step_seconds = plan.train.compute.mean();
        let by_time = ((PROBE_SECONDS / step_seconds).ceil() as u64).saturating_add(plan.excluded_steps());
        RunLengths { fewest, probe: probe.unwrap_or(fewest.max(by_time)), step_seconds }
    }

    /// Steps of a short confirmation: enough for an interval that excludes the target, as far as a probe with the same
    /// number of ranks can tell. The width of an interval falls with the square root of the steps.
    pub fn short(&self, probe: Option<&Trial>, target_percent: f64) -> u64 {
        let in_time = |limit: f64| (limit / seconds(self.step_seconds, probe)).ceil();
        let needed = probe.and_then(|probe| {
            let interval = probe.au_interval?;
            let (half, distance) =
                ((interval.high - interval.low) / 2.0, (probe.au_percent - target_percent).abs());
            Some(probe.steps as f64 * (MARGIN * half / distance).powi(2))
        });
        // A distance of 0 needs infinitely many.
        let steps = needed.unwrap_or(0.0).min(in_time(LONGEST_SHORT_SECONDS)).max(in_time(SHORT_SECONDS));
        (steps.ceil() as u64).max(self.fewest)
    }
}

/// How long a run takes whose steps compute for this long and whose AU is known from a probe.
pub fn seconds(compute_seconds: f64, probe: Option<&Trial>) -> f64 {
    compute_seconds * 100.0 / probe.map_or(100.0, |probe| probe.au_percent).max(1.0)
}

/// How long the probes take if storage feeds this many ranks and each probe computes for this long.
pub fn probes_seconds(bounds: Bounds, compute_seconds: f64, fed: u64) -> f64 {
    let mut sum = 0.0;
    let mut probe = |ranks: u64| {
        let rate = bounds.demand * fed.min(ranks) as f64;
        let trial = Trial {
            ranks,
            depth: Depth::Probe,
            au_percent: 100.0 * fed.min(ranks) as f64 / ranks as f64,
            samples_per_second: rate,
            met: ranks <= fed,
            ..Trial::default()
        };
        sum += seconds(compute_seconds, Some(&trial));
        Ok::<_, ()>(Some(trial))
    };
    // The device never fails.
    let _ = bisect(bounds, &mut probe);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Confidence;

    const LENGTHS: RunLengths = RunLengths { fewest: 41, probe: 100, step_seconds: 0.045 };

    fn probe(au_percent: f64, half: f64) -> Trial {
        let au_interval = Some(Confidence { low: au_percent - half, high: au_percent + half });
        Trial { steps: 100, au_percent, au_interval, ..Trial::default() }
    }

    /// At AU 90 % a step takes 50 ms: 400 steps in 20 s, 1600 in 80 s.
    #[test]
    fn a_short_run_is_longer_where_au_is_close_to_the_target() {
        for (target, half, steps) in [
            (85.0, 1.0, 400),
            (95.0, 1.0, 400),
            // The interval has to be a quarter of its width: 16 times the steps of the probe.
            (91.0, 2.0, 1600),
            (91.0, 1.25, 625),
            (91.0, 100.0, 1600),
            (90.0, 0.5, 1600),
            (90.0, 0.0, 1600),
        ] {
            assert_eq!(LENGTHS.short(Some(&probe(90.0, half)), target), steps, "{target} {half}");
        }
        let unknown = Trial { au_interval: None, ..probe(90.0, 0.0) };
        assert_eq!(LENGTHS.short(Some(&unknown), 90.0), 400);
        assert_eq!(LENGTHS.short(None, 90.0), 445, "20 s of compute time");
    }

    #[test]
    fn slow_steps_are_fewer_but_enough_for_the_metric_window() {
        assert_eq!(LENGTHS.short(Some(&probe(45.0, 0.1)), 90.0), 200);
        assert_eq!(LENGTHS.short(Some(&probe(4.5, 0.1)), 90.0), 41);
    }

    #[test]
    fn the_time_of_a_search_grows_with_the_answer() {
        let bounds = Bounds { least: 1, from: 1, most: 1 << 20, demand: 90.0 };
        // Probes of 1 (10 s) and 2 (20 s) ranks.
        assert!((probes_seconds(bounds, 10.0, 1) - 30.0).abs() < 1e-9);
        // 1, 2, 4, 8 (10 s each), 16 (20 s) and the first guess, 9.
        assert!((probes_seconds(bounds, 10.0, 8) - (40.0 + 20.0 + 11.25)).abs() < 1e-9);
        assert!((probes_seconds(Bounds { most: 4, ..bounds }, 10.0, 8) - 30.0).abs() < 1e-9);
        assert!((seconds(10.0, None) - 10.0).abs() < 1e-9);
        assert!((seconds(10.0, Some(&probe(0.0, 0.0))) - 1000.0).abs() < 1e-9, "bounded");
    }
}
