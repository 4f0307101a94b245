//! arrow: Arrow's IPC file format, as `pyarrow.ipc` writes and reads it: uncompressed record batches of columns,
//! and a footer that lists them. This module computes the layout of files that feedline writes. `schema` defines
//! the columns, `footer` and `foreign` read existing files, and `flat` encodes the metadata.

mod flat;
mod footer;
mod foreign;
mod schema;

use std::cell::OnceCell;
use std::ops::Range;

use model::order::Unit;
use model::shape::{Element, FileShape};
use model::spec::Access;

use crate::pieces::Pieces;
use crate::{
    Content, EncodeError, EncodedSize, Extent, FileFacts, Format, FormatError, FormatKind, FormatOptions,
    Look, Obstacle, SourceFile, error, within,
};
use schema::SchemaField;

const NAME: &str = "arrow";

pub(crate) const KIND: FormatKind = FormatKind {
    name: NAME,
    layout: "Arrow IPC file with the same columns as `parquet`, one record batch per row group",
    compressions: &[],
    existing: "any IPC file, also compressed",
    other_suffixes: &[".feather"],
    build: |options| Ok(Box::new(Arrow::new(options)?)),
};

/// How a file starts, padded, and ends (Columnar.rst, "IPC File Format").
const MAGIC: &[u8; 6] = b"ARROW1";
const START: &[u8; 8] = b"ARROW1\0\0";
/// The start of a message; with a length of 0, the end of messages.
const MARKER: [u8; 4] = [0xFF; 4];
/// Bodies and their buffers start on multiples of this.
const ALIGN: u64 = 8;
/// The end of messages.
const END: u64 = 8;
/// The footer's length and the magic after it: what `pyarrow.ipc.open_file` reads first.
const TAIL: u64 = 10;
/// An entry of the footer's list of record batches: offset, length of the message, length of the body.
const BLOCK: u64 = 24;
/// Lengths in the footer and offsets of strings are signed 32-bit numbers.
const MOST_INT: u64 = i32::MAX as u64;

#[derive(Debug)]
struct Arrow {
    access: Access,
    /// Rows of a record batch.
    group: u64,
    /// Empty: one column of the samples.
    fields: Vec<SchemaField>,
    /// Lengths of the messages. They do not depend on the numbers in them, so positions can be computed in
    /// advance. The schema's and the footer's length by element type, for files without columns.
    batch_message: u64,
    schema_messages: [u64; Element::ALL.len()],
    footers: [u64; Element::ALL.len()],
}

impl Arrow {
    fn new(options: &FormatOptions) -> Result<Arrow, FormatError> {
        let columns = &options.columns;
        let refused = |what: &str| Err(FormatError::Setting { format: NAME, what: what.to_owned() });
        if columns.group_rows == 0 {
            return refused("dataset.parquet.row_group_size is 0; make it at least 1");
        }
        if !columns.columns.is_empty() && columns.columns.iter().all(|column| !column.read) {
            return refused("no column of parquet.columns is read; leave out 'read: false' for at least one");
        }
        let fields: Vec<SchemaField> =
            columns.columns.iter().map(SchemaField::of_column).collect::<Result<_, _>>()?;
        let mut arrow = Arrow {
            access: options.access,
            group: columns.group_rows,
            fields,
            batch_message: 0,
            schema_messages: [0; Element::ALL.len()],
            footers: [0; Element::ALL.len()],
        };
        for element in Element::ALL {
            let own = [SchemaField::of_samples(&FileShape { dims: &[1], element, samples: 1 })?];
            let fields = if arrow.fields.is_empty() { &own[..] } else { &arrow.fields };
            arrow.batch_message = schema::batch_message(fields, 1, 0).len() as u64;
            arrow.schema_messages[element as usize] = schema::schema_message(fields).len() as u64;
            arrow.footers[element as usize] = schema::footer_start(fields, 0).len() as u64;
        }
        Ok(arrow)
    }

    /// Calls `then` with the layout of a file of this shape.
    fn with_layout<T, E: From<FormatError>>(
        &self,
        shape: &FileShape<'_>,
        then: impl FnOnce(&Layout<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        if !self.fields.is_empty() {
            return then(&Layout::of(self, shape, &self.fields)?);
        }
        error::payload(NAME, shape)?;
        let field = [SchemaField::of_samples(shape)?];
        then(&Layout::of(self, shape, &field)?)
    }
}

/// The layout of a file.
struct Layout<'a> {
    fields: &'a [SchemaField],
    rows: u64,
    /// Rows of every record batch but the last.
    group: u64,
    batches: u64,
    /// Offset of the first record batch.
    first: u64,
    /// Lengths of a record batch's message, and of the bodies after it.
    message: u64,
    body: u64,
    last_body: u64,
    footer: Extent,
    file_bytes: u64,
}

