//! Samples that cannot be read: the error is recorded, and either the run ends or the batch continues without them.

use model::ledger::ErrorExample;

use super::super::visit::ReadError;
use super::ReaderThread;
use crate::events::Event;

impl ReaderThread<'_, '_, '_> {
    /// The reader's samples cannot be read: they are left out, or the run ends.
    pub(super) fn lose(&mut self, place: usize, cause: ReadError) -> Result<(), ReadError> {
        if cause.is_given_up() {
            return Err(cause);
        }
        let (run, reader) = (self.run, &mut self.readers[place]);
        let ((rank, step), number) = (self.at_work, reader.file(run));
        let (file, offset) = (run.file_name(number), self.station.tracks[place].range().offset);
        self.emitter.emit(run.events, run.clock.now(), Event::ErrorMet { rank, step });
        let example = ErrorExample { rank, step, file, offset, message: cause.to_string() };
        self.delivered.errors.add(cause.kind(), example);
        run.events.counters().add_error();
        run.readers.tolerance.bears(number, cause)?;
        reader.leave_out();
        Ok(())
    }
}
