//! Functions for the marks in Python, which find them by name.

use core::ffi::{c_char, c_int};
use core::sync::atomic::Ordering::Relaxed;

use crate::layout::{Mark, Op, TextKind};
use crate::process;
use crate::raw;
use crate::ring::Happened;

/// 1 if the process is observed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn feedline_is_on() -> c_int {
    process::current().is_some().into()
}

/// Records a mark.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn feedline_mark(kind: u32, a: i64, b: i64, c: i64) {
    let Some(process) = process::current() else { return };
    let what = Happened {
        op: Op::Mark,
        kind: kind as u8,
        flags: 0,
        fd: -1,
        tid: process.tid(),
        start_ns: raw::now(),
        duration_ns: 0,
        file: a as u64,
        device: 0,
        offset: b,
        asked: c as u64,
        result: 0,
    };
    let memory = process.memory();
    memory.count(Op::Mark, false, 0, 0, 0);
    memory.push(&what);
    if kind == Mark::EpochBegin as u32 || kind == Mark::EpochEnd as u32 {
        memory.wake();
    }
}

/// Records a text of [`TextKind`] `Site` or `Note`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn feedline_text(kind: u32, id: u64, text: *const c_char, length: usize) {
    let Some(process) = process::current() else { return };
    if text.is_null() || length > isize::MAX as usize {
        return;
    }
    let kind = if kind == TextKind::Site as u32 { TextKind::Site } else { TextKind::Note };
    let text = core::slice::from_raw_parts(text.cast(), length);
    process::header(process).totals.get(Op::Text as usize).inspect(|of| {
        of.calls.fetch_add(1, Relaxed);
    });
    process.memory().text(kind, id, 0, process.tid(), text);
}
