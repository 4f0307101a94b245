//! The system calls that can wait for storage, and what a thread's line in /proc tells about its current call: its
//! name, and the file or folder that it is about. The code does not access that file, so that it can never hang itself.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::kernel;

/// The kind of a call, as far as it determines what counts as progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    /// Waits until data is durable, however much that is.
    Flush,
    /// Writes data, and may have to wait until other data has been written out.
    Write,
    /// Changes names or attributes, and may have to wait for the journal.
    Change,
    /// Reads data, names or attributes.
    Read,
}

/// The arguments of a call that name its object.
#[derive(Clone, Copy, Debug)]
enum ObjectArguments {
    Descriptor(usize),
    Path(usize),
    /// A path relative to a folder's descriptor.
    At(usize, usize),
    /// No argument names it: this text does. The descriptor of a file that is being closed is already gone.
    Unnamed(&'static str),
}

struct Call {
    number: libc::c_long,
    name: &'static str,
    names: ObjectArguments,
    kind: CallKind,
}

const fn call(number: libc::c_long, name: &'static str, names: ObjectArguments, kind: CallKind) -> Call {
    Call { number, name, names, kind }
}

use CallKind::{Change, Flush, Read, Write};
use ObjectArguments::{At, Descriptor, Unnamed};

const MEMORY: ObjectArguments = Unnamed("a mapped file");

/// Calls that exist on every architecture.
const CALLS: &[Call] = &[
    call(libc::SYS_fsync, "fsync", Descriptor(0), Flush),
    call(libc::SYS_fdatasync, "fdatasync", Descriptor(0), Flush),
    call(libc::SYS_syncfs, "syncfs", Descriptor(0), Flush),
    call(libc::SYS_sync_file_range, "sync_file_range", Descriptor(0), Flush),
    call(libc::SYS_msync, "msync", MEMORY, Flush),
    call(libc::SYS_write, "write", Descriptor(0), Write),
    call(libc::SYS_writev, "writev", Descriptor(0), Write),
    call(libc::SYS_pwrite64, "pwrite", Descriptor(0), Write),
    call(libc::SYS_pwritev, "pwritev", Descriptor(0), Write),
    call(libc::SYS_pwritev2, "pwritev2", Descriptor(0), Write),
    call(libc::SYS_copy_file_range, "copy_file_range", Descriptor(2), Write),
    call(libc::SYS_sendfile, "sendfile", Descriptor(0), Write),
    call(libc::SYS_fallocate, "fallocate", Descriptor(0), Write),
    call(libc::SYS_ftruncate, "ftruncate", Descriptor(0), Change),
    call(libc::SYS_truncate, "truncate", ObjectArguments::Path(0), Change),
    call(libc::SYS_mkdirat, "mkdir", At(0, 1), Change),
    call(libc::SYS_unlinkat, "unlink", At(0, 1), Change),
    call(libc::SYS_renameat2, "rename", At(0, 1), Change),
    call(libc::SYS_linkat, "link", At(0, 1), Change),
    call(libc::SYS_symlinkat, "symlink", At(1, 2), Change),
    call(libc::SYS_fchmod, "fchmod", Descriptor(0), Change),
    call(libc::SYS_fchmodat, "chmod", At(0, 1), Change),
    call(libc::SYS_utimensat, "utimensat", At(0, 1), Change),
    call(libc::SYS_close, "close", Unnamed("a file"), Flush),
    call(libc::SYS_openat, OPEN, At(0, 1), Read),
    call(libc::SYS_openat2, OPEN, At(0, 1), Read),
    call(libc::SYS_statx, "stat", At(0, 1), Read),
    call(libc::SYS_newfstatat, "stat", At(0, 1), Read),
    call(libc::SYS_fstat, "stat", Descriptor(0), Read),
    call(libc::SYS_statfs, "statfs", ObjectArguments::Path(0), Read),
    call(libc::SYS_fstatfs, "statfs", Descriptor(0), Read),
    call(libc::SYS_faccessat, "access", At(0, 1), Read),
    call(libc::SYS_faccessat2, "access", At(0, 1), Read),
    call(libc::SYS_readlinkat, "readlink", At(0, 1), Read),
    call(libc::SYS_getdents64, "getdents", Descriptor(0), Read),
    call(libc::SYS_chdir, "chdir", ObjectArguments::Path(0), Read),
    call(libc::SYS_flock, "flock", Descriptor(0), Read),
    call(libc::SYS_ioctl, "ioctl", Descriptor(0), Read),
    call(libc::SYS_lseek, "lseek", Descriptor(0), Read),
    call(libc::SYS_fadvise64, "fadvise", Descriptor(0), Read),
    call(libc::SYS_readahead, "readahead", Descriptor(0), Read),
    call(libc::SYS_read, "read", Descriptor(0), Read),
    call(libc::SYS_readv, "readv", Descriptor(0), Read),
    call(libc::SYS_pread64, "pread", Descriptor(0), Read),
    call(libc::SYS_preadv, "preadv", Descriptor(0), Read),
    call(libc::SYS_preadv2, "preadv2", Descriptor(0), Read),
    call(libc::SYS_mmap, "mmap", Descriptor(4), Read),
    call(libc::SYS_munmap, "munmap", MEMORY, Read),
    call(libc::SYS_madvise, "madvise", MEMORY, Read),
    call(PAGE_FAULT, "page fault in", MEMORY, Read),
];

/// Calls that exist only on this architecture.
#[cfg(target_arch = "x86_64")]
const OLDER: &[Call] = &[
    call(libc::SYS_open, OPEN, ObjectArguments::Path(0), Read),
    call(libc::SYS_stat, "stat", ObjectArguments::Path(0), Read),
    call(libc::SYS_lstat, "stat", ObjectArguments::Path(0), Read),
    call(libc::SYS_access, "access", ObjectArguments::Path(0), Read),
    call(libc::SYS_readlink, "readlink", ObjectArguments::Path(0), Read),
    call(libc::SYS_getdents, "getdents", Descriptor(0), Read),
    call(libc::SYS_mkdir, "mkdir", ObjectArguments::Path(0), Change),
    call(libc::SYS_rmdir, "rmdir", ObjectArguments::Path(0), Change),
    call(libc::SYS_unlink, "unlink", ObjectArguments::Path(0), Change),
    call(libc::SYS_rename, "rename", ObjectArguments::Path(0), Change),
    call(libc::SYS_renameat, "rename", At(0, 1), Change),
    call(libc::SYS_link, "link", ObjectArguments::Path(0), Change),
    call(libc::SYS_symlink, "symlink", ObjectArguments::Path(1), Change),
    call(libc::SYS_chmod, "chmod", ObjectArguments::Path(0), Change),
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[Call] = &[];

/// The one name that stands for two kinds of calls.
const OPEN: &str = "open";
/// What the kernel shows for a thread that is blocked outside a system call.
const PAGE_FAULT: libc::c_long = -1;

/// The current call of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InCall {
    pub(super) name: &'static str,
    pub(super) kind: CallKind,
    pub(super) object: Object,
}

/// The file or folder that a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    /// The descriptor of the object itself, if the call names one.
    pub(super) descriptor: Option<i32>,
    /// Its path, if known, and its name in messages.
    pub(super) path: Option<PathBuf>,
    pub(super) shown: String,
}

