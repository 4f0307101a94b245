//! Page faults of the job in mappings of data files, as the kernel's perf events give them: with process, time and
//! address. No privileges are needed where `kernel.perf_event_paranoid` is 2 or less.
//!
//! Each CPU has one ring. Major faults are recorded from the start of the job on; minor faults while there are mappings
//! of data files, and only so many that the job does not become slower (see [`governor`]).

mod counter;
mod governor;
mod mappings;
mod ring;

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::io;

use self::counter::{FaultEvent, PageFaultKind};
use self::governor::{Governor, Switch};
use self::mappings::Mappings;
use self::ring::{FaultRecord, FaultRing};
use super::clock;
use crate::event::{MissedFaults, PageFault, ProcessIndex, ProcessStart, SeenCall};

/// Bytes of all rings. The limit of an unprivileged user is 516 KiB per CPU, unless it was changed.
const RINGS_BYTES: usize = 32 << 20;
const LARGEST_RING_BYTES: usize = 512 << 10;
const SMALLEST_RING_BYTES: usize = 16 << 10;
/// Faults that wait for their turn.
const PENDING: usize = 512 << 10;
/// Each thread of a job has its own copy of each event, of about 1.3 kB of the kernel's memory.
const MOST_EVENTS: u64 = 200_000;

/// The events of one CPU.
#[derive(Debug)]
struct CpuFaults {
    major: FaultEvent,
    minor: FaultEvent,
    ring: FaultRing,
}

/// A fault of any process of the job.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// From the start of the job.
    at_ns: u64,
    pid: u32,
    tid: u32,
    address: u64,
    is_major: bool,
}

/// The events of all CPUs, or why there are none.
#[derive(Debug)]
pub(super) struct FaultEvents(Result<Vec<CpuFaults>, String>);

impl FaultEvents {
    /// Opens them for what this thread starts from now on.
    pub(super) fn open() -> FaultEvents {
        let all = || {
            // An unprivileged user may see faults of programs only.
            let first = open_all(false);
            let refused = first.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
            if refused { open_all(true) } else { first }
        };
        FaultEvents(all().map_err(|error| reason(&error)))
    }
}

fn open_all(user_only: bool) -> io::Result<Vec<CpuFaults>> {
    let cpus = online_cpus(&fs::read_to_string("/sys/devices/system/cpu/online")?);
    let share = RINGS_BYTES / cpus.len().max(1);
    let largest = (share / 2 + 1).next_power_of_two().clamp(smallest_ring(), LARGEST_RING_BYTES);
    let mut all = Vec::with_capacity(cpus.len());
    for cpu in cpus {
        match open_cpu(cpu, largest, user_only) {
            Ok(events) => all.push(events),
            // The CPU went offline.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            Err(error) => return Err(error),
        }
    }
    if all.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(all) }
}

fn open_cpu(cpu: u32, largest: usize, user_only: bool) -> io::Result<CpuFaults> {
    let major = FaultEvent::open(PageFaultKind::Major, cpu, user_only)?;
    let minor = FaultEvent::open(PageFaultKind::Minor, cpu, user_only)?;
    let mut bytes = largest;
    let ring = loop {
        match FaultRing::new(&major.file, bytes) {
            Ok(ring) => break ring,
            // Other programs of the user may have used up the memory for rings.
            Err(_) if bytes > smallest_ring() => bytes /= 2,
            Err(error) => return Err(error),
        }
    };
    minor.share_ring(&major)?;
    Ok(CpuFaults { major, minor, ring })
}

fn smallest_ring() -> usize {
    SMALLEST_RING_BYTES.max(rustix::param::page_size())
}

/// Numbers of CPUs in a list such as `0-3,8`.
fn online_cpus(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

fn reason(error: &io::Error) -> String {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            format!("not permitted (kernel.perf_event_paranoid is {})", paranoid.trim())
        }
        Some(libc::ENOSYS) => "the kernel has no perf events".to_owned(),
        _ => error.to_string(),
    }
}

/// The faults of a job.
#[derive(Debug)]
pub(super) struct Faults {
    events: FaultEvents,
    /// Whether they could be opened.
    observed: bool,
    page: u64,
    /// In order of time.
    pending: VecDeque<Pending>,
    mappings: Mappings,
    governor: Governor,
    lost: u64,
}

impl Faults {
    pub(super) fn new(events: FaultEvents) -> Faults {
        Faults {
            observed: events.0.is_ok(),
            events,
            page: rustix::param::page_size() as u64,
            pending: VecDeque::new(),
            mappings: Mappings::default(),
            governor: Governor::default(),
            lost: 0,
        }
    }

