//! What requests are signed with. Credentials that expire are replaced in the background: a lane compares a version
//! number per request, and takes the new ones when it has changed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use model::secret::Secret;

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
    current: RwLock<Arc<Credential>>,
}

impl CredentialCell {
    pub(crate) fn new(first: Credential) -> CredentialCell {
        CredentialCell { version: AtomicU64::new(1), current: RwLock::new(Arc::new(first)) }
    }

    /// Changes whenever the credential is replaced. Acquire: a lane that sees a new number also sees the credential.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn get(&self) -> Arc<Credential> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the credential, if it differs.
    pub(crate) fn replace(&self, new: Credential) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if **current != new {
            *current = Arc::new(new);
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}
