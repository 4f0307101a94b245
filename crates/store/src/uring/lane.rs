//! The requests to a ring, reader by reader. A fetch is a few chains of requests: close what the reader had open, open,
//! read; further reads; the last read with the close. Readers that are ready for their next chain queue up, and many
//! chains are submitted to the kernel in one call. A fetch allocates nothing once names and ranges have reached their
//! sizes.
//!
//! If pages are counted or evicted, files are opened as descriptors and not in slots, because the kernel counts and
//! evicts pages of descriptors only. Then opening, reading and closing are separate chains, and between them the thread
//! makes the calls itself: counting takes about as long as a request, and a ring would pass eviction to a kernel
//! thread. The same applies if the size of a file must be queried, which the kernel does not support for a slot.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::extent::Extent;
use model::spans::SpanKind;
use model::units::Nanos;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use super::Uring;
use super::reader::RingReader;
use super::ring::{Completion, Ring, RingRequest};
use crate::posix::advice;
use crate::proof::{FetchView, Prover};
use crate::reading::{ReadRequest, Transfers};
use crate::{
    Fetch, FetchWait, FinishedFetch, Lane, Operation, Spans, StoreError, Traffic, WHOLE, Waker, page_cache,
    size, whole,
};

/// If no answer has arrived for this long, readers are examined: see `UringLane::examine`.
const QUIET: Nanos = Nanos(500_000_000);

/// The name of a reader's file in messages.
fn shown(store: &Uring, ring: &Ring, reader: usize) -> String {
    store.folder.path_of(&ring.path(reader).to_string_lossy())
}

/// The first operation of a chain.
fn asked(opens: bool, read: Option<ReadRequest>) -> Operation {
    match (opens, read) {
        (true, _) => Operation::Open,
        (false, Some(_)) => Operation::Read,
        (false, None) => Operation::Close,
    }
}

pub(super) struct UringLane<'a> {
    store: &'a Uring,
    traffic: Traffic<'a>,
    transfers: Transfers,
    ring: Ring,
    readers: Vec<RingReader>,
    /// Readers whose next chain is to be composed.
    ready: VecDeque<usize>,
    done: VecDeque<FinishedFetch>,
    busy: usize,
    /// How long no answer has arrived.
    quiet: Nanos,
    /// Why the ring can no longer be used.
    lost: Option<Errno>,
    prover: Prover<'a>,
    /// Whether the thread has spent time since it last read the clock.
    late: bool,
    spans: Spans,
}

impl<'a> UringLane<'a> {
    pub(super) fn new(store: &'a Uring, traffic: Traffic<'a>, transfers: Transfers, ring: Ring) -> Self {
        let count = traffic.readers;
        UringLane {
            store,
            traffic,
            transfers,
            ring,
            readers: (0..count).map(|_| RingReader::default()).collect(),
            ready: VecDeque::with_capacity(count),
            done: VecDeque::with_capacity(count),
            busy: 0,
            quiet: Nanos::ZERO,
            lost: None,
            prover: Prover::new(traffic.proof),
            late: false,
            spans: Spans::default(),
        }
    }

    /// Whether pages are counted or evicted.
    fn looks(&self) -> bool {
        self.store.past_cache.is_none() && self.prover.looks()
    }

    /// Composes the reader's next chain.
    fn compose(&mut self, reader: usize, now: Nanos) {
        let looks = self.looks();
        let this = &mut self.readers[reader];
        let next = match this.trouble {
            Some(_) => None,
            None => this.next(self.transfers),
        };
        let opens = this.trouble.is_none() && (this.stale || !this.open);
        self.traffic.begin(reader, asked(opens, next), next.map_or(0, |ask| ask.offset));
        if opens {
            if this.stale {
                self.ring.close(reader, this.give_up_file());
            }
            let (folder, flags) = (self.store.folder.root(), self.store.open_flags());
            if looks || this.checks_size {
                self.ring.open_descriptor(reader, folder, flags);
                this.since = now;
                this.owed = self.ring.commit();
                return;
            }
            self.ring.open(reader, folder, flags);
            if let Some(advice) = self.store.advice() {
                self.ring.advise(reader, advice);
            }
        }
        if let Some(ask) = next {
            this.ask = ask;
            self.ring.read(reader, this.place(), ask, self.store.read_flags());
        }
        let reads_on = next.is_some_and(|ask| looks || !ask.is_last || !this.is_in_last_range());
        if !this.keep_open && !reads_on {
            self.ring.close(reader, this.give_up_file());
        }
        this.since = now;
        this.owed = self.ring.commit();
        if this.owed == 0 {
            self.go_on(reader, now);
        }
    }

