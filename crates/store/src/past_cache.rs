//! Reads that bypass the page cache (O_DIRECT): which file systems support them, in what granules, and the error if one
//! does not. All backends that use O_DIRECT check here. There is no fallback to buffered reads: a figure for the disk
//! that was measured from memory is worse than none.

use std::sync::atomic::{AtomicBool, Ordering};

use model::names::Name;
use model::spec::Readahead;
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::buffer::{ALIGNMENT, Buffer};
use crate::file_system::FileSystem;
use crate::folder::Folder;
use crate::{Operation, StoreError};

/// If the kernel does not report it: the block size of most file systems, a multiple of every disk's sector size.
const USUAL_GRANULE: usize = 4096;

/// A folder whose files can be read with O_DIRECT.
#[derive(Debug)]
pub(crate) struct PastCache {
    granule: usize,
    /// Whether a file has been checked.
    proven: AtomicBool,
}

impl PastCache {
    /// Refuses folders in memory, and file systems that report no support. The granule is queried with a nameless file,
    /// which leaves no trace; a read-only folder is assumed to have the usual one, until a file is opened.
    pub(crate) fn of(folder: &Folder, readahead: Readahead) -> Result<PastCache, StoreError> {
        if readahead != Readahead::Normal {
            return Err(StoreError::Refused(format!(
                "reader.readahead: {} has no meaning with O_DIRECT, which never reads ahead; leave it at normal, or \
                 read through the page cache (--store posix)",
                readahead.name()
            )));
        }
        let place = folder.root_shown();
        refuse_memory(folder.root(), &place)?;
        let nameless = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        let asked = rustix::fs::openat(folder.root(), ".", nameless, Mode::from_raw_mode(0o600));
        let said = asked.ok().and_then(alignment);
        let granule = said.map_or(Ok(USUAL_GRANULE), accepted).map_err(|reason| refused(place, reason))?;
        Ok(PastCache { granule, proven: AtomicBool::new(false) })
    }

    /// Reads must begin and end at multiples of this.
    pub(crate) fn granule(&self) -> usize {
        self.granule
    }

    /// Whether a file has passed `prove`. Files of one folder are alike, so one is enough, and more would cost system
    /// calls that a plain loop does not make.
    pub(crate) fn is_proven(&self) -> bool {
        // Relaxed: at worst two threads check a file each.
        self.proven.load(Ordering::Relaxed)
    }

    /// Checks a file that was opened with O_DIRECT: whether it is on a disk, the flag is in effect, and the granule
    /// fits the file. A link may lead from the folder to another file system.
    pub(crate) fn prove(&self, folder: &Folder, name: &Name, file: impl AsFd) -> Result<(), StoreError> {
        refuse_memory(&file, &folder.shown(name))?;
        let flags =
            rustix::fs::fcntl_getfl(&file).map_err(|cause| folder.error(Operation::Stat, name, cause))?;
        let outcome = match alignment(file) {
            _ if !flags.contains(OFlags::DIRECT) => {
                Err("the flag was dropped when the file was opened".into())
            }
            Some(said) => accepted(said).and_then(|granule| match self.granule.is_multiple_of(granule) {
                true => Ok(()),
                false => Err(format!("it needs blocks of {granule} bytes, but its folder {}", self.granule)),
            }),
            None => Ok(()),
        };
        outcome.map_err(|reason| refused(folder.shown(name), reason))?;
        // Relaxed: see `is_proven`.
        self.proven.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The error for a failed open or read of a file. `name` is its name in messages.
    pub(crate) fn error(&self, operation: Operation, name: String, cause: Errno) -> StoreError {
        match cause {
            // Folders cannot be read with O_DIRECT either, and this is not due to the file system.
            Errno::INVAL if is_folder(&name) => StoreError::Folder { name },
            Errno::INVAL => {
                let granule = self.granule;
                refused(
                    name,
                    format!("its file system does not support it, or not in blocks of {granule} bytes"),
                )
            }
            cause => StoreError::io(operation, &name, cause),
        }
    }
}

/// Opens a file a second time, with O_DIRECT, and reads its first granule. The result is the granule, and whether the
/// kernel reported it; otherwise why such reads are not possible.
pub(crate) fn try_reading(file: impl AsFd) -> Result<(usize, bool), String> {
    let same = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let again = rustix::fs::open(same, OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())
        .map_err(|cause| match cause {
            Errno::INVAL => "its file system does not support it".to_owned(),
            cause => format!("open with O_DIRECT: {cause}"),
        })?;
    if !rustix::fs::fcntl_getfl(&again).is_ok_and(|flags| flags.contains(OFlags::DIRECT)) {
        return Err("the flag was dropped when the file was opened".to_owned());
    }
    let said = alignment(&again);
    let granule = said.map_or(Ok(USUAL_GRANULE), accepted)?;
    let mut buffer = Buffer::with_capacity(granule);
    rustix::io::pread(&again, buffer.room(), 0).map_err(|cause| match cause {
        Errno::INVAL => format!("its file system does not read blocks of {granule} bytes"),
        cause => format!("read with O_DIRECT: {cause}"),
    })?;
    Ok((granule, said.is_some()))
}

fn is_folder(path: &str) -> bool {
    rustix::fs::stat(path).is_ok_and(|facts| FileType::from_raw_mode(facts.st_mode) == FileType::Directory)
}

fn refused(name: String, reason: String) -> StoreError {
    StoreError::NoDirect { name, reason }
}

/// Some file systems that keep files in the page cache accept O_DIRECT nevertheless.
fn refuse_memory(file: impl AsFd, place: &str) -> Result<(), StoreError> {
    let file_system = FileSystem::of(file, place)?;
    match file_system.is_memory() {
        false => Ok(()),
        true => Err(StoreError::Refused(format!(
            "{place} is on {}, which keeps files in memory: O_DIRECT would read the page cache; use --store posix or \
             a folder on a disk",
            file_system.name
        ))),
    }
}

/// The alignment that a file requires, according to the kernel.
#[derive(Clone, Copy, Debug)]
struct Alignment {
    memory: u32,
    offset: u32,
}

/// The alignment of a file; `None` if the kernel (before 6.1) or the file system does not report it.
fn alignment(file: impl AsFd) -> Option<Alignment> {
    let facts = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let said = facts.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    said.then_some(Alignment { memory: facts.stx_dio_mem_align, offset: facts.stx_dio_offset_align })
}

/// The granule for an alignment, or why it is not supported.
fn accepted(said: Alignment) -> Result<usize, String> {
    let granule = said.memory.max(said.offset) as usize;
    match said.offset {
        0 => Err(
            "its file system does not support it for this file, as with encryption, compression or data journaling"
                .into(),
        ),
        _ if !granule.is_power_of_two() || granule > ALIGNMENT => Err(format!(
            "it needs reads aligned to {granule} bytes, but feedline supports at most {ALIGNMENT}"
        )),
        _ => Ok(granule),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_granule_fits_memory_and_offset() {
        for (memory, offset, granule) in
            [(512, 512, 512), (4, 512, 512), (512, 4096, 4096), (4096, 512, 4096)]
        {
            assert_eq!(accepted(Alignment { memory, offset }), Ok(granule));
        }
        assert!(accepted(Alignment { memory: 0, offset: 0 }).unwrap_err().contains("does not support it"));
        for odd in [65_536, 3000] {
            let reason = accepted(Alignment { memory: 512, offset: odd }).unwrap_err();
            assert!(reason.contains(&odd.to_string()), "{reason}");
        }
    }
}
