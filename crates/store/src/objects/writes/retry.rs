//! One request to an object store, attempt by attempt. The loop decides what is repeated, pauses in between, and turns
//! the last failure into an error that names the object.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::objects::{ObjectPlace, RetryPolicy};
use model::requests::{AttemptFailure, RequestCounts};
use model::units::Nanos;
use object_store::path::Path;
use tokio::time::{Sleep, sleep, timeout};

use super::super::credential::CredentialCell;
use super::super::random::random;
use super::library::LibraryClient;
use super::seen::{Outlook, Seen};
use super::sources::Fetcher;
use super::wire::observed;
use crate::{NoAnswer, Operation, Refusal, StoreError};

/// How often a pause shows progress: less than any stall timeout.
const TICK: Duration = Duration::from_millis(100);

/// What all requests of a store share. Clones share counts and credentials.
#[derive(Clone)]
pub(super) struct Core {
    pub(super) place: ObjectPlace,
    /// One per endpoint.
    pub(super) clients: Vec<Arc<dyn LibraryClient>>,
    pub(super) retry: RetryPolicy,
    pub(super) cell: Arc<CredentialCell>,
    /// Fetches credentials, if they are not part of the options.
    pub(super) fetcher: Option<Arc<tokio::sync::Mutex<Arc<Fetcher>>>>,
    pub(super) counts: Arc<Mutex<RequestCounts>>,
    /// Numbers uploads, so that they are distributed over the endpoints.
    pub(super) next: Arc<AtomicUsize>,
    /// Changes with every attempt, with the bytes of requests, and during pauses.
    pub(super) progress: Arc<AtomicU64>,
    /// Whether an upload may have begun whose identifier was lost with an answer.
    pub(super) left_uploads: Arc<AtomicBool>,
}

/// A request that failed for good.
#[derive(Debug)]
pub(super) struct Trouble {
    /// What the last attempt saw.
    pub(super) seen: Seen,
    pub(super) attempts: u32,
    /// Whether an attempt before the last one may have been carried out although its answer was lost.
    pub(super) unclear: bool,
}

impl Core {
    /// The endpoint at which the next object begins.
    pub(super) fn home(&self) -> usize {
        // Relaxed: a count that publishes no other data.
        self.next.fetch_add(1, Ordering::Relaxed) % self.clients.len()
    }

    /// The object in messages.
    pub(super) fn shown(&self, key: &str) -> String {
        format!("{}://{}/{key}", self.place.service.name(), self.place.bucket)
    }

    /// A key as the library's type, unchanged.
    pub(super) fn path(&self, key: &str) -> Result<Path, StoreError> {
        match Path::parse(key) {
            Ok(path) if path.as_ref() == key && !key.is_empty() => Ok(path),
            _ => Err(StoreError::Refused(format!(
                "{} cannot be written: its name is empty, or has an empty part, '.' or '..' between slashes",
                self.shown(key)
            ))),
        }
    }

    pub(super) fn counts(&self) -> RequestCounts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut RequestCounts)) {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Sends a request until it succeeds or will not. The first attempt goes to the endpoint `home`, each further one
    /// to the next endpoint.
    pub(super) async fn attempts<T, F>(
        &self,
        home: usize,
        request: impl Fn(Arc<dyn LibraryClient>) -> F,
    ) -> Result<(T, Seen), Trouble>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        // A sleep knows when it will end, so that no clock has to be read.
        let deadline = sleep(duration(self.retry.deadline)).deadline();
        let (mut attempts, mut unclear, mut renewed) = (0, false, false);
        loop {
            let client = Arc::clone(&self.clients[(home + attempts as usize) % self.clients.len()]);
            attempts += 1;
            self.count(|counts| counts.requests += 1);
            self.advance();
            let version = self.cell.version();
            let (outcome, seen) = observed(request(client)).await;
            if let Ok(value) = outcome {
                self.count(|counts| counts.answered += 1);
                return Ok((value, seen));
            }
            let outlook = seen.outlook();
            let failed = |seen| Trouble { seen, attempts, unclear };
            match outlook {
                Outlook::Final => return Err(failed(seen)),
                Outlook::Renew => {
                    self.count(|counts| counts.fail(AttemptFailure::Expired));
                    if renewed || !self.renew(version).await {
                        return Err(failed(seen));
                    }
                    renewed = true;
                    continue;
                }
                Outlook::Retry(kind) => self.count(|counts| counts.fail(kind)),
            }
            let pause = sleep(self.pause(attempts).max(seen.retry_after.unwrap_or_default()));
            if attempts >= self.retry.attempts || pause.deadline() > deadline {
                return Err(failed(seen));
            }
            unclear |= seen.may_have_succeeded();
            self.wait(pause).await;
        }
    }

    fn advance(&self) {
        // Relaxed: a count that publishes no other data.
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for the end of a pause, and shows meanwhile that nothing is stuck.
    async fn wait(&self, pause: Sleep) {
        let mut pause = pin!(pause);
        while timeout(TICK, pause.as_mut()).await.is_err() {
            self.advance();
        }
    }

    /// A random pause before a retry, up to a limit that doubles with each attempt.
    fn pause(&self, attempts: u32) -> Duration {
        let most = self.retry.pause.0.saturating_mul(1 << (attempts - 1).min(20)).min(self.retry.longest.0);
        duration(Nanos(random() % most.saturating_add(1)))
    }

    /// Fetches new credentials, unless that has happened since `version`. Returns whether there are other ones now.
    pub(super) async fn renew(&self, version: u64) -> bool {
        let Some(fetcher) = &self.fetcher else { return false };
        let mut current = fetcher.lock().await;
        if self.cell.version() == version
            && let Ok(Some(fresh)) = current.afresh()
            && let Ok(credential) = fresh.fetch().await
        {
            self.cell.replace(credential);
            *current = Arc::new(fresh);
        }
        self.cell.version() != version
    }

    /// The error of a request that failed for good.
    pub(super) fn error(&self, operation: Operation, key: &str, trouble: Trouble) -> StoreError {
        let name = self.shown(key);
        let Trouble { seen, attempts, .. } = trouble;
        if seen.is_full() {
            return StoreError::Full { name };
        }
        let Seen { endpoint, status, code, lost, .. } = seen;
        let (kind, cause) = match (lost, status) {
            (Some(lost), _) => (lost.kind, lost.cause),
            (None, Some(200..300)) if code.is_empty() => (
                AttemptFailure::Malformed,
                "the answer is not one of this service: check the endpoint".to_owned(),
            ),
            (None, Some(status)) => {
                let refusal = Box::new(Refusal { status, code, attempts, endpoint });
                return StoreError::Rejected { operation, name, refusal };
            }
            (None, None) => {
                return StoreError::Refused(format!("cannot {operation} {name}: the request is not valid"));
            }
        };
        StoreError::Unanswered {
            operation,
            name,
            how: Box::new(NoAnswer { kind, cause, attempts, endpoint }),
        }
    }
}

/// Prints nothing that the library holds: its settings contain credentials.
impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("place", &self.place).finish_non_exhaustive()
    }
}

fn duration(time: Nanos) -> Duration {
    Duration::from_nanos(time.0)
}
