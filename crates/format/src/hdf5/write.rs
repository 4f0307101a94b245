//! The bytes of an HDF5 file's metadata, according to the HDF5 File Format Specification 3.0: superblock version
//! 3, object headers version 2, links in the group's header, layout version 4 with fixed arrays. `plan` computes
//! the layout, `encode` writes the chunks.

use super::checksum::lookup3;
use super::grid::{Axes, ChunkGrid, step};
use super::plan::{self, CHECKSUM, INDEX_PREFIX, Layout, PAGE_BITS, SUPERBLOCK};
use model::shape::Element;

/// An undefined address or offset.
const UNDEFINED: u64 = u64::MAX;

/// Types of header messages (specification IV.A.2).
const DATASPACE: u8 = 0x01;
const LINK_INFO: u8 = 0x02;
const DATATYPE: u8 = 0x03;
const FILL_VALUE: u8 = 0x05;
const LINK: u8 = 0x06;
const LAYOUT: u8 = 0x08;
const GROUP_INFO: u8 = 0x0A;
const FILTERS: u8 = 0x0B;

/// Type, size and flags before every message of a header without creation order.
const MESSAGE: u64 = 4;
/// Messages that are constant, as libhdf5 marks them.
const CONSTANT: u8 = 1;
/// What libhdf5 reserves for the messages of a group and of a dataset, as space for attributes.
const ROOT_ROOM: u64 = 120;
const HEADER_ROOM: u64 = 256;
/// Signature, version, flags and two bytes of length, which a dataset's header always fits.
const HEADER_PREFIX: u64 = 8;
/// The same and four timestamps, which are absent: a file's bytes depend only on its workload.
const TIMES: u64 = 16;
/// A link in a group's header, without its name: message, version, flags, length of the name, address.
const LINK_BYTES: u64 = MESSAGE + 3 + 8;
const GROUP_BYTES: u64 = MESSAGE + 18 + MESSAGE + 2;

const LABELS: &str = "labels";
const RECORDS: &str = "records_";

/// The maximum number of datasets whose links fit a header with a length of two bytes, rounded.
pub(super) const MOST_SETS: u64 = 2048;

fn with_room(messages: u64, room: u64) -> u64 {
    if messages + MESSAGE <= room { room } else { messages }
}

fn root_messages(sets: u64) -> u64 {
    // One digit each, one more from the tenth on, and so forth.
    let digits: u64 = [0, 10, 100, 1000].iter().map(|below| sets.saturating_sub(*below)).sum();
    let records = sets * (LINK_BYTES + RECORDS.len() as u64) + digits;
    with_room(GROUP_BYTES + records + LINK_BYTES + LABELS.len() as u64, ROOT_ROOM)
}

/// Bytes of the root group's header.
pub(super) fn root_bytes(sets: u64) -> u64 {
    let messages = root_messages(sets);
    HEADER_PREFIX - 2 + TIMES + if messages > 255 { 2 } else { 1 } + messages + CHECKSUM
}

/// Bytes of the header of a dataset of samples.
pub(super) fn header_bytes(grid: &ChunkGrid, chunked: bool, filtered: bool, element: Element) -> u64 {
    let rank = grid.dims.len() as u64;
    let layout = if chunked { 5 + (rank + 1) * dim_bytes(grid) + 2 + 8 } else { 18 };
    let filters = if filtered { MESSAGE + 12 } else { 0 };
    let datatype = match element {
        Element::Bool => 33,
        Element::Float16 | Element::Float32 | Element::Float64 => 20,
        _ => 12,
    };
    let messages = 4 * MESSAGE + 4 + 16 * rank + datatype + 2 + filters + layout;
    HEADER_PREFIX + with_room(messages, HEADER_ROOM) + CHECKSUM
}

/// Bytes of the labels' header, a contiguous dataset of one axis.
pub(super) fn labels_header_bytes() -> u64 {
    HEADER_PREFIX + HEADER_ROOM + CHECKSUM
}

/// Bytes per extent of a chunk; the size of an element is one of the extents.
fn dim_bytes(grid: &ChunkGrid) -> u64 {
    let longest = grid.chunk.iter().copied().max().unwrap_or(1).max(grid.element);
    u64::from(longest.ilog2() / 8) + 1
}

pub(super) fn superblock(end: u64) -> Vec<u8> {
    // Version 3, 8-byte offsets and lengths, nothing open for writing.
    let mut out = b"\x89HDF\r\n\x1a\n\x03\x08\x08\x00".to_vec();
    for address in [0, UNDEFINED, end, SUPERBLOCK] {
        out.extend(address.to_le_bytes());
    }
    sealed(out)
}

