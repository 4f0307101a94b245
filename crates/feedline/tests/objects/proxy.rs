//! A proxy between a client and an object store. It counts requests by what they ask for, adds latency, and injects
//! faults by rule. Requests are passed on byte for byte, so that their signatures stay valid. A thread per connection.
//!
//! ```ignore
//! let proxy = Proxy::to(&endpoint).rule(Rule::new(Trouble::Status(500)).only(Ask::Get).every(3)).start();
//! dir.feedline(&[..]).env("AWS_ENDPOINT_URL", proxy.endpoint()).run();
//! assert_eq!(proxy.count(Ask::List), 1);
//! ```

// By its path, because a bench includes this file by its own.
#[path = "http.rs"]
pub(crate) mod http;

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use http::{Framing, Head, Wire};

/// Requests that are kept by name; more are counted only.
const LOG_LIMIT: usize = 20_000;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ask {
    Get,
    Head,
    List,
    ListUploads,
    Put,
    /// A part of a multipart upload, or a block.
    Part,
    CreateUpload,
    /// Puts the parts or blocks of an upload together.
    Complete,
    Abort,
    Delete,
    Other,
}

impl Ask {
    /// By method and target of a request to S3, Google's XML API or Azure, with the bucket in the path. `root` is the
    /// path of the endpoint.
    fn of(method: &str, target: &str, root: &str) -> Ask {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let has =
            |name: &str| query.split('&').any(|part| part == name || part.split('=').next() == Some(name));
        let is = |text: &str| query.split('&').any(|part| part == text);
        let below = path.strip_prefix(root).unwrap_or(path).trim_start_matches('/');
        let names_object = below.split_once('/').is_some_and(|(_, key)| !key.is_empty());
        match method {
            "HEAD" => Ask::Head,
            "GET" if has("uploads") || is("comp=blocklist") => Ask::ListUploads,
            "GET" if has("list-type") || is("comp=list") => Ask::List,
            "GET" if names_object && !has("uploadId") => Ask::Get,
            "PUT" if has("partNumber") || is("comp=block") => Ask::Part,
            "PUT" if is("comp=blocklist") => Ask::Complete,
            "PUT" if names_object => Ask::Put,
            "POST" if has("uploads") => Ask::CreateUpload,
            "POST" if has("uploadId") => Ask::Complete,
            "POST" if has("delete") || is("comp=batch") => Ask::Delete,
            "DELETE" if has("uploadId") => Ask::Abort,
            "DELETE" => Ask::Delete,
            _ => Ask::Other,
        }
    }
}

/// What happens to a request. The request reaches the server unless stated otherwise.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// Answered by the proxy with this status and an error document. The server does not see the request.
    Status(u16),
    /// 503 SlowDown with Retry-After in seconds. The server does not see the request.
    SlowDown(u64),
    /// 429 with Retry-After in seconds. The server does not see the request.
    TooMany(u64),
    /// A status with an error code of S3, for example 403 and ExpiredToken. The server does not see the request.
    Error(u16, &'static str),
    /// 301 PermanentRedirect: the bucket is in another region. The server does not see the request.
    Redirect,
    /// 200 with a web page: an endpoint that is not an object store. The server does not see the request.
    WebPage,
    /// 200 with an error document, as S3 answers to a completion that fails late. The server does not see the request.
    LateError,
    /// Bytes that are not HTTP. The server does not see the request.
    Garbage,
    /// The connection is reset before the request is passed on.
    Reset,
    /// The connection is closed before the request is passed on.
    Close,
    /// The server does what was asked; the connection is reset before its answer.
    LostAnswer,
    /// Reset after half of the body.
    ResetInBody,
    /// Closed after half of the body.
    CloseInBody,
    /// No answer until the proxy ends. The server does not see the request.
    Stall,
    /// Half of the body, and then nothing until the proxy ends.
    StallInBody,
    /// The first byte of the answer comes this much later.
    SlowFirstByte(Duration),
    /// The body comes in this number of pieces, with this pause before each.
    SlowBody(u32, Duration),
    /// Content-Length says more than the body has; the connection closes after the body.
    LongLength,
    /// Content-Length and body lack the last byte.
    ShortLength,
    /// Content-Length lacks the last byte, which is sent all the same.
    Surplus,
    /// Content-Range, where there is one, starts one byte later.
    WrongRange,
    /// A part of the object as if it were all: 200 in place of 206, no Content-Range.
    RangeAsWhole,
    WrongEtag,
    NoEtag,
    /// One bit of the body is different.
    FlippedByte,
}

