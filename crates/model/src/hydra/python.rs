//! Numbers as Python reads and writes them: Hydra's casts, sweeps and YAML files show Python's forms.

/// `repr` of a float: the shortest digits that read back as the same number.
pub(super) fn repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number == 0.0 || (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// `int(text)`.
pub(super) fn int(text: &str) -> Option<i128> {
    let text = text.trim();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    are_digits(digits).then_some(())?;
    let limit = if text.starts_with('-') { i128::MIN } else { i128::MAX };
    Some(text.replace('_', "").parse().unwrap_or(limit))
}

/// `float(text)`.
pub(super) fn float(text: &str) -> Option<f64> {
    let text = text.trim();
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    match body.to_ascii_lowercase().as_str() {
        "inf" | "infinity" | "nan" => return text.to_ascii_lowercase().parse().ok(),
        _ => {}
    }
    let (mantissa, exponent) = match body.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (body, None),
    };
    let exponent_fits = exponent.is_none_or(|e| are_digits(e.strip_prefix(['+', '-']).unwrap_or(e)));
    let optional = |digits: &str| digits.is_empty() || are_digits(digits);
    let mantissa_fits = match mantissa.split_once('.') {
        Some((whole, part)) => mantissa.len() > 1 && optional(whole) && optional(part),
        None => are_digits(mantissa),
    };
    (exponent_fits && mantissa_fits).then(|| text.replace('_', "").parse().ok())?
}

/// Digits with single underscores between them.
fn are_digits(text: &str) -> bool {
    text.split('_').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_python_s_forms() {
        for (number, shown) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (1e300, "1e+300"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(repr(number), shown);
        }
        assert_eq!(int(" -007 "), Some(-7));
        assert_eq!(int("1_000"), Some(1000));
        for text in ["", "-", "1__0", "1.0", "0x1", "_1"] {
            assert_eq!(int(text), None, "{text}");
        }
        for (text, number) in
            [("1_0.5", 10.5), (".5", 0.5), ("5.", 5.0), ("-1e-3", -0.001), ("+InFinity", f64::INFINITY)]
        {
            assert_eq!(float(text), Some(number), "{text}");
        }
        for text in ["", ".", "e5", "1e", "1..2", "1_", "infx"] {
            assert_eq!(float(text), None, "{text}");
        }
    }
}
