//! The documents of a result folder as trees of values. They are written by several programs and versions, so that a
//! missing key, a number in quotes and `NaN` are all expected.

use serde_json::Value;

use crate::spec::plain_yaml;

/// A document as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DocumentText {
    #[default]
    Absent,
    /// It exists but cannot be used, and why.
    Unusable(String),
    Text(String),
}

/// A document after parsing: a tree, or the reason why there is none.
pub(super) type DocumentTree = Result<Value, String>;

/// Most values of a document that is parsed. The tree needs up to 50 times the memory of the text, and mlpstorage's
/// metadata has some 2,000 of them for each host.
const MOST_PARSED: usize = 2_000_000;
/// Most values that are kept, after keys that no rule needs are removed.
const MOST_KEPT: usize = 50_000;

impl DocumentText {
    /// A JSON document, of which only these keys are kept.
    pub(super) fn json(&self, keys: &[&str]) -> DocumentTree {
        self.parse(|text| {
            let mut tree =
                serde_json::from_str(&without_nan(text)).map_err(|error| format!("is not JSON: {error}"))?;
            if let Value::Object(map) = &mut tree {
                map.retain(|key, _| keys.contains(&key.as_str()));
            }
            Ok(tree)
        })
    }

    pub(super) fn yaml(&self) -> DocumentTree {
        self.parse(|text| plain_yaml(text).map_err(|error| format!("is not YAML: {error}")))
    }

    /// A YAML list of texts.
    pub(super) fn yaml_list(&self) -> Result<Vec<String>, String> {
        // The parser accepts maps only. A list in brackets must be on the line of its key.
        let separator = |text: &str| if text.trim_start().starts_with('[') { ' ' } else { '\n' };
        let list = |text: &str| plain_yaml(&format!("list:{}{text}", separator(text)));
        let parsed = self.parse(|text| list(text).map_err(|error| format!("is not YAML: {error}")))?;
        match parsed.get("list") {
            Some(Value::Array(list)) => {
                let text = |entry: &Value| match entry {
                    Value::String(text) => Ok(text.clone()),
                    other => Err(format!("has an entry that is not text: {}", shown(Some(other)))),
                };
                list.iter().map(text).collect()
            }
            _ => Err("is not a list".to_owned()),
        }
    }

    fn parse(&self, parse: impl FnOnce(&str) -> DocumentTree) -> DocumentTree {
        match self {
            DocumentText::Absent => Err("is missing".to_owned()),
            DocumentText::Unusable(why) => Err(why.clone()),
            DocumentText::Text(text) => {
                // Each value but the first of a list or map follows one of these.
                let values = text.bytes().filter(|b| matches!(b, b',' | b'[' | b'{' | b'\n')).count();
                let too_many = |most: usize| Err(format!("has more than {most} values"));
                if values > MOST_PARSED {
                    return too_many(MOST_PARSED);
                }
                let tree = parse(text.strip_prefix('\u{feff}').unwrap_or(text))?;
                if values_in(&tree) > MOST_KEPT { too_many(MOST_KEPT) } else { Ok(tree) }
            }
        }
    }
}

fn values_in(tree: &Value) -> usize {
    1 + match tree {
        Value::Array(list) => list.iter().map(values_in).sum(),
        Value::Object(map) => map.values().map(values_in).sum(),
        _ => 0,
    }
}

/// Python writes numbers that are not finite as words, which are not JSON; here they become `null`.
fn without_nan(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut in_string) = (text, false);
    while let Some(c) = rest.chars().next() {
        let word =
            ["NaN", "-Infinity", "Infinity"].into_iter().find(|word| !in_string && rest.starts_with(word));
        let taken = match (word, c) {
            (Some(word), _) => {
                out.push_str("null");
                rest = &rest[word.len()..];
                continue;
            }
            (None, '\\') if in_string => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            (None, '"') => {
                in_string = !in_string;
                1
            }
            (None, c) => c.len_utf8(),
        };
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    out
}

