//! The program under the name dlio_benchmark: DLIO's command lines become complete result folders, and whatever fails
//! leaves none that looks complete.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::hosts::Hosts;
use crate::cluster::launch::{Mpi, send};
use crate::util::{Cmd, Dir, Done, walk};

/// A workload that runs in milliseconds, as a file in a folder of configurations.
const SMALL: &str = "\
model: {name: small, type: cnn}
framework: pytorch
workflow: {generate_data: False, train: True, checkpoint: False}
dataset:
  data_folder: data/small
  format: npz
  num_files_train: 36
  num_samples_per_file: 1
  record_length_bytes: 4096
reader: {data_loader: pytorch, batch_size: 2, read_threads: 2, file_shuffle: seed, sample_shuffle: seed}
train: {epochs: 2, computation_time: 0.004}
metric: {au: 0.1}
";

/// A model whose checkpoints have a few MB.
const TINY: &str = "\
model:
  name: tiny
  type: transformer
  num_layers: 2
  parallelism: {zero_stage: 3}
  transformer: {vocab_size: 1000, hidden_size: 128, ffn_hidden_size: 256, num_attention_heads: 8, num_kv_heads: 8}
framework: pytorch
workflow: {generate_data: False, train: False, checkpoint: True}
checkpoint: {checkpoint_folder: ck, fsync: True, time_between_checkpoints: 0}
";

/// The files of a leaf that only mlpstorage adds to.
const CONFIGURATION: [&str; 3] =
    ["dlio_config/config.yaml", "dlio_config/hydra.yaml", "dlio_config/overrides.yaml"];

fn folder() -> Dir {
    let dir = Dir::new();
    dir.write("conf/workload/small.yaml", SMALL);
    dir.write("conf/workload/tiny.yaml", TINY);
    dir
}

/// A folder with the data set of `SMALL`.
fn with_data() -> Dir {
    let dir = folder();
    dlio(&dir, "small", "generated", &GENERATES).run().exits(0);
    dir
}

const GENERATES: [&str; 2] = ["++workload.workflow.generate_data=True", "++workload.workflow.train=False"];

/// The arguments, in the order in which mlpstorage gives them.
fn arguments(workload: &str, leaf: &str, more: &[&str]) -> Vec<String> {
    let mut all = vec![
        format!("workload={workload}"),
        format!("++hydra.run.dir={leaf}"),
        "++hydra.output_subdir=dlio_config".to_owned(),
    ];
    all.extend(more.iter().map(|&argument| argument.to_owned()));
    all.push("--config-dir=conf".to_owned());
    all
}

fn dlio<'a>(dir: &'a Dir, workload: &str, leaf: &str, more: &[&str]) -> Cmd<'a> {
    let arguments = arguments(workload, leaf, more);
    dir.feedline(&["dlio"]).args(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The same as one of several processes.
fn with_dlio(arguments: &[String]) -> Vec<&str> {
    std::iter::once("dlio").chain(arguments.iter().map(String::as_str)).collect()
}

/// The files of a leaf, without those in its `feedline/`.
fn files(dir: &Dir, leaf: &str) -> BTreeSet<String> {
    dir.tree(leaf).into_keys().filter(|name| !name.starts_with("feedline/")).collect()
}

/// The files of a complete leaf of this many ranks.
fn complete(ranks: u64) -> BTreeSet<String> {
    let of_rank = |rank| [format!("{rank}_output.json"), format!("{rank}_per_epoch_stats.json")];
    let names = ["dlio.log", "summary.json"].into_iter().chain(CONFIGURATION).map(str::to_owned);
    names.chain((0..ranks).flat_map(of_rank)).collect()
}

/// Checks what MLPerf's checkers require of a complete leaf.
#[track_caller]
fn is_complete(dir: &Dir, leaf: &str, ranks: u64) -> Value {
    assert_eq!(files(dir, leaf), complete(ranks));
    let mut summaries = 0;
    walk(&dir.path(leaf), &mut |path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(!name.contains("metadata") && !name.starts_with('.'), "{}", path.display());
        summaries += u64::from(name.ends_with("summary.json"));
    });
    assert_eq!(summaries, 1, "a second summary counts as another run");
    let summary = dir.json(&format!("{leaf}/summary.json"));
    assert_eq!(summary["num_accelerators"], ranks);
    for key in ["start", "end"] {
        let time = summary[key].as_str().unwrap();
        assert!(time.len() == 26 && time.contains('T') && !time.contains('+'), "{time}");
    }
    let version = summary["feedline"]["version"].as_str().unwrap();
    assert!(dir.read(&format!("{leaf}/dlio.log")).contains(&format!("feedline {version}")));
    summary
}

