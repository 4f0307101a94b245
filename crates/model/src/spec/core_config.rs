//! MLPerf Storage's "core-config-v1" hash: sixteen hex digits that are equal for two workload files exactly if the
//! committee considers their results comparable. It is computed from the text, not the spec: defaults that are not
//! written are not part of it.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::error::{SpecError, Texts};
use super::value::{Node, Value};
use super::{WorkloadSource, layers, yaml};

/// Keys that count in a training workload, in addition to the sections below.
const TRAINING: &[&str] = &[
    "framework",
    "metric.au",
    "dataset.format",
    "dataset.num_samples_per_file",
    "dataset.record_length_bytes",
    "dataset.record_length_bytes_stdev",
    "dataset.record_length_bytes_resize",
    "dataset.record_length",
    "dataset.record_length_stdev",
    "dataset.record_length_resize",
    "reader.data_loader",
    "reader.batch_size",
    "reader.file_shuffle",
    "reader.sample_shuffle",
    "reader.shuffle_size",
    "train.epochs",
    "train.computation_time",
    "train.computation_time_stdev",
    "train.total_training_steps",
];
const CHECKPOINTING: &[&str] = &["framework"];
/// Sections that count as a whole, in both kinds of workload.
const SECTIONS: &[&str] = &["model.", "workflow.", "checkpoint."];
/// The location of checkpoints does not affect the work.
const NEVER: &[&str] = &["checkpoint.checkpoint_folder"];
/// Without training, the submitter chooses the number of checkpoints.
const NOT_CHECKPOINTING: &[&str] = &["checkpoint.num_checkpoints_write", "checkpoint.num_checkpoints_read"];

