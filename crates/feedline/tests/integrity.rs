//! Data that was read is compared with what was written: damaged, swapped and stale files are found and named, with the
//! expected content and the file that the bytes belong to.

use std::fs;

use crate::util::{Dir, file_stores};

/// Outcome and evidence of the rule about the data.
fn data_verified(dir: &Dir) -> (String, String) {
    let summary = dir.json(&format!("{}/summary.json", dir.result()));
    let rules = summary["feedline"]["verdict"]["rules"].as_array().unwrap().clone();
    let rule = rules.iter().find(|rule| rule["rule"] == "data-verified").unwrap();
    (rule["outcome"].as_str().unwrap().to_owned(), rule["evidence"].as_str().unwrap().to_owned())
}

/// 6,250 small images.
const MANY: &str = "\
framework: pytorch
dataset: {format: jpeg, data_folder: data, num_files_train: 6250, record_length_bytes: 4000}
reader: {data_loader: pytorch, batch_size: 25, read_threads: 2, file_shuffle: seed}
train: {epochs: 1, computation_time: 0}
";

fn name(file: u64) -> String {
    format!("data/train/img_{file:04}_of_6250.jpeg")
}

fn flip(dir: &Dir, name: &str, offset: usize) {
    let mut bytes = fs::read(dir.path(name)).unwrap();
    bytes[offset] ^= 0x01;
    dir.write(name, bytes);
}

#[test]
fn one_bad_file_of_6250_is_found_and_named() {
    let dir = Dir::new();
    dir.write("w.yaml", MANY);
    dir.feedline(&["generate", "w.yaml", "--quiet"]).run().exits(0);
    let run =
        |how: &str| dir.feedline(&["run", "w.yaml", "--quiet", "--no-calibration", "--verify", how]).run();
    let good = |file: u64| fs::read(dir.path(&name(file))).unwrap();

    let (short, swapped, stale) = (good(4321), good(777), good(5000));
    dir.write(&name(4321), &short[..short.len() - 1]);
    run("sample").exits(4).says("img_4321_of_6250.jpeg").says("is too short");
    dir.write(&name(4321), &short);

    flip(&dir, &name(6001), 2345);
    run("full")
        .exits(4)
        .says("data/train/img_6001_of_6250.jpeg differs from what was written, from offset 2345 on")
        .says("(seed 123, file 6001, offset 2345)");
    flip(&dir, &name(6001), 2345);

    dir.write(&name(777), good(778));
    run("sample")
        .exits(4)
        .says("data/train/img_0777_of_6250.jpeg differs from what was written")
        .says("(seed 123, file 777, offset ")
        .says("it holds the content of file 778, train/img_0778_of_6250.jpeg");
    dir.write(&name(777), &swapped);

    let other = Dir::new();
    other.write("w.yaml", MANY);
    other.feedline(&["generate", "w.yaml", "--quiet", "--set", "train.seed=7"]).run().exits(0);
    dir.write(&name(5000), fs::read(other.path(&name(5000))).unwrap());
    run("sample").exits(4).says("img_5000_of_6250.jpeg").says("it holds the content of seed 7");
    dir.write(&name(5000), &stale);

    // Runs that ended with an error have also left results.
    fs::remove_dir_all(dir.path("feedline-results")).unwrap();
    run("full").ran();
    let (outcome, evidence) = data_verified(&dir);
    assert_eq!(outcome, "pass", "{evidence}");
    assert!(evidence.starts_with("6,250 fetches, 23.7 MiB of 23.7 MiB compared"), "{evidence}");
}

/// Every format, plain and compressed, with settings for a small data set.
pub(crate) const FORMATS: &[(&str, &[&str])] = &[
    ("npz", &[]),
    ("npy", &[]),
    ("jpeg", &[]),
    ("png", &[]),
    ("csv", &[]),
    ("indexed_binary", &[]),
    ("mmap_indexed_binary", &[]),
    ("raw", &["dataset.num_samples_per_file=3"]),
    (
        "tfrecord",
        &["framework=tensorflow", "reader.data_loader=tensorflow", "dataset.num_samples_per_file=3"],
    ),
    ("hdf5", &["dataset.num_samples_per_file=3"]),
    ("hdf5", &["dataset.num_samples_per_file=3", "dataset.hdf5.chunk_dims=[16,16]"]),
    ("parquet", &["dataset.num_samples_per_file=30", "dataset.parquet.row_group_size=7"]),
    ("arrow", &["dataset.num_samples_per_file=30", "dataset.parquet.row_group_size=7"]),
    ("npz", &["dataset.compression=zip", "dataset.compressible=0.5"]),
    ("hdf5", &["dataset.compression=gzip", "dataset.compressible=0.5"]),
    ("csv", &["dataset.compression=gzip"]),
    ("parquet", &["dataset.compression=snappy"]),
    ("parquet", &["dataset.compression=zstd"]),
    ("parquet", &["dataset.compression=lz4"]),
    ("parquet", &["dataset.compression=gzip"]),
];

