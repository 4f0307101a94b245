//! How each rank's batches are fetched and prepared: DLIO's `data_loader` as numbers for a single scheduler. All
//! differences between the four disciplines are here; docs/reference/loaders.md has diagrams.

use serde::{Deserialize, Serialize};

use super::{Data, Placement, PlanError, Request, Split};
use crate::order::{Interleave, Order, Unit};
use crate::spec::{Loader as LoaderKind, OnError, Preprocess, Retain, Semantics, Shuffle, Spec, Time};
use crate::units::Bytes;

/// The data loader that is emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Discipline {
    /// Worker w loads the whole batches w, w + W, ..., one sample after another.
    Pytorch,
    /// Samples in parallel, across batch boundaries; files are interleaved if they are streams.
    Tensorflow,
    /// All samples of one batch in parallel, then those of the next.
    Dali,
    /// No I/O: batches are always ready.
    Synthetic,
}

/// How each rank's batches are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoaderPlan {
    pub discipline: Discipline,
    /// Requests in flight per rank.
    pub readers_per_rank: u64,
    /// Batches that may be read before the accelerator requests them; 0: only the requested batch is read.
    pub prefetch_batches: u64,
    /// Samples that a reader claims at a time.
    pub chunk_samples: u64,
    /// Whether readers claim chunks strictly in turn; otherwise the next free reader claims the next chunk.
    pub in_turn: bool,
    /// How far a reader may be ahead of the oldest missing sample.
    pub window: ReadWindow,
    /// Samples that are read before the first one is delivered (TensorFlow's shuffle buffer).
    pub lead_samples: u64,
    /// Samples after the prefetched batches that may be in flight (the results that TensorFlow's map holds).
    pub beyond_samples: u64,
    /// Whether batches are delivered in order; otherwise in the order of completion.
    pub ordered: bool,
    /// Maximum size of a single read.
    pub transfer_bytes: u64,
    /// Bytes kept in memory per batch until the accelerator takes it; 0: they are dropped after reading.
    pub retained_bytes: u64,
    /// Reader threads on each host.
    pub threads: u64,
    /// Maximum number of errors; their samples are left out of their batches. `None`: the first error ends the run.
    pub error_limit: Option<u64>,
    pub preprocess: PreprocessPlan,
}

/// The range of samples, from the oldest missing one, in which readers may work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadWindow {
    /// As far as the prefetch depth allows.
    Open,
    /// This many chunks.
    Chunks(u64),
    /// To the end of the batch.
    Batch,
}

/// Preprocessing of each sample after it was read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PreprocessPlan {
    pub kind: Preprocess,
    /// Per sample.
    pub time: Time,
    /// The sample size that `time` refers to; `None`: all samples take the same time.
    pub per_bytes: Option<f64>,
    pub slow_share: f64,
    pub slow_factor: f64,
    /// Samples of one rank that are preprocessed at the same time; `None`: every reader preprocesses its own.
    pub threads_per_rank: Option<u64>,
}

impl PreprocessPlan {
    /// Whether there is any preprocessing.
    pub fn works(&self) -> bool {
        match self.kind {
            Preprocess::None => false,
            Preprocess::Decode => true,
            Preprocess::Sleep | Preprocess::Burn => self.time.mean() > 0.0,
        }
    }

    /// Whether it takes CPU time, and therefore threads of its own.
    pub fn computes(&self) -> bool {
        self.works() && self.kind != Preprocess::Sleep
    }
}

/// Maximum size of a single read. Larger reads were not faster on any file system we measured, and cost memory per
/// reader.
const TRANSFER_BYTES: u64 = 1 << 20;
/// The same for a request to an object store, which costs a round trip, whereas its bytes need no buffer of this size.
const RANGE_BYTES: u64 = 8 << 20;
/// The same if the workload gives the sizes of requests: only larger ones are divided.
const REQUEST_BYTES: u64 = 64 << 20;
/// The minimum to which a memory limit reduces it.
const SMALLEST_TRANSFER: u64 = 64 << 10;

/// The default of PyTorch, for each worker, and of DALI.
const LIBRARY_PREFETCH: u64 = 2;

