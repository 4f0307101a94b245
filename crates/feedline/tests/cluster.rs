//! Commands that a launcher of MPI starts in several processes: which of them print, what they do together, and how all
//! of them end.

pub(crate) mod hosts;
pub(crate) mod launch;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::checkpoint_kills::{manifest, standing};
use crate::util::{Dir, SMALL, outcome};
use hosts::Hosts;
use launch::{Mpi, RunningJob, send};

/// How long processes may take to end after the job has ended.
const ENDING: Duration = Duration::from_secs(10);

/// Settings with which `SMALL` has work for 8 ranks.
pub(crate) const FOR_8_RANKS: [&str; 2] = ["dataset.num_files_train=96", "train.computation_time=0.005"];

/// A data set for these settings.
pub(crate) fn with_data() -> Dir {
    let dir = Dir::small();
    dir.feedline(&["generate", "w.yaml", "--quiet"]).set(&FOR_8_RANKS).run().exits(0);
    dir
}

/// Training with evaluation and checkpoints that is valid on 8 ranks if the machine keeps up: steps are longer than
/// most delays of the scheduler, one batch is read in advance, and the metric window has 20 steps for each of the two
/// times that the queue is filled, before the epoch and at the checkpoint in its middle.
const SAVING: &str = "
framework: pytorch
workflow: {train: true, evaluation: true, checkpoint: true}
model:
  name: tiny
  type: transformer
  num_layers: 2
  parallelism: {zero_stage: 3}
  transformer: {vocab_size: 1000, hidden_size: 128, ffn_hidden_size: 256, num_attention_heads: 8, num_kv_heads: 8}
dataset:
  format: npz
  data_folder: data
  num_files_train: 352
  num_files_eval: 32
  num_samples_per_file: 1
  record_length_bytes: 4096
reader: {data_loader: pytorch, batch_size: 1, read_threads: 1, prefetch_size: 1, file_shuffle: seed}
train: {epochs: 2, computation_time: 0.04}
evaluation: {eval_time: 0.04}
checkpoint: {checkpoint_folder: ck, steps_between_checkpoints: 22, keep_last: 16, fsync: true}
";

/// A folder with that workload as `w.yaml`, and its data set.
pub(crate) fn with_saving() -> Dir {
    let dir = Dir::new();
    dir.write("w.yaml", SAVING);
    dir.feedline(&["generate", "w.yaml", "--quiet"]).run().exits(0);
    dir
}

/// What a run did, without what depends on time: the plan, the samples, and the checkpoints in this folder.
fn work(dir: &Dir, result: &str, checkpoints: &str) -> Value {
    let plan = dir.json(&format!("{result}/summary.json"))["feedline"]["plan_digest"].clone();
    let checkpoints = saved_files(dir, checkpoints);
    json!({"plan": plan, "rows": rows(dir, result), "checkpoints": checkpoints})
}

/// What each rank did in each phase, without what depends on time.
pub(crate) fn rows(dir: &Dir, result: &str) -> Vec<Value> {
    let ledger = dir.json(&format!("{result}/ledger.json"));
    let rows = ledger["ranks"].as_array().unwrap().iter().map(|row| {
        let counts = [
            "steps",
            "samples_delivered",
            "bytes_planned",
            "bytes_read",
            "opens",
            "reads",
            "digest",
            "order",
        ];
        let seen = |key: &str| row["seen"][key].clone();
        json!([row["epoch"], row["phase"], row["index"], counts.map(seen)])
    });
    let mut rows: Vec<Value> = rows.collect();
    rows.sort_by_key(Value::to_string);
    rows
}

/// The files of all checkpoints with their sizes, according to their manifests, which `standing` compares with the
/// files. Their content differs between runs.
fn saved_files(dir: &Dir, folder: &str) -> Vec<Value> {
    let lists = standing(&dir.path(folder)).into_iter().map(|one| {
        let name = format!("global_epoch{}_step{}", one.epoch, one.step);
        let list = manifest(&dir.path(folder).join(&name)).unwrap();
        let files = list["files"].as_array().unwrap().iter();
        let files = files.map(|file| json!([file["name"], file["rank"], file["bytes"]]));
        json!([name, list["geometry"], files.collect::<Vec<Value>>()])
    });
    let mut lists: Vec<Value> = lists.collect();
    lists.sort_by_key(Value::to_string);
    lists
}

