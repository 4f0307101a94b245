//! The functions of Hydra's override grammar: casts (`int`, `float`, `str`, `bool`), sweeps (`choice`, `range`,
//! `interval`, `glob`) and changes of a sweep (`sort`, `shuffle`, `tag`).

use std::cmp::Ordering;

use super::grammar::OverrideElement;
use super::python;
use super::sweep::{RangeNumber, ValueSweep, shuffle};

/// The arguments of a call: first the positional ones, then the named ones.
#[derive(Debug)]
pub(super) struct Arguments {
    positional: Vec<OverrideElement>,
    named: Vec<(String, OverrideElement)>,
}

impl Arguments {
    pub(super) fn new(list: Vec<(Option<String>, OverrideElement)>) -> Result<Arguments, String> {
        let mut arguments = Arguments { positional: Vec::new(), named: Vec::new() };
        for (name, value) in list {
            // A function gets the text, not its quotes.
            let value = match value {
                OverrideElement::Quoted(text, _) => OverrideElement::Text(text),
                value => value,
            };
            match name {
                Some(name) if arguments.named.iter().any(|(known, _)| *known == name) => {
                    return Err(format!("the argument '{name}' is given twice"));
                }
                Some(name) => arguments.named.push((name, value)),
                None if !arguments.named.is_empty() => {
                    return Err("a positional argument cannot follow a named one".into());
                }
                None => arguments.positional.push(value),
            }
        }
        Ok(arguments)
    }

    fn take(&mut self, name: &str) -> Option<OverrideElement> {
        let at = self.named.iter().position(|(known, _)| known == name)?;
        Some(self.named.remove(at).1)
    }

    /// The arguments in the order of `names`; positional ones first.
    fn bind(mut self, names: &[&str]) -> Result<Vec<Option<OverrideElement>>, String> {
        if self.positional.len() > names.len() {
            return Err(format!("it takes at most {} arguments", names.len()));
        }
        let mut bound = Vec::new();
        let mut positional = std::mem::take(&mut self.positional).into_iter();
        for name in names {
            let named = self.take(name);
            bound.push(match (positional.next(), named) {
                (Some(_), Some(_)) => return Err(format!("the argument '{name}' is given twice")),
                (value, named) => value.or(named),
            });
        }
        self.nothing_left()?;
        Ok(bound)
    }

    fn nothing_left(&self) -> Result<(), String> {
        match self.named.first() {
            Some((name, _)) => Err(format!("there is no argument '{name}'")),
            None => Ok(()),
        }
    }
}

/// The value of the call.
pub(super) fn call(name: &str, arguments: Arguments, seed: u64) -> Result<OverrideElement, String> {
    match name {
        "int" => cast_arguments(arguments, to_int),
        "float" => cast_arguments(arguments, to_float),
        "str" => cast_arguments(arguments, to_str),
        "bool" => cast_arguments(arguments, to_bool),
        "choice" => choice(arguments),
        "range" => range(arguments),
        "interval" => interval(arguments),
        "glob" => glob(arguments),
        "tag" => tag(arguments),
        "sort" => sort(arguments),
        "shuffle" => shuffled(arguments, seed),
        _ => Err(
            "there is no such function; there are bool, choice, float, glob, int, interval, range, shuffle, \
                  sort, str and tag"
                .into(),
        ),
    }
}

/// A function of a single value.
type Cast = fn(&OverrideElement) -> Result<OverrideElement, String>;

fn cast_arguments(mut arguments: Arguments, cast: Cast) -> Result<OverrideElement, String> {
    let value = arguments.take("value").filter(|value| *value != OverrideElement::Null);
    arguments.nothing_left()?;
    let mut values = arguments.positional;
    match (value, values.len()) {
        (Some(_), 1..) => Err("it takes either positional arguments or value=".into()),
        (Some(value), _) => apply(&value, cast),
        (None, 0) => Err("a value is missing".into()),
        (None, 1) => apply(&values.swap_remove(0), cast),
        (None, _) => {
            refuse_sweeps(&values)?;
            apply(&OverrideElement::Sweep(ValueSweep::choice(values, true)), cast)
        }
    }
}

