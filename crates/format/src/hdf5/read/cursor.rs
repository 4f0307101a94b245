//! Reads numbers from a container's bytes, each checked against the end; and the container itself: the width of
//! its addresses, and which of its blocks have been verified. It must not know what the numbers mean.

use super::super::checksum::lookup3;
use crate::{Extent, Look, Obstacle};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// Maximum number of metadata pieces that are compared with one another, so that a large file stays cheap.
const MOST_COMPARED: usize = 4096;

/// A file being inspected, and the widths in its superblock.
#[derive(Debug)]
pub(in crate::hdf5) struct Container<'a> {
    pub look: &'a Look<'a>,
    /// Bytes of an address.
    pub address_bytes: u64,
    /// Bytes of a length.
    pub length_bytes: u64,
    /// Half the entries of a leaf and of a node of a group's tree, and of a node of a tree of chunks.
    pub group_leaf: u64,
    pub group_node: u64,
    pub chunk_node: u64,
    /// Blocks whose checksums have been verified: a search returns to the same few for every chunk.
    sound: Cell<[(u64, usize); 8]>,
    next_sound: Cell<usize>,
    asked: RefCell<RequestedPieces>,
}

/// The requested pieces, in order and each once.
#[derive(Debug, Default)]
struct RequestedPieces {
    pieces: Vec<Extent>,
    known: BTreeSet<(u64, u64)>,
}

impl<'a> Container<'a> {
    pub(super) fn new(look: &'a Look<'a>) -> Container<'a> {
        Container {
            look,
            address_bytes: 8,
            length_bytes: 8,
            group_leaf: 4,
            group_node: 16,
            chunk_node: 32,
            sound: Cell::new([(u64::MAX, 0); 8]),
            next_sound: Cell::new(0),
            asked: RefCell::default(),
        }
    }

    pub(super) fn damage(&self, offset: u64, what: impl Into<String>) -> Obstacle {
        self.look.damage(offset, what).into()
    }

    /// Bytes of the file, requested like libhdf5.
    pub(super) fn at(&self, offset: u64, len: u64) -> Result<&'a [u8], Obstacle> {
        let bytes = self.look.at(offset, len)?;
        let mut asked = self.asked.borrow_mut();
        if len > 0 && asked.known.insert((offset, len)) {
            asked.pieces.push(Extent { offset, len });
        }
        Ok(bytes)
    }

    /// The pieces that were not read separately, because longer ones before them included them. libhdf5
    /// caches structures, not bytes, and reads them again.
    pub(in crate::hdf5) fn read_again(&self) -> Vec<Extent> {
        let asked = self.asked.borrow();
        let pieces = &asked.pieces[..asked.pieces.len().min(MOST_COMPARED)];
        let holds = |long: &Extent, piece: &Extent| long.offset <= piece.offset && piece.end() <= long.end();
        let again = |number: usize| pieces[..number].iter().any(|long| holds(long, &pieces[number]));
        (0..pieces.len()).filter(|number| again(*number)).map(|number| pieces[number]).collect()
    }

    /// Up to `most` bytes: fewer at the end of the file.
    pub(super) fn up_to(&self, offset: u64, most: u64) -> Result<&'a [u8], Obstacle> {
        match self.look.len.checked_sub(offset) {
            Some(left) if left > 0 => self.at(offset, most.min(left)),
            _ => Err(self.damage(offset, format!("an address beyond its end at byte {}", self.look.len))),
        }
    }

    pub(super) fn cursor<'b>(&self, offset: u64, bytes: &'b [u8]) -> Cursor<'a, 'b> {
        Cursor { look: self.look, start: offset, bytes, done: 0 }
    }

    /// A block with a signature and a valid checksum at its end; the cursor starts after the signature and
    /// ends before the checksum.
    pub(super) fn block(
        &self,
        offset: u64,
        len: u64,
        signature: &[u8; 4],
    ) -> Result<Cursor<'a, 'a>, Obstacle> {
        let mut cursor = self.sealed(offset, len)?;
        cursor.expect(signature)?;
        Ok(cursor)
    }

    /// Bytes that end with a valid checksum.
    pub(super) fn sealed(&self, offset: u64, len: u64) -> Result<Cursor<'a, 'a>, Obstacle> {
        let bytes = self.at(offset, len)?;
        Ok(self.cursor(offset, self.checked(offset, bytes)?))
    }

    /// The bytes before a valid checksum.
    pub(super) fn checked<'b>(&self, offset: u64, bytes: &'b [u8]) -> Result<&'b [u8], Obstacle> {
        let Some((body, sum)) = bytes.split_last_chunk::<4>() else {
            return Err(self.damage(offset, "a block without space for its checksum"));
        };
        let (mut sound, block) = (self.sound.get(), (offset, bytes.len()));
        if sound.contains(&block) {
            return Ok(body);
        }
        let (noted, right) = (u32::from_le_bytes(*sum), lookup3(body));
        if noted != right {
            let what = format!(
                "checksum mismatch in {} bytes of metadata: {noted:08x} instead of {right:08x}",
                block.1
            );
            return Err(self.damage(offset, what));
        }
        let next = self.next_sound.get() % sound.len();
        sound[next] = block;
        self.sound.set(sound);
        self.next_sound.set(next + 1);
        Ok(body)
    }
}

