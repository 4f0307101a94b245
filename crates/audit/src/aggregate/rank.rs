//! A rank: its loaders, their epochs in progress, and what it does outside of epochs.

use std::collections::BTreeMap;

use model::observed::{EpochRow, LoaderRow, OutsideRow, StartMethod, TrainingFramework};
use model::units::Nanos;

use super::epoch::Epoch;
use super::places::Places;
use super::visits::FileKey;
use crate::event::ProcessIndex;

/// Folders that are remembered of a rank.
const MOST_FOLDERS: usize = 500_000;

/// A loader of a rank.
#[derive(Debug, Default)]
pub(super) struct RankLoader {
    pub(super) row: LoaderRow,
    pub(super) epoch: Option<Epoch>,
    /// The places of the epoch before.
    pub(super) before: Option<Places>,
    epochs: u64,
}

/// A rank.
#[derive(Debug)]
pub(super) struct RankState {
    pub(super) process: ProcessIndex,
    pub(super) loaders: BTreeMap<u64, RankLoader>,
    /// Loaders with open epochs, in order of their begin.
    open: Vec<u64>,
    pub(super) outside: OutsideRow,
    pub(super) folders: std::collections::BTreeSet<FileKey>,
    pub(super) has_begun: bool,
    pub(super) has_batch: bool,
}

impl RankState {
    /// Remembers a folder that is listed outside of epochs.
    pub(super) fn listed(&mut self, folder: FileKey) {
        if self.folders.len() < MOST_FOLDERS {
            self.folders.insert(folder);
        }
    }

    pub(super) fn new(number: usize, process: ProcessIndex) -> RankState {
        RankState {
            process,
            loaders: BTreeMap::new(),
            open: Vec::new(),
            outside: OutsideRow { rank: Some(number as u64), ..OutsideRow::default() },
            folders: Default::default(),
            has_begun: false,
            has_batch: false,
        }
    }

    pub(super) fn loader(&mut self, number: u64) -> &mut RankLoader {
        let rank = self.outside.rank.unwrap_or(0);
        self.loaders.entry(number).or_insert_with(|| RankLoader {
            row: LoaderRow { rank, loader: number, ..LoaderRow::default() },
            ..RankLoader::default()
        })
    }

    /// The loader that began an epoch last and has not ended it.
    pub(super) fn innermost(&self) -> Option<u64> {
        self.open.last().copied()
    }

    /// The loader that most recently began an epoch, ended or not.
    pub(super) fn begin(&mut self, number: u64, at: u64) {
        self.open.retain(|open| *open != number);
        self.open.push(number);
        if !self.has_begun {
            self.has_begun = true;
            self.outside.before_ns = Nanos(at);
        }
        let process = self.process;
        let loader = self.loader(number);
        loader.epochs += 1;
        let row = EpochRow {
            rank: loader.row.rank,
            loader: number,
            epoch: loader.epochs,
            begin_ns: Nanos(at),
            end_ns: Nanos(at),
            ..EpochRow::default()
        };
        loader.epoch = Some(Epoch::new(row, process, loader.row.workers));
    }

    /// Ends the epoch of a loader and takes it.
    pub(super) fn end(&mut self, number: u64, at: u64, complete: bool) -> Option<Epoch> {
        self.open.retain(|open| *open != number);
        let mut epoch = self.loaders.get_mut(&number)?.epoch.take()?;
        epoch.end(at, complete);
        Some(epoch)
    }
}

/// The row of a loader from the arguments of its mark.
pub(super) fn describe(row: &mut LoaderRow, about: u64, sizes: u64) {
    row.workers = about & 0xFFFF;
    row.persistent = about >> 16 & 1 == 1;
    row.iterable = about >> 17 & 1 == 1;
    row.start_method = match about >> 18 & 3 {
        1 => StartMethod::Spawn,
        2 => StartMethod::Forkserver,
        _ => StartMethod::Fork,
    };
    row.pin_memory = about >> 20 & 1 == 1;
    row.framework = match about >> 24 & 7 {
        1 => TrainingFramework::Pytorch,
        2 => TrainingFramework::Tensorflow,
        3 => TrainingFramework::Keras,
        4 => TrainingFramework::Other,
        _ => TrainingFramework::Unknown,
    };
    let known = |number: u64| Some(number).filter(|number| *number > 0);
    row.batch = known(sizes & 0xFFFF_FFFF);
    row.prefetch = known(sizes >> 32);
}
