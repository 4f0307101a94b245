//! The report of `feedline sweep`, as text, JSON, CSV and plot: one row per cell with the median of its runs, the
//! speed-up over the first cell with its interval, and notes. It is made from the journal alone.

use model::ledger::Calibration;
use model::spec::{PlottedFigure, canonical_key};
use model::statistics::ratio_confidence;
use model::study::grid::Axis;
use model::units::{Nanos, counted, significant};
use model::verdict::WINDOW_LONG_ENOUGH;
use serde::Serialize;
use serde_json::{Value, json};

use super::repeats::{RepeatedFigure, ends};
use super::{Table, csv_field};
use crate::commands::sweep::{CellRun, SweepHeader};
use ::report::plot::{Bar, Figure};

/// The runs of one cell.
#[derive(Clone, Debug)]
pub(crate) struct CellRuns<'a> {
    /// A value for each key.
    pub settings: Vec<String>,
    /// Whether a simulated device was used.
    pub simulated: bool,
    pub runs: Vec<&'a CellRun>,
}

/// The figures of a cell.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CellFigures {
    /// A value for each key.
    pub settings: Vec<String>,
    pub simulated: bool,
    pub samples_per_second: RepeatedFigure,
    pub mb_per_second: RepeatedFigure,
    pub au_percent: RepeatedFigure,
    pub blocked_seconds: RepeatedFigure,
    /// Speed-up over the first cell, in the figure that the sweep compares.
    pub speed_up: Option<f64>,
    pub speed_up_interval: Option<(f64, f64)>,
    pub failed: usize,
    /// The error of the last failed run.
    pub error: Option<String>,
    /// Rules of the verdict that failed in a run.
    pub broken: Vec<String>,
    /// Rules that could not be checked in a run.
    pub unchecked: Vec<String>,
}

/// The figure by which cells are compared: samples per second or, if only settings of checkpoints vary, the time for
/// which a save blocks training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CellMeasure {
    SamplesPerSecond,
    BlockedSeconds,
}

impl CellMeasure {
    fn of(header: &SweepHeader, cells: &[CellFigures]) -> CellMeasure {
        let saves = |axis: &Axis| canonical_key(&axis.key).starts_with("checkpoint.");
        let measured = cells.iter().any(|cell| cell.blocked_seconds.median.is_some());
        match measured && header.over.iter().all(saves) {
            true => CellMeasure::BlockedSeconds,
            false => CellMeasure::SamplesPerSecond,
        }
    }

    fn figure(self, cell: &CellFigures) -> &RepeatedFigure {
        match self {
            CellMeasure::SamplesPerSecond => &cell.samples_per_second,
            CellMeasure::BlockedSeconds => &cell.blocked_seconds,
        }
    }

    /// The speed-up of a cell over the first one, and its interval.
    fn speed_up(
        self,
        own: &RepeatedFigure,
        first: &RepeatedFigure,
        seed: u64,
    ) -> (Option<f64>, Option<(f64, f64)>) {
        let (more, less) = match self {
            CellMeasure::SamplesPerSecond => (own, first),
            CellMeasure::BlockedSeconds => (first, own),
        };
        let base = less.median.filter(|base| *base > 0.0);
        let speed_up = more.median.zip(base).map(|(more, less)| more / less);
        (speed_up, ratio_confidence(&more.values, &less.values, seed).map(ends))
    }
}

impl CellFigures {
    fn new(CellRuns { settings, simulated, runs }: CellRuns<'_>, seed: u64) -> CellFigures {
        let repeats = |figure: fn(&CellRun) -> Option<f64>| {
            RepeatedFigure::new(runs.iter().filter_map(|run| figure(run)).collect(), seed)
        };
        let rules = |of: fn(&CellRun) -> &[String]| {
            let mut rules: Vec<String> = Vec::new();
            for rule in runs.iter().flat_map(|run| of(run)) {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
            rules
        };
        let errors: Vec<&String> = runs.iter().filter_map(|run| run.error.as_ref()).collect();
        CellFigures {
            settings,
            simulated,
            samples_per_second: repeats(|run| run.samples_per_second),
            mb_per_second: repeats(|run| run.mb_per_second),
            au_percent: repeats(|run| run.au_percent),
            blocked_seconds: repeats(|run| run.blocked_seconds),
            speed_up: None,
            speed_up_interval: None,
            failed: errors.len(),
            error: errors.last().map(ToString::to_string),
            broken: rules(|run| &run.broken),
            unchecked: rules(|run| &run.unchecked),
        }
    }

    /// Reasons to distrust the figures of the cell.
    fn notes(&self, compared: CellMeasure) -> Vec<String> {
        let mut notes = Vec::new();
        if self.simulated {
            notes.push("simulated".to_owned());
        }
        if let Some(error) = &self.error {
            notes.push(format!("{} failed: {}", self.failed, error.lines().next().unwrap_or_default()));
        }
        if !self.broken.is_empty() {
            notes.push(format!("invalid: {}", self.broken.join(", ")));
        }
        if self.unchecked.iter().any(|rule| rule == WINDOW_LONG_ENOUGH) {
            notes.push("too few steps for the prefetch".to_owned());
        }
        notes.extend(compared.figure(self).notes(significant));
        notes
    }
}

/// A finished sweep.
#[derive(Debug)]
pub(crate) struct SweepReport<'a> {
    header: &'a SweepHeader,
    cells: Vec<CellFigures>,
    compared: CellMeasure,
    ceiling: Option<Calibration>,
}

