//! The kernel's counters around a phase. Those of this process are read by every member, and add up over the members of
//! a node. Those of the node are read by its first member only: before any member of the node begins the phase, and
//! after all have ended it.

use model::ledger::{NodeRow, ReportedBytes};
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
    /// Bytes that the node received, if they are to be counted.
    network: Option<Option<u64>>,
}

impl<'a> PhaseCounters<'a> {
    /// The network is of interest if there are several nodes to compare.
    pub(super) fn read(preparer: &'a CachePreparer<'a>, counts_network: bool) -> PhaseCounters<'a> {
        let (device, cpu_seconds) = (host::device_read_bytes(), meter::cpu_seconds());
        let network = counts_network.then(host::network_received_bytes);
        PhaseCounters { preparer, device, cpu_seconds, storage: preparer.read(), network }
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
        let mut cache = self.preparer.seen_since(self.storage, CountOwner::Node);
        if let Some(before) = self.network {
            let received = before.zip(host::network_received_bytes());
            cache.network = ReportedBytes::new(received.map(|(before, after)| after.saturating_sub(before)));
        }
        NodeRow { core_ns: Nanos((wall.0 as f64 * cores) as u64), cache, ..NodeRow::default() }
    }
}
