//! Why there is no ledger, or no data set. Each error names its object and what to do, and says how the work ended;
//! front ends map that to their exit codes.

use std::path::PathBuf;

use engine::Refused;
use engine::catalog::ScanError;
use engine::checkpoint::CheckpointError;
use engine::generate::GenerateError;
use engine::host::Room;
use format::FormatError;
use model::catalog::CatalogError;
use model::checkpoint::Scale;
use model::ledger::Phase;
use model::location::Unsupported;
use model::plan::{MemoryTerm, PlanError};
use model::spec::SpecError;
use model::units::{Bytes, counted, grouped};
use store::{BACKENDS, StoreError};
use thiserror::Error;

/// How work ends that has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// What was asked for is wrong.
    Usage,
    /// The request is sound, but not here and now.
    Refused,
    /// Begun and not finished.
    Incomplete,
    /// Finished, and a check failed.
    CheckFailed,
    /// A fault of feedline itself.
    Internal,
}

#[derive(Debug, Error)]
pub enum Error {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("dataset.format '{name}' is known but cannot be written or read; the formats are {known}")]
    UnsupportedFormat { name: String, known: String },
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(transparent)]
    Location(#[from] Unsupported),
    #[error(transparent)]
    StoreArguments(StoreError),
    #[error(
        "{key} asks for reads past the page cache, but the store {store} reads through it; choose --store {}, or take \
         one of the two away", BACKENDS.past_page_cache()
    )]
    CachedStore { key: &'static str, store: String },
    #[error("reader.preprocess: decode needs the bytes of the samples, and the store {0} brings none")]
    NoBytesToDecode(String),
    #[error(
        "reader.preprocess: decode has nothing to decode in files of {0} read so; docs/formats.md says what it decodes"
    )]
    NothingToDecode(String),
    #[error(
        "storage.storage_type '{0}' is not supported yet; this version reads local and mounted files (local_fs)"
    )]
    UnsupportedStorage(&'static str),
    #[error("the {what} {} is a file, not a folder", path.display())]
    NotAFolder { what: &'static str, path: PathBuf },
    #[error("the {what} {} lies below a file, not a folder", path.display())]
    BelowAFile { what: &'static str, path: PathBuf },
    #[error("cannot make the {what} {}: {cause}", path.display())]
    MakeFolder { what: &'static str, path: PathBuf, cause: StoreError },
    #[error("cannot use the data folder: {0}")]
    DataFolder(StoreError),
    #[error(transparent)]
    Store(StoreError),
    #[error(transparent)]
    Catalog(ScanError),
    #[error(transparent)]
    CatalogEntry(CatalogError),
    #[error(
        "dataset.{key} is {}, but the catalog {} lists only {}; lower it or list the right folder",
        grouped(*asked), catalog.display(), grouped(*there)
    )]
    CatalogTooSmall { key: &'static str, asked: u64, there: u64, catalog: PathBuf },
    #[error(
        "the data is no longer as the catalog {} says: {first}{}\n\
         list again what changed with: feedline catalog {} --refresh",
        catalog.display(),
        if *more > 0 { format!(" and {more} more") } else { String::new() },
        root.display()
    )]
    CatalogChanged { catalog: PathBuf, root: PathBuf, first: String, more: u64 },
    #[error(
        "dataset.catalog is {0}, but compressed data that is to be generated is read through a catalog of its own; \
         take dataset.catalog away"
    )]
    CatalogOfCompressed(String),
    #[error("dataset.catalog names {0}, but the data set is to be generated; take one of the two away")]
    CatalogOfGenerated(String),
    #[error("the data is not as the catalog says: {what}\nlist it again with: feedline catalog {folder}")]
    NotAsListed { what: String, folder: String },
    #[error("the data set is not there, or was generated with other settings: {what}\n{how_to_generate}")]
    NoDataSet { what: String, how_to_generate: String },
    #[error(
        "the data set in {} was generated with other settings: {difference}{hint}\n\
         choose another folder with --data-dir, or the settings that it was made with",
        folder.display()
    )]
    OtherDataSet { folder: PathBuf, difference: String, hint: String },
    #[error("the plan lists existing files, but no catalog is open")]
    NoCatalog,
    #[error("the files are listed in a catalog, so they exist already")]
    FilesExist,
    #[error("{0} has no data set: its workflow neither trains nor generates")]
    NoDataSetAtAll(String),
    #[error(
        "the run needs {}, but only {room}{}", Bytes(*needed),
        largest.as_ref().map_or(String::new(), |term| format!(
            "; the largest part is {} for {}: lower {}", Bytes(term.bytes), term.what, term.lower
        ))
    )]
    TooLittleMemory { needed: u64, room: Room, largest: Option<MemoryTerm> },
    #[error(
        "the run needs {}, but only {room}; lower checkpoint.pool_size, checkpoint.files_in_flight or \
         checkpoint.chunk_size", Bytes(*needed)
    )]
    TooLittleMemoryToSave { needed: u64, room: Room },
    #[error(
        "the page cache cannot be made warm: the run and the files that an epoch reads are {}, but only {room}; read \
         fewer files, or leave reader.cache at cold", Bytes(*needed)
    )]
    TooLittleMemoryToWarm { needed: u64, room: Room },
    #[error(
        "the data set needs {}, but only {} are free at {}", Bytes(*needed), Bytes(*free), folder.display()
    )]
    DiskTooSmall { needed: u64, free: u64, folder: PathBuf },
    #[error(transparent)]
    Cache(Refused),
    #[error("{key}: {cause}; checkpoints can be written to {}", BACKENDS.for_checkpoints())]
    UnknownTier { key: &'static str, cause: StoreError },
    #[error(
        "the fast tier is {fast} and the last one {last}: of two tiers both hold files or both are simulated; set \
         checkpoint.burst_store or checkpoint.store"
    )]
    MixedTiers { fast: String, last: String },
    #[error(
        "--save burst-buffer needs a fast tier: set checkpoint.burst_folder, or checkpoint.burst_store to sim:DEVICE"
    )]
    NoFastTier,
    #[error(
        "checkpoint.burst_folder is the checkpoint folder itself; the fast tier needs a folder of its own"
    )]
    SameTier,
    #[error(
        "{} would take {} in {}, where {} are free; choose another --checkpoint-dir or a smaller --scale such as \
         {smaller}, or fewer at once (checkpoint.num_checkpoints_write, checkpoint.keep_last)",
        counted(*count, "checkpoint"), Bytes(*needed), folder.display(), Bytes(*free)
    )]
    NoRoomForCheckpoints { count: u64, needed: u64, folder: PathBuf, free: u64, smaller: Scale },
    #[error("cannot use the checkpoint folder: {0}")]
    CheckpointFolder(StoreError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// Met before anything was written.
    #[error(transparent)]
    Manifest(GenerateError),
    #[error(transparent)]
    Listing(ScanError),
    #[error("the run stopped in epoch {epoch} ({phase}): {message}")]
    Stopped { epoch: u64, phase: Phase, message: String },
}

