//! Phrases that readers found hard to understand do not occur in the documentation, in the help, and in comments and
//! string literals of the sources.

use super::{File, files, has_word, none};
use crate::util::Dir;

/// Each phrase with what to write instead. Case does not matter, and a phrase is found across line breaks.
const BANNED_PHRASES: [(&str, &str); 26] = [
    ("road", "I/O backend"),
    ("roads", "I/O backends"),
    ("in vain", "without effect"),
    ("nobody", "name the component, or say what is missing"),
    ("somebody", "name the component"),
    ("anybody", "name the component"),
    ("everybody", "name the components"),
    ("rooms", "crates, space"),
    ("whoever", "name the component"),
    ("gets on", "makes progress"),
    ("goes on", "continues, resumes"),
    ("go on", "continue, resume"),
    ("so many", "this many, the number"),
    ("so long", "this long"),
    ("so-many-th", "Nth"),
    ("is told", "is reported"),
    ("is said", "is reported"),
    ("may be believed", "can be trusted"),
    ("of any make", "from any writer, existing"),
    ("besides", "in addition"),
    ("likewise", "the same"),
    ("stands still", "pauses, is blocked"),
    ("stood still", "paused, was blocked"),
    ("on its way", "in flight, in progress"),
    ("on their way", "in flight, in progress"),
    ("for ever", "forever"),
];

/// Crates whose comments and string literals are checked.
const CRATES: [&str; 7] = ["model", "format", "store", "engine", "session", "report", "feedline"];

/// The banned phrases in a text, with the words around each.
fn banned_phrases(source: &str, text: &str) -> Vec<String> {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let flowing = words.join(" ");
    let mut found = Vec::new();
    for (phrase, instead) in BANNED_PHRASES {
        for line in flowing.split_inclusive(['.', '|', ';']).filter(|line| has_word(line, phrase)) {
            found.push(format!("{source}: '{phrase}' (better: {instead}) in: {}", line.trim()));
        }
    }
    found
}

#[test]
fn the_phrase_scan_finds_phrases() {
    let found = banned_phrases("x", "It waits for so\nmany bytes. Whoever asks, broadroads and goes one.");
    let phrases: Vec<&str> = found.iter().map(|line| line.split('\'').nth(1).unwrap()).collect();
    assert_eq!(phrases, ["whoever", "so many"]);
}

#[test]
fn documentation_is_plain_english() {
    let mut found = Vec::new();
    let mut pages = 0;
    for file in files() {
        let is_page = ["README.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md"]
            .contains(&file.path.as_str())
            || (file.path.starts_with("docs/") && file.path.ends_with(".md"));
        if is_page {
            pages += 1;
            found.extend(banned_phrases(&file.path, &file.text));
        }
    }
    assert!(pages > 8, "only {pages} pages were found");
    none("these phrases are hard to understand", &found);
}

#[test]
fn help_is_plain_english() {
    let dir = Dir::new();
    let help = |arguments: &[&str]| dir.feedline(arguments).run().exits(0).stdout.clone();
    let overview = help(&["--help"]);
    let commands: Vec<&str> = overview
        .split("\nCommands:\n")
        .nth(1)
        .unwrap()
        .lines()
        .take_while(|line| !line.is_empty())
        // A command is indented by two; the lines that continue its description by more.
        .filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .collect();
    assert!(commands.contains(&"run") && commands.len() >= 12, "{commands:?}");
    let mut found = banned_phrases("feedline --help", &overview);
    for command in commands {
        found.extend(banned_phrases(&format!("feedline {command} --help"), &help(&[command, "--help"])));
    }
    none("these phrases are hard to understand", &found);
}

