//! Parses the footer of any parquet file: its columns and where their chunks are. Nothing in it is trusted. It
//! must not decide which columns are read.

use super::layout::TRAILER;
use super::metadata::{ARROW_SCHEMA, MAGIC};
use super::thrift::{self, ThriftError, ThriftReader};
use super::types::{Logical, type_name};
use crate::{Extent, Look, Obstacle};

/// pyarrow's first read of a file, which usually includes the footer.
pub(super) const FIRST_READ: u64 = 64 << 10;
/// Replaces the magic at the end if the footer is encrypted.
const MAGIC_ENCRYPTED: &[u8] = b"PARE";
/// The maximum number of elements that pyarrow accepts in a list (`thrift_container_size_limit`).
const MOST_ELEMENTS: u64 = 1_000_000;
/// Maximum nesting of groups in a schema.
const DEEPEST: usize = 100;
const REPEATED: i64 = 2;

/// A footer, and how far it has been parsed.
pub(super) struct ParquetFooter<'a> {
    /// Offset of the footer in the file; data precedes it.
    pub(super) at: u64,
    reader: ThriftReader<'a>,
    /// The number of the last field.
    field: i64,
    columns: usize,
    /// The footer's number of rows.
    pub(super) rows: u64,
    pub(super) groups: u64,
}

/// A column with values, in the order of the chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct SchemaLeaf<'p> {
    /// Its path, with points between the names.
    pub(super) path: &'p [u8],
    /// Bytes of the first of them.
    pub(super) top: usize,
    pub(super) type_name: &'static str,
    /// The number of lists around it.
    pub(super) lists: u32,
}

/// A column's chunk in a row group.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnChunk {
    pub(super) extent: Extent,
    pub(super) codec: i64,
    pub(super) values: u64,
}

/// The rest of the footer.
#[derive(Debug, Default)]
pub(super) struct FooterTail<'a> {
    pub(super) created_by: Option<&'a [u8]>,
    pub(super) arrow_schema: Option<&'a [u8]>,
}

/// A chunk according to the footer.
#[derive(Default)]
struct ChunkClaims {
    codec: i64,
    values: u64,
    stored: Option<u64>,
    data_at: Option<u64>,
    dictionary_at: u64,
    elsewhere: bool,
    encrypted: bool,
}

/// Where a footer is: what pyarrow reads of it after its first read, if anything.
pub(super) fn second_read(file_bytes: u64, footer_bytes: u64) -> Option<Extent> {
    let offset = file_bytes.checked_sub(TRAILER)?.checked_sub(footer_bytes)?;
    (footer_bytes + TRAILER > FIRST_READ).then_some(Extent { offset, len: footer_bytes })
}

/// pyarrow's first read of any file.
pub(super) fn first_read(file_bytes: u64) -> Extent {
    let len = file_bytes.min(FIRST_READ);
    Extent { offset: file_bytes - len, len }
}

/// The footer's offset and bytes.
fn find<'a>(look: &Look<'a>) -> Result<(u64, &'a [u8]), Obstacle> {
    let least = MAGIC.len() as u64 + TRAILER;
    if look.len < least {
        let what = format!("it has {} bytes; the shortest valid file has {least}", look.len);
        return Err(look.damage(0, what).into());
    }
    let first = first_read(look.len);
    let tail = look.at(first.offset, first.len)?;
    let trailer_at = look.len - TRAILER;
    let Some((rest, &[a, b, c, d, ref magic @ ..])) = tail.split_last_chunk::<8>() else {
        return Err(look.damage(trailer_at, "the trailer is missing").into());
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
        let what = format!("the footer claims {len} bytes, but there is space for {most}");
        return Err(look.damage(trailer_at, what).into());
    }
    let at = trailer_at - len;
    let held = usize::try_from(len).ok().and_then(|len| rest.len().checked_sub(len));
    match held.and_then(|start| rest.get(start..)) {
        Some(footer) => Ok((at, footer)),
        None => Ok((at, look.at(at, len)?)),
    }
}

impl<'a> ParquetFooter<'a> {
    /// Locates the footer and parses it up to the row groups; calls `leaf` with each column that has values.
    pub(super) fn open(
        look: &Look<'a>,
        leaf: impl FnMut(SchemaLeaf<'_>),
    ) -> Result<ParquetFooter<'a>, Obstacle> {
        let (at, bytes) = find(look)?;
        let mut footer =
            ParquetFooter { at, reader: ThriftReader::new(bytes), field: 0, columns: 0, rows: 0, groups: 0 };
        footer.head(leaf).map_err(|malformed| footer.damage(look, malformed))?;
        Ok(footer)
    }

