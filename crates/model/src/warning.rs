//! Warnings: facts that do not stop a run. Each warning says what is unusual, and its remedy says what to do.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A key as the user spelled it, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyOrigin {
    pub key: String,
    /// `file:line:column` or the `--set` argument.
    pub place: String,
}

/// Something the user should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Warning {
    /// These keys are valid but have no effect in this run, all for the same reason.
    NoEffect { keys: Vec<KeyOrigin>, why: String },
    /// A key or a variable that describes an object store, but is not used.
    Unused { setting: String, why: String },
    /// A profile of the AWS configuration that is named, or is the default, but cannot be read. Its credentials are not
    /// needed.
    ProfileNotRead { profile: String, why: String },
    /// A name that the key had in earlier versions of DLIO.
    OtherSpelling { at: KeyOrigin, key: String },
    /// A key that is not in the table of keys, and what it may mean.
    UnknownKey { at: KeyOrigin, hint: Option<String> },
    /// The data set has more files than the run reads.
    PartOfDataSet { asked: u64, generated: u64 },
    /// A plan without the facts that the place of the data would give.
    PlaceNotRead { place: String, why: String },
    /// `read_threads: 0` requests reading inside the training process.
    NoReaders { at: KeyOrigin },
}

impl Warning {
    /// The warning about those of its keys that `concern`; `None` if there are none.
    pub fn about(mut self, concern: impl Fn(&KeyOrigin) -> bool) -> Option<Warning> {
        let concerns = match &mut self {
            Warning::NoEffect { keys, .. } => {
                keys.retain(&concern);
                !keys.is_empty()
            }
            Warning::OtherSpelling { at, .. }
            | Warning::UnknownKey { at, .. }
            | Warning::NoReaders { at } => concern(at),
            Warning::Unused { .. }
            | Warning::ProfileNotRead { .. }
            | Warning::PartOfDataSet { .. }
            | Warning::PlaceNotRead { .. } => true,
        };
        concerns.then_some(self)
    }

    /// Whether it says that a key has no effect.
    pub fn is_about(&self, key: &str) -> bool {
        matches!(self, Warning::NoEffect { keys, .. } if keys.iter().any(|at| at.key == key))
    }

    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            Warning::NoEffect { keys, .. } if keys.len() == 1 => "remove it".into(),
            Warning::NoEffect { .. } => "remove them".into(),
            Warning::Unused { .. } => "remove it, or what is used instead".into(),
            Warning::ProfileNotRead { .. } => "correct it if its region or endpoint is needed".into(),
            Warning::OtherSpelling { key, .. } => format!("write '{key}', the current name"),
            Warning::UnknownKey { .. } => "remove or correct it".into(),
            Warning::PartOfDataSet { generated, .. } => {
                format!("to state it, set dataset.num_files_generated to {generated}")
            }
            Warning::PlaceNotRead { .. } => "a run needs it; a plan can do without".into(),
            Warning::NoReaders { .. } => "set reader.read_threads to 1 or more".into(),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::NoEffect { keys, why } => no_effect(f, keys, why),
            Warning::Unused { setting, why } => write!(f, "{setting} is not used: {why}"),
            Warning::ProfileNotRead { profile, why } => write!(f, "{profile} is not used: {why}"),
            Warning::OtherSpelling { at, key } => {
                write!(
                    f,
                    "'{}' at {} is read as '{key}'; current versions of DLIO ignore it",
                    at.key, at.place
                )
            }
            Warning::UnknownKey { at, hint } => {
                write!(f, "'{}' at {} has no effect: the key is not known", at.key, at.place)?;
                hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
            }
            Warning::PartOfDataSet { asked, generated } => {
                write!(f, "the data set has {generated} training files; the run reads the first {asked}")
            }
            Warning::PlaceNotRead { place, why } => {
                write!(f, "the plan is made without looking at {place}: {why}")
            }
            Warning::NoReaders { at } => {
                write!(f, "'{}' at {} is 0; one reader is used anyway", at.key, at.place)
            }
        }
    }
}

fn no_effect(f: &mut fmt::Formatter<'_>, keys: &[KeyOrigin], why: &str) -> fmt::Result {
    if let [only] = keys {
        return write!(f, "'{}' at {} has no effect: {why}", only.key, only.place);
    }
    write!(f, "{} keys have no effect: {why}", keys.len())?;
    keys.iter().try_for_each(|at| write!(f, "\n  '{}' at {}", at.key, at.place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_names_key_place_and_reason() {
        let at = |key: &str| KeyOrigin { key: key.into(), place: "a.yaml:1:2".into() };
        let one = Warning::NoEffect { keys: vec![at("reader.pin_memory")], why: "no device".into() };
        assert_eq!(one.to_string(), "'reader.pin_memory' at a.yaml:1:2 has no effect: no device");
        assert_eq!(one.remedy(), "remove it");
        assert!(one.is_about("reader.pin_memory") && !one.is_about("reader.access"));
        let two = Warning::NoEffect { keys: vec![at("x"), at("y")], why: "z".into() };
        assert_eq!(two.to_string(), "2 keys have no effect: z\n  'x' at a.yaml:1:2\n  'y' at a.yaml:1:2");
    }
}
