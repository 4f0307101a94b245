//! The count of resident pages on kernels without cachestat, through a mapping of the file. To a user that neither owns
//! the file nor may write to it, the kernel reports all pages as resident, so no count is given to such a user.

use model::extent::Extent;
use rustix::fd::{AsRawFd, BorrowedFd};

use super::Denied;

/// Pages per query.
const SOME: usize = 4096;

pub(super) fn count(file: BorrowedFd<'_>, range: Extent) -> Result<u64, Denied> {
    let facts = rustix::fs::fstat(file).map_err(|_| Denied::Unsupported)?;
    let user = rustix::process::geteuid();
    if !user.is_root() && user.as_raw() != facts.st_uid {
        return Err(Denied::NotPermitted);
    }
    let page = rustix::param::page_size() as u64;
    let end = range.end().min(u64::try_from(facts.st_size).unwrap_or(0));
    let (mut at, mut cached) = (range.offset / page * page, 0);
    while at < end {
        let bytes = (end - at).min(SOME as u64 * page);
        cached += window(file, at, bytes as usize).ok_or(Denied::Unsupported)?;
        at += bytes.next_multiple_of(page);
    }
    Ok(cached)
}

/// Counts the pages of one window, which begins at a page.
fn window(file: BorrowedFd<'_>, at: u64, bytes: usize) -> Option<u64> {
    let (mut answers, offset) = ([0_u8; SOME], libc::off_t::try_from(at).ok()?);
    // SAFETY: a new mapping at an address of the kernel's choice, which nothing reads. It has at most as many pages as
    // there are entries for the result, and is unmapped before this returns.
    unsafe {
        let nowhere = std::ptr::null_mut();
        let map = libc::mmap(nowhere, bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), offset);
        if map == libc::MAP_FAILED {
            return None;
        }
        let answered = libc::mincore(map, bytes, answers.as_mut_ptr()) == 0;
        libc::munmap(map, bytes);
        answered.then(|| answers.iter().map(|answer| u64::from(answer & 1)).sum())
    }
}
