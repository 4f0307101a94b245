//! Commands that a launcher of MPI starts in several processes: which of them print, what they do together, and how all
//! of them end.

pub(crate) mod hosts;
pub(crate) mod launch;

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

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

/// What a run did, without what depends on time.
pub(crate) fn work(dir: &Dir, result: &str) -> Value {
    let plan = dir.json(&format!("{result}/summary.json"))["feedline"]["plan_digest"].clone();
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
    json!({"plan": plan, "rows": rows})
}

/// Runs 8 ranks in one process, and evenly and unevenly in several.
fn same_work(mpi: Mpi) {
    let dir = with_data();
    let args = ["run", "w.yaml", "--quiet", "--json", "--ranks", "8", "--results-dir"];
    dir.feedline(&args).args(&["r1", "--no-calibration"]).set(&FOR_8_RANKS).run().ran();
    let alone = work(&dir, &dir.results_below("r1")[0]);
    assert_eq!(alone["rows"].as_array().unwrap().len(), 2 * 8);
    for (processes, shares) in [(2, None), (4, None), (8, None), (2, Some("5,3"))] {
        let results = format!("r{processes}{}", shares.unwrap_or_default());
        let shares = shares.map(|shares| format!("--ranks-per-process={shares}"));
        let more: Vec<&str> = [results.as_str()].into_iter().chain(shares.as_deref()).collect();
        let done = mpi.feedline(&dir, processes, &[&args, &more[..]].concat()).set(&FOR_8_RANKS).run().ran();
        let summary = done.json();
        assert!(!done.stderr.contains("error"), "{}", done.stderr);
        for rule in ["complete", "exactly-once", "bytes-as-planned", "errors", "cache"] {
            assert_eq!(outcome(&summary, rule), "pass", "{rule} with {processes} processes");
        }
        assert_eq!(work(&dir, &dir.results_below(&results)[0]), alone, "{processes} processes {shares:?}");
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
    Mpi::Mpich.feedline(&dir, 3, &args).set(&FOR_8_RANKS).run().ran().prints("w: 3 ranks x 2 readers");
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
    for args in [["run", "w.yaml", "--agreement=pigeon"], ["run", "w.yaml", "--ranks-per-process=x"]] {
        let done = Mpi::Mpich.feedline(&dir, 3, &args).run().exits(2).one_error();
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
        job.wait().exits(4).says("error: killed by SIGKILL").one_error();
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
