//! Failing storage, full disks, missing permissions and signals. In each case: one error that names the object, the
//! right exit code (3 refused, 4 incomplete), no partial result, and data files that are either complete or absent.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::util::{Dir, Done, outcome};

/// Enough files that the bad one is not among those that are checked before a run.
const MANY: &str = "dataset.num_files_train=200";
const BAD: &str = "data/train/img_001_of_200.npz";
/// The name of the bad file within the data set.
const BAD_NAME: &str = "train/img_001_of_200.npz";

/// A data set of 200 files.
fn many() -> Dir {
    let dir = Dir::small();
    dir.feedline(&["generate", "w.yaml", "--quiet"]).set(&[MANY]).run().exits(0);
    dir
}

fn run(dir: &Dir, settings: &[&str]) -> Done {
    dir.feedline(&["run", "w.yaml", "--quiet"]).set(settings).run()
}

/// Checks that there is no result, complete or partial, and no hidden folder.
fn no_result(dir: &Dir) {
    assert_eq!(dir.results(), Vec::<String>::new());
    let listing = dir.listing();
    assert!(!listing.iter().any(|line| line.starts_with("feedline-results/w")), "{listing:?}");
    dir.has_no_leftovers();
}

/// Checks a run that ended because of a bad file.
fn stopped(done: Done, dir: &Dir, says: &[&str]) {
    let done = done.exits(4).one_error().says("rank 0, step ").says("the run stopped in epoch 1 (train)");
    for text in says {
        assert!(done.stderr.contains(text), "{text} is missing in:\n{}", done.stderr);
    }
    done.prints("verdict: incomplete");
    // The ledger has the error, and the result is marked as incomplete.
    let summary = dir.json(&format!("{}/summary.json", dir.result()));
    assert_eq!(summary["feedline"]["verdict"]["status"], "incomplete");
    assert_eq!((outcome(&summary, "complete"), outcome(&summary, "errors")), ("fail".into(), "fail".into()));
    let errors = summary["feedline"]["errors"].as_object().unwrap();
    let said: Vec<&str> = errors.values().filter_map(|met| met["examples"][0]["message"].as_str()).collect();
    assert!(said.iter().any(|message| says.iter().all(|text| message.contains(text))), "{said:?}");
    fs::remove_dir_all(dir.path("feedline-results/w")).unwrap();
    dir.has_no_leftovers();
}

#[test]
fn data_set_missing() {
    let dir = Dir::small();
    let done = run(&dir, &["train.epochs=3"]).exits(3).one_error().says("./data does not exist");
    done.says("feedline generate w.yaml --set train.epochs=3").says("--generate");
    no_result(&dir);
    assert!(!dir.path("data").exists());
    let args = ["run", "w.yaml", "--data-dir", "far/away"];
    dir.feedline(&args).run().exits(3).one_error().says("feedline generate w.yaml --data-dir far/away");
    fs::create_dir(dir.path("data")).unwrap();
    run(&dir, &[]).exits(3).one_error().says("train/img_00_of_24.npz does not exist");
    no_result(&dir);
}

#[test]
fn the_command_in_the_error_message_creates_the_data_set() {
    let dir = Dir::small();
    let refusal = run(&dir, &["dataset.num_files_train=30"]).exits(3).stderr;
    let command = refusal.lines().find_map(|line| line.split_once("create it with: feedline ")).unwrap().1;
    let script = format!("{} {command}", env!("CARGO_BIN_EXE_feedline"));
    dir.command(Path::new("bash"), &["-c", &script]).run().exits(0);
    run(&dir, &["dataset.num_files_train=30"]).exits(0);
}

#[test]
fn data_set_of_other_settings() {
    let dir = Dir::small_with_data();
    run(&dir, &["dataset.record_length_bytes=5000"])
        .exits(3)
        .one_error()
        .says("dataset.record_length_bytes is 4096.0, not 5000.0 as requested")
        .says("generated with other settings");
    no_result(&dir);
}

