//! Calls that list folders.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

use libc::{DIR, dirent};

use super::open::{closed, closing, send_path};
use super::{Done, count, record};
use crate::classify;
use crate::fds::{self, FdView};
use crate::layout::{Op, TextKind, is_kept};
use crate::process::{self, Observed};
use crate::{raw, real};

/// Sends the path of a folder that is kept in detail, and records that it is listed.
unsafe fn lists(process: Observed, file: &FdView, fd: c_int, path: &[u8], done: &Done) {
    let sample_bits = (*process.memory().control).sample_bits.load(Relaxed);
    if done.result >= 0 && is_kept(file.inode, sample_bits) {
        send_path(process, TextKind::Folder, file, fd, path);
    }
    record(process, file, done);
}

unsafe fn opened(process: Observed, start: u64, path: *const c_char, folder: *mut DIR) {
    let fd = if folder.is_null() { -1 } else { libc::dirfd(folder) };
    let done = Done::new(Op::List, fd, start, fd.into());
    if !process.is_itself() {
        return;
    }
    let path = done.path(path);
    match classify::look(fd).filter(|_| fd >= 0) {
        Some(numbers) => {
            fds::opened(fd, &numbers, path, 0, 0);
            lists(process, &FdView::of(&numbers, path), fd, path, &done);
        }
        None => {
            let file = FdView { flags: classify::code_flag(path), ..FdView::NONE };
            lists(process, &file, fd, path, &done);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    let Some(real) = real::opendir() else { return super::no_function() };
    let Some(process) = process::current() else { return real(path) };
    let start = raw::now();
    let folder = real(path);
    opened(process, start, path, folder);
    folder
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopendir(fd: c_int) -> *mut DIR {
    let Some(real) = real::fdopendir() else { return super::no_function() };
    let Some(process) = process::current() else { return real(fd) };
    let start = raw::now();
    let folder = real(fd);
    let done = Done::new(Op::List, fd, start, if folder.is_null() { -1 } else { fd.into() });
    if process.is_itself() {
        lists(process, &fds::find(fd), fd, b"", &done);
    }
    folder
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closedir(folder: *mut DIR) -> c_int {
    let Some(real) = real::closedir() else { return -1 };
    let Some(process) = process::current().filter(|_| !folder.is_null()) else { return real(folder) };
    let fd = libc::dirfd(folder);
    let Some(file) = closing(process, fd) else { return real(folder) };
    let start = raw::now();
    let result = real(folder);
    closed(process, start, fd, &file, result);
    result
}

macro_rules! readdir {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(folder: *mut DIR) -> *mut dirent {
            let Some(real) = real::$name() else { return super::no_function() };
            let entry = real(folder);
            if let Some(process) = process::current().filter(|_| !entry.is_null()) {
                let done = Done { op: Op::ListEntry, fd: -1, start: 0, end: 0, offset: -1, asked: 0, result: 1 };
                count(process, &FdView::NONE, &done);
            }
            entry
        }
    )*};
}
readdir! { readdir readdir64 }

/// `scandir` lists a whole folder by calls inside the C library. Its functions are passed on as they are.
macro_rules! scandir {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            path: *const c_char,
            list: *mut c_void,
            filter: *const c_void,
            compare: *const c_void,
        ) -> c_int {
            let Some(real) = real::$name() else {
                raw::set_errno(libc::ENOSYS);
                return -1;
            };
            let Some(process) = process::current() else { return real(path, list, filter, compare) };
            let start = raw::now();
            let result = real(path, list, filter, compare);
            let done = Done::new(Op::List, -1, start, result.into());
            let path = done.path(path);
            let found = classify::look_at(libc::AT_FDCWD, path.as_ptr()).ok().filter(|_| !path.is_empty());
            let file = found.map(|numbers| FdView::of(&numbers, path));
            lists(process, &file.unwrap_or(FdView::NONE), -1, path, &done);
            result
        }
    )*};
}
scandir! { scandir scandir64 }
