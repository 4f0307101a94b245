//! Results and studies, read as far as they can be read. What is missing, changed or of another version becomes a
//! notice; only a folder without anything to show is refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ::report::html::{Difference, HtmlPage, Notice, PageTone, RunDocuments};
use anyhow::{Context, anyhow, bail};
use model::document::{self, DocumentKind};
use model::ledger::Ledger;
use model::spec::{self, WorkloadSource};
use serde_json::Value;

use super::super::compare::APART;
use super::super::saved;
use super::super::study::{self, StudyKind};
use crate::report::folder::{IN_LEAF, LEAF_SUMMARY, SUMMARY};
use crate::report::sums;

/// The documents of a result.
#[derive(Debug)]
pub(super) struct LoadedResult {
    summary: Value,
    ledger: Option<Ledger>,
    plan: Option<Value>,
    spec: Option<String>,
    notices: Vec<Notice>,
}

impl LoadedResult {
    /// Reads a result. The ledger is large and only needed for the plots of a single result.
    pub(super) fn open(folder: &Path, with_ledger: bool) -> anyhow::Result<LoadedResult> {
        let mut loaded =
            LoadedResult { summary: Value::Null, ledger: None, plan: None, spec: None, notices: Vec::new() };
        let name = if folder.join(LEAF_SUMMARY).exists() { LEAF_SUMMARY } else { SUMMARY };
        match json(folder, name, document::SUMMARY) {
            Ok(summary) => loaded.summary = summary,
            Err(error) => loaded.notice(format!("The figures are missing: {error:#}.")),
        }
        let is_ours = loaded.summary.get("feedline").is_some();
        if is_ours || loaded.summary.is_null() {
            loaded.check(folder);
            loaded.plan = json(folder, "plan.json", document::PLAN)
                .map_err(|error| loaded.lack("The plan", &error))
                .ok();
            loaded.spec = text(folder, "spec.yaml").map_err(|error| loaded.lack("The workload", &error)).ok();
        }
        if with_ledger && (is_ours || loaded.summary.is_null()) {
            loaded.ledger =
                read_ledger(folder).map_err(|error| loaded.lack("Plots of the ledger", &error)).ok();
        }
        match loaded.summary.is_null() && loaded.ledger.is_none() && loaded.plan.is_none() {
            true => bail!("{}: nothing in it can be read: {}", folder.display(), loaded.reasons()),
            false => Ok(loaded),
        }
    }

    /// Notices on the state of the folder.
    fn check(&mut self, folder: &Path) {
        if let Err(error) = saved::check_published(folder) {
            self.notice(format!("{error:#}."));
        }
        if let Err(error) = sums::checked(folder) {
            self.notice(format!(
                "The files of this result are not those that feedline wrote: {error:#}. Do not trust the figures."
            ));
        }
        let version = self.summary["feedline"]["version"].as_str().unwrap_or_default().to_owned();
        if !version.is_empty() && saved::is_newer(&version) {
            let own = env!("CARGO_PKG_VERSION");
            let text = format!(
                "Written by feedline {version}, a newer version than this one ({own}): figures that this version does \
                 not know are missing."
            );
            self.notices.push(Notice { tone: PageTone::Doubtful, text });
        }
    }

    fn notice(&mut self, text: String) {
        self.notices.push(Notice { tone: PageTone::Bad, text });
    }

    fn lack(&mut self, what: &str, error: &anyhow::Error) {
        let text = format!("{what} cannot be shown: {error:#}.");
        self.notices.push(Notice { tone: PageTone::Doubtful, text });
    }

    fn reasons(&self) -> String {
        let texts: Vec<&str> = self.notices.iter().map(|notice| notice.text.as_str()).collect();
        texts.join(" ")
    }

    pub(super) fn documents(&self) -> RunDocuments<'_> {
        RunDocuments {
            summary: &self.summary,
            ledger: self.ledger.as_ref(),
            plan: self.plan.as_ref(),
            spec: self.spec.as_deref(),
            notices: self.notices.clone(),
            version: env!("CARGO_PKG_VERSION"),
        }
    }

    /// Settings of the workload and facts of the environment, by name.
    fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::new();
        if let Some(text) = &self.spec
            && let Ok(read) = spec::read(WorkloadSource { name: "spec.yaml", text }, &[])
        {
            let settings = read.spec.settings().into_iter().filter(|(key, _)| !APART.contains(key));
            facts.extend(settings.map(|(key, value)| (key.to_owned(), value)));
        }
        for (what, path) in FACTS {
            let value = path.split('.').try_fold(&self.summary, |value, key| value.get(key));
            let shown = value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            facts.extend(shown.map(|shown| (what.to_owned(), shown)));
        }
        facts
    }
}

