//! The Arrow schema in the footer, for readers that know Arrow: without it, lists of fixed length would be read
//! as lists of any length. It is an Arrow IPC message (Message.fbs, Schema.fbs) in FlatBuffers, in base64. It
//! must not know anything of parquet.

use super::leaf::{Leaf, ValueEncoding};
use model::shape::Element;

// Enumerations of Message.fbs and Schema.fbs.
const METADATA_VERSION_5: u16 = 4;
const HEADER_SCHEMA: u8 = 1;
const TYPE_INT: u8 = 2;
const TYPE_FLOAT: u8 = 3;
const TYPE_BINARY: u8 = 4;
const TYPE_UTF8: u8 = 5;
const TYPE_BOOL: u8 = 6;
const TYPE_FIXED_LIST: u8 = 16;

/// The schema message, ready for the footer. Its length depends neither on the length of lists nor, for types of
/// one kind, on their width.
pub(super) fn encoded(leaves: &[Leaf]) -> Vec<u8> {
    let mut message = FlatBuilder::default();
    message.schema(leaves);
    let metadata = message.bytes;
    let mut all = Vec::with_capacity(8 + metadata.len());
    all.extend_from_slice(&[0xFF; 4]); // the message is not an old one, which began with its length
    all.extend_from_slice(&(metadata.len() as u32).to_le_bytes());
    all.extend_from_slice(&metadata);
    base64(&all)
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits =
            three.iter().fold(0, |bits, byte| bits << 8 | usize::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let letter = LETTERS[bits >> (18 - 6 * place) & 0x3F];
            out.push(if place <= three.len() { letter } else { b'=' });
        }
    }
    out
}

/// A field's slot in a table. Each takes four bytes, which wastes a few and aligns everything.
#[derive(Clone, Copy)]
enum TableSlot {
    Absent,
    Number(u32),
    /// An offset to something after the table.
    Place,
}

/// Sequentially written FlatBuffers: tables first, then what they point to.
#[derive(Default)]
struct FlatBuilder {
    bytes: Vec<u8>,
}

impl FlatBuilder {
    fn schema(&mut self, leaves: &[Leaf]) {
        self.word(0);
        let message = self.table(&[
            TableSlot::Number(u32::from(METADATA_VERSION_5)),
            TableSlot::Number(u32::from(HEADER_SCHEMA)),
            TableSlot::Place,
        ]);
        self.fix(0, message.start);
        let schema = self.table(&[TableSlot::Absent, TableSlot::Place]);
        self.fix(message.cell(2), schema.start);
        self.point_from(schema.cell(1));
        let fields = self.places(leaves.len());
        for (index, leaf) in leaves.iter().enumerate() {
            self.field(fields + 4 * index, &leaf.name, leaf.value, leaf.items);
        }
        // Messages are padded to eight.
        while !self.bytes.len().is_multiple_of(8) {
            self.bytes.push(0);
        }
    }

    fn field(&mut self, from: usize, name: &str, value: ValueEncoding, items: Option<u64>) {
        let kind = if items.is_some() { TYPE_FIXED_LIST } else { kind(value) };
        // Name, nullable, type's kind, type, dictionary, children.
        let cells = [
            TableSlot::Place,
            TableSlot::Absent,
            TableSlot::Number(u32::from(kind)),
            TableSlot::Place,
            TableSlot::Absent,
            TableSlot::Place,
        ];
        let field = self.table(&cells);
        self.fix(from, field.start);
        self.point_from(field.cell(0));
        self.text(name);
        let parameters = match items {
            // Longer lists have no page and have been refused.
            Some(items) => self.table(&[TableSlot::Number(items as u32)]),
            None => self.parameters(value),
        };
        self.fix(field.cell(3), parameters.start);
        self.point_from(field.cell(5));
        let children = self.places(usize::from(items.is_some()));
        if items.is_some() {
            self.field(children, "element", value, None);
        }
    }

    fn parameters(&mut self, value: ValueEncoding) -> WrittenTable {
        match value {
            ValueEncoding::Plain(Element::Float16) => self.table(&[TableSlot::Number(0)]),
            ValueEncoding::Plain(Element::Float32) => self.table(&[TableSlot::Number(1)]),
            ValueEncoding::Plain(Element::Float64) => self.table(&[TableSlot::Number(2)]),
            ValueEncoding::Plain(element) | ValueEncoding::Byte(element) | ValueEncoding::Wide(element) => {
                let signed = element.name().starts_with("int");
                self.table(&[
                    TableSlot::Number(8 * element.size() as u32),
                    TableSlot::Number(u32::from(signed)),
                ])
            }
            ValueEncoding::Bits | ValueEncoding::Text | ValueEncoding::Blob(_) => self.table(&[]),
        }
    }

    fn word(&mut self, word: u32) {
        self.bytes.extend_from_slice(&word.to_le_bytes());
    }

    /// Writes a table after its vtable. Offsets are still empty.
    fn table(&mut self, cells: &[TableSlot]) -> WrittenTable {
        let list = self.bytes.len();
        let mut offsets = Vec::with_capacity(cells.len());
        let mut end = 4_u16;
        for cell in cells {
            offsets.push(if matches!(cell, TableSlot::Absent) { 0 } else { end });
            end += if matches!(cell, TableSlot::Absent) { 0 } else { 4 };
        }
        for half in [4 + 2 * cells.len() as u16, end].iter().chain(&offsets) {
            self.bytes.extend_from_slice(&half.to_le_bytes());
        }
        self.align();
        let start = self.bytes.len();
        self.word((start - list) as u32);
        for cell in cells {
            match cell {
                TableSlot::Absent => {}
                TableSlot::Number(number) => self.word(*number),
                TableSlot::Place => self.word(0),
            }
        }
        WrittenTable { start, offsets }
    }

