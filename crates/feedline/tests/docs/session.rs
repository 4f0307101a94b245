//! Carries out a page: its blocks in their order, in one sandbox. A mistake names the page, the line and what to do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use super::page::{Block, Page, Treatment};
use super::sandbox::{Outcome, Sandbox};
use super::shape::{self, Difference};

/// How many blocks were checked in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub executed: usize,
    /// Outputs that were compared; part of `executed`.
    pub compared: usize,
    pub files: usize,
}

#[derive(Debug)]
pub(crate) struct Session<'a> {
    page: &'a Page,
    sandbox: Sandbox<'a>,
    /// The times that the page shows, by the folder that they are in.
    times: BTreeMap<String, BTreeSet<String>>,
    counts: Counts,
}

impl<'a> Session<'a> {
    pub(crate) fn new(page: &'a Page, sandbox: Sandbox<'a>) -> Session<'a> {
        let mut times: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for block in &page.blocks {
            for (_, folder, time) in result_times(&block.text) {
                times.entry(folder.to_owned()).or_default().insert(time.to_owned());
            }
        }
        Session { page, sandbox, times, counts: Counts::default() }
    }

    /// Carries out the page until something is not as the page says.
    pub(crate) fn run(mut self) -> Result<Counts, String> {
        for block in &self.page.blocks {
            self.block(block)?;
        }
        Ok(self.counts)
    }

    fn block(&mut self, block: &Block) -> Result<(), String> {
        for (line, command) in block.setup.iter().filter(|_| !block.object_store) {
            self.execute(*line, command, block, 0)?;
        }
        if let Some(name) = &block.file {
            self.write(name, &block.text);
            self.counts.files += 1;
        }
        if let Some(name) = &block.change {
            self.change(block, name)?;
            self.counts.files += 1;
        }
        if block.treatment != Treatment::Executed {
            return Ok(());
        }
        match (block.language.as_str(), &block.output_of) {
            ("sh" | "bash", _) => {
                self.execute(block.line, &block.text, block, block.exit)?;
            }
            ("console", _) => {
                let exchanges = block.exchanges().map_err(|what| format!("{}:{what}", self.page.path))?;
                let last = exchanges.len();
                for (number, exchange) in exchanges.iter().enumerate() {
                    let exit = if number + 1 == last { block.exit } else { 0 };
                    let outcome = self.execute(exchange.line, &exchange.command, block, exit)?;
                    let first = exchange.line + exchange.command.lines().count();
                    self.compare(first, &exchange.command, &exchange.output, &outcome)?;
                }
            }
            (_, Some(command)) => {
                let outcome = self.execute(block.line, command, block, block.exit)?;
                self.compare(block.line, command, &block.text, &outcome)?;
            }
            _ => return Ok(()),
        }
        self.counts.executed += 1;
        Ok(())
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.sandbox.file(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Applies a diff without positions. Lines `@@` separate changes; the lines before each change must be in the file,
    /// one after the other.
    fn change(&self, block: &Block, name: &str) -> Result<(), String> {
        let mut text = fs::read_to_string(self.sandbox.file(name)).unwrap_or_default();
        for hunk in block.text.split("@@\n").filter(|hunk| !hunk.is_empty()) {
            let [before, after] = sides(hunk);
            if !text.contains(&before) {
                let (path, line) = (&self.page.path, block.line);
                return Err(format!(
                    "{path}:{line}: {name} does not have the lines that the diff removes or keeps:\n{before}\nit \
                     has:\n{text}"
                ));
            }
            text = text.replacen(&before, &after, 1);
        }
        self.write(name, &text);
        Ok(())
    }

    fn execute(&self, line: usize, script: &str, block: &Block, exit: i32) -> Result<Outcome, String> {
        let outcome = self.sandbox.run(line, &self.with_results(script), block);
        if outcome.code == Some(exit) {
            return Ok(outcome);
        }
        let line = outcome.failed.unwrap_or(line);
        let ended = outcome.code.map_or("was killed".to_owned(), |code| match code {
            124 | 137 => format!("ended with {code}: probably it took too long"),
            code => format!("ended with exit code {code}"),
        });
        Err(format!(
            "{}:{line}: the example {ended}, not {exit}. Correct the example, or say before the block what it needs: \
             '<!-- example: exit N -->', '<!-- example: setup COMMAND -->', '<!-- example: parsed, REASON -->'\n{}",
            self.page.path,
            shown(script, &outcome),
        ))
    }

    fn compare(
        &mut self,
        first: usize,
        command: &str,
        expected: &str,
        outcome: &Outcome,
    ) -> Result<(), String> {
        self.counts.compared += 1;
        let (out, err) = (&outcome.stdout, &outcome.stderr);
        let both = [out.clone(), err.clone(), format!("{out}{err}"), format!("{err}{out}")];
        let expected = if outcome.late { without_verdict(expected) } else { expected.to_owned() };
        let differences: Option<Vec<Difference>> = both
            .iter()
            .map(|actual| if outcome.late { without_verdict(actual) } else { actual.clone() })
            .map(|actual| shape::difference(&expected, &actual))
            .collect();
        // The stream that agrees with most of the expected output has the most useful message.
        let Some(nearest) = differences.and_then(|all| all.into_iter().max_by_key(|one| one.line)) else {
            return Ok(());
        };
        Err(format!(
            "{}:{}: the output differs.\n  expected: {}\n  found:    {}\nReplace the output by that of the command; a \
             line '...' stands for any lines.\n{}",
            self.page.path,
            first + nearest.line,
            nearest.expected,
            nearest.found,
            shown(command, outcome),
        ))
    }

    /// The script with the results that this run made in the place of those that the page shows: the first time that
    /// the page shows in a folder stands for the first result there, and so on.
    fn with_results(&self, script: &str) -> String {
        let mut text = String::new();
        let mut copied = 0;
        for (at, folder, time) in result_times(script) {
            // A time that the page does not show is the name of a folder that the script makes.
            let times = self.times.get(folder);
            let Some(position) = times.and_then(|times| times.iter().position(|known| known == time)) else {
                continue;
            };
            text.push_str(&script[copied..at]);
            let _ = write!(text, "$(example_result {folder} {})", position + 1);
            copied = at + folder.len() + 1 + time.len();
        }
        text.push_str(&script[copied..]);
        text
    }
}

/// The lines before and after a change, from a diff without positions.
pub(crate) fn sides(diff: &str) -> [String; 2] {
    ['-', '+'].map(|side| {
        let of_side = |line: &str| {
            let kept = line.is_empty() || line.starts_with(' ') || line.starts_with(side);
            kept.then(|| format!("{}\n", line.get(1..).unwrap_or_default()))
        };
        diff.lines().filter_map(of_side).collect()
    })
}

/// Every `FOLDER/20260101_120000` in a text: where it begins, the folder and the time.
fn result_times(text: &str) -> Vec<(usize, &str, &str)> {
    const LENGTH: usize = "20260101_120000".len();
    let is_time = |word: &str| {
        word.len() == LENGTH
            && word
                .bytes()
                .enumerate()
                .all(|(at, byte)| if at == 8 { byte == b'_' } else { byte.is_ascii_digit() })
    };
    let in_path = |letter: char| letter.is_ascii_alphanumeric() || "_-./~".contains(letter);
    let mut found = Vec::new();
    for (slash, _) in text.match_indices('/') {
        let Some(time) = text.get(slash + 1..slash + 1 + LENGTH).filter(|time| is_time(time)) else {
            continue;
        };
        let start = text[..slash].trim_end_matches(in_path).len();
        if start < slash {
            found.push((start, &text[start..slash], time));
        }
    }
    found
}

/// A report without the verdict and the lines that explain it.
fn without_verdict(text: &str) -> String {
    let mut kept = String::new();
    let mut in_verdict = false;
    for line in text.lines() {
        let elided = line.trim() == "...";
        in_verdict = line.starts_with("verdict:") || in_verdict && (elided || line.starts_with(' '));
        // The number of lines stays, for messages.
        kept.push_str(if in_verdict && !elided { "" } else { line });
        kept.push('\n');
    }
    kept
}

fn shown(script: &str, outcome: &Outcome) -> String {
    let line = "-".repeat(80);
    format!(
        "{line}\n{}\n{line}\nstdout:\n{}{line}\nstderr:\n{}{line}",
        script.trim_end(),
        outcome.stdout,
        outcome.stderr
    )
}

#[test]
fn times_of_results_are_found() {
    let text = "feedline infer a/b/20260101_120000 --to x/20260101_120500/f 20260101_120000";
    let found: Vec<(&str, &str)> =
        result_times(text).into_iter().map(|(_, folder, time)| (folder, time)).collect();
    assert_eq!(found, [("a/b", "20260101_120000"), ("x", "20260101_120500")]);
}

#[test]
fn a_diff_has_two_sides() {
    assert_eq!(sides(" a\n-b\n+c\n+d\n\n e\n"), ["a\nb\n\ne\n".to_owned(), "a\nc\nd\n\ne\n".to_owned()]);
}

#[test]
fn a_verdict_is_left_out_with_its_rules() {
    let text = "a\nverdict: valid\n...\n  rule (note): b\n...\nc\n";
    assert_eq!(without_verdict(text), "a\n\n...\n\n...\nc\n");
}
