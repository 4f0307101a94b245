//! Samples to bytes and back: what a file of a data set looks like and how it is read, one file of code per
//! container format. Bytes in, bytes out: this room opens no file, reads no clock, starts no thread and looks at no
//! environment. `std::io::Error` appears only as the type in which a sink's failure passes through.

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
mod synthetic;
mod tfrecord;
mod unzip;
mod zip;

use std::fmt::Debug;
use std::ops::Range;

pub use arithmetic::Arithmetic;
pub use content::Content;
pub use error::{EncodeError, FormatError};
pub use look::{Damage, Facts, Look, MOST_AT_ONCE, Obstacle, Seen};
pub use model::extent::Extent;
pub use options::{Columns, Hdf5, Options};
pub use pieces::Pieces;

use model::order::Unit;
use model::shape::FileShape;

/// Where an encoder hands its bytes: called with the file's pieces from first to last. An error stops the
/// encoding.
pub type Sink<'a> = dyn FnMut(&[u8]) -> std::io::Result<()> + 'a;

/// How long a file of some shape is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// To the byte.
    Exact(u64),
    /// Compressed: no longer than this, and only its bytes tell how long.
    AtMost(u64),
}

impl Size {
    /// The bytes to reserve.
    pub fn most(self) -> u64 {
        match self {
            Size::Exact(bytes) | Size::AtMost(bytes) => bytes,
        }
    }
}

/// A file to be read, and what is known about it.
#[derive(Clone, Copy, Debug)]
pub enum File<'a> {
    /// Written by feedline: everything about it follows from its shape.
    Ours(&'a FileShape<'a>),
    /// Written by somebody else, or compressed: its own bytes must tell. It should hold so many samples.
    Foreign { look: &'a Look<'a>, samples: u64 },
}

/// Parts of a file as they were found.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// Where they stand.
    pub ranges: &'a [Extent],
    /// The bytes of all ranges, one after the other.
    pub bytes: &'a [u8],
}

/// What came of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Bytes that were as they should be.
    pub bytes: u64,
    /// The first that was found to be another; the comparison ends there.
    pub wrong: Option<Wrong>,
}

/// A byte that is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub offset: u64,
    /// `None`: the file should have ended before.
    pub expected: Option<u8>,
    pub found: u8,
}

/// A small file that belongs to each file of a data set, e.g. an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Folder beside the split's, with the split's name inside (`index` for `index/train/`); none: beside the file.
    pub folder: Option<&'static str>,
    /// What is appended to the file's name.
    pub suffix: &'static str,
}

/// A container format with its options. It answers for sizes and places as pure functions of the shape, so that a
/// plan can predict every byte before one is written. [`conformance::check`] says what every format must hold.
pub trait Format: Send + Sync + Debug {
    /// The registry's name of the format.
    fn name(&self) -> &'static str;

