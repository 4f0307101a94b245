//! Uploads of objects of any size. What fits into one part is sent in one request; more is sent in parts, several at a
//! time. The bytes of parts in flight are bounded for all uploads of a store together, and each upload fills one more
//! part. An upload that fails or is dropped is aborted, so that the service keeps nothing of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use model::objects::ObjectOptions;
use model::plan::PARTS_OF_ONE_SIZE;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{ObjectStore, PutOptions, PutPayload};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::super::contract::{ObjectFacts, Upload};
use super::RequestThreads;
use super::retry::Core;
use super::sum::ContentSum;
use crate::{Operation, StoreError};

/// The unit in which bytes in flight are counted.
const PAGE: u64 = 4096;
/// Parts of an upload at most, by S3 and Google. Azure allows five times as many.
const MOST_PARTS: usize = 10_000;
/// How long an abandoned upload may take to be aborted. What remains is found when leftovers are removed.
const ABORT: Duration = Duration::from_secs(5);

/// The bytes that may be in flight.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    part_bytes: usize,
    free: Arc<Semaphore>,
    pages: u32,
}

impl Budget {
    pub(super) fn new(options: &ObjectOptions) -> Budget {
        let part_bytes = options.part_bytes.max(1);
        let bytes = part_bytes.saturating_mul(options.parts_in_flight.max(1));
        let pages = u32::try_from(bytes.div_ceil(PAGE)).unwrap_or(u32::MAX).min(1 << 28);
        let part_bytes = usize::try_from(part_bytes).unwrap_or(usize::MAX);
        Budget { part_bytes, free: Arc::new(Semaphore::new(pages as usize)), pages }
    }

    /// Bytes of a part with this number, from 0. They grow, so that objects can be larger than the most parts.
    fn part_bytes(&self, number: usize) -> usize {
        self.part_bytes << (number as u64 / PARTS_OF_ONE_SIZE)
    }

    /// Waits until this many bytes may be in flight. A part that is larger than everything may be alone.
    async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let pages = u32::try_from((bytes as u64).div_ceil(PAGE)).unwrap_or(u32::MAX).min(self.pages);
        // The semaphore is never closed.
        Arc::clone(&self.free).acquire_many_owned(pages).await.ok()
    }
}

/// A part in flight.
type PartInFlight = JoinHandle<Option<PartId>>;

/// An object that is being uploaded with the library.
pub(super) struct LibraryUpload {
    core: Arc<Core>,
    threads: Arc<RequestThreads>,
    budget: Budget,
    key: Arc<str>,
    path: Path,
    home: usize,
    /// Bytes of the part that is being filled.
    filled: Vec<u8>,
    /// Identifies the upload, once there is more than one part.
    id: Option<String>,
    in_flight: VecDeque<PartInFlight>,
    sent: Vec<PartId>,
    /// Of all parts that were sent or are in flight.
    sum: ContentSum,
    /// The first failure of a part.
    failure: Arc<OnceLock<StoreError>>,
}

impl LibraryUpload {
    pub(super) fn new(
        core: Arc<Core>,
        threads: Arc<RequestThreads>,
        budget: Budget,
        key: &str,
        path: Path,
    ) -> LibraryUpload {
        let (home, sum) = (core.home(), ContentSum::of(core.place.service, &[]));
        LibraryUpload {
            core,
            threads,
            budget,
            key: key.into(),
            path,
            home,
            filled: Vec::new(),
            id: None,
            in_flight: VecDeque::new(),
            sent: Vec::new(),
            sum,
            failure: Arc::default(),
        }
    }

    /// The number of the part that is being filled.
    fn number(&self) -> usize {
        self.sent.len() + self.in_flight.len()
    }

