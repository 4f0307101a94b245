//! `feedline mlperf check`: whether results keep the rules of MLPerf Storage.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use model::mlperf::{
    Division, Edition, MlperfCase, MlperfFinding, MlperfLeaf, MlperfOutcome, check_division, check_root,
    check_submitter, check_system,
};

use super::tree::{self, FoundWorkload, list, name_of};
use crate::exit::{CommandResult, Exit, Failure};
use crate::report;
use crate::report::mlperf::check::{CheckReport, CheckedWorkload};
use crate::workloads::WORKLOADS;

pub(super) const EXAMPLES: &str = "\
Examples:
  feedline mlperf check results/closed/acme/results/system/training/unet3d
  feedline mlperf check submission --edition 3.0            a whole submission
  feedline mlperf check hydra_log/unet3d/2026-07-20-15-26-22 --division open --all
  feedline mlperf check submission --json

Each finding has the rule, what was found and what is required, and what to do. Exit code 5: a rule failed. Only
results that mlpstorage itself made count as a submission; docs/mlperf.md lists the rules and where mlpstorage's own
check differs.";

/// Which rules apply.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct RuleFlags {
    /// Edition of the rules: 2.0 or 3.0 [default: that of the accelerator, else 3.0]
    #[arg(long, value_name = "EDITION")]
    pub edition: Option<Edition>,
    /// Division: closed or open [default: from the folders or the metadata, else closed]
    #[arg(long, value_name = "DIVISION")]
    pub division: Option<Division>,
}

#[derive(Args, Debug)]
pub(crate) struct MlperfCheckFlags {
    /// A result, a folder with the results of a workload, or a submission
    #[arg(value_name = "DIR", required = true)]
    pub folders: Vec<PathBuf>,
    #[command(flatten)]
    pub rules: RuleFlags,
    /// Also show the rules that hold
    #[arg(long)]
    pub all: bool,
    /// Print the findings as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

pub(super) fn check(flags: &MlperfCheckFlags) -> CommandResult {
    let mut workloads = Vec::new();
    let mut structure = Vec::new();
    for folder in &flags.folders {
        let found = tree::read(folder).map_err(Failure::usage)?;
        structure.extend(structure_of(folder, &found, flags.rules).map_err(Failure::refused)?);
        workloads.extend(found.iter().map(|found| checked(found, flags.rules)));
    }
    let report = CheckReport { structure, workloads, all: flags.all };
    match flags.json {
        true => report::out_json(&report.json())?,
        false => report::out(&report.text())?,
    }
    Ok(if report.count(MlperfOutcome::Fail) > 0 { Exit::CheckFailed } else { Exit::Ok })
}

/// The edition and division of a workload: by the flags, else by its place and documents.
fn case_of(found: &FoundWorkload, rules: RuleFlags) -> (Edition, Division) {
    let leaves = &found.workload.leaves;
    let edition =
        rules.edition.or_else(|| leaves.iter().find_map(MlperfLeaf::edition)).unwrap_or(Edition::V3);
    let noted = || leaves.iter().find_map(MlperfLeaf::division);
    let division = rules.division.or(found.division).or_else(noted).unwrap_or(Division::Closed);
    (edition, division)
}

/// A workload with its findings.
pub(super) fn checked(found: &FoundWorkload, rules: RuleFlags) -> CheckedWorkload {
    let (edition, division) = case_of(found, rules);
    let classes: Vec<(&str, &str)> =
        WORKLOADS.iter().filter_map(|workload| Some((workload.name, workload.published_hash?))).collect();
    let model = found.model.clone().unwrap_or_else(|| "unknown".to_owned());
    let case = MlperfCase { edition, division, model: &model, classes: &classes };
    let named = |path: &Option<PathBuf>| path.as_deref().map(|path| name_of(path).to_owned());
    CheckedWorkload {
        folder: found.workload.folder.clone(),
        organisation: named(&found.organisation),
        system: named(&found.system),
        findings: found.workload.check(&case),
        row: found.workload.row(),
        model,
        edition,
        division,
    }
}

/// Findings on the folders above workloads, as far as they are in or below the folder that was named.
fn structure_of(
    folder: &Path,
    found: &[FoundWorkload],
    rules: RuleFlags,
) -> anyhow::Result<Vec<MlperfFinding>> {
    let top = std::path::absolute(folder)?;
    let mut findings = Vec::new();
    let mut done: BTreeSet<PathBuf> = BTreeSet::new();
    for one in found {
        let (edition, division) = case_of(one, rules);
        let mut is_new = |path: &Path| path.starts_with(&top) && done.insert(path.to_owned());
        let Some(system) = one.system.as_deref() else { continue };
        if is_new(system) {
            let inside = |name: &str| list(&system.join(name)).ok().map(|names| names.all());
            let (training, checkpointing) = (inside("training"), inside("checkpointing"));
            let (shown, entries) = (system.display().to_string(), list(system)?.all());
            findings.extend(check_system(
                &shown,
                edition,
                &entries,
                training.as_deref(),
                checkpointing.as_deref(),
            ));
        }
        let (Some(organisation), true) = (one.organisation.as_deref(), one.division.is_some()) else {
            continue;
        };
        if is_new(organisation) {
            let inside =
                |name: &str| list(&organisation.join(name)).map(|names| names.all()).unwrap_or_default();
            let (systems, results) = (inside("systems"), inside("results"));
            let entries = list(organisation)?.all();
            let shown = organisation.display().to_string();
            findings.extend(check_submitter(&shown, division, &entries, &systems, &results));
        }
        let Some(of_division) = organisation.parent() else { continue };
        if is_new(of_division) {
            findings.extend(check_division(&of_division.display().to_string(), &list(of_division)?.folders));
        }
        let Some(root) = of_division.parent() else { continue };
        if is_new(root) {
            findings.extend(check_root(&root.display().to_string(), &list(root)?.all()));
        }
    }
    Ok(findings)
}
