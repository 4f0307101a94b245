//! Checks the size of an open file against the size in the plan or the catalog. A lane checks it once per open, unless
//! the fetch reads to the end of the file anyway: then the last read shows whether the file ends there.

use rustix::fd::AsFd;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::{Fetch, StoreError};

impl Fetch<'_> {
    /// Whether its reads show that the file has the planned size: one of them ends where the file should end. An empty
    /// read counts only for a file that should be empty.
    pub(crate) fn shows_size(&self) -> bool {
        let ends_file = |range: &model::extent::Extent| range.end() == self.file_bytes;
        self.ranges.iter().any(|range| ends_file(range) && (range.len > 0 || self.file_bytes == 0))
    }
}

/// The size of an open file; an error if it is not a regular file.
pub(crate) fn size_of(file: impl AsFd) -> Result<u64, Errno> {
    regular(rustix::fs::fstat(file)?)
}

pub(crate) fn regular(facts: Stat) -> Result<u64, Errno> {
    match FileType::from_raw_mode(facts.st_mode) {
        FileType::RegularFile => Ok(facts.st_size as u64),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::SPIPE),
    }
}

/// Refuses a file whose size differs from the plan. `name` returns its name in messages.
pub(crate) fn compare(found: u64, planned: u64, name: impl FnOnce() -> String) -> Result<(), StoreError> {
    match found {
        shorter if shorter < planned => Err(StoreError::Short { name: name(), end: found, needed: planned }),
        longer if longer > planned => Err(StoreError::Long { name: name(), found, planned }),
        _ => Ok(()),
    }
}

/// The error to report when a read went past the planned end of a file or did not reach it: the sizes of the whole file
/// if they differ, and otherwise what the read found.
pub(crate) fn explain(seen: StoreError, found: Result<u64, Errno>, planned: u64) -> StoreError {
    match (&seen, found) {
        (StoreError::Short { name, .. } | StoreError::Long { name, .. }, Ok(found)) => {
            compare(found, planned, || name.clone()).err().unwrap_or(seen)
        }
        _ => seen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Purpose;
    use model::extent::Extent;
    use model::names::Name;
    use model::units::Nanos;

    #[test]
    fn a_read_to_the_end_shows_the_size() {
        let name = Name::new("x").unwrap();
        for (ranges, file_bytes, shows) in [
            (&[(0, 10)][..], 10, true),
            (&[(0, 9)], 10, false),
            (&[(4, 6), (0, 1)], 10, true),
            (&[(10, 0)], 10, false),
            (&[(0, 0)], 0, true),
            (&[], 0, false),
        ] {
            let ranges: Vec<Extent> =
                ranges.iter().map(|(offset, len)| Extent { offset: *offset, len: *len }).collect();
            let (ranges, at) = (ranges.as_slice(), Nanos::ZERO);
            let fetch = Fetch {
                name: &name,
                purpose: Purpose::Metadata,
                ranges,
                file_bytes,
                version: None,
                keep_open: false,
                at,
                into: None,
            };
            assert_eq!(fetch.shows_size(), shows, "{ranges:?} of {file_bytes}");
        }
    }

    #[test]
    fn the_sizes_of_the_whole_file_are_reported_if_they_differ() {
        let seen = || StoreError::Short { name: "x".into(), end: 40, needed: 50 };
        let whole = StoreError::Short { name: "x".into(), end: 40, needed: 100 };
        assert_eq!(explain(seen(), Ok(40), 100), whole);
        assert_eq!(explain(seen(), Ok(100), 100), seen(), "it has grown again");
        assert_eq!(explain(seen(), Err(Errno::IO), 100), seen());
        assert_eq!(explain(StoreError::GivenUp, Ok(40), 100), StoreError::GivenUp);
    }
}
