//! The port through which a front end shows progress. The session says what starts and how large it is; the events and
//! live counters come from the engine. Of several members, member 0 shows the sum of all; the others publish theirs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use engine::meter::Monotonic;
use engine::{Events, LiveFigures, Progress, SplitFiles, World};
use model::ledger::Ledger;
use model::units::Nanos;
use store::Now;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivityUnit {
    /// Samples that accelerators train with, whose utilization is shown, too.
    Samples,
    Files,
    /// Keys of an object store.
    Keys,
}

impl ActivityUnit {
    pub fn name(self) -> &'static str {
        match self {
            ActivityUnit::Samples => "samples",
            ActivityUnit::Files => "files",
            ActivityUnit::Keys => "keys",
        }
    }
}

/// The size of an activity.
#[derive(Clone, Copy, Debug)]
pub struct Activity {
    pub what: &'static str,
    pub unit: ActivityUnit,
    /// 0 if unknown: then there is no percentage and no remaining time.
    pub total: u64,
}

impl Activity {
    /// How many of the total are done, and their bytes.
    pub fn done(&self, progress: &Progress) -> (u64, u64) {
        match self.unit {
            ActivityUnit::Samples => (progress.samples, progress.bytes),
            ActivityUnit::Files | ActivityUnit::Keys => (progress.files, progress.file_bytes),
        }
    }
}

/// What a display shows.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a pair of references, one of them to a world")]
pub struct ObservedWork<'a> {
    /// The events of this member.
    pub events: &'a Events,
    world: &'a dyn World,
    /// What was known of other members before the work.
    before: &'a [(u64, LiveFigures)],
}

impl ObservedWork<'_> {
    /// The counters of all members.
    pub fn progress(&self) -> Progress {
        self.others().fold(self.events.progress(), |sum, (_, figures)| sum + figures.totals)
    }

    /// The figures of other members. Those of earlier work are left out; a member keeps them until its next work.
    fn others(&self) -> impl Iterator<Item = (u64, LiveFigures)> {
        self.world.figures().into_iter().filter(|known| !known.1.ended || !self.before.contains(known))
    }

    /// The figures of each member that is known, with the number of its host.
    pub fn members(&self) -> Vec<(u64, LiveFigures)> {
        let topology = self.world.topology();
        let all = [(self.world.member(), self.events.figures())].into_iter().chain(self.others());
        all.map(|(member, figures)| (topology.node_of(member), figures)).collect()
    }

    /// The names of the hosts, by their numbers.
    pub fn nodes(&self) -> Vec<String> {
        let topology = self.world.topology();
        (0..topology.nodes()).map(|node| topology.name(node).to_owned()).collect()
    }
}

/// A display of progress.
pub trait Observer: Sync {
    /// Calls `work`, and meanwhile shows the events and counters that it and its other members write.
    fn during(&self, goal: &Activity, shown: ObservedWork<'_>, work: &mut dyn FnMut());

    /// The run that was observed last has ended, with this ledger of all members. Called at member 0. It has what the
    /// last figures of other members may lack.
    fn measured(&self, ledger: &Ledger) {
        let _ = ledger;
    }
}

/// Shows nothing.
#[derive(Clone, Copy, Debug)]
pub struct SilentObserver;

impl Observer for SilentObserver {
    fn during(&self, _goal: &Activity, _shown: ObservedWork<'_>, work: &mut dyn FnMut()) {
        work();
    }
}

/// A run whose operations can be recorded.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a bundle of references, one of them to a world")]
pub struct RecordedRun<'a> {
    /// The events of this member.
    pub events: &'a Events,
    pub world: &'a dyn World,
    /// The names of the files that training and evaluation read; `None` without training.
    pub files: Option<SplitFiles<'a>>,
}

/// Records the operations of a run. Unlike an observer, it is called at every member, and only for the run itself: not
/// while a data set is generated or feedline is calibrated.
pub trait Recorder: Sync {
    /// Calls `work`, and meanwhile records its operations.
    fn during(&self, run: RecordedRun<'_>, work: &mut dyn FnMut());
}

/// Does work while its operations are recorded, if they are to be.
pub(crate) fn recorded<T>(
    recorder: Option<&dyn Recorder>,
    run: RecordedRun<'_>,
    work: impl FnOnce() -> T,
) -> T {
    let (mut work, mut done) = (Some(work), None);
    let mut once = || {
        if let Some(work) = work.take() {
            done = Some(work());
        }
    };
    if let Some(recorder) = recorder {
        recorder.during(run, &mut once);
    }
    // Without a recorder, or if it did not call it, the work is done here.
    once();
    match done {
        Some(done) => done,
        None => unreachable!("the work was done once"),
    }
}

/// How often a member publishes its progress.
const PERIOD: Duration = Duration::from_millis(100);

/// Calls `work`, and meanwhile makes its progress known to member 0. The other members also learn from it that this one
/// responds, however long the work takes.
fn published(events: &Events, world: &dyn World, work: impl FnOnce()) {
    if world.members() == 1 {
        return work();
    }
    let over = &AtomicBool::new(false);
    thread::scope(|scope| {
        let publish = || {
            // Acquire: pairs with the Release below, so that the last progress is complete.
            while !over.load(Ordering::Acquire) {
                world.publish(events.figures());
                thread::park_timeout(PERIOD);
            }
            world.publish(LiveFigures { ended: true, ..events.figures() });
        };
        // If no thread can be started, the work is done all the same.
        let thread = thread::Builder::new().name("publisher".to_owned()).spawn_scoped(scope, publish).ok();
        let _ends = PublisherGuard { over, thread: thread.as_ref().map(|thread| thread.thread()) };
        work();
    });
}

/// Ends the publisher, even if the work panics.
struct PublisherGuard<'a> {
    over: &'a AtomicBool,
    thread: Option<&'a Thread>,
}

impl Drop for PublisherGuard<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread {
            thread.unpark();
        }
    }
}

/// Does work while an observer shows it at member 0; returns the time that it took, too.
pub fn observed<T>(
    observer: &dyn Observer,
    world: &dyn World,
    goal: Activity,
    work: impl FnOnce(&Events) -> T,
) -> (T, Nanos) {
    let (events, mut work, mut done) = (Events::default(), Some(work), None);
    let mut once = || {
        if let Some(work) = work.take() {
            let clock = Monotonic::new();
            published(&events, world, || {
                let value = work(&events);
                done = Some((value, clock.now()));
            });
        }
    };
    if world.member() == 0 {
        let before = world.figures();
        observer.during(&goal, ObservedWork { events: &events, world, before: &before }, &mut once);
    }
    // At other members, or if the observer did not call it, the work is done here.
    once();
    match done {
        Some(done) => done,
        None => unreachable!("the work was done once"),
    }
}
