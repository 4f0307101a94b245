//! Runs real jobs with a sink that collects.

mod faults;

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::{JobEnd, Options, SourceError, run};
use crate::event::{
    EventSink, MissedFaults, PageFault, ProcessEnd, ProcessIndex, ProcessStart, Sample, SeenCall,
};
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
    events: Vec<(ProcessIndex, SeenCall)>,
    texts: Vec<(TextKind, u64, String)>,
    samples: Vec<Sample>,
    faults: Vec<(ProcessIndex, PageFault)>,
    missed: Vec<MissedFaults>,
    ends: Vec<(ProcessIndex, ProcessEnd)>,
    last_ns: u64,
}

impl Collected {
    fn at(&mut self, at_ns: u64) {
        assert!(at_ns >= self.last_ns, "{at_ns} after {}", self.last_ns);
        self.last_ns = at_ns;
    }

    fn of(&self, op: Op) -> Vec<SeenCall> {
        self.events.iter().map(|(_, event)| *event).filter(|event| event.op == op).collect()
    }

    /// Events on the file with this inode.
    fn on(&self, op: Op, path: &Path) -> Vec<SeenCall> {
        let inode = std::os::unix::fs::MetadataExt::ino(&path.metadata().unwrap());
        self.of(op).into_iter().filter(|event| event.file == inode).collect()
    }
}

