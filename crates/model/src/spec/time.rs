//! A duration: a number of seconds or a distribution of seconds, in DLIO's forms.

use serde::{Deserialize, Serialize};

use super::error::{Problem, ProblemKind};
use super::schema::nearest;
use super::table::{LONGEST, SHORTEST};
use super::value::{Node, Origin, Value, shown};
use crate::units::{Nanos, SpanError};

/// Seconds per step or sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Time {
    Constant(f64),
    Normal {
        mean: f64,
        stdev: f64,
    },
    Uniform {
        min: f64,
        max: f64,
    },
    Gamma {
        shape: f64,
        scale: f64,
    },
    Exponential {
        scale: f64,
    },
    /// Whole seconds.
    Poisson {
        lam: f64,
    },
}

/// The distributions and their parameters, in DLIO's words.
const FORMS: [(&str, &[&str]); 5] = [
    ("normal", &["mean", "stdev"]),
    ("uniform", &["min", "max"]),
    ("gamma", &["shape", "scale"]),
    ("exponential", &["scale"]),
    ("poisson", &["lam"]),
];

impl Time {
    /// Reads a number or a distribution map. `key` is used only in errors.
    pub(super) fn read(key: &str, node: &Node) -> Result<Time, Problem> {
        match &node.value {
            Value::Map(_) => distribution(key, node),
            Value::Int(_) | Value::Float(_) | Value::Text(_) => Ok(Time::Constant(seconds(key, node)?)),
            _ => Err(not_seconds(key, node, None)),
        }
    }

    /// The same time with the standard deviation of a separate `..._stdev` key.
    pub(super) fn with_stdev(self, stdev: f64) -> Option<Time> {
        match self {
            Time::Constant(mean) => Some(normal(mean, stdev)),
            _ => None,
        }
    }

    /// In the form of a workload file.
    pub(super) fn to_yaml(self) -> String {
        match self {
            Time::Constant(seconds) => format!("{seconds:?}"),
            Time::Normal { mean, stdev } => format!("{{type: normal, mean: {mean:?}, stdev: {stdev:?}}}"),
            Time::Uniform { min, max } => format!("{{type: uniform, min: {min:?}, max: {max:?}}}"),
            Time::Gamma { shape, scale } => format!("{{type: gamma, shape: {shape:?}, scale: {scale:?}}}"),
            Time::Exponential { scale } => format!("{{type: exponential, scale: {scale:?}}}"),
            Time::Poisson { lam } => format!("{{type: poisson, lam: {lam:?}}}"),
        }
    }

    /// The expected value in seconds.
    pub fn mean(self) -> f64 {
        match self {
            Time::Constant(mean) | Time::Normal { mean, .. } => mean,
            Time::Uniform { min, max } => min + (max - min) / 2.0,
            Time::Gamma { shape, scale } => shape * scale,
            Time::Exponential { scale } => scale,
            Time::Poisson { lam } => lam,
        }
    }
}

/// A normal distribution without spread becomes a constant, so that both forms give the same spec.
fn normal(mean: f64, stdev: f64) -> Time {
    if stdev == 0.0 { Time::Constant(mean) } else { Time::Normal { mean, stdev } }
}

fn distribution(key: &str, node: &Node) -> Result<Time, Problem> {
    let (form, names) = form(key, node)?;
    for entry in node.entries() {
        if entry.key != "type" && !names.contains(&entry.key.as_str()) {
            let what = format!("'{key}.{}' does not belong to the {form} distribution", entry.key);
            return Err(Problem::new(ProblemKind::UnknownKey, entry.place, what)
                .key(key)
                .help(format!("allowed: type, {}", names.join(", "))));
        }
    }
    let number = |name: &str| match node.entry(name) {
        Some(entry) => seconds(&format!("{key}.{name}"), &entry.node),
        None => Err(Problem::new(
            ProblemKind::WrongType,
            node.place,
            format!("'{key}' has the {form} distribution, but no '{name}'"),
        )
        .key(key)
        .help(format!("needed: {}", names.join(", ")))),
    };
    let time = match form {
        "normal" if node.entry("type").is_none() && node.entry("stdev").is_none() => {
            Time::Constant(number("mean")?)
        }
        "normal" => normal(number("mean")?, number("stdev")?),
        "uniform" => Time::Uniform { min: number("min")?, max: number("max")? },
        "gamma" => Time::Gamma { shape: number("shape")?, scale: number("scale")? },
        "exponential" => Time::Exponential { scale: number("scale")? },
        _ => Time::Poisson { lam: number("lam")? },
    };
    check_parameters(key, node, time)
}

