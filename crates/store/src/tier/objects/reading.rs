//! Reads files of a tier as several ranges at a time, in order: while one chunk is used, the next ones are in flight.
//! It works with the lane of any store.

use std::fmt::Debug;
use std::time::Duration;

use model::extent::Extent;
use model::names::Name;
use model::units::Nanos;

use super::super::TierSource;
use crate::{Buffer, Fetch, FetchWait, FinishedFetch, Lane, Now, Purpose, Store, StoreError, Traffic};

/// How long a wait for the storage lasts before it is repeated.
const A_WHILE: Nanos = Nanos(1_000_000_000);

/// Opens objects to read them from front to back.
pub(crate) trait RangeReader: Send + Sync + Debug {
    /// The name is relative to the tier; an object of another size is an error when it is read.
    fn open<'a>(
        &'a self,
        name: &Name,
        bytes: u64,
        clock: &'a dyn Now,
    ) -> Result<Box<dyn TierSource + 'a>, StoreError>;
}

/// Reads through the lanes of a store that is opened at the place of the tier.
#[derive(Debug)]
pub(crate) struct LaneReader {
    store: Box<dyn Store>,
    /// Chunks of a file that are requested at once.
    ahead: usize,
}

impl LaneReader {
    pub(crate) fn new(store: Box<dyn Store>, ahead: usize) -> LaneReader {
        LaneReader { store, ahead: ahead.max(1) }
    }
}

impl RangeReader for LaneReader {
    fn open<'a>(
        &'a self,
        name: &Name,
        bytes: u64,
        clock: &'a dyn Now,
    ) -> Result<Box<dyn TierSource + 'a>, StoreError> {
        Ok(Box::new(AheadSource {
            store: &*self.store,
            lane: None,
            name: name.clone(),
            bytes,
            chunk: 0,
            requested: 0,
            delivered: 0,
            slots: (0..self.ahead).map(|_| Slot::Free(Buffer::default())).collect(),
            ended: clock.now(),
            clock,
        }))
    }
}

/// The place of one chunk, which belongs to the reader of the same number. Chunk `n` is in the slot `n % slots`.
enum Slot {
    Free(Buffer),
    InFlight,
    Done(Result<Buffer, StoreError>),
}

/// A file that is read ahead.
struct AheadSource<'a> {
    store: &'a dyn Store,
    /// Taken when the first chunk shows how large chunks are.
    lane: Option<Box<dyn Lane + 'a>>,
    name: Name,
    bytes: u64,
    chunk: u64,
    /// Chunks that were requested, and those of them that were delivered.
    requested: u64,
    delivered: u64,
    slots: Vec<Slot>,
    ended: Nanos,
    clock: &'a dyn Now,
}

impl AheadSource<'_> {
    fn chunks(&self) -> u64 {
        self.bytes.div_ceil(self.chunk)
    }

    /// Requests chunks for which there is a free slot.
    fn request(&mut self) {
        let slots = self.slots.len() as u64;
        while self.requested < self.chunks().min(self.delivered + slots) {
            let reader = (self.requested % slots) as usize;
            let Slot::Free(buffer) = std::mem::replace(&mut self.slots[reader], Slot::InFlight) else {
                return;
            };
            // The buffers change hands with those of the caller, whose chunks must all be of the same size.
            let is_small = (buffer.capacity() as u64) < self.chunk;
            let buffer = if is_small { Buffer::with_capacity(self.chunk as usize) } else { buffer };
            let offset = self.requested * self.chunk;
            let len = self.chunk.min(self.bytes - offset);
            self.requested += 1;
            let Some(lane) = &mut self.lane else { return };
            let fetch = Fetch {
                name: &self.name,
                purpose: Purpose::Upkeep,
                ranges: &[Extent { offset, len }],
                file_bytes: self.bytes,
                version: None,
                keep_open: true,
                at: self.ended,
                into: Some(buffer),
            };
            lane.submit(reader, fetch);
            // A blocking lane is done already, and takes no other fetch before this one is reaped.
            self.reap();
        }
    }

    fn reap(&mut self) {
        while let Some(finished) = self.lane.as_mut().and_then(|lane| lane.reap()) {
            let FinishedFetch { reader, at, outcome, kept, .. } = finished;
            self.ended = self.ended.max(at);
            self.slots[reader] = Slot::Done(outcome.map(|_| kept.unwrap_or_default()));
        }
    }

    /// Waits until the chunk in this slot is there.
    fn wait_for(&mut self, reader: usize) {
        while matches!(self.slots[reader], Slot::InFlight) {
            let Some(lane) = &mut self.lane else { return };
            let awaited = lane.awaits();
            match awaited {
                FetchWait::Nothing => {}
                FetchWait::Medium => lane.wait(A_WHILE),
                FetchWait::Moment(at) => {
                    let left = at.since(self.clock.now());
                    std::thread::sleep(Duration::from_nanos(left.0));
                }
            }
            self.reap();
            if awaited == FetchWait::Nothing && matches!(self.slots[reader], Slot::InFlight) {
                // The lane has lost it.
                return;
            }
        }
    }
}

impl TierSource for AheadSource<'_> {
    fn read(&mut self, chunk: &mut Buffer) -> Result<(), StoreError> {
        if self.lane.is_none() {
            self.chunk = chunk.capacity().max(1) as u64;
            let (readers, transfer) = (self.slots.len(), self.chunk as usize);
            let traffic = Traffic { readers, transfer, clock: self.clock, ..Traffic::untimed() };
            self.lane = Some(self.store.lane(traffic)?);
        }
        if self.bytes == 0 || self.delivered == self.chunks() {
            chunk.set_len(0);
            return Ok(());
        }
        self.request();
        let reader = (self.delivered % self.slots.len() as u64) as usize;
        self.wait_for(reader);
        match std::mem::replace(&mut self.slots[reader], Slot::Free(Buffer::default())) {
            Slot::Done(Ok(mut filled)) => {
                std::mem::swap(chunk, &mut filled);
                self.slots[reader] = Slot::Free(filled);
                self.delivered += 1;
                Ok(())
            }
            Slot::Done(Err(cause)) => Err(cause),
            Slot::Free(_) | Slot::InFlight => Err(StoreError::GivenUp),
        }
    }

    fn ended(&self) -> Nanos {
        self.ended
    }
}
