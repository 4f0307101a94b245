//! Where the time went, per epoch, and what happened when.

use model::ledger::{Ledger, Phase, RankRow};
use model::timeline::Timeline;
use model::units::{Bytes, Nanos, significant};

use super::doc::{Doc, percent, rate, seconds, share, whole};
use super::parts::{Cell, DataTable, PageSection};
use super::run::RunView;
use crate::plot::{Bar, Figure, LineAxis, LinePlot, LineSeries, Plot, SeriesStyle, ValueUnit};

/// The parts of the time of an epoch: the key in the summary and the name.
const PARTS: [(&str, &str); 6] = [
    ("compute_seconds", "compute"),
    ("wait_seconds", "wait for data"),
    ("barrier_seconds", "barrier"),
    ("copy_seconds", "copy"),
    ("checkpoint_seconds", "checkpoint"),
    ("harness_seconds", "harness"),
];

/// Parts that many runs do not have.
const SOMETIMES: [&str; 2] = ["copy_seconds", "checkpoint_seconds"];

/// A table with more rows than this is shown on request.
const MOST_ROWS: usize = 20;

/// More epochs than this are drawn in groups.
const MOST_BARS: usize = 120;

/// The time of each epoch by what it was used for.
pub(super) fn per_epoch(view: &RunView<'_>, phase: Phase) -> Option<PageSection> {
    let epochs = view.epochs(phase);
    if epochs.is_empty() {
        return None;
    }
    let (id, title, plot) = match phase {
        Phase::Train => ("time", "Where the time went", "time-per-epoch"),
        Phase::Eval => ("time-eval", "Where the time of evaluation went", "time-per-evaluation"),
    };
    let section = PageSection::new(
        id,
        title,
        "How an average rank spent each epoch. Waiting is time without data; barrier is time spent waiting for slower \
         ranks; harness is feedline's own time.",
    );
    let figure = stacked(view, &epochs, title);
    let caption = "Mean over ranks, in seconds";
    let section = section.finding(sentence(&epochs)).plot(plot, caption, Plot::Bars(figure), None);
    let table = epochs_table(view, &epochs);
    Some(match epochs.len() > MOST_ROWS {
        true => section.folded(&format!("The table of all {} epochs", epochs.len()), table),
        false => section.table(table),
    })
}

fn stacked(view: &RunView<'_>, epochs: &[Doc<'_>], title: &str) -> Figure {
    let ranks = view.ranks() as f64;
    let of = |epoch: &Doc<'_>, key: &str| epoch.at(key).number().unwrap_or(0.0) / ranks;
    let used: Vec<_> =
        PARTS.into_iter().filter(|(key, _)| epochs.iter().any(|epoch| of(epoch, key) > 0.0)).collect();
    let size = epochs.len().div_ceil(MOST_BARS);
    let groups = epochs.chunks(size.max(1));
    let name = |group: &[Doc<'_>]| {
        let ends =
            [group.first(), group.last()].map(|epoch| epoch.map_or(String::new(), |e| e.at("epoch").shown()));
        if group.len() == 1 { ends[0].clone() } else { format!("{}-{}", ends[0], ends[1]) }
    };
    let bars = |group: &[Doc<'_>]| -> Vec<Option<Bar>> {
        let mean = |key: &str| group.iter().map(|epoch| of(epoch, key)).sum::<f64>() / group.len() as f64;
        let bar = |(key, _): &(&str, &str)| Bar { value: mean(key), whisker: None, simulated: false };
        used.iter().map(|part| Some(bar(part))).collect()
    };
    Figure {
        title: title.to_owned(),
        x_label: "epoch".to_owned(),
        y_label: "seconds".to_owned(),
        groups: groups.clone().map(name).collect(),
        series: used.iter().map(|(_, name)| (*name).to_owned()).collect(),
        bars: groups.map(bars).collect(),
        stacked: true,
        ..Figure::default()
    }
}

