//! Tests of the inference: documents of jobs become workloads, which are read as `feedline run` reads them.

use std::collections::BTreeMap;

use model::ledger::Ledger;
use model::observed::{
    Calls, EpochFiles, EpochRow, Fault, FaultOutcome, FileFigures, Findings, IoCounts, LoaderRow, Observed,
    RuleAnswer, SamplePattern, TrainingFramework, ValueCounts, WorkerRow,
};
use model::spec::{self, WorkloadSource};
use model::units::Nanos;

use super::{InferError, InferOptions, infer};
use crate::judge::RULES;

const SAMPLES: u64 = 64;
const BATCH: u64 = 8;
const SIZE: u64 = 100_000;

fn counts(value: u64, times: u64) -> ValueCounts {
    let mut counts = ValueCounts::default();
    counts.record_n(value, times);
    counts
}

fn calls(count: u64, bytes: u64) -> Calls {
    Calls { count, bytes, ns: Nanos(count * 10_000), errors: 0 }
}

/// Three epochs over 64 files of 100,000 bytes, each read by one call, by two workers that stay.
fn whole_files() -> Observed {
    let loader = LoaderRow {
        framework: TrainingFramework::Pytorch,
        workers: 2,
        persistent: true,
        batch: Some(BATCH),
        prefetch: Some(3),
        ..LoaderRow::default()
    };
    let files = FileFigures {
        sampled: SAMPLES,
        estimated: SAMPLES,
        sizes: counts(SIZE, SAMPLES),
        folders: vec![("/data/a".into(), 32), ("/data/b".into(), 32)],
        suffixes: vec![("bin".into(), SAMPLES)],
        ..FileFigures::default()
    };
    let epochs = (1..=3).map(epoch).collect();
    Observed { loaders: vec![loader], epochs, files, ..Observed::default() }
}

fn epoch(number: u64) -> EpochRow {
    let batches = SAMPLES / BATCH;
    EpochRow {
        epoch: number,
        begin_ns: Nanos(number * 2_000_000_000),
        end_ns: Nanos(number * 2_000_000_000 + 1_000_000_000),
        complete: true,
        batches,
        samples: Some(SAMPLES),
        start_ns: Nanos(if number == 1 { 50_000_000 } else { 0 }),
        io: IoCounts {
            opens: calls(SAMPLES, 0),
            reads: calls(SAMPLES, SAMPLES * SIZE),
            stats: calls(2 * SAMPLES, 0),
            ..IoCounts::default()
        },
        issued_bytes: Some(if number == 1 { SAMPLES * SIZE } else { 0 }),
        read_sizes: counts(SIZE, SAMPLES),
        fetch_times: counts(8_000_000, batches),
        wait_times: counts(100_000, batches),
        compute_times: counts(4_000_000, batches),
        handover_times: counts(500_000, batches),
        think_times: counts(1_000_000, SAMPLES),
        files: EpochFiles {
            asked_bytes: SAMPLES * SIZE,
            process_distinct_bytes: SAMPLES * SIZE,
            distinct_bytes: SAMPLES * SIZE,
            order_correlation: (number > 1).then_some(0.02),
            ..EpochFiles::default()
        },
        sample_patterns: vec![pattern(&[SIZE])],
        ..EpochRow::default()
    }
}

fn pattern(sizes: &[u64]) -> SamplePattern {
    SamplePattern {
        reads: sizes.iter().map(|size| (0, *size)).collect(),
        samples: SAMPLES,
        examined: SAMPLES,
    }
}

/// The same samples as ranges of four files that stay open.
fn ranges() -> Observed {
    let mut job = whole_files();
    job.files.estimated = 4;
    job.files.sizes = counts(16 * SIZE, 4);
    job.epochs.iter_mut().for_each(|row| row.io.opens = calls(8, 0));
    job
}

/// Reads of 1 MiB, one after another, of 8 files of 8 samples each.
fn streams() -> Observed {
    let mut job = whole_files();
    job.files.estimated = 8;
    job.files.suffixes = vec![("tfrecord".into(), 8)];
    for row in &mut job.epochs {
        row.io.reads = calls(8, SAMPLES * SIZE);
        row.io.sequential = calls(7, SAMPLES * SIZE);
        row.read_sizes = counts(8 * SIZE, 8);
        row.sample_patterns.clear();
    }
    job
}

