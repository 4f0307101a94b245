//! How checkpoints will be saved and restored: everything that is settled before the first one, in numbers.

use serde::{Deserialize, Serialize};

use super::{Geometry, GeometryError, Scale, Schedule};
use crate::spec::{SaveMode, Spec};
use crate::units::Nanos;

/// How a run saves and restores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointPlan {
    pub geometry: Geometry,
    pub schedule: Schedule,
    pub save: SaveMode,
    /// Whether a save ends when its bytes would survive a crash, or when the kernel has them.
    pub fsync: bool,
    /// Ranks by which a restore is shifted: each reads the part of another.
    pub rank_shift: u64,
    /// Whether every rank's time includes waiting for the slowest.
    pub rank_sync: bool,
    /// Files of one rank that are written or read at once.
    pub files_in_flight: u64,
    pub chunk_bytes: u64,
    /// Most memory of a snapshot that is not persistent yet.
    pub pool_bytes: u64,
    /// Checkpoints on the fast tier that are not drained yet.
    pub slots: u64,
    /// Most bytes per second of a drain.
    pub drain_bytes_per_second: Option<u64>,
    /// Complete checkpoints that are kept on the last tier; the rest is removed.
    pub keep_last: Option<u64>,
    /// What gathering the tensors takes, before a byte is written.
    pub serialize: Nanos,
}

impl CheckpointPlan {
    /// The plan of a workload on so many ranks; `None` if it takes no checkpoints.
    pub fn resolve(spec: &Spec, ranks: u64, scale: Scale) -> Result<Option<CheckpointPlan>, GeometryError> {
        let Some(schedule) = Schedule::of(spec) else { return Ok(None) };
        let asked = &spec.checkpoint;
        Ok(Some(CheckpointPlan {
            geometry: Geometry::resolve(spec, ranks, scale)?,
            schedule,
            save: asked.mode_of_save,
            fsync: asked.fsync,
            rank_shift: u64::from(asked.recovery_rank_shift),
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

    /// Memory that saving and restoring take at most.
    pub fn memory_bytes(&self) -> u64 {
        let writers = self.writers() * CHUNKS_PER_WRITER * self.chunk_bytes;
        match self.save {
            SaveMode::Direct => writers,
            SaveMode::Async => writers + self.pool_bytes,
            // A save and a drain at the same time.
            SaveMode::BurstBuffer => 2 * writers,
        }
    }

    /// Threads that write or read files at once.
    pub fn writers(&self) -> u64 {
        self.files_in_flight.saturating_mul(self.geometry.ranks).clamp(1, MOST_WRITERS)
    }
}

/// Buffers of one file: those in flight and the one that is being filled.
const CHUNKS_PER_WRITER: u64 = 5;
/// More threads than this bring nothing on one host.
const MOST_WRITERS: u64 = 64;
