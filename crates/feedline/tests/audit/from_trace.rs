//! Traces instead of a job: the same figures as a live audit, findings, and files that are no traces.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use super::{PYTHON, audit, observed, script};
use crate::util::{Dir, Done};

/// Opens, reads, bytes, seeks and closes of data files, by process.
fn counts(seen: &Value) -> BTreeMap<u64, [u64; 5]> {
    let mut found: BTreeMap<u64, [u64; 5]> = BTreeMap::new();
    // strace closes its own output in the child that becomes the job.
    let is_job = |process: &&Value| !process["command"].as_str().unwrap().starts_with("strace");
    for process in seen["processes"].as_array().unwrap().iter().filter(is_job) {
        let of = |kind: &str, what: &str| process["data"][kind][what].as_u64().unwrap_or(0);
        let row = [
            of("opens", "count"),
            of("reads", "count"),
            of("reads", "bytes"),
            of("seeks", "count"),
            of("closes", "count"),
        ];
        let sum = found.entry(process["pid"].as_u64().unwrap()).or_default();
        sum.iter_mut().zip(row).for_each(|(sum, count)| *sum += count);
    }
    found.retain(|_, row| *row != [0; 5]);
    found
}

/// Reads a trace, and returns what it says of the job.
#[track_caller]
fn from(dir: &Dir, trace: &str) -> (Value, Done) {
    let args = ["audit", "--from", trace, "--results", "from", "--name", "trace", "--json"];
    let done = dir.feedline(&args).run().exits(0);
    let results = dir.results_below("from");
    let seen = dir.json(&format!("{}/ledger.json", results.last().unwrap()))["observed"].clone();
    fs::remove_dir_all(dir.path("from")).unwrap();
    (seen, done)
}

/// What the findings of a trace say about a rule: such as `found` or `not-measurable`.
fn outcome(done: &Done, rule: &str) -> String {
    let findings = done.json();
    let rules = findings["rules"].as_array().unwrap().clone();
    let found = rules.into_iter().find(|answer| answer["name"] == rule);
    found.unwrap_or_else(|| panic!("{rule}"))["outcome"].as_str().unwrap().to_owned()
}

fn has_note(seen: &Value, text: &str) -> bool {
    seen["coverage"]["notes"].as_array().unwrap().iter().any(|note| note.as_str().unwrap().contains(text))
}

/// A process, threads, forks and programs, that read files in several ways.
const JOB: &str = "import os, subprocess, sys, threading
os.makedirs('data/x', exist_ok=True)
for number in range(6):
    with open(f'data/x/{number} \"ä.bin', 'wb') as file:
        file.write(os.urandom(20000))
def read(number):
    with open(f'data/x/{number} \"ä.bin', 'rb') as file:
        file.read(100); file.seek(9000); file.read(); os.pread(file.fileno(), 7, 3)
        os.preadv(file.fileno(), [bytearray(5), bytearray(6)], 20)
for number in range(3):
    read(number)
threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
for number in range(3):
    child = os.fork()
    if child == 0:
        read(number); read(number + 1); os._exit(number)
    os.waitpid(child, 0)
os.listdir('data/x')
for path in ('none', 'data/none'):
    try: open(path)
    except OSError: pass
os.chdir('data')
open('x/5 \"ä.bin', 'rb').read()
fd = os.open('x/4 \"ä.bin', os.O_RDONLY); copy = os.dup(fd)
os.close(fd); os.pread(copy, 10, 0); os.close(copy)
subprocess.run(['cat', 'x/1 \"ä.bin'], stdout=subprocess.DEVNULL)
";

