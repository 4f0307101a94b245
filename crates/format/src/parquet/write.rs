//! Generates the bytes of a file according to `layout`. Memory is the caller's scratch; with a codec also one
//! page, and the sizes for the footer.

use super::codec::Codec;
use super::layout::{ChunkLayout, Layout, Page, Repetition, TRAILER, packed_head, run_head};
use super::leaf::{self, Leaf, ValueEncoding};
use super::metadata::{self, ChunkFacts, MAGIC};
use super::thrift::put_varint;
use crate::Content;
use crate::pieces::Pieces;
use std::borrow::Cow;
use std::io;

/// Scratch for the page to compress: as much as is generated at once.
const PART: usize = 16 * 1024;

/// Bytes of a column chunk.
#[derive(Clone, Copy, Debug)]
struct ChunkSizes {
    raw: u64,
    stored: u64,
    dictionary: u64,
}

/// The source of content.
#[derive(Clone, Copy)]
pub(super) struct ContentSource<'a> {
    pub(super) content: &'a Content,
    pub(super) file: u64,
}

/// The codec of a page, and its buffers.
struct PageCompressor {
    codec: Codec,
    level: u32,
    part: Vec<u8>,
    raw: Vec<u8>,
    packed: Vec<u8>,
    sizes: Vec<ChunkSizes>,
}

pub(super) fn write<'s>(
    layout: &Layout<'_>,
    arrow_schema: impl FnOnce() -> Cow<'s, [u8]>,
    level: u32,
    source: ContentSource<'_>,
    out: &mut Pieces<'_, '_>,
) -> io::Result<()> {
    out.bytes(MAGIC)?;
    let (starts, stride) = streams(layout);
    if layout.codec == Codec::None {
        let mut group = |out: &mut Pieces<'_, '_>, group: u64| {
            let (_, rows) = layout.group(group);
            layout.chunks(rows).zip(&starts).try_for_each(|((leaf, chunk, _), start)| {
                let start = start + group * stride;
                out.derived(chunk.bytes, 0, |out| write_chunk(out, leaf, &chunk, source, start))
            })
        };
        // All but the last are equal.
        let last = layout.groups() - 1;
        out.repeat(last, layout.group_bytes, &mut group)?;
        group(out, last)?;
        let footer = layout.footer_bytes + TRAILER;
        return out.derived(footer, 0, |out| write_footer(out, layout, &arrow_schema(), None));
    }
    let mut press = PageCompressor {
        codec: layout.codec,
        level,
        part: vec![0; PART],
        raw: Vec::new(),
        packed: Vec::new(),
        sizes: Vec::new(),
    };
    for group in 0..layout.groups() {
        let (_, rows) = layout.group(group);
        for ((leaf, chunk, _), start) in layout.chunks(rows).zip(&starts) {
            press.write_chunk(out, leaf, &chunk, source, start + group * stride)?;
        }
    }
    write_footer(out, layout, &arrow_schema(), Some(press.sizes))
}

/// Where each column of a row group starts in the file's content, and the length of a group's content. Columns
/// follow one another, so that no content is used twice.
fn streams(layout: &Layout<'_>) -> (Vec<u64>, u64) {
    let mut at = 0_u64;
    let mut align = 1;
    let mut starts = Vec::with_capacity(layout.leaves().len());
    for leaf in layout.leaves() {
        at = at.next_multiple_of(leaf.value.align());
        align = align.max(leaf.value.align());
        starts.push(at);
        // A file with more content than 64 bits can address has no size and has been refused.
        let drawn = leaf.values(layout.group_rows).and_then(|values| leaf.value.drawn(values));
        at = at.saturating_add(drawn.unwrap_or(0));
    }
    (starts, at.next_multiple_of(align))
}

fn write_chunk(
    out: &mut Pieces<'_, '_>,
    leaf: &Leaf,
    chunk: &ChunkLayout,
    source: ContentSource<'_>,
    start: u64,
) -> io::Result<()> {
    let mut head = Vec::with_capacity(64);
    if let Some(page) = leaf.value.dictionary() {
        metadata::dictionary_page(&mut head, page, page.raw);
        head.extend(leaf::dictionary_entries(leaf.value, page));
        out.bytes(&head)?;
    }
    let mut start = start;
    for page in chunk.pages() {
        out.derived(page.bytes(), 0, |out| {
            let (raw, stored) = (page.raw as u32, page.stored as u32);
            head.clear();
            metadata::data_page(&mut head, leaf.value, page.values as u32, raw, stored);
            out.bytes(&head)?;
            write_page(out, leaf, &page, source, start)
        })?;
        start += leaf.value.drawn(page.values).unwrap_or(0);
    }
    Ok(())
}

/// Writes what follows a page's header.
fn write_page(
    out: &mut Pieces<'_, '_>,
    leaf: &Leaf,
    page: &Page,
    source: ContentSource<'_>,
    start: u64,
) -> io::Result<()> {
    let mut head = Vec::with_capacity(32);
    if let Some((kind, bytes)) = page.repetition {
        out.bytes(&(bytes as u32).to_le_bytes())?;
        write_repetition(out, kind, leaf.items.unwrap_or(1), page)?;
        head.extend_from_slice(&(page.definition as u32).to_le_bytes());
        put_varint(&mut head, run_head(page.values));
        head.push(1);
    }
    if let ValueEncoding::Byte(_) = leaf.value {
        head.push(8); // bits of an entry's number
        put_varint(&mut head, packed_head(page.values.div_ceil(8)));
    }
    out.bytes(&head)?;
    out.produce(page.payload, |offset, part| {
        leaf::fill(leaf.value, source.content, source.file, start, offset, part);
    })?;
    out.produce(page.raw - page.before - page.payload, |_, part| part.fill(0))
}

