//! The catalog of existing files: relative path and size of every file below a folder, small enough to be mapped into
//! memory and shared by all readers of a node. This module defines its bytes; `engine/catalog` lists folders and writes
//! the file, `store/mapped.rs` maps it.
//!
//! ```text
//! offset  header, 112 bytes; every number is little endian
//!      0  magic 89 'F' 'L' 'C' 'A' 'T' 0d 0a
//!      8  version (u32) = 1; flags (u32): 1 if it lists an object store, else 0
//!     16  length of the whole file; files; sum of their sizes; folders; blocks
//!     56  offsets of folder table, paths, block index, suffixes
//!     88  digest: the first 16 bytes of SHA-256 over folders and body, without modification times and versions
//!    104  CRC-32 of everything from the folder table to the end
//!    108  CRC-32 of the header up to here
//!    112  body          blocks of up to 64 files of one folder, each with its own CRC-32: see `block.rs`. In the
//!                       catalog of an object store, each is followed by the versions of its files
//!         folder table  per folder, in the order of paths: first file, first block, end of its path,
//!                       modification time (ns since 1970, signed; 0 in an object store), sum of its files' sizes
//!         paths         of the folders, relative to the root, concatenated; the root's is empty
//!         block index   offset of every block
//!         suffixes      required suffixes of listed files: count, then length and bytes of each (varints)
//! ```
//!
//! Files are numbered across folders, and in a folder in byte order of their names. Header and tables are checked as a
//! whole when a catalog is opened (their checksum and their consistency); a block is checked whenever a file in it is
//! looked up. Together the checks detect a change to any byte.

mod block;
mod build;
mod contents;
mod merge;

use std::cmp::Ordering;
use std::ops::Range;

use sha2::{Digest as _, Sha256};
use thiserror::Error;

pub(crate) use block::{BLOCK_FILES, FileCursor};
pub use block::{EncodedFolder, FolderEncoder, is_name, put_varint, take_bytes, take_varint};
pub use build::{Assembler, BuildError, CatalogFrame, path_order};
pub use contents::{CatalogContents, SuffixCount};
pub use merge::merge;

use crate::files::FileEntry;
use crate::names::Name;

/// A byte that is not text, the type, and a line end that text-mode transfers change.
pub(crate) const MAGIC: [u8; 8] = *b"\x89FLCAT\r\n";
pub(crate) const VERSION: u32 = 1;
/// The flag of a catalog that lists an object store.
pub(crate) const OBJECTS: u32 = 1;
/// Length of the header, which is the offset of the body.
pub const HEADER: u64 = 112;
/// Length of a record of the folder table.
const RECORD: usize = 40;

/// Why bytes are not a usable catalog.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CatalogError {
    #[error("this is not a catalog; make one with 'feedline catalog DIR'")]
    NotACatalog,
    #[error(
        "the catalog has format version {found}, but this feedline reads {VERSION}; \
         make it again with 'feedline catalog DIR'"
    )]
    OtherVersion { found: u32 },
    #[error(
        "the catalog is truncated: it has {found} of {expected} bytes; \
         make it again with 'feedline catalog DIR'"
    )]
    Truncated { found: u64, expected: u64 },
    #[error("the catalog is damaged at or after byte {offset}; make it again with 'feedline catalog DIR'")]
    Corrupt { offset: u64 },
    #[error("the catalog has no file {index}, only {files}")]
    NoSuchFile { index: u64, files: u64 },
}

/// A catalog in any bytes: a slice, or an owned mapped file that can be sent between threads.
#[derive(Clone, Debug)]
pub struct Catalog<B> {
    bytes: B,
    facts: CatalogHeader,
}

/// The verified header.
#[derive(Clone, Copy, Debug)]
struct CatalogHeader {
    objects: bool,
    files: u64,
    total_bytes: u64,
    folders: usize,
    blocks: usize,
    records_at: usize,
    paths_at: usize,
    blocks_at: usize,
    suffixes_at: usize,
    digest: [u8; 16],
}

/// A folder of a catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogFolder<'a> {
    /// Relative to the root, which has an empty path.
    pub path: &'a [u8],
    /// Modification time, in nanoseconds since 1970.
    pub mtime_ns: i64,
    pub first_file: u64,
    pub files: u64,
    /// Sum of its files' sizes.
    pub bytes: u64,
    first_block: u64,
}

