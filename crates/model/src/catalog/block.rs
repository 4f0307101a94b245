//! Blocks of front-coded names: the body of a catalog. Bytes in, bytes out; reading arbitrary bytes gives a name and a
//! size, or `None`.
//!
//! A block contains up to 64 files of one folder, in byte order of their names. Numbers are LEB128 varints:
//!
//! ```text
//! crc32 of the rest, 4 bytes
//! first file      size, length of the name, the name
//! each other      head = middle x 4 + (new length ? 2 : 0) + (new size ? 1 : 0)
//!                 prefix           number of bytes kept from the start of the previous name
//!                 [replaced]       number of bytes to remove from the previous name; omitted if as many are inserted
//!                 middle bytes     inserted in their place; the rest of the previous name is kept
//!                 [size change]    zigzag, relative to the previous size; omitted if unchanged
//! ```
//!
//! Numbered names (`img_0000123_of_1000000.npz`) differ only in the middle, so the end is kept as well as the start:
//! plain front coding would repeat `_of_1000000.npz` in every entry and take five times as much space.
//!
//! In the catalog of an object store, each block is followed by the versions of its files: a CRC-32 of the rest, 4
//! bytes, then 8 bytes per file, 0 if the server sent no entity tag. They are apart from the block, so that the
//! digest of a catalog is the same for objects and files.

use std::num::NonZeroU64;

use super::build::BuildError;
use crate::files::FileEntry;
use crate::objects::ObjectVersion;

/// Files in a block. More would save little (a block's first name is a fiftieth of it) and make every lookup slower.
pub(crate) const BLOCK_FILES: u64 = 64;

/// Bytes of a block's checksum.
const CHECKSUM: usize = 4;
/// Bytes of a version.
const VERSION_BYTES: usize = 8;

/// Appends a LEB128 varint.
pub fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Removes a LEB128 varint from the front of `bytes`.
#[inline]
pub fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    *bytes = rest;
    if first < 0x80 {
        return Some(u64::from(first));
    }
    let mut number = u64::from(first & 0x7f);
    for shift in (7..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        // The tenth byte holds only one bit.
        if shift == 63 && part > 1 {
            return None;
        }
        number |= part << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Removes `len` bytes from the front of `bytes`.
#[inline]
pub fn take_bytes<'a>(bytes: &mut &'a [u8], len: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
    *bytes = rest;
    Some(taken)
}

/// Maps signed to unsigned numbers, so that small changes in both directions are small numbers.
fn zigzag(change: u64) -> u64 {
    (change << 1) ^ ((change as i64 >> 63) as u64)
}

fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// The files of one folder as blocks, ready to be copied into a catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedFolder {
    pub files: u64,
    /// Sum of the files' sizes.
    pub bytes: u64,
    /// Length of each block in the body, with its versions.
    pub blocks: Vec<u32>,
    pub body: Vec<u8>,
    /// Whether each block is followed by versions.
    pub versioned: bool,
}

impl EncodedFolder {
    /// The blocks without their versions, and the sum of their lengths. `None` if the lengths do not match.
    pub(super) fn bare_blocks(&self) -> Option<(u64, Vec<&[u8]>)> {
        let (mut start, mut length, mut all) = (0usize, 0, Vec::with_capacity(self.blocks.len()));
        for (block, len) in self.blocks.iter().enumerate() {
            let end = start.checked_add(*len as usize)?;
            let versions =
                if self.versioned { versions_length(files_in(self.files, block as u64)?) } else { 0 };
            let bare = self.body.get(start..end.checked_sub(versions)?)?;
            length += bare.len() as u64;
            all.push(bare);
            start = end;
        }
        (start == self.body.len()).then_some((length, all))
    }
}

/// The number of files in a block of a folder with this many files; `None` if there is no such block.
pub(super) fn files_in(files: u64, block: u64) -> Option<u64> {
    let left = files.checked_sub(block.checked_mul(BLOCK_FILES)?)?;
    (left > 0).then_some(left.min(BLOCK_FILES))
}

/// Length of the versions after a block of this many files.
fn versions_length(files: u64) -> usize {
    CHECKSUM + files as usize * VERSION_BYTES
}

/// Separates a block from the versions that follow it, which are checked.
fn split_versions(block: &[u8], files: u64) -> Option<(&[u8], &[u8])> {
    let (block, versions) = block.split_at_checked(block.len().checked_sub(versions_length(files))?)?;
    let (checksum, versions) = versions.split_first_chunk::<CHECKSUM>()?;
    (u32::from_le_bytes(*checksum) == crc32fast::hash(versions)).then_some((block, versions))
}