    /// Submits the chains of ready readers to the kernel, in as few calls as possible.
    fn flush(&mut self) {
        while self.lost.is_none() {
            self.queue_chains();
            if !self.ring.has_work() {
                return;
            }
            if let Err(cause) = self.ring.enter(None) {
                self.lose(cause);
            }
            if self.ready.is_empty() || !self.ring.has_room() {
                return;
            }
        }
    }

    fn queue_chains(&mut self) {
        if self.ready.is_empty() {
            return;
        }
        let now = self.traffic.clock.now();
        while self.ring.has_room() {
            let Some(reader) = self.ready.pop_front() else { return };
            self.compose(reader, now);
        }
    }

    /// Processes all available answers.
    fn collect(&mut self) {
        let mut moment = None;
        while let Some(answer) = self.ring.answer() {
            let now = *moment.get_or_insert_with(|| self.traffic.clock.now());
            if !matches!(answer.asked, RingRequest::Bell | RingRequest::Cancel) && self.lost.is_none() {
                self.quiet = Nanos::ZERO;
                self.take(answer, now);
            }
            if std::mem::take(&mut self.late) {
                moment = None;
            }
        }
    }

    /// The reader's file is open as a descriptor.
    fn opened(&mut self, reader: usize, file: OwnedFd) {
        if let Some(advice) = advice(self.store.readahead)
            && let Err(cause) = rustix::fs::fadvise(&file, 0, None, advice)
        {
            self.fail(reader, RingRequest::Advise, cause);
        }
        if self.readers[reader].checks_size {
            self.check_size(reader, &file);
        }
        self.readers[reader].file = Some(file);
        self.probe(reader);
    }

    /// Compares the size of the reader's file with the planned one; see `BlockingLane::check_size`.
    fn check_size(&mut self, reader: usize, file: &OwnedFd) {
        self.traffic.begin(reader, Operation::Stat, 0);
        let found = size::size_of(file);
        self.traffic.end(reader);
        self.late = true;
        let (planned, shown) = (self.readers[reader].file_bytes, || shown(self.store, &self.ring, reader));
        let outcome = match found {
            Ok(found) => size::compare(found, planned, shown),
            Err(cause) => Err(self.store.error(Operation::Stat, shown(), cause)),
        };
        self.readers[reader].trouble = self.readers[reader].trouble.take().or(outcome.err());
    }

    /// Counts the resident pages of the reader's fetch before it is read.
    fn probe(&mut self, reader: usize) {
        let looks = self.looks();
        let this = &mut self.readers[reader];
        let Some(file) = this.file.as_ref().filter(|_| looks) else { return };
        let name = self.ring.path(reader).to_bytes();
        let subject = FetchView { name, ranges: &this.ranges, file_bytes: this.file_bytes };
        this.brought.probe = self.prover.draw(subject).unwrap_or_else(|| {
            let begin = self.traffic.clock.now();
            let probe = self.prover.count(file.as_fd(), subject);
            let times = (begin, self.traffic.clock.now());
            self.traffic.record(&mut self.spans, reader, SpanKind::Probe, times, whole(subject.ranges));
            self.late = true;
            probe
        });
    }

    /// Evicts the pages of the reader's fetch; see `BlockingLane::give_back`.
    fn give_back(&mut self, reader: usize) {
        let this = &self.readers[reader];
        let gives_back = self.looks() && self.prover.gives_back();
        let Some(file) = this.file.as_ref().filter(|_| gives_back) else { return };
        let begin = self.traffic.clock.now();
        this.ranges.iter().for_each(|range| page_cache::forget(file, *range));
        let times = (begin, self.traffic.clock.now());
        self.traffic.record(&mut self.spans, reader, SpanKind::Forget, times, whole(&this.ranges));
        self.late = true;
    }

