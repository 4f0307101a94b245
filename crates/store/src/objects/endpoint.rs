//! The servers of a store: which hosts requests go to, directly or through a proxy, and what precedes a key in the path
//! of a request.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use model::objects::{ObjectOptions, ObjectPlace, Service};

use super::proxy::Proxy;
use crate::StoreError;

/// The region that signatures name if none is given.
pub(crate) const DEFAULT_REGION: &str = "us-east-1";

/// One server of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The value of the `Host` header, which is signed.
    pub(crate) host_header: String,
    /// The path before the slash and the key, percent-encoded.
    pub(crate) base: String,
    pub(crate) proxy: Option<Proxy>,
}

impl Endpoint {
    /// The server in messages.
    pub(crate) fn label(&self) -> String {
        format!("{}:{}", bracketed(&self.host), self.port)
    }

    /// The host to connect to: the proxy, if there is one.
    fn next_host(&self) -> (&str, u16) {
        match &self.proxy {
            Some(proxy) => (proxy.host.as_str(), proxy.port),
            None => (self.host.as_str(), self.port),
        }
    }

    /// Whether the host to connect to is a name, whose addresses may change.
    pub(crate) fn has_name(&self) -> bool {
        self.next_host().0.parse::<IpAddr>().is_err()
    }

    /// The addresses to connect to: those of the proxy, if there is one.
    pub(crate) fn addresses(&self) -> Result<Vec<SocketAddr>, StoreError> {
        let (host, port) = self.next_host();
        let found = (host, port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        match found {
            Ok(found) if !found.is_empty() => Ok(found),
            Ok(_) => Err(StoreError::Refused(format!("the host {host} has no address"))),
            Err(cause) => Err(StoreError::Refused(format!(
                "cannot find the address of the host {host}: {cause}; check the endpoint and the name service"
            ))),
        }
    }
}

/// The servers of a place, at least one.
pub(crate) fn endpoints(place: &ObjectPlace, options: &ObjectOptions) -> Result<Vec<Endpoint>, StoreError> {
    if place.bucket.is_empty() {
        return Err(StoreError::Refused(format!(
            "{place} names no bucket; write {}://BUCKET/PREFIX",
            place.service.name()
        )));
    }
    let given = match options.endpoints.as_slice() {
        [] => std::slice::from_ref(&default_url(place, options)?).to_vec(),
        given => given.to_vec(),
    };
    given.iter().map(|url| endpoint(url, place, options)).collect()
}

/// The service's own server.
fn default_url(place: &ObjectPlace, options: &ObjectOptions) -> Result<String, StoreError> {
    Ok(match place.service {
        Service::S3 => {
            format!("https://s3.{}.amazonaws.com", options.region.as_deref().unwrap_or(DEFAULT_REGION))
        }
        Service::Gcs => "https://storage.googleapis.com".to_owned(),
        Service::Azure => match &options.account {
            Some(account) => format!("https://{account}.blob.core.windows.net"),
            None => {
                return Err(StoreError::Refused(format!(
                    "{place}: the Azure account is not known; set storage.account or AZURE_STORAGE_ACCOUNT"
                )));
            }
        },
    })
}

/// Whether no connection to a place uses the proxy, because its hosts are excepted.
pub fn avoids_proxy(place: &ObjectPlace, options: &ObjectOptions) -> bool {
    endpoints(place, options).is_ok_and(|endpoints| endpoints.iter().all(|endpoint| endpoint.proxy.is_none()))
}

fn endpoint(url: &str, place: &ObjectPlace, options: &ObjectOptions) -> Result<Endpoint, StoreError> {
    let Url { tls, host, port, path, .. } = Url::parse(url).ok_or_else(|| no_url(url))?;
    let mut base = path.trim_end_matches('/').to_owned();
    let mut name = host.clone();
    if options.names_bucket_in_path(place) {
        base.push('/');
        encode(&mut base, place.bucket.as_bytes());
    } else {
        name = format!("{}.{host}", place.bucket);
    }
    let shown = bracketed(&name).into_owned();
    let is_usual = port == if tls { 443 } else { 80 };
    let host_header = if is_usual { shown } else { format!("{shown}:{port}") };
    let proxy = Proxy::of(options)?.filter(|proxy| proxy.applies_to(&name));
    Ok(Endpoint { tls, host: name, port, host_header, base, proxy })
}

/// An endpoint may contain a user and a password by mistake, which the message must not show.
fn no_url(url: &str) -> StoreError {
    let shown = model::secret::redact(url);
    StoreError::Refused(format!(
        "the endpoint '{shown}' is not a URL of the form http://HOST[:PORT] or https://..."
    ))
}

/// The parts of an http or https URL.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) tls: bool,
    pub(super) user: Option<String>,
    pub(super) host: String,
    pub(super) port: u16,
    path: String,
}

impl Url {
    pub(super) fn parse(text: &str) -> Option<Url> {
        let (scheme, rest) = text.split_once("://")?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let (server, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (user, server) = match server.rsplit_once('@') {
            Some((user, server)) => (Some(user.to_owned()), server),
            None => (None, server),
        };
        let (host, port) = match server.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                (host, port.strip_prefix(':'))
            }
            None => server.rsplit_once(':').map_or((server, None), |(host, port)| (host, Some(port))),
        };
        let port = match port {
            Some(port) => port.parse().ok().filter(|port| *port > 0)?,
            None => {
                if tls {
                    443
                } else {
                    80
                }
            }
        };
        let is_clean = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let is_plain = is_clean(host) && is_clean(path) && !path.contains(['?', '#']);
        (!host.is_empty() && is_plain).then(|| Url {
            tls,
            user,
            host: host.to_owned(),
            port,
            path: path.to_owned(),
        })
    }
}

