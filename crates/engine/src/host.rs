//! Facts about this machine from the kernel, as far as this process may use it: limits of control groups and CPU
//! affinity are treated like the machine's own. What cannot be determined is `None`, never a guess.

mod limits;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use model::ledger::ObservedHost;
use model::units::{Bytes, significant};
use rustix::process::{Resource, getrlimit};

use crate::meter;
use limits::{CpuLimit, Limits, MemoryLimit};

/// The host's name.
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Facts about a host for the report, in DLIO's terms.
#[derive(Clone, Debug, Default)]
pub struct Host {
    pub name: String,
    /// Cores that this process may use.
    pub cores: u64,
    /// Memory that it may use, page cache included.
    pub memory_bytes: u64,
    /// Limits below what the machine has, one text for each resource.
    pub limits: BTreeSet<String>,
    /// The one of them that limits memory.
    pub memory_limit: Option<String>,
    /// /proc/cpuinfo, flattened; the last of several processors counts, as in DLIO.
    pub cpuinfo: Vec<(String, String)>,
    pub meminfo: Vec<(String, String)>,
}

impl Host {
    pub fn look() -> Host {
        let meminfo = meminfo();
        let total = kib(&meminfo, "MemTotal").unwrap_or(0);
        let limit = memory_limits(total).into_iter().min_by_key(|limit| limit.bytes);
        let memory_limit = limit.as_ref().map(|limit| limited("memory", Bytes(limit.bytes), &limit.group));
        Host {
            name: name(),
            cores: cores(),
            memory_bytes: limit.map_or(total, |limit| limit.bytes),
            limits: cpu_limits().into_iter().chain(memory_limit.clone()).collect(),
            memory_limit,
            cpuinfo: pairs("/proc/cpuinfo").into_iter().filter(|(key, _)| key != "processor").collect(),
            meminfo,
        }
    }

    /// Memory that this process and the page cache can still use without swapping, at most what the host has.
    /// Reclaimable cache counts as free.
    pub fn room(&self) -> Option<AvailableMemory> {
        let whole = AvailableMemory { bytes: self.memory_bytes, limit: self.memory_limit.clone() };
        let whole = Some(whole).filter(|whole| whole.bytes > 0);
        let meminfo = meminfo();
        let host = kib(&meminfo, "MemAvailable").map(|bytes| AvailableMemory { bytes, limit: None });
        let of_groups = memory_limits(u64::MAX).into_iter().map(|limit| AvailableMemory {
            bytes: limit.unused,
            limit: Some(limited("memory", Bytes(limit.bytes), &limit.group)),
        });
        host.into_iter().chain(of_groups).chain(whole).min_by_key(|room| room.bytes)
    }

    /// The part of it that this process itself may use.
    pub fn own_room(&self) -> Option<AvailableMemory> {
        self.room().into_iter().chain(resource_limits()).min_by_key(|room| room.bytes)
    }
}

/// Available memory, and what limits it unless that is the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AvailableMemory {
    pub bytes: u64,
    limit: Option<String>,
}

impl std::fmt::Display for AvailableMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limit = self.limit.as_ref().map(|limit| format!(" (limit: {limit})")).unwrap_or_default();
        write!(f, "{} of memory are available{limit}", Bytes(self.bytes))
    }
}

/// What `ulimit -v` and `ulimit -d` leave. The usage that they limit is in statm: the first field is all pages of the
/// address space, the sixth those of data.
fn resource_limits() -> impl Iterator<Item = AvailableMemory> {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let limits = [(Resource::As, 0, "address space", "-v"), (Resource::Data, 5, "data", "-d")];
    limits.into_iter().filter_map(move |(resource, field, what, flag)| {
        let bytes = getrlimit(resource).current?;
        let pages: u64 = statm.split(' ').nth(field)?.parse().ok()?;
        let used = pages.saturating_mul(rustix::param::page_size() as u64);
        let limit = format!("{what} {}, set with ulimit {flag}", Bytes(bytes));
        Some(AvailableMemory { bytes: bytes.saturating_sub(used), limit: Some(limit) })
    })
}

/// The limits on memory that are below `total`.
fn memory_limits(total: u64) -> Vec<MemoryLimit> {
    let mut limits = Limits::read(Path::new("/")).memory;
    limits.retain(|limit| limit.bytes < total);
    limits
}

