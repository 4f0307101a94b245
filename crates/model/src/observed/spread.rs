//! The distribution of sizes or times of which there are many in one result: sparse bins, 32 to an octave. A
//! [`Histogram`](crate::histogram::Histogram) is more exact and takes a hundred times the memory.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Bins of an octave: a bin is at most 3.1 % wide.
const BITS: u32 = 5;

/// Counts of values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueCounts {
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
    /// Lower end of the bin, and the number of values.
    bins: BTreeMap<u64, u64>,
}

impl ValueCounts {
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    pub fn record_n(&mut self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += times;
        self.sum = self.sum.saturating_add(value.saturating_mul(times));
        *self.bins.entry(bottom_of(value)).or_default() += times;
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn sum(&self) -> u64 {
        self.sum
    }

    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The value that this share of the values does not exceed, to the width of a bin.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        self.weighted(share, |_, count| count as f64)
    }

    /// The value up to which this share of the sum of all values lies: the median of bytes, not of reads.
    pub fn quantile_by_sum(&self, share: f64) -> Option<u64> {
        self.weighted(share, |value, count| value as f64 * count as f64)
    }

    fn weighted(&self, share: f64, weight: impl Fn(u64, u64) -> f64) -> Option<u64> {
        let total: f64 = self.bins.iter().map(|(value, count)| weight(*value, *count)).sum();
        let mut seen = 0.0;
        for (value, count) in &self.bins {
            seen += weight(*value, *count);
            if seen >= share * total {
                return Some(self.within(middle_of(*value)));
            }
        }
        self.max()
    }

    /// Not outside of what was recorded. A damaged document may have a minimum above its maximum.
    fn within(&self, value: u64) -> u64 {
        value.max(self.min).min(self.max)
    }

    /// Bins as (value, count).
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64)> {
        self.bins.iter().map(|(value, count)| (self.within(middle_of(*value)), *count))
    }
}

fn bottom_of(value: u64) -> u64 {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(BITS + 1);
    value >> shift << shift
}

fn middle_of(bottom: u64) -> u64 {
    let shift = (u64::BITS - bottom.leading_zeros()).saturating_sub(BITS + 1);
    bottom.saturating_add((1u64 << shift) >> 1)
}

impl AddAssign<&ValueCounts> for ValueCounts {
    fn add_assign(&mut self, other: &ValueCounts) {
        let ValueCounts { count, sum, min, max, bins } = other;
        if *count == 0 {
            return;
        }
        self.min = if self.count == 0 { *min } else { self.min.min(*min) };
        self.max = self.max.max(*max);
        self.count = self.count.saturating_add(*count);
        self.sum = self.sum.saturating_add(*sum);
        for (bin, count) in bins {
            let all = self.bins.entry(*bin).or_default();
            *all = all.saturating_add(*count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bin() {
        let mut spread = ValueCounts::default();
        (1..=10_000).for_each(|value| spread.record(value));
        for share in [0.1, 0.5, 0.9, 0.99] {
            let (exact, found) = (share * 10_000.0, spread.quantile(share).unwrap() as f64);
            assert!((found / exact - 1.0).abs() < 0.035, "{share}: {found}");
        }
        assert_eq!((spread.min(), spread.max(), spread.mean()), (Some(1), Some(10_000), Some(5000.5)));
        let by_sum = spread.quantile_by_sum(0.5).unwrap() as f64;
        assert!((by_sum / 7071.0 - 1.0).abs() < 0.035, "half of the sum lies above {by_sum}");
    }

    #[test]
    fn sums_are_as_if_recorded_together() {
        let (mut a, mut b, mut both) =
            (ValueCounts::default(), ValueCounts::default(), ValueCounts::default());
        for value in [0, 1, 5, 4096, u64::MAX] {
            a.record(value);
            both.record(value);
        }
        for value in [3, 1 << 40] {
            b.record_n(value, 7);
            both.record_n(value, 7);
        }
        a += &b;
        a += &ValueCounts::default();
        assert_eq!(a, both);
        assert_eq!(ValueCounts::default().quantile(0.5), None);
    }
}
