//! What a plan costs and requires: memory term by term, the bandwidth that the accelerators demand, the time if storage
//! keeps up, and the data set size that MLPerf Storage requires.

use serde::{Deserialize, Serialize};

use super::data::nominal_record_bytes;
use super::{Data, EvalPlan, LoaderPlan, PhasePlan, Placement, Request, RequestDemand};
use crate::mlperf::{Rounding, SizeFloors, SizeInput};
use crate::order::Shards;
use crate::spec::{Preprocess, Spec, Verify};

/// One term of the memory that a run uses on each host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryTerm {
    pub what: String,
    pub bytes: u64,
    /// The keys and flags that reduce it; empty if there are none.
    #[serde(default)]
    pub lower: String,
}

/// What one accelerator demands of storage if it never waits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    pub samples_per_second: f64,
    pub files_per_second: f64,
    pub mib_per_second: f64,
}

/// MLPerf Storage's minimum size of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeRule {
    /// Files for 500 steps on every accelerator.
    pub steps_floor_files: u64,
    /// Files for five times the memory of all hosts.
    pub memory_floor_files: u64,
    /// The larger of the two.
    pub required_files: u64,
    /// Bytes of that many files.
    pub required_bytes: u64,
    pub satisfied: bool,
}

impl SizeRule {
    /// The rule for this many accelerators and hosts, and whether a data set of `files` satisfies it: samples >= 500 x
    /// batch x accelerators, and bytes >= 5 x the memory of all hosts. Bytes are nominal, unless those of the existing
    /// files are known.
    pub fn new(
        spec: &Spec,
        (ranks, hosts): (u64, u64),
        host_memory_bytes: u64,
        files: u64,
        found_bytes: Option<u64>,
    ) -> SizeRule {
        let samples_per_file = spec.dataset.num_samples_per_file;
        let nominal = samples_per_file as f64 * nominal_record_bytes(spec);
        let file_bytes = found_bytes.map_or(nominal, |bytes| bytes as f64 / files.max(1) as f64);
        let input = SizeInput {
            accelerators: ranks,
            batch: spec.reader.batch_size,
            samples_per_file,
            file_bytes,
            memory_bytes: u128::from(host_memory_bytes) * u128::from(hosts),
        };
        let floors = SizeFloors::new(&input, Rounding::Up);
        let required_files = floors.files();
        SizeRule {
            steps_floor_files: floors.steps_floor_files,
            memory_floor_files: floors.memory_floor_files,
            required_files,
            required_bytes: (required_files as f64 * file_bytes) as u64,
            satisfied: files >= required_files,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub memory: Vec<MemoryTerm>,
    pub memory_bytes: u64,
    /// Per accelerator; `None` if steps have no compute time, because the demand is then unlimited.
    pub demand: Option<Demand>,
    /// Requests to an object store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestDemand>,
    /// Compute time of all steps of all epochs: the length of the run if no batch is late.
    pub compute_seconds: f64,
    pub mlperf: SizeRule,
}

impl Estimate {
    pub(super) fn new(
        spec: &Spec,
        request: &Request<'_>,
        data: &Data,
        train: &PhasePlan,
        eval: Option<&EvalPlan>,
        loader: &LoaderPlan,
    ) -> Estimate {
        let evals = eval.map_or(0, |eval| eval.times(spec.train.epochs));
        let phases = spec.train.epochs.saturating_add(evals);
        let mut memory = memory(request, data, loader, &train.shards, phases);
        memory.extend(compared_whole(spec, request, data, loader));
        let demand = demand(data, train);
        let samples_per_second = demand.map(|demand| demand.samples_per_second);
        let requests = RequestDemand::new(spec, request, data, loader, samples_per_second);
        memory.extend(requests.map(|requests| connections(request, loader, &requests)));
        Estimate {
            memory_bytes: memory.iter().fold(0, |sum, term| sum.saturating_add(term.bytes)),
            memory,
            demand,
            requests,
            compute_seconds: compute_seconds(spec, train, eval),
            mlperf: SizeRule::new(
                spec,
                (request.ranks, request.placement.hosts),
                request.host_memory_bytes,
                data.train.files,
                data.found().map(|_| data.train.bytes),
            ),
        }
    }
}

/// The process without readers: code, allocator, runtime, watchdog thread; rounded up from what `scripts/bench scale`
/// shows.
const BASE_BYTES: u64 = 15 << 19;
/// The threads that evict or load pages before an epoch: stacks, and an allocator arena each.
const CACHE_BYTES: u64 = 768 << 10;
/// Stack pages that a reader thread touches, its kernel data structures, histograms and timeline.
const THREAD_BYTES: u64 = 224 << 10;
/// Queue, slots and counters of one rank, without its batch slots.
const RANK_BYTES: u64 = 1 << 10;
const SLOT_BYTES: u64 = 64;
/// Histograms and timeline of one phase of one epoch, which are kept for the result.
const PHASE_BYTES: u64 = 320 << 10;
/// The state of one reader, and what it records for the watchdog.
const READER_BYTES: u64 = 640;
/// The settings that determine the number of readers.
const READERS: &str = "--ranks or reader.read_threads";

impl Estimate {
    /// Adds a term of memory on each host.
    pub(super) fn with_memory(self, what: &str, bytes: u64, lower: &str) -> Estimate {
        let mut memory = self.memory;
        memory.push(MemoryTerm { what: what.to_owned(), bytes, lower: lower.to_owned() });
        Estimate { memory, memory_bytes: self.memory_bytes.saturating_add(bytes), ..self }
    }

    /// The largest term that a setting can reduce.
    pub fn largest_memory(&self) -> Option<&MemoryTerm> {
        self.memory.iter().filter(|term| !term.lower.is_empty()).max_by_key(|term| term.bytes)
    }
}

fn memory(
    request: &Request<'_>,
    data: &Data,
    loader: &LoaderPlan,
    shards: &Shards,
    phases: u64,
) -> Vec<MemoryTerm> {
    let Placement { ranks_per_host: ranks, processes_per_host: processes, .. } = request.placement;
    let term = |what: String, bytes: u64, lower: &str| MemoryTerm { what, bytes, lower: lower.to_owned() };
    let (readers, threads) = (loader.host_readers(request), loader.host_threads(request));
    // Prefetching ends at the end of the epoch.
    let slots = loader.prefetch_batches.min(shards.steps) + 1;
    let kept = loader.kept_batches(shards.batch).min(shards.steps);
    let mut terms = vec![
        match processes {
            1 => term("program".to_owned(), BASE_BYTES, ""),
            _ => term(
                format!("{processes} processes"),
                processes.saturating_mul(BASE_BYTES),
                "processes per host",
            ),
        },
        term(
            format!("{threads} reader threads x (stack + histograms)"),
            threads.saturating_mul(THREAD_BYTES),
            READERS,
        ),
        term(
            format!("{ranks} ranks x ({slots} batch slots + counters)"),
            ranks.saturating_mul(SLOT_BYTES.saturating_mul(slots).saturating_add(RANK_BYTES)),
            "--ranks or reader.prefetch_size",
        ),
        term(format!("{readers} readers"), readers.saturating_mul(READER_BYTES), READERS),
    ];
    let mut optional = |what: String, bytes: u64, lower: &str| {
        if bytes > 0 {
            terms.push(term(what, bytes, lower));
        }
    };
    optional("threads for the page cache".to_owned(), if request.store.cached { CACHE_BYTES } else { 0 }, "");
    let buffers = loader.buffers(request);
    optional(
        format!("{buffers} read buffers"),
        buffers.saturating_mul(loader.transfer_bytes),
        "--ranks, reader.read_threads or reader.transfer_size",
    );
    optional(
        format!("{ranks} ranks x {kept} retained batches"),
        ranks.saturating_mul(kept).saturating_mul(loader.retained_bytes),
        "--ranks, reader.prefetch_size or reader.batch_size",
    );
    if loader.preprocess.kind == Preprocess::Decode {
        optional(
            format!("{readers} samples being decoded"),
            readers.saturating_mul(data.largest_sample().saturating_mul(4)),
            READERS,
        );
    }
    // Every process has its own.
    let each = |bytes: u64| bytes.saturating_mul(processes);
    optional("file sizes".to_owned(), each(data.table_bytes()), "dataset.num_files_train");
    optional(format!("results of {phases} phases"), each(phases.saturating_mul(PHASE_BYTES)), "train.epochs");
    terms
}

fn connections(request: &Request<'_>, loader: &LoaderPlan, demand: &RequestDemand) -> MemoryTerm {
    let (count, threads) = (demand.most_in_flight, loader.host_threads(request));
    MemoryTerm {
        what: format!("{count} connections, {threads} windows"),
        bytes: request.store.requests.memory(count, threads),
        lower: "storage.requests_in_flight, --ranks or reader.read_threads".to_owned(),
    }
}

/// Compressed files are compressed again to compare them, so the bytes that a reader reads are kept until then.
fn compared_whole(
    spec: &Spec,
    request: &Request<'_>,
    data: &Data,
    loader: &LoaderPlan,
) -> Option<MemoryTerm> {
    let compressed = spec.dataset.compression != "none" && request.store.brings_bytes;
    (compressed && spec.reader.verify == Verify::Full).then(|| {
        let readers = loader.host_readers(request);
        let file = data.largest_sample().saturating_mul(data.train.samples_per_file);
        let (what, bytes) = (format!("{readers} files being compared"), readers.saturating_mul(file));
        MemoryTerm { what, bytes, lower: READERS.to_owned() }
    })
}

fn demand(data: &Data, train: &PhasePlan) -> Option<Demand> {
    let seconds = train.compute.mean();
    (seconds > 0.0).then(|| {
        let samples_per_second = train.shards.batch as f64 / seconds;
        let files_per_second = samples_per_second / data.train.samples_per_file as f64;
        let bytes_per_sample = data.read_ratio * data.train.bytes as f64 / data.train.samples().max(1) as f64;
        Demand {
            samples_per_second,
            files_per_second,
            mib_per_second: samples_per_second * bytes_per_sample / f64::from(1 << 20),
        }
    })
}

fn compute_seconds(spec: &Spec, train: &PhasePlan, eval: Option<&EvalPlan>) -> f64 {
    let epochs = spec.train.epochs;
    let evals = eval.map_or(0, |eval| eval.times(epochs));
    let seconds = |phase: &PhasePlan| phase.shards.steps as f64 * phase.compute.mean();
    epochs as f64 * seconds(train) + evals as f64 * eval.map_or(0.0, |eval| seconds(&eval.phase))
}
