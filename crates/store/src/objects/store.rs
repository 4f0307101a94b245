//! The I/O backends `s3`, `gs` and `az`: a bucket as a store of files whose names are keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::location::Location;
use model::objects::{ObjectPlace, Service};
use model::plan::Medium;

use super::bucket::Bucket;
use super::contract::{self, Objects};
use super::endpoint::Endpoint;
use super::files::ObjectFiles;
use super::lane::ObjectLane;
use super::site::Site;
use super::writes::Writes;
use crate::limits::allow_files;
use crate::{
    Backend, Capabilities, Files, Lane, OpenTier, PlaceKind, Selection, Store, StoreError, Threads, Traffic,
    tier, want_files,
};

pub(crate) const S3: Backend =
    backend(Service::S3, "objects in Amazon S3, or in a server that speaks its protocol, over HTTP");
pub(crate) const GCS: Backend = backend(Service::Gcs, "objects in Google Cloud Storage, over HTTP");
pub(crate) const AZURE: Backend = backend(Service::Azure, "objects in Azure Blob Storage, over HTTP");

const fn backend(service: Service, summary: &'static str) -> Backend {
    let name = service.name();
    Backend {
        name,
        arguments: "",
        summary,
        example: name,
        medium: Medium::Objects,
        place: PlaceKind::Objects(service),
        injects_faults: false,
        capabilities: |_| ObjectStore::CAPABILITIES,
        check: |_| Ok(()),
        open: |place, selection| Ok(Box::new(ObjectStore::open(place, selection)?)),
        tier: Some(OpenTier::Own(tier::in_bucket)),
    }
}

/// A place in an object store.
#[derive(Debug)]
pub struct ObjectStore {
    site: Arc<Site>,
    bucket: Arc<dyn Objects>,
    files: ObjectFiles,
}

impl ObjectStore {
    /// Objects are not opened, and no page cache is involved.
    pub(crate) const CAPABILITIES: Capabilities = Capabilities {
        holds_files: true,
        threads: Threads::PerCore,
        brings_bytes: true,
        cached: false,
        odirect: false,
    };

    /// Opens a place. Only credentials are fetched, if they are not given.
    pub fn open(place: &Location, selection: &Selection) -> Result<ObjectStore, StoreError> {
        let Some(place) = place.objects()? else {
            return Err(StoreError::Refused(format!(
                "{place} is a folder, but the store {} holds objects; write {0}://BUCKET/PREFIX, or use another store",
                selection.backend.name
            )));
        };
        let (site, bucket) = open_bucket(place, selection)?;
        Ok(ObjectStore::new(site, bucket, place))
    }
}

impl ObjectStore {
    pub(crate) fn new(site: Arc<Site>, bucket: Arc<dyn Objects>, place: &ObjectPlace) -> ObjectStore {
        let server = site.identity();
        ObjectStore { files: ObjectFiles::new(Arc::clone(&bucket), place.clone(), &server), bucket, site }
    }
}

/// A bucket, and the way to it.
pub(crate) fn open_bucket(
    place: &ObjectPlace,
    selection: &Selection,
) -> Result<(Arc<Site>, Arc<dyn Objects>), StoreError> {
    let writes = Writes::open(place, &selection.objects, selection.wall)?;
    let site = Arc::new(Site::new(place, &selection.objects, writes.credentials(), selection.wall)?);
    let bucket = Bucket::new(Arc::clone(&site), writes);
    Ok((site, Arc::new(bucket)))
}

impl Store for ObjectStore {
    fn name(&self) -> &'static str {
        self.site.place.service.name()
    }

    fn capabilities(&self) -> Capabilities {
        ObjectStore::CAPABILITIES
    }

    fn lane<'a>(&'a self, traffic: Traffic<'a>) -> Result<Box<dyn Lane + 'a>, StoreError> {
        // Every reader must be able to have a connection. More are made only if the system allows them.
        let readers = traffic.readers.saturating_mul(traffic.lanes) as u64;
        want_files(readers.min(self.site.options.requests_in_flight))?;
        Ok(Box::new(ObjectLane::new(&self.site, traffic)?))
    }

    fn files(&self) -> &dyn Files {
        &self.files
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        let labels: Vec<String> = self.site.endpoints.iter().map(Endpoint::label).collect();
        let mut facts = vec![
            ("endpoints", labels.join(" ")),
            ("region", self.site.region()),
            ("credentials", self.site.options.credentials_from.clone()),
            ("tls", self.site.endpoints.iter().any(|endpoint| endpoint.tls).to_string()),
        ];
        let proxies: BTreeSet<String> = self
            .site
            .endpoints
            .iter()
            .filter_map(|endpoint| Some(endpoint.proxy.as_ref()?.label()))
            .collect();
        facts.extend(proxies.into_iter().map(|proxy| ("proxy", proxy)));
        let wanted = self.site.options.requests_in_flight;
        let possible = allow_files(wanted);
        if possible < wanted {
            facts.push((
                "requests_in_flight",
                format!("at most {possible}, because of the limit of open files"),
            ));
        }
        facts.extend(contract::observed(&*self.bucket));
        facts
    }

    fn server(&self, number: usize) -> Option<String> {
        self.site.endpoints.get(number).map(Endpoint::label)
    }
}
