//! `<rank>_output.json` and `<rank>_per_epoch_stats.json`: what each process reports about its ranks, in DLIO's keys
//! and their order. A run has as many entries as steps, so the documents are streamed.

use std::ops::Range;

use engine::host::Host;
use engine::meter;
use model::checkpoint::{CheckpointPlan, RestoreRecord, SaveRecord};
use model::ledger::{BlockRecord, EpochRecord, Ledger, Phase, PhaseRecord, StepRecord};
use model::metrics::{block_au_percent, block_samples_per_second};
use model::plan::Plan;
use model::spec::{SaveMode, Spec};
use model::units::Nanos;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::report::result::DataSetSection;

const GIB: f64 = (1u64 << 30) as f64;

const OUTPUT: &str = "_output.json";
const STATS: &str = "_per_epoch_stats.json";

pub(super) fn output_name(rank: u64) -> String {
    format!("{rank}{OUTPUT}")
}

pub(super) fn stats_name(rank: u64) -> String {
    format!("{rank}{STATS}")
}

/// Whether this is the name of a file of some rank.
pub(super) fn is_rank_file(name: &str) -> bool {
    let rank = name.strip_suffix(OUTPUT).or_else(|| name.strip_suffix(STATS));
    rank.is_some_and(|rank| !rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The part of a run that one process did.
pub(crate) struct OwnRun<'a> {
    pub plan: &'a Plan,
    pub spec: &'a Spec,
    /// With the records of this process.
    pub ledger: &'a Ledger,
    pub host: &'a Host,
    /// The ranks of this process, and how many there are on its host.
    pub ranks: Range<u64>,
    pub ranks_on_host: u64,
}

impl OwnRun<'_> {
    /// The content of `<rank>_output.json`.
    pub(super) fn output(&self, rank: u64) -> impl Serialize {
        OutputFile { run: self, rank }
    }

    /// The content of `<rank>_per_epoch_stats.json`.
    pub(super) fn stats(&self, rank: u64) -> impl Serialize {
        let epochs = self.ledger.records.epochs.iter();
        MapEntries(epochs.map(move |(epoch, record)| {
            (epoch.to_string(), EpochStats { run: self, rank, epoch: *epoch, record })
        }))
    }

    fn phase(&self, epoch: u64, phase: Phase, rank: u64) -> Option<&PhaseRecord> {
        self.ledger.records.phases.get(&(epoch, phase, rank))
    }

    fn stamp(&self, at: Nanos) -> String {
        meter::timestamp_at(self.ledger.records.wall(at))
    }

    /// 1 if the data that this host reads fits into its memory.
    fn potential_caching(&self) -> u8 {
        let data = DataSetSection::new(self.plan, self.spec).bytes_of(self.ranks_on_host, self.plan.ranks);
        u8::from(data <= self.host.memory_bytes as f64)
    }

    fn batch(&self, phase: Phase) -> u64 {
        let phase = self.plan.training.as_ref().and_then(|training| training.phase(phase));
        phase.map_or(0, |phase| phase.shards.batch)
    }

    /// The checkpoints of an epoch that succeeded.
    fn saves(&self, epoch: u64) -> impl Iterator<Item = (&SaveRecord, &CheckpointPlan)> {
        let saves = self.ledger.checkpoints.saves.iter();
        let saves = saves.filter(move |save| save.moment.epoch == epoch && save.is_complete());
        saves.zip(self.plan.checkpoint.iter().cycle())
    }

    fn restores(&self) -> impl Iterator<Item = (&RestoreRecord, &CheckpointPlan)> {
        let restores = self.ledger.checkpoints.restores.iter().filter(|restore| restore.failure.is_none());
        restores.zip(self.plan.checkpoint.iter().cycle())
    }

    /// A checkpoint: rank 0 has its own time; another process has one rank, which is its slowest.
    fn checkpoint(&self, plan: &CheckpointPlan, began: Nanos, took: Nanos) -> CheckpointEntry {
        let (start, end) = (self.stamp(began), self.stamp(began + took));
        let (duration, size) = (took.seconds(), plan.geometry.reported_bytes() as f64 / GIB);
        let throughput = if duration > 0.0 { size / duration } else { 0.0 };
        CheckpointEntry { start, end, duration, throughput }
    }

    fn saved(&self, rank: u64, (save, plan): (&SaveRecord, &CheckpointPlan)) -> CheckpointEntry {
        let took = match plan.save {
            SaveMode::Direct if rank > 0 => save.slowest_rank_ns,
            mode => save.dlio_span(mode),
        };
        self.checkpoint(plan, save.began, took)
    }

    fn restored(&self, rank: u64, (restore, plan): (&RestoreRecord, &CheckpointPlan)) -> CheckpointEntry {
        let took = if rank > 0 { restore.slowest_rank_ns } else { restore.first_rank_ns };
        self.checkpoint(plan, restore.began, took)
    }
}