impl Error {
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Spec(_)
            | Error::Plan(_)
            | Error::Format(_)
            | Error::StoreArguments(_)
            | Error::CachedStore { .. }
            | Error::NoBytesToDecode(_)
            | Error::NothingToDecode(_)
            | Error::NotAFolder { .. }
            | Error::BelowAFile { .. }
            | Error::CatalogOfCompressed(_)
            | Error::CatalogOfGenerated(_)
            | Error::NoDataSetAtAll(_)
            | Error::UnknownTier { .. }
            | Error::MixedTiers { .. }
            | Error::NoFastTier
            | Error::SameTier => ErrorKind::Usage,
            Error::UnsupportedFormat { .. }
            | Error::UnsupportedStorage(_)
            | Error::Location(_)
            | Error::MakeFolder { .. }
            | Error::DataFolder(_)
            | Error::Store(_)
            | Error::Catalog(_)
            | Error::CatalogEntry(_)
            | Error::CatalogTooSmall { .. }
            | Error::CatalogChanged { .. }
            | Error::NotAsListed { .. }
            | Error::NoDataSet { .. }
            | Error::FilesExist
            | Error::OtherDataSet { .. }
            | Error::TooLittleMemory { .. }
            | Error::TooLittleMemoryToSave { .. }
            | Error::TooLittleMemoryToWarm { .. }
            | Error::DiskTooSmall { .. }
            | Error::NoRoomForCheckpoints { .. }
            | Error::CheckpointFolder(_)
            | Error::Manifest(_) => ErrorKind::Refused,
            Error::Cache(Refused::Stuck(_)) | Error::Checkpoint(CheckpointError::Interrupted) => {
                ErrorKind::Incomplete
            }
            Error::Cache(_) | Error::Checkpoint(_) => ErrorKind::Refused,
            Error::Listing(_) | Error::Stopped { .. } => ErrorKind::Incomplete,
            Error::NoCatalog => ErrorKind::Internal,
            Error::Generate(error) => of_generation(error),
        }
    }
}

fn of_generation(error: &GenerateError) -> ErrorKind {
    match error {
        GenerateError::Format(_) | GenerateError::Panicked(_) => ErrorKind::Internal,
        GenerateError::Store(StoreError::Busy { .. } | StoreError::NotOurs { .. })
        | GenerateError::OtherDataSet(_)
        | GenerateError::Unclaimed { .. }
        | GenerateError::Catalogued
        | GenerateError::Manifest { .. } => ErrorKind::Refused,
        GenerateError::Differs { .. } | GenerateError::Miscounted { .. } => ErrorKind::CheckFailed,
        _ => ErrorKind::Incomplete,
    }
}