#[test]
fn strace_has_the_figures_of_a_live_audit() {
    for extra in [&["-f", "-ttt", "-T", "-y", "-o", "trace"][..], &["-ff", "-ttt", "-T", "-o", "trace"]] {
        let dir = Dir::new();
        dir.write("job.py", JOB);
        // Both see the same processes.
        let job = [&["strace"], extra, &["--", PYTHON, "-B", "job.py"]].concat();
        let done = audit(&dir, &job).run().exits(0);
        let live = observed(&dir, &done);
        let (seen, _) = from(&dir, "trace");
        assert_eq!(seen["source"], "strace");
        assert_eq!((&seen["exit"]["code"], &seen["command"][1]), (&0.into(), &"-B".into()));
        let (mut expected, found) = (counts(&live), counts(&seen));
        // strace itself writes its output.
        let of_strace =
            |pid: &u64| !seen["processes"].as_array().unwrap().iter().any(|row| row["pid"] == *pid);
        expected.retain(|pid, _| !of_strace(pid));
        assert!(expected.len() >= 5, "{expected:?}");
        assert_eq!(found, expected, "opens, reads, bytes, seeks, closes by process: trace, live: {extra:?}");
        assert!(!has_note(&seen, "not understood"), "{}", seen["coverage"]);
    }
}

#[test]
fn pytorch_under_strace_has_the_figures_of_a_live_audit() {
    let dir = Dir::new();
    let script = script("audit/exact.py");
    let data = dir.path("data");
    let data = data.to_str().unwrap();
    dir.command(PYTHON.as_ref(), &["-B", &script, "prepare", data]).run().exits(0);
    let strace = ["strace", "-f", "-ttt", "-T", "-y", "-s", "0", "-o", "trace", "--"];
    let job = [&strace[..], &[PYTHON, "-B", &script, "torch", data, "fork", "new"]].concat();
    let done = audit(&dir, &job).run().exits(0);
    let live = observed(&dir, &done);
    let (seen, _) = from(&dir, "trace");
    let reading = |seen: &Value| {
        let mut rows = counts(seen);
        rows.retain(|_, row| row[2] >= 50_000);
        rows
    };
    assert_eq!(reading(&seen), reading(&live));
    assert_eq!(reading(&seen).len(), 4, "two workers in each of two epochs");
}

#[test]
fn findings_need_no_marks_and_waits_are_not_measurable() {
    let dir = Dir::new();
    let job = "import os
os.makedirs('data', exist_ok=True)
for number in range(20):
    open(f'data/{number}.bin', 'wb').write(b'x' * 20000)
for number in range(20):
    fd = os.open(f'data/{number}.bin', os.O_RDONLY)
    while os.read(fd, 64): pass
    os.close(fd)
";
    for (flags, timed) in [("-ttt -T", true), ("-tt", false), ("-r -T", true), ("", false)] {
        let flags: Vec<&str> = flags.split_ascii_whitespace().collect();
        let strace = [&["-f", "-o", "trace"][..], &flags, &[PYTHON, "-c", job]].concat();
        dir.command("strace".as_ref(), &strace).run().exits(0);
        let (seen, done) = from(&dir, "trace");
        assert_eq!(outcome(&done, "tiny-reads"), "found", "{flags:?}: {}", done.stderr);
        for rule in ["not-input-bound", "storage-bound", "served-from-page-cache", "wrong-storage"] {
            assert_eq!(outcome(&done, rule), "not-measurable", "{flags:?}: {rule}");
        }
        assert_eq!(outcome(&done, "checkpoint-blocks") == "not-measurable", !timed, "{flags:?}");
        assert_eq!(has_note(&seen, "no durations"), !timed, "{flags:?}");
        assert_eq!(has_note(&seen, "only the order"), flags.is_empty(), "{flags:?}");
    }
}

