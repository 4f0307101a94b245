//! Data sets that DLIO wrote, without a manifest and without a catalog: names are computed, sizes are taken as found,
//! and whatever does not fit is an error that says how to continue.

use std::fs;

use serde_json::Value;

use crate::util::{Dir, Done, SMALL, file_stores, outcome};

const WORKLOAD: &str = "
framework: pytorch
workflow: {evaluation: true}
dataset: {data_folder: data, num_files_train: 5, num_files_eval: 2, num_samples_per_file: 2, record_length_bytes: 4096}
reader: {data_loader: pytorch, batch_size: 1, read_threads: 2, file_shuffle: seed, sample_shuffle: seed}
evaluation: {eval_time: 0}
train: {epochs: 2, computation_time: 0}
";

const RUN: [&str; 5] = ["run", "w.yaml", "--quiet", "--json", "--no-calibration"];

/// A folder with a data set of this writer and format, and its workload.
fn written(writer: &str, format: &str) -> Dir {
    let dir = Dir::new();
    dir.write("w.yaml", WORKLOAD);
    dir.python("dlio.py", &[writer, format, "data"]).run().exits(0).silent();
    dir
}

/// A data set of feedline without its manifest.
fn unclaimed() -> Dir {
    let dir = Dir::small_with_data();
    fs::remove_dir_all(dir.path("data/.feedline")).unwrap();
    dir
}

/// The bytes of the training files.
fn stored(dir: &Dir, format: &str) -> u64 {
    let (ending, files) = (format!(".{format}"), dir.tree("data/train"));
    files.iter().filter(|(name, _)| name.ends_with(&ending)).map(|(_, bytes)| bytes.len() as u64).sum()
}

fn of_epochs(summary: &Value, phase: &str, key: &str) -> Vec<u64> {
    let epochs = summary["feedline"][phase].as_array().unwrap();
    epochs.iter().map(|epoch| epoch[key].as_u64().unwrap()).collect()
}

/// Checks the result of a run that took the sizes as found.
fn is_complete(done: &Done, files: u64, samples: u64) -> Value {
    let summary = done.json();
    for rule in ["complete", "exactly-once", "bytes-as-planned", "order-differs"] {
        assert_eq!(outcome(&summary, rule), "pass", "{rule}");
    }
    assert_eq!(outcome(&summary, "data-verified"), "note");
    assert_eq!(of_epochs(&summary, "epochs", "samples_delivered"), [files * samples; 2]);
    assert_eq!(summary["feedline"]["store"]["facts"]["file_sizes"], "as found");
    summary
}

/// Checks that both writers' data sets of a format run as they are, with real bytes in the ledger.
fn runs(format: &str, samples: u64, is_read_whole: bool) {
    for writer in ["argonne", "mlcommons"] {
        let dir = written(writer, format);
        let before = dir.listing();
        let settings = [
            &*format!("dataset.format={format}"),
            &format!("dataset.num_samples_per_file={samples}"),
            "dataset.record_length_bytes_stdev=1000",
        ];
        for access in ["reader.access=framework", "reader.access=extent"] {
            let done =
                dir.feedline(&RUN).args(&["--results-dir", "results"]).set(&settings).set(&[access]).run();
            let summary = is_complete(&done.ran(), 5, samples);
            assert_eq!(of_epochs(&summary, "eval_epochs", "samples_delivered"), [2 * samples; 2]);
            let (read, stored) = (of_epochs(&summary, "epochs", "bytes_read"), stored(&dir, format));
            if is_read_whole && access.ends_with("framework") {
                assert_eq!(read, [stored; 2], "{writer} {format}");
            }
            fs::remove_dir_all(dir.path("results")).unwrap();
            assert_eq!(dir.listing(), before, "nothing is written to the data folder");
        }
    }
}

#[test]
fn npz_of_dlio_runs() {
    runs("npz", 2, false);
}

#[test]
fn npy_of_dlio_runs() {
    runs("npy", 2, false);
}

#[test]
fn hdf5_of_dlio_runs() {
    runs("hdf5", 2, false);
}

#[test]
fn csv_of_dlio_runs() {
    runs("csv", 2, true);
}

#[test]
fn jpeg_of_dlio_runs_even_if_it_is_noise() {
    runs("jpeg", 1, true);
}

#[test]
fn png_of_dlio_runs_even_if_it_is_noise() {
    runs("png", 1, true);
}

#[test]
fn parquet_of_dlio_runs() {
    runs("parquet", 2, false);
}

#[test]
fn indexed_binaries_of_dlio_run() {
    runs("indexed_binary", 2, true);
    runs("mmap_indexed_binary", 2, false);
}

