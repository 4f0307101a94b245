//! Makes sure that no wait for storage lasts forever, anywhere in the program: one thread periodically asks the kernel
//! which system call each other thread is in (/proc/self/task/N/syscall). If a call on storage lasts too long and
//! nothing shows progress, the process ends with a list of blocked calls. So all code is watched without doing anything
//! for it, from the first stat of a command to its last rename.
//!
//! Phases with many threads, such as training, have their own watchdog (`watchdog.rs`), which checks whether there is
//! any progress at all: one slow read among many is not a stall. This watch ignores their threads.

mod calls;
mod kernel;
mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::units::Nanos;
use store::Now;

use crate::meter::{self, Monotonic};
use calls::{CallKind, InCall};
use progress::ProgressCounters;

/// Checks per timeout, and the bounds of the time between two of them.
const LOOKS: u64 = 10;
const SHORTEST: Nanos = Nanos(100_000_000);
const LONGEST: Nanos = Nanos(2_000_000_000);
/// Maximum number of waits that a message names.
const MOST_NAMED: usize = 8;

/// The time without progress after which a wait counts as stuck; 0: never.
static TIMEOUT: AtomicU64 = AtomicU64::new(0);
/// Changes whenever a flush or a write shows progress.
static PROGRESS: AtomicU64 = AtomicU64::new(0);
/// Threads that the watchdog of their phase watches.
static WATCHED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
/// The blocked calls at the last check.
static BLOCKED: Mutex<Vec<Blocked>> = Mutex::new(Vec::new());

/// Starts the watch for the lifetime of the process. `abandon` gets the list of blocked calls and ends the process.
pub fn watch(timeout: Option<Nanos>, abandon: fn(&str)) -> io::Result<()> {
    set_timeout(timeout);
    std::thread::Builder::new().name("waits".to_owned()).spawn(move || keep_watch(abandon)).map(drop)
}

/// Sets the time without progress after which a wait counts as stuck; `None`: never.
pub fn set_timeout(timeout: Option<Nanos>) {
    // Relaxed here and below: each value is independent of all others and may be seen late.
    TIMEOUT.store(timeout.map_or(0, |span| span.0), Ordering::Relaxed);
}

/// The calls that have not ended since the last check, those without progress first; `None` if there are none.
pub fn blocked() -> Option<String> {
    let blocked = lock(&BLOCKED);
    (!blocked.is_empty()).then(|| named(&blocked))
}

/// A number that changes while a long flush or write makes progress.
pub(crate) fn progress() -> u64 {
    PROGRESS.load(Ordering::Relaxed)
}

/// Leaves this thread to the watchdog of its phase until the value is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct LeftToPhase(u32);

pub(crate) fn leave_to_phase() -> LeftToPhase {
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    lock(&WATCHED).insert(thread);
    LeftToPhase(thread)
}