/// What follows from the shares.
fn sentence(epochs: &[Doc<'_>]) -> Option<String> {
    let sum = |key: &str| epochs.iter().filter_map(|epoch| epoch.at(key).number()).sum::<f64>();
    let total: f64 = PARTS.iter().map(|(key, _)| sum(key)).sum();
    if total <= 0.0 {
        return None;
    }
    let of = |key: &str| 100.0 * sum(key) / total;
    let (wait, barrier, saves, harness) =
        (of("wait_seconds"), of("barrier_seconds"), of("checkpoint_seconds"), of("harness_seconds"));
    let mut text = match wait {
        _ if sum("compute_seconds") == 0.0 => {
            "The accelerators compute nothing in this run: it measures reading alone.".to_owned()
        }
        wait if wait < 0.05 => {
            "Prefetch hides reading completely: waiting is less than 0.1 % of the time.".to_owned()
        }
        wait if wait < 1.0 => {
            format!("Prefetch hides reading completely: waiting is {wait:.1} % of the time.")
        }
        wait if wait < 10.0 => {
            format!("Prefetch hides most of the reading: accelerators wait {wait:.1} % of the time.")
        }
        wait => format!("Reading limits this run: accelerators wait for data {wait:.0} % of the time."),
    };
    if barrier > 2.0 && barrier > wait {
        text.push_str(&format!(
            " They wait longer for each other than for data ({barrier:.1} %): look for a slow rank below."
        ));
    }
    if saves > 1.0 {
        text.push_str(&format!(" Checkpoints take {saves:.1} %."));
    }
    if harness > 2.0 {
        text.push_str(&format!(" feedline itself takes {harness:.1} %: epochs may be too short to measure."));
    }
    Some(text)
}

/// The epochs as the summary has them.
fn epochs_table(view: &RunView<'_>, epochs: &[Doc<'_>]) -> DataTable {
    let ranks = view.ranks() as f64;
    let mean = move |value: f64| seconds(value / ranks);
    let is_used = |key: &str| epochs.iter().any(|epoch| epoch.at(key).number() > Some(0.0));
    let shown: Vec<_> =
        PARTS.into_iter().filter(|(key, _)| !SOMETIMES.contains(key) || is_used(key)).collect();
    let row = |epoch: &Doc<'_>| -> Vec<Cell> {
        let mut cells = vec![
            epoch.at("epoch").cell(whole),
            epoch.at("au_percent").cell(percent),
            epoch.at("samples_per_second").cell(rate),
            epoch.at("mib_per_second").cell(rate),
            epoch.at("clock_mib_per_second").cell(rate),
        ];
        cells.extend(shown.iter().map(|(key, _)| epoch.at(key).cell(mean)));
        cells.push(epoch.at("cache.storage_share").cell(share));
        cells.push(epoch.at("samples_delivered").cell(whole));
        cells.push(epoch.at("samples_planned").cell(whole));
        cells
    };
    let mut header: Vec<String> =
        ["epoch", "AU %", "samples/s", "MiB/s", "clock MiB/s"].map(str::to_owned).into();
    header.extend(shown.iter().map(|(_, name)| (*name).to_owned()));
    header.extend(["from storage %", "delivered", "planned"].map(str::to_owned));
    DataTable {
        caption: "Epochs; times are means over ranks".to_owned(),
        header,
        rows: epochs.iter().map(row).collect(),
        text_columns: 0,
    }
}

/// What happened in a piece of the run.
#[derive(Clone, Copy, Debug, Default)]
struct TimePiece {
    /// Seconds from the start, and the length.
    at: f64,
    length: f64,
    bytes: u64,
    samples: u64,
    wait: Nanos,
}

/// An epoch on the time axis.
struct EpochSpan {
    name: String,
    at: f64,
    length: f64,
    storage_bytes: Option<u64>,
}

/// The most borders of epochs that are drawn.
const MOST_BORDERS: usize = 40;

