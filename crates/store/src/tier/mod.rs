//! Checkpoint tiers: the trait that the engine saves to and restores from, and its implementations. Files are written
//! in chunks whose buffers are returned, so that the memory of a save is that of its chunks. The engine decides when to
//! save, drain and remove.

mod disk;
mod fault;
mod folders;
mod objects;
mod ring;
mod sim;

use std::fmt::Debug;
use std::sync::Arc;

use model::checkpoint::manifest::{CheckpointManifest, Moment};
use model::location::Location;
use model::names::Name;
use model::units::Nanos;

use crate::folder::Folder;
use crate::objects::store::open_bucket;
use crate::page_cache::Pages;
use crate::{Buffer, Now, ObjectStore, Selection, Sim, StoreError};

use self::objects::{LaneReader, ObjectTier};
use disk::{DiskVolume, WriteMode};
use fault::FaultVolume;
use folders::Folders;
use objects::ObjectLock;

pub use folders::Volume;
pub use sim::SimTier;

/// Chunks are multiples of this except for a file's last one, whose buffer has space for the whole multiple.
pub(crate) const CHUNK_GRANULE: usize = crate::buffer::ALIGNMENT;

/// The files of a tier: written once, read from front to back. Names are relative to the tier.
pub trait TierFiles: Send + Sync + Debug {
    /// The name of a file in messages.
    fn shown(&self, name: &Name) -> String;
    /// Whether what is written can be read back; otherwise a write only takes the time.
    fn holds_files(&self) -> bool;
    /// Keeps other runs out; with `shared`, runs that only read are let in. It may take long to find out whether
    /// another run is alive; that ends when `stops` returns true.
    fn lock(&self, shared: bool, stops: &dyn Fn() -> bool) -> Result<Lock, StoreError>;
    /// What it actually did, as far as a result should report it.
    fn observed(&self) -> Vec<(&'static str, String)>;
    /// A number that changes while threads that write wait and progress is made, if the tier can tell.
    fn progress(&self) -> u64 {
        0
    }
    /// Begins a file that will have `bytes` bytes. Its name must be free.
    fn create<'a>(
        &'a self,
        name: &Name,
        bytes: u64,
        clock: &'a dyn Now,
    ) -> Result<Box<dyn TierSink + 'a>, StoreError>;
    /// Opens a file to read it from its beginning.
    fn open<'a>(&'a self, name: &Name, clock: &'a dyn Now) -> Result<Box<dyn TierSource + 'a>, StoreError>;
    /// Evicts a file from the page cache and returns the remaining pages; `None` if they cannot be counted.
    fn evict(&self, name: &Name) -> Result<Option<Pages>, StoreError>;
    /// The resident pages of a file; `None` if they cannot be counted.
    fn cached(&self, name: &Name) -> Result<Option<Pages>, StoreError>;
    /// Makes a file durable that was finished without being durable.
    fn sync_file(&self, name: &Name) -> Result<(), StoreError>;
}

/// A checkpoint on a tier: its manifest, and where its files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCheckpoint {
    /// The prefix of the names of its files.
    pub prefix: String,
    pub manifest: CheckpointManifest,
}

impl StoredCheckpoint {
    /// The name of one of its files on the tier.
    pub fn path(&self, file: &str) -> Name {
        file_path(&self.prefix, file)
    }
}

