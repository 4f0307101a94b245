//! Checkpoints in a folder: buffered writes, writes past the page cache, or either of them through a ring.

use std::io::Read;
use std::path::{Path, PathBuf};

use model::extent::Extent;
use model::names::Name;
use model::spec::Readahead;
use model::units::Nanos;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Advice, AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use super::ring::RingSink;
use super::{CHUNK_GRANULE, Lock, Sink, Source, Tier};
use crate::folder::{Folder, PARTIAL, existing_ancestor, start_flushing};
use crate::page_cache::{self, Pages};
use crate::past_cache::PastCache;
use crate::{Buffer, FileSystem, Files, Ground, Now, Operation, StoreError};

/// How bytes get to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Road {
    Buffered,
    PastCache,
    Ring { past_cache: bool },
}

impl Road {
    fn is_past_cache(self) -> bool {
        matches!(self, Road::PastCache | Road::Ring { past_cache: true })
    }
}

/// A folder that holds checkpoints.
#[derive(Debug)]
pub struct Disk {
    root: PathBuf,
    road: Road,
}

impl Disk {
    pub(super) fn open(root: &Path, road: Road) -> Result<Disk, StoreError> {
        make_root(root).map_err(|error| {
            let cause = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            StoreError::io(Operation::MakeFolder, &root.display().to_string(), cause)
        })?;
        let folder = Folder::open(root)?;
        if road.is_past_cache() {
            // Refuses where it is not possible, before anything is written.
            PastCache::of(&folder, Readahead::Normal)?;
        }
        if matches!(road, Road::Ring { .. }) {
            RingSink::probe()?;
        }
        Ok(Disk { root: root.to_owned(), road })
    }

    /// The folder as it is now: one that was away and came back, such as a mount, is another than it was.
    fn now(&self) -> Result<Folder, StoreError> {
        Folder::open(&self.root)
    }

    /// The pages of a file that are in memory; `None` where their count does not tell what is served from there.
    fn count(&self, file: &OwnedFd, whole: Extent, name: &Name) -> Result<Option<Pages>, StoreError> {
        let ground = Ground::of(file, &self.shown(name))?;
        Ok(ground.untold().is_none().then(|| page_cache::count(file, whole).ok()).flatten())
    }

    /// Opens a file for writing that is empty.
    fn begin(&self, name: &Name, more: OFlags) -> Result<OwnedFd, StoreError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | more;
        let root = self.now()?;
        rustix::fs::openat(root.root(), name.as_c_str(), flags, Mode::from_raw_mode(0o666))
            .map_err(|cause| self.failed(Operation::Create, name, cause))
    }

    /// Opens a folder to list or flush it.
    fn open_folder(&self, folder: &Name) -> Result<Result<OwnedFd, Errno>, StoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(self.now()?.root(), folder.as_c_str(), flags, Mode::empty()))
    }

    /// A file and the extent of all its bytes.
    fn whole(&self, name: &Name) -> Result<(OwnedFd, Extent), StoreError> {
        let file = self.now()?.open_file(name)?;
        let stat = rustix::fs::fstat(&file).map_err(|cause| self.failed(Operation::Stat, name, cause))?;
        Ok((file, Extent { offset: 0, len: u64::try_from(stat.st_size).unwrap_or(0) }))
    }

    fn failed(&self, operation: Operation, name: &Name, cause: Errno) -> StoreError {
        StoreError::io(operation, &self.shown(name), cause)
    }
}

impl Tier for Disk {
    fn shown(&self, name: &Name) -> String {
        self.root.join(name.as_str()).display().to_string()
    }

    fn holds_files(&self) -> bool {
        true
    }

    fn lock(&self, shared: bool) -> Result<Lock, StoreError> {
        let folder = self.now()?;
        if shared { folder.lock_shared() } else { folder.lock() }?;
        Ok(Lock { _folder: Some(folder) })
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        // Where it cannot be asked, there is nothing to say.
        let file_system =
            self.now().and_then(|folder| FileSystem::of(folder.root(), &self.root.display().to_string()));
        file_system.map_or_else(|_| Vec::new(), |known| vec![("file_system", known.name.to_owned())])
    }

