//! Locates the lines of any csv file, and checks that it is one. The whole file has to be searched, so this is
//! for files of moderate size, and must not be used if the whole file is read anyway.

use std::io::{self, Read};
use std::ops::{ControlFlow, Range};

use flate2::read::MultiGzDecoder;

use super::NAME;
use super::header::{CsvHeader, EXAMINED, is_number};
use crate::{ArrayList, Damage, Extent, FileFacts, FormatError, Look, Obstacle, within};

/// Bytes that are searched at once.
const PIECE: u64 = 4 << 20;
/// The longest file that is searched.
const MOST: u64 = 64 << 20;
/// The maximum inflated size of a gzipped file whose lines are counted.
const INFLATED_MOST: u64 = 1 << 30;
/// No number is longer.
const FIELD_MOST: usize = 64;
/// The type of a column of numbers, which csv does not distinguish.
const NUMBER: &str = "number";
/// The first bytes of gzip (RFC 1952).
const GZIP: [u8; 2] = [0x1F, 0x8B];

/// Appends the ranges of samples, which are the lines after the header; adjacent ranges are merged.
pub(super) fn find(
    look: &Look<'_>,
    expected: u64,
    samples: &Range<u64>,
    reads: &mut Vec<Extent>,
) -> Result<(), Obstacle> {
    within(NAME, samples, expected)?;
    check_size(look, "set reader.access to framework, which reads whole files")?;
    let (mut splitter, mut number, start) = (Splitter::default(), 0, reads.len());
    let header_end = CsvHeader::of(lead(look)?).map_or(0, |header| header.end);
    let mut take = |line: Range<u64>| {
        if line.start < header_end {
            return ControlFlow::Continue(());
        }
        if number >= samples.start {
            match reads[start..].last_mut() {
                Some(last) if last.end() == line.start => last.len += line.end - line.start,
                _ => reads.push(Extent { offset: line.start, len: line.end - line.start }),
            }
        }
        number += 1;
        if number == samples.end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    for piece in pieces(look.len) {
        let bytes = match look.at(piece.offset, piece.len) {
            Ok(bytes) => bytes,
            Err(obstacle) => {
                reads.truncate(start);
                return Err(obstacle);
            }
        };
        if piece.offset == 0 && bytes.starts_with(&GZIP) {
            reads.push(Extent { offset: 0, len: look.len });
            return Ok(());
        }
        if splitter.feed(bytes, &mut take).is_break() {
            return Ok(());
        }
    }
    if splitter.finish(&mut take).is_break() {
        return Ok(());
    }
    reads.truncate(start);
    Ok(within(NAME, samples, number)?)
}

/// What a file contains: the number of its lines, and of the values in the first; without a header.
pub(super) fn inspect(look: &Look<'_>, gzipped: bool) -> Result<FileFacts, Obstacle> {
    check_size(look, "give dataset.num_samples_per_file and use it without a catalog")?;
    if look.len == 0 {
        return Err(look.damage(0, "no lines").into());
    }
    for piece in pieces(look.len) {
        look.at(piece.offset, piece.len)?;
    }
    let lead = lead(look)?;
    let mut notes = Vec::new();
    let mut tally;
    if lead.starts_with(&GZIP) {
        notes.push("gzipped".to_owned());
        tally = LineCounter::new(CsvHeader::of(&inflated_lead(look)));
        tally.feed_inflated(look)?;
    } else if gzipped {
        return Err(look.damage(0, "no gzip signature (1F 8B)").into());
    } else {
        tally = LineCounter::new(CsvHeader::of(lead));
        for piece in pieces(look.len) {
            tally.feed(look, look.at(piece.offset, piece.len)?)?;
        }
    }
    let LineCount { lines, values, header } = tally.finish(look)?;
    let mut arrays = ArrayList::default();
    match header {
        None => arrays.add("", &[lines, values], NUMBER),
        Some(header) => {
            notes.push("header line".to_owned());
            let columns = header.columns.iter();
            columns
                .for_each(|(name, number)| arrays.add(name, &[lines], if *number { NUMBER } else { "text" }));
        }
    }
    Ok(FileFacts { samples: Some(lines), dims: vec![values], element: None, arrays, notes })
}

/// The beginning of a file.
fn lead<'a>(look: &Look<'a>) -> Result<&'a [u8], Obstacle> {
    look.at(0, look.len.min(PIECE))
}

/// The beginning of the text of a gzipped file whose bytes have all been read. Damage is reported when its lines are
/// counted.
fn inflated_lead(look: &Look<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    let _ = MultiGzDecoder::new(PieceStream { look, at: 0 }).take(EXAMINED as u64).read_to_end(&mut text);
    text
}

fn check_size(look: &Look<'_>, advice: &str) -> Result<(), FormatError> {
    if look.len <= MOST {
        return Ok(());
    }
    let what = format!(
        "a file of {} bytes is too long to look for its lines, at most {MOST} are looked at; {advice}",
        look.len
    );
    Err(FormatError::Setting { format: NAME, what })
}

fn pieces(len: u64) -> impl Iterator<Item = Extent> {
    (0..len.div_ceil(PIECE)).map(move |piece| {
        let offset = piece * PIECE;
        Extent { offset, len: PIECE.min(len - offset) }
    })
}

/// Finds lines in text that arrives in pieces. Empty lines do not count, as in pandas.
#[derive(Default)]
struct Splitter {
    /// Offset of the next byte, and of the line that it belongs to.
    at: u64,
    start: u64,
    last: u8,
}

