//! Calls that make, copy and close descriptors.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use libc::mode_t;

use super::{Done, count, record};
use crate::classify::{self, FileNumbers};
use crate::fds::{self, FdView};
use crate::layout::{FdKind, Op, TextKind, file_hash, is_kept};
use crate::process::{self, Observed};
use crate::{raw, real};

/// Files whose paths were sent lately, in places by hash. A fork inherits it, as feedline keeps what the parent sent.
static SENT: [AtomicU64; 16_384] = [const { AtomicU64::new(0) }; 16_384];

/// Sends the path of a file or folder, unless it was sent lately.
pub(super) unsafe fn send_path(process: Observed, kind: TextKind, file: &FdView, fd: i32, path: &[u8]) {
    // Folders have places of their own, as their number may be that of a file on another device.
    let key = file.inode.wrapping_add(u64::from(file.device) << 40) ^ (kind as u64) << 56;
    let Some(place) = SENT.get(file_hash(key) as usize % SENT.len()) else { return };
    if place.load(Relaxed) == key {
        return;
    }
    let mut buffer = [0; 1024];
    let whole = if path.starts_with(b"/") { path } else { classify::path_of(fd, &mut buffer) };
    let whole = if whole.is_empty() { path } else { whole };
    if process.memory().text(kind, file.inode, file.device, process.tid(), whole) {
        place.store(key, Relaxed);
    }
}

/// An `open` returned.
#[inline(always)]
pub(super) unsafe fn opened(start: u64, process: Observed, path: *const c_char, flags: c_int, fd: c_int) {
    let mut done = Done::new(Op::Open, fd, start, fd.into());
    done.asked = u64::from(flags as u32);
    if process.is_itself() {
        let path = done.path(path);
        enter(process, done, path, flags, fd);
    }
}

unsafe fn enter(process: Observed, mut done: Done, path: &[u8], flags: c_int, fd: c_int) {
    if fd < 0 {
        let file = FdView { flags: classify::code_flag(path), ..FdView::NONE };
        record(process, &file, &done);
        return;
    }
    let Some(numbers) = classify::look(fd) else {
        fds::forget(fd);
        record(process, &FdView::NONE, &done);
        return;
    };
    done.offset = numbers.size;
    fds::opened(fd, &numbers, path, flags, 0);
    let file = fds::known(fd);
    let sample_bits = (*process.memory().control).sample_bits.load(Relaxed);
    if file.is_data() && is_kept(file.inode, sample_bits) {
        send_path(process, TextKind::Path, &file, fd, path);
    }
    record(process, &file, &done);
}

/// `open`: variadic in C. Its third argument is passed on as it is; it has no meaning unless a file is created.
macro_rules! open {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            let Some(real) = real::$name() else {
                let here = libc::AT_FDCWD as isize as usize;
                let arguments = [here, path as usize, flags as usize, mode as usize, 0, 0];
                return raw::syscall_as_libc(libc::SYS_openat, arguments) as c_int;
            };
            let Some(process) = process::current() else { return real(path, flags, mode) };
            let start = raw::now();
            let fd = real(path, flags, mode);
            opened(start, process, path, flags, fd);
            fd
        }
    )*};
}
open! { open open64 }

macro_rules! openat {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            let Some(real) = real::$name() else {
                let arguments = [folder as usize, path as usize, flags as usize, mode as usize, 0, 0];
                return raw::syscall_as_libc(libc::SYS_openat, arguments) as c_int;
            };
            let Some(process) = process::current() else { return real(folder, path, flags, mode) };
            let start = raw::now();
            let fd = real(folder, path, flags, mode);
            opened(start, process, path, flags, fd);
            fd
        }
    )*};
}
openat! { openat openat64 }

/// The other forms of `open`, with their arguments and flags.
macro_rules! other_open {
    ($($name:ident($($argument:ident: $type:ty),*), $path:ident, $flags:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            let Some(real) = real::$name() else {
                raw::set_errno(libc::ENOSYS);
                return -1;
            };
            let Some(process) = process::current() else { return real($($argument),*) };
            let start = raw::now();
            let fd = real($($argument),*);
            opened(start, process, $path, $flags, fd);
            fd
        }
    )*};
}
other_open! {
    creat(path: *const c_char, mode: mode_t), path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
    creat64(path: *const c_char, mode: mode_t), path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
    __open_2(path: *const c_char, flags: c_int), path, flags;
    __open64_2(path: *const c_char, flags: c_int), path, flags;
    __openat_2(folder: c_int, path: *const c_char, flags: c_int), path, flags;
    __openat64_2(folder: c_int, path: *const c_char, flags: c_int), path, flags;
}

