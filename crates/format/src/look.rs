//! Looking into existing files without I/O. A format asks for bytes. If they have not been read yet, it stops
//! with [`Obstacle::Unread`]; the caller reads them and calls the format again. Parsing restarts each time, which
//! costs little because only metadata is parsed. Parsers therefore are simple sequential code that knows nothing
//! of I/O, and work with asynchronous storage.

use crate::{Extent, FormatError};

/// The maximum size of one piece of metadata. A container that claims more is damaged, or was not made for
/// training.
pub const MOST_AT_ONCE: u64 = 64 << 20;

/// Why a format cannot locate a file's samples, yet or at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// These bytes must be read first.
    #[error("bytes {} to {} have not been read", .0.offset, .0.offset.saturating_add(.0.len))]
    Unread(Extent),
    #[error(transparent)]
    Damage(#[from] Damage),
    #[error(transparent)]
    Shape(#[from] FormatError),
}

/// What is wrong with a file, and at which byte.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {format} file: {what} (at byte {offset})")]
pub struct Damage {
    pub format: &'static str,
    pub offset: u64,
    pub what: String,
}

impl Damage {
    pub(crate) fn new(format: &'static str, offset: u64, what: impl Into<String>) -> Damage {
        Damage { format, offset, what: what.into() }
    }
}

/// Pieces of one file that have been read. Reused from file to file.
#[derive(Clone, Debug, Default)]
pub struct ReadPieces {
    bytes: Vec<u8>,
    /// Offset in the file and in `bytes`, and length.
    pieces: Vec<(u64, usize, usize)>,
}

impl ReadPieces {
    /// Clears everything, for the next file.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.pieces.clear();
    }

    /// Adds bytes of the file that were read at `offset`.
    pub fn insert(&mut self, offset: u64, bytes: &[u8]) {
        self.pieces.push((offset, self.bytes.len(), bytes.len()));
        self.bytes.extend_from_slice(bytes);
    }

    /// Space for `len` bytes of the file from `offset` on, which the caller must fill.
    pub fn add(&mut self, offset: u64, len: usize) -> &mut [u8] {
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        self.pieces.push((offset, start, len));
        &mut self.bytes[start..]
    }

    /// All bytes that are held.
    pub fn total(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn get(&self, offset: u64, len: u64) -> Option<&[u8]> {
        self.pieces.iter().find_map(|&(from, start, held)| {
            let skip = offset.checked_sub(from)?;
            let end = skip.checked_add(len)?;
            (end <= held as u64).then(|| &self.bytes[start + skip as usize..start + end as usize])
        })
    }
}

/// A file to look into: its length, and what has been read of it.
#[derive(Debug)]
pub struct Look<'a> {
    pub format: &'static str,
    /// Length of the file.
    pub len: u64,
    seen: &'a ReadPieces,
}

impl<'a> Look<'a> {
    pub fn new(format: &'static str, len: u64, seen: &'a ReadPieces) -> Look<'a> {
        Look { format, len, seen }
    }

    /// Bytes of the file. A request beyond its end, or for an absurd amount, means that the file is damaged,
    /// because its own numbers led there.
    pub fn at(&self, offset: u64, len: u64) -> Result<&'a [u8], Obstacle> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            let what = format!("it ends at byte {}, but {len} bytes at offset {offset} are needed", self.len);
            return Err(self.damage(offset, what).into());
        }
        if len == 0 {
            return Ok(&[]);
        }
        if len > MOST_AT_ONCE {
            return Err(self.damage(offset, format!("it claims {len} bytes of metadata")).into());
        }
        self.seen.get(offset, len).ok_or(Obstacle::Unread(Extent { offset, len }))
    }

    pub fn damage(&self, offset: u64, what: impl Into<String>) -> Damage {
        Damage::new(self.format, offset, what)
    }
}

