//! The file names of a generated data set, computed from the index into a reused buffer. They follow DLIO's scheme, so
//! that DLIO's data sets and ours are interchangeable; no list of names is stored.

use std::ffi::CStr;

use serde::{Deserialize, Serialize};

/// The file names of one split:
/// `<folder>/[<subfolder>/]<prefix>_<index>_of_<count>.<suffix>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// `train` or `valid`.
    pub folder: String,
    pub prefix: String,
    /// The number after `_of_`: how many files were generated, which may be more than the run reads.
    pub count: u64,
    /// Subfolders, used if there are at least two; file i is in folder i modulo this number.
    pub subfolders: u64,
    pub suffix: String,
}

impl Names {
    /// A precomputed form that writes names quickly.
    pub fn pattern(&self) -> Pattern {
        Pattern {
            folder: format!("{}/", self.folder),
            subfolders: self.subfolders,
            subfolder_width: digits(self.subfolders),
            prefix: format!("{}_", self.prefix),
            width: digits(self.count),
            count: self.count,
            tail: format!("_of_{}.{}", self.count, self.suffix),
        }
    }

    /// The name of file `index` as a new string, for messages.
    pub fn of(&self, index: u64) -> String {
        let mut name = Name::default();
        self.pattern().write(index, &mut name);
        name.as_str().to_owned()
    }

    /// The folders that must exist before files can be written, parents first.
    pub fn folders(&self) -> impl Iterator<Item = String> + '_ {
        let inner = if self.subfolders > 1 { self.subfolders } else { 0 };
        let width = digits(self.subfolders);
        std::iter::once(self.folder.clone())
            .chain((0..inner).map(move |folder| format!("{}/{folder:0width$}", self.folder)))
    }
}

/// The parts of a split's names that do not depend on the index.
#[derive(Clone, Debug)]
pub struct Pattern {
    folder: String,
    subfolders: u64,
    subfolder_width: usize,
    prefix: String,
    width: usize,
    count: u64,
    tail: String,
}

impl Pattern {
    /// The beginning and the end of every file name, without folders.
    pub fn ends(&self) -> (&str, &str) {
        (&self.prefix, &self.tail)
    }

    /// The index of the file with this name; `None` if there is no such file.
    pub fn index(&self, name: &Name) -> Option<u64> {
        self.index_of(name.as_str())
    }

    /// The same for a name as text.
    pub fn index_of(&self, name: &str) -> Option<u64> {
        let within = name.strip_prefix(self.folder.as_str())?;
        let (folder, file) =
            within.split_once('/').map_or((None, within), |(folder, file)| (Some(folder), file));
        let digits = file.strip_prefix(self.prefix.as_str())?.strip_suffix(self.tail.as_str())?;
        let index = number(digits, self.width)?;
        let is_right = match (self.subfolders, folder) {
            (0 | 1, folder) => folder.is_none(),
            (folders, Some(folder)) => number(folder, self.subfolder_width) == Some(index % folders),
            (_, None) => false,
        };
        (is_right && index < self.count).then_some(index)
    }

    /// Where a file is in the byte order of names, in which object stores list them: one subfolder after another.
    pub fn position(&self, index: u64) -> u64 {
        match self.subfolders {
            0 | 1 => index,
            folders => {
                let (each, larger) = (self.count / folders, self.count % folders);
                let folder = index % folders;
                folder * each + folder.min(larger) + index / folders
            }
        }
    }

    /// The file at a position in the byte order of names.
    pub fn at_position(&self, position: u64) -> u64 {
        match self.subfolders {
            0 | 1 => position,
            folders => {
                let (each, larger) = (self.count / folders, self.count % folders);
                let (folder, file) = match position.checked_sub(larger * (each + 1)) {
                    None => (position / (each + 1), position % (each + 1)),
                    Some(rest) => (larger + rest / each.max(1), rest % each.max(1)),
                };
                folder + file * folders
            }
        }
    }

    /// Writes the name of file `index` into `name`, relative to the data folder.
    pub fn write(&self, index: u64, name: &mut Name) {
        name.clear();
        name.push(&self.folder);
        if self.subfolders > 1 {
            name.push_number(index % self.subfolders, self.subfolder_width);
            name.push("/");
        }
        name.push(&self.prefix);
        name.push_number(index, self.width);
        name.push(&self.tail);
        name.terminate();
    }
}

