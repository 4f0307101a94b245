//! Writes to an object store, and its credentials, by the library `object_store`. To callers every operation blocks;
//! the library runs on a few threads of its own, which start when they are first needed. Measured reads have their own
//! client.

mod google;
mod library;
mod retry;
mod seen;
mod sources;
mod sum;
#[cfg(test)]
mod tests;
mod upload;
mod wire;

use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use model::objects::{ObjectOptions, ObjectPlace, RetryPolicy, Service};
use model::requests::RequestCounts;
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    UpdateVersion,
};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use super::contract::{ObjectFacts, PutCondition, PutOutcome, Upload};
use super::credential::{Credential, CredentialCell};
use crate::{Operation, StoreError, WallClock};
use retry::Core;
use seen::Seen;
use sources::{AGAIN, Fetcher, RENEWAL};
use sum::ContentSum;
use upload::{Budget, LibraryUpload};
use wire::PIECE;

/// Threads that carry out requests.
const THREADS: usize = 2;

/// Writes to one place, and the credentials for it. Reads may use the latter, too.
#[derive(Debug)]
pub(crate) struct Writes {
    core: Arc<Core>,
    /// The same without retries.
    once: Core,
    threads: Arc<RequestThreads>,
    budget: Budget,
}

impl Writes {
    /// Prepares to write to a place. Credentials that the options do not contain are fetched now. `wall`: the seconds
    /// since 1970.
    pub(crate) fn open(
        place: &ObjectPlace,
        options: &ObjectOptions,
        wall: WallClock,
    ) -> Result<Writes, StoreError> {
        let threads = Arc::new(RequestThreads::default());
        let (first, fetcher) =
            match (sources::given(place, &options.credentials)?, Fetcher::new(place, options)?) {
                (Some(given), _) => (given, None),
                (None, Some(fetcher)) => (threads.run(fetcher.fetch())??, Some(fetcher)),
                (None, None) => (Credential::Anonymous, None),
            };
        let cell = Arc::new(match fetcher {
            Some(_) => CredentialCell::renewable(first),
            None => CredentialCell::given(first),
        });
        let progress = Arc::default();
        let core = Core {
            place: place.clone(),
            clients: library::clients(place, options, &cell, wall, &progress)?,
            retry: options.retry,
            cell,
            fetcher: fetcher.map(|fetcher| Arc::new(tokio::sync::Mutex::new(Arc::new(fetcher)))),
            counts: Arc::default(),
            next: Arc::default(),
            progress,
            left_uploads: Arc::default(),
        };
        let once = Core { retry: RetryPolicy { attempts: 1, ..options.retry }, ..core.clone() };
        let core = Arc::new(core);
        if core.fetcher.is_some() {
            threads.get()?.runtime().spawn(renewal(Arc::downgrade(&core), Arc::clone(&core.cell)));
        }
        Ok(Writes { core, once, threads, budget: Budget::new(options) })
    }

    /// What requests are signed with; renewed before it expires.
    pub(crate) fn credentials(&self) -> Arc<CredentialCell> {
        Arc::clone(&self.core.cell)
    }

    /// The requests so far.
    pub(crate) fn counts(&self) -> RequestCounts {
        self.core.counts()
    }

    /// As [`super::contract::Objects::progress`].
    pub(crate) fn progress(&self) -> u64 {
        // Relaxed: a count that publishes no other data.
        self.core.progress.load(Ordering::Relaxed)
    }

    /// As [`super::contract::Objects::may_have_left_uploads`].
    pub(crate) fn may_have_left_uploads(&self) -> bool {
        // Relaxed: a flag that publishes no other data.
        self.core.left_uploads.load(Ordering::Relaxed)
    }

    /// As [`super::contract::Objects::put`].
    pub(crate) fn put(
        &self,
        key: &str,
        bytes: &[u8],
        condition: PutCondition<'_>,
    ) -> Result<PutOutcome, StoreError> {
        self.threads.run(self.core.put(key, bytes, condition))?
    }

    /// As [`super::contract::Objects::put_once`].
    pub(crate) fn put_once(
        &self,
        key: &str,
        bytes: &[u8],
        condition: PutCondition<'_>,
    ) -> Result<PutOutcome, StoreError> {
        self.threads.run(self.once.put(key, bytes, condition))?
    }

