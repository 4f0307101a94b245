//! The file of a journal: an identity and records, each with its length and checksum, appended as a listing proceeds. A
//! record that was torn by a crash is truncated. What the records hold is up to `journal` and `key_journal`.
//!
//! The file: magic, identity (length u64, CRC-32, payload), then records of the same form. It is locked while in use.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use model::catalog::{Assembler, EncodedFolder, HEADER, put_varint, take_bytes, take_varint};
use rustix::fs::{FlockOperation, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;
use store::{FolderHandle, StoreError, modification_time};

use super::ScanError;

/// Changes with the format of the records; a journal of another format is restarted.
const MAGIC: [u8; 8] = *b"\x89FLJRN\x01\n";
/// Length of the part of the magic that all formats have in common.
const ANY_FORM: usize = 6;
/// Length and checksum before each payload.
pub(super) const PREFIX: usize = 12;

/// What must be equal for a journal to be resumed: the same place, listed by the same rules.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListingIdentity(Vec<u8>);

impl ListingIdentity {
    /// `place` identifies what is listed.
    pub(super) fn new(place: Vec<u8>, suffixes: &[Vec<u8>]) -> ListingIdentity {
        let mut bytes = place;
        for suffix in suffixes {
            put_varint(&mut bytes, suffix.len() as u64);
            bytes.extend_from_slice(suffix);
        }
        ListingIdentity(bytes)
    }

    #[cfg(test)]
    pub(super) fn of_bytes(bytes: &[u8]) -> ListingIdentity {
        ListingIdentity(bytes.to_vec())
    }
}

/// Where a payload is in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct PayloadPosition {
    /// Of its length and checksum, which are before it.
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl PayloadPosition {
    /// The offset of the payload itself.
    pub(super) fn start(self) -> u64 {
        self.offset + PREFIX as u64
    }
}

/// An open journal. Threads append to it.
#[derive(Debug)]
pub(super) struct JournalFile {
    file: File,
    folder: FolderHandle,
    name: OsString,
    path: PathBuf,
    /// When the listing began, on the file system's own clock.
    pub(super) begun_ns: i64,
    end: Mutex<u64>,
}

/// A payload to be written, after room for its length and checksum.
pub(super) fn payload() -> Vec<u8> {
    vec![0; PREFIX]
}

impl JournalFile {
    /// Opens the journal of this name, restarted if it is not of this listing. `each` is called with every payload that
    /// it has; the first one that it does not accept, and what follows, is removed.
    pub(super) fn open(
        folder: FolderHandle,
        name: OsString,
        identity: &ListingIdentity,
        each: &mut dyn FnMut(PayloadPosition, &[u8]) -> bool,
    ) -> Result<JournalFile, ScanError> {
        let path = folder.path().join(&name);
        let file = folder
            .open_or_create(&name, false)
            .map_err(|cause| ScanError::unwritable(folder.path(), cause))?;
        lock(&file, &path)?;
        // Another listing may have finished and removed the file before it was locked here.
        if !folder.is_named(&name, &file) {
            return Err(ScanError::Busy(path));
        }
        refuse_others(&file, &path)?;
        let begun_ns = touch(&file).map_err(|cause| ScanError::io("touch", &path, cause.into()))?;
        let journal = JournalFile { file, folder, name, path, begun_ns, end: Mutex::default() };
        journal.resume(identity, each)?;
        Ok(journal)
    }

    fn resume(
        &self,
        identity: &ListingIdentity,
        each: &mut dyn FnMut(PayloadPosition, &[u8]) -> bool,
    ) -> Result<(), ScanError> {
        let mut magic = [0; MAGIC.len()];
        let begun = self.file.read_exact_at(&mut magic, 0).is_ok() && magic == MAGIC;
        let mut end = MAGIC.len() as u64;
        let length = self.file.metadata().map_err(|cause| self.failed("stat", cause))?.len();
        let same = begun && self.payload_at(&mut end, length).is_some_and(|payload| payload == identity.0);
        if same {
            let mut offset = end;
            while let Some(payload) = self.payload_at(&mut offset, length) {
                if !each(PayloadPosition { offset: end, len: payload.len() as u64 }, &payload) {
                    break;
                }
                end = offset;
            }
        } else {
            let mut first = payload();
            first.extend_from_slice(&identity.0);
            seal(&mut first);
            let first = [MAGIC.as_slice(), &first].concat();
            end = first.len() as u64;
            self.file.set_len(0).map_err(|cause| self.failed("empty", cause))?;
            self.file.write_all_at(&first, 0).map_err(|cause| self.failed("write", cause))?;
        }
        self.file.set_len(end).map_err(|cause| self.failed("cut", cause))?;
        *self.end() = end;
        Ok(())
    }

    /// The payload that begins at `at`, which is moved past it; `None` if it is not complete.
    fn payload_at(&self, at: &mut u64, length: u64) -> Option<Vec<u8>> {
        let mut prefix = [0; PREFIX];
        self.file.read_exact_at(&mut prefix, *at).ok()?;
        let len = u64::from_le_bytes(*prefix.first_chunk()?);
        let start = *at + PREFIX as u64;
        let end = start.checked_add(len).filter(|end| *end <= length)?;
        let mut payload = vec![0; usize::try_from(len).ok()?];
        self.file.read_exact_at(&mut payload, start).ok()?;
        (crc32fast::hash(&payload).to_le_bytes() == prefix[8..]).then(|| {
            *at = end;
            payload
        })
    }

    /// Reads a payload again. No other process writes to the file, so it must exist.
    pub(super) fn read(&self, position: PayloadPosition) -> Result<Vec<u8>, ScanError> {
        let mut at = position.offset;
        self.payload_at(&mut at, position.start() + position.len).ok_or_else(|| self.damaged())
    }

    /// Reads bytes of a payload whose checksum need not be checked.
    pub(super) fn read_part(&self, offset: u64, len: usize) -> Result<Vec<u8>, ScanError> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, offset).map_err(|cause| self.failed("read", cause))?;
        Ok(bytes)
    }

    /// Appends a payload, which begins with room for its length and checksum.
    pub(super) fn append(&self, mut payload: Vec<u8>) -> Result<PayloadPosition, ScanError> {
        seal(&mut payload);
        let mut end = self.end();
        let offset = *end;
        self.file.write_all_at(&payload, offset).map_err(|cause| self.failed("write", cause))?;
        *end = offset + payload.len() as u64;
        Ok(PayloadPosition { offset, len: (payload.len() - PREFIX) as u64 })
    }

    /// Writes a catalog to a new file next to the journal and flushes it. `fill` adds the folders.
    pub(super) fn write_catalog(
        &self,
        name: &OsStr,
        assembler: Assembler,
        fill: impl FnOnce(&mut CatalogSink<'_>) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        let path = self.folder.path().join(name);
        let failed = |cause| ScanError::io("write", &path, cause);
        let file = self.folder.create_temporary(name)?;
        let mut out = BufWriter::with_capacity(1 << 18, &file);
        out.write_all(&[0; HEADER as usize]).map_err(failed)?;
        let mut sink = CatalogSink { assembler, out, path: &path, journal: &self.path };
        fill(&mut sink)?;
        let CatalogSink { assembler, mut out, .. } = sink;
        let frame = assembler.finish();
        out.write_all(&frame.tail).and_then(|()| out.flush()).map_err(failed)?;
        drop(out);
        file.write_all_at(&frame.header, 0).and_then(|()| file.sync_all()).map_err(failed)
    }

    /// Removes the file. Best effort: the next listing checks a journal that stays.
    pub(super) fn remove(&self) {
        if self.folder.is_named(&self.name, &self.file) {
            let _ = self.folder.remove(&self.name);
        }
    }

    fn end(&self) -> std::sync::MutexGuard<'_, u64> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, operation: &'static str, cause: std::io::Error) -> ScanError {
        ScanError::io(operation, &self.path, cause)
    }

    /// Its path.
    pub(super) fn shown(&self) -> PathBuf {
        self.path.clone()
    }

    /// The error for a record that is not what was written.
    pub(super) fn damaged(&self) -> ScanError {
        self.failed("read", std::io::Error::other("a record is damaged"))
    }
}

