//! The plan for saving and restoring checkpoints: all decisions that are made before the first one.

use serde::{Deserialize, Serialize};

use super::manifest::Moment;
use super::{Geometry, GeometryError, Scale, Schedule};
use crate::plan::store::tier;
use crate::plan::{MemoryTerm, StorePlan};
use crate::spec::{CacheState, CheckpointMode, SaveMode, Semantics, Spec};
use crate::units::Nanos;

/// What the plan depends on in addition to the spec.
#[derive(Clone, Debug)]
pub struct SaveRequest {
    pub ranks: u64,
    pub scale: Scale,
    /// The last tier, where checkpoints stay, and the fast tier, if there is one.
    pub last: StorePlan,
    pub fast: Option<StorePlan>,
}

/// How a run saves and restores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointPlan {
    #[serde(with = "tier")]
    pub last: StorePlan,
    #[serde(with = "tier::optional")]
    pub fast: Option<StorePlan>,
    /// Whether the pages of files are evicted before a restore.
    pub restore_cold: bool,
    pub geometry: Geometry,
    pub schedule: Schedule,
    /// Whether the checkpoint after an epoch has the number of the next step, as in DLIO, not that of the last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub next_step: bool,
    /// Whether the run has only a part of the ranks that hold the model.
    pub subset: bool,
    pub save: SaveMode,
    /// Whether a save ends when its bytes would survive a crash; otherwise it ends when they are in the page cache.
    pub fsync: bool,
    /// The shift of ranks in a restore: each reads the part of another.
    pub rank_shift: u64,
    /// Whether every rank's time includes waiting for the slowest.
    pub rank_sync: bool,
    /// Files of one rank that are written or read in parallel.
    pub files_in_flight: u64,
    pub chunk_bytes: u64,
    /// Maximum memory of snapshots that are not persistent yet.
    pub pool_bytes: u64,
    /// Maximum number of checkpoints on the fast tier that are not drained yet.
    pub slots: u64,
    /// Maximum bytes per second of a drain.
    pub drain_bytes_per_second: Option<u64>,
    /// Complete checkpoints to keep on the last tier; the others are removed.
    pub keep_last: Option<u64>,
    /// The time to gather the tensors, before the first byte is written.
    pub serialize: Nanos,
}

impl CheckpointPlan {
    /// The plan of a workload; `None` if it saves no checkpoints.
    pub fn resolve(spec: &Spec, request: &SaveRequest) -> Result<Option<CheckpointPlan>, GeometryError> {
        let Some(schedule) = Schedule::of(spec) else { return Ok(None) };
        let asked = &spec.checkpoint;
        Ok(Some(CheckpointPlan {
            last: request.last.clone(),
            fast: request.fast.clone(),
            restore_cold: spec.reader.cache == CacheState::Cold
                && spec.compat.restore_cache == Semantics::Feedline,
            geometry: Geometry::resolve(spec, request.ranks, request.scale)?,
            schedule,
            next_step: spec.compat.checkpoint_step == Semantics::Dlio,
            subset: asked.mode == CheckpointMode::Subset,
            save: asked.mode_of_save,
            fsync: asked.fsync,
            rank_shift: asked.recovery_rank_shift,
            rank_sync: asked.rank_sync,
            files_in_flight: asked.files_in_flight,
            chunk_bytes: asked.chunk_size.next_multiple_of(4096),
            pool_bytes: asked.pool_size,
            slots: asked.burst_slots,
            drain_bytes_per_second: asked.drain_rate,
            keep_last: asked.keep_last,
            serialize: Nanos::from_seconds(asked.serialize_time),
        }))
    }

    /// The name of the checkpoint after an epoch with this number of steps; `None` if there is none.
    pub fn after_epoch(&self, epoch: u64, steps: u64) -> Option<Moment> {
        let step = steps + u64::from(self.next_step);
        self.schedule.after_epoch(epoch).then_some(Moment { epoch, step })
    }

    /// The rule by which a tier injects faults, if any.
    pub(crate) fn injected_faults(&self) -> Option<&str> {
        self.tiers().find_map(|tier| tier.faults.as_deref())
    }

    fn tiers(&self) -> impl Iterator<Item = &StorePlan> {
        self.fast.iter().chain([&self.last])
    }

    /// The last tier, or the fast one.
    pub fn tier(&self, is_fast: bool) -> &StorePlan {
        let fast = if is_fast { self.fast.as_ref() } else { None };
        fast.unwrap_or(&self.last)
    }

    /// The maximum number of checkpoints that are on the last tier at the same time, out of `saves`: one more than are
    /// kept, until the oldest is removed.
    pub fn at_once(&self, saves: u64) -> u64 {
        self.keep_last.map_or(saves, |keep| saves.min(keep.saturating_add(1)))
    }

    /// Maximum memory for saving and restoring, term by term.
    pub fn memory(&self) -> Vec<MemoryTerm> {
        let term = |what: &str, bytes, lower: &str| {
            let (what, lower) = (what.to_owned(), lower.to_owned());
            Some(MemoryTerm { what, bytes, lower }).filter(|term| term.bytes > 0)
        };
        let buffers = "checkpoint.pool_size, checkpoint.files_in_flight or checkpoint.chunk_size";
        let parts = "storage.part_size, storage.parts_in_flight or checkpoint.files_in_flight";
        let terms = [
            term("checkpoint buffers", self.buffer_bytes(), buffers),
            term("parts of uploads", self.upload_bytes(), parts),
        ];
        terms.into_iter().flatten().collect()
    }

    /// The sum of these terms.
    pub fn memory_bytes(&self) -> u64 {
        self.buffer_bytes().saturating_add(self.upload_bytes())
    }

    /// The chunks of files that are written or read, and snapshots.
    pub fn buffer_bytes(&self) -> u64 {
        let writers = self.writers().saturating_mul(CHUNKS_PER_WRITER).saturating_mul(self.chunk_bytes);
        match self.save {
            SaveMode::Direct => writers,
            SaveMode::Async => writers.saturating_add(self.pool_bytes),
            // A save and a drain at the same time.
            SaveMode::BurstBuffer => writers.saturating_mul(2),
        }
    }

    /// The parts of uploads to tiers in object stores.
    pub fn upload_bytes(&self) -> u64 {
        let ranks = 0..self.geometry.ranks;
        let sizes = ranks.flat_map(|rank| self.geometry.files(rank)).map(|file| file.bytes);
        let largest = sizes.max().unwrap_or(0);
        let of_tier = |tier: &StorePlan| tier.requests.upload_memory(self.writers(), largest);
        self.tiers().filter(|tier| tier.is_objects()).map(of_tier).fold(0, u64::saturating_add)
    }

    /// Whether a tier is a simulated device. The null backend is not: it has no device.
    pub fn is_simulated(&self) -> bool {
        self.tiers().any(StorePlan::is_simulated)
    }

    /// Threads that write or read files in parallel.
    pub fn writers(&self) -> u64 {
        self.files_in_flight.saturating_mul(self.geometry.ranks).clamp(1, MOST_WRITERS)
    }
}

/// Buffers of one file: those in flight, and the one being filled.
const CHUNKS_PER_WRITER: u64 = 5;
/// More threads than this do not help on one host.
const MOST_WRITERS: u64 = 64;
