//! One connection to a server: from connecting through the head and the body of answers. It moves bytes and says what
//! happened; its owner waits for the socket and decides what follows.

use std::sync::Arc;

use model::units::Nanos;
use rustls::ClientConfig;

use super::answer::{self, AnswerHead, BodyEnd};
use super::body::ReceivedBody;
use super::endpoint::Endpoint;
use super::stream::{ReceivedBytes, Stream, StreamError};

/// Most bytes of the document that explains an error.
const MOST_ERROR: usize = 64 << 10;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Connecting,
    /// Asking a proxy to pass the connection on.
    Tunnel,
    Handshake,
    /// Ready for a request.
    Idle,
    /// Sending the head of a request.
    Sending,
    /// Waiting for the head of the answer.
    Head,
    /// Receiving the content.
    Body,
    /// Receiving the document that explains an error.
    Explanation,
}

impl Stage {
    /// Whether no request can be sent yet.
    pub(crate) fn is_connecting(self) -> bool {
        matches!(self, Stage::Connecting | Stage::Tunnel | Stage::Handshake)
    }
}

/// What an event led to.
#[derive(Debug)]
pub(crate) enum ConnectionProgress {
    /// Nothing more can be done now.
    Wait,
    /// It is connected.
    Connected,
    /// The head of the answer is complete. This many bytes behind it have arrived.
    Head(AnswerHead, usize),
    /// These many bytes of the content have arrived.
    Content(usize),
    /// The error is explained.
    Explained,
    /// The server closed it.
    Closed,
    Failed(StreamError),
    /// The answer cannot be understood.
    Nonsense(&'static str),
}

pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) endpoint: usize,
    pub(crate) token: u64,
    pub(crate) stage: Stage,
    /// The request that it serves.
    pub(crate) part: Option<usize>,
    /// The head of the request, and how much of it was sent.
    pub(crate) out: Vec<u8>,
    sent: usize,
    /// The beginning of a head that arrived in several pieces, and what follows it if it is an error.
    pub(crate) text: Vec<u8>,
    /// The document that explains an error.
    explanation: ReceivedBody,
    /// The length of the last answer's head: most servers send heads of the same length.
    pub(crate) head_bytes: usize,
    pub(crate) answer: Option<AnswerHead>,
    /// Whether what arrived with the head is in the second buffer of `head_and_body`.
    pub(crate) placed: bool,
    /// Bytes of the content that are still to come.
    pub(crate) left: u64,
    /// When the current stage began.
    pub(crate) since: Nanos,
    /// The tick at which a byte last moved.
    pub(crate) moved: u64,
    /// Whether it has served a request.
    pub(crate) used: bool,
    /// Whether the lane waits to write to it.
    pub(crate) writes: bool,
}

impl Connection {
    pub(crate) fn new(stream: Stream, endpoint: usize, token: u64, now: Nanos, tick: u64) -> Connection {
        Connection {
            stream,
            endpoint,
            token,
            stage: Stage::Connecting,
            part: None,
            out: Vec::new(),
            sent: 0,
            text: Vec::new(),
            explanation: ReceivedBody::new(BodyEnd::Close),
            head_bytes: 0,
            answer: None,
            placed: false,
            left: 0,
            since: now,
            moved: tick,
            used: false,
            writes: true,
        }
    }

    /// Continues after the socket can be written to or has received bytes, until it is connected.
    pub(crate) fn connect(
        &mut self,
        endpoint: &Endpoint,
        tls: &Arc<ClientConfig>,
        writes: bool,
    ) -> ConnectionProgress {
        let failed = ConnectionProgress::Failed;
        if self.stage == Stage::Connecting {
            if !writes {
                return ConnectionProgress::Wait;
            }
            if let Err(cause) = self.stream.connected() {
                return failed(StreamError::Lost(cause));
            }
            match (endpoint.tls, &endpoint.proxy) {
                (false, _) => return ConnectionProgress::Connected,
                (true, Some(proxy)) => {
                    write_tunnel(
                        &mut self.out,
                        endpoint,
                        proxy.authorization.as_ref().map(|secret| secret.expose()),
                    );
                    (self.sent, self.stage) = (0, Stage::Tunnel);
                }
                (true, None) => {
                    if let Err(cause) = self.stream.begin_tls(tls, endpoint) {
                        return failed(cause);
                    }
                    self.stage = Stage::Handshake;
                }
            }
        }
        if self.stage == Stage::Tunnel {
            match self.tunnel() {
                ConnectionProgress::Connected => {}
                other => return other,
            }
            if let Err(cause) = self.stream.begin_tls(tls, endpoint) {
                return failed(cause);
            }
            self.stage = Stage::Handshake;
        }
        match self.stream.handshake() {
            Ok(true) => ConnectionProgress::Connected,
            Ok(false) => ConnectionProgress::Wait,
            Err(cause) => failed(cause),
        }
    }

