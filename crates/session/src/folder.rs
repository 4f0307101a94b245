//! Folders that a user names: whether they can be what they are to be, making them, and naming them in a command.

use std::io;
use std::path::{Path, PathBuf};

use model::location::Location;

use crate::error::Error;

/// A path that should become a folder, or be one: anything else in its place is the user's mistake.
pub fn check_folder(path: &Path, what: &'static str) -> Result<(), Error> {
    match std::fs::metadata(path) {
        Ok(facts) if !facts.is_dir() => Err(Error::NotAFolder { what, path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Err(Error::BelowAFile { what, path: path.to_owned() })
        }
        _ => Ok(()),
    }
}

/// The folder at a location; a location that this version cannot use is refused.
pub fn local(place: &Location) -> Result<PathBuf, Error> {
    Ok(place.path()?.to_owned())
}

/// Makes a folder with its parents, whose names survive a power failure.
pub fn make_folder(path: &Path, what: &'static str) -> Result<(), Error> {
    let made = store::make_path(path).map(drop);
    made.map_err(|cause| Error::MakeFolder { what, path: path.to_owned(), cause })
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
