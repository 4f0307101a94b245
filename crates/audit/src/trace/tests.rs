//! Traces from text to what was observed.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use model::observed::{Observed, ProcessRow, Source, TrainingFramework};

use super::{TraceInputError, read};
use crate::Paths;

fn observed(path: &Path) -> Observed {
    *read(path, Paths::All).unwrap().observed.unwrap()
}

fn of_text(text: &str) -> Observed {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    observed(file.path())
}

/// Opens, reads, bytes, seeks and closes of data files.
fn counts(row: &ProcessRow) -> [u64; 5] {
    let data = row.data;
    [data.opens.count, data.reads.count, data.reads.bytes, data.seeks.count, data.closes.count]
}

fn has_note(seen: &Observed, text: &str) -> bool {
    seen.coverage.notes.iter().any(|note| note.contains(text))
}

/// A job with a fork, a thread, a program, and calls that other processes interrupt.
const JOB: &str = r#"7 1700000100.000000 execve("/bin/python3", ["python3", "t.py", "--token=abc"], 0) = 0 <0.0005>
7 1700000100.001000 openat(AT_FDCWD, "/usr/lib/x.so", O_RDONLY|O_CLOEXEC) = 3 <0.000010>
7 1700000100.002000 close(3) = 0 <0.000010>
7 1700000100.003000 openat(AT_FDCWD, "/data/a", O_RDONLY|O_CLOEXEC) = 3 <0.000100>
7 1700000100.004000 read(3, "abc"..., 100) = 100 <0.000200>
7 1700000100.005000 lseek(3, 1000, SEEK_SET) = 1000 <0.000010>
7 1700000100.006000 read(3,  <unfinished ...>
7 1700000100.006500 <... read resumed>"x", 100) = 50 <0.000500>
7 1700000100.007000 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD <unfinished ...>
8 1700000100.007100 read(3, "x", 10) = 10 <0.000010>
7 1700000100.007200 <... clone resumed>, child_tidptr=0x7f) = 8 <0.000200>
7 1700000100.008000 clone3({flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD, stack=0x7f}, 88) = 9 <0.000050>
9 1700000100.009000 pread64(3, "x", 20, 5) = 20 <0.000010>
9 1700000100.009500 +++ exited with 0 +++
8 1700000100.010000 dup2(3, 1) = 1 <0.000010>
8 1700000100.010500 --- SIGINT {si_signo=SIGINT} ---
8 1700000100.011000 execve("/bin/cat", ["cat"], 0x7ffc /* 9 vars */) = 0 <0.000500>
8 1700000100.012000 read(1, "x", 10) = 10 <0.000010>
8 1700000100.013000 close(1) = 0 <0.000010>
8 1700000100.014000 +++ killed by SIGKILL +++
7 1700000100.015000 close(3) = 0 <0.000010>
7 1700000100.016000 exit_group(3)                     = ?
7 1700000100.017000 +++ exited with 3 +++
"#;

#[test]
fn a_number_that_is_given_away_before_close_returns_belongs_to_the_new_file() {
    let seen = of_text(
        r#"7 1700000100.000000 execve("/bin/python3", ["python3"], 0) = 0 <0.0005>
7 1700000100.001000 clone3({flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD, stack=0x7f}, 88) = 9 <0.000050>
7 1700000100.002000 openat(AT_FDCWD, "/data/a", O_RDONLY|O_CLOEXEC) = 3 <0.000100>
7 1700000100.003000 close(3 <unfinished ...>
9 1700000100.003100 openat(AT_FDCWD, "/data/b", O_RDONLY|O_CLOEXEC) = 3 <0.000100>
7 1700000100.003200 <... close resumed>) = 0 <0.000200>
9 1700000100.004000 read(3, "abc"..., 100) = 100 <0.000200>
9 1700000100.005000 close(3) = 0 <0.000010>
7 1700000100.006000 +++ exited with 0 +++
"#,
    );
    assert_eq!(counts(&seen.processes[0]), [2, 1, 100, 0, 2]);
    assert!(!has_note(&seen, "not known: strace -y"));
}

#[test]
fn processes_threads_and_descriptors_are_followed() {
    let seen = of_text(JOB);
    assert_eq!((seen.source, seen.exit.code), (Source::Strace, Some(3)));
    assert_eq!(seen.command, ["python3", "t.py", "--token=***"]);
    let rows: Vec<_> = seen.processes.iter().map(|row| (row.pid, row.parent, row.forked)).collect();
    assert_eq!(rows, [(7, 0, false), (8, 7, true), (8, 7, false)]);
    let [main, fork, cat] = &seen.processes[..] else { panic!("{:?}", seen.processes) };
    assert_eq!(counts(main), [1, 3, 170, 1, 1]);
    assert_eq!((main.code_opens, main.data.positioned, main.open_files_end), (1, 1, 0));
    assert_eq!(main.data.sequential.bytes, 150 - 50, "the read after a seek is not sequential");
    assert_eq!(main.data.reads.ns.0, 710_000, "the interrupted read has its own time");
    assert_eq!(counts(fork), [0, 1, 10, 0, 0]);
    assert_eq!((counts(cat), cat.signal), ([0, 1, 10, 0, 1], Some(9)));
    assert_eq!(seen.epochs[0].files.shared_offset_reads, 1, "the fork used the parent's position");
    assert_eq!((seen.wall_ns.0, seen.coverage.recorded_bytes), (17_000_000, 190));
    assert_eq!(seen.files.examples, ["/data/a"]);
    // Read by the fork from 1050 on, and by its program from 1060 on.
    assert_eq!(seen.files.sizes.max(), Some(1070));
    assert!(seen.storage.is_empty() && !seen.coverage.untimed);
}

