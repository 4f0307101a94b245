//! Sweeps: several values for one key, and the jobs that follow from them, in the order of Hydra's basic sweeper.

use super::CompositionError;
use super::grammar::{HydraOverride, OverrideElement, OverrideKind};
use super::lexer::ESCAPABLE;
use super::python;

/// Maximum number of jobs; a range can describe far more than anyone can run.
const MOST_JOBS: usize = 100_000;

/// Several values of one key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueSweep {
    Choice {
        list: Vec<OverrideElement>,
        is_simple: bool,
    },
    Range {
        start: RangeNumber,
        stop: RangeNumber,
        step: RangeNumber,
        shuffled: bool,
    },
    /// A continuous range, which the basic sweeper cannot enumerate.
    Interval {
        start: RangeNumber,
        end: RangeNumber,
    },
    /// The options of the config group whose names match.
    Glob {
        include: Vec<String>,
        exclude: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RangeNumber {
    Int(i128),
    Float(f64),
}

impl RangeNumber {
    pub(super) fn float(self) -> f64 {
        match self {
            RangeNumber::Int(number) => number as f64,
            RangeNumber::Float(number) => number,
        }
    }
}

impl ValueSweep {
    pub(super) fn choice(list: Vec<OverrideElement>, is_simple: bool) -> ValueSweep {
        ValueSweep::Choice { list, is_simple }
    }

    /// The values, in the notation of overrides. `options` lists the config group that is swept.
    fn values(&self, options: &[String], seed: u64) -> Result<Vec<String>, String> {
        match self {
            ValueSweep::Choice { list, .. } => list.iter().map(OverrideElement::notation).collect(),
            ValueSweep::Range { start, stop, step, shuffled } => {
                let mut values = range(*start, *stop, *step)?;
                if *shuffled {
                    shuffle(&mut values, seed);
                }
                Ok(values)
            }
            ValueSweep::Interval { .. } => {
                Err("the basic sweeper cannot enumerate an interval; use range()".into())
            }
            ValueSweep::Glob { include, exclude } => {
                let any = |globs: &[String], name: &str| globs.iter().any(|glob| matches_glob(name, glob));
                let chosen = options.iter().filter(|name| any(include, name) && !any(exclude, name));
                Ok(chosen.cloned().collect())
            }
        }
    }
}

fn range(start: RangeNumber, stop: RangeNumber, step: RangeNumber) -> Result<Vec<String>, String> {
    let too_many = || format!("the range has more than {MOST_JOBS} values");
    let mut values = Vec::new();
    if step.float() == 0.0 {
        return Err("the step of a range cannot be 0".into());
    }
    if let (RangeNumber::Int(start), RangeNumber::Int(stop), RangeNumber::Int(step)) = (start, stop, step) {
        let mut at = start;
        while if step > 0 { at < stop } else { at > stop } {
            values.push(at.to_string());
            at = at.checked_add(step).filter(|_| values.len() <= MOST_JOBS).ok_or_else(too_many)?;
        }
        return Ok(values);
    }
    let (start, stop, step) = (start.float(), stop.float(), step.float());
    for index in 0.. {
        // One rounding: Hydra adds in decimal with 28 digits.
        let at = f64::from(index).mul_add(step, start);
        if !(if step > 0.0 { at < stop } else { at > stop }) {
            break;
        }
        if values.len() > MOST_JOBS {
            return Err(too_many());
        }
        values.push(python::repr(at));
    }
    Ok(values)
}

/// Whether `name` matches a shell pattern with `*`, `?` and `[...]`.
fn matches_glob(name: &str, glob: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    let glob: Vec<char> = glob.chars().collect();
    matches_chars(&name, &glob)
}

fn matches_chars(name: &[char], glob: &[char]) -> bool {
    match glob {
        [] => name.is_empty(),
        ['*', rest @ ..] => {
            // Several stars in a row are one; otherwise each would try all positions of the next.
            let rest = &rest[rest.iter().take_while(|c| **c == '*').count()..];
            (0..=name.len()).any(|skipped| matches_chars(&name[skipped..], rest))
        }
        ['[', rest @ ..] if rest.iter().skip(1).any(|c| *c == ']') => {
            let end = 1 + rest.iter().skip(1).position(|c| *c == ']').unwrap_or(0);
            let (negated, set) = match rest[..end].split_first() {
                Some(('!', set)) if !set.is_empty() => (true, set),
                _ => (false, &rest[..end]),
            };
            let Some((first, others)) = name.split_first() else { return false };
            in_set(*first, set) != negated && matches_chars(others, &rest[end + 1..])
        }
        [c, rest @ ..] => name
            .split_first()
            .is_some_and(|(first, others)| (*c == '?' || c == first) && matches_chars(others, rest)),
    }
}

fn in_set(c: char, set: &[char]) -> bool {
    match set {
        [] => false,
        [low, '-', high, rest @ ..] => (*low..=*high).contains(&c) || in_set(c, rest),
        [first, rest @ ..] => *first == c || in_set(c, rest),
    }
}

/// A permutation that only `seed` decides.
pub(super) fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    for last in (1..items.len()).rev() {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let index = (mixed ^ (mixed >> 31)) % (last as u64 + 1);
        items.swap(last, index as usize);
    }
}

