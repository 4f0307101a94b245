//! Lists a foreign data set once, in parallel, and keeps the list as a catalog (`model/catalog`) that is
//! mapped and shared by all readers. An error while listing is an error, never a shorter list; an interrupted
//! listing goes on where it stopped; a catalog appears whole or not at all.
//!
//! By default everything lies in the hidden folder `ROOT/.feedline`, so that making a catalog does not change
//! the root's own modification time once that folder exists, and with it what the catalog says about the
//! root.

mod check;
mod error;
mod journal;
mod known;
mod list;
mod walk;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use model::catalog::{Catalog, CatalogError, Folder};
use model::names::Name;
use store::{FolderListing, Held, Listing, Mapped};

pub use check::{Change, Changes, changed_folders};
pub use error::ScanError;

use crate::events::Events;
use crate::stop::Stop;
use journal::{Identity, Journal};
use known::Known;

/// The hidden folder below a data folder that holds what feedline keeps about it.
pub(crate) const FOLDER: &str = ".feedline";
pub(crate) const FILE: &str = "catalog";

/// How to list.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Threads that list; 0 for twice the number of cores, as they mostly wait for metadata.
    pub threads: usize,
    /// List only files whose name ends in one of these; all if there are none.
    pub suffixes: Vec<Vec<u8>>,
    /// Where the catalog goes, if not into the data folder.
    pub output: Option<PathBuf>,
    /// Take over from the existing catalog what lies in folders that have not changed.
    pub refresh: bool,
}

/// What was listed.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The catalog that was written.
    pub path: PathBuf,
    pub files: u64,
    pub folders: u64,
    /// Sum of the sizes of all files.
    pub bytes: u64,
    pub catalog_bytes: u64,
    pub digest: String,
    /// Folders that were taken over from an interrupted listing or from the catalog before.
    pub folders_reused: u64,
    /// What lies in the folders that were listed now and did not enter the catalog.
    pub skipped: Skipped,
}

/// What is not part of a data set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Files and folders whose name begins with a dot.
    pub hidden: u64,
    /// Files that end in `.partial`: generation was interrupted.
    pub partial: u64,
    /// Index files (`.idx`), when no suffix was asked for.
    pub index: u64,
    /// Files with another suffix than asked for.
    pub unmatched: u64,
    /// Symbolic links to folders.
    pub linked_folders: u64,
    /// Sockets, pipes, devices.
    pub special: u64,
}

impl Skipped {
    fn add(&mut self, other: Skipped) {
        self.hidden += other.hidden;
        self.partial += other.partial;
        self.index += other.index;
        self.unmatched += other.unmatched;
        self.linked_folders += other.linked_folders;
        self.special += other.special;
    }
}

/// The catalog that lies beside the data in `root`, if there is one.
pub fn find(root: &Path) -> Option<PathBuf> {
    Some(default_place(root)).filter(|path| path.exists())
}

/// Where the catalog of `root` goes by default.
pub fn default_place(root: &Path) -> PathBuf {
    root.join(FOLDER).join(FILE)
}

/// A catalog and the data folder that it is used for. It can be shared between threads.
#[derive(Debug)]
pub struct Opened {
    catalog: Catalog<Mapped>,
    path: PathBuf,
    root: PathBuf,
}

impl Opened {
    /// Maps the catalog at `path` for the data in `root` and checks its tables. Whether the folders are still
    /// as they were is another question, that `changes` answers.
    pub fn open(path: &Path, root: &Path) -> Result<Opened, ScanError> {
        let map = Mapped::open(path)?;
        let catalog =
            Catalog::parse(map).map_err(|error| ScanError::Catalog { path: path.to_owned(), error })?;
        Ok(Opened { catalog, path: path.to_owned(), root: root.to_owned() })
    }

    pub fn catalog(&self) -> &Catalog<Mapped> {
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

    /// 32 hexadecimal digits of paths and sizes.
    pub fn digest(&self) -> String {
        self.catalog.digest()
    }

    pub fn folders(&self) -> impl Iterator<Item = Folder<'_>> {
        self.catalog.folders()
    }

    /// The numbers of the files in a folder and everything below it, such as `train`.
    pub fn below(&self, folder: &str) -> std::ops::Range<u64> {
        self.catalog.below(folder.as_bytes())
    }

    /// Writes the path of a file, relative to the root, into `name` and returns its size.
    pub fn entry(&self, index: u64, name: &mut Name) -> Result<u64, CatalogError> {
        self.catalog.entry(index, name)
    }

    /// Which folders are no longer as the catalog says.
    pub fn changes(&self, threads: usize, stop: &Stop) -> Result<Changes, ScanError> {
        changed_folders(&self.root, &self.catalog, threads, stop)
    }
}

/// Lists everything below `root` and writes the catalog.
pub fn scan(root: &Path, options: &Options, stop: &Stop, events: &Events) -> Result<Summary, ScanError> {
    scan_listing(&open_root(root)?, root, options, stop, events)
}