impl<B: AsRef<[u8]>> Catalog<B> {
    /// Checks header and tables; this reads them once.
    pub fn parse(bytes: B) -> Result<Catalog<B>, CatalogError> {
        let facts = CatalogHeader::read(bytes.as_ref())?;
        let catalog = Catalog { bytes, facts };
        catalog.check_folders()?;
        catalog.check_blocks()?;
        catalog.read_suffixes().ok_or(corrupt(facts.suffixes_at))?;
        Ok(catalog)
    }

    pub fn files(&self) -> u64 {
        self.facts.files
    }

    /// Whether it lists an object store: then it has versions of files, but no modification times of folders.
    pub fn lists_objects(&self) -> bool {
        self.facts.objects
    }

    /// Sum of the sizes of all files.
    pub fn total_bytes(&self) -> u64 {
        self.facts.total_bytes
    }

    /// The catalog itself.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// Length of the catalog itself.
    pub fn encoded_bytes(&self) -> u64 {
        self.bytes.as_ref().len() as u64
    }

    /// 32 hexadecimal digits. Equal for trees with the same paths and sizes; modification times do not matter.
    pub fn digest(&self) -> String {
        self.facts.digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The required suffixes of listed files; empty if all files were listed.
    pub fn suffixes(&self) -> Vec<Vec<u8>> {
        self.read_suffixes().unwrap_or_default()
    }

    pub fn folder_count(&self) -> usize {
        self.facts.folders
    }

    /// Folder number `at` in path order.
    pub fn folder(&self, at: usize) -> Option<CatalogFolder<'_>> {
        let bytes = self.bytes.as_ref();
        let record = |at: usize| -> Option<[u64; 5]> {
            if at >= self.facts.folders {
                return None;
            }
            let start = self.facts.records_at + at * RECORD;
            let field = |i: usize| number(bytes, start + i * 8);
            Some([field(0)?, field(1)?, field(2)?, field(3)?, field(4)?])
        };
        let [first_file, first_block, path_end, mtime, sum] = record(at)?;
        let path_start = if at == 0 { 0 } else { record(at - 1)?[2] };
        let next_file = record(at + 1).map_or(self.facts.files, |next| next[0]);
        let paths = bytes.get(self.facts.paths_at..self.facts.blocks_at)?;
        Some(CatalogFolder {
            path: paths.get(usize::try_from(path_start).ok()?..usize::try_from(path_end).ok()?)?,
            mtime_ns: mtime as i64,
            first_file,
            files: next_file.checked_sub(first_file)?,
            bytes: sum,
            first_block,
        })
    }

