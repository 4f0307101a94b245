//! Live figures as text for Prometheus and other collectors: OpenMetrics 1.0, and the older text format 0.0.4, which
//! node exporters read from files. The table [`FAMILIES`] has every metric; docs/guides/live.md repeats it.

use std::fmt::Write;

use model::units::Nanos;

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A total since the start of the command.
    Counter,
    /// A value that is true at this moment.
    Gauge,
    /// Facts in labels; the value is 1.
    Info,
}

impl MetricKind {
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Info => "info",
        }
    }

    /// What the names of its samples end in.
    fn suffix(self) -> &'static str {
        match self {
            MetricKind::Counter => "_total",
            MetricKind::Gauge => "",
            MetricKind::Info => "_info",
        }
    }
}

/// A metric: its name without prefix and suffix, its labels and its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricFamily {
    pub name: &'static str,
    pub kind: MetricKind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

impl MetricFamily {
    /// The name of its samples, such as `feedline_samples_total`.
    pub fn sample_name(&self) -> String {
        format!("{PREFIX}{}{}", self.name, self.kind.suffix())
    }

    /// The unit, by the end of the name.
    fn unit(&self) -> Option<&'static str> {
        ["seconds", "bytes", "ratio"].into_iter().find(|unit| self.name.ends_with(unit))
    }
}

const PREFIX: &str = "feedline_";

/// The metrics as constants, and the table of all of them.
macro_rules! families {
    ($($constant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(pub const $constant: MetricFamily = MetricFamily {
            name: $name,
            kind: MetricKind::$kind,
            labels: &[$($label),*],
            help: $help,
        };)+

        /// All metrics, in the order of the page.
        pub const FAMILIES: &[MetricFamily] = &[$($constant),+];
    };
}

families! {
    RUN = Info "run" ["version", "command", "workload", "plan"]
        "What runs: the version of feedline, the command, the workload, and the digest of the plan once it is known";
    FINISHED = Gauge "finished" [] "1 when the work has ended and all totals are final, else 0";
    WORK_DONE = Gauge "work_done" ["activity", "unit"] "How much of the current activity is done";
    WORK_PLANNED = Gauge "work_planned" ["activity", "unit"] "The size of the current activity; absent if unknown";
    EPOCH = Gauge "epoch" [] "The current epoch, from 1; 0 before the first";
    PHASE = Gauge "phase" ["phase"] "1 for the phase that runs: prepare (the page cache), train or eval; else 0";
    STEP = Gauge "step" [] "The step of the phase that the slowest rank of process 0 has begun, from 1";
    RANKS = Gauge "ranks" [] "Emulated accelerators of the current activity";

    AU = Gauge "au_ratio" []
        "AU of the current run so far, from 0 to 1: the share of compute time in the time of all steps";
    SAMPLES = Counter "samples" [] "Samples that were delivered";
    FAILED_SAMPLES = Counter "failed_samples" [] "Samples that could not be read and were left out";
    BYTES = Counter "read_bytes" [] "Bytes that the I/O backend returned";
    STEPS = Counter "steps" [] "Steps that have ended, over all ranks";
    TIME = Counter "time_seconds" ["part"]
        "Time of all ranks: wait (for data), copy, compute, barrier and checkpoint";
    IN_FLIGHT = Gauge "in_flight" [] "Fetches in flight";
    WAITING = Gauge "waiting_ranks" [] "Ranks that wait for a batch";
    ERRORS = Counter "errors" [] "Errors of reads, tolerated or not";
    FILES = Counter "files" [] "Files that were generated, listed, or saved and restored in checkpoints";
    FILE_BYTES = Counter "file_bytes" [] "Bytes of these files";
    PREPARED = Counter "prepared_files" [] "Files whose pages were evicted or loaded before a phase";

    REQUESTS = Counter "requests" [] "Attempts at requests to an object store, retries included";
    ANSWERED = Counter "answered_requests" [] "Requests that succeeded";
    RETRIES = Counter "failed_attempts" ["kind"]
        "Attempts that failed, by kind; a retry follows, unless there were too many";
    CONNECTS = Counter "connects" [] "Connections to an object store";
    RECEIVED = Counter "received_bytes" [] "Bytes of content that arrived from an object store";

    SAVES = Counter "checkpoints" [] "Checkpoints of this run that are complete on a tier";
    SAVED_BYTES = Counter "checkpoint_bytes" [] "Bytes of these checkpoints";
    DRAINED = Counter "drained_checkpoints" [] "Checkpoints of this run that were drained to the last tier";
    RESTORES = Counter "restores" [] "Checkpoints that were restored";
    SAVING = Gauge "saving" [] "1 while training waits for a checkpoint, else 0";
    DRAINS = Gauge "drains_in_progress" [] "Checkpoints that are being drained";
    UNDRAINED = Gauge "undrained_checkpoints" [] "Checkpoints on the fast tier that are not on the last one";

    EXTREME_RANK = Gauge "extreme_rank" ["which"]
        "The number of the rank that waited longest for data (slowest) and shortest (fastest)";
    EXTREME_WAIT = Gauge "extreme_rank_wait_seconds" ["which"] "How long these ranks have waited";

    NODE_AU = Gauge "node_au_ratio" ["node"] "AU of the current run so far, from 0 to 1, of the ranks of a node";
    NODE_SAMPLES = Counter "node_samples" ["node"] "Samples that were delivered to the ranks of a node";
    NODE_BYTES = Counter "node_read_bytes" ["node"] "Bytes that the I/O backend returned on a node";
    NODE_STEPS = Counter "node_steps" ["node"] "Steps that the ranks of a node have ended";
    NODE_TIME = Counter "node_time_seconds" ["node", "part"] "Time of the ranks of a node";
    NODE_IN_FLIGHT = Gauge "node_in_flight" ["node"] "Fetches in flight on a node";
    NODE_ERRORS = Counter "node_errors" ["node"] "Errors of reads on a node";

    RANK_AU = Gauge "rank_au_ratio" ["rank"] "AU of the current run so far, from 0 to 1, of a rank";
    RANK_STEP = Gauge "rank_step" ["rank"] "The step of the phase that a rank has begun, from 1";
    RANK_SAMPLES = Counter "rank_samples" ["rank"] "Samples that were delivered to a rank";
    RANK_BYTES = Counter "rank_read_bytes" ["rank"] "Bytes that were read for a rank";
    RANK_STEPS = Counter "rank_steps" ["rank"] "Steps that a rank has ended";
    RANK_TIME = Counter "rank_time_seconds" ["rank", "part"] "Time of a rank";
}

/// Which text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    OpenMetrics,
    /// Version 0.0.4 of Prometheus' own format.
    Text,
}

