//! tfrecord: TensorFlow's record file, each record a `tf.train.Example` of one sample, with DALI's index. Reads
//! are those of `tf.data.TFRecordDataset`, a stream of full buffers, or single records. `example` handles the
//! content of a record.

mod example;

use std::fmt::Write;
use std::ops::Range;

use model::order::Unit;
use model::shape::FileShape;
use model::spec::Access;

use crate::pieces::Pieces;
use crate::{
    Content, EncodeError, EncodedSize, Extent, FileFacts, Format, FormatError, FormatKind, FormatOptions,
    Look, MOST_AT_ONCE, Obstacle, SideFile, Sink, SourceFile, array, error, within,
};
use example::Example;

const NAME: &str = "tfrecord";

pub(crate) const KIND: FormatKind = FormatKind {
    name: NAME,
    layout: "TFRecord of `tf.train.Example` with `image` and `size`; DALI's index in `index/SPLIT/NAME.idx`",
    compressions: &[],
    existing: "any TFRecord",
    other_suffixes: &[".tfrecords"],
    build: |options| Ok(Box::new(TfRecord::new(options)?)),
};

/// TensorFlow's default buffer (tf.data, `_DEFAULT_READER_BUFFER_SIZE_BYTES`).
const BUFFER: u64 = 256 * 1024;
/// A record's head: its length and the checksum of the length (TensorFlow, `record_writer.h`).
const HEAD: u64 = 12;
/// The checksum after a record.
const FOOT: u64 = 4;
/// TensorFlow's mask, which keeps checksums of data that contains checksums useful (TensorFlow, `crc32c.h`).
const MASK: u32 = 0xA282_EAD8;
/// A file up to this length is read at once.
const SMALL_FILE: u64 = 1 << 20;
/// Records are walked in pieces of this length if several fit, else head by head.
const STRIDE: u64 = 64 * 1024;
/// Maximum number of pieces of a walk: each restarts the search, so the cost grows with their square.
const MOST_PIECES: u64 = 4096;
/// Bytes of index lines that are collected before they are written.
const INDEX_PIECE: usize = 8 * 1024;

#[derive(Debug)]
struct TfRecord {
    access: Access,
    buffer: u64,
}

impl TfRecord {
    fn new(options: &FormatOptions) -> Result<TfRecord, FormatError> {
        let buffer = options.transfer_bytes.unwrap_or(BUFFER);
        if buffer == 0 {
            let what = "reader.transfer_size is 0, which reads nothing; make it at least 1 or leave it out";
            return Err(FormatError::Setting { format: NAME, what: what.to_owned() });
        }
        Ok(TfRecord { access: options.access, buffer })
    }

    /// The buffers that a stream reads for some of the file's samples: over all samples each buffer once.
    fn stream(&self, len: u64, held: u64, samples: &Range<u64>, reads: &mut Vec<Extent>) {
        let buffers = u128::from(len.div_ceil(self.buffer));
        // Both quotients are at most the number of buffers.
        let first = |sample: u64| (u128::from(sample) * buffers / u128::from(held.max(1))) as u64;
        reads.extend((first(samples.start)..first(samples.end)).map(|buffer| {
            let offset = buffer * self.buffer;
            Extent { offset, len: self.buffer.min(len - offset) }
        }));
    }
}

/// The layout of a file that feedline writes: records of one length.
struct Layout {
    example: Example,
    sample_bytes: u64,
    record_bytes: u64,
    file_bytes: u64,
}

impl Layout {
    fn of(shape: &FileShape<'_>) -> Result<Layout, FormatError> {
        error::payload(NAME, shape)?;
        let sample_bytes = shape.sample_bytes();
        let example = Example::of(sample_bytes).ok_or_else(|| too_long(sample_bytes))?;
        let record_bytes = HEAD + example.len + FOOT;
        let file_bytes = error::whole(NAME, shape, record_bytes.checked_mul(shape.samples))?;
        Ok(Layout { example, sample_bytes, record_bytes, file_bytes })
    }
}

