//! The search for the number of accelerators: how it ends, what it refuses, and its answer. The limit of real storage
//! is unknown to a test; unit tests of the search use computed devices.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::util::{Cmd, Dir, Done, Running, SMALL};

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
    let done = done.prints("to try 12, use one with at least 984 files (dataset.num_files_train=984)");
    let ended = |line: &&str| line.starts_with("probe ") && line.contains(" rank");
    let probed: Vec<&str> = done.stderr.lines().filter(ended).collect();
    assert_eq!(probed.len(), 4, "1, 2, 4 and 6 ranks: {probed:?}");
    assert_eq!(done.stdout.lines().filter(|line| line.contains("  short run")).count(), 1, "{}", done.stdout);
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
    assert_eq!(seen, [(2, "probe"), (3, "probe"), (3, "short")]);
    assert_eq!(trials[2]["steps"], 82, "a short run has at most the steps of an epoch");
    assert_eq!((&json["confirmation"], &json["interrupted"]), (&"short".into(), &false.into()));
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
    let args = [
        "capacity",
        "w.yaml",
        "--store",
        "null",
        "--from",
        "40",
        "--up-to",
        "40",
        "--steps",
        "5",
        "--json",
        "--confirm",
        "full",
    ];
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
        (&["--confirm", "maybe"], &["'maybe'", "short", "full", "none"]),
        (&["--output", "w.yaml"], &["w.yaml is a file, not a folder"]),
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
    fs::write(dir.path("data/train/img_001_of_200.npz"), "short").unwrap();
    let done = dir.feedline(&["capacity", "w.yaml", "--quiet"]).set(&[many, EASY]).run().exits(4).one_error();
    done.says("with 1 rank: the run stopped in epoch 1").says("img_001_of_200.npz");
}

/// A device that reads a batch in 2 ms: with steps of 5 ms it feeds two ranks, and three at AU 83 %.
const DEVICE: [&str; 2] = ["--store", "sim:latency=0,bandwidth=4.096MB/s,channels=1"];

/// A search on the device for this target. An epoch has more steps than any run of a test.
fn on_device<'a>(dir: &'a Dir, target: &str, args: &[&str]) -> Cmd<'a> {
    let settings = [target, "dataset.num_files_train=1000000", "dataset.format=jpeg"];
    dir.feedline(&["capacity", "w.yaml"]).args(&DEVICE).args(args).set(&settings)
}

fn ended(done: Done) -> Done {
    // On a busy machine the verdict of a run may be invalid.
    assert!([Some(0), Some(5)].contains(&done.code()), "{}", done.stderr);
    done
}

/// Probes alone find the limit in a short time, and say that the answer is an estimate.
#[test]
fn without_confirmation_the_answer_is_an_estimate() {
    let dir = busy();
    let done = ended(on_device(&dir, "metric.au=0.9", &["--confirm", "none", "--output", "c"]).run());
    let done = done.prints(" at AU 90 %").prints("confidence: an estimate by probes only");
    let done = done.prints("not covered: the rest of an epoch of ").prints("(--confirm full: about ");
    let first = done.stderr.lines().next().unwrap();
    assert!(
        first.starts_with("probes of 401 steps; estimated time by number of accelerators fed: "),
        "{first}"
    );
    assert!(!done.stderr.contains("confirmation ("), "{}", done.stderr);
    let json = dir.json("c/capacity.json");
    assert_eq!((&json["confirmation"], &json["ended_by"]), (&"none".into(), &"target".into()));
    assert!(json["accelerators"].as_u64() <= Some(2), "fewer on a busy machine: {json}");
    // Batches that were ready in advance do not count: the device delivers 1000 samples/s to any number of ranks.
    for trial in json["trials"].as_array().unwrap().iter().filter(|trial| trial["met"] == false) {
        assert!(trial["samples_per_second"].as_f64() < Some(1010.0), "{trial}");
        assert!(trial["au_percent"].as_f64() <= trial["window_au_percent"].as_f64(), "{trial}");
    }
}

/// The estimate of the confirmation is printed before it starts, and Ctrl-C states what is known. The same command with
/// the same folder resumes, also with another confirmation.
#[test]
fn an_interrupted_search_states_a_partial_answer_and_is_resumed() {
    let dir = busy();
    let args = ["--output", "c", "--up-to", "2"];
    let mut running = on_device(&dir, EASY, &[&args[..], &["--confirm", "full"]].concat()).start();
    until_trials(&dir, &mut running, 2);
    running.until_thread("reader");
    running.signal(Signal::INT);
    let done = running.wait().exits(4);
    let done = done.prints("interrupted: at least 2 accelerators at AU 1 %").prints("confidence: partial");
    let done = done
        .says("confirmation (full): 2 accelerators (2 epochs of ")
        .says("interrupted, so the answer is partial\nresume with: feedline");
    let estimate = done.stderr.split_once(" steps); estimated time: ").unwrap().1.lines().next().unwrap();
    assert!(estimate.contains(" m ") || estimate.contains(" h "), "2 x 250,000 x 5 ms: {estimate}");
    assert!(!dir.path("c/capacity.csv").exists());
    let before = dir.read("c/trials.jsonl");
    let done = ended(on_device(&dir, EASY, &[&args[..], &["--confirm", "none"]].concat()).run());
    done.says("c: 2 finished runs will not be repeated").prints("at least 2 accelerators at AU 1 %");
    assert_eq!(dir.read("c/trials.jsonl"), before, "the probes were kept");
    assert_eq!(dir.json("c/capacity.json")["trials"].as_array().unwrap().len(), 2);
}

