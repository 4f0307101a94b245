//! How the bytes of a file are stored: in blocks of their own, or not. Holes and preallocated blocks are read as zeros
//! without accessing storage, small files may be stored inside their metadata, and a file system may compress. A count
//! of cached pages does not show any of these.

use model::ledger::StorageLayout;
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Extents per query, and the maximum per file: beyond that, a file is taken to be stored in blocks.
const SOME: usize = 128;
const MOST: usize = 1 << 16;

/// `struct fiemap_extent` of linux/fiemap.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

/// `struct fiemap` with space for some extents.
#[repr(C)]
#[derive(Debug)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extents: [FiemapExtent; SOME],
}

/// FS_IOC_FIEMAP, `_IOWR('f', 11, struct fiemap)`.
const FIEMAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;
/// Flags of an extent.
const LAST: u32 = 1;
const ENCODED: u32 = 8;
const INLINE: u32 = 0x200;
const TAIL: u32 = 0x400;
const UNWRITTEN: u32 = 0x800;

/// The layout of a file of this size whose pages are not dirty; `None` if the file system does not report it.
pub fn layout(file: impl AsFd, size: u64) -> Option<StorageLayout> {
    by_extents(&file, size).or_else(|| by_seeking(file, size))
}

fn by_extents(file: impl AsFd, size: u64) -> Option<StorageLayout> {
    let mut layout = StorageLayout { files: 1, bytes: size, ..StorageLayout::default() };
    let (mut at, mut seen) = (0, 0);
    while at < size {
        let map = ask(&file, at, size - at).ok()?;
        let extents = &map.extents[..(map.mapped as usize).min(SOME)];
        for extent in extents {
            let (start, end) = (extent.logical.max(at), (extent.logical + extent.length).min(size));
            layout.hole_bytes += start.min(size).saturating_sub(at);
            book(&mut layout, extent.flags, end.saturating_sub(start));
            at = at.max(end);
        }
        seen += extents.len();
        if extents.last().is_none_or(|extent| extent.flags & LAST != 0) {
            layout.hole_bytes += size.saturating_sub(at);
            break;
        }
        if seen >= MOST {
            break;
        }
    }
    Some(layout)
}

fn book(layout: &mut StorageLayout, flags: u32, bytes: u64) {
    match flags {
        _ if flags & UNWRITTEN != 0 => layout.hole_bytes += bytes,
        _ if flags & (INLINE | TAIL) != 0 => layout.inline_bytes += bytes,
        _ if flags & ENCODED != 0 => layout.compressed_bytes += bytes,
        _ => {}
    }
}

fn ask(file: impl AsFd, start: u64, length: u64) -> Result<Fiemap, Errno> {
    let mut map = Fiemap {
        start,
        length,
        flags: 0,
        mapped: 0,
        room: SOME as u32,
        reserved: 0,
        extents: [FiemapExtent::default(); SOME],
    };
    // SAFETY: the descriptor is open, and the call writes at most `room` extents behind the header, which exist.
    let answer = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), FIEMAP, &raw mut map) };
    match answer {
        0 => Ok(map),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::OPNOTSUPP)),
    }
}

/// File systems without that call may still distinguish holes from data.
fn by_seeking(file: impl AsFd, size: u64) -> Option<StorageLayout> {
    let (mut at, mut data) = (0, 0);
    for _ in 0..MOST {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // After the last data.
            Err(Errno::NXIO) => break,
            Err(_) => return None,
        };
        at = rustix::fs::seek(&file, SeekFrom::Hole(start)).ok()?;
        data += at.min(size).saturating_sub(start);
        if at >= size {
            break;
        }
    }
    Some(StorageLayout {
        files: 1,
        bytes: size,
        hole_bytes: size - data.min(size),
        ..StorageLayout::default()
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;

    fn layouts(file: &File, size: u64) -> Vec<StorageLayout> {
        [by_extents(file, size), by_seeking(file, size)].into_iter().flatten().collect()
    }

    #[test]
    fn every_method_finds_holes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let full = StorageLayout { files: 1, bytes: 1 << 20, ..StorageLayout::default() };
        layouts(&file, 1 << 20).iter().for_each(|layout| assert_eq!(*layout, full));
        file.set_len(4 << 20).unwrap();
        file.write_all_at(&[7; 1 << 16], 3 << 20).unwrap();
        file.sync_all().unwrap();
        let known = layouts(&file, 4 << 20);
        assert!(!known.is_empty(), "tests need a file system that shows holes");
        for layout in known {
            assert_eq!((layout.bytes, layout.hole_bytes), (4 << 20, (3 << 20) - (1 << 16)), "{layout:?}");
        }
        assert_eq!(layout(&file, 4 << 20).unwrap().files, 1);
    }

    #[test]
    fn preallocated_blocks_are_holes() {
        let file = tempfile::tempfile().unwrap();
        if rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).is_ok()
            && let Some(layout) = by_extents(&file, 1 << 20)
        {
            assert_eq!(layout.hole_bytes, 1 << 20);
        }
    }

    #[test]
    fn an_empty_file_has_no_holes() {
        let file = tempfile::tempfile().unwrap();
        layouts(&file, 0).iter().for_each(|layout| assert_eq!((layout.bytes, layout.hole_bytes), (0, 0)));
    }
}
