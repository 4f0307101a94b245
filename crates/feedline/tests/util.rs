//! A folder per test, and commands that run in it. A failed check shows the command, the content of its folder, its
//! status and its output. A command that hangs is killed and fails the test.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use model::plan::Medium;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

/// Commands of these tests take a few seconds at most; the limit allows for a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The id of an unprivileged user and group. Permissions are checked for it even if the tests run as root.
const UNPRIVILEGED: u32 = 65534;

/// Rules that a busy machine can fail: it lags behind the accelerators' timeline.
const OF_THE_HOST: [&str; 4] = ["on-time", "client-not-the-limit", "agreement", "clocks"];

/// The I/O backends that hold files, without those that inject faults.
pub(crate) fn file_stores() -> impl Iterator<Item = &'static str> {
    let rows = store::BACKENDS.rows.iter();
    rows.filter(|row| row.medium == Medium::Storage && !row.injects_faults).map(|row| row.name)
}

/// The backends among them that can hold checkpoints.
pub(crate) fn tier_stores() -> impl Iterator<Item = &'static str> {
    let holds = |name: &&str| store::BACKENDS.rows.iter().any(|row| row.name == *name && row.tier.is_some());
    file_stores().filter(holds)
}

/// A workload that runs in milliseconds: 24 npz files of one sample each.
pub(crate) const SMALL: &str = "\
framework: pytorch
dataset:
  format: npz
  data_folder: data
  num_files_train: 24
  num_samples_per_file: 1
  record_length_bytes: 4096
reader:
  data_loader: pytorch
  batch_size: 2
  read_threads: 2
  file_shuffle: seed
train:
  epochs: 2
  computation_time: 0
";

/// Settings with which `SMALL` can be read as tfrecord.
pub(crate) const TENSORFLOW: [&str; 2] = ["framework=tensorflow", "reader.data_loader=tensorflow"];

/// A transformer whose checkpoints have a few MB: framework, model and workflow of a workload without training.
pub(crate) const TINY_MODEL: &str = "
framework: pytorch
model:
  name: tiny
  type: transformer
  num_layers: 2
  parallelism: {zero_stage: 3}
  transformer: {vocab_size: 1000, hidden_size: 128, ffn_hidden_size: 256, num_attention_heads: 8, num_kv_heads: 8}
workflow: {train: false, checkpoint: true}
";

/// A folder that is removed with everything in it.
pub(crate) struct Dir {
    folder: TempDir,
}

impl Dir {
    pub(crate) fn new() -> Dir {
        let folder = tempfile::Builder::new().prefix("feedline-test-").tempdir().unwrap();
        // Other users must be able to reach the files below.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Dir { folder }
    }

    /// A folder with the workload `SMALL` as `w.yaml`.
    pub(crate) fn small() -> Dir {
        let dir = Dir::new();
        dir.write("w.yaml", SMALL);
        dir
    }

    /// The same with its data set.
    pub(crate) fn small_with_data() -> Dir {
        let dir = Dir::small();
        dir.feedline(&["generate", "w.yaml", "--quiet"]).run().exits(0);
        dir
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.path(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }

    pub(crate) fn set_mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Everything in the folder: relative path and size, folders with a slash and without one.
    pub(crate) fn listing(&self) -> Vec<String> {
        listing(self.folder.path())
    }

    /// Every file below `name` with its content.
    pub(crate) fn tree(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        let root = self.path(name);
        let mut files = BTreeMap::new();
        walk(&root, &mut |path| {
            let name = relative(&root, path);
            if path.is_file() && !name.split('/').any(|part| part.starts_with('.')) {
                files.insert(name, fs::read(path).unwrap());
            }
        });
        files
    }

    /// The finished result folders, by path relative to this folder.
    pub(crate) fn results(&self) -> Vec<String> {
        self.results_below("feedline-results")
    }

    pub(crate) fn results_below(&self, name: &str) -> Vec<String> {
        let mut found = Vec::new();
        walk(&self.path(name), &mut |path| {
            if path.ends_with("summary.json") {
                found.push(relative(self.folder.path(), path.parent().unwrap()));
            }
        });
        found
    }

    /// The only result.
    pub(crate) fn result(&self) -> String {
        let results = self.results();
        assert_eq!(results.len(), 1, "{results:?}");
        results[0].clone()
    }

    /// Fails if there is a temporary file or folder.
    pub(crate) fn has_no_leftovers(&self) {
        for line in self.listing() {
            assert!(!line.contains(".partial"), "left behind: {line}");
        }
    }

    pub(crate) fn feedline(&self, args: &[&str]) -> Cmd<'_> {
        self.command(Path::new(env!("CARGO_BIN_EXE_feedline")), args)
    }

