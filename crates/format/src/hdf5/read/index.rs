//! Locates chunks in the chunk indexes, which are searched for the needed chunks and never read completely.
//! libhdf5 selects the kind of index by the shape of the dataset (specification IV.A.2.i and appendix C).

use super::super::grid::{Axes, ChunkGrid};
use super::cursor::{Container, Cursor};
use super::extensible::ExtensibleArray;
use super::tree::{self, BTree2};
use crate::{Extent, Obstacle};

/// The index that a layout message names, and its address. Without an address no chunk was ever written.
#[derive(Clone, Copy, Debug)]
pub(in crate::hdf5) struct ChunkIndex {
    kind: IndexKind,
    address: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum IndexKind {
    /// The chunk itself, with its size if it is filtered.
    Single(Option<u64>),
    /// Contiguous chunks.
    Implicit,
    Fixed,
    Extensible,
    Tree1,
    Tree2,
}

impl ChunkIndex {
    /// The tree of layouts before version 4.
    pub(super) fn tree(address: Option<u64>) -> ChunkIndex {
        ChunkIndex { kind: IndexKind::Tree1, address }
    }

    /// The part of a layout message of version 4 after the chunk's extents.
    pub(super) fn of(
        container: &Container<'_>,
        cursor: &mut Cursor<'_, '_>,
        flags: u8,
        filtered: bool,
    ) -> Result<ChunkIndex, Obstacle> {
        let kind = match cursor.u8()? {
            1 if flags & 2 != 0 => {
                let len = cursor.length(container)?;
                cursor.skip(4)?;
                IndexKind::Single(Some(len))
            }
            1 => IndexKind::Single(None),
            2 => IndexKind::Implicit,
            3 => cursor.skip(1).map(|()| IndexKind::Fixed)?,
            4 => cursor.skip(5).map(|()| IndexKind::Extensible)?,
            5 => cursor.skip(6).map(|()| IndexKind::Tree2)?,
            other => return Err(cursor.damage(format!("an index of chunks of unknown kind {other}"))),
        };
        if filtered && matches!(kind, IndexKind::Single(None) | IndexKind::Implicit) {
            return Err(cursor.damage("filtered chunks without sizes"));
        }
        Ok(ChunkIndex { kind, address: cursor.address(container)? })
    }

    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            IndexKind::Single(_) => "one chunk",
            IndexKind::Implicit => "implicit index",
            IndexKind::Fixed => "fixed array",
            IndexKind::Extensible => "extensible array",
            IndexKind::Tree1 => "B-tree",
            IndexKind::Tree2 => "B-tree version 2",
        }
    }

    /// The index, opened for a search.
    pub(in crate::hdf5) fn finder<'c, 'a>(
        &self,
        container: &'c Container<'a>,
        grid: &'c ChunkGrid,
        filtered: bool,
    ) -> Result<Finder<'c, 'a>, Obstacle> {
        let search = match (self.kind, self.address) {
            (_, None) => Search::Nothing,
            (IndexKind::Single(len), Some(at)) => Search::Single(at, len.unwrap_or(grid.chunk_bytes())),
            (IndexKind::Implicit, Some(at)) => Search::Implicit(at),
            (IndexKind::Fixed, Some(at)) => Search::Fixed(FixedArray::open(container, at)?),
            (IndexKind::Extensible, Some(at)) => Search::Extensible(ExtensibleArray::open(container, at)?),
            (IndexKind::Tree1, Some(at)) => Search::Tree1(at),
            (IndexKind::Tree2, Some(at)) => {
                const CHUNKS: u8 = 10;
                Search::Tree2(BTree2::open(container, at, &[CHUNKS + u8::from(filtered)])?)
            }
        };
        Ok(Finder { container, grid, filtered, search })
    }
}

/// An index that is being searched.
pub(in crate::hdf5) struct Finder<'c, 'a> {
    container: &'c Container<'a>,
    grid: &'c ChunkGrid,
    filtered: bool,
    search: Search<'c, 'a>,
}

enum Search<'c, 'a> {
    Nothing,
    Single(u64, u64),
    Implicit(u64),
    Fixed(FixedArray),
    Extensible(ExtensibleArray),
    Tree1(u64),
    Tree2(BTree2<'c, 'a>),
}

impl Finder<'_, '_> {
    /// The chunk at a position in the grid, if it was ever written.
    pub(in crate::hdf5) fn find(&self, at: &Axes) -> Result<Option<Extent>, Obstacle> {
        let (container, chunk_bytes) = (self.container, self.grid.chunk_bytes());
        let found = match &self.search {
            Search::Nothing => None,
            Search::Single(offset, len) => Some((*offset, *len)),
            Search::Implicit(first) => {
                let offset = self.number(at, None)?.checked_mul(chunk_bytes);
                let offset = offset.and_then(|offset| offset.checked_add(*first));
                offset.map(|offset| (offset, chunk_bytes))
            }
            Search::Fixed(fixed) => {
                self.element(fixed.find(container, self.number(at, None)?)?, fixed.element)?
            }
            Search::Extensible(array) => {
                let growing = self.grid.most.iter().position(|most| *most == u64::MAX);
                self.element(array.find(container, self.number(at, growing)?)?, array.element)?
            }
            Search::Tree1(root) => self.in_tree(*root, at)?,
            Search::Tree2(tree) => self.in_tree2(tree, at)?,
        };
        let Some((offset, len)) = found else { return Ok(None) };
        let inside = offset.checked_add(len).is_some_and(|end| end <= container.look.len);
        match inside && len > 0 {
            true => Ok(Some(Extent { offset, len })),
            false => Err(container.damage(offset, format!("a chunk of {len} bytes outside the file"))),
        }
    }

