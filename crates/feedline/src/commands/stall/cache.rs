//! The page cache before the runs of a stall analysis, as their ledgers tell it. What could not be checked is called
//! unverified.

use model::ledger::Phase;
use model::units::grouped;
use serde::Serialize;

use crate::commands::Measured;

/// The state of the cache before a run, in words, and whether that is what the run needs.
#[derive(Clone, Debug, Serialize)]
pub struct State {
    pub verified: bool,
    pub evidence: String,
}

/// The share of pages in the wrong place that does not matter.
const TOLERATED: f64 = 0.01;

/// Before a run that needs an empty cache.
pub fn empty(run: &Measured) -> State {
    judge(run, |share| share <= TOLERATED)
}

/// Before one that needs all files in it.
pub fn full(run: &Measured) -> State {
    judge(run, |share| share >= 1.0 - TOLERATED)
}

fn judge(run: &Measured, right: impl Fn(f64) -> bool) -> State {
    let seen = run.ledger.cache(1, Phase::Train);
    let made = seen.made;
    if let Some(why) = seen.untold.first() {
        return State { verified: false, evidence: why.clone() };
    }
    if made.pages == 0 {
        return State { verified: false, evidence: "this kernel does not tell what is in memory".to_owned() };
    }
    let (after, pages) = (grouped(made.after), grouped(made.pages));
    State {
        verified: right(made.after as f64 / made.pages as f64),
        evidence: format!("{after} of {pages} pages were in memory before"),
    }
}
