//! Questions about existing files that a format answers from their metadata: which bytes must be read before it can
//! answer, and which have been read so far. Does no I/O itself.

use format::{Extent, Look, Obstacle, ReadPieces};
use model::names::Name;
use thiserror::Error;

/// Limits on the reads for one question, and on the bytes kept of one file. No real training file comes near them.
const MOST_READS: u64 = 10_000;
const MOST_SEEN: u64 = 1 << 30;

/// Why a question cannot be answered from metadata.
#[derive(Debug, Error)]
pub enum MetadataError {
    #[error("{name}: {cause}")]
    Format { name: String, cause: Obstacle },
    #[error("{name}: finding its samples takes more than {MOST_READS} reads or {} MiB", MOST_SEEN >> 20)]
    Endless { name: String },
}

/// The outcome of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParseStep<T> {
    Answer(T),
    /// These bytes must be read first.
    Read(Extent),
}

/// The file that a question is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetFile<'a> {
    pub(crate) format: &'static str,
    pub(crate) name: &'a Name,
    pub(crate) bytes: u64,
}

/// The metadata of one file that has been read. Its memory is reused from file to file.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    seen: ReadPieces,
    /// Reads since the last answer.
    reads: u64,
}

impl Metadata {
    /// Drops everything, for the next file.
    pub(crate) fn clear(&mut self) {
        self.seen.clear();
        self.reads = 0;
    }

    /// Asks a question about the file. Bytes that were added before are not requested again.
    pub(crate) fn ask<T>(
        &mut self,
        file: TargetFile<'_>,
        question: impl FnOnce(&Look<'_>) -> Result<T, Obstacle>,
    ) -> Result<ParseStep<T>, MetadataError> {
        let name = || file.name.to_string();
        match question(&Look::new(file.format, file.bytes, &self.seen)) {
            Ok(answer) => {
                self.reads = 0;
                Ok(ParseStep::Answer(answer))
            }
            Err(Obstacle::Unread(range)) => {
                let is_endless =
                    self.reads == MOST_READS || self.seen.total().saturating_add(range.len) > MOST_SEEN;
                self.reads += 1;
                if is_endless {
                    Err(MetadataError::Endless { name: name() })
                } else {
                    Ok(ParseStep::Read(range))
                }
            }
            Err(cause) => Err(MetadataError::Format { name: name(), cause }),
        }
    }

    /// Adds bytes that were read at `offset`.
    pub(crate) fn add(&mut self, offset: u64, bytes: &[u8]) {
        self.seen.insert(offset, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks a question that takes reads of these lengths, one after the other; returns how many were made.
    fn reads(metadata: &mut Metadata, lengths: impl IntoIterator<Item = u64>) -> Result<u64, MetadataError> {
        let name = Name::new("train/a").unwrap();
        let file = TargetFile { format: "npz", name: &name, bytes: u64::MAX };
        let (mut lengths, mut made) = (lengths.into_iter(), 0);
        loop {
            let unread = lengths.next().map(|len| Obstacle::Unread(Extent { offset: 0, len }));
            match metadata.ask(file, |_| unread.map_or(Ok(()), Err))? {
                ParseStep::Answer(()) => return Ok(made),
                ParseStep::Read(_) => made += 1,
            }
        }
    }

    #[test]
    fn bytes_are_requested_once() {
        let name = Name::new("train/a").unwrap();
        let file = TargetFile { format: "npz", name: &name, bytes: 100 };
        let mut metadata = Metadata::default();
        let both = |look: &Look<'_>| Ok((look.at(90, 2)?.to_vec(), look.at(10, 3)?.to_vec()));
        assert_eq!(metadata.ask(file, both).unwrap(), ParseStep::Read(Extent { offset: 90, len: 2 }));
        metadata.add(90, b"yz");
        assert_eq!(metadata.ask(file, both).unwrap(), ParseStep::Read(Extent { offset: 10, len: 3 }));
        metadata.add(10, b"abc");
        assert_eq!(metadata.ask(file, both).unwrap(), ParseStep::Answer((b"yz".to_vec(), b"abc".to_vec())));
        metadata.clear();
        assert_eq!(metadata.ask(file, both).unwrap(), ParseStep::Read(Extent { offset: 90, len: 2 }));
    }

    #[test]
    fn an_endless_question_is_an_error_but_many_questions_are_not() {
        let mut metadata = Metadata::default();
        for _ in 0..3 {
            assert_eq!(reads(&mut metadata, vec![1; 6_000]).unwrap(), 6_000);
        }
        assert_eq!(reads(&mut metadata, vec![1; 10_000]).unwrap(), MOST_READS);
        let error = reads(&mut metadata, vec![1; 10_001]).unwrap_err().to_string();
        assert_eq!(error, "train/a: finding its samples takes more than 10000 reads or 1024 MiB");
    }

    #[test]
    fn no_more_bytes_are_held_than_the_limit() {
        let mut metadata = Metadata::default();
        assert_eq!(reads(&mut metadata, [MOST_SEEN]).unwrap(), 1);
        metadata.add(0, &[7]);
        assert!(matches!(reads(&mut metadata, [MOST_SEEN]), Err(MetadataError::Endless { .. })));
        assert!(matches!(reads(&mut metadata, [u64::MAX]), Err(MetadataError::Endless { .. })));
    }
}