/// The limits of CPU time below all cores.
fn cpu_limits() -> Vec<String> {
    let online = fs::read_to_string("/proc/stat").unwrap_or_default();
    let is_core = |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| !rest.starts_with(' '));
    let online = online.lines().filter(is_core).count() as u64;
    let affine = affine_cores();
    let affinity = (affine < online).then(|| format!("{affine} of {online} cores (CPU affinity or cpuset)"));
    let quota = cpu_quota().filter(|limit| limit.cores < affine as f64);
    let quota =
        quota.map(|limit| limited("CPU time", format!("{} cores", significant(limit.cores)), &limit.group));
    affinity.into_iter().chain(quota).collect()
}

fn limited(what: &str, most: impl std::fmt::Display, group: &Path) -> String {
    format!("{what} {most}, control group {}", group.display())
}

/// Counters of the kernel since the host was started. The difference over a run shows what else the host did meanwhile.
/// The load average would not: it covers a minute back, and includes feedline's own work.
#[derive(Clone, Copy, Debug)]
pub struct HostCounts {
    ticks: u64,
    stolen: u64,
    busy: u64,
    /// CPU time of this process, in ticks.
    own: u64,
    swapped_in: u64,
}

impl HostCounts {
    pub fn read() -> Option<HostCounts> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let vmstat = fs::read_to_string("/proc/vmstat").ok()?;
        let swapped_in = vmstat.lines().find_map(|line| line.strip_prefix("pswpin "))?.parse().ok()?;
        let own = meter::cpu_seconds() * rustix::param::clock_ticks_per_second() as f64;
        HostCounts::of(stat.lines().next()?, own as u64, swapped_in)
    }

    /// From the line that sums up all cores: `cpu user nice system idle iowait irq softirq steal ...`.
    fn of(line: &str, own: u64, swapped_in: u64) -> Option<HostCounts> {
        let fields = line.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
        let &[user, nice, system, idle, iowait, irq, softirq, stolen, ..] = ticks.as_slice() else {
            return None;
        };
        let busy = user + nice + system + irq + softirq;
        Some(HostCounts { ticks: busy + idle + iowait + stolen, stolen, busy, own, swapped_in })
    }
}

/// CPU time that this process has used since `before`, in kernel ticks.
pub fn own_ticks_since(before: Option<HostCounts>) -> u64 {
    before.zip(HostCounts::read()).map_or(0, |(before, after)| after.own.saturating_sub(before.own))
}

/// Facts about this host and the time since `before`, in which the run's processes on this host used `own_ticks`.
pub fn seen_since(before: Option<HostCounts>, own_ticks: u64) -> ObservedHost {
    let clock = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let mut seen = ObservedHost {
        kernels: [rustix::system::uname().release().to_string_lossy().into_owned()].into(),
        limits: Host::look().limits,
        clock_sources: clock.into_iter().map(|name| name.trim().to_owned()).collect(),
        ..ObservedHost::default()
    };
    if let Some((before, after)) = before.zip(HostCounts::read()) {
        let since = |count: fn(&HostCounts) -> u64| count(&after).saturating_sub(count(&before));
        seen.readings = 1;
        seen.ticks = since(|counts| counts.ticks);
        seen.stolen_ticks = since(|counts| counts.stolen);
        seen.foreign_ticks = since(|counts| counts.busy).saturating_sub(own_ticks);
        seen.swapped_in_pages = since(|counts| counts.swapped_in);
    }
    seen
}

/// Cores that this process may use: those that it may run on, limited by the whole cores of a quota.
pub fn cores() -> u64 {
    (core_share().floor() as u64).max(1)
}

/// CPU time per wall-clock time that this process may use.
pub(crate) fn core_share() -> f64 {
    quota_of(affine_cores())
}

/// The same for several processes of this host that may run on these cores.
pub(crate) fn core_share_of<'a>(affinities: impl Iterator<Item = &'a [u8]>) -> f64 {
    let mut all: Vec<u8> = Vec::new();
    for affinity in affinities {
        all.resize(all.len().max(affinity.len()), 0);
        all.iter_mut().zip(affinity).for_each(|(all, one)| *all |= one);
    }
    match all.iter().map(|byte| u64::from(byte.count_ones())).sum() {
        0 => core_share(),
        cores => quota_of(cores),
    }
}

