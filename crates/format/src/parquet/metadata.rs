//! Writes the structures of parquet.thrift: page headers and the parts of the footer. Given a counter instead of
//! a buffer, each function computes its length. It must not know the positions of pages and chunks.

use super::codec::Codec;
use super::leaf::{DictionaryPage, Leaf, ValueEncoding};
use super::thrift::{self, ByteCounter, Compact, Put};
use model::shape::Element;

pub(super) const MAGIC: &[u8; 4] = b"PAR1";
/// The writer of the file. Without a version, so that a data set has the same bytes under every version.
const CREATED_BY: &[u8] = b"feedline";
/// The key under which readers that know Arrow find a more exact schema.
pub(super) const ARROW_SCHEMA: &[u8] = b"ARROW:schema";
/// Format version 2: logical types apply.
const VERSION: u32 = 2;

// Enumerations of parquet.thrift.
const PAGE_DATA: u32 = 0;
const PAGE_DICTIONARY: u32 = 2;
const ENCODING_PLAIN: u32 = 0;
const ENCODING_RLE: u32 = 3;
const ENCODING_DICTIONARY: u32 = 8;
const REQUIRED: u32 = 0;
const REPEATED: u32 = 2;
const TYPE_BYTE_ARRAY: u32 = 6;
const TYPE_FIXED_BYTES: u32 = 7;

/// The length of what `write` writes.
pub(super) fn length(write: impl FnOnce(&mut ByteCounter)) -> u64 {
    let mut count = ByteCounter::default();
    write(&mut count);
    count.0
}

/// The header of a data page, version 1: before compression it has `raw` bytes, after it `stored`.
pub(super) fn data_page(out: &mut impl Put, value: ValueEncoding, values: u32, raw: u32, stored: u32) {
    let mut header = page(out, PAGE_DATA, raw, stored);
    let mut data = header.nested(5);
    data.i32(1, values);
    data.i32(2, encoding(value));
    data.i32(3, ENCODING_RLE); // of definition levels
    data.i32(4, ENCODING_RLE); // of repetition levels
    data.stop();
    header.stop();
}

/// The encoding of a column's data pages.
fn encoding(value: ValueEncoding) -> u32 {
    if matches!(value, ValueEncoding::Byte(_)) { ENCODING_DICTIONARY } else { ENCODING_PLAIN }
}

/// The header of the dictionary page, whose entries have `stored` bytes after compression.
pub(super) fn dictionary_page(out: &mut impl Put, entries: DictionaryPage, stored: u32) {
    let mut header = page(out, PAGE_DICTIONARY, entries.raw, stored);
    let mut dictionary = header.nested(7);
    dictionary.i32(1, entries.entries);
    dictionary.i32(2, ENCODING_PLAIN);
    dictionary.stop();
    header.stop();
}

fn page<P: Put>(out: &mut P, kind: u32, raw: u32, stored: u32) -> Compact<'_, P> {
    let mut header = Compact::new(out);
    header.i32(1, kind);
    header.i32(2, raw);
    header.i32(3, stored);
    header
}

/// The footer up to its row groups.
pub(super) fn head(out: &mut impl Put, leaves: &[Leaf], rows: u64, groups: u64) {
    let lists = leaves.iter().filter(|leaf| leaf.items.is_some()).count();
    let mut footer = Compact::new(out);
    footer.i32(1, VERSION);
    footer.list(2, thrift::STRUCT, 1 + leaves.len() as u64 + 2 * lists as u64);
    let mut root = footer.element();
    root.binary(4, b"schema");
    // The number of columns that a workload can name fits 32 bits.
    root.i32(5, leaves.len() as u32);
    root.stop();
    for leaf in leaves {
        match leaf.items {
            None => values(footer.element(), leaf.value, leaf.name.as_bytes()),
            Some(_) => list(&mut footer, leaf),
        }
    }
    footer.i64(3, rows);
    footer.list(4, thrift::STRUCT, groups);
}

/// A list in three levels (LogicalTypes.md, lists).
fn list(footer: &mut Compact<'_, impl Put>, leaf: &Leaf) {
    let mut outer = footer.element();
    outer.i32(3, REQUIRED);
    outer.binary(4, leaf.name.as_bytes());
    outer.i32(5, 1);
    outer.i32(6, 3); // LIST, as older readers know it
    let mut logical = outer.nested(10);
    logical.nested(3).stop();
    logical.stop();
    outer.stop();
    let mut middle = footer.element();
    middle.i32(3, REPEATED);
    middle.binary(4, b"list");
    middle.i32(5, 1);
    middle.stop();
    values(footer.element(), leaf.value, b"element");
}

fn values(mut schema: Compact<'_, impl Put>, value: ValueEncoding, name: &[u8]) {
    schema.i32(1, physical(value));
    if physical(value) == TYPE_FIXED_BYTES {
        schema.i32(2, 2); // of float16
    }
    schema.i32(3, REQUIRED);
    schema.binary(4, name);
    match value {
        ValueEncoding::Plain(Element::Float16) => annotate(&mut schema, None, 15),
        ValueEncoding::Text => annotate(&mut schema, Some(0), 1),
        ValueEncoding::Plain(element) | ValueEncoding::Byte(element) | ValueEncoding::Wide(element) => {
            if let Some((converted, signed)) = narrow_or_unsigned(element) {
                schema.i32(6, converted);
                let mut logical = schema.nested(10);
                let mut integer = logical.nested(10);
                integer.i8(1, (8 * element.size()) as u8);
                integer.flag(2, signed);
                integer.stop();
                logical.stop();
            }
        }
        ValueEncoding::Bits | ValueEncoding::Blob(_) => {}
    }
    schema.stop();
}