/// A rank's file, and the sum of its lists.
fn steps(dir: &Dir, leaf: &str, rank: u64, epoch: &str, list: &str) -> usize {
    let output = dir.json(&format!("{leaf}/{rank}_output.json"));
    output[epoch][list]["block1"].as_array().unwrap().len()
}

/// Every line is whole, and none moves the cursor.
#[track_caller]
fn lines_are_whole(done: &Done) {
    assert!(!done.stderr.contains('\r') && done.stderr.ends_with('\n'), "{:?}", done.stderr);
    assert!(!done.stderr.contains('\u{1b}'), "{:?}", done.stderr);
}

#[test]
fn data_is_generated_and_read_by_one_process_without_a_launcher() {
    let dir = folder();
    let done = dlio(&dir, "small", "out/datagen", &GENERATES).run().exits(0);
    lines_are_whole(&done);
    let names: BTreeSet<String> = CONFIGURATION.into_iter().chain(["dlio.log"]).map(str::to_owned).collect();
    assert_eq!(files(&dir, "out/datagen"), names, "no summary, no files of ranks");
    assert_eq!(dir.tree("data/small/train").len(), 36);
    assert!(dir.path("data/small/train/img_00_of_36.npz").is_file());

    let done = dlio(&dir, "small", "out/run", &[]).run().exits(0);
    lines_are_whole(&done);
    let summary = is_complete(&dir, "out/run", 1);
    let metric = summary["metric"].as_object().unwrap();
    assert_eq!(metric.len(), 9, "{metric:?}");
    assert_eq!(metric["train_au_percentage"].as_array().unwrap().len(), 2);
    assert_eq!(metric["train_au_meet_expectation"], "success");
    assert_eq!((&summary["num_files_train"], &summary["num_files_eval"]), (&36.into(), &0.into()));
    assert_eq!(summary["host_memory_GB"].as_array().unwrap().len(), 1);
    assert_eq!([steps(&dir, "out/run", 0, "1", "load"), steps(&dir, "out/run", 0, "2", "proc")], [18, 18]);
    let overrides = dir.read("out/run/dlio_config/overrides.yaml");
    assert_eq!(overrides, "- workload=small\n", "without hydra's own and without flags");
    let config = dir.read("out/run/dlio_config/config.yaml");
    assert!(config.starts_with("workload:\n") && config.contains("    num_files_train: 36\n"), "{config}");
    dir.has_no_leftovers();
}

#[test]
fn the_name_of_the_program_decides() {
    let dir = with_data();
    fs::create_dir(dir.path("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_feedline"), dir.path("bin/dlio_benchmark")).unwrap();
    let arguments = arguments("small", "leaf", &[]);
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    dir.command(&dir.path("bin/dlio_benchmark"), &words).run().exits(0);
    is_complete(&dir, "leaf", 1);
    dir.command(&dir.path("bin/dlio_benchmark"), &["--version"]).run().exits(0).prints("feedline");
}

#[test]
fn every_process_is_a_rank_under_every_launcher() {
    for mpi in Mpi::ALL {
        let dir = with_data();
        let arguments = arguments("small", "leaf", &["++workload.dataset.skip_listing=True"]);
        let done = mpi.feedline(&dir, 4, &with_dlio(&arguments)).run().exits(0);
        let summary = is_complete(&dir, "leaf", 4);
        assert_eq!((&summary["num_hosts"], &summary["epochs"]), (&1.into(), &2.into()), "{mpi:?}");
        assert_eq!(summary["host_cpu_count"].as_array().unwrap().len(), 1);
        for rank in 0..4 {
            assert_eq!(steps(&dir, "leaf", rank, "2", "compute"), 36 / 2 / 4, "{mpi:?} {rank}");
        }
        assert_eq!(done.stderr.matches("Starting epoch 1").count(), 1, "process 0 logs: {}", done.stderr);
    }
}

