//! Values of `--set`: Hydra's grammar, with the permissive lexicon of `crate::hydra`. Sweeps, functions and
//! interpolations have no meaning here and are refused. The table below was checked against hydra-core 1.3.

use super::value::{MapEntry, Node, Origin, Value};
use crate::hydra::{Lexicon, OverrideElement, parse_value, requote};

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
    if text.is_empty() {
        return Ok(Node { value: Value::Text(String::new()), place });
    }
    // The caller shows the place of the value; the rest of the message quotes it.
    let why = |message: &str| message.lines().next().unwrap_or(message).to_owned();
    let element = parse_value(text, Lexicon::Permissive).map_err(|error| HydraError::Other(why(&error.0)))?;
    node(&element, place)
}

fn node(element: &OverrideElement, place: Origin) -> Result<Node, HydraError> {
    let value = match element {
        OverrideElement::Null => Value::Null,
        OverrideElement::Bool(flag) => Value::Bool(*flag),
        OverrideElement::Int(number) => Value::Int(*number),
        OverrideElement::Float(number) => Value::Float(*number),
        OverrideElement::Text(text) | OverrideElement::Quoted(text, _) => Value::Text(text.clone()),
        OverrideElement::List(items) => {
            Value::List(items.iter().map(|item| node(item, place)).collect::<Result<_, _>>()?)
        }
        OverrideElement::Map(pairs) => Value::Map(entries(pairs, place)?),
        OverrideElement::Sweep(_) => return Err(HydraError::Sweep),
    };
    Ok(Node { value, place })
}

fn entries(pairs: &[(String, OverrideElement)], place: Origin) -> Result<Vec<MapEntry>, HydraError> {
    let mut entries: Vec<MapEntry> = Vec::new();
    for (key, value) in pairs {
        if entries.iter().any(|entry| entry.key == *key) {
            return Err(HydraError::Other(format!("the key '{key}' is given twice")));
        }
        entries.push(MapEntry { key: key.clone(), place, node: node(value, place)? });
    }
    Ok(entries)
}

/// The text in the grammar's notation: bare if that reads back as the same text, otherwise quoted.
pub(super) fn quote(text: &str) -> String {
    let is_bare = |node: Node| node.value == Value::Text(text.to_owned());
    match !text.contains('\\') && parse(text, Origin::Default).is_ok_and(is_bare) {
        true => text.to_owned(),
        false => requote(text, '\''),
    }
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
