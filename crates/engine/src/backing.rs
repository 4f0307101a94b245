//! What lies below the files of a data set, and the kernel's counts of the bytes that come from there: for this
//! process, for the block device, for a mount of NFS. What cannot be found out is `None`, never a guess.

use std::fs;
use std::path::{Path, PathBuf};

use model::ledger::{Amount, CacheSeen};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, StatxFlags};
use store::{Counter, FileSystem};

use crate::host;

/// The kernel counts in sectors of this size, whatever the device's own is.
const SECTOR: u64 = 512;

#[derive(Debug)]
pub(crate) struct Backing {
    pub(crate) file_system: FileSystem,
    /// The device's own counters.
    device: Option<PathBuf>,
    /// Where the file system is mounted, as /proc spells it.
    mount_point: Option<String>,
}

/// What was counted up to one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    storage: Option<u64>,
    device: Option<u64>,
}

impl Backing {
    /// What lies below an open file.
    pub(crate) fn of(file: &OwnedFd, file_system: FileSystem) -> Backing {
        let mount = mount_of(file, &fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
        let device = device_of(file).or_else(|| mount.as_ref().and_then(Mount::device));
        Backing { file_system, device, mount_point: mount.map(|mount| mount.point) }
    }

    pub(crate) fn read(&self) -> Reading {
        let storage = match self.file_system.counter() {
            Counter::Process | Counter::ProcessAtLeast => host::device_read_bytes(),
            Counter::NfsMount => {
                let stats = fs::read_to_string("/proc/self/mountstats").unwrap_or_default();
                self.mount_point.as_ref().and_then(|point| nfs_bytes(&stats, point))
            }
            Counter::Nobody => None,
        };
        let device = self.device.as_ref().and_then(|path| sectors_read(&fs::read_to_string(path).ok()?));
        Reading { storage, device: device.map(|sectors| sectors * SECTOR) }
    }

    /// What came since an earlier reading.
    pub(crate) fn seen_since(&self, earlier: Reading) -> CacheSeen {
        let now = self.read();
        let between = |now: Option<u64>, then: Option<u64>| {
            Amount::new(now.zip(then).map(|(now, then)| now.saturating_sub(then)))
        };
        CacheSeen {
            storage: between(now.storage, earlier.storage),
            storage_is_least: self.file_system.counter() == Counter::ProcessAtLeast,
            device: between(now.device, earlier.device),
            untold: self.file_system.untold().into_iter().collect(),
            ..CacheSeen::default()
        }
    }
}

/// The counters of a device by its number.
fn counters(major: u32, minor: u32) -> Option<PathBuf> {
    // Number 0 is that of file systems that lie on no device of their own.
    let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
    (major != 0 && path.exists()).then_some(path)
}

fn device_of(file: impl AsFd) -> Option<PathBuf> {
    let device = rustix::fs::fstat(file).ok()?.st_dev;
    counters(rustix::fs::major(device), rustix::fs::minor(device))
}

/// One line of mountinfo.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    point: String,
    source: String,
}

impl Mount {
    /// `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/root rw`: the number of the mount, and what is wanted.
    fn parse(line: &str) -> Option<(u64, Mount)> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ');
        let (number, point) = (mount.next()?.parse().ok()?, mount.nth(3)?.to_owned());
        let source = file_system.split(' ').nth(1)?.to_owned();
        Some((number, Mount { point, source }))
    }

    fn device(&self) -> Option<PathBuf> {
        let facts = rustix::fs::stat(Path::new(&self.source)).ok()?;
        counters(rustix::fs::major(facts.st_rdev), rustix::fs::minor(facts.st_rdev))
    }
}

/// The mount that an open file was reached through, by its number: the device's number of a file need not be that of
/// its mount (btrfs).
fn mount_of(file: impl AsFd, mountinfo: &str) -> Option<Mount> {
    let facts = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    let mut mounts = mountinfo.lines().filter_map(Mount::parse);
    mounts.find(|(number, _)| *number == facts.stx_mnt_id).map(|(_, mount)| mount)
}

/// The third number: reads, reads merged, sectors read.
fn sectors_read(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(2)?.parse().ok()
}

/// Bytes that the server of a mount delivered: the fifth number of `bytes:`.
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
    fn mounts_and_devices_are_found() {
        let line =
            "36 35 0:45 /a /mnt/with\\040space rw,noatime shared:1 master:2 - btrfs /dev/sdb2 rw,subvol=/a";
        let expected = Mount { point: "/mnt/with\\040space".to_owned(), source: "/dev/sdb2".to_owned() };
        assert_eq!(Mount::parse(line), Some((36, expected)));
        assert_eq!(Mount::parse("36 35"), None);
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
    fn the_servers_bytes_are_those_of_the_mount() {
        let of = |point| nfs_bytes(NFS, point);
        assert_eq!(
            [of("/mnt/a"), of("/mnt/b"), of("/mnt/c"), of("/mnt"), of("/proc")],
            [Some(500), Some(9000), None, None, None]
        );
    }

    #[test]
    fn the_mount_of_a_file_is_there() {
        let file = OwnedFd::from(fs::File::open("/proc/self/mountinfo").unwrap());
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(mount_of(&file, &mountinfo).unwrap().point, "/proc");
        assert_eq!(device_of(&file), None, "it lies on no device");
    }
}
