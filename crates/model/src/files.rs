//! The files of a split by number, with names computed by DLIO's scheme or read from a catalog. No list of names is
//! held in memory.

use crate::names::{Name, Pattern};
use crate::objects::ObjectVersion;
use crate::plan::{FileBytes, Split};

/// What is known about a file before it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileEntry {
    pub bytes: u64,
    /// The version of an object that a catalog lists; files and computed names have none.
    pub version: Option<ObjectVersion>,
}

impl FileEntry {
    /// A file of this size, without a version.
    pub fn of_size(bytes: u64) -> FileEntry {
        FileEntry { bytes, version: None }
    }
}

/// Files that can be looked up by number.
pub trait FileList: Send + Sync {
    /// Writes the name of file `index`, relative to the data folder, and returns what is known about the file.
    fn entry(&self, index: u64, name: &mut Name) -> Result<FileEntry, String>;
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
    fn entry(&self, index: u64, name: &mut Name) -> Result<FileEntry, String> {
        self.pattern.write(index, name);
        Ok(FileEntry::of_size(self.file_bytes.of(self.first_file + index)))
    }
}
