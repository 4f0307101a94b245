//! Removal of files that no complete checkpoint has: those of a list are removed first, and then the list, so that a
//! removal that is interrupted is continued by the next run. Nothing is removed that is not listed.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use model::checkpoint::manifest::CheckpointManifest;

use super::state::PendingFiles;
use super::{ObjectTier, ReadState};
use crate::StoreError;

/// Objects that are removed at once: as many as the parts that are uploaded at once by default.
const REMOVALS: usize = 8;

impl ObjectTier {
    /// Removes the files that are no longer written, with their unfinished uploads, and then their lists. If nothing
    /// else is known about the moment, its manifest object is removed, too.
    pub(super) fn tidy(&self, read: ReadState) -> Result<ReadState, StoreError> {
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
        // A removal cannot be made conditional everywhere. If this run was held up for long, the object may be that of
        // another run by now.
        let key = self.manifest_key(read.moment);
        if self.objects.head(&key)?.map(|facts| facts.tag) != read.tag {
            return Err(self.busy(read.moment));
        }
        self.objects.delete(&key)?;
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
        let there = self.sizes(folder)?.into_iter().map(|(name, bytes)| (key(&name), bytes));
        self.delete_all(there.filter(|(key, bytes)| keys.get(key) == Some(bytes)).map(|(key, _)| key))
    }

    /// Removes objects, several at a time. The first error ends it.
    fn delete_all(&self, keys: impl Iterator<Item = String>) -> Result<(), StoreError> {
        let keys: Vec<String> = keys.collect();
        let (next, threads) = (Mutex::new(keys.iter()), keys.len().min(REMOVALS));
        let remove = || {
            loop {
                let key = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(key) = key else { return Ok(()) };
                self.objects.delete(key)?;
            }
        };
        std::thread::scope(|scope| {
            let helpers: Vec<_> = (1..threads)
                .map_while(|_| {
                    let thread = std::thread::Builder::new().name("removal".to_owned());
                    thread.spawn_scoped(scope, remove).ok()
                })
                .collect();
            let own = remove();
            helpers
                .into_iter()
                .fold(own, |outcome, helper| outcome.and(helper.join().unwrap_or(Err(StoreError::GivenUp))))
        })
    }
}
