//! Why there is no ledger or no data set. Each error names its object, says what to do, and has a kind, which front
//! ends map to their exit codes.

use std::path::{Path, PathBuf};

use engine::catalog::ScanError;
use engine::checkpoint::CheckpointError;
use engine::generate::GenerateError;
use engine::host::AvailableMemory;
use engine::world::{DistributionError, EarlyEnd};
use engine::{CacheError, SharingError};
use format::FormatError;
use model::catalog::CatalogError;
use model::checkpoint::Scale;
use model::ledger::Phase;
use model::location::{Location, Unsupported};
use model::plan::{MemoryTerm, PlanError};
use model::spec::SpecError;
use model::units::{Bytes, counted, grouped};
use serde::{Deserialize, Serialize};
use store::{BACKENDS, StoreError};
use thiserror::Error;

use crate::folder::path_argument;
use crate::likeness::MemberDifference;

/// How work without a result ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorKind {
    /// The request is wrong.
    Usage,
    /// The request is valid, but cannot be carried out here and now.
    Refused,
    /// Started but not finished.
    Incomplete,
    /// Finished, but a check failed.
    CheckFailed,
    /// A bug in feedline.
    Internal,
}

/// An error of one member, as all members know it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{process}: {message}")]
pub struct MemberFailure {
    /// The member, such as `process 2 on c07`.
    pub process: String,
    pub kind: ErrorKind,
    pub message: String,
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
        "{key} bypasses the page cache, but the backend {store} reads through it; use --store {}, or remove one of \
         the two", BACKENDS.past_page_cache()
    )]
    CachedStore { key: &'static str, store: String },
    #[error("{}", wrong_place(store, *holds_objects, place, fits))]
    WrongPlace {
        store: String,
        holds_objects: bool,
        place: Location,
        /// The backend for this place.
        fits: &'static str,
    },
    #[error(
        "{folder_key} is {place}, where the backend {store} cannot store anything; set {store_key} to {fits}, or leave \
         it out"
    )]
    WrongTierPlace {
        store: String,
        store_key: &'static str,
        place: Box<Location>,
        folder_key: &'static str,
        fits: &'static str,
    },
    #[error("the {what} {place} names no bucket; write {scheme}://BUCKET/PREFIX")]
    NoBucket { what: &'static str, place: Location, scheme: &'static str },
    #[error("reader.preprocess: decode needs the bytes of the samples, but the backend {0} returns none")]
    NoBytesToDecode(String),
    #[error(
        "reader.preprocess: nothing can be decoded in {0} files that are read this way; see 'feedline docs formats'"
    )]
    NothingToDecode(String),
    #[error("storage.storage_type '{name}' is not supported; {instead}")]
    UnsupportedStorage { name: &'static str, instead: &'static str },
    #[error("{0}")]
    ObjectSettings(String),
    #[error("the {what} {} is a file, not a folder", path.display())]
    NotAFolder { what: &'static str, path: PathBuf },
    #[error("the {what} {} is below a file, not a folder", path.display())]
    BelowAFile { what: &'static str, path: PathBuf },
    #[error("cannot create the {what} {}: {cause}", path.display())]
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
        "dataset.{key} is {}, but the catalog {} lists only {}; lower it, or list another folder",
        grouped(*asked), catalog.display(), grouped(*there)
    )]
    CatalogTooSmall { key: &'static str, asked: u64, there: u64, catalog: PathBuf },
    #[error(
        "the data has changed since the catalog {} was made: {first}{}\n\
         to update the catalog, run: {}",
        catalog.display(),
        if *more > 0 { format!(" and {more} more") } else { String::new() },
        refresh(catalog, root)
    )]
    CatalogChanged { catalog: PathBuf, root: PathBuf, first: String, more: u64 },
    #[error(
        "dataset.catalog is {0}, but generated data that is compressed has its own catalog; \
         remove dataset.catalog"
    )]
    CatalogOfCompressed(String),
    #[error("dataset.catalog names {0}, but the data set is generated; remove one of the two")]
    CatalogOfGenerated(String),
    #[error(
        "the data does not match its catalog: {what}\nto make the catalog again, run: feedline catalog {folder}"
    )]
    NotAsListed { what: String, folder: String },
    #[error("the data set is missing, or was generated with other settings: {what}\n{how_to_generate}")]
    NoDataSet { what: String, how_to_generate: String },
    #[error("the files in {place} are not a data set of this workload: {what}\n{hint}")]
    NotThisDataSet { place: Location, what: String, hint: String },
    #[error(
        "{here} and {there} find different files in {place}; make the same data set available on all nodes"
    )]
    MembersDiffer { place: Location, here: String, there: String },
    #[error("{cause}\nto train on these files as they are, {how_to_keep}")]
    KeepsForeign { cause: Box<GenerateError>, how_to_keep: &'static str },
    #[error(
        "the data set in {place} was generated with other settings: {difference}{hint}\n\
         choose another folder with --data-dir, or use its settings"
    )]
    OtherDataSet { place: Location, difference: String, hint: String },
    #[error(
        "the data set in {place} was written by another version of feedline: {difference}\n\
         write every file again with feedline generate --overwrite, or choose another folder with --data-dir"
    )]
    OtherLayout { place: Location, difference: String },
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
    TooLittleMemory { needed: u64, room: AvailableMemory, largest: Option<MemoryTerm> },
    #[error(
        "the run needs {}, but only {room}; lower checkpoint.pool_size, checkpoint.files_in_flight or \
         checkpoint.chunk_size", Bytes(*needed)
    )]
    TooLittleMemoryToSave { needed: u64, room: AvailableMemory },
    #[error(
        "the page cache cannot be made warm: the run and the files of an epoch need {}, but only {room}; read \
         fewer files, or use --cache cold", Bytes(*needed)
    )]
    TooLittleMemoryToWarm { needed: u64, room: AvailableMemory },
    #[error(
        "the data set needs {}, but only {} are free at {}; choose another folder with --data-dir, or lower \
         dataset.num_files_train", Bytes(*needed), Bytes(*free), folder.display()
    )]
    DiskTooSmall { needed: u64, free: u64, folder: PathBuf },
    #[error(transparent)]
    Cache(CacheError),
    #[error("{key}: {cause}; checkpoints can be written to {}", BACKENDS.for_checkpoints())]
    UnknownTier { key: &'static str, cause: StoreError },
    #[error(
        "the fast tier is {fast} and the last one {last}: both tiers must store files, or both must be simulated; set \
         checkpoint.burst_store or checkpoint.store"
    )]
    MixedTiers { fast: String, last: String },
    #[error(
        "--save burst-buffer needs a fast tier: set checkpoint.burst_folder, or checkpoint.burst_store to sim:DEVICE"
    )]
    NoFastTier,
    #[error(
        "checkpoint.burst_folder is the checkpoint folder itself; choose another folder for the fast tier"
    )]
    SameTier,
    #[error(
        "{} would need {} in {}, but only {} are free; choose another --checkpoint-dir or a smaller --scale such as \
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
    /// Occurred before anything was written.
    #[error(transparent)]
    Manifest(GenerateError),
    #[error(transparent)]
    Listing(ScanError),
    #[error("the run stopped in epoch {epoch} ({phase}): {message}")]
    Stopped { epoch: u64, phase: Phase, message: String },
    #[error(
        "train.computation_time is 0, so the demand of an accelerator is unlimited; set it to the time of a step"
    )]
    NoComputeTime,
    #[error(
        "too few steps, {steps}: {needed} are needed, {warm_up} to fill the pipeline and 20 for each batch that \
         can be ready in advance; raise --steps or dataset.num_files_train, or lower reader.prefetch_size"
    )]
    TooFewSteps { steps: u64, needed: u64, warm_up: u64 },
    #[error("the runs are too short to measure; raise --steps")]
    TooShortToMeasure,
    /// A member ended the run. All members know it, and can do nothing together afterwards.
    #[error(transparent)]
    Member(Box<EarlyEnd>),
    /// A member could not do its part, and the others could, or could not for other reasons.
    #[error(transparent)]
    At(Box<MemberFailure>),
    /// What the members must have in common differs between these two.
    #[error("{}", .0.2.between(&.0.0, &.0.1))]
    Unlike(Box<(String, String, MemberDifference)>),
    #[error(
        "the number of ranks varies, so it cannot be given for each process; leave out --ranks-per-process"
    )]
    FixedRanks,
    #[error(
        "--up-to {up_to} is less than the number of processes, {least}: each of them plays at least one accelerator; \
         start fewer processes, or raise --up-to"
    )]
    TooFewRanksToSearch { up_to: u64, least: u64 },
    #[error(transparent)]
    Distribution(#[from] DistributionError),
    #[error("interrupted")]
    Interrupted,
    #[error("interrupted in the {0}")]
    InterruptedIn(String),
    /// One of the runs of a study, and the error that it ended with.
    #[error("{run}")]
    During { run: String, source: Box<Error> },
}

