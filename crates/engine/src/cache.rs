//! The page cache around a phase: brought into the planned state before the phase begins, with the resident pages
//! before and after that counted, and the bytes that the storage delivered meanwhile. What cannot be determined is
//! reported with the reason.
//!
//! The members on a node share its page cache. Its first member prepares it for all of them, with the files that their
//! ranks read, and the others wait: all members agree to begin before each phase.

use std::fs;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use model::extent::Extent;
use model::files::FileList;
use model::ledger::{CachePreparation, Counted, ObservedCache, Phase};
use model::names::Name;
use model::order::{EpochOrder, Order, Shards, Unit, mix};
use model::plan::{CachePlan, PhasePlan, TrainingPlan};
use model::spec::CacheState;
use model::units::grouped;
use rustix::fd::OwnedFd;
use store::page_cache::{self, Denied, PageCache};
use store::{EpochReads, Footprint, Operation, PageCount, Probe, Proof, StorageStack};
use thiserror::Error;

use crate::backing::{Backing, CountOwner, StorageCounts};
use crate::events::{Emitter, Event};
use crate::loader::PhaseRun;
use crate::meter;
use crate::train::TrainingSetup;
use crate::watchdog::{Watched, WorkerStatus, guard};
use crate::world::{EarlyEnd, Exchange, alongside};

/// Pages that were just in use can be evicted a moment later, so eviction is tried several times.
const ATTEMPTS: usize = 4;
const PATIENCE: Duration = Duration::from_millis(50);
/// Maximum number of files that are tried again; with more, something else is wrong.
const MOST_RETRIED: usize = 1 << 16;
/// The share of pages that may stay resident in a run that is to begin cold.
const TOLERATED: f64 = 0.05;
/// Files being processed at once: opening a file on a network file system is slow.
const AT_ONCE: usize = 8;
/// Files that a thread takes at a time.
const SOME: usize = 32;
/// Bytes that a thread reads at a time to fill the cache.
const PIECE: usize = 256 << 10;
/// Files that are examined before the first phase: enough that if a twentieth of the files differ, this is missed once
/// in 700 times. Before later phases fewer are enough, to check that the files are still the same.
const SURVEYED_FIRST: u64 = 128;
const SURVEYED_LATER: u64 = 16;
/// Writing 3 to it empties the page cache, and drops cached names and attributes of files.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Why a run cannot begin with the requested state of the cache.
#[derive(Debug, Error)]
pub enum CacheError {
    #[error(
        "cannot evict the data set from the page cache: {} of {} pages stay in memory, {} of them in {name}; a process \
         that maps, locks or reads the files keeps them there: end it, or measure with the cache as it is \
         (--cache as-is)",
        grouped(*.left), grouped(*.pages), grouped(*.of_file)
    )]
    Held { left: u64, pages: u64, of_file: u64, name: String },
    #[error(
        "cannot drop the host's caches (--drop-caches): {path}: {cause}; this needs root and a writable /proc"
    )]
    NoDrop { path: &'static str, cause: std::io::Error },
    #[error("could not prepare the page cache: {0}")]
    Stuck(String),
    #[error("the run was not started: {0}")]
    Elsewhere(EarlyEnd),
}

/// Refuses a plan that drops the host's caches if this process may not do so.
pub fn check(plan: &TrainingPlan) -> Result<(), CacheError> {
    if plan.cache.is_some_and(|cache| cache.drop_host) {
        fs::File::options().write(true).open(DROP_CACHES).map_err(no_drop)?;
    }
    Ok(())
}

fn no_drop(cause: std::io::Error) -> CacheError {
    CacheError::NoDrop { path: DROP_CACHES, cause }
}

/// What the lanes of one thread have to count and evict.
pub(crate) fn proof<'a>(run: &PhaseRun<'a>, thread: usize) -> Proof<'a> {
    let Some(cache) = run.plan.cache else { return Proof::default() };
    Proof {
        counts_one_in: cache.counts_one_in(),
        seed: mix(mix(run.plan.seed, run.epoch), thread as u64),
        gives_back: cache.state == CacheState::Cold,
        footprint: run.input.footprint,
    }
}

