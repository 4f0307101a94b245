//! Fractal heaps, as far as groups with many links need them: managed objects in direct blocks that are the root
//! or the root's children (specification III.G). That is enough for half a megabyte of links.

use super::cursor::{Container, Cursor};
use crate::Obstacle;

#[derive(Debug)]
pub(super) struct Heap {
    /// Offset of its header.
    at: u64,
    /// Bytes of an offset and of a length in an object's ID.
    offset_bytes: u64,
    length_bytes: u64,
    /// Whether direct blocks have checksums.
    checked: bool,
    /// Blocks in a row, and the bytes of those in the first.
    width: u64,
    first_block: u64,
    largest_block: u64,
    root: u64,
    /// Rows of the root; 0 if it is a direct block.
    rows: u64,
}

impl Heap {
    pub(super) fn open(container: &Container<'_>, at: u64) -> Result<Heap, Obstacle> {
        let len = 22 + 12 * container.length_bytes + 3 * container.address_bytes + 4;
        let mut cursor = container.block(at, len, b"FRHP")?;
        cursor.version("a fractal heap", &[0])?;
        cursor.skip(2)?;
        let filters = cursor.u16()?;
        let flags = cursor.u8()?;
        let largest_object = u64::from(cursor.u32()?);
        // Huge objects, free space and statistics of all objects.
        cursor.skip(10 * container.length_bytes + 2 * container.address_bytes)?;
        let width = u64::from(cursor.u16()?);
        let (first_block, largest_block) = (cursor.length(container)?, cursor.length(container)?);
        let bits = u64::from(cursor.u16()?);
        cursor.skip(2)?;
        let root =
            cursor.address(container)?.ok_or_else(|| cursor.damage("a fractal heap without blocks"))?;
        let rows = u64::from(cursor.u16()?);
        let power = |number: u64| number.is_power_of_two() && number <= u64::from(u32::MAX);
        if filters > 0 || !power(first_block) || !power(largest_block) || width == 0 || bits > 64 {
            return Err(cursor.damage("an unsupported kind of fractal heap"));
        }
        let offset_bytes = bits.div_ceil(8);
        let length_bytes = number_bytes(largest_block).min(number_bytes(largest_object));
        let checked = flags & 2 != 0;
        Ok(Heap { at, offset_bytes, length_bytes, checked, width, first_block, largest_block, root, rows })
    }

    /// The bytes of an object by its ID, and their position.
    pub(super) fn object<'a>(
        &self,
        container: &Container<'a>,
        number: &mut Cursor<'_, '_>,
    ) -> Result<(u64, &'a [u8]), Obstacle> {
        if number.u8()? != 0 {
            return Err(number.damage("a link outside the managed part of its heap, which is not supported"));
        }
        let offset = number.number(self.offset_bytes)?;
        let len = number.number(self.length_bytes)?;
        let (block, start, size) = self.block(container, offset)?;
        let bytes = container.at(block, size)?;
        let mut cursor = container.cursor(block, bytes);
        cursor.expect(b"FHDB")?;
        cursor.version("a heap block", &[0])?;
        let owner = cursor.address(container)?;
        let behind = 5 + container.address_bytes + self.offset_bytes + if self.checked { 4 } else { 0 };
        let skip = offset - start;
        if owner != Some(self.at) || skip < behind {
            return Err(cursor.damage("a heap block with wrong contents"));
        }
        let mut object = container.cursor(block, bytes);
        object.skip(skip)?;
        Ok((object.position(), object.take(len)?))
    }

    /// The direct block at an offset of the heap: its address, offset and size.
    fn block(&self, container: &Container<'_>, offset: u64) -> Result<(u64, u64, u64), Obstacle> {
        if self.rows == 0 {
            return Ok((self.root, 0, self.first_block));
        }
        let (mut row, mut start, mut size) = (0, 0_u64, self.first_block);
        // Rows double from the third on; offsets have 64 bits, so this ends.
        while offset - start >= self.width * size {
            start += self.width * size;
            size = if row == 0 { size } else { size * 2 };
            row += 1;
            if row >= self.rows || size > self.largest_block {
                let what = "a heap of links that is larger than is supported, or an offset beyond it";
                return Err(container.damage(self.at, what));
            }
        }
        let column = (offset - start) / size;
        let prefix = 5 + container.address_bytes + self.offset_bytes;
        // Rows of indirect blocks, if any, follow; they are not needed here.
        let entries = self.rows * self.width * container.address_bytes;
        let mut cursor = container.block(self.root, prefix + entries + 4, b"FHIB")?;
        cursor.skip(prefix - 4 + (row * self.width + column) * container.address_bytes)?;
        let at = cursor.address(container)?.ok_or_else(|| cursor.damage("a heap block is missing"))?;
        Ok((at, start + column * size, size))
    }
}

/// Bytes needed for numbers up to this (H5VM_limit_enc_size).
pub(super) fn number_bytes(limit: u64) -> u64 {
    u64::from(limit.max(1).ilog2() / 8) + 1
}
