//! Heads of requests, signed by the scheme of the credential. A head is written into a buffer that is reused: signing
//! allocates nothing, because the read path does it once per request.

use std::sync::Arc;

use model::extent::Extent;
use model::objects::{ObjectOptions, ObjectPlace, Service};
use ring::digest::{Context, SHA256};
use ring::hmac;

use super::base64;
use super::credential::{Credential, CredentialCell};
use super::date::Stamp;
use super::endpoint::{DEFAULT_REGION, Endpoint, decoded, encode_bytes};
use crate::WallClock;

/// The digest of an empty body, which every read has.
const EMPTY: &[u8] = b"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// The version of Azure's protocol.
const AZURE_VERSION: &[u8] = b"2021-12-02";

/// A request without a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BareRequest<'a> {
    pub(crate) method: &'static str,
    /// The key before it is encoded; empty for the bucket itself.
    pub(crate) key: [&'a [u8]; 2],
    /// Parameters, encoded and sorted by name.
    pub(crate) query: &'a str,
    pub(crate) range: Option<Extent>,
}

/// How requests are signed. Keys are derived once per credential and day.
enum Scheme {
    Anonymous,
    V4(Box<V4>),
    SharedKey(Box<hmac::Key>),
    /// Parameters that are added to the query.
    Query(String),
    Bearer(String),
}

/// Signature version 4 of S3.
struct V4 {
    id: String,
    secret: String,
    token: Option<String>,
    /// The key of a day, and that day.
    key: hmac::Key,
    day: [u8; 8],
}

/// Writes heads for one thread.
pub(crate) struct Signer {
    service: Service,
    region: String,
    account: String,
    cell: Arc<CredentialCell>,
    version: u64,
    scheme: Scheme,
    stamp: Stamp,
    wall: WallClock,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").field("service", &self.service).finish_non_exhaustive()
    }
}

/// The region that signatures name.
pub(crate) fn region(place: &ObjectPlace, options: &ObjectOptions) -> String {
    let default = if place.service == Service::Gcs { "auto" } else { DEFAULT_REGION };
    options.region.clone().unwrap_or_else(|| default.to_owned())
}

impl Signer {
    pub(crate) fn new(
        place: &ObjectPlace,
        options: &ObjectOptions,
        cell: Arc<CredentialCell>,
        wall: WallClock,
    ) -> Signer {
        let account = options.account.clone().unwrap_or_default();
        let (region, stamp) = (region(place, options), Stamp::of(0));
        let scheme = Scheme::Anonymous;
        let mut signer =
            Signer { service: place.service, region, account, cell, version: 0, scheme, stamp, wall };
        signer.renew();
        signer
    }

    /// Takes the credential again, if it was replaced.
    fn renew(&mut self) {
        let version = self.cell.version();
        if version != self.version {
            self.version = version;
            self.scheme = scheme(&self.cell.get());
        }
    }

