//! Existing Arrow files: which record batches contain which rows, and which bytes of their buffers belong to
//! them. Types whose rows cannot be located by arithmetic (unions, views, run-ends) and compressed buffers are
//! read whole. `footer` parses the metadata.

use std::ops::Range;

use model::order::Unit;
use model::spec::Access;

use super::footer::{ArrowColumn, ArrowFooter, BatchMetadata, Block, BufferLayout};
use super::{Arrow, MAGIC, NAME, START, push_joined};
use crate::{ArrayList, Extent, FileFacts, FormatError, Look, Obstacle, within};

/// Maximum number of record batches whose messages are read one by one, because each lookup restarts the parsing.
const MOST_LOOKED_AT: usize = 1024;

/// The reads of some rows of a file.
pub(super) fn reads(
    arrow: &Arrow,
    look: &Look<'_>,
    held: u64,
    samples: &Range<u64>,
    reads: &mut Vec<Extent>,
) -> Result<(), Obstacle> {
    let footer = ArrowFooter::of(look)?;
    let wanted = footer.wanted(arrow, look)?;
    let whole = arrow.access == Access::Framework && wanted.iter().all(|wanted| *wanted);
    let (picks, looked_at) = locate(look, &footer, arrow.group, held, samples, whole)?;
    if arrow.access == Access::Framework {
        // Dictionaries are all read before the first record batch.
        reads.extend(footer.dictionaries.iter().map(|block| block.whole()));
    }
    for (index, rows) in picks {
        let Some(block) = footer.batches.get(index) else { continue };
        if whole {
            let message = if looked_at { block.message } else { 0 };
            let len = block.whole().len - message;
            push_joined(reads, reads.len(), Extent { offset: block.offset + message, len });
            continue;
        }
        let batch = BatchMetadata::of(look, block)?;
        let rows = Some(rows).filter(|_| arrow.access == Access::Extent && !batch.compressed);
        let own = reads.len();
        let mut walk =
            BufferWalk { look, block, batch: &batch, next: 0, next_further: 0, own, wanted: true, reads };
        for (column, wanted) in footer.columns.iter().zip(&wanted) {
            walk.wanted = *wanted;
            walk.column(column, rows.as_ref())?;
        }
    }
    Ok(())
}

/// The file's own record batches, if they have equal length; otherwise the whole file.
pub(super) fn unit(look: &Look<'_>, group: u64, held: u64) -> Result<Unit, Obstacle> {
    let footer = ArrowFooter::of(look)?;
    let count = footer.batches.len() as u64;
    if held.div_ceil(group) == count {
        return Ok(Unit::Group(group));
    }
    let Some(first) = footer.batches.first() else { return Ok(Unit::File) };
    let rows = BatchMetadata::of(look, first)?.rows;
    let alike = rows > 0 && held.div_ceil(rows) == count;
    Ok(if alike { Unit::Group(rows) } else { Unit::File })
}

/// Numbers of record batches and the wanted rows within each.
type BatchRows = Vec<(usize, Range<u64>)>;

/// The record batches that contain some rows, and whether their messages have been read. Batches of equal length,
/// which writers usually produce, are located by arithmetic, and trusted if they are read whole.
fn locate(
    look: &Look<'_>,
    footer: &ArrowFooter,
    group: u64,
    held: u64,
    samples: &Range<u64>,
    trust: bool,
) -> Result<(BatchRows, bool), Obstacle> {
    let count = footer.batches.len() as u64;
    if held.div_ceil(group) == count {
        let picks = even(group, samples);
        if trust || as_expected(look, footer, group, held, &picks)? {
            return Ok((picks, !trust));
        }
    }
    if let Some(first) = footer.batches.first() {
        let rows = BatchMetadata::of(look, first)?.rows;
        if rows > 0 && held.div_ceil(rows) == count {
            let picks = even(rows, samples);
            if as_expected(look, footer, rows, held, &picks)? {
                return Ok((picks, true));
            }
        }
    }
    Ok((walk(look, footer, samples)?, true))
}