#[test]
fn ranks_that_are_dealt_to_hosts_unevenly_are_counted_per_host() {
    let dir = with_data();
    let hosts = Hosts::new(&dir, 2);
    let arguments = arguments("small", "leaf", &[]);
    // As with `-host h1:5,h2:4 --map-by node`: h1 has the ranks 0, 2, 4, 6 and 8.
    hosts.feedline(Mpi::OpenMpi4, 9, &with_dlio(&arguments)).run().exits(0);
    let summary = is_complete(&dir, "leaf", 9);
    assert_eq!(summary["num_hosts"], 2);
    for list in ["host_memory_GB", "host_cpu_count", "potential_caching"] {
        let values = summary[list].as_array().unwrap();
        assert_eq!(values.len(), 2, "{list}");
        assert!(
            list == "potential_caching" || values.iter().all(|value| value.as_f64().unwrap() > 0.0),
            "{list}"
        );
    }
    let nodes = summary["feedline"]["nodes"].as_array().unwrap();
    let ranks: Vec<u64> = nodes.iter().map(|node| node["ranks"].as_u64().unwrap()).collect();
    assert_eq!(ranks, [5, 4]);
}

#[test]
fn an_output_folder_that_is_not_shared_is_refused_before_the_run() {
    let dir = with_data();
    let hosts = Hosts::new(&dir, 2);
    hosts.own_folder(1, "leaf");
    let arguments = arguments("small", "leaf", &[]);
    let done = hosts.feedline(Mpi::OpenMpi4, 2, &with_dlio(&arguments)).run();
    if done.code() == Some(0) {
        done.fail("a leaf without the files of rank 1 is not complete");
    }
    done.says("is not the one of process 0").says(hosts.name(1));
    assert!(!dir.path("leaf/summary.json").exists());
}

#[test]
fn two_jobs_cannot_write_to_the_same_folder() {
    let dir = with_data();
    let long = ["++workload.train.computation_time=0.2", "++workload.train.epochs=3"];
    let mut first = dlio(&dir, "small", "leaf", &long).start();
    first.until_thread("reader");
    let config = dir.read("leaf/dlio_config/config.yaml");
    dlio(&dir, "small", "leaf", &["++workload.train.epochs=1"]).run().exits(3).says("another feedline");
    assert_eq!(dir.read("leaf/dlio_config/config.yaml"), config, "nothing of the first job was replaced");
    first.wait().exits(0);
    assert_eq!(is_complete(&dir, "leaf", 1)["epochs"], 3);
}

#[test]
fn a_rank_that_is_killed_ends_the_job_without_a_summary() {
    for mpi in Mpi::ALL {
        let dir = with_data();
        let long = ["++workload.train.computation_time=0.2", "++workload.train.epochs=20"];
        let arguments = arguments("small", "leaf", &long);
        let mut job = mpi.feedline(&dir, 4, &with_dlio(&arguments)).start();
        job.until_threads(0..4, "reader");
        let processes = job.processes.clone();
        send(processes.worker(2).unwrap(), Signal::KILL);
        let done = job.wait_for(Duration::from_secs(30));
        if done.code() == Some(0) {
            done.fail("the launcher reports success");
        }
        assert!(processes.are_gone_within(Duration::from_secs(30)), "{mpi:?}");
        assert!(!dir.path("leaf/summary.json").exists(), "{mpi:?}");
        assert!(dir.read("leaf/dlio.log").contains("Starting epoch 1"), "the log keeps what happened");
    }
}

#[test]
fn an_invalid_verdict_is_shown_and_fails_only_if_strict() {
    let dir = with_data();
    // The same order in every epoch is not how a training job reads.
    let wrong = "++workload.train.seed_change_epoch=False";
    dlio(&dir, "small", "leaf", &[wrong]).run().exits(0).says("INVALID");
    let summary = is_complete(&dir, "leaf", 1);
    assert_eq!(summary["feedline"]["verdict"]["status"], "invalid");
    assert!(dir.read("leaf/dlio.log").contains("INVALID"));
    dlio(&dir, "small", "strict", &[wrong]).env("FEEDLINE_STRICT", "1").run().exits(5).says("INVALID");
    is_complete(&dir, "strict", 1);
    dlio(&dir, "small", "key", &[wrong, "++workload.output.strict=True"]).run().exits(5).says("INVALID");
    dlio(&dir, "small", "valid", &[]).env("FEEDLINE_STRICT", "1").run().ran();
}

