//! The files of a leaf: which there are, when, and what happens to those that were there before.

use std::fs;
use std::os::unix::fs::symlink;

use model::verdict::Status;

use super::*;
use crate::commands::saved::{self, SavedResult};

/// The names of the files in a folder and below, sorted.
fn names(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        match path.is_dir() {
            true => found.extend(names(&path).into_iter().map(|below| format!("{name}/{below}"))),
            false => found.push(name),
        }
    }
    found.sort();
    found
}

const WHOLE: [&str; 13] = [
    "0_output.json",
    "0_per_epoch_stats.json",
    "1_output.json",
    "1_per_epoch_stats.json",
    "dlio.log",
    "feedline/SHA256SUMS",
    "feedline/epochs.csv",
    "feedline/ledger.json",
    "feedline/plan.json",
    "feedline/report.html",
    "feedline/report.txt",
    "feedline/result.json",
    "feedline/spec.yaml",
];

#[test]
fn a_leaf_has_dlios_files_and_a_folder_that_feedline_reads_back() {
    let (root, ended) = (tempfile::tempdir().unwrap(), silent(&["train.epochs=1"]));
    let path = root.path().join("results/run/20260101_120000");
    ended.write(&path);
    assert_eq!(names(&path), [&WHOLE[..], &["summary.json"]].concat());
    for folder in [&path, path.parent().unwrap(), &path.join("feedline")] {
        assert_eq!(saved::find(folder).unwrap(), [path.join("feedline")], "{}", folder.display());
    }
    let result = SavedResult::open(&path.join("feedline")).unwrap();
    assert_eq!(result.judge(), ended.verdict);
    let log = fs::read_to_string(path.join("dlio.log")).unwrap();
    let first = format!("feedline {} runs this benchmark in place of DLIO", env!("CARGO_PKG_VERSION"));
    assert!(log.lines().next().unwrap().ends_with(&first), "{log}");
    assert!(log.trim_end().ends_with(&format!("Saved outputs in {}", path.display())), "{log}");
}

#[test]
fn a_run_that_did_not_finish_has_no_summary() {
    let (root, mut ended) = (tempfile::tempdir().unwrap(), silent(&["train.epochs=1"]));
    ended.verdict.status = Status::Incomplete;
    let leaf = LeafWriter::begin(root.path(), "dlio.log", LEADS).unwrap();
    leaf.conclude(&ended.outcome()).unwrap();
    assert_eq!(names(root.path()), WHOLE[4..]);
}

#[test]
fn a_second_run_replaces_the_files_of_the_first_and_nothing_else() {
    let (root, ended) = (tempfile::tempdir().unwrap(), silent(&["train.epochs=1"]));
    let path = root.path();
    fs::create_dir(path.join("collector-staging")).unwrap();
    let foreign =
        ["collector-staging/a", ".mlps-code-image", "fs_separation.json", "x_output.json", "_output.json"];
    foreign.iter().for_each(|name| fs::write(path.join(name), name).unwrap());
    ended.write(path);
    fs::write(path.join("7_output.json"), "of a run with more ranks").unwrap();
    fs::write(path.join("feedline/nodes.csv"), "of a run with more hosts").unwrap();
    let leaf = LeafWriter::begin(path, "dlio.log", LEADS).unwrap();
    let mut left: Vec<&str> = foreign.to_vec();
    left.push("dlio.log");
    left.sort_unstable();
    assert_eq!(names(path), left, "until the second run ends, nothing looks like its result");
    leaf.write_ranks(&ended.own()).unwrap();
    leaf.conclude(&ended.outcome()).unwrap();
    assert!(path.join("summary.json").exists());
    SavedResult::open(&path.join("feedline")).unwrap();
    foreign.iter().for_each(|name| assert_eq!(fs::read_to_string(path.join(name)).unwrap(), *name));
    let log = fs::read_to_string(path.join("dlio.log")).unwrap();
    assert_eq!(log.matches("in place of DLIO").count(), 1, "the log of the first run is gone");
}

