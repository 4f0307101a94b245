//! The command lines of published MLPerf Storage runs, and the figures that were published with them: every one plans
//! to the same sizes. `data/published.json` has facts only: the overrides that a run recorded in
//! `dlio_config/overrides.yaml`, with neutral names of folders and buckets, and figures of its `summary.json` or
//! `dlio.log`. `source` is its folder in the published results of round 3.0.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::util::Dir;

/// The workloads that only write a data set, as the runs had them; the others are built in.
const DATAGEN: [(&str, &str); 2] = [
    (
        "unet3d_datagen",
        "\
model: {name: unet3d, type: cnn}
framework: pytorch
workflow: {generate_data: True, train: False, checkpoint: False}
dataset: {data_folder: data/unet3d, format: npz, num_files_train: 168, num_samples_per_file: 1,
  record_length_bytes: 146600628, record_length_bytes_stdev: 68341808, record_length_bytes_resize: 2097152}
",
    ),
    (
        "retinanet_datagen",
        "\
model: {name: retinanet, type: cnn}
framework: pytorch
workflow: {generate_data: True, train: False, checkpoint: False}
dataset: {data_folder: data/retinanet, format: jpeg, num_files_train: 1170301, num_samples_per_file: 1,
  record_length_bytes: 322957}
",
    ),
];

const BYTES_PER_GIB: f64 = 1_073_741_824.0;

/// A published run.
struct PublishedRun(Value);

impl PublishedRun {
    fn all() -> Vec<PublishedRun> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/published.json");
        let runs: Vec<Value> = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        runs.into_iter().map(PublishedRun).collect()
    }

    fn source(&self) -> &str {
        self.0["source"].as_str().unwrap()
    }

    fn overrides(&self) -> impl Iterator<Item = &str> {
        self.0["overrides"].as_array().unwrap().iter().map(|given| given.as_str().unwrap())
    }

    /// The value of an override.
    fn given(&self, key: &str) -> Option<&str> {
        self.overrides()
            .find_map(|given| given.trim_start_matches("++workload.").strip_prefix(key)?.strip_prefix('='))
    }

    fn count(&self, key: &str) -> u64 {
        self.given(key).unwrap_or_else(|| panic!("{}: no {key}", self.source())).parse().unwrap()
    }

    fn figure(&self, name: &str) -> Option<f64> {
        self.0[name].as_f64()
    }

    /// What `feedline plan` makes of the configuration that the command line composes.
    fn plan(&self, dir: &Dir) -> Value {
        let workload = self.given("workload").unwrap();
        let written = DATAGEN.iter().find(|(name, _)| *name == workload).map(|(_, text)| (*text).to_owned());
        let text = written.unwrap_or_else(|| dir.feedline(&["workloads", workload]).run().exits(0).stdout);
        dir.write(&format!("configs/workload/{workload}.yaml"), text);
        let overrides: Vec<&str> = self.overrides().collect();
        let composed =
            dir.feedline(&["dlio"]).args(&overrides).args(&["--config-dir=configs", "--cfg", "job"]);
        dir.write("config.yaml", composed.run().exits(0).stdout);
        let ranks = self.figure("num_accelerators").map(|ranks| ranks.to_string());
        let ranks: Vec<&str> = ranks.iter().flat_map(|ranks| ["--ranks", ranks]).collect();
        dir.feedline(&["plan", "config.yaml", "--json"]).args(&ranks).run().exits(0).json()
    }
}

fn number(plan: &Value, pointer: &str) -> f64 {
    plan.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {pointer} in {plan:#}"))
}

#[test]
fn published_command_lines_of_training_plan_to_the_published_sizes() {
    let dir = Dir::new();
    let runs = PublishedRun::all();
    let runs: Vec<&PublishedRun> = runs.iter().filter(|run| run.source().contains("/training/")).collect();
    assert!(runs.len() >= 20, "{} runs", runs.len());
    for run in runs {
        let (source, plan) = (run.source(), run.plan(&dir));
        let files = run.count("dataset.num_files_train");
        assert_eq!(number(&plan, "/data/train/files"), files as f64, "{source}");
        assert_eq!(number(&plan, "/data/train/samples_per_file"), 1.0, "{source}");
        if let Some(subfolders) = run.given("dataset.num_subfolders_train") {
            assert_eq!(plan["data"]["train"]["names"]["subfolders"].to_string(), subfolders, "{source}");
        }
        if let Some(steps) = run.figure("steps") {
            assert_eq!(number(&plan, "/steps_per_epoch"), steps, "{source}");
        }
        if let Some(published) = run.figure("data_size_per_host_GB") {
            let hosts = run.figure("num_hosts").unwrap() as u64;
            let planned =
                (files / hosts) as f64 * number(&plan, "/metric/record_length_bytes") / BYTES_PER_GIB;
            assert!((planned / published - 1.0).abs() < 1e-12, "{source}: {planned}, published {published}");
        }
    }
}

#[test]
fn published_command_lines_of_checkpoints_plan_to_the_published_sizes() {
    let dir = Dir::new();
    let runs = PublishedRun::all();
    let runs: Vec<&PublishedRun> =
        runs.iter().filter(|run| run.source().contains("/checkpointing/")).collect();
    for model in ["llama3_8b", "llama3_70b", "llama3_405b", "llama3_1t"] {
        assert!(runs.iter().any(|run| run.given("workload") == Some(model)), "no {model}");
    }
    for run in runs {
        let (source, plan) = (run.source(), run.plan(&dir));
        let schedule = &plan["checkpoint"]["schedule"]["alone"];
        assert_eq!(schedule["saves"], run.count("checkpoint.num_checkpoints_write"), "{source}");
        assert_eq!(schedule["restores"], run.count("checkpoint.num_checkpoints_read"), "{source}");
        if let Some(published) = run.figure("checkpoint_size_GB") {
            assert_eq!(number(&plan, "/bytes") / BYTES_PER_GIB, published, "{source}");
        }
    }
}