fn scan_listing(
    listing: &dyn Listing,
    root: &Path,
    options: &Options,
    stop: &Stop,
    events: &Events,
) -> Result<Summary, ScanError> {
    let place = Place::settle(root, options)?;
    let before = if options.refresh { Some(Opened::open(&place.path, root)?) } else { None };
    let suffixes = suffixes(options, before.as_ref())?;
    let identity = Identity::of(listing, root, &suffixes)?;
    let (journal, finished) = Journal::open(place.folder.below(".")?, place.beside(".partial"), &identity)?;
    let known = Known { finished, catalog: before.map(|opened| opened.catalog) };
    let threads = threads(options.threads);
    let task = walk::Task { listing, root_path: root, suffixes: &suffixes, threads, stop, events };
    let counts = walk::Walk::new(task, &known, &journal).run()?;
    let new = place.beside(".new");
    let written = journal.assemble(&suffixes, &new);
    let opened = match written.and_then(|()| Opened::open(&place.folder.path().join(&new), root)) {
        Ok(opened) if opened.files() > 0 => opened,
        outcome => {
            outcome.inspect_err(|_| place.discard(&new))?;
            place.discard(&new);
            place.leave(&journal);
            return Err(ScanError::Empty { root: root.to_owned(), filtered: counts.skipped.unmatched > 0 });
        }
    };
    place.publish(&new)?;
    journal.remove();
    Ok(Summary {
        path: place.path,
        files: opened.files(),
        folders: opened.catalog.folder_count() as u64,
        bytes: opened.total_bytes(),
        catalog_bytes: opened.catalog.encoded_bytes(),
        digest: opened.digest(),
        folders_reused: counts.folders_reused,
        skipped: counts.skipped,
    })
}

/// The suffixes to list by: those of the catalog that is refreshed, which others would make useless.
fn suffixes(options: &Options, before: Option<&Opened>) -> Result<Vec<Vec<u8>>, ScanError> {
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

fn threads(asked: usize) -> usize {
    match asked {
        0 => crate::host::cores() as usize * 2,
        asked => asked,
    }
}

fn open_root(root: &Path) -> Result<FolderListing, ScanError> {
    FolderListing::open(root).map_err(|cause| match cause.kind() {
        ErrorKind::NotFound => ScanError::Missing(root.to_owned()),
        ErrorKind::NotADirectory => ScanError::NotAFolder(root.to_owned()),
        _ => ScanError::io("open the folder", root, cause),
    })
}

/// Where the catalog goes.
struct Place {
    path: PathBuf,
    /// The folder that it lies in, and its name there.
    folder: Held,
    name: OsString,
    /// The data folder, if it goes into the hidden folder there.
    root: Option<Held>,
}

impl Place {
    fn settle(root: &Path, options: &Options) -> Result<Place, ScanError> {
        let Some(path) = &options.output else { return Place::beside_data(root)?.spare_others() };
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let whole = |path: &Path| path.canonicalize().map_err(|cause| ScanError::io("find", path, cause));
        let hidden = |part: std::path::Component<'_>| part.as_os_str().as_encoded_bytes().starts_with(b".");
        match whole(folder)?.strip_prefix(whole(root)?) {
            Ok(inside) if !inside.components().any(hidden) => Err(ScanError::OutputInside(path.clone())),
            _ => {
                let name = path.file_name().ok_or_else(|| ScanError::InTheWay(path.clone()))?.to_owned();
                Place { path: path.clone(), folder: Held::open(folder)?, name, root: None }.spare_others()
            }
        }
    }

    /// In the hidden folder, which is made if it is missing.
    fn beside_data(root: &Path) -> Result<Place, ScanError> {
        let held = Held::open(root)?;
        let made = held.make_folder(FOLDER).map_err(|cause| ScanError::unwritable(root, cause))?;
        if made {
            held.sync()?;
        }
        let folder = held.below(FOLDER)?;
        Ok(Place { path: default_place(root), folder, name: FILE.into(), root: Some(held) })
    }

    /// Refuses to replace a file that is something else: a mistyped path must not cost anybody a file.
    fn spare_others(self) -> Result<Place, ScanError> {
        if self.path.is_dir() {
            return Err(ScanError::InTheWay(self.path));
        }
        self.folder.check_replaceable(&self.name)?;
        match Opened::open(&self.path, Path::new("")) {
            Err(ScanError::Catalog { error: CatalogError::NotACatalog, path }) => {
                Err(ScanError::InTheWay(path))
            }
            _ => Ok(self),
        }
    }

    /// The name of a file beside the catalog.
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

    /// Removes a catalog that was not finished. Best effort: what led here is the error to report.
    fn discard(&self, new: &OsString) {
        let _ = self.folder.reclaim(new);
    }

    /// Removes what stands there for a catalog that will not come.
    fn leave(&self, journal: &Journal) {
        journal.remove();
        if let Some(root) = &self.root {
            // Stays if something else is in it.
            let _ = root.remove_folder(FOLDER);
        }
    }
}

#[cfg(test)]
mod tests;
