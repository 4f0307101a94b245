//! The requests of Python's buffered reader (CPython 3.11, `Modules/_io/bufferedio.c`), replayed without data. It
//! must not know what is read.

use crate::Extent;

/// The reader's buffer: the file's `st_blksize`, which is 4096 on local file systems.
pub(crate) const BUFFER: u64 = 4096;

/// A buffered reader over a file of `len` bytes. Its system calls are appended to `reads`, except those in
/// `known`, which have already been made once each.
pub(crate) struct Buffered<'a> {
    len: u64,
    at: u64,
    /// The part of the file that is in the buffer.
    start: u64,
    end: u64,
    known: Vec<Extent>,
    reads: &'a mut Vec<Extent>,
}

impl<'a> Buffered<'a> {
    pub(crate) fn new(len: u64, known: Vec<Extent>, reads: &'a mut Vec<Extent>) -> Buffered<'a> {
        Buffered { len, at: 0, start: 0, end: 0, known, reads }
    }

    /// `seek` from the start of the file: keeps the buffer if the target is inside, unless it is used up.
    pub(crate) fn seek(&mut self, to: u64) {
        match self.at < self.end && (self.start..=self.end).contains(&to) {
            true => self.at = to,
            false => self.seek_anew(to),
        }
    }

    /// `seek` from the end of the file: discards the buffer.
    pub(crate) fn seek_anew(&mut self, to: u64) {
        (self.at, self.start, self.end) = (to, to, to);
    }

    /// `read` of `count` bytes: first from the buffer, then whole buffer lengths past it, then the rest
    /// through it.
    pub(crate) fn read(&mut self, count: u64) {
        let ahead = self.end - self.at;
        if count <= ahead {
            self.at += count;
            return;
        }
        let rest = count - ahead;
        let direct = rest - rest % BUFFER;
        self.request(self.end, direct);
        self.seek_anew(self.end.saturating_add(direct));
        if rest > direct {
            self.end = self.at.saturating_add(BUFFER).min(self.len).max(self.at);
            self.request(self.at, BUFFER);
            self.at = self.at.saturating_add(rest - direct).min(self.end);
        }
    }

    /// `read` to the end, in one request.
    pub(crate) fn read_all(&mut self) {
        self.request(self.end, self.len.saturating_sub(self.end));
        self.seek_anew(self.len);
    }

    fn request(&mut self, offset: u64, count: u64) {
        let len = count.min(self.len.saturating_sub(offset));
        let read = Extent { offset, len };
        match self.known.iter().position(|known| *known == read) {
            Some(place) => {
                self.known.swap_remove(place);
            }
            None if len > 0 => self.reads.push(read),
            None => {}
        }
    }
}

/// Appends the requests of a sequential reader that reads a file in pieces of `piece` bytes.
pub(crate) fn front_to_back(len: u64, piece: u64, reads: &mut Vec<Extent>) {
    let mut offset = 0;
    while offset < len {
        reads.push(Extent { offset, len: piece.min(len - offset) });
        offset += piece;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(len: u64, known: &[(u64, u64)], run: impl FnOnce(&mut Buffered<'_>)) -> Vec<(u64, u64)> {
        let mut reads = Vec::new();
        let known = known.iter().map(|&(offset, len)| Extent { offset, len }).collect();
        run(&mut Buffered::new(len, known, &mut reads));
        reads.iter().map(|read| (read.offset, read.len)).collect()
    }

    #[test]
    fn small_reads_fill_the_buffer_and_large_ones_pass_it() {
        let reads = requests(100_000, &[], |file| {
            file.read(6);
            file.seek(0);
            file.read(100);
            file.read(10_000);
            file.read(4096 + 2_188);
            file.read(1);
        });
        assert_eq!(reads, [(0, 4096), (4096, 4096), (8192, 4096), (12_288, 4096), (16_384, 4096)]);
    }

    #[test]
    fn a_seek_that_leaves_the_buffer_or_finds_it_used_up_reads_again() {
        let reads = requests(9000, &[], |file| {
            file.read(4096);
            file.seek(0);
            file.read(10);
            file.seek_anew(5);
            file.read(5);
            file.seek(8990);
            file.read(1);
            file.seek(8990);
            file.read_all();
        });
        assert_eq!(reads, [(0, 4096), (0, 4096), (5, 4096), (8990, 10), (9000, 0)][..4]);
    }

    #[test]
    fn known_requests_are_omitted_once() {
        let reads = requests(5000, &[(0, 4096)], |file| {
            file.read(1);
            file.seek_anew(0);
            file.read(1);
            file.seek_anew(4990);
            file.read_all();
        });
        assert_eq!(reads, [(0, 4096), (4990, 10)]);
    }
}
