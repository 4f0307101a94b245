//! The lane of blocking backends: it opens the file, reads the ranges in transfers, closes the file, and has the
//! completion ready when the caller reaps. Only one fetch is active at a time, so all readers share one buffer.

use std::sync::atomic::Ordering;

use model::extent::Extent;
use model::names::Name;
use model::spans::SpanKind;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use crate::buffer::Buffer;
use crate::proof::{FetchView, Prover};
use crate::reading::{RangeRead, Transfers};
use crate::{
    Fetch, FetchWait, Fetched, FinishedFetch, Lane, Operation, Probe, Spans, StoreError, Traffic, WHOLE,
    page_cache, size, whole,
};

/// What a blocking backend has to implement.
pub trait Blocking: Sync {
    type File: Send;
    fn open(&self, name: &Name) -> Result<Self::File, StoreError>;
    /// Reads at `offset` into `buffer`; fewer bytes than requested only at the end of the file or after an
    /// interruption. Offset, length and address are multiples of the granule.
    fn read_at(
        &self,
        file: &Self::File,
        name: &Name,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, StoreError>;
    /// The size of an open file; an error if it is not a regular file.
    fn size(&self, file: &Self::File) -> Result<u64, Errno>;
    /// The unit of reads: they begin and end at multiples of it. A power of two that divides a page.
    fn granule(&self) -> usize {
        1
    }
    /// The file's descriptor, to query the page cache with; `None` if reads bypass it.
    fn cached<'f>(&self, file: &'f Self::File) -> Option<BorrowedFd<'f>> {
        let _ = file;
        None
    }
    /// Releases pages that the open file itself keeps resident, so that they can be evicted.
    fn let_go(&self, file: &Self::File, range: Extent) {
        let _ = (file, range);
    }
    /// The name of a file in messages.
    fn shown(&self, name: &Name) -> String;
    fn close(&self, file: Self::File, name: &Name) -> Result<(), StoreError>;
}

/// One fetch at a time through one buffer, which is reused: bytes stream through it and are dropped, like those of a
/// training job once they are part of a batch.
#[expect(missing_debug_implementations, reason = "holds a clock")]
pub struct BlockingLane<'a, B: Blocking> {
    backend: &'a B,
    traffic: Traffic<'a>,
    transfers: Transfers,
    buffer: Buffer,
    done: Option<FinishedFetch>,
    /// The file that stayed open for each reader.
    held: Vec<FileSlot<B::File>>,
    prover: Prover<'a>,
    spans: Spans,
}

/// The name is kept after the file is closed, so that its memory is reused.
#[derive(Debug)]
struct FileSlot<F> {
    name: Name,
    file: Option<F>,
}

impl<'a, B: Blocking> BlockingLane<'a, B> {
    pub fn new(backend: &'a B, traffic: Traffic<'a>) -> Self {
        let transfers = Transfers::new(traffic.transfer, backend.granule());
        let buffer = Buffer::with_capacity(transfers.room());
        let held = (0..traffic.readers).map(|_| FileSlot { name: Name::default(), file: None }).collect();
        let (prover, spans) = (Prover::new(traffic.proof), Spans::default());
        BlockingLane { backend, traffic, transfers, buffer, done: None, held, prover, spans }
    }

    /// The reader's file for this fetch: still open, or opened now. Also returns the number of opens.
    fn open(&mut self, reader: usize, fetch: &Fetch<'_>) -> Result<(B::File, u64), StoreError> {
        let name = fetch.name;
        let held = &mut self.held[reader];
        match held.file.take() {
            Some(file) if held.name == *name => return Ok((file, 0)),
            Some(file) => close(self.backend, &self.traffic, &mut self.spans, reader, file, &held.name)?,
            None => {}
        }
        let begin = self.traffic.clock.now();
        self.traffic.begin(reader, Operation::Open, 0);
        let file = self.backend.open(name);
        self.traffic.end(reader);
        let times = (begin, self.traffic.clock.now());
        self.traffic.record(&mut self.spans, reader, SpanKind::Open, times, WHOLE);
        let file = file?;
        if !fetch.shows_size()
            && let Err(cause) = self.check_size(reader, &file, fetch)
        {
            close(self.backend, &self.traffic, &mut self.spans, reader, file, name)?;
            return Err(cause);
        }
        Ok((file, 1))
    }

    /// Compares the size of a file that was just opened with the planned one. This is not part of the open's span.
    fn check_size(&self, reader: usize, file: &B::File, fetch: &Fetch<'_>) -> Result<(), StoreError> {
        let shown = || self.backend.shown(fetch.name);
        self.traffic.begin(reader, Operation::Stat, 0);
        let found = self.backend.size(file);
        self.traffic.end(reader);
        let found = found.map_err(|cause| StoreError::io(Operation::Stat, &shown(), cause))?;
        size::compare(found, fetch.file_bytes, shown)
    }

    fn leave(
        &mut self,
        reader: usize,
        file: B::File,
        name: &Name,
        keep_open: bool,
    ) -> Result<(), StoreError> {
        if keep_open {
            let held = &mut self.held[reader];
            held.name.clone_from(name);
            held.file = Some(file);
            return Ok(());
        }
        close(self.backend, &self.traffic, &mut self.spans, reader, file, name)
    }

    fn bring(&mut self, reader: usize, fetch: &mut Fetch<'_>) -> Result<Fetched, StoreError> {
        let (file, opens) = self.open(reader, fetch)?;
        let probe = self.probe((reader, &file), FetchView::of(fetch));
        let outcome = self.read_ranges((reader, &file), fetch);
        self.give_back((reader, &file), fetch.ranges);
        let left = self.leave(reader, file, fetch.name, fetch.keep_open && outcome.is_ok());
        let (bytes, reads) = outcome?;
        left?;
        Ok(Fetched { bytes, opens, reads, probe })
    }

