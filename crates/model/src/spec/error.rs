//! Mistakes in a workload text, reported so that the user can fix them: what is wrong, which key, where (the line with
//! a caret under it), the nearest name, and what is allowed. The messages are complete; a caller only prints them.

use std::fmt;

use super::layers::GivenKey;
use super::overrides::Override;
use super::value::{Origin, Span};
use crate::warning::{KeyOrigin, Warning};

/// Why a workload cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The text is not YAML, or uses YAML that is not allowed in a workload.
    #[error("{0}")]
    Syntax(Box<Report>),
    #[error("{0}")]
    DuplicateKey(Box<Report>),
    #[error("{0}")]
    UnknownKey(Box<Report>),
    /// The key belongs to another section.
    #[error("{0}")]
    MisplacedKey(Box<Report>),
    #[error("{0}")]
    WrongType(Box<Report>),
    #[error("{0}")]
    OutOfRange(Box<Report>),
    /// A word that is not one of the allowed ones.
    #[error("{0}")]
    UnknownName(Box<Report>),
    /// Two keys that are valid alone but not together.
    #[error("{0}")]
    Conflict(Box<Report>),
    /// An override that does not follow the grammar.
    #[error("{0}")]
    Override(Box<Report>),
    /// Several of the above, in the order in which they were found.
    #[error("{}", several(.0))]
    Several(Vec<SpecError>),
    /// The key table and the `Spec` struct disagree: a bug in feedline that a test excludes.
    #[error("internal error: the key table and the spec disagree about '{0}'")]
    Table(String),
}

/// The parts of one error message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub what: String,
    /// The dotted key, if there is one.
    pub key: Option<String>,
    /// `file:line:column`, or the origin of the override; empty if a default causes the error.
    pub place: String,
    /// The source line with a caret under the position; empty for overrides.
    pub snippet: String,
    /// The nearest name, the allowed values, what to do.
    pub help: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        if !self.place.is_empty() {
            write!(f, "\n  --> {}", self.place)?;
        }
        if !self.snippet.is_empty() {
            write!(f, "\n{}", self.snippet)?;
        }
        for line in &self.help {
            write!(f, "\n   = {line}")?;
        }
        Ok(())
    }
}

fn several(errors: &[SpecError]) -> String {
    let mut text = String::new();
    for error in errors {
        text.push_str(&error.to_string());
        text.push_str("\n\n");
    }
    text.push_str(&format!("{} problems", errors.len()));
    text
}

/// The kind of error that a [`Problem`] becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProblemKind {
    Syntax,
    DuplicateKey,
    UnknownKey,
    MisplacedKey,
    WrongType,
    OutOfRange,
    UnknownName,
    Conflict,
    Override,
}

/// An error before it is rendered: it has places, not texts.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    fault: ProblemKind,
    place: Origin,
    said: Box<ProblemText>,
}

/// The message of a problem; boxed, because problems are returned in `Result`s.
#[derive(Clone, Debug)]
struct ProblemText {
    what: String,
    key: Option<String>,
    /// A second place that is involved, with a label.
    other: Option<(&'static str, Origin)>,
    help: Vec<String>,
}

impl Problem {
    pub(super) fn new(fault: ProblemKind, place: Origin, what: impl Into<String>) -> Problem {
        let said = ProblemText { what: what.into(), key: None, other: None, help: Vec::new() };
        Problem { fault, place, said: Box::new(said) }
    }

    pub(super) fn key(mut self, key: &str) -> Problem {
        self.said.key = Some(key.to_owned());
        self
    }

    pub(super) fn help(mut self, line: impl Into<String>) -> Problem {
        self.said.help.push(line.into());
        self
    }

    pub(super) fn other(mut self, label: &'static str, place: Origin) -> Problem {
        self.said.other = Some((label, place));
        self
    }

    #[cfg(test)]
    pub(super) fn what(&self) -> &str {
        &self.said.what
    }
}

/// The texts that places point into.
#[derive(Clone, Copy, Debug)]
pub(super) struct Texts<'a> {
    pub name: &'a str,
    pub text: &'a str,
    pub overrides: &'a [Override],
}

