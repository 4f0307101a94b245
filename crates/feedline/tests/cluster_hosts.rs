//! Every command that works on data, on two hosts with folders and disks of their own, compared with one process; and
//! hosts whose page cache, data set or folders differ.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::cache::{cache_rule, evict, files_below, hold_in_memory, tells};
use crate::cluster::hosts::Hosts;
use crate::cluster::launch::{Job, Mpi};
use crate::cluster::rows;
use crate::util::{Dir, Done, TINY_MODEL, outcome};

/// Starts fastest.
const MPI: Mpi = Mpi::Mpich;

/// Training, evaluation and the checkpoints of a small transformer.
fn trained() -> Dir {
    let dir = Dir::new();
    let model = TINY_MODEL.replace("train: false", "train: true, evaluation: true");
    let rest = "
dataset: {format: npz, data_folder: data, num_files_train: 96, num_files_eval: 16, record_length_bytes: 4096}
reader: {data_loader: pytorch, batch_size: 2, read_threads: 2, file_shuffle: seed}
train: {epochs: 2, computation_time: 0.005}
evaluation: {eval_time: 0.002}
checkpoint: {checkpoint_folder: ck, fsync: true, steps_between_checkpoints: 3}
";
    dir.write("w.yaml", model + rest);
    dir
}

fn trained_with_data() -> Dir {
    let dir = trained();
    dir.feedline(&["generate", "w.yaml", "--quiet"]).run().exits(0);
    dir
}

/// Saves and restores of a small transformer, without training.
fn saved() -> Dir {
    let dir = Dir::new();
    let rest = "
checkpoint: {checkpoint_folder: ck, burst_folder: fast, fsync: true, num_checkpoints_write: 2, num_checkpoints_read: 2,
  time_between_checkpoints: 0}
";
    dir.write("w.yaml", TINY_MODEL.to_owned() + rest);
    dir
}

/// Files whose pages can be counted. Each host has its own copy, because all hosts of a test have one page cache.
const COUNTED: &str = "\
framework: pytorch
dataset: {format: jpeg, data_folder: data, num_files_train: 64, record_length_bytes: 114688}
reader: {data_loader: pytorch, batch_size: 2, read_threads: 2}
train: {epochs: 2, computation_time: 0.005}
";

/// A folder with the copy of the data set of each host.
fn counted(dir: &Dir) -> (Hosts<'_>, [String; 2]) {
    dir.write("w.yaml", COUNTED);
    let hosts = Hosts::new(dir, 2);
    let copies = [0, 1].map(|host| hosts.own_folder(host, "data"));
    for copy in &copies {
        dir.feedline(&["generate", "w.yaml", "--quiet", "--data-dir", copy]).run().exits(0);
    }
    (hosts, copies)
}

/// A command in one process on each of two hosts.
fn on_both<'a>(hosts: &Hosts<'a>, args: &[&str]) -> Job<'a> {
    hosts.feedline(MPI, 2, args)
}

/// A study ends with 5 if a busy machine made one of its runs invalid.
#[track_caller]
fn studied(done: Done) -> Done {
    if ![Some(0), Some(5)].contains(&done.code()) {
        done.fail("expected a completed study");
    }
    done
}

/// Checks that every line is printed once, so by one process.
#[track_caller]
fn once(done: &Done, text: &str) {
    let all = format!("{}{}", done.stdout, done.stderr);
    if all.matches(text).count() != 1 {
        done.fail(&format!("expected once: {text}"));
    }
}

/// Names and sizes of the files of checkpoints. Every run saves other bytes.
fn checkpoint_files(dir: &Dir, folder: &str) -> BTreeMap<String, usize> {
    let files = dir.tree(folder).into_iter().filter(|(name, _)| !name.ends_with("/checkpoint.json"));
    files.map(|(name, bytes)| (name, bytes.len())).collect()
}

/// The checkpoints in a folder that are complete, by name.
fn complete(dir: &Dir, folder: &str) -> Vec<String> {
    let files = dir.tree(folder).into_keys();
    files.filter_map(|name| Some(name.strip_suffix("/checkpoint.json")?.to_owned())).collect()
}

