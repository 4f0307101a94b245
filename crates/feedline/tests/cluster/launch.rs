//! The launchers of the MPI libraries that scripts/test installs, and the processes that they start.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::util::{Cmd, Dir, Done, Running};

/// A job that starts, works and ends on a busy machine takes less.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// An MPI library with its launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mpi {
    OpenMpi4,
    OpenMpi5,
    Mpich,
}

impl Mpi {
    pub(crate) const ALL: [Mpi; 3] = [Mpi::OpenMpi4, Mpi::OpenMpi5, Mpi::Mpich];

    /// The virtual environment of a library that is installed in one.
    fn environment(self) -> Option<PathBuf> {
        let name = match self {
            Mpi::OpenMpi4 => return None,
            Mpi::OpenMpi5 => "FEEDLINE_TEST_OPENMPI",
            Mpi::Mpich => "FEEDLINE_TEST_MPICH",
        };
        let folder = std::env::var(name);
        Some(
            folder
                .unwrap_or_else(|_| panic!("{name} is not set: run scripts/test, which installs it"))
                .into(),
        )
    }

    fn launcher(self) -> PathBuf {
        let bin = self.environment().map(|folder| folder.join("bin"));
        match self {
            // The name of Debian's package, which may be installed next to another MPI.
            Mpi::OpenMpi4 => "mpirun.openmpi".into(),
            Mpi::OpenMpi5 => bin.unwrap().join("mpirun"),
            Mpi::Mpich => bin.unwrap().join("mpiexec"),
        }
    }

    /// The folder of the library; `None`: the system's.
    pub(crate) fn library_folder(self) -> Option<PathBuf> {
        self.environment().map(|folder| folder.join("lib"))
    }

    /// Arguments of the launcher for this many processes, more than there are cores if need be.
    fn arguments(self, processes: u64) -> Vec<String> {
        let processes = processes.to_string();
        let words: &[&str] = match self {
            Mpi::OpenMpi4 => &["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"],
            // These transports start faster than those of the default.
            Mpi::OpenMpi5 => &[
                "--allow-run-as-root",
                "--map-by",
                ":OVERSUBSCRIBE",
                "--bind-to",
                "none",
                "--mca",
                "pml",
                "ob1",
                "--mca",
                "btl",
                "self,sm,tcp",
                "-n",
            ],
            Mpi::Mpich => &["-bind-to", "none", "-n"],
        };
        words.iter().copied().chain([processes.as_str()]).map(str::to_owned).collect()
    }

    /// The environment variable that has the number of a process.
    fn rank_variable(self) -> &'static str {
        match self {
            Mpi::OpenMpi4 | Mpi::OpenMpi5 => "OMPI_COMM_WORLD_RANK",
            Mpi::Mpich => "PMI_RANK",
        }
    }

    /// `feedline` in this many processes on this host.
    pub(crate) fn feedline<'a>(self, dir: &'a Dir, processes: u64, args: &[&str]) -> Job<'a> {
        self.job(dir, &self.arguments(processes), args)
    }

    /// The same, with the exit code of each process in a file of the folder (see `exit_codes`).
    pub(crate) fn feedline_with_codes<'a>(self, dir: &'a Dir, processes: u64, args: &[&str]) -> Job<'a> {
        let script = CODES.replace("RANK", self.rank_variable());
        dir.write("with-codes", script.replace("FEEDLINE", env!("CARGO_BIN_EXE_feedline")));
        dir.set_mode("with-codes", 0o755);
        let _ = fs::remove_dir_all(dir.path("codes"));
        fs::create_dir(dir.path("codes")).unwrap();
        let program = dir.path("with-codes");
        self.program(dir, &self.arguments(processes), program.to_str().unwrap(), args)
    }

    /// Process 0 of feedline with these arguments, and process 1 of this program with its own.
    pub(crate) fn two_programs<'a>(
        self,
        dir: &'a Dir,
        first: &[&str],
        program: &str,
        second: &[&str],
    ) -> Job<'a> {
        let second: Vec<&str> = [":", "-n", "1", program].into_iter().chain(second.iter().copied()).collect();
        self.job(dir, &self.arguments(1), &[first, &second].concat())
    }

    /// `feedline`, started by the launcher with these arguments.
    pub(super) fn job<'a>(self, dir: &'a Dir, arguments: &[String], args: &[&str]) -> Job<'a> {
        self.program(dir, arguments, env!("CARGO_BIN_EXE_feedline"), args)
    }

    /// The same for a program that runs `feedline`.
    fn program<'a>(self, dir: &'a Dir, arguments: &[String], program: &str, args: &[&str]) -> Job<'a> {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let command = dir.command(&self.launcher(), &arguments);
        let mark = mark();
        let command = command.args(&[program]).args(args).env(MARK, &mark);
        let command = match self.library_folder() {
            Some(folder) => command.env("LD_LIBRARY_PATH", folder),
            None => command,
        };
        Job { mpi: self, command, mark }
    }
}

/// Runs feedline and keeps its exit code. A signal of the launcher must not end the script before that.
const CODES: &str = r#"#!/bin/sh
trap : TERM INT
"FEEDLINE" "$@" &
while :; do
    wait $!
    code=$?
    kill -0 $! 2>/dev/null || break
done
echo $code >codes/$RANK
exit $code
"#;

/// The exit codes of the processes that ended by themselves, by their numbers.
pub(crate) fn exit_codes(dir: &Dir) -> BTreeMap<String, String> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim().to_owned();
    dir.tree("codes").into_iter().map(|(rank, code)| (rank, text(code))).collect()
}

/// The environment variable by which the processes of a job are found, on all hosts.
const MARK: &str = "FEEDLINE_TEST_JOB";

