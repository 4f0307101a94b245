//! A data folder: its contents, and writing to it. All backends for local or mounted files share it. Names are resolved
//! from the folder's own descriptor, so the path above it is resolved once and not per sample.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use model::names::Name;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::held::{self, FILE_MODE, FolderHandle, PARTIAL};
use crate::{Files, FolderCount, NameRange, Operation, SizeListing, StoreError, Writer};

/// How files are opened for reading. Non-blocking has no effect on files, but opening a FIFO without it would wait for
/// a writer forever.
pub(crate) const READ_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

#[derive(Debug)]
pub(crate) struct Folder {
    root: FolderHandle,
    /// Folders below it that are on other file systems, one of each.
    mounted: Mutex<Vec<FolderHandle>>,
    /// The folder in which the last file was created: the next one is often in the same.
    last: Mutex<Option<(PathBuf, Arc<FolderHandle>)>>,
}

impl Folder {
    /// Opens the data folder, which must exist.
    pub(crate) fn open(root: &Path) -> Result<Folder, StoreError> {
        Ok(Folder { root: FolderHandle::open(root)?, mounted: Mutex::default(), last: Mutex::default() })
    }

    /// Holds the folder in which a file is to be created, and returns the file's name there.
    fn parent<'a>(&self, name: &'a Name) -> Result<(Arc<FolderHandle>, &'a OsStr), StoreError> {
        let (folder, file) = held::split(name);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((path, held)) = &*last
            && path == folder
        {
            return Ok((Arc::clone(held), file));
        }
        let held = Arc::new(self.root.parent_of(name, Operation::Create)?.0);
        *last = Some((folder.to_owned(), Arc::clone(&held)));
        Ok((held, file))
    }

    /// Opens a file for reading, with additional flags.
    pub(crate) fn try_open(&self, name: &Name, more: OFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(self.root(), name.as_c_str(), READ_FLAGS | more, Mode::empty())
    }

    pub(crate) fn open_file(&self, name: &Name) -> Result<OwnedFd, StoreError> {
        self.try_open(name, OFlags::empty()).map_err(|cause| self.error(Operation::Open, name, cause))
    }

    /// Keeps other writers and readers of checkpoints out until it is closed.
    pub(crate) fn lock_exclusive(&self) -> Result<(), StoreError> {
        self.root.lock()
    }

    /// Keeps writers out and lets readers in.
    pub(crate) fn lock_shared(&self) -> Result<(), StoreError> {
        self.root.lock_by(FlockOperation::NonBlockingLockShared)
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.fd()
    }

    /// The name of a file in messages: its full path.
    pub(crate) fn shown(&self, name: &Name) -> String {
        self.path_of(&name.to_string())
    }

    /// The name of the folder in messages.
    pub(crate) fn root_shown(&self) -> String {
        self.root.path().display().to_string()
    }

    pub(crate) fn error(&self, operation: Operation, name: &Name, cause: Errno) -> StoreError {
        StoreError::io(operation, &self.shown(name), cause)
    }

    pub(crate) fn path_of(&self, name: &str) -> String {
        self.root.shown(name)
    }
}

impl Files for Folder {
    fn shown(&self, name: &Name) -> String {
        Folder::shown(self, name)
    }