#[test]
fn a_run_of_feedline_is_audited_from_its_trace() {
    let dir = Dir::small_with_data();
    let run = ["run", "w.yaml", "--no-calibration", "--quiet", "--trace"];
    for trace in ["t.pfw", "t.pfw.gz"] {
        let done = dir.feedline(&run).args(&[trace]).set(&["train.computation_time=0.002"]).run().ran();
        let (seen, found) = from(&dir, trace);
        assert_eq!(seen["source"], "trace", "{}", done.stderr);
        let epochs = seen["epochs"].as_array().unwrap();
        assert_eq!(epochs.len(), 2);
        for epoch in epochs {
            assert_eq!((&epoch["batches"], &epoch["samples"]), (&12.into(), &24.into()));
            assert_eq!(epoch["io"]["opens"]["count"], 24);
            assert_eq!(epoch["workers"].as_array().unwrap().len(), 2);
        }
        assert_ne!(outcome(&found, "not-input-bound"), "not-measurable", "waits are in the trace");
    }
}

#[test]
fn a_trace_of_dftracer_itself() {
    let environment = std::env::var("FEEDLINE_TEST_DFTRACER")
        .expect("FEEDLINE_TEST_DFTRACER is not set: run scripts/test, which installs DFTracer");
    let dir = Dir::new();
    let job = "import os
from dftracer.python import dftracer
log = dftracer.initialize_log(logfile=None, data_dir=None, process_id=-1)
os.mkdir('data')
for number in range(10):
    open(f'data/{number}.bin', 'wb').write(b'x' * 5000)
def read():
    for number in range(10):
        with open(f'data/{number}.bin', 'rb') as file:
            file.seek(10); file.read(100); os.pread(file.fileno(), 7, 3)
read()
if os.fork() == 0:
    read(); os._exit(0)
os.wait()
log.finalize()
";
    let program = std::path::Path::new(&environment).join("bin/python");
    let traces = dir.path("traces");
    fs::create_dir(&traces).unwrap();
    let settings = [
        ("DFTRACER_ENABLE", "1"),
        ("DFTRACER_INC_METADATA", "1"),
        ("DFTRACER_INIT", "FUNCTION"),
        ("DFTRACER_DATA_DIR", "all"),
    ];
    let command = dir.command(&program, &["-c", job]).env("DFTRACER_LOG_FILE", traces.join("job"));
    settings.iter().fold(command, |command, (name, value)| command.env(name, value)).run().exits(0);
    let (seen, _) = from(&dir, "traces");
    let found: Vec<[u64; 5]> = counts(&seen).into_values().collect();
    // Python seeks once more in each file that it opens, to find the position.
    assert_eq!(found, [[20, 20, 10 * 4103, 30, 20], [10, 20, 10 * 4103, 20, 10]], "{}", seen["processes"]);
    assert!(!has_note(&seen, "not understood"), "{}", seen["coverage"]);
}

#[test]
fn what_is_no_trace_is_refused() {
    let dir = Dir::new();
    dir.write("text", "no trace\n");
    dir.write("empty", "");
    dir.write("junk", [0x7f, b'E', b'L', b'F', 0, 0xff, 0xfe]);
    dir.write("list.json", "[]");
    dir.write("short.gz", [0x1f, 0x8b, 8]);
    dir.write("folder/text", "no trace\n");
    for (file, reason) in [
        ("text", "text, line 1: this is neither output of strace nor a trace"),
        ("empty", "empty is empty"),
        ("junk", "junk, line 1: this is neither"),
        ("list.json", "list.json, line 1: no event of a trace"),
        ("short.gz", "cannot read short.gz"),
        ("folder", "folder has no traces"),
        ("none", "cannot read none: No such file"),
    ] {
        dir.feedline(&["audit", "--from", file]).run().exits(3).says(reason).one_error();
        assert!(dir.results().is_empty(), "{file}");
    }
    dir.write("secret", "7 read(3, \"\", 1) = 0\n");
    dir.set_mode("secret", 0o000);
    fs::create_dir(dir.path("out")).unwrap();
    dir.set_mode("out", 0o777);
    let args = ["audit", "--from", "secret", "--results", "out"];
    dir.feedline_unprivileged(&args).run().exits(3).says("cannot read secret: Permission denied").one_error();
}
