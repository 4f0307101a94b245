//! The kernel's counts of bytes read from the storage below a data set: for this process, for its block devices, for an
//! NFS mount. A count that cannot be determined is `None`, never a guess.

use std::fs;
use std::path::PathBuf;

use model::ledger::{ObservedCache, ReportedBytes};
use store::{BlockDevice, Counter, StorageStack};

use crate::host;

/// The kernel counts in sectors of this size, whatever the device's sector size is.
const SECTOR: u64 = 512;

#[derive(Debug)]
pub(crate) struct Backing {
    pub(crate) ground: StorageStack,
    /// Paths of the devices' counters.
    devices: Vec<PathBuf>,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StorageCounts {
    storage: Option<u64>,
    /// Whether other data was being read at that moment, which the count may or may not include.
    is_blurred: bool,
    device: Option<u64>,
}

impl Backing {
    pub(crate) fn new(ground: StorageStack) -> Backing {
        let devices = ground.devices.iter().filter_map(BlockDevice::counters).collect();
        Backing { ground, devices }
    }

    pub(crate) fn read(&self) -> StorageCounts {
        let storage = match self.ground.file_system.counter() {
            Counter::Process | Counter::ProcessAtLeast => host::data_read_bytes(),
            Counter::NfsMount => {
                let stats = fs::read_to_string("/proc/self/mountstats").unwrap_or_default();
                self.ground.mount_point.as_ref().and_then(|point| nfs_bytes(&stats, point))
            }
            Counter::None => None,
        };
        let sectors = self.devices.iter().map(|path| sectors_read(&fs::read_to_string(path).ok()?));
        let device = sectors.sum::<Option<u64>>().filter(|_| !self.devices.is_empty());
        let is_blurred = host::is_reading_aside();
        StorageCounts { storage, is_blurred, device: device.map(|sectors| sectors * SECTOR) }
    }

    /// The bytes that were read since an earlier reading, as far as the counters are those of `whose`.
    pub(crate) fn seen_since(&self, earlier: StorageCounts, whose: CountOwner) -> ObservedCache {
        let now = self.read();
        let between = |now: Option<u64>, then: Option<u64>| {
            ReportedBytes::new(now.zip(then).map(|(now, then)| now.saturating_sub(then)))
        };
        let counter = self.ground.file_system.counter();
        let mut seen = ObservedCache::default();
        if whose == CountOwner::of(counter) {
            seen.storage = between(now.storage, earlier.storage);
            seen.storage_is_least =
                counter == Counter::ProcessAtLeast || earlier.is_blurred || now.is_blurred;
        }
        if whose == CountOwner::Node {
            seen.device = between(now.device, earlier.device);
        }
        seen
    }
}

/// What a counter counts for. The counters of a node are read by one of the processes that run on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountOwner {
    Process,
    Node,
}

impl CountOwner {
    fn of(counter: Counter) -> CountOwner {
        match counter {
            Counter::Process | Counter::ProcessAtLeast | Counter::None => CountOwner::Process,
            Counter::NfsMount => CountOwner::Node,
        }
    }
}

/// The third number of: reads, reads merged, sectors read.
fn sectors_read(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(2)?.parse().ok()
}

/// Bytes that the server of an NFS mount delivered: the fifth number of `bytes:`.
fn nfs_bytes(mountstats: &str, point: &str) -> Option<u64> {
    let begins = format!(" mounted on {point} with fstype nfs");
    let mut lines = mountstats.lines().skip_while(|line| !line.contains(&begins)).skip(1);
    let bytes = lines
        .by_ref()
        .take_while(|line| !line.starts_with("device "))
        .find_map(|line| line.trim_start().strip_prefix("bytes:"))?;
    bytes.split_whitespace().nth(4)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_the_third_number() {
        assert_eq!(sectors_read("  264 11 18352 3 0 0 0 0 0 4 3\n"), Some(18352));
    }

    const NFS: &str = "\
device proc mounted on /proc with fstype proc
device server:/a mounted on /mnt/a with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2
\tbytes:\t1 2 3 4 500 6 7 8
device server:/b mounted on /mnt/b with fstype nfs statvers=1.1
\tbytes:\t10 20 30 40 9000 60 70 80
device server:/c mounted on /mnt/c with fstype nfs statvers=1.1
";

    #[test]
    fn server_bytes_are_those_of_the_mount() {
        let of = |point| nfs_bytes(NFS, point);
        assert_eq!(
            [of("/mnt/a"), of("/mnt/b"), of("/mnt/c"), of("/mnt"), of("/proc")],
            [Some(500), Some(9000), None, None, None]
        );
    }
}
