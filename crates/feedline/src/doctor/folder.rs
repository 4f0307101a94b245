//! Checks of a folder: what a data set, results or checkpoints in it can rely on.

use std::path::{Path, PathBuf};

use engine::meter;
use model::units::{Bytes, counted};
use store::page_cache::Denied;
use store::{Counter, FolderHandle, FolderTrial, StorageStack, StoreError, free_bytes};

use super::{HealthAnswer, HealthCheck, HealthSubject};

/// Less free space than this is worth a remark: the demo needs 226 MiB.
const SMALL_SPACE: u64 = 1 << 30;
const ALIKE: &str = "Cached and uncached reads cannot be told apart: the verdict of a run through the page cache is \
                     unverified.";

/// A folder, and a file in it to try things with.
pub(crate) struct FolderView {
    path: PathBuf,
    opened: Result<FolderHandle, StoreError>,
    trial: Result<FolderTrial, StoreError>,
    ground: Result<StorageStack, StoreError>,
}

impl FolderView {
    pub(crate) fn of(path: &Path) -> FolderView {
        let shown = path.display().to_string();
        let opened = FolderHandle::open(path);
        let trial = match &opened {
            Ok(_) => FolderTrial::of(path),
            Err(error) => Err(StoreError::Refused(error.to_string())),
        };
        let ground = match (&trial, &opened) {
            (Ok(trial), _) => trial.ground(&shown),
            (Err(_), Ok(folder)) => StorageStack::of(folder.fd(), &shown),
            (Err(_), Err(error)) => Err(StoreError::Refused(error.to_string())),
        };
        FolderView { path: path.to_owned(), opened, trial, ground }
    }

    /// A file to try something with, or the answer of a check that has none.
    fn trial(&self) -> Result<&FolderTrial, HealthAnswer> {
        match (&self.opened, &self.trial) {
            (Err(_), _) => Err(HealthAnswer::not_applicable("the folder cannot be opened")),
            (_, Err(_)) => {
                Err(HealthAnswer::not_applicable("no file can be written, and there is none to read"))
            }
            (_, Ok(trial)) => Ok(trial),
        }
    }

    fn ground(&self) -> Result<&StorageStack, HealthAnswer> {
        match (&self.opened, &self.ground) {
            (Err(_), _) => Err(HealthAnswer::not_applicable("the folder cannot be opened")),
            (_, Err(error)) => Err(HealthAnswer::limited(error.to_string())),
            (_, Ok(ground)) => Ok(ground),
        }
    }
}

pub(super) const CHECKS: &[HealthCheck] = &[
    HealthCheck {
        name: "folder",
        about: "Opens the folder and creates a file without a name in it, which leaves nothing behind.",
        means: "A data set that is there can be read, but data sets, results and checkpoints cannot be written here.",
        remedy: "Mount the file system for writing or change the permissions of the folder; for reading only, nothing \
                 has to be done.",
        subject: HealthSubject::Folder(folder),
    },
    HealthCheck {
        name: "file-system",
        about: "Finds the type of the file system, its mount point and its block devices, and whether cached and \
                uncached reads can be told apart there.",
        means: "A run through the page cache cannot prove that its bytes came from the storage: the verdict is \
                unverified.",
        remedy: "Use a folder on a local disk, NFS, Lustre, Ceph or SMB, or a data set that is larger than all caches.",
        subject: HealthSubject::Folder(file_system),
    },
    HealthCheck {
        name: "read-counter",
        about: "Finds out what counts the bytes that come from the storage: the kernel for block devices, the NFS \
                client for its mounts.",
        means: "The storage share is not known or only a lower bound; the verdict relies on counted pages alone.",
        remedy: "Nothing has to be done if pages can be counted; otherwise use a folder on a local disk or NFS.",
        subject: HealthSubject::Folder(read_counter),
    },
    HealthCheck {
        name: "o-direct",
        about: "Opens a file with O_DIRECT, reads its first block, and shows the block size that the kernel reports.",
        means: "The backend direct and the key reader.odirect are refused here.",
        remedy: "Use a file system that supports O_DIRECT, such as ext4, xfs or NFS, or read through the page cache \
                 (--store posix).",
        subject: HealthSubject::Folder(o_direct),
    },
    HealthCheck {
        name: "eviction",
        about: "Reads a file, counts its pages in the page cache, asks the kernel to evict them \
                (POSIX_FADV_DONTNEED) and counts again.",
        means: "Runs with --cache cold may begin with cached files and are then refused or invalid.",
        remedy: "Use a file system on a disk, bypass the page cache (--store direct), or measure memory on purpose \
                 (--cache warm).",
        subject: HealthSubject::Folder(eviction),
    },
    HealthCheck {
        name: "free-space",
        about: "Shows the bytes that this user may still write to the file system.",
        means: "Less than 1 GiB is free: larger data sets and checkpoints are refused before they are written.",
        remedy: "Remove files or use another file system; feedline plan shows how much a workload needs.",
        subject: HealthSubject::Folder(free_space),
    },
];

