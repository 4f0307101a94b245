//! Saves and restores checkpoints. A checkpointer lives as long as a run: it writes what training waits for, and does
//! the rest in the background: persisting snapshots and draining the fast tier. A checkpoint is complete on a tier once
//! its manifest exists there, which is written when everything else is durable.

mod alone;
mod content;
mod drain;
mod files;
mod restore;
mod save;
mod snapshot;
mod tiers;

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::checkpoint::manifest::{CheckpointManifest, Moment};
use model::checkpoint::{CheckpointPlan, SaveRecord, Schedule};
use model::units::Nanos;
use store::{StoreError, Tier};
use thiserror::Error;

use crate::events::{Emitter, Event, Events};
use crate::meter::Clock;
use crate::stop::Stop;
use files::{TransferFile, TransferThreads};
use save::WrittenCheckpoint;
use snapshot::{Snapshot, SnapshotPool};

pub use alone::alone;
pub use restore::RestoreRequest;

/// Why a save, a drain or a restore failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CheckpointError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0} is damaged: checksum mismatch with its manifest")]
    Checksum(String),
    #[error("{name}: {what}")]
    Content { name: String, what: String },
    #[error("{name} has {there} bytes, but its manifest lists {listed}")]
    Size { name: String, there: u64, listed: u64 },
    #[error("there is no complete checkpoint in {0}")]
    None(String),
    #[error("{asked} checkpoints are to be restored, but there are only {there} in {folder}")]
    TooFew { folder: String, there: u64, asked: u64 },
    #[error("the checkpoint in {folder} is of {there}, but {asked} is to be restored")]
    Other { folder: String, there: String, asked: String },
    #[error("{0} cannot be both the fast tier and the last tier; choose another checkpoint.burst_folder")]
    SameFolder(String),
    #[error("no slot on the fast tier is free, since draining fails: {0}")]
    NoSlot(String),
    #[error("cannot start a thread: {0}")]
    Thread(String),
    #[error("a checkpoint thread panicked: {0}")]
    Panicked(String),
    #[error("{0}")]
    Stuck(String),
    #[error("interrupted")]
    Interrupted,
}

/// The inputs of a checkpointer.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a bundle of references, one of them a clock")]
pub struct CheckpointSetup<'a> {
    pub plan: &'a CheckpointPlan,
    /// The model's name, for manifests.
    pub model: &'a str,
    pub seed: u64,
    /// The ranks whose files are saved and restored here. Other members of the run have tiers of their own.
    pub first_rank: u64,
    pub ranks: u64,
    /// The fast tier, if there is one, and the last tier.
    pub fast: Option<&'a dyn Tier>,
    pub last: &'a dyn Tier,
    pub clock: &'a dyn Clock,
    pub stop: &'a Stop,
    pub events: &'a Events,
}

impl CheckpointSetup<'_> {
    fn own_ranks(&self) -> Range<u64> {
        self.first_rank..self.first_rank + self.ranks
    }
}

/// Work for the background thread.
enum BackgroundTask {
    /// Copies a checkpoint to the last tier, after `tries` failed attempts.
    Drain {
        moment: Moment,
        tries: u32,
    },
    Persist(Snapshot),
    /// Completes a checkpoint for which training did not wait until it was durable.
    Seal(WrittenCheckpoint),
}

impl BackgroundTask {
    /// Whether this adds a complete checkpoint.
    fn completes(&self) -> bool {
        !matches!(self, BackgroundTask::Drain { .. })
    }
}

/// What the run and the background thread share.
#[derive(Default)]
struct BackgroundState {
    jobs: VecDeque<BackgroundTask>,
    /// Whether the background thread is working.
    at_work: bool,
    /// When it last became idle.
    rested: Nanos,
    /// Jobs that add a complete checkpoint, including the current one.
    completing: u64,
    /// Checkpoints on the fast tier that are not on the last one.
    undrained: BTreeSet<Moment>,
    /// Why drains fail, until one succeeds.
    drain_failure: Option<String>,
    saved: Vec<SaveRecord>,
    /// What failed with checkpoints of earlier runs.
    old_troubles: Vec<String>,
    /// The number of the newest checkpoint on any tier.
    serial: u64,
    closing: bool,
}