    fn size(&self, name: &Name) -> Result<Option<u64>, StoreError> {
        match rustix::fs::statat(self.root(), name.as_c_str(), AtFlags::empty()) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                Err(self.error(Operation::Stat, name, Errno::ISDIR))
            }
            Ok(stat) => Ok(Some(stat.st_size as u64)),
            Err(Errno::NOENT) => Ok(None),
            Err(cause) => Err(self.error(Operation::Stat, name, cause)),
        }
    }

    fn create_folder(&self, name: &Name) -> Result<(), StoreError> {
        let (parent, folder) = self.root.parent_of(name, Operation::MakeFolder)?;
        parent.make_folder(folder)?;
        let made = parent.below(folder)?;
        let mut mounted = self.mounted.lock().unwrap_or_else(PoisonError::into_inner);
        if !mounted.iter().chain([&self.root]).any(|other| other.is_beside(&made)) {
            mounted.push(made);
        }
        Ok(())
    }

    fn create(&self, name: &Name) -> Result<Box<dyn Writer + '_>, StoreError> {
        let (folder, name) = self.parent(name)?;
        let partial = held::partial(name);
        let nameless = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        // A file without a name until it is complete costs one directory entry instead of two, and nothing is left when
        // the writer is killed. Some file systems do not support it; any other error occurs again below.
        let (file, has_name) = match rustix::fs::openat(folder.fd(), ".", nameless, FILE_MODE) {
            Ok(file) if names_descriptors() => (file, false),
            _ => (folder.create_temporary(&partial)?.into(), true),
        };
        let (name, file) = (name.to_owned(), Some(file));
        Ok(Box::new(FileWriter { folder, name, partial, has_name, written: 0, started: 0, file }))
    }

    fn put(&self, name: &Name, bytes: &[u8]) -> Result<(), StoreError> {
        let (folder, file) = self.root.parent_of(name, Operation::Create)?;
        folder.put(file, bytes)?;
        // The folder may be new.
        self.root.sync()
    }

    fn lock(&self, _guard: &Name) -> Result<(), StoreError> {
        self.lock_exclusive()
    }

    fn mark(&self, mark: &str) -> Result<bool, StoreError> {
        self.root.make_folder(mark_name(mark))
    }

    fn unmark(&self, mark: &str) -> Result<(), StoreError> {
        self.root.remove_folder(mark_name(mark))
    }

    fn remove_leftovers(&self, folder: &Name, prefix: &str, suffix: &str) -> Result<(), StoreError> {
        let error = |cause| self.error(Operation::List, folder, cause);
        let open = self.root.below(held::path(folder))?;
        let ending = format!("{suffix}{PARTIAL}");
        for entry in rustix::fs::Dir::read_from(open.fd()).map_err(error)? {
            let entry = entry.map_err(error)?;
            let name = entry.file_name().to_bytes();
            if name.starts_with(prefix.as_bytes()) && name.ends_with(ending.as_bytes()) {
                // What cannot be removed is not feedline's, or is reported when its file is written.
                let _ = open.reclaim(OsStr::from_bytes(name));
            }
        }
        Ok(())
    }

    fn census(&self, folder: &Name, prefix: &str, suffix: &str) -> Result<Option<FolderCount>, StoreError> {
        let error = |cause| self.error(Operation::List, folder, cause);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = match rustix::fs::openat(self.root(), folder.as_c_str(), flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            open => open.map_err(error)?,
        };
        let mut census = FolderCount::default();
        for entry in rustix::fs::Dir::read_from(&open).map_err(error)? {
            let entry = entry.map_err(error)?;
            let name = entry.file_name().to_bytes();
            if name.starts_with(b".") || entry.file_type() == FileType::Directory {
                continue;
            }
            if name.starts_with(prefix.as_bytes()) && name.ends_with(suffix.as_bytes()) {
                census.matching += 1;
            } else {
                census.others += 1;
                census.example.get_or_insert_with(|| String::from_utf8_lossy(name).into_owned());
            }
        }
        Ok(Some(census))
    }

    fn lists_sizes(&self) -> SizeListing {
        SizeListing::None
    }

    fn list_sizes(
        &self,
        range: &NameRange<'_>,
        _each: &mut dyn FnMut(&str, u64) -> bool,
    ) -> Result<(), StoreError> {
        let (operation, name) = (Operation::List, range.folder.to_string());
        Err(StoreError::Unsupported { store: "folder", operation, name })
    }

    fn finishes_durably(&self) -> bool {
        false
    }

    fn sync(&self) -> Result<(), StoreError> {
        let mounted = self.mounted.lock().unwrap_or_else(PoisonError::into_inner);
        mounted.iter().chain([&self.root]).try_for_each(FolderHandle::sync_file_system)
    }
}

/// A mark is a hidden, empty folder: creating it tells whether it was there.
fn mark_name(mark: &str) -> String {
    format!(".shared-{mark}")
}

/// The disk should work while content is generated: large files are flushed in parts of this size, which is large
/// enough for any disk. Small files are written with the flush at the end.
const FLUSH_BYTES: u64 = 8 << 20;

/// Makes the kernel start writing the pages from `from` to `to`. It is advice: the flush at the end does what is left.
pub(crate) fn start_flushing(file: &OwnedFd, from: u64, to: u64) {
    // SAFETY: the call takes an open descriptor and three numbers, and accesses no memory of this process.
    unsafe {
        libc::sync_file_range(
            file.as_raw_fd(),
            from as libc::off64_t,
            (to - from) as libc::off64_t,
            libc::SYNC_FILE_RANGE_WRITE,
        );
    }
}

/// Whether the folder exists through which a nameless file gets its name. Checked once: it comes with /proc, which some
/// containers lack.
fn names_descriptors() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(|| Path::new("/proc/self/fd").exists())
}

