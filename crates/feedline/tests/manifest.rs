//! The manifest of a data set: a data set is not mixed with another, files are not claimed without a manifest, and
//! --verify checks every byte.

use std::fs;

use serde_json::Value;

use crate::util::{Dir, Done, SMALL};

const MANIFEST: &str = "data/.feedline/dataset.json";

fn generate(dir: &Dir, flags: &[&str], settings: &[&str]) -> Done {
    dir.feedline(&["generate", "w.yaml", "--quiet", "--json"]).args(flags).set(settings).run()
}

fn manifest(dir: &Dir) -> Value {
    dir.json(MANIFEST)
}

#[test]
fn the_manifest_describes_the_data_set() {
    let dir = Dir::small_with_data();
    let manifest = manifest(&dir);
    assert_eq!((&manifest["complete"], &manifest["files"]), (&true.into(), &24.into()));
    assert_eq!(manifest["settings"]["dataset.format"], "npz");
    assert_eq!(manifest["settings"]["train.seed"], "123");
    let mlpstorage = dir.json("data/.mlps-datagen-manifest.json");
    let keys: Vec<&String> = mlpstorage.as_object().unwrap().keys().collect();
    assert!(keys.is_sorted(), "{keys:?}");
    for (key, value) in [
        ("schema_version", Value::from(1)),
        ("model", "default".into()),
        ("num_files_train", 24.into()),
        ("num_samples_per_file", 1.into()),
        ("record_length_bytes", 4096.into()),
        ("dataset_format", "npz".into()),
        ("num_subfolders_train", 0.into()),
    ] {
        assert_eq!(mlpstorage[key], value, "{key}");
    }
}

#[test]
fn another_data_set_is_refused_and_nothing_changes() {
    let dir = Dir::small_with_data();
    let before = dir.listing();
    for (setting, says) in [
        ("dataset.format=jpeg", "dataset.format is npz, not jpeg as requested"),
        ("dataset.num_files_train=25", "dataset.num_files_train is 24, not 25 as requested"),
        ("dataset.num_subfolders_train=2", "dataset.num_subfolders_train is 0, not 2"),
        ("dataset.record_element_type=float32", "dataset.record_element_type is uint8, not float32"),
        ("dataset.compression=zip", "dataset.compression is none, not zip as requested"),
    ] {
        generate(&dir, &[], &[setting]).exits(3).one_error().says(says).says("another folder");
        generate(&dir, &["--overwrite"], &[setting]).exits(3).one_error().says(says);
        assert_eq!(dir.listing(), before, "{setting}");
    }
}

#[test]
fn another_seed_is_another_data_set_unless_all_of_it_is_written() {
    let dir = Dir::small_with_data();
    let before = dir.tree("data");
    generate(&dir, &[], &["train.seed=7"]).exits(3).says("train.seed is 123, not 7").says("--overwrite");
    assert_eq!(dir.tree("data"), before);
    generate(&dir, &["--overwrite"], &["train.seed=7"]).exits(0);
    assert_ne!(dir.tree("data"), before);
    assert_eq!(manifest(&dir)["settings"]["train.seed"], "7");
    generate(&dir, &[], &["train.seed=7"]).exits(0);
    // A run shuffles by its seed and keeps the existing content, even with --generate.
    dir.feedline(&["run", "w.yaml", "--quiet", "--set", "train.seed=8"]).run().exits(0);
    dir.feedline(&["run", "w.yaml", "--quiet", "--generate", "--set", "train.seed=9"]).run().exits(0);
    assert_eq!(manifest(&dir)["settings"]["train.seed"], "7");
    generate(&dir, &["--verify"], &["train.seed=7"]).exits(0);
}