#[test]
fn checkpoints_are_written_in_one_job_and_read_in_the_next() {
    let dir = folder();
    let counts = |write: u64, read: u64| {
        [
            format!("++workload.checkpoint.num_checkpoints_write={write}"),
            format!("++workload.checkpoint.num_checkpoints_read={read}"),
            "++workload.checkpoint.checkpoint_folder=ck/tiny".to_owned(),
        ]
    };
    for (leaf, write, read, keys) in [
        ("write", 3, 0, ["save_", "save_"]),
        ("read", 0, 3, ["load_", "load_"]),
        ("both", 2, 2, ["save_", "load_"]),
    ] {
        let counts = counts(write, read);
        let counts: Vec<&str> = counts.iter().map(String::as_str).collect();
        let arguments = arguments("tiny", leaf, &counts);
        Mpi::OpenMpi4.feedline(&dir, 2, &with_dlio(&arguments)).run().exits(0);
        let summary = is_complete(&dir, leaf, 2);
        let metric = summary["metric"].as_object().unwrap();
        for (prefix, done) in [("save_", write), ("load_", read)] {
            let named = metric.keys().filter(|key| key.starts_with(prefix)).count();
            assert_eq!(named, if done > 0 { 4 } else { 0 }, "{leaf}: {metric:?}");
        }
        assert!(
            metric.keys().any(|key| key.starts_with(keys[0]))
                && metric.keys().any(|key| key.starts_with(keys[1]))
        );
        assert!(metric["checkpoint_size_GB"].as_f64().unwrap() > 0.0);
        let stats = dir.json(&format!("{leaf}/1_per_epoch_stats.json"));
        let listed = stats["1"].as_object().unwrap().keys().filter(|key| key.contains("_ckpt")).count();
        assert_eq!(listed as u64, write + read, "{leaf}: {stats}");
    }
    let saved = dir.tree("ck/tiny").into_keys().filter(|name| name.ends_with("optim_states.pt")).count();
    assert_eq!(saved, 3 * 2, "global_epoch1_step1 to 3, of 2 ranks");
}

#[test]
fn unknown_and_empty_values_are_reported_and_do_not_stop_a_run() {
    let dir = with_data();
    let more = [
        "++workload.storage.s3_force_path_style=true",
        "++workload.dataset.total_disk_bytes=1",
        "++workload.vendor.secret_sauce=on",
        "++workload.storage.storage_root=data/small",
        "++workload.dataset.data_folder=",
    ];
    dlio(&dir, "small", "leaf", &more).run().exits(0).says("vendor");
    is_complete(&dir, "leaf", 1);
    assert!(dir.read("leaf/dlio.log").contains("[WARNING]"));
    let overrides = dir.read("leaf/dlio_config/overrides.yaml");
    assert_eq!(overrides.lines().last(), Some("- ++workload.dataset.data_folder="));
    let wrong = ["++workload.dataset.num_files_train="];
    let done = dlio(&dir, "small", "wrong", &wrong).run();
    assert_ne!(done.code(), Some(0));
    done.says("num_files_train");
    assert!(!dir.path("wrong/summary.json").exists());
}

#[test]
fn a_failed_run_leaves_no_summary_and_keeps_files_of_others() {
    let dir = with_data();
    dir.write("leaf/training_20260720_152253_metadata.json", "{}");
    dir.write("leaf/collector-staging/cluster_info.json", "{}");
    dlio(&dir, "small", "leaf", &[]).run().exits(0);
    assert!(dir.path("leaf/summary.json").is_file());
    fs::remove_file(dir.path("data/small/train/img_07_of_36.npz")).unwrap();
    let done = dlio(&dir, "small", "leaf", &[]).run();
    assert_ne!(done.code(), Some(0));
    done.says("img_07_of_36.npz");
    assert!(!dir.path("leaf/summary.json").exists(), "a run that failed has no summary, not even an old one");
    assert_eq!(dir.read("leaf/collector-staging/cluster_info.json"), "{}");
    assert_eq!(dir.read("leaf/training_20260720_152253_metadata.json"), "{}");
    assert!(dir.read("leaf/dlio.log").contains("[ERROR]"));

    fs::remove_dir_all(dir.path("data")).unwrap();
    dlio(&dir, "small", "none", &[]).run().exits(3).says("++workload.workflow.generate_data=True");
    dir.write("file", "mine");
    let done = dlio(&dir, "small", "file", &[]).run();
    assert_ne!(done.code(), Some(0));
    assert_eq!(dir.read("file"), "mine");
    dlio(&dir, "smal", "unknown", &[]).run().says("small");
}