impl<'a> SweepReport<'a> {
    /// Makes the report from the runs of each cell, in the order of the grid.
    pub(crate) fn new(
        header: &'a SweepHeader,
        cells: impl Iterator<Item = CellRuns<'a>>,
        ceiling: Option<Calibration>,
    ) -> SweepReport<'a> {
        let mut cells: Vec<CellFigures> = cells.map(|runs| CellFigures::new(runs, header.seed)).collect();
        let compared = CellMeasure::of(header, &cells);
        if let Some((first, others)) = cells.split_first_mut() {
            let base = compared.figure(first).clone();
            first.speed_up = base.median.map(|_| 1.0);
            for cell in others {
                (cell.speed_up, cell.speed_up_interval) =
                    compared.speed_up(compared.figure(cell), &base, header.seed);
            }
        }
        SweepReport { header, cells, compared, ceiling }
    }

    /// A suffix for the title of a table or plot in which some or all devices are simulated.
    fn simulated(&self) -> &'static str {
        let mut cells = self.cells.iter();
        match (cells.clone().any(|cell| cell.simulated), cells.all(|cell| cell.simulated)) {
            (_, true) => " (simulated)",
            (true, false) => " (partly simulated)",
            (false, false) => "",
        }
    }

    /// `2 of 6 runs failed`, if any did.
    pub(crate) fn failed(&self) -> Option<String> {
        let failed: usize = self.cells.iter().map(|cell| cell.failed).sum();
        let done: usize = self.cells.iter().map(|cell| cell.samples_per_second.values.len()).sum();
        (failed > 0).then(|| format!("{failed} of {} failed", counted((failed + done) as u64, "run")))
    }

    pub(crate) fn any_invalid(&self) -> bool {
        self.cells.iter().any(|cell| !cell.broken.is_empty())
    }

    fn keys(&self) -> impl Iterator<Item = &str> {
        self.header.over.iter().map(|axis| axis.key.as_str())
    }

    pub(crate) fn text(&self) -> String {
        let mut columns = vec!["samples/s", "MB/s", "AU %", "speed-up", "95 % interval", "runs", "note"];
        let saves = self.cells.iter().any(|cell| cell.blocked_seconds.median.is_some());
        if saves {
            columns.insert(BLOCKED, "blocked");
        }
        let keys = self.header.over.len();
        let rows = self.cells.iter().map(|cell| {
            let mut figures = row(cell, self.compared).to_vec();
            if saves {
                let blocked = cell.blocked_seconds.median.map(Nanos::from_seconds);
                figures.insert(BLOCKED, blocked.map_or("-".to_owned(), |time| time.to_string()));
            }
            cell.settings.iter().cloned().chain(figures).collect::<Vec<_>>()
        });
        let right = keys..keys + columns.len() - 1;
        let table = Table::new(self.keys().chain(columns), right, rows).named_by(keys).text();
        let mut text = format!("{}{}\n\n{table}\n", self.header.sweep, self.simulated());
        if self.compared == CellMeasure::BlockedSeconds {
            text.push_str(
                "\nblocked: mean time for which a save blocks training; speed-ups compare this time\n",
            );
        }
        if let Some(own) = self.ceiling {
            text.push_str(&format!("\n{}\n", super::text::ceiling(&own)));
        }
        super::fitted(&text)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "sweep": self.header,
            "simulated": self.cells.iter().any(|cell| cell.simulated),
            "speed_up_of": self.compared,
            "calibration": self.ceiling,
            "cells": self.cells.iter().map(|cell| self.cell_json(cell)).collect::<Vec<_>>(),
        })
    }

    fn cell_json(&self, cell: &CellFigures) -> Value {
        let mut value = json!(cell);
        value["settings"] =
            self.keys().zip(&cell.settings).map(|(key, value)| (key.to_owned(), json!(value))).collect();
        value["notes"] = json!(cell.notes(self.compared));
        value
    }

    pub(crate) fn csv(&self) -> String {
        let columns = "runs,failed,samples_per_second,samples_per_second_low,samples_per_second_high,cv,mb_per_second,\
                       au_percent,blocked_seconds,speed_up,speed_up_low,speed_up_high,simulated,note";
        let mut text: String = self.keys().map(|key| csv_field(key) + ",").collect();
        text.push_str(columns);
        text.push('\n');
        for cell in &self.cells {
            text.push_str(&csv_line(cell, self.compared));
        }
        text
    }

    /// The plot: the first key along the x axis, the combinations of the others as colours.
    pub(crate) fn figure(&self, plotted: Option<PlottedFigure>) -> Figure {
        let Some((first, others)) = self.header.over.split_first() else { return Figure::default() };
        let series = self.cells.len() / first.values.len().max(1);
        let plotted = plotted.unwrap_or(match self.compared {
            CellMeasure::SamplesPerSecond => PlottedFigure::MbPerSecond,
            CellMeasure::BlockedSeconds => PlottedFigure::BlockedSeconds,
        });
        let (figure, y_label): (fn(&CellFigures) -> &RepeatedFigure, _) = match plotted {
            PlottedFigure::MbPerSecond => (|cell| &cell.mb_per_second, "MB/s"),
            PlottedFigure::SamplesPerSecond => (|cell| &cell.samples_per_second, "samples/s"),
            PlottedFigure::AuPercent => (|cell| &cell.au_percent, "AU in %"),
            PlottedFigure::BlockedSeconds => (|cell| &cell.blocked_seconds, "seconds blocked by a save"),
        };
        let bar = |cell: &CellFigures| {
            let (whisker, simulated) = (figure(cell).interval, cell.simulated);
            figure(cell).median.map(|value| Bar { value, whisker, simulated })
        };
        let (name, simulated) = (&self.header.sweep, self.simulated());
        let has_intervals = self.cells.iter().any(|cell| figure(cell).interval.is_some());
        Figure {
            title: match self.most_runs() {
                0 | 1 => format!("{name}{simulated}: one run"),
                runs if has_intervals => format!("{name}{simulated}: median of {runs} runs, 95 % interval"),
                runs => format!("{name}{simulated}: median of {runs} runs"),
            },
            x_label: first.key.clone(),
            y_label: y_label.to_owned(),
            groups: first.values.clone(),
            series: (0..series).map(|index| series_name(others, &self.cells[index].settings[1..])).collect(),
            bars: self.cells.chunks(series.max(1)).map(|group| group.iter().map(bar).collect()).collect(),
            ..Figure::default()
        }
    }

    fn most_runs(&self) -> usize {
        self.cells.iter().map(|cell| self.compared.figure(cell).values.len()).max().unwrap_or(0)
    }
}

