//! I/O backends: bytes to storage and back.
//!
//! All threads share a [`Store`]. Each reading thread takes a [`Lane`] from it, submits fetches and reaps completions,
//! which fits blocking and asynchronous backends. A blocking backend implements [`Blocking`] (open, read, close) and
//! gets its lane; an asynchronous one implements its own. The crate knows names and byte ranges. Formats know what the
//! bytes mean, and the engine decides when they are read.
//!
//! **In:** names, byte ranges, and the engine's clock ([`Now`]). **Out:** bytes, operation times, and facts about the
//! storage. **Side effects:** files, and requests to the kernel about them.
//!
//! # Modules
//!
//! - Backends: `posix`, `direct`, `uring`, `mmap`, `null` (returns at once), `sim` (a simulated device), `fault` (makes
//!   another backend fail by the rules in `rule`). `backend` is the registry; [`conformance`] has the tests that each
//!   backend must pass.
//! - Lanes: `lane` (for blocking backends), `reading` (transfers of a range), `buffer`, `past_cache` (O_DIRECT), `size`
//!   (checks file sizes), `track` (the current operation, for the watchdog).
//! - Files: `folder` (a data set's folder), `held` (creates, replaces and removes files), `mapped` (mapped files),
//!   `listing` (names and sizes below a prefix), `tier` (checkpoints).
//! - Object stores: `objects` (S3, Google Cloud Storage and Azure: requests, signatures, lanes, uploads, listings).
//! - The page cache: [`page_cache`] (count, evict, load), `proof` (counts around a fetch), `footprint` (what this
//!   process read).
//! - Facts about storage: `file_system`, `ground` (file system and devices of a folder), `device`, `layout` (how a
//!   file is stored), [`mounts`], `limits` (open files), `trial` (tries in a folder what backends need).
//! - `error`: one error type; each variant names the file or folder.
//!
//! # Invariants
//!
//! - A lane belongs to one thread, and each of its readers has at most one fetch in flight.
//! - An unavailable backend is an error. There is no fallback, and nothing is emulated.
//! - Only `held` creates, replaces or removes files, and it follows no symbolic link below the path that the user gave.

mod backend;
mod buffer;
#[cfg(test)]
mod child;
pub mod conformance;
mod device;
mod direct;
mod error;
mod fault;
mod file_system;
mod folder;
mod footprint;
mod ground;
mod held;
mod lane;
mod layout;
mod limits;
mod listing;
mod mapped;
mod mmap;
pub mod mounts;
mod null;
mod objects;
pub mod page_cache;
mod past_cache;
mod posix;
mod proof;
mod reading;
mod rule;
mod sim;
mod size;
mod tier;
mod track;
mod trial;
mod uring;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::extent::Extent;
use model::histogram::Histogram;
use model::names::Name;
use model::objects::ObjectVersion;
use model::requests::RequestCounts;
use model::spans::SpanKind;
use model::units::Nanos;

pub use backend::{BACKENDS, Backend, PlaceKind, Registry, Selection};
pub use buffer::Buffer;
pub use device::BlockDevice;
pub use direct::Direct;
pub use error::{NoAnswer, Operation, Refusal, StoreError};
pub use file_system::{Counter, FileSystem};
pub use folder::{existing_ancestor, free_bytes};
pub use footprint::{EpochReads, Footprint};
pub use ground::StorageStack;
pub use held::{CreatedFolder, FolderHandle, PARTIAL, make_path, unnamed_file};
pub use lane::{Blocking, BlockingLane};
pub use layout::layout;
pub use limits::want_files;
pub use listing::{EntryKind, FolderListing, Hint, Listing, NameStream, Prefix, modification_time};
pub use mapped::MappedFile;
pub use model::plan::{Mode, Threads};
pub use null::Null;
pub use objects::endpoint::avoids_proxy;
pub use objects::keys::{KeyListing, KeyRequest, ListedName};
pub use objects::store::ObjectStore;
pub use posix::Posix;
pub use proof::{PageCount, Probe, Proof};
pub use sim::{Device, Sim};
pub(crate) use tier::CHUNK_GRANULE;
pub use tier::{Lock, OpenTier, SimTier, StoredCheckpoint, Tier, TierFiles, TierSink, TierSource, Volume};
pub use track::Track;
pub use trial::{DirectTrial, EvictionTrial, FolderTrial, trusted_certificates};
pub use uring::{RingObstacle, try_ring};

/// Time from the engine's clock; no store reads a clock of its own.
pub trait Now: Sync {
    /// Time since the clock was created.
    fn now(&self) -> Nanos;
}

/// A clock that does not move, for lanes whose times are not used.
#[derive(Clone, Copy, Debug)]
pub struct FixedClock;

