//! One rank's batches on their way: which chunk is read next, how far ahead readers may go, and when each batch
//! became ready. Lock-free; batches are numbered by step and complete in any order.

use std::sync::atomic::{AtomicU64, Ordering};

use model::plan::LoaderPlan;
use model::units::Nanos;

/// A batch in the making.
#[derive(Debug)]
struct Slot {
    /// Chunks that are still to come.
    missing: AtomicU64,
    /// One more than the moment of completion; 0 while the batch is incomplete.
    ready: AtomicU64,
}

/// A piece of a batch: what one reader reads in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) step: u64,
    /// The first sample's place in the batch, and how many there are.
    pub(crate) first: u64,
    pub(crate) samples: u64,
}

/// The queue of one rank for one phase. Aligned so that no two ranks share a cache line.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Queue {
    /// Steps that readers may work on lie below this. It only grows.
    limit: AtomicU64,
    /// Steps that the accelerator has asked for lie below this.
    asked: AtomicU64,
    /// The next chunk to hand out.
    next: AtomicU64,
    slots: Box<[Slot]>,
    steps: u64,
    batch: u64,
    chunk: u64,
    chunks_per_step: u64,
    prefetch: u64,
}

impl Queue {
    pub(crate) fn new(steps: u64, batch: u64, loader: &LoaderPlan) -> Queue {
        let chunk = loader.chunk_samples.clamp(1, batch);
        let chunks_per_step = batch.div_ceil(chunk);
        let prefetch = loader.prefetch_batches;
        // At most `prefetch` batches (or the one that was asked for) are claimed and not taken. One slot more,
        // because a reader that completes a batch for a waiting accelerator goes on before the driver has looked at it.
        let slots = (0..=prefetch.max(1))
            .map(|_| Slot { missing: AtomicU64::new(chunks_per_step), ready: AtomicU64::new(0) })
            .collect();
        Queue {
            limit: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            next: AtomicU64::new(0),
            slots,
            steps,
            batch,
            chunk,
            chunks_per_step,
            prefetch,
        }
    }

    /// Lets readers begin with the first batches, as far ahead as the prefetch depth.
    pub(crate) fn open(&self) {
        self.limit.store(self.prefetch, Ordering::Release);
    }

    /// The accelerator asks for `step`. Without prefetch this is what lets readers begin with it; says whether it does.
    pub(crate) fn ask(&self, step: u64) -> bool {
        // SeqCst: pairs with `complete`. Either the driver sees the batch ready, or the reader sees that it is awaited.
        self.asked.store(step + 1, Ordering::SeqCst);
        self.raise_limit(step + 1)
    }

    /// The moment at which the batch of `step` became ready, if it is.
    pub(crate) fn ready(&self, step: u64) -> Option<Nanos> {
        // SeqCst: see `ask`. Whoever sees the batch complete also sees what its readers did.
        self.slot(step).ready.load(Ordering::SeqCst).checked_sub(1).map(Nanos)
    }

    /// The accelerator takes the batch of `step`, which makes room for a later one; says whether readers gain by it.
    pub(crate) fn take(&self, step: u64) -> bool {
        let slot = self.slot(step);
        slot.ready.store(0, Ordering::Relaxed);
        slot.missing.store(self.chunks_per_step, Ordering::Relaxed);
        self.raise_limit(step + 1 + self.prefetch)
    }

    fn raise_limit(&self, limit: u64) -> bool {
        // Release: a reader that claims a freed slot sees it reset.
        self.limit.fetch_max(limit, Ordering::AcqRel) < limit
    }

    /// Readers that one freed slot can put to work.
    pub(crate) fn chunks_per_step(&self) -> usize {
        self.chunks_per_step as usize
    }

    /// Whether `claim` would find something now.
    pub(crate) fn claimable(&self) -> bool {
        self.next.load(Ordering::Relaxed) / self.chunks_per_step < self.bound()
    }

    /// Whether all chunks of the phase have been handed out.
    pub(crate) fn exhausted(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.steps * self.chunks_per_step
    }