fn write_repetition(out: &mut Pieces<'_, '_>, kind: Repetition, items: u64, page: &Page) -> io::Result<()> {
    let mut runs = Vec::with_capacity(16);
    match kind {
        Repetition::Zeros => {
            put_varint(&mut runs, run_head(page.rows));
            runs.push(0);
            out.bytes(&runs)
        }
        Repetition::Packed { bytes } => {
            put_varint(&mut runs, packed_head(bytes));
            out.bytes(&runs)?;
            out.produce(bytes, |offset, part| pack_repetition(items, offset, part))
        }
        Repetition::Runs { .. } => {
            put_varint(&mut runs, run_head(1));
            runs.push(0);
            put_varint(&mut runs, run_head(items - 1));
            runs.push(1);
            (0..page.rows).try_for_each(|_| out.bytes(&runs))
        }
    }
}

/// One bit per value, all set except those of each row's first; `out` starts with byte `offset` of them.
fn pack_repetition(items: u64, offset: u64, out: &mut [u8]) {
    out.fill(0xFF);
    let first = offset * 8;
    let end = first + 8 * out.len() as u64;
    let mut bit = first.next_multiple_of(items);
    while bit < end {
        let place = bit - first;
        out[(place / 8) as usize] &= !(1 << (place % 8));
        bit += items;
    }
}

impl PageCompressor {
    fn write_chunk(
        &mut self,
        out: &mut Pieces<'_, '_>,
        leaf: &Leaf,
        chunk: &ChunkLayout,
        source: ContentSource<'_>,
        start: u64,
    ) -> io::Result<()> {
        let mut sizes = ChunkSizes { raw: 0, stored: 0, dictionary: 0 };
        let mut head = Vec::with_capacity(64);
        if let Some(page) = leaf.value.dictionary() {
            self.raw = leaf::dictionary_entries(leaf.value, page);
            self.codec.compress(self.level, &self.raw, &mut self.packed)?;
            metadata::dictionary_page(&mut head, page, self.packed.len() as u32);
            self.put(out, &head, &mut sizes)?;
            sizes.dictionary = sizes.stored;
        }
        let mut start = start;
        for page in chunk.pages() {
            self.make(leaf, &page, source, start)?;
            head.clear();
            let (raw, stored) = (self.raw.len() as u32, self.packed.len() as u32);
            metadata::data_page(&mut head, leaf.value, page.values as u32, raw, stored);
            self.put(out, &head, &mut sizes)?;
            start += leaf.value.drawn(page.values).unwrap_or(0);
        }
        self.sizes.push(sizes);
        Ok(())
    }

    /// Generates a page and compresses it.
    fn make(&mut self, leaf: &Leaf, page: &Page, source: ContentSource<'_>, start: u64) -> io::Result<()> {
        let PageCompressor { part, raw, .. } = self;
        raw.clear();
        let mut gather = |piece: &[u8]| {
            raw.extend_from_slice(piece);
            Ok(())
        };
        let mut pieces = Pieces::new(part, &mut gather);
        write_page(&mut pieces, leaf, page, source, start)?;
        pieces.finish()?;
        self.codec.compress(self.level, &self.raw, &mut self.packed)
    }

    fn put(&self, out: &mut Pieces<'_, '_>, head: &[u8], sizes: &mut ChunkSizes) -> io::Result<()> {
        sizes.raw += (head.len() + self.raw.len()) as u64;
        sizes.stored += (head.len() + self.packed.len()) as u64;
        out.bytes(head)?;
        out.bytes(&self.packed)
    }
}

/// Writes the footer one column chunk at a time: there may be hundreds of thousands.
fn write_footer(
    out: &mut Pieces<'_, '_>,
    layout: &Layout<'_>,
    arrow_schema: &[u8],
    sizes: Option<Vec<ChunkSizes>>,
) -> io::Result<()> {
    let start = out.position();
    let mut bytes = Vec::new();
    metadata::head(&mut bytes, layout.leaves(), layout.rows, layout.groups());
    out.bytes(&bytes)?;
    let mut sizes = sizes.map(Vec::into_iter);
    let mut at = MAGIC.len() as u64;
    for group in 0..layout.groups() {
        let (_, rows) = layout.group(group);
        bytes.clear();
        metadata::group_head(&mut bytes, layout.leaves().len() as u64);
        let mut group_raw = 0;
        for (leaf, chunk, _) in layout.chunks(rows) {
            let plain = ChunkSizes { raw: chunk.bytes, stored: chunk.bytes, dictionary: chunk.dictionary };
            let size = sizes.as_mut().and_then(Iterator::next).unwrap_or(plain);
            let facts = ChunkFacts {
                values: leaf.values(rows).unwrap_or(0),
                raw: size.raw,
                stored: size.stored,
                data_at: at + size.dictionary,
                dictionary_at: (size.dictionary > 0).then_some(at),
                data_pages: chunk.data_pages(),
            };
            metadata::column_chunk(&mut bytes, leaf, layout.codec, facts);
            out.bytes(&bytes)?;
            bytes.clear();
            at += size.stored;
            group_raw += size.raw;
        }
        metadata::group_tail(&mut bytes, group_raw, rows);
        out.bytes(&bytes)?;
    }
    bytes.clear();
    metadata::tail(&mut bytes, arrow_schema);
    out.bytes(&bytes)?;
    // Longer footers have been refused.
    let footer = (out.position() - start) as u32;
    out.bytes(&footer.to_le_bytes())?;
    out.bytes(MAGIC)
}
