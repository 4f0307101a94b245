//! How the page cache is handled: the state in which each phase of each epoch begins, and which reads are checked for
//! cached pages.

use serde::{Deserialize, Serialize};

use super::{Discipline, LoaderPlan, PhasePlan, PlanError, Request, TrainingPlan};
use crate::order::Unit;
use crate::spec::{CacheProof, CacheState, Spec};

/// In sampling mode, one of this many fetches is counted: a sixteenth of the cost, and an interval of one percentage
/// point for 10,000 fetches.
const SAMPLED: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachePlan {
    pub state: CacheState,
    pub proof: CacheProof,
    /// Whether the page cache of the whole host is dropped, not only the pages of the files to read.
    pub drop_host: bool,
}

impl CachePlan {
    /// `None` if the backend does not read through the page cache, or nothing is read.
    pub(super) fn resolve(
        spec: &Spec,
        request: &Request<'_>,
        loader: &LoaderPlan,
    ) -> Result<Option<CachePlan>, PlanError> {
        let (state, proof, drop_host) = (spec.reader.cache, spec.reader.cache_proof, spec.reader.drop_caches);
        if drop_host && state != CacheState::Cold {
            return Err(PlanError::DropsWhatIsWanted(state.name()));
        }
        let reads = request.store.cached && loader.discipline != Discipline::Synthetic;
        Ok(reads.then_some(CachePlan { state, proof, drop_host }))
    }

    /// One of this many fetches is counted; 0: none.
    pub fn counts_one_in(&self) -> u64 {
        match self.proof {
            CacheProof::Exact => 1,
            CacheProof::Sample => SAMPLED,
            CacheProof::None => 0,
        }
    }

    /// As text for a report.
    pub fn in_words(&self) -> String {
        let state = match (self.state, self.drop_host) {
            (CacheState::Cold, false) => "files evicted before each epoch, and pages evicted after each read",
            (CacheState::Cold, true) => {
                "host cache dropped before each epoch, and pages evicted after each read"
            }
            (CacheState::Warm, _) => "filled with the files before each epoch",
            (CacheState::AsIs, _) => "left as it is",
            (CacheState::EpochCold, _) => "files evicted before each epoch, and pages left after reads",
            (CacheState::FirstCold, _) => "files evicted before the first epoch, then left as it is",
        };
        let proof = match self.counts_one_in() {
            0 => "pages are not counted".to_owned(),
            1 => "pages counted before every read".to_owned(),
            n => format!("pages counted before one read in {n}"),
        };
        format!("{}: {state}; {proof}", self.state.name())
    }
}

impl TrainingPlan {
    /// Bytes that must be in memory before a phase on a host with this number of ranks, if the cache is to be warm.
    pub fn warm_bytes(&self, phase: &PhasePlan, ranks: u64) -> Option<u64> {
        let warm = self.cache.is_some_and(|cache| cache.state == CacheState::Warm);
        let split = self.split(phase.phase);
        let read = phase.shards.delivered() as f64 / phase.shards.ranks.max(1) as f64 * ranks as f64;
        // If samples move on their own, each may be in another file.
        let all = match phase.order.unit {
            Unit::None | Unit::File => split.samples(),
            Unit::Group(_) | Unit::Sample if ranks == phase.shards.ranks => split.samples(),
            Unit::Group(_) | Unit::Sample => split.files,
        };
        warm.then(|| (split.bytes as f64 * (read / all.max(1) as f64).min(1.0)) as u64)
    }
}
