//! What the members of a run have in common while they save and restore: which of them share a tier's folder, and how
//! each step of a save, a drain or a restore ended at all of them. A step that failed at one member has failed, so all
//! members take the same decisions. A run of one process has one member, for which none of this does anything.

use model::checkpoint::manifest::Moment;
use model::ledger::{Ledger, Phase, RunFault};
use model::names::Name;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use store::{StoredCheckpoint, Tier};

use super::{CheckpointError, CheckpointSetup, Checkpointer};
use crate::world::{Cause, EarlyEnd, Exchange, entropy, gather_to_all};

/// The members that share each folder of a tier: the first of them locks it, begins and completes checkpoints in it,
/// and removes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sharers {
    /// The first member that has the same folder, for each member.
    first: Vec<u64>,
    member: u64,
}

impl Sharers {
    /// All members share one folder.
    fn all(world: &dyn Exchange) -> Sharers {
        Sharers { first: vec![0; world.members() as usize], member: world.member() }
    }

    /// Every member has a place of its own.
    fn none(world: &dyn Exchange) -> Sharers {
        Sharers { first: (0..world.members()).collect(), member: world.member() }
    }

    /// Whether this member does what is done once per folder.
    pub(super) fn leads(&self) -> bool {
        self.leader() == self.member
    }

    /// The member that does it for this one.
    pub(super) fn leader(&self) -> u64 {
        self.first.get(self.member as usize).copied().unwrap_or_default()
    }

    /// This member's share of work on `count` files that are in its folder: every n-th of them.
    pub(super) fn share(&self, count: usize) -> impl Iterator<Item = usize> {
        let here = (0..).zip(&self.first).filter(|(_, first)| **first == self.leader());
        let (place, members) = here.fold((0, 0), |(place, count), (member, _)| {
            (if member == self.member { count } else { place }, count + 1)
        });
        (place..count).step_by(members.max(1))
    }
}

/// Finds out which members share the folder of the last tier: all of them, or each has a device of its own.
pub(super) fn sharers_of_last(setup: &CheckpointSetup<'_>) -> Sharers {
    match setup.last.files().holds_files() && !setup.only_reads() {
        true => Sharers::all(setup.world),
        false => Sharers::none(setup.world),
    }
}

/// Finds out which members share a folder of the fast tier, which is the same path on every host: usually those of one
/// host, or all if the path is on a shared file system. Every member sets a mark and looks for those of the others. A
/// run that only restores changes nothing, so it sets no marks, and every member reads what it finds.
pub(super) fn sharers_of_fast(setup: &CheckpointSetup<'_>) -> Result<Sharers, CheckpointError> {
    let world = setup.world;
    let Some(fast) = setup.fast.filter(|fast| fast.files().holds_files()) else {
        return Ok(Sharers::none(world));
    };
    if world.members() == 1 || setup.only_reads() {
        return Ok(Sharers::none(world));
    }
    let (run, own) = (entropy(world, setup.stop)?, world.member());
    let mark = |member: u64| format!("{run:016x}-{member}");
    let marked = agreed(setup, fast.mark(&mark(own)).map_err(CheckpointError::from));
    let found = marked.and_then(|()| agreed(setup, first_marked(fast, own, &mark)));
    // A mark that remains is removed by the next run.
    let _ = fast.unmark(&mark(own));
    let all = gather_to_all(world, &found?.to_le_bytes(), setup.stop)?;
    let first = all.into_iter().map(|bytes| <[u8; 8]>::try_from(bytes).map_or(own, u64::from_le_bytes));
    Ok(Sharers { first: first.collect(), member: own })
}

/// The first member whose mark is visible here.
fn first_marked(fast: &dyn Tier, own: u64, mark: &dyn Fn(u64) -> String) -> Result<u64, CheckpointError> {
    for member in 0..own {
        if fast.is_marked(&mark(member))? {
            return Ok(member);
        }
    }
    Ok(own)
}