#[test]
fn generate_and_catalog() {
    let dir = trained();
    let hosts = Hosts::new(&dir, 2);
    dir.feedline(&["generate", "w.yaml", "--data-dir", "alone"]).run().exits(0);
    let done = on_both(&hosts, &["generate", "w.yaml"]).run().exits(0).silent();
    once(&done, "w: 112 files written, ");
    assert_eq!(done.stdout.lines().count(), 1, "{}", done.stdout);
    assert!(dir.tree("data") == dir.tree("alone"), "the same files with the same content");
    let manifest = |folder: &str| {
        let mut manifest = dir.json(&format!("{folder}/.feedline/dataset.json"));
        manifest.as_object_mut().unwrap().remove("created");
        manifest
    };
    assert_eq!(manifest("data"), manifest("alone"));
    dir.has_no_leftovers();
    for lost in ["data/train/img_03_of_96.npz", "data/train/img_90_of_96.npz"] {
        fs::remove_file(dir.path(lost)).unwrap();
    }
    let resumed = on_both(&hosts, &["generate", "w.yaml"]).run().exits(0);
    once(&resumed, "w: 2 files written, ");
    assert!(dir.tree("data") == dir.tree("alone"), "the lost files are written again");

    let list = ["catalog", "data", "--output", "both.catalog"];
    let listed = on_both(&hosts, &list).run().exits(0).silent();
    once(&listed, "data: 112 files in 3 folders, ");
    dir.feedline(&["catalog", "data", "--output", "alone.catalog"]).run().exits(0);
    assert_eq!(fs::read(dir.path("both.catalog")).unwrap(), fs::read(dir.path("alone.catalog")).unwrap());
    let check = [&list[..], &["--check"]].concat();
    once(
        &on_both(&hosts, &check).run().exits(0).silent(),
        "data: 3 folders with 112 files match the catalog",
    );
    fs::remove_file(dir.path("data/valid/img_00_of_16.npz")).unwrap();
    let changed = on_both(&hosts, &check).run().exits(5).silent();
    once(&changed, "data: 1 of 3 folders do not match the catalog");
    once(&changed, "  data/valid has changed");
    let refreshed = on_both(&hosts, &[&list[..], &["--refresh"]].concat()).run().exits(0).silent();
    once(&refreshed, "data: 111 files in 3 folders (2 unchanged), ");
    on_both(&hosts, &check).run().exits(0);
}

/// The same files, work and order as in one process, and verdicts that differ in nothing but time.
#[test]
fn training_with_checkpoints_in_every_mode() {
    let dir = trained_with_data();
    let hosts = Hosts::new(&dir, 2);
    let fast = [0, 1].map(|host| hosts.own_folder(host, "fast"));
    let args = ["run", "w.yaml", "--quiet", "--json", "--ranks", "8", "--no-calibration"];
    for mode in ["direct", "async", "burst-buffer"] {
        let flags = ["--save", mode, "--results-dir", mode];
        let burst: &[&str] = if mode == "burst-buffer" { &["checkpoint.burst_folder=fast"] } else { &[] };
        let alone = dir.feedline(&args).args(&flags).set(burst).run().ran().json();
        let files = checkpoint_files(&dir, "ck");
        fs::remove_dir_all(dir.path("ck")).unwrap();
        let results = format!("{mode}-both");
        let flags = ["--save", mode, "--results-dir", &results];
        let both = on_both(&hosts, &[&args[..], &flags].concat()).set(burst).run().ran().json();

        // The plan differs: a host has fewer ranks.
        let rows = |results: &str| rows(&dir, &dir.results_below(results)[0]);
        assert_eq!(rows(&results), rows(mode), "{mode}");
        assert_eq!(checkpoint_files(&dir, "ck"), files, "{mode}");
        assert_eq!(complete(&dir, "ck").len(), 4, "{mode}");
        for fast in &fast {
            assert_eq!(dir.tree(fast).len(), 0, "{mode}: {fast} is drained");
        }
        for rule in ["complete", "exactly-once", "bytes-as-planned", "errors", "cache", "checkpoints-saved"] {
            assert_eq!(outcome(&both, rule), outcome(&alone, rule), "{mode}: {rule}");
        }
        let of = |summary: &Value, key: &str| summary["feedline"]["checkpoint"][key].clone();
        assert_eq!(
            ["files", "bytes", "save"].map(|key| of(&both, key)),
            ["files", "bytes", "save"].map(|key| of(&alone, key))
        );
        fs::remove_dir_all(dir.path("ck")).unwrap();
    }
}