    pub fn folders(&self) -> impl Iterator<Item = CatalogFolder<'_>> {
        (0..self.facts.folders).filter_map(|at| self.folder(at))
    }

    /// Finds a folder by its path: `Ok` with its number, or `Err` with the number of the first folder after its place.
    pub fn find_folder(&self, path: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.facts.folders);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.folder(middle).map_or(Ordering::Greater, |folder| path_order(folder.path, path)) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// The numbers of the files in a folder and its subtree, which are contiguous. Empty if there are none.
    pub fn below(&self, path: &[u8]) -> Range<u64> {
        let first_file = |at: Result<usize, usize>| {
            self.folder(at.unwrap_or_else(|at| at)).map_or(self.facts.files, |folder| folder.first_file)
        };
        if path.is_empty() {
            return 0..self.facts.files;
        }
        // Folders after the subtree have another byte than a slash at this place, which is at least this one.
        first_file(self.find_folder(path))..first_file(self.find_folder(&[path, b"\x01"].concat()))
    }

    /// Writes the path of file `index`, relative to the root, into `name` and returns its size and version. The time is
    /// logarithmic in the number of folders, plus at most 64 names; it allocates only if the buffer is too short.
    pub fn entry(&self, index: u64, name: &mut Name) -> Result<FileEntry, CatalogError> {
        name.refill(|buffer| {
            let folder = self.folder_of(index)?;
            buffer.extend_from_slice(folder.path);
            if !folder.path.is_empty() {
                buffer.push(b'/');
            }
            // Checked again: another process may have changed the mapped file since it was opened.
            let within = index.checked_sub(folder.first_file).ok_or(corrupt(self.facts.records_at))?;
            let block = folder.first_block.checked_add(within / BLOCK_FILES);
            let range = block.and_then(|block| self.block(block)).ok_or(corrupt(self.facts.blocks_at))?;
            let bytes = self.bytes.as_ref().get(range.clone()).unwrap_or_default();
            let at = within % BLOCK_FILES;
            let entry = if self.facts.objects {
                let files = block::files_in(folder.files, within / BLOCK_FILES);
                files.and_then(|files| block::look_up_object(bytes, files, at, buffer))
            } else {
                block::look_up(bytes, at, buffer).map(FileEntry::of_size)
            };
            entry.ok_or(corrupt(range.start))
        })
    }

    /// The files of folder `at` in encoded form.
    pub fn encoded(&self, at: usize) -> Result<EncodedFolder, CatalogError> {
        let folder = self.folder(at).ok_or(corrupt(self.facts.records_at))?;
        let (files, bytes, versioned) = (folder.files, folder.bytes, self.facts.objects);
        let mut encoded = EncodedFolder { files, bytes, versioned, ..EncodedFolder::default() };
        let first = folder.first_block;
        for block in first..first.saturating_add(folder.files.div_ceil(BLOCK_FILES)) {
            let range = self.block(block).ok_or(corrupt(self.facts.blocks_at))?;
            encoded.blocks.push(range.len() as u32);
            encoded.body.extend_from_slice(self.bytes.as_ref().get(range).unwrap_or_default());
        }
        let mut cursor = FileCursor::new(&encoded);
        let mut sum = 0u64;
        while cursor.advance().ok_or(corrupt(HEADER as usize))? {
            sum = sum.wrapping_add(cursor.current().1);
        }
        if sum == encoded.bytes { Ok(encoded) } else { Err(corrupt(self.facts.records_at)) }
    }

    /// Checks every byte: all blocks and the digest.
    pub fn verify(&self) -> Result<(), CatalogError> {
        let mut content = Sha256::new();
        for at in 0..self.facts.folders {
            let encoded = self.encoded(at)?;
            let folder = self.folder(at).ok_or(corrupt(self.facts.records_at))?;
            build::hash_folder(&mut content, folder.path, &encoded).ok_or(corrupt(self.facts.blocks_at))?;
        }
        if content.finalize()[..16] == self.facts.digest { Ok(()) } else { Err(corrupt(HEADER as usize)) }
    }

    /// The folder that contains file `index`.
    fn folder_of(&self, index: u64) -> Result<CatalogFolder<'_>, CatalogError> {
        if index >= self.facts.files {
            return Err(CatalogError::NoSuchFile { index, files: self.facts.files });
        }
        // The last folder that starts at or before the file. If several start at the same file, all but the last are
        // empty. Only the first field of each record is read, because this runs for every sample.
        let bytes = self.bytes.as_ref();
        let (mut low, mut high) = (0, self.facts.folders);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match number(bytes, self.facts.records_at + middle * RECORD) {
                Some(first) if first <= index => low = middle,
                _ => high = middle,
            }
        }
        self.folder(low).ok_or(corrupt(self.facts.records_at))
    }

    /// The byte range of block `at`.
    fn block(&self, at: u64) -> Option<Range<usize>> {
        let at = usize::try_from(at).ok().filter(|at| *at < self.facts.blocks)?;
        let bytes = self.bytes.as_ref();
        let offset = |at: usize| usize::try_from(number(bytes, self.facts.blocks_at + at * 8)?).ok();
        let end = if at + 1 < self.facts.blocks { offset(at + 1)? } else { self.facts.records_at };
        Some(offset(at)?..end)
    }

    /// Checks that the folder table is valid: paths in order, contiguous numbers of files and blocks, consistent sums
    /// of sizes.
    fn check_folders(&self) -> Result<(), CatalogError> {
        let bad = |at: usize| corrupt(self.facts.records_at + at * RECORD);
        let (mut files, mut blocks, mut sum) = (0u64, 0u64, 0u64);
        let mut last: Option<&[u8]> = None;
        for at in 0..self.facts.folders {
            let folder = self.folder(at).ok_or(bad(at))?;
            let fits = folder.first_file == files && folder.first_block == blocks;
            let ordered =
                last.is_none_or(|last| path_order(last, folder.path).is_lt()) && build::is_path(folder.path);
            if !fits || !ordered {
                return Err(bad(at));
            }
            last = Some(folder.path);
            files += folder.files;
            blocks += folder.files.div_ceil(BLOCK_FILES);
            sum = sum.checked_add(folder.bytes).ok_or(bad(at))?;
        }
        let whole =
            (files, blocks, sum) == (self.facts.files, self.facts.blocks as u64, self.facts.total_bytes);
        if whole { Ok(()) } else { Err(bad(0)) }
    }

    /// Checks that the blocks are contiguous and fill the body.
    fn check_blocks(&self) -> Result<(), CatalogError> {
        let mut position = HEADER as usize;
        for at in 0..self.facts.blocks {
            match self.block(at as u64) {
                Some(block) if block.start == position && block.end > position => position = block.end,
                _ => return Err(corrupt(self.facts.blocks_at + at * 8)),
            }
        }
        if position == self.facts.records_at { Ok(()) } else { Err(corrupt(self.facts.blocks_at)) }
    }

    fn read_suffixes(&self) -> Option<Vec<Vec<u8>>> {
        let mut rest = self.bytes.as_ref().get(self.facts.suffixes_at..)?;
        let count = take_varint(&mut rest)?;
        let mut suffixes = Vec::new();
        for _ in 0..count {
            let len = take_varint(&mut rest)?;
            suffixes.push(take_bytes(&mut rest, len)?.to_vec());
        }
        rest.is_empty().then_some(suffixes)
    }
}

