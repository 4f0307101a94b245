//! The memory that the processes of a job write to, from feedline's side: makes it, reads events and totals, and
//! frees slots. No number in it is trusted: a job can overwrite its own slot.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use memmap2::{MmapOptions, MmapRaw};
use model::observed::{Calls, IoCounts};
use model::units::Nanos;
use rustix::fs::{MemfdFlags, SealFlags, memfd_create};
use rustix::process::{Resource, getrlimit};

use crate::event::SeenCall;
use crate::layout::{
    CLAIMED, COMMAND_BYTES, CONTROL_BYTES, Control, EVENT_BYTES, EVENTS, Event, FREE, HEADER_BYTES, MAGIC,
    OPS, Op, OpTotals, SLOT_BYTES, SLOTS, SlotHeader, TEXT_BYTES, TEXT_PARTS, TextKind, VERSION, ring_bytes,
    slot_offset,
};

use super::proc::{own_seccomp_filters, shown_command};

/// Events of a page, the unit in which memory that was read is given back.
const EVENTS_PER_PAGE: u64 = 4096 / EVENT_BYTES as u64;

/// A total beyond it is not one that the library wrote. Sums over all slots fit into 64 bits.
const LARGEST_TOTAL: u64 = 1 << 50;

/// The whole memory.
#[derive(Debug)]
pub(super) struct RingMemory {
    file: File,
    control: MmapRaw,
}

/// Slots that fit into a file of this user: a longer one would end this process.
fn slots_within_limit() -> usize {
    let Some(limit) = getrlimit(Resource::Fsize).current else { return SLOTS };
    let bytes = usize::try_from(limit).unwrap_or(usize::MAX);
    (bytes.saturating_sub(CONTROL_BYTES) / SLOT_BYTES).min(SLOTS)
}

/// A file in memory without a name. The system call itself: the C library has had a function for it since glibc 2.27
/// only.
pub(super) fn memory_file(name: &std::ffi::CStr, flags: MemfdFlags) -> io::Result<File> {
    Ok(File::from(memfd_create(name, flags | MemfdFlags::CLOEXEC)?))
}

