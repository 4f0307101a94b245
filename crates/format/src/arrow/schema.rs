//! The columns of files that feedline writes: their Arrow types, their buffers in a record batch, and the
//! metadata messages. It must not know the positions in a file.

use std::borrow::Cow;
use std::ops::Range;

use model::shape::{Element, FileShape};
use model::spec::Column;

use super::NAME;
use super::flat::{FieldValue, FlatWriter};
use crate::{Content, FormatError, array};

/// Arrow's metadata version V5 (Schema.fbs, MetadataVersion).
const VERSION: i16 = 4;
/// Numbers of the tables in unions (Message.fbs MessageHeader, Schema.fbs Type).
pub(super) const SCHEMA: u8 = 1;
pub(super) const RECORD_BATCH: u8 = 3;
pub(super) const INT: u8 = 2;
pub(super) const FLOAT: u8 = 3;
pub(super) const UTF8: u8 = 5;
pub(super) const BOOL: u8 = 6;
pub(super) const FIXED_BINARY: u8 = 15;
pub(super) const FIXED_LIST: u8 = 16;
/// Lengths in Arrow's schema are signed 32-bit numbers.
const MOST_ITEMS: u64 = i32::MAX as u64;
/// Bytes of a string: `s_` and ten digits, enough to avoid repetition and to keep sizes exact.
pub(super) const TEXT: u64 = 12;

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SchemaField {
    pub(super) name: Cow<'static, str>,
    holds: RowContent,
    /// Whether training reads it.
    pub(super) read: bool,
}

/// The content of a row in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowContent {
    One(Element),
    List(Element, u64),
    Text,
    Bytes(u64),
}

/// A buffer of a record batch. No value is null, so validity buffers are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferContent {
    Empty,
    /// This many bytes of elements per row.
    Values(Element, u64),
    /// This many bits per row.
    Bits(u64),
    /// Where each row's text ends.
    Ends,
    Text,
}

impl SchemaField {
    /// The only column of a file if the workload names none.
    pub(super) fn of_samples(shape: &FileShape<'_>) -> Result<SchemaField, FormatError> {
        let items = shape.dims.iter().fold(1_u64, |items, dim| items.saturating_mul(*dim));
        check_items("data", items)?;
        Ok(SchemaField {
            name: Cow::Borrowed("data"),
            holds: RowContent::List(shape.element, items),
            read: true,
        })
    }

    pub(super) fn of_column(column: &Column) -> Result<SchemaField, FormatError> {
        check_items(&column.name, column.size)?;
        let holds = match (column.dtype.as_str(), column.size) {
            ("string", _) => RowContent::Text,
            ("binary", size) => RowContent::Bytes(size),
            (name, size) => match (Element::named(name), size) {
                (Some(element), 1) => RowContent::One(element),
                (Some(element), size) => RowContent::List(element, size),
                // DLIO's rule for `list` and for unknown names.
                (None, size) => RowContent::List(Element::Float32, size),
            },
        };
        Ok(SchemaField { name: Cow::Owned(column.name.clone()), holds, read: column.read })
    }

    pub(super) fn stores(&self) -> impl Iterator<Item = BufferContent> + use<> {
        let values = |element: Element, items: u64| match element {
            Element::Bool => BufferContent::Bits(items),
            // At most 2^31 items of at most eight bytes.
            element => BufferContent::Values(element, items * element.size()),
        };
        let (stores, count) = match self.holds {
            RowContent::One(element) => ([BufferContent::Empty, values(element, 1), BufferContent::Empty], 2),
            RowContent::List(element, items) => {
                ([BufferContent::Empty, BufferContent::Empty, values(element, items)], 3)
            }
            RowContent::Text => ([BufferContent::Empty, BufferContent::Ends, BufferContent::Text], 3),
            RowContent::Bytes(bytes) => (
                [BufferContent::Empty, BufferContent::Values(Element::Uint8, bytes), BufferContent::Empty],
                2,
            ),
        };
        stores.into_iter().take(count)
    }

    /// Field nodes of this many rows: the column's own, and that of the items in its lists.
    fn nodes(&self, rows: u64) -> impl Iterator<Item = u64> + use<> {
        let items = match self.holds {
            RowContent::List(_, items) => Some(rows.saturating_mul(items)),
            RowContent::One(_) | RowContent::Text | RowContent::Bytes(_) => None,
        };
        [Some(rows), items].into_iter().flatten()
    }
}

