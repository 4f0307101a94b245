//! The only place where feedline creates, replaces and removes files and folders. Everything goes through a folder that
//! is held open (`FolderHandle`). The path that a user gave is followed, including links. Below it no symbolic link is
//! followed: names are resolved from the descriptor, so a folder that is meanwhile swapped for a link cannot redirect
//! anything.
//!
//! A file is created only under a free name. Only a regular file is replaced, and only one of the right owner is
//! removed; callers know the names and sizes of their files. Temporary names are reserved for feedline: a left-over of
//! an interrupted run is removed if it has no other name, and anything else is an error.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use model::names::Name;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::folder::existing_ancestor;
use crate::{Operation, StoreError};

/// The suffix of a file that is being written. The name is reserved for feedline.
pub const PARTIAL: &str = ".partial";

const FOLDER_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
pub(crate) const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o777);

/// A folder that is held open. Names of files are relative to this folder, without slashes.
#[derive(Debug)]
pub struct FolderHandle {
    fd: OwnedFd,
    path: PathBuf,
}

impl FolderHandle {
    /// Holds the folder at a path that a user gave: links in it are followed.
    pub fn open(path: &Path) -> Result<FolderHandle, StoreError> {
        let place = if path == Path::new("") { Path::new(".") } else { path };
        let fd = rustix::fs::open(place, FOLDER_FLAGS, Mode::empty())
            .map_err(|cause| StoreError::io(Operation::Open, &place.display().to_string(), cause))?;
        Ok(FolderHandle { fd, path: path.to_owned() })
    }

    /// Holds a folder below this one, at a path of one or more names, none of which may be a link.
    pub fn below(&self, folder: impl AsRef<Path>) -> Result<FolderHandle, StoreError> {
        let folder = folder.as_ref();
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let fd = match rustix::fs::openat2(&self.fd, folder, FOLDER_FLAGS, Mode::empty(), resolve) {
            Ok(fd) => fd,
            // Old kernels and some containers do not support this call. For any other error, the walk names the cause.
            Err(_) => self.walk(folder)?,
        };
        let path = if folder == Path::new(".") { self.path.clone() } else { self.path.join(folder) };
        Ok(FolderHandle { fd, path })
    }

