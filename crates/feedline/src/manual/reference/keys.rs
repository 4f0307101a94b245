//! The page of the keys of a workload file.

use model::spec::{self, KeyRow, KeyStatus, KeyUnit, expected};

use super::{cell, code, table};

const INTRODUCTION: &str = "\
# Keys of a workload

A workload is a YAML file in DLIO's format. Each row is a key with its section, as in `--set reader.batch_size=32`.
A key that is not in the file has its default; `null` means that there is no value. Sizes, times and shares can have
units ([units](units.md)).

An unknown key is an error. *Effect* says when a key has one. A key that is given and has none causes a warning; if
it would change what is measured, the verdict is *invalid* (rule [settings-honoured](rules.md#settings-honoured)).
Differences from DLIO are in [its own page](../guides/dlio.md).
";

pub(super) fn text() -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut sections: Vec<(&str, Vec<&KeyRow>)> = Vec::new();
    for row in spec::rows() {
        let section = row.key.split_once('.').map_or("", |(section, _)| section);
        match sections.iter_mut().find(|(name, _)| *name == section) {
            Some((_, rows)) => rows.push(row),
            None => sections.push((section, vec![row])),
        }
    }
    sections.sort_by_key(|(section, _)| !section.is_empty());
    for (section, rows) in sections {
        let title = if section.is_empty() { "Without a section" } else { section };
        text.push_str(&format!("\n## {title}\n\n"));
        let header = ["key", "value", "default", "effect", "meaning"];
        text.push_str(&table(&header, rows.into_iter().map(cells)));
    }
    text
}

fn cells(row: &KeyRow) -> Vec<String> {
    vec![code(row.key), cell(&value(row)), code(row.default), cell(&effect(row.status)), cell(&meaning(row))]
}

fn value(row: &KeyRow) -> String {
    let unit = match row.unit {
        KeyUnit::None => "",
        KeyUnit::Bytes => " (bytes)",
        KeyUnit::Seconds => " (seconds)",
        KeyUnit::Share => " (share)",
    };
    format!("{}{unit}", expected(row.kind))
}

fn effect(status: KeyStatus) -> String {
    match status {
        KeyStatus::Used => "yes".to_owned(),
        KeyStatus::WithCheckpoints => "with checkpoints".to_owned(),
        KeyStatus::OfObjects => "with object stores".to_owned(),
        KeyStatus::InDropIn(why) => format!("under the name `dlio_benchmark`: {why}"),
        KeyStatus::Later(why) => format!("not in this version: {why}"),
        KeyStatus::NoEffect(why) => format!("none: {why}"),
        KeyStatus::Unhonoured(why) => format!("none, and the verdict is invalid: {why}"),
    }
}

fn meaning(row: &KeyRow) -> String {
    let mut text = row.help.to_owned();
    if !row.aliases.is_empty() {
        text.push_str(&format!("; also `{}`", row.aliases.join("`, `")));
    }
    let (values, why) = row.later;
    if !values.is_empty() {
        text.push_str(&format!("; not `{}`: {why}", values.join("`, `")));
    }
    text
}
