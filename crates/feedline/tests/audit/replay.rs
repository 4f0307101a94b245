//! From a job to its replay: the inferred workload runs, and does the same work as the job.

use serde_json::Value;

use super::{PYTHON, audit, script};
use crate::util::{Dir, Done};

const SAMPLES: u64 = 80;
const SIZE: u64 = 5000;
const EPOCHS: u64 = 3;

/// Audits one of the jobs of replay.py, and returns the result folder.
#[track_caller]
fn audited(dir: &Dir, kind: &str) -> String {
    let script = script("audit/replay.py");
    let data = dir.path("data");
    let data = data.to_str().unwrap();
    dir.command(PYTHON.as_ref(), &["-B", &script, "prepare", data]).run().exits(0);
    audit(dir, &[PYTHON, "-B", &script, kind, data, "2"]).run().exits(0);
    let results = dir.results_below("results");
    assert_eq!(results.len(), 1);
    results[0].clone()
}

#[track_caller]
fn inferred(dir: &Dir, result: &str, flags: &[&str]) -> String {
    let result = dir.path(result);
    let done = dir.feedline(&["infer", result.to_str().unwrap()]).args(flags).run().exits(0);
    dir.write("job.yaml", &done.stdout);
    done.stdout
}

/// Runs the inferred workload. It measures no storage, so its verdict may be any.
#[track_caller]
fn replayed(dir: &Dir) -> String {
    let flags = ["run", "job.yaml", "--quiet", "--no-calibration", "--results-dir", "replays"];
    dir.feedline(&flags).run().ran();
    let results = dir.results_below("replays");
    assert_eq!(results.len(), 1);
    results[0].clone()
}

/// Rows of training epochs of a ledger.
fn rows(dir: &Dir, result: &str) -> Vec<Value> {
    let ledger = dir.json(&format!("{result}/ledger.json"));
    let rows = ledger["ranks"].as_array().unwrap().iter().filter(|row| row["phase"] == "train");
    let rows: Vec<Value> = rows.map(|row| row["seen"].clone()).collect();
    assert_eq!(rows.len() as u64, EPOCHS);
    rows
}

/// The same figure of each epoch.
#[track_caller]
fn every_epoch(rows: &[Value], key: &str) -> u64 {
    let values: Vec<u64> = rows.iter().map(|row| row[key].as_u64().unwrap_or(0)).collect();
    assert!(values.iter().all(|value| *value == values[0]), "{key}: {values:?}");
    values[0]
}

#[track_caller]
fn same_work(dir: &Dir, job: &str, replay: &str) -> [u64; 4] {
    let (job, replay) = (rows(dir, job), rows(dir, replay));
    ["steps", "samples_delivered", "bytes_read", "reads"].map(|key| {
        let both = [&job, &replay].map(|rows| every_epoch(rows, key));
        assert_eq!(both[0], both[1], "{key}: job, replay");
        both[0]
    })
}

/// Sizes of the reads of a replay, by its trace.
#[track_caller]
fn sizes_of_reads(dir: &Dir) -> Vec<u64> {
    let flags =
        ["run", "job.yaml", "--quiet", "--no-calibration", "--results-dir", "traced", "--trace", "t.pfw"];
    dir.feedline(&flags).run().ran();
    let trace = dir.read("t.pfw");
    let reads = trace.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut sizes: Vec<u64> = reads
        .filter(|event| event["name"] == "read" && event["cat"] == "POSIX")
        .filter_map(|event| event["args"]["bytes"].as_u64())
        .collect();
    sizes.sort_unstable();
    sizes
}

#[test]
fn whole_files_in_several_requests() {
    let dir = Dir::new();
    let job = audited(&dir, "whole");
    let workload = inferred(&dir, &job, &[]);
    assert!(
        workload.contains("requests: [1000, 1000, rest]")
            || workload.contains("requests: [1000, 1000, 3000]")
    );
    let replay = replayed(&dir);
    assert_eq!(same_work(&dir, &job, &replay), [10, SAMPLES, SAMPLES * SIZE, 3 * SAMPLES]);
    // In the first epoch, workers open files of their own when they start.
    let opens = [&job, &replay].map(|result| every_epoch(&rows(&dir, result)[1..], "opens"));
    assert_eq!(opens, [SAMPLES, SAMPLES]);
    let each = (SAMPLES * EPOCHS) as usize;
    let expected = [vec![1000; 2 * each], vec![3000; each]].concat();
    assert_eq!(sizes_of_reads(&dir), expected);
}

#[test]
fn ranges_of_files_that_stay_open() {
    let dir = Dir::new();
    let job = audited(&dir, "ranges");
    inferred(&dir, &job, &[]);
    let replay = replayed(&dir);
    assert_eq!(same_work(&dir, &job, &replay), [10, SAMPLES, SAMPLES * SIZE, SAMPLES]);
    let compared = dir.feedline(&["compare", &job, &replay, "--json"]).run().exits(0).json();
    let rate = &compared["figures"]["samples_per_second"];
    assert!(rate["a"].as_f64() > Some(0.0) && rate["b"].as_f64() > Some(0.0), "{compared}");
    assert_eq!([&compared["a"]["kind"], &compared["b"]["kind"]], ["audit", "run"]);
}

#[test]
fn a_catalog_reads_the_files_of_the_job() {
    let dir = Dir::new();
    let job = audited(&dir, "whole");
    let folder = dir.path("data/whole");
    dir.feedline(&["catalog", folder.to_str().unwrap(), "--suffix", ".bin", "--output", "job.catalog"])
        .run()
        .exits(0);
    let before = dir.tree("data");
    inferred(&dir, &job, &["--catalog", "job.catalog"]);
    let replay = replayed(&dir);
    assert_eq!(same_work(&dir, &job, &replay), [10, SAMPLES, SAMPLES * SIZE, 3 * SAMPLES]);
    assert_eq!(dir.tree("data"), before, "the files of the job are as they were");
    assert!(!dir.path("replay-data").exists(), "nothing is generated");
}

#[test]
fn only_faults_of_the_job_can_be_left_out() {
    let dir = Dir::new();
    let job = audited(&dir, "whole");
    let refused = |name: &str| -> Done { dir.feedline(&["infer", &job, "--fixed", name]).run() };
    for name in ["tiny-reads", "no-such-finding"] {
        refused(name).exits(3).one_error().says(&format!("--fixed {name}"));
    }
}