/// Waits until the journal has this number of trials.
fn until_trials(dir: &Dir, running: &mut Running<'_>, trials: usize) {
    let journal = dir.path("c/trials.jsonl");
    running.until("trials", || fs::read_to_string(&journal).is_ok_and(|text| text.lines().count() > trials));
}

#[test]
fn json_of_an_interrupted_search_says_so() {
    let dir = busy();
    let mut running = on_device(&dir, EASY, &["--output", "c", "--json", "--quiet"]).start();
    until_trials(&dir, &mut running, 1);
    running.signal(Signal::INT);
    let json = running.wait().exits(4).json();
    assert_eq!((&json["interrupted"], &json["ended_by"]), (&true.into(), &"stop".into()));
    assert!(json["resume"].as_str().unwrap().starts_with("feedline capacity w.yaml --store sim:"), "{json}");
    let decided = &json["confidence"]["decided"];
    assert_eq!(decided, &Value::from(false));
}

#[test]
fn a_search_has_a_folder_with_journal_figures_and_plot() {
    let dir = busy_with_data();
    let args = ["capacity", "w.yaml", "--from", "2", "--up-to", "3", "--quiet"];
    let done = ended(dir.feedline(&args).set(&[EASY]).run());
    let place = done.stdout.lines().last().unwrap().strip_prefix("result in ").unwrap().to_owned();
    assert!(place.starts_with("feedline-results/capacity/w/"), "{place}");
    let journal = dir.read(&format!("{place}/trials.jsonl"));
    let lines: Vec<Value> = journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["capacity"], "w");
    let json = dir.json(&format!("{place}/capacity.json"));
    assert_eq!(lines[1..], json["trials"].as_array().unwrap()[..]);
    let csv = dir.read(&format!("{place}/capacity.csv"));
    let fields: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(fields, [14; 4], "{csv}");
    let svg = dir.read(&format!("{place}/capacity.svg"));
    assert_eq!(svg.matches("class=\"bar\"").count(), 3);
    assert_eq!(svg.matches("class=\"reference\"").count(), 1, "the target");
    let validated = dir.feedline(&["validate", &place]).run().exits(3).one_error();
    validated.says("is the folder of a capacity search");
    dir.has_no_leftovers();
}

#[test]
fn a_foreign_folder_is_refused() {
    let dir = busy_with_data();
    let search = |args: &[&str]| {
        let base = ["capacity", "w.yaml", "--up-to", "1", "--output", "c", "--quiet"];
        dir.feedline(&base).args(args).set(&[EASY]).run()
    };
    dir.write("c/capacity.csv", "theirs");
    search(&[]).exits(3).one_error().says("capacity.csv");
    assert_eq!(dir.read("c/capacity.csv"), "theirs");
    fs::remove_dir_all(dir.path("c")).unwrap();
    ended(search(&[]));
    let before = dir.tree("c");
    search(&["--set", "reader.read_threads=1"])
        .exits(3)
        .one_error()
        .says("contains another capacity search: set is");
    search(&["--store", "null"]).exits(3).one_error().says("store is null, not \"null\"");
    // A folder of another study.
    let stall = ["stall", "w.yaml", "--steps", "50", "--output", "c", "--quiet"];
    dir.feedline(&stall).run().exits(3).one_error().says("c is the folder of a capacity search");
    search(&["--memory", "1GiB"]).exits(3).one_error().says("memory is");
    assert!(dir.tree("c") == before);
}

/// On a terminal of 80 columns the progress of a run is one line that is updated.
#[test]
fn progress_fits_a_terminal_of_80_columns() {
    if !Path::new("/usr/bin/script").exists() {
        panic!("script is missing: run scripts/test, which installs it");
    }
    let dir = busy();
    let settings = "--set metric.au=0.01 --set dataset.num_files_train=1000000 --set dataset.format=jpeg";
    let command = format!(
        "stty cols 80 rows 24; {} capacity w.yaml {} --up-to 2 --confirm none {settings}",
        env!("CARGO_BIN_EXE_feedline"),
        DEVICE.join(" ")
    );
    let output = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .current_dir(dir.path("."))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let drawn: Vec<&str> = text.split(['\r', '\n']).filter(|line| line.contains(" elapsed")).collect();
    assert!(drawn.len() > 5, "the line is updated: {text}");
    for line in drawn {
        let plain: String = without_codes(line);
        assert!(plain.chars().count() <= 80, "{} columns: {plain}", plain.chars().count());
        assert!(plain.trim_start().starts_with("probe "), "{plain}");
    }
}

/// A line without the escape sequences of a terminal.
fn without_codes(line: &str) -> String {
    let mut plain = String::new();
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => drop(chars.by_ref().skip(1).find(char::is_ascii_alphabetic)),
            c => plain.push(c),
        }
    }
    plain
}
