//! The manifest object of a moment as text: the complete checkpoint, if there is one, and the lists of files that are
//! to come or to be removed. It is the only place that says so. Every change replaces the object as it was read, so of
//! two runs that change it one is refused.
//!
//! The object of a checkpoint that is complete, with nothing to come or to be removed, is a manifest like that on a
//! file system. Otherwise it has more lines, which begin with `feedline-`.

use model::checkpoint::manifest::{CheckpointManifest, MANIFEST, Moment};

use super::super::{StoredCheckpoint, file_path};

/// Names the folder of the files, if it is not that of the moment.
const FILES: &str = "feedline-files ";
/// Begins a list of files: the folder, and the run that writes them.
const LIST: &str = "feedline-list ";
/// Stands for a run in a list of files that only have to be removed.
const NO_RUN: &str = "-";

/// Files that are listed although no complete checkpoint has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PendingFiles {
    /// The run that writes them; `None` if they only have to be removed.
    pub(super) owner: Option<String>,
    pub(super) folder: String,
    pub(super) files: CheckpointManifest,
}

/// What the manifest object of a moment says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MomentState {
    pub(super) complete: Option<StoredCheckpoint>,
    pub(super) pending: Vec<PendingFiles>,
}

impl MomentState {
    pub(super) fn is_empty(&self) -> bool {
        self.complete.is_none() && self.pending.is_empty()
    }

    pub(super) fn to_text(&self, moment: Moment) -> String {
        let mut text = String::new();
        if let Some(StoredCheckpoint { prefix, manifest }) = &self.complete {
            if *prefix != moment.folder() {
                text += &format!("{FILES}{prefix}\n");
            }
            text += &manifest.to_text();
        }
        for PendingFiles { owner, folder, files } in &self.pending {
            let owner = owner.as_deref().unwrap_or(NO_RUN);
            text += &format!("{LIST}{folder} {owner}\n{}", files.to_text());
        }
        text
    }

    /// `None` if it is not a text of ours about this moment.
    pub(super) fn parse(text: &str, moment: Moment) -> Option<MomentState> {
        let mut state = MomentState::default();
        let (complete, mut lists) = at_list(text);
        if !complete.is_empty() {
            let (folder, manifest) = match complete.strip_prefix(FILES) {
                Some(named) => named.split_once('\n').map(|(folder, rest)| (folder.to_owned(), rest))?,
                None => (moment.folder(), complete),
            };
            let manifest = listed(manifest, moment)?;
            state.complete = Some(StoredCheckpoint { prefix: own_folder(&folder, moment)?, manifest });
        }
        while let Some(after) = lists.strip_prefix(LIST) {
            let (head, rest) = after.split_once('\n')?;
            let (folder, owner) = head.split_once(' ')?;
            let (files, next) = at_list(rest);
            state.pending.push(PendingFiles {
                owner: Some(owner.to_owned()).filter(|owner| owner != NO_RUN),
                folder: own_folder(folder, moment)?,
                files: listed(files, moment)?,
            });
            lists = next;
        }
        (lists.is_empty() && !state.is_empty()).then_some(state)
    }

    /// Whether some files are in this folder.
    pub(super) fn uses(&self, folder: &str) -> bool {
        let complete = self.complete.iter().map(|stored| &stored.prefix);
        complete.chain(self.pending.iter().map(|pending| &pending.folder)).any(|used| used == folder)
    }
}

/// The text before the first line that begins a list, and the text from there on.
fn at_list(text: &str) -> (&str, &str) {
    if text.starts_with(LIST) {
        return ("", text);
    }
    text.find(&format!("\n{LIST}")).map_or((text, ""), |at| text.split_at(at + 1))
}

/// A manifest of this moment, all of whose files are directly in its folder.
fn listed(text: &str, moment: Moment) -> Option<CheckpointManifest> {
    let list = CheckpointManifest::from_text(text).ok().filter(|list| list.moment == moment)?;
    let is_ours = |file: &str| !file.is_empty() && !file.contains('/') && file != MANIFEST;
    list.files.iter().all(|file| is_ours(&file.name)).then_some(list)
}

/// A folder that files of this moment can be in.
fn own_folder(folder: &str, moment: Moment) -> Option<String> {
    let after = folder.strip_prefix(&moment.folder())?;
    let fits = after.is_empty() || (after.starts_with('.') && !after.contains('/') && after.len() > 1);
    fits.then(|| folder.to_owned())
}

/// Where the manifest object of a moment is, relative to the tier.
pub(super) fn manifest_name(moment: Moment) -> String {
    file_path(&moment.folder(), MANIFEST).as_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::tier::manifest;

    fn states() -> Vec<MomentState> {
        let stored = |prefix: &str, serial| StoredCheckpoint {
            prefix: prefix.to_owned(),
            manifest: manifest(3, serial, &[1, 2]),
        };
        let pending = |owner: Option<&str>, folder: &str, serial| PendingFiles {
            owner: owner.map(str::to_owned),
            folder: folder.to_owned(),
            files: manifest(3, serial, &[7]),
        };
        let (plain, other) = ("global_epoch1_step3", "global_epoch1_step3.5");
        let mut states = Vec::new();
        for complete in [None, Some(stored(plain, 1)), Some(stored(other, 2))] {
            for lists in [
                vec![],
                vec![pending(Some("run"), other, 3)],
                vec![pending(None, plain, 4), pending(Some("x"), other, 5)],
            ] {
                states.push(MomentState { complete: complete.clone(), pending: lists });
            }
        }
        states
    }

    #[test]
    fn every_state_is_read_back_and_damage_is_noticed() {
        let moment = Moment { epoch: 1, step: 3 };
        for state in states().into_iter().filter(|state| !state.is_empty()) {
            let text = state.to_text(moment);
            assert_eq!(MomentState::parse(&text, moment).as_ref(), Some(&state), "{text}");
            assert_eq!(MomentState::parse(&text, Moment { epoch: 1, step: 4 }), None);
            for at in 0..text.len() {
                let cut = MomentState::parse(&text[..at], moment);
                let whole = |cut: &MomentState| {
                    cut.complete == state.complete && state.pending.starts_with(&cut.pending)
                };
                assert!(cut.as_ref().is_none_or(whole), "cut at {at}: {cut:?}");
            }
        }
        assert_eq!(MomentState::parse("", moment), None);
        assert_eq!(MomentState::parse("{\"not\": \"ours\"}\n", moment), None);
    }

    #[test]
    fn the_object_of_a_plain_checkpoint_is_its_manifest() {
        let (moment, manifest) = (Moment { epoch: 1, step: 3 }, manifest(3, 1, &[1, 2]));
        let complete = Some(StoredCheckpoint { prefix: moment.folder(), manifest: manifest.clone() });
        assert_eq!(MomentState { complete, pending: vec![] }.to_text(moment), manifest.to_text());
    }

    #[test]
    fn lists_of_other_places_are_not_ours() {
        let moment = Moment { epoch: 1, step: 3 };
        for folder in [
            "global_epoch1_step4",
            "global_epoch1_step33",
            "global_epoch1_step3/x",
            "global_epoch1_step3.",
            "",
            "a b",
        ] {
            let text = format!("{FILES}{folder}\n{}", manifest(3, 1, &[1]).to_text());
            assert_eq!(MomentState::parse(&text, moment), None, "{folder}");
        }
        for name in ["a/b", "checkpoint.json", "", "../x"] {
            let mut list = manifest(3, 1, &[1]);
            list.files[0].name = name.to_owned();
            assert_eq!(MomentState::parse(&list.to_text(), moment), None, "{name}");
        }
    }
}
