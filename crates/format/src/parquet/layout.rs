//! The layout of a file that feedline writes, as arithmetic: pages, column chunks, row groups, footer. With a
//! codec the same sums are upper bounds. It must not generate any bytes.

use super::codec::Codec;
use super::leaf::{DictionaryPage, Leaf, ValueEncoding};
use super::metadata::{self, ChunkFacts, MAGIC};
use super::thrift::{ByteCounter, varint_len};
use super::{NAME, Parquet};
use crate::{FormatError, MOST_AT_ONCE, error};
use model::shape::FileShape;

/// Values in one page, as in pyarrow; a row is not split, so a long row makes a longer page.
const PAGE_BYTES: u64 = 1 << 20;
/// Sizes of pages are signed numbers of 32 bits.
const MOST_IN_PAGE: u64 = i32::MAX as u64;
/// Lists up to this length have bit-packed repetition levels; for longer ones runs are shorter.
const SHORT_LIST: u64 = 32;
/// The levels of a page of version 1 follow their length.
const LEVELS_LENGTH: u64 = 4;
/// The length of the footer, and the magic, at the end.
pub(super) const TRAILER: u64 = 8;

/// The encoding of the repetition levels of a page of lists: 0 at the start of a row and 1 for its other values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repetition {
    /// One value per row: a single run of zeros.
    Zeros,
    /// Eight levels per byte.
    Packed { bytes: u64 },
    /// Two runs per row.
    Runs { row_bytes: u64 },
}

impl Repetition {
    fn of(items: u64, values: u64) -> Repetition {
        match items {
            1 => Repetition::Zeros,
            2..=SHORT_LIST => Repetition::Packed { bytes: values.div_ceil(8) },
            _ => Repetition::Runs { row_bytes: 2 + run_bytes(items - 1) },
        }
    }

    /// Bytes of the levels of a page of this many rows.
    fn bytes(self, rows: u64) -> Option<u64> {
        match self {
            Repetition::Zeros => Some(run_bytes(rows)),
            Repetition::Packed { bytes } => Some(varint_len(packed_head(bytes)) + bytes),
            Repetition::Runs { row_bytes } => rows.checked_mul(row_bytes),
        }
    }
}

/// The head of a run of one value: its length (Encodings.md, RLE).
pub(super) fn run_head(repeats: u64) -> u64 {
    repeats << 1
}

/// The head of a run of bit-packed values: the number of groups of eight, which is the number of bytes at one bit
/// each.
pub(super) fn packed_head(eights: u64) -> u64 {
    eights << 1 | 1
}

/// Bytes of a run of a value of at most eight bits.
fn run_bytes(repeats: u64) -> u64 {
    varint_len(run_head(repeats)) + 1
}

/// A data page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) rows: u64,
    pub(super) values: u64,
    pub(super) repetition: Option<(Repetition, u64)>,
    /// Bytes of the definition levels: one run, since no value is null.
    pub(super) definition: u64,
    /// Bytes between the header and the values.
    pub(super) before: u64,
    /// Bytes of the values, without the padding of the last eight.
    pub(super) payload: u64,
    /// Bytes after the header, before and after compression (then an upper bound).
    pub(super) raw: u64,
    pub(super) stored: u64,
    header: u64,
}

impl Page {
    /// The page of this many rows, if it can exist.
    fn of(leaf: &Leaf, rows: u64, codec: Codec) -> Option<Page> {
        let values = leaf.values(rows).filter(|values| *values <= MOST_IN_PAGE)?;
        let payload = leaf.value.stored(values)?;
        let (mut repetition, mut definition, mut before) = (None, 0, 0);
        if let Some(items) = leaf.items {
            let kind = Repetition::of(items, values);
            let bytes = kind.bytes(rows)?;
            (repetition, definition) = (Some((kind, bytes)), run_bytes(values));
            before = bytes.checked_add(definition + 2 * LEVELS_LENGTH)?;
        }
        let mut behind = payload;
        if let ValueEncoding::Byte(_) = leaf.value {
            before = before.checked_add(1 + varint_len(packed_head(values.div_ceil(8))))?;
            behind = payload.next_multiple_of(8);
        }
        let raw = before.checked_add(behind)?;
        let stored = codec.most(raw).filter(|bytes| *bytes <= MOST_IN_PAGE)?;
        let header = metadata::length(|out: &mut ByteCounter| {
            metadata::data_page(out, leaf.value, values as u32, raw as u32, stored as u32);
        });
        Some(Page { rows, values, repetition, definition, before, payload, raw, stored, header })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.header + self.stored
    }
}

