//! The figures of each node of a run with several processes: how fast it was, where its bytes came from, how far its
//! clock was off, and how often the other nodes waited for it.

use serde::Serialize;

use super::{Rates, Spread};
use crate::histogram::{Histogram, Quantiles};
use crate::ledger::{ClockReading, Ledger, LedgerPart, Phase};
use crate::units::Nanos;

/// One node in one phase, over one or several epochs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeFigures {
    pub node: u64,
    pub name: String,
    pub processes: u64,
    pub ranks: u64,
    /// As in `EpochFigures`, of the ranks of this node; means over epochs.
    pub au_percent: Option<f64>,
    pub samples_per_second: Option<f64>,
    pub mib_per_second: Option<f64>,
    /// Sums over ranks and epochs.
    pub wait_seconds: f64,
    pub barrier_seconds: f64,
    pub lateness_mean_seconds: f64,
    pub lateness_max_seconds: f64,
    /// The lowest share of an epoch's bytes that came from the storage.
    pub storage_share: Option<f64>,
    /// Bytes that the storage delivered to the processes of this node, and that its block devices and its network
    /// interfaces delivered to any process.
    pub storage_bytes: Option<u64>,
    pub device_bytes: Option<u64>,
    pub network_bytes: Option<u64>,
    /// CPU time of the processes as a share of the time of the cores that they may use.
    pub cpu_share: Option<f64>,
    /// Barriers at which this node was the last, as a number and as a share, and how much sooner the others were.
    pub last: u64,
    pub last_share: Option<f64>,
    pub last_seconds: f64,
    /// The largest offset of a clock of this node to that of process 0, and the largest bound of its error.
    pub clock_offset_seconds: Option<f64>,
    pub clock_bound_seconds: Option<f64>,
    /// From the moment at which the last process had arrived at a barrier until a process of this node knew of it.
    pub agreement: Option<Quantiles>,
}

/// The figures of all nodes over all epochs of a phase, by number; empty for a run of one process.
pub fn nodes(ledger: &Ledger, phase: Phase) -> Vec<NodeFigures> {
    figures(ledger, phase, &ledger.epochs(phase))
}

/// The same for one epoch.
pub fn nodes_of_epoch(ledger: &Ledger, phase: Phase, epoch: u64) -> Vec<NodeFigures> {
    figures(ledger, phase, &[epoch])
}

/// How long agreement took in a phase, over all nodes; `None` if there was none.
pub fn agreement(ledger: &Ledger, phase: Phase) -> Option<Quantiles> {
    let mut sum = Histogram::default();
    for epoch in ledger.epochs(phase) {
        ledger.nodes().iter().for_each(|node| sum += &node.observed(epoch, phase).agreement.latency);
    }
    sum.summary()
}

/// The node that the others waited for longest; `None` if they waited for none.
pub fn slowest(nodes: &[NodeFigures]) -> Option<&NodeFigures> {
    let late = nodes.iter().filter(|node| node.last_seconds > 0.0);
    late.max_by(|one, other| one.last_seconds.total_cmp(&other.last_seconds))
}

fn figures(ledger: &Ledger, phase: Phase, epochs: &[u64]) -> Vec<NodeFigures> {
    let nodes = ledger.nodes();
    let barriers = |node: &LedgerPart<'_>| -> u64 {
        epochs.iter().map(|epoch| node.observed(*epoch, phase).agreement.barriers).sum()
    };
    let barriers = nodes.iter().map(barriers).sum();
    nodes.iter().map(|node| NodeFigures::new(node, phase, epochs, barriers)).collect()
}

impl NodeFigures {
    fn new(node: &LedgerPart<'_>, phase: Phase, epochs: &[u64], barriers: u64) -> NodeFigures {
        let rates: Vec<Rates> = epochs.iter().map(|epoch| Rates::of(node, phase, *epoch)).collect();
        let mean = |figure: fn(&Rates) -> Option<f64>| {
            Spread::of(&rates.iter().filter_map(figure).collect::<Vec<_>>()).map(|spread| spread.mean)
        };
        let totals = epochs.iter().map(|epoch| node.total(*epoch, phase));
        let total = totals.reduce(|mut sum, total| {
            sum += total;
            sum
        });
        let total = total.unwrap_or_default();
        let seen = NodeObservations::of(node, phase, epochs);
        NodeFigures {
            node: node.number(),
            name: node.name().unwrap_or_default().to_owned(),
            processes: node.processes,
            ranks: epochs.iter().map(|epoch| node.rows(*epoch, phase).count() as u64).max().unwrap_or(0),
            au_percent: mean(|rates| rates.au_percent),
            samples_per_second: mean(|rates| rates.samples_per_second),
            mib_per_second: mean(|rates| rates.mib_per_second),
            wait_seconds: total.wait_ns.seconds(),
            barrier_seconds: total.barrier_ns.seconds(),
            lateness_mean_seconds: total.lateness_ns_sum.seconds() / total.steps.max(1) as f64,
            lateness_max_seconds: total.lateness_ns_max.seconds(),
            storage_share: seen.storage_share,
            storage_bytes: seen.storage_bytes,
            device_bytes: seen.device_bytes,
            network_bytes: seen.network_bytes,
            cpu_share: (seen.cores > Nanos::ZERO).then(|| seen.cpu.seconds() / seen.cores.seconds()),
            last: seen.last,
            last_share: (barriers > 0).then(|| seen.last as f64 / barriers as f64),
            last_seconds: seen.last_ns.seconds(),
            clock_offset_seconds: seen.clock.map(|clock| clock.offset_ns as f64 / 1e9),
            clock_bound_seconds: seen.clock.map(|clock| clock.bound_ns.seconds()),
            agreement: seen.latency.summary(),
        }
    }
}

/// What a node observed, over several epochs.
#[derive(Default)]
struct NodeObservations {
    storage_share: Option<f64>,
    storage_bytes: Option<u64>,
    device_bytes: Option<u64>,
    network_bytes: Option<u64>,
    cpu: Nanos,
    cores: Nanos,
    last: u64,
    last_ns: Nanos,
    clock: Option<ClockReading>,
    latency: Histogram,
}

impl NodeObservations {
    fn of(node: &LedgerPart<'_>, phase: Phase, epochs: &[u64]) -> NodeObservations {
        let mut sum = NodeObservations::default();
        let rows = || epochs.iter().map(|epoch| node.observed(*epoch, phase));
        for row in rows() {
            let (cache, agreement) = (&row.cache, &row.agreement);
            let shares = sum.storage_share.into_iter().chain(cache.storage_share());
            sum.storage_share = shares.min_by(f64::total_cmp);
            sum.cpu += row.cpu_ns;
            sum.cores += row.core_ns;
            sum.last += agreement.last;
            sum.last_ns += agreement.last_ns;
            sum.latency += &agreement.latency;
            for clock in agreement.clocks.values() {
                let known = sum.clock.get_or_insert(*clock);
                known.bound_ns = known.bound_ns.max(clock.bound_ns);
                if clock.offset_ns.unsigned_abs() > known.offset_ns.unsigned_abs() {
                    known.offset_ns = clock.offset_ns;
                }
            }
        }
        // Unknown in one epoch means unknown in the sum.
        sum.storage_bytes = rows().map(|row| row.cache.storage.known()).sum();
        sum.device_bytes = rows().map(|row| row.cache.device.known()).sum();
        sum.network_bytes = rows().map(|row| row.cache.network.known()).sum();
        sum
    }
}
