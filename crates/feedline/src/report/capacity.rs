//! The report of `feedline capacity`, as text and JSON: every trial as a row, the answer in one sentence, and whether
//! the storage or feedline itself is the limit.

use model::ledger::Calibration;
use model::plan::StorePlan;
use model::study::search::{CapacityAnswer, Depth, Trial};
use model::units::{counted, grouped};
use serde::Serialize;
use serde_json::{Value, json};

/// Why the search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// One more rank misses the target.
    Target,
    /// The data set has too few samples for one more rank.
    DataSet,
    /// The search reached `--up-to`, or the most ranks a plan can have.
    UpTo,
}

/// A finished search.
#[derive(Debug)]
pub struct CapacityReport<'a> {
    pub workload: &'a str,
    pub store: &'a StorePlan,
    /// AU, from 0 to 1.
    pub target: f64,
    pub answer: CapacityAnswer,
    pub end: End,
    /// The own ceiling of feedline, with one rank more than the answer.
    pub ceiling: Option<Calibration>,
}

impl CapacityReport<'_> {
    /// Whether the run that confirms the answer is valid.
    pub fn is_valid(&self) -> bool {
        self.answer.confirmed(self.answer.ranks).is_none_or(|trial| trial.broken.is_empty())
    }

    pub fn text(&self) -> String {
        let mut trials: Vec<&Trial> = self.answer.trials.iter().collect();
        trials.sort_by_key(|trial| (trial.ranks, trial.depth == Depth::Confirmed));
        let header = ["ranks", "AU %", "MB/s", "steps", "target", "run", "note"];
        let table = super::table(header, 0..4, trials.into_iter().map(row));
        let mut text = format!(
            "{}, {} backend{}\n\n{table}\n\n{}\n",
            self.workload,
            self.store,
            super::simulated(self.store.is_simulated()),
            self.words()
        );
        if let Some(limit) = self.instrument() {
            text.push_str(&format!("{limit}\n"));
        }
        text
    }

    /// The answer in one sentence.
    fn words(&self) -> String {
        let ranks = self.answer.ranks;
        let target = format!("AU {:.0} %", 100.0 * self.target);
        let seen = |ranks| self.answer.confirmed(ranks).map_or("not measured".to_owned(), au);
        let feeds = format!("{} at {target} ({})", counted(ranks, "accelerator"), seen(ranks));
        match self.end {
            _ if !self.answer.clear => format!("about {feeds}: full runs and probes disagree"),
            End::Target if ranks == 0 => {
                format!("0 accelerators at {target}; with 1: {}", seen(1))
            }
            End::Target => format!("{feeds}; with {}: {}", grouped(ranks + 1), seen(ranks + 1)),
            End::DataSet => format!(
                "at least {feeds}; the data set is too small for more than {}",
                counted(ranks, "rank")
            ),
            End::UpTo => format!("at least {feeds}; the search was limited to {}", counted(ranks, "rank")),
        }
    }

    /// A sentence about the limit, if the storage is not the limit.
    fn instrument(&self) -> Option<String> {
        if self.end != End::Target {
            return None;
        }
        if self.store.is_null() {
            return Some(
                "the null backend reads nothing: this is feedline's own ceiling on this host".to_owned(),
            );
        }
        self.instrument_limits().filter(|limits| *limits)?;
        let own = self.ceiling?.au_percent?;
        let more = counted(self.answer.ranks + 1, "accelerator");
        Some(format!(
            "the limit is feedline, not the storage: with {more}, the null backend reaches only AU {own:.2} % on this \
             host"
        ))
    }

    /// Whether feedline itself, on the null backend, misses the target with one more rank.
    fn instrument_limits(&self) -> Option<bool> {
        let own = self.ceiling?.au_percent?;
        Some(own < 100.0 * self.target)
    }

    pub fn json(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "workload": self.workload,
            "store": self.store,
            "simulated": self.store.is_simulated(),
            "au_target_percent": 100.0 * self.target,
            "accelerators": self.answer.ranks,
            "clear": self.answer.clear,
            "ended_by": self.end,
            "answer": self.words(),
            "instrument_is_the_limit": self.instrument_limits(),
            "calibration": self.ceiling,
            "trials": self.answer.trials,
        })
    }
}