    /// The version of the credential that the last head was signed with.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Replaces the content of `out` by the head of a request.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, endpoint: &Endpoint, request: &BareRequest<'_>) {
        self.renew();
        let seconds = (self.wall)();
        if seconds != self.stamp.seconds {
            self.stamp = Stamp::of(seconds);
        }
        out.clear();
        let path = self.request_line(out, endpoint, request);
        push(out, &[b"Host: ", endpoint.host_header.as_bytes(), b"\r\nUser-Agent: feedline\r\n"]);
        if self.service == Service::Gcs {
            // Without it, Google decompresses objects that are stored with Content-Encoding: gzip. Not signed.
            out.extend_from_slice(b"Accept-Encoding: gzip\r\n");
        }
        if let Some(proxy) = endpoint.proxy.as_ref().filter(|_| !endpoint.tls)
            && let Some(authorization) = &proxy.authorization
        {
            push(out, &[b"Proxy-Authorization: ", authorization.expose().as_bytes(), b"\r\n"]);
        }
        let range_at = out.len();
        if let Some(range) = request.range {
            let last = range.end().saturating_sub(1);
            push(out, &[b"Range: bytes=", decimal(range.offset, &mut [0; 20])]);
            push(out, &[b"-", decimal(last, &mut [0; 20]), b"\r\n"]);
        }
        let range = range_at..out.len();
        self.authorize(out, endpoint, request, (path, range));
        out.extend_from_slice(b"\r\n");
    }

    /// Writes the first line, and returns where the path is in it.
    fn request_line(
        &self,
        out: &mut Vec<u8>,
        endpoint: &Endpoint,
        request: &BareRequest<'_>,
    ) -> std::ops::Range<usize> {
        push(out, &[request.method.as_bytes(), b" "]);
        // A proxy needs the whole URL, unless it only passes an encrypted connection on.
        if endpoint.proxy.is_some() && !endpoint.tls {
            push(out, &[b"http://", endpoint.host_header.as_bytes()]);
        }
        let begin = out.len();
        out.extend_from_slice(endpoint.base.as_bytes());
        let has_key = request.key.iter().any(|part| !part.is_empty());
        if has_key || endpoint.base.is_empty() {
            out.push(b'/');
        }
        request.key.iter().for_each(|part| encode_bytes(out, part, true));
        let path = begin..out.len();
        let mut mark: &[u8] = b"?";
        if !request.query.is_empty() {
            push(out, &[mark, request.query.as_bytes()]);
            mark = b"&";
        }
        if let Scheme::Query(parameters) = &self.scheme {
            push(out, &[mark, parameters.as_bytes()]);
        }
        out.extend_from_slice(b" HTTP/1.1\r\n");
        path
    }

    fn authorize(
        &mut self,
        out: &mut Vec<u8>,
        endpoint: &Endpoint,
        request: &BareRequest<'_>,
        (path, range): (std::ops::Range<usize>, std::ops::Range<usize>),
    ) {
        let Signer { service, region, account, scheme, stamp, .. } = self;
        if *service == Service::Azure {
            push(out, &[b"x-ms-date: ", &stamp.http, b"\r\nx-ms-version: ", AZURE_VERSION, b"\r\n"]);
        }
        match scheme {
            Scheme::Anonymous | Scheme::Query(_) => {}
            Scheme::Bearer(token) => push(out, &[b"Authorization: Bearer ", token.as_bytes(), b"\r\n"]),
            Scheme::SharedKey(key) => {
                let range = range_value(&out[range]);
                let tag = shared_key(key, request, (&out[path], range), account, stamp);
                push(out, &[b"Authorization: SharedKey ", account.as_bytes(), b":"]);
                base64::encode_to(out, tag.as_ref());
                push(out, &[b"\r\n"]);
            }
            Scheme::V4(v4) => {
                if v4.day != stamp.day() {
                    v4.derive(stamp, region);
                }
                let canonical = v4.canonical(request, &out[path], endpoint, stamp);
                v4.authorize(out, canonical.as_ref(), stamp, region);
            }
        }
    }
}