/// Version number `at`; `None` if it is unknown.
fn version_at(versions: &[u8], at: usize) -> Option<ObjectVersion> {
    let bytes = versions.get(at * VERSION_BYTES..)?.first_chunk()?;
    NonZeroU64::new(u64::from_le_bytes(*bytes)).map(ObjectVersion)
}

/// Encodes the files of a folder, given in byte order of their names.
#[derive(Debug, Default)]
pub struct FolderEncoder {
    done: EncodedFolder,
    previous: Vec<u8>,
    previous_size: u64,
    /// The offset in the body at which the current block starts.
    start: usize,
    /// The versions of the current block.
    versions: Vec<u8>,
}

impl FolderEncoder {
    pub fn new() -> FolderEncoder {
        FolderEncoder::default()
    }

    /// For objects, which have versions.
    pub fn of_objects() -> FolderEncoder {
        let done = EncodedFolder { versioned: true, ..EncodedFolder::default() };
        FolderEncoder { done, ..FolderEncoder::default() }
    }

    /// Adds a file, whose version is unknown.
    pub fn push(&mut self, name: &[u8], size: u64) -> Result<(), BuildError> {
        self.push_entry(name, FileEntry::of_size(size))
    }

    /// Adds all files of another folder, whose names are after those added before.
    pub fn append(&mut self, run: &EncodedFolder) -> Result<(), BuildError> {
        let mut cursor = FileCursor::new(run);
        while cursor.advance().ok_or_else(|| BuildError::Blocks("a run".to_owned()))? {
            let (name, bytes) = cursor.current();
            self.push_entry(name, FileEntry { bytes, version: cursor.version() })?;
        }
        Ok(())
    }

    /// Adds a file. Its version is kept only if this is a folder of objects.
    pub fn push_entry(&mut self, name: &[u8], entry: FileEntry) -> Result<(), BuildError> {
        let size = entry.bytes;
        if !is_name(name) {
            return Err(BuildError::Name(String::from_utf8_lossy(name).into_owned()));
        }
        if self.done.files > 0 && self.previous.as_slice() >= name {
            return Err(BuildError::Order(String::from_utf8_lossy(name).into_owned()));
        }
        self.done.bytes = self.done.bytes.checked_add(size).ok_or(BuildError::TooLarge)?;
        if self.done.files.is_multiple_of(BLOCK_FILES) {
            self.close_block();
            let body = &mut self.done.body;
            body.extend_from_slice(&[0; CHECKSUM]);
            put_varint(body, size);
            put_varint(body, name.len() as u64);
            body.extend_from_slice(name);
        } else {
            self.push_change(name, size);
        }
        if self.done.versioned {
            let version = entry.version.map_or(0, |version| version.0.get());
            self.versions.extend_from_slice(&version.to_le_bytes());
        }
        self.done.files += 1;
        self.previous.clear();
        self.previous.extend_from_slice(name);
        self.previous_size = size;
        Ok(())
    }

    fn push_change(&mut self, name: &[u8], size: u64) {
        let previous = self.previous.as_slice();
        let prefix = previous.iter().zip(name).take_while(|(a, b)| a == b).count();
        let (old, new) = (&previous[prefix..], &name[prefix..]);
        let kept = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
        let (replaced, middle) = (old.len() - kept, &new[..new.len() - kept]);
        let other_length = replaced != middle.len();
        let other_size = size != self.previous_size;
        let body = &mut self.done.body;
        put_varint(body, (middle.len() as u64) << 2 | u64::from(other_length) << 1 | u64::from(other_size));
        put_varint(body, prefix as u64);
        if other_length {
            put_varint(body, replaced as u64);
        }
        body.extend_from_slice(middle);
        if other_size {
            put_varint(body, zigzag(size.wrapping_sub(self.previous_size)));
        }
    }

    /// Writes checksum and length of the current block, if there is one.
    fn close_block(&mut self) {
        let body = &mut self.done.body;
        if let Some((checksum, content)) = body[self.start..].split_first_chunk_mut::<CHECKSUM>() {
            *checksum = crc32fast::hash(content).to_le_bytes();
            if self.done.versioned {
                body.extend_from_slice(&crc32fast::hash(&self.versions).to_le_bytes());
                body.append(&mut self.versions);
            }
            // 64 names of at most 4 KiB and their sizes are far below 4 GiB.
            self.done.blocks.push((body.len() - self.start) as u32);
            self.start = body.len();
        }
    }

