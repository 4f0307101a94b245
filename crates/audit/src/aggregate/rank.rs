//! A rank: its loaders, their epochs in progress, and what it does outside of epochs.

use std::collections::BTreeMap;

use model::observed::{EpochRow, LoaderRow, OutsideRow, StartMethod, TrainingFramework};
use model::units::Nanos;

use super::batches::Batches;
use super::epoch::{CHECKPOINT_BYTES, Epoch};
use super::places::Places;
use super::visits::FileKey;
use crate::event::{ProcessIndex, SeenCall};
use crate::layout::Op;

/// Folders that are remembered of a rank.
const MOST_FOLDERS: usize = 500_000;

/// A loader of a rank.
#[derive(Debug, Default)]
pub(super) struct RankLoader {
    pub(super) row: LoaderRow,
    pub(super) epoch: Option<Epoch>,
    /// The places of the epoch before.
    pub(super) before: Option<Places>,
    pub(super) batches_before: Batches,
    /// Hash of the data set object.
    data_set: u64,
    epochs: u64,
}

impl RankLoader {
    /// What is known of the epoch that began.
    pub(super) fn context(&mut self, gradients: i64, data_set: u64) {
        let before = std::mem::replace(&mut self.data_set, data_set);
        let Some(epoch) = &mut self.epoch else { return };
        epoch.row.gradients = (gradients >= 0).then_some(gradients > 0);
        epoch.row.data_set_changed = (before != 0 && data_set != 0).then_some(before != data_set);
    }
}

/// What the training thread writes between two epochs.
#[derive(Debug, Default)]
pub(super) struct Between {
    thread: u32,
    from: Option<u64>,
    ns: u64,
    bytes: u64,
}

impl Between {
    pub(super) fn call(&mut self, event: &SeenCall) {
        if event.tid != self.thread || !matches!(event.op, Op::Write | Op::Sync) {
            return;
        }
        if event.op == Op::Write {
            self.bytes += event.bytes();
        }
        if self.from.is_none() {
            self.ns += event.duration_ns;
        }
    }

    /// A function that saves begins or ends.
    pub(super) fn mark(&mut self, thread: u32, at: u64, begins: bool) {
        if thread != self.thread {
            return;
        }
        match (begins, self.from.take()) {
            (true, _) => self.from = Some(at),
            (false, from) => self.ns += at.saturating_sub(from.unwrap_or(at)),
        }
    }
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
    pub(super) between: Between,
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
            between: Between::default(),
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
    pub(super) fn begin(&mut self, number: u64, at: u64, thread: u32) {
        self.open.retain(|open| *open != number);
        self.open.push(number);
        if !self.has_begun {
            self.has_begun = true;
            self.outside.before_ns = Nanos(at);
        } else if self.between.bytes >= CHECKPOINT_BYTES {
            self.outside.checkpoint_ns += Nanos(self.between.ns);
            self.outside.checkpoint_bytes += self.between.bytes;
        }
        self.between = Between { thread, ..Between::default() };
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
        loader.epoch = Some(Epoch::new(row, (process, thread), loader.row.workers));
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
    row.shuffles = about >> 21 & 1 == 1;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::FdKind;

    const TRAINING: u32 = 7;
    const MIB: i64 = 1 << 20;

    fn write(tid: u32, bytes: i64) -> SeenCall {
        SeenCall {
            op: Op::Write,
            kind: FdKind::Regular as u8,
            flags: 0,
            tid,
            fd: 3,
            start_ns: 300,
            duration_ns: 50,
            file: 1,
            device: 1,
            offset: 0,
            asked: bytes as u64,
            result: bytes,
        }
    }

    /// The checkpoints of a rank that writes so between two epochs.
    fn between(change: impl Fn(&mut Between)) -> (u64, u64) {
        let mut rank = RankState::new(0, 0);
        rank.begin(0, 100, TRAINING);
        rank.end(0, 200, true);
        change(&mut rank.between);
        rank.begin(0, 900, TRAINING);
        (rank.outside.checkpoint_ns.0, rank.outside.checkpoint_bytes)
    }

    #[test]
    fn checkpoints_between_epochs_are_counted() {
        assert_eq!(between(|between| between.call(&write(TRAINING, 3 * MIB))), (50, 3 << 20));
        let marked = |between: &mut Between| {
            between.mark(TRAINING, 300, true);
            between.call(&write(TRAINING, 3 * MIB));
            between.mark(TRAINING, 800, false);
        };
        assert_eq!(between(marked), (500, 3 << 20));
    }

    #[test]
    fn logs_and_other_threads_stop_no_training() {
        assert_eq!(between(|between| between.call(&write(TRAINING, 1000))), (0, 0));
        assert_eq!(between(|between| between.call(&write(TRAINING + 1, 3 * MIB))), (0, 0));
        let marked = |between: &mut Between| {
            between.mark(TRAINING + 1, 300, true);
            between.mark(TRAINING + 1, 800, false);
        };
        assert_eq!(between(marked), (0, 0));
    }

    #[test]
    fn a_change_of_the_data_set_is_seen() {
        let mut rank = RankState::new(0, 0);
        let mut changed = |hash: u64| {
            rank.begin(0, 0, TRAINING);
            let loader = rank.loader(0);
            loader.context(1, hash);
            loader.epoch.as_ref().and_then(|epoch| epoch.row.data_set_changed)
        };
        assert_eq!([5, 5, 6, 0, 6].map(&mut changed), [None, Some(false), Some(true), None, None]);
    }
}