/// Memory that processes share: known from its first use on, without an event.
unsafe fn shared_memory(fd: c_int) {
    let Some(process) = process::current() else { return };
    if fd >= 0 && process.is_itself() {
        let numbers = FileNumbers { inode: 0, device: 0, size: 0, mode: libc::S_IFREG };
        fds::opened(fd, &numbers, b"/dev/shm/", libc::O_RDWR, 0);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn shm_open(name: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let Some(real) = real::shm_open() else {
        raw::set_errno(libc::ENOSYS);
        return -1;
    };
    let fd = real(name, flags, mode);
    shared_memory(fd);
    fd
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn memfd_create(name: *const c_char, flags: c_uint) -> c_int {
    let fd = match real::memfd_create() {
        Some(real) => real(name, flags),
        None => {
            raw::syscall_as_libc(libc::SYS_memfd_create, [name as usize, flags as usize, 0, 0, 0, 0]) as c_int
        }
    };
    shared_memory(fd);
    fd
}

/// Before something closes a descriptor: what it was. None in a child of `vfork`, whose descriptors are its own.
pub(super) fn closing(process: Observed, fd: c_int) -> Option<FdView> {
    if !process.is_itself() {
        return None;
    }
    let file = fds::known(fd);
    fds::forget(fd);
    Some(file)
}

/// After something closed a descriptor. Programs close all numbers up to a limit: those leave no events.
pub(super) fn closed(process: Observed, start: u64, fd: c_int, file: &FdView, result: c_int) {
    let done = Done::new(Op::Close, fd, start, result.into());
    if file.kind == FdKind::Unknown && result != 0 {
        count(process, file, &done);
    } else {
        record(process, file, &done);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    let Some(real) = real::close() else {
        return raw::syscall_as_libc(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) as c_int;
    };
    let Some(process) = process::current() else { return real(fd) };
    let Some(file) = closing(process, fd) else { return real(fd) };
    let start = raw::now();
    let result = real(fd);
    closed(process, start, fd, &file, result);
    result
}

fn forget_range(first: c_uint, last: c_uint) {
    if process::current().is_some_and(Observed::is_itself) {
        fds::forget_range(first, last);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags as c_uint & libc::CLOSE_RANGE_CLOEXEC == 0 {
        forget_range(first, last);
    }
    match real::close_range() {
        Some(real) => real(first, last, flags),
        None => {
            let arguments = [first as usize, last as usize, flags as usize, 0, 0, 0];
            raw::syscall_as_libc(libc::SYS_close_range, arguments) as c_int
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    forget_range(first.max(0) as c_uint, c_uint::MAX);
    if let Some(real) = real::closefrom() {
        real(first);
    } else {
        let arguments = [first.max(0) as usize, c_uint::MAX as usize, 0, 0, 0, 0];
        raw::syscall(libc::SYS_close_range, arguments);
    }
}

fn duplicated(old: c_int, new: c_int) {
    if new >= 0 && process::current().is_some_and(Observed::is_itself) {
        fds::duplicated(old, new);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(old: c_int) -> c_int {
    let new = match real::dup() {
        Some(real) => real(old),
        None => raw::syscall_as_libc(libc::SYS_dup, [old as usize, 0, 0, 0, 0, 0]) as c_int,
    };
    duplicated(old, new);
    new
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    let Some(real) = real::dup2() else {
        raw::set_errno(libc::ENOSYS);
        return -1;
    };
    let result = real(old, new);
    duplicated(old, result);
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    let result = match real::dup3() {
        Some(real) => real(old, new, flags),
        None => {
            let arguments = [old as usize, new as usize, flags as usize, 0, 0, 0];
            raw::syscall_as_libc(libc::SYS_dup3, arguments) as c_int
        }
    };
    duplicated(old, result);
    result
}

/// `fcntl`: variadic in C; the third argument is an integer or a pointer.
macro_rules! fcntl {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
            let Some(real) = real::$name() else {
                let arguments = [fd as usize, command as usize, argument as usize, 0, 0, 0];
                return raw::syscall_as_libc(libc::SYS_fcntl, arguments) as c_int;
            };
            let result = real(fd, command, argument);
            if command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC {
                duplicated(fd, result);
            }
            result
        }
    )*};
}
fcntl! { fcntl fcntl64 }
