//! Whether all members of a run see the same place. All of them work on it, so a folder that is not shared would leave
//! a part of the result on every host.
//!
//! A member that can create what member 0 has already created is on another file system or object store. Unlike looking
//! for it, this needs no wait: a network file system may cache for a minute that a name does not exist.

use std::path::Path;

use model::location::Location;
use store::{CreatedFolder, Files, FolderHandle, StoreError};
use thiserror::Error;

use crate::stop::Stop;
use crate::world::{EarlyEnd, Exchange, agreed, entropy};

/// Why members cannot work on a place together.
#[derive(Debug, Error)]
pub enum SharingError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Without the name of this member: the others add it, and only they print it.
    #[error("{}", not_shared(place, there))]
    NotShared { place: Location, there: String },
    #[error(transparent)]
    Elsewhere(Box<EarlyEnd>),
}

impl From<EarlyEnd> for SharingError {
    fn from(ended: EarlyEnd) -> SharingError {
        SharingError::Elsewhere(Box::new(ended))
    }
}

impl SharingError {
    /// For a member that sees another place than member 0.
    pub(crate) fn not_shared(place: impl Into<Location>, world: &dyn Exchange) -> SharingError {
        SharingError::NotShared { place: place.into(), there: world.topology().shown(0) }
    }
}

fn not_shared(place: &Location, there: &str) -> String {
    match place {
        Location::Objects(_) => format!(
            "{place} is not the place that {there} has at this URL; give all processes the same endpoint and the same \
             account"
        ),
        _ => format!(
            "{place} is not the folder that {there} has at this path; choose a folder on storage that all nodes share, \
             or start the processes on one node"
        ),
    }
}

/// Creates a folder and its parents. If it is shared, only member 0 finds them missing; if not, none is left.
pub fn make_shared_folder(path: &Path, world: &dyn Exchange, stop: &Stop) -> Result<(), SharingError> {
    let mut made = Vec::new();
    let outcome = one_first(world, stop, || {
        made = store::make_path(path)?;
        let is_shared = world.member() == 0 || made.is_empty();
        if is_shared { Ok(()) } else { Err(SharingError::not_shared(path, world)) }
    });
    if outcome.is_err() {
        made.iter().rev().for_each(CreatedFolder::undo);
    }
    outcome
}

/// Checks that a folder is shared, by means of a folder in it that exists only meanwhile.
pub(crate) fn check_shared(path: &Path, world: &dyn Exchange, stop: &Stop) -> Result<(), SharingError> {
    if world.members() == 1 {
        return Ok(());
    }
    let name = format!(".shared-{:016x}", entropy(world, stop)?);
    let mark = || FolderHandle::open(path)?.make_folder(&name);
    let unmark = || FolderHandle::open(path)?.remove_folder(&name);
    check_marks(&path.into(), world, stop, &mark, &unmark)
}

/// Checks that the place of a store is shared, in the same way.
pub(crate) fn check_shared_store(
    files: &dyn Files,
    place: &Location,
    world: &dyn Exchange,
    stop: &Stop,
) -> Result<(), SharingError> {
    if world.members() == 1 {
        return Ok(());
    }
    let name = format!("{:016x}", entropy(world, stop)?);
    check_marks(place, world, stop, &|| files.mark(&name), &|| files.unmark(&name))
}

/// Checks that all members see the mark that member 0 sets with `mark`, which returns whether it was not set.
fn check_marks(
    place: &Location,
    world: &dyn Exchange,
    stop: &Stop,
    mark: &dyn Fn() -> Result<bool, StoreError>,
    unmark: &dyn Fn() -> Result<(), StoreError>,
) -> Result<(), SharingError> {
    let outcome = one_first(world, stop, || match mark()? {
        true if world.member() > 0 => {
            unmark()?;
            Err(SharingError::not_shared(place.clone(), world))
        }
        _ => Ok(()),
    });
    if world.member() == 0 {
        // Best effort: it is empty and hidden, so nothing counts or lists it.
        let _ = unmark();
    }
    outcome
}

/// Does something at member 0 first, and then at all others.
fn one_first(
    world: &dyn Exchange,
    stop: &Stop,
    mut work: impl FnMut() -> Result<(), SharingError>,
) -> Result<(), SharingError> {
    let is_first = world.member() == 0;
    agreed(world, if is_first { work() } else { Ok(()) }, stop)?;
    agreed(world, if is_first { Ok(()) } else { work() }, stop)
}