    /// Processes one answer; after the last one of its chain, the reader continues.
    fn take(&mut self, answer: Completion, now: Nanos) {
        let Completion { reader, asked, result } = answer;
        let this = &mut self.readers[reader];
        this.owed -= 1;
        self.traffic.end(reader);
        match (asked, result) {
            (RingRequest::Open | RingRequest::OpenDescriptor, Ok(file)) => {
                this.open = true;
                this.brought.opens += 1;
                self.traffic.record(&mut self.spans, reader, SpanKind::Open, (this.since, now), WHOLE);
                match asked {
                    RingRequest::OpenDescriptor => self.opened(reader, Ring::adopt(file)),
                    _ => self.traffic.begin(reader, Operation::Read, this.ask.offset),
                }
            }
            (RingRequest::Read, Ok(got)) if this.trouble.is_none() => {
                this.brought.reads += 1;
                let range = Extent { offset: this.ask.offset, len: got as u64 };
                self.traffic.record(&mut self.spans, reader, SpanKind::Read, (this.since, now), range);
                self.arrive(reader, got);
            }
            (RingRequest::Close, Ok(_)) => {
                (this.open, this.stale) = (false, false);
                self.traffic.record(&mut self.spans, reader, SpanKind::Close, (this.since, now), WHOLE);
            }
            // Requested again, starting with the open if the chain has closed the file meanwhile.
            (RingRequest::Read, Err(Errno::INTR | Errno::AGAIN)) => {}
            (_, Err(cause)) => self.fail(reader, asked, cause),
            _ => {}
        }
        let this = &mut self.readers[reader];
        this.since = now;
        if this.owed == 0 {
            self.go_on(reader, now);
        }
    }

    /// Processes the bytes of a read.
    fn arrive(&mut self, reader: usize, got: usize) {
        let this = &mut self.readers[reader];
        let Some(reading) = &mut this.reading else { return };
        let part = match reading.take(this.ask, got, || shown(self.store, &self.ring, reader)) {
            Ok(part) => part,
            Err(seen) => {
                let facts =
                    rustix::fs::statat(self.store.folder.root(), self.ring.path(reader), AtFlags::empty());
                this.trouble = Some(size::explain(seen, facts.and_then(size::regular), this.file_bytes));
                return;
            }
        };
        let came = self.ring.came(reader, part);
        if let Some(kept) = &mut this.kept {
            kept.room()[this.before as usize + part.place..][..part.bytes].copy_from_slice(came);
        }
        if let (Some(witness), Some(number)) = (self.traffic.witness, this.purpose.witnessed()) {
            let offset = this.ranges[this.range].offset + part.place as u64;
            this.trouble = witness.see(reader, number, offset, came).err();
        }
    }

    /// Records a request that failed. The requests after it in its chain fail for that reason and are ignored.
    fn fail(&mut self, reader: usize, asked: RingRequest, cause: Errno) {
        if self.readers[reader].trouble.is_none() {
            let name = shown(self.store, &self.ring, reader);
            self.readers[reader].trouble = Some(match asked {
                RingRequest::Open | RingRequest::OpenDescriptor => {
                    self.store.error(Operation::Open, name, cause)
                }
                RingRequest::Advise => self.store.error(Operation::Advise, name, cause),
                RingRequest::Close => self.store.error(Operation::Close, name, cause),
                RingRequest::Read | RingRequest::Cancel | RingRequest::Bell => {
                    self.store.error(Operation::Read, name, cause)
                }
            });
        }
    }

    /// Continues after a chain: with another one, or the end of the fetch.
    fn go_on(&mut self, reader: usize, now: Nanos) {
        let this = &mut self.readers[reader];
        let reads_on = this.trouble.is_none() && this.next(self.transfers).is_some();
        // Relaxed: the flag publishes no other data.
        if reads_on && self.traffic.give_up.load(Ordering::Relaxed) {
            this.trouble = Some(StoreError::GivenUp);
        }
        let is_over = !reads_on || this.trouble.is_some();
        // After an error the file is closed: only opening it again would find the error again.
        this.keep_open &= this.trouble.is_none();
        if is_over && self.readers[reader].open {
            self.give_back(reader);
        }
        let this = &self.readers[reader];
        if is_over && (this.keep_open || !this.open) {
            self.end(reader, now);
        } else {
            self.ready.push_back(reader);
        }
    }

