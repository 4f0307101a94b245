//! Axes: from values to positions, and the values at which an axis has ticks.

use model::units::{Nanos, grouped};

/// What the values of an axis are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueUnit {
    #[default]
    Number,
    /// Seconds, printed with the unit that reads best, such as `350 us`.
    Duration,
}

/// How values are placed along an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AxisScale {
    /// From 0, or from the lowest value.
    #[default]
    Linear,
    Log,
    /// Shares from 0 to 1, of which the last ones have most room: 50 %, 90 %, 99 %, 99.9 %.
    Percentile,
}

/// The most nines of a share: 99.9999 %.
const MOST_NINES: f64 = 6.0;

impl AxisScale {
    /// The coordinate of a value, in which the axis is linear.
    pub(super) fn coordinate(self, value: f64) -> f64 {
        match self {
            AxisScale::Linear => value,
            AxisScale::Log => value.max(f64::MIN_POSITIVE).log10(),
            AxisScale::Percentile => (-(1.0 - value).max(0.0).log10()).clamp(0.0, MOST_NINES),
        }
    }
}

/// An axis with its range.
#[derive(Clone, Debug)]
pub(super) struct AxisRange {
    pub scale: AxisScale,
    pub unit: ValueUnit,
    low: f64,
    high: f64,
    step: f64,
}

impl AxisRange {
    /// An axis for these values. A linear axis of a figure starts at 0; `tight` starts and ends with the values.
    pub(super) fn of(
        values: impl Iterator<Item = f64> + Clone,
        scale: AxisScale,
        unit: ValueUnit,
        tight: bool,
    ) -> AxisRange {
        let finite = values.filter(|value| value.is_finite() && (scale != AxisScale::Log || *value > 0.0));
        let coordinates = finite.map(|value| scale.coordinate(value));
        let least = coordinates.clone().fold(f64::INFINITY, f64::min);
        let most = coordinates.fold(f64::NEG_INFINITY, f64::max);
        let (least, most) = if least <= most { (least, most) } else { (0.0, 1.0) };
        match scale {
            AxisScale::Linear => {
                let low = if tight { least } else { least.min(0.0) };
                let step = tick_step(most - low);
                let high = if tight { most } else { step * (most / step).ceil().max(1.0) };
                AxisRange { scale, unit, low, high: if high > low { high } else { low + step }, step }
            }
            AxisScale::Log => {
                let (low, high) = (least.floor(), most.ceil());
                AxisRange { scale, unit, low, high: if high > low { high } else { low + 1.0 }, step: 1.0 }
            }
            AxisScale::Percentile => AxisRange { scale, unit, low: 0.0, high: most.max(2.0), step: 1.0 },
        }
    }

    /// The same axis, wide enough for this value.
    pub(super) fn reaching(self, value: Option<f64>) -> AxisRange {
        let ends =
            [self.low, self.high].map(|end| if self.scale == AxisScale::Log { 10f64.powf(end) } else { end });
        match value {
            Some(value) if self.scale != AxisScale::Percentile => {
                AxisRange::of(ends.into_iter().chain([value]), self.scale, self.unit, false)
            }
            _ => self,
        }
    }

    /// From 0 at the start of the axis to 1 at its end.
    pub(super) fn place(&self, value: f64) -> f64 {
        ((self.scale.coordinate(value) - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// The ticks, with their labels.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            AxisScale::Linear => {
                let first = (self.low / self.step).ceil() as i64;
                let last = ((self.high + self.step * 1e-9) / self.step).floor() as i64;
                let values = (first..=last).map(|tick| tick as f64 * self.step);
                values.map(|value| (value, self.text(value, self.step))).collect()
            }
            AxisScale::Log => {
                let (first, last) = (self.low.round() as i32, self.high.round() as i32);
                // About six labels.
                let every = ((last - first) / 6).max(1) as usize;
                let values = (first..=last).step_by(every).map(|power| 10f64.powi(power));
                values.map(|value| (value, self.text(value, value))).collect()
            }
            AxisScale::Percentile => {
                let shares = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999_999];
                let names = ["0", "50", "90", "99", "99.9", "99.99", "99.999", "99.9999"];
                let there = shares.into_iter().zip(names);
                let there = there.filter(|(share, _)| self.scale.coordinate(*share) <= self.high + 1e-9);
                there.map(|(share, name)| (share, name.to_owned())).collect()
            }
        }
    }

    fn text(&self, value: f64, step: f64) -> String {
        match self.unit {
            ValueUnit::Number => number(value, step),
            ValueUnit::Duration if value <= 0.0 => "0".to_owned(),
            ValueUnit::Duration => plain_duration(value),
        }
    }
}

/// A round duration without needless zeros: `10 us`, not `10.0 us`.
fn plain_duration(seconds: f64) -> String {
    let text = Nanos::from_seconds(seconds).to_string();
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// The distance for about five ticks: 1, 2 or 5 times a power of ten.
pub(super) fn tick_step(highest: f64) -> f64 {
    if !(highest > 0.0 && highest.is_finite()) {
        return 1.0;
    }
    let rough = highest / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|step| *step >= rough).unwrap_or(rough)
}

/// The value, with enough digits to distinguish two steps.
pub(super) fn number(value: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    match digits {
        0 if value < 0.0 => format!("-{}", grouped((-value).round() as u64)),
        0 => grouped(value.round() as u64),
        _ => format!("{value:.digits$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        for (highest, step) in [(11.0, 5.0), (9.0, 2.0), (163.0, 50.0), (0.4, 0.1), (0.0, 1.0), (5e6, 1e6)] {
            assert!((tick_step(highest) - step).abs() < 1e-9, "{highest}: {}", tick_step(highest));
        }
        assert_eq!(number(12_345.0, 5000.0), "12,345");
        assert_eq!(number(0.25, 0.05), "0.25");
    }

    #[test]
    fn each_scale_has_labelled_ticks_within_its_range() {
        let labels = |values: &[f64], scale, unit| -> Vec<String> {
            let axis = AxisRange::of(values.iter().copied(), scale, unit, false);
            let ticks = axis.ticks();
            assert!(ticks.iter().all(|(value, _)| (0.0..=1.0).contains(&axis.place(*value))));
            ticks.into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(
            labels(&[3.0, 9.0], AxisScale::Linear, ValueUnit::Number),
            ["0", "2", "4", "6", "8", "10"]
        );
        assert_eq!(
            labels(&[3e-6, 0.004], AxisScale::Log, ValueUnit::Duration),
            ["1 us", "10 us", "100 us", "1 ms", "10 ms"]
        );
        assert_eq!(
            labels(&[0.0, 0.999], AxisScale::Percentile, ValueUnit::Number),
            ["0", "50", "90", "99", "99.9"]
        );
        assert_eq!(labels(&[], AxisScale::Linear, ValueUnit::Number).len(), 6, "an empty plot has an axis");
    }

    #[test]
    fn values_are_placed_by_the_scale() {
        let log = AxisRange::of([1.0, 100.0].into_iter(), AxisScale::Log, ValueUnit::Number, false);
        assert!((log.place(10.0) - 0.5).abs() < 1e-9);
        assert!(log.place(0.0).abs() < 1e-9, "a value that a scale cannot show is at its start");
        let shares = AxisRange::of([0.9999].into_iter(), AxisScale::Percentile, ValueUnit::Number, false);
        assert!((shares.place(0.99) - 0.5).abs() < 1e-9);
    }
}
