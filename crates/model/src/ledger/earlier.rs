//! Ledgers of earlier versions: adds the facts that they lack from their plan.

use super::{FileTotals, Ledger};
use crate::plan::TrainingPlan;

impl Ledger {
    /// Adds the facts that earlier versions did not write: the planned steps of each rank, and the files that each
    /// phase reads.
    #[must_use]
    pub fn completed_from(mut self, plan: &TrainingPlan) -> Ledger {
        for ((_, phase, _), row) in self.ranks.iter_mut().filter(|(_, row)| row.steps_planned == 0) {
            row.steps_planned = plan.phase(*phase).map_or(0, |phase| phase.shards.steps);
        }
        for ((_, phase, _), row) in &mut self.nodes {
            if row.cache.stored == FileTotals::default() {
                row.cache.stored = plan.split(*phase).stored();
            }
        }
        self
    }
}
