//! Reads the kernel's own counts of the job's processes and of the devices, ten times per second and at the borders
//! of epochs, in a thread of its own. It takes no more than about a tenth of a CPU.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::observed::UnseenProcess;

use super::proc::{self, IoBytes};
use super::tree::Tree;
use super::unseen;
use super::{clock, host};
use crate::event::{ProcessIndex, ProcessSample, Sample};

const INTERVAL_NS: u64 = 100_000_000;
/// The least time between two samples.
const LEAST_NS: u64 = 5_000_000;
/// Between the first two readings of the memory of a process; each further interval is twice as long, up to the most.
const FIRST_MEMORY_INTERVAL_NS: u64 = 100_000_000;
const MOST_MEMORY_INTERVAL_NS: u64 = 1_000_000_000;
/// What takes some CPU time is not repeated before this multiple of it has passed.
const PAUSE: u64 = 20;
/// The same of what is read at borders of epochs: they are rarer, and between them it would say less.
const BORDER_PAUSE: u64 = 5;
/// The time in which the thread must end.
const STOP: Duration = Duration::from_secs(5);
/// With more threads, times on run queues are read as often as memory.
const THREADS: u64 = 4;
/// Scans after which a process without a slot counts as not observed.
const SCANS_UNSEEN: u64 = 3;

/// A process to sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampledProcess {
    pub(super) index: ProcessIndex,
    pub(super) pid: u32,
    /// Whether it has mapped data files, or inherited such mappings.
    pub(super) maps: bool,
}

/// What to look at.
#[derive(Debug, Default)]
pub(super) struct Watch {
    pub(super) processes: Vec<SampledProcess>,
    /// Devices of data files.
    pub(super) devices: BTreeSet<u32>,
    /// Inodes of data files that were mapped.
    pub(super) mapped: HashSet<u64>,
    /// Processes that have or had a slot.
    pub(super) slots: HashSet<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SampleRequest {
    sample: bool,
    stop: bool,
}

#[derive(Debug, Default)]
struct Shared {
    watch: Mutex<Watch>,
    request: Mutex<SampleRequest>,
    requested: Condvar,
    /// Counts of the children of this process that ended. Held while counts are read, so that none counts twice.
    reaped: Mutex<IoBytes>,
}

/// Nothing is left half-done in the data behind these locks.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known at the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Sampled {
    pub(super) io: Option<IoBytes>,
    pub(super) unseen: Vec<UnseenProcess>,
    /// Processes that still ran, with their commands.
    pub(super) running: Vec<(u32, String)>,
    /// Whether resident bytes of mappings were read.
    pub(super) mappings: bool,
    pub(super) shm_used_bytes: Option<u64>,
    pub(super) refault_bytes: Option<u64>,
}

/// The thread, seen from outside.
#[derive(Debug)]
pub(super) struct Sampler {
    shared: Arc<Shared>,
    samples: Receiver<Sample>,
    sampled: Receiver<Sampled>,
}

impl Sampler {
    /// Starts it. Counts of devices begin here.
    pub(super) fn start(origin: u64) -> Sampler {
        let shared = Arc::new(Shared::default());
        let (sender, samples) = channel();
        let (at_end, sampled) = channel();
        let mut worker = SamplerThread::new(origin, Arc::clone(&shared));
        std::thread::spawn(move || {
            // The receiver is gone if this took too long.
            let _ = at_end.send(worker.run(&sender));
        });
        Sampler { shared, samples, sampled }
    }

    pub(super) fn watch(&self) -> MutexGuard<'_, Watch> {
        locked(&self.shared.watch)
    }

    /// Counts of ended children, to add to before the process is waited for and its counts vanish.
    pub(super) fn reaped(&self) -> MutexGuard<'_, IoBytes> {
        locked(&self.shared.reaped)
    }

    /// Asks for a sample now.
    pub(super) fn request(&self) {
        locked(&self.shared.request).sample = true;
        self.shared.requested.notify_one();
    }

    /// Samples that were taken.
    pub(super) fn taken(&self) -> impl Iterator<Item = Sample> {
        self.samples.try_iter()
    }

    /// Takes a last sample, and ends. Returns the samples that were not taken. The thread is left behind if it does not
    /// end: the kernel does not return from files of /proc about a process that hangs in the kernel itself.
    pub(super) fn stop(self) -> (Vec<Sample>, Sampled) {
        locked(&self.shared.request).stop = true;
        self.shared.requested.notify_one();
        // Nothing is received after a panic of the thread, which must not end the audit either.
        let sampled = self.sampled.recv_timeout(STOP).unwrap_or_default();
        (self.samples.try_iter().collect(), sampled)
    }
}

