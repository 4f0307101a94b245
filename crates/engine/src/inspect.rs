//! What a file holds, found by reading it the way a run would: looks where the format asks for them, and nothing else.

use std::ops::Range;

use format::{Extent, Facts, File, Format, Seen};
use model::names::Name;
use store::{Lane, Store, StoreError, Traffic};

use crate::asking::{AskError, Cost, Subject, ask};

/// A file that is looked into.
pub struct Inspection<'a> {
    format: &'a dyn Format,
    file: Subject<'a>,
    lane: Box<dyn Lane + 'a>,
    seen: Seen,
}

impl std::fmt::Debug for Inspection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspection").field("file", &self.file).finish_non_exhaustive()
    }
}

impl<'a> Inspection<'a> {
    /// Begins to look into the file of that name.
    pub fn new(
        store: &'a dyn Store,
        format: &'a dyn Format,
        name: &'a Name,
    ) -> Result<Inspection<'a>, AskError> {
        let missing = || StoreError::Missing { name: name.to_string() };
        let bytes = store.files().size(name)?.ok_or_else(missing)?;
        let file = Subject { format: format.name(), name, bytes, reader: 0 };
        Ok(Inspection { format, file, lane: store.lane(Traffic::looks())?, seen: Seen::default() })
    }

    /// Length of the file.
    pub fn bytes(&self) -> u64 {
        self.file.bytes
    }

    /// What the file says about itself.
    pub fn facts(&mut self) -> Result<Facts, AskError> {
        let format = self.format;
        ask(&mut *self.lane, self.file, &mut self.seen, &mut Cost::default(), |look| format.inspect(look))
    }

    /// The reads that bring some of the `held` samples.
    pub fn reads(&mut self, samples: &Range<u64>, held: u64) -> Result<Vec<Extent>, AskError> {
        let format = self.format;
        ask(&mut *self.lane, self.file, &mut self.seen, &mut Cost::default(), |look| {
            let mut reads = Vec::new();
            format.reads(File::Foreign { look, samples: held }, samples.clone(), &mut reads)?;
            Ok(reads)
        })
    }
}
