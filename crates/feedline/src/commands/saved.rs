//! Results of earlier runs: found in folders, checked against their checksums, read back, and ready to be judged again.
//! All commands on saved results use this module.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use format::Arithmetic;
use model::checkpoint::CheckpointPlan;
use model::document::{self, DocumentKind};
use model::ledger::Ledger;
use model::plan::{Demand, Plan, StorePlan};
use model::spec::{self, Spec, WorkloadSource};
use model::verdict::{self, Case, Verdict};
use serde::Deserialize;
use serde_json::Value;
use store::Selection;

use super::study;
use crate::report::folder::{IN_LEAF, LEAF_SUMMARY, SUMMARY};
use crate::report::{folder, sums};

/// A complete result whose documents are from one run.
#[derive(Debug)]
pub(crate) struct SavedResult {
    pub folder: PathBuf,
    /// The version of feedline that wrote it.
    pub version: String,
    /// Number of files that were checked.
    pub files: usize,
    /// When the run started, as local time in a form that sorts.
    pub start: String,
    pub hostname: String,
    pub spec: Spec,
    pub plan: Plan,
    pub ledger: Ledger,
    /// The verdict by the version that wrote the result.
    pub recorded: Verdict,
}

/// The fields of `summary.json` that are needed here.
#[derive(Deserialize)]
struct SavedSummary {
    start: String,
    hostname: String,
    feedline: SavedFeedlineObject,
}

#[derive(Deserialize)]
struct SavedFeedlineObject {
    version: String,
    plan_digest: String,
    /// Parsed after the version check.
    verdict: Value,
}

impl SavedResult {
    pub(crate) fn open(folder: &Path) -> anyhow::Result<SavedResult> {
        SavedResult::read(folder).with_context(|| folder.display().to_string())
    }

    fn read(folder: &Path) -> anyhow::Result<SavedResult> {
        check_published(folder)?;
        let files = sums::checked(folder)?;
        let name = if files.contains_key(LEAF_SUMMARY) { LEAF_SUMMARY } else { SUMMARY };
        let summary: SavedSummary = parse(&files, name, document::SUMMARY)?;
        let SavedSummary { start, hostname, feedline: SavedFeedlineObject { version, plan_digest, verdict } } =
            summary;
        if is_newer(&version) {
            bail!(
                "written by feedline {version}, a newer version than this one ({}), whose fields may differ; use \
                 that version",
                env!("CARGO_PKG_VERSION")
            );
        }
        let of_version = || format!("written by feedline {version}; this version cannot read it");
        let recorded = serde_json::from_value(verdict).context(name).with_context(of_version)?;
        let ledger: Ledger = parse(&files, "ledger.json", document::LEDGER).with_context(of_version)?;
        let spec = read_spec(folder, &files).with_context(of_version)?;
        let plan: Plan = parse(&files, "plan.json", document::PLAN).with_context(of_version)?;
        if plan.digest() != plan_digest {
            bail!("plan.json and {name} are from different runs: the plan digests differ");
        }
        let plan = restored(plan, &spec)?;
        let ledger = match &plan.training {
            Some(training) => ledger.completed_from(training),
            None => ledger,
        };
        let (folder, files) = (folder.to_owned(), files.len());
        Ok(SavedResult { folder, version, files, start, hostname, spec, plan, ledger, recorded })
    }

    /// Refuses the result of a run that did not train.
    pub(crate) fn check_trained(&self) -> anyhow::Result<()> {
        match self.plan.training {
            Some(_) => Ok(()),
            None => bail!(
                "{} has checkpoints but no training; comparing such results is not supported yet",
                self.folder.display()
            ),
        }
    }

    /// The demand of one accelerator; `None` if its steps have no compute time.
    pub(crate) fn demand(&self) -> Option<Demand> {
        self.plan.training.as_ref()?.estimate.demand
    }

    /// The verdict by the rules of this version.
    pub(crate) fn judge(&self) -> Verdict {
        verdict::judge(&Case { plan: Some(&self.plan), ledger: &self.ledger })
    }
}

/// The plan, completed with the tables and facts that are not saved with it.
fn restored(mut plan: Plan, spec: &Spec) -> anyhow::Result<Plan> {
    plan.checkpoint.iter_mut().try_for_each(|plan| restore_tiers(plan, spec))?;
    let Some(training) = &mut plan.training else { return Ok(plan) };
    restore_store(&mut training.store, spec)?;
    let format = session::format_of(spec)?;
    Ok(plan.restored(spec, Some(&Arithmetic(&*format)))?)
}

