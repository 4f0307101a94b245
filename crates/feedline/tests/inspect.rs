//! What `inspect` shows: every array with its shape and type, in all formats, as text of 80 columns and as JSON; and
//! csv files with a header line, which is not a sample.

use serde_json::{Value, json};

use crate::util::Dir;

/// The arrays of a file according to `inspect`, as the Python script describes them. Features have no order.
fn arrays(file: &Value) -> Vec<Value> {
    assert_eq!(file["more_arrays"], 0, "{file}");
    let listed = file["arrays"].as_array().unwrap();
    let mut arrays: Vec<Value> =
        listed.iter().map(|array| json!([array["name"], array["shape"], array["dtype"]])).collect();
    if file["format"] == "tfrecord" {
        arrays.sort_by_key(|array| array[0].to_string());
    }
    arrays
}

#[test]
fn arrays_of_other_writers_are_listed_with_shape_and_type() {
    let dir = Dir::new();
    let wanted = dir.python("arrays.py", &[]).run().exits(0).json();
    let wanted = wanted.as_object().unwrap();
    assert_eq!(wanted.len(), 10);
    let names: Vec<&str> = wanted.keys().map(String::as_str).collect();
    let found = dir.feedline(&["inspect", "--json"]).args(&names).run().exits(0).silent().json();
    for (file, name) in found["files"].as_array().unwrap().iter().zip(&names) {
        assert_eq!(Value::from(arrays(file)), wanted[*name], "{name}");
    }
    // As text, every line fits.
    let text = dir.feedline(&["inspect"]).args(&names).run().exits(0).silent().stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let start = text.find("stored.npz").unwrap();
    let shown: Vec<&str> = text[start..].lines().take(9).collect();
    let bytes = std::fs::metadata(dir.path("stored.npz")).unwrap().len();
    let first = format!("stored.npz: npz, {},{:03} bytes", bytes / 1000, bytes % 1000);
    assert_eq!(
        shown,
        [
            &*first,
            "  3 samples of 4 x 5 float32",
            "  array    type     shape",
            "  y        int64    3",
            "  x        float32  4 x 5 x 3",
            "  none     uint8    0 x 2",
            "  words    object   2",
            "  one      float64  scalar",
            "  fortran  int16    2 x 6",
        ]
    );
}

#[test]
fn hundreds_of_columns_fit_on_the_screen() {
    let dir = Dir::small();
    let columns: Vec<String> = (0..300)
        .map(|index| format!("{{name: a_column_with_quite_a_long_name_{index}, dtype: float64, size: 7}}"))
        .collect();
    let columns = format!("dataset.parquet.columns=[{}]", columns.join(", "));
    let settings = ["dataset.format=parquet", "dataset.num_samples_per_file=5", &columns];
    dir.feedline(&["generate", "w.yaml", "--quiet"]).set(&settings).run().exits(0);
    let file = "data/train/img_00_of_24.parquet";
    let inspect = |flags: &[&str]| dir.feedline(&["inspect", file]).args(flags).run().exits(0).silent();
    let text = inspect(&["--sample", "2"]).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("  a_column_with_...e_a_long_name_7  float64  5 x 7\n"), "{text}");
    assert!(text.contains("  and 280 more (--json lists up to 1,024)\n"), "{text}");
    let found = inspect(&["--json"]).json();
    let last = json!(["a_column_with_quite_a_long_name_299", [5, 7], "float64"]);
    assert_eq!(arrays(&found["files"][0]).last(), Some(&last));
}

/// A file with a header, three samples, and line ends of Windows.
const NAMED: &str = "id,\"x, y\",label\r\n10,0.5,cat\r\n11,0.25,dog\r\n12,0.125,a horse\r\n";

#[test]
fn the_header_line_of_a_csv_file_is_not_a_sample() {
    let dir = Dir::new();
    dir.write("data/a.csv", NAMED);
    let found = dir.feedline(&["inspect", "data/a.csv", "--json", "--sample", "0", "--sample", "2"]);
    let found = found.run().exits(0).silent().json()["files"].clone();
    assert_eq!((&found[0]["samples"], &found[0]["sample_dims"]), (&json!(3), &json!([3])));
    assert_eq!(found[0]["notes"], json!(["header line"]));
    let columns =
        [json!(["id", [3], "number"]), json!(["x, y", [3], "number"]), json!(["label", [3], "text"])];
    assert_eq!(arrays(&found[0]), columns);
    for (entry, line) in [(0, "10,0.5,cat\r\n"), (1, "12,0.125,a horse\r\n")] {
        let read = &found[0]["reads"][entry]["reads"][0];
        let at = NAMED.find(line).unwrap();
        assert_eq!(*read, json!({"offset": at, "len": line.len()}));
    }
    dir.feedline(&["inspect", "data/a.csv", "--sample", "3"]).run().exits(2).one_error().says("data/a.csv: ");
}

#[test]
fn a_run_on_csv_files_with_a_header_reads_only_the_samples() {
    let dir = Dir::new();
    for file in 0..4 {
        dir.write(&format!("data/train/part-{file}.csv"), NAMED);
    }
    dir.feedline(&["catalog", "data", "--quiet"]).run().exits(0);
    let workload = "dataset: {format: csv, data_folder: data, num_files_train: 4, num_samples_per_file: 3}\n\
                    reader: {batch_size: 3, access: extent, file_shuffle: off, sample_shuffle: off}\n\
                    train: {epochs: 1, computation_time: 0.001}\n\
                    output: {metric: {exclude_start_steps: 0, exclude_end_steps: 0}}\n";
    dir.write("w.yaml", workload);
    let done = dir.feedline(&["run", "w.yaml", "--quiet", "--cache", "as-is"]).run();
    assert!(matches!(done.code(), Some(0 | 5)), "{}", done.stderr);
    let ledger = dir.json(&format!("{}/ledger.json", dir.result()));
    let ranks = ledger["ranks"].as_array().unwrap();
    let bytes: u64 = ranks.iter().map(|rank| rank["seen"]["bytes_read"].as_u64().unwrap()).sum();
    let header = NAMED.find('\n').unwrap() + 1;
    // The file is searched for its lines once per visit, and the lines are then read.
    assert_eq!(bytes, 4 * (2 * NAMED.len() - header) as u64);
}
