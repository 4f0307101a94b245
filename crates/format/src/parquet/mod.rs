//! parquet: rows in columns, read a row group at a time. This module implements the format; `layout` computes
//! positions, `write` generates the bytes, `footer` and `foreign` read existing files.

mod access;
mod arrow_schema;
mod codec;
mod footer;
mod foreign;
mod layout;
mod leaf;
mod metadata;
mod pages;
mod thrift;
mod types;
mod write;

#[cfg(test)]
mod tests;

use crate::{
    Content, EncodeError, EncodedSize, Extent, FileFacts, Format, FormatError, FormatKind, FormatOptions,
    Look, Obstacle, Pieces, SourceFile, within,
};
use access::ReadMerger;
use codec::Codec;
use layout::{CachedSizes, Layout};
use leaf::Leaf;
use model::order::Unit;
use model::shape::{Element, FileShape};
use model::spec::Access;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;
use write::ContentSource;

const NAME: &str = "parquet";

pub(crate) const KIND: FormatKind = FormatKind {
    name: NAME,
    layout: "`parquet.columns`, or one column `data`; row groups of `parquet.row_group_size`",
    compressions: Codec::WORDS,
    existing: "any file without an encrypted footer",
    other_suffixes: &[],
    build: |options| Ok(Box::new(Parquet::of(options)?)),
};

#[derive(Debug)]
pub(crate) struct Parquet {
    access: Access,
    codec: Codec,
    level: u32,
    group_rows: u64,
    /// The workload's columns; empty: one column with the samples' elements.
    leaves: Vec<Leaf>,
    /// Arrow's schema of the workload's columns.
    schema: Vec<u8>,
    /// The length of Arrow's schema of the one column, by the type of the samples' elements.
    schema_lengths: Vec<u64>,
    /// Cached sizes.
    known: OnceLock<CachedSizes>,
}

impl Parquet {
    fn of(options: &FormatOptions) -> Result<Parquet, FormatError> {
        let refused = |what: String| FormatError::Setting { format: NAME, what };
        let columns = &options.columns.columns;
        if options.columns.group_rows == 0 {
            return Err(refused("dataset.parquet.row_group_size is 0; make it at least 1".to_owned()));
        }
        let leaves = columns.iter().map(Leaf::of).collect::<Result<Vec<_>, _>>()?;
        let mut names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        names.sort_unstable();
        if let Some([twice, _]) = names.array_windows().find(|[one, other]| one == other) {
            return Err(refused(format!("dataset.parquet.columns has two columns '{twice}'; rename one")));
        }
        if !leaves.is_empty() && !leaves.iter().any(|leaf| leaf.read) {
            let what = "no column of dataset.parquet.columns is read; set read: true for at least one";
            return Err(refused(what.to_owned()));
        }
        let lengths = Element::ALL.map(|element| {
            let leaf = Leaf::of_samples(element, 1);
            arrow_schema::encoded(std::slice::from_ref(&leaf)).len() as u64
        });
        Ok(Parquet {
            access: options.access,
            // Values without a codec have been refused.
            codec: Codec::named(&options.compression).unwrap_or(Codec::None),
            level: options.compression_level,
            group_rows: options.columns.group_rows,
            schema: arrow_schema::encoded(&leaves),
            schema_lengths: lengths.to_vec(),
            known: OnceLock::new(),
            leaves,
        })
    }

    /// Bytes of Arrow's schema in the footer.
    fn schema_bytes(&self, element: Element) -> u64 {
        if !self.leaves.is_empty() {
            return self.schema.len() as u64;
        }
        let place = Element::ALL.iter().position(|other| *other == element);
        place.and_then(|place| self.schema_lengths.get(place)).copied().unwrap_or(0)
    }

    fn reads_ours(
        &self,
        shape: &FileShape<'_>,
        samples: Range<u64>,
        reads: &mut Vec<Extent>,
    ) -> Result<(), FormatError> {
        let layout = Layout::of(self, shape)?;
        within(NAME, &samples, layout.rows)?;
        if self.codec != Codec::None {
            let what = "where a compressed file's columns are only its footer tells".to_owned();
            return Err(FormatError::Setting { format: NAME, what });
        }
        // A reader opens a file once and keeps its footer; the visit to the first row is charged for it.
        if self.access == Access::Framework && samples.start == 0 {
            reads.push(footer::first_read(layout.file_bytes));
            reads.extend(footer::second_read(layout.file_bytes, layout.footer_bytes));
        }
        let mut join = ReadMerger::new(self.access);
        for group in samples.start / layout.group_rows..samples.end.div_ceil(layout.group_rows) {
            let (first, rows) = layout.group(group);
            let wanted = samples.start.max(first) - first..samples.end.min(first + rows) - first;
            for (leaf, chunk, at) in layout.chunks(rows).filter(|(leaf, ..)| leaf.read) {
                let at = layout.group_at(group) + at;
                match self.access {
                    Access::Framework => join.push(Extent { offset: at, len: chunk.bytes }, reads),
                    Access::Extent => chunk.places(leaf, wanted.clone(), |offset, len| {
                        join.push(Extent { offset: at + offset, len }, reads);
                    }),
                }
            }
            if self.access == Access::Framework {
                join.finish(reads);
            }
        }
        join.finish(reads);
        Ok(())
    }
}

impl Format for Parquet {
    fn name(&self) -> &'static str {
        NAME
    }

    fn unit(&self, _shape: &FileShape<'_>) -> Unit {
        Unit::Group(self.group_rows)
    }

    fn unit_of(&self, look: &Look<'_>, _samples: u64, _expected: Unit) -> Result<Unit, Obstacle> {
        self.unit_foreign(look)
    }

    fn size(&self, shape: &FileShape<'_>) -> Result<EncodedSize, FormatError> {
        let bytes = Layout::of(self, shape)?.file_bytes;
        Ok(if self.codec == Codec::None { EncodedSize::Exact(bytes) } else { EncodedSize::AtMost(bytes) })
    }

    fn write(
        &self,
        shape: &FileShape<'_>,
        content: &Content,
        file: u64,
        out: &mut Pieces<'_, '_>,
    ) -> Result<(), EncodeError> {
        let layout = Layout::of(self, shape)?;
        let schema = || match self.leaves.is_empty() {
            true => Cow::Owned(arrow_schema::encoded(layout.leaves())),
            false => Cow::Borrowed(self.schema.as_slice()),
        };
        Ok(write::write(&layout, schema, self.level, ContentSource { content, file }, out)?)
    }

    fn reads(
        &self,
        file: SourceFile<'_>,
        samples: Range<u64>,
        reads: &mut Vec<Extent>,
    ) -> Result<(), Obstacle> {
        match file {
            SourceFile::Ours(shape) => Ok(self.reads_ours(shape, samples, reads)?),
            SourceFile::Foreign { look, .. } => self.reads_foreign(look, samples, reads),
        }
    }

    fn decodes(&self) -> bool {
        self.codec != Codec::None
    }

    fn decode(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Obstacle> {
        match self.decodes() {
            true => pages::decode(self.codec, bytes, out)?,
            false => bytes.clone_into(out),
        }
        Ok(())
    }

    fn inspect(&self, look: &Look<'_>) -> Result<FileFacts, Obstacle> {
        foreign::inspect(look)
    }
}
