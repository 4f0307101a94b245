//! Calls that write, make data durable, or move data between descriptors.

use core::ffi::{c_int, c_uint, c_void};

use libc::{iovec, off_t, size_t, ssize_t};

use super::read::{total, transfer};
use super::{Done, record};
use crate::fds;
use crate::layout::{Op, POSITIONED};
use crate::process::{self, Observed};
use crate::{raw, real};

transfer! { Op::Write;
    write(from: *const c_void, count: size_t), count, , libc::SYS_write, |fd| [fd, from as usize, count, 0, 0, 0];
    pwrite(from: *const c_void, count: size_t, at: off_t), count, at, libc::SYS_pwrite64,
        |fd| [fd, from as usize, count, at as usize, 0, 0];
    pwrite64(from: *const c_void, count: size_t, at: off_t), count, at, libc::SYS_pwrite64,
        |fd| [fd, from as usize, count, at as usize, 0, 0];
    writev(parts: *const iovec, count: c_int), total(parts, count), , libc::SYS_writev,
        |fd| [fd, parts as usize, count as usize, 0, 0, 0];
    pwritev(parts: *const iovec, count: c_int, at: off_t), total(parts, count), at, libc::SYS_pwritev,
        |fd| [fd, parts as usize, count as usize, at as usize, 0, 0];
    pwritev64(parts: *const iovec, count: c_int, at: off_t), total(parts, count), at, libc::SYS_pwritev,
        |fd| [fd, parts as usize, count as usize, at as usize, 0, 0];
    pwritev2(parts: *const iovec, count: c_int, at: off_t, flags: c_int), total(parts, count), at, libc::SYS_pwritev2,
        |fd| [fd, parts as usize, count as usize, at as usize, 0, flags as usize];
    pwritev64v2(parts: *const iovec, count: c_int, at: off_t, flags: c_int), total(parts, count), at,
        libc::SYS_pwritev2, |fd| [fd, parts as usize, count as usize, at as usize, 0, flags as usize];
}

macro_rules! sync {
    ($($name:ident: $number:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int) -> c_int {
            let Some(real) = real::$name() else {
                return raw::syscall_as_libc($number, [fd as usize, 0, 0, 0, 0, 0]) as c_int;
            };
            let Some(process) = process::current() else { return real(fd) };
            let start = raw::now();
            let result = real(fd);
            record(process, &fds::find(fd), &Done::new(Op::Sync, fd, start, result.into()));
            result
        }
    )*};
}
sync! {
    fsync: libc::SYS_fsync;
    fdatasync: libc::SYS_fdatasync;
}

/// Data moved from `from`, at an offset of its own if `at` is given; the caller's variable is already behind it.
unsafe fn moved_between(
    process: Observed,
    start: u64,
    from: c_int,
    at: *mut off_t,
    asked: size_t,
    result: ssize_t,
) {
    let mut done = Done::new(Op::Move, from, start, result as i64);
    let mut file = fds::find(from);
    done.asked = asked as u64;
    if done.is_fault() {
        // `at` may be the wrong address.
    } else if at.is_null() {
        done.offset = fds::advance(from, &file, done.result, false);
    } else {
        file.flags |= POSITIONED;
        done.offset = *at - done.result.max(0);
    }
    record(process, &file, &done);
}

macro_rules! sendfile {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(to: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t {
            let Some(real) = real::$name() else {
                let arguments = [to as usize, from as usize, at as usize, count, 0, 0];
                return raw::syscall_as_libc(libc::SYS_sendfile, arguments);
            };
            let Some(process) = process::current() else { return real(to, from, at, count) };
            let start = raw::now();
            let result = real(to, from, at, count);
            moved_between(process, start, from, at, count, result);
            after_move(to);
            result
        }
    )*};
}
sendfile! { sendfile sendfile64 }

/// The descriptor that received data stands behind it.
fn after_move(to: c_int) {
    fds::moved_to(to, raw::position(to).max(-1));
}

macro_rules! between {
    ($($name:ident: $number:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            from: c_int,
            from_at: *mut off_t,
            to: c_int,
            to_at: *mut off_t,
            count: size_t,
            flags: c_uint,
        ) -> ssize_t {
            let Some(real) = real::$name() else {
                let arguments =
                    [from as usize, from_at as usize, to as usize, to_at as usize, count, flags as usize];
                return raw::syscall_as_libc($number, arguments);
            };
            let Some(process) = process::current() else { return real(from, from_at, to, to_at, count, flags) };
            let start = raw::now();
            let result = real(from, from_at, to, to_at, count, flags);
            moved_between(process, start, from, from_at, count, result);
            if to_at.is_null() && result > 0 {
                after_move(to);
            }
            result
        }
    )*};
}
between! {
    copy_file_range: libc::SYS_copy_file_range;
    splice: libc::SYS_splice;
}
