//! Processes of a cluster, and its launcher, that are killed at random moments: while they start, generate, train,
//! save, drain, add up what they measured, and end. Every job ends in time and reports the process, no incomplete
//! result looks complete, no complete checkpoint is lost, and the next command continues.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::checkpoint_kills::{Standing, standing};
use crate::cluster::launch::{Mpi, RunningJob, send};
use crate::cluster::{restores, with_saving};
use crate::kills::{Chance, span};
use crate::util::{Dir, Done};

/// Kills per library; with `FEEDLINE_TEST_LONG` many more.
const KILLS: u64 = 10;
const MANY_KILLS: u64 = 100;

/// How long all processes may take to end: the stall timeout of these runs, and 15 s.
const LIMIT: Duration = Duration::from_secs(3 + 15);

const RUN: [&str; 7] = ["run", "w.yaml", "--no-calibration", "--ranks", "6", "--stall-timeout", "3s"];
/// 9 steps per epoch, with three checkpoints that are drained for most of the time.
const SETTINGS: [&str; 7] = [
    "reader.batch_size=6",
    "train.computation_time=0.02",
    "checkpoint.steps_between_checkpoints=3",
    "checkpoint.mode_of_save=burst-buffer",
    "checkpoint.burst_folder=fast",
    "checkpoint.drain_rate=40000000",
    "checkpoint.keep_last=3",
];

/// What is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Worker(u64),
    Supervisor(u64),
    Launcher,
}

impl Victim {
    const ALL: [Victim; 7] = [
        Victim::Worker(1),
        Victim::Supervisor(2),
        Victim::Worker(0),
        Victim::Launcher,
        Victim::Worker(2),
        Victim::Supervisor(0),
        Victim::Supervisor(1),
    ];

    /// Kills it; returns what it was at that moment, if it existed.
    fn kill(self, job: &RunningJob<'_>) -> Option<VictimState> {
        let processes = &job.processes;
        let (process, state) = match self {
            // Others can report only a process that they know.
            Victim::Worker(rank) if processes.has_joined(rank) => {
                (processes.worker(rank), VictimState::Member)
            }
            Victim::Worker(rank) => (processes.worker(rank), VictimState::Process),
            Victim::Supervisor(rank) => (processes.supervisor(rank), VictimState::Process),
            Victim::Launcher => (Some(job.id()).filter(|_| processes.count() > 0), VictimState::Launcher),
        };
        let process = process?;
        send(process, Signal::KILL);
        Some(state)
    }
}

/// What a process was when it was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VictimState {
    /// Process 0 or 1 reports it.
    Member,
    /// The launcher reports it: it has not joined the others yet, or is the process that the launcher started.
    Process,
    /// There is no process that could report it.
    Launcher,
}

/// A folder in which jobs are killed.
struct Site {
    dir: Dir,
    mpi: Mpi,
    chance: Chance,
    /// How long a job takes, about.
    span: Duration,
    killed: u64,
}

impl Site {
    fn new(mpi: Mpi) -> Site {
        let dir = with_saving();
        Site { dir, mpi, chance: Chance(17 + mpi as u64), span: Duration::ZERO, killed: 0 }
    }

