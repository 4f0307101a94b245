//! A page of the documentation as a list of code blocks, each with what the comments before it say about it. It reads
//! text only; what a block means is decided by its users. It needs nothing but the standard library, because unit tests
//! of the program include it, too.

use std::path::{Path, PathBuf};

/// How a block is checked, apart from its language.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Treatment {
    #[default]
    Executed,
    /// Only parsed, for this reason.
    Parsed(String),
    /// Not checked at all, for this reason.
    NotRun(String),
}

/// Flags that the test adds to commands that begin with these words, so that an example is small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Small {
    pub start: String,
    pub flags: String,
}

/// A block of code.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    /// The line of its first line of text in the page, from 1.
    pub line: usize,
    pub language: String,
    pub text: String,
    pub treatment: Treatment,
    /// Commands that run before it, each with its line.
    pub setup: Vec<(usize, String)>,
    pub exit: i32,
    /// The command that prints it.
    pub output_of: Option<String>,
    /// The file that gets its text.
    pub file: Option<String>,
    /// The file that it changes, for a diff.
    pub change: Option<String>,
    pub small: Vec<Small>,
    /// Whether it needs an object store with a bucket named `bucket`. It and its setup share one.
    pub object_store: bool,
}

/// A page.
#[derive(Debug)]
pub(crate) struct Page {
    /// Relative to the root of the repository.
    pub path: String,
    pub blocks: Vec<Block>,
    /// The test that compares blocks without a language, for the whole page.
    pub compared_by: Option<String>,
}

/// A command of a `console` block, and what it prints.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub line: usize,
    pub command: String,
    pub output: String,
}