#[test]
fn what_a_trace_lacks_is_said() {
    let plain = |line: &str| line.split_once(' ').map_or("", |(_, rest)| rest).to_owned();
    let untimed: Vec<String> =
        JOB.lines().map(|line| line.rsplit_once(" <0.").map_or(line, |(line, _)| line).to_owned()).collect();
    let seen = of_text(&untimed.join("\n"));
    assert!(seen.coverage.untimed && has_note(&seen, "no durations (strace -T)"), "{:?}", seen.coverage);
    assert_eq!(counts(&seen.processes[0]), [1, 3, 170, 1, 1]);
    let timeless: Vec<String> = untimed
        .iter()
        .map(|line| format!("{} {}", line.split(' ').next().unwrap(), plain(&plain(line))))
        .collect();
    let seen = of_text(&timeless.join("\n"));
    assert!(has_note(&seen, "only the order of calls is known") && seen.wall_ns.0 == 0);
    assert_eq!(counts(&seen.processes[0]), [1, 3, 170, 1, 1]);
    let seen = of_text("7 read(5, \"x\", 1) = 1\n7 garbage\n7 read(5, \"y");
    assert!(has_note(&seen, "not understood: line 2"), "{:?}", seen.coverage.notes);
    assert!(has_note(&seen, "ends within line 3") && has_note(&seen, "1 calls use descriptors"));
}

#[test]
fn a_file_for_each_thread() {
    let dir = tempfile::tempdir().unwrap();
    let mut parts = std::collections::BTreeMap::<&str, String>::new();
    for line in JOB.lines().filter(|line| !line.contains("unfinished") && !line.contains("resumed")) {
        let (pid, rest) = line.split_once(' ').unwrap();
        *parts.entry(pid).or_default() += &format!("{rest}\n");
    }
    // A child that runs before the call of its parent returns.
    let clone = "1700000100.006900 clone(child_stack=NULL, flags=SIGCHLD) = 8 <0.000900>\n";
    let parent = parts.get_mut("7").unwrap();
    let at = parent.find("1700000100.008000").unwrap();
    parent.insert_str(at, clone);
    for (pid, text) in &parts {
        fs::write(dir.path().join(format!("trace.{pid}")), text).unwrap();
    }
    fs::write(dir.path().join("README"), "no trace\n").unwrap();
    for path in [dir.path().to_owned(), dir.path().join("trace")] {
        let seen = observed(&path);
        let rows: Vec<_> = seen.processes.iter().map(|row| (row.pid, row.parent, counts(row))).collect();
        let expected = [(7, 0, [1, 2, 120, 1, 1]), (8, 7, [0, 1, 10, 0, 0]), (8, 7, [0, 1, 10, 0, 1])];
        assert_eq!(rows, expected, "{}", path.display());
    }
}