fn scheme(credential: &Credential) -> Scheme {
    match credential {
        Credential::Anonymous => Scheme::Anonymous,
        Credential::Keys { id, secret, token } => Scheme::V4(Box::new(V4 {
            id: id.expose().to_owned(),
            secret: format!("AWS4{}", secret.expose()),
            token: token.as_ref().map(|token| token.expose().to_owned()),
            key: hmac::Key::new(hmac::HMAC_SHA256, &[]),
            day: [0; 8],
        })),
        Credential::AccountKey(key) => {
            // A key that is not base64 is refused when the store is opened.
            let bytes = base64::decode(key.expose()).unwrap_or_default();
            Scheme::SharedKey(Box::new(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
        }
        Credential::SharedAccess(query) => Scheme::Query(query.expose().trim_start_matches('?').to_owned()),
        Credential::Bearer(token) => Scheme::Bearer(token.expose().to_owned()),
    }
}

impl V4 {
    /// Derives the key of a day.
    fn derive(&mut self, stamp: &Stamp, region: &str) {
        let sign = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
        let day = sign(self.secret.as_bytes(), stamp.day());
        let region = sign(day.as_ref(), region.as_bytes());
        let service = sign(region.as_ref(), b"s3");
        self.key = hmac::Key::new(hmac::HMAC_SHA256, sign(service.as_ref(), b"aws4_request").as_ref());
        self.day.copy_from_slice(stamp.day());
    }

    /// The digest of the canonical request.
    fn canonical(
        &self,
        request: &BareRequest<'_>,
        path: &[u8],
        endpoint: &Endpoint,
        stamp: &Stamp,
    ) -> ring::digest::Digest {
        let mut hash = Context::new(&SHA256);
        let mut add = |parts: &[&[u8]]| parts.iter().for_each(|part| hash.update(part));
        add(&[request.method.as_bytes(), b"\n", path, b"\n", request.query.as_bytes(), b"\nhost:"]);
        add(&[endpoint.host_header.as_bytes(), b"\nx-amz-content-sha256:", EMPTY]);
        add(&[b"\nx-amz-date:", &stamp.compact]);
        if let Some(token) = &self.token {
            add(&[b"\nx-amz-security-token:", token.as_bytes()]);
        }
        add(&[b"\n\n", self.signed_headers(), b"\n", EMPTY]);
        hash.finish()
    }

    fn signed_headers(&self) -> &'static [u8] {
        match self.token {
            Some(_) => b"host;x-amz-content-sha256;x-amz-date;x-amz-security-token",
            None => b"host;x-amz-content-sha256;x-amz-date",
        }
    }

    fn authorize(&self, out: &mut Vec<u8>, canonical: &[u8], stamp: &Stamp, region: &str) {
        let mut digest = [0; 64];
        let scope = [stamp.day(), b"/", region.as_bytes(), b"/s3/aws4_request"];
        let mut sign = hmac::Context::with_key(&self.key);
        let mut add = |parts: &[&[u8]]| parts.iter().for_each(|part| sign.update(part));
        add(&[b"AWS4-HMAC-SHA256\n", &stamp.compact, b"\n"]);
        add(&scope);
        add(&[b"\n", hex(canonical, &mut digest)]);
        let signature = sign.sign();
        push(out, &[b"x-amz-content-sha256: ", EMPTY, b"\r\nx-amz-date: ", &stamp.compact]);
        if let Some(token) = &self.token {
            push(out, &[b"\r\nx-amz-security-token: ", token.as_bytes()]);
        }
        push(out, &[b"\r\nAuthorization: AWS4-HMAC-SHA256 Credential=", self.id.as_bytes(), b"/"]);
        push(out, &scope);
        push(out, &[b", SignedHeaders=", self.signed_headers(), b", Signature="]);
        push(out, &[hex(signature.as_ref(), &mut digest), b"\r\n"]);
    }
}

/// Azure's signature. Of the headers that it covers, requests without a body have `Range` only.
fn shared_key(
    key: &hmac::Key,
    request: &BareRequest<'_>,
    (path, range): (&[u8], &[u8]),
    account: &str,
    stamp: &Stamp,
) -> hmac::Tag {
    let mut sign = hmac::Context::with_key(key);
    let mut add = |parts: &[&[u8]]| parts.iter().for_each(|part| sign.update(part));
    add(&[request.method.as_bytes(), b"\n\n\n\n\n\n\n\n\n\n\n", range]);
    add(&[b"\nx-ms-date:", &stamp.http, b"\nx-ms-version:", AZURE_VERSION, b"\n"]);
    add(&[b"/", account.as_bytes(), path]);
    for (name, value) in request.query.split('&').filter_map(|pair| pair.split_once('=')) {
        add(&[b"\n", name.as_bytes(), b":", &decoded(value)]);
    }
    sign.sign()
}

/// The value of a `Range` header line; empty if there is none.
fn range_value(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"Range: ").and_then(|value| value.strip_suffix(b"\r\n")).unwrap_or_default()
}

