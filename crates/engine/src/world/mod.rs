//! The members of a run. A member is a process that runs some of the run's ranks (emulated accelerators). A `World` is
//! a member's view of the others and its means to agree with them. `Solo` is a run of one process.
//!
//! There are two kinds of calls. `arrive`, `released`, `announce`, `publish` and `wake` never wait, so they may be
//! called while a lock is held. All others may wait for other members. Such a wait ends when all members have made the
//! call, when a member announces that it ends, when a member does not respond for the stall timeout of the `Stop` that
//! is passed, or when that `Stop` is requested here, which is announced to the others. So no wait lasts forever, and
//! the `EarlyEnd` that it returns names the member and the cause, the same at all members.

mod clock;
pub mod cluster;
pub mod launcher;
mod mpi;
mod node;
mod solo;
#[doc(hidden)]
pub mod threads;
mod together;
mod topology;

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use model::ledger::{Agreement, ClockReading, Phase};
use model::units::Nanos;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::figures::LiveFigures;
use crate::meter::{self, Clock};
use crate::stop::Stop;

pub use mpi::{InstalledMpi, MpiError, installed_libraries as installed_mpi};
pub(crate) use node::cores_of_node;
pub use node::sum_on_node;
pub use solo::Solo;
pub use together::decided;
pub(crate) use together::{agreed, alongside, cause, shared};
pub use topology::{DistributionError, HostIdentity, Topology};

/// Collective calls: every member makes the same ones in the same order.
pub trait Exchange: Sync {
    /// All members, their hosts and their ranks.
    fn topology(&self) -> &Topology;
    /// Number of this member, from 0.
    fn member(&self) -> u64;

    /// Tells all members that this one ends and why. The first of several announcements counts.
    fn announce(&self, cause: Cause);
    /// Waits until all members have made this call. If any of them cannot continue, all learn which one and why.
    fn agree(&self, here: Result<(), Cause>, stop: &Stop) -> Result<(), EarlyEnd>;
    /// Gives member 0's bytes to all members.
    fn broadcast(&self, bytes: &mut Vec<u8>, stop: &Stop) -> Result<(), EarlyEnd>;
    /// Gives all members' bytes to member 0, where `take` is called once per member, in order. Only one member's bytes
    /// need to be in memory at a time.
    fn gather(&self, bytes: &[u8], stop: &Stop, take: &mut dyn FnMut(u64, &[u8])) -> Result<(), EarlyEnd>;

    /// Number of members.
    fn members(&self) -> u64 {
        self.topology().members()
    }

    /// Number of the host that this member runs on; several members may share one.
    fn node(&self) -> u64 {
        self.topology().node_of(self.member())
    }

    /// Whether this member does what is done once per host.
    fn leads_node(&self) -> bool {
        self.topology().leads_node(self.member())
    }

    /// The ranks of this member in a run of `ranks` ranks.
    fn ranks(&self, ranks: u64) -> Range<u64> {
        self.topology().ranks(self.member(), ranks)
    }
}

/// The members of a run, from the point of view of one of them.
pub trait World: Exchange {
    /// All ranks of this member have reached a barrier; the last of them is done at `last_here`, which may be in the
    /// future. Called by one thread at a time.
    fn arrive(&self, barrier: Barrier, last_here: Nanos);
    /// When the barrier that this member arrived at last is released: the latest moment at which any member's ranks
    /// are done, on this member's clock. `None` until all members have arrived.
    fn released(&self) -> Option<Nanos>;
    /// Waits until `released` may have a new answer, `wake` is called or `timeout` has passed. For one thread of the
    /// member, which waits here throughout a phase; an implementation may do its communication on it.
    fn wait(&self, stop: &Stop, timeout: Duration) -> Result<(), EarlyEnd>;
    /// Ends this member's `wait`.
    fn wake(&self);

    /// Measures the offset of this member's clock to member 0's. Barriers use this offset until the next measurement.
    /// Returns how far the clocks of the two hosts differ. Call it between epochs only: a change of the offset within
    /// an epoch would look like waiting.
    fn synchronize(&self, clock: &dyn Clock, stop: &Stop) -> Result<ClockReading, EarlyEnd>;

    /// The offset of this member's clock to member 0's, as it was last measured.
    fn clock_offset(&self) -> ClockReading {
        ClockReading::default()
    }

    /// A second, independent sequence of collective calls, for one thread that works in the background of a run.
    fn background(&self) -> &dyn Exchange;

