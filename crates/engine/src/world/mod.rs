//! The members of a run. A member is a process that runs some of the run's ranks (emulated accelerators). A `World` is
//! a member's view of the others and its means to agree with them. `Solo` is a run of one process.
//!
//! There are two kinds of calls. `arrive`, `released`, `announce` and `wake` never wait, so they may be called while a
//! lock is held. All others may wait for other members. Such a wait ends when all members have made the call, when a
//! member announces that it ends, when a member does not respond for the stall timeout of the `Stop` that is passed, or
//! when that `Stop` is requested here, which is announced to the others. So no wait lasts forever, and the `EarlyEnd`
//! that it returns names the member and the cause, the same at all members.

mod clock;
mod solo;
#[doc(hidden)]
pub mod threads;

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use model::ledger::Phase;
use model::units::Nanos;
use thiserror::Error;

use crate::meter::{self, Clock};
use crate::stop::Stop;

pub use clock::ClockOffset;
pub use solo::Solo;

/// The members of a run, from the point of view of one of them.
pub trait World: Sync {
    /// Number of members.
    fn members(&self) -> u64;
    /// Number of this member, from 0.
    fn member(&self) -> u64;
    /// Number of the host that this member runs on; several members may share one.
    fn node(&self) -> u64;
    /// The ranks of this member.
    fn ranks(&self) -> Range<u64>;

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

    /// Tells all members that this one ends and why. The first of several announcements counts.
    fn announce(&self, cause: Cause);
    /// Waits until all members have made this call. If any of them cannot continue, all learn which one and why.
    fn agree(&self, here: Result<(), Cause>, stop: &Stop) -> Result<(), EarlyEnd>;
    /// Gives member 0's bytes to all members.
    fn broadcast(&self, bytes: &mut Vec<u8>, stop: &Stop) -> Result<(), EarlyEnd>;
    /// Gives all members' bytes to member 0, where `take` is called once per member, in order. Only one member's bytes
    /// need to be in memory at a time.
    fn gather(&self, bytes: &[u8], stop: &Stop, take: &mut dyn FnMut(u64, &[u8])) -> Result<(), EarlyEnd>;
    /// Measures the offset of this member's clock to member 0's. Barriers use this offset until the next measurement.
    /// Call it between epochs only: a change of the offset within an epoch would look like waiting.
    fn synchronize(&self, clock: &dyn Clock, stop: &Stop) -> Result<ClockOffset, EarlyEnd>;
}

/// A point of a run at which the ranks wait for each other. All members must arrive at the same barriers in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    pub epoch: u64,
    pub phase: Phase,
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
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Cause {
    #[error("was asked to stop")]
    Stopped,
    #[error("failed: {0}")]
    Failed(String),
    #[error("did not respond for {0}")]
    Silent(Nanos),
    #[error("left before the run was complete")]
    Left,
    #[error("reached {at}, while member {other} reached {there}")]
    Diverged { at: Barrier, other: u64, there: Barrier },
}

/// All members end, because of this one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("member {member} {cause}")]
pub struct EarlyEnd {
    pub member: u64,
    pub cause: Cause,
}

/// The ranks of a member when they are distributed evenly: the first members have one more if they do not divide.
pub(crate) fn ranks_of(member: u64, members: u64, ranks: u64) -> Range<u64> {
    let (share, more) = (ranks / members, ranks % members);
    let first = member * share + member.min(more);
    first..first + share + u64::from(member < more)
}

/// A number that differs between runs and is the same at all members.
pub fn entropy(world: &dyn World, stop: &Stop) -> Result<u64, EarlyEnd> {
    let mut bytes = meter::entropy().to_le_bytes().to_vec();
    world.broadcast(&mut bytes, stop)?;
    <[u8; 8]>::try_from(bytes).map(u64::from_le_bytes).map_err(|bytes| {
        let cause = Cause::Failed(format!("broadcast {} bytes instead of 8", bytes.len()));
        EarlyEnd { member: 0, cause }
    })
}

/// All members' bytes, at all members. For small data, such as facts about hosts.
pub fn gather_to_all(world: &dyn World, bytes: &[u8], stop: &Stop) -> Result<Vec<Vec<u8>>, EarlyEnd> {
    let mut all = Vec::new();
    world.gather(bytes, stop, &mut |_, bytes| all.push(bytes.to_vec()))?;
    (0..world.members())
        .map(|member| {
            let mut bytes = all.get_mut(member as usize).map(std::mem::take).unwrap_or_default();
            world.broadcast(&mut bytes, stop)?;
            Ok(bytes)
        })
        .collect()
}

#[cfg(test)]
mod tests;
