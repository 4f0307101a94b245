//! How the watch queries the kernel. As far as possible it uses other system calls than the work that it watches: a
//! fault that is injected into a call, to test the watch, must not block the watch itself.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Maximum number of bytes read from a file: more than the list of mounts of any known host.
const MOST: usize = 1 << 20;
const PIECE: usize = 4096;

/// Opens a file of /proc or /sys.
fn open(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::empty()) {
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::open(path, flags, Mode::empty()),
        opened => opened,
    }
}

/// Reads at an offset of a file; fewer bytes than requested if it ends there.
pub(super) fn read_at(path: &Path, offset: u64, bytes: &mut [u8]) -> Option<usize> {
    let file = open(path, OFlags::empty()).ok()?;
    rustix::io::preadv(&file, &mut [IoSliceMut::new(bytes)], offset).ok()
}

/// Reads a whole file as text.
pub(super) fn read(path: impl AsRef<Path>) -> Option<String> {
    let file = open(path.as_ref(), OFlags::empty()).ok()?;
    let mut bytes = Vec::new();
    while bytes.len() < MOST {
        let end = bytes.len();
        bytes.resize(end + PIECE, 0);
        let got = rustix::io::preadv(&file, &mut [IoSliceMut::new(&mut bytes[end..])], end as u64).ok()?;
        bytes.truncate(end + got);
        if got == 0 {
            break;
        }
    }
    String::from_utf8(bytes).ok()
}

/// The call that lists a folder, and the offset of the name in an entry that it returns.
#[cfg(target_arch = "x86_64")]
const LIST: (libc::c_long, usize) = (libc::SYS_getdents, 18);
#[cfg(not(target_arch = "x86_64"))]
const LIST: (libc::c_long, usize) = (libc::SYS_getdents64, 19);
/// Offset of the length in an entry.
const LENGTH_AT: usize = 16;

/// The numbers of this process's threads.
pub(super) fn threads() -> Vec<u32> {
    let (mut found, mut bytes) = (Vec::new(), [0_u8; PIECE]);
    let Ok(folder) = open(Path::new("/proc/self/task"), OFlags::DIRECTORY) else { return found };
    loop {
        // SAFETY: the descriptor is open, and the kernel writes at most `bytes.len()` bytes into `bytes`.
        let got = unsafe { libc::syscall(LIST.0, folder.as_raw_fd(), bytes.as_mut_ptr(), bytes.len()) };
        let Some(mut rest) = usize::try_from(got).ok().filter(|got| *got > 0).map(|got| &bytes[..got]) else {
            return found;
        };
        while let Some(length) = rest.get(LENGTH_AT..LENGTH_AT + 2) {
            let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
            let Some((entry, more)) = rest.split_at_checked(length).filter(|_| length > LIST.1) else {
                break;
            };
            found.extend(number(&entry[LIST.1..]));
            rest = more;
        }
    }
}

/// The number that a name consists of, if it does. The name ends at the first zero byte.
fn number(name: &[u8]) -> Option<u32> {
    let end = name.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&name[..end]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_is_listed() {
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        // More threads than fit into one answer of the kernel.
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = std::sync::Mutex::new(held);
        std::thread::scope(|scope| {
            for _ in 0..300 {
                scope.spawn(|| held.lock().unwrap().recv());
            }
            let listed = threads();
            assert!(listed.len() > 300 && listed.contains(&own), "{} threads", listed.len());
            drop(release);
        });
    }

    #[test]
    fn kernel_files_are_read_completely() {
        let listed = read("/proc/self/mountinfo").unwrap();
        assert_eq!(listed, std::fs::read_to_string("/proc/self/mountinfo").unwrap());
        assert_eq!(read("/proc/self/not-there"), None);
    }
}
