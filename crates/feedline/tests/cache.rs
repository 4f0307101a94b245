//! Where the bytes came from: the page cache is brought into the requested state, cached pages are counted, and the
//! verdict judges the counts. Counts are compared with those of `fincore`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::fs::Advice;
use serde_json::Value;

use crate::util::{Dir, Done, walk};

/// 64 files of 28 pages each: read in milliseconds, yet enough pages for significant counts.
const FILES: &str = "\
framework: pytorch
dataset: {format: jpeg, data_folder: data, num_files_train: 64, record_length_bytes: 114688}
reader: {data_loader: pytorch, batch_size: 4, read_threads: 2, sample_shuffle: seed}
train: {epochs: 3, computation_time: 0}
";

/// Samples that are parts of files, which read-ahead loads before they are requested.
const PARTS: &str = "\
framework: pytorch
dataset: {format: npy, data_folder: data, num_files_train: 4, num_samples_per_file: 64, record_length_bytes: 65536}
reader: {data_loader: pytorch, batch_size: 4, read_threads: 2, file_shuffle: seed}
train: {epochs: 2, computation_time: 0}
";

fn with_data(workload: &str) -> Dir {
    let dir = Dir::new();
    dir.write("w.yaml", workload);
    dir.feedline(&["generate", "w.yaml", "--quiet"]).run().exits(0);
    dir
}

/// Whether the file system of the tests reports cached pages and bytes from storage. If not, the tests check the
/// opposite case and print a message.
#[expect(clippy::print_stderr, reason = "a test that is not fully run must report it")]
pub(crate) fn tells(dir: &Dir) -> bool {
    let folder = fs::File::open(dir.path(".")).unwrap();
    let ground = store::StorageStack::of(&folder, "the tests' folder").unwrap();
    let tells = ground.untold().is_none() && ground.file_system.counter() == store::Counter::Process;
    if !tells {
        eprintln!("NOT FULLY TESTED: {ground:?} does not report where bytes come from");
    }
    tells
}

/// Runs the workload. Rules other than the cache rule may fail on a busy machine.
fn run(dir: &Dir, flags: &[&str]) -> Done {
    dir.feedline(&["run", "w.yaml", "--quiet", "--json", "--no-calibration"]).args(flags).run()
}

pub(crate) fn cache_rule(summary: &Value) -> (&str, &str) {
    let rules = summary["feedline"]["verdict"]["rules"].as_array().unwrap();
    let rule = rules.iter().find(|rule| rule["rule"] == "cache").unwrap();
    (rule["outcome"].as_str().unwrap(), rule["evidence"].as_str().unwrap())
}

fn epochs(summary: &Value) -> Vec<&Value> {
    summary["feedline"]["epochs"].as_array().unwrap().iter().map(|epoch| &epoch["cache"]).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

fn data_files(dir: &Dir) -> Vec<PathBuf> {
    files_below(&dir.path("data/train"))
}

pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    walk(folder, &mut |path| files.push(path.to_owned()));
    files
}

/// Keeps files in memory until it is dropped. This process is not the tested program.
pub(crate) fn hold_in_memory(files: &[PathBuf]) -> Vec<store::MappedFile> {
    let held: Vec<store::MappedFile> =
        files.iter().map(|path| store::MappedFile::open(path).unwrap()).collect();
    let touched: u64 =
        held.iter().flat_map(|map| map.as_ref().iter().step_by(4096)).map(|b| u64::from(*b)).sum();
    assert!(touched > 0);
    held
}

/// The share of the files' pages that is cached, according to `fincore`.
fn fincore(dir: &Dir) -> f64 {
    let files = data_files(dir);
    let mut command = Command::new("fincore");
    command.args(["--bytes", "--noheadings", "--output", "RES,SIZE"]).args(&files);
    let output = command.output().expect("fincore is missing: run scripts/test, which installs it");
    assert!(output.status.success(), "{output:?}");
    let (mut resident, mut all) = (0.0, 0.0);
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<f64>().unwrap());
        resident += numbers.next().unwrap();
        all += (numbers.next().unwrap() / 4096.0).ceil() * 4096.0;
    }
    resident / all
}

