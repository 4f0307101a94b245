//! Calls that ask about files.

use core::ffi::{c_char, c_int, c_uint};

use super::{Done, faulted, record};
use crate::classify::{self, FileNumbers};
use crate::fds::{self, FdView};
use crate::layout::Op;
use crate::process::{self, Observed};
use crate::{raw, real};

/// How a file was named, in `asked` of the event.
const BY_PATH: u64 = 0;
const BY_DESCRIPTOR: u64 = 1;

const HERE: usize = libc::AT_FDCWD as isize as usize;
const NOT_FOLLOWED: usize = libc::AT_SYMLINK_NOFOLLOW as usize;

/// A call with a path returned; `numbers` is its answer, if it has one.
unsafe fn asked_path(
    process: Observed,
    start: u64,
    path: *const c_char,
    result: c_int,
    numbers: impl FnOnce() -> Option<FileNumbers>,
) {
    let mut done = Done::new(Op::Stat, -1, start, result.into());
    done.asked = BY_PATH;
    let path = done.path(path);
    let file = match numbers().filter(|_| result == 0) {
        Some(numbers) => FdView::of(&numbers, path),
        None => FdView { flags: classify::code_flag(path), ..FdView::NONE },
    };
    record(process, &file, &done);
}

fn asked_descriptor(process: Observed, start: u64, fd: c_int, result: c_int) {
    let mut done = Done::new(Op::Stat, fd, start, result.into());
    done.asked = BY_DESCRIPTOR;
    let file = if result == 0 { fds::find(fd) } else { FdView::NONE };
    record(process, &file, &done);
}

/// A call with a folder and a path returned, where an empty path stands for the descriptor itself.
unsafe fn asked_at(
    process: Observed,
    start: u64,
    fd: c_int,
    path: *const c_char,
    result: c_int,
    numbers: impl FnOnce() -> Option<FileNumbers>,
) {
    if fd >= 0 && !faulted(result as isize) && classify::bytes(path).is_empty() {
        asked_descriptor(process, start, fd, result);
    } else {
        asked_path(process, start, path, result, numbers);
    }
}

unsafe fn answer(to: *mut libc::stat) -> Option<FileNumbers> {
    Some(FileNumbers::of_stat(&*to))
}

/// By path. Older C libraries have the names with a version, newer ones those without, or for old programs only.
macro_rules! by_path {
    ($($name:ident($($version:ident)?), $flags:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($version: c_int,)? path: *const c_char, to: *mut libc::stat) -> c_int {
            let arguments = [HERE, path as usize, to as usize, $flags, 0, 0];
            let call = || match real::$name() {
                Some(real) => real($($version,)? path, to),
                None => raw::syscall_as_libc(libc::SYS_newfstatat, arguments) as c_int,
            };
            let Some(process) = process::current() else { return call() };
            let start = raw::now();
            let result = call();
            asked_path(process, start, path, result, || answer(to));
            result
        }
    )*};
}
by_path! {
    stat(), 0;
    stat64(), 0;
    lstat(), NOT_FOLLOWED;
    lstat64(), NOT_FOLLOWED;
    __xstat(version), 0;
    __xstat64(version), 0;
    __lxstat(version), NOT_FOLLOWED;
    __lxstat64(version), NOT_FOLLOWED;
}

macro_rules! by_descriptor {
    ($($name:ident($($version:ident)?);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($version: c_int,)? fd: c_int, to: *mut libc::stat) -> c_int {
            let arguments = [fd as usize, to as usize, 0, 0, 0, 0];
            let call = || match real::$name() {
                Some(real) => real($($version,)? fd, to),
                None => raw::syscall_as_libc(libc::SYS_fstat, arguments) as c_int,
            };
            let Some(process) = process::current() else { return call() };
            let start = raw::now();
            let result = call();
            asked_descriptor(process, start, fd, result);
            result
        }
    )*};
}
by_descriptor! {
    fstat();
    fstat64();
    __fxstat(version);
    __fxstat64(version);
}

macro_rules! by_folder {
    ($($name:ident($($version:ident)?);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($version: c_int,)?
            folder: c_int,
            path: *const c_char,
            to: *mut libc::stat,
            flags: c_int,
        ) -> c_int {
            let arguments = [folder as usize, path as usize, to as usize, flags as usize, 0, 0];
            let call = || match real::$name() {
                Some(real) => real($($version,)? folder, path, to, flags),
                None => raw::syscall_as_libc(libc::SYS_newfstatat, arguments) as c_int,
            };
            let Some(process) = process::current() else { return call() };
            let start = raw::now();
            let result = call();
            asked_at(process, start, folder, path, result, || answer(to));
            result
        }
    )*};
}
by_folder! {
    fstatat();
    fstatat64();
    __fxstatat(version);
    __fxstatat64(version);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn statx(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    wanted: c_uint,
    to: *mut libc::statx,
) -> c_int {
    let arguments = [folder as usize, path as usize, flags as usize, wanted as usize, to as usize, 0];
    let call = || match real::statx() {
        Some(real) => real(folder, path, flags, wanted, to),
        None => raw::syscall_as_libc(libc::SYS_statx, arguments) as c_int,
    };
    let Some(process) = process::current() else { return call() };
    let start = raw::now();
    let result = call();
    asked_at(process, start, folder, path, result, || Some(FileNumbers::of_statx(&*to)));
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    let arguments = [HERE, path as usize, mode as usize, 0, 0, 0];
    let call = || match real::access() {
        Some(real) => real(path, mode),
        None => raw::syscall_as_libc(libc::SYS_faccessat, arguments) as c_int,
    };
    let Some(process) = process::current() else { return call() };
    let start = raw::now();
    let result = call();
    asked_path(process, start, path, result, || None);
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn faccessat(folder: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    let arguments = [folder as usize, path as usize, mode as usize, 0, 0, 0];
    let call = || match real::faccessat() {
        Some(real) => real(folder, path, mode, flags),
        None => raw::syscall_as_libc(libc::SYS_faccessat, arguments) as c_int,
    };
    let Some(process) = process::current() else { return call() };
    let start = raw::now();
    let result = call();
    asked_at(process, start, folder, path, result, || None);
    result
}
