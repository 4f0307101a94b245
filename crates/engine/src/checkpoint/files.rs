//! Transfers many files of one checkpoint at once: threads write them with generated content, copy them from tier to
//! tier, or read and check them. Memory use is that of the chunks in flight.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use model::checkpoint::Geometry;
use model::checkpoint::manifest::ManifestEntry;
use model::names::Name;
use model::units::Nanos;
use store::{Buffer, Operation, Tier, TierFiles};

use super::CheckpointError;
use crate::events::Events;
use crate::loader::panic_text;
use crate::meter::Clock;
use crate::stop::Stop;
use crate::waits;
use crate::watchdog::{Watched, WorkerStatus, guard};

/// One file of a checkpoint.
#[derive(Clone, Debug)]
pub(super) struct TransferFile {
    /// Its number in the checkpoint, which determines its content, and the rank that it belongs to.
    pub(super) number: u64,
    pub(super) rank: u64,
    pub(super) name: String,
    pub(super) bytes: u64,
    /// The checksum that it should have, once known.
    pub(super) crc32: Option<u32>,
}

impl TransferFile {
    /// Its entry in a manifest, with the checksum still missing.
    pub(super) fn entry(&self) -> ManifestEntry {
        ManifestEntry { name: self.name.clone(), rank: self.rank, bytes: self.bytes, crc32: 0 }
    }
}

/// The files of some ranks in the order in which their transfers begin. Their numbers count the files of all ranks, so
/// the content of a file does not depend on which ranks are saved together.
pub(super) fn items(geometry: &Geometry, ranks: &Range<u64>) -> Vec<TransferFile> {
    let files =
        (0..geometry.ranks).flat_map(|rank| geometry.files(rank).into_iter().map(move |file| (rank, file)));
    let own = files.zip(0..).filter(|((rank, _), _)| ranks.contains(rank));
    let items = own.map(|((rank, file), number)| TransferFile {
        number,
        rank,
        name: file.name,
        bytes: file.bytes,
        crc32: None,
    });
    in_turn(items.collect())
}

/// The first file of every rank, then the second file of every rank, and so on, so that all ranks transfer files from
/// the beginning to the end.
pub(super) fn in_turn(items: Vec<TransferFile>) -> Vec<TransferFile> {
    let mut places: BTreeMap<u64, usize> = BTreeMap::new();
    let mut placed: Vec<(usize, TransferFile)> = Vec::new();
    for item in items {
        let place = places.entry(item.rank).or_default();
        placed.push((*place, item));
        *place += 1;
    }
    placed.sort_by_key(|(place, item)| (*place, item.rank));
    placed.into_iter().map(|(_, item)| item).collect()
}

/// The parameters of threads that transfer files.
#[derive(Clone, Copy)]
pub(super) struct TransferThreads<'a> {
    pub(super) threads: usize,
    pub(super) chunk_bytes: usize,
    pub(super) clock: &'a dyn Clock,
    pub(super) stop: &'a Stop,
    pub(super) events: &'a Events,
    /// Whether time passes by plan: on a simulated device, or at a limited rate.
    pub(super) unhurried: bool,
    /// For background threads: the number of threads that wait for them.
    pub(super) awaited: Option<&'a AtomicUsize>,
    /// The tiers that may be written to.
    pub(super) tiers: [Option<&'a dyn Tier>; 2],
}

/// A file that was transferred: which one, the end of the transfer, and its checksum.
#[derive(Clone, Copy, Debug)]
pub(super) struct FinishedFile {
    pub(super) place: usize,
    pub(super) at: Nanos,
    pub(super) crc32: u32,
}

/// What the threads that transfer some files share, also with the watchdog.
struct SharedTransfer<'a> {
    roster: WorkerStatus,
    /// Threads that wait for memory, which the background releases: its own watchdog checks whether it does.
    short_of_memory: AtomicUsize,
    /// Threads that wait until all of a file is written. The tier tells whether there is progress.
    finishing: AtomicUsize,
    next: AtomicUsize,
    failure: Mutex<Option<CheckpointError>>,
    abort: Stop,
    threads: &'a TransferThreads<'a>,
}

