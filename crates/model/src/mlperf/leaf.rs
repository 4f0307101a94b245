//! One result folder: what it contains, and the facts in its documents. A fact is looked up where DLIO, mlpstorage and
//! feedline put it, in this order of trust: what DLIO ran with (`dlio_config`), then what mlpstorage noted.

use serde_json::Value;

use super::document::{DocumentText, DocumentTree, at, count, flag, number, shown};
use super::edition::{Division, Edition, llama_model};
use super::moment::LocalMoment;
use crate::spec::{WorkloadSource, core_config_hash};

/// The names in a result folder.
#[derive(Clone, Debug, Default)]
pub struct LeafListing {
    /// The path, as it is shown.
    pub folder: String,
    pub files: Vec<String>,
    pub folders: Vec<String>,
    /// Entries of `dlio_config`; `None`: there is no such folder.
    pub config_entries: Option<Vec<String>>,
    /// Paths of files named `summary.json` in sub-folders; `None`: there are too many entries to tell.
    pub nested_summaries: Option<Vec<String>>,
}

/// What was found in a result folder.
#[derive(Clone, Debug, Default)]
pub struct LeafInput {
    pub listing: LeafListing,
    pub summary: DocumentText,
    /// The first file with `metadata` in its name.
    pub metadata: DocumentText,
    pub config: DocumentText,
    pub overrides: DocumentText,
    /// mlpstorage's note on whether data and results are on different file systems.
    pub separation: DocumentText,
}

/// The kind of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafKind {
    Datasize,
    Datagen,
    Run,
    Checkpointing,
}

/// A result folder whose documents were parsed. The texts are not kept.
#[derive(Clone, Debug)]
pub struct MlperfLeaf {
    pub(super) listing: LeafListing,
    pub kind: LeafKind,
    pub(super) summary: DocumentTree,
    pub(super) metadata: DocumentTree,
    pub(super) config: DocumentTree,
    pub(super) overrides: Result<Vec<String>, String>,
    pub(super) separation: DocumentTree,
    /// The core-config hash of what DLIO ran with.
    pub(super) core_hash: Option<String>,
}

/// Keys of summary.json that are needed.
const SUMMARY_KEYS: [&str; 11] = [
    "start",
    "end",
    "metric",
    "num_accelerators",
    "num_hosts",
    "num_files_train",
    "num_files_eval",
    "num_samples_per_file",
    "host_memory_GB",
    "host_cpu_count",
    "feedline",
];
/// Keys of mlpstorage's metadata that are needed; the others describe the hosts.
const METADATA_KEYS: [&str; 10] = [
    "benchmark_type",
    "command",
    "model",
    "accelerator",
    "verification",
    "args",
    "parameters",
    "override_parameters",
    "invocation_start_time",
    "invocation_end_time",
];

/// Accelerators whose names end the name of a workload.
const ACCELERATORS: [&str; 5] = ["a100", "h100", "b200", "mi355", "v100"];

impl MlperfLeaf {
    /// `kind`: from the folder's place in a tree, if it is in one.
    pub fn new(input: LeafInput, kind: Option<LeafKind>) -> MlperfLeaf {
        let mut leaf = MlperfLeaf {
            kind: LeafKind::Run,
            summary: input.summary.json(&SUMMARY_KEYS),
            metadata: input.metadata.json(&METADATA_KEYS),
            config: input.config.yaml(),
            overrides: input.overrides.yaml_list(),
            separation: input.separation.json(&["same_filesystem"]),
            core_hash: None,
            listing: input.listing,
        };
        if let (Ok(_), DocumentText::Text(text)) = (&leaf.config, &input.config) {
            leaf.core_hash = core_config_hash(WorkloadSource { name: "config.yaml", text }).ok();
        }
        leaf.kind = kind.unwrap_or_else(|| leaf.kind_by_documents());
        leaf
    }

