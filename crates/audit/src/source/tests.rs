//! Runs real jobs with a sink that collects.

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Options, Outcome, SourceError, run};
use crate::event::{ProcessEnd, ProcessIndex, ProcessStart, Sample, Seen, Sink};
use crate::layout::{Op, TextKind};

/// One job at a time in one process.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps everything, and checks the order.
#[derive(Default)]
struct Collected {
    starts: Vec<ProcessStart>,
    events: Vec<(ProcessIndex, Seen)>,
    texts: Vec<(TextKind, u64, String)>,
    samples: Vec<Sample>,
    ends: Vec<(ProcessIndex, ProcessEnd)>,
    last_ns: u64,
}

impl Collected {
    fn at(&mut self, at_ns: u64) {
        assert!(at_ns >= self.last_ns, "{at_ns} after {}", self.last_ns);
        self.last_ns = at_ns;
    }

    fn of(&self, op: Op) -> Vec<Seen> {
        self.events.iter().map(|(_, event)| *event).filter(|event| event.op == op).collect()
    }

    /// Events on the file with this inode.
    fn on(&self, op: Op, path: &Path) -> Vec<Seen> {
        let inode = std::os::unix::fs::MetadataExt::ino(&path.metadata().unwrap());
        self.of(op).into_iter().filter(|event| event.file == inode).collect()
    }
}

impl Sink for Collected {
    fn process(&mut self, start: &ProcessStart) {
        self.at(start.start_ns);
        self.starts.push(start.clone());
    }
    fn event(&mut self, process: ProcessIndex, event: &Seen) {
        assert!(process < self.starts.len());
        assert!(self.ends.iter().all(|(ended, _)| *ended != process));
        self.at(event.end_ns());
        self.events.push((process, *event));
    }
    fn text(&mut self, _: ProcessIndex, kind: TextKind, id: u64, _: u32, text: &str) {
        self.texts.push((kind, id, text.to_owned()));
    }
    fn sample(&mut self, sample: &Sample) {
        self.at(sample.at_ns);
        self.samples.push(sample.clone());
    }
    fn end(&mut self, process: ProcessIndex, end: &ProcessEnd) {
        self.ends.push((process, end.clone()));
    }
    fn sample_bits(&self) -> u32 {
        0
    }
}

fn attempt(command: &[&str]) -> (Result<Outcome, SourceError>, Collected) {
    let _alone = alone();
    let options = Options { command: command.iter().map(OsString::from).collect(), marks: true };
    let mut collected = Collected::default();
    let outcome = run(&options, &mut collected, &mut |_| {});
    (outcome, collected)
}

fn observe(command: &[&str]) -> (Outcome, Collected) {
    let (outcome, collected) = attempt(command);
    (outcome.unwrap(), collected)
}

fn file_of(bytes: usize) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![7; bytes]).unwrap();
    file
}

#[test]
fn calls_of_a_program_are_seen() {
    let file = file_of(300_000);
    let path = file.path().to_str().unwrap();
    let (outcome, seen) = observe(&["sh", "-c", "exec cat \"$0\" > /dev/null", path]);
    assert_eq!(outcome.exit.code, Some(0));
    assert_eq!(seen.on(Op::Open, file.path()).len(), 1);
    let bytes: u64 = seen.on(Op::Read, file.path()).iter().map(Seen::bytes).sum();
    assert_eq!(bytes, 300_000);
    assert_eq!((seen.starts.len(), seen.ends.len()), (2, 2));
    let (_, end) = seen.ends.iter().find(|(process, _)| *process == 1).unwrap();
    assert_eq!(end.data.reads.bytes, 300_000);
    assert!(outcome.recorded_bytes >= 300_000);
    assert!(seen.starts[1].command.starts_with("cat "), "{:?}", seen.starts);
    assert!(seen.texts.iter().any(|(kind, _, text)| *kind == TextKind::Path && text == path));
}

#[test]
fn the_exit_code_and_the_signal_are_kept() {
    assert_eq!(observe(&["sh", "-c", "exit 7"]).0.exit.code, Some(7));
    let (outcome, seen) = observe(&["sh", "-c", "kill -9 $$"]);
    assert_eq!((outcome.exit.code, outcome.exit.signal), (None, Some(9)));
    assert_eq!(seen.ends[0].1.signal, Some(9));
}

#[test]
fn a_missing_command_has_the_exit_code_of_a_shell() {
    let error = attempt(&["/nonexistent/program"]).0.unwrap_err();
    assert_eq!(error.exit_code(), Some(127), "{error}");
    let file = file_of(10);
    let error = attempt(&[file.path().to_str().unwrap()]).0.unwrap_err();
    assert_eq!(error.exit_code(), Some(126), "{error}");
    assert!(matches!(attempt(&[]).0, Err(SourceError::NoCommand)));
}
