//! Reads ranges of files one after another and waits for each: for work that is not measured and needs one file at a
//! time. The readers of a run (`loader`) have many fetches in flight instead.

use format::{Extent, Look, Obstacle};
use model::names::Name;
use model::units::Nanos;
use store::{Buffer, Fetch, FetchWait, FinishedFetch, Lane, Operation, Purpose, Store, StoreError, Traffic};
use thiserror::Error;

use crate::asking::{Metadata, MetadataError, ParseStep, TargetFile};

/// How long to sleep before the lane is polled again.
const PATIENCE: Nanos = Nanos(500_000_000);

/// Why a question about a file could not be answered.
#[derive(Debug, Error)]
pub enum AskError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

impl AskError {
    /// The same error with another name of the file, such as its full path.
    pub fn renamed(self, shown: &str) -> AskError {
        let name = shown.to_owned();
        match self {
            AskError::Store(error) => AskError::Store(error.renamed(shown)),
            AskError::Metadata(MetadataError::Format { cause, .. }) => {
                MetadataError::Format { name, cause }.into()
            }
            AskError::Metadata(MetadataError::Endless { .. }) => MetadataError::Endless { name }.into(),
        }
    }
}

/// The largest single read, and what is read at once of a file that is read from front to back. A request to an object
/// store takes about as long for one byte as for all of these.
const AHEAD_BYTES: u64 = 1 << 20;

/// A lane with one fetch in flight, and a buffer for its bytes.
pub(crate) struct FileReader<'a> {
    store: &'a dyn Store,
    lane: Box<dyn Lane + 'a>,
    buffer: Buffer,
    /// The file and the range that the buffer holds, if it was filled ahead.
    held: Option<(Name, Extent)>,
}

impl<'a> FileReader<'a> {
    pub(crate) fn new(store: &'a dyn Store) -> Result<FileReader<'a>, StoreError> {
        let traffic = Traffic { transfer: AHEAD_BYTES as usize, ..Traffic::untimed() };
        Ok(FileReader { store, lane: store.lane(traffic)?, buffer: Buffer::default(), held: None })
    }

    /// The same as `read`, for many small ranges one after another: reads more than the range at once.
    pub(crate) fn read_ahead(
        &mut self,
        (name, file_bytes): (&Name, u64),
        range: Extent,
    ) -> Result<&[u8], StoreError> {
        let covers =
            |held: &Extent| held.offset <= range.offset && range.offset + range.len <= held.offset + held.len;
        let held = match self.held.take().filter(|(of, held)| of == name && covers(held)) {
            Some((_, held)) => held,
            None => {
                let rest = file_bytes.saturating_sub(range.offset);
                let held = Extent { len: AHEAD_BYTES.min(rest).max(range.len), ..range };
                self.read((name, file_bytes), held)?;
                held
            }
        };
        self.held = Some((name.clone(), held));
        let start = (range.offset - held.offset) as usize;
        Ok(&self.buffer.bytes()[start..start + range.len as usize])
    }

    /// Reads a range of a file that should have `file_bytes` bytes. The file stays open until another one is read.
    pub(crate) fn read(
        &mut self,
        (name, file_bytes): (&Name, u64),
        range: Extent,
    ) -> Result<&[u8], StoreError> {
        self.held = None;
        let (purpose, into) = (Purpose::Upkeep, Some(std::mem::take(&mut self.buffer)));
        let (ranges, version, at) = (&[range], None, Nanos::ZERO);
        self.lane.submit(0, Fetch { name, purpose, ranges, file_bytes, version, keep_open: true, at, into });
        let Some(FinishedFetch { outcome, kept, .. }) = self.wait() else {
            return Err(self.brings_nothing(name));
        };
        self.buffer = kept.unwrap_or_default();
        outcome?;
        // Stores without files complete fetches without delivering bytes.
        match self.buffer.bytes().len() as u64 == range.len {
            true => Ok(self.buffer.bytes()),
            false => Err(self.brings_nothing(name)),
        }
    }

    /// Answers a question about a file from its metadata, and reads the metadata that this needs.
    pub(crate) fn ask<T>(
        &mut self,
        file: TargetFile<'_>,
        metadata: &mut Metadata,
        mut question: impl FnMut(&Look<'_>) -> Result<T, Obstacle>,
    ) -> Result<T, AskError> {
        loop {
            match metadata.ask(file, &mut question)? {
                ParseStep::Answer(answer) => return Ok(answer),
                ParseStep::Read(range) => {
                    metadata.add(range.offset, self.read((file.name, file.bytes), range)?);
                }
            }
        }
    }
    /// Waits for the fetch; `None` for a store whose simulated time would have to pass.
    fn wait(&mut self) -> Option<FinishedFetch> {
        loop {
            match (self.lane.reap(), self.lane.awaits()) {
                (Some(done), _) => return Some(done),
                (None, FetchWait::Medium) => self.lane.wait(PATIENCE),
                (None, FetchWait::Nothing | FetchWait::Moment(_)) => return None,
            }
        }
    }

    fn brings_nothing(&self, name: &Name) -> StoreError {
        let (store, operation) = (self.store.name(), Operation::Read);
        StoreError::Unsupported { store, operation, name: name.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Mode, Null, Posix, Sim};

    const RANGE: Extent = Extent { offset: 2, len: 3 };

    #[test]
    fn it_reads_ranges_and_names_missing_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), b"abcdefgh").unwrap();
        let store = Posix::open(folder.path(), Mode::default()).unwrap();
        let mut reader = FileReader::new(&store).unwrap();
        let [a, b] = ["a", "b"].map(|name| Name::new(name).unwrap());
        assert_eq!(reader.read((&a, 8), RANGE), Ok(&b"cde"[..]));
        assert!(matches!(reader.read((&b, 8), RANGE), Err(StoreError::Missing { .. })));
        assert!(matches!(reader.read((&a, 9), RANGE), Err(StoreError::Short { .. })));
        assert_eq!(reader.read((&a, 8), Extent { offset: 0, len: 8 }), Ok(&b"abcdefgh"[..]), "it works");
    }

