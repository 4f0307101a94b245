//! The HTTP client that the library sends its requests with. It sees every attempt: it records the answer where the
//! retry loop finds it, and ends an attempt during which nothing moves. It never follows a redirect or repeats a
//! request by itself.

use std::error::Error as StdError;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use model::requests::AttemptFailure;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpService,
};
use tokio::time::timeout;

use super::google::GoogleSigner;
use super::seen::{LostAnswer, Seen, ServerSums, code_of, element, from_base64, retry_after, word};

/// The most bytes of an answer. Answers to writes are small; objects are read back in pieces of at most [`PIECE`].
const MOST: usize = PIECE as usize + (1 << 16);
/// How many bytes of an object are read back at a time.
pub(super) const PIECE: u64 = 8 << 20;
/// How many bytes a request passes to the connection at a time, so that progress is visible.
const STRIDE: usize = 1 << 18;

tokio::task_local! {
    /// What the current attempt has seen.
    static SEEN: Arc<Mutex<Seen>>;
}

/// Runs one attempt, and returns what it saw.
pub(super) async fn observed<T>(attempt: impl Future<Output = T>) -> (T, Seen) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let outcome = SEEN.scope(Arc::clone(&seen), attempt).await;
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    (outcome, seen)
}

/// Notes something about the current attempt.
fn note(change: impl FnOnce(&mut Seen)) {
    // Outside of an attempt, this is not needed.
    let _ = SEEN.try_with(|seen| change(&mut seen.lock().unwrap_or_else(PoisonError::into_inner)));
}

/// Sends requests and records their answers.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) client: reqwest::Client,
    /// Without the proxy, for the services that give a host its credentials.
    pub(super) direct: reqwest::Client,
    /// Without a byte for this long, an attempt has failed.
    pub(super) silence: Duration,
    /// Changes with all bytes that are sent or received.
    pub(super) progress: Arc<AtomicU64>,
    /// Signs requests by itself with this: for Google's HMAC keys, which the library does not support.
    pub(super) signs: Option<GoogleSigner>,
}

impl HttpConnector for Wire {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

impl HttpService for Wire {
    fn call<'service, 'call>(
        &'service self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'call>>
    where
        'service: 'call,
        Self: 'call,
    {
        Box::pin(self.send(request))
    }
}

/// Why an attempt ended without an answer, for the library. What happened has been noted.
#[derive(Debug, thiserror::Error)]
#[error("there was no answer")]
struct Unfinished;

impl Wire {
    async fn send(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if let Some(signer) = &self.signs
            && signer.sign(&mut request).is_none()
        {
            return Err(lost(AttemptFailure::Malformed, "the request cannot be signed", true));
        }
        let (head, body) = request.into_parts();
        let (host, port) = (head.uri.host().unwrap_or_default().to_owned(), head.uri.port_u16());
        let endpoint = port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
        note(|seen| *seen = Seen { endpoint, ..Seen::default() });
        let Ok(url) = head.uri.to_string().parse() else {
            return Err(lost(AttemptFailure::Malformed, "the URL is not valid", true));
        };
        let mut sent = reqwest::Request::new(head.method, url);
        *sent.headers_mut() = head.headers;
        let progress = Arc::new(AtomicU64::new(0));
        if body.content_length() > 0 {
            let (own, all) = (Arc::clone(&progress), Arc::clone(&self.progress));
            let moving = Moving { body, left: None, progress: [own, all] };
            *sent.body_mut() = Some(reqwest::Body::wrap(moving));
        }
        let client = if gives_credentials(&host) { &self.direct } else { &self.client };
        match self.moves(&progress, client.execute(sent)).await {
            None => Err(lost(AttemptFailure::Silent, "no answer for too long", false)),
            Some(Err(error)) => Err(failed(&error)),
            Some(Ok(response)) => self.receive(response).await,
        }
    }

    /// Waits for something as long as bytes are sent; `None` if none was for too long.
    async fn moves<T>(&self, progress: &AtomicU64, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        // Relaxed: a count that publishes no other data.
        let mut before = progress.load(Ordering::Relaxed);
        loop {
            match timeout(self.silence, work.as_mut()).await {
                Ok(done) => return Some(done),
                Err(_) => {
                    let now = progress.load(Ordering::Relaxed);
                    if now == before {
                        return None;
                    }
                    before = now;
                }
            }
        }
    }

