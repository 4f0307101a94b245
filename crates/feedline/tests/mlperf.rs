//! The rules of MLPerf Storage on folders: a submission on disk, results of DLIO and feedline, and damaged ones. The
//! rules themselves are tested where they are defined.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::util::{Dir, Done};

const SYSTEM: &str = "closed/acme/results/box";
const WORKLOAD: &str = "closed/acme/results/box/training/unet3d";

/// The fields of a summary by DLIO that matter here; `run` counts from 1.
fn summary(run: u32) -> Value {
    json!({
        "start": format!("2026-07-20T15:{:02}:05.5", 6 * run),
        "end": format!("2026-07-20T15:{:02}:05.5", 6 * run + 5),
        "num_accelerators": 4, "num_hosts": 1, "hostname": "vm", "num_files_train": 14_000, "num_files_eval": 0,
        "num_samples_per_file": 1, "host_memory_GB": [64.0], "host_cpu_count": [8],
        "metric": {
            "train_au_mean_percentage": 95.0, "train_au_meet_expectation": "success",
            "train_io_mean_MB_per_second": 1024.0 * f64::from(run),
        },
    })
}

fn write_config(dir: &Dir, leaf: &str, config: &str, overrides: &str) {
    dir.write(&format!("{leaf}/dlio_config/config.yaml"), config);
    dir.write(&format!("{leaf}/dlio_config/hydra.yaml"), "hydra: {}\n");
    dir.write(&format!("{leaf}/dlio_config/overrides.yaml"), overrides);
}

fn write_leaf(dir: &Dir, leaf: &str, command: &str) {
    let workload = dir.feedline(&["workloads", "unet3d_b200"]).run().exits(0).stdout;
    let files = "++workload.dataset.num_files_train=14000";
    let config = workload.replace("num_files_train: 7200", "num_files_train: 14000");
    write_config(dir, leaf, &config, &format!("- workload=unet3d_b200\n- {files}\n"));
    let args =
        json!({"mode": "closed", "hosts": ["a"], "data_dir": "/d", "results_dir": "/r", "num_processes": 4});
    let metadata = json!({
        "benchmark_type": "training", "model": "unet3d", "command": command, "accelerator": "b200",
        "verification": "CLOSED", "args": args, "parameters": {"dataset": {"num_files_train": "14000"}},
    });
    dir.write(&format!("{leaf}/training_metadata.json"), metadata.to_string());
    for name in
        ["dlio.log", &format!("training_{command}.stdout.log"), &format!("training_{command}.stderr.log")]
    {
        dir.write(&format!("{leaf}/{name}"), "");
    }
}

fn run_folder(run: u32) -> String {
    format!("{WORKLOAD}/run/20260720_15{:02}00", 6 * run)
}

/// A submission of one training workload that keeps every rule.
pub(crate) fn submission() -> Dir {
    let dir = Dir::new();
    write_leaf(&dir, &format!("s/{WORKLOAD}/datagen/20260720_150000"), "datagen");
    for run in 1..=6 {
        let leaf = format!("s/{}", run_folder(run));
        write_leaf(&dir, &leaf, "run");
        dir.write(&format!("{leaf}/summary.json"), summary(run).to_string());
        dir.write(&format!("{leaf}/0_output.json"), "{}");
        dir.write(&format!("{leaf}/0_per_epoch_stats.json"), "{}");
        dir.write(&format!("{leaf}/fs_separation.json"), "{\"same_filesystem\": false}");
    }
    dir.write(&format!("s/{WORKLOAD}/run/results.json"), "{}");
    for name in ["code/x.py", "systems/box.yaml", "systems/box.pdf"] {
        dir.write(&format!("s/closed/acme/{name}"), "");
    }
    dir
}

fn check(dir: &Dir, args: &[&str]) -> Done {
    dir.feedline(&["mlperf", "check"]).args(args).run()
}

/// The rules that failed, each once.
fn failed(done: &Done) -> Vec<String> {
    let json = done.json();
    let mut rules = Vec::new();
    let lists = json["workloads"].as_array().unwrap().iter().map(|workload| &workload["findings"]);
    for list in lists.chain([&json["structure"]]) {
        for finding in list.as_array().unwrap() {
            if finding["outcome"] == "fail" {
                rules.push(finding["rule"].as_str().unwrap().to_owned());
            }
        }
    }
    rules.sort();
    rules.dedup();
    rules
}