impl SharedTransfer<'_> {
    fn fail(&self, cause: CheckpointError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(cause);
        self.abort.wish();
    }

    fn is_over(&self) -> bool {
        self.abort.wished() || self.threads.stop.wished()
    }
}

impl Watched for SharedTransfer<'_> {
    fn progress(&self) -> u64 {
        // Relaxed: see `is_busy`.
        let of_tiers = match self.finishing.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.threads.tiers.iter().flatten().map(|tier| tier.files().progress()).sum(),
        };
        self.roster.progress().wrapping_add(of_tiers)
    }

    fn is_busy(&self) -> bool {
        // Relaxed: only the watchdog reads them, periodically.
        let is_unawaited = self.threads.awaited.is_some_and(|awaited| awaited.load(Ordering::Relaxed) == 0);
        self.threads.unhurried || is_unawaited || self.short_of_memory.load(Ordering::Relaxed) > 0
    }

    fn waits(&self) -> Vec<String> {
        self.roster.waits()
    }

    /// A failed file is no reason to abandon files that are still being flushed; being stuck is.
    fn ending(&self) -> Option<String> {
        match &*self.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(CheckpointError::Stuck(cause)) => Some(cause.clone()),
            _ => None,
        }
    }

    fn end(&self, cause: String) {
        self.fail(CheckpointError::Stuck(cause));
    }
}

/// A thread's buffers, and its current file.
pub(super) struct TransferWorker<'s> {
    spare: Vec<Buffer>,
    pub(super) scratch: Vec<u8>,
    /// How long it had to wait for memory.
    pub(super) waited: Nanos,
    shift: &'s SharedTransfer<'s>,
    thread: usize,
}

impl<'s> TransferWorker<'s> {
    fn new(shift: &'s SharedTransfer<'s>, thread: usize) -> TransferWorker<'s> {
        TransferWorker { spare: Vec::new(), scratch: Vec::new(), waited: Nanos::ZERO, shift, thread }
    }

    /// Begins a file.
    pub(super) fn begin(&self, operation: Operation, name: &str) {
        self.shift.roster.begin(self.thread, operation, name);
    }

    /// A part of it is done; an error if there is no use in continuing.
    pub(super) fn advance(&self, bytes: usize) -> Result<(), CheckpointError> {
        self.shift.roster.advance(self.thread);
        self.shift.threads.events.counters().add_files(0, bytes as u64);
        if self.shift.is_over() { Err(CheckpointError::Interrupted) } else { Ok(()) }
    }

    /// The file is done.
    fn end(&self) {
        self.shift.roster.end(self.thread);
    }

    /// Waits for memory, which may take long without any progress.
    pub(super) fn wait_for_memory<T>(&self, wait: impl FnOnce() -> T) -> T {
        // Relaxed: see `is_busy`.
        self.shift.short_of_memory.fetch_add(1, Ordering::Relaxed);
        let done = wait();
        self.shift.short_of_memory.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Waits until all of a file is written.
    fn finish<T>(&self, finish: impl FnOnce() -> T) -> T {
        // Relaxed: see `is_busy`.
        self.shift.finishing.fetch_add(1, Ordering::Relaxed);
        let done = finish();
        self.shift.finishing.fetch_sub(1, Ordering::Relaxed);
        done
    }

    pub(super) fn buffer(&mut self, bytes: usize) -> Buffer {
        self.spare.pop().unwrap_or_else(|| Buffer::with_capacity(bytes))
    }

    pub(super) fn put_back(&mut self, buffer: Buffer) {
        self.spare.push(buffer);
    }
}

impl TransferThreads<'_> {
    /// Calls `work` once for every file, several at a time, and returns when each ended. The first failure ends all.
    pub(super) fn each(
        &self,
        items: &[TransferFile],
        work: impl Fn(&TransferFile, &mut TransferWorker<'_>) -> Result<(Nanos, u32), CheckpointError> + Sync,
    ) -> Result<Vec<FinishedFile>, CheckpointError> {
        let threads = self.threads.clamp(1, items.len().max(1));
        let shift = SharedTransfer {
            roster: WorkerStatus::new("checkpoint thread", threads),
            short_of_memory: AtomicUsize::new(0),
            finishing: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            failure: Mutex::new(None),
            abort: Stop::default(),
            threads: self,
        };
        let one = |thread: usize| shift.work_off(thread, items, &work);
        let ended = guard(self.stop, &shift, || together(threads, one))?;
        match shift.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(cause) => Err(cause),
            None => Ok(ended),
        }
    }
}

