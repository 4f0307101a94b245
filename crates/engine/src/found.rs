//! The sizes of existing files whose names are computed, taken as found: every file is examined once, in parallel,
//! before a run. A store that lists names together with sizes is listed instead, once by all members together. The run
//! then checks each file that it opens against its size, like that of a generated file.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use format::Format;
use model::names::{Name, Pattern};
use model::plan::{FileBytes, Split};
use store::{SizeListing, Store, StoreError};
use thiserror::Error;

use crate::events::Events;
use crate::generate::census;
use crate::listed::{NumberedListing, of_all};
use crate::stop::Stop;
use crate::world::{EarlyEnd, Exchange, agreed};

/// Requests in flight at once: metadata operations of network file systems are slow.
const AT_ONCE: u64 = 32;
/// Files that a thread takes at a time.
const STRIDE: u64 = 1024;

/// Why existing files are not a complete data set.
#[derive(Debug, Error)]
pub enum FindError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{name} does not exist")]
    Missing { name: String },
    #[error("{name} is empty")]
    Empty { name: String },
    #[error("{name} has {bytes} bytes, but its samples need at least {least}")]
    TooShort { name: String, bytes: u64, least: u64 },
    #[error("{folder}/ holds {there} files named like {example}, but the data set has {planned}")]
    Surplus { folder: String, there: u64, planned: u64, example: String },
    #[error("interrupted")]
    Interrupted,
    /// Another member ended early.
    #[error(transparent)]
    Elsewhere(Box<EarlyEnd>),
}

impl From<EarlyEnd> for FindError {
    fn from(ended: EarlyEnd) -> FindError {
        FindError::Elsewhere(Box::new(ended))
    }
}

/// Returns the sizes of the files of a split that are read. An error names the first file that is missing, empty or has
/// fewer than `least` bytes. All members call it.
pub fn find_sizes(
    store: &dyn Store,
    format: &dyn Format,
    split: &Split,
    least: u64,
    world: &dyn Exchange,
    stop: &Stop,
    events: &Events,
) -> Result<FileBytes, FindError> {
    let surplus = |there| {
        let (folder, planned, example) = (split.names.folder.clone(), split.names.count, split.names.of(0));
        FindError::Surplus { folder, there, planned, example }
    };
    if store.files().lists_sizes() != SizeListing::None {
        let (sizes, there) = listed_sizes(store, split, world, stop)?;
        let sizes = usable(store, split, least, sizes)?;
        events.counters().add_files(split.files, 0);
        return if there > split.names.count { Err(surplus(there)) } else { Ok(sizes) };
    }
    let search = SizeSearch {
        store,
        pattern: split.names.pattern(),
        files: split.files,
        least,
        stop,
        events,
        next: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        found: Mutex::default(),
        failure: Mutex::default(),
    };
    let sizes = search.run()?;
    let there = census(store, &split.names, format)?.matching;
    if there > split.names.count { Err(surplus(there)) } else { Ok(sizes) }
}

/// A file that was not listed.
const NOT_THERE: u64 = u64::MAX;

