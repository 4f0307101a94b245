//! The search for the largest number of ranks that still meets the target: growth by doubling, then bisection with
//! short probes, then full runs on both sides of the border. The caller does the runs and returns what each showed.

use serde::Serialize;

/// How thorough a trial is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// A few steps.
    Probe,
    /// The workload's full epochs.
    Confirmed,
}

/// What a run with this number of ranks showed.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    pub ranks: u64,
    pub depth: Depth,
    pub steps: u64,
    pub au_percent: f64,
    pub samples_per_second: f64,
    /// Millions of bytes.
    pub mb_per_second: f64,
    pub met: bool,
    /// Rules of the verdict that failed.
    pub broken: Vec<String>,
}

/// Where to search.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub from: u64,
    /// The largest number of ranks to try.
    pub most: u64,
    /// Samples per second that one rank needs to meet the target.
    pub demand: f64,
}

/// The border: this number of ranks meets the target, and one more does not.
#[derive(Clone, Debug)]
pub struct CapacityAnswer {
    /// 0: even a single rank misses the target.
    pub ranks: u64,
    /// Every trial, in order.
    pub trials: Vec<Trial>,
    /// Whether full runs confirm both sides of the limit.
    pub clear: bool,
}

/// What ended the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityEnd {
    /// One rank more misses the target.
    Target,
    /// The data set has no samples for one rank more.
    DataSet,
    /// The search was limited to this number of ranks.
    UpTo,
}

impl CapacityAnswer {
    /// The full run with this number of ranks.
    pub fn confirmed(&self, ranks: u64) -> Option<&Trial> {
        self.trials.iter().find(|trial| trial.ranks == ranks && trial.depth == Depth::Confirmed)
    }
}

/// How many guesses from the measured rate bisection tries before it halves the interval. Where the rate does not
/// depend on the ranks the first guess is right; elsewhere guesses converge slowly.
const GUESSES: u32 = 4;
/// The largest number of full runs. Two are enough where they agree with the probes.
const FULL_RUNS: usize = 16;

/// Finds the border.
pub fn search<E>(
    bounds: Bounds,
    mut run: impl FnMut(u64, Depth) -> Result<Trial, E>,
) -> Result<CapacityAnswer, E> {
    let mut trials = Vec::new();
    let mut probe = |ranks| {
        let trial = run(ranks, Depth::Probe)?;
        trials.push(trial.clone());
        Ok::<Trial, E>(trial)
    };
    let candidate = bisect(bounds, &mut probe)?;
    confirm(candidate, bounds.most, trials, run)
}

/// The largest number of ranks whose probe meets the target.
fn bisect<E>(bounds: Bounds, probe: &mut impl FnMut(u64) -> Result<Trial, E>) -> Result<u64, E> {
    let mut met = 0;
    let mut next = bounds.from.clamp(1, bounds.most);
    let (mut failed, mut guess) = loop {
        let trial = probe(next)?;
        if !trial.met {
            break (next, fed(&trial, bounds.demand));
        }
        met = next;
        if next == bounds.most {
            return Ok(met);
        }
        next = next.saturating_mul(2).min(bounds.most);
    };
    let mut guesses = 0;
    while failed - met > 1 {
        let inside = |ranks: u64| (met < ranks && ranks < failed && guesses < GUESSES).then_some(ranks);
        let middle = met + (failed - met) / 2;
        let trial = probe(inside(guess).or(inside(guess + 1)).unwrap_or(middle))?;
        guesses += 1;
        if trial.met {
            met = trial.ranks;
        } else {
            failed = trial.ranks;
            guess = fed(&trial, bounds.demand);
        }
    }
    Ok(met)
}

/// How many ranks the rate of a trial can feed.
fn fed(trial: &Trial, demand: f64) -> u64 {
    (trial.samples_per_second / demand) as u64
}

