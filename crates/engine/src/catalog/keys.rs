//! Catalogs of object stores: lists all keys below a place, writes the catalog to the object `.feedline/catalog`
//! there or to a file, and reads it back for a run. Member 0 lists alone, with all its threads: requests, not
//! processes, are what a listing takes. The others wait for the outcome.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use format::Extent;
use model::catalog::{Catalog, CatalogError};
use model::names::Name;
use store::{KeyListing, MappedFile, Store, StoreError, make_path, unnamed_file};

use super::journal_file::ListingIdentity;
use super::key_journal::{EarlierKeys, KeyJournal};
use super::key_walk::{KeyCounts, KeyTask, KeyWalk};
use super::{
    CatalogTarget, FILE, FOLDER, KeySummary, ListOptions, ListSummary, OpenCatalog, ScanError, SkipReason,
    SkippedEntries, suffixes,
};
use crate::events::Events;
use crate::file_reader::FileReader;
use crate::stop::Stop;
use crate::world::{World, agreed, alongside};

/// Bytes of a catalog that are read or written at a time.
const CHUNK: u64 = 8 << 20;
/// The beginning of a catalog, which shows that it is one.
const BEGINNING: u64 = 8;

/// Lists all objects of a store and writes the catalog. All members call it; only member 0 returns a summary.
pub fn scan_objects(
    store: &dyn Store,
    options: &ListOptions,
    world: &dyn World,
    stop: &Stop,
    events: &Events,
) -> Result<Option<ListSummary>, ScanError> {
    let outcome = match store.files().keys() {
        None => Err(ScanError::Store(StoreError::Refused(format!(
            "the {} store has no keys to list",
            store.name()
        )))),
        Some(_) if world.member() > 0 => Ok(None),
        Some(keys) => KeyScan { store, keys, options, world, stop, events }.run().map(Some),
    };
    agreed(world, outcome, stop)
}

/// Reads the catalog object of a store, if there is one, into a file without a name in `temporary`.
pub fn open_object_catalog(store: &dyn Store, temporary: &Path) -> Result<Option<OpenCatalog>, ScanError> {
    let Some(keys) = store.files().keys() else { return Ok(None) };
    CatalogObject::new(store, keys)?.open(temporary)
}

/// The listing of member 0.
pub(super) struct KeyScan<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) keys: &'a dyn KeyListing,
    pub(super) options: &'a ListOptions,
    pub(super) world: &'a dyn World,
    pub(super) stop: &'a Stop,
    pub(super) events: &'a Events,
}

impl KeyScan<'_> {
    pub(super) fn run(&self) -> Result<ListSummary, ScanError> {
        let KeyScan { store, keys, options, .. } = *self;
        let object = CatalogObject::new(store, keys)?;
        let target = self.target(&object)?;
        let before = if options.refresh { Some(self.before(&object, &target)?) } else { None };
        let suffixes = suffixes(options, before.as_ref())?;
        drop(before);
        let ListedKeys { journal, counts, resumed } = self.list(&target, &suffixes)?;
        let new = target.beside(".new");
        let written = journal.assemble(&suffixes, &new);
        let path = if options.output.is_some() { target.path.clone() } else { object.shown.clone().into() };
        let opened = written
            .and_then(|()| OpenCatalog::of_objects(&target.folder.path().join(&new), &keys.shown("")))
            .map(|opened| OpenCatalog { path: path.clone(), ..opened })
            .inspect_err(|_| target.discard(&new))?;
        if opened.files() == 0 {
            target.discard(&new);
            journal.file.remove();
            return Err(ScanError::Empty {
                root: keys.shown("").into(),
                filtered: counts.skipped.count(SkipReason::Unmatched) > 0,
            });
        }
        if options.output.is_some() {
            target.publish(&new)?;
        } else {
            let uploaded = object.write(opened.catalog.bytes());
            target.discard(&new);
            uploaded?;
        }
        journal.file.remove();
        let keys = KeySummary {
            requests: counts.requests,
            names: counts.names,
            resumed,
            in_order: journal.by_range || !keys.lists_after(),
        };
        Ok(ListSummary::of_objects(path, opened, counts.skipped, keys))
    }

    /// Lists everything: by ranges of names, if the service can begin after a name and lists in byte order, and
    /// otherwise folder by folder. SeaweedFS, and the directory buckets of S3, do not list in byte order.
    fn list(&self, target: &CatalogTarget, suffixes: &[Vec<u8>]) -> Result<ListedKeys, ScanError> {
        let KeyScan { keys, options, .. } = *self;
        let identity = [b"objects\0".as_slice(), &keys.identity()].concat();
        let identity = ListingIdentity::new(identity, suffixes);
        let open = |lists_ranges: bool, fresh: bool| {
            KeyJournal::open(
                target.folder.below(".")?,
                target.beside(".partial"),
                &identity,
                lists_ranges,
                fresh,
            )
        };
        // A refresh lists everything again: what an earlier listing found may have changed since.
        let (mut journal, earlier) = open(keys.lists_after(), options.fresh || options.refresh)?;
        let mut resumed = earlier.files;
        self.events.counters().add_files(earlier.files, earlier.bytes);
        let outcome = match self.walk(suffixes, &journal, earlier) {
            Err(ScanError::OutOfOrder { .. }) if journal.by_range => {
                // Closed first, because it is locked.
                drop(journal);
                let earlier;
                (journal, earlier) = open(false, true)?;
                resumed = 0;
                self.walk(suffixes, &journal, earlier)
            }
            outcome => outcome,
        };
        Ok(ListedKeys { counts: outcome?, journal, resumed })
    }

    fn walk(
        &self,
        suffixes: &[Vec<u8>],
        journal: &KeyJournal,
        earlier: EarlierKeys,
    ) -> Result<KeyCounts, ScanError> {
        let KeyScan { keys, options, stop, events, .. } = *self;
        let task = KeyTask { keys, suffixes, threads: options.threads.max(1), stop, events, journal };
        let walk = KeyWalk::new(task, earlier);
        let outcome =
            alongside(self.world, stop, &|ended| walk.fail(ScanError::Elsewhere(Box::new(ended))), || {
                walk.run()
            });
        match outcome {
            // A stop that is requested here ends all members, which this one learns, too.
            Err(ScanError::Elsewhere(_)) if stop.requested() => Err(ScanError::Interrupted),
            outcome => outcome,
        }
    }

    /// Where the journal and the new catalog are written: next to the output, or in the user's folder.
    fn target(&self, object: &CatalogObject<'_>) -> Result<CatalogTarget, ScanError> {
        if let Some(output) = &self.options.output {
            return CatalogTarget::at(output)?.spare_others();
        }
        object.spare_others()?;
        let folder = self.options.state_folder.as_deref().ok_or(ScanError::NoStateFolder)?;
        make_path(folder).map_err(|cause| ScanError::unwritable(folder, cause))?;
        // Listings of different places have different journals; the identity in the journal is compared as well.
        CatalogTarget::at(&folder.join(format!("listing-{:08x}", crc32fast::hash(&self.keys.identity()))))
    }

    /// The catalog that is listed anew, for its suffixes.
    fn before(&self, object: &CatalogObject<'_>, target: &CatalogTarget) -> Result<OpenCatalog, ScanError> {
        if self.options.output.is_some() {
            return OpenCatalog::of_objects(&target.path, &self.keys.shown(""));
        }
        let missing = || StoreError::Missing { name: object.shown.clone() };
        object.open(target.folder.path())?.ok_or_else(|| ScanError::Store(missing()))
    }
}

