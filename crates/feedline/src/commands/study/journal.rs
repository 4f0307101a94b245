//! The journal of a study: a header line that identifies the study, then one line for each finished run, written
//! immediately. An interrupted study is resumed from it.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use store::FolderHandle;

use super::StudyKind;

/// The first line of a journal. Studies with the same header may share a journal.
pub(crate) trait JournalHeader: PartialEq + Serialize + DeserializeOwned {}

/// The line of a finished run.
pub(crate) trait JournalLine: Serialize + DeserializeOwned {
    /// Which run it is. The last line of a run counts: a later success replaces a failure.
    type Key: Ord;

    fn key(&self) -> Self::Key;
}

/// The journal of one folder, open for appending and locked against other processes.
#[derive(Debug)]
pub(crate) struct Journal<T: JournalLine> {
    file: File,
    path: PathBuf,
    runs: BTreeMap<T::Key, T>,
}

impl<T: JournalLine> Journal<T> {
    /// Opens the journal of the folder, or creates it. The journal of another study is refused.
    pub(super) fn open(
        folder: &Path,
        kind: &StudyKind,
        header: &impl JournalHeader,
    ) -> anyhow::Result<Journal<T>> {
        let path = folder.join(kind.journal);
        let held = FolderHandle::open(folder)?;
        let mut file = held.open_or_create(kind.journal, true)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                bail!("another {} is running in {}", kind.name, folder.display())
            }
            // On a file system without locks, other processes are not kept out.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let runs = resume(&mut file, kind, header).with_context(|| path.display().to_string())?;
        let mut journal = Journal { file, path, runs: BTreeMap::new() };
        match runs {
            None => {
                journal.append(&kind.journal_document.of(header))?;
                held.sync()?;
            }
            Some(runs) => runs.into_iter().for_each(|run| journal.keep(run)),
        }
        Ok(journal)
    }

    /// Adds a run.
    pub(crate) fn add(&mut self, run: T) -> anyhow::Result<()> {
        self.append(&run)?;
        self.keep(run);
        Ok(())
    }

    fn keep(&mut self, run: T) {
        self.runs.insert(run.key(), run);
    }

    fn append(&mut self, line: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_string(line).context("cannot write JSON")?;
        text.push('\n');
        // One call per line, so that only the last line can be incomplete; flushed, so that a finished run is on disk.
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = &T> {
        self.runs.values()
    }

    /// What came of a run.
    pub(crate) fn of(&self, key: &T::Key) -> Option<&T> {
        self.runs.get(key)
    }
}

/// The runs of a journal; `None` if it is empty. A last line without a line break was being written when the study was
/// killed; it is cut off, after the check that the file is a journal.
fn resume<T: JournalLine>(
    file: &mut File,
    kind: &StudyKind,
    header: &impl JournalHeader,
) -> anyhow::Result<Option<Vec<T>>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes)).context("cannot read")?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let foreign = || format!("this is not the journal of a {}; choose another folder", kind.name);
    let text = std::str::from_utf8(&bytes[..whole]).with_context(foreign)?;
    let mut lines = text.lines().enumerate();
    let first = lines.next();
    match first {
        Some((_, first)) => check_header(first, kind, header)?,
        None if serde_json::to_string(&kind.journal_document.of(header))?.as_bytes().starts_with(&bytes) => {}
        None => bail!(foreign()),
    }
    if whole < bytes.len() {
        file.set_len(whole as u64).context("cannot cut off the half-written last line")?;
    }
    let runs = lines.map(|(number, line)| {
        serde_json::from_str::<T>(line).map_err(|error| anyhow!("line {}: {error}", number + 1))
    });
    let runs = runs.collect::<anyhow::Result<_>>()?;
    Ok(first.is_some().then_some(runs))
}

fn check_header<H: JournalHeader>(line: &str, kind: &StudyKind, header: &H) -> anyhow::Result<()> {
    let study = kind.name;
    kind.journal_document.check(line.as_bytes())?;
    let there: H = serde_json::from_str(line)
        .map_err(|_| anyhow!("this is not the journal of a {study}; choose another folder"))?;
    if there == *header {
        return Ok(());
    }
    let (there, asked) = (serde_json::to_value(there)?, serde_json::to_value(header)?);
    let more = keys(&there).filter(|key| asked.get(key.as_str()).is_none());
    let differs: Vec<String> = keys(&asked)
        .chain(more)
        .filter(|key| there[key.as_str()] != asked[key.as_str()])
        .map(|key| format!("{key} is {}, not {} as requested", there[key.as_str()], asked[key.as_str()]))
        .collect();
    bail!("this folder contains another {study}: {}; choose another folder", differs.join("; "))
}

fn keys(header: &Value) -> impl Iterator<Item = &String> {
    header.as_object().into_iter().flat_map(serde_json::Map::keys)
}