    fn kind_by_documents(&self) -> LeafKind {
        let word = |path| self.noted(path).and_then(Value::as_str).unwrap_or_default();
        let set = |key| self.setting(key).and_then(flag).unwrap_or(false);
        match (word("benchmark_type"), word("command")) {
            ("checkpointing", _) => return LeafKind::Checkpointing,
            (_, "datagen") => return LeafKind::Datagen,
            (_, "datasize") => return LeafKind::Datasize,
            _ => {}
        }
        let saves =
            self.metric("checkpoint_size_GB").is_some() && self.metric("train_au_mean_percentage").is_none();
        match (set("workflow.train"), set("workflow.checkpoint"), set("workflow.generate_data")) {
            (false, true, _) => LeafKind::Checkpointing,
            (false, false, true) => LeafKind::Datagen,
            (false, false, false) if saves => LeafKind::Checkpointing,
            _ => LeafKind::Run,
        }
    }

    pub fn folder(&self) -> &str {
        &self.listing.folder
    }

    /// The last part of the path.
    pub(super) fn name(&self) -> &str {
        self.listing.folder.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
    }

    /// A value of summary.json.
    pub(super) fn said(&self, path: &str) -> Option<&Value> {
        at(self.summary.as_ref().ok()?, path)
    }

    pub(super) fn said_count(&self, path: &str) -> Option<u64> {
        self.said(path).and_then(count)
    }

    pub(super) fn metric(&self, name: &str) -> Option<f64> {
        self.said("metric").and_then(|metric| at(metric, name)).and_then(number)
    }

    /// A value of mlpstorage's metadata.
    pub(super) fn noted(&self, path: &str) -> Option<&Value> {
        at(self.metadata.as_ref().ok()?, path)
    }

    /// A setting of the workload: what DLIO ran with, else what mlpstorage noted.
    pub(super) fn setting(&self, key: &str) -> Option<&Value> {
        let ran_with = self.config.as_ref().ok().and_then(|tree| at(tree, key));
        ran_with.or_else(|| self.noted("parameters").and_then(|tree| at(tree, key)))
    }

    pub(super) fn setting_count(&self, key: &str) -> Option<u64> {
        self.setting(key).and_then(count)
    }

    /// Keys that were changed, without `workload.`, and their values, by mlpstorage's metadata and then by Hydra;
    /// `None`: no document lists them.
    pub(super) fn changes(&self) -> Option<Vec<(String, String)>> {
        let noted = self.noted("override_parameters").and_then(Value::as_object);
        let listed = self.overrides.as_ref().ok();
        if noted.is_none() && listed.is_none() {
            return None;
        }
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let noted = noted.into_iter().flatten().map(|(key, value)| (key.clone(), text(value)));
        let listed = listed.into_iter().flatten().map(|text| {
            let text = text.trim_start_matches(['+', '~']);
            let (key, value) = text.split_once('=').unwrap_or((text, ""));
            (key.strip_prefix("workload.").unwrap_or(key).to_owned(), value.to_owned())
        });
        let is_setting = |(key, _): &(String, String)| key != "workload" && !key.starts_with("hydra");
        let listed: Vec<_> = listed.filter(is_setting).collect();
        Some(noted.filter(|change| !listed.contains(change)).chain(listed.clone()).collect())
    }

    /// The last value that a key was changed to.
    pub(super) fn change(&self, key: &str) -> Option<String> {
        self.changes()?.into_iter().rev().find(|(changed, _)| changed == key).map(|(_, value)| value)
    }

    /// The configurations that were chosen, such as `unet3d_b200`; Hydra accepts one.
    pub(super) fn chosen(&self) -> impl Iterator<Item = &str> {
        self.overrides.iter().flatten().filter_map(|text| text.strip_prefix("workload="))
    }

    pub fn accelerator(&self) -> Option<String> {
        let noted =
            ["accelerator", "args.accelerator_type"].map(|path| self.noted(path).and_then(Value::as_str));
        let chosen = self.chosen().filter_map(|name| name.rsplit_once('_').map(|(_, end)| end));
        let names = noted.into_iter().flatten().chain(chosen).map(str::to_ascii_lowercase);
        names.into_iter().find(|name| ACCELERATORS.contains(&name.as_str()))
    }