#[test]
fn checkpoints_without_training() {
    let dir = saved();
    let hosts = Hosts::new(&dir, 2);
    let fast = [0, 1].map(|host| hosts.own_folder(host, "fast"));
    for mode in ["direct", "async", "burst-buffer"] {
        let args = ["run", "w.yaml", "--ranks", "4", "--save", mode, "--results-dir", mode];
        let shift = ["checkpoint.recovery_rank_shift=true"];
        let done = on_both(&hosts, &args).set(&shift).run().ran();
        once(&done, "checkpoint global_epoch1_step2 complete\n");
        once(&done, "w: 4 ranks (2 processes on 2 nodes), 8 files with 7.8 MiB per checkpoint, ");
        let summary = dir.json(&format!("{}/summary.json", dir.results_below(mode)[0]));
        for rule in ["complete", "checkpoints-saved", "restored-right"] {
            assert_eq!(outcome(&summary, rule), "pass", "{mode}: {rule}");
        }
        let checkpoint = &summary["feedline"]["checkpoint"];
        for restore in checkpoint["restores"].as_array().unwrap() {
            assert_eq!(restore["verified_bytes"], checkpoint["bytes"], "{mode}");
        }
        assert_eq!(complete(&dir, "ck").len(), 2, "{mode}");
        assert!(fast.iter().all(|fast| dir.tree(fast).is_empty()), "{mode}");
        fs::remove_dir_all(dir.path("ck")).unwrap();
    }
}

/// Stops a run whose drain would take hours, when both hosts have their part.
#[test]
fn a_checkpoint_is_complete_when_both_hosts_have_drained_it() {
    let dir = saved();
    let hosts = Hosts::new(&dir, 2);
    let fast = [0, 1].map(|host| hosts.own_folder(host, "fast"));
    let args = ["run", "w.yaml", "--quiet", "--ranks", "4", "--save", "burst-buffer", "--results-dir"];
    let one = ["checkpoint.num_checkpoints_write=1", "checkpoint.num_checkpoints_read=0"];
    let slow = on_both(&hosts, &[&args[..], &["slow"]].concat());
    let mut slow = slow.set(&one).set(&["checkpoint.drain_rate=1000"]).start();
    let draft = dir.path("ck/global_epoch1_step1/checkpoint.draft");
    slow.until("a drain", || draft.exists());
    slow.signal(Signal::TERM);
    slow.wait();
    let summary = dir.json(&format!("{}/summary.json", dir.results_below("slow")[0]));
    assert_eq!(summary["feedline"]["verdict"]["status"], "incomplete");
    assert_eq!(complete(&dir, "ck").len(), 0, "it is not offered");
    let parts: Vec<BTreeMap<_, _>> = fast.iter().map(|fast| checkpoint_files(&dir, fast)).collect();
    assert_eq!([parts[0].len(), parts[1].len()], [4, 4], "each host has the files of its ranks");
    assert!(parts[0].keys().all(|name| !parts[1].contains_key(name)));

    // Each host restores its own part from its own disk; the other one's part is out of reach.
    let restore = ["checkpoint.num_checkpoints_write=0", "checkpoint.num_checkpoints_read=1"];
    let own = on_both(&hosts, &[&args[..], &["own", "--json"]].concat()).set(&restore).run().ran().json();
    assert_eq!(own["feedline"]["checkpoint"]["restores"][0]["from_fast"], true);
    let shift = ["checkpoint.recovery_rank_shift=true"];
    let shifted = on_both(&hosts, &[&args[..], &["shifted"]].concat()).set(&restore).set(&shift);
    let shifted = shifted.run().exits(5);
    once(
        &shifted,
        &format!(
            "process 0 on {}: zero_pp_rank_2_mp_rank_0_model_states.pt is on the fast tier of another node",
            hosts.name(0)
        ),
    );

    // The next run that saves drains it first.
    let next = on_both(&hosts, &[&args[..], &["next"]].concat()).set(&one).set(&["checkpoint.keep_last=2"]);
    next.run().ran();
    assert_eq!(complete(&dir, "ck").len(), 1, "the new one has the name of the old one");
    assert!(fast.iter().all(|fast| dir.tree(fast).is_empty()));
    let shifted = on_both(&hosts, &[&args[..], &["after", "--json"]].concat()).set(&restore).set(&shift);
    let shifted = shifted.run().ran().json();
    assert_eq!(shifted["feedline"]["checkpoint"]["restores"][0]["from_fast"], false);
    assert_eq!(outcome(&shifted, "restored-right"), "pass");
}

