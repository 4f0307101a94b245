//! Lists an existing data set once, in parallel, and stores the list as a catalog (`model/catalog`) that is mapped and
//! shared by all readers. An error while listing is an error, never a shorter list; an interrupted listing continues
//! where it stopped; a catalog appears complete or not at all.
//!
//! By default all its files are in the hidden folder `ROOT/.feedline`, so that once that folder exists, making a
//! catalog does not change the root's modification time, which the catalog records.

mod borders;
mod check;
mod error;
mod journal;
mod journal_file;
mod key_journal;
mod key_page;
mod key_walk;
mod keys;
mod known;
mod list;
mod members;
mod walk;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::catalog::{Catalog, CatalogError, CatalogFolder};
use model::files::FileEntry;
use model::names::Name;
use serde::{Deserialize, Serialize};
use store::{FolderHandle, FolderListing, Listing, MappedFile};

pub(crate) use check::changed_folders;
pub use check::{CatalogChanges, FolderChange};
pub use error::ScanError;
pub use keys::{open_object_catalog, scan_objects};

use crate::events::Events;
use crate::sharing::{SharingError, check_shared, make_shared_folder};
use crate::stop::Stop;
use crate::world::{Exchange, agreed};
use journal::ListingJournal;
use journal_file::ListingIdentity;
use known::EarlierListing;
use members::{ListingOrders, Outbox};
use walk::{FolderWalk, ListTask, WalkCounts, WalkRecords};

/// The hidden folder below a data folder that holds what feedline keeps about it.
pub(crate) const FOLDER: &str = ".feedline";
pub(crate) const FILE: &str = "catalog";

/// How to list.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Threads that list, at least one. They mostly wait for metadata, so more than there are cores pay off.
    pub threads: usize,
    /// List only files whose name ends in one of these; all if there are none.
    pub suffixes: Vec<Vec<u8>>,
    /// Where to put the catalog, if not into the data folder.
    pub output: Option<PathBuf>,
    /// Reuse the existing catalog for folders that have not changed. Object stores have no times of folders: all is
    /// listed again, with the suffixes of the catalog.
    pub refresh: bool,
    /// Discard the journal of an earlier listing that did not end: what it lists may have changed since.
    pub fresh: bool,
    /// Where the journal of an object store's listing is kept if the catalog goes into the store.
    pub state_folder: Option<PathBuf>,
}

/// The result of a listing.
#[derive(Clone, Debug)]
pub struct ListSummary {
    /// The catalog that was written.
    pub path: PathBuf,
    pub files: u64,
    pub folders: u64,
    /// Sum of the sizes of all files.
    pub bytes: u64,
    pub catalog_bytes: u64,
    pub digest: String,
    /// Folders that were reused from an interrupted listing or from the previous catalog.
    pub folders_reused: u64,
    /// Entries of the folders listed now that are not in the catalog.
    pub skipped: SkippedEntries,
    /// For an object store.
    pub keys: Option<KeySummary>,
    pub catalog: Arc<OpenCatalog>,
}

/// What the listing of an object store took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySummary {
    pub requests: u64,
    /// Keys that were listed now, skipped ones included.
    pub names: u64,
    /// Files that were taken over from an interrupted listing.
    pub resumed: u64,
    /// Whether the server lists in byte order. Otherwise ranges of keys cannot be listed, and folders are.
    pub in_order: bool,
}

/// Why an entry is not part of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The name begins with a dot.
    Hidden,
    /// The name ends in `.partial`: generation was interrupted.
    Partial,
    /// An index file (`.idx`), and no suffix was given.
    Index,
    /// A file with none of the given suffixes.
    Unmatched,
    /// A symbolic link to a folder.
    LinkedFolder,
    /// A socket, pipe or device.
    Special,
    /// A key that ends in a slash, by which other programs show a folder.
    Marker,
    /// A key that is not a path: with two slashes in a row, or a NUL.
    Unusable,
}

impl SkipReason {
    pub const ALL: [SkipReason; 8] = [
        SkipReason::Hidden,
        SkipReason::Partial,
        SkipReason::Index,
        SkipReason::Unmatched,
        SkipReason::LinkedFolder,
        SkipReason::Special,
        SkipReason::Marker,
        SkipReason::Unusable,
    ];
}

/// Entries that are not part of a data set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedEntries {
    counts: [u64; SkipReason::ALL.len()],
    /// The first path of each kind, in byte order.
    examples: [Option<Vec<u8>>; SkipReason::ALL.len()],
}

impl SkippedEntries {
    pub fn count(&self, reason: SkipReason) -> u64 {
        self.counts[reason as usize]
    }

