//! Local or mounted files through the page cache: open, pread, close.

use std::path::Path;

use model::location::Location;
use model::names::Name;
use model::plan::Medium;
use model::spec::Readahead;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};

use crate::folder::Folder;
use crate::lane::{Blocking, BlockingLane};
use crate::{
    Backend, Capabilities, Files, Lane, Mode, OpenTier, Operation, PlaceKind, Selection, Store, StoreError,
    Threads, Traffic, size, tier,
};

pub(crate) const BACKEND: Backend = Backend {
    name: "posix",
    arguments: "",
    summary: "open, pread and close, through the page cache",
    example: "posix",
    medium: Medium::Storage,
    place: PlaceKind::Folder,
    injects_faults: false,
    capabilities: |_| Posix::CAPABILITIES,
    check: |_| Ok(()),
    open: Posix::open_boxed,
    tier: Some(OpenTier::Volume(tier::buffered)),
};

#[derive(Debug)]
pub struct Posix {
    folder: Folder,
    readahead: Readahead,
}

impl Posix {
    pub(crate) const CAPABILITIES: Capabilities = Capabilities {
        holds_files: true,
        threads: Threads::PerReader,
        brings_bytes: true,
        cached: true,
        odirect: false,
    };

    /// Opens the data folder, which must exist.
    pub fn open(root: &Path, mode: Mode) -> Result<Posix, StoreError> {
        Ok(Posix { folder: Folder::open(root)?, readahead: mode.readahead })
    }

    pub(crate) fn open_boxed(place: &Location, selection: &Selection) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(Posix::open(place.path()?, selection.mode)?))
    }
}

/// The advice that is given when a file is opened; `None` if there is none.
pub(crate) fn advice(readahead: Readahead) -> Option<Advice> {
    match readahead {
        Readahead::Normal | Readahead::Dontcache => None,
        Readahead::Sequential => Some(Advice::Sequential),
        Readahead::Random => Some(Advice::Random),
    }
}

impl Blocking for Posix {
    type File = OwnedFd;

    fn open(&self, name: &Name) -> Result<OwnedFd, StoreError> {
        let file = self.folder.open_file(name)?;
        if let Some(advice) = advice(self.readahead) {
            rustix::fs::fadvise(&file, 0, None, advice)
                .map_err(|cause| self.folder.error(Operation::Advise, name, cause))?;
        }
        Ok(file)
    }

    fn read_at(
        &self,
        file: &OwnedFd,
        name: &Name,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, StoreError> {
        loop {
            let outcome = match self.readahead {
                Readahead::Dontcache => {
                    let mut pieces = [rustix::io::IoSliceMut::new(&mut *buffer)];
                    rustix::io::preadv2(file, &mut pieces, offset, DONTCACHE)
                }
                _ => rustix::io::pread(file, &mut *buffer, offset),
            };
            match outcome {
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::INVAL) if self.readahead == Readahead::Dontcache => {
                    return Err(StoreError::NoDontcache { name: self.folder.shown(name) });
                }
                result => return result.map_err(|cause| self.folder.error(Operation::Read, name, cause)),
            }
        }
    }

    fn size(&self, file: &OwnedFd) -> Result<u64, Errno> {
        size::size_of(file)
    }

    fn cached<'f>(&self, file: &'f OwnedFd) -> Option<BorrowedFd<'f>> {
        Some(file.as_fd())
    }

    fn shown(&self, name: &Name) -> String {
        self.folder.shown(name)
    }

    fn close(&self, file: OwnedFd, _name: &Name) -> Result<(), StoreError> {
        // Nothing was written to it, so close has nothing to report.
        drop(file);
        Ok(())
    }
}

/// RWF_DONTCACHE of linux/fs.h (Linux 6.14), which rustix does not name yet.
pub(crate) const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

impl Store for Posix {
    fn name(&self) -> &'static str {
        "posix"
    }

    fn capabilities(&self) -> Capabilities {
        Posix::CAPABILITIES
    }

    fn lane<'a>(&'a self, traffic: Traffic<'a>) -> Result<Box<dyn Lane + 'a>, StoreError> {
        Ok(Box::new(BlockingLane::new(self, traffic)))
    }

    fn files(&self) -> &dyn Files {
        &self.folder
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        vec![("o_direct", false.to_string()), ("readahead", self.readahead.name().to_owned())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;

    fn store(readahead: Readahead) -> (tempfile::TempDir, Posix) {
        let folder = tempfile::tempdir().unwrap();
        let store = Posix::open(folder.path(), Mode { readahead, odirect: false }).unwrap();
        (folder, store)
    }

    #[test]
    fn passes_the_conformance_suite_with_every_advice() {
        for readahead in [Readahead::Normal, Readahead::Sequential, Readahead::Random] {
            let (_folder, store) = store(readahead);
            conformance::store_with_files(&store);
        }
    }

    #[test]
    fn a_fifo_in_place_of_a_file_is_an_error_and_does_not_hang() {
        let (folder, store) = store(Readahead::Normal);
        conformance::a_fifo_is_an_error(&store, folder.path());
    }

    #[test]
    fn dontcache_reads_work_or_are_refused_with_the_reason() {
        let (_folder, store) = store(Readahead::Dontcache);
        match conformance::first_read(&store) {
            Ok(()) => conformance::store_with_files(&store),
            Err(error) => assert!(error.to_string().contains("dontcache"), "{error}"),
        }
    }
}