/// When a trouble happens. Among the requests that match: the Nth, 2Nth, .. after some, at most a number of times.
#[derive(Debug)]
pub(crate) struct Rule {
    trouble: Trouble,
    ask: Option<Ask>,
    method: Option<&'static str>,
    part_of_target: String,
    every: u64,
    after: u64,
    limit: u64,
    matched: AtomicU64,
    struck: AtomicU64,
}

impl Rule {
    /// Every request.
    pub(crate) fn new(trouble: Trouble) -> Rule {
        Rule {
            trouble,
            ask: None,
            method: None,
            part_of_target: String::new(),
            every: 1,
            after: 0,
            limit: u64::MAX,
            matched: AtomicU64::new(0),
            struck: AtomicU64::new(0),
        }
    }

    pub(crate) fn only(mut self, ask: Ask) -> Rule {
        self.ask = Some(ask);
        self
    }

    pub(crate) fn method(mut self, method: &'static str) -> Rule {
        self.method = Some(method);
        self
    }

    /// Only requests whose path and query, percent-encoded, contain this.
    pub(crate) fn key(mut self, part: &str) -> Rule {
        part.clone_into(&mut self.part_of_target);
        self
    }

    pub(crate) fn every(mut self, every: u64) -> Rule {
        self.every = every;
        self
    }

    pub(crate) fn after(mut self, requests: u64) -> Rule {
        self.after = requests;
        self
    }

    pub(crate) fn limit(mut self, times: u64) -> Rule {
        self.limit = times;
        self
    }

    /// Whether the trouble happens to this request.
    fn strikes(&self, method: &str, ask: Ask, target: &str) -> bool {
        let matches = self.ask.is_none_or(|other| other == ask)
            && self.method.is_none_or(|other| other == method)
            && target.contains(&self.part_of_target);
        if !matches {
            return false;
        }
        let number = self.matched.fetch_add(1, Ordering::Relaxed) + 1;
        if number <= self.after || !(number - self.after).is_multiple_of(self.every) {
            return false;
        }
        let within = |struck| (struck < self.limit).then_some(struck + 1);
        self.struck.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }
}

#[derive(Debug, Default)]
struct Counted {
    asks: BTreeMap<Ask, u64>,
    log: Vec<String>,
    connections: u64,
}

struct Shared {
    upstream: SocketAddr,
    /// The path of the endpoint, which names the account for Azure.
    root: String,
    rules: Vec<Rule>,
    latency: Duration,
    counted: Mutex<Counted>,
    /// Requests for objects that have not been answered, and the largest number of them at one time.
    in_flight: AtomicU64,
    most_in_flight: AtomicU64,
    has_ended: Mutex<bool>,
    end: Condvar,
    is_ending: AtomicBool,
    open: Mutex<BTreeMap<u64, Arc<TcpStream>>>,
}

/// What a proxy is going to do.
pub(crate) struct Setup {
    upstream: SocketAddr,
    root: String,
    rules: Vec<Rule>,
    latency: Duration,
}

impl Setup {
    /// Adds a rule. Of several that apply to a request the first one decides.
    pub(crate) fn rule(mut self, rule: Rule) -> Setup {
        self.rules.push(rule);
        self
    }

    /// Every request waits this long before it is passed on. Requests on other connections do not wait for it.
    pub(crate) fn latency(mut self, latency: Duration) -> Setup {
        self.latency = latency;
        self
    }

    pub(crate) fn start(self) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            upstream: self.upstream,
            root: self.root,
            rules: self.rules,
            latency: self.latency,
            counted: Mutex::default(),
            in_flight: AtomicU64::new(0),
            most_in_flight: AtomicU64::new(0),
            has_ended: Mutex::new(false),
            end: Condvar::new(),
            is_ending: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        let accepts = std::thread::spawn(move || accept(&listener, &own));
        Proxy { address, shared, accepts: Some(accepts) }
    }
}