/// A part of a Rust source text.
#[derive(Clone, Copy)]
enum Token<'a> {
    Comment(&'a str),
    Literal(&'a str),
    Code,
}

/// The token at the start of `rest`, and its length in bytes. `previous` is the character before it, which tells the
/// prefix of a raw string from the end of a name.
fn token(rest: &str, previous: Option<char>) -> (Token<'_>, usize) {
    let in_name = previous.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if rest.starts_with("//") {
        let length = rest.find('\n').unwrap_or(rest.len());
        return (Token::Comment(rest[..length].trim_start_matches(['/', '!'])), length);
    }
    if let Some(raw) = rest.strip_prefix('r').filter(|_| !in_name || previous == Some('b')) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let (start, end) = (hashes + 2, format!("\"{}", "#".repeat(hashes)));
            let length = rest[start..].find(&end).unwrap_or(rest.len() - start);
            return (
                Token::Literal(&rest[start..start + length]),
                (start + length + end.len()).min(rest.len()),
            );
        }
    }
    if let Some(inner) = rest.strip_prefix('"') {
        let length = unescaped(inner, '"');
        return (Token::Literal(&inner[..length]), (length + 2).min(rest.len()));
    }
    // A character, `'"'` or `'\''`; a lifetime has no closing quote after one character.
    let character =
        rest.strip_prefix('\'').filter(|inner| inner.starts_with('\\') || inner.chars().nth(1) == Some('\''));
    let length = match (character, rest.chars().next()) {
        (Some(inner), _) => unescaped(inner, '\'') + 2,
        (None, first) => first.map_or(1, char::len_utf8),
    };
    (Token::Code, length.min(rest.len()))
}

/// Where the first `end` is that no backslash precedes.
fn unescaped(text: &str, end: char) -> usize {
    let mut escaped = false;
    let found = text.char_indices().find(|(_, c)| {
        let ends = !escaped && *c == end;
        escaped = !escaped && *c == '\\';
        ends
    });
    found.map_or(text.len(), |(at, _)| at)
}

/// The comments and string literals of a Rust source text, separated by ` | `. Comments on adjacent lines are one text,
/// and so are the lines of a literal, so that phrases are found across line breaks.
fn prose(source: &str) -> String {
    let (mut prose, mut rest, mut previous) = (String::new(), source, None);
    let mut after_comment = false;
    while !rest.is_empty() {
        let (token, length) = token(rest, previous);
        match token {
            Token::Comment(text) => {
                prose.push_str(if after_comment { " " } else { " | " });
                prose.push_str(text.trim());
                after_comment = true;
            }
            Token::Literal(text) => {
                prose.push_str(" | ");
                prose.push_str(&text.replace("\\n", " ").replace("\\\n", " "));
                after_comment = false;
            }
            Token::Code => after_comment &= rest.starts_with(char::is_whitespace),
        }
        previous = rest[..length].chars().next_back();
        rest = &rest[length..];
    }
    prose.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_prose_scan_finds_comments_and_literals() {
    let source = r##"//! One
//! comment.
fn f<'a>(c: char) -> &'a str { // Two.
    if c == '"' || c == '\'' || for_r == b'\\' { "th\"ree \
        four\n// five" } else { concat!(r#"si"x"#, br"seven\", "") }
}
"##;
    let expected = r#"| One comment. | Two. | th\"ree four // five | si"x | seven\ |"#;
    assert_eq!(prose(source), expected);
    let found =
        banned_phrases("x", &prose("// It goes\n    // on.\nf(\"so \\\n  many\"); // go\nlet on = 1;"));
    let phrases: Vec<&str> = found.iter().map(|line| line.split('\'').nth(1).unwrap()).collect();
    assert_eq!(phrases, ["goes on", "so many"]);
}

#[test]
fn comments_and_messages_are_plain_english() {
    let mut found = Vec::new();
    for name in CRATES {
        // This file lists the phrases.
        let is_checked = |file: &File| {
            file.is_rust()
                && file.path.starts_with(&format!("crates/{name}/"))
                && !file.path.ends_with("tests/tidy/phrases.rs")
        };
        let checked: Vec<File> = files().into_iter().filter(is_checked).collect();
        assert!(!checked.is_empty(), "no files of {name} were found");
        found.extend(checked.iter().flat_map(|file| banned_phrases(&file.path, &prose(&file.text))));
    }
    none("these phrases are hard to understand", &found);
}
