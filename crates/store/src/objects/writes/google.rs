//! Signs requests to Google Cloud Storage with HMAC keys, by Google's own scheme, GOOG4-HMAC-SHA256. The library only
//! knows tokens. Google accepts S3's scheme, too, but not in a request that has headers of its own: `x-amz-` and
//! `x-goog-` headers must not be mixed, and the conditions of writes are `x-goog-` headers.

use std::sync::Arc;

use object_store::client::HttpRequest;
use ring::digest::{SHA256, digest};
use ring::hmac;

use super::super::credential::{Credential, CredentialCell};
use super::super::date::Stamp;
use super::super::endpoint::{decoded, encode_bytes, encode_value};
use crate::WallClock;

const ALGORITHM: &str = "GOOG4-HMAC-SHA256";
/// Each part of an upload has a checksum instead, which is much cheaper than a signed digest.
const PAYLOAD: &str = "UNSIGNED-PAYLOAD";

/// What requests of a place are signed with.
#[derive(Clone, Debug)]
pub(super) struct GoogleSigner {
    pub(super) cell: Arc<CredentialCell>,
    pub(super) region: String,
    pub(super) wall: WallClock,
}

impl GoogleSigner {
    /// Replaces the empty token of the library by a signature, or by nothing; `None` if the request is not valid. A
    /// real token stays.
    pub(super) fn sign(&self, request: &mut HttpRequest) -> Option<()> {
        match &*self.cell.get() {
            Credential::Keys { id, secret, .. } => {
                request.headers_mut().remove("authorization");
                self.sign_with(request, id.expose(), secret.expose())
            }
            Credential::Anonymous => {
                request.headers_mut().remove("authorization");
                Some(())
            }
            Credential::AccountKey(_) | Credential::SharedAccess(_) | Credential::Bearer(_) => Some(()),
        }
    }

    fn sign_with(&self, request: &mut HttpRequest, id: &str, secret: &str) -> Option<()> {
        let stamp = Stamp::of((self.wall)());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (date, day) = (text(&stamp.compact), text(stamp.day()));
        request.headers_mut().insert("x-goog-date", date.parse().ok()?);
        request.headers_mut().insert("x-goog-content-sha256", PAYLOAD.parse().ok()?);
        plain_path(request)?;
        let (canonical, names) = canonical(request)?;
        let scope = format!("{day}/{}/storage/goog4_request", self.region);
        let to_sign = format!("{ALGORITHM}\n{date}\n{scope}\n{}", hex(digest(&SHA256, canonical.as_bytes())));
        let sign =
            |key: &[u8], text: &str| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
        let key = sign(format!("GOOG4{secret}").as_bytes(), &day);
        let key = ["storage", "goog4_request"]
            .iter()
            .fold(sign(key.as_ref(), &self.region), |key, word| sign(key.as_ref(), word));
        let signature = hex(sign(key.as_ref(), &to_sign));
        let value =
            format!("{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}");
        request.headers_mut().insert("authorization", value.parse().ok()?);
        Some(())
    }
}

/// Writes the path as signatures have it: the library encodes slashes and unreserved characters, too.
fn plain_path(request: &mut HttpRequest) -> Option<()> {
    let uri = request.uri();
    let mut path = Vec::new();
    encode_bytes(&mut path, &decoded(uri.path()), true);
    let path = String::from_utf8(path).ok()?;
    let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
    let plain = format!("{}://{}{path}{query}", uri.scheme_str()?, uri.authority()?);
    *request.uri_mut() = plain.parse().ok()?;
    Some(())
}

