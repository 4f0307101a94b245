//! The batches of one rank: which chunk is read next and by which reader, how far ahead readers may go, and when each
//! batch became ready. Lock-free; this is the one scheduler behind all loader disciplines, which differ only in the
//! numbers of the `LoaderPlan`.

use std::ops::Range;

use model::plan::{LoaderPlan, ReadWindow};
use model::units::Nanos;

use super::sync::{AtomicU64, Ordering, fence};

/// A batch that is being assembled.
#[derive(Debug)]
struct BatchSlot {
    /// Chunks that are still missing.
    missing: AtomicU64,
    /// When the latest of the delivered chunks was delivered.
    latest: AtomicU64,
    /// One more than the moment of completion; 0 while the batch is incomplete.
    ready: AtomicU64,
    /// Bytes that were read for it.
    bytes: AtomicU64,
}

/// A part of a batch: the unit of work of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Its number among the phase's chunks of this rank.
    pub(crate) number: u64,
    pub(crate) step: u64,
    /// Index of the first sample in the batch, and the number of samples.
    pub(crate) first: u64,
    pub(crate) samples: u64,
}

/// What a delivered chunk changes for other threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeliveryEffect {
    /// The accelerator waits for a batch that is now complete.
    pub(crate) awaited: bool,
    /// Chunks that can be begun now and could not before.
    pub(crate) room: Range<u64>,
}

/// A batch that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadyBatch {
    pub(crate) at: Nanos,
    pub(crate) bytes: u64,
}

/// The queue of one rank for one phase. Aligned so that no two ranks share a cache line.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Queue {
    /// Readers may work on steps below this. It only grows.
    limit: AtomicU64,
    /// The accelerator has requested all steps below this.
    asked: AtomicU64,
    /// The next chunk to claim: one counter, or one for each reader if they take turns.
    next: Box<[AtomicU64]>,
    /// Number of chunks delivered without a gap, and the numbers plus one of chunks that were delivered beyond a gap;
    /// empty if the window is open.
    prefix: AtomicU64,
    there: Box<[AtomicU64]>,
    /// Number of delivered chunks, in any order.
    delivered: AtomicU64,
    slots: Box<[BatchSlot]>,
    /// Chunks of the phase, of a step, and of the lead that is read before the first batch is complete.
    chunks: u64,
    chunks_per_step: u64,
    lead: u64,
    /// Chunks beyond the prefetched batches that may be in flight.
    beyond: u64,
    batch: u64,
    chunk: u64,
    readers: u64,
    prefetch: u64,
    window: ReadWindow,
    in_turn: bool,
    ordered: bool,
}

impl Queue {
    pub(crate) fn new(steps: u64, batch: u64, loader: &LoaderPlan) -> Queue {
        let chunk = loader.chunk_samples.clamp(1, batch);
        let chunks_per_step = batch.div_ceil(chunk);
        let chunks = steps * chunks_per_step;
        let readers = loader.readers_per_rank;
        let next = match loader.in_turn {
            true => (0..readers).map(AtomicU64::new).collect(),
            false => [AtomicU64::new(0)].into(),
        };
        let furthest = match loader.window {
            ReadWindow::Open => 0,
            ReadWindow::Chunks(chunks) => chunks,
            ReadWindow::Batch => chunks_per_step,
        };
        // At most `prefetch` batches (or the requested one) are claimed and not taken. One more slot, because the
        // reader that completes a batch for a waiting accelerator continues before the driver has taken it.
        let beyond = loader.beyond_samples.div_ceil(chunk);
        let slots = (loader.prefetch_batches.max(1) + beyond.div_ceil(chunks_per_step)).min(steps) + 1;
        let queue = Queue {
            limit: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            next,
            prefix: AtomicU64::new(0),
            there: (0..furthest).map(|_| AtomicU64::new(0)).collect(),
            delivered: AtomicU64::new(0),
            slots: (0..slots).map(|_| BatchSlot::new()).collect(),
            chunks,
            chunks_per_step,
            lead: loader.lead_samples.div_ceil(chunk),
            beyond,
            batch,
            chunk,
            readers,
            prefetch: loader.prefetch_batches,
            window: loader.window,
            in_turn: loader.in_turn,
            ordered: loader.ordered,
        };
        for step in 0..slots {
            // Relaxed: no other thread has access to the queue yet.
            queue.slot(step).missing.store(queue.chunks_for(step), Ordering::Relaxed);
        }
        queue
    }

