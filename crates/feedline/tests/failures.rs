//! Commands that fail: each has the documented exit code, one error on stderr, and with `--json` one object on stdout
//! with the error, the exit code and the remedy.

use rustix::process::Signal;
use serde_json::Value;

use crate::util::{Dir, Done};

/// A command that fails: its arguments, its exit code, and parts of error and remedy.
struct Failing {
    args: &'static [&'static str],
    code: i32,
    error: &'static str,
    remedy: Option<&'static str>,
}

const fn fails(
    args: &'static [&'static str],
    code: i32,
    error: &'static str,
    remedy: Option<&'static str>,
) -> Failing {
    Failing { args, code, error, remedy }
}

/// In a folder with a workload, an empty data set, a data set of other settings in `other`, and a file that is not ours
/// in `foreign`.
const FAILING: &[Failing] = &[
    // The arguments.
    fails(&["run", "--rank", "2"], 2, "unexpected argument '--rank'", Some("'--ranks'")),
    fails(&["nonsense"], 2, "unrecognized subcommand 'nonsense'", Some("help")),
    fails(&["completions", "bash"], 2, "unexpected argument '--json'", Some("help")),
    fails(
        &["generate", "w.yaml", "--writers", "0"],
        2,
        "invalid value '0' for '--writers <N>'",
        Some("help"),
    ),
    fails(&["sweep", "w.yaml", "--over", "bogus"], 2, "--over bogus", Some("KEY=VALUE")),
    fails(&["capacity", "w.yaml", "--from", "3", "--up-to", "2"], 2, "greater than --up-to", Some("help")),
    fails(&["inspect", "w.yaml"], 2, "w.yaml: unknown suffix", Some("--format")),
    fails(&["inspect", "nowhere.npz"], 3, "nowhere.npz does not exist", None),
    fails(&["catalog", "other", "--suffix", ""], 2, "--suffix \"\" is empty", Some(".jpg")),
    // The workload.
    fails(&["run", "nowhere.yaml"], 2, "there is no workload file nowhere.yaml", Some("")),
    fails(&["workloads", "xyzzy"], 2, "no workload 'xyzzy'", Some("")),
    fails(&["plan", "w.yaml", "--set", "reader.batch_size=0"], 2, "cannot be 0", Some("at least 1")),
    fails(&["plan", "w.yaml", "--set", "reader.batch_sizes=1"], 2, "unknown key", Some("did you mean")),
    fails(&["stall", "w.yaml"], 2, "too few steps", Some("raise --steps")),
    fails(&["capacity", "w.yaml"], 2, "train.computation_time is 0", Some("time of a step")),
    fails(&["run", "w.yaml", "--store", "posic"], 2, "no store 'posic'", Some("")),
    // The place.
    fails(&["run", "w.yaml"], 3, "the data set is missing", Some("feedline generate w.yaml")),
    fails(&["sweep", "w.yaml", "--over", "ranks=1,2"], 3, "the data set is missing", Some("--generate")),
    fails(
        &["run", "w.yaml", "--data-dir", "other"],
        3,
        "was generated with other settings",
        Some("--data-dir"),
    ),
    fails(
        &["generate", "w.yaml", "--data-dir", "other"],
        3,
        "record_length_bytes is 4096",
        Some("--data-dir"),
    ),
    fails(&["generate", "w.yaml", "--data-dir", "foreign"], 3, "no feedline manifest", Some("--data-dir")),
    fails(&["catalog", "nowhere"], 3, "nowhere does not exist", None),
    fails(&["validate", "nowhere"], 3, "cannot read nowhere", Some("RESULTS/WORKLOAD/TIME")),
    fails(&["compare", "nowhere", "there"], 3, "cannot read nowhere", Some("RESULTS/WORKLOAD/TIME")),
    fails(&["compare", "other", "foreign"], 3, "no results found in other", Some("RESULTS/WORKLOAD/TIME")),
    // The work.
    fails(
        &[
            "run",
            "w.yaml",
            "--data-dir",
            "other",
            "--set",
            "dataset.record_length_bytes=4096",
            "--store",
            "fault:posix,kind=eio,every=5",
        ],
        4,
        "the run stopped in epoch 1",
        None,
    ),
];

fn folder() -> Dir {
    let dir = Dir::small();
    dir.feedline(&["generate", "w.yaml", "--quiet", "--data-dir", "other"]).run().exits(0);
    dir.write("w.yaml", dir.read("w.yaml").replace("4096", "5000"));
    dir.write("foreign/train/img_00_of_24.npz", "not ours");
    dir
}

