//! What a reader of a replayed job does around its reads: it waits until workers have started, and opens and examines
//! files more often than necessary. Only backends with blocking calls have such calls; on others, which includes the
//! null backend, there are none to make.

use model::files::FileEntry;
use model::plan::Threads;
use model::units::Nanos;
use store::{Fetch, Purpose, StoreError};

use super::super::phase_run::PhaseRun;
use super::ReaderThread;
use super::metadata::MetadataRead;

/// Waits as long as the start of workers takes.
pub(super) fn await_start(run: &PhaseRun<'_>) {
    let start = run.plan.start_time(run.phase, run.epoch);
    if start > Nanos::ZERO {
        run.clock.sleep_until(run.begin + start, &|| run.ending());
    }
}

impl ReaderThread<'_, '_, '_> {
    /// Makes the calls for metadata that precede the read of a file. They are part of the sample's time.
    pub(super) fn examine_file(&mut self, place: usize, entry: FileEntry) -> Result<(), StoreError> {
        let (run, replay) = (self.run, &self.run.plan.replay);
        let calls = replay.stats_per_sample + replay.opens_per_sample.saturating_sub(1);
        if calls == 0 || run.input.store.capabilities().threads != Threads::PerReader {
            return Ok(());
        }
        let began = run.clock.now();
        for _ in 0..replay.stats_per_sample {
            run.input.store.files().size(&self.visits.name)?;
        }
        for _ in 1..replay.opens_per_sample {
            let fetch = Fetch {
                name: &self.visits.name,
                purpose: Purpose::Metadata,
                ranges: &[],
                file_bytes: entry.bytes,
                version: entry.version,
                keep_open: false,
                at: began,
                into: None,
            };
            self.lane.submit(place, fetch);
            if let Some(done) = self.lane.reap() {
                self.readers[place].tally.opens += done.outcome?.opens;
            }
        }
        self.readers[place].metadata.get_or_insert(MetadataRead { began, bytes: 0 });
        Ok(())
    }
}