/// A place that stores checkpoints. A checkpoint is complete from the moment its manifest exists, which is put last and
/// only if no other run put one for the same moment meanwhile. Nothing here needs folders or renames: a file system has
/// its own implementation (`folders.rs`), and an object store puts its manifest on a condition.
pub trait Tier: Send + Sync + Debug {
    fn files(&self) -> &dyn TierFiles;
    /// What it actually did, as far as a result should report it.
    fn observed(&self) -> Vec<(&'static str, String)> {
        self.files().observed()
    }
    /// The complete checkpoint of a moment.
    fn find(&self, moment: Moment) -> Result<Option<StoredCheckpoint>, StoreError>;
    /// All complete checkpoints, in any order.
    fn list(&self) -> Result<Vec<StoredCheckpoint>, StoreError>;
    /// Announces a checkpoint and the files that will be written for it. A complete one of the same moment stays
    /// complete until this one is committed.
    fn begin(&self, draft: CheckpointManifest) -> Result<StoredCheckpoint, StoreError>;
    /// Puts the manifest of a checkpoint that was begun and whose files are all durable. It replaces the complete one
    /// that existed when it was begun; if another run has committed one since, it is refused.
    fn commit(&self, checkpoint: &StoredCheckpoint) -> Result<(), StoreError>;
    /// Removes what commits of a moment replaced, if `commit` has left that to do: it takes time that a save need not
    /// wait for. What fails here is done by the next run.
    fn clean_up(&self, moment: Moment) {
        let _ = moment;
    }
    /// Abandons a checkpoint that was begun, and removes its files.
    fn abandon(&self, checkpoint: &StoredCheckpoint);
    /// Removes a checkpoint with the files that its manifest lists, so that it is never visible with files missing.
    fn remove(&self, checkpoint: &StoredCheckpoint) -> Result<(), StoreError>;
    /// Cleans up after an interrupted run.
    fn recover(&self) -> Result<(), StoreError>;
    /// Whether exactly this checkpoint is complete here, with the right size of every file, and durable.
    fn holds(&self, manifest: &CheckpointManifest) -> Result<bool, StoreError>;
    /// Whether each file of a complete checkpoint is here with its size, in the order of the manifest. A host that
    /// holds a part of a checkpoint has the manifest of all of it.
    fn present(&self, checkpoint: &StoredCheckpoint) -> Result<Vec<bool>, StoreError>;
    /// Sets a mark that everyone who uses this place sees. Processes find out with it whether they use the same place.
    fn mark(&self, mark: &str) -> Result<(), StoreError>;
    fn is_marked(&self, mark: &str) -> Result<bool, StoreError>;
    /// Removes a mark; one that remains is removed when the next run recovers.
    fn unmark(&self, mark: &str) -> Result<(), StoreError>;
}

/// Opens a volume or a tier at a location.
type OpenAt<T> = fn(&Location, &Selection) -> Result<Box<T>, StoreError>;

/// How a backend stores checkpoints.
#[derive(Clone, Copy, Debug)]
pub enum OpenTier {
    /// In folders of a file system.
    Volume(OpenAt<dyn Volume>),
    /// With an implementation of its own.
    Own(OpenAt<dyn Tier>),
}

