//! The journal of the listing of an object store. A record says which names were looked at, and holds those that are
//! objects of the data set. Records of ranges must cover all names, without overlap, before a catalog is written from
//! them; so must records of folders, where a service lists by folder only. Whether a listing is complete is decided
//! here and nowhere else.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::catalog::{
    Assembler, EncodedFolder, FolderEncoder, path_order, put_varint, take_bytes, take_varint,
};
use store::FolderHandle;

use super::ScanError;
use super::journal_file::{JournalFile, ListingIdentity, PayloadPosition, payload, put_folder, take_folder};

/// The names that a record is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeySpan {
    /// All names after the first one, up to and including the second; `None`: to the last.
    Range { after: String, upto: Option<String> },
    /// All names directly in a folder, which is empty or ends in a slash.
    Folder { path: String, subfolders: Vec<String> },
}

/// Names that were listed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KeyRecord {
    pub(super) span: KeySpan,
    /// Objects of the data set by folder.
    pub(super) runs: Vec<(String, EncodedFolder)>,
}

/// A run of files in the journal.
#[derive(Debug)]
struct KeyRunPosition {
    folder: String,
    offset: u64,
    len: usize,
}

/// A record in the journal.
#[derive(Debug)]
struct KeptSpan {
    span: KeySpan,
    runs: Vec<KeyRunPosition>,
    files: u64,
    bytes: u64,
}

/// An open journal. Threads append to it.
#[derive(Debug)]
pub(super) struct KeyJournal {
    pub(super) file: JournalFile,
    /// Whether it has ranges, and not folders.
    pub(super) by_range: bool,
    kept: Mutex<Vec<KeptSpan>>,
}

/// What an earlier listing left.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct EarlierKeys {
    /// Ranges that it did not look at, in order: the names after the first, up to the second.
    pub(super) gaps: Vec<(String, Option<String>)>,
    /// Folders that it did not look at.
    pub(super) folders: Vec<String>,
    /// Objects that it found, and the sum of their sizes.
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl KeyRecord {
    /// The record as a payload, and where each run is in it.
    fn encode(&self) -> (Vec<u8>, Vec<(usize, usize)>) {
        let mut out = payload();
        match &self.span {
            KeySpan::Range { after, upto } => {
                out.push(if upto.is_some() { 1 } else { 0 });
                put_text(&mut out, after);
                put_text(&mut out, upto.as_deref().unwrap_or_default());
            }
            KeySpan::Folder { path, subfolders } => {
                out.push(2);
                put_text(&mut out, path);
                put_varint(&mut out, subfolders.len() as u64);
                subfolders.iter().for_each(|name| put_text(&mut out, name));
            }
        }
        put_varint(&mut out, self.runs.len() as u64);
        let mut places = Vec::with_capacity(self.runs.len());
        for (folder, run) in &self.runs {
            put_text(&mut out, folder);
            let start = out.len();
            put_folder(&mut out, run);
            places.push((start, out.len() - start));
        }
        (out, places)
    }
}

impl KeptSpan {
    /// Reads what must be kept about a record.
    fn decode(position: PayloadPosition, payload: &[u8]) -> Option<KeptSpan> {
        let (kind, mut rest) = payload.split_first()?;
        let rest = &mut rest;
        let span = match kind {
            0 | 1 => {
                let (after, upto) = (take_text(rest)?, take_text(rest)?);
                KeySpan::Range { after, upto: (*kind == 1).then_some(upto) }
            }
            2 => {
                let path = take_text(rest)?;
                let subfolders = (0..take_varint(rest)?).map(|_| take_text(rest)).collect::<Option<_>>()?;
                KeySpan::Folder { path, subfolders }
            }
            _ => return None,
        };
        let (mut runs, mut files, mut bytes) = (Vec::new(), 0, 0u64);
        for _ in 0..take_varint(rest)? {
            let folder = take_text(rest)?;
            let before = rest.len();
            let run = take_folder(rest, true)?;
            files += run.files;
            bytes = bytes.saturating_add(run.bytes);
            let offset = position.start() + (payload.len() - before) as u64;
            runs.push(KeyRunPosition { folder, offset, len: before - rest.len() });
        }
        rest.is_empty().then_some(KeptSpan { span, runs, files, bytes })
    }
}

impl KeyJournal {
    /// Opens the journal of this name, restarted if it is not of this listing or if a `fresh` one is wanted. If the
    /// service can list ranges, it has these, unless an earlier listing found that they do not come in order.
    pub(super) fn open(
        folder: FolderHandle,
        name: OsString,
        identity: &ListingIdentity,
        lists_ranges: bool,
        fresh: bool,
    ) -> Result<(KeyJournal, EarlierKeys), ScanError> {
        let mut kept = Vec::new();
        let file = JournalFile::open(folder, name, identity, &mut |position, payload| {
            let Some(record) = KeptSpan::decode(position, payload).filter(|_| !fresh) else { return false };
            kept.push(record);
            true
        })?;
        let has_folders = kept.iter().any(|record| matches!(record.span, KeySpan::Folder { .. }));
        let by_range = lists_ranges && !has_folders;
        let (kept, earlier) = if by_range { ranges(kept) } else { folders(kept) };
        Ok((KeyJournal { file, by_range, kept: Mutex::new(kept) }, earlier))
    }

