//! Requests that are made one at a time and wait for their answer: facts about objects, small objects, listings,
//! uploads that have not ended. They are signed and sent like the reads of a lane. Failed attempts are repeated here.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::objects::Service;
use model::requests::{AttemptFailure, RequestCounts};
use model::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::answer::{self, AnswerHead, BodyEnd, code};
use super::body::ReceivedBody;
use super::connection::{Connection, ConnectionProgress, Stage};
use super::contract::{ListRequest, ListedKey, ObjectFacts, PendingUpload};
use super::endpoint::encode_value;
use super::queries::{azure_query, list_query, uploads_query};
use super::random::random;
use super::retry::{self, AnswerMeaning, LossMeaning};
use super::sign::{BareRequest, Signer};
use super::site::Site;
use super::stream::{ReceivedBytes, Stream, StreamError};
use super::xml;
use crate::{NoAnswer, Operation, Refusal, StoreError};

/// Most bytes of a document; a page of 1000 keys of 1024 bytes has about 2 MiB.
const MOST_DOCUMENT: u64 = 64 << 20;
/// Bytes that are received at once.
const ROOM: usize = 64 << 10;

/// Sends single requests. Connections are kept and shared by all threads.
#[derive(Debug)]
pub(crate) struct Client {
    site: Arc<Site>,
    idle: Mutex<Vec<IdleConnection>>,
    turn: AtomicUsize,
    counts: Mutex<RequestCounts>,
}

/// A connection that is kept, with what its requests need.
struct IdleConnection {
    connection: Connection,
    signer: Signer,
    room: Box<[u8]>,
}

impl std::fmt::Debug for IdleConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdleConnection").field("endpoint", &self.connection.endpoint).finish_non_exhaustive()
    }
}

/// One request.
#[derive(Clone, Copy)]
struct SingleRequest<'a> {
    operation: Operation,
    method: &'static str,
    key: &'a str,
    query: &'a str,
    /// Most bytes of the body.
    most: u64,
}

/// A complete answer.
#[derive(Debug)]
struct Answer {
    head: AnswerHead,
    tag: String,
    /// The version of the credential that the request was signed with.
    credential: u64,
    /// Whether it is a page for a browser, which no object of feedline's and no listing is.
    is_page: bool,
    body: Vec<u8>,
}

/// Why an attempt got no answer.
enum AttemptError {
    /// The connection had been closed by the server while it was kept.
    Stale,
    Lost(AttemptFailure, String),
    /// Nothing happened for the time of the silence timeout.
    TimedOut(AttemptFailure, String),
    Final(String),
}

/// What an answer means for its request.
enum Judgement {
    /// It is the answer; `None` if the object does not exist.
    Done(Option<Answer>),
    Failed(FailedAttempt),
    Final(StoreError),
}

/// An attempt after which another one may succeed.
struct FailedAttempt {
    kind: AttemptFailure,
    /// Seconds that the server asks to wait.
    retry_after: Option<u64>,
    /// The version of the credential, if it was not accepted.
    refused: Option<u64>,
    /// The error if no other attempt follows.
    error: StoreError,
}

impl FailedAttempt {
    fn new(kind: AttemptFailure, error: StoreError) -> FailedAttempt {
        FailedAttempt { kind, retry_after: None, refused: None, error }
    }
}

impl Client {
    pub(crate) fn new(site: Arc<Site>) -> Client {
        Client {
            site,
            idle: Mutex::default(),
            turn: AtomicUsize::new(random() as usize),
            counts: Mutex::default(),
        }
    }

    /// Facts about an object; `None` if it does not exist. The answer to HEAD does not say whether the bucket exists.
    pub(crate) fn head(&self, key: &str) -> Result<Option<ObjectFacts>, StoreError> {
        let call = SingleRequest { operation: Operation::Stat, method: "HEAD", key, query: "", most: 0 };
        let version = self.site.credentials().version();
        let (answer, from) = match self.call(&call) {
            Err(error) => {
                let explained = self.with_reason(&call, error);
                // Only the answer to GET says that the credential has expired, so it was renewed there.
                if self.site.credentials().version() == version {
                    return Err(explained);
                }
                self.call(&call)?
            }
            Ok(answered) => answered,
        };
        let Some(answer) = answer else { return Ok(None) };
        // Every object store sends a tag; a web server's answer to any name may have none.
        if answer.tag.is_empty() {
            return Err(self.nonsense(&call, "the answer has no entity tag", from));
        }
        let BodyEnd::Length(bytes) = answer.head.end else {
            return Err(self.nonsense(&call, "the answer does not say how long the object is", from));
        };
        Ok(Some(ObjectFacts { bytes, tag: answer.tag }))
    }