/// The path by which other processes reach a descriptor of this one.
pub(super) fn descriptor_path(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

impl RingMemory {
    pub(super) fn new() -> io::Result<RingMemory> {
        let slots = slots_within_limit();
        let file = memory_file(c"feedline-audit", MemfdFlags::ALLOW_SEALING)?;
        file.set_len(ring_bytes(slots) as u64)?;
        // A job that made it shorter would end this process.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let control = MmapOptions::new().len(CONTROL_BYTES).map_raw(&file)?;
        let ring = RingMemory { file, control };
        ring.control().slots.store(slots as u32, Relaxed);
        ring.control().filters.store(own_seccomp_filters().unwrap_or(u32::MAX), Relaxed);
        ring.control().version.store(VERSION, Relaxed);
        ring.control().magic.store(MAGIC, Release);
        Ok(ring)
    }

    pub(super) fn path(&self) -> String {
        descriptor_path(&self.file)
    }

    fn control(&self) -> &Control {
        // SAFETY: mapped as long as `self`, large enough and aligned; all fields are atomic.
        unsafe { &*self.control.as_ptr().cast::<Control>() }
    }

    pub(super) fn set_sample_bits(&self, bits: u32) {
        self.control().sample_bits.store(bits, Relaxed);
    }

    /// Processes that could not take a slot.
    pub(super) fn refused(&self) -> u32 {
        self.control().refused.load(Relaxed)
    }

    /// Numbers of the slots that processes have taken.
    pub(super) fn claimed(&self) -> Vec<usize> {
        let states = self.control().states.iter().enumerate();
        states.filter(|(_, state)| state.load(Acquire) == CLAIMED).map(|(number, _)| number).collect()
    }

    pub(super) fn slot(&self, number: usize) -> io::Result<SlotMemory> {
        let memory =
            MmapOptions::new().offset(slot_offset(number) as u64).len(SLOT_BYTES).map_raw(&self.file)?;
        Ok(SlotMemory { memory, tail: 0, released: 0, end: None })
    }

    /// Lets the process of a slot use the place of consumed events. With `gives_back`, their pages leave the memory
    /// before; the process pays for new ones.
    pub(super) fn release(&self, number: usize, slot: &mut SlotMemory, gives_back: bool) {
        let mut end = slot.tail;
        if gives_back {
            end = end - end % EVENTS_PER_PAGE;
            self.give_back(number, slot.released.next_multiple_of(EVENTS_PER_PAGE), end);
        }
        slot.released = slot.released.max(end);
        slot.header().tail.store(slot.released, Release);
    }

    /// Takes the pages of events out of the memory.
    fn give_back(&self, number: usize, mut at: u64, end: u64) {
        while at < end {
            let index = at % EVENTS as u64;
            let count = (end - at).min(EVENTS as u64 - index);
            let offset = slot_offset(number) + HEADER_BYTES + index as usize * EVENT_BYTES;
            // If it fails, the memory stays in use.
            self.punch(offset, count as usize * EVENT_BYTES);
            at += count;
        }
    }

    /// Takes a part of the file out of the memory. Returns whether it reads as zeros from now on.
    fn punch(&self, offset: usize, length: usize) -> bool {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (offset, length) = (offset as libc::off64_t, length as libc::off64_t);
        // SAFETY: changes the content of a file that only mappings of atomic numbers refer to.
        unsafe { libc::fallocate64(self.file.as_raw_fd(), mode, offset, length) == 0 }
    }

    /// Gives the slot of a process that is gone to the next one, without its content.
    pub(super) fn free(&self, number: usize) {
        let done = self.punch(slot_offset(number), SLOT_BYTES);
        // A slot with the events of another process must not be used again.
        if let Some(state) = self.control().states.get(number).filter(|_| done) {
            state.store(FREE, Release);
        }
    }

    /// The word that changes when this process is to read at once.
    pub(super) fn wake_word(&self) -> &AtomicU32 {
        &self.control().wake
    }

    /// Wakes whoever is in [`RingMemory::wait`].
    pub(super) fn wake(&self) {
        let word = self.wake_word();
        word.fetch_add(1, Release);
        // SAFETY: the word is mapped; other arguments are not used.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX, 0, 0, 0) };
    }

    /// Waits until the word differs from `seen`, at most for `time`. Returns the word.
    pub(super) fn wait(&self, seen: u32, time: Duration) -> u32 {
        let limit = libc::timespec {
            tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        let word = self.wake_word();
        // SAFETY: the word is mapped, and the kernel only reads `limit`.
        unsafe {
            libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &raw const limit, 0, 0)
        };
        word.load(Acquire)
    }
}

/// One slot, with the position up to which it was read.
#[derive(Debug)]
pub(super) struct SlotMemory {
    memory: MmapRaw,
    tail: u64,
    /// The position up to which the process can write again.
    released: u64,
    /// The position at which reading ends, of a process that may go on writing.
    end: Option<u64>,
}

/// What stands in the header of a slot.
#[derive(Clone, Debug)]
pub(super) struct SlotStart {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) started_ns: u64,
    pub(super) executed: bool,
    pub(super) command: String,
    pub(super) rank: Option<u64>,
    pub(super) ranks: Option<u64>,
}

/// What stands at one position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RingEntry {
    Event(SeenCall),
    Text {
        at_ns: u64,
        kind: TextKind,
        id: u64,
        device: u32,
        text: Box<str>,
    },
    /// Nothing that makes sense.
    Nothing,
}

/// Totals of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotTotals {
    pub(super) all: IoCounts,
    pub(super) data: IoCounts,
    pub(super) dropped: u64,
    pub(super) untracked: u64,
    pub(super) uring: bool,
    /// Bytes that calls returned and that the kernel counts in `rchar`.
    pub(super) recorded: u64,
    /// Calls of any kind but opens and closes, and opens.
    pub(super) calls: u64,
    pub(super) opens: u64,
}

/// Operations by their number.
const ALL_OPS: [Op; OPS] = [
    Op::Open,
    Op::Read,
    Op::BufferedRead,
    Op::Write,
    Op::Close,
    Op::Seek,
    Op::Stat,
    Op::List,
    Op::ListEntry,
    Op::Map,
    Op::Unmap,
    Op::Advise,
    Op::Sync,
    Op::Poll,
    Op::Receive,
    Op::Rename,
    Op::Unlink,
    Op::Fork,
    Op::Spawn,
    Op::Thread,
    Op::Move,
    Op::Uring,
    Op::Mark,
    Op::Text,
    Op::Exit,
];

