//! The functions that stand before those of the C library, by what they concern. Each calls the real function with
//! the same arguments, and returns its result and `errno` unchanged.

mod exec;
mod folders;
mod mapping;
mod marks;
mod names;
mod open;
mod process;
mod read;
mod seek;
mod stat;
mod stdio;
mod waits;
mod write;

use core::ffi::c_char;
use core::sync::atomic::Ordering::Relaxed;

use crate::classify::bytes;
use crate::fds::{self, FdView};
use crate::layout::Op;
use crate::process::Observed;
use crate::raw;
use crate::ring::Happened;

/// What a function returns that the C library lacks, instead of a pointer.
#[cold]
fn no_function<T>() -> *mut T {
    raw::set_errno(libc::ENOSYS);
    core::ptr::null_mut()
}

/// A call that returned.
struct Done {
    op: Op,
    fd: i32,
    start: u64,
    end: u64,
    offset: i64,
    asked: u64,
    /// What is in the event: the result of the call, or -errno.
    result: i64,
}

impl Done {
    /// A call that returned just now.
    #[inline(always)]
    fn new(op: Op, fd: i32, start: u64, result: i64) -> Self {
        let end = raw::now();
        let result = if result < 0 { -i64::from(raw::errno()) } else { result };
        Self { op, fd, start, end, offset: -1, asked: 0, result }
    }

    /// A path or another argument of the call, unless an address that the caller gave was wrong: programs ask the
    /// kernel in this way what they can read.
    #[inline(always)]
    unsafe fn path<'a>(&self, path: *const c_char) -> &'a [u8] {
        if self.is_fault() { &[] } else { bytes(path) }
    }

    #[inline(always)]
    fn is_fault(&self) -> bool {
        self.result == -i64::from(libc::EFAULT)
    }
}

/// Whether a call failed because an address was wrong.
#[inline(always)]
fn faulted(result: isize) -> bool {
    result < 0 && raw::errno() == libc::EFAULT
}

/// Records a call: totals and an event.
#[inline(always)]
fn record(process: Observed, file: &FdView, done: &Done) {
    count(process, file, done);
    let what = Happened {
        op: done.op,
        kind: file.kind as u8,
        flags: file.flags,
        fd: done.fd,
        tid: process.tid(),
        start_ns: done.start,
        duration_ns: done.end.saturating_sub(done.start),
        file: file.inode,
        device: file.device,
        offset: done.offset,
        asked: done.asked,
        result: done.result,
    };
    // SAFETY: the slot is mapped.
    unsafe { process.memory().push(&what) };
}

/// Adds a call to the totals only.
#[inline(always)]
fn count(process: Observed, file: &FdView, done: &Done) {
    let moves = matches!(done.op, Op::Read | Op::BufferedRead | Op::Write | Op::Move | Op::Receive);
    let moved = if moves { done.result } else { 0 };
    let duration = done.end.saturating_sub(done.start);
    // SAFETY: the slot is mapped.
    unsafe { process.memory().count(done.op, file.is_data(), done.result, moved, duration) };
    if fds::is_beyond(done.fd) {
        crate::process::header(process).untracked.fetch_add(1, Relaxed);
    }
}