    pub fn finish(mut self) -> EncodedFolder {
        self.close_block();
        self.done.body.shrink_to_fit();
        self.done
    }
}

/// Whether it is a valid file or folder name: not a path, and without special meaning in a path.
pub fn is_name(name: &[u8]) -> bool {
    // The limit in Linux is 255 bytes for nearly every file system, and 4095 for a whole path.
    (1..4096).contains(&name.len())
        && name != b"."
        && name != b".."
        && !name.iter().any(|b| matches!(b, 0 | b'/'))
}

/// Reads the files of a block in order. The current name is at the end of the caller's buffer.
struct Decoder<'a> {
    rest: &'a [u8],
    size: u64,
}

impl<'a> Decoder<'a> {
    /// Verifies the checksum of the block and reads its first name, which it appends to `name`.
    fn begin(block: &'a [u8], name: &mut Vec<u8>) -> Option<Decoder<'a>> {
        let (checksum, mut rest) = block.split_first_chunk::<CHECKSUM>()?;
        if u32::from_le_bytes(*checksum) != crc32fast::hash(rest) {
            return None;
        }
        let size = take_varint(&mut rest)?;
        let len = take_varint(&mut rest)?;
        name.extend_from_slice(take_bytes(&mut rest, len)?);
        Some(Decoder { rest, size })
    }

    /// Turns the name that starts at `base` of the buffer into the next one.
    #[inline]
    fn advance(&mut self, base: usize, name: &mut Vec<u8>) -> Option<()> {
        let head = take_varint(&mut self.rest)?;
        let prefix = usize::try_from(take_varint(&mut self.rest)?).ok()?;
        let middle = head >> 2;
        let replaced = if head & 2 == 0 { middle } else { take_varint(&mut self.rest)? };
        let middle = take_bytes(&mut self.rest, middle)?;
        let start = base.checked_add(prefix)?;
        let end = start.checked_add(usize::try_from(replaced).ok()?)?;
        let slot = name.get_mut(start..end)?;
        if let ([to], [from]) = (&mut *slot, middle) {
            // A numbered name: only one digit differs.
            *to = *from;
        } else if slot.len() == middle.len() {
            slot.copy_from_slice(middle);
        } else {
            name.splice(start..end, middle.iter().copied());
        }
        if head & 1 != 0 {
            self.size = self.size.wrapping_add(unzigzag(take_varint(&mut self.rest)?));
        }
        Some(())
    }
}

/// Appends the name of file `at` of a block to `name` and returns its size.
pub(super) fn look_up(block: &[u8], at: u64, name: &mut Vec<u8>) -> Option<u64> {
    let base = name.len();
    let mut decoder = Decoder::begin(block, name)?;
    for _ in 0..at {
        decoder.advance(base, name)?;
    }
    is_name(&name[base..]).then_some(decoder.size)
}

/// The same for a block of `files` objects, with the version.
pub(super) fn look_up_object(block: &[u8], files: u64, at: u64, name: &mut Vec<u8>) -> Option<FileEntry> {
    let (block, versions) = split_versions(block, files)?;
    Some(FileEntry { bytes: look_up(block, at, name)?, version: version_at(versions, at as usize) })
}

/// Iterates over the files of an encoded folder.
#[derive(Debug)]
pub(crate) struct FileCursor<'a> {
    folder: &'a EncodedFolder,
    /// Files already returned, blocks already started, and the offset of the next block in the body.
    given: u64,
    block: usize,
    start: usize,
    rest: &'a [u8],
    name: Vec<u8>,
    size: u64,
    /// The versions of the current block.
    versions: &'a [u8],
}