    /// Whether faults were recorded, at least at first.
    pub(super) fn observed(&self) -> bool {
        self.observed
    }

    /// Whether faults are recorded; if not, why.
    pub(super) fn state(&self) -> Result<(), &str> {
        self.events.0.as_ref().map(|_| ()).map_err(String::as_str)
    }

    /// Takes what the kernel recorded. `origin`: the start of the job, of the clock.
    pub(super) fn read(&mut self, origin: u64) {
        let Ok(cpus) = &mut self.events.0 else { return };
        let before = self.pending.len();
        for (number, cpu) in cpus.iter_mut().enumerate() {
            let (pending, lost, major) = (&mut self.pending, &mut self.lost, cpu.major.number);
            let mut minor = 0;
            cpu.ring.take(|record| match record {
                FaultRecord::Lost(count) => {
                    *lost += count;
                    minor += count;
                }
                FaultRecord::Fault(fault) => {
                    let is_major = fault.event == major;
                    minor += u64::from(!is_major);
                    let Some(at_ns) = fault.at_ns.checked_sub(origin) else { return };
                    if pending.len() >= PENDING {
                        *lost += 1;
                        return;
                    }
                    let (pid, tid, address) = (fault.pid, fault.tid, fault.address);
                    pending.push_back(Pending { at_ns, pid, tid, address, is_major });
                }
            });
            self.governor.counted(number, minor);
        }
        if self.pending.len() > before {
            // Runs in order of time, which a stable sort merges.
            self.pending.make_contiguous().sort_by_key(|fault| fault.at_ns);
        }
    }

    /// Switches the recording of minor faults. `mapped_ns`: since when there are mappings of data files, of the clock.
    /// Returns what was missed since the last call.
    pub(super) fn govern(&mut self, mapped_ns: Option<u64>, now: u64) -> MissedFaults {
        let blind_ns = self.governor.blind_ns(mapped_ns, now);
        if let Ok(cpus) = &self.events.0
            && let Some(to) = self.governor.decide(mapped_ns.is_some(), now)
        {
            for cpu in cpus {
                // It only fails for an event that is gone.
                let _ = cpu.minor.switch(to == Switch::On);
            }
            self.governor.switched(to, now, clock::now());
        }
        MissedFaults { lost: std::mem::take(&mut self.lost), blind_ns }
    }

    /// Ends the recording if the job has so many threads that their events take too much memory of the kernel.
    pub(super) fn limit(&mut self, threads: u64) {
        let cpus = self.events.0.as_ref().map_or(0, Vec::len) as u64;
        if threads.saturating_mul(2 * cpus) > MOST_EVENTS {
            self.events.0 = Err(format!("the job has {threads} threads, which is too many on {cpus} CPUs"));
            self.governor = Governor::default();
        }
    }

    pub(super) fn start(&mut self, index: ProcessIndex, start: &ProcessStart) {
        self.mappings.start(index, start);
    }

    pub(super) fn end(&mut self, index: ProcessIndex, pid: u32) {
        self.mappings.end(index, pid);
    }

    pub(super) fn call(&mut self, pid: u32, call: &SeenCall) {
        self.mappings.call(pid, call);
    }

    /// When the next fault happened.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.pending.front().map(|fault| fault.at_ns)
    }

    /// Takes the next fault: its place, if it concerns a data file.
    pub(super) fn take(&mut self) -> Option<(ProcessIndex, PageFault)> {
        let Pending { at_ns, pid, tid, address, is_major } = self.pending.pop_front()?;
        let (index, place) = self.mappings.find(pid, address, self.page)?;
        Some((index, PageFault { at_ns, tid, is_major, ..place }))
    }

    /// Processes that have faults which wait for their turn.
    pub(super) fn waiting(&self) -> HashSet<u32> {
        self.pending.iter().map(|fault| fault.pid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(online_cpus("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(online_cpus("0\n"), [0]);
        assert!(online_cpus("").is_empty());
    }

    #[test]
    fn too_many_threads_end_the_recording() {
        let mut faults = Faults::new(FaultEvents(Ok(Vec::new())));
        faults.limit(u64::MAX);
        assert_eq!(faults.state(), Ok(()), "without CPUs there are no events");
        let cpus = FaultEvents::open();
        let Ok(count) = cpus.0.as_ref().map(Vec::len) else { return };
        let mut faults = Faults::new(cpus);
        faults.limit(MOST_EVENTS / 2 / count as u64);
        assert_eq!(faults.state(), Ok(()));
        faults.limit(MOST_EVENTS / 2 / count as u64 + 1);
        assert!(faults.state().unwrap_err().contains("threads"), "{faults:?}");
        assert!(faults.observed());
    }
}
