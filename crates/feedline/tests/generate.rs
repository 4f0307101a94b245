//! The data set on disk: the same bytes for the same seed, complete files only, names and sizes as planned.

use rustix::process::Signal;

use crate::util::{Dir, SMALL};

/// 300 npz files of 250 kB: long enough to be interrupted, short enough to be repeated.
const LONG: [&str; 2] = ["dataset.num_files_train=300", "dataset.record_length_bytes=250000"];

fn generate(dir: &Dir, folder: &str, flags: &[&str], settings: &[&str]) -> serde_json::Value {
    let args = ["generate", "w.yaml", "--quiet", "--json", "--data-dir", folder];
    dir.feedline(&args).args(flags).set(settings).run().exits(0).silent().json()
}

fn assert_same_trees(dir: &Dir, one: &str, other: &str) {
    let (one, other) = (dir.tree(one), dir.tree(other));
    assert!(!one.is_empty());
    assert!(one.keys().eq(other.keys()), "{:?}\n{:?}", one.keys(), other.keys());
    for (name, bytes) in &one {
        assert!(*bytes == other[name], "{name} differs");
    }
}

#[test]
fn one_and_eight_writers_give_the_same_bytes() {
    let dir = Dir::small();
    for format in ["npz", "jpeg"] {
        let settings = [
            &format!("dataset.format={format}"),
            "dataset.num_files_train=60",
            "dataset.num_files_eval=7",
            "dataset.record_length_bytes=20000",
            "dataset.record_length_bytes_stdev=3000",
        ];
        let (one, eight) = (format!("{format}1"), format!("{format}8"));
        generate(&dir, &one, &["--writers", "1"], &settings);
        generate(&dir, &eight, &["--writers", "8"], &settings);
        assert_same_trees(&dir, &one, &eight);
    }
}

#[test]
fn another_seed_gives_other_bytes_of_the_same_size() {
    let dir = Dir::small();
    for format in ["dataset.format=npz", "dataset.format=jpeg"] {
        let (one, other) = (format!("{format}1"), format!("{format}2"));
        generate(&dir, &one, &[], &[format]);
        generate(&dir, &other, &[], &[format, "train.seed=124"]);
        let (a, b) = (dir.tree(&one), dir.tree(&other));
        assert!(a.keys().eq(b.keys()));
        for (name, bytes) in &a {
            assert_eq!(bytes.len(), b[name].len(), "{name}");
            assert_ne!(*bytes, b[name], "{name}");
        }
    }
}

#[test]
fn no_two_blocks_are_equal() {
    let dir = Dir::small();
    let settings = ["dataset.record_length_bytes=40000", "dataset.num_files_eval=4"];
    for format in ["dataset.format=npz", "dataset.format=jpeg"] {
        generate(&dir, format, &[], &[settings[0], settings[1], format]);
        let mut seen = std::collections::HashSet::new();
        for (name, bytes) in dir.tree(format) {
            for block in bytes.chunks_exact(512) {
                assert!(seen.insert(block.to_vec()), "a block of {name} repeats an earlier one");
            }
        }
        assert!(seen.len() > 1000);
    }
}

#[test]
fn a_second_generate_keeps_existing_files() {
    let dir = Dir::small();
    let first = generate(&dir, "data", &[], &[]);
    assert_eq!((first["files_written"].as_u64(), first["files_kept"].as_u64()), (Some(24), Some(0)));
    let stamps = || {
        let time =
            |name: &String| std::fs::metadata(dir.path("data").join(name)).unwrap().modified().unwrap();
        dir.tree("data").keys().map(time).collect::<Vec<_>>()
    };
    let before = (dir.tree("data"), stamps());
    let second = generate(&dir, "data", &[], &[]);
    assert_eq!((second["files_written"].as_u64(), second["files_kept"].as_u64()), (Some(0), Some(24)));
    assert_eq!(second["bytes_written"], 0);
    assert_eq!((dir.tree("data"), stamps()), before);
    let third = generate(&dir, "data", &["--overwrite"], &[]);
    assert_eq!(third["files_written"], 24);
    assert_eq!(dir.tree("data"), before.0);
}

#[test]
fn files_that_are_missing_or_of_a_wrong_size_are_written_again() {
    let dir = Dir::small();
    generate(&dir, "data", &[], &[]);
    let whole = dir.tree("data");
    std::fs::remove_file(dir.path("data/train/img_03_of_24.npz")).unwrap();
    dir.write("data/train/img_07_of_24.npz", "cut off");
    dir.write("data/train/img_09_of_24.npz", vec![0; 1 << 20]);
    // A leftover of a killed attempt, longer than the file will be.
    dir.write("data/train/img_03_of_24.npz.partial", vec![1; 1 << 20]);
    let again = generate(&dir, "data", &[], &[]);
    assert_eq!((again["files_written"].as_u64(), again["files_kept"].as_u64()), (Some(3), Some(21)));
    assert_eq!(dir.tree("data"), whole);
}

