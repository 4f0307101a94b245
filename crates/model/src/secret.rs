//! Values that must never be shown: a type that cannot be printed, and the redaction of texts that may hold such a
//! value, which are lines of workload files and arguments.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::spec;

/// What is shown in place of a secret.
pub(crate) const REDACTED: &str = "(secret)";

/// A value that no output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The value, for the code that signs or sends it. It must not reach a message.
    pub fn expose(&self) -> &str {
        &self.0
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

/// Parts of the names of keys that hold secrets, without `_` and `-`. Names count, and not the key table alone, because
/// a misspelled key has a secret value as well.
const MARKS: [&str; 13] = [
    "secret",
    "accesskey",
    "accountkey",
    "privatekey",
    "apikey",
    "password",
    "passwd",
    "passphrase",
    "token",
    "credential",
    "signature",
    "connectionstring",
    "proxy",
];

/// The section below which every value is a secret, except for those of keys that are known and hold none.
const OPTIONS: &str = "storage_options";

/// Whether a key of this name holds a secret.
pub(crate) fn is_secret_key(key: &str) -> bool {
    if let Some((_, option)) = key.rsplit_once(&format!("{OPTIONS}.")) {
        return !is_plain_option(option);
    }
    let key = key.to_lowercase().replace(['-', '_'], "").replace("tokens", "");
    MARKS.iter().any(|mark| key.contains(mark))
}

/// Whether a key of this name below `storage_options` is known, and holds no secret.
fn is_plain_option(name: &str) -> bool {
    let option = |row: &spec::KeyRow| row.key.rsplit_once('.').is_some_and(|(_, last)| last == name);
    let options = spec::rows().filter(|row| row.key.contains(OPTIONS));
    options.filter(|row| row.kind != spec::ValueKind::Secret).any(option)
}

/// The text with every character of a secret replaced by `*`, so that lines and columns stay where they are. Hidden are
/// the rest of the line after `KEY:` or `KEY=` if the key's name says so, the lines below it up to the next key that is
/// not indented more deeply, and what `redact_urls` hides. Where a value ends is not examined: its notation may be
/// wrong.
pub fn redact(text: &str) -> String {
    let mut redaction = Redaction::default();
    let lines: String = text.split_inclusive('\n').map(|line| redaction.line(line)).collect();
    redact_urls(&lines)
}

/// The text of a message with the users and passwords of URLs, the parameters that sign them, and the values of
/// `Authorization` headers hidden.
pub fn redact_urls(text: &str) -> String {
    let mut redacted = redact_users(text);
    for parameter in SIGNING {
        redacted = hide_after(&redacted, parameter, |at, text| {
            let (before, after) = (text[..at].chars().next_back(), &text[at + parameter.len()..]);
            let is_parameter = before.is_none_or(|before| !is_name(before)) && after.starts_with('=');
            is_parameter.then_some(("=".len(), is_encoded as fn(char) -> bool))
        });
    }
    for (word, ends_with_line) in [("authorization", true), ("bearer", false)] {
        redacted = hide_after(&redacted, word, |at, text| {
            let after = &text[at + word.len()..];
            let gap = after.len() - after.trim_start_matches([':', '=', ' ', '"', '\'']).len();
            let within: fn(char) -> bool = if ends_with_line { is_in_line } else { is_in_word };
            (gap > 0).then_some((gap, within))
        });
    }
    redacted
}

/// The words of a command of another program, with the values of options that hold a secret by their names, and what
/// `redact_urls` hides.
pub fn redact_command<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let is_secret = |name: &str| {
        let name = name.trim_start_matches('-').to_lowercase();
        let is_key = name == "key" || name.ends_with("-key") || name.ends_with("_key");
        is_secret_key(&name) || is_key || (name.contains("auth") && !name.contains("author"))
    };
    let mut hides_next = false;
    let redacted = words.into_iter().map(|word| {
        if std::mem::take(&mut hides_next) {
            return HIDDEN_WORD.to_owned();
        }
        match word.split_once('=') {
            Some((name, _)) if is_secret(name) => format!("{name}={HIDDEN_WORD}"),
            None if word.starts_with('-') && is_secret(word) => {
                hides_next = true;
                word.to_owned()
            }
            _ => redact_urls(word),
        }
    });
    redacted.collect()
}

/// What a secret word of a command is replaced by, whatever its length.
const HIDDEN_WORD: &str = "***";

/// Parameters of signed URLs that hold a secret or help to guess one.
const SIGNING: [&str; 9] = [
    "x-amz-signature",
    "x-amz-credential",
    "x-amz-security-token",
    "x-goog-signature",
    "x-goog-credential",
    "sig",
    "signature",
    "awsaccesskeyid",
    "googleaccessid",
];

/// Whether a character can be part of a value in a URL.
fn is_encoded(c: char) -> bool {
    c.is_ascii_alphanumeric() || "%._~+/=-:@".contains(c)
}

fn is_in_line(c: char) -> bool {
    !matches!(c, '\n' | '\r')
}

fn is_in_word(c: char) -> bool {
    !c.is_whitespace() && !"\"'`,;)".contains(c)
}

