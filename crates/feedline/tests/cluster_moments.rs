//! A process of a cluster is killed, stopped or cut off at a chosen moment: during an epoch, while it waits for another
//! process, during a save and during a drain. All processes end in time, process 0 names the process and where it was,
//! there is no result, complete checkpoints can be restored, and the next run recovers.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::checkpoint_kills::{Standing, standing};
use crate::cluster::hosts::Hosts;
use crate::cluster::launch::{JobProcesses, Mpi, RunningJob, exit_codes, send};
use crate::cluster::{restores, with_saving};
use crate::util::{Dir, Done, walk};

/// How long all processes may take to end: the stall timeout of these runs, and 15 s.
const LIMIT: Duration = Duration::from_secs(3 + 15);

/// The process that fails.
const VICTIM: u64 = 1;

/// 9 steps of a tenth of a second, with checkpoints after steps 3, 6 and 9.
const RUN: [&str; 7] = ["run", "w.yaml", "--no-calibration", "--ranks", "6", "--stall-timeout", "3s"];
const SETTINGS: [&str; 3] =
    ["reader.batch_size=6", "train.computation_time=0.1", "checkpoint.steps_between_checkpoints=3"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Epoch,
    Barrier,
    Save,
    Drain,
}

impl Moment {
    const ALL: [Moment; 4] = [Moment::Epoch, Moment::Barrier, Moment::Save, Moment::Drain];

