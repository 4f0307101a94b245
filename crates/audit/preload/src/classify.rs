//! What a path or a descriptor refers to: data, program code, or something that is not storage. It judges by names,
//! as the contents are none of its business.

use crate::layout::{CODE, FdKind};
use crate::raw;

/// Folders whose files belong to the system.
const CODE_FOLDERS: [&[u8]; 9] = [
    b"/usr/lib/",
    b"/usr/lib64/",
    b"/usr/lib32/",
    b"/usr/libexec/",
    b"/usr/share/",
    b"/lib/",
    b"/lib64/",
    b"/lib32/",
    b"/etc/",
];
/// Ends of names of program code. Not `.pth`: those of Python are in site-packages, all others are models.
const CODE_ENDS: [&[u8]; 8] =
    [b".py", b".pyc", b".pyo", b".so", b".egg-info", b".dist-info", b"/pyvenv.cfg", b"/__pycache__"];
/// Names of folders with installed packages.
const PACKAGES: [&[u8]; 2] = [b"site-packages", b"dist-packages"];

/// A C string as a slice. Empty for a null pointer.
pub(crate) unsafe fn bytes<'a>(text: *const libc::c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    core::slice::from_raw_parts(text.cast(), libc::strlen(text))
}

/// [`CODE`] if a file with this path is program code.
pub(crate) fn code_flag(path: &[u8]) -> u16 {
    let is_code = CODE_ENDS.iter().any(|end| path.ends_with(end))
        || CODE_FOLDERS.iter().any(|folder| path.starts_with(folder))
        || is_versioned_library(path)
        || is_package(path);
    if is_code { CODE } else { 0 }
}

/// `libname.so.6` and `libname.so.1.2.3`.
fn is_versioned_library(path: &[u8]) -> bool {
    let is_version = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let Some(last) = path.iter().rposition(|byte| !is_version(byte)) else { return false };
    // "so" and a dot before it; a dot and a digit behind it.
    let (Some(name), Some(version)) = (path.get(..=last), path.get(last + 1..)) else { return false };
    name.ends_with(b".so") && version.starts_with(b".") && version.len() > 1
}

/// Whether a folder of the path has one of the names of [`PACKAGES`], or ends in `.dist-info` or `.egg-info`.
fn is_package(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/')
        .any(|part| PACKAGES.contains(&part) || part.ends_with(b".dist-info") || part.ends_with(b".egg-info"))
}

/// The kind of a file with this mode, and this path if it is known.
pub(crate) fn kind(mode: u32, path: &[u8]) -> FdKind {
    match mode & libc::S_IFMT {
        libc::S_IFREG if path.starts_with(b"/proc/") || path.starts_with(b"/sys/") => FdKind::System,
        libc::S_IFREG if path.starts_with(b"/dev/shm/") || path.starts_with(b"/memfd:") => FdKind::Memory,
        libc::S_IFREG => FdKind::Regular,
        libc::S_IFDIR => FdKind::Folder,
        libc::S_IFIFO => FdKind::Pipe,
        libc::S_IFSOCK => FdKind::Socket,
        _ => FdKind::Other,
    }
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
pub(crate) unsafe fn look_at(folder: i32, path: *const u8) -> Option<FileNumbers> {
    ask(folder, path, libc::AT_SYMLINK_NOFOLLOW).ok()
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
