//! Existing parquet files: the reads of their columns, and a description.

use super::access::ReadMerger;
use super::arrow_schema::ArrowSchema;
use super::footer::{ParquetFooter, SchemaLeaf};
use super::{NAME, Parquet, codec};
use crate::{ArrayList, Extent, FileFacts, Look, Obstacle, within};
use model::order::Unit;
use model::shape::Element;
use model::spec::Access;
use std::ops::Range;

/// Columns that are listed; the rest is only counted.
const LISTED: usize = 16;
/// Characters of a name that are shown.
const SHOWN: usize = 60;

impl Parquet {
    /// Column chunks are read whole, because only decoding reveals the position of a row.
    pub(super) fn reads_foreign(
        &self,
        look: &Look<'_>,
        samples: Range<u64>,
        reads: &mut Vec<Extent>,
    ) -> Result<(), Obstacle> {
        let (mut footer, selected) = self.open_selected(look)?;
        within(NAME, &samples, footer.rows)?;
        let (mut chunks, mut join, mut first) = (Vec::new(), ReadMerger::new(self.access), 0_u64);
        for _ in 0..footer.groups {
            let rows = footer.group(look, &mut chunks)?;
            let end = first.saturating_add(rows);
            if samples.start < end && first < samples.end {
                let mut wanted = selected.iter();
                chunks.retain(|_| wanted.next().is_some_and(|selected| *selected));
                chunks.sort_by_key(|chunk| chunk.extent.offset);
                chunks.iter().for_each(|chunk| join.push(chunk.extent, reads));
                if self.access == Access::Framework {
                    join.finish(reads);
                }
            }
            first = end;
            if first >= samples.end {
                break;
            }
        }
        join.finish(reads);
        match first >= samples.end {
            true => Ok(()),
            false => Err(fewer_rows(look, &footer, first)),
        }
    }

    /// The file's own row groups, if they have equal length; otherwise the whole file.
    pub(super) fn unit_foreign(&self, look: &Look<'_>) -> Result<Unit, Obstacle> {
        let mut footer = ParquetFooter::open(look, |_| {})?;
        let (all, groups) = (footer.rows, footer.groups);
        if groups == 0 {
            return Ok(Unit::File);
        }
        let rows = footer.group(look, &mut Vec::new())?;
        let alike = rows > 0 && all.div_ceil(rows) == groups;
        Ok(if alike { Unit::Group(rows) } else { Unit::File })
    }

    /// The footer, and which of the columns the workload reads.
    fn open_selected<'a>(&self, look: &Look<'a>) -> Result<(ParquetFooter<'a>, Vec<bool>), Obstacle> {
        let mut missing: Vec<&str> =
            self.leaves.iter().filter(|leaf| leaf.read).map(|leaf| &*leaf.name).collect();
        let wanted = missing.clone();
        let (mut selected, mut there) = (Vec::new(), NameList::default());
        let footer = ParquetFooter::open(look, |leaf| {
            // By its name, or by that of an enclosing group, as in pyarrow.
            let found = wanted.iter().find(|name| is_within(leaf.path, name.as_bytes()));
            if let Some(found) = found {
                missing.retain(|name| name != found);
            }
            selected.push(wanted.is_empty() || found.is_some());
            there.add(&leaf.path[..leaf.top]);
        })?;
        match missing.first() {
            None => Ok((footer, selected)),
            Some(name) => {
                let what = format!("it has no column '{name}' to read; it has {there}");
                Err(look.damage(footer.at, what).into())
            }
        }
    }
}

fn is_within(path: &[u8], name: &[u8]) -> bool {
    path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
}

fn fewer_rows(look: &Look<'_>, footer: &ParquetFooter<'_>, found: u64) -> Obstacle {
    let what = format!("its row groups hold {found} rows instead of {}", footer.rows);
    look.damage(footer.at, what).into()
}

/// Names for a message: the first few, without consecutive repetitions.
#[derive(Default)]
struct NameList {
    first: Vec<String>,
    last: Vec<u8>,
    more: usize,
}

impl NameList {
    fn add(&mut self, name: &[u8]) {
        if self.last == name && !(self.first.is_empty() && name.is_empty()) {
            return;
        }
        self.last.clear();
        self.last.extend_from_slice(name);
        match self.first.len() < LISTED {
            true => self.first.push(shown(name)),
            false => self.more += 1,
        }
    }
}

impl std::fmt::Display for NameList {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.first.is_empty(), self.more) {
            (true, _) => write!(out, "none"),
            (_, 0) => write!(out, "{}", self.first.join(", ")),
            (_, more) => write!(out, "{} and {more} more", self.first.join(", ")),
        }
    }
}

/// A name from a file, made safe for one line of output.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().take(SHOWN).filter(|letter| !letter.is_control()).collect()
}

