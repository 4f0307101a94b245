//! The walk through the tree: folders, and batches of names of large folders, are distributed to any number of threads.
//! Batches come first and the deepest folders next, so that begun folders are finished and memory use stays small.
//! Of several members, member 0 keeps the folders to be listed and the records; `members` has their messages.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::catalog::merge;
use store::{Hint, Listing, Operation, Prefix};

use super::journal::{FolderRecord, ListingJournal};
use super::known::{EarlierListing, failed, join, whole};
use super::list::{FolderContents, NameBatch, OpenFolder, left_out, refused};
use super::members::{self, FolderAnswer, Outbox};
use super::{ScanError, SkipReason, SkippedEntries};
use crate::events::Events;
use crate::meter;
use crate::stop::Stop;
use crate::waits;
use crate::watchdog::{Watched, WorkerStatus, guard};
use crate::world::{self, Exchange};

/// Buffer for the answer to one request for names: about two thousand names.
const NAMES_BYTES: usize = 128 << 10;
/// The coarsest resolution of a modification time on a local file system: a tick of the slowest kernel clock, 10 ms,
/// doubled.
const TIME_STEP: Duration = Duration::from_millis(20);
/// A time further in the future than a listing lasts was set explicitly or by a wrong clock: no change now will set it
/// again.
const FUTURE: Duration = Duration::from_secs(24 * 3600);
/// How often to wait for a folder that is being written to.
const PATIENCE: usize = 10;
/// Files between two checks of the stop and two additions to the counters.
const LOOK_UP: u64 = 256;
/// Files between two signs of progress for the watchdog.
const BEAT: u64 = 16;

/// What to list, and by which rules.
#[derive(Clone, Copy)]
pub(super) struct ListTask<'a> {
    pub(super) listing: &'a dyn Listing,
    pub(super) root_path: &'a Path,
    pub(super) suffixes: &'a [Vec<u8>],
    pub(super) threads: usize,
    pub(super) world: &'a dyn Exchange,
    pub(super) stop: &'a Stop,
    pub(super) events: &'a Events,
}

/// Where records come from and go to.
pub(super) enum WalkRecords<'a> {
    /// Of member 0.
    Kept { known: &'a EarlierListing, journal: &'a ListingJournal },
    /// Of another member, which sends them. `begun_ns`: when the listing began.
    Sent { outbox: Outbox, begun_ns: i64 },
}

/// A folder to be listed.
#[derive(Debug)]
pub(super) struct PendingFolder {
    pub(super) path: Vec<u8>,
    /// Modification times for which member 0 has a record of it, for a member that is not member 0. `None` until member
    /// 0 has looked them up.
    pub(super) times: Option<Vec<i64>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct WalkCounts {
    pub(super) folders_reused: u64,
    pub(super) skipped: SkippedEntries,
}

pub(super) struct FolderWalk<'a> {
    task: ListTask<'a>,
    records: WalkRecords<'a>,
    state: Mutex<WalkState>,
    change: Condvar,
    /// Set with the first failure, so that threads in the middle of a batch stop.
    abort: Stop,
    /// Progress and current work of each thread, for the watchdog.
    beats: AtomicU64,
    roster: WorkerStatus,
}

#[derive(Default)]
struct WalkState {
    folders: Vec<PendingFolder>,
    batches: Vec<(Arc<OpenFolder>, NameBatch)>,
    /// Threads that are working and may add to both.
    active: usize,
    /// Folders that other members are listing, which may add to both, too. At another member than 0, 1 until member 0
    /// has no more folders.
    away: usize,
    failure: Option<ScanError>,
    counts: WalkCounts,
}

impl WalkState {
    /// Whether there is nothing that a thread could do now.
    fn is_empty(&self) -> bool {
        self.active == 0 && self.folders.is_empty() && self.batches.is_empty()
    }
}

enum WalkItem {
    Folder(PendingFolder),
    Batch(Arc<OpenFolder>, NameBatch),
}

