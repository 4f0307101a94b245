//! Whether the folders of a catalog are still as they were when it was made: one query per folder, none per file. A
//! file that is modified in place changes its size but not its folder's time; that shows when it is read.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use model::catalog::Catalog;
use store::Listing;

use super::ScanError;
use super::known::{failed, whole};
use crate::stop::Stop;
use crate::world::{Exchange, agreed, shared};

/// Folders that a thread takes at a time.
const STRIDE: usize = 64;
/// Maximum number of changed folders that are named.
const NAMED: usize = 10;

/// The differences from the catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogChanges {
    /// Folders that were checked.
    pub folders: u64,
    /// Folders that differ.
    pub changed: u64,
    /// The first of them, in the order of the catalog.
    pub first: Vec<FolderChange>,
}

/// A folder that differs from the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderChange {
    pub path: PathBuf,
    /// The folder does not exist; otherwise entries in it were added, removed or renamed.
    pub gone: bool,
}

impl CatalogChanges {
    /// `found`: number and absence of changed folders, of which the first are named.
    fn new<B: AsRef<[u8]>>(
        root: &Path,
        catalog: &Catalog<B>,
        changed: u64,
        mut found: Vec<(usize, bool)>,
    ) -> CatalogChanges {
        found.sort_unstable();
        let first = found.iter().take(NAMED).filter_map(|(at, gone)| {
            Some(FolderChange { path: whole(root, catalog.folder(*at)?.path), gone: *gone })
        });
        CatalogChanges { folders: catalog.folder_count() as u64, changed, first: first.collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.changed == 0
    }

    /// Every folder differs: most likely the catalog belongs to another data set.
    pub fn all(&self) -> bool {
        self.changed == self.folders && self.folders > 0
    }
}

impl std::fmt::Display for FolderChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.path.display(), if self.gone { "is gone" } else { "has changed" })
    }
}

/// Checks every folder of the catalog below `root`. 0 threads means twice the number of cores.
pub(crate) fn changed_folders<B: AsRef<[u8]> + Sync>(
    root: &Path,
    catalog: &Catalog<B>,
    threads: usize,
    stop: &Stop,
) -> Result<CatalogChanges, ScanError> {
    let found = changed_of_share(root, catalog, threads, (0, 1), stop)?;
    Ok(CatalogChanges::new(root, catalog, found.len() as u64, found))
}

/// The same, with every member checking some of the folders. `place`: the paths of the catalog and of the root.
pub(super) fn changed_folders_together<B: AsRef<[u8]> + Sync>(
    (path, root): (&Path, &Path),
    catalog: &Catalog<B>,
    threads: usize,
    world: &dyn Exchange,
    stop: &Stop,
) -> Result<CatalogChanges, ScanError> {
    check_same(path, &catalog.digest(), world, stop)?;
    let share = (world.member() as usize, world.members() as usize);
    let mut found = agreed(world, changed_of_share(root, catalog, threads, share, stop), stop)?;
    let changed = found.len() as u64;
    found.truncate(NAMED);
    let parts: Vec<(u64, Vec<(usize, bool)>)> = shared(world, &(changed, found), stop)?;
    let changed = parts.iter().map(|(changed, _)| changed).sum();
    let first = parts.into_iter().flat_map(|(_, first)| first).collect();
    Ok(CatalogChanges::new(root, catalog, changed, first))
}

/// Checks that all members have the same catalog.
fn check_same(path: &Path, digest: &String, world: &dyn Exchange, stop: &Stop) -> Result<(), ScanError> {
    let all = shared(world, digest, stop)?;
    let shown = |member: u64| world.topology().shown(member);
    match (0..).zip(&all).find(|(_, other)| **other != all[0]) {
        Some((member, _)) => {
            Err(ScanError::OtherCatalog { path: path.to_owned(), here: shown(member), there: shown(0) })
        }
        None => Ok(()),
    }
}

/// Number and absence of each changed folder, in order, of one of several equal shares of the folders.
fn changed_of_share<B: AsRef<[u8]> + Sync>(
    root: &Path,
    catalog: &Catalog<B>,
    threads: usize,
    (share, shares): (usize, usize),
    stop: &Stop,
) -> Result<Vec<(usize, bool)>, ScanError> {
    let listing = &super::open_root(root)?;
    let check = CatalogCheck { listing, root_path: root, catalog, step: shares * STRIDE, stop };
    let next = AtomicUsize::new(share * STRIDE);
    let found: Mutex<Result<Vec<(usize, bool)>, ScanError>> = Mutex::new(Ok(Vec::new()));
    std::thread::scope(|scope| {
        let work = || {
            let part = check.work(&next);
            let mut all = found.lock().unwrap_or_else(PoisonError::into_inner);
            match (&mut *all, part) {
                (Ok(all), Ok(part)) => all.extend(part),
                (Ok(_), Err(error)) => *all = Err(error),
                (Err(_), _) => {}
            }
        };
        // This thread works, too, so a thread that cannot be started is not an error.
        for _ in 1..threads.min(catalog.folder_count().div_ceil(check.step)) {
            let _ = std::thread::Builder::new().name("checker".to_owned()).spawn_scoped(scope, work);
        }
        work();
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    if stop.wished() {
        return Err(ScanError::Interrupted);
    }
    found.sort_unstable();
    Ok(found)
}

struct CatalogCheck<'a, B> {
    listing: &'a dyn Listing,
    root_path: &'a Path,
    catalog: &'a Catalog<B>,
    /// The distance between the folders that are taken one after the other.
    step: usize,
    stop: &'a Stop,
}

impl<B: AsRef<[u8]>> CatalogCheck<'_, B> {
    /// Number and absence of each changed folder that this thread found.
    fn work(&self, next: &AtomicUsize) -> Result<Vec<(usize, bool)>, ScanError> {
        let mut changed = Vec::new();
        let count = self.catalog.folder_count();
        loop {
            // Relaxed: the counter only distributes numbers and publishes no other data.
            let start = next.fetch_add(self.step, Ordering::Relaxed);
            if start >= count || self.stop.wished() {
                return Ok(changed);
            }
            for at in start..(start + STRIDE).min(count) {
                if let Some(gone) = self.look(at)? {
                    changed.push((at, gone));
                }
            }
        }
    }

    /// Whether folder `at` is gone or changed; `None` if it is unchanged.
    fn look(&self, at: usize) -> Result<Option<bool>, ScanError> {
        let Some(folder) = self.catalog.folder(at) else { return Ok(Some(true)) };
        match self.listing.version(folder.path) {
            Ok(None) => Ok(Some(true)),
            Ok(Some(version)) => Ok((version != folder.mtime_ns).then_some(false)),
            Err(cause) => Err(failed("stat the folder", self.root_path, folder.path, cause)),
        }
    }
}