#[test]
fn a_good_submission_passes() {
    let dir = submission();
    let done = check(&dir, &["s"]).exits(0).silent().prints("unet3d, MLPerf Storage 3.0, closed division");
    assert!(done.stdout.contains("findings: 0 failed, "), "{}", done.stdout);
    assert!(!done.stdout.contains("3.3.2"), "rules that hold are only counted: {}", done.stdout);
    check(&dir, &["s", "--all"]).exits(0).prints("pass: 3.3.2 trainingAcceleratorUtilizationCheck");
    // A part of the tree gives the same findings on the workload.
    for part in [WORKLOAD, SYSTEM, &format!("{WORKLOAD}/run"), "closed"] {
        check(&dir, &[&format!("s/{part}")]).exits(0).silent();
    }
    let json = check(&dir, &["s", "--json"]).exits(0).json();
    assert_eq!((&json["counts"]["fail"], &json["workloads"][0]["system"]), (&json!(0), &json!("box")));
    let unknown = json["workloads"][0]["findings"].as_array().unwrap().iter();
    let unknown = unknown.filter(|finding| finding["outcome"] == "not-checkable").count();
    assert_eq!(json["counts"]["not-checkable"], json!(unknown), "counts have the names of the outcomes");
    // Another edition does not score this workload.
    let other = check(&dir, &["s", "--edition", "2.0", "--json"]).exits(5);
    assert_eq!(failed(&other), ["2.1.11"]);
}

