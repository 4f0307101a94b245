//! The type of an unquoted YAML scalar by the rules of YAML 1.1 as PyYAML implements them, with OmegaConf's two
//! changes: `1e-3` is a number, dates stay text. DLIO's files are written for exactly these rules, so `off` is a
//! boolean here although YAML 1.2 says otherwise.

use super::value::Value;

/// The value of the unquoted `text`.
pub(crate) fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => return Value::Bool(true),
        "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    if let Some(number) = integer(text) {
        return Value::Int(number);
    }
    match float(text) {
        Some(number) => Value::Float(number),
        None => Value::Text(text.to_owned()),
    }
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    }
}

fn integer(text: &str) -> Option<i128> {
    let (negative, body) = split_sign(text);
    let magnitude = if let Some(digits) = body.strip_prefix("0b") {
        radix(digits, 2)?
    } else if let Some(digits) = body.strip_prefix("0x") {
        radix(digits, 16)?
    } else if body == "0" {
        0
    } else if body.starts_with('0') {
        radix(body, 8)?
    } else if body.contains(':') {
        sixties(body)?
    } else {
        decimal(body)?
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// Digits and underscores of one base, with at least one digit; too many digits saturate.
fn radix(digits: &str, base: u32) -> Option<i128> {
    let mut number: i128 = 0;
    let mut seen = false;
    for c in digits.chars().filter(|c| *c != '_') {
        seen = true;
        number = number.saturating_mul(i128::from(base)).saturating_add(i128::from(c.to_digit(base)?));
    }
    seen.then_some(number)
}

fn decimal(digits: &str) -> Option<i128> {
    digits.starts_with(|c: char| c.is_ascii_digit()).then(|| radix(digits, 10))?
}

/// `1:30` is 90: YAML 1.1 has base 60.
fn sixties(text: &str) -> Option<i128> {
    let (head, tail) = text.split_once(':')?;
    tail.split(':').try_fold(decimal(head)?, |sum, part| {
        Some(sum.saturating_mul(60).saturating_add(i128::from(sixtieth(part)?)))
    })
}

fn sixtieth(part: &str) -> Option<u8> {
    let digits = (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| part.parse::<u8>().ok())?.filter(|number| *number < 60)
}

fn float(text: &str) -> Option<f64> {
    let (negative, body) = split_sign(text);
    let signed = body.len() != text.len();
    let magnitude = match body {
        ".inf" | ".Inf" | ".INF" => f64::INFINITY,
        ".nan" | ".NaN" | ".NAN" if !signed => f64::NAN,
        // `-.5` and `.5e3` are text in PyYAML; strange, but the files were written for these rules.
        _ if body.starts_with('.') => return (!signed).then(|| point_first(body))?,
        _ if body.contains(':') => sixties_float(body)?,
        _ => digits_first(body)?,
    };
    Some(if negative { -magnitude } else { magnitude })
}

fn number(text: &str) -> Option<f64> {
    text.replace('_', "").parse().ok()
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_digits_and_underscores(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && text.bytes().all(|b| b.is_ascii_digit() || b == b'_')
}

/// `.5`, `.5e+3`: here the exponent needs its sign.
fn point_first(body: &str) -> Option<f64> {
    let (mantissa, exponent) = split_exponent(body);
    let plain = is_digits_and_underscores(&mantissa[1..]);
    let signed = exponent.is_none_or(|e| e.starts_with(['+', '-']) && is_digits(&e[1..]));
    (plain && signed).then(|| number(body))?
}

/// `1.5`, `1.`, `1e-3`, `1_0.5e3`.
fn digits_first(body: &str) -> Option<f64> {
    let (mantissa, exponent) = split_exponent(body);
    let exponent_fits = exponent.is_none_or(|e| is_digits(e.strip_prefix(['+', '-']).unwrap_or(e)));
    let mantissa_fits = match mantissa.split_once('.') {
        Some((whole, part)) => {
            is_digits_and_underscores(whole) && part.bytes().all(|b| b.is_ascii_digit() || b == b'_')
        }
        None => exponent.is_some() && mantissa.split('_').all(is_digits),
    };
    (exponent_fits && mantissa_fits).then(|| number(body))?
}

fn split_exponent(body: &str) -> (&str, Option<&str>) {
    match body.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (body, None),
    }
}

/// `1:30.5` is 90.5.
fn sixties_float(body: &str) -> Option<f64> {
    let (sixties_part, fraction) = body.split_once('.')?;
    let (head, tail) = sixties_part.split_once(':')?;
    if !is_digits_and_underscores(head) || !fraction.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
        return None;
    }
    let whole =
        tail.split(':').try_fold(number(head)?, |sum, part| Some(sum * 60.0 + f64::from(sixtieth(part)?)))?;
    Some(whole + number(&format!("0.{fraction}")).unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(value: &Value) -> String {
        match value {
            Value::Null => "null".into(),
            Value::Bool(flag) => flag.to_string(),
            Value::Int(number) => number.to_string(),
            Value::Float(number) => format!("{number:?}"),
            other => other.found().replacen("the text '", "<", 1).replace('\'', ">"),
        }
    }

    /// The value that OmegaConf 2.3 with PyYAML 6.0 gives for each scalar; `<...>` is text.
    const SCALARS: &[(&str, &str)] = &[
        ("yes", "true"),
        ("Yes", "true"),
        ("YES", "true"),
        ("yEs", "<yEs>"),
        ("no", "false"),
        ("NO", "false"),
        ("on", "true"),
        ("Off", "false"),
        ("OFF", "false"),
        ("oFF", "<oFF>"),
        ("true", "true"),
        ("TRUE", "true"),
        ("tRue", "<tRue>"),
        ("False", "false"),
        ("y", "<y>"),
        ("null", "null"),
        ("Null", "null"),
        ("NULL", "null"),
        ("nUll", "<nUll>"),
        ("~", "null"),
        ("", "null"),
        ("none", "<none>"),
        ("1", "1"),
        ("-1", "-1"),
        ("+1", "1"),
        ("1_000", "1000"),
        ("1__0", "10"),
        ("0x1F", "31"),
        ("0X1F", "<0X1F>"),
        ("0x1_F", "31"),
        ("-0x10", "-16"),
        ("017", "15"),
        ("-017", "-15"),
        ("019", "<019>"),
        ("08", "<08>"),
        ("0", "0"),
        ("-0", "0"),
        ("00", "0"),
        ("0_7", "7"),
        ("0_", "0"),
        ("0b101", "5"),
        ("0b2", "<0b2>"),
        ("0o17", "<0o17>"),
        ("0x", "<0x>"),
        ("0b", "<0b>"),
        ("1_", "1"),
        ("_1", "<_1>"),
        ("1:30", "90"),
        ("190:20:30", "685230"),
        ("1:5:6", "3906"),
        ("1:99", "<1:99>"),
        ("0:30", "<0:30>"),
        ("1:30.5", "90.5"),
        ("1.5", "1.5"),
        ("1.", "1.0"),
        (".5", "0.5"),
        ("-.5", "<-.5>"),
        ("+.5", "<+.5>"),
        (".5e3", "<.5e3>"),
        (".5e+3", "500.0"),
        ("1e3", "1000.0"),
        ("1e-3", "0.001"),
        ("1E+3", "1000.0"),
        ("1.e3", "1000.0"),
        ("12e03", "12000.0"),
        ("-1.5e-3", "-0.0015"),
        ("1_0.5", "10.5"),
        ("1_000.5_5", "1000.55"),
        (".5_", "0.5"),
        ("._5", "<._5>"),
        ("1_e3", "<1_e3>"),
        ("1e3_0", "<1e3_0>"),
        (".inf", "inf"),
        ("-.inf", "-inf"),
        ("+.Inf", "inf"),
        ("-.nan", "<-.nan>"),
        ("inf", "<inf>"),
        ("nan", "<nan>"),
        ("2001-12-14", "<2001-12-14>"),
        ("1,000", "<1,000>"),
        ("1.5.2", "<1.5.2>"),
        (".e3", "<.e3>"),
        (".", "<.>"),
        ("+", "<+>"),
        ("1e", "<1e>"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("99999999999999999999999999999999999999999999", "170141183460469231731687303715884105727"),
        (".nan", "NaN"),
    ];

    #[test]
    fn scalars_have_the_same_type_as_in_omegaconf() {
        for (written, expected) in SCALARS {
            assert_eq!(show(&resolve(written)), *expected, "{written:?}");
        }
    }
}
