//! Passes single operations from the threads that time them to a listener, usually a trace. Each thread has a
//! ring for each listener, created before its work begins; a full ring drops the operation and counts it. Without a
//! listener, a thread has no ring and does nothing.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::spans::{OperationSpan, SpanTrack, is_traced};
use model::units::Share;

use super::Events;
use super::ring::WordRing;

/// Operations that the rings of all threads together have room for, within the bounds of one ring. An operation takes
/// 64 bytes.
const ALL_RINGS: usize = 1 << 20;
const RING_BOUNDS: RangeInclusive<usize> = 1024..=32_768;

/// Instead of a number of threads: for a thread that records a few operations per second.
pub(crate) const RARELY: usize = ALL_RINGS;

/// Which operations a listener asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanRequest {
    /// The share of steps whose operations are recorded.
    pub steps: Share,
    /// Operations that each ring has room for; `None`: by the number of threads.
    pub ring: Option<usize>,
}

impl SpanRequest {
    /// Whether an operation is one of those; epochs and checkpoints always are.
    fn wants(&self, span: &OperationSpan) -> bool {
        match (span.track, span.step) {
            (SpanTrack::Rank(_) | SpanTrack::Reader { .. }, Some(step)) => {
                is_traced(self.steps, u64::from(step))
            }
            _ => true,
        }
    }
}

/// What the threads and one listener share.
#[derive(Debug)]
struct SpanListener {
    request: SpanRequest,
    /// Set when the listener needs no more operations.
    stopped: AtomicBool,
    rings: Mutex<SpanRings>,
    /// Operations that were dropped by rings whose thread has ended.
    dropped: AtomicU64,
}

type SpanRing = Arc<WordRing<8>>;

/// The rings of threads that work, and those of threads that have ended. These are used again: threads are started for
/// every phase, and a new ring would take their first half millisecond.
#[derive(Debug, Default)]
struct SpanRings {
    used: Vec<SpanRing>,
    free: Vec<SpanRing>,
}

impl SpanRings {
    fn take(&mut self, capacity: usize) -> SpanRing {
        let fits = |ring: &SpanRing| ring.capacity() == capacity.next_power_of_two() as u64;
        let ring = match self.free.iter().position(fits) {
            Some(place) => self.free.swap_remove(place),
            None => Arc::new(WordRing::new(capacity)),
        };
        self.used.push(Arc::clone(&ring));
        ring
    }

    /// The thread of this ring has ended, and all that it recorded was taken out.
    fn give_back(&mut self, ring: SpanRing) -> u64 {
        self.used.retain(|other| !Arc::ptr_eq(other, &ring));
        let dropped = ring.reopen();
        self.free.push(ring);
        dropped
    }
}

/// The listeners of a run.
#[derive(Debug, Default)]
pub(super) struct SpanListeners(Mutex<Vec<Arc<SpanListener>>>);

impl Events {
    /// Starts recording operations. It gets those of threads that begin their work later, so it is called before the
    /// run begins.
    pub fn record(&self, request: SpanRequest) -> SpanStream {
        let listener = Arc::new(SpanListener {
            request,
            stopped: AtomicBool::new(false),
            rings: Mutex::default(),
            dropped: AtomicU64::new(0),
        });
        self.spans.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&listener));
        SpanStream { listener }
    }

    /// Where one of `threads` threads records its operations; `None` if there is no listener.
    pub(crate) fn span_source(&self, threads: usize) -> Option<SpanSource> {
        let listeners = self.spans.0.lock().unwrap_or_else(PoisonError::into_inner);
        let connect = |listener: &Arc<SpanListener>| {
            let fitting = (ALL_RINGS / threads.max(1)).clamp(*RING_BOUNDS.start(), *RING_BOUNDS.end());
            let capacity = listener.request.ring.unwrap_or(fitting);
            let ring = listener.rings.lock().unwrap_or_else(PoisonError::into_inner).take(capacity);
            SpanOutlet { listener: Arc::clone(listener), ring }
        };
        // Relaxed: a listener that stops at this moment gets an empty ring.
        let active = listeners.iter().filter(|listener| !listener.stopped.load(Ordering::Relaxed));
        let outlets: Vec<SpanOutlet> = active.map(connect).collect();
        (!outlets.is_empty()).then_some(SpanSource { outlets })
    }
}

/// One thread's source of operations, or that of the holder of a lock.
#[derive(Debug)]
pub(crate) struct SpanSource {
    outlets: Vec<SpanOutlet>,
}

/// The way from one thread to one listener.
#[derive(Debug)]
struct SpanOutlet {
    listener: Arc<SpanListener>,
    ring: SpanRing,
}

