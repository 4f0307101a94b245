//! Several processes with one data set: a complete one can be used by any number of them, and only one writes.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::util::{Dir, Done, worker_of};

const GENERATE: [&str; 3] = ["generate", "w.yaml", "--quiet"];
const RUN: [&str; 5] = ["run", "w.yaml", "--quiet", "--generate", "--no-calibration"];
/// Enough files to be interrupted.
const LONG: [&str; 2] = ["dataset.num_files_train=300", "dataset.record_length_bytes=250000"];
const ROUNDS: usize = 10;

/// Starts commands at once and waits for all of them.
fn at_once(dir: &Dir, commands: &[&[&str]], settings: &[&str]) -> Vec<Done> {
    let started: Vec<_> = commands.iter().map(|args| dir.feedline(args).set(settings).start()).collect();
    started.into_iter().map(|running| running.wait()).collect()
}

#[test]
fn a_complete_data_set_is_used_by_any_number_of_processes() {
    let dir = Dir::small_with_data();
    let before = dir.tree("data");
    for round in 0..ROUNDS {
        for done in at_once(&dir, &[&RUN, &GENERATE, &RUN, &RUN, &GENERATE], &[]) {
            // On a busy machine the verdict of a run may be invalid.
            assert!([Some(0), Some(5)].contains(&done.code()), "round {round}: {}", done.stderr);
        }
    }
    assert_eq!(dir.results().len(), 3 * ROUNDS);
    assert_eq!(dir.tree("data"), before);
}

#[test]
fn a_complete_compressed_data_set_is_used_by_any_number_of_processes() {
    let dir = Dir::small();
    let zipped = ["dataset.compression=zip", "dataset.compressible=0.5"];
    dir.feedline(&GENERATE).set(&zipped).run().exits(0);
    let catalog = fs::read(dir.path("data/.feedline/catalog")).unwrap();
    for _ in 0..ROUNDS / 2 {
        for done in at_once(&dir, &[&RUN, &GENERATE, &RUN], &zipped) {
            assert!([Some(0), Some(5)].contains(&done.code()), "{}", done.stderr);
        }
    }
    assert_eq!(fs::read(dir.path("data/.feedline/catalog")).unwrap(), catalog);
}

#[test]
fn only_one_process_writes() {
    let dir = Dir::small();
    let mut writer = dir.feedline(&GENERATE).args(&["--writers", "1"]).set(&LONG).start();
    let first = dir.path("data/train/img_000_of_300.npz");
    writer.until("the first file", || first.exists());
    // It holds the lock, and does not finish before the others were tried.
    let worker = Pid::from_raw(worker_of(writer.id()).unwrap() as i32).unwrap();
    kill_process(worker, Signal::STOP).unwrap();
    for args in [&GENERATE[..], &RUN[..]] {
        dir.feedline(args).set(&LONG).run().exits(3).one_error().says("another feedline is writing to");
    }
    dir.feedline(&["run", "w.yaml", "--quiet"]).set(&LONG).run().exits(3).one_error().says("interrupted");
    kill_process(worker, Signal::CONT).unwrap();
    writer.wait().exits(0);
    dir.feedline(&[&GENERATE[..], &["--verify"]].concat()).set(&LONG).run().exits(0);
}

#[test]
fn a_killed_generation_is_completed_by_one_of_several_processes() {
    let dir = Dir::small();
    let mut writer = dir.feedline(&GENERATE).args(&["--writers", "1"]).set(&LONG).start();
    let some = dir.path("data/train/img_020_of_300.npz");
    writer.until("some files", || some.exists());
    writer.signal(Signal::KILL);
    writer.wait();
    // The worker of a killed command ends shortly after it, and with it the lock.
    let finished = (0..50).any(|_| {
        let all = at_once(&dir, &[&GENERATE, &GENERATE, &GENERATE], &LONG);
        all.iter().for_each(|done| {
            let busy = done.code() == Some(3) && done.stderr.contains("another feedline is writing to");
            assert!(busy || done.code() == Some(0), "{}", done.stderr);
        });
        all.iter().any(|done| done.code() == Some(0))
    });
    assert!(finished);
    dir.feedline(&[&GENERATE[..], &["--verify"]].concat()).set(&LONG).run().exits(0);
    dir.has_no_leftovers();
}

#[test]
fn a_file_that_is_missing_from_a_complete_data_set_is_written_again() {
    let dir = Dir::small_with_data();
    let before = dir.tree("data");
    for name in ["img_00_of_24.npz", "img_23_of_24.npz"] {
        fs::remove_file(dir.path("data/train").join(name)).unwrap();
        let done = dir.feedline(&GENERATE).args(&["--json"]).run().exits(0).json();
        assert_eq!((done["files_written"].as_u64(), done["files_kept"].as_u64()), (Some(1), Some(23)));
    }
    assert_eq!(dir.tree("data"), before);
    let kept = dir.feedline(&GENERATE).args(&["--json", "--verify"]).run().exits(0).json();
    assert_eq!((kept["files_written"].as_u64(), kept["files_kept"].as_u64()), (Some(0), Some(24)));
    assert!(kept["bytes_verified"].as_u64() > Some(0));
}

#[test]
fn a_data_set_that_is_overwritten_during_a_run_is_detected() {
    let dir = Dir::small_with_data();
    let long = ["train.epochs=500", "train.computation_time=0.005"];
    let mut run = dir.feedline(&RUN).set(&long).start();
    run.until_thread("reader");
    dir.feedline(&[&GENERATE[..], &["--overwrite"]].concat()).set(&["train.seed=7"]).run().exits(0);
    run.wait().exits(4).says("it holds the content of seed 7");
}