/// The sizes of all files of a split by a listing, and the number of files that are named like them.
fn listed_sizes(
    store: &dyn Store,
    split: &Split,
    world: &dyn Exchange,
    stop: &Stop,
) -> Result<(Vec<u64>, u64), FindError> {
    let listing = NumberedListing::new(store.files(), &split.names, &[""]);
    let part = listing.part(world.member(), world);
    let mut own = vec![NOT_THERE; (part.end - part.start) as usize];
    let listed = listing.list(&part, stop, &mut |found| {
        let position = listing.position(found.index);
        if part.contains(&position) {
            own[(position - part.start) as usize] = found.bytes;
        }
    });
    let strays = match listed {
        Ok(_) if stop.wished() => Err(FindError::Interrupted),
        listed => listed.map_err(FindError::from),
    };
    let strays = agreed(world, strays, stop)?;
    let own: Vec<u8> = std::iter::once(strays).chain(own).flat_map(u64::to_le_bytes).collect();
    let (mut sizes, mut there) = (vec![NOT_THERE; split.names.count as usize], 0);
    for (member, all) in (0..).zip(of_all(world, own, stop)?) {
        let mut numbers =
            all.chunks_exact(8).filter_map(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        there += numbers.next().unwrap_or(0);
        for (position, bytes) in listing.part(member, world).zip(numbers) {
            there += u64::from(bytes != NOT_THERE);
            if let Some(size) = sizes.get_mut(listing.at_position(position) as usize) {
                *size = bytes;
            }
        }
    }
    Ok((sizes, there))
}

/// The sizes of the files that are read, or the first one that cannot be used.
fn usable(store: &dyn Store, split: &Split, least: u64, mut sizes: Vec<u64>) -> Result<FileBytes, FindError> {
    sizes.truncate(split.files as usize);
    let unusable = |bytes: &u64| *bytes == NOT_THERE || *bytes == 0 || *bytes < least;
    let Some(file) = sizes.iter().position(unusable) else { return Ok(shortened(sizes)) };
    let mut name = Name::default();
    split.names.pattern().write(file as u64, &mut name);
    let name = store.files().shown(&name);
    Err(match sizes[file] {
        NOT_THERE => FindError::Missing { name },
        0 => FindError::Empty { name },
        bytes => FindError::TooShort { name, bytes, least },
    })
}

/// The threads that examine the files of a split, and what they share.
struct SizeSearch<'a> {
    store: &'a dyn Store,
    pattern: Pattern,
    files: u64,
    /// The fewest bytes of a file.
    least: u64,
    stop: &'a Stop,
    events: &'a Events,
    next: AtomicU64,
    failed: AtomicBool,
    /// The sizes of each stride, by its first file.
    found: Mutex<BTreeMap<u64, FileBytes>>,
    /// The failure with the lowest file number, so that the message does not depend on thread timing.
    failure: Mutex<Option<(u64, FindError)>>,
}

impl SizeSearch<'_> {
    fn run(self) -> Result<FileBytes, FindError> {
        std::thread::scope(|scope| {
            // This thread examines files, too, so a thread that cannot be started is not an error.
            for _ in 1..AT_ONCE.min(self.files.div_ceil(STRIDE)) {
                let work = || self.work();
                let _ = std::thread::Builder::new().name("sizes".to_owned()).spawn_scoped(scope, work);
            }
            self.work();
        });
        if self.stop.wished() {
            return Err(FindError::Interrupted);
        }
        match self.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, failure)) => Err(failure),
            None => {
                let strides = self.found.into_inner().unwrap_or_else(PoisonError::into_inner);
                Ok(joined(strides, self.files))
            }
        }
    }

    /// Takes strides until none is left. After a failure no thread takes another one, but all finish theirs: strides
    /// are taken in order, so the first failure is always found.
    fn work(&self) {
        let mut name = Name::default();
        // Relaxed, here and below: the counter and the flag publish no other data.
        while !self.failed.load(Ordering::Relaxed) && !self.stop.wished() {
            let first = self.next.fetch_add(STRIDE, Ordering::Relaxed);
            if first >= self.files {
                return;
            }
            let end = (first + STRIDE).min(self.files);
            match self.sizes(first, end, &mut name) {
                Ok(sizes) => {
                    let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.insert(first, sizes);
                }
                Err(failure) => {
                    self.failed.store(true, Ordering::Relaxed);
                    let mut earlier = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                    if earlier.as_ref().is_none_or(|(file, _)| failure.0 < *file) {
                        *earlier = Some(failure);
                    }
                }
            }
        }
    }

    /// The sizes of a range of files, or the first one that cannot be used.
    fn sizes(&self, first: u64, end: u64, name: &mut Name) -> Result<FileBytes, (u64, FindError)> {
        let mut sizes = Vec::with_capacity((end - first) as usize);
        for file in first..end {
            self.pattern.write(file, name);
            let shown = || self.store.files().shown(name);
            let size = match self.store.files().size(name) {
                Ok(Some(0)) => Err(FindError::Empty { name: shown() }),
                Ok(Some(bytes)) if bytes < self.least => {
                    Err(FindError::TooShort { name: shown(), bytes, least: self.least })
                }
                Ok(Some(size)) => Ok(size),
                Ok(None) => Err(FindError::Missing { name: shown() }),
                Err(cause) => Err(cause.into()),
            };
            sizes.push(size.map_err(|failure| (file, failure))?);
            self.events.counters().add_files(1, 0);
        }
        Ok(shortened(sizes))
    }
}

