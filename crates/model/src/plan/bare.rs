//! A format without container, for tests of what is made from plans: a file is its samples, one after the other.

use std::ops::Range;

use super::{FileSize, Measure};
use crate::order::Unit;
use crate::shape::FileShape;

#[derive(Debug)]
pub(crate) struct Bare(pub(crate) Unit);

impl Measure for Bare {
    fn file_size(&self, shape: &FileShape<'_>) -> Result<FileSize, String> {
        Ok(FileSize { bytes: shape.payload_bytes(), exact: true, side_bytes: 0 })
    }

    fn read_bytes(&self, shape: &FileShape<'_>, samples: Range<u64>) -> Result<u64, String> {
        Ok(shape.sample_bytes() * (samples.end - samples.start))
    }

    fn unit(&self, _shape: &FileShape<'_>) -> Unit {
        self.0
    }

    fn streams(&self) -> bool {
        self.0 == Unit::File
    }

    fn suffix(&self) -> &str {
        "bare"
    }
}
