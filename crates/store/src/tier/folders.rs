//! Checkpoints on a file system, one folder each. The order of steps makes a crash at any moment survivable, and it is
//! defined here alone. A folder gets a draft, which lists the files to come, then the files, then their names are made
//! durable, then the manifest is put in place by a rename; a checkpoint is removed in the opposite order. A complete
//! checkpoint of the same moment is renamed aside meanwhile. Files that neither a draft nor a manifest lists are not
//! feedline's and are never touched.

use std::fmt::Debug;

use model::checkpoint::manifest::{CheckpointManifest, MANIFEST, ManifestEntry, Moment};
use model::names::Name;

use super::{CHUNK_GRANULE, StoredCheckpoint, Tier, TierFiles, file_path, name};
use crate::{PARTIAL, StoreError};

/// Lists the files of a checkpoint that is not complete yet, or no longer.
const DRAFT: &str = "checkpoint.draft";
/// Suffix of the folder of a complete checkpoint while another one of its name is written.
const ASIDE: &str = ".replaced";
/// Prefix of the files that are marks, and their content.
const MARK: &str = ".feedline-shared-";
const MARK_TEXT: &[u8] = b"feedline found out which processes share this folder; this file can be removed\n";

/// What a file system has in addition to files that are written and read: folders, small files and renames. Names are
/// relative to the tier's folder; folders are one level deep.
pub trait Volume: TierFiles {
    /// Creates a folder; an existing one is fine, unless it is a link.
    fn make_folder(&self, folder: &Name) -> Result<(), StoreError>;
    /// Writes a small file so that after a crash at any moment it exists with all its bytes, or not at all.
    fn put(&self, name: &Name, bytes: &[u8]) -> Result<(), StoreError>;
    /// The bytes of a small file; `None` if there is no regular file of that name.
    fn get(&self, name: &Name) -> Result<Option<Vec<u8>>, StoreError>;
    /// The size of a file; `None` if there is no regular file of that name.
    fn size(&self, name: &Name) -> Result<Option<u64>, StoreError>;
    /// Makes the names in a folder durable.
    fn sync_folder(&self, folder: &Name) -> Result<(), StoreError>;
    /// The names in a folder; none if it does not exist.
    fn entries(&self, folder: &Name) -> Result<Vec<String>, StoreError>;
    /// Renames a file or a folder within its folder in one step. A regular file may replace another.
    fn rename(&self, from: &Name, to: &Name) -> Result<(), StoreError>;
    /// Removes a regular file; a missing one is fine. Anything else of that name stays.
    fn remove(&self, name: &Name) -> Result<(), StoreError>;
    /// Removes an empty folder; one that is not empty stays, as does a link, and a missing one is fine.
    fn remove_folder(&self, folder: &Name) -> Result<(), StoreError>;
}

/// A tier that keeps checkpoints in the folders of a volume.
#[derive(Debug)]
pub(crate) struct Folders(pub(crate) Box<dyn Volume>);

fn root() -> Name {
    name(".")
}

fn mark_file(mark: &str) -> Name {
    name(&format!("{MARK}{mark}"))
}

fn aside(moment: Moment) -> String {
    format!("{}{ASIDE}", moment.folder())
}

/// The checkpoints that have a folder among the entries of a volume, complete or not.
fn moments(entries: &[String]) -> Vec<Moment> {
    let of_entry = |name: &String| Moment::of_folder(name.strip_suffix(ASIDE).unwrap_or(name));
    let mut moments: Vec<Moment> = entries.iter().filter_map(of_entry).collect();
    moments.sort_unstable();
    moments.dedup();
    moments
}

impl Tier for Folders {
    fn files(&self) -> &dyn TierFiles {
        &*self.0
    }

    fn find(&self, moment: Moment) -> Result<Option<StoredCheckpoint>, StoreError> {
        match self.stored(moment.folder())? {
            // It may be aside while another one is not complete yet.
            None => self.stored(aside(moment)),
            found => Ok(found),
        }
    }