    /// Holds the folder of something below this one, and returns its name there.
    pub(crate) fn parent_of<'a>(
        &self,
        name: &'a Name,
        operation: Operation,
    ) -> Result<(FolderHandle, &'a OsStr), StoreError> {
        let (folder, last) = split(name);
        match self.below(folder) {
            Err(StoreError::Missing { .. }) => Err(self.failed(operation, path(name), Errno::NOENT)),
            held => Ok((held?, last)),
        }
    }

    /// Like `below`, one name at a time. The error names the component that is in the way.
    fn walk(&self, folder: &Path) -> Result<OwnedFd, StoreError> {
        let open = |parent: BorrowedFd<'_>, name: &OsStr| {
            rustix::fs::openat(parent, name, FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty())
        };
        let error = |at: &Path, cause| StoreError::io(Operation::Open, &self.shown(at), cause);
        let mut fd = open(self.fd.as_fd(), OsStr::new(".")).map_err(|cause| error(Path::new("."), cause))?;
        let mut at = PathBuf::new();
        for part in folder.components() {
            let name = match part {
                Component::CurDir => continue,
                Component::Normal(name) => name,
                _ => return Err(error(folder, Errno::INVAL)),
            };
            at.push(name);
            fd = match (open(fd.as_fd(), name), stat(fd.as_fd(), name)) {
                (Ok(next), _) => next,
                (Err(Errno::LOOP | Errno::NOTDIR), Ok(there)) => return Err(self.not_ours(&at, &there)),
                (Err(cause), _) => return Err(error(&at, cause)),
            };
        }
        Ok(fd)
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The full path of something in this folder, for messages.
    pub fn shown(&self, name: impl AsRef<Path>) -> String {
        self.path.join(name).display().to_string()
    }

    pub(crate) fn failed(&self, operation: Operation, name: impl AsRef<Path>, cause: Errno) -> StoreError {
        StoreError::io(operation, &self.shown(name), cause)
    }

    fn not_ours(&self, name: impl AsRef<Path>, there: &Stat) -> StoreError {
        StoreError::NotOurs { name: self.shown(name), what: describe(there) }
    }

    /// The metadata of this name, if it exists; links are not followed.
    pub(crate) fn look(&self, name: &(impl AsRef<Path> + ?Sized)) -> Result<Option<Stat>, StoreError> {
        let name = name.as_ref();
        match stat(self.fd(), name.as_os_str()) {
            Ok(there) => Ok(Some(there)),
            Err(Errno::NOENT) => Ok(None),
            Err(cause) => Err(self.failed(Operation::Stat, name, cause)),
        }
    }

    /// Creates a folder in this one; returns whether it was missing. An existing folder is fine, a link to one is not.
    pub fn make_folder(&self, name: impl AsRef<Path>) -> Result<bool, StoreError> {
        let name = name.as_ref();
        match rustix::fs::mkdirat(&self.fd, name, FOLDER_MODE) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => self.below(name).map(|_| false),
            Err(cause) => Err(self.failed(Operation::MakeFolder, name, cause)),
        }
    }

    /// Creates a file under a free name.
    pub(crate) fn create_new(&self, name: &OsStr, more: OFlags) -> Result<OwnedFd, StoreError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.fd, name, flags | more, FILE_MODE).map_err(|cause| {
            match (cause, self.look(name)) {
                (Errno::EXIST, Ok(Some(there))) => self.not_ours(name, &there),
                _ => self.failed(Operation::Create, name, cause),
            }
        })
    }

    /// Creates a file that the user asked for, under a free name.
    pub fn create_file(&self, name: impl AsRef<Path>) -> Result<File, StoreError> {
        self.create_new(name.as_ref().as_os_str(), OFlags::empty()).map(File::from)
    }

    /// Creates a file under a name that is reserved for feedline.
    pub fn create_temporary(&self, name: impl AsRef<Path>) -> Result<File, StoreError> {
        let name = name.as_ref().as_os_str();
        self.reclaim(name)?;
        self.create_new(name, OFlags::empty()).map(File::from)
    }

    /// Removes what an interrupted run left under a name that is reserved for feedline. Anything else is an error.
    pub fn reclaim(&self, name: impl AsRef<Path>) -> Result<(), StoreError> {
        let name = name.as_ref();
        match self.look(name)? {
            None => Ok(()),
            Some(there) if self.is_own_file(&there) && there.st_nlink == 1 => self.unlink(name),
            Some(there) => Err(self.not_ours(name, &there)),
        }
    }

    /// Whether this is a regular file of this user or of the owner of the folder: on a network file system new files
    /// may belong to another user than the one that creates them.
    fn is_own_file(&self, there: &Stat) -> bool {
        let user = rustix::process::geteuid().as_raw();
        let of_the_folder = || rustix::fs::fstat(&self.fd).is_ok_and(|folder| folder.st_uid == there.st_uid);
        is_file(there) && (there.st_uid == user || of_the_folder())
    }

    fn unlink(&self, name: &Path) -> Result<(), StoreError> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(cause) => Err(self.failed(Operation::Remove, name, cause)),
        }
    }

    /// Opens a file that is kept from run to run and written in place, or creates it. It must be a regular file without
    /// another name, under which the changes would show, too. The caller checks its content.
    pub fn open_or_create(&self, name: impl AsRef<Path>, append: bool) -> Result<File, StoreError> {
        let name = name.as_ref();
        let more = if append { OFlags::APPEND } else { OFlags::empty() };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.fd, name, flags | more, FILE_MODE);
        let file = match (opened, self.look(name)?) {
            (Ok(file), _) => file,
            (Err(_), Some(there)) if !is_file(&there) => return Err(self.not_ours(name, &there)),
            (Err(cause), _) => return Err(self.failed(Operation::Create, name, cause)),
        };
        let facts = rustix::fs::fstat(&file).map_err(|cause| self.failed(Operation::Stat, name, cause))?;
        if is_file(&facts) && facts.st_nlink <= 1 {
            return Ok(File::from(file));
        }
        Err(self.not_ours(name, &facts))
    }

    /// Whether this name refers to the open file.
    pub fn is_named(&self, name: impl AsRef<Path>, file: impl AsFd) -> bool {
        let facts = rustix::fs::fstat(file);
        let there = stat(self.fd(), name.as_ref().as_os_str());
        matches!((facts, there), (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
    }

    /// Refuses a name that is in use.
    pub fn check_free(&self, name: impl AsRef<Path>) -> Result<(), StoreError> {
        self.look(&name)?.map_or(Ok(()), |there| Err(self.not_ours(name, &there)))
    }

    /// Refuses a name of something that a regular file must not replace.
    pub fn check_replaceable(&self, name: impl AsRef<Path>) -> Result<(), StoreError> {
        match self.look(&name)? {
            Some(there) if !is_file(&there) => Err(self.not_ours(name, &there)),
            _ => Ok(()),
        }
    }

    /// Renames something within this folder. A regular file may replace a regular file, and a folder may replace an
    /// empty one.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), StoreError> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let kind = |there: &Stat| FileType::from_raw_mode(there.st_mode);
        let moved = self.look(from)?.ok_or_else(|| self.failed(Operation::Rename, from, Errno::NOENT))?;
        if let Some(there) = self.look(to)?
            && (kind(&there) != kind(&moved)
                || !matches!(kind(&there), FileType::RegularFile | FileType::Directory))
        {
            return Err(self.not_ours(to, &there));
        }
        rustix::fs::renameat(&self.fd, from, &self.fd, to)
            .map_err(|cause| self.failed(Operation::Rename, from, cause))
    }

    /// Renames something within this folder, unless the new name is in use. Returns whether it was free.
    fn rename_to_free(&self, from: &OsStr, to: &OsStr) -> Result<bool, StoreError> {
        match rustix::fs::renameat_with(&self.fd, from, &self.fd, to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            // Not every file system can do both in one step.
            Err(Errno::INVAL | Errno::NOSYS) if self.look(to)?.is_none() => {
                self.rename(from, to).map(|()| true)
            }
            Err(Errno::INVAL | Errno::NOSYS) => Ok(false),
            Err(cause) => Err(self.failed(Operation::Rename, from, cause)),
        }
    }

    /// Writes a small file so that after a power failure at any moment it exists with all its bytes, or not at all.
    pub fn put(&self, name: impl AsRef<Path>, bytes: &[u8]) -> Result<(), StoreError> {
        let name = name.as_ref();
        let partial = partial(name.as_os_str());
        let file = OwnedFd::from(self.create_temporary(&partial)?);
        let written = write_all(&file, bytes, 0)
            .map_err(|cause| (Operation::Write, cause))
            .and_then(|()| rustix::fs::fsync(&file).map_err(|cause| (Operation::Sync, cause)))
            .and_then(|()| close(file).map_err(|cause| (Operation::Close, cause)))
            .map_err(|(operation, cause)| self.failed(operation, name, cause));
        let outcome = written.and_then(|()| self.rename(&partial, name)).and_then(|()| self.sync());
        if outcome.is_err() {
            // Best effort: the first error is the one to report.
            let _ = self.remove(&partial);
        }
        outcome
    }

    /// Removes a regular file of feedline. Anything else of that name stays.
    pub fn remove(&self, name: impl AsRef<Path>) -> Result<(), StoreError> {
        let name = name.as_ref();
        let reserved = name.as_os_str().as_bytes().ends_with(PARTIAL.as_bytes());
        match self.look(name)? {
            Some(there) if self.is_own_file(&there) && !(reserved && there.st_nlink > 1) => self.unlink(name),
            _ => Ok(()),
        }
    }

    /// Removes an empty folder. One that is not empty, and anything else of that name, stays.
    pub fn remove_folder(&self, name: impl AsRef<Path>) -> Result<(), StoreError> {
        let name = name.as_ref();
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(()),
            Err(cause) => Err(self.failed(Operation::Remove, name, cause)),
        }
    }

    /// Whether another folder is on the same file system.
    pub(crate) fn is_beside(&self, other: &FolderHandle) -> bool {
        let device = |held: &FolderHandle| rustix::fs::fstat(&held.fd).map(|facts| facts.st_dev);
        device(self) == device(other)
    }

    /// Flushes everything on the file system of this folder.
    pub(crate) fn sync_file_system(&self) -> Result<(), StoreError> {
        rustix::fs::syncfs(&self.fd).map_err(|cause| self.failed(Operation::Sync, "", cause))
    }

    /// Keeps other processes that lock this folder out, as long as it is held.
    pub fn lock(&self) -> Result<(), StoreError> {
        self.lock_by(FlockOperation::NonBlockingLockExclusive)
    }

    pub(crate) fn lock_by(&self, operation: FlockOperation) -> Result<(), StoreError> {
        match rustix::fs::flock(&self.fd, operation) {
            Err(Errno::WOULDBLOCK) => Err(StoreError::Busy { name: self.path().display().to_string() }),
            // On a file system without locks, other processes are not kept out.
            Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(cause) => Err(self.failed(Operation::Lock, ".", cause)),
        }
    }

    /// Flushes the names in this folder.
    pub fn sync(&self) -> Result<(), StoreError> {
        match rustix::fs::fsync(&self.fd) {
            // File systems that cannot flush a folder return this.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(cause) => Err(self.failed(Operation::Sync, "", cause)),
        }
    }
}

