//! Damaged files: truncated, random bytes, with huge claimed sizes, with loops. Each is refused with one error that
//! names the file and the position; none crashes the program or fills the memory.

use crate::util::{Dir, TENSORFLOW};

/// Damages a generated file in a hundred ways.
fn is_refused_when_damaged(format: &str, samples: u64) {
    let dir = Dir::small();
    let settings = [
        format!("dataset.format={format}"),
        format!("dataset.num_samples_per_file={samples}"),
        "dataset.num_files_train=2".to_owned(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let loader: &[&str] = if format == "tfrecord" { &TENSORFLOW } else { &[] };
    dir.feedline(&["generate", "w.yaml", "--quiet"]).set(&settings).set(loader).run().exits(0);
    let good = format!("data/train/img_0_of_2.{format}");
    let done = dir.python("damage.py", &[format, &good, &samples.to_string()]).run().exits(0).silent();
    let counts: Vec<u64> = done.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [refused, accepted, _] = counts[..] else { panic!("{}", done.stdout) };
    assert!(refused > 20 && refused + accepted > 150, "{counts:?}");
}

#[test]
fn npz() {
    is_refused_when_damaged("npz", 3);
}

#[test]
fn npy() {
    is_refused_when_damaged("npy", 3);
}

#[test]
fn pictures() {
    is_refused_when_damaged("jpeg", 1);
    is_refused_when_damaged("png", 1);
}

#[test]
fn csv() {
    is_refused_when_damaged("csv", 3);
}

#[test]
fn hdf5() {
    is_refused_when_damaged("hdf5", 3);
}

#[test]
fn tfrecord() {
    is_refused_when_damaged("tfrecord", 3);
}

#[test]
fn parquet() {
    is_refused_when_damaged("parquet", 3);
}

#[test]
fn arrow() {
    is_refused_when_damaged("arrow", 3);
}

#[test]
fn files_without_metadata() {
    is_refused_when_damaged("indexed_binary", 3);
    is_refused_when_damaged("mmap_indexed_binary", 3);
    is_refused_when_damaged("synthetic", 1);
}

#[test]
fn missing_files_and_wrong_arguments() {
    let dir = Dir::new();
    let run = |args: &[&str]| dir.feedline(&["inspect"]).args(args).run();
    run(&["nowhere/a.npz"]).exits(3).one_error().says("nowhere/a.npz does not exist");
    dir.write("data/b.npz", "x");
    run(&["data/a.npz"]).exits(3).one_error().says("data/a.npz does not exist");
    run(&["data/b.npz/a.npz"]).exits(3).one_error().says("data/b.npz/a.npz: ");
    run(&["data/b.bin"]).exits(3).one_error().says("data/b.bin does not exist");
    dir.write("data/b.bin", "x");
    run(&["data/b.bin"]).exits(2).one_error().says("b.bin").says("--format");
    run(&["data/b.npz", "--format", "none"]).exits(2).one_error().says("no format 'none'");
    run(&["data/b.npz", "--access", "all"]).exits(2).one_error().says("--access");
    run(&["data/b.npz"]).exits(5).one_error().says("error: data/b.npz: ").says("at byte");
    let path = dir.path("data/b.npz");
    run(&[path.to_str().unwrap()]).exits(5).one_error().says(&format!("error: {}: ", path.display()));
    std::fs::create_dir(dir.path("data/c.npz")).unwrap();
    run(&["data/c.npz"]).exits(2).one_error().says("data/c.npz is a folder");
}

#[test]
fn one_bad_file_does_not_hide_the_others() {
    let dir = Dir::new();
    dir.write("data/a.csv", "1,2\n");
    dir.write("data/b.csv", "one,two\n");
    dir.write("data/c.csv", "3,4\n");
    let run = |args: &[&str]| dir.feedline(&["inspect"]).args(args).run();
    let done =
        run(&["data/a.csv", "data/b.csv", "data/c.csv"]).exits(5).one_error().says("error: data/b.csv: ");
    assert!(
        done.stdout.contains("data/a.csv: csv") && done.stdout.contains("data/c.csv: csv"),
        "{}",
        done.stdout
    );
    let found = run(&["data/a.csv", "data/b.csv", "data/d.csv", "data/c.csv", "--json"]).exits(5);
    let found =
        found.one_error().says("2 of 4 files").says("\n  data/b.csv: ").says("\n  data/d.csv does not exist");
    let files: Vec<_> =
        found.json()["files"].as_array().unwrap().iter().map(|file| file["file"].clone()).collect();
    assert_eq!(files, ["data/a.csv", "data/c.csv"]);
}
