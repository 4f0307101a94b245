//! `feedline catalog` on real trees: it counts the same files as `find`, refuses damaged or outdated catalogs with the
//! reason, and an interrupted listing ends with the same catalog as an uninterrupted one.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use serde_json::Value;

use crate::util::{Dir, Done};

const PLACE: &str = "data/.feedline/catalog";

/// A small tree with names of several kinds.
fn tree() -> Dir {
    let dir = Dir::new();
    for index in 0..300 {
        dir.write(&format!("data/train/{}/img_{index:03}.jpg", index % 5), vec![b'x'; index * 7 % 100 + 1]);
    }
    dir.write("data/valid/a.jpg", "four");
    dir.write("data/notes.txt", "text");
    dir.write("data/sp ace/new\nline", "");
    dir
}

fn catalog(dir: &Dir, args: &[&str]) -> Done {
    dir.feedline(&["catalog", "data", "--quiet"]).args(args).run()
}

fn json(dir: &Dir, args: &[&str]) -> Value {
    catalog(dir, &[args, &["--json"]].concat()).exits(0).silent().json()
}

fn bytes(dir: &Dir) -> Vec<u8> {
    fs::read(dir.path(PLACE)).unwrap()
}

/// Number and bytes of the files below `data`, according to `find`.
fn by_find(dir: &Dir, more: &str) -> (u64, u64) {
    let script = format!(
        "find data -type f -not -path '*/.*' {more} -printf '%s\\n' | awk '{{s+=$1}} END {{print NR, s+0}}'"
    );
    let out = dir.command(Path::new("bash"), &["-c", &script]).run().exits(0).stdout;
    let (count, sum) = out.trim().split_once(' ').unwrap();
    (count.parse().unwrap(), sum.parse().unwrap())
}

#[test]
fn counts_and_bytes_are_those_of_find() {
    let dir = tree();
    let all = json(&dir, &[]);
    assert_eq!((all["files"].as_u64().unwrap(), all["bytes"].as_u64().unwrap()), by_find(&dir, ""));
    assert_eq!(all["files"], 303);
    assert_eq!(all["folders"], 9);
    assert_eq!(all["catalog_bytes"].as_u64().unwrap(), bytes(&dir).len() as u64);
    let jpg = json(&dir, &["--suffix", ".jpg", "--threads", "3"]);
    let expected = by_find(&dir, "-name '*.jpg'");
    assert_eq!((jpg["files"].as_u64().unwrap(), jpg["bytes"].as_u64().unwrap()), expected);
    assert_eq!(jpg["skipped"]["unmatched"], 2);
    catalog(&dir, &["--check"]).exits(0).prints("9 folders with 301 files match the catalog");
    dir.has_no_leftovers();
}

#[test]
fn the_summary_has_the_figures() {
    let dir = tree();
    let done = catalog(&dir, &[]).exits(0).silent().prints("data: 303 files in 9 folders, ");
    done.prints(" bytes per file) in ").prints(" files/s\n").prints("written to data/.feedline/catalog\n");
}

