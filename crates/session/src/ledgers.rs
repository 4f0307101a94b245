//! Adds up the ledgers of a run's members at member 0. Nothing here waits for a member that has ended: what is missing
//! is missing in the sum, which names the members that have not reported.

use engine::host::{self, Host};
use engine::world::{Cause, EarlyEnd, Exchange};
use engine::{Stop, World};
use model::ledger::{Conditions, Ledger, ObservedMember, Phase, RunFault};
use model::verdict::Verdict;

use crate::run::RunTask;

/// Describes the members of a run of several. Member 0 also names those that may not report. `None` for a run of one
/// process.
pub(crate) fn conditions(world: &dyn World, host: &Host, ranks: u64) -> Option<Conditions> {
    let (topology, own) = (world.topology(), world.member());
    let observed = |member: u64| {
        let (node, played) = (topology.node_of(member), topology.ranks(member, ranks));
        let known = ObservedMember {
            node,
            host: topology.name(node).to_owned(),
            first_rank: played.start,
            ranks: played.end - played.start,
            ..ObservedMember::default()
        };
        let (cores, memory_bytes) = (host.cores, host.memory_bytes);
        match member == own {
            true => {
                let peak_rss_bytes = host::peak_rss_bytes();
                ObservedMember { reported: true, cores, memory_bytes, peak_rss_bytes, ..known }
            }
            false => known,
        }
    };
    let described = if own == 0 { 0..world.members() } else { own..own + 1 };
    (world.members() > 1).then(|| Conditions {
        members: described.map(|member| (member, observed(member))).collect(),
        // Process 0 has a connection to every other process.
        transports: world.transport().into_iter().filter(|_| own == 0).collect(),
        ..Conditions::default()
    })
}

/// The sum of all members' ledgers at member 0. The others get it if the task shares it; otherwise they keep their own.
pub(crate) fn add_up(own: Ledger, task: &RunTask<'_>) -> Ledger {
    let RunTask { world, share, stop, .. } = *task;
    match (world.members(), share) {
        (1, _) => own,
        (_, false) => gathered(own, world, stop),
        (_, true) => shared(gathered(own, world, stop), world, stop),
    }
}

fn gathered(mut sum: Ledger, world: &dyn Exchange, stop: &Stop) -> Ledger {
    sum.pool();
    // Member 0 adds to its own ledger. A ledger that cannot be written or read counts as one that is missing.
    let own = if world.member() == 0 { Vec::new() } else { serde_json::to_vec(&sum).unwrap_or_default() };
    let gathered = world.gather(&own, stop, &mut |member, written| {
        if member > 0
            && let Ok(ledger) = serde_json::from_slice::<Ledger>(written)
        {
            sum += ledger;
        }
    });
    noted(sum, gathered)
}

/// Gives member 0's ledger to all members. All of them read the same bytes, so that they compute the same figures.
fn shared(ledger: Ledger, world: &dyn Exchange, stop: &Stop) -> Ledger {
    let mut written =
        if world.member() == 0 { serde_json::to_vec(&ledger).unwrap_or_default() } else { Vec::new() };
    match world.broadcast(&mut written, stop) {
        Ok(()) => match serde_json::from_slice::<Ledger>(&written) {
            Ok(mut shared) => {
                // The records of a process are its own.
                shared.records = ledger.records;
                shared
            }
            Err(_) => ledger,
        },
        ended => noted(ledger, ended),
    }
}

/// Records in the ledger that the members ended before its sum was complete. A ledger of a run that ended early already
/// says why.
fn noted(mut ledger: Ledger, ended: Result<(), EarlyEnd>) -> Ledger {
    if let Err(ended) = ended
        && ledger.faults().is_empty()
        && !ledger.interrupted
    {
        ledger.interrupted = ended.cause == Cause::Stopped;
        let epoch = ledger.epochs(Phase::Train).last().copied().unwrap_or(1);
        ledger.add_fault(RunFault { epoch, phase: Phase::Train, message: ended.to_string() });
    }
    ledger
}

