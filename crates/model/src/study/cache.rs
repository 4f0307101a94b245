//! The state of the page cache before the runs of a stall analysis, from their ledgers. A state that could not be
//! checked is unverified.

use serde::{Deserialize, Serialize};

use crate::ledger::{Ledger, Phase};
use crate::units::grouped;

/// The evidence for the state of the cache before a run, and whether it is the state that the run needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheCheck {
    pub verified: bool,
    pub evidence: String,
}

/// The share of pages in the wrong state that is tolerated.
const TOLERATED: f64 = 0.01;

/// Before a run that needs an empty cache.
pub fn empty(run: &Ledger) -> CacheCheck {
    check(run, |share| share <= TOLERATED)
}

/// Before a run that needs all its files in the cache.
pub fn full(run: &Ledger) -> CacheCheck {
    check(run, |share| share >= 1.0 - TOLERATED)
}

fn check(run: &Ledger, is_right: impl Fn(f64) -> bool) -> CacheCheck {
    let seen = run.cache(1, Phase::Train);
    let made = seen.made;
    if let Some(why) = seen.untold.first() {
        return CacheCheck { verified: false, evidence: why.clone() };
    }
    if made.pages == 0 {
        let evidence = "this kernel does not report which pages are cached".to_owned();
        return CacheCheck { verified: false, evidence };
    }
    let (after, pages) = (grouped(made.after), grouped(made.pages));
    CacheCheck {
        verified: is_right(made.after as f64 / made.pages as f64),
        evidence: format!("{after} of {pages} pages were cached before"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::NodeRow;

    fn ledger(pages: u64, after: u64, untold: &[&str]) -> Ledger {
        let (mut ledger, mut node) = (Ledger::default(), NodeRow::default());
        (node.cache.made.pages, node.cache.made.after) = (pages, after);
        node.cache.untold = untold.iter().map(ToString::to_string).collect();
        ledger.add_node(1, Phase::Train, 0, node);
        ledger
    }

    #[test]
    fn one_page_in_a_hundred_may_be_in_the_wrong_state() {
        for (after, is_empty, is_full) in
            [(0, true, false), (10, true, false), (11, false, false), (989, false, false), (990, false, true)]
        {
            let ledger = ledger(1000, after, &[]);
            assert_eq!((empty(&ledger).verified, full(&ledger).verified), (is_empty, is_full), "{after}");
            assert_eq!(full(&ledger).evidence, format!("{after} of 1,000 pages were cached before"));
        }
    }

    #[test]
    fn without_evidence_nothing_is_verified() {
        for check in [empty, full] {
            let untold = check(&ledger(10, 0, &["the file system does not report it"]));
            assert!(!untold.verified && untold.evidence == "the file system does not report it");
            assert!(!check(&ledger(0, 0, &[])).verified);
        }
    }
}
