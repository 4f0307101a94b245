//! A run without training: saves a number of checkpoints, then restores a number of them, each after a pause.

use model::checkpoint::manifest::Moment;
use model::checkpoint::{RestoreRecord, Schedule};
use model::ledger::Ledger;
use model::names::Name;
use model::units::Nanos;

use super::{CheckpointError, CheckpointSetup, Checkpointer, KeptRun, RestoreRequest, keep, note_end};
use crate::events::Event;

/// Runs the plan and returns the ledger, complete or not. Refused if there is nothing to restore.
pub fn alone(setup: CheckpointSetup<'_>) -> Result<Ledger, CheckpointError> {
    let Schedule::Alone { saves, restores, pause } = setup.plan.schedule else {
        return Ok(Ledger::default());
    };
    let KeptRun { done: restored, saves: saved, ended } = keep(setup, |checkpointer| {
        for step in 1..=saves {
            checkpointer.pause(pause);
            if checkpointer.is_over() {
                return Ok(Vec::new());
            }
            checkpointer.save(Moment { epoch: 1, step });
        }
        if restores == 0 {
            return Ok(Vec::new());
        }
        if saves > 0 {
            // Work that is still in the background would be measured with the restore.
            checkpointer.settle();
        }
        checkpointer.restore_many(saves, restores, pause)
    })?;
    let mut ledger = Ledger::default();
    (ledger.checkpoints.saves, ledger.interrupted) = (saved, setup.stop.requested());
    match restored {
        Err(CheckpointError::Member(ended)) => note_end(&mut ledger, 1, &ended),
        restored => ledger.checkpoints.restores = restored?,
    }
    if let Some(ended) = ended {
        note_end(&mut ledger, 1, &ended);
    }
    Ok(ledger)
}

impl Checkpointer<'_> {
    fn pause(&self, span: Nanos) {
        self.setup.clock.sleep_until(self.now() + span, &|| self.is_over());
    }

    /// Restores the newest checkpoints, each once; if there are fewer, starts again with the first.
    fn restore_many(
        &self,
        saves: u64,
        restores: u64,
        pause: Nanos,
    ) -> Result<Vec<RestoreRecord>, CheckpointError> {
        let there = self.complete()?;
        if saves == 0 && (there.len() as u64) < restores {
            let folder = self.setup.last.files().shown(&Name::new(".").unwrap_or_default());
            let folder = folder.trim_end_matches("/.").to_owned();
            // There may be checkpoints that do not fit; then report what is wrong with them.
            if there.is_empty() {
                self.newest()?;
            }
            let there = there.len() as u64;
            return Err(CheckpointError::TooFew { folder, there, asked: restores });
        }
        let newest = &there[there.len().saturating_sub(restores as usize)..];
        let mut seen = Vec::new();
        for moment in newest.iter().cycle().take(restores as usize) {
            self.pause(pause);
            let (began, cold) = (self.now(), self.setup.plan.restore_cold);
            self.emit(Event::RestoreBegan { moment: *moment });
            match self.restore(RestoreRequest { moment: Some(*moment), cold }) {
                Err(ended @ CheckpointError::Member(_)) => return Err(ended),
                _ if self.is_over() => break,
                Ok(restored) => {
                    self.setup.events.counters().add_restore();
                    self.emit(Event::Restored { moment: *moment, took: restored.first_rank_ns });
                    seen.push(restored);
                }
                Err(cause) => {
                    let failure = Some(self.told(&cause));
                    seen.push(RestoreRecord { failure, ..RestoreRecord::new(*moment, began) });
                }
            }
        }
        Ok(seen)
    }
}
