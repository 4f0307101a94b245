//! The ledger: what a run did. It holds exact counts and spans per epoch, phase and rank, without estimates or nominal
//! values. Ledgers of threads, ranks and nodes add up in any order.

mod agreement;
mod blocks;
mod cache;
mod checked;
mod conditions;
mod earlier;
mod errors;
mod parts;
mod records;
mod run_times;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::AddAssign;

pub use agreement::{Agreement, ClockReading};
pub use blocks::BlockWindow;
pub use cache::{
    CacheFigures, CachePreparation, Counted, FileTotals, ObservedCache, RepeatedReads, ReportedBytes,
    StorageLayout,
};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

pub use checked::CheckedFetches;
pub use conditions::{Conditions, ObservedHost, ObservedMember, ObservedMode};
pub use errors::{ErrorExample, ErrorTally, Errors};
pub use parts::LedgerPart;
pub use records::{BlockRecord, EpochRecord, PhaseRecord, RunRecords, StepRecord};
pub use run_times::RunTimes;

use crate::checkpoint::Checkpoints;
use crate::digest::Digest;
use crate::histogram::Latencies;
use crate::observed::Observed;
use crate::requests::RequestCounts;
use crate::timeline::Timeline;
use crate::units::Nanos;

/// The part of an epoch that a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Train,
    Eval,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Phase::Train => "train",
            Phase::Eval => "eval",
        })
    }
}

/// The steps that count for AU and throughput, without those excluded at the start and the end (DLIO's metric window).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricWindow {
    pub steps: u64,
    /// Compute time of these steps.
    pub compute_ns: Nanos,
    /// Time of the phase minus the load and compute time of the excluded steps.
    pub time_ns: Nanos,
}

impl AddAssign for MetricWindow {
    fn add_assign(&mut self, MetricWindow { steps, compute_ns, time_ns }: MetricWindow) {
        self.steps += steps;
        self.compute_ns += compute_ns;
        self.time_ns += time_ns;
    }
}

/// What one rank did in one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankRow {
    /// Steps that the accelerator started, and so will finish.
    pub steps: u64,
    /// Planned steps and samples. Ledgers of earlier versions lack the steps.
    #[serde(default)]
    pub steps_planned: u64,
    pub samples_planned: u64,
    pub samples_delivered: u64,
    /// Bytes of the extents that the plan requests.
    pub bytes_planned: u64,
    /// Bytes that the I/O backend returned.
    pub bytes_read: u64,
    /// Bytes of fetches that failed and were counted as errors.
    pub bytes_failed: u64,
    pub opens: u64,
    pub reads: u64,
    /// From the accelerator's request for a batch until it has it.
    pub wait_ns: Nanos,
    /// From there until the batch is in the accelerator's own memory.
    pub copy_ns: Nanos,
    /// The emulated compute time.
    pub compute_ns: Nanos,
    /// From the end of the rank's own work until the slowest rank releases the barrier.
    pub barrier_ns: Nanos,
    /// Waiting for checkpoints between steps; not part of the metric window.
    #[serde(default)]
    pub checkpoint_ns: Nanos,
    /// The remaining wall time of the phase: starting and stopping readers.
    pub harness_ns: Nanos,
    /// How late the host delivered batches, relative to the accelerator timeline.
    pub lateness_ns_sum: Nanos,
    pub lateness_ns_max: Nanos,
    /// From the start of the phase until the rank had its last batch, including checkpoints.
    #[serde(default)]
    pub last_batch_ns: Nanos,
    pub window: MetricWindow,
    /// Which samples were delivered.
    pub digest: Digest,
    /// At which positions, modulo 2^64.
    pub order: u64,
    /// Samples that could not be read and that the run continued without.
    pub failed: SampleDigest,
}

impl RankRow {
    /// Whether every planned step ran.
    pub(crate) fn is_finished(&self) -> bool {
        self.steps_planned > 0 && self.steps == self.steps_planned
    }

    /// The time of the rank's steps, from the start of the phase to the end of the last step, without checkpoints.
    pub(crate) fn steps_ns(&self) -> Nanos {
        self.wait_ns + self.copy_ns + self.compute_ns + self.barrier_ns
    }
}

