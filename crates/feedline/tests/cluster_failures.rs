//! Processes of a cluster that end, stop, fail or lose their network: the others end in time, process 0 names the
//! process, and there is no result that looks complete.

use std::time::Duration;

use rustix::process::Signal;

use crate::cluster::hosts::Hosts;
use crate::cluster::launch::{Mpi, send};
use crate::cluster::{FOR_8_RANKS, LONG, LONG_SETTINGS, long_run, with_data};

/// How long all processes may take to end: the stall timeout of these runs, and 15 s.
const LIMIT: Duration = Duration::from_secs(3 + 15);

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[test]
fn a_process_that_is_killed_is_named() {
    for mpi in Mpi::ALL {
        let dir = with_data();
        let job = long_run(mpi, &dir, 3);
        let processes = job.processes.clone();
        send(processes.worker(1).unwrap(), Signal::KILL);
        let done = job.wait_for(LIMIT).exits(4).one_error();
        let named = format!("process 1 on {} left before the run was complete", host());
        assert_eq!(done.says(&named).says("epoch 1 (train)").stdout, "");
        assert!(processes.are_gone_within(LIMIT), "{mpi:?}");
        assert!(dir.results().is_empty());
        dir.has_no_leftovers();
    }
}

#[test]
fn a_process_that_is_stopped_is_named() {
    for mpi in [Mpi::OpenMpi4, Mpi::Mpich] {
        let dir = with_data();
        let job = long_run(mpi, &dir, 3);
        let processes = job.processes.clone();
        send(processes.worker(2).unwrap(), Signal::STOP);
        let done = job.wait_for(LIMIT).exits(4).one_error();
        done.says(&format!("process 2 on {} did not respond for 3.", host()));
        assert!(processes.are_gone_within(LIMIT), "{mpi:?}");
        assert!(dir.results().is_empty());
    }
}

#[test]
fn without_process_0_process_1_reports() {
    let dir = with_data();
    let job = long_run(Mpi::Mpich, &dir, 3);
    send(job.processes.worker(0).unwrap(), Signal::STOP);
    let done = job.wait_for(LIMIT).one_error();
    let done = done.says(&format!("process 0 on {} did not respond for 3.", host()));
    if done.code() == Some(0) {
        done.fail("the launcher reports success");
    }
    assert!(dir.results().is_empty());
}

/// The launchers of Open MPI do not end when the network of a host is down, so only the processes are watched.
#[test]
fn a_host_that_loses_its_network_is_named() {
    let dir = with_data();
    let hosts = Hosts::new(&dir, 3);
    let mut job = hosts.feedline(Mpi::OpenMpi4, 3, &LONG).set(&LONG_SETTINGS).start();
    job.until_threads(0..3, "reader");
    hosts.cut_off(2);
    assert!(job.processes.are_gone_within(LIMIT));
    job.processes.kill_all();
    job.wait().says(&format!("process 2 on {} did not respond for 3.", hosts.name(2)));
    assert!(dir.results().is_empty());
}

#[test]
fn an_error_of_one_process_is_shown_once_with_its_host() {
    let dir = with_data();
    let args = ["run", "w.yaml", "--quiet", "--ranks", "8", "--json"];
    let elsewhere = [&args[..], &["--data-dir", "elsewhere"]].concat();
    let feedline = env!("CARGO_BIN_EXE_feedline");
    let settings = ["--set", FOR_8_RANKS[0]];
    let args = [&args[..], &settings].concat();
    let elsewhere = [&elsewhere[..], &settings].concat();
    for mpi in Mpi::ALL {
        let done = mpi.two_programs(&dir, &args, feedline, &elsewhere).run().exits(3).one_error();
        let named = format!("process 1 on {}", host());
        let json = done.says(&named).json();
        assert!(json["error"].as_str().unwrap().contains(&named), "{json}");
        assert!(json["remedy"].as_str().unwrap().contains("make the same data set available"), "{json}");
        assert!(dir.results().is_empty());
    }
}