impl Now for FixedClock {
    fn now(&self) -> Nanos {
        Nanos::ZERO
    }
}

/// Seconds since 1970, for the dates that requests are signed with.
pub type WallClock = fn() -> u64;

/// Sees the bytes of fetches before they are dropped. The lane's thread calls it in the order in which a fetch delivers
/// bytes, outside of every measured span. An error from it ends the fetch.
pub trait Witness: Sync {
    /// These bytes are at `offset` of the file with the number `file`, which `reader` fetches.
    fn see(&self, reader: usize, file: u64, offset: u64, bytes: &[u8]) -> Result<(), StoreError>;
}

/// The parameters of a lane.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "holds a clock")]
pub struct Traffic<'a> {
    /// Readers that share the lane. Each has at most one fetch in flight; they are numbered from 0.
    pub readers: usize,
    /// Lanes that share the store, at least one, and the number of this one. Limits of the store are divided between
    /// them.
    pub lanes: usize,
    pub lane: usize,
    /// Largest single read.
    pub transfer: usize,
    pub clock: &'a dyn Now,
    /// Set when the bytes are no longer needed: a long fetch checks it between its reads and gives up.
    pub give_up: &'a AtomicBool,
    /// Sees every sample byte that a fetch delivers; stores that deliver none do not call it.
    pub witness: Option<&'a dyn Witness>,
    /// The current operation of each reader, for the watchdog; empty if there is none.
    pub tracks: &'a [Track],
    /// What to count and evict in the page cache. Ignored by stores that do not read through it.
    pub proof: Proof<'a>,
    /// Sees each operation that the lane times, if they are traced.
    pub spans: Option<&'a dyn SpanSink>,
}

/// Sees single operations. The lane's thread calls it with the times that it has just recorded in `Spans`, so that both
/// agree exactly.
pub trait SpanSink: Sync {
    /// An operation of `reader`.
    fn see(&self, reader: usize, span: LaneSpan);
}

/// An operation of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSpan {
    pub kind: SpanKind,
    pub began: Nanos,
    pub took: Nanos,
    /// What it was about in the file; empty for an operation on the whole file.
    pub range: Extent,
}

impl Traffic<'static> {
    /// For one reader whose times are not used.
    pub fn untimed() -> Traffic<'static> {
        static GO_ON: AtomicBool = AtomicBool::new(false);
        let (proof, witness) = (Proof::default(), None);
        Traffic {
            readers: 1,
            lanes: 1,
            lane: 0,
            transfer: 1 << 16,
            clock: &FixedClock,
            give_up: &GO_ON,
            witness,
            tracks: &[],
            proof,
            spans: None,
        }
    }
}

impl Traffic<'_> {
    /// Records that an operation of a reader begins.
    fn begin(&self, reader: usize, operation: Operation, offset: u64) {
        if let Some(track) = self.tracks.get(reader) {
            track.begin(operation, offset);
        }
    }

    /// Records that it has ended.
    fn end(&self, reader: usize) {
        if let Some(track) = self.tracks.get(reader) {
            track.end();
        }
    }

    /// Records the time of an operation of a reader that began at `began` and has just ended.
    fn record(
        &self,
        spans: &mut Spans,
        reader: usize,
        kind: SpanKind,
        (began, end): (Nanos, Nanos),
        range: Extent,
    ) {
        let took = end.since(began);
        if let Some(histogram) = spans.of(kind) {
            histogram.record(took);
        }
        if let Some(sink) = self.spans {
            sink.see(reader, LaneSpan { kind, began, took, range });
        }
    }
}

/// The range of an operation on a whole file.
const WHOLE: Extent = Extent { offset: 0, len: 0 };

/// The range of an operation on all ranges of a fetch: where the first begins, and their bytes.
fn whole(ranges: &[Extent]) -> Extent {
    let offset = ranges.first().map_or(0, |range| range.offset);
    Extent { offset, len: ranges.iter().map(|range| range.len).sum() }
}

/// What the bytes of a fetch are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Samples of the file with this number. The witness sees them.
    Samples(u64),
    /// Metadata that locates the samples of an existing file. The witness does not see it.
    Metadata,
    /// Reads that are not measured: a manifest, a file that is inspected or verified. The witness does not see them,
    /// and no faults are injected.
    #[default]
    Upkeep,
}

impl Purpose {
    /// The number of the file, if the witness sees the bytes.
    pub(crate) fn witnessed(self) -> Option<u64> {
        match self {
            Purpose::Samples(file) => Some(file),
            Purpose::Metadata | Purpose::Upkeep => None,
        }
    }
}