fn written(job: &Observed, findings: &Findings, options: &InferOptions) -> Result<String, InferError> {
    let mut ledger = Ledger::default();
    ledger.observed = Some(Box::new(job.clone()));
    infer(&ledger, findings, options)
}

/// The workload of a job, and its settings as `feedline run` reads them.
#[track_caller]
fn settings(text: &str) -> BTreeMap<String, String> {
    let read = spec::read(WorkloadSource { name: "job.yaml", text }, &[]);
    let read = read.unwrap_or_else(|error| panic!("{error}\n{text}"));
    let plain = |text: String| text.trim_matches('"').to_owned();
    read.spec.settings().into_iter().map(|(key, value)| (key.to_owned(), plain(value))).collect()
}

#[track_caller]
fn has(job: &Observed, options: &InferOptions, expected: &[(&str, &str)]) -> String {
    let text = written(job, &Findings::default(), options).unwrap();
    let found = settings(&text);
    for (key, value) in expected {
        assert_eq!(found.get(*key).map(String::as_str), Some(*value), "{key}\n{text}");
    }
    text
}

/// A job that has this fault and nothing else.
fn found(name: &str) -> Findings {
    let rule = RULES.iter().find(|rule| rule.name == name).unwrap();
    let fault = Fault {
        name: name.into(),
        title: String::new(),
        severity: rule.severity,
        certainty: model::observed::Certainty::High,
        rank: None,
        loader: None,
        evidence: String::new(),
        figures: BTreeMap::new(),
        cost_seconds_per_epoch: Some(0.02),
        explanation: String::new(),
        change: String::new(),
        check: String::new(),
        places: vec![],
        consequences: vec![],
        limits: vec![],
    };
    let outcome = FaultOutcome { name: name.into(), outcome: RuleAnswer::Found, reason: String::new() };
    Findings { findings: vec![fault], rules: vec![outcome], ..Findings::default() }
}

fn without(name: &str) -> InferOptions {
    InferOptions { fixed: vec![name.into()], catalog: None }
}

#[test]
fn whole_files_are_read_as_the_job_reads_them() {
    let text = has(
        &whole_files(),
        &InferOptions::default(),
        &[
            ("dataset.format", "raw"),
            ("dataset.num_files_train", "64"),
            ("dataset.num_samples_per_file", "1"),
            ("reader.batch_size", "8"),
            ("reader.read_threads", "2"),
            ("reader.prefetch_size", "6"),
            ("reader.transfer_size", "100000"),
            ("reader.opens_per_sample", "1"),
            ("reader.stats_per_sample", "2"),
            ("reader.rereads", "1"),
            ("reader.cache", "first-cold"),
            ("reader.start_once", "true"),
            ("reader.file_shuffle", "seed"),
            ("train.epochs", "3"),
            ("train.seed_change_epoch", "true"),
        ],
    );
    assert!(text.contains("record_dims: [100000]  # measured"), "{text}");
    assert!(text.contains("/data --suffix .bin"), "the folder that all files are in: {text}");
}

#[test]
fn ranges_and_streams_keep_files_open() {
    let of_ranges = [
        ("dataset.num_files_train", "4"),
        ("dataset.num_samples_per_file", "16"),
        ("reader.opens_per_sample", "0"),
        ("reader.sample_shuffle", "seed"),
    ];
    has(&ranges(), &InferOptions::default(), &of_ranges);
    let of_streams = [
        ("dataset.format", "tfrecord"),
        ("dataset.num_files_train", "8"),
        ("reader.data_loader", "tensorflow"),
        ("reader.interleave_cycle", "2"),
        ("reader.interleave_block", "8"),
        ("reader.transfer_size", "800000"),
    ];
    has(&streams(), &InferOptions::default(), &of_streams);
}

#[test]
fn a_few_other_reads_do_not_change_samples() {
    let job = changed(ranges(), |row| {
        row.io.reads = calls(SAMPLES + 3, SAMPLES * SIZE + 90);
        (row.files.asked_bytes, row.files.process_distinct_bytes) =
            (SAMPLES * SIZE + 90, SAMPLES * SIZE + 90);
    });
    let text = has(&job, &InferOptions::default(), &[("reader.transfer_size", "100000")]);
    assert!(text.contains("record_dims: [100000]  #"), "{text}");
}

