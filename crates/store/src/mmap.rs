//! Files mapped into memory, as some training libraries read them: open, map, copy, unmap, close. The copy touches
//! every requested page, so everything that counts as read has been in memory.

use std::path::Path;
use std::sync::Once;

use memmap2::{MmapOptions, MmapRaw, UncheckedAdvice};
use model::extent::Extent;
use model::location::Location;
use model::names::Name;
use model::plan::Medium;
use model::spec::Readahead;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use crate::folder::Folder;
use crate::lane::{Blocking, BlockingLane};
use crate::{
    Backend, Capabilities, Files, Lane, Mode, Operation, PlaceKind, Selection, Store, StoreError, Threads,
    Traffic, size,
};

pub(crate) const BACKEND: Backend = Backend {
    name: "mmap",
    arguments: "",
    summary: "maps files into memory and touches every page",
    example: "mmap",
    medium: Medium::Storage,
    place: PlaceKind::Folder,
    injects_faults: false,
    capabilities: |_| Mmap::CAPABILITIES,
    check: |_| Ok(()),
    open: Mmap::open_boxed,
    tier: None,
};

#[derive(Debug)]
pub(crate) struct Mmap {
    folder: Folder,
    readahead: Readahead,
}

impl Mmap {
    pub(crate) const CAPABILITIES: Capabilities = Capabilities {
        holds_files: true,
        threads: Threads::PerReader,
        brings_bytes: true,
        cached: true,
        odirect: false,
    };

    /// Opens the data folder, which must exist.
    pub(crate) fn open(root: &Path, mode: Mode) -> Result<Mmap, StoreError> {
        if mode.odirect {
            return Err(StoreError::Refused(
                "mapped files are pages of the page cache, so reader.odirect has no meaning with --store mmap; use \
                 --store direct or uring"
                    .to_owned(),
            ));
        }
        if mode.readahead == Readahead::Dontcache {
            return Err(StoreError::Refused(
                "mapped files are pages of the page cache, so reader.readahead: dontcache has no meaning with --store \
                 mmap; use --store posix or uring"
                    .to_owned(),
            ));
        }
        explain_bus_errors();
        Ok(Mmap { folder: Folder::open(root)?, readahead: mode.readahead })
    }

    pub(crate) fn open_boxed(place: &Location, selection: &Selection) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(Mmap::open(place.path()?, selection.mode)?))
    }

    fn map(&self, file: &OwnedFd, bytes: usize) -> Result<MmapRaw, std::io::Error> {
        let map = MmapOptions::new().len(bytes).map_raw_read_only(file.as_raw_fd())?;
        match self.readahead {
            Readahead::Normal | Readahead::Dontcache => {}
            Readahead::Sequential => map.advise(memmap2::Advice::Sequential)?,
            Readahead::Random => map.advise(memmap2::Advice::Random)?,
        }
        Ok(map)
    }
}

/// An open file and its mapping. An empty file has no mapping.
#[derive(Debug)]
pub(crate) struct OpenMap {
    file: OwnedFd,
    map: Option<MmapRaw>,
}

impl Blocking for Mmap {
    type File = OpenMap;

    fn open(&self, name: &Name) -> Result<OpenMap, StoreError> {
        let error = |cause| self.folder.error(Operation::Map, name, cause);
        let file = self.folder.open_file(name)?;
        let map = match size::size_of(&file).map_err(error)? as usize {
            0 => None,
            bytes => Some(
                self.map(&file, bytes)
                    .map_err(|cause| error(Errno::from_io_error(&cause).unwrap_or(Errno::IO)))?,
            ),
        };
        Ok(OpenMap { file, map })
    }

    fn read_at(
        &self,
        file: &OpenMap,
        _name: &Name,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, StoreError> {
        let Some(map) = &file.map else { return Ok(0) };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(map.len());
        let bytes = buffer.len().min(map.len() - from);
        // SAFETY: the mapping lives as long as `file`; `from + bytes` is within it and `bytes` within the buffer, which
        // no other code accesses. No reference into the mapping is created, so nothing is assumed about bytes that
        // another program may change meanwhile. If the file has become shorter, the copy ends the program: see
        // `explain_bus_errors`.
        unsafe { std::ptr::copy_nonoverlapping(map.as_ptr().add(from), buffer.as_mut_ptr(), bytes) };
        Ok(bytes)
    }

    /// The size when the file was mapped.
    fn size(&self, file: &OpenMap) -> Result<u64, Errno> {
        Ok(file.map.as_ref().map_or(0, |map| map.len() as u64))
    }

    fn cached<'f>(&self, file: &'f OpenMap) -> Option<BorrowedFd<'f>> {
        Some(file.file.as_fd())
    }

    /// Pages that are mapped cannot be evicted.
    fn let_go(&self, file: &OpenMap, range: Extent) {
        let Some(map) = &file.map else { return };
        let page = rustix::param::page_size() as u64;
        let from = (range.offset / page * page).min(map.len() as u64);
        let end = range.end().min(map.len() as u64);
        // SAFETY: the range is within the mapping, which is of a file and only read: released pages are loaded from the
        // file again when they are touched. If the kernel does not release them, the next count shows it.
        let _ = unsafe {
            map.unchecked_advise_range(UncheckedAdvice::DontNeed, from as usize, (end - from) as usize)
        };
    }

    fn shown(&self, name: &Name) -> String {
        self.folder.shown(name)
    }

    fn close(&self, file: OpenMap, _name: &Name) -> Result<(), StoreError> {
        let OpenMap { file, map } = file;
        drop(map);
        // Nothing was written to it, so close has nothing to report.
        drop(file);
        Ok(())
    }
}