impl Object {
    fn at(descriptor: Option<i32>, path: PathBuf) -> Object {
        Object { descriptor, shown: path.display().to_string(), path: Some(path) }
    }
}

impl InCall {
    /// The call in a line of /proc/self/task/N/syscall (`number argument.. stack program`); `None` if the thread runs,
    /// or does not wait for storage.
    pub(super) fn of(line: &str) -> Option<InCall> {
        let mut words = line.split_ascii_whitespace();
        let number: libc::c_long = words.next()?.parse().ok()?;
        let call = CALLS.iter().chain(OLDER).find(|call| call.number == number)?;
        let arguments: Vec<u64> =
            words.map_while(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
        let object = call.names.look_up(&arguments)?;
        let is_storage = object.path.as_deref().is_none_or(is_storage);
        let kind = if call.creates(&arguments) { Change } else { call.kind };
        is_storage.then_some(InCall { name: call.name, kind, object })
    }
}

impl std::fmt::Display for InCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.object.shown)
    }
}

impl Call {
    /// Whether it opens a file and may create it. The flags follow the path.
    fn creates(&self, arguments: &[u64]) -> bool {
        let at = match self.names {
            At(_, path) | ObjectArguments::Path(path) if self.name == OPEN => path + 1,
            _ => return false,
        };
        let making = (libc::O_CREAT | libc::O_TRUNC) as u64;
        self.number != libc::SYS_openat2 && arguments.get(at).is_some_and(|flags| flags & making != 0)
    }
}