impl SharedTransfer<'_> {
    /// Processes one file after another until none is left.
    fn work_off(
        &self,
        thread: usize,
        items: &[TransferFile],
        work: &(impl Fn(&TransferFile, &mut TransferWorker<'_>) -> Result<(Nanos, u32), CheckpointError> + Sync),
    ) -> Vec<FinishedFile> {
        let _left = waits::leave_to_phase();
        let (mut hands, mut ended) = (TransferWorker::new(self, thread), Vec::new());
        loop {
            // Relaxed: the counter only distributes numbers and publishes no other data.
            let place = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(place).filter(|_| !self.abort.wished()) else { return ended };
            let outcome = match self.threads.stop.wished() {
                true => Err(CheckpointError::Interrupted),
                false => catch_unwind(AssertUnwindSafe(|| work(item, &mut hands)))
                    .unwrap_or_else(|panic| Err(CheckpointError::Panicked(panic_text(&*panic).to_owned()))),
            };
            hands.end();
            match outcome {
                Ok((at, crc32)) => ended.push(FinishedFile { place, at, crc32 }),
                Err(cause) => {
                    self.fail(cause);
                    return ended;
                }
            }
        }
    }
}

/// Calls `one` in this many threads, or in as many as can be started.
fn together(
    threads: usize,
    one: impl Fn(usize) -> Vec<FinishedFile> + Sync,
) -> Result<Vec<FinishedFile>, CheckpointError> {
    let one = &one;
    std::thread::scope(|scope| {
        let mut started = Vec::new();
        for thread in 0..threads {
            let builder = std::thread::Builder::new().name("checkpoint".to_owned());
            match builder.spawn_scoped(scope, move || one(thread)) {
                Ok(thread) => started.push(thread),
                Err(cause) if started.is_empty() => return Err(CheckpointError::Thread(cause.to_string())),
                // Fewer threads are enough.
                Err(_) => break,
            }
        }
        Ok(started.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect())
    })
}

/// Writes one file; `fill` produces its bytes, chunk by chunk.
pub(super) fn write(
    threads: &TransferThreads<'_>,
    tier: &dyn TierFiles,
    path: &Name,
    bytes: u64,
    durable: bool,
    hands: &mut TransferWorker<'_>,
    mut fill: impl FnMut(u64, &mut Buffer, usize) -> Result<(), CheckpointError>,
) -> Result<(Nanos, u32), CheckpointError> {
    hands.begin(Operation::Write, &tier.shown(path));
    let mut sink = tier.create(path, bytes, threads.clock.as_now())?;
    let (mut at, mut crc) = (0, crc32fast::Hasher::new());
    while at < bytes {
        let len = (bytes - at).min(threads.chunk_bytes as u64) as usize;
        let mut chunk = hands.buffer(threads.chunk_bytes);
        fill(at, &mut chunk, len)?;
        chunk.set_len(len);
        if tier.holds_files() {
            crc.update(chunk.bytes());
        }
        if let Some(free) = sink.write(chunk)? {
            hands.put_back(free);
        }
        hands.advance(len)?;
        at += len as u64;
    }
    let mut spare = std::mem::take(&mut hands.spare);
    let ended = hands.finish(|| sink.finish(durable, &mut spare));
    hands.spare = spare;
    threads.events.counters().add_files(1, 0);
    Ok((ended?, crc.finalize()))
}

/// The time of the slowest rank and of rank 0, measured from `began`.
pub(super) fn rank_times(items: &[TransferFile], ended: &[FinishedFile], began: Nanos) -> (Nanos, Nanos) {
    let span = |of: &dyn Fn(u64) -> bool| {
        let times = ended.iter().filter(|end| of(items[end.place].rank)).map(|end| end.at.since(began));
        times.max().unwrap_or_default()
    };
    (span(&|_| true), span(&|rank| rank == 0))
}