fn too_long(sample_bytes: u64) -> FormatError {
    let what = format!(
        "a sample of {sample_bytes} bytes is more than a protobuf message can hold ({} bytes); lower \
         dataset.record_length_bytes or choose another dataset.format",
        example::MOST_MESSAGE
    );
    FormatError::Setting { format: NAME, what }
}

impl Format for TfRecord {
    fn name(&self) -> &'static str {
        NAME
    }

    fn is_headless(&self) -> bool {
        true
    }

    fn unit(&self, _: &FileShape<'_>) -> Unit {
        match self.access {
            Access::Framework => Unit::File,
            // By offset and length, as with an index.
            Access::Extent => Unit::Sample,
        }
    }

    fn streams(&self) -> bool {
        self.access == Access::Framework
    }

    fn size(&self, shape: &FileShape<'_>) -> Result<EncodedSize, FormatError> {
        Ok(EncodedSize::Exact(Layout::of(shape)?.file_bytes))
    }

    fn write(
        &self,
        shape: &FileShape<'_>,
        content: &Content,
        file: u64,
        out: &mut Pieces<'_, '_>,
    ) -> Result<(), EncodeError> {
        let layout = Layout::of(shape)?;
        let head = head(layout.example.len);
        let (before, behind) = (layout.example.head.as_slice(), layout.example.tail.as_slice());
        let before_sum = crc32c::crc32c(before);
        Ok(out.repeat(shape.samples, layout.record_bytes, |out, sample| {
            let start = sample * layout.sample_bytes;
            out.bytes(&head)?;
            out.summed(|out| {
                let mut sum = before_sum;
                out.bytes(before)?;
                out.produce(layout.sample_bytes, |offset, part| {
                    array::fill_samples(shape.element, content, file, start + offset, part);
                    sum = crc32c::crc32c_append(sum, part);
                })?;
                out.bytes(behind)?;
                Ok(masked(crc32c::crc32c_append(sum, behind)).to_le_bytes())
            })
        })?)
    }

    fn sides(&self) -> &'static [SideFile] {
        &[SideFile { folder: Some("index"), suffix: ".idx" }]
    }

    /// The index that NVIDIA's DALI reads: a line of offset and length for each record.
    fn encode_side(&self, _: usize, shape: &FileShape<'_>, out: &mut Sink<'_>) -> Result<(), EncodeError> {
        let layout = Layout::of(shape)?;
        let mut lines = String::with_capacity(INDEX_PIECE);
        for sample in 0..shape.samples {
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "{} {}", sample * layout.record_bytes, layout.record_bytes);
            // A line has at most two numbers of 20 digits.
            if lines.len() + 42 > INDEX_PIECE {
                out(lines.as_bytes())?;
                lines.clear();
            }
        }
        if !lines.is_empty() {
            out(lines.as_bytes())?;
        }
        Ok(())
    }

    fn side_bytes(&self, _: usize, shape: &FileShape<'_>) -> Result<u64, EncodeError> {
        let Layout { record_bytes, .. } = Layout::of(shape)?;
        let digits = |number: u64| u64::from(number.checked_ilog10().unwrap_or(0)) + 1;
        // Every offset has one digit, and one more for each power of ten that it reaches.
        let reaching = |power: u64| shape.samples.saturating_sub(power.div_ceil(record_bytes));
        let powers = std::iter::successors(Some(10_u64), |power| power.checked_mul(10));
        let more: u64 = powers.map(reaching).take_while(|count| *count > 0).sum();
        Ok(more + shape.samples * (1 + digits(record_bytes) + 2))
    }

    fn reads(
        &self,
        file: SourceFile<'_>,
        samples: Range<u64>,
        reads: &mut Vec<Extent>,
    ) -> Result<(), Obstacle> {
        let (len, held, record_bytes) = match file {
            SourceFile::Ours(shape) => {
                let layout = Layout::of(shape)?;
                (layout.file_bytes, shape.samples, Some(layout.record_bytes))
            }
            SourceFile::Foreign { look, samples } => (look.len, samples, None),
        };
        within(NAME, &samples, held)?;
        match (self.access, file, record_bytes) {
            (Access::Framework, _, _) if len == 0 => within(NAME, &samples, 0)?,
            (Access::Framework, _, _) => self.stream(len, held, &samples, reads),
            (Access::Extent, SourceFile::Foreign { look, .. }, _) => {
                reads.push(find(look, held, &samples)?);
            }
            (Access::Extent, _, bytes) => {
                let bytes = bytes.unwrap_or_default();
                let len = bytes * (samples.end - samples.start);
                reads.push(Extent { offset: bytes * samples.start, len });
            }
        }
        Ok(())
    }

    fn inspect(&self, look: &Look<'_>) -> Result<FileFacts, Obstacle> {
        inspect(look)
    }
}

