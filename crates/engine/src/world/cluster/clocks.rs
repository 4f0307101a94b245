//! The offsets between the clocks of two members, from exchanges of messages.

use model::ledger::ClockReading;
use model::units::Nanos;
use store::Now;

use super::super::{EarlyEnd, Exchange};
use super::state::{ClockAnswer, ClusterState};
use super::wire::ClusterMessage;
use super::{Cluster, Connections, lock};
use crate::meter::{self, Clock};
use crate::stop::Stop;

/// Exchanges to measure a clock's offset: at most this many, and no longer than this.
const PINGS: u64 = 300;
const PINGING: Nanos = Nanos(100_000_000);

impl Connections {
    /// The offset of this member's connection clock to member 0's, and that of its wall clock, from the fastest of many
    /// exchanges.
    fn measure_offsets(&self, stop: &Stop) -> Result<[ClockReading; 2], EarlyEnd> {
        let (begin, mut best) = (self.clock.now(), None::<[ClockReading; 2]>);
        for number in 0..PINGS {
            // The wall clock is read outside the others, so that its own bound holds.
            let before = [meter::wall_clock(), self.clock.now()];
            if before[1].since(begin) > PINGING && best.is_some() {
                break;
            }
            self.send(0, &ClusterMessage::Ping(number));
            let answer = |state: &mut ClusterState| state.pong.take().filter(|pong| pong.number == number);
            let ClockAnswer { there, here, .. } = self.until(stop, answer)?;
            let clocks = [(before[1], there[0], here[0]), (before[0], there[1], here[1])];
            let readings = clocks.map(|(before, there, after)| ClockReading::between(before, there, after));
            best = best.into_iter().chain([readings]).min_by_key(|readings| readings[0].bound_ns);
        }
        Ok(best.unwrap_or_default())
    }
}

impl Cluster {
    /// Compares this member's clocks with member 0's, and returns how far the clocks of the two hosts differ.
    pub(super) fn compare_clocks(&self, clock: &dyn Clock, stop: &Stop) -> Result<ClockReading, EarlyEnd> {
        let shared = self.shared();
        // From the clock of the connections to that of the run.
        let shifts = (0..5).map(|_| {
            let (before, here, after) = (shared.clock.now(), clock.now(), shared.clock.now());
            ClockReading::between(before, here, after)
        });
        let shift = shifts.min_by_key(|shift| shift.bound_ns).unwrap_or_default();
        let mut first = [shift.offset_ns.to_le_bytes(), shared.clock.origin().to_le_bytes()].concat();
        self.broadcast(&mut first, stop)?;
        let number = |at: usize| first.get(at..at + 8).and_then(|some| some.try_into().ok());
        let common = number(0).map_or(0, i64::from_le_bytes);
        // The processes of one host have one clock.
        let is_same_host = self.node() == self.topology().node_of(0);
        let [offset, wall] = match is_same_host {
            true => {
                let offset_ns = shared.clock.offset_to(number(8).map_or(0, u64::from_le_bytes));
                [ClockReading { offset_ns, ..ClockReading::default() }, ClockReading::default()]
            }
            false => shared.measure_offsets(stop)?,
        };
        // Member 0 answers while it waits here.
        self.agree(Ok(()), stop)?;
        let mut barriers = lock(&shared.barriers);
        barriers.shift_ns = shift.offset_ns;
        barriers.offset = ClockReading {
            offset_ns: offset.offset_ns - shift.offset_ns + common,
            bound_ns: offset.bound_ns + shift.bound_ns,
        };
        Ok(wall)
    }
}