    /// As [`super::contract::Objects::upload`].
    pub(crate) fn upload(&self, key: &str) -> Result<Box<dyn Upload>, StoreError> {
        let path = self.core.path(key)?;
        let (core, threads) = (Arc::clone(&self.core), Arc::clone(&self.threads));
        Ok(Box::new(LibraryUpload::new(core, threads, self.budget.clone(), key, path)))
    }

    /// As [`super::contract::Objects::delete`].
    pub(crate) fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.threads.run(self.core.delete(key))?
    }
}

/// Asks for new credentials again and again, until the store is closed, and at once if reads were refused. A failure
/// keeps the old ones, which are valid for some time yet: the library asks early.
async fn renewal(core: Weak<Core>, cell: Arc<CredentialCell>) {
    loop {
        let refused = timeout(RENEWAL, cell.until_refused()).await;
        let Some(core) = core.upgrade() else { return };
        if let Ok(version) = refused {
            core.renew(version).await;
            drop(core);
            sleep(AGAIN).await;
            continue;
        }
        let Some(fetcher) = &core.fetcher else { return };
        let fetcher = Arc::clone(&*fetcher.lock().await);
        if let Ok(credential) = fetcher.fetch().await {
            core.cell.replace(credential);
        }
    }
}

impl Core {
    async fn put(
        &self,
        key: &str,
        bytes: &[u8],
        condition: PutCondition<'_>,
    ) -> Result<PutOutcome, StoreError> {
        let (path, home) = (self.path(key)?, self.home());
        let mode = match condition {
            PutCondition::Always => PutMode::Overwrite,
            PutCondition::Absent => PutMode::Create,
            PutCondition::Tagged(tag) => match self.update_of(key, &path, tag).await? {
                Some(version) => PutMode::Update(version),
                None => return Ok(PutOutcome::Refused),
            },
        };
        let sum = ContentSum::of(self.place.service, bytes);
        let payload = PutPayload::from(bytes.to_vec());
        let sent = self.attempts(home, |client| {
            let (path, payload, options) = (path.clone(), payload.clone(), PutOptions::from(mode.clone()));
            async move { client.put_opts(&path, payload, options).await }
        });
        match sent.await {
            Ok((result, seen)) => {
                let tag = result.e_tag.unwrap_or_default();
                self.confirm(key, &path, &sum, &seen, tag).await.map(PutOutcome::Done)
            }
            Err(trouble) if trouble.seen.condition_failed(matches!(condition, PutCondition::Tagged(_))) => {
                // An earlier attempt may have succeeded: its answer was lost, or said only that two writes met.
                match trouble.attempts > 1 {
                    true => {
                        Ok(self.same(key, &path, &sum).await?.map_or(PutOutcome::Refused, PutOutcome::Done))
                    }
                    false => Ok(PutOutcome::Refused),
                }
            }
            Err(trouble) => Err(self.error(Operation::Write, key, trouble)),
        }
    }

    /// The condition for an object with this tag; `None` if its tag is another one already. Google compares a number
    /// that identifies the version, so this has to be looked up; if the tag fits, no other version can have it later.
    async fn update_of(
        &self,
        key: &str,
        path: &Path,
        tag: &str,
    ) -> Result<Option<UpdateVersion>, StoreError> {
        if self.place.service != Service::Gcs {
            return Ok(Some(UpdateVersion { e_tag: Some(tag.to_owned()), version: None }));
        }
        let found = self.head(key, path).await?.map(|(meta, _)| meta);
        let fitting = found.filter(|meta| meta.e_tag.as_deref() == Some(tag) && meta.version.is_some());
        Ok(fitting.map(|meta| UpdateVersion { e_tag: meta.e_tag, version: meta.version }))
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let path = self.path(key)?;
        let sent = self.attempts(self.home(), |client| {
            let path = path.clone();
            async move {
                match client.delete(&path).await {
                    // Azure reports it inside of an answer that was successful.
                    Err(object_store::Error::NotFound { .. }) => Ok(false),
                    other => other.map(|()| true),
                }
            }
        });
        match sent.await {
            Ok((true, _)) => Ok(()),
            Ok((false, seen)) if seen.status != Some(404) || seen.is_missing() => Ok(()),
            Ok((false, seen)) => {
                Err(self.error(Operation::Remove, key, retry::Trouble { seen, attempts: 1, unclear: false }))
            }
            Err(trouble) => Err(self.error(Operation::Remove, key, trouble)),
        }
    }

