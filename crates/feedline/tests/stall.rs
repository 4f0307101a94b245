//! What stalls the accelerators: the parts and their sum, the state of the page cache before each run, and what is
//! refused. The size of a real stall is unknown to a test; unit tests check the arithmetic.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::util::{Dir, Done, SMALL};

/// `SMALL` with 100 steps, enough for a measurable wait.
fn many() -> Dir {
    let dir = Dir::new();
    dir.write("w.yaml", SMALL.replace("num_files_train: 24", "num_files_train: 200"));
    dir
}

fn many_with_data() -> Dir {
    let dir = many();
    dir.feedline(&["generate", "w.yaml", "--quiet"]).run().exits(0);
    dir
}

/// Whether the test folders are on tmpfs, from which nothing can be evicted.
fn is_in_memory(dir: &Dir) -> bool {
    rustix::fs::statfs(dir.path(".").as_path()).unwrap().f_type == 0x0102_1994
}

/// Checks that a command completed. On a busy machine the verdict of a run may be invalid.
fn ended(done: Done) -> Done {
    assert!([Some(0), Some(5)].contains(&done.code()), "{}", done.stderr);
    done
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

#[test]
fn parts_add_up_and_the_cache_state_is_verified() {
    let dir = many_with_data();
    let json = ended(dir.feedline(&["stall", "w.yaml", "--quiet", "--json"]).run().silent()).json();
    assert_eq!((json["steps"].as_u64(), json["warm_up_steps"].as_u64()), (Some(95), Some(5)));
    let parts = &json["parts"];
    let sum =
        ["compute_seconds", "prep_stall_seconds", "fetch_stall_seconds"].map(|part| number(&parts[part]));
    assert!((sum.iter().sum::<f64>() - number(&parts["total_seconds"])).abs() < 1e-9, "{parts}");
    assert!(sum.iter().all(|part| *part >= 0.0));
    let rates: Vec<f64> =
        json["what_if"].as_array().unwrap().iter().map(|row| number(&row["mb_per_second"])).collect();
    assert_eq!(rates.len(), 6);
    assert!(rates.windows(2).all(|pair| pair[0] <= pair[1] + 1e-9), "{rates:?}");
    assert!(rates.iter().all(|rate| *rate <= number(&parts["prep_mb_per_second"]) + 1e-9), "{rates:?}");
    assert_eq!(json["warm_cache"]["verified"], !is_in_memory(&dir), "{}", json["warm_cache"]);
    assert_eq!(json["cold_cache"]["verified"], !is_in_memory(&dir), "{}", json["cold_cache"]);
    let evidence = json["cold_cache"]["evidence"].as_str().unwrap();
    let expected =
        if is_in_memory(&dir) { "tmpfs keeps files in memory" } else { "0 of 400 pages were cached before" };
    assert_eq!(evidence, expected, "200 files x 2 pages");
}

#[test]
fn only_the_files_that_are_read_are_evicted() {
    let dir = many_with_data();
    let json = ended(dir.feedline(&["stall", "w.yaml", "--steps", "50", "--json"]).run()).json();
    let evidence = json["cold_cache"]["evidence"].as_str().unwrap();
    let expected =
        if is_in_memory(&dir) { "tmpfs keeps files in memory" } else { "0 of 200 pages were cached before" };
    assert_eq!(evidence, expected, "50 steps x 2 files x 2 pages");
}

#[test]
fn the_report_has_its_rows_and_verdict() {
    let dir = many_with_data();
    let done = ended(dir.feedline(&["stall", "w.yaml"]).run());
    for text in [
        "w: 1 rank, posix backend, 95 steps after 5 warm-up steps",
        "\n compute ",
        "\n preprocessing stall ",
        "\n fetch stall ",
        "\n total ",
        "\nverdict: ",
        "\n cached %",
    ] {
        assert!(done.stdout.contains(text), "{text} is missing in:\n{}", done.stdout);
    }
    let mut lines = done.stderr.lines();
    assert_eq!(
        lines.next(),
        Some("4 runs of 100 steps; estimated time: at least 0 s, if accelerators never wait")
    );
    let runs: Vec<&str> = lines.filter_map(|line| line.split_once(" run ")).map(|line| line.0).collect();
    assert_eq!(runs, ["synthetic", "cold", "warm", "memory"]);
}

#[test]
fn an_analysis_has_a_folder_with_journal_figures_and_plot() {
    let dir = many_with_data();
    let done = ended(dir.feedline(&["stall", "w.yaml", "--quiet"]).run());
    let place = done.stdout.lines().last().unwrap().strip_prefix("result in ").unwrap().to_owned();
    assert!(place.starts_with("feedline-results/stall/w/"), "{place}");
    let journal = dir.read(&format!("{place}/runs.jsonl"));
    let lines: Vec<Value> = journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["stall"]), (5, &"w".into()));
    assert_eq!(dir.json(&format!("{place}/stall.json"))["steps"], 95);
    let csv = dir.read(&format!("{place}/stall.csv"));
    let runs: Vec<&str> = csv.lines().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(runs, ["run", "synthetic", "cold", "warm", "memory"]);
    assert_eq!(dir.read(&format!("{place}/stall.svg")).matches("class=\"bar\"").count(), 6);
    let validated = dir.feedline(&["validate", &place]).run().exits(3).one_error();
    validated.says("is the folder of a stall analysis");
    dir.has_no_leftovers();
}

