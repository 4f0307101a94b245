//! Memory for reads. It is aligned to a page, because the kernel copies faster into it and because O_DIRECT requires
//! it; it is allocated once and reused.

/// Alignment of a buffer: a page, which is a multiple of every block size that a file system requires.
pub(crate) const ALIGNMENT: usize = 4096;

/// A block of memory, of which a part is in use. The type is small, because every completed fetch carries one.
#[derive(Debug, Default)]
pub struct Buffer {
    /// One page longer than the capacity, so that the buffer can begin on a page.
    memory: Box<[u8]>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Space for `capacity` bytes. The system provides pages when they are first touched.
    pub fn with_capacity(capacity: usize) -> Buffer {
        let memory = vec![0; capacity + ALIGNMENT].into_boxed_slice();
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Buffer { memory, start, len: 0 }
    }

    pub fn capacity(&self) -> usize {
        self.memory.len().saturating_sub(ALIGNMENT)
    }

    /// The bytes in use.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    /// All of the memory, in use or not.
    pub fn room(&mut self) -> &mut [u8] {
        let capacity = self.capacity();
        &mut self.memory[self.start..self.start + capacity]
    }

    /// Discards the content and makes sure that `bytes` fit.
    pub(crate) fn prepare(&mut self, bytes: usize) {
        if self.capacity() < bytes {
            *self = Buffer::with_capacity(bytes);
        }
        self.len = 0;
    }

    /// Sets how many bytes are in use.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_page_aligned_and_grows_on_demand() {
        let mut buffer = Buffer::with_capacity(10);
        assert!(buffer.room().as_ptr().addr().is_multiple_of(ALIGNMENT));
        buffer.room()[..3].copy_from_slice(b"abc");
        buffer.set_len(3);
        assert_eq!(buffer.bytes(), b"abc");
        buffer.prepare(5000);
        assert!(buffer.capacity() >= 5000 && buffer.bytes().is_empty());
        assert!(buffer.room().as_ptr().addr().is_multiple_of(ALIGNMENT));
    }
}
