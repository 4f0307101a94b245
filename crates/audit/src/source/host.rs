//! The host of the job: what does not change, and counts of the whole host.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use model::observed::JobHost;
use rustix::process::{Resource, getrlimit};

use super::proc::field;

/// Bytes of a sector in /proc/diskstats, whatever the device uses.
const SECTOR_BYTES: u64 = 512;
const SHM: &str = "/dev/shm";

/// What does not change while a job runs.
pub(super) fn job_host() -> JobHost {
    let memory = fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemTotal:"));
    let memory_bytes = memory.map(|kib| kib << 10);
    let limit = memory_limit().filter(|limit| memory_bytes.is_none_or(|all| *limit < all));
    JobHost {
        name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        cores: std::thread::available_parallelism().ok().map(|cores| cores.get() as u64),
        memory_bytes,
        memory_limit_bytes: limit,
        shm_bytes: shm().map(|(size, _)| size),
        open_files_limit: getrlimit(Resource::Nofile).current,
        ..JobHost::default()
    }
}

/// Size and used bytes of /dev/shm.
pub(super) fn shm() -> Option<(u64, u64)> {
    let about = rustix::fs::statvfs(SHM).ok()?;
    let used = about.f_blocks.saturating_sub(about.f_bfree);
    Some((about.f_blocks.saturating_mul(about.f_frsize), used.saturating_mul(about.f_frsize)))
}

/// Bytes of pages that had to be read again soon after they were evicted, since the host was started.
pub(super) fn refault_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/vmstat").ok()?;
    // One count for all kinds of pages before Linux 5.9.
    let pages = field(&text, "workingset_refault_file ").or_else(|| field(&text, "workingset_refault "))?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}

/// Bytes that each device or partition delivered since the host was started.
pub(super) fn device_bytes() -> BTreeMap<u32, u64> {
    parse_diskstats(&fs::read_to_string("/proc/diskstats").unwrap_or_default())
}

fn parse_diskstats(text: &str) -> BTreeMap<u32, u64> {
    let device = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let id = u32::try_from(number(0)? << 20 | number(1)?).ok()?;
        Some((id, number(5)?.saturating_mul(SECTOR_BYTES)))
    };
    text.lines().filter_map(device).collect()
}

/// The lowest memory limit of the control groups of this process.
fn memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            list if list.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        lowest(Path::new(root), path, file)
    };
    groups.lines().filter_map(group).min()
}

/// The lowest number in `file` of a control group and those around it.
fn lowest(root: &Path, path: &str, file: &str) -> Option<u64> {
    let group: PathBuf = root.join(path.trim_start_matches('/'));
    let levels = group.ancestors().take_while(|level| level.starts_with(root));
    // "max", or a number too large to be a limit, is none.
    let limit = |level: &Path| fs::read_to_string(level.join(file)).ok()?.trim().parse::<u64>().ok();
    levels.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_described() {
        let host = job_host();
        assert!(!host.name.is_empty());
        assert!(host.cores >= Some(1) && host.memory_bytes > Some(1 << 20), "{host:?}");
    }

    #[test]
    fn partitions_have_counts_of_their_own() {
        let text = "\
   8       0 sda 100 0 2000 5 0 0 0 0 0 0 0
   8       1 sda1 10 0 200 5 0 0 0 0 0 0 0
 wrong line
";
        let expected = BTreeMap::from([(8 << 20, 2000 * 512), (8 << 20 | 1, 200 * 512)]);
        assert_eq!(parse_diskstats(text), expected);
    }

    #[test]
    fn the_limit_of_an_outer_group_counts() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::write(root.path().join("a/memory.max"), "4096\n").unwrap();
        fs::write(root.path().join("a/b/memory.max"), "max\n").unwrap();
        assert_eq!(lowest(root.path(), "/a/b", "memory.max"), Some(4096));
        assert_eq!(lowest(root.path(), "/", "memory.max"), None);
    }
}