fn check_items(name: &str, items: u64) -> Result<(), FormatError> {
    let what = match items {
        0 => format!("column '{name}' has size 0; make it at least 1"),
        items if items > MOST_ITEMS => {
            format!(
                "column '{name}' has {items} items per row, and Arrow counts to {MOST_ITEMS}; lower its size"
            )
        }
        _ => return Ok(()),
    };
    Err(FormatError::Setting { format: NAME, what })
}

impl BufferContent {
    /// The bytes of these rows in the buffer; `None` on overflow.
    pub(super) fn range(self, rows: &Range<u64>) -> Option<Range<u64>> {
        let bytes = |size: u64| Some(rows.start.checked_mul(size)?..rows.end.checked_mul(size)?);
        match self {
            BufferContent::Empty => Some(0..0),
            BufferContent::Values(_, size) => bytes(size),
            BufferContent::Bits(items) => bytes(items).map(|bits| bits.start / 8..bits.end.div_ceil(8)),
            BufferContent::Ends => Some(rows.start.checked_mul(4)?..rows.end.checked_add(1)?.checked_mul(4)?),
            BufferContent::Text => bytes(TEXT),
        }
    }

    /// Bytes of the buffer for this many rows.
    pub(super) fn len(self, rows: u64) -> Option<u64> {
        Some(self.range(&(0..rows))?.end)
    }

    /// Writes bytes of the buffer from `offset` on; `base` is its position in the file's content.
    pub(super) fn fill(self, content: &Content, file: u64, base: u64, offset: u64, out: &mut [u8]) {
        match self {
            BufferContent::Empty => {}
            BufferContent::Values(element, _) => {
                array::fill_samples(element, content, file, base + offset, out);
            }
            BufferContent::Bits(_) => content.fill(file, base + offset, out),
            BufferContent::Ends => fill_entries(offset, out, |row| ((row * TEXT) as u32).to_le_bytes()),
            BufferContent::Text => {
                content.fill(file, base + offset, out);
                for (byte, at) in out.iter_mut().zip(offset..) {
                    *byte = match at % TEXT {
                        0 => b's',
                        1 => b'_',
                        _ => b'0' + *byte % 10,
                    };
                }
            }
        }
    }
}

/// Writes bytes of a list of entries, from `offset` on.
pub(super) fn fill_entries<const N: usize>(offset: u64, out: &mut [u8], entry: impl Fn(u64) -> [u8; N]) {
    let (mut index, mut skip) = (offset / N as u64, (offset % N as u64) as usize);
    let mut rest = out;
    while !rest.is_empty() {
        let bytes = entry(index);
        let (part, tail) = rest.split_at_mut(rest.len().min(N - skip));
        part.copy_from_slice(&bytes[skip..skip + part.len()]);
        (index, skip, rest) = (index + 1, 0, tail);
    }
}

/// The framed message of a file's schema.
pub(super) fn schema_message(fields: &[SchemaField]) -> Vec<u8> {
    let mut out = FlatWriter::new();
    let slots =
        [FieldValue::Short(VERSION), FieldValue::Byte(SCHEMA), FieldValue::Offset, FieldValue::Long(0)];
    let [_, _, header, _] = out.table(FlatWriter::ROOT, slots);
    write_schema(&mut out, header, fields);
    framed(out)
}

/// The framed message before a record batch's body of `body` bytes. Its length depends only on the fields.
pub(super) fn batch_message(fields: &[SchemaField], rows: u64, body: u64) -> Vec<u8> {
    let mut out = FlatWriter::new();
    let slots = [
        FieldValue::Short(VERSION),
        FieldValue::Byte(RECORD_BATCH),
        FieldValue::Offset,
        FieldValue::Long(body as i64),
    ];
    let [_, _, header, _] = out.table(FlatWriter::ROOT, slots);
    let [_, nodes, buffers] =
        out.table(header, [FieldValue::Long(rows as i64), FieldValue::Offset, FieldValue::Offset]);
    out.vector(nodes, fields.iter().flat_map(|field| field.nodes(rows)).count() as u32);
    for length in fields.iter().flat_map(|field| field.nodes(rows)) {
        out.long(length);
        // None of them null.
        out.long(0);
    }
    out.vector(buffers, fields.iter().flat_map(SchemaField::stores).count() as u32);
    let mut offset = 0;
    for store in fields.iter().flat_map(SchemaField::stores) {
        // They fit, because the caller has already added them up.
        let len = store.len(rows).unwrap_or_default();
        out.long(offset);
        out.long(len);
        offset += len.next_multiple_of(super::ALIGN);
    }
    framed(out)
}