/// The most points of a line, the fewest after smoothing, and how many steps a point is to hold.
const MOST_POINTS: usize = 600;
const FEWEST_POINTS: usize = 60;
const STEPS_TOGETHER: f64 = 8.0;

/// Throughput and waiting over time.
pub(super) fn timeline(view: &RunView<'_>) -> Option<PageSection> {
    let (pieces, epochs) = pieces(view.ledger?);
    if pieces.len() < 2 {
        return None;
    }
    let section = PageSection::new(
        "timeline",
        "Over time",
        "Throughput and waiting from the start of training; dotted lines are the borders of epochs. Drag across a \
         plot to enlarge a part of it; double-click to see all of it again.",
    );
    let mib = |bytes: u64, length: f64| bytes as f64 / f64::from(1 << 20) / length;
    let line = |name: &str, value: &dyn Fn(&TimePiece) -> f64| LineSeries {
        name: name.to_owned(),
        points: pieces
            .iter()
            .map(|piece| (piece.at, value(piece)))
            // The last value holds until the end.
            .chain(pieces.last().map(|piece| (piece.at + piece.length, value(piece))))
            .collect(),
        style: SeriesStyle::Steps,
        ..LineSeries::default()
    };
    let requested = line("requested by ranks", &|piece| mib(piece.bytes, piece.length));
    let stored = from_storage(&epochs);
    let series = [Some(requested), stored].into_iter().flatten().collect();
    let ranks = view.ranks() as f64;
    let waiting = line("waiting", &|piece| 100.0 * piece.wait.seconds() / piece.length / ranks);
    let samples = line("samples", &|piece| piece.samples as f64 / piece.length);
    let every = epochs.len().div_ceil(MOST_BORDERS).max(1);
    let plot = |title: &str, label: &str, series: Vec<LineSeries>| LinePlot {
        title: title.to_owned(),
        x: LineAxis { label: "time in s".to_owned(), tight: true, ..LineAxis::default() },
        y: LineAxis { label: label.to_owned(), unit: ValueUnit::Number, ..LineAxis::default() },
        series,
        borders: epochs.iter().step_by(every).map(|epoch| (epoch.at, epoch.name.clone())).collect(),
        line: None,
    };
    let numbers = Some(numbers_table(&pieces, ranks));
    let caption =
        "Bytes that the ranks requested; bytes that the storage delivered, as a mean over each epoch";
    Some(
        section
            .finding(variation(&pieces))
            .finding(storage_sentence(&epochs, &pieces))
            .live_plot("throughput", caption, plot("Throughput over time", "MiB/s", series), numbers)
            .live_plot(
                "samples",
                "Samples that arrived",
                plot("Samples over time", "samples/s", vec![samples]),
                None,
            )
            .live_plot(
                "waiting",
                "Share of the ranks' time without data",
                plot("Waiting over time", "% of time", vec![waiting]),
                None,
            ),
    )
}

/// The run as pieces of equal or nearly equal length, and its epochs.
fn pieces(ledger: &Ledger) -> (Vec<TimePiece>, Vec<EpochSpan>) {
    let mut phases: Vec<(u64, Phase)> = Vec::new();
    for phase in [Phase::Train, Phase::Eval] {
        phases.extend(ledger.epochs(phase).into_iter().map(|epoch| (epoch, phase)));
    }
    phases.sort_unstable();
    let intervals: usize = phases
        .iter()
        .map(|(epoch, phase)| ledger.node_total(*epoch, *phase).timeline.intervals().len())
        .sum();
    let together = intervals.div_ceil(MOST_POINTS).max(smooth(ledger, &phases, intervals)).max(1);
    let (mut pieces, mut epochs, mut at) = (Vec::new(), Vec::new(), 0.0);
    for (epoch, phase) in phases {
        let observed = ledger.node_total(epoch, phase);
        let line = &observed.timeline;
        let each = line.interval().seconds();
        let length = phase_seconds(ledger, epoch, phase).max(each * line.intervals().len() as f64 - each);
        pieces.extend(phase_pieces(line, at, length, together));
        let name =
            if phase == Phase::Train { format!("epoch {epoch}") } else { format!("evaluation {epoch}") };
        let storage_bytes = ledger.cache(epoch, phase).figures().storage_bytes;
        epochs.push(EpochSpan { name, at, length, storage_bytes });
        at += length;
    }
    (pieces, epochs)
}