impl Store for Mmap {
    fn name(&self) -> &'static str {
        "mmap"
    }

    fn capabilities(&self) -> Capabilities {
        Mmap::CAPABILITIES
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

/// The message if the bytes behind a mapping are gone, and the exit code then: "incomplete" in the program's list of
/// exit codes.
const BUS_ERROR: &[u8] =
    b"feedline: a mapped file became shorter, or its device failed, while it was read (SIGBUS)\n";
const INCOMPLETE: libc::c_int = 4;

/// Once a file is mapped, the kernel can report a page that it cannot load in one way only: with a signal in the middle
/// of the copy, from which the reader cannot recover. So the program ends, but with a message.
fn explain_bus_errors() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let action: extern "C" fn(libc::c_int, *const libc::siginfo_t, *const libc::c_void) = on_bus_error;
        // SAFETY: a zeroed sigaction is a valid one (no flags, empty mask); the function has the signature that
        // SA_SIGINFO requires, and is async-signal-safe. It runs on the stack that the standard library provides for
        // such signals.
        unsafe {
            let mut wanted: libc::sigaction = std::mem::zeroed();
            wanted.sa_sigaction = action as libc::sighandler_t;
            wanted.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // It fails only for signals that do not exist.
            libc::sigaction(libc::SIGBUS, &wanted, std::ptr::null_mut());
        }
    });
}

extern "C" fn on_bus_error(signal: libc::c_int, facts: *const libc::siginfo_t, _: *const libc::c_void) {
    // SAFETY: the kernel passes the facts with SA_SIGINFO. `write`, `_exit` and `signal` are async-signal-safe.
    unsafe {
        // A missing page is handled here; anything else, such as bad memory, gets the system's default action when the
        // instruction is executed again.
        if (*facts).si_code == libc::BUS_ADRERR {
            let _ = libc::write(2, BUS_ERROR.as_ptr().cast(), BUS_ERROR.len());
            libc::_exit(INCOMPLETE);
        }
        libc::signal(signal, libc::SIG_DFL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{child, conformance};

    fn store(readahead: Readahead) -> (tempfile::TempDir, Mmap) {
        let folder = tempfile::tempdir().unwrap();
        let store = Mmap::open(folder.path(), Mode { readahead, odirect: false }).unwrap();
        (folder, store)
    }

    #[test]
    fn passes_the_conformance_suite_with_every_advice() {
        for readahead in [Readahead::Normal, Readahead::Sequential, Readahead::Random] {
            let (_folder, store) = store(readahead);
            conformance::store_with_files(&store);
            conformance::whole_files_of_odd_sizes(&store);
        }
    }

    #[test]
    fn a_fifo_in_place_of_a_file_is_an_error_and_does_not_hang() {
        let (folder, store) = store(Readahead::Normal);
        conformance::a_fifo_is_an_error(&store, folder.path());
    }

    #[test]
    fn meaningless_settings_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for (readahead, odirect, named) in
            [(Readahead::Dontcache, false, "dontcache"), (Readahead::Normal, true, "odirect")]
        {
            let error = Mmap::open(folder.path(), Mode { readahead, odirect }).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("--store"), "{error}");
        }
    }

    #[test]
    fn a_file_that_shrinks_while_it_is_mapped_ends_the_program_with_a_message() {
        if let Some(folder) = child::folder() {
            return read_what_is_gone(&folder);
        }
        let folder = tempfile::tempdir().unwrap();
        let test = "mmap::tests::a_file_that_shrinks_while_it_is_mapped_ends_the_program_with_a_message";
        let ended = child::again(test, folder.path());
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(INCOMPLETE), "{said}");
        assert!(said.contains("a mapped file became shorter"), "{said}");
    }

    /// Maps a file, truncates it, and reads beyond its new end.
    fn read_what_is_gone(folder: &Path) {
        let path = folder.join("file");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let store = Mmap::open(folder, Mode::default()).unwrap();
        let mut lane = store.lane(Traffic::untimed()).unwrap();
        let name = Name::new("file").unwrap();
        let mut read = |offset| conformance::read_metadata(&mut *lane, 0, (&name, 1 << 20), offset, 4);
        assert_eq!(read(0).unwrap().1, [7; 4]);
        std::fs::File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
        let outcome = read(1 << 19);
        panic!("there is nothing beyond the end, but the read ended with {outcome:?}");
    }
}
