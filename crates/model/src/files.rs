//! The files of a split by number, wherever their names come from: computed by DLIO's scheme, or listed in a catalog.
//! Nobody holds a list in memory.

use crate::names::{Name, Pattern};
use crate::plan::{FileBytes, Split};

/// Files that can be asked for by number.
pub trait FileList: Send + Sync {
    /// Writes the name of file `index`, relative to the data folder, and returns its size.
    fn entry(&self, index: u64, name: &mut Name) -> Result<u64, String>;
}

/// Names by rule, sizes by law.
#[derive(Clone, Debug)]
pub struct Computed<'a> {
    pattern: Pattern,
    first_file: u64,
    file_bytes: &'a FileBytes,
}

impl<'a> Computed<'a> {
    pub fn new(split: &Split, file_bytes: &'a FileBytes) -> Computed<'a> {
        Computed { pattern: split.names.pattern(), first_file: split.first_file, file_bytes }
    }
}

impl FileList for Computed<'_> {
    fn entry(&self, index: u64, name: &mut Name) -> Result<u64, String> {
        self.pattern.write(index, name);
        Ok(self.file_bytes.of(self.first_file + index))
    }
}
