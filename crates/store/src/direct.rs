//! Local or mounted files, bypassing the page cache: open with O_DIRECT, pread in whole granules, close. Every read
//! comes from the storage.

use std::path::Path;

use model::location::Location;
use model::names::Name;
use model::plan::Medium;
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::folder::Folder;
use crate::lane::{Blocking, BlockingLane};
use crate::past_cache::PastCache;
use crate::{
    Backend, Capabilities, Files, Lane, Mode, OpenTier, Operation, PlaceKind, Selection, Store, StoreError,
    Threads, Traffic, size, tier,
};

pub(crate) const BACKEND: Backend = Backend {
    name: "direct",
    arguments: "",
    summary: "open, pread and close with O_DIRECT, in whole granules",
    example: "direct",
    medium: Medium::Storage,
    place: PlaceKind::Folder,
    injects_faults: false,
    capabilities: |_| Direct::CAPABILITIES,
    check: |_| Ok(()),
    open: Direct::open_boxed,
    tier: Some(OpenTier::Volume(tier::direct)),
};

#[derive(Debug)]
pub struct Direct {
    folder: Folder,
    past_cache: PastCache,
}

impl Direct {
    pub(crate) const CAPABILITIES: Capabilities = Capabilities {
        holds_files: true,
        threads: Threads::PerReader,
        brings_bytes: true,
        cached: false,
        odirect: true,
    };

    /// Opens the data folder, which must exist and be on a file system that supports O_DIRECT.
    pub fn open(root: &Path, mode: Mode) -> Result<Direct, StoreError> {
        let folder = Folder::open(root)?;
        let past_cache = PastCache::of(&folder, mode.readahead)?;
        Ok(Direct { folder, past_cache })
    }

    pub(crate) fn open_boxed(place: &Location, selection: &Selection) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(Direct::open(place.path()?, selection.mode)?))
    }

    fn error(&self, operation: Operation, name: &Name, cause: Errno) -> StoreError {
        self.past_cache.error(operation, self.folder.shown(name), cause)
    }
}

impl Blocking for Direct {
    type File = OwnedFd;

    fn open(&self, name: &Name) -> Result<OwnedFd, StoreError> {
        let opened = self.folder.try_open(name, OFlags::DIRECT);
        let file = opened.map_err(|cause| self.error(Operation::Open, name, cause))?;
        if !self.past_cache.is_proven() {
            self.past_cache.prove(&self.folder, name, &file)?;
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
            match rustix::io::pread(file, &mut *buffer, offset) {
                Err(Errno::INTR) => {}
                result => return result.map_err(|cause| self.error(Operation::Read, name, cause)),
            }
        }
    }

    fn size(&self, file: &OwnedFd) -> Result<u64, Errno> {
        size::size_of(file)
    }

    fn granule(&self) -> usize {
        self.past_cache.granule()
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

impl Store for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn capabilities(&self) -> Capabilities {
        Direct::CAPABILITIES
    }

    fn lane<'a>(&'a self, traffic: Traffic<'a>) -> Result<Box<dyn Lane + 'a>, StoreError> {
        Ok(Box::new(BlockingLane::new(self, traffic)))
    }

    fn files(&self) -> &dyn Files {
        &self.folder
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        vec![
            ("o_direct", true.to_string()),
            ("granule_bytes", self.past_cache.granule().to_string()),
            ("readahead", "normal".to_owned()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;
    use model::spec::Readahead;

    /// The store on a new folder. If the tests' file system does not support O_DIRECT, the refusal is checked instead.
    fn store() -> Option<(tempfile::TempDir, Direct)> {
        let folder = tempfile::tempdir().unwrap();
        match Direct::open(folder.path(), Mode::default()) {
            Ok(store) => Some((folder, store)),
            Err(error) => {
                assert!(error.to_string().contains("O_DIRECT"), "{error}");
                None
            }
        }
    }

    #[test]
    fn passes_the_conformance_suite() {
        let Some((_folder, store)) = store() else { return };
        conformance::store_with_files(&store);
    }

    #[test]
    fn a_fifo_in_place_of_a_file_is_an_error_and_does_not_hang() {
        let Some((folder, store)) = store() else { return };
        conformance::a_fifo_is_an_error(&store, folder.path());
    }

    #[test]
    fn odd_tails_are_read_exactly() {
        let Some((_folder, store)) = store() else { return };
        conformance::whole_files_of_odd_sizes(&store);
    }

    #[test]
    fn a_folder_in_memory_is_refused() {
        let shared = Path::new("/dev/shm");
        let facts = rustix::fs::statfs(shared).unwrap();
        assert_eq!(facts.f_type as u64, 0x0102_1994, "/dev/shm is a tmpfs");
        let error = Direct::open(shared, Mode::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "/dev/shm is on tmpfs, which keeps files in memory: O_DIRECT would read the page cache; use --store \
             posix or a folder on a disk"
        );
    }

    #[test]
    fn a_link_to_a_file_in_memory_is_refused() {
        let Some((folder, store)) = store() else { return };
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        std::os::unix::fs::symlink(memory.path(), folder.path().join("suite")).unwrap();
        std::fs::write(memory.path().join("file"), b"x").unwrap();
        let error = Blocking::open(&store, &Name::new("suite/file").unwrap()).unwrap_err().to_string();
        assert!(error.contains("suite/file is on tmpfs"), "{error}");
    }

    #[test]
    fn advice_for_the_page_cache_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for readahead in [Readahead::Sequential, Readahead::Random, Readahead::Dontcache] {
            let error =
                Direct::open(folder.path(), Mode { readahead, odirect: true }).unwrap_err().to_string();
            let begin = format!("reader.readahead: {} has no meaning with O_DIRECT", readahead.name());
            assert!(error.starts_with(&begin), "{error}");
        }
    }

    #[test]
    fn observed_properties_are_reported() {
        let Some((_folder, store)) = store() else { return };
        let observed = store.observed();
        assert_eq!(observed[0], ("o_direct", "true".to_owned()));
        let granule: usize = observed[1].1.parse().unwrap();
        assert!(granule.is_power_of_two() && granule <= 4096, "{granule}");
    }

    #[test]
    fn a_folder_in_place_of_a_file_is_reported_as_one() {
        let Some((folder, store)) = store() else { return };
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        let name = Name::new("sub").unwrap();
        let outcome = Blocking::open(&store, &name).and_then(|file| {
            let mut page = crate::Buffer::with_capacity(4096);
            store.read_at(&file, &name, 0, &mut page.room()[..4096])
        });
        let error = outcome.unwrap_err().to_string();
        assert!(error.ends_with("sub is a folder, but should be a file"), "{error}");
    }

    #[test]
    fn an_unaligned_read_is_refused_with_the_name() {
        let Some((folder, store)) = store() else { return };
        conformance::first_read(&store).unwrap();
        let name = Name::new("first").unwrap();
        let file = Blocking::open(&store, &name).unwrap();
        let mut odd = crate::Buffer::with_capacity(4096);
        let error = store.read_at(&file, &name, 1, &mut odd.room()[..4096]).unwrap_err().to_string();
        let place = folder.path().join("first");
        assert!(error.starts_with(&format!("{} cannot be read with O_DIRECT", place.display())), "{error}");
    }
}
