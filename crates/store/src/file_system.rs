//! What is known about file systems, in one table: whether their files are in the kernel's page cache, so that pages
//! can be counted and evicted, and what counts the bytes read from the storage below. Unknown file systems are reported
//! as such.

use rustix::fd::AsFd;

use crate::{Operation, StoreError};

/// Where a file system stores its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileSystemKind {
    /// On a block device, block by block.
    Disk,
    /// On a block device, where bytes may be packed or read by kernel threads.
    Packed,
    /// On a server, behind the page cache; the client counts delivered bytes.
    Nfs,
    /// On servers, behind the page cache.
    Remote,
    /// Behind a cache of its own, next to the page cache.
    Own,
    /// In another file system.
    Stacked,
    /// In another process.
    Process,
    /// Only in memory.
    Memory,
    Unknown,
}

/// The numbers of linux/magic.h, and of file systems that are not listed there.
const KNOWN: &[(u32, &str, FileSystemKind)] = &[
    (0x0000_ef53, "ext4", FileSystemKind::Disk),
    (0x5846_5342, "xfs", FileSystemKind::Disk),
    (0x5265_4973, "reiserfs", FileSystemKind::Disk),
    (0x3153_464a, "jfs", FileSystemKind::Disk),
    (0x0000_4d44, "vfat", FileSystemKind::Disk),
    (0x2011_bab0, "exfat", FileSystemKind::Disk),
    (0x0000_9660, "iso9660", FileSystemKind::Disk),
    (0x9123_683e, "btrfs", FileSystemKind::Packed),
    (0xca45_1a4e, "bcachefs", FileSystemKind::Packed),
    (0xf2f5_2010, "f2fs", FileSystemKind::Packed),
    (0x7366_746e, "ntfs", FileSystemKind::Packed),
    (0x7371_7368, "squashfs", FileSystemKind::Packed),
    (0xe0f5_e1e2, "erofs", FileSystemKind::Packed),
    (0x0000_6969, "nfs", FileSystemKind::Nfs),
    (0xff53_4d42, "cifs", FileSystemKind::Remote),
    (0xfe53_4d42, "smb2", FileSystemKind::Remote),
    (0x00c3_6400, "ceph", FileSystemKind::Remote),
    (0x0bd0_0bd0, "lustre", FileSystemKind::Remote),
    (0x0102_1997, "9p", FileSystemKind::Own),
    (0x2fc1_2fc1, "zfs", FileSystemKind::Own),
    (0x4750_4653, "gpfs", FileSystemKind::Own),
    (0x794c_7630, "overlay", FileSystemKind::Stacked),
    (0x0000_f15f, "ecryptfs", FileSystemKind::Stacked),
    (0x6573_5546, "fuse", FileSystemKind::Process),
    (0x0102_1994, "tmpfs", FileSystemKind::Memory),
    (0x8584_58f6, "ramfs", FileSystemKind::Memory),
    (0x9584_58f6, "hugetlbfs", FileSystemKind::Memory),
];

/// What counts the bytes that are read from below a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// The kernel, for the process that causes the reads.
    Process,
    /// The kernel, but it may miss some.
    ProcessAtLeast,
    /// The NFS client, for each mount.
    NfsMount,
    /// They are not counted.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    pub name: &'static str,
    magic: u32,
    kind: FileSystemKind,
}

impl FileSystem {
    /// The file system of an open file or folder. `place` is its name in messages.
    pub fn of(file: impl AsFd, place: &str) -> Result<FileSystem, StoreError> {
        let facts =
            rustix::fs::fstatfs(file).map_err(|cause| StoreError::io(Operation::Stat, place, cause))?;
        Ok(FileSystem::numbered(facts.f_type as u64))
    }

    /// The kernel's value may be a sign-extended 32-bit number.
    fn numbered(magic: u64) -> FileSystem {
        let magic = (magic & 0xffff_ffff) as u32;
        let known = KNOWN.iter().find(|(number, ..)| *number == magic);
        let (name, kind) =
            known.map_or(("unknown", FileSystemKind::Unknown), |(_, name, kind)| (*name, *kind));
        FileSystem { name, magic, kind }
    }

    /// Whether its files exist only in memory.
    pub fn is_memory(&self) -> bool {
        self.kind == FileSystemKind::Memory
    }

    /// Why the count of a file's pages does not show what is read from memory; `None` if it does.
    pub fn untold(&self) -> Option<String> {
        let name = self.name;
        Some(match self.kind {
            FileSystemKind::Disk | FileSystemKind::Packed | FileSystemKind::Nfs | FileSystemKind::Remote => {
                return None;
            }
            FileSystemKind::Own => format!("{name} has a cache of its own, which the kernel does not count"),
            FileSystemKind::Stacked => {
                format!("{name} reads from another file system, whose pages are not counted here")
            }
            FileSystemKind::Process => {
                format!("{name} reads from another process, which may have the bytes in memory")
            }
            FileSystemKind::Memory => format!("{name} keeps files in memory"),
            FileSystemKind::Unknown => {
                format!("it is unknown what the file system with number {:#x} keeps in memory", self.magic)
            }
        })
    }

    /// What counts the bytes that are read from below.
    pub fn counter(&self) -> Counter {
        match self.kind {
            FileSystemKind::Disk => Counter::Process,
            // A stacked file system may or may not read from a disk in the end.
            FileSystemKind::Packed | FileSystemKind::Stacked | FileSystemKind::Own => Counter::ProcessAtLeast,
            FileSystemKind::Nfs => Counter::NfsMount,
            FileSystemKind::Remote
            | FileSystemKind::Process
            | FileSystemKind::Memory
            | FileSystemKind::Unknown => Counter::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_are_found_by_their_numbers() {
        for (magic, name, is_memory, tells, counter) in [
            (0xef53, "ext4", false, true, Counter::Process),
            (0x9123_683e, "btrfs", false, true, Counter::ProcessAtLeast),
            (0x6969, "nfs", false, true, Counter::NfsMount),
            (0x0102_1994, "tmpfs", true, false, Counter::None),
            (0xffff_ffff_9584_58f6, "hugetlbfs", true, false, Counter::None),
            (0x6573_5546, "fuse", false, false, Counter::None),
            (0x794c_7630, "overlay", false, false, Counter::ProcessAtLeast),
            (0x1234, "unknown", false, false, Counter::None),
        ] {
            let found = FileSystem::numbered(magic);
            assert_eq!(
                (found.name, found.is_memory(), found.untold().is_none(), found.counter()),
                (name, is_memory, tells, counter)
            );
        }
        assert!(FileSystem::numbered(0x1234).untold().unwrap().contains("0x1234"));
    }

    #[test]
    fn numbers_are_unique() {
        for (i, (magic, name, _)) in KNOWN.iter().enumerate() {
            assert!(KNOWN[..i].iter().all(|(other, ..)| other != magic), "{name}");
        }
    }
}
