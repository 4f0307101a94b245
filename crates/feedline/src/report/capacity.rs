//! The report of `feedline capacity`, as text and JSON: every trial as a row, the answer in one sentence, and whether
//! the storage or feedline itself is the limit.

use model::study::search::{CapacityEnd, Depth, Trial};
use model::units::{counted, grouped};
use serde_json::{Value, json};
use session::study::CapacityFound;

/// The report of a search.
#[derive(Debug)]
pub(crate) struct CapacityReport<'a> {
    pub found: &'a CapacityFound,
}

impl CapacityReport<'_> {
    /// Whether the run that confirms the answer is valid.
    pub(crate) fn is_valid(&self) -> bool {
        self.found.answer.confirmed(self.found.answer.ranks).is_none_or(|trial| trial.broken.is_empty())
    }

    pub(crate) fn text(&self) -> String {
        let mut trials: Vec<&Trial> = self.found.answer.trials.iter().collect();
        trials.sort_by_key(|trial| (trial.ranks, trial.depth == Depth::Confirmed));
        let header = ["ranks", "AU %", "MB/s", "steps", "target", "run", "note"];
        let table = super::table(header, 0..4, trials.into_iter().map(row));
        let mut text = format!(
            "{}, {} backend{}\n\n{table}\n\n{}\n",
            self.found.workload,
            self.found.store,
            super::simulated(self.found.store.is_simulated()),
            self.words()
        );
        if let Some(limit) = self.instrument() {
            text.push_str(&format!("{limit}\n"));
        }
        text
    }

    /// The answer in one sentence.
    fn words(&self) -> String {
        let ranks = self.found.answer.ranks;
        let target = format!("AU {:.0} %", 100.0 * self.found.target);
        let seen = |ranks| self.found.answer.confirmed(ranks).map_or("not measured".to_owned(), au);
        let feeds = format!("{} at {target} ({})", counted(ranks, "accelerator"), seen(ranks));
        match self.found.end {
            _ if !self.found.answer.clear => format!("about {feeds}: full runs and probes disagree"),
            CapacityEnd::Target if ranks == 0 => {
                format!("0 accelerators at {target}; with 1: {}", seen(1))
            }
            CapacityEnd::Target => format!("{feeds}; with {}: {}", grouped(ranks + 1), seen(ranks + 1)),
            CapacityEnd::DataSet => format!(
                "at least {feeds}; the data set is too small for more than {}",
                counted(ranks, "rank")
            ),
            CapacityEnd::UpTo => {
                format!("at least {feeds}; the search was limited to {}", counted(ranks, "rank"))
            }
        }
    }

    /// A sentence about the limit, if the storage is not the limit.
    fn instrument(&self) -> Option<String> {
        if self.found.end != CapacityEnd::Target {
            return None;
        }
        if self.found.store.is_null() {
            return Some(
                "the null backend reads nothing: this is feedline's own ceiling on this host".to_owned(),
            );
        }
        self.instrument_limits().filter(|limits| *limits)?;
        let own = self.found.ceiling?.au_percent?;
        let more = counted(self.found.answer.ranks + 1, "accelerator");
        Some(format!(
            "the limit is feedline, not the storage: with {more}, the null backend reaches only AU {own:.2} % on this \
             host"
        ))
    }

    /// Whether feedline itself, on the null backend, misses the target with one more rank.
    fn instrument_limits(&self) -> Option<bool> {
        let own = self.found.ceiling?.au_percent?;
        Some(own < 100.0 * self.found.target)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "workload": self.found.workload,
            "store": self.found.store,
            "simulated": self.found.store.is_simulated(),
            "au_target_percent": 100.0 * self.found.target,
            "accelerators": self.found.answer.ranks,
            "clear": self.found.answer.clear,
            "ended_by": self.found.end,
            "answer": self.words(),
            "instrument_is_the_limit": self.instrument_limits(),
            "calibration": self.found.ceiling,
            "trials": self.found.answer.trials,
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
pub(crate) fn trial_line(trial: &Trial) -> String {
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
    use model::ledger::Calibration;
    use model::study::search::CapacityAnswer;

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

    fn found(ranks: u64, end: CapacityEnd, trials: Vec<Trial>) -> CapacityFound {
        let answer = CapacityAnswer { ranks, trials, clear: true };
        let (workload, store) = ("snapshot".to_owned(), crate::report::posix().clone());
        CapacityFound { workload, store, target: 0.9, answer, end, ceiling: None }
    }

    fn text(found: &CapacityFound) -> String {
        CapacityReport { found }.text()
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
        let mut limit = found(1, CapacityEnd::Target, trials);
        limit.ceiling = Some(ceiling(99.0));
        assert_eq!(text(&limit), EXPECTED);
        limit.ceiling = Some(ceiling(85.0));
        let limited = "the limit is feedline, not the storage: with 2 accelerators, the null backend reaches only \
                       AU 85.00 % on this host\n";
        assert_eq!(text(&limit), format!("{EXPECTED}{limited}"));
        assert!(CapacityReport { found: &limit }.is_valid());
        limit.answer.trials[2].broken = vec!["on-time".to_owned()];
        assert!(!CapacityReport { found: &limit }.is_valid());
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
        let words = |ranks, end, trials| CapacityReport { found: &found(ranks, end, trials) }.words();
        assert_eq!(
            words(0, CapacityEnd::Target, full(1, 79.6)),
            "0 accelerators at AU 90 %; with 1: AU 79.60 %, 13 MB/s"
        );
        assert_eq!(
            words(4, CapacityEnd::DataSet, full(4, 95.0)),
            "at least 4 accelerators at AU 90 % (AU 95.00 %, 50 MB/s); the data set is too small for more than 4 ranks"
        );
        assert_eq!(
            words(8, CapacityEnd::UpTo, full(8, 95.0)),
            "at least 8 accelerators at AU 90 % (AU 95.00 %, 100 MB/s); the search was limited to 8 ranks"
        );
    }
}