fn text_kind(number: u8) -> Option<TextKind> {
    let all = [TextKind::Path, TextKind::Site, TextKind::Note, TextKind::Folder, TextKind::Program];
    all.into_iter().find(|kind| *kind as u8 == number)
}

fn calls(totals: &OpTotals) -> Calls {
    let number = |number: &AtomicU64| number.load(Relaxed).min(LARGEST_TOTAL);
    Calls {
        count: number(&totals.calls),
        bytes: number(&totals.bytes),
        ns: Nanos(number(&totals.ns)),
        errors: number(&totals.errors),
    }
}

/// The sum of two totals of a slot, which may be any numbers.
fn sum(one: Calls, other: Calls) -> Calls {
    Calls {
        count: one.count.saturating_add(other.count),
        bytes: one.bytes.saturating_add(other.bytes),
        ns: one.ns + other.ns,
        errors: one.errors.saturating_add(other.errors),
    }
}

fn io_counts(totals: &[OpTotals; OPS]) -> IoCounts {
    let of = |op: Op| totals.get(op as usize).map(calls).unwrap_or_default();
    IoCounts {
        opens: of(Op::Open),
        reads: sum(of(Op::Read), of(Op::BufferedRead)),
        closes: of(Op::Close),
        seeks: of(Op::Seek),
        stats: of(Op::Stat),
        listings: of(Op::List),
        maps: of(Op::Map),
        writes: of(Op::Write),
        syncs: of(Op::Sync),
        ..IoCounts::default()
    }
}

impl SlotMemory {
    fn header(&self) -> &SlotHeader {
        // SAFETY: mapped as long as `self`, large enough and aligned; all fields but `command` are atomic, and that
        // one is read by pointer only.
        unsafe { &*self.memory.as_ptr().cast::<SlotHeader>() }
    }

    /// The header, if the process has completed it.
    pub(super) fn start(&self) -> Option<SlotStart> {
        let header = self.header();
        let started_ns = header.started_ns.load(Acquire);
        if started_ns == 0 {
            return None;
        }
        let length = (header.command_bytes.load(Relaxed) as usize).min(COMMAND_BYTES);
        let from = (&raw const header.command).cast::<u8>();
        // SAFETY: within the array.
        let command: Vec<u8> = (0..length).map(|at| unsafe { from.add(at).read_volatile() }).collect();
        let command = String::from_utf8_lossy(&command);
        let known = |number: i64| u64::try_from(number).ok();
        Some(SlotStart {
            pid: header.pid.load(Relaxed),
            parent: header.parent.load(Relaxed),
            started_ns,
            executed: header.executed.load(Relaxed) != 0,
            command: shown_command(&command),
            rank: known(header.rank.load(Relaxed)),
            ranks: known(header.ranks.load(Relaxed)),
        })
    }

    pub(super) fn totals(&self) -> SlotTotals {
        let header = self.header();
        let of = |op: Op| header.totals.get(op as usize).map(calls).unwrap_or_default();
        let moved = [Op::Read, Op::BufferedRead, Op::Move].map(|op| of(op).bytes);
        let opens = of(Op::Open).count;
        let not_counted = [Op::Open, Op::Close, Op::Text];
        let others = ALL_OPS.into_iter().filter(|op| !not_counted.contains(op));
        SlotTotals {
            all: io_counts(&header.totals),
            data: io_counts(&header.data),
            dropped: header.dropped.load(Relaxed),
            untracked: header.untracked.load(Relaxed),
            uring: of(Op::Uring).count > 0,
            recorded: moved.into_iter().fold(0, u64::saturating_add),
            calls: others.map(|op| of(op).count).fold(0, u64::saturating_add),
            opens,
        }
    }

    /// The words of the event at a position, if it was published.
    fn published(&self, position: u64) -> Option<[u64; 8]> {
        let index = (position % EVENTS as u64) as usize;
        // SAFETY: within the slot, and aligned like the slot. All of it is read as atomic numbers, since a job can
        // write there at any time.
        let words = unsafe {
            let at = self.memory.as_ptr().add(HEADER_BYTES + index * EVENT_BYTES);
            let seq = &*at.cast::<AtomicU32>();
            if seq.load(Acquire) != position.wrapping_add(1) as u32 {
                return None;
            }
            &*at.cast::<[AtomicU64; 8]>()
        };
        Some(words.each_ref().map(|word| word.load(Relaxed)))
    }

