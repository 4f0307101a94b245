//! The journal of a listing: one record per finished folder, appended to a file next to the catalog to be written. It
//! keeps memory use small, and an interrupted listing is resumed from it. A record that was torn by a crash is
//! truncated.
//!
//! The file: magic, identity (length u64, CRC-32, payload), then records of the same form. It is locked while in use.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use model::catalog::{Assembler, EncodedFolder, HEADER, path_order, put_varint, take_bytes, take_varint};
use rustix::fs::{FlockOperation, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;
use store::{FolderHandle, Listing, StoreError, modification_time};

use super::ScanError;

/// Changes with the format of the records; a journal of another format is restarted.
const MAGIC: [u8; 8] = *b"\x89FLJRN\x01\n";
/// Length of the part of the magic that all formats have in common.
const ANY_FORM: usize = 6;
/// Length and checksum before each payload.
const PREFIX: usize = 12;

/// What must be equal for a journal to be resumed: the same folder, listed by the same rules.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListingIdentity(Vec<u8>);

impl ListingIdentity {
    pub(super) fn of(
        listing: &dyn Listing,
        path: &Path,
        suffixes: &[Vec<u8>],
    ) -> Result<ListingIdentity, ScanError> {
        let mut bytes = listing.identity().map_err(|cause| ScanError::io("stat", path, cause))?;
        for suffix in suffixes {
            put_varint(&mut bytes, suffix.len() as u64);
            bytes.extend_from_slice(suffix);
        }
        Ok(ListingIdentity(bytes))
    }
}

/// A folder whose listing is complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FolderRecord {
    pub(super) path: Vec<u8>,
    pub(super) mtime_ns: i64,
    /// Names of the folders directly below it.
    pub(super) subfolders: Vec<Vec<u8>>,
    pub(super) folder: EncodedFolder,
}

/// Where a record is in the file, and the modification time that it is valid for.
#[derive(Clone, Copy, Debug)]
pub(super) struct FolderRecordPosition {
    pub(super) mtime_ns: i64,
    offset: u64,
    len: u64,
}

impl FolderRecord {
    /// The record as it is stored in the file.
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; PREFIX];
        self.put(&mut out);
        seal(&mut out);
        out
    }

    /// Appends its payload.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.path.len() as u64);
        out.extend_from_slice(&self.path);
        out.extend_from_slice(&self.mtime_ns.to_le_bytes());
        put_varint(out, self.subfolders.len() as u64);
        for name in &self.subfolders {
            put_varint(out, name.len() as u64);
            out.extend_from_slice(name);
        }
        put_varint(out, self.folder.files);
        put_varint(out, self.folder.bytes);
        put_varint(out, self.folder.blocks.len() as u64);
        self.folder.blocks.iter().for_each(|length| put_varint(out, u64::from(*length)));
        out.extend_from_slice(&self.folder.body);
    }

    pub(super) fn decode(mut bytes: &[u8]) -> Option<FolderRecord> {
        let rest = &mut bytes;
        let name = |rest: &mut &[u8]| -> Option<Vec<u8>> {
            let len = take_varint(rest)?;
            Some(take_bytes(rest, len)?.to_vec())
        };
        let path = name(rest)?;
        let mtime_ns = i64::from_le_bytes(take_bytes(rest, 8)?.try_into().ok()?);
        let subfolders = (0..take_varint(rest)?).map(|_| name(rest)).collect::<Option<_>>()?;
        let (files, bytes) = (take_varint(rest)?, take_varint(rest)?);
        let lengths = 0..take_varint(rest)?;
        let blocks = lengths.map(|_| take_varint(rest)?.try_into().ok()).collect::<Option<_>>()?;
        Some(FolderRecord {
            path,
            mtime_ns,
            subfolders,
            folder: EncodedFolder { files, bytes, blocks, body: rest.to_vec() },
        })
    }
}

/// Fills in length and checksum in front of a payload.
fn seal(out: &mut [u8]) {
    let (prefix, payload) = out.split_at_mut(PREFIX);
    prefix[..8].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    prefix[8..].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
}