#[test]
fn files_may_be_smaller_than_their_format_allows() {
    let dir = Dir::new();
    dir.write("w.yaml", SMALL.replace("npz", "jpeg").replace("4096", "500"));
    for file in 0..24 {
        dir.write(&format!("data/train/img_{file:02}_of_24.jpeg"), vec![7; 484]);
    }
    dir.feedline(&["plan", "w.yaml"]).run().exits(0).prints("a run takes them as found");
    let summary = is_complete(&dir.feedline(&RUN).run().ran(), 24, 1);
    assert_eq!(of_epochs(&summary, "epochs", "bytes_read"), [24 * 484; 2]);
    // No such file can be generated.
    dir.feedline(&RUN).set(&["dataset.data_folder=other"]).run().exits(2).says("too small");
}

#[test]
fn every_backend_takes_sizes_as_found() {
    let dir = written("argonne", "jpeg");
    let settings = ["dataset.format=jpeg", "dataset.num_samples_per_file=1"];
    for store in file_stores() {
        let done = dir.feedline(&RUN).args(&["--store", store]).set(&settings).run();
        if done.code() == Some(3) && store == "direct" {
            // The temporary folder may be in memory.
            done.says("O_DIRECT");
            continue;
        }
        let summary = is_complete(&done.ran(), 5, 1);
        assert_eq!(of_epochs(&summary, "epochs", "bytes_read"), [stored(&dir, "jpeg"); 2], "{store}");
    }
    // Simulated files have their computed sizes.
    let simulated = dir.feedline(&RUN).args(&["--store", "sim:ssd"]).set(&settings).run().ran().json();
    assert_eq!(of_epochs(&simulated, "epochs", "bytes_read"), [5 * 4096; 2]);
}

#[test]
fn the_report_and_the_saved_plan_say_that_sizes_are_as_found() {
    let dir = unclaimed();
    dir.feedline(&["run", "w.yaml", "--no-calibration"]).run().ran().prints("sizes were taken as found");
    let plan = dir.json(&format!("{}/plan.json", dir.result()));
    assert_eq!(plan["data"]["listed"]["origin"], "sizes_as_found");
    assert_eq!(plan["data"]["train"]["bytes"], stored(&dir, "npz"));
    dir.feedline(&["validate", &dir.result()]).run().exits(0);
}

#[test]
fn dlios_figures_stay_nominal() {
    let dir = written("argonne", "csv");
    let summary = is_complete(&dir.feedline(&RUN).set(&["dataset.format=csv"]).run().ran(), 5, 2);
    let metric = &summary["metric"];
    let rate = metric["train_throughput_mean_samples_per_second"].as_f64().unwrap();
    let nominal = metric["train_io_mean_MB_per_second"].as_f64().unwrap();
    assert!(
        (nominal / (rate * 4096.0 / f64::from(1 << 20)) - 1.0).abs() < 1e-9,
        "{nominal} at {rate} samples/s"
    );
}

#[test]
fn studies_take_sizes_as_found() {
    let dir = Dir::new();
    let small = SMALL.replace("npz", "jpeg").replace("num_files_train: 24", "num_files_train: 246");
    dir.write("w.yaml", small.replace("computation_time: 0", "computation_time: 0.002"));
    for file in 0..246 {
        dir.write(&format!("data/train/img_{file:03}_of_246.jpeg"), vec![7; 3000 + file]);
    }
    // On a busy machine a verdict may be invalid.
    let ended = |done: Done| assert!([Some(0), Some(5)].contains(&done.code()), "{}", done.stderr);
    let over = ["sweep", "w.yaml", "--quiet", "--no-calibration", "--over", "reader.read_threads=1,2"];
    ended(dir.feedline(&over).run());
    ended(dir.feedline(&["stall", "w.yaml", "--quiet"]).run());
    ended(dir.feedline(&["capacity", "w.yaml", "--quiet"]).set(&["metric.au=0.01"]).run());
}

#[test]
fn a_missing_or_empty_file_is_found_before_the_run() {
    let dir = unclaimed();
    dir.write("data/train/img_07_of_24.npz", "");
    let says = |text: &str| {
        dir.feedline(&RUN).run().exits(3).one_error().says(text).says("list them first: feedline catalog ");
    };
    says("data/train/img_07_of_24.npz is empty");
    fs::remove_file(dir.path("data/train/img_07_of_24.npz")).unwrap();
    says("train/img_07_of_24.npz does not exist");
    assert!(dir.results().is_empty());
}

/// Without a manifest only the workload says how long the files should be.
#[test]
fn files_that_are_much_shorter_than_described_are_not_verified() {
    let dir = written("argonne", "jpeg");
    let settings = ["dataset.format=jpeg", "dataset.num_samples_per_file=1"];
    for (name, _) in dir.tree("data/train") {
        let file = fs::File::options().write(true).open(dir.path("data/train").join(name)).unwrap();
        file.set_len(500).unwrap();
    }
    // A truncated file can keep its page in memory, and so the page cache is left as it is.
    let summary = dir.feedline(&RUN).args(&["--cache", "as-is"]).set(&settings).run().json();
    assert_eq!(outcome(&summary, "data-verified"), "not-checkable");
    let evidence = summary["feedline"]["verdict"]["rules"].to_string();
    assert!(evidence.contains("taken as found, 12 % of the bytes that the workload describes"), "{evidence}");
}

