//! Where checkpoints are kept: a folder that is written by one of three roads, or a simulated device. Files are written
//! in chunks that go in and come back, so that the memory of a save is that of the chunks. Nothing here knows what
//! makes a checkpoint complete; that is the engine's business.

mod disk;
mod fault;
mod ring;
mod sim;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use model::names::Name;
use model::units::Nanos;

use crate::folder::Folder;
use crate::page_cache::Pages;
use crate::{Buffer, Now, Selection, Sim, StoreError};

use disk::Road;

pub use disk::Disk;

pub use fault::FaultTier;
pub use sim::SimTier;

/// Chunks are multiples of this but for a file's last one, whose buffer has room for the whole multiple.
pub const CHUNK_GRANULE: usize = crate::buffer::ALIGNMENT;

/// A place for checkpoints. Names are relative to it; folders are one level deep.
pub trait Tier: Send + Sync + Debug {
    /// How messages name a file or folder.
    fn shown(&self, name: &Name) -> String;
    /// Whether what is written can be read back; else only the time that it would take passes.
    fn holds_files(&self) -> bool;
    /// Keeps other runs out; with `shared` those that only read are let in.
    fn lock(&self, shared: bool) -> Result<Lock, StoreError>;
    /// What it turned out to do that a result should tell.
    fn observed(&self) -> Vec<(&'static str, String)>;
    /// Makes a folder; fine if it exists, unless it is a link.
    fn make_folder(&self, folder: &Name) -> Result<(), StoreError>;
    /// Begins a file that will have so many bytes. Its name must be free.
    fn create<'a>(
        &'a self,
        name: &Name,
        bytes: u64,
        clock: &'a dyn Now,
    ) -> Result<Box<dyn Sink + 'a>, StoreError>;
    /// Opens a file to read it from its beginning.
    fn open<'a>(&'a self, name: &Name, clock: &'a dyn Now) -> Result<Box<dyn Source + 'a>, StoreError>;
    /// Takes a file out of the page cache and says what stayed; `None` where nobody can tell.
    fn evict(&self, name: &Name) -> Result<Option<Pages>, StoreError>;
    /// What of a file is in the page cache; `None` where nobody can tell.
    fn cached(&self, name: &Name) -> Result<Option<Pages>, StoreError>;
    /// Writes a small file so that it is there with all its bytes after a crash at any moment, or not at all.
    fn put(&self, name: &Name, bytes: &[u8]) -> Result<(), StoreError>;
    /// The bytes of a small file; `None` if there is no regular file of that name.
    fn get(&self, name: &Name) -> Result<Option<Vec<u8>>, StoreError>;
    /// Bytes of a file; `None` if there is no regular file of that name.
    fn size(&self, name: &Name) -> Result<Option<u64>, StoreError>;
    /// Sees that a file that was finished without that survives a crash.
    fn sync_file(&self, name: &Name) -> Result<(), StoreError>;
    /// Sees that the names in a folder survive a crash.
    fn sync_folder(&self, folder: &Name) -> Result<(), StoreError>;
    /// What is in a folder; nothing if it does not exist.
    fn entries(&self, folder: &Name) -> Result<Vec<String>, StoreError>;
    /// Gives a file or a folder another name in the same folder in one step. A regular file may replace another.
    fn rename(&self, from: &Name, to: &Name) -> Result<(), StoreError>;
    /// Removes a regular file; fine if there is none. Anything else of that name stays.
    fn remove(&self, name: &Name) -> Result<(), StoreError>;
    /// Removes a folder that is empty; one that is not stays, as does a link, and none is fine.
    fn remove_folder(&self, folder: &Name) -> Result<(), StoreError>;
}

/// Others are kept out until this goes, also when the process is killed.
#[derive(Debug, Default)]
pub struct Lock {
    _folder: Option<Folder>,
}

/// A file on its way to a tier.
pub trait Sink: Send {
    /// Takes the next chunk on. Gives a buffer back once it is written, not necessarily this one; `None` while more
    /// chunks may be in flight.
    fn write(&mut self, chunk: Buffer) -> Result<Option<Buffer>, StoreError>;
    /// Waits until all is written, and with `durable` until it would survive a crash. Says when that was, by the clock
    /// or by the reckoning of a simulated device; buffers go to `spare`.
    fn finish(self: Box<Self>, durable: bool, spare: &mut Vec<Buffer>) -> Result<Nanos, StoreError>;
}

