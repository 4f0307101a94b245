//! Counts of the kernel: bytes issued and served in each epoch, and the storage that data files are on.

use std::collections::BTreeMap;
use std::fs;

use model::observed::StorageRow;

use super::epoch::Epoch;
use crate::event::Sample;

/// The time over which the speed of a device is taken.
const WINDOW_NS: u64 = 1_000_000_000;

#[derive(Debug, Default)]
struct DeviceCounts {
    /// Bytes that the job asked of files on it.
    asked: u64,
    /// Files on it were mapped.
    mapped: bool,
    /// Where the current window began, and the best one.
    window: Option<(u64, u64)>,
    most_per_second: Option<u64>,
}

/// Samples so far.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    devices: BTreeMap<u32, DeviceCounts>,
    latest: Sample,
    read_bytes: u64,
    pub(super) shm_used: Option<u64>,
    pub(super) refault: Option<u64>,
}

fn served(sample: &Sample) -> u64 {
    sample.devices.iter().map(|(_, bytes)| bytes).sum()
}

impl Kernel {
    pub(super) fn asked(&mut self, device: u32, bytes: u64) {
        self.devices.entry(device).or_default().asked += bytes;
        self.read_bytes += bytes;
    }

    /// There was a page fault in a mapping of a file on it.
    pub(super) fn mapped(&mut self, device: u32) {
        self.devices.entry(device).or_default().mapped = true;
    }

    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    pub(super) fn sample(&mut self, sample: &Sample) {
        for (number, bytes) in &sample.devices {
            let device = self.devices.entry(*number).or_default();
            let (from, at_start) = *device.window.get_or_insert((sample.at_ns, *bytes));
            let took = sample.at_ns.saturating_sub(from);
            if took >= WINDOW_NS {
                let speed = u128::from(bytes.saturating_sub(at_start)) * 1_000_000_000 / u128::from(took);
                device.most_per_second = device.most_per_second.max(u64::try_from(speed).ok());
                device.window = Some((sample.at_ns, *bytes));
            }
        }
        self.shm_used = self.shm_used.max(sample.shm_used_bytes);
        self.refault = self.refault.max(sample.refault_bytes);
        self.latest = sample.clone();
    }

    /// The first sample after the begin of an epoch is where it counts from.
    pub(super) fn begin(&self, epoch: &mut Epoch, sample: &Sample) {
        if sample.at_ns >= epoch.row.begin_ns.0 {
            epoch.base.get_or_insert((sample.issued_bytes, served(sample)));
        }
    }

    /// The first sample after the end of an epoch is where it counts to; without one, the last sample.
    pub(super) fn end(&self, epoch: &mut Epoch, sample: Option<&Sample>) {
        let sample = sample.unwrap_or(&self.latest);
        let Some((issued, at_start)) = epoch.base else { return };
        epoch.row.issued_bytes = sample.issued_bytes.zip(issued).map(|(now, then)| now.saturating_sub(then));
        if !sample.devices.is_empty() {
            epoch.row.served_bytes = Some(served(sample).saturating_sub(at_start));
        }
    }

    /// The storage of data files, most bytes first.
    pub(super) fn storage(&self) -> Vec<StorageRow> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut rows: Vec<StorageRow> = self
            .devices
            .iter()
            .filter(|(_, device)| device.asked > 0 || device.mapped)
            .map(|(number, device)| row(*number, device, &mounts))
            .collect();
        rows.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.device.cmp(&other.device)));
        rows
    }
}

fn row(number: u32, device: &DeviceCounts, mounts: &str) -> StorageRow {
    let name = format!("{}:{}", number >> 20, number & 0xF_FFFF);
    // 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some(name.as_str()));
    let after = |mount: &str, at: usize| {
        let (_, rest) = mount.split_once(" - ").unwrap_or_default();
        rest.split(' ').nth(at).unwrap_or_default().to_owned()
    };
    let queue = |key: &str| -> Option<u64> {
        // A partition has its queue in the folder of the disk.
        ["", "../"].iter().find_map(|up| {
            let text = fs::read_to_string(format!("/sys/dev/block/{name}/{up}queue/{key}")).ok()?;
            text.trim().parse().ok()
        })
    };
    StorageRow {
        mount: mount.and_then(|mount| mount.split(' ').nth(4)).unwrap_or_default().to_owned(),
        file_system: mount.map(|mount| after(mount, 0)).unwrap_or_default(),
        source: mount.map(|mount| after(mount, 1)).unwrap_or_default(),
        bytes: device.asked,
        read_ahead_kb: queue("read_ahead_kb"),
        rotational: queue("rotational").map(|value| value == 1),
        most_bytes_per_second: device.most_per_second,
        device: name,
    }
}
