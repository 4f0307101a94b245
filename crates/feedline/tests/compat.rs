//! DLIO's behaviour on request, on real files: what each key changes, that every sample is still delivered once, and
//! that results say what was switched.

use serde_json::Value;

use crate::util::{Dir, outcome};

/// Files with several samples.
const SEVERAL: &str = "\
framework: pytorch
dataset: {format: npz, data_folder: data, num_files_train: 13, num_samples_per_file: 4, record_length_bytes: 4096}
reader: {data_loader: pytorch, batch_size: 3, read_threads: 2, file_shuffle: 'off'}
train: {epochs: 2, computation_time: 0.002}
";

fn summary(dir: &Dir, flags: &[&str], settings: &[&str]) -> Value {
    dir.feedline(&["run", "w.yaml", "--quiet", "--json", "--no-calibration"])
        .args(flags)
        .set(settings)
        .run()
        .ran()
        .json()
}

fn with_data(text: &str) -> Dir {
    let dir = Dir::new();
    dir.write("w.yaml", text);
    dir.feedline(&["generate", "w.yaml", "--quiet"]).run().exits(0);
    dir
}

#[test]
fn every_sample_is_delivered_once_and_the_result_names_the_switches() {
    let dir = with_data(SEVERAL);
    for (settings, keys) in [
        (&["compat=dlio", "reader.cache=cold", "reader.verify=full"][..], 16),
        (&["compat.shards=dlio", "compat.order=dlio", "reader.verify=full"], 2),
        (&["compat.whole_files=dlio", "reader.verify=full"], 1),
    ] {
        let summary = summary(&dir, &["--ranks", "3"], settings);
        for rule in ["complete", "exactly-once", "bytes-as-planned", "data-verified", "order-differs"] {
            assert_eq!(outcome(&summary, rule), "pass", "{settings:?} {rule}: {summary:#}");
        }
        assert_eq!(outcome(&summary, "semantics"), "note", "{settings:?}");
        assert_eq!(summary["feedline"]["compat"].as_array().map(Vec::len), Some(keys), "{settings:?}");
    }
    let ours = summary(&dir, &["--ranks", "3"], &[]);
    assert_eq!(ours["feedline"].get("compat"), None);
    assert!(
        ours["feedline"]["verdict"]["rules"]
            .as_array()
            .unwrap()
            .iter()
            .all(|rule| rule["rule"] != "semantics")
    );
}

#[test]
fn ranks_read_whole_files_of_their_own() {
    let dir = with_data(SEVERAL);
    let plan = |ranks: &str, settings: &[&str]| {
        dir.feedline(&["plan", "w.yaml", "--json", "--ranks", ranks]).set(settings).run().exits(0).json()
    };
    // 52 samples in 13 files. Of 5 ranks each has 2 files with 8 samples.
    let (ours, theirs) = ("reader.batch_size=2", "compat.shards=dlio");
    assert_eq!(plan("5", &[ours])["steps_per_epoch"], 5);
    let dealt = plan("5", &[ours, theirs]);
    assert_eq!((&dealt["steps_per_epoch"], &dealt["dropped_samples"]), (&4.into(), &12.into()));
    assert_eq!(dealt["compat"], serde_json::json!(["compat.shards"]));
    let text = dir.feedline(&["plan", "w.yaml", "--ranks", "5"]).set(&[ours, theirs]).run().exits(0);
    text.prints("samples of 2 files that are dealt in turn").prints("compat.shards");
    assert_eq!(plan("14", &["reader.batch_size=1"])["steps_per_epoch"], 3);
    let refused = dir.feedline(&["plan", "w.yaml", "--ranks", "14"]).set(&["reader.batch_size=1", theirs]);
    refused.run().exits(2).says("every rank gets whole files (compat.shards: dlio)");
}

#[test]
fn a_whole_file_is_read_for_each_sample() {
    for format in ["npz", "hdf5", "csv"] {
        let dir = with_data(&SEVERAL.replace("npz", format).replace("13", "12"));
        let bytes = |settings: &[&str]| -> u64 {
            let summary = summary(&dir, &["--ranks", "1"], settings);
            assert_eq!(outcome(&summary, "exactly-once"), "pass");
            summary["feedline"]["epochs"][0]["bytes_read"].as_u64().unwrap()
        };
        let file = dir.tree("data/train").into_values().next().unwrap().len() as u64;
        assert_eq!(bytes(&["compat.whole_files=dlio"]), 48 * file, "{format}");
        assert!(bytes(&[]) < 2 * 12 * file, "{format}");
    }
}