    /// Counts the resident pages of a fetch before it is read.
    fn probe(&mut self, (reader, file): (usize, &B::File), subject: FetchView<'_>) -> Probe {
        let Some(cached) = self.backend.cached(file) else { return Probe::Unasked };
        if let Some(known) = self.prover.draw(subject) {
            return known;
        }
        let begin = self.traffic.clock.now();
        let probe = self.prover.count(cached, subject);
        let times = (begin, self.traffic.clock.now());
        self.traffic.record(&mut self.spans, reader, SpanKind::Probe, times, whole(subject.ranges));
        probe
    }

    /// Evicts the pages of a fetch, so that an epoch leaves nothing cached for the next. Pages that it shares with its
    /// neighbours may stay, and pages that read-ahead loaded behind it do stay.
    fn give_back(&mut self, (reader, file): (usize, &B::File), ranges: &[Extent]) {
        let Some(cached) = self.backend.cached(file).filter(|_| self.prover.gives_back()) else { return };
        let begin = self.traffic.clock.now();
        for range in ranges {
            self.backend.let_go(file, *range);
            page_cache::forget(cached, *range);
        }
        let times = (begin, self.traffic.clock.now());
        self.traffic.record(&mut self.spans, reader, SpanKind::Forget, times, whole(ranges));
    }

    fn read_ranges(
        &mut self,
        (reader, file): (usize, &B::File),
        fetch: &mut Fetch<'_>,
    ) -> Result<(u64, u64), StoreError> {
        let mut kept = fetch.into.take();
        let total: u64 = fetch.ranges.iter().map(|range| range.len).sum();
        if let Some(kept) = &mut kept {
            kept.prepare(total as usize);
        }
        let (mut bytes, mut reads) = (0, 0);
        let mut outcome = Ok(());
        for range in fetch.ranges {
            let into = kept.as_mut().map(|kept| &mut kept.room()[bytes as usize..][..range.len as usize]);
            match self.read_range((reader, file), *range, fetch, reads, into) {
                Ok(more) => reads += more,
                Err(cause) => {
                    outcome = Err(cause);
                    break;
                }
            }
            bytes += range.len;
        }
        if let Some(kept) = &mut kept {
            kept.set_len(bytes as usize);
        }
        fetch.into = kept;
        outcome.map(|()| (bytes, reads))
    }

    /// Reads one range in transfers and returns their number. `before` is the number of earlier reads of the fetch.
    fn read_range(
        &mut self,
        (reader, file): (usize, &B::File),
        range: Extent,
        fetch: &Fetch<'_>,
        before: u64,
        mut into: Option<&mut [u8]>,
    ) -> Result<u64, StoreError> {
        let mut reading = RangeRead::new(range, fetch.file_bytes);
        let mut reads = 0;
        while let Some(ask) = reading.next(self.transfers) {
            // Relaxed: the flag publishes no other data.
            if before + reads > 0 && self.traffic.give_up.load(Ordering::Relaxed) {
                return Err(StoreError::GivenUp);
            }
            let begin = self.traffic.clock.now();
            let room = &mut self.buffer.room()[..ask.bytes];
            self.traffic.begin(reader, Operation::Read, ask.offset);
            let got = self.backend.read_at(file, fetch.name, ask.offset, room);
            self.traffic.end(reader);
            let got = got?;
            let (times, range_read) =
                ((begin, self.traffic.clock.now()), Extent { offset: ask.offset, len: got as u64 });
            self.traffic.record(&mut self.spans, reader, SpanKind::Read, times, range_read);
            reads += 1;
            let part = reading
                .take(ask, got, || self.backend.shown(fetch.name))
                .map_err(|seen| size::explain(seen, self.backend.size(file), fetch.file_bytes))?;
            let came = &self.buffer.room()[part.skip..][..part.bytes];
            if let Some(kept) = &mut into {
                kept[part.place..][..part.bytes].copy_from_slice(came);
            }
            if let (Some(witness), Some(number)) = (self.traffic.witness, fetch.purpose.witnessed()) {
                witness.see(reader, number, range.offset + part.place as u64, came)?;
            }
        }
        Ok(reads)
    }
}

/// Closes a file and records the time.
fn close<B: Blocking>(
    backend: &B,
    traffic: &Traffic<'_>,
    spans: &mut Spans,
    reader: usize,
    file: B::File,
    name: &Name,
) -> Result<(), StoreError> {
    let begin = traffic.clock.now();
    traffic.begin(reader, Operation::Close, 0);
    let closed = backend.close(file, name);
    traffic.end(reader);
    traffic.record(spans, reader, SpanKind::Close, (begin, traffic.clock.now()), WHOLE);
    closed
}

impl<B: Blocking> Lane for BlockingLane<'_, B> {
    fn submit(&mut self, reader: usize, mut fetch: Fetch<'_>) {
        debug_assert!(self.done.is_none());
        let began = self.traffic.clock.now();
        let outcome = self.bring(reader, &mut fetch);
        let at = self.traffic.clock.now();
        self.done = Some(FinishedFetch { reader, at, began, outcome, kept: fetch.into });
    }

    fn reap(&mut self) -> Option<FinishedFetch> {
        self.done.take()
    }

    fn awaits(&self) -> FetchWait {
        FetchWait::Nothing
    }

    fn take_spans(&mut self) -> Spans {
        std::mem::take(&mut self.spans)
    }
}
