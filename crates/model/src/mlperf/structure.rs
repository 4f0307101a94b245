//! Rules on the folders of a submission above the workloads.

use super::edition::{Division, Edition, LLAMA_MODELS};
use super::finding::{FindingList, MlperfFinding, MlperfRule};

const TOP_LEVEL: MlperfRule = MlperfRule("2.1.2", "topLevelSubdirectories");
const SUBMITTERS: MlperfRule = MlperfRule("2.1.4", "closedSubmitterDirectory");
const SUBMITTER: MlperfRule = MlperfRule("2.1.5", "requiredSubdirectories");
const SYSTEM_FILES: MlperfRule = MlperfRule("2.1.7", "systemsDirectoryFiles");
const SYSTEMS: MlperfRule = MlperfRule("2.1.8", "resultsDirectorySystems");
const CATEGORIES: MlperfRule = MlperfRule("2.1.10", "workloadCategories");
const TRAINING: MlperfRule = MlperfRule("2.1.11", "trainingWorkloads");
const CHECKPOINTING: MlperfRule = MlperfRule("2.1.21", "checkpointingWorkloads");

/// Entries that do not start with a dot.
fn visible(entries: &[String]) -> impl Iterator<Item = &str> {
    entries.iter().map(String::as_str).filter(|name| !name.starts_with('.'))
}

fn only(found: &mut FindingList, rule: MlperfRule, entries: &[String], allowed: &[&str], remedy: &str) {
    let extra: Vec<&str> = visible(entries).filter(|name| !allowed.contains(name)).collect();
    let is_empty = visible(entries).next().is_none();
    let evidence = match (is_empty, extra.is_empty()) {
        (true, _) => "the folder is empty".to_owned(),
        (_, true) => format!("found: {}", visible(entries).collect::<Vec<_>>().join(", ")),
        (_, false) => format!("{} do not belong there; allowed are {}", extra.join(", "), allowed.join(", ")),
    };
    found.judge(rule, Some(extra.is_empty() && !is_empty), evidence, remedy);
}

/// The top folder, which has the divisions.
pub fn check_root(folder: &str, entries: &[String]) -> Vec<MlperfFinding> {
    let mut found = FindingList::at(folder);
    only(&mut found, TOP_LEVEL, entries, &Division::NAMES, "keep only closed/ and open/");
    found.list
}

/// The folder of a division, which has the submitters.
pub fn check_division(folder: &str, folders: &[String]) -> Vec<MlperfFinding> {
    let mut found = FindingList::at(folder);
    let submitters: Vec<&str> = visible(folders).collect();
    let evidence = format!("submitters: {}", submitters.join(", "));
    found.judge(
        SUBMITTERS,
        Some(!submitters.is_empty()),
        evidence,
        "add a folder with the name of the submitter",
    );
    found.list
}

/// The folder of a submitter, with the entries of its `systems` and `results`.
pub fn check_submitter(
    folder: &str,
    division: Division,
    entries: &[String],
    systems: &[String],
    results: &[String],
) -> Vec<MlperfFinding> {
    let mut found = FindingList::at(folder);
    let has = |name: &str| visible(entries).any(|entry| entry == name);
    // Since round 3.0, `code-<hash>` folders hold the code of several runs.
    let is_code = |name: &str| name == "code" || name.starts_with("code-");
    let mut faults: Vec<String> = ["results", "systems"]
        .into_iter()
        .filter(|name| !has(name))
        .map(|name| format!("{name}/ is missing"))
        .collect();
    if division == Division::Closed && !visible(entries).any(is_code) {
        faults.push("code/ is missing".to_owned());
    }
    let is_known = |name: &str| ["results", "systems"].contains(&name) || is_code(name);
    faults.extend(
        visible(entries).filter(|name| !is_known(name)).map(|name| format!("{name} does not belong there")),
    );
    let evidence = if faults.is_empty() {
        "results/, systems/ and the code exist".to_owned()
    } else {
        faults.join("; ")
    };
    let remedy = "keep exactly results/, systems/ and, in CLOSED, code/";
    found.judge(SUBMITTER, Some(faults.is_empty()), evidence, remedy);
    let named: Vec<&str> = visible(results).collect();
    let evidence = format!("systems with results: {}", named.join(", "));
    found.judge(SYSTEMS, Some(!named.is_empty()), evidence, "add the results of a system");
    let missing: Vec<String> = named
        .iter()
        .flat_map(|system| [format!("{system}.yaml"), format!("{system}.pdf")])
        .filter(|name| !systems.contains(name))
        .map(|name| format!("systems/{name} is missing"))
        .collect();
    let evidence =
        if missing.is_empty() { "each system has a .yaml and a .pdf".to_owned() } else { missing.join("; ") };
    found.judge(
        SYSTEM_FILES,
        Some(missing.is_empty()),
        evidence,
        "describe each system in a .yaml and a .pdf file",
    );
    found.list
}

/// The folder of a system in `results`, with the entries of its categories.
pub fn check_system(
    folder: &str,
    edition: Edition,
    entries: &[String],
    training: Option<&[String]>,
    checkpointing: Option<&[String]>,
) -> Vec<MlperfFinding> {
    let mut found = FindingList::at(folder);
    let categories: &[&str] = match edition {
        Edition::V2 => &["training", "checkpointing"],
        Edition::V3 => &["training", "checkpointing", "vector_database", "kv_cache"],
    };
    only(&mut found, CATEGORIES, entries, categories, "keep only the folders of categories");
    if let Some(models) = training {
        let allowed: &[&str] = match edition {
            Edition::V2 => &["unet3d", "resnet50", "cosmoflow"],
            Edition::V3 => &["unet3d", "retinanet"],
        };
        only(&mut found, TRAINING, models, allowed, "keep only workloads that the edition scores");
    }
    if let Some(models) = checkpointing {
        let allowed = LLAMA_MODELS.map(|model| model.name);
        only(&mut found, CHECKPOINTING, models, &allowed, "keep only workloads that the edition scores");
    }
    found.list
}
