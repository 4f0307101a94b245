//! A file on its way to the sink: bytes are gathered in the caller's scratch buffer and handed over when it
//! is full. Memory is the scratch and nothing else, whatever the file's size. It must not know any format.

use crate::Sink;
use std::io;

/// The scratch an encoder makes for itself when it is given an empty one: large enough that a sink's cost per
/// call (a system call) is noise, small enough to stay in a core's second-level cache.
const SCRATCH: usize = 512 * 1024;
/// The most that is produced in one go. What is made is usually mapped or summed at once, and 16 KiB are then
/// still in the first-level cache.
const STRIDE: usize = 16 * 1024;

/// The usable scratch: as long as the caller made it, or of the default length if it is empty.
pub(crate) fn room(scratch: &mut Vec<u8>) -> &mut [u8] {
    if scratch.is_empty() {
        scratch.resize(SCRATCH, 0);
    }
    scratch
}

/// The CRC-32 of the `len` bytes that `produce(offset, out)` makes, in constant memory.
pub(crate) fn checksum(
    mut crc: crc32fast::Hasher,
    scratch: &mut [u8],
    len: u64,
    produce: impl Fn(u64, &mut [u8]),
) -> u32 {
    let mut done = 0;
    while done < len {
        let part = clip(scratch, STRIDE, len - done);
        produce(done, part);
        crc.update(part);
        done += part.len() as u64;
    }
    crc.finalize()
}

/// The first bytes of `buffer`: no more than `most`, no more than are `wanted`.
fn clip(buffer: &mut [u8], most: usize, wanted: u64) -> &mut [u8] {
    let len = buffer.len().min(most);
    let len = usize::try_from(wanted).map_or(len, |wanted| len.min(wanted));
    &mut buffer[..len]
}

/// Gathers bytes into pieces of the scratch's length; only the last piece is shorter.
pub(crate) struct Pieces<'a, 's> {
    scratch: &'a mut [u8],
    filled: usize,
    handed_over: u64,
    sink: &'a mut Sink<'s>,
}

impl<'a, 's> Pieces<'a, 's> {
    pub(crate) fn new(scratch: &'a mut Vec<u8>, sink: &'a mut Sink<'s>) -> Pieces<'a, 's> {
        Pieces { scratch: room(scratch), filled: 0, handed_over: 0, sink }
    }

    /// Offset in the file of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.handed_over + self.filled as u64
    }

    /// Appends `len` bytes that `produce(offset, out)` makes, where `offset` counts from the first of them.
    pub(crate) fn produce(&mut self, len: u64, mut produce: impl FnMut(u64, &mut [u8])) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            if self.filled == self.scratch.len() {
                self.hand_over()?;
            }
            let part = clip(&mut self.scratch[self.filled..], STRIDE, len - done);
            produce(done, part);
            done += part.len() as u64;
            self.filled += part.len();
        }
        Ok(())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        // `offset` is below the length of a slice, so it fits.
        self.produce(bytes.len() as u64, |offset, out| {
            out.copy_from_slice(&bytes[offset as usize..][..out.len()]);
        })
    }

    /// Hands over what is left. Without it the file's tail never reaches the sink.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.hand_over()
    }

    fn hand_over(&mut self) -> io::Result<()> {
        if self.filled > 0 {
            (self.sink)(&self.scratch[..self.filled])?;
            self.handed_over += self.filled as u64;
            self.filled = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_up(offset: u64, out: &mut [u8]) {
        out.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = at as u8);
    }

    #[test]
    fn every_piece_but_the_last_is_as_long_as_the_scratch() {
        for (scratch, len, pieces) in
            [(1, 3, vec![1, 1, 1]), (4, 8, vec![4, 4]), (4, 9, vec![4, 4, 1]), (10, 3, vec![3])]
        {
            let (mut sizes, mut seen) = (Vec::new(), Vec::new());
            let mut sink = |piece: &[u8]| {
                sizes.push(piece.len());
                seen.extend_from_slice(piece);
                Ok(())
            };
            let mut scratch = vec![0; scratch];
            let mut out = Pieces::new(&mut scratch, &mut sink);
            out.bytes(&[0, 1]).unwrap();
            out.produce(len - 2, |offset, part| count_up(offset + 2, part)).unwrap();
            assert_eq!(out.position(), len);
            out.finish().unwrap();
            assert_eq!(sizes, pieces);
            assert_eq!(seen, (0..len as u8).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_empty_scratch_is_given_the_default_length_once() {
        let mut scratch = Vec::new();
        assert_eq!(room(&mut scratch).len(), SCRATCH);
        let place = scratch.as_ptr();
        assert_eq!(room(&mut scratch).as_ptr(), place);
    }

    #[test]
    fn a_checksum_does_not_depend_on_the_scratch() {
        let whole: Vec<u8> = (0..50_000_u64).map(|at| at as u8).collect();
        for scratch in [1, 7, 4096, 100_000] {
            let sum = checksum(crc32fast::Hasher::new(), &mut vec![0; scratch], 50_000, count_up);
            assert_eq!(sum, crc32fast::hash(&whole), "scratch of {scratch}");
        }
    }
}
