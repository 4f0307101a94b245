//! Tests of the rules: a healthy job, one fault at a time planted in its figures, and lookalikes without the fault.

mod alike;
mod faults;
mod healthy;
mod mappings;

use model::observed::{
    Calls, EpochFiles, EpochRow, Findings, IoCounts, LoaderRow, Observed, ProcessRow, RuleAnswer, StorageRow,
    TrainingFramework, WorkerRow,
};
use model::units::Nanos;

use super::{RULES, judge};

const MIB: u64 = 1 << 20;
const SAMPLES: u64 = 4000;
const BATCHES: u64 = 250;
const WORKERS: u64 = 4;
const FILE: u64 = 128 << 10;

fn seconds(value: f64) -> Nanos {
    Nanos::from_seconds(value)
}

fn calls(count: u64, bytes: u64, time: f64) -> Calls {
    Calls { count, bytes, ns: seconds(time), errors: 0 }
}

/// Three epochs of 10 s: 4,000 files of 128 KiB, four workers that stay alive and are far ahead.
fn healthy() -> Observed {
    let mut observed = Observed { wall_ns: seconds(33.0), ..Observed::default() };
    observed.coverage.marks = true;
    observed.host.cores = Some(8);
    observed.host.memory_bytes = Some(64 << 30);
    observed.host.shm_bytes = Some(8 << 30);
    observed.host.shm_used_bytes = Some(1 << 28);
    observed.host.open_files_limit = Some(1024);
    observed.host.refault_bytes = Some(0);
    observed.loaders.push(LoaderRow {
        framework: TrainingFramework::Pytorch,
        workers: WORKERS,
        persistent: true,
        worker_starts: WORKERS,
        ..LoaderRow::default()
    });
    observed.epochs = (1..=3).map(epoch).collect();
    observed.files.sampled = SAMPLES;
    observed.files.estimated = SAMPLES;
    observed.files.bytes = SAMPLES * FILE;
    observed.files.samples_per_file = Some(1.0);
    observed.storage.push(StorageRow { file_system: "ext4".into(), bytes: 1 << 30, ..StorageRow::default() });
    observed.processes.push(ProcessRow { pid: 10, rank: Some(0), threads: 8, ..ProcessRow::default() });
    observed.processes.extend((0..WORKERS).map(worker_process));
    observed
}

fn worker_process(worker: u64) -> ProcessRow {
    let mut process = ProcessRow {
        pid: 100 + worker as u32,
        parent: 10,
        rank: Some(0),
        worker: Some(worker),
        forked: true,
        parent_threads: Some(8),
        idle_ns: seconds(2.0),
        open_files_most: 1,
        ..ProcessRow::default()
    };
    process.data = io(3 * SAMPLES / WORKERS, 1.2 / WORKERS as f64);
    process.all = process.data;
    process
}

/// Calls of this many samples: open, two reads (the second at the end of the file), stat, close.
fn io(samples: u64, time: f64) -> IoCounts {
    IoCounts {
        opens: calls(samples, 0, time * 0.2),
        reads: calls(2 * samples, samples * FILE, time * 0.6),
        closes: calls(samples, 0, time * 0.1),
        stats: calls(samples, 0, time * 0.1),
        sequential: calls(samples, 0, 0.0),
        ..IoCounts::default()
    }
}

fn epoch(number: u64) -> EpochRow {
    let begin = 1.0 + (number - 1) as f64 * 10.5;
    let mut row = EpochRow {
        epoch: number,
        begin_ns: seconds(begin),
        end_ns: seconds(begin + 10.0),
        complete: true,
        batches: BATCHES,
        samples: Some(SAMPLES),
        start_ns: seconds(0.02),
        first_wait_ns: seconds(0.03),
        blocked_ns: seconds(0.02),
        blocked_all_ns: seconds(0.05),
        handover_ns: seconds(0.1),
        handover_all_ns: seconds(0.1),
        compute_ns: seconds(9.8),
        steady_batches: BATCHES - 8,
        steady_samples: SAMPLES - 128,
        steady_ns: seconds(9.6),
        io: io(SAMPLES, 0.4),
        issued_bytes: Some(if number == 1 { SAMPLES * FILE } else { 0 }),
        in_flight_ns: vec![seconds(9.7), seconds(0.25), seconds(0.05)],
        groups: 60,
        convoy_groups: 5,
        files: files(number),
        ..EpochRow::default()
    };
    row.read_sizes.record_n(FILE, SAMPLES);
    row.read_sizes.record_n(0, SAMPLES);
    row.wait_times.record_n(200_000, BATCHES);
    row.fetch_times.record_n(30_000_000, BATCHES);
    row.workers = (0..WORKERS).map(|worker| worker_row(worker, number)).collect();
    row
}

fn worker_row(worker: u64, epoch: u64) -> WorkerRow {
    WorkerRow {
        worker,
        pid: 100 + worker as u32,
        started: epoch == 1,
        fetches: BATCHES / WORKERS,
        samples: SAMPLES / WORKERS,
        fetch_ns: seconds(2.0),
        file_ns: seconds(0.1),
        io: io(SAMPLES / WORKERS, 0.1),
        cpu_ns: Some(seconds(1.8)),
        run_queue_ns: Some(seconds(0.05)),
        start_ns: Some(seconds(0.02)),
        ..WorkerRow::default()
    }
}

