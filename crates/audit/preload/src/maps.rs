//! Mappings of files, so that `munmap` and `madvise` can tell them from other memory. A table of fixed size without
//! locks: when it is full, mappings are not remembered.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::fds::FdView;
use crate::layout::FdKind;

const MAPPINGS: usize = 4096;
/// Places that are tried for an address.
const TRIED: usize = 8;

/// A mapping that starts at `address`; 0: free.
struct FileMapping {
    address: AtomicU64,
    inode: AtomicU64,
    /// Device << 16 | flags of events.
    about: AtomicU64,
}

const FREE_PLACE: FileMapping =
    FileMapping { address: AtomicU64::new(0), inode: AtomicU64::new(0), about: AtomicU64::new(0) };

static MAPPED: [FileMapping; MAPPINGS] = [const { FREE_PLACE }; MAPPINGS];

fn places(address: u64) -> impl Iterator<Item = &'static FileMapping> {
    let first = (address >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    (0..TRIED).filter_map(move |step| MAPPED.get((first as usize + step) % MAPPINGS))
}

/// A file was mapped.
pub(crate) fn mapped(address: u64, file: &FdView, flags: u16) {
    let free = |place: &&FileMapping| {
        place.address.load(Relaxed) == address
            || place.address.compare_exchange(0, 1, Relaxed, Relaxed).is_ok()
    };
    if let Some(place) = places(address).find(free) {
        place.inode.store(file.inode, Relaxed);
        place.about.store(u64::from(file.device) << 16 | u64::from(flags), Relaxed);
        place.address.store(address, Release);
    }
}

/// The file that is mapped at an address.
#[inline(always)]
pub(crate) fn find(address: u64, is_unmapped: bool) -> Option<FdView> {
    let place = places(address).find(|place| place.address.load(Acquire) == address)?;
    let about = place.about.load(Relaxed);
    let view = FdView {
        kind: FdKind::Regular,
        flags: about as u16,
        inode: place.inode.load(Relaxed),
        device: (about >> 16) as u32,
        ..FdView::NONE
    };
    if is_unmapped {
        place.address.store(0, Release);
    }
    Some(view)
}
