//! The messages of a dataset's header: extents, element type, filters, and the layout of the data. Only element
//! types that NumPy has are named.

use super::super::grid::{Axes, ChunkGrid, MOST_RANK};
use super::cursor::{Container, Cursor};
use super::header::Message;
use super::index::ChunkIndex;
use crate::{Extent, Obstacle};
use model::shape::Element;

const DATASPACE: u16 = 0x01;
const DATATYPE: u16 = 0x03;
const LAYOUT: u16 = 0x08;
const FILTERS: u16 = 0x0B;

/// A dataset, according to its header.
#[derive(Debug)]
pub(in crate::hdf5) struct Dataset {
    pub name: String,
    /// Offset of its header.
    pub at: u64,
    /// Samples first; at least one, and no extent is 0.
    pub dims: Axes,
    pub element: ElementType,
    pub filters: Vec<u16>,
    pub storage: DatasetStorage,
}

#[derive(Debug)]
pub(in crate::hdf5) enum DatasetStorage {
    /// Contiguous, inside the file, and evenly divisible by the samples.
    Contiguous(Extent),
    Chunked {
        grid: Box<ChunkGrid>,
        index: ChunkIndex,
    },
}

/// The type of elements.
#[derive(Clone, Debug)]
pub(in crate::hdf5) struct ElementType {
    pub bytes: u64,
    /// NumPy's name.
    pub name: Option<&'static str>,
    pub big_endian: bool,
}

impl Dataset {
    /// The dataset with these header messages; `None` if the object is not a dataset, or has no samples.
    pub(super) fn of(
        container: &Container<'_>,
        name: &str,
        at: u64,
        messages: &[Message],
    ) -> Result<Option<Dataset>, Obstacle> {
        let find = |kind| messages.iter().find(|message| message.kind == kind);
        let (Some(space), Some(kind), Some(layout)) = (find(DATASPACE), find(DATATYPE), find(LAYOUT)) else {
            return Ok(None);
        };
        if let Some(shared) = [space, kind, layout].into_iter().find(|message| message.shared) {
            let what = format!("dataset {name} shares a message with others, which is not supported");
            return Err(container.damage(shared.at, what));
        }
        let element = datatype(container, kind)?;
        let (dims, most) = dataspace(container, space)?;
        let filters = find(FILTERS).map_or(Ok(Vec::new()), |message| filters(container, message))?;
        let bytes = dims.product().and_then(|all| all.checked_mul(element.bytes));
        let Some(bytes) = bytes else {
            return Err(
                container.damage(space.at, format!("dataset {name} of invalid shape {:?}", &dims[..]))
            );
        };
        if bytes == 0 || dims.is_empty() {
            return Ok(None);
        }
        let space =
            DatasetShape { name, dims, most, bytes, element: element.bytes, filtered: !filters.is_empty() };
        let storage = space.storage(container, layout)?;
        Ok(Some(Dataset { name: name.to_owned(), at, dims, element, filters, storage }))
    }

    pub(in crate::hdf5) fn is_filtered(&self) -> bool {
        !self.filters.is_empty()
    }

    /// Bytes of all elements.
    pub(super) fn bytes(&self) -> u64 {
        self.dims.product().unwrap_or(0).saturating_mul(self.element.bytes)
    }
}

/// The shape and the type of any dataset, also of one without samples.
pub(super) struct DatasetType {
    pub(super) dims: Axes,
    pub(super) element: ElementType,
}

impl DatasetType {
    /// `None` if the object is not a dataset.
    pub(super) fn of(
        container: &Container<'_>,
        messages: &[Message],
    ) -> Result<Option<DatasetType>, Obstacle> {
        let find = |kind| messages.iter().find(|message| message.kind == kind && !message.shared);
        let (Some(space), Some(kind)) = (find(DATASPACE), find(DATATYPE)) else { return Ok(None) };
        let (dims, _) = dataspace(container, space)?;
        Ok(Some(DatasetType { dims, element: datatype(container, kind)? }))
    }
}

impl ElementType {
    /// NumPy's name, or the size.
    pub(super) fn described(&self) -> String {
        self.name.map_or_else(|| format!("{} bytes", self.bytes), str::to_owned)
    }
}

/// Extents and their maxima.
fn dataspace(container: &Container<'_>, message: &Message) -> Result<(Axes, Axes), Obstacle> {
    let mut cursor = container.cursor(message.at, &message.body);
    let version = cursor.version("a dataspace", &[1, 2])?;
    let (rank, flags) = (usize::from(cursor.u8()?), cursor.u8()?);
    cursor.skip(if version == 1 { 5 } else { 1 })?;
    let mut extents = || {
        let mut numbers = Vec::new();
        for _ in 0..rank.min(MOST_RANK + 1) {
            numbers.push(cursor.length(container)?);
        }
        Axes::new(numbers).ok_or_else(|| cursor.damage(format!("{rank} dimensions, the maximum is 32")))
    };
    let dims = extents()?;
    let most = if flags & 1 != 0 { extents()? } else { dims };
    // For narrow lengths as well, the largest number means unlimited.
    let unlimited = if container.length_bytes < 8 { u64::from(u32::MAX) } else { u64::MAX };
    let most = Axes::new(most.iter().map(|most| if *most == unlimited { u64::MAX } else { *most }));
    match most.filter(|most| most.iter().zip(dims.iter()).all(|(most, dim)| most >= dim)) {
        Some(most) => Ok((dims, most)),
        None => Err(container.damage(message.at, "a dataset larger than its maximum")),
    }
}

