//! What happens in a run, as it happens: one stream for progress, live figures and traces. Results do not depend on it.
//!
//! What happens thousands of times a second is counted: workers add to counters, and a listener reads them at any time.
//! What happens rarely is an event. Each thread that emits events has a bounded queue for each listener, created with
//! its first event. A full queue drops the event and counts it, so that no thread ever waits for a listener. Without a
//! listener, emitting costs one load. Single operations are recorded, too, if a listener asks for them: see `spans`.

mod ring;
mod spans;

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use model::checkpoint::manifest::Moment;
use model::ledger::{BlockWindow, Phase};
use model::units::Nanos;

use crate::counters::Counters;
use crate::figures::{LiveFigures, Progress};

use crate::sync;
pub(crate) use spans::{RARELY, SpanSource};
pub use spans::{SpanRequest, SpanStream};

/// An event. It is small and owns no memory, so emitting one allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    EpochBegan {
        epoch: u64,
    },
    EpochEnded {
        epoch: u64,
    },
    /// The page cache is being prepared for the next phase.
    PreparationBegan,
    PreparationEnded,
    PhaseBegan {
        epoch: u64,
        phase: Phase,
    },
    PhaseEnded {
        epoch: u64,
        phase: Phase,
    },
    /// A block of steps of a phase has begun: with the phase, or after a checkpoint. Blocks count from 1.
    BlockBegan {
        block: u64,
    },
    /// A block has ended, of which the first rank of this member has seen this.
    BlockEnded {
        block: u64,
        took: Nanos,
        seen: BlockWindow,
    },
    /// A rank has its first batch of a phase.
    FirstBatch {
        rank: u64,
    },
    /// A rank has begun a step, after waiting for its batch, and will compute for this long.
    StepBegan {
        rank: u64,
        step: u64,
        wait: Nanos,
        compute: Nanos,
    },
    /// A sample could not be read.
    ErrorMet {
        rank: u64,
        step: u64,
    },
    CheckpointBegan {
        moment: Moment,
    },
    /// A checkpoint is complete on the fast tier, from where it will be drained, or on the last one.
    CheckpointComplete {
        moment: Moment,
        on_fast: bool,
    },
    /// Training continues after a checkpoint. Rank 0 waited for this long, or for its own files if it waits for
    /// nothing else.
    CheckpointSaved {
        moment: Moment,
        took: Nanos,
    },
    RestoreBegan {
        moment: Moment,
    },
    /// A checkpoint was restored; rank 0 took this long.
    Restored {
        moment: Moment,
        took: Nanos,
    },
}

impl Event {
    /// Whether it happens so often that a listener has to ask for it.
    fn is_detail(self) -> bool {
        matches!(self, Event::StepBegan { .. } | Event::FirstBatch { .. })
    }
}

/// An event and its time on the run's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampedEvent {
    pub at: Nanos,
    pub event: Event,
}

/// An event with its number, which orders events of the same time.
type NumberedEvent = (u64, StampedEvent);

/// Which events a listener asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Events of the whole run.
    Milestones = 1,
    /// Also events of every rank and step.
    Steps = 2,
}

impl Detail {
    /// Capacity of a thread's queue: many times the events between two calls of `drain`.
    fn capacity(self) -> usize {
        match self {
            Detail::Milestones => 64,
            Detail::Steps => 8192,
        }
    }
}

/// The events and counters of a run.
#[derive(Debug, Default)]
pub struct Events {
    counters: Counters,
    /// The highest `Detail` that a listener asks for; 0 without a listener.
    wanted: AtomicU8,
    listeners: Mutex<Vec<Arc<ListenerState>>>,
    /// The number of the next event.
    next: AtomicU64,
    spans: spans::SpanListeners,
}

/// What emitting threads and one listener share.
#[derive(Debug)]
struct ListenerState {
    detail: Detail,
    queues: Mutex<Vec<Receiver<NumberedEvent>>>,
    dropped: AtomicU64,
    /// The listener's thread.
    reader: OnceLock<Thread>,
}

