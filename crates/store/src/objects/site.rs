//! A bucket and the way to it, shared by everything that sends requests to it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::names::Name;
use model::objects::{ObjectOptions, ObjectPlace};
use model::requests::AttemptFailure;
use rustls::ClientConfig;

use super::addresses::Addresses;
use super::connection::Stage;
use super::credential::CredentialCell;
use super::endpoint::{Endpoint, endpoints};
use super::retry::{self, LossMeaning};
use super::sign::{Signer, region};
use super::stream::{StreamError, tls_config};
use crate::{StoreError, WallClock};

#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) place: ObjectPlace,
    pub(crate) options: Arc<ObjectOptions>,
    pub(crate) endpoints: Vec<Endpoint>,
    addresses: Arc<Addresses>,
    /// Whether a handshake of TLS with each endpoint has succeeded.
    spoke_tls: Vec<AtomicBool>,
    pub(crate) tls: Arc<ClientConfig>,
    cell: Arc<CredentialCell>,
    wall: WallClock,
}

impl Site {
    pub(crate) fn new(
        place: &ObjectPlace,
        options: &Arc<ObjectOptions>,
        cell: Arc<CredentialCell>,
        wall: WallClock,
    ) -> Result<Site, StoreError> {
        let endpoints = endpoints(place, options)?;
        let addresses = Arc::new(Addresses::new(&endpoints, wall())?);
        let tls = tls_config(options, endpoints.iter().any(|endpoint| endpoint.tls))?;
        let spoke_tls = endpoints.iter().map(|_| AtomicBool::new(false)).collect();
        let (place, options) = (place.clone(), Arc::clone(options));
        Ok(Site { place, options, endpoints, addresses, spoke_tls, tls, cell, wall })
    }

    pub(crate) fn signer(&self) -> Signer {
        Signer::new(&self.place, &self.options, Arc::clone(&self.cell), self.wall)
    }

    /// Distinguishes buckets of the same name on several servers: an account, or the first endpoint.
    pub(crate) fn identity(&self) -> String {
        match &self.options.account {
            Some(account) => account.clone(),
            None => self.endpoints.first().map(Endpoint::label).unwrap_or_default(),
        }
    }

    /// The region that requests are signed for.
    pub(crate) fn region(&self) -> String {
        region(&self.place, &self.options)
    }

    /// What requests are signed with.
    pub(crate) fn credentials(&self) -> &CredentialCell {
        &self.cell
    }

    /// The address for a connection; connections are distributed over all of them.
    pub(crate) fn address(&self, endpoint: usize, connection: usize) -> SocketAddr {
        self.addresses.get(endpoint, connection, (self.wall)())
    }

    /// The same way to other addresses.
    #[cfg(test)]
    pub(crate) fn at(self, addresses: &[SocketAddr]) -> Site {
        Site { addresses: Arc::new(Addresses::fixed(&self.endpoints, addresses)), ..self }
    }

    /// A connection to an endpoint was made.
    pub(crate) fn connected(&self, endpoint: usize) {
        // Relaxed: the flag publishes no other data.
        self.spoke_tls[endpoint].store(true, Ordering::Relaxed);
    }

    /// A connection to an endpoint failed at this stage: what that means for its request.
    pub(crate) fn loss(&self, endpoint: usize, stage: Stage, cause: &StreamError) -> LossMeaning {
        let spoke_tls = self.spoke_tls[endpoint].load(Ordering::Relaxed);
        retry::loss(cause, stage, &self.endpoints[endpoint], spoke_tls)
    }

    /// An attempt has failed. If no connection could be made, the server may have moved.
    pub(crate) fn attempt_failed(&self, kind: AttemptFailure) {
        if kind == AttemptFailure::NotConnected {
            self.addresses.failed((self.wall)());
        }
    }

    /// An object in messages.
    pub(crate) fn shown(&self, key: &str) -> String {
        let bucket = ObjectPlace { prefix: key.to_owned(), ..self.place.clone() };
        bucket.to_string()
    }

    /// The object of a name below the place, in messages.
    pub(crate) fn shown_name(&self, name: &Name) -> String {
        self.shown(&self.place.key(&name.to_string()))
    }
}
