//! Checkpoints in an object store, which has no folders, renames or locks. Each moment has one small object that says
//! which checkpoint is complete, and lists the files that are to come or to be removed (`state.rs`). Every change of it
//! is put on the condition that it is as it was read. A list is put before the first file is written, and is shortened
//! after the last of its files was removed, so a run that is killed leaves nothing that is not listed.
//!
//! Objects that are not listed there, or that have another size, are never touched.

mod lock;
mod reading;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::checkpoint::manifest::{CheckpointManifest, MANIFEST, Moment};
use model::names::Name;
use model::objects::ObjectPlace;
use model::units::Nanos;

use super::{Lock, StoredCheckpoint, Tier, TierFiles, TierSink, TierSource};
use crate::objects::contract::{self, ListRequest, ListedKey, Objects, PutCondition, PutOutcome, Upload};
use crate::objects::random::random;
use crate::page_cache::Pages;
use crate::{Buffer, Now, StoreError};
pub(crate) use lock::ObjectLock;
pub(crate) use reading::{LaneReader, RangeReader};
use state::{MomentState, PendingFiles, manifest_name};

/// The most bytes of a manifest object: millions of files.
const MOST: u64 = 1 << 30;
/// The object that keeps other runs out.
const LOCK: &str = ".feedline-lock";
/// Prefix of the objects that are marks, and their content.
const MARK: &str = ".feedline-shared-";
const MARK_TEXT: &[u8] = b"feedline found out which processes share this place; this object can be removed\n";

/// A tier that keeps checkpoints in an object store.
#[derive(Debug)]
pub(crate) struct ObjectTier {
    objects: Arc<dyn Objects>,
    place: ObjectPlace,
    reader: Arc<dyn RangeReader>,
    /// Identifies this run in the lists of files that it writes.
    owner: String,
    known: Mutex<Known>,
}

/// What this process has learned about the place.
#[derive(Debug, Default)]
struct Known {
    /// The tag of the manifest object after a checkpoint was begun, by its prefix.
    begun: BTreeMap<String, String>,
    /// Manifests by the prefix of their files, whose sizes need not be asked for then.
    manifests: BTreeMap<String, CheckpointManifest>,
    /// Whether the run that had the lock before may exist yet.
    is_doubtful: bool,
    /// Folders of which such a run may still write files.
    haunted: BTreeSet<String>,
}

/// The manifest object of a moment as it was read.
struct ReadState {
    moment: Moment,
    state: MomentState,
    /// `None` if there is no object.
    tag: Option<String>,
}

impl ReadState {
    fn condition(&self) -> PutCondition<'_> {
        self.tag.as_deref().map_or(PutCondition::Absent, PutCondition::Tagged)
    }
}