    /// Adds names that were listed now.
    pub(super) fn append(&self, record: KeyRecord) -> Result<(), ScanError> {
        let (bytes, places) = record.encode();
        let position = self.file.append(bytes)?;
        let KeyRecord { span, runs } = record;
        let (files, bytes) = runs
            .iter()
            .fold((0, 0u64), |(files, bytes), (_, run)| (files + run.files, bytes.saturating_add(run.bytes)));
        let runs = runs.into_iter().zip(places);
        let runs = runs.map(|((folder, _), (offset, len))| {
            // The places count from the room for length and checksum.
            KeyRunPosition { folder, offset: position.offset + offset as u64, len }
        });
        let kept = KeptSpan { span, runs: runs.collect(), files, bytes };
        self.kept().push(kept);
        Ok(())
    }

    /// Writes the catalog to a new file next to the journal and flushes it. All names must have been looked at.
    pub(super) fn assemble(&self, suffixes: &[Vec<u8>], name: &OsStr) -> Result<(), ScanError> {
        let kept = std::mem::take(&mut *self.kept());
        let count = kept.len();
        let (kept, left) = if self.by_range { ranges(kept) } else { folders(kept) };
        if kept.len() != count || !left.gaps.is_empty() || !left.folders.is_empty() {
            return Err(ScanError::Gap(self.file.shown()));
        }
        let mut runs: Vec<KeyRunPosition> = kept.into_iter().flat_map(|record| record.runs).collect();
        // A stable sort: the runs of a folder stay in the order of the ranges, which is that of the names.
        runs.sort_by(|a, b| path_order(a.folder.as_bytes(), b.folder.as_bytes()));
        let empty = empty_folders(&runs);
        let mut empty = empty.into_iter().peekable();
        self.file.write_catalog(name, Assembler::of_objects(suffixes), |sink| {
            for runs in runs.chunk_by(|a, b| a.folder == b.folder) {
                let path = runs[0].folder.as_bytes();
                while let Some(folder) = empty.next_if(|folder| path_order(&folder.0, path).is_lt()) {
                    sink.push(&folder.0, 0, &EncodedFolder::default())?;
                }
                sink.push(path, 0, &self.folder(runs)?)?;
            }
            Ok(())
        })
    }

    /// The files of a folder, in one piece.
    fn folder(&self, runs: &[KeyRunPosition]) -> Result<EncodedFolder, ScanError> {
        let read = |run: &KeyRunPosition| {
            let bytes = self.file.read_part(run.offset, run.len)?;
            take_folder(&mut bytes.as_slice(), true).ok_or_else(|| self.file.damaged())
        };
        if let [run] = runs {
            return read(run);
        }
        let mut whole = FolderEncoder::of_objects();
        for run in runs {
            let path = self.file.shown();
            whole.append(&read(run)?).map_err(|error| ScanError::Build { path, error })?;
        }
        Ok(whole.finish())
    }

