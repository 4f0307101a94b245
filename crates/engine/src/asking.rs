//! Looks into files that somebody else wrote on a format's behalf: brings the bytes that it asks for until it can
//! answer, within bounds that no container which people train from comes near.

use format::{Look, Obstacle, Seen};
use model::ledger::Counted;
use model::names::Name;
use store::{Lane, StoreError};
use thiserror::Error;

use crate::cache::book;

/// Looks into one file and bytes held of it.
const MOST_LOOKS: u64 = 10_000;
const MOST_SEEN: u64 = 1 << 30;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum AskError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{name}: {cause}")]
    Format { name: String, cause: Obstacle },
    #[error("{name}: finding its samples takes more than {MOST_LOOKS} looks or {} MiB", MOST_SEEN >> 20)]
    Endless { name: String },
}

/// What the looks cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) bytes: u64,
    pub(crate) opens: u64,
    pub(crate) reads: u64,
    pub(crate) counted: Counted,
}

/// The file that a question is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) format: &'static str,
    pub(crate) name: &'a Name,
    pub(crate) bytes: u64,
    /// The reader of the lane that looks.
    pub(crate) reader: usize,
}

/// Asks until nothing more needs to be read for the answer. What is `seen` already is not read again.
pub(crate) fn ask<T>(
    lane: &mut dyn Lane,
    file: Subject<'_>,
    seen: &mut Seen,
    cost: &mut Cost,
    mut question: impl FnMut(&Look<'_>) -> Result<T, Obstacle>,
) -> Result<T, AskError> {
    for _ in 0..MOST_LOOKS {
        let unread = match question(&Look::new(file.format, file.bytes, seen)) {
            Ok(answer) => return Ok(answer),
            Err(Obstacle::Unread(extent)) => extent,
            Err(cause) => return Err(AskError::Format { name: file.name.to_string(), cause }),
        };
        if seen.total().saturating_add(unread.len) > MOST_SEEN {
            break;
        }
        let out = seen.add(unread.offset, unread.len as usize);
        let done = lane.look(file.reader, (file.name, file.bytes), unread.offset, out)?;
        cost.bytes += done.bytes;
        cost.opens += done.opens;
        cost.reads += done.reads;
        book(&mut cost.counted, done.probe, done.bytes);
    }
    Err(AskError::Endless { name: file.name.to_string() })
}
