//! What the members of a run agree on around each phase: that all can begin it, how it ended, and, while it runs,
//! whether one of them ends. A member that ends early names the member that caused it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::ledger::{Agreement, Ledger, Phase, RunFault};

use super::TrainingSetup;
use crate::accelerators::{Drive, PhaseContext};
use crate::loader::{PhaseFailure, panic_text};
use crate::world::{Cause, EarlyEnd, cores_of_node};

/// How long the thread that waits for other members waits at a time.
const PERIOD: Duration = Duration::from_millis(50);

/// What the members found out before a phase.
#[derive(Debug)]
pub(super) struct PhaseMeeting {
    /// The offset of this member's clock, if it was measured.
    pub(super) agreement: Agreement,
    /// Cores that the members of this node may use together.
    pub(super) cores: f64,
}

/// Waits until all members are ready for a phase; `refused` is the reason why this one is not. Clocks are compared
/// before the first phase of an epoch.
pub(super) fn begin(
    rig: &TrainingSetup<'_>,
    is_first_of_epoch: bool,
    refused: Option<String>,
) -> Result<PhaseMeeting, EarlyEnd> {
    let (world, mut agreement) = (rig.world, Agreement::default());
    world.agree(state(rig, refused), rig.stop)?;
    let cores = cores_of_node(world, rig.stop)?;
    if is_first_of_epoch {
        let clock = world.synchronize(rig.clock, rig.stop)?;
        agreement.clocks.extend((world.members() > 1).then_some((world.member(), clock)));
    }
    Ok(PhaseMeeting { agreement, cores })
}

/// Waits until all members have ended a phase, and returns whether all ended it without failure. A failure of this
/// member is recorded even if another one failed first.
pub(super) fn end(
    rig: &TrainingSetup<'_>,
    ledger: &mut Ledger,
    place: (u64, Phase),
    failure: Option<String>,
) -> Result<(), EarlyEnd> {
    let own = failure.clone();
    rig.world.agree(state(rig, failure), rig.stop).inspect_err(|ended| {
        let own = own
            .map(|message| EarlyEnd::new(rig.world.topology(), rig.world.member(), Cause::Failed(message)));
        if let Some(own) = own.filter(|own| own != ended) {
            note_end(rig, ledger, place, own);
        }
    })
}

/// Waits until all members have finished the run.
pub(super) fn finish(rig: &TrainingSetup<'_>) -> Result<(), EarlyEnd> {
    rig.world.agree(state(rig, None), rig.stop)
}

/// Whether this member can continue.
fn state(rig: &TrainingSetup<'_>, failure: Option<String>) -> Result<(), Cause> {
    match failure {
        Some(message) => Err(Cause::Failed(message)),
        None if rig.stop.wished() => Err(Cause::Stopped),
        None => Ok(()),
    }
}

/// Records in the ledger why the run ends early. All members record the same text, so that it appears once in the sum
/// of their ledgers.
pub(super) fn note_end(
    rig: &TrainingSetup<'_>,
    ledger: &mut Ledger,
    (epoch, phase): (u64, Phase),
    ended: EarlyEnd,
) {
    ledger.interrupted |= rig.stop.requested() || ended.cause == Cause::Stopped;
    let message = match ended.cause {
        Cause::Stopped if rig.world.members() == 1 => return,
        Cause::Failed(message) if rig.world.members() == 1 => message,
        _ => ended.to_string(),
    };
    ledger.add_fault(RunFault { epoch, phase, message });
}

/// Tells the other members that the phase has ended early here.
pub(super) fn announce(context: &PhaseContext<'_>) {
    let run = context.run;
    if let Some(cause) = run.cause() {
        context.world.announce(Cause::Failed(cause));
    } else if run.control.stop.wished() {
        context.world.announce(Cause::Stopped);
    }
    // Otherwise another member is the cause, and all members know it.
}

/// The thread that waits for other members during a phase.
#[derive(Debug, Default)]
pub(super) struct MemberThread {
    over: AtomicBool,
}

impl MemberThread {
    /// Advances the accelerators when a barrier is released, and ends the phase when another member ends.
    pub(super) fn follow(&self, context: &PhaseContext<'_>, drive: &Drive<'_>) {
        let run = context.run;
        let followed = catch_unwind(AssertUnwindSafe(|| {
            // Relaxed: `wake` orders it, and one extra iteration is harmless.
            while !self.over.load(Ordering::Relaxed) {
                if context.world.wait(run.control.stop, PERIOD).is_err() {
                    run.control.abort.wish();
                    run.wake_all();
                    return;
                }
                drive.nudge();
            }
        }));
        if let Err(panic) = followed {
            let cause = format!("the accelerators panicked: {}", panic_text(&*panic));
            run.fail(PhaseFailure { rank: run.first_rank, step: 0, cause });
        }
    }

    /// Ends the thread.
    pub(super) fn end(&self, context: &PhaseContext<'_>) {
        self.over.store(true, Ordering::Relaxed);
        context.world.wake();
    }
}
