//! Storage that does not respond, and signals: every command ends in time, with a report or a message, the documented
//! exit code, and without a result that looks complete. `scripts/attack hangs signals` has more cases.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::util::{Dir, Running, worker_of};

/// Time limit for a command to end after its storage stops responding, with `--stall-timeout 3s`.
const LIMIT: Duration = Duration::from_secs(15);

/// A command, the system calls of which the first in each thread hangs, and the name in the report.
const HANGS: [(&str, &str, &str); 10] = [
    ("run w.yaml", "fsync,fdatasync,syncfs", "sync"),
    ("run w.yaml", "mkdir,mkdirat", "mkdir "),
    ("run w.yaml", "rename,renameat,renameat2", "rename "),
    ("report feedline-results/w -o page.html", "getdents64", "getdents "),
    ("run w.yaml", "statx", "stat "),
    ("generate w.yaml --overwrite", "fsync,fdatasync,syncfs", "sync"),
    ("generate w.yaml --overwrite", "rename,renameat,renameat2", "rename "),
    ("validate feedline-results/w", "getdents64", "getdents "),
    ("compare feedline-results/w feedline-results/w", "statx", "stat "),
    ("catalog data", "statx", "stat "),
];

/// Starts a command under strace, which delays the calls for longer than the test waits. The tracer is a separate
/// process (-D), and the output goes to a file, so that the test need not wait for either.
fn start_hanging<'a>(dir: &'a Dir, command: &str, calls: &str) -> Running<'a> {
    let line = format!(
        "exec strace -D -f -qq -o trace -e trace={calls} -e inject={calls}:delay_enter=25s:when=1 \
         {} {command} --stall-timeout 3s > output 2>&1",
        env!("CARGO_BIN_EXE_feedline")
    );
    dir.command(Path::new("sh"), &["-c", &line]).start()
}

#[test]
fn a_call_that_does_not_return_ends_every_command_with_a_report() {
    let prepared = HANGS.map(|row| (Dir::small_with_data(), row));
    for (dir, _) in &prepared {
        dir.feedline(&["run", "w.yaml", "--quiet", "--no-calibration"]).run().ran();
    }
    // A few at a time, because an overloaded host would exceed the timeouts.
    for some in prepared.chunks(5) {
        let before: Vec<_> = some.iter().map(|(dir, _)| dir.results()).collect();
        let started: Vec<_> =
            some.iter().map(|(dir, (command, calls, _))| start_hanging(dir, command, calls)).collect();
        for (running, ((dir, (.., word)), before)) in started.into_iter().zip(some.iter().zip(before)) {
            let done = running.wait_for(LIMIT).exits(4);
            let said = dir.read("output");
            if !said.contains("no progress for 3.") || !said.contains(word) {
                done.fail(&format!("the report does not name {word}: {said}"));
            }
            let whole = |results: Vec<String>| {
                results.into_iter().filter(|path| !path.contains(".partial")).collect::<Vec<_>>()
            };
            assert_eq!(whole(dir.results()), whole(before), "{said}");
        }
    }
}

/// A run that is reading, with long steps.
fn reading(dir: &Dir) -> Running<'_> {
    reading_from(dir, "posix")
}

fn reading_from<'a>(dir: &'a Dir, store: &str) -> Running<'a> {
    let run = dir.feedline(&["run", "w.yaml", "--quiet", "--no-calibration", "--store", store]);
    let mut running = run.set(&["train.computation_time=0.5"]).start();
    running.until_thread("reader");
    running
}

#[test]
fn a_hangup_ends_a_run_with_the_verdict_incomplete() {
    let dir = Dir::small_with_data();
    let running = reading(&dir);
    std::thread::sleep(Duration::from_millis(300));
    running.signal(Signal::HUP);
    running.wait_for(LIMIT).exits(4).prints("verdict: incomplete");
    assert_eq!(
        dir.json(&format!("{}/summary.json", dir.result()))["feedline"]["verdict"]["status"],
        "incomplete"
    );
    dir.has_no_leftovers();
}

#[test]
fn a_second_signal_ends_a_run_immediately_with_a_message() {
    let dir = Dir::small_with_data();
    // A hung reader delays the end of the run after the first signal by three seconds.
    let running = reading_from(&dir, "fault:posix,kind=hang");
    running.signal(Signal::TERM);
    // An earlier signal would count as the same request.
    std::thread::sleep(Duration::from_millis(700));
    running.signal(Signal::INT);
    running.wait_for(LIMIT).exits(4).says("error: second signal");
}

#[test]
fn a_signal_ends_a_command_that_waits_for_its_first_file() {
    let dir = Dir::new();
    dir.command(Path::new("mkfifo"), &["w.yaml"]).run().exits(0);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut running = dir.feedline(&["plan", "w.yaml"]).start();
        running.until_thread("waits");
        running.signal(signal);
        running.wait_for(LIMIT).exits(4).says("error: interrupted").one_error();
    }
}

#[test]
fn a_worker_that_is_killed_is_reported() {
    let dir = Dir::small_with_data();
    let running = reading(&dir);
    let worker = worker_of(running.id()).unwrap();
    rustix::process::kill_process(Pid::from_raw(worker as i32).unwrap(), Signal::KILL).unwrap();
    running.wait_for(LIMIT).exits(4).says("error: killed by SIGKILL").one_error();
    assert!(dir.results().is_empty());
}

#[test]
fn a_file_size_limit_is_an_error() {
    let dir = Dir::small();
    let line = format!("ulimit -f 1; exec {} generate w.yaml --quiet", env!("CARGO_BIN_EXE_feedline"));
    dir.command(Path::new("bash"), &["-c", &line]).run().exits(4).says("File too large").one_error();
}