impl OverrideElement {
    /// The element in the notation of overrides.
    pub(super) fn notation(&self) -> Result<String, String> {
        Ok(match self {
            OverrideElement::Null => "null".into(),
            OverrideElement::Bool(true) => "True".into(),
            OverrideElement::Bool(false) => "False".into(),
            OverrideElement::Int(number) => number.to_string(),
            OverrideElement::Float(number) => python::repr(*number),
            OverrideElement::Text(text) => escape(text),
            OverrideElement::Quoted(text, quote) => requote(text, *quote),
            OverrideElement::List(items) => {
                let items: Result<Vec<String>, String> =
                    items.iter().map(OverrideElement::notation).collect();
                format!("[{}]", items?.join(","))
            }
            OverrideElement::Map(entries) => {
                let pair = |(key, value): &(String, OverrideElement)| {
                    Ok(format!("{}:{}", escape(key), value.notation()?))
                };
                let pairs: Result<Vec<String>, String> = entries.iter().map(pair).collect();
                format!("{{{}}}", pairs?.join(","))
            }
            OverrideElement::Sweep(_) => return Err("a sweep cannot contain a sweep".into()),
        })
    }

    /// A single value as text: the key of a map.
    pub(super) fn plain_text(&self) -> String {
        match self {
            OverrideElement::Bool(flag) => flag.to_string(),
            OverrideElement::Text(text) => text.clone(),
            other => other.notation().unwrap_or_default(),
        }
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if ESCAPABLE.contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// The text in quotes: backslashes before a quote are doubled, and one more escapes the quote.
pub(crate) fn requote(text: &str, quote: char) -> String {
    let mut quoted = String::from(quote);
    let mut backslashes = 0;
    for c in text.chars() {
        if c == quote {
            quoted.extend(std::iter::repeat_n('\\', backslashes + 1));
        }
        backslashes = if c == '\\' { backslashes + 1 } else { 0 };
        quoted.push(c);
    }
    quoted.extend(std::iter::repeat_n('\\', backslashes));
    quoted.push(quote);
    quoted
}

/// The overrides of each job: all combinations, the last key varies fastest. A key that is given twice has the place of
/// the first and the value of the last.
pub(super) fn combinations(
    overrides: &[HydraOverride],
    options: impl Fn(&str) -> Vec<String>,
    seed: u64,
) -> Result<Vec<Vec<String>>, CompositionError> {
    let mut keys: Vec<(String, Vec<String>)> = Vec::new();
    for change in overrides {
        let key = format!("{}{}", change.prefix(), change.group_key());
        let values = match (change.sweep(), &change.value) {
            (Some(sweep), _) => sweep.values(&options(&change.key), seed),
            (None, Some(value)) => value.notation().map(|value| vec![value]),
            // Hydra writes a deletion without a value this way.
            (None, None) => Ok(vec!["null".into()]),
        };
        let values = values.map_err(|why| CompositionError(format!("the sweep '{}': {why}", change.line)))?;
        debug_assert!(change.value.is_some() || change.kind == OverrideKind::Delete);
        let values = values.into_iter().map(|value| format!("{key}={value}")).collect();
        match keys.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = values,
            None => keys.push((key, values)),
        }
    }
    let jobs = keys.iter().try_fold(1_usize, |jobs, (_, values)| jobs.checked_mul(values.len()));
    if jobs.is_none_or(|jobs| jobs > MOST_JOBS) {
        return Err(CompositionError(format!("the sweep has more than {MOST_JOBS} jobs")));
    }
    let mut jobs = vec![Vec::new()];
    for (_, values) in &keys {
        let longer = |job: &Vec<String>| {
            let job = job.clone();
            values.iter().map(move |value| [job.clone(), vec![value.clone()]].concat()).collect::<Vec<_>>()
        };
        jobs = jobs.iter().flat_map(longer).collect();
    }
    Ok(jobs)
}
