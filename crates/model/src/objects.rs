//! Object stores as values: which service, bucket and prefix a location names, how to reach it, and the version of an
//! object. Nothing here accesses them.

use std::num::NonZeroU64;

use crate::secret::Secret;
use crate::units::Nanos;

/// A service that stores objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Amazon S3, and servers that speak its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

impl Service {
    pub const ALL: [Service; 3] = [Service::S3, Service::Gcs, Service::Azure];

    /// The scheme of its URLs, which is also the name of its I/O backend.
    pub const fn name(self) -> &'static str {
        match self {
            Service::S3 => "s3",
            Service::Gcs => "gs",
            Service::Azure => "az",
        }
    }

    /// The service of a URL scheme. The schemes of other programs for the same services are accepted.
    pub fn of_scheme(scheme: &str) -> Option<Service> {
        match scheme {
            "s3" | "s3a" => Some(Service::S3),
            "gs" | "gcs" => Some(Service::Gcs),
            "az" | "azure" => Some(Service::Azure),
            _ => None,
        }
    }
}

/// A place in an object store: `s3://bucket/prefix`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectPlace {
    pub service: Service,
    /// Called container by Azure. Empty if the URL names none, which is an error when it is used.
    pub bucket: String,
    /// The beginning of every key, without slashes at its ends; may be empty.
    pub prefix: String,
}

impl ObjectPlace {
    /// Parses what follows `scheme://`.
    pub fn parse(service: Service, rest: &str) -> ObjectPlace {
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        ObjectPlace { service, bucket: bucket.to_owned(), prefix: prefix.trim_matches('/').to_owned() }
    }

    /// The key of a name below this place; the place itself for an empty name.
    pub fn key(&self, name: &str) -> String {
        match (self.prefix.as_str(), name) {
            ("", name) => name.to_owned(),
            (prefix, "" | ".") => prefix.to_owned(),
            (prefix, name) => format!("{prefix}/{name}"),
        }
    }

    /// The place of a name below this one.
    #[must_use]
    pub fn join(&self, name: &str) -> ObjectPlace {
        let name = name.trim_start_matches("./").trim_matches('/');
        ObjectPlace { prefix: self.key(name), ..self.clone() }
    }
}

impl std::fmt::Display for ObjectPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ObjectPlace { service, bucket, prefix } = self;
        write!(f, "{}://{bucket}", service.name())?;
        if prefix.is_empty() { Ok(()) } else { write!(f, "/{prefix}") }
    }
}

impl std::fmt::Debug for ObjectPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObjectPlace({self})")
    }
}

/// Identifies the content of an object: a hash of its entity tag, which changes with the content. Catalogs store it,
/// and it is compared with the tag of every answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectVersion(pub NonZeroU64);

impl ObjectVersion {
    /// The version of an object with this entity tag, with or without its quotes. `None` if there is no tag.
    pub fn of_tag(tag: &[u8]) -> Option<ObjectVersion> {
        let strong = tag.strip_prefix(b"W/").unwrap_or(tag);
        let bare = strong.strip_prefix(b"\"").and_then(|tag| tag.strip_suffix(b"\"")).unwrap_or(strong);
        if bare.is_empty() {
            return None;
        }
        // FNV-1a, which needs no state, followed by a mixer: a tag is often a digest in hexadecimal, of which every
        // digit counts.
        let hash = bare.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        NonZeroU64::new(crate::order::mix(hash, bare.len() as u64)).or(NonZeroU64::new(1)).map(ObjectVersion)
    }
}

/// Where the credentials of a store come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CredentialSource {
    /// Requests are not signed.
    #[default]
    Anonymous,
    /// An access key of S3, or an HMAC key of Google's.
    Keys { id: Secret, secret: Secret, token: Option<Secret> },
    /// The key of an Azure account.
    AccountKey(Secret),
    /// A shared access signature of Azure: the query string.
    SharedAccess(Secret),
    /// A token that is sent as it is.
    Bearer(Secret),
    /// Fetched from a role, a metadata service or a file by the library, which gets these settings.
    Library(Vec<(String, Secret)>),
}

/// How failed requests are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts per request, the first one included.
    pub attempts: u32,
    /// The pause before the first retry; it doubles with each retry up to `longest`, and is chosen at random up to
    /// that.
    pub pause: Nanos,
    pub longest: Nanos,
    /// From the first attempt: no retry begins later.
    pub deadline: Nanos,
    /// Without a byte for this long, an attempt counts as failed.
    pub silence: Nanos,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            attempts: 5,
            pause: Nanos(100_000_000),
            longest: Nanos(10_000_000_000),
            deadline: Nanos(180_000_000_000),
            silence: Nanos(30_000_000_000),
        }
    }
}