    /// Chunks that the batch of `step` needs in addition to those of the steps before it.
    fn chunks_for(&self, step: u64) -> u64 {
        let until = |step: u64| match step {
            0 => 0,
            step => self.chunks.min(self.lead.saturating_add(step.saturating_mul(self.chunks_per_step))),
        };
        until(step + 1) - until(step)
    }

    /// The step whose batch needs the chunk of this number.
    fn step_for(&self, number: u64) -> u64 {
        number.saturating_sub(self.lead) / self.chunks_per_step
    }

    /// Lets readers begin the first batches, as far ahead as the prefetch depth.
    pub(crate) fn open(&self) {
        // Not a store: the thread that waits for other members can move the accelerators before this, and then `ask`
        // has raised the limit.
        self.limit.fetch_max(self.prefetch, Ordering::Release);
    }

    /// The accelerator requests `step`. Without prefetch, readers may begin now; returns with which chunks.
    pub(crate) fn ask(&self, step: u64) -> Range<u64> {
        // Release: a reader that sees this and raises the limit for the driver sees the slots that the driver reset.
        self.asked.store(step + 1, Ordering::Release);
        // Pairs with the fence in `complete`: either the driver sees the batch ready, or the reader sees that it is
        // awaited.
        fence(Ordering::SeqCst);
        self.raise_limit(step + 1)
    }

    /// The batch of `step`, if it is ready.
    pub(crate) fn ready(&self, step: u64) -> Option<ReadyBatch> {
        if self.chunks_for(step) == 0 {
            // Its samples were delivered with the lead of the steps before it.
            return Some(ReadyBatch { at: Nanos::ZERO, bytes: 0 });
        }
        let slot = self.slot(step);
        // Acquire: a thread that sees the batch complete also sees what its readers did.
        let at = slot.ready.load(Ordering::Acquire).checked_sub(1)?;
        Some(ReadyBatch { at: Nanos(at), bytes: slot.bytes.load(Ordering::Relaxed) })
    }

    /// The accelerator takes the batch of `step`, which makes space for a later one; returns for which chunks.
    pub(crate) fn take(&self, step: u64) -> Range<u64> {
        let slot = self.slot(step);
        let next_in_slot = step + self.slots.len() as u64;
        slot.ready.store(0, Ordering::Relaxed);
        slot.latest.store(0, Ordering::Relaxed);
        slot.bytes.store(0, Ordering::Relaxed);
        slot.missing.store(self.chunks_for(next_in_slot), Ordering::Relaxed);
        self.raise_limit(step + 1 + self.prefetch)
    }

    fn raise_limit(&self, limit: u64) -> Range<u64> {
        let before = self.bound();
        // Release: a reader that claims a freed slot sees it reset.
        self.limit.fetch_max(limit, Ordering::Release);
        if !self.there.is_empty() {
            // Pairs with the fence in `move_window`: of two threads that raise the limit and the prefix, at least one
            // sees both, and wakes readers for the chunks that both together let go.
            fence(Ordering::SeqCst);
        }
        before..self.bound()
    }

    /// The reader that has to read a chunk; `None` if any reader may.
    pub(crate) fn taker(&self, number: u64) -> Option<usize> {
        self.in_turn.then_some((number % self.readers) as usize)
    }

    /// Whether all chunks that this reader could get have been claimed.
    pub(crate) fn exhausted(&self, reader: usize) -> bool {
        self.counter(reader).load(Ordering::Relaxed) >= self.chunks
    }

    /// Gives the next chunk to a reader, if there is one for it.
    pub(crate) fn claim(&self, reader: usize) -> Option<Chunk> {
        let counter = self.counter(reader);
        let mut number = counter.load(Ordering::Relaxed);
        loop {
            // The load in `bound` pairs with the store in `raise_limit`.
            if number >= self.bound() {
                return None;
            }
            let next = if self.in_turn { number + self.readers } else { number + 1 };
            match counter.compare_exchange_weak(number, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(self.chunk(number)),
                Err(seen) => number = seen,
            }
        }
    }