/// A number that is written with this many digits.
fn number(digits: &str, width: usize) -> Option<u64> {
    let is_number = digits.len() == width && digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// Decimal digits of a count. DLIO pads indices to the width of the count itself, not of the largest index.
fn digits(count: u64) -> usize {
    count.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// A name in a buffer that is reused from file to file. It is NUL-terminated, so that it can be passed to the kernel
/// unchanged. Computed names are text; names from a catalog are arbitrary bytes from the file system.
#[derive(Debug, PartialEq, Eq)]
pub struct Name {
    bytes: Vec<u8>,
}

impl Clone for Name {
    fn clone(&self) -> Name {
        Name { bytes: self.bytes.clone() }
    }

    /// Reuses the existing buffer.
    fn clone_from(&mut self, other: &Name) {
        self.bytes.clone_from(&other.bytes);
    }
}

impl Default for Name {
    fn default() -> Name {
        Name { bytes: vec![0] }
    }
}

impl Name {
    /// A name that is not computed. `None` if it contains a NUL byte, which is invalid in file names.
    pub fn new(text: &str) -> Option<Name> {
        if text.contains('\0') {
            return None;
        }
        let mut name = Name::default();
        name.clear();
        name.push(text);
        name.terminate();
        Some(name)
    }

    /// The name as text. A name that is not UTF-8 (only possible in a catalog) ends before its first invalid byte;
    /// `Display` shows all of it.
    pub fn as_str(&self) -> &str {
        let bytes = self.as_bytes();
        match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(bad) => std::str::from_utf8(&bytes[..bad.valid_up_to()]).unwrap_or(""),
        }
    }

    /// The bytes of the name, without the NUL.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.bytes.len().saturating_sub(1)]
    }

    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }

    /// Refills the buffer. `fill` gets it empty and must not write a NUL byte; if it fails, the name is empty.
    pub(crate) fn refill<T, E>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> Result<T, E>) -> Result<T, E> {
        self.bytes.clear();
        let outcome = fill(&mut self.bytes);
        if outcome.is_err() {
            self.bytes.clear();
        }
        self.terminate();
        outcome
    }

    fn clear(&mut self) {
        self.bytes.clear();
    }

    fn push(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn push_number(&mut self, number: u64, width: usize) {
        let mut text = [b'0'; 20];
        let mut rest = number;
        let mut start = text.len();
        while rest > 0 || start == text.len() {
            start -= 1;
            text[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.bytes.extend_from_slice(&text[start.min(text.len().saturating_sub(width))..]);
    }

    fn terminate(&mut self) {
        self.bytes.push(0);
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: u64, subfolders: u64) -> Names {
        Names { folder: "train".into(), prefix: "img".into(), count, subfolders, suffix: "npz".into() }
    }

    #[test]
    fn names_follow_dlio() {
        for (count, subfolders, index, expected) in [
            (8, 0, 0, "train/img_0_of_8.npz"),
            (10, 0, 9, "train/img_09_of_10.npz"),
            (168, 0, 7, "train/img_007_of_168.npz"),
            (168, 1, 7, "train/img_007_of_168.npz"),
            (64, 2, 63, "train/1/img_63_of_64.npz"),
            (1000, 10, 123, "train/03/img_0123_of_1000.npz"),
        ] {
            assert_eq!(names(count, subfolders).of(index), expected);
        }
    }

    #[test]
    fn an_index_is_found_only_by_its_own_name() {
        for (count, subfolders) in [(8, 0), (64, 2), (1000, 10)] {
            let pattern = names(count, subfolders).pattern();
            let mut name = Name::default();
            for index in 0..count {
                pattern.write(index, &mut name);
                assert_eq!(pattern.index(&name), Some(index), "{name}");
            }
        }
        let pattern = names(1000, 10).pattern();
        for other in [
            "train/03/img_123_of_1000.npz",
            "train/04/img_0123_of_1000.npz",
            "train/img_0123_of_1000.npz",
            "valid/03/img_0123_of_1000.npz",
            "train/03/img_0123_of_1000.npy",
            "train/00/img_1000_of_1000.npz",
            "train/03/pic_0123_of_1000.npz",
            "train/03/img_+123_of_1000.npz",
            "train/3/img_0123_of_1000.npz",
            "train/+3/img_0123_of_1000.npz",
            "train/03//img_0123_of_1000.npz",
            "train//img_0123_of_1000.npz",
            "",
        ] {
            assert_eq!(pattern.index(&Name::new(other).unwrap()), None, "{other}");
        }
    }

    #[test]
    fn positions_are_the_byte_order_of_names() {
        for (count, subfolders) in [(8, 0), (12, 1), (64, 2), (103, 10), (100, 10), (5, 12), (1, 3)] {
            let names = names(count, subfolders);
            let (pattern, mut sorted): (_, Vec<String>) =
                (names.pattern(), (0..count).map(|index| names.of(index)).collect());
            sorted.sort();
            for (position, name) in (0..).zip(sorted) {
                let index = pattern.at_position(position);
                assert_eq!((names.of(index), pattern.position(index)), (name, position));
            }
        }
    }

    #[test]
    fn the_buffer_is_reused_and_terminated() {
        let mut name = Name::default();
        names(1_000_000, 0).pattern().write(5, &mut name);
        names(8, 0).pattern().write(3, &mut name);
        assert_eq!(name.as_c_str(), c"train/img_3_of_8.npz");
        assert_eq!(name.as_str(), "train/img_3_of_8.npz");
    }

    #[test]
    fn folders_come_parents_first() {
        assert_eq!(names(5, 0).folders().collect::<Vec<_>>(), ["train"]);
        assert_eq!(names(5, 2).folders().collect::<Vec<_>>(), ["train", "train/0", "train/1"]);
    }

    #[test]
    fn a_name_with_nul_is_refused() {
        assert!(Name::new("a\0b").is_none());
        assert_eq!(Name::new("a/b").unwrap().as_str(), "a/b");
    }

    #[test]
    fn bytes_that_are_not_utf8_reach_the_kernel_unchanged() {
        let mut name = Name::new("something long").unwrap();
        name.refill(|bytes| {
            bytes.extend_from_slice(b"a/\xffb");
            Ok::<(), ()>(())
        })
        .unwrap();
        assert_eq!(name.as_c_str().to_bytes(), b"a/\xffb");
        assert_eq!((name.as_str(), name.to_string().as_str()), ("a/", "a/\u{fffd}b"));
        assert_eq!(name.refill(|_| Err::<(), i32>(7)), Err(7));
        assert_eq!(name.as_c_str(), c"");
    }
}
