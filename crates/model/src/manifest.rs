//! The manifest of a data folder: the settings that determine its files. Two data sets are equal if their settings
//! agree; `run` and `generate` compare them before they change anything.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document;
use crate::plan::Data;
use crate::spec::{Column, Spec};

/// The key of a difference of versions.
const LAYOUT: &str = "the layout of the files";

/// Settings that determine every data set.
const KEYS: [&str; 11] = [
    "dataset.format",
    "dataset.file_prefix",
    "dataset.num_files_train",
    "dataset.num_files_eval",
    "dataset.num_samples_per_file",
    "dataset.num_subfolders_train",
    "dataset.num_subfolders_eval",
    "dataset.record_element_type",
    "dataset.record_dims",
    "dataset.compressible",
    "dataset.compression",
];
/// Settings that apply if no dimensions are given.
const LENGTH_KEYS: [&str; 3] =
    ["dataset.record_length_bytes", "dataset.record_length_bytes_stdev", "dataset.size_law"];
const HDF5_KEYS: [&str; 3] =
    ["dataset.hdf5.chunk_dims", "dataset.hdf5.num_dset_per_record", "dataset.hdf5.max_shape"];
const COLUMN_KEYS: [&str; 2] = ["dataset.parquet.columns", "dataset.parquet.row_group_size"];
/// Settings that change the content of files, but not their number or length.
const CONTENT_KEYS: [&str; 2] = [SEED, "dataset.compressible"];
const VALIDATION_KEYS: [&str; 2] = ["dataset.num_files_eval", "dataset.num_subfolders_eval"];
const SEED: &str = "train.seed";

/// The manifest of a data folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataSetManifest {
    pub schema_version: u32,
    pub content_version: u32,
    /// The version of feedline that wrote the files.
    pub feedline_version: String,
    /// Every setting that determines the files, as in a workload file.
    pub settings: BTreeMap<String, String>,
    pub files: u64,
    /// Bytes of all files; an upper bound if they are compressed.
    pub bytes: u64,
    /// False until the last file is written.
    pub complete: bool,
    /// Whether files of other content may still be among them; then existing files do not count.
    #[serde(default)]
    pub rewriting: bool,
    /// The boot IDs of the hosts that wrote it, separated by spaces. Files are flushed before the manifest is complete.
    /// A power failure may have lost bytes of files from an earlier boot.
    #[serde(default)]
    pub boot_id: Option<String>,
    /// Identifies the generator that writes it, on storage without locks, until it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<String>,
}

/// A setting that differs between two data sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestDifference {
    pub key: String,
    pub there: String,
    pub asked: String,
}

/// The version of a format's files; incremented if the same settings give different bytes.
fn content_version(format: &str) -> u32 {
    match format {
        // 2: every column has a dictionary page.
        "parquet" => 2,
        _ => 1,
    }
}

impl std::fmt::Display for ManifestDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is {}, not {} as requested", self.key, self.there, self.asked)
    }
}

impl ManifestDifference {
    /// Whether only the content of the files differs.
    pub fn only_content(&self) -> bool {
        CONTENT_KEYS.contains(&self.key.as_str())
    }

    /// Whether another version of feedline wrote the files in another layout.
    pub fn is_layout(&self) -> bool {
        self.key == LAYOUT
    }

    /// Whether the names of the files are the same; writing every file again would fix it.
    pub fn same_names(&self) -> bool {
        self.only_content() || self.is_layout()
    }

    /// Whether it concerns validation files, which a run without evaluation does not read.
    pub fn only_validation(&self) -> bool {
        VALIDATION_KEYS.contains(&self.key.as_str())
    }

    /// Whether it is the number of training files; a run may read fewer than exist.
    pub fn is_count(&self) -> bool {
        self.key == "dataset.num_files_train"
    }

    /// How to read a data set with another number of files.
    pub fn count_hint(&self) -> String {
        let there = &self.there;
        let numbers = there.parse::<u64>().ok().zip(self.asked.parse::<u64>().ok());
        match numbers.is_some_and(|(there, asked)| asked < there) {
            true => format!("; to read some of them, set dataset.num_files_generated={there}"),
            false => format!("; to read all of them, leave {} out", self.key),
        }
    }

    pub fn is_seed(&self) -> bool {
        self.key == SEED
    }
}

impl DataSetManifest {
    /// The manifest of the data set that a workload describes, before its first file is written.
    pub fn of(spec: &Spec, data: &Data, feedline_version: &str) -> DataSetManifest {
        let mut spec = spec.clone();
        spec.dataset.num_files_train = data.train.names.count;
        // Whether a column is read is not a property of the files.
        spec.dataset.parquet.columns.iter_mut().for_each(|column: &mut Column| column.read = true);
        let mut keys = vec![SEED];
        keys.extend(KEYS);
        if spec.dataset.record_dims.is_empty() {
            keys.extend(LENGTH_KEYS);
        }
        if spec.dataset.size_sigma.is_some() {
            keys.push("dataset.size_sigma");
        }
        if spec.dataset.compression != "none" {
            keys.push("dataset.compression_level");
        }
        match spec.dataset.format.as_str() {
            "hdf5" => keys.extend(HDF5_KEYS),
            "parquet" | "arrow" => keys.extend(COLUMN_KEYS),
            _ => {}
        }
        DataSetManifest {
            schema_version: document::DATA_SET.version,
            content_version: content_version(&spec.dataset.format),
            feedline_version: feedline_version.to_owned(),
            settings: spec.texts(&keys).into_iter().map(|(key, text)| (key.to_owned(), text)).collect(),
            files: data.files(),
            bytes: data.bytes(),
            complete: false,
            rewriting: false,
            boot_id: None,
            writer: None,
        }
    }