impl ObjectTier {
    /// A tier at a place, with a reader for files below it.
    pub(crate) fn new(
        objects: Arc<dyn Objects>,
        place: ObjectPlace,
        reader: Arc<dyn RangeReader>,
    ) -> ObjectTier {
        let owner = format!("{:016x}", random());
        ObjectTier { objects, place, reader, owner, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn busy(&self, moment: Moment) -> StoreError {
        StoreError::Busy { name: self.objects.shown(&self.place.key(&moment.folder())) }
    }

    fn manifest_key(&self, moment: Moment) -> String {
        self.place.key(&manifest_name(moment))
    }

    /// The manifest object of a moment; an error if it is not ours.
    fn read(&self, moment: Moment) -> Result<ReadState, StoreError> {
        let key = self.manifest_key(moment);
        let Some((text, facts)) = self.objects.get(&key, MOST)? else {
            return Ok(ReadState { moment, state: MomentState::default(), tag: None });
        };
        let state = std::str::from_utf8(&text).ok().and_then(|text| MomentState::parse(text, moment));
        match state {
            Some(state) => Ok(ReadState { moment, state, tag: Some(facts.tag) }),
            None => Err(StoreError::Foreign { name: self.objects.shown(&key) }),
        }
    }

    /// Replaces the manifest object as it was read; an error if it has changed since.
    fn replace(&self, read: &ReadState, state: MomentState) -> Result<ReadState, StoreError> {
        let (moment, key) = (read.moment, self.manifest_key(read.moment));
        match self.objects.put(&key, state.to_text(moment).as_bytes(), read.condition())? {
            PutOutcome::Done(facts) => Ok(ReadState { moment, state, tag: Some(facts.tag) }),
            PutOutcome::Refused => Err(self.busy(moment)),
        }
    }

    /// The sizes of the objects in a folder, by name, in one listing.
    fn sizes(&self, folder: &str) -> Result<BTreeMap<String, u64>, StoreError> {
        let prefix = format!("{}/", self.place.key(folder));
        let mut sizes = BTreeMap::new();
        self.each(&prefix, false, |entry| {
            if let ListedKey::Object { key, bytes, .. } = entry {
                sizes.insert(key[prefix.len()..].to_owned(), bytes);
            }
        })?;
        Ok(sizes)
    }

    /// All entries of a listing.
    fn each(
        &self,
        prefix: &str,
        by_folder: bool,
        mut each: impl FnMut(ListedKey<'_>),
    ) -> Result<(), StoreError> {
        let mut continues: Option<String> = None;
        loop {
            let request =
                ListRequest { prefix, by_folder, continues: continues.as_deref(), ..ListRequest::default() };
            continues = self.objects.list(&request, &mut each)?;
            if continues.is_none() {
                return Ok(());
            }
        }
    }

    /// The moments that have a folder, and the marks.
    fn entries(&self) -> Result<(Vec<Moment>, Vec<String>), StoreError> {
        let root = self.place.key("");
        let root = if root.is_empty() { root } else { format!("{root}/") };
        let (mut moments, mut marks) = (Vec::new(), Vec::new());
        self.each(&root, true, |entry| match entry {
            ListedKey::Prefix(prefix) => {
                moments.extend(Moment::of_folder(prefix[root.len()..].trim_end_matches('/')));
            }
            ListedKey::Object { key, bytes, .. } => {
                if key[root.len()..].starts_with(MARK) && bytes == MARK_TEXT.len() as u64 {
                    marks.push(key.to_owned());
                }
            }
        })?;
        Ok((moments, marks))
    }

    /// Removes the files that are no longer written, with their unfinished uploads, and then their lists. If nothing
    /// else is known about the moment, its manifest object is removed, too.
    fn tidy(&self, read: ReadState) -> Result<ReadState, StoreError> {
        for PendingFiles { folder, files, .. } in
            read.state.pending.iter().filter(|pending| pending.owner.is_none())
        {
            self.remove_files(folder, files)?;
        }
        if read.state.pending.iter().all(|pending| pending.owner.is_some()) {
            return Ok(read);
        }
        let mut state = read.state.clone();
        state.pending.retain(|pending| pending.owner.is_some());
        if !state.is_empty() {
            return self.replace(&read, state);
        }
        self.objects.delete(&self.manifest_key(read.moment))?;
        Ok(ReadState { moment: read.moment, state, tag: None })
    }

    fn remove_files(&self, folder: &str, files: &CheckpointManifest) -> Result<(), StoreError> {
        self.known().manifests.remove(folder);
        let key = |name: &str| self.place.key(&format!("{folder}/{name}"));
        let keys: BTreeMap<String, u64> =
            files.files.iter().map(|file| (key(&file.name), file.bytes)).collect();
        // An upload in progress would become an object later.
        for upload in self.objects.uploads(&format!("{}/", self.place.key(folder)))? {
            if keys.contains_key(&upload.key) {
                self.objects.abort(&upload)?;
            }
        }
        for (name, bytes) in self.sizes(folder)? {
            let key = key(&name);
            if keys.get(&key) == Some(&bytes) {
                self.objects.delete(&key)?;
            }
        }
        Ok(())
    }

    /// A folder for new files, in which there is nothing: that of the moment, unless it is in use.
    fn free_folder(&self, moment: Moment, serial: u64, state: &MomentState) -> Result<String, StoreError> {
        let plain = moment.folder();
        if !state.uses(&plain) && !self.known().haunted.contains(&plain) {
            if self.sizes(&plain)?.keys().all(|name| name == MANIFEST) {
                return Ok(plain);
            }
            if state.complete.is_none() {
                return Err(StoreError::Foreign { name: self.objects.shown(&self.place.key(&plain)) });
            }
        }
        let folder = format!("{plain}.{serial}-{:04x}", random() >> 48);
        match self.sizes(&folder)?.is_empty() {
            true => Ok(folder),
            false => Err(StoreError::Foreign { name: self.objects.shown(&self.place.key(&folder)) }),
        }
    }

    /// The complete checkpoint of a moment. An object that is not ours is none.
    fn complete(&self, moment: Moment) -> Result<Option<StoredCheckpoint>, StoreError> {
        match self.read(moment) {
            Ok(read) => {
                if let Some(stored) = &read.state.complete {
                    self.known().manifests.insert(stored.prefix.clone(), stored.manifest.clone());
                }
                Ok(read.state.complete)
            }
            Err(StoreError::Foreign { .. }) => Ok(None),
            Err(cause) => Err(cause),
        }
    }
}

impl TierFiles for ObjectTier {
    fn shown(&self, name: &Name) -> String {
        self.objects.shown(&self.place.key(name.as_str()))
    }

    fn holds_files(&self) -> bool {
        true
    }

    /// A run that only reads takes no lock and is kept out by none: it changes nothing, and what it reads is complete.
    fn lock(&self, shared: bool) -> Result<Lock, StoreError> {
        if shared {
            return Ok(Lock::default());
        }
        let lock =
            ObjectLock::take(Arc::clone(&self.objects), &self.place.key(LOCK)).map_err(
                |cause| match cause {
                    StoreError::Busy { .. } => StoreError::Busy { name: self.place.to_string() },
                    other => other,
                },
            )?;
        self.known().is_doubtful |= lock.is_doubtful;
        Ok(Lock { _object: Some(lock), ..Lock::default() })
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        contract::observed(&*self.objects)
    }

    fn create<'a>(
        &'a self,
        name: &Name,
        bytes: u64,
        clock: &'a dyn Now,
    ) -> Result<Box<dyn TierSink + 'a>, StoreError> {
        let upload = self.objects.upload(&self.place.key(name.as_str()))?;
        Ok(Box::new(ObjectSink { upload, name: self.shown(name), bytes, written: 0, clock }))
    }

    fn open<'a>(&'a self, name: &Name, clock: &'a dyn Now) -> Result<Box<dyn TierSource + 'a>, StoreError> {
        let listed = name.as_str().rsplit_once('/').and_then(|(folder, file)| {
            let known = self.known();
            let entry = known.manifests.get(folder)?.files.iter().find(|entry| entry.name == file)?;
            Some(entry.bytes)
        });
        let bytes = match listed {
            Some(bytes) => bytes,
            None => {
                let found = self.objects.head(&self.place.key(name.as_str()))?;
                found.ok_or_else(|| StoreError::Missing { name: self.shown(name) })?.bytes
            }
        };
        self.reader.open(name, bytes, clock)
    }

    /// There is no page cache.
    fn evict(&self, _name: &Name) -> Result<Option<Pages>, StoreError> {
        Ok(None)
    }

    fn cached(&self, _name: &Name) -> Result<Option<Pages>, StoreError> {
        Ok(None)
    }

    /// A finished upload is durable.
    fn sync_file(&self, _name: &Name) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Tier for ObjectTier {
    fn files(&self) -> &dyn TierFiles {
        self
    }

    fn find(&self, moment: Moment) -> Result<Option<StoredCheckpoint>, StoreError> {
        self.complete(moment)
    }

    fn list(&self) -> Result<Vec<StoredCheckpoint>, StoreError> {
        let found = self.entries()?.0.into_iter().map(|moment| self.complete(moment));
        Ok(found.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    fn begin(&self, draft: CheckpointManifest) -> Result<StoredCheckpoint, StoreError> {
        let (moment, serial) = (draft.moment, draft.serial);
        let mut read = self.read(moment)?;
        if read.state.pending.iter().any(|pending| pending.owner.as_ref().is_some_and(|by| *by != self.owner))
        {
            return Err(self.busy(moment));
        }
        if !read.state.pending.is_empty() {
            // Left by an earlier attempt of this run.
            read = self.release(read)?;
            read = self.tidy(read)?;
        }
        let prefix = self.free_folder(moment, serial, &read.state)?;
        let mut state = read.state.clone();
        let owner = Some(self.owner.clone());
        state.pending.push(PendingFiles { owner, folder: prefix.clone(), files: draft.clone() });
        let begun = self.replace(&read, state)?;
        self.known().begun.insert(prefix.clone(), begun.tag.unwrap_or_default());
        Ok(StoredCheckpoint { prefix, manifest: draft })
    }

    fn commit(&self, checkpoint: &StoredCheckpoint) -> Result<(), StoreError> {
        let read = self.read_begun(checkpoint)?;
        let mut state = read.state.clone();
        state.pending.retain(|pending| pending.folder != checkpoint.prefix);
        let replaced = state.complete.replace(checkpoint.clone());
        state.pending.extend(replaced.map(|replaced| PendingFiles {
            owner: None,
            folder: replaced.prefix,
            files: replaced.manifest,
        }));
        let committed = self.replace(&read, state)?;
        self.known().begun.remove(&checkpoint.prefix);
        // It is complete now; the rest only takes space, and the next run cleans it up if this fails.
        let _ = self.tidy(committed);
        Ok(())
    }

    fn abandon(&self, checkpoint: &StoredCheckpoint) {
        // There is an error to report already; what could not be cleaned up now is cleaned up by the next run. If the
        // manifest object has changed, another run has removed the files, and may have begun its own.
        let released = self.read_begun(checkpoint).and_then(|read| self.release(read));
        self.known().begun.remove(&checkpoint.prefix);
        let _ = released.and_then(|released| self.tidy(released));
    }

    fn remove(&self, checkpoint: &StoredCheckpoint) -> Result<(), StoreError> {
        let read = self.read(checkpoint.manifest.moment)?;
        let mut state = read.state.clone();
        let Some(there) = state.complete.take_if(|there| there == checkpoint) else { return Ok(()) };
        state.pending.push(PendingFiles { owner: None, folder: there.prefix, files: there.manifest });
        let hidden = self.replace(&read, state)?;
        self.tidy(hidden).map(drop)
    }

    fn recover(&self) -> Result<(), StoreError> {
        let (moments, marks) = self.entries()?;
        marks.iter().try_for_each(|mark| self.objects.delete(mark))?;
        for moment in moments {
            let mut read = match self.read(moment) {
                Err(StoreError::Foreign { .. }) => continue,
                read => read?,
            };
            // This run has the lock, so other runs that wrote files here have ended. One that only was cut off
            // cannot complete its checkpoint after this.
            let is_left = |pending: &PendingFiles| pending.owner.as_ref().is_some_and(|by| *by != self.owner);
            if read.state.pending.iter().any(is_left) {
                let mut state = read.state.clone();
                for left in state.pending.iter_mut().filter(|pending| is_left(pending)) {
                    left.owner = None;
                    let mut known = self.known();
                    if known.is_doubtful {
                        known.haunted.insert(left.folder.clone());
                    }
                }
                read = self.replace(&read, state)?;
            }
            self.tidy(read)?;
        }
        Ok(())
    }

    fn holds(&self, manifest: &CheckpointManifest) -> Result<bool, StoreError> {
        match self.complete(manifest.moment)?.filter(|there| there.manifest == *manifest) {
            Some(there) => Ok(!self.present(&there)?.contains(&false)),
            None => Ok(false),
        }
    }

    fn present(
        &self,
        StoredCheckpoint { prefix, manifest }: &StoredCheckpoint,
    ) -> Result<Vec<bool>, StoreError> {
        let sizes = self.sizes(prefix)?;
        Ok(manifest.files.iter().map(|file| sizes.get(&file.name) == Some(&file.bytes)).collect())
    }

    fn mark(&self, mark: &str) -> Result<(), StoreError> {
        self.objects.put(&self.place.key(&format!("{MARK}{mark}")), MARK_TEXT, PutCondition::Always).map(drop)
    }

    fn is_marked(&self, mark: &str) -> Result<bool, StoreError> {
        Ok(self.objects.head(&self.place.key(&format!("{MARK}{mark}")))?.is_some())
    }

    fn unmark(&self, mark: &str) -> Result<(), StoreError> {
        self.objects.delete(&self.place.key(&format!("{MARK}{mark}")))
    }
}

impl ObjectTier {
    /// The manifest object as it was when this run began a checkpoint; an error if it has changed since.
    fn read_begun(&self, checkpoint: &StoredCheckpoint) -> Result<ReadState, StoreError> {
        let moment = checkpoint.manifest.moment;
        let begun = self.known().begun.get(&checkpoint.prefix).cloned();
        let read = self.read(moment)?;
        match begun.is_some() && read.tag == begun {
            true => Ok(read),
            false => Err(self.busy(moment)),
        }
    }

    /// Turns this run's lists into lists of files to be removed.
    fn release(&self, read: ReadState) -> Result<ReadState, StoreError> {
        let mut state = read.state.clone();
        state.pending.iter_mut().for_each(|pending| pending.owner = None);
        if state == read.state { Ok(read) } else { self.replace(&read, state) }
    }
}

/// A file that is being uploaded.
struct ObjectSink<'a> {
    upload: Box<dyn Upload + 'a>,
    name: String,
    bytes: u64,
    written: u64,
    clock: &'a dyn Now,
}

impl TierSink for ObjectSink<'_> {
    fn write(&mut self, chunk: Buffer) -> Result<Option<Buffer>, StoreError> {
        self.upload.write(chunk.bytes())?;
        self.written += chunk.bytes().len() as u64;
        Ok(Some(chunk))
    }

    fn finish(self: Box<Self>, _durable: bool, _spare: &mut Vec<Buffer>) -> Result<Nanos, StoreError> {
        crate::size::compare(self.written, self.bytes, || self.name.clone())?;
        let facts = self.upload.finish()?;
        crate::size::compare(facts.bytes, self.bytes, || self.name.clone())?;
        Ok(self.clock.now())
    }
}
