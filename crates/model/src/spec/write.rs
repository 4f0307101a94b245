//! Writes the spec as a workload file: every key that has an effect, and unsupported keys that differ from their
//! default. Secrets are left out. Apart from them, reading the text gives the same spec.

use std::collections::BTreeMap;

use super::check::Setting;
use super::schema::{KeyLookup, KeyStatus, look_up};
use super::settle::default_setting;
use super::typed::{Column, Spec};

impl Spec {
    /// The resolved workload as YAML.
    pub fn to_yaml(&self) -> String {
        let mut settings = Vec::new();
        self.write(&mut settings);
        let mut text = String::new();
        let mut open: Vec<&str> = Vec::new();
        settings.retain(|(key, setting)| worth_writing(key, setting) && !self.leaves_out(key));
        for (key, setting) in settings {
            let mut groups: Vec<&str> = key.split('.').collect();
            let name = groups.pop().unwrap_or(key);
            let shared = open.iter().zip(&groups).take_while(|(a, b)| a == b).count();
            for (depth, group) in groups.iter().enumerate().skip(shared) {
                text.push_str(&format!("{}{group}:\n", "  ".repeat(depth)));
            }
            text.push_str(&format!("{}{name}: {}\n", "  ".repeat(groups.len()), yaml(&setting)));
            open = groups;
        }
        text
    }
}

impl Spec {
    /// Every setting, in the form of a workload file.
    pub fn settings(&self) -> BTreeMap<&'static str, String> {
        let mut settings = Vec::new();
        self.write(&mut settings);
        settings.into_iter().map(|(key, setting)| (key, yaml(&setting))).collect()
    }

    /// The settings of these keys.
    pub fn texts(&self, keys: &[&'static str]) -> BTreeMap<&'static str, String> {
        self.settings().into_iter().filter(|(key, _)| keys.contains(key)).collect()
    }
}

fn worth_writing(key: &str, setting: &Setting) -> bool {
    let KeyLookup::Key(row) = look_up(key) else { return true };
    match (setting, row.status) {
        // What is shown in place of a secret must not be taken for one.
        (Setting::Nothing | Setting::Secret(_), _) => false,
        (_, KeyStatus::Used) => true,
        _ => default_setting(row).ok().as_ref() != Some(setting),
    }
}

/// A setting in the form of a workload file.
pub(super) fn yaml(setting: &Setting) -> String {
    match setting {
        Setting::Nothing => "null".into(),
        Setting::Flag(flag) => flag.to_string(),
        Setting::Integer(number) => number.to_string(),
        Setting::Number(number) => format!("{number:?}"),
        Setting::Text(text) => quote(text),
        Setting::Secret(secret) => quote(&secret.to_string()),
        Setting::Integers(items) => list(items.iter().map(i64::to_string)),
        Setting::Texts(items) => list(items.iter().map(|item| quote(item))),
        Setting::Time(time) => time.to_yaml(),
        Setting::Requests(requests) => requests.to_yaml(),
        Setting::Columns(columns) => list(columns.iter().map(column)),
        Setting::Map(_) => "{}".into(),
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

fn column(column: &Column) -> String {
    let Column { name, dtype, size, read } = column;
    format!("{{name: {}, dtype: {dtype}, size: {size}, read: {read}}}", quote(name))
}

/// Plain words stay unquoted; everything that YAML could misinterpret is quoted.
fn quote(text: &str) -> String {
    let bare = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '.'))
        && matches!(super::scalar::resolve(text), super::value::Value::Text(_));
    if bare {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
