//! A bucket and the way to it, shared by everything that sends requests to it.

use std::net::SocketAddr;
use std::sync::Arc;

use model::names::Name;
use model::objects::{ObjectOptions, ObjectPlace};
use rustls::ClientConfig;

use super::credential::CredentialCell;
use super::endpoint::{Endpoint, endpoints};
use super::sign::{Signer, region};
use super::stream::tls_config;
use crate::{StoreError, WallClock};

#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) place: ObjectPlace,
    pub(crate) options: Arc<ObjectOptions>,
    pub(crate) endpoints: Vec<Endpoint>,
    /// The addresses of each endpoint, or of its proxy.
    addresses: Vec<Vec<SocketAddr>>,
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
        let addresses = endpoints.iter().map(Endpoint::addresses).collect::<Result<_, _>>()?;
        let tls = tls_config(options, endpoints.iter().any(|endpoint| endpoint.tls))?;
        Ok(Site { place: place.clone(), options: Arc::clone(options), endpoints, addresses, tls, cell, wall })
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

    /// The address for a connection; connections are distributed over all of them.
    pub(crate) fn address(&self, endpoint: usize, connection: usize) -> SocketAddr {
        let all = &self.addresses[endpoint];
        all[connection % all.len()]
    }

    /// The same way to other addresses.
    #[cfg(test)]
    pub(crate) fn at(self, addresses: Vec<SocketAddr>) -> Site {
        Site { addresses: self.endpoints.iter().map(|_| addresses.clone()).collect(), ..self }
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