/// A phase as pieces that cover all of it, also the time after the last batch.
fn phase_pieces(line: &Timeline, at: f64, length: f64, together: usize) -> Vec<TimePiece> {
    let intervals = line.intervals();
    let size = line.interval().seconds() * together as f64;
    // The last piece has the rest, unless that is short: then it is part of the one before.
    let count = (length / size).round().max(1.0) as usize;
    let piece = |number: usize| {
        let start = size * number as f64;
        let is_last = number + 1 == count;
        let from = (number * together).min(intervals.len());
        let to = if is_last { intervals.len() } else { (from + together).min(intervals.len()) };
        let end = if is_last { length } else { start + size };
        let mut piece = TimePiece { at: at + start, length: (end - start).max(1e-9), ..TimePiece::default() };
        for interval in &intervals[from..to] {
            piece.bytes += interval.bytes;
            piece.samples += interval.samples;
            piece.wait += interval.wait;
        }
        piece
    };
    (0..count).map(piece).collect()
}

/// How many intervals together hold several steps: a batch arrives at once, so single steps would be drawn as bursts.
/// A short run keeps enough points for a line.
fn smooth(ledger: &Ledger, phases: &[(u64, Phase)], intervals: usize) -> usize {
    let steps: u64 = phases
        .iter()
        .map(|(epoch, phase)| ledger.rows(*epoch, *phase).map(|(_, row)| row.steps).max().unwrap_or(0))
        .sum();
    let per_step = intervals as f64 / steps.max(1) as f64;
    ((STEPS_TOGETHER * per_step).ceil() as usize).min(intervals / FEWEST_POINTS)
}

/// The time of a phase: that of the rank that took longest.
fn phase_seconds(ledger: &Ledger, epoch: u64, phase: Phase) -> f64 {
    let of = |(_, row): (u64, &RankRow)| {
        let RankRow { wait_ns, copy_ns, compute_ns, barrier_ns, checkpoint_ns, harness_ns, .. } = *row;
        (wait_ns + copy_ns + compute_ns + barrier_ns + checkpoint_ns + harness_ns).seconds()
    };
    ledger.rows(epoch, phase).map(of).fold(0.0, f64::max)
}

/// The bytes from the storage, known for whole epochs only.
fn from_storage(epochs: &[EpochSpan]) -> Option<LineSeries> {
    let mut points = Vec::new();
    for epoch in epochs {
        let rate = epoch.storage_bytes? as f64 / f64::from(1 << 20) / epoch.length.max(1e-9);
        points.extend([(epoch.at, rate), (epoch.at + epoch.length, rate)]);
    }
    points.dedup_by(|later, earlier| later.0 <= earlier.0);
    let name = "from the storage (mean of the epoch)".to_owned();
    Some(LineSeries { name, points, style: SeriesStyle::Steps, ..LineSeries::default() })
}

fn variation(pieces: &[TimePiece]) -> Option<String> {
    let mut rates: Vec<f64> = pieces.iter().map(|piece| piece.bytes as f64 / piece.length).collect();
    rates.sort_by(f64::total_cmp);
    let at = |share: f64| rates[((rates.len() - 1) as f64 * share) as usize];
    let (low, middle, high) = (at(0.05), at(0.5), at(0.95));
    if rates.len() < 20 || middle <= 0.0 {
        return None;
    }
    let mib = |rate: f64| significant(rate / f64::from(1 << 20));
    Some(match high / low.max(1.0) {
        ratio if ratio < 1.5 => format!(
            "Throughput is steady: nine tenths of the time it is {} to {} MiB/s.",
            mib(low),
            mib(high)
        ),
        ratio if ratio < 4.0 => {
            format!("Throughput varies: nine tenths of the time it is {} to {} MiB/s.", mib(low), mib(high))
        }
        _ => format!(
            "Throughput comes in bursts: the median is {} MiB/s, and a twentieth of the time it is below {} MiB/s.",
            mib(middle),
            mib(low)
        ),
    })
}

