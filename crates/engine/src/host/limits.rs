//! Limits on memory and CPU time that control groups set for this process, in both versions of control groups and in
//! mixtures of them. A group is limited by all groups above it, as far up as the mount shows them.

use std::fs;
use std::path::{Path, PathBuf};

use store::mounts::{self, Mount, unescaped};

/// The limits of all groups that this process is in, directly or indirectly.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Limits {
    pub(super) memory: Vec<MemoryLimit>,
    /// The smallest one.
    pub(super) cpu: Option<CpuLimit>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemoryLimit {
    pub(super) bytes: u64,
    /// What is left of it. Page cache and cached names and attributes of files count as left, because the kernel
    /// reclaims them.
    pub(super) unused: u64,
    /// The folder of the group.
    pub(super) group: PathBuf,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct CpuLimit {
    /// CPU time per wall-clock time.
    pub(super) cores: f64,
    pub(super) group: PathBuf,
}

impl Limits {
    /// The limits of this process. `root` is the root of the file system; tests pass their own.
    pub(super) fn read(root: &Path) -> Limits {
        let text = |path: &str| {
            let bytes = fs::read(root.join(path)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (groups, mounts) = (text("proc/self/cgroup"), text("proc/self/mountinfo"));
        let mounts: Vec<Hierarchy> = mounts::mounts(&mounts).filter_map(Hierarchy::of).collect();
        let levels = |controller: &str| {
            let of_line = |line| folders(root, line, &mounts, controller);
            groups.lines().flat_map(of_line).collect::<Vec<PathBuf>>()
        };
        let cpu = levels("cpu").into_iter().filter_map(cpu_limit);
        Limits {
            memory: levels("memory").into_iter().filter_map(memory_limit).collect(),
            cpu: cpu.min_by(|one, other| one.cores.total_cmp(&other.cores)),
        }
    }
}

/// A mounted hierarchy of groups.
#[derive(Debug)]
struct Hierarchy {
    is_v2: bool,
    /// Mount options in version 1, which name the controllers.
    options: String,
    /// The group that is mounted, and where.
    root: String,
    point: String,
}

impl Hierarchy {
    /// `None` if it is a mount of something else.
    fn of(mount: Mount<'_>) -> Option<Hierarchy> {
        let is_v2 = match mount.file_system {
            "cgroup" => false,
            "cgroup2" => true,
            _ => return None,
        };
        let (root, point) = (unescaped(mount.root), unescaped(mount.point));
        Some(Hierarchy { is_v2, options: mount.options.to_owned(), root, point })
    }

    fn has(&self, is_v2: bool, controller: &str) -> bool {
        self.is_v2 == is_v2 && (is_v2 || self.options.split(',').any(|option| option == controller))
    }

    /// The folder of the group at this path below the mount point, if the mount shows it.
    fn place(&self, group: &str) -> Option<PathBuf> {
        let below = Path::new(group).strip_prefix(&self.root).ok()?;
        // The group is above the root of a control group namespace.
        let is_outside = below.components().any(|part| part == std::path::Component::ParentDir);
        (!is_outside).then(|| Path::new(&self.point).join(below))
    }
}

/// The folders of a group and of all groups above it, from a line of /proc/self/cgroup: `4:cpu,cpuacct:/group`, or
/// `0::/group` in version 2. Some may not exist. Of several mounts, the one that shows most groups is used. In a
/// container, the path may not exist below the mounts; then the mounted group is used.
fn folders(root: &Path, line: &str, mounts: &[Hierarchy], controller: &str) -> Vec<PathBuf> {
    let mut fields = line.splitn(3, ':');
    let (Some(number), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else {
        return Vec::new();
    };
    let is_v2 = number == "0" && controllers.is_empty();
    if !is_v2 && !controllers.split(',').any(|name| name == controller) {
        return Vec::new();
    }
    let fitting = || mounts.iter().filter(|mount| mount.has(is_v2, controller));
    let shown = fitting().filter_map(|mount| Some((mount, mount.place(group)?)));
    let shown = shown.min_by_key(|(mount, _)| mount.root.len());
    let found = shown.or_else(|| fitting().next().map(|mount| (mount, PathBuf::from(&mount.point))));
    let Some((mount, folder)) = found else { return Vec::new() };
    let levels = folder.ancestors().take_while(|level| level.starts_with(&mount.point));
    levels.map(|level| root.join(level.strip_prefix("/").unwrap_or(level))).collect()
}

/// The number in a file of a group; `None` for `max` and for a missing file.
fn number(group: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()
}

/// The memory limit of a group. `memory.high` is not a hard limit, but a process above it is slowed down.
fn memory_limit(group: PathBuf) -> Option<MemoryLimit> {
    let files = ["memory.limit_in_bytes", "memory.max", "memory.high"];
    let bytes = files.iter().filter_map(|file| number(&group, file)).min()?;
    // In version 1 the plain names exclude the groups below.
    let (used, prefix) = match number(&group, "memory.usage_in_bytes") {
        Some(used) => (used, "total_"),
        None => (number(&group, "memory.current").unwrap_or(0), ""),
    };
    let counts = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let reclaimable = ["inactive_file", "active_file", "slab_reclaimable"].map(|name| {
        let line = counts.lines().find_map(|line| line.strip_prefix(prefix)?.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0u64)
    });
    let held = used.saturating_sub(reclaimable.iter().sum());
    Some(MemoryLimit { bytes, unused: bytes.saturating_sub(held), group })
}

/// `cpu.max` holds quota and period in one line; in version 1 they are two files, and -1 means no limit.
fn cpu_limit(group: PathBuf) -> Option<CpuLimit> {
    let (quota, period) = match fs::read_to_string(group.join("cpu.max")) {
        Ok(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.parse().ok()?, period.parse().ok()?)
        }
        Err(_) => (number(&group, "cpu.cfs_quota_us")?, number(&group, "cpu.cfs_period_us")?),
    };
    (quota > 0 && period > 0).then(|| CpuLimit { cores: quota as f64 / period as f64, group })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder tree with these files.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    /// A limit, what is left of it, and the folder of its group.
    type Memory = (u64, u64, String);
    /// A quota in cores, and the folder of its group.
    type Quota = (f64, String);

    fn read(files: &[(&str, &str)]) -> (Vec<Memory>, Option<Quota>) {
        let root = tree(files);
        let limits = Limits::read(root.path());
        let shown = |group: PathBuf| group.strip_prefix(root.path()).unwrap().display().to_string();
        let memory = limits.memory.into_iter().map(|limit| (limit.bytes, limit.unused, shown(limit.group)));
        (memory.collect(), limits.cpu.map(|limit| (limit.cores, shown(limit.group))))
    }

    const V2_MOUNT: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1_MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw shared:1 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";
    const UNLIMITED: &str = "9223372036854771712\n";

    #[test]
    fn version_2_is_limited_at_every_level() {
        let (memory, cpu) = read(&[
            ("proc/self/cgroup", "0::/user.slice/job\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/user.slice/memory.max", "1000000\n"),
            ("sys/fs/cgroup/user.slice/memory.high", "max\n"),
            ("sys/fs/cgroup/user.slice/memory.current", "900000\n"),
            (
                "sys/fs/cgroup/user.slice/memory.stat",
                "anon 100\nfile 9\ninactive_file 300000\nactive_file 100000\n",
            ),
            ("sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/user.slice/job/memory.max", "max\n"),
            ("sys/fs/cgroup/user.slice/job/memory.high", "2000000\n"),
            ("sys/fs/cgroup/user.slice/job/memory.current", "0\n"),
            ("sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n"),
        ]);
        let slice = "sys/fs/cgroup/user.slice".to_owned();
        assert_eq!(
            memory,
            [(2_000_000, 2_000_000, format!("{slice}/job")), (1_000_000, 500_000, slice.clone())]
        );
        assert_eq!(cpu, Some((1.5, slice)));
    }

    #[test]
    fn version_1_beside_an_empty_version_2() {
        let stat = "inactive_file 1\nactive_file 1\ntotal_inactive_file 30\ntotal_active_file 20\n";
        let (memory, cpu) = read(&[
            ("proc/self/cgroup", "9:name=systemd:/\n4:memory:/job/a b\n1:cpu,cpuacct:/job\n0::/\n"),
            ("proc/self/mountinfo", V1_MOUNTS),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED),
            ("sys/fs/cgroup/memory/job/a b/memory.limit_in_bytes", "128\n"),
            ("sys/fs/cgroup/memory/job/a b/memory.usage_in_bytes", "120\n"),
            ("sys/fs/cgroup/memory/job/a b/memory.stat", stat),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"),
        ]);
        let unlimited = 9_223_372_036_854_771_712;
        let group = "sys/fs/cgroup/memory/job/a b".to_owned();
        assert_eq!(memory, [(128, 58, group), (unlimited, unlimited, "sys/fs/cgroup/memory".to_owned())]);
        assert_eq!(cpu, Some((0.5, "sys/fs/cgroup/cpu,cpuacct/job".to_owned())));
    }

    #[test]
    fn containers_find_their_group_at_the_mount_point() {
        let limit = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "64\n");
        let at_the_mount = [(64, 64, "sys/fs/cgroup/memory".to_owned())];
        // The group is mounted; a namespace hides the path; the path is not below the mounted group.
        for (group, mounted) in
            [("/docker/abc", "/docker/abc"), ("/", "/"), ("/../other", "/"), ("/docker/abc", "/kubepods/x")]
        {
            let mount = format!("35 31 0:32 {mounted} /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
            let files = [
                ("proc/self/cgroup", format!("4:memory:{group}\n")),
                ("proc/self/mountinfo", mount),
                (limit.0, limit.1.to_owned()),
            ];
            let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
            assert_eq!(read(&files).0, at_the_mount, "{group} below {mounted}");
        }
    }

    #[test]
    fn the_mount_that_shows_most_groups_is_used() {
        let mounts = "\
30 23 0:26 /a/b /mnt/my\\040group rw - cgroup2 cgroup2 rw
31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
";
        let (memory, _) = read(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("proc/self/mountinfo", mounts),
            ("mnt/my group/memory.max", "5\n"),
            ("sys/fs/cgroup/a/memory.max", "3\n"),
            ("sys/fs/cgroup/a/b/memory.max", "5\n"),
        ]);
        let bytes: Vec<u64> = memory.iter().map(|(bytes, ..)| *bytes).collect();
        assert_eq!(bytes, [5, 3]);
        let (memory, _) = read(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("proc/self/mountinfo", mounts.lines().next().unwrap()),
            ("mnt/my group/memory.max", "5\n"),
        ]);
        assert_eq!(memory, [(5, 5, "mnt/my group".to_owned())]);
    }

    #[test]
    fn an_unreadable_limit_is_no_limit() {
        for files in [
            &[][..],
            &[("proc/self/cgroup", "0::/a\n")],
            &[("proc/self/cgroup", "nonsense\n4:memory\n"), ("proc/self/mountinfo", V1_MOUNTS)],
            &[
                ("proc/self/cgroup", "0::/a (deleted)\n"),
                ("proc/self/mountinfo", V2_MOUNT),
                ("sys/fs/cgroup/memory.max", "soon\n"),
                ("sys/fs/cgroup/cpu.max", "max\n"),
            ],
        ] {
            assert_eq!(read(files), (Vec::new(), None), "{files:?}");
        }
    }
}