    /// How file names end: the name, unless compression adds to it.
    fn suffix(&self) -> &'static str {
        self.name()
    }

    /// The smallest part of a file that can be read on its own with this access, and therefore what a shuffle can
    /// move. By default the whole file.
    fn unit(&self, shape: &FileShape<'_>) -> Unit {
        if shape.samples == 1 { Unit::Sample } else { Unit::File }
    }

    /// Whether files hold the samples' bytes; if not, they are the same under every seed and nothing of them is read.
    fn holds_samples(&self) -> bool {
        true
    }

    /// The same of a file of `samples` samples that somebody else wrote: its own bytes may tell otherwise.
    fn unit_of(&self, _look: &Look<'_>, _samples: u64, expected: Unit) -> Result<Unit, Obstacle> {
        Ok(expected)
    }

    /// Whether a file is read as a stream, from front to back, each visit going on where the one before it stopped.
    fn streams(&self) -> bool {
        false
    }

    /// The size of a file of this shape, or why there can be no such file.
    fn size(&self, shape: &FileShape<'_>) -> Result<Size, FormatError>;

    /// Writes file number `file` from first byte to last: the one place that knows what stands in it.
    fn write(
        &self,
        shape: &FileShape<'_>,
        content: &Content,
        file: u64,
        out: &mut Pieces<'_, '_>,
    ) -> Result<(), EncodeError>;

    /// Makes file number `file`: hands its bytes to `sink` from first to last, in pieces as long as
    /// `scratch` (the last may be shorter; an empty scratch is given 512 KiB). Memory is the scratch alone,
    /// so a caller that keeps it from file to file allocates nothing after the first.
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

    /// Compares parts of file number `file`, as they were found, with what should stand there. Of a compressed file
    /// everything before the last part is made; of others little more than the parts. What takes the making of more
    /// than `effort` other bytes, as the checksum of a long stretch does, is left out and not counted.
    fn compare(
        &self,
        shape: &FileShape<'_>,
        content: &Content,
        file: u64,
        parts: Parts<'_>,
        effort: u64,
    ) -> Result<Compared, EncodeError> {
        let mut scratch = [0; pieces::SMALL_SCRATCH];
        let mut out = Pieces::comparing(parts, effort, &mut scratch);
        let written = self.write(shape, content, file, &mut out);
        match (out.compared(), written) {
            (Some(seen), _) => Ok(seen),
            (None, Err(error)) => Err(error),
            (None, Ok(())) => Ok(out.too_short()),
        }
    }

    /// The small files that go with each file.
    fn sides(&self) -> &'static [Side] {
        &[]
    }

    /// The bytes of a side file, by its place in [`Format::sides`]: `out` is called with them from first to last.
    fn encode_side(
        &self,
        _side: usize,
        _shape: &FileShape<'_>,
        _out: &mut Sink<'_>,
    ) -> Result<(), EncodeError> {
        Ok(())
    }

    /// Bytes of a side file. Formats with many samples answer by arithmetic.
    fn side_bytes(&self, side: usize, shape: &FileShape<'_>) -> Result<u64, EncodeError> {
        let mut bytes = 0;
        self.encode_side(side, shape, &mut |piece| {
            bytes += piece.len() as u64;
            Ok(())
        })?;
        Ok(bytes)
    }

    /// The reads that bring the samples `samples` (numbers within the file), in order, as the options' access wants
    /// them; appended to `reads`. Reads of metadata that the answer was found with are not among them.
    fn reads(&self, file: File<'_>, samples: Range<u64>, reads: &mut Vec<Extent>) -> Result<(), Obstacle>;

    /// Whether samples are encoded, and what [`Format::reads`] brings is enough to decode them: with some ways of
    /// access a part of it is read as metadata, or by a neighbour.
    fn decodes(&self) -> bool {
        false
    }

    /// Replaces `out`, which is used again from sample to sample, by what is in `bytes`: all that the reads of some
    /// samples brought, in their order. Places of damage are counted in `bytes`. Where nothing is encoded it is a copy.
    fn decode(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Obstacle> {
        out.clear();
        out.extend_from_slice(bytes);
        Ok(())
    }

    /// What a file holds, by its own bytes. Its checksums are checked as far as metadata has any.
    fn inspect(&self, look: &Look<'_>) -> Result<Facts, Obstacle>;
}

/// A format as the registry lists it.
#[derive(Debug)]
pub struct Kind {
    /// The value of `dataset.format`.
    pub name: &'static str,
    /// One line for help and docs.
    pub summary: &'static str,
    /// The words of `dataset.compression` that it can do, beside `none`.
    pub compressions: &'static [&'static str],
    build: fn(&Options) -> Result<Box<dyn Format>, FormatError>,
}

/// Every format there is, in the order in which help lists them. A new format is its file and its line here.
pub const KINDS: &[Kind] = &[
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
    synthetic::KIND,
];

/// How files are also called in the wild: a format, and an ending that is not its name.
const ALSO: &[(&str, &str)] = &[
    ("jpeg", ".jpg"),
    ("hdf5", ".h5"),
    ("tfrecord", ".tfrecords"),
    ("csv", ".csv.gz"),
    ("arrow", ".feather"),
];

impl Kind {
    /// How names of files of this format end.
    pub fn suffixes(&self) -> impl Iterator<Item = String> {
        let also =
            ALSO.iter().filter(|(format, _)| *format == self.name).map(|(_, suffix)| (*suffix).to_owned());
        std::iter::once(format!(".{}", self.name)).chain(also)
    }

    /// The format of that name.
    pub fn named(name: &str) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// The format with its options, or which of them it cannot do.
    pub fn build(&self, options: &Options) -> Result<Box<dyn Format>, FormatError> {
        let asked = options.compression.as_str();
        if asked != "none" && !self.compressions.contains(&asked) {
            let (format, known) = (self.name, self.compressions);
            return Err(FormatError::Compression { format, asked: asked.to_owned(), known });
        }
        (self.build)(options)
    }
}

/// The format of that name with default options: what tests and tools want.
pub fn plain(name: &str) -> Option<Box<dyn Format>> {
    Kind::named(name)?.build(&Options::default()).ok()
}

/// The reads of formats whose samples are whole files: one, of a file that holds something.
fn read_whole(
    format: &'static str,
    file: File<'_>,
    samples: &Range<u64>,
    own_bytes: impl FnOnce(&FileShape<'_>) -> Result<u64, FormatError>,
    reads: &mut Vec<Extent>,
) -> Result<(), Obstacle> {
    let (len, held) = match file {
        File::Ours(shape) => (own_bytes(shape)?, shape.samples),
        File::Foreign { look, samples } => (look.len, samples),
    };
    within(format, samples, held)?;
    if len == 0 {
        return Err(Damage::new(format, 0, "an empty file").into());
    }
    reads.push(Extent { offset: 0, len });
    Ok(())
}

/// The range of samples, if the file has them.
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
            assert_eq!(Kind::named(kind.name).map(|kind| kind.name), Some(kind.name));
            assert_eq!(plain(kind.name).unwrap().name(), kind.name);
            assert!(!kind.summary.is_empty() && !kind.summary.contains('\n'));
            assert!(model::spec::FORMATS.contains(&kind.name), "dataset.format must accept {}", kind.name);
        }
        assert!(Kind::named("nonesuch").is_none());
    }

    #[test]
    fn a_compression_that_a_format_cannot_do_is_refused_with_those_it_can() {
        for kind in KINDS {
            let options = Options { compression: "lzf".to_owned(), ..Options::default() };
            let error = kind.build(&options).unwrap_err().to_string();
            assert!(error.contains("'lzf'") && error.contains("none"), "{error}");
        }
    }
}
