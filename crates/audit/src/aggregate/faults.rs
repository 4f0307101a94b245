//! Page faults of mapped files: how many there were in an epoch, in which order, and how much of the files they
//! touched.

use std::collections::{BTreeMap, HashMap};

use model::observed::EpochFiles;
use model::units::Nanos;

use super::pages::{PIECE, TouchedPages};
use super::visits::FileKey;
use super::{Aggregate, EventPlace};
use crate::event::{MissedFaults, PageFault, ProcessIndex};
use crate::layout::Op;

/// Threads and files of a process whose last fault is remembered.
const MOST: usize = 4096;

/// Where the threads of a process had their last faults.
#[derive(Debug, Default)]
pub(super) struct FaultOrder {
    last: HashMap<(u32, FileKey), u64>,
}

impl FaultOrder {
    /// Whether the fault goes on where the one before left off: within what that one can have mapped, or right behind.
    fn is_sequential(&mut self, fault: &PageFault) -> bool {
        if self.last.len() >= MOST {
            self.last.clear();
        }
        let before = self.last.insert((fault.tid, (fault.device, fault.file)), fault.offset);
        before.is_some_and(|before| (1..=PIECE).contains(&fault.offset.wrapping_sub(before)))
    }
}

/// Mappings of one process in an epoch.
#[derive(Clone, Copy, Debug, Default)]
struct ProcessMappings {
    /// At most.
    mapped: u64,
    resident: u64,
    /// Resident before the epoch.
    before: u64,
    faults: u64,
    /// Faults when the most was resident.
    faults_then: u64,
    /// Mappings were given up: at all, before the most was resident, and before others were made.
    unmapped: bool,
    unmapped_then: bool,
    mapped_again: bool,
}

impl ProcessMappings {
    /// How much more became resident. `None`: that was read too early, or mappings went before it was read.
    fn growth(&self) -> Option<u64> {
        if self.faults == 0 {
            return Some(self.resident.saturating_sub(self.before));
        }
        if self.unmapped_then || 2 * self.faults_then < self.faults {
            return None;
        }
        // Later faults map as much as earlier ones.
        let grown = u128::from(self.resident.saturating_sub(self.before)) * u128::from(self.faults);
        u64::try_from(grown / u128::from(self.faults_then)).ok()
    }
}

/// The mappings in an epoch.
#[derive(Debug, Default)]
pub(super) struct EpochMappings {
    by_process: BTreeMap<ProcessIndex, ProcessMappings>,
    faults: u64,
    sequential: u64,
    major: u64,
    pages: TouchedPages,
    missed: MissedFaults,
}

impl EpochMappings {
    /// `before`: what was resident when it was read last.
    pub(super) fn sample(&mut self, process: ProcessIndex, (mapped, resident): (u64, u64), before: u64) {
        let most = self.by_process.entry(process).or_default();
        if most.mapped == 0 {
            most.before = before;
        }
        most.mapped = most.mapped.max(mapped);
        if resident >= most.resident {
            (most.resident, most.faults_then, most.unmapped_then) = (resident, most.faults, most.unmapped);
        }
    }

    /// A sample after the end, of a process that used mappings in this epoch.
    pub(super) fn last_sample(&mut self, process: ProcessIndex, mapped: (u64, u64)) {
        if let Some(state) = self.by_process.get(&process).copied() {
            self.sample(process, mapped, state.before);
        }
    }

    /// A call that maps or unmaps a data file.
    pub(super) fn call(&mut self, process: ProcessIndex, op: Op) {
        let state = self.by_process.entry(process).or_default();
        state.mapped_again |= state.unmapped && op == Op::Map;
        state.unmapped |= op == Op::Unmap;
    }

    fn fault(&mut self, process: ProcessIndex, fault: &PageFault, is_sequential: bool) {
        self.by_process.entry(process).or_default().faults += 1;
        self.faults += 1;
        self.sequential += u64::from(is_sequential);
        self.major += u64::from(fault.is_major);
        self.pages.touch((fault.device, fault.file), fault.offset);
    }

    fn missed(&mut self, missed: &MissedFaults) {
        self.missed.lost += missed.lost;
        self.missed.blind_ns += missed.blind_ns;
    }

    /// Adds the figures. `observed`: whether faults were observed.
    pub(super) fn show(&self, figures: &mut EpochFiles, observed: bool) {
        let all = || self.by_process.values();
        if all().any(|process| process.mapped > 0) {
            let gone = all().any(|process| process.unmapped_then || process.mapped_again);
            let resident = all().map(|process| process.resident).sum();
            figures.mapped_bytes = Some(all().map(|process| process.mapped).sum());
            figures.resident_bytes = (!gone).then_some(resident);
            figures.resident_growth_bytes = all().map(ProcessMappings::growth).sum();
        }
        if !observed || self.by_process.is_empty() {
            return;
        }
        let (pages, pieces) = self.pages.bytes();
        figures.faults = Some(self.faults);
        figures.faults_sequential = Some(self.sequential);
        figures.faults_major = Some(self.major);
        figures.fault_page_bytes = Some(pages);
        figures.fault_piece_bytes = Some(pieces);
        figures.faults_lost = self.missed.lost;
        figures.faults_blind_ns = Nanos(self.missed.blind_ns);
    }
}

