//! An object store in memory, registered as the backend `s3`: no folders, no locks, conditional puts, listings with
//! sizes. It counts requests.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use model::location::Location;
use model::names::Name;
use model::objects::{ObjectPlace, Service};
use model::plan::Medium;
use rustix::io::Errno;
use store::{
    BACKENDS, Backend, Blocking, BlockingLane, Capabilities, Files, FolderCount, Lane, NameRange, PlaceKind,
    Registry, SizeListing, Store, StoreError, Threads, Traffic, Writer,
};

/// Requests since the bucket was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    pub(crate) heads: u64,
    pub(crate) gets: u64,
    pub(crate) puts: u64,
    /// Listings, and the names that they returned.
    pub(crate) lists: u64,
    pub(crate) listed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Bucket {
    pub(crate) objects: BTreeMap<String, Vec<u8>>,
    pub(crate) requests: Requests,
}

/// A bucket of this name, empty when it is first used.
pub(crate) fn bucket(name: &str) -> Arc<Mutex<Bucket>> {
    static BUCKETS: LazyLock<Mutex<BTreeMap<String, Arc<Mutex<Bucket>>>>> = LazyLock::new(Mutex::default);
    let mut buckets = BUCKETS.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(buckets.entry(name.to_owned()).or_default())
}

/// The registry with this store as `s3`.
pub(crate) fn registry() -> Registry {
    static ROWS: LazyLock<Vec<Backend>> = LazyLock::new(|| {
        let others = BACKENDS.rows.iter().filter(|row| row.name != "s3").copied();
        others.chain([ROW]).collect()
    });
    Registry { rows: &ROWS }
}

const ROW: Backend = Backend {
    name: "s3",
    arguments: "",
    summary: "objects in memory",
    example: "s3",
    medium: Medium::Objects,
    place: PlaceKind::Objects(Service::S3),
    injects_faults: false,
    capabilities: |_| CAPABILITIES,
    check: |_| Ok(()),
    open: |place, _| match place {
        Location::Objects(place) => Ok(Box::new(BucketStore {
            bucket: bucket(&place.bucket),
            place: place.clone(),
            seen: Mutex::default(),
        })),
        other => Err(StoreError::Refused(format!("{other} is not an object store"))),
    },
    tier: None,
};

const CAPABILITIES: Capabilities = Capabilities {
    holds_files: true,
    threads: Threads::PerReader,
    brings_bytes: true,
    cached: false,
    odirect: false,
};

/// The guarded object, and its content when it was last seen.
type Seen = Option<(String, Option<Vec<u8>>)>;

#[derive(Debug)]
struct BucketStore {
    bucket: Arc<Mutex<Bucket>>,
    place: ObjectPlace,
    seen: Mutex<Seen>,
}

impl BucketStore {
    fn with<T>(&self, work: impl FnOnce(&mut Bucket) -> T) -> T {
        work(&mut self.bucket.lock().unwrap())
    }

    fn key(&self, name: &Name) -> String {
        self.place.key(name.as_str())
    }
}

impl Store for BucketStore {
    fn name(&self) -> &'static str {
        "s3"
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn lane<'a>(&'a self, traffic: Traffic<'a>) -> Result<Box<dyn Lane + 'a>, StoreError> {
        Ok(Box::new(BlockingLane::new(self, traffic)))
    }