/// `<rank>_output.json`.
struct OutputFile<'a> {
    run: &'a OwnRun<'a>,
    rank: u64,
}

impl Serialize for OutputFile<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let OutputFile { run, rank } = *self;
        let host = run.host;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("host_memory_GB", &(host.memory_bytes as f64 / GIB))?;
        map.serialize_entry("host_cpu_count", &host.cores)?;
        map.serialize_entry("host_processor_name", "")?;
        map.serialize_entry("potential_caching", &run.potential_caching())?;
        map.serialize_entry("host_cpuinfo", &pairs(&host.cpuinfo))?;
        map.serialize_entry("host_meminfo", &pairs(&host.meminfo))?;
        for (epoch, record) in &run.ledger.records.epochs {
            map.serialize_entry(&epoch.to_string(), &EpochOutput { run, rank, epoch: *epoch, record })?;
        }
        map.serialize_entry("hostname", &host.name)?;
        map.end()
    }
}

/// An epoch in `<rank>_output.json`.
struct EpochOutput<'a> {
    run: &'a OwnRun<'a>,
    rank: u64,
    epoch: u64,
    record: &'a EpochRecord,
}

impl Serialize for EpochOutput<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let EpochOutput { run, rank, epoch, record } = *self;
        let (train, eval) = (run.phase(epoch, Phase::Train, rank), run.phase(epoch, Phase::Eval, rank));
        let mut map = serializer.serialize_map(None)?;
        // DLIO loses it when it starts to train.
        if train.is_none() {
            map.serialize_entry("start", &run.stamp(record.began))?;
        }
        let batches = (run.batch(Phase::Train), run.batch(Phase::Eval));
        for (key, quantity) in QUANTITIES {
            map.serialize_entry(key, &Quantities { train, eval, batches, quantity })?;
        }
        if train.is_some() {
            map.serialize_entry("host_meminfo", &pairs(&record.meminfo))?;
        }
        if let Some(ended) = record.ended {
            map.serialize_entry("end", &run.stamp(ended))?;
        }
        map.end()
    }
}

/// A quantity of blocks or of their steps.
#[derive(Clone, Copy)]
enum Quantity {
    Load,
    Process,
    Compute,
    Throughput,
    Au,
}

const QUANTITIES: [(&str, Quantity); 5] = [
    ("load", Quantity::Load),
    ("proc", Quantity::Process),
    ("throughput", Quantity::Throughput),
    ("au", Quantity::Au),
    ("compute", Quantity::Compute),
];

/// A quantity by block: `block1`, `block2`, ..., `eval`.
struct Quantities<'a> {
    train: Option<&'a PhaseRecord>,
    eval: Option<&'a PhaseRecord>,
    batches: (u64, u64),
    quantity: Quantity,
}

impl Serialize for Quantities<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Quantities { train, eval, batches: (batch, eval_batch), quantity } = *self;
        let mut map = serializer.serialize_map(None)?;
        let blocks = train.into_iter().flat_map(PhaseRecord::each);
        for ((block, steps), number) in blocks.zip(1u64..) {
            let rate = block_samples_per_second(&block.seen, batch).unwrap_or(0.0);
            put(&mut map, &format!("block{number}"), quantity, (block, steps), rate)?;
        }
        for (block, steps) in eval.into_iter().flat_map(PhaseRecord::each) {
            // DLIO counts every step of an evaluation.
            let (samples, time) = (block.seen.steps * eval_batch, (block.ended - block.began).seconds());
            let rate = if time > 0.0 { samples as f64 / time } else { 0.0 };
            put(&mut map, "eval", quantity, (block, steps), rate)?;
        }
        map.end()
    }
}