#[test]
fn the_list_has_every_format_with_every_compression() {
    for kind in format::KINDS {
        if !format::plain(kind.name).unwrap().holds_samples() {
            continue;
        }
        let listed = |compression: Option<&str>| {
            FORMATS.iter().filter(|(name, _)| *name == kind.name).any(|(_, settings)| {
                compression == settings.iter().find_map(|set| set.strip_prefix("dataset.compression="))
            })
        };
        assert!(listed(None), "{} is not in FORMATS", kind.name);
        for compression in kind.compressions {
            assert!(listed(Some(*compression)), "{} with {compression} is not in FORMATS", kind.name);
        }
    }
}

#[test]
fn one_flipped_byte_is_found_in_every_format() {
    for &(format, settings) in FORMATS {
        let dir = Dir::small();
        let mut flags = vec!["--set".to_owned(), format!("dataset.format={format}")];
        for setting in settings {
            flags.extend(["--set".to_owned(), (*setting).to_owned()]);
        }
        let feedline = |first: &[&str]| {
            let mut command: Vec<&str> = first.to_vec();
            command.extend(flags.iter().map(String::as_str));
            dir.feedline(&command).run()
        };
        let run = |how| feedline(&["run", "w.yaml", "--quiet", "--no-calibration", "--verify", how]);
        feedline(&["run", "w.yaml", "--generate", "--quiet", "--no-calibration"]).ran();
        let (outcome, evidence) = data_verified(&dir);
        let compressed = settings.iter().any(|setting| setting.starts_with("dataset.compression="));
        let expected = if compressed { "not-checkable" } else { "pass" };
        assert_eq!(outcome, expected, "{format} {settings:?}: {evidence}");
        fs::remove_dir_all(dir.path("feedline-results")).unwrap();
        run("full").ran();
        let (outcome, evidence) = data_verified(&dir);
        assert_eq!(outcome, "pass", "{format} {settings:?}: {evidence}");
        // The middle of a file is content in every format.
        let files = dir.tree("data/train");
        let (name, bytes) =
            files.iter().find(|(name, _)| name.contains("_07_") && !name.ends_with(".idx")).unwrap();
        flip(&dir, &format!("data/train/{name}"), bytes.len() / 2);
        run("full").exits(4).says(&format!("data/train/{name} differs from what was written"));
    }
}

#[test]
fn a_flipped_byte_is_found_with_every_backend() {
    let dir = Dir::small_with_data();
    flip(&dir, "data/train/img_11_of_24.npz", 3000);
    for store in file_stores() {
        let flags = ["--no-calibration", "--verify", "full", "--store", store];
        let said = dir.feedline(&["run", "w.yaml", "--quiet"]).args(&flags).run();
        match said.code() {
            // Unavailable on this file system or with this kernel.
            Some(3) => said.says("--store posix"),
            _ => said.exits(4).says("img_11_of_24.npz differs from what was written, from offset 3000 on"),
        };
    }
}

#[test]
fn missing_comparisons_are_reported() {
    let dir = Dir::small_with_data();
    let run = |flags: &[&str]| {
        dir.feedline(&["run", "w.yaml", "--quiet", "--no-calibration"]).args(flags).run().ran();
        let found = data_verified(&dir);
        fs::remove_dir_all(dir.path("feedline-results")).unwrap();
        found
    };
    assert_eq!(run(&["--verify", "none"]).0, "not-checkable");
    assert_eq!(run(&["--store", "null"]).0, "not-checkable");

    // Without a manifest, the files count as existing files.
    fs::remove_dir_all(dir.path("data/.feedline")).unwrap();
    let (outcome, evidence) = run(&[]);
    assert_eq!(
        (outcome.as_str(), evidence.contains("sizes were taken as found")),
        ("note", true),
        "{evidence}"
    );
    assert_eq!(run(&["--verify", "full"]).0, "not-checkable");
}

#[test]
fn generated_files_are_verified_through_a_catalog_too() {
    let dir = Dir::small_with_data();
    dir.feedline(&["catalog", "data", "--suffix", ".npz", "--quiet"]).run().exits(0);
    dir.feedline(&["run", "w.yaml", "--quiet", "--no-calibration"]).run().ran();
    let (outcome, evidence) = data_verified(&dir);
    assert_eq!(outcome, "pass", "{evidence}");
}

#[test]
fn the_cost_is_reported_separately_and_a_wrong_value_is_refused() {
    let dir = Dir::small_with_data();
    dir.feedline(&["run", "w.yaml", "--quiet", "--no-calibration", "--set", "reader.verify=full"])
        .run()
        .ran();
    let summary = dir.json(&format!("{}/summary.json", dir.result()));
    let checked = &summary["feedline"]["checked"];
    assert_eq!((&checked["verify"], &checked["fetches"]), (&"full".into(), &48.into()), "{checked}");
    assert!(
        checked["seconds"].as_f64().unwrap() > 0.0 && checked["cpu_share_most"].as_f64().is_some(),
        "{checked}"
    );
    let epochs = summary["feedline"]["epochs"].as_array().unwrap();
    let bytes: u64 = epochs.iter().map(|epoch| epoch["bytes_read"].as_u64().unwrap()).sum();
    assert_eq!(checked["bytes"], bytes, "every byte that was read");
    dir.feedline(&["run", "w.yaml", "--verify", "some"]).run().exits(2).says("none, sample, full");
}
