//! The report of `feedline compare`: each figure of both sides with its ratio and confidence interval, and notes.

use std::fmt::Write;

use model::ledger::Phase;
use model::metrics::{self, EpochFigures, Figures};
use model::statistics::{FEWEST, ratio_confidence};
use model::units::{Nanos, counted, significant};
use serde_json::{Map, Value, json};

use super::repeats::{RepeatedFigure, ends};
use crate::commands::compare::ComparedSide;
use crate::commands::saved::SavedResult;

/// Seed of the intervals: the same results always give the same answer.
const SEED: u64 = 1;

/// A figure that is compared.
struct Metric {
    key: &'static str,
    name: &'static str,
    /// The word for B having more of it, or less.
    more: &'static str,
    less: &'static str,
    of_epoch: fn(&SavedResult, &EpochFigures) -> Option<f64>,
    /// The figure of a whole run.
    of_run: fn(&SavedResult, &Figures) -> Option<f64>,
    shown: fn(f64) -> String,
}

/// The latency is that of samples: I/O backends split reads differently, but samples are the same everywhere.
const METRICS: [Metric; 4] = [
    Metric {
        key: "samples_per_second",
        name: "samples/s",
        more: "faster",
        less: "slower",
        of_epoch: |_, epoch| epoch.samples_per_second,
        of_run: |_, run| run.samples_per_second.map(|rate| rate.mean),
        shown: significant,
    },
    Metric {
        key: "mib_per_second",
        name: "MiB/s",
        more: "faster",
        less: "slower",
        of_epoch: |_, epoch| epoch.mib_per_second,
        of_run: |_, run| run.mib_per_second.map(|rate| rate.mean),
        shown: significant,
    },
    Metric {
        key: "au_percent",
        name: "AU %",
        more: "higher",
        less: "lower",
        // Without compute time there is no AU.
        of_epoch: |saved, epoch| saved.demand().and(epoch.au_percent),
        of_run: |saved, run| saved.demand().and(run.au_percent).map(|au| au.mean),
        shown: |value| format!("{value:.2}"),
    },
    Metric {
        key: "sample_p99_ns",
        name: "p99 of a sample",
        more: "longer",
        less: "shorter",
        of_epoch: |_, epoch| epoch.latency.get("sample").map(|spans| spans.p99_ns.0 as f64),
        of_run: |saved, _| {
            saved.ledger.latencies(Phase::Train).sample.summary().map(|spans| spans.p99_ns.0 as f64)
        },
        shown: |value| Nanos(value as u64).to_string(),
    },
];

/// What counts as one observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Observations {
    Runs,
    /// Epochs of all runs; without the first epoch of each run if all runs have several.
    Epochs {
        without_first: bool,
    },
}

impl Observations {
    /// Runs are independent of one another; epochs of one run are not, because they share the conditions of that run.
    /// So a run is one observation if both sides have several runs. The first epoch of a run differs from the others:
    /// the directory entries and inodes that it looks up are cached for later epochs, whatever the state of the page
    /// cache.
    fn of(a: &[ComparedRun<'_>], b: &[ComparedRun<'_>]) -> Observations {
        if a.len() > 1 && b.len() > 1 {
            return Observations::Runs;
        }
        let several = |runs: &[ComparedRun<'_>]| runs.iter().all(|run| run.figures.epochs.len() > 1);
        Observations::Epochs { without_first: several(a) && several(b) }
    }

    fn name(self) -> &'static str {
        if self == Observations::Runs { "runs" } else { "epochs" }
    }

    /// Notes on this kind of observation.
    fn notes(self) -> Vec<String> {
        let first = match self {
            Observations::Runs => return Vec::new(),
            Observations::Epochs { without_first: true } => "excluded",
            Observations::Epochs { without_first: false } => "included",
        };
        vec![
            format!("the first epoch of each run, which finds less in the cache than later ones, is {first}"),
            "epochs of one run are not independent; for a better comparison, use several runs on each side"
                .to_owned(),
        ]
    }
}

/// A result and its figures.
struct ComparedRun<'a> {
    saved: &'a SavedResult,
    figures: Figures,
}

