//! The search for the largest number of ranks that still meets the target: growth by doubling, then bisection with
//! short probes, then longer runs on both sides of the border, which confirm it. The caller does the runs and returns
//! what each showed. The next run depends on these results only, so a search is repeated by returning them again.

use serde::{Deserialize, Serialize};

use crate::statistics::Confidence;

/// How thorough a trial is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// A few steps.
    #[default]
    Probe,
    /// Enough steps to tell AU from the target, at most an epoch.
    Short,
    /// The workload's full epochs.
    Full,
}

impl Depth {
    /// How the border is confirmed, as users name it; `none` stands for probes alone.
    pub const CONFIRMATIONS: [(&'static str, Depth); 3] =
        [("short", Depth::Short), ("full", Depth::Full), ("none", Depth::Probe)];

    pub fn name(self) -> &'static str {
        match self {
            Depth::Probe => "probe",
            Depth::Short => "short",
            Depth::Full => "full",
        }
    }
}

/// What a run with this number of ranks showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    pub ranks: u64,
    pub depth: Depth,
    pub epochs: u64,
    /// Of each epoch.
    pub steps: u64,
    /// Of the workload's epochs: measured if the run is as long as they are, else estimated.
    pub au_percent: f64,
    /// 95 %; `None` if the run was too short for one.
    pub au_interval: Option<Confidence>,
    /// In the metric window of the run.
    pub window_au_percent: f64,
    pub samples_per_second: f64,
    /// Millions of bytes.
    pub mb_per_second: f64,
    pub met: bool,
    /// Rules of the verdict that failed.
    pub broken: Vec<String>,
    pub wall_seconds: f64,
}

impl Trial {
    /// Whether the run tells AU from the target. A full run is what the target is defined for.
    pub fn is_decided(&self, target_percent: f64) -> bool {
        self.depth == Depth::Full
            || self.au_interval.is_some_and(|interval| !interval.contains(target_percent))
    }
}

/// Where to search.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The smallest number of ranks that can be tried: one for each process.
    pub least: u64,
    pub from: u64,
    /// The largest number of ranks to try.
    pub most: u64,
    /// Samples per second that one rank needs to meet the target.
    pub demand: f64,
}

impl Bounds {
    /// The answer if this number of ranks met the target and one more did not.
    fn answer(&self, met: u64) -> u64 {
        if met < self.least { 0 } else { met }
    }
}

/// A run that the search needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialRequest {
    pub ranks: u64,
    pub depth: Depth,
    /// Among the runs of this depth, from 1.
    pub number: u64,
    /// The ranks of the run that follows if this one agrees with the probes; `None`: none, or unknown.
    pub next: Option<u64>,
}

/// Whether the search reached an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchState {
    /// Both sides of the border were seen, at the depth that was asked for.
    Clear,
    /// The runs that were to confirm the border never did.
    Contradicted,
    /// The caller stopped it.
    Stopped,
}

/// The border: this number of ranks meets the target, and one more does not.
#[derive(Clone, Debug)]
pub struct CapacityAnswer {
    /// 0: even the smallest number of ranks misses the target.
    pub ranks: u64,
    /// Every trial, in order.
    pub trials: Vec<Trial>,
    pub state: SearchState,
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
    /// It was stopped.
    Stop,
}

impl CapacityAnswer {
    /// The most thorough trial with this number of ranks.
    pub fn of(&self, ranks: u64) -> Option<&Trial> {
        deepest(&self.trials, ranks)
    }

    /// The smallest number of ranks that missed the target, by the most thorough trial of each number.
    pub fn fewest_missed(&self) -> Option<u64> {
        let missed = self.trials.iter().filter(|trial| self.of(trial.ranks).is_some_and(|trial| !trial.met));
        missed.map(|trial| trial.ranks).min()
    }
}

fn deepest(trials: &[Trial], ranks: u64) -> Option<&Trial> {
    trials.iter().filter(|trial| trial.ranks == ranks).max_by_key(|trial| trial.depth)
}

