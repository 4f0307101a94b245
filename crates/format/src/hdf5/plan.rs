//! The layout of a file that feedline writes, computed from its shape: superblock, root group's header, then for
//! each dataset its header and, if it is chunked, its index; then the data of all datasets, with the labels last.
//! h5py with `libver="latest"` has the same layout, to the byte if there is one contiguous dataset.

use super::grid::{Axes, ChunkGrid, MOST_RANK};
use super::{LayoutOptions, NAME, write};
use crate::{Extent, FormatError, array, error};
use model::shape::FileShape;

/// Superblock of version 2 or 3 with 8-byte addresses.
pub(super) const SUPERBLOCK: u64 = 48;
/// libhdf5 allocates metadata in blocks of this length (H5F_META_BLOCK_SIZE); data follows the first.
const META_BLOCK: u64 = 2048;
/// Elements of a page of a fixed array: 2 to this power (H5D_FARRAY_MAX_DBLK_PAGE_NELMTS_BITS).
pub(super) const PAGE_BITS: u8 = 10;
const PAGE: u64 = 1 << PAGE_BITS;
/// Header of a fixed array.
pub(super) const INDEX_HEADER: u64 = 28;
/// Signature, version, client and header address of a fixed array's data block.
pub(super) const INDEX_PREFIX: u64 = 14;
pub(super) const CHECKSUM: u64 = 4;
/// The size of a chunk must fit 32 bits.
const MOST_CHUNK_BYTES: u64 = u32::MAX as u64;
/// The default maximum size of a chunk: h5py's own guesses are not larger, and h5py's chunk cache has this size.
const USUAL_CHUNK_BYTES: u64 = 1 << 20;

/// The layout of one file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// A dataset; contiguous ones are one chunk.
    pub grid: ChunkGrid,
    pub chunked: bool,
    pub filtered: bool,
    pub sets: u64,
    /// Bytes of the root group's header.
    pub root: u64,
    /// Bytes of a dataset's header.
    pub header: u64,
    /// The index of a dataset's chunks.
    pub index: FixedArraySize,
    /// Where data starts.
    pub data: u64,
    /// Bytes of a dataset's data, if they are not compressed.
    pub set_bytes: u64,
    pub label_bytes: u64,
    /// End of the file, if nothing is compressed.
    pub end: u64,
}

/// The sizes of a fixed array.
#[derive(Clone, Copy, Debug)]
pub(super) struct FixedArraySize {
    /// Elements: one per possible chunk.
    pub places: u64,
    /// Bytes of an element.
    pub element: u64,
    /// Total size; 0: there is no index.
    pub bytes: u64,
}

impl FixedArraySize {
    const NONE: FixedArraySize = FixedArraySize { places: 0, element: 0, bytes: 0 };

    /// `None` on overflow.
    fn of(grid: &ChunkGrid, filtered: bool) -> Option<FixedArraySize> {
        let places = grid.most_counts().product()?;
        let element = if filtered { 8 + chunk_size_bytes(grid.chunk_bytes()) + 4 } else { 8 };
        let mut index = FixedArraySize { places, element, bytes: 0 };
        let sums = if index.is_paged() { index.pages().checked_mul(CHECKSUM)? } else { 0 };
        let elements = places.checked_mul(element)?.checked_add(sums)?;
        index.bytes = elements.checked_add(INDEX_HEADER + index.first_block() - index.unpaged_bytes())?;
        Some(index)
    }

    pub(super) fn is_paged(&self) -> bool {
        self.places > PAGE
    }

    pub(super) fn pages(&self) -> u64 {
        self.places.div_ceil(PAGE)
    }

    /// Bytes of the bitmap of used pages.
    pub(super) fn page_bits(&self) -> u64 {
        if self.is_paged() { self.pages().div_ceil(8) } else { 0 }
    }

    fn unpaged_bytes(&self) -> u64 {
        if self.is_paged() { 0 } else { self.places * self.element }
    }

    /// Bytes of the data block that are read first: all of it, or what precedes its pages.
    pub(super) fn first_block(&self) -> u64 {
        INDEX_PREFIX + self.page_bits() + self.unpaged_bytes() + CHECKSUM
    }

    /// The elements of a page.
    pub(super) fn page_places(&self, page: u64) -> u64 {
        PAGE.min(self.places - page * PAGE)
    }

    /// The page of an element, relative to the end of the first block.
    pub(super) fn page_of(&self, place: u64) -> (u64, Extent) {
        let page = place / PAGE;
        let offset = page * (PAGE * self.element + CHECKSUM);
        (page, Extent { offset, len: self.page_places(page) * self.element + CHECKSUM })
    }
}

/// Bytes of the field for a filtered chunk's size: one more than its own size needs (H5D__farray_idx_create).
pub(super) fn chunk_size_bytes(chunk_bytes: u64) -> u64 {
    (1 + u64::from((chunk_bytes.ilog2() + 8) / 8)).min(8)
}

