//! How each rank's batches are fetched and prepared: DLIO's `data_loader` as numbers for one scheduler. What the four
//! disciplines differ in stands here and nowhere else; docs/loaders.md draws them.

use serde::{Deserialize, Serialize};

use super::{Data, PlanError, Request, Split};
use crate::order::{Interleave, Order, Unit};
use crate::spec::{Loader as LoaderKind, OnError, Preprocess, Retain, Shuffle, Spec, Time};
use crate::units::Bytes;

/// Whose way of fetching is emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Discipline {
    /// Worker w loads the batches w, w + W, ... whole, its samples one after another.
    Pytorch,
    /// Samples in parallel, across the borders of batches; files interleaved where they are streams.
    Tensorflow,
    /// All samples of one batch in parallel, then those of the next.
    Dali,
    /// No I/O: batches are there.
    Synthetic,
}

/// How each rank's batches are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoaderPlan {
    pub discipline: Discipline,
    /// Requests in flight per rank.
    pub readers_per_rank: u64,
    /// Batches that may be read ahead of the one the accelerator asks for; 0 reads only what was asked for.
    pub prefetch_batches: u64,
    /// Samples that a reader takes on at a time.
    pub chunk_samples: u64,
    /// Whether readers take chunks strictly in turn; else the next one who is free takes the next chunk.
    pub in_turn: bool,
    /// How far a reader may go ahead of the oldest sample that is not there yet.
    pub window: Window,
    /// Samples that are read before the first is handed on (TensorFlow's shuffle buffer).
    pub lead_samples: u64,
    /// Samples behind the prefetched batches that may be under way (the results that TensorFlow's map holds).
    pub beyond_samples: u64,
    /// Whether batches come in order; else as they become ready.
    pub ordered: bool,
    /// Largest single read.
    pub transfer_bytes: u64,
    /// Bytes that stay in memory for each batch until the accelerator has taken it; 0: they are dropped when read.
    pub retained_bytes: u64,
    /// Threads that do the reading, on each host.
    pub threads: u64,
    /// Errors that are counted, and whose samples are left out of their batches; `None`: the first one ends the run.
    pub error_limit: Option<u64>,
    pub preprocess: PreprocessPlan,
}

/// The stretch of samples, from the oldest that is not there yet, in which readers may be at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Window {
    /// As far as the prefetch depth goes.
    Open,
    /// So many chunks.
    Chunks(u64),
    /// To the end of its batch.
    Batch,
}

/// What is done with each sample after it was read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PreprocessPlan {
    pub kind: Preprocess,
    /// Per sample.
    pub time: Time,
    /// Size of the sample that `time` is for; `None`: all alike.
    pub per_bytes: Option<f64>,
    pub slow_share: f64,
    pub slow_factor: f64,
    /// Samples of one rank that are at work at once; `None`: every reader does its own.
    pub threads_per_rank: Option<u64>,
}

impl PreprocessPlan {
    /// Whether anything is done at all.
    pub fn works(&self) -> bool {
        match self.kind {
            Preprocess::None => false,
            Preprocess::Decode => true,
            Preprocess::Sleep | Preprocess::Burn => self.time.mean() > 0.0,
        }
    }

    /// Whether it takes CPU time, and so threads of its own.
    pub fn computes(&self) -> bool {
        self.works() && self.kind != Preprocess::Sleep
    }
}

/// Largest single read; larger ones gain nothing on the file systems that we measured and cost memory per reader.
const TRANSFER_BYTES: u64 = 1 << 20;
/// The smallest to which a bound on memory shrinks it.
const SMALLEST_TRANSFER: u64 = 64 << 10;

