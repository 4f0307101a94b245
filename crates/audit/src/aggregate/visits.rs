//! What processes did with the files of an epoch: opens, bytes, distinct ranges. Only files of the sample.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use model::observed::{EpochFiles, FileExample};

use super::ranges::Ranges;
use crate::event::ProcessIndex;
use crate::layout::is_kept;

/// Device and inode.
pub(super) type FileKey = (u32, u64);

/// Ranges kept in one epoch.
const MOST_RANGES: usize = 500_000;
/// Pairs of a process and a file kept in one epoch.
const MOST_VISITS: usize = 500_000;

/// One process and one file.
#[derive(Debug, Default)]
struct FileVisit {
    opens: u64,
    asked_bytes: u64,
    ranges: Ranges,
    /// The read that was repeated last.
    repeated: Option<(u64, u64)>,
    repeats: u64,
}

/// The files of one epoch.
#[derive(Debug, Default)]
pub(super) struct FileVisits {
    by_file: HashMap<FileKey, BTreeMap<ProcessIndex, FileVisit>>,
    visits: usize,
    ranges: usize,
    cut: bool,
    shared_offset_reads: u64,
    shared_offset_processes: BTreeSet<ProcessIndex>,
    shared_offset_file: Option<FileKey>,
    folders: BTreeSet<FileKey>,
    listings: u64,
    listing_processes: BTreeSet<ProcessIndex>,
}

impl FileVisits {
    fn visit(&mut self, process: ProcessIndex, file: FileKey) -> Option<&mut FileVisit> {
        let is_new = !self.by_file.get(&file).is_some_and(|visits| visits.contains_key(&process));
        if is_new {
            if self.visits >= MOST_VISITS {
                self.cut = true;
                return None;
            }
            self.visits += 1;
        }
        Some(self.by_file.entry(file).or_default().entry(process).or_default())
    }

    pub(super) fn opened(&mut self, process: ProcessIndex, file: FileKey) {
        if let Some(visit) = self.visit(process, file) {
            visit.opens += 1;
        }
    }

    /// A read of `bytes` bytes; without an offset it counts as asked only.
    pub(super) fn read(&mut self, process: ProcessIndex, file: FileKey, offset: Option<u64>, bytes: u64) {
        let is_full = self.ranges >= MOST_RANGES;
        let Some(visit) = self.visit(process, file) else { return };
        visit.asked_bytes += bytes;
        let Some(offset) = offset else { return };
        let (before, bytes_before) = (visit.ranges.len(), visit.ranges.bytes_if_small());
        let kept = !is_full && visit.ranges.add(offset, offset.saturating_add(bytes));
        if bytes_before.is_some() && bytes_before == visit.ranges.bytes_if_small() {
            visit.repeats += 1;
            visit.repeated = Some((offset, bytes));
        }
        let after = visit.ranges.len();
        self.ranges = (self.ranges + after).saturating_sub(before);
        self.cut |= !kept;
    }

    pub(super) fn shared_offset(&mut self, process: ProcessIndex, file: FileKey) {
        self.shared_offset_reads += 1;
        self.shared_offset_processes.insert(process);
        self.shared_offset_file = Some(file);
    }

    pub(super) fn listed(&mut self, process: ProcessIndex, folder: FileKey) {
        self.listings += 1;
        self.listing_processes.insert(process);
        if self.folders.len() < MOST_VISITS {
            self.folders.insert(folder);
        }
    }

    /// Drops files that a smaller sample does not have.
    pub(super) fn thin(&mut self, sample_bits: u32) {
        self.by_file.retain(|(_, inode), _| is_kept(*inode, sample_bits));
        self.visits = self.by_file.values().map(BTreeMap::len).sum();
        self.ranges = self.by_file.values().flatten().map(|(_, visit)| visit.ranges.len()).sum();
    }

    /// The figures, with names of files by `path`.
    pub(super) fn figures(&self, sample_bits: u32, path: impl Fn(FileKey) -> String) -> EpochFiles {
        let mut figures = EpochFiles {
            sampled: self.by_file.len() as u64,
            share: 0.5f64.powi(sample_bits as i32),
            ranges_cut: self.cut,
            shared_offset_reads: self.shared_offset_reads,
            shared_offset_processes: self.shared_offset_processes.len() as u64,
            folders: self.folders.len() as u64,
            listings: self.listings,
            listing_processes: self.listing_processes.len() as u64,
            ..EpochFiles::default()
        };
        let mut by_process: BTreeMap<ProcessIndex, u64> = BTreeMap::new();
        let mut opens = Vec::new();
        let mut most_opened: Option<(u64, FileKey)> = None;
        let mut most_repeated: Option<(u64, FileKey, (u64, u64))> = None;
        for (file, visits) in &self.by_file {
            let mut union = Ranges::default();
            opens.push(visits.values().map(|visit| visit.opens).sum::<u64>() as f64);
            for (process, visit) in visits {
                *by_process.entry(*process).or_default() += visit.ranges.bytes();
                figures.asked_bytes += visit.asked_bytes;
                figures.process_distinct_bytes += visit.ranges.bytes();
                figures.pairs += u64::from(visit.opens > 0);
                figures.opens += visit.opens;
                union.add_all(&visit.ranges);
                if most_opened.is_none_or(|(most, other)| (visit.opens, *file) > (most, other)) {
                    most_opened = Some((visit.opens, *file));
                }
                let repeated = visit.repeated.map(|range| (visit.repeats, *file, range));
                most_repeated = most_repeated.max(repeated);
            }
            figures.distinct_bytes += union.bytes();
        }
        figures.process_distinct_most = by_process.into_values().max().unwrap_or(0);
        figures.opens_spread = spread(&opens);
        let example =
            |file: FileKey, count: u64| FileExample { path: path(file), count, ..FileExample::default() };
        figures.opens_most = most_opened.map_or(0, |(most, _)| most);
        figures.most_opened = most_opened.map(|(most, file)| example(file, most));
        figures.most_repeated = most_repeated.map(|(count, file, (offset, bytes))| FileExample {
            offset: Some(offset),
            bytes: Some(bytes),
            ..example(file, count)
        });
        figures.shared_offset = self.shared_offset_file.map(|file| example(file, self.shared_offset_reads));
        figures
    }
}

/// Variance / mean.
fn spread(values: &[f64]) -> Option<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean > 0.0).then(|| squares / values.len() as f64 / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_apart() {
        let mut visits = FileVisits::default();
        let file = (1, 7);
        for process in [3, 4] {
            visits.opened(process, file);
            visits.read(process, file, Some(0), 100);
            visits.read(process, file, Some(0), 100);
        }
        visits.read(4, file, Some(100), 50);
        visits.read(4, file, None, 5);
        let figures = visits.figures(0, |_| "a".into());
        assert_eq!(
            (figures.asked_bytes, figures.process_distinct_bytes, figures.distinct_bytes),
            (455, 250, 150)
        );
        assert_eq!((figures.pairs, figures.opens, figures.opens_most, figures.share), (2, 2, 1, 1.0));
        assert_eq!((figures.process_distinct_most, figures.opens_spread), (150, Some(0.0)));
        let repeated = figures.most_repeated.unwrap();
        assert_eq!((repeated.count, repeated.offset, repeated.bytes), (1, Some(0), Some(100)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut visits = FileVisits::default();
        for number in 0..2_000_000u64 {
            visits.read((number % 8) as usize, (1, number % 300), Some(number * 10), 3);
        }
        assert!(visits.ranges <= MOST_RANGES && visits.cut);
        visits.thin(3);
        assert!(visits.by_file.len() < 80, "{}", visits.by_file.len());
    }
}
