//! The output of an encoder: the bytes of a file go to a sink, or are compared with parts of the file that were
//! read elsewhere. Formats write every file through it and need not know which of the two happens. A comparison
//! generates only the bytes that it needs, so any part of a file can be checked at about the cost of generating
//! that part. The scratch is the only memory, whatever the file's size. It must not know any format.

use std::io;

use crate::{ComparisonResult, FileParts, Sink, WrongByte};

/// Size of the scratch when the caller's is empty: large enough that the cost of a sink's call (a system call) is
/// negligible, small enough for a core's second-level cache.
const SCRATCH: usize = 512 * 1024;
/// The maximum that is generated at once. The bytes are usually mapped or checksummed next, and 16 KiB are then
/// still in the first-level cache.
const STRIDE: usize = 16 * 1024;
/// The scratch of a comparison: a block of content.
pub(crate) const SMALL_SCRATCH: usize = 4096;

/// The usable scratch: the caller's, or one of the default length if it is empty.
fn room(scratch: &mut Vec<u8>) -> &mut [u8] {
    if scratch.is_empty() {
        scratch.resize(SCRATCH, 0);
    }
    scratch
}

/// The CRC-32 of the `len` bytes that `produce(offset, out)` generates, in constant memory.
pub(crate) fn checksum(mut crc: crc32fast::Hasher, len: u64, produce: impl Fn(u64, &mut [u8])) -> u32 {
    let (mut scratch, mut done) = ([0; STRIDE], 0);
    while done < len {
        let part = clip(&mut scratch, STRIDE, len - done);
        produce(done, part);
        crc.update(part);
        done += part.len() as u64;
    }
    crc.finalize()
}

/// The first bytes of `buffer`: at most `most`, and at most `wanted`.
fn clip(buffer: &mut [u8], most: usize, wanted: u64) -> &mut [u8] {
    let len = buffer.len().min(most);
    let len = usize::try_from(wanted).map_or(len, |wanted| len.min(wanted));
    &mut buffer[..len]
}

/// Collects bytes into pieces of the scratch's length; only the last piece is shorter.
#[expect(missing_debug_implementations, reason = "holds a sink")]
pub struct Pieces<'a, 's> {
    scratch: &'a mut [u8],
    filled: usize,
    /// Bytes of the file before those in the scratch.
    before: u64,
    goal: Destination<'a, 's>,
}

/// The destination of the bytes.
enum Destination<'a, 's> {
    Write(&'a mut Sink<'s>),
    /// Discarded: only values derived from them are needed.
    Forget,
    Compare(PartComparison<'a>),
}

/// Parts of a file that are compared, and the result so far.
struct PartComparison<'a> {
    parts: FileParts<'a>,
    /// The end of the last part.
    end: u64,
    effort: u64,
    seen: ComparisonResult,
    /// All parts have been compared.
    over: bool,
}

impl PartComparison<'_> {
    /// Compares the bytes at `offset`.
    fn check(&mut self, offset: u64, expected: &[u8], found: &[u8]) -> io::Result<()> {
        if expected == found {
            self.seen.bytes += expected.len() as u64;
            return Ok(());
        }
        let pairs = (offset..).zip(expected.iter().zip(found));
        let mut wrong = pairs.filter(|(_, (expected, found))| expected != found);
        if let Some((offset, (&expected, &found))) = wrong.next() {
            self.seen.wrong = Some(WrongByte { offset, expected: Some(expected), found });
        }
        Err(self.enough())
    }

    /// Ends the encoding early: the error is returned to the caller of the comparison, which ignores it.
    fn enough(&mut self) -> io::Error {
        self.over = true;
        io::ErrorKind::Interrupted.into()
    }

    /// The first needed byte from `at` on.
    fn next(&self, at: u64) -> Option<u64> {
        let ahead = self.parts.ranges.iter().filter(|range| range.end() > at && range.len > 0);
        ahead.map(|range| range.offset.max(at)).min()
    }
}

impl<'a, 's> Pieces<'a, 's> {
    pub(crate) fn new(scratch: &'a mut Vec<u8>, sink: &'a mut Sink<'s>) -> Pieces<'a, 's> {
        Pieces { scratch: room(scratch), filled: 0, before: 0, goal: Destination::Write(sink) }
    }

    /// Compares the file with these parts of it. What requires generating more than `effort` additional bytes
    /// is not compared.
    pub(crate) fn comparing(parts: FileParts<'a>, effort: u64, scratch: &'a mut [u8]) -> Pieces<'a, 's> {
        let end = parts.ranges.iter().map(|range| range.end()).max().unwrap_or(0);
        let goal = PartComparison { parts, end, effort, seen: ComparisonResult::default(), over: end == 0 };
        Pieces { scratch, filled: 0, before: 0, goal: Destination::Compare(goal) }
    }

