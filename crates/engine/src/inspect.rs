//! The contents of a file, found by reading it as a run would: the metadata that the format needs, and nothing else.

use std::ops::Range;

use format::{Extent, FileFacts, Format, SourceFile};
use model::names::Name;
use store::{Store, StoreError};

use crate::asking::{Metadata, TargetFile};
use crate::file_reader::{AskError, FileReader};

/// A file that is inspected.
pub struct Inspection<'a> {
    format: &'a dyn Format,
    file: TargetFile<'a>,
    reader: FileReader<'a>,
    metadata: Metadata,
}

impl std::fmt::Debug for Inspection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspection").field("file", &self.file).finish_non_exhaustive()
    }
}

impl<'a> Inspection<'a> {
    /// Opens the file of this name.
    pub fn new(
        store: &'a dyn Store,
        format: &'a dyn Format,
        name: &'a Name,
    ) -> Result<Inspection<'a>, AskError> {
        let missing = || StoreError::Missing { name: name.to_string() };
        let bytes = store.files().size(name)?.ok_or_else(missing)?;
        let file = TargetFile { format: format.name(), name, bytes };
        Ok(Inspection { format, file, reader: FileReader::new(store)?, metadata: Metadata::default() })
    }

    /// Length of the file.
    pub fn bytes(&self) -> u64 {
        self.file.bytes
    }

    /// What the file's metadata states.
    pub fn facts(&mut self) -> Result<FileFacts, AskError> {
        let format = self.format;
        self.reader.ask(self.file, &mut self.metadata, |look| format.inspect(look))
    }

    /// The reads that fetch some of the `held` samples.
    pub fn reads(&mut self, samples: &Range<u64>, held: u64) -> Result<Vec<Extent>, AskError> {
        let format = self.format;
        self.reader.ask(self.file, &mut self.metadata, |look| {
            let mut reads = Vec::new();
            format.reads(SourceFile::Foreign { look, samples: held }, samples.clone(), &mut reads)?;
            Ok(reads)
        })
    }
}
