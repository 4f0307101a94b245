//! Which pages of mapped files were touched in an epoch. Of many, a uniform sample of pieces of the files is kept.

use std::collections::HashMap;

use super::visits::FileKey;
use crate::layout::file_hash;

const PAGE: u64 = 4096;
/// What one fault maps at most: a huge page, if that is how the file is cached.
pub(super) const PIECE: u64 = 2 << 20;
/// Pieces kept.
const MOST: usize = 65_536;

/// One bit per page.
type PageBits = [u64; (PIECE / PAGE / 64) as usize];

/// Pages of files.
#[derive(Debug, Default)]
pub(super) struct TouchedPages {
    pieces: HashMap<(FileKey, u64), PageBits>,
    /// Leading zero bits that the hash of a piece must have.
    bits: u32,
}

fn hash(file: FileKey, piece: u64) -> u64 {
    file_hash(file.1 ^ file_hash(piece ^ 0x2545_f491))
}

impl TouchedPages {
    /// A page was touched.
    pub(super) fn touch(&mut self, file: FileKey, offset: u64) {
        let number = offset / PIECE;
        if hash(file, number).leading_zeros() < self.bits {
            return;
        }
        let page = offset % PIECE / PAGE;
        let piece = self.pieces.entry((file, number)).or_default();
        piece[page as usize / 64] |= 1 << (page % 64);
        while self.pieces.len() > MOST {
            self.bits += 1;
            let bits = self.bits;
            self.pieces.retain(|(file, number), _| hash(*file, *number).leading_zeros() >= bits);
        }
    }

    /// Bytes of touched pages, and of the pieces that they are in.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let pages: u64 = self.pieces.values().flatten().map(|word| u64::from(word.count_ones())).sum();
        let scale = |bytes: u64| bytes.saturating_mul(1 << self.bits.min(63));
        (scale(pages * PAGE), scale(self.pieces.len() as u64 * PIECE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_count_once() {
        let mut pages = TouchedPages::default();
        for offset in [0, 0, PAGE, 100 * PAGE, PIECE - PAGE, PIECE, 3 * PIECE + PAGE] {
            pages.touch((1, 7), offset);
        }
        pages.touch((1, 8), 0);
        assert_eq!(pages.bytes(), (7 * PAGE, 4 * PIECE));
        assert_eq!(TouchedPages::default().bytes(), (0, 0));
    }

    #[test]
    fn a_sample_stands_for_many_pages() {
        let mut pages = TouchedPages::default();
        for number in 0..1_000_000 {
            pages.touch((1, number % 100), number / 100 * PIECE + PAGE * (number % 7));
        }
        assert!(pages.pieces.len() <= MOST && pages.pieces.len() > MOST / 4);
        let (of_pages, of_pieces) = pages.bytes();
        let error = |bytes: u64, each: u64| (bytes as f64 / (1e6 * each as f64) - 1.0).abs();
        assert!(error(of_pages, PAGE) < 0.03 && error(of_pieces, PIECE) < 0.03, "{of_pages} {of_pieces}");
    }
}
