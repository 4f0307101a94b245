//! Reading results for the rules of MLPerf Storage: walks down a tree, finds the folders of a submission, workloads and
//! single results, and reads their documents with a limit on each. What is found there was written by other programs,
//! or by hand.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use model::mlperf::{
    Division, DocumentText, LeafInput, LeafKind, LeafListing, MlperfLeaf, MlperfWorkload, WorkloadFamily,
    is_code, llama_model,
};

/// Largest document that is read.
const LARGEST_DOCUMENT: u64 = 4 << 20;
/// The same for mlpstorage's metadata, which has some 64 kB for each host.
const LARGEST_METADATA: u64 = 64 << 20;
/// Deepest folder below the one that was named; a submission has results nine levels below its root.
const DEEPEST: usize = 16;
/// Entries after which the search ends: the folder is not one of results.
const MOST_ENTRIES: usize = 1_000_000;
/// The same inside one result.
const MOST_IN_RESULT: usize = 10_000;

/// Where Hydra writes the configuration of a run: by mlpstorage, and by DLIO alone.
const CONFIG_FOLDERS: [&str; 2] = ["dlio_config", ".hydra"];

/// The folders of a training workload that hold results.
const PHASES: [(&str, LeafKind); 3] =
    [("datasize", LeafKind::Datasize), ("datagen", LeafKind::Datagen), ("run", LeafKind::Run)];

/// The system, submitter and division that a workload belongs to, by `<division>/<submitter>/results/<system>`.
#[derive(Clone, Debug)]
pub(super) struct SubmissionPlace {
    pub system: PathBuf,
    pub organisation: PathBuf,
    pub division: Division,
}

impl SubmissionPlace {
    fn of_system(system: &Path) -> Option<SubmissionPlace> {
        let results = system.parent().filter(|folder| name_of(folder) == "results")?;
        let organisation = results.parent()?;
        let division = division_of(organisation.parent()?)?;
        Some(SubmissionPlace { system: system.to_owned(), organisation: organisation.to_owned(), division })
    }

    /// From `<system>/<category>/<workload>`.
    fn of_workload(workload: &Path) -> Option<SubmissionPlace> {
        SubmissionPlace::of_system(workload.parent()?.parent()?)
    }
}

fn division_of(folder: &Path) -> Option<Division> {
    name_of(folder).parse().ok()
}

/// A folder of a submission above the workloads.
#[derive(Clone, Debug)]
pub(super) enum SubmissionPart {
    Root(PathBuf),
    Division(PathBuf),
    Submitter(PathBuf, Division),
    System(PathBuf),
}

impl SubmissionPart {
    fn of(folder: &Path, names: &ResultListing) -> Option<SubmissionPart> {
        let path = folder.to_owned();
        if SubmissionPlace::of_system(folder).is_some() {
            return Some(SubmissionPart::System(path));
        }
        if let Some(parent) = folder.parent().filter(|parent| is_division(parent)) {
            return division_of(parent).map(|division| SubmissionPart::Submitter(path, division));
        }
        if is_division(folder) {
            return Some(SubmissionPart::Division(path));
        }
        let is_root = names.folders.iter().any(|name| is_division(&folder.join(name)));
        is_root.then_some(SubmissionPart::Root(path))
    }
}

/// Whether a folder is that of a division: by its name, and because it or the other division has a submitter.
fn is_division(folder: &Path) -> bool {
    let has_submitter = |division: &str| {
        let division = folder.with_file_name(division);
        let is_submitter =
            |name: &String| ["results", "systems"].iter().any(|part| division.join(name).join(part).is_dir());
        list(&division).is_ok_and(|names| names.folders.iter().any(is_submitter))
    };
    division_of(folder).is_some() && Division::NAMES.into_iter().any(has_submitter)
}

/// A workload, and where it is.
#[derive(Debug)]
pub(super) struct FoundWorkload {
    pub workload: MlperfWorkload,
    pub model: Option<String>,
    pub place: Option<SubmissionPlace>,
    /// The folder of the system, also outside a submission: its workloads are of one edition.
    pub around: Option<PathBuf>,
}

