//! Parses the metadata of any Arrow file: the footer with its columns and record batches, and the buffers of a
//! record batch. Every number in the file is checked before it is used. It must not know which rows are wanted.

use super::flat::{FlatBufferError, FlatTable};
use super::schema::{BOOL, FIXED_BINARY, FIXED_LIST, FLOAT, INT, RECORD_BATCH, UTF8};
use super::{Arrow, BLOCK, MAGIC, MARKER, START, TAIL};
use crate::{Extent, Look, Obstacle};
use model::shape::Element;

/// Limits on the nesting and the number of columns: more than any schema for training has.
const MOST_DEPTH: usize = 16;
const MOST_COLUMNS: usize = 1 << 16;

/// A column of a file.
#[derive(Debug)]
pub(super) struct ArrowColumn {
    pub(super) name: String,
    pub(super) layout: BufferLayout,
    /// NumPy's name of the elements, for columns of plain numbers.
    pub(super) element: Option<&'static str>,
    pub(super) children: Vec<ArrowColumn>,
}

/// The buffers of a column, in addition to those of its children (Columnar.rst, "Buffer Listing for Each
/// Layout").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferLayout {
    /// None: null and run-end encoded.
    Nothing,
    /// Validity, and this many bits per row.
    Fixed(u64),
    /// Validity, ends of this many bytes each, and the bytes.
    Text(u64),
    /// Validity and ends; the child has the items.
    List(u64),
    /// Validity; the child has this many items per row.
    FixedList(u64),
    /// Validity; the children have the same rows.
    Struct,
    /// Validity, views, and as many more as the record batch lists.
    View,
    /// This many buffers, which are read whole, and children.
    Whole(usize),
}

/// The position of a message and its body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) offset: u64,
    pub(super) message: u64,
    pub(super) body: u64,
}

impl Block {
    pub(super) fn whole(self) -> Extent {
        Extent { offset: self.offset, len: self.message + self.body }
    }
}

pub(super) struct ArrowFooter {
    pub(super) columns: Vec<ArrowColumn>,
    pub(super) dictionaries: Vec<Block>,
    pub(super) batches: Vec<Block>,
}

/// A record batch's own metadata.
pub(super) struct BatchMetadata {
    pub(super) rows: u64,
    /// Positions of the buffers in the file.
    pub(super) buffers: Vec<Extent>,
    /// Further buffers of each column of views.
    pub(super) further: Vec<u64>,
    pub(super) compressed: bool,
}

/// Converts an error in metadata at `base` to damage of the file.
fn broken(look: &Look<'_>, base: u64) -> impl Fn(FlatBufferError) -> Obstacle {
    move |broken| look.damage(base.saturating_add(broken.at as u64), broken.what).into()
}

fn words(entry: &[u8]) -> impl Iterator<Item = u64> + use<'_> {
    entry.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

impl ArrowFooter {
    /// Reads the tail and the footer, like `pyarrow.ipc.open_file`.
    pub(super) fn of(look: &Look<'_>) -> Result<ArrowFooter, Obstacle> {
        let least = START.len() as u64 + TAIL;
        if look.len < least {
            return Err(look
                .damage(0, format!("{} bytes are too few, the minimum is {least}", look.len))
                .into());
        }
        let tail_at = look.len - TAIL;
        let tail = look.at(tail_at, TAIL)?;
        let (len, magic) = tail.split_at(4);
        if magic != MAGIC {
            return Err(look.damage(look.len - 6, "it does not end in ARROW1").into());
        }
        let len = len.first_chunk().map_or(0, |len| u32::from_le_bytes(*len));
        let Some(at) = tail_at.checked_sub(u64::from(len)).filter(|at| *at >= START.len() as u64) else {
            return Err(look.damage(tail_at, format!("a footer of {len} bytes does not fit")).into());
        };
        let bytes = look.at(at, u64::from(len))?;
        let problem = broken(look, at);
        let root = FlatTable::root(bytes).map_err(&problem)?;
        let (columns, dictionaries, batches) = parse_footer(&root).map_err(&problem)?;
        let blocks = |entries: &[u8]| -> Result<Vec<Block>, Obstacle> {
            entries.chunks_exact(BLOCK as usize).map(|entry| block(look, at, entry)).collect()
        };
        Ok(ArrowFooter { columns, dictionaries: blocks(dictionaries)?, batches: blocks(batches)? })
    }