#[test]
fn files_of_an_earlier_layout_are_refused_until_they_are_written_again() {
    let dir = Dir::small();
    let settings = ["dataset.format=parquet"];
    generate(&dir, &[], &settings).exits(0);
    let good = dir.tree("data/train");
    let mut earlier = manifest(&dir);
    assert_eq!(earlier["content_version"], 2);
    earlier["content_version"] = 1.into();
    dir.write(MANIFEST, earlier.to_string());
    dir.write("data/train/img_00_of_24.parquet", "an earlier layout");
    let before = dir.listing();
    let run = || dir.feedline(&["run", "w.yaml", "--quiet"]).set(&settings).run();
    let says = "the layout of the files is version 1, not version 2 as requested";
    run().exits(3).one_error().says("another version of feedline").says(says).says("generate --overwrite");
    generate(&dir, &[], &settings).exits(3).one_error().says(says).says("with --overwrite");
    assert_eq!(dir.listing(), before);
    generate(&dir, &["--overwrite", "--verify"], &settings).exits(0);
    assert!(dir.tree("data/train") == good);
    run().exits(0);
}

#[test]
fn files_without_a_manifest_are_not_claimed() {
    let dir = Dir::small_with_data();
    fs::remove_file(dir.path(MANIFEST)).unwrap();
    let before = dir.listing();
    generate(&dir, &[], &[]).exits(3).one_error().says("24 files that no feedline manifest lists");
    assert_eq!(dir.listing(), before);
    generate(&dir, &["--overwrite"], &[]).exits(0);
    assert_eq!(manifest(&dir)["complete"], true);
    let dir = Dir::small();
    dir.write("data/train/holiday.jpg", "mine");
    generate(&dir, &["--overwrite"], &[]).exits(3).one_error().says("train/holiday.jpg");
    assert_eq!(dir.tree("data").len(), 1);
}

#[test]
fn an_extra_file_is_detected() {
    let dir = Dir::small_with_data();
    dir.write("data/train/img_24_of_24.npz", "one more");
    generate(&dir, &[], &[]).exits(5).one_error().says("train/ should hold 24 files, but holds 25");
}

#[test]
fn an_invalid_manifest_is_named_in_the_error() {
    let dir = Dir::small_with_data();
    for text in ["", "{", "[]", "{\"complete\": 3}"] {
        dir.write(MANIFEST, text);
        generate(&dir, &[], &[])
            .exits(3)
            .one_error()
            .says(".feedline/dataset.json is not a feedline manifest");
        dir.feedline(&["run", "w.yaml", "--quiet"]).run().exits(3).one_error().says("dataset.json");
    }
}

#[test]
fn an_interrupted_generation_is_not_trained_on() {
    let dir = Dir::small_with_data();
    let text = dir.read(MANIFEST).replace("\"complete\": true", "\"complete\": false");
    dir.write(MANIFEST, text);
    dir.feedline(&["run", "w.yaml", "--quiet"]).run().exits(3).one_error().says("generation was interrupted");
    generate(&dir, &[], &[]).exits(0);
    dir.feedline(&["run", "w.yaml", "--quiet"]).run().exits(0);
}

#[test]
fn files_from_before_an_interrupted_overwrite_are_written_again() {
    let dir = Dir::small_with_data();
    let (old, text) = (dir.tree("data"), dir.read(MANIFEST));
    generate(&dir, &["--overwrite"], &["train.seed=7"]).exits(0);
    let whole = dir.tree("data");
    // As if it had been killed after a few files: the rest has the other seed and the right size.
    let begun = text.replace("\"complete\": true", "\"complete\": false").replace("\"123\"", "\"7\"");
    dir.write(MANIFEST, begun.replace("\"rewriting\": false", "\"rewriting\": true"));
    for (name, bytes) in old.iter().skip(5) {
        dir.write(&format!("data/{name}"), bytes);
    }
    let done = generate(&dir, &[], &["train.seed=7"]).exits(0).json();
    assert_eq!(done["files_written"], 24);
    assert_eq!(dir.tree("data"), whole);
    assert_eq!((&manifest(&dir)["complete"], &manifest(&dir)["rewriting"]), (&true.into(), &false.into()));
}

