//! csv: one line per sample, decimal values separated by commas, no header, as DLIO writes it with pandas. The
//! size of the text depends only on the number of values (see `text`). With gzip, the file's name ends in
//! `csv.gz`. The file is never held in memory.

mod header;
mod lines;
mod text;

use std::ops::Range;

use model::order::Unit;
use model::shape::FileShape;
use model::spec::Access;

use crate::buffered::{BUFFER, front_to_back};
use crate::deflate::{self, Deflate};
use crate::inflate::StreamWrapper;
use crate::pieces::Pieces;
use crate::{
    Content, EncodeError, EncodedSize, Extent, FileFacts, Format, FormatError, FormatKind, FormatOptions,
    Look, Obstacle, SourceFile, error, within,
};

const NAME: &str = "csv";

/// Bytes that `pandas.read_csv` requests at once: its C parser's chunk.
const PIECE: u64 = 1 << 18;
/// A gzip member (RFC 1952): deflate, no flags, no time, no extra flags, unknown operating system.
const GZIP: [u8; 10] = [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255];
/// CRC-32 and length after the stream.
const GZIP_END: u64 = 8;

pub(crate) const KIND: FormatKind = FormatKind {
    name: NAME,
    layout: "one line of decimal numbers per sample; gzip adds `.gz` to the name",
    compressions: &["gzip"],
    existing: "lines of numbers up to 64 MiB; lines of any values after a header line",
    other_suffixes: &[".csv.gz"],
    build: |options| Ok(Box::new(Csv::of(options))),
};

#[derive(Debug)]
pub(crate) struct Csv {
    access: Access,
    /// Gzip level, if files are gzipped.
    level: Option<u32>,
}

/// The sizes of a file.
struct Layout {
    /// Values of one sample, which is a line.
    line: u64,
    /// Values of the file.
    values: u64,
    text: u64,
}

impl Layout {
    fn of(shape: &FileShape<'_>) -> Result<Layout, FormatError> {
        let values = error::payload(NAME, shape)? / shape.element.size();
        let text = error::whole(NAME, shape, text::bytes(shape.element, values))?;
        Ok(Layout { line: values / shape.samples, values, text })
    }
}

impl Csv {
    fn of(options: &FormatOptions) -> Csv {
        let level = (options.compression == "gzip").then_some(options.compression_level);
        Csv { access: options.access, level }
    }

    fn file_bytes(&self, shape: &FileShape<'_>) -> Result<u64, FormatError> {
        let text = Layout::of(shape)?.text;
        let Some(level) = self.level else { return Ok(text) };
        let most = deflate::most(text, level).and_then(|most| most.checked_add(GZIP.len() as u64 + GZIP_END));
        error::whole(NAME, shape, most)
    }

    /// The reads of the whole file of `len` bytes.
    fn whole(&self, len: u64, reads: &mut Vec<Extent>) {
        match (self.access, self.level) {
            (Access::Framework, None) => front_to_back(len, PIECE, reads),
            // Python's gzip reads the file through Python's buffer.
            (Access::Framework, Some(_)) => front_to_back(len, BUFFER, reads),
            (Access::Extent, _) => reads.push(Extent { offset: 0, len }),
        }
    }
}

impl Format for Csv {
    fn name(&self) -> &'static str {
        NAME
    }

    fn suffix(&self) -> &'static str {
        if self.level.is_some() { "csv.gz" } else { NAME }
    }

    fn unit(&self, shape: &FileShape<'_>) -> Unit {
        match (self.access, self.level) {
            (Access::Extent, None) => Unit::Sample,
            _ if shape.samples == 1 => Unit::Sample,
            _ => Unit::File,
        }
    }

    fn size(&self, shape: &FileShape<'_>) -> Result<EncodedSize, FormatError> {
        let bytes = self.file_bytes(shape)?;
        Ok(if self.level.is_some() { EncodedSize::AtMost(bytes) } else { EncodedSize::Exact(bytes) })
    }

    fn write(
        &self,
        shape: &FileShape<'_>,
        content: &Content,
        file: u64,
        out: &mut Pieces<'_, '_>,
    ) -> Result<(), EncodeError> {
        self.file_bytes(shape)?;
        let layout = Layout::of(shape)?;
        let text =
            text::Text { element: shape.element, content, file, line: layout.line, values: layout.values };
        let Some(level) = self.level else { return Ok(text.write(out)?) };
        let mut deflate = Deflate::new(level);
        out.bytes(&GZIP)?;
        text.each(|part| deflate.write(out, part))?;
        let end = deflate.finish(out)?;
        out.bytes(&end.crc.to_le_bytes())?;
        // The length modulo 2^32.
        Ok(out.bytes(&(end.bytes as u32).to_le_bytes())?)
    }

    fn reads(
        &self,
        file: SourceFile<'_>,
        samples: Range<u64>,
        reads: &mut Vec<Extent>,
    ) -> Result<(), Obstacle> {
        match (file, self.access, self.level) {
            (SourceFile::Ours(shape), Access::Extent, None) => {
                let layout = Layout::of(shape)?;
                within(NAME, &samples, shape.samples)?;
                // At most the size of the text, which did not overflow.
                let at = |sample| text::bytes(shape.element, sample * layout.line).unwrap_or(layout.text);
                let (offset, end) = (at(samples.start), at(samples.end));
                reads.push(Extent { offset, len: end - offset });
            }
            (SourceFile::Ours(shape), ..) => {
                let len = self.file_bytes(shape)?;
                within(NAME, &samples, shape.samples)?;
                self.whole(len, reads);
            }
            // A reader of the whole file need not know where lines end.
            (SourceFile::Foreign { look, samples: held }, Access::Framework, _)
            | (SourceFile::Foreign { look, samples: held }, _, Some(_)) => {
                within(NAME, &samples, held)?;
                if look.len == 0 {
                    return Err(look.damage(0, "an empty file").into());
                }
                self.whole(look.len, reads);
            }
            (SourceFile::Foreign { look, samples: held }, Access::Extent, None) => {
                lines::find(look, held, &samples, reads)?;
            }
        }
        Ok(())
    }

    fn decodes(&self) -> bool {
        self.level.is_some()
    }

    fn decode(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Obstacle> {
        match self.decodes() {
            true => StreamWrapper::Gzip.inflate_all(NAME, bytes, out)?,
            false => bytes.clone_into(out),
        }
        Ok(())
    }

    fn inspect(&self, look: &Look<'_>) -> Result<FileFacts, Obstacle> {
        lines::inspect(look, self.level.is_some())
    }
}

#[cfg(test)]
mod tests;
