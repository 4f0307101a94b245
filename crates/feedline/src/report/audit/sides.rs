//! An audited job next to another one or to a run, such as its replay.

use ::report::audit::AuditFigures;
use model::ledger::{Ledger, Phase, RankRow};
use model::observed::Observed;
use model::units::{Bytes, Nanos, significant};
use serde_json::{Map, Value, json};

use super::super::{fitted, table};

/// The figures that jobs and runs have in common. What is not known is `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct SideFigures {
    folder: String,
    is_audit: bool,
    values: [Option<f64>; FIGURES.len()],
}

/// How a figure is shown.
#[derive(Clone, Copy, Debug)]
enum Show {
    Number,
    Rate,
    Size,
    Percent,
    Seconds,
}

/// The figures: key, name, and how they are shown.
const FIGURES: [(&str, &str, Show); 11] = [
    ("samples_per_second", "samples/s", Show::Number),
    ("bytes_per_second", "bytes read", Show::Rate),
    ("wait_share", "waiting for data", Show::Percent),
    ("compute_seconds_per_step", "compute of a step", Show::Seconds),
    ("epoch_seconds", "epoch", Show::Seconds),
    ("read_bytes_p50", "size of a read, p50", Show::Size),
    ("read_bytes_p90", "p90", Show::Size),
    ("read_bytes_p99", "p99", Show::Size),
    ("in_flight_p50", "reads in flight, p50", Show::Number),
    ("in_flight_p90", "p90 ", Show::Number),
    ("in_flight_p99", "p99 ", Show::Number),
];

const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

impl Show {
    fn text(self, value: f64) -> String {
        match self {
            Show::Number => significant(value),
            Show::Rate => format!("{}/s", Bytes(value as u64)),
            Show::Size => Bytes(value as u64).to_string(),
            Show::Percent => format!("{:.1} %", 100.0 * value),
            Show::Seconds => Nanos::from_seconds(value).to_string(),
        }
    }
}

impl SideFigures {
    pub(crate) fn of_audit(folder: String, observed: &Observed) -> SideFigures {
        let figures = AuditFigures::new(observed);
        let epochs = figures.epochs.len() as f64;
        let [s50, s90, s99] =
            QUANTILES.map(|share| figures.read_sizes.quantile(share).map(|size| size as f64));
        let [f50, f90, f99] = QUANTILES.map(|share| figures.in_flight(share).map(|reads| reads as f64));
        let values = [
            figures.samples_per_second(),
            figures.bytes_per_second(),
            figures.wait_share(),
            figures.compute_times.mean().map(|ns| ns / 1e9),
            (epochs > 0.0).then(|| figures.seconds() / epochs),
            s50,
            s90,
            s99,
            f50,
            f90,
            f99,
        ];
        SideFigures { folder, is_audit: true, values }
    }

    /// Sizes of reads and reads in flight are not recorded in a run.
    pub(crate) fn of_run(folder: String, ledger: &Ledger) -> SideFigures {
        let (mut seconds, mut waited, mut spent, mut all) = (0.0, 0.0, 0.0, RankRow::default());
        let epochs = ledger.epochs(Phase::Train);
        for epoch in &epochs {
            let total = |row: &RankRow| {
                let steps = row.wait_ns + row.copy_ns + row.compute_ns + row.barrier_ns;
                (steps + row.checkpoint_ns + row.harness_ns).seconds()
            };
            let rows = || ledger.rows(*epoch, Phase::Train).map(|(_, row)| row);
            seconds += rows().map(total).fold(0.0, f64::max);
            spent += rows().map(total).sum::<f64>();
            waited += rows().map(|row| (row.wait_ns + row.harness_ns).seconds()).sum::<f64>();
            all += ledger.total(*epoch, Phase::Train);
        }
        let per = |amount: f64, of: f64| (of > 0.0).then(|| amount / of);
        let values = [
            per(all.samples_delivered as f64, seconds),
            per(all.bytes_read as f64, seconds),
            per(waited, spent),
            per(all.compute_ns.seconds(), all.steps as f64),
            per(seconds, epochs.len() as f64),
            None,
            None,
            None,
            None,
            None,
            None,
        ];
        SideFigures { folder, is_audit: false, values }
    }
}

