//! Mappings of files, so that `munmap` and `madvise` can tell them from other memory. A table of fixed size without
//! locks: when it is full, mappings are not remembered.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::fds::FdView;
use crate::layout::{FdKind, INHERITED};
use crate::process;

const MAPPINGS: usize = 4096;
/// Places that are tried for an address.
const TRIED: usize = 8;

/// A mapping that starts at `address`; 0: free.
struct FileMapping {
    address: AtomicU64,
    inode: AtomicU64,
    /// The generation of the process that mapped it << 48 | device << 16 | flags of events.
    about: AtomicU64,
}

static MAPPED: [FileMapping; MAPPINGS] = [const {
    FileMapping { address: AtomicU64::new(0), inode: AtomicU64::new(0), about: AtomicU64::new(0) }
}; MAPPINGS];

/// The generation of the process that mapped a file last, + 1.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Whether a process asks this for the first time.
pub(crate) fn is_first() -> bool {
    let generation = u64::from(process::generation()) + 1;
    LAST.swap(generation, Relaxed) != generation
}

fn places(address: u64) -> impl Iterator<Item = &'static FileMapping> {
    let first = (address >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    (0..TRIED).filter_map(move |step| MAPPED.get((first as usize + step) % MAPPINGS))
}

/// A file was mapped.
pub(crate) fn mapped(address: u64, file: &FdView) {
    let free = |place: &&FileMapping| {
        place.address.load(Relaxed) == address
            || place.address.compare_exchange(0, 1, Relaxed, Relaxed).is_ok()
    };
    if let Some(place) = places(address).find(free) {
        place.inode.store(file.inode, Relaxed);
        let generation = u64::from(process::generation()) << 48;
        let flags = file.flags & !INHERITED;
        place.about.store(generation | u64::from(file.device) << 16 | u64::from(flags), Relaxed);
        place.address.store(address, Release);
    }
}

/// The file that is mapped at an address.
#[inline(always)]
pub(crate) fn find(address: u64, is_unmapped: bool) -> Option<FdView> {
    let place = places(address).find(|place| place.address.load(Acquire) == address)?;
    let about = place.about.load(Relaxed);
    let is_own = (about >> 48) as u16 == process::generation() as u16;
    let view = FdView {
        kind: FdKind::Regular,
        flags: about as u16 | if is_own { 0 } else { INHERITED },
        inode: place.inode.load(Relaxed),
        device: (about >> 16) as u32,
        ..FdView::NONE
    };
    if is_unmapped {
        place.address.store(0, Release);
    }
    Some(view)
}
