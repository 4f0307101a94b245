//! Every rule holds for a good submission, and exactly one rule fails if one fact is changed.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A result folder whose documents can be changed before it is read.
#[derive(Clone)]
struct Draft {
    listing: LeafListing,
    kind: LeafKind,
    summary: Value,
    metadata: Value,
    config: Value,
    overrides: Vec<String>,
    separation: Value,
}

impl Draft {
    fn leaf(&self) -> MlperfLeaf {
        let text = |value: &Value| DocumentText::Text(value.to_string());
        let list: String = self.overrides.iter().map(|one| format!("- {one}\n")).collect();
        let input = LeafInput {
            summary: text(&self.summary),
            metadata: text(&self.metadata),
            // JSON is YAML.
            config: text(&json!({ "workload": self.config })),
            overrides: DocumentText::Text(list),
            separation: text(&self.separation),
            listing: self.listing.clone(),
        };
        MlperfLeaf::new(input, Some(self.kind))
    }
}

fn files(kind: LeafKind, name: &str) -> LeafListing {
    let (family, command) = match kind {
        LeafKind::Datagen => ("training", "datagen"),
        LeafKind::Run | LeafKind::Datasize => ("training", "run"),
        LeafKind::Checkpointing => ("checkpointing", "run"),
    };
    let mut files = vec![
        format!("{family}_{command}.stdout.log"),
        format!("{family}_{command}.stderr.log"),
        format!("{family}_{name}_metadata.json"),
        "dlio.log".to_owned(),
    ];
    if kind != LeafKind::Datagen {
        files.extend(["0_output.json", "0_per_epoch_stats.json", "summary.json"].map(str::to_owned));
    }
    LeafListing {
        folder: format!("/s/{command}/{name}"),
        files,
        folders: vec!["dlio_config".to_owned()],
        config_entries: Some(["config.yaml", "hydra.yaml", "overrides.yaml"].map(str::to_owned).to_vec()),
        nested_summaries: Some(Vec::new()),
    }
}

/// The values of unet3d_b200, whose core-config hash is published.
fn unet3d() -> Value {
    json!({
        "model": {"name": "unet3d", "type": "cnn", "model_size": 499_153_191},
        "framework": "pytorch",
        "workflow": {"generate_data": false, "train": true, "checkpoint": false},
        "dataset": {
            "format": "npz", "num_files_train": 14_000, "num_samples_per_file": 1,
            "record_length_bytes": 146_600_628, "record_length_bytes_stdev": 68_341_808,
            "record_length_bytes_resize": 2_097_152,
        },
        "reader": {
            "data_loader": "pytorch", "batch_size": 7, "read_threads": 4, "file_shuffle": "seed",
            "sample_shuffle": "seed",
        },
        "train": {"epochs": 5, "computation_time": 0.162},
        "checkpoint": {"checkpoint_folder": "c", "checkpoint_after_epoch": 5, "epochs_between_checkpoints": 2},
        "metric": {"au": 0.9},
    })
}

const CLASSES: [(&str, &str); 2] = [("unet3d_b200", "0d3ad0dec188becd"), ("llama3_8b", "68df04b7240e3fb0")];

fn training_draft(kind: LeafKind, minute: u32) -> Draft {
    let name = format!("20260720_15{minute:02}00");
    let summary = json!({
        "start": format!("2026-07-20T15:{minute:02}:05.5"),
        "end": format!("2026-07-20T15:{:02}:05.5", minute + 5),
        "num_accelerators": 4, "num_hosts": 1, "num_files_train": 14_000, "num_files_eval": 0,
        "num_samples_per_file": 1, "host_memory_GB": [64.0], "host_cpu_count": [8],
        "metric": {
            "train_au_mean_percentage": 95.0 - f64::from(minute) / 10.0, "train_au_meet_expectation": "success",
            "train_io_mean_MB_per_second": 1024.0 * f64::from(minute),
        },
    });
    let metadata = json!({
        "benchmark_type": "training", "model": "unet3d", "command": "run", "accelerator": "b200",
        "verification": "CLOSED",
        "args": {"mode": "closed", "hosts": ["a"], "data_dir": "/d", "results_dir": "/r", "num_processes": 4},
    });
    Draft {
        listing: files(kind, &name),
        kind,
        summary: if kind == LeafKind::Datagen { Value::Null } else { summary },
        metadata,
        config: unet3d(),
        overrides: [
            "workload=unet3d_b200",
            "++workload.dataset.num_files_train=14000",
            "++workload.dataset.skip_listing=True",
        ]
        .map(str::to_owned)
        .to_vec(),
        separation: json!({"same_filesystem": false}),
    }
}