impl Events {
    /// Starts keeping events for a listener. It gets all events of threads whose first event is emitted later, so it
    /// is called before the work begins.
    pub fn listen(&self, detail: Detail) -> EventStream {
        let (queues, dropped, reader) = (Mutex::default(), AtomicU64::new(0), OnceLock::new());
        let state = Arc::new(ListenerState { detail, queues, dropped, reader });
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&state));
        // Relaxed: a thread that sees the change late emits its first event a little later.
        self.wanted.fetch_max(detail as u8, Ordering::Relaxed);
        EventStream { state }
    }

    /// The counters that workers add to.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The counters of this member.
    pub fn progress(&self) -> Progress {
        self.counters.progress()
    }

    /// The same with the figures of ranks.
    pub fn figures(&self) -> LiveFigures {
        self.counters.figures()
    }

    fn wanted(&self) -> Option<Detail> {
        match self.wanted.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Detail::Milestones),
            _ => Some(Detail::Steps),
        }
    }
}

/// One thread's source of events, for the events of one run.
#[derive(Debug, Default)]
pub(crate) struct Emitter {
    queues: OnceLock<Vec<EmitterQueue>>,
}

/// The queue from one thread to one listener.
#[derive(Debug)]
struct EmitterQueue {
    listener: Arc<ListenerState>,
    queue: SyncSender<NumberedEvent>,
}

impl Emitter {
    pub(crate) fn emit(&self, events: &Events, at: Nanos, event: Event) {
        let Some(wanted) = events.wanted() else { return };
        if event.is_detail() && wanted < Detail::Steps {
            return;
        }
        let number = events.next.fetch_add(1, Ordering::Relaxed);
        let stamped = (number, StampedEvent { at, event });
        for EmitterQueue { listener, queue } in self.queues.get_or_init(|| events.new_queues()) {
            if event.is_detail() && listener.detail < Detail::Steps {
                continue;
            }
            if let Err(TrySendError::Full(_)) = queue.try_send(stamped) {
                listener.dropped.fetch_add(1, Ordering::Relaxed);
            }
            // Events of the whole run are shown immediately. This is a system call only if the listener sleeps.
            if let Some(reader) = listener.reader.get().filter(|_| !event.is_detail()) {
                reader.unpark();
            }
        }
    }
}

impl Events {
    /// A queue to each listener, for a thread that emits its first event.
    fn new_queues(&self) -> Vec<EmitterQueue> {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let connect = |listener: &Arc<ListenerState>| {
            let (queue, receiver) = sync_channel(listener.detail.capacity());
            listener.queues.lock().unwrap_or_else(PoisonError::into_inner).push(receiver);
            EmitterQueue { listener: Arc::clone(listener), queue }
        };
        listeners.iter().map(connect).collect()
    }
}

/// The listener's end.
#[derive(Debug)]
pub struct EventStream {
    state: Arc<ListenerState>,
}

/// What has happened since the last call of `drain`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainedEvents {
    /// In the order of their times.
    pub events: Vec<StampedEvent>,
    /// Events that were lost because a queue was full.
    pub dropped: u64,
}

impl EventStream {
    /// Takes all pending events.
    pub fn drain(&self) -> DrainedEvents {
        let mut events = Vec::new();
        let mut queues = self.state.queues.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let before = events.len();
            queues.retain(|queue| take_all(queue, &mut events));
            // An event may be followed by one in a queue that is drained later. Then it is found here, so that no
            // event is returned before one that preceded it.
            if events.len() == before || events.len() > MOST_DRAINED_AGAIN {
                break;
            }
        }
        drop(queues);
        events.sort_by_key(|(number, stamped)| (stamped.at, *number));
        let events = events.into_iter().map(|(_, stamped)| stamped).collect();
        DrainedEvents { events, dropped: self.state.dropped.swap(0, Ordering::Relaxed) }
    }

    /// Sleeps until there is an event of the whole run, at most this long. May return early. For one thread only.
    pub fn wait(&self, timeout: Duration) {
        self.state.reader.get_or_init(std::thread::current);
        std::thread::park_timeout(timeout);
    }
}

