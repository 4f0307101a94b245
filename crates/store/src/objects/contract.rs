//! What feedline does with objects, apart from fast reads: small requests one at a time, uploads, listings. The
//! client of a server implements it, and so does a store in memory for tests. Every call waits for its answer;
//! retries have happened when it returns an error.

use std::fmt::Debug;

use model::objects::{ObjectPlace, ObjectVersion};
use model::requests::RequestCounts;

use crate::StoreError;

/// What a server tells about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectFacts {
    pub(crate) bytes: u64,
    /// Its entity tag as the server sent it; empty if it sent none.
    pub(crate) tag: String,
}

/// When an object is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutCondition<'a> {
    Always,
    /// Only if no object has this key.
    Absent,
    /// Only if the object with this key has this tag.
    Tagged(&'a str),
}

/// What became of an object that was put on a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PutOutcome {
    Done(ObjectFacts),
    /// The condition did not hold; nothing was changed.
    Refused,
}

/// A request for one page of keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ListRequest<'a> {
    /// Only keys that begin with this.
    pub(crate) prefix: &'a str,
    /// Only keys after this one, in byte order; empty: from the first. Not every service can do it: see
    /// `Objects::lists_after`.
    pub(crate) after: &'a str,
    /// Where an earlier page of the same request ended.
    pub(crate) continues: Option<&'a str>,
    /// Whether keys with a slash after the prefix are summed up as prefixes, as folders are.
    pub(crate) by_folder: bool,
    /// The most keys; 0: as many as the server returns at once, usually 1000.
    pub(crate) most: usize,
}

/// One entry of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListedKey<'a> {
    Object {
        key: &'a str,
        bytes: u64,
        version: Option<ObjectVersion>,
    },
    /// The common beginning of keys, up to and including a slash.
    Prefix(&'a str),
}

/// An upload of parts that was neither completed nor aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingUpload {
    pub(crate) key: String,
    pub(crate) id: String,
}

/// A bucket. Keys are complete: they include the prefix of a data set.
pub(crate) trait Objects: Send + Sync + Debug {
    /// The object in messages, such as `s3://bucket/key`.
    fn shown(&self, key: &str) -> String;
    /// Facts about an object; `None` if it does not exist. A missing bucket is an error.
    fn head(&self, key: &str) -> Result<Option<ObjectFacts>, StoreError>;
    /// A whole object; `None` if it does not exist, an error if it has more than `most` bytes.
    fn get(&self, key: &str, most: u64) -> Result<Option<(Vec<u8>, ObjectFacts)>, StoreError>;
    /// Stores a small object. It is durable when this returns.
    fn put(&self, key: &str, bytes: &[u8], condition: PutCondition<'_>) -> Result<PutOutcome, StoreError>;
    /// The same in one attempt: for what a caller repeats by itself, or must not wait for.
    fn put_once(
        &self,
        key: &str,
        bytes: &[u8],
        condition: PutCondition<'_>,
    ) -> Result<PutOutcome, StoreError> {
        self.put(key, bytes, condition)
    }
    /// Begins an object of any size. It appears complete when it is finished, and replaces one of the same key; if the
    /// upload is dropped before, it never appears and its parts are removed.
    fn upload(&self, key: &str) -> Result<Box<dyn Upload + '_>, StoreError>;
    /// Removes an object; a missing one is fine.
    fn delete(&self, key: &str) -> Result<(), StoreError>;
    /// Passes one page of keys to `each`, in byte order. Returns where the next page begins; `None` at the end.
    fn list(
        &self,
        request: &ListRequest<'_>,
        each: &mut dyn FnMut(ListedKey<'_>),
    ) -> Result<Option<String>, StoreError>;
    /// Whether a listing can begin after any key.
    fn lists_after(&self) -> bool;
    /// Uploads that were begun for keys with this prefix and have not ended. Services that discard them by themselves
    /// have none.
    fn uploads(&self, prefix: &str) -> Result<Vec<PendingUpload>, StoreError>;
    /// Removes the parts of an upload; one that does not exist is fine.
    fn abort(&self, upload: &PendingUpload) -> Result<(), StoreError>;
    /// Whether uploads may have begun, and not ended, that this process does not know of.
    fn may_have_left_uploads(&self) -> bool {
        false
    }
    /// A number that changes while requests make progress: with every attempt, some bytes, and while a server is given
    /// the time that it asked for.
    fn progress(&self) -> u64 {
        0
    }
    /// The requests so far, except for those of lanes.
    fn counts(&self) -> RequestCounts {
        RequestCounts::default()
    }
}

/// An object that is being written from front to back.
pub(crate) trait Upload: Send {
    /// Takes the next bytes. Waits while too many parts are in flight; an error ends the upload.
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError>;
    /// Completes the object and checks that the server has the bytes that were sent.
    fn finish(self: Box<Self>) -> Result<ObjectFacts, StoreError>;
}

/// The requests of a bucket as facts for a result.
pub(crate) fn observed(objects: &dyn Objects) -> Vec<(&'static str, String)> {
    let counts = objects.counts();
    vec![
        ("other_requests", counts.requests.to_string()),
        ("other_failed_attempts", counts.all_failed().to_string()),
    ]
}

/// The error of an upload. One that is gone was aborted by another writer, which took it for a leftover.
pub(crate) fn upload_error(error: StoreError, place: &ObjectPlace) -> StoreError {
    match error {
        StoreError::Rejected { refusal, .. } if refusal.code == "NoSuchUpload" => {
            StoreError::Busy { name: place.to_string() }
        }
        other => other,
    }
}

/// A tag that no object has.
const NO_TAG: &str = "\"00000000000000000000000000000000\"";

/// Makes sure that the server looks at conditions: some ignore one or both, and answer with success. To an object that
/// was just put, `other` bytes are put on conditions that do not hold.
pub(crate) fn check_conditions(objects: &dyn Objects, key: &str, other: &[u8]) -> Result<(), StoreError> {
    for condition in [PutCondition::Absent, PutCondition::Tagged(NO_TAG)] {
        if objects.put(key, other, condition)? != PutOutcome::Refused {
            return Err(StoreError::Refused(format!(
                "{}: the server does not support conditional writes (If-None-Match, If-Match), so two runs could \
                 overwrite each other's data; use a version of the server that does",
                objects.shown(key)
            )));
        }
    }
    Ok(())
}