    /// The next entry. `None`: there is no further one yet. Of a process that is gone, positions that it did not
    /// complete are skipped.
    pub(super) fn next(&mut self, is_gone: bool) -> Option<RingEntry> {
        if self.end.is_some() && !self.is_behind() {
            return None;
        }
        if let Some(words) = self.published(self.tail) {
            return Some(self.entry(words));
        }
        if !is_gone || !self.is_behind() {
            return None;
        }
        self.tail = self.tail.wrapping_add(1);
        Some(RingEntry::Nothing)
    }

    /// Whether the process reserved positions that were not read.
    pub(super) fn is_behind(&self) -> bool {
        let head = self.end.unwrap_or_else(|| self.header().head.load(Relaxed));
        (1..=EVENTS as u64).contains(&head.wrapping_sub(self.tail))
    }

    /// What the process writes from now on is not read.
    pub(super) fn end_here(&mut self) {
        self.end = Some(self.header().head.load(Relaxed));
    }

    fn entry(&mut self, words: [u64; 8]) -> RingEntry {
        // SAFETY: the same size, and every pattern of bits is an `Event`.
        let event: Event = unsafe { std::mem::transmute(words) };
        let position = self.tail;
        self.tail = position.wrapping_add(1);
        match ALL_OPS.get(usize::from(event.op)) {
            None => RingEntry::Nothing,
            Some(Op::Text) => self.text(position, &event),
            Some(op) => RingEntry::Event(SeenCall {
                op: *op,
                kind: event.kind,
                flags: event.flags,
                tid: event.tid,
                fd: event.fd,
                start_ns: event.start_ns,
                duration_ns: event.duration_ns.into(),
                file: event.file,
                device: event.device,
                offset: event.offset,
                asked: event.asked,
                result: event.result,
            }),
        }
    }