impl AddAssign for RankRow {
    fn add_assign(&mut self, other: RankRow) {
        let RankRow {
            steps,
            steps_planned,
            samples_planned,
            samples_delivered,
            bytes_planned,
            bytes_read,
            bytes_failed,
            opens,
            reads,
            wait_ns,
            copy_ns,
            compute_ns,
            barrier_ns,
            checkpoint_ns,
            harness_ns,
            lateness_ns_sum,
            lateness_ns_max,
            last_batch_ns,
            window,
            digest,
            order,
            failed,
        } = other;
        self.steps += steps;
        self.steps_planned += steps_planned;
        self.samples_planned += samples_planned;
        self.samples_delivered += samples_delivered;
        self.bytes_planned += bytes_planned;
        self.bytes_read += bytes_read;
        self.bytes_failed += bytes_failed;
        self.opens += opens;
        self.reads += reads;
        self.wait_ns += wait_ns;
        self.copy_ns += copy_ns;
        self.compute_ns += compute_ns;
        self.barrier_ns += barrier_ns;
        self.checkpoint_ns += checkpoint_ns;
        self.harness_ns += harness_ns;
        self.lateness_ns_sum += lateness_ns_sum;
        self.lateness_ns_max = self.lateness_ns_max.max(lateness_ns_max);
        self.last_batch_ns = self.last_batch_ns.max(last_batch_ns);
        self.window += window;
        self.digest += digest;
        self.order = self.order.wrapping_add(order);
        self.failed += failed;
    }
}

/// The number of samples and their digest. The parts of an epoch's batches locate an error in the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleDigest {
    pub samples: u64,
    pub digest: Digest,
}

impl AddAssign for SampleDigest {
    fn add_assign(&mut self, SampleDigest { samples, digest }: SampleDigest) {
        self.samples += samples;
        self.digest += digest;
    }
}

/// The number of parts of an epoch, independent of its length.
pub const PARTS: u64 = 256;

/// The part that a batch belongs to. Batches are numbered by rank, then by step.
pub fn part_of(batch: u64, batches: u64) -> usize {
    (u128::from(batch) * u128::from(PARTS) / u128::from(batches.max(1))) as usize
}

/// What one node observed of one phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    /// Bytes that the process caused to be read from block devices, as counted by the kernel.
    pub device_read_bytes: u64,
    /// How often that counter was read; zero means that the value is unknown.
    pub device_readings: u64,
    /// CPU time that the process used, and CPU time available: wall time x cores.
    pub cpu_ns: Nanos,
    pub core_ns: Nanos,
    /// Delivered and failed samples by part; empty if there were none.
    pub parts: Vec<SampleDigest>,
    /// How long operations took.
    pub latencies: Latencies,
    /// What happened when.
    pub timeline: Timeline,
    /// The maximum number of fetches that each thread had in flight, summed over threads. Threads may reach their
    /// maximum at different times, so this is an upper bound on the fetches in flight.
    #[serde(alias = "most_in_flight")]
    pub in_flight_bound: u64,
    /// Comparisons of the bytes read with the expected content.
    pub checked: CheckedFetches,
    /// Errors that occurred, whether or not the run continued.
    pub errors: Errors,
    /// Observations of the page cache.
    #[serde(default)]
    pub cache: ObservedCache,
    /// Agreement with the other members of the run.
    #[serde(default, skip_serializing_if = "Agreement::is_empty")]
    pub agreement: Agreement,
    /// Requests to an object store.
    #[serde(default, skip_serializing_if = "RequestCounts::is_empty")]
    pub requests: RequestCounts,
}

impl AddAssign for NodeRow {
    fn add_assign(&mut self, other: NodeRow) {
        let NodeRow {
            device_read_bytes,
            device_readings,
            cpu_ns,
            core_ns,
            parts,
            latencies,
            timeline,
            in_flight_bound,
            checked,
            errors,
            cache,
            agreement,
            requests,
        } = other;
        self.device_read_bytes += device_read_bytes;
        self.device_readings += device_readings;
        self.cpu_ns += cpu_ns;
        self.core_ns += core_ns;
        self.latencies += latencies;
        self.timeline += timeline;
        self.in_flight_bound += in_flight_bound;
        self.checked += checked;
        self.errors += errors;
        self.cache += &cache;
        self.agreement += agreement;
        self.requests += requests;
        if self.parts.len() < parts.len() {
            self.parts.resize(parts.len(), SampleDigest::default());
        }
        self.parts.iter_mut().zip(parts).for_each(|(part, more)| *part += more);
    }
}