/// The largest number of ranks that met the target, by the most thorough trial of each number.
fn most_met(trials: &[Trial]) -> u64 {
    let met = trials.iter().filter(|trial| deepest(trials, trial.ranks).is_some_and(|trial| trial.met));
    met.map(|trial| trial.ranks).max().unwrap_or(0)
}

/// How many guesses from the measured rate bisection tries before it halves the interval. Where the rate does not
/// depend on the ranks the first guess is right; elsewhere guesses converge slowly.
const GUESSES: u32 = 4;
/// The largest number of runs that are to confirm the border. Two are enough where they agree with the probes.
const CONFIRMING_RUNS: u64 = 16;

/// Finds the border and confirms it with runs of this depth. `run` returns `None` to stop the search.
pub fn search<E>(
    bounds: Bounds,
    confirmation: Depth,
    mut run: impl FnMut(TrialRequest, &[Trial]) -> Result<Option<Trial>, E>,
) -> Result<CapacityAnswer, E> {
    let mut trials: Vec<Trial> = Vec::new();
    let mut probe = |ranks| {
        let number = trials.len() as u64 + 1;
        let request = TrialRequest { ranks, depth: Depth::Probe, number, next: None };
        let trial = run(request, &trials)?;
        trials.extend(trial.clone());
        Ok::<Option<Trial>, E>(trial)
    };
    match bisect(bounds, &mut probe)? {
        None => Ok(CapacityAnswer { ranks: most_met(&trials), trials, state: SearchState::Stopped }),
        Some(met) if confirmation == Depth::Probe => {
            Ok(CapacityAnswer { ranks: bounds.answer(met), trials, state: SearchState::Clear })
        }
        Some(candidate) => confirm(candidate, bounds, confirmation, trials, run),
    }
}

/// The largest number of ranks whose probe meets the target; `None` if a probe was stopped.
pub(super) fn bisect<E>(
    bounds: Bounds,
    probe: &mut impl FnMut(u64) -> Result<Option<Trial>, E>,
) -> Result<Option<u64>, E> {
    // Fewer ranks are not tried.
    let mut met = bounds.least - 1;
    let mut next = bounds.from.max(bounds.least).min(bounds.most);
    let (mut failed, mut guess) = loop {
        let Some(trial) = probe(next)? else { return Ok(None) };
        if !trial.met {
            break (next, fed(&trial, bounds.demand));
        }
        met = next;
        if next == bounds.most {
            return Ok(Some(met));
        }
        next = next.saturating_mul(2).min(bounds.most);
    };
    let mut guesses = 0;
    while failed - met > 1 {
        let inside = |ranks: u64| (met < ranks && ranks < failed && guesses < GUESSES).then_some(ranks);
        let middle = met + (failed - met) / 2;
        let Some(trial) = probe(inside(guess).or(inside(guess + 1)).unwrap_or(middle))? else {
            return Ok(None);
        };
        guesses += 1;
        if trial.met {
            met = trial.ranks;
        } else {
            failed = trial.ranks;
            guess = fed(&trial, bounds.demand);
        }
    }
    Ok(Some(met))
}

/// How many ranks the rate of a trial can feed.
fn fed(trial: &Trial, demand: f64) -> u64 {
    (trial.samples_per_second / demand) as u64
}