/// Member 0's verdict, at all members. If it cannot be known, that of this member, whose ledger says that the run ended
/// early.
pub(crate) fn agreed_verdict(task: &RunTask<'_>, judge: impl Fn() -> Verdict) -> Verdict {
    let RunTask { world, stop, .. } = *task;
    if world.members() == 1 {
        return judge();
    }
    let own = (world.member() == 0).then(&judge);
    let mut written = own.as_ref().and_then(|own| serde_json::to_vec(own).ok()).unwrap_or_default();
    let shared =
        world.broadcast(&mut written, stop).ok().and_then(|()| serde_json::from_slice(&written).ok());
    own.or(shared).unwrap_or_else(judge)
}

#[cfg(test)]
mod tests {
    use engine::world::threads::{ThreadMember, members_on};
    use model::ledger::{PhaseRecord, RankRow};
    use model::units::Nanos;

    use super::*;

    /// The ledger of a member that played one rank.
    fn ledger(world: &dyn World) -> Ledger {
        let (mut ledger, rank) = (Ledger::default(), world.member());
        ledger.add(3, Phase::Train, rank, RankRow { steps: 1 + rank, ..RankRow::default() });
        ledger.conditions += conditions(world, &Host::default(), world.members()).unwrap_or_default();
        ledger
    }

    fn at_all<T: Send>(worlds: Vec<ThreadMember>, work: impl Fn(&ThreadMember) -> T + Sync) -> Vec<T> {
        let work = &work;
        std::thread::scope(|scope| {
            let threads = worlds.into_iter().map(|world| scope.spawn(move || work(&world)));
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn stop() -> Stop {
        Stop::default().with_patience(Some(Nanos(20_000_000_000)))
    }

    #[test]
    fn member_0_gets_the_sum_and_all_get_it_if_it_is_shared() {
        let work = |world: &ThreadMember| {
            let sum = gathered(ledger(world), world, &stop());
            (sum.clone(), shared(sum, world, &stop()))
        };
        let ledgers = at_all(members_on(&["a", "a", "b"]), work);
        let whole = &ledgers[0].0;
        assert_eq!(whole.total(3, Phase::Train).steps, 1 + 2 + 3);
        assert_eq!((whole.missing().count(), whole.conditions.members.len()), (0, 3));
        let hosts: Vec<Option<&str>> = (0..3).map(|rank| whole.host_of(rank)).collect();
        assert_eq!(hosts, [Some("a"), Some("a"), Some("b")]);
        assert_eq!(ledgers[2].0.total(3, Phase::Train).steps, 3, "the others keep their own");
        assert!(ledgers.iter().all(|(_, shared)| shared == whole), "{ledgers:?}");
    }

    #[test]
    fn every_member_keeps_its_own_records() {
        let work = |world: &ThreadMember| {
            let (mut own, rank) = (ledger(world), world.member());
            own.records.origin = Nanos(100 + rank);
            own.records.phases.insert((3, Phase::Train, rank), PhaseRecord::default());
            let sum = gathered(own, world, &stop());
            [sum.records.clone(), shared(sum, world, &stop()).records]
        };
        for (rank, records) in (0..).zip(at_all(members_on(&["a", "b"]), work)) {
            for kept in records {
                assert_eq!((kept.ranks(), kept.origin), (vec![rank], Nanos(100 + rank)));
            }
        }
    }

    #[test]
    fn the_ledger_of_a_member_that_left_is_missing_and_nobody_waits() {
        let ledgers = at_all(members_on(&["a", "b", "c"]), |world| {
            let own = ledger(world);
            match world.member() {
                1 => own,
                _ => gathered(own, world, &stop()),
            }
        });
        let whole = &ledgers[0];
        let missing: Vec<(u64, &str)> = whole.missing().map(|(number, one)| (number, &*one.host)).collect();
        assert!(missing.contains(&(1, "b")), "{missing:?}");
        let fault = &whole.faults()[0];
        assert_eq!((fault.epoch, fault.phase), (3, Phase::Train));
        assert_eq!(fault.message, "process 1 on b left before the run was complete");
        assert_eq!(ledgers[2].faults(), whole.faults());
    }
}
