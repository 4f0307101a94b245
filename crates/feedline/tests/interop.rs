//! Generated files in other libraries: numpy, h5py, TensorFlow, pyarrow, pandas and Pillow read every format that
//! feedline writes and find the planned shapes, types and values; sizes are exactly as planned. The interpreter comes
//! from scripts/test. Without it these tests fail, because a skipped test shows nothing.

use serde_json::{Value, json};

use crate::util::{Dir, TENSORFLOW};

const DTYPES: [&str; 12] = [
    "uint8", "bool", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "float32",
    "float64",
];

/// One data set: its settings, and the expected samples.
#[derive(Clone)]
struct Case {
    settings: Vec<String>,
    format: &'static str,
    dims: Option<Vec<u64>>,
    samples: u64,
    dtype: &'static str,
    compression: &'static str,
    /// Further facts for the Python script.
    more: Value,
}

impl Case {
    /// Files of one sample of 64 x 64 bytes each.
    fn new(format: &'static str) -> Case {
        let (dims, more) = (Some(vec![64, 64]), json!({}));
        Case { settings: Vec::new(), format, dims, samples: 1, dtype: "uint8", compression: "", more }
    }

    fn set(mut self, settings: &[&str]) -> Case {
        self.settings.extend(settings.iter().map(|&setting| setting.to_owned()));
        self
    }

    fn dims(mut self, dims: &[u64]) -> Case {
        self.dims = Some(dims.to_vec());
        self.set(&[&format!("dataset.record_dims={}", json!(dims))])
    }

    /// With dimensions other than those in the workload.
    fn any_dims(mut self) -> Case {
        self.dims = None;
        self
    }

    fn samples(mut self, samples: u64) -> Case {
        self.samples = samples;
        self
    }

    fn dtype(mut self, dtype: &'static str) -> Case {
        self.dtype = dtype;
        self
    }

    fn compressed(mut self, compression: &'static str) -> Case {
        self.compression = compression;
        self
    }

    fn chunks(mut self, dims: &[u64]) -> Case {
        self.more["chunk_dims"] = json!(dims);
        self.set(&[&format!("dataset.hdf5.chunk_dims={}", json!(dims))])
    }

    fn max_shape(mut self, dims: &[u64]) -> Case {
        self.more["max_shape"] = json!(dims);
        self.set(&[&format!("dataset.hdf5.max_shape={}", json!(dims))])
    }

    fn sets(mut self, sets: u64) -> Case {
        self.more["sets"] = json!(sets);
        self.set(&[&format!("dataset.hdf5.num_dset_per_record={sets}")])
    }

    fn group_rows(mut self, rows: u64) -> Case {
        self.more["group_rows"] = json!(rows);
        self.set(&[&format!("dataset.parquet.row_group_size={rows}")])
    }

    /// Columns as name, type and size. Columns whose name starts with an underscore are not read.
    fn columns(mut self, columns: &[(&str, &str, u64)]) -> Case {
        let columns: Vec<Value> = columns
            .iter()
            .map(|(name, dtype, size)| {
                json!({"name": name, "dtype": dtype, "size": size, "read": !name.starts_with('_')})
            })
            .collect();
        let words: Vec<String> = columns.iter().map(|column| column.to_string().replace('"', "")).collect();
        self.more["columns"] = Value::from(columns);
        self.set(&[&format!("dataset.parquet.columns=[{}]", words.join(",").replace(':', ": "))])
    }

    /// The settings for generating it, compressed or not.
    fn all_settings(&self, compressed: bool) -> Vec<String> {
        let mut settings = vec![
            format!("dataset.format={}", self.format),
            format!("dataset.num_samples_per_file={}", self.samples),
            format!("dataset.record_element_type={}", self.dtype),
            "dataset.num_files_train=3".to_owned(),
            "reader.batch_size=1".to_owned(),
            "output.metric.exclude_start_steps=0".to_owned(),
        ];
        if self.format == "tfrecord" {
            settings.extend(TENSORFLOW.iter().map(|&setting| setting.to_owned()));
        }
        if compressed {
            settings.push(format!("dataset.compression={}", self.compression));
        }
        settings.extend(self.settings.iter().cloned());
        settings
    }