impl From<EarlyEnd> for Error {
    fn from(ended: EarlyEnd) -> Error {
        Error::Member(Box::new(ended))
    }
}

impl Error {
    /// The same error about a location for checkpoints, whose backend and folder these keys give.
    pub(crate) fn of_tier(self, store_key: &'static str, folder_key: &'static str) -> Error {
        match self {
            Error::WrongPlace { store, place, fits, .. } => {
                Error::WrongTierPlace { store, store_key, place: Box::new(place), folder_key, fits }
            }
            Error::NoBucket { place, scheme, .. } => {
                Error::NoBucket { what: "checkpoint folder", place, scheme }
            }
            other => other,
        }
    }

    /// The same error with the run of a study that it ended.
    pub(crate) fn during(self, run: String) -> Error {
        Error::During { run, source: Box::new(self) }
    }

    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Spec(_)
            | Error::Plan(_)
            | Error::Format(_)
            | Error::StoreArguments(_)
            | Error::CachedStore { .. }
            | Error::WrongPlace { .. }
            | Error::WrongTierPlace { .. }
            | Error::NoBucket { .. }
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
            | Error::SameTier
            | Error::NoComputeTime
            | Error::Distribution(_)
            | Error::FixedRanks
            | Error::TooFewRanksToSearch { .. }
            | Error::TooFewSteps { .. } => ErrorKind::Usage,
            Error::UnsupportedFormat { .. }
            | Error::UnsupportedStorage { .. }
            | Error::Location(_)
            | Error::ObjectSettings(_)
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
            | Error::OtherLayout { .. }
            | Error::NotThisDataSet { .. }
            | Error::MembersDiffer { .. }
            | Error::Unlike(_)
            | Error::KeepsForeign { .. }
            | Error::TooLittleMemory { .. }
            | Error::TooLittleMemoryToSave { .. }
            | Error::TooLittleMemoryToWarm { .. }
            | Error::DiskTooSmall { .. }
            | Error::NoRoomForCheckpoints { .. }
            | Error::CheckpointFolder(_)
            | Error::Manifest(_) => ErrorKind::Refused,
            Error::Cache(CacheError::Stuck(_)) | Error::Checkpoint(CheckpointError::Interrupted) => {
                ErrorKind::Incomplete
            }
            Error::Cache(_) | Error::Checkpoint(_) => ErrorKind::Refused,
            Error::At(failure) => failure.kind,
            Error::Member(_)
            | Error::Listing(_)
            | Error::Stopped { .. }
            | Error::TooShortToMeasure
            | Error::Interrupted
            | Error::InterruptedIn(_) => ErrorKind::Incomplete,
            Error::During { source, .. } => source.kind(),
            Error::NoCatalog => ErrorKind::Internal,
            Error::Generate(error) => of_generation(error),
        }
    }
}