fn masked(sum: u32) -> u32 {
    sum.rotate_right(15).wrapping_add(MASK)
}

/// The head of a record of this many bytes.
fn head(len: u64) -> [u8; HEAD as usize] {
    let mut head = [0; HEAD as usize];
    let (number, sum) = head.split_at_mut(8);
    number.copy_from_slice(&len.to_le_bytes());
    sum.copy_from_slice(&masked(crc32c::crc32c(number)).to_le_bytes());
    head
}

/// The range of a whole record, by its head at `offset`.
fn record_bytes(look: &Look<'_>, number: u64, offset: u64, head: &[u8]) -> Result<u64, Obstacle> {
    let damage = |what: String| Obstacle::from(look.damage(offset, what));
    let (Some(length), Some(sum)) = (head.first_chunk::<8>(), head.get(8..12)) else {
        return Err(damage(format!("the head of record {number} is truncated")));
    };
    if masked(crc32c::crc32c(length)).to_le_bytes() != *sum {
        return Err(damage(format!("checksum mismatch in the length of record {number}")));
    }
    let len = u64::from_le_bytes(*length);
    let whole = len.checked_add(HEAD + FOOT);
    whole.filter(|whole| *whole <= look.len.saturating_sub(offset)).ok_or_else(|| {
        damage(format!("record {number} claims {len} bytes, but the file ends at byte {}", look.len))
    })
}

/// The head of the record at `offset`.
fn head_at<'a>(look: &Look<'a>, number: u64, offset: u64) -> Result<&'a [u8], Obstacle> {
    if look.len.saturating_sub(offset) < HEAD {
        return Err(cut_off(look, number, offset));
    }
    look.at(offset, HEAD)
}

fn cut_off(look: &Look<'_>, number: u64, offset: u64) -> Obstacle {
    look.damage(offset, format!("record {number} is cut off")).into()
}

/// Locates some of a file's records by parsing the file.
fn find(look: &Look<'_>, held: u64, samples: &Range<u64>) -> Result<Extent, Obstacle> {
    let small = look.len <= SMALL_FILE;
    let first = if small { look.at(0, look.len)? } else { head_at(look, 0, 0)? };
    if first.is_empty() {
        return Err(within(NAME, samples, 0).err().map_or_else(|| empty(look), Obstacle::from));
    }
    let bytes = record_bytes(look, 0, 0, first)?;
    if bytes.checked_mul(held) == Some(look.len) && alike(look, bytes, samples)? {
        return Ok(Extent { offset: bytes * samples.start, len: bytes * (samples.end - samples.start) });
    }
    walk(look, held, samples)
}

fn empty(look: &Look<'_>) -> Obstacle {
    look.damage(0, "it contains no record").into()
}

