//! Memory that bytes are read into. It begins on a page, because the kernel copies faster into it and because reads
//! past the page cache demand it; it is made once and reused.

/// Where a buffer begins: a page, which is a multiple of every block size that a file system asks for.
pub(crate) const ALIGNMENT: usize = 4096;

/// Memory of which a part is in use. It is kept small, because every fetch that has ended carries one.
#[derive(Debug, Default)]
pub struct Buffer {
    /// One page longer than the capacity, so that the buffer can begin on a page.
    memory: Box<[u8]>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Room for `capacity` bytes. Pages are taken from the system when they are first touched.
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

    /// All of it, in use or not.
    pub fn room(&mut self) -> &mut [u8] {
        let capacity = self.capacity();
        &mut self.memory[self.start..self.start + capacity]
    }

    /// Forgets what is in it and makes sure that `bytes` fit.
    pub(crate) fn prepare(&mut self, bytes: usize) {
        if self.capacity() < bytes {
            *self = Buffer::with_capacity(bytes);
        }
        self.len = 0;
    }

    /// Says how many bytes are in use.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_on_a_page_and_grows_when_it_must() {
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
