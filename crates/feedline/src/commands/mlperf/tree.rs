//! Reading results for the rules of MLPerf Storage: finds result folders in a tree, reads their documents with a limit
//! on each, and groups them by workload. What is found there was written by other programs, or by hand.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use model::mlperf::{
    Division, DocumentText, LeafInput, LeafKind, MlperfLeaf, MlperfWorkload, WorkloadFamily, llama_model,
};

/// Largest document that is read: mlpstorage's metadata has some 64 kB for each host.
const LARGEST_DOCUMENT: u64 = 64 << 20;
/// Deepest folder below the one that was named; a submission has results nine levels below its root.
const DEEPEST: usize = 16;
/// Entries after which the search ends: the folder is not one of results.
const MOST_ENTRIES: usize = 1_000_000;
/// The same inside one result.
const MOST_IN_RESULT: usize = 10_000;

/// Where a result is in a submission.
#[derive(Clone, Debug)]
struct TreePlace {
    workload: PathBuf,
    family: WorkloadFamily,
    kind: LeafKind,
}

impl TreePlace {
    /// From the names of the folders around a result.
    fn of(leaf: &Path) -> Option<TreePlace> {
        let parent = leaf.parent()?;
        let kind = match name_of(parent) {
            "run" => LeafKind::Run,
            "datagen" => LeafKind::Datagen,
            "datasize" => LeafKind::Datasize,
            name => {
                let is_category = parent.parent().is_some_and(|folder| name_of(folder) == "checkpointing");
                let is_place = is_category || llama_model(name).is_some();
                let (workload, kind) = (parent.to_owned(), LeafKind::Checkpointing);
                return is_place.then_some(TreePlace {
                    workload,
                    family: WorkloadFamily::Checkpointing,
                    kind,
                });
            }
        };
        Some(TreePlace { workload: parent.parent()?.to_owned(), family: WorkloadFamily::Training, kind })
    }
}

/// A workload, and the names of the folders around it.
#[derive(Debug)]
pub(super) struct FoundWorkload {
    pub workload: MlperfWorkload,
    pub model: Option<String>,
    /// `results/<system>`, if it is in a submission.
    pub system: Option<PathBuf>,
    pub organisation: Option<PathBuf>,
    pub division: Option<Division>,
}

pub(super) fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// All workloads in and below a folder, in the order of their paths.
pub(super) fn read(folder: &Path) -> anyhow::Result<Vec<FoundWorkload>> {
    let shown = folder.display();
    let folder = std::path::absolute(folder).with_context(|| format!("{shown} has no absolute path"))?;
    let facts = match fs::metadata(&folder) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => bail!("{shown} does not exist"),
        facts => facts.with_context(|| format!("cannot read {shown}"))?,
    };
    if !facts.is_dir() {
        bail!("{shown} is a file; give the folder of a result or of a submission");
    }
    // The folder of a phase alone is not a workload.
    let is_phase = ["run", "datagen", "datasize"].contains(&name_of(&folder)) && !is_leaf(&list(&folder)?);
    let top = if is_phase { folder.parent().unwrap_or(&folder).to_owned() } else { folder };
    let leaves = find(&top)?;
    if leaves.is_empty() {
        bail!("no results found in {shown}; give the folder of a result, of a workload or of a submission");
    }
    let mut groups: BTreeMap<PathBuf, (Option<TreePlace>, Vec<PathBuf>)> = BTreeMap::new();
    for leaf in leaves {
        let place = TreePlace::of(&leaf).filter(|place| leaf != top && place.workload.starts_with(&top));
        let key = place.as_ref().map_or_else(|| leaf.clone(), |place| place.workload.clone());
        groups.entry(key).or_insert_with(|| (place, Vec::new())).1.push(leaf);
    }
    groups.into_iter().map(|(path, (place, leaves))| found(&path, place.as_ref(), &leaves)).collect()
}

fn found(path: &Path, place: Option<&TreePlace>, leaves: &[PathBuf]) -> anyhow::Result<FoundWorkload> {
    let read = |leaf: &PathBuf| {
        let around = TreePlace::of(leaf);
        Ok((MlperfLeaf::new(leaf_input(leaf)?, around.as_ref().map(|place| place.kind)), around))
    };
    let read = leaves.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    let around = place.cloned().or_else(|| read.first().and_then(|(_, around)| around.clone()));
    let leaves: Vec<MlperfLeaf> = read.into_iter().map(|(leaf, _)| leaf).collect();
    let family = match (&around, leaves.first().map(|leaf| leaf.kind)) {
        (Some(place), _) => place.family,
        (None, Some(LeafKind::Checkpointing)) => WorkloadFamily::Checkpointing,
        (None, _) => WorkloadFamily::Training,
    };
    let listed = list(path)?;
    let results_json = match family {
        WorkloadFamily::Training => path.join("run/results.json"),
        WorkloadFamily::Checkpointing => path.join("results.json"),
    };
    let workload = MlperfWorkload {
        folder: path.display().to_string(),
        family,
        is_whole: place.is_some(),
        has_results_json: results_json.is_file(),
        folders: listed.folders,
        leaves,
    };
    let folder = around.as_ref().map(|place| place.workload.clone());
    let named = folder.as_deref().map(|folder| name_of(folder).to_owned());
    let model = named.or_else(|| workload.leaves.iter().find_map(MlperfLeaf::model));
    // <division>/<organisation>/results/<system>/<category>/<model>
    let system = folder.as_deref().and_then(Path::parent).and_then(Path::parent);
    let results = system.and_then(Path::parent).filter(|folder| name_of(folder) == "results");
    let organisation = results.and_then(Path::parent);
    let division = organisation.and_then(Path::parent).and_then(|folder| name_of(folder).parse().ok());
    Ok(FoundWorkload {
        workload,
        model,
        system: system.filter(|_| results.is_some()).map(Path::to_owned),
        organisation: organisation.map(Path::to_owned),
        division,
    })
}

