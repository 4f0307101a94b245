//! Audits of jobs: figures against strace, jobs that must end as they do alone, and drawn jobs with a planted fault.

mod drawn;
mod exact;
mod from_trace;
mod replay;
mod safe;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::util::{Cmd, Dir, Done};

/// Debian's Python, which has Debian's PyTorch.
const PYTHON: &str = "/usr/bin/python3";

fn script(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    path.to_str().unwrap().to_owned()
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