    /// How this existing data set differs from the requested one.
    pub fn differences(&self, asked: &DataSetManifest) -> Vec<ManifestDifference> {
        let keys =
            self.settings.keys().chain(asked.settings.keys().filter(|key| !self.settings.contains_key(*key)));
        let text = |manifest: &DataSetManifest, key: &String| {
            manifest.settings.get(key).cloned().unwrap_or_else(|| "not set".to_owned())
        };
        let mut differences: Vec<ManifestDifference> = keys
            .map(|key| ManifestDifference {
                key: key.clone(),
                there: text(self, key),
                asked: text(asked, key),
            })
            .filter(|difference| difference.there != difference.asked)
            .collect();
        // Versions of different formats cannot be compared.
        let formats = [self, asked].map(|manifest| manifest.settings.get("dataset.format"));
        if self.content_version != asked.content_version && formats[0] == formats[1] {
            let version = |manifest: &DataSetManifest| format!("version {}", manifest.content_version);
            let key = LAYOUT.to_owned();
            differences.push(ManifestDifference { key, there: version(self), asked: version(asked) });
        }
        differences
    }

    /// The same data set with the content of another seed.
    pub fn with_seed(mut self, seed: u64) -> DataSetManifest {
        self.settings.insert(SEED.to_owned(), seed.to_string());
        self
    }

    /// The share of the content that a compressor can remove.
    pub fn compressible(&self) -> Option<f64> {
        self.settings.get("dataset.compressible").and_then(|share| share.parse().ok())
    }

    /// The number of training and validation files.
    pub fn counts(&self) -> Option<(u64, u64)> {
        let count = |key: &str| self.settings.get(key).and_then(|count| count.parse().ok());
        count("dataset.num_files_train").zip(count("dataset.num_files_eval"))
    }

    /// The seed of the content.
    pub fn seed(&self) -> Option<u64> {
        self.settings.get(SEED).and_then(|seed| seed.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{self, WorkloadSource};

    fn manifest(text: &str) -> DataSetManifest {
        let spec = spec::read(WorkloadSource { name: "x", text }, &[]).unwrap().spec;
        let data = Data::resolve(&spec, None).unwrap();
        DataSetManifest::of(&spec, &data, "1")
    }

    #[test]
    fn settings_that_only_affect_reading_are_ignored() {
        let one = manifest(
            "dataset: {format: npz, num_files_train: 4, num_files_generated: 9}\nreader: {batch_size: 2}",
        );
        let other = manifest("dataset: {format: npz, num_files_train: 9}\nreader: {read_threads: 5}");
        assert_eq!(one.differences(&other), []);
        let columns = |read| {
            manifest(&format!(
                "dataset: {{format: parquet, parquet: {{columns: [{{name: a, dtype: int8, size: 1, read: {read}}}]}}}}"
            ))
        };
        assert_eq!(columns(true).differences(&columns(false)), []);
    }

    #[test]
    fn every_difference_is_named() {
        let there = manifest("dataset: {format: npz, num_files_train: 4}\ntrain: {seed: 5}");
        let asked = manifest("dataset: {format: jpeg, num_files_train: 5}\ntrain: {seed: 6}");
        let differences = there.differences(&asked);
        let texts: Vec<String> = differences.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "dataset.format is npz, not jpeg as requested",
                "dataset.num_files_train is 4, not 5 as requested",
                "train.seed is 5, not 6 as requested",
            ]
        );
        assert!(differences[2].is_seed() && differences[2].only_content() && !differences[0].only_content());
        assert_eq!((there.seed(), there.counts(), there.compressible()), (Some(5), Some((4, 0)), Some(0.0)));
        let spread = |sigma| manifest(&format!("dataset: {{size_law: lognormal, size_sigma: {sigma}}}"));
        assert_eq!(spread(0.5).differences(&manifest("dataset: {size_law: lognormal}")), []);
        assert_eq!(
            spread(0.5).differences(&spread(1.0))[0].to_string(),
            "dataset.size_sigma is 0.5, not 1.0 as requested"
        );
        let chunked = manifest("dataset: {format: hdf5, hdf5: {chunk_dims: [2, 2]}}");
        assert_eq!(chunked.differences(&manifest("dataset: {format: hdf5}")).len(), 1);
    }

    #[test]
    fn files_of_another_layout_are_another_data_set() {
        let asked = manifest("dataset: {format: parquet}");
        let there = DataSetManifest { content_version: 1, ..asked.clone() };
        let differences = there.differences(&asked);
        let texts: Vec<String> = differences.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["the layout of the files is version 1, not version 2 as requested"]);
        assert!(differences[0].same_names() && !differences[0].only_content());
        let other = manifest("dataset: {format: npz}").differences(&asked);
        assert!(
            other[0].key == "dataset.format" && !other.iter().any(ManifestDifference::is_layout),
            "{other:?}"
        );
    }

    #[test]
    fn a_manifest_survives_json() {
        let manifest = manifest("dataset: {format: npz}");
        let text = serde_json::to_string(&manifest).unwrap();
        assert_eq!(serde_json::from_str::<DataSetManifest>(&text).unwrap(), manifest);
    }
}