/// A logical type without parameters, and its form for older readers.
fn annotate(schema: &mut Compact<'_, impl Put>, converted: Option<u32>, logical: u8) {
    if let Some(converted) = converted {
        schema.i32(6, converted);
    }
    let mut union = schema.nested(10);
    union.nested(logical).stop();
    union.stop();
}

/// ConvertedType of an integer, if the physical type does not imply it, and whether it is signed.
fn narrow_or_unsigned(element: Element) -> Option<(u32, bool)> {
    match element {
        Element::Uint8 => Some((11, false)),
        Element::Uint16 => Some((12, false)),
        Element::Uint32 => Some((13, false)),
        Element::Uint64 => Some((14, false)),
        Element::Int8 => Some((15, true)),
        Element::Int16 => Some((16, true)),
        _ => None,
    }
}

/// Parquet's number of the type that values are stored as.
fn physical(value: ValueEncoding) -> u32 {
    match value {
        ValueEncoding::Bits | ValueEncoding::Plain(Element::Bool) => 0,
        ValueEncoding::Byte(_) | ValueEncoding::Wide(_) => 1,
        ValueEncoding::Text | ValueEncoding::Blob(_) => TYPE_BYTE_ARRAY,
        ValueEncoding::Plain(Element::Int64 | Element::Uint64) => 2,
        ValueEncoding::Plain(Element::Float32) => 4,
        ValueEncoding::Plain(Element::Float64) => 5,
        ValueEncoding::Plain(Element::Float16) => TYPE_FIXED_BYTES,
        ValueEncoding::Plain(_) => 1,
    }
}

/// A row group up to its columns.
pub(super) fn group_head(out: &mut impl Put, columns: u64) {
    Compact::new(out).list(1, thrift::STRUCT, columns);
}

/// A row group after its columns.
pub(super) fn group_tail(out: &mut impl Put, raw_bytes: u64, rows: u64) {
    let mut group = Compact::resumed(out, 1);
    group.i64(2, raw_bytes);
    group.i64(3, rows);
    group.stop();
}

/// The position and content of a column chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkFacts {
    pub(super) values: u64,
    /// Bytes with page headers, before and after compression.
    pub(super) raw: u64,
    pub(super) stored: u64,
    pub(super) data_at: u64,
    pub(super) dictionary_at: Option<u64>,
    pub(super) data_pages: u64,
}

pub(super) fn column_chunk(out: &mut impl Put, leaf: &Leaf, codec: Codec, facts: ChunkFacts) {
    let mut chunk = Compact::new(out);
    chunk.i64(2, 0); // once the place of a copy of what follows, required and meaningless today
    let mut meta = chunk.nested(3);
    meta.i32(1, physical(leaf.value));
    // pyarrow's list, also where no data page uses the dictionary.
    let encodings: &[u32] = match facts.dictionary_at {
        Some(_) => &[ENCODING_PLAIN, ENCODING_RLE, ENCODING_DICTIONARY],
        None => &[ENCODING_PLAIN, ENCODING_RLE],
    };
    meta.list(2, thrift::I32, encodings.len() as u64);
    encodings.iter().for_each(|encoding| meta.element_i32(*encoding));
    meta.list(3, thrift::BINARY, if leaf.items.is_some() { 3 } else { 1 });
    meta.element_binary(leaf.name.as_bytes());
    if leaf.items.is_some() {
        meta.element_binary(b"list");
        meta.element_binary(b"element");
    }
    meta.i32(4, codec.number());
    meta.i64(5, facts.values);
    meta.i64(6, facts.raw);
    meta.i64(7, facts.stored);
    meta.i64(9, facts.data_at);
    if let Some(dictionary_at) = facts.dictionary_at {
        meta.i64(11, dictionary_at);
    }
    page_encodings(&mut meta, leaf.value, facts);
    meta.stop();
    chunk.stop();
}

/// How many pages of each kind have which encoding: it tells readers whether data pages use the dictionary.
fn page_encodings(meta: &mut Compact<'_, impl Put>, value: ValueEncoding, facts: ChunkFacts) {
    let dictionary = facts.dictionary_at.map(|_| (PAGE_DICTIONARY, ENCODING_PLAIN, 1));
    let data = (PAGE_DATA, encoding(value), facts.data_pages);
    meta.list(13, thrift::STRUCT, 1 + u64::from(dictionary.is_some()));
    for (page, encoding, count) in dictionary.into_iter().chain([data]) {
        let mut pages = meta.element();
        pages.i32(1, page);
        pages.i32(2, encoding);
        // A file has fewer pages than 32 bits can count.
        pages.i32(3, count as u32);
        pages.stop();
    }
}

/// The footer after its row groups. The schema is already in base64.
pub(super) fn tail(out: &mut impl Put, arrow_schema: &[u8]) {
    let mut footer = Compact::resumed(out, 4);
    footer.list(5, thrift::STRUCT, 1);
    let mut pair = footer.element();
    pair.binary(1, ARROW_SCHEMA);
    pair.binary(2, arrow_schema);
    pair.stop();
    footer.binary(6, CREATED_BY);
    footer.stop();
}

/// The length of [`tail`] with a schema of this many bytes.
pub(super) fn tail_length(arrow_schema: u64) -> u64 {
    length(|out| tail(out, &[])) - 1 + thrift::varint_len(arrow_schema) + arrow_schema
}
