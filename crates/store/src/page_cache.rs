//! The pages of a data set in the kernel's page cache: counting, evicting and loading them. Eviction is never assumed
//! to succeed: dirty, mapped and pinned pages stay, so callers count afterwards.

mod mincore;

use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};

use model::extent::Extent;
use model::names::Name;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Advice, MemfdFlags, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::folder::READ_FLAGS;
use crate::{Operation, StorageStack, StoreError};

/// Pages of files, and those of them that are resident.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    pub cached: u64,
    pub all: u64,
}

impl AddAssign for Pages {
    fn add_assign(&mut self, Pages { cached, all }: Pages) {
        self.cached += cached;
        self.all += all;
    }
}

impl Pages {
    /// The resident share, 0 to 1; 1 if there are no pages.
    pub fn share(&self) -> f64 {
        if self.all == 0 { 1.0 } else { self.cached as f64 / self.all as f64 }
    }
}

/// The page cache below a data folder.
#[derive(Debug)]
pub struct PageCache {
    root: OwnedFd,
    path: PathBuf,
}

impl PageCache {
    /// For the files below the data folder `root`, which must exist.
    pub fn below(root: &Path) -> Result<PageCache, StoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(root, flags, Mode::empty())
            .map_err(|cause| StoreError::io(Operation::Open, &root.display().to_string(), cause))?;
        Ok(PageCache { root: fd, path: root.to_owned() })
    }

    /// Writes dirty pages out, since they cannot be evicted.
    pub fn flush(&self) -> Result<(), StoreError> {
        rustix::fs::syncfs(&self.root).map_err(|cause| self.error(Operation::Sync, ".", cause))
    }

    /// Opens a file to query its pages.
    pub fn open(&self, name: &Name) -> Result<OwnedFd, StoreError> {
        rustix::fs::openat(&self.root, name.as_c_str(), READ_FLAGS, Mode::empty())
            .map_err(|cause| self.error(Operation::Open, &name.to_string(), cause))
    }

    /// The name of a file in messages.
    pub fn shown(&self, name: &Name) -> String {
        self.path.join(name.to_string()).display().to_string()
    }

    /// The storage below a file; a link may lead to another file system.
    pub fn ground(&self, name: &Name) -> Result<StorageStack, StoreError> {
        StorageStack::of(self.open(name)?, &self.shown(name))
    }

    fn error(&self, operation: Operation, name: &str, cause: Errno) -> StoreError {
        StoreError::io(operation, &self.path.join(name).display().to_string(), cause)
    }
}

/// Why the kernel does not report which pages of a file are resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// It reports this only to the owner of the file, to users that may write to it, and to root.
    NotPermitted,
    /// It has no call for this, or not for this file system.
    Unsupported,
}

/// The pages that a range touches.
pub fn pages_of(range: Extent) -> u64 {
    let page = rustix::param::page_size() as u64;
    // An empty range touches no page, whatever its offset.
    if range.len == 0 { 0 } else { range.end().div_ceil(page) - range.offset / page }
}

/// Counts the pages that a range of a file touches. Does not change the cache.
pub fn count(file: impl AsFd, range: Extent) -> Result<Pages, Denied> {
    let all = pages_of(range);
    // To the kernel, a length of 0 means up to the end of the file.
    if range.len == 0 {
        return Ok(Pages::default());
    }
    let cached = match cachestat(&file, range) {
        // The call exists since Linux 6.5, and seccomp filters may refuse it.
        Err(Errno::NOSYS) => mincore::count(file.as_fd(), range)?,
        Err(Errno::PERM) => return Err(Denied::NotPermitted),
        Err(_) => return Err(Denied::Unsupported),
        Ok(count) => count.cached,
    };
    Ok(Pages { cached, all })
}

/// Whether the page at `offset` of a file is resident, for a user that may only read it. The query itself requests a
/// page that is not: for callers that read it right afterwards. `None` if the file system cannot tell.
pub(crate) fn is_cached(file: impl AsFd, offset: u64) -> Option<bool> {
    let mut byte = [0];
    match rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT) {
        Ok(got) => Some(got > 0),
        Err(Errno::AGAIN) => Some(false),
        Err(_) => None,
    }
}

/// Asks the kernel to evict a range of a file. It keeps pages that are only partly in the range, since the rest may
/// still be in use. This is advice: if it is not followed, the next count shows it.
pub fn forget(file: impl AsFd, range: Extent) {
    if let Some(len) = NonZeroU64::new(range.len) {
        let _ = rustix::fs::fadvise(file, range.offset, Some(len), Advice::DontNeed);
    }
}

/// Reads a range of a file through the page cache, part by part into `buffer`. What cannot be read is not cached, and
/// the next count shows it.
pub fn fill(file: impl AsFd, range: Extent, buffer: &mut [u8]) {
    let mut at = range.offset;
    while at < range.end() {
        let piece = buffer.len().min((range.end() - at) as usize);
        match rustix::io::pread(&file, &mut buffer[..piece], at) {
            Ok(got) if got > 0 => at += got as u64,
            Err(Errno::INTR) => {}
            _ => return,
        }
    }
}

