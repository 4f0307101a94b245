//! Tries in a folder what backends and the proof of cold reads need: a direct read, and the eviction of pages. The
//! trial has a file without a name, which leaves nothing behind however the process ends; in a folder that cannot be
//! written to it reads a file that exists.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::extent::Extent;
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::folder::READ_FLAGS;
use crate::page_cache::{self, Denied, Pages};
use crate::{Operation, StorageStack, StoreError, past_cache, unnamed_file};

/// Bytes of the file: several pages of any size.
const BYTES: u64 = 256 << 10;
/// Entries of a folder that are looked at to find a file, and folders below it.
const MOST_ENTRIES: usize = 1000;
const MOST_FOLDERS: usize = 8;
/// Pages that were just in use can be evicted a moment later.
const ATTEMPTS: usize = 4;

/// A file of a folder to try something with.
#[derive(Debug)]
pub struct FolderTrial {
    file: File,
    /// The path of a file that exists, and why there is no new one.
    pub existing: Option<(PathBuf, StoreError)>,
}

/// What a direct read showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectTrial {
    /// Reads must begin and end at multiples of this.
    pub granule: usize,
    /// Whether the kernel reports it; otherwise it is the usual one.
    pub is_reported: bool,
}

/// Pages of the file after it was read and after it was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionTrial {
    pub read: Pages,
    pub evicted: Pages,
}

impl FolderTrial {
    /// A new file in the folder, else one that exists. The error says why there is neither.
    pub fn of(folder: &Path) -> Result<FolderTrial, StoreError> {
        let refused = match new_file(folder) {
            Ok(file) => return Ok(FolderTrial { file, existing: None }),
            Err(error) => error,
        };
        match existing_file(folder) {
            Some((path, file)) => Ok(FolderTrial { file, existing: Some((path, refused)) }),
            None => Err(refused),
        }
    }

    /// What the file is stored on. `place` is its name in messages.
    pub fn ground(&self, place: &str) -> Result<StorageStack, StoreError> {
        StorageStack::of(&self.file, place)
    }

    /// Opens the file again with O_DIRECT and reads from it.
    pub fn direct(&self) -> Result<DirectTrial, String> {
        past_cache::try_reading(&self.file).map(|(granule, is_reported)| DirectTrial { granule, is_reported })
    }

    /// Reads the first pages of the file, counts them, evicts them and counts again.
    pub fn evict(&self, pause: fn(Duration)) -> Result<EvictionTrial, Denied> {
        let size = self.file.metadata().map_or(0, |facts| facts.len());
        let range = Extent { offset: 0, len: size.min(BYTES) };
        page_cache::fill(&self.file, range, &mut vec![0; 64 << 10]);
        let read = page_cache::count(&self.file, range)?;
        let mut evicted = read;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                pause(Duration::from_millis(50));
            }
            // Only the new file can have pages that have to be written first.
            let _ = if self.existing.is_none() { self.file.sync_data() } else { Ok(()) };
            page_cache::forget(&self.file, range);
            evicted = page_cache::count(&self.file, range)?;
            if evicted.cached == 0 {
                break;
            }
        }
        Ok(EvictionTrial { read, evicted })
    }
}

fn new_file(folder: &Path) -> Result<File, StoreError> {
    let mut file = unnamed_file(folder)?;
    // Not zeros, which some file systems do not store.
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let failed = |error: std::io::Error| {
        let cause = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
        StoreError::io(Operation::Write, &folder.display().to_string(), cause)
    };
    file.write_all(&bytes).and_then(|()| file.sync_data()).map_err(failed)?;
    Ok(file)
}

/// A file with content that this process can read, in the folder or in one below it.
fn existing_file(folder: &Path) -> Option<(PathBuf, File)> {
    let (mut below, found) = files_of(folder);
    below.truncate(MOST_FOLDERS);
    found.or_else(|| below.iter().find_map(|folder| files_of(folder).1))
}

/// The folders below a folder, and a file in it.
fn files_of(folder: &Path) -> (Vec<PathBuf>, Option<(PathBuf, File)>) {
    let mut below = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_ENTRIES) {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => below.push(entry.path()),
            Ok(kind) if kind.is_file() => {
                let file = rustix::fs::open(entry.path(), READ_FLAGS, Mode::empty()).map(File::from);
                let has_content = |file: &File| file.metadata().is_ok_and(|facts| facts.len() > 0);
                if let Some(file) = file.ok().filter(has_content) {
                    return (below, Some((entry.path(), file)));
                }
            }
            _ => {}
        }
    }
    (below, None)
}

/// The number of certificates that the system trusts, and why some could not be read.
pub fn trusted_certificates() -> (usize, Vec<String>) {
    let found = rustls_native_certs::load_native_certs();
    (found.certs.len(), found.errors.iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let trial = FolderTrial::of(folder.path()).unwrap();
        assert!(trial.existing.is_none());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "while it is in use");
        let is_memory = trial.ground("").unwrap().file_system.is_memory();
        let pages = trial.evict(std::thread::sleep).unwrap();
        assert_eq!(pages.read.cached, pages.read.all);
        assert_eq!(pages.evicted.cached == 0, !is_memory, "{pages:?}");
        match trial.direct() {
            Ok(DirectTrial { granule, .. }) => assert!(granule.is_power_of_two()),
            Err(reason) => assert!(reason.contains("support") || reason.contains("O_DIRECT"), "{reason}"),
        }
        drop(trial);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_existing_file_is_found_below_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("train")).unwrap();
        std::fs::write(folder.path().join("empty"), "").unwrap();
        assert!(existing_file(folder.path()).is_none());
        std::fs::write(folder.path().join("train/a"), "text").unwrap();
        assert!(existing_file(folder.path()).unwrap().0.ends_with("train/a"));
        let missing = FolderTrial::of(&folder.path().join("none")).unwrap_err();
        assert!(matches!(missing, StoreError::Missing { .. }), "{missing}");
    }
}