/// The value at a dotted path.
pub(super) fn at<'a>(tree: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(tree, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// A finite number, also in quotes.
pub(super) fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|number: &f64| number.is_finite())
}

/// A whole number that is not negative, also in quotes.
pub(super) fn count(value: &Value) -> Option<u64> {
    // 2^53: above it, a float does not stand for one integer.
    number(value)
        .filter(|number| number.fract() == 0.0 && (0.0..9e15).contains(number))
        .map(|number| number as u64)
}

/// A boolean, also as Python writes it in text.
pub(super) fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "on" | "yes" => Some(true),
            "false" | "off" | "no" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// A value as evidence.
pub(super) fn shown(value: Option<&Value>) -> String {
    match value {
        None => "missing".to_owned(),
        Some(Value::String(text)) => format!("'{}'", shortened(text)),
        Some(value) => shortened(&value.to_string()),
    }
}

fn shortened(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_of_python_become_null_outside_strings() {
        let text = DocumentText::Text(
            "{\"a\": NaN, \"b\": [-Infinity, Infinity, 1], \"NaN\": \"NaN \\\" NaN\", \"c\": \"\\\\\"}"
                .to_owned(),
        );
        let expected = json!({"a": null, "b": [null, null, 1], "NaN": "NaN \" NaN", "c": "\\"});
        assert_eq!(text.json(&["a", "b", "c", "NaN"]), Ok(expected));
        assert_eq!(text.json(&["a"]), Ok(json!({"a": null})), "only these keys are kept");
        assert_eq!(at(&json!({"a": {"b": null}}), "a.b"), None);
    }

    #[test]
    fn damaged_documents_have_a_reason() {
        for (text, expected) in [
            (DocumentText::Absent, "is missing"),
            (DocumentText::Unusable("cannot be read".to_owned()), "cannot be read"),
            (DocumentText::Text("{\"a\": 1".to_owned()), "is not JSON"),
            (DocumentText::Text(String::new()), "is not JSON"),
            (DocumentText::Text("[".repeat(100_000)), "is not JSON"),
            (DocumentText::Text(format!("[{}0]", "0,".repeat(50_000))), "has more than 50000 values"),
            (DocumentText::Text(format!("[{}0]", "0,".repeat(2_000_000))), "has more than 2000000 values"),
        ] {
            let error = text.json(&[]).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(DocumentText::Text("a: [".to_owned()).yaml().unwrap_err().starts_with("is not YAML"));
        assert_eq!(DocumentText::Text("a: 1".to_owned()).yaml_list(), Err("is not a list".to_owned()));
        let list = DocumentText::Text("- workload=x\n- ++workload.a=1\n".to_owned());
        assert_eq!(list.yaml_list(), Ok(vec!["workload=x".to_owned(), "++workload.a=1".to_owned()]));
        assert_eq!(DocumentText::Text("[]\n".to_owned()).yaml_list(), Ok(Vec::new()));
        for entry in ["{++workload.a: 1}", "++workload.a={b: 1}", "7"] {
            let error = DocumentText::Text(format!("- workload=x\n- {entry}\n")).yaml_list().unwrap_err();
            assert!(error.starts_with("has an entry that is not text"), "{entry}: {error}");
        }
    }

    #[test]
    fn numbers_and_flags_may_be_text() {
        for (value, expected) in [
            (json!(7), Some(7)),
            (json!("28000"), Some(28_000)),
            (json!(7.0), Some(7)),
            (json!(7.5), None),
            (json!(-1), None),
            (json!("NaN"), None),
            (json!(1e300), None),
            (json!([7]), None),
        ] {
            assert_eq!(count(&value), expected, "{value}");
        }
        assert_eq!(
            [json!("True"), json!(false), json!(1)].map(|value| flag(&value)),
            [Some(true), Some(false), None]
        );
        assert!(shown(Some(&json!("x".repeat(500)))).len() < 80);
    }
}
