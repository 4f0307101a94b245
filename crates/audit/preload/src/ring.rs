//! The part of the shared memory that this process writes to: takes a slot, and puts totals, events and texts into
//! it. It never waits: an event without space is dropped and counted.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::layout::{
    CLAIMED, CONTROL_BYTES, CUT, Control, EVENT_BYTES, EVENTS, Event, FREE, HEADER_BYTES, MAGIC, Op,
    OpTotals, SLOT_BYTES, SLOTS, SlotHeader, TEXT_BYTES, TEXT_PARTS, TextKind, VERSION, ring_bytes,
    slot_offset,
};
use crate::raw;

/// Offsets of a mapping are multiples of this on every machine: the largest page size in use.
const LARGEST_PAGE: usize = 64 << 10;
/// The address range that is reserved for the slot.
pub(crate) const RESERVED: usize = SLOT_BYTES + LARGEST_PAGE;
/// While the ring is more than half full, feedline is woken once in this number of events.
const EVENTS_PER_WAKE: u64 = 1024;

/// Addresses of the mapped memory. The same in a process and in the children of its forks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingMemory {
    pub(crate) control: *const Control,
    pub(crate) slot: *const SlotHeader,
}

/// What one call leaves behind.
#[derive(Debug)]
pub(crate) struct Happened {
    pub(crate) op: Op,
    pub(crate) kind: u8,
    pub(crate) flags: u16,
    pub(crate) fd: i32,
    pub(crate) tid: u32,
    pub(crate) start_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) file: u64,
    pub(crate) device: u32,
    pub(crate) offset: i64,
    pub(crate) asked: u64,
    pub(crate) result: i64,
}

/// Whether the memory has this many bytes: touching a page beyond its end would end the process.
unsafe fn has_bytes(fd: isize, bytes: usize) -> bool {
    raw::syscall(libc::SYS_lseek, [fd as usize, 0, libc::SEEK_END as usize, 0, 0, 0]) >= bytes as isize
}

/// Maps the control area and checks that this is the memory of a feedline with the same layout.
pub(crate) unsafe fn map_control(fd: isize) -> Option<*const Control> {
    if !has_bytes(fd, CONTROL_BYTES) {
        return None;
    }
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let address = raw::mmap(0, CONTROL_BYTES, both, libc::MAP_SHARED, fd, 0);
    if (-4095..=0).contains(&address) {
        return None;
    }
    let control = address as *const Control;
    let known = (*control).magic.load(Acquire) == MAGIC && (*control).version.load(Relaxed) == VERSION;
    if !known || !has_bytes(fd, ring_bytes(slots(control))) {
        raw::munmap(address as usize, CONTROL_BYTES);
        return None;
    }
    Some(control)
}

unsafe fn slots(control: *const Control) -> usize {
    ((*control).slots.load(Relaxed) as usize).min(SLOTS)
}

/// Takes a free slot and maps it into the range at `reserved`, in place of whatever is there, so that a pointer
/// into the slot of a parent never becomes invalid.
pub(crate) unsafe fn claim(fd: isize, control: *const Control, reserved: usize) -> Option<*const SlotHeader> {
    let free = |state: &&AtomicU32| state.load(Relaxed) == FREE;
    let takes = |state: &AtomicU32| state.compare_exchange(FREE, CLAIMED, AcqRel, Relaxed).is_ok();
    let states = (*control).states.get(..slots(control))?;
    let number = states.iter().position(|state| free(&state) && takes(state))?;
    let offset = slot_offset(number);
    let start = offset & !(LARGEST_PAGE - 1);
    let before = offset - start;
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let address =
        raw::mmap(reserved, SLOT_BYTES + before, both, libc::MAP_SHARED | libc::MAP_FIXED, fd, start);
    if address != reserved as isize {
        if let Some(state) = states.get(number) {
            state.store(FREE, Release);
        }
        return None;
    }
    Some((reserved + before) as *const SlotHeader)
}

impl RingMemory {
    #[inline(always)]
    unsafe fn event(&self, position: u64) -> *mut Event {
        let index = (position % EVENTS as u64) as usize;
        (self.slot as usize + HEADER_BYTES + index * EVENT_BYTES) as *mut Event
    }