    /// Hands the next chunk to a reader, if the limit allows one.
    pub(crate) fn claim(&self) -> Option<Chunk> {
        let mut next = self.next.load(Ordering::Relaxed);
        loop {
            // Acquire (in `bound`) pairs with the release in `take`.
            let step = next / self.chunks_per_step;
            if step >= self.bound() {
                return None;
            }
            match self.next.compare_exchange_weak(next, next + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    let first = next % self.chunks_per_step * self.chunk;
                    return Some(Chunk { step, first, samples: self.chunk.min(self.batch - first) });
                }
                Err(seen) => next = seen,
            }
        }
    }

    /// A reader has brought a chunk; `now` is asked only if that completes the batch. Says whether it does.
    ///
    /// If the accelerator waits for this very batch, it takes it at this moment: the room that makes is given to the
    /// readers here and now, so that they do not idle until the driver has woken up.
    pub(crate) fn complete(&self, chunk: Chunk, now: impl FnOnce() -> Nanos) -> bool {
        let slot = self.slot(chunk.step);
        // Release publishes this reader's work to the one who completes the batch, acquire lets that one see it.
        let last = slot.missing.fetch_sub(1, Ordering::AcqRel) == 1;
        if last {
            slot.ready.store(now().0 + 1, Ordering::SeqCst);
            if self.asked.load(Ordering::SeqCst) > chunk.step {
                self.raise_limit(chunk.step + 1 + self.prefetch);
            }
        }
        last
    }

    fn bound(&self) -> u64 {
        self.limit.load(Ordering::Acquire).min(self.steps)
    }

    fn slot(&self, step: u64) -> &Slot {
        &self.slots[(step % self.slots.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(steps: u64, batch: u64, chunk: u64, prefetch: u64) -> Queue {
        let loader = LoaderPlan {
            readers_per_rank: 1,
            prefetch_batches: prefetch,
            chunk_samples: chunk,
            transfer_bytes: 4096,
            threads: 1,
        };
        Queue::new(steps, batch, &loader)
    }

    #[test]
    fn chunks_cover_every_batch() {
        let queue = queue(3, 10, 4, 5);
        queue.open();
        let chunks: Vec<(u64, u64, u64)> = std::iter::from_fn(|| queue.claim())
            .map(|chunk| (chunk.step, chunk.first, chunk.samples))
            .collect();
        let batch = |step| [(step, 0, 4), (step, 4, 4), (step, 8, 2)];
        assert_eq!(chunks, [batch(0), batch(1), batch(2)].concat());
        assert!(queue.exhausted());
    }

    #[test]
    fn readers_stay_within_the_prefetch_depth() {
        let queue = queue(10, 2, 2, 3);
        assert_eq!(queue.claim(), None, "nothing before the start");
        queue.open();
        assert_eq!(std::iter::from_fn(|| queue.claim()).count(), 3);
        assert!(!queue.ask(0), "step 0 is under way already");
        assert!(queue.complete(Chunk { step: 0, first: 0, samples: 2 }, || Nanos(7)));
        assert_eq!(queue.ready(0), Some(Nanos(7)));
        assert!(!queue.take(0), "the reader has made room already: the accelerator was waiting");
        assert_eq!(queue.claim().map(|chunk| chunk.step), Some(3));
        assert_eq!(queue.claim(), None);
        assert_eq!(queue.ready(3), None, "the reused slot starts afresh");
        assert!(queue.complete(Chunk { step: 1, first: 0, samples: 2 }, || Nanos(8)));
        assert_eq!(queue.claim(), None, "nobody waits for step 1 yet");
        assert!(!queue.ask(1) && queue.take(1), "now there is room");
    }

    #[test]
    fn no_prefetch_is_strictly_synchronous() {
        let queue = queue(10, 4, 2, 0);
        queue.open();
        assert!(!queue.claimable());
        for step in 0..3 {
            assert!(queue.ask(step));
            let chunks: Vec<Chunk> = std::iter::from_fn(|| queue.claim()).collect();
            assert_eq!(chunks.iter().map(|chunk| chunk.step).collect::<Vec<_>>(), [step, step]);
            assert!(!queue.complete(chunks[1], || Nanos(1)), "half a batch is no batch");
            assert!(queue.complete(chunks[0], || Nanos(step)));
            assert_eq!(queue.ready(step), Some(Nanos(step)));
            queue.take(step);
            assert!(!queue.claimable(), "nothing is read that was not asked for");
        }
    }
}
