//! The keys below a place of an object store, page by page: the trait through which the engine lists them, and its
//! implementation for every service. Names are relative to the place. Which of them belong to a data set, and in which
//! order they are listed, is decided by the caller.

use std::fmt::Debug;
use std::sync::Arc;

use model::objects::{ObjectPlace, ObjectVersion};

use super::contract::{ListRequest, ListedKey, Objects};
use crate::StoreError;

/// A request for one page of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyRequest<'a> {
    /// Only names that begin with this: empty, or up to and including a slash.
    pub folder: &'a str,
    /// Only names after this one, in byte order; empty: from the first. For places that list after any name.
    pub after: &'a str,
    /// Where an earlier page of the same request ended, as `KeyListing::page` returned it.
    pub continues: Option<&'a str>,
    /// Whether names with a slash after the folder are summed up.
    pub by_folder: bool,
    /// The most names; 0: as many as the server returns at once.
    pub most: usize,
}

/// One entry of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedName<'a> {
    Object {
        /// Empty for an object whose key is the place itself with a slash.
        name: &'a str,
        bytes: u64,
        version: Option<ObjectVersion>,
    },
    /// The common beginning of names, up to and including a slash.
    Folder(&'a str),
}

/// A place whose keys can be listed, by several threads at once. Retries have happened when a call returns an error.
pub trait KeyListing: Send + Sync + Debug {
    /// A name in messages, such as `s3://bucket/prefix/name`; the place itself for an empty name.
    fn shown(&self, name: &str) -> String;
    /// Identifies this place.
    fn identity(&self) -> Vec<u8>;
    /// Whether a listing can begin after any name.
    fn lists_after(&self) -> bool;
    /// Passes one page of names to `each`, in byte order. Returns where the next page begins; `None` at the end.
    fn page(
        &self,
        request: &KeyRequest<'_>,
        each: &mut dyn FnMut(ListedName<'_>),
    ) -> Result<Option<String>, StoreError>;
}

/// The keys below a place.
#[derive(Debug)]
pub(crate) struct ObjectKeys {
    objects: Arc<dyn Objects>,
    place: ObjectPlace,
    /// The beginning of every key below the place: empty, or with a slash at its end.
    base: String,
    /// Distinguishes buckets of the same name.
    server: String,
}

impl ObjectKeys {
    /// `server`: the endpoint or the account, since buckets of several servers may have the same name.
    pub(crate) fn new(objects: Arc<dyn Objects>, place: &ObjectPlace, server: &str) -> ObjectKeys {
        let base = if place.prefix.is_empty() { String::new() } else { format!("{}/", place.prefix) };
        ObjectKeys { objects, place: place.clone(), base, server: server.to_owned() }
    }

    /// The error for an entry that was not asked for.
    fn outside(&self, key: &str) -> StoreError {
        StoreError::Refused(format!(
            "a listing of {} contains {}, which is not below it: the server does not list correctly",
            self.place,
            self.objects.shown(key)
        ))
    }
}

impl KeyListing for ObjectKeys {
    fn shown(&self, name: &str) -> String {
        if name.is_empty() {
            self.place.to_string()
        } else {
            self.objects.shown(&format!("{}{name}", self.base))
        }
    }

    fn identity(&self) -> Vec<u8> {
        format!("{}\0{}", self.server, self.place).into_bytes()
    }

    fn lists_after(&self) -> bool {
        self.objects.lists_after()
    }

    fn page(
        &self,
        request: &KeyRequest<'_>,
        each: &mut dyn FnMut(ListedName<'_>),
    ) -> Result<Option<String>, StoreError> {
        let prefix = format!("{}{}", self.base, request.folder);
        let after =
            if request.after.is_empty() { String::new() } else { format!("{}{}", self.base, request.after) };
        let KeyRequest { continues, by_folder, most, .. } = *request;
        let asked = ListRequest { prefix: &prefix, after: &after, continues, by_folder, most };
        let mut wrong = None;
        let next = self.objects.list(&asked, &mut |listed| {
            let (ListedKey::Object { key, .. } | ListedKey::Prefix(key)) = listed;
            let Some(name) = key.strip_prefix(&self.base).filter(|name| name.starts_with(request.folder))
            else {
                wrong.get_or_insert_with(|| self.outside(key));
                return;
            };
            each(match listed {
                ListedKey::Object { bytes, version, .. } => ListedName::Object { name, bytes, version },
                ListedKey::Prefix(_) => ListedName::Folder(name),
            });
        })?;
        wrong.map_or(Ok(next), Err)
    }
}

#[cfg(test)]
mod tests {
    use model::objects::Service;