/// Adds what is known about the pages of a fetch.
pub(crate) fn book(counted: &mut Counted, probe: Probe, bytes: u64) {
    match probe {
        _ if bytes == 0 => {}
        Probe::Counted(PageCount { pages, is_part, followed }) => {
            counted.add(pages.cached, pages.all);
            counted.in_part += u64::from(is_part);
            counted.followed += followed.all;
            counted.foreign += followed.cached;
        }
        Probe::LeftOut => counted.left_out += 1,
        Probe::Refused(denied) => {
            counted.refused += 1;
            counted.not_permitted += u64::from(denied == Denied::NotPermitted);
        }
        Probe::Unasked => counted.unasked += 1,
    }
}

/// Prepares the page cache for a run's files.
pub(crate) struct CachePreparer<'a> {
    rig: &'a TrainingSetup<'a>,
    /// `None` for stores without files.
    ground: Option<(&'a PageCache, Backing)>,
    emitter: Emitter,
}

impl<'a> CachePreparer<'a> {
    pub(crate) fn new(rig: &'a TrainingSetup<'a>) -> CachePreparer<'a> {
        let ground = rig.pages.and_then(|pages| Some((pages, backing(rig, pages)?)));
        CachePreparer { rig, ground, emitter: Emitter::default() }
    }

    /// Examines some files of a phase and prepares the cache for it. `is_first`: before the first phase the run can
    /// still be refused.
    pub(crate) fn make(
        &self,
        phase: &PhasePlan,
        epoch: u64,
        is_first: bool,
    ) -> Result<ObservedCache, CacheError> {
        let Some((pages, backing)) = self.ground.as_ref().filter(|_| self.rig.world.leads_node()) else {
            return Ok(ObservedCache::default());
        };
        // Files of a file system in memory cannot be evicted.
        let plan = self.rig.plan.cache.filter(|_| !backing.ground.file_system.is_memory());
        let begin = self.rig.clock.now();
        let work = Preparation {
            rig: self.rig,
            pages,
            phase,
            epoch,
            ground: &backing.ground,
            roster: WorkerStatus::new("cache thread", AT_ONCE),
            parts: AtomicU64::new(0),
            flushes: AtomicBool::new(false),
            stuck: Mutex::default(),
            ended: OnceLock::new(),
        };
        let (world, stop) = (self.rig.world, self.rig.stop);
        let prepare = || {
            work.flush();
            let seen = work.survey(if is_first { SURVEYED_FIRST } else { SURVEYED_LATER });
            self.emitter.emit(self.rig.events, self.rig.clock.now(), Event::PreparationBegan);
            let made = match plan {
                None | Some(CachePlan { state: CacheState::AsIs, .. }) => CachePreparation::default(),
                Some(CachePlan { state: CacheState::FirstCold, .. }) if epoch > 1 => {
                    CachePreparation::default()
                }
                Some(CachePlan { state: CacheState::Warm, .. }) => work.fill(),
                // If the cached pages are unknown, the verdict reports that; the run is not refused.
                Some(plan) => work.empty(plan, is_first && seen.untold.is_empty())?,
            };
            Ok(ObservedCache { made, ..seen })
        };
        let end = |ended| drop(work.ended.set(ended));
        let done = guard(stop, &work, || alongside(world, stop, &end, prepare));
        self.emitter.emit(self.rig.events, self.rig.clock.now(), Event::PreparationEnded);
        if let Some(cause) = work.ending() {
            return Err(CacheError::Stuck(cause));
        }
        if let Some(ended) = work.ended.get().filter(|_| !stop.requested()) {
            return Err(CacheError::Elsewhere(ended.clone()));
        }
        let mut seen = done?;
        seen.made.time_ns = self.rig.clock.now().since(begin);
        Ok(seen)
    }

    /// The record of a phase's own reads; needed only if the phase reads files more than once.
    pub(crate) fn footprint(&self, phase: &PhasePlan, epoch: u64) -> Option<Footprint> {
        let plan = self.rig.plan;
        let ((_, backing), one_in) = (self.ground.as_ref()?, plan.cache?.counts_one_in());
        let split = plan.split(phase.phase);
        let reads = EpochReads { files: split.files, bytes: split.bytes, fetches: phase.shards.delivered() };
        let (window, seed) = (backing.ground.readahead_bytes, mix(plan.seed, epoch));
        (plan.reads_again(phase.phase) && one_in > 0).then(|| Footprint::new(reads, one_in, window, seed))
    }

    pub(crate) fn read(&self) -> Option<StorageCounts> {
        self.ground.as_ref().map(|(_, backing)| backing.read())
    }

    /// What the storage delivered since a reading, to this process or to its node.
    pub(crate) fn seen_since(&self, earlier: Option<StorageCounts>, whose: CountOwner) -> ObservedCache {
        let backing = self.ground.as_ref().map(|(_, backing)| backing);
        backing.zip(earlier).map(|(backing, then)| backing.seen_since(then, whose)).unwrap_or_default()
    }
}