    /// Which columns are wanted.
    pub(super) fn wanted(&self, arrow: &Arrow, look: &Look<'_>) -> Result<Vec<bool>, Obstacle> {
        for field in arrow.fields.iter().filter(|field| field.read) {
            if !self.columns.iter().any(|column| column.name == field.name) {
                let what = format!("it has no column '{}'", field.name);
                return Err(look.damage(look.len - TAIL, what).into());
            }
        }
        let wanted = |column: &ArrowColumn| {
            arrow.fields.is_empty()
                || arrow.fields.iter().any(|field| field.read && field.name == column.name.as_str())
        };
        Ok(self.columns.iter().map(wanted).collect())
    }
}

/// The columns, and the bytes of the lists of dictionaries and record batches.
type FooterParts<'a> = (Vec<ArrowColumn>, &'a [u8], &'a [u8]);

fn parse_footer<'a>(root: &FlatTable<'a>) -> Result<FooterParts<'a>, FlatBufferError> {
    let no_schema = FlatBufferError { at: root.at(), what: "the footer has no schema" };
    let schema = root.table(1)?.ok_or(no_schema)?;
    if schema.short(0)? != 0 {
        return Err(FlatBufferError {
            at: schema.at(),
            what: "its numbers are big-endian, which is not supported",
        });
    }
    let mut left = MOST_COLUMNS;
    let columns = parse_columns(&schema, 1, 0, &mut left)?;
    Ok((columns, root.entries(2, BLOCK as usize)?, root.entries(3, BLOCK as usize)?))
}

fn parse_columns(
    table: &FlatTable<'_>,
    slot: usize,
    depth: usize,
    left: &mut usize,
) -> Result<Vec<ArrowColumn>, FlatBufferError> {
    let mut columns = Vec::new();
    for field in table.tables(slot)? {
        let field = field?;
        if depth == MOST_DEPTH {
            return Err(FlatBufferError { at: field.at(), what: "columns are nested too deep" });
        }
        *left = left
            .checked_sub(1)
            .ok_or(FlatBufferError { at: field.at(), what: "there are too many columns" })?;
        let name = field.text(0)?.to_owned();
        let (layout, element) = parse_type(&field)?;
        // A dictionary's values are in a batch of their own, and the children belong to them.
        let children = match field.table(4)? {
            Some(_) => Vec::new(),
            None => parse_columns(&field, 5, depth + 1, left)?,
        };
        let children_fit = match layout {
            BufferLayout::List(_) | BufferLayout::FixedList(_) => children.len() == 1,
            _ => true,
        };
        if !children_fit {
            return Err(FlatBufferError { at: field.at(), what: "a list does not have one kind of items" });
        }
        columns.push(ArrowColumn { name, layout, element, children });
    }
    Ok(columns)
}

/// A field's layout and, for plain numbers, NumPy's name of them (Schema.fbs, Type).
fn parse_type(field: &FlatTable<'_>) -> Result<(BufferLayout, Option<&'static str>), FlatBufferError> {
    if let Some(dictionary) = field.table(4)? {
        // Indices are int32 by default.
        let index = dictionary.table(1)?.map_or(Ok(32), |index| index.int(0))?;
        return Ok((BufferLayout::Fixed(bits(field, index)?), None));
    }
    let number = field.byte(2)?;
    let no_type = FlatBufferError { at: field.at(), what: "a column has no type" };
    let kind = field.table(3)?.ok_or(no_type)?;
    Ok(match number {
        INT => {
            let (width, signed) = (kind.int(0)?, kind.byte(1)? != 0);
            (BufferLayout::Fixed(bits(field, width)?), integer(width, signed))
        }
        FLOAT => match kind.short(0)? {
            0 => (BufferLayout::Fixed(16), Some("float16")),
            1 => (BufferLayout::Fixed(32), Some("float32")),
            2 => (BufferLayout::Fixed(64), Some("float64")),
            _ => return Err(FlatBufferError { at: kind.at(), what: "a float has no known precision" }),
        },
        BOOL => (BufferLayout::Fixed(1), Some("bool")),
        FIXED_LIST => (BufferLayout::FixedList(bits(field, kind.int(0)?)?), None),
        FIXED_BINARY => (BufferLayout::Fixed(8 * bits(field, kind.int(0)?)?), None),
        _ => (other_type(field, &kind, number)?, None),
    })
}