/// Casts every single value in `value`.
fn apply(value: &OverrideElement, cast: Cast) -> Result<OverrideElement, String> {
    let all =
        |items: &[OverrideElement]| items.iter().map(|item| apply(item, cast)).collect::<Result<Vec<_>, _>>();
    Ok(match value {
        OverrideElement::Quoted(text, _) => cast(&OverrideElement::Text(text.clone()))?,
        OverrideElement::List(items) => OverrideElement::List(all(items)?),
        OverrideElement::Map(entries) => {
            let pair = |(key, value): &(String, OverrideElement)| Ok((key.clone(), apply(value, cast)?));
            OverrideElement::Map(entries.iter().map(pair).collect::<Result<_, String>>()?)
        }
        OverrideElement::Sweep(ValueSweep::Choice { list, is_simple }) => {
            let list = all(list)?;
            OverrideElement::Sweep(ValueSweep::choice(list, *is_simple))
        }
        OverrideElement::Sweep(ValueSweep::Range { start, stop, step, .. }) => {
            let [start, stop, step] = [start, stop, step].map(|number| cast_number(*number, cast));
            let (start, stop, step) = (start?, stop?, step?);
            OverrideElement::Sweep(ValueSweep::Range { start, stop, step, shuffled: false })
        }
        OverrideElement::Sweep(ValueSweep::Interval { start, end }) => {
            let (start, end) = (cast_number(*start, cast)?, cast_number(*end, cast)?);
            OverrideElement::Sweep(ValueSweep::Interval { start, end })
        }
        OverrideElement::Sweep(ValueSweep::Glob { .. }) => return Err("it cannot cast glob()".into()),
        value => cast(value)?,
    })
}

fn cast_number(number: RangeNumber, cast: Cast) -> Result<RangeNumber, String> {
    let element = match number {
        RangeNumber::Int(number) => OverrideElement::Int(number),
        RangeNumber::Float(number) => OverrideElement::Float(number),
    };
    match cast(&element)? {
        OverrideElement::Int(number) => Ok(RangeNumber::Int(number)),
        OverrideElement::Float(number) => Ok(RangeNumber::Float(number)),
        _ => Err("a range can only be cast to int or float".into()),
    }
}

fn to_int(value: &OverrideElement) -> Result<OverrideElement, String> {
    let number = match value {
        OverrideElement::Bool(flag) => Some(i128::from(*flag)),
        OverrideElement::Int(number) => Some(*number),
        OverrideElement::Float(number) => number.is_finite().then_some(number.trunc() as i128),
        OverrideElement::Text(text) => python::int(text),
        _ => None,
    };
    number.map(OverrideElement::Int).ok_or_else(|| cannot_cast(value, "an integer"))
}

fn to_float(value: &OverrideElement) -> Result<OverrideElement, String> {
    let number = match value {
        OverrideElement::Bool(flag) => Some(f64::from(u8::from(*flag))),
        OverrideElement::Int(number) => Some(*number as f64),
        OverrideElement::Float(number) => Some(*number),
        OverrideElement::Text(text) => python::float(text),
        _ => None,
    };
    number.map(OverrideElement::Float).ok_or_else(|| cannot_cast(value, "a number"))
}

fn to_str(value: &OverrideElement) -> Result<OverrideElement, String> {
    match value {
        OverrideElement::Bool(flag) => Ok(OverrideElement::Text(flag.to_string())),
        OverrideElement::Int(number) => Ok(OverrideElement::Text(number.to_string())),
        OverrideElement::Float(number) => Ok(OverrideElement::Text(python::repr(*number))),
        OverrideElement::Text(text) => Ok(OverrideElement::Text(text.clone())),
        _ => Err(cannot_cast(value, "a text")),
    }
}

fn to_bool(value: &OverrideElement) -> Result<OverrideElement, String> {
    let flag = match value {
        OverrideElement::Null => Some(false),
        OverrideElement::Bool(flag) => Some(*flag),
        OverrideElement::Int(number) => Some(*number != 0),
        OverrideElement::Float(number) => Some(*number != 0.0),
        OverrideElement::Text(text) if text.eq_ignore_ascii_case("true") => Some(true),
        OverrideElement::Text(text) if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    };
    flag.map(OverrideElement::Bool).ok_or_else(|| cannot_cast(value, "a boolean"))
}

fn cannot_cast(value: &OverrideElement, kind: &str) -> String {
    format!("'{}' is not {kind}", value.notation().unwrap_or_default())
}