/// A file that is read from front to back.
pub trait Source: Send {
    /// Replaces what is in `chunk` by the next bytes, as many as it has room for; none at the end of the file.
    fn read(&mut self, chunk: &mut Buffer) -> Result<(), StoreError>;
    /// When the last read was done, by the clock or by the reckoning of a simulated device.
    fn ended(&self) -> Nanos;
}

pub(crate) fn buffered(root: &Path, _selection: &Selection) -> Result<Box<dyn Tier>, StoreError> {
    Ok(Box::new(Disk::open(root, Road::Buffered)?))
}

pub(crate) fn direct(root: &Path, _selection: &Selection) -> Result<Box<dyn Tier>, StoreError> {
    Ok(Box::new(Disk::open(root, Road::PastCache)?))
}

pub(crate) fn uring(root: &Path, selection: &Selection) -> Result<Box<dyn Tier>, StoreError> {
    Ok(Box::new(Disk::open(root, Road::Ring { past_cache: selection.mode.odirect })?))
}

pub(crate) fn simulated(_root: &Path, selection: &Selection) -> Result<Box<dyn Tier>, StoreError> {
    Ok(Box::new(SimTier::parse(&selection.arguments)?))
}

pub(crate) fn null(_root: &Path, _selection: &Selection) -> Result<Box<dyn Tier>, StoreError> {
    Ok(Box::new(SimTier::on(Arc::new(Sim::idle()))))
}