#[test]
fn links_and_folders_with_the_names_of_files_are_refused() {
    let ended = silent(&["train.epochs=1"]);
    for name in ["summary.json", "dlio.log", "0_output.json", "feedline"] {
        let root = tempfile::tempdir().unwrap();
        let (path, target) = (root.path().join("leaf"), root.path().join("target"));
        fs::create_dir(&path).unwrap();
        let is_folder = name == "feedline";
        if is_folder {
            fs::create_dir(&target).unwrap();
        } else {
            fs::write(&target, "kept").unwrap();
        }
        symlink(&target, path.join(name)).unwrap();
        let wrote = LeafWriter::begin(&path, "dlio.log", LEADS).and_then(|leaf| {
            leaf.write_ranks(&ended.own())?;
            leaf.conclude(&ended.outcome())
        });
        let error = format!("{:#}", wrote.unwrap_err());
        assert!(error.contains(name) && error.contains("link"), "{error}");
        let kept = if is_folder {
            names(&target).is_empty()
        } else {
            fs::read_to_string(&target).unwrap() == "kept"
        };
        assert!(kept, "{name}");
        assert!(name == "summary.json" || !path.join("summary.json").exists(), "{name}");
    }
}

#[test]
fn the_log_may_have_another_name_but_none_of_those_that_the_leaf_writes() {
    let root = tempfile::tempdir().unwrap();
    LeafWriter::begin(&root.path().join("leaf"), "run.log", LEADS).unwrap();
    LeafWriter::begin(&root.path().join("leaf"), "", LEADS).unwrap();
    assert_eq!(names(root.path()), ["leaf/dlio.log", "leaf/run.log"]);
    let elsewhere = root.path().join("other.log");
    fs::write(&elsewhere, "kept").unwrap();
    for name in
        ["..", "logs/run.log", elsewhere.to_str().unwrap(), "summary.json", "0_output.json", "feedline"]
    {
        let error = format!("{:#}", LeafWriter::begin(root.path(), name, LEADS).err().unwrap());
        assert!(error.contains("output.log_file"), "{name}: {error}");
    }
    assert_eq!(fs::read_to_string(elsewhere).unwrap(), "kept");
}

#[test]
fn two_runs_cannot_have_the_same_leaf() {
    let (root, ended) = (tempfile::tempdir().unwrap(), silent(&["train.epochs=1"]));
    let first = LeafWriter::begin(root.path(), "dlio.log", LEADS).unwrap();
    let error = format!("{:#}", LeafWriter::begin(root.path(), "dlio.log", LEADS).err().unwrap());
    assert!(error.contains("another feedline is writing to"), "{error}");
    // As on a file system without locks between hosts.
    fs::remove_file(root.path().join("dlio.log")).unwrap();
    fs::write(root.path().join("dlio.log"), "of another run").unwrap();
    first.write_ranks(&ended.own()).unwrap();
    let error = format!("{:#}", first.conclude(&ended.outcome()).unwrap_err());
    assert!(error.contains("another run has replaced"), "{error}");
    assert!(!root.path().join("summary.json").exists());
}

#[test]
fn what_is_in_the_way_is_found_before_the_run() {
    for (name, is_folder) in [("1_output.json", true), ("0_per_epoch_stats.json", true), ("feedline", false)]
    {
        let root = tempfile::tempdir().unwrap();
        match is_folder {
            true => fs::create_dir(root.path().join(name)).unwrap(),
            false => fs::write(root.path().join(name), "mine").unwrap(),
        }
        let error = format!("{:#}", LeafWriter::begin(root.path(), "dlio.log", LEADS).err().unwrap());
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn other_processes_neither_log_nor_remove() {
    let (root, ended) = (tempfile::tempdir().unwrap(), silent(&["train.epochs=1"]));
    ended.write(root.path());
    let before = names(root.path());
    let leaf = LeafWriter::begin(root.path(), "dlio.log", None).unwrap();
    leaf.log().output("not written");
    leaf.write_ranks(&OwnRun { ranks: 1..2, ..ended.own() }).unwrap();
    leaf.log().finish().unwrap();
    assert_eq!(names(root.path()), before);
}
