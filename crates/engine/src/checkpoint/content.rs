//! The content of checkpoint files: incompressible bytes that follow from the run's seed, the moment and the file, in
//! blocks that each carry a stamp of the checkpoint, file and offset they belong to. So any byte can be checked on
//! reading without storing anything, and a block in the wrong place shows where it comes from.

use format::Content;
use model::checkpoint::manifest::Moment;
use model::order::mix;

/// Every block of this many bytes carries a stamp.
pub(super) const BLOCK: usize = 4096;
const STAMP: usize = 40;
const MAGIC: u64 = u64::from_le_bytes(*b"feedline");

/// The content of one file of one checkpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileContent {
    content: Content,
    moment: Moment,
    /// The number of the file in its checkpoint.
    file: u64,
}

impl FileContent {
    pub(super) fn new(seed: u64, moment: Moment, file: u64) -> FileContent {
        FileContent { content: Content::new(mix(mix(seed, moment.epoch), moment.step)), moment, file }
    }

    /// Fills `out` with the bytes from `offset` on, which must be a multiple of the block size.
    pub(super) fn fill(&self, offset: u64, out: &mut [u8]) {
        self.content.fill(self.file, offset, out);
        for (block, at) in out.chunks_mut(BLOCK).zip((offset..).step_by(BLOCK)) {
            let stamp = self.stamp(at);
            let bytes = block.len().min(STAMP);
            block[..bytes].copy_from_slice(&stamp[..bytes]);
        }
    }

    /// Compares bytes from `offset` on, a multiple of the block size, with the expected ones; `scratch` has the same
    /// length. The error describes the difference.
    pub(super) fn check(&self, offset: u64, bytes: &[u8], scratch: &mut [u8]) -> Result<(), String> {
        let expected = &mut scratch[..bytes.len()];
        self.fill(offset, expected);
        if bytes == expected {
            return Ok(());
        }
        let at = bytes.iter().zip(expected.iter()).position(|(there, should)| there != should).unwrap_or(0);
        let block = at / BLOCK * BLOCK;
        let place = offset + at as u64;
        match read_stamp(&bytes[block..]) {
            Some((moment, file, from))
                if (moment, file, from) != (self.moment, self.file, offset + block as u64) =>
            {
                Err(format!(
                    "byte {place} belongs to another place: {}, file {file}, offset {from}",
                    moment.folder()
                ))
            }
            _ => Err(format!("byte {place} is not what was saved")),
        }
    }

    fn stamp(&self, offset: u64) -> [u8; STAMP] {
        let words = [MAGIC, self.moment.epoch, self.moment.step, self.file, offset];
        let mut stamp = [0; STAMP];
        for (place, word) in stamp.chunks_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        stamp
    }
}

/// The checkpoint, file and offset in a block's stamp, if it carries one.
fn read_stamp(block: &[u8]) -> Option<(Moment, u64, u64)> {
    let (words, _) = block.get(..STAMP)?.as_chunks::<8>();
    let word = |place: usize| u64::from_le_bytes(words[place]);
    (word(0) == MAGIC).then(|| (Moment { epoch: word(1), step: word(2) }, word(3), word(4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Moment = Moment { epoch: 2, step: 30 };

    fn bytes(content: &FileContent, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        content.fill(offset, &mut out);
        out
    }

    #[test]
    fn the_bytes_of_a_file_do_not_depend_on_how_it_is_split() {
        let content = FileContent::new(1, HERE, 5);
        let whole = bytes(&content, 0, 3 * BLOCK + 17);
        let parts = [bytes(&content, 0, BLOCK), bytes(&content, BLOCK as u64, 2 * BLOCK + 17)].concat();
        assert!(whole == parts);
        let mut scratch = vec![0; whole.len()];
        assert_eq!(content.check(0, &whole, &mut scratch), Ok(()));
    }

    #[test]
    fn differences_are_described() {
        let content = FileContent::new(1, HERE, 5);
        let mut scratch = vec![0; 4 * BLOCK];
        let mut flipped = bytes(&content, 0, 2 * BLOCK);
        flipped[BLOCK + 100] ^= 1;
        assert_eq!(
            content.check(0, &flipped, &mut scratch),
            Err(format!("byte {} is not what was saved", BLOCK + 100))
        );
        let stale = bytes(&FileContent::new(1, Moment { epoch: 2, step: 20 }, 5), 0, BLOCK);
        assert_eq!(
            content.check(0, &stale, &mut scratch),
            Err("byte 16 belongs to another place: global_epoch2_step20, file 5, offset 0".to_owned())
        );
        let shifted = bytes(&content, BLOCK as u64, BLOCK);
        assert!(content.check(0, &shifted, &mut scratch).unwrap_err().contains("offset 4096"));
        assert!(bytes(&FileContent::new(2, HERE, 5), 0, BLOCK) != bytes(&content, 0, BLOCK));
    }
}