    /// The program as an unprivileged user. It is copied to where that user can reach it.
    pub(crate) fn feedline_unprivileged(&self, args: &[&str]) -> Cmd<'_> {
        let copy = self.path("feedline");
        fs::copy(env!("CARGO_BIN_EXE_feedline"), &copy).unwrap();
        let mut command = self.command(&copy, args);
        if rustix::process::geteuid().is_root() {
            command.command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        command
    }

    /// A script of tests/python, run with the interpreter of scripts/test.
    pub(crate) fn python(&self, script: &str, args: &[&str]) -> Cmd<'_> {
        let python = std::env::var("FEEDLINE_TEST_PYTHON").expect(
            "FEEDLINE_TEST_PYTHON is not set: run scripts/test, which creates the virtual environment",
        );
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python").join(script);
        let mut command = self.command(Path::new(&python), &[script.to_str().unwrap()]);
        command.command.env("FEEDLINE_TEST_PROGRAM", env!("CARGO_BIN_EXE_feedline"));
        // Without compiled copies next to the scripts, and without TensorFlow's messages on stderr.
        command.command.env("PYTHONDONTWRITEBYTECODE", "1").env("TF_CPP_MIN_LOG_LEVEL", "3");
        command.command.env("TF_ENABLE_ONEDNN_OPTS", "0").env("CUDA_VISIBLE_DEVICES", "-1");
        command.args(args)
    }

    pub(crate) fn command(&self, program: &Path, args: &[&str]) -> Cmd<'_> {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.folder.path()).stdin(Stdio::null());
        Cmd { command, dir: self }
    }
}

/// A command that has not been started.
pub(crate) struct Cmd<'a> {
    command: Command,
    dir: &'a Dir,
}

impl<'a> Cmd<'a> {
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Adds `--set KEY=VALUE` for each.
    pub(crate) fn set(mut self, settings: &[&str]) -> Self {
        for setting in settings {
            self.command.args(["--set", setting]);
        }
        self
    }

    /// The same under strace, which writes these system calls of all threads to a file in the folder.
    pub(crate) fn traced(self, calls: &str, into: &str) -> Self {
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-s", "0", "-o", into, "-e", &format!("trace={calls}"), "--"]);
        command.arg(self.command.get_program()).args(self.command.get_args());
        let set = self.command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        command.envs(set).current_dir(self.dir.folder.path()).stdin(Stdio::null());
        Cmd { command, dir: self.dir }
    }

    pub(crate) fn run(self) -> Done {
        self.start().wait()
    }

    pub(crate) fn start(mut self) -> Running<'a> {
        let shown = format!("{:?}", self.command);
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
        let stdout = drain(child.stdout.take().unwrap());
        let stderr = drain(child.stderr.take().unwrap());
        Running { child, stdout, stderr, shown, dir: self.dir }
    }
}

fn drain(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// A running command.
pub(crate) struct Running<'a> {
    child: Child,
    stdout: JoinHandle<Vec<u8>>,
    stderr: JoinHandle<Vec<u8>>,
    shown: String,
    dir: &'a Dir,
}