fn storage_sentence(epochs: &[EpochSpan], pieces: &[TimePiece]) -> Option<String> {
    let stored = epochs.iter().map(|epoch| epoch.storage_bytes).sum::<Option<u64>>()?;
    let asked: u64 = pieces.iter().map(|piece| piece.bytes).sum();
    let share = 100.0 * stored as f64 / asked.max(1) as f64;
    let bytes = Bytes(stored);
    Some(match share {
        share if share < 90.0 => format!(
            "The storage delivered {bytes}, {share:.1} % of the bytes that were requested: the rest came from memory."
        ),
        share if share > 115.0 => format!(
            "The storage delivered {bytes}, {share:.0} % of the bytes that were requested: it was read ahead or twice."
        ),
        share => format!("The storage delivered {bytes}, {share:.0} % of the bytes that were requested."),
    })
}

/// A table of at most 40 rows: neighbours are added up.
fn numbers_table(pieces: &[TimePiece], ranks: f64) -> DataTable {
    let size = pieces.len().div_ceil(40).max(1);
    let row = |group: &[TimePiece]| -> Vec<Cell> {
        let length: f64 = group.iter().map(|piece| piece.length).sum();
        let sum = |of: fn(&TimePiece) -> f64| group.iter().map(of).sum::<f64>();
        let bytes = sum(|piece| piece.bytes as f64) / f64::from(1 << 20) / length;
        let waited = 100.0 * sum(|piece| piece.wait.seconds()) / length / ranks;
        let samples = sum(|piece| piece.samples as f64) / length;
        let at = format!("{:.2}", group.first().map_or(0.0, |piece| piece.at));
        vec![at.into(), rate(bytes).into(), rate(samples).into(), format!("{waited:.1}").into()]
    };
    DataTable {
        caption: "Throughput and waiting over time".to_owned(),
        header: ["from s", "MiB/s", "samples/s", "waiting %"].map(str::to_owned).into(),
        rows: pieces.chunks(size).map(row).collect(),
        text_columns: 0,
    }
}

#[cfg(test)]
mod tests {
    use model::ledger::NodeRow;

    use super::*;

    /// An epoch of 3 s whose batches arrive in its first second.
    fn early() -> Ledger {
        let mut ledger = Ledger::default();
        for epoch in 1..=2 {
            let mut node = NodeRow::default();
            (0..100).for_each(|number| node.timeline.add(Nanos(number * 10_000_000), 1 << 20, 4));
            ledger.add_node(epoch, Phase::Train, 0, node);
            let row = RankRow { steps: 30, compute_ns: Nanos(3_000_000_000), ..RankRow::default() };
            ledger.add(epoch, Phase::Train, 0, row);
        }
        ledger
    }

    #[test]
    fn the_pieces_cover_the_whole_run_and_hold_every_byte() {
        let (pieces, epochs) = pieces(&early());
        let sum = |of: fn(&TimePiece) -> f64| pieces.iter().map(of).sum::<f64>();
        assert!((sum(|piece| piece.length) - 6.0).abs() < 1e-6);
        assert_eq!(pieces.iter().map(|piece| piece.bytes).sum::<u64>(), 200 << 20);
        assert_eq!(pieces.iter().map(|piece| piece.samples).sum::<u64>(), 800);
        assert!((epochs[1].at - 3.0).abs() < 1e-6);
        let ends = pieces.windows(2).all(|pair| (pair[0].at + pair[0].length - pair[1].at).abs() < 1e-6);
        assert!(ends, "no piece begins before or after the end of the one before");
        assert!(pieces.len() >= 20, "{}", pieces.len());
    }
}
