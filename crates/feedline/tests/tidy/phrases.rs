//! Phrases that readers found hard to understand do not occur in the documentation and in the help.

use super::{files, has_word, none};
use crate::util::Dir;

/// Each phrase with what to write instead. Case does not matter, and a phrase is found across line breaks.
const BANNED_PHRASES: [(&str, &str); 22] = [
    ("road", "I/O backend"),
    ("roads", "I/O backends"),
    ("in vain", "without effect"),
    ("nobody", "name the component, or say what is missing"),
    ("somebody", "name the component"),
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
    ("on its way", "in flight, in progress"),
    ("for ever", "forever"),
];

/// The banned phrases in a text, with the words around each.
fn banned_phrases(source: &str, text: &str) -> Vec<String> {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let flowing = words.join(" ");
    let mut found = Vec::new();
    for (phrase, instead) in BANNED_PHRASES {
        for line in flowing.split_inclusive(['.', '|', ';']).filter(|line| has_word(line, phrase)) {
            found.push(format!("{source}: '{phrase}' (rather: {instead}) in: {}", line.trim()));
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
        let is_page = ["README.md", "CONTRIBUTING.md"].contains(&file.path.as_str())
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