    fn make_folder(&self, folder: &Name) -> Result<(), StoreError> {
        self.now()?.create_folder(folder)?;
        self.open_folder(folder)?.map(drop).map_err(|cause| self.failed(Operation::MakeFolder, folder, cause))
    }

    fn create<'a>(
        &'a self,
        name: &Name,
        bytes: u64,
        clock: &'a dyn Now,
    ) -> Result<Box<dyn Sink + 'a>, StoreError> {
        let more = if self.road.is_past_cache() { OFlags::DIRECT } else { OFlags::empty() };
        let file = self.begin(name, more)?;
        if self.road == (Road::Ring { past_cache: true }) {
            reserve(&file, bytes).map_err(|cause| self.failed(Operation::Write, name, cause))?;
        }
        let target = Target { disk: self, name: name.clone(), file, bytes, clock };
        Ok(match self.road {
            Road::Ring { .. } => Box::new(RingSink::new(target)?),
            _ => Box::new(FileSink { target, at: 0 }),
        })
    }

    fn open<'a>(&'a self, name: &Name, clock: &'a dyn Now) -> Result<Box<dyn Source + 'a>, StoreError> {
        let more = if self.road.is_past_cache() { OFlags::DIRECT } else { OFlags::empty() };
        let open = self.now()?.try_open(name, more);
        let file = open.map_err(|cause| self.failed(Operation::Open, name, cause))?;
        if !self.road.is_past_cache() {
            // Advice: without it the kernel finds out by itself.
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::Sequential);
        }
        Ok(Box::new(FileSource { disk: self, name: name.clone(), file, at: 0, clock }))
    }

    fn evict(&self, name: &Name) -> Result<Option<Pages>, StoreError> {
        let (file, whole) = self.whole(name)?;
        // Dirty pages stay whatever the advice.
        rustix::fs::fsync(&file).map_err(|cause| self.failed(Operation::Sync, name, cause))?;
        page_cache::forget(&file, whole);
        self.count(&file, whole, name)
    }

    fn cached(&self, name: &Name) -> Result<Option<Pages>, StoreError> {
        let (file, whole) = self.whole(name)?;
        self.count(&file, whole, name)
    }

    fn put(&self, name: &Name, bytes: &[u8]) -> Result<(), StoreError> {
        let partial = Name::new(&format!("{name}{PARTIAL}")).unwrap_or_default();
        let file = self.begin(&partial, OFlags::empty())?;
        write_all(&file, bytes, 0)
            .and_then(|()| rustix::fs::fsync(&file))
            .map_err(|cause| self.failed(Operation::Write, name, cause))?;
        self.rename(&partial, name)?;
        self.sync_folder(&parent(name))
    }

    fn get(&self, name: &Name) -> Result<Option<Vec<u8>>, StoreError> {
        let failed = |cause| self.failed(Operation::Read, name, cause);
        let file = match self.now()?.try_open(name, OFlags::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            open => open.map_err(failed)?,
        };
        let mut bytes = Vec::new();
        match std::fs::File::from(file).read_to_end(&mut bytes) {
            Ok(_) => Ok(Some(bytes)),
            Err(error) => Err(failed(Errno::from_io_error(&error).unwrap_or(Errno::IO))),
        }
    }

    fn size(&self, name: &Name) -> Result<Option<u64>, StoreError> {
        self.now()?.size(name)
    }

    fn sync_file(&self, name: &Name) -> Result<(), StoreError> {
        let file = self.now()?.open_file(name)?;
        rustix::fs::fsync(&file).map_err(|cause| self.failed(Operation::Sync, name, cause))
    }

    fn sync_folder(&self, folder: &Name) -> Result<(), StoreError> {
        let synced = self.open_folder(folder)?.and_then(rustix::fs::fsync);
        synced.map_err(|cause| self.failed(Operation::Sync, folder, cause))
    }

    fn entries(&self, folder: &Name) -> Result<Vec<String>, StoreError> {
        let error = |cause| self.failed(Operation::List, folder, cause);
        let open = match self.open_folder(folder)? {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            open => open.map_err(error)?,
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&open).map_err(error)? {
            let name = entry.map_err(error)?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn rename(&self, from: &Name, to: &Name) -> Result<(), StoreError> {
        let root = self.now()?;
        rustix::fs::renameat(root.root(), from.as_c_str(), root.root(), to.as_c_str())
            .map_err(|cause| self.failed(Operation::Rename, from, cause))
    }

    fn remove(&self, name: &Name) -> Result<(), StoreError> {
        match rustix::fs::unlinkat(self.now()?.root(), name.as_c_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(cause) => Err(self.failed(Operation::Remove, name, cause)),
        }
    }

    fn remove_folder(&self, folder: &Name) -> Result<(), StoreError> {
        match rustix::fs::unlinkat(self.now()?.root(), folder.as_c_str(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(cause) => Err(self.failed(Operation::Remove, folder, cause)),
        }
    }
}

/// Makes the folder of a tier, and sees that the names on the way to it survive a crash.
fn make_root(root: &Path) -> std::io::Result<()> {
    if root.is_dir() {
        return Ok(());
    }
    let there = existing_ancestor(root).canonicalize()?;
    std::fs::create_dir_all(root)?;
    let made = root.canonicalize()?;
    for folder in made.ancestors().skip(1).take_while(|folder| folder.starts_with(&there)) {
        std::fs::File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// The folder that a file is in.
fn parent(name: &Name) -> Name {
    let text = name.as_str();
    Name::new(text.rsplit_once('/').map_or(".", |(folder, _)| folder)).unwrap_or_default()
}

/// Gives a file its size at once. Past the page cache, writes that make a file longer wait for each other, and several
/// within its size do not; but room that was reserved is booked as written with every write, which one write after the
/// other only loses by.
fn reserve(file: &OwnedFd, bytes: u64) -> Result<(), Errno> {
    if bytes == 0 {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // Not every file system can.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        outcome => outcome,
    }
}

fn write_all(file: &OwnedFd, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file.as_fd(), bytes, at) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                bytes = &bytes[written..];
                at += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

/// A file that is being written.
pub(super) struct Target<'a> {
    disk: &'a Disk,
    name: Name,
    pub(super) file: OwnedFd,
    bytes: u64,
    clock: &'a dyn Now,
}

impl Target<'_> {
    pub(super) fn failed(&self, operation: Operation, cause: Errno) -> StoreError {
        self.disk.failed(operation, &self.name, cause)
    }

    /// Fills a chunk up to a whole granule where it goes past the page cache; the file is cut to its size in the end.
    pub(super) fn pad(&self, chunk: &mut Buffer) {
        if self.disk.road.is_past_cache() {
            chunk.set_len(chunk.bytes().len().next_multiple_of(CHUNK_GRANULE));
        }
    }

    /// Sends written bytes on their way: the disk is to work while the next chunk is made, and not only when it is
    /// waited for.
    pub(super) fn send_off(&self, at: u64, bytes: u64) {
        if !self.disk.road.is_past_cache() {
            start_flushing(&self.file, at, at + bytes);
        }
    }

    /// The last steps: the right size, the medium, the close that may tell of lost data.
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
        crate::folder::close(file).map_err(|cause| disk.failed(Operation::Close, &name, cause))?;
        Ok(clock.now())
    }
}

/// One write after the other.
struct FileSink<'a> {
    target: Target<'a>,
    at: u64,
}

impl Sink for FileSink<'_> {
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

/// One read after the other.
struct FileSource<'a> {
    disk: &'a Disk,
    name: Name,
    file: OwnedFd,
    at: u64,
    clock: &'a dyn Now,
}

impl Source for FileSource<'_> {
    fn read(&mut self, chunk: &mut Buffer) -> Result<(), StoreError> {
        let mut filled = 0;
        chunk.set_len(0);
        while filled < chunk.capacity() {
            match rustix::io::pread(&self.file, &mut chunk.room()[filled..], self.at) {
                Ok(0) => break,
                Ok(got) => {
                    filled += got;
                    self.at += got as u64;
                    // Past the page cache a read that ends inside a granule ends with the file.
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