    pub(super) fn damage(&self, look: &Look<'_>, malformed: ThriftError) -> Obstacle {
        look.damage(self.at.saturating_add(malformed.at as u64), malformed.what).into()
    }

    fn head(&mut self, mut leaf: impl FnMut(SchemaLeaf<'_>)) -> Result<(), ThriftError> {
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

    /// Parses the next row group: replaces `chunks` by its columns' and returns its number of rows.
    pub(super) fn group(&mut self, look: &Look<'_>, chunks: &mut Vec<ColumnChunk>) -> Result<u64, Obstacle> {
        self.read_group(chunks).map_err(|malformed| self.damage(look, malformed))
    }

    fn read_group(&mut self, chunks: &mut Vec<ColumnChunk>) -> Result<u64, ThriftError> {
        chunks.clear();
        let (mut rows, end, columns) = (None, self.at, self.columns);
        self.reader.structure(|reader, id, kind| {
            match (id, kind) {
                (1, thrift::LIST) => {
                    let len = bounded_list(reader)?;
                    if len != columns as u64 {
                        return reader.malformed(format!("{len} columns instead of the schema's {columns}"));
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
    pub(super) fn tail(&mut self) -> Result<FooterTail<'a>, ThriftError> {
        let mut tail = FooterTail::default();
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

/// KeyValue of parquet.thrift; only one key is used.
fn read_arrow_schema<'a>(reader: &mut ThriftReader<'a>) -> Result<Option<&'a [u8]>, ThriftError> {
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

fn bounded_list(reader: &mut ThriftReader<'_>) -> Result<u64, ThriftError> {
    match reader.list_of(thrift::STRUCT)? {
        len if len > MOST_ELEMENTS => reader.malformed(format!("a list of {len} elements")),
        len => Ok(len),
    }
}

/// ColumnChunk of parquet.thrift, whose bytes must precede `end`.
fn read_chunk(reader: &mut ThriftReader<'_>, end: u64) -> Result<ColumnChunk, ThriftError> {
    let mut claims = ChunkClaims::default();
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
    // As in pyarrow: a dictionary counts if it precedes the values; some writers set its offset to 0.
    let offset = match claims.dictionary_at {
        at if at > 0 && at < data_at => at,
        _ => data_at,
    };
    if offset.checked_add(len).is_none_or(|chunk_end| chunk_end > end) {
        return reader
            .malformed(format!("a column of {len} bytes at offset {offset}, but data ends at {end}"));
    }
    Ok(ColumnChunk { extent: Extent { offset, len }, codec: claims.codec, values: claims.values })
}

/// ColumnMetaData of parquet.thrift.
fn read_chunk_metadata(reader: &mut ThriftReader<'_>, claims: &mut ChunkClaims) -> Result<(), ThriftError> {
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
struct SchemaElement<'a> {
    name: Option<&'a [u8]>,
    physical: Option<i64>,
    repetition: i64,
    children: u64,
    converted: Option<i64>,
    logical: Option<Logical>,
}

fn read_node<'a>(reader: &mut ThriftReader<'a>) -> Result<SchemaElement<'a>, ThriftError> {
    let mut node = SchemaElement::default();
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

/// An unfinished group of the schema: the number of remaining children, and the length of its path.
struct OpenGroup {
    children: u64,
    path: usize,
    lists: u32,
}

/// Parses the schema, a tree in the order of its elements, and returns the number of its leaves.
fn read_schema(
    reader: &mut ThriftReader<'_>,
    leaf: &mut impl FnMut(SchemaLeaf<'_>),
) -> Result<usize, ThriftError> {
    let len = bounded_list(reader)?;
    let (mut open, mut path, mut leaves, mut top) = (Vec::<OpenGroup>::new(), Vec::new(), 0, 0);
    for index in 0..len {
        let node = read_node(reader)?;
        if index == 0 {
            open.push(OpenGroup { children: node.children, path: 0, lists: 0 });
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
                leaf(SchemaLeaf { path: &path, top, type_name, lists });
                leaves += 1;
            }
            None if depth >= DEEPEST => {
                return reader.malformed(format!("a schema nested more than {DEEPEST} deep"));
            }
            None => open.push(OpenGroup { children: node.children, path: path.len(), lists }),
        }
    }
    match open.iter().all(|group| group.children == 0) {
        true => Ok(leaves),
        false => reader.malformed("a schema that lacks elements"),
    }
}