impl Splitter {
    /// Calls `each` with the range of each line, including its end, until it breaks.
    fn feed(
        &mut self,
        bytes: &[u8],
        each: &mut impl FnMut(Range<u64>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut rest = bytes;
        while let Some(len) = rest.iter().position(|byte| *byte == b'\n') {
            self.take(&rest[..len]);
            let line = self.start..self.at + 1;
            let blank = self.is_blank();
            (self.at, self.start) = (line.end, line.end);
            rest = &rest[len + 1..];
            if !blank {
                each(line)?;
            }
        }
        self.take(rest);
        ControlFlow::Continue(())
    }

    /// The last line, if it has no line end.
    fn finish(&self, each: &mut impl FnMut(Range<u64>) -> ControlFlow<()>) -> ControlFlow<()> {
        if self.is_blank() { ControlFlow::Continue(()) } else { each(self.start..self.at) }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.at += bytes.len() as u64;
        self.last = bytes.last().copied().unwrap_or(self.last);
    }

    fn is_blank(&self) -> bool {
        match self.at - self.start {
            0 => true,
            1 => self.last == b'\r',
            _ => false,
        }
    }
}

/// The lines of a file after its header, and the values in each.
struct LineCount {
    lines: u64,
    values: u64,
    header: Option<CsvHeader>,
}

/// Counts lines, and checks the values of the first unless there is a header.
#[derive(Default)]
struct LineCounter {
    header: Option<CsvHeader>,
    splitter: Splitter,
    lines: u64,
    values: u64,
    /// What has been seen of a value of the first line.
    field: Vec<u8>,
    first_is_over: bool,
}

impl LineCounter {
    fn new(header: Option<CsvHeader>) -> LineCounter {
        let columns = header.as_ref().map(|header| header.columns.len() as u64);
        let (values, first_is_over) = (columns.unwrap_or(0), columns.is_some());
        LineCounter { header, values, first_is_over, ..LineCounter::default() }
    }

    fn feed(&mut self, look: &Look<'_>, bytes: &[u8]) -> Result<(), Damage> {
        if !self.first_is_over {
            self.feed_first(look, bytes)?;
        }
        let lines = &mut self.lines;
        let _ = self.splitter.feed(bytes, &mut |_| {
            *lines += 1;
            ControlFlow::Continue(())
        });
        Ok(())
    }

    fn feed_first(&mut self, look: &Look<'_>, bytes: &[u8]) -> Result<(), Damage> {
        for (index, byte) in bytes.iter().enumerate() {
            let offset = self.splitter.at + index as u64;
            match byte {
                // Empty lines before the first.
                b'\n' if self.values == 0 && self.field.trim_ascii().is_empty() => self.field.clear(),
                b'\n' | b',' => self.end_field(look, offset)?,
                _ if self.field.len() < FIELD_MOST => self.field.push(*byte),
                _ => return Err(self.no_number(look, offset)),
            }
            if *byte == b'\n' && self.values > 0 {
                self.first_is_over = true;
                return Ok(());
            }
        }
        Ok(())
    }

    fn end_field(&mut self, look: &Look<'_>, offset: u64) -> Result<(), Damage> {
        if !is_number(self.field.trim_ascii()) {
            return Err(self.no_number(look, offset));
        }
        self.values += 1;
        self.field.clear();
        Ok(())
    }

    fn no_number(&self, look: &Look<'_>, offset: u64) -> Damage {
        let text = String::from_utf8_lossy(&self.field);
        let start = offset.saturating_sub(self.field.len() as u64);
        look.damage(start, format!("value {} of the first line is not a number: {text:?}", self.values + 1))
    }

    fn feed_inflated(&mut self, look: &Look<'_>) -> Result<(), Obstacle> {
        let mut text = MultiGzDecoder::new(PieceStream { look, at: 0 });
        let mut room = vec![0; 1 << 16];
        loop {
            let len = text.read(&mut room).map_err(|error| {
                look.damage(text.get_ref().at, format!("its gzip stream is damaged: {error}"))
            })?;
            if len == 0 {
                return Ok(());
            }
            self.feed(look, &room[..len])?;
            if self.splitter.at > INFLATED_MOST {
                let what =
                    format!("a file that inflates to more than {INFLATED_MOST} bytes is too long to count");
                return Err(FormatError::Setting { format: NAME, what }.into());
            }
        }
    }

    fn finish(mut self, look: &Look<'_>) -> Result<LineCount, Damage> {
        let text = self.splitter.at;
        let begun = self.values > 0 || !self.field.trim_ascii().is_empty();
        if begun && !self.first_is_over {
            self.end_field(look, text)?;
        }
        let lines = &mut self.lines;
        let _ = self.splitter.finish(&mut |_| {
            *lines += 1;
            ControlFlow::Continue(())
        });
        if self.lines == 0 || self.values == 0 {
            return Err(look.damage(0, "no lines"));
        }
        let lines = self.lines - u64::from(self.header.is_some());
        Ok(LineCount { lines, values: self.values, header: self.header })
    }
}

/// A file as a stream of the pieces that have been read.
struct PieceStream<'l, 'a> {
    look: &'l Look<'a>,
    at: u64,
}

impl Read for PieceStream<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // To the end of the piece, which was read at once.
        let piece = PIECE - self.at % PIECE;
        let len = (out.len() as u64).min(piece).min(self.look.len - self.at);
        let bytes = self.look.at(self.at, len).map_err(io::Error::other)?;
        out[..bytes.len()].copy_from_slice(bytes);
        self.at += len;
        Ok(bytes.len())
    }
}
