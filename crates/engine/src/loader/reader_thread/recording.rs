//! What a reader thread has observed. Times of samples and of their preprocessing go to the ledger and, if a listener
//! asks for operations, to it; those of the lane are added at the end.

use model::spans::SpanKind;
use model::units::Nanos;

use super::{Delivered, ReaderThread};

impl ReaderThread<'_, '_, '_> {
    /// Adds the requests since the last call to the live counters.
    pub(super) fn tell_requests(&mut self) {
        if let Some(requests) = self.lane.requests() {
            self.run.events.counters().add_requests(&requests.since(&self.told));
            self.told = requests;
        }
    }

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

    /// Ends the thread: what it has delivered, with the times and requests of its lane.
    pub(super) fn finish(mut self) -> Delivered {
        self.tell_requests();
        self.run.threads[self.thread].set(0);
        let spans = self.lane.take_spans();
        self.delivered.latencies.open += spans.open;
        self.delivered.latencies.connect += spans.connect;
        self.delivered.latencies.first_byte += spans.first_byte;
        self.delivered.latencies.body += spans.body;
        self.delivered.latencies.probe += spans.probe;
        self.delivered.latencies.read += spans.read;
        self.delivered.latencies.forget += spans.forget;
        self.delivered.latencies.close += spans.close;
        self.delivered.requests += spans.requests;
        self.delivered
    }
}
