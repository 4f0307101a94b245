//! Workload files of all DLIO versions and MLPerf Storage rounds: each form is planned with the meaning that DLIO gives
//! it. `scripts/workload-history` plans the files themselves.

use serde_json::{Value, json};

use crate::util::Dir;

/// A training workload; rows append to it or replace parts of it.
const TRAIN: &str = "\
framework: pytorch
dataset: {format: npz, num_files_train: 100, num_files_eval: 8, record_length_bytes: 4096}
reader: {data_loader: pytorch}
";
/// A workload that only saves checkpoints.
const SAVE: &str = "\
framework: pytorch
workflow: {train: false, checkpoint: true}
";

/// One form: its name, the text, values in the plan, and a part of the warning that it causes.
struct Form<'a> {
    name: &'a str,
    text: String,
    plan: &'a [(&'a str, Value)],
    warning: &'a str,
}

fn check(forms: Vec<Form<'_>>) {
    let dir = Dir::new();
    for Form { name, text, plan, warning } in forms {
        dir.write("w.yaml", &text);
        let done = dir.feedline(&["plan", "w.yaml", "--json"]).run().exits(0);
        let planned = done.json();
        for (pointer, value) in plan {
            assert_eq!(planned.pointer(pointer), Some(value), "{name}: {pointer}");
        }
        let warnings: Vec<&str> =
            planned["warnings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        match warning {
            "" => assert!(warnings.is_empty(), "{name}: {warnings:?}"),
            part => assert!(warnings.iter().any(|warning| warning.contains(part)), "{name}: {warnings:?}"),
        }
    }
}

fn form<'a>(name: &'a str, text: String, plan: &'a [(&'a str, Value)], warning: &'a str) -> Form<'a> {
    Form { name, text, plan, warning }
}

/// Keys that have another name or place today.
#[test]
fn a_key_of_an_earlier_version_has_the_meaning_that_it_had() {
    let save = |section: &str| format!("{SAVE}{section}");
    check(vec![
        form("model as a word", format!("model: unet3d\n{TRAIN}"), &[("/model", json!("unet3d"))], ""),
        form(
            "model as a word, next to checkpoint.model_size",
            save("model: bert\ncheckpoint: {model_size: 1048576, num_checkpoints_write: 1}\n"),
            &[("/checkpoint/geometry/flat_bytes", json!(1_048_576)), ("/model", json!("bert"))],
            "'checkpoint.model_size' at w.yaml:4:14 is read as 'model.model_size_bytes'",
        ),
        form(
            "dataset.batch_size",
            TRAIN.replace("4096}", "4096, batch_size: 4}"),
            &[("/train/shards/batch", json!(4))],
            "is read as 'reader.batch_size'",
        ),
        form(
            "section data_loader",
            TRAIN.replace("reader: {data_loader: pytorch}", "data_loader: {batch_size: 5, read_threads: 3}"),
            &[("/train/shards/batch", json!(5)), ("/loader/readers_per_rank", json!(3))],
            "",
        ),
        form(
            "num_checkpoints",
            save("model: {model_size: 100}\ncheckpoint: {num_checkpoints: 7}\n"),
            &[("/checkpoint/schedule/alone/saves", json!(7))],
            "is read as 'checkpoint.num_checkpoints_write'",
        ),
        form(
            "parallelism below checkpoint",
            save("checkpoint: {tensor_parallelism: 4, pipeline_parallelism: 2, num_checkpoints_write: 1}\n"),
            &[("/checkpoint/geometry/tensor", json!(4)), ("/ranks", json!(8))],
            "is read as 'model.parallelism.tensor'",
        ),
        form(
            "evaluation below train, given twice",
            format!("{TRAIN}workflow: {{evaluation: true}}\ntrain: {{do_eval: true, eval_after_epoch: 3}}\n"),
            &[("/eval/first_epoch", json!(3))],
            "'train.eval_after_epoch' at w.yaml:5:24 is read as 'evaluation.eval_after_epoch'",
        ),
        form(
            "composed by Hydra",
            format!("workload:\n  {}", TRAIN.trim_end().replace('\n', "\n  ")),
            &[],
            "",
        ),
    ]);
}

