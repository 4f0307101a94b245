//! What of a data set the kernel keeps in memory: taking files out of the page cache, and counting what is in it. That
//! a file was evicted is never assumed: dirty, mapped and pinned pages stay, so whoever evicts counts afterwards.

use std::ops::AddAssign;
use std::path::{Path, PathBuf};

use model::names::Name;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Advice, Mode, OFlags};

use crate::{Operation, StoreError};

/// Pages of files, and those of them that are in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    pub cached: u64,
    pub all: u64,
}

impl AddAssign for Pages {
    fn add_assign(&mut self, other: Pages) {
        self.cached += other.cached;
        self.all += other.all;
    }
}

impl Pages {
    /// The share that is in memory, 0 to 1; of nothing all is.
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
    /// Looks below the data folder `root`, which must exist.
    pub fn below(root: &Path) -> Result<PageCache, StoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(root, flags, Mode::empty())
            .map_err(|cause| StoreError::io(Operation::Open, &root.display().to_string(), cause))?;
        Ok(PageCache { root: fd, path: root.to_owned() })
    }

    /// Writes dirty pages out, which could not be evicted.
    pub fn flush(&self) -> Result<(), StoreError> {
        rustix::fs::syncfs(&self.root).map_err(|cause| self.error(Operation::Sync, ".", cause))
    }

    /// Asks the kernel to forget a file.
    pub fn evict(&self, name: &Name) -> Result<(), StoreError> {
        let file = self.open(name)?;
        // Advice: where it is not taken, the count shows it.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
        Ok(())
    }

    /// Counts a file's pages; `None` where the kernel does not tell (before Linux 6.5, or forbidden).
    pub fn pages(&self, name: &Name) -> Result<Option<Pages>, StoreError> {
        let file = self.open(name)?;
        let stat = rustix::fs::fstat(&file)
            .map_err(|cause| self.error(Operation::Stat, &name.to_string(), cause))?;
        let all = (stat.st_size as u64).div_ceil(rustix::param::page_size() as u64);
        Ok(cached_pages(&file).map(|cached| Pages { cached, all }))
    }

    fn open(&self, name: &Name) -> Result<OwnedFd, StoreError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        rustix::fs::openat(&self.root, name.as_c_str(), flags, Mode::empty())
            .map_err(|cause| self.error(Operation::Open, &name.to_string(), cause))
    }

    fn error(&self, operation: Operation, name: &str, cause: rustix::io::Errno) -> StoreError {
        StoreError::io(operation, &self.path.join(name).display().to_string(), cause)
    }
}

/// The kernel's `struct cachestat_range`; a length of 0 reaches to the end of the file.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// The kernel's `struct cachestat`.
#[repr(C)]
#[derive(Default)]
struct Count {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Calls that are so young have the same number on every architecture; libc does not name this one on all of them.
const CACHESTAT: libc::c_long = 451;

fn cached_pages(file: &OwnedFd) -> Option<u64> {
    let (range, mut count) = (Range { offset: 0, length: 0 }, Count::default());
    // SAFETY: the descriptor is open; both pointers are to structures of the kernel's layout that outlive the call,
    // which reads the first and fills the second.
    let answer = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut count, 0) };
    (answer == 0).then_some(count.cached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_cached_until_it_is_evicted() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), vec![7; 20_000]).unwrap();
        let (cache, name) = (PageCache::below(folder.path()).unwrap(), Name::new("a").unwrap());
        let all = 20_000u64.div_ceil(rustix::param::page_size() as u64);
        let pages =
            cache.pages(&name).unwrap().expect("tests need a kernel that counts cached pages, from 6.5 on");
        assert_eq!(pages, Pages { cached: all, all });
        cache.flush().unwrap();
        cache.evict(&name).unwrap();
        let left = cache.pages(&name).unwrap().unwrap();
        // On tmpfs the pages are the file.
        let is_memory = rustix::fs::statfs(folder.path()).unwrap().f_type == 0x0102_1994;
        assert_eq!(left.cached, if is_memory { all } else { 0 });
    }

    #[test]
    fn a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, name) = (PageCache::below(folder.path()).unwrap(), Name::new("b").unwrap());
        let error = cache.evict(&name).unwrap_err().to_string();
        assert!(error.ends_with("/b does not exist"), "{error}");
        assert!(PageCache::below(&folder.path().join("c")).is_err());
    }
}