/// A data generation and six runs.
fn training_drafts() -> Vec<Draft> {
    let mut drafts = vec![training_draft(LeafKind::Datagen, 0)];
    drafts.extend((1..=6).map(|run| training_draft(LeafKind::Run, 6 * run)));
    drafts
}

fn workload(drafts: &[Draft]) -> MlperfWorkload {
    let is_training = drafts.iter().any(|draft| draft.kind != LeafKind::Checkpointing);
    MlperfWorkload {
        folder: "/s".to_owned(),
        family: if is_training { WorkloadFamily::Training } else { WorkloadFamily::Checkpointing },
        is_whole: true,
        has_results_json: true,
        placed_in: Some(Division::Closed),
        folders: if is_training { vec!["datagen".to_owned(), "run".to_owned()] } else { Vec::new() },
        leaves: drafts.iter().map(Draft::leaf).collect(),
    }
}

fn llama() -> Value {
    json!({
        "model": {
            "name": "llama_8b", "type": "transformer", "num_layers": 32, "model_datatype": "fp16",
            "optimizer_datatype": "fp32", "parallelism": {"pipeline": 1, "tensor": 1, "zero_stage": 3},
            "transformer": {
                "vocab_size": 128_256, "hidden_size": 4096, "ffn_hidden_size": 14_336,
                "num_attention_heads": 32, "num_kv_heads": 8,
            },
        },
        "framework": "pytorch",
        "workflow": {"generate_data": false, "train": false, "checkpoint": true},
        "checkpoint": {
            "checkpoint_folder": "c", "time_between_checkpoints": 5, "num_checkpoints_write": 10,
            "num_checkpoints_read": 10, "fsync": true,
        },
    })
}

fn checkpoint_draft(second: u32, writes: u64, reads: u64) -> Draft {
    let mut config = llama();
    config["checkpoint"]["num_checkpoints_write"] = json!(writes);
    config["checkpoint"]["num_checkpoints_read"] = json!(reads);
    let mut metric = json!({"checkpoint_size_GB": 105.0});
    for (count, prefix, rate) in [(writes, "save", 2.0), (reads, "load", 4.0)] {
        if count > 0 {
            metric[format!("{prefix}_checkpoint_io_mean_GB_per_second")] = json!(rate);
            metric[format!("{prefix}_checkpoint_duration_mean_seconds")] = json!(105.0 / rate);
        }
    }
    let summary = json!({
        "start": format!("2026-07-18T01:00:{second:02}"), "end": format!("2026-07-18T01:00:{:02}", second + 20),
        "num_accelerators": 8, "num_hosts": 1, "num_files_train": 0, "host_memory_GB": [64.0], "host_cpu_count": [8],
        "metric": metric,
    });
    let metadata = json!({
        "benchmark_type": "checkpointing", "model": "llama3-8b", "command": "run", "accelerator": null,
        "args": {"mode": "closed", "checkpoint_folder": "/c", "results_dir": "/r", "num_processes": 8},
    });
    Draft {
        listing: files(LeafKind::Checkpointing, &format!("20260718_0100{second:02}")),
        kind: LeafKind::Checkpointing,
        summary,
        metadata,
        config,
        overrides: vec![
            "workload=llama3_8b".to_owned(),
            format!("++workload.checkpoint.num_checkpoints_write={writes}"),
            format!("++workload.checkpoint.num_checkpoints_read={reads}"),
            "++workload.checkpoint.checkpoint_folder=c".to_owned(),
        ],
        separation: json!({"same_filesystem": false}),
    }
}

fn case(model: &str, edition: Edition, division: Division) -> MlperfCase<'_> {
    MlperfCase { edition, division, model, classes: &CLASSES }
}

