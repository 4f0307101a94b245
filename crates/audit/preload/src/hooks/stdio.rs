//! Streams of the C library. What they read from and write to their descriptors is called inside the C library, so
//! the calls of the program are recorded instead.

use core::ffi::{c_char, c_int, c_long, c_void};

use libc::{FILE, size_t, ssize_t};

use super::open::{closed, closing, opened};
use super::{Done, count, record};
use crate::classify::bytes;
use crate::fds;
use crate::layout::{FdKind, Op};
use crate::process::{self, Observed};
use crate::{raw, real};

/// Writes below this size are only counted: a program may write a text byte by byte.
const SMALL_WRITE: u64 = 4096;

/// The descriptor of a stream, or -1 if it has none.
unsafe fn descriptor(stream: *mut FILE) -> c_int {
    if stream.is_null() {
        return -1;
    }
    let errno = raw::errno();
    let fd = libc::fileno(stream);
    raw::set_errno(errno);
    fd
}

/// The flags of `open` for a mode of `fopen`.
unsafe fn flags_of(mode: *const c_char) -> c_int {
    let mode = bytes(mode);
    let both = mode.contains(&b'+');
    match mode.first() {
        Some(b'r') if !both => libc::O_RDONLY,
        Some(b'r') => libc::O_RDWR,
        Some(b'a') if both => libc::O_RDWR | libc::O_CREAT | libc::O_APPEND,
        Some(b'a') => libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND,
        _ if both => libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC,
        _ => libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
    }
}

macro_rules! fopen {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            let Some(real) = real::$name() else { return super::no_function() };
            let Some(process) = process::current() else { return real(path, mode) };
            let start = raw::now();
            let stream = real(path, mode);
            opened(start, process, path, flags_of(mode), descriptor(stream));
            stream
        }
    )*};
}
fopen! { fopen fopen64 }

/// `freopen` closes a file and opens another; without a path, it changes the mode of the one that is open.
macro_rules! freopen {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char, old: *mut FILE) -> *mut FILE {
            let Some(real) = real::$name() else { return super::no_function() };
            let Some(process) = process::current() else { return real(path, mode, old) };
            let old_fd = descriptor(old);
            let file = closing(process, old_fd);
            let start = raw::now();
            let stream = real(path, mode, old);
            if !path.is_null() {
                file.filter(|_| old_fd >= 0).inspect(|file| closed(process, start, old_fd, file, 0));
                opened(start, process, path, flags_of(mode), descriptor(stream));
            }
            stream
        }
    )*};
}
freopen! { freopen freopen64 }

macro_rules! fclose {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(stream: *mut FILE) -> c_int {
            let Some(real) = real::$name() else { return libc::EOF };
            let Some(process) = process::current() else { return real(stream) };
            let fd = descriptor(stream);
            let Some(file) = closing(process, fd) else { return real(stream) };
            let start = raw::now();
            let result = real(stream);
            if fd >= 0 {
                // `pclose` returns how the program ended.
                closed(process, start, fd, &file, result.min(0));
            }
            result
        }
    )*};
}
fclose! { fclose pclose }

/// A call read or wrote `moved` of `asked` bytes.
unsafe fn passed(process: Observed, op: Op, start: u64, stream: *mut FILE, asked: size_t, moved: size_t) {
    let fd = descriptor(stream);
    if fd < 0 {
        return;
    }
    let mut done = Done::new(op, fd, start, moved as i64);
    let file = fds::find(fd);
    done.asked = asked as u64;
    done.offset = fds::advance_buffered(fd, &file, done.result);
    if op == Op::Write && (file.kind != FdKind::Regular || done.asked < SMALL_WRITE) {
        count(process, &file, &done);
    } else {
        record(process, &file, &done);
    }
}

