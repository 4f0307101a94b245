//! The job as rules look at it: the training loader of each rank, its epochs, and the few quantities that several
//! rules need. It judges nothing.

use std::collections::BTreeMap;

use model::observed::{EpochRow, LoaderRow, Observed, OutsideRow, ProcessRow, TrainingFramework, WorkerRow};
use model::units::Nanos;

/// Fewer batches than this after the start say nothing about the usual wait (the trial's shortest healthy job had 12).
pub(super) const STEADY_BATCHES: u64 = 8;

/// The job.
#[derive(Debug)]
pub(super) struct JudgedJob<'a> {
    pub observed: &'a Observed,
    /// Ranks with epochs, in order.
    pub ranks: Vec<JudgedRank<'a>>,
}

/// A rank with its training loader: the one with the most time.
#[derive(Debug)]
pub(super) struct JudgedRank<'a> {
    pub rank: u64,
    pub loader: Option<u64>,
    pub kind: Kind,
    /// Epochs of the training loader, in order.
    pub passes: Vec<Pass<'a>>,
    pub outside: Option<&'a OutsideRow>,
    /// Its processes that are no workers: the training process, and programs that it started.
    pub others: Vec<&'a ProcessRow>,
    /// Its workers, of all epochs.
    pub workers: Vec<&'a ProcessRow>,
}

/// What is known of a loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub framework: TrainingFramework,
    pub workers: u64,
    pub persistent: bool,
    pub iterable: bool,
    /// Samples are shuffled in memory.
    pub shuffles: bool,
    pub worker_starts: u64,
}

impl Kind {
    fn of(row: Option<&LoaderRow>) -> Kind {
        match row {
            Some(row) => Kind {
                framework: row.framework,
                workers: row.workers,
                persistent: row.persistent,
                iterable: row.iterable,
                shuffles: row.shuffles,
                worker_starts: row.worker_starts,
            },
            None => Kind {
                framework: TrainingFramework::Unknown,
                workers: 0,
                persistent: false,
                iterable: false,
                shuffles: false,
                worker_starts: 0,
            },
        }
    }

    /// Whether batches and waits were marked.
    pub(super) fn marks(self) -> bool {
        self.framework != TrainingFramework::Unknown
    }

    pub(super) fn pytorch(self) -> bool {
        self.framework == TrainingFramework::Pytorch
    }
}

/// An epoch of a training loader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass<'a> {
    pub row: &'a EpochRow,
    pub kind: Kind,
}

/// How long a rank waited for batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub share: f64,
    pub seconds: f64,
    pub of: f64,
    pub batches: u64,
    /// Without the first batches of each epoch.
    pub steady: bool,
}

impl<'a> JudgedJob<'a> {
    pub(super) fn new(observed: &'a Observed) -> JudgedJob<'a> {
        let mut by_rank: BTreeMap<u64, BTreeMap<u64, Vec<&EpochRow>>> = BTreeMap::new();
        for row in &observed.epochs {
            by_rank.entry(row.rank).or_default().entry(row.loader).or_default().push(row);
        }
        let ranks = by_rank
            .into_iter()
            .filter_map(|(rank, loaders)| {
                let time = |rows: &[&EpochRow]| rows.iter().map(|row| row.wall_ns()).sum::<Nanos>();
                // The first of equals: `max_by_key` would give the last.
                let (loader, rows) = loaders.into_iter().rev().max_by_key(|(_, rows)| time(rows))?;
                Some(JudgedRank::new(observed, rank, loader, rows))
            })
            .collect();
        JudgedJob { observed, ranks }
    }

    pub(super) fn passes(&self) -> impl Iterator<Item = &Pass<'a>> {
        self.ranks.iter().flat_map(|rank| &rank.passes)
    }

    /// Mean time of an epoch of this rank, or of all; at most the time of the job, if that is known.
    pub(super) fn epoch_seconds(&self, rank: Option<u64>) -> f64 {
        let walls: Vec<f64> = self
            .passes()
            .filter(|pass| rank.is_none_or(|rank| pass.row.rank == rank))
            .map(Pass::wall)
            .collect();
        let whole = self.observed.wall_ns.seconds();
        let mean = if walls.is_empty() { whole } else { walls.iter().sum::<f64>() / walls.len() as f64 };
        if whole > 0.0 { mean.min(whole) } else { mean }
    }