/// Rules with this outcome, each once.
fn rules_with(findings: &[MlperfFinding], outcome: MlperfOutcome) -> Vec<&'static str> {
    let mut rules: Vec<&str> =
        findings.iter().filter(|finding| finding.outcome == outcome).map(|finding| finding.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

fn failed(drafts: &[Draft], case: &MlperfCase<'_>) -> Vec<&'static str> {
    let findings = workload(drafts).check(case);
    for finding in &findings {
        let advises = matches!(finding.outcome, MlperfOutcome::Fail | MlperfOutcome::Warning);
        assert_eq!(finding.remedy.is_some(), advises, "{finding:?}");
        assert!(!finding.evidence.is_empty(), "{finding:?}");
    }
    rules_with(&findings, MlperfOutcome::Fail)
}

const CLOSED_V3: MlperfCase<'static> =
    MlperfCase { edition: Edition::V3, division: Division::Closed, model: "unet3d", classes: &CLASSES };

#[test]
fn a_good_training_submission_keeps_every_rule() {
    let findings = workload(&training_drafts()).check(&CLOSED_V3);
    let odd: Vec<_> = findings.iter().filter(|finding| finding.outcome != MlperfOutcome::Pass).collect();
    // The code and the use of datasize cannot be seen here.
    assert_eq!(rules_with(&findings, MlperfOutcome::NotCheckable), ["3.1.1", "3.6.1"], "{odd:#?}");
    assert_eq!(odd.len(), 2, "{odd:#?}");
    assert!(rules_with(&findings, MlperfOutcome::Pass).len() >= 18, "{findings:#?}");
}

/// A rule, and the change to the second run, or to all results, that breaks it.
type Fault = (&'static str, fn(&mut Vec<Draft>));

const TRAINING_FAULTS: &[Fault] = &[
    ("2.1.9", |drafts| drafts[2].summary["host_cpu_count"] = json!([9])),
    ("2.1.11", |drafts| drafts.iter_mut().for_each(|draft| draft.metadata["accelerator"] = json!("h100"))),
    ("2.1.13", |drafts| {
        drafts.push(Draft { listing: files(LeafKind::Datagen, "20260720_140000"), ..drafts[0].clone() });
    }),
    ("2.1.14", |drafts| drafts[0].listing.files.retain(|name| !name.ends_with("stderr.log"))),
    ("2.1.15", |drafts| drafts[0].listing.config_entries = None),
    ("2.1.17", |drafts| drop(drafts.pop())),
    ("2.1.17", |drafts| drafts.push(training_draft(LeafKind::Run, 42))),
    ("2.1.18", |drafts| drafts[2].summary["end"] = json!("2026-07-20T15:14:00")),
    ("2.1.18", |drafts| drafts[2].summary["start"] = json!("2026-07-20T15:12:05Z")),
    ("2.1.18", |drafts| drafts[2].summary = drafts[1].summary.clone()),
    ("2.1.18", |drafts| {
        // Later runs of an earlier day.
        drafts[6].summary["start"] = json!("2026-07-20T16:36:05");
        drafts[6].summary["end"] = json!("2026-07-20T16:41:05");
    }),
    ("2.1.19", |drafts| drafts[2].listing.files.retain(|name| name != "dlio.log")),
    ("2.1.20", |drafts| drafts[2].listing.config_entries.as_mut().unwrap().push("plan.json".to_owned())),
    ("2.1.11", |drafts| drafts[2].metadata["model"] = json!("retinanet")),
    ("2.1.11", |drafts| drafts[2].metadata["args"]["model"] = json!("retinanet")),
    ("2.1.11", |drafts| drafts[2].overrides.push("workload=retinanet_b200".to_owned())),
    ("mlpstorage", |drafts| drafts[2].metadata["verification"] = json!("INVALID")),
    ("mlpstorage", |drafts| drafts[2].metadata["verification"] = json!("invalid")),
    ("mlpstorage", |drafts| drafts[2].metadata["args"]["mode"] = json!("open")),
    ("mlpstorage", |drafts| drafts[2].metadata["args"]["mode"] = json!("whatif")),
    ("2.1.20", |drafts| drafts[2].overrides.push("{++workload.reader.batch_size: 1}".to_owned())),
    ("2.1.20", |drafts| drafts[2].overrides.push("++workload.reader={batch_size: 1}".to_owned())),
    ("2.1.20", |drafts| drop(drafts[2].overrides.remove(0))),
    ("2.1.20", |drafts| drop(drafts[2].listing.config_entries.as_mut().unwrap().remove(1))),
    ("leaf", |drafts| {
        drafts[2].listing.nested_summaries.as_mut().unwrap().push("feedline/summary.json".to_owned());
    }),
    ("leaf", |drafts| drafts[2].listing.files.push("metadata.txt".to_owned())),
    ("3.1.2", |drafts| drafts[2].summary["host_memory_GB"] = json!([512.0])),
    ("3.2.1", |drafts| drafts[0].config["dataset"]["num_files_train"] = json!(13_999)),
    ("3.3.1", |drafts| drafts[2].config["dataset"]["num_subfolders_train"] = json!(2)),
    ("3.3.1", |drafts| drafts[2].summary["num_files_eval"] = Value::Null),
    ("3.3.2", |drafts| drafts[2].summary["metric"]["train_au_mean_percentage"] = json!(89.99)),
    ("3.3.2", |drafts| drafts[2].summary["metric"]["train_au_meet_expectation"] = json!("fail")),
    ("3.3.2", |drafts| drafts[2].summary["metric"]["train_au_meet_expectation"] = json!("Success!")),
    ("3.3.2", |drafts| {
        let metric = &mut drafts[2].summary["metric"];
        metric["train_au_meet_expectation"] = Value::Null;
        metric["train_au_mean_percentage"] = json!(50.0);
    }),
    ("3.3.4", |drafts| drafts[2].metadata["args"]["hosts"] = json!(["a", "b"])),
    ("3.4.1", |drafts| drafts[2].metadata["args"]["data_dir"] = json!("/r")),
    ("3.4.1", |drafts| drafts[2].metadata["args"]["data_dir"] = json!("/r//")),
    ("3.4.1", |drafts| drafts[2].metadata["args"]["data_dir"] = Value::Null),
    ("3.4.2", |drafts| drafts[2].separation["same_filesystem"] = json!(true)),
    ("3.6.2", |drafts| drafts[2].overrides.push("++workload.reader.batch_size=7".to_owned())),
    ("3.6.2", |drafts| drafts[2].overrides.push("++workload.reader.data_loader=pytorch".to_owned())),
    ("3.6.2", |drafts| drafts[2].overrides.push("++workload.reader.prefetch_size=3".to_owned())),
    ("3.6.2", |drafts| drafts[2].metadata["override_parameters"] = json!({"reader.batch_size": "7"})),
    ("EDN", |drafts| drafts[2].config["train"]["computation_time"] = json!(0.1)),
    ("feedline", |drafts| drafts[2].summary["feedline"] = json!({"verdict": {"status": "invalid"}})),
];

#[test]
fn one_fault_breaks_one_rule_of_training() {
    for (at, (rule, change)) in TRAINING_FAULTS.iter().enumerate() {
        let mut drafts = training_drafts();
        change(&mut drafts);
        let found = failed(&drafts, &CLOSED_V3);
        // With more memory, the generated files do not suffice either; and of too few, more are read than there are.
        let also: &[&str] = match *rule {
            "3.1.2" => &["3.2.1"],
            "3.2.1" => &["3.3.1"],
            _ => &[],
        };
        let other: Vec<_> = found.iter().filter(|one| *one != rule && !also.contains(one)).collect();
        assert!(found.contains(rule) && other.is_empty(), "fault {at}, {rule}: {found:?}");
    }
}

/// A change to the second run after which a rule cannot be checked, but does not fail.
const TRAINING_GAPS: &[Fault] = &[
    ("3.1.2", |drafts| drafts[2].summary["host_memory_GB"] = Value::Null),
    ("3.2.1", |drafts| drafts[2].summary["host_memory_GB"] = Value::Null),
    ("3.1.2", |drafts| drafts[2].summary["host_memory_GB"] = json!([0])),
    ("3.1.2", |drafts| drafts[2].summary["host_memory_GB"] = json!([-500])),
    ("3.3.2", |drafts| drafts[2].summary["metric"]["train_au_meet_expectation"] = Value::Null),
    ("leaf", |drafts| drafts[2].listing.nested_summaries = None),
];

#[test]
fn what_the_documents_do_not_say_does_not_pass() {
    for (at, (rule, change)) in TRAINING_GAPS.iter().enumerate() {
        let mut drafts = training_drafts();
        change(&mut drafts);
        let findings = workload(&drafts).check(&CLOSED_V3);
        assert!(rules_with(&findings, MlperfOutcome::Fail).is_empty(), "change {at}, {rule}: {findings:#?}");
        assert!(rules_with(&findings, MlperfOutcome::NotCheckable).contains(rule), "change {at}, {rule}");
    }
}

#[test]
fn results_belong_to_the_division_of_their_folder_only() {
    let mut drafts = training_drafts();
    drafts.iter_mut().for_each(|draft| draft.metadata["args"]["mode"] = json!("open"));
    let outside = MlperfWorkload { placed_in: None, ..workload(&drafts) };
    assert!(rules_with(&outside.check(&CLOSED_V3), MlperfOutcome::Fail).is_empty());
    assert_eq!(failed(&drafts, &CLOSED_V3), ["mlpstorage"]);
}

#[test]
fn a_zone_of_its_own_is_accepted_for_the_clock_of_dlio() {
    let mut drafts = training_drafts();
    for draft in &mut drafts[1..] {
        for key in ["start", "end"] {
            let text = draft.summary[key].as_str().unwrap().replace("T15", "T13");
            draft.summary[key] = json!(text);
        }
    }
    assert_eq!(failed(&drafts, &CLOSED_V3), [""; 0]);
}

#[test]
fn hosts_must_have_the_same_number_of_accelerators() {
    let mut drafts = training_drafts();
    for draft in &mut drafts[1..] {
        draft.summary["num_hosts"] = json!(3);
        draft.summary["host_memory_GB"] = json!([16.0, 16.0, 16.0]);
    }
    assert_eq!(failed(&drafts, &CLOSED_V3), ["3.3.6"]);
}

#[test]
fn few_accelerators_and_results_of_other_programs_are_warnings() {
    let mut drafts = training_drafts();
    for draft in &mut drafts[1..] {
        draft.summary["num_accelerators"] = json!(2);
        draft.summary["feedline"] = json!({"verdict": {"status": "valid"}});
    }
    let findings = MlperfWorkload { has_results_json: false, ..workload(&drafts) }.check(&CLOSED_V3);
    assert_eq!(rules_with(&findings, MlperfOutcome::Warning), ["1.1", "2.1.16", "3.3.3"]);
    assert!(rules_with(&findings, MlperfOutcome::Fail).is_empty());
}

#[test]
fn open_and_the_earlier_edition_have_rules_of_their_own() {
    let mut drafts = training_drafts();
    drafts[2].overrides.push("++workload.reader.data_loader=pytorch".to_owned());
    assert_eq!(failed(&drafts, &case("unet3d", Edition::V3, Division::Open)), [""; 0]);
    drafts[2].overrides.push("++workload.reader.batch_size=7".to_owned());
    assert_eq!(failed(&drafts, &case("unet3d", Edition::V3, Division::Open)), ["3.6.3"]);
    // Edition 2.0 has no published hashes.
    let mut drafts = training_drafts();
    drafts[2].config["train"]["computation_time"] = json!(0.1);
    assert_eq!(failed(&drafts, &case("unet3d", Edition::V2, Division::Closed)), ["2.1.11"]);
    // B200 is not scored in edition 2.0.
    assert_eq!(failed(&training_drafts(), &case("unet3d", Edition::V2, Division::Closed)), ["2.1.11"]);
    let mut drafts = training_drafts();
    for draft in &mut drafts {
        draft.overrides.push("++workload.reader.odirect=True".to_owned());
    }
    assert_eq!(failed(&drafts, &CLOSED_V3), [""; 0]);
    assert!(failed(&drafts, &case("retinanet", Edition::V3, Division::Closed)).contains(&"3.6.2"));
}

#[test]
fn one_result_alone_keeps_the_rules_on_one_result() {
    let mut alone = workload(&[training_draft(LeafKind::Run, 6)]);
    alone.is_whole = false;
    let findings = alone.check(&CLOSED_V3);
    assert!(rules_with(&findings, MlperfOutcome::Fail).is_empty(), "{findings:#?}");
    assert!(rules_with(&findings, MlperfOutcome::NotCheckable).contains(&"2.1.17"));
    let mut alone = workload(&[checkpoint_draft(0, 10, 0)]);
    alone.is_whole = false;
    let findings = alone.check(&case("llama3-8b", Edition::V3, Division::Closed));
    assert!(rules_with(&findings, MlperfOutcome::NotCheckable).contains(&"4.7.1"), "{findings:#?}");
}

#[test]
fn a_good_checkpoint_submission_keeps_every_rule() {
    let case = case("llama3-8b", Edition::V3, Division::Closed);
    for drafts in
        [vec![checkpoint_draft(0, 10, 10)], vec![checkpoint_draft(0, 10, 0), checkpoint_draft(30, 0, 10)]]
    {
        let findings = workload(&drafts).check(&case);
        let odd: Vec<_> = findings.iter().filter(|finding| finding.outcome != MlperfOutcome::Pass).collect();
        assert!(odd.is_empty(), "{odd:#?}");
        assert!(rules_with(&findings, MlperfOutcome::Pass).len() >= 15, "{findings:#?}");
    }
}

const CHECKPOINT_FAULTS: &[Fault] = &[
    ("2.1.9", |drafts| drafts[1].summary["num_files_train"] = json!(9)),
    ("2.1.21", |drafts| drafts[1].metadata["args"]["model"] = json!("llama3-70b")),
    ("2.1.24", |drafts| {
        // 20 s of writing and reading with 20 s between them.
        drafts[1].summary["start"] = json!("2026-07-18T01:00:40");
        drafts[1].summary["end"] = json!("2026-07-18T01:01:00");
    }),
    ("4.3.3", |drafts| drafts[0].config["model"]["num_layers"] = json!(2)),
    ("4.3.3", |drafts| drafts[0].summary["metric"]["checkpoint_size_GB"] = json!(0.1)),
    ("4.3.3", |drafts| drafts[0].config["model"]["transformer"]["hidden_size"] = json!(512)),
    ("4.3.3", |drafts| drafts[0].config["model"]["parallelism"]["tensor"] = Value::Null),
    ("2.1.25", |drafts| drafts[0].listing.files.retain(|name| name != "0_output.json")),
    ("2.1.26", |drafts| drafts[0].listing.config_entries.as_mut().unwrap().push("x".to_owned())),
    ("4.3.2", |drafts| drafts[1].config["checkpoint"]["fsync"] = json!(false)),
    ("4.3.4", |drafts| drafts[0].summary["metric"]["checkpoint_size_GB"] = json!(1441.0)),
    ("4.4.1", |drafts| drafts[0].metadata["args"]["checkpoint_folder"] = json!("/r")),
    ("4.4.2", |drafts| drafts[0].separation["same_filesystem"] = json!(true)),
    ("4.6.3", |drafts| drafts[0].overrides.push("++workload.checkpoint.fsync=true".to_owned())),
    ("4.7.1", |drafts| {
        drafts[1].summary["start"] = json!("2026-07-18T01:00:51");
        drafts[1].summary["end"] = json!("2026-07-18T01:01:50");
    }),
    ("4.7.1", |drafts| drafts[1].summary["start"] = json!("2026-07-18T01:00:10")),
    ("4.7.1", |drafts| drafts[1].config["checkpoint"]["num_checkpoints_read"] = json!(9)),
    ("4.7.1", |drafts| drop(drafts.pop())),
];

#[test]
fn one_fault_breaks_one_rule_of_checkpointing() {
    let case = case("llama3-8b", Edition::V3, Division::Closed);
    for (at, (rule, change)) in CHECKPOINT_FAULTS.iter().enumerate() {
        let mut drafts = vec![checkpoint_draft(0, 10, 0), checkpoint_draft(30, 0, 10)];
        change(&mut drafts);
        let found = failed(&drafts, &case);
        // A configuration without fsync, or of another model, is also another one than the published.
        // And a checkpoint that is too large for the accelerators is not that of the model.
        let also: &[&str] = match *rule {
            "4.3.2" | "4.3.3" => &["EDN"],
            "4.3.4" => &["4.3.3"],
            _ => &[],
        };
        let other: Vec<_> = found.iter().filter(|one| *one != rule && !also.contains(one)).collect();
        assert!(found.contains(rule) && other.is_empty(), "fault {at}, {rule}: {found:?}");
    }
}

#[test]
fn writing_may_take_much_longer_than_reading() {
    let mut drafts = vec![checkpoint_draft(0, 10, 0), checkpoint_draft(30, 0, 10)];
    // The times of a published submission.
    for (draft, [name, start, end]) in drafts.iter_mut().zip([
        ["20260718_012411", "2026-07-18T01:24:16.352638", "2026-07-18T01:31:12.220148"],
        ["20260718_013114", "2026-07-18T01:31:21.222451", "2026-07-18T01:34:39.071939"],
    ]) {
        draft.listing = files(LeafKind::Checkpointing, name);
        (draft.summary["start"], draft.summary["end"]) = (json!(start), json!(end));
    }
    assert_eq!(failed(&drafts, &case("llama3-8b", Edition::V3, Division::Closed)), [""; 0]);
}

#[test]
fn open_keeps_the_model() {
    let mut drafts = vec![checkpoint_draft(0, 10, 10)];
    drafts[0].metadata["args"]["mode"] = json!("open");
    let open = case("llama3-8b", Edition::V3, Division::Open);
    let findings = |drafts: &[Draft]| {
        MlperfWorkload { placed_in: Some(Division::Open), ..workload(drafts) }.check(&open)
    };
    assert!(rules_with(&findings(&drafts), MlperfOutcome::Fail).is_empty());
    drafts[0].config["model"]["num_layers"] = json!(2);
    assert_eq!(rules_with(&findings(&drafts), MlperfOutcome::Fail), ["4.3.3"]);
    drafts[0].config["model"] = json!({"name": "llama_8b"});
    assert!(rules_with(&findings(&drafts), MlperfOutcome::NotCheckable).contains(&"4.3.3"));
}

#[test]
fn processes_follow_division_and_edition() {
    let run = |model: &str, ranks: u64, hosts: u64, subset: bool| {
        let mut draft = checkpoint_draft(0, 10, 10);
        draft.metadata["model"] = json!(model);
        draft.overrides[0] = format!("workload={}", model.replace('-', "_"));
        if let Some(model) = llama_model(model) {
            let shape = &mut draft.config["model"];
            shape["num_layers"] = json!(model.layers);
            shape["transformer"]["hidden_size"] = json!(model.hidden);
            shape["transformer"]["ffn_hidden_size"] = json!(model.ffn_hidden);
            let (tensor, pipeline, zero_stage) = (model.tensor, model.pipeline, model.zero_stage);
            shape["parallelism"] = json!({"tensor": tensor, "pipeline": pipeline, "zero_stage": zero_stage});
        }
        draft.summary["num_accelerators"] = json!(ranks);
        draft.summary["num_hosts"] = json!(hosts);
        draft.summary["host_memory_GB"] = json!(vec![64.0; hosts as usize]);
        if let Some(model) = llama_model(model).filter(|_| !subset) {
            draft.summary["metric"]["checkpoint_size_GB"] = json!(model.model_gib + model.optimizer_gib);
        }
        if subset {
            draft.overrides.push("++workload.checkpoint.mode=subset".to_owned());
        }
        vec![draft]
    };
    let (v2, v3, closed, open) = (Edition::V2, Edition::V3, Division::Closed, Division::Open);
    for (model, (ranks, hosts, subset), edition, division, expected) in [
        ("llama3-8b", (8, 2, false), v3, closed, &["4.6.2"] as &[&str]),
        ("llama3-8b", (16, 1, false), v3, closed, &["4.6.1"]),
        ("llama3-8b", (16, 1, false), v3, open, &[]),
        ("llama3-8b", (12, 1, false), v3, open, &["4.6.4"]),
        ("llama3-8b", (8, 1, true), v3, closed, &[]),
        ("llama3-8b", (8, 1, true), v2, closed, &["4.3.5"]),
        ("llama3-70b", (8, 1, true), v3, closed, &["4.3.5", "4.6.1"]),
        ("llama3-70b", (8, 1, true), v2, closed, &[]),
        ("llama3-70b", (64, 8, false), v3, closed, &[]),
        ("llama3-7b", (8, 1, false), v3, closed, &["4.3.3"]),
    ] {
        assert_eq!(
            failed(&run(model, ranks, hosts, subset), &case(model, edition, division)),
            expected,
            "{model} {edition} {division}"
        );
    }
}

#[test]
fn a_flush_is_advised_if_memory_could_hold_the_checkpoints() {
    let mut drafts = vec![checkpoint_draft(0, 10, 10)];
    drafts[0].summary["host_memory_GB"] = json!([400.0]);
    let findings = workload(&drafts).check(&case("llama3-8b", Edition::V3, Division::Closed));
    assert_eq!(rules_with(&findings, MlperfOutcome::Warning), ["4.3.1"]);
    let mut split = vec![checkpoint_draft(0, 10, 0), checkpoint_draft(30, 0, 10)];
    split.iter_mut().for_each(|draft| draft.summary["host_memory_GB"] = json!([400.0]));
    let findings = workload(&split).check(&case("llama3-8b", Edition::V3, Division::Closed));
    assert!(rules_with(&findings, MlperfOutcome::Warning).is_empty());
    let ratio = findings.iter().find(|finding| finding.rule == "4.3.1").unwrap();
    assert!(
        ratio.evidence.ends_with("two invocations, so that the cache can be cleared between them"),
        "{ratio:?}"
    );
}

#[test]
fn the_row_leaves_out_the_warm_up() {
    let row = workload(&training_drafts()).row().unwrap();
    let RowFigures::Training(figures) = &row.figures else { panic!("{row:?}") };
    // Runs 2 to 6, at minutes 12 to 36.
    assert_eq!((row.scored_runs, figures.read_gib_per_second), (5, Some(24.0)));
    assert!((figures.au_percent.unwrap() - 92.6).abs() < 1e-9, "{figures:?}");
    assert_eq!((row.hosts, row.ranks, row.accelerator.as_deref()), (Some(1), Some(4), Some("b200")));
    let split = workload(&[checkpoint_draft(0, 10, 0), checkpoint_draft(30, 0, 10)]).row().unwrap();
    let RowFigures::Checkpointing(figures) = split.figures else { panic!("{split:?}") };
    assert_eq!((figures.write_gib_per_second, figures.read_gib_per_second), (Some(2.0), Some(4.0)));
    assert_eq!(figures.checkpoint_gib, Some(105.0));
}

/// Any JSON, also at the places where rules expect numbers and lists.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(|flag| json!(flag)),
        any::<i64>().prop_map(|number| json!(number)),
        any::<f64>().prop_map(|number| json!(number)),
        "[ -~]{0,12}".prop_map(|text| json!(text)),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((any_key(), inner), 0..4).prop_map(|pairs| pairs.into_iter().collect()),
        ]
    })
}

