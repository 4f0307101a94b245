//! When things happened: bytes, samples and waiting in intervals of equal length from the start of a phase. The number
//! of intervals is bounded: before it exceeds the bound, intervals are merged in pairs. Only resolution is lost, so
//! timelines add up exactly in any order.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;

use crate::units::Nanos;

/// The initial length of an interval.
const SHORTEST: Nanos = Nanos(10_000_000);
/// The maximum number of intervals: 10 s of the shortest, 20 s of twice that length, and so on.
const MOST: usize = 1024;
/// Doublings after which the intervals cover every `Nanos` value.
const MOST_DOUBLINGS: u32 = (u64::MAX / SHORTEST.0 / MOST as u64).ilog2() + 1;

/// What happened in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    pub bytes: u64,
    pub samples: u64,
    /// Summed over ranks, so it can exceed the length of the interval.
    pub wait: Nanos,
}

impl AddAssign for Interval {
    fn add_assign(&mut self, Interval { bytes, samples, wait }: Interval) {
        self.bytes += bytes;
        self.samples += samples;
        self.wait += wait;
    }
}

/// The intervals of a phase. An unused timeline allocates no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WrittenTimeline")]
pub struct Timeline {
    /// How often the shortest interval was doubled: only as often as the latest event requires.
    doublings: u32,
    /// Up to the last interval in which something happened.
    intervals: Vec<Interval>,
}

impl Timeline {
    /// Adds bytes and samples that arrived at a point in time.
    pub fn add(&mut self, at: Nanos, bytes: u64, samples: u64) {
        let index = self.reach(at);
        self.intervals[index] += Interval { bytes, samples, wait: Nanos::ZERO };
    }

    /// Adds a wait; each interval gets the part that falls into it.
    pub fn add_wait(&mut self, from: Nanos, to: Nanos) {
        if from >= to {
            return;
        }
        let last = self.reach(to - Nanos(1));
        let length = self.interval().0;
        let mut at = from;
        for index in self.index(from)..=last {
            // Saturates if the last interval ends after the largest `Nanos`.
            let end = Nanos((index as u64 + 1).saturating_mul(length)).min(to);
            self.intervals[index].wait += end - at;
            at = end;
        }
    }

    /// The length of an interval.
    pub fn interval(&self) -> Nanos {
        Nanos(SHORTEST.0 << self.doublings)
    }

    /// All intervals from the start to the last one in which something happened.
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// The sum of all intervals.
    pub fn total(&self) -> Interval {
        self.intervals.iter().fold(Interval::default(), |mut sum, interval| {
            sum += *interval;
            sum
        })
    }

    fn index(&self, at: Nanos) -> usize {
        // Dividing by a constant and shifting is cheaper than dividing by the length.
        ((at.0 / SHORTEST.0) >> self.doublings) as usize
    }

    /// The interval of a point in time; created if it does not exist.
    fn reach(&mut self, at: Nanos) -> usize {
        while self.index(at) >= MOST {
            self.double();
        }
        let index = self.index(at);
        if index >= self.intervals.len() {
            self.lengthen(index + 1);
        }
        index
    }

    /// Extends to `count` intervals. Reserves the maximum at once, so that only the first event allocates.
    fn lengthen(&mut self, count: usize) {
        self.intervals.reserve_exact(MOST - self.intervals.len());
        self.intervals.resize(count, Interval::default());
    }

    fn double(&mut self) {
        let count = self.intervals.len();
        for index in 0..count {
            let interval = std::mem::take(&mut self.intervals[index]);
            self.intervals[index / 2] += interval;
        }
        self.intervals.truncate(count.div_ceil(2));
        self.doublings += 1;
    }
}

impl AddAssign<&Timeline> for Timeline {
    fn add_assign(&mut self, Timeline { doublings, intervals }: &Timeline) {
        while self.doublings < *doublings {
            self.double();
        }
        let shift = self.doublings - doublings;
        let count = intervals.len().div_ceil(1 << shift);
        if count > self.intervals.len() {
            self.lengthen(count);
        }
        for (index, interval) in intervals.iter().enumerate() {
            self.intervals[index >> shift] += *interval;
        }
    }
}

