//! The operations of accelerators, for listeners. They carry the times that the ledger has; no clock is read.

use model::spans::{OperationSpan, SpanKind, SpanTrack};
use model::units::Nanos;

use super::Driver;

impl Driver<'_> {
    /// The accelerator has got the batch that it waited for.
    pub(super) fn record_wait(&self, rank: usize, span: (Nanos, Nanos)) {
        self.record(rank, SpanKind::BatchWait, span);
    }

    /// The accelerator's step is over, and it requests its next batch at `asks`.
    pub(super) fn record_step(&self, rank: usize, asks: Nanos) {
        let accelerator = &self.ranks[rank];
        let ((wait, copy, compute), ends) = (accelerator.begun, accelerator.ends);
        if copy > Nanos::ZERO {
            self.record(rank, SpanKind::Copy, (accelerator.asks + wait, copy));
        }
        self.record(rank, SpanKind::Compute, (ends - compute, compute));
        if self.context.run.phase.barrier {
            self.record(rank, SpanKind::Barrier, (ends, asks - ends));
        }
    }

    /// All accelerators have waited this long for a checkpoint.
    pub(super) fn record_pause(&self, pause: Nanos) {
        for (rank, accelerator) in self.ranks.iter().enumerate() {
            self.record(rank, SpanKind::Pause, (accelerator.asks - pause, pause));
        }
    }

    fn record(&self, rank: usize, kind: SpanKind, (at, took): (Nanos, Nanos)) {
        let Some(spans) = &self.spans else { return };
        let (run, step) = (self.context.run, Some(self.ranks[rank].step as u32));
        let track = SpanTrack::Rank((run.first_rank + rank as u64) as u32);
        spans.record(&OperationSpan { epoch: run.epoch, step, ..OperationSpan::new(kind, track, at, took) });
    }
}