/// A catalog that is being written.
pub(super) struct CatalogSink<'a> {
    assembler: Assembler,
    out: BufWriter<&'a File>,
    path: &'a Path,
    journal: &'a Path,
}

impl CatalogSink<'_> {
    /// Adds a folder, in the catalog's order.
    pub(super) fn push(
        &mut self,
        path: &[u8],
        mtime_ns: i64,
        folder: &EncodedFolder,
    ) -> Result<(), ScanError> {
        self.assembler
            .push(path, mtime_ns, folder)
            .map_err(|error| ScanError::Build { path: self.journal.to_owned(), error })?;
        self.out.write_all(&folder.body).map_err(|cause| ScanError::io("write", self.path, cause))
    }
}

/// Appends the encoded files of a folder. The length of the body is the sum of the blocks' lengths.
pub(super) fn put_folder(out: &mut Vec<u8>, folder: &EncodedFolder) {
    put_varint(out, folder.files);
    put_varint(out, folder.bytes);
    put_varint(out, folder.blocks.len() as u64);
    folder.blocks.iter().for_each(|length| put_varint(out, u64::from(*length)));
    out.extend_from_slice(&folder.body);
}

/// Removes the encoded files of a folder from the front of `rest`.
pub(super) fn take_folder(rest: &mut &[u8], versioned: bool) -> Option<EncodedFolder> {
    let (files, bytes) = (take_varint(rest)?, take_varint(rest)?);
    let lengths = 0..take_varint(rest)?;
    let blocks = lengths.map(|_| take_varint(rest)?.try_into().ok()).collect::<Option<Vec<u32>>>()?;
    let length = blocks.iter().map(|length| u64::from(*length)).sum();
    Some(EncodedFolder { files, bytes, blocks, body: take_bytes(rest, length)?.to_vec(), versioned })
}