impl LoaderPlan {
    pub(super) fn resolve(spec: &Spec, request: &Request<'_>, data: &Data) -> Result<LoaderPlan, PlanError> {
        let reader = &spec.reader;
        let readers = readers(spec, request);
        let discipline = discipline(spec);
        if reader.interleave_cycle.is_some_and(|cycle| cycle > 1) && discipline != Discipline::Tensorflow {
            return Err(PlanError::NoInterleave(reader.data_loader.name()));
        }
        let prefetch_batches = prefetch(spec, discipline, readers);
        let block = reader.interleave_block.min(reader.batch_size);
        let (chunk_samples, in_turn, window) = match discipline {
            Discipline::Pytorch => (reader.batch_size, reader.ordered, ReadWindow::Open),
            Discipline::Tensorflow if data.streams => (block, true, ReadWindow::Open),
            Discipline::Tensorflow if reader.ordered => (1, false, ReadWindow::Chunks(readers)),
            Discipline::Tensorflow => (1, false, ReadWindow::Open),
            Discipline::Dali if data.streams => (reader.batch_size, true, ReadWindow::Batch),
            Discipline::Dali => (1, false, ReadWindow::Batch),
            Discipline::Synthetic => (reader.batch_size, false, ReadWindow::Open),
        };
        let shuffles = reader.sample_shuffle != Shuffle::Off;
        let buffers = discipline == Discipline::Tensorflow && data.streams && shuffles;
        let maps = discipline == Discipline::Tensorflow;
        let Placement { ranks_per_process, processes_per_host, .. } = request.placement;
        let cores = request.cores / processes_per_host.max(1);
        let batch_bytes = reader.batch_size.saturating_mul(data.largest_sample());
        let default = match request.store.is_objects() {
            true => RANGE_BYTES,
            false if !reader.requests.is_empty() => REQUEST_BYTES,
            false => TRANSFER_BYTES,
        };
        let transfer_bytes = reader.transfer_size.unwrap_or(default);
        let largest = data.largest_file().map(|bytes| bytes.next_multiple_of(4096).max(4096));
        let plan = LoaderPlan {
            discipline,
            readers_per_rank: readers,
            prefetch_batches,
            chunk_samples,
            in_turn,
            window,
            lead_samples: if buffers { reader.shuffle_size.saturating_sub(1) } else { 0 },
            beyond_samples: if maps && prefetch_batches > 0 {
                readers.saturating_mul(chunk_samples)
            } else {
                0
            },
            ordered: reader.ordered,
            transfer_bytes: largest.map_or(transfer_bytes, |largest| transfer_bytes.min(largest)),
            retained_bytes: if reader.retain == Retain::Batch { batch_bytes } else { 0 },
            threads: threads(request, ranks_per_process * readers, cores),
            error_limit: (reader.on_error == OnError::Count).then_some(reader.error_limit),
            preprocess: preprocess(spec, discipline, data),
        };
        plan.within(request, reader.batch_size)
    }

    /// Readers on one host.
    pub(super) fn host_readers(&self, request: &Request<'_>) -> u64 {
        request.placement.ranks_per_host.saturating_mul(self.readers_per_rank)
    }

    /// Reader threads of all processes of one host.
    pub(super) fn host_threads(&self, request: &Request<'_>) -> u64 {
        match request.store.threads {
            Threads::PerReader => self.host_readers(request),
            Threads::PerCore | Threads::One => {
                self.threads.saturating_mul(request.placement.processes_per_host)
            }
        }
    }

    /// Read buffers of the transfer size that the readers of one host use at the same time. Bytes of objects pass
    /// through a small buffer of their thread.
    pub fn buffers(&self, request: &Request<'_>) -> u64 {
        match request.store.threads {
            _ if request.store.is_objects() => 0,
            Threads::PerReader => self.host_threads(request),
            Threads::PerCore if request.store.brings_bytes => self.host_readers(request),
            Threads::PerCore | Threads::One => 0,
        }
    }

    /// The maximum number of batches of one rank that can be read before the accelerator requests the first of them:
    /// prefetched batches, samples in flight after them, and the shuffle buffer. A partial batch counts as one.
    pub(super) fn batches_ahead(&self, batch: u64) -> u64 {
        let behind = self.lead_samples.saturating_add(self.beyond_samples).div_ceil(batch.max(1));
        self.prefetch_batches.saturating_add(behind)
    }

    /// Batches of one rank that are in memory at once: prefetched batches, the one at the accelerator, and those in
    /// flight after them.
    pub(super) fn kept_batches(&self, batch: u64) -> u64 {
        let behind = self.beyond_samples.div_ceil(batch.max(1));
        self.prefetch_batches.saturating_add(1 + behind)
    }

    /// Fits the plan into the user's memory limit for buffers and batches: fewer prefetched batches, smaller reads.
    fn within(mut self, request: &Request<'_>, batch: u64) -> Result<LoaderPlan, PlanError> {
        let Some(memory) = request.memory else { return Ok(self) };
        let batches = request.placement.ranks_per_host.saturating_mul(self.retained_bytes);
        let buffers = self.buffers(request);
        let smallest = self.transfer_bytes.min(SMALLEST_TRANSFER);
        let of_buffers = buffers.saturating_mul(smallest);
        let needed = batches.saturating_add(of_buffers);
        if memory < needed {
            let batch = (self.retained_bytes > 0).then_some(Bytes(self.retained_bytes));
            return Err(PlanError::TooLittleMemory { granted: Bytes(memory), needed: Bytes(needed), batch });
        }
        if let Some(deepest) = (memory - of_buffers).checked_div(batches) {
            // With fewer prefetched batches, no samples may be in flight after them.
            while self.prefetch_batches > 0 && self.kept_batches(batch) > deepest {
                let too_many = self.kept_batches(batch) - deepest;
                self.prefetch_batches = self.prefetch_batches.saturating_sub(too_many);
                self.beyond_samples = if self.prefetch_batches == 0 { 0 } else { self.beyond_samples };
            }
        }
        let left = memory - batches.saturating_mul(self.kept_batches(batch)).min(memory);
        if let Some(each) = left.checked_div(buffers) {
            self.transfer_bytes = self.transfer_bytes.min((each / 4096 * 4096).max(smallest));
        }
        Ok(self)
    }
}

