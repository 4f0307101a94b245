//! A bucket on a server: our own requests for what is read, and the library's for what is written.

use std::sync::Arc;

use model::requests::RequestCounts;

use super::client::Client;
use super::contract::{
    ListRequest, ListedKey, ObjectFacts, Objects, PendingUpload, PutCondition, PutOutcome, Upload,
};
use super::site::Site;
use super::writes::Writes;
use crate::StoreError;

#[derive(Debug)]
pub(crate) struct Bucket {
    site: Arc<Site>,
    client: Client,
    writes: Writes,
}

impl Bucket {
    pub(crate) fn new(site: Arc<Site>, writes: Writes) -> Bucket {
        Bucket { client: Client::new(Arc::clone(&site)), site, writes }
    }
}

impl Objects for Bucket {
    fn shown(&self, key: &str) -> String {
        self.site.shown(key)
    }

    fn head(&self, key: &str) -> Result<Option<ObjectFacts>, StoreError> {
        self.client.head(key)
    }

    fn get(&self, key: &str, most: u64) -> Result<Option<(Vec<u8>, ObjectFacts)>, StoreError> {
        self.client.get(key, most)
    }

    fn put(&self, key: &str, bytes: &[u8], condition: PutCondition<'_>) -> Result<PutOutcome, StoreError> {
        self.writes.put(key, bytes, condition)
    }

    fn put_once(
        &self,
        key: &str,
        bytes: &[u8],
        condition: PutCondition<'_>,
    ) -> Result<PutOutcome, StoreError> {
        self.writes.put_once(key, bytes, condition)
    }

    fn upload(&self, key: &str) -> Result<Box<dyn Upload + '_>, StoreError> {
        self.writes.upload(key)
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.writes.delete(key)
    }

    fn list(
        &self,
        request: &ListRequest<'_>,
        each: &mut dyn FnMut(ListedKey<'_>),
    ) -> Result<Option<String>, StoreError> {
        self.client.list(request, each)
    }

    fn lists_after(&self) -> bool {
        self.client.lists_after()
    }

    fn uploads(&self, prefix: &str) -> Result<Vec<PendingUpload>, StoreError> {
        self.client.uploads(prefix)
    }

    fn abort(&self, upload: &PendingUpload) -> Result<(), StoreError> {
        self.client.abort(upload)
    }

    fn may_have_left_uploads(&self) -> bool {
        self.writes.may_have_left_uploads()
    }

    fn progress(&self) -> u64 {
        self.writes.progress()
    }

    fn counts(&self) -> RequestCounts {
        let mut counts = self.client.counts();
        counts += self.writes.counts();
        counts
    }
}