fn files(epoch: u64) -> EpochFiles {
    let later = epoch > 1;
    EpochFiles {
        sampled: SAMPLES,
        share: 1.0,
        asked_bytes: SAMPLES * FILE,
        process_distinct_bytes: SAMPLES * FILE,
        distinct_bytes: SAMPLES * FILE,
        pairs: SAMPLES,
        opens: SAMPLES,
        opens_most: 1,
        order_correlation: later.then_some(0.01),
        order_places: if later { SAMPLES } else { 0 },
        same_reader_share: later.then_some(0.26),
        same_reader_chance: later.then_some(0.25),
        repeated_places: later.then_some(1.0),
        ..EpochFiles::default()
    }
}

/// The healthy job with waits of half of the time that no figure explains: loading takes 8 of 10 s of each worker,
/// 40 % of it in calls on files, 30 % of it on a CPU.
fn starving() -> Observed {
    let mut observed = healthy();
    each(&mut observed, |row| {
        row.blocked_ns = seconds(4.8);
        row.blocked_all_ns = seconds(5.0);
        row.compute_ns = seconds(4.8);
        row.io = io(SAMPLES, 12.8);
        row.in_flight_ns = [3.0, 4.0, 2.0, 1.0].map(seconds).to_vec();
        for worker in &mut row.workers {
            worker.fetch_ns = seconds(8.0);
            worker.file_ns = seconds(3.2);
            worker.io = io(SAMPLES / WORKERS, 3.2);
            worker.cpu_ns = Some(seconds(2.4));
        }
    });
    observed
}

fn each(observed: &mut Observed, change: impl Fn(&mut EpochRow)) {
    observed.epochs.iter_mut().for_each(change);
}

fn later(observed: &mut Observed, change: impl Fn(&mut EpochRow)) {
    observed.epochs.iter_mut().filter(|row| row.epoch > 1).for_each(change);
}

/// Names of faults, the most important first.
fn faults(observed: &Observed) -> Vec<String> {
    judge(observed).faults().map(|finding| finding.name.clone()).collect()
}

fn outcome(findings: &Findings, name: &str) -> RuleAnswer {
    findings.rules.iter().find(|rule| rule.name == name).unwrap_or_else(|| panic!("no rule {name}")).outcome
}

/// The fault is first, and no other fault is listed.
#[track_caller]
fn only(name: &str, observed: &Observed) {
    assert_eq!(faults(observed), [name], "{:#?}", judge(observed).findings);
}

#[track_caller]
fn no_fault(observed: &Observed) {
    assert_eq!(faults(observed), Vec::<String>::new(), "{:#?}", judge(observed).findings);
}

/// The rule does not hold.
#[track_caller]
fn not(name: &str, observed: &Observed) {
    let findings = judge(observed);
    assert_eq!(outcome(&findings, name), RuleAnswer::NotFound, "{:#?}", findings.findings);
}

#[test]
fn rules_have_names_of_their_own_and_all_texts() {
    let mut names: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), RULES.len());
    for (at, rule) in RULES.iter().enumerate() {
        for text in [rule.about, rule.explanation, rule.change, rule.check] {
            assert!(text.ends_with('.'), "{}: {text}", rule.name);
            assert!(!text.contains("  "), "{}: {text}", rule.name);
        }
        assert!(!rule.title.ends_with('.'), "{}", rule.title);
        for cause in rule.explained_by {
            let before = RULES.iter().take(at).any(|rule| rule.name == *cause);
            assert!(before, "{cause} explains {} and is judged later", rule.name);
        }
    }
}

#[test]
fn every_rule_answers_once() {
    let findings = judge(&healthy());
    let names: Vec<&str> = findings.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, RULES.iter().map(|rule| rule.name).collect::<Vec<_>>());
    assert!(findings.rules.iter().all(|rule| !rule.reason.is_empty()), "{:#?}", findings.rules);
}

#[test]
fn the_time_of_an_epoch_is_divided() {
    let time = judge(&healthy()).time.unwrap();
    assert_eq!(time.epochs, 3);
    let parts = time.start + time.blocked + time.handover + time.compute + time.checkpoint + time.other;
    assert!((parts - time.wall).abs() < 1e-6 && (time.wall - 10.0).abs() < 1e-6, "{time:?}");
    assert!((time.start - 0.05).abs() < 1e-6 && (time.compute - 9.8).abs() < 1e-6, "{time:?}");
}

#[test]
fn without_marks_there_are_no_waits() {
    let mut observed = starving();
    observed.coverage.marks = false;
    observed.loaders.clear();
    let findings = judge(&observed);
    for name in ["not-input-bound", "decode-bound", "storage-bound", "convoy", "workers-restarted"] {
        assert_eq!(outcome(&findings, name), RuleAnswer::NotMeasurable, "{name}");
    }
    assert_eq!(findings.time, None);
    assert!(findings.limits.iter().any(|limit| limit.contains("marks")), "{:?}", findings.limits);
}

#[test]
fn nothing_observed_is_no_fault() {
    no_fault(&Observed::default());
}
