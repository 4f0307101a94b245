//! The only clock: a monotonic clock for spans, with sleeps to absolute deadlines, and the wall clock for time stamps.
//! A fake clock with the same interface makes reports exact in tests.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::units::Nanos;
use rustix::thread::{ClockId, NanosleepRelativeResult};
use rustix::time::Timespec;
use store::Now;

use crate::bell::Bell;

/// How long before a deadline a sleep ends and polling of the clock begins: the kernel wakes threads 40 to 60 us late
/// on the virtual machines that were measured, which is a sixth of a DLRM step. Costs this much CPU time per step.
const WATCH: Nanos = Nanos(60_000);
/// How long a wait lasts at most before it checks whether the run should stop.
const LOOK_AROUND: Nanos = Nanos(50_000_000);

/// Time as the engine uses it.
pub trait Clock: Now {
    /// The clock as stores use it.
    fn as_now(&self) -> &dyn Now;
    /// Sleeps to the absolute moment `at`, or until `ending` returns true.
    fn sleep_until(&self, at: Nanos, ending: &dyn Fn() -> bool);
    #[doc(hidden)]
    fn listen(&self, listener: Listener<'_>, deadline: Nanos);
}

/// A thread that waits for a change that a bell announces.
#[doc(hidden)]
#[expect(missing_debug_implementations, reason = "holds a closure")]
pub struct Listener<'a> {
    pub(crate) bell: &'a Bell,
    pub(crate) ready: &'a dyn Fn() -> bool,
}

/// The kernel's monotonic clock.
#[derive(Debug)]
pub struct Monotonic {
    origin: u64,
}

impl Monotonic {
    #[expect(clippy::new_without_default, reason = "`new` reads the clock; a default should not")]
    pub fn new() -> Monotonic {
        Monotonic { origin: kernel_now() }
    }

    /// What to add to this clock to get another one of the same host.
    pub(crate) fn offset_to(&self, origin_of_other: u64) -> i64 {
        self.origin.wrapping_sub(origin_of_other) as i64
    }

    /// Where the clock begins. Only clocks of the same host can be compared by it.
    pub(crate) fn origin(&self) -> u64 {
        self.origin
    }

    /// The wall clock when this clock was 0, since 1970.
    pub fn wall_origin(&self) -> Nanos {
        wall_clock() - self.now()
    }

    /// Asks the kernel not to round this thread's sleeps up (it adds 50 us by default).
    pub(crate) fn sharpen_this_thread() {
        // If this fails, sleeps end a little later, which the ledger records as lateness.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }
}

/// The wall clock, since 1970.
pub(crate) fn wall_clock() -> Nanos {
    let now = rustix::time::clock_gettime(ClockId::Realtime);
    Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

fn kernel_now() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Now for Monotonic {
    fn now(&self) -> Nanos {
        Nanos(kernel_now() - self.origin)
    }
}

impl Clock for Monotonic {
    fn as_now(&self) -> &dyn Now {
        self
    }

    fn sleep_until(&self, at: Nanos, ending: &dyn Fn() -> bool) {
        loop {
            let now = self.now();
            if now >= at || ending() {
                return;
            }
            if at - now <= WATCH {
                std::hint::spin_loop();
                continue;
            }
            let moment = (at - WATCH).min(now + LOOK_AROUND).0 + self.origin;
            let deadline = Timespec {
                tv_sec: (moment / 1_000_000_000) as i64,
                tv_nsec: (moment % 1_000_000_000) as i64,
            };
            // An interrupted sleep is simply repeated: the deadline is absolute.
            let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &deadline);
        }
    }

    fn listen(&self, listener: Listener<'_>, deadline: Nanos) {
        let timeout = deadline.since(self.now()).min(LOOK_AROUND);
        listener.bell.wait(Duration::from_nanos(timeout.0), listener.ready);
    }
}

/// A clock that only moves when a thread sleeps, and then exactly to the deadline. With the null store, every figure of
/// a run becomes a function of the plan.
#[derive(Debug, Default)]
pub struct FakeClock {
    now: AtomicU64,
}

impl Now for FakeClock {
    fn now(&self) -> Nanos {
        Nanos(self.now.load(Ordering::SeqCst))
    }
}

impl Clock for FakeClock {
    fn as_now(&self) -> &dyn Now {
        self
    }

