//! Bytes to a medium and back. A `Store` is shared by all threads; each reader takes a `Lane` of its own from it,
//! hands in fetches and takes completions out, which fits blocking and asynchronous media alike. This room knows
//! names and byte ranges; what the bytes mean is a format's business, when to ask for them the engine's.

pub mod conformance;
mod error;
mod lane;
mod mapped;
mod null;
pub mod page_cache;
mod posix;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use model::extent::Extent;
use model::names::Name;

pub use error::{Operation, StoreError};
pub use lane::{Blocking, BlockingLane};
pub use mapped::Mapped;
pub use null::Null;
pub use posix::Posix;

/// What a lane is asked to bring: ranges of one file, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Fetch<'a> {
    pub name: &'a Name,
    pub ranges: &'a [Extent],
    /// How long the file should be: where a range ends there, a longer file is an error, as a shorter one always is.
    pub file_bytes: u64,
    /// Whether the next fetch will go on in the same file, which then stays open.
    pub keep_open: bool,
    /// Set when nobody wants the bytes any more: a long fetch looks at it between its reads and gives up.
    pub give_up: &'a AtomicBool,
}

/// A fetch that is complete: every byte asked for was brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The caller's mark, as given to `submit`.
    pub tag: u64,
    pub bytes: u64,
    /// System calls or requests that it took.
    pub opens: u64,
    pub reads: u64,
}

/// One reader's way to the medium. Not shared: each reader has its own, with its own buffers.
pub trait Lane: Send {
    /// How many fetches may be in flight at once. At least one.
    fn capacity(&self) -> usize;
    /// Takes a fetch on. Must not be called with `capacity` fetches in flight. A blocking lane does the work here.
    fn submit(&mut self, tag: u64, fetch: &Fetch<'_>) -> Result<(), StoreError>;
    /// Waits for one completion; `None` when nothing is in flight.
    fn reap(&mut self) -> Result<Option<Done>, StoreError>;
    /// Reads a range of a file to look at it: fills `out`, which must lie within the file. The file stays open for the
    /// next look or fetch. Must not be called with fetches in flight.
    fn look(&mut self, name: &Name, offset: u64, out: &mut [u8]) -> Result<Done, StoreError>;
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
    /// A fetch occupies its thread until it is done, so concurrency needs a thread each.
    pub blocking: bool,
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

/// A medium that holds a data set.
pub trait Store: Send + Sync + Debug {
    /// The registry's name of the backend.
    fn name(&self) -> &'static str;
    fn capabilities(&self) -> Capabilities;
    /// A lane whose reads are at most `transfer` bytes each.
    fn lane(&self, transfer: usize) -> Box<dyn Lane + '_>;
    /// Size of a file; `None` if there is none of that name.
    fn size(&self, name: &Name) -> Result<Option<u64>, StoreError>;
    /// Makes a folder; fine if it exists.
    fn create_folder(&self, name: &Name) -> Result<(), StoreError>;
    /// Begins a file, replacing what may stand there once it is finished.
    fn create(&self, name: &Name) -> Result<Box<dyn Writer + '_>, StoreError>;
    /// Keeps other writers out until the store is closed, where the medium can do that.
    fn lock(&self) -> Result<(), StoreError>;
    /// Removes what interrupted writers have left in a folder of files whose names begin and end so.
    fn remove_leftovers(&self, folder: &Name, prefix: &str, suffix: &str) -> Result<(), StoreError>;
    /// Counts the files of a folder, not of those below it; `None` if there is no such folder.
    fn census(&self, folder: &Name, prefix: &str, suffix: &str) -> Result<Option<Census>, StoreError>;
    /// Waits until all that was written is on stable storage.
    fn sync(&self) -> Result<(), StoreError>;
}

/// A backend as the registry lists it.
#[derive(Debug)]
pub struct Backend {
    pub name: &'static str,
    pub summary: &'static str,
    pub capabilities: Capabilities,
    open: fn(&Path) -> Result<Box<dyn Store>, StoreError>,
}

/// Every backend. A new one is one file and one line.
pub const BACKENDS: &[Backend] = &[
    Backend {
        name: "posix",
        summary: "buffered reads of local or mounted files",
        capabilities: Posix::CAPABILITIES,
        open: Posix::open_boxed,
    },
    Backend {
        name: "null",
        summary: "answers at once, reads nothing: the instrument's own ceiling",
        capabilities: Null::CAPABILITIES,
        open: Null::open_boxed,
    },
];

impl Backend {
    pub fn named(name: &str) -> Option<&'static Backend> {
        BACKENDS.iter().find(|backend| backend.name == name)
    }

    /// Opens the backend on the data folder `root`.
    pub fn open(&self, root: &Path) -> Result<Box<dyn Store>, StoreError> {
        (self.open)(root)
    }
}

/// The part of a path that exists: where to ask for free space before a folder is made.
pub fn existing_ancestor(path: &Path) -> PathBuf {
    let mut candidate = path;
    loop {
        if candidate.exists() {
            return candidate.to_owned();
        }
        match candidate.parent() {
            Some(parent) if parent != Path::new("") => candidate = parent,
            _ => return PathBuf::from("."),
        }
    }
}

/// Bytes that an unprivileged process may still write where `path` lies or will lie.
pub fn free_bytes(path: &Path) -> Result<u64, StoreError> {
    let place = existing_ancestor(path);
    let stat = rustix::fs::statvfs(&place)
        .map_err(|cause| StoreError::io(Operation::FreeSpace, &place.display().to_string(), cause))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
