//! The offset between the clocks of two members.

use model::units::Nanos;

use super::{EarlyEnd, World};
use crate::meter::Clock;
use crate::stop::Stop;

/// Only the fastest exchange counts, and the first ones are slow, since members arrive at different times.
const EXCHANGES: usize = 16;

/// What to add to a member's clock to get member 0's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    pub offset_ns: i64,
    /// The true offset differs by at most this much.
    pub bound: Nanos,
}

impl ClockOffset {
    /// A moment of this member on member 0's clock.
    pub(super) fn to_common(self, here: Nanos) -> Nanos {
        Nanos(here.0.saturating_add_signed(self.offset_ns))
    }

    /// A moment of member 0 on this member's clock.
    pub(super) fn to_local(self, common: Nanos) -> Nanos {
        Nanos(common.0.saturating_add_signed(self.offset_ns.saturating_neg()))
    }

    /// The offset to a clock that showed `there` between the moments `before` and `after` of this one.
    fn between(before: Nanos, there: Nanos, after: Nanos) -> ClockOffset {
        let bound = Nanos(after.since(before).0.div_ceil(2));
        let middle = before.0 + after.since(before).0 / 2;
        ClockOffset { offset_ns: there.0.wrapping_sub(middle) as i64, bound }
    }
}

/// Measures the offset with collective calls alone: member 0 reads its clock after all members have agreed to begin and
/// before any of them has its answer, so its reading is between the two readings of every other member.
pub(super) fn measure(world: &dyn World, clock: &dyn Clock, stop: &Stop) -> Result<ClockOffset, EarlyEnd> {
    let mut best: Option<ClockOffset> = None;
    for _ in 0..EXCHANGES {
        let before = clock.now();
        world.agree(Ok(()), stop)?;
        let mut reading = clock.now().0.to_le_bytes().to_vec();
        world.broadcast(&mut reading, stop)?;
        let after = clock.now();
        let there = <[u8; 8]>::try_from(reading).map(u64::from_le_bytes).unwrap_or_default();
        let offset = ClockOffset::between(before, Nanos(there), after);
        if best.is_none_or(|best| offset.bound < best.bound) {
            best = Some(offset);
        }
    }
    // Member 0's clock is the common one.
    Ok(best.filter(|_| world.member() != 0).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_converts_moments_in_both_directions() {
        let ahead = ClockOffset::between(Nanos(1000), Nanos(5050), Nanos(1100));
        assert_eq!(ahead, ClockOffset { offset_ns: 4000, bound: Nanos(50) });
        let behind = ClockOffset::between(Nanos(5000), Nanos(1050), Nanos(5101));
        assert_eq!(behind, ClockOffset { offset_ns: -4000, bound: Nanos(51) });
        assert_eq!(behind.to_local(behind.to_common(Nanos(7000))), Nanos(7000));
        assert_eq!(ahead.to_common(Nanos(10)), Nanos(4010));
    }
}