#[test]
fn one_file_missing() {
    let dir = Dir::small_with_data();
    fs::remove_file(dir.path("data/train/img_05_of_24.npz")).unwrap();
    run(&dir, &[]).exits(3).one_error().says("train/img_05_of_24.npz does not exist");
    no_result(&dir);
    let dir = many();
    fs::remove_file(dir.path(BAD)).unwrap();
    stopped(run(&dir, &[MANY]), &dir, &[BAD, "does not exist"]);
}

#[test]
fn one_file_truncated() {
    let dir = many();
    let needs = format!("needs {} bytes", fs::metadata(dir.path(BAD)).unwrap().len());
    fs::OpenOptions::new().write(true).open(dir.path(BAD)).unwrap().set_len(100).unwrap();
    stopped(run(&dir, &[MANY]), &dir, &[BAD_NAME, "too short: it ends at byte 100", &needs]);
    fs::OpenOptions::new().write(true).open(dir.path(BAD)).unwrap().set_len(0).unwrap();
    stopped(run(&dir, &[MANY, "reader.read_threads=0"]), &dir, &[BAD_NAME, "too short"]);
}

#[test]
fn one_file_too_long() {
    let dir = many();
    let size = fs::metadata(dir.path(BAD)).unwrap().len();
    fs::OpenOptions::new().write(true).open(dir.path(BAD)).unwrap().set_len(size + 1).unwrap();
    stopped(run(&dir, &[MANY]), &dir, &[BAD_NAME, "too long", &size.to_string()]);
}

#[test]
fn a_folder_in_the_place_of_a_file() {
    let dir = many();
    fs::remove_file(dir.path(BAD)).unwrap();
    fs::create_dir(dir.path(BAD)).unwrap();
    stopped(run(&dir, &[MANY]), &dir, &[BAD, "is a folder, but should be a file"]);
    let before = dir.listing();
    let generate = dir.feedline(&["generate", "w.yaml", "--quiet"]).set(&[MANY]).run().exits(4).one_error();
    generate.says(BAD).says("is a folder");
    assert_eq!(dir.listing(), before, "no file was changed or left behind");
    let dir = Dir::small_with_data();
    fs::remove_file(dir.path("data/train/img_00_of_24.npz")).unwrap();
    fs::create_dir(dir.path("data/train/img_00_of_24.npz")).unwrap();
    run(&dir, &[]).exits(3).one_error().says("train/img_00_of_24.npz is a folder");
    no_result(&dir);
}

#[test]
fn one_file_unreadable() {
    let dir = many();
    dir.set_mode(BAD, 0o000);
    fs::create_dir(dir.path("feedline-results")).unwrap();
    dir.set_mode("feedline-results", 0o777);
    let done = dir.feedline_unprivileged(&["run", "w.yaml", "--quiet"]).set(&[MANY]).run();
    stopped(done, &dir, &[BAD, "Permission denied"]);
}

#[test]
fn a_data_folder_without_permission() {
    let dir = Dir::small_with_data();
    fs::create_dir(dir.path("feedline-results")).unwrap();
    dir.set_mode("feedline-results", 0o777);
    dir.set_mode("data/train", 0o000);
    let done = dir.feedline_unprivileged(&["run", "w.yaml", "--quiet"]).run();
    dir.set_mode("data/train", 0o755);
    done.exits(3).one_error().says("data/train/img_00_of_24.npz").says("Permission denied");
    no_result(&dir);
}

#[test]
fn a_bad_file_in_the_evaluation_set() {
    // Evaluation follows the first epoch of training, and a file of its data set is missing.
    let dir = Dir::small();
    let settings = ["dataset.num_files_eval=200", "workflow.evaluation=true"];
    dir.feedline(&["generate", "w.yaml", "--quiet"]).set(&settings).run().exits(0);
    let bad = "data/valid/img_001_of_200.npz";
    fs::remove_file(dir.path(bad)).unwrap();
    let done = run(&dir, &settings).exits(4).one_error().says(bad).says("epoch 1 (eval)");
    done.prints("verdict: incomplete").prints("errors (failed): enoent 1");
    dir.has_no_leftovers();
}