/// Values that have another name today, or a range that DLIO accepted.
#[test]
fn a_value_of_an_earlier_version_has_the_meaning_that_it_had() {
    check(vec![
        form(
            "epochs_between_evals 0, no evaluation",
            format!("{TRAIN}evaluation: {{epochs_between_evals: 0}}\n"),
            &[("/eval", Value::Null)],
            "",
        ),
        form(
            "epochs_between_evals 0 evaluates after every epoch",
            format!("{TRAIN}workflow: {{evaluation: true}}\nevaluation: {{epochs_between_evals: 0}}\n"),
            &[("/eval/every_epochs", json!(1))],
            "",
        ),
        form(
            "format and loader of the branch with native loaders",
            TRAIN.replace("npz", "dlio_npz").replace(": pytorch}", ": dlio_pytorch}"),
            &[("/format", json!("npz")), ("/loader/discipline", json!("pytorch"))],
            "",
        ),
        form(
            "recovery_rank_shift as a number",
            format!("{SAVE}checkpoint: {{recovery_rank_shift: 8, num_checkpoints_write: 1}}\n"),
            &[("/checkpoint/rank_shift", json!(8))],
            "",
        ),
        form(
            "zero_stage -1",
            format!("{SAVE}model: {{parallelism: {{zero_stage: -1}}}}\ncheckpoint: {{num_checkpoints: 1}}\n"),
            &[("/checkpoint/geometry/zero", json!(0))],
            "num_checkpoints_write",
        ),
        form(
            "checkpoint.type independent",
            format!("{SAVE}checkpoint: {{type: independent, num_checkpoints_write: 1}}\n"),
            &[],
            "every rank writes its own part",
        ),
        form(
            "more steps than an epoch has",
            format!("{TRAIN}train: {{total_training_steps: 311541}}\n"),
            &[("/steps_per_epoch", json!(100))],
            "the data set has fewer steps per epoch",
        ),
    ]);
}

/// Keys that DLIO ignored, or that only a branch had: a warning says so and names the key that has an effect.
#[test]
fn a_key_that_dlio_ignored_is_ignored_with_a_warning() {
    let dataset = |key: &str| TRAIN.replace("4096}", &format!("4096, {key}}}"));
    check(vec![
        form("record-length", dataset("record-length: 7"), &[], "dataset.record_length_bytes is the size"),
        form("record_length_std", dataset("record_length_std: 7"), &[], "record_length_bytes_stdev"),
        form(
            "files for an object store (dlrm_s3dlio_s3)",
            dataset("storage_type: s3, file_list_train: '', storage_options: {prefetch: 8}"),
            &[],
            "DLIO reads it only below 'storage'",
        ),
        form(
            "train.batch_size",
            format!("{TRAIN}train: {{batch_size: 2048}}\n"),
            &[("/train/shards/batch", json!(1))],
            "'train.batch_size' at w.yaml:4:9 has no effect: DLIO reads it only below 'reader'",
        ),
        form(
            "train.epoch",
            format!("{TRAIN}train: {{epoch: 5}}\n"),
            &[("/epochs", json!(1))],
            "train.epochs",
        ),
        form(
            "recovery_after_steps",
            format!("{SAVE}checkpoint: {{num_checkpoints_write: 4, recovery_after_steps: 2}}\n"),
            &[("/checkpoint/schedule/alone/restores", json!(0))],
            "checkpoint.num_checkpoints_read is the number to restore",
        ),
        form("Hydra's defaults", format!("defaults: [_self_]\n{TRAIN}"), &[], "it belongs to Hydra"),
    ]);
}

#[test]
fn a_workload_that_only_writes_data_is_planned() {
    let text = "framework: pytorch\nworkflow: {generate_data: true, train: false}\n\
                dataset: {format: npz, num_files_train: 168, num_samples_per_file: 2, record_length_bytes: 4096}\n";
    check(vec![form("datagen", text.to_owned(), &[("/data/train/files", json!(168))], "")]);
    let dir = Dir::new();
    dir.write("unet3d_datagen.yaml", text);
    let plan = dir.feedline(&["plan", "unet3d_datagen.yaml"]).run().exits(0).silent();
    let plan = plan.prints("unet3d_datagen: only a data set, because workflow.train is false");
    plan.prints("168 x 2 samples").prints("img_000_of_168.npz");
    dir.feedline(&["run", "unet3d_datagen.yaml"]).run().exits(2).says("use 'feedline generate'");
}

/// DLIO: "workload.parallelism.data should not be set in default Checkpoint Mode".
#[test]
fn what_dlio_refuses_is_refused() {
    let dir = Dir::new();
    dir.write(
        "w.yaml",
        format!("{SAVE}model: {{parallelism: {{data: 2}}}}\ncheckpoint: {{num_checkpoints: 1}}\n"),
    );
    dir.feedline(&["plan", "w.yaml"]).run().exits(2).says("unless checkpoint.mode is subset");
}

#[test]
fn no_epochs_between_evaluations_are_one_in_any_spelling() {
    let dir = Dir::new();
    for zero in ["0", "0.0", "-0.0"] {
        let between = format!("evaluation.epochs_between_evals={zero}");
        let settings = ["workflow.evaluation=true", "dataset.num_files_eval=16", &between];
        let plan = dir.feedline(&["plan", "demo", "--json"]).set(&settings).run().exits(0).json();
        assert_eq!(plan["eval"]["every_epochs"], 1, "{plan}");
    }
}
