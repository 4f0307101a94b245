//! Comparing two results: whether and by how much they differ, and what is refused.

use serde_json::Value;

use crate::util::{Dir, Done};
use crate::validate::{forge, sum_again};

/// Two simulated devices, one ten times as fast: a difference that shows even on a busy machine.
const SLOW: &str = "sim:bandwidth=1MB/s,latency=4ms,channels=1";
const FAST: &str = "sim:bandwidth=10MB/s,latency=400us,channels=1";

/// Runs the small workload with results below `name`.
fn run(dir: &Dir, name: &str, flags: &[&str], settings: &[&str]) -> Done {
    let args = ["run", "w.yaml", "--quiet", "--no-calibration", "--results-dir", name];
    dir.feedline(&args).args(flags).set(&["train.epochs=7"]).set(settings).run()
}

/// Uses --force, because on a busy machine a simulated device lags behind and the runs may be invalid.
fn compare(dir: &Dir, args: &[&str]) -> Done {
    dir.feedline(&["compare", "--force"]).args(args).run()
}

#[test]
fn a_faster_device_is_reported_as_faster() {
    let dir = Dir::small();
    run(&dir, "a", &["--store", SLOW], &[]);
    run(&dir, "b", &["--store", FAST], &[]);
    let json = compare(&dir, &["a/w", "b/w", "--json"]).exits(0).silent().json();
    assert_eq!(json["units"], "epochs");
    let rate = &json["figures"]["samples_per_second"];
    assert_eq!(rate["a"]["values"].as_array().unwrap().len(), 6, "the first epoch is excluded");
    assert_eq!(rate["differs"], true);
    let ratio = rate["ratio"].as_f64().unwrap();
    assert!(ratio > 1.5, "{rate}");
    assert!(rate["interval"][0].as_f64() <= Some(ratio) && rate["interval"][1].as_f64() >= Some(ratio));
    assert_eq!(json["figures"]["au_percent"]["ratio"], Value::Null, "there is no compute time");
    assert!(json["figures"]["sample_p99_ns"]["ratio"].is_f64());
    let notes = json["notes"].to_string();
    assert_eq!((&json["a"]["simulated"], &json["b"]["simulated"]), (&true.into(), &true.into()));
    assert!(notes.contains(&format!("the I/O backend is {SLOW} in A, {FAST} in B")), "{notes}");

    let text = compare(&dir, &["b/w", "a/w"]).exits(0).silent();
    let text = text.prints("A: 1 result of w in b/w (simulated)\n").prints("B is 0.");
    let text = text.prints(" x A in samples/s (95 % ").prints("): slower\n");
    text.prints("medians of 6 and 6 epochs\nnote: ")
        .prints("less in the cache than later ones, is excluded\n");
}

#[test]
fn with_several_runs_a_run_is_one_observation() {
    let dir = Dir::small();
    for _ in 0..5 {
        run(&dir, "a", &["--store", "null"], &[]);
        run(&dir, "b", &["--store", "null"], &[]);
    }
    let json = compare(&dir, &["a/w", "b/w", "--json"]).exits(0).json();
    assert_eq!(json["units"], "runs");
    assert_eq!(json["a"]["results"].as_array().unwrap().len(), 5);
    assert_eq!(json["figures"]["samples_per_second"]["b"]["values"].as_array().unwrap().len(), 5);
    assert!(json["figures"]["samples_per_second"]["interval"].is_array());
    let first = dir.results_below("a").remove(0);
    compare(&dir, &[&first, "b/w"]).exits(0).prints("medians of 6 and 30 epochs");
    compare(&dir, &[&first, "a/w"]).exits(3).one_error().says(&format!("{first} is on both sides"));
}

/// O_DIRECT bypasses the page cache, so its plan has no cache state; a cold run reads from the storage as well.
#[test]
fn a_backend_without_page_cache_compares_with_a_cold_one_only() {
    let dir = Dir::small();
    dir.feedline(&["generate", "w.yaml"]).run().exits(0);
    run(&dir, "cold", &["--store", "posix"], &[]);
    run(&dir, "none", &["--store", "null"], &[]);
    let done = compare(&dir, &["cold/w", "none/w"]).exits(0);
    done.prints("the I/O backend is posix in A, null in B");

    run(&dir, "warm", &["--store", "posix", "--cache", "warm"], &[]);
    run(&dir, "none-warm", &["--store", "null", "--cache", "warm"], &[]);
    let done = compare(&dir, &["warm/w", "none-warm/w"]).exits(3).one_error();
    done.says("cache of the plan is");
}

#[test]
fn few_observations_have_no_interval() {
    let dir = Dir::small();
    for name in ["a", "b"] {
        run(&dir, name, &["--store", "null"], &["train.epochs=3"]);
    }
    let done = compare(&dir, &["a/w", "b/w"]).exits(0).prints(": too few observations\n");
    done.prints("medians of 2 and 2 epochs; an interval needs 5\n");
}