#[test]
fn results_folder_not_writable() {
    let dir = Dir::small_with_data();
    fs::create_dir(dir.path("results")).unwrap();
    dir.set_mode("results", 0o555);
    let before = dir.listing();
    let args = ["run", "w.yaml", "--quiet", "--results-dir", "results"];
    let done = dir.feedline_unprivileged(&args).run().exits(3).one_error().says("results folder results");
    done.says("Permission denied");
    let args = ["run", "w.yaml", "--quiet", "--results-dir", "results/deeper"];
    dir.feedline_unprivileged(&args).run().exits(3).one_error().says("results folder results/deeper");
    fs::remove_file(dir.path("feedline")).unwrap();
    assert_eq!(dir.listing(), before);
}

#[test]
fn results_folder_that_is_a_file() {
    let dir = Dir::small_with_data();
    dir.write("results", "a file");
    let before = dir.listing();
    for place in ["results", "results/below"] {
        let args = ["run", "w.yaml", "--quiet", "--results-dir", place];
        dir.feedline(&args).run().exits(2).one_error().says(&format!("the results folder {place}"));
    }
    assert_eq!(dir.listing(), before);
}

#[test]
fn a_result_that_cannot_be_written_at_the_end() {
    let dir = Dir::small_with_data();
    // The results folder is writable, but a file has the name of the workload's folder in it.
    dir.write("feedline-results/w", "in the way");
    let done = run(&dir, &[]).one_error().says("feedline-results/w");
    assert!(matches!(done.code(), Some(3 | 4)), "{:?}", done.code());
    assert_eq!(dir.results(), Vec::<String>::new());
    dir.has_no_leftovers();
}

#[test]
fn disk_too_small() {
    let dir = Dir::small();
    let before = dir.listing();
    // 100 million files of 100 MB.
    let settings = ["dataset.num_files_train=100000000", "dataset.record_length_bytes=100000000"];
    dir.feedline(&["generate", "w.yaml"])
        .set(&settings)
        .run()
        .exits(3)
        .one_error()
        .says("needs 8.9 PiB")
        .says("are free at ./data");
    assert_eq!(dir.listing(), before);
    let run = dir.feedline(&["run", "w.yaml", "--generate"]).set(&settings).run();
    run.exits(3).one_error().says("needs 8.9 PiB");
    no_result(&dir);
    assert!(!dir.path("data").exists());
}

/// Runs the program with a disk of one MiB at `data/train`, then lists the files on it. The disk is a tmpfs in a mount
/// namespace, so it disappears with the process, however that ends.
fn on_a_small_disk(dir: &Dir, command: &str) -> Done {
    fs::create_dir_all(dir.path("data/train")).unwrap();
    // The check before writing passes, because it queries the file system of the data folder.
    let script = format!(
        "mount -t tmpfs -o size=1m tmpfs data/train || exit 99\n\
         {} {command}; code=$?\n\
         cd data/train && stat -c '%n %s' * .[a-z]* 2>/dev/null\n\
         exit $code",
        env!("CARGO_BIN_EXE_feedline")
    );
    let namespace = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let done = dir.command(Path::new("unshare"), &[namespace, "bash", "-c", &script]).run();
    if done.code() == Some(99) {
        done.fail("this test mounts a small disk and needs root or user namespaces");
    }
    done
}