    /// The path of one such entry, relative to the data folder.
    pub fn example(&self, reason: SkipReason) -> Option<&[u8]> {
        self.examples[reason as usize].as_deref()
    }

    /// Counts an entry of this name.
    fn note(&mut self, reason: SkipReason, name: &[u8]) {
        self.counts[reason as usize] += 1;
        let example = &mut self.examples[reason as usize];
        if example.as_deref().is_none_or(|first| name < first) {
            *example = Some(name.to_vec());
        }
    }

    /// Adds the entries of a folder, whose names become paths.
    fn add(&mut self, folder: &[u8], other: &SkippedEntries) {
        for reason in SkipReason::ALL {
            let Some(name) = other.example(reason) else { continue };
            self.note(reason, &known::join(folder, name));
            self.counts[reason as usize] += other.count(reason) - 1;
        }
    }
}

/// The catalog in the data folder `root`, if there is one.
pub fn find(root: &Path) -> Option<PathBuf> {
    Some(default_place(root)).filter(|path| path.exists())
}

/// The default path of the catalog of `root`.
pub fn default_place(root: &Path) -> PathBuf {
    root.join(FOLDER).join(FILE)
}

/// A catalog and the data folder that it is used for. It can be shared between threads.
#[derive(Debug)]
pub struct OpenCatalog {
    catalog: Catalog<MappedFile>,
    path: PathBuf,
    root: PathBuf,
    /// Whether the data is in an object store.
    objects: bool,
}

impl OpenCatalog {
    /// Maps the catalog at `path` for the data in `root` and checks its tables. `changes` checks whether the folders
    /// are unchanged.
    pub fn open(path: &Path, root: &Path) -> Result<OpenCatalog, ScanError> {
        OpenCatalog::parse(MappedFile::open(path)?, path, root, false)
    }

    /// The same for data in an object store, at a place such as `s3://bucket/prefix`.
    pub fn of_objects(path: &Path, place: &str) -> Result<OpenCatalog, ScanError> {
        OpenCatalog::parse(MappedFile::open(path)?, path, Path::new(place), true)
    }

    fn parse(map: MappedFile, path: &Path, root: &Path, objects: bool) -> Result<OpenCatalog, ScanError> {
        let catalog =
            Catalog::parse(map).map_err(|error| ScanError::Catalog { path: path.to_owned(), error })?;
        Ok(OpenCatalog { catalog, path: path.to_owned(), root: root.to_owned(), objects })
    }

    /// Whether the data is in an object store: then there are no folders whose changes could be found, and each
    /// object is checked when it is read.
    pub fn is_of_objects(&self) -> bool {
        self.objects
    }

    pub fn catalog(&self) -> &Catalog<MappedFile> {
        &self.catalog
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn files(&self) -> u64 {
        self.catalog.files()
    }

    pub fn total_bytes(&self) -> u64 {
        self.catalog.total_bytes()
    }

    /// Digest of paths and sizes, as 32 hexadecimal digits.
    pub fn digest(&self) -> String {
        self.catalog.digest()
    }

    pub fn folders(&self) -> impl Iterator<Item = CatalogFolder<'_>> {
        self.catalog.folders()
    }

    /// The numbers of the files in a folder and everything below it, such as `train`.
    pub fn below(&self, folder: &str) -> std::ops::Range<u64> {
        self.catalog.below(folder.as_bytes())
    }

    /// Writes the path of a file, relative to the root, into `name` and returns its size and version.
    pub fn entry(&self, index: u64, name: &mut Name) -> Result<FileEntry, CatalogError> {
        self.catalog.entry(index, name)
    }

    /// The folders that differ from the catalog.
    pub fn changes(&self, threads: usize, stop: &Stop) -> Result<CatalogChanges, ScanError> {
        changed_folders(&self.root, &self.catalog, threads, stop)
    }

    /// The same, found by all members together. All of them return it.
    pub fn changes_together(
        &self,
        threads: usize,
        world: &dyn Exchange,
        stop: &Stop,
    ) -> Result<CatalogChanges, ScanError> {
        check::changed_folders_together((&self.path, &self.root), &self.catalog, threads, world, stop)
    }
}

/// Lists everything below `root` and writes the catalog. All members call it, with the same options; only member 0
/// writes, and only it returns a summary.
pub fn scan(
    root: &Path,
    options: &ListOptions,
    world: &dyn Exchange,
    stop: &Stop,
    events: &Events,
) -> Result<Option<ListSummary>, ScanError> {
    let outcome = open_root(root)
        .and_then(|listing| ScanTask { listing: &listing, root, options, world, stop, events }.run());
    agreed(world, outcome, stop)
}