/// The hash of a workload text.
pub fn core_config_hash(source: WorkloadSource<'_>) -> Result<String, SpecError> {
    let texts = Texts { name: source.name, text: source.text, overrides: &[] };
    let root = yaml::parse(source.text).map_err(|problem| texts.error(problem))?;
    let mut flat = BTreeMap::new();
    flatten("", &root, &mut flat);
    let digest = Sha256::digest(canonical_text(&flat).as_bytes());
    Ok(digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// The keys that count, as JSON, sorted and without blanks.
fn canonical_text(flat: &BTreeMap<String, &Value>) -> String {
    let is = |key: &str, default: bool| flat.get(key).map_or(default, |value| json(value) == "true");
    let training = is("workflow.train", true) || !is("workflow.checkpoint", false);
    let kept = flat.iter().filter(|(key, _)| counts(key, training));
    let pairs: Vec<String> = kept.map(|(key, value)| format!("{}:{}", string(key), json(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

fn counts(key: &str, training: bool) -> bool {
    let single = if training { TRAINING } else { CHECKPOINTING };
    let allowed = single.contains(&key) || SECTIONS.iter().any(|section| key.starts_with(section));
    allowed && !NEVER.contains(&key) && (training || !NOT_CHECKPOINTING.contains(&key))
}

fn flatten<'a>(path: &str, node: &'a Node, flat: &mut BTreeMap<String, &'a Value>) {
    match &node.value {
        Value::Map(entries) => {
            for entry in entries {
                flatten(&layers::join(path, &entry.key), &entry.node, flat);
            }
        }
        value => {
            flat.insert(path.to_owned(), value);
        }
    }
}

/// The value as Python's `json.dumps` writes it after canonicalisation.
fn json(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => float(*number),
        Value::Text(text) => word(text.trim()),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| json(&item.value)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Map(entries) => {
            let pairs: BTreeMap<_, _> =
                entries.iter().map(|entry| (&entry.key, json(&entry.node.value))).collect();
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| format!("{}:{value}", string(key))).collect();
            format!("{{{}}}", pairs.join(","))
        }
    }
}

/// A number or a boolean in quotes counts as the number or boolean.
fn word(text: &str) -> String {
    let plain = text.replace('_', "");
    if let flag @ ("true" | "false") = text.to_ascii_lowercase().as_str() {
        return flag.into();
    }
    match (plain.parse::<i128>(), plain.parse::<f64>()) {
        (Ok(number), _) => number.to_string(),
        (_, Ok(number)) if number.is_finite() => float(number),
        _ => string(text),
    }
}

/// `5.0` counts as `5`; other numbers are written like Python's `repr`, which uses exponents earlier than Rust and
/// writes them with two digits.
fn float(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e18 {
        return format!("{number:.0}");
    }
    let scientific = format!("{number:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        _ => format!("{number:?}"),
    }
}

/// JSON text in pure ASCII, as Python writes it.
fn string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            ' '..='~' => out.push(c),
            _ => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! workload {
        ($name:literal) => {
            ($name, include_str!(concat!("../../../../workloads/", $name, ".yaml")))
        };
    }

    fn hash(text: &str) -> String {
        core_config_hash(WorkloadSource { name: "w.yaml", text }).unwrap()
    }

    /// The hashes that MLPerf Storage publishes for its workloads (editions.yaml).
    #[test]
    fn the_published_hashes_are_reproduced() {
        let table = [
            (workload!("unet3d_b200"), "0d3ad0dec188becd"),
            (workload!("unet3d_h100"), "0f3dd7a4bf6433a3"),
            (workload!("unet3d_a100"), "691cea309c4f2f52"),
            (workload!("retinanet_b200"), "20c73f53486caba0"),
            (workload!("retinanet_mi355"), "66c43604eb650987"),
            (workload!("resnet50_a100"), "4a03838105aa5808"),
            (workload!("resnet50_h100"), "03a7be3df904e1e7"),
            (workload!("cosmoflow_a100"), "b49b896e947a408b"),
            (workload!("cosmoflow_h100"), "4b7b36339a2a5b0d"),
            (workload!("llama3_8b"), "68df04b7240e3fb0"),
            (workload!("llama3_70b"), "3c53fe70d64f91d4"),
            (workload!("llama3_405b"), "7adcfa87a5c4c8e6"),
            (workload!("llama3_1t"), "45fd627ad9dc5f4c"),
        ];
        for ((name, text), expected) in table {
            assert_eq!(hash(text), expected, "{name}");
        }
    }

    #[test]
    fn spelling_and_other_keys_do_not_count() {
        let text = "framework: pytorch\ntrain: {epochs: 5, computation_time: 1e-5}\n";
        let same = "train: {computation_time: '0.00001', epochs: 5.0, seed: 3}\nframework: ' pytorch'\n\
            reader: {read_threads: 8}\n";
        assert_eq!(hash(text), hash(same));
        assert_ne!(hash(text), hash("framework: pytorch\ntrain: {epochs: 6, computation_time: 1e-5}\n"));
        let checkpoint = "workflow: {train: False, checkpoint: 'true'}\ncheckpoint: {fsync: on";
        let one = format!("{checkpoint}, num_checkpoints_write: 1, checkpoint_folder: x}}");
        assert_eq!(hash(&one), hash(&format!("{checkpoint}}}")));
    }

    /// As Python's `json.dumps` prints them.
    #[test]
    fn values_are_written_as_python_does() {
        let table = [
            ("0.323", "0.323"),
            ("5.0", "5"),
            ("1e-5", "1e-05"),
            ("0.0001", "0.0001"),
            ("0.00035", "0.00035"),
            ("1.5e-7", "1.5e-07"),
            ("114660.07", "114660.07"),
            ("'12'", "12"),
            ("' TRUE '", "true"),
            ("~", "null"),
            ("[1, 2.0, a]", "[1,2,\"a\"]"),
            ("\"é\\\"\\n\"", "\"\\u00e9\\\"\""),
            ("inf", "\"inf\""),
        ];
        for (text, expected) in table {
            let root = yaml::parse(&format!("v: {text}")).unwrap();
            assert_eq!(json(&root.entries()[0].node.value), expected, "{text}");
        }
    }
}