/// A folder that this process created, and the files that it has created in it. It is held open, so that `undo` applies
/// to this folder, whatever has its name by then.
#[derive(Debug)]
pub struct CreatedFolder {
    parent: FolderHandle,
    name: OsString,
    folder: FolderHandle,
    files: Mutex<Vec<OsString>>,
}

impl CreatedFolder {
    /// Creates a folder of this name; `None` if the name is in use.
    pub fn new(parent: &FolderHandle, name: impl AsRef<Path>) -> Result<Option<CreatedFolder>, StoreError> {
        let name = name.as_ref();
        match rustix::fs::mkdirat(parent.fd(), name, FOLDER_MODE) {
            Err(Errno::EXIST) => return Ok(None),
            made => made.map_err(|cause| parent.failed(Operation::MakeFolder, name, cause))?,
        }
        let (parent, folder) = (parent.below(".")?, parent.below(name)?);
        Ok(Some(CreatedFolder { parent, name: name.as_os_str().to_owned(), folder, files: Mutex::default() }))
    }

    pub fn folder(&self) -> &FolderHandle {
        &self.folder
    }

    /// Creates a file in it.
    pub fn create(&self, name: &str) -> Result<File, StoreError> {
        let file = self.folder.create_new(OsStr::new(name), OFlags::empty())?;
        self.files.lock().unwrap_or_else(PoisonError::into_inner).push(name.into());
        Ok(File::from(file))
    }

