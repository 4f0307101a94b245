//! Checkpoints in a folder: with buffered writes, with O_DIRECT, or with either through a ring.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};

use model::extent::Extent;
use model::names::Name;
use model::spec::Readahead;
use model::units::Nanos;
use rustix::fd::OwnedFd;
use rustix::fs::{Advice, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use super::ring::RingSink;
use super::{CHUNK_GRANULE, Lock, TierFiles, TierSink, TierSource, Volume};
use crate::folder::{Folder, READ_FLAGS, start_flushing};
use crate::held::{FolderHandle, close, is_file, make_path, path, split, write_all};
use crate::page_cache::{self, Pages};
use crate::past_cache::PastCache;
use crate::{Buffer, FileSystem, Now, Operation, StorageStack, StoreError};

/// How bytes are written to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteMode {
    Buffered,
    PastCache,
    Ring { past_cache: bool },
}

impl WriteMode {
    fn is_past_cache(self) -> bool {
        matches!(self, WriteMode::PastCache | WriteMode::Ring { past_cache: true })
    }
}

/// A folder that holds checkpoints.
#[derive(Debug)]
pub(crate) struct DiskVolume {
    root: PathBuf,
    road: WriteMode,
}

impl DiskVolume {
    pub(super) fn open(root: &Path, road: WriteMode) -> Result<DiskVolume, StoreError> {
        make_path(root)?;
        let folder = Folder::open(root)?;
        if road.is_past_cache() {
            // Refuses before anything is written if this is not supported.
            PastCache::of(&folder, Readahead::Normal)?;
        }
        if matches!(road, WriteMode::Ring { .. }) {
            RingSink::probe()?;
        }
        Ok(DiskVolume { root: root.to_owned(), road })
    }

    /// Opens the folder anew: one that was away and came back, such as a mount, is a different folder.
    fn now(&self) -> Result<FolderHandle, StoreError> {
        FolderHandle::open(&self.root)
    }

    /// Holds the folder of something, and returns its name there; `None` if the folder does not exist. A link to a
    /// folder counts as missing, since it leads to files that are not feedline's.
    fn known_parent<'a>(&self, name: &'a Name) -> Result<Option<(FolderHandle, &'a OsStr)>, StoreError> {
        let (root, (folder, file)) = (self.now()?, split(name));
        match root.below(folder) {
            Err(StoreError::Missing { .. } | StoreError::NotOurs { .. }) => Ok(None),
            held => held.map(|held| Some((held, file))),
        }
    }

    /// Opens a file for reading.
    fn open_file(&self, name: &Name, more: OFlags) -> Result<OwnedFd, StoreError> {
        let (folder, file) = self.now()?.parent_of(name, Operation::Open)?;
        rustix::fs::openat(folder.fd(), file, READ_FLAGS | OFlags::NOFOLLOW | more, Mode::empty())
            .map_err(|cause| self.failed(Operation::Open, name, cause))
    }

    /// The resident pages of a file; `None` if their count does not show what is read from memory.
    fn count(&self, file: &OwnedFd, whole: Extent, name: &Name) -> Result<Option<Pages>, StoreError> {
        let ground = StorageStack::of(file, &self.shown(name))?;
        Ok(ground.untold().is_none().then(|| page_cache::count(file, whole).ok()).flatten())
    }

    /// A file and the extent of all its bytes.
    fn whole(&self, name: &Name) -> Result<(OwnedFd, Extent), StoreError> {
        let file = self.open_file(name, OFlags::empty())?;
        let stat = rustix::fs::fstat(&file).map_err(|cause| self.failed(Operation::Stat, name, cause))?;
        Ok((file, Extent { offset: 0, len: u64::try_from(stat.st_size).unwrap_or(0) }))
    }

    fn failed(&self, operation: Operation, name: &Name, cause: Errno) -> StoreError {
        StoreError::io(operation, &self.shown(name), cause)
    }
}

impl TierFiles for DiskVolume {
    fn shown(&self, name: &Name) -> String {
        self.root.join(name.as_str()).display().to_string()
    }

    fn holds_files(&self) -> bool {
        true
    }

    fn lock(&self, shared: bool, _stops: &dyn Fn() -> bool) -> Result<Lock, StoreError> {
        let folder = Folder::open(&self.root)?;
        if shared { folder.lock_shared() } else { folder.lock_exclusive() }?;
        Ok(Lock { _folder: Some(folder), ..Lock::default() })
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        // If it cannot be queried, nothing is reported.
        let file_system =
            self.now().and_then(|folder| FileSystem::of(folder.fd(), &self.root.display().to_string()));
        file_system.map_or_else(|_| Vec::new(), |known| vec![("file_system", known.name.to_owned())])
    }

