//! Reports on small result folders in the forms that DLIO's versions write.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

const CONFIG: &str = "\
workload:
  model: {name: tiny, type: cnn}
  framework: pytorch
  workflow: {train: true, evaluation: true, checkpoint: true}
  dataset: {data_folder: data, format: npz, num_files_train: 8, record_length_bytes: 1048576}
  reader: {batch_size: 2, batch_size_eval: 4}
";

fn write(folder: &TempDir, name: &str, text: &str) {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn write_json(folder: &TempDir, name: &str, value: &Value) {
    write(folder, name, &value.to_string());
}

/// Two ranks, two epochs of four steps, one checkpoint and one evaluation.
fn trained(statistics: &str, checkpoint: &str, configuration: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let phase = |from: &str, to: &str, more: Value| {
        let mut phase =
            json!({"start": format!("2026-11-17T10:00:{from}"), "end": format!("2026-11-17T10:00:{to}")});
        phase.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        phase
    };
    let epochs = json!({
        "1": {
            "start": "2026-11-17T10:00:00.500000",
            "block1": phase("00.500000", "04.500000", json!({"duration": "4.00"})),
            checkpoint: phase("04.500000", "05.500000", json!({"duration": 1.0, "throughput": 3.25})),
            "eval": phase("05.500000", "06.500000", json!({"duration": "1.00"})),
            "end": "2026-11-17T10:00:06.500000",
            "duration": "5.00",
        },
        "2": {
            "start": "2026-11-17T10:00:06.500000",
            "block1": phase("06.500000", "10.500000", json!({"duration": "4.00"})),
            "end": "2026-11-17T10:00:10.500000",
            "duration": "4.00",
        },
    });
    write_json(&folder, statistics, &epochs);
    let times = |load: f64| {
        json!({
            "1": {
                "load": {"block1": [load, load, load, load], "eval": [load, load]},
                "proc": {"block1": [1.0, 0.5, 0.25, 1.0], "eval": [0.5, 0.5]},
            },
            "2": {"load": {"block1": [load, load, load, load]}, "proc": {"block1": [1.0, 1.0, 1.0, 1.0]}},
        })
    };
    write_json(&folder, "0_output.json", &times(0.5));
    write_json(&folder, "1_output.json", &times(0.25));
    // DLIO writes NaN as it is.
    let summary = r#"{"hostname": "a NaN \" NaN", "metric": {"eval_au_mean_percentage": NaN, "bad": [-Infinity],
        "train_throughput_samples_per_second": [8.0, 4.0],
        "train_throughput_mean_samples_per_second": 6.0, "train_io_mean_MB_per_second": 12.0}}"#;
    write(&folder, "summary.json", summary);
    write(&folder, configuration, CONFIG);
    folder
}

fn flags(folder: &TempDir, more: &[&str]) -> PostprocessorFlags {
    let folder = folder.path().to_str().unwrap();
    let arguments = ["-of", folder].into_iter().chain(more.iter().copied());
    PostprocessorFlags::try_parse_from(arguments.map(|argument| spelled_out(OsStr::new(argument)))).unwrap()
}

fn text(folder: &TempDir, more: &[&str]) -> String {
    fs::read_to_string(report_on(&flags(folder, more)).unwrap()).unwrap()
}

/// The cells of the first row with this name after a heading.
fn row(text: &str, heading: &str, name: &str) -> Vec<String> {
    let below = text.split_once(heading).unwrap_or_else(|| panic!("no {heading} in\n{text}")).1;
    let line = below.lines().find_map(|line| line.trim_start().strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name} in\n{below}")).split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_report_has_the_figures_of_all_ranks() {
    let text = text(&trained("0_per_epoch_stats.json", "save_ckpt1", "dlio_config/config.yaml"), &[]);
    assert_eq!(row(&text, "Overall", "Run name:"), ["tiny"]);
    assert_eq!(row(&text, "Overall", "Started:"), ["2026-11-17", "10:00:00.500000"]);
    assert_eq!(row(&text, "Overall", "Duration (s):"), ["10.00"]);
    assert_eq!(row(&text, "Overall", "Num Ranks:"), ["2"]);
    assert_eq!(row(&text, "Overall", "Batch size (per rank):"), ["2"]);
    assert_eq!(row(&text, "Overall", "Eval batch size:"), ["4"]);
    // The run computed its I/O rate with samples of 2 MiB.
    assert_eq!(row(&text, "Overall", "Samples/s:"), ["6.00", "2.83", "4.00", "6.00", "7.60", "7.96", "8.00"]);
    assert_eq!(row(&text, "Overall", "MiB/s (derived from Samples/s):")[0], "12.00");
    assert_eq!(row(&text, "Block 1", "Avg loading time / rank (s):"), ["1.50"]);
    assert_eq!(row(&text, "Block 1", "Avg processing time / rank (s):"), ["2.75"]);
    assert_eq!(row(&text, "Block 1", "Samples/s:")[..3], ["8.00", "5.66", "4.00"]);
    assert_eq!(row(&text, "Eval 1", "Samples/s:")[0], "16.00");
    assert_eq!(row(&text, "Checkpoint 1 (save)", "Throughput (GiB/s):"), ["3.25"]);
    assert_eq!(row(&text, "Block 2", "Samples/s:")[0], "4.00");
    assert!(!text.contains("CPU Stats"), "{text}");
}

