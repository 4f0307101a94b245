//! Assembles encoded folders into a catalog. The caller writes the bodies as the folders arrive, so only the tables are
//! in memory: 40 bytes and a path per folder, 8 bytes per block of 64 files.

use std::cmp::Ordering;

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::block::{BLOCK_FILES, EncodedFolder, is_name, put_varint};
use super::{HEADER, MAGIC, OBJECTS, VERSION};

/// Why something cannot be added to a catalog.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BuildError {
    #[error("'{0}' is not a valid name of a file or folder")]
    Name(String),
    #[error("'{0}' is out of order or a duplicate")]
    Order(String),
    #[error("the sizes of the files add up to more than 2^64 bytes")]
    TooLarge,
    #[error("'{0}' has blocks that do not match its files")]
    Blocks(String),
}

/// Accepts folders in `path_order`. The file is: the header (`HEADER` bytes), the bodies in the order of `push`, the
/// tail.
#[derive(Debug)]
pub struct Assembler {
    records: Vec<u8>,
    paths: Vec<u8>,
    blocks: Vec<u8>,
    suffixes: Vec<Vec<u8>>,
    /// Whether folders of objects are added.
    versioned: bool,
    last_path: Option<Vec<u8>>,
    content: Sha256,
    folders: u64,
    files: u64,
    bytes: u64,
    block_count: u64,
    position: u64,
}

/// The parts before and after the bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogFrame {
    pub header: [u8; HEADER as usize],
    pub tail: Vec<u8>,
    pub files: u64,
    pub bytes: u64,
    pub folders: u64,
}

impl Assembler {
    /// `suffixes` are the required suffixes of listed files; empty if all files were listed.
    pub fn new(suffixes: &[Vec<u8>]) -> Assembler {
        Assembler {
            records: Vec::new(),
            paths: Vec::new(),
            blocks: Vec::new(),
            suffixes: suffixes.to_vec(),
            versioned: false,
            last_path: None,
            content: Sha256::new(),
            folders: 0,
            files: 0,
            bytes: 0,
            block_count: 0,
            position: HEADER,
        }
    }

    /// The same for folders of objects, which have versions.
    pub fn of_objects(suffixes: &[Vec<u8>]) -> Assembler {
        Assembler { versioned: true, ..Assembler::new(suffixes) }
    }

    /// Adds a folder, which may be empty; the root has the empty path. The caller writes `folder.body` next.
    pub fn push(&mut self, path: &[u8], mtime_ns: i64, folder: &EncodedFolder) -> Result<(), BuildError> {
        let shown = || String::from_utf8_lossy(path).into_owned();
        if !is_path(path) {
            return Err(BuildError::Name(shown()));
        }
        if self.last_path.as_deref().is_some_and(|last| path_order(last, path).is_ge()) {
            return Err(BuildError::Order(shown()));
        }
        let length: u64 = folder.blocks.iter().map(|length| u64::from(*length)).sum();
        if folder.blocks.len() as u64 != folder.files.div_ceil(BLOCK_FILES)
            || length != folder.body.len() as u64
            || (folder.files > 0 && folder.versioned != self.versioned)
        {
            return Err(BuildError::Blocks(shown()));
        }
        let bytes = self.bytes.checked_add(folder.bytes).ok_or(BuildError::TooLarge)?;
        hash_folder(&mut self.content, path, folder).ok_or_else(|| BuildError::Blocks(shown()))?;
        self.paths.extend_from_slice(path);
        for number in [self.files, self.block_count, self.paths.len() as u64, mtime_ns as u64, folder.bytes] {
            self.records.extend_from_slice(&number.to_le_bytes());
        }
        for length in &folder.blocks {
            self.blocks.extend_from_slice(&self.position.to_le_bytes());
            self.position += u64::from(*length);
        }
        self.bytes = bytes;
        self.files += folder.files;
        self.block_count += folder.blocks.len() as u64;
        self.folders += 1;
        self.last_path = Some(path.to_vec());
        Ok(())
    }

    pub fn finish(self) -> CatalogFrame {
        let mut suffixes = Vec::new();
        put_varint(&mut suffixes, self.suffixes.len() as u64);
        for suffix in &self.suffixes {
            put_varint(&mut suffixes, suffix.len() as u64);
            suffixes.extend_from_slice(suffix);
        }
        let records_at = self.position;
        let paths_at = records_at + self.records.len() as u64;
        let blocks_at = paths_at + self.paths.len() as u64;
        let suffixes_at = blocks_at + self.blocks.len() as u64;
        let length = suffixes_at + suffixes.len() as u64;
        let tail = [self.records, self.paths, self.blocks, suffixes].concat();

        let mut header = Vec::with_capacity(HEADER as usize);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        let flags = if self.versioned { OBJECTS } else { 0 };
        header.extend_from_slice(&flags.to_le_bytes());
        let counts = [length, self.files, self.bytes, self.folders, self.block_count];
        for number in counts.into_iter().chain([records_at, paths_at, blocks_at, suffixes_at]) {
            header.extend_from_slice(&number.to_le_bytes());
        }
        header.extend_from_slice(&self.content.finalize()[..16]);
        header.extend_from_slice(&crc32fast::hash(&tail).to_le_bytes());
        header.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
        let mut fixed = [0; HEADER as usize];
        fixed.copy_from_slice(&header);
        CatalogFrame { header: fixed, tail, files: self.files, bytes: self.bytes, folders: self.folders }
    }
}

/// Adds a folder to the digest: everything except its modification time and the versions of objects. `None` if its
/// blocks do not match its files.
pub(super) fn hash_folder(content: &mut Sha256, path: &[u8], folder: &EncodedFolder) -> Option<()> {
    let (length, blocks) = folder.bare_blocks()?;
    content.update((path.len() as u64).to_le_bytes());
    content.update(path);
    content.update(folder.files.to_le_bytes());
    content.update(length.to_le_bytes());
    blocks.into_iter().for_each(|block| content.update(block));
    Some(())
}

/// The order of folders in a catalog: component by component, each in byte order. A slash sorts before all other bytes,
/// so that `train`, `train/0` and `train-more` are in this order, and a folder's subtree is contiguous.
pub fn path_order(a: &[u8], b: &[u8]) -> Ordering {
    let rank = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(rank).cmp(b.iter().map(rank))
}

/// Whether it is a valid folder path relative to the root: empty, or names separated by slashes.
pub(super) fn is_path(path: &[u8]) -> bool {
    path.is_empty() || path.split(|byte| *byte == b'/').all(is_name)
}