/// A value that no other job on this machine has.
fn mark() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// A job that has not been started.
pub(crate) struct Job<'a> {
    mpi: Mpi,
    command: Cmd<'a>,
    mark: String,
}

impl<'a> Job<'a> {
    pub(crate) fn set(self, settings: &[&str]) -> Job<'a> {
        Job { command: self.command.set(settings), ..self }
    }

    pub(crate) fn env(self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Job<'a> {
        Job { command: self.command.env(name, value), ..self }
    }

    pub(crate) fn run(self) -> Done {
        self.start().wait()
    }

    pub(crate) fn start(self) -> RunningJob<'a> {
        let processes = JobProcesses { mpi: self.mpi, mark: self.mark };
        let guard = KillGuard(processes.clone());
        RunningJob { running: self.command.start(), processes, _guard: guard }
    }
}

/// A running job. What is left of it is killed when it is dropped.
pub(crate) struct RunningJob<'a> {
    running: Running<'a>,
    pub processes: JobProcesses,
    _guard: KillGuard,
}

/// Kills all processes of a job when it is dropped.
struct KillGuard(JobProcesses);

impl Drop for KillGuard {
    fn drop(&mut self) {
        self.0.kill_all();
    }
}

impl RunningJob<'_> {
    /// The launcher.
    pub(crate) fn id(&self) -> u32 {
        self.running.id()
    }

    /// Sends a signal to the launcher.
    pub(crate) fn signal(&self, signal: Signal) {
        self.running.signal(signal);
    }

    /// Waits until `seen` returns true; fails if the job ends before that or takes too long.
    pub(crate) fn until(&mut self, what: &str, seen: impl FnMut() -> bool) {
        self.running.until(what, seen);
    }

    /// Waits until every worker of these processes has a thread with this name.
    pub(crate) fn until_threads(&mut self, ranks: std::ops::Range<u64>, name: &str) {
        let processes = self.processes.clone();
        self.until(&format!("a thread '{name}' in each process"), || {
            ranks.clone().all(|rank| processes.worker(rank).is_some_and(|worker| has_thread(worker, name)))
        });
    }

    /// Whether the launcher ends in time.
    pub(crate) fn ends_within(&mut self, limit: Duration) -> bool {
        self.running.ends_within(limit)
    }

    pub(crate) fn wait(self) -> Done {
        self.wait_for(LIMIT)
    }

    /// Waits for the end of the launcher. If it does not end in time, all processes are killed, so that none of them
    /// holds its output open.
    pub(crate) fn wait_for(self, limit: Duration) -> Done {
        let processes = self.processes.clone();
        std::thread::spawn(move || {
            std::thread::sleep(limit + Duration::from_millis(200));
            processes.kill_all();
        });
        self.running.wait_for(limit)
    }
}

/// The processes of a job, on all hosts.
#[derive(Clone)]
pub(crate) struct JobProcesses {
    mpi: Mpi,
    mark: String,
}

impl JobProcesses {
    /// Every process of the job, launcher and helpers included, with its environment.
    fn all(&self) -> Vec<(u32, String)> {
        let mark = format!("{MARK}={}", self.mark);
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let marked = processes.filter_map(|process: u32| {
            let environment = fs::read(format!("/proc/{process}/environ")).ok()?;
            let environment = String::from_utf8_lossy(&environment).into_owned();
            environment.split('\0').any(|variable| variable == mark).then_some((process, environment))
        });
        marked.collect()
    }

    /// The process of feedline with this number that does the work, once it exists.
    pub(crate) fn worker(&self, rank: u64) -> Option<u32> {
        let own = self.feedlines(rank);
        own.iter().copied().find(|process| parent_of(*process).is_some_and(|parent| own.contains(&parent)))
    }

    /// The process of feedline with this number that the launcher started.
    pub(crate) fn supervisor(&self, rank: u64) -> Option<u32> {
        let own = self.feedlines(rank);
        own.iter().copied().find(|process| parent_of(*process).is_some_and(|parent| !own.contains(&parent)))
    }

    /// Whether the process with this number has joined the others.
    pub(crate) fn has_joined(&self, rank: u64) -> bool {
        self.worker(rank).is_some_and(|worker| has_thread(worker, "members"))
    }

    fn feedlines(&self, rank: u64) -> Vec<u32> {
        let number = format!("{}={rank}", self.mpi.rank_variable());
        let is_one = |environment: &str| environment.split('\0').any(|variable| variable == number);
        let all = self.all().into_iter().filter(|(_, environment)| is_one(environment));
        all.map(|(process, _)| process)
            .filter(|process| name_of(*process).as_deref() == Some("feedline"))
            .collect()
    }

    /// How many processes of feedline exist.
    pub(crate) fn count(&self) -> usize {
        let all = self.all().into_iter();
        all.filter(|(process, _)| name_of(*process).as_deref() == Some("feedline")).count()
    }

    /// Waits until no process of feedline exists; returns whether that happened in time.
    pub(crate) fn are_gone_within(&self, limit: Duration) -> bool {
        let begin = Instant::now();
        while self.count() > 0 {
            if begin.elapsed() > limit {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    pub(crate) fn kill_all(&self) {
        // The mark is in the environment of what the test started, not in that of the test.
        for (process, _) in self.all() {
            send(process, Signal::KILL);
        }
    }
}

/// Sends a signal to a process, which may have ended.
pub(crate) fn send(process: u32, signal: Signal) {
    let _ = rustix::process::kill_process(Pid::from_raw(process as i32).unwrap(), signal);
}

fn name_of(process: u32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{process}/comm")).ok()?.trim().to_owned())
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // `id (name) state parent ..`; the name can contain any character.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

fn has_thread(process: u32, name: &str) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else { return false };
    let is_named =
        |path: PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name);
    entries.flatten().any(|task| is_named(task.path()))
}