/// Bytes of a dictionary page with its header; with a codec an upper bound.
fn dictionary_bytes(page: DictionaryPage, codec: Codec) -> Option<u64> {
    let stored = codec.most(u64::from(page.raw))?;
    let header =
        metadata::length(|out: &mut ByteCounter| metadata::dictionary_page(out, page, stored as u32));
    Some(header + stored)
}

/// A column of a row group: the dictionary page if there is one, full pages, and one with the remaining rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkLayout {
    pub(super) dictionary: u64,
    pub(super) full: u64,
    pub(super) page: Page,
    pub(super) rest: Option<Page>,
    pub(super) bytes: u64,
}

impl ChunkLayout {
    pub(super) fn of(leaf: &Leaf, rows: u64, codec: Codec) -> Option<ChunkLayout> {
        let row_bytes = leaf.value.stored(leaf.values(1)?)?.max(1);
        let page_rows = (PAGE_BYTES / row_bytes).max(1).min(rows);
        let page = Page::of(leaf, page_rows, codec)?;
        let rest = match rows % page_rows {
            0 => None,
            rows => Some(Page::of(leaf, rows, codec)?),
        };
        let dictionary = match leaf.value.dictionary() {
            Some(page) => dictionary_bytes(page, codec)?,
            None => 0,
        };
        let full = rows / page_rows;
        let pages = full.checked_mul(page.bytes())?.checked_add(rest.map_or(0, |page| page.bytes()))?;
        Some(ChunkLayout { dictionary, full, page, rest, bytes: pages.checked_add(dictionary)? })
    }

    pub(super) fn data_pages(&self) -> u64 {
        self.full + u64::from(self.rest.is_some())
    }

    /// All pages of values, in order.
    pub(super) fn pages(&self) -> impl Iterator<Item = Page> {
        (0..self.full)
            .map({
                let page = self.page;
                move |_| page
            })
            .chain(self.rest)
    }

    /// Calls `place` with the byte ranges, relative to the chunk, that contain the values of rows.
    pub(super) fn places(&self, leaf: &Leaf, rows: std::ops::Range<u64>, mut place: impl FnMut(u64, u64)) {
        let items = leaf.items.unwrap_or(1);
        let mut row = rows.start;
        while row < rows.end {
            let number = row / self.page.rows;
            let first = number * self.page.rows;
            let page = if number < self.full { Some(&self.page) } else { self.rest.as_ref() };
            let Some(page) = page else { return };
            let end = rows.end.min(first + page.rows);
            let (from, to) = ((row - first) * items, (end - first) * items);
            let (from, to) = match leaf.value {
                ValueEncoding::Bits => (from / 8, to.div_ceil(8)),
                // At most the page's values, whose size did not overflow.
                value => (value.stored(from).unwrap_or(0), value.stored(to).unwrap_or(0)),
            };
            let values = self.dictionary + number * self.page.bytes() + page.header + page.before;
            place(values + from, to - from);
            row = end;
        }
    }
}

/// Cached sizes of files of this many rows: most files of a data set are equal, and with hundreds of columns the
/// sums take longer than the rest of a visit.
#[derive(Debug)]
pub(super) struct CachedSizes {
    rows: u64,
    group_bytes: u64,
    footer_bytes: u64,
    file_bytes: u64,
    /// The columns of a full row group and their offsets in it.
    chunks: Vec<(ChunkLayout, u64)>,
}

/// A file: equal row groups, a shorter one with the remaining rows, and the footer.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    named: &'a [Leaf],
    unnamed: Option<Leaf>,
    known: Option<&'a CachedSizes>,
    pub(super) codec: Codec,
    pub(super) rows: u64,
    pub(super) group_rows: u64,
    pub(super) group_bytes: u64,
    pub(super) footer_bytes: u64,
    pub(super) file_bytes: u64,
}

