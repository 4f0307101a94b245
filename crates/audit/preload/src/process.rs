//! Whether this process is observed. It finds the memory of feedline once, and takes a slot of its own in the child
//! of a fork.
//!
//! A page that the kernel clears in a child tells one from its parent, also if the child was made by a raw `clone`.
//! A child of `vfork` runs in the memory of its parent, and is told by its number only: this is asked for in threads
//! that called `vfork`.

use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};

use crate::environment::{self, Kept};
use crate::layout::{COMMAND_BYTES, Control, SlotHeader, TextKind};
use crate::raw;
use crate::ring::{self, RESERVED, RingMemory};

/// Values of the page of a process that is not observed: just forked, and being set up or given up. No numbers of
/// processes: the first one of a PID namespace is 1.
const FORKED: u32 = 0;
const SILENT: u32 = u32::MAX;

/// What stays the same in all forks of a program.
struct Program {
    memory: UnsafeCell<RingMemory>,
    /// Where slots are mapped.
    reserved: UnsafeCell<usize>,
    command: UnsafeCell<[u8; COMMAND_BYTES]>,
    command_bytes: UnsafeCell<usize>,
    rank: UnsafeCell<i64>,
    ranks: UnsafeCell<i64>,
}

// SAFETY: written by one thread before `PAGE` is published, and by the only thread that set the page of a child to
// SILENT.
unsafe impl Sync for Program {}

static PROGRAM: Program = Program {
    memory: UnsafeCell::new(RingMemory { control: core::ptr::null(), slot: core::ptr::null() }),
    reserved: UnsafeCell::new(0),
    command: UnsafeCell::new([0; COMMAND_BYTES]),
    command_bytes: UnsafeCell::new(0),
    rank: UnsafeCell::new(-1),
    ranks: UnsafeCell::new(-1),
};

/// The number of this process, or one of the values above. Null before the first call.
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
static NOT_OBSERVED: AtomicU32 = AtomicU32::new(SILENT);
static IS_STARTING: AtomicU32 = AtomicU32::new(0);
static GENERATION: AtomicU32 = AtomicU32::new(1);

/// An observed process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed {
    pid: u32,
}

/// A number that a child of a fork does not share with its parent.
#[inline(always)]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Relaxed)
}

/// This process, if it is observed.
#[inline(always)]
pub(crate) fn current() -> Option<Observed> {
    let page = PAGE.load(Acquire);
    if page.is_null() {
        return start();
    }
    // SAFETY: the page is never unmapped.
    match unsafe { (*page).load(Relaxed) } {
        FORKED => forked(),
        SILENT => None,
        pid => Some(Observed { pid }),
    }
}

impl Observed {
    #[inline(always)]
    pub(crate) fn memory(self) -> RingMemory {
        // SAFETY: written before there was an `Observed`.
        unsafe { *PROGRAM.memory.get() }
    }

    /// Whether this is the process itself, and not a child of `vfork` in its memory.
    #[inline(always)]
    pub(crate) fn is_itself(self) -> bool {
        let block = raw::thread();
        // SAFETY: the block belongs to this thread, and to the child that runs in its place.
        unsafe { (*block).vforked == 0 || raw::getpid() == self.pid }
    }

    #[inline(always)]
    pub(crate) fn tid(self) -> u32 {
        raw::tid(generation())
    }
}

/// The first call of all: finds the memory of feedline.
#[cold]
fn start() -> Option<Observed> {
    if IS_STARTING.swap(1, AcqRel) != 0 {
        return None;
    }
    // SAFETY: this thread is the only one that comes here.
    let page = unsafe { set_up() };
    let not_observed = (&raw const NOT_OBSERVED).cast_mut();
    PAGE.store(page.unwrap_or(not_observed), Release);
    page.and_then(|_| current())
}

/// The page of this process, if everything is there.
unsafe fn set_up() -> Option<*mut AtomicU32> {
    let ring = environment::keep()?;
    let fd = raw::open(ring, libc::O_RDWR);
    if fd < 0 {
        return None;
    }
    let page = set_up_with(fd);
    raw::close(fd);
    page
}

unsafe fn set_up_with(fd: isize) -> Option<*mut AtomicU32> {
    let control = ring::map_control(fd)?;
    if filters() > (*control).filters.load(Relaxed) {
        return None;
    }
    let page = make_page(fd, control);
    if page.is_none() {
        (*control).refused.fetch_add(1, Relaxed);
    }
    page
}

unsafe fn make_page(fd: isize, control: *const Control) -> Option<*mut AtomicU32> {
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let reserved = raw::mmap(0, RESERVED, libc::PROT_NONE, anonymous | libc::MAP_NORESERVE, -1, 0);
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let page = raw::mmap(0, 4096, both, anonymous, -1, 0);
    if (-4095..=0).contains(&reserved) || (-4095..=0).contains(&page) {
        return None;
    }
    // Without it (before Linux 4.14), `fork` itself is still seen.
    raw::syscall(libc::SYS_madvise, [page as usize, 4096, libc::MADV_WIPEONFORK as usize, 0, 0, 0]);
    // The reserved range starts at a multiple of the page size, so the slot does as well.
    *PROGRAM.reserved.get() = reserved as usize;
    read_command();
    (*PROGRAM.rank.get(), *PROGRAM.ranks.get()) = environment::rank();
    let page = page as *mut AtomicU32;
    enter(fd, control, 1, page).then_some(page)
}

