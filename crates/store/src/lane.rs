//! The lane that a blocking backend gets for free: it opens, reads the range in transfers, closes, and has the
//! completion ready when the caller reaps.

use std::sync::atomic::Ordering;

use model::names::Name;

use crate::{Done, Fetch, Lane, StoreError};

/// What a blocking backend has to write.
pub trait Blocking: Sync {
    type File;
    fn open(&self, name: &Name) -> Result<Self::File, StoreError>;
    /// Reads at `offset` into `buffer`; fewer bytes than asked for only at the end of the file or by interruption.
    fn read_at(
        &self,
        file: &Self::File,
        name: &Name,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, StoreError>;
    /// How messages name a file.
    fn shown(&self, name: &Name) -> String;
    fn close(&self, file: Self::File, name: &Name) -> Result<(), StoreError>;
}

/// One fetch at a time through one buffer, which is reused: bytes stream through it and are dropped, as a training
/// job's are once they have become a batch.
#[derive(Debug)]
pub struct BlockingLane<'a, B> {
    backend: &'a B,
    buffer: PageAligned,
    done: Option<Done>,
}

impl<'a, B: Blocking> BlockingLane<'a, B> {
    pub fn new(backend: &'a B, transfer: usize) -> Self {
        // One byte more than a transfer, so that a file that goes on is seen without another call.
        BlockingLane { backend, buffer: PageAligned::new(transfer.max(1) + 1), done: None }
    }

    fn read_range(&mut self, file: &B::File, fetch: &Fetch<'_>) -> Result<u64, StoreError> {
        let end = fetch.offset + fetch.len;
        let buffer = self.buffer.bytes();
        let transfer = buffer.len() - 1;
        let mut at = fetch.offset;
        let mut reads = 0;
        while at < end || reads == 0 {
            // Relaxed: the flag carries nothing with it.
            if reads > 0 && fetch.give_up.load(Ordering::Relaxed) {
                return Err(StoreError::GivenUp);
            }
            let left = end - at;
            let probe = usize::from(fetch.to_end && left <= transfer as u64);
            let ask = left.min(transfer as u64) as usize + probe;
            let got = self.backend.read_at(file, fetch.name, at, &mut buffer[..ask])? as u64;
            reads += 1;
            at += got;
            if at > end {
                return Err(StoreError::Long { name: self.backend.shown(fetch.name), planned: end });
            }
            if got == 0 && at < end {
                return Err(StoreError::Short { name: self.backend.shown(fetch.name), end: at, needed: end });
            }
        }
        Ok(reads)
    }
}

impl<B: Blocking> Lane for BlockingLane<'_, B>
where
    B::File: Send,
    B: Send,
{
    fn capacity(&self) -> usize {
        1
    }

    fn submit(&mut self, tag: u64, fetch: &Fetch<'_>) -> Result<(), StoreError> {
        debug_assert!(self.done.is_none());
        let file = self.backend.open(fetch.name)?;
        let reads = self.read_range(&file, fetch);
        let closed = self.backend.close(file, fetch.name);
        let reads = reads?;
        closed?;
        self.done = Some(Done { tag, bytes: fetch.len, opens: 1, reads });
        Ok(())
    }

    fn reap(&mut self) -> Result<Option<Done>, StoreError> {
        Ok(self.done.take())
    }
}

/// A buffer that begins on a page: the kernel copies faster into it than into an unaligned one.
#[derive(Debug)]
struct PageAligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl PageAligned {
    fn new(len: usize) -> PageAligned {
        const PAGE: usize = 4096;
        let bytes = vec![0; len + PAGE];
        // The vector is never grown, so what is aligned now stays aligned.
        let start = bytes.as_ptr().align_offset(PAGE).min(PAGE);
        PageAligned { bytes, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
