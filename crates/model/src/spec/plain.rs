//! YAML text as plain values, for documents that are not workloads.

use serde_json::{Map, Number, Value as Json};

use super::error::{SpecError, Texts};
use super::value::{Node, Value};
use super::yaml;

/// The tree of a YAML map, without the `workload:` around it that DLIO's own files have. Limits and types are those of
/// workload files.
pub fn plain_yaml(text: &str) -> Result<Json, SpecError> {
    let texts = Texts { name: "line", text, overrides: &[] };
    yaml::parse(text).map(|root| plain(&root)).map_err(|problem| texts.error(problem))
}

fn plain(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(flag) => Json::Bool(*flag),
        // An integer beyond the limits of JSON becomes a float.
        Value::Int(number) => i64::try_from(*number)
            .map_or_else(|_| float(*number as f64), |number| Json::Number(number.into())),
        Value::Float(number) => float(*number),
        Value::Text(text) => Json::String(text.clone()),
        Value::List(items) => Json::Array(items.iter().map(plain).collect()),
        Value::Map(entries) => {
            let entries = entries.iter().map(|entry| (entry.key.clone(), plain(&entry.node)));
            Json::Object(entries.collect::<Map<_, _>>())
        }
    }
}

/// JSON has no number that is not finite.
fn float(number: f64) -> Json {
    Number::from_f64(number).map_or(Json::Null, Json::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_value_is_kept() {
        let text = "workload:\n  a: [1, 2.5, true, null, x]\n  b: {c: 99999999999999999999, d: .inf}\n";
        let expected = json!({"a": [1, 2.5, true, null, "x"], "b": {"c": 1e20, "d": null}});
        assert_eq!(plain_yaml(text).unwrap(), expected);
        assert!(plain_yaml("- a\n").is_err());
    }
}
