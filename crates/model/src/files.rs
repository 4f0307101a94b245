//! The files of a split by number, wherever their names come from: computed by DLIO's scheme, or listed in a catalog.
//! Nobody holds a list in memory.

use crate::names::Name;
use crate::plan::{FileBytes, Split};

/// Files that can be asked for by number.
pub trait FileList: Send + Sync {
    /// Writes the name of file `index`, relative to the data folder, and returns its size.
    fn entry(&self, index: u64, name: &mut Name) -> Result<u64, String>;
}

/// Names by rule, sizes by law.
#[derive(Clone, Copy, Debug)]
pub struct Computed<'a> {
    pub split: &'a Split,
    pub file_bytes: &'a FileBytes,
}

impl FileList for Computed<'_> {
    fn entry(&self, index: u64, name: &mut Name) -> Result<u64, String> {
        self.split.names.write(index, name);
        Ok(self.file_bytes.of(self.split.first_file + index))
    }
}
