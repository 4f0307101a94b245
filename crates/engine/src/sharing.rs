//! Whether all members of a run see the same folder. All of them work on it, so a folder that is not shared would leave
//! a part of the result on every host.
//!
//! A member that can create a folder that member 0 has already created is on another file system. Unlike looking for
//! the folder, this needs no wait: a network file system may cache for a minute that a name does not exist.

use std::path::{Path, PathBuf};

use store::{CreatedFolder, FolderHandle, StoreError};
use thiserror::Error;

use crate::stop::Stop;
use crate::world::{EarlyEnd, Exchange, agreed, entropy};

/// Why members cannot work on a folder together.
#[derive(Debug, Error)]
pub enum SharingError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Without the name of this member: the others add it, and only they print it.
    #[error(
        "{} is not the folder that {there} has at this path; choose a folder on storage that all nodes share, or \
         start the processes on one node", folder.display()
    )]
    NotShared { folder: PathBuf, there: String },
    #[error(transparent)]
    Elsewhere(Box<EarlyEnd>),
}

impl From<EarlyEnd> for SharingError {
    fn from(ended: EarlyEnd) -> SharingError {
        SharingError::Elsewhere(Box::new(ended))
    }
}

impl SharingError {
    /// For a member that sees another folder than member 0.
    pub(crate) fn not_shared(folder: &Path, world: &dyn Exchange) -> SharingError {
        SharingError::NotShared { folder: folder.to_owned(), there: world.topology().shown(0) }
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
    let outcome = one_first(world, stop, || {
        let folder = FolderHandle::open(path)?;
        match folder.make_folder(&name)? {
            true if world.member() > 0 => {
                folder.remove_folder(&name)?;
                Err(SharingError::not_shared(path, world))
            }
            _ => Ok(()),
        }
    });
    if world.member() == 0 {
        // Best effort: it is empty and hidden, so nothing counts or lists it.
        let _ = FolderHandle::open(path).and_then(|folder| folder.remove_folder(&name));
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