    /// A position as one number: the last axis varies fastest, and the first is `growing`, if there is one.
    fn number(&self, at: &Axes, growing: Option<usize>) -> Result<u64, Obstacle> {
        let counts = self.grid.most_counts();
        let first = growing.unwrap_or(0);
        let mut others = (0..at.len()).filter(|axis| *axis != first);
        let number = others
            .try_fold(at[first], |number, axis| number.checked_mul(counts[axis])?.checked_add(at[axis]));
        number.ok_or_else(|| self.container.damage(0, "too many chunks"))
    }

    /// An element of an array: address, and if filtered, size and skipped filters.
    fn element(&self, element: Option<Cursor<'_, '_>>, bytes: u64) -> Result<Option<(u64, u64)>, Obstacle> {
        let Some(mut cursor) = element else { return Ok(None) };
        let Some(offset) = cursor.address(self.container)? else { return Ok(None) };
        if !self.filtered {
            return Ok(Some((offset, self.grid.chunk_bytes())));
        }
        let size_bytes = bytes.saturating_sub(self.container.address_bytes + 4);
        match size_bytes {
            1..=8 => Ok(Some((offset, cursor.number(size_bytes)?))),
            _ => Err(cursor.damage(format!("elements of {bytes} bytes in an index of filtered chunks"))),
        }
    }

    fn in_tree(&self, root: u64, at: &Axes) -> Result<Option<(u64, u64)>, Obstacle> {
        let places = at.iter().zip(self.grid.chunk.iter()).map(|(at, chunk)| at * chunk);
        let Some(wanted) = Axes::new(places) else { return Ok(None) };
        let found = tree::find_chunk(self.container, root, &wanted)?;
        Ok(found.map(|(len, offset)| (offset, if self.filtered { len } else { self.grid.chunk_bytes() })))
    }

    fn in_tree2(&self, tree: &BTree2<'_, '_>, at: &Axes) -> Result<Option<(u64, u64)>, Obstacle> {
        let places = 8 * at.len() as u64;
        let Some(skip) = tree.record_bytes.checked_sub(places) else {
            return Err(self.container.damage(0, "a tree of chunks whose records are too short"));
        };
        let found = tree.find(&|record| tree::compare_places(record, skip, at))?;
        self.element(found, skip)
    }
}

/// A fixed array: one element per chunk, in pages if there are many.
struct FixedArray {
    element: u64,
    places: u64,
    page: u64,
    /// Address of the data block; without one no chunk was written.
    block: Option<u64>,
}

impl FixedArray {
    fn open(container: &Container<'_>, at: u64) -> Result<FixedArray, Obstacle> {
        let len = 12 + container.length_bytes + container.address_bytes;
        let mut cursor = container.block(at, len, b"FAHD")?;
        cursor.version("a fixed array", &[0])?;
        cursor.skip(1)?;
        let (element, bits) = (u64::from(cursor.u8()?), cursor.u8()?);
        let places = cursor.length(container)?;
        let block = cursor.address(container)?;
        if bits > 32 || element < container.address_bytes {
            return Err(cursor.damage(format!("an index of elements of {element} bytes, 2^{bits} in a page")));
        }
        // Its block has space for every element, used or not.
        match places.checked_mul(element).is_some_and(|bytes| bytes <= container.look.len) {
            true => Ok(FixedArray { element, places, page: 1 << bits, block }),
            false => Err(container.damage(at, format!("an index of {places} chunks"))),
        }
    }

    fn find<'a>(&self, container: &Container<'a>, place: u64) -> Result<Option<Cursor<'a, 'a>>, Obstacle> {
        let Some(block) = self.block else { return Ok(None) };
        if place >= self.places {
            return Err(container.damage(block, format!("an index of {} chunks, too few", self.places)));
        }
        let prefix = 6 + container.address_bytes;
        if self.places <= self.page {
            let mut cursor = container.block(block, prefix + self.places * self.element + 4, b"FADB")?;
            cursor.skip(prefix - 4 + place * self.element)?;
            return Ok(Some(cursor));
        }
        let bits = self.places.div_ceil(self.page).div_ceil(8);
        let mut cursor = container.block(block, prefix + bits + 4, b"FADB")?;
        let page = place / self.page;
        cursor.skip(prefix - 4 + page / 8)?;
        if cursor.u8()? & (0x80 >> (page % 8)) == 0 {
            return Ok(None);
        }
        let held = self.page.min(self.places - page * self.page);
        let first = block + prefix + bits + 4;
        let at = page.checked_mul(self.page * self.element + 4).and_then(|skip| first.checked_add(skip));
        let at = at.ok_or_else(|| container.damage(block, "an index address that overflows"))?;
        let mut cursor = container.sealed(at, held * self.element + 4)?;
        cursor.skip(place % self.page * self.element)?;
        Ok(Some(cursor))
    }
}
