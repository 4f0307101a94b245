//! The lane that a blocking backend gets for free: it opens, reads the range in transfers, closes, and has the
//! completion ready when the caller reaps.

use std::sync::atomic::Ordering;

use model::extent::Extent;
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
pub struct BlockingLane<'a, B: Blocking> {
    backend: &'a B,
    buffer: PageAligned,
    done: Option<Done>,
    /// The file that stayed open, for whoever goes on in it.
    held: Option<Held<B::File>>,
}

#[derive(Debug)]
struct Held<F> {
    name: Name,
    file: F,
}

impl<'a, B: Blocking> BlockingLane<'a, B> {
    pub fn new(backend: &'a B, transfer: usize) -> Self {
        // One byte more than a transfer, so that a file that goes on is seen without another call.
        BlockingLane { backend, buffer: PageAligned::new(transfer.max(1) + 1), done: None, held: None }
    }

    /// The file of that name: the one that stayed open, or opened now. Says how many opens that took.
    fn open(&mut self, name: &Name) -> Result<(B::File, u64), StoreError> {
        match self.held.take() {
            Some(held) if held.name == *name => return Ok((held.file, 0)),
            Some(held) => self.backend.close(held.file, &held.name)?,
            None => {}
        }
        Ok((self.backend.open(name)?, 1))
    }

    fn leave(&mut self, file: B::File, name: &Name, keep_open: bool) -> Result<(), StoreError> {
        if keep_open {
            self.held = Some(Held { name: name.clone(), file });
            return Ok(());
        }
        self.backend.close(file, name)
    }

    fn read_ranges(&mut self, file: &B::File, fetch: &Fetch<'_>) -> Result<(u64, u64), StoreError> {
        let (mut bytes, mut reads) = (0, 0);
        for range in fetch.ranges {
            // Relaxed: the flag carries nothing with it.
            if reads > 0 && fetch.give_up.load(Ordering::Relaxed) {
                return Err(StoreError::GivenUp);
            }
            reads += self.read_range(file, *range, fetch)?;
            bytes += range.len;
        }
        Ok((bytes, reads))
    }

    fn read_range(&mut self, file: &B::File, range: Extent, fetch: &Fetch<'_>) -> Result<u64, StoreError> {
        let end = range.end();
        let to_end = end == fetch.file_bytes;
        let buffer = self.buffer.bytes();
        let transfer = buffer.len() - 1;
        let mut at = range.offset;
        let mut reads = 0;
        while at < end || reads == 0 {
            if reads > 0 && fetch.give_up.load(Ordering::Relaxed) {
                return Err(StoreError::GivenUp);
            }
            let left = end - at;
            let probe = usize::from(to_end && left <= transfer as u64);
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

    /// Fills `out` from `offset` on; says how many reads that took.
    fn fill(&self, file: &B::File, name: &Name, offset: u64, out: &mut [u8]) -> Result<u64, StoreError> {
        let (mut filled, mut reads) = (0, 0);
        while filled < out.len() {
            let at = offset + filled as u64;
            let got = self.backend.read_at(file, name, at, &mut out[filled..])?;
            reads += 1;
            filled += got;
            if got == 0 {
                let needed = offset + out.len() as u64;
                return Err(StoreError::Short { name: self.backend.shown(name), end: at, needed });
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
        let (file, opens) = self.open(fetch.name)?;
        let outcome = self.read_ranges(&file, fetch);
        let left = self.leave(file, fetch.name, fetch.keep_open);
        let (bytes, reads) = outcome?;
        left?;
        self.done = Some(Done { tag, bytes, opens, reads });
        Ok(())
    }

    fn reap(&mut self) -> Result<Option<Done>, StoreError> {
        Ok(self.done.take())
    }

    fn look(&mut self, name: &Name, offset: u64, out: &mut [u8]) -> Result<Done, StoreError> {
        let (file, opens) = self.open(name)?;
        let outcome = self.fill(&file, name, offset, out);
        self.leave(file, name, true)?;
        Ok(Done { tag: 0, bytes: out.len() as u64, opens, reads: outcome? })
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