    /// Asks the proxy and reads its answer.
    fn tunnel(&mut self) -> ConnectionProgress {
        match self.send() {
            ConnectionProgress::Connected => {}
            other => return other,
        }
        let mut bytes = [0; 512];
        loop {
            match self.stream.receive(&mut bytes) {
                Ok(ReceivedBytes::Bytes(count)) => self.text.extend_from_slice(&bytes[..count]),
                Ok(ReceivedBytes::Nothing) => return ConnectionProgress::Wait,
                Ok(ReceivedBytes::End) => return ConnectionProgress::Closed,
                Err(cause) => return ConnectionProgress::Failed(cause),
            }
            match answer::parse(&self.text, |_, _| {}) {
                Ok(None) => {}
                Ok(Some(head)) if head.is_success() => {
                    self.text.clear();
                    return ConnectionProgress::Connected;
                }
                Ok(Some(head)) => return ConnectionProgress::Failed(StreamError::Proxy(head.status)),
                Err(what) => return ConnectionProgress::Failed(StreamError::ProxyNonsense(what)),
            }
        }
    }

    /// Begins to send `out`.
    pub(crate) fn begin(&mut self, now: Nanos, tick: u64) {
        (self.sent, self.left, self.answer) = (0, 0, None);
        self.text.clear();
        (self.stage, self.since, self.moved) = (Stage::Sending, now, tick);
    }

    /// Sends the rest of `out`: `Connected` if all was sent.
    pub(crate) fn send(&mut self) -> ConnectionProgress {
        while self.sent < self.out.len() {
            match self.stream.send(&self.out[self.sent..]) {
                Ok(0) => return ConnectionProgress::Wait,
                Ok(count) => self.sent += count,
                Err(cause) => return ConnectionProgress::Failed(cause),
            }
        }
        if self.stream.wants_write() { ConnectionProgress::Wait } else { ConnectionProgress::Connected }
    }

    /// Receives the head of an answer into `room`, behind which there must be space. Bytes of the body that arrive with
    /// it are at the beginning of `room` afterwards.
    pub(crate) fn head(&mut self, room: &mut [u8]) -> ConnectionProgress {
        self.placed = false;
        let count = match self.receive(room) {
            Ok(count) => count,
            Err(progress) => return progress,
        };
        if self.text.is_empty() {
            return match answer::parse(&room[..count], |_, _| {}) {
                Ok(Some(head)) => {
                    room.copy_within(head.bytes..count, 0);
                    ConnectionProgress::Head(head, count - head.bytes)
                }
                Ok(None) => {
                    self.text.extend_from_slice(&room[..count]);
                    ConnectionProgress::Wait
                }
                Err(what) => ConnectionProgress::Nonsense(what),
            };
        }
        self.text.extend_from_slice(&room[..count]);
        self.joined(room)
    }

    /// Receives the head into the beginning of `room` and at most `most` bytes of what follows it into `body`, in one
    /// call. They are where they belong if the head is as long as the last one; otherwise they are moved.
    pub(crate) fn head_and_body(
        &mut self,
        room: &mut [u8],
        body: &mut [u8],
        most: usize,
    ) -> ConnectionProgress {
        let expected = self.head_bytes;
        self.placed = true;
        let count = match self.stream.receive_two(&mut room[..expected], &mut body[..most]) {
            Ok(ReceivedBytes::Bytes(count)) => count,
            Ok(ReceivedBytes::Nothing) => return ConnectionProgress::Wait,
            Ok(ReceivedBytes::End) => return ConnectionProgress::Closed,
            Err(cause) => return ConnectionProgress::Failed(cause),
        };
        let (in_room, in_body) = (count.min(expected), count.saturating_sub(expected));
        match answer::parse(&room[..in_room], |_, _| {}) {
            Ok(Some(head)) if head.bytes == expected => ConnectionProgress::Head(head, in_body),
            Ok(_) => {
                // Joined before anything is decided, because a shorter or longer head left bytes in both places.
                self.text.extend_from_slice(&room[..in_room]);
                self.text.extend_from_slice(&body[..in_body]);
                self.joined(body)
            }
            Err(what) => ConnectionProgress::Nonsense(what),
        }
    }