fn put<M: SerializeMap>(
    map: &mut M,
    key: &str,
    quantity: Quantity,
    (block, steps): (&BlockRecord, &[StepRecord]),
    rate: f64,
) -> Result<(), M::Error> {
    let mut list = |of: fn(&StepRecord) -> Nanos| map.serialize_entry(key, &Seconds { steps, of });
    match quantity {
        Quantity::Load => list(|step| step.load),
        Quantity::Process => list(|step| step.load + step.compute),
        Quantity::Compute => list(|step| step.compute),
        Quantity::Throughput => map.serialize_entry(key, &rate),
        Quantity::Au => map.serialize_entry(key, &block_au_percent(&block.seen).unwrap_or(0.0)),
    }
}

/// A time of each step.
struct Seconds<'a> {
    steps: &'a [StepRecord],
    of: fn(&StepRecord) -> Nanos,
}

impl Serialize for Seconds<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.steps.iter().map(|step| (self.of)(step).seconds()))
    }
}

/// An epoch in `<rank>_per_epoch_stats.json`.
struct EpochStats<'a> {
    run: &'a OwnRun<'a>,
    rank: u64,
    epoch: u64,
    record: &'a EpochRecord,
}

impl Serialize for EpochStats<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let EpochStats { run, rank, epoch, record } = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("start", &run.stamp(record.began))?;
        let blocks = run.phase(epoch, Phase::Train, rank).map_or(&[][..], |phase| &phase.blocks);
        let mut saves = run.saves(epoch).zip(1u64..);
        for (block, number) in blocks.iter().zip(1u64..) {
            map.serialize_entry(&format!("block{number}"), &SpanEntry::new(run, block.began, block.ended))?;
            if let Some((save, number)) = saves.next() {
                map.serialize_entry(&format!("save_ckpt{number}"), &run.saved(rank, save))?;
            }
        }
        for (save, number) in saves {
            map.serialize_entry(&format!("save_ckpt{number}"), &run.saved(rank, save))?;
        }
        // Restores are not part of training.
        for (restore, number) in run.restores().filter(|_| blocks.is_empty()).zip(1u64..) {
            map.serialize_entry(&format!("load_ckpt{number}"), &run.restored(rank, restore))?;
        }
        if let Some(ended) = record.ended {
            map.serialize_entry("end", &run.stamp(ended))?;
        }
        // It covers training and its checkpoints, but not evaluation, which the end covers.
        if let Some(trained) = record.trained {
            map.serialize_entry("duration", &two_decimals(trained - record.began))?;
        }
        for eval in run.phase(epoch, Phase::Eval, rank).iter().flat_map(|phase| &phase.blocks) {
            map.serialize_entry("eval", &SpanEntry::new(run, eval.began, eval.ended))?;
        }
        map.end()
    }
}

/// A block or an evaluation; its duration is a text.
#[derive(Serialize)]
struct SpanEntry {
    start: String,
    end: String,
    duration: String,
}

impl SpanEntry {
    fn new(run: &OwnRun<'_>, began: Nanos, ended: Nanos) -> SpanEntry {
        SpanEntry { start: run.stamp(began), end: run.stamp(ended), duration: two_decimals(ended - began) }
    }
}

fn two_decimals(span: Nanos) -> String {
    format!("{:.2}", span.seconds())
}

/// A checkpoint; its duration is a number, and its throughput is that of all ranks, in GiB/s.
#[derive(Serialize)]
struct CheckpointEntry {
    start: String,
    end: String,
    duration: f64,
    throughput: f64,
}

/// Key and value pairs as a map, in their order.
fn pairs(pairs: &[(String, String)]) -> impl Serialize {
    MapEntries(pairs.iter().map(|(key, value)| (key, value)))
}

/// An iterator over entries, as a map.
struct MapEntries<I>(I);

impl<K: Serialize, V: Serialize, I: Iterator<Item = (K, V)> + Clone> Serialize for MapEntries<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.clone())
    }
}
