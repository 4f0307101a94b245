//! How many reads were in flight for how long. Calls arrive by their end, so a call that began earlier can still come:
//! the count lags behind by the length of the longest call that is expected.

use model::units::Nanos;

/// Calls that are longer than this may be counted from too late on.
const LAG_NS: u64 = 1_000_000_000;
/// Borders that are collected before some are counted. With more of them in a second, the lag is shorter.
const COLLECTED: usize = 1 << 17;
/// The largest number of reads in flight that is told apart.
const MOST: usize = 1024;

/// Time by number of reads in flight.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// Begins (1) and ends (-1) that are not counted yet.
    borders: Vec<(u64, i8)>,
    latest: u64,
    counted_to: u64,
    now: i64,
    ns: Vec<Nanos>,
}

impl Flight {
    /// Begins at a time, without a read.
    pub(super) fn new(begin_ns: u64) -> Flight {
        Flight { counted_to: begin_ns, ..Flight::default() }
    }

    pub(super) fn add(&mut self, begin: u64, end: u64) {
        self.borders.push((begin, 1));
        self.borders.push((end, -1));
        self.latest = self.latest.max(end);
        if self.borders.len() >= COLLECTED {
            self.borders.sort_unstable();
            let lag = self.latest.saturating_sub(LAG_NS);
            let by_time = self.borders.partition_point(|(at, _)| *at < lag);
            let counted = by_time.max(COLLECTED / 8);
            self.count(counted);
        }
    }

    fn count(&mut self, borders: usize) {
        let counted: Vec<(u64, i8)> = self.borders.drain(..borders.min(self.borders.len())).collect();
        for (at, change) in counted {
            self.pass(at);
            self.now += i64::from(change);
        }
    }

    fn pass(&mut self, at: u64) {
        let number = usize::try_from(self.now).unwrap_or(0).min(MOST);
        if self.ns.len() <= number {
            self.ns.resize(number + 1, Nanos::ZERO);
        }
        if let Some(ns) = self.ns.get_mut(number) {
            *ns += Nanos(at.saturating_sub(self.counted_to));
        }
        self.counted_to = self.counted_to.max(at);
    }

    /// Ends at a time: time by number of reads, index 0 is no read.
    pub(super) fn finish(mut self, end_ns: u64) -> Vec<Nanos> {
        self.borders.sort_unstable();
        self.count(usize::MAX);
        self.pass(end_ns);
        self.ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_reads_are_counted() {
        let mut flight = Flight::new(100);
        for (begin, end) in [(110, 120), (115, 130), (105, 140)] {
            flight.add(begin, end);
        }
        // 100-105: 0, -110: 1, -115: 2, -120: 3, -130: 2, -140: 1, -150: 0.
        assert_eq!(flight.finish(150), [15, 15, 15, 5].map(Nanos));
    }

    #[test]
    fn many_reads_take_bounded_memory() {
        let mut flight = Flight::new(0);
        for number in 0..1_000_000u64 {
            flight.add(number * 10, number * 10 + 15);
            assert!(flight.borders.len() <= COLLECTED);
        }
        let ns = flight.finish(10_000_005);
        assert_eq!(ns.len(), 3);
        assert_eq!(ns.iter().map(|ns| ns.0).sum::<u64>(), 10_000_005);
        assert!(ns[1].0 > 4_900_000 && ns[2].0 > 4_900_000, "{ns:?}");
    }
}
