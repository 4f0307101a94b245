//! The value grammar of Hydra's command line overrides: `true`, `10`, `1e-3`, `'quoted'`, `[a, b]`, `{k: v}`;
//! everything else is text. It is not YAML: `off` and `yes` are words here. The table below was checked against
//! hydra-core 1.3. One rule is more permissive: characters that Hydra's lexer rejects (`~`, `#`, letters with accents)
//! are text, because they mostly occur in paths.

use super::value::{MapEntry, Node, Origin, Value};

/// Maximum nesting of lists and maps; bounds the recursion.
const DEEPEST: usize = 32;

/// Why a text is not a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HydraError {
    /// A comma outside brackets, or one of Hydra's sweep functions.
    Sweep,
    Interpolation,
    Other(String),
}

/// The value of `text`; all parts get the place `place`.
pub(super) fn parse(text: &str, place: Origin) -> Result<Node, HydraError> {
    if text.contains("${") {
        return Err(HydraError::Interpolation);
    }
    if text.trim_matches(BLANK).is_empty() {
        return match text {
            "" => Ok(Node { value: Value::Text(String::new()), place }),
            _ => other("the value is blank"),
        };
    }
    let mut reader = HydraParser { chars: text.chars().collect(), at: 0, place };
    let node = reader.element(0, false)?;
    match reader.peek() {
        None => Ok(node),
        Some(',') => Err(HydraError::Sweep),
        Some(c) => other(format!("unexpected '{c}' after the value")),
    }
}

/// The text in the grammar's notation: bare if that reads back as the same text, otherwise quoted.
pub(super) fn quote(text: &str) -> String {
    let is_bare = |node: Node| node.value == Value::Text(text.to_owned());
    if !text.contains('\\') && parse(text, Origin::Default).is_ok_and(is_bare) {
        return text.to_owned();
    }
    let mut quoted = String::from("'");
    let mut backslashes = 0;
    for c in text.chars() {
        if c == '\'' {
            // Backslashes before a quote are doubled, and one more escapes the quote.
            quoted.extend(std::iter::repeat_n('\\', backslashes + 1));
        }
        backslashes = if c == '\\' { backslashes + 1 } else { 0 };
        quoted.push(c);
    }
    quoted.extend(std::iter::repeat_n('\\', backslashes));
    quoted.push('\'');
    quoted
}

const BLANK: [char; 2] = [' ', '\t'];
/// Characters that end an unquoted text unless escaped by a backslash.
const RESERVED: [char; 10] = ['(', ')', '[', ']', '{', '}', ',', '=', '\'', '"'];

fn other<T>(why: impl Into<String>) -> Result<T, HydraError> {
    Err(HydraError::Other(why.into()))
}

struct HydraParser {
    chars: Vec<char>,
    at: usize,
    place: Origin,
}

