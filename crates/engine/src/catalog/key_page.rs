//! One page of names of an object store: whether the server listed correctly, which names are objects of the data set,
//! and these as runs of files, one run per folder.

use std::collections::HashMap;

use model::catalog::{BuildError, EncodedFolder, FolderEncoder, is_name};
use model::files::FileEntry;
use store::{Hint, ListedName};

use super::list::reason;
use super::{FOLDER, SkipReason, SkippedEntries};

/// The names of a page, in the order of the server's answer.
#[derive(Debug, Default)]
pub(super) struct KeyPage {
    names: String,
    entries: Vec<PageEntry>,
    /// Names of folders below the one that is listed, each with a slash at its end.
    pub(super) folders: Vec<String>,
    /// What is wrong with the answer.
    wrong: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct PageEntry {
    /// Where the name ends in `names`.
    end: usize,
    entry: FileEntry,
}

impl KeyPage {
    /// Empties the page for the next answer, whose names must come after these.
    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.entries.clear();
        self.folders.clear();
    }

    /// Takes an entry. `after`: the last name of earlier pages. Folders may come in any order: some servers sort them
    /// by their names without the slash.
    pub(super) fn add(&mut self, listed: ListedName<'_>, after: &str) {
        match listed {
            ListedName::Object { name, bytes, version } => {
                // The first name of all may be empty: a marker of the place itself.
                let is_first = self.entries.is_empty() && after.is_empty();
                let last = self.last().unwrap_or(after);
                if name <= last && !is_first {
                    let wrong = format!("'{name}' follows '{last}'");
                    self.wrong.get_or_insert(wrong);
                }
                self.names.push_str(name);
                let entry = FileEntry { bytes, version };
                self.entries.push(PageEntry { end: self.names.len(), entry });
            }
            ListedName::Folder(name) => self.folders.push(name.to_owned()),
        }
    }

    /// What is wrong with the order of the names, if anything.
    pub(super) fn wrong(&mut self) -> Option<String> {
        self.wrong.take()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.folders.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The last name.
    pub(super) fn last(&self) -> Option<&str> {
        self.entries.len().checked_sub(1).map(|at| self.name(at))
    }

    fn name(&self, at: usize) -> &str {
        let start = at.checked_sub(1).map_or(0, |before| self.entries[before].end);
        &self.names[start..self.entries[at].end]
    }

    /// Removes the names after `end`, and returns whether there were any.
    pub(super) fn cut(&mut self, end: &str) -> bool {
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.name(middle) <= end { low = middle + 1 } else { high = middle }
        }
        let beyond = low < self.entries.len();
        self.entries.truncate(low);
        beyond
    }

    /// Adds the objects of the data set to `runs`, and returns their number and the sum of their sizes.
    pub(super) fn sort(
        &self,
        suffixes: &[Vec<u8>],
        runs: &mut KeyRuns,
        skipped: &mut SkippedEntries,
    ) -> Result<(u64, u64), BuildError> {
        let (mut files, mut bytes) = (0, 0u64);
        for (at, listed) in self.entries.iter().enumerate() {
            let name = self.name(at);
            match left_out(name, suffixes) {
                Some(None) => {}
                Some(Some(reason)) => skipped.note(reason, name.as_bytes()),
                None => {
                    let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
                    runs.push(folder, file, listed.entry)?;
                    files += 1;
                    bytes = bytes.saturating_add(listed.entry.bytes);
                }
            }
        }
        Ok((files, bytes))
    }
}

/// Whether a name is left out, and the reason under which it is counted: feedline's own objects are not.
fn left_out(name: &str, suffixes: &[Vec<u8>]) -> Option<Option<SkipReason>> {
    if let Some(hidden) = hidden_part(name) {
        return Some((hidden != FOLDER).then_some(SkipReason::Hidden));
    }
    if name.is_empty() || name.ends_with('/') {
        return Some(Some(SkipReason::Marker));
    }
    if !name.split('/').all(|part| is_name(part.as_bytes())) {
        return Some(Some(SkipReason::Unusable));
    }
    let file = name.rsplit('/').next().unwrap_or(name);
    reason(file.as_bytes(), Hint::Sized(0), suffixes).map(Some)
}