/// The distribution that `type` names, or the default.
fn form(key: &str, node: &Node) -> Result<(&'static str, &'static [&'static str]), Problem> {
    let Some(entry) = node.entry("type") else { return Ok(FORMS[0]) };
    let words = FORMS.map(|(word, _)| word);
    let Value::Text(word) = &entry.node.value else {
        let what =
            format!("'{key}.type' must be one of {}, found {}", words.join(", "), entry.node.value.found());
        return Err(Problem::new(ProblemKind::WrongType, entry.node.place, what).key(key));
    };
    FORMS.into_iter().find(|(name, _)| name == word).ok_or_else(|| {
        let problem = Problem::new(
            ProblemKind::UnknownName,
            entry.node.place,
            format!("'{word}' is not a distribution for '{key}'"),
        )
        .key(key);
        let problem = match nearest(word, &words) {
            Some(near) => problem.help(format!("help: did you mean '{near}'?")),
            None => problem,
        };
        problem.help(format!("allowed: {}", words.join(", ")))
    })
}

fn check_parameters(key: &str, node: &Node, time: Time) -> Result<Time, Problem> {
    let what = match time {
        Time::Uniform { min, max } if min > max => format!("'{key}' has min {min} above max {max}"),
        Time::Gamma { shape, scale } if shape <= 0.0 || scale <= 0.0 => {
            format!("'{key}' needs a shape and a scale above 0")
        }
        Time::Exponential { scale } if scale <= 0.0 => format!("'{key}' needs a scale above 0"),
        _ => return Ok(time),
    };
    Err(Problem::new(ProblemKind::OutOfRange, node.place, what).key(key))
}

fn seconds(key: &str, node: &Node) -> Result<f64, Problem> {
    let number = match &node.value {
        Value::Int(number) => *number as f64,
        Value::Float(number) => *number,
        Value::Text(text) => {
            text.parse::<Nanos>().map(Nanos::seconds).map_err(|error| not_seconds(key, node, Some(error)))?
        }
        _ => return Err(not_seconds(key, node, None)),
    };
    in_range(key, node.place, number)
}

fn not_seconds(key: &str, node: &Node, why: Option<SpanError>) -> Problem {
    let what = format!("'{key}' must be a time or a distribution of times, found {}", node.value.found());
    let problem = Problem::new(ProblemKind::WrongType, node.place, what).key(key);
    let problem = why.into_iter().fold(problem, |problem, why| problem.help(why.to_string()));
    problem.help(
        "allowed: 0.5 (seconds), 500ms, {mean: 0.5}, {mean: 0.5, stdev: 0.1} or {type: uniform, min: 0.1, max: 0.9}",
    )
}

fn in_range(key: &str, place: Origin, number: f64) -> Result<f64, Problem> {
    if number == 0.0 || (SHORTEST..=LONGEST).contains(&number) {
        return Ok(number);
    }
    Err(Problem::new(ProblemKind::OutOfRange, place, format!("'{key}' cannot be {}", shown(number)))
        .key(key)
        .help(format!("allowed: 0, or a time in seconds, from {} to {LONGEST}", shown(SHORTEST))))
}

#[cfg(test)]
mod tests {
    use super::super::yaml;
    use super::*;

    #[test]
    fn every_form_is_read_and_written() {
        let table = [
            ("0.5", Time::Constant(0.5)),
            ("2", Time::Constant(2.0)),
            ("1e-3", Time::Constant(0.001)),
            ("{mean: 0.5}", Time::Constant(0.5)),
            ("{mean: 0.5, stdev: 0.1}", Time::Normal { mean: 0.5, stdev: 0.1 }),
            ("{mean: 0.5, stdev: 0}", Time::Constant(0.5)),
            ("{type: normal, mean: 1, stdev: 2}", Time::Normal { mean: 1.0, stdev: 2.0 }),
            ("{type: uniform, min: 1, max: 2}", Time::Uniform { min: 1.0, max: 2.0 }),
            ("{type: gamma, shape: 1, scale: 2}", Time::Gamma { shape: 1.0, scale: 2.0 }),
            ("{type: exponential, scale: 2}", Time::Exponential { scale: 2.0 }),
            ("{type: poisson, lam: 3}", Time::Poisson { lam: 3.0 }),
        ];
        let read =
            |text: &str| Time::read("t", &yaml::parse(&format!("t: {text}")).unwrap().entries()[0].node);
        for (text, expected) in table {
            let time = read(text).unwrap();
            assert_eq!(time, expected, "{text}");
            assert_eq!(read(&time.to_yaml()).unwrap(), expected, "{text}");
            assert!(time.mean() >= 0.0);
        }
        for text in [
            "{}",
            "fast",
            "[1]",
            "{type: normal, mean: 1}",
            "{type: normal, stdev: 1}",
            "{type: 3}",
            "{type: gamma, shape: 1}",
            "{type: poisson}",
            "{mean: x}",
            "{mean: -1}",
            "true",
            "1e12",
            "1e-300",
            "{type: exponential, scale: 1e-300}",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
