//! A value of a workload with where it is from and how sure it is.

use std::fmt;

use model::observed::ValueCounts;

/// How sure a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sureness {
    Certain,
    Likely,
    Guess,
}

impl fmt::Display for Sureness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Sureness::Certain => "certain",
            Sureness::Likely => "likely",
            Sureness::Guess => "guess",
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Inferred<T> {
    pub value: T,
    pub source: String,
    pub sure: Sureness,
}

impl<T> Inferred<T> {
    pub(super) fn certain(value: T, source: impl Into<String>) -> Inferred<T> {
        Inferred { value, source: source.into(), sure: Sureness::Certain }
    }

    pub(super) fn likely(value: T, source: impl Into<String>) -> Inferred<T> {
        Inferred { sure: Sureness::Likely, ..Inferred::certain(value, source) }
    }

    pub(super) fn guess(value: T, source: impl Into<String>) -> Inferred<T> {
        Inferred { sure: Sureness::Guess, ..Inferred::certain(value, source) }
    }

    /// Likely, or a guess if the reason for it is weak.
    pub(super) fn likely_if(is_likely: bool, value: T, source: impl Into<String>) -> Inferred<T> {
        if is_likely { Inferred::likely(value, source) } else { Inferred::guess(value, source) }
    }

    /// Replaces the value because a fault is left out.
    pub(super) fn fix(&mut self, value: T, fault: &str) {
        *self = Inferred::guess(value, format!("without {fault}"));
    }
}

/// Seconds or bytes: mean and standard deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MeanSpread {
    pub mean: f64,
    pub stdev: f64,
}

/// Less spread than this is none.
const CONSTANT: f64 = 0.02;

impl MeanSpread {
    pub(super) fn constant(mean: f64) -> MeanSpread {
        MeanSpread { mean: mean.max(0.0), stdev: 0.0 }
    }

    /// Of counted values, each times `unit`.
    pub(super) fn of(values: &ValueCounts, unit: f64) -> MeanSpread {
        let mean = values.mean().unwrap_or(0.0);
        let squares: f64 =
            values.bins().map(|(value, count)| (value as f64 - mean).powi(2) * count as f64).sum();
        let stdev = (squares / values.count().max(1) as f64).sqrt();
        // The bins are 3 % wide.
        let is_one_value = values.min() == values.max();
        MeanSpread { mean: mean * unit, stdev: if is_one_value { 0.0 } else { stdev * unit } }
    }

    /// Standard deviation / mean; 0 if it is too small to matter.
    pub(super) fn variation(self) -> f64 {
        if self.mean > 0.0 { Some(self.stdev / self.mean).filter(|ratio| *ratio >= CONSTANT) } else { None }
            .unwrap_or(0.0)
    }
}