/// Facts about columns, collected during parsing.
#[derive(Default)]
struct ColumnFacts {
    listed: Vec<ColumnFact>,
    count: usize,
    /// The name of the last field of the schema, and the number of fields before it.
    field: Vec<u8>,
    fields: usize,
}

/// A column with values.
struct ColumnFact {
    name: String,
    type_name: &'static str,
    lists: u32,
    items: ListLengths,
    /// The number of its field in the schema.
    field: usize,
}

impl ColumnFacts {
    fn add(&mut self, leaf: SchemaLeaf<'_>) {
        let field = &leaf.path[..leaf.top];
        if self.count > 0 && self.field != field {
            self.fields += 1;
        }
        self.field.clear();
        self.field.extend_from_slice(field);
        self.count += 1;
        if self.count <= ArrayList::MOST {
            // The inner names of lists carry no information (LogicalTypes.md, lists).
            let inner: [&[u8]; 2] = [b".list.element", b".list.item"];
            let path = inner.iter().find_map(|inner| leaf.path.strip_suffix(*inner)).unwrap_or(leaf.path);
            let name = String::from_utf8_lossy(path).into_owned();
            let (type_name, lists, items) = (leaf.type_name, leaf.lists, ListLengths::Unknown);
            self.listed.push(ColumnFact { name, type_name, lists, items, field: self.fields });
        }
    }

    fn arrays(&self, rows: u64, arrow_schema: Option<&[u8]>) -> ArrayList {
        let mut arrays = ArrayList { more: (self.count - self.listed.len()) as u64, ..ArrayList::default() };
        let schema = arrow_schema.and_then(ArrowSchema::of);
        for column in &self.listed {
            match column.length(schema.as_ref()) {
                Some(items) => arrays.add(&column.name, &[rows, items], column.type_name),
                None => {
                    let lists = "list of ".repeat(column.lists.min(3) as usize);
                    arrays.add(&column.name, &[rows], &format!("{lists}{}", column.type_name));
                }
            }
        }
        arrays
    }
}

impl ColumnFact {
    /// The length of its lists if it is the same in every row, by the values and by Arrow's schema.
    fn length(&self, schema: Option<&ArrowSchema>) -> Option<u64> {
        let ListLengths::Each(items) = self.items else { return None };
        (self.lists == 1 && schema?.fixed_list(self.field) == Some(items)).then_some(items)
    }
}

pub(super) fn inspect(look: &Look<'_>) -> Result<FileFacts, Obstacle> {
    let mut columns = ColumnFacts::default();
    let mut footer = ParquetFooter::open(look, |leaf| columns.add(leaf))?;
    let (mut chunks, mut rows, mut codecs) = (Vec::new(), 0_u64, Vec::new());
    for _ in 0..footer.groups {
        let group_rows = footer.group(look, &mut chunks)?;
        rows = rows.saturating_add(group_rows);
        for chunk in &chunks {
            let name = codec::name(chunk.codec);
            if !codecs.contains(&name) {
                codecs.push(name);
            }
        }
        for (column, chunk) in columns.listed.iter_mut().zip(&chunks) {
            column.items = column.items.and(group_rows, chunk.values);
        }
    }
    if rows != footer.rows {
        return Err(fewer_rows(look, &footer, rows));
    }
    let tail = footer.tail().map_err(|malformed| footer.damage(look, malformed))?;
    let plural = if footer.groups == 1 { "" } else { "s" };
    let mut notes = vec![format!("{} row group{plural}", footer.groups)];
    notes.push(format!("compression {}", codecs.join(" and ")));
    notes.extend(tail.created_by.map(|writer| format!("written by {}", shown(writer))));
    let arrays = columns.arrays(rows, tail.arrow_schema);
    let (mut dims, mut element) = (Vec::new(), None);
    if let ([column], [array]) = (&columns.listed[..], &arrays.listed[..]) {
        element = Element::named(column.type_name).map(|element| element.name().to_owned());
        dims.extend(array.shape.iter().flatten().skip(1));
        if dims.is_empty() && column.lists > 0 {
            notes.push("rows may differ in length".to_owned());
        }
    }
    Ok(FileFacts { samples: Some(rows), dims, element, arrays, notes })
}

/// Values per row, by the totals of row groups.
#[derive(Clone, Copy)]
enum ListLengths {
    Unknown,
    Each(u64),
    Differ,
}

impl ListLengths {
    fn and(self, rows: u64, values: u64) -> ListLengths {
        if rows == 0 {
            return self;
        }
        match (self, values / rows) {
            (ListLengths::Unknown, each) if values.is_multiple_of(rows) => ListLengths::Each(each),
            (ListLengths::Each(before), each) if values.is_multiple_of(rows) && before == each => self,
            _ => ListLengths::Differ,
        }
    }
}