impl OpenTier {
    pub(crate) fn open(self, place: &Location, selection: &Selection) -> Result<Box<dyn Tier>, StoreError> {
        match self {
            OpenTier::Volume(open) => Ok(Box::new(Folders(open(place, selection)?))),
            OpenTier::Own(open) => open(place, selection),
        }
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap_or_default()
}

fn file_path(prefix: &str, file: &str) -> Name {
    name(&format!("{prefix}/{file}"))
}

/// Keeps others out until it is dropped, also if the process is killed.
#[derive(Debug, Default)]
pub struct Lock {
    _folder: Option<Folder>,
    _object: Option<ObjectLock>,
}

/// A file that is being written to a tier.
pub trait TierSink: Send {
    /// Takes the next chunk. Returns a buffer once it is written, not necessarily this one; `None` while more chunks
    /// may be in flight.
    fn write(&mut self, chunk: Buffer) -> Result<Option<Buffer>, StoreError>;
    /// Waits until all is written, and with `durable` until it would survive a crash. Returns when that was, by the
    /// clock or by the time of a simulated device; buffers go to `spare`.
    fn finish(self: Box<Self>, durable: bool, spare: &mut Vec<Buffer>) -> Result<Nanos, StoreError>;
}

/// A file that is read from front to back.
pub trait TierSource: Send {
    /// Replaces the content of `chunk` by the next bytes, as many as it has space for; none at the end of the file.
    fn read(&mut self, chunk: &mut Buffer) -> Result<(), StoreError>;
    /// When the last read was done, by the clock or by the time of a simulated device.
    fn ended(&self) -> Nanos;
}

pub(crate) fn buffered(place: &Location, _selection: &Selection) -> Result<Box<dyn Volume>, StoreError> {
    Ok(Box::new(DiskVolume::open(place.path()?, WriteMode::Buffered)?))
}

pub(crate) fn direct(place: &Location, _selection: &Selection) -> Result<Box<dyn Volume>, StoreError> {
    Ok(Box::new(DiskVolume::open(place.path()?, WriteMode::PastCache)?))
}

pub(crate) fn uring(place: &Location, selection: &Selection) -> Result<Box<dyn Volume>, StoreError> {
    Ok(Box::new(DiskVolume::open(place.path()?, WriteMode::Ring { past_cache: selection.mode.odirect })?))
}

/// Chunks of a file that a restore requests at once.
const CHUNKS_AHEAD: usize = 4;

pub(crate) fn in_bucket(place: &Location, selection: &Selection) -> Result<Box<dyn Tier>, StoreError> {
    let Some(there) = place.objects()? else {
        return Err(StoreError::Refused(format!(
            "{place} is a folder, but the store {} holds objects",
            selection.text()
        )));
    };
    let (site, bucket) = open_bucket(there, selection)?;
    let store = ObjectStore::new(site, Arc::clone(&bucket), there);
    let reader = Arc::new(LaneReader::new(Box::new(store), CHUNKS_AHEAD));
    Ok(Box::new(ObjectTier::new(bucket, there.clone(), reader)))
}

pub(crate) fn simulated(_place: &Location, selection: &Selection) -> Result<Box<dyn Tier>, StoreError> {
    Ok(Box::new(SimTier::parse(&selection.arguments)?))
}

pub(crate) fn null(_place: &Location, _selection: &Selection) -> Result<Box<dyn Tier>, StoreError> {
    Ok(Box::new(SimTier::on(Arc::new(Sim::idle()))))
}

pub(crate) fn faulty(place: &Location, selection: &Selection) -> Result<Box<dyn Volume>, StoreError> {
    Ok(Box::new(FaultVolume::open(place, selection)?))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::conformance::registry::{is_unavailable, selections};
    use crate::{BACKENDS, FixedClock, Mode};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    /// The volumes; those that the tests' file system does not support are left out, but never posix.
    fn volumes(root: &Path) -> Vec<Box<dyn Volume>> {
        let mut volumes = Vec::new();
        for selection in selections(BACKENDS) {
            let Some(OpenTier::Volume(open)) = selection.backend.tier else { continue };
            match open(&root.into(), &selection) {
                Ok(volume) => volumes.push(volume),
                Err(error) => assert!(is_unavailable(&selection, &error), "{error}"),
            }
        }
        volumes
    }

    #[test]
    fn small_files_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        for tier in volumes(folder.path()) {
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
            assert_eq!(tier.entries(&name("three")).unwrap(), ["other"], "a folder that is not empty stays");
            tier.remove(&name("three/other")).unwrap();
            tier.remove_folder(&name("three")).unwrap();
            tier.remove_folder(&name("three")).unwrap();
            assert!(!folder.path().join("three").exists());
        }
    }

    #[test]
    fn a_writer_excludes_all_others_and_readers_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let tier = Selection::named("posix", Mode::default()).unwrap().tier(folder.path()).unwrap();
        let tier = tier.files();
        let writes = tier.lock(false, &|| false).unwrap();
        assert!(tier.lock(true, &|| false).unwrap_err().to_string().contains("another feedline"));
        drop(writes);
        let _two_read = (tier.lock(true, &|| false).unwrap(), tier.lock(true, &|| false).unwrap());
        assert!(matches!(tier.lock(false, &|| false), Err(StoreError::Busy { .. })));
    }

    #[test]
    fn a_folder_that_was_away_is_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("deep/root");
        for tier in volumes(&root) {
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
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        for tier in volumes(folder.path()) {
            let error = tier.create(&name("no/file"), 10, &FixedClock).err().unwrap().to_string();
            assert!(error.contains("no/file"), "{error}");
            std::fs::write(folder.path().join("flat"), "x").unwrap();
            assert!(tier.make_folder(&name("flat")).unwrap_err().to_string().contains("flat"));
        }
    }
}
