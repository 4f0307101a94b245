//! Statistics of a series in DLIO's form: seven figures with two decimals, or `n/a` for fewer than two values.

/// The names of the figures, in the order of [`figures`].
pub(super) const FIGURES: [&str; 7] = ["mean", "std", "min", "median", "p90", "p99", "max"];

/// The figures of a series, as they are printed. The deviation is that of a sample; percentiles are interpolated
/// between all values, the smallest and the largest included.
pub(super) fn figures(series: &[f64]) -> [String; 7] {
    if series.len() < 2 {
        return std::array::from_fn(|_| "n/a".into());
    }
    let mut sorted = series.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / count;
    let variance = sorted.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let at = |share: f64| {
        let position = share * (count - 1.0);
        let below = position.floor();
        let value = |index: f64| sorted.get(index as usize).copied().unwrap_or_default();
        value(below) + (value(position.ceil()) - value(below)) * (position - below)
    };
    [mean, variance.sqrt(), at(0.0), at(0.5), at(0.9), at(0.99), at(1.0)].map(|figure| format!("{figure:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_pythons_statistics_module() {
        // statistics.mean, stdev, min, median, quantiles(n=100, method='inclusive')[89] and [98], max
        let expected = ["3.60", "2.70", "1.00", "3.00", "6.40", "7.84", "8.00"];
        assert_eq!(figures(&[2.0, 1.0, 4.0, 3.0, 8.0]), expected);
        assert_eq!(figures(&[5.0, 5.0])[1], "0.00");
    }

    #[test]
    fn one_value_has_no_statistics() {
        assert_eq!(figures(&[1.0]), ["n/a"; 7]);
        assert_eq!(figures(&[]), ["n/a"; 7]);
    }
}