    pub(crate) fn chunk(&self, number: u64) -> Chunk {
        let (step, place) = (number / self.chunks_per_step, number % self.chunks_per_step);
        let first = place * self.chunk;
        Chunk { number, step, first, samples: self.chunk.min(self.batch - first) }
    }

    fn counter(&self, reader: usize) -> &AtomicU64 {
        &self.next[if self.in_turn { reader } else { 0 }]
    }

    /// A reader has delivered a chunk at `at`.
    ///
    /// If the accelerator waits for this batch, it takes it at this moment: the space is given to the readers right
    /// here, so that they do not idle until the driver has taken the batch.
    pub(crate) fn complete(&self, chunk: Chunk, at: Nanos, bytes: u64) -> DeliveryEffect {
        let before = self.bound();
        self.move_window(chunk.number);
        let number = match self.ordered {
            true => chunk.number,
            // The slot may be one that only readers of later chunks have seen reset. One of them has counted before:
            // release and acquire let this reader see the reset, too.
            false => self.delivered.fetch_add(1, Ordering::AcqRel),
        };
        let step = self.step_for(number);
        let slot = self.slot(step);
        slot.bytes.fetch_add(bytes, Ordering::Relaxed);
        slot.latest.fetch_max(at.0, Ordering::Relaxed);
        // Release publishes this reader's work to the reader that completes the batch, which acquires it.
        let complete = slot.missing.fetch_sub(1, Ordering::AcqRel) == 1;
        let mut awaited = false;
        if complete {
            slot.ready.store(slot.latest.load(Ordering::Relaxed) + 1, Ordering::Release);
            // See `ask`.
            fence(Ordering::SeqCst);
            awaited = self.asked.load(Ordering::Acquire) > step;
            if awaited {
                self.raise_limit(step + 1 + self.prefetch);
            }
        }
        DeliveryEffect { awaited, room: before..self.bound() }
    }

    /// Records that a chunk was delivered.
    fn move_window(&self, number: u64) {
        let places = self.there.len() as u64;
        if places == 0 {
            return;
        }
        // Relaxed: the fences order the places, and a reader that sees the prefix sees the places before it empty.
        self.there[(number % places) as usize].store(number + 1, Ordering::Relaxed);
        loop {
            // Between a place and the prefix, and between the prefix and the next place: of two readers that bring
            // neighbours, at least one sees both. Between the prefix and the limit: see `raise_limit`.
            fence(Ordering::SeqCst);
            let prefix = self.prefix.load(Ordering::Acquire);
            let place = &self.there[(prefix % places) as usize];
            // The reader that takes the first missing chunk from its place moves the prefix, and no other can.
            let (first, relaxed) = (prefix + 1, Ordering::Relaxed);
            if place.load(relaxed) != first || place.compare_exchange(first, 0, relaxed, relaxed).is_err() {
                return;
            }
            self.prefix.store(prefix + 1, Ordering::Release);
        }
    }

    /// The first chunk that may not be begun while only the chunks before `prefix` are delivered without a gap.
    fn window_end(&self, prefix: u64) -> u64 {
        match self.window {
            ReadWindow::Open => u64::MAX,
            ReadWindow::Chunks(chunks) => prefix + chunks,
            ReadWindow::Batch => (prefix / self.chunks_per_step + 1) * self.chunks_per_step,
        }
    }

    /// The first chunk that may not be claimed yet. It only grows.
    pub(crate) fn bound(&self) -> u64 {
        let by_prefetch = match self.limit.load(Ordering::Acquire) {
            0 => 0,
            steps => steps.saturating_mul(self.chunks_per_step).saturating_add(self.lead + self.beyond),
        };
        let bound = by_prefetch.min(self.chunks);
        match self.window {
            ReadWindow::Open => bound,
            _ => bound.min(self.window_end(self.prefix.load(Ordering::Acquire))),
        }
    }

    fn slot(&self, step: u64) -> &BatchSlot {
        &self.slots[(step % self.slots.len() as u64) as usize]
    }
}

impl BatchSlot {
    fn new() -> BatchSlot {
        let zero = || AtomicU64::new(0);
        BatchSlot { missing: zero(), latest: zero(), ready: zero(), bytes: zero() }
    }
}
