//! What is known about folders before they are listed, from an interrupted listing or from the previous catalog. A
//! folder whose modification time is unchanged holds the same names, so it is not listed again.

use std::collections::HashMap;

use model::catalog::Catalog;
use store::MappedFile;

use super::ScanError;
use super::journal::{FolderRecord, FolderRecordPosition};

pub(super) struct EarlierListing {
    /// Records of the journal by path.
    pub(super) finished: HashMap<Vec<u8>, FolderRecordPosition>,
    pub(super) catalog: Option<Catalog<MappedFile>>,
}

impl EarlierListing {
    /// The journal's record of this folder, if it is still valid.
    pub(super) fn in_journal(&self, path: &[u8], mtime_ns: i64) -> Option<FolderRecordPosition> {
        self.finished.get(path).copied().filter(|finished| finished.mtime_ns == mtime_ns)
    }

    /// The modification times for which there is a record of this folder.
    pub(super) fn times(&self, path: &[u8]) -> Vec<i64> {
        let in_journal = self.finished.get(path).map(|finished| finished.mtime_ns);
        let catalog = self.catalog.as_ref();
        let in_catalog = catalog.and_then(|catalog| catalog.folder(catalog.find_folder(path).ok()?));
        in_journal.into_iter().chain(in_catalog.map(|folder| folder.mtime_ns)).collect()
    }

    /// The catalog's record of this folder, if it is still valid. If the catalog is damaged here, the folder is listed
    /// again.
    pub(super) fn in_catalog(&self, path: &[u8], mtime_ns: i64) -> Option<FolderRecord> {
        let catalog = self.catalog.as_ref()?;
        let at = catalog.find_folder(path).ok()?;
        if catalog.folder(at)?.mtime_ns != mtime_ns {
            return None;
        }
        let folder = catalog.encoded(at).ok()?;
        Some(FolderRecord { path: path.to_vec(), mtime_ns, subfolders: subfolders(catalog, path), folder })
    }
}

/// The names of the folders directly below `path`.
fn subfolders(catalog: &Catalog<MappedFile>, path: &[u8]) -> Vec<Vec<u8>> {
    let mut below = path.to_vec();
    if !path.is_empty() {
        below.push(b'/');
    }
    let first = catalog.find_folder(&below).unwrap_or_else(|at| at);
    (first..catalog.folder_count())
        .map_while(|at| catalog.folder(at)?.path.strip_prefix(below.as_slice()))
        .filter(|rest| !rest.is_empty() && !rest.contains(&b'/'))
        .map(<[u8]>::to_vec)
        .collect()
}

/// The path of `name` in the folder `path`, both relative to the root.
pub(super) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

/// An error that names a folder or file of the tree.
pub(super) fn failed(
    operation: &'static str,
    root: &std::path::Path,
    path: &[u8],
    cause: std::io::Error,
) -> ScanError {
    ScanError::io(operation, &whole(root, path), cause)
}

/// The full path of something in the tree, for messages.
pub(super) fn whole(root: &std::path::Path, path: &[u8]) -> std::path::PathBuf {
    use std::os::unix::ffi::OsStrExt;

    if path.is_empty() { root.to_owned() } else { root.join(std::ffi::OsStr::from_bytes(path)) }
}