#[test]
fn the_page_cache_is_what_storage_delivered() {
    for (first, later, state) in [(1, 1, "epoch-cold"), (1, 0, "first-cold"), (0, 0, "warm"), (0, 1, "as-is")]
    {
        let mut job = whole_files();
        for row in &mut job.epochs {
            row.issued_bytes = Some(SAMPLES * SIZE * if row.epoch == 1 { first } else { later });
        }
        has(&job, &InferOptions::default(), &[("reader.cache", state)]);
    }
    let mut job = whole_files();
    job.epochs.iter_mut().for_each(|row| row.issued_bytes = None);
    has(&job, &InferOptions::default(), &[("reader.cache", "as-is")]);
}

#[test]
fn what_a_replay_does_not_reproduce_is_in_its_header() {
    let mut job = ranges();
    job.coverage.copied_bytes = Some(1000 << 20);
    job.coverage.recorded_bytes = 300 << 20;
    job.coverage.events_dropped = 7;
    job.files.sample_bits = 2;
    for row in &mut job.epochs {
        row.checkpoint_ns = Nanos(5);
        row.io.listings = calls(1, 0);
    }
    job.host.cores = Some(1);
    for row in &mut job.epochs {
        row.blocked_all_ns = Nanos::from_seconds(0.5);
        row.workers = vec![WorkerRow { fetch_ns: Nanos::from_seconds(0.8), ..WorkerRow::default() }; 2];
    }
    let text = has(&job, &InferOptions::default(), &[]);
    for sentence in [
        "Workers passed 20 % of the time between batches",
        "more workers than cores",
        "Only 30 % of the bytes",
        "7 events dropped",
        "estimates from a sample",
        "Checkpoints are not written",
        "Folders are not listed",
    ] {
        assert!(text.contains(sentence), "{sentence}\n{text}");
    }
}

#[test]
fn jobs_without_batches_or_files_are_refused() {
    let refused = |job: &Observed, options: &InferOptions| {
        written(job, &Findings::default(), options).unwrap_err().to_string()
    };
    let nothing = infer(&Ledger::default(), &Findings::default(), &InferOptions::default());
    assert!(matches!(nothing, Err(InferError::NotObserved)));
    let plain = InferOptions::default();
    let mut job = whole_files();
    job.loaders[0].framework = TrainingFramework::Unknown;
    assert!(refused(&job, &plain).contains("no batches were observed"));
    let mut job = whole_files();
    job.epochs.iter_mut().for_each(|row| row.samples = None);
    assert!(refused(&job, &plain).contains("no batches were observed"));
    let mut job = whole_files();
    job.files.estimated = 0;
    assert!(refused(&job, &plain).contains("read no data files"));
    let mut job = whole_files();
    job.epochs.iter_mut().for_each(|row| row.io.reads = Calls::default());
    assert!(refused(&job, &plain).contains("read no data files"));
    job.epochs.iter_mut().for_each(|row| row.io.maps = calls(1, 0));
    assert!(refused(&job, &plain).contains("maps its files"));
}

#[test]
fn a_catalog_is_for_files_that_samples_are_parts_of() {
    let options = InferOptions { fixed: vec![], catalog: Some("it's # job.catalog".into()) };
    let text = has(&whole_files(), &options, &[("dataset.data_folder", "/data")]);
    assert!(text.contains("generate_data: false"), "{text}");
    assert_eq!(settings(&text)["dataset.catalog"], "it's # job.catalog");
    let refused = |job: &Observed| written(job, &Findings::default(), &options).unwrap_err().to_string();
    let mut job = whole_files();
    job.files.folders.clear();
    assert!(refused(&job).contains("no paths of files"));
    let mut job = streams();
    job.files.suffixes = vec![("tar".into(), 8)];
    assert!(refused(&job).contains("are no tfrecord files"));
    has(&streams(), &options, &[]);
    let mut job = whole_files();
    job.files.estimated = 3 * SAMPLES;
    assert!(refused(&job).contains("several files"));
    assert!(refused(&with_fault("duplicate-reads")).contains("the same bytes"));
}