/// The file's footer up to its list of `batches` blocks, which comes last.
pub(super) fn footer_start(fields: &[SchemaField], batches: u32) -> Vec<u8> {
    let mut out = FlatWriter::new();
    let slots = [FieldValue::Short(VERSION), FieldValue::Offset, FieldValue::Offset, FieldValue::Offset];
    let [_, schema, dictionaries, blocks] = out.table(FlatWriter::ROOT, slots);
    write_schema(&mut out, schema, fields);
    out.vector(dictionaries, 0);
    out.vector(blocks, batches);
    out.into_bytes()
}

/// A message with its prefix (marker and length) and padding that aligns the body (Columnar.rst, "Encapsulated
/// message format").
fn framed(message: FlatWriter) -> Vec<u8> {
    let message = message.into_bytes();
    let len = message.len().next_multiple_of(super::ALIGN as usize);
    let mut bytes = Vec::with_capacity(8 + len);
    bytes.extend(super::MARKER);
    bytes.extend((len as u32).to_le_bytes());
    bytes.extend(message);
    bytes.resize(8 + len, 0);
    bytes
}

fn write_schema(out: &mut FlatWriter, from: usize, fields: &[SchemaField]) {
    // Little-endian.
    let [_, list] = out.table(from, [FieldValue::Short(0), FieldValue::Offset]);
    let first = out.offsets(list, fields.len());
    for (index, field) in fields.iter().enumerate() {
        write_field(out, first + 4 * index, field);
    }
}

fn write_field(out: &mut FlatWriter, from: usize, field: &SchemaField) {
    let (name, int) = (field.name.as_ref(), |value: u64| [FieldValue::Int(value as i32)]);
    match field.holds {
        RowContent::One(element) => {
            write_element(out, from, name, element);
        }
        RowContent::List(element, items) => {
            let [kind, children] = write_named(out, from, name, FIXED_LIST, 1);
            out.table(kind, int(items));
            write_element(out, children, "item", element);
        }
        RowContent::Text => {
            let [kind, _] = write_named(out, from, name, UTF8, 0);
            out.table(kind, []);
        }
        RowContent::Bytes(bytes) => {
            let [kind, _] = write_named(out, from, name, FIXED_BINARY, 0);
            out.table(kind, int(bytes));
        }
    }
}

/// A field without its type: the positions of the type and of the first child.
fn write_named(out: &mut FlatWriter, from: usize, name: &str, kind: u8, children: usize) -> [usize; 2] {
    let slots = [
        FieldValue::Offset,
        FieldValue::Byte(0),
        FieldValue::Byte(kind),
        FieldValue::Offset,
        FieldValue::Absent,
        FieldValue::Offset,
    ];
    let [text, _, _, kind, _, list] = out.table(from, slots);
    out.text(text, name);
    let first = out.offsets(list, children);
    [kind, first]
}

fn write_element(out: &mut FlatWriter, from: usize, name: &str, element: Element) {
    let kind = match element {
        Element::Bool => BOOL,
        Element::Float16 | Element::Float32 | Element::Float64 => FLOAT,
        _ => INT,
    };
    let [place, _] = write_named(out, from, name, kind, 0);
    match kind {
        BOOL => {
            out.table(place, []);
        }
        // Precision: half, single, double.
        FLOAT => {
            out.table(place, [FieldValue::Short(element.size().trailing_zeros() as i16 - 1)]);
        }
        _ => {
            let signed = u8::from(element.name().starts_with('i'));
            out.table(place, [FieldValue::Int(8 * element.size() as i32), FieldValue::Byte(signed)]);
        }
    }
}