/// Process 0 decides and prints; results exist on its host only.
#[test]
fn studies_leave_results_on_the_host_of_process_0_only() {
    let dir = Dir::new();
    let dataset =
        "dataset: {format: npz, data_folder: data, num_files_train: 180, record_length_bytes: 4096}\n";
    let rest = "framework: pytorch\nreader: {data_loader: pytorch, batch_size: 2, read_threads: 2}\n";
    dir.write(
        "w.yaml",
        format!("{dataset}{rest}train: {{epochs: 1, computation_time: 0.005}}\nmetric: {{au: 0.01}}\n"),
    );
    let hosts = Hosts::new(&dir, 2);
    let [first, second] = [0, 1].map(|host| hosts.own_folder(host, "results"));
    on_both(&hosts, &["generate", "w.yaml", "--quiet"]).run().exits(0);
    let place = ["--results-dir", "results"];

    let done = studied(on_both(&hosts, &[&["capacity", "w.yaml"], &place[..]].concat()).run());
    once(&done, "probes of 45 steps; estimated time by number of accelerators fed: ");
    assert!(done.stderr.contains(" for 2\n"), "each process has at least one rank: {}", done.stderr);
    once(&done, "probe          2 ranks");
    once(&done, "at least 2 accelerators at AU 1 %");
    once(&done, "w (2 processes on 2 nodes), posix backend\n");

    let over = ["--over", "reader.read_threads=1,2", "--repeat", "2", "--ranks", "2", "--no-calibration"];
    let done = studied(on_both(&hosts, &[&["sweep", "w.yaml"], &over[..], &place].concat()).run());
    for run in 1..=4 {
        once(&done, &format!("run {run} of 4  "));
    }
    once(&done, "\n reader.read_threads ");

    let stall = ["stall", "w.yaml", "--ranks", "2"];
    let done = studied(on_both(&hosts, &[&stall[..], &place].concat()).run());
    for text in ["\nsynthetic run ", "\ncold run  ", "\nwarm run  ", "\npredicted effect of a cache\n"] {
        once(&done, text);
    }

    once(&done, "w: 2 ranks (2 processes on 2 nodes), posix backend, ");

    let files: Vec<String> = dir.tree(&first).into_keys().collect();
    for name in ["capacity.json", "trials.jsonl", "sweep.csv", "cells.jsonl", "stall.json", "runs.jsonl"] {
        assert_eq!(
            files.iter().filter(|file| file.ends_with(&format!("/{name}"))).count(),
            1,
            "{name}: {files:?}"
        );
    }
    assert_eq!(fs::read_dir(dir.path(&second)).unwrap().count(), 0, "the other host writes no results");
}