/// A short run of the same plan on the null backend of the same hosts: feedline's own ceiling. All members run it
/// together, and the one with the lowest ceiling counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    pub steps: u64,
    /// AU on storage without any delay; `None` if steps have no compute time.
    pub au_percent: Option<f64>,
    /// Of all ranks of the run.
    pub samples_per_second: Option<f64>,
    /// What the harness adds to a step: waiting on the null backend, and lateness.
    pub harness_seconds_per_step: f64,
    /// The unused share of the host's CPU time, 0 to 1.
    pub cpu_headroom: f64,
}

impl Calibration {
    /// The lower of two members' ceilings limits the run.
    pub fn lower(self, other: Calibration) -> Calibration {
        // All fields are compared, so that the order of the operands does not matter.
        let key = |calibration: &Calibration| {
            let Calibration { steps, au_percent, samples_per_second, harness_seconds_per_step, cpu_headroom } =
                *calibration;
            (au_percent, samples_per_second, -harness_seconds_per_step, cpu_headroom, steps)
        };
        if key(&other).partial_cmp(&key(&self)) == Some(std::cmp::Ordering::Less) { other } else { self }
    }
}

/// Something that ended the run early.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RunFault {
    pub epoch: u64,
    pub phase: Phase,
    pub message: String,
}

type RankKey = (u64, Phase, u64);

/// The observations of a run, or of one thread, rank or node of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "WrittenLedger")]
pub struct Ledger {
    ranks: BTreeMap<RankKey, RankRow>,
    /// The blocks of ranks whose phase has several.
    blocks: BTreeMap<RankKey, Vec<BlockWindow>>,
    nodes: BTreeMap<RankKey, NodeRow>,
    faults: Vec<RunFault>,
    /// Whether the run received a stop request.
    pub interrupted: bool,
    /// From the start of the run's clock to the first batch of the first phase, without the time to prepare the page
    /// cache. The earliest over all members.
    pub first_batch_ns: Option<Nanos>,
    /// The ceiling of feedline itself on this host.
    pub calibration: Option<Calibration>,
    /// What the rules need in addition to the rows.
    pub conditions: Conditions,
    pub checkpoints: Checkpoints,
    /// When the run took place, and the CPU time that it used.
    pub times: RunTimes,
    /// Each step of the ranks of this process, if requested; not written.
    pub records: RunRecords,
    /// What an audit observed of a job of another program.
    pub observed: Option<Box<Observed>>,
}

impl Ledger {
    /// Adds the observations of a rank.
    pub fn add(&mut self, epoch: u64, phase: Phase, rank: u64, row: RankRow) {
        *self.ranks.entry((epoch, phase, rank)).or_default() += row;
    }

    /// Adds the observations of a node.
    pub fn add_node(&mut self, epoch: u64, phase: Phase, node: u64, row: NodeRow) {
        *self.nodes.entry((epoch, phase, node)).or_default() += row;
    }

    /// Adds a fault that ended the run.
    pub fn add_fault(&mut self, fault: RunFault) {
        // Sorted, so that addition commutes. Equal reports from several members are one fault.
        if let Err(at) = self.faults.binary_search(&fault) {
            self.faults.insert(at, fault);
        }
    }

    pub fn faults(&self) -> &[RunFault] {
        &self.faults
    }

    /// The epochs with rows of this phase, in order.
    pub fn epochs(&self, phase: Phase) -> Vec<u64> {
        let mut epochs: Vec<u64> =
            self.ranks.keys().filter(|(_, p, _)| *p == phase).map(|(epoch, _, _)| *epoch).collect();
        epochs.dedup();
        epochs
    }