/// Bytes that are read sequentially.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a, 'b> {
    look: &'a Look<'a>,
    /// Offset in the file of the first byte.
    start: u64,
    bytes: &'b [u8],
    done: usize,
}

impl<'b> Cursor<'_, 'b> {
    /// Offset in the file of the next byte.
    pub(super) fn position(&self) -> u64 {
        self.start.saturating_add(self.done as u64)
    }

    pub(super) fn left(&self) -> u64 {
        (self.bytes.len() - self.done) as u64
    }

    pub(super) fn damage(&self, what: impl Into<String>) -> Obstacle {
        self.look.damage(self.position(), what).into()
    }

    pub(super) fn take(&mut self, len: u64) -> Result<&'b [u8], Obstacle> {
        let end = usize::try_from(len).ok().and_then(|len| self.done.checked_add(len));
        match end.and_then(|end| self.bytes.get(self.done..end).map(|part| (end, part))) {
            Some((end, part)) => {
                self.done = end;
                Ok(part)
            }
            None => Err(self.damage(format!("{} bytes instead of {len}", self.left()))),
        }
    }

    pub(super) fn skip(&mut self, len: u64) -> Result<(), Obstacle> {
        self.take(len).map(|_| ())
    }

    /// A little-endian number of up to eight bytes.
    pub(super) fn number(&mut self, bytes: u64) -> Result<u64, Obstacle> {
        let part = self.take(bytes.min(8))?;
        let mut number = [0; 8];
        number[..part.len()].copy_from_slice(part);
        Ok(u64::from_le_bytes(number))
    }

    pub(super) fn u8(&mut self) -> Result<u8, Obstacle> {
        Ok(self.number(1)? as u8)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Obstacle> {
        Ok(self.number(2)? as u16)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Obstacle> {
        Ok(self.number(4)? as u32)
    }

    /// An address, unless it is undefined (all bits set).
    pub(super) fn address(&mut self, container: &Container<'_>) -> Result<Option<u64>, Obstacle> {
        let width = container.address_bytes;
        let undefined = if width < 8 { (1 << (8 * width)) - 1 } else { u64::MAX };
        Ok(Some(self.number(width)?).filter(|address| *address != undefined))
    }

    pub(super) fn length(&mut self, container: &Container<'_>) -> Result<u64, Obstacle> {
        self.number(container.length_bytes)
    }

    pub(super) fn expect(&mut self, signature: &[u8]) -> Result<(), Obstacle> {
        let mut ahead = self.clone();
        match ahead.take(signature.len() as u64)? == signature {
            true => self.skip(signature.len() as u64),
            false => Err(self.damage(format!("signature '{}' is missing", signature.escape_ascii()))),
        }
    }

    /// A version, which must be a known one.
    pub(super) fn version(&mut self, what: &str, known: &[u8]) -> Result<u8, Obstacle> {
        let at = self.position();
        let version = self.u8()?;
        match known.contains(&version) {
            true => Ok(version),
            false => Err(self
                .look
                .damage(at, format!("version {version} of {what}, which is not supported"))
                .into()),
        }
    }
}
