//! Where data or checkpoints are: a file system path or a URL. Nothing here accesses the location.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::objects::{ObjectPlace, Service};
use crate::secret::redact_urls;

/// A location given by a user. Where it is shown, the user and password of a URL, and what signs it, are hidden.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    Path(PathBuf),
    /// Such as `s3://bucket/prefix`.
    Objects(ObjectPlace),
    /// A URL that feedline cannot use, also because it contains credentials.
    Url {
        scheme: String,
        rest: String,
    },
}

/// A location of the wrong kind.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unsupported {
    #[error("{scheme}:// is not supported ({location}); use a folder, s3://, gs:// or az://")]
    Scheme { scheme: String, location: String },
    #[error(
        "{location} contains credentials; give the location alone, and credentials in the environment or by the keys \
         that 'feedline docs objects' lists"
    )]
    Credentials { location: String },
    #[error("{location} is in an object store, but a folder is needed here")]
    NotAFolder { location: String },
}

impl Location {
    /// Parses user input. A URL starts with a scheme and `://`; everything else is a path.
    pub fn parse(text: impl AsRef<OsStr>) -> Location {
        let text = text.as_ref();
        match text.to_str().and_then(|text| text.split_once("://")) {
            Some((scheme, rest)) if is_scheme(scheme) => {
                let scheme = scheme.to_ascii_lowercase();
                match Service::of_scheme(&scheme) {
                    Some(service) if !has_credentials(rest) => {
                        Location::Objects(ObjectPlace::parse(service, rest))
                    }
                    _ => Location::Url { scheme, rest: rest.to_owned() },
                }
            }
            _ => Location::Path(PathBuf::from(text)),
        }
    }

    /// Resolves `name` below this location. A complete location replaces it, as an absolute path does.
    #[must_use]
    pub fn join(&self, name: &str) -> Location {
        match (self, Location::parse(name)) {
            (Location::Path(path), Location::Path(name)) => Location::Path(path.join(name)),
            (Location::Objects(place), Location::Path(name)) => {
                Location::Objects(place.join(&name.display().to_string()))
            }
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
            Location::Objects(_) => Err(Unsupported::NotAFolder { location: self.to_string() }),
            Location::Url { scheme, .. } => Err(self.unusable(scheme)),
        }
    }

    /// The place in an object store, if it is one; an error if feedline cannot use the location at all.
    pub fn objects(&self) -> Result<Option<&ObjectPlace>, Unsupported> {
        match self {
            Location::Path(_) => Ok(None),
            Location::Objects(place) => Ok(Some(place)),
            Location::Url { scheme, .. } => Err(self.unusable(scheme)),
        }
    }

    /// Why a URL cannot be used.
    fn unusable(&self, scheme: &str) -> Unsupported {
        let (scheme, location) = (scheme.to_owned(), self.to_string());
        match Service::of_scheme(&scheme) {
            Some(_) => Unsupported::Credentials { location },
            None => Unsupported::Scheme { scheme, location },
        }
    }
}

/// Whether what follows `scheme://` has a user before the bucket, or the parameters of a signed URL. No bucket name
/// has a `:` or an `@`.
fn has_credentials(rest: &str) -> bool {
    let bucket = rest.split('/').next().unwrap_or_default();
    bucket.contains([':', '@']) || redact_urls(rest) != rest
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
            Location::Objects(place) => place.fmt(f),
            Location::Url { scheme, rest } => f.write_str(&redact_urls(&format!("{scheme}://{rest}"))),
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
            assert_eq!(location.objects(), Ok(None));
        }
        for (text, shown) in [("s3://bucket/data", "s3://bucket/data"), ("S3://bucket", "s3://bucket")] {
            let location = Location::parse(text);
            assert_eq!(location.to_string(), shown);
            assert!(matches!(location.objects(), Ok(Some(_))));
            assert_eq!(
                location.path().unwrap_err().to_string(),
                format!("{shown} is in an object store, but a folder is needed here")
            );
        }
        let location = Location::parse("file:///data");
        let refused = location.path().unwrap_err();
        assert_eq!(location.objects().unwrap_err(), refused);
        let expected = "file:// is not supported (file:///data); use a folder, s3://, gs:// or az://";
        assert_eq!((location.to_string().as_str(), refused.to_string().as_str()), ("file:///data", expected));
    }

    #[test]
    fn a_location_with_credentials_is_refused_and_hides_them() {
        for (text, shown) in [
            ("s3://user:hunter2@host/data", "s3://************@host/data"),
            ("s3://AKIA:hun/ter2@bucket/data", "s3://*************@bucket/data"),
            ("s3://AKIA@bucket", "s3://****@bucket"),
            ("az://c/x?sv=1&sig=hunter2&se=2", "az://c/x?sv=1&sig=*******&se=2"),
            ("gs://b/x?X-Goog-Signature=0af", "gs://b/x?X-Goog-Signature=***"),
            (
                "https://acct.blob.core.windows.net/c?sig=hunter2",
                "https://acct.blob.core.windows.net/c?sig=*******",
            ),
        ] {
            let location = Location::parse(text);
            assert_eq!(location.to_string(), shown);
            let refused = location.objects().unwrap_err().to_string();
            assert_eq!(location.path().unwrap_err().to_string(), refused);
            assert!(refused.contains(shown) && !refused.contains("hunter2"), "{refused}");
        }
        for key in ["s3://b/a@b/c:d", "s3://b/two words?a=b&sigma=1#x"] {
            assert!(matches!(Location::parse(key), Location::Objects(_)), "{key}");
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
            ("file://a", "b", "file://a/b"),
        ] {
            assert_eq!(Location::parse(place).join(name), Location::parse(joined), "{place} {name}");
        }
    }
}