    /// The model as folders of submissions name it.
    pub fn model(&self) -> Option<String> {
        let named = || self.setting("model.name").and_then(Value::as_str).map(model_name);
        self.models().into_iter().next().or_else(named)
    }

    /// The models by mlpstorage's metadata and by the configurations that were chosen; they should be the same.
    pub(super) fn models(&self) -> Vec<String> {
        let noted = ["model", "args.model"].map(|path| self.noted(path).and_then(Value::as_str));
        let chosen = self.chosen().map(|name| match name.rsplit_once('_') {
            Some((model, end)) if ACCELERATORS.contains(&end) || end == "datagen" => model,
            _ => name,
        });
        noted.into_iter().flatten().chain(chosen).map(model_name).collect()
    }

    /// mlpstorage's own verdict.
    pub(super) fn verification(&self) -> Option<&str> {
        self.noted("verification").and_then(Value::as_str)
    }

    /// How mlpstorage was started: for a division, or only to try.
    pub(super) fn mode(&self) -> Option<&str> {
        self.noted("args.mode").and_then(Value::as_str)
    }

    /// The division that mlpstorage noted.
    pub fn division(&self) -> Option<Division> {
        [self.mode(), self.verification()].into_iter().flatten().find_map(|text| text.parse().ok())
    }

    /// The edition to which the accelerator belongs.
    pub fn edition(&self) -> Option<Edition> {
        match self.accelerator()?.as_str() {
            "a100" | "h100" => Some(Edition::V2),
            "b200" | "mi355" => Some(Edition::V3),
            _ => None,
        }
    }

    /// Processes: DLIO's, else mlpstorage's.
    pub(super) fn processes(&self) -> Option<u64> {
        self.said_count("num_accelerators").or_else(|| self.noted("args.num_processes").and_then(count))
    }

    /// GiB of memory over all hosts. Each host has an entry; if one is missing, the first one counts for all. An
    /// entry that is not above 0 is an error in the document.
    pub(super) fn memory_gib(&self) -> Option<f64> {
        let positive = |value: &Value| number(value).filter(|gib| *gib > 0.0);
        let list: Vec<f64> =
            self.said("host_memory_GB")?.as_array()?.iter().map(positive).collect::<Option<_>>()?;
        let hosts = self.said_count("num_hosts").filter(|hosts| *hosts > 0)?;
        match list.len() as u64 == hosts {
            true => Some(list.iter().sum()),
            false => list.first().map(|first| first * hosts as f64),
        }
    }

    /// Start and end of the run by DLIO.
    pub(super) fn window(&self) -> Option<(LocalMoment, LocalMoment)> {
        let moment = |key| self.said(key).and_then(Value::as_str).and_then(LocalMoment::of_text);
        moment("start").zip(moment("end"))
    }

    /// Start and end of the invocation: by mlpstorage if it noted them, else by DLIO.
    pub(super) fn invocation(&self) -> Option<(LocalMoment, LocalMoment)> {
        let moment = |key| self.noted(key).and_then(Value::as_str).and_then(LocalMoment::of_text);
        moment("invocation_start_time").zip(moment("invocation_end_time")).or_else(|| self.window())
    }

    /// Evidence: a key of summary.json and its value.
    pub(super) fn summary_says(&self, path: &str) -> String {
        match &self.summary {
            Err(why) => format!("summary.json {why}"),
            Ok(_) => format!("summary.json: {path} is {}", shown(self.said(path))),
        }
    }

    /// The status of feedline's own verdict, if feedline made the result.
    pub fn feedline_status(&self) -> Option<&str> {
        self.said("feedline.verdict.status").and_then(Value::as_str)
    }

    pub(super) fn is_by_feedline(&self) -> bool {
        self.said("feedline").is_some()
    }
}

/// The name of a model as folders of submissions have it.
fn model_name(name: &str) -> String {
    llama_model(name).map_or(name, |model| model.name).to_owned()
}
