//! What a sweep varies: keys with their values, the grid of all their combinations, and the order of the runs. Whether
//! a key exists and a value fits is checked when a cell becomes a plan.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::order::{Permutation, mix};
use crate::secret::redact;
use crate::spec::{Override, canonical_key};

/// The largest grid that is accepted.
const MOST_CELLS: usize = 10_000;

/// Keys that belong to a run and are not settings of the workload.
const RANKS: &str = "ranks";
const STORE: &str = "store";

/// What is wrong with the axes of a grid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GridError {
    #[error("there is no '='; write KEY=VALUE,VALUE,..")]
    NoValues,
    #[error("'{0}' is not a key; write KEY=VALUE,VALUE,..")]
    NotAKey(String),
    #[error("a value is missing; write KEY=VALUE,VALUE,..")]
    MissingValue,
    #[error("the value {0} is given twice")]
    RepeatedValue(String),
    #[error("{0} is a secret or holds one, and the results of a sweep show its values; set it with --set")]
    SecretKey(String),
    #[error("'{0}' is not a number of ranks")]
    NotANumberOfRanks(String),
    /// The axis of this number has the key of an earlier one.
    #[error("{key} is swept twice; give all its values in one --over")]
    RepeatedKey { axis: usize, key: String },
    #[error("{0} is varied with --over and fixed with --{0}; remove one of them")]
    FixedKey(String),
    #[error("nothing is varied; give --over KEY=VALUE,VALUE,.., or sweep.over in the workload")]
    NoAxes,
    #[error("the grid has {0} cells; at most {most} are allowed", most = MOST_CELLS)]
    TooManyCells(String),
}

/// A key and the values it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    pub key: String,
    pub values: Vec<String>,
}

impl Axis {
    /// Reads `KEY=VALUE,VALUE,..`.
    pub fn parse(text: &str) -> Result<Axis, GridError> {
        let (key, values) = text.split_once('=').ok_or(GridError::NoValues)?;
        let key = bare(key);
        if key.is_empty() || key.starts_with('~') {
            return Err(GridError::NotAKey(key.to_owned()));
        }
        if redact(text) != text {
            return Err(GridError::SecretKey(key.to_owned()));
        }
        let values: Vec<String> = split(values).iter().map(|value| value.trim().to_owned()).collect();
        if values.iter().any(String::is_empty) {
            return Err(GridError::MissingValue);
        }
        let mut earlier = values.iter().enumerate();
        if let Some((_, twice)) = earlier.find(|(i, value)| values[..*i].contains(value)) {
            return Err(GridError::RepeatedValue(twice.clone()));
        }
        if let Some(bad) = values.iter().find(|value| key == RANKS && value.parse::<u64>().is_err()) {
            return Err(GridError::NotANumberOfRanks(bad.clone()));
        }
        Ok(Axis { key: key.to_owned(), values })
    }
}

/// A key without the prefixes that an override in Hydra's notation may have.
fn bare(key: &str) -> &str {
    let key = key.trim().trim_start_matches('+');
    key.strip_prefix("workload.").unwrap_or(key)
}

/// What the command line says about the axes of a sweep.
#[derive(Clone, Debug, Default)]
pub struct AxisRequest {
    /// Axes of `--over`.
    pub over: Vec<Axis>,
    /// Whether the store and the number of ranks have a fixed value.
    pub store: bool,
    pub ranks: bool,
    /// Keys that have a fixed value, possibly in Hydra's notation.
    pub fixed: Vec<String>,
}

impl AxisRequest {
    /// The axes of a sweep: those of the workload, without keys that have a fixed value. An axis of `--over` replaces
    /// the one with its key, or comes after them.
    pub fn axes(&self, of_workload: Vec<Axis>) -> Result<Vec<Axis>, GridError> {
        let mut axes: Vec<Axis> = of_workload.into_iter().filter(|axis| !self.fixes(&axis.key)).collect();
        let own = axes.len();
        for axis in &self.over {
            if self.fixes_place(&axis.key) {
                return Err(GridError::FixedKey(axis.key.clone()));
            }
            let key = canonical_key(&axis.key);
            match axes[..own].iter_mut().find(|other| canonical_key(&other.key) == key) {
                Some(replaced) => *replaced = axis.clone(),
                None => axes.push(axis.clone()),
            }
        }
        if axes.is_empty() { Err(GridError::NoAxes) } else { Ok(axes) }
    }

    fn fixes_place(&self, key: &str) -> bool {
        key == STORE && self.store || key == RANKS && self.ranks
    }

    fn fixes(&self, key: &str) -> bool {
        let key = canonical_key(key);
        self.fixes_place(&key) || self.fixed.iter().any(|fixed| canonical_key(bare(fixed)) == key)
    }
}

/// All combinations of the axes' values. The last axis varies fastest; the first cell has every axis' first value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepGrid {
    axes: Vec<Axis>,
}