#[test]
fn paths_cannot_add_keys() {
    let mut job = whole_files();
    job.files.folders = vec![("/da'ta\ntrain:\n  epochs: 99\r# x".into(), 1)];
    for catalog in [None, Some("a\nb: c".to_owned())] {
        has(&job, &InferOptions { fixed: vec![], catalog }, &[("train.epochs", "3")]);
    }
}

/// A job that has the fault, where it shows in the figures that workloads are inferred from.
fn with_fault(name: &str) -> Observed {
    match name {
        "same-bytes-read-again" => changed(whole_files(), |row| {
            row.files.process_distinct_bytes /= 4;
            row.files.distinct_bytes /= 4;
            row.io.reads = calls(4 * SAMPLES, SAMPLES * SIZE);
            row.read_sizes = counts(SIZE / 4, 4 * SAMPLES);
            row.sample_patterns = vec![pattern(&[SIZE / 4; 4])];
        }),
        "duplicate-reads" => {
            let mut job = changed(whole_files(), |row| row.files.distinct_bytes /= 2);
            job.files.estimated = SAMPLES / 2;
            job
        }
        "files-opened-again" => changed(ranges(), |row| row.io.opens = calls(SAMPLES, 0)),
        "tiny-reads" => changed(whole_files(), |row| row.sample_patterns = vec![pattern(&[500; 64])]),
        "order-never-changes" => changed(whole_files(), |row| row.files.order_correlation = Some(1.0)),
        "workers-restarted" => {
            let mut job = whole_files();
            job.loaders[0].persistent = false;
            job
        }
        "no-overlap" => {
            let mut job = whole_files();
            job.loaders[0].workers = 0;
            job.host.cores = Some(4);
            job
        }
        "random-where-sequential" | "one-file-many-workers" => ranges(),
        _ => whole_files(),
    }
}

fn changed(mut job: Observed, change: impl Fn(&mut EpochRow)) -> Observed {
    job.epochs.iter_mut().for_each(change);
    job
}

#[test]
fn each_remedy_changes_its_keys() {
    for (name, before, after) in [
        ("order-never-changes", ("train.seed_change_epoch", "false"), "true"),
        ("same-bytes-read-again", ("reader.rereads", "4"), "1"),
        ("duplicate-reads", ("dataset.num_files_train", "64"), "32"),
        ("workers-restarted", ("reader.start_once", "false"), "true"),
        ("files-opened-again", ("reader.opens_per_sample", "1"), "0"),
        ("metadata-bound", ("dataset.num_files_train", "64"), "1"),
        ("tiny-reads", ("reader.transfer_size", "100000"), "1048576"),
        ("read-ahead-amplification", ("reader.readahead", "normal"), "random"),
        ("no-overlap", ("reader.read_threads", "0"), "4"),
        ("serialised-reads", ("reader.in_flight_limit", "1"), "null"),
        ("random-where-sequential", ("reader.sample_shuffle", "seed"), "off"),
        ("one-file-many-workers", ("dataset.num_files_train", "4"), "8"),
        ("too-few-in-flight", ("reader.read_threads", "2"), "4"),
    ] {
        let (job, findings) = (with_fault(name), found(name));
        let key = before.0;
        let of = |options: &InferOptions| settings(&written(&job, &findings, options).unwrap())[key].clone();
        assert_eq!([of(&InferOptions::default()), of(&without(name))], [before.1, after], "{name}: {key}");
    }
}

/// 1000 reads of 100 bytes with 0.5 us between them, and a gap of 400 us: work on the sample as a whole, which stays.
#[test]
fn the_own_time_of_calls_that_go_away_goes_with_them() {
    let job = changed(whole_files(), |row| {
        (row.io.opens, row.io.stats) = Default::default();
        row.io.reads = calls(1000 * SAMPLES, SAMPLES * SIZE);
        row.read_sizes = counts(SIZE / 1000, 1000 * SAMPLES);
        row.sample_patterns = vec![pattern(&[SIZE / 1000; 64])];
        row.call_gaps = counts(500, 999 * SAMPLES);
        row.call_gaps.record_n(400_000, SAMPLES);
        row.think_times = counts(900_000, SAMPLES);
    });
    let time = |options: &InferOptions| -> f64 {
        let text = written(&job, &found("tiny-reads"), options).unwrap();
        settings(&text)["reader.preprocess_time"].parse().unwrap()
    };
    assert!((time(&InferOptions::default()) - 900e-6).abs() < 30e-6, "bins are 3 % wide");
    let left = time(&without("tiny-reads"));
    assert!((left - 400e-6).abs() < 50e-6, "{left}");
}