fn datatype(container: &Container<'_>, message: &Message) -> Result<ElementType, Obstacle> {
    let mut cursor = container.cursor(message.at, &message.body);
    let (class, bits) = (cursor.u8()?, cursor.u8()?);
    cursor.skip(2)?;
    let bytes = u64::from(cursor.u32()?);
    let (version, class) = (class >> 4, class & 15);
    let (signed, big_endian) = (bits & 8 != 0, bits & 1 != 0 && class <= 1 && bytes > 1);
    let name = match (class, bytes, signed) {
        (0, bytes, signed) => Element::integer(8 * bytes, signed).map(Element::name),
        (1, 2, _) => Some("float16"),
        (1, 4, _) => Some("float32"),
        (1, 8, _) => Some("float64"),
        (8, 1, _) => is_bool(cursor, version)?.then_some("bool"),
        _ => None,
    };
    Ok(ElementType { bytes, name, big_endian })
}

/// Whether an enumeration is h5py's representation of bool: names FALSE and TRUE, padded to eight bytes before
/// version 3.
fn is_bool(mut cursor: Cursor<'_, '_>, version: u8) -> Result<bool, Obstacle> {
    // The integer that is enumerated.
    cursor.skip(12)?;
    let names: &[u8] = if version < 3 { b"FALSE\0\0\0TRUE\0\0\0\0" } else { b"FALSE\0TRUE\0" };
    Ok(cursor.take(names.len() as u64).is_ok_and(|held| held == names))
}

/// The filters' numbers, in the order of application.
fn filters(container: &Container<'_>, message: &Message) -> Result<Vec<u16>, Obstacle> {
    let mut cursor = container.cursor(message.at, &message.body);
    let version = cursor.version("a filter pipeline", &[1, 2])?;
    let count = cursor.u8()?;
    cursor.skip(if version == 1 { 6 } else { 0 })?;
    let mut filters = Vec::new();
    for _ in 0..count {
        let filter = cursor.u16()?;
        // The library's own filters have no name from version 2 on.
        let name = if version == 1 || filter >= 256 { u64::from(cursor.u16()?) } else { 0 };
        cursor.skip(2)?;
        let values = u64::from(cursor.u16()?);
        let padding = if version == 1 { 4 * (values % 2) } else { 0 };
        let name = if version == 1 { name.next_multiple_of(8) } else { name };
        cursor.skip(name + 4 * values + padding)?;
        filters.push(filter);
    }
    Ok(filters)
}

/// What is known of a dataset when its layout is parsed.
struct DatasetShape<'a> {
    name: &'a str,
    dims: Axes,
    most: Axes,
    bytes: u64,
    element: u64,
    filtered: bool,
}

impl DatasetShape<'_> {
    fn storage(&self, container: &Container<'_>, message: &Message) -> Result<DatasetStorage, Obstacle> {
        let mut cursor = container.cursor(message.at, &message.body);
        let version = cursor.version("a data layout", &[3, 4])?;
        match (cursor.u8()?, version) {
            (0, _) => {
                let len = u64::from(cursor.u16()?);
                self.one_piece(container, Some(cursor.position()), len, message.at)
            }
            (1, _) => {
                let address = cursor.address(container)?;
                let len = cursor.length(container)?;
                self.one_piece(container, address, len, message.at)
            }
            (2, 3) => {
                let axes = usize::from(cursor.u8()?);
                let address = cursor.address(container)?;
                let grid = Box::new(self.grid(&mut cursor, axes, 4)?);
                Ok(DatasetStorage::Chunked { grid, index: ChunkIndex::tree(address) })
            }
            (2, _) => {
                let flags = cursor.u8()?;
                let (axes, width) = (usize::from(cursor.u8()?), u64::from(cursor.u8()?));
                let grid = Box::new(self.grid(&mut cursor, axes, width)?);
                let index = ChunkIndex::of(container, &mut cursor, flags, self.filtered)?;
                Ok(DatasetStorage::Chunked { grid, index })
            }
            (class, _) => {
                let what =
                    format!("dataset {} has a layout of class {class}, which is not supported", self.name);
                Err(cursor.damage(what))
            }
        }
    }

    fn one_piece(
        &self,
        container: &Container<'_>,
        address: Option<u64>,
        len: u64,
        at: u64,
    ) -> Result<DatasetStorage, Obstacle> {
        let Some(offset) = address else {
            let what =
                format!("the data of dataset {} were never written, or are in another file", self.name);
            return Err(container.damage(at, what));
        };
        let inside = offset.checked_add(len).is_some_and(|end| end <= container.look.len);
        match inside && len >= self.bytes {
            true => Ok(DatasetStorage::Contiguous(Extent { offset, len: self.bytes })),
            false => Err(container.damage(
                at,
                format!(
                    "dataset {} has {} bytes, but its layout states {len} bytes from byte {offset} on",
                    self.name, self.bytes
                ),
            )),
        }
    }

    /// Chunks, whose last extent is the size of an element.
    fn grid(&self, cursor: &mut Cursor<'_, '_>, axes: usize, width: u64) -> Result<ChunkGrid, Obstacle> {
        let mut numbers = Vec::new();
        for _ in 0..axes {
            numbers.push(cursor.number(width.clamp(1, 8))?);
        }
        let element = numbers.pop();
        let chunk = Axes::new(numbers);
        let (dims, most) = (self.dims, self.most);
        let grid = chunk.map(|chunk| ChunkGrid { dims, most, chunk, element: self.element });
        grid.filter(|grid| element == Some(self.element) && width <= 8 && grid.is_sound())
            .ok_or_else(|| cursor.damage(format!("dataset {} has chunks that do not divide it", self.name)))
    }
}