#[test]
fn files_of_earlier_versions_give_the_same_report() {
    let folder = trained("0_per_epoch_stats.json", "save_ckpt1", "dlio_config/config.yaml");
    let new = text(&folder, &[]);
    assert_eq!(text(&folder, &[]), new, "a second report replaces the first one");
    let old = text(&trained("per_epoch_stats.json", "ckpt1", ".hydra/config.yaml"), &[]);
    assert_eq!(old, new.replace("Checkpoint 1 (save)", "Checkpoint 1"));
}

#[test]
fn a_checkpoint_run_has_no_throughput_of_samples() {
    let folder = TempDir::new().unwrap();
    let (start, end) = ("2026-11-17T10:00:00", "2026-11-17T10:00:02.5");
    let span = json!({"start": start, "end": end, "duration": 2.5, "throughput": 4.0});
    let epochs = json!({"1": {"start": "2026-11-17T10:00:00", "save_ckpt1": span, "load_ckpt1": span,
        "end": "2026-11-17T10:00:06"}});
    write_json(&folder, "0_per_epoch_stats.json", &epochs);
    write_json(&folder, "0_output.json", &json!({"1": {"load": {}, "proc": {}}}));
    write_json(&folder, "summary.json", &json!({"metric": {"checkpoint_size_GB": 10.0}}));
    let report = text(&folder, &["-n", "llama", "-np=1"]);
    assert!(folder.path().join("DLIO_llama_report.txt").exists());
    assert_eq!(row(&report, "Epoch 1", "Duration (s):"), ["6.00"]);
    assert_eq!(row(&report, "Checkpoint 1 (save)", "Throughput (GiB/s):"), ["4.00"]);
    assert_eq!(row(&report, "Checkpoint 2 (load)", "Duration (s):"), ["2.50"]);
    assert!(!report.contains("Samples/s"), "{report}");
}

#[test]
fn disks_and_cpus_come_from_iostat() {
    let folder = trained("0_per_epoch_stats.json", "save_ckpt1", "dlio_config/config.yaml");
    let sample = |second: u64| {
        json!({
            "timestamp": format!("11/17/26 10:00:{second:02}"),
            "avg-cpu": {"user": second, "nice": 1, "system": 2.5, "iowait": 0, "steal": 0, "idle": 50},
            "disk": [{"disk_device": "nvme0n1", "r/s": 10, "w/s": 0, "rMB/s": second, "wMB/s": 0.5, "r_await": 1,
                "w_await": 1, "aqu-sz": 2}],
        })
    };
    let samples: Vec<Value> = (0..12).map(sample).collect();
    let trace = json!({"sysstat": {"hosts": [{"statistics": samples}]}});
    write_json(&folder, "iostat.json", &trace);
    let report = text(&folder, &[]);
    // Seconds 1 to 10 are in the run, 1 to 4 in the first block.
    assert_eq!(row(&report, "Device: nvme0n1", "R Bandwidth (MiB/s):")[0], "5.50");
    assert_eq!(row(&report, "CPU Stats", "User (%):")[0], "6.50");
    assert_eq!(row(&report, "Block 1", "R Bandwidth (MiB/s):")[0], "2.50");
    assert_eq!(row(&report, "Block 1", "R IOPS:")[0], "10.00");
    assert_eq!(row(&report, "Checkpoint 1", "R IOPS:")[0], "n/a");
}

#[test]
fn a_truncated_iostat_file_does_not_prevent_the_report() {
    let folder = trained("0_per_epoch_stats.json", "save_ckpt1", "dlio_config/config.yaml");
    write(&folder, "iostat.json", r#"{"sysstat": {"hosts": ["#);
    assert!(text(&folder, &[]).contains("Block 1"));
}

#[test]
fn a_folder_that_is_no_result_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let refused = |folder: &TempDir| format!("{:#}", report_on(&flags(folder, &[])).unwrap_err());
    assert!(refused(&folder).contains("has no summary.json"), "{}", refused(&folder));
    write(&folder, "summary.json", "{\"metric\": ");
    let broken = refused(&folder);
    assert!(broken.contains("summary.json is no JSON file"), "{broken}");
    assert!(broken.contains(folder.path().to_str().unwrap()), "{broken}");
    write(&folder, "summary.json", "[]");
    assert!(refused(&folder).contains("has no 0_output.json"), "{}", refused(&folder));
    write(&folder, "0_output.json", "{}");
    assert!(refused(&folder).contains("has no 0_per_epoch_stats.json"), "{}", refused(&folder));
}

#[test]
fn dlios_options_are_accepted() {
    let folder = trained("0_per_epoch_stats.json", "save_ckpt1", "settings/config.yaml");
    let given = [
        "-hf", "settings", "-np", "8", "-e", "2", "-bs=2", "-de", "True", "-bse", "4", "-c", "yes", "-d", "0",
    ];
    assert!(text(&folder, &given).contains("tiny"));
    let missing = report_on(&flags(&folder, &["-hf", "absent"])).unwrap_err();
    assert!(format!("{missing:#}").contains("absent/config.yaml does not exist"), "{missing:#}");
}
