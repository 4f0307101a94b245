//! Requests, workers, files and coverage of an observed job.

use std::collections::BTreeMap;

use model::observed::{Findings, Observed, ValueCounts, WorkerRow};
use model::units::{Bytes, Nanos, grouped, significant};

use super::super::parts::{Cell, DataTable, PageSection};
use crate::audit::{AuditFigures, training_epochs};
use crate::plot::{Bar, Figure, Plot};

/// The most bins of a histogram, and rows of a table.
const MOST_BINS: usize = 40;
const MOST_ROWS: usize = 64;

/// Sizes of reads, and reads in flight.
pub(super) fn requests(figures: &AuditFigures) -> Option<PageSection> {
    if figures.read_sizes.is_empty() {
        return None;
    }
    let section = PageSection::new(
        "requests",
        "Requests",
        "How large the reads of data files are, and how many of them are in flight at once while there are any.",
    );
    let sizes = octaves(&figures.read_sizes);
    let numbers = DataTable {
        caption: "Sizes of reads".to_owned(),
        header: ["from", "reads"].map(str::to_owned).into(),
        rows: sizes
            .iter()
            .map(|(size, count)| vec![Bytes(*size).to_string().into(), grouped(*count).into()])
            .collect(),
        text_columns: 0,
    };
    let groups = sizes.iter().map(|(size, count)| (Bytes(*size).to_string(), *count as f64)).collect();
    let plot = bars("Sizes of reads", "size from", "reads", groups);
    let section = section.plot("read-sizes", "Number of reads by size", Plot::Bars(plot), Some(numbers));
    let busy: Nanos = figures.in_flight_ns.iter().skip(1).copied().sum();
    if busy == Nanos::ZERO {
        return Some(section);
    }
    let share = |time: &Nanos| 100.0 * time.seconds() / busy.seconds();
    let flights: Vec<(String, f64)> = (1..)
        .zip(figures.in_flight_ns.iter().skip(1).take(MOST_BINS))
        .map(|(number, time): (u64, &Nanos)| (number.to_string(), share(time)))
        .collect();
    let numbers = DataTable {
        caption: "Reads in flight".to_owned(),
        header: ["in flight", "% of the time"].map(str::to_owned).into(),
        rows: flights
            .iter()
            .map(|(number, share)| vec![number.clone().into(), format!("{share:.1}").into()])
            .collect(),
        text_columns: 0,
    };
    let plot = bars("Reads in flight", "reads at once", "% of the time with reads", flights);
    Some(section.plot("in-flight", "Share of the time with reads", Plot::Bars(plot), Some(numbers)))
}

/// Counts by power of two, from the lower end.
fn octaves(spread: &ValueCounts) -> Vec<(u64, u64)> {
    let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
    for (value, count) in spread.bins() {
        let bottom = if value == 0 { 0 } else { 1 << value.ilog2() };
        *bins.entry(bottom).or_default() += count;
    }
    bins.into_iter().collect()
}

fn bars(title: &str, x_label: &str, y_label: &str, groups: Vec<(String, f64)>) -> Figure {
    let bar = |value: f64| vec![Some(Bar { value, whisker: None, simulated: false })];
    let (names, values): (Vec<String>, Vec<f64>) = groups.into_iter().unzip();
    Figure {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        y_label: y_label.to_owned(),
        groups: names,
        series: vec![y_label.to_owned()],
        bars: values.into_iter().map(bar).collect(),
        ..Figure::default()
    }
}

/// What a worker did in all epochs.
#[derive(Clone, Copy, Debug, Default)]
struct WorkerSum {
    samples: u64,
    bytes: u64,
    fetch: Nanos,
    file: Nanos,
    cpu: Option<Nanos>,
    run_queue: Option<Nanos>,
    starts: u64,
}

impl WorkerSum {
    fn add(&mut self, row: &WorkerRow) {
        let plus = |sum: Option<Nanos>, more: Option<Nanos>| match (sum, more) {
            (Some(sum), Some(more)) => Some(sum + more),
            (sum, more) => sum.or(more),
        };
        self.samples += row.samples;
        self.bytes += row.io.reads.bytes;
        self.fetch += row.fetch_ns;
        self.file += row.file_ns;
        self.cpu = plus(self.cpu, row.cpu_ns);
        self.run_queue = plus(self.run_queue, row.run_queue_ns);
        self.starts += u64::from(row.started);
    }
}

