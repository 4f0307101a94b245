//! Names and sizes below a location, for catalogs: the trait through which the engine lists, and its implementation for
//! folders. The catalog decides which names belong to a data set.

use std::ffi::{CStr, CString};
use std::fmt::Debug;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;

use model::catalog::put_varint;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Statx, StatxFlags};
use rustix::io::Errno;

/// A place whose names can be listed prefix by prefix, by several threads at once. A prefix is the path of a folder, or
/// the common part of object store keys up to a slash; the empty prefix is the place itself.
pub trait Listing: Sync + Debug {
    /// Identifies this place.
    fn identity(&self) -> io::Result<Vec<u8>>;
    /// Starts listing the entries directly below a prefix.
    fn open(&self, prefix: &[u8]) -> io::Result<Box<dyn Prefix>>;
    /// The version of a prefix, as in `Prefix::version`; `None` if the prefix does not exist.
    fn version(&self, prefix: &[u8]) -> io::Result<Option<i64>>;
}

/// A prefix that is being listed.
pub trait Prefix: Send + Sync + Debug {
    /// Changes when a name below the prefix is added, removed or changed, and grows with time: nanoseconds since 1970.
    fn version(&self) -> io::Result<i64>;
    /// The names, in any order. `room` is a reusable buffer for the storage's answers.
    fn names<'a>(&'a self, room: &'a mut [MaybeUninit<u8>]) -> Box<dyn NameStream + 'a>;
    /// The kind of an entry, if listing it did not tell.
    fn look(&self, name: &CStr, hint: Hint) -> io::Result<EntryKind>;
}

/// The names below a prefix.
pub trait NameStream {
    /// Passes the next names to `each`, at least one; `false` if there are none left.
    fn next(&mut self, each: &mut dyn FnMut(&CStr, Hint)) -> io::Result<bool>;
}

/// What the listing itself tells about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    Folder,
    /// A file of this size.
    Sized(u64),
    /// A file whose size must be looked up.
    File,
    Link,
    Special,
    Unknown,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A file of this size; a link to a file counts as one.
    File(u64),
    Folder,
    LinkedFolder,
    /// A socket, pipe or device.
    Special,
}

/// The folders below a folder.
#[derive(Debug)]
pub struct FolderListing {
    root: OwnedFd,
}

impl FolderListing {
    pub fn open(root: &Path) -> io::Result<FolderListing> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(FolderListing { root: rustix::fs::open(root, flags, Mode::empty())? })
    }
}

impl Listing for FolderListing {
    fn identity(&self) -> io::Result<Vec<u8>> {
        let (facts, mut bytes) = (rustix::fs::fstat(&self.root)?, Vec::new());
        put_varint(&mut bytes, facts.st_dev);
        put_varint(&mut bytes, facts.st_ino);
        Ok(bytes)
    }

    fn open(&self, prefix: &[u8]) -> io::Result<Box<dyn Prefix>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = retry(|| rustix::fs::openat(&self.root, or_dot(prefix), flags, Mode::empty()))?;
        Ok(Box::new(FolderPrefix { fd }))
    }

    fn version(&self, prefix: &[u8]) -> io::Result<Option<i64>> {
        let name = CString::new(or_dot(prefix))?;
        let mask = StatxFlags::TYPE | StatxFlags::MTIME;
        match retry(|| rustix::fs::statx(&self.root, &name, AtFlags::SYMLINK_NOFOLLOW, mask)) {
            Ok(facts) => Ok((file_type(&facts) == FileType::Directory).then(|| mtime_ns(&facts))),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(cause) => Err(cause.into()),
        }
    }
}

fn or_dot(prefix: &[u8]) -> &[u8] {
    if prefix.is_empty() { b"." } else { prefix }
}

#[derive(Debug)]
struct FolderPrefix {
    fd: OwnedFd,
}

impl Prefix for FolderPrefix {
    fn version(&self) -> io::Result<i64> {
        Ok(modification_time(&self.fd)?)
    }

    fn names<'a>(&'a self, room: &'a mut [MaybeUninit<u8>]) -> Box<dyn NameStream + 'a> {
        Box::new(FolderNames(RawDir::new(&self.fd, room)))
    }

    fn look(&self, name: &CStr, hint: Hint) -> io::Result<EntryKind> {
        // Only size and type: a network file system may know these without asking the server.
        let mask = StatxFlags::TYPE | StatxFlags::SIZE;
        let ask = |flags: AtFlags| retry(|| rustix::fs::statx(&self.fd, name, flags, mask));
        let mut linked = hint == Hint::Link;
        let mut facts = ask(if linked { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW })?;
        if file_type(&facts) == FileType::Symlink {
            facts = ask(AtFlags::empty())?;
            linked = true;
        }
        Ok(match file_type(&facts) {
            FileType::RegularFile => EntryKind::File(facts.stx_size),
            FileType::Directory if linked => EntryKind::LinkedFolder,
            FileType::Directory => EntryKind::Folder,
            _ => EntryKind::Special,
        })
    }
}

struct FolderNames<'a>(RawDir<'a, &'a OwnedFd>);

impl NameStream for FolderNames<'_> {
    fn next(&mut self, each: &mut dyn FnMut(&CStr, Hint)) -> io::Result<bool> {
        loop {
            let entry = match self.0.next() {
                None => return Ok(false),
                Some(Err(Errno::INTR)) => continue,
                Some(entry) => entry?,
            };
            let hint = match entry.file_type() {
                FileType::Directory => Hint::Folder,
                FileType::RegularFile => Hint::File,
                FileType::Symlink => Hint::Link,
                FileType::Unknown => Hint::Unknown,
                _ => Hint::Special,
            };
            each(entry.file_name(), hint);
            return Ok(true);
        }
    }
}

fn file_type(facts: &Statx) -> FileType {
    FileType::from_raw_mode(u32::from(facts.stx_mode))
}

/// Modification time of an open folder or file, in nanoseconds since 1970; valid until the year 2262.
pub fn modification_time(file: impl AsFd) -> Result<i64, Errno> {
    let ask = || rustix::fs::statx(file.as_fd(), c"", AtFlags::EMPTY_PATH, StatxFlags::MTIME);
    retry(ask).map(|facts| mtime_ns(&facts))
}

fn mtime_ns(facts: &Statx) -> i64 {
    facts.stx_mtime.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(facts.stx_mtime.tv_nsec))
}

/// Repeats a call that a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}
