//! Calls that read.

use core::ffi::{c_int, c_void};

use libc::{iovec, off_t, size_t, ssize_t};

use super::{Done, record};
use crate::fds;
use crate::layout::{Op, POSITIONED};
use crate::process::{self, Observed};
use crate::{raw, real};

/// The sum of the lengths of a vector.
pub(super) unsafe fn total(vector: *const iovec, count: c_int) -> usize {
    let Ok(count) = usize::try_from(count) else { return 0 };
    // More than the system allows: the call fails, and the memory may be anything.
    if vector.is_null() || count > 1024 {
        return 0;
    }
    core::slice::from_raw_parts(vector, count).iter().fold(0, |sum, part| part.iov_len.wrapping_add(sum))
}

/// A read or write at the position of the descriptor returned.
#[inline(always)]
pub(super) fn moved(process: Observed, op: Op, start: u64, fd: c_int, asked: usize, result: ssize_t) {
    let mut done = Done::new(op, fd, start, result as i64);
    let file = fds::find(fd);
    done.asked = asked as u64;
    done.offset = fds::advance(fd, &file, done.result, op == Op::Write);
    record(process, &file, &done);
}

/// A read or write at an offset of its own returned.
#[inline(always)]
pub(super) fn moved_at(
    process: Observed,
    op: Op,
    start: u64,
    fd: c_int,
    asked: usize,
    at: off_t,
    result: ssize_t,
) {
    if at == -1 {
        // Of `preadv2` and `pwritev2`: the position of the descriptor.
        moved(process, op, start, fd, asked, result);
        return;
    }
    let mut done = Done::new(op, fd, start, result as i64);
    let mut file = fds::find(fd);
    file.flags |= POSITIONED;
    done.asked = asked as u64;
    done.offset = at;
    record(process, &file, &done);
}

/// Functions that read or write, with the system call for libraries that lack them.
macro_rules! transfer {
    ($op:expr; $(
        $name:ident($($argument:ident: $type:ty),*), $asked:expr, $($at:ident)?, $number:expr, $raw:expr;
    )*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, $($argument: $type),*) -> ssize_t {
            let Some(real) = real::$name() else { return raw::syscall_as_libc($number, $raw(fd as usize)) };
            let Some(process) = process::current() else { return real(fd, $($argument),*) };
            let start = raw::now();
            let result = real(fd, $($argument),*);
            let asked = if $crate::hooks::faulted(result) { 0 } else { $asked };
            transfer!(@ process, $op, start, fd, asked, result $(, $at)?);
            result
        }
    )*};
    (@ $process:ident, $op:expr, $start:ident, $fd:ident, $asked:expr, $result:ident) => {
        $crate::hooks::read::moved($process, $op, $start, $fd, $asked, $result)
    };
    (@ $process:ident, $op:expr, $start:ident, $fd:ident, $asked:expr, $result:ident, $at:ident) => {
        $crate::hooks::read::moved_at($process, $op, $start, $fd, $asked, $at, $result)
    };
}
pub(super) use transfer;

transfer! { Op::Read;
    read(to: *mut c_void, count: size_t), count, , libc::SYS_read, |fd| [fd, to as usize, count, 0, 0, 0];
    __read_chk(to: *mut c_void, count: size_t, size: size_t), count, , libc::SYS_read,
        |fd| [fd, to as usize, count.min(size), 0, 0, 0];
    pread(to: *mut c_void, count: size_t, at: off_t), count, at, libc::SYS_pread64,
        |fd| [fd, to as usize, count, at as usize, 0, 0];
    pread64(to: *mut c_void, count: size_t, at: off_t), count, at, libc::SYS_pread64,
        |fd| [fd, to as usize, count, at as usize, 0, 0];
    __pread_chk(to: *mut c_void, count: size_t, at: off_t, size: size_t), count, at, libc::SYS_pread64,
        |fd| [fd, to as usize, count.min(size), at as usize, 0, 0];
    __pread64_chk(to: *mut c_void, count: size_t, at: off_t, size: size_t), count, at, libc::SYS_pread64,
        |fd| [fd, to as usize, count.min(size), at as usize, 0, 0];
    readv(parts: *const iovec, count: c_int), total(parts, count), , libc::SYS_readv,
        |fd| [fd, parts as usize, count as usize, 0, 0, 0];
    preadv(parts: *const iovec, count: c_int, at: off_t), total(parts, count), at, libc::SYS_preadv,
        |fd| [fd, parts as usize, count as usize, at as usize, 0, 0];
    preadv64(parts: *const iovec, count: c_int, at: off_t), total(parts, count), at, libc::SYS_preadv,
        |fd| [fd, parts as usize, count as usize, at as usize, 0, 0];
    preadv2(parts: *const iovec, count: c_int, at: off_t, flags: c_int), total(parts, count), at, libc::SYS_preadv2,
        |fd| [fd, parts as usize, count as usize, at as usize, 0, flags as usize];
    preadv64v2(parts: *const iovec, count: c_int, at: off_t, flags: c_int), total(parts, count), at, libc::SYS_preadv2,
        |fd| [fd, parts as usize, count as usize, at as usize, 0, flags as usize];
}
