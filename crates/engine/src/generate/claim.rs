//! The manifest of a data folder, which records the data set that it holds. A generator writes it before the first file
//! and completes it after the last, and refuses a folder that holds something else.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use format::{Extent, Format};
use model::document;
use model::manifest::{DataSetManifest, ManifestDifference};
use model::names::{Name, Names};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{Store, StoreError};

use super::present::PresentFiles;
use super::{GenerateError, Generation};
use crate::catalog::{self, FOLDER};
use crate::file_reader::FileReader;
use crate::stop::Stop;
use crate::world::{EarlyEnd, Exchange, shared};
use crate::{host, meter};

/// Stored in the hidden folder, next to the catalog if there is one.
const MANIFEST: &str = "dataset.json";
/// The manifest that mlpstorage looks for in a data folder.
const MLPSTORAGE: &str = ".mlps-datagen-manifest.json";
/// A manifest is about a page long; a file that is larger than this is not a manifest.
const MOST_BYTES: u64 = 16 << 20;

/// Reads the manifest of a data folder, if it has one.
pub fn read_manifest(store: &dyn Store) -> Result<Option<DataSetManifest>, GenerateError> {
    let name = kept(MANIFEST);
    let Some(bytes) = store.files().size(&name)? else { return Ok(None) };
    let unreadable = |cause: String| GenerateError::Manifest { name: store.files().shown(&name), cause };
    if bytes > MOST_BYTES {
        return Err(unreadable(format!("it has {bytes} bytes")));
    }
    let mut reader = FileReader::new(store)?;
    let text = reader.read((&name, bytes), Extent { offset: 0, len: bytes })?;
    document::DATA_SET.check(text).map_err(|error| unreadable(error.to_string()))?;
    serde_json::from_slice(text).map(Some).map_err(|error| unreadable(error.to_string()))
}

/// How often, and after how long a pause, files of other hosts are counted again before one counts as missing. A
/// network file system may show them late: NFS caches a folder for up to 60 s by default.
const RECOUNTS: usize = 65;
const RECOUNT_AFTER: Duration = Duration::from_secs(1);

/// The hosts that write a data set, by their boot IDs. Until it is complete, a power failure on any of them may have
/// lost bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hosts(BTreeSet<String>);

impl Hosts {
    pub(super) fn of(world: &dyn Exchange, stop: &Stop) -> Result<Hosts, EarlyEnd> {
        let all = shared(world, &host::boot_id(), stop)?;
        Ok(Hosts(all.into_iter().flatten().collect()))
    }

    pub(super) fn only_this() -> Hosts {
        Hosts(host::boot_id().into_iter().collect())
    }

    /// As a manifest stores them.
    fn boot_id(&self) -> Option<String> {
        let all: Vec<&str> = self.0.iter().map(String::as_str).collect();
        (!all.is_empty()).then(|| all.join(" "))
    }

    /// Whether all hosts of an interrupted generation are among these, and none of them was restarted since.
    fn include(&self, there: Option<&str>) -> bool {
        match there {
            Some(there) => there.split(' ').all(|boot_id| self.0.contains(boot_id)),
            None => self.0.is_empty(),
        }
    }
}

/// The state of a folder that was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    /// Seed of the content: the existing one if it may be kept.
    pub(super) seed: u64,
    /// Every file must be rewritten.
    pub(super) rewrite: bool,
    /// The folder is known to be complete.
    pub(super) complete: bool,
}

/// The claim and the manifest of a folder whose manifest says that it holds the whole data set of the task. Writes and
/// locks nothing.
pub(super) fn of_complete(task: &Generation<'_>) -> Result<Option<(Claim, DataSetManifest)>, GenerateError> {
    let Some(there) = read_manifest(task.store)?.filter(|there| there.complete && !task.overwrite) else {
        return Ok(None);
    };
    if !is_same(task, &there.differences(&manifest(task))) || has_leftovers(task.store)? {
        return Ok(None);
    }
    let seed = there.seed().unwrap_or(task.spec.train.seed);
    Ok(Some((Claim { seed, rewrite: false, complete: true }, there)))
}

/// Whether a data set with these differences is the task's.
fn is_same(task: &Generation<'_>, differences: &[ManifestDifference]) -> bool {
    differences.is_empty() || task.keep_seed && differences.iter().all(ManifestDifference::is_seed)
}

/// Whether a process was killed while it replaced the manifest. What it left is removed under the lock.
fn has_leftovers(store: &dyn Store) -> Result<bool, StoreError> {
    let found = store.files().census(&beside(FOLDER), MANIFEST, store::PARTIAL)?;
    Ok(found.is_some_and(|found| found.matching > 0))
}