/// The kernel's `struct cachestat_range`.
#[repr(C)]
struct CacheStatRange {
    offset: u64,
    length: u64,
}

/// The kernel's `struct cachestat`.
#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Recent system calls have the same number on every architecture; libc does not name this one on all of them.
const CACHESTAT: libc::c_long = 451;

/// Pages of a file that still have to be written to the device; `None` if the kernel does not report it.
pub fn unwritten(file: impl AsFd) -> Option<u64> {
    let whole = Extent { offset: 0, len: 0 };
    cachestat(file, whole).ok().map(|count| count.dirty + count.writeback)
}

/// Whether the kernel has `cachestat`; `None` if it cannot be tried.
pub fn has_cachestat() -> Option<bool> {
    let file = rustix::fs::memfd_create("feedline-cachestat", MemfdFlags::CLOEXEC).ok()?;
    Some(!matches!(cachestat(&file, Extent { offset: 0, len: 1 }), Err(Errno::NOSYS)))
}

fn cachestat(file: impl AsFd, range: Extent) -> Result<CacheStat, Errno> {
    let file = file.as_fd().as_raw_fd();
    let (range, mut count) =
        (CacheStatRange { offset: range.offset, length: range.len }, CacheStat::default());
    // SAFETY: the descriptor is open; both pointers are to structures of the kernel's layout that outlive the call,
    // which reads the first and writes the second.
    let answer = unsafe { libc::syscall(CACHESTAT, file, &raw const range, &raw mut count, 0) };
    match answer {
        0 => Ok(count),
        // The error number is never zero after a failed call.
        _ => {
            Err(std::io::Error::last_os_error().raw_os_error().map_or(Errno::NOSYS, Errno::from_raw_os_error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Extent = Extent { offset: 0, len: 20_000 };

    /// A file that was just written, and whether it can be evicted.
    fn written() -> (tempfile::TempDir, PageCache, OwnedFd, bool) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), vec![7; WHOLE.len as usize]).unwrap();
        let (cache, name) = (PageCache::below(folder.path()).unwrap(), Name::new("a").unwrap());
        let (file, can_leave) =
            (cache.open(&name).unwrap(), !cache.ground(&name).unwrap().file_system.is_memory());
        cache.flush().unwrap();
        (folder, cache, file, can_leave)
    }

    fn counted(file: &OwnedFd, range: Extent) -> Pages {
        count(file, range).expect("tests own their files")
    }

    #[test]
    fn pages_that_were_read_are_cached_until_evicted() {
        let (_folder, _, file, can_leave) = written();
        let all = WHOLE.len.div_ceil(rustix::param::page_size() as u64);
        assert_eq!(counted(&file, WHOLE), Pages { cached: all, all });
        forget(&file, WHOLE);
        assert_eq!(counted(&file, WHOLE).cached, if can_leave { 0 } else { all });
        fill(&file, WHOLE, &mut [0; 4096]);
        assert_eq!(counted(&file, WHOLE), Pages { cached: all, all });
    }

    #[test]
    fn ranges_are_counted_by_the_pages_that_they_touch() {
        let (_folder, _, file, _) = written();
        let page = rustix::param::page_size() as u64;
        for (offset, len, pages) in
            [(0, 1, 1), (page - 1, 2, 2), (page, page, 1), (page + 1, page, 2), (5, 0, 0)]
        {
            let range = Extent { offset, len };
            assert_eq!(counted(&file, range), Pages { cached: pages, all: pages }, "{range:?}");
        }
        forget(&file, Extent { offset: 1, len: 2 * page });
        assert_eq!(
            counted(&file, Extent { offset: 0, len: 1 }).cached,
            1,
            "pages shared with other ranges stay"
        );
    }

    #[test]
    fn all_calls_give_the_same_answer() {
        let (_folder, _, file, _) = written();
        let page = rustix::param::page_size() as u64;
        // Only the second page is resident.
        forget(&file, WHOLE);
        rustix::fs::fadvise(&file, 0, None, Advice::Random).unwrap();
        fill(&file, Extent { offset: page, len: 1 }, &mut [0]);
        for range in [WHOLE, Extent { offset: page + 7, len: 1 }, Extent { offset: 2 * page, len: page }] {
            assert_eq!(mincore::count(file.as_fd(), range), Ok(counted(&file, range).cached), "{range:?}");
        }
        assert_eq!(is_cached(&file, page + 9), Some(true));
        // The kernel may load the next page meanwhile: the answer is that of the count before or after it.
        let count = || Some(counted(&file, Extent { offset: 2 * page, len: 1 }).cached == 1);
        let (before, answer) = (count(), is_cached(&file, 2 * page));
        assert!([before, count()].contains(&answer), "{answer:?}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, name) = (PageCache::below(folder.path()).unwrap(), Name::new("b").unwrap());
        let error = cache.open(&name).unwrap_err().to_string();
        assert!(error.ends_with("/b does not exist"), "{error}");
        assert!(PageCache::below(&folder.path().join("c")).is_err());
    }
}