fn au(trial: &Trial) -> String {
    format!("AU {:.2} %, {} MB/s", trial.au_percent, grouped(trial.mb_per_second.round() as u64))
}

fn row(trial: &Trial) -> [String; 7] {
    let note = match trial.broken.as_slice() {
        [] => String::new(),
        rules => format!("invalid: {}", rules.join(", ")),
    };
    [
        grouped(trial.ranks),
        format!("{:.2}", trial.au_percent),
        format!("{:.1}", trial.mb_per_second),
        grouped(trial.steps),
        met(trial).to_owned(),
        depth(trial).to_owned(),
        note,
    ]
}

/// The line that is printed when a trial ends: `probe      4 ranks  AU 99.10 %, 1,234 MB/s: met`
pub fn trial_line(trial: &Trial) -> String {
    format!("{:<9} {:>12}  {}: {}", depth(trial), counted(trial.ranks, "rank"), au(trial), met(trial))
}

fn met(trial: &Trial) -> &'static str {
    if trial.met { "met" } else { "not met" }
}

fn depth(trial: &Trial) -> &'static str {
    match trial.depth {
        Depth::Probe => "probe",
        Depth::Confirmed => "confirmed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(ranks: u64, depth: Depth, au_percent: f64) -> Trial {
        Trial {
            ranks,
            depth,
            steps: 60,
            au_percent,
            samples_per_second: 0.0,
            mb_per_second: 12.5 * ranks as f64,
            met: au_percent >= 90.0,
            broken: Vec::new(),
        }
    }

    fn report(ranks: u64, end: End, trials: Vec<Trial>) -> CapacityReport<'static> {
        let answer = CapacityAnswer { ranks, trials, clear: true };
        CapacityReport {
            workload: "snapshot",
            store: crate::report::posix(),
            target: 0.9,
            answer,
            end,
            ceiling: None,
        }
    }

    fn ceiling(au: f64) -> Calibration {
        Calibration {
            steps: 60,
            au_percent: Some(au),
            samples_per_second: None,
            harness_seconds_per_step: 0.0,
            cpu_headroom: 0.5,
        }
    }

    #[test]
    fn the_report_of_a_limit_is_exact() {
        use Depth::{Confirmed, Probe};
        let seen = [(1, Probe, 99.9), (2, Probe, 80.0), (1, Confirmed, 99.5), (2, Confirmed, 81.25)];
        let trials = seen.map(|(ranks, depth, au)| trial(ranks, depth, au)).to_vec();
        let mut limit = report(1, End::Target, trials);
        limit.ceiling = Some(ceiling(99.0));
        assert_eq!(limit.text(), EXPECTED);
        limit.ceiling = Some(ceiling(85.0));
        let limited = "the limit is feedline, not the storage: with 2 accelerators, the null backend reaches only \
                       AU 85.00 % on this host\n";
        assert_eq!(limit.text(), format!("{EXPECTED}{limited}"));
        assert!(limit.is_valid());
        limit.answer.trials[2].broken = vec!["on-time".to_owned()];
        assert!(!limit.is_valid());
    }

    const EXPECTED: &str = "\
snapshot, posix backend

 ranks   AU %  MB/s  steps  target   run        note
     1  99.90  12.5     60  met      probe
     1  99.50  12.5     60  met      confirmed
     2  80.00  25.0     60  not met  probe
     2  81.25  25.0     60  not met  confirmed

1 accelerator at AU 90 % (AU 99.50 %, 13 MB/s); with 2: AU 81.25 %, 25 MB/s
";

    #[test]
    fn every_end_has_its_words() {
        let full = |ranks, au| vec![trial(ranks, Depth::Confirmed, au)];
        let words = |ranks, end, trials| report(ranks, end, trials).words();
        assert_eq!(
            words(0, End::Target, full(1, 79.6)),
            "0 accelerators at AU 90 %; with 1: AU 79.60 %, 13 MB/s"
        );
        assert_eq!(
            words(4, End::DataSet, full(4, 95.0)),
            "at least 4 accelerators at AU 90 % (AU 95.00 %, 50 MB/s); the data set is too small for more than 4 ranks"
        );
        assert_eq!(
            words(8, End::UpTo, full(8, 95.0)),
            "at least 8 accelerators at AU 90 % (AU 95.00 %, 100 MB/s); the search was limited to 8 ranks"
        );
    }
}