/// Keeps other generators out or, on storage without locks, makes sure that two of them do not both write the manifest.
pub(super) fn lock(task: &Generation<'_>) -> Result<(), StoreError> {
    task.store.files().lock(&kept(MANIFEST))
}

/// Claims the folder for the task's data set, or returns why that is not possible.
pub(super) fn claim(task: &Generation<'_>, hosts: &Hosts) -> Result<Claim, GenerateError> {
    let seed = task.spec.train.seed;
    let asked = manifest(task);
    let claim = match read_manifest(task.store)? {
        None => {
            refuse_unclaimed(task)?;
            Claim { seed, rewrite: task.overwrite, complete: false }
        }
        Some(there) => {
            task.store.files().remove_leftovers(&beside(FOLDER), MANIFEST, "")?;
            task.store.files().remove_leftovers(&beside("."), MLPSTORAGE, "")?;
            let differences = there.differences(&asked);
            if is_same(task, &differences) {
                let seed = there.seed().unwrap_or(seed);
                let may_lose_bytes = !task.store.files().finishes_durably();
                let unflushed = may_lose_bytes && !there.complete && !hosts.include(there.boot_id.as_deref());
                let rewrite = task.overwrite || there.rewriting || unflushed;
                let claim = Claim { seed, rewrite, complete: there.complete };
                // Files of more hosts than before may be unflushed from now on. Without locks, another generator may
                // be writing: it notices that the manifest has changed.
                let is_taken_over = !task.store.files().has_locks();
                if !there.complete && (is_taken_over || there.boot_id != hosts.boot_id()) {
                    write_manifest(task, claim, false, hosts)?;
                }
                return Ok(claim);
            }
            if !(task.overwrite && differences.iter().all(ManifestDifference::same_names)) {
                return Err(GenerateError::OtherDataSet(explain(&differences)));
            }
            Claim { seed, rewrite: true, complete: false }
        }
    };
    task.store.files().create_folder(&beside(FOLDER))?;
    write_manifest(task, claim, false, hosts)?;
    Ok(claim)
}

/// Files without a manifest are not feedline's, or are from a version without manifests: keeping them would claim
/// content that was never checked, and adding to them would mix two data sets.
fn refuse_unclaimed(task: &Generation<'_>) -> Result<(), GenerateError> {
    if task.store.files().size(&kept(catalog::FILE))?.is_some() {
        return Err(GenerateError::Catalogued);
    }
    for names in [&task.data.train.names, &task.data.valid.names] {
        let found = census(task.store, names, task.format)?;
        let files = found.matching + found.others;
        if found.others > 0 || (files > 0 && !task.overwrite) {
            let example = found.example.unwrap_or_else(|| names.of(0));
            let overwritable = found.others == 0;
            return Err(GenerateError::Unclaimed {
                folder: names.folder.clone(),
                files,
                example,
                overwritable,
            });
        }
    }
    if !task.overwrite && task.store.files().size(&beside(MLPSTORAGE))?.is_some() {
        let (folder, example) = (".".to_owned(), MLPSTORAGE.to_owned());
        return Err(GenerateError::Unclaimed { folder, files: 1, example, overwritable: true });
    }
    Ok(())
}

/// Counts the files of a split in all its folders, without their index files.
pub(crate) fn census(
    store: &dyn Store,
    names: &Names,
    format: &dyn Format,
) -> Result<store::FolderCount, StoreError> {
    let pattern = names.pattern();
    let (prefix, tail) = pattern.ends();
    let mut sum = store::FolderCount::default();
    for folder in names.folders() {
        let Some(name) = Name::new(&folder) else { continue };
        let Some(found) = store.files().census(&name, prefix, tail)? else { continue };
        sum.matching += found.matching;
        sum.others += found.others;
        sum.example = sum.example.or(found.example.map(|example| format!("{folder}/{example}")));
        for side in format.sides().iter().filter(|side| side.folder.is_none()) {
            let beside =
                store.files().census(&name, prefix, &format!("{tail}{}", side.suffix))?.unwrap_or_default();
            sum.others = sum.others.saturating_sub(beside.matching);
        }
    }
    if sum.others == 0 {
        sum.example = None;
    }
    Ok(sum)
}

/// Records that files are being written to a folder that was complete. They are not flushed one by one.
pub(super) fn reopen(task: &Generation<'_>, claim: Claim, hosts: &Hosts) -> Result<(), GenerateError> {
    write_manifest(task, claim, false, hosts)
}