impl SweepGrid {
    pub fn new(axes: Vec<Axis>) -> Result<SweepGrid, GridError> {
        let keys: Vec<String> = axes.iter().map(|axis| canonical_key(&axis.key)).collect();
        if let Some(axis) = (0..keys.len()).find(|axis| keys[..*axis].contains(&keys[*axis])) {
            return Err(GridError::RepeatedKey { axis, key: axes[axis].key.clone() });
        }
        let cells = axes.iter().try_fold(1usize, |cells, axis| cells.checked_mul(axis.values.len()));
        if cells.is_none_or(|cells| cells > MOST_CELLS) {
            let sizes: Vec<String> = axes.iter().map(|axis| axis.values.len().to_string()).collect();
            return Err(GridError::TooManyCells(sizes.join(" x ")));
        }
        Ok(SweepGrid { axes })
    }

    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    pub fn cells(&self) -> usize {
        self.axes.iter().map(|axis| axis.values.len()).product()
    }

    pub fn cell(&self, index: usize) -> SweepCell<'_> {
        let mut rest = index;
        let mut settings: Vec<(&str, &str)> = Vec::with_capacity(self.axes.len());
        for axis in self.axes.iter().rev() {
            settings.push((&axis.key, &axis.values[rest % axis.values.len()]));
            rest /= axis.values.len();
        }
        settings.reverse();
        SweepCell { settings }
    }

    /// All runs of a sweep: round by round, each round in an order of its own, so that slow changes of the machine
    /// affect all cells alike.
    pub fn runs(&self, rounds: u64, seed: u64) -> impl Iterator<Item = SweepRun> {
        let cells = self.cells() as u64;
        (1..=rounds).flat_map(move |round| {
            let order = Permutation::new(cells, mix(seed, round));
            (0..cells).map(move |at| SweepRun { cell: order.apply(at) as usize, round })
        })
    }
}

/// One run of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepRun {
    pub cell: usize,
    /// From 1.
    pub round: u64,
}