impl Aggregate {
    /// A page fault in a mapping of a data file.
    pub(super) fn page_fault(&mut self, process: ProcessIndex, fault: &PageFault) {
        let Some(state) = self.processes.get_mut(process) else { return };
        let is_sequential = state.faults.is_sequential(fault);
        self.kernel.mapped(fault.device);
        let place = self.place_of(process);
        if let (EventPlace::Epoch(..) | EventPlace::Nowhere, Some(epoch)) = (place, self.epoch_at(place)) {
            epoch.mappings.fault(process, fault, is_sequential);
        }
    }

    /// Faults that were missed count in all epochs that are open.
    pub(super) fn missed_faults(&mut self, missed: &MissedFaults) {
        self.observes_faults = true;
        if *missed == MissedFaults::default() {
            return;
        }
        let loaders = self.ranks.iter_mut().flat_map(|rank| rank.loaders.values_mut());
        for epoch in loaders.filter_map(|loader| loader.epoch.as_mut()) {
            epoch.mappings.missed(missed);
        }
        if self.ranks.is_empty() {
            self.passes.current(self.now).mappings.missed(missed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(tid: u32, file: u64, offset: u64) -> PageFault {
        PageFault { tid, file, offset, is_major: offset == 0, ..PageFault::default() }
    }

    #[test]
    fn faults_in_sequence_are_told_by_thread_and_file() {
        let mut order = FaultOrder::default();
        let mut sequential = |tid, file, offset| order.is_sequential(&fault(tid, file, offset));
        assert!(!sequential(1, 7, 0));
        assert!(sequential(1, 7, PIECE));
        assert!(!sequential(2, 7, 9 * PIECE));
        assert!(!sequential(1, 8, 2 * PIECE));
        assert!(sequential(2, 7, 9 * PIECE + 4096));
        assert!(sequential(1, 7, 2 * PIECE));
        assert!(!sequential(1, 7, 2 * PIECE), "the same page again");
        assert!(!sequential(1, 7, PIECE), "backwards");
        assert!(!sequential(1, 7, 2 * PIECE + 4096), "too far");
    }

    fn figures(mappings: &EpochMappings, observed: bool) -> EpochFiles {
        let mut figures = EpochFiles::default();
        mappings.show(&mut figures, observed);
        figures
    }

    #[test]
    fn figures_of_an_epoch() {
        let mut mappings = EpochMappings::default();
        assert_eq!(
            figures(&mappings, true),
            EpochFiles::default(),
            "without mappings, nothing is known of them"
        );
        mappings.sample(3, (1000, 500), 200);
        mappings.fault(3, &fault(1, 7, 0), false);
        mappings.fault(3, &fault(1, 7, 4096), true);
        mappings.sample(3, (900, 600), 500);
        mappings.sample(4, (100, 50), 80);
        mappings.missed(&MissedFaults { lost: 2, blind_ns: 5 });
        let rss = figures(&mappings, false);
        assert_eq!((rss.mapped_bytes, rss.resident_bytes), (Some(1100), Some(650)));
        assert_eq!((rss.resident_growth_bytes, rss.faults), (Some(400), None));
        let perf = figures(&mappings, true);
        assert_eq!((perf.faults, perf.faults_sequential, perf.faults_major), (Some(2), Some(1), Some(1)));
        assert_eq!((perf.fault_page_bytes, perf.fault_piece_bytes), (Some(8192), Some(PIECE)));
        assert_eq!((perf.faults_lost, perf.faults_blind_ns), (2, Nanos(5)));
    }

    #[test]
    fn what_is_resident_counts_only_if_it_was_read_in_time() {
        let mut mappings = EpochMappings::default();
        let many = |mappings: &mut EpochMappings, count: u64| {
            (0..count).for_each(|number| mappings.fault(3, &fault(1, 7, number * 4096), false));
        };
        many(&mut mappings, 100);
        mappings.sample(3, (1 << 30, 8000), 0);
        many(&mut mappings, 50);
        assert_eq!(figures(&mappings, true).resident_growth_bytes, Some(12_000));
        many(&mut mappings, 100);
        assert_eq!(figures(&mappings, true).resident_growth_bytes, None, "most faults came later");
        mappings.sample(3, (1 << 30, 20_000), 8000);
        assert_eq!(figures(&mappings, true).resident_growth_bytes, Some(20_000));
        // At the end, when everything was read.
        mappings.call(3, Op::Unmap);
        let last = figures(&mappings, true);
        assert_eq!((last.resident_growth_bytes, last.resident_bytes), (Some(20_000), Some(20_000)));
        mappings.call(3, Op::Map);
        assert_eq!(figures(&mappings, true).resident_bytes, None, "what is mapped next is not known");
        mappings.sample(3, (1 << 30, 30_000), 8000);
        let later = figures(&mappings, true);
        assert_eq!((later.resident_growth_bytes, later.faults), (None, Some(250)));
    }
}