    /// Gives the folder its final name, unless that is in use, and flushes it. Returns whether it was free. Afterwards
    /// `undo` does nothing.
    pub fn publish(&self, name: &str) -> Result<bool, StoreError> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.parent.rename_to_free(&self.name, OsStr::new(name))? {
            return Ok(false);
        }
        files.clear();
        drop(files);
        self.parent.sync().map(|()| true)
    }

    /// Removes the files that were created, and the folder if it is empty then. Best effort, and without waiting for a
    /// thread that is about to publish it.
    pub fn undo(&self) {
        let Ok(mut files) = self.files.try_lock() else { return };
        for file in files.drain(..) {
            let _ = self.folder.remove(&file);
        }
        let _ = self.parent.remove_folder(&self.name);
    }
}

/// Creates the missing folders of a path that a user gave, and flushes their names. Returns them, outermost first.
pub fn make_path(path: &Path) -> Result<Vec<CreatedFolder>, StoreError> {
    let there = existing_ancestor(path);
    let (mut folder, rest) = match path.strip_prefix(&there) {
        Ok(rest) => (FolderHandle::open(&there)?, rest),
        // No part of a relative path exists.
        Err(_) => (FolderHandle::open(Path::new(""))?, path),
    };
    let mut made = Vec::new();
    for part in rest.components() {
        folder = match part {
            Component::Normal(name) => {
                if let Some(new) = CreatedFolder::new(&folder, name)? {
                    folder.sync()?;
                    made.push(new);
                }
                folder.below(name)?
            }
            Component::ParentDir => FolderHandle::open(&folder.path.join(".."))?,
            _ => folder,
        };
    }
    Ok(made)
}