/// 100 steps of 50 ms: the three runs that compute take at least 15 s.
#[test]
fn an_interrupted_analysis_is_resumed() {
    let dir = many_with_data();
    let args = ["stall", "w.yaml", "--output", "s"];
    let slow = ["train.computation_time=0.05"];
    let mut running = dir.feedline(&args).set(&slow).start();
    let journal = dir.path("s/runs.jsonl");
    running.until("a run", || fs::read_to_string(&journal).is_ok_and(|text| text.lines().count() > 1));
    running.signal(Signal::INT);
    let done =
        running.wait().exits(4).one_error().says("interrupted in the cold run; there is no answer before");
    let done = done.says("resume with: feedline stall w.yaml --output s");
    done.says("4 runs of 100 steps; estimated time: at least 15");
    assert!(!dir.path("s/stall.json").exists());
    let before = dir.read("s/runs.jsonl");
    let done = ended(dir.feedline(&args).set(&slow).run()).says("s: 1 finished run will not be repeated");
    done.prints("result in s\n");
    let after = dir.read("s/runs.jsonl");
    assert!(after.starts_with(&before) && after.lines().count() == 5, "{after}");
}

#[test]
fn a_backend_without_page_cache_is_noted() {
    let dir = many();
    let done = ended(dir.feedline(&["stall", "w.yaml", "--store", "null"]).run());
    done.prints("the null backend does not use the page cache");
}

#[test]
fn mistakes_are_reported_before_anything_runs() {
    let dir = many();
    let table: &[(&[&str], &[&str])] = &[
        (&["--steps", "5"], &["too few steps, 5", "--steps"]),
        (&["--steps", "0"], &["--steps"]),
        (&["--output", "w.yaml"], &["w.yaml is a file, not a folder"]),
        (&["--set", "dataset.num_files_train=10"], &["too few steps, 5", "dataset.num_files_train"]),
        (&["--ranks", "101"], &["101 ranks x batch 2"]),
        (&["--store", "disc"], &["there is no store 'disc'"]),
        (&["--set", "reader.read_thread=1"], &["did you mean 'read_threads'?"]),
    ];
    let before = dir.listing();
    for (args, texts) in table {
        let done = dir.feedline(&["stall", "w.yaml"]).args(args).run().exits(2).one_error();
        for text in *texts {
            assert!(done.stderr.contains(text), "{args:?} does not say {text}:\n{}", done.stderr);
        }
        assert!(done.stdout.is_empty());
    }
    dir.feedline(&["stall", "w.yaml"]).run().exits(3).one_error().says("feedline generate w.yaml");
    assert_eq!(dir.listing(), before);
}

#[test]
fn a_run_that_fails_is_named() {
    let dir = many_with_data();
    fs::write(dir.path("data/train/img_001_of_200.npz"), "short").unwrap();
    let done = dir.feedline(&["stall", "w.yaml", "--quiet"]).run().exits(4).one_error();
    done.says("cold run: the run stopped in epoch 1").says("img_001_of_200.npz");
}