/// What is remembered of a process between samples.
#[derive(Clone, Copy, Debug, Default)]
struct Remembered {
    cpu_ns: u64,
    run_queue_ns: u64,
    next_memory_ns: u64,
    memory_interval_ns: u64,
    memory: Option<(u64, u64)>,
    mapped: Option<(u64, u64)>,
}

struct SamplerThread {
    origin: u64,
    shared: Arc<Shared>,
    tree: Tree,
    remembered: HashMap<ProcessIndex, Remembered>,
    devices_before: BTreeMap<u32, u64>,
    refaults_before: Option<u64>,
    /// Costly files are not read before.
    pause_until_ns: u64,
    next_border_ns: u64,
    inspected: HashSet<u32>,
    sampled: Sampled,
}

impl SamplerThread {
    fn new(origin: u64, shared: Arc<Shared>) -> SamplerThread {
        SamplerThread {
            origin,
            shared,
            tree: Tree::new(std::process::id()),
            remembered: HashMap::new(),
            devices_before: host::device_bytes(),
            refaults_before: host::refault_bytes(),
            pause_until_ns: 0,
            next_border_ns: 0,
            inspected: HashSet::new(),
            sampled: Sampled::default(),
        }
    }

    fn run(&mut self, samples: &Sender<Sample>) -> Sampled {
        let mut wait_ns = LEAST_NS;
        loop {
            let request = self.wait(wait_ns);
            let begin = clock::thread_cpu();
            let sample = self.sample(request.sample);
            let took = clock::thread_cpu().saturating_sub(begin);
            wait_ns = INTERVAL_NS.max(took.saturating_mul(PAUSE));
            // The receiver is gone if the job could not be started.
            let _ = samples.send(sample);
            if request.stop {
                self.sampled.running = self.running();
                return std::mem::take(&mut self.sampled);
            }
            std::thread::sleep(Duration::from_nanos(LEAST_NS));
        }
    }

    /// Waits until a sample is due, and says what was asked for.
    fn wait(&self, time_ns: u64) -> SampleRequest {
        let guard = locked(&self.shared.request);
        let limit = Duration::from_nanos(time_ns);
        let idle = |request: &mut SampleRequest| !request.sample && !request.stop;
        let waited = self.shared.requested.wait_timeout_while(guard, limit, idle);
        let mut guard = waited.unwrap_or_else(PoisonError::into_inner).0;
        let request = *guard;
        guard.sample = false;
        request
    }

    fn running(&self) -> Vec<(u32, String)> {
        let living = self.tree.members().iter().filter(|(_, member)| !member.stat.is_dead());
        living.map(|(pid, _)| (*pid, proc::command(*pid))).collect()
    }

    /// `at_border`: of an epoch. What is resident in mappings is read then, so that it is known of short epochs, too.
    fn sample(&mut self, at_border: bool) -> Sample {
        let (processes, devices, mapped) = {
            let watch = locked(&self.shared.watch);
            (watch.processes.clone(), watch.devices.clone(), watch.mapped.clone())
        };
        let is_asked = at_border && clock::now() >= self.next_border_ns;
        let begin = clock::thread_cpu();
        for process in &processes {
            self.read_memory(process, &mapped, is_asked && process.maps);
        }
        if is_asked {
            let took = clock::thread_cpu().saturating_sub(begin);
            self.next_border_ns = clock::now() + took.saturating_mul(BORDER_PAUSE);
        }
        let known: HashSet<ProcessIndex> = processes.iter().map(|process| process.index).collect();
        self.remembered.retain(|index, _| known.contains(index));
        self.tree.scan();
        // The counts belong to this time, so nothing slow comes between it and them.
        let at_ns = clock::now().saturating_sub(self.origin);
        let io = {
            let reaped = locked(&self.shared.reaped);
            self.tree.read(*reaped, proc::io)
        };
        self.sampled.io = io;
        let shm_used_bytes = host::shm().map(|(_, used)| used);
        let refaults = host::refault_bytes().zip(self.refaults_before);
        let refault_bytes = refaults.map(|(now, before)| now.saturating_sub(before));
        self.sampled.shm_used_bytes = self.sampled.shm_used_bytes.max(shm_used_bytes);
        self.sampled.refault_bytes = refault_bytes;
        let sample = Sample {
            at_ns,
            processes: processes.iter().filter_map(|process| self.process(process)).collect(),
            issued_bytes: io.map(|io| io.issued),
            devices: self.devices(&devices),
            shm_used_bytes,
            refault_bytes,
        };
        self.find_unseen();
        sample
    }

