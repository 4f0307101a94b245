//! A format without a container, and a backend, for tests of plans. A file of the format is its samples, one after
//! another.

use std::ops::Range;
use std::sync::LazyLock;

use super::{FileSize, Measure, StorePlan};
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

    fn requests(&self, shape: &FileShape<'_>, samples: Range<u64>, largest: u64) -> Result<u64, String> {
        Ok(self.read_bytes(shape, samples)?.div_ceil(largest))
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

/// A backend that reads files through the page cache with one thread per reader.
pub(crate) fn buffered() -> &'static StorePlan {
    static BUFFERED: LazyLock<StorePlan> = LazyLock::new(|| StorePlan {
        text: "posix".to_owned(),
        holds_files: true,
        brings_bytes: true,
        cached: true,
        ..StorePlan::default()
    });
    &BUFFERED
}
