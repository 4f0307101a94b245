//! The manifest of a checkpoint: its files with sizes and checksums. It is written last, so a folder with a valid
//! manifest has all files; a folder without one must not be restored from.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::document::{self, NewerDocument};

/// The name of the manifest in a checkpoint's folder.
pub const MANIFEST: &str = "checkpoint.json";

/// Identifies a checkpoint. Later ones compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Moment {
    pub epoch: u64,
    pub step: u64,
}

impl Moment {
    /// The name of the checkpoint's folder, as in DLIO.
    pub fn folder(self) -> String {
        format!("global_epoch{}_step{}", self.epoch, self.step)
    }

    /// The moment in a folder's name.
    pub fn of_folder(name: &str) -> Option<Moment> {
        let (epoch, step) = name.strip_prefix("global_epoch")?.split_once("_step")?;
        let moment = Moment { epoch: epoch.parse().ok()?, step: step.parse().ok()? };
        (moment.folder() == name).then_some(moment)
    }
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestEntry {
    pub name: String,
    pub rank: u64,
    pub bytes: u64,
    /// CRC-32 of all its bytes, as in zip.
    pub crc32: u32,
}

/// The list of a checkpoint's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointManifest {
    pub schema_version: u32,
    /// Numbers the checkpoints of a folder across runs; the newest has the highest. Names do not show this, because a
    /// run may start at step 1 again.
    pub serial: u64,
    pub moment: Moment,
    /// The seed of the content.
    pub seed: u64,
    pub ranks: u64,
    /// The model that was saved, and its scale.
    pub model: String,
    pub scale: String,
    /// Identifies the geometry: how the model is divided among the ranks, and its element types.
    pub geometry: String,
    pub files: Vec<ManifestEntry>,
}

/// Why a text is not the manifest of a complete checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("it is damaged: checksum mismatch")]
    Checksum,
    #[error("it cannot be read: {0}")]
    Text(String),
    #[error(transparent)]
    Version(#[from] NewerDocument),
}

impl CheckpointManifest {
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The text of the file: the document, and its checksum on a separate line.
    pub fn to_text(&self) -> String {
        let body = serde_json::to_string_pretty(self).unwrap_or_default();
        format!("{body}\n{}\n", checksum(&body))
    }

    /// Why the text of a file cannot be interpreted, if the first manifest in it has a later version.
    pub fn check_version(text: &str) -> Result<(), NewerDocument> {
        let body = text.find('{').and_then(|begin| text[begin..].split("\nsha256 ").next());
        document::CHECKPOINT.check(body.unwrap_or_default().as_bytes())
    }

    /// Parses the text of a manifest; detects any change to it.
    pub fn from_text(text: &str) -> Result<CheckpointManifest, ManifestError> {
        let (body, sum) = text.trim_end_matches('\n').rsplit_once('\n').ok_or(ManifestError::Checksum)?;
        if text != format!("{body}\n{sum}\n") || checksum(body) != sum {
            return Err(ManifestError::Checksum);
        }
        document::CHECKPOINT.check(body.as_bytes())?;
        serde_json::from_str(body).map_err(|error| ManifestError::Text(error.to_string()))
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
        let file =
            ManifestEntry { name: "model_states-0.pt".into(), rank: 0, bytes: 10_240, crc32: 0xdead_beef };
        CheckpointManifest {
            schema_version: document::CHECKPOINT.version,
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
    fn a_manifest_is_read_back_and_every_change_is_detected() {
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
    fn a_later_version_is_refused() {
        let text = CheckpointManifest { schema_version: 9, ..manifest() }.to_text();
        let refused = document::CHECKPOINT.check(b"{\"schema_version\": 9}").unwrap_err();
        assert_eq!(CheckpointManifest::from_text(&text), Err(ManifestError::Version(refused)));
        let (list, earlier) = (format!("feedline-list a b\n{text}"), manifest().to_text());
        assert_eq!([&text, &list].map(|text| CheckpointManifest::check_version(text)), [Err(refused); 2]);
        for text in [earlier.as_str(), "", "{", "x"] {
            assert_eq!(CheckpointManifest::check_version(text), Ok(()), "{text}");
        }
    }
}
