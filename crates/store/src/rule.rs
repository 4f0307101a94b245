//! The rule of a store that injects faults, such as `fault:posix,kind=eio,every=100`: which fault, and when. Its effect
//! on a fetch or a checkpoint is defined elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::names::Name;
use model::units::Nanos;

use crate::{Selection, StoreError};

/// The fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// The operation fails.
    Eio,
    /// The file does not exist.
    Enoent,
    /// The file ends too early.
    Short,
    /// A bit of the first byte is wrong.
    WrongBytes,
    /// The operation takes `span` longer.
    Delay,
    /// The operation never ends.
    Hang,
    /// No space is left.
    Full,
}

/// What the store is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultUse {
    Fetches,
    Checkpoints,
}

use FaultUse::{Checkpoints, Fetches};

/// The kinds, and the uses to which they apply.
const KINDS: [(&str, FaultKind, &[FaultUse]); 7] = [
    ("eio", FaultKind::Eio, &[Fetches, Checkpoints]),
    ("enoent", FaultKind::Enoent, &[Fetches]),
    ("short", FaultKind::Short, &[Fetches]),
    ("wrong-bytes", FaultKind::WrongBytes, &[Fetches]),
    ("delay", FaultKind::Delay, &[Fetches, Checkpoints]),
    ("hang", FaultKind::Hang, &[Fetches]),
    ("full", FaultKind::Full, &[Checkpoints]),
];

/// Which fault affects which operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FaultRule {
    pub(crate) kind: FaultKind,
    pub(crate) span: Nanos,
    /// Only operations on files whose names contain this are counted.
    file: String,
    /// The first `after` of them are unaffected, then every `every`th is affected, at most `limit` times.
    after: u64,
    every: u64,
    limit: u64,
}

impl FaultRule {
    /// Reads `kind=delay,span=20ms,every=100`.
    fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<FaultRule, String> {
        let (mut kind, mut span, mut seen) = (None, None, Vec::new());
        let (mut file, mut after, mut every, mut limit) = (String::new(), 0, 1, u64::MAX);
        for word in words.map(str::trim) {
            let Some((key, value)) = word.split_once('=') else {
                return Err(format!("'{word}' should be a setting such as kind=eio"));
            };
            if seen.contains(&key) {
                return Err(format!("{key} is given twice"));
            }
            seen.push(key);
            match key {
                "kind" => kind = Some(named(value)?),
                "span" => span = Some(value.parse().map_err(|error| format!("span={value}: {error}"))?),
                "file" => file = value.to_owned(),
                "after" => after = number(key, value, 0)?,
                "every" => every = number(key, value, 1)?,
                "limit" => limit = number(key, value, 1)?,
                _ => {
                    return Err(format!(
                        "there is no '{key}'; there are kind, span, file, after, every and limit"
                    ));
                }
            }
        }
        let kind = kind.ok_or("the kind is missing, such as kind=eio")?;
        let span = match (kind, span) {
            (FaultKind::Delay, None) => return Err("a delay needs a span, such as span=20ms".to_owned()),
            (FaultKind::Delay, Some(span)) => span,
            (_, Some(_)) => return Err("span is for kind=delay".to_owned()),
            (_, None) => Nanos::ZERO,
        };
        Ok(FaultRule { kind, span, file, after, every, limit })
    }
}

fn named(word: &str) -> Result<FaultKind, String> {
    KINDS.iter().find(|(name, ..)| *name == word).map(|(_, kind, _)| *kind).ok_or_else(|| {
        let known: Vec<&str> = KINDS.iter().map(|(name, ..)| *name).collect();
        format!("there is no kind '{word}'; the kinds are {}", known.join(", "))
    })
}

fn number(key: &str, value: &str, least: u64) -> Result<u64, String> {
    match value.parse() {
        Ok(number) if number >= least => Ok(number),
        _ => Err(format!("{key}={value} should be a number of at least {least}")),
    }
}

/// The inner store of a selection, and the rule for its faults.
pub(crate) fn parse(selection: &Selection) -> Result<(Selection, FaultRule), StoreError> {
    let refused = |mistake: String| refused(selection, &mistake);
    let mut words = selection.arguments.split(',');
    let name = words.next().unwrap_or_default();
    let inner = selection.registry.select(name, selection.mode);
    let inner = inner.ok().filter(|inner| inner.capabilities().holds_files);
    let inner = inner.map(|inner| Selection { objects: Arc::clone(&selection.objects), ..inner });
    match inner {
        Some(inner) if !inner.backend.injects_faults => {
            Ok((inner, FaultRule::parse(words).map_err(refused)?))
        }
        _ => Err(refused(format!("'{name}' is not a store with files; name one, such as posix"))),
    }
}