impl AddAssign for Timeline {
    fn add_assign(&mut self, other: Timeline) {
        if self.is_empty() { *self = other } else { *self += &other }
    }
}

/// The serialized form of a timeline: one list per quantity, ready to plot.
#[derive(Serialize, Deserialize)]
struct WrittenTimeline {
    interval_ns: Nanos,
    bytes: Vec<u64>,
    samples: Vec<u64>,
    wait_ns: Vec<Nanos>,
}

/// Why a serialized timeline is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
enum TimelineError {
    #[error("a timeline's interval of {} ns is not 10 ms times a power of two", .0.0)]
    Interval(Nanos),
    #[error("a timeline has at most {MOST} intervals, and equally many values of each quantity")]
    Lengths,
}

impl Serialize for Timeline {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let intervals = self.intervals.iter();
        WrittenTimeline {
            interval_ns: self.interval(),
            bytes: intervals.clone().map(|interval| interval.bytes).collect(),
            samples: intervals.clone().map(|interval| interval.samples).collect(),
            wait_ns: intervals.map(|interval| interval.wait).collect(),
        }
        .serialize(serializer)
    }
}

impl TryFrom<WrittenTimeline> for Timeline {
    type Error = TimelineError;

    fn try_from(written: WrittenTimeline) -> Result<Timeline, TimelineError> {
        let doublings =
            (0..=MOST_DOUBLINGS).find(|doublings| SHORTEST.0 << doublings == written.interval_ns.0);
        let doublings = doublings.ok_or(TimelineError::Interval(written.interval_ns))?;
        let count = written.bytes.len();
        if count > MOST || written.samples.len() != count || written.wait_ns.len() != count {
            return Err(TimelineError::Lengths);
        }
        let quantities = written.bytes.into_iter().zip(written.samples).zip(written.wait_ns);
        let intervals =
            quantities.map(|((bytes, samples), wait)| Interval { bytes, samples, wait }).collect();
        Ok(Timeline { doublings, intervals })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    /// A point in time, the length of a wait that ended then, and the bytes that arrived.
    type Event = (u64, u64, u64);

    fn of(events: &[Event]) -> Timeline {
        let mut timeline = Timeline::default();
        for (at, waited, bytes) in events {
            timeline.add(Nanos(*at), *bytes, 1);
            timeline.add_wait(Nanos(at.saturating_sub(*waited)), Nanos(*at));
        }
        timeline
    }

    fn sum(parts: &[&Timeline]) -> Timeline {
        parts.iter().fold(Timeline::default(), |mut sum, part| {
            sum += *part;
            sum
        })
    }

    /// Phases from milliseconds to centuries.
    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = |bits: u32| (0..1u64 << bits, 0..1u64 << bits, 0..1000u64);
        (20u32..64).prop_flat_map(move |bits| prop::collection::vec(event(bits), 0..20))
    }

    proptest! {
        #[test]
        fn addition_commutes_and_associates(a in events(), b in events(), c in events()) {
            let whole = of(&[a.clone(), b.clone(), c.clone()].concat());
            let (a, b, c) = (of(&a), of(&b), of(&c));
            prop_assert_eq!(sum(&[&a, &b, &c]), whole.clone());
            prop_assert_eq!(sum(&[&c, &a, &b]), whole.clone());
            prop_assert_eq!(sum(&[&a, &sum(&[&b, &c])]), whole.clone());
            let mut moved = a.clone();
            moved += b;
            moved += c;
            prop_assert_eq!(moved, whole);
        }

        #[test]
        fn nothing_is_lost_and_nothing_moves(events in events()) {
            let timeline = of(&events);
            let length = u128::from(timeline.interval().0);
            prop_assert!(timeline.intervals().len() <= MOST);
            for (index, interval) in (0u128..).zip(timeline.intervals()) {
                let (start, end) = (index * length, (index + 1) * length);
                let inside = |moment: u64| u128::from(moment).clamp(start, end);
                let part = |(at, waited, _): &Event| inside(*at) - inside(at.saturating_sub(*waited));
                let wait: u128 = events.iter().map(part).sum();
                prop_assert_eq!(u128::from(interval.wait.0), wait.min(u128::from(u64::MAX)));
                let here = events.iter().filter(|(at, _, _)| (start..end).contains(&u128::from(*at)));
                let (samples, bytes) = here.fold((0, 0), |(n, sum), (_, _, bytes)| (n + 1, sum + bytes));
                prop_assert_eq!((interval.samples, interval.bytes), (samples, bytes));
            }
            prop_assert_eq!(timeline.total().samples, events.len() as u64);
        }

        #[test]
        fn json_keeps_everything(events in events()) {
            let before = of(&events);
            let text = serde_json::to_string(&before).unwrap();
            prop_assert_eq!(serde_json::from_str::<Timeline>(&text).unwrap(), before);
        }
    }

