//! The data files of a job: a uniform sample of them, with sizes and paths.

use std::collections::{BTreeMap, HashMap};

use model::observed::{FileFigures, ValueCounts};

use super::visits::FileKey;
use crate::layout::is_kept;
use crate::observe::Paths;

/// Files kept. With more of them, the sample is halved.
const MOST: usize = 65_536;
/// Folders, suffixes and examples in a result.
const MOST_FOLDERS: usize = 64;
const MOST_SUFFIXES: usize = 16;
const MOST_EXAMPLES: usize = 8;

#[derive(Debug, Default)]
struct File {
    size: u64,
    path: Option<Box<str>>,
    is_direct: bool,
    is_read: bool,
}

/// The sample.
#[derive(Debug, Default)]
pub(super) struct FileTable {
    kept: HashMap<FileKey, File>,
    bits: u32,
}

impl FileTable {
    pub(super) fn bits(&self) -> u32 {
        self.bits
    }

    pub(super) fn keeps(&self, file: FileKey) -> bool {
        is_kept(file.1, self.bits)
    }

    /// Remembers a file of the sample. True if the sample became smaller.
    pub(super) fn opened(&mut self, file: FileKey, size: u64, is_direct: bool) -> bool {
        let known = self.kept.entry(file).or_default();
        known.size = known.size.max(size);
        known.is_direct |= is_direct;
        self.halve()
    }

    pub(super) fn read(&mut self, file: FileKey, end: u64) -> bool {
        let known = self.kept.entry(file).or_default();
        known.size = known.size.max(end);
        known.is_read = true;
        self.halve()
    }

    pub(super) fn named(&mut self, file: FileKey, path: &str) {
        if self.keeps(file) {
            self.kept.entry(file).or_default().path = Some(path.into());
            self.halve();
        }
    }

    fn halve(&mut self) -> bool {
        let before = self.bits;
        while self.kept.len() > MOST {
            self.bits += 1;
            let bits = self.bits;
            self.kept.retain(|(_, inode), _| is_kept(*inode, bits));
        }
        self.bits > before
    }

    /// The path of a file, or nothing if paths are not to be written.
    pub(super) fn path(&self, file: FileKey, paths: Paths) -> String {
        let path = self.kept.get(&file).and_then(|file| file.path.as_deref()).unwrap_or("");
        if paths == Paths::None { String::new() } else { path.to_owned() }
    }

    /// Inodes of the files with known paths, in the order of these.
    pub(super) fn by_name(&self) -> impl Iterator<Item = u64> {
        let mut named: Vec<(&str, u64)> =
            self.kept.iter().filter_map(|((_, inode), file)| Some((file.path.as_deref()?, *inode))).collect();
        named.sort_unstable();
        named.into_iter().map(|(_, inode)| inode)
    }

    /// Figures of the files that were read.
    pub(super) fn figures(&self, paths: Paths) -> FileFigures {
        let read: BTreeMap<&FileKey, &File> = self.kept.iter().filter(|(_, file)| file.is_read).collect();
        let scale = |number: u64| number.saturating_mul(1 << self.bits.min(63));
        let mut sizes = ValueCounts::default();
        let mut folders: BTreeMap<&str, u64> = BTreeMap::new();
        let mut suffixes: BTreeMap<&str, u64> = BTreeMap::new();
        let mut names: Vec<&str> = Vec::new();
        for file in read.values() {
            sizes.record(file.size);
            let Some(path) = file.path.as_deref() else { continue };
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
            *folders.entry(folder).or_default() += 1;
            let suffix = name.rsplit_once('.').map_or("", |(_, suffix)| suffix);
            *suffixes.entry(suffix).or_default() += 1;
            names.push(path);
        }
        names.sort_unstable();
        if paths == Paths::Examples {
            names.truncate(MOST_EXAMPLES);
        }
        let is_written = paths != Paths::None;
        let most = |counts: BTreeMap<&str, u64>, most: usize| {
            let mut rows: Vec<(String, u64)> =
                counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
            rows.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
            rows.truncate(most);
            rows
        };
        FileFigures {
            sampled: read.len() as u64,
            estimated: scale(read.len() as u64),
            sample_bits: self.bits,
            bytes: scale(sizes.sum()),
            sizes,
            folders: if is_written { most(folders, MOST_FOLDERS) } else { Vec::new() },
            suffixes: most(suffixes, MOST_SUFFIXES),
            examples: if is_written { names.into_iter().map(str::to_owned).collect() } else { Vec::new() },
            direct: read.values().filter(|file| file.is_direct).count() as u64,
            ..FileFigures::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_files_are_estimated_from_a_sample() {
        let mut files = FileTable::default();
        for inode in 0..1_000_000u64 {
            if files.keeps((1, inode)) {
                files.opened((1, inode), 1000, false);
                files.read((1, inode), 1000);
                files.named((1, inode), "/data/train/a.jpg");
            }
        }
        let figures = files.figures(Paths::Examples);
        assert!(files.kept.len() <= MOST);
        let error = figures.estimated as f64 / 1e6 - 1.0;
        assert!(error.abs() < 0.03, "{error}");
        assert_eq!(figures.suffixes.first().map(|row| row.0.as_str()), Some("jpg"));
        assert_eq!(figures.folders.len(), 1);
        assert!(files.figures(Paths::None).folders.is_empty());
    }
}