#[test]
fn files_that_were_not_flushed_before_a_reboot_are_written_again() {
    let dir = Dir::small_with_data();
    let whole = dir.tree("data");
    let begun = dir.read(MANIFEST).replace("\"complete\": true", "\"complete\": false");
    let written = |text: String| {
        dir.write(MANIFEST, text);
        // After a power failure, the file can have its length but none of its bytes.
        dir.write("data/train/img_05_of_24.npz", vec![0; whole["train/img_05_of_24.npz"].len()]);
        generate(&dir, &[], &[]).exits(0).json()["files_written"].as_u64().unwrap()
    };
    assert_eq!(written(begun.clone()), 0, "without a reboot nothing is lost");
    let boot_id = manifest(&dir)["boot_id"].as_str().unwrap().to_owned();
    for another in [begun.replace(&boot_id, "another"), begun.replace("boot_id", "unknown")] {
        assert_eq!(written(another), 24);
        assert_eq!(dir.tree("data"), whole);
        assert_eq!(manifest(&dir)["complete"], true);
    }
}

#[test]
fn a_manifest_of_a_newer_version_is_refused() {
    let dir = Dir::small_with_data();
    let text = dir.read(MANIFEST).replace("\"schema_version\": 1", "\"schema_version\": 99");
    dir.write(MANIFEST, text);
    generate(&dir, &[], &[]).exits(3).one_error().says("schema_version is 99").says("use a newer feedline");
}

#[test]
fn a_folder_with_a_catalog_of_other_files_is_not_generated_into() {
    let dir = Dir::small();
    dir.write("data/a.npz", "existing");
    dir.feedline(&["catalog", "data", "--quiet"]).run().exits(0);
    let before = dir.listing();
    generate(&dir, &["--overwrite"], &[]).exits(3).one_error().says("feedline did not generate");
    assert_eq!(dir.listing(), before);
}

#[test]
fn a_run_can_read_some_files_and_omit_validation_files() {
    let dir = Dir::small();
    generate(&dir, &[], &["dataset.num_files_eval=6"]).exits(0);
    let run = |set: &[&str]| dir.feedline(&["run", "w.yaml", "--quiet"]).set(set).run();
    run(&[]).exits(0);
    run(&["dataset.num_files_train=20"]).exits(3).one_error().says("set dataset.num_files_generated=24");
    run(&["dataset.num_files_train=20", "dataset.num_files_generated=24"]).exits(0);
    run(&["dataset.num_files_eval=5", "workflow.evaluation=true"])
        .exits(3)
        .says("dataset.num_files_eval is 6, not 5");
}

#[test]
fn verify_finds_one_flipped_bit() {
    for format in ["npz", "tfrecord", "indexed_binary"] {
        let dir = Dir::small();
        let set = [format!("dataset.format={format}"), "framework=tensorflow".into(), LOADER.into()];
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let done = generate(&dir, &["--verify"], &set).exits(0).json();
        let on_disk: u64 = dir.tree("data").values().map(|file| file.len() as u64).sum();
        assert_eq!(done["bytes_verified"], on_disk, "{format}");
        let name = format!("data/train/img_07_of_24.{format}");
        let mut bytes = fs::read(dir.path(&name)).unwrap();
        bytes[3000] ^= 4;
        dir.write(&name, bytes);
        let done = generate(&dir, &["--verify"], &set).exits(5).one_error();
        done.says(&format!("train/img_07_of_24.{format}")).says("byte 3000 differs");
    }
}

const LOADER: &str = "reader.data_loader=tensorflow";

#[test]
fn missing_index_files_are_written_again() {
    let dir = Dir::small();
    for (format, side) in [
        ("tfrecord", "index/train/img_05_of_24.tfrecord.idx"),
        ("indexed_binary", "train/img_05_of_24.indexed_binary.sz.idx"),
    ] {
        let set = [&*format!("dataset.format={format}"), "framework=tensorflow", LOADER];
        let set: Vec<&str> = set.into_iter().chain(["dataset.data_folder=data"]).collect();
        let _ = fs::remove_dir_all(dir.path("data"));
        generate(&dir, &[], &set).exits(0);
        let whole = dir.tree("data");
        fs::remove_file(dir.path("data").join(side)).unwrap();
        let done = generate(&dir, &[], &set).exits(0).json();
        assert_eq!((&done["files_written"], &done["files_kept"]), (&1.into(), &23.into()));
        assert_eq!(dir.tree("data"), whole);
    }
}

