//! The clock of an audit: CLOCK_MONOTONIC, which the preload library reads as well, so that times of all processes
//! compare; and the CPU time of a thread, by which feedline limits its own work.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds.
pub(super) fn now() -> u64 {
    read(ClockId::Monotonic)
}

/// Nanoseconds that this thread was on a CPU. Other programs that hold the CPUs do not add to it.
pub(super) fn thread_cpu() -> u64 {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}