    /// A text, whose bytes stand in the positions after its event.
    fn text(&mut self, position: u64, event: &Event) -> RingEntry {
        let length = usize::try_from(event.asked).unwrap_or(usize::MAX).min(TEXT_BYTES * TEXT_PARTS);
        let mut bytes = Vec::with_capacity(length.next_multiple_of(TEXT_BYTES));
        for part in 1..=length.div_ceil(TEXT_BYTES) as u64 {
            let Some(words) = self.published(position.wrapping_add(part)) else { break };
            let all: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
            bytes.extend(all.into_iter().skip(EVENT_BYTES - TEXT_BYTES));
            self.tail = self.tail.wrapping_add(1);
        }
        bytes.truncate(length);
        match text_kind(event.kind) {
            None => RingEntry::Nothing,
            Some(kind) => RingEntry::Text {
                at_ns: event.start_ns,
                kind,
                id: event.file,
                device: event.device,
                text: String::from_utf8_lossy(&bytes).into(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes into a slot as the library does, and worse.
    struct Writer {
        ring: RingMemory,
        memory: MmapRaw,
    }

    impl Writer {
        fn new() -> Writer {
            let ring = RingMemory::new().unwrap();
            let offset = slot_offset(3) as u64;
            let memory = MmapOptions::new().offset(offset).len(SLOT_BYTES).map_raw(&ring.file).unwrap();
            ring.control().states[3].store(CLAIMED, Release);
            Writer { ring, memory }
        }

        fn header(&self) -> &SlotHeader {
            // SAFETY: mapped, large enough and aligned.
            unsafe { &*self.memory.as_ptr().cast::<SlotHeader>() }
        }

        fn bytes(&self, at: usize, bytes: &[u8]) {
            assert!(at + bytes.len() <= SLOT_BYTES);
            // SAFETY: within the slot.
            unsafe { self.memory.as_mut_ptr().add(at).copy_from(bytes.as_ptr(), bytes.len()) };
        }

        /// An event at a position: `seq`, operation, kind, `asked` and text in place of its other fields.
        fn event(&self, position: usize, op: Op, kind: u8, asked: u64) {
            let at = HEADER_BYTES + position % EVENTS * EVENT_BYTES;
            let mut bytes = [0; EVENT_BYTES];
            bytes[..4].copy_from_slice(&(position as u32 + 1).to_ne_bytes());
            (bytes[4], bytes[5]) = (op as u8, kind);
            bytes[40..48].copy_from_slice(&asked.to_ne_bytes());
            self.bytes(at, &bytes);
        }

        fn part(&self, position: usize, text: &[u8]) {
            self.event(position, Op::Open, 0, 0);
            self.bytes(HEADER_BYTES + position % EVENTS * EVENT_BYTES + 4, text);
        }
    }

    fn asked(entry: &Option<RingEntry>) -> Option<u64> {
        match entry {
            Some(RingEntry::Event(event)) => Some(event.asked),
            _ => None,
        }
    }

    #[test]
    fn events_are_read_once_and_in_order_across_the_end_of_the_ring() {
        let writer = Writer::new();
        let mut slot = writer.ring.slot(3).unwrap();
        assert_eq!(writer.ring.claimed(), [3]);
        for position in 0..EVENTS + 10 {
            writer.event(position, Op::Read, 1, position as u64);
            assert_eq!(asked(&slot.next(false)), Some(position as u64));
            assert_eq!(slot.next(false), None);
        }
        writer.ring.release(3, &mut slot, true);
        // Whole pages only.
        assert_eq!(writer.header().tail.load(Relaxed), EVENTS as u64);
        writer.ring.release(3, &mut slot, false);
        assert_eq!(writer.header().tail.load(Relaxed), EVENTS as u64 + 10);
    }

    #[test]
    fn an_incomplete_event_stops_reading_until_its_process_is_gone() {
        let writer = Writer::new();
        let mut slot = writer.ring.slot(3).unwrap();
        writer.event(0, Op::Read, 1, 7);
        writer.event(2, Op::Read, 1, 8);
        writer.header().head.store(4, Relaxed);
        assert_eq!(asked(&slot.next(false)), Some(7));
        assert_eq!(slot.next(false), None);
        assert_eq!(slot.next(true), Some(RingEntry::Nothing));
        assert_eq!(asked(&slot.next(true)), Some(8));
        assert_eq!(slot.next(true), Some(RingEntry::Nothing));
        assert_eq!(slot.next(true), None);
    }

    #[test]
    fn texts_are_put_together() {
        let writer = Writer::new();
        let mut slot = writer.ring.slot(3).unwrap();
        writer.event(0, Op::Text, TextKind::Path as u8, 70);
        writer.part(1, &[b'a'; TEXT_BYTES]);
        writer.part(2, &[b'b'; TEXT_BYTES]);
        writer.event(3, Op::Read, 1, 9);
        let Some(RingEntry::Text { kind, text, .. }) = slot.next(false) else { panic!("not a text") };
        assert_eq!(
            (kind, &*text),
            (TextKind::Path, format!("{}{}", "a".repeat(60), "b".repeat(10)).as_str())
        );
        assert_eq!(asked(&slot.next(false)), Some(9));
    }

    #[test]
    fn any_content_of_a_slot_is_survived() {
        let writer = Writer::new();
        // A generator of its own: the same content every time.
        let mut state = 1_u64;
        let mut garbage = vec![0; SLOT_BYTES];
        for byte in &mut garbage {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
        writer.bytes(0, &garbage);
        // Positions that look complete, with any operation, kind and length.
        for position in 0..2000 {
            let at = HEADER_BYTES + position * EVENT_BYTES;
            writer.bytes(at, &(position as u32 + 1).to_ne_bytes());
            writer.bytes(at + 4, &[(position % 40) as u8]);
        }
        let mut slot = writer.ring.slot(3).unwrap();
        let start = slot.start().unwrap();
        assert!(start.command.len() <= 3 * COMMAND_BYTES);
        assert!(slot.totals().calls > 0);
        for head in [u64::MAX, 0, 1000] {
            writer.header().head.store(head, Relaxed);
            let entries = std::iter::from_fn(|| slot.next(true)).take(2 * EVENTS).count();
            assert!(entries <= EVENTS, "{entries}");
        }
        writer.ring.release(3, &mut slot, true);
        writer.ring.free(3);
        assert!(writer.ring.claimed().is_empty());
        assert!(writer.ring.slot(3).unwrap().start().is_none());
    }
}