/// A rule, and what breaks it on disk. The path is that of the second run.
type DiskFault = (&'static str, fn(&Dir, &str));

const FAULTS: &[DiskFault] = &[
    ("2.1.2", |dir, _| dir.write("s/notes/x", "")),
    ("2.1.1", |dir, _| fs::rename(dir.path("s/closed/acme"), dir.path("s/closed/ac me")).unwrap()),
    ("2.1.2", |dir, _| {
        // Not only code.
        dir.write("s/acme/code-0a/x.py", "");
        dir.write("s/acme/notes", "");
    }),
    ("2.1.5", |dir, _| fs::create_dir_all(dir.path("s/open/other")).unwrap()),
    ("2.1.7", |dir, _| dir.write("s/closed/acme/systems/box.txt", "")),
    ("2.1.7", |dir, _| dir.write("s/closed/acme/systems/sub/x", "")),
    ("2.1.8", |dir, _| fs::create_dir_all(dir.path("s/closed/acme/results/box2/training")).unwrap()),
    ("2.1.13", |dir, _| fs::create_dir(dir.path(&format!("s/{WORKLOAD}/datagen/20260720_140000"))).unwrap()),
    ("2.1.17", |dir, _| fs::create_dir(dir.path(&format!("s/{WORKLOAD}/run/20260720_154200"))).unwrap()),
    ("2.1.12", |dir, _| {
        let empty = format!("s/{SYSTEM}/training/retinanet");
        fs::create_dir_all(dir.path(&empty)).unwrap();
    }),
    ("2.1.5", |dir, _| fs::remove_dir_all(dir.path("s/closed/acme/code")).unwrap()),
    ("2.1.7", |dir, _| fs::remove_file(dir.path("s/closed/acme/systems/box.pdf")).unwrap()),
    ("2.1.10", |dir, _| fs::create_dir(dir.path(&format!("s/{SYSTEM}/notes"))).unwrap()),
    ("2.1.11", |dir, _| fs::create_dir(dir.path(&format!("s/{SYSTEM}/training/bert"))).unwrap()),
    ("2.1.12", |dir, _| fs::create_dir(dir.path(&format!("s/{WORKLOAD}/old"))).unwrap()),
    ("2.1.17", |dir, leaf| fs::remove_dir_all(dir.path(leaf).with_file_name("20260720_153600")).unwrap()),
    ("2.1.19", |dir, leaf| fs::remove_file(dir.path(&format!("{leaf}/dlio.log"))).unwrap()),
    ("2.1.20", |dir, leaf| dir.write(&format!("{leaf}/dlio_config/plan.json"), "")),
    ("2.1.20", |dir, leaf| dir.write(&format!("{leaf}/dlio_config/overrides.yaml"), "a: [")),
    ("leaf", |dir, leaf| dir.write(&format!("{leaf}/feedline/deep/summary.json"), "{}")),
    ("3.3.2", |dir, leaf| {
        let mut changed = summary(2);
        changed["metric"]["train_au_mean_percentage"] = json!(80);
        dir.write(&format!("{leaf}/summary.json"), changed.to_string());
    }),
];

#[test]
fn one_fault_on_disk_breaks_one_rule() {
    for (rule, fault) in FAULTS {
        let dir = submission();
        fault(&dir, &format!("s/{}", run_folder(2)));
        let found = failed(&check(&dir, &["s", "--json"]).exits(5));
        // A folder without results breaks the rules on what it should hold, too.
        let also: &[&str] = match *rule {
            "2.1.5" => &["2.1.8"],
            "2.1.8" => &["2.1.11"],
            "2.1.13" => &["2.1.14", "2.1.15"],
            "2.1.17" => &["2.1.18", "2.1.19", "2.1.20", "2.1.9", "3.3.1"],
            "2.1.11" | "2.1.12" => &["2.1.12", "2.1.13", "2.1.17"],
            _ => &[],
        };
        let other: Vec<_> =
            found.iter().filter(|one| *one != rule && !also.contains(&one.as_str())).collect();
        assert!(found.iter().any(|one| one == rule) && other.is_empty(), "{rule}: {found:?}");
    }
}

#[test]
fn damaged_documents_are_findings() {
    let large = |path: &Path| fs::File::create(path).unwrap().set_len(5 << 20).unwrap();
    let pipe = |path: &Path| {
        fs::remove_file(path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    };
    type Damage<'a> = &'a dyn Fn(&Path);
    let damage: [(&str, Damage<'_>); 7] = [
        ("is not JSON", &|path| fs::write(path, &summary(2).to_string()[..200]).unwrap()),
        ("is not JSON", &|path| fs::write(path, "").unwrap()),
        ("invalid UTF-8", &|path| fs::write(path, [0xff, 0xfe]).unwrap()),
        ("larger than 4 MiB", &large),
        ("has more than 2000000 values", &|path| {
            fs::write(path, format!("[{}0]", "0,".repeat(2_050_000))).unwrap();
        }),
        ("not a regular file", &pipe),
        ("is missing", &|path| fs::remove_file(path).unwrap()),
    ];
    for (expected, damage) in damage {
        let dir = submission();
        let leaf = format!("s/{}", run_folder(2));
        damage(&dir.path(&format!("{leaf}/summary.json")));
        let done = check(&dir, &["s"]).exits(5).silent();
        assert!(done.stdout.contains(expected), "no '{expected}' in {}", done.stdout);
        dir.feedline(&["mlperf", "table", "s"]).run().exits(0).prints("FAILED");
    }
    // DLIO writes NaN for a phase that did not happen; wrong types are not numbers.
    for value in ["NaN", "[1]", "\"x\"", "1e999"] {
        let dir = submission();
        let leaf = format!("s/{}", run_folder(2));
        let text = summary(2)
            .to_string()
            .replace("\"train_au_mean_percentage\":95.0", &format!("\"train_au_mean_percentage\":{value}"));
        dir.write(&format!("{leaf}/summary.json"), text);
        let done = check(&dir, &["s"]).silent();
        assert!([Some(0), Some(5)].contains(&done.code()), "{value}: {}", done.stdout);
        assert!(
            done.stdout.contains("3.3.2") || done.stdout.contains("is not JSON"),
            "{value}: {}",
            done.stdout
        );
    }
}

#[test]
fn files_of_mlpstorage_and_the_layout_of_round_3_are_accepted() {
    let dir = submission();
    for name in ["mlperf-results.yaml", "closed/acme/results/results.json", "closed/acme/notes.md"] {
        dir.write(&format!("s/{name}"), "");
    }
    dir.write(&format!("s/{SYSTEM}/results.csv"), "");
    // What mlpstorage's configview leaves is not a result.
    let config_view = format!("s/{WORKLOAD}/configview/20260720_145900");
    write_leaf(&dir, &config_view, "configview");
    dir.write(&format!("{config_view}/summary.json"), "{}");
    // Code of both divisions, next to them.
    dir.write("s/acme/code-0a/x.py", "");
    fs::remove_dir_all(dir.path("s/closed/acme/code")).unwrap();
    let done = check(&dir, &["s", "--json"]).exits(0);
    assert_eq!(done.json()["workloads"].as_array().unwrap().len(), 1);
    let places = check(&dir, &["s", "--all"]).exits(0).stdout;
    let root = format!("    {}: found: closed", fs::canonicalize(dir.path("s")).unwrap().display());
    assert!(places.contains(&root), "no '{root}' in {places}");
}

#[test]
fn a_result_with_too_many_files_is_not_searched() {
    let dir = submission();
    let leaf = format!("s/{}", run_folder(2));
    dir.write(&format!("{leaf}/a/summary.json"), "{}");
    fs::create_dir(dir.path(&format!("{leaf}/b"))).unwrap();
    for at in 0..=10_000 {
        fs::File::create(dir.path(&format!("{leaf}/b/{at}"))).unwrap();
    }
    check(&dir, &["s"]).exits(0).prints("not checkable: leaf oneSummary");
}

#[test]
fn a_folder_may_be_named_in_any_way() {
    let dir = submission();
    let run = run_folder(2);
    symlink(dir.path(&format!("s/{WORKLOAD}")), dir.path("link")).unwrap();
    for path in
        [format!("s/{run}/../.."), format!("s/{run}/.."), format!("s/{WORKLOAD}/run/"), "link".to_owned()]
    {
        let done = check(&dir, &[&path, "--json"]).exits(0);
        let json = done.json();
        let workload = &json["workloads"][0];
        assert_eq!((&workload["model"], &workload["system"]), (&json!("unet3d"), &json!("box")), "{path}");
        assert!(!done.stdout.contains("this is one result"), "{path}");
    }
}

#[test]
fn names_that_are_not_text_are_findings() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let dir = submission();
    let name = OsStr::from_bytes(b"\xff\xfe");
    fs::create_dir(dir.path(&format!("s/{WORKLOAD}/run")).join(name)).unwrap();
    fs::create_dir(dir.path(&format!("s/{SYSTEM}")).join(name)).unwrap();
    let done = check(&dir, &["s", "--json"]).exits(5);
    for rule in ["2.1.10", "2.1.17"] {
        assert!(failed(&done).contains(&rule.to_owned()), "{rule}: {}", done.stdout);
    }
}

#[test]
fn texts_of_others_cannot_forge_lines() {
    let dir = submission();
    let leaf = format!("s/{}", run_folder(2));
    let forged = "- workload=unet3d_b200\n- \"++workload.\\e[2J\\e[31mEVIL\\n  pass: 3.6.2=1\"\n";
    dir.write(&format!("{leaf}/dlio_config/overrides.yaml"), forged);
    fs::create_dir(dir.path(&format!("s/{WORKLOAD}/run/x\u{1b}[31m\nfake"))).unwrap();
    let done = check(&dir, &["s"]).exits(5);
    assert!(!done.stdout.contains('\u{1b}') && !done.stdout.contains("\nfake"), "{}", done.stdout);
    assert!(done.stdout.contains("EVIL\\n  pass: 3.6.2 may not be changed"), "{}", done.stdout);
    fs::rename(dir.path("s/closed/acme"), dir.path("s/closed/ac\u{1b}[2Jme")).unwrap();
    let table = dir.feedline(&["mlperf", "table", "s"]).run().exits(0);
    assert!(table.stdout.contains("ac\\u{1b}[2Jme"), "{}", table.stdout);
}

/// Results of mlpstorage of edition 2.0: without divisions, and checkpoints without an accelerator.
#[test]
fn the_workloads_of_a_system_are_of_one_edition() {
    let dir = Dir::new();
    let metadata = |model: &str, kind: &str, accelerator: Value| {
        json!({"benchmark_type": kind, "model": model, "command": "run", "accelerator": accelerator})
            .to_string()
    };
    let training = metadata("cosmoflow", "training", json!("h100"));
    let saving = metadata("llama3-8b", "checkpointing", Value::Null);
    dir.write("results/results/training/cosmoflow/run/20260720_150000/training_metadata.json", training);
    dir.write("results/results/checkpointing/llama3-8b/20260720_150000/checkpointing_metadata.json", saving);
    dir.write("results/results/results.csv", "");
    let done = check(&dir, &["results/results", "--json"]).exits(5);
    let json = done.json();
    for workload in json["workloads"].as_array().unwrap() {
        assert_eq!((&workload["edition"], &workload["system"]), (&json!("2.0"), &Value::Null), "{workload}");
    }
    assert_eq!(json["structure"], json!([]));
    // The same in a submission, where the folders have rules, too.
    fs::create_dir_all(dir.path("s/closed/acme/results")).unwrap();
    fs::rename(dir.path("results/results"), dir.path("s/closed/acme/results/box")).unwrap();
    let done = check(&dir, &["s", "--json"]).exits(5);
    assert!(!failed(&done).contains(&"2.1.11".to_owned()), "{}", done.stdout);
}

#[test]
fn links_are_followed_once() {
    let dir = submission();
    symlink(dir.path("s"), dir.path("s/closed/loop")).unwrap();
    symlink("nowhere", dir.path(&format!("s/{}/broken", run_folder(2)))).unwrap();
    let done = check(&dir, &["s", "--json"]).exits(0);
    assert_eq!(done.json()["workloads"].as_array().unwrap().len(), 1);
}

#[test]
fn a_folder_without_results_is_a_usage_error() {
    let dir = Dir::new();
    dir.write("empty/x/y", "");
    for (name, expected) in
        [("empty", "no results found"), ("none", "does not exist"), ("empty/x/y", "is a file")]
    {
        for command in ["check", "table"] {
            let done = dir.feedline(&["mlperf", command, name]).run().exits(2).one_error();
            assert!(done.stderr.contains(expected), "{}", done.stderr);
        }
    }
    check(&dir, &["empty", "--edition", "1.0"]).exits(2);
    check(&dir, &["empty", "--stall-timeout", "soon"]).exits(2);
    check(&dir, &["empty", "--division", "ajar"]).exits(2);
}

#[test]
fn results_of_dlio_alone_are_checked() {
    let dir = Dir::new();
    // A checkpoint run of MLCommons' DLIO without mlpstorage.
    let summary = json!({
        "start": "2026-11-15T20:55:34.587586", "num_accelerators": 2, "num_hosts": 1, "hostname": "vm",
        "metric": {
            "save_checkpoint_io_mean_GB_per_second": 0.41484, "save_checkpoint_duration_mean_seconds": 5.49294,
            "load_checkpoint_io_mean_GB_per_second": 1.98320, "load_checkpoint_duration_mean_seconds": 1.19072,
            "checkpoint_size_GB": 2.27670,
        },
        "num_files_train": 8, "num_files_eval": 0, "num_samples_per_file": 1, "host_cpu_count": [2],
        "host_memory_GB": [23.538], "epochs": 0, "end": "2026-11-15T20:55:56.677154",
    });
    dir.write("r/summary.json", summary.to_string());
    dir.write("r/dlio.log", "");
    let config = "workload:\n  model: {name: llama_small, type: transformer}\n  framework: pytorch\n  \
        workflow: {generate_data: false, train: false, checkpoint: true}\n  \
        checkpoint: {num_checkpoints_write: 3, num_checkpoints_read: 3, fsync: true}\n";
    write_config(&dir, "r", config, "- workload=llama_small\n");
    let done = check(&dir, &["r", "--json"]).exits(5);
    assert_eq!(failed(&done), ["2.1.25", "4.3.3", "4.6.2", "4.7.1"]);
    let table = dir.feedline(&["mlperf", "table", "r"]).run().exits(0).silent();
    for part in ["checkpointing", "llama_small", "2.28", "0.41", "5.49", "1.98", "1.19", "4 FAILED"] {
        assert!(table.stdout.contains(part), "no {part} in {}", table.stdout);
    }
}

/// DLIO without mlpstorage has its configuration where Hydra writes it by default.
#[test]
fn results_in_hydras_own_folder_are_understood() {
    let dir = Dir::new();
    let leaf = "hydra_log/unet3d/2026-07-20-15-26-22";
    write_leaf(&dir, leaf, "run");
    fs::rename(dir.path(&format!("{leaf}/dlio_config")), dir.path(&format!("{leaf}/.hydra"))).unwrap();
    fs::remove_file(dir.path(&format!("{leaf}/training_metadata.json"))).unwrap();
    dir.write(&format!("{leaf}/summary.json"), summary(1).to_string());
    let done = check(&dir, &["hydra_log", "--json"]).exits(5);
    let json = done.json();
    let workload = &json["workloads"][0];
    assert_eq!((&workload["model"], &workload["edition"]), (&json!("unet3d"), &json!("3.0")));
    assert_eq!(failed(&done), ["2.1.19", "2.1.20"]);
    assert!(done.stdout.contains("the configuration is in .hydra/"), "{}", done.stdout);
    // Without any configuration, the model is unknown; that is not a fault of the workload.
    fs::remove_dir_all(dir.path(&format!("{leaf}/.hydra"))).unwrap();
    let done = check(&dir, &[leaf, "--json"]).exits(5);
    assert_eq!(failed(&done), ["2.1.19", "2.1.20"]);
}

#[test]
fn the_same_finding_is_shown_once() {
    let dir = submission();
    for run in 1..=6 {
        fs::remove_file(dir.path(&format!("s/{}/fs_separation.json", run_folder(run)))).unwrap();
    }
    let done =
        check(&dir, &["s"]).exits(0).prints("run/20260720_150600 and 5 more: there is no fs_separation.json");
    assert_eq!(done.stdout.matches("3.4.2").count(), 1, "{}", done.stdout);
}

#[test]
fn results_of_feedline_have_its_verdict() {
    let dir = Dir::small();
    let args = ["run", "w.yaml", "--quiet", "--generate", "--no-calibration"];
    dir.feedline(&args).run().ran();
    let result = dir.result();
    let done = check(&dir, &[&result, "--all"]).exits(5).silent();
    for part in ["feedline made this result", "feedline verdict", "feedline's verdict is", "2.1.19 runFiles"]
    {
        assert!(done.stdout.contains(part), "no {part} in {}", done.stdout);
    }
}

#[test]
fn the_table_has_the_published_columns() {
    let dir = submission();
    let table = |args: &[&str]| dir.feedline(&["mlperf", "table", "s"]).args(args).run().exits(0).silent();
    let text = table(&[]).stdout;
    for part in
        ["training", "read GiB/s", "box", "acme", "closed", "unet3d", "b200", "1,911", "95.0", "4.00", "pass"]
    {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let row = table(&["--json"]).json()["rows"][0].clone();
    assert_eq!(
        (&row["read_gib_per_second"], &row["scored_runs"], &row["ranks"]),
        (&json!(4.0), &json!(5), &json!(4))
    );
    let csv = table(&["--csv"]).stdout;
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((lines.len(), lines[0].len(), lines[1].len()), (2, 18, 18), "{csv}");
    let field = |name: &str| lines[1][lines[0].iter().position(|column| *column == name).unwrap()];
    assert_eq!([field("organisation"), field("au_percent"), field("failed_rules")], ["acme", "95.0", "0"]);
    // A failed rule marks the row.
    fs::remove_file(dir.path(&format!("s/{}/dlio.log", run_folder(3)))).unwrap();
    table(&[]).prints("1 FAILED");
}

#[test]
fn sizes_are_printed_with_commands_to_paste() {
    let dir = Dir::new();
    let size = |args: &[&str]| dir.feedline(&["mlperf", "size"]).args(args).run().exits(0).silent();
    let text = size(&["unet3d_b200", "-n", "8", "--hosts", "2", "--host-memory", "256GiB"]).stdout;
    for part in [
        "28,000 files, decides",
        "3,823 GiB (4,104,817,584,000 bytes)",
        "feedline generate unet3d_b200 --set dataset.num_files_train=28000 --set dataset.num_subfolders_train=2",
        "mlpstorage closed training unet3d datagen file --num-processes 8",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let json = size(&["resnet50_h100", "-n", "8", "--host-memory", "64GiB", "--json"]).json();
    assert_eq!((&json["training"]["files"], &json["training"]["binding"]), (&json!(2396), &json!("memory")));
    let json =
        size(&["resnet50_h100", "-n", "8", "--host-memory", "64GiB", "--edition", "2.0", "--json"]).json();
    assert_eq!(json["training"]["files"], json!(2395), "{json}");
    let json = size(&["llama3_8b", "--json"]).json();
    assert_eq!(
        (&json["checkpoint"]["bytes"], &json["checkpoint"]["files"]),
        (&json!(112_425_623_552u64), &json!(16))
    );
    dir.feedline(&["mlperf", "size", "unet3d_b200", "--hosts", "0"]).run().exits(2).one_error();
    for memory in ["256", "0", "1MiB"] {
        let done = dir.feedline(&["mlperf", "size", "unet3d_b200", "--host-memory", memory]).run().exits(2);
        assert!(done.stderr.contains("give the unit, such as 256GiB"), "{}", done.stderr);
    }
}