/// A file without a name in an existing folder. It disappears when it is no longer used.
pub fn unnamed_file(folder: &Path) -> Result<File, StoreError> {
    let held = FolderHandle::open(folder)?;
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    match rustix::fs::openat(&held.fd, ".", flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(File::from(file)),
        // Not every file system has such files; there, a name is removed as soon as the file exists.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
            let name =
                format!(".feedline-{}-{}", std::process::id(), UNNAMED.fetch_add(1, Ordering::Relaxed));
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&held.fd, &name, flags, Mode::RUSR | Mode::WUSR)
                .map_err(|cause| held.failed(Operation::Create, &name, cause))?;
            held.unlink(Path::new(&name))?;
            Ok(File::from(file))
        }
        Err(cause) => Err(held.failed(Operation::Create, "", cause)),
    }
}

/// Distinguishes files of this process that get a name for a moment.
static UNNAMED: AtomicU64 = AtomicU64::new(0);

/// A name as a path.
pub(crate) fn path(name: &Name) -> &Path {
    Path::new(OsStr::from_bytes(name.as_bytes()))
}

/// The folder of something, and its name there.
pub(crate) fn split(name: &Name) -> (&Path, &OsStr) {
    let path = path(name);
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    (folder, path.file_name().unwrap_or(path.as_os_str()))
}

/// The name of a file while it is being written.
pub(crate) fn partial(name: &OsStr) -> OsString {
    let mut partial = name.to_owned();
    partial.push(PARTIAL);
    partial
}

fn stat(folder: BorrowedFd<'_>, name: &OsStr) -> Result<Stat, Errno> {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
}

pub(crate) fn is_file(there: &Stat) -> bool {
    FileType::from_raw_mode(there.st_mode) == FileType::RegularFile
}

fn describe(there: &Stat) -> &'static str {
    match FileType::from_raw_mode(there.st_mode) {
        FileType::Symlink => "a symbolic link",
        FileType::Directory => "a folder",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::RegularFile if there.st_nlink > 1 => "a file with a second name (hard link)",
        FileType::RegularFile => "a file",
        _ => "a device",
    }
}

