//! Errors while a data set is listed or its catalog is used. Every variant names the object.

use std::io;
use std::path::{Path, PathBuf};

use model::catalog::{BuildError, CatalogError};
use store::StoreError;
use thiserror::Error;

use crate::sharing::SharingError;
use crate::world::EarlyEnd;

#[derive(Debug, Error)]
pub enum ScanError {
    #[error("the data folder {} does not exist", .0.display())]
    Missing(PathBuf),
    #[error("the data folder {} is a file, not a folder", .0.display())]
    NotAFolder(PathBuf),
    #[error("cannot {operation} {}: {cause}", path.display())]
    Io { operation: &'static str, path: PathBuf, cause: io::Error },
    #[error("{} changed while it was being listed; list it again when no process writes to it", .0.display())]
    Changed(PathBuf),
    #[error(
        "there are no files in {}{}", root.display(),
        if *filtered { " with one of the given suffixes" } else { " to list" }
    )]
    Empty { root: PathBuf, filtered: bool },
    #[error(
        "cannot write the catalog into {}: {cause}; put it elsewhere with --output FILE",
        folder.display()
    )]
    Unwritable { folder: PathBuf, cause: io::Error },
    #[error(
        "{} is in the data folder and would be listed itself; omit --output or choose another place",
        .0.display()
    )]
    OutputInside(PathBuf),
    #[error(
        "{} exists and is not a catalog, so it is not replaced: remove it, or choose another place with --output",
        .0.display()
    )]
    InTheWay(PathBuf),
    #[error("another 'feedline catalog' is listing {}; wait until it ends", .0.display())]
    Busy(PathBuf),
    #[error("{} was made with other suffixes; list everything again without --refresh", .0.display())]
    OtherSuffixes(PathBuf),
    #[error("{}: {error}", path.display())]
    Catalog { path: PathBuf, error: CatalogError },
    #[error("cannot use the catalog: {0}")]
    Store(StoreError),
    #[error("{} cannot be added to a catalog: {error}", path.display())]
    Build { path: PathBuf, error: BuildError },
    #[error("interrupted; what was listed is kept, and the same command continues from there")]
    Interrupted,
    /// With the list of pending operations.
    #[error("{0}; what was listed is kept, and the same command continues from there")]
    Stuck(String),
    #[error(transparent)]
    Sharing(#[from] SharingError),
    #[error(
        "{here} and {there} have different catalogs at {}; use one that all nodes share", path.display()
    )]
    OtherCatalog { path: PathBuf, here: String, there: String },
    /// Another member ended early.
    #[error("{0}; what was listed is kept, and the same command continues from there")]
    Elsewhere(Box<EarlyEnd>),
    /// The server of an object store refused a request, or did not answer.
    #[error("{0}; what was listed is kept, and the same command continues from there")]
    Keys(StoreError),
    #[error(
        "the server does not list {place} correctly: {what}; a listing that may be incomplete is not used"
    )]
    WrongListing { place: String, what: String },
    #[error(
        "the server does not list {place} correctly: {what}, which is out of order; a listing that may be incomplete \
         is not used"
    )]
    OutOfOrder { place: String, what: String },
    #[error(
        "cannot write the catalog to {place}: {cause}; the listing is kept: the same command writes it again, or put \
         the catalog elsewhere with --output FILE"
    )]
    NotUploaded { place: String, cause: StoreError },
    #[error(
        "there is no folder for the progress of the listing, because neither XDG_STATE_HOME nor HOME is set; set \
         one of \
         them, or put the catalog into a file with --output FILE"
    )]
    NoStateFolder,
    #[error("the journal {} does not cover all names; remove it and list again", .0.display())]
    Gap(PathBuf),
    #[error("cannot start a listing thread: {0}")]
    Thread(io::Error),
    #[error("a listing thread panicked")]
    Panicked,
}

impl From<EarlyEnd> for ScanError {
    fn from(ended: EarlyEnd) -> ScanError {
        ScanError::Elsewhere(Box::new(ended))
    }
}

impl From<StoreError> for ScanError {
    fn from(cause: StoreError) -> ScanError {
        ScanError::Store(cause)
    }
}

impl ScanError {
    pub(super) fn io(operation: &'static str, path: &Path, cause: io::Error) -> ScanError {
        ScanError::Io { operation, path: path.to_owned(), cause }
    }

    /// A folder in which no catalog can be written: the user may choose another one.
    pub(super) fn unwritable(folder: &Path, cause: StoreError) -> ScanError {
        match cause {
            StoreError::Io { cause, .. } => {
                ScanError::Unwritable { folder: folder.to_owned(), cause: cause.into() }
            }
            cause => ScanError::Store(cause),
        }
    }
}