/// Longer runs at the border that the probes found. Where they contradict it, the search continues with them: away from
/// the border in growing strides, then between the two sides.
fn confirm<E>(
    candidate: u64,
    bounds: Bounds,
    depth: Depth,
    mut trials: Vec<Trial>,
    mut run: impl FnMut(TrialRequest, &[Trial]) -> Result<Option<Trial>, E>,
) -> Result<CapacityAnswer, E> {
    // Fewer than `least` ranks always meet the target and more than `most` never do, so neither needs a run.
    let Bounds { least, most, .. } = bounds;
    let (mut met, mut failed) = (least - 1, most + 1);
    let (mut ranks, mut stride) = (candidate.max(least), 1);
    for number in 1..=CONFIRMING_RUNS {
        let next = (number == 1 && candidate >= least && ranks < most).then_some(ranks + 1);
        let Some(trial) = run(TrialRequest { ranks, depth, number, next }, &trials)? else {
            return Ok(CapacityAnswer { ranks: most_met(&trials), trials, state: SearchState::Stopped });
        };
        if trial.met {
            met = ranks;
        } else {
            failed = ranks;
        }
        trials.push(trial);
        if failed - met == 1 {
            return Ok(CapacityAnswer { ranks: bounds.answer(met), trials, state: SearchState::Clear });
        }
        ranks = match (met, failed) {
            (met, _) if met < least => failed.saturating_sub(stride).max(least),
            (_, failed) if failed > most => (met + stride).min(most),
            _ => met + (failed - met) / 2,
        };
        stride *= 2;
    }
    Ok(CapacityAnswer { ranks: bounds.answer(met), trials, state: SearchState::Contradicted })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Storage that delivers `rate` samples per second to any number of ranks, each of which takes at most 100.
    fn device(rate: f64) -> impl FnMut(TrialRequest, &[Trial]) -> Result<Option<Trial>, ()> {
        move |TrialRequest { ranks, depth, .. }, _| {
            let samples_per_second = rate.min(100.0 * ranks as f64);
            let au_percent = samples_per_second / ranks as f64;
            let met = au_percent >= 90.0;
            Ok(Some(Trial { ranks, depth, au_percent, samples_per_second, met, ..Trial::default() }))
        }
    }

    fn bounds(from: u64, most: u64) -> Bounds {
        Bounds { least: 1, from, most, demand: 90.0 }
    }

    #[test]
    fn the_limit_of_a_device_is_found_in_few_probes() {
        for rate in [10.0, 80.0, 95.0, 180.0, 181.0, 270.0, 899.0, 901.0, 12_345.0, 90_001.0] {
            for from in [1, 3, 100] {
                let answer = search(bounds(from, 1 << 20), Depth::Full, device(rate)).unwrap();
                assert_eq!(answer.ranks, (rate / 90.0) as u64, "{rate} from {from}");
                assert_eq!(answer.state, SearchState::Clear);
                assert!(answer.trials.len() <= 16, "{rate} from {from}: {} trials", answer.trials.len());
                assert_eq!(answer.of(answer.ranks + 1).map(|trial| trial.met), Some(false));
                assert_eq!(
                    answer.of(answer.ranks).map(|trial| trial.met),
                    (answer.ranks > 0).then_some(true)
                );
            }
        }
    }

    #[test]
    fn the_most_ranks_end_the_search() {
        let answer = search(bounds(1, 6), Depth::Short, device(1e9)).unwrap();
        assert_eq!((answer.ranks, answer.state), (6, SearchState::Clear));
        assert!(answer.trials.iter().all(|trial| trial.ranks <= 6));
        let answer = search(bounds(40, 6), Depth::Short, device(1e9)).unwrap();
        assert_eq!(answer.ranks, 6, "the start is greater than the end");
    }

    #[test]
    fn full_runs_overrule_probes() {
        for (probes, full) in [(1000.0, 800.0), (800.0, 1000.0), (100.0, 80.0), (9000.0, 8000.0), (80.0, 1e9)]
        {
            let (mut brief, mut long) = (device(probes), device(full));
            let answer = search(bounds(1, 100), Depth::Full, |request, trials| match request.depth {
                Depth::Probe => brief(request, trials),
                _ => long(request, trials),
            });
            let answer = answer.unwrap();
            let truth = ((full / 90.0) as u64).min(100);
            assert_eq!((answer.ranks, answer.state), (truth, SearchState::Clear), "{probes} {full}");
        }
    }

    #[test]
    fn full_runs_that_never_confirm_the_border_end() {
        let (mut low, mut high) = (device(200.0), device(1e12));
        let answer = search(bounds(1, 1 << 40), Depth::Short, |request, trials| match request.depth {
            Depth::Probe => low(request, trials),
            _ => high(request, trials),
        });
        let answer = answer.unwrap();
        assert!(answer.state == SearchState::Contradicted && answer.ranks > 2);
        let full = answer.trials.iter().filter(|trial| trial.depth == Depth::Short).count();
        assert_eq!(full as u64, CONFIRMING_RUNS);
    }

    /// A rate that falls as ranks are added: every guess is too high.
    #[test]
    fn after_slow_guesses_the_interval_is_halved() {
        let mut trials = 0;
        let answer = search(bounds(1, 1 << 20), Depth::Full, |request, earlier| {
            trials += 1;
            device(90.0 * 40_000.0 / (1.0 + request.ranks as f64 / 1e5))(request, earlier)
        });
        assert_eq!(answer.unwrap().state, SearchState::Clear);
        assert!(trials < 45, "{trials}");
    }

    #[test]
    fn without_confirmation_probes_decide() {
        let answer = search(bounds(1, 100), Depth::Probe, device(500.0)).unwrap();
        assert_eq!((answer.ranks, answer.state), (5, SearchState::Clear));
        assert!(answer.trials.iter().all(|trial| trial.depth == Depth::Probe));
    }

    #[test]
    fn a_request_says_which_run_it_is_and_which_follows() {
        use Depth::{Probe, Short};
        let mut seen = Vec::new();
        let answer = search(bounds(1, 100), Short, |request, trials| {
            seen.push((request.depth, request.number, request.ranks, request.next));
            assert_eq!(trials.len() + 1, seen.len());
            device(100.0)(request, trials)
        });
        assert_eq!(answer.unwrap().ranks, 1);
        assert_eq!(
            seen,
            [(Probe, 1, 1, None), (Probe, 2, 2, None), (Short, 1, 1, Some(2)), (Short, 2, 2, None)]
        );
    }

    /// Whenever it is stopped, the answer lies between what was met and what was missed; with the recorded trials the
    /// search continues as if it had not been stopped.
    #[test]
    fn a_stopped_search_has_a_partial_answer_and_can_be_repeated() {
        let whole = search(bounds(1, 100), Depth::Short, device(500.0)).unwrap();
        for stop in 0..whole.trials.len() {
            let mut runs = 0;
            let mut stopping = |request: TrialRequest, trials: &[Trial]| {
                runs += 1;
                if runs > stop { Ok(None) } else { device(500.0)(request, trials) }
            };
            let part = search(bounds(1, 100), Depth::Short, &mut stopping).unwrap();
            assert_eq!((part.state, part.trials.len()), (SearchState::Stopped, stop));
            assert!(part.ranks <= 5 && part.fewest_missed().is_none_or(|missed| missed > 5), "{part:?}");
            let again =
                search(bounds(1, 100), Depth::Short, |request, trials| match part.trials.get(trials.len()) {
                    Some(known) => {
                        assert_eq!((known.ranks, known.depth), (request.ranks, request.depth));
                        Ok(Some(known.clone()))
                    }
                    None => device(500.0)(request, trials),
                });
            assert_eq!(again.unwrap().trials, whole.trials);
        }
    }

    #[test]
    fn a_full_run_or_an_interval_without_the_target_decides() {
        let trial = |depth, low, high| Trial {
            depth,
            au_interval: Some(Confidence { low, high }),
            ..Trial::default()
        };
        assert!(trial(Depth::Full, 89.0, 91.0).is_decided(90.0));
        assert!(trial(Depth::Short, 90.5, 91.0).is_decided(90.0));
        assert!(!trial(Depth::Short, 89.0, 91.0).is_decided(90.0));
        assert!(!Trial { depth: Depth::Short, ..Trial::default() }.is_decided(90.0));
    }
}