fn push(out: &mut Vec<u8>, parts: &[&[u8]]) {
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

fn hex<'a>(bytes: &[u8], out: &'a mut [u8; 64]) -> &'a [u8] {
    for (at, byte) in bytes.iter().enumerate().take(32) {
        out[2 * at] = b"0123456789abcdef"[usize::from(byte >> 4)];
        out[2 * at + 1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    &out[..]
}

fn decimal(mut value: u64, out: &mut [u8; 20]) -> &[u8] {
    let mut start = out.len();
    while value > 0 || start == out.len() {
        start -= 1;
        out[start] = b'0' + (value % 10) as u8;
        value /= 10;
    }
    &out[start..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::secret::Secret;

    /// 2013-05-24, the day of the examples in the documentation of S3.
    fn wall() -> u64 {
        1_369_353_600
    }

    fn keys(token: Option<&str>) -> Credential {
        Credential::Keys {
            id: Secret::new("AKIAIOSFODNN7EXAMPLE"),
            secret: Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            token: token.map(Secret::new),
        }
    }

    fn head(service: Service, url: &str, credential: Credential, request: &BareRequest<'_>) -> String {
        let place = ObjectPlace::parse(service, "examplebucket");
        let options = ObjectOptions {
            endpoints: vec![url.to_owned()],
            path_style: Some(false),
            account: Some("me".to_owned()),
            ..ObjectOptions::default()
        };
        let endpoints = super::super::endpoint::endpoints(&place, &options).unwrap();
        let mut signer = Signer::new(&place, &options, Arc::new(CredentialCell::given(credential)), wall);
        let mut out = Vec::new();
        signer.write(&mut out, &endpoints[0], request);
        String::from_utf8(out).unwrap()
    }

    /// The example "GET Bucket Lifecycle" of the documentation, whose headers are those that this code signs.
    #[test]
    fn the_signature_of_the_documented_example() {
        let request = BareRequest { method: "GET", key: [b"", b""], query: "lifecycle=", range: None };
        let head = head(Service::S3, "http://s3.amazonaws.com", keys(None), &request);
        assert!(
            head.starts_with("GET /?lifecycle= HTTP/1.1\r\nHost: examplebucket.s3.amazonaws.com\r\n"),
            "{head}"
        );
        let signature = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543";
        assert!(head.contains(&format!("Signature={signature}\r\n")), "{head}");
    }

    #[test]
    fn heads_have_ranges_tokens_and_encoded_keys() {
        let range = Some(Extent { offset: 10, len: 5 });
        let request = BareRequest { method: "GET", key: [b"a b/", "\u{fc}".as_bytes()], query: "", range };
        let head = head(Service::S3, "http://s3.lan:9000", keys(Some("session")), &request);
        let lines: Vec<&str> = head.lines().collect();
        assert_eq!(lines[0], "GET /a%20b/%C3%BC HTTP/1.1");
        assert!(lines.contains(&"Range: bytes=10-14") && lines.contains(&"x-amz-security-token: session"));
        assert!(head.contains("SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token"));
        assert!(head.ends_with("\r\n\r\n"));
    }

    #[test]
    fn other_schemes() {
        let request = BareRequest { method: "GET", key: [b"k", b""], query: "comp=list", range: None };
        let text = |credential| head(Service::Azure, "http://h:1/dev", credential, &request);
        assert!(text(Credential::Anonymous).starts_with("GET /dev/examplebucket/k?comp=list HTTP/1.1\r\n"));
        let query = text(Credential::SharedAccess(Secret::new("?sv=1&sig=x")));
        assert!(query.starts_with("GET /dev/examplebucket/k?comp=list&sv=1&sig=x HTTP/1.1\r\n"), "{query}");
        assert!(text(Credential::Bearer(Secret::new("t"))).contains("\r\nAuthorization: Bearer t\r\n"));
        let key = text(Credential::AccountKey(Secret::new("a2V5")));
        assert!(
            key.contains("\r\nAuthorization: SharedKey me:") && key.contains("x-ms-date: Fri, 24 May 2013"),
            "{key}"
        );
    }

    #[test]
    fn google_delivers_objects_as_they_are_stored() {
        let request = BareRequest { method: "GET", key: [b"k", b""], query: "", range: None };
        for service in Service::ALL {
            let head = head(service, "http://h:1", keys(None), &request);
            assert_eq!(head.contains("\r\nAccept-Encoding: gzip\r\n"), service == Service::Gcs, "{head}");
            assert!(!head.contains("accept-encoding;") && !head.contains("=accept-encoding"), "{head}");
        }
    }

    #[test]
    fn a_replaced_credential_is_used_at_once() {
        let cell = Arc::new(CredentialCell::given(Credential::Bearer(Secret::new("one"))));
        let (place, options) = (ObjectPlace::parse(Service::Gcs, "b"), ObjectOptions::default());
        let endpoints = super::super::endpoint::endpoints(&place, &options).unwrap();
        let mut signer = Signer::new(&place, &options, Arc::clone(&cell), wall);
        let request = BareRequest { method: "GET", key: [b"k", b""], query: "", range: None };
        for token in ["one", "two"] {
            cell.replace(Credential::Bearer(Secret::new(token)));
            let mut out = Vec::new();
            signer.write(&mut out, &endpoints[0], &request);
            assert!(String::from_utf8(out).unwrap().contains(&format!("Bearer {token}\r\n")));
        }
    }
}
