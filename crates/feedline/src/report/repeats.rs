//! A figure of several runs or epochs: its median, the confidence interval, and warning signs such as outliers and
//! drift.

use model::statistics::{Confidence, coefficient_of_variation, drift, median, median_confidence, outliers};
use model::units::counted;
use serde::Serialize;

/// A coefficient of variation above this gets a note.
const CV_LIMIT: f64 = 0.05;

/// The values of a figure, in the order in which they were measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RepeatedFigure {
    pub median: Option<f64>,
    pub interval: Option<(f64, f64)>,
    pub cv: Option<f64>,
    /// Values far from the others.
    pub outliers: Vec<f64>,
    /// The rise from the first to the last value, as a share of the median, if it is statistically significant.
    pub drift: Option<f64>,
    pub values: Vec<f64>,
}

impl RepeatedFigure {
    pub(crate) fn new(values: Vec<f64>, seed: u64) -> RepeatedFigure {
        RepeatedFigure {
            median: median(&values),
            interval: median_confidence(&values, seed).map(ends),
            cv: coefficient_of_variation(&values),
            outliers: outliers(&values).into_iter().map(|place| values[place]).collect(),
            drift: drift(&values),
            values,
        }
    }

    /// Warning signs as notes; `shown` formats a value.
    pub(crate) fn notes(&self, shown: fn(f64) -> String) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(cv) = self.cv.filter(|cv| *cv > CV_LIMIT) {
            notes.push(format!("varies by {:.0} %", 100.0 * cv));
        }
        if !self.outliers.is_empty() {
            let values: Vec<String> = self.outliers.iter().map(|value| shown(*value)).collect();
            notes.push(format!("{}: {}", counted(values.len() as u64, "outlier"), values.join(", ")));
        }
        if let Some(drift) = self.drift {
            let verb = if drift > 0.0 { "rises" } else { "falls" };
            notes.push(format!("{verb} by {:.0} % from first to last", 100.0 * drift.abs()));
        }
        notes
    }
}

/// An interval as a pair.
pub(crate) fn ends(interval: Confidence) -> (f64, f64) {
    (interval.low, interval.high)
}

#[cfg(test)]
mod tests {
    use model::units::significant;

    use super::*;

    #[test]
    fn variation_outliers_and_drift_are_noted() {
        let notes = |values: &[f64]| RepeatedFigure::new(values.to_vec(), 1).notes(significant);
        assert_eq!(notes(&[100.0, 101.0, 99.0, 100.0, 100.0]), Vec::<String>::new());
        assert_eq!(notes(&[100.0, 101.0, 99.0, 100.0, 150.0]), ["varies by 20 %", "1 outlier: 150"]);
        assert_eq!(notes(&[100.0, 99.0, 98.0, 97.0, 96.0]), ["falls by 4 % from first to last"]);
        assert_eq!(notes(&[90.0, 100.0]), ["varies by 7 %"]);
    }
}