struct FileWriter {
    folder: Arc<FolderHandle>,
    name: OsString,
    partial: OsString,
    /// Whether the file has its partial name; otherwise it has none.
    has_name: bool,
    /// Bytes that were written, and those of them that are being flushed.
    written: u64,
    started: u64,
    /// Taken by `finish`; a file that is left when the writer is dropped is removed.
    file: Option<OwnedFd>,
}

impl Writer for FileWriter {
    fn write(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        let Some(file) = &self.file else { return Ok(()) };
        while !bytes.is_empty() {
            match rustix::io::write(file.as_fd(), bytes) {
                Ok(written) => {
                    bytes = &bytes[written..];
                    self.written += written as u64;
                }
                Err(Errno::INTR) => {}
                Err(cause) => return Err(self.folder.failed(Operation::Write, &self.name, cause)),
            }
        }
        if self.written - self.started >= FLUSH_BYTES {
            start_flushing(file, self.started, self.written);
            self.started = self.written;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), StoreError> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let has_own_name = !self.has_name && self.link(&file)?;
        let closed =
            held::close(file).map_err(|cause| self.folder.failed(Operation::Close, &self.name, cause));
        let outcome = match (closed, has_own_name) {
            (Ok(()), true) => Ok(()),
            (Ok(()), false) => self.folder.rename(&self.partial, &self.name),
            (Err(cause), _) => Err(cause),
        };
        if outcome.is_err() {
            self.discard(if has_own_name { &self.name } else { &self.partial });
        }
        outcome
    }
}

impl FileWriter {
    /// Gives a nameless file its name, or, if that is taken, its partial name, from which it can replace the existing
    /// file. Returns whether it has its own name now.
    fn link(&self, file: &OwnedFd) -> Result<bool, StoreError> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let link = |name: &OsStr| {
            rustix::fs::linkat(rustix::fs::CWD, &path, self.folder.fd(), name, AtFlags::SYMLINK_FOLLOW)
        };
        let error = |cause| self.folder.failed(Operation::Rename, &self.name, cause);
        match link(&self.name) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => {
                self.folder.reclaim(&self.partial)?;
                link(&self.partial).map(|()| false).map_err(error)
            }
            Err(cause) => Err(error(cause)),
        }
    }

    fn discard(&self, name: &OsStr) {
        // Best effort: the error that led here is the one to report, and the next attempt replaces a left-over.
        let _ = self.folder.remove(name);
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if self.file.take().is_some() && self.has_name {
            self.discard(&self.partial);
        }
    }
}

/// The longest part of a path that exists: where to query free space before a folder is created.
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

/// Bytes that an unprivileged process may still write at `path`, which need not exist yet.
pub fn free_bytes(path: &Path) -> Result<u64, StoreError> {
    let place = existing_ancestor(path);
    let stat = rustix::fs::statvfs(&place)
        .map_err(|cause| StoreError::io(Operation::FreeSpace, &place.display().to_string(), cause))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Folder) {
        let folder = tempfile::tempdir().unwrap();
        let store = Folder::open(folder.path()).unwrap();
        (folder, store)
    }

    #[test]
    fn an_unfinished_file_leaves_nothing() {
        let (folder, store) = store();
        let mut writer = Files::create(&store, &Name::new("a").unwrap()).unwrap();
        writer.write(b"half").unwrap();
        drop(writer);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_one_writer_at_a_time() {
        let (folder, store) = store();
        let (guard, other) = (Name::new("guard").unwrap(), Folder::open(folder.path()).unwrap());
        Files::lock(&store, &guard).unwrap();
        assert!(matches!(Files::lock(&other, &guard), Err(StoreError::Busy { .. })));
        drop(store);
        Files::lock(&other, &guard).unwrap();
    }

    #[test]
    fn only_own_leftovers_are_removed() {
        let (folder, store) = store();
        for name in ["img_0_of_2.npz.partial", "notes.partial", "img_1_of_2.npz"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        store.remove_leftovers(&Name::new(".").unwrap(), "img_", "_of_2.npz").unwrap();
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["img_1_of_2.npz", "notes.partial"]);
    }

    #[test]
    fn a_missing_root_is_named() {
        let error = Folder::open(Path::new("/no/such/place")).unwrap_err();
        assert_eq!(error.to_string(), "/no/such/place does not exist");
    }

    #[test]
    fn a_full_device_is_reported_as_full() {
        let error = StoreError::io(Operation::Write, "x", Errno::NOSPC);
        assert_eq!(error.to_string(), "no space left on the device while writing x");
    }
}