#[test]
fn compressed_data_sets_are_generated_and_read_through_their_catalog() {
    for (format, compression) in
        [("npz", "zip"), ("csv", "gzip"), ("hdf5", "gzip"), ("parquet", "snappy"), ("parquet", "zstd")]
    {
        let dir = Dir::small();
        let set = [
            &*format!("dataset.format={format}"),
            &format!("dataset.compression={compression}"),
            "dataset.compressible=0.5",
            "dataset.num_samples_per_file=2",
        ];
        dir.feedline(&["run", "w.yaml", "--quiet"]).set(&set).run().exits(3).one_error();
        let run = ["run", "w.yaml", "--quiet", "--json", "--generate"];
        let summary = dir.feedline(&run).set(&set).run().exits(0).json();
        for rule in summary["feedline"]["verdict"]["rules"].as_array().unwrap() {
            assert_ne!(rule["outcome"], "fail", "{format}: {rule}");
        }
        assert_eq!(summary["feedline"]["epochs"][1]["samples_delivered"], 48);
        let again = dir.feedline(&run[..4]).set(&set).run().exits(0).json();
        assert_eq!(
            again["feedline"]["epochs"][0]["bytes_read"], summary["feedline"]["epochs"][0]["bytes_read"],
            "{format}"
        );
        generate(&dir, &["--verify"], &set).exits(0);
        for other in [
            "dataset.num_samples_per_file=1",
            "dataset.record_length_bytes=9000",
            "dataset.num_files_train=20",
        ] {
            let done = dir.feedline(&run[..4]).set(&set).set(&[other]).run().exits(3).one_error();
            done.says("was generated with other settings");
        }
        let name = dir.tree("data").keys().next().unwrap().clone();
        let bytes = fs::read(dir.path("data").join(&name)).unwrap();
        dir.write(&format!("data/{name}"), &bytes[..bytes.len() - 3]);
        generate(&dir, &["--verify"], &set).exits(5).one_error().says(&name);
    }
}

#[test]
fn mistakes_are_reported_before_compressed_data_is_written() {
    let dir = Dir::small();
    for (setting, says) in [
        ("reader.batch_size=5000", "batch 5000"),
        ("dataset.catalog=off", "remove dataset.catalog"),
        ("dataset.catalog=x", "remove dataset.catalog"),
    ] {
        let set = ["dataset.compression=zip", setting];
        let run = ["run", "w.yaml", "--quiet", "--generate"];
        dir.feedline(&run).set(&set).run().exits(2).one_error().says(says);
        assert!(!dir.path("data").exists(), "{setting}");
    }
}

#[test]
fn a_compression_that_a_format_does_not_support_is_refused_before_anything_is_written() {
    let dir = Dir::small();
    for (format, compression) in [("npz", "gzip"), ("jpeg", "gzip"), ("hdf5", "lzf"), ("parquet", "xz")] {
        let set = [&*format!("dataset.format={format}"), &format!("dataset.compression={compression}")];
        let done = generate(&dir, &[], &set).exits(2).one_error();
        done.says(&format!("dataset.compression '{compression}'")).says("choose none");
        assert!(!dir.path("data").exists());
    }
}

/// `SMALL` without a number of files.
fn uncounted() -> Dir {
    let dir = Dir::new();
    dir.write("w.yaml", SMALL.replace("  num_files_train: 24\n", ""));
    dir
}

const EVALUATION: [&str; 2] = ["workflow.evaluation=true", "evaluation.eval_time=0"];