/// Everything in a tree, in the order of paths.
#[derive(Debug)]
pub(super) struct FoundResults {
    pub parts: Vec<SubmissionPart>,
    pub workloads: Vec<FoundWorkload>,
}

pub(super) fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

pub(super) fn read(folder: &Path) -> anyhow::Result<FoundResults> {
    let shown = folder.display();
    // Names of folders matter, so that `..` and links in the path are resolved.
    let folder = match fs::canonicalize(folder) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => bail!("{shown} does not exist"),
        folder => folder.with_context(|| format!("cannot read {shown}"))?,
    };
    if !folder.is_dir() {
        bail!("{shown} is a file; give the folder of a result or of a submission");
    }
    // The folder of a phase alone is not a workload.
    let of_phase = folder.parent().filter(|parent| {
        let is_phase = PHASES.iter().any(|(phase, _)| *phase == name_of(&folder));
        is_phase && list(parent).is_ok_and(|names| family_of(parent, &names).is_some())
    });
    let mut search = ResultSearch::default();
    search.visit(of_phase.unwrap_or(&folder), 0)?;
    if search.workloads.is_empty() {
        bail!("no results found in {shown}; give the folder of a result, of a workload or of a submission");
    }
    search.workloads.sort_by(|one, other| one.workload.folder.cmp(&other.workload.folder));
    Ok(FoundResults { parts: search.parts, workloads: search.workloads })
}

/// The search in a tree. Links are followed, each folder once, so that a loop ends.
#[derive(Default)]
struct ResultSearch {
    seen: HashSet<(u64, u64)>,
    entries: usize,
    parts: Vec<SubmissionPart>,
    workloads: Vec<FoundWorkload>,
}

impl ResultSearch {
    fn visit(&mut self, folder: &Path, depth: usize) -> anyhow::Result<()> {
        let facts = match fs::metadata(folder) {
            // It was removed meanwhile, or its name is not UTF-8.
            Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(()),
            facts => facts.with_context(|| format!("cannot read {}", folder.display()))?,
        };
        if depth > DEEPEST || !self.seen.insert((facts.dev(), facts.ino())) {
            return Ok(());
        }
        let names = list(folder)?;
        self.entries += names.files.len() + names.folders.len();
        if self.entries > MOST_ENTRIES {
            bail!("there are more than {MOST_ENTRIES} entries; give the folder of a result");
        }
        self.parts.extend(SubmissionPart::of(folder, &names));
        if is_leaf(&names) {
            self.workloads.push(alone(folder));
        } else if let Some(family) = family_of(folder, &names) {
            self.workloads.push(whole(folder, family, names));
        } else {
            for name in names.folders.iter().filter(|name| !is_ignored(name)) {
                self.visit(&folder.join(name), depth + 1)?;
            }
        }
        Ok(())
    }
}

/// Whether a folder has no results by its name.
fn is_ignored(name: &str) -> bool {
    is_code(name) || name.starts_with('.')
}

/// Whether a folder is that of a workload: by its place in a submission, also if it has no result, else by the results
/// in it.
fn family_of(folder: &Path, names: &ResultListing) -> Option<WorkloadFamily> {
    let has_leaf = |folder: &Path| {
        let is_result = |name: &String| list(&folder.join(name)).is_ok_and(|names| is_leaf(&names));
        list(folder).is_ok_and(|names| names.folders.iter().any(is_result))
    };
    let is_placed = SubmissionPlace::of_workload(folder).is_some();
    let has_phase = || {
        let mut phases = PHASES.iter().filter(|(phase, _)| names.folders.iter().any(|name| name == phase));
        phases.any(|(phase, _)| has_leaf(&folder.join(phase)))
    };
    match folder.parent().map(name_of)? {
        "training" if is_placed => Some(WorkloadFamily::Training),
        "checkpointing" if is_placed || has_leaf(folder) => Some(WorkloadFamily::Checkpointing),
        _ if has_phase() => Some(WorkloadFamily::Training),
        _ if llama_model(name_of(folder)).is_some() && has_leaf(folder) => {
            Some(WorkloadFamily::Checkpointing)
        }
        _ => None,
    }
}