impl<'a> ComparedRun<'a> {
    fn all(side: &'a ComparedSide) -> Vec<ComparedRun<'a>> {
        let runs = side.results.iter().filter_map(|saved| {
            Some(ComparedRun { saved, figures: Figures::new(&saved.ledger, Phase::Train)? })
        });
        runs.collect()
    }
}

/// Whether a result on this side used a simulated device.
fn is_simulated(side: &ComparedSide) -> bool {
    side.results.iter().any(|saved| saved.plan.is_simulated())
}

fn observations(runs: &[ComparedRun<'_>], units: Observations, metric: &Metric) -> RepeatedFigure {
    let values = match units {
        Observations::Runs => {
            runs.iter().filter_map(|run| (metric.of_run)(run.saved, &run.figures)).collect()
        }
        Observations::Epochs { without_first } => {
            let epochs = runs.iter().flat_map(|run| {
                let ledger = &run.saved.ledger;
                let epochs = metrics::epochs(ledger, Phase::Train).skip(usize::from(without_first));
                epochs.filter_map(|epoch| (metric.of_epoch)(run.saved, &epoch))
            });
            epochs.collect()
        }
    };
    RepeatedFigure::new(values, SEED)
}

/// One figure, on both sides.
struct FigurePair {
    metric: &'static Metric,
    a: RepeatedFigure,
    b: RepeatedFigure,
    /// B / A.
    ratio: Option<f64>,
    interval: Option<(f64, f64)>,
}

impl FigurePair {
    fn new(metric: &'static Metric, a: RepeatedFigure, b: RepeatedFigure) -> FigurePair {
        let base = a.median.filter(|base| *base > 0.0);
        FigurePair {
            metric,
            ratio: b.median.zip(base).map(|(b, a)| b / a),
            interval: ratio_confidence(&b.values, &a.values, SEED).map(ends),
            a,
            b,
        }
    }

    /// `None`: there are too few observations.
    fn differs(&self) -> Option<bool> {
        self.interval.map(|(low, high)| !(low..=high).contains(&1.0))
    }

    fn answer(&self) -> String {
        match (self.differs(), self.ratio) {
            (_, None) => "n/a".to_owned(),
            (None, _) => "too few observations".to_owned(),
            (Some(false), _) => "no significant difference".to_owned(),
            (Some(true), Some(ratio)) if ratio > 1.0 => self.metric.more.to_owned(),
            (Some(true), _) => self.metric.less.to_owned(),
        }
    }

    /// `B is 1.12 x A in samples/s (95 % 1.05 to 1.19): faster`
    fn sentence(&self) -> Option<String> {
        let ratio = self.ratio?;
        let sure =
            self.interval.map_or(String::new(), |(low, high)| format!(" (95 % {low:.2} to {high:.2})"));
        Some(format!("B is {ratio:.2} x A in {}{sure}: {}", self.metric.name, self.answer()))
    }

    fn row(&self) -> [String; 6] {
        let shown = |side: &RepeatedFigure| side.median.map_or("n/a".to_owned(), self.metric.shown);
        [
            self.metric.name.to_owned(),
            shown(&self.a),
            shown(&self.b),
            self.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            self.interval.map_or("-".to_owned(), |(low, high)| format!("{low:.2} to {high:.2}")),
            self.answer(),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "a": self.a,
            "b": self.b,
            "ratio": self.ratio,
            "interval": self.interval,
            "differs": self.differs(),
        })
    }
}

/// Two results, compared.
pub(crate) struct ComparisonReport<'a> {
    a: &'a ComparedSide,
    b: &'a ComparedSide,
    units: Observations,
    pairs: Vec<FigurePair>,
    notes: Vec<String>,
}

