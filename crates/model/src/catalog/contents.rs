//! What a catalog lists, in figures: files by suffix, and empty files. It looks at every name once, in bounded memory.

use std::collections::HashMap;

use super::block::FileCursor;
use super::{Catalog, CatalogError, corrupt};

/// Suffixes that are counted separately. Names that end in unique words would otherwise need a counter each.
const MOST_SUFFIXES: usize = 4096;
/// Bytes of the longest suffix. What follows the last dot of a longer one is a part of the name.
const LONGEST: usize = 16;
/// Suffixes of compressed files, which follow the suffix of the content.
const COMPRESSED: [&[u8]; 5] = [b".gz", b".bz2", b".xz", b".zst", b".lz4"];

/// The files of a catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogContents {
    /// The most frequent suffix first. Files without a suffix are counted under an empty one.
    pub suffixes: Vec<SuffixCount>,
    /// Files with other suffixes, if there are too many different ones.
    pub others: SuffixCount,
    pub empty: u64,
    /// The path of the first empty file.
    pub first_empty: Option<Vec<u8>>,
}

/// The number of files with a suffix, and the sum of their sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuffixCount {
    pub suffix: Vec<u8>,
    pub files: u64,
    pub bytes: u64,
}

impl SuffixCount {
    fn add(&mut self, size: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(size);
    }
}

impl<B: AsRef<[u8]>> Catalog<B> {
    /// Counts the files.
    pub fn contents(&self) -> Result<CatalogContents, CatalogError> {
        let mut found = CatalogContents::default();
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        // Most files have the suffix of the previous one.
        let mut last = None::<usize>;
        for (at, folder) in self.folders().enumerate() {
            let encoded = self.encoded(at)?;
            let mut cursor = FileCursor::new(&encoded);
            while cursor.advance().ok_or(corrupt(0))? {
                let (name, size) = cursor.current();
                if size == 0 {
                    found.empty += 1;
                    found.first_empty.get_or_insert_with(|| joined(folder.path, name));
                }
                let suffix = suffix_of(name);
                let same = last.filter(|place| found.suffixes[*place].suffix == suffix);
                last = same.or_else(|| places.get(suffix).copied());
                if last.is_none() && places.len() < MOST_SUFFIXES {
                    places.insert(suffix.to_vec(), found.suffixes.len());
                    last = Some(found.suffixes.len());
                    found.suffixes.push(SuffixCount { suffix: suffix.to_vec(), ..SuffixCount::default() });
                }
                match last {
                    Some(place) => found.suffixes[place].add(size),
                    None => found.others.add(size),
                }
            }
        }
        found.suffixes.sort_by(|a, b| b.files.cmp(&a.files).then_with(|| a.suffix.cmp(&b.suffix)));
        Ok(found)
    }
}

fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    match folder.is_empty() {
        true => name.to_vec(),
        false => [folder, b"/", name].concat(),
    }
}

/// What follows the last dot, with the dot; `.csv.gz` for a compressed file. Numbers are part of the name.
fn suffix_of(name: &[u8]) -> &[u8] {
    let dot = |name: &[u8]| {
        let at = name.iter().rposition(|byte| *byte == b'.').filter(|at| *at > 0)?;
        let suffix = &name[at + 1..];
        let fits = (1..LONGEST).contains(&suffix.len()) && !suffix.iter().all(u8::is_ascii_digit);
        fits.then_some(at)
    };
    let Some(at) = dot(name) else { return &[] };
    let inner = dot(&name[..at]).filter(|_| COMPRESSED.contains(&&name[at..]));
    &name[inner.unwrap_or(at)..]
}

#[cfg(test)]
mod tests {
    use super::super::{Assembler, FolderEncoder};
    use super::*;

    #[test]
    fn a_suffix_follows_the_last_dot() {
        for (name, suffix) in [
            ("a.jpg", ".jpg"),
            ("a.b.JPG", ".JPG"),
            ("a.csv.gz", ".csv.gz"),
            ("a.gz", ".gz"),
            ("a.0.gz", ".gz"),
            ("a", ""),
            ("a.", ""),
            (".jpg", ""),
            ("part.00017", ""),
            ("a.mp4", ".mp4"),
            ("a.a sentence of some words", ""),
        ] {
            assert_eq!(suffix_of(name.as_bytes()), suffix.as_bytes(), "{name}");
        }
    }

    fn catalog(folders: &[(&str, &[(String, u64)])]) -> Catalog<Vec<u8>> {
        let (mut assembler, mut body) = (Assembler::new(&[]), Vec::new());
        for (path, files) in folders {
            let mut encoder = FolderEncoder::new();
            files.iter().for_each(|(name, size)| encoder.push(name.as_bytes(), *size).unwrap());
            let folder = encoder.finish();
            assembler.push(path.as_bytes(), 0, &folder).unwrap();
            body.extend_from_slice(&folder.body);
        }
        let frame = assembler.finish();
        Catalog::parse([frame.header.as_slice(), &body, &frame.tail].concat()).unwrap()
    }

    #[test]
    fn files_are_counted_by_suffix_and_empty_ones_named() {
        let names = |names: &[(&str, u64)]| -> Vec<(String, u64)> {
            names.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect()
        };
        let root = names(&[("README", 5)]);
        let train = names(&[("a.jpg", 10), ("b.jpg", 0), ("c.txt", 1), ("d.jpg", 20), ("e.jpg", 0)]);
        let found = catalog(&[("", &root), ("train", &train)]).contents().unwrap();
        let count = |suffix: &str, files, bytes| SuffixCount { suffix: suffix.into(), files, bytes };
        assert_eq!(found.suffixes, [count(".jpg", 4, 30), count("", 1, 5), count(".txt", 1, 1)]);
        assert_eq!((found.empty, found.first_empty.as_deref()), (2, Some(&b"train/b.jpg"[..])));
        assert_eq!(found.others, SuffixCount::default());
    }

    #[test]
    fn too_many_suffixes_are_counted_together() {
        let mut files: Vec<(String, u64)> =
            (0..MOST_SUFFIXES + 7).map(|index| (format!("x.s{index:05}"), 2)).collect();
        files.sort();
        let found = catalog(&[("", &files)]).contents().unwrap();
        assert_eq!((found.suffixes.len(), found.others.files, found.others.bytes), (MOST_SUFFIXES, 7, 14));
    }
}
