//! A phase as the watchdog sees it: what counts as progress, what takes time by plan, and the pending operations.

use crate::accelerators::Drive;
use crate::loader::{Failure, Job};
use crate::watchdog::Watched;

pub(super) struct Vigil<'a, 'd> {
    pub(super) job: &'a Job<'d>,
    pub(super) drive: &'a Drive<'d>,
}

impl Watched for Vigil<'_, '_> {
    /// Operations that ended, samples delivered, steps begun.
    fn progress(&self) -> u64 {
        let progress = self.job.events.progress();
        self.job.board.progress().wrapping_add(progress.samples).wrapping_add(progress.steps)
    }

    /// Computing, simulated devices and preprocessing take time without being stuck.
    fn is_busy(&self) -> bool {
        let now = self.job.clock.now();
        self.drive.computes(now) || self.job.board.sleeps(now) || self.job.preprocessing.is_at_work()
    }

    fn waits(&self) -> Vec<String> {
        let (job, now) = (self.job, self.job.clock.now());
        let waits = job.board.waits(job.deal);
        if waits.is_empty() {
            return self.drive.waits();
        }
        let words = waits.into_iter().map(|wait| {
            format!(
                "rank {}, reader {}, step {}: {} {} at byte {}, for {}",
                job.first_rank + wait.queue as u64,
                wait.reader,
                wait.step,
                wait.operation,
                job.file_name(wait.file),
                wait.offset,
                now.since(wait.since)
            )
        });
        words.collect()
    }

    fn ending(&self) -> Option<String> {
        self.job.ending().then(|| self.job.cause().unwrap_or_else(|| "interrupted".to_owned()))
    }

    fn end(&self, cause: String) {
        let first = self.job.board.waits(self.job.deal).into_iter().next();
        let (queue, step) = first.map_or((0, 0), |wait| (wait.queue, wait.step));
        self.job.fail(Failure { rank: self.job.first_rank + queue as u64, step, cause });
    }
}
