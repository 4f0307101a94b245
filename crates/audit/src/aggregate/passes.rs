//! Passes over the files of a job that nothing marks: a new one begins when files come again that were opened before.
//! Used only if no process marks epochs.

use std::collections::HashMap;

use model::observed::{EpochRow, IoCounts};
use model::units::Nanos;

use super::epoch::Epoch;
use super::visits::FileKey;
use crate::event::ProcessIndex;

/// Passes kept.
const MOST: u64 = 256;
/// Files that a pass must have opened before another can begin.
const FEWEST_FILES: usize = 8;

/// Passes so far.
#[derive(Debug, Default)]
pub(super) struct Passes {
    epoch: Option<Epoch>,
    /// Files of this pass, with the process that opened it last.
    opened: HashMap<FileKey, ProcessIndex>,
    last: Option<FileKey>,
    /// Opens in a row of files that were opened before.
    again: usize,
    rows: Vec<EpochRow>,
    number: u64,
}

impl Passes {
    pub(super) fn current(&mut self, now: u64) -> &mut Epoch {
        let number = self.number + 1;
        self.epoch.get_or_insert_with(|| {
            let at = Nanos(now);
            let row = EpochRow { epoch: number, begin_ns: at, end_ns: at, ..EpochRow::default() };
            Epoch::new(row, (ProcessIndex::MAX, 0), 0)
        })
    }

    /// A file is opened. Returns the pass that ended with it.
    pub(super) fn opened(&mut self, process: ProcessIndex, file: FileKey, at: u64) -> Option<Epoch> {
        let is_next = self.last.replace(file) == Some(file);
        let is_again = self.opened.insert(file, process).is_some();
        if is_next {
            // The same file again and again is no pass over the files.
            return None;
        }
        self.again = if is_again { self.again + 1 } else { 0 };
        let is_new_pass = self.opened.len() >= FEWEST_FILES && self.again > self.opened.len() / 8;
        if !is_new_pass || self.number + 1 >= MOST {
            return None;
        }
        self.take(at)
    }

    /// Ends the current pass.
    pub(super) fn take(&mut self, at: u64) -> Option<Epoch> {
        let mut epoch = self.epoch.take()?;
        epoch.end(at, true);
        self.number += 1;
        self.again = 0;
        self.opened.clear();
        Some(epoch)
    }

    pub(super) fn keep(&mut self, pass: Epoch) {
        self.rows.push(pass.into_row());
    }

    /// All passes, and their calls.
    pub(super) fn into_rows(self) -> (Vec<EpochRow>, IoCounts) {
        let mut counts = IoCounts::default();
        self.rows.iter().for_each(|row| counts += row.io);
        let rows = self.rows.into_iter().filter(|row| row.io.reads.count + row.io.maps.count > 0).collect();
        (rows, counts)
    }
}