    /// The rank with the longest training.
    pub(super) fn longest(&self) -> Option<&JudgedRank<'a>> {
        let time = |rank: &JudgedRank<'_>| rank.passes.iter().map(|pass| pass.row.wall_ns()).sum::<Nanos>();
        self.ranks.iter().rev().max_by_key(|rank| time(rank))
    }

    /// Mean size of the data files.
    pub(super) fn file_bytes(&self) -> Option<f64> {
        let files = &self.observed.files;
        (files.estimated > 0).then(|| files.bytes as f64 / files.estimated as f64)
    }

    /// The largest share of waiting of a rank, with the rank.
    pub(super) fn longest_wait(&self) -> Option<(&JudgedRank<'a>, Wait)> {
        let waits = self.ranks.iter().filter_map(|rank| rank.wait().map(|wait| (rank, wait)));
        waits.reduce(|a, b| if b.1.share > a.1.share { b } else { a })
    }
}

impl<'a> JudgedRank<'a> {
    fn new(observed: &'a Observed, rank: u64, loader: u64, mut rows: Vec<&'a EpochRow>) -> JudgedRank<'a> {
        rows.sort_by_key(|row| (row.epoch, row.begin_ns));
        let kind = Kind::of(observed.loaders.iter().find(|row| row.rank == rank && row.loader == loader));
        let of_rank = |process: &&ProcessRow| process.rank == Some(rank);
        JudgedRank {
            rank,
            loader: Some(loader),
            kind,
            passes: rows.into_iter().map(|row| Pass { row, kind }).collect(),
            outside: observed.outside.iter().find(|row| row.rank == Some(rank)),
            others: observed.processes.iter().filter(of_rank).filter(|row| row.worker.is_none()).collect(),
            workers: observed.processes.iter().filter(of_rank).filter(|row| row.worker.is_some()).collect(),
        }
    }

    /// The share of time that the rank waited for batches that were not loaded: without the first batches of each
    /// epoch, or of whole epochs if the others are too few or take less than half of the time.
    pub(super) fn wait(&self) -> Option<Wait> {
        if !self.kind.marks() {
            return None;
        }
        let sum = |figure: &dyn Fn(&Pass<'_>) -> f64| self.passes.iter().map(figure).sum::<f64>();
        let batches: u64 = self.passes.iter().map(|pass| pass.row.steady_batches).sum();
        let (seconds, of) = (sum(&|pass| pass.steady_blocked()), sum(&|pass| pass.row.steady_ns.seconds()));
        if batches >= STEADY_BATCHES && of > 0.0 && of >= 0.5 * sum(&|pass| pass.wall()) {
            return Some(Wait { share: (seconds / of).min(1.0), seconds, of, batches, steady: true });
        }
        let batches: u64 = self.passes.iter().map(|pass| pass.row.batches).sum();
        let (seconds, of) = (sum(&|pass| pass.budget()), sum(&|pass| pass.wall()));
        let share = (seconds / of).min(1.0);
        (batches > 0 && of > 0.0).then_some(Wait { share, seconds, of, batches, steady: false })
    }

    /// The share of time in which loaded batches were handed over.
    pub(super) fn handover_share(&self) -> f64 {
        let handed: f64 = self.passes.iter().map(|pass| pass.row.handover_all_ns.seconds()).sum();
        ratio(handed, self.passes.iter().map(Pass::wall).sum())
    }

    /// The share of batches that equal those of the epoch before, in the epoch with the lowest one.
    pub(super) fn equal_batches(&self) -> Option<f64> {
        let rows = self.passes.iter().map(|pass| pass.row).filter(|row| row.batches_compared > 0);
        let shares = rows.map(|row| ratio(row.batches_equal as f64, row.batches_compared as f64));
        shares.reduce(f64::min)
    }

    /// Whether the rank changed its data set object between epochs, if that is known.
    pub(super) fn data_set_changed(&self) -> Option<bool> {
        let known = self.passes.iter().filter_map(|pass| pass.row.data_set_changed);
        known.reduce(|one, other| one || other)
    }

    /// Whether all epochs ran without gradients.
    pub(super) fn is_evaluation(&self) -> bool {
        self.passes.iter().all(|pass| pass.row.gradients == Some(false))
    }

    /// Processes of the rank that are no workers.
    pub(super) fn others(&self) -> impl Iterator<Item = &'a ProcessRow> {
        self.others.iter().copied()
    }

    /// The epoch that was first.
    pub(super) fn first(&self) -> Option<&Pass<'a>> {
        self.passes.first()
    }

    /// Whether the workers of an epoch live on in the next one.
    pub(super) fn workers_stay(&self) -> bool {
        self.kind.workers == 0 || self.kind.persistent
    }
}

