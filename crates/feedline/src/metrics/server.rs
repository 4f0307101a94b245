//! A small HTTP server for metrics: one thread, a few connections, and a limit for everything that a client can make it
//! do. It reads a request of limited size, answers once and closes. A client that is slow, silent or sends something
//! else loses its connection after a few seconds, or earlier if others need it. Between two rounds the thread pauses,
//! so that any number of requests takes a small, limited share of one core.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ::report::openmetrics::MetricsFormat;
use engine::meter::{self, Monotonic};
use model::units::Nanos;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use store::Now;

use super::figures::MetricsBoard;

/// Connections at a time. One more replaces the oldest: a scrape takes milliseconds, so the oldest is a client that
/// does not continue.
const MOST_CLIENTS: usize = 16;
/// Bytes of the head of a request, and its number of header lines.
const MOST_HEAD: usize = 8 << 10;
const MOST_HEADERS: usize = 64;
/// How long a client may take to send its request, to read the answer, and to close the connection.
const READING: Nanos = Nanos(5_000_000_000);
const WRITING: Nanos = Nanos(10_000_000_000);
const CLOSING: Nanos = Nanos(1_000_000_000);
/// Bytes that are read and thrown away after the answer. Closing a connection with unread bytes would discard the
/// answer.
const MOST_DISCARDED: usize = 64 << 10;
/// The pause between two rounds.
const ROUND: Duration = Duration::from_millis(5);

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct MetricsServer {
    address: SocketAddr,
    shared: Arc<ServerControl>,
    thread: Option<JoinHandle<()>>,
}

/// How the thread is ended.
#[derive(Debug)]
struct ServerControl {
    over: AtomicBool,
    waker: OwnedFd,
}

