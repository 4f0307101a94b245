//! Saves and restores checkpoints. A checkpointer lives as long as a run: it writes what training waits for, and does
//! the rest in the background: persisting snapshots and draining the fast tier. A checkpoint is complete on a tier once
//! its manifest exists there, which is written when everything else is durable.
//!
//! All members of a run save one checkpoint together, and each of them calls `save` and `restore` in the same order. On
//! the last tier, member 0 completes it; on a fast tier, one member of each host does (`members.rs`).

mod alone;
mod content;
mod drain;
mod files;
mod jobs;
mod members;
mod restore;
mod save;
mod snapshot;
mod survey;
mod tiers;

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::checkpoint::manifest::{CheckpointManifest, Moment};
use model::checkpoint::{CheckpointPlan, SaveRecord, Schedule};
use model::spans::{OperationSpan, SpanKind, SpanTrack};
use model::units::Nanos;
use store::{StoreError, Tier};
use thiserror::Error;

use crate::events::{Emitter, Event, Events, RARELY, SpanSource};
use crate::meter::Clock;
use crate::stop::Stop;
use crate::world::{EarlyEnd, World};
use files::{TransferFile, TransferThreads};
use jobs::BackgroundTask;
use members::Sharers;
use snapshot::SnapshotPool;

pub use alone::alone;
pub use members::note_end;
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
    #[error(
        "{folder} on {node} is not the folder that {first} has there; all nodes must share the checkpoint folder: \
         choose one on a shared file system"
    )]
    NotShared { folder: String, node: String, first: String },
    #[error(
        "{file} is on the fast tier of another node, and the checkpoint has not been drained to the last tier; restore \
         it after the drain, or without checkpoint.recovery_rank_shift"
    )]
    OnOtherNode { file: String },
    /// It failed at another member, which has recorded it.
    #[error("{0}")]
    Elsewhere(String),
    /// The run ends early.
    #[error("{0}")]
    Member(Box<EarlyEnd>),
}

impl From<EarlyEnd> for CheckpointError {
    fn from(ended: EarlyEnd) -> CheckpointError {
        CheckpointError::Member(Box::new(ended))
    }
}

impl CheckpointError {
    /// Whether a checkpoint cannot be drained because it is damaged.
    fn is_damage(&self) -> bool {
        use CheckpointError::{Checksum, Content, None, Size};
        matches!(self, Checksum(_) | Size { .. } | Content { .. } | None(_))
    }
}

/// The inputs of a checkpointer.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a bundle of references, one of them a clock")]
pub struct CheckpointSetup<'a> {
    pub plan: &'a CheckpointPlan,
    /// The model's name, for manifests.
    pub model: &'a str,
    pub seed: u64,
    /// The members of the run, from the point of view of this one, which saves and restores the files of its ranks.
    pub world: &'a dyn World,
    /// The fast tier, if there is one, and the last tier. The members of a host share the fast tier, all members the
    /// last one.
    pub fast: Option<&'a dyn Tier>,
    pub last: &'a dyn Tier,
    pub clock: &'a dyn Clock,
    pub stop: &'a Stop,
    pub events: &'a Events,
}

impl CheckpointSetup<'_> {
    fn own_ranks(&self) -> Range<u64> {
        self.world.ranks(self.plan.geometry.ranks)
    }

    /// Whether the run saves nothing.
    fn only_reads(&self) -> bool {
        matches!(self.plan.schedule, Schedule::Alone { saves: 0, .. })
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
    /// Why the run ends early, if it does.
    ended: Option<EarlyEnd>,
}

/// Saves, drains and restores during a run.
#[expect(missing_debug_implementations, reason = "holds a clock")]
pub struct Checkpointer<'a> {
    setup: CheckpointSetup<'a>,
    /// The files of the ranks here, and the number of the first.
    items: Vec<TransferFile>,
    first_file: u64,
    /// The members that share the folders of each tier.
    fast_sharers: Sharers,
    last_sharers: Sharers,
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
    /// Where the times of checkpoints are recorded, if a listener asks for them.
    spans: Option<Mutex<SpanSource>>,
}

/// How long a wait lasts before it checks whether the run should stop.
const LOOK_AROUND: Duration = Duration::from_millis(50);

/// What `keep` returns.
#[derive(Debug)]
pub struct KeptRun<T> {
    pub done: T,
    /// What this member recorded of every save.
    pub saves: Vec<SaveRecord>,
    /// Why the run ended early, if a member failed or left while others saved or waited for it.
    pub ended: Option<EarlyEnd>,
}