/// A request to a lane: ranges of one file, in order.
#[derive(Debug)]
pub struct Fetch<'a> {
    pub name: &'a Name,
    pub purpose: Purpose,
    pub ranges: &'a [Extent],
    /// The expected size of the file. A file of another size is an error, whichever part of it is fetched.
    pub file_bytes: u64,
    /// The expected version of an object, if a catalog has it. An object with another entity tag is an error. Stores of
    /// files ignore it.
    pub version: Option<ObjectVersion>,
    /// Whether the reader's next fetch will be from the same file, which then stays open.
    pub keep_open: bool,
    /// The time of the request on the reader's own timeline; only simulated devices use it.
    pub at: Nanos,
    /// A buffer for the bytes. Without one, they stream through the lane's own buffers and are dropped.
    pub into: Option<Buffer>,
}

/// A fetch that has ended.
#[derive(Debug)]
pub struct FinishedFetch {
    /// The reader that submitted it.
    pub reader: usize,
    /// When it ended: by the clock, or by the time of a simulated device.
    pub at: Nanos,
    /// When it began, by the same time.
    pub began: Nanos,
    pub outcome: Result<Fetched, StoreError>,
    /// The buffer that was given, with the bytes of all ranges one after another.
    pub kept: Option<Buffer>,
}

/// The result of a complete fetch: the number of bytes delivered, and the operations that it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    pub bytes: u64,
    /// Number of system calls or requests.
    pub opens: u64,
    pub reads: u64,
    /// Resident pages before the fetch.
    pub probe: Probe,
}

/// How long each kind of operation took, from the call to its return or from the request to its completion.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    pub open: Histogram,
    /// Making a connection to an object store, with the handshake of TLS.
    pub connect: Histogram,
    /// From a request to the first byte of its answer, for each attempt.
    pub first_byte: Histogram,
    /// From the first byte of an answer to its last.
    pub body: Histogram,
    /// Counting pages before a fetch is read.
    pub probe: Histogram,
    pub read: Histogram,
    /// Evicting them afterwards.
    pub forget: Histogram,
    pub close: Histogram,
    /// Requests to an object store; none for files.
    pub requests: RequestCounts,
}

impl Spans {
    /// The times of a kind of operation; `None` for a kind that no lane has.
    fn of(&mut self, kind: SpanKind) -> Option<&mut Histogram> {
        Some(match kind {
            SpanKind::Open => &mut self.open,
            SpanKind::Connect => &mut self.connect,
            SpanKind::FirstByte => &mut self.first_byte,
            SpanKind::Body => &mut self.body,
            SpanKind::Probe => &mut self.probe,
            SpanKind::Read => &mut self.read,
            SpanKind::Forget => &mut self.forget,
            SpanKind::Close => &mut self.close,
            _ => return None,
        })
    }
}

/// What fetches in flight wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchWait {
    /// Nothing is in flight, or a completion can be reaped now.
    Nothing,
    /// Time: the next one ends at this moment.
    Moment(Nanos),
    /// The storage: `Lane::wait` sleeps until it answers.
    Medium,
}

/// Ends another thread's `Lane::wait` early.
pub trait Waker: Send + Sync + Debug {
    fn wake(&self);
}

/// One thread's access to the storage, shared by the readers of the thread. Not shared between threads.
pub trait Lane: Send {
    /// Begins a fetch of `reader`, which must have none in flight. A blocking lane does the work here.
    fn submit(&mut self, reader: usize, fetch: Fetch<'_>);
    /// A completed fetch, if there is one. Never waits.
    fn reap(&mut self) -> Option<FinishedFetch>;
    /// What `reap` has to wait for.
    fn awaits(&self) -> FetchWait;
    /// Sleeps until a fetch may have ended, a waker was used, or `most` has passed. For lanes that await the storage.
    fn wait(&mut self, most: Nanos) {
        let _ = most;
    }
    /// Ends `wait` early; `None` if this lane never waits.
    fn waker(&self) -> Option<Arc<dyn Waker>> {
        None
    }
    /// The requests to an object store since the last call of `take_spans`; `None` for other lanes.
    fn requests(&self) -> Option<RequestCounts> {
        None
    }
    /// How long operations took since the last call.
    fn take_spans(&mut self) -> Spans;
}

/// A file that is being written. It appears under its name, complete, when `finish` succeeds; otherwise never.
pub trait Writer: Send {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError>;
    /// Checks that all bytes are written and gives the file its name.
    fn finish(self: Box<Self>) -> Result<(), StoreError>;
}

/// What a backend can do. Nothing is emulated: a caller that needs more must refuse before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Holds files that can be written and examined.
    pub holds_files: bool,
    pub threads: Threads,
    /// Delivers bytes that can be kept; otherwise it only takes the time.
    pub brings_bytes: bool,
    /// Reads go through the page cache, unless O_DIRECT is requested.
    pub cached: bool,
    /// Can bypass the page cache.
    pub odirect: bool,
}

