//! A file mapped into memory for reading: its pages are those of the page cache, so that all readers and all processes
//! of a node share one copy, and only the parts that are accessed are loaded. Made for catalogs, not for the files of a
//! data set.

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::{Operation, StoreError};

/// The bytes of a file, as long as this value lives. It can be shared between threads.
#[derive(Debug)]
pub struct MappedFile {
    map: Mmap,
}

impl MappedFile {
    /// Maps the file as it is now. **The file must not be changed in place while it is mapped**: see the SAFETY
    /// argument inside.
    pub fn open(path: &Path) -> Result<MappedFile, StoreError> {
        let name = path.display().to_string();
        // Non-blocking, since opening a named pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|cause| StoreError::io(Operation::Open, &name, cause))?;
        let file = File::from(fd);
        let facts = file.metadata().map_err(|error| io(Operation::Stat, &name, &error))?;
        if facts.is_dir() {
            return Err(StoreError::Folder { name });
        }
        MappedFile::of(&file, &name)
    }

    /// Maps an open file, which must not be changed while it is mapped. `name` is for messages.
    pub fn of(file: &File, name: &str) -> Result<MappedFile, StoreError> {
        // SAFETY: a mapping is undefined behaviour if its bytes change while they are borrowed, and SIGBUS if the file
        // gets shorter. Files that are mapped here are written under another name, flushed, and renamed into place (see
        // engine/catalog), and nothing in feedline opens them for writing afterwards: a new catalog is a new file, and
        // the mapping keeps the old one alive; a copy of an object is in a file without a name. That leaves other
        // programs that write into the file on purpose; no reader of mapped memory can do anything against them, and
        // readers here check bounds and checksums at every use, so that changed bytes become errors.
        let map = unsafe { Mmap::map(file) }.map_err(|error| io(Operation::Read, name, &error))?;
        Ok(MappedFile { map })
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

fn io(operation: Operation, name: &str, error: &std::io::Error) -> StoreError {
    StoreError::io(operation, name, Errno::from_io_error(error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_file_when_it_was_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, b"before").unwrap();
        let mapped = MappedFile::open(&path).unwrap();
        std::fs::write(folder.path().join("y"), b"after").unwrap();
        std::fs::rename(folder.path().join("y"), &path).unwrap();
        assert_eq!(mapped.as_ref(), b"before");
        assert_eq!(MappedFile::open(&path).unwrap().as_ref(), b"after");
    }

    #[test]
    fn an_empty_file_is_empty_and_errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, b"").unwrap();
        assert!(MappedFile::open(&path).unwrap().as_ref().is_empty());
        let error = MappedFile::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("is a folder"), "{error}");
        let error = MappedFile::open(Path::new("/no/such/file")).unwrap_err().to_string();
        assert_eq!(error, "/no/such/file does not exist");
    }

    #[test]
    fn it_can_be_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<MappedFile>();
    }
}