#[test]
fn figures_of_evaluation_are_divided_by_the_ranks_under_dlios_names_only() {
    let dir = with_data(&SEVERAL.replace("num_files_train", "num_files_eval: 12, num_files_train"));
    let settings = ["workflow.evaluation=true", "evaluation.eval_time=0.002", "compat.eval_figures=dlio"];
    let summary = summary(&dir, &["--ranks", "2"], &settings);
    let own = &summary["feedline"]["eval_epochs"][0];
    for (theirs, ours) in
        [("eval_au_percentage", "au_percent"), ("eval_throughput_samples_per_second", "samples_per_second")]
    {
        let (theirs, ours) = (summary["metric"][theirs][0].as_f64().unwrap(), own[ours].as_f64().unwrap());
        assert!((theirs - ours / 2.0).abs() < 1e-9 * ours, "{theirs} {ours}");
    }
    let train =
        (&summary["metric"]["train_au_percentage"][0], &summary["feedline"]["epochs"][0]["au_percent"]);
    assert_eq!(train.0, train.1, "training is not divided");
}

#[test]
fn the_checkpoint_after_an_epoch_has_the_number_of_the_next_step() {
    let dir = with_data(SEVERAL);
    for (compat, steps) in [("feedline", 17), ("dlio", 18)] {
        let folder = format!("checkpoint.checkpoint_folder={compat}");
        let step = format!("compat.checkpoint_step={compat}");
        summary(&dir, &[], &["workflow.checkpoint=true", &folder, &step]);
        for epoch in [1, 2] {
            let there = dir.path(&format!("{compat}/global_epoch{epoch}_step{steps}"));
            assert!(there.is_dir(), "{}", there.display());
        }
    }
}

#[test]
fn a_verdict_does_not_become_better() {
    let dir = with_data(SEVERAL);
    // The files were just written, so they are in memory, and DLIO's behaviour is to leave them there.
    let run =
        dir.feedline(&["run", "w.yaml", "--quiet", "--json", "--no-calibration"]).set(&["compat=dlio"]).run();
    let summary = run.exits(5).json();
    assert_eq!(summary["feedline"]["verdict"]["status"], "invalid");
    assert_eq!(outcome(&summary, "cache"), "fail");
    assert_eq!(outcome(&summary, "data-verified"), "not-checkable");
}

#[test]
fn direct_storage_reads_with_o_direct_and_object_stores_are_refused() {
    let dir = with_data(SEVERAL);
    let plan =
        |settings: &[&str]| dir.feedline(&["plan", "w.yaml", "--json"]).set(settings).run().exits(0).json();
    let of_mlpstorage = [
        "storage.storage_type=direct_fs",
        "storage.storage_options.storage_library=s3dlio",
        "storage.storage_options.uri_scheme=direct",
    ];
    let direct = plan(&of_mlpstorage);
    assert_eq!(direct["store"], "direct", "{direct:#}");
    let warnings = direct["warnings"].to_string();
    assert!(warnings.contains("reads the files of direct_fs with O_DIRECT"), "{warnings}");
    assert_eq!(plan(&["storage.storage_library=direct"])["store"], "direct");
    assert_eq!(plan(&["storage.storage_type=parallel_fs"])["store"], "posix");
    for settings in [
        &["storage.storage_type=aistore", "storage.storage_root=bucket"][..],
        &[
            "storage.storage_type=aistore",
            "workflow.train=false",
            "workflow.checkpoint=true",
            "checkpoint.num_checkpoints_write=1",
        ],
    ] {
        dir.feedline(&["run", "w.yaml"])
            .set(settings)
            .run()
            .exits(3)
            .says("storage.storage_type 'aistore' is not supported; use its S3 interface");
    }
    assert!(dir.results().is_empty() && !dir.path("bucket").exists(), "nothing was run");
}

#[test]
fn an_empty_data_folder_is_the_storage_root() {
    let dir = with_data(SEVERAL);
    let settings = ["storage.storage_root=data", "dataset.data_folder="];
    assert_eq!(outcome(&summary(&dir, &[], &settings), "exactly-once"), "pass");
}

#[test]
fn keys_of_the_drop_in_have_no_effect_elsewhere() {
    let dir = with_data(SEVERAL);
    let plan =
        dir.feedline(&["plan", "w.yaml", "--json"]).set(&["output.strict=true", "output.log_file=a.log"]);
    let warnings = plan.run().exits(0).json()["warnings"].to_string();
    assert!(warnings.contains("output.strict") && warnings.contains("output.log_file"), "{warnings}");
}
