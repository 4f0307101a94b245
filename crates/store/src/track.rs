//! The current operation of a reader's lane, for a watchdog in another thread, which reads it when there seems to be no
//! progress.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use model::extent::Extent;

use crate::Operation;

/// The operations of one reader. Aligned to a cache line, so that readers of two threads do not share one.
///
/// Relaxed ordering suffices: one thread writes it, and the watchdog may see an inconsistent mixture, since it only
/// looks for values that have not changed for seconds.
#[derive(Debug)]
#[repr(align(64))]
pub struct Track {
    /// The current operation, its offset in the file, and its length; 0 if that is not known.
    operation: AtomicU8,
    offset: AtomicU64,
    len: AtomicU64,
    ended: AtomicU64,
    /// The attempt at a request and the number of the server that it is made to; 0 if there are no attempts.
    attempt: AtomicU64,
}

/// No operation.
const NONE: u8 = u8::MAX;

impl Default for Track {
    fn default() -> Track {
        Track {
            operation: AtomicU8::new(NONE),
            offset: AtomicU64::new(0),
            len: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            attempt: AtomicU64::new(0),
        }
    }
}

impl Track {
    pub fn begin(&self, operation: Operation, offset: u64) {
        self.operation.store(operation as u8, Ordering::Relaxed);
        self.offset.store(offset, Ordering::Relaxed);
        self.len.store(0, Ordering::Relaxed);
    }

    /// An attempt to read a range from a server begins, with making a connection if there is none.
    pub fn attempt(&self, range: Extent, attempt: u32, server: usize) {
        self.begin(Operation::Read, range.offset);
        self.len.store(range.len, Ordering::Relaxed);
        self.attempt.store(u64::from(attempt) << 32 | server as u64 & 0xffff_ffff, Ordering::Relaxed);
    }

    /// The last attempt and the number of its server; `None` for a backend without servers.
    pub fn last_attempt(&self) -> Option<(u32, usize)> {
        let both = self.attempt.load(Ordering::Relaxed);
        (both > 0).then_some(((both >> 32) as u32, (both & 0xffff_ffff) as usize))
    }

    pub fn end(&self) {
        self.operation.store(NONE, Ordering::Relaxed);
        self.count();
    }

    /// A part of the operation has ended.
    pub fn count(&self) {
        self.ended.store(self.ended().wrapping_add(1), Ordering::Relaxed);
    }

    /// Number of operations that have ended, and parts of them.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// The current operation.
    pub fn operation(&self) -> Option<Operation> {
        let number = self.operation.load(Ordering::Relaxed);
        Operation::ALL.into_iter().find(|operation| *operation as u8 == number)
    }

    /// The range in the file of the current operation, or else of the last one. Its length is 0 if it is not known.
    pub fn range(&self) -> Extent {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Extent { offset: load(&self.offset), len: load(&self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_shown_until_it_ends() {
        let track = Track::default();
        assert_eq!(track.operation(), None);
        for (count, operation) in Operation::ALL.into_iter().enumerate() {
            track.begin(operation, 7);
            assert_eq!(
                (track.operation(), track.range(), track.ended()),
                (Some(operation), Extent { offset: 7, len: 0 }, count as u64)
            );
            track.end();
            assert_eq!((track.operation(), track.ended()), (None, count as u64 + 1));
        }
        let range = Extent { offset: 10, len: 5 };
        track.attempt(range, 2, 3);
        assert_eq!((track.operation(), track.range()), (Some(Operation::Read), range));
        assert_eq!(track.last_attempt(), Some((2, 3)));
    }
}
