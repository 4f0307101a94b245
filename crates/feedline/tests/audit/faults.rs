//! Page faults of mapped files: exact counts, as root and as an unprivileged user, and without the permission to record
//! them.

use std::path::Path;

use serde_json::Value;

use super::{PYTHON, observed, script};
use crate::util::{Cmd, Dir};

/// Places that the job touches, each far from the others.
const PLACES: u64 = 30;

const JOB: &str = "import mmap, random, time
with open('data', 'rb') as file:
    mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
time.sleep(0.5)
places = list(range(4096, len(mapping), 4 << 20))
random.Random(7).shuffle(places)
print(sum(mapping[at] for at in places))
time.sleep(1)";

/// Runs the job, and returns its coverage and the files of its only pass.
#[track_caller]
fn audit<'a>(dir: &'a Dir, feedline: impl FnOnce(&[&str]) -> Cmd<'a>) -> (Value, Value) {
    std::fs::write(dir.path("data"), vec![1; (PLACES << 22) as usize]).unwrap();
    let all: Vec<&str> =
        "audit --results results --name job --".split(' ').chain([PYTHON, "-c", JOB]).collect();
    let done = feedline(&all).run().exits(0);
    assert_eq!(done.stdout, format!("{PLACES}\n"));
    let seen = observed(dir, &done);
    let epochs = seen["epochs"].as_array().unwrap();
    assert_eq!(epochs.len(), 1, "{}", done.stderr);
    (seen["coverage"].clone(), epochs[0]["files"].clone())
}

#[track_caller]
fn are_exact((coverage, files): &(Value, Value)) {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    if coverage["faults"] != "perf" {
        // Some distributions and containers forbid it.
        assert!(coverage["notes"].to_string().contains("kernel.perf_event_paranoid"), "{level} {coverage}");
        return;
    }
    assert_eq!((&files["faults"], &files["fault_page_bytes"]), (&PLACES.into(), &(PLACES * 4096).into()));
    assert_eq!(files["fault_piece_bytes"], PLACES << 21);
    assert_eq!(files["faults_lost"], 0);
}

#[test]
fn faults_are_counted() {
    let dir = Dir::new();
    are_exact(&audit(&dir, |args| dir.feedline(args)));
}

#[test]
fn an_unprivileged_user_counts_them_too() {
    let dir = Dir::new();
    dir.write("results/.keep", "");
    dir.set_mode("results", 0o777);
    are_exact(&audit(&dir, |args| dir.feedline_unprivileged(args)));
}

#[test]
fn without_permission_resident_bytes_are_known() {
    let dir = Dir::new();
    let forbidden = script("audit/forbid.py");
    let (coverage, files) = audit(&dir, |args| {
        let binary = env!("CARGO_BIN_EXE_feedline");
        dir.command(Path::new(PYTHON), &[&[forbidden.as_str(), binary][..], args].concat())
    });
    assert_eq!(coverage["faults"], "rss");
    let note = coverage["notes"].to_string();
    assert!(note.contains("Page faults of mappings could not be recorded: not permitted"), "{note}");
    assert_eq!((&files["faults"], &files["mapped_bytes"]), (&Value::Null, &(PLACES << 22).into()));
    assert!(files["resident_bytes"].as_u64().unwrap() >= PLACES * 4096);
}