pub(super) fn root(plan: &Layout) -> Vec<u8> {
    let mut messages = Vec::new();
    let mut info = vec![0, 0];
    info.extend([0xFF; 16]);
    message(&mut messages, LINK_INFO, 0, &info);
    message(&mut messages, GROUP_INFO, CONSTANT, &[0, 0]);
    for set in 0..plan.sets {
        link(&mut messages, &format!("{RECORDS}{set}"), plan.header_at(set));
    }
    link(&mut messages, LABELS, plan.header_at(plan.sets));
    pad(&mut messages, root_messages(plan.sets));
    let (flags, len) = match u8::try_from(messages.len()) {
        Ok(len) => (0x20, vec![len]),
        Err(_) => (0x21, (messages.len() as u16).to_le_bytes().to_vec()),
    };
    let mut out = vec![b'O', b'H', b'D', b'R', 2, flags];
    out.extend([0; TIMES as usize]);
    out.extend(len);
    out.extend(messages);
    sealed(out)
}

fn link(messages: &mut Vec<u8>, name: &str, address: u64) {
    // Version 1, a hard link, the name's length in one byte, its characters ASCII.
    let mut body = vec![1, 0, name.len() as u8];
    body.extend(name.as_bytes());
    body.extend(address.to_le_bytes());
    message(messages, LINK, 0, &body);
}

/// The header of a dataset of samples.
pub(super) fn header(plan: &Layout, set: u64, element: Element, level: Option<u32>) -> Vec<u8> {
    let mut messages = Vec::new();
    let grid = &plan.grid;
    message(&mut messages, DATASPACE, 0, &dataspace(&grid.dims, &grid.most));
    message(&mut messages, DATATYPE, CONSTANT, &datatype(element));
    message(&mut messages, FILL_VALUE, CONSTANT, &fill_value(plan.chunked));
    if let Some(level) = level {
        // Version 2, one filter: deflate (1), which may be left out, with its one value.
        let mut body = vec![2, 1, 1, 0, 1, 0, 1, 0];
        body.extend(level.to_le_bytes());
        message(&mut messages, FILTERS, CONSTANT, &body);
    }
    let layout = match plan.chunked {
        true => chunked(grid, plan.index_at(set)),
        false => contiguous(plan.data_at(set), plan.set_bytes),
    };
    message(&mut messages, LAYOUT, 0, &layout);
    dataset(messages)
}

/// The header of the labels at `address`.
pub(super) fn labels_header(samples: u64, address: u64, bytes: u64) -> Vec<u8> {
    let mut messages = Vec::new();
    // One axis always fits.
    if let Some(dims) = Axes::new([samples]) {
        message(&mut messages, DATASPACE, 0, &dataspace(&dims, &dims));
    }
    message(&mut messages, DATATYPE, CONSTANT, &datatype(Element::Int64));
    message(&mut messages, FILL_VALUE, CONSTANT, &fill_value(false));
    message(&mut messages, LAYOUT, 0, &contiguous(address, bytes));
    dataset(messages)
}

fn dataset(mut messages: Vec<u8>) -> Vec<u8> {
    let len = with_room(messages.len() as u64, HEADER_ROOM);
    pad(&mut messages, len);
    let mut out = b"OHDR\x02\x01".to_vec();
    out.extend((len as u16).to_le_bytes());
    out.extend(messages);
    sealed(out)
}

fn dataspace(dims: &Axes, most: &Axes) -> Vec<u8> {
    // Version 2, the limits follow the extents, a simple space.
    let mut body = vec![2, dims.len() as u8, 1, 1];
    dims.iter().chain(most.iter()).for_each(|extent| body.extend(extent.to_le_bytes()));
    body
}

/// The datatype message of an element type, as h5py writes it for NumPy's (specification IV.A.2.d).
fn datatype(element: Element) -> Vec<u8> {
    // Class and version, three bytes of bit fields, the size; then what the class needs.
    let integer = |signed: bool, size: u8| {
        vec![0x10, if signed { 8 } else { 0 }, 0, 0, size, 0, 0, 0, 0, 0, 8 * size, 0]
    };
    // Implied leading one, sign on top; position and length of exponent and mantissa, the exponent's bias.
    let float = |size: u8, exponent: u8, mantissa: u8, bias: [u8; 2]| {
        let bits = 8 * size;
        let head = [0x11, 0x20, bits - 1, 0, size, 0, 0, 0, 0, 0, bits, 0];
        [&head[..], &[mantissa, exponent, 0, mantissa, bias[0], bias[1], 0, 0]].concat()
    };
    match element {
        Element::Bool => {
            // An enumeration (class 8, version 3: names are not padded) of two int8; h5py returns it
            // as bool.
            let head = [0x38, 2, 0, 0, 1, 0, 0, 0];
            [&head[..], &integer(true, 1), b"FALSE\0TRUE\0\0\x01"].concat()
        }
        Element::Int8 => integer(true, 1),
        Element::Int16 => integer(true, 2),
        Element::Int32 => integer(true, 4),
        Element::Int64 => integer(true, 8),
        Element::Uint8 => integer(false, 1),
        Element::Uint16 => integer(false, 2),
        Element::Uint32 => integer(false, 4),
        Element::Uint64 => integer(false, 8),
        Element::Float16 => float(2, 5, 10, [15, 0]),
        Element::Float32 => float(4, 8, 23, [127, 0]),
        Element::Float64 => float(8, 11, 52, [0xFF, 3]),
    }
}

