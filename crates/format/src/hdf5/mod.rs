//! hdf5: what h5py writes with `libver="latest"` and DLIO reads: datasets `records_0`, `records_1` and so on of
//! shape (samples, *dims), and `labels`. This module handles the settings and the reads of a visit. `plan`
//! computes the layout of files that feedline writes, `write` and `encode` generate their bytes, and `read`
//! parses existing files.
//!
//! Differences from DLIO: DLIO omits a first dimension of 1; here a sample keeps the workload's dimensions (the
//! bytes are the same). DLIO stores one array in every dataset; here each has its own content. With more than
//! seven datasets per sample h5py would move the links out of the group's header; here they stay in it.

mod checksum;
mod encode;
mod grid;
mod plan;
mod read;
mod visit;
mod write;

use crate::inflate::StreamWrapper;
use crate::{
    Content, EncodeError, EncodedSize, Extent, FileFacts, Format, FormatError, FormatKind, FormatOptions,
    Look, Obstacle, Pieces, SourceFile, error, within,
};
use model::order::Unit;
use model::shape::FileShape;
use model::spec::Access;
use plan::Layout;
use std::ops::Range;

const NAME: &str = "hdf5";

pub(crate) const KIND: FormatKind = FormatKind {
    name: NAME,
    layout: "`records_0`, ... of shape `(samples, *dims)`, and `labels`; contiguous or chunked \
             (`hdf5.chunk_dims`, `hdf5.max_shape`, gzip); `hdf5.num_dset_per_record` splits a sample; chunks \
             are never longer than the dataset",
    compressions: &["gzip"],
    existing: "old and new layouts, all chunk indexes; filters are reported",
    other_suffixes: &[".h5"],
    build: |options| Ok(Box::new(Hdf5 { access: options.access, settings: LayoutOptions::of(options)? })),
};

#[derive(Debug)]
pub(crate) struct Hdf5 {
    access: Access,
    settings: LayoutOptions,
}

/// The options that determine a file.
#[derive(Debug)]
struct LayoutOptions {
    /// Datasets that a sample is split into, at least 1.
    sets: u64,
    chunk_dims: Vec<u64>,
    max_shape: Vec<u64>,
    /// The compression level, if files are compressed.
    gzip: Option<u32>,
}

impl LayoutOptions {
    fn of(options: &FormatOptions) -> Result<LayoutOptions, FormatError> {
        let refused = |what: String| Err(FormatError::Setting { format: NAME, what });
        let (hdf5, level) = (&options.hdf5, options.compression_level);
        let sets = hdf5.datasets_per_sample.max(1);
        if sets > write::MOST_SETS {
            let most = write::MOST_SETS;
            return refused(format!(
                "dataset.hdf5.num_dset_per_record {sets} is more than a file can name; choose at most {most}"
            ));
        }
        if hdf5.chunk_dims.contains(&0) {
            return refused(format!(
                "dataset.hdf5.chunk_dims {:?} makes empty chunks; make every number at least 1",
                hdf5.chunk_dims
            ));
        }
        let gzip = (options.compression == "gzip").then_some(level);
        if gzip.is_some_and(|level| level > 9) {
            return refused(format!("dataset.compression_level {level} is not one of gzip's; choose 0 to 9"));
        }
        let (chunk_dims, max_shape) = (hdf5.chunk_dims.clone(), hdf5.max_shape.clone());
        Ok(LayoutOptions { sets, chunk_dims, max_shape, gzip })
    }

    /// As in h5py, any of these makes a dataset chunked.
    fn is_chunked(&self) -> bool {
        self.gzip.is_some() || !self.chunk_dims.is_empty() || !self.max_shape.is_empty()
    }
}

impl Hdf5 {
    fn planned(&self, shape: &FileShape<'_>) -> Result<(Layout, EncodedSize), FormatError> {
        let plan = Layout::of(&self.settings, shape)?;
        if !plan.filtered {
            return Ok((plan, EncodedSize::Exact(plan.end)));
        }
        let most = encode::most_deflated(plan.grid.chunk_bytes())
            .and_then(|chunk| chunk.checked_mul(plan.grid.chunks()?))
            .and_then(|set| set.checked_mul(plan.sets))
            .and_then(|all| all.checked_add(plan.data + plan.label_bytes));
        Ok((plan, EncodedSize::AtMost(error::whole(NAME, shape, most)?)))
    }
}

impl Format for Hdf5 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn unit(&self, _: &FileShape<'_>) -> Unit {
        Unit::Sample
    }

    fn size(&self, shape: &FileShape<'_>) -> Result<EncodedSize, FormatError> {
        self.planned(shape).map(|(_, size)| size)
    }

    fn write(
        &self,
        shape: &FileShape<'_>,
        content: &Content,
        file: u64,
        out: &mut Pieces<'_, '_>,
    ) -> Result<(), EncodeError> {
        let (plan, _) = self.planned(shape)?;
        Ok(encode::file(&plan, self.settings.gzip, shape, content, file, out)?)
    }

    /// For a compressed file that is known only by its shape this is an estimate without compression.
    fn reads(
        &self,
        file: SourceFile<'_>,
        samples: Range<u64>,
        reads: &mut Vec<Extent>,
    ) -> Result<(), Obstacle> {
        match file {
            SourceFile::Ours(shape) => {
                let (plan, _) = self.planned(shape)?;
                within(NAME, &samples, shape.samples)?;
                visit::ours(&plan, self.access, &samples, reads);
                Ok(())
            }
            SourceFile::Foreign { look, .. } => visit::foreign(look, self.access, &samples, reads),
        }
    }

    /// h5py's requests also bring headers and indexes between the chunks.
    fn decodes(&self) -> bool {
        self.settings.gzip.is_some() && self.access == Access::Extent
    }

    fn decode(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Obstacle> {
        match self.decodes() {
            true => StreamWrapper::Zlib.inflate_all(NAME, bytes, out)?,
            false => bytes.clone_into(out),
        }
        Ok(())
    }

    fn inspect(&self, look: &Look<'_>) -> Result<FileFacts, Obstacle> {
        read::facts(look)
    }
}

#[cfg(test)]
mod tests;
