//! Folders that a user names: checking them, creating them, and quoting them for a shell.

use std::io;
use std::path::{Path, PathBuf};

use model::location::Location;

use crate::error::Error;

/// Checks that a path is a folder or can become one; anything else in its place is a usage error.
pub fn check_folder(path: &Path, what: &'static str) -> Result<(), Error> {
    match std::fs::metadata(path) {
        Ok(facts) if !facts.is_dir() => Err(Error::NotAFolder { what, path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Err(Error::BelowAFile { what, path: path.to_owned() })
        }
        _ => Ok(()),
    }
}

/// The folder at a location; an error if this version cannot use the location.
pub fn local(place: &Location) -> Result<PathBuf, Error> {
    Ok(place.path()?.to_owned())
}

/// Creates a folder and its parents so that their names survive a power failure.
pub fn make_folder(path: &Path, what: &'static str) -> Result<(), Error> {
    let made = store::make_path(path).map(drop);
    made.map_err(|cause| Error::MakeFolder { what, path: path.to_owned(), cause })
}

/// A path as an argument of a command that a user can paste.
pub fn path_argument(path: &Path) -> String {
    let path = path.display().to_string();
    // A path that starts with a dash would be a flag.
    if path.starts_with('-') { quoted(&format!("./{path}")) } else { quoted(&path) }
}

/// A word quoted for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