/// The storage below the first file, whose counters are read. Other files may differ: see `Preparation::survey`.
fn backing(rig: &TrainingSetup<'_>, pages: &PageCache) -> Option<Backing> {
    let mut name = Name::default();
    rig.files.train.entry(0, &mut name).ok()?;
    Some(Backing::new(pages.ground(&name).ok()?))
}

/// The preparation of one phase's files.
struct Preparation<'a> {
    rig: &'a TrainingSetup<'a>,
    pages: &'a PageCache,
    phase: &'a PhasePlan,
    epoch: u64,
    ground: &'a StorageStack,
    /// The current file of each thread, and the number of parts of files that were read.
    roster: WorkerStatus,
    parts: AtomicU64,
    /// Whether dirty pages are being written out, which may take any time.
    flushes: AtomicBool,
    /// Why it ends early.
    stuck: Mutex<Option<String>>,
    /// The member because of which all end.
    ended: OnceLock<EarlyEnd>,
}

impl Watched for Preparation<'_> {
    fn progress(&self) -> u64 {
        // Relaxed here and below: the watchdog may see changes late.
        self.roster.progress().wrapping_add(self.parts.load(Ordering::Relaxed))
    }

    fn is_busy(&self) -> bool {
        self.flushes.load(Ordering::Relaxed)
    }

    fn waits(&self) -> Vec<String> {
        self.roster.waits()
    }

    fn ending(&self) -> Option<String> {
        lock(&self.stuck).clone()
    }

    fn end(&self, cause: String) {
        *lock(&self.stuck) = Some(cause);
    }
}

/// The sum of what all threads found, and the files whose pages stayed resident.
#[derive(Debug, Default)]
struct PreparationResult {
    made: CachePreparation,
    stayed: Vec<ResidentPages>,
}

#[derive(Clone, Copy, Debug)]
struct ResidentPages {
    file: u64,
    pages: u64,
}