/// An open journal. Threads append to it.
#[derive(Debug)]
pub(super) struct ListingJournal {
    file: File,
    folder: FolderHandle,
    name: OsString,
    path: PathBuf,
    /// When the listing began, on the file system's own clock.
    pub(super) begun_ns: i64,
    tail: Mutex<JournalTail>,
}

#[derive(Debug, Default)]
struct JournalTail {
    end: u64,
    /// The folders of this listing, each with the place of its record.
    folders: Vec<(Vec<u8>, FolderRecordPosition)>,
}

impl ListingJournal {
    /// Opens the journal of this name, restarted if it is not of this listing, and returns the folders that it has.
    pub(super) fn open(
        folder: FolderHandle,
        name: OsString,
        identity: &ListingIdentity,
    ) -> Result<(ListingJournal, HashMap<Vec<u8>, FolderRecordPosition>), ScanError> {
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
        let journal = ListingJournal { file, folder, name, path, begun_ns, tail: Mutex::default() };
        let finished = journal.resume(identity)?;
        Ok((journal, finished))
    }

    fn resume(
        &self,
        identity: &ListingIdentity,
    ) -> Result<HashMap<Vec<u8>, FolderRecordPosition>, ScanError> {
        let mut finished = HashMap::new();
        let mut magic = [0; MAGIC.len()];
        let begun = self.file.read_exact_at(&mut magic, 0).is_ok() && magic == MAGIC;
        let mut end = MAGIC.len() as u64;
        let length = self.file.metadata().map_err(|cause| self.failed("stat", cause))?.len();
        let same = begun && self.payload(&mut end, length).is_some_and(|payload| payload == identity.0);
        if same {
            let mut offset = end;
            while let Some(payload) = self.payload(&mut offset, length) {
                let Some(record) = FolderRecord::decode(&payload) else { break };
                let len = payload.len() as u64;
                finished.insert(
                    record.path,
                    FolderRecordPosition { mtime_ns: record.mtime_ns, offset: end, len },
                );
                end = offset;
            }
        } else {
            let mut first = vec![0; PREFIX];
            first.extend_from_slice(&identity.0);
            seal(&mut first);
            let first = [MAGIC.as_slice(), &first].concat();
            end = first.len() as u64;
            self.file.set_len(0).map_err(|cause| self.failed("empty", cause))?;
            self.file.write_all_at(&first, 0).map_err(|cause| self.failed("write", cause))?;
        }
        self.file.set_len(end).map_err(|cause| self.failed("cut", cause))?;
        self.tail().end = end;
        Ok(finished)
    }