/// DFTracer's own syntax, version 2.2, with the marks of DLIO.
fn dftracer() -> String {
    let mut lines = Vec::new();
    for (name, text, value) in
        [("FH", "/d/a.npz", "aa"), ("FH", "/d/x.py", "bb"), ("SH", "python;dlio.py", "cc")]
    {
        let args = format!(r#"{{"hhash":"6","name":"{text}","value":"{value}"}}"#);
        lines.push(format!(
            r#"{{"name":"{name}","cat":"dftracer","type":1,"pid":7,"tid":7,"ph":4,"args":{args}}}"#
        ));
    }
    let mut add = |pid: u32, name: &str, cat: &str, ts: u64, dur: u64, args: &str| {
        lines.push(format!(
            r#"{{"name":"{name}","cat":"{cat}","pid":{pid},"tid":{pid},"ts":{},"dur":{dur},"ph":1,{}}}"#,
            1_795_015_741_000_000u64 + ts,
            format_args!(r#""args":{{"hhash":"6"{args}}}"#),
        ));
    };
    add(7, "start", "dftracer", 0, 0, r#","ppid":3,"cmd_hash":"cc""#);
    add(7, "open64", "POSIX", 10, 5, r#","flags":524288,"fhash":"bb""#);
    add(8, "start", "dftracer", 100, 0, r#","ppid":7,"cmd_hash":"cc""#);
    for step in 0..20 {
        let at = 200 + step * 100;
        add(8, "open64", "POSIX", at, 5, r#","flags":524288,"fhash":"aa""#);
        add(8, "read", "POSIX", at + 10, 20, r#","ret":4096,"count":4096,"fhash":"aa""#);
        add(8, "lseek64", "POSIX", at + 31, 1, r#","ret":9,"whence":0,"offset":9,"fhash":"aa""#);
        add(8, "pread64", "POSIX", at + 33, 3, r#","ret":7,"offset":3,"count":7,"fhash":"aa""#);
        add(8, "close", "POSIX", at + 40, 1, r#","ret":0,"fhash":"aa""#);
        add(8, "item", "data", at, 50, &format!(r#","epoch":1,"step":{step}"#));
        add(7, "fetch.iter", "dataloader", at, 60, &format!(r#","epoch":1,"step":{step}"#));
    }
    add(7, "train", "pipeline", 150, 2150, r#","epoch":1"#);
    lines.join("\n") + "\n"
}

#[test]
fn dftracers_epochs_and_waits_are_marks() {
    let seen = of_text(&dftracer());
    assert_eq!(
        (seen.source, &seen.command[..]),
        (Source::Trace, &["python".to_owned(), "dlio.py".to_owned()][..])
    );
    let rows: Vec<_> =
        seen.processes.iter().map(|row| (row.pid, row.parent, row.worker, counts(row))).collect();
    assert_eq!(rows, [(7, 3, None, [0; 5]), (8, 7, Some(0), [20, 40, 20 * 4103, 20, 20])]);
    assert_eq!(seen.processes[0].code_opens, 1);
    let [epoch] = &seen.epochs[..] else { panic!("{:?}", seen.epochs) };
    assert_eq!((epoch.batches, epoch.samples, epoch.complete), (20, Some(20), true));
    assert_eq!((epoch.wall_ns().0, epoch.blocked_all_ns.0), (2_150_000, 20 * 60_000));
    assert_eq!((epoch.workers[0].fetches, epoch.workers[0].fetch_ns.0), (20, 20 * 50_000));
    assert_eq!(epoch.workers[0].file_ns.0, 20 * 30_000, "calls within fetches");
    assert_eq!((seen.loaders[0].framework, seen.loaders[0].workers), (TrainingFramework::Other, 1));
}

#[test]
fn compressed_and_cut_traces_are_read_up_to_their_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    for (text, name) in [(dftracer(), "pfw"), (JOB.to_owned(), "strace")] {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        let whole = gzip.finish().unwrap();
        fs::write(&path, &whole).unwrap();
        assert!(!has_note(&observed(&path), "ends within"), "{name}");
        fs::write(&path, &whole[..whole.len() * 3 / 4]).unwrap();
        let cut = observed(&path);
        assert!(has_note(&cut, "ends within line"), "{name}: {:?}", cut.coverage.notes);
        assert!(cut.coverage.events > 3, "{name}");
    }
    fs::write(&path, format!("[\n{}{{\"name\":\"re", dftracer())).unwrap();
    assert!(has_note(&observed(&path), "ends within line"));
    let strange = dftracer() + "not json\n{\"x\":1}\n" + &dftracer();
    fs::write(&path, strange).unwrap();
    assert!(has_note(&observed(&path), "2 lines of the trace were not understood"));
}

#[test]
fn what_is_no_trace_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let error = |path: &Path| read(path, Paths::All).unwrap_err();
    let of = |content: &[u8]| {
        fs::write(&path, content).unwrap();
        error(&path).to_string()
    };
    assert!(of(b"").ends_with("file is empty: it is no trace"));
    for content in [&b"hello\nworld\n"[..], b"\x7fELF\0\0\0\xff\xfe", b"\n\n", b"[1, 2]", b"7 x\n"] {
        assert!(of(content).contains("file, line 1: this is neither"), "{content:?}");
    }
    for content in [&b"[]"[..], b"{\"a\":1}", b"[\n{\"name\":\"FH\",\"ph\":\"M\"}\n]\n"] {
        assert!(of(content).contains("line 1: no event"), "{content:?}: {}", of(content));
    }
    assert!(of(&[0x1f, 0x8b, 1, 2, 3]).starts_with("cannot read"));
    fs::remove_file(&path).unwrap();
    assert!(matches!(error(&path), TraceInputError::Io(..)));
    assert!(matches!(error(dir.path()), TraceInputError::NoTraces(_)));
    fs::write(dir.path().join("a"), "text").unwrap();
    assert!(matches!(error(dir.path()), TraceInputError::NoTraces(_)));
    fs::write(dir.path().join("b"), JOB).unwrap();
    fs::write(dir.path().join("c"), dftracer()).unwrap();
    assert!(matches!(error(dir.path()), TraceInputError::Both(_)));
}
