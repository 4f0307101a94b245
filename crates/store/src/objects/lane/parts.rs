//! The fetches of a lane's readers, and the range requests that each is made of.

use model::extent::Extent;
use model::names::Name;
use model::objects::ObjectVersion;
use model::units::Nanos;

use crate::{Buffer, Fetch, Fetched, Purpose, StoreError};

/// Range requests are multiples of it, except for the last one of a range.
const GRANULE: u64 = 4096;

/// When the first attempt of a request began.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstAttempt {
    pub(super) at: Nanos,
    pub(super) tick: u64,
}

/// A request that waits for another attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct DelayedPart {
    pub(super) number: usize,
    /// The tick at which the attempt begins.
    pub(super) until: u64,
    /// The version of the credential that was refused: with another one, the attempt begins at once.
    pub(super) refused: Option<u64>,
}

/// One request of a fetch, from its first attempt to its last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) reader: usize,
    pub(super) range: Extent,
    /// Where its bytes belong in the buffer of the fetch.
    pub(super) place: u64,
    /// Bytes that have arrived; an attempt that follows asks for the rest.
    pub(super) done: u64,
    /// Attempts that were begun, whether or not a connection was made.
    pub(super) attempts: u32,
    /// Set once: what follows a failure belongs to the same request.
    pub(super) first: Option<FirstAttempt>,
    /// Whether it must not use a connection that was used before: one of these was closed by the server.
    pub(super) afresh: bool,
    /// The endpoint of the last attempt, and the version of the credential that it was signed with.
    pub(super) endpoint: usize,
    pub(super) credential: u64,
}

impl Part {
    fn new(reader: usize, range: Extent, place: u64) -> Part {
        let (done, attempts, first, afresh, endpoint, credential) = (0, 0, None, false, 0, 0);
        Part { reader, range, place, done, attempts, first, afresh, endpoint, credential }
    }

    /// What the next attempt asks for.
    pub(super) fn rest(&self) -> Extent {
        Extent { offset: self.range.offset + self.done, len: self.range.len - self.done }
    }
}

/// The fetch of one reader.
#[derive(Debug, Default)]
pub(super) struct ReaderFetch {
    pub(super) busy: bool,
    pub(super) name: Name,
    pub(super) purpose: Purpose,
    pub(super) file_bytes: u64,
    pub(super) keep_open: bool,
    pub(super) kept: Option<Buffer>,
    pub(super) began: Nanos,
    /// Requests that have not ended.
    pub(super) parts_left: usize,
    pub(super) brought: Fetched,
    /// Bytes that have arrived, those of requests that have not ended included.
    pub(super) received: u64,
    pub(super) trouble: Option<StoreError>,
    /// The version that every answer must have: that of the catalog, or of the first answer.
    pub(super) version: Option<ObjectVersion>,
    /// Whether the version is the catalog's.
    pub(super) is_listed: bool,
    /// Whether the object of the last fetch was to stay open, so that its version counts for the next one.
    held: bool,
}

impl ReaderFetch {
    /// Begins a fetch; its requests follow.
    pub(super) fn begin(&mut self, fetch: Fetch<'_>, now: Nanos) {
        let total: u64 = fetch.ranges.iter().map(|range| range.len).sum();
        let is_same = self.held && self.name == *fetch.name;
        self.version = fetch.version.or(self.version.filter(|_| is_same));
        self.is_listed = fetch.version.is_some();
        self.name.clone_from(fetch.name);
        self.busy = true;
        self.purpose = fetch.purpose;
        self.file_bytes = fetch.file_bytes;
        self.keep_open = fetch.keep_open;
        self.kept = fetch.into;
        if let Some(kept) = &mut self.kept {
            kept.prepare(total as usize);
        }
        self.began = now;
        self.parts_left = 0;
        self.brought = Fetched::default();
        self.received = 0;
        self.trouble = None;
    }

    /// Ends the fetch and returns its outcome and buffer.
    pub(super) fn end(&mut self) -> (Result<Fetched, StoreError>, Option<Buffer>) {
        self.busy = false;
        self.held = self.keep_open && self.trouble.is_none();
        if let Some(kept) = &mut self.kept {
            kept.set_len(self.brought.bytes as usize);
        }
        (self.trouble.take().map_or(Ok(self.brought), Err), self.kept.take())
    }
}

/// The requests of all fetches; entries are reused.
#[derive(Debug, Default)]
pub(super) struct Parts {
    parts: Vec<Part>,
    free: Vec<usize>,
}

impl Parts {
    pub(super) fn get(&mut self, number: usize) -> &mut Part {
        &mut self.parts[number]
    }

    fn add(&mut self, part: Part) -> usize {
        match self.free.pop() {
            Some(number) => {
                self.parts[number] = part;
                number
            }
            None => {
                self.parts.push(part);
                self.parts.len() - 1
            }
        }
    }

    pub(super) fn remove(&mut self, number: usize) {
        self.free.push(number);
    }

    /// Adds the requests of a fetch, each of at most `most` bytes, and passes their numbers to `each`. A fetch without
    /// bytes takes one request for nothing, which shows the size of the object.
    pub(super) fn split(
        &mut self,
        reader: usize,
        ranges: &[Extent],
        most: u64,
        mut each: impl FnMut(usize),
    ) -> usize {
        let (mut count, mut place) = (0, 0);
        let mut add = |parts: &mut Parts, range: Extent, place: u64| {
            count += 1;
            each(parts.add(Part::new(reader, range, place)));
        };
        for range in ranges.iter().filter(|range| range.len > 0) {
            let mut offset = range.offset;
            while offset < range.end() {
                let len = most.min(range.end() - offset);
                add(self, Extent { offset, len }, place);
                offset += len;
                place += len;
            }
        }
        if place == 0 {
            add(self, Extent { offset: 0, len: 0 }, 0);
        }
        count
    }
}

/// The largest request for a transfer size.
pub(super) fn largest(transfer: usize) -> u64 {
    (transfer.max(1) as u64).next_multiple_of(GRANULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetch_is_split_into_requests_that_cover_it() {
        let mut parts = Parts::default();
        let ranges =
            [Extent { offset: 10, len: 9000 }, Extent { offset: 0, len: 0 }, Extent { offset: 5, len: 1 }];
        let mut numbers = Vec::new();
        assert_eq!(parts.split(3, &ranges, largest(4000), |number| numbers.push(number)), 4);
        let seen: Vec<(u64, u64, u64)> = numbers
            .iter()
            .map(|number| {
                let part = parts.get(*number);
                (part.range.offset, part.range.len, part.place)
            })
            .collect();
        assert_eq!(seen, [(10, 4096, 0), (4106, 4096, 4096), (8202, 808, 8192), (5, 1, 9000)]);
        assert_eq!(parts.split(0, &[], 4096, |_| {}), 1, "the size is checked");
        numbers.iter().for_each(|number| parts.remove(*number));
        parts.split(0, &ranges[2..], 4096, |number| assert!(numbers.contains(&number), "entries are reused"));
    }
}