fn folder(view: &FolderView) -> HealthAnswer {
    let useless = |error: &StoreError| {
        HealthAnswer::missing(error.to_string()).means("Nothing can be read or written here.").remedy(
            "Check the path, that the file system is mounted, and the permissions of every folder above it.",
        )
    };
    match (&view.opened, &view.trial) {
        (Err(error), _) => useless(error),
        (Ok(_), Ok(FolderTrial { existing: None, .. })) => HealthAnswer::ok("it can be read and written"),
        (Ok(_), Ok(FolderTrial { existing: Some((_, cause)), .. })) => {
            HealthAnswer::limited(cause.to_string())
        }
        (Ok(_), Err(cause)) => HealthAnswer::limited(format!("{cause}; it has no file that can be read")),
    }
}

fn file_system(view: &FolderView) -> HealthAnswer {
    let ground = match view.ground() {
        Ok(ground) => ground,
        Err(answer) => return answer,
    };
    let mut observed = ground.file_system.name.to_owned();
    if let Some(point) = &ground.mount_point {
        observed.push_str(&format!(" on {point}"));
    }
    if !ground.devices.is_empty() {
        observed.push_str(&format!(", {}", counted(ground.devices.len() as u64, "block device")));
    }
    match ground.untold() {
        None => HealthAnswer::ok(observed),
        Some(why) => HealthAnswer::limited(observed).means(format!(
            "A run through the page cache cannot prove that its bytes came from the storage, because {why}: the \
             verdict is unverified."
        )),
    }
}

fn read_counter(view: &FolderView) -> HealthAnswer {
    let ground = match view.ground() {
        Ok(ground) => ground,
        Err(answer) => return answer,
    };
    let is_counted = engine::host::device_read_bytes().is_some();
    match ground.file_system.counter() {
        Counter::None => HealthAnswer::limited("no counter of bytes"),
        Counter::NfsMount => HealthAnswer::ok("the NFS client, for each mount (mountstats)"),
        _ if !is_counted => HealthAnswer::limited("/proc/self/io has no read_bytes"),
        Counter::Process => HealthAnswer::ok("the kernel, for each process (/proc/self/io)"),
        Counter::ProcessAtLeast => {
            HealthAnswer::limited("the kernel, for each process (/proc/self/io), but it may miss some bytes")
        }
    }
}

fn o_direct(view: &FolderView) -> HealthAnswer {
    let trial = match view.trial() {
        Ok(trial) => trial,
        Err(answer) => return answer,
    };
    if let Ok(ground) = &view.ground
        && ground.file_system.is_memory()
    {
        return HealthAnswer::limited(format!("{} keeps files in memory", ground.file_system.name));
    }
    match trial.direct() {
        Ok(found) if found.is_reported => {
            HealthAnswer::ok(format!("reads of {} work", counted(found.granule as u64, "byte")))
        }
        Ok(found) => HealthAnswer::ok(format!(
            "reads of {} work; smaller ones are not tried, since the kernel does not report the block size",
            counted(found.granule as u64, "byte")
        )),
        Err(reason) => HealthAnswer::limited(reason),
    }
}

fn eviction(view: &FolderView) -> HealthAnswer {
    let trial = match view.trial() {
        Ok(trial) => trial,
        Err(answer) => return answer,
    };
    let of = match &trial.existing {
        Some((path, _)) => format!(" of {}", path.display()),
        None => String::new(),
    };
    match trial.evict(meter::pause) {
        Ok(pages) if pages.read.cached < pages.read.all => HealthAnswer::limited(format!(
            "only {} of {}{of} are counted right after they were read",
            pages.read.cached,
            counted(pages.read.all, "page")
        ))
        .means(ALIKE),
        Ok(pages) if pages.evicted.cached == 0 => HealthAnswer::ok(format!(
            "{}{of} counted in the page cache and evicted",
            counted(pages.read.cached, "page")
        )),
        Ok(pages) => HealthAnswer::limited(format!(
            "{} of {}{of} stay in memory",
            pages.evicted.cached,
            counted(pages.evicted.all, "page")
        )),
        Err(Denied::NotPermitted) => HealthAnswer::limited(format!("the pages{of} are counted for its owner only"))
            .means(
                "The kernel counts the pages of files for their owner and for users that may write to them. For \
                 others, feedline samples pages with reads that do not wait (RWF_NOWAIT), and the proof is a sample.",
            )
            .remedy("Run as the owner of the data set or as root, or read with --store direct."),
        Err(Denied::Unsupported) => {
            HealthAnswer::limited(format!("the kernel does not count pages{of}")).means(ALIKE)
        }
    }
}

fn free_space(view: &FolderView) -> HealthAnswer {
    if view.opened.is_err() {
        return HealthAnswer::not_applicable("the folder cannot be opened");
    }
    match free_bytes(&view.path) {
        Ok(bytes) if bytes < SMALL_SPACE => HealthAnswer::limited(format!("{} free", Bytes(bytes))),
        Ok(bytes) => HealthAnswer::ok(format!("{} free", Bytes(bytes))),
        Err(error) => {
            HealthAnswer::limited(error.to_string()).means("It is not known whether data fits here.")
        }
    }
}