/// All results of a workload. Every folder where a result is expected counts as one, whatever it holds: a run that
/// failed early, or was emptied, is one that happened.
fn whole(folder: &Path, family: WorkloadFamily, names: ResultListing) -> FoundWorkload {
    let results = |folder: &Path, kind| {
        let names = list(folder).unwrap_or_default().folders.into_iter().filter(|name| !is_ignored(name));
        names.map(|name| MlperfLeaf::new(leaf_input(&folder.join(name)), Some(kind))).collect::<Vec<_>>()
    };
    let (leaves, results_json) = match family {
        WorkloadFamily::Training => {
            let phases = PHASES.iter().flat_map(|(phase, kind)| results(&folder.join(phase), *kind));
            (phases.collect(), folder.join("run/results.json"))
        }
        WorkloadFamily::Checkpointing => {
            (results(folder, LeafKind::Checkpointing), folder.join("results.json"))
        }
    };
    let place = SubmissionPlace::of_workload(folder);
    let workload = MlperfWorkload {
        folder: folder.display().to_string(),
        family,
        is_whole: true,
        has_results_json: results_json.is_file(),
        placed_in: place.as_ref().map(|place| place.division),
        folders: names.folders,
        leaves,
    };
    found(workload, Some(folder))
}

/// One result. The names of the folders around it still count, if they are those of a workload.
fn alone(folder: &Path) -> FoundWorkload {
    let parent = folder.parent();
    let phase = PHASES.iter().find(|(phase, _)| parent.is_some_and(|parent| name_of(parent) == *phase));
    let (kind, of_workload) = match phase {
        Some((_, kind)) => (Some(*kind), parent.and_then(Path::parent)),
        None => {
            let is_workload = |parent: &&Path| {
                let category = parent.parent().map(name_of);
                category == Some("checkpointing") || llama_model(name_of(parent)).is_some()
            };
            let of_workload = parent.filter(is_workload);
            (of_workload.map(|_| LeafKind::Checkpointing), of_workload)
        }
    };
    let leaf = MlperfLeaf::new(leaf_input(folder), kind);
    let family = match leaf.kind {
        LeafKind::Checkpointing => WorkloadFamily::Checkpointing,
        _ => WorkloadFamily::Training,
    };
    let place = of_workload.and_then(SubmissionPlace::of_workload);
    let workload = MlperfWorkload {
        folder: folder.display().to_string(),
        family,
        is_whole: false,
        has_results_json: false,
        placed_in: place.map(|place| place.division),
        folders: Vec::new(),
        leaves: vec![leaf],
    };
    found(workload, of_workload)
}

fn found(workload: MlperfWorkload, folder: Option<&Path>) -> FoundWorkload {
    let named = folder.map(|folder| name_of(folder).to_owned());
    FoundWorkload {
        model: named.or_else(|| workload.leaves.iter().find_map(MlperfLeaf::model)),
        place: folder.and_then(SubmissionPlace::of_workload),
        around: folder.and_then(Path::parent).and_then(Path::parent).map(Path::to_owned),
        workload,
    }
}

/// The names in a folder.
#[derive(Clone, Debug, Default)]
pub(super) struct ResultListing {
    pub files: Vec<String>,
    pub folders: Vec<String>,
}

pub(super) fn list(folder: &Path) -> anyhow::Result<ResultListing> {
    let cannot = || format!("cannot list {}", folder.display());
    let mut names = ResultListing::default();
    for entry in fs::read_dir(folder).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // A link counts as what it points to; a broken one as a file.
        match fs::metadata(entry.path()).is_ok_and(|facts| facts.is_dir()) {
            true => names.folders.push(name),
            false => names.files.push(name),
        }
        if names.files.len() + names.folders.len() > MOST_ENTRIES {
            bail!("{} has more than {MOST_ENTRIES} entries; it is not a folder of results", folder.display());
        }
    }
    names.files.sort();
    names.folders.sort();
    Ok(names)
}

