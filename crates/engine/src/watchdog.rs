//! Checks that work makes progress, and that it ends when it should. Work without progress for the stall timeout is
//! asked to end, with a list of its pending operations. Threads that hang in the kernel cannot react and cannot be
//! joined; in that case the caller's last resort, `Stop::abandon`, is called.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use model::units::Nanos;
use store::{Now, Operation, Track};

use crate::meter::Monotonic;
use crate::stop::Stop;
use crate::waits;

/// How often it checks, and how long it waits for work that was asked to end: longer than a ring takes to give up on
/// requests that the kernel does not complete.
const PERIOD: Duration = Duration::from_millis(100);
const GRACE: Nanos = Nanos(3_000_000_000);
/// The longest time that counts as passed between two checks.
const LONGEST: Nanos = Nanos(1_000_000_000);
/// Maximum number of pending operations that a message names.
const MOST_NAMED: usize = 8;

/// Work that can be watched.
pub(crate) trait Watched: Sync {
    /// A number that changes with all progress.
    fn progress(&self) -> u64;
    /// Whether something takes time by plan and not because of storage: simulated time, CPU work.
    fn is_busy(&self) -> bool {
        false
    }
    /// The pending operations, the oldest first.
    fn waits(&self) -> Vec<String>;
    /// Why the work ends early, if it does.
    fn ending(&self) -> Option<String>;
    /// Ends the work for this reason.
    fn end(&self, cause: String);
}

/// Does the work while a watchdog thread checks it.
pub(crate) fn guard<T>(stop: &Stop, watched: &dyn Watched, work: impl FnOnce() -> T) -> T {
    if !stop.is_watchful() {
        return work();
    }
    // The watchdog ends when the work drops its end of the channel: immediately, and also if the work panics.
    let (working, over) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let watchdog = std::thread::Builder::new().name("watchdog".to_owned());
        if let Err(cause) = watchdog.spawn_scoped(scope, move || keep_watch(stop, watched, &over)) {
            watched.end(format!("cannot start the watchdog thread: {cause}"));
        }
        let value = work();
        drop(working);
        value
    })
}

fn keep_watch(stop: &Stop, watched: &dyn Watched, over: &Receiver<()>) {
    let clock = Monotonic::new();
    // A long flush makes progress that the work itself cannot report.
    let done = || watched.progress().wrapping_add(waits::progress());
    let (mut progress, mut looked) = (done(), clock.now());
    // The time without progress, or, once the work was asked to end, the time since then.
    let (mut quiet, mut told) = (Nanos::ZERO, false);
    while over.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
        let now = clock.now();
        // If the process was stopped and continued, that time does not count.
        quiet += now.since(looked).min(LONGEST);
        looked = now;
        if told {
            if quiet >= GRACE {
                stop.abandon(&stuck_message(stop, watched));
                return;
            }
        } else if stop.wished() || watched.ending().is_some() {
            (quiet, told) = (Nanos::ZERO, true);
        } else if done() != progress || watched.is_busy() {
            (progress, quiet) = (done(), Nanos::ZERO);
        } else if stop.patience().is_some_and(|patience| quiet >= patience) {
            watched.end(format!("no progress for {quiet}: {}", named(watched.waits())));
            (quiet, told) = (Nanos::ZERO, true);
        }
    }
}

/// The message about work that does not end.
fn stuck_message(stop: &Stop, watched: &dyn Watched) -> String {
    let cause = watched
        .ending()
        .unwrap_or_else(|| (if stop.wished() { "interrupted" } else { "no stop was requested" }).to_owned());
    let in_kernel = waits::blocked().map_or_else(String::new, |what| format!("\n  in the kernel: {what}"));
    format!("{cause}\n  still not ended {GRACE} later: {}{in_kernel}", named(watched.waits()))
}

/// The first few of the pending operations.
fn named(mut waits: Vec<String>) -> String {
    if waits.is_empty() {
        return "no pending operation is known".to_owned();
    }
    let more = waits.len().saturating_sub(MOST_NAMED);
    waits.truncate(MOST_NAMED);
    if more > 0 {
        waits.push(format!("and {more} more"));
    }
    waits.join("; ")
}

/// The current operation of each of several threads.
#[derive(Debug)]
pub(crate) struct WorkerStatus {
    /// What such a thread is called in messages.
    role: &'static str,
    hands: Vec<(Track, Mutex<String>)>,
}

impl WorkerStatus {
    pub(crate) fn new(role: &'static str, threads: usize) -> WorkerStatus {
        WorkerStatus { role, hands: (0..threads).map(|_| Default::default()).collect() }
    }