impl Drop for LeftToPhase {
    fn drop(&mut self) {
        lock(&WATCHED).remove(&self.0);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call that has not ended since the last check.
#[derive(Clone, Debug)]
struct Blocked {
    thread: u32,
    call: InCall,
    /// How long the thread has been in the call, and how long nothing has shown progress.
    lasts: Nanos,
    quiet: Nanos,
}

/// The state of a thread between checks.
struct ThreadWait {
    /// The kernel's line about it; it differs for every call.
    line: String,
    /// The call, once the line has been the same twice; most threads have left the call by then.
    call: Option<(InCall, ProgressCounters)>,
    lasts: Nanos,
    quiet: Nanos,
}

impl ThreadWait {
    /// Checks a thread whose line is unchanged. `elapsed`: the time since the last check.
    fn look_again(&mut self, thread: u32, elapsed: Nanos) {
        let Some((call, signs)) = &mut self.call else {
            self.call =
                InCall::of(&self.line).map(|call| (call.clone(), ProgressCounters::of(thread, &call)));
            self.lasts = if self.call.is_some() { elapsed } else { Nanos::ZERO };
            self.quiet = self.lasts;
            return;
        };
        self.lasts += elapsed;
        let advances = signs.advance(thread, call, elapsed);
        if advances && matches!(call.kind, CallKind::Flush | CallKind::Write) {
            PROGRESS.fetch_add(1, Ordering::Relaxed);
        }
        self.quiet = if advances { Nanos::ZERO } else { self.quiet + elapsed };
    }
}

fn keep_watch(abandon: fn(&str)) {
    let clock = Monotonic::new();
    let (mut waits, mut looked) = (BTreeMap::new(), clock.now());
    loop {
        let timeout = Nanos(TIMEOUT.load(Ordering::Relaxed));
        // Without a timeout it only records which calls to name if a signal ends the program.
        let period = if timeout == Nanos::ZERO { LONGEST } else { Nanos(timeout.0 / LOOKS) };
        let period = period.clamp(SHORTEST, LONGEST);
        meter::pause(Duration::from_nanos(period.0));
        let now = clock.now();
        // If the process was stopped and continued, that time does not count.
        look(&mut waits, now.since(looked).min(Nanos(2 * period.0)));
        looked = now;
        let stuck = |wait: &Blocked| timeout > Nanos::ZERO && wait.quiet >= timeout;
        let blocked = lock(&BLOCKED).clone();
        let watched = lock(&WATCHED).clone();
        if let Some(longest) = blocked.iter().find(|wait| stuck(wait) && !watched.contains(&wait.thread)) {
            abandon(&format!(
                "no progress for {}: {}\n  the storage does not answer; --stall-timeout sets how long to wait for it",
                longest.quiet,
                named(&blocked)
            ));
            return;
        }
    }
}

/// Checks every thread. `elapsed`: the time since the last check.
fn look(waits: &mut BTreeMap<u32, ThreadWait>, elapsed: Nanos) {
    let mut seen = BTreeMap::new();
    for thread in kernel::threads() {
        let Some(line) = kernel::read(format!("/proc/self/task/{thread}/syscall")) else { continue };
        let mut wait = waits.remove(&thread).filter(|wait| wait.line == line);
        if let Some(wait) = &mut wait {
            wait.look_again(thread, elapsed);
        }
        let new = ThreadWait { line, call: None, lasts: Nanos::ZERO, quiet: Nanos::ZERO };
        seen.insert(thread, wait.unwrap_or(new));
    }
    *waits = seen;
    let blocked = waits.iter().filter_map(|(thread, wait)| {
        let (call, _) = wait.call.as_ref()?;
        Some(Blocked { thread: *thread, call: call.clone(), lasts: wait.lasts, quiet: wait.quiet })
    });
    let mut blocked: Vec<Blocked> = blocked.collect();
    blocked.sort_by_key(|wait| std::cmp::Reverse((wait.quiet, wait.lasts)));
    *lock(&BLOCKED) = blocked;
}

fn named(blocked: &[Blocked]) -> String {
    let words = |wait: &Blocked| {
        let name = kernel::read(format!("/proc/self/task/{}/comm", wait.thread)).unwrap_or_default();
        format!("thread '{}' waits in {}, for {}", name.trim(), wait.call, wait.lasts)
    };
    let mut said: Vec<String> = blocked.iter().take(MOST_NAMED).map(words).collect();
    if blocked.len() > MOST_NAMED {
        said.push(format!("and {} more", blocked.len() - MOST_NAMED));
    }
    said.join("; ")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    #[test]
    fn a_thread_that_waits_for_a_file_is_reported_with_its_call() {
        // Opening a named pipe waits for its other end.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let (opened, mut waits) = (path.clone(), BTreeMap::new());
        let reader = std::thread::Builder::new().name("opens".to_owned()).spawn(move || {
            let mut text = String::new();
            File::open(opened).unwrap().read_to_string(&mut text).unwrap();
        });
        let wanted = format!("thread 'opens' waits in open {}, for ", path.display());
        let seen = (0..10_000).any(|_| {
            meter::pause(Duration::from_millis(1));
            look(&mut waits, Nanos(1_000_000));
            blocked().is_some_and(|text| text.contains(&wanted))
        });
        assert!(seen, "{:?}", blocked());
        drop(File::options().write(true).open(&path).unwrap());
        reader.unwrap().join().unwrap();
        look(&mut waits, Nanos(1_000_000));
        assert!(blocked().is_none_or(|text| !text.contains("'opens'")));
    }
}
