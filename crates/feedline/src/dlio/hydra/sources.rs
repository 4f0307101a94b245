//! The sources of configuration files: Hydra's own, DLIO's packaged ones, and folders.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use model::hydra::{ConfigSource, GroupListing};

use super::packaged;
use crate::workloads;

/// Files that are part of this program.
#[derive(Debug)]
pub(super) struct PackagedFiles {
    provider: &'static str,
    scheme: &'static str,
    path: &'static str,
    /// Path and texts of each file.
    files: Vec<(String, Vec<&'static str>)>,
}

impl PackagedFiles {
    /// Hydra's groups.
    pub(super) fn hydra() -> PackagedFiles {
        let files = packaged::HYDRA.iter().map(|(path, text)| ((*path).to_owned(), vec![*text]));
        PackagedFiles { provider: "hydra", scheme: "pkg", path: "hydra.conf", files: files.collect() }
    }

    /// What Hydra declares in its program.
    pub(super) fn schema() -> PackagedFiles {
        let files = packaged::SCHEMA.iter().map(|(path, text)| ((*path).to_owned(), vec![*text]));
        PackagedFiles { provider: "schema", scheme: "structured", path: "", files: files.collect() }
    }

    /// DLIO's configuration and workloads.
    pub(super) fn dlio() -> PackagedFiles {
        let files = packaged::DLIO.iter().map(|(path, text)| ((*path).to_owned(), vec![*text]));
        let workloads = packaged::WORKLOADS.iter().filter_map(|(name, changes)| {
            let text = workloads::named(name).ok()?.text;
            Some((format!("workload/{name}"), vec![text, *changes]))
        });
        let files = files.chain(workloads).collect();
        PackagedFiles { provider: "main", scheme: "pkg", path: "dlio_benchmark.configs", files }
    }

    #[cfg(test)]
    pub(super) fn files(&self) -> &[(String, Vec<&'static str>)] {
        &self.files
    }
}

impl ConfigSource for PackagedFiles {
    fn provider(&self) -> &str {
        self.provider
    }

    fn scheme(&self) -> &str {
        self.scheme
    }

    fn path(&self) -> &str {
        self.path
    }

    fn read(&self, path: &str) -> Result<Vec<String>, String> {
        let found = self.files.iter().find(|(known, _)| known == path);
        Ok(found.map_or_else(Vec::new, |(_, texts)| texts.iter().map(|text| (*text).to_owned()).collect()))
    }

    fn list(&self, group: &str) -> Option<GroupListing> {
        let prefix = if group.is_empty() { String::new() } else { format!("{group}/") };
        let mut listing = GroupListing::default();
        for rest in self.files.iter().filter_map(|(path, _)| path.strip_prefix(&prefix)) {
            match rest.split_once('/') {
                Some((group, _)) => listing.groups.push(group.to_owned()),
                None => listing.configs.push(rest.to_owned()),
            }
        }
        (group.is_empty() || listing != GroupListing::default()).then_some(listing)
    }
}

/// A folder with configuration files.
#[derive(Debug)]
pub(super) struct ConfigFolder {
    provider: String,
    path: String,
}

impl ConfigFolder {
    /// `path` is absolute.
    pub(super) fn new(provider: &str, path: &Path) -> ConfigFolder {
        ConfigFolder { provider: provider.to_owned(), path: path.display().to_string() }
    }

    /// The file of a configuration.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        Path::new(&self.path).join(format!("{path}.yaml"))
    }
}

impl ConfigSource for ConfigFolder {
    fn provider(&self) -> &str {
        &self.provider
    }

    fn scheme(&self) -> &str {
        "file"
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn read(&self, path: &str) -> Result<Vec<String>, String> {
        let file = self.file(path);
        match std::fs::metadata(&file) {
            Ok(facts) if facts.is_file() => {
                let text = workloads::read_text(&file).map_err(|error| format!("{error:#}"))?;
                Ok(vec![text])
            }
            Ok(_) => Ok(Vec::new()),
            // A file on the way is like no folder.
            Err(cause) if matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Ok(Vec::new())
            }
            Err(cause) => Err(format!("cannot read {}: {cause}", file.display())),
        }
    }

    fn list(&self, group: &str) -> Option<GroupListing> {
        let entries = std::fs::read_dir(Path::new(&self.path).join(group)).ok()?;
        let mut listing = GroupListing::default();
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let is_folder = std::fs::metadata(entry.path()).is_ok_and(|facts| facts.is_dir());
            match (is_folder, name.strip_suffix(".yaml")) {
                (true, _) if name != "__pycache__" => listing.groups.push(name),
                (false, Some(config)) => listing.configs.push(config.to_owned()),
                _ => {}
            }
        }
        Some(listing)
    }
}
