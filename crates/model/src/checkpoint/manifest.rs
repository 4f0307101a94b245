//! What makes a checkpoint complete: a list of its files with sizes and checksums. It is written last, so that a folder
//! that has a whole one has all files; a folder without is nothing that anybody may restore from.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The name of the manifest in a checkpoint's folder.
pub const MANIFEST: &str = "checkpoint.json";

/// The version of this document.
pub const SCHEMA_VERSION: u32 = 1;

/// Which checkpoint it is. Later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Moment {
    pub epoch: u64,
    pub step: u64,
}

impl Moment {
    /// The name of the checkpoint's folder, which is DLIO's.
    pub fn folder(self) -> String {
        format!("global_epoch{}_step{}", self.epoch, self.step)
    }

    /// The moment that a folder is named after.
    pub fn of_folder(name: &str) -> Option<Moment> {
        let (epoch, step) = name.strip_prefix("global_epoch")?.split_once("_step")?;
        let moment = Moment { epoch: epoch.parse().ok()?, step: step.parse().ok()? };
        (moment.folder() == name).then_some(moment)
    }
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub name: String,
    pub rank: u64,
    pub bytes: u64,
    /// CRC-32 of all its bytes, zip's.
    pub crc32: u32,
}

/// The list of a checkpoint's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointManifest {
    pub schema_version: u32,
    /// Counts the checkpoints of a folder, over all runs: the newest has the highest. Names do not tell, since a run
    /// may begin at step 1 again.
    pub serial: u64,
    pub moment: Moment,
    /// What the content of the files follows from.
    pub seed: u64,
    pub ranks: u64,
    /// The model that was saved, and what share of it.
    pub model: String,
    pub scale: String,
    /// Identifies the shape: how the model is spread over the ranks, and what its elements are.
    pub geometry: String,
    pub files: Vec<Entry>,
}

/// Why a text is no manifest of a complete checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("it is damaged: its checksum does not fit")]
    Checksum,
    #[error("it cannot be read: {0}")]
    Text(String),
    #[error("it is of version {0}, and this feedline reads version {SCHEMA_VERSION}")]
    Version(u32),
}

impl CheckpointManifest {
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The text of the file: the document, and its checksum on a line of its own.
    pub fn to_text(&self) -> String {
        let body = serde_json::to_string_pretty(self).unwrap_or_default();
        format!("{body}\n{}\n", checksum(&body))
    }

    /// Reads the text of a manifest; any change to it is found.
    pub fn from_text(text: &str) -> Result<CheckpointManifest, ManifestError> {
        let (body, sum) = text.trim_end_matches('\n').rsplit_once('\n').ok_or(ManifestError::Checksum)?;
        if text != format!("{body}\n{sum}\n") || checksum(body) != sum {
            return Err(ManifestError::Checksum);
        }
        let manifest: CheckpointManifest =
            serde_json::from_str(body).map_err(|error| ManifestError::Text(error.to_string()))?;
        match manifest.schema_version {
            SCHEMA_VERSION => Ok(manifest),
            other => Err(ManifestError::Version(other)),
        }
    }
}

fn checksum(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256 {hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> CheckpointManifest {
        let file = Entry { name: "model_states-0.pt".into(), rank: 0, bytes: 10_240, crc32: 0xdead_beef };
        CheckpointManifest {
            schema_version: SCHEMA_VERSION,
            serial: 3,
            moment: Moment { epoch: 1, step: 20 },
            seed: 7,
            ranks: 8,
            model: "llama_8b".to_owned(),
            scale: "1/64".to_owned(),
            geometry: "0a1b".to_owned(),
            files: vec![file],
        }
    }

    #[test]
    fn moments_name_folders_and_are_ordered() {
        let moment = Moment { epoch: 3, step: 120 };
        assert_eq!(moment.folder(), "global_epoch3_step120");
        assert_eq!(Moment::of_folder("global_epoch3_step120"), Some(moment));
        for other in
            ["global_epoch3", "global_epoch_step1", "global_epoch3_step12x", "global_epoch03_step1", "x"]
        {
            assert_eq!(Moment::of_folder(other), None, "{other}");
        }
        assert!(Moment { epoch: 2, step: 1 } > Moment { epoch: 1, step: 900 });
    }

    #[test]
    fn what_is_written_is_read_and_every_change_is_found() {
        let (manifest, text) = (manifest(), manifest().to_text());
        assert_eq!(CheckpointManifest::from_text(&text), Ok(manifest));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8_lossy(&bytes);
            assert!(CheckpointManifest::from_text(&changed).is_err(), "byte {at}");
            assert!(CheckpointManifest::from_text(&text[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn another_version_is_told() {
        let text = CheckpointManifest { schema_version: 9, ..manifest() }.to_text();
        assert_eq!(CheckpointManifest::from_text(&text), Err(ManifestError::Version(9)));
    }
}