/// Saves, drains and restores during a run.
#[expect(missing_debug_implementations, reason = "holds a clock")]
pub struct Checkpointer<'a> {
    setup: CheckpointSetup<'a>,
    /// The files of the ranks here, and the number of the first.
    items: Vec<TransferFile>,
    first_file: u64,
    state: Mutex<BackgroundState>,
    changed: Condvar,
    /// Held while a complete checkpoint is read or removed.
    reading: Mutex<()>,
    /// Memory of snapshots.
    pool: Arc<SnapshotPool>,
    /// Number of threads that wait for background work.
    awaited: AtomicUsize,
    /// Shared by training and the background, which emit a few events per checkpoint.
    emitter: Emitter,
}

/// How long a wait lasts before it checks whether the run should stop.
const LOOK_AROUND: Duration = Duration::from_millis(50);

/// Calls `work`, which saves and restores, finishes the background work, and returns what was recorded of every save.
/// First it recovers what an earlier run left unfinished on the tiers.
pub fn keep<'a, T>(
    setup: CheckpointSetup<'a>,
    work: impl FnOnce(&Checkpointer<'a>) -> T,
) -> Result<(T, Vec<SaveRecord>), CheckpointError> {
    let items = files::items(&setup.plan.geometry, &setup.own_ranks());
    let checkpointer = Checkpointer {
        setup,
        first_file: items.iter().map(|item| item.number).min().unwrap_or(0),
        items,
        state: Mutex::default(),
        changed: Condvar::new(),
        reading: Mutex::default(),
        pool: Arc::new(SnapshotPool::new(setup.plan.pool_bytes)),
        awaited: AtomicUsize::new(0),
        emitter: Emitter::default(),
    };
    let _alone = checkpointer.lock()?;
    checkpointer.recover()?;
    let done = std::thread::scope(|scope| -> Result<T, CheckpointError> {
        let builder = std::thread::Builder::new().name("checkpointer".to_owned());
        let background = builder
            .spawn_scoped(scope, || checkpointer.work_in_background())
            .map_err(|cause| CheckpointError::Thread(cause.to_string()))?;
        let closes = CloseGuard(&checkpointer);
        let done = work(&checkpointer);
        drop(closes);
        // It catches the panics of its workers; a panic of its own is a defect and must show.
        if let Err(panic) = background.join() {
            std::panic::resume_unwind(panic);
        }
        Ok(done)
    })?;
    let BackgroundState { mut saved, old_troubles, .. } =
        checkpointer.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Earlier runs have no save in this ledger to be reported with.
    if let Some(last) = saved.last_mut() {
        last.troubles.extend(old_troubles.into_iter().map(|text| format!("of an earlier run: {text}")));
    }
    Ok((done, saved))
}

/// Tells the background thread that no more work will come, also if the run panics.
struct CloseGuard<'k, 'a>(&'k Checkpointer<'a>);

impl Drop for CloseGuard<'_, '_> {
    fn drop(&mut self) {
        self.0.state().closing = true;
        // Relaxed: only the watchdog reads it. From now on the run waits for all remaining work.
        self.0.awaited.fetch_add(1, Ordering::Relaxed);
        self.0.changed.notify_all();
    }
}