/// Checks that all members have the same last tier. Only what every node can read is a checkpoint of the run.
pub(super) fn check_last_is_shared(setup: &CheckpointSetup<'_>) -> Result<(), CheckpointError> {
    let (world, last) = (setup.world, setup.last);
    if world.members() == 1 || !last.files().holds_files() {
        return Ok(());
    }
    if setup.only_reads() {
        return check_same_content(setup);
    }
    let (mark, is_first) = (format!("{:016x}-0", entropy(world, setup.stop)?), world.member() == 0);
    let marked = agreed(setup, if is_first { last.mark(&mark).map_err(Into::into) } else { Ok(()) });
    let seen = marked.and_then(|()| {
        let seen = last.is_marked(&mark).map_err(CheckpointError::from);
        agreed(setup, seen.and_then(|seen| if seen { Ok(()) } else { Err(not_shared(setup)) }))
    });
    if is_first {
        // A mark that remains is removed by the next run.
        let _ = last.unmark(&mark);
    }
    seen
}

/// The same for a run that only restores, which leaves no mark: all members must see the same checkpoints. In an object
/// store, where a list takes a request per checkpoint, the others look for the newest one of member 0 only.
fn check_same_content(setup: &CheckpointSetup<'_>) -> Result<(), CheckpointError> {
    type Known = (u64, u64, Moment);
    let known = |there: StoredCheckpoint| -> Known {
        (there.manifest.serial, there.manifest.seed, there.manifest.moment)
    };
    let (last, is_first) = (setup.last, setup.world.member() == 0);
    let lists = is_first || !setup.plan.last.is_objects();
    let listed =
        agreed(setup, if lists { last.list().map_err(CheckpointError::from) } else { Ok(Vec::new()) })?;
    let mut own: Vec<Known> = listed.into_iter().map(known).collect();
    own.sort_unstable();
    let mut sent = serde_json::to_vec(&own).unwrap_or_default();
    setup.world.broadcast(&mut sent, setup.stop)?;
    let of_first: Vec<Known> = serde_json::from_slice(&sent).unwrap_or_default();
    let is_same = match of_first.last() {
        Some(newest) if !lists => {
            last.find(newest.2).map(|there| there.map(known) == Some(*newest)).map_err(CheckpointError::from)
        }
        _ => Ok(!lists || of_first == own),
    };
    agreed(setup, is_same.and_then(|same| if same { Ok(()) } else { Err(not_shared(setup)) }))
}

fn not_shared(setup: &CheckpointSetup<'_>) -> CheckpointError {
    let (topology, root) = (setup.world.topology(), Name::new(".").unwrap_or_default());
    let node = |member| topology.name(topology.node_of(member)).to_owned();
    let folder = setup.last.files().shown(&root).trim_end_matches("/.").to_owned();
    CheckpointError::NotShared { folder, node: node(setup.world.member()), first: node(0) }
}

/// Waits until all members have done something before the run. If it failed at one of them, it fails at all; that
/// member returns its own error. An error may also be a consequence of another member's end, which comes first then.
pub(super) fn agreed<T>(
    setup: &CheckpointSetup<'_>,
    here: Result<T, CheckpointError>,
) -> Result<T, CheckpointError> {
    let cause = here.as_ref().err().map(|cause| Cause::Failed(cause.to_string()));
    match (here, setup.world.agree(cause.map_or(Ok(()), Err), setup.stop)) {
        (Err(cause), Err(ended)) if ended.member == setup.world.member() => Err(cause),
        (_, Err(ended)) => Err(ended.into()),
        (here, Ok(())) => here,
    }
}

/// Why a step failed, as far as all members know it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StepFailure {
    text: String,
    /// See `StepError`.
    is_damage: bool,
}

/// A step that failed, here or at another member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StepError {
    pub(super) cause: CheckpointError,
    /// Whether repeating it would not help, by the first member at which it failed; so all members repeat it or none.
    pub(super) is_damage: bool,
}

impl From<CheckpointError> for StepError {
    fn from(cause: CheckpointError) -> StepError {
        StepError { is_damage: cause.is_damage(), cause }
    }
}

