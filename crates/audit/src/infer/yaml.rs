//! The inferred workload as YAML, with a comment on each value.

use std::fmt::{Display, Write};

use model::spec::ValueKind;

use super::inferred::{Inferred, MeanSpread};
use super::job::{InferredJob, ReplayFiles};

/// Sizes that vary more than this have a long tail.
const LONG_TAIL: f64 = 0.3;
/// More variation than this is cut: it would be a few samples with nearly all of the time.
const MOST_VARIATION: f64 = 5.0;
/// A sample of 1 PiB is no real one either.
const LARGEST_SAMPLE: f64 = (1u64 << 50) as f64;
const GENERATED_FOLDER: &str = "replay-data";

/// Longer times of a sample or step are not real ones. In seconds.
const LONGEST_TIME: f64 = 1e6;
/// Less spread than this, in seconds, is below what clocks count.
const LEAST_SCALE: f64 = 2e-9;

/// Lines of YAML, and the section that the last one is in.
#[derive(Default)]
struct YamlLines(String, &'static str);

impl YamlLines {
    fn section(&mut self, name: &'static str) {
        let _ = writeln!(self.0, "\n{name}:");
        self.1 = name;
    }

    /// A number within what its key allows: what a damaged document says must not give a workload that cannot be read.
    fn number<T>(&mut self, key: &str, value: f64, known: &Inferred<T>) {
        let full = format!("{}.{key}", self.1);
        let row = model::spec::rows().find(|row| row.key == full);
        let value = match row.map(|row| row.kind) {
            Some(ValueKind::Integer(least, most)) => value.clamp(least as f64, most as f64),
            Some(ValueKind::Number(least, most)) => value.clamp(least, most),
            _ => value,
        };
        self.known(key, format!("{value:.0}"), known);
    }

    fn plain(&mut self, key: &str, value: impl Display, comment: &str) {
        let _ = writeln!(self.0, "  {key}: {value}  # {comment}");
    }

    fn known<T>(&mut self, key: &str, value: impl Display, known: &Inferred<T>) {
        self.plain(key, value, &format!("{}; {}", known.source, known.sure));
    }

    fn comment(&mut self, text: &str) {
        let _ = writeln!(self.0, "{}", format!("# {text}").trim_end());
    }
}

pub(super) fn written(job: &InferredJob) -> String {
    let mut lines = YamlLines::default();
    header(job, &mut lines);
    let _ = writeln!(lines.0, "\nmodel: {{name: replay}}\nframework: {}", job.loader.value);
    let generates = job.files_of == ReplayFiles::Generated;
    let _ = writeln!(lines.0, "workflow: {{generate_data: {generates}, train: true}}");
    dataset(job, &mut lines);
    reader(job, &mut lines);
    train(job, &mut lines);
    lines.section("metric");
    lines.known("au", job.au_target.value, &job.au_target);
    lines.section("storage");
    lines.plain("store", "posix", "assumed: the job makes blocking calls; likely");
    lines.0
}

fn header(job: &InferredJob, lines: &mut YamlLines) {
    lines.comment("A workload that reads data as an audited job does, inferred by feedline.");
    let ranks = if job.ranks > 1 { format!(" --ranks {}", job.ranks) } else { String::new() };
    lines.comment(&format!("Replay it: feedline run job.yaml{ranks}"));
    lines.comment("");
    match (&job.files_of, &job.folder) {
        (ReplayFiles::Own { .. }, _) => lines.comment("It reads the job's files and writes none of them."),
        (ReplayFiles::Generated, None) => {
            lines.comment("It reads generated files: the result has no paths of the job's files.");
        }
        (ReplayFiles::Generated, Some(folder)) => {
            lines.comment(
                "It reads generated files. To read those of the job, list them and infer with the list:",
            );
            let suffix = job.suffix.as_ref().map(|name| format!(" --suffix .{name}")).unwrap_or_default();
            lines.comment(&format!("  feedline catalog {}{suffix} --output job.catalog", one_line(folder)));
            lines.comment("  feedline infer RESULT --catalog job.catalog > job.yaml");
        }
    }
    for sentence in &job.left_out {
        lines.comment(&format!("Left out: {sentence}"));
    }
    lines.comment("");
    if job.outside.is_empty() {
        lines.comment("Outside of what a replay reproduces: nothing that is known.");
    } else {
        lines.comment("Outside of what a replay reproduces:");
        job.outside.iter().for_each(|sentence| lines.comment(&format!("- {sentence}")));
    }
}

fn dataset(job: &InferredJob, lines: &mut YamlLines) {
    lines.section("dataset");
    lines.known("format", job.format.value, &job.format);
    match &job.files_of {
        ReplayFiles::Generated => {
            lines.plain("data_folder", GENERATED_FOLDER, "generated files; feedline writes them");
        }
        ReplayFiles::Own { folder, catalog } => {
            lines.plain("data_folder", quoted(folder), "recorded: the folder of the job's files; certain");
            lines.plain("catalog", quoted(catalog), "given; certain");
        }
    }
    lines.number("num_files_train", job.files.value as f64, &job.files);
    lines.number("num_samples_per_file", job.samples_per_file.value as f64, &job.samples_per_file);
    let mean = job.sample_bytes.value.mean.clamp(1.0, LARGEST_SAMPLE);
    let variation = job.sample_bytes.value.variation();
    match variation {
        0.0 => lines.known("record_dims", format!("[{mean:.0}]"), &job.sample_bytes),
        _ if variation <= LONG_TAIL => {
            lines.number("record_length_bytes", mean, &job.sample_bytes);
            lines.number("record_length_bytes_stdev", mean * variation, &job.sample_bytes);
            lines.plain("size_law", "exact", "assumed: the spread is small; guess");
        }
        _ => {
            let sigma = (1.0 + variation * variation).ln().sqrt().min(3.0);
            lines.number("record_length_bytes", mean / (sigma * sigma / 2.0).exp(), &job.sample_bytes);
            lines.plain("size_law", "lognormal", "assumed: the spread is large; guess");
            lines.known("size_sigma", short(sigma), &job.sample_bytes);
        }
    }
}

fn reader(job: &InferredJob, lines: &mut YamlLines) {
    let shuffle = |is_shuffled: bool| if is_shuffled { "seed" } else { "'off'" };
    lines.section("reader");
    lines.known("data_loader", job.loader.value, &job.loader);
    lines.number("batch_size", job.batch.value as f64, &job.batch);
    lines.number("read_threads", job.threads.value as f64, &job.threads);
    if job.samples.streams {
        // The scheduler adds a chunk for each reader.
        let ahead = job.prefetch.value.saturating_sub(job.threads.value);
        lines.number("prefetch_size", ahead as f64, &job.prefetch);
        let cycle = Inferred::likely((), "assumed: each worker reads one file at a time");
        lines.number("interleave_cycle", job.threads.value as f64, &cycle);
        let block = Inferred::certain((), "assumed: a batch is from one worker");
        lines.number("interleave_block", job.batch.value as f64, &block);
    } else {
        lines.number("prefetch_size", job.prefetch.value as f64, &job.prefetch);
    }
    lines.known("file_shuffle", shuffle(job.file_shuffle.value), &job.file_shuffle);
    lines.known("sample_shuffle", shuffle(job.sample_shuffle.value), &job.sample_shuffle);
    lines.known("requests", job.requests.value.to_yaml(), &job.requests);
    lines.number("transfer_size", job.transfer.value as f64, &job.transfer);
    lines.number("rereads", job.rereads.value as f64, &job.rereads);
    lines.number("opens_per_sample", job.opens.value as f64, &job.opens);
    lines.number("stats_per_sample", job.stats.value as f64, &job.stats);
    match job.in_flight_limit.value {
        Some(most) => lines.known("in_flight_limit", most, &job.in_flight_limit),
        None => lines.known("in_flight_limit", "null", &job.in_flight_limit),
    }
    lines.known("odirect", job.direct.value, &job.direct);
    lines.known("readahead", job.readahead.value, &job.readahead);
    lines.known("start_time", time(job.start.value), &job.start);
    lines.known("start_once", job.start_once.value, &job.start_once);
    lines.known("cache", job.cache.value, &job.cache);
    lines.known("preprocess_time", time(job.preprocess.value), &job.preprocess);
    lines.plain("preprocess", "sleep", "assumed: the measured time has the wait for a core in it; likely");
    lines.plain("cache_proof", "none", "assumed: the job does not count pages; certain");
    lines.plain("verify", "none", "assumed: the job does not compare content; certain");
}

fn train(job: &InferredJob, lines: &mut YamlLines) {
    lines.section("train");
    lines.number("epochs", job.epochs.value as f64, &job.epochs);
    lines.known("computation_time", time(job.compute.value), &job.compute);
    lines.known("handover_time", time(job.handover.value), &job.handover);
    lines.known("seed_change_epoch", job.reshuffled.value, &job.reshuffled);
    if let Some(steps) = &job.steps {
        lines.number("total_training_steps", steps.value as f64, steps);
    }
}

/// A constant, or a gamma distribution with the same mean and standard deviation.
fn time(seconds: MeanSpread) -> String {
    let mean = seconds.mean.min(LONGEST_TIME);
    let square = seconds.variation().min(MOST_VARIATION).powi(2);
    match mean * square {
        scale if scale < LEAST_SCALE => short(if mean < LEAST_SCALE { 0.0 } else { mean }),
        scale => format!("{{type: gamma, shape: {}, scale: {}}}", short(1.0 / square), short(scale)),
    }
}

/// Six digits, without an exponent.
fn short(value: f64) -> String {
    let digits = if value > 0.0 { (5 - value.log10().floor() as i32).clamp(1, 12) } else { 1 };
    format!("{value:.*}", digits as usize)
}

fn quoted(text: &str) -> String {
    format!("'{}'", one_line(text).replace('\'', "''"))
}

/// A path with control characters cannot end a comment.
fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}