/// The text that is signed, and the names of the headers in it.
fn canonical(request: &HttpRequest) -> Option<(String, String)> {
    let uri = request.uri();
    let mut headers: Vec<(&str, &str)> = Vec::new();
    for (name, value) in request.headers() {
        if name == "content-type" || name.as_str().starts_with("x-goog-") {
            headers.push((name.as_str(), value.to_str().ok()?.trim()));
        }
    }
    let host = uri.authority()?.as_str();
    // The client leaves the port of the scheme out.
    let port = if uri.scheme_str() == Some("https") { ":443" } else { ":80" };
    headers.push(("host", host.strip_suffix(port).unwrap_or(host)));
    headers.sort_unstable();
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let mut query: Vec<String> = uri.query().unwrap_or_default().split('&').filter_map(parameter).collect();
    query.sort_unstable();
    let (method, path, query) = (request.method(), uri.path(), query.join("&"));
    Some((format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{PAYLOAD}"), names))
}

/// A parameter of a query with the encoding that signatures require; `None` if it is empty.
fn parameter(text: &str) -> Option<String> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let plain = |text: &str| {
        let bytes = decoded(&text.replace('+', " "));
        encode_value(&String::from_utf8_lossy(&bytes))
    };
    (!name.is_empty()).then(|| format!("{}={}", plain(name), plain(value)))
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use model::secret::Secret;
    use object_store::client::HttpRequestBody;

    use super::*;

    fn request(method: &str, uri: &str, headers: &[(&'static str, &str)]) -> HttpRequest {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = method.parse().unwrap();
        *request.uri_mut() = uri.parse().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        request
    }

    fn signer(credential: Credential) -> GoogleSigner {
        let cell = Arc::new(CredentialCell::given(credential));
        GoogleSigner { cell, region: "auto".to_owned(), wall: || 1_369_353_600 }
    }

    fn keys() -> Credential {
        Credential::Keys { id: Secret::new("GOOG1EXAMPLE"), secret: Secret::new("hunter2"), token: None }
    }

    #[test]
    fn a_conditional_write_has_headers_of_google_only() {
        let headers = [
            ("authorization", "Bearer "),
            ("content-length", "5"),
            ("content-type", "application/octet-stream"),
            ("x-goog-if-generation-match", "0"),
        ];
        let uri = "https://storage.googleapis.com:443/bucket/a%20dir%2Ffile%2Dname%2E1?uploadId=A%2B%7E&partNumber=7";
        let mut request = request("PUT", uri, &headers);
        signer(keys()).sign(&mut request).unwrap();
        let path = "/bucket/a%20dir/file-name.1";
        assert_eq!(request.uri().path(), path);
        let names =
            "content-type;host;x-goog-content-sha256;x-goog-date;x-goog-if-generation-match".to_owned();
        let expected = format!(
            "PUT\n{path}\npartNumber=7&uploadId=A%2B~\ncontent-type:application/octet-stream\n\
             host:storage.googleapis.com\nx-goog-content-sha256:UNSIGNED-PAYLOAD\nx-goog-date:20130524T000000Z\n\
             x-goog-if-generation-match:0\n\n{names}\nUNSIGNED-PAYLOAD"
        );
        assert_eq!(canonical(&request), Some((expected, names.clone())));
        // Computed by another program from the text above.
        let signature = "3fbc4073fe121b4f51fc6a13069111934a3fc6917483abd333543cb78cfc6fda";
        assert_eq!(
            request.headers()["authorization"].to_str().unwrap(),
            format!(
                "GOOG4-HMAC-SHA256 Credential=GOOG1EXAMPLE/20130524/auto/storage/goog4_request, \
                 SignedHeaders={names}, Signature={signature}"
            )
        );
        assert!(request.headers().keys().all(|name| !name.as_str().starts_with("x-amz-")));
    }

    #[test]
    fn tokens_stay_and_anonymous_requests_have_none() {
        let uri = "http://localhost:4443/bucket/a%2Fb?uploads=";
        let mut signed = request("POST", uri, &[("authorization", "Bearer token")]);
        signer(Credential::Bearer(Secret::new("token"))).sign(&mut signed).unwrap();
        assert_eq!(signed.headers()["authorization"], "Bearer token");
        assert_eq!(signed.uri().path(), "/bucket/a%2Fb");
        let mut anonymous = request("POST", uri, &[("authorization", "Bearer ")]);
        signer(Credential::Anonymous).sign(&mut anonymous).unwrap();
        assert!(anonymous.headers().is_empty());
        signer(keys()).sign(&mut anonymous).unwrap();
        let (text, _) = canonical(&anonymous).unwrap();
        assert!(text.starts_with("POST\n/bucket/a/b\nuploads=\nhost:localhost:4443\n"), "{text}");
    }
}