    use super::super::contract::{ObjectFacts, PendingUpload, PutCondition, PutOutcome, Upload};
    use super::super::memory::MemoryBucket;
    use super::*;

    fn keys(prefix: &str, all: &[&str]) -> ObjectKeys {
        let bucket = MemoryBucket::default();
        for key in all {
            bucket.put(key, key.as_bytes(), PutCondition::Always).unwrap();
        }
        let place = ObjectPlace::parse(Service::S3, &format!("bucket/{prefix}"));
        ObjectKeys::new(Arc::new(bucket), &place, "localhost:1")
    }

    /// All entries of a request, page by page.
    fn listed(keys: &dyn KeyListing, request: KeyRequest<'_>) -> Vec<String> {
        let (mut found, mut next) = (Vec::new(), None);
        loop {
            next = keys
                .page(&KeyRequest { continues: next.as_deref(), ..request }, &mut |entry| {
                    found.push(match entry {
                        ListedName::Object { name, bytes, version } => {
                            assert!(bytes > 0 && version.is_some());
                            name.to_owned()
                        }
                        ListedName::Folder(name) => format!("[{name}]"),
                    });
                })
                .unwrap();
            if next.is_none() {
                return found;
            }
        }
    }

    #[test]
    fn names_are_relative_to_the_place() {
        let all = ["p-other/x", "p/", "p/a", "p/b/c", "p/b/d", "p/e f", "q"];
        let below = keys("p", &all);
        assert_eq!(listed(&below, KeyRequest::default()), ["", "a", "b/c", "b/d", "e f"]);
        assert_eq!(listed(&below, KeyRequest { after: "b/c", ..KeyRequest::default() }), ["b/d", "e f"]);
        let by_folder = KeyRequest { by_folder: true, ..KeyRequest::default() };
        assert_eq!(listed(&below, by_folder), ["", "a", "[b/]", "e f"]);
        assert_eq!(listed(&below, KeyRequest { folder: "b/", ..by_folder }), ["b/c", "b/d"]);
        assert_eq!(listed(&keys("", &all), KeyRequest::default()), all);
        assert_eq!(below.shown(""), "s3://bucket/p");
        assert_eq!(below.shown("a"), "memory://p/a");
        assert_ne!(below.identity(), keys("q", &[]).identity());
        let long: Vec<String> = (0..35).map(|i| format!("k{i:02}")).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        assert_eq!(listed(&keys("", &long), KeyRequest::default()), long, "several pages");
    }

    /// A server that ignores what was asked.
    #[derive(Debug)]
    struct Ignorant(MemoryBucket);

    impl Objects for Ignorant {
        fn shown(&self, key: &str) -> String {
            self.0.shown(key)
        }

        fn list(
            &self,
            _: &ListRequest<'_>,
            each: &mut dyn FnMut(ListedKey<'_>),
        ) -> Result<Option<String>, StoreError> {
            self.0.list(&ListRequest::default(), each)
        }

        fn lists_after(&self) -> bool {
            true
        }

        fn head(&self, key: &str) -> Result<Option<ObjectFacts>, StoreError> {
            self.0.head(key)
        }

        fn get(&self, key: &str, most: u64) -> Result<Option<(Vec<u8>, ObjectFacts)>, StoreError> {
            self.0.get(key, most)
        }

        fn put(
            &self,
            key: &str,
            bytes: &[u8],
            condition: PutCondition<'_>,
        ) -> Result<PutOutcome, StoreError> {
            self.0.put(key, bytes, condition)
        }

        fn upload(&self, key: &str) -> Result<Box<dyn Upload + '_>, StoreError> {
            self.0.upload(key)
        }

        fn delete(&self, key: &str) -> Result<(), StoreError> {
            self.0.delete(key)
        }

        fn uploads(&self, prefix: &str) -> Result<Vec<PendingUpload>, StoreError> {
            self.0.uploads(prefix)
        }

        fn abort(&self, upload: &PendingUpload) -> Result<(), StoreError> {
            self.0.abort(upload)
        }
    }

    #[test]
    fn a_key_outside_of_the_place_is_an_error() {
        let bucket = MemoryBucket::default();
        bucket.put("other/x", b"1", PutCondition::Always).unwrap();
        let place = ObjectPlace::parse(Service::S3, "bucket/p");
        let keys = ObjectKeys::new(Arc::new(Ignorant(bucket)), &place, "");
        let error = keys.page(&KeyRequest::default(), &mut |_| panic!("it is not passed on")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a listing of s3://bucket/p contains memory://other/x, which is not below it: the server does not list \
             correctly"
        );
    }
}
