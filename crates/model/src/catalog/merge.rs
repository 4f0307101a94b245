//! Merges encoded runs of one folder. The names of a large folder arrive in batches in the file system's order; each
//! batch is sorted and encoded separately, so that ten million names take about ten bytes each until they are merged.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::block::{EncodedFolder, FileCursor, FolderEncoder};
use super::build::BuildError;
use crate::files::FileEntry;

/// A run, ordered by its current name.
struct MergeRun<'a>(FileCursor<'a>);

impl Ord for MergeRun<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.current().0.cmp(other.0.current().0)
    }
}

impl PartialOrd for MergeRun<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for MergeRun<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for MergeRun<'_> {}

/// Merges sorted runs. A name that occurs twice is an error, in one run or in two.
pub fn merge(mut runs: Vec<EncodedFolder>) -> Result<EncodedFolder, BuildError> {
    if runs.len() <= 1 {
        return Ok(runs.pop().unwrap_or_default());
    }
    let bad = || BuildError::Blocks("a run".to_owned());
    let mut heap = BinaryHeap::with_capacity(runs.len());
    for run in &runs {
        let mut cursor = FileCursor::new(run);
        if cursor.advance().ok_or_else(bad)? {
            heap.push(Reverse(MergeRun(cursor)));
        }
    }
    let versioned = runs.iter().any(|run| run.versioned);
    let mut whole = if versioned { FolderEncoder::of_objects() } else { FolderEncoder::new() };
    while let Some(mut least) = heap.peek_mut() {
        let (name, bytes) = least.0.0.current();
        whole.push_entry(name, FileEntry { bytes, version: least.0.0.version() })?;
        if !least.0.0.advance().ok_or_else(bad)? {
            PeekMut::pop(least);
        }
    }
    Ok(whole.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(names: &[String]) -> EncodedFolder {
        let mut encoder = FolderEncoder::new();
        names.iter().for_each(|name| encoder.push(name.as_bytes(), name.len() as u64).unwrap());
        encoder.finish()
    }

    #[test]
    fn runs_in_any_number_become_the_same_folder() {
        let names: Vec<String> = (0..1000).map(|i| format!("{i:05}{}", "y".repeat(i % 3))).collect();
        let whole = encode(&names);
        for count in [1, 2, 3, 7, 64, 1500] {
            let runs = (0..count).map(|run| {
                let part: Vec<String> = names.iter().skip(run).step_by(count).cloned().collect();
                encode(&part)
            });
            assert_eq!(merge(runs.collect()).unwrap(), whole, "{count} runs");
        }
        assert_eq!(merge(Vec::new()).unwrap(), EncodedFolder::default());
    }

    #[test]
    fn a_name_in_two_runs_is_an_error() {
        let run = encode(&["a".to_owned(), "b".to_owned()]);
        assert_eq!(merge(vec![run.clone(), run]), Err(BuildError::Order("a".into())));
    }
}
