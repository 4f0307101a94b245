//! The page of several results: what differs in plan and environment first, then the figures side by side with their
//! intervals.

use model::ledger::Phase;
use model::statistics;

use super::doc::{nanos, percent, rate};
use super::parts::{Cell, DataTable, HtmlPage, Notice, PageSection};
use super::run::{RunDocuments, RunView, tone_of};
use crate::plot::{Bar, Figure, LineAxis, LinePlot, LineSeries, Plot, SeriesStyle};

/// A setting or fact that is not the same in all results.
#[derive(Clone, Debug)]
pub struct Difference {
    pub what: String,
    /// One value for each result.
    pub values: Vec<String>,
}

/// A figure of each epoch.
struct ComparedFigure {
    name: &'static str,
    key: &'static str,
    show: fn(f64) -> String,
}

const FIGURES: [ComparedFigure; 5] = [
    ComparedFigure { name: "AU %", key: "au_percent", show: percent },
    ComparedFigure { name: "samples/s", key: "samples_per_second", show: rate },
    ComparedFigure { name: "MiB/s", key: "mib_per_second", show: rate },
    ComparedFigure { name: "p50 of a sample", key: "latency.sample.p50_ns", show: nanos },
    ComparedFigure { name: "p99 of a sample", key: "latency.sample.p99_ns", show: nanos },
];

/// Figures of checkpoints: means over all of them.
const CHECKPOINTS: [(&str, &str); 2] = [
    ("saving, GiB/s", "save_checkpoint_io_mean_GB_per_second"),
    ("restoring, GiB/s", "load_checkpoint_io_mean_GB_per_second"),
];

/// Seed of the intervals: the same results always give the same page.
const SEED: u64 = 1;