/// The names in a folder.
#[derive(Clone, Debug, Default)]
pub(super) struct ResultListing {
    pub files: Vec<String>,
    pub folders: Vec<String>,
}

impl ResultListing {
    pub(super) fn all(&self) -> Vec<String> {
        self.files.iter().chain(&self.folders).cloned().collect()
    }
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
    names.files.iter().any(is_mark) || names.folders.iter().any(|name| name == "dlio_config")
}

/// Result folders in and below a folder. Links are followed, each folder once, so that a loop ends.
fn find(top: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let (mut leaves, mut seen, mut entries) = (Vec::new(), HashSet::new(), 0);
    let mut waiting = vec![(top.to_owned(), 0)];
    while let Some((folder, depth)) = waiting.pop() {
        let facts = fs::metadata(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        if depth > DEEPEST || !seen.insert((facts.dev(), facts.ino())) {
            continue;
        }
        let names = list(&folder)?;
        entries += names.files.len() + names.folders.len();
        if entries > MOST_ENTRIES {
            bail!(
                "{} has more than {MOST_ENTRIES} entries below it; give the folder of a result",
                top.display()
            );
        }
        if is_leaf(&names) {
            leaves.push(folder);
            continue;
        }
        let is_code = |name: &&String| *name == "code" || name.starts_with("code-") || name.starts_with('.');
        waiting.extend(
            names.folders.iter().filter(|name| !is_code(name)).map(|name| (folder.join(name), depth + 1)),
        );
    }
    leaves.sort();
    Ok(leaves)
}

fn leaf_input(folder: &Path) -> anyhow::Result<LeafInput> {
    let names = list(folder)?;
    let config = folder.join("dlio_config");
    let config_entries = match names.folders.iter().any(|name| name == "dlio_config") {
        true => Some(list(&config)?.all()),
        false => None,
    };
    let metadata = names.files.iter().find(|name| name.contains("metadata"));
    Ok(LeafInput {
        folder: folder.display().to_string(),
        nested_summaries: nested(folder, &names.folders),
        summary: document(&folder.join("summary.json")),
        metadata: metadata.map_or(DocumentText::Absent, |name| document(&folder.join(name))),
        config: document(&config.join("config.yaml")),
        overrides: document(&config.join("overrides.yaml")),
        separation: document(&folder.join("fs_separation.json")),
        config_entries,
        files: names.files,
        folders: names.folders,
    })
}

/// Files named summary.json in sub-folders, as far as they can be listed.
fn nested(leaf: &Path, folders: &[String]) -> Vec<String> {
    let (mut found, mut entries) = (Vec::new(), 0);
    let mut waiting: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
    while let Some(folder) = waiting.pop() {
        let is_link = leaf.join(&folder).is_symlink();
        let Some(names) = list(&leaf.join(&folder)).ok().filter(|_| !is_link) else { continue };
        entries += names.files.len() + names.folders.len();
        if entries > MOST_IN_RESULT {
            break;
        }
        let summaries = names.files.iter().filter(|name| *name == "summary.json");
        found.extend(summaries.map(|name| folder.join(name).display().to_string()));
        waiting.extend(names.folders.iter().map(|name| folder.join(name)));
    }
    found.sort();
    found
}

/// A document, or why it cannot be used.
fn document(path: &Path) -> DocumentText {
    match text_of(path) {
        Ok(Some(text)) => DocumentText::Text(text),
        Ok(None) => DocumentText::Absent,
        Err(why) => DocumentText::Unusable(format!("{why:#}")),
    }
}

fn text_of(path: &Path) -> anyhow::Result<Option<String>> {
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
    file.take(LARGEST_DOCUMENT + 1).read_to_end(&mut bytes).context("cannot be read")?;
    if bytes.len() as u64 > LARGEST_DOCUMENT {
        bail!("is larger than {} MiB", LARGEST_DOCUMENT >> 20);
    }
    String::from_utf8(bytes).map(Some).map_err(|_| anyhow!("is not text (invalid UTF-8)"))
}
