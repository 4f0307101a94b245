//! The clock of an audit: CLOCK_MONOTONIC, which the preload library reads as well, so that times of all processes
//! compare.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}
