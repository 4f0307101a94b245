//! Bytes to a medium and back. A `Store` is shared by all threads; each reading thread takes a `Lane` of its own from
//! it, hands in fetches and takes completions out, which fits blocking and asynchronous media alike. This room knows
//! names and byte ranges; what the bytes mean is a format's business, when to ask for them the engine's.

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
mod uring;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::extent::Extent;
use model::histogram::Histogram;
use model::names::Name;
use model::units::Nanos;

pub use backend::{BACKENDS, Backend, Registry, Selection};
pub use buffer::Buffer;
pub use device::BlockDevice;
pub use direct::Direct;
pub use error::{Operation, StoreError};
pub use fault::Fault;
pub use file_system::{Counter, FileSystem};
pub use folder::{existing_ancestor, free_bytes};
pub use footprint::{Footprint, Reads};
pub use ground::Ground;
pub use held::{Held, Made, PARTIAL, make_path};
pub use lane::{Blocking, BlockingLane};
pub use layout::layout;
pub use limits::want_files;
pub use listing::{EntryKind, FolderListing, Hint, Listing, Names, Prefix, modification_time};
pub use mapped::Mapped;
pub use mmap::Mmap;
pub use model::plan::{Mode, Threads};
pub use null::Null;
pub use posix::Posix;
pub use proof::{Count, Probe, Proof};
pub use sim::{Device, Sim};
pub use tier::{CHUNK_GRANULE, Lock, OpenTier, SimTier, Sink, Source, Stored, Tier, TierFiles, Volume};
pub use track::Track;
pub use uring::Uring;

/// Time as the engine's clock tells it: no store reads a clock of its own.
pub trait Now: Sync {
    /// Since the clock was made.
    fn now(&self) -> Nanos;
}

/// A clock that stands still, for lanes whose times nobody asks for.
#[derive(Clone, Copy, Debug)]
pub struct Still;

impl Now for Still {
    fn now(&self) -> Nanos {
        Nanos::ZERO
    }
}

/// One who sees the bytes that come, before they are dropped: called by the lane's thread, in the order in which a
/// fetch brings them, outside of every measured span. What it objects to ends the fetch.
pub trait Witness: Sync {
    /// These bytes stand at `offset` of the file with the number `file`, which `reader` fetches.
    fn see(&self, reader: usize, file: u64, offset: u64, bytes: &[u8]) -> Result<(), StoreError>;
}

/// What a lane is made for.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "holds a clock")]
pub struct Traffic<'a> {
    /// Readers that share the lane. Each has at most one fetch in flight; they are numbered from 0.
    pub readers: usize,
    /// Largest single read.
    pub transfer: usize,
    pub clock: &'a dyn Now,
    /// Set when nobody wants the bytes any more: a long fetch looks at it between its reads and gives up.
    pub give_up: &'a AtomicBool,
    /// Sees every byte of samples that a fetch brings; stores that bring none do not call it.
    pub witness: Option<&'a dyn Witness>,
    /// What each reader is doing, for one who watches; empty if nobody does.
    pub tracks: &'a [Track],
    /// How the page cache is looked after. A store that does not read through it does nothing about it.
    pub proof: Proof<'a>,
}

impl Traffic<'static> {
    /// For one reader that takes no times.
    pub fn untimed() -> Traffic<'static> {
        static GO_ON: AtomicBool = AtomicBool::new(false);
        let (proof, witness) = (Proof::default(), None);
        Traffic { readers: 1, transfer: 1 << 16, clock: &Still, give_up: &GO_ON, witness, tracks: &[], proof }
    }
}

impl Traffic<'_> {
    /// Notes that an operation of a reader begins.
    fn begin(&self, reader: usize, operation: Operation, offset: u64) {
        if let Some(track) = self.tracks.get(reader) {
            track.begin(operation, offset);
        }
    }

    /// Notes that it has ended.
    fn end(&self, reader: usize) {
        if let Some(track) = self.tracks.get(reader) {
            track.end();
        }
    }
}

/// What the bytes of a fetch are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Samples of the file with this number. The witness sees them.
    Samples(u64),
    /// Metadata that says where the samples of an existing file are. The witness does not see it.
    Metadata,
    /// Nothing that is measured: a manifest, a file that is inspected or verified. The witness does not see it, and no
    /// faults are injected.
    #[default]
    Upkeep,
}

impl Purpose {
    /// The number of the file, if the witness is to see the bytes.
    pub(crate) fn witnessed(self) -> Option<u64> {
        match self {
            Purpose::Samples(file) => Some(file),
            Purpose::Metadata | Purpose::Upkeep => None,
        }
    }
}

/// What a lane is asked to bring: ranges of one file, one after the other.
#[derive(Debug)]
pub struct Fetch<'a> {
    pub name: &'a Name,
    pub purpose: Purpose,
    pub ranges: &'a [Extent],
    /// How long the file should be. A file of another size is an error, whichever part of it is fetched.
    pub file_bytes: u64,
    /// Whether the reader's next fetch will go on in the same file, which then stays open.
    pub keep_open: bool,
    /// When the reader asks, on its own timeline; only a simulated device goes by it.
    pub at: Nanos,
    /// Where the bytes are to be kept. Without, they stream through the lane's own buffers and are dropped.
    pub into: Option<Buffer>,
}

