//! Calls that change names of files.

use core::ffi::{c_char, c_int, c_uint};

use super::{Done, record};
use crate::classify::{self, bytes};
use crate::fds::FdView;
use crate::layout::Op;
use crate::process;
use crate::{raw, real};

/// The file with a path in a folder.
unsafe fn file_at(folder: c_int, path: *const c_char) -> FdView {
    match classify::look_at(folder, path.cast()) {
        Ok(numbers) => FdView::of(&numbers, bytes(path)),
        Err(libc::EFAULT) => FdView::NONE,
        Err(_) => FdView { flags: classify::code_flag(bytes(path)), ..FdView::NONE },
    }
}

/// Calls by which a file gets a new name: it is looked at afterwards.
macro_rules! rename {
    ($($name:ident($($argument:ident: $type:ty),*), $folder:expr, $path:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            let Some(real) = real::$name() else {
                raw::set_errno(libc::ENOSYS);
                return -1;
            };
            let Some(process) = process::current() else { return real($($argument),*) };
            let start = raw::now();
            let result = real($($argument),*);
            let done = Done::new(Op::Rename, -1, start, result.into());
            record(process, &file_at($folder, $path), &done);
            result
        }
    )*};
}
rename! {
    rename(old: *const c_char, new: *const c_char), libc::AT_FDCWD, new;
    renameat(old_folder: c_int, old: *const c_char, folder: c_int, new: *const c_char), folder, new;
    renameat2(old_folder: c_int, old: *const c_char, folder: c_int, new: *const c_char, flags: c_uint), folder, new;
}

/// Calls by which a name goes: the file is looked at before.
macro_rules! unlink {
    ($($name:ident($($argument:ident: $type:ty),*), $folder:expr, $path:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            let Some(real) = real::$name() else {
                raw::set_errno(libc::ENOSYS);
                return -1;
            };
            let Some(process) = process::current() else { return real($($argument),*) };
            let file = file_at($folder, $path);
            let start = raw::now();
            let result = real($($argument),*);
            record(process, &file, &Done::new(Op::Unlink, -1, start, result.into()));
            result
        }
    )*};
}
unlink! {
    unlink(path: *const c_char), libc::AT_FDCWD, path;
    unlinkat(folder: c_int, path: *const c_char, flags: c_int), folder, path;
    remove(path: *const c_char), libc::AT_FDCWD, path;
}
