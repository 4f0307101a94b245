//! Shared by the tests of all formats: shapes, files encoded into memory, and the reads that a format asks for. Nothing
//! here depends on a particular format.

use std::io;
use std::ops::Range;

use model::shape::{Element, FileShape};

use crate::{
    Content, Extent, FileFacts, Format, FormatError, Look, Obstacle, Pieces, ReadPieces, SourceFile,
};

/// Lookups that a parser may make in a small file before the test fails instead of looping forever.
const MOST_LOOKS: usize = 10_000;
/// The largest part that an engine brings at once.
const PART: usize = 4 << 20;

pub(crate) fn shape(dims: &[u64], element: Element, samples: u64) -> FileShape<'_> {
    FileShape { dims, element, samples }
}

/// The shape of a picture file: one sample of bytes.
pub(crate) fn picture(dims: &[u64]) -> FileShape<'_> {
    shape(dims, Element::Uint8, 1)
}

/// File number 3 under seed 1, which most tests use.
pub(crate) fn encoded(format: &dyn Format, shape: &FileShape<'_>) -> Vec<u8> {
    encoded_as(format, shape, 1, 3)
}

pub(crate) fn encoded_as(format: &dyn Format, shape: &FileShape<'_>, seed: u64, file: u64) -> Vec<u8> {
    gathered(|sink| format.encode(shape, &Content::new(seed), file, &mut Vec::new(), sink).unwrap())
}

/// The bytes that `write` puts out.
pub(crate) fn written(write: impl FnOnce(&mut Pieces<'_, '_>) -> io::Result<()>) -> Vec<u8> {
    gathered(|sink| {
        let mut scratch = Vec::new();
        let mut out = Pieces::new(&mut scratch, sink);
        write(&mut out).unwrap();
        out.finish().unwrap();
    })
}

/// Everything that a sink receives.
pub(crate) fn gathered(send: impl FnOnce(&mut crate::Sink<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    send(&mut |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    });
    bytes
}

/// Bytes that cannot be compressed.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut noise = vec![0; len];
    Content::new(1).fill(0, 0, &mut noise);
    noise
}

/// A file of which everything has been read.
pub(crate) fn seen(bytes: &[u8]) -> ReadPieces {
    let mut seen = ReadPieces::default();
    for (index, piece) in bytes.chunks(PART).enumerate() {
        seen.add((index * PART) as u64, piece.len()).copy_from_slice(piece);
    }
    seen
}

/// What `inspect` finds in a file of which everything has been read.
pub(crate) fn inspected(format: &dyn Format, bytes: &[u8]) -> Result<FileFacts, Obstacle> {
    format.inspect(&Look::new(format.name(), bytes.len() as u64, &seen(bytes)))
}

/// The reads of samples of a file whose layout follows from its shape.
pub(crate) fn ours(format: &dyn Format, shape: &FileShape<'_>, samples: Range<u64>) -> Vec<Extent> {
    let mut reads = Vec::new();
    format.reads(SourceFile::Ours(shape), samples, &mut reads).unwrap();
    reads
}

/// The reads of samples of an existing file of which everything has been read.
pub(crate) fn foreign(
    format: &dyn Format,
    bytes: &[u8],
    held: u64,
    samples: Range<u64>,
) -> Result<Vec<Extent>, Obstacle> {
    let seen = seen(bytes);
    foreign_reads(format, &Look::new(format.name(), bytes.len() as u64, &seen), held, samples)
}

/// The reads of samples of an existing file, and the lookups that it took to find them.
pub(crate) fn looked_up(
    format: &dyn Format,
    bytes: &[u8],
    held: u64,
    samples: Range<u64>,
) -> (Result<Vec<Extent>, Obstacle>, Vec<Extent>) {
    fetch(format, bytes, |look| foreign_reads(format, look, held, samples.clone()))
}

/// The answer of `ask` once everything that it needs has been brought, and the lookups that it took.
pub(crate) fn fetch<T>(
    format: &dyn Format,
    bytes: &[u8],
    mut ask: impl FnMut(&Look<'_>) -> Result<T, Obstacle>,
) -> (Result<T, Obstacle>, Vec<Extent>) {
    let (mut seen, mut looks) = (ReadPieces::default(), Vec::new());
    loop {
        let answer = ask(&Look::new(format.name(), bytes.len() as u64, &seen));
        let Err(Obstacle::Unread(wanted)) = answer else { return (answer, looks) };
        assert!(wanted.len > 0, "an empty lookup after {looks:?}");
        assert!(looks.len() < MOST_LOOKS && !looks.contains(&wanted), "{wanted:?} again after {looks:?}");
        looks.push(wanted);
        let from = wanted.offset as usize;
        seen.add(wanted.offset, wanted.len as usize).copy_from_slice(&bytes[from..][..wanted.len as usize]);
    }
}

fn foreign_reads(
    format: &dyn Format,
    look: &Look<'_>,
    held: u64,
    samples: Range<u64>,
) -> Result<Vec<Extent>, Obstacle> {
    let mut reads = Vec::new();
    format.reads(SourceFile::Foreign { look, samples: held }, samples, &mut reads)?;
    Ok(reads)
}

/// Length and offset of each read, as strace prints them.
pub(crate) fn pairs(reads: &[Extent]) -> Vec<(u64, u64)> {
    reads.iter().map(|read| (read.len, read.offset)).collect()
}

/// Shapes that no picture file can have, whatever its size.
pub(crate) const NOT_PICTURES: &[(&[u64], Element, u64, &str)] = &[
    (&[50, 50], Element::Float32, 1, "must be uint8, not float32"),
    (&[50, 50], Element::Uint8, 2, "num_samples_per_file to 1"),
    (&[50, 0], Element::Uint8, 1, "at least 1"),
    (&[1 << 40, 1 << 40], Element::Uint8, 1, "too large"),
];

/// Shapes that no file of a NumPy array can have.
pub(crate) const NOT_ARRAYS: &[(&[u64], Element, u64, &str)] = &[
    (&[4, 0], Element::Uint8, 1, "at least 1"),
    (&[4], Element::Uint8, 0, "at least 1"),
    (&[1; 32], Element::Uint8, 1, "flatten dataset.record_dims"),
    (&[1 << 62, 4], Element::Uint8, 1, "too large"),
];

/// Each shape is refused with a message that contains the words given with it.
#[track_caller]
pub(crate) fn assert_refused<T: std::fmt::Debug>(
    size: impl Fn(&FileShape<'_>) -> Result<T, FormatError>,
    cases: &[(&[u64], Element, u64, &str)],
) {
    for &(dims, element, samples, words) in cases {
        let error = size(&shape(dims, element, samples)).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// No aligned 512 bytes of two picture files are alike: storage that removes duplicates would store them once.
#[track_caller]
pub(crate) fn assert_blocks_differ(format: &dyn Format, bytes: u64) {
    let dims = [bytes];
    let [one, other] = [1, 2].map(|file| encoded_as(format, &picture(&dims), 1, file));
    for (at, (one, other)) in one.chunks_exact(512).zip(other.chunks_exact(512)).enumerate() {
        let differing = one.iter().zip(other).filter(|(a, b)| a != b).count();
        assert!(differing >= 12, "size {bytes}, block {at}: {differing} bytes differ");
    }
}

/// An empty picture file is refused.
#[track_caller]
pub(crate) fn assert_empty_refused(format: &dyn Format) {
    let error = foreign(format, b"", 1, 0..1).unwrap_err();
    assert!(error.to_string().contains("an empty file (at byte 0)"), "{error}");
}
