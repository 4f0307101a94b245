//! Checkpoints in an object store, which has no folders, renames or locks. Each moment has one small object that says
//! which checkpoint is complete, and lists the files that are to come or to be removed (`state.rs`). Every change of it
//! is put on the condition that it is as it was read. A list is put before the first file is written, and is shortened
//! after the last of its files was removed, so a run that is killed leaves nothing that is not listed.
//!
//! Objects that are not listed there, or that have another size, are never touched.

mod lock;
mod moments;
mod reading;
mod removal;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::checkpoint::manifest::{CheckpointManifest, MANIFEST, Moment};
use model::names::Name;
use model::objects::ObjectPlace;
use model::units::Nanos;

use super::{Lock, StoredCheckpoint, Tier, TierFiles, TierSink, TierSource};
use crate::objects::contract::{
    self, ListRequest, ListedKey, Objects, PutCondition, PutOutcome, Upload, upload_error,
};
use crate::objects::random::random;
use crate::page_cache::Pages;
use crate::{Buffer, Now, StoreError};
pub(crate) use lock::ObjectLock;
use moments::MomentLocks;
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
    moments: MomentLocks,
}

/// What this process has learned about the place.
#[derive(Debug, Default)]
struct Known {
    /// The tag of the manifest object after a checkpoint was begun, by its prefix.
    begun: BTreeMap<String, String>,
    /// Manifests by the prefix of their files, whose sizes need not be asked for then.
    manifests: BTreeMap<String, CheckpointManifest>,
    /// Folders into which another run may still write, or from which it may still remove files: its processes on other
    /// hosts may have survived it, or it may only be cut off.
    in_doubt: BTreeSet<String>,
    /// Moments of which a checkpoint was replaced whose files have not been removed yet.
    replaced: BTreeSet<Moment>,
    /// Set when another run has taken this run's lock.
    is_lost: Option<Arc<AtomicBool>>,
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
        let (known, moments) = (Mutex::default(), MomentLocks::default());
        ObjectTier { objects, place, reader, owner, known, moments }
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
        let text = std::str::from_utf8(&text).unwrap_or_default();
        CheckpointManifest::check_version(text)
            .map_err(|newer| StoreError::Refused(format!("{}: {newer}", self.objects.shown(&key))))?;
        let state = MomentState::parse(text, moment);
        match state {
            Some(state) => Ok(ReadState { moment, state, tag: Some(facts.tag) }),
            None => Err(StoreError::Foreign { name: self.objects.shown(&key) }),
        }
    }

    /// Replaces the manifest object as it was read; an error if it has changed since.
    fn replace(&self, read: &ReadState, state: MomentState) -> Result<ReadState, StoreError> {
        let (moment, key) = (read.moment, self.manifest_key(read.moment));
        match self.objects.put(&key, state.to_text(moment).as_bytes(), read.condition())? {
            PutOutcome::Done(facts) => {
                self.renew_begun(read.tag.as_ref(), &state, &facts.tag);
                Ok(ReadState { moment, state, tag: Some(facts.tag) })
            }
            PutOutcome::Refused => Err(self.busy(moment)),
        }
    }

    /// Remembers that a change of this run has not taken a checkpoint away that it has begun.
    fn renew_begun(&self, before: Option<&String>, state: &MomentState, tag: &str) {
        let mut known = self.known();
        for pending in state.pending.iter().filter(|pending| self.is_own(pending)) {
            if let Some(begun) = known.begun.get_mut(&pending.folder).filter(|begun| Some(&**begun) == before)
            {
                tag.clone_into(begun);
            }
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

    /// A folder for new files, in which there is nothing: that of the moment, unless it is in use. Files of these names
    /// that are not listed were uploaded by a run that was cut off; they stay, and another folder is used.
    fn free_folder(&self, draft: &CheckpointManifest, state: &MomentState) -> Result<String, StoreError> {
        let plain = draft.moment.folder();
        if !state.uses(&plain) && !self.known().in_doubt.contains(&plain) {
            let there = self.sizes(&plain)?;
            let mut others = there.keys().filter(|name| *name != MANIFEST).peekable();
            if others.peek().is_none() {
                return Ok(plain);
            }
            let names: BTreeSet<&str> = draft.files.iter().map(|file| file.name.as_str()).collect();
            if state.complete.is_none() && !others.all(|name| names.contains(name.as_str())) {
                return Err(StoreError::Foreign { name: self.objects.shown(&self.place.key(&plain)) });
            }
        }
        let folder = format!("{plain}.{}-{:04x}", draft.serial, random() >> 48);
        match self.sizes(&folder)?.is_empty() {
            true => Ok(folder),
            false => Err(StoreError::Foreign { name: self.objects.shown(&self.place.key(&folder)) }),
        }
    }

    /// Whether this run listed these files to write them.
    fn is_own(&self, pending: &PendingFiles) -> bool {
        let run = pending.owner.as_ref().and_then(|owner| owner.split_once('-'));
        run.is_some_and(|(run, _)| run == self.owner)
    }

    /// An error if another run has taken the lock of this one.
    fn check_lock(&self) -> Result<(), StoreError> {
        // Relaxed: a flag that publishes no other data.
        match self.known().is_lost.as_ref().is_some_and(|lost| lost.load(Ordering::Relaxed)) {
            false => Ok(()),
            true => Err(StoreError::Refused(format!(
                "another feedline has taken the lock of {}, because this run could not renew it; it saves nothing \
                 more there",
                self.place
            ))),
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
    fn lock(&self, shared: bool, stops: &dyn Fn() -> bool) -> Result<Lock, StoreError> {
        if shared {
            return Ok(Lock::default());
        }
        let taken = ObjectLock::take(Arc::clone(&self.objects), &self.place.key(LOCK), stops);
        let lock = taken.map_err(|cause| match cause {
            StoreError::Busy { .. } => StoreError::Busy { name: self.place.to_string() },
            other => other,
        })?;
        self.known().is_lost = Some(lock.is_lost());
        Ok(Lock { _object: Some(lock), ..Lock::default() })
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        contract::observed(&*self.objects)
    }

    fn progress(&self) -> u64 {
        self.objects.progress()
    }

    fn create<'a>(
        &'a self,
        name: &Name,
        bytes: u64,
        clock: &'a dyn Now,
    ) -> Result<Box<dyn TierSink + 'a>, StoreError> {
        let upload = self.objects.upload(&self.place.key(name.as_str()))?;
        let (name, place) = (self.shown(name), &self.place);
        Ok(Box::new(ObjectSink { upload, place, name, bytes, written: 0, clock }))
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
        self.check_lock()?;
        let _alone = self.moments.lock(draft.moment);
        let mut read = self.read(draft.moment)?;
        if read.state.pending.iter().any(|pending| pending.owner.is_some() && !self.is_own(pending)) {
            return Err(self.busy(draft.moment));
        }
        if !read.state.pending.is_empty() {
            // Left by an earlier attempt of this run.
            read = self.release(read)?;
            read = self.tidy(read)?;
        }
        let prefix = self.free_folder(&draft, &read.state)?;
        let mut state = read.state.clone();
        // A tag is a function of the content. With a number for each attempt, a late request of one attempt cannot
        // change what another one has put.
        let owner = Some(format!("{}-{:016x}", self.owner, random()));
        state.pending.push(PendingFiles { owner, folder: prefix.clone(), files: draft.clone() });
        let begun = self.replace(&read, state)?;
        self.known().begun.insert(prefix.clone(), begun.tag.unwrap_or_default());
        Ok(StoredCheckpoint { prefix, manifest: draft })
    }

    fn commit(&self, checkpoint: &StoredCheckpoint) -> Result<(), StoreError> {
        self.check_lock()?;
        let moment = checkpoint.manifest.moment;
        let _alone = self.moments.lock(moment);
        let read = self.read_begun(checkpoint)?;
        let mut state = read.state.clone();
        state.pending.retain(|pending| pending.folder != checkpoint.prefix);
        let replaced = state.complete.replace(checkpoint.clone());
        let has_replaced = replaced.is_some();
        state.pending.extend(replaced.map(|replaced| PendingFiles {
            owner: None,
            folder: replaced.prefix,
            files: replaced.manifest,
        }));
        if let Err(cause) = self.replace(&read, state) {
            // The request may have been carried out although its answers were lost.
            let now = self.read(moment).ok().and_then(|now| now.state.complete);
            if now.as_ref() != Some(checkpoint) {
                return Err(cause);
            }
        }
        let mut known = self.known();
        known.begun.remove(&checkpoint.prefix);
        if has_replaced {
            known.replaced.insert(moment);
        }
        Ok(())
    }

    fn clean_up(&self, moment: Moment) {
        let _alone = self.moments.lock(moment);
        if self.known().replaced.remove(&moment) {
            // The checkpoint is complete; the rest only takes space, and the next run removes it if this fails.
            let _ = self.check_lock().and_then(|()| self.read(moment)).and_then(|read| self.tidy(read));
        }
    }

    fn abandon(&self, checkpoint: &StoredCheckpoint) {
        let _alone = self.moments.lock(checkpoint.manifest.moment);
        // There is an error to report already; what could not be cleaned up now is cleaned up by the next run. If the
        // manifest object has changed, another run has removed the files, and may have begun its own.
        let begun = self.check_lock().and_then(|()| self.read_begun(checkpoint));
        self.known().begun.remove(&checkpoint.prefix);
        let _ = begun.and_then(|begun| self.release(begun)).and_then(|released| self.tidy(released));
    }

    fn remove(&self, checkpoint: &StoredCheckpoint) -> Result<(), StoreError> {
        self.check_lock()?;
        let _alone = self.moments.lock(checkpoint.manifest.moment);
        let read = self.read(checkpoint.manifest.moment)?;
        let mut state = read.state.clone();
        let Some(there) = state.complete.take_if(|there| there == checkpoint) else { return Ok(()) };
        state.pending.push(PendingFiles { owner: None, folder: there.prefix, files: there.manifest });
        let hidden = self.replace(&read, state)?;
        self.tidy(hidden).map(drop)
    }

    fn recover(&self) -> Result<(), StoreError> {
        self.check_lock()?;
        let (moments, marks) = self.entries()?;
        marks.iter().try_for_each(|mark| self.objects.delete(mark))?;
        for moment in moments {
            let _alone = self.moments.lock(moment);
            let mut read = match self.read(moment) {
                Err(StoreError::Foreign { .. }) => continue,
                read => read?,
            };
            // This run has the lock, so other runs that wrote files here have ended. One that only was cut off
            // cannot complete its checkpoint after this, but it may still write or remove files of its lists.
            let mut state = read.state.clone();
            for left in state.pending.iter_mut().filter(|pending| !self.is_own(pending)) {
                left.owner = None;
                self.known().in_doubt.insert(left.folder.clone());
            }
            if state != read.state {
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
    place: &'a ObjectPlace,
    name: String,
    bytes: u64,
    written: u64,
    clock: &'a dyn Now,
}

impl TierSink for ObjectSink<'_> {
    fn write(&mut self, chunk: Buffer) -> Result<Option<Buffer>, StoreError> {
        self.upload.write(chunk.bytes()).map_err(|error| upload_error(error, self.place))?;
        self.written += chunk.bytes().len() as u64;
        Ok(Some(chunk))
    }

    fn finish(self: Box<Self>, _durable: bool, _spare: &mut Vec<Buffer>) -> Result<Nanos, StoreError> {
        crate::size::compare(self.written, self.bytes, || self.name.clone())?;
        let facts = self.upload.finish().map_err(|error| upload_error(error, self.place))?;
        crate::size::compare(facts.bytes, self.bytes, || self.name.clone())?;
        Ok(self.clock.now())
    }
}
