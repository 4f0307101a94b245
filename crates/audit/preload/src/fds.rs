//! What each descriptor of the process refers to, and where it stands in its file. A table of fixed size without
//! locks: two threads that use one descriptor at the same time may see a mixture, which is wrong in the events and
//! harmless otherwise.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

use crate::classify::{self, FileNumbers};
use crate::layout::{CODE, DIRECT, FdKind, INHERITED, WRITABLE};
use crate::process::{self, Observed};
use crate::raw;

/// Descriptors in the table; calls on others are counted as untracked.
const DESCRIPTORS: usize = 65_536;
/// Flags of the table that are not in events: another descriptor shares the position, and writes go to the end.
const ALIASED: u32 = 1 << 24;
const APPENDING: u32 = 1 << 25;
/// The position is not known.
const NOWHERE: i64 = -1;

/// A descriptor.
struct FdEntry {
    inode: AtomicU64,
    position: AtomicI64,
    device: AtomicU32,
    /// Kind in the lowest 8 bits, flags of events in the next 16, then those of the table. 0: not known.
    meta: AtomicU32,
    /// The generation of the process that opened it.
    generation: AtomicU32,
}

/// All zero, so that the table takes no space in the library's file.
static TABLE: [FdEntry; DESCRIPTORS] = [const {
    FdEntry {
        inode: AtomicU64::new(0),
        position: AtomicI64::new(0),
        device: AtomicU32::new(0),
        meta: AtomicU32::new(0),
        generation: AtomicU32::new(0),
    }
}; DESCRIPTORS];

/// What a descriptor refers to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FdView {
    pub(crate) kind: FdKind,
    pub(crate) flags: u16,
    pub(crate) inode: u64,
    pub(crate) device: u32,
    /// The position cannot be computed from the calls of this descriptor alone.
    pub(crate) shares_position: bool,
    pub(crate) appends: bool,
}

impl FdView {
    pub(crate) const NONE: Self =
        Self { kind: FdKind::Unknown, flags: 0, inode: 0, device: 0, shares_position: false, appends: false };

    /// A file that is not open, with this path.
    pub(crate) fn of(numbers: &FileNumbers, path: &[u8]) -> Self {
        let kind = classify::kind(numbers.mode, path);
        let is_file = matches!(kind, FdKind::Regular | FdKind::Folder);
        let flags = if is_file { classify::code_flag(path) } else { 0 };
        Self { kind, flags, inode: numbers.inode, device: numbers.device, ..Self::NONE }
    }

    /// Whether it is a file with data.
    #[inline(always)]
    pub(crate) fn is_data(&self) -> bool {
        self.kind == FdKind::Regular && self.flags & CODE == 0
    }
}

#[inline(always)]
fn entry(fd: i32) -> Option<&'static FdEntry> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// Whether calls on it are untracked.
#[inline(always)]
pub(crate) fn is_beyond(fd: i32) -> bool {
    fd >= DESCRIPTORS as i32
}

fn kind_of(meta: u32) -> FdKind {
    match meta & 0xff {
        1 => FdKind::Regular,
        2 => FdKind::Folder,
        3 => FdKind::Pipe,
        4 => FdKind::Socket,
        5 => FdKind::Other,
        6 => FdKind::Memory,
        7 => FdKind::System,
        _ => FdKind::Unknown,
    }
}

#[inline(always)]
fn view(entry: &FdEntry, meta: u32) -> FdView {
    let inherited = entry.generation.load(Relaxed) != process::generation();
    FdView {
        kind: kind_of(meta),
        flags: (meta >> 8) as u16 | if inherited { INHERITED } else { 0 },
        inode: entry.inode.load(Relaxed),
        device: entry.device.load(Relaxed),
        shares_position: inherited || meta & ALIASED != 0,
        appends: meta & APPENDING != 0,
    }
}

/// What the descriptor refers to, as far as it is known without asking the kernel.
#[inline(always)]
pub(crate) fn known(fd: i32) -> FdView {
    let Some(entry) = entry(fd) else { return FdView::NONE };
    match entry.meta.load(Relaxed) {
        0 => FdView::NONE,
        meta => view(entry, meta),
    }
}

/// What the descriptor refers to. Descriptors also come from `pipe`, `accept`, `recvmsg` and other programs: those
/// are looked at when they are used first.
#[inline(always)]
pub(crate) fn find(fd: i32) -> FdView {
    let Some(entry) = entry(fd) else { return FdView::NONE };
    match entry.meta.load(Relaxed) {
        0 => find_unknown(fd, entry),
        meta => view(entry, meta),
    }
}