    fn runs(&self) -> RunningJob<'_> {
        self.mpi.feedline(&self.dir, 3, &RUN).set(&SETTINGS).start()
    }

    /// Writes a data set of its own, or the rest of it.
    fn generates(&self) -> RunningJob<'_> {
        let args = ["generate", "w.yaml", "--quiet", "--data-dir", "other", "--stall-timeout", "3s"];
        self.mpi.feedline(&self.dir, 3, &args).set(&["dataset.num_files_train=3000"]).start()
    }

    /// Kills a process of a job at a random moment, and checks how the job ends.
    fn kill(&mut self, number: u64) {
        let victim = Victim::ALL[(number % 7) as usize];
        let generates = number % 5 == 4;
        let delay = self.chance.below(self.span);
        let mut job = if generates { self.generates() } else { self.runs() };
        let processes = job.processes.clone();
        std::thread::sleep(delay);
        let state = victim.kill(&job);
        let begin = Instant::now();
        let gone = processes.are_gone_within(LIMIT);
        let took = begin.elapsed();
        if state == Some(VictimState::Launcher) {
            // It leaves processes of its own, which hold the output open.
            processes.kill_all();
        }
        if gone && state == Some(VictimState::Process) && !job.ends_within(LIMIT) {
            // mpirun of Open MPI 4 waits forever for a process that was killed while it was connecting to mpirun. No
            // process of feedline is left that could end it.
            processes.kill_all();
            self.killed += 1;
            return;
        }
        let done = job.wait_for(LIMIT);
        if !gone {
            done.fail(&format!("{:?}: processes are left {took:.1?} after {victim:?} was killed", self.mpi));
        }
        if let Some(state) = state {
            self.killed += 1;
            is_reported(state, &done, &format!("{:?}: {victim:?} was killed", self.mpi));
        }
        self.span = self.span.mul_f64(if state.is_some() { 1.05 } else { 0.8 });
    }

    fn standing(&self) -> Vec<Standing> {
        ["ck", "fast"].iter().flat_map(|tier| standing(&self.dir.path(tier))).collect()
    }

    /// Every result is complete or says that it is not.
    fn results_are_honest(&self) {
        for result in self.dir.results() {
            let verdict = self.dir.json(&format!("{result}/summary.json"))["feedline"]["verdict"].clone();
            let ledger = self.dir.json(&format!("{result}/ledger.json"));
            let rows = ledger["ranks"].as_array().unwrap();
            let steps: u64 = rows.iter().filter_map(|row: &Value| row["seen"]["steps"].as_u64()).sum();
            let is_complete = steps == 2 * 6 * (9 + 5);
            assert!(is_complete || verdict["status"] == "incomplete", "{result}: {steps} steps, {verdict}");
        }
    }
}

/// A process that is killed after the result was printed changes at most the exit code.
fn is_reported(state: VictimState, done: &Done, what: &str) {
    let is_complete = done.stdout.contains("verdict: ") || done.code() == Some(0);
    let is_told = match state {
        VictimState::Member => done.stderr.contains("error: "),
        VictimState::Process => !done.stderr.is_empty() || !done.stdout.is_empty(),
        VictimState::Launcher => true,
    };
    if !is_complete && !is_told {
        done.fail(&format!("{what}, and nothing is reported"));
    }
    if done.stderr.contains("panicked") {
        done.fail(&format!("{what}, and another process panicked"));
    }
}

fn are_killed_at_random_moments(mpi: Mpi) {
    let mut site = Site::new(mpi);
    site.span = span(|| drop(site.runs().wait().ran()));
    let mut newest = site.standing().into_iter().max().unwrap();
    let kills = if std::env::var_os("FEEDLINE_TEST_LONG").is_some() { MANY_KILLS } else { KILLS };
    let mut number = 0;
    while site.killed < kills {
        site.kill(number);
        number += 1;
        assert!(number < 3 * kills, "{} of {number} kills were in time", site.killed);
        let now = site.standing().into_iter().max().unwrap();
        assert!(now.serial >= newest.serial, "{now:?} after {newest:?}");
        newest = now;
        if number % 4 == 0 {
            restores(&site.dir, "6", "ck", 1);
        }
    }
    site.results_are_honest();
    site.runs().wait().ran();
    site.generates().wait().exits(0);
    let verified = ["generate", "w.yaml", "--quiet", "--data-dir", "other", "--verify"];
    site.dir.feedline(&verified).set(&["dataset.num_files_train=3000"]).run().exits(0);
    site.dir.has_no_leftovers();
    assert_eq!(standing(&site.dir.path("fast")), []);
    restores(&site.dir, "6", "ck", 3);
}

#[test]
fn processes_are_killed_at_random_moments_under_open_mpi_4() {
    are_killed_at_random_moments(Mpi::OpenMpi4);
}

#[test]
fn processes_are_killed_at_random_moments_under_open_mpi_5() {
    are_killed_at_random_moments(Mpi::OpenMpi5);
}

#[test]
fn processes_are_killed_at_random_moments_under_mpich() {
    are_killed_at_random_moments(Mpi::Mpich);
}