    /// Facts about an object, by the library; `None` if it does not exist.
    async fn head(&self, key: &str, path: &Path) -> Result<Option<(ObjectMeta, Seen)>, StoreError> {
        let sent = self.attempts(self.home(), |client| {
            let path = path.clone();
            async move { client.head(&path).await }
        });
        match sent.await {
            Ok(found) => Ok(Some(found)),
            Err(trouble) if trouble.seen.is_missing() => Ok(None),
            Err(trouble) => Err(self.error(Operation::Stat, key, trouble)),
        }
    }

    /// Checks that the server has the bytes that were sent in one request: by the checksum in its answer, or else by
    /// the size that it reports.
    async fn confirm(
        &self,
        key: &str,
        path: &Path,
        sum: &ContentSum,
        seen: &Seen,
        tag: String,
    ) -> Result<ObjectFacts, StoreError> {
        match sum.agrees(&seen.sums) {
            Some(true) => Ok(ObjectFacts { bytes: sum.bytes, tag }),
            Some(false) => Err(self.differs(key)),
            None => self.stored(key, path, sum).await,
        }
    }

    /// Facts about an object that was just written. Its size must be right, and its checksum, if the server sends it.
    async fn stored(&self, key: &str, path: &Path, sum: &ContentSum) -> Result<ObjectFacts, StoreError> {
        let Some((meta, seen)) = self.head(key, path).await? else {
            return Err(StoreError::Missing { name: self.shown(key) });
        };
        crate::size::compare(meta.size, sum.bytes, || self.shown(key))?;
        if sum.agrees(&seen.sums) == Some(false) {
            return Err(self.differs(key));
        }
        Ok(ObjectFacts { bytes: meta.size, tag: meta.e_tag.unwrap_or_default() })
    }

    fn differs(&self, key: &str) -> StoreError {
        let what = "the checksum that the server computed is another one".to_owned();
        StoreError::WrongBytes { name: self.shown(key), offset: 0, what }
    }

    /// Facts about an object if it has exactly these bytes; it is read back for that.
    async fn same(
        &self,
        key: &str,
        path: &Path,
        sum: &ContentSum,
    ) -> Result<Option<ObjectFacts>, StoreError> {
        let Some((meta, _)) = self.head(key, path).await? else { return Ok(None) };
        if meta.size != sum.bytes {
            return Ok(None);
        }
        let mut read = ContentSum::of(self.place.service, &[]);
        while read.bytes < sum.bytes {
            let range = read.bytes..sum.bytes.min(read.bytes + PIECE);
            let sent = self.attempts(self.home(), |client| {
                let (path, range) = (path.clone(), Some(GetRange::Bounded(range.clone())));
                let options = GetOptions { range, if_match: meta.e_tag.clone(), ..GetOptions::default() };
                async move { client.get_opts(&path, options).await?.bytes().await }
            });
            let (piece, _) = match sent.await {
                Ok(piece) => piece,
                Err(trouble) if trouble.seen.is_missing() || trouble.seen.status == Some(412) => {
                    return Ok(None);
                }
                Err(trouble) => return Err(self.error(Operation::Read, key, trouble)),
            };
            if piece.len() as u64 != range.end - range.start {
                return Ok(None);
            }
            read = read.then(&ContentSum::of(self.place.service, &piece));
        }
        let facts = ObjectFacts { bytes: meta.size, tag: meta.e_tag.unwrap_or_default() };
        Ok((read == *sum).then_some(facts))
    }
}

/// The threads that carry out requests. They start when they are first needed.
#[derive(Debug, Default)]
struct RequestThreads {
    running: Mutex<Option<Arc<Running>>>,
}

/// Threads that run. They end in the background: a name that is being looked up cannot be interrupted.
#[derive(Debug)]
struct Running(Option<Runtime>);

impl RequestThreads {
    fn get(&self) -> Result<Arc<Running>, StoreError> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*running {
            return Ok(Arc::clone(running));
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(THREADS)
            .thread_name("object-writes")
            .enable_all()
            .build()
            .map_err(|error| {
                StoreError::Refused(format!("threads for uploads cannot be started: {error}"))
            })?;
        let started = Arc::new(Running(Some(runtime)));
        *running = Some(Arc::clone(&started));
        Ok(started)
    }

    /// Waits for the outcome of some work.
    fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, StoreError> {
        Ok(self.get()?.runtime().block_on(work))
    }
}

impl Running {
    fn runtime(&self) -> &Runtime {
        // It is taken only when the value is dropped.
        self.0.as_ref().unwrap_or_else(|| unreachable!())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