    fn create<'a>(
        &'a self,
        name: &Name,
        bytes: u64,
        clock: &'a dyn Now,
    ) -> Result<Box<dyn TierSink + 'a>, StoreError> {
        let more = if self.road.is_past_cache() { OFlags::DIRECT } else { OFlags::empty() };
        let (folder, file) = self.now()?.parent_of(name, Operation::Create)?;
        let file = folder.create_new(file, more)?;
        if self.road == (WriteMode::Ring { past_cache: true }) {
            reserve(&file, bytes).map_err(|cause| self.failed(Operation::Write, name, cause))?;
        }
        let target = Target { disk: self, name: name.clone(), file, bytes, clock };
        Ok(match self.road {
            WriteMode::Ring { .. } => Box::new(RingSink::new(target)?),
            _ => Box::new(DiskSink { target, at: 0 }),
        })
    }

    fn open<'a>(&'a self, name: &Name, clock: &'a dyn Now) -> Result<Box<dyn TierSource + 'a>, StoreError> {
        let more = if self.road.is_past_cache() { OFlags::DIRECT } else { OFlags::empty() };
        let file = self.open_file(name, more)?;
        if !self.road.is_past_cache() {
            // It is advice: without it the kernel detects sequential reads by itself.
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::Sequential);
        }
        Ok(Box::new(DiskSource { disk: self, name: name.clone(), file, at: 0, clock }))
    }

    fn evict(&self, name: &Name) -> Result<Option<Pages>, StoreError> {
        let (file, whole) = self.whole(name)?;
        // Dirty pages cannot be evicted.
        rustix::fs::fsync(&file).map_err(|cause| self.failed(Operation::Sync, name, cause))?;
        page_cache::forget(&file, whole);
        self.count(&file, whole, name)
    }

    fn cached(&self, name: &Name) -> Result<Option<Pages>, StoreError> {
        let (file, whole) = self.whole(name)?;
        self.count(&file, whole, name)
    }

    fn sync_file(&self, name: &Name) -> Result<(), StoreError> {
        let file = self.open_file(name, OFlags::empty())?;
        rustix::fs::fsync(&file).map_err(|cause| self.failed(Operation::Sync, name, cause))
    }
}

impl Volume for DiskVolume {
    fn make_folder(&self, folder: &Name) -> Result<(), StoreError> {
        let (parent, folder) = self.now()?.parent_of(folder, Operation::MakeFolder)?;
        parent.make_folder(folder).map(drop)
    }

    fn put(&self, name: &Name, bytes: &[u8]) -> Result<(), StoreError> {
        let (folder, file) = self.now()?.parent_of(name, Operation::Create)?;
        folder.put(file, bytes)
    }

    fn get(&self, name: &Name) -> Result<Option<Vec<u8>>, StoreError> {
        if self.size(name)?.is_none() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let file = self.open_file(name, OFlags::empty())?;
        match std::fs::File::from(file).read_to_end(&mut bytes) {
            Ok(_) => Ok(Some(bytes)),
            Err(error) => {
                Err(self.failed(Operation::Read, name, Errno::from_io_error(&error).unwrap_or(Errno::IO)))
            }
        }
    }

    fn size(&self, name: &Name) -> Result<Option<u64>, StoreError> {
        let Some((folder, file)) = self.known_parent(name)? else { return Ok(None) };
        Ok(folder.look(file)?.filter(is_file).map(|there| there.st_size as u64))
    }

    fn sync_folder(&self, folder: &Name) -> Result<(), StoreError> {
        self.now()?.below(path(folder))?.sync()
    }

