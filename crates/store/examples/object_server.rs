//! An object store in memory that costs as little as possible, to measure clients with: one thread, one epoll loop,
//! content sent from the page cache. It has every key whose second part is a size: `GET /bucket/16384/any` answers with
//! that many bytes. GET, HEAD and ranges; signatures are not checked. `object_server` prints its port and serves until
//! it is killed.

#![expect(clippy::print_stdout, reason = "a measuring program: this is its output")]

use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::MemfdFlags;

/// The largest object.
const CONTENT: u64 = 64 << 20;
const REQUEST_LIMIT: usize = 16 << 10;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What of an answer has not been sent.
struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    head: Vec<u8>,
    body_at: u64,
    body_end: u64,
    waits_to_send: bool,
}

fn main() -> Outcome<()> {
    let content = content()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    println!("{}", listener.local_addr()?.port());
    io::stdout().flush()?;
    let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let listens = listener.as_raw_fd();
    epoll::add(&events, &listener, EventData::new_u64(listens as u64), EventFlags::IN)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut ready = Vec::with_capacity(1024);
    loop {
        ready.clear();
        match epoll::wait(&events, rustix::buffer::spare_capacity(&mut ready), None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        for event in &ready {
            let id = event.data.u64() as usize;
            if id == listens as usize {
                accept(&listener, &events, &mut connections)?;
                continue;
            }
            let Some(slot) = connections.get_mut(id) else { continue };
            let Some(connection) = slot else { continue };
            if connection.advance(&content).is_err() {
                *slot = None;
                continue;
            }
            connection.register(&events)?;
        }
    }
}

/// Bytes that differ along the file, in the page cache.
fn content() -> Outcome<OwnedFd> {
    let file = rustix::fs::memfd_create("content", MemfdFlags::CLOEXEC)?;
    let mut state = 1_u64;
    let mut block = vec![0_u8; 1 << 20];
    let mut at = 0;
    while at < CONTENT {
        for bytes in block.chunks_exact_mut(8) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes.copy_from_slice(&(state ^ (state >> 29)).to_le_bytes());
        }
        at += rustix::io::pwrite(&file, &block, at)? as u64;
    }
    Ok(file)
}

fn accept(
    listener: &TcpListener,
    events: &OwnedFd,
    connections: &mut Vec<Option<Connection>>,
) -> Outcome<()> {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let id = stream.as_raw_fd() as usize;
        epoll::add(events, &stream, EventData::new_u64(id as u64), EventFlags::IN)?;
        if connections.len() <= id {
            connections.resize_with(id + 1, || None);
        }
        connections[id] = Some(Connection {
            stream,
            request: Vec::with_capacity(2048),
            head: Vec::with_capacity(512),
            body_at: 0,
            body_end: 0,
            waits_to_send: false,
        });
    }
}

impl Connection {
    /// Receives, answers and sends as much as is possible without waiting. An error ends the connection.
    fn advance(&mut self, content: &OwnedFd) -> io::Result<()> {
        loop {
            if !self.send(content)? {
                return Ok(());
            }
            if self.answer()? {
                continue;
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.request.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            if self.request.len() > REQUEST_LIMIT {
                return Err(io::Error::other("a request that is too long"));
            }
        }
    }

    /// Sends what is left of the answer; false if that has to wait.
    fn send(&mut self, content: &OwnedFd) -> io::Result<bool> {
        let has_body = self.body_at < self.body_end;
        if !self.head.is_empty() {
            let more = if has_body { libc::MSG_MORE } else { 0 };
            let flags = more | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: the descriptor is open, and the memory is that of a vector.
            let sent = unsafe {
                libc::send(self.stream.as_raw_fd(), self.head.as_ptr().cast(), self.head.len(), flags)
            };
            match usize::try_from(sent) {
                Ok(count) => drop(self.head.drain(..count)),
                Err(_) => return would_block(io::Error::last_os_error()),
            }
            if !self.head.is_empty() {
                return Ok(false);
            }
        }
        while self.body_at < self.body_end {
            let left = (self.body_end - self.body_at) as usize;
            match rustix::fs::sendfile(&self.stream, content, Some(&mut self.body_at), left) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) => return would_block(error.into()),
            }
        }
        Ok(true)
    }

    /// Prepares the answer to a request that has arrived completely; false if there is none.
    fn answer(&mut self) -> io::Result<bool> {
        let mut fields = [const { MaybeUninit::uninit() }; 48];
        let mut request = httparse::Request::new(&mut []);
        let parsed =
            request.parse_with_uninit_headers(&self.request, &mut fields).map_err(io::Error::other)?;
        let httparse::Status::Complete(length) = parsed else { return Ok(false) };
        let is_head = request.method == Some("HEAD");
        let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
        let size = path.split('/').nth(2).and_then(|size| size.parse().ok()).filter(|size| *size <= CONTENT);
        let mut wanted = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("range"));
        let range = wanted.next().map(|field| String::from_utf8_lossy(field.value).into_owned());
        let mut text = String::with_capacity(256);
        let (from, to) = describe(size, range.as_deref(), &mut text);
        self.request.drain(..length);
        self.head = text.into_bytes();
        (self.body_at, self.body_end) = if is_head { (0, 0) } else { (from, to) };
        Ok(true)
    }

    fn register(&mut self, events: &OwnedFd) -> Outcome<()> {
        let waits_to_send = !self.head.is_empty() || self.body_at < self.body_end;
        if waits_to_send == self.waits_to_send {
            return Ok(());
        }
        self.waits_to_send = waits_to_send;
        let flags = if waits_to_send { EventFlags::OUT } else { EventFlags::IN };
        let id = self.stream.as_raw_fd();
        // SAFETY: the stream is open for as long as `self`.
        let stream = unsafe { BorrowedFd::borrow_raw(id) };
        Ok(epoll::modify(events, stream, EventData::new_u64(id as u64), flags)?)
    }
}

fn would_block(error: io::Error) -> io::Result<bool> {
    if error.kind() == io::ErrorKind::WouldBlock { Ok(false) } else { Err(error) }
}

/// Writes the head of an answer and returns which bytes of the content follow.
fn describe(size: Option<u64>, range: Option<&str>, head: &mut String) -> (u64, u64) {
    let Some(size) = size else {
        head.push_str("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        return (0, 0);
    };
    let bounds = range.and_then(|range| {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        let last = if last.is_empty() { u64::MAX } else { last.parse().ok()? };
        Some((first.parse::<u64>().ok()?, last.min(size.wrapping_sub(1))))
    });
    let (from, to) = match bounds {
        Some((first, last)) if first >= size || last < first => {
            head.push_str("HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n");
            return (0, 0);
        }
        Some((first, last)) => {
            let _ = write!(
                head,
                "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{last}/{size}\r\n"
            );
            (first, last + 1)
        }
        None => {
            head.push_str("HTTP/1.1 200 OK\r\n");
            (0, size)
        }
    };
    let _ = write!(
        head,
        "Content-Length: {}\r\nETag: \"memory-{size}\"\r\nAccept-Ranges: bytes\r\nContent-Type: \
         application/octet-stream\r\nLast-Modified: Sun, 01 Nov 2026 00:00:00 GMT\r\n\r\n",
        to - from
    );
    (from, to)
}
