//! What a file holds, found by reading it the way a run would: looks where the format asks for them, and nothing else.

use std::ops::Range;

use format::{Extent, Facts, File, Format, Look, Obstacle, Seen};
use model::names::Name;
use store::{Lane, Store, StoreError};
use thiserror::Error;

/// The most that is held of one file while it is looked into.
const MOST_SEEN: u64 = 1 << 30;

#[derive(Debug, Error)]
pub enum InspectError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{name}: {cause}")]
    Format { name: String, cause: Obstacle },
    #[error("{name}: finding out what it holds takes more than {} MiB", MOST_SEEN >> 20)]
    TooMuch { name: String },
}

/// A file that is looked into.
pub struct Inspection<'a> {
    format: &'a dyn Format,
    name: &'a Name,
    lane: Box<dyn Lane + 'a>,
    seen: Seen,
    /// Length of the file.
    pub bytes: u64,
}

impl std::fmt::Debug for Inspection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspection")
            .field("name", &self.name)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl<'a> Inspection<'a> {
    /// Begins to look into the file of that name.
    pub fn new(
        store: &'a dyn Store,
        format: &'a dyn Format,
        name: &'a Name,
    ) -> Result<Inspection<'a>, InspectError> {
        let missing = || StoreError::Missing { name: name.to_string() };
        let bytes = store.size(name)?.ok_or_else(missing)?;
        Ok(Inspection { format, name, lane: store.lane(1), seen: Seen::default(), bytes })
    }

    /// What the file says about itself.
    pub fn facts(&mut self) -> Result<Facts, InspectError> {
        let format = self.format;
        self.ask(|look| format.inspect(look))
    }

    /// The reads that bring some of the `held` samples.
    pub fn reads(&mut self, samples: Range<u64>, held: u64) -> Result<Vec<Extent>, InspectError> {
        let format = self.format;
        self.ask(|look| {
            let mut reads = Vec::new();
            format.reads(File::Foreign { look, samples: held }, samples.clone(), &mut reads)?;
            Ok(reads)
        })
    }

    /// Asks until nothing more needs to be read for the answer.
    fn ask<T>(&mut self, question: impl Fn(&Look<'_>) -> Result<T, Obstacle>) -> Result<T, InspectError> {
        loop {
            let unread = match question(&Look::new(self.format.name(), self.bytes, &self.seen)) {
                Ok(answer) => return Ok(answer),
                Err(Obstacle::Unread(extent)) => extent,
                Err(cause) => return Err(InspectError::Format { name: self.name.to_string(), cause }),
            };
            if self.seen.total().saturating_add(unread.len) > MOST_SEEN {
                return Err(InspectError::TooMuch { name: self.name.to_string() });
            }
            let out = self.seen.add(unread.offset, unread.len as usize);
            self.lane.look(self.name, unread.offset, out)?;
        }
    }
}
