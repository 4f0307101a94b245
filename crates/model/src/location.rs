//! Where data or checkpoints are: a file system path or a URL. Nothing here accesses the location.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::secret::redact_users;

/// A location given by a user. Where it is shown, the user and password of a URL are hidden.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    Path(PathBuf),
    /// Such as `s3://bucket/prefix`.
    Url {
        scheme: String,
        rest: String,
    },
}

/// A location that this version cannot use.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{scheme}:// is not supported yet ({location}); use a local or mounted folder")]
pub struct Unsupported {
    pub scheme: String,
    pub location: String,
}

impl Location {
    /// Parses user input. A URL starts with a scheme and `://`; everything else is a path.
    pub fn parse(text: impl AsRef<OsStr>) -> Location {
        let text = text.as_ref();
        match text.to_str().and_then(|text| text.split_once("://")) {
            Some((scheme, rest)) if is_scheme(scheme) => {
                Location::Url { scheme: scheme.to_ascii_lowercase(), rest: rest.to_owned() }
            }
            _ => Location::Path(PathBuf::from(text)),
        }
    }

    /// Resolves `name` below this location. A complete location replaces it, as an absolute path does.
    #[must_use]
    pub fn join(&self, name: &str) -> Location {
        match (self, Location::parse(name)) {
            (Location::Path(path), Location::Path(name)) => Location::Path(path.join(name)),
            (Location::Url { scheme, rest }, Location::Path(name)) => {
                let (rest, name) = (rest.trim_end_matches('/'), name.display().to_string());
                let name = name.trim_start_matches("./").trim_start_matches('/');
                Location::Url { scheme: scheme.clone(), rest: format!("{rest}/{name}") }
            }
            (_, url) => url,
        }
    }

    /// The path; an error for a URL.
    pub fn path(&self) -> Result<&Path, Unsupported> {
        match self {
            Location::Path(path) => Ok(path),
            Location::Url { scheme, .. } => {
                Err(Unsupported { scheme: scheme.clone(), location: self.to_string() })
            }
        }
    }
}

/// A letter, followed by letters, digits, `+`, `-` and `.` (RFC 3986).
fn is_scheme(text: &str) -> bool {
    let more = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(more)
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Location::Path(path) => path.display().fmt(f),
            Location::Url { scheme, rest } => f.write_str(&redact_users(&format!("{scheme}://{rest}"))),
        }
    }
}

impl std::fmt::Debug for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Location({self})")
    }
}

impl<P: AsRef<Path> + ?Sized> From<&P> for Location {
    fn from(path: &P) -> Location {
        Location::Path(path.as_ref().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_urls_are_distinguished() {
        for path in ["data", "/mnt/fast", "./a:b", "a/b://c", "://x", "1s://x", "", "it's here"] {
            let location = Location::parse(path);
            assert_eq!((location.path(), location.to_string()), (Ok(Path::new(path)), path.to_owned()));
        }
        for (text, scheme, shown) in [
            ("s3://bucket/data", "s3", "s3://bucket/data"),
            ("S3://bucket", "s3", "s3://bucket"),
            ("file:///data", "file", "file:///data"),
            ("s3://user:hunter2@host/data", "s3", "s3://************@host/data"),
        ] {
            let location = Location::parse(text);
            let refused = location.path().unwrap_err();
            assert_eq!((refused.scheme.as_str(), location.to_string().as_str()), (scheme, shown));
            assert_eq!(
                refused.to_string(),
                format!("{scheme}:// is not supported yet ({shown}); use a local or mounted folder")
            );
        }
    }

    #[test]
    fn names_are_joined() {
        for (place, name, joined) in [
            ("./", "./data/", "././data/"),
            ("/mnt", "/data", "/data"),
            ("s3://bucket", "data", "s3://bucket/data"),
            ("s3://bucket/", "./data/", "s3://bucket/data/"),
            ("/mnt", "s3://bucket/x", "s3://bucket/x"),
        ] {
            assert_eq!(Location::parse(place).join(name), Location::parse(joined), "{place} {name}");
        }
    }
}