pub(crate) fn faulty(root: &Path, selection: &Selection) -> Result<Box<dyn Tier>, StoreError> {
    Ok(Box::new(FaultTier::open(root, selection)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::registry::{is_unavailable, selections};
    use crate::{BACKENDS, Mode, Still};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    /// The disk tiers; those that the test's file system refuses are left out, never posix.
    fn tiers(root: &Path) -> Vec<(&'static str, Box<dyn Tier>)> {
        let mut tiers = Vec::new();
        for selection in selections(BACKENDS) {
            if selection.backend.tier.is_none() || !selection.plan().holds_files {
                continue;
            }
            match selection.tier(root) {
                Ok(tier) => tiers.push((selection.backend.name, tier)),
                Err(error) => assert!(is_unavailable(&selection, &error), "{error}"),
            }
        }
        tiers
    }

    fn fill(at: u64, bytes: usize) -> Buffer {
        let mut chunk = Buffer::default();
        chunk.prepare(bytes.next_multiple_of(CHUNK_GRANULE));
        chunk.room()[..bytes].iter_mut().zip(at..).for_each(|(byte, at)| *byte = ((at * at) >> 7) as u8);
        chunk.set_len(bytes);
        chunk
    }

    /// All bytes of a file, in chunks.
    fn read(tier: &dyn Tier, file: &str) -> Vec<u8> {
        let (mut source, mut all) = (tier.open(&name(file), &Still).unwrap(), Vec::new());
        let mut chunk = Buffer::with_capacity(1 << 16);
        loop {
            source.read(&mut chunk).unwrap();
            if chunk.bytes().is_empty() {
                return all;
            }
            all.extend_from_slice(chunk.bytes());
        }
    }

    #[test]
    fn files_of_any_size_come_out_as_they_went_in() {
        let folder = tempfile::tempdir().unwrap();
        for (store, tier) in tiers(folder.path()) {
            tier.make_folder(&name("one")).unwrap();
            for bytes in [0u64, 1, 4095, 4096, 4097, 3 << 16, (3 << 16) + 17] {
                let mut sink = tier.create(&name("one/file"), bytes, &Still).unwrap();
                let (mut at, mut back) = (0, 0);
                while at < bytes {
                    let chunk = (bytes - at).min(1 << 16);
                    back += usize::from(sink.write(fill(at, chunk as usize)).unwrap().is_some());
                    at += chunk;
                }
                let mut spare = Vec::new();
                sink.finish(true, &mut spare).unwrap();
                assert_eq!(back + spare.len(), bytes.div_ceil(1 << 16) as usize, "every buffer comes back");
                let there = std::fs::read(folder.path().join("one/file")).unwrap();
                let expected: Vec<u8> = (0..bytes).map(|at| ((at * at) >> 7) as u8).collect();
                assert!(there == expected, "{store}, {bytes} bytes");
                assert!(read(&*tier, "one/file") == expected, "{store}, {bytes} bytes");
                if let Some(pages) = tier.evict(&name("one/file")).unwrap() {
                    assert!(pages.cached <= pages.all);
                }
                tier.remove(&name("one/file")).unwrap();
            }
        }
    }

    #[test]
    fn small_files_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        for (_, tier) in tiers(folder.path()) {
            assert_eq!(tier.entries(&name("gone")).unwrap(), Vec::<String>::new());
            tier.make_folder(&name("two")).unwrap();
            assert_eq!(tier.get(&name("two/list")).unwrap(), None);
            tier.put(&name("two/list"), b"first").unwrap();
            tier.put(&name("two/list"), b"second").unwrap();
            assert_eq!(tier.get(&name("two/list")).unwrap().unwrap(), b"second");
            tier.sync_folder(&name("two")).unwrap();
            assert_eq!(tier.entries(&name("two")).unwrap(), ["list"]);
            tier.remove(&name("two/list")).unwrap();
            tier.remove(&name("two/list")).unwrap();
            tier.put(&name("two/other"), b"x").unwrap();
            assert_eq!(tier.size(&name("two/other")).unwrap(), Some(1));
            assert_eq!(tier.size(&name("two/list")).unwrap(), None);
            tier.sync_file(&name("two/other")).unwrap();
            tier.remove_folder(&name("two")).unwrap();
            tier.rename(&name("two"), &name("three")).unwrap();
            assert_eq!(tier.entries(&name("three")).unwrap(), ["other"], "what is not empty stays");
            tier.remove(&name("three/other")).unwrap();
            tier.remove_folder(&name("three")).unwrap();
            tier.remove_folder(&name("three")).unwrap();
            assert!(!folder.path().join("three").exists());
        }
    }

    #[test]
    fn who_writes_is_alone_and_who_reads_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let tier = Selection::named("posix", Mode::default()).unwrap().tier(folder.path()).unwrap();
        let writes = tier.lock(false).unwrap();
        assert!(tier.lock(true).unwrap_err().to_string().contains("another feedline"));
        drop(writes);
        let _two_read = (tier.lock(true).unwrap(), tier.lock(true).unwrap());
        assert!(matches!(tier.lock(false), Err(StoreError::Busy { .. })));
    }

    #[test]
    fn a_folder_that_was_away_is_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("deep/root");
        for (_, tier) in tiers(&root) {
            std::fs::rename(&root, folder.path().join("away")).unwrap();
            for error in [
                tier.entries(&name(".")).unwrap_err(),
                tier.get(&name("list")).unwrap_err(),
                tier.make_folder(&name("one")).unwrap_err(),
            ] {
                assert!(error.to_string().ends_with("deep/root does not exist"), "{error}");
            }
            std::fs::remove_dir(folder.path().join("away")).unwrap();
            std::fs::create_dir(&root).unwrap();
            tier.make_folder(&name("one")).unwrap();
            assert_eq!(tier.entries(&name(".")).unwrap(), ["one"]);
            tier.remove_folder(&name("one")).unwrap();
        }
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for (_, tier) in tiers(folder.path()) {
            let error = tier.create(&name("no/file"), 10, &Still).err().unwrap().to_string();
            assert!(error.contains("no/file"), "{error}");
            std::fs::write(folder.path().join("flat"), "x").unwrap();
            assert!(tier.make_folder(&name("flat")).unwrap_err().to_string().contains("flat"));
        }
        let mmap = Selection::named("mmap", Mode::default()).unwrap();
        assert!(mmap.tier(folder.path()).unwrap_err().to_string().contains("checkpoints cannot be written"));
    }
}
