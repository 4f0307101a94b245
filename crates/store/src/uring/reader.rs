//! The state of a reader: its current fetch, its progress, and what its slot in the ring holds. The lane makes the
//! requests.

use model::extent::Extent;
use model::units::Nanos;
use rustix::fd::{AsRawFd, IntoRawFd, OwnedFd};

use super::ring::FileHandle;
use crate::reading::{RangeRead, ReadRequest, Transfers};
use crate::{Buffer, Fetch, Fetched, Purpose, StoreError};

/// A reader and its fetch.
#[derive(Debug, Default)]
pub(super) struct RingReader {
    pub(super) busy: bool,
    /// Whether a file is open in the reader's slot, and whether it is a different one than the fetch's.
    pub(super) open: bool,
    pub(super) stale: bool,
    /// That file, if it is open as a descriptor and not in the slot.
    pub(super) file: Option<OwnedFd>,
    pub(super) purpose: Purpose,
    pub(super) ranges: Vec<Extent>,
    /// The index of the current range, what remains of it, and the read that is in flight.
    pub(super) range: usize,
    pub(super) reading: Option<RangeRead>,
    pub(super) ask: ReadRequest,
    pub(super) file_bytes: u64,
    /// Whether the size of the file must be queried when it is opened, because no read of the fetch shows it.
    pub(super) checks_size: bool,
    pub(super) keep_open: bool,
    pub(super) kept: Option<Buffer>,
    /// Bytes of the ranges before the current one.
    pub(super) before: u64,
    pub(super) brought: Fetched,
    pub(super) trouble: Option<StoreError>,
    /// Answers of the current chain that have not arrived.
    pub(super) owed: usize,
    /// When the fetch began, and when the request that is answered next began.
    pub(super) began: Nanos,
    pub(super) since: Nanos,
    pub(super) examined: bool,
}

impl RingReader {
    /// Begins a fetch.
    pub(super) fn begin(&mut self, fetch: Fetch<'_>, now: Nanos) {
        (self.busy, self.began) = (true, now);
        self.purpose = fetch.purpose;
        self.ranges.clear();
        self.ranges.extend_from_slice(fetch.ranges);
        (self.file_bytes, self.checks_size) = (fetch.file_bytes, !fetch.shows_size());
        self.keep_open = fetch.keep_open;
        self.kept = fetch.into;
        if let Some(kept) = &mut self.kept {
            kept.prepare(fetch.ranges.iter().map(|range| range.len).sum::<u64>() as usize);
        }
        (self.range, self.before, self.brought) = (0, 0, Fetched::default());
        self.reading = self.ranges.first().map(|range| RangeRead::new(*range, self.file_bytes));
        (self.trouble, self.owed, self.examined) = (None, 0, false);
    }

    /// The next read of the fetch; advances to the next range when one is complete. `None` when all are.
    pub(super) fn next(&mut self, transfers: Transfers) -> Option<ReadRequest> {
        loop {
            if let Some(ask) = self.reading?.next(transfers) {
                return Some(ask);
            }
            self.before += self.ranges[self.range].len;
            self.range += 1;
            self.reading = self.ranges.get(self.range).map(|range| RangeRead::new(*range, self.file_bytes));
        }
    }

    /// Where the reader's file is open.
    pub(super) fn place(&self) -> FileHandle {
        self.file.as_ref().map_or(FileHandle::Slot, |file| FileHandle::Descriptor(file.as_raw_fd()))
    }

    /// The same, for a caller that closes it.
    pub(super) fn give_up_file(&mut self) -> FileHandle {
        self.file.take().map_or(FileHandle::Slot, |file| FileHandle::Descriptor(file.into_raw_fd()))
    }

    pub(super) fn is_in_last_range(&self) -> bool {
        self.range + 1 == self.ranges.len()
    }
}
