//! The functions of Hydra's override grammar: casts (`int`, `float`, `str`, `bool`), sweeps (`choice`, `range`,
//! `interval`, `glob`) and changes of a sweep (`sort`, `shuffle`, `tag`).

use std::cmp::Ordering;

use super::grammar::Element;
use super::python;
use super::sweep::{RangeNumber, Sweep, shuffle};

/// The arguments of a call: first the positional ones, then the named ones.
#[derive(Debug)]
pub(super) struct Arguments {
    positional: Vec<Element>,
    named: Vec<(String, Element)>,
}

impl Arguments {
    pub(super) fn new(list: Vec<(Option<String>, Element)>) -> Result<Arguments, String> {
        let mut arguments = Arguments { positional: Vec::new(), named: Vec::new() };
        for (name, value) in list {
            // A function gets the text, not its quotes.
            let value = match value {
                Element::Quoted(text, _) => Element::Text(text),
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

    fn take(&mut self, name: &str) -> Option<Element> {
        let at = self.named.iter().position(|(known, _)| known == name)?;
        Some(self.named.remove(at).1)
    }

    /// The arguments in the order of `names`; positional ones first.
    fn bind(mut self, names: &[&str]) -> Result<Vec<Option<Element>>, String> {
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
pub(super) fn call(name: &str, arguments: Arguments, seed: u64) -> Result<Element, String> {
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
type Cast = fn(&Element) -> Result<Element, String>;

fn cast_arguments(mut arguments: Arguments, cast: Cast) -> Result<Element, String> {
    let value = arguments.take("value").filter(|value| *value != Element::Null);
    arguments.nothing_left()?;
    let mut values = arguments.positional;
    match (value, values.len()) {
        (Some(_), 1..) => Err("it takes either positional arguments or value=".into()),
        (Some(value), _) => apply(&value, cast),
        (None, 0) => Err("a value is missing".into()),
        (None, 1) => apply(&values.swap_remove(0), cast),
        (None, _) => {
            refuse_sweeps(&values)?;
            apply(&Element::Sweep(Sweep::choice(values, true)), cast)
        }
    }
}

/// Casts every single value in `value`.
fn apply(value: &Element, cast: Cast) -> Result<Element, String> {
    let all = |items: &[Element]| items.iter().map(|item| apply(item, cast)).collect::<Result<Vec<_>, _>>();
    Ok(match value {
        Element::Quoted(text, _) => cast(&Element::Text(text.clone()))?,
        Element::List(items) => Element::List(all(items)?),
        Element::Map(entries) => {
            let pair = |(key, value): &(String, Element)| Ok((key.clone(), apply(value, cast)?));
            Element::Map(entries.iter().map(pair).collect::<Result<_, String>>()?)
        }
        Element::Sweep(Sweep::Choice { list, is_simple }) => {
            let list = all(list)?;
            Element::Sweep(Sweep::choice(list, *is_simple))
        }
        Element::Sweep(Sweep::Range { start, stop, step, .. }) => {
            let [start, stop, step] = [start, stop, step].map(|number| cast_number(*number, cast));
            let (start, stop, step) = (start?, stop?, step?);
            Element::Sweep(Sweep::Range { start, stop, step, shuffled: false })
        }
        Element::Sweep(Sweep::Interval { start, end }) => {
            let (start, end) = (cast_number(*start, cast)?, cast_number(*end, cast)?);
            Element::Sweep(Sweep::Interval { start, end })
        }
        Element::Sweep(Sweep::Glob { .. }) => return Err("it cannot cast glob()".into()),
        value => cast(value)?,
    })
}

fn cast_number(number: RangeNumber, cast: Cast) -> Result<RangeNumber, String> {
    let element = match number {
        RangeNumber::Int(number) => Element::Int(number),
        RangeNumber::Float(number) => Element::Float(number),
    };
    match cast(&element)? {
        Element::Int(number) => Ok(RangeNumber::Int(number)),
        Element::Float(number) => Ok(RangeNumber::Float(number)),
        _ => Err("a range can only be cast to int or float".into()),
    }
}

fn to_int(value: &Element) -> Result<Element, String> {
    let number = match value {
        Element::Bool(flag) => Some(i128::from(*flag)),
        Element::Int(number) => Some(*number),
        Element::Float(number) => number.is_finite().then_some(number.trunc() as i128),
        Element::Text(text) => python::int(text),
        _ => None,
    };
    number.map(Element::Int).ok_or_else(|| cannot_cast(value, "an integer"))
}

fn to_float(value: &Element) -> Result<Element, String> {
    let number = match value {
        Element::Bool(flag) => Some(f64::from(u8::from(*flag))),
        Element::Int(number) => Some(*number as f64),
        Element::Float(number) => Some(*number),
        Element::Text(text) => python::float(text),
        _ => None,
    };
    number.map(Element::Float).ok_or_else(|| cannot_cast(value, "a number"))
}

fn to_str(value: &Element) -> Result<Element, String> {
    match value {
        Element::Bool(flag) => Ok(Element::Text(flag.to_string())),
        Element::Int(number) => Ok(Element::Text(number.to_string())),
        Element::Float(number) => Ok(Element::Text(python::repr(*number))),
        Element::Text(text) => Ok(Element::Text(text.clone())),
        _ => Err(cannot_cast(value, "a text")),
    }
}

fn to_bool(value: &Element) -> Result<Element, String> {
    let flag = match value {
        Element::Null => Some(false),
        Element::Bool(flag) => Some(*flag),
        Element::Int(number) => Some(*number != 0),
        Element::Float(number) => Some(*number != 0.0),
        Element::Text(text) if text.eq_ignore_ascii_case("true") => Some(true),
        Element::Text(text) if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    };
    flag.map(Element::Bool).ok_or_else(|| cannot_cast(value, "a boolean"))
}

fn cannot_cast(value: &Element, kind: &str) -> String {
    format!("'{}' is not {kind}", value.notation().unwrap_or_default())
}

fn refuse_sweeps(values: &[Element]) -> Result<(), String> {
    match values.iter().any(|value| matches!(value, Element::Sweep(_))) {
        true => Err("a sweep cannot contain a sweep".into()),
        false => Ok(()),
    }
}

fn choice(arguments: Arguments) -> Result<Element, String> {
    arguments.nothing_left()?;
    let mut list = arguments.positional;
    if list.is_empty() {
        return Err("it needs at least one value".into());
    }
    if let [Element::Sweep(Sweep::Choice { list: inner, is_simple: true })] = list.as_mut_slice() {
        return Ok(Element::Sweep(Sweep::choice(std::mem::take(inner), false)));
    }
    refuse_sweeps(&list)?;
    if list.contains(&Element::Null) {
        return Err("null is not a choice".into());
    }
    Ok(Element::Sweep(Sweep::choice(list, false)))
}

fn number(value: Element) -> Result<RangeNumber, String> {
    match value {
        Element::Bool(flag) => Ok(RangeNumber::Int(i128::from(flag))),
        Element::Int(number) => Ok(RangeNumber::Int(number)),
        Element::Float(number) => Ok(RangeNumber::Float(number)),
        other => Err(cannot_cast(&other, "a number")),
    }
}

fn range(arguments: Arguments) -> Result<Element, String> {
    let mut bound = arguments.bind(&["start", "stop", "step"])?.into_iter();
    let mut next = || bound.next().flatten().unwrap_or(Element::Null);
    let (start, stop, step) = (number(next())?, next(), next());
    let step = if step == Element::Null { RangeNumber::Int(1) } else { number(step)? };
    let (start, stop) = match stop {
        Element::Null => (RangeNumber::Int(0), start),
        stop => (start, number(stop)?),
    };
    Ok(Element::Sweep(Sweep::Range { start, stop, step, shuffled: false }))
}

fn interval(arguments: Arguments) -> Result<Element, String> {
    let bound = arguments.bind(&["start", "end"])?;
    let [start, end] =
        <[Option<Element>; 2]>::try_from(bound).map_err(|_| "it takes two numbers".to_owned())?;
    let float = |value: Option<Element>| {
        let number = number(value.ok_or("it takes two numbers")?)?;
        Ok::<_, String>(RangeNumber::Float(number.float()))
    };
    Ok(Element::Sweep(Sweep::Interval { start: float(start)?, end: float(end)? }))
}

fn glob(arguments: Arguments) -> Result<Element, String> {
    let mut bound = arguments.bind(&["include", "exclude"])?.into_iter();
    let mut next = || bound.next().flatten().unwrap_or(Element::Null);
    let include = texts(next())?;
    let exclude = match next() {
        Element::Null => Vec::new(),
        exclude => texts(exclude)?,
    };
    Ok(Element::Sweep(Sweep::Glob { include, exclude }))
}

fn texts(value: Element) -> Result<Vec<String>, String> {
    match value {
        Element::Text(text) | Element::Quoted(text, _) => Ok(vec![text]),
        Element::List(items) => Ok(items.into_iter().map(texts).collect::<Result<Vec<_>, _>>()?.concat()),
        _ => Err("a pattern, or a list of patterns, is needed".into()),
    }
}

/// Tags are for other sweepers; here the sweep stays as it is.
fn tag(mut arguments: Arguments) -> Result<Element, String> {
    let sweep = arguments.take("sweep");
    arguments.nothing_left()?;
    if arguments.positional.is_empty() {
        return Err("it needs a sweep".into());
    }
    let mut values = arguments.positional;
    let sweep = sweep.or_else(|| values.pop());
    if values.iter().any(|tag| !matches!(tag, Element::Text(_))) {
        return Err("a tag is a text".into());
    }
    match sweep {
        Some(sweep @ Element::Sweep(Sweep::Choice { .. } | Sweep::Range { .. } | Sweep::Interval { .. })) => {
            Ok(sweep)
        }
        _ => Err("its last argument must be choice(), range() or interval()".into()),
    }
}

/// The single sweep, list or value, or a simple choice of several values.
fn subject(mut arguments: Arguments) -> Result<Element, String> {
    let named = arguments.take("list").or_else(|| arguments.take("sweep"));
    arguments.nothing_left()?;
    let mut values = arguments.positional;
    match (named, values.len()) {
        (Some(named), _) => Ok(named),
        (None, 0) => Err("a sweep or a list is missing".into()),
        (None, 1) => Ok(values.swap_remove(0)),
        (None, _) => {
            refuse_sweeps(&values)?;
            Ok(Element::Sweep(Sweep::choice(values, true)))
        }
    }
}

fn shuffled(arguments: Arguments, seed: u64) -> Result<Element, String> {
    match subject(arguments)? {
        Element::List(mut items) => {
            shuffle(&mut items, seed);
            Ok(Element::List(items))
        }
        Element::Sweep(Sweep::Choice { mut list, is_simple }) => {
            shuffle(&mut list, seed);
            Ok(Element::Sweep(Sweep::choice(list, is_simple)))
        }
        Element::Sweep(Sweep::Range { start, stop, step, .. }) => {
            Ok(Element::Sweep(Sweep::Range { start, stop, step, shuffled: true }))
        }
        Element::Sweep(_) => Err("it cannot shuffle interval() or glob()".into()),
        value => Ok(Element::List(vec![value])),
    }
}

fn sort(mut arguments: Arguments) -> Result<Element, String> {
    let reverse = match arguments.take("reverse") {
        None | Some(Element::Bool(false)) => false,
        Some(Element::Bool(true)) => true,
        Some(_) => return Err("reverse is true or false".into()),
    };
    match subject(arguments)? {
        Element::List(items) => Ok(Element::List(sorted(items, reverse)?)),
        Element::Sweep(Sweep::Choice { list, is_simple }) => {
            Ok(Element::Sweep(Sweep::choice(sorted(list, reverse)?, is_simple)))
        }
        Element::Sweep(Sweep::Range { start, stop, step, shuffled }) => {
            let (start, stop, step) = sorted_range(start, stop, step, reverse);
            Ok(Element::Sweep(Sweep::Range { start, stop, step, shuffled }))
        }
        Element::Sweep(_) => Err("it cannot sort interval() or glob()".into()),
        value => Ok(value),
    }
}

fn sorted(mut items: Vec<Element>, reverse: bool) -> Result<Vec<Element>, String> {
    let mut comparable = true;
    items.sort_by(|a, b| {
        let order = if reverse { compare(b, a) } else { compare(a, b) };
        comparable &= order.is_some();
        order.unwrap_or(Ordering::Equal)
    });
    if comparable { Ok(items) } else { Err("the values cannot be compared with each other".into()) }
}

fn compare(a: &Element, b: &Element) -> Option<Ordering> {
    match (a, b) {
        (Element::Text(a), Element::Text(b)) => Some(a.cmp(b)),
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