/// One member's part of a listing.
struct ScanTask<'a> {
    listing: &'a dyn Listing,
    root: &'a Path,
    options: &'a ListOptions,
    world: &'a dyn Exchange,
    stop: &'a Stop,
    events: &'a Events,
}

impl ScanTask<'_> {
    fn run(&self) -> Result<Option<ListSummary>, ScanError> {
        if self.world.member() == 0 { self.lead().map(Some) } else { self.help().map(|()| None) }
    }

    /// Lists folders for member 0.
    fn help(&self) -> Result<(), ScanError> {
        self.check_shared()?;
        let mut orders = Vec::new();
        self.world.broadcast(&mut orders, self.stop)?;
        let ListingOrders { begun_ns, root_ns, suffixes } = ListingOrders::decode(self.world, &orders)?;
        if self.root_version()? != root_ns {
            return Err(SharingError::not_shared(self.root, self.world).into());
        }
        let records = WalkRecords::Sent { outbox: Outbox::default(), begun_ns };
        self.walk(&suffixes, records).map(drop)
    }

    /// Lists with the help of the other members, if there are any, and writes the catalog.
    fn lead(&self) -> Result<ListSummary, ScanError> {
        let ScanTask { listing, root, options, world, .. } = *self;
        let place = CatalogTarget::settle(root, options)?;
        self.check_shared().inspect_err(|_| place.leave())?;
        let before = if options.refresh { Some(OpenCatalog::open(&place.path, root)?) } else { None };
        let suffixes = suffixes(options, before.as_ref())?;
        let identity = listing.identity().map_err(|cause| ScanError::io("stat", root, cause))?;
        let identity = ListingIdentity::new(identity, &suffixes);
        let (journal, finished) = ListingJournal::open(
            place.folder.below(".")?,
            place.beside(".partial"),
            &identity,
            options.fresh,
        )?;
        let known = EarlierListing { finished, catalog: before.map(|opened| opened.catalog) };
        let orders =
            ListingOrders { begun_ns: journal.file.begun_ns, root_ns: self.root_version()?, suffixes };
        world.broadcast(&mut orders.encode(), self.stop)?;
        let suffixes = &orders.suffixes;
        let counts = self.walk(suffixes, WalkRecords::Kept { known: &known, journal: &journal })?;
        let new = place.beside(".new");
        let written = journal.assemble(suffixes, &new);
        let opened = match written.and_then(|()| OpenCatalog::open(&place.folder.path().join(&new), root)) {
            Ok(opened) if opened.files() > 0 => opened,
            outcome => {
                outcome.inspect_err(|_| place.discard(&new))?;
                place.discard(&new);
                journal.file.remove();
                place.leave();
                return Err(ScanError::Empty {
                    root: root.to_owned(),
                    filtered: counts.skipped.count(SkipReason::Unmatched) > 0,
                });
            }
        };
        place.publish(&new)?;
        journal.file.remove();
        let opened = OpenCatalog { path: place.path.clone(), ..opened };
        Ok(ListSummary::new(place.path, Arc::new(opened), counts))
    }

    fn walk(&self, suffixes: &[Vec<u8>], records: WalkRecords<'_>) -> Result<WalkCounts, ScanError> {
        let ScanTask { listing, root, options, world, stop, events } = *self;
        let threads = options.threads.max(1);
        let task = ListTask { listing, root_path: root, suffixes, threads, world, stop, events };
        FolderWalk::new(task, records).run()
    }

    /// Checks that all members see the same data, by the hidden folder in it. If the catalog goes elsewhere, the data
    /// may be read-only; then the version of the root has to show it.
    fn check_shared(&self) -> Result<(), SharingError> {
        if self.options.output.is_some() || self.world.members() == 1 {
            return Ok(());
        }
        let folder = self.root.join(FOLDER);
        make_shared_folder(&folder, self.world, self.stop)?;
        check_shared(&folder, self.world, self.stop)
    }

    /// The version of the root, if the catalog goes elsewhere.
    fn root_version(&self) -> Result<Option<i64>, ScanError> {
        let failed = |cause| ScanError::io("stat the folder", self.root, cause);
        match self.options.output {
            Some(_) => self.listing.version(&[]).map_err(failed),
            None => Ok(None),
        }
    }
}

impl ListSummary {
    fn new(path: PathBuf, opened: Arc<OpenCatalog>, counts: WalkCounts) -> ListSummary {
        ListSummary {
            path,
            files: opened.files(),
            folders: opened.catalog.folder_count() as u64,
            bytes: opened.total_bytes(),
            catalog_bytes: opened.catalog.encoded_bytes(),
            digest: opened.digest(),
            folders_reused: counts.folders_reused,
            skipped: counts.skipped,
            keys: None,
            catalog: opened,
        }
    }
}

