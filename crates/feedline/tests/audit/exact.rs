//! Opens, reads, bytes, seeks and closes of data files: those of the audit are equal to those of strace, per process.

use std::collections::BTreeMap;

use super::{PYTHON, audit, observed, script};
use crate::util::Dir;

const CALLS: &str = "open,openat,read,pread64,readv,preadv,preadv2,lseek,close";

/// Opens, reads, bytes, seeks, closes.
type Counts = [u64; 5];

/// Calls on files below `folder`, by process, of a trace with paths. Threads are added to their process.
fn traced(trace: &str, folder: &str, process_of: &BTreeMap<u32, u32>) -> BTreeMap<u32, Counts> {
    let mut counts: BTreeMap<u32, Counts> = BTreeMap::new();
    let mut unfinished: BTreeMap<u32, String> = BTreeMap::new();
    for line in trace.lines() {
        let Some((thread, text)) = line.split_once(' ') else { continue };
        let (Ok(thread), text) = (thread.parse::<u32>(), text.trim_start()) else { continue };
        if let Some(start) = text.strip_suffix("<unfinished ...>") {
            unfinished.insert(thread, start.to_owned());
            continue;
        }
        let whole = match text.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
            Some((_, rest)) => unfinished.remove(&thread).unwrap_or_default() + rest,
            None => text.to_owned(),
        };
        let Some((call, result)) = whole.rsplit_once(" = ") else { continue };
        let Some((name, args)) = call.split_once('(') else { continue };
        // The path of an open is in its result, that of other calls in the first argument.
        let at = if name.starts_with("open") { result } else { args };
        let path = at.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or("", |(path, _)| path);
        if !path.starts_with(folder) {
            continue;
        }
        let process = process_of.get(&thread).copied().unwrap_or(thread);
        let [opens, reads, bytes, seeks, closes] = counts.entry(process).or_default();
        match name {
            "open" | "openat" => *opens += 1,
            "lseek" => *seeks += 1,
            "close" => *closes += 1,
            _ => {
                *reads += 1;
                *bytes += result.split(' ').next().unwrap().parse::<u64>().unwrap_or(0);
            }
        }
    }
    counts
}

/// The process of each thread that a trace of clones shows.
fn processes_of_threads(trace: &str) -> BTreeMap<u32, u32> {
    let mut found = BTreeMap::new();
    for line in trace.lines().filter(|line| line.contains("CLONE_THREAD")) {
        let number = |text: Option<&str>| text.and_then(|text| text.trim().parse::<u32>().ok());
        if let (Some(parent), Some(thread)) =
            (number(line.split(' ').next()), number(line.rsplit(" = ").next()))
        {
            let process = found.get(&parent).copied().unwrap_or(parent);
            found.insert(thread, process);
        }
    }
    found
}

/// Runs a job under audit and strace at once and compares. `by_call`: otherwise only bytes, opens and closes, because
/// the C library reads ahead of `fread` in calls that no library can see.
#[track_caller]
fn equals_strace(python: &str, kind: &[&str], by_call: bool) {
    let dir = Dir::new();
    let script = script("audit/exact.py");
    let data = dir.path("data").canonicalize().unwrap_or_else(|_| dir.path("data"));
    let data = data.to_str().unwrap();
    dir.command(python.as_ref(), &["-B", &script, "prepare", data]).run().exits(0);
    let (first, more) = kind.split_first().unwrap();
    let job = [&[python, "-B", &script, first, data], more].concat();
    let calls = format!("{CALLS},clone,clone3,vfork,fork");
    let done = audit(&dir, &job).traced(&calls, "trace").run().exits(0);
    let trace = dir.read("trace");
    let mut expected = traced(&trace, data, &processes_of_threads(&trace));
    let mut found: BTreeMap<u32, Counts> = BTreeMap::new();
    for process in observed(&dir, &done)["processes"].as_array().unwrap() {
        let of = |kind: &str, what: &str| process["data"][kind][what].as_u64().unwrap_or(0);
        let counts = [
            of("opens", "count"),
            of("reads", "count"),
            of("reads", "bytes"),
            of("seeks", "count"),
            of("closes", "count"),
        ];
        let sum = found.entry(process["pid"].as_u64().unwrap() as u32).or_default();
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    assert!(!expected.is_empty(), "strace saw no call on {data}");
    if !by_call {
        for counts in expected.values_mut().chain(found.values_mut()) {
            (counts[1], counts[3]) = (0, 0);
        }
    }
    found.retain(|_, counts| *counts != Counts::default());
    assert_eq!(found, expected, "opens, reads, bytes, seeks, closes by process: audit, strace");
}

fn venv() -> String {
    std::env::var("FEEDLINE_TEST_PYTHON").expect("FEEDLINE_TEST_PYTHON is not set: run scripts/test")
}

#[test]
fn pytorch_by_all_start_methods() {
    for method in ["fork", "spawn", "forkserver"] {
        for keep in ["persistent", "new"] {
            equals_strace(PYTHON, &["torch", method, keep], true);
        }
    }
}

#[test]
fn h5py() {
    equals_strace(PYTHON, &["h5py"], true);
}

#[test]
fn numpy() {
    equals_strace(PYTHON, &["numpy"], false);
}

#[test]
fn pillow() {
    equals_strace(PYTHON, &["pillow"], true);
}

#[test]
fn pyarrow() {
    equals_strace(&venv(), &["pyarrow"], true);
}

#[test]
fn tensorflow() {
    equals_strace(&venv(), &["tensorflow"], true);
}

#[test]
fn threads_processes_that_leave_or_are_killed_and_vfork() {
    for kind in ["threads", "leave", "killed", "vfork"] {
        equals_strace(PYTHON, &[kind], true);
    }
}