impl SpanSource {
    /// Passes an operation to the listeners. To be called by one thread at a time.
    pub(crate) fn record(&self, span: &OperationSpan) {
        for SpanOutlet { listener, ring } in &self.outlets {
            // Relaxed: an operation more or less after the stop does not matter.
            if listener.stopped.load(Ordering::Relaxed) {
                continue;
            }
            if listener.request.wants(span) {
                ring.push(&span.to_words());
            }
        }
    }
}

impl Drop for SpanSource {
    fn drop(&mut self) {
        self.outlets.iter().for_each(|outlet| outlet.ring.close());
    }
}

/// The listener's end.
#[derive(Debug)]
pub struct SpanStream {
    listener: Arc<SpanListener>,
}

impl SpanStream {
    /// Takes all pending operations, those of one thread after another. To be called by one thread at a time.
    pub fn drain(&self, each: &mut dyn FnMut(&OperationSpan)) {
        // The list is copied, so that a thread that begins its work does not wait for `each`.
        let rings = self.rings().used.clone();
        let mut over = Vec::new();
        for ring in rings {
            let is_closed = ring.is_closed();
            ring.drain(|words| {
                if let Some(span) = OperationSpan::from_words(words) {
                    each(&span);
                }
            });
            if is_closed {
                over.push(ring);
            }
        }
        for ring in over {
            let dropped = self.rings().give_back(ring);
            // Relaxed: a count that only this thread writes.
            self.listener.dropped.fetch_add(dropped, Ordering::Relaxed);
        }
    }

    /// Operations that were lost so far because a ring was full.
    pub fn dropped(&self) -> u64 {
        let rings = self.rings();
        // Relaxed: see `drain`.
        self.listener.dropped.load(Ordering::Relaxed)
            + rings.used.iter().map(|ring| ring.dropped()).sum::<u64>()
    }

    /// Ends the recording: threads record nothing from now on.
    pub fn stop(&self) {
        // Relaxed: it publishes no other data.
        self.listener.stopped.store(true, Ordering::Relaxed);
    }

    fn rings(&self) -> MutexGuard<'_, SpanRings> {
        self.listener.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use model::spans::SpanKind;
    use model::units::Nanos;

    use super::*;

    const ALL: Share = Share { numerator: 1, denominator: 1 };

    fn span(step: u32) -> OperationSpan {
        let step = Some(step);
        OperationSpan { step, ..OperationSpan::new(SpanKind::Read, SpanTrack::Rank(0), Nanos(1), Nanos(2)) }
    }

    fn steps(stream: &SpanStream) -> Vec<u32> {
        let mut seen = Vec::new();
        stream.drain(&mut |span| seen.extend(span.step));
        seen
    }

    #[test]
    fn a_full_ring_drops_and_counts() {
        let events = Events::default();
        let stream = events.record(SpanRequest { steps: ALL, ring: Some(4) });
        let source = events.span_source(1).unwrap();
        (0..10).for_each(|step| source.record(&span(step)));
        assert_eq!((steps(&stream), stream.dropped()), (vec![0, 1, 2, 3], 6));
        source.record(&span(10));
        drop(source);
        assert_eq!((steps(&stream), stream.dropped()), (vec![10], 6), "the count outlives the ring");
        assert!(stream.rings().used.is_empty());
        let again = events.span_source(1).unwrap();
        assert!(stream.rings().free.is_empty(), "the ring is used again");
        (0..5).for_each(|step| again.record(&span(step)));
        assert_eq!((steps(&stream), stream.dropped()), (vec![0, 1, 2, 3], 7));
    }

    #[test]
    fn nothing_is_recorded_without_a_listener_or_after_its_stop() {
        let events = Events::default();
        assert!(events.span_source(1).is_none());
        let stream = events.record(SpanRequest { steps: ALL, ring: None });
        let source = events.span_source(1).unwrap();
        source.record(&span(1));
        stream.stop();
        source.record(&span(2));
        assert_eq!((steps(&stream), stream.dropped()), (vec![1], 0));
        assert!(events.span_source(1).is_none());
    }

    #[test]
    fn a_share_of_steps_is_recorded_for_each_listener() {
        let events = Events::default();
        let half = events.record(SpanRequest { steps: Share { numerator: 1, denominator: 2 }, ring: None });
        let all = events.record(SpanRequest { steps: ALL, ring: None });
        let source = events.span_source(1).unwrap();
        (0..5).for_each(|step| source.record(&span(step)));
        assert_eq!((steps(&half), steps(&all)), (vec![0, 2, 4], vec![0, 1, 2, 3, 4]));
    }
}