/// The text with a value hidden after each occurrence of a word, in any case. `value` says how many bytes after the
/// word it begins and which characters belong to it; `None`: it is not such a word.
fn hide_after(
    text: &str,
    word: &str,
    value: impl Fn(usize, &str) -> Option<(usize, fn(char) -> bool)>,
) -> String {
    // Only ASCII letters change, so positions are the same in both texts.
    let lower = text.to_ascii_lowercase();
    let mut redacted = String::with_capacity(text.len());
    let mut done = 0;
    for (at, _) in lower.match_indices(word) {
        let Some((gap, within)) = value(at, text).filter(|_| at >= done) else { continue };
        let begin = at + word.len() + gap;
        let end = text[begin..].find(|c: char| !within(c)).map_or(text.len(), |length| begin + length);
        redacted.push_str(&text[done..begin]);
        redacted.push_str(&hidden(&text[begin..end]));
        done = end;
    }
    redacted + &text[done..]
}

/// What is known after some lines.
#[derive(Default)]
struct Redaction {
    /// The indentation of a secret key, whose value may continue below it.
    secret: Option<usize>,
    /// The indentation of `storage_options`.
    options: Option<usize>,
}

impl Redaction {
    fn line(&mut self, line: &str) -> String {
        let indent = line.len() - line.trim_start_matches(' ').len();
        if line.trim().is_empty() {
            return line.to_owned();
        }
        let begins_key = begins_with_key(&line[indent..]);
        if self.secret.is_some_and(|key| indent > key || !begins_key) {
            return line[..indent].to_owned() + &hidden(&line[indent..]);
        }
        self.secret = None;
        if begins_key {
            self.options = self.options.filter(|options| indent > *options);
        }
        let Some(at) = self.secret_in(line, indent) else { return line.to_owned() };
        self.secret = Some(indent);
        line[..at].to_owned() + &hidden(&line[at..])
    }

    /// Where the first secret of a line begins.
    fn secret_in(&mut self, line: &str, indent: usize) -> Option<usize> {
        // In quotes, brackets and arguments a `#` may be part of a value, and a key may follow it.
        let comment = line.find(" #").filter(|at| !line[..*at].contains(['"', '\'', '{', '[', '=']));
        let code = &line[..comment.unwrap_or(line.len())];
        for (at, separator) in code.match_indices([':', '=']) {
            let before = code[..at].trim_end_matches(['"', '\'', ' ', '\t']);
            let begin = before
                .rfind(|c: char| !is_name(c))
                .map_or(0, |last| last + before[last..].chars().next().map_or(1, char::len_utf8));
            let name = &before[begin..];
            let is_option =
                self.options.is_some() && is_key_position(&before[..begin]) && !is_plain_option(name);
            if !name.is_empty() && (is_option || is_secret_key(name)) {
                let after = &line[at + separator.len()..];
                return Some(line.len() - after.trim_start_matches(' ').len());
            }
            if name == OPTIONS || name.ends_with(&format!(".{OPTIONS}")) {
                self.options = Some(indent);
            }
        }
        // A key whose separator was forgotten.
        let words = code.split_inclusive(char::is_whitespace).scan(0, |end, word| {
            *end += word.len();
            Some((*end, word.trim()))
        });
        words.filter(|(_, word)| word.contains(['_', '-']) && is_secret_key(word)).map(|(end, _)| end).next()
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || "_-.".contains(c)
}

/// Whether a text begins with `KEY:`.
fn begins_with_key(text: &str) -> bool {
    text.split_once(':').is_some_and(|(key, rest)| {
        let key = key.trim_end().trim_matches(['"', '\'']);
        !key.is_empty()
            && key.chars().all(is_name)
            && (rest.is_empty() || rest.starts_with(char::is_whitespace))
    })
}

/// Whether a name after this text is a key: at the start of a line or of an element.
fn is_key_position(before: &str) -> bool {
    before
        .trim_end_matches(['"', '\'', ' ', '\t', '-', '+', '~'])
        .chars()
        .next_back()
        .is_none_or(|c| "{,".contains(c))
}

/// Every character of a secret hidden; only the end of the line is kept.
fn hidden(text: &str) -> String {
    text.chars().map(|c| if matches!(c, '\n' | '\r') { c } else { '*' }).collect()
}

/// The text with the part of each URL before an `@` hidden: a user and perhaps a password.
fn redact_users(text: &str) -> String {
    let mut parts = text.split("://");
    let mut redacted = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        redacted.push_str("://");
        let user = user_in(part);
        redacted.push_str(&hidden(&part[..user]));
        redacted.push_str(&part[user..]);
    }
    redacted
}