/// The number of threads for many fetches in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// A fetch occupies its thread until it completes.
    #[default]
    PerReader,
    /// A few threads run all readers.
    PerCore,
    /// One thread runs all readers, in the order of a simulated device's events.
    One,
}

impl Threads {
    fn of(self, readers: u64, cores: u64) -> u64 {
        match self {
            Threads::PerReader => readers,
            Threads::PerCore => readers.min(cores.max(1)),
            Threads::One => 1,
        }
    }
}

/// Reader threads of a process. A thread of an object store needs a request of its own in flight.
fn threads(request: &Request<'_>, readers: u64, cores: u64) -> u64 {
    let threads = request.store.threads.of(readers, cores);
    if request.store.is_objects() { threads.min(request.store.requests.in_flight.max(1)) } else { threads }
}

pub(super) fn discipline(spec: &Spec) -> Discipline {
    match spec.reader.data_loader {
        LoaderKind::Pytorch => Discipline::Pytorch,
        LoaderKind::Tensorflow => Discipline::Tensorflow,
        LoaderKind::Dali | LoaderKind::NativeDali => Discipline::Dali,
        LoaderKind::Synthetic => Discipline::Synthetic,
        LoaderKind::Custom | LoaderKind::None => match LoaderKind::of(spec.framework) {
            LoaderKind::Tensorflow => Discipline::Tensorflow,
            _ => Discipline::Pytorch,
        },
    }
}

/// Readers per rank. DLIO takes 1 for "not given" and uses the cores of a host that a rank has.
pub(super) fn readers(spec: &Spec, request: &Request<'_>) -> u64 {
    match (spec.reader.read_threads, spec.compat.read_threads) {
        (1, Semantics::Dlio) => {
            let cores = request.cores / request.placement.ranks_per_host.max(1);
            cores.clamp(1, spec.reader.max_auto_threads)
        }
        (threads, _) => threads.max(1),
    }
}

/// PyTorch gives each worker whole batches, and the same number of them in advance, so its depth is a multiple of the
/// workers; without workers nothing is prefetched. The others prefetch batches over all readers. In DLIO, PyTorch and
/// DALI then use the defaults of their libraries instead of 0.
fn prefetch(spec: &Spec, discipline: Discipline, readers: u64) -> u64 {
    let (depth, by_library) = (spec.reader.prefetch_size, spec.compat.prefetch == Semantics::Dlio);
    match discipline {
        Discipline::Pytorch if spec.reader.read_threads == 0 => 0,
        Discipline::Pytorch if depth == 0 && by_library => LIBRARY_PREFETCH * readers,
        Discipline::Pytorch => depth.div_ceil(readers) * readers,
        Discipline::Dali if depth == 0 && by_library => LIBRARY_PREFETCH,
        _ => depth,
    }
}

/// The files that are interleaved. TensorFlow interleaves `read_threads` tfrecord files, one sample of each in turn;
/// other formats only on request. If samples are shuffled individually, files are not interleaved.
pub(super) fn interleave(
    spec: &Spec,
    request: &Request<'_>,
    data: &Data,
    split: &Split,
    order: &Order,
) -> Interleave {
    let reader = &spec.reader;
    let streams = data.streams && split.samples_per_file > 1;
    let default = if streams { readers(spec, request) } else { 1 };
    match (discipline(spec), order.unit) {
        (Discipline::Tensorflow, Unit::None | Unit::File) => Interleave {
            cycle: reader.interleave_cycle.unwrap_or(default),
            block: reader.interleave_block.min(split.samples_per_file),
        },
        _ => Interleave::NONE,
    }
}

fn preprocess(spec: &Spec, discipline: Discipline, data: &Data) -> PreprocessPlan {
    let reader = &spec.reader;
    let map = (discipline == Discipline::Tensorflow && data.streams).then_some(reader.computation_threads);
    PreprocessPlan {
        kind: if discipline == Discipline::Synthetic { Preprocess::None } else { reader.preprocess },
        time: reader.preprocess_time,
        per_bytes: reader.preprocess_bytes,
        slow_share: reader.preprocess_slow_share,
        slow_factor: reader.preprocess_slow_factor,
        threads_per_rank: reader.preprocess_threads.or(map),
    }
}
