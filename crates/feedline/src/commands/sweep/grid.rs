//! What a sweep goes over: keys with their values, and the grid of all their combinations. Whether a key exists and a
//! value fits is found out where the cell becomes a plan.

use std::fmt;

use anyhow::{anyhow, bail};
use model::spec::{Override, canonical_key};
use serde::{Deserialize, Serialize};

/// More cells than anybody waits for.
const MOST_CELLS: usize = 10_000;

/// Keys that are flags of a run and no settings of the workload.
const RANKS: &str = "ranks";
const STORE: &str = "store";

/// A key and the values it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    pub key: String,
    pub values: Vec<String>,
}

/// All combinations of the axes' values. The last axis varies fastest; the first cell has every axis' first value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    pub axes: Vec<Axis>,
}

impl Grid {
    /// Reads `--over` arguments.
    pub fn parse(over: &[String]) -> anyhow::Result<Grid> {
        let mut axes: Vec<Axis> = Vec::new();
        for argument in over {
            let axis = parse_axis(argument)?;
            let same = |other: &Axis| canonical_key(&other.key) == canonical_key(&axis.key);
            if axes.iter().any(same) {
                bail!("--over {argument}: {} is swept twice; give all its values in one --over", axis.key);
            }
            axes.push(axis);
        }
        let cells = axes.iter().try_fold(1usize, |cells, axis| cells.checked_mul(axis.values.len()));
        if cells.is_none_or(|cells| cells > MOST_CELLS) {
            let sizes: Vec<String> = axes.iter().map(|axis| axis.values.len().to_string()).collect();
            bail!("the grid has {} cells; the most are {MOST_CELLS}", sizes.join(" x "));
        }
        Ok(Grid { axes })
    }

    pub fn cells(&self) -> usize {
        self.axes.iter().map(|axis| axis.values.len()).product()
    }

    pub fn cell(&self, index: usize) -> Cell<'_> {
        let mut rest = index;
        let mut settings: Vec<(&str, &str)> = Vec::with_capacity(self.axes.len());
        for axis in self.axes.iter().rev() {
            settings.push((&axis.key, &axis.values[rest % axis.values.len()]));
            rest /= axis.values.len();
        }
        settings.reverse();
        Cell { settings }
    }
}

fn parse_axis(argument: &str) -> anyhow::Result<Axis> {
    let (key, values) = argument
        .split_once('=')
        .ok_or_else(|| anyhow!("--over {argument}: there is no '='; write KEY=VALUE,VALUE,.."))?;
    // The spellings of one key that `--set` takes.
    let key = key.trim().trim_start_matches('+');
    let key = key.strip_prefix("workload.").unwrap_or(key);
    if key.is_empty() || key.starts_with('~') {
        bail!("--over {argument}: '{key}' is no key; write KEY=VALUE,VALUE,..");
    }
    let values: Vec<String> = split(values).iter().map(|value| value.trim().to_owned()).collect();
    if values.iter().any(String::is_empty) {
        bail!("--over {argument}: a value is missing; write KEY=VALUE,VALUE,..");
    }
    if let Some((_, twice)) = values.iter().enumerate().find(|(i, value)| values[..*i].contains(value)) {
        bail!("--over {argument}: the value {twice} is given twice");
    }
    if let Some(bad) = values.iter().find(|value| key == RANKS && value.parse::<u64>().is_err()) {
        bail!("--over {argument}: '{bad}' is no number of ranks");
    }
    Ok(Axis { key: key.to_owned(), values })
}

/// Splits at commas outside brackets and quotes. What is not closed is left to whoever reads the value.
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
pub struct Cell<'a> {
    pub settings: Vec<(&'a str, &'a str)>,
}

impl<'a> Cell<'a> {
    fn of(&self, key: &str) -> Option<&'a str> {
        self.settings.iter().find(|(other, _)| *other == key).map(|(_, value)| *value)
    }

    pub fn ranks(&self) -> Option<u64> {
        self.of(RANKS).and_then(|value| value.parse().ok())
    }

    /// Quotes keep the commas of a store's arguments together, and are no part of its name.
    pub fn store(&self) -> Option<&'a str> {
        let store = self.of(STORE)?;
        let inner = ['\'', '"'].iter().find_map(|quote| store.strip_prefix(*quote)?.strip_suffix(*quote));
        inner.or(Some(store))
    }

    /// The changes to the workload.
    pub fn overrides(&self) -> impl Iterator<Item = Override> {
        let settings = self.settings.iter().filter(|(key, _)| ![RANKS, STORE].contains(key));
        settings.map(|(key, value)| {
            let argument = format!("{key}={value}");
            Override::hydra(&argument, format!("--over {argument}"))
        })
    }
}

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings: Vec<String> =
            self.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&settings.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(over: &[&str]) -> anyhow::Result<Grid> {
        Grid::parse(&over.iter().map(ToString::to_string).collect::<Vec<_>>())
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
    fn cells_count_like_an_odometer() {
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
        assert_eq!(cell.overrides().collect::<Vec<_>>(), [Override::hydra("a=1", "--over a=1")]);
        let quoted = self::grid(&["store='sim:latency=4ms,channels=1',null"]).unwrap();
        assert_eq!(
            (quoted.cell(0).store(), quoted.cell(1).store()),
            (Some("sim:latency=4ms,channels=1"), Some("null"))
        );
    }

    #[test]
    fn bad_arguments_are_named() {
        let many: Vec<String> = (0..101).map(|value| value.to_string()).collect();
        let (a, b) = (format!("a={}", many.join(",")), format!("b={}", many.join(",")));
        for (over, says) in [
            (vec!["a"], "there is no '='"),
            (vec!["=1"], "'' is no key"),
            (vec!["~a=1"], "'~a' is no key"),
            (vec!["a="], "a value is missing"),
            (vec!["a=1,,2"], "a value is missing"),
            (vec!["a=1,2,1"], "the value 1 is given twice"),
            (vec!["a=1", "workload.a=2"], "a is swept twice"),
            (
                vec!["reader.read_threads=1", "data_reader.read_threads=2"],
                "data_reader.read_threads is swept twice",
            ),
            (vec!["dataset.record_length=1", "dataset.record_length_bytes=2"], "is swept twice"),
            (vec!["ranks=two"], "'two' is no number of ranks"),
            (vec![a.as_str(), b.as_str()], "101 x 101 cells; the most are 10000"),
        ] {
            let error = grid(&over).unwrap_err().to_string();
            assert!(error.contains(says), "{over:?}: {error}");
        }
    }
}
