//! The metadata of existing files, which locates their samples. A reader fetches it range by range, in the same way as
//! samples, and keeps it while it stays in the file.

use format::Extent;
use model::files::FileEntry;
use model::units::Nanos;
use store::{Fetch, Fetched, FinishedFetch, Purpose};

use super::super::visit::ReadError;
use super::ReaderThread;
use super::reader::ReaderState;
use crate::cache;

/// The metadata that was read on a visit to a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetadataRead {
    pub(super) began: Nanos,
    pub(super) bytes: u64,
}

impl ReaderThread<'_, '_, '_> {
    /// Submits a fetch of metadata from the file of the current visit. It uses the reader's spare buffer, which its
    /// samples do not need before the fetch has ended. The file stays open for the fetch that follows.
    pub(super) fn fetch_metadata(&mut self, place: usize, entry: FileEntry, range: Extent) {
        self.turn(place, ReaderState::Metadata(range));
        let reader = &mut self.readers[place];
        let fetch = Fetch {
            name: &self.visits.name,
            purpose: Purpose::Metadata,
            ranges: &[range],
            file_bytes: entry.bytes,
            version: entry.version,
            keep_open: true,
            at: reader.at,
            into: Some(reader.spare.take().unwrap_or_default()),
        };
        self.lane.submit(place, fetch);
        self.count_in_flight();
    }

    /// A fetch of metadata has ended.
    pub(super) fn take_metadata(&mut self, done: FinishedFetch, range: Extent) -> Result<(), ReadError> {
        let (place, reader) = (done.reader, &mut self.readers[done.reader]);
        let kept = done.kept.unwrap_or_default();
        match done.outcome {
            Ok(Fetched { bytes, opens, reads, probe }) => {
                reader.known.metadata.add(range.offset, kept.bytes());
                reader.spare = Some(kept);
                let metadata = reader.metadata.get_or_insert(MetadataRead { began: done.began, bytes: 0 });
                metadata.bytes += bytes;
                reader.tally.bytes_planned += bytes;
                reader.tally.bytes_read += bytes;
                reader.tally.opens += opens;
                reader.tally.reads += reads;
                cache::book(&mut self.delivered.counted, probe, bytes);
            }
            Err(cause) => {
                reader.spare = Some(kept);
                self.lose(place, cause.into())?;
                return self.advance(place);
            }
        }
        if self.ask(place)? { Ok(()) } else { self.advance(place) }
    }

    /// Records metadata that is not followed by a fetch of samples, because no read was needed for them.
    pub(super) fn end_metadata(&mut self, place: usize) {
        let (run, reader) = (self.run, &mut self.readers[place]);
        let Some(MetadataRead { began, bytes }) = reader.metadata.take() else { return };
        let at = reader.at;
        self.delivered.timeline.add(at.since(run.begin), bytes, 0);
        self.record_sample(place, (began, at.since(began)), bytes);
    }
}