#[test]
fn generation_after_a_kill_gives_the_same_data_set() {
    let dir = Dir::small();
    generate(&dir, "whole", &[], &LONG);
    let whole = dir.tree("whole");
    assert_eq!(whole.len(), 300);
    for attempt in 0..20 {
        let folder = format!("killed{attempt}");
        let mut running = dir
            .feedline(&["generate", "w.yaml", "--quiet", "--writers", "2", "--data-dir", &folder])
            .set(&LONG)
            .start();
        let train = dir.path(&folder).join("train");
        let enough = 3 + 10 * attempt;
        running.until("some files", || std::fs::read_dir(&train).is_ok_and(|files| files.count() > enough));
        running.signal(Signal::KILL);
        let ended = running.wait();
        let there = dir.tree(&folder);
        if ended.signal().is_none() || there.len() >= 300 {
            continue; // It finished before the signal; try again.
        }
        for (name, bytes) in there.iter().filter(|(name, _)| !name.ends_with(".partial")) {
            assert!(*bytes == whole[name], "{name} is not complete");
        }
        generate(&dir, &folder, &[], &LONG);
        assert_same_trees(&dir, &folder, "whole");
        return;
    }
    panic!("no attempt was killed in the middle");
}

#[test]
fn names_folders_and_prefix_are_dlios() {
    let dir = Dir::small();
    let settings = [
        "dataset.num_files_train=11",
        "dataset.num_files_eval=3",
        "dataset.num_subfolders_train=2",
        "dataset.num_subfolders_eval=3",
        "dataset.file_prefix=part",
    ];
    generate(&dir, "data", &[], &settings);
    let names: Vec<String> = dir.tree("data").into_keys().collect();
    let mut expected: Vec<String> =
        (0..11).map(|i| format!("train/{}/part_{i:02}_of_11.npz", i % 2)).collect();
    expected.extend((0..3).map(|i| format!("valid/{i}/part_{i}_of_3.npz")));
    expected.sort();
    assert_eq!(names, expected);
    let flags = ["run", "w.yaml", "--quiet", "--set", "workflow.evaluation=true"];
    dir.feedline(&flags).set(&settings).run().exits(0);
}

#[test]
fn more_files_than_are_read() {
    let dir = Dir::small();
    let settings = ["dataset.num_files_generated=30"];
    generate(&dir, "data", &[], &settings);
    let files = dir.tree("data/train");
    assert_eq!(files.len(), 30);
    let plan = dir.feedline(&["plan", "w.yaml", "--json"]).set(&settings).run().exits(0).json();
    assert_eq!(plan["disk"]["needed_bytes"], files.values().map(Vec::len).sum::<usize>());
    let args = ["run", "w.yaml", "--quiet", "--json"];
    let summary = dir.feedline(&args).set(&settings).run().exits(0).json();
    assert_eq!(summary["feedline"]["epochs"][0]["samples_delivered"], 24);
}

#[test]
fn sizes_on_disk_are_exactly_as_planned() {
    let dir = Dir::new();
    dir.write("w.yaml", SMALL);
    let table: &[&[&str]] = &[
        &["dataset.format=npz"],
        &["dataset.format=npz", "dataset.num_samples_per_file=5"],
        &["dataset.format=npz", "dataset.record_length_bytes_stdev=900", "dataset.num_files_eval=5"],
        &["dataset.format=npz", "dataset.record_element_type=float64"],
        &["dataset.format=npz", "dataset.record_dims=[3,17,5]", "dataset.record_element_type=float32"],
        &["dataset.format=npz", "dataset.record_dims=[1000]", "dataset.record_element_type=int16"],
        &["dataset.format=npz", "dataset.record_length_bytes=1"],
        &["dataset.format=jpeg", "dataset.record_length_bytes=900"],
        &["dataset.format=jpeg", "dataset.record_length_bytes=115600", "dataset.num_files_eval=3"],
        &[
            "dataset.format=jpeg",
            "dataset.record_length_bytes=50000",
            "dataset.record_length_bytes_stdev=9000",
        ],
        &["dataset.format=jpeg", "dataset.record_dims=[100,200]"],
    ];
    for (number, settings) in table.iter().enumerate() {
        let folder = format!("data{number}");
        let plan = dir.feedline(&["plan", "w.yaml", "--json"]).set(settings).run().exits(0).json();
        let done = generate(&dir, &folder, &[], settings);
        for split in ["train", "valid"] {
            let bytes: usize = dir.tree(&format!("{folder}/{split}")).values().map(Vec::len).sum();
            assert_eq!(plan["data"][split]["bytes"], bytes, "{split} of {settings:?}");
        }
        let bytes: usize = dir.tree(&folder).values().map(Vec::len).sum();
        assert_eq!(plan["disk"]["needed_bytes"], bytes, "{settings:?}");
        assert_eq!(done["bytes_written"], bytes, "{settings:?}");
    }
}