/// Workers of each rank, over all epochs.
pub(super) fn workers(observed: &Observed) -> Option<PageSection> {
    let mut sums: BTreeMap<(u64, u64), WorkerSum> = BTreeMap::new();
    for row in training_epochs(observed) {
        row.workers.iter().for_each(|worker| sums.entry((row.rank, worker.worker)).or_default().add(worker));
    }
    if sums.is_empty() {
        return None;
    }
    let maybe = |time: Option<Nanos>| Cell::from(time.map_or("n/a".to_owned(), |time| time.to_string()));
    let row = |((rank, worker), sum): (&(u64, u64), &WorkerSum)| -> Vec<Cell> {
        vec![
            rank.to_string().into(),
            worker.to_string().into(),
            grouped(sum.samples).into(),
            Bytes(sum.bytes).to_string().into(),
            sum.fetch.to_string().into(),
            sum.file.to_string().into(),
            maybe(sum.cpu),
            maybe(sum.run_queue),
            grouped(sum.starts).into(),
        ]
    };
    let section = PageSection::new(
        "workers",
        "Workers",
        "What each worker of the training loader did in all epochs. Time in file calls is a part of loading.",
    );
    let table = DataTable {
        caption: "Workers".to_owned(),
        header: [
            "rank",
            "worker",
            "samples",
            "read",
            "loading",
            "in file calls",
            "CPU",
            "waiting for CPU",
            "started",
        ]
        .map(str::to_owned)
        .into(),
        rows: sums.iter().take(MOST_ROWS).map(row).collect(),
        text_columns: 0,
    };
    let section = match sums.len() > MOST_ROWS {
        true => section.text(format!("The first {MOST_ROWS} of {} workers.", grouped(sums.len() as u64))),
        false => section,
    };
    Some(section.table(table))
}

/// The data files and the storage that they are on.
pub(super) fn files(observed: &Observed) -> Option<PageSection> {
    let files = &observed.files;
    if files.sampled == 0 {
        return None;
    }
    let size =
        |share: f64| files.sizes.quantile(share).map_or("n/a".to_owned(), |size| Bytes(size).to_string());
    let optional = |bytes: Option<u64>| bytes.map_or("n/a".to_owned(), |bytes| Bytes(bytes).to_string());
    let mut rows = vec![
        ("files", grouped(files.estimated)),
        ("of these in the sample", grouped(files.sampled)),
        ("bytes", Bytes(files.bytes).to_string()),
        ("size: p10, p50, p90", format!("{}, {}, {}", size(0.1), size(0.5), size(0.9))),
        ("samples per file", files.samples_per_file.map_or("n/a".to_owned(), significant)),
        ("in the page cache before", optional(files.resident_before_bytes)),
        ("in the page cache after", optional(files.resident_after_bytes)),
    ];
    let names = files.suffixes.iter().take(5).map(|(suffix, count)| format!("{suffix} ({count})"));
    let names = names.collect::<Vec<_>>().join(", ");
    rows.extend((!names.is_empty()).then_some(("suffixes", names)));
    rows.extend(
        files.folders.iter().take(5).map(|(folder, count)| ("folder", format!("{folder} ({count})"))),
    );
    rows.extend(observed.storage.iter().take(5).map(|row| {
        ("storage", format!("{} ({}, {}): {} read", row.mount, row.file_system, row.source, Bytes(row.bytes)))
    }));
    rows.extend(observed.sites.iter().take(5).map(|site| ("opened at", site.place.clone())));
    let section = PageSection::new(
        "files",
        "Data files",
        "Counts are exact; sizes and other details are those of a uniform sample of the files.",
    );
    Some(section.table(two_columns("Data files", rows)))
}

/// What was seen, what it cost, and what was not seen.
pub(super) fn coverage(observed: &Observed, findings: &Findings) -> PageSection {
    let coverage = &observed.coverage;
    let share = coverage.share().map(|share| format!("{:.1} %", (1000.0 * share).floor() / 10.0));
    let mut rows = vec![
        ("calls recorded", grouped(coverage.events)),
        ("calls without details", grouped(coverage.events_dropped)),
        ("share of the bytes that the kernel copied", share.unwrap_or_else(|| "n/a".to_owned())),
        ("processes", grouped(coverage.processes_seen)),
        ("marks of epochs and batches", if coverage.marks { "yes" } else { "no" }.to_owned()),
        ("page faults of mappings", coverage.faults.clone().unwrap_or_else(|| "not observed".to_owned())),
    ];
    if let Some(overhead) = observed.overhead {
        rows.push(("additional time of a call", format!("{:.0} ns", overhead.ns_per_call)));
        rows.push(("additional time of an open", format!("{:.0} ns", overhead.ns_per_open)));
        rows.push(("CPU time of the observer", overhead.own_cpu_ns.to_string()));
    }
    for process in &coverage.unseen {
        rows.push(("not seen", format!("process {} ({}): {}", process.pid, process.command, process.reason)));
    }
    rows.extend(findings.limits.iter().chain(&coverage.notes).map(|text| ("not seen", text.clone())));
    let section = PageSection::new(
        "coverage",
        "What was seen",
        "How much of the job was observed, and what observing it cost.",
    );
    section.table(two_columns("Coverage", rows))
}

fn two_columns(caption: &str, rows: Vec<(&str, String)>) -> DataTable {
    DataTable {
        caption: caption.to_owned(),
        header: ["what", "value"].map(str::to_owned).into(),
        rows: rows.into_iter().map(|(name, value)| vec![name.into(), value.into()]).collect(),
        text_columns: 2,
    }
}