/// A running proxy. It ends, with all its connections, when it is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepts: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy to an endpoint `http://HOST:PORT[/PATH]`.
    pub(crate) fn to(endpoint: &str) -> Setup {
        let rest = endpoint.strip_prefix("http://").expect("an endpoint with http://");
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let root = if path.is_empty() { String::new() } else { format!("/{}", path.trim_end_matches('/')) };
        let upstream = host.parse().expect("an endpoint with address and port");
        Setup { upstream, root, rules: Vec::new(), latency: Duration::ZERO }
    }

    /// The endpoint to use in place of the server's.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}{}", self.address, self.shared.root)
    }

    /// How many requests asked for this.
    pub(crate) fn count(&self, ask: Ask) -> u64 {
        self.shared.counted.lock().unwrap().asks.get(&ask).copied().unwrap_or(0)
    }

    /// All requests.
    pub(crate) fn requests(&self) -> u64 {
        self.shared.counted.lock().unwrap().asks.values().sum()
    }

    pub(crate) fn connections(&self) -> u64 {
        self.shared.counted.lock().unwrap().connections
    }

    /// The most requests for objects that were in flight at one time.
    pub(crate) fn most_in_flight(&self) -> u64 {
        self.shared.most_in_flight.load(Ordering::Relaxed)
    }

    /// The requests in the order of their arrival: `GET /bucket/key bytes=0-9`. Values of signatures are not in them.
    pub(crate) fn log(&self) -> Vec<String> {
        self.shared.counted.lock().unwrap().log.clone()
    }

    /// How often a rule happened, in the order of the rules.
    pub(crate) fn struck(&self, rule: usize) -> u64 {
        self.shared.rules[rule].struck.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
        *self.shared.has_ended.lock().unwrap() = true;
        self.shared.end.notify_all();
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.address));
        if let Some(accepts) = self.accepts.take() {
            let _ = accepts.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    for (id, stream) in (0..).zip(listener.incoming()) {
        if shared.is_ending.load(Ordering::SeqCst) {
            break;
        }
        let Ok(stream) = stream else { continue };
        let stream = Arc::new(stream);
        shared.counted.lock().unwrap().connections += 1;
        shared.open.lock().unwrap().insert(id, Arc::clone(&stream));
        let own = Arc::clone(shared);
        let serve = move || {
            let mut connection = Connection { shared: &own, client: Wire::new(stream), upstream: None };
            // An error is that of a connection which one side has closed: the other side is closed, too.
            let ended = connection.serve();
            // A reset is sent when the last handle is closed.
            own.open.lock().unwrap().remove(&id);
            if matches!(ended, Ok(End::Reset)) {
                reset_on_close(&connection.client.stream);
            }
        };
        threads.push(std::thread::Builder::new().stack_size(256 << 10).spawn(serve).unwrap());
    }
    for stream in shared.open.lock().unwrap().values() {
        let _ = stream.shutdown(Shutdown::Both);
    }
    for thread in threads {
        let _ = thread.join();
    }
}

fn reset_on_close(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let length = size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the option's value is a `linger` of this length.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            length,
        )
    };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}

/// How a connection continues after a request.
enum End {
    Keep,
    Close,
    Reset,
}

struct Connection<'a> {
    shared: &'a Shared,
    client: Wire,
    upstream: Option<Wire>,
}

/// Counts a request as in flight for its lifetime.
struct InFlight<'a>(&'a AtomicU64);

