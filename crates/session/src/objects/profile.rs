//! Profiles of the AWS configuration: the files `credentials` and `config`, of which only values that feedline can use
//! are read.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use super::{Given, NamedValue, refused};
use crate::error::Error;

/// No configuration is longer.
const LONGEST: u64 = 1 << 20;

/// The values of a profile, by name. A value below another one has both names: `s3.addressing_style`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) name: String,
    values: BTreeMap<String, String>,
}

impl Profile {
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A value with the name that messages give it.
    pub(super) fn named(&self, key: &str) -> Option<NamedValue> {
        Some((format!("{key} of the profile '{}'", self.name), self.get(key)?.to_owned()))
    }

    /// How the credentials of the profile have to be fetched, if that is a way that feedline does not know.
    pub(super) fn unsupported(&self) -> Option<&str> {
        let keys = ["credential_process", "sso_session", "sso_start_url", "role_arn", "source_profile"];
        keys.into_iter().find(|key| self.get(key).is_some())
    }
}

/// A profile that cannot be used. Only what needs the profile fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnusableProfile {
    /// The setting that names it, or the profile itself if none does.
    pub(super) name: String,
    pub(super) why: String,
}

impl UnusableProfile {
    pub(super) fn error(&self) -> Error {
        refused(format!("{} cannot be used: {}", self.name, self.why))
    }
}

/// The profile in effect: the named one, or `default`, of both files together. A profile that was named must exist.
pub(super) fn read(given: &Given<'_>, named: Option<&NamedValue>) -> Result<Profile, UnusableProfile> {
    let name = named.map_or("default", |(_, name)| name);
    let [credentials, config] = [
        place(given, "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
        place(given, "AWS_CONFIG_FILE", ".aws/config"),
    ];
    let unusable = |why: String| {
        let setting = named.map_or("the AWS profile 'default'", |(setting, _)| setting);
        UnusableProfile { name: setting.to_owned(), why }
    };
    let mut profile = Profile { name: name.to_owned(), values: BTreeMap::new() };
    let mut is_there = false;
    // A value in the credentials file wins.
    for (path, heads) in [
        (&config, [format!("profile {name}"), name.to_owned()]),
        (&credentials, [name.to_owned(), String::new()]),
    ] {
        let Some(path) = path else { continue };
        let Some(text) = content(path).map_err(unusable)? else { continue };
        for section in sections(&text) {
            // In `config`, only `default` may lack the word `profile`.
            let is_it = section.head == heads[0] || section.head == heads[1] && name == "default";
            if is_it {
                is_there = true;
                profile.values.extend(section.values);
            }
        }
    }
    if named.is_none() || is_there {
        return Ok(profile);
    }
    let shown =
        |path: Option<PathBuf>| path.map_or("(no HOME)".to_owned(), |path| path.display().to_string());
    Err(unusable(format!(
        "the profile '{name}' is neither in {} nor in {}",
        shown(credentials),
        shown(config)
    )))
}

/// The file that a variable names, else the one in the home folder.
fn place(given: &Given<'_>, variable: &str, default: &str) -> Option<PathBuf> {
    let home = given.variable("HOME").map(PathBuf::from);
    match given.variable(variable) {
        Some(path) => match (path.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => Some(home.join(rest)),
            _ => Some(PathBuf::from(path)),
        },
        None => home.map(|home| home.join(default)),
    }
}

/// The text of a file; `None` if it does not exist. The error says why it cannot be read.
fn content(path: &Path) -> Result<Option<String>, String> {
    let unreadable =
        |cause: &dyn std::fmt::Display| format!("cannot read the profiles in {}: {cause}", path.display());
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(unreadable(&error)),
    };
    let is_file = file.metadata().map_err(|error| unreadable(&error))?.is_file();
    if !is_file {
        return Err(unreadable(&"it is not a file"));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    if bytes.len() as u64 > LONGEST {
        return Err(unreadable(&"it has more than 1 MiB"));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| unreadable(&"it is not UTF-8"))
}

struct ProfileSection {
    head: String,
    values: BTreeMap<String, String>,
}

/// The sections of a file. Lines without a meaning are skipped: other programs use them.
fn sections(text: &str) -> Vec<ProfileSection> {
    let mut sections: Vec<ProfileSection> = Vec::new();
    let mut above = String::new();
    for line in text.lines() {
        let is_below = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(head) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let head = head.split_whitespace().collect::<Vec<_>>().join(" ").replace('"', "");
            sections.push(ProfileSection { head, values: BTreeMap::new() });
            continue;
        }
        let (Some(section), Some((key, value))) = (sections.last_mut(), line.split_once('=')) else {
            continue;
        };
        let key = key.trim().to_lowercase();
        let value = value.split(" #").next().unwrap_or_default().trim().to_owned();
        if is_below {
            section.values.insert(format!("{above}.{key}"), value);
        } else {
            above.clone_from(&key);
            section.values.insert(key, value);
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_values_and_values_below_values() {
        let text = "# c\n[default]\nregion = eu # here\n\n[ profile  x ]\naws_access_key_id=AK\n\
                    s3 =\n  addressing_style = path\n  endpoint_url=http://n\n; c\nREGION = us\nnonsense\n";
        let found = sections(text);
        let heads: Vec<&str> = found.iter().map(|section| section.head.as_str()).collect();
        assert_eq!(heads, ["default", "profile x"]);
        assert_eq!(found[0].values["region"], "eu");
        let expected = [
            ("aws_access_key_id", "AK"),
            ("region", "us"),
            ("s3", ""),
            ("s3.addressing_style", "path"),
            ("s3.endpoint_url", "http://n"),
        ];
        let values: Vec<(&str, &str)> =
            found[1].values.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(values, expected);
        assert!(sections("a = b").is_empty());
    }
}
