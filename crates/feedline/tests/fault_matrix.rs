//! Every kind of fault with every I/O backend and both error policies: the run ends with the right exit code and names
//! the object, and counted errors are in the ledger. Also cases that look like a stall but are not: planned waiting
//! times.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::util::{Dir, Done, Running, file_stores, outcome};

const POLICIES: [&str; 2] = ["stop", "count"];

/// Enough files that the bad one is not read first, and a part of its name.
const MANY: &str = "dataset.num_files_train=60";
const BAD: &str = "train/img_17_of_60";

/// Time limit for a run to end after a signal.
const SOON: Duration = Duration::from_secs(5);

/// A data set of 60 files.
fn many(settings: &[&str]) -> Dir {
    let dir = Dir::small();
    dir.feedline(&["generate", "w.yaml", "--quiet"]).set(&[&[MANY], settings].concat()).run().exits(0);
    dir
}

/// Starts a run in which fetches of the bad file fail. Its results have a separate folder.
fn start<'a>(dir: &'a Dir, store: &str, fault: &str, policy: &str, settings: &[&str]) -> Running<'a> {
    let store = format!("fault:{store},{fault},file={BAD}");
    let results = format!("results-{store}-{policy}").replace(['/', ',', ':', '='], "-");
    let policy = format!("reader.on_error={policy}");
    let args =
        ["run", "w.yaml", "--quiet", "--json", "--no-calibration", "--ranks", "2", "--stall-timeout", "1s"];
    let more = ["--store", &store, "--results-dir", &results];
    dir.feedline(&args).args(&more).set(&[&[MANY, &policy], settings].concat()).start()
}

/// Whether the backend is unavailable on this machine, and the message says so.
fn is_unavailable(done: &Done, store: &str) -> bool {
    let names_cause = ["io_uring cannot be used: ", "O_DIRECT"].iter().any(|text| done.stderr.contains(text));
    done.code() == Some(3) && names_cause && (store == "uring" || store == "direct")
}

/// Checks a run that an error ended.
fn stopped(done: Done, kind: &str) {
    let done = done.exits(4).one_error().says(BAD).says("rank ").says("the run stopped in epoch 1 (train)");
    let summary = done.json();
    assert_eq!(summary["feedline"]["verdict"]["status"], "incomplete");
    assert_eq!(outcome(&summary, "errors"), "fail");
    check_errors(&summary, kind, 1);
}

/// Checks a run that continued without the samples of the bad file, in two epochs. A run with injected faults is never
/// valid.
fn counted(done: Done, kind: &str) {
    let summary = done.exits(5).json();
    for (rule, expected) in [
        ("complete", "pass"),
        ("exactly-once", "pass"),
        ("bytes-as-planned", "pass"),
        ("errors", "note"),
        ("no-injected-faults", "fail"),
    ] {
        assert_eq!(outcome(&summary, rule), expected, "{rule}: {summary:#}");
    }
    check_errors(&summary, kind, 2);
    for epoch in summary["feedline"]["epochs"].as_array().unwrap() {
        assert_eq!((&epoch["samples_delivered"], &epoch["samples_failed"]), (&json!(59), &json!(1)));
    }
}

fn check_errors(summary: &Value, kind: &str, count: u64) {
    let errors = &summary["feedline"]["errors"];
    assert_eq!(errors.as_object().unwrap().len(), 1, "{errors}");
    assert_eq!(errors[kind]["count"], count, "{errors}");
    let example = &errors[kind]["examples"][0];
    assert!(example["file"].as_str().unwrap().starts_with(BAD), "{example}");
    assert!(example["message"].as_str().unwrap().contains(BAD), "{example}");
    assert!(example["rank"].is_u64() && example["step"].is_u64() && example["offset"] == 0, "{example}");
}

#[test]
fn a_read_that_fails() {
    let dir = many(&[]);
    for store in file_stores() {
        for kind in ["eio", "enoent", "short"] {
            for policy in POLICIES {
                let done = start(&dir, store, &format!("kind={kind}"), policy, &[]).wait();
                match policy {
                    _ if is_unavailable(&done, store) => {}
                    "stop" => stopped(done, kind),
                    _ => counted(done, kind),
                }
            }
        }
    }
    dir.has_no_leftovers();
}

#[test]
fn bytes_that_are_wrong() {
    // A full comparison detects it. A decoder detects it, too, because the first bytes of an image identify the format.
    let ways: [(&str, &[&str]); 2] = [
        ("wrong-bytes", &["reader.verify=full"]),
        ("damaged", &["dataset.format=png", "reader.preprocess=decode", "reader.verify=none"]),
    ];
    for (kind, settings) in ways {
        let format: Vec<&str> = settings.iter().copied().filter(|key| key.starts_with("dataset.")).collect();
        let dir = many(&format);
        for store in file_stores() {
            for policy in POLICIES {
                let done = start(&dir, store, "kind=wrong-bytes", policy, settings).wait();
                match policy {
                    _ if is_unavailable(&done, store) => {}
                    "stop" => stopped(done, kind),
                    _ => counted(done, kind),
                }
            }
        }
    }
}