/// The page of several results, each with a name.
pub fn compare(
    results: &[(String, RunDocuments<'_>)],
    differences: &[Difference],
    version: &str,
) -> HtmlPage {
    let views: Vec<RunView<'_>> = results.iter().map(|(_, documents)| RunView::new(documents)).collect();
    let names: Vec<String> = results.iter().map(|(name, _)| name.clone()).collect();
    let mut notices = Vec::new();
    for (name, documents) in results {
        let own = documents.notices.iter();
        notices
            .extend(own.map(|Notice { tone, text }| Notice { tone: *tone, text: format!("{name}: {text}") }));
    }
    let sections =
        vec![differing(&names, &views, differences), figures(&names, &views), by_epoch(&names, &views)];
    HtmlPage {
        title: format!("Comparison of {} results", results.len()),
        lead: names.join(" / "),
        badge: None,
        notices,
        sections,
        footer: format!("Made by feedline {version} from the files of the results."),
    }
}

fn header(names: &[String]) -> Vec<String> {
    ["what".to_owned()].into_iter().chain(names.iter().cloned()).collect()
}

fn differing(names: &[String], views: &[RunView<'_>], differences: &[Difference]) -> PageSection {
    let section = PageSection::new(
        "differences",
        "What differs",
        "Settings, plans and environments that are not the same. A difference in a figure may come from any of them.",
    );
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let status = |view: &RunView<'_>| {
        let status = view.own.at("verdict.status").shown();
        Cell::from(status.clone()).toned(tone_of(&status))
    };
    rows.push(["verdict".into()].into_iter().chain(views.iter().map(status)).collect());
    for Difference { what, values } in differences {
        rows.push([what.clone()].into_iter().chain(values.iter().cloned()).map(Cell::from).collect());
    }
    let invalid = views
        .iter()
        .any(|view| matches!(view.own.at("verdict.status").text(), Some("invalid" | "incomplete")));
    let finding = match (differences.len(), invalid) {
        (_, true) => {
            "At least one result is not valid: its figures do not measure what they are meant to.".to_owned()
        }
        (0, _) => "The results are of the same work in the same place.".to_owned(),
        (1, _) => "One setting or fact differs, so a difference in the figures comes from it or from chance."
            .to_owned(),
        (count, _) => format!(
            "{count} settings or facts differ: do not attribute a difference in the figures to one of them."
        ),
    };
    section.finding(finding).table(DataTable {
        caption: "Differences".to_owned(),
        header: header(names),
        rows,
        text_columns: names.len() + 1,
    })
}

/// The values of a figure in the epochs of a result. The first of several epochs is left out: it finds less in caches
/// than later ones.
fn values(view: &RunView<'_>, key: &str) -> Vec<f64> {
    let all: Vec<f64> = view.epochs(Phase::Train).iter().filter_map(|epoch| epoch.at(key).number()).collect();
    if all.len() > 1 { all[1..].to_vec() } else { all }
}

fn figures(names: &[String], views: &[RunView<'_>]) -> PageSection {
    let section = PageSection::new(
        "figures",
        "Figures side by side",
        "Medians over epochs, without the first epoch of a result that has several; 95 % intervals if there are at \
         least 5.",
    );
    let mut rows = Vec::new();
    for figure in &FIGURES {
        let cells = views.iter().map(|view| shown(figure, &values(view, figure.key)));
        rows.push([figure.name.into()].into_iter().chain(cells).collect());
    }
    for (name, key) in CHECKPOINTS {
        let of = |view: &RunView<'_>| view.summary.at(&format!("metric.{key}")).number();
        if views.iter().any(|view| of(view).is_some()) {
            let cells = views.iter().map(|view| Cell::from(of(view).map_or("n/a".to_owned(), rate)));
            rows.push([name.into()].into_iter().chain(cells).collect());
        }
    }
    let table = DataTable { caption: "Figures".to_owned(), header: header(names), rows, text_columns: 1 };
    let rates: Vec<Vec<f64>> = views.iter().map(|view| values(view, "samples_per_second")).collect();
    let bar = |values: &Vec<f64>| {
        let whisker =
            statistics::median_confidence(values, SEED).map(|interval| (interval.low, interval.high));
        Some(Bar { value: statistics::median(values)?, whisker, simulated: false })
    };
    let plot = Figure {
        title: "Throughput of each result".to_owned(),
        x_label: "result".to_owned(),
        y_label: "samples/s".to_owned(),
        groups: names.to_vec(),
        series: vec![String::new()],
        bars: rates.iter().map(|values| vec![bar(values)]).collect(),
        ..Figure::default()
    };
    let section = section.finding(sentence(names, &rates));
    section.plot("compare", "Medians; whiskers are 95 % intervals", Plot::Bars(plot), None).table(table)
}

fn shown(figure: &ComparedFigure, values: &[f64]) -> Cell {
    let Some(median) = statistics::median(values) else { return "n/a".into() };
    let interval = statistics::median_confidence(values, SEED);
    let interval = interval.map_or(String::new(), |ends| {
        format!(" ({} to {})", (figure.show)(ends.low), (figure.show)(ends.high))
    });
    format!("{}{interval}", (figure.show)(median)).into()
}

/// The fastest and the slowest, and whether chance explains the difference.
fn sentence(names: &[String], rates: &[Vec<f64>]) -> Option<String> {
    let medians: Vec<(usize, f64)> = rates
        .iter()
        .enumerate()
        .filter_map(|(number, values)| Some((number, statistics::median(values)?)))
        .collect();
    let fast = medians.iter().max_by(|one, other| one.1.total_cmp(&other.1))?;
    let slow = medians.iter().min_by(|one, other| one.1.total_cmp(&other.1))?;
    if fast.0 == slow.0 || slow.1 <= 0.0 {
        return None;
    }
    let ratio = fast.1 / slow.1;
    let interval = statistics::ratio_confidence(&rates[fast.0], &rates[slow.0], SEED);
    let sure = match interval {
        Some(ends) if ends.low > 1.0 => format!("95 % {:.2} to {:.2}: more than chance", ends.low, ends.high),
        Some(ends) => format!("95 % {:.2} to {:.2}: chance explains it", ends.low, ends.high),
        None => "too few epochs for an interval".to_owned(),
    };
    Some(format!("{} has {ratio:.2} times the samples/s of {} ({sure}).", names[fast.0], names[slow.0]))
}

fn by_epoch(names: &[String], views: &[RunView<'_>]) -> PageSection {
    let section = PageSection::new("epochs", "Epoch by epoch", "The AU of each result in each epoch.");
    let line = |(name, view): (&String, &RunView<'_>)| {
        let epochs = view.epochs(Phase::Train);
        let points = epochs
            .iter()
            .filter_map(|epoch| Some((epoch.at("epoch").number()?, epoch.at("au_percent").number()?)));
        let (name, points) = (name.clone(), points.collect());
        LineSeries { name, points, style: SeriesStyle::Marked, ..LineSeries::default() }
    };
    let series: Vec<LineSeries> = names.iter().zip(views).map(line).collect();
    let most = views.iter().map(|view| view.epochs(Phase::Train).len()).max().unwrap_or(0);
    let row = |number: usize| -> Vec<Cell> {
        let of = |view: &RunView<'_>| {
            let au = view.epochs(Phase::Train).get(number).and_then(|epoch| epoch.at("au_percent").number());
            Cell::from(au.map_or("n/a".to_owned(), percent))
        };
        [Cell::from((number + 1).to_string())].into_iter().chain(views.iter().map(of)).collect()
    };
    let plot = LinePlot {
        title: "AU by epoch".to_owned(),
        x: LineAxis { label: "epoch".to_owned(), ..LineAxis::default() },
        y: LineAxis { label: "AU in %".to_owned(), ..LineAxis::default() },
        series,
        ..LinePlot::default()
    };
    let numbers = DataTable {
        caption: "AU by epoch".to_owned(),
        header: ["epoch".to_owned()].into_iter().chain(names.iter().cloned()).collect(),
        rows: (0..most).map(row).collect(),
        text_columns: 0,
    };
    section.plot("compare-epochs", "One line for each result", Plot::Lines(plot), Some(numbers))
}