/// Takes a slot and fills its header.
unsafe fn enter(fd: isize, control: *const Control, executed: u32, page: *mut AtomicU32) -> bool {
    let Some(slot) = ring::claim(fd, control, *PROGRAM.reserved.get()) else { return false };
    *PROGRAM.memory.get() = RingMemory { control, slot };
    let pid = raw::getpid();
    let header = &*slot;
    let (number, parent) = numbers(pid);
    header.pid.store(number, Relaxed);
    header.parent.store(parent, Relaxed);
    header.executed.store(executed, Relaxed);
    header.rank.store(*PROGRAM.rank.get(), Relaxed);
    header.ranks.store(*PROGRAM.ranks.get(), Relaxed);
    let length = (*PROGRAM.command_bytes.get()).min(COMMAND_BYTES);
    let to = (&raw const header.command).cast_mut().cast::<u8>();
    core::ptr::copy_nonoverlapping(PROGRAM.command.get().cast::<u8>(), to, length);
    header.command_bytes.store(length as u32, Relaxed);
    header.started_ns.store(raw::now(), Release);
    (*page).store(pid, Release);
    true
}

/// The numbers of this process and of its parent as feedline sees them: in another PID namespace, /proc has those.
unsafe fn numbers(pid: u32) -> (u32, u32) {
    let mut text = [0; 512];
    let fd = raw::open(c"/proc/self/stat".as_ptr().cast(), libc::O_RDONLY);
    let length = if fd < 0 { 0 } else { raw::read(fd, &mut text) };
    if fd >= 0 {
        raw::close(fd);
    }
    let text = text.get(..usize::try_from(length).unwrap_or(0)).unwrap_or(&[]);
    // `NUMBER (NAME) STATE PARENT`; the name can contain anything.
    let end = text.iter().rposition(|byte| *byte == b')').unwrap_or(0);
    let parent = text.get(end..).and_then(|rest| rest.split(|byte| *byte == b' ').nth(2));
    match (number(text), parent.map(number)) {
        (0, _) | (_, None) => (pid, raw::getppid()),
        (own, Some(parent)) => (own, parent),
    }
}

/// The digits at the beginning.
fn number(text: &[u8]) -> u32 {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |sum: u32, digit| sum.wrapping_mul(10).wrapping_add(u32::from(digit - b'0')))
}

/// The command line, from /proc: constructors of others may call hooks before the library's own has seen the
/// arguments.
unsafe fn read_command() {
    let fd = raw::open(c"/proc/self/cmdline".as_ptr().cast(), libc::O_RDONLY);
    if fd >= 0 {
        let length = raw::read(fd, &mut *PROGRAM.command.get());
        *PROGRAM.command_bytes.get() = usize::try_from(length).unwrap_or(0);
        raw::close(fd);
    }
}

/// Seccomp filters that this process is under, as far as the kernel says so.
unsafe fn filters() -> u32 {
    let mut text = [0; 4096];
    let fd = raw::open(c"/proc/self/status".as_ptr().cast(), libc::O_RDONLY);
    if fd < 0 {
        return 0;
    }
    let length = raw::read(fd, &mut text);
    raw::close(fd);
    let text = text.get(..usize::try_from(length).unwrap_or(0)).unwrap_or(&[]);
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Seccomp_filters:\t"));
    line.map_or(0, number)
}

/// Ends the observation of this process and of its forks, as it is about to restrict its system calls: those of the
/// library could end it. Returns what [`come_back`] needs if that fails.
pub(crate) unsafe fn leave() -> *mut AtomicU32 {
    let page = PAGE.load(Acquire);
    if let Some(process) = current() {
        let text = b"a process restricts its system calls (seccomp) and is not observed from then on";
        process.memory().text(TextKind::Note, 0, 0, process.tid(), text);
    }
    PAGE.store((&raw const NOT_OBSERVED).cast_mut(), Release);
    page
}

/// The process did not restrict its system calls.
pub(crate) fn come_back(page: *mut AtomicU32) {
    PAGE.store(page, Release);
}

/// The first call in a child of a fork: takes a slot in place of the parent's.
#[cold]
fn forked() -> Option<Observed> {
    // SAFETY: the page exists, and only one thread passes the exchange.
    unsafe {
        let page = PAGE.load(Acquire);
        if (*page).compare_exchange(FORKED, SILENT, AcqRel, Relaxed).is_err() {
            return None;
        }
        GENERATION.fetch_add(1, Relaxed);
        let memory = *PROGRAM.memory.get();
        let fd = raw::open(Kept::ring_path(), libc::O_RDWR);
        let entered = fd >= 0 && enter(fd, memory.control, 0, page);
        if fd >= 0 {
            raw::close(fd);
        }
        if !entered {
            (*memory.control).refused.fetch_add(1, Relaxed);
            // The parent's slot is not this process's to write to, but a pointer into it must stay valid.
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
            let both = libc::PROT_READ | libc::PROT_WRITE;
            raw::mmap(*PROGRAM.reserved.get(), RESERVED, both, flags, -1, 0);
            return None;
        }
    }
    current()
}

/// Called in the child by the hook of `fork`: for kernels that do not clear the page.
pub(crate) fn is_child_of_fork() {
    let page = PAGE.load(Acquire);
    // SAFETY: the page is never unmapped.
    unsafe {
        // A handler of `pthread_atfork` may have called a hook already.
        if !page.is_null() && ![SILENT, raw::getpid()].contains(&(*page).load(Relaxed)) {
            (*page).store(FORKED, Relaxed);
        }
    }
    current();
}

/// The header of the slot, for counts that have no event.
pub(crate) fn header(process: Observed) -> &'static SlotHeader {
    // SAFETY: mapped as long as the process exists.
    unsafe { &*process.memory().slot }
}