    fn entries(&self, folder: &Name) -> Result<Vec<String>, StoreError> {
        let error = |cause| self.failed(Operation::List, folder, cause);
        let held = match self.now()?.below(path(folder)) {
            Err(StoreError::Missing { .. }) => return Ok(Vec::new()),
            held => held?,
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(held.fd()).map_err(error)? {
            let name = entry.map_err(error)?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn rename(&self, from: &Name, to: &Name) -> Result<(), StoreError> {
        let (folder, from) = self.now()?.parent_of(from, Operation::Rename)?;
        folder.rename(from, split(to).1)
    }

    fn remove(&self, name: &Name) -> Result<(), StoreError> {
        let Some((folder, file)) = self.known_parent(name)? else { return Ok(()) };
        folder.remove(file)
    }

    fn remove_folder(&self, folder: &Name) -> Result<(), StoreError> {
        let Some((parent, folder)) = self.known_parent(folder)? else { return Ok(()) };
        parent.remove_folder(folder)
    }
}

/// Allocates the whole file in advance. With O_DIRECT, writes that extend a file wait for each other, and writes within
/// its size do not. But each write to preallocated blocks also has to mark them as written, which only costs time if
/// there is one write at a time.
fn reserve(file: &OwnedFd, bytes: u64) -> Result<(), Errno> {
    if bytes == 0 {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // Not every file system supports this.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        outcome => outcome,
    }
}

/// A file that is being written.
pub(super) struct Target<'a> {
    disk: &'a DiskVolume,
    name: Name,
    pub(super) file: OwnedFd,
    bytes: u64,
    clock: &'a dyn Now,
}

impl Target<'_> {
    pub(super) fn failed(&self, operation: Operation, cause: Errno) -> StoreError {
        self.disk.failed(operation, &self.name, cause)
    }

    /// Pads a chunk to a whole granule for O_DIRECT; the file is truncated to its size in the end.
    pub(super) fn pad(&self, chunk: &mut Buffer) {
        if self.disk.road.is_past_cache() {
            chunk.set_len(chunk.bytes().len().next_multiple_of(CHUNK_GRANULE));
        }
    }

    /// Starts flushing written bytes, so that the disk works while the next chunk is produced, and not only when it is
    /// waited for.
    pub(super) fn send_off(&self, at: u64, bytes: u64) {
        if !self.disk.road.is_past_cache() {
            start_flushing(&self.file, at, at + bytes);
        }
    }

    /// The last steps: set the size, flush, and close, which may report lost data.
    pub(super) fn finish(self, durable: bool) -> Result<Nanos, StoreError> {
        let cut = self.disk.road.is_past_cache() && !self.bytes.is_multiple_of(CHUNK_GRANULE as u64);
        if cut {
            rustix::fs::ftruncate(&self.file, self.bytes)
                .map_err(|cause| self.failed(Operation::Write, cause))?;
        }
        if durable {
            rustix::fs::fsync(&self.file).map_err(|cause| self.failed(Operation::Sync, cause))?;
        }
        let Target { disk, name, file, clock, .. } = self;
        close(file).map_err(|cause| disk.failed(Operation::Close, &name, cause))?;
        Ok(clock.now())
    }
}

/// Writes one chunk at a time.
struct DiskSink<'a> {
    target: Target<'a>,
    at: u64,
}

impl TierSink for DiskSink<'_> {
    fn write(&mut self, mut chunk: Buffer) -> Result<Option<Buffer>, StoreError> {
        let bytes = chunk.bytes().len() as u64;
        self.target.pad(&mut chunk);
        write_all(&self.target.file, chunk.bytes(), self.at)
            .map_err(|cause| self.target.failed(Operation::Write, cause))?;
        self.target.send_off(self.at, bytes);
        self.at += bytes;
        Ok(Some(chunk))
    }

    fn finish(self: Box<Self>, durable: bool, _spare: &mut Vec<Buffer>) -> Result<Nanos, StoreError> {
        self.target.finish(durable)
    }
}

/// Reads one chunk at a time.
struct DiskSource<'a> {
    disk: &'a DiskVolume,
    name: Name,
    file: OwnedFd,
    at: u64,
    clock: &'a dyn Now,
}

impl TierSource for DiskSource<'_> {
    fn read(&mut self, chunk: &mut Buffer) -> Result<(), StoreError> {
        let mut filled = 0;
        chunk.set_len(0);
        while filled < chunk.capacity() {
            match rustix::io::pread(&self.file, &mut chunk.room()[filled..], self.at) {
                Ok(0) => break,
                Ok(got) => {
                    filled += got;
                    self.at += got as u64;
                    // With O_DIRECT, a read that ends inside a granule ends at the end of the file.
                    if self.disk.road.is_past_cache() && !got.is_multiple_of(CHUNK_GRANULE) {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::INVAL) if self.disk.road.is_past_cache() && !self.at.is_multiple_of(4096) => break,
                Err(cause) => return Err(self.disk.failed(Operation::Read, &self.name, cause)),
            }
        }
        chunk.set_len(filled);
        Ok(())
    }

    fn ended(&self) -> Nanos {
        self.clock.now()
    }
}