/// What a comment can say, for messages.
const DIRECTIVES: &str = "parsed, REASON | not run, REASON | setup COMMAND | exit N | output of COMMAND | file NAME | \
     change NAME | small WORDS: FLAGS | object store | page compared by TEST";

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// README.md and all pages below docs, sorted; not the table of contents, which has no blocks.
pub(crate) fn all_paths() -> Vec<String> {
    let root = root();
    let (mut found, mut folders) = (vec!["README.md".to_owned()], vec![root.join("docs")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") && !path.ends_with("SUMMARY.md") {
                found.push(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// A page of the repository; all of its mistakes if it has any.
pub(crate) fn load(path: &str) -> Result<Page, String> {
    let text = std::fs::read_to_string(root().join(path)).map_err(|cause| format!("{path}: {cause}"))?;
    read(path, &text)
}

/// The comments that wait for their block.
#[derive(Default)]
struct Pending {
    block: Block,
    /// The line of the first comment.
    since: Option<usize>,
}

/// The blocks of a page; all mistakes if there are any.
pub(crate) fn read(path: &str, text: &str) -> Result<Page, String> {
    let mut page = Page { path: path.to_owned(), blocks: Vec::new(), compared_by: None };
    let (mut pending, mut mistakes) = (Pending::default(), Vec::new());
    let mut lines = text.lines().enumerate().map(|(number, line)| (number + 1, line));
    while let Some((number, line)) = lines.next() {
        let inner = line.trim_start();
        if let Some(fence) = fence(inner) {
            let indent = line.len() - inner.len();
            let mut block = std::mem::take(&mut pending).block;
            inner[fence.len()..].trim().clone_into(&mut block.language);
            block.line = number + 1;
            match body(&mut lines, indent, fence) {
                Some(text) => block.text = text,
                None => mistakes.push(format!("{path}:{number}: the block has no end")),
            }
            page.blocks.push(block);
        } else if inner.starts_with("<!--") {
            let mut comment = inner.to_owned();
            while !comment.contains("-->") {
                let Some((_, line)) = lines.next() else { break };
                comment = format!("{comment}\n{line}");
            }
            let said = comment.trim_start_matches("<!--").split("-->").next().unwrap_or_default().trim();
            if let Some(directive) = said.strip_prefix("example:") {
                pending.since.get_or_insert(number);
                if let Err(mistake) = note(&mut page, &mut pending, number, directive.trim()) {
                    mistakes.push(format!("{path}:{number}: {mistake}"));
                }
            }
        } else if let (false, Some(since)) = (inner.is_empty(), pending.since) {
            mistakes.push(format!("{path}:{since}: the comment belongs directly before a block"));
            pending = Pending::default();
        }
    }
    if mistakes.is_empty() { Ok(page) } else { Err(mistakes.join("\n")) }
}

/// The fence that a line begins with.
fn fence(line: &str) -> Option<&str> {
    ['`', '~'].iter().find_map(|mark| {
        let length = line.len() - line.trim_start_matches(*mark).len();
        (length >= 3).then(|| &line[..length])
    })
}

/// The lines up to the closing fence, without the indentation of the fence.
fn body<'a>(
    lines: &mut impl Iterator<Item = (usize, &'a str)>,
    indent: usize,
    fence: &str,
) -> Option<String> {
    let mut text = String::new();
    for (_, line) in lines {
        if line.trim_start().starts_with(fence) {
            return Some(text);
        }
        let spaces = line.len() - line.trim_start_matches(' ').len();
        text.push_str(&line[spaces.min(indent)..]);
        text.push('\n');
    }
    None
}

/// Adds what a comment says to the next block, or to the page.
fn note(page: &mut Page, pending: &mut Pending, line: usize, directive: &str) -> Result<(), String> {
    let block = &mut pending.block;
    let with_reason = |reason: &str| {
        let reason = reason.trim_start_matches(',').trim();
        let stated = !reason.is_empty();
        stated.then(|| reason.to_owned()).ok_or_else(|| format!("'{directive}' needs a reason after a comma"))
    };
    let named = |name: &str| Some(name.trim().to_owned()).filter(|name| !name.is_empty());
    if let Some(rest) = directive.strip_prefix("parsed") {
        block.treatment = Treatment::Parsed(with_reason(rest)?);
    } else if let Some(rest) = directive.strip_prefix("not run") {
        block.treatment = Treatment::NotRun(with_reason(rest)?);
    } else if let Some(rest) =
        directive.strip_prefix("setup").filter(|rest| rest.starts_with(char::is_whitespace))
    {
        block.setup.push((line, rest.trim().to_owned()));
    } else if let Some(rest) = directive.strip_prefix("exit ") {
        block.exit = rest.trim().parse().map_err(|_| format!("'{directive}' needs a number"))?;
    } else if let Some(rest) = directive.strip_prefix("output of ") {
        block.output_of = named(rest);
    } else if directive == "object store" {
        block.object_store = true;
    } else if let Some(rest) = directive.strip_prefix("file ") {
        block.file = named(rest);
    } else if let Some(rest) = directive.strip_prefix("change ") {
        block.change = named(rest);
    } else if let Some((start, flags)) =
        directive.strip_prefix("small ").and_then(|rest| rest.split_once(':'))
    {
        block.small.push(Small { start: start.trim().to_owned(), flags: flags.trim().replace('\n', " ") });
    } else if let Some(rest) = directive.strip_prefix("page compared by ") {
        page.compared_by = named(rest);
        *pending = Pending::default();
    } else {
        return Err(format!("'example: {directive}' is not one of: {DIRECTIVES}"));
    }
    Ok(())
}

impl Block {
    /// Whether it is a shell script, or commands with their output.
    pub(crate) fn is_commands(&self) -> bool {
        ["sh", "bash", "console"].contains(&self.language.as_str())
    }

    /// The commands of a `console` block. A line that ends in a backslash continues on the next one.
    pub(crate) fn exchanges(&self) -> Result<Vec<Exchange>, String> {
        let mut found: Vec<Exchange> = Vec::new();
        let mut continues = false;
        for (number, line) in self.text.lines().enumerate() {
            match (line.strip_prefix("$ "), found.last_mut()) {
                (_, Some(last)) if continues => {
                    last.command.push('\n');
                    last.command.push_str(line.strip_prefix("> ").unwrap_or(line));
                    continues = line.ends_with('\\');
                }
                (Some(command), _) => {
                    continues = command.ends_with('\\');
                    let line = self.line + number;
                    found.push(Exchange { line, command: command.to_owned(), output: String::new() });
                }
                (None, Some(last)) => {
                    last.output.push_str(line);
                    last.output.push('\n');
                }
                (None, None) => {
                    return Err(format!("{}: a console block begins with a line '$ COMMAND'", self.line));
                }
            }
        }
        Ok(found)
    }
}