#[test]
fn every_fault_is_left_out_or_refused_with_a_reason() {
    for rule in RULES.iter().filter(|rule| rule.severity != model::observed::Severity::Note) {
        let (job, findings) = (with_fault(rule.name), found(rule.name));
        match written(&job, &findings, &without(rule.name)) {
            Ok(text) => {
                settings(&text);
                assert!(text.contains(&format!("# Left out: {}: ", rule.name)), "{text}");
            }
            Err(error @ InferError::NotFixable { .. }) => {
                let text = error.to_string();
                assert!(text.starts_with(&format!("{} cannot be left out", rule.name)), "{text}");
            }
            Err(other) => panic!("{}: {other}", rule.name),
        }
        let absent = written(&job, &Findings::default(), &without(rule.name));
        assert!(matches!(absent, Err(InferError::NotFixable { .. })), "{}", rule.name);
    }
    let unknown = written(&whole_files(), &found("tiny-reads"), &without("no-such-rule")).unwrap_err();
    assert!(
        unknown.to_string().contains("it is no fault") || unknown.to_string().contains("does not have it")
    );
}

/// Each number of a document in turn is an extreme one: the inference ends, and what it writes can be read.
#[test]
fn hostile_numbers_give_workloads_or_errors() {
    for job in [whole_files(), ranges(), streams()] {
        let document = serde_json::to_value(&job).unwrap();
        let mut places = Vec::new();
        numbers(&document, &mut String::new(), &mut places);
        assert!(places.len() > 100, "{}", places.len());
        for place in &places {
            for extreme in [0, 1, u64::from(u32::MAX), u64::MAX] {
                let mut hostile = document.clone();
                *hostile.pointer_mut(place).unwrap() = extreme.into();
                let Ok(hostile) = serde_json::from_value::<Observed>(hostile) else { continue };
                if let Ok(text) = written(&hostile, &Findings::default(), &InferOptions::default()) {
                    let read = spec::read(WorkloadSource { name: "job.yaml", text: &text }, &[]);
                    assert!(read.is_ok(), "{place} = {extreme}: {}\n{text}", read.unwrap_err());
                }
            }
        }
    }
}

/// JSON pointers of all numbers.
fn numbers(value: &serde_json::Value, at: &mut String, found: &mut Vec<String>) {
    let length = at.len();
    let mut visit = |key: &str, value: &serde_json::Value| {
        at.push('/');
        at.push_str(key);
        numbers(value, at, found);
        at.truncate(length);
    };
    match value {
        serde_json::Value::Number(_) => found.push(at.clone()),
        serde_json::Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| visit(&index.to_string(), item));
        }
        serde_json::Value::Object(fields) => fields.iter().for_each(|(key, field)| visit(key, field)),
        _ => {}
    }
}

/// A pipeline of tf.data, whose threads say nothing: three reads in flight, and steps that wait for this share.
fn pipeline(waits: f64) -> Observed {
    let mut job = changed(streams(), |row| {
        row.in_flight_ns = [0.5, 0.2, 0.2, 0.1, 0.000_1].map(Nanos::from_seconds).to_vec();
        row.blocked_all_ns = Nanos::from_seconds(waits);
        (row.think_times, row.fetch_times) = Default::default();
    });
    job.loaders[0] = LoaderRow { framework: TrainingFramework::Tensorflow, ..LoaderRow::default() };
    job
}

#[test]
fn pipelines_of_tensorflow_have_threads_and_time_by_what_shows() {
    let reads = ("reader.read_threads", "3");
    let text = has(&pipeline(0.0), &InferOptions::default(), &[reads, ("reader.data_loader", "tensorflow")]);
    assert!(text.contains("tf.data does not show its threads"), "{text}");
    assert_eq!(settings(&text)["reader.preprocess_time"], "0.0");
    // An epoch of 1 s has 64 samples: 3 x 15.6 ms, less file calls of 10 us each.
    let text = has(&pipeline(0.5), &InferOptions::default(), &[reads]);
    let each: f64 = settings(&text)["reader.preprocess_time"].parse().unwrap();
    assert!((0.0460..0.0469).contains(&each), "{each}");
}
