//! AU over ranks and nodes: a map that stays readable for thousands of ranks, and the slowest ones by name.

use model::ledger::{Ledger, Phase};
use model::metrics::{self, NodeFigures};
use model::units::{Nanos, counted, grouped};

use super::doc::{percent, rate};
use super::parts::{Cell, DataTable, PageSection};
use super::run::RunView;
use crate::plot::{HeatMap, LineAxis, LinePlot, LineSeries, Plot, ReferenceLine, SeriesStyle};

/// The most rows and columns of the map; more ranks or epochs are grouped.
const MOST_ROWS: usize = 128;
const MOST_COLUMNS: usize = 100;
/// How many of the slowest ranks are listed.
const LISTED: usize = 10;

/// A rank in all epochs.
struct RankFigures {
    rank: u64,
    /// AU in each epoch.
    au: Vec<Option<f64>>,
    wait: Nanos,
    barrier: Nanos,
}

impl RankFigures {
    fn mean(&self) -> Option<f64> {
        let there: Vec<f64> = self.au.iter().flatten().copied().collect();
        (!there.is_empty()).then(|| there.iter().sum::<f64>() / there.len() as f64)
    }
}

pub(super) fn section(view: &RunView<'_>) -> Option<PageSection> {
    let ledger = view.ledger?;
    let (epochs, ranks) = figures(ledger);
    let means: Vec<f64> = ranks.iter().filter_map(RankFigures::mean).collect();
    if means.is_empty() {
        return None;
    }
    let section = PageSection::new(
        "ranks",
        "AU over ranks and nodes",
        "How busy each emulated accelerator was, epoch by epoch.",
    );
    let nodes = metrics::nodes(ledger, Phase::Train);
    let section = section.finding(sentence(ledger, &ranks)).finding(node_sentence(&nodes));
    let section = match (ranks.len(), epochs.len()) {
        (1, 1) => section,
        (1, _) | (_, 1) => {
            let (plot, caption) = strip(view, &epochs, &ranks);
            section.plot("au-ranks", caption, plot, None)
        }
        _ => {
            let map = map(&epochs, &ranks);
            let caption = match ranks.len() > MOST_ROWS || epochs.len() > MOST_COLUMNS {
                true => "Each cell is the lowest AU of its group, so that one slow rank is visible",
                false => "A row for each rank, a column for each epoch; dark is slow",
            };
            section.plot("au-ranks", caption, Plot::Heat(map), None)
        }
    };
    Some(section.table(nodes_table(&nodes)).table(slowest_table(ledger, &ranks)))
}

fn figures(ledger: &Ledger) -> (Vec<u64>, Vec<RankFigures>) {
    let epochs = ledger.epochs(Phase::Train);
    let mut ranks: Vec<RankFigures> = Vec::new();
    for (column, epoch) in epochs.iter().enumerate() {
        for (rank, au) in metrics::rank_au_percent(ledger, Phase::Train, *epoch) {
            let place = match ranks.binary_search_by_key(&rank, |known| known.rank) {
                Ok(place) => place,
                Err(place) => {
                    let au = vec![None; epochs.len()];
                    ranks.insert(place, RankFigures { rank, au, wait: Nanos::ZERO, barrier: Nanos::ZERO });
                    place
                }
            };
            ranks[place].au[column] = au;
        }
        for (rank, row) in ledger.rows(*epoch, Phase::Train) {
            if let Ok(place) = ranks.binary_search_by_key(&rank, |known| known.rank) {
                ranks[place].wait += row.wait_ns;
                ranks[place].barrier += row.barrier_ns;
            }
        }
    }
    (epochs, ranks)
}

fn sentence(ledger: &Ledger, ranks: &[RankFigures]) -> Option<String> {
    let mut means: Vec<(f64, u64)> =
        ranks.iter().filter_map(|rank| Some((rank.mean()?, rank.rank))).collect();
    means.sort_by(|one, other| one.0.total_cmp(&other.0));
    let ((low, slowest), (high, _)) = (*means.first()?, *means.last()?);
    let mean = means.iter().map(|(au, _)| au).sum::<f64>() / means.len() as f64;
    let host = ledger.host_of(slowest).map_or(String::new(), |host| format!(" on {host}"));
    Some(match high - low {
        _ if means.len() == 1 => format!("One rank, with AU {low:.2} %."),
        gap if gap < 1.0 => format!(
            "All {} are equally busy: AU is {low:.2} to {high:.2} %.",
            counted(means.len() as u64, "rank")
        ),
        gap => format!(
            "Rank {slowest}{host} is the slowest: AU {low:.2} %, {:.1} points below the mean and {gap:.1} below the \
             fastest.",
            mean - low
        ),
    })
}

fn node_sentence(nodes: &[NodeFigures]) -> Option<String> {
    let slowest = metrics::slowest(nodes)?;
    Some(format!(
        "The others waited longest for node {}: it was the last at {} barriers, by {} in all.",
        slowest.name,
        grouped(slowest.last),
        Nanos::from_seconds(slowest.last_seconds)
    ))
}

