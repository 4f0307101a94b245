//! The offset between the clocks of two members.

use model::ledger::ClockReading;
use model::units::Nanos;

use super::{EarlyEnd, Exchange};
use crate::meter::Clock;
use crate::stop::Stop;

/// Only the fastest exchange counts, and the first ones are slow, since members arrive at different times.
const EXCHANGES: usize = 16;

/// Measures the offset with collective calls alone: member 0 reads its clock after all members have agreed to begin and
/// before any of them has its answer, so its reading is between the two readings of every other member.
pub(super) fn measure(
    world: &dyn Exchange,
    clock: &dyn Clock,
    stop: &Stop,
) -> Result<ClockReading, EarlyEnd> {
    let mut best: Option<ClockReading> = None;
    for _ in 0..EXCHANGES {
        let before = clock.now();
        world.agree(Ok(()), stop)?;
        let mut reading = clock.now().0.to_le_bytes().to_vec();
        world.broadcast(&mut reading, stop)?;
        let after = clock.now();
        let there = <[u8; 8]>::try_from(reading).map(u64::from_le_bytes).unwrap_or_default();
        let offset = ClockReading::between(before, Nanos(there), after);
        if best.is_none_or(|best| offset.bound_ns < best.bound_ns) {
            best = Some(offset);
        }
    }
    // Member 0's clock is the common one.
    Ok(best.filter(|_| world.member() != 0).unwrap_or_default())
}