/// Whether records of equal length start where the first and the last wanted one would. Valid checksums there
/// exclude other layouts.
fn alike(look: &Look<'_>, bytes: u64, samples: &Range<u64>) -> Result<bool, Obstacle> {
    let wanted = head(bytes - HEAD - FOOT);
    for sample in [samples.start, samples.end - 1] {
        if head_at(look, sample, sample * bytes)? != wanted {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Walks from head to head up to the last wanted record.
fn walk(look: &Look<'_>, held: u64, samples: &Range<u64>) -> Result<Extent, Obstacle> {
    let piece = match look.len {
        len if len <= SMALL_FILE => len,
        len if len / held.max(1) <= STRIDE / 4 => STRIDE,
        _ => HEAD,
    };
    let (mut offset, mut start, mut pieces) = (0, 0, 0);
    let (mut seen_from, mut seen): (u64, &[u8]) = (0, &[]);
    for number in 0..samples.end {
        if number == samples.start {
            start = offset;
        }
        if offset == look.len {
            within(NAME, samples, number)?;
        }
        let mut head = head_in(seen, offset - seen_from);
        if head.is_none() {
            pieces += 1;
            if pieces > MOST_PIECES {
                return Err(too_many_pieces(number).into());
            }
            if look.len - offset < HEAD {
                return Err(cut_off(look, number, offset));
            }
            (seen_from, seen) = (offset, look.at(offset, piece.min(look.len - offset))?);
            head = head_in(seen, 0);
        }
        offset += record_bytes(look, number, offset, head.unwrap_or_default())?;
    }
    Ok(Extent { offset: start, len: offset - start })
}

fn head_in(seen: &[u8], at: u64) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?;
    seen.get(at..at.checked_add(HEAD as usize)?)
}

fn too_many_pieces(number: u64) -> FormatError {
    let what = format!(
        "records of uneven length can be found one after the other only, and record {number} is too far down the \
         file; set reader.access to framework, which reads the file as a stream"
    );
    FormatError::Setting { format: NAME, what }
}

/// Describes a file. Its records are read piece by piece, and checked once, when all have been read.
fn inspect(look: &Look<'_>) -> Result<FileFacts, Obstacle> {
    if look.len == 0 {
        return Err(empty(look));
    }
    each_record(look, |_, _, _| Ok(()))?;
    let (mut samples, mut unchecked) = (0_u64, 0_u64);
    let mut first = None;
    each_record(look, |number, offset, record| {
        samples = number + 1;
        let Some((payload, sum)) = record else {
            unchecked += 1;
            return Ok(());
        };
        if masked(crc32c::crc32c(payload)).to_le_bytes() != *sum {
            let what = format!("checksum mismatch in the {} bytes of record {number}", payload.len());
            return Err(look.damage(offset, what).into());
        }
        if number == 0 {
            first = Some(payload);
        }
        Ok(())
    })?;
    let mut notes = Vec::new();
    let named = first.and_then(example::named);
    match (&named, first) {
        (Some(_), _) => notes.push("the features are those of the first record".to_owned()),
        (None, Some(_)) => notes.push("the first record is not a tf.train.Example".to_owned()),
        (None, None) => {}
    }
    if unchecked > 0 {
        notes.push(format!("{unchecked} records are too long to check more than their lengths"));
    }
    let named = named.unwrap_or_default();
    let dims = named.size.into_iter().collect();
    Ok(FileFacts { samples: Some(samples), dims, element: None, arrays: named.features, notes })
}

/// A record's payload and its checksum, if it is short enough to be read.
type Record<'a> = Option<(&'a [u8], &'a [u8])>;

/// Calls `visit` with index, offset and content of every record.
fn each_record<'a>(
    look: &Look<'a>,
    mut visit: impl FnMut(u64, u64, Record<'a>) -> Result<(), Obstacle>,
) -> Result<(), Obstacle> {
    let (mut offset, mut number) = (0, 0);
    let (mut seen_from, mut seen): (u64, &[u8]) = (0, &[]);
    while offset < look.len {
        let head = match head_in(seen, offset - seen_from) {
            Some(head) => head,
            None => head_at(look, number, offset)?,
        };
        let bytes = record_bytes(look, number, offset, head)?;
        if bytes > MOST_AT_ONCE {
            visit(number, offset, None)?;
        } else {
            if (offset - seen_from) + bytes > seen.len() as u64 {
                seen_from = offset;
                seen = look.at(offset, MOST_AT_ONCE.min(look.len - offset))?;
            }
            // A check above showed that it fits: both numbers are below the length of a slice.
            let record = &seen[(offset - seen_from) as usize..][..bytes as usize];
            let (payload, sum) = record[HEAD as usize..].split_at((bytes - HEAD - FOOT) as usize);
            visit(number, offset, Some((payload, sum)))?;
        }
        offset += bytes;
        number += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
