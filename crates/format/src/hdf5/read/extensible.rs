//! Extensible arrays: the chunk index of a dataset with one unlimited axis. Elements are in the index block, in
//! data blocks that it lists, and in those that its super blocks list, which double in size and number as the
//! array grows (specification appendix C, libhdf5's H5EA).

use super::cursor::{Container, Cursor};
use crate::Obstacle;

pub(super) struct ExtensibleArray {
    /// Bytes of an element.
    pub element: u64,
    /// Elements in the index block, and in the smallest block of data.
    in_index: u64,
    smallest: u64,
    /// Elements of a page.
    page: u64,
    /// Bytes of a block's field for its offset in the array.
    offset_bytes: u64,
    /// Super blocks: all, and those whose data blocks the index block lists itself.
    supers: u64,
    inlined: u64,
    /// Data blocks that the index block lists.
    pointers: u64,
    index: Option<u64>,
}

/// The super block of an element, and the element's position in it.
struct ElementPosition {
    number: u64,
    /// Position among the super block's elements.
    within: u64,
    /// Data blocks before the super block's.
    blocks_before: u64,
    blocks: u64,
    block_elements: u64,
}

impl ExtensibleArray {
    pub(super) fn open(container: &Container<'_>, at: u64) -> Result<ExtensibleArray, Obstacle> {
        let len = 16 + 6 * container.length_bytes + container.address_bytes;
        let mut cursor = container.block(at, len, b"EAHD")?;
        cursor.version("an extensible array", &[0])?;
        cursor.skip(1)?;
        let element = u64::from(cursor.u8()?);
        let (bits, in_index) = (u64::from(cursor.u8()?), u64::from(cursor.u8()?));
        let (smallest, pointers) = (u64::from(cursor.u8()?), u64::from(cursor.u8()?));
        let page_bits = cursor.u8()?;
        cursor.skip(6 * container.length_bytes)?;
        let index = cursor.address(container)?;
        let powers = smallest.is_power_of_two() && pointers.is_power_of_two();
        let supers = if powers { (1 + bits).checked_sub(u64::from(smallest.ilog2())) } else { None };
        let inlined = if powers { 2 * u64::from(pointers.ilog2()) } else { 0 };
        match supers.filter(|supers| *supers >= inlined) {
            Some(supers) if bits <= 62 && page_bits <= 32 && element >= container.address_bytes => {
                Ok(ExtensibleArray {
                    element,
                    in_index,
                    smallest,
                    page: 1 << page_bits,
                    offset_bytes: bits.div_ceil(8),
                    supers,
                    inlined,
                    pointers: 2 * (pointers - 1),
                    index,
                })
            }
            _ => Err(cursor.damage("an extensible array of invalid shape")),
        }
    }

    pub(super) fn find<'a>(
        &self,
        container: &Container<'a>,
        number: u64,
    ) -> Result<Option<Cursor<'a, 'a>>, Obstacle> {
        let Some(index) = self.index else { return Ok(None) };
        let wide = container.address_bytes;
        let named = self.pointers + self.supers - self.inlined;
        let len = 6 + wide + self.in_index * self.element + named * wide + 4;
        let mut cursor = container.block(index, len, b"EAIB")?;
        cursor.skip(2 + wide)?;
        let Some(beyond) = number.checked_sub(self.in_index) else {
            cursor.skip(number * self.element)?;
            return Ok(Some(cursor));
        };
        cursor.skip(self.in_index * self.element)?;
        let place = self.place(beyond);
        if place.number >= self.supers {
            return Err(cursor.damage(format!("an extensible array without space for chunk {number}")));
        }
        let block = place.within / place.block_elements;
        if place.number < self.inlined {
            cursor.skip((place.blocks_before + block) * wide)?;
            let Some(at) = cursor.address(container)? else { return Ok(None) };
            return self.in_block(container, at, &place);
        }
        cursor.skip((self.pointers + place.number - self.inlined) * wide)?;
        let Some(at) = cursor.address(container)? else { return Ok(None) };
        self.in_super_block(container, at, &place)
    }

    /// Super block u has 2^(u/2) data blocks with 2^((u+1)/2) times the smallest number of elements.
    fn place(&self, beyond: u64) -> ElementPosition {
        let number = u64::from((beyond / self.smallest + 1).ilog2());
        let (mut start, mut blocks_before) = (0_u64, 0_u64);
        for before in 0..number {
            start += self.smallest << before;
            blocks_before += 1 << (before / 2);
        }
        ElementPosition {
            number,
            within: beyond - start,
            blocks_before,
            blocks: 1 << (number / 2),
            block_elements: self.smallest << number.div_ceil(2),
        }
    }

    fn in_super_block<'a>(
        &self,
        container: &Container<'a>,
        at: u64,
        place: &ElementPosition,
    ) -> Result<Option<Cursor<'a, 'a>>, Obstacle> {
        let prefix = 2 + container.address_bytes + self.offset_bytes;
        let pages = self.pages(place);
        let bits = place.blocks.saturating_mul(pages.div_ceil(8));
        let len = place.blocks.saturating_mul(container.address_bytes).saturating_add(bits);
        let mut cursor = container.block(at, len.saturating_add(4 + prefix + 4), b"EASB")?;
        cursor.skip(prefix)?;
        let block = place.within / place.block_elements;
        let page = place.within % place.block_elements / self.page;
        if pages > 0 {
            let bit = block * pages + page;
            let mut used = cursor.clone();
            used.skip(bit / 8)?;
            if used.u8()? & (0x80 >> (bit % 8)) == 0 {
                return Ok(None);
            }
        }
        cursor.skip(bits + block * container.address_bytes)?;
        let Some(at) = cursor.address(container)? else { return Ok(None) };
        self.in_block(container, at, place)
    }

    /// Pages of a data block; 0 if it is not paged.
    fn pages(&self, place: &ElementPosition) -> u64 {
        if place.block_elements > self.page { place.block_elements / self.page } else { 0 }
    }

    fn in_block<'a>(
        &self,
        container: &Container<'a>,
        at: u64,
        place: &ElementPosition,
    ) -> Result<Option<Cursor<'a, 'a>>, Obstacle> {
        let prefix = 2 + container.address_bytes + self.offset_bytes;
        let within = place.within % place.block_elements;
        if self.pages(place) == 0 {
            let len = 4 + prefix + place.block_elements.saturating_mul(self.element) + 4;
            let mut cursor = container.block(at, len, b"EADB")?;
            cursor.skip(prefix + within * self.element)?;
            return Ok(Some(cursor));
        }
        // The positions of the pages do not depend on what precedes them.
        let page_bytes = self.page * self.element + 4;
        let skip = (within / self.page).checked_mul(page_bytes).and_then(|skip| skip.checked_add(8 + prefix));
        let page = skip.and_then(|skip| at.checked_add(skip));
        let page = page.ok_or_else(|| container.damage(at, "an index address that overflows"))?;
        let mut cursor = container.sealed(page, page_bytes)?;
        cursor.skip(within % self.page * self.element)?;
        Ok(Some(cursor))
    }
}
