//! Audits of jobs: figures against strace, jobs that must end as they do alone, and drawn jobs with a planted fault.

mod drawn;
mod exact;
mod faults;
mod from_trace;
mod library;
mod limits;
mod programs;
mod replay;
mod safe;
mod signals;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::util::{Cmd, Dir, Done};

/// Debian's Python, which has Debian's PyTorch.
const PYTHON: &str = "/usr/bin/python3";

fn script(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    path.to_str().unwrap().to_owned()
}

/// Users, set-uid programs and roots cannot be changed without it.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Compiles a program of `audit/programs`, and returns its path.
#[track_caller]
fn compiled(dir: &Dir, name: &str, compiler: &str, options: &[&str]) -> String {
    let source = script(&format!("audit/programs/{name}"));
    let program = dir.path(&name.replace('.', "-")).to_str().unwrap().to_owned();
    let command = dir.command(Path::new(compiler), &["-O1", "-w", "-o", &program, &source]);
    command.args(options).run().exits(0);
    program
}

/// Runs a job alone and under audit with these variables: its output and exit code must be the same. Returns what was
/// observed.
#[track_caller]
fn same(dir: &Dir, job: &[&str], env: &[(&str, &str)]) -> Value {
    let with = |command| env.iter().fold(command, |command: Cmd<'_>, (k, v)| command.env(k, v));
    let alone = with(dir.command(job[0].as_ref(), &job[1..])).run();
    let done = with(audit(dir, job)).run();
    // A signal that ends the job is the exit code of a shell.
    let expected = alone.code().or_else(|| alone.signal().map(|signal| 128 + signal));
    assert_eq!(done.code(), expected, "{}", done.stderr);
    assert_eq!(done.stdout, alone.stdout);
    assert!(done.stderr.starts_with(&alone.stderr), "{}\nalone: {}", done.stderr, alone.stderr);
    observed(dir, &done)
}

/// Data files opened and bytes read, by all processes of this program.
fn read_by(seen: &Value, program: &str) -> (u64, u64) {
    let rows = seen["processes"].as_array().unwrap().iter();
    let of = rows.filter(|row| row["command"].as_str().unwrap().contains(program));
    of.fold((0, 0), |(opens, bytes), row| {
        let data = |kind: &str, what: &str| row["data"][kind][what].as_u64().unwrap_or(0);
        (opens + data("opens", "count"), bytes + data("reads", "bytes"))
    })
}

/// Reasons of processes that were not observed, with their commands.
fn unseen(seen: &Value) -> Vec<(String, String)> {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let rows = seen["coverage"]["unseen"].as_array().unwrap().iter();
    rows.map(|row| (text(row, "command"), text(row, "reason"))).collect()
}

#[track_caller]
fn is_named(seen: &Value, command: &str, reason: &str) {
    let found = unseen(seen);
    let is_it = |row: &(String, String)| row.0.contains(command) && row.1.contains(reason);
    assert!(found.iter().any(is_it), "no {command} ({reason}) in {found:?}");
}

/// `feedline audit` of a job, with its result below `results`.
fn audit<'a>(dir: &'a Dir, job: &[&str]) -> Cmd<'a> {
    let command = dir.feedline(&["audit", "--results", "results", "--name", "job", "--"]).args(job);
    command.env("PYTHONDONTWRITEBYTECODE", "1")
}

/// What was observed of the only job that was audited in this folder.
#[track_caller]
fn observed(dir: &Dir, done: &Done) -> Value {
    let results = dir.results_below("results");
    assert_eq!(results.len(), 1, "{}", done.stderr);
    dir.json(&format!("{}/ledger.json", results[0]))["observed"].clone()
}
