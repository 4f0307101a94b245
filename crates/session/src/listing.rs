//! Existing files through their catalog: which catalog a run uses, which of its files training and evaluation read, and
//! whether the folders have changed.

use std::path::Path;

use engine::Stop;
use engine::catalog::{OpenCatalog, find};
use model::files::{FileEntry, FileList};
use model::names::Name;
use model::plan::{ListOrigin, Listed, ListedSplit};

use crate::ask::Asked;
use crate::error::Error;

/// The setting that ignores a catalog next to the data.
pub(crate) const OFF: &str = "off";

/// Threads that list a data set when the user names no number: they mostly wait for metadata.
pub fn listing_threads() -> usize {
    2 * engine::host::cores() as usize
}

/// Opens the catalog that the workload names, or the one next to the data. `beside` says whether to look there.
pub(crate) fn open(asked: &Asked, folder: &Path, beside: bool) -> Result<Option<OpenCatalog>, Error> {
    let path = match asked.spec.dataset.catalog.as_deref() {
        Some(OFF) => None,
        Some(path) => Some(path.into()),
        None => find(folder).filter(|_| beside),
    };
    path.map(|path| OpenCatalog::open(&path, folder)).transpose().map_err(Error::Catalog)
}

/// The part of a catalog that is read. Files below `train` and `valid` are the two splits; without these folders all
/// files are for training.
pub(crate) fn splits(asked: &Asked, opened: &OpenCatalog) -> Result<Listed, Error> {
    let set = &asked.spec.dataset;
    let (train, valid) = (opened.below("train"), opened.below("valid"));
    let train = if train.is_empty() { 0..opened.files() } else { train };
    let wanted = if asked.counts_files() { set.num_files_train } else { train.end - train.start };
    let all_valid = asked.spec.workflow.evaluation && !asked.counts_validation_files();
    let wanted_valid = if all_valid { valid.end - valid.start } else { set.num_files_eval };
    let split = |key: &'static str, range: std::ops::Range<u64>, files: u64| {
        let there = range.end - range.start;
        if files > there {
            let catalog = opened.path().to_owned();
            return Err(Error::CatalogTooSmall { key, asked: files, there, catalog });
        }
        let bytes = bytes_of(opened, range.start, files)?;
        Ok(ListedSplit { first: range.start, files, bytes })
    };
    Ok(Listed {
        digest: opened.digest(),
        origin: ListOrigin::Catalog,
        train: split("num_files_train", train, wanted)?,
        valid: split("num_files_eval", valid, wanted_valid)?,
    })
}

/// The total size of a range of files: whole folders by their sums, the last folder file by file.
fn bytes_of(opened: &OpenCatalog, first: u64, files: u64) -> Result<u64, Error> {
    let end = first + files;
    let mut bytes = 0;
    let mut name = Name::default();
    for folder in opened.folders() {
        let (start, stop) = (folder.first_file.max(first), (folder.first_file + folder.files).min(end));
        if start == folder.first_file && stop == folder.first_file + folder.files {
            bytes += folder.bytes;
            continue;
        }
        for index in start..stop.max(start) {
            bytes += opened.entry(index, &mut name).map_err(Error::CatalogEntry)?.bytes;
        }
    }
    Ok(bytes)
}

/// Checks that the folders of a catalog have not changed. Objects are checked when they are read.
pub(crate) fn check_unchanged(opened: &OpenCatalog) -> Result<(), Error> {
    if opened.is_of_objects() {
        return Ok(());
    }
    let changes = opened.changes(listing_threads(), &Stop::default()).map_err(Error::Catalog)?;
    if changes.is_empty() {
        return Ok(());
    }
    let first = changes.first.first().map_or_else(String::new, ToString::to_string);
    Err(Error::CatalogChanged {
        catalog: opened.path().to_owned(),
        root: opened.root().to_owned(),
        first,
        more: changes.changed - 1,
    })
}

/// The files of one split of a catalog.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CatalogSplit<'a> {
    pub opened: &'a OpenCatalog,
    pub first: u64,
}

impl FileList for CatalogSplit<'_> {
    fn entry(&self, index: u64, name: &mut Name) -> Result<FileEntry, String> {
        let lookup = self.opened.entry(self.first + index, name);
        lookup.map_err(|error| format!("{}: {error}", self.opened.path().display()))
    }
}