impl Running<'_> {
    /// Waits until a thread with this name exists: `reader` during training, `writer` during generation. Signal
    /// handlers are installed by then.
    pub(crate) fn until_thread(&mut self, name: &str) {
        let first = self.child.id();
        self.until(&format!("a thread '{name}'"), || {
            let Some(worker) = worker_of(first) else { return false };
            let Ok(entries) = fs::read_dir(format!("/proc/{worker}/task")) else { return false };
            entries.flatten().any(|task| {
                fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
            })
        });
    }

    /// Waits until `seen` returns true; fails if the command ends before that or takes too long.
    pub(crate) fn until(&mut self, what: &str, mut seen: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !seen() {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{} ended ({ended:?}) before {what} was seen", self.shown);
            assert!(begin.elapsed() < TIME_LIMIT, "{}: {what} was not seen in time", self.shown);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until `seen` returns true or the command has ended. Returns whether it has.
    pub(crate) fn until_or_end(&mut self, mut seen: impl FnMut() -> bool) -> bool {
        while self.child.try_wait().unwrap().is_none() {
            if seen() {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        true
    }

    /// The process that was started.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn wait(self) -> Done {
        self.wait_for(TIME_LIMIT)
    }

    /// Whether the command ends in time.
    pub(crate) fn ends_within(&mut self, limit: Duration) -> bool {
        let begin = Instant::now();
        loop {
            match self.child.try_wait().unwrap() {
                Some(_) => return true,
                None if begin.elapsed() > limit => return false,
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Waits for the end. A command that does not end in time is killed and fails the test.
    pub(crate) fn wait_for(mut self, limit: Duration) -> Done {
        let begin = Instant::now();
        let mut hung = false;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > limit {
                hung = true;
                self.child.kill().unwrap();
                break self.child.wait().unwrap();
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let text = |stream: JoinHandle<Vec<u8>>| String::from_utf8(stream.join().unwrap()).unwrap();
        let done = Done {
            status,
            stdout: text(self.stdout),
            stderr: text(self.stderr),
            shown: self.shown,
            cwd: self.dir.folder.path().to_owned(),
            listing: self.dir.listing(),
        };
        if hung {
            done.fail(&format!("did not end within {} s", limit.as_secs()));
        }
        done
    }
}

/// The worker process of the process that was started, once it exists.
pub(crate) fn worker_of(first: u32) -> Option<u32> {
    let is_child = |process: &u32| {
        let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
        // `id (name) state parent ..`; the name can contain any character.
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        parent == Some(first.to_string().as_str())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_child)
}

/// A command that has ended.
pub(crate) struct Done {
    status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    shown: String,
    cwd: PathBuf,
    listing: Vec<String>,
}

impl Done {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The signal that ended it, if one did.
    pub(crate) fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Done {
        if self.code() != Some(code) {
            self.fail(&format!("expected exit code {code}"));
        }
        self
    }

    /// Checks that a run completed. Only rules about timing may fail: a busy machine lags behind the accelerators'
    /// timeline.
    #[track_caller]
    pub(crate) fn ran(self) -> Done {
        let of_the_host = |rule: &String| OF_THE_HOST.contains(&rule.as_str());
        let late = self.code() == Some(5) && self.failed_rules().iter().all(of_the_host);
        if self.code() != Some(0) && !late {
            self.fail("expected a completed run");
        }
        self
    }

    /// Checks that a run with `--json` is *valid* if the machine kept up: all other rules were checked, and none
    /// failed.
    #[track_caller]
    pub(crate) fn valid_if_on_time(self) -> Done {
        let verdict = self.json()["feedline"]["verdict"].clone();
        let rules = verdict["rules"].as_array().unwrap().iter();
        let (late, other): (Vec<_>, Vec<_>) = rules
            .filter(|finding| finding["outcome"] != "pass" && finding["outcome"] != "note")
            .partition(|finding| OF_THE_HOST.contains(&finding["rule"].as_str().unwrap()));
        if !other.is_empty() || late.is_empty() && verdict["status"] != "valid" {
            self.fail(&format!("expected a valid run: {verdict:#}"));
        }
        if late.is_empty() { self.exits(0) } else { self.ran() }
    }

    /// The rules that failed according to the result on stdout, text or JSON.
    pub(crate) fn failed_rules(&self) -> Vec<String> {
        if let Ok(summary) = serde_json::from_str::<Value>(&self.stdout) {
            let rules = summary["feedline"]["verdict"]["rules"].as_array().unwrap();
            let failed = rules.iter().filter(|finding| finding["outcome"] == "fail");
            return failed.map(|finding| finding["rule"].as_str().unwrap().to_owned()).collect();
        }
        let failed = self.stdout.lines().filter_map(|line| line.split_once(" (failed): "));
        failed.map(|(rule, _)| rule.trim().to_owned()).collect()
    }

    /// Checks that stderr contains the text.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Done {
        if !self.stderr.contains(text) {
            self.fail(&format!("expected on stderr: {text}"));
        }
        self
    }

    /// Checks that stdout contains the text.
    #[track_caller]
    pub(crate) fn prints(self, text: &str) -> Done {
        if !self.stdout.contains(text) {
            self.fail(&format!("expected on stdout: {text}"));
        }
        self
    }

    /// Checks that stderr has exactly one error and no sign of a crash.
    #[track_caller]
    pub(crate) fn one_error(self) -> Done {
        let errors = self.stderr.lines().filter(|line| line.starts_with("error: ")).count();
        if errors != 1 || self.stderr.contains("panicked") || self.stderr.contains("RUST_BACKTRACE") {
            self.fail(&format!("expected one error, found {errors}"));
        }
        self
    }

    #[track_caller]
    pub(crate) fn silent(self) -> Done {
        if !self.stderr.is_empty() {
            self.fail("expected nothing on stderr");
        }
        self
    }

    /// Stdout as JSON; it must not contain anything else.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        match serde_json::from_str(&self.stdout) {
            Ok(value) => value,
            Err(error) => self.fail(&format!("stdout is not JSON: {error}")),
        }
    }

    #[track_caller]
    pub(crate) fn fail(&self, why: &str) -> ! {
        let mut report = format!("{why}\n");
        let line = "-".repeat(80);
        let _ = writeln!(report, "{line}\n{}\nin {}", self.shown, self.cwd.display());
        let _ = writeln!(report, "{line}\n{}", self.status);
        let _ = writeln!(report, "{line}\nstdout:\n{}", self.stdout);
        let _ = writeln!(report, "{line}\nstderr:\n{}", self.stderr);
        let shown = self.listing.iter().take(60).map(String::as_str).collect::<Vec<_>>().join("\n");
        let _ = writeln!(report, "{line}\n{} entries in the folder:\n{shown}\n{line}", self.listing.len());
        panic!("{report}");
    }
}

/// Calls `f` for everything below `folder`, parents first, sorted by name. A missing folder counts as empty.
pub(crate) fn walk(folder: &Path, f: &mut impl FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        f(&path);
        if path.is_dir() && !path.is_symlink() {
            walk(&path, f);
        }
    }
}

pub(crate) fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap().to_string_lossy().into_owned()
}

fn listing(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    walk(folder, &mut |path| {
        let name = relative(folder, path);
        // Another command may be removing it.
        let Ok(facts) = fs::symlink_metadata(path) else { return };
        lines.push(if facts.is_dir() { format!("{name}/") } else { format!("{name} {}", facts.len()) });
    });
    lines
}

/// The outcome of a rule in a summary: `pass`, `fail` or `not-checkable`.
pub(crate) fn outcome(summary: &Value, rule: &str) -> String {
    let rules = summary["feedline"]["verdict"]["rules"].as_array().unwrap();
    let found = rules.iter().find(|finding| finding["rule"] == rule);
    found.unwrap_or_else(|| panic!("no rule {rule}"))["outcome"].as_str().unwrap().to_owned()
}