impl EventSink for Collected {
    fn process(&mut self, start: &ProcessStart) {
        self.at(start.start_ns);
        self.starts.push(start.clone());
    }
    fn event(&mut self, process: ProcessIndex, event: &SeenCall) {
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
    fn fault(&mut self, process: ProcessIndex, fault: &PageFault) {
        assert!(process < self.starts.len());
        assert!(self.ends.iter().all(|(ended, _)| *ended != process));
        self.at(fault.at_ns);
        self.faults.push((process, *fault));
    }
    fn faults_missed(&mut self, missed: &MissedFaults) {
        self.missed.push(*missed);
    }
    fn end(&mut self, process: ProcessIndex, end: &ProcessEnd) {
        self.ends.push((process, end.clone()));
    }
    fn sample_bits(&self) -> u32 {
        0
    }
}

fn attempt(command: &[&str]) -> (Result<JobEnd, SourceError>, Collected) {
    let _alone = alone();
    let options = Options { command: command.iter().map(OsString::from).collect(), marks: true };
    let mut collected = Collected::default();
    let outcome = run(&options, &mut collected, &mut |_| {});
    (outcome, collected)
}

fn observe(command: &[&str]) -> (JobEnd, Collected) {
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
    let bytes: u64 = seen.on(Op::Read, file.path()).iter().map(SeenCall::bytes).sum();
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

/// Runs Python code with `path` as its argument.
fn python(code: &str, path: &str) -> (JobEnd, Collected) {
    // `python3` itself can be a script that starts dozens of programs.
    static PYTHON: OnceLock<String> = OnceLock::new();
    let python = PYTHON.get_or_init(|| {
        let _alone = alone();
        let code = "import sys; print(sys.executable)";
        let output = std::process::Command::new("python3").args(["-c", code]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    });
    observe(&[python, "-c", code, path])
}

#[test]
fn processes_of_all_kinds_are_seen_with_exact_counts() {
    let file = file_of(100_000);
    let code = "\
import os, subprocess, sys
def read(n):
    for i in range(n):
        fd = os.open(sys.argv[1], os.O_RDONLY)
        os.pread(fd, 4096, 8192)
        os.close(fd)
read(10)
for n in range(3):
    if os.fork() == 0:
        read(1000)
        os._exit(0)
for n in range(3):
    os.wait()
subprocess.run([sys.executable, '-S', '-c', 'import sys; open(sys.argv[1]).read()', sys.argv[1]], env={})
";
    let (outcome, seen) = python(code, file.path().to_str().unwrap());
    assert_eq!(outcome.exit.code, Some(0));
    assert_eq!(seen.on(Op::Open, file.path()).len(), 3011);
    let preads = seen.on(Op::Read, file.path()).into_iter().filter(|event| event.offset == 8192);
    assert_eq!(preads.map(|event| event.bytes()).sum::<u64>(), 3010 * 4096);
    let forks: Vec<_> = seen.starts.iter().filter(|start| !start.executed).collect();
    assert_eq!(forks.len(), 3);
    assert_eq!(seen.ends.len(), seen.starts.len());
    let read = seen.ends.iter().map(|(_, end)| end.data.reads.bytes).sum::<u64>();
    assert_eq!(read, 3010 * 4096 + 100_000);
    assert!(seen.ends.iter().all(|(_, end)| end.events_dropped == 0));
    assert_eq!(outcome.unseen, []);
    // What the loader of programs reads is not recorded.
    let copied = outcome.copied_bytes.unwrap();
    assert!(outcome.recorded_bytes <= copied, "{} of {copied}", outcome.recorded_bytes);
    assert!(outcome.recorded_bytes * 10 > copied * 9, "{} of {copied}", outcome.recorded_bytes);
}

#[test]
fn a_killed_process_leaves_its_events() {
    let file = file_of(1000);
    let code = "\
import os, signal, sys
for i in range(100):
    fd = os.open(sys.argv[1], os.O_RDONLY)
    os.read(fd, 10)
os.kill(os.getpid(), signal.SIGKILL)
";
    let (outcome, seen) = python(code, file.path().to_str().unwrap());
    assert_eq!(outcome.exit.signal, Some(9));
    assert_eq!(seen.on(Op::Read, file.path()).len(), 100);
    assert_eq!(seen.ends.last().unwrap().1.signal, Some(9));
}

#[test]
fn signals_of_other_processes_are_forwarded_once() {
    let code = "\
import os, signal, sys, time
got = []
signal.signal(signal.SIGTERM, lambda *_: got.append(1))
signal.signal(signal.SIGUSR1, lambda *_: got.append(2))
# A process of its own sends them, as the parent of feedline would.
os.system('kill -USR1 %d; kill -TERM %d' % (os.getppid(), os.getppid()))
end = time.monotonic() + 20
while len(got) < 2 and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.1)
sys.exit(40 + len(got))
";
    assert_eq!(python(code, "").0.exit.code, Some(42));
}

#[test]
fn a_job_without_a_handler_ends_by_a_forwarded_signal() {
    let (outcome, _) = observe(&["sh", "-c", "(kill -TERM $PPID); sleep 20"]);
    // The subshell has the same parent, and the shell itself does not get its own signal back.
    assert_eq!((outcome.exit.code, outcome.exit.signal), (None, Some(15)));
}

#[test]
fn samples_follow_the_processes() {
    let code = "\
import os, sys, time
end = time.monotonic() + 0.5
while time.monotonic() < end:
    fd = os.open(sys.argv[1], os.O_RDONLY)
    os.read(fd, 10)
    os.close(fd)
";
    let file = file_of(1000);
    let (outcome, seen) = python(code, file.path().to_str().unwrap());
    let of_processes: Vec<_> = seen.samples.iter().flat_map(|sample| &sample.processes).collect();
    assert!(of_processes.iter().all(|sample| sample.process < seen.starts.len() && sample.threads == 1));
    assert!(of_processes.windows(2).all(|two| two[0].cpu_ns <= two[1].cpu_ns));
    assert!(of_processes.last().unwrap().cpu_ns > 0);
    assert!(of_processes.iter().any(|sample| sample.memory.is_some()));
    let issued: Vec<_> = seen.samples.iter().filter_map(|sample| sample.issued_bytes).collect();
    assert!(issued.len() >= 2 && issued.is_sorted(), "{issued:?}");
    assert!(outcome.host.cores >= Some(1));
}

/// Compiles a C program.
fn compiled(source: &str, options: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program.c");
    std::fs::write(&path, source).unwrap();
    let mut command = std::process::Command::new("cc");
    command.args(options).arg("-o").arg(folder.path().join("program")).arg(path);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}

#[test]
fn a_static_program_is_named() {
    let source = "#include <unistd.h>\nint main(int n, char **v) { if (n > 1) usleep(700000); return 0; }";
    let folder = compiled(source, &["-static"]);
    let program = folder.path().join("program");
    let program = program.to_str().unwrap();
    // Found while it runs, as the job itself and as a child.
    for command in [&[program, "long"][..], &["sh", "-c", "$0 long; true", program]] {
        let (outcome, _) = observe(command);
        let [unseen] = &outcome.unseen[..] else { panic!("{:?}", outcome.unseen) };
        assert_eq!(unseen.reason, "statically linked");
        assert!(unseen.command.contains("program"), "{unseen:?}");
    }
    // Too short for that, but its start is seen.
    let (outcome, _) = python("import subprocess, sys; subprocess.run([sys.argv[1]])", program);
    let [unseen] = &outcome.unseen[..] else { panic!("{:?}", outcome.unseen) };
    assert_eq!((unseen.reason.as_str(), unseen.command.as_str()), ("statically linked", program));
}

#[test]
fn a_process_that_outlives_the_job_is_named() {
    let (outcome, seen) = observe(&["sh", "-c", "sleep 3 & true"]);
    assert_eq!(outcome.exit.code, Some(0));
    let [unseen] = &outcome.unseen[..] else { panic!("{:?}", outcome.unseen) };
    assert_eq!(
        (unseen.command.as_str(), unseen.reason.as_str()),
        ("sleep 3", "still running after the end of the job")
    );
    assert_eq!(seen.starts.len(), seen.ends.len());
    // So that it does not count in the next test.
    let pid = i32::try_from(unseen.pid).unwrap();
    // SAFETY: a child of this process, since that of the shell ended.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}

#[test]
fn orphans_are_waited_for() {
    let code = "\
import os, sys, time
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(0.2)
        os.read(os.open(sys.argv[1], os.O_RDONLY), 1000)
    os._exit(0)
os.wait()
";
    let file = file_of(1000);
    let (outcome, seen) = python(code, file.path().to_str().unwrap());
    assert_eq!(seen.on(Op::Read, file.path()).len(), 1);
    assert_eq!(outcome.unseen, []);
}

/// Overwrites the memory that it shares with feedline, as an error of a program could, and tries to make it shorter.
#[test]
fn a_job_that_overwrites_its_slot_ends_as_usual() {
    let code = "\
import mmap, os
fd = os.open(os.environ['FEEDLINE_AUDIT_RING'], os.O_RDWR)
try:
    os.ftruncate(fd, 0)
except PermissionError:
    pass
memory = mmap.mmap(fd, 8 << 20)
memory[32768:] = os.urandom((8 << 20) - 32768)
raise SystemExit(5)
";
    let (outcome, seen) = python(code, "");
    assert_eq!(outcome.exit.code, Some(5));
    assert!(seen.ends.len() <= seen.starts.len());
}