impl MetricsFormat {
    pub fn content_type(self) -> &'static str {
        match self {
            MetricsFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            MetricsFormat::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// A value of a metric. Counts and times are written exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricValue {
    Count(u64),
    Seconds(Nanos),
    Ratio(f64),
}

impl MetricValue {
    fn write(self, text: &mut String) {
        // Writing to a string cannot fail.
        let _ = match self {
            MetricValue::Count(count) => write!(text, "{count}"),
            MetricValue::Seconds(Nanos(nanos)) => {
                write!(text, "{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
            }
            MetricValue::Ratio(ratio) => write!(text, "{ratio:?}"),
        };
    }
}

/// The samples of a page, by metric.
#[derive(Clone, Debug, Default)]
pub struct MetricsPage {
    samples: Vec<(&'static str, Vec<String>, MetricValue)>,
}

impl MetricsPage {
    /// Adds a value with the values of the metric's labels, in their order.
    pub fn add(&mut self, family: &MetricFamily, labels: &[&str], value: MetricValue) {
        debug_assert_eq!(family.labels.len(), labels.len(), "{}", family.name);
        self.samples.push((family.name, labels.iter().map(|label| (*label).to_owned()).collect(), value));
    }

    pub fn count(&mut self, family: &MetricFamily, value: u64) {
        self.add(family, &[], MetricValue::Count(value));
    }