impl WalkItem {
    fn path(&self) -> &[u8] {
        match self {
            WalkItem::Folder(folder) => &folder.path,
            WalkItem::Batch(folder, _) => &folder.path,
        }
    }
}

impl<'a> FolderWalk<'a> {
    pub(super) fn new(task: ListTask<'a>, records: WalkRecords<'a>) -> FolderWalk<'a> {
        let root = PendingFolder { path: Vec::new(), times: None };
        let (folders, away) = if task.world.member() == 0 { (vec![root], 0) } else { (Vec::new(), 1) };
        let state = WalkState { folders, away, ..WalkState::default() };
        let (state, change) = (Mutex::new(state), Condvar::new());
        let (abort, beats) = (Stop::default(), AtomicU64::new(0));
        let roster = WorkerStatus::new("lister", task.threads.max(1));
        FolderWalk { task, records, state, change, abort, beats, roster }
    }

    /// Lists everything, starting at the root.
    pub(super) fn run(self) -> Result<WalkCounts, ScanError> {
        guard(self.task.stop, &self, || self.work_together());
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        match state.failure {
            // A stop that is requested here ends the listing of all members, which this one learns, too.
            Some(ScanError::Elsewhere(_)) if self.task.stop.requested() => Err(ScanError::Interrupted),
            Some(error) => Err(error),
            None => Ok(state.counts),
        }
    }

    fn work_together(&self) {
        std::thread::scope(|scope| {
            for thread in 0..self.task.threads.max(1) {
                let lister = std::thread::Builder::new().name("lister".to_owned());
                if let Err(cause) = lister.spawn_scoped(scope, move || self.work(thread)) {
                    self.fail(ScanError::Thread(cause));
                }
            }
            if self.task.world.members() > 1 {
                let rounds = || members::exchange(self, self.task.world, self.task.stop);
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(rounds));
                if let Err(error) = outcome.unwrap_or(Err(ScanError::Panicked)) {
                    self.fail(error);
                }
            }
        });
    }

    /// Whether the listing ends early.
    pub(super) fn is_ending(&self) -> bool {
        self.state().failure.is_some()
    }

    /// Whether everything is listed, here and at other members.
    pub(super) fn is_over(&self) -> bool {
        let state = self.state();
        state.is_empty() && state.away == 0
    }

    /// A folder that another member is to list.
    pub(super) fn give_away(&self) -> Option<PendingFolder> {
        let WalkRecords::Kept { known, .. } = &self.records else { return None };
        let mut state = self.state();
        let folder = state.folders.pop()?;
        state.away += 1;
        drop(state);
        let times = folder.times.unwrap_or_else(|| known.times(&folder.path));
        Some(PendingFolder { path: folder.path, times: Some(times) })
    }

    /// Takes the answer of another member.
    pub(super) fn take(&self, answer: FolderAnswer) -> Result<(), ScanError> {
        self.beat();
        match answer {
            FolderAnswer::Listed { record, skipped } => {
                record.subfolders.iter().for_each(|name| self.add_folder(join(&record.path, name)));
                self.keep(record, *skipped)?;
            }
            FolderAnswer::Unchanged { path, mtime_ns } => {
                if !self.take_over(&path, &[], mtime_ns)? {
                    // The catalog is damaged there, so that the folder must be listed again.
                    self.add(PendingFolder { path, times: Some(Vec::new()) });
                }
            }
        }
        self.state().away -= 1;
        self.change.notify_all();
        Ok(())
    }

    /// Adds a folder that member 0 has dealt out.
    pub(super) fn add(&self, folder: PendingFolder) {
        self.state().folders.push(folder);
        self.change.notify_one();
    }

    /// How many more folders this member can take.
    pub(super) fn room(&self) -> u64 {
        let state = self.state();
        (2 * self.task.threads.max(1)).saturating_sub(state.folders.len() + state.batches.len()) as u64
    }

    /// What this member has found, if it sends it.
    pub(super) fn outbox(&self) -> Option<&Outbox> {
        match &self.records {
            WalkRecords::Kept { .. } => None,
            WalkRecords::Sent { outbox, .. } => Some(outbox),
        }
    }

    /// Member 0 has no more folders.
    pub(super) fn close(&self) {
        self.state().away = 0;
        self.change.notify_all();
    }

    /// Counts progress. Relaxed: it only matters that the value changes.
    fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, WalkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: ScanError) {
        let cause = world::cause(&error, self.task.stop);
        let is_elsewhere = matches!(error, ScanError::Elsewhere(_));
        let mut state = self.state();
        let is_first = state.failure.is_none();
        state.failure.get_or_insert(error);
        drop(state);
        self.abort.wish();
        self.change.notify_all();
        if is_first && !is_elsewhere {
            self.task.world.announce(cause);
        }
    }

    /// The loop of a thread, until nothing is left.
    fn work(&self, thread: usize) {
        let _left = waits::leave_to_phase();
        let mut scratch = vec![MaybeUninit::uninit(); NAMES_BYTES];
        while let Some(work) = self.next() {
            let path = whole(self.task.root_path, work.path());
            self.roster.begin(thread, Operation::List, &path.to_string_lossy());
            // After a panic the other threads must not wait for work that never comes.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match work {
                WalkItem::Folder(folder) => self.list(folder, &mut scratch),
                WalkItem::Batch(folder, batch) => self.measure(&folder, batch),
            }));
            match outcome.unwrap_or(Err(ScanError::Panicked)) {
                Ok(()) => {}
                Err(error) => self.fail(error),
            }
            self.roster.end(thread);
            let mut state = self.state();
            state.active -= 1;
            if state.is_empty() {
                self.change.notify_all();
            }
        }
    }

    /// The next piece of work; waits while other threads may still add some.
    fn next(&self) -> Option<WalkItem> {
        let mut state = self.state();
        loop {
            if state.failure.is_some() {
                return None;
            }
            let batch = state.batches.pop().map(|(folder, batch)| WalkItem::Batch(folder, batch));
            if let Some(work) = batch.or_else(|| state.folders.pop().map(WalkItem::Folder)) {
                state.active += 1;
                return Some(work);
            }
            if state.active == 0 && state.away == 0 {
                return None;
            }
            state = self.change.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Adds a folder that was found. Another member than 0 reports it with the record of the folder that it is in.
    fn add_folder(&self, path: Vec<u8>) {
        if let WalkRecords::Kept { .. } = self.records {
            self.add(PendingFolder { path, times: None });
        }
    }

    fn check_stop(&self) -> Result<(), ScanError> {
        if self.task.stop.wished() || self.abort.wished() { Err(ScanError::Interrupted) } else { Ok(()) }
    }

    /// Lists a folder, or reuses its earlier listing.
    fn list(&self, folder: PendingFolder, scratch: &mut [MaybeUninit<u8>]) -> Result<(), ScanError> {
        self.check_stop()?;
        let PendingFolder { path, times } = folder;
        let prefix =
            self.task.listing.open(&path).map_err(|cause| self.failed("open the folder", &path, cause))?;
        let mtime_ns = self.settled_mtime(&*prefix, &path)?;
        if self.take_over(&path, &times.unwrap_or_default(), mtime_ns)? {
            return Ok(());
        }
        let (pending, found) = (AtomicUsize::new(1), Mutex::default());
        let folder = Arc::new(OpenFolder { prefix, path, mtime_ns, pending, found });
        let last = self.names(&folder, scratch)?;
        self.measure(&folder, last)
    }

    /// The folder's modification time, once it is so old that the next change to the folder will result in a different
    /// one. Otherwise a file that is added right after the listing, in the same tick of the clock, would go unnoticed.
    fn settled_mtime(&self, prefix: &dyn Prefix, path: &[u8]) -> Result<i64, ScanError> {
        let look = || prefix.version().map_err(|cause| self.failed("stat the folder", path, cause));
        let mut last = look()?;
        let begun_ns = match &self.records {
            WalkRecords::Kept { journal, .. } => journal.file.begun_ns,
            WalkRecords::Sent { begun_ns, .. } => *begun_ns,
        };
        let recent = begun_ns.saturating_sub(TIME_STEP.as_nanos() as i64)
            ..begun_ns.saturating_add(FUTURE.as_nanos() as i64);
        for _ in 0..PATIENCE {
            if !recent.contains(&last) {
                return Ok(last);
            }
            meter::pause(TIME_STEP);
            let now = look()?;
            if now == last {
                return Ok(now);
            }
            last = now;
        }
        Err(ScanError::Changed(whole(self.task.root_path, path)))
    }

    /// Reuses the listing of a folder that has not changed. Its subfolders may have. `times`: those for which member 0
    /// has a listing, if this is another member.
    fn take_over(&self, path: &[u8], times: &[i64], mtime_ns: i64) -> Result<bool, ScanError> {
        let (known, journal) = match &self.records {
            WalkRecords::Kept { known, journal } => (known, journal),
            WalkRecords::Sent { outbox, .. } if times.contains(&mtime_ns) => {
                outbox.add(&FolderAnswer::Unchanged { path: path.to_vec(), mtime_ns });
                return Ok(true);
            }
            WalkRecords::Sent { .. } => return Ok(false),
        };
        let (subfolders, files, bytes) = if let Some(finished) = known.in_journal(path, mtime_ns) {
            let record = journal.read(finished)?;
            journal.keep(record.path, finished);
            (record.subfolders, record.folder.files, record.folder.bytes)
        } else if let Some(mut record) = known.in_catalog(path, mtime_ns) {
            let (files, bytes) = (record.folder.files, record.folder.bytes);
            let subfolders = record.subfolders.clone();
            record.subfolders.sort();
            journal.append(record)?;
            (subfolders, files, bytes)
        } else {
            return Ok(false);
        };
        subfolders.iter().for_each(|name| self.add_folder(join(path, name)));
        self.task.events.counters().add_files(files, bytes);
        self.state().counts.folders_reused += 1;
        Ok(true)
    }

    /// Reads the folder's names. Full batches go to the shared queue; the last one is returned.
    fn names(
        &self,
        folder: &Arc<OpenFolder>,
        scratch: &mut [MaybeUninit<u8>],
    ) -> Result<NameBatch, ScanError> {
        let mut batch = NameBatch::default();
        let mut found = FolderContents::default();
        let mut names = folder.prefix.names(scratch);
        let failed = |cause| self.failed("list", &folder.path, cause);
        while names
            .next(&mut |name, hint| self.sort(folder, name, hint, &mut batch, &mut found))
            .map_err(failed)?
        {
            if batch.is_full() {
                self.beat();
                self.check_stop()?;
                // Relaxed: this thread holds a count itself, so it cannot reach 0 here; the queue's lock publishes the
                // batch.
                folder.pending.fetch_add(1, Ordering::Relaxed);
                self.hand_out(folder, std::mem::take(&mut batch))?;
            }
        }
        let mut all = folder.found();
        all.subfolders.append(&mut found.subfolders);
        all.skipped.add(&[], &found.skipped);
        Ok(batch)
    }

    /// Sorts an entry: a folder will be listed, and what may be a file goes into the batch.
    fn sort(
        &self,
        folder: &OpenFolder,
        name: &CStr,
        hint: Hint,
        batch: &mut NameBatch,
        found: &mut FolderContents,
    ) {
        if left_out(name.to_bytes(), hint, self.task.suffixes, &mut found.skipped) {
            return;
        }
        match hint {
            Hint::Folder => {
                self.add_folder(join(&folder.path, name.to_bytes()));
                found.subfolders.push(name.to_bytes().to_vec());
            }
            Hint::File | Hint::Sized(_) | Hint::Link | Hint::Unknown => batch.push(name, hint),
            Hint::Special => found.skipped.note(SkipReason::Special, name.to_bytes()),
        }
    }

    /// Queues a batch. If enough of them are queued, names arrive faster than sizes: then the batch is processed right
    /// here, so that a folder of any size is in memory as encoded runs and not as names.
    fn hand_out(&self, folder: &Arc<OpenFolder>, batch: NameBatch) -> Result<(), ScanError> {
        let mut state = self.state();
        if state.batches.len() >= self.task.threads {
            drop(state);
            return self.measure(folder, batch);
        }
        state.batches.push((Arc::clone(folder), batch));
        self.change.notify_one();
        Ok(())
    }

    /// Looks up the sizes of a batch. The last thread finishes the folder.
    fn measure(&self, folder: &Arc<OpenFolder>, mut batch: NameBatch) -> Result<(), ScanError> {
        let (mut files, mut bytes) = (0, 0u64);
        let mut found = batch.measure(self.task.root_path, folder, |size| {
            files += 1;
            bytes = bytes.saturating_add(size);
            if files % BEAT == 0 {
                self.beat();
            }
            if files == LOOK_UP {
                self.task.events.counters().add_files(std::mem::take(&mut files), std::mem::take(&mut bytes));
                self.check_stop()?;
            }
            Ok(())
        })?;
        self.task.events.counters().add_files(files, bytes);
        found.subfolders.iter().for_each(|name| self.add_folder(join(&folder.path, name)));
        let run = batch.encode(self.task.root_path, folder)?;
        {
            let mut all = folder.found();
            all.subfolders.append(&mut found.subfolders);
            all.skipped.add(&[], &found.skipped);
            if run.files > 0 {
                all.runs.push(run);
            }
        }
        // The lock on `found` orders the runs; acquire and release so that the last thread sees them without it, too.
        match folder.pending.fetch_sub(1, Ordering::AcqRel) {
            1 => self.finish(folder),
            _ => Ok(()),
        }
    }

    /// Merges the runs of a folder, checks that the folder did not change meanwhile, and adds it to the journal.
    fn finish(&self, folder: &OpenFolder) -> Result<(), ScanError> {
        let FolderContents { runs, mut subfolders, skipped } = std::mem::take(&mut *folder.found());
        let whole_folder = merge(runs).map_err(|error| refused(self.task.root_path, folder, error))?;
        let now =
            folder.prefix.version().map_err(|cause| self.failed("stat the folder", &folder.path, cause))?;
        if now != folder.mtime_ns {
            return Err(ScanError::Changed(whole(self.task.root_path, &folder.path)));
        }
        subfolders.sort();
        let path = folder.path.clone();
        self.keep(FolderRecord { path, mtime_ns: now, subfolders, folder: whole_folder }, skipped)
    }

    /// Adds the record of a folder to the journal, or sends it.
    fn keep(&self, record: FolderRecord, skipped: SkippedEntries) -> Result<(), ScanError> {
        match &self.records {
            WalkRecords::Kept { journal, .. } => {
                self.state().counts.skipped.add(&record.path, &skipped);
                journal.append(record)
            }
            WalkRecords::Sent { outbox, .. } => {
                outbox.add(&FolderAnswer::Listed { record, skipped: Box::new(skipped) });
                Ok(())
            }
        }
    }

    fn failed(&self, operation: &'static str, path: &[u8], cause: io::Error) -> ScanError {
        failed(operation, self.task.root_path, path, cause)
    }
}

impl Watched for FolderWalk<'_> {
    fn progress(&self) -> u64 {
        self.beats.load(Ordering::Relaxed).wrapping_add(self.roster.progress())
    }

    /// A member may have to wait for folders that others find.
    fn is_busy(&self) -> bool {
        self.task.world.members() > 1 && self.state().is_empty()
    }

    fn waits(&self) -> Vec<String> {
        self.roster.waits()
    }

    fn ending(&self) -> Option<String> {
        self.state().failure.as_ref().map(ToString::to_string)
    }

    fn end(&self, cause: String) {
        self.fail(ScanError::Stuck(cause));
    }
}
