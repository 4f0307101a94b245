//! How the processes of a run agreed on the end of each step, and which of them the others waited for.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::units::Nanos;

/// The agreement on steps in one phase, as the members of one node observed it. Empty for a run of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    /// From the moment at which the last member had arrived at a barrier until a member of this node knew of it.
    pub latency: Histogram,
    /// Barriers at which this node was the last, and how much later it arrived than the other nodes.
    pub last: u64,
    pub last_ns: Nanos,
    /// Barriers that nodes agreed on; counted once for all nodes.
    pub barriers: u64,
    /// The clocks of this node's members, by member.
    pub clocks: BTreeMap<u64, ClockReading>,
}

/// What to add to a member's clock to get member 0's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClockReading {
    pub offset_ns: i64,
    /// The true offset differs by at most this much.
    pub bound_ns: Nanos,
}

impl ClockReading {
    /// A moment of this member on member 0's clock.
    pub fn to_common(self, here: Nanos) -> Nanos {
        Nanos(here.0.saturating_add_signed(self.offset_ns))
    }

    /// A moment of member 0 on this member's clock.
    pub fn to_local(self, common: Nanos) -> Nanos {
        Nanos(common.0.saturating_add_signed(self.offset_ns.saturating_neg()))
    }

    /// The offset to a clock that showed `there` between the moments `before` and `after` of this one.
    pub fn between(before: Nanos, there: Nanos, after: Nanos) -> ClockReading {
        let bound_ns = Nanos(after.since(before).0.div_ceil(2));
        let middle = before.0 + after.since(before).0 / 2;
        ClockReading { offset_ns: there.0.wrapping_sub(middle) as i64, bound_ns }
    }
}

impl Agreement {
    pub fn is_empty(&self) -> bool {
        *self == Agreement::default()
    }
}

impl AddAssign for Agreement {
    fn add_assign(&mut self, other: Agreement) {
        let Agreement { latency, last, last_ns, barriers, clocks } = other;
        self.latency += &latency;
        self.last += last;
        self.last_ns += last_ns;
        self.barriers += barriers;
        for (member, reading) in clocks {
            let known = self.clocks.entry(member).or_insert(reading);
            *known = (*known).max(reading);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_converts_moments_in_both_directions() {
        let ahead = ClockReading::between(Nanos(1000), Nanos(5050), Nanos(1100));
        assert_eq!(ahead, ClockReading { offset_ns: 4000, bound_ns: Nanos(50) });
        let behind = ClockReading::between(Nanos(5000), Nanos(1050), Nanos(5101));
        assert_eq!(behind, ClockReading { offset_ns: -4000, bound_ns: Nanos(51) });
        assert_eq!(behind.to_local(behind.to_common(Nanos(7000))), Nanos(7000));
        assert_eq!(ahead.to_common(Nanos(10)), Nanos(4010));
    }
}