#[test]
fn a_slow_read() {
    let dir = many(&[]);
    for store in file_stores() {
        for policy in POLICIES {
            let done = start(&dir, store, "kind=delay,span=50ms", policy, &[]).wait();
            if is_unavailable(&done, store) {
                continue;
            }
            let summary = done.exits(5).json();
            assert_eq!(outcome(&summary, "errors"), "pass");
            assert_eq!(summary["feedline"]["store"]["facts"]["faults_injected"], "2");
            let longest = summary["feedline"]["latency"]["sample"]["max_ns"].as_u64().unwrap();
            assert!(longest >= 50_000_000, "{store}: the delay is part of the latencies, {longest}");
        }
    }
}

#[test]
fn a_read_that_never_ends() {
    let dir = many(&[]);
    let mut running = Vec::new();
    for store in file_stores() {
        for policy in POLICIES {
            running.push((store, start(&dir, store, "kind=hang", policy, &[])));
        }
    }
    for (store, run) in running {
        let done = run.wait_for(Duration::from_secs(60));
        if is_unavailable(&done, store) {
            continue;
        }
        let done = done.exits(4).one_error().says("no progress for ").says(", reader ").says(", step ");
        let done = done.says(&format!(": read {BAD}")).says(" at byte 0, for ");
        // io_uring can cancel a read that never ends. A thread that hangs in the kernel cannot be ended, and its
        // measurements are lost.
        match store {
            "uring" => assert_eq!(done.json()["feedline"]["verdict"]["status"], "incomplete"),
            _ => assert!(done.json().get("feedline").is_none(), "{}", done.stdout),
        }
    }
    for line in dir.listing() {
        assert!(!line.starts_with("results-") || line.contains("uring"), "left behind: {line}");
    }
    dir.has_no_leftovers();
}

/// A run over existing files, whose metadata is fetched before their samples. Each fetch can fail, be late or never
/// end.
#[test]
fn faults_in_metadata_are_handled_like_faults_in_samples() {
    let dir = many(&[]);
    dir.feedline(&["catalog", "data", "--quiet"]).run().exits(0);
    // The second fetch of the bad file in each epoch is also a metadata fetch.
    for (fault, kind) in
        [("kind=eio", "eio"), ("kind=eio,after=1,limit=1", "eio"), ("kind=wrong-bytes", "damaged")]
    {
        for store in file_stores() {
            let done = start(&dir, store, fault, "count", &["reader.read_threads=4"]).wait();
            if is_unavailable(&done, store) {
                continue;
            }
            let summary = done.exits(5).json();
            assert_eq!(outcome(&summary, "exactly-once"), "pass", "{summary:#}");
            assert_eq!(outcome(&summary, "bytes-as-planned"), "pass", "{summary:#}");
            let error = &summary["feedline"]["errors"][kind];
            assert_eq!(error["count"], if fault.contains("limit") { 1 } else { 2 }, "{summary:#}");
            assert!(error["examples"][0]["message"].as_str().unwrap().contains(BAD), "{error}");
        }
    }
    start(&dir, "posix", "kind=eio", "stop", &[]).wait().exits(4).one_error().says(BAD).says("rank ");
    start(&dir, "posix", "kind=delay,span=50ms", "stop", &[]).wait().exits(5);
}

#[test]
fn a_metadata_read_that_never_ends_is_reported_as_metadata() {
    let dir = many(&[]);
    dir.feedline(&["catalog", "data", "--quiet"]).run().exits(0);
    let running: Vec<_> =
        file_stores().map(|store| (store, start(&dir, store, "kind=hang", "stop", &[]))).collect();
    for (store, run) in running {
        let done = run.wait_for(Duration::from_secs(60));
        if !is_unavailable(&done, store) {
            let done = done.exits(4).one_error().says("no progress for ");
            done.says(&format!(": read (metadata) {BAD}")).says(" at byte ");
        }
    }
}

#[test]
fn a_signal_ends_a_run_whose_reader_hangs() {
    let dir = many(&[]);
    let start = |store: &str, place: &str| {
        let store = format!("fault:{store},kind=hang");
        let args = ["run", "w.yaml", "--quiet", "--no-calibration", "--stall-timeout", "off"];
        dir.feedline(&args).args(&["--store", &store, "--results-dir", place]).set(&[MANY]).start()
    };
    let places = [(Signal::INT, "a"), (Signal::TERM, "b")];
    let each = file_stores().flat_map(|store| places.map(|(signal, place)| (store, signal, place)));
    let running: Vec<_> = each.map(|(store, signal, place)| (store, signal, start(store, place))).collect();
    // Long enough for the first fetches, in which all readers hang. An unavailable backend is refused meanwhile.
    std::thread::sleep(Duration::from_secs(2));
    running.iter().for_each(|(_, signal, run)| run.signal(*signal));
    for (store, _, run) in running {
        let done = run.wait_for(SOON);
        if is_unavailable(&done, store) {
            continue;
        }
        let done = done.exits(4);
        match store {
            "uring" => drop(done.prints("verdict: incomplete")),
            _ => drop(done.one_error().says("interrupted").says("still not ended").says("read train/img_")),
        }
    }
}

