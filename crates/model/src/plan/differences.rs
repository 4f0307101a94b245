//! The differences between two documents of the same type, field by field, in serialized form.

use serde::Serialize;
use serde_json::Value;

/// A field with different values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldDifference {
    /// The path, with dots.
    pub field: String,
    pub here: String,
    pub there: String,
}

/// All fields that differ. Data that is not serialized (tables that follow from the rest) is not compared.
pub fn differences(here: &impl Serialize, there: &impl Serialize) -> Vec<FieldDifference> {
    let mut found = Vec::new();
    let [here, there] =
        [serde_json::to_value(here), serde_json::to_value(there)].map(Result::unwrap_or_default);
    descend("", &here, &there, &mut found);
    found
}

fn descend(path: &str, here: &Value, there: &Value, found: &mut Vec<FieldDifference>) {
    if here == there {
        return;
    }
    let (Value::Object(ours), Value::Object(theirs)) = (here, there) else {
        found.push(FieldDifference {
            field: path.to_owned(),
            here: here.to_string(),
            there: there.to_string(),
        });
        return;
    };
    let more = theirs.keys().filter(|key| !ours.contains_key(*key));
    for key in ours.keys().chain(more) {
        let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let [here, there] = [ours, theirs].map(|map| map.get(key).unwrap_or(&Value::Null));
        descend(&below, here, there, found);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_named_with_both_values() {
        let here = json!({"a": 1, "b": {"c": [1, 2], "d": "x"}, "e": null});
        let there = json!({"a": 1, "b": {"c": [1, 3], "d": "x"}, "f": 2.5});
        let found: Vec<String> = differences(&here, &there)
            .iter()
            .map(|d| format!("{} {} {}", d.field, d.here, d.there))
            .collect();
        assert_eq!(found, ["b.c [1,2] [1,3]", "f null 2.5"]);
        assert_eq!(differences(&here, &here), []);
    }
}