    fn sleep_until(&self, at: Nanos, _ending: &dyn Fn() -> bool) {
        self.now.fetch_max(at.0, Ordering::SeqCst);
    }

    fn listen(&self, listener: Listener<'_>, _deadline: Nanos) {
        // Real readers do real work while no fake time passes: wait for them, however long it takes.
        listener.bell.wait(Duration::from_millis(50), listener.ready);
    }
}

/// Sleeps for a while, independently of any run.
pub fn pause(span: Duration) {
    let request = Timespec { tv_sec: span.as_secs() as i64, tv_nsec: i64::from(span.subsec_nanos()) };
    if let NanosleepRelativeResult::Interrupted(_) = rustix::thread::nanosleep(&request) {
        // The callers check their condition again afterwards, so an early return is harmless.
    }
}

/// Uses `span` of this thread's CPU time, or less if `ending` returns true.
pub fn burn(span: Nanos, ending: &dyn Fn() -> bool) {
    let used = || {
        let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let end = used() + span.0;
    while used() < end && !ending() {
        // Reading this clock is a system call, so do some work between two readings.
        (0..200).for_each(|_| std::hint::spin_loop());
    }
}

/// The form of a time stamp, as DLIO writes it: `2026-11-15T20:35:47.981702`.
const STAMP: &str = "%Y-%m-%dT%H:%M:%S.%6f";

/// The local time.
pub fn timestamp() -> String {
    jiff::Zoned::now().strftime(STAMP).to_string()
}

/// Seconds since 1970, for the dates of signatures.
pub fn unix_seconds() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or(0)
}

/// The local time at a moment of the wall clock, in the time zone of this process.
pub fn timestamp_at(wall: Nanos) -> String {
    let moment = jiff::Timestamp::from_nanosecond(i128::from(wall.0)).unwrap_or_default();
    moment.to_zoned(jiff::tz::TimeZone::system()).strftime(STAMP).to_string()
}

/// The local time as part of a folder's name: `20261115_203547`.
pub fn folder_stamp() -> String {
    jiff::Zoned::now().strftime("%Y%m%d_%H%M%S").to_string()
}

/// An instant in local time, to be written in several ways.
#[derive(Clone, Debug)]
pub struct LocalTime(jiff::Zoned);

impl LocalTime {
    pub fn now() -> LocalTime {
        LocalTime(jiff::Zoned::now())
    }

    /// The time in a pattern of `strftime`.
    pub fn format(&self, pattern: &str) -> Result<String, String> {
        let formatted = jiff::fmt::strtime::format(pattern, &self.0);
        formatted.map_err(|error| format!("the time pattern '{pattern}': {error}"))
    }
}

/// CPU time that this process has used, user and system, in seconds.
pub fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A number that differs between runs, from the wall clock and the process id.
pub fn entropy() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Realtime);
    let pid = rustix::process::getpid().as_raw_nonzero().get() as u64;
    model::order::mix(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64, pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_never_ends_early() {
        let clock = Monotonic::new();
        for micros in [0, 100, 375, 60_000] {
            let deadline = clock.now() + Nanos(micros * 1000);
            clock.sleep_until(deadline, &|| false);
            assert!(clock.now() >= deadline);
        }
    }

    #[test]
    fn a_stop_request_ends_a_long_sleep() {
        let clock = Monotonic::new();
        clock.sleep_until(clock.now() + Nanos(u64::MAX / 2), &|| true);
    }

    #[test]
    fn the_fake_clock_moves_only_by_sleeping() {
        let clock = FakeClock::default();
        assert_eq!(clock.now(), Nanos(0));
        clock.sleep_until(Nanos(500), &|| false);
        clock.sleep_until(Nanos(100), &|| false);
        assert_eq!(clock.now(), Nanos(500));
    }
}
