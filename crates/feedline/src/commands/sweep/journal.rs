//! The journal of a sweep, `cells.jsonl`: a header line that identifies the sweep, then one line for each finished run,
//! written immediately. An interrupted sweep is resumed from it.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use model::study::grid::{Axis, SweepRun};
use model::verdict::Status;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::FolderHandle;

const NAME: &str = "cells.jsonl";

/// Identifies the sweep: sweeps with the same header may share a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalHeader {
    pub sweep: String,
    pub over: Vec<Axis>,
    pub set: Vec<String>,
    pub store: Option<String>,
    pub ranks: Option<u64>,
    pub data_folder: PathBuf,
    pub seed: u64,
    /// Digest of the settings of the first cell, with all defaults, so that an edited workload is a different sweep.
    pub spec_digest: String,
}

/// A finished run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct JournalEntry {
    pub cell: usize,
    pub round: u64,
    /// The settings of the cell, for people who read the file.
    pub settings: serde_json::Map<String, Value>,
    pub start: String,
    pub wall_seconds: f64,
    pub cpu_seconds: f64,
    pub samples_per_second: Option<f64>,
    /// Millions of bytes.
    pub mb_per_second: Option<f64>,
    pub au_percent: Option<f64>,
    /// Mean time for which a save blocked training; `None` without checkpoints.
    #[serde(default)]
    pub blocked_seconds: Option<f64>,
    /// Whether a simulated device was used.
    #[serde(default)]
    pub simulated: bool,
    pub verdict: Option<Status>,
    /// Rules of the verdict that failed.
    pub broken: Vec<String>,
    /// Rules that could not be checked.
    #[serde(default)]
    pub unchecked: Vec<String>,
    /// Why there are no figures.
    pub error: Option<String>,
}

/// The journal of one folder, open for appending and locked against other processes.
#[derive(Debug)]
pub(crate) struct SweepJournal {
    file: File,
    path: PathBuf,
    /// The last entry of each cell and round: a later success replaces a failure.
    entries: BTreeMap<(usize, u64), JournalEntry>,
}

impl SweepJournal {
    /// Whether the folder has a journal.
    pub(crate) fn is_in(folder: &Path) -> bool {
        folder.join(NAME).exists()
    }

    /// Opens the journal of the folder, or creates it. The journal of another sweep is refused.
    pub(crate) fn open(folder: &Path, header: &JournalHeader) -> anyhow::Result<SweepJournal> {
        let path = folder.join(NAME);
        let held = FolderHandle::open(folder)?;
        let mut file = held.open_or_create(NAME, true)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => bail!("another sweep is running in {}", folder.display()),
            // On a file system without locks, other processes are not kept out.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let entries = resume(&mut file, header).with_context(|| path.display().to_string())?;
        let mut journal = SweepJournal { file, path, entries: BTreeMap::new() };
        match entries {
            None => {
                journal.append(header)?;
                held.sync()?;
            }
            Some(entries) => entries.into_iter().for_each(|entry| journal.keep(entry)),
        }
        Ok(journal)
    }

    /// Adds a run.
    pub(crate) fn add(&mut self, entry: JournalEntry) -> anyhow::Result<()> {
        self.append(&entry)?;
        self.keep(entry);
        Ok(())
    }

    fn keep(&mut self, entry: JournalEntry) {
        self.entries.insert((entry.cell, entry.round), entry);
    }

    fn append(&mut self, line: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_string(line).context("cannot write JSON")?;
        text.push('\n');
        // One call per line, so that only the last line can be incomplete; flushed, so that a finished run is on disk.
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Whether a run was done and need not be done again.
    pub(crate) fn has(&self, run: SweepRun) -> bool {
        self.of(run).is_some_and(|entry| entry.error.is_none())
    }

    /// What came of a run.
    pub(crate) fn of(&self, SweepRun { cell, round }: SweepRun) -> Option<&JournalEntry> {
        self.entries.get(&(cell, round))
    }
}

/// The entries of a journal; `None` if it is empty. A last line without a line break was being written when the sweep
/// was killed; it is cut off, after the check that the file is a journal.
fn resume(file: &mut File, header: &JournalHeader) -> anyhow::Result<Option<Vec<JournalEntry>>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes)).context("cannot read")?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let text = std::str::from_utf8(&bytes[..whole]).context("this is not the journal of a sweep")?;
    let mut lines = text.lines().enumerate();
    let first = lines.next();
    match first {
        Some((_, first)) => check_header(first, header)?,
        None if serde_json::to_string(header)?.as_bytes().starts_with(&bytes) => {}
        None => bail!("this is not the journal of a sweep; choose another folder"),
    }
    if whole < bytes.len() {
        file.set_len(whole as u64).context("cannot cut off the half-written last line")?;
    }
    let entries = lines.map(|(number, line)| {
        serde_json::from_str::<JournalEntry>(line).map_err(|error| anyhow!("line {}: {error}", number + 1))
    });
    let entries = entries.collect::<anyhow::Result<_>>()?;
    Ok(first.is_some().then_some(entries))
}

fn check_header(line: &str, header: &JournalHeader) -> anyhow::Result<()> {
    let there: JournalHeader =
        serde_json::from_str(line).map_err(|_| anyhow!("this is not the journal of a sweep"))?;
    if there == *header {
        return Ok(());
    }
    let (there, asked) = (serde_json::to_value(there)?, serde_json::to_value(header)?);
    let keys = asked.as_object().into_iter().flat_map(serde_json::Map::keys);
    let differs: Vec<String> = keys
        .filter(|key| there[key.as_str()] != asked[key.as_str()])
        .map(|key| format!("{key} is {}, not {} as requested", there[key.as_str()], asked[key.as_str()]))
        .collect();
    bail!("this folder contains another sweep: {}; choose another folder", differs.join("; "))
}