impl From<StepError> for CheckpointError {
    fn from(error: StepError) -> CheckpointError {
        error.cause
    }
}

impl Checkpointer<'_> {
    /// Collective calls of the thread that runs the training, and of the background thread.
    pub(super) fn front(&self) -> &dyn Exchange {
        self.setup.world
    }

    pub(super) fn back(&self) -> &dyn Exchange {
        self.setup.world.background()
    }

    pub(super) fn is_several(&self) -> bool {
        self.setup.world.members() > 1
    }

    /// Gives the results of a step of all members to all of them. If the step failed at some of them, it failed: those
    /// members return their own error, and the others that of the first.
    pub(super) fn combine<T: Serialize + DeserializeOwned>(
        &self,
        line: &dyn Exchange,
        here: Result<T, CheckpointError>,
    ) -> Result<Vec<T>, StepError> {
        if line.members() == 1 {
            return here.map(|value| vec![value]).map_err(StepError::from);
        }
        let report = here.as_ref().map_err(|cause| {
            let (text, is_damage) = (self.named(&cause.to_string()), cause.is_damage());
            StepFailure { text, is_damage }
        });
        let bytes = serde_json::to_vec(&report).unwrap_or_default();
        let all = gather_to_all(line, &bytes, self.setup.stop).map_err(CheckpointError::from)?;
        let (mut values, mut first) = (Vec::with_capacity(all.len()), None);
        for (member, bytes) in all.iter().enumerate() {
            match serde_json::from_slice::<Result<T, StepFailure>>(bytes) {
                Ok(Ok(value)) => values.push(value),
                Ok(Err(failure)) => drop(first.get_or_insert((member as u64, failure))),
                Err(cause) => {
                    let text = format!("process {member} sent a report that cannot be read: {cause}");
                    first.get_or_insert((member as u64, StepFailure { text, is_damage: false }));
                }
            }
        }
        let Some((member, StepFailure { text, is_damage })) = first else { return Ok(values) };
        let cause = match here {
            // All members report it, and one record is enough.
            Err(cause @ CheckpointError::NoSlot(_)) if member == line.member() => cause,
            Ok(_) | Err(CheckpointError::NoSlot(_)) => CheckpointError::Elsewhere(text),
            Err(cause) => cause,
        };
        Err(StepError { cause, is_damage })
    }

    /// A failure that all members found out by themselves: the first one reports it.
    pub(super) fn common(&self, cause: CheckpointError) -> StepError {
        let is_damage = cause.is_damage();
        let cause = match self.setup.world.member() {
            0 => cause,
            _ => CheckpointError::Elsewhere(cause.to_string()),
        };
        StepError { cause, is_damage }
    }

    /// An error with the member at which it occurred.
    pub(super) fn told(&self, cause: &CheckpointError) -> String {
        match cause {
            CheckpointError::Elsewhere(text) => text.clone(),
            cause => self.named(&cause.to_string()),
        }
    }

    /// A text about this member.
    pub(super) fn named(&self, text: &str) -> String {
        let (world, topology) = (self.setup.world, self.setup.world.topology());
        match topology.members() {
            1 => text.to_owned(),
            _ => format!("process {} on {}: {text}", world.member(), topology.name(world.node())),
        }
    }

    /// Records that the run ends early. The other members cannot be waited for any more, so all background work ends.
    pub(super) fn end(&self, ended: EarlyEnd) {
        let mut state = self.state();
        state.ended.get_or_insert(ended);
        state.jobs.clear();
        drop(state);
        self.changed.notify_all();
    }

    /// Whether the run ends early.
    pub(super) fn is_over(&self) -> bool {
        self.setup.stop.wished() || self.state().ended.is_some()
    }
}

/// Records in the ledger why the run ended early, unless that is known already. All members record the same text.
pub fn note_end(ledger: &mut Ledger, epoch: u64, ended: &EarlyEnd) {
    ledger.interrupted |= ended.cause == Cause::Stopped;
    if ledger.faults().is_empty() {
        ledger.add_fault(RunFault { epoch, phase: Phase::Train, message: ended.to_string() });
    }
}