#[test]
fn the_number_of_files_is_taken_from_the_manifest() {
    let dir = uncounted();
    generate(&dir, &[], &["dataset.num_files_train=30", "dataset.num_files_eval=6"]).exits(0);
    // The same data set, without its numbers.
    let again = generate(&dir, &[], &[]).exits(0).json();
    assert_eq!((&again["files_written"], &again["files_kept"]), (&0.into(), &36.into()));
    for flags in
        [&["run", "w.yaml", "--quiet", "--json"][..], &["run", "w.yaml", "--quiet", "--json", "--generate"]]
    {
        let summary = dir.feedline(flags).set(&EVALUATION).run().ran().json();
        assert_eq!((&summary["num_files_train"], &summary["num_files_eval"]), (&30.into(), &6.into()));
        assert_eq!(summary["feedline"]["epochs"][0]["samples_delivered"], 30);
        assert_eq!(summary["feedline"]["eval_epochs"][0]["samples_delivered"], 6);
    }
    for result in dir.results() {
        dir.feedline(&["validate", &result]).run().exits(0);
    }
    let plan = dir.feedline(&["plan", "w.yaml"]).run().exits(0);
    plan.prints("30 x 1 samples, as in the manifest of the data folder");
    let plan = dir.feedline(&["plan", "w.yaml", "--json"]).run().exits(0).json();
    assert_eq!(
        (&plan["num_files_train_from"], &plan["data"]["train"]["files"]),
        (&"manifest".into(), &30.into())
    );
    let plan = dir.feedline(&["plan", "w.yaml", "--store", "null"]).run().exits(0);
    plan.prints("8 x 1 samples, the default of dataset.num_files_train");
}

#[test]
fn a_number_of_files_that_contradicts_the_manifest_is_an_error() {
    let dir = uncounted();
    generate(&dir, &[], &["dataset.num_files_train=30"]).exits(0);
    let run = |setting: &str| {
        dir.feedline(&["run", "w.yaml", "--quiet"]).set(&[setting]).run().exits(3).one_error()
    };
    run("dataset.num_files_train=40")
        .says("dataset.num_files_train is 30, not 40")
        .says("leave dataset.num_files_train out");
    run("dataset.num_files_train=20").says("is 30, not 20").says("set dataset.num_files_generated=30");
    run("dataset.num_files_generated=40").says("dataset.num_files_train is 30, not 40");
    let plan = dir.feedline(&["plan", "w.yaml"]).set(&["dataset.num_files_train=20"]).run().exits(0);
    assert!(plan.stdout.contains("20 x 1 samples\n"), "{}", plan.stdout);
}

#[test]
fn the_number_of_files_is_taken_from_the_catalog() {
    let dir = uncounted();
    generate(&dir, &[], &["dataset.num_files_train=30", "dataset.num_files_eval=6"]).exits(0);
    fs::remove_file(dir.path(MANIFEST)).unwrap();
    dir.feedline(&["catalog", "data", "--quiet"]).run().exits(0);
    let summary = dir.feedline(&["run", "w.yaml", "--quiet", "--json"]).set(&EVALUATION).run().ran().json();
    assert_eq!((&summary["num_files_train"], &summary["num_files_eval"]), (&30.into(), &6.into()));
    dir.feedline(&["plan", "w.yaml"]).run().exits(0).prints("30 x 1 samples, as in the catalog");
    let some = ["dataset.num_files_train=20", "dataset.num_files_eval=2"];
    let some =
        dir.feedline(&["run", "w.yaml", "--quiet", "--json"]).set(&EVALUATION).set(&some).run().ran().json();
    assert_eq!((&some["num_files_train"], &some["num_files_eval"]), (&20.into(), &2.into()));
    let more = dir.feedline(&["run", "w.yaml", "--quiet"]).set(&["dataset.num_files_train=31"]).run();
    more.exits(3).one_error().says("lists only 30");
}

/// The number in a built-in workload was not written by the user.
#[test]
fn a_built_in_workload_reads_as_many_files_as_there_are() {
    let dir = Dir::new();
    let (place, few) = (["--data-dir", "d", "--quiet", "--json"], ["dataset.num_files_train=64"]);
    dir.feedline(&["generate", "demo"]).args(&place).set(&few).run().exits(0);
    let again = dir.feedline(&["generate", "demo"]).args(&place).run().exits(0).json();
    assert_eq!(again["files_written"], 0);
    let run = |settings: &[&str]| {
        dir.feedline(&["run", "demo", "--no-calibration"]).args(&place).set(settings).run()
    };
    assert_eq!(run(&[]).ran().json()["num_files_train"], 64);
    run(&["dataset.num_files_train=65"]).exits(3).one_error().says("dataset.num_files_train is 64, not 65");
}
