//! How text is arranged for the width of the terminal: prose is wrapped between words, a command is never broken so
//! that it can no longer be pasted, and a path is never broken. All functions take the width as an argument.

use unicode_width::UnicodeWidthStr;

/// The columns that a text occupies.
pub(crate) fn columns_of(text: &str) -> usize {
    text.width()
}

/// Breaks a line between words so that each line fits. The first line keeps its indent; the others start in column
/// `hanging`. A word that is longer than the line is not broken.
pub(crate) fn wrapped(line: &str, hanging: usize, width: usize) -> String {
    if columns_of(line) <= width {
        return line.to_owned();
    }
    // Without room for words next to the hanging indent, the lines start further left.
    let hanging = if width.saturating_sub(hanging) < NARROWEST { INDENT } else { hanging };
    let body = line.trim_start();
    let mut text = line[..line.len() - body.len()].to_owned();
    let mut used = columns_of(&text);
    let mut is_first = true;
    // Runs of spaces, which align the first words, are kept within a line.
    for piece in pieces(body) {
        let word = piece.trim_end();
        if !is_first && used + columns_of(word) > width {
            text.truncate(text.trim_end().len());
            text.push('\n');
            text.push_str(&" ".repeat(hanging));
            used = hanging;
            if word.is_empty() {
                continue;
            }
        }
        text.push_str(piece);
        used += columns_of(piece);
        is_first = false;
    }
    text.truncate(text.trim_end().len());
    text
}

/// Units that stay with the number before them.
const UNITS: [&str; 18] = [
    "%",
    "ns",
    "us",
    "ms",
    "s",
    "m",
    "h",
    "d",
    "B",
    "KiB",
    "MiB",
    "GiB",
    "TiB",
    "PiB",
    "MB/s",
    "MiB/s",
    "GiB/s",
    "samples/s",
];

/// The words, each with the spaces after it. A number and its unit are one word.
fn pieces(body: &str) -> Vec<&str> {
    let mut pieces: Vec<&str> = Vec::new();
    let mut start = 0;
    for word in body.split_inclusive(' ') {
        let end = start + word.len();
        let is_unit = UNITS.contains(&word.trim_end().trim_end_matches([',', ';', ':', '.', ')']));
        match pieces.last_mut() {
            Some(number) if is_unit && number.trim_end().ends_with(|c: char| c.is_ascii_digit()) => {
                *number = &body[start - number.len()..end];
            }
            _ => pieces.push(word),
        }
        start = end;
    }
    pieces
}

/// Where text continues below itself if no other column is better, and the least width for words.
const INDENT: usize = 4;
const NARROWEST: usize = 16;

/// Names and values in two columns, of which the first has `column` columns in a wide terminal. In a narrow one, the
/// first is as narrow as the names allow, and values are wrapped.
pub(crate) fn definitions(lines: &[(String, String)], column: usize, width: usize) -> String {
    let fits = |column: usize| {
        lines.iter().all(|(name, value)| 3 + columns_of(name).max(column) + columns_of(value) <= width)
    };
    let narrow = lines.iter().map(|(name, _)| columns_of(name)).max().unwrap_or(0).min(column);
    let column = if fits(column) { column } else { narrow };
    let mut text = String::new();
    for (name, value) in lines {
        let padding = " ".repeat(column.saturating_sub(columns_of(name)));
        text.push_str(&wrapped(&format!("  {name}{padding} {value}"), column + 3, width));
        text.push('\n');
    }
    text
}

/// A report in which every line fits: tables do so already, and prose is wrapped below its own text.
pub(crate) fn fitted(text: &str, width: usize) -> String {
    let below = |line: &str| list_indent(line).unwrap_or_else(|| indent_of(line) + 2);
    let mut fitted =
        text.lines().map(|line| wrapped(line, below(line), width)).collect::<Vec<_>>().join("\n");
    if text.ends_with('\n') {
        fitted.push('\n');
    }
    fitted
}

/// A label and a path. A path that does not fit next to its label gets a line of its own, and is not broken.
pub(crate) fn labelled_path(label: &str, path: impl std::fmt::Display, width: usize) -> String {
    let path = path.to_string();
    match columns_of(label) + 1 + columns_of(&path) <= width {
        true => format!("{label} {path}"),
        false => format!("{}\n  {path}", fitted(label, width)),
    }
}

/// How commands among examples start.
const PROGRAMS: [&str; 3] = ["feedline ", "mpirun ", "ln "];

/// The closing part of a help text, for this width. Indented lines that start with a program's name are commands, each
/// with an optional comment after two spaces; other indented lines are a list; the rest are paragraphs. In the source,
/// paragraphs and commands may be broken at any place.
pub(crate) fn help(source: &str, width: usize) -> String {
    let mut text = String::new();
    for block in source.replace("\\\n", " ").split("\n\n") {
        if !text.is_empty() {
            text.push('\n');
        }
        let is_paragraph = block.lines().all(|line| !line.starts_with(' '));
        if is_paragraph && block.lines().count() > 1 {
            let words: Vec<&str> = block.split_whitespace().collect();
            text.push_str(&wrapped(&words.join(" "), 0, width));
            text.push('\n');
            continue;
        }
        for line in block.lines() {
            match line.strip_prefix("  ").filter(|rest| PROGRAMS.iter().any(|name| rest.starts_with(name))) {
                Some(example) => text.push_str(&with_comment(example, width)),
                None => text.push_str(&wrapped(line, list_indent(line).unwrap_or(0), width)),
            }
            text.push('\n');
        }
    }
    text
}