/// Position of the column of blocked time.
const BLOCKED: usize = 3;

fn row(cell: &CellFigures, compared: CellMeasure) -> [String; 7] {
    let figure =
        |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    let interval = |bounds: Option<(f64, f64)>| {
        bounds.map_or("-".to_owned(), |(low, high)| format!("{low:.2} to {high:.2}"))
    };
    [
        figure(cell.samples_per_second.median, 1),
        figure(cell.mb_per_second.median, 1),
        figure(cell.au_percent.median, 2),
        figure(cell.speed_up, 2),
        interval(cell.speed_up_interval),
        compared.figure(cell).values.len().to_string(),
        cell.notes(compared).join("; "),
    ]
}

fn csv_line(cell: &CellFigures, compared: CellMeasure) -> String {
    let maybe = |figure: Option<f64>| figure.map_or(String::new(), |figure| figure.to_string());
    let columns = |bounds: Option<(f64, f64)>| [maybe(bounds.map(|b| b.0)), maybe(bounds.map(|b| b.1))];
    let [low, high] = columns(cell.samples_per_second.interval);
    let [speed_low, speed_high] = columns(cell.speed_up_interval);
    let figures = [
        compared.figure(cell).values.len().to_string(),
        cell.failed.to_string(),
        maybe(cell.samples_per_second.median),
        low,
        high,
        maybe(cell.samples_per_second.cv),
        maybe(cell.mb_per_second.median),
        maybe(cell.au_percent.median),
        maybe(cell.blocked_seconds.median),
        maybe(cell.speed_up),
        speed_low,
        speed_high,
        cell.simulated.to_string(),
        csv_field(&cell.notes(compared).join("; ")),
    ];
    let fields: Vec<String> = cell.settings.iter().map(|value| csv_field(value)).chain(figures).collect();
    fields.join(",") + "\n"
}