/// Checks the object on stdout against the exit code and stderr.
#[track_caller]
fn object(done: &Done) -> Value {
    let object = done.json();
    let error = object["error"].as_str().unwrap_or_else(|| done.fail("no error"));
    if object["exit_code"].as_i64() != done.code().map(i64::from) {
        done.fail("another exit code");
    }
    if !(object["remedy"].is_null() || object["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty())) {
        done.fail("no remedy");
    }
    let first = error.lines().next().unwrap();
    if !done.stderr.contains(&format!("error: {first}")) {
        done.fail("another error on stderr");
    }
    object
}

#[test]
fn every_failure_has_its_exit_code_and_one_object() {
    let dir = folder();
    for Failing { args, code, error, remedy } in FAILING {
        dir.feedline(args).run().exits(if args[0] == "completions" { 0 } else { *code });
        let done = dir.feedline(args).args(&["--json"]).run().exits(*code).one_error();
        let object = object(&done);
        let [said, advised] = ["error", "remedy"].map(|key| object[key].as_str().unwrap_or_default());
        assert!(said.contains(error), "{args:?}: {said}");
        assert!(remedy.is_none_or(|remedy| advised.contains(remedy)), "{args:?}: {advised}");
        assert_eq!(object["remedy"].is_null(), remedy.is_none(), "{args:?}: {advised}");
    }
}

#[test]
fn help_and_version_are_not_failures() {
    let dir = Dir::new();
    for args in [&["run", "--help", "--json"][..], &["--version"], &["help", "run"]] {
        let done = dir.feedline(args).run().exits(0).silent();
        assert!(!done.stdout.contains("exit_code"), "{args:?}: {}", done.stdout);
    }
}

/// The object has the keys of the result, too, if there is one.
#[test]
fn a_failed_run_is_one_object_with_its_result() {
    let dir = Dir::small_with_data();
    let args = ["run", "w.yaml", "--json", "--no-calibration", "--store", "fault:posix,kind=eio,every=5"];
    let object = object(&dir.feedline(&args).run().exits(4).one_error());
    assert_eq!(object["feedline"]["verdict"]["status"], "incomplete", "{object}");
    let summary = dir.json(&format!("{}/summary.json", dir.result()));
    assert!(summary.get("error").is_none(), "{summary}");
    assert_eq!(object["feedline"]["plan_digest"], summary["feedline"]["plan_digest"]);
}

#[test]
fn an_interrupted_command_is_one_object() {
    let dir = Dir::small_with_data();
    let slow = ["train.computation_time=0.2"];
    let mut running = dir.feedline(&["run", "w.yaml", "--json", "--no-calibration"]).set(&slow).start();
    running.until_thread("reader");
    running.signal(Signal::INT);
    let object = object(&running.wait().exits(4).one_error());
    assert_eq!(object["error"], "interrupted");
    assert_eq!(object["feedline"]["verdict"]["status"], "incomplete", "{object}");
}

#[test]
fn a_failed_cell_of_a_sweep_is_one_object_with_the_sweep() {
    let dir = Dir::small_with_data();
    let stores = "store=posix,'fault:posix,kind=eio,every=5'";
    let args =
        ["sweep", "w.yaml", "--json", "--quiet", "--no-calibration", "--repeat", "1", "--over", stores];
    let object = dir.feedline(&args).run().exits(4).silent().json();
    assert_eq!((&object["error"], &object["exit_code"]), (&"1 of 2 runs failed".into(), &4.into()));
    assert_eq!(object["cells"].as_array().unwrap().len(), 2);
}

#[test]
fn refused_results_are_named_in_one_object() {
    let dir = Dir::small_with_data();
    dir.feedline(&["run", "w.yaml", "--quiet", "--no-calibration"]).run().ran();
    let args = ["validate", "--json", &dir.result(), "nowhere", "there"];
    let done = dir.feedline(&args).run().exits(3);
    let object = done.json();
    assert_eq!(object["error"], "2 of 3 results were refused");
    assert_eq!((object["exit_code"].as_u64(), object["results"].as_array().unwrap().len()), (Some(3), 3));
}

#[test]
fn files_before_one_that_cannot_be_inspected_are_part_of_the_object() {
    let dir = Dir::small_with_data();
    let args = ["inspect", "--json", "data/train/img_00_of_24.npz", "data/train/none.npz"];
    let done = dir.feedline(&args).run().one_error();
    let object = object(&done);
    assert!(object["error"].as_str().unwrap().contains("none.npz"), "{object}");
    assert_eq!(object["files"].as_array().unwrap().len(), 1, "{object}");
}