    /// The rows of one phase of one epoch, in order of rank.
    pub fn rows(&self, epoch: u64, phase: Phase) -> impl Iterator<Item = (u64, &RankRow)> {
        self.ranks.range((epoch, phase, 0)..=(epoch, phase, u64::MAX)).map(|((_, _, rank), row)| (*rank, row))
    }

    /// The sum over all ranks for one phase of one epoch.
    pub fn total(&self, epoch: u64, phase: Phase) -> RankRow {
        self.whole().total(epoch, phase)
    }

    /// The latencies of a phase, over all epochs and nodes.
    pub fn latencies(&self, phase: Phase) -> Latencies {
        let mut sum = Latencies::default();
        for (_, row) in self.nodes.iter().filter(|((_, of, _), _)| *of == phase) {
            sum += &row.latencies;
        }
        sum
    }

    /// The errors of the whole run.
    pub fn errors(&self) -> Errors {
        let mut sum = Errors::default();
        self.nodes.values().for_each(|row| sum += row.errors.clone());
        sum
    }

    /// The page cache in one phase of one epoch, summed over nodes.
    pub fn cache(&self, epoch: u64, phase: Phase) -> ObservedCache {
        let mut sum = ObservedCache::default();
        let nodes = self.nodes.range((epoch, phase, 0)..=(epoch, phase, u64::MAX));
        nodes.for_each(|(_, row)| sum += &row.cache);
        sum
    }

    /// One phase of one epoch, summed over nodes.
    pub fn node_total(&self, epoch: u64, phase: Phase) -> Cow<'_, NodeRow> {
        self.whole().observed(epoch, phase)
    }
}

impl AddAssign for Ledger {
    fn add_assign(&mut self, other: Ledger) {
        let Ledger {
            ranks,
            blocks,
            nodes,
            faults,
            interrupted,
            first_batch_ns,
            calibration,
            conditions,
            checkpoints,
            times,
            records,
            observed,
        } = other;
        for ((epoch, phase, rank), row) in ranks {
            self.add(epoch, phase, rank, row);
        }
        for ((epoch, phase, rank), blocks) in blocks {
            self.add_blocks(epoch, phase, rank, blocks);
        }
        for ((epoch, phase, node), row) in nodes {
            self.add_node(epoch, phase, node, row);
        }
        faults.into_iter().for_each(|fault| self.add_fault(fault));
        self.interrupted = self.interrupted || interrupted;
        self.first_batch_ns = self.first_batch_ns.into_iter().chain(first_batch_ns).min();
        self.calibration = match (self.calibration, calibration) {
            (Some(here), Some(there)) => Some(here.lower(there)),
            (here, there) => here.or(there),
        };
        self.conditions += conditions;
        self.checkpoints += checkpoints;
        self.times += times;
        self.records.extend(records);
        match (&mut self.observed, observed) {
            (Some(here), Some(there)) => **here += *there,
            (here, there) => *here = here.take().or(there),
        }
    }
}

/// The serialized form of a ledger: lists, because JSON keys cannot have three parts.
#[derive(Deserialize)]
struct WrittenLedger {
    interrupted: bool,
    faults: Vec<RunFault>,
    #[serde(default)]
    first_batch_ns: Option<Nanos>,
    calibration: Option<Calibration>,
    conditions: Conditions,
    #[serde(default)]
    checkpoints: Checkpoints,
    #[serde(default)]
    times: RunTimes,
    ranks: Vec<KeyedRow<RankRow>>,
    /// Ledgers of earlier versions lack them.
    #[serde(default)]
    blocks: Vec<KeyedRow<Vec<BlockWindow>>>,
    nodes: Vec<KeyedRow<NodeRow>>,
    #[serde(default)]
    observed: Option<Box<Observed>>,
}

#[derive(Serialize, Deserialize)]
struct KeyedRow<T> {
    epoch: u64,
    phase: Phase,
    /// The rank or the node.
    index: u64,
    seen: T,
}