/// Restores the facts of a store that are not saved with the plan.
fn restore_store(store: &mut StorePlan, spec: &Spec) -> anyhow::Result<()> {
    *store = Selection::named(&store.text, session::mode(spec)).context("plan.json")?.plan();
    Ok(())
}

fn restore_tiers(plan: &mut CheckpointPlan, spec: &Spec) -> anyhow::Result<()> {
    plan.fast.iter_mut().chain([&mut plan.last]).try_for_each(|tier| restore_store(tier, spec))
}

/// Refuses a folder that its run did not publish. All its files may be present and unchanged; only the rename shows
/// that the run finished. So the real name of the folder decides, whatever path or link leads to it.
pub(crate) fn check_published(folder: &Path) -> anyhow::Result<()> {
    let real = folder.canonicalize().context("cannot find the folder")?;
    if folder::is_partial(&real) {
        bail!(
            "not a result: the run that wrote {} ended before it renamed the folder, so the result was never \
             published; remove the folder and run again",
            real.display()
        );
    }
    Ok(())
}

pub(crate) fn bytes_of<'a>(files: &'a BTreeMap<String, Vec<u8>>, name: &str) -> anyhow::Result<&'a [u8]> {
    files.get(name).map(Vec::as_slice).ok_or_else(|| anyhow!("{name} is missing"))
}

pub(crate) fn parse<T: for<'a> Deserialize<'a>>(
    files: &BTreeMap<String, Vec<u8>>,
    name: &str,
    kind: DocumentKind,
) -> anyhow::Result<T> {
    let bytes = bytes_of(files, name)?;
    kind.check(bytes).with_context(|| name.to_owned())?;
    serde_json::from_slice(bytes).with_context(|| name.to_owned())
}

fn read_spec(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> anyhow::Result<Spec> {
    let text = std::str::from_utf8(bytes_of(files, "spec.yaml")?).context("spec.yaml is not text")?;
    let name = folder.join("spec.yaml").display().to_string();
    let read = spec::read(WorkloadSource { name: &name, text }, &[]).map_err(|error| anyhow!("{error}"))?;
    Ok(read.spec)
}

/// Whether a version is newer than this one. A version that cannot be parsed counts as newer.
pub(crate) fn is_newer(version: &str) -> bool {
    let numbers = |version: &str| -> Option<Vec<u64>> {
        version.split('.').map(|number| number.parse().ok()).collect()
    };
    numbers(version).is_none_or(|theirs| Some(theirs) > numbers(env!("CARGO_PKG_VERSION")))
}

/// Files that only a result has. A folder with some of them is a result, possibly a damaged one.
const MARKS: [&str; 4] = [sums::NAME, SUMMARY, "ledger.json", "plan.json"];

const WHAT_A_RESULT_IS: &str = "give the folder of a result, RESULTS/WORKLOAD/TIME";

/// The folder itself if it is a result, the result in it if it is the leaf of a DLIO run, else the results in it,
/// sorted by name.
pub(crate) fn find(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let has = |folder: &Path, marks: &[&str]| marks.iter().any(|name| folder.join(name).exists());
    let shown = folder.display();
    let in_leaf = folder.join(IN_LEAF);
    if has(&in_leaf, &MARKS) {
        return Ok(vec![in_leaf]);
    }
    if let Some(kind) = study::kind_of(folder) {
        bail!(
            "{shown} is the folder of a {0}; a {0} saves figures but no ledgers, so there is nothing to judge",
            kind.name
        );
    }
    if has(folder, &MARKS) {
        return Ok(vec![folder.to_owned()]);
    }
    let entries = std::fs::read_dir(folder)
        .map_err(|error| anyhow!("cannot read {shown}: {error}; {WHAT_A_RESULT_IS}"))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {shown}"))?.path();
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let in_leaf = path.join(IN_LEAF);
        if !hidden && has(&in_leaf, &MARKS) {
            found.push(in_leaf);
        } else if !hidden && path.is_dir() && has(&path, &MARKS) {
            found.push(path);
        }
    }
    if found.is_empty() {
        bail!("no results found in {shown}; {WHAT_A_RESULT_IS}");
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_and_unreadable_versions_are_newer() {
        for (version, newer) in [
            (env!("CARGO_PKG_VERSION"), false),
            ("0.0.9", false),
            ("99.0.0", true),
            ("0.999.0", true),
            ("next", true),
        ] {
            assert_eq!(is_newer(version), newer, "{version}");
        }
    }
}