/// Restores the newest checkpoints in one process, which compares every byte with what it would have written itself.
pub(crate) fn restores(dir: &Dir, ranks: &str, folder: &str, count: usize) {
    let settings = [
        "workflow.train=false",
        "workflow.evaluation=false",
        "checkpoint.burst_folder=fast",
        "checkpoint.num_checkpoints_write=0",
        &format!("checkpoint.num_checkpoints_read={count}"),
    ];
    let args = [
        "run",
        "w.yaml",
        "--json",
        "--ranks",
        ranks,
        "--checkpoint-dir",
        folder,
        "--results-dir",
        "restored",
    ];
    let summary = dir.feedline(&args).set(&settings).run().json();
    assert_eq!(outcome(&summary, "restored-right"), "pass");
    let restored = summary["feedline"]["checkpoint"]["restores"].as_array().unwrap();
    let seen: BTreeSet<String> = restored.iter().map(|one| one["moment"].to_string()).collect();
    assert_eq!(seen.len(), count, "{restored:?}");
    for one in restored {
        assert!(one["failure"].is_null() && one["verified_bytes"].as_u64() > Some(0), "{one}");
    }
}

/// Runs 8 ranks in one process, and evenly and unevenly in several.
fn same_work(mpi: Mpi) {
    let dir = with_saving();
    let run = ["run", "w.yaml", "--quiet", "--json", "--ranks", "8", "--results-dir"];
    dir.feedline(&run).args(&["r1", "--checkpoint-dir", "ck1"]).run().valid_if_on_time();
    let alone = work(&dir, &dir.results_below("r1")[0], "ck1");
    assert_eq!(alone["rows"].as_array().unwrap().len(), 2 * 2 * 8);
    assert_eq!(alone["checkpoints"].as_array().unwrap().len(), 2 * 2);
    let shapes: [(u64, &[&str]); 5] =
        [(2, &[]), (4, &[]), (8, &[]), (2, &["--ranks-per-process=5,3"]), (2, &["--agreement=mpi"])];
    for (processes, more) in shapes {
        let [results, checkpoints] = ["r", "ck"].map(|name| format!("{name}{processes}{}", more.concat()));
        let place = [&results, "--checkpoint-dir", &checkpoints];
        let done = mpi.feedline(&dir, processes, &[&run[..], &place, more].concat()).run();
        assert!(!done.stderr.contains("error"), "{}", done.stderr);
        done.valid_if_on_time();
        let there = work(&dir, &dir.results_below(&results)[0], &checkpoints);
        assert_eq!(there, alone, "{processes} processes {more:?}");
        restores(&dir, "8", &checkpoints, 2 * 2);
    }
}

#[test]
fn processes_do_the_same_work_as_one_under_open_mpi_4() {
    same_work(Mpi::OpenMpi4);
}

#[test]
fn processes_do_the_same_work_as_one_under_open_mpi_5() {
    same_work(Mpi::OpenMpi5);
}

#[test]
fn processes_do_the_same_work_as_one_under_mpich() {
    same_work(Mpi::Mpich);
}

#[test]
fn the_result_names_agreement_over_mpi() {
    let dir = with_data();
    let args = ["run", "w.yaml", "--quiet", "--ranks", "4", "--no-calibration", "--agreement", "mpi"];
    let done = Mpi::Mpich.feedline(&dir, 2, &args).set(&FOR_8_RANKS).run().ran();
    let ledger = dir.json(&format!("{}/ledger.json", dir.result()));
    let transports = ledger["conditions"]["transports"].to_string();
    if !transports.contains("MPI") || transports.contains("TCP") {
        done.fail(&format!("the result does not name the transport: {transports}"));
    }
}

#[test]
fn without_ranks_each_process_plays_one() {
    let dir = with_data();
    let args = ["run", "w.yaml", "--quiet", "--no-calibration"];
    Mpi::Mpich
        .feedline(&dir, 3, &args)
        .set(&FOR_8_RANKS)
        .run()
        .ran()
        .prints("w: 3 ranks (3 processes on 1 node) x 2 readers");
}

/// A run of several seconds.
pub(crate) fn long_run<'a>(mpi: Mpi, dir: &'a Dir, processes: u64) -> RunningJob<'a> {
    let mut job = mpi.feedline(dir, processes, &LONG).set(&LONG_SETTINGS).start();
    job.until_threads(0..processes, "reader");
    job
}

pub(crate) const LONG: [&str; 8] =
    ["run", "w.yaml", "--quiet", "--no-calibration", "--ranks", "6", "--stall-timeout", "3s"];
pub(crate) const LONG_SETTINGS: [&str; 3] =
    ["dataset.num_files_train=96", "train.computation_time=0.2", "train.epochs=10"];