/// A fetch that has ended.
#[derive(Debug)]
pub struct Done {
    /// Whose it was.
    pub reader: usize,
    /// When it ended: by the clock, or by the reckoning of a simulated device.
    pub at: Nanos,
    /// When it began, by the same.
    pub began: Nanos,
    pub outcome: Result<Brought, StoreError>,
    /// The buffer that was given, with the bytes of all ranges one after the other.
    pub kept: Option<Buffer>,
}

/// What a complete fetch brought: every byte asked for, and what that took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brought {
    pub bytes: u64,
    /// System calls or requests.
    pub opens: u64,
    pub reads: u64,
    /// What was in memory before.
    pub probe: Probe,
}

/// How long each kind of operation took, from the call to its return or from the request to its completion.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    pub open: Histogram,
    /// Counting pages before a fetch is read.
    pub probe: Histogram,
    pub read: Histogram,
    /// Giving them back.
    pub forget: Histogram,
    pub close: Histogram,
}

/// What fetches in flight wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaits {
    /// Nothing is in flight, or what is can be reaped now.
    Nothing,
    /// Time: the next one ends at this moment.
    Moment(Nanos),
    /// The medium: `Lane::wait` sleeps until it answers.
    Medium,
}

/// Ends another thread's `Lane::wait` early.
pub trait Waker: Send + Sync + Debug {
    fn wake(&self);
}

/// One thread's way to the medium, shared by the readers that the thread plays. Not shared between threads.
pub trait Lane: Send {
    /// Takes on a fetch of `reader`, which must have none in flight. A blocking lane does the work here.
    fn submit(&mut self, reader: usize, fetch: Fetch<'_>);
    /// A fetch that has ended, if there is one now. Never waits.
    fn reap(&mut self) -> Option<Done>;
    /// What keeps `reap` from having one.
    fn awaits(&self) -> Awaits;
    /// Sleeps until a fetch may have ended, a waker was used, or `most` is over. For lanes that await the medium.
    fn wait(&mut self, most: Nanos) {
        let _ = most;
    }
    /// What ends `wait` early; `None` where there is no waiting.
    fn waker(&self) -> Option<Arc<dyn Waker>> {
        None
    }
    /// How long operations took; the lane begins anew.
    fn take_spans(&mut self) -> Spans;
}

/// A file under construction. It appears under its name when `finish` succeeds, whole, or never.
pub trait Writer: Send {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError>;
    /// Checks that everything has arrived and gives the file its name.
    fn finish(self: Box<Self>) -> Result<(), StoreError>;
}

/// What a backend can do. Nothing is emulated: a caller that needs more refuses before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Holds files that can be written and looked at.
    pub holds_files: bool,
    pub threads: Threads,
    /// Brings bytes that can be kept; else it only says how long bringing them would take.
    pub brings_bytes: bool,
    /// Reads go through the page cache, unless O_DIRECT is asked for.
    pub cached: bool,
    /// Can read past the page cache.
    pub odirect: bool,
}

/// What lies in a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Files whose names begin and end as asked.
    pub matching: u64,
    /// Other files, hidden ones aside, and one of them.
    pub others: u64,
    pub example: Option<String>,
}

/// The files of a medium, beside reading them fast.
pub trait Files: Send + Sync + Debug {
    /// How messages name a file.
    fn shown(&self, name: &Name) -> String;
    /// Size of a file; `None` if there is none of that name.
    fn size(&self, name: &Name) -> Result<Option<u64>, StoreError>;
    /// Makes a folder; fine if it exists, unless it is a link.
    fn create_folder(&self, name: &Name) -> Result<(), StoreError>;
    /// Begins a file, which replaces a regular file of its name once it is finished.
    fn create(&self, name: &Name) -> Result<Box<dyn Writer + '_>, StoreError>;
    /// Writes a small file so that it is there with all its bytes after a power failure at any moment, or not at all.
    fn put(&self, name: &Name, bytes: &[u8]) -> Result<(), StoreError>;
    /// Keeps other writers out until the store is closed, where the medium can do that.
    fn lock(&self) -> Result<(), StoreError>;
    /// Removes what interrupted writers have left in a folder of files whose names begin and end so.
    fn remove_leftovers(&self, folder: &Name, prefix: &str, suffix: &str) -> Result<(), StoreError>;
    /// Counts the files of a folder, not of those below it; `None` if there is no such folder.
    fn census(&self, folder: &Name, prefix: &str, suffix: &str) -> Result<Option<Census>, StoreError>;
    /// Waits until all that was written is on stable storage.
    fn sync(&self) -> Result<(), StoreError>;
}

/// A medium that holds a data set, and one road to its bytes.
pub trait Store: Send + Sync + Debug {
    /// The registry's name of the backend.
    fn name(&self) -> &'static str;
    fn capabilities(&self) -> Capabilities;
    /// A lane for these readers; refused where the medium cannot be read so.
    fn lane<'a>(&'a self, traffic: Traffic<'a>) -> Result<Box<dyn Lane + 'a>, StoreError>;
    fn files(&self) -> &dyn Files;
    /// What the medium turned out to do, for the result: names and values, such as whether O_DIRECT was in force.
    fn observed(&self) -> Vec<(&'static str, String)>;
    /// The device, if it is a simulated one: whoever else uses it shares its time.
    fn simulated(&self) -> Option<Sim> {
        None
    }
}
