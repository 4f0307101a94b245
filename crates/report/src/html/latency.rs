//! Latency distributions: a percentile plot for each kind of operation, and the table of the summary.

use model::histogram::{Histogram, Latencies};
use model::ledger::{Ledger, Phase};
use model::units::Nanos;

use super::doc::{Doc, nanos, whole};
use super::parts::{Cell, DataTable, PageSection};
use super::run::RunView;
use crate::plot::{AxisScale, LineAxis, LinePlot, LineSeries, ValueUnit};

pub(super) fn section(view: &RunView<'_>) -> Option<PageSection> {
    let kinds = view.own.at("latency").entries();
    if kinds.is_empty() {
        return None;
    }
    let section = PageSection::new(
        "latency",
        "Latency",
        "How long operations took. The plot shows, for each share of the operations, the time that they did not \
         exceed; both axes stretch the slow end.",
    );
    let section = section.finding(read_sentence(view)).finding(tail_sentence(view));
    let plot = view.ledger.map(distributions).filter(|plot| !plot.series.is_empty());
    let caption = "Percentiles on a scale that widens towards 100 %; times on a logarithmic scale";
    let section = match plot {
        Some(plot) => section.live_plot("latency", caption, plot, None),
        None => section,
    };
    let columns = ["p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "max_ns", "mean_ns"];
    let row = |(name, spans): &(&str, Doc<'_>)| -> Vec<Cell> {
        let mut cells: Vec<Cell> = vec![name.replace('_', " ").into()];
        cells.extend(columns.map(|key| spans.at(key).cell(nanos)));
        cells.push(spans.at("count").cell(whole));
        cells
    };
    Some(section.table(DataTable {
        caption: "Latency by operation".to_owned(),
        header: ["operation", "p50", "p90", "p99", "p99.9", "max", "mean", "count"].map(str::to_owned).into(),
        rows: kinds.iter().map(row).collect(),
        text_columns: 1,
    }))
}

/// The kinds of operation that are drawn; the table has all.
const DRAWN: [&str; 6] = ["read", "sample", "batch_wait", "open", "first_byte", "prep"];

fn distributions(ledger: &Ledger) -> LinePlot {
    let latencies = ledger.latencies(Phase::Train);
    let series = DRAWN.iter().filter_map(|kind| series(&latencies, kind));
    LinePlot {
        title: "Latency by percentile".to_owned(),
        x: LineAxis {
            label: "share of operations in %".to_owned(),
            scale: AxisScale::Percentile,
            ..LineAxis::default()
        },
        y: LineAxis {
            label: "time".to_owned(),
            scale: AxisScale::Log,
            unit: ValueUnit::Duration,
            ..LineAxis::default()
        },
        series: series.collect(),
        ..LinePlot::default()
    }
}

fn series(latencies: &Latencies, kind: &str) -> Option<LineSeries> {
    let (_, spans) = latencies.each().find(|(name, spans)| *name == kind && spans.max() > Nanos::ZERO)?;
    let points = percentiles(spans);
    (points.len() > 1).then(|| LineSeries { name: kind.replace('_', " "), points, ..LineSeries::default() })
}

/// From the shortest operation to the longest, as far as there are operations: the 99.9th percentile needs 1,000.
fn percentiles(spans: &Histogram) -> Vec<(f64, f64)> {
    let most = (spans.count() as f64).log10().clamp(0.0, 6.0);
    let steps = (20.0 * most) as u32;
    let shares = (0..=steps).map(|step| 1.0 - 10f64.powf(-f64::from(step) / 20.0));
    let points = shares.map(|share| (share, spans.quantile(share).seconds()));
    // A time of 0 is not on a logarithmic axis.
    points.filter(|(_, time)| *time > 0.0).collect()
}

/// What the median of reads suggests.
fn read_sentence(view: &RunView<'_>) -> Option<String> {
    let median = view.own.at("latency.read.p50_ns").number()?;
    let took = nanos(median);
    if view.is_simulated() {
        return Some(format!("Reads take {took} at the median, as the simulated device was set up."));
    }
    Some(match median {
        median if median < 15e3 => {
            format!(
                "Reads take {took} at the median, which is the speed of memory: check the cache rule of the verdict."
            )
        }
        median if median < 250e3 => {
            format!(
                "Reads take {took} at the median, which is typical of flash: more readers help until it is busy."
            )
        }
        median if median < 2e6 => {
            format!(
                "Reads take {took} at the median, which is typical of large reads from flash or of a network."
            )
        }
        median if median < 25e6 => {
            format!("Reads take {took} at the median, which is a seek of a disk: more readers will not help.")
        }
        _ => {
            format!("Reads take {took} at the median: requests queue up, so fewer readers would be as fast.")
        }
    })
}

fn tail_sentence(view: &RunView<'_>) -> Option<String> {
    let of = |key: &str| view.own.at(&format!("latency.read.{key}")).number();
    let (median, slow) = (of("p50_ns")?, of("p99_ns")?);
    let ratio = slow / median.max(1.0);
    (ratio >= 10.0).then(|| {
        let slow = nanos(slow);
        format!(
            "One read in 100 takes {slow} or longer, {ratio:.0} times the median: look for what delays them."
        )
    })
}