/// Where the user and password end in what follows `://`; 0 if there is none. A password may contain a slash if it was
/// not encoded: then there is a `:` before the first slash, and no port after it.
fn user_in(part: &str) -> usize {
    let end = part.find(|c: char| c.is_whitespace() || "\"'`".contains(c)).unwrap_or(part.len());
    let server = &part[..part[..end].find('/').unwrap_or(end)];
    let has_password =
        server.split_once(':').is_some_and(|(_, password)| !password.chars().all(|c| c.is_ascii_digit()));
    let within = if has_password { &part[..end] } else { server };
    within.rfind('@').unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_command_are_hidden_by_their_names() {
        for (command, expected) in [
            ("train.py --token abc --lr 0.1", "train.py --token *** --lr 0.1"),
            ("train.py --hf_auth=abc --author=me", "train.py --hf_auth=*** --author=me"),
            ("train.py --key abc --credentials f.json", "train.py --key *** --credentials ***"),
            ("fetch https://u:pw@host/x", "fetch https://****@host/x"),
            ("env WANDB_API_KEY=abc train.py", "env WANDB_API_KEY=*** train.py"),
            ("train.py --max-tokens 5 data/keys", "train.py --max-tokens 5 data/keys"),
        ] {
            assert_eq!(redact_command(command.split(' ')).join(" "), expected);
        }
    }

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
            ("  secret_access_key: \"hun, t\\\"er\" # why", "  secret_access_key: ******************"),
            (
                "{region: eu, secret_access_key: hunter2, x: 1}",
                "{region: eu, secret_access_key: **************",
            ),
            ("{\"secret_access_key\": 'a,b', x: 1}", "{\"secret_access_key\": ************"),
            ("secret_access_key:hunter2", "secret_access_key:*******"),
            ("secret_access_key\t: hunter2", "secret_access_key\t: *******"),
            ("secret_access_key hunter2", "secret_access_key *******"),
            ("--set a.secret_access_key='it\\'s'", "--set a.secret_access_key=*******"),
            ("--set a={secret_access_key:x\\,y,b:c}", "--set a={secret_access_key:*********"),
            ("a.storage_options.acces_key_id=hunter2", "a.storage_options.acces_key_id=*******"),
            ("a.storage_options.region=eu", "a.storage_options.region=eu"),
            ("storage_options: {acces_kid: x, b: c}", "storage_options: {acces_kid: ********"),
            ("password: [[a], b]", "password: ********"),
            ("token: é€", "token: **"),
            ("a: 1\nsecret:\n  hunter2\n\n  more\nb: 2\n", "a: 1\nsecret:\n  *******\n\n  ****\nb: 2\n"),
            ("  secret: |\n hunter2\nb: 2", "  secret: *\n *******\nb: 2"),
            ("  secret:\n  - hunter2\n  b: 2", "  secret:\n  *********\n  b: 2"),
            ("x: {a: 1,\n    secret:\n [b]}\nc: 2", "x: {a: 1,\n    secret:\n ****\nc: 2"),
            (
                "storage_options:\n  acces_kid: x\n  region: eu\n  endpoint_url: http://h:9/b\nreader: {a: b}\n",
                "storage_options:\n  acces_kid: *\n  region: eu\n  endpoint_url: http://h:9/b\nreader: {a: b}\n",
            ),
            ("x: s3://user:pass@host/b, y: 1", "x: s3://*********@host/b, y: 1"),
            ("x: 'http://user:pa/ss@host/b', y: a@b", "x: 'http://**********@host/b', y: a@b"),
            ("endpoint: http://host:9000/a@b", "endpoint: http://host:9000/a@b"),
            ("https://h/k?sv=1&sig=a%2Bb&se=2", "https://h/k?sv=1&sig=*****&se=2"),
            ("dataset:  # see token: 5\n  formt: npz", "dataset:  # see token: 5\n  formt: npz"),
            ("model: {max_tokens: 5}", "model: {max_tokens: 5}"),
            ("{a: \"x #\", secret: hunter2}", "{a: \"x #\", secret: ********"),
            ("--set a={b:x #c,secret:hunter2}", "--set a={b:x #c,secret:********"),
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

    #[test]
    fn signed_urls_and_headers_are_hidden_in_messages() {
        for (text, expected) in [
            (
                "GET https://h/b/k?X-Amz-Date=1&X-Amz-Credential=AK%2F1/x&x-amz-signature=0af failed: 403",
                "GET https://h/b/k?X-Amz-Date=1&X-Amz-Credential=********&x-amz-signature=*** failed: 403",
            ),
            ("?X-Amz-Security-Token=abc&x=1", "?X-Amz-Security-Token=***&x=1"),
            ("(https://a/?sig=a%3D)", "(https://a/?sig=****)"),
            ("?GoogleAccessId=me@x.y&Signature=ab==", "?GoogleAccessId=******&Signature=****"),
            ("?AWSAccessKeyId=AK&Expires=1", "?AWSAccessKeyId=**&Expires=1"),
            ("authorization: AWS4-HMAC x, y\nhost: h", "authorization: **************\nhost: h"),
            ("token 'Bearer abc.d' refused", "token 'Bearer *****' refused"),
            (
                "design=5 of a sig nature; a bearerless design",
                "design=5 of a sig nature; a bearerless design",
            ),
            ("sigs and signatures", "sigs and signatures"),
            ("é?sig=é", "é?sig=é"),
        ] {
            assert_eq!(redact_urls(text), expected);
        }
    }
}