    fn list(&self) -> Result<Vec<StoredCheckpoint>, StoreError> {
        let found = moments(&self.0.entries(&root())?).into_iter().map(|moment| self.find(moment));
        Ok(found.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    fn begin(&self, draft: CheckpointManifest) -> Result<StoredCheckpoint, StoreError> {
        let begun = self.try_begin(&draft);
        if begun.is_err() {
            // The first error is the one to report; what could not be cleaned up now is cleaned up by the next run.
            let _ = self.tidy(draft.moment);
        }
        begun.map(|()| StoredCheckpoint { prefix: draft.moment.folder(), manifest: draft })
    }

    fn commit(&self, StoredCheckpoint { prefix, manifest }: &StoredCheckpoint) -> Result<(), StoreError> {
        let place = file_path(prefix, MANIFEST);
        // The checkpoint that it replaces is aside: a manifest here was put by another run.
        if self.0.size(&place)?.is_some() {
            return Err(StoreError::Busy { name: self.0.shown(&name(prefix)) });
        }
        self.0.sync_folder(&name(prefix))?;
        self.0.sync_folder(&root())?;
        self.0.put(&place, manifest.to_text().as_bytes())?;
        // It is complete now; the rest only takes space, and the next run cleans it up if this fails.
        let _ = self.tidy(manifest.moment);
        Ok(())
    }

    fn abandon(&self, StoredCheckpoint { prefix, manifest }: &StoredCheckpoint) {
        // There is an error to report already; what could not be cleaned up now is cleaned up by the next run.
        let _ = self.remove_from(prefix).and_then(|()| self.tidy(manifest.moment));
    }

    fn remove(&self, checkpoint: &StoredCheckpoint) -> Result<(), StoreError> {
        self.remove_from(&checkpoint.prefix)
    }

    fn recover(&self) -> Result<(), StoreError> {
        let entries = self.0.entries(&root())?;
        self.remove_marks(&entries)?;
        moments(&entries).into_iter().try_for_each(|moment| self.tidy(moment))
    }

    fn holds(&self, manifest: &CheckpointManifest) -> Result<bool, StoreError> {
        let folder = manifest.moment.folder();
        let there = self.stored(folder.clone())?.filter(|there| there.manifest == *manifest);
        let Some(there) = there else { return Ok(false) };
        if self.present(&there)?.contains(&false) {
            return Ok(false);
        }
        // The run that put the manifest there may have been killed before its name was durable.
        self.0.sync_folder(&name(&folder))?;
        self.0.sync_folder(&root())?;
        Ok(true)
    }

    fn present(
        &self,
        StoredCheckpoint { prefix, manifest }: &StoredCheckpoint,
    ) -> Result<Vec<bool>, StoreError> {
        let size = |file: &ManifestEntry| self.0.size(&file_path(prefix, &file.name));
        manifest.files.iter().map(|file| Ok(size(file)? == Some(file.bytes))).collect()
    }

    fn mark(&self, mark: &str) -> Result<(), StoreError> {
        self.0.put(&mark_file(mark), MARK_TEXT)
    }

    fn is_marked(&self, mark: &str) -> Result<bool, StoreError> {
        Ok(self.0.size(&mark_file(mark))?.is_some())
    }

    fn unmark(&self, mark: &str) -> Result<(), StoreError> {
        self.0.remove(&mark_file(mark))
    }
}

impl Folders {
    /// Removes the marks of a run that was killed while it set them.
    fn remove_marks(&self, entries: &[String]) -> Result<(), StoreError> {
        for mark in entries.iter().filter(|entry| entry.starts_with(MARK)).map(|entry| name(entry)) {
            if self.0.size(&mark)?.is_some_and(|bytes| bytes <= MARK_TEXT.len() as u64) {
                self.0.remove(&mark)?;
            }
        }
        Ok(())
    }

    /// The list of files under this name, if it is complete and belongs to this folder. One of a later version of
    /// feedline is an error.
    fn listed(&self, folder: &str, file: &str) -> Result<Option<CheckpointManifest>, StoreError> {
        let Some(bytes) = self.0.get(&file_path(folder, file))? else { return Ok(None) };
        let text = String::from_utf8(bytes).unwrap_or_default();
        CheckpointManifest::check_version(&text).map_err(|newer| {
            StoreError::Refused(format!("{}: {newer}", self.0.shown(&file_path(folder, file))))
        })?;
        let read = CheckpointManifest::from_text(&text).ok();
        // A list of another folder says nothing about this one, and no file of feedline's is elsewhere.
        let of_moment = folder.strip_suffix(ASIDE).unwrap_or(folder);
        Ok(read.filter(|list| {
            list.moment.folder() == of_moment && list.files.iter().all(|file| !file.name.contains('/'))
        }))
    }

    /// The complete checkpoint in a folder.
    fn stored(&self, folder: String) -> Result<Option<StoredCheckpoint>, StoreError> {
        Ok(self.listed(&folder, MANIFEST)?.map(|manifest| StoredCheckpoint { prefix: folder, manifest }))
    }

    fn try_begin(&self, draft: &CheckpointManifest) -> Result<(), StoreError> {
        let folder = draft.moment.folder();
        self.tidy(draft.moment)?;
        if self.stored(folder.clone())?.is_some() {
            self.0.rename(&name(&folder), &name(&aside(draft.moment)))?;
        }
        self.0.make_folder(&name(&folder))?;
        if !self.0.entries(&name(&folder))?.is_empty() {
            return Err(StoreError::Foreign { name: self.0.shown(&name(&folder)) });
        }
        self.0.put(&file_path(&folder, DRAFT), draft.to_text().as_bytes())
    }

    /// Removes the checkpoint in a folder, so that it is never visible with files missing.
    fn remove_from(&self, folder: &str) -> Result<(), StoreError> {
        let complete = self.stored(folder.to_owned())?.is_some();
        if complete {
            let draft = file_path(folder, DRAFT);
            self.remove_draft(folder)?;
            if self.0.size(&draft)?.is_some() {
                return Err(StoreError::NotOurs { name: self.0.shown(&draft), what: "a file" });
            }
            self.0.rename(&file_path(folder, MANIFEST), &draft)?;
            self.0.sync_folder(&name(folder))?;
        }
        self.clear(folder, complete)
    }

    /// Removes a draft that is no longer needed.
    fn remove_draft(&self, folder: &str) -> Result<(), StoreError> {
        match self.listed(folder, DRAFT)? {
            Some(_) => self.0.remove(&file_path(folder, DRAFT)),
            None => Ok(()),
        }
    }

    /// Removes feedline's files from the folder of an incomplete checkpoint, and the folder if it is empty then. A file
    /// is feedline's if the draft lists it and its size fits: the listed size if the files were `whole` until now, and
    /// at most that size rounded up to a granule if they were not.
    fn clear(&self, folder: &str, whole: bool) -> Result<(), StoreError> {
        let partial = |file: &str| file_path(folder, &format!("{file}{PARTIAL}"));
        if let Some(draft) = self.listed(folder, DRAFT)? {
            for file in &draft.files {
                let path = file_path(folder, &file.name);
                let most = file.bytes.next_multiple_of(CHUNK_GRANULE as u64);
                let fits = |bytes| if whole { bytes == file.bytes } else { bytes <= most };
                if self.0.size(&path)?.is_some_and(fits) {
                    self.0.remove(&path)?;
                }
            }
            self.0.remove(&partial(MANIFEST))?;
            // The list must be removed after the files that it lists.
            self.0.sync_folder(&name(folder))?;
            self.0.remove(&file_path(folder, DRAFT))?;
        }
        self.0.remove(&partial(DRAFT))?;
        self.0.remove_folder(&name(folder))
    }

    /// Cleans up after an unfinished save, drain or removal.
    fn tidy(&self, moment: Moment) -> Result<(), StoreError> {
        let (folder, aside) = (moment.folder(), aside(moment));
        if self.stored(folder.clone())?.is_some() {
            self.remove_draft(&folder)?;
            return self.remove_from(&aside);
        }
        self.clear(&folder, false)?;
        if self.stored(aside.clone())?.is_none() {
            return self.clear(&aside, false);
        }
        self.0.rename(&name(&aside), &name(&folder))?;
        self.0.sync_folder(&root())
    }
}