    /// Makes the figures of this member known to member 0: soon, or, if they are the last of some work, before anything
    /// that this member sends later.
    fn publish(&self, figures: LiveFigures);
    /// The figures of all other members, as far as they are known, each with the number of the member. Only member 0
    /// knows them.
    fn figures(&self) -> Vec<(u64, LiveFigures)>;

    /// What was observed of the barriers since the last call, by node. Each member observes how long it took to learn
    /// of a release; member 0 also observes which node was the last.
    fn take_agreement(&self) -> Vec<(u64, Agreement)>;
    /// How the members communicate; `None` if there is one member.
    fn transport(&self) -> Option<String>;
}

/// A point of a run at which the ranks wait for each other. All members must arrive at the same barriers in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    pub epoch: u64,
    pub phase: Phase,
    /// From 1, as in the names of checkpoints.
    pub step: u64,
    /// Whether it is the end of the checkpoint after the step, and not the end of the step itself.
    pub checkpoint: bool,
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Barrier { epoch, phase, step, checkpoint } = self;
        let what = if *checkpoint { "checkpoint after step" } else { "step" };
        write!(f, "epoch {epoch} ({phase}), {what} {step}")
    }
}

/// Why a member ends before the run is complete.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Cause {
    #[error("was asked to stop")]
    Stopped,
    #[error("failed: {0}")]
    Failed(String),
    #[error("did not respond for {0}")]
    Silent(Nanos),
    #[error("left before the run was complete")]
    Left,
    #[error("reached {at}, while process {other} reached {there}")]
    Diverged { at: Barrier, other: u64, there: Barrier },
}

impl Cause {
    /// Whether others noticed it, because the member itself could not say anything.
    pub fn is_noticed(&self) -> bool {
        matches!(self, Cause::Silent(_) | Cause::Left)
    }
}

/// All members end, because of this one.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("process {member} on {node} {cause}{}", self.last_seen())]
pub struct EarlyEnd {
    pub member: u64,
    /// Name of its host.
    pub node: String,
    pub cause: Cause,
    /// The last barrier that it is known to have reached.
    pub place: Option<Barrier>,
}

impl EarlyEnd {
    pub fn new(topology: &Topology, member: u64, cause: Cause) -> EarlyEnd {
        let node = topology.name(topology.node_of(member)).to_owned();
        EarlyEnd { member, node, cause, place: None }
    }

    fn last_seen(&self) -> String {
        let place = self.place.filter(|_| self.cause.is_noticed());
        place.map_or(String::new(), |place| format!("; the last it reached is {place}"))
    }
}

/// A number that differs between runs and is the same at all members.
pub fn entropy(world: &dyn Exchange, stop: &Stop) -> Result<u64, EarlyEnd> {
    let mut bytes = meter::entropy().to_le_bytes().to_vec();
    world.broadcast(&mut bytes, stop)?;
    <[u8; 8]>::try_from(bytes).map(u64::from_le_bytes).map_err(|bytes| {
        let cause = Cause::Failed(format!("broadcast {} bytes instead of 8", bytes.len()));
        EarlyEnd::new(world.topology(), 0, cause)
    })
}

/// All members' bytes, at all members. For small data, such as facts about hosts.
pub fn gather_to_all(world: &dyn Exchange, bytes: &[u8], stop: &Stop) -> Result<Vec<Vec<u8>>, EarlyEnd> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    world.gather(bytes, stop, &mut |_, bytes| all.push(bytes.to_vec()))?;
    let mut packed = pack(&all);
    world.broadcast(&mut packed, stop)?;
    unpack(&packed).ok_or_else(|| {
        let cause = Cause::Failed(format!("broadcast {} bytes that are no list", packed.len()));
        EarlyEnd::new(world.topology(), 0, cause)
    })
}

/// Several byte strings as one, each after its length.
fn pack(parts: &[Vec<u8>]) -> Vec<u8> {
    let lengths = parts.iter().map(|part| (part.len() as u64).to_le_bytes());
    lengths.zip(parts).flat_map(|(length, part)| [&length[..], part].concat()).collect()
}

fn unpack(mut packed: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut parts = Vec::new();
    while !packed.is_empty() {
        let (length, rest) = packed.split_first_chunk()?;
        let (part, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        parts.push(part.to_vec());
        packed = rest;
    }
    Some(parts)
}

#[cfg(test)]
mod tests;
