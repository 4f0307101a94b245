//! Folders and other places that a user names: checking them, creating them, and quoting them for a shell.

use std::io;
use std::path::{Path, PathBuf};

use model::location::Location;

use crate::error::Error;

/// Checks that a path is a folder or can become one; anything else in its place is a usage error.
pub fn check_folder(path: &Path, what: &'static str) -> Result<(), Error> {
    Location::parse(path).path()?;
    match std::fs::metadata(path) {
        Ok(facts) if !facts.is_dir() => Err(Error::NotAFolder { what, path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Err(Error::BelowAFile { what, path: path.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Checks that a location can hold data or become able to, as far as that is known without a request.
pub fn check_place(place: &Location, what: &'static str) -> Result<(), Error> {
    match place.objects()? {
        Some(objects) if objects.bucket.is_empty() => {
            Err(Error::NoBucket { what, place: place.clone(), scheme: objects.service.name() })
        }
        Some(_) => Ok(()),
        None => check_folder(place.path()?, what),
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

/// A location as an argument of a command that a user can paste.
pub fn place_argument(place: &Location) -> String {
    match place {
        Location::Path(path) => path_argument(path),
        place => quoted(&place.to_string()),
    }
}

/// A word quoted for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
