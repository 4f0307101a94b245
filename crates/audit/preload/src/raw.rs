//! What needs the machine itself: system calls that no hook sees and that leave `errno` alone, memory of the
//! thread, the clock.

use core::arch::{asm, global_asm};
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

use libc::c_long;

/// What the library keeps for each thread. In the job's memory for threads of the C library, 0 at first.
#[repr(C)]
pub(crate) struct ThreadBlock {
    tid: u32,
    /// The generation of the process for which `tid` holds: it differs in the child of a fork.
    generation: u32,
    /// Not 0 while this thread looks for a real function.
    pub(crate) resolving: u32,
    /// Not 0 after this thread called `vfork`, in the child and in the parent. It stays, because a signal can come
    /// between the hook and the call.
    pub(crate) vforked: u32,
}

// A thread-local variable: Rust's attribute is not stable, and a pthread key would need another library on old
// systems.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .tbss.feedline_thread,\"awT\",@nobits",
    ".balign 16",
    ".hidden feedline_thread",
    ".globl feedline_thread",
    ".type feedline_thread, @object",
    ".size feedline_thread, 16",
    "feedline_thread:",
    ".zero 16",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .tbss.feedline_thread,\"awT\",%nobits",
    ".balign 16",
    ".hidden feedline_thread",
    ".globl feedline_thread",
    ".type feedline_thread, %object",
    ".size feedline_thread, 16",
    "feedline_thread:",
    ".zero 16",
    ".popsection",
);

/// The block of this thread.
#[inline(always)]
pub(crate) fn thread() -> *mut ThreadBlock {
    let block: usize;
    // SAFETY: reads the thread pointer and an offset that the loader filled in.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "mov {block}, qword ptr fs:[0]",
            "add {block}, qword ptr [rip + feedline_thread@GOTTPOFF]",
            block = out(reg) block,
            options(nostack, readonly),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "mrs {block}, tpidr_el0",
            "adrp {offset}, :gottprel:feedline_thread",
            "ldr {offset}, [{offset}, #:gottprel_lo12:feedline_thread]",
            "add {block}, {block}, {offset}",
            block = out(reg) block,
            offset = out(reg) _,
            options(nostack, readonly),
        );
    }
    block as *mut ThreadBlock
}

/// The number of this thread.
#[inline(always)]
pub(crate) fn tid(generation: u32) -> u32 {
    let block = thread();
    // SAFETY: the block belongs to this thread.
    unsafe {
        if (*block).generation != generation {
            (*block).tid = syscall(libc::SYS_gettid, [0; 6]) as u32;
            (*block).generation = generation;
        }
        (*block).tid
    }
}

/// A system call: its result or -errno.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn syscall(number: c_long, a: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = a;
    asm!(
        "syscall",
        inlateout("rax") number as isize => result,
        in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
        lateout("rcx") _, lateout("r11") _,
        options(nostack),
    );
    result
}

/// A system call: its result or -errno.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) unsafe fn syscall(number: c_long, a: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = a;
    asm!(
        "svc 0",
        in("x8") number,
        inlateout("x0") a as isize => result,
        in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
        options(nostack),
    );
    result
}

/// A system call in place of a function that the C library lacks: sets `errno`, and returns -1 on failure.
#[cold]
pub(crate) unsafe fn syscall_as_libc(number: c_long, a: [usize; 6]) -> isize {
    let result = syscall(number, a);
    if (-4095..0).contains(&result) {
        set_errno(-result as i32);
        return -1;
    }
    result
}

#[inline(always)]
pub(crate) fn errno() -> i32 {
    // SAFETY: always a valid address.
    unsafe { *libc::__errno_location() }
}

#[inline(always)]
pub(crate) fn set_errno(value: i32) {
    // SAFETY: always a valid address.
    unsafe { *libc::__errno_location() = value }
}

type ClockFn = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

/// The function that tells the time.
pub(crate) const CLOCK_NAME: &core::ffi::CStr = c"clock_gettime";
/// That of the C library itself. Null: not found yet, or there is none.
static CLOCK: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Sets the function that tells the time. Not the one that the program would call: another preloaded library may
/// stand for it, which gives other times, and opens files.
pub(crate) fn set_clock(address: *mut c_void) {
    CLOCK.store(address, Relaxed);
}

/// CLOCK_MONOTONIC.
#[inline(always)]
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let (clock, to) = (libc::CLOCK_MONOTONIC, &raw mut time);
    // SAFETY: null or the function of this type, which writes into `time`, as the system call does.
    unsafe {
        match core::mem::transmute::<*mut c_void, Option<ClockFn>>(CLOCK.load(Relaxed)) {
            Some(read) => {
                read(clock, to);
            }
            None => {
                syscall(libc::SYS_clock_gettime, [clock as usize, to as usize, 0, 0, 0, 0]);
            }
        }
    }
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[inline(always)]
pub(crate) fn getpid() -> u32 {
    // SAFETY: has no arguments.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) as u32 }
}

pub(crate) fn getppid() -> u32 {
    // SAFETY: has no arguments.
    unsafe { syscall(libc::SYS_getppid, [0; 6]) as u32 }
}

/// Opens a file of the library itself. In another PID namespace, its path can be that of anything: it must not wait,
/// nor become the terminal of the process.
pub(crate) unsafe fn open(path: *const u8, flags: i32) -> isize {
    let here = libc::AT_FDCWD as isize as usize;
    let flags = flags | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    syscall(libc::SYS_openat, [here, path as usize, flags as usize, 0, 0, 0])
}

pub(crate) unsafe fn close(fd: isize) {
    syscall(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]);
}

pub(crate) unsafe fn read(fd: isize, to: &mut [u8]) -> isize {
    syscall(libc::SYS_read, [fd as usize, to.as_mut_ptr() as usize, to.len(), 0, 0, 0])
}

/// The position of a descriptor, or -errno.
pub(crate) fn position(fd: i32) -> i64 {
    // SAFETY: moves nothing.
    unsafe { syscall(libc::SYS_lseek, [fd as usize, 0, libc::SEEK_CUR as usize, 0, 0, 0]) as i64 }
}

pub(crate) unsafe fn mmap(
    at: usize,
    length: usize,
    protection: i32,
    flags: i32,
    fd: isize,
    offset: usize,
) -> isize {
    syscall(libc::SYS_mmap, [at, length, protection as usize, flags as usize, fd as usize, offset])
}

pub(crate) unsafe fn munmap(at: usize, length: usize) {
    syscall(libc::SYS_munmap, [at, length, 0, 0, 0, 0]);
}

/// Wakes a process that waits for `word` in shared memory.
#[cold]
pub(crate) fn futex_wake(word: *const u32) {
    // SAFETY: wakes waiters, and does nothing if the address is wrong.
    unsafe {
        syscall(libc::SYS_futex, [word as usize, libc::FUTEX_WAKE as usize, i32::MAX as usize, 0, 0, 0])
    };
}

/// Writes a text to stderr and ends the process.
#[cold]
pub(crate) fn end_process(text: &[u8]) -> ! {
    loop {
        // SAFETY: `text` is valid.
        unsafe {
            syscall(libc::SYS_write, [2, text.as_ptr() as usize, text.len(), 0, 0, 0]);
            syscall(libc::SYS_exit_group, [134, 0, 0, 0, 0, 0]);
        }
    }
}