/// All names, in the journal.
struct ListedKeys {
    journal: KeyJournal,
    counts: KeyCounts,
    /// Files that an interrupted listing had found.
    resumed: u64,
}

/// The object that holds the catalog of a store.
struct CatalogObject<'a> {
    store: &'a dyn Store,
    place: String,
    name: Name,
    shown: String,
}

impl<'a> CatalogObject<'a> {
    fn new(store: &'a dyn Store, keys: &dyn KeyListing) -> Result<CatalogObject<'a>, ScanError> {
        let text = format!("{FOLDER}/{FILE}");
        let name = Name::new(&text).ok_or(ScanError::Panicked)?;
        Ok(CatalogObject { store, place: keys.shown(""), name, shown: keys.shown(&text) })
    }

    /// Refuses to replace an object that is not a catalog.
    fn spare_others(&self) -> Result<(), ScanError> {
        let in_the_way = || ScanError::InTheWay(PathBuf::from(&self.shown));
        let Some(size) = self.store.files().size(&self.name)? else { return Ok(()) };
        let len = size.min(BEGINNING);
        let mut reader = FileReader::new(self.store)?;
        let start = reader.read((&self.name, size), Extent { offset: 0, len })?;
        match Catalog::parse(start) {
            Err(CatalogError::NotACatalog) => Err(in_the_way()),
            _ => Ok(()),
        }
    }

    fn open(&self, temporary: &Path) -> Result<Option<OpenCatalog>, ScanError> {
        let Some(size) = self.store.files().size(&self.name)? else { return Ok(None) };
        let mut file = unnamed_file(temporary)?;
        let mut reader = FileReader::new(self.store)?;
        let mut offset = 0;
        while offset < size {
            let len = CHUNK.min(size - offset);
            let bytes = reader.read((&self.name, size), Extent { offset, len })?;
            file.write_all(bytes)
                .map_err(|cause| ScanError::io("write a copy of the catalog into", temporary, cause))?;
            offset += len;
        }
        let map = MappedFile::of(&file, &self.shown)?;
        OpenCatalog::parse(map, Path::new(&self.shown), Path::new(&self.place), true).map(Some)
    }

    /// Writes the catalog. It appears complete or not at all.
    fn write(&self, bytes: &[u8]) -> Result<(), ScanError> {
        let failed = |cause| ScanError::NotUploaded { place: self.shown.clone(), cause };
        let mut writer = self.store.files().create(&self.name).map_err(failed)?;
        bytes.chunks(CHUNK as usize).try_for_each(|part| writer.write(part)).map_err(failed)?;
        writer.finish().map_err(failed)
    }
}

impl ListSummary {
    fn of_objects(
        path: PathBuf,
        opened: OpenCatalog,
        skipped: SkippedEntries,
        keys: KeySummary,
    ) -> ListSummary {
        let keys = Some(keys);
        ListSummary { keys, skipped, ..ListSummary::new(path, Arc::new(opened), Default::default()) }
    }
}