    /// Parses `text`. If the head is complete, what follows it is copied to the beginning of `room`, or stays in `text`
    /// if it explains an error.
    fn joined(&mut self, room: &mut [u8]) -> ConnectionProgress {
        match answer::parse(&self.text, |_, _| {}) {
            Ok(Some(head)) if !head.is_success() => {
                self.text.drain(..head.bytes);
                ConnectionProgress::Head(head, 0)
            }
            Ok(Some(head)) => {
                let rest = &self.text[head.bytes..];
                let Some(to) = room.get_mut(..rest.len()) else {
                    return ConnectionProgress::Nonsense("the answer has more bytes than were requested");
                };
                to.copy_from_slice(rest);
                let count = rest.len();
                self.text.clear();
                ConnectionProgress::Head(head, count)
            }
            Ok(None) => ConnectionProgress::Wait,
            Err(what) => ConnectionProgress::Nonsense(what),
        }
    }

    /// Receives content into `room`.
    pub(crate) fn content(&mut self, room: &mut [u8]) -> ConnectionProgress {
        match self.receive(room) {
            Ok(count) => ConnectionProgress::Content(count),
            Err(progress) => progress,
        }
    }

    /// Begins the explanation of an error: what `text` holds and `behind` arrived with the head. An answer to HEAD has
    /// none, whatever its head says.
    pub(crate) fn begin_explanation(
        &mut self,
        end: BodyEnd,
        is_head: bool,
        behind: &[u8],
    ) -> Result<(), &'static str> {
        self.stage = Stage::Explanation;
        self.explanation.begin(if is_head { BodyEnd::Length(0) } else { end });
        self.explanation.take(&self.text)?;
        self.explanation.take(behind)
    }

    /// Receives more of the explanation.
    pub(crate) fn receive_explanation(&mut self, room: &mut [u8]) -> ConnectionProgress {
        match self.receive(room) {
            Ok(count) => match self.explanation.take(&room[..count]) {
                Ok(()) if self.is_explained() => ConnectionProgress::Explained,
                Ok(()) => ConnectionProgress::Wait,
                Err(what) => ConnectionProgress::Nonsense(what),
            },
            Err(ConnectionProgress::Closed) => ConnectionProgress::Explained,
            Err(progress) => progress,
        }
    }

    /// Whether the explanation is complete, or too long to wait for its end.
    pub(crate) fn is_explained(&self) -> bool {
        self.explanation.is_whole() || self.explanation.bytes().len() > MOST_ERROR
    }

    /// What has arrived of the explanation, and whether the connection can be used again after it: the answer must have
    /// ended, and nothing may be behind it.
    pub(crate) fn explained(&self) -> (&[u8], bool) {
        let closes = self.answer.is_none_or(|answer| answer.closes);
        let is_exact = self.explanation.is_whole() && !self.explanation.has_surplus();
        (self.explanation.bytes(), is_exact && !closes)
    }

    fn receive(&mut self, room: &mut [u8]) -> Result<usize, ConnectionProgress> {
        match self.stream.receive(room) {
            Ok(ReceivedBytes::Bytes(count)) => Ok(count),
            Ok(ReceivedBytes::Nothing) => Err(ConnectionProgress::Wait),
            Ok(ReceivedBytes::End) => Err(ConnectionProgress::Closed),
            Err(cause) => Err(ConnectionProgress::Failed(cause)),
        }
    }
}

/// The request that makes a proxy pass a connection on.
fn write_tunnel(out: &mut Vec<u8>, endpoint: &Endpoint, authorization: Option<&str>) {
    let target = endpoint.label();
    out.clear();
    out.extend_from_slice(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").as_bytes());
    if let Some(authorization) = authorization {
        out.extend_from_slice(format!("Proxy-Authorization: {authorization}\r\n").as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}