impl ObjectArguments {
    fn look_up(self, arguments: &[u64]) -> Option<Object> {
        // The kernel reads descriptors as 32 bits and ignores the rest of the register.
        let descriptor = |at: usize| arguments.get(at).map(|value| *value as i32);
        match self {
            Unnamed(what) => Some(Object { descriptor: None, path: None, shown: what.to_owned() }),
            Descriptor(at) => {
                let descriptor = descriptor(at)?;
                Some(Object::at(Some(descriptor), path_of(descriptor)?))
            }
            ObjectArguments::Path(at) => {
                let path = text_at(*arguments.get(at)?)?;
                Some(Object::at(None, below(libc::AT_FDCWD, &path)?))
            }
            At(folder, at) => {
                let (folder, path) = (descriptor(folder)?, text_at(*arguments.get(at)?)?);
                // An empty path: the call is about the descriptor itself.
                let own = path.as_os_str().is_empty().then_some(folder);
                Some(Object::at(own, below(folder, &path)?))
            }
        }
    }
}

/// The path of an open file, from the kernel's tables. This does not access the file system.
fn path_of(descriptor: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()
}

fn below(folder: i32, path: &Path) -> Option<PathBuf> {
    let folder = match folder {
        _ if path.is_absolute() => PathBuf::new(),
        libc::AT_FDCWD => fs::read_link("/proc/self/cwd").ok()?,
        folder => path_of(folder)?,
    };
    Some(if path.as_os_str().is_empty() { folder } else { folder.join(path) })
}

/// The path at an address of this process. Its thread may have continued meanwhile, so the kernel reads it: an address
/// that is no longer valid is then an error and not a crash.
fn text_at(address: u64) -> Option<PathBuf> {
    let mut bytes = [0; 4096];
    let got = kernel::read_at(Path::new("/proc/self/mem"), address, &mut bytes)?;
    let end = bytes[..got].iter().position(|byte| *byte == 0)?;
    Some(PathBuf::from(OsStr::from_bytes(&bytes[..end])))
}

/// Whether a path is on a file system, and not a pipe, a socket, a terminal or a file of the kernel.
fn is_storage(path: &Path) -> bool {
    let device = path.starts_with("/dev") && !path.starts_with("/dev/shm");
    path.is_absolute() && !device && !path.starts_with("/proc") && !path.starts_with("/sys")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    fn shown(line: &str) -> Option<String> {
        InCall::of(line).map(|call| call.to_string())
    }

    #[test]
    fn a_syscall_line_becomes_a_call_and_its_object() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let file = File::create(&path).unwrap();
        let fd = file.as_raw_fd();
        let rest = "0x0 0x0 0x0 0x0 0x0 0x7ffd0 0x7f000";
        assert_eq!(
            shown(&format!("{} {fd:#x} {rest}", libc::SYS_fsync)),
            Some(format!("fsync {}", path.display()))
        );
        let name = c"sub/b";
        let open = File::open(folder.path()).unwrap();
        let line = format!("{} {:#x} {:p} {rest}", libc::SYS_unlinkat, open.as_raw_fd(), name.as_ptr());
        assert_eq!(shown(&line), Some(format!("unlink {}", folder.path().join("sub/b").display())));
        let here = std::env::current_dir().unwrap();
        let line = format!("{} 0xffffff9c {:p} {rest}", libc::SYS_mkdirat, name.as_ptr());
        assert_eq!(shown(&line), Some(format!("mkdir {}", here.join("sub/b").display())));
        let line = format!("{} {fd:#x} {:p} {rest}", libc::SYS_statx, c"".as_ptr());
        assert_eq!(shown(&line), Some(format!("stat {}", path.display())));
        assert_eq!(shown("-1 0x7ffd0 0x7f000"), Some("page fault in a mapped file".to_owned()));
    }

    #[test]
    fn other_waits_are_not_storage() {
        let (read, _write) = std::io::pipe().unwrap();
        let pipe = format!("{} {:#x} 0x0 0x0", libc::SYS_read, read.as_raw_fd());
        let futex = format!("{} 0x0 0x0", libc::SYS_futex);
        let gone = format!("{} 0xffffff9c 0x10 0x0", libc::SYS_openat);
        for line in ["running", "", pipe.as_str(), futex.as_str(), gone.as_str()] {
            assert_eq!(shown(line), None, "{line}");
        }
        for path in ["/dev/pts/0", "/proc/self/io", "/sys/block", "pipe:[12]"] {
            assert!(!is_storage(Path::new(path)), "{path}");
        }
        assert!(is_storage(Path::new("/dev/shm/x")) && is_storage(Path::new("/mnt/x")));
    }
}
