//! As much of HTTP/1.1 as a proxy needs: heads that are passed on byte for byte unless a field is changed, and bodies
//! by their framing.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

const PIECE: usize = 128 << 10;
const HEAD_LIMIT: usize = 64 << 10;

/// The first line and the fields of a request or an answer.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub first: String,
    fields: Vec<String>,
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(u64),
    Chunked,
    /// The connection ends with the body.
    UntilClose,
}

impl Head {
    /// A head of these lines.
    pub(crate) fn new(first: &str, fields: &[&str]) -> Head {
        Head { first: first.to_owned(), fields: fields.iter().map(ToString::to_string).collect() }
    }

    fn parse(bytes: &[u8]) -> io::Result<Head> {
        let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        let mut lines = text.trim_end_matches("\r\n").split("\r\n").map(str::to_owned);
        let first = lines.next().unwrap_or_default();
        Ok(Head { first, fields: lines.collect() })
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{}\r\n", self.first);
        for field in &self.fields {
            text.push_str(field);
            text.push_str("\r\n");
        }
        text.push_str("\r\n");
        text.into_bytes()
    }

    /// A word of the first line: method, target and version, or version and status.
    pub(crate) fn word(&self, index: usize) -> &str {
        self.first.split(' ').nth(index).unwrap_or_default()
    }

    pub(crate) fn status(&self) -> u16 {
        self.word(1).parse().unwrap_or(0)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut parts = self.fields.iter().filter_map(|field| field.split_once(':'));
        parts.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let other = |field: &String| field.split(':').next().is_none_or(|it| !it.eq_ignore_ascii_case(name));
        self.fields.retain(other);
    }

    pub(crate) fn set(&mut self, name: &str, value: impl std::fmt::Display) {
        self.remove(name);
        self.fields.push(format!("{name}: {value}"));
    }

    fn is_chunked(&self) -> bool {
        self.get("transfer-encoding").is_some_and(|value| value.to_ascii_lowercase().contains("chunked"))
    }

    fn length(&self) -> Option<u64> {
        self.get("content-length").and_then(|value| value.parse().ok())
    }

    pub(crate) fn request_framing(&self) -> Framing {
        if self.is_chunked() { Framing::Chunked } else { Framing::Length(self.length().unwrap_or(0)) }
    }

    pub(crate) fn answer_framing(&self, method: &str) -> Framing {
        if method == "HEAD" || [204, 304].contains(&self.status()) {
            Framing::Length(0)
        } else if self.is_chunked() {
            Framing::Chunked
        } else {
            self.length().map_or(Framing::UntilClose, Framing::Length)
        }
    }

    pub(crate) fn closes(&self) -> bool {
        self.get("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// A connection, and what was received on it but not used.
pub(crate) struct Wire {
    pub stream: Arc<TcpStream>,
    buffer: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(stream: Arc<TcpStream>) -> Wire {
        Wire { stream, buffer: Vec::new() }
    }

    /// Receives more; false at the end of the connection.
    fn receive(&mut self) -> io::Result<bool> {
        let before = self.buffer.len();
        self.buffer.resize(before + PIECE, 0);
        let count = (&*self.stream).read(&mut self.buffer[before..]);
        self.buffer.truncate(before + *count.as_ref().unwrap_or(&0));
        Ok(count? > 0)
    }

    /// The next head, or `None` if the connection ends before one starts.
    pub(crate) fn head(&mut self) -> io::Result<Option<Head>> {
        let length = loop {
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if self.buffer.len() > HEAD_LIMIT {
                return Err(io::Error::other("a head that does not end"));
            }
            if !self.receive()? {
                let is_between = self.buffer.is_empty();
                return if is_between { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        };
        let bytes: Vec<u8> = self.buffer.drain(..length).collect();
        Head::parse(&bytes).map(Some)
    }

    /// The next bytes, at most `limit`.
    fn piece(&mut self, limit: u64) -> io::Result<Vec<u8>> {
        if self.buffer.is_empty() && !self.receive()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let count = usize::try_from(limit).unwrap_or(usize::MAX).min(self.buffer.len());
        if count == self.buffer.len() {
            return Ok(std::mem::take(&mut self.buffer));
        }
        Ok(self.buffer.drain(..count).collect())
    }

    /// A line with its end.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                return Ok(self.buffer.drain(..at + 2).collect());
            }
            if !self.receive()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn exactly(&mut self, mut left: u64, to: &mut dyn Write) -> io::Result<()> {
        while left > 0 {
            let piece = self.piece(left)?;
            to.write_all(&piece)?;
            left -= piece.len() as u64;
        }
        Ok(())
    }

    /// Passes a body on as it is.
    pub(crate) fn pass(&mut self, framing: Framing, to: &mut dyn Write) -> io::Result<()> {
        match framing {
            Framing::Length(length) => self.exactly(length, to),
            Framing::Chunked => loop {
                let (line, length) = self.chunk()?;
                to.write_all(&line)?;
                self.exactly(length + 2, to)?;
                if length == 0 {
                    return Ok(());
                }
            },
            Framing::UntilClose => loop {
                match self.piece(u64::MAX) {
                    Ok(piece) => to.write_all(&piece)?,
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                    Err(error) => return Err(error),
                }
            },
        }
    }

    /// The whole body, without its chunks.
    pub(crate) fn body(&mut self, framing: Framing) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if framing != Framing::Chunked {
            self.pass(framing, &mut body)?;
            return Ok(body);
        }
        loop {
            let (_, length) = self.chunk()?;
            self.exactly(length, &mut body)?;
            self.exactly(2, &mut io::sink())?;
            if length == 0 {
                return Ok(body);
            }
        }
    }

    /// The line before a chunk, and the chunk's length.
    fn chunk(&mut self) -> io::Result<(Vec<u8>, u64)> {
        let line = self.line()?;
        let text = String::from_utf8_lossy(&line);
        let digits = text.trim_end().split(';').next().unwrap_or_default();
        let length = u64::from_str_radix(digits, 16).map_err(io::Error::other)?;
        Ok((line, length))
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        (&*self.stream).write_all(bytes)
    }

    /// Whether the other side closed this connection while it was idle.
    pub(crate) fn is_closed(&self) -> bool {
        if self.stream.set_nonblocking(true).is_err() {
            return true;
        }
        let seen = self.stream.peek(&mut [0]);
        let restored = self.stream.set_nonblocking(false);
        restored.is_err() || !matches!(seen, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}