/// Equal sizes need no table.
fn shortened(sizes: Vec<u64>) -> FileBytes {
    match sizes.first() {
        Some(first) if sizes.iter().all(|size| size == first) => FileBytes::Same(*first),
        _ => FileBytes::Each(sizes),
    }
}

/// The sizes of all strides of a split with this number of files.
fn joined(strides: BTreeMap<u64, FileBytes>, files: u64) -> FileBytes {
    let mut uniform = strides.values().map(|stride| match stride {
        FileBytes::Same(size) => Some(*size),
        FileBytes::Each(_) => None,
    });
    let first = uniform.next().unwrap_or(Some(0));
    if let Some(size) = first.filter(|_| uniform.all(|stride| stride == first)) {
        return FileBytes::Same(size);
    }
    let mut all = Vec::with_capacity(files as usize);
    for (start, stride) in strides {
        match stride {
            FileBytes::Same(size) => all.resize((start + STRIDE).min(files) as usize, size),
            FileBytes::Each(sizes) => all.extend(sizes),
        }
    }
    FileBytes::Each(all)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::world::Solo;
    use model::names::Names;
    use store::{Mode, Posix};

    const FILES: u64 = 2 * STRIDE + 5;

    /// A folder with files of these sizes, and their split.
    fn made(size: impl Fn(u64) -> usize) -> (tempfile::TempDir, Split) {
        let folder = tempfile::tempdir().unwrap();
        let names = Names {
            folder: "train".into(),
            prefix: "img".into(),
            count: FILES,
            subfolders: 0,
            suffix: "jpeg".into(),
        };
        fs::create_dir(folder.path().join("train")).unwrap();
        for file in 0..FILES {
            fs::write(folder.path().join(names.of(file)), vec![0; size(file)]).unwrap();
        }
        (folder, Split { names, files: FILES, samples_per_file: 1, first_file: 0, bytes: 0 })
    }

    fn found(folder: &tempfile::TempDir, split: &Split) -> Result<FileBytes, String> {
        let store = Posix::open(folder.path(), Mode::default()).unwrap();
        let format = format::plain("jpeg").unwrap();
        let (stop, events) = (Stop::default(), Events::default());
        let found = find_sizes(&store, &*format, split, 0, &Solo::new(), &stop, &events);
        assert!(found.is_err() || events.progress().files == split.files);
        found.map_err(|error| error.to_string().replace(&folder.path().display().to_string(), "."))
    }

    #[test]
    fn sizes_are_those_of_the_files() {
        let (folder, mut split) = made(|_| 7);
        assert_eq!(found(&folder, &split), Ok(FileBytes::Same(7)));
        // One different file in the middle, then in the first and the last stride.
        for odd in [STRIDE + 3, 0, FILES - 1] {
            let (folder, split) = made(|file| if file == odd { 9 } else { 7 });
            let expected = (0..FILES).map(|file| if file == odd { 9 } else { 7 }).collect();
            assert_eq!(found(&folder, &split), Ok(FileBytes::Each(expected)), "{odd}");
        }
        split.files = 3;
        assert_eq!(
            found(&folder, &split),
            Ok(FileBytes::Same(7)),
            "a run may read fewer files than there are"
        );
    }

    #[test]
    fn the_first_unusable_file_is_named() {
        let (folder, split) = made(|file| usize::from(file != STRIDE + 9));
        assert_eq!(found(&folder, &split).unwrap_err(), format!("./{} is empty", split.names.of(STRIDE + 9)));
        for file in [FILES - 1, STRIDE, 4] {
            fs::remove_file(folder.path().join(split.names.of(file))).unwrap();
            // The empty file comes before the last one.
            let (first, is) =
                if file < STRIDE + 9 { (file, "does not exist") } else { (STRIDE + 9, "is empty") };
            assert_eq!(found(&folder, &split).unwrap_err(), format!("./{} {is}", split.names.of(first)));
        }
    }

    #[test]
    fn more_files_than_the_data_set_has_are_an_error() {
        let (folder, split) = made(|_| 7);
        fs::write(folder.path().join("train/img_9999_of_2053.jpeg"), "x").unwrap();
        assert_eq!(
            found(&folder, &split).unwrap_err(),
            "train/ holds 2054 files named like train/img_0000_of_2053.jpeg, but the data set has 2053"
        );
    }
}
