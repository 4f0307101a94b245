//! The format and the backend that flags, workload and location select, and whether they match.

use format::{Format, FormatKind, FormatOptions};
use model::location::Location;
use model::objects::{ObjectOptions, RetryPolicy};
use model::spec::{Override, Preprocess, Spec, StorageType};
use model::units::Nanos;
use model::warning::Warning;
use store::{Mode, Selection};

use crate::ask::{Ask, Asked, WorkloadText};
use crate::error::Error;
use crate::objects;
use crate::objects::StoreUser;

/// The backend of a workload that names none, for data in a folder.
pub const DEFAULT_STORE: &str = "posix";

/// The workload's format with its settings.
pub fn format_of(spec: &Spec) -> Result<Box<dyn Format>, Error> {
    let name = &spec.dataset.format;
    let unsupported = || Error::UnsupportedFormat { name: name.clone(), known: format::names() };
    let kind = FormatKind::named(name).ok_or_else(unsupported)?;
    Ok(kind.build(&FormatOptions::of(spec))?)
}

/// How a workload requests access to its files.
pub fn mode(spec: &Spec) -> Mode {
    let odirect = spec.reader.odirect || spec.storage.storage_type == StorageType::DirectFs;
    Mode { readahead: spec.reader.readahead, odirect }
}

/// The backend for data at a location: the one that was asked for, then `storage.store`, then the service of an object
/// store or, for a folder, what `reader.odirect` and `storage.storage_type` request.
pub fn select(ask: &Ask, spec: &Spec, place: &Location) -> Result<PlacedBackend, Error> {
    let mode = mode(spec);
    let named = ask.store.as_deref().or(spec.storage.store.as_deref());
    let name = named.unwrap_or_else(|| default_store(place, mode));
    let selection = ask.registry.select(name, mode).map_err(Error::StoreArguments)?;
    let plan = selection.plan();
    if mode.odirect && plan.cached {
        let key = if spec.reader.odirect { "reader.odirect" } else { "storage.storage_type: direct_fs" };
        return Err(Error::CachedStore { key, store: name.to_owned() });
    }
    if spec.reader.preprocess == Preprocess::Decode {
        if !plan.brings_bytes {
            return Err(Error::NoBytesToDecode(name.to_owned()));
        }
        if !format_of(spec)?.decodes() || spec.reads_whole_files() {
            return Err(Error::NothingToDecode(spec.dataset.format.clone()));
        }
    }
    selection.check().map_err(Error::StoreArguments)?;
    placed(selection, ask, spec, place)
}

/// The backend for data at a location if none is named.
pub(crate) fn default_store(place: &Location, mode: Mode) -> &'static str {
    match place {
        Location::Objects(place) => place.service.name(),
        _ if mode.odirect => "direct",
        _ => DEFAULT_STORE,
    }
}

/// A backend for a location, and what was given to reach an object store but is not used.
#[derive(Debug)]
pub struct PlacedBackend {
    pub selection: Selection,
    pub warnings: Vec<Warning>,
}

/// Checks that a backend finds data at a location, and tells it how to reach an object store there.
pub(crate) fn placed(
    selection: Selection,
    ask: &Ask,
    spec: &Spec,
    place: &Location,
) -> Result<PlacedBackend, Error> {
    let mut warnings = Vec::new();
    let selection = match place {
        // A plan can be made for it. It is refused where it is used.
        Location::Url { .. } => selection,
        _ if !selection.place().includes(place) => {
            return Err(Error::WrongPlace {
                store: selection.text(),
                holds_objects: selection.plan().is_objects(),
                place: place.clone(),
                fits: default_store(place, Mode::default()),
            });
        }
        Location::Objects(there) if there.bucket.is_empty() => {
            let scheme = there.service.name();
            return Err(Error::NoBucket { what: "data folder", place: place.clone(), scheme });
        }
        Location::Objects(there) if selection.plan().is_objects() => {
            let readers = ask.process.ranks.saturating_mul(spec.reader.read_threads.max(1));
            let user = StoreUser { process: ask.process.number, readers };
            let environment = |name: &str| std::env::var(name).ok();
            let (options, unused) = objects::options(spec, there, user, &environment)?;
            warnings = unused;
            selection.with_objects(options, engine::meter::unix_seconds)
        }
        _ => selection,
    };
    Ok(PlacedBackend { selection, warnings })
}

/// The backend for work that is not measured, such as reading manifests and writing data sets: files in a folder
/// through the page cache, or the objects of a service, whichever backend a run uses.
pub(crate) fn for_upkeep(ask: &Ask, spec: &Spec, place: &Location) -> Result<PlacedBackend, Error> {
    let mode = Mode::default();
    let selection = ask.registry.select(default_store(place, mode), mode).map_err(Error::StoreArguments)?;
    placed(selection, ask, spec, place)
}

/// How long a plan waits for an object store, which it can do without.
const PATIENCE: Nanos = Nanos(3_000_000_000);

/// The same backend without retries.
pub(crate) fn at_first_attempt(selection: Selection) -> Selection {
    let options = ObjectOptions::clone(&selection.objects);
    let retry = RetryPolicy { attempts: 1, deadline: PATIENCE, silence: PATIENCE, ..options.retry };
    selection.with_objects(ObjectOptions { retry, ..options }, engine::meter::unix_seconds)
}

/// The request of a command without a workload: settings and the environment say how to reach an object store.
pub fn ask_of_place(place: Location, settings: Vec<Override>) -> Result<Asked, Error> {
    let workload =
        WorkloadText { source: "defaults".to_owned(), text: "{}".to_owned(), ..WorkloadText::default() };
    Ask { overrides: settings, data: Some(place), ..Ask::new(workload) }.read()
}

/// Checks that this version supports the storage type.
pub(crate) fn check_storage(spec: &Spec) -> Result<(), Error> {
    let instead = match spec.storage.storage_type {
        StorageType::LocalFs
        | StorageType::ParallelFs
        | StorageType::DirectFs
        | StorageType::S3
        | StorageType::AdlsGen2 => return Ok(()),
        StorageType::Aistore => "use its S3 interface: storage.storage_type=s3 with its endpoint_url",
        StorageType::Fsspec => "name the store by a URL: --data-dir s3://, gs:// or az://",
        StorageType::Daos => "mount the container, and use local_fs",
    };
    Err(Error::UnsupportedStorage { name: spec.storage.storage_type.name(), instead })
}
