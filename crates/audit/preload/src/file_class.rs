//! What the path of a file says about it: data, program code, or something that is not storage. This file is compiled
//! into the preload library and into feedline, so that jobs and traces are judged by the same names.

use crate::layout::{CODE, FdKind};

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

/// [`CODE`] if a file with this path is program code.
pub fn code_flag(path: &[u8]) -> u16 {
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
pub fn kind(mode: u32, path: &[u8]) -> FdKind {
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