impl<'a> ComparisonReport<'a> {
    /// Compares two sides that can be compared; `notes` has the reservations so far.
    pub(crate) fn new(
        a: &'a ComparedSide,
        b: &'a ComparedSide,
        mut notes: Vec<String>,
    ) -> ComparisonReport<'a> {
        let runs = [a, b].map(ComparedRun::all);
        let units = Observations::of(&runs[0], &runs[1]);
        notes.extend(units.notes());
        let pair = |metric: &'static Metric| {
            let [a, b] = [&runs[0], &runs[1]].map(|runs| observations(runs, units, metric));
            FigurePair::new(metric, a, b)
        };
        let pairs: Vec<FigurePair> = METRICS.iter().map(pair).collect();
        // MiB/s would only repeat the notes of samples/s.
        for pair in pairs.iter().filter(|pair| pair.metric.key != "mib_per_second") {
            for (side, repeats) in [(a, &pair.a), (b, &pair.b)] {
                let wary = repeats.notes(pair.metric.shown).into_iter();
                notes.extend(wary.map(|note| format!("{}, {}: {note}", side.name, pair.metric.name)));
            }
        }
        ComparisonReport { a, b, units, pairs, notes }
    }

    pub(crate) fn text(&self) -> String {
        let (mut paths, mut text) = (String::new(), String::new());
        for side in [self.a, self.b] {
            let count = counted(side.results.len() as u64, "result");
            let simulated = super::simulated(is_simulated(side));
            let label = format!("{}: {count} of {} in", side.name, side.first().plan.workload);
            paths.push_str(&super::path_line(&label, format!("{}{simulated}", side.path.display())));
        }
        let header = ["", "A", "B", "B / A", "95 % interval", ""];
        let rows = self.pairs.iter().map(|pair| pair.row().to_vec());
        let _ = writeln!(text, "\n{}\n", super::table(header, 1..5, rows));
        if let Some(sentence) = self.pairs.iter().find_map(FigurePair::sentence) {
            let _ = writeln!(text, "{sentence}");
        }
        let [a, b] = self.counts();
        let more = if a.min(b) < FEWEST { format!("; an interval needs {FEWEST}") } else { String::new() };
        let _ = writeln!(text, "\nmedians of {a} and {b} {}{more}", self.units.name());
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        paths + &super::fitted(&text)
    }

    /// Number of observations on each side.
    fn counts(&self) -> [usize; 2] {
        let most = |of: fn(&FigurePair) -> &RepeatedFigure| {
            self.pairs.iter().map(|pair| of(pair).values.len()).max()
        };
        [most(|pair| &pair.a), most(|pair| &pair.b)].map(|count| count.unwrap_or(0))
    }

    pub(crate) fn json(&self) -> Value {
        let side = |side: &ComparedSide| {
            let results = side.results.iter().zip(&side.verdicts);
            let results =
                results.map(|(saved, verdict)| json!({ "folder": saved.folder, "status": verdict.status }));
            let results = results.collect::<Vec<_>>();
            json!({ "path": side.path, "simulated": is_simulated(side), "results": results })
        };
        let figures: Map<String, Value> =
            self.pairs.iter().map(|pair| (pair.metric.key.to_owned(), pair.json())).collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "a": side(self.a),
            "b": side(self.b),
            "units": self.units.name(),
            "figures": figures,
            "answer": self.pairs.iter().find_map(FigurePair::sentence),
            "notes": self.notes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(a: &[f64], b: &[f64]) -> FigurePair {
        FigurePair::new(
            &METRICS[0],
            RepeatedFigure::new(a.to_vec(), SEED),
            RepeatedFigure::new(b.to_vec(), SEED),
        )
    }

    #[test]
    fn the_answer_is_one_sentence() {
        let a = [100.0, 101.0, 99.0, 100.5, 99.5];
        let faster = a.map(|value| 1.2 * value);
        let sentence = |b: &[f64]| pair(&a, b).sentence().unwrap();
        let text = sentence(&faster);
        assert!(text.starts_with("B is 1.20 x A in samples/s (95 % 1.1"), "{text}");
        assert!(text.ends_with("): faster"), "{text}");
        assert!(sentence(&a.map(|value| 0.5 * value)).ends_with(": slower"));
        assert!(sentence(&[100.2, 100.9, 99.1, 100.0, 99.6]).ends_with(": no significant difference"));
        assert_eq!(sentence(&[150.0]), "B is 1.50 x A in samples/s: too few observations");
        assert_eq!(pair(&[0.0], &[1.0]).sentence(), None);
        assert_eq!(pair(&[], &a).answer(), "n/a");
    }
}
