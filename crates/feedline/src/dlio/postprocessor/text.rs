//! The text of the report: the run as a whole, then each epoch with its phases.

use jiff::civil::DateTime;

use super::Described;
use super::iostat::{CPU, DISK, HostLoad};
use super::leaf::{BYTES_PER_MIB, LeafEpoch, LeafPhase, LeafTimes, TimeSpan};
use super::series::{FIGURES, figures};

/// Columns of the names of rows.
const NAMES: usize = 36;
const STEP: usize = 4;

/// The whole report.
pub(super) fn report(described: &Described, times: &LeafTimes, load: Option<&HostLoad>) -> String {
    let mut page = ReportPage { text: String::new(), described, load };
    page.line(0, &format!("DLIO report, written by feedline {}", env!("CARGO_PKG_VERSION")));
    page.line(0, "");
    page.line(
        0,
        "Fewer than 2 values have no statistics and show n/a. Disks and CPUs need a run with iostat.",
    );
    page.line(0, "");
    page.overall(times);
    page.line(0, "Detailed Report");
    page.line(0, "");
    let mut counts = PhaseCounts::default();
    for epoch in &times.epochs {
        page.epoch(epoch, &mut counts);
    }
    page.text
}

/// Phases are numbered over the whole run.
#[derive(Default)]
struct PhaseCounts {
    blocks: u64,
    evaluations: u64,
    checkpoints: u64,
}

impl PhaseCounts {
    fn title(&mut self, phase: &LeafPhase) -> String {
        let (name, count) = match phase.name.as_str() {
            name if name.starts_with("block") => ("Block", &mut self.blocks),
            _ if phase.is_evaluation() => ("Eval", &mut self.evaluations),
            _ if phase.is_checkpoint() => ("Checkpoint", &mut self.checkpoints),
            other => return other.to_owned(),
        };
        *count += 1;
        let direction = match phase.name.split_once('_') {
            Some((direction, _)) if phase.is_checkpoint() => format!(" ({direction})"),
            _ => String::new(),
        };
        format!("{name} {count}{direction}")
    }
}

struct ReportPage<'a> {
    text: String,
    described: &'a Described,
    load: Option<&'a HostLoad>,
}

impl ReportPage<'_> {
    fn line(&mut self, depth: usize, text: &str) {
        let line = format!("{}{text}", " ".repeat(depth * STEP));
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn row(&mut self, depth: usize, name: &str, value: &str) {
        self.line(depth, &format!("{name:<NAMES$}{value}"));
    }

    fn overall(&mut self, times: &LeafTimes) {
        let described = self.described;
        self.line(0, "Overall");
        self.line(0, "");
        self.row(1, "Run name:", &described.name);
        self.span(1, &times.span());
        self.row(1, "Num Ranks:", &times.ranks.to_string());
        self.row(1, "Batch size (per rank):", &described.batch_size.to_string());
        if let Some(batch_size) = described.batch_size_eval {
            self.row(1, "Eval batch size:", &batch_size.to_string());
        }
        self.line(0, "");
        let samples = (!times.throughput.is_empty()).then_some(times.throughput.as_slice());
        self.table(1, samples.map(|samples| ("Throughput Stats (over all epochs)", samples)), &times.span());
    }

    fn epoch(&mut self, epoch: &LeafEpoch, counts: &mut PhaseCounts) {
        self.line(0, &format!("Epoch {}", epoch.number));
        self.span(1, &epoch.span);
        self.line(0, "");
        for phase in &epoch.phases {
            let title = counts.title(phase);
            self.line(1, &title);
            self.phase(phase);
        }
    }

    fn phase(&mut self, phase: &LeafPhase) {
        self.span(2, &phase.span);
        if let Some(rate) = phase.checkpoint_rate {
            self.row(2, "Throughput (GiB/s):", &format!("{rate:.2}"));
        }
        if let Some(steps) = &phase.steps {
            self.row(2, "Avg loading time / rank (s):", &format!("{:.2}", steps.loading_per_rank));
            self.row(2, "Avg processing time / rank (s):", &format!("{:.2}", steps.processing_per_rank));
        }
        self.line(0, "");
        let batch_size = match phase.is_evaluation() {
            true => self.described.batch_size_eval.unwrap_or(1),
            false => self.described.batch_size,
        };
        let samples =
            phase.steps.as_ref().map(|steps| steps.rates.iter().map(|rate| rate * batch_size as f64));
        let samples: Option<Vec<f64>> = samples.map(Iterator::collect);
        let samples = samples.as_deref().map(|samples| ("Throughput Stats (over all steps)", samples));
        self.table(2, samples, &phase.span);
    }

    fn span(&mut self, depth: usize, span: &TimeSpan) {
        let shown = |moment: Option<DateTime>| {
            moment.map_or("n/a".into(), |moment| moment.strftime("%Y-%m-%d %H:%M:%S.%6f").to_string())
        };
        self.row(depth, "Started:", &shown(span.start));
        self.row(depth, "Ended:", &shown(span.end));
        let seconds = span.seconds().map_or("n/a".into(), |seconds| format!("{seconds:.2}"));
        self.row(depth, "Duration (s):", &seconds);
    }

    /// The statistics of a span of time: samples per second, if there are any, and the load of the host.
    fn table(&mut self, depth: usize, samples: Option<(&str, &[f64])>, span: &TimeSpan) {
        if samples.is_none() && self.load.is_none() {
            return;
        }
        let columns: String = FIGURES.iter().map(|name| format!("{name:>12} ")).collect();
        self.row(depth, "", &columns);
        self.row(depth, "", &"-".repeat(columns.len()));
        if let Some((title, samples)) = samples {
            self.throughput(depth, title, samples);
        }
        self.host(depth, span);
    }

    fn figures(&mut self, depth: usize, name: &str, series: &[f64]) {
        let columns: String = figures(series).iter().map(|figure| format!("{figure:>12} ")).collect();
        self.row(depth, name, &columns);
    }

    fn throughput(&mut self, depth: usize, title: &str, samples: &[f64]) {
        self.line(depth, title);
        self.figures(depth, "  Samples/s:", samples);
        let mib = |bytes: f64| samples.iter().map(|rate| rate * bytes / BYTES_PER_MIB).collect();
        let mib: Vec<f64> = self.described.record_bytes.map(mib).unwrap_or_default();
        self.figures(depth, "  MiB/s (derived from Samples/s):", &mib);
        self.line(0, "");
    }

    /// Disks and CPUs during a span of time.
    fn host(&mut self, depth: usize, span: &TimeSpan) {
        let Some(load) = self.load else { return };
        self.line(depth, "I/O Stats (over all time segments)");
        for disk in load.disks() {
            self.line(depth, &format!("  Device: {disk}"));
            for (name, column) in DISK {
                self.figures(depth, &format!("    {name}"), &load.disk(disk, column, span));
            }
            self.line(0, "");
        }
        self.line(depth, "CPU Stats");
        for (name, fields) in CPU {
            self.figures(depth, &format!("    {name}"), &load.cpu(fields, span));
        }
        self.line(0, "");
    }
}
