//! The journal of a folder listing: one record per finished folder, appended to a file next to the catalog to be
//! written. It keeps memory use small, and an interrupted listing is resumed from it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Mutex, PoisonError};

use model::catalog::{Assembler, EncodedFolder, path_order, put_varint, take_bytes, take_varint};
use store::FolderHandle;

use super::ScanError;
use super::journal_file::{JournalFile, ListingIdentity, PayloadPosition, payload, put_folder, take_folder};

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
    position: PayloadPosition,
}

impl FolderRecord {
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
        put_folder(out, &self.folder);
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
        let folder = take_folder(rest, false)?;
        rest.is_empty().then_some(FolderRecord { path, mtime_ns, subfolders, folder })
    }
}

/// An open journal. Threads append to it.
#[derive(Debug)]
pub(super) struct ListingJournal {
    pub(super) file: JournalFile,
    /// The folders of this listing, each with the place of its record.
    folders: Mutex<Vec<(Vec<u8>, FolderRecordPosition)>>,
}

impl ListingJournal {
    /// Opens the journal of this name, restarted if it is not of this listing or if a `fresh` one is wanted, and
    /// returns the folders that it has.
    pub(super) fn open(
        folder: FolderHandle,
        name: OsString,
        identity: &ListingIdentity,
        fresh: bool,
    ) -> Result<(ListingJournal, HashMap<Vec<u8>, FolderRecordPosition>), ScanError> {
        let mut finished = HashMap::new();
        let file = JournalFile::open(folder, name, identity, &mut |position, payload| {
            let Some(record) = FolderRecord::decode(payload).filter(|_| !fresh) else { return false };
            let mtime_ns = record.mtime_ns;
            finished.insert(record.path, FolderRecordPosition { mtime_ns, position });
            true
        })?;
        Ok((ListingJournal { file, folders: Mutex::default() }, finished))
    }

    /// Reads a record again.
    pub(super) fn read(&self, finished: FolderRecordPosition) -> Result<FolderRecord, ScanError> {
        FolderRecord::decode(&self.file.read(finished.position)?).ok_or_else(|| self.file.damaged())
    }

    /// Adds a folder that was listed now.
    pub(super) fn append(&self, record: FolderRecord) -> Result<(), ScanError> {
        let mut bytes = payload();
        record.put(&mut bytes);
        let position = self.file.append(bytes)?;
        self.keep(record.path, FolderRecordPosition { mtime_ns: record.mtime_ns, position });
        Ok(())
    }

    /// Takes over a folder whose record is there already.
    pub(super) fn keep(&self, path: Vec<u8>, finished: FolderRecordPosition) {
        self.folders().push((path, finished));
    }

    /// Writes the catalog of all folders of this listing to a new file next to the journal and flushes it.
    pub(super) fn assemble(&self, suffixes: &[Vec<u8>], name: &OsStr) -> Result<(), ScanError> {
        let mut folders = std::mem::take(&mut *self.folders());
        folders.sort_unstable_by(|(a, _), (b, _)| path_order(a, b));
        self.file.write_catalog(name, Assembler::new(suffixes), |sink| {
            folders.into_iter().try_for_each(|(path, finished)| {
                let record = self.read(finished)?;
                sink.push(&path, record.mtime_ns, &record.folder)
            })
        })
    }

    fn folders(&self) -> std::sync::MutexGuard<'_, Vec<(Vec<u8>, FolderRecordPosition)>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
            &ListingIdentity::of_bytes(identity),
            false,
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
        let end_of_a = {
            let mut payload = Vec::new();
            journal.read(finished[b"a".as_slice()]).unwrap().put(&mut payload);
            payload.len()
        };
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
        std::fs::write(&path, b"\x89FLJRN\x02 of another version").unwrap();
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
