//! Validating results: every changed byte is detected, the verdict is recomputed from plan and ledger, and folders that
//! are not results are named.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::util::{Dir, Done};

/// A folder with one result, and the path of the result.
fn with_result(flags: &[&str], settings: &[&str]) -> (Dir, String) {
    let dir = Dir::small();
    let args = ["run", "w.yaml", "--quiet", "--generate", "--no-calibration"];
    dir.feedline(&args).args(flags).set(settings).run().ran();
    let result = dir.result();
    (dir, result)
}

fn validate(dir: &Dir, args: &[&str]) -> Done {
    dir.feedline(&["validate"]).args(args).run()
}

/// Recomputes the checksums, as a forger would.
pub(crate) fn sum_again(dir: &Dir, result: &str) {
    let script =
        "cd \"$0\" && rm SHA256SUMS && LC_ALL=C && sums=$(sha256sum -- *) && echo \"$sums\" > SHA256SUMS";
    dir.command(Path::new("bash"), &["-c", script, result]).run().exits(0);
}

/// Changes a document of a result, and its checksums with it.
pub(crate) fn forge(dir: &Dir, result: &str, name: &str, change: impl FnOnce(&mut Value)) {
    let path = format!("{result}/{name}");
    let mut value = dir.json(&path);
    change(&mut value);
    dir.write(&path, value.to_string());
    sum_again(dir, result);
}

#[test]
fn an_unchanged_result_has_the_recorded_verdict() {
    let (dir, result) = with_result(&["--ranks", "2"], &[]);
    let summary = dir.json(&format!("{result}/summary.json"));
    let done = validate(&dir, &[&result])
        .exits(0)
        .silent()
        .prints(&format!("{result}: 6 files, unchanged, written by"));
    let status = summary["feedline"]["verdict"]["status"].as_str().unwrap();
    assert!(done.stdout.contains(&format!("verdict: {status}\n")), "{}", done.stdout);
    assert!(!done.stdout.contains("recorded verdict"), "the rules are the same: {}", done.stdout);

    let json = validate(&dir, &[&result, "--json"]).exits(0).silent().json();
    assert_eq!(json["results"][0]["verdict"], summary["feedline"]["verdict"], "including all texts");
    assert_eq!(json["results"][0]["changes"], json!([]));
    let sums =
        dir.command(Path::new("bash"), &["-c", "cd \"$0\" && sha256sum --strict -c SHA256SUMS", &result]);
    assert_eq!(sums.run().exits(0).stdout.lines().filter(|line| line.ends_with(": OK")).count(), 6);
}

#[test]
fn any_changed_byte_is_detected() {
    let (dir, result) = with_result(&[], &[]);
    // Enough changes for every kind of byte in the ledger: digits, letters, quotes, brackets, line breaks.
    for (name, count) in [("ledger.json", 500), ("SHA256SUMS", 60), ("plan.json", 5), ("spec.yaml", 5)] {
        let path = dir.path(&format!("{result}/{name}"));
        let bytes = fs::read(&path).unwrap();
        let mut state = 12345u64;
        for _ in 0..count {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (at, flip) = ((state >> 33) as usize % bytes.len(), (state >> 20) as u8 | 1);
            let mut changed = bytes.clone();
            changed[at] ^= flip;
            fs::write(&path, &changed).unwrap();
            let done = validate(&dir, &[&result]).exits(3).one_error();
            assert!(
                done.stdout.is_empty() && done.stderr.contains(&result),
                "{name} at {at}: {}",
                done.stderr
            );
            assert!(name == "SHA256SUMS" || done.stderr.contains(name), "{name} at {at}: {}", done.stderr);
        }
        fs::write(&path, &bytes).unwrap();
    }
    validate(&dir, &[&result]).exits(0);
}

#[test]
fn missing_and_added_files_are_named() {
    let (dir, result) = with_result(&[], &[]);
    for name in ["summary.json", "ledger.json", "plan.json", "spec.yaml", "epochs.csv", "SHA256SUMS"] {
        let path = dir.path(&format!("{result}/{name}"));
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        validate(&dir, &[&result]).exits(3).one_error().says(&format!("{name} is missing"));
        fs::write(&path, bytes).unwrap();
    }
    dir.write(&format!("{result}/.notes"), "");
    validate(&dir, &[&result]).exits(3).one_error().says(".notes does not belong to the result");
    fs::remove_file(dir.path(&format!("{result}/.notes"))).unwrap();
    fs::create_dir(dir.path(&format!("{result}/more"))).unwrap();
    validate(&dir, &[&result])
        .exits(3)
        .one_error()
        .says("more does not belong to the result: it is not a regular file");
    fs::remove_dir(dir.path(&format!("{result}/more"))).unwrap();
    validate(&dir, &[&result]).exits(0);
}