    /// The result of a comparison; `None` if something else ended the encoding.
    pub(crate) fn compared(&self) -> Option<ComparisonResult> {
        match &self.goal {
            Destination::Compare(goal) if goal.over => Some(goal.seen),
            _ => None,
        }
    }

    /// The result of a comparison with a file that ends before the parts do.
    pub(crate) fn too_short(&self) -> ComparisonResult {
        let Destination::Compare(goal) = &self.goal else { return ComparisonResult::default() };
        let offset = self.before;
        let mut found = goal.parts.bytes;
        let mut beyond = 0;
        for range in goal.parts.ranges {
            let (here, rest) = found.split_at(found.len().min(range.len as usize));
            found = rest;
            let place = offset.max(range.offset) - range.offset;
            beyond = here.get(place as usize).copied().unwrap_or(beyond);
        }
        ComparisonResult { wrong: Some(WrongByte { offset, expected: None, found: beyond }), ..goal.seen }
    }

    /// Offset in the file of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.before + self.filled as u64
    }

    /// Appends `len` bytes that `produce(offset, out)` generates, where `offset` counts from the first of
    /// them. A comparison may skip some of them, so state that accumulates over the calls is valid only
    /// inside [`Pieces::summed`].
    pub(crate) fn produce(&mut self, len: u64, mut produce: impl FnMut(u64, &mut [u8])) -> io::Result<()> {
        if let Destination::Compare(_) = self.goal {
            return self.compare(len, produce);
        }
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

    /// Generates the needed bytes among the next `len`, and compares them.
    fn compare(&mut self, len: u64, mut produce: impl FnMut(u64, &mut [u8])) -> io::Result<()> {
        let (start, end) = (self.before, self.before + len);
        if let Destination::Compare(goal) = &mut self.goal {
            let mut found = goal.parts.bytes;
            for range in goal.parts.ranges {
                let (here, rest) = found.split_at(found.len().min(range.len as usize));
                found = rest;
                let mut at = range.offset.max(start);
                while at < end.min(range.end()) {
                    let part = clip(self.scratch, STRIDE, end.min(range.end()) - at);
                    produce(at - start, part);
                    // Inside the range, whose length is that of a slice.
                    let place = (at - range.offset) as usize;
                    goal.check(at, part, here.get(place..place + part.len()).unwrap_or_default())?;
                    at += part.len() as u64;
                }
            }
        }
        self.pass(len)
    }

    /// Skips `len` bytes of a comparison.
    fn pass(&mut self, len: u64) -> io::Result<()> {
        self.before += len;
        match &mut self.goal {
            Destination::Compare(goal) if self.before >= goal.end => Err(goal.enough()),
            _ => Ok(()),
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        // `offset` is below the length of a slice, so it fits.
        self.produce(bytes.len() as u64, |offset, out| {
            out.copy_from_slice(&bytes[offset as usize..][..out.len()]);
        })
    }

    /// Appends `len` bytes that `write` writes and that require generating `cost` others: only if they are
    /// needed.
    pub(crate) fn derived(
        &mut self,
        len: u64,
        cost: u64,
        write: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let at = self.before;
        match &self.goal {
            Destination::Compare(goal)
                if cost > goal.effort || goal.next(at).is_none_or(|next| next >= at + len) =>
            {
                self.pass(len)
            }
            _ => write(self),
        }
    }

    /// Appends `count` records of `each` bytes; `write` writes one, by its number. Records that are not
    /// needed are skipped.
    pub(crate) fn repeat(
        &mut self,
        count: u64,
        each: u64,
        mut write: impl FnMut(&mut Self, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut number = 0;
        while number < count {
            if let Destination::Compare(goal) = &self.goal {
                let ahead =
                    goal.next(self.before).map_or(u64::MAX, |next| (next - self.before) / each.max(1));
                let skipped = ahead.min(count - number);
                number += skipped;
                self.pass(skipped * each)?;
                if number == count {
                    break;
                }
            }
            write(self, number)?;
            number += 1;
        }
        Ok(())
    }

    /// Appends what `stretch` writes, followed by a value derived from all of it, such as a checksum, which
    /// it returns. If a comparison has skipped some of it and needs the checksum, it is generated again and
    /// discarded.
    pub(crate) fn summed<const N: usize>(
        &mut self,
        mut stretch: impl FnMut(&mut Pieces<'_, '_>) -> io::Result<[u8; N]>,
    ) -> io::Result<()> {
        let start = self.position();
        let sum = stretch(self)?;
        let Destination::Compare(_) = self.goal else { return self.bytes(&sum) };
        let cost = self.before - start;
        self.derived(N as u64, cost, |out| {
            let mut scratch = [0; SMALL_SCRATCH];
            let mut again =
                Pieces { scratch: &mut scratch, filled: 0, before: start, goal: Destination::Forget };
            out.bytes(&stretch(&mut again)?)
        })
    }

    /// Writes the remaining bytes. Without this call the end of the file never reaches the sink.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.hand_over()
    }

    fn hand_over(&mut self) -> io::Result<()> {
        if self.filled > 0 {
            if let Destination::Write(sink) = &mut self.goal {
                sink(&self.scratch[..self.filled])?;
            }
            self.before += self.filled as u64;
            self.filled = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use model::extent::Extent;

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
    fn a_checksum_is_that_of_all_bytes() {
        let whole: Vec<u8> = (0..50_000_u64).map(|at| at as u8).collect();
        assert_eq!(checksum(crc32fast::Hasher::new(), 50_000, count_up), crc32fast::hash(&whole));
    }

    /// A file with one of everything: 10 bytes, 50 records of 40 bytes with a checksum, 5 bytes that depend
    /// on all others.
    fn write(out: &mut Pieces<'_, '_>, made: &Cell<u64>) -> io::Result<()> {
        out.bytes(b"0123456789")?;
        out.repeat(50, 41, |out, number| {
            out.summed(|out| {
                let mut sum = 0_u8;
                out.produce(40, |offset, part| {
                    count_up(number + offset, part);
                    made.set(made.get() + part.len() as u64);
                    sum = part.iter().fold(sum, |sum, byte| sum.wrapping_add(*byte));
                })?;
                Ok([sum])
            })
        })?;
        out.derived(5, 2000, |out| out.bytes(b"abcde"))
    }

    const LEN: u64 = 10 + 50 * 41 + 5;

    fn whole() -> Vec<u8> {
        let mut seen = Vec::new();
        let mut sink = |piece: &[u8]| {
            seen.extend_from_slice(piece);
            Ok(())
        };
        let mut scratch = vec![0; 7];
        let mut out = Pieces::new(&mut scratch, &mut sink);
        write(&mut out, &Cell::new(0)).unwrap();
        out.finish().unwrap();
        seen
    }

    /// Compares ranges of a file; also returns how many record bytes were generated.
    fn compared(ranges: &[(u64, u64)], file: &[u8], effort: u64) -> (ComparisonResult, u64) {
        let ranges: Vec<Extent> = ranges.iter().map(|&(offset, len)| Extent { offset, len }).collect();
        let parts = ranges.iter().map(|range| &file[range.offset as usize..range.end() as usize]);
        let bytes = parts.collect::<Vec<_>>().concat();
        let (mut scratch, made) = ([0; 16], Cell::new(0));
        let mut out = Pieces::comparing(FileParts { ranges: &ranges, bytes: &bytes }, effort, &mut scratch);
        assert!(write(&mut out, &made).is_err(), "it ends where the last part does");
        (out.compared().unwrap(), made.get())
    }

    #[test]
    fn comparing_a_part_generates_little_else() {
        let file = whole();
        assert_eq!(file.len() as u64, LEN);
        for offset in 0..LEN {
            for len in [1, 2, 40, 41, 42, 300].into_iter().filter(|len| offset + len <= LEN) {
                let (seen, made) = compared(&[(offset, len)], &file, u64::MAX);
                assert_eq!(seen, ComparisonResult { bytes: len, wrong: None }, "{len} bytes at {offset}");
                // What is needed, and one record again for its checksum.
                assert!(made <= 2 * len + 40, "{made} bytes were made for {len} at {offset}");
            }
        }
        let apart = [(2000, 60), (3, 9), (700, 1), (0, 4)];
        assert_eq!(compared(&apart, &file, u64::MAX).0, ComparisonResult { bytes: 74, wrong: None });
    }

    #[test]
    fn expensive_comparisons_are_skipped_and_not_counted() {
        let file = whole();
        assert_eq!(compared(&[(0, LEN)], &file, 1999).0.bytes, LEN - 5);
        assert_eq!(compared(&[(0, LEN)], &file, 39).0.bytes, LEN - 5 - 50);
        assert_eq!(compared(&[(LEN - 5, 5)], &file, 0).0, ComparisonResult::default());
    }

    #[test]
    fn one_wrong_byte_is_found_at_any_offset() {
        for offset in 0..LEN {
            let mut file = whole();
            file[offset as usize] ^= 0x10;
            let (expected, found) = (file[offset as usize] ^ 0x10, file[offset as usize]);
            for range in [(0, LEN), (offset, 1), (offset.saturating_sub(20), 21.min(offset + 1))] {
                let wrong = compared(&[range], &file, u64::MAX).0.wrong;
                assert_eq!(wrong, Some(WrongByte { offset, expected: Some(expected), found }));
            }
        }
    }
}
