//! Files of /proc about one process, as numbers.

use std::fs;

use model::secret::redact_command;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// A clock tick in `stat`: 100 per second on every Linux.
const TICK_NS: u64 = 10_000_000;

/// From `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) state: u8,
    pub(super) parent: u32,
    pub(super) threads: u64,
    pub(super) cpu_ns: u64,
    /// When it started. With its number, it identifies a process.
    pub(super) started: u64,
    /// The signal that ended it; known while the process is not reaped.
    pub(super) signal: Option<i32>,
}

impl Stat {
    pub(super) fn is_dead(&self) -> bool {
        [b'Z', b'X', b'x'].contains(&self.state)
    }
}

/// Whether there is a process with this number, whatever can be read about it.
pub(super) fn exists(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    test_kill_process(pid) != Err(Errno::SRCH)
}

/// `None`: there is no such process, or nothing can be read about it.
pub(super) fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    // The name of the program is in parentheses, and can contain anything.
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Fields are counted from 1 in proc(5), and the first one here is number 3.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let status = number(52).unwrap_or(0);
    let state = *fields.first()?.as_bytes().first()?;
    let signal = i32::try_from(status & 0x7f).ok().filter(|signal| *signal != 0);
    Some(Stat {
        state,
        parent: u32::try_from(number(4)?).ok()?,
        threads: number(20)?,
        cpu_ns: (number(14)? + number(15)?).saturating_mul(TICK_NS),
        started: number(22)?,
        signal: signal.filter(|_| [b'Z', b'X', b'x'].contains(&state)),
    })
}

/// From `/proc/PID/io`: bytes that calls returned, and bytes read from devices. Both include those of children that
/// the process has waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IoBytes {
    pub(super) copied: u64,
    pub(super) issued: u64,
}

pub(super) fn io(pid: u32) -> Option<IoBytes> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    Some(IoBytes { copied: field(&text, "rchar:")?, issued: field(&text, "read_bytes:")? })
}

/// Seccomp filters that a process is under. `None`: the kernel does not say so (before Linux 5.9).
pub(super) fn seccomp_filters(pid: u32) -> Option<u32> {
    filters_in(&format!("/proc/{pid}/status"))
}

/// Those of this thread, which the job inherits.
pub(super) fn own_seccomp_filters() -> Option<u32> {
    filters_in("/proc/thread-self/status")
}

fn filters_in(path: &str) -> Option<u32> {
    let text = fs::read_to_string(path).ok()?;
    u32::try_from(field(&text, "Seccomp_filters:")?).ok()
}

/// The number after a name at the beginning of a line.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// Time on a CPU and on a run queue, of one thread.
fn schedstat(path: &str) -> Option<(u64, u64)> {
    let text = fs::read_to_string(path).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Time on CPUs and on run queues, of all threads that exist.
pub(super) fn scheduled(pid: u32, threads: u64) -> Option<(u64, u64)> {
    if threads <= 1 {
        return schedstat(&format!("/proc/{pid}/schedstat"));
    }
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let each = tasks.filter_map(|task| schedstat(task.path().join("schedstat").to_str()?));
    Some(each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)))
}

/// `Private_Dirty` and `Shared_Dirty` in bytes.
pub(super) fn dirty(pid: u32) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    Some((field(&text, "Private_Dirty:")? << 10, field(&text, "Shared_Dirty:")? << 10))
}

/// Bytes mapped and bytes resident of the mappings of files for which `is_data` is true of the inode number.
pub(super) fn mapped(pid: u32, is_data: impl Fn(u64) -> bool) -> Option<(u64, u64)> {
    Some(parse_smaps(&fs::read_to_string(format!("/proc/{pid}/smaps")).ok()?, is_data))
}

fn parse_smaps(text: &str, is_data: impl Fn(u64) -> bool) -> (u64, u64) {
    let mut sum = (0, 0);
    let mut counts = false;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { continue };
        if !first.ends_with(':') {
            // Address, permissions, offset, device, inode, path.
            let is_code = words.next().is_some_and(|permissions| permissions.contains('x'));
            let inode = words.nth(2).and_then(|number| number.parse().ok()).filter(|inode| *inode != 0);
            counts = !is_code && inode.is_some_and(&is_data);
        } else if counts && (first == "Size:" || first == "Rss:") {
            let bytes = words.next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) << 10;
            if first == "Size:" { sum.0 += bytes } else { sum.1 += bytes }
        }
    }
    sum
}

/// The command line, with spaces between arguments.
pub(super) fn command(pid: u32) -> String {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = shown_command(&String::from_utf8_lossy(&text));
    if !text.is_empty() {
        return text;
    }
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// Words that end with NUL as one line, without secrets.
pub(super) fn shown_command(words: &str) -> String {
    redact_command(words.trim_end_matches('\0').split('\0')).join(" ")
}

/// Numbers of all processes.
pub(super) fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_described() {
        let pid = std::process::id();
        let stat = stat(pid).unwrap();
        assert!(!stat.is_dead() && stat.threads >= 1 && stat.started > 0, "{stat:?}");
        assert_eq!(stat.signal, None);
        assert!(io(pid).unwrap().copied > 0);
        assert!(scheduled(pid, stat.threads).unwrap().0 > 0);
        assert!(dirty(pid).unwrap().0 > 0);
        assert!(processes().contains(&pid));
        assert!(command(pid).contains("feedline_audit"));
        assert!(exists(pid) && exists(1) && !exists(u32::MAX) && !exists(i32::MAX as u32));
    }

    #[test]
    fn a_name_with_parentheses_is_no_field() {
        let mut fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        fields[0] = "77".to_owned();
        fields[48] = "9".to_owned();
        let text = format!("5 (a ) R 1 (b) Z {}", fields.join(" "));
        let stat = parse_stat(text.as_bytes()).unwrap();
        let expected =
            Stat { state: b'Z', parent: 77, threads: 20, cpu_ns: 290_000_000, started: 22, signal: Some(9) };
        assert_eq!(stat, expected);
        assert_eq!(parse_stat(b"5 (a) R"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn mappings_of_data_files_are_summed() {
        let text = "\
7f00-7f01 r--s 00000000 08:01 42                         /data/a b.bin
Size:                 64 kB
Rss:                  12 kB
7f02-7f03 r-xp 00000000 08:01 42                         /data/a b.bin
Size:                 64 kB
Rss:                  12 kB
7f04-7f05 rw-p 00000000 00:00 0
Size:                 64 kB
Rss:                  64 kB
";
        assert_eq!(parse_smaps(text, |inode| inode == 42), (64 << 10, 12 << 10));
        assert_eq!(parse_smaps(text, |_| false), (0, 0));
    }
}