/// Where the text of an entry of a list starts: after the first run of several spaces.
fn list_indent(line: &str) -> Option<usize> {
    let gap = indent_of(line) + line.trim_start().find("  ")?;
    Some(line.len() - line[gap..].trim_start().len())
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// A command and its comment, which the shell ignores. If both do not fit into one line, the comment comes first.
fn with_comment(example: &str, width: usize) -> String {
    let (text, comment) = match example.split_once("   ") {
        Some((text, comment)) if !comment.trim_start().starts_with("--") => (text, comment.trim_start()),
        _ => (example, ""),
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let command_line = format!("  {}", words.join(" "));
    if comment.is_empty() {
        return command(&command_line, width);
    }
    let gap = example.len() - text.len() - comment.len();
    let line = format!("{command_line}{}# {comment}", " ".repeat(gap));
    match columns_of(&line) <= width {
        true => line,
        false => format!("{}\n{}", remark(comment, width), command(&command_line, width)),
    }
}

/// A comment on lines of its own.
fn remark(comment: &str, width: usize) -> String {
    wrapped(comment, 0, width.saturating_sub(4))
        .lines()
        .map(|line| format!("  # {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A command that is too long for a line continues on the next one after a backslash. A flag stays with its value if
/// both fit. A command with quotes is left to the terminal, because a quoted word must not be changed.
pub(crate) fn command(line: &str, width: usize) -> String {
    if columns_of(line) <= width || line.contains(['\'', '"']) {
        return line.to_owned();
    }
    let mut glued = line[..indent_of(line)].to_owned();
    let mut words = line.split_whitespace().peekable();
    while let Some(word) = words.next() {
        glued.push_str(word);
        let fits = |next: &&str| 6 + columns_of(word) + 1 + columns_of(next) + 2 <= width;
        let is_value = |next: &&str| word.starts_with("--") && !next.starts_with('-') && fits(next);
        let takes_next = words.peek().is_some_and(is_value);
        if words.peek().is_some() {
            glued.push(if takes_next { GLUE } else { ' ' });
        }
    }
    wrapped(&glued, 6, width.saturating_sub(2)).replace('\n', " \\\n").replace(GLUE, " ")
}

/// Stands for a space at which a line is not broken.
const GLUE: char = '\u{a0}';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_with_its_unit() {
        let line = "AU 100.00 %, 498 us per step, CPU 99 % idle";
        for width in 0..50 {
            for line in wrapped(line, 2, width).lines() {
                assert!(!line.trim_start().starts_with(['%', 'u']), "{width}: {line}");
            }
        }
        assert_eq!(wrapped(line, 2, 37), "AU 100.00 %, 498 us per step, CPU\n  99 % idle");
    }

    #[test]
    fn words_are_wrapped_and_never_broken() {
        assert_eq!(wrapped("  one two three", 4, 100), "  one two three");
        assert_eq!(wrapped("  one two three", 4, 24), "  one two three");
        assert_eq!(wrapped("a  12,345 MiB/s and 67,890 more", 3, 20), "a  12,345 MiB/s and\n   67,890 more");
        assert_eq!(wrapped("in /a/very/long/path now", 2, 18), "in\n  /a/very/long/path\n  now");
        assert_eq!(wrapped("a          narrow column", 11, 20), "a          narrow\n    column");
    }

    #[test]
    fn a_command_stays_one_command() {
        let line = "  feedline sweep demo --over reader.read_threads=1,2,4,8 --repeat 5";
        assert_eq!(command(line, 80), line);
        assert_eq!(command("  feedline run 'a  b'", 10), "  feedline run 'a  b'");
        assert_eq!(
            command(line, 44),
            "  feedline sweep demo \\\n      --over reader.read_threads=1,2,4,8 \\\n      --repeat 5"
        );
    }

    #[test]
    fn help_is_set_once_for_its_width() {
        let source = "Examples:\n  feedline run      the demo\n  feedline sweep demo --over a=1,2 \\\n      \
                      --repeat 5\n\n\
                      A paragraph that is\nbroken in the source.\n\nCodes:\n  3   refused before the start of anything";
        assert_eq!(
            help(source, 100),
            "Examples:\n  feedline run      # the demo\n  feedline sweep demo --over a=1,2 --repeat 5\n\n\
             A paragraph that is broken in the source.\n\nCodes:\n  3   refused before the start of anything\n"
        );
        assert_eq!(
            help(source, 26),
            "Examples:\n  # the demo\n  feedline run\n  feedline sweep demo \\\n      --over a=1,2 \\\n      \
             --repeat 5\n\nA paragraph that is broken\nin the source.\n\nCodes:\n  3   refused before the\n      \
             start of anything\n"
        );
    }

    #[test]
    fn values_are_wrapped_next_to_their_names() {
        let lines = [("a name".to_owned(), "a value of many words".to_owned())];
        assert_eq!(definitions(&lines, 10, 80), "  a name     a value of many words\n");
        assert_eq!(definitions(&lines, 10, 26), "  a name a value of many\n         words\n");
    }

    #[test]
    fn prose_continues_below_its_own_text() {
        assert_eq!(fitted("one\n  two three four five\n", 18), "one\n  two three four\n    five\n");
        assert_eq!(fitted("unlimited", usize::MAX), "unlimited");
    }

    #[test]
    fn a_path_is_never_broken() {
        assert_eq!(labelled_path("result in", "/a b/c", 80), "result in /a b/c");
        assert_eq!(labelled_path("result in", "/a b/c", 10), "result in\n  /a b/c");
    }
}