/// The cores that this process may run on, one bit each; empty if unknown.
pub(crate) fn affinity() -> Vec<u8> {
    let Ok(cores) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    let bits = (0..rustix::thread::CpuSet::MAX_CPU).map(|core| u8::from(cores.is_set(core)));
    let bits: Vec<u8> = bits.collect();
    bits.chunks(8).map(|bits| bits.iter().rev().fold(0, |byte, bit| byte << 1 | bit)).collect()
}

/// Cores, limited by a quota of CPU time.
fn quota_of(cores: u64) -> f64 {
    cpu_quota().map_or(cores as f64, |limit| limit.cores.min(cores as f64))
}

/// Cores that this process may run on, by its affinity and its cpuset.
fn affine_cores() -> u64 {
    match rustix::thread::sched_getaffinity(None) {
        Ok(cores) => u64::from(cores.count()),
        // The host has more than 1,024 cores.
        Err(_) => std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
    }
}

fn cpu_quota() -> Option<CpuLimit> {
    Limits::read(Path::new("/")).cpu
}

/// Identifies this boot of the host.
pub fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// Bytes that this process has read from block devices. Reads from network file systems are not counted.
pub fn device_read_bytes() -> Option<u64> {
    read_bytes("/proc/self/io")
}

fn read_bytes(path: &str) -> Option<u64> {
    pairs(path).iter().find(|(key, _)| key == "read_bytes")?.1.parse().ok()
}

/// Bytes that the network interfaces of this host have received, for any process, without the loopback interface. The
/// kernel does not count reads by RDMA.
pub(crate) fn network_received_bytes() -> Option<u64> {
    received_bytes(&fs::read_to_string("/proc/self/net/dev").ok()?, |name| {
        let entries = fs::read_dir(format!("/sys/class/net/{name}")).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("lower_"))
    })
}