/// Counts of the files in a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderCount {
    /// Files with the given prefix and suffix.
    pub matching: u64,
    /// Other files except hidden ones, and an example.
    pub others: u64,
    pub example: Option<String>,
}

/// The files of a store: everything except fast reads.
pub trait Files: Send + Sync + Debug {
    /// The name of a file in messages.
    fn shown(&self, name: &Name) -> String;
    /// Size of a file; `None` if it does not exist.
    fn size(&self, name: &Name) -> Result<Option<u64>, StoreError>;
    /// Creates a folder; an existing one is fine, unless it is a link.
    fn create_folder(&self, name: &Name) -> Result<(), StoreError>;
    /// Begins a file, which replaces a regular file of the same name once it is finished.
    fn create(&self, name: &Name) -> Result<Box<dyn Writer + '_>, StoreError>;
    /// Writes a small file so that after a power failure at any moment it exists with all its bytes, or not at all.
    fn put(&self, name: &Name, bytes: &[u8]) -> Result<(), StoreError>;
    /// Keeps other writers out until the store is closed. Storage without locks instead refuses from now on to `put`
    /// the file `guard` if another writer has put it meanwhile. Some file systems support neither.
    fn lock(&self, guard: &Name) -> Result<(), StoreError>;
    /// Whether `lock` keeps other writers out.
    fn has_locks(&self) -> bool {
        true
    }
    /// On storage without locks: an error if another writer has put the guarded file since this one did.
    fn check_guard(&self) -> Result<(), StoreError> {
        Ok(())
    }
    /// Sets a mark that everyone who uses this place sees; `false` if it is set already. Processes find out with it
    /// whether they use the same place.
    fn mark(&self, mark: &str) -> Result<bool, StoreError>;
    fn unmark(&self, mark: &str) -> Result<(), StoreError>;
    /// Removes partial files of interrupted writers from a folder, for files with this prefix and suffix.
    fn remove_leftovers(&self, folder: &Name, prefix: &str, suffix: &str) -> Result<(), StoreError>;
    /// Whether this process may have left partial files itself, without knowing their names.
    fn may_have_leftovers(&self) -> bool {
        false
    }
    /// Counts the files of a folder without its subfolders; `None` if the folder does not exist.
    fn census(&self, folder: &Name, prefix: &str, suffix: &str) -> Result<Option<FolderCount>, StoreError>;
    /// Whether, and how, names are listed together with sizes. Then this is cheaper than a request per file.
    fn lists_sizes(&self) -> SizeListing;
    /// Passes names, relative to the data set, and sizes to `each` in byte order, until it returns false. Refused if
    /// the store does not list sizes.
    fn list_sizes(
        &self,
        range: &NameRange<'_>,
        each: &mut dyn FnMut(&str, u64) -> bool,
    ) -> Result<(), StoreError>;
    /// Whether a file is durable as soon as it is finished; otherwise after `sync`.
    fn finishes_durably(&self) -> bool;
    /// Waits until everything written is durable.
    fn sync(&self) -> Result<(), StoreError>;
    /// A number that changes while writers that wait make progress, if the store can tell.
    fn progress(&self) -> u64 {
        0
    }
    /// The keys of an object store, for listings; `None` for other stores.
    fn keys(&self) -> Option<&dyn KeyListing> {
        None
    }
}

/// Whether a store lists names together with sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeListing {
    /// It lists names only; each size is a request.
    None,
    /// From the first name on.
    Whole,
    /// From any name on, so that several processes can each list a part.
    Ranges,
}

/// A part of a listing.
#[derive(Clone, Copy, Debug)]
pub struct NameRange<'a> {
    /// Files in this folder and all folders below it.
    pub folder: &'a Name,
    /// Only names after this one; empty: from the first.
    pub after: &'a str,
    /// Only names up to and including this one; empty: to the last.
    pub until: &'a str,
}

/// Storage that holds a data set, accessed through one I/O backend.
pub trait Store: Send + Sync + Debug {
    /// The backend's name in the registry.
    fn name(&self) -> &'static str;
    fn capabilities(&self) -> Capabilities;
    /// A lane for these readers; refused if the storage cannot be read that way.
    fn lane<'a>(&'a self, traffic: Traffic<'a>) -> Result<Box<dyn Lane + 'a>, StoreError>;
    fn files(&self) -> &dyn Files;
    /// What the backend actually did, for the result: names and values, such as whether O_DIRECT was in effect.
    fn observed(&self) -> Vec<(&'static str, String)>;
    /// The server with this number, for messages about requests to it; `None` if there are no servers.
    fn server(&self, number: usize) -> Option<String> {
        let _ = number;
        None
    }
    /// The device, if it is a simulated one: all its users share its time.
    fn simulated(&self) -> Option<Sim> {
        None
    }
}