/// The plan of a host is an upper limit of what its processes use.
#[test]
fn a_plan_for_hosts_and_the_run() {
    let dir = trained_with_data();
    let hosts = Hosts::new(&dir, 2);
    let plan =
        dir.feedline(&["plan", "w.yaml", "--ranks", "8", "--hosts", "2", "--json"]).run().exits(0).json();
    let text = on_both(&hosts, &["plan", "w.yaml", "--ranks", "8", "--hosts", "2"]).run().exits(0).silent();
    once(&text, "w: 8 ranks on 2 hosts, posix backend");
    let args = ["run", "w.yaml", "--quiet", "--ranks", "8", "--no-calibration", "--json"];
    let summary = on_both(&hosts, &args).run().ran().json();
    let processes = summary["feedline"]["processes"].as_array().unwrap().clone();
    let facts: Vec<[Value; 3]> = processes
        .iter()
        .map(|process| ["name", "first_rank", "ranks"].map(|key| process[key].clone()))
        .collect();
    let row = |host: usize, first: u64| [Value::from(hosts.name(host)), first.into(), 4.into()];
    assert_eq!(facts, [row(0, 0), row(1, 4)]);
    let run = &summary["feedline"]["plan_digest"];
    assert_eq!((&plan["plan_digest"], &plan["placement"]["ranks_per_host"]), (run, &4.into()));
    let limit = plan["estimate"]["memory_bytes"].as_u64().unwrap();
    assert!(
        processes.iter().all(|process| process["peak_rss_bytes"].as_u64().unwrap() <= limit),
        "{processes:?}"
    );
}

fn files_of(dir: &Dir, copy: &str) -> Vec<PathBuf> {
    files_below(&dir.path(copy).join("train"))
}

/// Seven of eight ranks read from storage, so the sum over hosts looks cold.
#[test]
fn one_host_that_reads_from_memory_makes_the_run_invalid() {
    let dir = Dir::new();
    let (hosts, copies) = counted(&dir);
    if !tells(&dir) {
        return;
    }
    let args = ["run", "w.yaml", "--quiet", "--json", "--no-calibration"];
    for (warm, shares) in [(1, "7,1"), (0, "1,7")] {
        let as_is = [&args[..], &["--cache", "as-is", "--ranks-per-process", shares]].concat();
        evict(&files_of(&dir, &copies[1 - warm]));
        files_of(&dir, &copies[warm]).iter().for_each(|path| drop(fs::read(path).unwrap()));
        let done = on_both(&hosts, &as_is).set(&["train.epochs=1"]).run().exits(5);
        let summary = done.json();
        assert_eq!(summary["feedline"]["verdict"]["status"], "invalid");
        let (outcome, evidence) = cache_rule(&summary);
        let place = format!("epoch 1, train, node {}: only ", hosts.name(warm));
        assert!(outcome == "fail" && evidence.starts_with(&place), "{outcome}: {evidence}");
        let nodes = summary["feedline"]["nodes"].as_array().unwrap();
        let share = |host: usize| nodes[host]["storage_share"].as_f64().unwrap();
        // Pages of the program itself, if they are loaded meanwhile, count as bytes from storage.
        assert!(share(warm) <= 0.05 && share(1 - warm) >= 0.95, "{nodes:?}");
    }
    let cold = [&args[..], &["--ranks", "8"]].concat();
    let summary = on_both(&hosts, &cold).run().ran().json();
    let (outcome, evidence) = cache_rule(&summary);
    assert_eq!(outcome, "pass", "{evidence}");
}

#[test]
fn pages_that_cannot_be_evicted_on_one_host_are_refused_with_its_name() {
    let dir = Dir::new();
    let (hosts, copies) = counted(&dir);
    if !tells(&dir) {
        return;
    }
    let run = || on_both(&hosts, &["run", "w.yaml", "--quiet", "--no-calibration", "--ranks", "8"]);
    for host in [0, 1] {
        let _held = hold_in_memory(&files_of(&dir, &copies[host]));
        let done = run().run().exits(3).one_error();
        done.says(hosts.name(host)).says("pages stay in memory").says("./data/train/img_");
        assert!(dir.results().is_empty(), "a refused run leaves no result");
    }
    run().run().ran();
}

