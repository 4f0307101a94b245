//! What requests are signed with. Credentials that expire are replaced in the background: a lane compares a version
//! number per request, and takes the new ones when it has changed. A request whose credential the server does not
//! accept any more asks for others early.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use model::secret::Secret;
use tokio::sync::Notify;

/// What a request is signed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    /// Requests are not signed.
    Anonymous,
    /// An access key of S3, or an HMAC key of Google's: signature version 4.
    Keys {
        id: Secret,
        secret: Secret,
        token: Option<Secret>,
    },
    /// The key of an Azure account, in base64: the scheme SharedKey.
    AccountKey(Secret),
    /// A shared access signature: parameters of the query.
    SharedAccess(Secret),
    Bearer(Secret),
}

/// The current credential of a store, shared by all its lanes.
#[derive(Debug)]
pub(crate) struct CredentialCell {
    version: AtomicU64,
    current: Mutex<Arc<Credential>>,
    changed: Condvar,
    /// `None` if the credential was given, so that there is no other one.
    renewals: Option<Renewals>,
}

/// Requests to fetch another credential.
#[derive(Debug, Default)]
struct Renewals {
    asked: Notify,
    /// The version that was not accepted.
    refused: AtomicU64,
}

impl CredentialCell {
    /// A credential that stays as it is.
    pub(crate) fn given(only: Credential) -> CredentialCell {
        let (version, current) = (AtomicU64::new(1), Mutex::new(Arc::new(only)));
        CredentialCell { version, current, changed: Condvar::new(), renewals: None }
    }

    /// A credential that can be fetched again.
    pub(crate) fn renewable(first: Credential) -> CredentialCell {
        CredentialCell { renewals: Some(Renewals::default()), ..CredentialCell::given(first) }
    }

    /// Changes whenever the credential is replaced. Acquire: a lane that sees a new number also sees the credential.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn get(&self) -> Arc<Credential> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the credential, if it differs.
    pub(crate) fn replace(&self, new: Credential) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if **current != new {
            *current = Arc::new(new);
            self.version.fetch_add(1, Ordering::Release);
            self.changed.notify_all();
        }
    }

    /// The server does not accept the credential of this version: asks for another one, unless there is one already.
    /// Returns whether there can be one. Does not wait.
    pub(crate) fn refused(&self, version: u64) -> bool {
        let Some(renewals) = &self.renewals else { return false };
        if self.version() == version {
            // Relaxed: the notification orders it.
            renewals.refused.store(version, Ordering::Relaxed);
            renewals.asked.notify_one();
        }
        true
    }

    /// Waits until a credential was refused, and returns its version; forever if it cannot be replaced.
    pub(crate) async fn until_refused(&self) -> u64 {
        match &self.renewals {
            Some(renewals) => {
                renewals.asked.notified().await;
                renewals.refused.load(Ordering::Relaxed)
            }
            None => std::future::pending().await,
        }
    }

    /// Waits until the credential has another version, at most this long; returns whether it has.
    pub(crate) fn wait(&self, version: u64, most: Duration) -> bool {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(current, most, |_| self.version() == version);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.version() != version
    }
}