/// One record batch of a file.
struct RecordBatch {
    offset: u64,
    /// Numbers of its rows within the file.
    rows: Range<u64>,
    body: u64,
}

impl<'a> Layout<'a> {
    fn of(
        arrow: &Arrow,
        shape: &FileShape<'_>,
        fields: &'a [SchemaField],
    ) -> Result<Layout<'a>, FormatError> {
        let rows = shape.samples;
        if rows == 0 {
            return Err(FormatError::Empty { format: NAME, dims: shape.dims.to_vec(), samples: rows });
        }
        let fits = |bytes| error::whole(NAME, shape, bytes);
        let group = arrow.group.min(rows);
        let batches = rows.div_ceil(group);
        let body = fits(body_bytes(fields, group))?;
        let last_body = fits(body_bytes(fields, rows - (batches - 1) * group))?;
        let texts =
            fields.iter().flat_map(SchemaField::stores).any(|store| store == schema::BufferContent::Text);
        if texts && group.saturating_mul(schema::TEXT) > MOST_INT {
            return Err(too_many(shape, "strings in a record batch; lower dataset.parquet.row_group_size"));
        }
        let message = arrow.batch_message;
        let first = START.len() as u64 + arrow.schema_messages[shape.element as usize];
        let all = message.checked_add(body).and_then(|bytes| bytes.checked_mul(batches - 1));
        let all =
            all.and_then(|bytes| bytes.checked_add(first)?.checked_add(message)?.checked_add(last_body));
        let footer_bytes = batches.checked_mul(BLOCK);
        let footer_bytes =
            footer_bytes.and_then(|bytes| bytes.checked_add(arrow.footers[shape.element as usize]));
        let footer_bytes = footer_bytes.filter(|bytes| *bytes <= MOST_INT);
        let footer_bytes = footer_bytes.ok_or_else(|| {
            too_many(shape, "record batches for a footer; raise dataset.parquet.row_group_size")
        })?;
        let footer = Extent { offset: fits(all)? + END, len: footer_bytes };
        let file_bytes = fits(footer.end().checked_add(TAIL))?;
        Ok(Layout { fields, rows, group, batches, first, message, body, last_body, footer, file_bytes })
    }

    fn batch(&self, index: u64) -> RecordBatch {
        let start = index * self.group;
        RecordBatch {
            offset: self.first + index * (self.message + self.body),
            rows: start..(start + self.group).min(self.rows),
            body: if index + 1 == self.batches { self.last_body } else { self.body },
        }
    }

    /// The reads of `pyarrow.ipc.open_file(pyarrow.OSFile(path))` and `get_batch`: the tail, the footer, and
    /// whole record batches. With columns left out (`included_fields`) a batch's message and then its
    /// buffers, merged only if they are adjacent.
    fn framework_reads(&self, samples: &Range<u64>, reads: &mut Vec<Extent>) {
        reads.push(Extent { offset: self.file_bytes - TAIL, len: TAIL });
        reads.push(self.footer);
        let all = self.fields.iter().all(|field| field.read);
        for index in samples.start / self.group..=(samples.end - 1) / self.group {
            let batch = self.batch(index);
            if all {
                reads.push(Extent { offset: batch.offset, len: self.message + batch.body });
                continue;
            }
            reads.push(Extent { offset: batch.offset, len: self.message });
            self.buffer_reads(&batch, &batch.rows, reads.len(), reads);
        }
    }

    fn extent_reads(&self, samples: &Range<u64>, reads: &mut Vec<Extent>) {
        let own = reads.len();
        for index in samples.start / self.group..=(samples.end - 1) / self.group {
            let batch = self.batch(index);
            let rows = samples.start.max(batch.rows.start)..samples.end.min(batch.rows.end);
            self.buffer_reads(&batch, &rows, own, reads);
        }
    }

    /// The bytes of `rows` in the buffers of the columns that are read, merged with reads from index `own`
    /// on.
    fn buffer_reads(&self, batch: &RecordBatch, rows: &Range<u64>, own: usize, reads: &mut Vec<Extent>) {
        let held = batch.rows.end - batch.rows.start;
        let rows = rows.start - batch.rows.start..rows.end - batch.rows.start;
        let mut offset = batch.offset + self.message;
        for field in self.fields {
            for store in field.stores() {
                // None overflows, because the whole file fits.
                let range = store.range(&rows).unwrap_or_default();
                if field.read {
                    let extent = Extent { offset: offset + range.start, len: range.end - range.start };
                    push_joined(reads, own, extent);
                }
                offset += store.len(held).unwrap_or_default().next_multiple_of(ALIGN);
            }
        }
    }
}

/// Bytes of the body of a record batch of this many rows.
fn body_bytes(fields: &[SchemaField], rows: u64) -> Option<u64> {
    let mut stores = fields.iter().flat_map(SchemaField::stores);
    stores.try_fold(0_u64, |sum, store| sum.checked_add(store.len(rows)?.checked_next_multiple_of(ALIGN)?))
}