    /// The position of the first of `count` free events.
    #[inline(always)]
    unsafe fn take(&self, count: u64) -> Option<u64> {
        let header = &*self.slot;
        let mut head = header.head.load(Relaxed);
        loop {
            let ahead = head.wrapping_add(count).wrapping_sub(header.tail.load(Acquire));
            if ahead > EVENTS as u64 {
                header.dropped.fetch_add(1, Relaxed);
                self.wake_sometimes(header.dropped.load(Relaxed));
                return None;
            }
            match header.head.compare_exchange_weak(head, head + count, Relaxed, Relaxed) {
                Ok(_) => {
                    if ahead > EVENTS as u64 / 2 {
                        self.wake_sometimes(head);
                    }
                    return Some(head);
                }
                Err(now) => head = now,
            }
        }
    }

    #[inline(always)]
    unsafe fn wake_sometimes(&self, number: u64) {
        if number.is_multiple_of(EVENTS_PER_WAKE) {
            self.wake();
        }
    }

    /// Wakes feedline.
    #[cold]
    pub(crate) unsafe fn wake(&self) {
        let word = &(*self.control).wake;
        word.fetch_add(1, Release);
        raw::futex_wake(word.as_ptr());
    }

    /// Adds a call to the totals: exact, with or without space for its event.
    #[inline(always)]
    pub(crate) unsafe fn count(&self, op: Op, is_data: bool, result: i64, moved: i64, duration_ns: u64) {
        let header = &*self.slot;
        let add = |totals: &[OpTotals]| {
            if let Some(of) = totals.get(op as usize) {
                of.calls.fetch_add(1, Relaxed);
                of.ns.fetch_add(duration_ns, Relaxed);
                if moved > 0 {
                    of.bytes.fetch_add(moved as u64, Relaxed);
                }
                if result < 0 {
                    of.errors.fetch_add(1, Relaxed);
                }
            }
        };
        add(&header.totals);
        if is_data {
            add(&header.data);
        }
    }

    /// Adds an event.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, what: &Happened) {
        let Some(position) = self.take(1) else { return };
        let event = self.event(position);
        (*event).op = what.op as u8;
        (*event).kind = what.kind;
        (*event).flags = what.flags;
        (*event).tid = what.tid;
        (*event).fd = what.fd;
        (*event).start_ns = what.start_ns;
        (*event).file = what.file;
        (*event).offset = what.offset;
        (*event).asked = what.asked;
        (*event).result = what.result;
        (*event).duration_ns = u32::try_from(what.duration_ns).unwrap_or(u32::MAX);
        (*event).device = what.device;
        (*event).seq.store((position + 1) as u32, Release);
    }

    /// Adds a text: an event, and its bytes in the positions behind it. The event is published last, so that
    /// whoever sees it can read the whole text. Returns whether there was space.
    #[cold]
    pub(crate) unsafe fn text(&self, kind: TextKind, id: u64, device: u32, tid: u32, text: &[u8]) -> bool {
        let cut = text.len().saturating_sub(TEXT_BYTES * TEXT_PARTS);
        let kept = text.get(cut..).unwrap_or(text);
        let parts = kept.len().div_ceil(TEXT_BYTES) as u64;
        let Some(first) = self.take(1 + parts) else { return false };
        let mut position = first;
        for part in kept.chunks(TEXT_BYTES) {
            position += 1;
            let event = self.event(position);
            let bytes = (event as *mut u8).add(EVENT_BYTES - TEXT_BYTES);
            core::ptr::copy_nonoverlapping(part.as_ptr(), bytes, part.len());
            (*event).seq.store((position + 1) as u32, Release);
        }
        let event = self.event(first);
        (*event).op = Op::Text as u8;
        (*event).kind = kind as u8;
        (*event).flags = if cut > 0 { CUT } else { 0 };
        (*event).tid = tid;
        (*event).fd = -1;
        (*event).start_ns = raw::now();
        (*event).file = id;
        (*event).offset = 0;
        (*event).asked = kept.len() as u64;
        (*event).result = 0;
        (*event).duration_ns = 0;
        (*event).device = device;
        (*event).seq.store((first + 1) as u32, Release);
        true
    }
}