/// The same for a use to which not all kinds apply.
pub(crate) fn parse_for(
    selection: &Selection,
    usage: FaultUse,
) -> Result<(Selection, RuleState), StoreError> {
    let (inner, rule) = parse(selection)?;
    let possible = |(_, _, uses): &&(&str, FaultKind, &[FaultUse])| uses.contains(&usage);
    if KINDS.iter().filter(possible).any(|(_, kind, _)| *kind == rule.kind) {
        return Ok((inner, RuleState { rule, counted: AtomicU64::new(0), struck: AtomicU64::new(0) }));
    }
    let known: Vec<&str> = KINDS.iter().filter(possible).map(|(name, ..)| *name).collect();
    let what = match usage {
        Fetches => "reading data",
        Checkpoints => "checkpoints",
    };
    let known = known.join(", ");
    Err(refused(selection, &format!("this kind does not apply to {what}; the kinds that do are {known}")))
}

fn refused(selection: &Selection, mistake: &str) -> StoreError {
    StoreError::Refused(format!("the store '{}': {mistake}", selection.text()))
}

/// A rule and its counters.
#[derive(Debug)]
pub(crate) struct RuleState {
    pub(crate) rule: FaultRule,
    /// Operations that the rule applies to, and those that it has affected.
    counted: AtomicU64,
    struck: AtomicU64,
}

impl RuleState {
    /// Whether a fault affects an operation on this file. Relaxed: the counters publish no other data.
    pub(crate) fn strike(&self, name: &Name) -> bool {
        let FaultRule { file, after, every, limit, .. } = &self.rule;
        if !name.as_str().contains(file) {
            return false;
        }
        let number = self.counted.fetch_add(1, Ordering::Relaxed) + 1;
        let due = number > *after && (number - after).is_multiple_of(*every);
        let one_more = |struck: u64| (struck < *limit).then_some(struck + 1);
        due && self.struck.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Number of injected faults.
    pub(crate) fn count(&self) -> u64 {
        self.struck.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;

    fn rule(text: &str) -> Result<FaultRule, String> {
        FaultRule::parse(text.split(','))
    }

    #[test]
    fn rules_are_parsed() {
        let read = rule("kind=delay,span=20ms,every=100,file=train/,after=3,limit=2").unwrap();
        assert_eq!((read.kind, read.span, read.every, read.after, read.limit), {
            (FaultKind::Delay, Nanos(20_000_000), 100, 3, 2)
        });
        for (text, mistake) in [
            ("every=2", "the kind is missing, such as kind=eio"),
            (
                "kind=fire",
                "there is no kind 'fire'; the kinds are eio, enoent, short, wrong-bytes, delay, hang, \
                 full",
            ),
            ("kind=eio,eio", "'eio' should be a setting such as kind=eio"),
            ("kind=eio,kind=eio", "kind is given twice"),
            ("kind=eio,every=0", "every=0 should be a number of at least 1"),
            ("kind=eio,span=1s", "span is for kind=delay"),
            ("kind=delay", "a delay needs a span, such as span=20ms"),
            ("kind=eio,when=1", "there is no 'when'; there are kind, span, file, after, every and limit"),
        ] {
            assert_eq!(rule(text), Err(mistake.to_owned()));
        }
    }

    #[test]
    fn only_stores_with_files_can_be_wrapped() {
        for inner in ["", "null", "sim:hdd", "tape", "fault:posix"] {
            let text = format!("fault:{inner},kind=eio");
            let error = Selection::named(&text, Mode::default()).unwrap().check().unwrap_err().to_string();
            assert!(error.contains("is not a store with files"), "{error}");
        }
    }

    #[test]
    fn kinds_that_do_not_apply_are_refused() {
        for (kind, usage, message) in [
            (
                "full",
                Fetches,
                "reading data; the kinds that do are eio, enoent, short, wrong-bytes, delay, hang",
            ),
            ("hang", Checkpoints, "checkpoints; the kinds that do are eio, delay, full"),
        ] {
            let selection = Selection::named(&format!("fault:posix,kind={kind}"), Mode::default()).unwrap();
            let error = parse_for(&selection, usage).err().unwrap().to_string();
            assert_eq!(
                error,
                format!("the store 'fault:posix,kind={kind}': this kind does not apply to {message}")
            );
        }
    }
}