    /// What makes the moment long enough.
    fn settings(self) -> &'static [&'static str] {
        match self {
            Moment::Epoch | Moment::Barrier => &[],
            Moment::Save => &[r#"checkpoint.store="fault:posix,kind=delay,span=50ms,file=epoch1_step6""#],
            Moment::Drain => &[
                "checkpoint.mode_of_save=burst-buffer",
                "checkpoint.burst_folder=fast",
                "checkpoint.drain_rate=2000000",
                "train.computation_time=1",
            ],
        }
    }

    /// Waits for the moment.
    fn reach(self, job: &mut RunningJob<'_>, dir: &Dir) {
        let there = |name: &str| dir.path(name).exists();
        match self {
            Moment::Epoch | Moment::Barrier => {
                job.until("the first checkpoint", || there("new/global_epoch1_step3/checkpoint.json"));
            }
            Moment::Save => {
                job.until("the second save", || there("new/global_epoch1_step6/checkpoint.draft"));
            }
            Moment::Drain => job.until("a drain", || {
                there("fast/global_epoch1_step3/checkpoint.json")
                    && there("new/global_epoch1_step3/checkpoint.draft")
            }),
        }
    }

    /// Where the process was, in the message of process 0.
    fn place(self) -> &'static [&'static str] {
        match self {
            Moment::Epoch | Moment::Barrier => {
                &["in epoch 1 (train)", "the last it reached is epoch 1 (train), "]
            }
            Moment::Save => &["in epoch 1 (train)", "the last it reached is epoch 1 (train), step 6\n"],
            Moment::Drain => &["in epoch 1 (train)", "the last it reached is epoch 1 (train), "],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Kill,
    Stop,
    CutOff,
}

impl Blow {
    const ALL: [Blow; 3] = [Blow::Kill, Blow::Stop, Blow::CutOff];

    fn strike(self, processes: &JobProcesses, hosts: Option<&Hosts<'_>>) {
        match self {
            Blow::Kill => send(processes.worker(VICTIM).unwrap(), Signal::KILL),
            Blow::Stop => send(processes.worker(VICTIM).unwrap(), Signal::STOP),
            Blow::CutOff => hosts.unwrap().cut_off(VICTIM as usize),
        }
    }

    fn is_told(self, done: Done, host: &str) -> Done {
        let what = match self {
            Blow::Kill => "left before the run was complete",
            Blow::Stop | Blow::CutOff => "did not respond for 3.",
        };
        done.says(&format!("process {VICTIM} on {host} {what}"))
    }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn all_standing(dir: &Dir) -> Vec<Standing> {
    ["new", "fast"].iter().flat_map(|tier| standing(&dir.path(tier))).collect()
}

fn fails_at(mpi: Mpi, moment: Moment, blow: Blow) {
    let dir = with_saving();
    let before = if moment == Moment::Drain { vec![] } else { earlier(&dir) };
    let hosts = (blow == Blow::CutOff).then(|| Hosts::new(&dir, 3));
    let args = [&RUN[..], &["--checkpoint-dir", "new"]].concat();
    let job = match &hosts {
        Some(hosts) => hosts.feedline(mpi, 3, &args),
        // A launcher ends a process that is stopped, but not one that a script started.
        None if blow == Blow::Kill => mpi.feedline_with_codes(&dir, 3, &args),
        None => mpi.feedline(&dir, 3, &args),
    };
    let mut job = job.set(&SETTINGS).set(moment.settings()).start();
    let processes = job.processes.clone();
    moment.reach(&mut job, &dir);
    let late = (moment == Moment::Barrier).then(|| processes.worker(2).unwrap());
    if let Some(late) = late {
        send(late, Signal::STOP);
        std::thread::sleep(Duration::from_millis(300));
    }
    let begin = Instant::now();
    blow.strike(&processes, hosts.as_ref());
    if let Some(late) = late {
        std::thread::sleep(Duration::from_millis(100));
        send(late, Signal::CONT);
    }
    let gone = processes.are_gone_within(LIMIT);
    let took = begin.elapsed();
    if blow == Blow::CutOff {
        // The launchers of Open MPI do not end by themselves.
        processes.kill_all();
    }
    let done = job.wait();
    if !gone {
        done.fail(&format!("{mpi:?}, {moment:?}, {blow:?}: processes are left after {took:.1?}"));
    }
    let name = hosts.as_ref().map_or_else(host, |hosts| hosts.name(VICTIM as usize).to_owned());
    let done = blow.is_told(done, &name);
    let done = moment.place().iter().fold(done, |done, place| done.says(place));
    let done = if blow == Blow::CutOff { done } else { done.exits(4).one_error() };
    if blow == Blow::Kill {
        let codes = exit_codes(&dir);
        // MPICH kills all processes as soon as one of them aborts the job, and returns the code of that one.
        assert!(codes.contains_key("0") || mpi == Mpi::Mpich, "{codes:?}");
        assert!(codes.values().all(|code| code == "4"), "{codes:?}");
    }
    assert_eq!((done.stdout.as_str(), dir.results()), ("", vec![]));
    recovers(mpi, &dir, &before);
}

/// Complete checkpoints of an earlier run, some of which the next run replaces.
fn earlier(dir: &Dir) -> Vec<Standing> {
    let args = ["run", "w.yaml", "--quiet", "--ranks", "6", "--no-calibration", "--results-dir", "first"];
    let settings =
        ["train.computation_time=0.001", "checkpoint.steps_between_checkpoints=6", "reader.batch_size=6"];
    dir.feedline(&args).args(&["--checkpoint-dir", "new"]).set(&settings).run().ran();
    all_standing(dir)
}

/// Checks that no complete checkpoint was lost, and that the next run removes or completes what was left.
fn recovers(mpi: Mpi, dir: &Dir, before: &[Standing]) {
    let now = all_standing(dir);
    for old in before {
        let stays =
            |one: &Standing| (one.epoch, one.step) == (old.epoch, old.step) && one.serial >= old.serial;
        assert!(now.iter().any(stays), "{old:?} is not among {now:?}");
    }
    assert!(!now.is_empty());
    restores(dir, "6", "new", now.len());
    let args = [&RUN[..], &["--quiet", "--checkpoint-dir", "new"]].concat();
    let settings = ["train.computation_time=0.001", "checkpoint.burst_folder=fast"];
    mpi.feedline(dir, 3, &args).set(&SETTINGS).set(&settings).run().ran();
    has_no_leftovers(dir);
    restores(dir, "6", "new", standing(&dir.path("new")).len());
}

fn has_no_leftovers(dir: &Dir) {
    assert_eq!(standing(&dir.path("fast")), []);
    dir.has_no_leftovers();
    for tier in ["new", "fast"] {
        walk(&dir.path(tier), &mut |path: &Path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            let left = [".draft", ".replaced", ".partial", ".feedline-shared"]
                .iter()
                .any(|mark| name.contains(mark));
            assert!(!left, "left behind: {path:?}");
        });
    }
}

/// Process 0 writes what it has before the launcher kills it: Open MPI 5 waits a quarter of a second.
fn is_asked_to_stop(mpi: Mpi, moment: Moment, signal: Signal) {
    let dir = with_saving();
    let args = [&RUN[..], &["--checkpoint-dir", "new"]].concat();
    let mut job = mpi.feedline(&dir, 3, &args).set(&SETTINGS).set(moment.settings()).start();
    let processes = job.processes.clone();
    moment.reach(&mut job, &dir);
    job.signal(signal);
    let gone = processes.are_gone_within(LIMIT);
    let (done, results) = (job.wait_for(LIMIT), dir.results());
    if !gone || done.code() == Some(0) || results.len() != 1 {
        done.fail(&format!("{mpi:?}, {moment:?}, {signal:?}: all ended: {gone}, results: {results:?}"));
    }
    let summary = dir.json(&format!("{}/summary.json", results[0]));
    assert_eq!(summary["feedline"]["verdict"]["status"], "incomplete", "{mpi:?}, {moment:?}, {signal:?}");
    recovers(mpi, &dir, &[]);
}

#[test]
fn a_signal_during_a_drain_leaves_an_incomplete_result() {
    for (mpi, signal) in Mpi::ALL.into_iter().zip([Signal::INT, Signal::TERM, Signal::INT]) {
        is_asked_to_stop(mpi, Moment::Drain, signal);
    }
}

/// One library per case; all of them with `FEEDLINE_TEST_LONG`.
fn fails(moment: Moment, blow: Blow) {
    let place = |all: usize, number: usize| (moment as usize + number) % all;
    let chosen = Mpi::ALL[place(3, blow as usize)];
    let is_long = std::env::var_os("FEEDLINE_TEST_LONG").is_some();
    for mpi in Mpi::ALL.into_iter().filter(|mpi| is_long || *mpi == chosen) {
        fails_at(mpi, moment, blow);
    }
}

macro_rules! cases {
    ($($name:ident: $moment:ident, $blow:ident;)*) => {
        $(#[test]
        fn $name() {
            fails(Moment::$moment, Blow::$blow);
        })*

        #[test]
        fn every_moment_and_failure_has_a_case() {
            let cases = [$((Moment::$moment, Blow::$blow)),*];
            for moment in Moment::ALL {
                assert!(Blow::ALL.iter().all(|blow| cases.contains(&(moment, *blow))), "{moment:?}");
            }
        }
    };
}

cases! {
    a_process_is_killed_in_an_epoch: Epoch, Kill;
    a_process_is_killed_at_a_barrier: Barrier, Kill;
    a_process_is_killed_in_a_save: Save, Kill;
    a_process_is_killed_in_a_drain: Drain, Kill;
    a_process_is_stopped_in_an_epoch: Epoch, Stop;
    a_process_is_stopped_at_a_barrier: Barrier, Stop;
    a_process_is_stopped_in_a_save: Save, Stop;
    a_process_is_stopped_in_a_drain: Drain, Stop;
    a_host_is_cut_off_in_an_epoch: Epoch, CutOff;
    a_host_is_cut_off_at_a_barrier: Barrier, CutOff;
    a_host_is_cut_off_in_a_save: Save, CutOff;
    a_host_is_cut_off_in_a_drain: Drain, CutOff;
}