/// The types that feedline does not write.
fn other_type(
    field: &FlatTable<'_>,
    kind: &FlatTable<'_>,
    number: u8,
) -> Result<BufferLayout, FlatBufferError> {
    Ok(match number {
        // Null, run-end encoded.
        1 | 22 => BufferLayout::Nothing,
        // Binary and text, and their large forms.
        4 | UTF8 => BufferLayout::Text(4),
        19 | 20 => BufferLayout::Text(8),
        // A decimal's width is its third field, 128 by default.
        7 => BufferLayout::Fixed(match bits(field, kind.int(2)?)? {
            0 => 128,
            width => width,
        }),
        // Days are 32 bits, milliseconds (the default, written as 1) are 64; as are timestamps and durations.
        8 => BufferLayout::Fixed(if kind.has(0)? && kind.short(0)? == 0 { 32 } else { 64 }),
        // Times have a bit width, 32 by default.
        9 => BufferLayout::Fixed(match bits(field, kind.int(1)?)? {
            0 => 32,
            width => width,
        }),
        10 | 18 => BufferLayout::Fixed(64),
        // Intervals: months, days and time, all three with nanoseconds.
        11 => BufferLayout::Fixed(match kind.short(0)? {
            0 => 32,
            1 => 64,
            _ => 128,
        }),
        12 | 17 => BufferLayout::List(4),
        21 => BufferLayout::List(8),
        13 => BufferLayout::Struct,
        // Unions: types, and offsets where they are dense.
        14 => BufferLayout::Whole(if kind.short(0)? == 1 { 2 } else { 1 }),
        23 | 24 => BufferLayout::View,
        // Views of lists: validity, offsets, sizes.
        25 | 26 => BufferLayout::Whole(3),
        _ => return Err(FlatBufferError { at: field.at(), what: "a column has a type that is not known" }),
    })
}

fn bits(field: &FlatTable<'_>, number: i32) -> Result<u64, FlatBufferError> {
    u64::try_from(number)
        .map_err(|_| FlatBufferError { at: field.at(), what: "a column's width is negative" })
}

fn integer(width: i32, signed: bool) -> Option<&'static str> {
    Element::integer(u64::try_from(width).ok()?, signed).map(Element::name)
}

/// An entry of the footer at `footer`: what it points to must precede the footer.
fn block(look: &Look<'_>, footer: u64, entry: &[u8]) -> Result<Block, Obstacle> {
    let mut numbers = words(entry);
    let mut next = || numbers.next().unwrap_or_default();
    // The message's length is a 32-bit number and padding.
    let block = Block { offset: next(), message: next() & 0xFFFF_FFFF, body: next() };
    let end = block.offset.checked_add(block.message).and_then(|end| end.checked_add(block.body));
    if end.is_none_or(|end| end > footer) || block.message < 8 {
        let what = format!(
            "the footer lists a message of {} and {} bytes at byte {}, which does not fit before it",
            block.message, block.body, block.offset
        );
        return Err(look.damage(footer, what).into());
    }
    Ok(block)
}

impl BatchMetadata {
    /// Reads the message of a record batch.
    pub(super) fn of(look: &Look<'_>, block: &Block) -> Result<BatchMetadata, Obstacle> {
        let bytes = look.at(block.offset, block.message)?;
        // Files from before Arrow 0.15 have no marker.
        let start = if bytes.starts_with(&MARKER) { 8 } else { 4 };
        let len = bytes.get(start - 4..start).and_then(|len| len.first_chunk());
        let len = len.map_or(0, |len| u32::from_le_bytes(*len)) as usize;
        let Some(message) = bytes.get(start..).and_then(|rest| rest.get(..len)) else {
            let what = format!("a message of {len} bytes does not fit into {}", block.message);
            return Err(look.damage(block.offset, what).into());
        };
        let base = block.offset + start as u64;
        let batch = BatchMetadata::parsed(message, block).map_err(broken(look, base))?;
        let end = block.offset + block.message + block.body;
        let outside = |buffer: &&Extent| buffer.end() > end || buffer.end() == u64::MAX;
        if let Some(buffer) = batch.buffers.iter().find(outside) {
            let what = format!(
                "a buffer of {} bytes at byte {} is beyond its record batch, which ends at {end}",
                buffer.len, buffer.offset
            );
            return Err(look.damage(base, what).into());
        }
        Ok(batch)
    }

    fn parsed(message: &[u8], block: &Block) -> Result<BatchMetadata, FlatBufferError> {
        let root = FlatTable::root(message)?;
        let no_batch = FlatBufferError { at: root.at(), what: "a message is not that of a record batch" };
        if root.byte(1)? != RECORD_BATCH {
            return Err(no_batch);
        }
        let header = root.table(2)?.ok_or(no_batch)?;
        let body = block.offset + block.message;
        let place = |entry: &[u8]| {
            let mut numbers = words(entry);
            let mut next = || numbers.next().unwrap_or(u64::MAX);
            Extent { offset: body.saturating_add(next()), len: next() }
        };
        Ok(BatchMetadata {
            rows: header.count(0)?,
            buffers: header.entries(2, 16)?.chunks_exact(16).map(place).collect(),
            compressed: header.table(3)?.is_some(),
            further: words(header.entries(4, 8)?).collect(),
        })
    }
}