impl Pass<'_> {
    pub(super) fn wall(&self) -> f64 {
        self.row.wall_ns().seconds()
    }

    pub(super) fn workers(&self) -> u64 {
        self.kind.workers
    }

    pub(super) fn asked(&self) -> u64 {
        self.row.io.reads.bytes
    }

    /// Bytes read from devices / bytes asked.
    pub(super) fn issued_share(&self) -> Option<f64> {
        let asked = self.asked();
        self.row.issued_bytes.filter(|_| asked > 0).map(|issued| issued as f64 / asked as f64)
    }

    /// Waits after the first batches. Without workers, loading a batch is the wait for it.
    fn steady_blocked(&self) -> f64 {
        let blocked = self.row.blocked_ns.seconds();
        if self.loads_itself() { blocked.max(self.own_loading_in(self.row.steady_ns)) } else { blocked }
    }

    fn loads_itself(&self) -> bool {
        self.kind.pytorch() && self.kind.workers == 0
    }

    /// The rank's own reads, in this part of the epoch.
    fn own_loading_in(&self, part: Nanos) -> f64 {
        let wall = self.wall();
        let share = if wall > 0.0 { (part.seconds() / wall).min(1.0) } else { 0.0 };
        self.row.rank_fetch_ns.seconds().min(wall) * share
    }

    /// What can be saved at most, in seconds of this epoch: waits for batches that were not loaded, and the start of
    /// workers; the rank's own loading without workers; everything without marks.
    pub(super) fn budget(&self) -> f64 {
        let row = self.row;
        let blocked = row.blocked_all_ns.seconds();
        let most = match (self.kind.marks(), self.loads_itself()) {
            (false, _) => self.wall(),
            (true, true) => blocked.max(row.rank_fetch_ns.seconds()),
            (true, false) => row.start_ns.seconds() + blocked,
        };
        most.min(self.wall())
    }

    /// Time of workers in fetches, all workers together; of the rank without workers.
    pub(super) fn fetch(&self) -> f64 {
        let workers: Nanos = self.row.workers.iter().map(|worker| worker.fetch_ns).sum();
        match (self.row.workers.is_empty(), self.loads_itself()) {
            (false, _) => workers.seconds(),
            (true, true) => self.budget(),
            (true, false) => 0.0,
        }
    }

    /// Time in calls on data files within fetches.
    pub(super) fn file(&self) -> f64 {
        if self.row.workers.is_empty() {
            return self.row.rank_io.file_ns().seconds();
        }
        self.row.workers.iter().map(|worker| worker.file_ns).sum::<Nanos>().seconds()
    }

    /// Fetches, or reads, that ran at once on average: what is saved in one of them is saved in parallel.
    pub(super) fn overlap(&self) -> f64 {
        let (fetch, wall) = (self.fetch(), self.wall());
        if self.kind.workers > 0 && fetch > 0.0 && wall > 0.0 {
            return (fetch / wall).clamp(1.0, self.kind.workers as f64);
        }
        self.in_flight().unwrap_or(1.0).max(1.0)
    }

    /// Reads in flight on average while there was one.
    pub(super) fn in_flight(&self) -> Option<f64> {
        let times = self.row.in_flight_ns.iter().enumerate().skip(1);
        let (mut busy, mut sum) = (0.0, 0.0);
        for (number, time) in times {
            busy += time.seconds();
            sum += number as f64 * time.seconds();
        }
        (busy > 0.0).then(|| sum / busy)
    }

    /// Seconds of this epoch that go away when workers spend `seconds` less, all together: the work is spread over
    /// those that ran at once, and no more than the waits can go away.
    pub(super) fn saved(&self, seconds: f64) -> f64 {
        (seconds.max(0.0) / self.overlap()).min(self.budget())
    }

    /// The share of this epoch that the rank waited for batches that were not loaded; without the first batches
    /// where there are enough others.
    pub(super) fn wait_share(&self) -> Option<f64> {
        let (row, wall) = (self.row, self.wall());
        if !self.kind.marks() || wall <= 0.0 {
            return None;
        }
        let steady = row.steady_ns.seconds();
        let steadily = row.steady_batches >= STEADY_BATCHES && steady > 0.0;
        let share = if steadily { self.steady_blocked() / steady } else { self.budget() / wall };
        Some(share.min(1.0))
    }

    /// Time in calls on data files / time of fetches.
    pub(super) fn file_share(&self) -> Option<f64> {
        let fetch = self.fetch();
        (fetch > 0.0).then(|| (self.file() / fetch).min(1.0))
    }

    /// Time of fetches outside of calls on data files.
    pub(super) fn think(&self) -> f64 {
        (self.fetch() - self.file()).max(0.0)
    }

    /// Time of the workers on a CPU or ready for one, and the part of it in the run queue, in seconds.
    pub(super) fn busy(&self) -> Option<(f64, f64)> {
        let mut sum = None;
        for worker in &self.row.workers {
            if let Some(cpu) = worker.cpu_ns {
                let queue = worker.run_queue_ns.unwrap_or_default().seconds();
                let (busy, queued) = sum.unwrap_or((0.0, 0.0));
                sum = Some((busy + cpu.seconds() + queue, queued + queue));
            }
        }
        sum
    }

    /// Reads that began where the one before ended / reads.
    pub(super) fn sequential(&self) -> Option<f64> {
        let io = &self.row.io;
        (io.reads.count > 0).then(|| io.sequential.count as f64 / io.reads.count as f64)
    }

    pub(super) fn reads_per_open(&self) -> f64 {
        self.row.io.reads.count as f64 / self.row.io.opens.count.max(1) as f64
    }

    /// The size of read that half of the bytes were read with.
    pub(super) fn read_size(&self) -> Option<u64> {
        self.row.read_sizes.quantile_by_sum(0.5)
    }

    /// Whether more can have been read of mappings than by calls.
    pub(super) fn has_mappings(&self) -> bool {
        let files = &self.row.files;
        files.mapped_bytes.max(files.fault_piece_bytes).is_some_and(|bytes| bytes > self.asked())
    }

    /// Whether nearly all page faults of mappings were recorded.
    pub(super) fn has_all_faults(&self) -> bool {
        let files = &self.row.files;
        let lost = files.faults.map(|faults| ratio(files.faults_lost as f64, faults.max(1) as f64));
        let blind = ratio(files.faults_blind_ns.seconds(), self.wall());
        lost.is_some_and(|lost| lost <= 0.05) && blind <= 0.05
    }

    /// The median wait for a batch.
    pub(super) fn usual_wait(&self) -> f64 {
        self.row.wait_times.quantile(0.5).map_or(0.0, |ns| Nanos(ns).seconds())
    }

    /// Samples, or batches where samples were not counted.
    pub(super) fn amount(&self) -> Option<u64> {
        self.row.samples.or(Some(self.row.batches)).filter(|amount| *amount > 0)
    }

    /// Part of the calls that were counted in the sample of files.
    pub(super) fn of_all(&self, sampled: u64) -> f64 {
        let share = self.row.files.share;
        if share > 0.0 && share <= 1.0 { sampled as f64 / share } else { sampled as f64 }
    }

    /// Workers that fetched something.
    pub(super) fn active(&self) -> impl Iterator<Item = &WorkerRow> {
        self.row.workers.iter().filter(|worker| worker.fetches > 0)
    }

    /// Mean size of the job's files.
    pub(super) fn bytes_per_open(&self) -> Option<f64> {
        let opens = self.row.io.opens.count;
        (opens > 0).then(|| self.asked() as f64 / opens as f64)
    }
}

/// `part / whole`, or 0 for an empty whole.
pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