fn is_leaf(names: &ResultListing) -> bool {
    let is_mark =
        |name: &String| name == "summary.json" || name == "dlio.log" || name.ends_with("_metadata.json");
    names.files.iter().any(is_mark)
        || names.folders.iter().any(|name| CONFIG_FOLDERS.contains(&name.as_str()))
}

fn leaf_input(folder: &Path) -> LeafInput {
    let shown = folder.display().to_string();
    let names = match list(folder) {
        Ok(names) => names,
        Err(why) => {
            let listing = LeafListing { folder: shown, ..LeafListing::default() };
            return LeafInput {
                listing,
                summary: DocumentText::Unusable(format!("{why:#}")),
                ..LeafInput::default()
            };
        }
    };
    let config_entries = list(&folder.join(CONFIG_FOLDERS[0])).ok();
    let config_entries = config_entries.map(|names| names.files.into_iter().chain(names.folders).collect());
    let is_here = |name: &&&str| names.folders.iter().any(|folder| folder == **name);
    let config = folder.join(CONFIG_FOLDERS.iter().find(is_here).unwrap_or(&CONFIG_FOLDERS[0]));
    let metadata = names.files.iter().find(|name| name.contains("metadata"));
    let document = |path: PathBuf| document(&path, LARGEST_DOCUMENT);
    LeafInput {
        summary: document(folder.join("summary.json")),
        metadata: metadata
            .map_or(DocumentText::Absent, |name| self::document(&folder.join(name), LARGEST_METADATA)),
        config: document(config.join("config.yaml")),
        overrides: document(config.join("overrides.yaml")),
        separation: document(folder.join("fs_separation.json")),
        listing: LeafListing {
            folder: shown,
            nested_summaries: nested(folder, &names.folders),
            config_entries,
            files: names.files,
            folders: names.folders,
        },
    }
}

/// Files named summary.json in sub-folders; `None`: there are too many entries to tell.
fn nested(leaf: &Path, folders: &[String]) -> Option<Vec<String>> {
    let (mut found, mut entries) = (Vec::new(), 0);
    let mut waiting: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
    while let Some(folder) = waiting.pop() {
        let path = leaf.join(&folder);
        let is_link = !fs::symlink_metadata(&path).is_ok_and(|facts| facts.is_dir());
        let Some(names) = list(&path).ok().filter(|_| !is_link) else { continue };
        entries += names.files.len() + names.folders.len();
        if entries > MOST_IN_RESULT {
            return None;
        }
        let summaries = names.files.iter().filter(|name| *name == "summary.json");
        found.extend(summaries.map(|name| folder.join(name).display().to_string()));
        waiting.extend(names.folders.iter().map(|name| folder.join(name)));
    }
    found.sort();
    Some(found)
}

/// A document, or why it cannot be used.
fn document(path: &Path, largest: u64) -> DocumentText {
    match text_of(path, largest) {
        Ok(Some(text)) => DocumentText::Text(text),
        Ok(None) => DocumentText::Absent,
        Err(why) => DocumentText::Unusable(format!("{why:#}")),
    }
}

fn text_of(path: &Path, largest: u64) -> anyhow::Result<Option<String>> {
    let facts = match fs::metadata(path) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        facts => facts.context("cannot be read")?,
    };
    // Opening a pipe would wait for a writer.
    if !facts.is_file() {
        bail!("is not a regular file");
    }
    let mut bytes = Vec::new();
    let file = File::open(path).context("cannot be read")?;
    file.take(largest + 1).read_to_end(&mut bytes).context("cannot be read")?;
    if bytes.len() as u64 > largest {
        bail!("is larger than {} MiB", largest >> 20);
    }
    String::from_utf8(bytes).map(Some).map_err(|_| anyhow!("is not text (invalid UTF-8)"))
}