    /// Moves bytes into the part that is being filled, and returns the others.
    fn fill<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let part = self.budget.part_bytes(self.number());
        let (now, later) = bytes.split_at(bytes.len().min(part - self.filled.len()));
        let needed = self.filled.len() + now.len();
        if needed > self.filled.capacity() {
            // Small objects take little memory; the parts of large ones are allocated at once.
            let room = if self.number() > 0 { part } else { needed.max(2 * self.filled.len()).min(part) };
            self.filled.reserve_exact(room - self.filled.len());
        }
        self.filled.extend_from_slice(now);
        later
    }

    /// The identifier of the upload, which begins now if it has not.
    fn begun(&mut self) -> Result<String, StoreError> {
        if let Some(id) = &self.id {
            return Ok(id.clone());
        }
        let is_first = AtomicBool::new(true);
        let begun = self.threads.run(self.core.attempts(self.home, |client| {
            // Relaxed: flags that publish no other data.
            if !is_first.swap(false, Ordering::Relaxed) {
                self.core.left_uploads.store(true, Ordering::Relaxed);
            }
            let path = self.path.clone();
            async move { client.create_multipart(&path).await }
        }))?;
        let (id, _) = begun.map_err(|trouble| self.core.error(Operation::Create, &self.key, trouble))?;
        self.id = Some(id.clone());
        Ok(id)
    }

    /// Sends the part that was filled, as soon as there is space for it.
    fn send_part(&mut self) -> Result<(), StoreError> {
        let number = self.number();
        if number >= MOST_PARTS {
            return Err(StoreError::Refused(format!(
                "{} needs more than {MOST_PARTS} parts; make the parts of uploads larger",
                self.core.shown(&self.key)
            )));
        }
        let id = self.begun()?;
        let bytes = std::mem::take(&mut self.filled);
        let space = self.threads.run(self.budget.take(bytes.len()))?;
        self.check()?;
        let sum = ContentSum::of(self.core.place.service, &bytes);
        self.sum = self.sum.then(&sum);
        let part = UploadPart {
            number,
            id,
            sum,
            home: self.home,
            path: self.path.clone(),
            key: Arc::clone(&self.key),
        };
        let (core, failure) = (Arc::clone(&self.core), Arc::clone(&self.failure));
        let sending = async move {
            let sent = part.send(&core, PutPayload::from(bytes)).await;
            drop(space);
            sent.map_err(|error| failure.set(error)).ok()
        };
        self.in_flight.push_back(self.threads.get()?.runtime().spawn(sending));
        while self.in_flight.front().is_some_and(JoinHandle::is_finished) {
            self.reap()?;
        }
        Ok(())
    }

    /// The first failure of a part.
    fn check(&self) -> Result<(), StoreError> {
        self.failure.get().cloned().map_or(Ok(()), Err)
    }

    /// Waits for the oldest part in flight.
    fn reap(&mut self) -> Result<(), StoreError> {
        let Some(oldest) = self.in_flight.front_mut() else { return Ok(()) };
        let done = self.threads.run(oldest)?;
        self.in_flight.pop_front();
        self.check()?;
        match done {
            Ok(Some(part)) => self.sent.push(part),
            // A part that neither succeeded nor left an error: its thread failed.
            _ => return Err(StoreError::GivenUp),
        }
        Ok(())
    }

    /// Sends the whole object in one request.
    fn put_whole(&mut self) -> Result<ObjectFacts, StoreError> {
        let bytes = std::mem::take(&mut self.filled);
        let sum = ContentSum::of(self.core.place.service, &bytes);
        let (core, path) = (&self.core, &self.path);
        self.threads.run(async {
            let _space = self.budget.take(bytes.len()).await;
            let payload = PutPayload::from(bytes);
            let sent = core.attempts(self.home, |client| {
                let (path, payload) = (path.clone(), payload.clone());
                async move { client.put_opts(&path, payload, PutOptions::default()).await }
            });
            match sent.await {
                Ok((result, seen)) => {
                    core.confirm(&self.key, path, &sum, &seen, result.e_tag.unwrap_or_default()).await
                }
                Err(trouble) => Err(core.error(Operation::Write, &self.key, trouble)),
            }
        })?
    }

    /// Puts the parts together.
    fn complete(&mut self, id: &str) -> Result<ObjectFacts, StoreError> {
        let (core, path, key, sum) = (&self.core, &self.path, &self.key, &self.sum);
        let parts = std::mem::take(&mut self.sent);
        self.threads.run(async {
            let sent = core.attempts(self.home, |client| {
                let (path, id, parts) = (path.clone(), id.to_owned(), parts.clone());
                async move { client.complete_multipart(&path, &id, parts).await }
            });
            match sent.await {
                Ok((_, seen)) if sum.agrees_as_whole(&seen.sums) == Some(false) => Err(core.differs(key)),
                Ok(_) => core.stored(key, path, sum).await,
                // An earlier attempt may have succeeded without an answer: then the object is there, and the upload is
                // not.
                Err(trouble)
                    if trouble.seen.is_misread() || trouble.unclear && trouble.seen.upload_is_gone() =>
                {
                    match core.same(key, path, sum).await? {
                        Some(facts) => Ok(facts),
                        None => Err(core.error(Operation::Write, key, trouble)),
                    }
                }
                Err(trouble) => Err(core.error(Operation::Write, key, trouble)),
            }
        })?
    }
}

impl Upload for LibraryUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.check()?;
        let mut left = bytes;
        while !left.is_empty() {
            // A full part is sent when another byte follows it: an object of one part needs one request.
            if self.filled.len() >= self.budget.part_bytes(self.number()) {
                self.send_part()?;
            }
            left = self.fill(left);
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<ObjectFacts, StoreError> {
        self.check()?;
        if self.id.is_none() {
            return self.put_whole();
        }
        self.send_part()?;
        while !self.in_flight.is_empty() {
            self.reap()?;
        }
        let id = self.id.clone().unwrap_or_default();
        let facts = self.complete(&id)?;
        self.id = None;
        Ok(facts)
    }
}

impl Drop for LibraryUpload {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let in_flight = std::mem::take(&mut self.in_flight);
        in_flight.iter().for_each(JoinHandle::abort);
        let (core, path) = (&self.core, &self.path);
        let abort = async {
            for part in in_flight {
                let _ = part.await;
            }
            let sent = core.attempts(self.home, |client| {
                let (path, id) = (path.clone(), id.clone());
                async move { client.abort_multipart(&path, &id).await }
            });
            sent.await.is_ok()
        };
        // What fails here is found when leftovers are removed; there is an error to report already.
        let _ = self.threads.run(async { timeout(ABORT, abort).await });
    }
}

/// A part of an upload.
struct UploadPart {
    number: usize,
    id: String,
    sum: ContentSum,
    home: usize,
    path: Path,
    key: Arc<str>,
}

impl UploadPart {
    async fn send(&self, core: &Core, payload: PutPayload) -> Result<PartId, StoreError> {
        let sent = core.attempts(self.home, |client| {
            let (path, id, number, payload) =
                (self.path.clone(), self.id.clone(), self.number, payload.clone());
            async move { client.put_part(&path, &id, number, payload).await }
        });
        match sent.await {
            Ok((_, seen)) if self.sum.agrees(&seen.sums) == Some(false) => Err(core.differs(&self.key)),
            Ok((part, _)) => Ok(part),
            Err(trouble) => Err(core.error(Operation::Write, &self.key, trouble)),
        }
    }
}