    #[test]
    fn intervals_double_before_they_become_too_many() {
        let mut timeline = Timeline::default();
        for step in 0..1024 {
            timeline.add(Nanos(step * 10 * MS), 1, 1);
        }
        assert_eq!((timeline.interval(), timeline.intervals().len()), (Nanos(10 * MS), 1024));
        timeline.add(Nanos(10_240 * MS), 5, 1);
        assert_eq!((timeline.interval(), timeline.intervals().len()), (Nanos(20 * MS), 513));
        assert!(timeline.intervals()[..512].iter().all(|interval| interval.samples == 2));
        assert_eq!(timeline.intervals()[512].bytes, 5);
    }

    #[test]
    fn a_wait_is_divided_exactly_among_intervals() {
        let mut timeline = Timeline::default();
        timeline.add_wait(Nanos(10 * MS - 3), Nanos(30 * MS));
        timeline.add_wait(Nanos(7), Nanos(7));
        timeline.add_wait(Nanos(9), Nanos(7));
        let waits: Vec<u64> = timeline.intervals().iter().map(|interval| interval.wait.0).collect();
        assert_eq!(waits, [3, 10 * MS, 10 * MS]);
    }

    #[test]
    fn the_largest_time_has_an_interval() {
        let mut timeline = Timeline::default();
        timeline.add_wait(Nanos::ZERO, Nanos(u64::MAX));
        timeline.add(Nanos(u64::MAX), 1, 1);
        assert_eq!(timeline.doublings, MOST_DOUBLINGS);
        assert_eq!(timeline.total(), Interval { bytes: 1, samples: 1, wait: Nanos(u64::MAX) });
    }

    #[test]
    fn only_the_first_event_allocates() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.intervals.capacity(), 0);
        timeline.add(Nanos(5), 1, 1);
        let place = timeline.intervals.as_ptr();
        for step in 0..3000 {
            timeline.add(Nanos(step * 10 * MS), 1, 1);
        }
        assert_eq!((timeline.intervals.as_ptr(), timeline.intervals.capacity()), (place, MOST));
        timeline += &of(&[(50_000 * MS, 1, 1)]);
        assert_eq!(timeline.intervals.as_ptr(), place);
    }

    #[test]
    fn damaged_timelines_are_refused() {
        let read = |text: &str| serde_json::from_str::<Timeline>(text).map_err(|error| error.to_string());
        assert!(read(r#"{"interval_ns":20000000,"bytes":[1],"samples":[1],"wait_ns":[0]}"#).is_ok());
        for interval in [0, 1, 30_000_000, u64::MAX] {
            let text = format!(r#"{{"interval_ns":{interval},"bytes":[],"samples":[],"wait_ns":[]}}"#);
            assert!(read(&text).unwrap_err().contains("interval of"), "{text}");
        }
        let text = r#"{"interval_ns":20000000,"bytes":[1],"samples":[1],"wait_ns":[]}"#;
        assert!(read(text).unwrap_err().contains("at most 1024"), "{text}");
        let zeros = format!("[{}0]", "0,".repeat(MOST));
        let text =
            format!(r#"{{"interval_ns":10000000,"bytes":{zeros},"samples":{zeros},"wait_ns":{zeros}}}"#);
        assert!(read(&text).unwrap_err().contains("at most 1024"));
    }
}
