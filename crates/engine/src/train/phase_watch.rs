//! A phase as the watchdog sees it: what counts as progress, what takes time by plan, and the pending operations.

use model::extent::Extent;

use crate::accelerators::Drive;
use crate::loader::{PhaseFailure, PhaseRun};
use crate::watchdog::Watched;

pub(super) struct PhaseWatch<'a, 'd> {
    pub(super) run: &'a PhaseRun<'d>,
    pub(super) drive: &'a Drive<'d>,
}

impl Watched for PhaseWatch<'_, '_> {
    /// Operations that ended, samples delivered, steps begun.
    fn progress(&self) -> u64 {
        let progress = self.run.events.progress();
        self.run.readers.status.progress().wrapping_add(progress.samples).wrapping_add(progress.begun)
    }

    /// Computing, simulated devices and preprocessing take time without being stuck.
    fn is_busy(&self) -> bool {
        let now = self.run.clock.now();
        self.drive.computes(now)
            || self.run.readers.status.sleeps(now)
            || self.run.readers.preprocessing.is_at_work()
    }

    fn waits(&self) -> Vec<String> {
        let (run, now) = (self.run, self.run.clock.now());
        let waits = run.readers.status.waits(&run.readers.assignment);
        if waits.is_empty() {
            return self.drive.waits();
        }
        let words = waits.into_iter().map(|wait| {
            let attempt = wait.attempt.map_or_else(String::new, |(attempt, server)| {
                let server = run.input.store.server(server).unwrap_or_default();
                format!(", attempt {attempt} on {server}")
            });
            let place = match wait.range {
                Extent { offset, len: 0 } => format!("at byte {offset}"),
                range => format!("at bytes {} to {}", range.offset, range.end() - 1),
            };
            format!(
                "rank {}, reader {}, step {}: {} {} {place}{attempt}, for {}",
                run.first_rank + wait.queue as u64,
                wait.reader,
                wait.step,
                wait.operation,
                run.file_name(wait.file),
                now.since(wait.since)
            )
        });
        words.collect()
    }

    fn ending(&self) -> Option<String> {
        self.run.ending().then(|| self.run.cause().unwrap_or_else(|| "interrupted".to_owned()))
    }

    fn end(&self, cause: String) {
        let first = self.run.readers.status.waits(&self.run.readers.assignment).into_iter().next();
        let (queue, step) = first.map_or((0, 0), |wait| (wait.queue, wait.step));
        self.run.fail(PhaseFailure { rank: self.run.first_rank + queue as u64, step, cause });
    }
}