impl Texts<'_> {
    /// The place as shown to the user.
    pub(super) fn place(&self, place: Origin) -> String {
        match place {
            Origin::File(span) => format!("{}:{}:{}", self.name, span.line, span.column),
            Origin::Override(index) => {
                self.overrides.get(index).map_or("?", |change| change.origin.as_str()).to_owned()
            }
            Origin::Default => String::new(),
        }
    }

    pub(super) fn error(&self, problem: Problem) -> SpecError {
        let fault = problem.fault;
        let report = Box::new(self.report(problem));
        match fault {
            ProblemKind::Syntax => SpecError::Syntax(report),
            ProblemKind::DuplicateKey => SpecError::DuplicateKey(report),
            ProblemKind::UnknownKey => SpecError::UnknownKey(report),
            ProblemKind::MisplacedKey => SpecError::MisplacedKey(report),
            ProblemKind::WrongType => SpecError::WrongType(report),
            ProblemKind::OutOfRange => SpecError::OutOfRange(report),
            ProblemKind::UnknownName => SpecError::UnknownName(report),
            ProblemKind::Conflict => SpecError::Conflict(report),
            ProblemKind::Override => SpecError::Override(report),
        }
    }

    /// The problem as a warning, if it is a key that is not known, or not at this place.
    pub(super) fn unknown_key(&self, problem: &Problem) -> Option<Warning> {
        let is_unknown = matches!(problem.fault, ProblemKind::UnknownKey | ProblemKind::MisplacedKey);
        let key = problem.said.key.clone().filter(|_| is_unknown)?;
        // The list of all known keys is of no use to a program that sent the key.
        let hint = problem.said.help.iter().find_map(|line| line.strip_prefix("help: "));
        let at = KeyOrigin { key, place: self.place(problem.place) };
        Some(Warning::UnknownKey { at, hint: hint.map(str::to_owned) })
    }

    /// The warning that DLIO reads another name of the key, which is given as well.
    pub(super) fn unread(&self, unread: &GivenKey) -> Warning {
        let at = KeyOrigin { key: unread.spelled.clone(), place: self.place(unread.place) };
        Warning::NoEffect {
            keys: vec![at],
            why: format!("'{}' is given, and DLIO reads that name", unread.row.key),
        }
    }

    /// One error for all problems; `None` if there are none.
    pub(super) fn errors(&self, problems: Vec<Problem>) -> Option<SpecError> {
        let mut errors: Vec<SpecError> = problems.into_iter().map(|problem| self.error(problem)).collect();
        match errors.len() {
            0 => None,
            1 => errors.pop(),
            _ => Some(SpecError::Several(errors)),
        }
    }

    fn report(&self, problem: Problem) -> Report {
        let mut snippet = self.snippet(problem.place);
        if let Some((label, place)) = problem.said.other
            && place != Origin::Default
        {
            if !snippet.is_empty() {
                snippet.push('\n');
            }
            snippet.push_str(&format!("  ::: {}: {label}", self.place(place)));
            let second = self.snippet(place);
            if !second.is_empty() {
                snippet.push('\n');
                snippet.push_str(&second);
            }
        }
        let ProblemText { what, key, help, .. } = *problem.said;
        Report { what, key, place: self.place(problem.place), snippet, help }
    }

    fn snippet(&self, place: Origin) -> String {
        let Origin::File(span) = place else { return String::new() };
        match self.text.lines().nth(span.line.saturating_sub(1)) {
            Some(line) => caret(line, span),
            None => String::new(),
        }
    }
}

/// The line with its number, and carets under the span. Long lines are cut to a window around the span, and characters
/// that are not one column wide are replaced, so that the caret is in the right column.
fn caret(line: &str, span: Span) -> String {
    const WINDOW: usize = 100;
    let start = span.column.saturating_sub(1);
    let from = if start > WINDOW - 20 { start - 20 } else { 0 };
    let shown: String = line
        .trim_end()
        .chars()
        .skip(from)
        .take(WINDOW)
        .map(|c| match c {
            '\t' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect();
    let indent = start - from;
    let width = span.width.clamp(1, WINDOW.saturating_sub(indent).max(1));
    let number = span.line.to_string();
    let margin = " ".repeat(number.len());
    format!("{margin} |\n{number} | {shown}\n{margin} | {}{}", " ".repeat(indent), "^".repeat(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: usize, column: usize, width: usize) -> Origin {
        Origin::File(Span { line, column, width })
    }

    #[test]
    fn a_report_shows_the_line_and_a_caret() {
        let overrides = [Override::hydra("k=v", "--set k=v")];
        let texts = Texts { name: "a.yaml", text: "x: 1\n\ty: é2\n", overrides: &overrides };
        let problem = Problem::new(ProblemKind::WrongType, at(2, 5, 2), "bad").help("help: good");
        let expected = "bad\n  --> a.yaml:2:5\n  |\n2 |  y: é2\n  |     ^^\n   = help: good";
        assert_eq!(texts.error(problem).to_string(), expected);

        let problem =
            Problem::new(ProblemKind::Override, Origin::Override(0), "bad").other("given here", at(1, 1, 1));
        let expected = "bad\n  --> --set k=v\n  ::: a.yaml:1:1: given here\n  |\n1 | x: 1\n  | ^";
        assert_eq!(texts.error(problem).to_string(), expected);
    }

    #[test]
    fn a_long_line_is_cut_around_the_caret() {
        let line = format!("{}key{}", "a".repeat(500), "b".repeat(500));
        let shown = caret(&line, Span { line: 1, column: 501, width: 3 });
        assert!(shown.lines().all(|line| line.chars().count() < 110), "{shown}");
        let lines: Vec<&str> = shown.lines().collect();
        let column = lines[2].find('^').unwrap();
        assert_eq!(&lines[1][column..column + 3], "key");
    }
}
