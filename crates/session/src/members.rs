//! What the members of a run share before it begins, so that all of them compute the same plan, and whether all of them
//! can begin. A run in one process has one member, for which none of this waits.

use engine::host::Host;
use engine::world::{Cause, entropy, gather_to_all};
use engine::{Stop, World};

use crate::error::Error;

/// What a plan depends on, apart from the workload. All members have the same values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedFacts {
    /// Memory and cores of the smallest host. The plan must fit on every host.
    pub(crate) memory_bytes: u64,
    pub(crate) cores: u64,
    /// Seeds everything for which the workload sets no seed.
    pub(crate) entropy: u64,
}

impl SharedFacts {
    /// Gathers the host facts of all members; member 0 draws the entropy.
    pub(crate) fn share(host: &Host, world: &dyn World, stop: &Stop) -> Result<SharedFacts, Error> {
        let own = [host.memory_bytes, host.cores].map(u64::to_le_bytes).concat();
        let all = gather_to_all(world, &own, stop).map_err(Error::Member)?;
        let smallest = |fact: usize| {
            let facts = all.iter().filter_map(|bytes| bytes.chunks_exact(8).nth(fact)?.try_into().ok());
            facts.map(u64::from_le_bytes).min().unwrap_or_default()
        };
        let entropy = entropy(world, stop).map_err(Error::Member)?;
        Ok(SharedFacts { memory_bytes: smallest(0), cores: smallest(1), entropy })
    }
}

/// Waits until all members have done a check. If one of them cannot run, none does: that member returns its own error,
/// and the others name it.
pub(crate) fn agree<T>(here: Result<T, Error>, world: &dyn World, stop: &Stop) -> Result<T, Error> {
    let cause = here.as_ref().err().map(|error| Cause::Failed(error.to_string()));
    let agreed = world.agree(cause.map_or(Ok(()), Err), stop);
    let value = here?;
    agreed.map(|()| value).map_err(Error::Member)
}
