//! A range of bytes in a file. Formats return extents, I/O backends read them and the engine counts them.

/// A range of bytes in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    pub offset: u64,
    pub len: u64,
}

impl Extent {
    /// Offset after the last byte.
    pub fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}
