//! Calls that map files. Only mappings of data files leave events: program code is mapped in great number, and
//! tensors in shared memory are not storage.

use core::ffi::{c_int, c_void};

use libc::{off_t, size_t};

use super::{Done, record};
use crate::fds;
use crate::layout::{Op, SHARED};
use crate::maps;
use crate::process::{self, Observed};
use crate::{raw, real};

unsafe fn mapped(
    process: Observed,
    start: u64,
    address: *mut c_void,
    length: size_t,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) {
    let done = Done::new(Op::Map, fd, start, address as i64);
    let mut file = fds::find(fd);
    if !file.is_data() {
        return;
    }
    // MAP_SHARED_VALIDATE contains the bit of MAP_SHARED.
    if flags & libc::MAP_SHARED != 0 {
        file.flags |= SHARED;
    }
    if done.result > 0 {
        maps::mapped(done.result as u64, &file);
    }
    record(process, &file, &Done { offset, asked: length as u64, ..done });
    if done.result > 0 && maps::is_first() {
        // From now on feedline records page faults.
        process.memory().wake();
    }
}

macro_rules! mmap {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            at: *mut c_void,
            length: size_t,
            protection: c_int,
            flags: c_int,
            fd: c_int,
            offset: off_t,
        ) -> *mut c_void {
            let Some(real) = real::$name() else {
                let arguments =
                    [at as usize, length, protection as usize, flags as usize, fd as usize, offset as usize];
                return raw::syscall_as_libc(libc::SYS_mmap, arguments) as *mut c_void;
            };
            if fd < 0 || flags & libc::MAP_ANONYMOUS != 0 {
                return real(at, length, protection, flags, fd, offset);
            }
            let Some(process) = process::current() else { return real(at, length, protection, flags, fd, offset) };
            let start = raw::now();
            let address = real(at, length, protection, flags, fd, offset);
            mapped(process, start, address, length, flags, fd, offset);
            address
        }
    )*};
}
mmap! { mmap mmap64 }

#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, length: size_t) -> c_int {
    let call = || match real::munmap() {
        Some(real) => real(at, length),
        None => raw::syscall_as_libc(libc::SYS_munmap, [at as usize, length, 0, 0, 0, 0]) as c_int,
    };
    let Some(process) = process::current() else { return call() };
    // Before the call: afterwards, another thread may have got the same address.
    let Some(file) = maps::find(at as u64, true) else { return call() };
    let start = raw::now();
    let result = call();
    let mut done = Done::new(Op::Unmap, -1, start, result.into());
    done.asked = length as u64;
    if result == 0 {
        done.result = at as i64;
    }
    record(process, &file, &done);
    result
}

/// Advice about a mapping. `posix_madvise` returns its error, `madvise` sets `errno`.
macro_rules! madvise {
    ($($name:ident, $error:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(at: *mut c_void, length: size_t, advice: c_int) -> c_int {
            let call = || match real::$name() {
                Some(real) => real(at, length, advice),
                None => {
                    let arguments = [at as usize, length, advice as usize, 0, 0, 0];
                    raw::syscall_as_libc(libc::SYS_madvise, arguments) as c_int
                }
            };
            let Some(process) = process::current() else { return call() };
            let Some(file) = maps::find(at as u64, false) else { return call() };
            let start = raw::now();
            let result = call();
            let mut done = Done::new(Op::Advise, -1, start, $error(result));
            done.asked = advice as u64;
            record(process, &file, &done);
            result
        }
    )*};
}
madvise! {
    madvise, i64::from;
    posix_madvise, |error: c_int| -i64::from(error != 0);
}