pub(crate) fn write_all(file: &OwnedFd, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
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

/// Closes a file that was written to and reports the result: network file systems report lost data here.
pub(crate) fn close(file: OwnedFd) -> Result<(), Errno> {
    // SAFETY: the descriptor is owned and consumed here, so it is closed once and not used afterwards.
    unsafe { rustix::io::try_close(rustix::fd::IntoRawFd::into_raw_fd(file)) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder of feedline's, and a foreign one with a file in it.
    fn two() -> (tempfile::TempDir, FolderHandle, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let theirs = place.path().join("theirs");
        std::fs::create_dir(place.path().join("ours")).unwrap();
        std::fs::create_dir(&theirs).unwrap();
        std::fs::write(theirs.join("file"), "theirs").unwrap();
        let ours = FolderHandle::open(&place.path().join("ours")).unwrap();
        (place, ours, theirs)
    }

    #[test]
    fn links_are_not_followed_but_named() {
        let (_place, ours, theirs) = two();
        ours.make_folder("a").unwrap();
        symlink(&theirs, ours.path().join("a/link")).unwrap();
        std::fs::create_dir(theirs.join("b")).unwrap();
        for (folder, named) in [("a/link", "a/link"), ("a/link/b", "a/link"), ("a/./link", "a/link")] {
            let error = ours.below(folder).unwrap_err();
            assert!(matches!(&error, StoreError::NotOurs { what: "a symbolic link", .. }), "{error}");
            assert!(error.to_string().contains(&format!("{named} is")), "{error}");
            // The fallback for kernels without openat2 gives the same answer.
            assert_eq!(ours.walk(Path::new(folder)).unwrap_err(), error);
        }
        assert!(ours.below("../theirs").is_err() && ours.walk(Path::new("../theirs")).is_err());
        assert!(matches!(ours.below("a/none"), Err(StoreError::Missing { .. })));
        assert!(ours.walk(Path::new("a")).is_ok());
        assert!(ours.below("a").unwrap().make_folder("link").is_err());
    }

    #[test]
    fn a_folder_that_is_swapped_for_a_link_redirects_nothing() {
        let (_place, ours, theirs) = two();
        ours.make_folder("a").unwrap();
        let held = ours.below("a").unwrap();
        held.put("file", b"ours").unwrap();
        std::fs::rename(ours.path().join("a"), ours.path().join("away")).unwrap();
        symlink(&theirs, ours.path().join("a")).unwrap();
        held.remove("file").unwrap();
        assert!(!ours.path().join("away/file").exists());
        held.put("other", b"ours").unwrap();
        assert!(ours.path().join("away/other").exists());
        assert_eq!(std::fs::read_dir(&theirs).unwrap().count(), 1);
    }

    #[test]
    fn only_own_leftovers_are_removed_from_reserved_names() {
        let (_place, ours, theirs) = two();
        let at = |name: &str| ours.path().join(name);
        std::fs::write(at("left.partial"), "half").unwrap();
        ours.put("left", b"whole").unwrap();
        ours.put("left", b"again").unwrap();
        assert_eq!(std::fs::read(at("left")).unwrap(), b"again");
        symlink(theirs.join("file"), at("link.partial")).unwrap();
        symlink(theirs.join("new"), at("nowhere.partial")).unwrap();
        std::fs::hard_link(theirs.join("file"), at("hard.partial")).unwrap();
        std::fs::create_dir(at("folder.partial")).unwrap();
        for name in ["link", "nowhere", "hard", "folder"] {
            let error = ours.put(name, b"ours").unwrap_err();
            assert!(matches!(error, StoreError::NotOurs { .. }), "{error}");
            assert!(at(&format!("{name}.partial")).symlink_metadata().is_ok() && !at(name).exists());
        }
        assert_eq!(std::fs::read(theirs.join("file")).unwrap(), b"theirs");
        assert!(!theirs.join("new").exists());
    }

    #[test]
    fn a_file_replaces_only_a_regular_file() {
        let (_place, ours, theirs) = two();
        symlink(theirs.join("file"), ours.path().join("link")).unwrap();
        ours.make_folder("folder").unwrap();
        for name in ["link", "folder"] {
            assert!(matches!(ours.put(name, b"ours"), Err(StoreError::NotOurs { .. })));
            assert!(ours.open_or_create(name, false).is_err());
            ours.remove(name).unwrap();
            assert!(ours.path().join(name).exists(), "{name} stays");
        }
        std::fs::hard_link(theirs.join("file"), ours.path().join("hard")).unwrap();
        let error = ours.open_or_create("hard", true).unwrap_err().to_string();
        assert!(error.contains("hard link"), "{error}");
        assert!(ours.open_or_create("new", true).is_ok());
        assert_eq!(std::fs::read(theirs.join("file")).unwrap(), b"theirs");
        assert_eq!(std::fs::read_dir(ours.path()).unwrap().count(), 4, "no temporary file is left");
    }

    #[test]
    fn a_created_folder_is_undone_until_it_is_published() {
        let (_place, ours, _) = two();
        let made = CreatedFolder::new(&ours, "draft").unwrap().unwrap();
        assert!(CreatedFolder::new(&ours, "draft").unwrap().is_none());
        made.create("a").unwrap();
        assert!(made.create("a").is_err());
        made.undo();
        assert!(!ours.path().join("draft").exists());
        let made = CreatedFolder::new(&ours, "draft").unwrap().unwrap();
        made.create("a").unwrap();
        std::fs::create_dir(ours.path().join("taken")).unwrap();
        assert!(!made.publish("taken").unwrap());
        assert!(made.publish("free").unwrap());
        made.undo();
        assert!(ours.path().join("free/a").exists());
    }

    #[test]
    fn a_file_without_a_name_leaves_nothing() {
        use std::io::{Read, Seek, Write};

        let place = tempfile::tempdir().unwrap();
        let mut file = unnamed_file(place.path()).unwrap();
        file.write_all(b"bytes").unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), std::fs::read_dir(place.path()).unwrap().count()), ("bytes", 0));
        let error = unnamed_file(&place.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("none does not exist"), "{error}");
    }

    #[test]
    fn missing_folders_of_a_path_are_created_and_undone() {
        let (place, _, _) = two();
        let made = make_path(&place.path().join("x/y/../z")).unwrap();
        assert!(place.path().join("x/z").is_dir() && place.path().join("x/y").is_dir());
        assert_eq!(made.len(), 3);
        made.iter().rev().for_each(CreatedFolder::undo);
        assert!(!place.path().join("x").exists());
        assert!(make_path(place.path()).unwrap().is_empty());
    }
}