/// Calls `work`, which saves and restores, finishes the background work, and returns what was recorded of every save.
/// First it recovers what an earlier run left unfinished on the tiers.
pub fn keep<'a, T>(
    setup: CheckpointSetup<'a>,
    work: impl FnOnce(&Checkpointer<'a>) -> T,
) -> Result<KeptRun<T>, CheckpointError> {
    let items = files::items(&setup.plan.geometry, &setup.own_ranks());
    let checkpointer = Checkpointer {
        setup,
        first_file: items.iter().map(|item| item.number).min().unwrap_or(0),
        items,
        fast_sharers: members::sharers_of_fast(&setup)?,
        last_sharers: members::sharers_of_last(&setup),
        state: Mutex::default(),
        changed: Condvar::new(),
        reading: Mutex::default(),
        pool: Arc::new(SnapshotPool::new(setup.plan.pool_bytes)),
        awaited: AtomicUsize::new(0),
        emitter: Emitter::default(),
        spans: setup.events.span_source(RARELY).map(Mutex::new),
    };
    let _alone = members::agreed(&setup, checkpointer.lock())?;
    members::check_last_is_shared(&setup)?;
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
    let BackgroundState { saved: mut saves, old_troubles, ended, .. } =
        checkpointer.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Earlier runs have no save in this ledger to be reported with.
    if let Some(last) = saves.last_mut() {
        last.troubles.extend(old_troubles.into_iter().map(|text| format!("of an earlier run: {text}")));
    }
    Ok(KeptRun { done, saves, ended })
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

    /// The plan, which says when checkpoints are taken.
    pub(crate) fn plan(&self) -> &CheckpointPlan {
        self.setup.plan
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
            tiers: [self.setup.fast, Some(self.setup.last)],
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

    /// Records a time of a checkpoint for listeners.
    fn trace(&self, kind: SpanKind, (moment, bytes): (Moment, u64), at: Nanos, took: Nanos) {
        let track = match kind {
            SpanKind::Drain => SpanTrack::Drains,
            SpanKind::Fast | SpanKind::Durable => SpanTrack::Durability,
            _ => SpanTrack::Checkpoints,
        };
        let Some(spans) = &self.spans else { return };
        let span = OperationSpan::new(kind, track, at, took);
        let step = Some(moment.step as u32);
        let span = OperationSpan { epoch: moment.epoch, step, bytes, ..span };
        spans.lock().unwrap_or_else(PoisonError::into_inner).record(&span);
    }

    /// Records that a checkpoint is complete. A checkpoint of an earlier run is not a save of this one.
    fn completed(
        &self,
        (moment, serial): (Moment, u64),
        on_fast: bool,
        change: impl FnOnce(&mut SaveRecord),
    ) {
        let mut state = self.state();
        if let Some(saved) = state.saved.iter_mut().find(|saved| saved.serial == serial) {
            let (was_complete, was_drained) = (saved.is_complete(), saved.drain_ns.is_some());
            change(saved);
            let counters = self.setup.events.counters();
            if saved.is_complete() && !was_complete {
                counters.add_save(saved.bytes);
            }
            if saved.drain_ns.is_some() && !was_drained {
                counters.add_drained();
            }
        }
        drop(state);
        self.emit(Event::CheckpointComplete { moment, on_fast });
    }

    /// Records why a save or a drain failed. The end of the run is no problem of the save, and what failed at another
    /// member is recorded there.
    fn failed(&self, moment: Moment, what: &str, cause: CheckpointError) {
        match cause {
            CheckpointError::Member(ended) => self.end(*ended),
            CheckpointError::Elsewhere(_) => {}
            cause => self.trouble(moment, &format!("{what}{cause}")),
        }
    }

    /// Records what failed in a save, once for each cause.
    fn trouble(&self, moment: Moment, text: &str) {
        let (text, mut state) = (self.named(text), self.state());
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
    pub(crate) fn settle(&self) {
        self.awaiting(|| {
            let mut state = self.state();
            while (state.at_work || !state.jobs.is_empty())
                && (state.completing > 0 || state.drain_failure.is_none())
                && state.ended.is_none()
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

    /// Whether a checkpoint is of this run's model, with the same distribution and scale, and of all its ranks.
    fn is_ours(&self, manifest: &CheckpointManifest) -> bool {
        let geometry = &self.setup.plan.geometry;
        manifest.model == self.setup.model
            && manifest.geometry == geometry.digest()
            && manifest.files.len() as u64 == geometry.file_count()
            && manifest.files.iter().all(|file| file.rank < geometry.ranks)
    }

    /// The place of a file among those of this member.
    fn place(&self, item: &TransferFile) -> usize {
        (item.number - self.first_file) as usize
    }
}

#[cfg(test)]
mod tests;