/// The first number of each interface, except for those on top of others, such as bonds, bridges and VLANs, whose bytes
/// are counted below them.
fn received_bytes(table: &str, is_on_top: impl Fn(&str) -> bool) -> Option<u64> {
    let interfaces = table.lines().filter_map(|line| line.split_once(':'));
    let interfaces = interfaces.map(|(name, counts)| (name.trim(), counts));
    let counted = interfaces.filter(|(name, _)| *name != "lo" && !is_on_top(name));
    counted.map(|(_, counts)| counts.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

/// The part of these bytes that `aside` has counted, and the number of threads that read aside now.
static ASIDE: AtomicU64 = AtomicU64::new(0);
static READING_ASIDE: AtomicU64 = AtomicU64::new(0);

/// Does work that reads other data than the data set, such as the drain of a checkpoint, so that its bytes are not
/// counted as the data set's.
pub(crate) fn aside<T>(work: impl FnOnce() -> T) -> T {
    READING_ASIDE.fetch_add(1, Ordering::Relaxed);
    let before = read_bytes("/proc/thread-self/io");
    let done = work();
    if let (Some(before), Some(after)) = (before, read_bytes("/proc/thread-self/io")) {
        // Relaxed: a counter that publishes no other data.
        ASIDE.fetch_add(after.saturating_sub(before), Ordering::Relaxed);
    }
    READING_ASIDE.fetch_sub(1, Ordering::Relaxed);
    done
}

/// Whether a thread reads aside, so that `data_read_bytes` is not exact at this moment.
pub(crate) fn is_reading_aside() -> bool {
    READING_ASIDE.load(Ordering::Relaxed) > 0
}

/// Bytes read from block devices for the data set. It is off by what is being read aside at this moment: the kernel
/// counts a read before it ends, `aside` afterwards.
pub(crate) fn data_read_bytes() -> Option<u64> {
    Some(device_read_bytes()?.saturating_sub(ASIDE.load(Ordering::Relaxed)))
}

/// Peak resident memory of this process.
pub fn peak_rss_bytes() -> Option<u64> {
    kib(&pairs("/proc/self/status"), "VmHWM")
}

fn kib(pairs: &[(String, String)], key: &str) -> Option<u64> {
    let value = &pairs.iter().find(|(name, _)| name == key)?.1;
    value.strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// /proc/meminfo as it is now.
pub(crate) fn meminfo() -> Vec<(String, String)> {
    pairs("/proc/meminfo")
}

/// The `key: value` lines of a kernel file: keys in the order of their first appearance, with their last values.
fn pairs(path: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut order = Vec::new();
    let mut values = BTreeMap::new();
    for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let key = key.trim().to_owned();
        if values.insert(key.clone(), value.trim().to_owned()).is_none() {
            order.push(key);
        }
    }
    order.into_iter().filter_map(|key| values.remove(&key).map(|value| (key, value))).collect()
}

/// Makes the allocator map large blocks of memory separately and return them to the system. By default it keeps them
/// once one was freed, and then zeroes memory itself: a histogram would take all its pages instead of only those it
/// uses, which the plan's figure does not include.
pub fn return_large_memory() {
    const LARGE: libc::c_int = 64 << 10;
    // SAFETY: sets a parameter of the allocator, which its documentation allows at any time; called before threads
    // exist.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_aside_are_not_the_data_sets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, vec![7; 1 << 20]).unwrap();
        let read_cold = || {
            let file = fs::File::open(&path).unwrap();
            file.sync_all().unwrap();
            store::page_cache::forget(&file, model::extent::Extent { offset: 0, len: 1 << 20 });
            fs::read(&path).unwrap();
        };
        let since = |work: &dyn Fn()| {
            let (all, data) = (device_read_bytes().unwrap(), data_read_bytes().unwrap());
            work();
            (device_read_bytes().unwrap() - all, data_read_bytes().unwrap() - data)
        };
        let (all, data) = since(&read_cold);
        assert_eq!(all, data);
        let (more, data) = since(&|| aside(read_cold));
        assert_eq!((more, data), (all, 0));
    }

    #[test]
    fn the_kernel_provides_all_facts() {
        let host = Host::look();
        assert!(host.cores > 0 && host.memory_bytes > 1 << 20 && !host.name.is_empty());
        assert!(peak_rss_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert!(host.room().is_some_and(|room| room.bytes > 0));
        assert!(host.own_room().is_some_and(|room| room.bytes > 0));
        let small = Host { memory_bytes: 4096, ..host };
        assert_eq!(small.own_room().map(|room| room.bytes), Some(4096), "never more than there is");
        let before = HostCounts::read();
        let seen = seen_since(before, own_ticks_since(before));
        assert_eq!((seen.readings, seen.kernels.len()), (1, 1));
        assert!(seen.foreign_ticks <= seen.ticks, "{seen:?}");
    }

    #[test]
    fn cores_of_several_processes_are_counted_once() {
        let cores = core_share();
        assert_eq!(core_share_of([affinity().as_slice(), &affinity()].into_iter()), cores, "the same cores");
        assert_eq!(core_share_of([[].as_slice()].into_iter()), cores, "unknown cores");
        let limit = |cores: u64| quota_of(cores);
        assert_eq!(core_share_of([[0b0011].as_slice(), &[0b0110, 1]].into_iter()), limit(4));
    }

    const INTERFACES: &str = "\
Inter-|   Receive                |  Transmit
 face |bytes    packets errs drop|bytes    packets
    lo:  500 5 0 0 500 5
 bond0: 3000 9 0 0 70 8
  eth0: 1000 4 0 0 30 4
  eth1:2000 5 0 0 40 4
";

    #[test]
    fn received_bytes_are_counted_once() {
        assert_eq!(received_bytes(INTERFACES, |name| name == "bond0"), Some(3000));
        assert_eq!(received_bytes("eth0: many", |_| false), None);
        assert!(network_received_bytes().is_some());
    }

    #[test]
    fn ticks_are_classified() {
        let counts = HostCounts::of("cpu  10 2 30 400 50 6 7 80 9 0", 5, 3).unwrap();
        assert_eq!((counts.ticks, counts.busy, counts.stolen), (585, 55, 80));
        assert!(HostCounts::of("cpu0 10 2 30 400 50 6 7 80", 0, 0).is_none(), "this line is for one core");
        assert!(HostCounts::of("cpu  10 2 30", 0, 0).is_none());
    }
}