#[test]
fn different_work_is_refused_and_named() {
    let dir = Dir::small();
    run(&dir, "a", &["--store", "null"], &[]);
    let cases: [(&str, &[&str], &str); 5] = [
        ("reader.batch_size", &["--set", "reader.batch_size=3"], "reader.batch_size is 2 in A, 3 in B"),
        ("ranks", &["--ranks", "2"], "ranks is 1 in A, 2 in B"),
        ("train.epochs", &["--set", "train.epochs=4"], "train.epochs is 7 in A, 4 in B"),
        ("reader.odirect", &["--set", "reader.odirect=true"], "reader.odirect is false in A, true in B"),
        ("train.seed", &["--set", "train.seed=9"], "train.seed is 123 in A, 9 in B"),
    ];
    for (key, flags, words) in cases {
        let args = ["run", "w.yaml", "--quiet", "--no-calibration", "--store", "null", "--results-dir", key];
        dir.feedline(&args).set(&["train.epochs=7"]).args(flags).run();
        let other = format!("{key}/w");
        compare(&dir, &["a/w", &other]).exits(3).one_error().says("A and B cannot be compared").says(words);
        let done = compare(&dir, &["a/w", &other, "--across", key]).exits(0).silent();
        done.prints(&format!("note: {words}"));
        let other_key = if key == "ranks" { "hosts" } else { "ranks" };
        compare(&dir, &["a/w", &other, "--across", other_key]).exits(3).says(words);
    }
    // A memory limit is not a setting, but it changes the plan.
    let kept = ["reader.retain=batch"];
    for (name, memory) in [("much", "1GiB"), ("little", "30KiB")] {
        let flags = ["--generate", "--memory", memory];
        run(&dir, name, &flags, &kept);
    }
    let done = compare(&dir, &["much/w", "little/w"]).exits(3).one_error();
    assert!(done.stderr.contains(" of the plan is "), "{}", done.stderr);
}

#[test]
fn places_are_noted_and_seeds_of_random_orders_are_ignored() {
    let dir = Dir::small();
    let random = ["reader.file_shuffle=random"];
    run(&dir, "a", &["--generate", "--data-dir", "here"], &random);
    run(&dir, "b", &["--generate", "--data-dir", "there"], &random);
    let done = compare(&dir, &["a/w", "b/w", "--across", "ranks"]).exits(0).silent();
    done.prints("note: the data folder is here in A, there in B")
        .prints("note: ranks is the same in A and B");
}

#[test]
fn a_folder_with_results_of_different_work_is_refused() {
    let dir = Dir::small();
    run(&dir, "a", &["--store", "null"], &[]);
    run(&dir, "a", &["--store", "null"], &["reader.batch_size=3"]);
    run(&dir, "b", &["--store", "null"], &[]);
    let done = compare(&dir, &["a/w", "b/w"]).exits(3).one_error();
    done.says("a/w contains results of different work: reader.batch_size is ")
        .says("give the path of one result");
}

#[test]
fn invalid_incomplete_and_changed_results_are_refused() {
    let dir = Dir::small();
    run(&dir, "a", &["--generate"], &[]);
    run(&dir, "bad", &[], &["reader.reader_classname=x"]).exits(5);
    let plain = |args: &[&str]| dir.feedline(&["compare"]).args(args).run();
    plain(&["a/w", "bad/w"]).exits(3).one_error().says("is invalid (settings-honoured: ").says("--force");
    compare(&dir, &["a/w", "bad/w"]).exits(0).prints("note: B is invalid: settings-honoured");

    run(&dir, "b", &[], &[]);
    let result = dir.results_below("b").remove(0);
    plain(&["a/w", "b/w"]).exits(0);
    forge(&dir, &result, "ledger.json", |ledger| {
        ledger["ranks"].as_array_mut().unwrap().pop();
    });
    compare(&dir, &["a/w", "b/w"])
        .exits(3)
        .one_error()
        .says("is incomplete (complete: epoch 7, train: 0 of 12 steps)");
    dir.write(&format!("{result}/epochs.csv"), "");
    compare(&dir, &["a/w", "b/w"]).exits(3).one_error().says("epochs.csv was changed: checksum mismatch");
    sum_again(&dir, &result);
    compare(&dir, &["a/w", "b/w"]).exits(3).says("is incomplete");
}

#[test]
fn mistakes_in_arguments_are_usage_errors() {
    let dir = Dir::small();
    compare(&dir, &["a"]).exits(2);
    compare(&dir, &["a", "b", "--across", "reader.thread"])
        .exits(2)
        .one_error()
        .says("--across reader.thread");
    compare(&dir, &["a", "b"]).exits(3).one_error().says("cannot read a");
}
