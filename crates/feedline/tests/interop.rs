//! What others make of our files: numpy loads every npz and npy, Pillow decodes every jpeg and png, sizes are
//! exactly as planned. The interpreter comes from scripts/test; without it these tests fail, because a test that
//! is skipped shows nothing.

use std::path::Path;

use serde_json::{Value, json};

use crate::util::Dir;

/// One data set: settings, and what is expected of its arrays.
struct Case {
    settings: Vec<String>,
    format: &'static str,
    dims: Option<Vec<u64>>,
    samples: u64,
    dtype: &'static str,
}

fn array(
    format: &'static str,
    settings: &[&str],
    dims: Option<&[u64]>,
    samples: u64,
    dtype: &'static str,
) -> Case {
    let mut settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
    settings.push(format!("dataset.format={format}"));
    settings.push(format!("dataset.num_samples_per_file={samples}"));
    settings.push(format!("dataset.record_element_type={dtype}"));
    Case { settings, format, dims: dims.map(<[u64]>::to_vec), samples, dtype }
}

fn picture(format: &'static str, settings: &[&str]) -> Case {
    let mut settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
    settings.push(format!("dataset.format={format}"));
    Case { settings, format, dims: None, samples: 1, dtype: "uint8" }
}

/// Generates every case and lets Python read it all.
fn read_by_python(cases: &[Case]) {
    let python = std::env::var("FEEDLINE_TEST_PYTHON")
        .expect("FEEDLINE_TEST_PYTHON is not set: run scripts/test, which makes the virtual environment");
    let dir = Dir::small();
    let mut files = 0;
    let descriptions: Vec<Value> = cases
        .iter()
        .enumerate()
        .map(|(number, case)| {
            let folder = format!("data{number}");
            let described = describe(&dir, &folder, case);
            files += described["files"].as_u64().unwrap();
            described
        })
        .collect();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop.py");
    let args = [script, &Value::from(descriptions).to_string()];
    let done = dir.command(Path::new(&python), &args).run().exits(0).silent();
    assert_eq!(done.stdout.trim(), files.to_string(), "files that were read");
}

/// Generates a case and says what is to be found.
fn describe(dir: &Dir, folder: &str, case: &Case) -> Value {
    let mut settings: Vec<&str> = case.settings.iter().map(String::as_str).collect();
    settings.extend(["reader.batch_size=1", "output.metric.exclude_start_steps=0"]);
    let plan = dir.feedline(&["plan", "w.yaml", "--json"]).set(&settings).run().exits(0).json();
    dir.feedline(&["generate", "w.yaml", "--quiet", "--data-dir", folder]).set(&settings).run().exits(0);
    let count = |split: &str| plan["data"][split]["names"]["count"].as_u64().unwrap();
    json!({
        "folder": folder,
        "format": case.format,
        "files": count("train") + count("valid"),
        "bytes": plan["disk"]["needed_bytes"],
        "dims": case.dims,
        "samples": case.samples,
        "dtype": case.dtype,
    })
}

fn numpy_loads(format: &'static str) {
    let eval_and_folders = ["dataset.num_files_eval=5", "dataset.num_subfolders_train=3"];
    let long = ["dataset.record_length_bytes=3000000", "dataset.num_files_train=3"];
    let drawn = ["dataset.record_length_bytes_stdev=1500"];
    let mut cases = vec![
        array(format, &[], Some(&[64, 64]), 1, "uint8"),
        array(format, &eval_and_folders, Some(&[64, 64]), 1, "uint8"),
        array(format, &[], Some(&[64, 64]), 7, "uint8"),
        array(format, &drawn, None, 1, "uint8"),
        array(format, &drawn, None, 3, "float32"),
        array(format, &["dataset.record_length_bytes=1"], Some(&[1, 1]), 1, "uint8"),
        array(format, &long, Some(&[1732, 1732]), 1, "uint8"),
        array(format, &["dataset.record_dims=[10]"], Some(&[10]), 2, "float32"),
        array(format, &["dataset.record_dims=[3,5,7,2]"], Some(&[3, 5, 7, 2]), 2, "int16"),
    ];
    for dtype in [
        "bool", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "float32",
        "float64",
    ] {
        cases.push(array(format, &["dataset.record_dims=[20,30]"], Some(&[20, 30]), 2, dtype));
    }
    read_by_python(&cases);
}

#[test]
fn numpy_loads_every_npz() {
    numpy_loads("npz");
}

#[test]
fn numpy_loads_every_npy() {
    numpy_loads("npy");
}

fn pillow_decodes(format: &'static str) {
    read_by_python(&[
        picture(format, &["dataset.record_length_bytes=900"]),
        picture(format, &["dataset.record_length_bytes=4096", "dataset.num_files_eval=4"]),
        picture(format, &["dataset.record_length_bytes=115600"]),
        picture(format, &["dataset.record_length_bytes=322957", "dataset.record_length_bytes_stdev=60000"]),
        picture(format, &["dataset.record_length_bytes=5000000", "dataset.num_files_train=2"]),
        picture(format, &["dataset.record_dims=[100,300]"]),
    ]);
}

#[test]
fn pillow_decodes_every_jpeg() {
    pillow_decodes("jpeg");
}

#[test]
fn pillow_decodes_every_png() {
    pillow_decodes("png");
}

#[test]
fn sizes_byte_by_byte_are_decodable() {
    // Padding to an exact size is where such writers go wrong: a stretch of sizes, one after another, from the
    // smallest on, and for png also where one block of pixels becomes two.
    let jpegs = (0..40).map(|extra| ("jpeg", 850 + 13 * extra));
    let pngs = (98..118).chain((0..20).map(|extra| 65_620 + 3 * extra)).map(|bytes| ("png", bytes));
    let cases: Vec<Case> = jpegs
        .chain(pngs)
        .map(|(format, bytes)| {
            let dims = format!("dataset.record_dims=[1,{bytes}]");
            picture(format, &[&dims, "dataset.num_files_train=2"])
        })
        .collect();
    read_by_python(&cases);
}
