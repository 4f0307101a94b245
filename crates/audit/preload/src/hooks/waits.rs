//! Calls that wait for descriptors, and that receive from sockets.

use core::ffi::{c_int, c_void};

use libc::{
    epoll_event, fd_set, msghdr, nfds_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec,
    timeval,
};

use super::read::{moved, total};
use super::{Done, count, faulted, record};
use crate::fds::{self, FdView};
use crate::layout::Op;
use crate::process::{self, Observed};
use crate::{raw, real};

/// A call returned that waited for `asked` descriptors, the first of which is `fd`. One that does not wait is only
/// counted: programs make many of them.
fn waited(process: Observed, start: u64, fd: c_int, asked: u64, waits: bool, result: c_int) {
    let mut done = Done::new(Op::Poll, fd, start, result.into());
    done.asked = asked;
    let file = if fd >= 0 { fds::find(fd) } else { FdView::NONE };
    if waits {
        record(process, &file, &done);
    } else {
        count(process, &file, &done);
    }
}

/// The first descriptor of a list.
unsafe fn first(list: *const pollfd, length: nfds_t) -> c_int {
    if list.is_null() || length == 0 { -1 } else { (*list).fd }
}

/// Whether a time to wait is not 0. A null pointer means without end.
unsafe fn is_time(time: *const timespec) -> bool {
    time.is_null() || (*time).tv_sec != 0 || (*time).tv_nsec != 0
}

unsafe fn is_time_left(time: *const timeval) -> bool {
    time.is_null() || (*time).tv_sec != 0 || (*time).tv_usec != 0
}

/// Functions that wait, with their first descriptor, the number of descriptors, and whether they wait.
macro_rules! wait {
    ($($name:ident($($argument:ident: $type:ty),*), $fd:expr, $asked:expr, $waits:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            let Some(real) = real::$name() else {
                raw::set_errno(libc::ENOSYS);
                return -1;
            };
            let Some(process) = process::current() else { return real($($argument),*) };
            // `select` changes its arguments.
            let waits = $waits;
            let start = raw::now();
            let result = real($($argument),*);
            let fd = if faulted(result as isize) { -1 } else { $fd };
            waited(process, start, fd, $asked, waits, result);
            result
        }
    )*};
}
wait! {
    poll(list: *mut pollfd, length: nfds_t, ms: c_int), first(list, length), length, ms != 0;
    __poll_chk(list: *mut pollfd, length: nfds_t, ms: c_int, size: size_t), first(list, length), length, ms != 0;
    ppoll(list: *mut pollfd, length: nfds_t, time: *const timespec, mask: *const sigset_t),
        first(list, length), length, is_time(time);
    select(highest: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set, time: *mut timeval),
        -1, 0, is_time_left(time);
    pselect(highest: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set, time: *const timespec,
            mask: *const sigset_t), -1, 0, is_time(time);
    epoll_wait(fd: c_int, events: *mut epoll_event, most: c_int, ms: c_int), fd, 0, ms != 0;
    epoll_pwait(fd: c_int, events: *mut epoll_event, most: c_int, ms: c_int, mask: *const sigset_t), fd, 0, ms != 0;
}

/// Functions that receive, with the bytes asked for.
macro_rules! receive {
    ($($name:ident($($argument:ident: $type:ty),*), $asked:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, $($argument: $type),*) -> ssize_t {
            let Some(real) = real::$name() else {
                raw::set_errno(libc::ENOSYS);
                return -1;
            };
            let Some(process) = process::current() else { return real(fd, $($argument),*) };
            let start = raw::now();
            let result = real(fd, $($argument),*);
            let asked = if faulted(result) { 0 } else { $asked };
            moved(process, Op::Receive, start, fd, asked, result);
            result
        }
    )*};
}
receive! {
    recv(to: *mut c_void, length: size_t, flags: c_int), length;
    __recv_chk(to: *mut c_void, length: size_t, size: size_t, flags: c_int), length;
    recvfrom(to: *mut c_void, length: size_t, flags: c_int, from: *mut sockaddr, from_length: *mut socklen_t), length;
    recvmsg(message: *mut msghdr, flags: c_int),
        total((*message).msg_iov, c_int::try_from((*message).msg_iovlen).unwrap_or(0));
}
