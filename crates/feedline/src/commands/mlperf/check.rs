//! `feedline mlperf check`: whether results keep the rules of MLPerf Storage.

use std::path::{Path, PathBuf};

use clap::Args;
use model::document;
use model::mlperf::{
    Division, Edition, MlperfCase, MlperfFinding, MlperfLeaf, MlperfOutcome, SubmitterFolder, UNKNOWN_MODEL,
    check_division, check_root, check_submitter, check_system, is_code,
};

use super::tree::{self, FoundResults, FoundWorkload, SubmissionPart, list, name_of};
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::WaitFlags;
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
results that mlpstorage itself made count as a submission; 'feedline docs mlperf' lists the rules and where
mlpstorage's own check differs.";

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
    #[command(flatten)]
    pub wait: WaitFlags,
}

pub(super) fn check(flags: &MlperfCheckFlags) -> CommandResult {
    let mut workloads = Vec::new();
    let mut structure = Vec::new();
    for folder in &flags.folders {
        let found = tree::read(folder).map_err(Failure::usage)?;
        structure.extend(structure_of(&found, flags.rules).map_err(Failure::refused)?);
        workloads.extend(checked(&found, flags.rules));
    }
    let report = CheckReport { structure, workloads, all: flags.all };
    match flags.json {
        true => report::out_json(document::MLPERF_CHECK, &report.json())?,
        false => report::out(&report.text())?,
    }
    Ok(if report.count(MlperfOutcome::Fail) > 0 { Exit::CheckFailed } else { Exit::Ok })
}

/// The edition of workloads by their documents.
fn edition_of<'a>(workloads: impl IntoIterator<Item = &'a FoundWorkload>) -> Option<Edition> {
    workloads.into_iter().flat_map(|found| &found.workload.leaves).find_map(MlperfLeaf::edition)
}

/// All workloads with their findings.
pub(super) fn checked(found: &FoundResults, rules: RuleFlags) -> Vec<CheckedWorkload> {
    let checked = |one: &FoundWorkload| {
        // Checkpoint runs do not name an accelerator; the other workloads of the system do.
        let others =
            found.workloads.iter().filter(|other| one.around.is_some() && other.around == one.around);
        let by_documents = || edition_of([one]).or_else(|| edition_of(others));
        checked_one(one, rules.edition.or_else(by_documents).unwrap_or(Edition::V3), rules)
    };
    found.workloads.iter().map(checked).collect()
}

fn checked_one(found: &FoundWorkload, edition: Edition, rules: RuleFlags) -> CheckedWorkload {
    let workload = &found.workload;
    let noted = || workload.leaves.iter().find_map(MlperfLeaf::division);
    let division = rules.division.or(workload.placed_in).or_else(noted).unwrap_or(Division::Closed);
    let classes: Vec<(&str, &str)> =
        WORKLOADS.iter().filter_map(|workload| Some((workload.name, workload.published_hash?))).collect();
    let model = found.model.clone().unwrap_or_else(|| UNKNOWN_MODEL.to_owned());
    let case = MlperfCase { edition, division, model: &model, classes: &classes };
    CheckedWorkload {
        folder: workload.folder.clone(),
        organisation: found.place.as_ref().map(|place| name_of(&place.organisation).to_owned()),
        system: found.place.as_ref().map(|place| name_of(&place.system).to_owned()),
        findings: workload.check(&case),
        row: workload.row(),
        model,
        edition,
        division,
    }
}

/// Findings on the folders above workloads, in and below the folder that was named.
fn structure_of(found: &FoundResults, rules: RuleFlags) -> anyhow::Result<Vec<MlperfFinding>> {
    let mut findings = Vec::new();
    for part in &found.parts {
        findings.extend(match part {
            SubmissionPart::Root(root) => {
                let folders = list(root)?.folders;
                let pools: Vec<String> =
                    folders.iter().filter(|name| is_code_pool(&root.join(name))).cloned().collect();
                check_root(&root.display().to_string(), &folders, &pools)
            }
            SubmissionPart::Division(folder) => {
                check_division(&folder.display().to_string(), &list(folder)?.folders)
            }
            SubmissionPart::Submitter(folder, division) => {
                check_submitter(&submitter(folder)?, rules.division.unwrap_or(*division))
            }
            SubmissionPart::System(system) => {
                let is_here = |one: &&FoundWorkload| one.around.as_ref() == Some(system);
                let by_documents = || edition_of(found.workloads.iter().filter(is_here));
                let edition = rules.edition.or_else(by_documents).unwrap_or(Edition::V3);
                let inside = |name: &str| list(&system.join(name)).ok().map(|names| names.folders);
                let (training, saving) = (inside("training"), inside("checkpointing"));
                let shown = system.display().to_string();
                check_system(&shown, edition, &list(system)?.folders, training.as_deref(), saving.as_deref())
            }
        });
    }
    Ok(findings)
}

/// Whether a folder holds code and nothing else, as in round 3.0.
fn is_code_pool(folder: &Path) -> bool {
    list(folder).is_ok_and(|names| {
        let is_empty = names.files.iter().all(|name| name.starts_with('.'));
        is_empty && !names.folders.is_empty() && names.folders.iter().all(|name| is_code(name))
    })
}

fn submitter(folder: &Path) -> anyhow::Result<SubmitterFolder> {
    let name = name_of(folder);
    // <root>/<division>/<submitter>; the code may be in <root>/<submitter>.
    let root = folder.parent().and_then(Path::parent);
    let systems = list(&folder.join("systems")).unwrap_or_default();
    Ok(SubmitterFolder {
        folder: folder.display().to_string(),
        name: name.to_owned(),
        folders: list(folder)?.folders,
        has_code_pool: root.is_some_and(|root| is_code_pool(&root.join(name))),
        system_files: systems.files,
        system_folders: systems.folders,
        results: list(&folder.join("results")).unwrap_or_default().folders,
    })
}
