//! Statistics of repeated measurements: median, spread and confidence intervals. All are pure functions of the values
//! and a seed; they return `None` if the values do not allow an answer.

use serde::{Deserialize, Serialize};

use crate::order::mix;

/// Bootstrap resamples: enough to have 50 resamples beyond each end of an interval.
const RESAMPLES: u64 = 2000;
/// Resamples beyond each end of a 95 % interval.
const BEYOND: usize = RESAMPLES as usize / 40;
/// The minimum number of values for an interval. The true median is between the smallest and the largest of n values
/// with probability 1 - 2^(1 - n): 75 % for three, 88 % for four, 94 % for five. With fewer values no 95 % interval
/// exists.
pub const FEWEST: usize = 5;

/// A 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Confidence {
    pub low: f64,
    pub high: f64,
}

impl Confidence {
    /// Whether it contains more than one value.
    pub(crate) fn is_wide(&self) -> bool {
        self.low < self.high
    }

    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// From resampled values; `None` if one of them is NaN.
    fn of(mut resampled: Vec<f64>) -> Option<Confidence> {
        resampled.sort_unstable_by(f64::total_cmp);
        let bounds = Confidence { low: resampled[BEYOND], high: resampled[resampled.len() - 1 - BEYOND] };
        resampled.iter().all(|value| value.is_finite()).then_some(bounds)
    }
}

/// `None` without values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The middle value, or the mean of the two middle values; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| middle(&sorted))
}

/// Standard deviation over mean, of the population that the values are a sample of. `None` for fewer than two values
/// and for a mean of zero.
pub fn coefficient_of_variation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() >= 2 && mean != 0.0).then(|| (squares / (values.len() - 1) as f64).sqrt() / mean.abs())
}

/// The confidence interval of the median, by the percentile bootstrap.
pub fn median_confidence(values: &[f64], seed: u64) -> Option<Confidence> {
    Confidence::of(resampled_medians(values, mix(seed, 0))?)
}

/// The confidence interval of the median of `values` over the median of `reference`.
pub fn ratio_confidence(values: &[f64], reference: &[f64], seed: u64) -> Option<Confidence> {
    // Two streams: with one, equal samples would have equal resamples and their ratio would always be 1.
    let above = resampled_medians(values, mix(seed, 1))?;
    let below = resampled_medians(reference, mix(seed, 2))?;
    Confidence::of(above.into_iter().zip(below).map(|(above, below)| above / below).collect())
}

/// The half-width of the 95 % confidence interval of the mean, by Student's distribution.
pub fn mean_half_width(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() >= FEWEST)?;
    let count = values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some(student(count - 1.0) * (squares / (count - 1.0) / count).sqrt())
}

/// The 97.5 % quantile of Student's distribution, by the expansion of Cornish and Fisher; its error is below 0.3 % from
/// 4 degrees of freedom on.
fn student(freedom: f64) -> f64 {
    let z = 1.959_964_f64;
    let terms = [
        z,
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
    ];
    terms.iter().rev().fold(0.0, |sum, term| sum / freedom + term)
}

/// Smaller shares of the median are not reported, even if they are significant.
const SMALLEST: f64 = 0.01;

/// The indices of outliers: values too far from the median. The scale is the median distance, which outliers do not
/// affect. With few values that scale is uncertain, so the limit is higher: five to forty values from a normal
/// distribution give a false alarm in fewer than 6 of 100 cases.
pub fn outliers(values: &[f64]) -> Vec<usize> {
    let Some(center) = median(values).filter(|_| values.len() >= FEWEST) else { return Vec::new() };
    let distances: Vec<f64> = values.iter().map(|value| (value - center).abs()).collect();
    // For a normal distribution the standard deviation is 1.4826 times the median distance.
    let deviation = 1.4826 * median(&distances).unwrap_or(0.0);
    let limit = (deviation * (4.0 + 20.0 / values.len() as f64)).max(SMALLEST * center.abs());
    (0..values.len()).filter(|place| distances[*place] > limit).collect()
}

/// The maximum number of values that are compared pair by pair; longer series are averaged first.
const MOST_PAIRED: usize = 1000;

