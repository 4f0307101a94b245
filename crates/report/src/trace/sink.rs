//! Where the lines of a trace go: compressed or not, and never more than the limit.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use model::spans::OperationSpan;
use model::units::Nanos;

use super::lines::{TraceLines, TraceProcess, WriteFileName, quoted};

/// Lines are passed on in parts of about this size.
const PART: usize = 16 << 10;

/// What is kept free for the end of the trace.
const RESERVE: u64 = 4 << 10;

/// Counts what it passes on.
struct CountedBytes<W> {
    inner: W,
    bytes: u64,
}

impl<W: Write> Write for CountedBytes<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

enum TraceSink<W: Write> {
    Plain(CountedBytes<W>),
    Gzip(Box<GzEncoder<CountedBytes<W>>>),
}

impl<W: Write> TraceSink<W> {
    fn bytes(&self) -> u64 {
        match self {
            TraceSink::Plain(counted) => counted.bytes,
            TraceSink::Gzip(encoder) => encoder.get_ref().bytes,
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            TraceSink::Plain(counted) => counted,
            TraceSink::Gzip(encoder) => encoder,
        }
    }
}

/// What the end of a trace says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceEnd {
    /// Operations that were not recorded because the writer was too slow.
    pub lost: u64,
    /// Which limit ended the trace before the run, if one did.
    pub limit_reached: Option<String>,
}

/// Writes a trace.
#[expect(missing_debug_implementations, reason = "a compressor has no useful form")]
pub struct TraceWriter<W: Write> {
    sink: TraceSink<W>,
    lines: TraceLines,
    limit: u64,
    /// Bytes that the compressor may still hold.
    held: u64,
    /// Operations in the trace, and those whose lines have not been passed on.
    events: u64,
    pending: u64,
    is_full: bool,
}

impl<W: Write> TraceWriter<W> {
    /// A trace of at most `limit` bytes.
    pub fn new(to: W, compressed: bool, limit: u64, process: &TraceProcess) -> TraceWriter<W> {
        let counted = CountedBytes { inner: to, bytes: 0 };
        let sink = match compressed {
            // The fastest level: a trace must not slow the run down, and lines are so alike that it still saves 90 %.
            true => TraceSink::Gzip(Box::new(GzEncoder::new(counted, Compression::fast()))),
            false => TraceSink::Plain(counted),
        };
        let lines = TraceLines::new(process);
        TraceWriter { sink, lines, limit, held: 0, events: 0, pending: 0, is_full: false }
    }

    /// Adds an operation that began at `at` on the clock of the trace. Returns whether the trace has room for more.
    pub fn add(
        &mut self,
        span: &OperationSpan,
        at: Nanos,
        name_of: &mut WriteFileName<'_>,
    ) -> io::Result<bool> {
        if !self.is_full {
            self.lines.add(span, at, name_of);
            self.pending += 1;
            if self.lines.text.len() >= PART {
                self.pass_on()?;
            }
        }
        Ok(!self.is_full)
    }

    /// Operations in the trace so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Passes the lines on, unless they might exceed the limit.
    fn pass_on(&mut self) -> io::Result<()> {
        let room = self.limit.saturating_sub(RESERVE);
        let needed = self.lines.text.len() as u64 + 64;
        if self.sink.bytes() + self.held + needed > room {
            self.sync()?;
        }
        if self.sink.bytes() + needed > room {
            (self.is_full, self.pending) = (true, 0);
            self.lines.text.clear();
            return Ok(());
        }
        self.sink.writer().write_all(&self.lines.text)?;
        self.held += needed;
        self.events += std::mem::take(&mut self.pending);
        self.lines.text.clear();
        Ok(())
    }

    /// Makes the compressor pass on what it holds.
    fn sync(&mut self) -> io::Result<()> {
        self.held = 0;
        self.sink.writer().flush()
    }

    /// Passes on everything, so that the trace can be read up to here even if nothing follows.
    pub fn flush(&mut self) -> io::Result<()> {
        self.pass_on()?;
        if self.held > 0 { self.sync() } else { Ok(()) }
    }

    /// Ends the trace; returns what it was written to, and its size.
    pub fn end(mut self, end: &TraceEnd) -> io::Result<(W, u64)> {
        self.pass_on()?;
        let TraceEnd { lost, limit_reached } = end;
        let reached = limit_reached.as_deref().map_or("null".to_owned(), quoted);
        let events = self.events;
        self.lines.end(&format!(r#""events":{events},"lost":{lost},"limit_reached":{reached}"#));
        self.sink.writer().write_all(&self.lines.text)?;
        let CountedBytes { mut inner, bytes } = match self.sink {
            TraceSink::Plain(counted) => counted,
            TraceSink::Gzip(encoder) => encoder.finish()?,
        };
        inner.flush()?;
        Ok((inner, bytes))
    }

    /// Whether the limit by size was reached.
    pub fn is_full(&self) -> bool {
        self.is_full
    }
}
