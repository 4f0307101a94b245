//! Repeats of a measurement as one number with its doubt: median, spread, and intervals by the bootstrap. Pure, and
//! the same for the same seed.

use model::order::mix;

/// Resamples of a bootstrap; the ends of its interval move by less than the last digit shown.
const RESAMPLES: u64 = 2000;
/// Fewer repeats than this have no interval worth showing.
const FEWEST: usize = 3;

/// The middle value; `None` without any.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    middle(&sorted)
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[half]),
        _ => Some(f64::midpoint(sorted[half - 1], sorted[half])),
    }
}

/// The coefficient of variation: sample deviation over mean.
pub fn cv(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1 && mean > 0.0).then(|| (squares / (count - 1.0)).sqrt() / mean)
}

/// The 95 % interval of the median.
pub fn interval(values: &[f64], seed: u64) -> Option<(f64, f64)> {
    bootstrap(values.len(), |round| median(&resample(values, mix(seed, round))))
}

/// The 95 % interval of the ratio of two medians, `a` over `b`.
pub fn ratio_interval(a: &[f64], b: &[f64], seed: u64) -> Option<(f64, f64)> {
    bootstrap(a.len().min(b.len()), |round| {
        let draw = mix(seed, round);
        let (above, below) = (median(&resample(a, mix(draw, 1)))?, median(&resample(b, mix(draw, 2)))?);
        (below > 0.0).then_some(above / below)
    })
}

fn bootstrap(count: usize, draw: impl Fn(u64) -> Option<f64>) -> Option<(f64, f64)> {
    if count < FEWEST {
        return None;
    }
    let mut drawn: Vec<f64> = (0..RESAMPLES).filter_map(draw).collect();
    drawn.sort_by(f64::total_cmp);
    let at = |share: f64| drawn.get((share * (drawn.len() as f64 - 1.0)).round() as usize).copied();
    at(0.025).zip(at(0.975))
}

/// As many of the values as there are, each drawn from all of them.
fn resample(values: &[f64], seed: u64) -> Vec<f64> {
    (0..values.len()).map(|i| values[(mix(seed, i as u64) % values.len() as u64) as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn two_repeats_have_no_interval() {
        assert_eq!(interval(&[1.0, 2.0], 1), None);
        assert_eq!(ratio_interval(&[1.0, 2.0, 3.0], &[1.0, 2.0], 1), None);
        assert_eq!(cv(&[1.0]), None);
    }

    #[test]
    fn intervals_hold_the_truth_and_repeat_themselves() {
        let values = [10.0, 11.0, 9.0, 10.5, 9.5];
        let (low, high) = interval(&values, 7).unwrap();
        assert!((9.0..=10.0).contains(&low) && (10.0..=11.0).contains(&high), "{low} {high}");
        assert_eq!(interval(&values, 7), Some((low, high)));
        let (low, high) = ratio_interval(&values, &values, 7).unwrap();
        assert!(low < 1.0 && 1.0 < high);
        let doubled = values.map(|value| 2.0 * value);
        let (low, high) = ratio_interval(&doubled, &values, 7).unwrap();
        assert!(1.5 < low && low < 2.0 && 2.0 < high && high < 2.6, "{low} {high}");
        assert!((cv(&[9.0, 11.0]).unwrap() - 2f64.sqrt() / 10.0).abs() < 1e-12);
    }
}