/// Splits at commas outside brackets and quotes. An unclosed bracket or quote is reported when the value is read.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0usize);
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in text.char_indices() {
        if std::mem::take(&mut escaped) {
            continue;
        }
        match (quote, c) {
            (_, '\\') => escaped = true,
            (Some(open), _) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[' | '{' | '(') => depth += 1,
            (None, ']' | '}' | ')') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// One combination: a value for each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepCell<'a> {
    pub settings: Vec<(&'a str, &'a str)>,
}

impl<'a> SweepCell<'a> {
    fn of(&self, key: &str) -> Option<&'a str> {
        self.settings.iter().find(|(other, _)| *other == key).map(|(_, value)| *value)
    }

    pub fn ranks(&self) -> Option<u64> {
        self.of(RANKS).and_then(|value| value.parse().ok())
    }

    /// The store, without the quotes that keep the commas of its arguments from separating values.
    pub fn store(&self) -> Option<&'a str> {
        let store = self.of(STORE)?;
        let inner = ['\'', '"'].iter().find_map(|quote| store.strip_prefix(*quote)?.strip_suffix(*quote));
        inner.or(Some(store))
    }

    /// The changes to the workload. Messages name each as an argument of `flag`.
    pub fn overrides(&self, flag: &str) -> impl Iterator<Item = Override> {
        let settings = self.settings.iter().filter(|(key, _)| ![RANKS, STORE].contains(key));
        settings.map(move |(key, value)| {
            let argument = format!("{key}={value}");
            Override::hydra(&argument, format!("{flag} {argument}"))
        })
    }
}

impl fmt::Display for SweepCell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings: Vec<String> =
            self.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&settings.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(over: &[&str]) -> Result<SweepGrid, GridError> {
        SweepGrid::new(over.iter().map(|text| Axis::parse(text)).collect::<Result<_, _>>()?)
    }

    #[test]
    fn values_split_at_commas_outside_brackets_and_quotes() {
        for (text, parts) in [
            ("1,2", vec!["1", "2"]),
            ("[1,2],[3]", vec!["[1,2]", "[3]"]),
            ("{a: 1, b: [2,3]},x", vec!["{a: 1, b: [2,3]}", "x"]),
            ("'a,b',\"c,d\"", vec!["'a,b'", "\"c,d\""]),
            (r"a\,b,c", vec![r"a\,b", "c"]),
            (r"'a\',b',c", vec![r"'a\',b'", "c"]),
            ("[1,2", vec!["[1,2"]),
            ("", vec![""]),
        ] {
            assert_eq!(split(text), parts, "{text}");
        }
    }

    #[test]
    fn the_last_axis_varies_fastest() {
        let grid = grid(&["a=1,2", "ranks=3,4", "store=posix"]).unwrap();
        let cells: Vec<String> = (0..grid.cells()).map(|index| grid.cell(index).to_string()).collect();
        assert_eq!(
            cells,
            [
                "a=1 ranks=3 store=posix",
                "a=1 ranks=4 store=posix",
                "a=2 ranks=3 store=posix",
                "a=2 ranks=4 store=posix"
            ]
        );
        let cell = grid.cell(1);
        assert_eq!((cell.ranks(), cell.store()), (Some(4), Some("posix")));
        assert_eq!(cell.overrides("--over").collect::<Vec<_>>(), [Override::hydra("a=1", "--over a=1")]);
        let quoted = self::grid(&["store='sim:latency=4ms,channels=1',null"]).unwrap();
        assert_eq!(
            (quoted.cell(0).store(), quoted.cell(1).store()),
            (Some("sim:latency=4ms,channels=1"), Some("null"))
        );
    }

    #[test]
    fn the_command_line_replaces_adds_and_fixes_axes_of_the_workload() {
        let axes =
            |texts: &[&str]| -> Vec<Axis> { texts.iter().map(|text| Axis::parse(text).unwrap()).collect() };
        let own = || axes(&["store=sim:hdd,sim:ssd", "reader.read_threads=1,2"]);
        let with = |over: &[&str], fixed: &[&str]| AxisRequest {
            over: axes(over),
            fixed: fixed.iter().map(ToString::to_string).collect(),
            ..AxisRequest::default()
        };
        for (request, expected) in [
            (with(&[], &[]), own()),
            (with(&["train.seed=1,2"], &[]), [own(), axes(&["train.seed=1,2"])].concat()),
            (with(&["store=posix"], &[]), axes(&["store=posix", "reader.read_threads=1,2"])),
            (
                with(&["data_reader.read_threads=4"], &[]),
                axes(&["store=sim:hdd,sim:ssd", "data_reader.read_threads=4"]),
            ),
            (with(&[], &["++workload.reader.read_threads"]), axes(&["store=sim:hdd,sim:ssd"])),
            (AxisRequest { store: true, ..with(&[], &[]) }, axes(&["reader.read_threads=1,2"])),
            // A key that is both set and varied: values of --over win, as those of a cell do.
            (with(&["train.seed=1,2"], &["train.seed"]), [own(), axes(&["train.seed=1,2"])].concat()),
        ] {
            assert_eq!(request.axes(own()), Ok(expected), "{request:?}");
        }
        assert_eq!(with(&[], &[]).axes(Vec::new()), Err(GridError::NoAxes));
        let twice = with(&["train.seed=1", "train.seed=2"], &[]).axes(own()).unwrap();
        assert!(
            matches!(SweepGrid::new(twice), Err(GridError::RepeatedKey { .. })),
            "--over twice is a mistake"
        );
        for key in ["store=posix", "ranks=1,2"] {
            let request = AxisRequest { store: true, ranks: true, ..with(&[key], &[]) };
            let key = key.split('=').next().unwrap().to_owned();
            assert_eq!(request.axes(Vec::new()), Err(GridError::FixedKey(key)));
        }
    }

    #[test]
    fn every_round_runs_every_cell_once_in_its_own_order() {
        let grid = grid(&["a=1,2,3,4", "b=1,2,3"]).unwrap();
        let runs: Vec<SweepRun> = grid.runs(3, 7).collect();
        let rounds: Vec<Vec<usize>> =
            runs.chunks(12).map(|runs| runs.iter().map(|run| run.cell).collect()).collect();
        for (round, cells) in (1..).zip(&rounds) {
            assert!(runs[12 * (round - 1)..12 * round].iter().all(|run| run.round == round as u64));
            let mut sorted = cells.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..12).collect::<Vec<_>>());
        }
        assert!(rounds[0] != rounds[1] && rounds[1] != rounds[2]);
        assert!(grid.runs(3, 7).eq(runs), "the order follows from the seed");
    }

    #[test]
    fn bad_axes_are_refused() {
        let many: Vec<String> = (0..101).map(|value| value.to_string()).collect();
        let (a, b) = (format!("a={}", many.join(",")), format!("b={}", many.join(",")));
        for (over, says) in [
            (vec!["a"], "there is no '='"),
            (vec!["=1"], "'' is not a key"),
            (vec!["~a=1"], "'~a' is not a key"),
            (vec!["a="], "a value is missing"),
            (vec!["a=1,,2"], "a value is missing"),
            (vec!["a=1,2,1"], "the value 1 is given twice"),
            (vec!["a=1", "workload.a=2"], "a is swept twice"),
            (
                vec!["reader.read_threads=1", "data_reader.read_threads=2"],
                "data_reader.read_threads is swept twice",
            ),
            (vec!["dataset.record_length=1", "dataset.record_length_bytes=2"], "is swept twice"),
            (vec!["storage.storage_options.secret_access_key=a,b"], "secret_access_key is a secret"),
            (
                vec!["storage.storage_options={secret_access_key: a}"],
                "storage_options is a secret or holds one",
            ),
            (vec!["ranks=two"], "'two' is not a number of ranks"),
            (vec![a.as_str(), b.as_str()], "101 x 101 cells; at most 10000 are allowed"),
        ] {
            let error = grid(&over).unwrap_err().to_string();
            assert!(error.contains(says), "{over:?}: {error}");
        }
    }
}
