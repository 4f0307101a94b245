//! Existing files: numpy, h5py, TensorFlow, pyarrow, pandas and Pillow write files with many options; `inspect` finds
//! the samples in them, and a run over a catalogued folder delivers each sample once.

use serde_json::Value;

use crate::util::{Dir, TENSORFLOW, outcome};

const WORKLOAD: &str = "
model: {name: foreign}
framework: pytorch
dataset: {data_folder: data}
reader: {data_loader: pytorch, batch_size: 1, read_threads: 2, sample_shuffle: seed}
train: {epochs: 2, computation_time: 0}
";

/// Checks files of one format, written by its library, in one folder for each number of samples.
fn is_read(format: &str, suffixes: &[&str]) {
    let dir = Dir::new();
    dir.write("w.yaml", WORKLOAD);
    let made = dir.python("foreign.py", &[format, "data"]).run().exits(0).silent();
    let mut files = 0;
    for folder in std::fs::read_dir(dir.path("data")).unwrap() {
        let samples = folder.unwrap().file_name().into_string().unwrap();
        let folder = format!("data/{samples}");
        let suffixes: Vec<&str> = suffixes.iter().flat_map(|&suffix| ["--suffix", suffix]).collect();
        let listed = dir.feedline(&["catalog", &folder, "--quiet", "--json"]).args(&suffixes).run().exits(0);
        let count = listed.json()["files"].as_u64().unwrap();
        files += count;
        for access in ["framework", "extent"] {
            trains_once(&dir, format, &folder, access, (count, &samples));
        }
    }
    assert_eq!(made.stdout.trim(), files.to_string(), "number of catalogued files");
}

/// Checks two epochs over this number of files with this number of samples each.
fn trains_once(dir: &Dir, format: &str, folder: &str, access: &str, (files, samples): (u64, &str)) {
    let settings = [
        format!("dataset.format={format}"),
        format!("dataset.num_samples_per_file={samples}"),
        format!("reader.access={access}"),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let loader: &[&str] = if format == "tfrecord" { &TENSORFLOW } else { &[] };
    let args = ["run", "w.yaml", "--quiet", "--json", "--no-calibration", "--data-dir", folder];
    let done = dir.feedline(&args).set(&settings).set(loader).run().ran();
    let summary = done.json();
    for rule in ["complete", "exactly-once", "bytes-as-planned", "order-differs"] {
        assert_ne!(outcome(&summary, rule), "fail", "{folder}, {access}: {rule}");
    }
    let expected = files * samples.parse::<u64>().unwrap();
    let epochs = summary["feedline"]["epochs"].as_array().unwrap();
    let delivered: Vec<&Value> = epochs.iter().map(|epoch| &epoch["samples_delivered"]).collect();
    assert_eq!(delivered, [expected, expected], "{folder}, {access}");
}

#[test]
fn npz_of_numpy_is_read() {
    is_read("npz", &[".npz"]);
}

#[test]
fn npy_of_numpy_is_read() {
    is_read("npy", &[".npy"]);
}

#[test]
fn hdf5_of_h5py_is_read() {
    is_read("hdf5", &[".h5"]);
}

#[test]
fn jpeg_of_pillow_is_read() {
    is_read("jpeg", &[".jpg"]);
}

#[test]
fn png_of_pillow_is_read() {
    is_read("png", &[".png"]);
}

#[test]
fn csv_of_pandas_is_read() {
    is_read("csv", &[".csv", ".csv.gz"]);
}

#[test]
fn tfrecord_of_tensorflow_is_read() {
    is_read("tfrecord", &[".tfrecords"]);
}

#[test]
fn parquet_of_pyarrow_is_read() {
    is_read("parquet", &[".parquet"]);
}

#[test]
fn arrow_of_pyarrow_is_read() {
    is_read("arrow", &[".arrow"]);
}
