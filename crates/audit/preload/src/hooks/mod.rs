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

use core::sync::atomic::Ordering::Relaxed;

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