    /// The same error with the server's word for it. An answer to HEAD has no document, so it does not say why; the
    /// answer to GET does.
    fn with_reason(&self, call: &SingleRequest<'_>, error: StoreError) -> StoreError {
        let is_unexplained =
            matches!(&error, StoreError::Rejected { refusal, .. } if refusal.code.is_empty());
        let again = SingleRequest { method: "GET", most: ROOM as u64, ..*call };
        match is_unexplained.then(|| self.call(&again)) {
            Some(Err(explained @ StoreError::Rejected { .. })) => explained,
            _ => error,
        }
    }

    /// A whole object of at most `most` bytes.
    pub(crate) fn get(&self, key: &str, most: u64) -> Result<Option<(Vec<u8>, ObjectFacts)>, StoreError> {
        let call = SingleRequest { operation: Operation::Read, method: "GET", key, query: "", most };
        let (answer, _) = self.call(&call)?;
        Ok(answer.map(|Answer { tag, body, .. }| {
            let facts = ObjectFacts { bytes: body.len() as u64, tag };
            (body, facts)
        }))
    }

    pub(crate) fn list(
        &self,
        request: &ListRequest<'_>,
        each: &mut dyn FnMut(ListedKey<'_>),
    ) -> Result<Option<String>, StoreError> {
        let is_azure = self.site.place.service == Service::Azure;
        let query = if is_azure { azure_query(request) } else { list_query(request) };
        let (operation, most) = (Operation::List, MOST_DOCUMENT);
        let call = SingleRequest { operation, method: "GET", key: "", query: &query, most };
        let (answer, from) = self.call(&call)?;
        let Some(answer) = answer else { return Err(self.no_bucket(&call, from)) };
        let read = if is_azure { xml::read_azure_page } else { xml::read_page };
        read(&answer.body, each)
            .map_err(|what| self.nonsense(&call, &format!("the listing is wrong: {what}"), from))
    }

    /// Whether a listing can begin after a key.
    pub(crate) fn lists_after(&self) -> bool {
        self.site.place.service != Service::Azure
    }

    /// Uploads that have not ended. Azure discards them by itself after a week and does not list them by container. If
    /// the account may not list them, or the server cannot, none are known.
    pub(crate) fn uploads(&self, prefix: &str) -> Result<Vec<PendingUpload>, StoreError> {
        let (mut all, mut next) = (Vec::new(), Some((String::new(), String::new())));
        if self.site.place.service == Service::Azure {
            return Ok(all);
        }
        while let Some((key, id)) = next {
            let query = uploads_query(prefix, &key, &id);
            let (operation, most) = (Operation::List, MOST_DOCUMENT);
            let call = SingleRequest { operation, method: "GET", key: "", query: &query, most };
            let (answer, from) = match self.call(&call) {
                Err(StoreError::Rejected { refusal, .. }) if matches!(refusal.status, 403 | 405 | 501) => {
                    return Ok(all);
                }
                answered => answered?,
            };
            let Some(answer) = answer else { return Err(self.no_bucket(&call, from)) };
            let wrong = |what: &str| self.nonsense(&call, &format!("the list of uploads {what}"), from);
            let page = xml::read_uploads(&answer.body).map_err(|what| wrong(&format!("is wrong: {what}")))?;
            if page.next.as_ref() == Some(&(key, id)) {
                return Err(wrong("does not end"));
            }
            // Some servers ignore the prefix.
            all.extend(page.uploads.into_iter().filter(|upload| upload.key.starts_with(prefix)));
            next = page.next;
        }
        Ok(all)
    }

    pub(crate) fn abort(&self, upload: &PendingUpload) -> Result<(), StoreError> {
        let query = format!("uploadId={}", encode_value(&upload.id));
        let (operation, key) = (Operation::Remove, upload.key.as_str());
        self.call(&SingleRequest { operation, method: "DELETE", key, query: &query, most: MOST_DOCUMENT })
            .map(drop)
    }

    /// The requests that were made.
    pub(crate) fn counts(&self) -> RequestCounts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, count: impl FnOnce(&mut RequestCounts)) {
        count(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Makes a request until it is answered, and returns the number of the endpoint that answered; `None` if the object
    /// does not exist.
    fn call(&self, call: &SingleRequest<'_>) -> Result<(Option<Answer>, usize), StoreError> {
        let policy = &self.site.options.retry;
        let (mut made, mut elapsed, mut afresh) = (0, Nanos::ZERO, false);
        loop {
            let endpoint = self.turn.fetch_add(1, Ordering::Relaxed) % self.site.endpoints.len();
            let failed = match self.attempt(call, endpoint, afresh) {
                Ok(answer) => match self.judge(call, answer, made + 1, endpoint) {
                    Judgement::Done(answer) => return Ok((answer, endpoint)),
                    Judgement::Final(error) => return Err(error),
                    Judgement::Failed(failed) => failed,
                },
                Err(AttemptError::Stale) => {
                    afresh = true;
                    continue;
                }
                Err(AttemptError::Final(what)) => return Err(StoreError::Refused(what)),
                Err(AttemptError::Lost(kind, what)) => {
                    FailedAttempt::new(kind, self.unanswered(call, kind, &what, made + 1, endpoint))
                }
                Err(AttemptError::TimedOut(kind, what)) => {
                    elapsed += policy.silence;
                    FailedAttempt::new(kind, self.unanswered(call, kind, &what, made + 1, endpoint))
                }
            };
            let FailedAttempt { kind, retry_after, refused, error } = failed;
            made += 1;
            afresh |= kind.breaks_connection();
            self.count(|counts| counts.fail(kind));
            self.site.attempt_failed(kind);
            if refused.is_some_and(|version| !self.site.credentials().refused(version)) {
                return Err(error);
            }
            let Some(pause) = retry::pause(policy, made, elapsed, retry_after, random()) else {
                return Err(error);
            };
            elapsed += pause;
            match refused {
                Some(version) => elapsed += self.wait_for_credential(version, elapsed),
                None => std::thread::sleep(Duration::from_nanos(pause.0)),
            }
        }
    }

    /// Waits for another credential than that of this version. Returns how long, if none came.
    fn wait_for_credential(&self, version: u64, elapsed: Nanos) -> Nanos {
        let most = retry::renewal_wait(&self.site.options.retry, elapsed);
        if self.site.credentials().wait(version, Duration::from_nanos(most.0)) { Nanos::ZERO } else { most }
    }

    /// What a complete answer means.
    fn judge(&self, call: &SingleRequest<'_>, answer: Answer, attempts: u32, endpoint: usize) -> Judgement {
        let code = if answer.head.is_success() { String::new() } else { code(&answer.body) };
        let refused = |code: String| {
            let (status, endpoint) = (answer.head.status, self.site.endpoints[endpoint].label());
            let refusal = Box::new(Refusal { status, code, attempts, endpoint });
            StoreError::Rejected { operation: call.operation, name: self.site.shown(call.key), refusal }
        };
        match retry::meaning(answer.head.status, &code) {
            AnswerMeaning::Success if answer.is_page => {
                Judgement::Final(self.nonsense(call, "it answered with a web page", endpoint))
            }
            AnswerMeaning::Success => {
                self.count(|counts| counts.answered += 1);
                Judgement::Done(Some(answer))
            }
            AnswerMeaning::Missing => Judgement::Done(None),
            AnswerMeaning::Failed(kind) => Judgement::Failed(FailedAttempt {
                kind,
                retry_after: answer.head.retry_after,
                refused: (kind == AttemptFailure::Expired).then_some(answer.credential),
                error: refused(code),
            }),
            AnswerMeaning::Final => Judgement::Final(refused(code)),
        }
    }

    fn unanswered(
        &self,
        call: &SingleRequest<'_>,
        kind: AttemptFailure,
        what: &str,
        attempts: u32,
        endpoint: usize,
    ) -> StoreError {
        let endpoint = self.site.endpoints[endpoint].label();
        let how = Box::new(NoAnswer { kind, cause: what.to_owned(), attempts, endpoint });
        StoreError::Unanswered { operation: call.operation, name: self.site.shown(call.key), how }
    }

    fn nonsense(&self, call: &SingleRequest<'_>, what: &str, endpoint: usize) -> StoreError {
        let what = format!("{what}; is this the endpoint of an object store?");
        self.unanswered(call, AttemptFailure::Malformed, &what, 1, endpoint)
    }

    /// A listing says 404 only if there is no bucket.
    fn no_bucket(&self, call: &SingleRequest<'_>, endpoint: usize) -> StoreError {
        let (attempts, endpoint) = (1, self.site.endpoints[endpoint].label());
        let refusal = Refusal { status: 404, code: "NoSuchBucket".to_owned(), attempts, endpoint };
        let (operation, name) = (call.operation, self.site.shown(call.key));
        StoreError::Rejected { operation, name, refusal: Box::new(refusal) }
    }

    /// Sends a request once, on a connection that was kept unless it must be `afresh`.
    fn attempt(
        &self,
        call: &SingleRequest<'_>,
        endpoint: usize,
        afresh: bool,
    ) -> Result<Answer, AttemptError> {
        let kept = if afresh { None } else { self.take(endpoint) };
        let is_kept = kept.is_some();
        let mut kept = match kept {
            Some(kept) => kept,
            None => self.connect(endpoint, afresh)?,
        };
        let key = [call.key.as_bytes(), b"".as_slice()];
        let request = BareRequest { method: call.method, key, query: call.query, range: None };
        kept.signer.write(&mut kept.connection.out, &self.site.endpoints[endpoint], &request);
        self.count(|counts| counts.requests += 1);
        match self.exchange(&mut kept, call) {
            Ok(answer) => {
                if !answer.head.closes {
                    kept.connection.stage = Stage::Idle;
                    self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
                }
                Ok(answer)
            }
            // Nothing of an answer arrived on a connection that was kept: the server had closed it.
            Err(AttemptError::Lost(AttemptFailure::Reset, _))
                if is_kept && kept.connection.answer.is_none() && kept.connection.text.is_empty() =>
            {
                Err(AttemptError::Stale)
            }
            Err(failure) => Err(failure),
        }
    }

    /// A kept connection to an endpoint.
    fn take(&self, endpoint: usize) -> Option<IdleConnection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let at = idle.iter().rposition(|kept| kept.connection.endpoint == endpoint)?;
        Some(idle.swap_remove(at))
    }

    fn connect(&self, endpoint: usize, afresh: bool) -> Result<IdleConnection, AttemptError> {
        let lost = |cause: Errno| AttemptError::Lost(AttemptFailure::NotConnected, cause.to_string());
        let turn = self.turn.load(Ordering::Relaxed);
        let stream = Stream::connect(self.site.address(endpoint, turn)).map_err(lost)?;
        let mut connection = Connection::new(stream, endpoint, 0, Nanos::ZERO, 0);
        let target = &self.site.endpoints[endpoint];
        loop {
            self.wait(&connection, true, AttemptFailure::NotConnected)?;
            match connection.connect(target, &self.site.tls, true) {
                ConnectionProgress::Connected => break,
                ConnectionProgress::Wait => {
                    let writes = connection.stream.wants_write();
                    self.wait(&connection, writes, AttemptFailure::NotConnected)?;
                }
                ConnectionProgress::Failed(cause) => return Err(self.broken(&connection, &cause)),
                _ => return Err(lost(Errno::CONNRESET)),
            }
        }
        self.site.connected(endpoint);
        self.count(|counts| {
            counts.connects += 1;
            counts.reconnects += u64::from(afresh);
        });
        Ok(IdleConnection { connection, signer: self.site.signer(), room: vec![0; ROOM].into_boxed_slice() })
    }

    /// A connection failed.
    fn broken(&self, connection: &Connection, cause: &StreamError) -> AttemptError {
        match self.site.loss(connection.endpoint, connection.stage, cause) {
            LossMeaning::Failed(kind) => AttemptError::Lost(kind, cause.to_string()),
            LossMeaning::Final(what) => AttemptError::Final(what),
        }
    }

    /// Waits until a socket is ready.
    fn wait(&self, connection: &Connection, writes: bool, kind: AttemptFailure) -> Result<(), AttemptError> {
        let silence = self.site.options.retry.silence;
        let flags = if writes { PollFlags::OUT | PollFlags::IN } else { PollFlags::IN };
        let most = Timespec {
            tv_sec: (silence.0 / 1_000_000_000) as i64,
            tv_nsec: (silence.0 % 1_000_000_000) as i64,
        };
        match poll(&mut [PollFd::new(&connection.stream, flags)], Some(&most)) {
            Ok(0) => {
                let kind = if kind == AttemptFailure::NotConnected { kind } else { AttemptFailure::Silent };
                Err(AttemptError::TimedOut(kind, format!("no byte for {silence}")))
            }
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(cause) => Err(AttemptError::Lost(kind, cause.to_string())),
        }
    }

    /// Sends a request and receives the whole answer.
    fn exchange(&self, kept: &mut IdleConnection, call: &SingleRequest<'_>) -> Result<Answer, AttemptError> {
        let IdleConnection { connection, room, .. } = kept;
        connection.begin(Nanos::ZERO, 0);
        loop {
            match connection.send() {
                ConnectionProgress::Connected => break,
                ConnectionProgress::Failed(cause) => return Err(self.broken(connection, &cause)),
                _ => self.wait(connection, true, AttemptFailure::Reset)?,
            }
        }
        connection.stage = Stage::Head;
        let (mut raw, mut tag, mut is_page) = (Vec::new(), String::new(), false);
        let head = loop {
            let received = connection.stream.receive(room);
            match received.map_err(|cause| self.broken(connection, &cause))? {
                ReceivedBytes::Nothing => {
                    self.wait(connection, false, AttemptFailure::Reset)?;
                    continue;
                }
                ReceivedBytes::End => return Err(closed()),
                ReceivedBytes::Bytes(count) => raw.extend_from_slice(&room[..count]),
            }
            let parsed = answer::parse(&raw, |name, value| {
                if name.eq_ignore_ascii_case("etag") {
                    tag = String::from_utf8_lossy(value).into_owned();
                }
                is_page |= name.eq_ignore_ascii_case("content-type") && value.starts_with(b"text/html");
            });
            match parsed {
                Ok(Some(head)) => break head,
                Ok(None) => connection.text.clone_from(&raw),
                Err(what) => return Err(AttemptError::Lost(AttemptFailure::Malformed, what.to_owned())),
            }
        };
        connection.answer = Some(head);
        let body = self.body(kept, call, head, &raw[head.bytes..])?;
        // What is behind the answer belongs to no other one.
        let closes = head.closes || body.has_surplus();
        let (head, credential) = (AnswerHead { closes, ..head }, kept.signer.version());
        Ok(Answer { head, tag, credential, is_page, body: body.into_bytes() })
    }

    fn body(
        &self,
        kept: &mut IdleConnection,
        call: &SingleRequest<'_>,
        head: AnswerHead,
        begun: &[u8],
    ) -> Result<ReceivedBody, AttemptError> {
        let malformed = |what: &str| AttemptError::Lost(AttemptFailure::Malformed, what.to_owned());
        let most = if head.is_success() { call.most } else { call.most.max(ROOM as u64) };
        let end = if call.method == "HEAD" { BodyEnd::Length(0) } else { head.end };
        let mut body = ReceivedBody::new(end);
        body.take(begun).map_err(malformed)?;
        while !body.is_whole() {
            if body.bytes().len() as u64 > most {
                return Err(AttemptError::Final(format!(
                    "{} has more than the {most} bytes that it should have at most",
                    self.site.shown(call.key)
                )));
            }
            let received = kept.connection.stream.receive(&mut kept.room);
            match received.map_err(|cause| self.broken(&kept.connection, &cause))? {
                ReceivedBytes::Nothing => self.wait(&kept.connection, false, AttemptFailure::Reset)?,
                ReceivedBytes::End if end == BodyEnd::Close => break,
                ReceivedBytes::End => return Err(closed()),
                ReceivedBytes::Bytes(count) => body.take(&kept.room[..count]).map_err(malformed)?,
            }
        }
        if head.is_success() && body.has_surplus() {
            return Err(malformed("the answer has more bytes than it says"));
        }
        Ok(body)
    }
}

fn closed() -> AttemptError {
    AttemptError::Lost(
        AttemptFailure::Reset,
        "the connection was closed before the answer was complete".to_owned(),
    )
}
