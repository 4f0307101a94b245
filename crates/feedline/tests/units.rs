//! Sizes, times and shares: the same forms in flags, overrides and workload files, and what is refused.

use serde_json::json;

use crate::util::Dir;

#[test]
fn keys_take_numbers_with_units() {
    let dir = Dir::small();
    for (setting, pointer, value) in [
        ("train.computation_time=5ms", "/train/compute/constant", json!(0.005)),
        ("train.computation_time=0.25", "/train/compute/constant", json!(0.25)),
        ("train.computation_time={mean: 2ms, stdev: 500us}", "/train/compute/normal/stdev", json!(0.0005)),
        ("metric.au=9/10", "/metric/au_target", json!(0.9)),
        ("metric.au=50%", "/metric/au_target", json!(0.5)),
        ("dataset.record_length_bytes=64k", "/metric/record_length_bytes", json!(65536.0)),
        ("dataset.record_length_bytes=64kB", "/metric/record_length_bytes", json!(64000.0)),
        ("dataset.record_length_bytes=1.5KiB", "/metric/record_length_bytes", json!(1536.0)),
        ("dataset.record_length_bytes=4096", "/metric/record_length_bytes", json!(4096.0)),
    ] {
        let plan = dir.feedline(&["plan", "w.yaml", "--json"]).set(&[setting]).run().exits(0).json();
        assert_eq!(plan.pointer(pointer), Some(&value), "{setting}");
        // The same in the file.
        let (key, text) = setting.split_once('=').unwrap();
        let (section, name) = key.split_once('.').unwrap();
        let data = if section == "dataset" { "" } else { "dataset: {format: npz, num_files_train: 24}\n" };
        let inner = if section == "dataset" { "format: npz, num_files_train: 24, " } else { "" };
        dir.write("f.yaml", format!("framework: pytorch\n{data}{section}: {{{inner}{name}: {text}}}\n"));
        let plan = dir.feedline(&["plan", "f.yaml", "--json"]).run().exits(0).json();
        assert_eq!(plan.pointer(pointer), Some(&value), "{setting} in a file");
    }
}

#[test]
fn flags_take_numbers_with_units() {
    let dir = Dir::small();
    for (size, bytes) in [("256G", 256u64 << 30), ("256GiB", 256 << 30), ("64GB", 64_000_000_000)] {
        let plan = dir.feedline(&["plan", "w.yaml", "--json", "--host-memory", size]).run().exits(0).json();
        assert_eq!(plan["host_memory_bytes"], bytes, "{size}");
    }
    for share in ["1/4", "0.25", "25%"] {
        let plan = dir.feedline(&["plan", "llama3_8b", "--json", "--scale", share]).run().exits(0).json();
        assert_eq!(
            plan["checkpoint"]["geometry"]["scale"],
            json!({ "numerator": 1, "denominator": 4 }),
            "{share}"
        );
    }
}

#[test]
fn a_time_in_a_flag_needs_a_unit() {
    let dir = Dir::small();
    let run = |flags: &[&str]| dir.feedline(&["run", "w.yaml", "--store", "null"]).args(flags).run().exits(2);
    run(&["--advise", "24"]).says("'24' needs a unit: 24s, 24m or 24h");
    run(&["--stall-timeout", "90"]).says("'90' needs a unit: 90s");
    run(&["--stall-timeout", "90x"]).says("unknown unit");
    run(&["--stall-timeout=-5s"]).says("negative");
    run(&["--memory", "4Q"]).says("4KiB");
    run(&["--memory", "999999999P"]).says("too large");
    run(&["--scale", "half"]).says("0.5, 1/64 or 50%");
}

#[test]
fn a_wrong_unit_in_a_key_names_the_forms() {
    let dir = Dir::small();
    for (setting, says) in [
        ("reader.transfer_size=4Q", "4k, 4KiB, 1.5GiB"),
        ("reader.transfer_size=-4k", "negative or too large"),
        ("reader.transfer_size=100", "an integer from 512"),
        ("train.computation_time=5parsec", "ns, us, ms, s, m, h and d"),
        ("reader.stall_timeout=5 lightyears", "ns, us, ms, s, m, h and d"),
        ("dataset.compressible=2/1", "0.5, 1/64 or 50%"),
    ] {
        dir.feedline(&["plan", "w.yaml"]).set(&[setting]).run().exits(2).one_error().says(says);
    }
}