    /// The payload that begins at `at`, which is moved past it; `None` if it is not complete.
    fn payload(&self, at: &mut u64, length: u64) -> Option<Vec<u8>> {
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

    /// Reads a record again. No other process writes to the file, so the record must exist.
    pub(super) fn read(&self, finished: FolderRecordPosition) -> Result<FolderRecord, ScanError> {
        let mut at = finished.offset;
        let length = finished.offset + PREFIX as u64 + finished.len;
        let record = self.payload(&mut at, length).and_then(|payload| FolderRecord::decode(&payload));
        record.ok_or_else(|| self.failed("read", std::io::Error::other("a record is damaged")))
    }

    /// Adds a folder that was listed now.
    pub(super) fn append(&self, record: FolderRecord) -> Result<(), ScanError> {
        let bytes = record.encode();
        let mut tail = self.tail();
        let offset = tail.end;
        self.file.write_all_at(&bytes, offset).map_err(|cause| self.failed("write", cause))?;
        tail.end = offset + bytes.len() as u64;
        let len = (bytes.len() - PREFIX) as u64;
        tail.folders.push((record.path, FolderRecordPosition { mtime_ns: record.mtime_ns, offset, len }));
        Ok(())
    }

    /// Takes over a folder whose record is there already.
    pub(super) fn keep(&self, path: Vec<u8>, finished: FolderRecordPosition) {
        self.tail().folders.push((path, finished));
    }

    /// Writes the catalog of all folders of this listing to a new file next to the journal and flushes it.
    pub(super) fn assemble(&self, suffixes: &[Vec<u8>], name: &OsStr) -> Result<(), ScanError> {
        let failed = |cause| ScanError::io("write", &self.folder.path().join(name), cause);
        let mut folders = std::mem::take(&mut self.tail().folders);
        folders.sort_unstable_by(|(a, _), (b, _)| path_order(a, b));
        let file = self.folder.create_temporary(name)?;
        let mut out = BufWriter::with_capacity(1 << 18, &file);
        out.write_all(&[0; HEADER as usize]).map_err(failed)?;
        let mut assembler = Assembler::new(suffixes);
        for (path, finished) in folders {
            let record = self.read(finished)?;
            assembler
                .push(&path, record.mtime_ns, &record.folder)
                .map_err(|error| ScanError::Build { path: self.path.clone(), error })?;
            out.write_all(&record.folder.body).map_err(failed)?;
        }
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

    fn tail(&self) -> std::sync::MutexGuard<'_, JournalTail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, operation: &'static str, cause: std::io::Error) -> ScanError {
        ScanError::io(operation, &self.path, cause)
    }
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

#[cfg(test)]
mod tests {
    use model::catalog::FolderEncoder;

    use super::*;

    fn record(path: &str, files: u64) -> FolderRecord {
        let mut encoder = FolderEncoder::new();
        (0..files).for_each(|i| encoder.push(format!("{i:06}").as_bytes(), i).unwrap());
        let subfolders = vec![b"x".to_vec(), b"\xff".to_vec()];
        FolderRecord { path: path.into(), mtime_ns: -5, subfolders, folder: encoder.finish() }
    }

    fn try_open(
        path: &Path,
        identity: &[u8],
    ) -> Result<(ListingJournal, HashMap<Vec<u8>, FolderRecordPosition>), ScanError> {
        let folder = FolderHandle::open(path.parent().unwrap()).unwrap();
        ListingJournal::open(
            folder,
            path.file_name().unwrap().to_owned(),
            &ListingIdentity(identity.to_vec()),
        )
    }

    fn open(path: &Path, identity: &[u8]) -> (ListingJournal, HashMap<Vec<u8>, FolderRecordPosition>) {
        try_open(path, identity).unwrap()
    }

    #[test]
    fn records_are_read_back_and_a_torn_one_is_truncated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let (journal, finished) = open(&path, b"id");
        assert!(finished.is_empty());
        journal.append(record("a", 100)).unwrap();
        journal.append(record("b", 0)).unwrap();
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        let (journal, finished) = open(&path, b"id");
        assert_eq!(journal.read(finished[b"a".as_slice()]).unwrap(), record("a", 100));
        assert_eq!(journal.read(finished[b"b".as_slice()]).unwrap(), record("b", 0));
        let end_of_a = journal.read(finished[b"a".as_slice()]).unwrap().encode().len();
        drop(journal);
        for cut in (whole.len() - 20)..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (journal, finished) = open(&path, b"id");
            assert_eq!(finished.len(), 1, "cut at {cut}");
            let kept = std::fs::read(&path).unwrap();
            assert_eq!(kept, whole[..kept.len()]);
            assert!(kept.len() > end_of_a);
            journal.append(record("c", 3)).unwrap();
            drop(journal);
            assert_eq!(open(&path, b"id").1.len(), 2);
        }
    }

    #[test]
    fn a_journal_of_another_listing_is_restarted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let (journal, _) = open(&path, b"id");
        journal.append(record("a", 10)).unwrap();
        drop(journal);
        assert!(open(&path, b"other").1.is_empty());
        assert!(open(&path, b"id").1.is_empty());
        std::fs::write(&path, [&MAGIC[..ANY_FORM], b"\x02 of another version"].concat()).unwrap();
        assert!(open(&path, b"id").1.is_empty());
        for never_flushed in [&[][..], &[0; 64]] {
            std::fs::write(&path, never_flushed).unwrap();
            assert!(open(&path, b"id").1.is_empty());
        }
    }

    #[test]
    fn a_file_that_is_not_a_journal_is_not_truncated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        std::fs::write(&path, b"garbage of any kind").unwrap();
        let error = try_open(&path, b"id").unwrap_err().to_string();
        assert!(error.contains("feedline does not replace or remove"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"garbage of any kind");
    }

    #[test]
    fn two_listings_at_once_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let (_journal, _) = open(&path, b"id");
        let second = try_open(&path, b"id");
        assert!(matches!(second, Err(ScanError::Busy(_))));
    }
}