/// Two sides.
#[derive(Clone, Debug)]
pub(crate) struct SideBySide {
    a: SideFigures,
    b: SideFigures,
}

impl SideBySide {
    pub(crate) fn new(a: SideFigures, b: SideFigures) -> SideBySide {
        SideBySide { a, b }
    }

    fn ratio(&self, number: usize) -> Option<f64> {
        let of = |side: &SideFigures| side.values.get(number).copied().flatten();
        of(&self.b).zip(of(&self.a).filter(|base| *base > 0.0)).map(|(b, a)| b / a)
    }

    pub(crate) fn text(&self) -> String {
        let kind = |side: &SideFigures| if side.is_audit { "audit" } else { "run" };
        let mut text = String::new();
        for (name, side) in [("A", &self.a), ("B", &self.b)] {
            text.push_str(&super::super::path_line(&format!("{name}: {} in", kind(side)), &side.folder));
        }
        let shown = |value: Option<f64>, show: Show| value.map_or("n/a".to_owned(), |value| show.text(value));
        let rows = FIGURES.iter().enumerate().map(|(number, (_, name, show))| {
            let of = |side: &SideFigures| shown(side.values.get(number).copied().flatten(), *show);
            let ratio = self.ratio(number).map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
            [name.trim_end().to_owned(), of(&self.a), of(&self.b), ratio]
        });
        text.push('\n');
        text.push_str(&table(["", "A", "B", "B / A"], 1..4, rows.collect::<Vec<_>>()));
        text.push_str("\nverdict: not applicable: an observed job has no plan to be compared with\n");
        self.notes().iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
        fitted(&text)
    }

    fn notes(&self) -> Vec<String> {
        let runs = [&self.a, &self.b].into_iter().any(|side| !side.is_audit);
        let note = "sizes of reads and reads in flight of a run are in its trace; to compare them: feedline run \
                    job.yaml --trace FILE, then feedline audit --from FILE";
        if runs { vec![note.to_owned()] } else { Vec::new() }
    }

    pub(crate) fn json(&self) -> Value {
        let figure = |(number, (key, ..)): (usize, &(&str, &str, Show))| {
            let of = |side: &SideFigures| side.values.get(number).copied().flatten();
            let pair = json!({ "a": of(&self.a), "b": of(&self.b), "ratio": self.ratio(number) });
            ((*key).to_owned(), pair)
        };
        let kind = |side: &SideFigures| if side.is_audit { "audit" } else { "run" };
        let side = |side: &SideFigures| json!({ "folder": side.folder, "kind": kind(side) });
        json!({
            "a": side(&self.a),
            "b": side(&self.b),
            "verdict": "not applicable",
            "figures": FIGURES.iter().enumerate().map(figure).collect::<Map<_, _>>(),
            "notes": self.notes(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(is_audit: bool, samples: Option<f64>) -> SideFigures {
        let mut side = SideFigures { folder: "r".to_owned(), is_audit, ..SideFigures::default() };
        side.values[0] = samples;
        side
    }

    #[test]
    fn figures_are_set_side_by_side() {
        let both = SideBySide::new(side(true, Some(100.0)), side(false, Some(110.0)));
        assert_eq!(both.json()["figures"]["samples_per_second"]["ratio"], json!(1.1));
        assert_eq!(both.json()["figures"]["wait_share"]["b"], Value::Null);
        let text = both.text();
        assert!(
            text.contains("B: run in r") && text.contains("1.10") && text.contains("not applicable"),
            "{text}"
        );
        let none = SideBySide::new(side(true, Some(0.0)), side(true, Some(1.0)));
        assert_eq!(none.ratio(0), None);
        assert!(none.notes().is_empty());
    }

    #[test]
    fn a_run_has_the_figures_of_its_rows() {
        let mut ledger = Ledger::default();
        let row = RankRow {
            steps: 10,
            samples_delivered: 100,
            bytes_read: 1000,
            wait_ns: Nanos(1_000_000_000),
            compute_ns: Nanos(4_000_000_000),
            ..RankRow::default()
        };
        ledger.add(1, Phase::Train, 0, row);
        let [samples, bytes, wait, compute, epoch, ..] = SideFigures::of_run(String::new(), &ledger).values;
        assert_eq!([samples, bytes, wait, compute, epoch], [20.0, 200.0, 0.2, 0.4, 5.0].map(Some));
    }
}