/// Full runs at the border that the probes found. Where they contradict it, the search continues with full runs: away
/// from the border in growing strides, then between the two sides.
fn confirm<E>(
    candidate: u64,
    most: u64,
    mut trials: Vec<Trial>,
    mut run: impl FnMut(u64, Depth) -> Result<Trial, E>,
) -> Result<CapacityAnswer, E> {
    // Zero ranks always meet the target and more than `most` never do, so neither needs a run.
    let (mut met, mut failed) = (0, most + 1);
    let (mut next, mut stride) = (candidate.max(1), 1);
    for _ in 0..FULL_RUNS {
        let trial = run(next, Depth::Confirmed)?;
        if trial.met {
            met = next;
        } else {
            failed = next;
        }
        trials.push(trial);
        if failed - met == 1 {
            return Ok(CapacityAnswer { ranks: met, trials, clear: true });
        }
        next = match (met, failed) {
            (0, _) => failed.saturating_sub(stride).max(1),
            (_, failed) if failed > most => (met + stride).min(most),
            _ => met + (failed - met) / 2,
        };
        stride *= 2;
    }
    Ok(CapacityAnswer { ranks: met, trials, clear: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Storage that delivers `rate` samples per second to any number of ranks, each of which takes at most 100.
    fn device(rate: f64) -> impl FnMut(u64, Depth) -> Result<Trial, ()> {
        move |ranks, depth| {
            let samples_per_second = rate.min(100.0 * ranks as f64);
            let au_percent = samples_per_second / ranks as f64;
            Ok(Trial {
                ranks,
                depth,
                steps: 1,
                au_percent,
                samples_per_second,
                mb_per_second: 0.0,
                met: au_percent >= 90.0,
                broken: Vec::new(),
            })
        }
    }

    fn bounds(from: u64, most: u64) -> Bounds {
        Bounds { from, most, demand: 90.0 }
    }

    #[test]
    fn the_limit_of_a_device_is_found_in_few_probes() {
        for rate in [10.0, 80.0, 95.0, 180.0, 181.0, 270.0, 899.0, 901.0, 12_345.0, 90_001.0] {
            for from in [1, 3, 100] {
                let answer = search(bounds(from, 1 << 20), device(rate)).unwrap();
                assert_eq!(answer.ranks, (rate / 90.0) as u64, "{rate} from {from}");
                assert!(answer.clear);
                assert!(answer.trials.len() <= 16, "{rate} from {from}: {} trials", answer.trials.len());
                assert_eq!(answer.confirmed(answer.ranks + 1).map(|trial| trial.met), Some(false));
                assert_eq!(
                    answer.confirmed(answer.ranks).map(|trial| trial.met),
                    (answer.ranks > 0).then_some(true)
                );
            }
        }
    }

    #[test]
    fn the_most_ranks_end_the_search() {
        let answer = search(bounds(1, 6), device(1e9)).unwrap();
        assert_eq!((answer.ranks, answer.clear), (6, true));
        assert!(answer.trials.iter().all(|trial| trial.ranks <= 6));
        let answer = search(bounds(40, 6), device(1e9)).unwrap();
        assert_eq!(answer.ranks, 6, "the start is greater than the end");
    }

    #[test]
    fn full_runs_overrule_probes() {
        for (probes, full) in [(1000.0, 800.0), (800.0, 1000.0), (100.0, 80.0), (9000.0, 8000.0), (80.0, 1e9)]
        {
            let (mut brief, mut long) = (device(probes), device(full));
            let answer = search(bounds(1, 100), |ranks, depth| match depth {
                Depth::Probe => brief(ranks, depth),
                Depth::Confirmed => long(ranks, depth),
            });
            let answer = answer.unwrap();
            let truth = ((full / 90.0) as u64).min(100);
            assert_eq!((answer.ranks, answer.clear), (truth, true), "{probes} {full}");
        }
    }

    #[test]
    fn full_runs_that_never_confirm_the_border_end() {
        let (mut low, mut high) = (device(200.0), device(1e12));
        let answer = search(bounds(1, 1 << 40), |ranks, depth| match depth {
            Depth::Probe => low(ranks, depth),
            Depth::Confirmed => high(ranks, depth),
        });
        let answer = answer.unwrap();
        assert!(!answer.clear && answer.ranks > 2);
        let full = answer.trials.iter().filter(|trial| trial.depth == Depth::Confirmed).count();
        assert_eq!(full, FULL_RUNS);
    }

    /// A rate that falls as ranks are added: every guess is too high.
    #[test]
    fn after_slow_guesses_the_interval_is_halved() {
        let mut trials = 0;
        let answer = search(bounds(1, 1 << 20), |ranks, depth| {
            trials += 1;
            device(90.0 * 40_000.0 / (1.0 + ranks as f64 / 1e5))(ranks, depth)
        });
        assert!(answer.unwrap().clear);
        assert!(trials < 45, "{trials}");
    }
}