    fn files(&self) -> &dyn Files {
        self
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

impl Blocking for BucketStore {
    type File = Vec<u8>;

    fn open(&self, name: &Name) -> Result<Vec<u8>, StoreError> {
        let missing = || StoreError::Missing { name: Blocking::shown(self, name) };
        self.with(|bucket| {
            bucket.requests.gets += 1;
            bucket.objects.get(&self.key(name)).cloned().ok_or_else(missing)
        })
    }

    fn read_at(
        &self,
        file: &Vec<u8>,
        _name: &Name,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, StoreError> {
        let rest = file.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn size(&self, file: &Vec<u8>) -> Result<u64, Errno> {
        Ok(file.len() as u64)
    }

    fn shown(&self, name: &Name) -> String {
        self.place.join(name.as_str()).to_string()
    }

    fn close(&self, _file: Vec<u8>, _name: &Name) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Files for BucketStore {
    fn shown(&self, name: &Name) -> String {
        Blocking::shown(self, name)
    }

    fn size(&self, name: &Name) -> Result<Option<u64>, StoreError> {
        self.with(|bucket| {
            bucket.requests.heads += 1;
            Ok(bucket.objects.get(&self.key(name)).map(|bytes| bytes.len() as u64))
        })
    }

    fn create_folder(&self, _name: &Name) -> Result<(), StoreError> {
        Ok(())
    }

    fn create(&self, name: &Name) -> Result<Box<dyn Writer + '_>, StoreError> {
        Ok(Box::new(BucketWriter { store: self, key: self.key(name), bytes: Vec::new() }))
    }

    fn put(&self, name: &Name, bytes: &[u8]) -> Result<(), StoreError> {
        let (key, mut seen) = (self.key(name), self.seen.lock().unwrap());
        self.with(|bucket| {
            bucket.requests.puts += 1;
            if let Some((_, before)) = seen.as_mut().filter(|(guard, _)| *guard == key) {
                if *before != bucket.objects.get(&key).cloned() {
                    return Err(StoreError::Busy { name: self.place.to_string() });
                }
                *before = Some(bytes.to_vec());
            }
            bucket.objects.insert(key, bytes.to_vec());
            Ok(())
        })
    }

    fn lock(&self, guard: &Name) -> Result<(), StoreError> {
        let key = self.key(guard);
        let there = self.with(|bucket| bucket.objects.get(&key).cloned());
        *self.seen.lock().unwrap() = Some((key, there));
        Ok(())
    }

    fn has_locks(&self) -> bool {
        false
    }

    fn mark(&self, mark: &str) -> Result<bool, StoreError> {
        self.with(|bucket| Ok(bucket.objects.insert(self.place.key(mark), Vec::new()).is_none()))
    }

    fn unmark(&self, mark: &str) -> Result<(), StoreError> {
        self.with(|bucket| bucket.objects.remove(&self.place.key(mark)));
        Ok(())
    }

    fn remove_leftovers(&self, _folder: &Name, _prefix: &str, _suffix: &str) -> Result<(), StoreError> {
        Ok(())
    }

    fn census(&self, folder: &Name, prefix: &str, suffix: &str) -> Result<Option<FolderCount>, StoreError> {
        let below = format!("{}/", self.key(folder));
        self.with(|bucket| {
            bucket.requests.lists += 1;
            let names = bucket.objects.keys().filter_map(|key| key.strip_prefix(&below));
            let mut census = FolderCount::default();
            for name in names.filter(|name| !name.contains('/') && !name.starts_with('.')) {
                match name.starts_with(prefix) && name.ends_with(suffix) {
                    true => census.matching += 1,
                    false => census.others += 1,
                }
            }
            Ok(Some(census))
        })
    }

    fn lists_sizes(&self) -> SizeListing {
        SizeListing::Ranges
    }

    fn list_sizes(
        &self,
        range: &NameRange<'_>,
        each: &mut dyn FnMut(&str, u64) -> bool,
    ) -> Result<(), StoreError> {
        let root = format!("{}/", self.place.prefix);
        let below = format!("{}/", self.key(range.folder));
        self.with(|bucket| {
            bucket.requests.lists += 1;
            for (key, bytes) in bucket.objects.iter().filter(|(key, _)| key.starts_with(&below)) {
                let name = key.strip_prefix(&root).unwrap();
                if name > range.after && (range.until.is_empty() || name <= range.until) {
                    bucket.requests.listed += 1;
                    if !each(name, bytes.len() as u64) {
                        break;
                    }
                }
            }
        });
        Ok(())
    }

    fn finishes_durably(&self) -> bool {
        true
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

struct BucketWriter<'a> {
    store: &'a BucketStore,
    key: String,
    bytes: Vec<u8>,
}

impl Writer for BucketWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), StoreError> {
        let BucketWriter { store, key, bytes } = *self;
        store.with(|bucket| {
            bucket.requests.puts += 1;
            bucket.objects.insert(key, bytes);
        });
        Ok(())
    }
}