    fn end(&mut self, reader: usize, at: Nanos) {
        let this = &mut self.readers[reader];
        this.busy = false;
        this.brought.bytes = this.before;
        if let Some(kept) = &mut this.kept {
            kept.set_len(this.before as usize);
        }
        let outcome = this.trouble.take().map_or(Ok(this.brought), Err);
        self.busy -= 1;
        self.done.push_back(FinishedFetch { reader, at, began: this.began, outcome, kept: this.kept.take() });
    }

    /// The ring can no longer be used: all fetches end.
    fn lose(&mut self, cause: Errno) {
        self.lost = Some(cause);
        self.ready.clear();
        let now = self.traffic.clock.now();
        for reader in 0..self.readers.len() {
            if self.readers[reader].busy {
                self.fail(reader, RingRequest::Read, cause);
                self.end(reader, now);
            }
        }
    }

    /// Sleeps until an answer may have arrived.
    fn sleep(&mut self, most: Nanos) {
        self.queue_chains();
        let most = most.min(QUIET);
        match self.ring.enter(Some(most)) {
            Ok(false) => {}
            Ok(true) => {
                self.quiet += most;
                if self.quiet >= QUIET {
                    self.examine();
                }
            }
            Err(cause) => self.lose(cause),
        }
    }

    /// Ends the fetches of entries that are not files. Opening a pipe may wait forever for a writer; the flag against
    /// that would make reads fail that have to wait for the disk; and checking every file first would cost too much. So
    /// the check is made if no answer has arrived for a while, once per fetch.
    fn examine(&mut self) {
        self.quiet = Nanos::ZERO;
        for reader in 0..self.readers.len() {
            let this = &mut self.readers[reader];
            if !this.busy || this.examined || this.owed == 0 || !self.ring.has_room() {
                continue;
            }
            this.examined = true;
            let folder = self.store.folder.root();
            let facts = rustix::fs::statat(folder, self.ring.path(reader), AtFlags::empty());
            if facts.is_ok_and(|facts| FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile) {
                self.fail(reader, RingRequest::Read, Errno::SPIPE);
                self.ring.cancel(reader);
            }
        }
    }
}

impl Lane for UringLane<'_> {
    fn submit(&mut self, reader: usize, fetch: Fetch<'_>) {
        debug_assert!(!self.readers[reader].busy);
        let name = fetch.name;
        let this = &mut self.readers[reader];
        this.begin(fetch, self.traffic.clock.now());
        self.busy += 1;
        let refused = match self.lost {
            Some(cause) => Some(self.store.folder.error(Operation::Read, name, cause)),
            None => self.store.prove(name).err(),
        };
        if refused.is_some() {
            this.trouble = refused;
            return self.end(reader, self.traffic.clock.now());
        }
        if self.ring.path(reader) != name.as_c_str() {
            this.stale = this.open;
            self.ring.set_path(reader, name.as_c_str());
        }
        if this.open && !this.stale {
            self.probe(reader);
        }
        self.ready.push_back(reader);
    }

    fn reap(&mut self) -> Option<FinishedFetch> {
        if self.done.is_empty() {
            self.collect();
        }
        // While there are completions to return, new fetches are collected for one call.
        if self.done.is_empty() {
            self.flush();
            self.collect();
        }
        self.done.pop_front()
    }

    fn awaits(&self) -> FetchWait {
        match self.busy > 0 && self.done.is_empty() {
            true => FetchWait::Medium,
            false => FetchWait::Nothing,
        }
    }

    fn wait(&mut self, most: Nanos) {
        if self.done.is_empty() && !self.ring.was_rung() && self.lost.is_none() {
            self.sleep(most);
        }
    }

    fn waker(&self) -> Option<Arc<dyn Waker>> {
        Some(self.ring.bell())
    }

    fn take_spans(&mut self) -> Spans {
        std::mem::take(&mut self.spans)
    }
}