    /// The page as text. Metrics without a value are left out.
    pub fn text(&self, format: MetricsFormat) -> String {
        let mut text = String::new();
        for family in FAMILIES {
            let mut samples = self.samples.iter().filter(|(name, ..)| *name == family.name).peekable();
            if samples.peek().is_some() {
                write_head(&mut text, family, format);
            }
            for (_, labels, value) in samples {
                write_sample(&mut text, family, labels, *value);
            }
        }
        if format == MetricsFormat::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }
}

fn write_head(text: &mut String, family: &MetricFamily, format: MetricsFormat) {
    let (name, kind) = match (format, family.kind) {
        (MetricsFormat::OpenMetrics, kind) => (format!("{PREFIX}{}", family.name), kind.name()),
        (MetricsFormat::Text, MetricKind::Info) => (family.sample_name(), "gauge"),
        (MetricsFormat::Text, kind) => (family.sample_name(), kind.name()),
    };
    let _ = writeln!(text, "# HELP {name} {}.", family.help);
    let _ = writeln!(text, "# TYPE {name} {kind}");
    if let Some(unit) = family.unit().filter(|_| format == MetricsFormat::OpenMetrics) {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
}

fn write_sample(text: &mut String, family: &MetricFamily, labels: &[String], value: MetricValue) {
    text.push_str(&family.sample_name());
    for (place, (name, label)) in family.labels.iter().zip(labels).enumerate() {
        let _ = write!(text, "{}{name}=\"{}\"", if place == 0 { '{' } else { ',' }, escaped(label));
    }
    text.push_str(if labels.is_empty() { " " } else { "} " });
    value.write(text);
    text.push('\n');
}

/// The value of a label: backslashes, quotes and line feeds are escaped, and other control characters are replaced,
/// because some parsers end a line at them.
fn escaped(label: &str) -> String {
    let mut text = String::with_capacity(label.len());
    for character in label.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other if other.is_control() => text.push('\u{fffd}'),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> MetricsPage {
        let mut page = MetricsPage::default();
        page.add(&TIME, &["wait"], MetricValue::Seconds(Nanos(1_000_000_007)));
        page.count(&SAMPLES, u64::MAX);
        page.add(&RUN, &["1", "run", "a\"b\\c\nd\r<b>é", ""], MetricValue::Count(1));
        page.add(&AU, &[], MetricValue::Ratio(1.0));
        page
    }

    #[test]
    fn open_metrics() {
        let expected = "\
# HELP feedline_run What runs: the version of feedline, the command, the workload, and the digest of the plan once it \
is known.
# TYPE feedline_run info
feedline_run_info{version=\"1\",command=\"run\",workload=\"a\\\"b\\\\c\\nd\u{fffd}<b>é\",plan=\"\"} 1
# HELP feedline_au_ratio AU of the current run so far, from 0 to 1: the share of compute time in the time of all steps.
# TYPE feedline_au_ratio gauge
# UNIT feedline_au_ratio ratio
feedline_au_ratio 1.0
# HELP feedline_samples Samples that were delivered.
# TYPE feedline_samples counter
feedline_samples_total 18446744073709551615
# HELP feedline_time_seconds Time of all ranks: wait (for data), copy, compute, barrier and checkpoint.
# TYPE feedline_time_seconds counter
# UNIT feedline_time_seconds seconds
feedline_time_seconds_total{part=\"wait\"} 1.000000007
# EOF
";
        assert_eq!(page().text(MetricsFormat::OpenMetrics), expected);
    }

    #[test]
    fn the_older_format_has_no_info_no_unit_and_no_end() {
        let text = page().text(MetricsFormat::Text);
        assert!(text.contains("# TYPE feedline_run_info gauge\nfeedline_run_info{"), "{text}");
        assert!(text.contains("# TYPE feedline_samples_total counter\n"), "{text}");
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    }

    #[test]
    fn names_follow_the_rules_of_the_format() {
        let mut names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        for family in FAMILIES {
            let valid = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            assert!(valid(family.name) && family.labels.iter().all(|label| valid(label)), "{family:?}");
            let reserved = ["_total", "_info", "_created", "_count", "_sum", "_bucket"];
            assert!(!reserved.iter().any(|end| family.name.ends_with(end)), "{family:?}");
            assert!(!family.help.ends_with('.') && !family.help.contains(['\\', '\n']), "{family:?}");
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FAMILIES.len());
    }
}