impl CatalogHeader {
    fn read(bytes: &[u8]) -> Result<CatalogHeader, CatalogError> {
        let found = bytes.len() as u64;
        let start = &bytes[..bytes.len().min(MAGIC.len())];
        if start.is_empty() || *start != MAGIC[..start.len()] {
            return Err(CatalogError::NotACatalog);
        }
        let short = CatalogError::Truncated { found, expected: HEADER };
        let header = bytes.get(..HEADER as usize).ok_or(short)?;
        let version = word(header, 8).unwrap_or(0);
        if version != VERSION {
            return Err(CatalogError::OtherVersion { found: version });
        }
        if word(header, 108) != Some(crc32fast::hash(&header[..108])) {
            return Err(corrupt(0));
        }
        let objects = match word(header, 12) {
            Some(0) => false,
            Some(OBJECTS) => true,
            // Unknown flags mean a later layout.
            _ => return Err(CatalogError::OtherVersion { found: version }),
        };
        let field = |at: usize| number(header, at).unwrap_or(0);
        let expected = field(16);
        if found < expected {
            return Err(CatalogError::Truncated { found, expected });
        }
        if found > expected {
            return Err(CatalogError::Corrupt { offset: expected });
        }
        let place = |at: usize| usize::try_from(field(at)).map_err(|_| corrupt(at));
        let mut digest = [0; 16];
        digest.copy_from_slice(&header[88..104]);
        let facts = CatalogHeader {
            objects,
            files: field(24),
            total_bytes: field(32),
            folders: place(40)?,
            blocks: place(48)?,
            records_at: place(56)?,
            paths_at: place(64)?,
            blocks_at: place(72)?,
            suffixes_at: place(80)?,
            digest,
        };
        facts.check_sections(bytes)?;
        let tail = bytes.get(facts.records_at..).unwrap_or_default();
        if word(header, 104) != Some(crc32fast::hash(tail)) {
            return Err(corrupt(facts.records_at));
        }
        Ok(facts)
    }

    /// Checks that the sections are contiguous and have the lengths that the counts require.
    fn check_sections(&self, bytes: &[u8]) -> Result<(), CatalogError> {
        let records = self.folders.checked_mul(RECORD).and_then(|len| self.records_at.checked_add(len));
        let blocks = self.blocks.checked_mul(8).and_then(|len| self.blocks_at.checked_add(len));
        let ordered = HEADER as usize <= self.records_at
            && records == Some(self.paths_at)
            && self.paths_at <= self.blocks_at
            && blocks == Some(self.suffixes_at)
            && self.suffixes_at <= bytes.len();
        if ordered { Ok(()) } else { Err(corrupt(56)) }
    }
}

fn corrupt(offset: usize) -> CatalogError {
    CatalogError::Corrupt { offset: offset as u64 }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