/// More events than this are steps, which may be emitted faster than they are drained.
const MOST_DRAINED_AGAIN: usize = 1000;

/// Takes what is in a queue; returns whether its thread may emit more.
fn take_all(queue: &Receiver<NumberedEvent>, events: &mut Vec<NumberedEvent>) -> bool {
    loop {
        match queue.try_recv() {
            Ok(event) => events.push(event),
            Err(TryRecvError::Empty) => return true,
            // The emitting thread has ended.
            Err(TryRecvError::Disconnected) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn began(epoch: u64) -> Event {
        Event::EpochBegan { epoch }
    }

    #[test]
    fn events_of_all_threads_are_sorted_by_time() {
        let events = Events::default();
        let stream = events.listen(Detail::Milestones);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let events = &events;
                scope.spawn(move || {
                    let emitter = Emitter::default();
                    (0..10).for_each(|turn| emitter.emit(events, Nanos(10 * turn + thread), began(thread)));
                });
            }
        });
        let DrainedEvents { events: all, dropped } = stream.drain();
        assert_eq!((all.len(), dropped), (40, 0));
        assert!(all.is_sorted_by_key(|stamped| stamped.at));
        assert_eq!(stream.drain(), DrainedEvents::default());
        assert!(stream.state.queues.lock().unwrap().is_empty(), "queues of ended threads are removed");
    }

    #[test]
    fn events_of_the_same_time_are_in_the_order_in_which_they_were_emitted() {
        let events = Events::default();
        let stream = events.listen(Detail::Milestones);
        let (one, other) = (Emitter::default(), Emitter::default());
        for (emitter, epoch) in [(&one, 1), (&other, 2), (&one, 3), (&other, 4)] {
            emitter.emit(&events, Nanos(7), began(epoch));
        }
        let drained = stream.drain().events.into_iter().map(|stamped| stamped.event);
        assert_eq!(drained.collect::<Vec<_>>(), [1, 2, 3, 4].map(began));
    }

    #[test]
    fn a_full_queue_drops_and_counts_without_affecting_other_queues() {
        let events = Events::default();
        let stream = events.listen(Detail::Milestones);
        let (noisy, quiet) = (Emitter::default(), Emitter::default());
        (0..100).for_each(|at| noisy.emit(&events, Nanos(at), began(1)));
        quiet.emit(&events, Nanos(1000), began(2));
        let drained = stream.drain();
        assert_eq!((drained.events.len(), drained.dropped), (65, 36));
        assert_eq!(drained.events.last(), Some(&StampedEvent { at: Nanos(1000), event: began(2) }));
        noisy.emit(&events, Nanos(2000), began(3));
        assert_eq!(stream.drain().events.len(), 1, "there is space again");
    }

    #[test]
    fn each_listener_gets_the_events_that_it_asked_for() {
        let (events, detail) = (Events::default(), Event::FirstBatch { rank: 0 });
        Emitter::default().emit(&events, Nanos(0), began(1));
        let (coarse, fine) = (events.listen(Detail::Milestones), events.listen(Detail::Steps));
        assert_eq!(coarse.drain(), DrainedEvents::default(), "there was no listener");
        let emitter = Emitter::default();
        emitter.emit(&events, Nanos(1), detail);
        emitter.emit(&events, Nanos(2), began(2));
        let [first, second] =
            [(1, detail), (2, began(2))].map(|(at, event)| StampedEvent { at: Nanos(at), event });
        assert_eq!(coarse.drain().events, [second]);
        assert_eq!(fine.drain().events, [first, second], "what another listener has taken is still there");
    }
}