impl MetricsServer {
    pub(super) fn start(listener: TcpListener, board: &Arc<MetricsBoard>) -> std::io::Result<MetricsServer> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(ServerControl { over: AtomicBool::new(false), waker });
        let (of_thread, pages) = (Arc::clone(&shared), RenderedPages::new(Arc::clone(board)));
        let mut rounds = ServerRounds { listener, pages, clients: Vec::new(), clock: Monotonic::new() };
        let builder = std::thread::Builder::new().name("metrics-http".to_owned()).stack_size(256 << 10);
        let thread = builder.spawn(move || rounds.run(&of_thread))?;
        Ok(MetricsServer { address, shared, thread: Some(thread) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        // Relaxed: the write below wakes the thread, which then sees it, at the latest after a pause.
        self.shared.over.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&self.shared.waker, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The pages as they were last rendered. Requests that follow each other quickly get the same one.
#[derive(Debug)]
struct RenderedPages {
    board: Arc<MetricsBoard>,
    kept: [Option<(u64, Arc<[u8]>)>; 2],
}

impl RenderedPages {
    fn new(board: Arc<MetricsBoard>) -> RenderedPages {
        RenderedPages { board, kept: [None, None] }
    }

    fn get(&mut self, format: MetricsFormat) -> Arc<[u8]> {
        let version = self.board.version();
        let kept = &mut self.kept[usize::from(format == MetricsFormat::Text)];
        if let Some((_, page)) = kept.as_ref().filter(|(of, _)| *of == version) {
            return Arc::clone(page);
        }
        let page: Arc<[u8]> = self.board.text(format).into_bytes().into();
        *kept = Some((version, Arc::clone(&page)));
        page
    }
}

/// The state of the server's thread.
struct ServerRounds {
    listener: TcpListener,
    pages: RenderedPages,
    /// The oldest first.
    clients: Vec<MetricsClient>,
    clock: Monotonic,
}

impl ServerRounds {
    fn run(&mut self, control: &ServerControl) {
        // Relaxed: see `drop`.
        while !control.over.load(Ordering::Relaxed) {
            self.wait(control);
            self.accept();
            let (now, pages) = (self.clock.now(), &mut self.pages);
            self.clients.retain_mut(|client| client.advance(now, pages));
            meter::pause(ROUND);
        }
    }

    /// Waits until a client can continue, another one connects, or a time limit has passed.
    fn wait(&self, control: &ServerControl) {
        let mut fds = vec![
            PollFd::from_borrowed_fd(control.waker.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
        ];
        fds.extend(
            self.clients
                .iter()
                .map(|client| PollFd::from_borrowed_fd(client.stream.as_fd(), client.awaits())),
        );
        let now = self.clock.now();
        let next = self.clients.iter().map(|client| client.deadline.since(now)).min();
        let timeout = next.map(|span| Timespec {
            tv_sec: (span.0 / 1_000_000_000) as i64,
            tv_nsec: (span.0 % 1_000_000_000) as i64,
        });
        // An error, such as a signal, is a reason to look again.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    fn accept(&mut self) {
        for _ in 0..MOST_CLIENTS {
            let Ok((stream, _)) = self.listener.accept() else { return };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.clients.len() == MOST_CLIENTS {
                self.clients.remove(0);
            }
            self.clients.push(MetricsClient::new(stream, self.clock.now() + READING));
        }
    }
}

/// A connection.
struct MetricsClient {
    stream: TcpStream,
    deadline: Nanos,
    state: ClientState,
}

enum ClientState {
    /// The request, as far as it has arrived.
    Reading(Vec<u8>),
    /// The answer, in two parts, and how much of it was sent.
    Writing { head: Vec<u8>, body: Arc<[u8]>, sent: usize },
    /// The answer was sent; this many bytes were thrown away.
    Closing(usize),
}

/// What came of a step of a connection.
enum ClientStep {
    /// The next state.
    Next(ClientState),
    /// It has to wait for the client.
    Waits,
    Ends,
}

impl MetricsClient {
    fn new(stream: TcpStream, deadline: Nanos) -> MetricsClient {
        MetricsClient { stream, deadline, state: ClientState::Reading(Vec::new()) }
    }

    fn awaits(&self) -> PollFlags {
        match self.state {
            ClientState::Writing { .. } => PollFlags::OUT,
            ClientState::Reading(_) | ClientState::Closing(_) => PollFlags::IN,
        }
    }

    /// Continues as far as possible without waiting; returns whether the connection stays open.
    fn advance(&mut self, now: Nanos, pages: &mut RenderedPages) -> bool {
        if now >= self.deadline {
            return false;
        }
        loop {
            let step = match &mut self.state {
                ClientState::Reading(head) => read_request(&mut self.stream, head, pages),
                ClientState::Writing { head, body, sent } => write_answer(&mut self.stream, head, body, sent),
                ClientState::Closing(discarded) => discard(&mut self.stream, discarded),
            };
            let next = match step {
                ClientStep::Next(next) => next,
                ClientStep::Waits => return true,
                ClientStep::Ends => return false,
            };
            self.deadline = now + if matches!(next, ClientState::Writing { .. }) { WRITING } else { CLOSING };
            self.state = next;
        }
    }
}

/// What an I/O error means for a connection.
fn after(error: &std::io::Error) -> ClientStep {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => ClientStep::Waits,
        _ => ClientStep::Ends,
    }
}

fn read_request(stream: &mut TcpStream, head: &mut Vec<u8>, pages: &mut RenderedPages) -> ClientStep {
    let mut part = [0; MOST_HEAD];
    let room = MOST_HEAD - head.len();
    match stream.read(&mut part[..room]) {
        Ok(0) => ClientStep::Ends,
        Ok(count) => {
            head.extend_from_slice(&part[..count]);
            match answer(head, pages) {
                Some((head, body)) => ClientStep::Next(ClientState::Writing { head, body, sent: 0 }),
                // The next part is read in the next round.
                None => ClientStep::Waits,
            }
        }
        Err(error) => after(&error),
    }
}

fn write_answer(stream: &mut TcpStream, head: &[u8], body: &[u8], sent: &mut usize) -> ClientStep {
    while *sent < head.len() + body.len() {
        let rest =
            head.get(*sent..).filter(|rest| !rest.is_empty()).unwrap_or_else(|| &body[*sent - head.len()..]);
        match stream.write(rest) {
            Ok(0) => return ClientStep::Ends,
            Ok(count) => *sent += count,
            Err(error) => return after(&error),
        }
    }
    match stream.shutdown(Shutdown::Write) {
        Ok(()) => ClientStep::Next(ClientState::Closing(0)),
        Err(_) => ClientStep::Ends,
    }
}

/// Throws away what the client still sends, until it closes the connection or has sent too much.
fn discard(stream: &mut TcpStream, discarded: &mut usize) -> ClientStep {
    let mut part = [0; MOST_HEAD];
    match stream.read(&mut part) {
        Ok(0) => ClientStep::Ends,
        Ok(count) => {
            *discarded += count;
            if *discarded > MOST_DISCARDED { ClientStep::Ends } else { ClientStep::Waits }
        }
        Err(error) => after(&error),
    }
}

const FRONT_PAGE: &str =
    "<!DOCTYPE html><title>feedline</title><p>feedline: <a href=\"/metrics\">metrics</a>\n";

/// The answer to a request, with head and body; `None` while the request is incomplete.
fn answer(request: &[u8], pages: &mut RenderedPages) -> Option<(Vec<u8>, Arc<[u8]>)> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let plain = "text/plain; charset=utf-8";
    let (status, kind, more, body) = match parsed.parse(request) {
        Ok(httparse::Status::Partial) if request.len() < MOST_HEAD => return None,
        Ok(httparse::Status::Partial) => {
            ("431 Request Header Fields Too Large", plain, "", text("too large\n"))
        }
        Err(_) => ("400 Bad Request", plain, "", text("bad request\n")),
        Ok(httparse::Status::Complete(_)) if !is_read(&parsed) => {
            ("405 Method Not Allowed", plain, "Allow: GET, HEAD\r\n", text("use GET\n"))
        }
        Ok(httparse::Status::Complete(_)) => match parsed.path.map(without_query) {
            Some("/metrics") => {
                let format = wanted(&parsed);
                ("200 OK", format.content_type(), "Vary: Accept\r\n", pages.get(format))
            }
            Some("/") => ("200 OK", "text/html; charset=utf-8", "", text(FRONT_PAGE)),
            _ => ("404 Not Found", plain, "", text("not found; see /metrics\n")),
        },
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{more}Cache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    );
    let body = if parsed.method == Some("HEAD") { text("") } else { body };
    Some((head.into_bytes(), body))
}

fn text(text: &str) -> Arc<[u8]> {
    text.as_bytes().into()
}

fn is_read(request: &httparse::Request<'_, '_>) -> bool {
    matches!(request.method, Some("GET" | "HEAD"))
}

fn without_query(path: &str) -> &str {
    path.split(['?', '#']).next().unwrap_or_default()
}

/// OpenMetrics for a client that accepts it, else the older format, which every collector reads.
fn wanted(request: &httparse::Request<'_, '_>) -> MetricsFormat {
    let mut accepted = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    let is_open = |range: &str| {
        let mut parts = range.split(';').map(|part| part.trim().to_ascii_lowercase());
        let is_named = parts.next().is_some_and(|name| name == "application/openmetrics-text");
        let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f64>().ok());
        is_named && quality.is_none_or(|quality| quality > 0.0)
    };
    match accepted.any(|header| String::from_utf8_lossy(header.value).split(',').any(is_open)) {
        true => MetricsFormat::OpenMetrics,
        false => MetricsFormat::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(request: &[u8]) -> Option<String> {
        let mut pages = RenderedPages::new(Arc::new(MetricsBoard::new("run")));
        let (head, body) = answer(request, &mut pages)?;
        Some(String::from_utf8([&head, &body[..]].concat()).unwrap())
    }

    #[test]
    fn every_request_has_its_answer() {
        for (request, status, contains) in [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "200 OK", "version=0.0.4"),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200 OK", "feedline_run_info"),
            (
                "GET /metrics HTTP/1.1\r\naccept: text/plain, application/openmetrics-text;q=0.5\r\n\r\n",
                "200 OK",
                "application/openmetrics-text; version=1.0.0",
            ),
            (
                "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0;q=0\r\n\r\n",
                "200 OK",
                "version=0.0.4",
            ),
            ("GET / HTTP/1.1\r\n\r\n", "200 OK", "href=\"/metrics\""),
            ("GET /etc/passwd HTTP/1.1\r\n\r\n", "404 Not Found", "see /metrics"),
            ("GET http://other/metrics HTTP/1.1\r\n\r\n", "404 Not Found", ""),
            (
                "POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\n",
                "405 Method Not Allowed",
                "Allow: GET, HEAD",
            ),
            ("\u{0}\u{1}\u{2}garbage\r\n\r\n", "400 Bad Request", ""),
            ("GET /metrics HTTP/9.9\r\n\r\n", "400 Bad Request", ""),
        ] {
            let text = answered(request.as_bytes()).unwrap();
            assert!(text.starts_with(&format!("HTTP/1.1 {status}\r\n")) && text.contains(contains), "{text}");
            assert!(text.contains("\r\nConnection: close\r\n\r\n"), "{text}");
        }
    }

    #[test]
    fn a_request_is_limited() {
        assert_eq!(answered(b"GET /metrics HTTP/1.1\r\nHost: a\r\n"), None);
        let endless = [b"GET / HTTP/1.1\r\nx: ".as_slice(), &[b'a'; MOST_HEAD]].concat();
        assert!(answered(&endless[..MOST_HEAD]).unwrap().starts_with("HTTP/1.1 431 "));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MOST_HEADERS + 1));
        assert!(answered(many.as_bytes()).unwrap().starts_with("HTTP/1.1 400 "));
    }

    #[test]
    fn the_answer_to_head_has_no_body() {
        let text = answered(b"HEAD / HTTP/1.1\r\n\r\n").unwrap();
        assert!(text.contains(&format!("Content-Length: {}\r\n", FRONT_PAGE.len())), "{text}");
        assert!(text.ends_with("\r\n\r\n"), "{text}");
    }
}
