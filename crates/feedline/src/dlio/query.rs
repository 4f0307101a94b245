//! `dlio_benchmark_query`: prints one setting of a composed configuration. The key is the value of
//! `workload.workflow.query`, e.g. `++workload.workflow.query=dataset.num_files_train`. Scripts around DLIO read sizes
//! and folders in this way.

use anyhow::{anyhow, bail};
use model::spec::{self, WorkloadSource, canonical_key};

use crate::exit::{CommandResult, Exit, Failure};
use crate::report;

/// Prints the setting on one line, in Python's spelling, as DLIO does: `True`, `None`. `config` is the text of
/// `config.yaml`.
pub(crate) fn query(config: &str) -> CommandResult {
    let value = queried(config).map_err(Failure::usage)?;
    report::out(&format!("{value}\n"))?;
    Ok(Exit::Ok)
}

/// The value of the queried key, after defaults.
fn queried(config: &str) -> anyhow::Result<String> {
    let source = WorkloadSource { name: "config.yaml", text: config };
    let settings = spec::all_settings(source)?;
    let asked = settings.get("workflow.query").map(|value| python(value));
    let Some(asked) = asked.filter(|asked| asked != NONE) else {
        bail!("no key to print; add ++workload.workflow.query=KEY, e.g. KEY = dataset.num_files_train");
    };
    let key = canonical_key(asked.strip_prefix("workload.").unwrap_or(&asked));
    settings.get(key.as_str()).map(|value| python(value)).ok_or_else(|| {
        let names: Vec<&str> = settings.keys().copied().collect();
        let near = spec::nearest(&key, &names).map(|near| format!("; did you mean '{near}'?"));
        anyhow!("workflow.query: there is no key '{asked}'{}", near.unwrap_or_default())
    })
}

const NONE: &str = "None";

/// A value of a workload file as Python prints it.
fn python(value: &str) -> String {
    match value {
        "null" => NONE.into(),
        "true" => "True".into(),
        "false" => "False".into(),
        // The quotes and escapes of settings are those of JSON.
        _ if value.starts_with('"') => serde_json::from_str(value).unwrap_or_else(|_| value.into()),
        // Sizes are computed as floating-point numbers; scripts expect whole ones.
        _ => value.strip_suffix(".0").unwrap_or(value).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "\
workload:
  model: {name: 'unet 3d', type: cnn}
  framework: pytorch
  workflow: {generate_data: true, train: false, query: QUERY}
  dataset: {data_folder: '/data/a b', format: npz, num_files_train: 168, record_length_bytes: 146600628}
  reader: {batch_size: 7, never_seen: 1}
  train: {computation_time: 0.5}
";

    fn answer(key: &str) -> String {
        queried(&CONFIG.replace("QUERY", key)).unwrap_or_else(|error| format!("error: {error:#}"))
    }

    #[test]
    fn a_query_prints_given_values_and_defaults() {
        let expected = [
            ("dataset.num_files_train", "168"),
            ("workload.dataset.num_files_train", "168"),
            ("data_reader.batch_size", "7"),
            ("workflow.generate_data", "True"),
            ("workflow.train", "False"),
            ("dataset.data_folder", "/data/a b"),
            ("model.name", "unet 3d"),
            ("dataset.num_samples_per_file", "1"),
            ("dataset.record_length_bytes", "146600628"),
            ("storage.storage_root", "./"),
            ("train.computation_time", "0.5"),
            ("storage.storage_options.endpoint_url", "None"),
        ];
        assert_eq!(expected.map(|(key, _)| (key, answer(key))), expected.map(|(k, v)| (k, v.to_owned())));
    }

    #[test]
    fn every_key_can_be_queried() {
        for row in spec::rows() {
            assert!(!answer(row.key).starts_with("error"), "{}: {}", row.key, answer(row.key));
        }
    }

    #[test]
    fn a_query_for_no_key_and_for_an_unknown_key_is_an_error() {
        assert!(answer("null").contains("++workload.workflow.query=KEY"), "{}", answer("null"));
        let unknown = answer("dataset.num_file_train");
        assert!(unknown.contains("'dataset.num_file_train'"), "{unknown}");
        assert!(unknown.contains("did you mean 'dataset.num_files_train'?"), "{unknown}");
    }
}
