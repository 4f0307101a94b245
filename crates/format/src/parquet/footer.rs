//! Footers of any make: what columns a file has and where their chunks are. Everything in them is doubted. It must
//! not decide which of them are read.

use super::layout::TRAILER;
use super::metadata::{ARROW_SCHEMA, MAGIC};
use super::thrift::{self, Malformed, Reader};
use super::types::{Logical, type_name};
use crate::{Extent, Look, Obstacle};

/// What pyarrow reads of a file first, in the hope that the footer is in it.
pub(super) const FIRST_READ: u64 = 64 << 10;
/// Stands at the end instead of the magic where the footer is encrypted.
const MAGIC_ENCRYPTED: &[u8] = b"PARE";
/// The most elements that pyarrow takes in a list (`thrift_container_size_limit`).
const MOST_ELEMENTS: u64 = 1_000_000;
/// Groups in groups in a schema.
const DEEPEST: usize = 100;
const REPEATED: i64 = 2;

/// A footer that was found, and how far it has been read.
pub(super) struct Footer<'a> {
    /// Offset of the footer in the file: no data is behind it.
    pub(super) at: u64,
    reader: Reader<'a>,
    /// The number of the last field.
    field: i64,
    columns: usize,
    /// Rows by the footer's own account.
    pub(super) rows: u64,
    pub(super) groups: u64,
}

/// A column that has values, in the order of the chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf<'p> {
    /// The names on the way to it, with points between them.
    pub(super) path: &'p [u8],
    /// Bytes of the first of them.
    pub(super) top: usize,
    pub(super) type_name: &'static str,
    /// How many lists it is in.
    pub(super) lists: u32,
}

/// A column's chunk in a row group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) extent: Extent,
    pub(super) codec: i64,
    pub(super) values: u64,
}

/// What else the footer says.
#[derive(Debug, Default)]
pub(super) struct Tail<'a> {
    pub(super) created_by: Option<&'a [u8]>,
    pub(super) arrow_schema: Option<&'a [u8]>,
}

/// A chunk as the footer has it.
#[derive(Default)]
struct Claims {
    codec: i64,
    values: u64,
    stored: Option<u64>,
    data_at: Option<u64>,
    dictionary_at: u64,
    elsewhere: bool,
    encrypted: bool,
}

/// The numbers of a footer in a file: what pyarrow reads of it after its first read, if anything.
pub(super) fn second_read(file_bytes: u64, footer_bytes: u64) -> Option<Extent> {
    let offset = file_bytes.checked_sub(TRAILER)?.checked_sub(footer_bytes)?;
    (footer_bytes + TRAILER > FIRST_READ).then_some(Extent { offset, len: footer_bytes })
}

/// What pyarrow reads of any file first.
pub(super) fn first_read(file_bytes: u64) -> Extent {
    let len = file_bytes.min(FIRST_READ);
    Extent { offset: file_bytes - len, len }
}

/// The footer's offset and bytes.
fn find<'a>(look: &Look<'a>) -> Result<(u64, &'a [u8]), Obstacle> {
    let least = MAGIC.len() as u64 + TRAILER;
    if look.len < least {
        let what = format!("it has {} bytes, and the shortest of its kind has {least}", look.len);
        return Err(look.damage(0, what).into());
    }
    let first = first_read(look.len);
    let tail = look.at(first.offset, first.len)?;
    let trailer_at = look.len - TRAILER;
    let Some((rest, &[a, b, c, d, ref magic @ ..])) = tail.split_last_chunk::<8>() else {
        return Err(look.damage(trailer_at, "it has no end").into());
    };
    if magic == MAGIC_ENCRYPTED {
        return Err(look.damage(trailer_at + 4, "its footer is encrypted; decrypt the file first").into());
    }
    if magic != MAGIC {
        let found = magic.escape_ascii();
        return Err(look.damage(trailer_at + 4, format!("it ends with '{found}' instead of 'PAR1'")).into());
    }
    let len = u64::from(u32::from_le_bytes([a, b, c, d]));
    let most = trailer_at - MAGIC.len() as u64;
    if len > most {
        let what = format!("its footer should have {len} bytes, and there is room for {most}");
        return Err(look.damage(trailer_at, what).into());
    }
    let at = trailer_at - len;
    let held = usize::try_from(len).ok().and_then(|len| rest.len().checked_sub(len));
    match held.and_then(|start| rest.get(start..)) {
        Some(footer) => Ok((at, footer)),
        None => Ok((at, look.at(at, len)?)),
    }
}

