//! The types of Hydra's own settings. Hydra declares them as a structured configuration: a value is converted to the
//! type of its key or refused, and the keys of its sections cannot be removed.

use super::python;
use super::tree::{child, get, get_mut, is_missing};
use crate::spec::value::{Node, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldType {
    Section,
    Text,
    OptionalText,
    OptionalFlag,
    Int,
    Mode,
    Texts,
    TextMap,
    Map,
}

/// The typed keys below `hydra`. Others have any type.
const FIELDS: &[(&str, FieldType)] = &[
    ("", FieldType::Section),
    ("mode", FieldType::Mode),
    ("searchpath", FieldType::Texts),
    ("run", FieldType::Section),
    ("run.dir", FieldType::Text),
    ("sweep", FieldType::Section),
    ("sweep.dir", FieldType::Text),
    ("sweep.subdir", FieldType::Text),
    ("hydra_logging", FieldType::Map),
    ("job_logging", FieldType::Map),
    ("callbacks", FieldType::Map),
    ("launcher", FieldType::Section),
    ("sweeper", FieldType::Section),
    ("help", FieldType::Section),
    ("help.app_name", FieldType::Text),
    ("help.header", FieldType::Text),
    ("help.footer", FieldType::Text),
    ("help.template", FieldType::Text),
    ("hydra_help", FieldType::Section),
    ("hydra_help.hydra_help", FieldType::Text),
    ("hydra_help.template", FieldType::Text),
    ("output_subdir", FieldType::OptionalText),
    ("overrides", FieldType::Section),
    ("overrides.hydra", FieldType::Texts),
    ("overrides.task", FieldType::Texts),
    ("job", FieldType::Section),
    ("job.name", FieldType::Text),
    ("job.chdir", FieldType::OptionalFlag),
    ("job.override_dirname", FieldType::Text),
    ("job.id", FieldType::Text),
    ("job.num", FieldType::Int),
    ("job.config_name", FieldType::OptionalText),
    ("job.env_set", FieldType::TextMap),
    ("job.env_copy", FieldType::Texts),
    ("job.config", FieldType::Section),
    ("job.config.override_dirname", FieldType::Section),
    ("job.config.override_dirname.kv_sep", FieldType::Text),
    ("job.config.override_dirname.item_sep", FieldType::Text),
    ("job.config.override_dirname.exclude_keys", FieldType::Texts),
    ("runtime", FieldType::Section),
    ("runtime.version", FieldType::Text),
    ("runtime.version_base", FieldType::Text),
    ("runtime.cwd", FieldType::Text),
    ("runtime.output_dir", FieldType::Text),
    ("runtime.choices", FieldType::Map),
];

/// Whether the keys of the section at this path, such as `hydra.run`, are fixed.
pub(super) fn is_section(path: &str) -> bool {
    let below = if path == "hydra" { Some("") } else { path.strip_prefix("hydra.") };
    below.is_some_and(|below| FIELDS.contains(&(below, FieldType::Section)))
}

/// Converts the values of the typed keys, or says which one has the wrong type.
pub(super) fn conform(root: &mut Node) -> Result<(), String> {
    let Ok(Some(_)) = child(root, "hydra") else { return Ok(()) };
    for (key, kind) in FIELDS {
        let key = if key.is_empty() { "hydra".to_owned() } else { format!("hydra.{key}") };
        let path: Vec<&str> = key.split('.').collect();
        let is_given = get(root, &path).is_some_and(|node| !is_missing(node) && !is_interpolation(node));
        if let Some(node) = get_mut(root, &path).filter(|_| is_given) {
            convert(node, *kind).map_err(|expected| {
                format!("'{key}' must be {expected}, but it is {}", node.value.found())
            })?;
        }
    }
    Ok(())
}

fn is_interpolation(node: &Node) -> bool {
    matches!(&node.value, Value::Text(text) if text.contains("${"))
}

fn convert(node: &mut Node, kind: FieldType) -> Result<(), &'static str> {
    match (kind, &mut node.value) {
        (FieldType::Section, Value::Map(_)) | (FieldType::Map, Value::Map(_) | Value::Null) => {}
        (FieldType::Section | FieldType::Map, _) => return Err("a map"),
        (FieldType::OptionalText | FieldType::OptionalFlag | FieldType::Mode, Value::Null) => {}
        (FieldType::Text | FieldType::OptionalText, _) => to_text(node)?,
        (FieldType::OptionalFlag, _) => to_flag(node)?,
        (FieldType::Int, Value::Int(_)) => {}
        (FieldType::Int, Value::Text(text)) => {
            node.value = Value::Int(python::int(text).ok_or("an integer")?);
        }
        (FieldType::Int, _) => return Err("an integer"),
        (FieldType::Mode, value) => {
            let name = match value {
                Value::Text(text) => text.strip_prefix("RunMode.").unwrap_or(text).to_owned(),
                // Hydra numbers the modes.
                Value::Int(1) => "RUN".to_owned(),
                Value::Int(2) => "MULTIRUN".to_owned(),
                _ => String::new(),
            };
            if !["RUN", "MULTIRUN"].contains(&name.as_str()) {
                return Err("RUN or MULTIRUN");
            }
            *value = Value::Text(name);
        }
        (FieldType::Texts, Value::List(items)) => items.iter_mut().try_for_each(to_text)?,
        (FieldType::Texts, _) => return Err("a list of texts"),
        (FieldType::TextMap, Value::Map(entries)) => {
            entries.iter_mut().try_for_each(|entry| to_text(&mut entry.node))?;
        }
        (FieldType::TextMap, _) => return Err("a map of texts"),
    }
    Ok(())
}

fn to_text(node: &mut Node) -> Result<(), &'static str> {
    let text = match &node.value {
        Value::Text(_) => return Ok(()),
        Value::Bool(flag) => if *flag { "True" } else { "False" }.to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => python::repr(*number),
        Value::Null | Value::List(_) | Value::Map(_) => return Err("a text"),
    };
    node.value = Value::Text(text);
    Ok(())
}

fn to_flag(node: &mut Node) -> Result<(), &'static str> {
    let flag = match &node.value {
        Value::Bool(flag) => Some(*flag),
        Value::Int(number) => Some(*number != 0),
        Value::Text(text) => match (python::int(text), text.to_ascii_lowercase().as_str()) {
            (Some(number), _) => Some(number != 0),
            (None, "yes" | "y" | "on" | "true") => Some(true),
            (None, "no" | "n" | "off" | "false") => Some(false),
            _ => None,
        },
        _ => None,
    };
    node.value = Value::Bool(flag.ok_or("true or false")?);
    Ok(())
}