/// Nothing in such files states the number of samples.
#[test]
fn files_that_are_too_short_for_their_samples_are_refused() {
    for (format, framework) in [("tfrecord", "tensorflow"), ("indexed_binary", "pytorch")] {
        let dir = Dir::new();
        dir.write("w.yaml", WORKLOAD.replace("pytorch", framework));
        let format = format!("dataset.format={format}");
        dir.feedline(&["generate", "w.yaml", "--quiet"]).set(&[&format]).run().exits(0);
        fs::remove_dir_all(dir.path("data/.feedline")).unwrap();
        let run = || dir.feedline(&RUN).set(&[&format]).run();
        run().ran();
        let name = dir.tree("data/train").into_keys().find(|name| !name.ends_with(".idx")).unwrap();
        let file = fs::File::options().write(true).open(dir.path("data/train").join(&name)).unwrap();
        file.set_len(5000).unwrap();
        run().exits(3).one_error().says("has 5000 bytes, but its samples need at least 8192");
    }
}

#[test]
fn more_files_than_the_data_set_has_are_refused() {
    let dir = unclaimed();
    dir.write("data/train/img_24_of_24.npz", "one more");
    let done = dir.feedline(&RUN).run().exits(3).one_error();
    done.says("train/ holds 25 files named like train/img_00_of_24.npz, but the data set has 24");
}

#[test]
fn a_file_that_is_not_of_the_format_is_an_error() {
    let dir = unclaimed();
    dir.write("data/train/img_07_of_24.npz", "not an archive");
    dir.feedline(&RUN).run().exits(4).says("img_07_of_24.npz");
}

#[test]
fn a_file_that_changes_its_size_during_the_run_is_an_error() {
    let dir = unclaimed();
    let settings = ["train.epochs=200", "train.computation_time=0.01"];
    let mut run = dir.feedline(&["run", "w.yaml", "--quiet", "--no-calibration"]).set(&settings).start();
    run.until_thread("reader");
    let path = dir.path("data/train/img_07_of_24.npz");
    let bytes = fs::read(&path).unwrap();
    fs::write(dir.path("longer"), [&bytes[..], b"more"].concat()).unwrap();
    fs::rename(dir.path("longer"), &path).unwrap();
    run.wait().exits(4).says("img_07_of_24.npz").says(&format!("{} bytes", bytes.len() + 4));
}

#[test]
fn files_of_another_data_set_are_named_with_the_setting_to_use() {
    let dir = unclaimed();
    for (setting, says) in [
        (
            "dataset.num_files_train=20",
            "_of_24.npz, of a data set of 24 files: set dataset.num_files_train=24",
        ),
        ("dataset.format=npy", "set dataset.format=npz"),
        (
            "dataset.num_subfolders_train=2",
            "the files are in train/ itself: set dataset.num_subfolders_train=0",
        ),
        ("dataset.file_prefix=part", "the folder holds train/img_"),
    ] {
        let done = dir.feedline(&RUN).set(&[setting]).run().exits(3).one_error();
        assert!(!done.says(says).stderr.contains("feedline generate"), "{setting}");
    }
    // The suggested settings work.
    let some = ["dataset.num_files_train=20", "dataset.num_files_generated=24"];
    dir.feedline(&RUN).set(&some).run().ran();
    dir.feedline(&["catalog", "data", "--quiet"]).run().exits(0);
    dir.feedline(&RUN).set(&["dataset.num_files_train=20"]).run().ran();
}

#[test]
fn a_run_that_would_generate_says_how_to_keep_existing_files() {
    let dir = unclaimed();
    let before = dir.listing();
    let refused = dir.feedline(&RUN).args(&["--generate"]).run().exits(3).one_error();
    refused.says("no feedline manifest").says("to train on these files as they are, leave out --generate");
    let generates = ["workflow.generate_data=true"];
    let refused = dir.feedline(&RUN).set(&generates).run().exits(3).one_error();
    refused.says("add --set workflow.generate_data=false");
    assert_eq!(dir.listing(), before);
    dir.feedline(&RUN).set(&["workflow.generate_data=false"]).run().ran();
}

#[test]
fn a_file_of_our_own_data_set_with_another_size_stays_an_error() {
    let dir = Dir::small_with_data();
    dir.write(
        "data/train/img_07_of_24.npz",
        [dir.tree("data/train")["img_07_of_24.npz"].clone(), vec![0]].concat(),
    );
    dir.feedline(&RUN).run().exits(3).one_error().says("img_07_of_24.npz has").says("but the plan expects");
    assert!(SMALL.contains("num_files_train: 24"));
}