#[test]
fn a_signal_to_the_launcher_leaves_an_incomplete_result() {
    for mpi in Mpi::ALL {
        for signal in [Signal::TERM, Signal::INT] {
            let dir = with_data();
            let job = long_run(mpi, &dir, 2);
            let processes = job.processes.clone();
            std::thread::sleep(Duration::from_millis(500));
            job.signal(signal);
            let done = job.wait();
            if done.code() == Some(0) {
                done.fail("the launcher reports success");
            }
            let results = dir.results();
            if results.len() != 1 {
                done.fail(&format!("{mpi:?}, {signal:?}: expected one result, found {results:?}"));
            }
            let summary = dir.json(&format!("{}/summary.json", results[0]));
            assert_eq!(summary["feedline"]["verdict"]["status"], "incomplete", "{mpi:?}, {signal:?}");
            assert!(processes.are_gone_within(ENDING), "{mpi:?}, {signal:?}");
        }
    }
}

#[test]
fn a_run_on_two_hosts_has_both_in_its_result() {
    let dir = with_data();
    let hosts = Hosts::new(&dir, 2);
    for mpi in Mpi::ALL {
        let results = format!("{mpi:?}");
        let args =
            ["run", "w.yaml", "--quiet", "--no-calibration", "--ranks", "8", "--results-dir", &results];
        hosts.feedline(mpi, 2, &args).set(&FOR_8_RANKS).run().ran();
        let ledger = dir.json(&format!("{}/ledger.json", dir.results_below(&results)[0]));
        let of = |member: &str| ledger["conditions"]["members"][member]["host"].clone();
        assert_eq!([of("0"), of("1")], [hosts.name(0), hosts.name(1)], "{mpi:?}");
    }
}

#[test]
fn a_command_without_data_runs_in_process_0_only() {
    let dir = Dir::new();
    let alone = dir.feedline(&["workloads"]).run().exits(0);
    for mpi in Mpi::ALL {
        let done = mpi.feedline(&dir, 3, &["workloads"]).run().exits(0).silent();
        assert_eq!(done.stdout, alone.stdout, "{mpi:?}");
    }
}

#[test]
fn a_usage_error_is_printed_once() {
    let dir = Dir::small();
    // MPICH's launcher may kill processes that have not ended when the first one has, and then has a code of its own.
    for args in [["run", "w.yaml", "--agreement=pigeon"], ["run", "w.yaml", "--ranks-per-process=x"]] {
        let done = Mpi::OpenMpi4.feedline(&dir, 3, &args).run().exits(2).one_error();
        assert_eq!(done.stdout, "");
    }
}

#[test]
fn shares_must_match_the_processes() {
    let dir = Dir::small();
    let refused = dir.feedline(&["run", "w.yaml", "--ranks-per-process", "5,3"]).run().exits(2).one_error();
    refused.says("--ranks-per-process has 2 numbers, but the number of processes is 1");
}

/// A command of three processes of which process 0 waits for a workload that is never written.
fn waiting<'a>(mpi: Mpi, dir: &'a Dir) -> RunningJob<'a> {
    let mut job = mpi.feedline(dir, 3, &["plan", "fifo.yaml"]).start();
    job.until_threads(0..1, "waits");
    job
}

#[test]
fn a_signal_to_the_launcher_ends_the_job() {
    let dir = Dir::new();
    dir.command(Path::new("mkfifo"), &["fifo.yaml"]).run().exits(0);
    for mpi in Mpi::ALL {
        let job = waiting(mpi, &dir);
        let processes = job.processes.clone();
        job.signal(Signal::TERM);
        let done = job.wait();
        if done.code() == Some(0) {
            done.fail("the launcher reports success");
        }
        assert!(processes.are_gone_within(ENDING), "{mpi:?}");
    }
}

#[test]
fn a_worker_that_is_killed_ends_the_job() {
    let dir = Dir::new();
    dir.command(Path::new("mkfifo"), &["fifo.yaml"]).run().exits(0);
    for mpi in Mpi::ALL {
        let job = waiting(mpi, &dir);
        let processes = job.processes.clone();
        assert!(processes.supervisor(0).is_some());
        send(processes.worker(0).unwrap(), Signal::KILL);
        job.wait().exits(4).says(": killed by SIGKILL").one_error();
        assert!(processes.are_gone_within(ENDING), "{mpi:?}");
    }
}

#[test]
fn hosts_have_names_and_folders_of_their_own() {
    let dir = Dir::new();
    let hosts = Hosts::new(&dir, 2);
    for host in [0, 1] {
        let folder = hosts.own_folder(host, "local");
        let name = format!("workload-on-{}.yaml", hosts.name(host));
        dir.write(&format!("{folder}/{name}"), SMALL);
    }
    let file = format!("local/workload-on-{}.yaml", hosts.name(0));
    for mpi in Mpi::ALL {
        hosts.feedline(mpi, 2, &["plan", &file]).run().exits(0).prints("workload-on-");
    }
    let file = format!("local/workload-on-{}.yaml", hosts.name(1));
    hosts.feedline(Mpi::Mpich, 2, &["plan", &file]).run().exits(2).one_error();
}