/// The suffixes to list by: those of the catalog that is refreshed, since it is of no use for others.
fn suffixes(options: &ListOptions, before: Option<&OpenCatalog>) -> Result<Vec<Vec<u8>>, ScanError> {
    let mut asked = options.suffixes.clone();
    asked.sort();
    asked.dedup();
    match before {
        Some(before) if asked.is_empty() || asked == before.catalog.suffixes() => {
            Ok(before.catalog.suffixes())
        }
        Some(before) => Err(ScanError::OtherSuffixes(before.path.clone())),
        None => Ok(asked),
    }
}

fn open_root(root: &Path) -> Result<FolderListing, ScanError> {
    FolderListing::open(root).map_err(|cause| match cause.kind() {
        ErrorKind::NotFound => ScanError::Missing(root.to_owned()),
        ErrorKind::NotADirectory => ScanError::NotAFolder(root.to_owned()),
        _ => ScanError::io("open the folder", root, cause),
    })
}

/// The folder of a path.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

/// Where the catalog is written.
struct CatalogTarget {
    path: PathBuf,
    /// The folder that it is in, and its name there.
    folder: FolderHandle,
    name: OsString,
    /// The data folder, if the catalog goes into its hidden folder.
    root: Option<FolderHandle>,
}

impl CatalogTarget {
    fn settle(root: &Path, options: &ListOptions) -> Result<CatalogTarget, ScanError> {
        let Some(path) = &options.output else { return CatalogTarget::beside_data(root)?.spare_others() };
        let folder = folder_of(path);
        let whole = |path: &Path| path.canonicalize().map_err(|cause| ScanError::io("find", path, cause));
        let hidden = |part: std::path::Component<'_>| part.as_os_str().as_encoded_bytes().starts_with(b".");
        match whole(folder)?.strip_prefix(whole(root)?) {
            Ok(inside) if !inside.components().any(hidden) => Err(ScanError::OutputInside(path.clone())),
            _ => CatalogTarget::at(path)?.spare_others(),
        }
    }

    /// At a path, whose folder exists.
    fn at(path: &Path) -> Result<CatalogTarget, ScanError> {
        let name = path.file_name().ok_or_else(|| ScanError::InTheWay(path.to_owned()))?.to_owned();
        let folder = FolderHandle::open(folder_of(path))?;
        Ok(CatalogTarget { path: path.to_owned(), folder, name, root: None })
    }

    /// In the hidden folder, which is created if it is missing.
    fn beside_data(root: &Path) -> Result<CatalogTarget, ScanError> {
        let held = FolderHandle::open(root)?;
        let made = held.make_folder(FOLDER).map_err(|cause| ScanError::unwritable(root, cause))?;
        if made {
            held.sync()?;
        }
        let folder = held.below(FOLDER)?;
        Ok(CatalogTarget { path: default_place(root), folder, name: FILE.into(), root: Some(held) })
    }

    /// Refuses to replace a file that is not a catalog, so that a mistyped path cannot destroy it.
    fn spare_others(self) -> Result<CatalogTarget, ScanError> {
        if self.path.is_dir() {
            return Err(ScanError::InTheWay(self.path));
        }
        self.folder.check_replaceable(&self.name)?;
        match OpenCatalog::open(&self.path, Path::new("")) {
            Err(ScanError::Catalog { error: CatalogError::NotACatalog, path }) => {
                Err(ScanError::InTheWay(path))
            }
            _ => Ok(self),
        }
    }

    /// The name of a file next to the catalog.
    fn beside(&self, ending: &str) -> OsString {
        let mut name = self.name.clone();
        name.push(ending);
        name
    }

    /// Gives the finished catalog its name.
    fn publish(&self, new: &OsString) -> Result<(), ScanError> {
        self.folder.rename(new, &self.name)?;
        Ok(self.folder.sync()?)
    }

    /// Removes an unfinished catalog. Best effort: the error that led here is the one to report.
    fn discard(&self, new: &OsString) {
        let _ = self.folder.reclaim(new);
    }

    /// Removes the hidden folder if no catalog will be written.
    fn leave(&self) {
        if let Some(root) = &self.root {
            // Fails if there is something else in it.
            let _ = root.remove_folder(FOLDER);
        }
    }
}

#[cfg(test)]
mod key_tests;
#[cfg(test)]
mod several;
#[cfg(test)]
mod tests;