/// Facts of the summary that two results may differ in: the name, and the place in the summary.
const FACTS: [(&str, &str); 8] = [
    ("accelerators", "num_accelerators"),
    ("hosts", "num_hosts"),
    ("first host", "hostname"),
    ("cores of each host", "host_cpu_count"),
    ("I/O backend", "feedline.store.observed"),
    ("data folder", "feedline.store.facts.data_folder"),
    ("version of feedline", "feedline.version"),
    ("workload", "feedline.workload"),
];

/// What is not the same in all results.
pub(super) fn differences(results: &[LoadedResult]) -> Vec<Difference> {
    let all: Vec<BTreeMap<String, String>> = results.iter().map(LoadedResult::facts).collect();
    let mut names: Vec<&String> = all.iter().flat_map(BTreeMap::keys).collect();
    names.sort_unstable();
    names.dedup();
    let value = |facts: &BTreeMap<String, String>, name: &String| {
        facts.get(name).cloned().unwrap_or_else(|| "n/a".to_owned())
    };
    let rows = names.into_iter().map(|name| Difference {
        what: name.clone(),
        values: all.iter().map(|facts| value(facts, name)).collect(),
    });
    rows.filter(|row| row.values.iter().any(|value| *value != row.values[0])).collect()
}

fn text(folder: &Path, name: &str) -> anyhow::Result<String> {
    let path = folder.join(name);
    let there = fs::symlink_metadata(&path).with_context(|| format!("cannot read {name}"))?;
    // A pipe would never end, and a device may.
    if !there.is_file() {
        bail!("{name} is not a regular file");
    }
    fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))
}

fn json(folder: &Path, name: &str, kind: DocumentKind) -> anyhow::Result<Value> {
    let text = text(folder, name)?;
    kind.check(text.as_bytes()).with_context(|| name.to_owned())?;
    let value: Value = serde_json::from_str(&text).with_context(|| format!("{name} is damaged"))?;
    if value.is_object() { Ok(value) } else { Err(anyhow!("{name} is damaged: it is not an object")) }
}

fn read_ledger(folder: &Path) -> anyhow::Result<Ledger> {
    let text = text(folder, "ledger.json")?;
    document::LEDGER.check(text.as_bytes()).context("ledger.json")?;
    serde_json::from_str(&text).context("ledger.json cannot be read by this version")
}

/// A finished study.
#[derive(Debug)]
pub(super) struct LoadedStudy {
    pub kind: &'static StudyKind,
    document: Value,
}

impl LoadedStudy {
    /// The study of a folder; `None` if it is not the folder of a study.
    pub(super) fn open(folder: &Path) -> anyhow::Result<Option<LoadedStudy>> {
        let Some(kind) = study::kind_of(folder) else { return Ok(None) };
        let [_, name, ..] = kind.outputs;
        if !folder.join(name).exists() {
            bail!(
                "the {} in {} is not finished; resume it with the command that it printed",
                kind.name,
                folder.display()
            );
        }
        let document = json(folder, name, kind.document).with_context(|| folder.display().to_string())?;
        Ok(Some(LoadedStudy { kind, document }))
    }

    pub(super) fn page(&self) -> HtmlPage {
        (self.kind.page)(&self.document, env!("CARGO_PKG_VERSION"))
    }
}

/// The results of a folder: those that feedline wrote, else the folder itself if it has a summary, as one of DLIO has.
pub(super) fn find(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let in_leaf = folder.join(IN_LEAF);
    if !in_leaf.is_dir() && folder.join(SUMMARY).is_file() {
        return Ok(vec![folder.to_owned()]);
    }
    saved::find(folder)
}

/// The last two parts of each path, which are the workload and the time.
pub(super) fn short_names(folders: &[PathBuf]) -> Vec<String> {
    let short = |folder: &PathBuf| {
        let real = folder.canonicalize().unwrap_or_else(|_| folder.clone());
        let real =
            if real.ends_with(IN_LEAF) { real.parent().map(Path::to_owned).unwrap_or(real) } else { real };
        let parts: Vec<String> = real.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        parts[parts.len().saturating_sub(2)..].join("/")
    };
    let names: Vec<String> = folders.iter().map(short).collect();
    let is_unique = |name: &String| names.iter().filter(|other| *other == name).count() == 1;
    let numbered = names.iter().enumerate().map(|(number, name)| match is_unique(name) {
        true => name.clone(),
        false => format!("{name} ({})", number + 1),
    });
    numbered.collect()
}