/// Serializes entry by entry: a copy of a ledger with many epochs would double its memory.
impl Serialize for Ledger {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Ledger {
            ranks,
            blocks,
            nodes,
            faults,
            interrupted,
            first_batch_ns,
            calibration,
            conditions,
            checkpoints,
            times,
            records: _,
            observed,
        } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("interrupted", interrupted)?;
        map.serialize_entry("faults", faults)?;
        map.serialize_entry("first_batch_ns", first_batch_ns)?;
        map.serialize_entry("calibration", calibration)?;
        map.serialize_entry("conditions", conditions)?;
        if !checkpoints.is_empty() {
            map.serialize_entry("checkpoints", checkpoints)?;
        }
        if *times != RunTimes::default() {
            map.serialize_entry("times", times)?;
        }
        map.serialize_entry("ranks", &Entries(ranks))?;
        if !blocks.is_empty() {
            map.serialize_entry("blocks", &Entries(blocks))?;
        }
        map.serialize_entry("nodes", &Entries(nodes))?;
        if let Some(observed) = observed {
            map.serialize_entry("observed", observed)?;
        }
        map.end()
    }
}

/// The entries of a table as a list.
struct Entries<'a, T>(&'a BTreeMap<RankKey, T>);

impl<T: Serialize> Serialize for Entries<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries = self.0.iter();
        serializer.collect_seq(entries.map(|(&(epoch, phase, index), seen)| KeyedRow {
            epoch,
            phase,
            index,
            seen,
        }))
    }
}