impl<'a> Footer<'a> {
    /// Finds the footer and reads it up to the row groups; `leaf` is called with each column that has values.
    pub(super) fn open(look: &Look<'a>, leaf: impl FnMut(Leaf<'_>)) -> Result<Footer<'a>, Obstacle> {
        let (at, bytes) = find(look)?;
        let mut footer = Footer { at, reader: Reader::new(bytes), field: 0, columns: 0, rows: 0, groups: 0 };
        footer.head(leaf).map_err(|malformed| footer.damage(look, malformed))?;
        Ok(footer)
    }

    pub(super) fn damage(&self, look: &Look<'_>, malformed: Malformed) -> Obstacle {
        look.damage(self.at.saturating_add(malformed.at as u64), malformed.what).into()
    }

    fn head(&mut self, mut leaf: impl FnMut(Leaf<'_>)) -> Result<(), Malformed> {
        let (mut rows, mut schema) = (None, false);
        while let Some(kind) = self.reader.field(&mut self.field)? {
            match (self.field, kind) {
                (2, thrift::LIST) => {
                    self.columns = read_schema(&mut self.reader, &mut leaf)?;
                    schema = true;
                }
                (3, thrift::I64) => rows = Some(self.reader.count()?),
                (4, thrift::LIST) => {
                    self.groups = bounded_list(&mut self.reader)?;
                    break;
                }
                _ => self.reader.skip(kind)?,
            }
        }
        match (rows, schema) {
            (Some(rows), true) if self.field == 4 => {
                self.rows = rows;
                Ok(())
            }
            _ => self.reader.malformed("a footer without a schema, a number of rows or row groups"),
        }
    }

    /// Reads the next row group: replaces `chunks` by its columns' and gives its rows.
    pub(super) fn group(&mut self, look: &Look<'_>, chunks: &mut Vec<Chunk>) -> Result<u64, Obstacle> {
        self.read_group(chunks).map_err(|malformed| self.damage(look, malformed))
    }

    fn read_group(&mut self, chunks: &mut Vec<Chunk>) -> Result<u64, Malformed> {
        chunks.clear();
        let (mut rows, end, columns) = (None, self.at, self.columns);
        self.reader.structure(|reader, id, kind| {
            match (id, kind) {
                (1, thrift::LIST) => {
                    let len = bounded_list(reader)?;
                    if len != columns as u64 {
                        return reader.malformed(format!("{len} columns where the schema has {columns}"));
                    }
                    for _ in 0..len {
                        chunks.push(read_chunk(reader, end)?);
                    }
                }
                (3, thrift::I64) => rows = Some(reader.count()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        match rows {
            Some(rows) if chunks.len() == columns => Ok(rows),
            _ => self.reader.malformed("a row group without columns or a number of rows"),
        }
    }

    /// What follows the row groups.
    pub(super) fn tail(&mut self) -> Result<Tail<'a>, Malformed> {
        let mut tail = Tail::default();
        while let Some(kind) = self.reader.field(&mut self.field)? {
            match (self.field, kind) {
                (5, thrift::LIST) => tail.arrow_schema = read_arrow_schema(&mut self.reader)?,
                (6, thrift::BINARY) => tail.created_by = Some(self.reader.binary()?),
                _ => self.reader.skip(kind)?,
            }
        }
        Ok(tail)
    }
}

/// KeyValue of parquet.thrift, of which one is looked for.
fn read_arrow_schema<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a [u8]>, Malformed> {
    let mut found = None;
    for _ in 0..bounded_list(reader)? {
        let (mut key, mut value) = (None, None);
        reader.structure(|reader, id, kind| {
            match (id, kind) {
                (1, thrift::BINARY) => key = Some(reader.binary()?),
                (2, thrift::BINARY) => value = Some(reader.binary()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        found = if key == Some(ARROW_SCHEMA) { value } else { found };
    }
    Ok(found)
}

fn bounded_list(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    match reader.list_of(thrift::STRUCT)? {
        len if len > MOST_ELEMENTS => reader.malformed(format!("a list of {len} elements")),
        len => Ok(len),
    }
}

/// ColumnChunk of parquet.thrift, whose bytes must lie before `end`.
fn read_chunk(reader: &mut Reader<'_>, end: u64) -> Result<Chunk, Malformed> {
    let mut claims = Claims::default();
    reader.structure(|reader, id, kind| {
        match (id, kind) {
            (1, thrift::BINARY) => claims.elsewhere = !reader.binary()?.is_empty(),
            (3, thrift::STRUCT) => read_chunk_metadata(reader, &mut claims)?,
            (8 | 9, _) => {
                claims.encrypted = true;
                return Ok(false);
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if claims.elsewhere {
        return reader.malformed("a column whose values are in another file");
    }
    let (Some(data_at), Some(len)) = (claims.data_at, claims.stored) else {
        return reader.malformed(match claims.encrypted {
            true => "a column that is encrypted; decrypt the file first",
            false => "a column without a place",
        });
    };
    // As pyarrow has it: a dictionary counts if it stands before the values; writers have put zeros there.
    let offset = match claims.dictionary_at {
        at if at > 0 && at < data_at => at,
        _ => data_at,
    };
    if offset.checked_add(len).is_none_or(|chunk_end| chunk_end > end) {
        return reader.malformed(format!("a column of {len} bytes from {offset} on, and data ends at {end}"));
    }
    Ok(Chunk { extent: Extent { offset, len }, codec: claims.codec, values: claims.values })
}

/// ColumnMetaData of parquet.thrift.
fn read_chunk_metadata(reader: &mut Reader<'_>, claims: &mut Claims) -> Result<(), Malformed> {
    reader.structure(|reader, id, kind| {
        match (id, kind) {
            (4, thrift::I32) => claims.codec = reader.integer()?,
            (5, thrift::I64) => claims.values = reader.count()?,
            (7, thrift::I64) => claims.stored = Some(reader.count()?),
            (9, thrift::I64) => claims.data_at = Some(reader.count()?),
            // Absent is sometimes written as a negative number.
            (11, thrift::I64) => claims.dictionary_at = u64::try_from(reader.integer()?).unwrap_or(0),
            _ => return Ok(false),
        }
        Ok(true)
    })
}

/// SchemaElement of parquet.thrift.
#[derive(Default)]
struct Node<'a> {
    name: Option<&'a [u8]>,
    physical: Option<i64>,
    repetition: i64,
    children: u64,
    converted: Option<i64>,
    logical: Option<Logical>,
}

fn read_node<'a>(reader: &mut Reader<'a>) -> Result<Node<'a>, Malformed> {
    let mut node = Node::default();
    reader.structure(|reader, id, kind| {
        match (id, kind) {
            (1, thrift::I32) => node.physical = Some(reader.integer()?),
            (3, thrift::I32) => node.repetition = reader.integer()?,
            (4, thrift::BINARY) => node.name = Some(reader.binary()?),
            (5, thrift::I32) => node.children = reader.count()?,
            (6, thrift::I32) => node.converted = Some(reader.integer()?),
            (10, thrift::STRUCT) => node.logical = Logical::read(reader)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(node)
}

/// A group of the schema that is not finished: children that are still to come, and how long the path to it is.
struct Open {
    children: u64,
    path: usize,
    lists: u32,
}

/// Reads the schema, which is a tree in the order of its elements, and gives the number of its leaves.
fn read_schema(reader: &mut Reader<'_>, leaf: &mut impl FnMut(Leaf<'_>)) -> Result<usize, Malformed> {
    let len = bounded_list(reader)?;
    let (mut open, mut path, mut leaves, mut top) = (Vec::<Open>::new(), Vec::new(), 0, 0);
    for index in 0..len {
        let node = read_node(reader)?;
        if index == 0 {
            open.push(Open { children: node.children, path: 0, lists: 0 });
            continue;
        }
        while open.last().is_some_and(|parent| parent.children == 0) {
            open.pop();
        }
        let depth = open.len();
        let Some(parent) = open.last_mut() else {
            return reader.malformed("a schema of more elements than it has places for");
        };
        parent.children -= 1;
        let lists = parent.lists + u32::from(node.repetition == REPEATED);
        path.truncate(parent.path);
        if depth > 1 {
            path.push(b'.');
        }
        path.extend_from_slice(node.name.unwrap_or_default());
        top = if depth == 1 { path.len() } else { top };
        match node.physical {
            Some(physical) => {
                let type_name = type_name(physical, node.converted, node.logical);
                leaf(Leaf { path: &path, top, type_name, lists });
                leaves += 1;
            }
            None if depth >= DEEPEST => {
                return reader.malformed(format!("a schema more than {DEEPEST} deep"));
            }
            None => open.push(Open { children: node.children, path: path.len(), lists }),
        }
    }
    match open.iter().all(|group| group.children == 0) {
        true => Ok(leaves),
        false => reader.malformed("a schema that lacks elements"),
    }
}
