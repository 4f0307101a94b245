//! Values that must never be shown: a type that cannot be printed, and the redaction of texts that may hold such a
//! value, which are lines of workload files and arguments.

use std::fmt;

use serde::{Serialize, Serializer};

/// What is shown in place of a secret.
const REDACTED: &str = "(secret)";

/// A value that no output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

/// Parts of the names of keys that hold secrets. Names count, and not the key table alone, because a misspelled key has
/// a secret value as well.
const MARKS: [&str; 9] = [
    "secret",
    "access_key",
    "account_key",
    "private_key",
    "password",
    "passphrase",
    "token",
    "credential",
    "signature",
];

/// Whether a key of this name holds a secret.
fn is_secret_key(key: &str) -> bool {
    let key = key.to_lowercase().replace('-', "_");
    MARKS.iter().any(|mark| key.contains(mark))
}

/// The text with every character of a secret replaced by `*`, so that lines and columns stay where they are. A secret
/// is the value that follows `KEY:` or `KEY=` if the key's name says so, with the more deeply indented lines below it.
pub fn redact(text: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    // The indentation of a secret key whose value continues below it.
    let mut open: Option<usize> = None;
    for line in text.split_inclusive('\n') {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let is_blank = line.trim().is_empty();
        if !is_blank && open.is_some_and(|key| indent > key) {
            redacted.push_str(&line[..indent]);
            redacted.extend(line[indent..].chars().map(hidden));
            continue;
        }
        if !is_blank {
            open = None;
        }
        if redact_line(line, &mut redacted) {
            open = Some(indent);
        }
    }
    redacted
}

/// A character of a secret; only the end of the line is kept.
fn hidden(c: char) -> char {
    if matches!(c, '\n' | '\r') { c } else { '*' }
}

/// Appends a line with its secrets hidden. Says whether the line has one, which may continue on the next line.
fn redact_line(line: &str, redacted: &mut String) -> bool {
    let (mut rest, mut found) = (line, false);
    while let Some(at) = rest.find([':', '=']) {
        let (before, after) = rest.split_at(at + 1);
        redacted.push_str(before);
        let key = before[..at].trim_end_matches(['"', '\'', ' ']);
        let name = key.rsplit(|c: char| !(c.is_alphanumeric() || "_-.".contains(c))).next().unwrap_or(key);
        rest = after;
        if is_secret_key(name) {
            found = true;
            let blanks = rest.len() - rest.trim_start_matches(' ').len();
            let in_brackets = is_open(&line[..line.len() - rest.len()]);
            let end = blanks + value_length(&rest[blanks..], in_brackets);
            redacted.push_str(&rest[..blanks]);
            redacted.extend(rest[blanks..end].chars().map(hidden));
            rest = &rest[end..];
        }
    }
    redacted.push_str(rest);
    found
}

/// Whether a bracket of this text is not closed.
fn is_open(text: &str) -> bool {
    text.matches(['{', '[']).count() > text.matches(['}', ']']).count()
}

/// How long the value at the start of a text is: to its closing quote or bracket, or to the end of a plain value, which
/// is the end of the line unless the value is in brackets.
fn value_length(text: &str, in_brackets: bool) -> usize {
    let Some(first) = text.chars().next() else { return 0 };
    let close = match first {
        '"' | '\'' => first,
        '[' => ']',
        '{' => '}',
        _ if in_brackets => return text.find([',', '}', ']', '\n']).unwrap_or(text.len()),
        _ => return text.len(),
    };
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if std::mem::take(&mut escaped) => {}
            '\\' if first == '"' => escaped = true,
            c if c == close => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec;

    #[test]
    fn a_secret_cannot_be_printed() {
        let secret = Secret::new("hunter2");
        let shown = [format!("{secret}"), format!("{secret:?}"), serde_json::to_string(&secret).unwrap()];
        assert_eq!(shown, ["(secret)", "(secret)", "\"(secret)\""]);
        assert!(secret == Secret::new("hunter2") && secret != Secret::new("other"));
    }

    #[test]
    fn names_of_secret_keys_are_recognised() {
        for key in [
            "secret_access_key",
            "storage.storage_options.Secret-Access-Key",
            "AWS_SESSION_TOKEN",
            "secret_acces_key",
        ] {
            assert!(is_secret_key(key), "{key}");
        }
        for key in ["region", "endpoint_url", "reader.read_threads", "dataset.keep_files", "key"] {
            assert!(!is_secret_key(key), "{key}");
        }
    }

    #[test]
    fn names_and_key_table_agree() {
        for row in spec::rows() {
            assert_eq!(row.kind == spec::ValueKind::Secret, is_secret_key(row.key), "{}", row.key);
        }
    }

    /// Every form in which a value can follow its key. The lengths of lines do not change.
    #[test]
    fn values_of_secret_keys_are_hidden_and_nothing_else() {
        for (text, expected) in [
            ("secret_access_key: hunter2", "secret_access_key: *******"),
            ("  secret_access_key: \"hun, t\\\"er\" # why", "  secret_access_key: ************ # why"),
            ("secret: a,b}c # d", "secret: *********"),
            (
                "{region: eu, secret_access_key: hunter2, x: 1}",
                "{region: eu, secret_access_key: *******, x: 1}",
            ),
            ("{\"secret_access_key\": 'a,b', x: 1}", "{\"secret_access_key\": *****, x: 1}"),
            (
                "--set storage.storage_options.secret_access_key=hunter2",
                "--set storage.storage_options.secret_access_key=*******",
            ),
            (
                "--set storage.storage_options={secret_access_key: abc}",
                "--set storage.storage_options={secret_access_key: ***}",
            ),
            ("password: [a, b] x", "password: ****** x"),
            ("token: é€", "token: **"),
            ("a: 1\nsecret:\n  hunter2\n\n  more\nb: 2\n", "a: 1\nsecret:\n  *******\n\n  ****\nb: 2\n"),
            ("secret: |\n  hunter2\nb: 2", "secret: *\n  *******\nb: 2"),
            (
                "storage_options:\n  secret_access_key: x\n  region: eu\n",
                "storage_options:\n  secret_access_key: *\n  region: eu\n",
            ),
            (
                "reader: {read_threads: 2}\ntrain: {epochs: 1}",
                "reader: {read_threads: 2}\ntrain: {epochs: 1}",
            ),
        ] {
            let redacted = redact(text);
            assert_eq!(redacted, expected);
            let widths = |text: &str| text.lines().map(|line| line.chars().count()).collect::<Vec<_>>();
            assert_eq!(widths(&redacted), widths(text));
        }
    }
}