    /// Reads what walks page tables, if it is time.
    fn read_memory(&mut self, process: &SampledProcess, mapped: &HashSet<u64>, is_asked: bool) {
        let now = clock::now();
        let remembered = self.remembered.entry(process.index).or_default();
        if !is_asked && now < remembered.next_memory_ns.max(self.pause_until_ns) {
            return;
        }
        let begin = clock::thread_cpu();
        remembered.memory = proc::dirty(process.pid);
        if process.maps {
            remembered.mapped = proc::mapped(process.pid, |inode| mapped.contains(&inode));
            self.sampled.mappings |= remembered.mapped.is_some();
        }
        if let Some(stat) = proc::stat(process.pid).filter(|stat| stat.threads > THREADS) {
            add_scheduled(remembered, process.pid, stat.threads);
        }
        let interval = (2 * remembered.memory_interval_ns).max(FIRST_MEMORY_INTERVAL_NS);
        remembered.memory_interval_ns = interval.min(MOST_MEMORY_INTERVAL_NS);
        remembered.next_memory_ns = now + remembered.memory_interval_ns;
        let took = clock::thread_cpu().saturating_sub(begin);
        self.pause_until_ns = clock::now() + took.saturating_mul(PAUSE);
    }

    fn process(&mut self, process: &SampledProcess) -> Option<ProcessSample> {
        let stat = proc::stat(process.pid).filter(|stat| !stat.is_dead())?;
        let remembered = self.remembered.entry(process.index).or_default();
        if stat.threads <= THREADS {
            add_scheduled(remembered, process.pid, stat.threads);
        }
        // The first counts all threads, the second also those that ended, in larger steps.
        remembered.cpu_ns = remembered.cpu_ns.max(stat.cpu_ns);
        Some(ProcessSample {
            process: process.index,
            threads: stat.threads,
            cpu_ns: remembered.cpu_ns,
            run_queue_ns: remembered.run_queue_ns,
            memory: remembered.memory.take(),
            mapped: remembered.mapped.take(),
        })
    }

    fn devices(&self, wanted: &BTreeSet<u32>) -> Vec<(u32, u64)> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let since = |(device, bytes): (u32, u64)| {
            let before = self.devices_before.get(&device).copied().unwrap_or(0);
            (device, bytes.saturating_sub(before))
        };
        let all = host::device_bytes().into_iter();
        all.filter(|(device, _)| wanted.contains(device)).map(since).collect()
    }

    /// Finds out about processes of the job that have no slot.
    fn find_unseen(&mut self) {
        let has_slot = {
            // Released before files of a process are read: the kernel may not return from one that hangs.
            let watch = locked(&self.shared.watch);
            let members = self.tree.members().keys().copied();
            members.filter(|pid| watch.slots.contains(pid)).collect::<HashSet<u32>>()
        };
        for (pid, member) in self.tree.members() {
            let is_due = member.scans >= SCANS_UNSEEN && !member.stat.is_dead();
            if !is_due || has_slot.contains(pid) {
                continue;
            }
            if !self.inspected.insert(*pid) {
                let known = self.sampled.unseen.iter_mut().find(|process| process.pid == *pid);
                if let (Some(known), Some(io)) = (known, member.io) {
                    known.read_bytes = Some(io.copied);
                }
                continue;
            }
            if let Some(reason) = unseen::reason_of_process(*pid, member.parent) {
                let read_bytes = member.io.map(|io| io.copied);
                let process = UnseenProcess { pid: *pid, command: proc::command(*pid), reason, read_bytes };
                self.sampled.unseen.push(process);
            }
        }
    }
}

/// Times of threads that ended are missing in what the kernel says, so that the largest values count.
fn add_scheduled(remembered: &mut Remembered, pid: u32, threads: u64) {
    if let Some((cpu_ns, run_queue_ns)) = proc::scheduled(pid, threads) {
        remembered.cpu_ns = remembered.cpu_ns.max(cpu_ns);
        remembered.run_queue_ns = remembered.run_queue_ns.max(run_queue_ns);
    }
}