    /// Generates the case and describes what should be found.
    fn describe(&self, dir: &Dir, folder: &str) -> Value {
        let generate = |settings: &[String], folder: &str| {
            let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
            dir.feedline(&["generate", "w.yaml", "--quiet", "--data-dir", folder])
                .set(&settings)
                .run()
                .exits(0);
            dir.feedline(&["plan", "w.yaml", "--json"]).set(&settings).run().exits(0).json()
        };
        let compressed = !self.compression.is_empty();
        let plan = generate(&self.all_settings(compressed), folder);
        let like = compressed.then(|| format!("{folder}-plain"));
        if let Some(like) = &like {
            generate(&self.all_settings(false), like);
        }
        let count = |split: &str| plan["data"][split]["names"]["count"].as_u64().unwrap();
        let mut described = json!({
            "folder": folder,
            "format": self.format,
            "files": count("train") + count("valid"),
            "bytes": plan["disk"]["needed_bytes"],
            "exact": plan["data"]["exact"],
            "dims": self.dims,
            "samples": self.samples,
            "dtype": self.dtype,
            "compression": self.compression,
            "like": like,
            "columns": [],
            "group_rows": 1024,
        });
        assert_eq!(described["exact"], !compressed, "{folder}");
        described.as_object_mut().unwrap().extend(self.more.as_object().unwrap().clone());
        described
    }
}

/// Generates every case and reads it with Python.
fn read_by_python(cases: &[Case]) {
    let dir = Dir::small();
    let described: Vec<Value> = cases
        .iter()
        .enumerate()
        .map(|(number, case)| case.describe(&dir, &format!("{}{number}", case.format)))
        .collect();
    let files: u64 = described.iter().map(|case| case["files"].as_u64().unwrap()).sum();
    dir.write("cases.json", Value::from(described).to_string());
    let done = dir.python("interop.py", &["cases.json"]).run().exits(0).silent();
    assert_eq!(done.stdout.trim(), files.to_string(), "number of files that were read");
}

/// Cases for every format that holds arrays.
fn arrays(format: &'static str) -> Vec<Case> {
    let case = || Case::new(format);
    let drawn = || case().any_dims().set(&["dataset.record_length_bytes_stdev=1500"]);
    let long = ["dataset.record_length_bytes=3000000"];
    let mut cases = vec![
        case(),
        case().set(&["dataset.num_files_eval=5", "dataset.num_subfolders_train=3"]),
        case().samples(7),
        drawn(),
        drawn().samples(3).dtype("float32"),
        case().any_dims().set(&["dataset.record_length_bytes=1"]),
        case().any_dims().set(&long),
        case().dims(&[10]).samples(2).dtype("float32"),
        case().dims(&[3, 5, 7, 2]).samples(2).dtype("int16"),
    ];
    cases.extend(DTYPES.map(|dtype| case().dims(&[20, 30]).samples(2).dtype(dtype)));
    cases
}

#[test]
fn numpy_loads_every_npz() {
    let zipped = |case: Case| case.compressed("zip");
    let mut cases = arrays("npz");
    cases.extend([
        zipped(Case::new("npz")),
        zipped(Case::new("npz").samples(3).dtype("float32")),
        zipped(Case::new("npz").any_dims().set(&["dataset.record_length_bytes_stdev=1500"])),
        zipped(Case::new("npz").set(&["dataset.compressible=0.5", "dataset.compression_level=9"])),
    ]);
    read_by_python(&cases);
}

#[test]
fn numpy_loads_every_npy() {
    read_by_python(&arrays("npy"));
}

#[test]
fn pandas_reads_every_csv() {
    let mut cases: Vec<Case> =
        arrays("csv").into_iter().filter(|case| case.dims.is_some() || case.samples == 3).collect();
    cases.push(Case::new("csv").samples(3).compressed("gzip"));
    read_by_python(&cases);
}

#[test]
fn h5py_reads_every_hdf5() {
    let case = || Case::new("hdf5");
    let mut cases = arrays("hdf5");
    cases.extend([
        case().dims(&[20, 30]).samples(5).chunks(&[2, 7, 11]),
        case().dims(&[20, 30]).samples(5).chunks(&[1, 20, 30]).dtype("float64"),
        case().dims(&[20, 30]).samples(5).max_shape(&[40, 30]),
        case().dims(&[20, 30]).samples(4).max_shape(&[40, 60]).chunks(&[1, 8, 8]),
        case().dims(&[20, 30]).samples(3).sets(4),
        case().dims(&[20, 30]).samples(3).sets(2).chunks(&[1, 10, 10]),
        case().dims(&[20, 30]).samples(3).compressed("gzip"),
        case().dims(&[20, 30]).samples(3).sets(2).dtype("int32").compressed("gzip"),
        case().dims(&[20, 30]).samples(5).chunks(&[2, 7, 11]).compressed("gzip"),
        case().dims(&[50, 60]).samples(12).chunks(&[1, 5, 6]).dtype("uint16"),
    ]);
    read_by_python(&cases);
}