fn series_name(others: &[Axis], values: &[String]) -> String {
    let names: Vec<String> =
        others.iter().zip(values).map(|(axis, value)| format!("{}={value}", axis.key)).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SweepHeader {
        let axis = |key: &str, values: &[&str]| Axis {
            key: key.to_owned(),
            values: values.iter().map(ToString::to_string).collect(),
        };
        SweepHeader {
            sweep: "snapshot".to_owned(),
            over: vec![axis("threads", &["1", "2"]), axis("dims", &["[1,2]"])],
            set: Vec::new(),
            store: Some("posix".to_owned()),
            ranks: None,
            memory: None,
            data_folder: "data".into(),
            processes: None,
            seed: 1,
            spec_digest: String::new(),
        }
    }

    fn runs(rates: &[f64], error: Option<&str>, broken: &[&str]) -> Vec<CellRun> {
        let run = |rate: &f64| CellRun {
            samples_per_second: Some(*rate),
            mb_per_second: Some(rate / 10.0),
            broken: broken.iter().map(ToString::to_string).collect(),
            ..CellRun::default()
        };
        let failed = error.map(|error| CellRun { error: Some(error.to_owned()), ..CellRun::default() });
        rates.iter().map(run).chain(failed).collect()
    }

    fn with_report<T>(cells: [&[CellRun]; 2], look: impl FnOnce(&SweepReport<'_>) -> T) -> T {
        let header = header();
        let settings = |threads: &str| vec![threads.to_owned(), "[1,2]".to_owned()];
        let cells = ["1", "2"].into_iter().zip(cells);
        let cells = cells.map(|(threads, runs)| CellRuns {
            settings: settings(threads),
            simulated: false,
            runs: runs.iter().collect(),
        });
        look(&SweepReport::new(&header, cells, None))
    }

    #[test]
    fn the_report_of_a_sweep_is_exact() {
        let first = runs(&[100.0; 5], None, &[]);
        let second =
            runs(&[200.0, 200.0, 200.0, 200.0, 300.0], Some("broken, \"quoted\"\nand more"), &["on-time"]);
        with_report([&first, &second], |report| {
            assert_eq!(report.text(), TEXT);
            assert_eq!(report.csv(), CSV);
            assert!(report.failed().is_some() && report.any_invalid());
            let figure = report.figure(None);
            assert_eq!(figure.groups, ["1", "2"]);
            assert_eq!(figure.series, ["dims=[1,2]"]);
        });
    }

    const TEXT: &str = "\
snapshot

 threads  dims   samples/s  MB/s  AU %  speed-up  95 % interval  runs  note
 1        [1,2]      100.0  10.0     -      1.00              -     5
 2        [1,2]      200.0  20.0     -      2.00   2.00 to 3.00     5  1 failed: broken, \"quoted\"; invalid: on-time; \
varies by 20 %; 1 outlier: 300
";

    const CSV: &str = "\
threads,dims,runs,failed,samples_per_second,samples_per_second_low,samples_per_second_high,cv,mb_per_second,au_percent,\
blocked_seconds,speed_up,speed_up_low,speed_up_high,simulated,note
1,\"[1,2]\",5,0,100,100,100,0,10,,,1,,,false,
2,\"[1,2]\",5,1,200,200,300,0.20327890704543544,20,,,2,2,3,false,\"1 failed: broken, \"\"quoted\"\"; invalid: on-time; \
varies by 20 %; 1 outlier: 300\"
";

    #[test]
    fn without_figures_of_the_first_cell_there_are_no_speed_ups() {
        let (first, second) = (runs(&[], Some("broken"), &[]), runs(&[200.0; 3], None, &[]));
        with_report([&first, &second], |report| {
            assert!(
                report.cells.iter().all(|cell| cell.speed_up.is_none() && cell.speed_up_interval.is_none())
            );
            assert!(report.failed().is_some() && !report.any_invalid());
        });
    }
}