/// The first part of a name that begins with a dot.
pub(super) fn hidden_part(name: &str) -> Option<&str> {
    name.split('/').find(|part| part.starts_with('.'))
}

/// Files by folder, in byte order of their names.
#[derive(Debug, Default)]
pub(super) struct KeyRuns {
    runs: Vec<(String, FolderEncoder)>,
    places: HashMap<String, usize>,
    /// Most files are in the folder of the previous one.
    last: usize,
}

impl KeyRuns {
    fn push(&mut self, folder: &str, file: &str, entry: FileEntry) -> Result<(), BuildError> {
        if self.runs.get(self.last).is_none_or(|(last, _)| last != folder) {
            self.last = match self.places.get(folder) {
                Some(at) => *at,
                None => {
                    self.places.insert(folder.to_owned(), self.runs.len());
                    self.runs.push((folder.to_owned(), FolderEncoder::of_objects()));
                    self.runs.len() - 1
                }
            };
        }
        self.runs[self.last].1.push_entry(file.as_bytes(), entry)
    }

    pub(super) fn finish(self) -> Vec<(String, EncodedFolder)> {
        self.runs.into_iter().map(|(folder, encoder)| (folder, encoder.finish())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(names: &[&str], after: &str) -> KeyPage {
        let mut page = KeyPage::default();
        for name in names {
            page.add(ListedName::Object { name, bytes: 1, version: None }, after);
        }
        page
    }

    #[test]
    fn names_must_come_in_byte_order() {
        for (names, after, wrong) in [
            (&["a", "b"][..], "", None),
            (&["", "b"], "", None),
            (&["b", "a"], "", Some("'a' follows 'b'")),
            (&["a", "a"], "", Some("'a' follows 'a'")),
            (&["a"], "a", Some("'a' follows 'a'")),
            (&["", ""], "", Some("'' follows ''")),
        ] {
            assert_eq!(page(names, after).wrong().as_deref(), wrong, "{names:?}");
        }
    }

    #[test]
    fn names_after_the_end_are_removed() {
        for (end, kept, beyond) in
            [("", 0, true), ("a", 1, true), ("b", 1, true), ("c", 2, true), ("e", 3, false), ("x", 3, false)]
        {
            let mut page = page(&["a", "c", "e"], "");
            assert_eq!((page.cut(end), page.len()), (beyond, kept), "{end}");
            assert_eq!(page.last(), [None, Some("a"), Some("c"), Some("e")][kept]);
        }
    }

    #[test]
    fn names_that_are_not_data_are_left_out_with_a_reason() {
        for (name, reason) in [
            ("a", None),
            ("a b/ü/c", None),
            (".feedline/catalog", Some(None)),
            ("a/.feedline/x", Some(None)),
            (".a", Some(Some(SkipReason::Hidden))),
            ("a/.b/c", Some(Some(SkipReason::Hidden))),
            ("a/../c", Some(Some(SkipReason::Hidden))),
            ("", Some(Some(SkipReason::Marker))),
            ("a/", Some(Some(SkipReason::Marker))),
            ("a//b", Some(Some(SkipReason::Unusable))),
            ("/b", Some(Some(SkipReason::Unusable))),
            ("a\0b", Some(Some(SkipReason::Unusable))),
            ("a/b.partial", Some(Some(SkipReason::Partial))),
            ("a/b.idx", Some(Some(SkipReason::Index))),
        ] {
            assert_eq!(left_out(name, &[]), reason, "{name}");
        }
        let suffixes = [b".jpg".to_vec()];
        assert_eq!(left_out("a/b.idx", &suffixes), Some(Some(SkipReason::Unmatched)));
        assert_eq!(left_out("a/b.jpg", &suffixes), None);
        assert_eq!(left_out("a.jpg/b", &suffixes), Some(Some(SkipReason::Unmatched)));
    }
}
