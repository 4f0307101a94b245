//! Times of samples and of their preprocessing: each goes to the ledger and, if a listener asks for operations, to it.

use model::spans::SpanKind;
use model::units::Nanos;

use super::ReaderThread;

impl ReaderThread<'_, '_, '_> {
    /// Records how long a reader's samples took since `began`, and their bytes.
    pub(super) fn record_sample(&mut self, place: usize, (began, took): (Nanos, Nanos), bytes: u64) {
        self.delivered.latencies.sample.record(took);
        if let Some(spans) = self.spans {
            spans.record(place, SpanKind::Sample, (began, took), bytes);
        }
    }

    /// Records how long the preprocessing of a reader's samples took since `began`.
    pub(super) fn record_preprocessing(&mut self, place: usize, (began, took): (Nanos, Nanos)) {
        self.delivered.latencies.prep.record(took);
        if let Some(spans) = self.spans {
            spans.record(place, SpanKind::Prep, (began, took), 0);
        }
    }
}
