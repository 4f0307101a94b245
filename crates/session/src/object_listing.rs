//! Data sets in object stores through their catalog: which catalog a run uses, and what a listing needs from the host.

use std::path::{Path, PathBuf};

use engine::catalog::{OpenCatalog, open_object_catalog};
use model::location::Location;
use model::objects::ObjectPlace;
use store::Selection;

use crate::ask::Asked;
use crate::backend::at_first_attempt;
use crate::error::Error;
use crate::listing::OFF;

/// Ranges of keys that are listed at once when the user names no number. A request waits for the server, so this does
/// not depend on the host.
pub const LISTED_AT_ONCE: usize = 16;

/// Opens the catalog that the workload names, or the object next to the data, which is copied once per process.
pub(crate) fn open(
    asked: &Asked,
    place: &ObjectPlace,
    selection: &Selection,
) -> Result<Option<OpenCatalog>, Error> {
    let opened = match asked.spec.dataset.catalog.as_deref() {
        Some(OFF) => Ok(None),
        Some(path) => OpenCatalog::of_objects(Path::new(path), &place.to_string()).map(Some),
        // A plan asks a store only if the user names it, and can do without it.
        None if asked.ask.only_plans && asked.ask.data.is_none() => Ok(None),
        None if asked.ask.only_plans => {
            Ok(beside(place, &at_first_attempt(selection.clone())).unwrap_or_default())
        }
        None => return beside(place, selection),
    };
    opened.map_err(Error::Catalog)
}

/// The catalog next to the data.
fn beside(place: &ObjectPlace, selection: &Selection) -> Result<Option<OpenCatalog>, Error> {
    let store = selection.open(Location::Objects(place.clone())).map_err(Error::DataFolder)?;
    open_object_catalog(&*store, &std::env::temp_dir()).map_err(Error::Catalog)
}

/// Where the progress of listings is kept between commands: `$XDG_STATE_HOME/feedline`, or `~/.local/state/feedline`.
/// `None` if the environment names neither.
pub fn state_folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("feedline"))
}