#[test]
fn the_summary_counts_suffixes_empty_files_and_what_was_skipped() {
    let dir = tree();
    dir.write("data/train/.DS_Store", "x");
    dir.write("data/train/0/a.idx", "x");
    dir.write("data/train/0/b.jpg.partial", "x");
    dir.write("data/valid/long.csv.gz", vec![1; 1500]);
    std::os::unix::fs::symlink("train", dir.path("data/linked")).unwrap();
    let pipe = dir.path("data/valid/pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, pipe, rustix::fs::Mode::RWXU).unwrap();
    let text = catalog(&dir, &[]).exits(0).silent().stdout;
    let bytes: usize = (0..300).map(|index| index * 7 % 100 + 1).sum::<usize>() + 4;
    let kib = format!("{:.1} KiB", bytes as f64 / 1024.0);
    let table: Vec<&str> = text.lines().skip(1).take_while(|line| line.starts_with(' ')).collect();
    let rows: Vec<Vec<&str>> = table.iter().map(|line| line.split_whitespace().collect()).collect();
    let expected = [
        &["suffix", "files", "size"][..],
        &[".jpg", "301", kib.trim_end_matches(" KiB"), "KiB"],
        &["(none)", "1", "0", "B"],
        &[".csv.gz", "1", "1.5", "KiB"],
        &[".txt", "1", "4", "B"],
    ];
    assert_eq!(rows, expected, "{text}");
    for line in [
        "1 empty file, such as sp ace/new\\nline\n",
        "skipped: 1 hidden, such as train/.DS_Store\n",
        "skipped: 1 partial file, such as train/0/b.jpg.partial\n",
        "skipped: 1 index file, such as train/0/a.idx\n",
        "skipped: 1 linked folder, such as linked\n",
        "skipped: 1 not a regular file, such as valid/pipe\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let found = json(&dir, &["--suffix", ".jpg"]);
    assert_eq!(found["suffixes"], serde_json::json!([{"suffix": ".jpg", "files": 301, "bytes": bytes}]));
    assert_eq!((&found["other_suffixes"], &found["empty_files"]), (&Value::Null, &0.into()));
    let skipped = (&found["skipped"]["unmatched"], &found["skipped_examples"]["unmatched"]);
    assert_eq!(skipped, (&5.into(), &"linked".into()));
    assert_eq!(found["skipped"]["special"], 1);
}

#[test]
fn many_suffixes_are_summed_up() {
    let dir = Dir::new();
    for index in 0..30 {
        dir.write(&format!("data/a.suffix{index:02}"), "12345");
    }
    dir.write("data/b.suffix29", "");
    let text = catalog(&dir, &[]).exits(0).silent().stdout;
    let rows: Vec<&str> = text.lines().skip(1).take_while(|line| line.starts_with(' ')).collect();
    assert_eq!(rows.len(), 1 + 10 + 1, "{text}");
    let words = |row: &str| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(rows[1]), [".suffix29", "2", "5", "B"], "{text}");
    assert_eq!(words(rows[11]), ["(others)", "20", "100", "B"], "{text}");
    let found = json(&dir, &[]);
    assert_eq!(found["suffixes"].as_array().unwrap().len(), 30);
    assert_eq!((&found["empty_files"], &found["first_empty_file"]), (&1.into(), &"b.suffix29".into()));
}

#[test]
fn folders_that_cannot_be_listed() {
    let dir = Dir::new();
    let run = |args: &[&str]| dir.feedline(&["catalog"]).args(args).run();
    run(&["nowhere"]).exits(3).one_error().says("the data folder nowhere does not exist");
    dir.write("file", "x");
    run(&["file"]).exits(2).one_error().says("the data folder file is a file, not a folder");
    fs::create_dir(dir.path("empty")).unwrap();
    run(&["empty"]).exits(3).one_error().says("there are no files in empty to list");
    assert_eq!(dir.listing(), ["empty/", "file 1"]);
    dir.write("data/x.png", "x");
    run(&["data", "--suffix", ".jpg"]).exits(3).one_error().says("with one of the given suffixes");
    run(&["data", "--suffix", ""]).exits(2).one_error().says("is empty");
    run(&["data", "--refresh"]).exits(3).one_error().says("there is no catalog at data/.feedline/catalog");
    run(&["data", "--check"]).exits(3).one_error().says("create it with: feedline catalog data");
    run(&["data", "--output", "file"]).exits(2).one_error().says("file exists and is not a catalog");
    run(&["data", "--output", "data/x"]).exits(2).one_error().says("is in the data folder");
    assert_eq!(dir.read("file"), "x");
}

#[test]
fn an_unreadable_folder_is_an_error_and_not_a_shorter_list() {
    let dir = tree();
    dir.set_mode("data/train/3", 0o000);
    fs::create_dir(dir.path("out")).unwrap();
    dir.set_mode("out", 0o777);
    let args = ["catalog", "data", "--quiet", "--output", "out/list"];
    let done = dir.feedline_unprivileged(&args).run().exits(4).one_error();
    done.says("cannot open the folder data/train/3: Permission denied");
    assert!(!dir.path("out/list").exists());
    dir.set_mode("data/train/3", 0o755);
    dir.feedline_unprivileged(&args).run().exits(0).prints("303 files");
    assert_eq!(fs::read_dir(dir.path("out")).unwrap().count(), 1, "the journal is removed");
    let refused = dir.feedline_unprivileged(&["catalog", "data"]).run();
    refused.exits(3).one_error().says("cannot write the catalog into data").says("--output FILE");
}

#[test]
fn bad_catalogs_are_refused_with_the_reason() {
    let dir = tree();
    catalog(&dir, &[]).exits(0);
    let good = bytes(&dir);
    let mut version = good.clone();
    version[8] = 7;
    let mut table = good.clone();
    let at = table.len() - 20;
    table[at] ^= 1;
    let mut body = good.clone();
    body[200] ^= 1;
    let longer = [good.as_slice(), b"x"].concat();
    for (bad, reason) in [
        (good[..good.len() / 2].to_vec(), "the catalog is truncated"),
        (good[..50].to_vec(), "the catalog is truncated"),
        (version, "format version 7, but this feedline reads 1"),
        (b"garbage, and enough of it".to_vec(), "this is not a catalog"),
        (Vec::new(), "this is not a catalog"),
        (table, "the catalog is damaged"),
        (body, "the catalog is damaged"),
        (longer, "the catalog is damaged"),
    ] {
        dir.write(PLACE, &bad);
        let done = catalog(&dir, &["--check"]).exits(3).one_error().says(reason);
        done.says("data/.feedline/catalog: ").says("feedline catalog DIR");
    }
    // A full listing replaces a damaged catalog.
    catalog(&dir, &[]).exits(0);
    assert!(bytes(&dir) == good);
}

#[test]
fn a_catalog_of_another_folder_or_an_outdated_one_is_detected() {
    let dir = tree();
    catalog(&dir, &[]).exits(0);
    dir.write("other/train/0/x", "x");
    let done = dir.feedline(&["catalog", "other", "--check", "--output", PLACE]).run().exits(5);
    done.prints("9 of 9 folders do not match the catalog").prints("another folder?").prints("valid is gone");
    fs::remove_file(dir.path("data/train/4/img_004.jpg")).unwrap();
    let done =
        catalog(&dir, &["--check"]).exits(5).prints("1 of 9 folders").prints("data/train/4 has changed");
    done.prints("--refresh");
    let shown = dir.feedline(&["catalog", "data", "--check", "--json"]).run().exits(5).json();
    assert_eq!((&shown["folders_changed"], &shown["first_changed"][0]["gone"]), (&1.into(), &false.into()));
}

#[test]
fn a_refresh_equals_a_fresh_listing() {
    let dir = tree();
    catalog(&dir, &[]).exits(0);
    dir.write("data/train/2/zzz.jpg", "new");
    dir.write("data/new/deep/er/file", "new");
    fs::remove_file(dir.path("data/train/0/img_000.jpg")).unwrap();
    fs::remove_dir_all(dir.path("data/valid")).unwrap();
    catalog(&dir, &["--refresh"]).exits(0).prints("303 files in 11 folders (5 unchanged)");
    let refreshed = bytes(&dir);
    catalog(&dir, &["--check"]).exits(0);
    catalog(&dir, &[]).exits(0);
    assert!(bytes(&dir) == refreshed);
}

/// A tree that one thread lists in two seconds: its folders look as if they were just changed, and each such folder is
/// checked twice, some time apart.
fn slow_tree() -> Dir {
    let dir = Dir::new();
    let soon = SystemTime::now() + Duration::from_secs(3600);
    for folder in 0..100 {
        let path = dir.path(&format!("data/{folder:03}"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..80 {
            fs::File::create(path.join(format!("f{file}"))).unwrap();
        }
        fs::File::open(&path).unwrap().set_modified(soon).unwrap();
    }
    dir
}

#[test]
fn a_killed_listing_ends_with_the_same_catalog() {
    let dir = slow_tree();
    catalog(&dir, &["--threads", "50"]).exits(0);
    let undisturbed = bytes(&dir);
    let journal = dir.path("data/.feedline/catalog.partial");
    for length in [100, 4000] {
        fs::remove_file(dir.path(PLACE)).unwrap();
        let mut running = dir.feedline(&["catalog", "data", "--quiet", "--threads", "1"]).start();
        running.until("some folders", || fs::metadata(&journal).is_ok_and(|facts| facts.len() > length));
        // A second listing is refused.
        catalog(&dir, &[]).exits(3).one_error().says("another 'feedline catalog' is listing");
        running.signal(Signal::KILL);
        assert_eq!(running.wait().signal(), Some(9));
        assert!(!dir.path(PLACE).exists());
        // The last record may be incomplete.
        let torn = fs::read(&journal).unwrap();
        fs::write(&journal, &torn[..torn.len() - 7]).unwrap();
        let again = json(&dir, &["--threads", "50"]);
        let reused = again["folders_reused"].as_u64().unwrap();
        assert!(length == 100 || (1..100).contains(&reused), "{reused}");
        assert!(bytes(&dir) == undisturbed);
        dir.has_no_leftovers();
    }
}

#[test]
fn a_signal_ends_a_listing() {
    let dir = slow_tree();
    let mut running = dir.feedline(&["catalog", "data", "--threads", "1"]).start();
    running.until_thread("lister");
    running.signal(Signal::INT);
    running.wait().exits(4).one_error().says("interrupted");
    assert!(!dir.path(PLACE).exists());
    catalog(&dir, &["--threads", "50"]).exits(0).prints("8,000 files in 101 folders");
}

/// Settings for a catalogued folder with any files: one sample per file, and all files.
const FOREIGN: &str = "
model: {name: foreign}
framework: pytorch
dataset: {data_folder: data, format: jpeg}
reader: {data_loader: pytorch, batch_size: 4, read_threads: 2, sample_shuffle: seed}
train: {epochs: 2, computation_time: 0}
";

fn run_foreign(dir: &Dir, settings: &[&str]) -> Done {
    dir.feedline(&["run", "foreign.yaml", "--quiet", "--json", "--no-calibration"]).set(settings).run()
}

#[test]
fn a_run_reads_what_the_catalog_lists() {
    let dir = tree();
    dir.write("foreign.yaml", FOREIGN);
    catalog(&dir, &[]).exits(0);
    let summary = run_foreign(&dir, &["reader.batch_size=1"]).exits(0).json();
    let (mut files, mut sum) = (0, 0);
    for index in 0..300u64 {
        files += 1;
        sum += index * 7 % 100 + 1;
    }
    for epoch in summary["feedline"]["epochs"].as_array().unwrap() {
        assert_eq!(
            (epoch["samples_delivered"].as_u64(), epoch["bytes_read"].as_u64()),
            (Some(files), Some(sum))
        );
    }
    // The files below valid/ are for evaluation.
    let settings = ["workflow.evaluation=true", "dataset.num_files_eval=1"];
    let summary = run_foreign(&dir, &settings).exits(0).json();
    assert_eq!(summary["feedline"]["eval_epochs"][0]["bytes_read"], 4);
    // With num_files_train, some of the files are read; more than there are is refused.
    let summary = run_foreign(&dir, &["dataset.num_files_train=100"]).exits(0).json();
    assert_eq!(summary["feedline"]["epochs"][0]["samples_delivered"], 100);
    run_foreign(&dir, &["dataset.num_files_train=301"]).exits(3).one_error().says("lists only 300");
}

#[test]
fn for_a_file_that_changed_in_place_generate_is_never_suggested() {
    let dir = Dir::new();
    dir.write("foreign.yaml", FOREIGN);
    // Few enough files that each is checked before the run.
    (0..20).for_each(|index| dir.write(&format!("data/{index:02}.jpg"), "picture"));
    catalog(&dir, &[]).exits(0);
    dir.write("data/07.jpg", "grown picture");
    let refusal =
        run_foreign(&dir, &[]).exits(3).one_error().says("07.jpg has 13 bytes").says("feedline catalog");
    assert!(!refusal.stderr.contains("generate"), "{}", refusal.stderr);
}

#[test]
fn a_catalog_and_computed_names_deliver_the_same() {
    let dir = Dir::small_with_data();
    let run = |settings: &[&str]| {
        let args = ["run", "w.yaml", "--quiet", "--json", "--no-calibration"];
        dir.feedline(&args).set(settings).run().ran().json()
    };
    let computed = run(&[]);
    catalog(&dir, &[]).exits(0);
    let listed = run(&[]);
    assert_ne!(computed["feedline"]["plan_digest"], listed["feedline"]["plan_digest"], "the catalog is used");
    for field in ["samples_delivered", "bytes_read", "digest", "order"] {
        assert_eq!(
            computed["feedline"]["epochs"][0][field], listed["feedline"]["epochs"][0][field],
            "{field}"
        );
    }
    let without = run(&["dataset.catalog=off"]);
    assert_eq!(computed["feedline"]["plan_digest"], without["feedline"]["plan_digest"]);
}

#[test]
fn a_run_refuses_a_catalog_that_does_not_fit() {
    let dir = tree();
    dir.write("foreign.yaml", FOREIGN);
    catalog(&dir, &[]).exits(0);
    let whole = bytes(&dir);
    dir.write("data/train/0/one_more.jpg", "new");
    run_foreign(&dir, &[]).exits(3).one_error().says("data/train/0 has changed").says("--refresh");
    json(&dir, &["--refresh"]);
    run_foreign(&dir, &[]).exits(0);
    fs::write(dir.path(PLACE), &whole[..whole.len() / 2]).unwrap();
    run_foreign(&dir, &[]).exits(3).one_error().says("catalog");
    fs::write(dir.path(PLACE), "nonsense").unwrap();
    run_foreign(&dir, &[]).exits(3).one_error().says("catalog");
    run_foreign(&dir, &["dataset.catalog=nowhere"]).exits(3).one_error().says("nowhere");
    run_foreign(&dir, &["dataset.num_samples_per_file=2", "dataset.format=npz", "dataset.catalog=off"])
        .exits(3);
    assert!(dir.results().is_empty() || dir.results().len() == 1, "{:?}", dir.results());
    // A file that is not a catalog may belong to another program.
    catalog(&dir, &[]).exits(2).one_error().says("is not a catalog").says("remove it");
    fs::remove_file(dir.path(PLACE)).unwrap();
    // A file that shrank in place does not change its folder; it is named when it is read.
    json(&dir, &[]);
    dir.write("data/train/1/img_001.jpg", "");
    run_foreign(&dir, &[]).exits(4).one_error().says("img_001.jpg");
}
