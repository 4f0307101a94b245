//! Which files of a data set exist already, with their right sizes and with their side files, and whether there are
//! others: from one listing, if the store lists names together with sizes.

use std::collections::BTreeSet;

use format::SideFile;
use model::names::Names;
use store::SizeListing;

use super::{GenerateError, Generation};
use crate::listed::{ListedFile, NumberedListing, of_all};
use crate::world::agreed;

/// A set of files, by their numbers in the data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PresentFiles {
    bits: Vec<u64>,
    others: Vec<OtherFiles>,
}

/// Files in the folders of a split that are none of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OtherFiles {
    folder: String,
    /// Files that the split should have.
    planned: u64,
    others: u64,
    example: Option<String>,
}

impl PresentFiles {
    fn all(files: u64) -> PresentFiles {
        PresentFiles { bits: vec![u64::MAX; files.div_ceil(64) as usize], others: Vec::new() }
    }

    fn remove(&mut self, file: u64) {
        if let Some(bits) = self.bits.get_mut((file / 64) as usize) {
            *bits &= !(1 << (file % 64));
        }
    }

    pub(super) fn contains(&self, file: u64) -> bool {
        self.bits.get((file / 64) as usize).is_some_and(|bits| bits & (1 << (file % 64)) != 0)
    }

    /// An error if there are other files than those of the data set.
    pub(super) fn check_others(&self) -> Result<(), GenerateError> {
        match self.others.iter().find(|found| found.others > 0) {
            None => Ok(()),
            Some(OtherFiles { folder, planned, others, example }) => Err(GenerateError::Miscounted {
                folder: folder.clone(),
                planned: *planned,
                there: planned + others,
                example: example.clone(),
            }),
        }
    }

    /// Lists what there is; `None` if the store does not list sizes. All members call it and get the same set.
    pub(super) fn list(task: &Generation<'_>) -> Result<Option<PresentFiles>, GenerateError> {
        if task.store.files().lists_sizes() == SizeListing::None {
            return Ok(None);
        }
        let mut present = PresentFiles::all(task.data.files());
        let sides = task.format.sides();
        let numbered = || (0..).zip(sides.iter().copied());
        for split in [&task.data.train, &task.data.valid] {
            // The files, and the side files next to them, are found by the same listing.
            let beside = numbered().filter(|(_, side)| side.folder.is_none());
            let kinds: Vec<FileKind> = std::iter::once(None).chain(beside.map(Some)).collect();
            let others = present.retain_listed(task, &split.names, split.first_file, &kinds)?;
            present.others.push(others);
            for (number, side) in numbered() {
                let Some(parent) = side.folder else { continue };
                let folder = format!("{parent}/{}", split.names.folder);
                let flat = Names { folder, subfolders: 0, ..split.names.clone() };
                present.retain_listed(task, &flat, split.first_file, &[Some((number, side))])?;
            }
        }
        Ok(Some(present))
    }

    /// Removes the files that a listing of a folder does not have in all these kinds. Returns what else it has.
    fn retain_listed(
        &mut self,
        task: &Generation<'_>,
        names: &Names,
        first_file: u64,
        kinds: &[FileKind],
    ) -> Result<OtherFiles, GenerateError> {
        let (world, stop) = (task.world, task.stop);
        let suffixes: Vec<&str> = kinds.iter().map(|kind| kind.map_or("", |(_, side)| side.suffix)).collect();
        let listing = NumberedListing::new(task.store.files(), names, &suffixes);
        let part = listing.part(world.member(), world);
        let bytes_per_kind = |part: &std::ops::Range<u64>| (part.end - part.start).div_ceil(8) as usize;
        let mut own = vec![0_u8; bytes_per_kind(&part) * kinds.len()];
        let mut other = OtherNames::new(names);
        let found = &mut |found: ListedFile| {
            let position = listing.position(found.index);
            if part.contains(&position)
                && has_right_size(task, first_file + found.index, kinds[found.suffix], found.bytes)
            {
                let bit = position - part.start;
                own[bytes_per_kind(&part) * found.suffix + (bit / 8) as usize] |= 1 << (bit % 8);
            }
        };
        let listed = match listing.list_all(&part, stop, found, &mut |name| other.add(name)) {
            Ok(()) if stop.wished() => Err(GenerateError::Interrupted),
            listed => listed.map_err(GenerateError::from),
        };
        agreed(world, listed, stop)?;
        own.extend(other.to_bytes());
        let mut others = OtherFiles::none(names);
        for (member, bits) in (0..).zip(of_all(world, own, stop)?) {
            let part = listing.part(member, world);
            let stride = bytes_per_kind(&part);
            for position in part.clone() {
                let bit = position - part.start;
                let is_in = |kind: usize| {
                    bits.get(stride * kind + (bit / 8) as usize)
                        .is_some_and(|byte| byte & (1 << (bit % 8)) != 0)
                };
                if !(0..kinds.len()).all(is_in) {
                    self.remove(first_file + listing.at_position(position));
                }
            }
            others.add(bits.get(stride * kinds.len()..).unwrap_or_default());
        }
        Ok(others)
    }
}

/// Counts names in the folders of a split that are not those of its files. Hidden files, and those of other folders
/// below, do not matter.
struct OtherNames {
    folders: BTreeSet<String>,
    count: u64,
    example: String,
}

impl OtherNames {
    fn new(names: &Names) -> OtherNames {
        OtherNames { folders: names.folders().collect(), count: 0, example: String::new() }
    }

    fn add(&mut self, name: &str) {
        let Some((folder, file)) = name.rsplit_once('/') else { return };
        if file.is_empty() || file.starts_with('.') || !self.folders.contains(folder) {
            return;
        }
        if self.count == 0 {
            name.clone_into(&mut self.example);
        }
        self.count += 1;
    }

    /// The count, followed by the example.
    fn to_bytes(&self) -> Vec<u8> {
        [&self.count.to_le_bytes(), self.example.as_bytes()].concat()
    }
}

impl OtherFiles {
    fn none(names: &Names) -> OtherFiles {
        OtherFiles { folder: names.folder.clone(), planned: names.count, others: 0, example: None }
    }

    /// Adds what a member has counted.
    fn add(&mut self, bytes: &[u8]) {
        let Some((count, example)) = bytes.split_first_chunk::<8>() else { return };
        self.others += u64::from_le_bytes(*count);
        if self.example.is_none() && !example.is_empty() {
            self.example = Some(String::from_utf8_lossy(example).into_owned());
        }
    }
}

/// A file of the data set itself, or a side file with its number.
type FileKind = Option<(usize, SideFile)>;

/// Whether a file has the size that it should have. Files appear complete, so a compressed one, whose length is not
/// known in advance, is accepted with any size that it can have.
pub(super) fn has_right_size(task: &Generation<'_>, file: u64, kind: FileKind, bytes: u64) -> bool {
    match kind {
        None => {
            let planned = task.data.file_bytes(file);
            bytes == planned || !task.data.exact && (1..=planned).contains(&bytes)
        }
        Some((number, _)) => {
            let planned = task.data.with_shape(file, |shape| task.format.side_bytes(number, shape));
            planned.ok() == Some(bytes)
        }
    }
}
