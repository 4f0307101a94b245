//! File formats: what a file of a data set contains and which reads fetch its samples.
//!
//! A [`Format`] maps samples to bytes and back. For files that feedline writes, sizes and offsets are functions of
//! the shape, so a plan can predict every byte. The layout of existing files is parsed from their metadata. A parser
//! that needs bytes which have not been read returns the range ([`Obstacle`]); the caller reads it and asks again. So
//! parsers contain no I/O, and any backend can serve them.
//!
//! **In:** shapes, seeds, and bytes that were read. **Out:** bytes to write, byte ranges to read, facts about files.
//! **Side effects:** none. The crate opens no file, reads no clock, starts no thread and reads no environment;
//! `std::io::Error` appears only as the type of a sink's failure.
//!
//! # Modules
//!
//! - One per container format: `npz`, `npy`, `hdf5`, `csv`, `tfrecord`, `jpeg`, `png`, `parquet`, `arrow`, `indexed`,
//!   `raw`, `synthetic`. [`KINDS`] is the registry; [`conformance`] checks what every format must do.
//! - Writing: `content` (the bytes of samples), `pieces` (one definition of a file, to write it or to compare it),
//!   `deflate`, `zip`, `array` (NumPy arrays).
//! - Reading: `look` (parsing without I/O), `buffered` (the requests of Python's buffered reader), `unzip`, `inflate`,
//!   `npy_header`, `picture` (pixels).
//! - Shared: `options`, `error`, `arithmetic` (the sizes that a plan needs).
//!
//! # Invariants
//!
//! - A file's bytes are a function of (seed, file number, offset); [`Format::write`] is their only definition.
//! - Time and memory of a parser are bounded by the bytes that it was given, whatever these bytes are.

mod arithmetic;
mod array;
mod arrow;
mod buffered;
pub mod conformance;
mod content;
mod csv;
mod deflate;
mod error;
#[cfg(test)]
mod fixture;
mod hdf5;
mod indexed;
mod inflate;
mod jpeg;
mod look;
mod npy;
mod npy_header;
mod npz;
mod options;
mod parquet;
mod picture;
mod pieces;
mod png;
mod raw;
mod synthetic;
mod tfrecord;
mod unzip;
mod zip;

use std::fmt::Debug;
use std::ops::Range;

pub use arithmetic::Arithmetic;
pub use content::Content;
pub use error::{EncodeError, FormatError};
pub use look::{ArrayFacts, ArrayList, Damage, FileFacts, Look, MOST_AT_ONCE, Obstacle, ReadPieces};
pub use model::extent::Extent;
pub use options::{ColumnOptions, FormatOptions, Hdf5Options};
pub use pieces::Pieces;

use model::order::Unit;
use model::shape::FileShape;

/// Receives the bytes of an encoder, piece by piece from first to last. An error stops the encoding.
pub type Sink<'a> = dyn FnMut(&[u8]) -> std::io::Result<()> + 'a;

/// The length of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodedSize {
    /// Exact.
    Exact(u64),
    /// Compressed: an upper bound. The real length is known only after encoding.
    AtMost(u64),
}

impl EncodedSize {
    /// The bytes to reserve.
    pub fn most(self) -> u64 {
        match self {
            EncodedSize::Exact(bytes) | EncodedSize::AtMost(bytes) => bytes,
        }
    }
}

/// A file to read, and what is known about it.
#[derive(Clone, Copy, Debug)]
pub enum SourceFile<'a> {
    /// Written by feedline: its shape determines its layout.
    Ours(&'a FileShape<'a>),
    /// Written by another program, or compressed: the layout must be read from the file. `samples` is the
    /// expected number of samples.
    Foreign { look: &'a Look<'a>, samples: u64 },
}

/// Parts of a file as they were read.
#[derive(Clone, Copy, Debug)]
pub struct FileParts<'a> {
    /// Their positions.
    pub ranges: &'a [Extent],
    /// The bytes of all ranges, one after the other.
    pub bytes: &'a [u8],
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComparisonResult {
    /// Number of bytes that are right.
    pub bytes: u64,
    /// The first wrong byte; the comparison ends there.
    pub wrong: Option<WrongByte>,
}

