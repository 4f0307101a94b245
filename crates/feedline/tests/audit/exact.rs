//! Opens, reads, bytes, seeks and closes of data files: those of the audit are equal to those of strace, per process.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::{PYTHON, audit, observed, script};
use crate::util::Dir;

const CALLS: &str = "open,openat,read,pread64,readv,preadv,preadv2,lseek,close";

/// Opens, reads, bytes, seeks, closes.
type Counts = [u64; 5];

/// What a stream of the C library reads at once.
const STREAM_BUFFER: u64 = 4096;

/// The calls of a trace with paths: thread, and `name(arguments) = result` in one piece.
fn calls(trace: &str) -> Vec<(u32, String)> {
    let mut found = Vec::new();
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
        found.push((thread, whole));
    }
    found
}

/// Calls on files below a folder by process. Threads are added to their process; calls of feedline and on its own files
/// are left out.
fn traced(trace: &str, folder: &str) -> BTreeMap<u32, Counts> {
    let calls = calls(trace);
    let process_of = processes_of_threads(&calls);
    let process = |thread: u32| process_of.get(&thread).copied().unwrap_or(thread);
    let feedline = calls.first().map(|(thread, _)| *thread);
    let mut counts: BTreeMap<u32, Counts> = BTreeMap::new();
    for (thread, whole) in &calls {
        let Some((call, result)) = whole.rsplit_once(" = ") else { continue };
        let Some((name, args)) = call.split_once('(') else { continue };
        // The path of an open is in its result, that of other calls in the first argument.
        let at = if name.starts_with("open") { result } else { args };
        let path = at.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or("", |(path, _)| path);
        let process = process(*thread);
        let is_data = path.starts_with(folder) && !path.contains("feedline-audit");
        // The folders of Python's multiprocessing no longer exist.
        let is_folder = Path::new(path).is_dir() || path.contains("/pymp-");
        if !is_data || is_folder || Some(process) == feedline {
            continue;
        }
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

/// The process of each thread, by the calls that created them. A thread can call before the call that created it
/// returns, so all are needed before any is looked up.
fn processes_of_threads(calls: &[(u32, String)]) -> BTreeMap<u32, u32> {
    let mut parents = BTreeMap::new();
    for (parent, whole) in calls.iter().filter(|(_, whole)| whole.contains("CLONE_THREAD")) {
        if let Some(thread) = whole.rsplit(" = ").next().and_then(|text| text.trim().parse::<u32>().ok()) {
            parents.insert(thread, *parent);
        }
    }
    let root = |thread: &u32| {
        std::iter::successors(Some(*thread), |thread| parents.get(thread).copied()).last().unwrap()
    };
    parents.keys().map(|thread| (*thread, root(thread))).collect()
}

/// The same calls as the audit has them.
fn audited(observed: &Value) -> BTreeMap<u32, Counts> {
    let mut found: BTreeMap<u32, Counts> = BTreeMap::new();
    for process in observed["processes"].as_array().unwrap() {
        let of = |kind: &str, what: &str| process["data"][kind][what].as_u64().unwrap_or(0);
        let calls = [of("opens", "count"), of("reads", "count"), of("reads", "bytes")];
        let ends = [of("seeks", "count"), of("closes", "count")];
        let sum = found.entry(process["pid"].as_u64().unwrap() as u32).or_default();
        sum.iter_mut().zip(calls.iter().chain(&ends)).for_each(|(sum, count)| *sum += count);
    }
    found.retain(|_, counts| *counts != Counts::default());
    found
}

/// Runs a job under audit and strace at once: calls on data files by process, of the audit and of strace.
#[track_caller]
fn both(python: &str, kind: &[&str]) -> [BTreeMap<u32, Counts>; 2] {
    let dir = Dir::new();
    let script = script("audit/exact.py");
    let data = dir.path("data").canonicalize().unwrap_or_else(|_| dir.path("data"));
    let data = data.to_str().unwrap();
    dir.command(python.as_ref(), &["-B", &script, "prepare", data]).run().exits(0);
    let (first, more) = kind.split_first().unwrap();
    let job = [&[python, "-B", &script, first, data], more].concat();
    let calls = format!("{CALLS},clone,clone3,vfork,fork");
    // Libraries read settings in the home folder and write temporary files: those are data too.
    let own = ["tmp", "home"].map(|name| format!("{data}/{name}"));
    own.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let command = audit(&dir, &job).env("TMPDIR", &own[0]).env("HOME", &own[1]);
    let done = command.traced(&calls, "trace").run().exits(0);
    let trace = dir.read("trace");
    assert!(trace.contains(data), "strace saw no call on {data}");
    [audited(&observed(&dir, &done)), traced(&trace, data)]
}

#[track_caller]
fn equals_strace(python: &str, kind: &[&str]) {
    let [found, expected] = both(python, kind);
    assert_eq!(found, expected, "{kind:?}: opens, reads, bytes, seeks, closes by process: audit, strace");
}

fn venv() -> String {
    std::env::var("FEEDLINE_TEST_PYTHON").expect("FEEDLINE_TEST_PYTHON is not set: run scripts/test")
}

#[test]
fn pytorch_by_all_start_methods() {
    for method in ["fork", "spawn", "forkserver"] {
        for keep in ["persistent", "new"] {
            equals_strace(PYTHON, &["torch", method, keep]);
        }
    }
}

#[test]
fn h5py() {
    equals_strace(PYTHON, &["h5py"]);
}

#[test]
fn numpy() {
    // numpy reads by `fread`: the C library reads whole buffers in calls that no library can see.
    let [found, expected] = both(PYTHON, &["numpy"]);
    assert_eq!(found.len(), 1);
    for (process, [opens, _, bytes, _, closes]) in found {
        let [strace_opens, _, strace_bytes, _, strace_closes] = expected[&process];
        assert_eq!([opens, closes], [strace_opens, strace_closes]);
        assert!((bytes..=bytes + STREAM_BUFFER * opens).contains(&strace_bytes), "{bytes} {strace_bytes}");
    }
}

#[test]
fn pillow() {
    equals_strace(PYTHON, &["pillow"]);
}

#[test]
fn pyarrow() {
    equals_strace(&venv(), &["pyarrow"]);
}

#[test]
fn tensorflow() {
    equals_strace(&venv(), &["tensorflow"]);
}

#[test]
fn threads_processes_that_leave_or_are_killed_and_vfork() {
    for kind in ["threads", "leave", "killed", "vfork"] {
        equals_strace(PYTHON, &[kind]);
    }
}
