//! Rules on the folders of a submission above the workloads.

use super::edition::{Division, Edition, LLAMA_MODELS};
use super::finding::{FindingList, MlperfFinding, MlperfRule};

const SUBMITTER_NAME: MlperfRule = MlperfRule("2.1.1", "submitterRootDirectory");
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

/// Whether a folder holds code. Since round 3.0, `code-<hash>` folders hold that of several runs.
pub fn is_code(name: &str) -> bool {
    name == "code" || name.starts_with("code-")
}

/// The top folder, which has the divisions. In round 3.0, it also has `code_pools`: folders of submitters with nothing
/// but code.
pub fn check_root(folder: &str, folders: &[String], code_pools: &[String]) -> Vec<MlperfFinding> {
    let mut found = FindingList::at(folder);
    let others: Vec<String> = folders.iter().filter(|name| !code_pools.contains(name)).cloned().collect();
    let remedy = "keep only closed/, open/ and folders with code-<hash>/ alone";
    only(&mut found, TOP_LEVEL, &others, &Division::NAMES, remedy);
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

/// The names in the folder of a submitter.
#[derive(Clone, Debug, Default)]
pub struct SubmitterFolder {
    pub folder: String,
    pub name: String,
    pub folders: Vec<String>,
    /// Whether the top folder has a folder of the same name with the code.
    pub has_code_pool: bool,
    /// Files and folders in `systems`.
    pub system_files: Vec<String>,
    pub system_folders: Vec<String>,
    /// Folders in `results`.
    pub results: Vec<String>,
}

pub fn check_submitter(submitter: &SubmitterFolder, division: Division) -> Vec<MlperfFinding> {
    let mut found = FindingList::at(&submitter.folder);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let holds = submitter.name.chars().all(is_plain);
    let evidence =
        format!("the submitter is {}; allowed are letters, digits, '.', '_' and '-'", submitter.name);
    found.judge(SUBMITTER_NAME, Some(holds), evidence, "rename the folder");
    parts(submitter, division, &mut found);
    system_files(submitter, &mut found);
    systems(submitter, &mut found);
    found.list
}

fn judge_faults(found: &mut FindingList, rule: MlperfRule, faults: &[String], good: &str, remedy: &str) {
    let evidence = if faults.is_empty() { good.to_owned() } else { faults.join("; ") };
    found.judge(rule, Some(faults.is_empty()), evidence, remedy);
}

fn parts(submitter: &SubmitterFolder, division: Division, found: &mut FindingList) {
    let names: Vec<&str> = visible(&submitter.folders).collect();
    let required = ["results", "systems"];
    let missing = required.iter().filter(|name| !names.contains(name));
    let mut faults: Vec<String> = missing.map(|name| format!("{name}/ is missing")).collect();
    let has_code = submitter.has_code_pool || names.iter().any(|name| is_code(name));
    if division == Division::Closed && !has_code {
        faults.push("code/ is missing".to_owned());
    }
    let extra = names.iter().filter(|name| !required.contains(name) && !is_code(name));
    faults.extend(extra.map(|name| format!("{name}/ does not belong there")));
    let remedy = "keep exactly results/, systems/ and, in CLOSED, code/";
    judge_faults(found, SUBMITTER, &faults, "results/, systems/ and the code exist", remedy);
}

/// Each system has a .yaml and a .pdf; only .md files may be there, too.
fn system_files(submitter: &SubmitterFolder, found: &mut FindingList) {
    let has = |name: &str| submitter.system_files.iter().any(|file| file == name);
    let fault = |file: &str| {
        match file.rsplit_once('.') {
            Some((stem, "yaml")) => Some(format!("{stem}.pdf")).filter(|other| !has(other)),
            Some((stem, "pdf")) => Some(format!("{stem}.yaml")).filter(|other| !has(other)),
            Some((_, "md")) => None,
            _ => return Some(format!("systems/{file} does not belong there")),
        }
        .map(|other| format!("systems/{file} is there without {other}"))
    };
    let mut faults: Vec<String> = visible(&submitter.system_files).filter_map(fault).collect();
    let folders = visible(&submitter.system_folders);
    faults.extend(folders.map(|name| format!("systems/{name}/ does not belong there")));
    let remedy = "describe each system in a .yaml and a .pdf file, and keep nothing else there";
    judge_faults(found, SYSTEM_FILES, &faults, "each system has a .yaml and a .pdf", remedy);
}

/// Systems with a description have results, and the other way round.
fn systems(submitter: &SubmitterFolder, found: &mut FindingList) {
    let named: Vec<&str> = visible(&submitter.results).collect();
    let described: Vec<&str> =
        visible(&submitter.system_files).filter_map(|name| name.strip_suffix(".yaml")).collect();
    let mut faults = Vec::new();
    if named.is_empty() {
        faults.push("results/ has no system".to_owned());
    }
    let unknown = named.iter().filter(|name| !described.contains(name));
    faults.extend(unknown.map(|name| format!("results/{name}/ is there without systems/{name}.yaml")));
    let unused = described.iter().filter(|name| !named.contains(name));
    faults.extend(unused.map(|name| format!("systems/{name}.yaml is there without results/{name}/")));
    let good = format!("systems with results: {}", named.join(", "));
    judge_faults(found, SYSTEMS, &faults, &good, "keep one description for each system with results");
}

/// The folder of a system in `results`, with the folders in its categories.
pub fn check_system(
    folder: &str,
    edition: Edition,
    folders: &[String],
    training: Option<&[String]>,
    checkpointing: Option<&[String]>,
) -> Vec<MlperfFinding> {
    let mut found = FindingList::at(folder);
    let categories: &[&str] = match edition {
        Edition::V2 => &["training", "checkpointing"],
        Edition::V3 => &["training", "checkpointing", "vector_database", "kv_cache"],
    };
    only(&mut found, CATEGORIES, folders, categories, "keep only the folders of categories");
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

#[cfg(test)]
mod tests {
    use super::super::finding::MlperfOutcome;
    use super::*;

    #[test]
    fn folders_of_a_submission() {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let outcome = |findings: Vec<MlperfFinding>| {
            let failed = findings.iter().filter(|finding| finding.outcome == MlperfOutcome::Fail);
            failed.map(|finding| finding.rule).collect::<Vec<_>>()
        };
        let pools = names(&["acme"]);
        assert_eq!(outcome(check_root("r", &names(&["closed", ".git"]), &[])), [""; 0]);
        assert_eq!(outcome(check_root("r", &names(&["closed", "notes"]), &[])), ["2.1.2"]);
        assert_eq!(outcome(check_root("r", &names(&["closed", "acme"]), &pools)), [""; 0]);
        assert_eq!(outcome(check_division("r", &names(&[".x"]))), ["2.1.4"]);
        let good = SubmitterFolder {
            name: "acme".to_owned(),
            folders: names(&["results", "systems"]),
            system_files: names(&["s.yaml", "s.pdf", "notes.md", ".x"]),
            results: names(&["s", ".x"]),
            ..SubmitterFolder::default()
        };
        let with = |change: fn(&mut SubmitterFolder)| {
            let mut submitter = good.clone();
            change(&mut submitter);
            submitter
        };
        let submitter =
            |division, change: fn(&mut SubmitterFolder)| outcome(check_submitter(&with(change), division));
        let (closed, open) = (Division::Closed, Division::Open);
        assert_eq!(submitter(closed, |_| ()), ["2.1.5"], "code is missing");
        assert_eq!(submitter(closed, |one| one.folders.push("code".to_owned())), [""; 0]);
        assert_eq!(submitter(closed, |one| one.folders.push("code-0a".to_owned())), [""; 0]);
        assert_eq!(submitter(closed, |one| one.has_code_pool = true), [""; 0]);
        type Change = fn(&mut SubmitterFolder);
        let changes: &[(&[&str], Change)] = &[
            (&[], |_| ()),
            (&["2.1.1"], |one| one.name = "ac me".to_owned()),
            (&["2.1.5"], |one| one.folders.push("notes".to_owned())),
            (&["2.1.5"], |one| drop(one.folders.remove(1))),
            (&["2.1.8"], |one| one.results.clear()),
            (&["2.1.8"], |one| one.results.push("t".to_owned())),
            (&["2.1.8"], |one| one.system_files.extend(["t.yaml", "t.pdf"].map(str::to_owned))),
            (&["2.1.7"], |one| drop(one.system_files.remove(1))),
            (&["2.1.7"], |one| one.system_files.push("x.txt".to_owned())),
            (&["2.1.7"], |one| one.system_files.push("t.pdf".to_owned())),
            (&["2.1.7"], |one| one.system_folders.push("sub".to_owned())),
        ];
        for (rules, change) in changes {
            assert_eq!(submitter(open, *change), *rules);
        }
        let system = |entries: &[&str], training: &[&str], saving: &[&str]| {
            let (training, saving) = (names(training), names(saving));
            outcome(check_system("s", Edition::V3, &names(entries), Some(&training), Some(&saving)))
        };
        assert_eq!(system(&["training", "checkpointing"], &["unet3d"], &["llama3-8b"]), [""; 0]);
        assert_eq!(system(&["training", "x"], &["unet3d"], &["llama3-8b"]), ["2.1.10"]);
        assert_eq!(system(&["training"], &["resnet50"], &["llama3-8b"]), ["2.1.11"]);
        assert_eq!(system(&["training"], &["unet3d"], &["llama3-7b"]), ["2.1.21"]);
    }
}
