//! What a path or a descriptor refers to: the kernel's numbers of a file, and its path. What they mean is in
//! `file_class`.

pub(crate) use crate::file_class::{code_flag, kind};
use crate::raw;

/// A C string as a slice. Empty for a null pointer.
pub(crate) unsafe fn bytes<'a>(text: *const libc::c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    core::slice::from_raw_parts(text.cast(), libc::strlen(text))
}

/// Numbers of a file: what identifies it, and its size and mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileNumbers {
    pub(crate) inode: u64,
    pub(crate) device: u32,
    pub(crate) size: i64,
    pub(crate) mode: u32,
}

/// A device number as it is in events.
pub(crate) fn device(major: u32, minor: u32) -> u32 {
    major << 20 | (minor & 0xf_ffff)
}

impl FileNumbers {
    pub(crate) fn of_stat(stat: &libc::stat) -> Self {
        let device = device(libc::major(stat.st_dev), libc::minor(stat.st_dev));
        Self { inode: stat.st_ino, device, size: stat.st_size, mode: stat.st_mode }
    }

    pub(crate) fn of_statx(stat: &libc::statx) -> Self {
        let device = device(stat.stx_dev_major, stat.stx_dev_minor);
        Self { inode: stat.stx_ino, device, size: stat.stx_size as i64, mode: stat.stx_mode.into() }
    }
}

/// Asks the kernel about a descriptor, without a request to the server of a network file system.
pub(crate) fn look(fd: i32) -> Option<FileNumbers> {
    // SAFETY: the path ends with a NUL byte.
    match unsafe { ask(fd, c"".as_ptr().cast(), libc::AT_EMPTY_PATH) } {
        Ok(numbers) => Some(numbers),
        Err(libc::EBADF) => None,
        Err(_) => look_without_statx(fd),
    }
}

/// Asks the kernel about a path in a folder, and does not follow a link.
pub(crate) unsafe fn look_at(folder: i32, path: *const u8) -> Result<FileNumbers, i32> {
    ask(folder, path, libc::AT_SYMLINK_NOFOLLOW)
}

unsafe fn ask(folder: i32, path: *const u8, flags: i32) -> Result<FileNumbers, i32> {
    let mut answer = core::mem::MaybeUninit::<libc::statx>::uninit();
    let flags = (flags | libc::AT_STATX_DONT_SYNC) as usize;
    let wanted = (libc::STATX_TYPE | libc::STATX_INO | libc::STATX_SIZE) as usize;
    let to = answer.as_mut_ptr() as usize;
    match raw::syscall(libc::SYS_statx, [folder as usize, path as usize, flags, wanted, to, 0]) {
        0 => Ok(FileNumbers::of_statx(answer.assume_init_ref())),
        error => Err(-error as i32),
    }
}

/// On kernels before 4.11, and in containers that forbid `statx`.
#[cold]
fn look_without_statx(fd: i32) -> Option<FileNumbers> {
    let mut answer = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: as in `look`.
    unsafe {
        let result = raw::syscall(libc::SYS_fstat, [fd as usize, answer.as_mut_ptr() as usize, 0, 0, 0, 0]);
        (result == 0).then(|| FileNumbers::of_stat(answer.assume_init_ref()))
    }
}

/// The path of a descriptor, from /proc. Empty if it is not known or longer than the buffer.
pub(crate) fn path_of(fd: i32, to: &mut [u8; 1024]) -> &[u8] {
    let mut link = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    let start = b"/proc/self/fd/".len();
    let mut digits = 1;
    let mut rest = fd / 10;
    while rest > 0 {
        digits += 1;
        rest /= 10;
    }
    let mut value = fd;
    for place in link.iter_mut().skip(start).take(digits).rev() {
        *place = b'0' + (value % 10) as u8;
        value /= 10;
    }
    let here = libc::AT_FDCWD as isize as usize;
    let arguments = [here, link.as_ptr() as usize, to.as_mut_ptr() as usize, to.len(), 0, 0];
    // SAFETY: `link` ends with a NUL byte, and `to` is as long as the call is told.
    let length = unsafe { raw::syscall(libc::SYS_readlinkat, arguments) };
    match usize::try_from(length) {
        Ok(length) if length < to.len() => to.get(..length).unwrap_or(&[]),
        _ => &[],
    }
}
