//! Who takes part in a run. Ranks are emulated accelerators; a world knows which of them live in this process and
//! lets all of them meet after a step.

mod solo;

use std::ops::Range;

use model::units::Nanos;

pub use solo::Solo;

/// The processes of a run, as one of them sees them.
pub trait World: Sync {
    /// The ranks that live in this process.
    fn ranks(&self) -> Range<u64>;
    /// Number of this process among the run's processes.
    fn node(&self) -> u64;
    /// When all ranks of the run have finished a step, given when the last one here has. Called by one thread at a
    /// time, whichever that is.
    fn meet(&self, last_here: Nanos) -> Nanos;
}
