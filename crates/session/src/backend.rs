//! The format and the backend that flags and workload select, and whether they match.

use format::{Format, FormatKind, FormatOptions};
use model::spec::{Preprocess, Spec, StorageType};
use store::{Mode, Selection};

use crate::error::Error;

/// The backend of a workload that names none.
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

/// The backend: `asked` first, then `storage.store`, then what `reader.odirect` and `storage.storage_type` request.
pub fn select(spec: &Spec, asked: Option<&str>) -> Result<Selection, Error> {
    let mode = mode(spec);
    let named = asked.or(spec.storage.store.as_deref());
    let name = named.unwrap_or(if mode.odirect { "direct" } else { DEFAULT_STORE });
    let selection = Selection::named(name, mode).map_err(Error::StoreArguments)?;
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
    Ok(selection)
}

/// Checks that this version supports the storage type.
pub(crate) fn check_storage(spec: &Spec) -> Result<(), Error> {
    match spec.storage.storage_type {
        StorageType::LocalFs | StorageType::ParallelFs | StorageType::DirectFs => Ok(()),
        other => Err(Error::UnsupportedStorage(other.name())),
    }
}