/// Whether the folders hold all files of the data set and no others, if no file is missing. A listing tells that.
pub(super) fn has_all(task: &Generation<'_>, present: Option<&PresentFiles>) -> Result<bool, GenerateError> {
    match present.map_or_else(|| check_count(task), PresentFiles::check_others) {
        Ok(()) => Ok(true),
        Err(GenerateError::Miscounted { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn check_count(task: &Generation<'_>) -> Result<(), GenerateError> {
    for names in [&task.data.train.names, &task.data.valid.names] {
        let found = census(task.store, names, task.format)?;
        if found.matching != names.count || found.others > 0 {
            let (planned, there) = (names.count, found.matching + found.others);
            let folder = names.folder.clone();
            return Err(GenerateError::Miscounted { folder, planned, there, example: found.example });
        }
    }
    Ok(())
}

/// Checks that every file exists and completes the manifest, unless it was complete and nothing was `written`. Files
/// that were `present` in a listing, and those that were written since, are all that there should be.
pub(super) fn complete(
    task: &Generation<'_>,
    claim: Claim,
    written: bool,
    hosts: &Hosts,
    present: Option<&PresentFiles>,
) -> Result<(), GenerateError> {
    present.map_or_else(|| check_count_of_all(task, hosts), PresentFiles::check_others)?;
    if claim.complete && !written {
        return Ok(());
    }
    // mlpstorage's manifest comes first: once feedline's own says that the folder is complete, nothing more is written.
    put(task.store, &beside(MLPSTORAGE), &mlpstorage(task))?;
    write_manifest(task, claim, true, hosts)
}

/// Waits for files that other hosts have just written to become visible here.
fn check_count_of_all(task: &Generation<'_>, hosts: &Hosts) -> Result<(), GenerateError> {
    let mut recounts = if hosts.0.len() > 1 { RECOUNTS } else { 0 };
    loop {
        match check_count(task) {
            Err(GenerateError::Miscounted { planned, there, .. })
                if there < planned && recounts > 0 && !task.stop.wished() =>
            {
                recounts -= 1;
                meter::pause(RECOUNT_AFTER);
            }
            outcome => return outcome,
        }
    }
}

/// The manifest of the data set to be generated.
fn manifest(task: &Generation<'_>) -> DataSetManifest {
    DataSetManifest::of(task.spec, &task.data, env!("CARGO_PKG_VERSION"))
}

fn write_manifest(
    task: &Generation<'_>,
    claim: Claim,
    complete: bool,
    hosts: &Hosts,
) -> Result<(), GenerateError> {
    let rewriting = claim.rewrite && !complete;
    let boot_id = hosts.boot_id();
    // Two generators of the same data set must not put the same text: each would take the other's for its own.
    let is_unique = !complete && !task.store.files().has_locks();
    let writer = is_unique.then(|| format!("{:016x}", meter::entropy()));
    let manifest =
        DataSetManifest { complete, rewriting, boot_id, writer, ..manifest(task).with_seed(claim.seed) };
    let mut text = serde_json::to_string_pretty(&manifest)
        .map_err(|error| GenerateError::Manifest { name: MANIFEST.to_owned(), cause: error.to_string() })?;
    text.push('\n');
    Ok(put(task.store, &kept(MANIFEST), &text)?)
}

/// The manifest that mlpstorage reads before it runs on a data set, without the keys that only mlpstorage can fill.
fn mlpstorage(task: &Generation<'_>) -> String {
    let names = &task.data.train.names;
    let manifest = json!({
        "created_at": meter::timestamp(),
        "dataset_format": task.format.name(),
        "model": task.spec.model.name,
        "num_files_train": names.count,
        "num_samples_per_file": task.data.train.samples_per_file,
        "num_subfolders_train": names.subfolders,
        "record_length_bytes": task.spec.dataset.record_length_bytes as u64,
        "schema_version": 1,
    });
    format!("{manifest:#}\n")
}

/// The name of a file in the hidden folder.
fn kept(file: &str) -> Name {
    Name::new(&format!("{FOLDER}/{file}")).unwrap_or_default()
}

/// The name of a file next to the folders of the splits.
fn beside(file: &str) -> Name {
    Name::new(file).unwrap_or_default()
}

/// Writes a small file, flushed before it gets its name, with the name flushed afterwards: its statement about the
/// folder must survive a power failure.
fn put(store: &dyn Store, name: &Name, text: &str) -> Result<(), StoreError> {
    store.files().put(name, text.as_bytes())
}

fn explain(differences: &[ManifestDifference]) -> String {
    let mut text = String::new();
    for difference in differences {
        let _ = write!(text, "\n  {difference}");
    }
    text.push_str(if differences.iter().all(ManifestDifference::same_names) {
        "\nwrite every file again with --overwrite, or choose another folder with --data-dir"
    } else {
        "\nchoose another folder with --data-dir, or remove this one"
    });
    text
}
