//! What is below a block device, as far as /sys shows it: a disk, memory, or a file that is read through the page
//! cache. Loop devices, partitions, device mapper, md and bcache are followed down. Caches of a hypervisor, a disk
//! array or a network device are not visible in /sys.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use crate::ground::StorageStack;

/// Names of devices that keep their blocks in memory.
const IN_MEMORY: &[&str] = &["zram", "ram", "nullb"];
/// Models of SCSI disks that keep their blocks in memory.
const MEMORY_MODELS: &[&str] = &["scsi_debug", "RAMDISK"];
/// Maximum depth of devices on top of each other; more than this is a cycle of links.
const DEEPEST: usize = 16;

/// A block device by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    pub major: u32,
    pub minor: u32,
}

impl BlockDevice {
    /// `None` for the numbers of file systems that have no device of their own.
    pub(crate) fn numbered(number: u64) -> Option<BlockDevice> {
        let device = BlockDevice { major: major(number), minor: minor(number) };
        (device.major != 0).then_some(device)
    }

    /// From the text of a `dev` file: `7:0`.
    pub(crate) fn parse(text: &str) -> Option<BlockDevice> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(BlockDevice { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// The device's own counters of requests and sectors.
    pub fn counters(&self) -> Option<PathBuf> {
        let path = self.folder(Path::new("/sys")).join("stat");
        path.exists().then_some(path)
    }

    /// Why bytes that it delivers may come from memory; `None` if there are only disks below it.
    pub(crate) fn untold(&self) -> Option<String> {
        self.follow(Path::new("/sys"), &ground_of_file, 0)
    }

    fn folder(&self, sys: &Path) -> PathBuf {
        sys.join(format!("dev/block/{}:{}", self.major, self.minor))
    }

    /// `file` returns why the bytes of a file may come from memory.
    fn follow(&self, sys: &Path, file: &FileUntold, depth: usize) -> Option<String> {
        // If this folder does not exist, as in a container that hides /sys, nothing can be followed.
        let folder = fs::canonicalize(self.folder(sys)).ok()?;
        let is_part = folder.join("partition").exists();
        let disk = if is_part { folder.parent()? } else { &folder };
        let name = disk.file_name()?.to_string_lossy().into_owned();
        if depth > DEEPEST {
            return Some(format!("the devices below {name} form a loop or are nested too deeply"));
        }
        let numbered = |kind: &&str| name.strip_prefix(*kind).is_some_and(is_number);
        let model = text(&disk.join("device/model")).unwrap_or_default();
        if IN_MEMORY.iter().any(numbered) || MEMORY_MODELS.iter().any(|known| model.starts_with(known)) {
            return Some(format!("the device {name} keeps its blocks in memory"));
        }
        if let Some(backing) = text(&disk.join("loop/backing_file")) {
            return loop_device(&name, disk, &backing, file);
        }
        let below = devices_in(&disk.join("slaves"));
        if below.is_empty() && name.strip_prefix("dm-").is_some_and(is_number) {
            return Some(format!("the device {name} does not name a device below it"));
        }
        below.iter().find_map(|device| device.follow(sys, file, depth + 1))
    }
}

type FileUntold = dyn Fn(&Path) -> Option<String>;

/// A loop device bypasses the page cache when it reads its file only if it is set up to do so.
fn loop_device(name: &str, disk: &Path, backing: &str, file: &FileUntold) -> Option<String> {
    if let Some(why) = file(Path::new(backing)) {
        return Some(format!("the device {name} is the file {backing}: {why}"));
    }
    let is_direct = text(&disk.join("loop/dio")).as_deref() == Some("1");
    (!is_direct).then(|| {
        format!(
            "the device {name} reads its file {backing} through the page cache, which may have it in memory (losetup \
             --direct-io=on {name} bypasses it)"
        )
    })
}

/// Why the bytes of a file may come from memory. It is opened for queries only.
fn ground_of_file(path: &Path) -> Option<String> {
    let shown = path.display().to_string();
    match fs::File::open(path) {
        Ok(file) => StorageStack::of(&file, &shown)
            .map_or_else(|error| Some(error.to_string()), |ground| ground.untold()),
        Err(cause) => Some(format!("it cannot be opened: {cause}")),
    }
}

/// The devices that the links in a folder of /sys point to.
pub(crate) fn devices_in(folder: &Path) -> Vec<BlockDevice> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(|entry| BlockDevice::parse(&text(&entry.ok()?.path().join("dev"))?)).collect()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The text of a file of /sys, without the newline.
fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fake /sys for one test: path below `block`, number, files with their texts, names of the devices below.
    struct Sys(tempfile::TempDir);

    impl Sys {
        fn new() -> Sys {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir_all(folder.path().join("dev/block")).unwrap();
            Sys(folder)
        }

        fn device(&self, path: &str, number: &str, files: &[(&str, &str)], below: &[&str]) {
            let folder = self.0.path().join("block").join(path);
            fs::create_dir_all(folder.join("slaves")).unwrap();
            fs::write(folder.join("dev"), format!("{number}\n")).unwrap();
            for (name, text) in files {
                fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
                fs::write(folder.join(name), text).unwrap();
            }
            for (i, device) in below.iter().enumerate() {
                let target = self.0.path().join("block").join(device);
                std::os::unix::fs::symlink(target, folder.join("slaves").join(i.to_string())).unwrap();
            }
            std::os::unix::fs::symlink(&folder, self.0.path().join("dev/block").join(number)).unwrap();
        }

        fn untold(&self, number: &str) -> Option<String> {
            let file =
                |path: &Path| path.starts_with("/memory").then(|| "tmpfs keeps files in memory".to_owned());
            BlockDevice::parse(number).unwrap().follow(self.0.path(), &file, 0)
        }
    }

    #[test]
    fn disks_are_trusted_and_memory_is_not() {
        let sys = Sys::new();
        sys.device("sda", "8:0", &[("device/model", "WDC WD40\n")], &[]);
        sys.device("sda/sda1", "8:1", &[("partition", "1\n")], &[]);
        sys.device("zram0", "252:0", &[], &[]);
        sys.device("ram15", "1:15", &[], &[]);
        sys.device("ramble", "90:0", &[], &[]);
        sys.device("sdb", "8:16", &[("device/model", "scsi_debug      \n")], &[]);
        sys.device("sdb/sdb2", "8:18", &[("partition", "2\n")], &[]);
        for (number, in_memory) in
            [("8:0", false), ("8:1", false), ("90:0", false), ("252:0", true), ("1:15", true), ("8:18", true)]
        {
            let why = sys.untold(number);
            assert_eq!(why.is_some(), in_memory, "{number}: {why:?}");
        }
        assert_eq!(sys.untold("252:0").unwrap(), "the device zram0 keeps its blocks in memory");
        assert_eq!(sys.untold("77:7"), None, "/sys does not show it");
    }

    #[test]
    fn stacked_devices_are_followed_down() {
        let sys = Sys::new();
        sys.device("sda", "8:0", &[], &[]);
        sys.device("zram1", "252:1", &[], &[]);
        sys.device("dm-0", "253:0", &[], &["sda"]);
        sys.device("md0", "9:0", &[], &["dm-0", "sda"]);
        sys.device("dm-1", "253:1", &[], &["sda", "zram1"]);
        sys.device("dm-2", "253:2", &[], &["dm-1"]);
        sys.device("dm-3", "253:3", &[], &[]);
        assert_eq!((sys.untold("253:0"), sys.untold("9:0")), (None, None));
        assert!(sys.untold("253:2").unwrap().contains("zram1 keeps"));
        assert!(sys.untold("253:3").unwrap().contains("dm-3 does not name"));
        sys.device("dm-4", "253:4", &[], &["dm-4"]);
        assert!(sys.untold("253:4").unwrap().contains("form a loop"));
    }

    #[test]
    fn a_loop_device_is_judged_by_its_file() {
        let sys = Sys::new();
        let backed = |file, dio| [("loop/backing_file", file), ("loop/dio", dio)];
        sys.device("loop0", "7:0", &backed("/disk/image\n", "1\n"), &[]);
        sys.device("loop1", "7:1", &backed("/disk/image\n", "0\n"), &[]);
        sys.device("loop2", "7:2", &backed("/memory/image\n", "1\n"), &[]);
        assert_eq!(sys.untold("7:0"), None);
        assert!(
            sys.untold("7:1").unwrap().contains("loop1 reads its file /disk/image through the page cache")
        );
        assert!(sys.untold("7:2").unwrap().contains("the file /memory/image: tmpfs keeps files in memory"));
    }
}