    /// Writes a vector of offsets, still empty; returns the position of the first.
    fn places(&mut self, len: usize) -> usize {
        self.word(len as u32);
        let first = self.bytes.len();
        self.bytes.resize(first + 4 * len, 0);
        first
    }

    fn text(&mut self, text: &str) {
        self.word(text.len() as u32);
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Makes the offset at `at` point to what is written next.
    fn point_from(&mut self, at: usize) {
        self.fix(at, self.bytes.len());
    }

    fn fix(&mut self, at: usize, target: usize) {
        if let Some(place) = self.bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&((target - at) as u32).to_le_bytes());
        }
    }
}

/// A written table.
struct WrittenTable {
    start: usize,
    offsets: Vec<u16>,
}

impl WrittenTable {
    fn cell(&self, index: usize) -> usize {
        self.start + usize::from(self.offsets[index])
    }
}

fn kind(value: ValueEncoding) -> u8 {
    match value {
        ValueEncoding::Plain(Element::Float16 | Element::Float32 | Element::Float64) => TYPE_FLOAT,
        ValueEncoding::Plain(_) | ValueEncoding::Byte(_) | ValueEncoding::Wide(_) => TYPE_INT,
        ValueEncoding::Bits => TYPE_BOOL,
        ValueEncoding::Text => TYPE_UTF8,
        ValueEncoding::Blob(_) => TYPE_BINARY,
    }
}

/// The schema of an existing file.
pub(super) struct ArrowSchema {
    message: Vec<u8>,
}

impl ArrowSchema {
    /// Decodes a schema from base64.
    pub(super) fn of(encoded: &[u8]) -> Option<ArrowSchema> {
        Some(ArrowSchema { message: unbase64(encoded)? })
    }

    /// The length of the lists in this column, if the schema has a fixed one.
    pub(super) fn fixed_list(&self, column: usize) -> Option<u64> {
        let flat = FlatView(self.message.get(8..)?);
        let schema = flat.follow(flat.field(flat.follow(0)?, 2)?)?;
        let fields = flat.follow(flat.field(schema, 1)?)?;
        let count = u32::from_le_bytes(flat.bytes(fields)?);
        if column as u64 >= u64::from(count) {
            return None;
        }
        let field = flat.follow(fields.checked_add(column.checked_mul(4)?)?.checked_add(4)?)?;
        if flat.bytes(flat.field(field, 2)?)? != [TYPE_FIXED_LIST] {
            return None;
        }
        let list = flat.follow(flat.field(field, 3)?)?;
        Some(u64::from(u32::from_le_bytes(flat.bytes(flat.field(list, 0)?)?)))
    }
}

fn unbase64(letters: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(letters.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0);
    for letter in letters.iter().take_while(|letter| **letter != b'=') {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, held) = (bits << 6 | u32::from(value), held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    Some(bytes)
}

/// FlatBuffers of an existing file, which are not trusted.
struct FlatView<'a>(&'a [u8]);

impl FlatView<'_> {
    fn bytes<const LEN: usize>(&self, at: usize) -> Option<[u8; LEN]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    /// The target of the offset at `at`.
    fn follow(&self, at: usize) -> Option<usize> {
        at.checked_add(usize::try_from(u32::from_le_bytes(self.bytes(at)?)).ok()?)
    }

    /// The position of a table's field, if the table has it.
    fn field(&self, table: usize, number: usize) -> Option<usize> {
        let back = i64::from(i32::from_le_bytes(self.bytes(table)?));
        let list = usize::try_from(i64::try_from(table).ok()?.checked_sub(back)?).ok()?;
        let list_bytes = usize::from(u16::from_le_bytes(self.bytes(list)?));
        let entry = 4 + 2 * number;
        let offset = match entry < list_bytes {
            true => usize::from(u16::from_le_bytes(self.bytes(list.checked_add(entry)?)?)),
            false => 0,
        };
        (offset > 0).then(|| table.checked_add(offset))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let pairs = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (plain, coded) in pairs {
            assert_eq!(base64(plain.as_bytes()), coded.as_bytes());
        }
        assert_eq!(base64(&[0xFB, 0xFF]), b"+/8=");
    }

    fn fixed_list(encoded: &[u8]) -> Option<u64> {
        ArrowSchema::of(encoded)?.fixed_list(0)
    }

    #[test]
    fn the_length_does_not_depend_on_the_length_of_lists() {
        for element in Element::ALL {
            let one = encoded(&[Leaf::of_samples(element, 1)]);
            let many = encoded(&[Leaf::of_samples(element, 2_000_000_000)]);
            assert_eq!(one.len(), many.len(), "{element:?}");
            assert_eq!((fixed_list(&one), fixed_list(&many)), (Some(1), Some(2_000_000_000)));
        }
    }

    #[test]
    fn a_schema_of_anything_else_has_no_fixed_list() {
        let scalar = Leaf { items: None, ..Leaf::of_samples(Element::Int8, 1) };
        let good = encoded(&[Leaf::of_samples(Element::Int8, 9)]);
        for schema in [encoded(&[scalar]), encoded(&[]), Vec::new(), b"A".repeat(400), b"////".repeat(99)] {
            assert_eq!(fixed_list(&schema), None);
        }
        for at in 0..good.len() {
            for letter in *b"AZaz09+/=?" {
                let mut bad = good.clone();
                bad[at] = letter;
                let _ = fixed_list(&bad);
                let _ = fixed_list(&good[..at]);
            }
        }
    }
}