/// Functions that move `number` items of `size` bytes, and return how many they moved.
macro_rules! items {
    ($($name:ident($($argument:ident: $type:ty),*), $op:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($argument: $type,)*
            size: size_t,
            number: size_t,
            stream: *mut FILE,
        ) -> size_t {
            let Some(real) = real::$name() else { return 0 };
            let Some(process) = process::current() else { return real($($argument,)* size, number, stream) };
            let start = raw::now();
            let result = real($($argument,)* size, number, stream);
            passed(process, $op, start, stream, size.wrapping_mul(number), size.wrapping_mul(result));
            result
        }
    )*};
}
items! {
    fread(to: *mut c_void), Op::BufferedRead;
    fread_unlocked(to: *mut c_void), Op::BufferedRead;
    __fread_chk(to: *mut c_void, space: size_t), Op::BufferedRead;
    __fread_unlocked_chk(to: *mut c_void, space: size_t), Op::BufferedRead;
    fwrite(from: *const c_void), Op::Write;
    fwrite_unlocked(from: *const c_void), Op::Write;
}

macro_rules! fgets {
    ($($name:ident($($argument:ident: $type:ty),*), $length:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type,)* stream: *mut FILE) -> *mut c_char {
            let Some(real) = real::$name() else { return super::no_function() };
            let Some(process) = process::current() else { return real($($argument,)* stream) };
            let start = raw::now();
            let line = real($($argument,)* stream);
            passed(process, Op::BufferedRead, start, stream, $length.max(0) as size_t, bytes(line).len());
            line
        }
    )*};
}
fgets! {
    fgets(to: *mut c_char, length: c_int), length;
    fgets_unlocked(to: *mut c_char, length: c_int), length;
    __fgets_chk(to: *mut c_char, space: size_t, length: c_int), length;
    __fgets_unlocked_chk(to: *mut c_char, space: size_t, length: c_int), length;
}

macro_rules! getline {
    ($($name:ident($($delimiter:ident)?);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            line: *mut *mut c_char,
            space: *mut size_t,
            $($delimiter: c_int,)?
            stream: *mut FILE,
        ) -> ssize_t {
            let Some(real) = real::$name() else {
                raw::set_errno(libc::ENOSYS);
                return -1;
            };
            let Some(process) = process::current() else { return real(line, space, $($delimiter,)? stream) };
            let start = raw::now();
            let result = real(line, space, $($delimiter,)? stream);
            let length = usize::try_from(result).unwrap_or(0);
            passed(process, Op::BufferedRead, start, stream, length, length);
            result
        }
    )*};
}
getline! {
    getline();
    getdelim(delimiter);
    __getdelim(delimiter);
}

/// The position of a stream changed, or not.
unsafe fn seeked(process: Observed, start: u64, stream: *mut FILE, whence: c_int, result: c_int) {
    let fd = descriptor(stream);
    if fd < 0 {
        return;
    }
    let mut done = Done::new(Op::Seek, fd, start, result.into());
    let file = fds::find(fd);
    done.asked = whence as u64;
    if result == 0 {
        let errno = raw::errno();
        done.offset = libc::ftello(stream);
        raw::set_errno(errno);
        fds::moved_to(fd, done.offset);
    }
    record(process, &file, &done);
}

macro_rules! fseek {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(stream: *mut FILE, offset: c_long, whence: c_int) -> c_int {
            let Some(real) = real::$name() else {
                raw::set_errno(libc::ENOSYS);
                return -1;
            };
            let Some(process) = process::current() else { return real(stream, offset, whence) };
            let start = raw::now();
            let result = real(stream, offset, whence);
            seeked(process, start, stream, whence, result);
            result
        }
    )*};
}
fseek! { fseek fseeko fseeko64 }

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewind(stream: *mut FILE) {
    let Some(real) = real::rewind() else { return };
    let Some(process) = process::current() else { return real(stream) };
    let start = raw::now();
    real(stream);
    seeked(process, start, stream, libc::SEEK_SET, 0);
}