/// Bytes of a small record, taken from the page that contains it if one page does, so that walking over records
/// needs few requests.
pub(crate) fn peek<'a>(look: &Look<'a>, offset: u64, len: u64) -> Result<&'a [u8], Obstacle> {
    const PAGE: u64 = 4096;
    let page = offset - offset % PAGE;
    let inside = offset - page;
    // Beyond the file, or across two pages: as requested.
    if inside + len > PAGE || offset.checked_add(len).is_none_or(|end| end > look.len) {
        return look.at(offset, len);
    }
    let bytes = look.at(page, PAGE.min(look.len - page))?;
    Ok(&bytes[inside as usize..(inside + len) as usize])
}

/// An array, dataset, column or feature of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayFacts {
    /// Empty if the format has no names.
    pub name: String,
    /// `None` if the metadata does not contain it.
    pub shape: Option<Vec<u64>>,
    /// NumPy's name of the type if there is one, otherwise the format's.
    pub dtype: String,
}

/// The arrays of a file: the first ones, and the number of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArrayList {
    pub listed: Vec<ArrayFacts>,
    pub more: u64,
}

impl ArrayList {
    /// Arrays that are listed at most; tables have thousands of columns.
    pub(crate) const MOST: usize = 1024;
    /// Arrays whose own metadata are read at most, if each takes reads of its own.
    pub(crate) const MOST_READ: usize = 64;
    /// Characters of a name that are kept: names from files are not trusted.
    const NAME_MOST: usize = 200;

    /// The list of a file that contains only one array, without a name.
    pub(crate) fn only(shape: &[u64], dtype: &str) -> ArrayList {
        let mut list = ArrayList::default();
        list.add("", shape, dtype);
        list
    }

    pub(crate) fn add(&mut self, name: &str, shape: &[u64], dtype: &str) {
        self.push(name, Some(shape.to_vec()), dtype);
    }

    /// Adds an array whose shape may be unknown.
    pub(crate) fn push(&mut self, name: &str, shape: Option<Vec<u64>>, dtype: &str) {
        if self.listed.len() == ArrayList::MOST {
            self.more += 1;
            return;
        }
        let name = name.chars().filter(|letter| !letter.is_control()).take(ArrayList::NAME_MOST).collect();
        self.listed.push(ArrayFacts { name, shape, dtype: dtype.to_owned() });
    }
}

/// What a format found in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// The number of samples, if the file contains it (an index next to it is another file).
    pub samples: Option<u64>,
    /// Dimensions of one sample, if the container has them.
    pub dims: Vec<u64>,
    /// Name of the element type, if the container has it.
    pub element: Option<String>,
    /// Everything that it contains, whether or not it is read as a sample.
    pub arrays: ArrayList,
    /// Compression, chunks and other facts, for people.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_bytes_are_returned_and_others_requested() {
        let mut seen = ReadPieces::default();
        seen.add(100, 4).copy_from_slice(b"abcd");
        seen.insert(0, b"xy");
        let look = Look::new("npz", 200, &seen);
        assert_eq!(look.at(101, 2).unwrap(), b"bc");
        assert_eq!(look.at(0, 2).unwrap(), b"xy");
        assert_eq!(look.at(200, 0), Ok(&[] as &[u8]));
        assert_eq!(
            look.at(1, 2),
            Err(Obstacle::Unread(Extent { offset: 1, len: 2 })),
            "half of it is not it"
        );
    }

    #[test]
    fn numbers_that_lead_out_of_the_file_are_damage() {
        let seen = ReadPieces::default();
        let look = Look::new("parquet", 200, &seen);
        for (offset, len) in [(199, 2), (u64::MAX, 2), (0, u64::MAX)] {
            let error = look.at(offset, len).unwrap_err();
            assert!(matches!(&error, Obstacle::Damage(damage) if damage.offset == offset), "{error}");
        }
        let huge = Look::new("parquet", u64::MAX, &seen);
        assert!(huge.at(0, MOST_AT_ONCE + 1).unwrap_err().to_string().contains("metadata"));
    }
}
