//! How often to save checkpoints, given their cost. CheckFreq's rule bounds the share of time spent saving; Young's and
//! Daly's balance it against the work that a failure loses.

use serde::Serialize;

use crate::units::Nanos;

/// Measured costs, and known facts about the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// How long training paused for a checkpoint.
    pub blocked: Nanos,
    /// From the start of a save until it was durable on the last tier.
    pub durable: Nanos,
    /// One training step; `None` without training.
    pub step: Option<Nanos>,
    /// Mean time between failures of the whole job.
    pub between_failures: Option<Nanos>,
}

/// How often to save.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// CheckFreq: steps between checkpoints such that saves do not overlap and cost at most the bound.
    pub checkfreq_steps: Option<u64>,
    /// The resulting share of training time spent saving.
    pub checkfreq_overhead: Option<f64>,
    /// Young: sqrt(2 x cost x time between failures).
    pub young_seconds: Option<f64>,
    /// Daly: a higher-order estimate, for costs that are not small.
    pub daly_seconds: Option<f64>,
}

/// The maximum share of training time that CheckFreq spends saving.
pub const CHECKFREQ_BOUND: f64 = 0.05;

/// Applies the rules.
pub fn advise(costs: &Costs) -> Advice {
    let steps = costs.step.filter(|step| step.0 > 0).map(|step| checkfreq(costs, step));
    let overhead = steps.zip(costs.step).map(|(steps, step)| share(costs.blocked, steps, step));
    let cost = costs.blocked.seconds();
    let failures = costs.between_failures.map(Nanos::seconds).filter(|_| cost > 0.0);
    Advice {
        checkfreq_steps: steps,
        checkfreq_overhead: overhead,
        young_seconds: failures.map(|mtbf| (2.0 * cost * mtbf).sqrt()),
        daly_seconds: failures.map(|mtbf| daly(cost, mtbf)),
    }
}

/// The shortest interval in which a save becomes durable before the next one starts and which meets the bound.
fn checkfreq(costs: &Costs, step: Nanos) -> u64 {
    let in_background = costs.durable.since(costs.blocked);
    let until_durable = in_background.0.div_ceil(step.0).max(1);
    let within_bound = (costs.blocked.seconds() / (CHECKFREQ_BOUND * step.seconds())).ceil() as u64;
    until_durable.max(within_bound)
}

fn share(blocked: Nanos, steps: u64, step: Nanos) -> f64 {
    blocked.seconds() / (steps as f64 * step.seconds())
}

/// J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps" (2006), equation 37.
fn daly(cost: f64, mtbf: f64) -> f64 {
    if cost >= 2.0 * mtbf {
        return mtbf;
    }
    let part = cost / (2.0 * mtbf);
    (2.0 * cost * mtbf).sqrt() * (1.0 + part.sqrt() / 3.0 + part / 9.0) - cost
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Nanos {
        Nanos::from_seconds(seconds)
    }

    #[test]
    fn checkfreq_waits_for_durability_and_for_the_bound() {
        let costs = Costs {
            blocked: seconds(0.1),
            durable: seconds(4.1),
            step: Some(seconds(0.5)),
            between_failures: None,
        };
        let advice = advise(&costs);
        assert_eq!(advice.checkfreq_steps, Some(8), "4 s in the background are 8 steps");
        assert!((advice.checkfreq_overhead.unwrap() - 0.025).abs() < 1e-9);
        let blocking = Costs { blocked: seconds(4.0), durable: seconds(4.0), ..costs };
        assert_eq!(advise(&blocking).checkfreq_steps, Some(160), "4 s are 5 % of 80 s");
        assert!(advise(&blocking).checkfreq_overhead.unwrap() <= CHECKFREQ_BOUND + 1e-9);
        assert_eq!(advise(&Costs { step: None, ..costs }).checkfreq_steps, None);
    }

    #[test]
    fn young_and_daly_agree_if_saving_is_cheap() {
        let costs = |blocked| Costs {
            blocked: seconds(blocked),
            durable: seconds(blocked),
            step: None,
            between_failures: Some(seconds(86_400.0)),
        };
        let cheap = advise(&costs(1.0));
        assert!((cheap.young_seconds.unwrap() - 415.69).abs() < 0.01);
        assert!((cheap.daly_seconds.unwrap() / cheap.young_seconds.unwrap() - 1.0).abs() < 0.005);
        let dear = advise(&costs(200_000.0));
        assert_eq!(
            dear.daly_seconds,
            Some(86_400.0),
            "a save that takes longer than twice the time between failures"
        );
        assert_eq!(advise(&costs(0.0)).young_seconds, None);
    }
}