pub(crate) fn evict(files: &[PathBuf]) {
    for path in files {
        let file = fs::File::open(path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
}

#[test]
fn epochs_from_memory_are_invalid_and_cold_ones_are_not() {
    let dir = with_data(FILES);
    if !tells(&dir) {
        assert_eq!(cache_rule(&run(&dir, &[]).json()).0, "not-checkable");
        return;
    }
    // Files that were just written are cached and stay cached.
    let done = run(&dir, &["--cache", "as-is"]).exits(5);
    assert!(done.failed_rules().contains(&"cache".to_owned()));
    let as_is = done.json();
    for cache in epochs(&as_is) {
        assert_eq!(
            (number(&cache["storage_share"]), number(&cache["resident_share"])),
            (0.0, 1.0),
            "{cache}"
        );
    }
    assert!(cache_rule(&as_is).1.contains("only 0 % of the bytes came from the storage"));
    let text = dir.feedline(&["run", "w.yaml", "--quiet", "--cache", "as-is"]).run().exits(5);
    assert!(text.stdout.lines().any(|line| line.starts_with("verdict: invalid (") && line.contains("cache")));
    let cold = run(&dir, &[]).ran().json();
    assert_eq!(cache_rule(&cold).0, "pass", "{}", cache_rule(&cold).1);
    for cache in epochs(&cold) {
        assert!(number(&cache["storage_share"]) >= 0.95, "{cache}");
        assert_eq!(number(&cache["resident_share"]), 0.0, "{cache}");
        assert_eq!((number(&cache["made"]["files"]), number(&cache["made"]["after"])), (64.0, 0.0));
        assert_eq!(number(&cache["counted"]["fetches"]), 64.0);
    }
    let found: Vec<f64> = epochs(&cold).iter().map(|cache| number(&cache["made"]["found"])).collect();
    assert!(
        found[0] > 1000.0 && found[1..] == [0.0, 0.0],
        "an epoch leaves no cached pages for the next: {found:?}"
    );
    assert_eq!(fincore(&dir), 0.0);
    // The cache is cold now: with --cache as-is the first epoch passes, and the others fail.
    let (outcome, evidence) = (run(&dir, &["--cache", "as-is"]).exits(5).json(), "epoch 2, train");
    assert!(cache_rule(&outcome).1.starts_with(evidence), "{}", cache_rule(&outcome).1);
}

#[test]
fn the_count_agrees_with_fincore() {
    let dir = with_data(FILES);
    if !tells(&dir) {
        return;
    }
    for share in [0.25, 0.5, 1.0] {
        run(&dir, &["--cache", "warm", "--set", "train.epochs=1"]).ran();
        let files = data_files(&dir);
        evict(&files[(64.0 * share) as usize..]);
        let before = fincore(&dir);
        assert!((before - share).abs() < 0.01, "{before}");
        let summary = run(&dir, &["--cache", "as-is", "--set", "train.epochs=1"]).exits(5).json();
        let cache = epochs(&summary)[0];
        let counted = number(&cache["resident_share"]);
        assert!((counted - before).abs() <= 0.02, "{counted} {before}");
        assert!((number(&cache["storage_share"]) - (1.0 - before)).abs() <= 0.05, "{cache}");
        // The kernel may reclaim a page meanwhile.
        assert!(fincore(&dir) > 0.98, "with as-is, pages stay in the cache");
    }
}

#[test]
fn every_backend_with_page_cache_is_cold_and_counted() {
    let dir = with_data(FILES);
    let tells = tells(&dir);
    for flags in [
        &["--store", "posix"][..],
        &["--store", "mmap"],
        &["--store", "uring"],
        &["--store", "uring", "--set", "reader.readahead=random"],
        &["--store", "posix", "--set", "reader.transfer_size=4096"],
    ] {
        let done = run(&dir, flags);
        if done.code() == Some(3) && done.stderr.contains("io_uring cannot be used") {
            eprintln!("NOT TESTED: {}", done.stderr);
            continue;
        }
        let summary = done.ran().json();
        let (outcome, evidence) = cache_rule(&summary);
        assert_eq!(outcome, if tells { "pass" } else { "not-checkable" }, "{flags:?}: {evidence}");
        for cache in epochs(&summary) {
            assert_eq!(number(&cache["counted"]["fetches"]), 64.0, "{flags:?}");
            assert_eq!(number(&cache["counted"]["unasked"]), 0.0);
        }
        if tells {
            assert_eq!(fincore(&dir), 0.0, "{flags:?}: pages are evicted after they were read");
        }
        let latency = &summary["feedline"]["latency"];
        assert_eq!((number(&latency["probe"]["count"]), number(&latency["forget"]["count"])), (192.0, 192.0));
    }
}

#[test]
fn direct_reads_have_no_page_cache_to_empty() {
    let dir = with_data(FILES);
    let done = run(&dir, &["--store", "direct"]);
    if done.code() == Some(3) && done.stderr.contains("O_DIRECT") {
        eprintln!("NOT TESTED: {}", done.stderr);
        return;
    }
    let summary = done.ran().json();
    if tells(&dir) {
        assert_eq!(cache_rule(&summary).0, "pass", "{}", cache_rule(&summary).1);
    }
    let cache = epochs(&summary)[0];
    assert_eq!((number(&cache["made"]["files"]), number(&cache["counted"]["pages"])), (0.0, 0.0));
    let done = dir.feedline(&["run", "w.yaml", "--store", "direct", "--cache", "warm"]).run();
    done.says("'reader.cache' at --cache has no effect").says("does not read through the page cache");
}

#[test]
fn pages_from_read_ahead_are_explained() {
    let dir = with_data(PARTS);
    let summary = run(&dir, &[]).ran().json();
    let (outcome, evidence) = cache_rule(&summary);
    assert_eq!(outcome, if tells(&dir) { "pass" } else { "not-checkable" }, "{evidence}");
}

/// Reads files repeatedly until it is dropped, as a process other than feedline.
struct OtherReader {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl OtherReader {
    fn start(files: Vec<PathBuf>) -> OtherReader {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let read_all = move || {
            while !flag.load(Ordering::Relaxed) {
                files.iter().for_each(|path| drop(fs::read(path)));
            }
        };
        OtherReader { stop, thread: Some(std::thread::spawn(read_all)) }
    }
}

impl Drop for OtherReader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Runs next to another reader of the files. If that reader loads a file between eviction and count, the run is
/// refused. This is correct, but not the case to be tested, so the run is repeated.
fn run_not_refused(dir: &Dir, flags: &[&str]) -> Done {
    for _ in 0..100 {
        let done = run(dir, flags);
        if done.code() != Some(3) {
            return done;
        }
        assert!(done.stderr.contains("pages stay in memory"), "{}", done.stderr);
    }
    panic!("the run was refused 100 times");
}

#[test]
fn pages_that_another_process_loads_do_not_count_for_the_storage() {
    let dir = with_data(&PARTS.replace("computation_time: 0", "computation_time: 0.002"));
    if !tells(&dir) {
        return;
    }
    let reader = OtherReader::start(data_files(&dir));
    for flags in [&["--store", "posix"][..], &["--store", "posix", "--set", "reader.sample_shuffle=seed"]] {
        let summary = run_not_refused(&dir, flags).exits(5).json();
        assert_eq!(cache_rule(&summary).0, "fail", "{:?}", cache_rule(&summary));
    }
    drop(reader);
    let summary = run(&dir, &[]).json();
    assert_eq!(cache_rule(&summary).0, "pass", "{:?}", cache_rule(&summary));
    assert!(epochs(&summary).iter().all(|cache| number(&cache["foreign_share"]) < 0.01));
}

#[test]
fn files_of_another_user_are_counted_too() {
    // A sample of fewer files would be too small.
    let dir = with_data(&FILES.replace("num_files_train: 64", "num_files_train: 256"));
    if !tells(&dir) || !rustix::process::geteuid().is_root() {
        return;
    }
    fs::create_dir(dir.path("results")).unwrap();
    dir.set_mode("results", 0o777);
    let flags = ["run", "w.yaml", "--quiet", "--json", "--no-calibration", "--results-dir", "results"];
    let cold = dir.feedline_unprivileged(&flags).run().json();
    assert_eq!(cache_rule(&cold).0, "pass", "{:?}", cache_rule(&cold));
    for path in data_files(&dir) {
        fs::read(path).unwrap();
    }
    let memory = dir.feedline_unprivileged(&flags).args(&["--cache", "as-is"]).run().exits(5).json();
    assert_eq!(cache_rule(&memory).0, "fail");
    for cache in epochs(&memory) {
        assert_eq!(number(&cache["resident_share"]), 1.0, "{cache}");
        assert!(number(&cache["counted"]["in_part"]) > 0.0, "only some pages can be queried: {cache}");
    }
}

#[test]
fn holes_are_not_read_from_storage() {
    let dir = with_data(FILES);
    for path in data_files(&dir) {
        let file = fs::File::options().write(true).open(path).unwrap();
        let bytes = file.metadata().unwrap().len();
        file.set_len(4096).unwrap();
        file.set_len(bytes).unwrap();
    }
    // Also with O_DIRECT, where there are no pages to count.
    for store in ["posix", "direct"] {
        let done = run(&dir, &["--verify", "none", "--store", store]);
        if done.code() == Some(3) {
            continue;
        }
        let summary = done.json();
        let holes: f64 = epochs(&summary).iter().map(|cache| number(&cache["layout"]["hole_bytes"])).sum();
        assert!(holes > 0.0, "{store}");
        assert_ne!(cache_rule(&summary).0, "pass", "{:?}", cache_rule(&summary));
    }
}

#[test]
fn files_that_another_process_holds_are_refused_by_name() {
    let dir = with_data(FILES);
    if !tells(&dir) {
        return;
    }
    let held = hold_in_memory(&data_files(&dir));
    let done = dir.feedline(&["run", "w.yaml"]).run().exits(3).one_error();
    for text in ["1,792 of 1,792 pages stay in memory", "28 of them in ./data/train/img_", "--cache as-is"] {
        assert!(done.stderr.contains(text), "{text} is missing in {}", done.stderr);
    }
    assert!(dir.results().is_empty(), "a refused run leaves no result");
    run(&dir, &["--cache", "as-is"]).exits(5);
    drop(held);
    run(&dir, &[]).ran();
}

#[test]
fn files_in_memory_are_unverified_with_the_reason() {
    let dir = Dir::new();
    dir.write("w.yaml", FILES);
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let folder = memory.path().to_str().unwrap();
    for state in ["cold", "warm", "as-is"] {
        let flags = ["--generate", "--data-dir", folder, "--cache", state];
        let summary = run(&dir, &flags).ran().json();
        let (outcome, evidence) = cache_rule(&summary);
        assert_eq!(outcome, "not-checkable", "{state}: {evidence}");
        assert!(evidence.contains("tmpfs keeps files in memory"), "{state}: {evidence}");
        assert_eq!(epochs(&summary)[0]["storage_share"], Value::Null, "a missing figure is null");
    }
}

#[test]
fn a_sample_has_its_interval() {
    let dir = with_data(FILES);
    let summary = run(&dir, &["--cache-proof", "sample"]).ran().json();
    let cache = epochs(&summary)[0];
    let counted = &cache["counted"];
    assert_eq!(number(&counted["fetches"]) + number(&counted["left_out"]), 64.0, "{cache}");
    if number(&counted["fetches"]) > 0.0 {
        let interval = &cache["resident_interval"];
        assert!(number(&interval["low"]) < number(&interval["high"]), "{cache}");
    }
    assert_ne!(cache_rule(&summary).0, "pass", "a sixteenth of 64 fetches is too small a sample");
}

#[test]
fn the_plan_shows_the_cache_state_and_mistakes_are_named() {
    let dir = Dir::new();
    dir.write("w.yaml", FILES);
    dir.feedline(&["plan", "w.yaml"]).run().exits(0).prints(
        "cold: files evicted before each epoch, and pages evicted after each read; pages counted before every read",
    );
    dir.feedline(&["plan", "w.yaml", "--cache", "as-is", "--cache-proof", "sample"])
        .run()
        .exits(0)
        .prints("as-is: left as it is; pages counted before one read in 16");
    let table: &[(&[&str], &str)] = &[
        (&["--cache", "hot"], "'reader.cache' cannot be 'hot'"),
        (&["--cache-proof", "all"], "reader.cache_proof"),
        (&["--cache", "warm", "--drop-caches"], "reader.cache is warm; remove one of them"),
    ];
    for (flags, text) in table {
        let done = dir.feedline(&["run", "w.yaml"]).args(flags).run().exits(2).one_error();
        assert!(done.stderr.contains(text), "{text} is missing in {}", done.stderr);
    }
}

#[test]
fn a_cache_that_is_too_small_is_refused() {
    let dir = Dir::new();
    dir.write("w.yaml", FILES);
    let files = "dataset.num_files_train=1000000000";
    let done = dir.feedline(&["run", "w.yaml", "--cache", "warm", "--set", files]).run().exits(3).one_error();
    done.says("the page cache cannot be made warm").says("use --cache cold");
}

#[test]
fn dropping_the_hosts_caches_needs_root() {
    let dir = with_data(FILES);
    let flags = ["run", "w.yaml", "--drop-caches", "--quiet"];
    dir.feedline_unprivileged(&flags).run().exits(3).one_error().says("this needs root");
}