impl<'a> Checkpointer<'a> {
    fn state(&self) -> MutexGuard<'_, BackgroundState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        self.setup.clock.now()
    }

    /// When checkpoints are taken.
    pub(crate) fn schedule(&self) -> Schedule {
        self.setup.plan.schedule
    }

    /// Whether no bytes are stored and time is simulated; this is the same for both tiers.
    fn is_simulated(&self) -> bool {
        !self.setup.last.files().holds_files()
    }

    /// Threads for work that training waits for.
    fn threads(&self) -> TransferThreads<'_> {
        let plan = self.setup.plan;
        TransferThreads {
            threads: plan.writers() as usize,
            chunk_bytes: plan.chunk_bytes as usize,
            clock: self.setup.clock,
            stop: self.setup.stop,
            events: self.setup.events,
            unhurried: self.is_simulated(),
            awaited: None,
        }
    }

    /// Threads for background work: a lack of progress only matters while a thread waits for them.
    fn background_threads(&self) -> TransferThreads<'_> {
        TransferThreads { awaited: Some(&self.awaited), ..self.threads() }
    }

    /// Waits for background work.
    fn awaiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        // Relaxed: only the watchdog reads it.
        self.awaited.fetch_add(1, Ordering::Relaxed);
        let done = wait();
        self.awaited.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Waits until something has changed, at most for `LOOK_AROUND`.
    fn wait<'s>(&self, state: MutexGuard<'s, BackgroundState>) -> MutexGuard<'s, BackgroundState> {
        let waited = self.changed.wait_timeout(state, LOOK_AROUND);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Changes the record of the last save of a moment.
    fn note(&self, moment: Moment, change: impl FnOnce(&mut SaveRecord)) {
        let mut state = self.state();
        if let Some(saved) = state.saved.iter_mut().rev().find(|saved| saved.moment == moment) {
            change(saved);
        }
    }

    fn emit(&self, event: Event) {
        self.emitter.emit(self.setup.events, self.now(), event);
    }

    /// Records that a checkpoint is complete. A checkpoint of an earlier run is not a save of this one.
    fn completed(&self, manifest: &CheckpointManifest, on_fast: bool, change: impl FnOnce(&mut SaveRecord)) {
        let mut state = self.state();
        if let Some(saved) = state.saved.iter_mut().find(|saved| saved.serial == manifest.serial) {
            change(saved);
        }
        drop(state);
        self.emit(Event::CheckpointComplete { moment: manifest.moment, on_fast });
    }

    /// Records what failed in a save, once for each cause.
    fn trouble(&self, moment: Moment, text: String) {
        let mut state = self.state();
        let BackgroundState { saved, old_troubles, .. } = &mut *state;
        let seen = saved.iter_mut().rev().find(|saved| saved.moment == moment);
        let troubles = seen.map_or(old_troubles, |saved| &mut saved.troubles);
        if !troubles.contains(&text) {
            troubles.push(text);
        }
    }

    /// Whether there is background work, or was after this moment.
    pub(crate) fn was_at_work_since(&self, moment: Nanos) -> bool {
        let state = self.state();
        state.at_work || !state.jobs.is_empty() || state.rested > moment
    }

    /// Waits until there is no background work, or only drains that keep failing.
    fn settle(&self) {
        self.awaiting(|| {
            let mut state = self.state();
            while (state.at_work || !state.jobs.is_empty())
                && (state.completing > 0 || state.drain_failure.is_none())
                && !self.setup.stop.wished()
            {
                state = self.wait(state);
            }
        });
    }

    /// Prevents complete checkpoints from being removed while they are read, and vice versa.
    fn reading(&self) -> MutexGuard<'_, ()> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the run saves nothing.
    fn only_reads(&self) -> bool {
        matches!(self.setup.plan.schedule, Schedule::Alone { saves: 0, .. })
    }

    /// Whether a checkpoint is of this run's model, with the same distribution and scale, and of the same ranks.
    fn is_ours(&self, manifest: &CheckpointManifest) -> bool {
        let ranks = self.setup.own_ranks();
        manifest.model == self.setup.model
            && manifest.geometry == self.setup.plan.geometry.digest()
            && manifest.files.len() == self.items.len()
            && manifest.files.iter().all(|file| ranks.contains(&file.rank))
    }

    /// The place of a file in manifests and snapshots.
    fn place(&self, item: &TransferFile) -> usize {
        (item.number - self.first_file) as usize
    }

    fn push(&self, job: BackgroundTask) {
        let mut state = self.state();
        state.completing += u64::from(job.completes());
        match job {
            // It is done quickly, and until then a crash loses the checkpoint.
            BackgroundTask::Seal(_) => state.jobs.push_front(job),
            job => state.jobs.push_back(job),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Does the background work, one job after another, until no more will come.
    fn work_in_background(&self) {
        loop {
            let mut state = self.state();
            let job = loop {
                if let Some(job) = state.jobs.pop_front() {
                    state.at_work = true;
                    break job;
                }
                if state.closing {
                    return;
                }
                state = self.wait(state);
            };
            drop(state);
            let completes = job.completes();
            match job {
                BackgroundTask::Drain { moment, tries } => self.drain(moment, tries),
                BackgroundTask::Persist(snapshot) => self.persist(snapshot),
                BackgroundTask::Seal(written) => self.seal_later(&written),
            }
            let mut state = self.state();
            (state.at_work, state.rested) = (false, self.now());
            state.completing -= u64::from(completes);
            drop(state);
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
