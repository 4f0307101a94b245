//! What every I/O backend does in the same way: check the size of each file that it opens, and count and time each
//! read.

use std::fs;

use serde_json::Value;

use crate::util::{Cmd, Dir, Done, TENSORFLOW, file_stores};

/// Enough files that the one with a wrong size is not among those that are checked before a run.
const FILES: &str = "dataset.num_files_train=200";

/// Formats, with settings for several samples per file or for bytes that are not read for a sample.
const FORMATS: [(&str, &[&str]); 9] = [
    ("npz", &[]),
    ("npz", &["dataset.compression=zip", "dataset.compressible=0.5"]),
    ("png", &[]),
    ("csv", &["dataset.num_samples_per_file=8"]),
    ("indexed_binary", &["dataset.num_samples_per_file=8"]),
    ("tfrecord", &["dataset.num_samples_per_file=8"]),
    ("hdf5", &["dataset.num_samples_per_file=8"]),
    ("parquet", &["dataset.num_samples_per_file=8", "dataset.parquet.row_group_size=4"]),
    ("arrow", &["dataset.num_samples_per_file=8", "dataset.parquet.row_group_size=4"]),
];

/// A command for a small data set of one format.
fn feedline<'a>(dir: &'a Dir, args: &[&str], format: &str, settings: &[&str]) -> Cmd<'a> {
    let format_key = format!("dataset.format={format}");
    let loader: &[&str] = if format == "tfrecord" { &TENSORFLOW } else { &[] };
    let plain = [FILES, "train.epochs=1", "reader.file_shuffle=off", "reader.cache=as-is"];
    dir.feedline(args).args(&["--quiet"]).set(&[&format_key]).set(&plain).set(loader).set(settings)
}

/// A run with one I/O backend; `None` if this file system or kernel does not support it.
fn run(dir: &Dir, store: &str, format: &str, settings: &[&str]) -> Option<Done> {
    let args = ["run", "w.yaml", "--no-calibration", "--store", store, "--verify", "none"];
    let done = feedline(dir, &args, format, settings).run();
    if done.code() == Some(3) && store != "posix" {
        done.says("--store posix");
        return None;
    }
    Some(done)
}

/// Checks that a run completed. Its verdict may be invalid, because the cache state is not controlled here.
fn ended(done: &Done) {
    if !matches!(done.code(), Some(0 | 5)) {
        done.fail("expected a completed run");
    }
}

/// Turns a generated data set into existing files: without feedline's manifests, and with a catalog.
fn disown(dir: &Dir) {
    fs::remove_dir_all(dir.path("data/.feedline")).unwrap();
    fs::remove_file(dir.path("data/.mlps-datagen-manifest.json")).unwrap();
    dir.feedline(&["catalog", "data", "--quiet"]).run().exits(0);
}

/// Changes the size of a file in two ways, and checks that `run` reports each.
fn other_sizes_are_reported(dir: &Dir, run: &dyn Fn() -> Option<Done>) {
    let files = dir.tree("data/train");
    let (name, bytes) =
        files.iter().find(|(name, _)| name.contains("_001_") && !name.ends_with(".idx")).unwrap();
    let file = fs::OpenOptions::new().write(true).open(dir.path(&format!("data/train/{name}"))).unwrap();
    let size = bytes.len() as u64;
    for found in [size - 1, size + (1 << 20)] {
        file.set_len(found).unwrap();
        if let Some(done) = run() {
            let what = if found < size { "too short" } else { "too long" };
            let done = done.exits(4).says(&format!("data/train/{name}")).says(what);
            done.says(&found.to_string()).says(&size.to_string());
        }
    }
    dir.write(&format!("data/train/{name}"), bytes);
}

#[test]
fn a_wrong_file_size_is_reported_for_every_format_and_backend() {
    for (format, settings) in FORMATS {
        let dir = Dir::small();
        feedline(&dir, &["generate", "w.yaml"], format, settings).run().exits(0);
        for access in ["reader.access=framework", "reader.access=extent"] {
            let settings = [settings, &[access]].concat();
            for store in file_stores() {
                other_sizes_are_reported(&dir, &|| run(&dir, store, format, &settings));
            }
            ended(&run(&dir, "posix", format, &settings).unwrap());
        }
    }
}

#[test]
fn existing_files_must_have_the_size_in_the_catalog() {
    for (format, settings) in FORMATS {
        let dir = Dir::small();
        feedline(&dir, &["generate", "w.yaml"], format, settings).run().exits(0);
        // This format has index files next to its data files, which are not data files.
        if format == "indexed_binary" {
            continue;
        }
        disown(&dir);
        for store in file_stores() {
            other_sizes_are_reported(&dir, &|| run(&dir, store, format, settings));
        }
        ended(&run(&dir, "posix", format, settings).unwrap());
    }
}

#[test]
fn a_wrong_file_size_is_counted_as_an_error() {
    let settings = ["dataset.num_samples_per_file=8", "reader.on_error=count"];
    let dir = Dir::small();
    feedline(&dir, &["generate", "w.yaml"], "hdf5", &settings).run().exits(0);
    let path = dir.path("data/train/img_001_of_200.hdf5");
    let size = fs::metadata(&path).unwrap().len();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(size - 1).unwrap();
    for store in file_stores() {
        let Some(done) = run(&dir, store, "hdf5", &settings) else { continue };
        ended(&done);
        let summary = dir.json(&format!("{}/summary.json", dir.result()));
        assert!(summary["feedline"]["errors"]["short"]["count"].as_u64().unwrap() > 0, "{store}");
        assert_eq!(summary["feedline"]["epochs"][0]["samples_failed"], 8, "{store}");
        fs::remove_dir_all(dir.path("feedline-results")).unwrap();
    }
}

/// Reads and opens in the ledger, then reads, opens and samples in the latencies.
fn counts(dir: &Dir) -> [u64; 5] {
    let result = dir.result();
    let ledger = dir.json(&format!("{result}/ledger.json"));
    let of_ranks = |key: &str| {
        let ranks = ledger["ranks"].as_array().unwrap();
        ranks.iter().map(|rank| rank["seen"][key].as_u64().unwrap()).sum()
    };
    let summary: Value = dir.json(&format!("{result}/summary.json"));
    let timed = |what: &str| summary["feedline"]["latency"][what]["count"].as_u64().unwrap();
    [of_ranks("reads"), of_ranks("opens"), timed("read"), timed("open"), timed("sample")]
}

#[test]
fn metadata_reads_are_counted_and_timed_in_the_same_way_by_every_backend() {
    for (format, settings) in [
        ("parquet", &["dataset.num_samples_per_file=8", "dataset.parquet.row_group_size=4"][..]),
        ("hdf5", &["dataset.num_samples_per_file=8"]),
        ("hdf5", &["dataset.num_samples_per_file=8", "reader.access=extent"]),
        ("npz", &[]),
    ] {
        let dir = Dir::small();
        feedline(&dir, &["generate", "w.yaml"], format, settings).run().exits(0);
        disown(&dir);
        let mut first = None;
        for store in file_stores() {
            let Some(done) = run(&dir, store, format, settings) else { continue };
            ended(&done);
            let [reads, opens, timed_reads, timed_opens, samples] = counts(&dir);
            assert_eq!((timed_reads, timed_opens), (reads, opens), "{format} {settings:?}, {store}");
            assert!(reads > samples, "finding the samples of {format} files takes reads");
            let all = (reads, opens, samples);
            assert_eq!(*first.get_or_insert(all), all, "{format} {settings:?}, {store} against posix");
            fs::remove_dir_all(dir.path("feedline-results")).unwrap();
        }
    }
}