    /// Reads an answer to its end, and notes what it says.
    async fn receive(&self, mut response: reqwest::Response) -> Result<HttpResponse, HttpError> {
        let (status, headers) = (response.status(), response.headers().clone());
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        note(|seen| {
            seen.status = Some(status.as_u16());
            seen.code = text("x-ms-error-code").map(word).unwrap_or_default();
            seen.retry_after = retry_after(text("retry-after"), text("date"));
            seen.sums = sums(text);
        });
        let mut body = Vec::new();
        loop {
            match timeout(self.silence, response.chunk()).await {
                Err(_) => return Err(lost(AttemptFailure::Silent, "the answer stopped", false)),
                Ok(Err(error)) => return Err(failed(&error)),
                Ok(Ok(None)) => break,
                Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
            }
            // Relaxed: a count that publishes no other data.
            self.progress.fetch_add(1, Ordering::Relaxed);
            if body.len() > MOST {
                return Err(lost(AttemptFailure::Malformed, "the answer is too long", false));
            }
        }
        note(|seen| {
            if seen.code.is_empty() {
                seen.code = code_of(&body);
            }
            if status.is_success() {
                let whole =
                    std::str::from_utf8(&body).ok().and_then(|text| element(text, "ChecksumCRC64NVME"));
                seen.sums.whole_crc64 = whole.and_then(big_endian);
            }
        });
        let mut answer = HttpResponse::new(body.into());
        *answer.status_mut() = status;
        *answer.headers_mut() = headers;
        Ok(answer)
    }
}

/// The checksums in the head of an answer. Those of Amazon and Google are big-endian, Azure's is little-endian.
fn sums<'a>(text: impl Fn(&str) -> Option<&'a str>) -> ServerSums {
    let azure = text("x-ms-content-crc64").and_then(big_endian).map(u64::swap_bytes);
    let google = text("x-goog-hash").and_then(|hashes| {
        let crc = hashes.split(',').find_map(|hash| hash.trim().strip_prefix("crc32c="))?;
        from_base64(crc)?.try_into().ok().map(u32::from_be_bytes)
    });
    let crc64 = text("x-amz-checksum-crc64nvme").and_then(big_endian).or(azure);
    ServerSums { crc64, crc32c: google, whole_crc64: None }
}

fn big_endian(text: &str) -> Option<u64> {
    from_base64(text)?.try_into().ok().map(u64::from_be_bytes)
}

/// Whether a host gives the credentials of this machine or container, so that no proxy can reach it.
pub(super) fn gives_credentials(host: &str) -> bool {
    host.starts_with("169.254.")
        || ["metadata.google.internal", "[fd00:ec2::254]", "[fd00:ec2::23]"].contains(&host)
}

/// Notes that there is no complete answer.
fn lost(kind: AttemptFailure, cause: &str, permanent: bool) -> HttpError {
    note(|seen| seen.lost = Some(LostAnswer { kind, cause: cause.to_owned(), permanent }));
    HttpError::new(HttpErrorKind::Unknown, Unfinished)
}

/// Notes why a request got no answer. Only the innermost cause is shown: the outer ones name the URL.
fn failed(error: &reqwest::Error) -> HttpError {
    let mut cause: &(dyn StdError + 'static) = error;
    let mut untrusted = false;
    while let Some(source) = cause.source() {
        cause = source;
        untrusted |= is_untrusted(cause);
    }
    let kind = match () {
        () if error.is_timeout() => AttemptFailure::Silent,
        () if error.is_connect() => AttemptFailure::NotConnected,
        () => AttemptFailure::Reset,
    };
    if std::ptr::addr_eq(cause, error) {
        return lost(kind, "the connection failed", false);
    }
    let cause = match (untrusted, kind) {
        (true, _) => {
            format!("its certificate is not trusted: {cause}; name a file of certificates (ca_bundle)")
        }
        (false, AttemptFailure::Reset) => format!("the connection ended: {cause}"),
        (false, _) => cause.to_string(),
    };
    lost(kind, &cause, untrusted)
}

/// Whether it is about the certificate of the server, directly or inside an error of the operating system.
fn is_untrusted(cause: &(dyn StdError + 'static)) -> bool {
    let inner = cause.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
    let tls = inner
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
        .or_else(|| cause.downcast_ref::<rustls::Error>());
    matches!(tls, Some(rustls::Error::InvalidCertificate(_)))
}

/// A body in small steps, each of which counts as progress.
struct Moving {
    body: HttpRequestBody,
    /// What is left of the current part of the body.
    left: Option<<HttpRequestBody as Body>::Data>,
    /// That of the request, and that of the store.
    progress: [Arc<AtomicU64>; 2],
}

impl Body for Moving {
    type Data = <HttpRequestBody as Body>::Data;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = &mut *self;
        if this.left.is_none() {
            match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => this.left = frame.into_data().ok(),
                other => return other,
            }
        }
        let Some(mut next) = this.left.take() else { return Poll::Ready(None) };
        if next.len() > STRIDE {
            this.left = Some(next.split_off(STRIDE));
        }
        // Relaxed: counts that publish no other data.
        for count in &this.progress {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Ready(Some(Ok(Frame::data(next))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.body.size_hint().lower();
        SizeHint::with_exact(rest + self.left.as_ref().map_or(0, |left| left.len() as u64))
    }
}
