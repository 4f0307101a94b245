//! Page faults of jobs that map files. What the kernel guarantees: the first touch of a page by a process is one fault,
//! unless an earlier fault has mapped the page as well, which it can do within an aligned block of 2 MiB.

use super::*;

const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 256 * MIB;
/// Far enough apart for one fault each.
const APART: u64 = 4 * MIB;

/// What the jobs have in common: the file in memory and mapped, and time for feedline to notice that.
const MAPPED: &str = "\
import mmap, os, random, subprocess, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY)
def mapped():
    mapping = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    time.sleep(0.3)
    return mapping
def touch(mapping, seed):
    order = list(range(4096, len(mapping), 4 << 20))
    random.Random(seed).shuffle(order)
    for at in order:
        mapping[at]
    print(*order, file=open(sys.argv[1] + f'.{seed}', 'w'))
";

/// A file in the page cache.
struct MappedData {
    folder: tempfile::TempDir,
}

impl MappedData {
    fn new() -> MappedData {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("data"), vec![7; FILE_BYTES as usize]).unwrap();
        MappedData { folder }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    /// Observes a job that ends well.
    fn observe(&self, code: &str) -> (JobEnd, Collected) {
        let (outcome, seen) = python(&format!("{MAPPED}{code}"), self.path().to_str().unwrap());
        assert_eq!(outcome.exit.code, Some(0));
        (outcome, seen)
    }

    /// The order in which a process says that it touched the file.
    fn touched(&self, seed: u32) -> Vec<u64> {
        let text = std::fs::read_to_string(self.folder.path().join(format!("data.{seed}"))).unwrap();
        let all: Vec<u64> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
        assert_eq!(all.len() as u64, FILE_BYTES / APART);
        all
    }
}

/// Offsets of the faults in a file, by process in order of their start.
fn offsets(seen: &Collected, path: &Path) -> Vec<Vec<u64>> {
    let inode = std::os::unix::fs::MetadataExt::ino(&path.metadata().unwrap());
    let mut all = std::collections::BTreeMap::<ProcessIndex, Vec<u64>>::new();
    for (process, fault) in seen.faults.iter().filter(|(_, fault)| fault.file == inode) {
        all.entry(*process).or_default().push(fault.offset);
    }
    all.into_values().collect()
}

/// Whether this kernel lets this user record page faults; the jobs are as in this test then.
fn is_recorded(outcome: &JobEnd) -> bool {
    let recorded = outcome.faults.as_deref() == Some("perf");
    assert!(recorded || !outcome.notes.is_empty(), "{outcome:?}");
    recorded
}

#[test]
fn random_touches_are_faults_at_their_places() {
    let data = MappedData::new();
    let (outcome, seen) = data.observe("touch(mapped(), 1)");
    if is_recorded(&outcome) {
        assert_eq!(offsets(&seen, &data.path()), [data.touched(1)]);
        assert_eq!(seen.missed.iter().map(|missed| missed.lost).sum::<u64>(), 0);
    }
}

#[test]
fn touches_in_order_are_few_faults_in_sequence() {
    let data = MappedData::new();
    let (outcome, seen) =
        data.observe("mapping = mapped()\nfor at in range(0, len(mapping), 4096): mapping[at]");
    if !is_recorded(&outcome) {
        return;
    }
    let [all] = &offsets(&seen, &data.path())[..] else { panic!("{:?}", seen.faults) };
    assert!(all.is_sorted() && all[0] == 0, "{all:?}");
    assert!(all.windows(2).all(|two| two[1] - two[0] <= 2 * MIB), "{all:?}");
    // One for each 64 KiB at most, apart from pages with which read-ahead goes on.
    let most = FILE_BYTES / (64 << 10) * 5 / 4;
    assert!((FILE_BYTES / (2 * MIB)..=most).contains(&(all.len() as u64)), "{}", all.len());
}

#[test]
fn forked_and_spawned_processes_have_their_own_faults() {
    let data = MappedData::new();
    let code = "
mapping = mapped()
if os.fork() == 0:
    touch(mapping, 1)
    os._exit(0)
os.wait()
if os.fork() == 0:
    mapping = None
    touch(mapped(), 2)
    os.kill(os.getpid(), 9)
os.wait()
again = 'import sys; sys.argv[1:] = sys.argv[2:]; exec(sys.stdin.read()); touch(mapped(), 3)'
text = open('/proc/self/cmdline').read().split('\\0')[2].split('mapping = mapped()')[0]
subprocess.run([sys.executable, '-c', again, '', sys.argv[1]], input=text, text=True, check=True)
mapping.close()
os.execv(sys.executable, [sys.executable, '-c', text + 'touch(mapped(), 4)', sys.argv[1]])
";
    let (outcome, seen) = data.observe(code);
    if is_recorded(&outcome) {
        let expected: Vec<Vec<u64>> = (1..=4).map(|seed| data.touched(seed)).collect();
        assert_eq!(offsets(&seen, &data.path()), expected);
    }
}

#[test]
fn faults_of_threads_and_of_memory_are_told_apart() {
    let data = MappedData::new();
    let code = "
import threading
mapping = mapped()
end = time.monotonic() + 1
def own():
    while time.monotonic() < end:
        memory = mmap.mmap(-1, 8 << 20)
        for at in range(0, len(memory), 4096): memory[at] = 1
        memory.close()
thread = threading.Thread(target=own)
thread.start()
touch(mapping, 1)
thread.join()
";
    let (outcome, seen) = data.observe(code);
    if is_recorded(&outcome) {
        // Of a storm of faults, a part is recorded.
        let [found] = &offsets(&seen, &data.path())[..] else { panic!("{:?}", seen.faults) };
        let touched = data.touched(1);
        assert!(found.iter().all(|offset| touched.contains(offset)), "{found:?}");
    }
}

#[test]
fn jobs_without_mappings_are_not_disturbed() {
    let (outcome, seen) = python("bytearray(64 << 20)", "");
    assert_eq!((outcome.faults, seen.faults.len()), (None, 0));
    assert!(seen.missed.iter().all(|missed| missed.blind_ns == 0));
}

/// Forbids `perf_event_open` to this thread and everything that it starts, as container profiles do.
fn forbid() {
    let refuse = 0x0005_0000 | libc::EPERM as u32;
    let statement = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let call = u32::try_from(libc::SYS_perf_event_open).unwrap();
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, refuse),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, 0x7fff_0000),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the filter is valid for the call, and concerns this thread only.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

#[test]
fn without_perf_events_resident_bytes_are_known_and_the_reason_is_named() {
    let data = MappedData::new();
    let observe = || {
        forbid();
        data.observe("mapping = mapped()\ntouch(mapping, 1)\ntime.sleep(1.2)")
    };
    let (outcome, seen) = std::thread::scope(|scope| scope.spawn(observe).join()).unwrap();
    assert_eq!(outcome.faults.as_deref(), Some("rss"));
    let [note] = &outcome.notes[..] else { panic!("{:?}", outcome.notes) };
    assert!(note.contains("not permitted (kernel.perf_event_paranoid is "), "{note}");
    assert_eq!((seen.faults.len(), seen.missed.len()), (0, 0));
    let mapped = seen.samples.iter().flat_map(|sample| &sample.processes).filter_map(|one| one.mapped);
    let (bytes, resident) = mapped.max().unwrap();
    assert_eq!(bytes, FILE_BYTES);
    assert!(resident >= FILE_BYTES / APART * 4096, "{resident}");
}