fn refuse_sweeps(values: &[OverrideElement]) -> Result<(), String> {
    match values.iter().any(|value| matches!(value, OverrideElement::Sweep(_))) {
        true => Err("a sweep cannot contain a sweep".into()),
        false => Ok(()),
    }
}

fn choice(arguments: Arguments) -> Result<OverrideElement, String> {
    arguments.nothing_left()?;
    let mut list = arguments.positional;
    if list.is_empty() {
        return Err("it needs at least one value".into());
    }
    if let [OverrideElement::Sweep(ValueSweep::Choice { list: inner, is_simple: true })] = list.as_mut_slice()
    {
        return Ok(OverrideElement::Sweep(ValueSweep::choice(std::mem::take(inner), false)));
    }
    refuse_sweeps(&list)?;
    if list.contains(&OverrideElement::Null) {
        return Err("null is not a choice".into());
    }
    Ok(OverrideElement::Sweep(ValueSweep::choice(list, false)))
}

fn number(value: OverrideElement) -> Result<RangeNumber, String> {
    match value {
        OverrideElement::Bool(flag) => Ok(RangeNumber::Int(i128::from(flag))),
        OverrideElement::Int(number) => Ok(RangeNumber::Int(number)),
        OverrideElement::Float(number) => Ok(RangeNumber::Float(number)),
        other => Err(cannot_cast(&other, "a number")),
    }
}

fn range(arguments: Arguments) -> Result<OverrideElement, String> {
    let mut bound = arguments.bind(&["start", "stop", "step"])?.into_iter();
    let mut next = || bound.next().flatten().unwrap_or(OverrideElement::Null);
    let (start, stop, step) = (number(next())?, next(), next());
    let step = if step == OverrideElement::Null { RangeNumber::Int(1) } else { number(step)? };
    let (start, stop) = match stop {
        OverrideElement::Null => (RangeNumber::Int(0), start),
        stop => (start, number(stop)?),
    };
    Ok(OverrideElement::Sweep(ValueSweep::Range { start, stop, step, shuffled: false }))
}

fn interval(arguments: Arguments) -> Result<OverrideElement, String> {
    let bound = arguments.bind(&["start", "end"])?;
    let [start, end] =
        <[Option<OverrideElement>; 2]>::try_from(bound).map_err(|_| "it takes two numbers".to_owned())?;
    let float = |value: Option<OverrideElement>| {
        let number = number(value.ok_or("it takes two numbers")?)?;
        Ok::<_, String>(RangeNumber::Float(number.float()))
    };
    Ok(OverrideElement::Sweep(ValueSweep::Interval { start: float(start)?, end: float(end)? }))
}

fn glob(arguments: Arguments) -> Result<OverrideElement, String> {
    let mut bound = arguments.bind(&["include", "exclude"])?.into_iter();
    let mut next = || bound.next().flatten().unwrap_or(OverrideElement::Null);
    let include = texts(next())?;
    let exclude = match next() {
        OverrideElement::Null => Vec::new(),
        exclude => texts(exclude)?,
    };
    Ok(OverrideElement::Sweep(ValueSweep::Glob { include, exclude }))
}

fn texts(value: OverrideElement) -> Result<Vec<String>, String> {
    match value {
        OverrideElement::Text(text) | OverrideElement::Quoted(text, _) => Ok(vec![text]),
        OverrideElement::List(items) => {
            Ok(items.into_iter().map(texts).collect::<Result<Vec<_>, _>>()?.concat())
        }
        _ => Err("a pattern, or a list of patterns, is needed".into()),
    }
}

/// Tags are for other sweepers; here the sweep stays as it is.
fn tag(mut arguments: Arguments) -> Result<OverrideElement, String> {
    let sweep = arguments.take("sweep");
    arguments.nothing_left()?;
    if arguments.positional.is_empty() {
        return Err("it needs a sweep".into());
    }
    let mut values = arguments.positional;
    let sweep = sweep.or_else(|| values.pop());
    if values.iter().any(|tag| !matches!(tag, OverrideElement::Text(_))) {
        return Err("a tag is a text".into());
    }
    match sweep {
        Some(
            sweep @ OverrideElement::Sweep(
                ValueSweep::Choice { .. } | ValueSweep::Range { .. } | ValueSweep::Interval { .. },
            ),
        ) => Ok(sweep),
        _ => Err("its last argument must be choice(), range() or interval()".into()),
    }
}