#[test]
fn more_errors_than_the_limit_end_the_run() {
    let dir = many(&[]);
    let args = ["run", "w.yaml", "--quiet", "--no-calibration", "--store", "fault:posix,kind=eio,every=10"];
    let run = |limit: &str| dir.feedline(&args).set(&[MANY, "reader.on_error=count", limit]).run();
    // There are twelve errors in two epochs.
    let done = run("reader.error_limit=11").exits(4).one_error();
    done.says("more errors than reader.error_limit: 11").says("epoch 2").prints("errors (failed): eio 12; ");
    run("reader.error_limit=12")
        .exits(5)
        .prints("errors (note): eio 12; 12 samples not delivered; for example rank 0");
}

#[test]
fn failed_reads_are_not_taken_for_cached_ones() {
    let dir = many(&[]);
    let args = ["run", "w.yaml", "--quiet", "--no-calibration", "--store", "fault:posix,kind=eio"];
    let done =
        dir.feedline(&args).set(&[MANY, "reader.on_error=count", "reader.error_limit=1000"]).run().exits(5);
    let done = done.prints("errors (note): eio");
    for wrong in ["from memory", "use --store posix", "in the same order"] {
        assert!(!done.stdout.contains(wrong), "{wrong}: {}", done.stdout);
    }
}

#[test]
fn samples_that_are_read_together_fail_together() {
    // A row group is read once, with its first sample; its other samples are in other batches.
    let settings = [
        "dataset.format=parquet",
        "dataset.num_samples_per_file=8",
        "dataset.num_files_train=10",
        "reader.read_threads=1",
        "train.epochs=1",
        "reader.on_error=count",
    ];
    let dir = Dir::small();
    dir.feedline(&["generate", "w.yaml", "--quiet"]).set(&settings[..3]).run().exits(0);
    let store = "fault:posix,kind=eio,file=img_03_of_10";
    let args = ["run", "w.yaml", "--quiet", "--json", "--no-calibration", "--store", store];
    let summary = dir.feedline(&args).set(&settings).run().exits(5).json();
    let epoch = &summary["feedline"]["epochs"][0];
    assert_eq!((&epoch["samples_delivered"], &epoch["samples_failed"]), (&json!(72), &json!(8)), "{epoch}");
    assert_eq!(outcome(&summary, "exactly-once"), "pass");
}

/// Planned waits that take longer than the timeout are not stalls.
#[test]
fn planned_waits_are_not_stalls() {
    let dir = Dir::small_with_data();
    let ways: [(&str, &[&str]); 4] = [
        ("null", &["train.computation_time=1.5"]),
        ("sim:bandwidth=1GB/s,latency=1500ms,channels=64", &[]),
        ("posix", &["reader.preprocess_time=1.5"]),
        ("posix", &["reader.preprocess_time=0.8", "reader.preprocess=burn"]),
    ];
    let start = |(store, settings): &(&str, &[&str])| {
        let cut = ["train.epochs=1", "dataset.num_files_generated=24", "dataset.num_files_train=4"];
        let args = ["run", "w.yaml", "--quiet", "--no-calibration", "--stall-timeout", "500ms"];
        dir.feedline(&args).args(&["--store", store]).set(&[&cut, *settings].concat()).start()
    };
    let running: Vec<Running<'_>> = ways.iter().map(start).collect();
    // Two runs read the same files, so one may find pages that the other has loaded. Their verdicts do not matter here.
    for run in running {
        let done = run.wait();
        assert!(matches!(done.code(), Some(0 | 5)), "{:?}: {}", done.code(), done.stderr);
    }
}

#[test]
fn an_invalid_fault_is_refused() {
    let dir = Dir::small_with_data();
    for (store, says) in [
        ("fault", "'' is not a store with files"),
        ("fault:null,kind=eio", "'null' is not a store with files"),
        ("fault:posix", "the kind is missing"),
        ("fault:posix,kind=eio,every=0", "every=0 should be a number of at least 1"),
    ] {
        let args = ["run", "w.yaml", "--quiet", "--store", store];
        dir.feedline(&args).run().exits(2).one_error().says(says);
    }
    let args = ["run", "w.yaml", "--stall-timeout", "soon"];
    dir.feedline(&args).run().exits(2).says("--stall-timeout");
}