    #[test]
    fn reading_ahead_returns_the_bytes_of_the_right_file() {
        let folder = tempfile::tempdir().unwrap();
        let content = |seed: u8| (0..3 << 20).map(|at: u32| seed ^ (at % 251) as u8).collect::<Vec<u8>>();
        let files = [content(0), content(7)];
        let [a, b] = ["a", "b"].map(|name| Name::new(name).unwrap());
        for (name, bytes) in [&a, &b].into_iter().zip(&files) {
            std::fs::write(folder.path().join(name.as_str()), bytes).unwrap();
        }
        let store = Posix::open(folder.path(), Mode::default()).unwrap();
        let mut reader = FileReader::new(&store).unwrap();
        let size = 3 << 20;
        for (offset, len) in
            [(0, 10), (10, 5), (1 << 20, 100), ((1 << 20) - 5, 10), (0, 2 << 20), (size - 1, 1)]
        {
            for (name, bytes) in [&a, &b, &b].into_iter().zip([&files[0], &files[1], &files[1]]) {
                let expected = &bytes[offset as usize..][..len as usize];
                let read = reader.read_ahead((name, size), Extent { offset, len }).unwrap();
                assert!(read == expected, "{name} {offset} {len}");
            }
        }
        let beyond = reader.read_ahead((&a, size), Extent { offset: size - 1, len: 2 });
        assert!(matches!(beyond, Err(StoreError::Short { .. })), "{beyond:?}");
    }

    #[test]
    fn a_store_without_files_is_refused_at_once() {
        let (null, sim) = (Null, Sim::new(store::Device::parse("hdd").unwrap()));
        let name = Name::new("train/a").unwrap();
        for (store, said) in [(&null as &dyn Store, "null"), (&sim, "sim")] {
            let error = FileReader::new(store).unwrap().read((&name, 8), RANGE).unwrap_err();
            assert_eq!(error.to_string(), format!("the {said} store cannot read train/a: it holds no files"));
        }
    }
}
