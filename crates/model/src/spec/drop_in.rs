//! Every key that DLIO, its documentation, its packaged workloads or mlpstorage can send, as typed on a command line,
//! with the reaction: nothing is dropped silently. `drop_in.txt` has one argument and its reaction per line.

use super::{Override, ReadRules, Spec, UnknownKeys, WorkloadSource, read_with};

/// Keys have an effect if they change this.
const BASE: &str = "
framework: pytorch
workflow: {checkpoint: true}
dataset: {format: npz, num_files_train: 64, num_files_eval: 8}
reader: {data_loader: pytorch}
";

const RULES: ReadRules =
    ReadRules { unknown_keys: UnknownKeys::Report, dlio_keys: super::DLIO_NUMBERS, objects: false };

fn base() -> Spec {
    read_with(WorkloadSource { name: "config.yaml", text: BASE }, &[], RULES).unwrap().spec
}

/// What happens with arguments: `error`, `effect`, `notice`, `effect and notice`, or `silent`.
fn reaction(arguments: &[String]) -> String {
    let overrides: Vec<Override> = arguments.iter().map(|text| Override::hydra(text, text)).collect();
    let source = WorkloadSource { name: "config.yaml", text: BASE };
    let Ok(read) = read_with(source, &overrides, RULES) else { return "error".into() };
    let key =
        |text: &str| text.trim_start_matches("++workload.").split('=').next().unwrap_or_default().to_owned();
    let said: Vec<String> = read.warnings.iter().map(ToString::to_string).collect();
    let is_named = said.iter().any(|text| text.contains(&key(&arguments[0])));
    match (read.spec != base(), is_named) {
        (true, true) => "effect and notice",
        (true, false) => "effect",
        (false, true) => "notice",
        (false, false) => "silent",
    }
    .into()
}

#[test]
fn every_key_has_its_effect_a_notice_or_an_error() {
    let lines = include_str!("drop_in.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let mut wrong = String::new();
    let mut count = 0;
    for line in lines {
        let (arguments, expected) = line.split_once(" -> ").unwrap_or_else(|| panic!("{line}: no ' -> '"));
        let arguments: Vec<String> =
            arguments.split(' ').map(|argument| format!("++workload.{argument}")).collect();
        let found = reaction(&arguments);
        if found != expected {
            wrong.push_str(&format!("{line}  (found: {found})\n"));
        }
        count += 1;
    }
    assert!(count > 200, "{count} keys");
    assert!(wrong.is_empty(), "{wrong}");
}

/// A row of the table that no line mentions may be sent as well.
#[test]
fn every_known_key_has_a_line() {
    let lines: Vec<&str> = include_str!("drop_in.txt").lines().collect();
    let ours = |key: &str| {
        OURS.iter().any(|own| key == *own || own.strip_suffix('*').is_some_and(|own| key.starts_with(own)))
    };
    for row in super::rows().filter(|row| !ours(row.key)) {
        assert!(
            lines.iter().any(|line| line.starts_with(&format!("{}=", row.key))),
            "{} has no line",
            row.key
        );
    }
}

/// Keys that only feedline has.
const OURS: &[&str] = &[
    "compat.*",
    "sweep.*",
    "storage.store",
    "storage.endpoint_count",
    "storage.account",
    "storage.account_key",
    "storage.sas_token",
    "storage.anonymous",
    "storage.ca_bundle",
    "storage.proxy",
    "storage.requests_in_flight",
    "storage.part_size",
    "storage.parts_in_flight",
    "storage.retry_attempts",
    "storage.retry_deadline",
    "storage.silence_timeout",
    "output.strict",
    "dataset.catalog",
    "dataset.size_law",
    "dataset.size_sigma",
    "dataset.compressible",
    "reader.max_auto_threads",
    "reader.requests",
    "reader.rereads",
    "reader.opens_per_sample",
    "reader.stats_per_sample",
    "reader.in_flight_limit",
    "reader.start_time",
    "reader.start_once",
    "reader.access",
    "reader.readahead",
    "reader.cache",
    "reader.cache_proof",
    "reader.drop_caches",
    "reader.retain",
    "reader.verify",
    "reader.ordered",
    "reader.interleave_cycle",
    "reader.interleave_block",
    "reader.preprocess",
    "reader.preprocess_bytes",
    "reader.preprocess_threads",
    "reader.preprocess_slow_share",
    "reader.preprocess_slow_factor",
    "reader.on_error",
    "reader.error_limit",
    "reader.stall_timeout",
    "train.handover_time",
    "train.handover_time_stdev",
    "train.device_copy_rate",
    "train.device_prefetch",
    "checkpoint.mode_of_save",
    "checkpoint.store",
    "checkpoint.burst_folder",
    "checkpoint.burst_store",
    "checkpoint.burst_slots",
    "checkpoint.drain_rate",
    "checkpoint.pool_size",
    "checkpoint.keep_last",
    "checkpoint.files_in_flight",
    "checkpoint.chunk_size",
    "checkpoint.serialize_time",
];

#[test]
fn a_folder_may_be_empty() {
    let empty = Override::hydra("++workload.dataset.data_folder=", "++workload.dataset.data_folder=");
    let source = WorkloadSource { name: "config.yaml", text: BASE };
    let read = read_with(source, &[empty], RULES).unwrap();
    assert_eq!(read.spec.dataset.data_folder, "");
    let composed = format!("{BASE}storage: {{storage_root: /data/unet3d}}\n")
        .replace("num_files_eval: 8", "num_files_eval: 8, data_folder: ''");
    let read = read_with(WorkloadSource { name: "config.yaml", text: &composed }, &[], RULES).unwrap();
    assert_eq!(
        (read.spec.storage.storage_root.as_str(), read.spec.dataset.data_folder.as_str()),
        ("/data/unet3d", "")
    );
}

/// Composition adds the present name to a packaged file that has the earlier one.
#[test]
fn the_present_name_of_a_key_counts() {
    let read = |dataset: &str| {
        let text = BASE.replace("num_files_eval: 8", dataset);
        read_with(WorkloadSource { name: "config.yaml", text: &text }, &[], RULES)
    };
    for dataset in
        ["record_length: 4096, record_length_bytes: 7", "record_length_bytes: 7, record_length: 4096"]
    {
        let read = read(dataset).unwrap();
        assert_eq!(read.spec.dataset.record_length_bytes, 7.0, "{dataset}");
        let said: Vec<String> = read.warnings.iter().map(ToString::to_string).collect();
        let expected = "'dataset.record_length_bytes' is given, and DLIO reads that name";
        assert!(said.iter().any(|text| text.contains(expected)), "{said:?}");
    }
    assert!(read("num_files_val: 1, num_files_eval: 2").is_ok());
    assert!(
        read("record_length_stdev: 1, record_length_byte_stdev: 2").is_err(),
        "neither is the present name"
    );
}