/// Version 3: space is allocated late, or chunk by chunk; filled only if a value is set.
fn fill_value(chunked: bool) -> [u8; 2] {
    [3, if chunked { 0x0B } else { 0x0A }]
}

fn contiguous(address: u64, bytes: u64) -> Vec<u8> {
    let mut body = vec![4, 1];
    body.extend(address.to_le_bytes());
    body.extend(bytes.to_le_bytes());
    body
}

fn chunked(grid: &ChunkGrid, index: u64) -> Vec<u8> {
    let dim_bytes = dim_bytes(grid);
    let mut body = vec![4, 2, 0, grid.chunk.len() as u8 + 1, dim_bytes as u8];
    for extent in grid.chunk.iter().chain([&grid.element]) {
        body.extend(&extent.to_le_bytes()[..dim_bytes as usize]);
    }
    // Index type 3 is the fixed array.
    body.extend([3, PAGE_BITS]);
    body.extend(index.to_le_bytes());
    body
}

fn message(out: &mut Vec<u8>, kind: u8, flags: u8, body: &[u8]) {
    out.push(kind);
    out.extend((body.len() as u16).to_le_bytes());
    out.push(flags);
    out.extend(body);
}

/// Pads with a NIL message.
fn pad(messages: &mut Vec<u8>, len: u64) {
    let missing = len.saturating_sub(messages.len() as u64);
    if missing >= MESSAGE {
        let body = vec![0; (missing - MESSAGE) as usize];
        message(messages, 0, 0, &body);
    }
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend(lookup3(&bytes).to_le_bytes());
    bytes
}

/// Writes the index of a dataset's chunks to `out` in parts, so that it is never held completely: its header, the
/// data block, and the pages. `sizes` are the chunks' bytes if they are compressed, `first` is the address of the
/// first.
pub(super) fn index(
    plan: &Layout,
    set: u64,
    first: u64,
    sizes: Option<&[u64]>,
    out: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let (index, at) = (&plan.index, plan.index_at(set));
    let client = u8::from(sizes.is_some());
    let mut head = vec![b'F', b'A', b'H', b'D', 0, client, index.element as u8, PAGE_BITS];
    head.extend(index.places.to_le_bytes());
    head.extend((at + plan::INDEX_HEADER).to_le_bytes());
    out(&sealed(head))?;
    let mut block = vec![b'F', b'A', b'D', b'B', 0, client];
    block.extend(at.to_le_bytes());
    debug_assert_eq!(block.len() as u64, INDEX_PREFIX);
    let mut elements = Elements::new(plan, first, sizes);
    if !index.is_paged() {
        elements.append(index.places, &mut block);
        return out(&sealed(block));
    }
    // Every page is in use; the first is the highest bit.
    let used = |page: u64| (0..8).fold(0, |bits, bit| bits << 1 | u8::from(8 * page + bit < index.pages()));
    block.extend((0..index.page_bits()).map(used));
    out(&sealed(block))?;
    for page in 0..index.pages() {
        let mut block = Vec::new();
        elements.append(index.page_places(page), &mut block);
        out(&sealed(block))?;
    }
    Ok(())
}

/// Iterates over the elements of an index and computes the address of each chunk.
struct Elements<'a> {
    at: Axes,
    counts: Axes,
    most: Axes,
    address: u64,
    chunk_bytes: u64,
    sizes: Option<std::slice::Iter<'a, u64>>,
    size_bytes: usize,
}

impl<'a> Elements<'a> {
    fn new(plan: &Layout, first: u64, sizes: Option<&'a [u64]>) -> Elements<'a> {
        let (grid, chunk_bytes) = (&plan.grid, plan.grid.chunk_bytes());
        Elements {
            // A dataset without axes cannot be constructed.
            at: Axes::new(grid.dims.iter().map(|_| 0)).unwrap_or(grid.dims),
            counts: grid.counts(),
            most: grid.most_counts(),
            address: first,
            chunk_bytes,
            sizes: sizes.map(<[u64]>::iter),
            size_bytes: plan::chunk_size_bytes(chunk_bytes) as usize,
        }
    }

    fn append(&mut self, places: u64, out: &mut Vec<u8>) {
        for _ in 0..places {
            let holds = self.at.iter().zip(self.counts.iter()).all(|(at, count)| at < count);
            let size = match (&mut self.sizes, holds) {
                (_, false) => 0,
                (Some(sizes), true) => sizes.next().copied().unwrap_or(0),
                (None, true) => self.chunk_bytes,
            };
            out.extend(if holds { self.address } else { UNDEFINED }.to_le_bytes());
            if self.sizes.is_some() {
                out.extend(&size.to_le_bytes()[..self.size_bytes]);
                // No filter was skipped.
                out.extend([0; 4]);
            }
            self.address += size;
            step(&mut self.at, &self.most);
        }
    }
}
