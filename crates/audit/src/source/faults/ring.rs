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
        if size < WORD || !size.is_multiple_of(WORD) || size > to.wrapping_sub(at) {
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

    /// What Linux 6.18 (x86-64) wrote for a program that touches a page of a cold file by two mappings, forks, touches
    /// more of its own memory than the ring has room for, and then another page of the file: a major and a minor fault,
    /// the start and the end of the child, a record of lost records, a major fault.
    const RECORDED: [u64; 26] = [
        0x0028_0000_0000_0009,
        0x83,
        0x0000_0831_0000_0831,
        0x0000_0313_ed08_ffe0,
        0x0000_7f6f_4c30_0abc,
        0x0028_0000_0000_0009,
        0x84,
        0x0000_0831_0000_0831,
        0x0000_0313_ed09_1763,
        0x0000_7f6f_4b30_0000,
        0x0020_0000_0000_0007,
        0x0000_0831_0000_0832,
        0x0000_0831_0000_0832,
        0x0000_0313_ed0a_3c3f,
        0x0020_0000_0000_0004,
        0x0000_0831_0000_0832,
        0x0000_0831_0000_0832,
        0x0000_0313_ed0b_07de,
        0x0018_0000_0000_0002,
        0x83,
        0x69,
        0x0028_0000_0000_0009,
        0x83,
        0x0000_0831_0000_0831,
        0x0000_0313_ed13_c382,
        0x0000_7f6f_4c70_0000,
    ];
    const BYTES: u64 = RECORDED.len() as u64 * WORD;

    fn read(words: &[u64], from: u64, to: u64) -> Vec<FaultRecord> {
        let mut all = Vec::new();
        let at = |position: u64| words[(position / WORD) as usize % words.len()];
        records(from, to, at, |record| all.push(record));
        all
    }

    fn expected() -> Vec<FaultRecord> {
        let fault = |event, at_ns, address| {
            FaultRecord::Fault(RecordedFault { event, pid: 0x831, tid: 0x831, at_ns, address })
        };
        vec![
            fault(0x83, 0x0313_ed08_ffe0, 0x7f6f_4c30_0abc),
            fault(0x84, 0x0313_ed09_1763, 0x7f6f_4b30_0000),
            FaultRecord::Lost(0x69),
            fault(0x83, 0x0313_ed13_c382, 0x7f6f_4c70_0000),
        ]
    }

    #[test]
    fn recorded_bytes_become_faults() {
        assert_eq!(read(&RECORDED, 0, BYTES), expected());
    }

    #[test]
    fn records_go_on_at_the_begin_of_the_ring() {
        for shift in 1..RECORDED.len() {
            let mut words = RECORDED;
            words.rotate_right(shift);
            let from = shift as u64 * WORD;
            assert_eq!(read(&words, from, from + BYTES), expected(), "shifted by {shift}");
        }
    }

    #[test]
    fn records_that_make_no_sense_end_the_reading() {
        assert_eq!(read(&RECORDED, 0, BYTES - WORD)[..], expected()[..3], "the last one is not complete");
        for header in [0, 9, 9 | 12 << 48, 9 | 0xffff << 48] {
            let mut words = RECORDED;
            words[5] = header;
            assert_eq!(read(&words, 0, BYTES), expected()[..1]);
        }
        // Shorter than records of its kind are.
        let mut words = RECORDED;
        words[18] = 9 | 24 << 48;
        let without: Vec<FaultRecord> =
            expected().into_iter().filter(|record| *record != FaultRecord::Lost(0x69)).collect();
        assert_eq!(read(&words, 0, BYTES), without);
    }
}
