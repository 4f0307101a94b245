//! Calls that move the position of a descriptor, or give advice about a file.

use core::ffi::c_int;

use libc::{off_t, size_t, ssize_t};

use super::{Done, record};
use crate::fds;
use crate::layout::Op;
use crate::process;
use crate::{raw, real};

macro_rules! lseek {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, offset: off_t, whence: c_int) -> off_t {
            let Some(real) = real::$name() else {
                let arguments = [fd as usize, offset as usize, whence as usize, 0, 0, 0];
                return raw::syscall_as_libc(libc::SYS_lseek, arguments) as off_t;
            };
            let Some(process) = process::current() else { return real(fd, offset, whence) };
            let start = raw::now();
            let result = real(fd, offset, whence);
            let mut done = Done::new(Op::Seek, fd, start, result);
            let file = fds::find(fd);
            done.asked = whence as u64;
            if result >= 0 {
                fds::moved_to(fd, result);
                done.offset = result;
            }
            record(process, &file, &done);
            result
        }
    )*};
}
lseek! { lseek lseek64 }

macro_rules! posix_fadvise {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int {
            let Some(real) = real::$name() else { return libc::ENOSYS };
            let Some(process) = process::current() else { return real(fd, offset, length, advice) };
            let start = raw::now();
            let result = real(fd, offset, length, advice);
            let mut done = Done::new(Op::Advise, fd, start, 0);
            done.result = -i64::from(result);
            done.asked = advice as u64;
            done.offset = offset;
            record(process, &fds::find(fd), &done);
            result
        }
    )*};
}
posix_fadvise! { posix_fadvise posix_fadvise64 }

#[unsafe(no_mangle)]
pub unsafe extern "C" fn readahead(fd: c_int, offset: off_t, count: size_t) -> ssize_t {
    let Some(real) = real::readahead() else {
        return raw::syscall_as_libc(libc::SYS_readahead, [fd as usize, offset as usize, count, 0, 0, 0]);
    };
    let Some(process) = process::current() else { return real(fd, offset, count) };
    let start = raw::now();
    let result = real(fd, offset, count);
    let mut done = Done::new(Op::Advise, fd, start, result as i64);
    done.asked = libc::POSIX_FADV_WILLNEED as u64;
    done.offset = offset;
    record(process, &fds::find(fd), &done);
    result
}