#[test]
fn tensorflow_reads_every_tfrecord() {
    read_by_python(&arrays("tfrecord"));
}

#[test]
fn an_index_leads_to_every_sample() {
    let mut cases = arrays("indexed_binary");
    cases.extend(arrays("mmap_indexed_binary"));
    cases.push(Case::new("synthetic").samples(4));
    read_by_python(&cases);
}

const EVERY_COLUMN: [(&str, &str, u64); 20] = [
    ("a", "uint8", 1),
    ("b", "uint16", 1),
    ("c", "uint32", 1),
    ("d", "uint64", 1),
    ("e", "int8", 1),
    ("f", "int16", 1),
    ("_unread", "int32", 1),
    ("h", "int64", 1),
    ("i", "float16", 1),
    ("j", "float32", 1),
    ("k", "float64", 1),
    ("l", "string", 1),
    ("m", "binary", 13),
    ("n", "bool", 1),
    ("o", "list", 6),
    ("p", "uint8", 40),
    ("_unread too", "float16", 9),
    ("r", "int64", 3),
    ("s", "float64", 5),
    ("t", "bool", 11),
];

fn tables(format: &'static str) -> Vec<Case> {
    let case = || Case::new(format);
    let mut cases = arrays(format);
    cases.extend([
        case().samples(25).columns(&EVERY_COLUMN),
        case().samples(25).columns(&EVERY_COLUMN).group_rows(10),
        case().samples(6).group_rows(2),
        case().samples(5).group_rows(1).dtype("float32"),
        case().samples(1).columns(&[("x", "float32", 1)]),
        case()
            .samples(3000)
            .columns(&[("x", "uint8", 1), ("y", "int64", 1), ("z", "string", 1)])
            .group_rows(1000),
        case().samples(3).columns(&[("x", "uint8", 100_000), ("y", "float32", 100_000)]).group_rows(2),
    ]);
    cases
}

#[test]
fn pyarrow_reads_every_parquet() {
    let mut cases = tables("parquet");
    for codec in ["snappy", "zstd", "lz4", "gzip"] {
        cases.push(Case::new("parquet").samples(25).columns(&EVERY_COLUMN).group_rows(10).compressed(codec));
        cases.push(Case::new("parquet").samples(3).compressed(codec).set(&["dataset.compressible=0.6"]));
    }
    read_by_python(&cases);
}

#[test]
fn pyarrow_reads_every_arrow() {
    read_by_python(&tables("arrow"));
}

fn pillow_decodes(format: &'static str) {
    let picture = |settings: &[&str]| Case::new(format).any_dims().set(settings);
    read_by_python(&[
        picture(&["dataset.record_length_bytes=900"]),
        picture(&["dataset.record_length_bytes=4096", "dataset.num_files_eval=4"]),
        picture(&["dataset.record_length_bytes=115600"]),
        picture(&["dataset.record_length_bytes=322957", "dataset.record_length_bytes_stdev=60000"]),
        picture(&["dataset.record_length_bytes=5000000", "dataset.num_files_train=2"]),
        picture(&["dataset.record_dims=[100,300]"]),
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
    // Padding to an exact size is error-prone: this tests consecutive sizes from the smallest on, and for png also
    // sizes around which one block of pixels becomes two.
    let jpegs = (0..40).map(|extra| ("jpeg", 850 + 13 * extra));
    let pngs = (98..118).chain((0..20).map(|extra| 65_620 + 3 * extra)).map(|bytes| ("png", bytes));
    let cases: Vec<Case> = jpegs
        .chain(pngs)
        .map(|(format, bytes)| {
            let dims = format!("dataset.record_dims=[1,{bytes}]");
            Case::new(format).any_dims().set(&[&dims, "dataset.num_files_train=2"])
        })
        .collect();
    read_by_python(&cases);
}