impl LoaderPlan {
    pub(super) fn resolve(spec: &Spec, request: &Request<'_>, data: &Data) -> Result<LoaderPlan, PlanError> {
        let reader = &spec.reader;
        let readers = reader.read_threads.max(1);
        let discipline = discipline(spec);
        if reader.interleave_cycle.is_some_and(|cycle| cycle > 1) && discipline != Discipline::Tensorflow {
            return Err(PlanError::NoInterleave(reader.data_loader.name()));
        }
        let prefetch_batches = prefetch(spec, discipline, readers);
        let block = reader.interleave_block.min(reader.batch_size);
        let (chunk_samples, in_turn, window) = match discipline {
            Discipline::Pytorch => (reader.batch_size, reader.ordered, Window::Open),
            Discipline::Tensorflow if data.streams => (block, true, Window::Open),
            Discipline::Tensorflow if reader.ordered => (1, false, Window::Chunks(readers)),
            Discipline::Tensorflow => (1, false, Window::Open),
            Discipline::Dali if data.streams => (reader.batch_size, true, Window::Batch),
            Discipline::Dali => (1, false, Window::Batch),
            Discipline::Synthetic => (reader.batch_size, false, Window::Open),
        };
        let shuffles = reader.sample_shuffle != Shuffle::Off;
        let buffers = discipline == Discipline::Tensorflow && data.streams && shuffles;
        let maps = discipline == Discipline::Tensorflow;
        let all_readers = request.ranks / request.hosts * readers;
        let batch_bytes = reader.batch_size.saturating_mul(data.largest_sample());
        let transfer_bytes = reader.transfer_size.unwrap_or(TRANSFER_BYTES);
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
            threads: request.store.threads.of(all_readers, request.cores),
            error_limit: (reader.on_error == OnError::Count).then_some(reader.error_limit),
            preprocess: preprocess(spec, discipline, data),
        };
        plan.within(request, reader.batch_size)
    }

    /// Buffers that readers of one host read into at the same time.
    pub fn buffers(&self, request: &Request<'_>) -> u64 {
        match request.store.threads {
            Threads::PerReader => self.threads,
            Threads::PerCore if request.store.brings_bytes => {
                request.ranks / request.hosts * self.readers_per_rank
            }
            Threads::PerCore | Threads::One => 0,
        }
    }

    /// The most batches of one rank that can be read before the accelerator asks for the first of them: those ahead,
    /// what is under way behind them, and the shuffle buffer. A batch that can be there in part counts as one.
    pub(super) fn batches_ahead(&self, batch: u64) -> u64 {
        let behind = self.lead_samples.saturating_add(self.beyond_samples).div_ceil(batch.max(1));
        self.prefetch_batches.saturating_add(behind)
    }

    /// Batches of one rank that are in memory at once: those ahead, the one at the accelerator, and what is under way
    /// behind them.
    pub(super) fn kept_batches(&self, batch: u64) -> u64 {
        let behind = self.beyond_samples.div_ceil(batch.max(1));
        self.prefetch_batches.saturating_add(1 + behind)
    }

    /// The plan within the memory that the user grants for buffers and batches: fewer batches ahead, smaller reads.
    fn within(mut self, request: &Request<'_>, batch: u64) -> Result<LoaderPlan, PlanError> {
        let Some(memory) = request.memory else { return Ok(self) };
        let batches = (request.ranks / request.hosts).saturating_mul(self.retained_bytes);
        let buffers = self.buffers(request);
        let smallest = self.transfer_bytes.min(SMALLEST_TRANSFER);
        let of_buffers = buffers.saturating_mul(smallest);
        let needed = batches.saturating_add(of_buffers);
        if memory < needed {
            let batch = (self.retained_bytes > 0).then_some(Bytes(self.retained_bytes));
            return Err(PlanError::TooLittleMemory { granted: Bytes(memory), needed: Bytes(needed), batch });
        }
        if let Some(deepest) = (memory - of_buffers).checked_div(batches) {
            // With fewer batches ahead there may be none to work behind.
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

/// How many threads it takes to have many fetches in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// A fetch occupies its thread until it is done.
    #[default]
    PerReader,
    /// A few threads play all readers.
    PerCore,
    /// One thread plays all readers, in the order of a simulated device's events.
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

fn discipline(spec: &Spec) -> Discipline {
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

/// PyTorch gives each worker whole batches and the same number of them in advance, so its depth is a multiple of the
/// workers, and without workers nothing is read ahead; the others prefetch batches over all readers.
fn prefetch(spec: &Spec, discipline: Discipline, readers: u64) -> u64 {
    let depth = spec.reader.prefetch_size;
    match discipline {
        Discipline::Pytorch if spec.reader.read_threads == 0 => 0,
        Discipline::Pytorch => depth.div_ceil(readers) * readers,
        _ => depth,
    }
}

/// The files that samples are taken from in turn. TensorFlow reads `read_threads` tfrecord files side by side, one
/// sample of each in turn; elsewhere it does so if asked to. Where samples move on their own, files have no turns.
pub(super) fn interleave(spec: &Spec, data: &Data, split: &Split, order: &Order) -> Interleave {
    let reader = &spec.reader;
    let streams = data.streams && split.samples_per_file > 1;
    let default = if streams { reader.read_threads.max(1) } else { 1 };
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
