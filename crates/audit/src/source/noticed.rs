//! What events say about where else to look: devices, mapped files, programs that processes execute, borders of
//! epochs.

use std::collections::{BTreeSet, HashMap, HashSet};

use model::observed::UnseenProcess;

use super::memory::SlotStart;
use super::sampler::{SampledProcess, Watch};
use super::unseen;
use crate::event::SeenCall;
use crate::layout::{Mark, Op};

/// Mapped files and programs that are remembered at most.
const MAPPED: usize = 65_536;
const PROGRAMS: usize = 1024;
/// Why a program was not observed that could have been.
const NO_TRACE: &str = "it left no trace: it ended at once, or has no access to feedline";
/// A program can leave its first trace before the call of its parent that started it has returned: by this at most.
const SPAWN_NS: u64 = 1_000_000_000;

/// A program that a process executed, without a trace of it yet.
#[derive(Clone, Debug)]
struct Executed {
    pid: u32,
    /// When its first trace can be expected.
    from_ns: u64,
    path: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Noticed {
    devices: BTreeSet<u32>,
    last_device: u32,
    mapped: HashSet<u64>,
    /// When a data file was mapped first.
    mapped_ns: Option<u64>,
    epoch: bool,
    programs: Vec<Executed>,
    /// By process: when its last image that was observed started.
    images: HashMap<u32, u64>,
    slots: HashSet<u32>,
    is_changed: bool,
}

impl Noticed {
    /// An event. Returns whether it maps a data file.
    pub(super) fn event(&mut self, event: &SeenCall) -> bool {
        if event.op == Op::Mark {
            self.epoch |= [Mark::EpochBegin as u8, Mark::EpochEnd as u8].contains(&event.kind);
        }
        if !event.is_data() {
            return false;
        }
        if event.device != self.last_device {
            self.last_device = event.device;
            self.is_changed |= self.devices.insert(event.device);
        }
        let maps = event.op == Op::Map && event.result >= 0;
        if maps {
            self.mapped_ns.get_or_insert(event.end_ns());
        }
        if maps && self.mapped.len() < MAPPED {
            self.is_changed |= self.mapped.insert(event.file);
        }
        maps
    }

    /// Process `by` says that process `pid` executes a program; 0 is itself. Without a path, it could not.
    pub(super) fn program(&mut self, pid: u64, by: u32, at_ns: u64, path: &str) {
        let Ok(pid) = u32::try_from(pid) else { return };
        let pid = if pid == 0 { by } else { pid };
        self.is_changed = true;
        if path.is_empty() {
            self.programs.retain(|program| program.pid != pid);
            return;
        }
        let from_ns = if pid == by { at_ns } else { at_ns.saturating_sub(SPAWN_NS) };
        let is_seen = self.images.get(&pid).is_some_and(|start| *start >= from_ns);
        if !is_seen && self.programs.len() < PROGRAMS {
            self.programs.push(Executed { pid, from_ns, path: path.to_owned() });
        }
    }

    /// An image of a process was found.
    pub(super) fn start(&mut self, start: &SlotStart, origin: u64) {
        self.is_changed |= self.slots.insert(start.pid);
        if start.executed {
            let start_ns = start.started_ns.saturating_sub(origin);
            self.images.insert(start.pid, start_ns);
            self.programs.retain(|program| program.pid != start.pid || start_ns < program.from_ns);
        }
    }

    /// Whether an epoch began or ended since the last call.
    pub(super) fn take_epoch(&mut self) -> bool {
        std::mem::take(&mut self.epoch)
    }

    /// When a data file was mapped first.
    pub(super) fn mapped_ns(&self) -> Option<u64> {
        self.mapped_ns
    }

    /// Whether a process is observed: it has or had a slot, also for the program that it executed last.
    pub(super) fn has_slot(&self, pid: u32) -> bool {
        self.slots.contains(&pid) && self.programs.iter().all(|program| program.pid != pid)
    }

    /// Tells the sampler what to look at.
    pub(super) fn show(&mut self, watch: &mut Watch, processes: Vec<SampledProcess>) {
        watch.processes = processes;
        if std::mem::take(&mut self.is_changed) {
            watch.devices.clone_from(&self.devices);
            watch.mapped.clone_from(&self.mapped);
            watch.slots.clone_from(&self.slots);
            for program in &self.programs {
                watch.slots.remove(&program.pid);
            }
        }
    }

    /// Programs that left no trace.
    pub(super) fn unseen_programs(&self) -> Vec<UnseenProcess> {
        let unseen = |program: &Executed| {
            let reason = unseen::reason_of_program(&program.path).unwrap_or_else(|| NO_TRACE.to_owned());
            UnseenProcess { pid: program.pid, command: program.path.clone(), reason, read_bytes: None }
        };
        self.programs.iter().map(unseen).collect()
    }
}
