//! The kernel's counters around a phase. Those of this process are read by every member, and add up over the members of
//! a node. Those of the node are read by its first member only: before any member of the node begins the phase, and
//! after all have ended it.

use model::ledger::NodeRow;
use model::units::Nanos;

use crate::backing::{CountOwner, StorageCounts};
use crate::cache::CachePreparer;
use crate::host;
use crate::meter;

/// The counters before a phase.
pub(super) struct PhaseCounters<'a> {
    pub(super) preparer: &'a CachePreparer<'a>,
    device: Option<u64>,
    cpu_seconds: f64,
    storage: Option<StorageCounts>,
}

impl<'a> PhaseCounters<'a> {
    pub(super) fn read(preparer: &'a CachePreparer<'a>) -> PhaseCounters<'a> {
        let (device, cpu_seconds) = (host::device_read_bytes(), meter::cpu_seconds());
        PhaseCounters { preparer, device, cpu_seconds, storage: preparer.read() }
    }

    /// What this process has used since then.
    pub(super) fn of_process(&self) -> NodeRow {
        let mut row = NodeRow {
            cpu_ns: Nanos::from_seconds(meter::cpu_seconds() - self.cpu_seconds),
            cache: self.preparer.seen_since(self.storage, CountOwner::Process),
            ..NodeRow::default()
        };
        if let (Some(before), Some(after)) = (self.device, host::device_read_bytes()) {
            (row.device_read_bytes, row.device_readings) = (after.saturating_sub(before), 1);
        }
        row
    }

    /// What the node has used since then. The phase took `wall`, and the run may use `cores` of the node.
    pub(super) fn of_node(&self, wall: Nanos, cores: f64) -> NodeRow {
        NodeRow {
            core_ns: Nanos((wall.0 as f64 * cores) as u64),
            cache: self.preparer.seen_since(self.storage, CountOwner::Node),
            ..NodeRow::default()
        }
    }
}