    /// A thread begins an operation.
    pub(crate) fn begin(&self, thread: usize, operation: Operation, what: &str) {
        let (track, in_hand) = &self.hands[thread];
        what.clone_into(&mut in_hand.lock().unwrap_or_else(PoisonError::into_inner));
        track.begin(operation, 0);
    }

    /// The operation makes progress.
    pub(crate) fn advance(&self, thread: usize) {
        self.hands[thread].0.count();
    }

    pub(crate) fn end(&self, thread: usize) {
        self.hands[thread].0.end();
    }

    pub(crate) fn progress(&self) -> u64 {
        self.hands.iter().map(|(track, _)| track.ended()).fold(0, u64::wrapping_add)
    }

    pub(crate) fn waits(&self) -> Vec<String> {
        let said = self.hands.iter().enumerate().filter_map(|(thread, (track, in_hand))| {
            let what = in_hand.lock().unwrap_or_else(PoisonError::into_inner);
            Some(format!("{} {thread}: {} {what}", self.role, track.operation()?))
        });
        said.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;

    /// Work that waits until it is asked to end, or, if it does not react to that, until it is abandoned.
    #[derive(Default)]
    struct Stuck {
        deaf: bool,
        steps: AtomicU64,
        busy: AtomicBool,
        cause: Mutex<Option<String>>,
        released: Arc<AtomicBool>,
    }

    impl Watched for Stuck {
        fn progress(&self) -> u64 {
            self.steps.load(Ordering::Relaxed)
        }

        fn is_busy(&self) -> bool {
            self.busy.load(Ordering::Relaxed)
        }

        fn waits(&self) -> Vec<String> {
            (0..10).map(|reader| format!("reader {reader}")).collect()
        }

        fn ending(&self) -> Option<String> {
            self.cause.lock().unwrap().clone()
        }

        fn end(&self, cause: String) {
            self.cause.lock().unwrap().get_or_insert(cause);
        }
    }

    impl Stuck {
        fn work(&self) {
            while !self.released.load(Ordering::Relaxed) && (self.deaf || self.ending().is_none()) {
                crate::meter::pause(Duration::from_millis(1));
            }
        }
    }

    /// A stop that releases unresponsive work when it is abandoned, and keeps the message.
    fn stop(stuck: &Stuck, patience: Option<Nanos>) -> (Stop, Arc<Mutex<String>>) {
        let (released, said) = (Arc::clone(&stuck.released), Arc::new(Mutex::default()));
        let words = Arc::clone(&said);
        let stop = Stop::default().with_patience(patience).or_abandon(move |message| {
            message.clone_into(&mut words.lock().unwrap());
            released.store(true, Ordering::Relaxed);
        });
        (stop, said)
    }

    const SHORT: Option<Nanos> = Some(Nanos(200_000_000));

    #[test]
    fn work_without_progress_is_asked_to_end() {
        let stuck = Stuck::default();
        let (stop, said) = stop(&stuck, SHORT);
        guard(&stop, &stuck, || stuck.work());
        let cause = stuck.ending().unwrap();
        assert!(cause.starts_with("no progress for ") && cause.ends_with("reader 7; and 2 more"), "{cause}");
        assert_eq!(*said.lock().unwrap(), "", "it reacted");
    }

    #[test]
    fn unresponsive_work_is_abandoned() {
        let stuck = Stuck { deaf: true, ..Stuck::default() };
        let (stop, said) = stop(&stuck, None);
        stop.wish();
        guard(&stop, &stuck, || stuck.work());
        let said = said.lock().unwrap();
        assert!(said.starts_with("interrupted\n  still not ended 3.00 s later: reader 0; "), "{said}");
    }

    #[test]
    fn work_with_progress_is_left_alone() {
        let stuck = Stuck::default();
        let (stop, said) = stop(&stuck, SHORT);
        guard(&stop, &stuck, || {
            for _ in 0..30 {
                stuck.steps.fetch_add(1, Ordering::Relaxed);
                crate::meter::pause(Duration::from_millis(20));
            }
            stuck.busy.store(true, Ordering::Relaxed);
            crate::meter::pause(Duration::from_millis(600));
        });
        assert_eq!((stuck.ending(), said.lock().unwrap().as_str()), (None, ""));
    }

    #[test]
    fn a_roster_lists_the_operation_of_each_thread() {
        let roster = WorkerStatus::new("writer", 2);
        roster.begin(1, Operation::Write, "train/a");
        assert_eq!(roster.waits(), ["writer 1: write train/a"]);
        let before = roster.progress();
        roster.advance(1);
        roster.end(1);
        assert_eq!((roster.progress() - before, roster.waits()), (2, Vec::<String>::new()));
    }
}