/// A byte that differs from what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongByte {
    pub offset: u64,
    /// `None`: the file should have ended before.
    pub expected: Option<u8>,
    pub found: u8,
}

/// A small file that belongs to each file of a data set, such as an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SideFile {
    /// Folder next to the split's folder, with the split's name inside (`index` for `index/train/`). `None`:
    /// next to the file.
    pub folder: Option<&'static str>,
    /// Appended to the file's name.
    pub suffix: &'static str,
}

/// A container format with its options. Sizes and offsets are pure functions of the shape, so a plan can predict
/// every byte before anything is written. [`conformance::check`] checks what every format must do.
pub trait Format: Send + Sync + Debug {
    /// The format's name in the registry.
    fn name(&self) -> &'static str;

    /// The suffix of file names: the format's name, unless compression adds to it.
    fn suffix(&self) -> &'static str {
        self.name()
    }

    /// The smallest part of a file that can be read on its own with this access, and therefore what a shuffle can
    /// move. By default the whole file.
    fn unit(&self, shape: &FileShape<'_>) -> Unit {
        if shape.samples == 1 { Unit::Sample } else { Unit::File }
    }

    /// Whether files contain the samples' bytes. If not, they are the same under every seed and are never
    /// read.
    fn holds_samples(&self) -> bool {
        true
    }

    /// Whether a file holds samples of one size as they are, and nothing that is read with them states their number:
    /// only its size shows that an existing file is too short.
    fn is_headless(&self) -> bool {
        false
    }

    /// The unit of an existing file of `samples` samples, which its metadata may define.
    fn unit_of(&self, _look: &Look<'_>, _samples: u64, expected: Unit) -> Result<Unit, Obstacle> {
        Ok(expected)
    }

    /// Whether a file is read sequentially as a stream, each visit continuing where the previous one stopped.
    fn streams(&self) -> bool {
        false
    }

    /// The size of a file of this shape, or why such a file cannot exist.
    fn size(&self, shape: &FileShape<'_>) -> Result<EncodedSize, FormatError>;

    /// Writes file number `file` from the first byte to the last. This is the only definition of its content.
    fn write(
        &self,
        shape: &FileShape<'_>,
        content: &Content,
        file: u64,
        out: &mut Pieces<'_, '_>,
    ) -> Result<(), EncodeError>;

    /// Encodes file number `file`: passes its bytes to `sink` from first to last, in pieces as long as
    /// `scratch` (the last may be shorter; an empty scratch is resized to 512 KiB). The scratch is the only
    /// memory used, so a caller that reuses it allocates nothing after the first file.
    fn encode(
        &self,
        shape: &FileShape<'_>,
        content: &Content,
        file: u64,
        scratch: &mut Vec<u8>,
        sink: &mut Sink<'_>,
    ) -> Result<(), EncodeError> {
        let mut out = Pieces::new(scratch, sink);
        self.write(shape, content, file, &mut out)?;
        Ok(out.finish()?)
    }

    /// Compares parts of file number `file`, as they were read, with the expected content. For a compressed
    /// file everything up to the last part is generated; for others little more than the parts. What requires
    /// generating more than `effort` additional bytes, such as the checksum of a long range, is skipped and
    /// not counted.
    fn compare(
        &self,
        shape: &FileShape<'_>,
        content: &Content,
        file: u64,
        parts: FileParts<'_>,
        effort: u64,
    ) -> Result<ComparisonResult, EncodeError> {
        let mut scratch = [0; pieces::SMALL_SCRATCH];
        let mut out = Pieces::comparing(parts, effort, &mut scratch);
        let written = self.write(shape, content, file, &mut out);
        match (out.compared(), written) {
            (Some(seen), _) => Ok(seen),
            (None, Err(error)) => Err(error),
            (None, Ok(())) => Ok(out.too_short()),
        }
    }

    /// The small files that belong to each file.
    fn sides(&self) -> &'static [SideFile] {
        &[]
    }

    /// Writes a side file to `out`; `side` is its index in [`Format::sides`].
    fn encode_side(
        &self,
        _side: usize,
        _shape: &FileShape<'_>,
        _out: &mut Sink<'_>,
    ) -> Result<(), EncodeError> {
        Ok(())
    }

    /// The size of a side file. Formats with many samples compute it.
    fn side_bytes(&self, side: usize, shape: &FileShape<'_>) -> Result<u64, EncodeError> {
        let mut bytes = 0;
        self.encode_side(side, shape, &mut |piece| {
            bytes += piece.len() as u64;
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Appends to `reads` the reads for `samples` (numbers within the file), in order, for the access in the
    /// options. Metadata reads that were needed to locate the samples are not included.
    fn reads(
        &self,
        file: SourceFile<'_>,
        samples: Range<u64>,
        reads: &mut Vec<Extent>,
    ) -> Result<(), Obstacle>;

    /// Whether samples are encoded and [`Format::reads`] fetches all that is needed to decode them. With some
    /// access patterns part of it is read as metadata, or by another visit.
    fn decodes(&self) -> bool {
        false
    }

    /// Decodes `bytes`, which is everything that the reads of some samples fetched, in order. Replaces `out`,
    /// which is reused from sample to sample. Offsets of damage are relative to `bytes`. If nothing is
    /// encoded, it copies.
    fn decode(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Obstacle> {
        out.clear();
        out.extend_from_slice(bytes);
        Ok(())
    }

    /// Describes a file by its metadata, and verifies the metadata's checksums.
    fn inspect(&self, look: &Look<'_>) -> Result<FileFacts, Obstacle>;
}

/// A format in the registry.
#[derive(Debug)]
pub struct FormatKind {
    /// The value of `dataset.format`.
    pub name: &'static str,
    /// The layout of a file, for docs/reference/formats.md.
    layout: &'static str,
    /// The values of `dataset.compression` that it supports, except `none`.
    pub compressions: &'static [&'static str],
    /// The files of other programs that it reads, for docs/reference/formats.md.
    existing: &'static str,
    /// Common suffixes of file names other than the format's name, with the dot.
    other_suffixes: &'static [&'static str],
    build: fn(&FormatOptions) -> Result<Box<dyn Format>, FormatError>,
}

/// Every format, in the order of the help text. A new format is one module and one line here.
pub const KINDS: &[FormatKind] = &[
    npz::KIND,
    npy::KIND,
    hdf5::KIND,
    csv::KIND,
    tfrecord::KIND,
    jpeg::KIND,
    png::KIND,
    parquet::KIND,
    arrow::KIND,
    indexed::KIND,
    indexed::MAPPED,
    raw::KIND,
    synthetic::KIND,
];

impl FormatKind {
    /// The suffixes of files of this format.
    pub fn suffixes(&self) -> impl Iterator<Item = String> {
        let others = self.other_suffixes.iter().map(|suffix| (*suffix).to_owned());
        std::iter::once(format!(".{}", self.name)).chain(others)
    }

    /// Its row of the table in docs/reference/formats.md.
    fn documented(&self) -> String {
        let FormatKind { name, layout, compressions, existing, .. } = self;
        let compressions: Vec<String> = compressions.iter().map(|word| format!("`{word}`")).collect();
        let compressions = if compressions.is_empty() { "-".to_owned() } else { compressions.join(" ") };
        format!("| `{name}` | {layout} | {compressions} | {existing} |\n")
    }

    /// Looks up a format by name.
    pub fn named(name: &str) -> Option<&'static FormatKind> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// Builds the format, or reports which option it does not support.
    pub fn build(&self, options: &FormatOptions) -> Result<Box<dyn Format>, FormatError> {
        let asked = options.compression.as_str();
        if asked != "none" && !self.compressions.contains(&asked) {
            let (format, known) = (self.name, self.compressions);
            return Err(FormatError::Compression { format, asked: asked.to_owned(), known });
        }
        (self.build)(options)
    }
}

/// The names of all formats, as a list for help and messages.
pub fn names() -> String {
    KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
}

/// The table of docs/reference/formats.md.
pub fn table() -> String {
    let head = "| format | layout of a file | compression when written | also reads |\n|---|---|---|---|\n";
    KINDS.iter().map(FormatKind::documented).fold(head.to_owned(), |table, row| table + &row)
}

/// The format with default options, for tests and tools.
pub fn plain(name: &str) -> Option<Box<dyn Format>> {
    FormatKind::named(name)?.build(&FormatOptions::default()).ok()
}

/// The reads of formats whose samples are whole files: one read. An empty file is an error.
fn read_whole(
    format: &'static str,
    file: SourceFile<'_>,
    samples: &Range<u64>,
    own_bytes: impl FnOnce(&FileShape<'_>) -> Result<u64, FormatError>,
    reads: &mut Vec<Extent>,
) -> Result<(), Obstacle> {
    let (len, held) = match file {
        SourceFile::Ours(shape) => (own_bytes(shape)?, shape.samples),
        SourceFile::Foreign { look, samples } => (look.len, samples),
    };
    within(format, samples, held)?;
    if len == 0 {
        return Err(Damage::new(format, 0, "an empty file").into());
    }
    reads.push(Extent { offset: 0, len });
    Ok(())
}

/// Checks that the file has these samples.
fn within(format: &'static str, samples: &Range<u64>, held: u64) -> Result<(), FormatError> {
    match samples.end <= held && samples.start < samples.end {
        true => Ok(()),
        false => Err(FormatError::NoSuchSample {
            format,
            index: samples.end.saturating_sub(1).max(samples.start),
            samples: held,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for kind in KINDS {
            assert_eq!(KINDS.iter().filter(|other| other.name == kind.name).count(), 1);
            assert_eq!(FormatKind::named(kind.name).map(|kind| kind.name), Some(kind.name));
            assert_eq!(plain(kind.name).unwrap().name(), kind.name);
            assert!(model::spec::FORMATS.contains(&kind.name), "dataset.format must accept {}", kind.name);
        }
        assert!(FormatKind::named("nonesuch").is_none());
    }

    #[test]
    fn the_docs_describe_every_format() {
        let docs = include_str!("../../../docs/reference/formats.md");
        let table = table();
        assert!(docs.contains(&table), "docs/reference/formats.md should have this table:\n\n{table}");
        let (_, access) = docs.split_once("| format | `framework` | `extent` |\n").unwrap();
        let (access, _) = access.split_once("\n\n").unwrap();
        let described: Vec<&str> = access.lines().filter_map(|row| row.split('|').nth(1)).collect();
        for kind in KINDS.iter().filter(|kind| plain(kind.name).unwrap().holds_samples()) {
            let named = |cell: &&str| cell.split(',').any(|name| name.trim() == kind.name);
            let rows = described.iter().filter(|cell| named(cell)).count();
            assert_eq!(
                rows, 1,
                "the access patterns of {} need one row in docs/reference/formats.md",
                kind.name
            );
        }
    }

    #[test]
    fn a_suffix_belongs_to_one_format() {
        let suffixes: Vec<String> = KINDS.iter().flat_map(FormatKind::suffixes).collect();
        for suffix in &suffixes {
            assert!(suffix.starts_with('.'), "{suffix}");
            assert_eq!(suffixes.iter().filter(|other| *other == suffix).count(), 1, "{suffix}");
        }
    }

    #[test]
    fn an_unsupported_compression_is_refused_with_the_supported_ones() {
        for kind in KINDS {
            let options = FormatOptions { compression: "lzf".to_owned(), ..FormatOptions::default() };
            let error = kind.build(&options).unwrap_err().to_string();
            assert!(error.contains("'lzf'") && error.contains("none"), "{error}");
        }
    }
}