fn too_many(shape: &FileShape<'_>, of_what: &str) -> FormatError {
    let what = format!("{} samples make too many {of_what}", shape.samples);
    FormatError::Setting { format: NAME, what }
}

/// Appends a read, or extends the last one if it is adjacent and its index is at least `own`.
fn push_joined(reads: &mut Vec<Extent>, own: usize, extent: Extent) {
    if extent.len == 0 {
        return;
    }
    match reads.get_mut(own..).and_then(<[Extent]>::last_mut) {
        Some(last) if last.end() == extent.offset => last.len += extent.len,
        _ => reads.push(extent),
    }
}

impl Format for Arrow {
    fn name(&self) -> &'static str {
        NAME
    }

    fn unit(&self, _: &FileShape<'_>) -> Unit {
        Unit::Group(self.group)
    }

    fn size(&self, shape: &FileShape<'_>) -> Result<EncodedSize, FormatError> {
        self.with_layout(shape, |layout| Ok(EncodedSize::Exact(layout.file_bytes)))
    }

    fn write(
        &self,
        shape: &FileShape<'_>,
        content: &Content,
        file: u64,
        out: &mut Pieces<'_, '_>,
    ) -> Result<(), EncodeError> {
        self.with_layout(shape, |layout| Ok(write(layout, content, file, out)?))
    }

    fn unit_of(&self, look: &Look<'_>, samples: u64, _expected: Unit) -> Result<Unit, Obstacle> {
        foreign::unit(look, self.group, samples)
    }

    fn reads(
        &self,
        file: SourceFile<'_>,
        samples: Range<u64>,
        reads: &mut Vec<Extent>,
    ) -> Result<(), Obstacle> {
        match file {
            SourceFile::Ours(shape) => self.with_layout(shape, |layout| {
                within(NAME, &samples, layout.rows)?;
                match self.access {
                    Access::Framework => layout.framework_reads(&samples, reads),
                    Access::Extent => layout.extent_reads(&samples, reads),
                }
                Ok(())
            }),
            SourceFile::Foreign { look, samples: held } => {
                within(NAME, &samples, held)?;
                foreign::reads(self, look, held, &samples, reads)
            }
        }
    }

    fn inspect(&self, look: &Look<'_>) -> Result<FileFacts, Obstacle> {
        foreign::inspect(look)
    }
}

fn write(layout: &Layout<'_>, content: &Content, file: u64, out: &mut Pieces<'_, '_>) -> std::io::Result<()> {
    out.bytes(START)?;
    out.derived(layout.first - START.len() as u64, 0, |out| {
        out.bytes(&schema::schema_message(layout.fields))
    })?;
    let message = OnceCell::new();
    let mut batch = |out: &mut Pieces<'_, '_>, index: u64| {
        let batch = layout.batch(index);
        let rows = batch.rows.end - batch.rows.start;
        out.derived(layout.message, 0, |out| match rows == layout.group {
            true => {
                out.bytes(message.get_or_init(|| schema::batch_message(layout.fields, rows, layout.body)))
            }
            false => out.bytes(&schema::batch_message(layout.fields, rows, batch.body)),
        })?;
        // The buffer's position among all bodies: every byte of a file has its own position in the
        // content.
        let mut base = index * layout.body;
        for store in layout.fields.iter().flat_map(SchemaField::stores) {
            let len = store.len(rows).unwrap_or_default();
            let padded = len.next_multiple_of(ALIGN);
            out.produce(len, |offset, part| store.fill(content, file, base, offset, part))?;
            out.produce(padded - len, |_, part| part.fill(0))?;
            base += padded;
        }
        Ok(())
    };
    // All but the last are equal.
    let last = layout.batches - 1;
    out.repeat(last, layout.message + layout.body, &mut batch)?;
    batch(out, last)?;
    out.bytes(&MARKER)?;
    out.bytes(&[0; 4])?;
    // The footer fits into 31 bits, and so do its number of entries and the messages' lengths.
    let entries = layout.batches * BLOCK;
    out.derived(layout.footer.len - entries, 0, |out| {
        out.bytes(&schema::footer_start(layout.fields, layout.batches as u32))
    })?;
    out.produce(entries, |offset, part| {
        schema::fill_entries(offset, part, |index| block(layout, index));
    })?;
    out.bytes(&(layout.footer.len as u32).to_le_bytes())?;
    out.bytes(MAGIC)
}

/// The footer's entry of a record batch (File.fbs, Block).
fn block(layout: &Layout<'_>, index: u64) -> [u8; BLOCK as usize] {
    let batch = layout.batch(index);
    let mut block = [0; BLOCK as usize];
    let numbers = [batch.offset, layout.message, batch.body];
    for (room, number) in block.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
        *room = number.to_le_bytes();
    }
    block
}

#[cfg(test)]
mod tests;