impl<'a> Layout<'a> {
    pub(super) fn of(parquet: &'a Parquet, shape: &FileShape<'_>) -> Result<Layout<'a>, FormatError> {
        let mut layout = Layout {
            named: &parquet.leaves,
            unnamed: None,
            known: parquet.known.get().filter(|known| known.rows == shape.samples),
            codec: parquet.codec,
            rows: shape.samples,
            group_rows: parquet.group_rows.min(shape.samples),
            group_bytes: 0,
            footer_bytes: 0,
            file_bytes: 0,
        };
        if let Some(known) = layout.known {
            (layout.group_bytes, layout.footer_bytes) = (known.group_bytes, known.footer_bytes);
            layout.file_bytes = known.file_bytes;
            return Ok(layout);
        }
        if parquet.leaves.is_empty() {
            let items = error::payload(NAME, shape)? / shape.samples / shape.element.size();
            layout.unnamed = Some(Leaf::of_samples(shape.element, items));
        } else if shape.samples == 0 {
            return Err(FormatError::Empty { format: NAME, dims: shape.dims.to_vec(), samples: 0 });
        }
        layout.check_pages()?;
        let schema = parquet.schema_bytes(shape.element);
        let bytes = layout.measure(schema);
        layout.file_bytes = error::whole(NAME, shape, bytes)?;
        layout.check_footer()?;
        if layout.unnamed.is_none() {
            parquet.known.get_or_init(|| layout.known());
        }
        Ok(layout)
    }

    fn known(&self) -> CachedSizes {
        let chunks = self.chunks(self.group_rows).map(|(_, chunk, at)| (chunk, at)).collect();
        let Layout { rows, group_bytes, footer_bytes, file_bytes, .. } = *self;
        CachedSizes { rows, group_bytes, footer_bytes, file_bytes, chunks }
    }

    fn check_footer(&self) -> Result<(), FormatError> {
        if self.footer_bytes <= MOST_AT_ONCE {
            return Ok(());
        }
        let what = format!(
            "a file of {} row groups of {} columns has a footer of {} bytes, and readers take at most \
             {MOST_AT_ONCE}; raise dataset.parquet.row_group_size",
            self.groups(),
            self.leaves().len(),
            self.footer_bytes
        );
        Err(FormatError::Setting { format: NAME, what })
    }

    pub(super) fn leaves(&self) -> &[Leaf] {
        self.unnamed.as_ref().map_or(self.named, std::slice::from_ref)
    }

    /// Full row groups; the rows of the last, which has fewer.
    fn split(&self) -> (u64, u64) {
        (self.rows / self.group_rows, self.rows % self.group_rows)
    }

    pub(super) fn groups(&self) -> u64 {
        self.rows.div_ceil(self.group_rows)
    }

    /// First row and number of rows of a group.
    pub(super) fn group(&self, group: u64) -> (u64, u64) {
        let first = group * self.group_rows;
        (first, self.group_rows.min(self.rows - first))
    }

    /// The columns of a group of this many rows, each with its offset from the start of the group.
    pub(super) fn chunks(&self, rows: u64) -> impl Iterator<Item = (&Leaf, ChunkLayout, u64)> {
        let known = self.known.filter(|_| rows == self.group_rows).map_or(&[][..], |known| &known.chunks);
        let mut offset = 0;
        // An earlier check showed that each column has its pages.
        self.leaves().iter().enumerate().filter_map(move |(index, leaf)| match known.get(index) {
            Some((chunk, at)) => Some((leaf, *chunk, *at)),
            None => {
                let chunk = ChunkLayout::of(leaf, rows, self.codec)?;
                let at = offset;
                offset += chunk.bytes;
                Some((leaf, chunk, at))
            }
        })
    }

    /// Offset of a group's first byte.
    pub(super) fn group_at(&self, group: u64) -> u64 {
        MAGIC.len() as u64 + group * self.group_bytes
    }

    fn check_pages(&self) -> Result<(), FormatError> {
        for leaf in self.leaves() {
            if ChunkLayout::of(leaf, self.group_rows, self.codec).is_none() {
                let bytes = leaf.values(1).and_then(|values| leaf.value.stored(values)).unwrap_or(u64::MAX);
                let what = format!(
                    "a row of {bytes} bytes in column '{}' does not fit in a page, which has at most \
                     {MOST_IN_PAGE} bytes and values; lower dataset.record_length_bytes or the column's size",
                    leaf.name
                );
                return Err(FormatError::Setting { format: NAME, what });
            }
        }
        Ok(())
    }

    /// Computes the sizes and returns the file's; `None` on overflow.
    fn measure(&mut self, schema_bytes: u64) -> Option<u64> {
        let (full, last_rows) = self.split();
        // Offsets in the content also have 64 bits, and flags take more of the content than of the file.
        self.leaves().iter().try_fold(0_u64, |sum, leaf| {
            sum.checked_add(
                leaf.value.drawn(leaf.values(self.rows)?.checked_add(self.groups().checked_mul(8)?)?)?,
            )
        })?;
        self.group_bytes = self.group_sum(self.group_rows)?;
        let last_bytes = if last_rows > 0 { self.group_sum(last_rows)? } else { 0 };
        let data =
            full.checked_mul(self.group_bytes)?.checked_add(last_bytes)?.checked_add(MAGIC.len() as u64)?;
        // No file is longer, and smaller offsets can be doubled.
        if data > i64::MAX as u64 {
            return None;
        }
        let mut footer = metadata::length(|out: &mut ByteCounter| {
            metadata::head(out, self.leaves(), self.rows, self.groups());
        });
        footer = footer.checked_add(metadata::tail_length(schema_bytes))?;
        footer = footer.checked_add(self.group_metadata(0, full, self.group_rows, self.group_bytes)?)?;
        if last_rows > 0 {
            footer = footer.checked_add(self.group_metadata(full, 1, last_rows, last_bytes)?)?;
        }
        self.footer_bytes = footer;
        data.checked_add(footer)?.checked_add(TRAILER)
    }

    fn group_sum(&self, rows: u64) -> Option<u64> {
        self.leaves()
            .iter()
            .try_fold(0_u64, |sum, leaf| sum.checked_add(ChunkLayout::of(leaf, rows, self.codec)?.bytes))
    }

    /// Bytes of the footer for `count` equal groups. Only the page offsets differ, and their encoded size is
    /// computed without iterating over the groups.
    fn group_metadata(&self, first: u64, count: u64, rows: u64, bytes: u64) -> Option<u64> {
        let mut one = metadata::length(|out: &mut ByteCounter| {
            metadata::group_head(out, self.leaves().len() as u64);
            metadata::group_tail(out, bytes, rows);
        });
        let mut offsets = 0_u64;
        for (leaf, chunk, at) in self.chunks(rows) {
            let facts = ChunkFacts {
                values: leaf.values(rows)?,
                raw: chunk.bytes,
                stored: chunk.bytes,
                data_at: 0,
                dictionary_at: (chunk.dictionary > 0).then_some(0),
                data_pages: chunk.data_pages(),
            };
            one += metadata::length(|out: &mut ByteCounter| {
                metadata::column_chunk(out, leaf, self.codec, facts);
            });
            let at = at + self.group_at(first);
            offsets += longer_varints(at + chunk.dictionary, self.group_bytes, count);
            if chunk.dictionary > 0 {
                offsets += longer_varints(at, self.group_bytes, count);
            }
        }
        one.checked_mul(count)?.checked_add(offsets)
    }
}

/// Encoded bytes beyond one each of the `count` signed numbers `start`, `start + step`, ...: each further byte is
/// needed from some number on.
fn longer_varints(start: u64, step: u64, count: u64) -> u64 {
    (1..10_u32)
        .map(|byte| 1_u64 << (7 * byte - 1))
        .map(|needed_from| match needed_from.checked_sub(start) {
            None => count,
            Some(missing) => count - count.min(missing.div_ceil(step)),
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computed_offset_lengths_equal_the_written_ones() {
        for (start, step, count) in
            [(0, 1, 300), (4, 1, 100), (63, 5, 20), (4, 24_641, 5000), (1 << 33, 1 << 20, 9000), (64, 1, 0)]
        {
            let written: u64 = (0..count).map(|index| varint_len((start + index * step) << 1) - 1).sum();
            assert_eq!(longer_varints(start, step, count), written, "{start} {step} {count}");
        }
    }
}
