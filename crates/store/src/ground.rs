//! The storage below a file: its file system, the mount through which it was reached, and the block devices. Here it is
//! decided whether cached and uncached reads of a file can be distinguished.

use std::fs;
use std::path::PathBuf;

use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{AtFlags, StatxFlags};

use crate::device::{BlockDevice, devices_in};
use crate::mounts::{Mount, device_file, mounts};
use crate::{FileSystem, StoreError};

/// The largest default read-ahead window of any file system (btrfs).
const LARGEST_READAHEAD: u64 = 4 << 20;

#[derive(Clone, Debug)]
pub struct StorageStack {
    pub file_system: FileSystem,
    /// The device number of the file system, from stat.
    pub number: u64,
    /// The mount point as in /proc.
    pub mount_point: Option<String>,
    /// The block devices of the file system; empty if there are none or /sys does not show them.
    pub devices: Vec<BlockDevice>,
    /// The largest read-ahead window.
    pub readahead_bytes: u64,
}

impl StorageStack {
    /// The storage below an open file. `place` is its name in messages.
    pub fn of(file: impl AsFd, place: &str) -> Result<StorageStack, StoreError> {
        let file_system = FileSystem::of(&file, place)?;
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mount = mount_of(&file, &mountinfo);
        let number = rustix::fs::fstat(&file).map_or(0, |facts| facts.st_dev);
        let devices = match BlockDevice::numbered(number) {
            Some(device) => vec![device],
            None => btrfs_devices(&file)
                .or_else(|| mount.as_ref().and_then(device_of).map(|device| vec![device]))
                .unwrap_or_default(),
        };
        let readahead_bytes = readahead(number).unwrap_or(LARGEST_READAHEAD);
        let mount_point = mount.map(|mount| mount.point.to_owned());
        Ok(StorageStack { file_system, number, mount_point, devices, readahead_bytes })
    }

    /// Why reads from memory cannot be detected here; `None` if they can.
    pub fn untold(&self) -> Option<String> {
        self.file_system.untold().or_else(|| self.devices.iter().find_map(BlockDevice::untold))
    }
}

/// The read-ahead window of the device or network mount with this number.
fn readahead(number: u64) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let text = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")).ok()?;
    text.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// The mount through which an open file was reached, by the mount's id: the device number of a file need not be that of
/// its mount (btrfs).
fn mount_of<'a>(file: impl AsFd, mountinfo: &'a str) -> Option<Mount<'a>> {
    let facts = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    mounts(mountinfo).find(|mount| mount.id == facts.stx_mnt_id)
}

/// The device that was mounted.
fn device_of(mount: &Mount<'_>) -> Option<BlockDevice> {
    BlockDevice::numbered(rustix::fs::stat(device_file(mount.source)?).ok()?.st_rdev)
}

/// `struct btrfs_ioctl_fs_info_args` of linux/btrfs.h: the largest device number, the number of devices, and the file
/// system's id.
#[repr(C)]
struct BtrfsInfo {
    max_id: u64,
    num_devices: u64,
    id: [u8; 16],
    rest: [u64; 124],
}

/// BTRFS_IOC_FS_INFO, `_IOR(0x94, 31, 1024)`.
const BTRFS_INFO: libc::Ioctl = 0x8400_941f_u32 as libc::Ioctl;

/// All devices of a btrfs file system; `None` if the file is not on one.
fn btrfs_devices(file: impl AsFd) -> Option<Vec<BlockDevice>> {
    let mut info = BtrfsInfo { max_id: 0, num_devices: 0, id: [0; 16], rest: [0; 124] };
    // SAFETY: the descriptor is open, and the call writes at most the 1024 bytes of the structure that is passed.
    let answer = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), BTRFS_INFO, &raw mut info) };
    if answer != 0 {
        return None;
    }
    let devices = devices_in(&PathBuf::from(format!("/sys/fs/btrfs/{}/devices", dashed(&info.id))));
    (!devices.is_empty()).then_some(devices)
}

/// An id as written in /sys.
fn dashed(id: &[u8; 16]) -> String {
    let mut text = String::new();
    for (i, byte) in id.iter().enumerate() {
        text.push_str(if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" });
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_proc_has_a_mount_and_no_device() {
        let ground = StorageStack::of(fs::File::open("/proc/self/mountinfo").unwrap(), "").unwrap();
        assert_eq!(ground.mount_point.as_deref(), Some("/proc"));
        assert!(ground.devices.is_empty() && ground.untold().is_some());
    }

    #[test]
    fn ids_are_written_as_in_sys() {
        let id = std::array::from_fn(|i| i as u8 * 0x11);
        assert_eq!(dashed(&id), "00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(size_of::<BtrfsInfo>(), 1024);
    }
}
