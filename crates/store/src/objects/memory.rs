//! A bucket in memory, for tests of what is built on [`Objects`] without a server.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use model::objects::ObjectVersion;

use super::contract::{
    ListRequest, ListedKey, ObjectFacts, Objects, PendingUpload, PutCondition, PutOutcome, Upload,
};
use crate::{Operation, Refusal, StoreError};

/// Keys per page of a listing: few, so that tests need several pages.
const PAGE: usize = 10;

#[derive(Debug, Default)]
pub(crate) struct MemoryBucket {
    held: Mutex<Held>,
    ignores: Option<IgnoredCondition>,
}

/// A condition that a server does not look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IgnoredCondition {
    Absent,
    Tagged,
}

#[derive(Debug, Default)]
struct Held {
    objects: BTreeMap<String, (Vec<u8>, String)>,
    uploads: BTreeMap<String, String>,
    /// Makes tags and upload numbers unique.
    serial: u64,
    /// Requests to remove an object.
    deleted: usize,
}

impl Held {
    fn facts(&self, key: &str) -> Option<ObjectFacts> {
        let (bytes, tag) = self.objects.get(key)?;
        Some(ObjectFacts { bytes: bytes.len() as u64, tag: tag.clone() })
    }

    fn next(&mut self) -> String {
        self.serial += 1;
        self.serial.to_string()
    }

    fn put(&mut self, key: &str, bytes: Vec<u8>) -> ObjectFacts {
        let (len, tag) = (bytes.len() as u64, format!("\"{}\"", self.next()));
        self.objects.insert(key.to_owned(), (bytes, tag.clone()));
        ObjectFacts { bytes: len, tag }
    }
}

impl MemoryBucket {
    /// A server that ignores a condition.
    pub(crate) fn ignoring(condition: IgnoredCondition) -> MemoryBucket {
        MemoryBucket { ignores: Some(condition), ..MemoryBucket::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap()
    }

    /// How often an object was to be removed.
    pub(crate) fn deleted(&self) -> usize {
        self.held().deleted
    }

    /// All keys, for assertions.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.held().objects.keys().cloned().collect()
    }

    /// Begins an upload and forgets it, as a killed process does.
    pub(crate) fn leave_upload(&self, key: &str) {
        let id = self.held().next();
        self.held().uploads.insert(id, key.to_owned());
    }
}

impl Objects for MemoryBucket {
    fn shown(&self, key: &str) -> String {
        format!("memory://{key}")
    }

    fn head(&self, key: &str) -> Result<Option<ObjectFacts>, StoreError> {
        Ok(self.held().facts(key))
    }

    fn get(&self, key: &str, most: u64) -> Result<Option<(Vec<u8>, ObjectFacts)>, StoreError> {
        let held = self.held();
        let Some(facts) = held.facts(key) else { return Ok(None) };
        if facts.bytes > most {
            return Err(StoreError::Long { name: self.shown(key), found: facts.bytes, planned: most });
        }
        Ok(Some((held.objects[key].0.clone(), facts)))
    }

    fn put(&self, key: &str, bytes: &[u8], condition: PutCondition<'_>) -> Result<PutOutcome, StoreError> {
        let mut held = self.held();
        let there = held.facts(key);
        let holds = match condition {
            PutCondition::Always => true,
            PutCondition::Absent if self.ignores == Some(IgnoredCondition::Absent) => true,
            PutCondition::Tagged(_) if self.ignores == Some(IgnoredCondition::Tagged) => true,
            PutCondition::Absent => there.is_none(),
            PutCondition::Tagged(tag) => there.is_some_and(|there| there.tag == tag),
        };
        Ok(if holds { PutOutcome::Done(held.put(key, bytes.to_vec())) } else { PutOutcome::Refused })
    }

    fn upload(&self, key: &str) -> Result<Box<dyn Upload + '_>, StoreError> {
        let mut held = self.held();
        let id = held.next();
        held.uploads.insert(id.clone(), key.to_owned());
        Ok(Box::new(MemoryUpload { bucket: self, id, bytes: Vec::new() }))
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        let mut held = self.held();
        held.deleted += 1;
        held.objects.remove(key);
        Ok(())
    }

    fn list(
        &self,
        request: &ListRequest<'_>,
        each: &mut dyn FnMut(ListedKey<'_>),
    ) -> Result<Option<String>, StoreError> {
        let held = self.held();
        let after = request.continues.unwrap_or(request.after);
        let most = if request.most == 0 { PAGE } else { request.most };
        let (mut count, mut last) = (0, String::new());
        for (key, (bytes, tag)) in held.objects.iter().filter(|(key, _)| key.starts_with(request.prefix)) {
            let folder = key[request.prefix.len()..].find('/').filter(|_| request.by_folder);
            let entry = folder.map_or(key.as_str(), |at| &key[..request.prefix.len() + at + 1]);
            if entry <= after || entry == last {
                continue;
            }
            if count == most {
                return Ok(Some(last));
            }
            let version = ObjectVersion::of_tag(tag.as_bytes());
            each(match folder {
                Some(_) => ListedKey::Prefix(entry),
                None => ListedKey::Object { key, bytes: bytes.len() as u64, version },
            });
            (count, last) = (count + 1, entry.to_owned());
        }
        Ok(None)
    }

    fn lists_after(&self) -> bool {
        true
    }

    fn uploads(&self, prefix: &str) -> Result<Vec<PendingUpload>, StoreError> {
        let held = self.held();
        let begun = held.uploads.iter().filter(|(_, key)| key.starts_with(prefix));
        Ok(begun.map(|(id, key)| PendingUpload { key: key.clone(), id: id.clone() }).collect())
    }

    fn abort(&self, upload: &PendingUpload) -> Result<(), StoreError> {
        self.held().uploads.remove(&upload.id);
        Ok(())
    }
}

struct MemoryUpload<'a> {
    bucket: &'a MemoryBucket,
    id: String,
    bytes: Vec<u8>,
}

impl Upload for MemoryUpload<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<ObjectFacts, StoreError> {
        let mut held = self.bucket.held();
        let Some(key) = held.uploads.remove(&self.id) else {
            let (status, code) = (404, "NoSuchUpload".to_owned());
            let refusal = Box::new(Refusal { status, code, attempts: 1, endpoint: "memory".to_owned() });
            let name = format!("upload {}", self.id);
            return Err(StoreError::Rejected { operation: Operation::Write, name, refusal });
        };
        Ok(held.put(&key, std::mem::take(&mut self.bytes)))
    }
}

impl Drop for MemoryUpload<'_> {
    fn drop(&mut self) {
        self.bucket.held().uploads.remove(&self.id);
    }
}
