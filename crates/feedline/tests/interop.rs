//! What others make of our files: numpy loads every npz, Pillow decodes every jpeg, sizes are exactly as planned. The
//! interpreter comes from scripts/test; without it these tests fail, because a test that is skipped shows nothing.

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

fn npz(settings: &[&str], dims: Option<&[u64]>, samples: u64, dtype: &'static str) -> Case {
    let mut settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
    settings.push("dataset.format=npz".to_owned());
    settings.push(format!("dataset.num_samples_per_file={samples}"));
    settings.push(format!("dataset.record_element_type={dtype}"));
    Case { settings, format: "npz", dims: dims.map(<[u64]>::to_vec), samples, dtype }
}

fn jpeg(settings: &[&str]) -> Case {
    let mut settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
    settings.push("dataset.format=jpeg".to_owned());
    Case { settings, format: "jpeg", dims: None, samples: 1, dtype: "uint8" }
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

#[test]
fn numpy_loads_every_npz() {
    let mut cases = vec![
        npz(&[], Some(&[64, 64]), 1, "uint8"),
        npz(&["dataset.num_files_eval=5", "dataset.num_subfolders_train=3"], Some(&[64, 64]), 1, "uint8"),
        npz(&[], Some(&[64, 64]), 7, "uint8"),
        npz(&["dataset.record_length_bytes_stdev=1500"], None, 1, "uint8"),
        npz(&["dataset.record_length_bytes_stdev=1500"], None, 3, "float32"),
        npz(&["dataset.record_length_bytes=1"], Some(&[1, 1]), 1, "uint8"),
        npz(
            &["dataset.record_length_bytes=3000000", "dataset.num_files_train=3"],
            Some(&[1732, 1732]),
            1,
            "uint8",
        ),
        npz(&["dataset.record_dims=[10]"], Some(&[10]), 2, "float32"),
        npz(&["dataset.record_dims=[3,5,7,2]"], Some(&[3, 5, 7, 2]), 2, "int16"),
    ];
    for dtype in [
        "bool", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "float32",
        "float64",
    ] {
        cases.push(npz(&["dataset.record_dims=[20,30]"], Some(&[20, 30]), 2, dtype));
    }
    read_by_python(&cases);
}

#[test]
fn pillow_decodes_every_jpeg() {
    read_by_python(&[
        jpeg(&["dataset.record_length_bytes=900"]),
        jpeg(&["dataset.record_length_bytes=4096", "dataset.num_files_eval=4"]),
        jpeg(&["dataset.record_length_bytes=115600"]),
        jpeg(&["dataset.record_length_bytes=322957", "dataset.record_length_bytes_stdev=60000"]),
        jpeg(&["dataset.record_length_bytes=5000000", "dataset.num_files_train=2"]),
        jpeg(&["dataset.record_dims=[100,300]"]),
    ]);
}

#[test]
fn sizes_byte_by_byte_are_decodable() {
    // Padding to an exact size is where such writers go wrong: a stretch of sizes, one after another.
    let cases: Vec<Case> = (0..40)
        .map(|extra| {
            let dims = format!("dataset.record_dims=[1,{}]", 850 + 13 * extra);
            jpeg(&[&dims, "dataset.num_files_train=2"])
        })
        .collect();
    read_by_python(&cases);
}
