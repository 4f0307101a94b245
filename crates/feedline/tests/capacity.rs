//! The search for the number of accelerators: how it ends, what it refuses, and its answer. The limit of real storage
//! is unknown to a test; unit tests of the search use computed devices.

use crate::util::{Dir, SMALL};

/// `SMALL` with steps of 5 ms, which cached files can easily feed. Six ranks have 41 steps, of which 40 are measured:
/// 20 for each of the two batches that can be ready in advance.
fn busy() -> Dir {
    let dir = Dir::new();
    let small = SMALL.replace("computation_time: 0", "computation_time: 0.005");
    dir.write("w.yaml", small.replace("num_files_train: 24", "num_files_train: 492"));
    dir
}

fn busy_with_data() -> Dir {
    let dir = busy();
    dir.feedline(&["generate", "w.yaml", "--quiet"]).run().exits(0);
    dir
}

/// A target that even a busy machine reaches.
const EASY: &str = "metric.au=0.01";

#[test]
fn the_data_set_ends_the_search() {
    let dir = busy_with_data();
    let done = dir.feedline(&["capacity", "w.yaml"]).set(&[EASY]).run();
    // On a busy machine the verdict may be invalid.
    assert!([Some(0), Some(5)].contains(&done.code()), "{}", done.stderr);
    let done = done
        .prints("at least 6 accelerators at AU 1 %")
        .prints("the data set is too small for more than 6 ranks");
    let probed: Vec<&str> = done.stderr.lines().filter(|line| line.starts_with("probe ")).collect();
    assert_eq!(probed.len(), 4, "1, 2, 4 and 6 ranks: {probed:?}");
    assert_eq!(done.stdout.lines().filter(|line| line.contains(" confirmed")).count(), 1, "{}", done.stdout);
    assert_eq!(dir.listing().iter().filter(|line| line.contains("feedline-results")).count(), 0);
}

#[test]
fn up_to_ends_the_search() {
    let dir = busy_with_data();
    let args = ["capacity", "w.yaml", "--from", "2", "--up-to", "3", "--quiet", "--json"];
    let json = dir.feedline(&args).set(&[EASY]).run().silent().json();
    assert_eq!((json["accelerators"].as_u64(), &json["ended_by"]), (Some(3), &"up-to".into()));
    let trials = json["trials"].as_array().unwrap();
    let seen: Vec<(u64, &str)> = trials
        .iter()
        .map(|trial| (trial["ranks"].as_u64().unwrap(), trial["depth"].as_str().unwrap()))
        .collect();
    assert_eq!(seen, [(2, "probe"), (3, "probe"), (3, "confirmed")]);
    assert_eq!(trials[2]["steps"], 82, "a full run has all steps");
}

/// No storage delivers a sample in a nanosecond.
#[test]
fn the_answer_can_be_zero() {
    let dir = busy_with_data();
    let settings = ["train.computation_time=0.000000001", "metric.au=1"];
    let done = dir.feedline(&["capacity", "w.yaml"]).set(&settings).run().exits(0);
    let done = done.prints("0 accelerators at AU 100 %; with 1: AU ");
    done.prints("the limit is feedline, not the storage: with 1 accelerator");
}

#[test]
fn a_backend_without_files_has_steps_for_any_number_of_ranks() {
    let dir = busy();
    let args =
        ["capacity", "w.yaml", "--store", "null", "--from", "40", "--up-to", "40", "--steps", "5", "--json"];
    let steps = |more: &[&str]| -> Vec<u64> {
        let few = [EASY, "dataset.num_files_train=100"];
        let json = dir.feedline(&args).set(&few).set(more).run().json();
        assert_eq!(json["accelerators"], 40);
        json["trials"].as_array().unwrap().iter().map(|trial| trial["steps"].as_u64().unwrap()).collect()
    };
    assert_eq!(steps(&[]), [5, 41], "a full run has 20 steps for each batch that can be ready in advance");
    assert_eq!(steps(&["train.total_training_steps=50"]), [5, 50]);
    assert_eq!(steps(&["reader.prefetch_size=8"]), [5, 161]);
}

/// Batches that are ready in advance would determine the answer.
#[test]
fn a_data_set_that_is_too_small_is_refused() {
    let dir = busy();
    let small = ["dataset.num_files_train=80"];
    dir.feedline(&["generate", "w.yaml", "--quiet"]).set(&small).run().exits(0);
    let refused = |settings: &[&str], args: &[&str]| {
        let done = dir.feedline(&["capacity", "w.yaml"]).args(args).set(settings).run().exits(2).one_error();
        done.says("the data set is too small for 1 rank").says("dataset.num_files_train")
    };
    refused(&small, &[]).says("the metric window has 39 steps, but needs 40");
    refused(&small, &["--steps", "10"]);
    // Also on a backend without files, if the workload sets few steps.
    refused(&["train.total_training_steps=9"], &["--store", "sim:ssd"]).says("train.total_training_steps");
}

#[test]
fn mistakes_are_reported_before_anything_runs() {
    let dir = busy();
    let table: &[(&[&str], &[&str])] = &[
        (&["--set", "train.computation_time=0"], &["train.computation_time is 0"]),
        (&["--from", "0"], &["--from"]),
        (&["--up-to", "0"], &["--up-to"]),
        (&["--from", "5", "--up-to", "4"], &["--from 5 is greater than --up-to 4"]),
        (&["--steps", "1"], &["no step is left to measure"]),
        (&["--ranks", "4"], &["--ranks"]),
        (&["--store", "disc"], &["there is no store 'disc'"]),
        (&["--set", "reader.batch_size=999"], &["1 ranks x batch 999 needs 999 samples"]),
        (&["--set", "workflow.train=false"], &["does not train"]),
    ];
    let before = dir.listing();
    for (args, texts) in table {
        let done = dir.feedline(&["capacity", "w.yaml"]).args(args).run().exits(2).one_error();
        for text in *texts {
            assert!(done.stderr.contains(text), "{args:?} does not say {text}:\n{}", done.stderr);
        }
        assert!(done.stdout.is_empty());
    }
    dir.feedline(&["capacity", "w.yaml"]).run().exits(3).one_error().says("feedline generate w.yaml");
    assert_eq!(dir.listing(), before);
}

#[test]
fn a_run_that_fails_ends_the_search() {
    let dir = busy();
    let many = "dataset.num_files_train=200";
    dir.feedline(&["generate", "w.yaml", "--quiet"]).set(&[many]).run().exits(0);
    std::fs::write(dir.path("data/train/img_001_of_200.npz"), "short").unwrap();
    let done = dir.feedline(&["capacity", "w.yaml", "--quiet"]).set(&[many, EASY]).run().exits(4).one_error();
    done.says("with 1 rank: the run stopped in epoch 1").says("img_001_of_200.npz");
}