/// One host has its data in memory, of which nothing can be evicted.
#[test]
fn a_host_whose_storage_does_not_tell_makes_the_run_unverified() {
    let dir = Dir::new();
    dir.write("w.yaml", COUNTED);
    let hosts = Hosts::new(&dir, 2);
    let copies = [0, 1].map(|host| hosts.own_folder(host, "data"));
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::remove_dir(dir.path(&copies[1])).unwrap();
    std::os::unix::fs::symlink(memory.path(), dir.path(&copies[1])).unwrap();
    for copy in &copies {
        dir.feedline(&["generate", "w.yaml", "--quiet", "--data-dir", copy]).run().exits(0);
    }
    let args = ["run", "w.yaml", "--quiet", "--json", "--no-calibration", "--ranks", "8"];
    let summary = on_both(&hosts, &args).run().ran().json();
    let (outcome, evidence) = cache_rule(&summary);
    let place = format!("node {}", hosts.name(1));
    assert_eq!(outcome, "not-checkable", "{evidence}");
    assert!(evidence.contains(&place) && evidence.contains("tmpfs keeps files in memory"), "{evidence}");
}

#[test]
fn hosts_with_different_data_are_both_named() {
    let dir = Dir::new();
    let (hosts, copies) = counted(&dir);
    let args = ["run", "w.yaml", "--quiet", "--no-calibration", "--ranks", "8"];
    let refused = |texts: &[String]| {
        let done = on_both(&hosts, &args).run().exits(3).one_error();
        for text in texts {
            once(&done, text);
        }
        assert!(dir.results().is_empty());
    };
    let [first, second] = [0, 1].map(|host| format!("process {host} on {}", hosts.name(host)));
    fs::remove_dir_all(dir.path(&copies[1])).unwrap();
    let other = ["generate", "w.yaml", "--quiet", "--data-dir", &copies[1]];
    dir.feedline(&other).set(&["train.seed=77"]).run().exits(0);
    refused(&[format!(
        "the nodes have different data sets: train.seed is 123 for {first}, but 77 for {second};"
    )]);
    for (host, here, there) in [(1, &second, &first), (0, &first, &second)] {
        fs::remove_dir_all(dir.path(&copies[host])).unwrap();
        fs::create_dir(dir.path(&copies[host])).unwrap();
        refused(&[format!("{here} finds none in ./data, but {there} finds one in ./data;")]);
        dir.feedline(&["generate", "w.yaml", "--quiet", "--data-dir", &copies[host]]).run().exits(0);
        dir.feedline(&["generate", "w.yaml", "--quiet", "--data-dir", &copies[1 - host]]).run();
    }
}

#[test]
fn folders_that_are_not_shared_are_refused() {
    let dir = trained();
    let hosts = Hosts::new(&dir, 2);
    let own = ["data", "own"].map(|folder| [0, 1].map(|host| hosts.own_folder(host, folder)));
    let names = [0, 1].map(|host| format!("process {host} on {}", hosts.name(host)));
    let refused = |args: &[&str], what: &str| {
        let done = on_both(&hosts, args).run().exits(3).one_error();
        once(&done, &format!("{} failed: {what}", names[1]));
        assert_eq!(done.stderr.matches(hosts.name(1)).count(), 1, "{}", done.stderr);
        for folder in own.as_flattened() {
            assert_eq!(
                fs::read_dir(dir.path(folder)).unwrap().count(),
                0,
                "{folder} has a trace of the check"
            );
        }
    };
    let not_shared =
        |folder: &str| format!("{folder} is not the folder that {} has at this path; ", names[0]);
    refused(&["generate", "w.yaml"], &not_shared("./data"));
    refused(&["run", "w.yaml", "--generate", "--ranks", "8"], &not_shared("./data"));
    refused(&["catalog", "own"], &not_shared("own/.feedline"));
}