impl Preparation<'_> {
    /// Writes dirty pages out. Pages that are not on disk yet cannot be evicted, and their blocks are unknown. If
    /// writing fails, the count of resident pages shows it.
    fn flush(&self) {
        self.flushes.store(true, Ordering::Relaxed);
        let _ = self.pages.flush();
        self.flushes.store(false, Ordering::Relaxed);
    }

    /// Evicts the files, and counts the pages that stayed; an error if these are too many and `must_leave`.
    fn empty(&self, plan: CachePlan, must_leave: bool) -> Result<CachePreparation, CacheError> {
        if plan.drop_host {
            self.flushes.store(true, Ordering::Relaxed);
            let dropped = fs::write(DROP_CACHES, "3").map_err(no_drop);
            self.flushes.store(false, Ordering::Relaxed);
            dropped?;
        }
        let PreparationResult { mut made, mut stayed } = self.each(self.files(), |file, all, _| {
            let found = self.count(file, all);
            if found != Some(0) {
                page_cache::forget(file, all);
            }
            (found, self.count(file, all))
        });
        made.host_drops = u64::from(plan.drop_host);
        for _ in 1..ATTEMPTS {
            if stayed.is_empty() || self.is_ending() {
                break;
            }
            meter::pause(PATIENCE);
            let again = std::mem::take(&mut stayed);
            let before: u64 = again.iter().map(|stayed| stayed.pages).sum();
            let tried = self.each(again.iter().map(|stayed| stayed.file), |file, all, _| {
                page_cache::forget(file, all);
                (None, self.count(file, all))
            });
            made.after = made.after - before + tried.made.after;
            stayed = tried.stayed;
        }
        match stayed.iter().max_by_key(|stayed| stayed.pages) {
            Some(most) if must_leave && made.after as f64 > TOLERATED * made.pages as f64 => {
                let (mut name, left, pages) = (Name::default(), made.after, made.pages);
                let _ = self.list().entry(most.file, &mut name);
                Err(CacheError::Held { left, pages, of_file: most.pages, name: self.pages.shown(&name) })
            }
            _ => Ok(made),
        }
    }

    /// Reads files that are not completely cached, and counts pages at the end: a cache that is too small drops the
    /// first files while the last ones are read.
    fn fill(&self) -> CachePreparation {
        let read = self.each(self.files(), |file, all, buffer| {
            let found = self.count(file, all);
            if found.is_none_or(|found| found < page_cache::pages_of(all)) {
                buffer.resize(PIECE, 0);
                for part in parts_of(all) {
                    page_cache::fill(file, part, buffer);
                    self.parts.fetch_add(1, Ordering::Relaxed);
                }
            }
            (found, None)
        });
        let counted = self.each(self.files(), |file, all, _| (None, self.count(file, all)));
        CachePreparation { after: counted.made.after, ..read.made }
    }

    /// Examines some files: how they are stored, and on what storage.
    fn survey(&self, files: u64) -> ObservedCache {
        let (order, positions) = (self.phase.epoch_order(self.epoch), self.positions());
        let (per_file, seed) = (self.phase.order.samples_per_file, mix(self.rig.plan.seed, self.epoch));
        let read = positions.len();
        let drawn =
            (0..files.min(read)).map(|i| order.run(positions.nth(mix(seed, i) % read), 1).0 / per_file);
        let sum = Mutex::new(ObservedCache {
            untold: self.ground.untold().into_iter().collect(),
            ..ObservedCache::default()
        });
        self.each(drawn, |file, all, _| {
            let layout = store::layout(file, all.len).unwrap_or_default();
            let elsewhere = rustix::fs::fstat(file).is_ok_and(|facts| facts.st_dev != self.ground.number);
            let ground = elsewhere.then(|| StorageStack::of(file, "").ok()).flatten();
            let untold = ground.and_then(|ground| ground.untold()).into_iter().collect();
            *lock(&sum) += &ObservedCache { layout, untold, ..ObservedCache::default() };
            (None, None)
        });
        sum.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ending(&self) -> bool {
        self.rig.stop.wished() || self.ending().is_some() || self.ended.get().is_some()
    }

    fn count(&self, file: &OwnedFd, all: Extent) -> Option<u64> {
        let tells = self.ground.file_system.untold().is_none();
        tells.then(|| page_cache::count(file, all).ok()).flatten().map(|pages| pages.cached)
    }

    fn list(&self) -> &dyn FileList {
        match self.phase.phase {
            Phase::Train => self.rig.files.train,
            Phase::Eval => self.rig.files.valid,
        }
    }

    /// The positions of the order that this node reads.
    fn positions(&self) -> Positions {
        Positions::of_node(self.rig.world, &self.phase.shards)
    }

    fn files(&self) -> FileNumbers {
        files_of(&self.phase.order, self.phase.epoch_order(self.epoch), self.positions())
    }

    /// Calls `work` for every file, on several threads, until all are done or a stop is requested; it returns the
    /// number of resident pages before and after. Errors of single files are left to the run, which reads them later.
    fn each(
        &self,
        files: impl Iterator<Item = u64> + Send,
        work: impl Fn(&OwnedFd, Extent, &mut Vec<u8>) -> (Option<u64>, Option<u64>) + Sync,
    ) -> PreparationResult {
        let (files, sum) = (Mutex::new(files), Mutex::new(PreparationResult::default()));
        let thread = |number: usize| {
            let (mut name, mut buffer, mut found) =
                (Name::default(), Vec::new(), PreparationResult::default());
            while !self.is_ending() {
                let some: Vec<u64> = lock(&files).by_ref().take(SOME).collect();
                if some.is_empty() {
                    break;
                }
                for file in some.iter().take_while(|_| !self.is_ending()) {
                    let Ok(entry) = self.list().entry(*file, &mut name) else { continue };
                    self.roster.begin(number, Operation::Open, name.as_str());
                    if let Ok(open) = self.pages.open(&name) {
                        let all = Extent { offset: 0, len: entry.bytes };
                        let (before, after) = work(&open, all, &mut buffer);
                        found.add(*file, all, before, after);
                    }
                    self.roster.end(number);
                }
                self.rig.events.counters().add_prepared(some.len() as u64);
            }
            lock(&sum).merge(found);
        };
        std::thread::scope(|scope| {
            for number in 1..AT_ONCE {
                let builder = std::thread::Builder::new().name("cache".to_owned());
                // Fewer threads are enough.
                if builder.spawn_scoped(scope, move || thread(number)).is_err() {
                    break;
                }
            }
            thread(0);
        });
        sum.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Splits a file into parts, each small enough that reading it counts as progress soon.
fn parts_of(all: Extent) -> impl Iterator<Item = Extent> {
    const PART: u64 = 64 << 20;
    (0..all.len.div_ceil(PART)).map(move |part| {
        let offset = all.offset + part * PART;
        Extent { offset, len: PART.min(all.end() - offset) }
    })
}

impl PreparationResult {
    fn add(&mut self, file: u64, all: Extent, before: Option<u64>, after: Option<u64>) {
        let pages = if before.is_some() || after.is_some() { page_cache::pages_of(all) } else { 0 };
        let (found, after) = (before.unwrap_or(0), after.unwrap_or(0));
        self.made += CachePreparation { files: 1, pages, found, after, ..CachePreparation::default() };
        if after > 0 && self.stayed.len() < MOST_RETRIED {
            self.stayed.push(ResidentPages { file, pages: after });
        }
    }

    fn merge(&mut self, PreparationResult { made, stayed }: PreparationResult) {
        self.made += made;
        let room = MOST_RETRIED.saturating_sub(self.stayed.len());
        self.stayed.extend(stayed.into_iter().take(room));
    }
}

/// Positions of the order of an epoch, in ascending ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Positions(Vec<Range<u64>>);

impl Positions {
    /// Those that the ranks on this member's node read.
    fn of_node(world: &dyn Exchange, shards: &Shards) -> Positions {
        let topology = world.topology();
        let ranks = topology.members_on(world.node()).map(|member| topology.ranks(member, shards.ranks));
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for ranks in ranks {
            let (start, end) = (shards.position(ranks.start, 0), shards.position(ranks.end, 0));
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        Positions(ranges)
    }

    fn len(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// One of them, by its place among them.
    fn nth(&self, mut place: u64) -> u64 {
        for range in &self.0 {
            let len = range.end - range.start;
            if place < len {
                return range.start + place;
            }
            place -= len;
        }
        0
    }
}

/// The files that these positions of an epoch read.
fn files_of(order: &Order, epoch: EpochOrder, positions: Positions) -> FileNumbers {
    let alone = matches!(order.unit, Unit::None | Unit::File) || order.samples_per_file == 1;
    // Samples that are shuffled individually lead to every file, again and again.
    let all = !alone && positions.len() >= order.files;
    FileNumbers {
        order: epoch,
        per_file: order.samples_per_file,
        positions: positions.0,
        last: None,
        numbers: 0..if all { order.files } else { 0 },
    }
}

/// The numbers of the files that an epoch reads: run by run of its order, or all of them. If the order returns to a
/// file, so does this iterator.
struct FileNumbers {
    order: EpochOrder,
    per_file: u64,
    /// What is left of each range.
    positions: Vec<Range<u64>>,
    last: Option<u64>,
    numbers: Range<u64>,
}

impl Iterator for FileNumbers {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.numbers.end > 0 {
            return self.numbers.next();
        }
        for positions in &mut self.positions {
            while !positions.is_empty() {
                let most = positions.end - positions.start;
                let (sample, count) = self.order.run(positions.start, most);
                // A run may continue in the next file.
                let left = self.per_file - sample % self.per_file;
                positions.start += count.min(left).max(1);
                let file = sample / self.per_file;
                if self.last.replace(file) != Some(file) {
                    return Some(file);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
