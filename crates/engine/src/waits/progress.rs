//! Whether a call that waits for storage makes progress: flushing much data to a slow device takes long but is not
//! stuck. The evidence is the thread's own counters, the file's dirty pages, and the bytes that the device has written.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use model::units::Nanos;
use store::mounts::{Mount, device_file, mounts, unescaped};

use super::calls::{CallKind, InCall, Object};
use super::kernel;

/// Counters around one wait, from two checks. A counter that cannot be read is `None`.
#[derive(Debug)]
pub(super) struct ProgressCounters {
    /// Of the thread: how often it has slept, or, in a call that writes, the bytes it has written. A thread whose
    /// writes are throttled sleeps again and again without any progress.
    thread: Option<u64>,
    /// Pages of the file that are not on the device yet.
    dirty: Option<u64>,
    /// Bytes that the device has written.
    written: Option<u64>,
    device: Option<PathBuf>,
    /// The part of that which the call can be waiting for: the host's unwritten bytes when the wait began.
    budget: u64,
}

impl ProgressCounters {
    /// Checks a wait for the first time.
    pub(super) fn of(thread: u32, call: &InCall) -> ProgressCounters {
        // A call that only reads does not wait for data to be written.
        let device = (call.kind != CallKind::Read).then(|| device_below(&call.object)).flatten();
        let written = device.as_deref().and_then(written_by);
        let budget = if written.is_some() { unwritten() } else { 0 };
        ProgressCounters {
            thread: counter(thread, call.kind),
            dirty: dirty_pages(call),
            written,
            device,
            budget,
        }
    }

    /// Checks again after `elapsed`, and returns whether any counter shows progress.
    pub(super) fn advance(&mut self, thread: u32, call: &InCall, elapsed: Nanos) -> bool {
        let before = (self.thread, self.dirty);
        (self.thread, self.dirty) = (counter(thread, call.kind), dirty_pages(call));
        // While the file itself has dirty pages, other writes of the device are no evidence.
        let device_counts = self.dirty.is_none_or(|pages| pages == 0);
        let writes = self.spend(elapsed);
        before != (self.thread, self.dirty) || (writes && device_counts)
    }

    /// Whether the device has written more of what the call can be waiting for, and not only what an idle host writes
    /// now and then.
    fn spend(&mut self, elapsed: Nanos) -> bool {
        /// Bytes per second. Any storage used for training is faster.
        const IDLE: f64 = (256 << 10) as f64;
        let Some(now) = self.device.as_deref().and_then(written_by) else { return false };
        let more = now.saturating_sub(self.written.replace(now).unwrap_or(now));
        let allowed = more.min(self.budget);
        self.budget -= allowed;
        allowed > 0 && more as f64 >= IDLE * elapsed.seconds()
    }
}

fn counter(thread: u32, kind: CallKind) -> Option<u64> {
    let (file, key) =
        if kind == CallKind::Write { ("io", "wchar:") } else { ("status", "voluntary_ctxt_switches:") };
    let text = kernel::read(format!("/proc/self/task/{thread}/{file}"))?;
    number_after(&text, key)
}