/// Why a backend cannot be used at a location, and what to do.
fn wrong_place(store: &str, holds_objects: bool, place: &Location, fits: &str) -> String {
    let remedy = format!("use --store {fits}, or leave out --store and storage.store");
    match (holds_objects, place) {
        (false, _) => {
            format!("the backend {store} reads files in folders, but {place} is in an object store; {remedy}")
        }
        (true, Location::Objects(_)) => format!("the backend {store} cannot read {place}; {remedy}"),
        (true, _) => format!(
            "the backend {store} reads objects, but {place} is a folder; give the location as a URL such as \
             s3://BUCKET/PREFIX, or {remedy}"
        ),
    }
}

/// The command that updates a catalog.
fn refresh(catalog: &Path, root: &Path) -> String {
    let output = match catalog == engine::catalog::default_place(root) {
        true => String::new(),
        false => format!(" --output {}", path_argument(catalog)),
    };
    format!("feedline catalog {} --refresh{output}", path_argument(root))
}

fn of_generation(error: &GenerateError) -> ErrorKind {
    match error {
        GenerateError::Format(_) | GenerateError::Panicked(_) => ErrorKind::Internal,
        GenerateError::Store(StoreError::Busy { .. } | StoreError::NotOurs { .. })
        | GenerateError::OtherDataSet(_)
        | GenerateError::Unclaimed { .. }
        | GenerateError::Catalogued
        | GenerateError::Sharing(SharingError::NotShared { .. })
        | GenerateError::Manifest { .. } => ErrorKind::Refused,
        // Nothing can have been written.
        GenerateError::Store(StoreError::Rejected { refusal, .. })
            if matches!(refusal.code.as_str(), "NoSuchBucket" | "ContainerNotFound") =>
        {
            ErrorKind::Refused
        }
        GenerateError::Differs { .. } | GenerateError::Miscounted { .. } => ErrorKind::CheckFailed,
        _ => ErrorKind::Incomplete,
    }
}
