//! Commands that a launcher of MPI starts in several processes: which of them print, and how all of them end.

mod hosts;
mod launch;

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::util::{Dir, SMALL};
use hosts::Hosts;
use launch::{Mpi, RunningJob, send};

/// How long processes may take to end after the job has ended.
const ENDING: Duration = Duration::from_secs(10);

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
    refused.says("--ranks-per-process names 2 processes, but 1 were started");
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
