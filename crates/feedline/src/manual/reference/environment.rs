//! The page of environment variables.

use super::{cell, code, table};
use crate::manual::environment::VARIABLES;

const INTRODUCTION: &str = "\
# Environment variables

Every variable that feedline reads.
";

pub(super) fn text() -> String {
    let mut text = INTRODUCTION.to_owned();
    for group in VARIABLES {
        text.push_str(&format!("\n## {}\n\n", group.title));
        if !group.about.is_empty() {
            text.push_str(&format!("{}\n\n", group.about));
        }
        let rows = group.rows.iter().map(|row| {
            let names: Vec<String> = row.names.iter().map(|name| code(name)).collect();
            vec![names.join(", "), cell(row.what)]
        });
        text.push_str(&table(&["variable", "effect"], rows));
    }
    text
}
