//! Signals that are passed on, signals that end the job, and processes that outlive it.

use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::{PYTHON, audit, compiled, is_named, observed, same};
use crate::util::Dir;

/// Ends by itself if no signal comes.
const WAITS: &str = "import pathlib, signal, sys, time
def got(number, _):
    print('got', number, flush=True)
    sys.exit(40)
signal.signal(getattr(signal, sys.argv[1]), got)
pathlib.Path('ready').touch()
time.sleep(60)";

#[test]
fn signals_to_feedline_reach_the_job_once() {
    for (name, signal) in [
        ("SIGTERM", Signal::TERM),
        ("SIGINT", Signal::INT),
        ("SIGHUP", Signal::HUP),
        ("SIGUSR1", Signal::USR1),
    ] {
        let dir = Dir::new();
        let mut running = audit(&dir, &[PYTHON, "-c", WAITS, name]).start();
        let ready = dir.path("ready");
        running.until("a job that is ready", || ready.exists());
        running.signal(signal);
        let done = running.wait().exits(40);
        assert_eq!(done.stdout, format!("got {}\n", signal.as_raw()));
    }
}

#[test]
fn a_signal_ends_a_job_without_a_handler() {
    let dir = Dir::new();
    let program = "import pathlib, time; pathlib.Path('ready').touch(); time.sleep(60)";
    let mut running = audit(&dir, &[PYTHON, "-c", program]).start();
    let ready = dir.path("ready");
    running.until("a job that is ready", || ready.exists());
    running.signal(Signal::TERM);
    let done = running.wait().exits(128 + 15);
    assert_eq!(observed(&dir, &done)["exit"]["signal"], 15);
}

#[test]
fn a_job_that_a_signal_ends_has_the_exit_code_of_a_shell() {
    for signal in [6, 9, 11, 15] {
        let program = format!("import os; print('x', flush=True); os.kill(os.getpid(), {signal})");
        assert_eq!(same(&Dir::new(), &[PYTHON, "-c", &program], &[])["exit"]["signal"], signal);
    }
}

/// Ends the processes that a job left behind.
fn end(seen: &serde_json::Value, command: &str) {
    for row in seen["coverage"]["unseen"].as_array().unwrap() {
        if row["command"].as_str().unwrap().contains(command) {
            let pid = Pid::from_raw(row["pid"].as_i64().unwrap() as i32).unwrap();
            rustix::process::kill_process(pid, Signal::KILL).unwrap();
        }
    }
}

#[test]
fn a_process_that_outlives_the_job_does_not_hold_it_back() {
    let dir = Dir::new();
    dir.write("x", "text");
    let busy = compiled(&dir, "busy.c", "gcc", &["-lpthread"]);
    for left in [format!("{busy} x"), "setsid sleep 100".to_owned()] {
        let dir = Dir::new();
        dir.write("x", "text");
        let shell = format!("{left} >/dev/null 2>&1 & sleep 0.3; echo done; exit 3");
        let mut running = audit(&dir, &["sh", "-c", &shell]).start();
        // A bound for a hang, far beyond what it takes.
        assert!(running.ends_within(Duration::from_secs(60)), "feedline waits for {left}");
        let done = running.wait().exits(3);
        let seen = observed(&dir, &done);
        let name = left.rsplit('/').next().unwrap().trim_start_matches("setsid ");
        end(&seen, name);
        assert_eq!(done.stdout, "done\n");
        is_named(&seen, name, "still running");
    }
}