/// The number in the line that begins with this key.
fn number_after(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// The dirty pages of the one file that a call flushes.
fn dirty_pages(call: &InCall) -> Option<u64> {
    let descriptor =
        call.object.descriptor.filter(|descriptor| call.kind == CallKind::Flush && *descriptor >= 0)?;
    // SAFETY: used for one call, which fails if the descriptor has been closed meanwhile, and only counts pages if it
    // has become another file.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
    store::page_cache::unwritten(file)
}

/// Bytes in the host's memory that are not written to devices yet, plus some more: the kernel's sum lags behind the
/// counters of each core, and file systems also write journals and tables.
fn unwritten() -> u64 {
    const MORE: u64 = 4 << 20;
    let text = kernel::read("/proc/meminfo").unwrap_or_default();
    let kib: u64 = ["Dirty:", "Writeback:"].iter().filter_map(|key| number_after(&text, key)).sum();
    kib * 1024 + MORE
}

/// Bytes written to a device since the host was started, from its folder in /sys.
fn written_by(device: &Path) -> Option<u64> {
    const SECTORS_WRITTEN: usize = 6;
    let text = kernel::read(device.join("stat"))?;
    text.split_ascii_whitespace().nth(SECTORS_WRITTEN)?.parse::<u64>().ok().map(|sectors| sectors * 512)
}

/// The block device below an object, as its folder in /sys. It is found in the list of mounts, since a query to the
/// file system could hang.
fn device_below(object: &Object) -> Option<PathBuf> {
    let mounts = kernel::read("/proc/self/mountinfo")?;
    let info = object.descriptor.and_then(|fd| kernel::read(format!("/proc/self/fdinfo/{fd}")));
    let mount = info.and_then(|info| number_after(&info, "mnt_id:"));
    let (number, source) = mount_of(&mounts, mount, object.path.as_deref()?)?;
    let by_number = Path::new("/sys/dev/block").join(number);
    if written_by(&by_number).is_some() {
        return Some(by_number);
    }
    // btrfs and others have device numbers of their own; the device is the source of the mount.
    let device = fs::canonicalize(device_file(source)?).ok()?;
    Some(Path::new("/sys/class/block").join(device.file_name()?))
}

/// Number and source of the mount with this id, or else of the innermost mount that contains the path.
fn mount_of<'a>(mountinfo: &'a str, id: Option<u64>, path: &Path) -> Option<(&'a str, &'a str)> {
    let places = mounts(mountinfo).map(|mount| (unescaped(mount.point), mount));
    let holds =
        |place: &str, mount: &Mount<'_>| id.map_or_else(|| path.starts_with(place), |id| id == mount.id);
    let found = places.filter(|(place, mount)| holds(place, mount)).max_by_key(|(place, _)| place.len());
    found.map(|(_, mount)| (mount.device, mount.source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_determines_the_device() {
        let mounts = "\
22 1 254:0 / / rw,relatime - ext4 /dev/root rw
30 22 7:1 / /mnt/a rw shared:5 - xfs /dev/loop1 rw
31 30 0:44 / /mnt/a/b rw - btrfs /dev/loop2 rw
32 22 7:3 / /mnt/my\\040disk rw - ext4 /dev/loop3 rw\n";
        let by_path = |path: &str| mount_of(mounts, None, Path::new(path)).unwrap();
        assert_eq!(by_path("/srv/x"), ("254:0", "/dev/root"));
        assert_eq!(by_path("/mnt/a/x"), ("7:1", "/dev/loop1"));
        assert_eq!(by_path("/mnt/a/b/x"), ("0:44", "/dev/loop2"));
        assert_eq!(by_path("/mnt/my disk/x"), ("7:3", "/dev/loop3"));
        assert_eq!(mount_of(mounts, Some(30), Path::new("/elsewhere")), Some(("7:1", "/dev/loop1")));
    }

    #[test]
    fn a_device_that_writes_shows_progress_until_everything_is_written() {
        let device = tempfile::tempdir().unwrap();
        let write = |sectors: u64| {
            let line = format!("1 0 8 0 2 0 {sectors} 0 0 0 0");
            fs::write(device.path().join("stat"), line).unwrap();
        };
        write(100);
        let path = device.path().to_owned();
        let written = written_by(&path);
        let mut signs =
            ProgressCounters { thread: None, dirty: None, written, device: Some(path), budget: 6144 };
        let look = Nanos(1_000_000);
        assert_eq!((written, signs.spend(look)), (Some(51_200), false));
        write(104);
        assert!(signs.spend(look) && !signs.spend(look));
        write(108);
        assert!(!signs.spend(Nanos(1_000_000_000)), "as much as an idle host writes");
        write(1000);
        assert!(signs.spend(look), "the last of the unwritten bytes");
        write(2000);
        assert!(!signs.spend(look), "written by other processes");
    }
}
