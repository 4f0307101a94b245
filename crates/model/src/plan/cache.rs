//! What is done about the page cache: the state that it is brought into before each phase of each epoch, and how it is
//! shown what of it was there.

use serde::{Deserialize, Serialize};

use super::{Discipline, LoaderPlan, PhasePlan, PlanError, Request, TrainingPlan};
use crate::spec::{CacheProof, CacheState, Spec};

/// Of so many fetches one is counted where a sample will do: a sixteenth of the cost, and in 10,000 fetches an interval
/// of a point.
const SAMPLED: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachePlan {
    pub state: CacheState,
    pub proof: CacheProof,
    /// Whether the whole host's cache is emptied, and not only of the files that are read.
    pub drop_host: bool,
}

impl CachePlan {
    /// `None` where the store does not read through the page cache, or nothing is read.
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

    /// Of how many fetches one is counted; 0: none is.
    pub fn counts_one_in(&self) -> u64 {
        match self.proof {
            CacheProof::Exact => 1,
            CacheProof::Sample => SAMPLED,
            CacheProof::None => 0,
        }
    }

    /// As a plan says it.
    pub fn in_words(&self) -> String {
        let state = match (self.state, self.drop_host) {
            (CacheState::Cold, false) => "emptied of the files before each epoch, and read pages given back",
            (CacheState::Cold, true) => "the host's emptied before each epoch, and read pages given back",
            (CacheState::Warm, _) => "filled with the files before each epoch",
            (CacheState::AsIs, _) => "left as it is",
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
    /// Bytes that are to be in memory before a phase, where the cache is to be warm.
    pub fn warm_bytes(&self, phase: &PhasePlan) -> Option<u64> {
        let warm = self.cache.is_some_and(|cache| cache.state == CacheState::Warm);
        let split = self.split(phase.phase);
        let share = phase.shards.delivered() as f64 / split.samples().max(1) as f64;
        warm.then(|| (split.bytes as f64 * share.min(1.0)) as u64)
    }
}