/// A ledger that contradicts its plan is detected even if its checksums match.
#[test]
fn the_verdict_comes_from_the_ledger() {
    let (dir, result) = with_result(&[], &[]);
    let ledger = dir.read(&format!("{result}/ledger.json"));
    let again = |done: Done| {
        dir.write(&format!("{result}/ledger.json"), &ledger);
        sum_again(&dir, &result);
        done
    };
    let row = |ledger: &mut Value, key: &str, by: u64| {
        let value = &mut ledger["ranks"][1]["seen"][key];
        *value = json!(value.as_u64().unwrap() + by);
    };
    forge(&dir, &result, "ledger.json", |ledger| row(ledger, "bytes_read", 1));
    again(validate(&dir, &[&result]))
        .exits(5)
        .prints("verdict: invalid (bytes-as-planned)")
        .prints("recorded verdict: unverified")
        .prints("  bytes-as-planned: was pass, is failed");
    forge(&dir, &result, "ledger.json", |ledger| {
        ledger["ranks"][1]["seen"]["digest"] = json!("00000000000000000000000000000001");
    });
    again(validate(&dir, &[&result])).exits(5).prints("verdict: invalid (exactly-once)");
    forge(&dir, &result, "ledger.json", |ledger| {
        ledger["conditions"]["modes"]["o_direct"]["observed"] = json!(["true"]);
    });
    again(validate(&dir, &[&result])).exits(5).prints("o_direct: requested false, observed true");
    forge(&dir, &result, "ledger.json", |ledger| {
        ledger["ranks"].as_array_mut().unwrap().pop();
    });
    let json = again(validate(&dir, &[&result, "--json"])).exits(4).json();
    assert_eq!(json["results"][0]["recorded_status"], "unverified");
    assert_eq!(json["results"][0]["changes"][0], json!({"rule": "complete", "was": "pass", "is": "fail"}));
    validate(&dir, &[&result]).exits(0);
}

/// What `plan.json` omits is recomputed from the workload: drawn sizes, and the sizes in the catalog.
#[test]
fn plans_are_restored() {
    let drawn = ["dataset.record_length_bytes_stdev=500", "dataset.format=jpeg"];
    let (dir, result) = with_result(&["--ranks", "5"], &drawn);
    let json = validate(&dir, &[&result, "--json"]).exits(0).json();
    let rules = json["results"][0]["verdict"]["rules"].as_array().unwrap().clone();
    let bytes = rules.iter().find(|finding| finding["rule"] == "bytes-as-planned").unwrap();
    assert_eq!(bytes["outcome"], "pass");
    forge(&dir, &result, "ledger.json", |ledger| {
        // The two values agree but are wrong; only the file sizes reveal it.
        for key in ["bytes_read", "bytes_planned"] {
            let value = &mut ledger["ranks"][0]["seen"][key];
            *value = json!(value.as_u64().unwrap() - 1);
        }
    });
    validate(&dir, &[&result]).exits(5).prints("invalid (bytes-as-planned)");

    let dir = Dir::small_with_data();
    dir.feedline(&["catalog", "data", "--quiet"]).run().exits(0);
    dir.feedline(&["run", "w.yaml", "--quiet", "--no-calibration"]).run().ran();
    fs::remove_dir_all(dir.path("data")).unwrap();
    validate(&dir, &[&dir.result()]).exits(0);
}

#[test]
fn documents_of_different_runs_are_refused() {
    let (dir, result) = with_result(&[], &[]);
    let spec = dir.read(&format!("{result}/spec.yaml"));
    dir.write(&format!("{result}/spec.yaml"), spec.replace("num_files_train: 24", "num_files_train: 25"));
    sum_again(&dir, &result);
    validate(&dir, &[&result])
        .exits(3)
        .one_error()
        .says("data.train.names.count is 24 in the plan, but 25 in the");
    dir.write(&format!("{result}/spec.yaml"), spec);
    forge(&dir, &result, "plan.json", |plan| plan["seed"] = json!(124));
    validate(&dir, &[&result])
        .exits(3)
        .one_error()
        .says("plan.json and summary.json are from different runs");
}

#[test]
fn results_that_cannot_be_read_are_named() {
    let (dir, result) = with_result(&[], &[]);
    forge(&dir, &result, "summary.json", |summary| summary["feedline"]["version"] = json!("99.1.0"));
    validate(&dir, &[&result])
        .exits(3)
        .one_error()
        .says("written by feedline 99.1.0, a newer version than this one");
    forge(&dir, &result, "summary.json", |summary| summary["feedline"]["version"] = json!("0.0.1"));
    validate(&dir, &[&result]).exits(0);
    forge(&dir, &result, "ledger.json", |ledger| {
        ledger.as_object_mut().unwrap().remove("ranks");
    });
    validate(&dir, &[&result])
        .exits(3)
        .one_error()
        .says("by feedline 0.0.1; this version cannot read it: ledger.json");

    validate(&dir, &["nowhere"]).exits(3).one_error().says("cannot read nowhere");
    validate(&dir, &["w.yaml"]).exits(3).one_error().says("cannot read w.yaml");
    validate(&dir, &["data"]).exits(3).one_error().says("no results found in data");
    let sweep = ["sweep", "w.yaml", "--no-calibration", "--quiet", "--over", "reader.read_threads=1,2"];
    dir.feedline(&sweep).args(&["--repeat", "1", "--output", "s"]).run().exits(0);
    validate(&dir, &["s"]).exits(3).one_error().says("s is the folder of a sweep");
    validate(&dir, &[]).exits(2);
}

#[test]
fn with_several_results_the_worst_decides() {
    let (dir, good) = with_result(&[], &[]);
    let args = ["run", "w.yaml", "--quiet", "--no-calibration", "--results-dir", "other"];
    dir.feedline(&args).set(&["reader.reader_classname=x"]).run().exits(5);
    let bad = dir.results_below("other").remove(0);
    validate(&dir, &[&good, &bad]).exits(5).prints(&good).prints("verdict: invalid (settings-honoured)");
    dir.write(&format!("{good}/more"), "");
    let done = validate(&dir, &["feedline-results/w", "other/w", "--json"]).exits(3).one_error();
    let results = done.json()["results"].as_array().unwrap().clone();
    assert!(results[0]["refused"].as_str().unwrap().ends_with("more does not belong to the result"));
    assert_eq!((&results[1]["refused"], &results[1]["verdict"]["status"]), (&Value::Null, &json!("invalid")));
}