impl Layout {
    pub(super) fn of(settings: &LayoutOptions, shape: &FileShape<'_>) -> Result<Layout, FormatError> {
        error::payload(NAME, shape)?;
        let grid = grid(settings, shape)?;
        let fits = |bytes| error::whole(NAME, shape, bytes);
        let chunked = settings.is_chunked();
        let filtered = settings.gzip.is_some();
        let index = if chunked {
            fits_index(shape, FixedArraySize::of(&grid, filtered))?
        } else {
            FixedArraySize::NONE
        };
        let chunks = fits(grid.chunks())?;
        let set_bytes = fits(chunks.checked_mul(grid.chunk_bytes()))?;
        let root = write::root_bytes(settings.sets);
        let header = write::header_bytes(&grid, chunked, filtered, shape.element);
        let labels = write::labels_header_bytes();
        let metadata = fits((header + index.bytes).checked_mul(settings.sets))? + SUPERBLOCK + root + labels;
        let data = fits(metadata.checked_next_multiple_of(META_BLOCK))?;
        let label_bytes = fits(shape.samples.checked_mul(array::LABEL))?;
        let all = fits(set_bytes.checked_mul(settings.sets))?;
        let end = fits(all.checked_add(data).and_then(|end| end.checked_add(label_bytes)))?;
        let sets = settings.sets;
        Ok(Layout { grid, chunked, filtered, sets, root, header, index, data, set_bytes, label_bytes, end })
    }

    /// Where a dataset's header starts. The labels' header follows those of all sample datasets.
    pub(super) fn header_at(&self, set: u64) -> u64 {
        SUPERBLOCK + self.root + set * (self.header + self.index.bytes)
    }

    /// Where a dataset's index starts: header, then data block.
    pub(super) fn index_at(&self, set: u64) -> u64 {
        self.header_at(set) + self.header
    }

    pub(super) fn data_at(&self, set: u64) -> u64 {
        self.data + set * self.set_bytes
    }
}

fn fits_index(shape: &FileShape<'_>, index: Option<FixedArraySize>) -> Result<FixedArraySize, FormatError> {
    let bytes = error::whole(NAME, shape, index.map(|index| index.bytes))?;
    Ok(FixedArraySize { bytes, ..index.unwrap_or(FixedArraySize::NONE) })
}

/// The dataset for a part of each sample.
fn grid(settings: &LayoutOptions, shape: &FileShape<'_>) -> Result<ChunkGrid, FormatError> {
    let (rank, sets) = (shape.dims.len() + 1, settings.sets);
    let too_many =
        || FormatError::TooManyDimensions { format: NAME, dims: shape.dims.len(), most: MOST_RANK - 1 };
    let mut dims =
        Axes::new([shape.samples].into_iter().chain(shape.dims.iter().copied())).ok_or_else(too_many)?;
    if sets > 1 {
        let first = shape.dims.first().copied().unwrap_or(1);
        if first % sets != 0 {
            return Err(setting(format!(
                "dataset.hdf5.num_dset_per_record {sets} does not divide the first dimension of a sample, {first}; \
                 choose one that does, or another first number in dataset.record_dims"
            )));
        }
        dims.set(1, first / sets);
    }
    let most = most(settings, &dims)?;
    let chunk = match settings.is_chunked() {
        true => chunk(settings, &dims, &most, shape.element.size())?,
        false => dims,
    };
    let grid = ChunkGrid { dims, most, chunk, element: shape.element.size() };
    match grid.is_sound() && grid.dims.len() == rank {
        true => Ok(grid),
        false => Err(error::too_large(NAME, shape, i64::MAX as u64)),
    }
}

fn most(settings: &LayoutOptions, dims: &Axes) -> Result<Axes, FormatError> {
    if settings.max_shape.is_empty() {
        return Ok(*dims);
    }
    let limits = &settings.max_shape;
    let enough =
        limits.len() + 1 == dims.len() && limits.iter().zip(&dims[1..]).all(|(most, dim)| most >= dim);
    let most = Axes::new([dims[0]].into_iter().chain(limits.iter().copied()));
    most.filter(|_| enough).ok_or_else(|| {
        setting(format!(
            "dataset.hdf5.max_shape {limits:?} does not hold a sample's dataset of shape {:?}; give as many numbers, \
             none of them smaller",
            &dims[1..]
        ))
    })
}

/// The requested chunk, never longer than the dataset's maximum; or one sample, its longest side halved until it
/// is small enough.
fn chunk(settings: &LayoutOptions, dims: &Axes, most: &Axes, element: u64) -> Result<Axes, FormatError> {
    let asked = &settings.chunk_dims;
    let mut chunk = *dims;
    chunk.set(0, 1);
    if asked.is_empty() {
        while chunk.product().is_none_or(|all| all.saturating_mul(element) > USUAL_CHUNK_BYTES) {
            let longest = (0..chunk.len()).rev().max_by_key(|axis| chunk[*axis]).unwrap_or(0);
            chunk.set(longest, chunk[longest].div_ceil(2));
        }
        return Ok(chunk);
    }
    let missing = dims.len().checked_sub(asked.len()).filter(|missing| *missing <= 1).ok_or_else(|| {
        setting(format!(
            "dataset.hdf5.chunk_dims {asked:?} does not fit a dataset of shape {:?}; give one number per axis, the \
             samples' first, or those of a sample alone",
            &dims[..]
        ))
    })?;
    for (axis, extent) in asked.iter().enumerate() {
        chunk.set(axis + missing, (*extent).min(most[axis + missing]));
    }
    match chunk.product().and_then(|all| all.checked_mul(element)) {
        Some(bytes) if bytes <= MOST_CHUNK_BYTES => Ok(chunk),
        _ => Err(setting(format!(
            "dataset.hdf5.chunk_dims {asked:?} makes chunks that are too large, the largest have \
             {MOST_CHUNK_BYTES} bytes; choose smaller numbers"
        ))),
    }
}

fn setting(what: String) -> FormatError {
    FormatError::Setting { format: NAME, what }
}