/// The record batches of `group` rows each that contain some rows. There are no more than the footer lists.
fn even(group: u64, samples: &Range<u64>) -> BatchRows {
    let (first, last) = (samples.start / group, (samples.end - 1) / group);
    let rows = |index: u64| {
        let start = index * group;
        samples.start.max(start) - start..samples.end.min(start.saturating_add(group)) - start
    };
    (first..=last).map(|index| (index as usize, rows(index))).collect()
}

fn as_expected(
    look: &Look<'_>,
    footer: &ArrowFooter,
    group: u64,
    held: u64,
    picks: &BatchRows,
) -> Result<bool, Obstacle> {
    for (index, _) in picks {
        let Some(block) = footer.batches.get(*index) else { return Ok(false) };
        let expected = group.min(held - *index as u64 * group);
        if BatchMetadata::of(look, block)?.rows != expected {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Walks the record batches up to the last wanted row.
fn walk(look: &Look<'_>, footer: &ArrowFooter, samples: &Range<u64>) -> Result<BatchRows, Obstacle> {
    let (mut start, mut picks) = (0_u64, Vec::new());
    for (index, block) in footer.batches.iter().enumerate() {
        if start >= samples.end {
            break;
        }
        if index == MOST_LOOKED_AT {
            return Err(too_far(footer.batches.len()).into());
        }
        let rows = BatchMetadata::of(look, block)?.rows;
        let end = start.saturating_add(rows);
        let taken = samples.start.max(start)..samples.end.min(end);
        if taken.start < taken.end {
            picks.push((index, taken.start - start..taken.end - start));
        }
        start = end;
    }
    within(NAME, samples, start.max(samples.start))?;
    Ok(picks)
}

fn too_far(batches: usize) -> FormatError {
    let what = format!(
        "rows of {batches} record batches of uneven length can be found one after the other only, which takes too \
         long; write the file with record batches of dataset.parquet.row_group_size rows"
    );
    FormatError::Setting { format: NAME, what }
}

/// Walks the buffers of a record batch in the order of the columns.
struct BufferWalk<'a, 'b> {
    look: &'a Look<'b>,
    block: &'a Block,
    batch: &'a BatchMetadata,
    next: usize,
    next_further: usize,
    /// Index of the first read that may be extended.
    own: usize,
    wanted: bool,
    reads: &'a mut Vec<Extent>,
}

impl BufferWalk<'_, '_> {
    fn damage(&self, what: &str) -> Obstacle {
        self.look.damage(self.block.offset, what).into()
    }

    fn buffer(&mut self) -> Result<Extent, Obstacle> {
        let buffer = self.batch.buffers.get(self.next).copied();
        self.next += 1;
        buffer.ok_or_else(|| self.damage("a record batch has fewer buffers than its columns need"))
    }

    /// The bytes `range` of a buffer, or all of it.
    fn take(&mut self, buffer: Extent, range: Option<Range<u64>>) -> Result<(), Obstacle> {
        let range = range.unwrap_or(0..buffer.len);
        if !self.wanted {
            return Ok(());
        }
        if range.end > buffer.len || range.start > range.end {
            return Err(self.damage("a buffer is shorter than its rows"));
        }
        let extent = Extent { offset: buffer.offset + range.start, len: range.end - range.start };
        push_joined(self.reads, self.own, extent);
        Ok(())
    }

    fn take_whole(&mut self, count: usize) -> Result<(), Obstacle> {
        for _ in 0..count {
            let buffer = self.buffer()?;
            self.take(buffer, None)?;
        }
        Ok(())
    }

    /// This many bits for each row.
    fn bits(&mut self, rows: Option<&Range<u64>>, bits: u64) -> Result<(), Obstacle> {
        let buffer = self.buffer()?;
        let range = match rows {
            Some(rows) => {
                let scaled = self.scaled(rows, bits)?;
                Some(scaled.start / 8..scaled.end.div_ceil(8))
            }
            None => None,
        };
        self.take(buffer, range)
    }

    /// Which rows are null. The buffer may be absent if none is.
    fn validity(&mut self, rows: Option<&Range<u64>>) -> Result<(), Obstacle> {
        match self.batch.buffers.get(self.next) {
            Some(buffer) if buffer.len == 0 => self.buffer().map(|_| ()),
            _ => self.bits(rows, 1),
        }
    }

    fn scaled(&self, rows: &Range<u64>, by: u64) -> Result<Range<u64>, Obstacle> {
        let scaled = rows.start.checked_mul(by).zip(rows.end.checked_mul(by));
        let (start, end) = scaled.ok_or_else(|| self.damage("a record batch has too many rows"))?;
        Ok(start..end)
    }

    /// The ends of rows in the following buffer, each a number of `width` bytes: returns where these rows
    /// start and end.
    fn ends(&mut self, rows: Option<&Range<u64>>, width: u64) -> Result<Option<Range<u64>>, Obstacle> {
        let buffer = self.buffer()?;
        let Some(rows) = rows else {
            self.take(buffer, None)?;
            return Ok(None);
        };
        let scaled = self.scaled(rows, width)?;
        let end = scaled.end.saturating_add(width);
        self.take(buffer, Some(scaled.start..end))?;
        if !self.wanted {
            return Ok(Some(0..0));
        }
        Ok(Some(self.end_at(buffer, scaled.start, width)?..self.end_at(buffer, scaled.end, width)?))
    }

    fn end_at(&self, buffer: Extent, at: u64, width: u64) -> Result<u64, Obstacle> {
        // A check above showed that it is inside the buffer.
        let bytes = self.look.at(buffer.offset + at, width)?;
        let mut number = [0; 8];
        number.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Ok(u64::from_le_bytes(number))
    }

    /// The bytes of some rows, or of all if `None`, in a column's buffers and in those of its children. The
    /// parser of the columns limits the depth.
    fn column(&mut self, column: &ArrowColumn, rows: Option<&Range<u64>>) -> Result<(), Obstacle> {
        let inner = match column.layout {
            BufferLayout::Nothing => None,
            BufferLayout::Fixed(bits) => {
                self.validity(rows)?;
                self.bits(rows, bits)?;
                None
            }
            BufferLayout::Text(width) => {
                self.validity(rows)?;
                let range = self.ends(rows, width)?;
                let buffer = self.buffer()?;
                self.take(buffer, range)?;
                None
            }
            BufferLayout::List(width) => {
                self.validity(rows)?;
                self.ends(rows, width)?
            }
            BufferLayout::FixedList(items) => {
                self.validity(rows)?;
                rows.map(|rows| self.scaled(rows, items)).transpose()?
            }
            BufferLayout::Struct => {
                self.validity(rows)?;
                rows.cloned()
            }
            BufferLayout::View => {
                self.validity(rows)?;
                self.bits(rows, 128)?;
                let further = self.batch.further.get(self.next_further).copied();
                self.next_further += 1;
                let further =
                    further.ok_or_else(|| self.damage("a record batch does not count its views"))?;
                // Each of them is looked up, so a count beyond the buffers ends there.
                self.take_whole(usize::try_from(further).unwrap_or(usize::MAX))?;
                None
            }
            BufferLayout::Whole(count) => {
                self.take_whole(count)?;
                None
            }
        };
        column.children.iter().try_for_each(|child| self.column(child, inner.as_ref()))
    }
}

/// What a file contains.
pub(super) fn inspect(look: &Look<'_>) -> Result<FileFacts, Obstacle> {
    let footer = ArrowFooter::of(look)?;
    if !look.at(0, START.len() as u64)?.starts_with(MAGIC) {
        return Err(look.damage(0, "it does not start with ARROW1").into());
    }
    let (mut dims, mut element) = (Vec::new(), None);
    if let [column] = &footer.columns[..] {
        let mut column = column;
        while let (BufferLayout::FixedList(items), [child]) = (column.layout, &column.children[..]) {
            dims.push(items);
            column = child;
        }
        element = column.element.map(str::to_owned);
    }
    if element.is_none() {
        dims.clear();
    }
    let mut notes = Vec::new();
    let samples = count_rows(look, &footer, &mut notes)?;
    let mut arrays = ArrayList::default();
    for column in &footer.columns {
        let (shape, dtype) = array(column, samples);
        arrays.push(&column.name, shape, &dtype);
    }
    Ok(FileFacts { samples, dims, element, arrays, notes })
}

/// The shape of a column, if the number of rows is known, and its type.
fn array(mut column: &ArrowColumn, rows: Option<u64>) -> (Option<Vec<u64>>, String) {
    let mut shape = rows.map(|rows| vec![rows]);
    while let (BufferLayout::FixedList(items), [item]) = (column.layout, &column.children[..]) {
        if let Some(shape) = &mut shape {
            shape.push(items);
        }
        column = item;
    }
    (shape, described(column))
}

/// The rows of all record batches; `None` if counting them would take too long.
fn count_rows(
    look: &Look<'_>,
    footer: &ArrowFooter,
    notes: &mut Vec<String>,
) -> Result<Option<u64>, Obstacle> {
    let batches = &footer.batches[..];
    let (mut rows, mut compressed) = (Some(0), false);
    for (block, times) in representatives(batches) {
        let batch = BatchMetadata::of(look, block)?;
        compressed |= batch.compressed;
        check_buffers(look, footer, block, &batch)?;
        let more =
            rows.zip(batch.rows.checked_mul(times)).and_then(|(sum, more)| u64::checked_add(sum, more));
        let too_many = || look.damage(block.offset, "its record batches have too many rows");
        rows = Some(more.ok_or_else(too_many)?);
    }
    notes.push(format!("{} record batches{}", batches.len(), if compressed { ", compressed" } else { "" }));
    if batches.len() > MOST_LOOKED_AT && !alike(batches) {
        notes.push("there are too many record batches of uneven length to count their rows".to_owned());
        rows = None;
    }
    Ok(rows)
}

/// Whether all record batches except the last have the same length.
fn alike(batches: &[Block]) -> bool {
    let (Some(first), Some((_, others))) = (batches.first(), batches.split_last()) else { return true };
    others.iter().all(|block| (block.message, block.body) == (first.message, first.body))
}

/// The record batches that are read, each with the number of batches that it represents: all of them, or, if
/// there are very many, the first for all but the last.
fn representatives(batches: &[Block]) -> impl Iterator<Item = (&Block, u64)> {
    let many = batches.len() > MOST_LOOKED_AT;
    let all = batches.iter().take(if many { 0 } else { batches.len() }).map(|block| (block, 1));
    let first = batches.first().filter(|_| many).map(|block| (block, batches.len() as u64 - 1));
    all.chain(first).chain(batches.last().filter(|_| many).map(|block| (block, 1)))
}

/// Checks that a record batch has the buffers that the columns need.
fn check_buffers(
    look: &Look<'_>,
    footer: &ArrowFooter,
    block: &Block,
    batch: &BatchMetadata,
) -> Result<(), Obstacle> {
    let reads = &mut Vec::new();
    let mut walk = BufferWalk { look, block, batch, next: 0, next_further: 0, own: 0, wanted: true, reads };
    footer.columns.iter().try_for_each(|column| walk.column(column, None))
}

/// A column's type in a word or two.
fn described(column: &ArrowColumn) -> String {
    match (column.layout, column.element, &column.children[..]) {
        (_, Some(element), _) => element.to_owned(),
        (BufferLayout::FixedList(items), _, [item]) => format!("{items} x {}", described(item)),
        (BufferLayout::List(_), _, [item]) => format!("list of {}", described(item)),
        (BufferLayout::Fixed(bits), _, _) => format!("{} bytes", bits.div_ceil(8)),
        (BufferLayout::Text(_), _, _) => "text or binary".to_owned(),
        (BufferLayout::Struct, _, fields) => format!("struct of {}", fields.len()),
        _ => "other".to_owned(),
    }
}