impl HydraParser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(|c| BLANK.contains(&c)) {
            self.at += 1;
        }
    }

    /// Consumes `c` if it is next, after blanks.
    fn take(&mut self, c: char) -> bool {
        self.skip_blanks();
        let next = self.peek() == Some(c);
        self.at += usize::from(next);
        next
    }

    fn node(&self, value: Value) -> Node {
        Node { value, place: self.place }
    }

    fn element(&mut self, depth: usize, is_key: bool) -> Result<Node, HydraError> {
        if depth > DEEPEST {
            return other(format!("nested more than {DEEPEST} levels deep"));
        }
        self.skip_blanks();
        let node = match self.peek() {
            Some('[') => self.list(depth)?,
            Some('{') => self.map(depth)?,
            Some(quote @ ('\'' | '"')) => self.quoted(quote)?,
            _ => self.unquoted(is_key)?,
        };
        self.skip_blanks();
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Node, HydraError> {
        self.at += 1;
        let mut items = Vec::new();
        if self.take(']') {
            return Ok(self.node(Value::List(items)));
        }
        loop {
            items.push(self.element(depth + 1, false)?);
            if self.take(']') {
                return Ok(self.node(Value::List(items)));
            }
            if !self.take(',') {
                return other("a list needs ',' between its items and ']' at its end");
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Node, HydraError> {
        self.at += 1;
        let mut entries: Vec<MapEntry> = Vec::new();
        if self.take('}') {
            return Ok(self.node(Value::Map(entries)));
        }
        loop {
            let start = self.at;
            self.skip_blanks();
            self.unquoted(true)?;
            let key = unescape(&self.chars[start..self.at]).trim_matches(BLANK).to_owned();
            if !self.take(':') {
                return other("a map is written {key: value, key: value}");
            }
            if entries.iter().any(|entry| entry.key == key) {
                return other(format!("the key '{key}' is given twice"));
            }
            let node = self.element(depth + 1, false)?;
            entries.push(MapEntry { key, place: self.place, node });
            if self.take('}') {
                return Ok(self.node(Value::Map(entries)));
            }
            if !self.take(',') {
                return other("a map needs ',' between its keys and '}' at its end");
            }
        }
    }

    /// Backslashes have a meaning only before a quote: each pair is one backslash, an odd one escapes the quote.
    fn quoted(&mut self, quote: char) -> Result<Node, HydraError> {
        self.at += 1;
        let mut text = String::new();
        let mut backslashes = 0;
        while let Some(c) = self.peek() {
            self.at += 1;
            if c == '\\' {
                backslashes += 1;
                continue;
            }
            let kept = if c == quote { backslashes / 2 } else { backslashes };
            text.extend(std::iter::repeat_n('\\', kept));
            if c == quote && backslashes % 2 == 0 {
                return Ok(self.node(Value::Text(text)));
            }
            text.push(c);
            backslashes = 0;
        }
        other(format!("the quote {quote} is not closed"))
    }

    fn unquoted(&mut self, is_key: bool) -> Result<Node, HydraError> {
        let start = self.at;
        while let Some(c) = self.peek() {
            if c == '\\' && self.chars.get(self.at + 1).is_some_and(|next| is_escapable(*next)) {
                self.at += 2;
            } else if RESERVED.contains(&c) || (is_key && c == ':') {
                break;
            } else {
                self.at += 1;
            }
        }
        let raw = &self.chars[start..self.at];
        let plain: String = raw.iter().collect();
        let plain = plain.trim_matches(BLANK);
        match self.peek() {
            Some('(') => return refuse_function(plain),
            Some(c @ ('\'' | '"' | '=' | '[' | '{')) => {
                return other(format!(
                    "'{c}' inside a text needs a backslash before it, or quotes around the text"
                ));
            }
            _ if plain.is_empty() => return other("a value is missing"),
            _ => {}
        }
        let value = typed(plain).unwrap_or_else(|| Value::Text(unescape(trim(raw))));
        Ok(self.node(value))
    }
}

fn refuse_function<T>(name: &str) -> Result<T, HydraError> {
    match name {
        "choice" | "range" | "interval" | "glob" | "shuffle" | "sort" => Err(HydraError::Sweep),
        _ => other("Hydra's functions are not supported; '(' in a text needs a backslash or quotes"),
    }
}

fn is_escapable(c: char) -> bool {
    matches!(c, '\\' | '(' | ')' | '[' | ']' | '{' | '}' | ':' | '=' | ',' | ' ' | '\t')
}

/// Removes unescaped blanks at both ends: an odd number of backslashes escapes a blank.
fn trim(raw: &[char]) -> &[char] {
    let start = raw.iter().position(|c| !BLANK.contains(c)).unwrap_or(raw.len());
    let text = &raw[start..];
    let end = text.iter().rposition(|c| !BLANK.contains(c)).map_or(0, |last| last + 1);
    let backslashes = text[..end].iter().rev().take_while(|c| **c == '\\').count();
    let escaped = usize::from(backslashes % 2 == 1 && end < text.len());
    &text[..end + escaped]
}

fn unescape(raw: &[char]) -> String {
    let mut text = String::new();
    let mut chars = raw.iter().peekable();
    while let Some(c) = chars.next() {
        match chars.peek() {
            Some(next) if *c == '\\' && is_escapable(**next) => {
                text.push(**next);
                chars.next();
            }
            _ => text.push(*c),
        }
    }
    text
}

/// A boolean, null or a number; `None` for a text.
fn typed(text: &str) -> Option<Value> {
    match text.to_ascii_lowercase().as_str() {
        "true" => return Some(Value::Bool(true)),
        "false" => return Some(Value::Bool(false)),
        "null" => return Some(Value::Null),
        _ => {}
    }
    let (negative, body) = match text.strip_prefix('-') {
        Some(body) => (true, body),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if is_integer(body) {
        let number = body.replace('_', "").parse::<i128>().unwrap_or(i128::MAX);
        return Some(Value::Int(if negative { -number } else { number }));
    }
    let magnitude = float(body)?;
    Some(Value::Float(if negative { -magnitude } else { magnitude }))
}

/// Digits with single underscores between them.
fn is_digits(text: &str) -> bool {
    text.split('_').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

fn is_integer(text: &str) -> bool {
    text == "0" || (!text.starts_with('0') && is_digits(text))
}

fn float(body: &str) -> Option<f64> {
    match body.to_ascii_lowercase().as_str() {
        "inf" => return Some(f64::INFINITY),
        "nan" => return Some(f64::NAN),
        _ => {}
    }
    let (mantissa, exponent) = match body.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (body, None),
    };
    let exponent_fits = exponent.is_none_or(|e| is_digits(e.strip_prefix(['+', '-']).unwrap_or(e)));
    let mantissa_fits = match mantissa.split_once('.') {
        Some((whole, "")) => is_integer(whole),
        Some((whole, part)) => (whole.is_empty() || is_integer(whole)) && is_digits(part),
        None => exponent.is_some() && is_integer(mantissa),
    };
    (exponent_fits && mantissa_fits).then(|| body.replace('_', "").parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(node: &Node) -> String {
        match &node.value {
            Value::Null => "None".into(),
            Value::Bool(true) => "True".into(),
            Value::Bool(false) => "False".into(),
            Value::Int(number) => number.to_string(),
            Value::Float(number) => format!("{number:?}"),
            Value::Text(text) => format!("<{text}>"),
            Value::List(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", ")),
            Value::Map(entries) => {
                let pairs = entries.iter().map(|entry| format!("{}: {}", entry.key, show(&entry.node)));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// The value that the parser of hydra-core 1.3.8 gives; `<...>` is text.
    const VALUES: &[(&str, &str)] = &[
        ("true", "True"),
        ("TRUE", "True"),
        ("False", "False"),
        ("fAlSe", "False"),
        ("null", "None"),
        ("NULL", "None"),
        ("none", "<none>"),
        ("on", "<on>"),
        ("off", "<off>"),
        ("yes", "<yes>"),
        ("10", "10"),
        ("-20", "-20"),
        ("+5", "5"),
        ("1_000_000", "1000000"),
        ("1__0", "<1__0>"),
        ("007", "<007>"),
        ("0x10", "<0x10>"),
        ("0", "0"),
        ("-0", "0"),
        ("3.14", "3.14"),
        ("1.", "1.0"),
        (".5", "0.5"),
        ("-.5e-3", "-0.0005"),
        ("1e-3", "0.001"),
        ("1E5", "100000.0"),
        ("1e+5", "100000.0"),
        ("1_0.5_0", "10.5"),
        ("inf", "inf"),
        ("-INF", "-inf"),
        ("nan", "NaN"),
        (".inf", "<.inf>"),
        ("abc", "<abc>"),
        ("foo-bar_10", "<foo-bar_10>"),
        ("10abc", "<10abc>"),
        ("1.2.3", "<1.2.3>"),
        ("a.b.c", "<a.b.c>"),
        ("/data/set-1", "</data/set-1>"),
        ("./data/", "<./data/>"),
        ("s3://bucket/key", "<s3://bucket/key>"),
        ("a:b", "<a:b>"),
        ("C:\\dir", "<C:\\dir>"),
        ("x%y*z@w?v|u+t$s", "<x%y*z@w?v|u+t$s>"),
        ("'hello world'", "<hello world>"),
        ("\"hello, world\"", "<hello, world>"),
        (r"'it\'s'", "<it's>"),
        (r#""a\"b""#, "<a\"b>"),
        (r"'abc\\'", r"<abc\>"),
        (r"'a\\b'", r"<a\\b>"),
        ("'10'", "<10>"),
        ("\"true\"", "<true>"),
        ("''", "<>"),
        ("", "<>"),
        ("a b", "<a b>"),
        (" a ", "<a>"),
        (r"a\,b", "<a,b>"),
        (r"a\=b", "<a=b>"),
        (r"a\ b", "<a b>"),
        (r"a\\b", r"<a\b>"),
        (r"\(x\)", "<(x)>"),
        ("[]", "[]"),
        ("[1,2,3]", "[1, 2, 3]"),
        ("[ 1 , 2 ]", "[1, 2]"),
        ("[a,[b,1.5],null]", "[<a>, [<b>, 1.5], None]"),
        ("[1,'2',\"x,y\"]", "[1, <2>, <x,y>]"),
        ("[a b, c d]", "[<a b>, <c d>]"),
        ("{}", "{}"),
        ("{a:1}", "{a: 1}"),
        ("{a:1,b:{c:true}}", "{a: 1, b: {c: True}}"),
        ("{a: 1, b: [1, 2]}", "{a: 1, b: [1, 2]}"),
        ("{mean:1.0,stdev:0.1}", "{mean: 1.0, stdev: 0.1}"),
        ("{1:x}", "{1: <x>}"),
        ("{a b:1}", "{a b: 1}"),
        ("tru", "<tru>"),
        ("nulls", "<nulls>"),
        ("1 2", "<1 2>"),
        ("-", "<->"),
        ("+", "<+>"),
        ("-abc", "<-abc>"),
        ("1e", "<1e>"),
        ("e5", "<e5>"),
        (".", "<.>"),
        ("10%", "<10%>"),
        // Hydra rejects these three; see the top of the file.
        ("~/data", "<~/data>"),
        ("a#b", "<a#b>"),
        ("/data/ü", "</data/ü>"),
    ];

    #[test]
    fn values_are_the_same_as_in_hydra() {
        for (text, expected) in VALUES {
            let node =
                parse(text, Origin::Override(0)).unwrap_or_else(|refusal| panic!("{text}: {refusal:?}"));
            assert_eq!(show(&node), *expected, "{text}");
        }
    }

    #[test]
    fn texts_that_hydra_rejects_are_rejected() {
        for text in ["a,b", "1,2", "[1,2],[3]", "choice(1,2)", "range(1,3)", "'a','b'"] {
            assert_eq!(parse(text, Origin::Override(0)), Err(HydraError::Sweep), "{text}");
        }
        for text in ["${x}", "a${x}b"] {
            assert_eq!(parse(text, Origin::Override(0)), Err(HydraError::Interpolation), "{text}");
        }
        let deep = "[".repeat(100_000);
        for text in [
            "a=b",
            "[1,2",
            "1]",
            "{a:1",
            "{a}",
            "'abc",
            "a'b",
            "a(b)",
            "[1,,2]",
            "[1,]",
            "{}x",
            "'a'b",
            "int(3)",
            "{a:1,a:2}",
            " ",
            "[",
            "{",
            ")",
            "{:1}",
            "a[0]",
            &deep,
        ] {
            assert!(matches!(parse(text, Origin::Override(0)), Err(HydraError::Other(_))), "{text}");
        }
    }

    #[test]
    fn plain_words_stay_bare() {
        for (text, written) in [
            ("warm", "warm"),
            ("/mnt/fast/a b", "/mnt/fast/a b"),
            ("it's", r"'it\'s'"),
            ("true", "'true'"),
            ("", ""),
            ("a=b", "'a=b'"),
            (r"a\", r"'a\\'"),
        ] {
            assert_eq!(quote(text), written);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[ \\\\'\",:=()\\[\\]{}$a-c0-2._~é-]{0,40}") {
            let _ = parse(&text, Origin::Override(0));
        }

        #[test]
        fn a_quoted_text_reads_back(text in "[ \\\\'\",:=()\\[\\]{}$a-c0-2._~é\n-]{0,20}") {
            proptest::prop_assume!(!text.contains("${"));
            let node = parse(&quote(&text), Origin::Default);
            proptest::prop_assert_eq!(node.map(|node| node.value), Ok(Value::Text(text)));
        }
    }
}