impl<'a> InFlight<'a> {
    fn new(shared: &'a Shared) -> InFlight<'a> {
        let now = shared.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        shared.most_in_flight.fetch_max(now, Ordering::Relaxed);
        InFlight(&shared.in_flight)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<'a> Connection<'a> {
    fn serve(&mut self) -> io::Result<End> {
        self.client.stream.set_nodelay(true)?;
        while let Some(request) = self.client.head()? {
            let ask = Ask::of(request.word(0), request.word(1), &self.shared.root);
            let _in_flight = (ask == Ask::Get).then(|| InFlight::new(self.shared));
            let trouble = self.count(&request, ask);
            if !self.shared.latency.is_zero() && self.wait(Some(self.shared.latency)) {
                return Ok(End::Close);
            }
            match self.exchange(&request, trouble)? {
                End::Keep => {}
                other => return Ok(other),
            }
        }
        Ok(End::Close)
    }

    /// Counts the request, and says what happens to it.
    fn count(&self, request: &Head, ask: Ask) -> Option<&'a Trouble> {
        let (method, target) = (request.word(0), request.word(1));
        let mut counted = self.shared.counted.lock().unwrap();
        *counted.asks.entry(ask).or_default() += 1;
        if counted.log.len() < LOG_LIMIT {
            let shown = target.split("X-Amz-").next().unwrap_or_default();
            let range = request.get("range").map(|range| format!(" {range}")).unwrap_or_default();
            counted.log.push(format!("{method} {shown}{range}"));
        }
        let mut struck = None;
        for rule in &self.shared.rules {
            if struck.is_none() && rule.strikes(method, ask, target) {
                struck = Some(&rule.trouble);
            }
        }
        struck
    }

    /// Waits until the proxy ends, at most this long; true if it ends.
    fn wait(&self, limit: Option<Duration>) -> bool {
        let guard = self.shared.has_ended.lock().unwrap();
        let Some(limit) = limit else {
            drop(self.shared.end.wait_while(guard, |ended| !*ended).unwrap());
            return true;
        };
        *self.shared.end.wait_timeout_while(guard, limit, |ended| !*ended).unwrap().0
    }

    fn exchange(&mut self, request: &Head, trouble: Option<&Trouble>) -> io::Result<End> {
        if let Some(trouble) = trouble
            && let Some(end) = self.without_server(request, trouble)?
        {
            return Ok(end);
        }
        let method = request.word(0).to_owned();
        let answer = self.pass_on(request)?;
        let framing = answer.answer_framing(&method);
        let closes = answer.closes() || request.closes() || framing == Framing::UntilClose;
        let Some(trouble) = trouble else {
            self.client.send(&answer.bytes())?;
            let to = Arc::clone(&self.client.stream);
            self.upstream.as_mut().unwrap().pass(framing, &mut &*to)?;
            return Ok(if closes { End::Close } else { End::Keep });
        };
        let body = self.upstream.as_mut().unwrap().body(framing)?;
        let end = self.answer_with(answer, body, trouble, &method)?;
        Ok(if closes && matches!(end, End::Keep) { End::Close } else { end })
    }

    /// Passes the request on and returns the head of the answer.
    fn pass_on(&mut self, request: &Head) -> io::Result<Head> {
        if self.upstream.as_ref().is_none_or(Wire::is_closed) {
            let stream = TcpStream::connect(self.shared.upstream)?;
            stream.set_nodelay(true)?;
            self.upstream = Some(Wire::new(Arc::new(stream)));
        }
        let upstream = self.upstream.as_mut().unwrap();
        upstream.send(&request.bytes())?;
        let mut answer = None;
        if request.get("expect").is_some() {
            // The client sends the body when it has seen this.
            let head = upstream.head()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if head.status() == 100 {
                self.client.send(&head.bytes())?;
            } else {
                answer = Some(head);
            }
        }
        if answer.is_none() {
            let to = Arc::clone(&upstream.stream);
            self.client.pass(request.request_framing(), &mut &*to)?;
        }
        loop {
            let head = match answer.take() {
                Some(mut head) => {
                    // The body was not sent, and the client may or may not send it.
                    head.set("Connection", "close");
                    head
                }
                None => upstream.head()?.ok_or(io::ErrorKind::UnexpectedEof)?,
            };
            if head.status() != 100 {
                return Ok(head);
            }
        }
    }

    /// What the proxy does by itself, or `None` if the server has to answer first.
    fn without_server(&mut self, request: &Head, trouble: &Trouble) -> io::Result<Option<End>> {
        let error = |status: u16, code: &str, more: &[String]| {
            let kind = "Content-Type: application/xml".to_owned();
            let text = format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>injected: \
                 {code}</Message>{}<RequestId>proxy</RequestId></Error>",
                if status == 301 { "<Endpoint>other.example</Endpoint>" } else { "" }
            );
            (status, [&[kind], more].concat(), text)
        };
        let retry_after = |seconds: &u64| format!("Retry-After: {seconds}");
        let (status, fields, text) = match trouble {
            Trouble::Status(500) => error(500, "InternalError", &[]),
            Trouble::Status(503) => error(503, "ServiceUnavailable", &[]),
            Trouble::Status(status) => error(*status, "Injected", &[]),
            Trouble::SlowDown(seconds) => error(503, "SlowDown", &[retry_after(seconds)]),
            Trouble::TooMany(seconds) => error(429, "TooManyRequests", &[retry_after(seconds)]),
            Trouble::Error(status, code) => error(*status, code, &[]),
            Trouble::Redirect => {
                error(301, "PermanentRedirect", &["x-amz-bucket-region: other-region-1".to_owned()])
            }
            Trouble::LateError => error(200, "InternalError", &[]),
            Trouble::WebPage => {
                let page = "<!DOCTYPE html><html><body>It works!</body></html>".to_owned();
                (200, vec!["Content-Type: text/html".to_owned()], page)
            }
            Trouble::Garbage => {
                self.client.send(b"\x16\x03\x01 this is not HTTP\n\n\0\0\0\0 \xff\xfe\r\n\r\n")?;
                return Ok(Some(End::Close));
            }
            Trouble::Reset => return Ok(Some(End::Reset)),
            Trouble::Close => return Ok(Some(End::Close)),
            Trouble::Stall => {
                self.wait(None);
                return Ok(Some(End::Close));
            }
            _ => return Ok(None),
        };
        // A client that expects a go-ahead has not sent its body, and may never do so.
        let closes = request.get("expect").is_some();
        if !closes {
            self.client.pass(request.request_framing(), &mut io::sink())?;
        }
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let mut head = Head::new(&format!("HTTP/1.1 {status} Injected"), &fields);
        head.set("Content-Length", text.len());
        if closes {
            head.set("Connection", "close");
        }
        let body = if request.word(0) == "HEAD" { "" } else { text.as_str() };
        self.client.send(&[&head.bytes(), body.as_bytes()].concat())?;
        Ok(Some(if closes { End::Close } else { End::Keep }))
    }

    /// Sends an answer of the server with the trouble in it.
    fn answer_with(
        &self,
        mut head: Head,
        mut body: Vec<u8>,
        trouble: &Trouble,
        method: &str,
    ) -> io::Result<End> {
        if method != "HEAD" {
            head.remove("transfer-encoding");
            head.set("Content-Length", body.len());
        }
        let half = body.len() / 2;
        let send_half = |head: &Head| self.client.send(&[&head.bytes(), &body[..half]].concat());
        match trouble {
            Trouble::LostAnswer => return Ok(End::Reset),
            Trouble::ResetInBody => {
                send_half(&head)?;
                // A reset discards what has not been read: the client gets the half first, as it would from afar.
                std::thread::sleep(Duration::from_millis(20));
                return Ok(End::Reset);
            }
            Trouble::CloseInBody => {
                send_half(&head)?;
                return Ok(End::Close);
            }
            Trouble::StallInBody => {
                send_half(&head)?;
                self.wait(None);
                return Ok(End::Close);
            }
            Trouble::SlowFirstByte(pause) => {
                if self.wait(Some(*pause)) {
                    return Ok(End::Close);
                }
            }
            Trouble::SlowBody(pieces, pause) => {
                self.client.send(&head.bytes())?;
                for piece in body.chunks(body.len().div_ceil(*pieces as usize).max(1)) {
                    if self.wait(Some(*pause)) {
                        return Ok(End::Close);
                    }
                    self.client.send(piece)?;
                }
                return Ok(End::Keep);
            }
            Trouble::LongLength => {
                head.set("Content-Length", body.len() + 100);
                self.client.send(&[&head.bytes(), &body[..]].concat())?;
                return Ok(End::Close);
            }
            Trouble::ShortLength => {
                body.pop();
                head.set("Content-Length", body.len());
            }
            Trouble::Surplus => head.set("Content-Length", body.len().saturating_sub(1)),
            Trouble::WrongRange => {
                let range = head.get("content-range").and_then(shifted);
                range.into_iter().for_each(|range| head.set("Content-Range", range));
            }
            Trouble::RangeAsWhole => {
                head.first = head.first.replace(" 206 Partial Content", " 200 OK");
                head.remove("content-range");
            }
            Trouble::WrongEtag => head.set("ETag", "\"00000000000000000000000000000000\""),
            Trouble::NoEtag => head.remove("etag"),
            Trouble::FlippedByte => body.get_mut(half).into_iter().for_each(|byte| *byte ^= 1),
            other => unreachable!("{other:?} needs no server"),
        }
        self.client.send(&[&head.bytes(), &body[..]].concat())?;
        Ok(End::Keep)
    }
}

/// `bytes 1-10/20` for `bytes 0-10/20`.
fn shifted(range: &str) -> Option<String> {
    let (first, rest) = range.strip_prefix("bytes ")?.split_once('-')?;
    Some(format!("bytes {}-{rest}", first.parse::<u64>().ok()? + 1))
}
