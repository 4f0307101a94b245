//! The files of a split by number, with names computed by DLIO's scheme or read from a catalog. No list of names is
//! held in memory.

use crate::names::{Name, Pattern};
use crate::plan::{FileBytes, Split};

/// Files that can be looked up by number.
pub trait FileList: Send + Sync {
    /// Writes the name of file `index`, relative to the data folder, and returns its size.
    fn entry(&self, index: u64, name: &mut Name) -> Result<u64, String>;
}

/// Computed names, with sizes from a table.
#[derive(Clone, Debug)]
pub struct Computed<'a> {
    pattern: Pattern,
    first_file: u64,
    file_bytes: &'a FileBytes,
}

impl<'a> Computed<'a> {
    /// The files of a split; the table has the size of the first one at `first_file`.
    pub(crate) fn new(split: &Split, first_file: u64, file_bytes: &'a FileBytes) -> Computed<'a> {
        Computed { pattern: split.names.pattern(), first_file, file_bytes }
    }
}

impl FileList for Computed<'_> {
    fn entry(&self, index: u64, name: &mut Name) -> Result<u64, String> {
        self.pattern.write(index, name);
        Ok(self.file_bytes.of(self.first_file + index))
    }
}
