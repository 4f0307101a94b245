//! A range of bytes in a file: what formats answer in, stores read by and the engine counts.

/// A range of bytes in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub offset: u64,
    pub len: u64,
}

impl Extent {
    /// Offset behind the last byte.
    pub fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}