/// Fills in length and checksum in front of a payload.
fn seal(out: &mut [u8]) {
    let (prefix, payload) = out.split_at_mut(PREFIX);
    prefix[..8].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    prefix[8..].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
}

/// Sets the file's modification time to now and returns the time that the file system recorded.
fn touch(file: &File) -> Result<i64, Errno> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    rustix::fs::futimens(file, &Timestamps { last_access: now, last_modification: now })?;
    modification_time(file)
}

/// Prevents a second listing of the same folder at the same time.
fn lock(file: &File, path: &Path) -> Result<(), ScanError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        // Some network file systems have no locks; there the user has to avoid two listings at once.
        Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => {}
        Err(Errno::WOULDBLOCK) => return Err(ScanError::Busy(path.to_owned())),
        Err(cause) => return Err(ScanError::io("lock", path, cause.into())),
    }
    Ok(())
}

/// Refuses a file that is not a journal: it belongs to something else, and would be truncated.
fn refuse_others(file: &File, path: &Path) -> Result<(), ScanError> {
    let mut start = [0; ANY_FORM];
    let length = file.metadata().map_err(|cause| ScanError::io("stat", path, cause))?.len();
    match file.read_exact_at(&mut start, 0) {
        // After a power failure a file may have its length but none of its bytes.
        Ok(()) if start == MAGIC[..ANY_FORM] || start == [0; ANY_FORM] => Ok(()),
        _ if length == 0 => Ok(()),
        _ => Err(StoreError::NotOurs { name: path.display().to_string(), what: "a file" }.into()),
    }
}
