//! The time of lines: whatever form they have, nanoseconds on one clock.

use super::line::LineTime;

const HALF_DAY: u64 = 12 * 3600 * 1_000_000_000;

/// The clock of one file.
#[derive(Debug, Default)]
pub(super) struct LineClock {
    last_ns: u64,
    days: u64,
    /// Whether lines had times, and whether those were differences.
    pub(super) is_timed: bool,
    pub(super) is_relative: bool,
}

impl LineClock {
    /// The time of the next line.
    pub(super) fn at(&mut self, time: LineTime) -> u64 {
        self.is_timed |= time != LineTime::None;
        self.last_ns = match time {
            LineTime::None => self.last_ns,
            LineTime::Epoch(at) => at,
            LineTime::Clock(of_day) => self.of_day(of_day),
            LineTime::Relative(since) => {
                self.is_relative = true;
                self.last_ns.saturating_add(since)
            }
        };
        self.last_ns
    }

    /// A time that is much earlier than the last one is on the next day.
    fn of_day(&mut self, of_day: u64) -> u64 {
        let at = |days: u64| days * 2 * HALF_DAY + of_day;
        if at(self.days) + HALF_DAY < self.last_ns {
            self.days += 1;
        }
        at(self.days)
    }
}