/// The single sweep, list or value, or a simple choice of several values.
fn subject(mut arguments: Arguments) -> Result<OverrideElement, String> {
    let named = arguments.take("list").or_else(|| arguments.take("sweep"));
    arguments.nothing_left()?;
    let mut values = arguments.positional;
    match (named, values.len()) {
        (Some(named), _) => Ok(named),
        (None, 0) => Err("a sweep or a list is missing".into()),
        (None, 1) => Ok(values.swap_remove(0)),
        (None, _) => {
            refuse_sweeps(&values)?;
            Ok(OverrideElement::Sweep(ValueSweep::choice(values, true)))
        }
    }
}

fn shuffled(arguments: Arguments, seed: u64) -> Result<OverrideElement, String> {
    match subject(arguments)? {
        OverrideElement::List(mut items) => {
            shuffle(&mut items, seed);
            Ok(OverrideElement::List(items))
        }
        OverrideElement::Sweep(ValueSweep::Choice { mut list, is_simple }) => {
            shuffle(&mut list, seed);
            Ok(OverrideElement::Sweep(ValueSweep::choice(list, is_simple)))
        }
        OverrideElement::Sweep(ValueSweep::Range { start, stop, step, .. }) => {
            Ok(OverrideElement::Sweep(ValueSweep::Range { start, stop, step, shuffled: true }))
        }
        OverrideElement::Sweep(_) => Err("it cannot shuffle interval() or glob()".into()),
        value => Ok(OverrideElement::List(vec![value])),
    }
}

fn sort(mut arguments: Arguments) -> Result<OverrideElement, String> {
    let reverse = match arguments.take("reverse") {
        None | Some(OverrideElement::Bool(false)) => false,
        Some(OverrideElement::Bool(true)) => true,
        Some(_) => return Err("reverse is true or false".into()),
    };
    match subject(arguments)? {
        OverrideElement::List(items) => Ok(OverrideElement::List(sorted(items, reverse)?)),
        OverrideElement::Sweep(ValueSweep::Choice { list, is_simple }) => {
            Ok(OverrideElement::Sweep(ValueSweep::choice(sorted(list, reverse)?, is_simple)))
        }
        OverrideElement::Sweep(ValueSweep::Range { start, stop, step, shuffled }) => {
            let (start, stop, step) = sorted_range(start, stop, step, reverse);
            Ok(OverrideElement::Sweep(ValueSweep::Range { start, stop, step, shuffled }))
        }
        OverrideElement::Sweep(_) => Err("it cannot sort interval() or glob()".into()),
        value => Ok(value),
    }
}

fn sorted(mut items: Vec<OverrideElement>, reverse: bool) -> Result<Vec<OverrideElement>, String> {
    let mut comparable = true;
    items.sort_by(|a, b| {
        let order = if reverse { compare(b, a) } else { compare(a, b) };
        comparable &= order.is_some();
        order.unwrap_or(Ordering::Equal)
    });
    if comparable { Ok(items) } else { Err("the values cannot be compared with each other".into()) }
}

fn compare(a: &OverrideElement, b: &OverrideElement) -> Option<Ordering> {
    match (a, b) {
        (OverrideElement::Text(a), OverrideElement::Text(b)) => Some(a.cmp(b)),
        _ => number(a.clone()).ok()?.float().partial_cmp(&number(b.clone()).ok()?.float()),
    }
}

fn sorted_range(
    start: RangeNumber,
    stop: RangeNumber,
    step: RangeNumber,
    reverse: bool,
) -> (RangeNumber, RangeNumber, RangeNumber) {
    let is_sorted = if reverse { start.float() >= stop.float() } else { start.float() <= stop.float() };
    if is_sorted {
        return (start, stop, step);
    }
    let moved = |number: RangeNumber| {
        let sign: i8 = if reverse { -1 } else { 1 };
        match (number, step) {
            (RangeNumber::Int(number), RangeNumber::Int(step)) => {
                RangeNumber::Int(number.saturating_add(i128::from(sign) * step.saturating_abs()))
            }
            (number, step) => RangeNumber::Float(number.float() + f64::from(sign) * step.float().abs()),
        }
    };
    let negated = match step {
        RangeNumber::Int(step) => RangeNumber::Int(step.saturating_neg()),
        RangeNumber::Float(step) => RangeNumber::Float(-step),
    };
    (moved(stop), moved(start), negated)
}