#[test]
fn a_multirun_has_a_leaf_for_each_job() {
    let dir = with_data();
    let arguments = ["workload=small", "++workload.reader.read_threads=1,2", "-m", "--config-dir=conf"];
    dir.feedline(&["dlio"]).args(&arguments).args(&["hydra.sweep.dir=sweep"]).run().exits(0);
    for job in ["sweep/0", "sweep/1"] {
        let summary = dir.json(&format!("{job}/summary.json"));
        assert_eq!(summary["num_accelerators"], 1);
    }
    let config = dir.read("sweep/1/.hydra/config.yaml");
    assert!(config.contains("read_threads: 2"), "{config}");
    // As in Hydra, the other jobs run after one that cannot.
    let files = ["workload=small", "++workload.dataset.num_files_train=999,36", "-m", "--config-dir=conf"];
    let done = dir.feedline(&["dlio"]).args(&files).args(&["hydra.sweep.dir=other"]).run();
    done.exits(3);
    assert!(!dir.path("other/0/summary.json").exists() && dir.path("other/1/summary.json").is_file());
}

#[test]
fn interpolations_are_resolved_for_the_run_and_kept_in_the_file() {
    let dir = with_data();
    let more = ["++workload.train.epochs=${workload.reader.batch_size}"];
    dlio(&dir, "small", "leaf", &more).run().exits(0);
    assert_eq!(is_complete(&dir, "leaf", 1)["epochs"], 2);
    assert!(dir.read("leaf/dlio_config/config.yaml").contains("epochs: ${workload.reader.batch_size}"));
}

#[test]
fn the_first_files_of_a_larger_data_set_are_read() {
    let dir = with_data();
    let done = dlio(&dir, "small", "leaf", &["++workload.dataset.num_files_train=20"]).run().exits(0);
    done.says("the data set has 36 training files; the run reads the first 20");
    let summary = is_complete(&dir, "leaf", 1);
    assert_eq!(summary["num_files_train"], 20);
    assert_eq!(steps(&dir, "leaf", 0, "1", "load"), 10);
    dlio(&dir, "small", "more", &["++workload.dataset.num_files_train=40"]).run().exits(3);
}

#[test]
fn a_data_set_can_be_generated_next_to_checkpoints() {
    let dir = folder();
    let more = [
        "++workload.workflow.generate_data=True",
        "++workload.dataset.num_files_train=4",
        "++workload.dataset.data_folder=data/tiny",
        "++workload.checkpoint.num_checkpoints_write=1",
    ];
    let done = dlio(&dir, "tiny", "leaf", &more).run().exits(0);
    assert!(!done.stderr.contains("has no effect"), "{}", done.stderr);
    is_complete(&dir, "leaf", 1);
    assert_eq!(dir.tree("data/tiny/train").len(), 4);
}

#[test]
fn a_job_can_change_to_its_folder() {
    let dir = with_data();
    let data = format!("++workload.dataset.data_folder={}", dir.path("data/small").display());
    dlio(&dir, "small", "leaf", &[&data, "hydra.job.chdir=True"]).run().exits(0);
    is_complete(&dir, "leaf", 1);
}

#[test]
fn the_folder_of_the_output_may_be_that_of_the_job_in_another_spelling() {
    let dir = with_data();
    dlio(&dir, "small", "leaf", &["++workload.output.folder=./leaf"]).run().exits(0);
    is_complete(&dir, "leaf", 1);
}

#[test]
fn a_configuration_that_cannot_be_written_leaves_no_earlier_summary() {
    let dir = with_data();
    dir.write("leaf/summary.json", "{}");
    dir.write("leaf/dlio_config", "a file");
    dlio(&dir, "small", "leaf", &[]).run().exits(3).says("dlio_config");
    assert!(!dir.path("leaf/summary.json").exists());
    fs::create_dir_all(dir.path("elsewhere")).unwrap();
    fs::create_dir_all(dir.path("linked")).unwrap();
    symlink(dir.path("elsewhere"), dir.path("linked/dlio_config")).unwrap();
    dlio(&dir, "small", "linked", &[]).run().exits(3).says("link");
    assert_eq!(fs::read_dir(dir.path("elsewhere")).unwrap().count(), 0);
}

#[test]
fn configurations_are_printed_by_one_process_without_a_run() {
    let dir = folder();
    let print = ["dlio", "workload=small", "--cfg", "job", "--config-dir=conf"];
    let alone = dir.feedline(&print).run().exits(0);
    assert!(alone.stdout.starts_with("workload:\n"), "{}", alone.stdout);
    let several = Mpi::OpenMpi4.feedline(&dir, 3, &print).run().exits(0);
    assert_eq!(several.stdout, alone.stdout);
    assert_eq!(dir.listing().iter().filter(|line| line.contains("hydra_log")).count(), 0);
}