/// A host before a port: an IPv6 address is in brackets.
pub(super) fn bracketed(host: &str) -> Cow<'_, str> {
    if host.contains(':') { Cow::Owned(format!("[{host}]")) } else { Cow::Borrowed(host) }
}

/// Appends a path with every byte percent-encoded except for unreserved ones and slashes, as signatures require it.
pub(crate) fn encode(out: &mut String, path: &[u8]) {
    let mut bytes = Vec::with_capacity(path.len());
    encode_bytes(&mut bytes, path, true);
    // Only ASCII was written.
    out.push_str(&String::from_utf8_lossy(&bytes));
}

/// The same for a value in a query, in which slashes are encoded, too.
pub(crate) fn encode_value(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    encode_bytes(&mut bytes, value.as_bytes(), false);
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn encode_bytes(out: &mut Vec<u8>, path: &[u8], keeps_slash: bool) {
    for byte in path {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) || (keeps_slash && *byte == b'/') {
            out.push(*byte);
        } else {
            let digit = |nibble: u8| b"0123456789ABCDEF"[usize::from(nibble)];
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

/// A text before it was percent-encoded. What is not an encoded byte stays as it is.
pub(super) fn decoded(value: &str) -> Vec<u8> {
    let (mut out, bytes) = (Vec::with_capacity(value.len()), value.as_bytes());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let byte = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        out.push(byte.unwrap_or(bytes[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    out
}

#[cfg(test)]
mod tests {
    use model::secret::Secret;

    use super::*;

    fn place(service: Service) -> ObjectPlace {
        ObjectPlace::parse(service, "data/prefix")
    }

    fn with(endpoints: &[&str]) -> ObjectOptions {
        let endpoints = endpoints.iter().map(|url| (*url).to_owned()).collect();
        ObjectOptions { endpoints, account: Some("me".into()), ..ObjectOptions::default() }
    }

    #[test]
    fn hosts_and_paths_follow_the_service() {
        for (service, given, host, base) in [
            (Service::S3, &[][..], "data.s3.us-east-1.amazonaws.com", ""),
            (Service::Gcs, &[], "storage.googleapis.com", "/data"),
            (Service::Azure, &[], "me.blob.core.windows.net", "/data"),
            (Service::S3, &["http://127.0.0.1:9000"], "127.0.0.1:9000", "/data"),
            (Service::S3, &["https://[::1]:9000/"], "[::1]:9000", "/data"),
            (Service::Azure, &["http://127.0.0.1:10000/dev"], "127.0.0.1:10000", "/dev/data"),
        ] {
            let found = endpoints(&place(service), &with(given)).unwrap();
            assert_eq!((found[0].host_header.as_str(), found[0].base.as_str()), (host, base));
        }
        let virtual_host = ObjectOptions { path_style: Some(false), ..with(&["http://s3.lan:80"]) };
        let found = endpoints(&place(Service::S3), &virtual_host).unwrap();
        assert_eq!((found[0].host_header.as_str(), found[0].base.as_str()), ("data.s3.lan", ""));
    }

    #[test]
    fn bad_endpoints_are_refused_without_their_passwords() {
        for url in [
            "127.0.0.1:9000",
            "ftp://x",
            "http://",
            "http://h:99999",
            "http://h:0",
            "http://a b",
            "http://h/?q",
        ] {
            let error = endpoints(&place(Service::S3), &with(&[url])).unwrap_err().to_string();
            assert!(error.contains("is not a URL"), "{error}");
        }
        let error = endpoints(&place(Service::S3), &with(&["ftp://me:hunter2@h"])).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
        let nowhere = ObjectPlace::parse(Service::S3, "");
        assert!(endpoints(&nowhere, &with(&[])).unwrap_err().to_string().contains("names no bucket"));
    }

    #[test]
    fn a_proxy_is_used_unless_the_host_is_excepted() {
        let through = |url: &str| ObjectOptions {
            proxy: Some(Secret::new("http://me:pass@proxy:3128")),
            no_proxy: Some("other.lan, 10.0.0.0/8".to_owned()),
            ..with(&[url])
        };
        let proxy = |url: &str| endpoints(&place(Service::S3), &through(url)).unwrap()[0].proxy.clone();
        let found = proxy("http://s3.lan:9000").unwrap();
        assert_eq!((found.host.as_str(), found.port), ("proxy", 3128));
        assert_eq!(found.authorization.unwrap().expose(), "Basic bWU6cGFzcw==");
        assert_eq!(proxy("http://s3.other.lan"), None);
        assert_eq!(proxy("https://10.3.4.5:9000"), None);
    }

    #[test]
    fn addresses_of_ipv6_have_brackets_before_a_port() {
        let found =
            endpoints(&place(Service::S3), &with(&["https://[fd00::1]:9000", "http://[::1]"])).unwrap();
        assert_eq!((found[0].label().as_str(), found[0].host.as_str()), ("[fd00::1]:9000", "fd00::1"));
        assert_eq!(found[1].label(), "[::1]:80");
        assert!(!found[0].has_name() && endpoints(&place(Service::S3), &with(&[])).unwrap()[0].has_name());
        assert_eq!(found[0].addresses().unwrap(), ["[fd00::1]:9000".parse().unwrap()]);
    }

    #[test]
    fn keys_are_encoded() {
        let mut path = String::new();
        encode(&mut path, "a b/ü~%+".as_bytes());
        assert_eq!(path, "a%20b/%C3%BC~%25%2B");
        assert_eq!(encode_value("a/b="), "a%2Fb%3D");
        assert_eq!(decoded("a%2Fb%zz%"), b"a/b%zz%");
    }
}