/// How to reach an object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectOptions {
    /// URLs of servers, over which connections are distributed; none: the service's own.
    pub endpoints: Vec<String>,
    pub region: Option<String>,
    /// Whether the bucket is in the path of a request and not in the host name; `None`: see `names_bucket_in_path`.
    pub path_style: Option<bool>,
    /// The account, for Azure.
    pub account: Option<String>,
    pub credentials: CredentialSource,
    /// Where the credentials come from, for results and messages, such as `environment`.
    pub credentials_from: String,
    /// A file of PEM certificates that are trusted in addition to the system's.
    pub ca_bundle: Option<String>,
    /// The URL of a proxy, which may contain a password.
    pub proxy: Option<Secret>,
    /// Host names, suffixes and addresses that are reached without the proxy, separated by commas.
    pub no_proxy: Option<String>,
    /// The most read requests that a process has in flight.
    pub requests_in_flight: u64,
    /// Bytes of each part of an upload.
    pub part_bytes: u64,
    /// Parts that a process uploads at once.
    pub parts_in_flight: u64,
    pub retry: RetryPolicy,
}

impl ObjectOptions {
    /// Whether any connection is encrypted, as those to the services' own servers are.
    pub fn is_encrypted(&self) -> bool {
        self.endpoints.is_empty() || self.endpoints.iter().any(|endpoint| !endpoint.starts_with("http://"))
    }

    /// Whether the path of a request contains the bucket. The host name does only in S3, and only for its own servers:
    /// other ones often have no such names, and a bucket with dots does not match the certificate.
    pub fn names_bucket_in_path(&self, place: &ObjectPlace) -> bool {
        let default = !self.endpoints.is_empty() || place.bucket.contains('.');
        place.service != Service::S3 || self.path_style.unwrap_or(default)
    }
}

impl Default for ObjectOptions {
    fn default() -> ObjectOptions {
        ObjectOptions {
            endpoints: Vec::new(),
            region: None,
            path_style: None,
            account: None,
            credentials: CredentialSource::Anonymous,
            credentials_from: "none".to_owned(),
            ca_bundle: None,
            proxy: None,
            no_proxy: None,
            requests_in_flight: 4096,
            part_bytes: 8 << 20,
            parts_in_flight: 8,
            retry: RetryPolicy::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_buckets_and_prefixes() {
        for (rest, bucket, prefix, shown) in [
            ("b", "b", "", "s3://b"),
            ("b/", "b", "", "s3://b"),
            ("b/p/q/", "b", "p/q", "s3://b/p/q"),
            ("", "", "", "s3://"),
        ] {
            let place = ObjectPlace::parse(Service::S3, rest);
            assert_eq!((place.bucket.as_str(), place.prefix.as_str()), (bucket, prefix));
            assert_eq!(place.to_string(), shown);
        }
        let place = ObjectPlace::parse(Service::Gcs, "b/p");
        assert_eq!(
            (place.key("train/x"), place.key(""), place.key(".")),
            ("p/train/x".into(), "p".into(), "p".into())
        );
        assert_eq!(place.join("./data/").to_string(), "gs://b/p/data");
        assert_eq!(ObjectPlace::parse(Service::Azure, "b").join("x").to_string(), "az://b/x");
    }

    #[test]
    fn buckets_are_in_host_names_of_amazon_only() {
        let own = vec!["http://h:9".to_owned()];
        let s3 = |bucket: &str| ObjectPlace::parse(Service::S3, bucket);
        for (place, endpoints, path_style, expected) in [
            (s3("b"), Vec::new(), None, false),
            (s3("b"), Vec::new(), Some(true), true),
            (s3("b.example"), Vec::new(), None, true),
            (s3("b.example"), Vec::new(), Some(false), false),
            (s3("b"), own.clone(), None, true),
            (s3("b"), own, Some(false), false),
            (ObjectPlace::parse(Service::Gcs, "b"), Vec::new(), Some(false), true),
        ] {
            let options = ObjectOptions { endpoints, path_style, ..ObjectOptions::default() };
            assert_eq!(options.names_bucket_in_path(&place), expected, "{place:?} {options:?}");
        }
    }

    #[test]
    fn versions_differ_with_tags_and_not_with_quotes() {
        let of = |tag: &str| ObjectVersion::of_tag(tag.as_bytes());
        assert_eq!(of("\"abc\""), of("abc"));
        assert_eq!(of("W/\"abc\""), of("abc"));
        assert_ne!(of("abc"), of("abd"));
        assert_eq!((of(""), of("\"\"")), (None, None));
    }

    #[test]
    fn schemes_of_other_programs_are_known() {
        for (scheme, service) in [
            ("s3", Some(Service::S3)),
            ("s3a", Some(Service::S3)),
            ("gcs", Some(Service::Gcs)),
            ("hdfs", None),
        ] {
            assert_eq!(Service::of_scheme(scheme), service);
        }
        assert!(Service::ALL.iter().all(|service| Service::of_scheme(service.name()) == Some(*service)));
    }
}