/// The rise from the first value to the last, as a share of their median; negative for a fall. `None` unless it is
/// significant at 95 % (the Mann-Kendall test) and large enough to report. The values must be in the order of
/// measurement.
pub fn drift(values: &[f64]) -> Option<f64> {
    let together = values.len().div_ceil(MOST_PAIRED).max(1);
    let values: Vec<f64> = values.chunks(together).filter_map(mean).collect();
    if values.len() < FEWEST {
        return None;
    }
    let (mut rises, mut slopes) = (0i64, Vec::new());
    for (later, y) in values.iter().enumerate() {
        for (earlier, x) in values[..later].iter().enumerate() {
            rises += i64::from(y > x) - i64::from(y < x);
            slopes.push((y - x) / (later - earlier) as f64);
        }
    }
    let count = values.len() as f64;
    let deviation = (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
    // Continuity correction: the sum of signs changes in steps of two.
    if (rises.abs() - 1) as f64 / deviation <= 1.96 {
        return None;
    }
    let change = median(&slopes)? * (count - 1.0) / median(&values)?.abs();
    (change.abs() >= SMALLEST).then_some(change)
}

/// Medians of samples drawn from these values with replacement; `None` if there are too few values.
fn resampled_medians(values: &[f64], seed: u64) -> Option<Vec<f64>> {
    if values.len() < FEWEST {
        return None;
    }
    let mut drawn = vec![0.0; values.len()];
    let medians = (0..RESAMPLES).map(|resample| {
        let key = mix(seed, resample);
        for (place, slot) in (0..).zip(drawn.iter_mut()) {
            *slot = values[below(mix(key, place), values.len())];
        }
        drawn.sort_unstable_by(f64::total_cmp);
        middle(&drawn)
    });
    Some(medians.collect())
}

/// Maps a random word to a number below `count`.
fn below(word: u64, count: usize) -> usize {
    ((u128::from(word) * count as u128) >> 64) as usize
}

/// The median of sorted values; there must be at least one.
fn middle(sorted: &[f64]) -> f64 {
    let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    low + (high - low) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from a normal distribution, by Box and Muller.
    fn normals(count: u64, mean: f64, stdev: f64, seed: u64) -> Vec<f64> {
        let uniform = |i| (mix(seed, i) >> 11) as f64 / (1u64 << 53) as f64;
        let normal = |i| {
            (-2.0 * (1.0 - uniform(2 * i)).ln()).sqrt() * (std::f64::consts::TAU * uniform(2 * i + 1)).cos()
        };
        (0..count).map(|i| mean + stdev * normal(i)).collect()
    }

    #[test]
    fn known_values_have_their_known_figures() {
        for (values, center, middle, variation) in [
            (&[][..], None, None, None),
            (&[3.0], Some(3.0), Some(3.0), None),
            (&[1.0, 3.0], Some(2.0), Some(2.0), Some(0.5f64.sqrt())),
            (&[5.0, 1.0, 3.0], Some(3.0), Some(3.0), Some(2.0 / 3.0)),
            (&[4.0, 1.0, 2.0, 100.0], Some(26.75), Some(3.0), Some(48.849258 / 26.75)),
            (&[-1.0, 1.0], Some(0.0), Some(0.0), None),
        ] {
            assert_eq!((mean(values), median(values)), (center, middle), "{values:?}");
            let found = coefficient_of_variation(values);
            let close = found.zip(variation).is_some_and(|(a, b)| (a - b).abs() < 1e-6);
            assert!(close || found == variation, "{values:?}: {found:?}");
        }
    }

    #[test]
    fn few_values_have_no_interval() {
        let five = [10.0, 11.0, 12.0, 13.0, 14.0];
        for count in 0..FEWEST {
            assert_eq!(median_confidence(&five[..count], 1), None);
            assert_eq!(ratio_confidence(&five[..count], &five, 1), None);
            assert_eq!(ratio_confidence(&five, &five[..count], 1), None);
        }
        // With five values the interval is their range.
        assert_eq!(median_confidence(&five, 1), Some(Confidence { low: 10.0, high: 14.0 }));
    }

    #[test]
    fn the_interval_of_a_mean_has_students_width() {
        for (freedom, quantile) in [(4.0, 2.776), (9.0, 2.262), (30.0, 2.042), (1e9, 1.960)] {
            assert!((student(freedom) / quantile - 1.0).abs() < 0.003, "{freedom}: {}", student(freedom));
        }
        // Mean 3, variance 2.5: 2.776 x sqrt(2.5 / 5).
        let half = mean_half_width(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((half - 1.963).abs() < 0.006, "{half}");
        assert_eq!(mean_half_width(&[1.0; 4]), None);
        assert_eq!(mean_half_width(&[7.0; 5]), Some(0.0));
    }

    #[test]
    fn nan_has_no_interval() {
        assert_eq!(median_confidence(&[1.0, 2.0, f64::NAN, 4.0, 5.0], 1), None);
        assert_eq!(ratio_confidence(&[1.0; 5], &[0.0; 5], 1), None);
        assert_eq!(median_confidence(&[7.0; 5], 1), Some(Confidence { low: 7.0, high: 7.0 }));
    }

    #[test]
    fn the_interval_depends_only_on_values_and_seed() {
        let values = normals(30, 100.0, 10.0, 5);
        assert_eq!(median_confidence(&values, 1), median_confidence(&values, 1));
        assert_ne!(median_confidence(&values, 1), median_confidence(&values, 2));
    }

    /// The percentage of 400 samples whose interval contains what it should contain.
    fn coverage(holds: impl Fn(u64) -> bool) -> f64 {
        (0..400).filter(|seed| holds(*seed)).count() as f64 / 4.0
    }

    #[test]
    fn intervals_contain_the_true_median_as_often_as_claimed() {
        for count in [5, 6, 9, 20, 51] {
            let holds = |seed| median_confidence(&normals(count, 50.0, 5.0, seed), 1).unwrap().contains(50.0);
            let covered = coverage(holds);
            assert!((91.0..=99.0).contains(&covered), "{count} values: {covered} %");
        }
    }

    #[test]
    fn outliers_are_found() {
        for (values, places) in [
            (&[10.0, 10.1, 9.9, 10.0, 14.0][..], &[4][..]),
            (&[200.0, 200.0, 200.0, 300.0, 200.0], &[3]),
            (&[10.0, 10.05, 9.95, 10.02, 10.09], &[]),
            (&[10.0, 10.0, 10.0, 10.0, 10.05], &[]),
            (&[10.0, 10.0, 10.0, 50.0], &[]),
            (&[1.0, 2.0, 3.0, 4.0, 5.0], &[]),
            (&[100.0, 101.0, 99.0, 100.0, 102.0, 98.0, 40.0, 100.0, 170.0, 99.0], &[6, 8]),
        ] {
            assert_eq!(outliers(values), places, "{values:?}");
        }
    }

    #[test]
    fn rising_and_falling_values_are_found() {
        let near = |found: Option<f64>, expected: f64| found.is_some_and(|f| (f - expected).abs() < 1e-9);
        assert!(near(drift(&[100.0, 105.0, 110.0, 115.0, 120.0]), 20.0 / 110.0));
        assert!(near(drift(&[120.0, 115.0, 110.0, 105.0, 100.0]), -20.0 / 110.0));
        assert_eq!(drift(&[100.0, 110.0, 105.0, 115.0, 95.0]), None);
        assert_eq!(drift(&[100.0, 100.1, 100.2, 100.3, 100.4]), None, "less than a hundredth");
        assert_eq!(drift(&[1.0, 2.0, 3.0, 4.0]), None, "too few values");
        assert_eq!(drift(&[5.0; 9]), None);
        let long: Vec<f64> = (0..100_000).map(|i| 100.0 + f64::from(i) / 1000.0).collect();
        assert!(drift(&long).is_some_and(|change| (change - 100.0 / 150.0).abs() < 0.01));
    }

    #[test]
    fn values_of_one_distribution_give_few_false_alarms() {
        for count in [5, 6, 7, 10, 20, 40] {
            let apart = coverage(|seed| !outliers(&normals(count, 50.0, 5.0, seed)).is_empty());
            let drifts = coverage(|seed| drift(&normals(count, 50.0, 5.0, seed)).is_some());
            assert!(apart <= 8.0 && drifts <= 8.0, "{count} values: {apart} % apart, {drifts} % drift");
        }
    }

    #[test]
    fn the_ratio_of_samples_of_one_distribution_contains_one() {
        for count in [5, 9, 20] {
            let sample = |seed| normals(count, 50.0, 5.0, seed);
            let same = coverage(|seed| {
                ratio_confidence(&sample(seed), &sample(seed + 1000), 1).unwrap().contains(1.0)
            });
            assert!((92.0..=99.8).contains(&same), "{count} values: {same} %");
        }
        let double = ratio_confidence(&normals(20, 100.0, 5.0, 3), &normals(20, 50.0, 2.5, 4), 1).unwrap();
        assert!(double.contains(2.0) && !double.contains(1.8) && !double.contains(2.2), "{double:?}");
        let itself = normals(9, 50.0, 5.0, 7);
        let interval = ratio_confidence(&itself, &itself, 1).unwrap();
        assert!(interval.low < 1.0 && interval.high > 1.0, "{interval:?}");
    }
}
