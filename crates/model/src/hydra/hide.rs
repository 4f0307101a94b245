//! Configurations as they are shown and written to files: with the values of secrets replaced. What a job is run with
//! keeps them.

use super::tree;
use crate::secret::{REDACTED, is_secret_key, redact};
use crate::spec::value::{MapEntry, Node, Value};

/// The node at a path, without its secrets.
pub(super) fn without_secrets(node: Node, path: &[String]) -> Node {
    let Node { value, place } = node;
    let value = match value {
        Value::Map(entries) => {
            let entries = entries.into_iter().map(|MapEntry { key, place, node }| {
                let path = [path, std::slice::from_ref(&key)].concat();
                MapEntry { node: without_secrets(node, &path), key, place }
            });
            Value::Map(entries.collect())
        }
        Value::List(items) => {
            Value::List(items.into_iter().map(|item| without_secrets(item, path)).collect())
        }
        Value::Null => Value::Null,
        value if is_secret_key(&path.join(".")) && !says_nothing(&value) => Value::Text(REDACTED.to_owned()),
        // An override is a text, and so is the list of all overrides that Hydra makes a folder's name of.
        Value::Text(text) => Value::Text(redact(&text)),
        value => value,
    };
    Node { value, place }
}

/// Whether a value is empty, missing, or only says where the secret is. An interpolation with a default may contain
/// one.
fn says_nothing(value: &Value) -> bool {
    let is_missing = tree::is_missing(&tree::leaf(value.clone()));
    is_missing
        || matches!(value, Value::Text(text) if text.is_empty()
            || text.starts_with("${") && text.ends_with('}') && !text[2..].contains("${") && !text.contains(','))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(key: &str, value: &str) -> Value {
        let path = tree::split(key);
        without_secrets(tree::text(value), &path).value
    }

    #[test]
    fn secrets_are_replaced_and_nothing_else() {
        let key = "workload.storage.storage_options.secret_access_key";
        for (key, value, shown) in [
            (key, "hunter2", "(secret)"),
            (key, "", ""),
            (key, "???", "???"),
            (key, "${oc.env:AWS_SECRET_ACCESS_KEY}", "${oc.env:AWS_SECRET_ACCESS_KEY}"),
            (key, "${oc.env:X,hunter2}", "(secret)"),
            (key, "${a}hunter2${b}", "(secret)"),
            ("workload.storage.storage_options.unknown", "hunter2", "(secret)"),
            ("workload.storage.storage_options.region", "eu", "eu"),
            ("workload.storage.account_key", "hunter2", "(secret)"),
            ("workload.storage.storage_root", "s3://user:hunter2@b", "s3://************@b"),
            ("hydra.overrides.task", "++w.storage.account_key=hunter2", "++w.storage.account_key=*******"),
            ("hydra.job.override_dirname", "a=1,b.account_key=hunter2,c=2", "a=1,b.account_key=***********"),
        ] {
            assert_eq!(hidden(key, value), Value::Text(shown.to_owned()), "{key}={value}");
        }
    }

    #[test]
    fn secrets_in_lists_and_of_other_types_are_replaced() {
        let number = tree::leaf(Value::Int(12345));
        let node = tree::map([("account_key", number), ("token", tree::texts(["hunter2"]))]);
        let Value::Map(entries) = without_secrets(node, &[]).value else { panic!("a map stays one") };
        assert_eq!(entries[0].node.value, Value::Text("(secret)".to_owned()));
        assert_eq!(entries[1].node.value, Value::List(vec![tree::text("(secret)")]));
    }
}