impl<'a> FileCursor<'a> {
    /// Starts before the first file.
    pub(crate) fn new(folder: &'a EncodedFolder) -> FileCursor<'a> {
        FileCursor {
            folder,
            given: 0,
            block: 0,
            start: 0,
            rest: &[],
            name: Vec::new(),
            size: 0,
            versions: &[],
        }
    }

    /// Moves to the next file. `Some(false)` at the end, `None` if the bytes are not a valid folder.
    pub(crate) fn advance(&mut self) -> Option<bool> {
        if self.given == self.folder.files {
            return Some(false);
        }
        let mut decoder = Decoder { rest: self.rest, size: self.size };
        if self.given.is_multiple_of(BLOCK_FILES) {
            let end = self.start.checked_add(*self.folder.blocks.get(self.block)? as usize)?;
            self.name.clear();
            let mut block = self.folder.body.get(self.start..end)?;
            if self.folder.versioned {
                (block, self.versions) =
                    split_versions(block, files_in(self.folder.files, self.block as u64)?)?;
            }
            decoder = Decoder::begin(block, &mut self.name)?;
            (self.block, self.start) = (self.block + 1, end);
        } else {
            decoder.advance(0, &mut self.name)?;
        }
        (self.rest, self.size) = (decoder.rest, decoder.size);
        self.given += 1;
        is_name(&self.name).then_some(true)
    }

    /// Name and size of the current file.
    pub(crate) fn current(&self) -> (&[u8], u64) {
        (&self.name, self.size)
    }

    /// Version of the current file; `None` if it is unknown.
    pub(crate) fn version(&self) -> Option<ObjectVersion> {
        version_at(self.versions, (self.given.checked_sub(1)? % BLOCK_FILES) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(files: &[(&[u8], u64)]) -> EncodedFolder {
        let mut encoder = FolderEncoder::new();
        files.iter().for_each(|(name, size)| encoder.push(name, *size).unwrap());
        encoder.finish()
    }

    #[test]
    fn varints_are_unambiguous() {
        for number in [0, 1, 127, 128, 300, 1 << 32, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            let mut rest = bytes.as_slice();
            assert_eq!(take_varint(&mut rest), Some(number));
            assert!(rest.is_empty());
            assert_eq!(take_varint(&mut &bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(take_varint(&mut [0xff; 9].as_slice()), None);
        assert_eq!(
            take_varint(&mut [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2].as_slice()),
            None
        );
    }

    #[test]
    fn size_changes_in_both_directions_are_small() {
        for change in [0u64, 1, u64::MAX, 5, u64::MAX - 4, 1 << 63, i64::MAX as u64] {
            assert_eq!(unzigzag(zigzag(change)), change);
        }
        assert_eq!((zigzag(0), zigzag(u64::MAX), zigzag(1)), (0, 1, 2));
    }

    #[test]
    fn a_numbered_name_of_the_same_size_takes_three_bytes() {
        let two = encode(&[(b"img_0000123_of_1000000.npz", 5), (b"img_0000223_of_1000000.npz", 5)]);
        let one = encode(&[(b"img_0000123_of_1000000.npz", 5)]);
        assert_eq!(two.body.len() - one.body.len(), 3);
    }

    #[test]
    fn unordered_duplicate_and_invalid_names_are_refused() {
        let mut encoder = FolderEncoder::new();
        encoder.push(b"b", 1).unwrap();
        assert_eq!(encoder.push(b"a", 1), Err(BuildError::Order("a".into())));
        assert_eq!(encoder.push(b"b", 1), Err(BuildError::Order("b".into())));
        for name in [b"".as_slice(), b".", b"..", b"x/y", b"x\0", &[b'x'; 4096]] {
            assert!(matches!(encoder.push(name, 1), Err(BuildError::Name(_))), "{name:?}");
        }
        assert_eq!(encoder.push(b"c", u64::MAX), Err(BuildError::TooLarge));
    }

    #[test]
    fn a_cursor_returns_what_was_pushed() {
        let names: Vec<String> = (0..200).map(|i| format!("{i:03}{}", "x".repeat(i % 7))).collect();
        let files: Vec<(&[u8], u64)> =
            names.iter().enumerate().map(|(i, n)| (n.as_bytes(), i as u64 * 7 % 30)).collect();
        let folder = encode(&files);
        let mut cursor = FileCursor::new(&folder);
        for file in &files {
            assert_eq!(cursor.advance(), Some(true));
            assert_eq!(cursor.current(), *file);
        }
        assert_eq!(cursor.advance(), Some(false));
    }

    #[test]
    fn a_flipped_byte_is_detected_by_cursor_and_lookup() {
        let folder = encode(&[(b"alpha", 1), (b"alphabet", 2), (b"beta", 300)]);
        for at in 0..folder.body.len() {
            let mut bad = folder.clone();
            bad.body[at] ^= 0x10;
            assert_eq!(FileCursor::new(&bad).advance(), None);
            assert_eq!(look_up(&bad.body, 2, &mut Vec::new()), None);
        }
    }
}