impl From<WrittenLedger> for Ledger {
    fn from(written: WrittenLedger) -> Ledger {
        let WrittenLedger {
            interrupted,
            faults,
            first_batch_ns,
            calibration,
            conditions,
            checkpoints,
            times,
            ranks,
            blocks,
            nodes,
            observed,
        } = written;
        let mut ledger = Ledger {
            interrupted,
            first_batch_ns,
            calibration,
            conditions,
            checkpoints,
            times,
            observed,
            ..Ledger::default()
        };
        ranks.into_iter().for_each(|row| ledger.add(row.epoch, row.phase, row.index, row.seen));
        blocks.into_iter().for_each(|row| ledger.add_blocks(row.epoch, row.phase, row.index, row.seen));
        nodes.into_iter().for_each(|row| ledger.add_node(row.epoch, row.phase, row.index, row.seen));
        faults.into_iter().for_each(|fault| ledger.add_fault(fault));
        ledger
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checkpoint::manifest::Moment;
    use crate::checkpoint::{RestoreRecord, SaveRecord};

    fn ledger(rows: &[(u64, u64, u64, u64)]) -> Ledger {
        let mut ledger = Ledger::default();
        for (epoch, rank, samples, nanos) in rows {
            let mut row =
                RankRow { samples_delivered: *samples, wait_ns: Nanos(*nanos), ..RankRow::default() };
            row.lateness_ns_max = Nanos(*nanos);
            row.last_batch_ns = Nanos(*samples);
            row.digest.insert_run(*samples, 1);
            row.order = *nanos;
            ledger.add(*epoch, if samples % 2 == 0 { Phase::Train } else { Phase::Eval }, *rank, row);
        }
        if let Some((epoch, _, samples, nanos)) = rows.first() {
            let part = SampleDigest { samples: *samples, digest: Digest::of_run(*nanos, 1) };
            let parts = vec![part; (*samples % 3) as usize];
            let checked =
                CheckedFetches { fetches: *samples, unknown: 1, bytes: *nanos, ..CheckedFetches::default() };
            let mut errors = Errors::default();
            let example =
                ErrorExample { rank: 0, step: *nanos, file: "f".into(), offset: 0, message: "m".into() };
            errors.add(["eio", "short"][(*samples % 2) as usize].to_owned(), example);
            let mut node = NodeRow {
                device_read_bytes: *nanos,
                device_readings: 1,
                parts,
                checked,
                errors,
                ..NodeRow::default()
            };
            node.cache.counted.add(*samples, *nanos);
            node.requests.requests = samples % 4;
            node.requests.received_bytes = samples % 4 * nanos;
            node.latencies.first_byte.record(Nanos(*nanos));
            node.cache.needed_bytes = *samples;
            node.cache.storage = ReportedBytes::new((samples % 5 > 0).then_some(*nanos));
            node.cache.storage_is_least = samples % 7 == 0;
            node.cache.untold.extend((samples % 3 == 0).then(|| format!("reason {nanos}")));
            ledger.add_node(*epoch, Phase::Train, 0, node);
            ledger.first_batch_ns = (samples % 4 > 0).then_some(Nanos(*nanos));
            ledger.calibration = Some(Calibration {
                steps: *samples,
                au_percent: Some(*nanos as f64),
                samples_per_second: Some(*samples as f64),
                harness_seconds_per_step: 0.0,
                cpu_headroom: 0.5,
            });
            ledger.add_fault(RunFault {
                epoch: *epoch,
                phase: Phase::Train,
                message: format!("fault {samples}"),
            });
            ledger.conditions.unhonoured.insert(format!("key {}", samples % 3));
            ledger.conditions.request("o_direct", &(samples % 2 == 0).to_string());
            ledger.conditions.observe("o_direct", &(nanos % 2 == 0).to_string());
            let moment = Moment { epoch: *epoch, step: *samples };
            ledger.checkpoints.saves.push(SaveRecord::new(moment, Nanos(*nanos)));
            ledger.checkpoints.restores.push(RestoreRecord::new(moment, Nanos(*nanos)));
            ledger.checkpoints.steps_apart.add(Nanos(*nanos));
            let host = ObservedHost {
                readings: 1,
                ticks: *nanos,
                stolen_ticks: *samples,
                ..ObservedHost::default()
            };
            ledger.conditions.hosts.insert(format!("host {}", nanos % 2), host);
            let [start, end] = [samples, nanos].map(|number| format!("2026-01-01T00:00:{number:04}"));
            ledger.times = RunTimes { start, end, wall: Nanos(*nanos), cpu: Nanos(*samples) };
        }
        ledger
    }

    fn sum(parts: &[&Ledger]) -> Ledger {
        parts.iter().fold(Ledger::default(), |mut sum, part| {
            sum += (*part).clone();
            sum
        })
    }

    type Rows = Vec<(u64, u64, u64, u64)>;

    fn rows() -> impl Strategy<Value = Rows> {
        prop::collection::vec((1u64..4, 0u64..3, 0u64..1000, 0u64..1000), 0..12)
    }

    proptest! {
        #[test]
        fn addition_commutes_and_associates(a in rows(), b in rows(), c in rows()) {
            let (a, b, c) = (ledger(&a), ledger(&b), ledger(&c));
            prop_assert_eq!(sum(&[&a, &b, &c]), sum(&[&c, &a, &b]));
            prop_assert_eq!(sum(&[&sum(&[&a, &b]), &c]), sum(&[&a, &sum(&[&b, &c])]));
        }

        #[test]
        fn json_keeps_everything(a in rows()) {
            let before = ledger(&a);
            let text = serde_json::to_string(&before).unwrap();
            prop_assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), before);
        }
    }

    /// Ledgers of earlier versions use the name `most_in_flight` and lack the time of the last batch.
    #[test]
    fn ledgers_of_earlier_versions_are_read() {
        let mut ledger = Ledger::default();
        ledger.add(1, Phase::Train, 0, RankRow { steps: 3, ..RankRow::default() });
        ledger.add_node(1, Phase::Train, 0, NodeRow { in_flight_bound: 8, ..NodeRow::default() });
        let text = serde_json::to_string(&ledger).unwrap();
        let earlier = text.replace("in_flight_bound", "most_in_flight").replace("\"last_batch_ns\":0,", "");
        assert!(earlier.len() < text.len());
        assert_eq!(serde_json::from_str::<Ledger>(&earlier).unwrap(), ledger);
    }

    #[test]
    fn rows_and_totals_are_by_epoch_and_phase() {
        let ledger = ledger(&[(1, 0, 10, 5), (1, 1, 20, 6), (2, 0, 40, 7), (1, 0, 2, 1)]);
        assert_eq!(ledger.epochs(Phase::Train), [1, 2]);
        assert_eq!(ledger.total(1, Phase::Train).samples_delivered, 32);
        assert_eq!(ledger.rows(1, Phase::Train).map(|(rank, _)| rank).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(ledger.total(3, Phase::Train), RankRow::default());
    }
}