fn map(epochs: &[u64], ranks: &[RankFigures]) -> HeatMap {
    let (tall, wide) = (ranks.len().div_ceil(MOST_ROWS), epochs.len().div_ceil(MOST_COLUMNS));
    let name =
        |first: u64, last: u64| if first == last { first.to_string() } else { format!("{first}-{last}") };
    let lowest = |group: &[RankFigures], columns: std::ops::Range<usize>| {
        let cells = group.iter().flat_map(|rank| rank.au[columns.clone()].iter().flatten().copied());
        cells.reduce(f64::min)
    };
    let columns: Vec<std::ops::Range<usize>> =
        (0..epochs.len()).step_by(wide).map(|start| start..(start + wide).min(epochs.len())).collect();
    let row = |group: &[RankFigures]| columns.iter().map(|range| lowest(group, range.clone())).collect();
    let values: Vec<Vec<Option<f64>>> = ranks.chunks(tall).map(row).collect();
    let least = values.iter().flatten().flatten().copied().fold(90.0, f64::min);
    HeatMap {
        title: "AU of each rank".to_owned(),
        x_label: "epoch".to_owned(),
        y_label: "rank".to_owned(),
        value_label: "AU in %".to_owned(),
        columns: columns.iter().map(|range| name(epochs[range.start], epochs[range.end - 1])).collect(),
        rows: ranks.chunks(tall).map(|group| name(group[0].rank, group[group.len() - 1].rank)).collect(),
        values,
        digits: 1,
        // A fixed range: ranks that are equally busy have the same shade.
        range: Some((least.floor(), 100.0)),
    }
}

/// One rank over epochs, or many ranks in one epoch.
fn strip(view: &RunView<'_>, epochs: &[u64], ranks: &[RankFigures]) -> (Plot, &'static str) {
    let of_ranks = epochs.len() == 1;
    let points: Vec<(f64, f64)> = match of_ranks {
        true => ranks.iter().filter_map(|rank| Some((rank.rank as f64, rank.au[0]?))).collect(),
        false => {
            let there = epochs.iter().zip(&ranks[0].au);
            there.filter_map(|(epoch, au)| Some((*epoch as f64, (*au)?))).collect()
        }
    };
    let (label, caption, style) = match of_ranks {
        true => ("rank", "Each mark is one rank", SeriesStyle::Points),
        false => ("epoch", "The AU of the rank in each epoch", SeriesStyle::Marked),
    };
    let target = view.au_target().map(|value| ReferenceLine { value, label: format!("target {value:.0} %") });
    let plot = LinePlot {
        title: if of_ranks { "AU of each rank" } else { "AU of each epoch" }.to_owned(),
        x: LineAxis { label: label.to_owned(), ..LineAxis::default() },
        y: LineAxis { label: "AU in %".to_owned(), ..LineAxis::default() },
        series: vec![LineSeries { name: "AU".to_owned(), points, style, ..LineSeries::default() }],
        line: target,
        ..LinePlot::default()
    };
    (Plot::Lines(plot), caption)
}

fn slowest_table(ledger: &Ledger, ranks: &[RankFigures]) -> DataTable {
    let mut sorted: Vec<(&RankFigures, f64)> =
        ranks.iter().filter_map(|rank| Some((rank, rank.mean()?))).collect();
    sorted.sort_by(|one, other| one.1.total_cmp(&other.1));
    let all = sorted.len();
    let with_hosts = sorted.iter().any(|(rank, _)| ledger.host_of(rank.rank).is_some());
    let row = |(rank, mean): &(&RankFigures, f64)| -> Vec<Cell> {
        let mut cells: Vec<Cell> = vec![rank.rank.to_string().into()];
        cells.extend(with_hosts.then(|| ledger.host_of(rank.rank).unwrap_or("").into()));
        cells.extend([percent(*mean), rank.wait.to_string(), rank.barrier.to_string()].map(Cell::from));
        cells
    };
    let mut header = vec!["rank".to_owned()];
    header.extend(with_hosts.then(|| "host".to_owned()));
    header.extend(["AU %", "wait for data", "barrier"].map(str::to_owned));
    DataTable {
        caption: match all > LISTED {
            true => format!("The {LISTED} slowest of {} ranks, over all epochs", grouped(all as u64)),
            false => "Ranks, the slowest first, over all epochs".to_owned(),
        },
        header,
        rows: sorted.iter().take(LISTED).map(row).collect(),
        text_columns: 1 + usize::from(with_hosts),
    }
}

fn nodes_table(nodes: &[NodeFigures]) -> DataTable {
    let maybe =
        |value: Option<f64>, show: fn(f64) -> String| Cell::from(value.map_or("n/a".to_owned(), show));
    let row = |node: &NodeFigures| -> Vec<Cell> {
        vec![
            node.name.clone().into(),
            node.ranks.to_string().into(),
            maybe(node.au_percent, percent),
            maybe(node.samples_per_second, rate),
            maybe(node.mib_per_second, rate),
            Nanos::from_seconds(node.wait_seconds).to_string().into(),
            Nanos::from_seconds(node.barrier_seconds).to_string().into(),
            grouped(node.last).into(),
            Nanos::from_seconds(node.last_seconds).to_string().into(),
        ]
    };
    DataTable {
        caption: "Nodes".to_owned(),
        header: [
            "node",
            "ranks",
            "AU %",
            "samples/s",
            "MiB/s",
            "wait for data",
            "barrier",
            "last at barriers",
            "by",
        ]
        .map(str::to_owned)
        .into(),
        rows: nodes.iter().map(row).collect(),
        text_columns: 1,
    }
}