#[test]
fn disk_full_while_generating() {
    let dir = Dir::small();
    for (format, size) in [("npz", "100000"), ("jpeg", "100000")] {
        let settings = format!("--set dataset.format={format} --set dataset.record_length_bytes={size}");
        let plan = dir.feedline(&["plan", "w.yaml", "--json"]).args(&settings.split(' ').collect::<Vec<_>>());
        let plan = plan.run().exits(0).json();
        let _ = fs::remove_dir_all(dir.path("data"));
        let whole = plan["data"]["train"]["bytes"].as_u64().unwrap() / 24;
        for command in ["generate w.yaml --quiet --writers 3", "run w.yaml --generate --quiet"] {
            let done = on_a_small_disk(&dir, &format!("{command} {settings}")).exits(4).one_error();
            let done = done.says("no space left on the device while writing ").says("data/train/img_");
            let files: Vec<&str> = done.stdout.lines().collect();
            assert!(files.len() >= 5, "some files fit on the disk: {files:?}");
            for line in files {
                let (name, bytes) = line.split_once(' ').unwrap();
                assert!(name.ends_with(format), "left behind: {line}");
                assert_eq!(bytes.parse::<u64>().unwrap(), whole, "{line} is not complete");
            }
            no_result(&dir);
        }
    }
}

/// A run that would take minutes, on the null backend or on files.
const SLOW: [&str; 2] = ["train.computation_time=0.05", "train.epochs=1000"];

/// Time limit for a run to end after a signal, generous for a busy machine.
const SOON: Duration = Duration::from_secs(5);

#[test]
fn a_signal_ends_a_run_with_the_verdict_incomplete() {
    for signal in [Signal::INT, Signal::TERM] {
        for store in ["null", "posix"] {
            let dir = Dir::small_with_data();
            let args = ["run", "w.yaml", "--json", "--ranks", "2", "--store", store];
            let mut running = dir.feedline(&args).set(&SLOW).start();
            running.until_thread("reader");
            std::thread::sleep(Duration::from_millis(200));
            running.signal(signal);
            let done = running.wait_for(SOON).exits(4);
            let mut summary = done.json();
            assert_eq!(summary["feedline"]["verdict"]["status"], "incomplete");
            assert_eq!(outcome(&summary, "complete"), "fail");
            for key in ["schema_version", "error", "exit_code", "remedy"] {
                assert!(summary.as_object_mut().unwrap().shift_remove(key).is_some(), "{key}");
            }
            assert_eq!(summary, dir.json(&format!("{}/summary.json", dir.result())));
            dir.has_no_leftovers();
        }
    }
}

#[test]
fn a_signal_during_a_long_step_ends_the_run() {
    let dir = Dir::small();
    let args = ["run", "w.yaml", "--quiet", "--store", "null"];
    let mut running = dir.feedline(&args).set(&["train.computation_time=3600"]).start();
    running.until_thread("reader");
    std::thread::sleep(Duration::from_millis(200));
    running.signal(Signal::INT);
    running.wait_for(SOON).exits(4).prints("verdict: incomplete");
}

#[test]
fn a_signal_ends_generation_with_complete_files_only() {
    // Too large for any machine to finish before the signal.
    let settings = ["dataset.num_files_train=5000", "dataset.record_length_bytes=1000000"];
    for command in [["generate", "w.yaml", "--quiet"], ["run", "w.yaml", "--generate"]] {
        let dir = Dir::small();
        let mut running = dir.feedline(&command).set(&settings).start();
        running.until_thread("writer");
        let train = dir.path("data/train");
        running.until("some files", || fs::read_dir(&train).is_ok_and(|files| files.count() > 5));
        running.signal(Signal::INT);
        running.wait_for(SOON).exits(4).one_error().says("interrupted");
        let files = dir.tree("data/train");
        assert!((3..5000).contains(&files.len()), "{}", files.len());
        let whole = files.values().next().unwrap().len();
        for (name, bytes) in &files {
            assert!(name.ends_with(".npz") && bytes.len() == whole, "{name} has {} bytes", bytes.len());
        }
        no_result(&dir);
    }
}