#[cold]
fn find_unknown(fd: i32, entry: &FdEntry) -> FdView {
    let Some(numbers) = classify::look(fd) else { return FdView::NONE };
    if !process::current().is_some_and(Observed::is_itself) {
        // A child of `vfork`: its descriptors are not those of the table.
        return FdView::of(&numbers, &[]);
    }
    let mut buffer = [0; 1024];
    let is_file = numbers.mode & libc::S_IFMT == libc::S_IFREG;
    let path = if is_file { classify::path_of(fd, &mut buffer) } else { &[] };
    let position = if is_file { raw::position(fd).max(NOWHERE) } else { NOWHERE };
    opened(fd, &numbers, path, 0, position);
    view(entry, entry.meta.load(Relaxed))
}

/// Enters a descriptor.
pub(crate) fn opened(fd: i32, numbers: &FileNumbers, path: &[u8], flags: i32, position: i64) {
    let Some(entry) = entry(fd) else { return };
    let FdView { kind, flags: mut event_flags, .. } = FdView::of(numbers, path);
    if flags & libc::O_DIRECT != 0 {
        event_flags |= DIRECT;
    }
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        event_flags |= WRITABLE;
    }
    let appends = if flags & libc::O_APPEND != 0 { APPENDING } else { 0 };
    entry.inode.store(numbers.inode, Relaxed);
    entry.device.store(numbers.device, Relaxed);
    entry.position.store(position, Relaxed);
    entry.generation.store(process::generation(), Relaxed);
    entry.meta.store(kind as u32 | u32::from(event_flags) << 8 | appends, Relaxed);
}

/// Forgets a descriptor. Comes before it is closed: afterwards, another thread may have got the same number.
#[inline(always)]
pub(crate) fn forget(fd: i32) {
    if let Some(entry) = entry(fd) {
        entry.meta.store(0, Relaxed);
    }
}

/// Forgets all descriptors from `first` to `last`.
pub(crate) fn forget_range(first: u32, last: u32) {
    let count = (last as usize).saturating_add(1).saturating_sub(first as usize);
    for entry in TABLE.iter().skip(first as usize).take(count) {
        // Reading first keeps pages that were never used out of memory.
        if entry.meta.load(Relaxed) != 0 {
            entry.meta.store(0, Relaxed);
        }
    }
}

/// `new` became a second descriptor of what `old` refers to.
pub(crate) fn duplicated(old: i32, new: i32) {
    if old == new {
        return;
    }
    let (Some(from), Some(to)) = (entry(old), entry(new)) else {
        forget(new);
        return;
    };
    let meta = from.meta.load(Relaxed);
    if meta == 0 {
        to.meta.store(0, Relaxed);
        return;
    }
    to.inode.store(from.inode.load(Relaxed), Relaxed);
    to.device.store(from.device.load(Relaxed), Relaxed);
    to.position.store(from.position.load(Relaxed), Relaxed);
    to.generation.store(from.generation.load(Relaxed), Relaxed);
    from.meta.store(meta | ALIASED, Relaxed);
    to.meta.store(meta | ALIASED, Relaxed);
}

/// The descriptor stands at `position` now.
#[inline(always)]
pub(crate) fn moved_to(fd: i32, position: i64) {
    if let Some(entry) = entry(fd) {
        entry.position.store(position, Relaxed);
    }
}

/// A call moved the descriptor on by `bytes`, or failed. Returns where it began, or -1.
#[inline(always)]
pub(crate) fn advance(fd: i32, view: &FdView, bytes: i64, is_write: bool) -> i64 {
    if view.kind != FdKind::Regular && view.kind != FdKind::Memory {
        return NOWHERE;
    }
    let bytes = bytes.max(0);
    if view.shares_position || (is_write && view.appends) {
        // Asks the kernel: exact unless another process moves it right now, which the flag of the event says.
        let end = raw::position(fd);
        moved_to(fd, end.max(NOWHERE));
        return if end < bytes { NOWHERE } else { end - bytes };
    }
    advance_buffered(fd, view, bytes)
}

/// The same for a stream of the C library, whose descriptor is ahead of it.
#[inline(always)]
pub(crate) fn advance_buffered(fd: i32, view: &FdView, bytes: i64) -> i64 {
    if view.kind != FdKind::Regular && view.kind != FdKind::Memory {
        return NOWHERE;
    }
    let Some(entry) = entry(fd) else { return NOWHERE };
    let start = entry.position.load(Relaxed);
    if start < 0 || bytes <= 0 {
        return start.max(NOWHERE);
    }
    entry.position.fetch_add(bytes, Relaxed)
}
