//! A format's size arithmetic, as the plan uses it. The `model` crate does not know formats, only this interface.

use std::ops::Range;

use model::order::Unit;
use model::plan::{FileSize, Measure};
use model::shape::FileShape;

use crate::{EncodedSize, Format, SourceFile};

#[derive(Clone, Copy, Debug)]
pub struct Arithmetic<'a>(pub &'a dyn Format);

impl Measure for Arithmetic<'_> {
    fn file_size(&self, shape: &FileShape<'_>) -> Result<FileSize, String> {
        let size = self.0.size(shape).map_err(|error| error.to_string())?;
        let mut side_bytes = 0;
        for side in 0..self.0.sides().len() {
            side_bytes += self.0.side_bytes(side, shape).map_err(|error| error.to_string())?;
        }
        Ok(FileSize { bytes: size.most(), exact: matches!(size, EncodedSize::Exact(_)), side_bytes })
    }

    fn read_bytes(&self, shape: &FileShape<'_>, samples: Range<u64>) -> Result<u64, String> {
        let mut reads = Vec::new();
        self.0.reads(SourceFile::Ours(shape), samples, &mut reads).map_err(|error| error.to_string())?;
        Ok(reads.iter().map(|read| read.len).sum())
    }

    fn requests(&self, shape: &FileShape<'_>, samples: Range<u64>, largest: u64) -> Result<u64, String> {
        let mut reads = Vec::new();
        self.0.reads(SourceFile::Ours(shape), samples, &mut reads).map_err(|error| error.to_string())?;
        Ok(reads.iter().map(|read| read.len.div_ceil(largest.max(1))).sum())
    }

    fn unit(&self, shape: &FileShape<'_>) -> Unit {
        self.0.unit(shape)
    }

    fn streams(&self) -> bool {
        self.0.streams()
    }

    fn suffix(&self) -> &str {
        self.0.suffix()
    }
}