fn any_key() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "metric",
        "args",
        "hosts",
        "host_memory_GB",
        "num_hosts",
        "checkpoint",
        "parameters",
        "feedline",
        "model",
        "num_accelerators",
        "override_parameters",
        "dataset",
        "reader",
        "batch_size",
        "start",
    ])
    .prop_map(str::to_owned)
}

proptest! {
    /// No document makes a rule panic, and every rule still reports.
    #[test]
    fn any_value_anywhere_is_judged(key in any_key(), value in any_json(), which in 0..4usize, text in "\\PC{0,60}") {
        let mut drafts = training_drafts();
        drafts.push(checkpoint_draft(0, 10, 10));
        for draft in &mut drafts {
            match which {
                0 if draft.summary.is_object() => draft.summary[&key] = value.clone(),
                1 => draft.metadata[&key] = value.clone(),
                2 => draft.config[&key] = value.clone(),
                _ => draft.overrides.push(format!("'{}'", text.replace('\'', ""))),
            }
        }
        for division in [Division::Closed, Division::Open] {
            let whole = workload(&drafts);
            prop_assert!(whole.check(&case("unet3d", Edition::V3, division)).len() > 50);
            let _ = whole.row();
        }
        let [summary, config] = [text.clone(), text].map(DocumentText::Text);
        let raw = LeafInput { summary, config, ..LeafInput::default() };
        let alone = MlperfWorkload { leaves: vec![MlperfLeaf::new(raw, None)], is_whole: false, ..workload(&drafts) };
        prop_assert!(!alone.check(&CLOSED_V3).is_empty());
    }
}
