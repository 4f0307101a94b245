//! The ring of one CPU, into which the kernel writes records of page faults.

use std::fs::File;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use memmap2::{MmapOptions, MmapRaw};

/// Positions in the first page (`struct perf_event_mmap_page`).
const HEAD: usize = 1024;
const TAIL: usize = 1032;

const WORD: u64 = 8;
const LOST: u32 = 2;
const SAMPLE: u32 = 9;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultRecord {
    Fault(RecordedFault),
    /// The ring was full: this many records are missing.
    Lost(u64),
}

/// A page fault, as the kernel recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordedFault {
    /// The number of the event.
    pub(super) event: u64,
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// Of the clock.
    pub(super) at_ns: u64,
    pub(super) address: u64,
}

/// The records between two positions. `word` gives the word at a position, which is a multiple of 8.
pub(super) fn records(from: u64, to: u64, word: impl Fn(u64) -> u64, mut each: impl FnMut(FaultRecord)) {
    let mut at = from;
    while to.wrapping_sub(at) >= WORD {
        let header = word(at);
        // Type, 16 bits of other facts, size.
        let (kind, size) = (header as u32, header >> 48);
        if size < WORD || size % WORD != 0 || size > to.wrapping_sub(at) {
            return;
        }
        let field = |number: u64| word(at.wrapping_add(number * WORD));
        match (kind, size / WORD) {
            (SAMPLE, 5..) => {
                let ids = field(2);
                let (pid, tid) = (ids as u32, (ids >> 32) as u32);
                let (event, at_ns, address) = (field(1), field(3), field(4));
                each(FaultRecord::Fault(RecordedFault { event, pid, tid, at_ns, address }));
            }
            (LOST, 3..) => each(FaultRecord::Lost(field(2))),
            _ => {}
        }
        at = at.wrapping_add(size);
    }
}

/// The ring.
#[derive(Debug)]
pub(super) struct FaultRing {
    memory: MmapRaw,
    page: usize,
    bytes: usize,
}

impl FaultRing {
    /// Maps a ring of `bytes` bytes (a power of two, of whole pages) of an event.
    pub(super) fn new(file: &File, bytes: usize) -> io::Result<FaultRing> {
        let page = rustix::param::page_size();
        let memory = MmapOptions::new().len(page + bytes).map_raw(file)?;
        Ok(FaultRing { memory, page, bytes })
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: within the first page, aligned, and mapped as long as `self`.
        unsafe { &*self.memory.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Takes the records that are there.
    pub(super) fn take(&mut self, each: impl FnMut(FaultRecord)) {
        let (head, tail) = (self.position(HEAD).load(Acquire), self.position(TAIL).load(Relaxed));
        let word = |position: u64| {
            let at = self.page + position as usize % self.bytes;
            // SAFETY: within the ring, since its size is a multiple of 8 and so are positions. The kernel does not
            // write there before the tail has moved on.
            unsafe { (*self.memory.as_ptr().add(at & !7).cast::<AtomicU64>()).load(Relaxed) }
        };
        records(tail, head, word, each);
        self.position(TAIL).store(head, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words as the kernel wrote them on Linux 6.18 (x86-64): a major fault, an exit (which is not of interest), a
    /// lost record, and a minor fault.
    const RECORDED: [u64; 17] = [
        9 | 2 << 32 | 40 << 48,
        0x2a,
        0x0000_1f91_0000_1f90,
        1_234_567_890,
        0x7f12_3456_7abc,
        4 | 32 << 48,
        0,
        0,
        0,
        2 | 24 << 48,
        0x2a,
        77,
        9 | 2 << 32 | 40 << 48,
        0x2b,
        0x0000_1f90_0000_1f90,
        1_234_567_999,
        0x7f12_3456_8000,
    ];

    fn read(words: &[u64], from: u64, to: u64) -> Vec<FaultRecord> {
        let mut all = Vec::new();
        let at = |position: u64| words[(position / 8) as usize % words.len()];
        records(from, to, at, |record| all.push(record));
        all
    }

    fn expected() -> Vec<FaultRecord> {
        let fault = |event, tid, at_ns, address| {
            FaultRecord::Fault(RecordedFault { event, pid: 0x1f90, tid, at_ns, address })
        };
        vec![
            fault(0x2a, 0x1f91, 1_234_567_890, 0x7f12_3456_7abc),
            FaultRecord::Lost(77),
            fault(0x2b, 0x1f90, 1_234_567_999, 0x7f12_3456_8000),
        ]
    }

    #[test]
    fn recorded_bytes_become_faults() {
        assert_eq!(read(&RECORDED, 0, 17 * 8), expected());
    }

    #[test]
    fn records_go_on_at_the_begin_of_the_ring() {
        for shift in 1..17 {
            let mut words = RECORDED;
            words.rotate_right(shift);
            let from = shift as u64 * 8;
            assert_eq!(read(&words, from, from + 17 * 8), expected(), "shifted by {shift}");
        }
    }

    #[test]
    fn records_that_make_no_sense_end_the_reading() {
        assert_eq!(read(&RECORDED, 0, 16 * 8)[..], expected()[..2], "the last one is not complete");
        for header in [0, 9, 9 | 12 << 48, 9 | 0xffff << 48] {
            let mut words = RECORDED;
            words[5] = header;
            assert_eq!(read(&words, 0, 17 * 8), expected()[..1]);
        }
        // Too short for what it says to be.
        let mut words = RECORDED;
        words[9] = 9 | 24 << 48;
        assert_eq!(read(&words, 0, 17 * 8).len(), 2);
    }
}