    fn kept(&self) -> MutexGuard<'_, Vec<KeptSpan>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A folder path in the order of catalogs.
#[derive(PartialEq, Eq)]
struct OrderedPath(Vec<u8>);

impl Ord for OrderedPath {
    fn cmp(&self, other: &OrderedPath) -> std::cmp::Ordering {
        path_order(&self.0, &other.0)
    }
}

impl PartialOrd for OrderedPath {
    fn partial_cmp(&self, other: &OrderedPath) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The folders that have subfolders and no files. They are in a catalog, so that it has the digest of the same tree
/// in a folder.
fn empty_folders(runs: &[KeyRunPosition]) -> BTreeSet<OrderedPath> {
    let is_full = |path: &[u8]| runs.binary_search_by(|run| path_order(run.folder.as_bytes(), path)).is_ok();
    let mut found = BTreeSet::new();
    for run in runs.chunk_by(|a, b| a.folder == b.folder).map(|runs| &runs[0].folder) {
        let mut path = run.as_str();
        while !path.is_empty() {
            path = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            if is_full(path.as_bytes()) || !found.insert(OrderedPath(path.as_bytes().to_vec())) {
                break;
            }
        }
    }
    found
}

/// The records of ranges, in order and without overlap, and what they leave open.
fn ranges(kept: Vec<KeptSpan>) -> (Vec<KeptSpan>, EarlierKeys) {
    let mut sorted: Vec<(String, Option<String>, KeptSpan)> = kept
        .into_iter()
        .filter_map(|record| match record.span.clone() {
            KeySpan::Range { after, upto } => Some((after, upto, record)),
            KeySpan::Folder { .. } => None,
        })
        .collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let (mut used, mut earlier) = (Vec::new(), EarlierKeys::default());
    // Everything up to this name is covered; `None`: everything.
    let mut covered = Some(String::new());
    for (after, upto, record) in sorted {
        let Some(until) = covered.as_ref().filter(|until| after >= **until) else { continue };
        if upto.as_ref().is_some_and(|upto| *upto <= after) {
            continue;
        }
        if after > *until {
            earlier.gaps.push((until.clone(), Some(after)));
        }
        earlier.add(&record);
        used.push(record);
        covered = upto;
    }
    if let Some(until) = covered {
        earlier.gaps.push((until, None));
    }
    (used, earlier)
}

/// The records of folders that can be reached from the top, and what they leave open.
fn folders(kept: Vec<KeptSpan>) -> (Vec<KeptSpan>, EarlierKeys) {
    let mut by_path: HashMap<String, KeptSpan> = HashMap::new();
    for record in kept {
        if let KeySpan::Folder { path, .. } = &record.span {
            by_path.insert(path.clone(), record);
        }
    }
    let (mut used, mut earlier) = (Vec::new(), EarlierKeys::default());
    let mut open = vec![String::new()];
    while let Some(path) = open.pop() {
        match by_path.remove(&path) {
            Some(record) => {
                if let KeySpan::Folder { subfolders, .. } = &record.span {
                    open.extend(subfolders.iter().cloned());
                }
                earlier.add(&record);
                used.push(record);
            }
            None => earlier.folders.push(path),
        }
    }
    (used, earlier)
}

impl EarlierKeys {
    fn add(&mut self, record: &KeptSpan) {
        self.files += record.files;
        self.bytes = self.bytes.saturating_add(record.bytes);
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    let len = take_varint(rest)?;
    String::from_utf8(take_bytes(rest, len)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(after: &str, upto: Option<&str>) -> KeptSpan {
        let span = KeySpan::Range { after: after.to_owned(), upto: upto.map(str::to_owned) };
        KeptSpan { span, runs: Vec::new(), files: 1, bytes: 5 }
    }

    #[test]
    fn what_ranges_leave_open_is_found() {
        let gap = |after: &str, upto: Option<&str>| (after.to_owned(), upto.map(str::to_owned));
        for (kept, gaps, used) in [
            (vec![], vec![gap("", None)], 0),
            (vec![range("", None)], vec![], 1),
            (vec![range("b", Some("d")), range("", Some("b"))], vec![gap("d", None)], 2),
            (vec![range("b", None)], vec![gap("", Some("b"))], 1),
            (vec![range("", Some("a")), range("c", None)], vec![gap("a", Some("c"))], 2),
            // Overlaps and ranges that end before they begin cannot be trusted.
            (vec![range("", Some("c")), range("b", None)], vec![gap("c", None)], 1),
            (vec![range("c", Some("b"))], vec![gap("", None)], 0),
        ] {
            let (kept, earlier) = ranges(kept);
            assert_eq!((kept.len(), earlier.gaps, earlier.files), (used, gaps, used as u64));
        }
    }

    #[test]
    fn what_folders_leave_open_is_found() {
        let folder = |path: &str, subfolders: &[&str]| {
            let subfolders = subfolders.iter().map(|name| (*name).to_owned()).collect();
            let span = KeySpan::Folder { path: path.to_owned(), subfolders };
            KeptSpan { span, runs: Vec::new(), files: 1, bytes: 5 }
        };
        for (kept, open, used) in [
            (vec![], vec![""], 0),
            (vec![folder("", &[])], vec![], 1),
            (vec![folder("", &["a/", "b/"]), folder("b/", &[])], vec!["a/"], 2),
            (vec![folder("b/", &[])], vec![""], 0),
        ] {
            let (kept, earlier) = folders(kept);
            assert_eq!((kept.len(), earlier.folders), (used, open.into_iter().map(String::from).collect()));
        }
    }

    #[test]
    fn an_incomplete_listing_is_never_assembled() {
        let place = tempfile::tempdir().unwrap();
        for (by_range, spans) in [
            (true, vec![KeySpan::Range { after: "a".into(), upto: None }]),
            (true, vec![KeySpan::Range { after: String::new(), upto: Some("x".into()) }]),
            (false, vec![KeySpan::Folder { path: String::new(), subfolders: vec!["a/".into()] }]),
            (true, Vec::new()),
        ] {
            let folder = FolderHandle::open(place.path()).unwrap();
            let identity = ListingIdentity::of_bytes(b"x");
            let (journal, _) = KeyJournal::open(folder, "j".into(), &identity, by_range, false).unwrap();
            spans.into_iter().for_each(|span| journal.append(KeyRecord { span, runs: Vec::new() }).unwrap());
            let error = journal.assemble(&[], OsStr::new("new")).unwrap_err();
            assert!(matches!(error, ScanError::Gap(_)), "{error}");
            assert!(!place.path().join("new").exists());
            journal.file.remove();
        }
    }
}
