//! One folder: its names in batches, the size of each file, and the batches as sorted runs. Which entries are files of
//! the data set is decided here.

use std::ffi::CStr;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, PoisonError};

use model::catalog::{BuildError, EncodedFolder, FolderEncoder};
use store::{EntryKind, Hint, Prefix};

use super::known::{failed, join, whole};
use super::{ScanError, SkipReason, SkippedEntries};

/// Names in a batch, the unit of work of a thread. Large enough that a batch is a good run to merge, small enough that
/// a flat folder of a hundred thousand files keeps several threads busy.
pub(super) const BATCH: usize = 8192;
/// A file that `feedline generate` was writing when it was interrupted.
const PARTIAL: &[u8] = b".partial";
const INDEX: &[u8] = b".idx";

/// A folder that is being listed by one or more threads.
#[derive(Debug)]
pub(super) struct OpenFolder {
    pub(super) prefix: Box<dyn Prefix>,
    pub(super) path: Vec<u8>,
    pub(super) mtime_ns: i64,
    /// Unfinished batches, plus one for the listing itself. The thread that sets it to 0 finishes the folder.
    pub(super) pending: AtomicUsize,
    pub(super) found: Mutex<FolderContents>,
}

/// What has been found in a folder so far.
#[derive(Debug, Default)]
pub(super) struct FolderContents {
    pub(super) runs: Vec<EncodedFolder>,
    pub(super) subfolders: Vec<Vec<u8>>,
    pub(super) skipped: SkippedEntries,
}

impl OpenFolder {
    pub(super) fn found(&self) -> std::sync::MutexGuard<'_, FolderContents> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names of one folder, in the order of the listing.
#[derive(Debug, Default)]
pub(super) struct NameBatch {
    /// The names, each with its NUL.
    names: Vec<u8>,
    entries: Vec<NameEntry>,
}

#[derive(Clone, Copy, Debug)]
struct NameEntry {
    start: u32,
    /// Without the NUL.
    len: u16,
    hint: Hint,
    size: u64,
}

impl NameBatch {
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= BATCH
    }

    pub(super) fn push(&mut self, name: &CStr, hint: Hint) {
        let bytes = name.to_bytes_with_nul();
        // A kernel's directory entry is at most 64 KiB, and a batch of them less than 4 GiB.
        self.entries.push(NameEntry {
            start: self.names.len() as u32,
            len: (bytes.len() - 1) as u16,
            hint,
            size: 0,
        });
        self.names.extend_from_slice(bytes);
    }

    fn name(&self, entry: NameEntry) -> &[u8] {
        &self.names[entry.start as usize..][..usize::from(entry.len)]
    }

    fn c_name(&self, entry: NameEntry) -> &CStr {
        CStr::from_bytes_until_nul(&self.names[entry.start as usize..]).unwrap_or(c"")
    }

    /// Looks up the sizes. `each` is called for every file; its error ends the batch. Entries that are not files are
    /// left out and added to `found`.
    pub(super) fn measure(
        &mut self,
        root: &Path,
        folder: &OpenFolder,
        mut each: impl FnMut(u64) -> Result<(), ScanError>,
    ) -> Result<FolderContents, ScanError> {
        let mut found = FolderContents::default();
        let mut kept = 0;
        for at in 0..self.entries.len() {
            let mut entry = self.entries[at];
            let kind = match entry.hint {
                Hint::Sized(size) => Ok(EntryKind::File(size)),
                hint => folder.prefix.look(self.c_name(entry), hint),
            };
            let kind =
                kind.map_err(|cause| failed("stat", root, &join(&folder.path, self.name(entry)), cause))?;
            match kind {
                EntryKind::File(size) => {
                    each(size)?;
                    entry.size = size;
                    self.entries[kept] = entry;
                    kept += 1;
                }
                EntryKind::Folder => found.subfolders.push(self.name(entry).to_vec()),
                EntryKind::LinkedFolder => found.skipped.note(SkipReason::LinkedFolder, self.name(entry)),
                EntryKind::Special => found.skipped.note(SkipReason::Special, self.name(entry)),
            }
        }
        self.entries.truncate(kept);
        Ok(found)
    }

    /// The measured files as a run, sorted by name.
    pub(super) fn encode(mut self, root: &Path, folder: &OpenFolder) -> Result<EncodedFolder, ScanError> {
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by(|a, b| self.name(*a).cmp(self.name(*b)));
        let mut encoder = FolderEncoder::new();
        for entry in entries {
            encoder.push(self.name(entry), entry.size).map_err(|error| refused(root, folder, error))?;
        }
        Ok(encoder.finish())
    }
}

/// A duplicate name means that the folder changed during the listing.
pub(super) fn refused(root: &Path, folder: &OpenFolder, error: BuildError) -> ScanError {
    let path = whole(root, &folder.path);
    match error {
        BuildError::Order(_) => ScanError::Changed(path),
        error => ScanError::Build { path, error },
    }
}

/// Whether an entry is left out because of its name.
pub(super) fn left_out(name: &[u8], hint: Hint, suffixes: &[Vec<u8>], skipped: &mut SkippedEntries) -> bool {
    if name.starts_with(b".") {
        if name != b"." && name != b".." && name != super::FOLDER.as_bytes() {
            skipped.note(SkipReason::Hidden, name);
        }
        return true;
    }
    let reason = reason(name, hint, suffixes);
    if let Some(reason) = reason {
        skipped.note(reason, name);
    }
    reason.is_some()
}

/// Why a file of this name is not data, if it is not.
pub(super) fn reason(name: &[u8], hint: Hint, suffixes: &[Vec<u8>]) -> Option<SkipReason> {
    if matches!(hint, Hint::Folder | Hint::Special) {
        return None;
    }
    if name.ends_with(PARTIAL) {
        return Some(SkipReason::Partial);
    }
    // An entry that may be a folder has to be examined first.
    if hint == Hint::Unknown {
        return None;
    }
    // Without suffixes everything is data, except index files, which say where data is (DALI's and DLIO's).
    if suffixes.is_empty() {
        return name.ends_with(INDEX).then_some(SkipReason::Index);
    }
    let matched = suffixes.iter().any(|suffix| name.ends_with(suffix));
    (!matched).then_some(SkipReason::Unmatched)
}
