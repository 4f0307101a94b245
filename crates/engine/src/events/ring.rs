//! A bounded queue from one thread to another, for entries of a few words: no lock, no allocation, and no waiting. A
//! full queue drops the entry and counts it.
//!
//! The words are relaxed atomics, so the queue needs no unsafe code: two threads that pushed at the same time would
//! mix up entries, but not break memory. `models` checks the protocol.

use super::sync::{AtomicBool, AtomicU64, Ordering};

/// A counter on a cache line of its own, so that the two threads do not slow each other down.
#[derive(Debug)]
#[repr(align(64))]
struct RingCounter(AtomicU64);

/// The queue. `push` and `close` are for one thread at a time, `drain` for another one.
#[derive(Debug)]
pub(crate) struct WordRing<const WORDS: usize> {
    words: Box<[AtomicU64]>,
    /// Entries that were ever written, and taken out.
    written: RingCounter,
    taken: RingCounter,
    /// The writing thread's last look at `taken`: it reads the other thread's cache line only when the ring seems full.
    seen_taken: RingCounter,
    dropped: AtomicU64,
    closed: AtomicBool,
}

/// Entries after which `drain` gives their room back.
const AT_ONCE: u64 = 256;

impl<const WORDS: usize> WordRing<WORDS> {
    /// For this many entries, rounded up to a power of two.
    pub(crate) fn new(capacity: usize) -> WordRing<WORDS> {
        let capacity = capacity.next_power_of_two();
        let counter = || RingCounter(AtomicU64::new(0));
        WordRing {
            words: (0..capacity * WORDS).map(|_| AtomicU64::new(0)).collect(),
            written: counter(),
            taken: counter(),
            seen_taken: counter(),
            dropped: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn capacity(&self) -> u64 {
        (self.words.len() / WORDS) as u64
    }

    fn slot(&self, number: u64) -> &[AtomicU64] {
        let place = (number & (self.capacity() - 1)) as usize * WORDS;
        &self.words[place..place + WORDS]
    }

    /// Adds an entry, or drops it if there is no room.
    pub(crate) fn push(&self, entry: &[u64; WORDS]) {
        // Relaxed: only this thread writes `written` and `seen_taken`.
        let number = self.written.0.load(Ordering::Relaxed);
        if number - self.seen_taken.0.load(Ordering::Relaxed) >= self.capacity() {
            // Acquire: pairs with the Release in `drain`, which has read the entries that are overwritten now.
            let taken = self.taken.0.load(Ordering::Acquire);
            self.seen_taken.0.store(taken, Ordering::Relaxed);
            if number - taken >= self.capacity() {
                // Relaxed: a count that only this thread writes.
                self.dropped.store(self.dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                return;
            }
        }
        for (word, value) in self.slot(number).iter().zip(entry) {
            // Relaxed: published by `written` below.
            word.store(*value, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `drain`, which then sees the words.
        self.written.0.store(number + 1, Ordering::Release);
    }

    /// Passes on the entries that were there when it was called.
    pub(crate) fn drain(&self, mut each: impl FnMut(&[u64; WORDS])) {
        // Acquire: pairs with the Release in `push`. Relaxed: only this thread writes `taken`.
        let (end, mut number) =
            (self.written.0.load(Ordering::Acquire), self.taken.0.load(Ordering::Relaxed));
        while number < end {
            let stop = end.min(number + AT_ONCE);
            while number < stop {
                let mut entry = [0; WORDS];
                for (value, word) in entry.iter_mut().zip(self.slot(number)) {
                    // Relaxed: the Acquire above made it visible.
                    *value = word.load(Ordering::Relaxed);
                }
                each(&entry);
                number += 1;
            }
            // Release: pairs with the Acquire in `push`, which overwrites the words only after they were read.
            self.taken.0.store(number, Ordering::Release);
        }
    }

    /// The writing thread has ended.
    pub(crate) fn close(&self) {
        // Release: pairs with the Acquire in `is_closed`, after which all entries and the count are visible.
        self.closed.store(true, Ordering::Release);
    }

    /// Whether no more entries will come. Asked before `drain`, so that a closed ring is empty after it.
    pub(crate) fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release in `close`.
        self.closed.load(Ordering::Acquire)
    }

    /// Entries that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        // Relaxed: a count; it is exact once the ring is closed.
        self.dropped.load(Ordering::Relaxed)
    }

    /// Prepares a closed and empty ring for another thread; returns how many entries were dropped before.
    pub(crate) fn reopen(&self) -> u64 {
        // Relaxed: no other thread uses the ring now, and the next one gets it under a lock.
        self.closed.store(false, Ordering::Relaxed);
        let dropped = self.dropped.load(Ordering::Relaxed);
        self.dropped.store(0, Ordering::Relaxed);
        dropped
    }
}
