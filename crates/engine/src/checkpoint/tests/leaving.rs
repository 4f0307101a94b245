//! A member that leaves at any of its collective calls: all others end and name it, no partial checkpoint counts as
//! complete, and no complete one is lost. The next run, with another number of processes, cleans up.

use std::sync::atomic::AtomicU64;

use model::ledger::{Agreement, ClockReading};

use super::faults::tree;
use super::nodes::{Cluster, Kept};
use super::*;
use crate::figures::LiveFigures;
use crate::world::threads::{ThreadMember, members_on};
use crate::world::{Barrier, Cause, Exchange, Topology};

/// A member that leaves at its call number `at`, of either sequence, as if it were killed.
struct Leaving {
    inner: ThreadMember,
    at: u64,
    calls: AtomicU64,
}

/// One of its sequences of calls.
struct LeavingLine<'a> {
    member: &'a Leaving,
    line: &'a dyn Exchange,
}

impl Leaving {
    fn call(&self) {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.at {
            self.inner.announce(Cause::Left);
        }
    }
}

impl Exchange for LeavingLine<'_> {
    fn topology(&self) -> &Topology {
        self.line.topology()
    }
    fn member(&self) -> u64 {
        self.line.member()
    }
    fn announce(&self, cause: Cause) {
        self.line.announce(cause);
    }
    fn agree(&self, here: Result<(), Cause>, stop: &Stop) -> Result<(), EarlyEnd> {
        self.member.call();
        self.line.agree(here, stop)
    }
    fn broadcast(&self, bytes: &mut Vec<u8>, stop: &Stop) -> Result<(), EarlyEnd> {
        self.member.call();
        self.line.broadcast(bytes, stop)
    }
    fn gather(&self, bytes: &[u8], stop: &Stop, take: &mut dyn FnMut(u64, &[u8])) -> Result<(), EarlyEnd> {
        self.member.call();
        self.line.gather(bytes, stop, take)
    }
}

/// The member with its two sequences.
struct LeavingWorld<'a> {
    front: LeavingLine<'a>,
    back: LeavingLine<'a>,
}

impl Exchange for LeavingWorld<'_> {
    fn topology(&self) -> &Topology {
        self.front.topology()
    }
    fn member(&self) -> u64 {
        self.front.member()
    }
    fn announce(&self, cause: Cause) {
        self.front.announce(cause);
    }
    fn agree(&self, here: Result<(), Cause>, stop: &Stop) -> Result<(), EarlyEnd> {
        self.front.agree(here, stop)
    }
    fn broadcast(&self, bytes: &mut Vec<u8>, stop: &Stop) -> Result<(), EarlyEnd> {
        self.front.broadcast(bytes, stop)
    }
    fn gather(&self, bytes: &[u8], stop: &Stop, take: &mut dyn FnMut(u64, &[u8])) -> Result<(), EarlyEnd> {
        self.front.gather(bytes, stop, take)
    }
}

impl World for LeavingWorld<'_> {
    fn arrive(&self, _: Barrier, _: Nanos) {}
    fn released(&self) -> Option<Nanos> {
        None
    }
    fn wait(&self, _: &Stop, _: Duration) -> Result<(), EarlyEnd> {
        Ok(())
    }
    fn wake(&self) {}
    fn synchronize(&self, _: &dyn Clock, _: &Stop) -> Result<ClockReading, EarlyEnd> {
        Ok(ClockReading::default())
    }
    fn background(&self) -> &dyn Exchange {
        &self.back
    }
    fn publish(&self, _: LiveFigures) {}
    fn figures(&self) -> Vec<(u64, LiveFigures)> {
        Vec::new()
    }
    fn take_agreement(&self) -> Vec<(u64, Agreement)> {
        Vec::new()
    }
    fn transport(&self) -> Option<String> {
        None
    }
}

const HOSTS: [&str; 2] = ["a", "b"];

/// Saves two checkpoints, and then two more with a member that leaves at its call number `at`: one that replaces the
/// second, and a new one. Returns whether it made that call.
fn leaves(mode: &str, settings: &[&str], who: u64, at_call: u64) -> bool {
    let cluster = Cluster::new(mode, settings);
    cluster.run(&HOSTS, |checkpointer| (checkpointer.save(at(1)), checkpointer.save(at(2))));
    let kept: Vec<(u64, Kept<()>, u64)> = std::thread::scope(|scope| {
        let one = |inner: ThreadMember| {
            let cluster = &cluster;
            scope.spawn(move || {
                let member = inner.member();
                let at_call = if member == who { at_call } else { u64::MAX };
                let leaving = Leaving { at: at_call, calls: AtomicU64::new(0), inner };
                let line = |line| LeavingLine { member: &leaving, line };
                let world =
                    LeavingWorld { front: line(&leaving.inner), back: line(leaving.inner.background()) };
                let kept = cluster.run_one(&world, |checkpointer| {
                    checkpointer.save(at(2));
                    checkpointer.save(at(3));
                });
                // No member ends before all have what they need.
                let _ = leaving.inner.agree(Ok(()), &cluster.stop);
                (member, kept, leaving.calls.load(Ordering::Relaxed))
            })
        };
        let threads: Vec<_> = members_on(&HOSTS).into_iter().map(one).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let place = format!("{mode}, process {who} at call {at_call}");
    let left = kept.iter().any(|(member, _, calls)| *member == who && *calls > at_call);
    // Complete at all members: it must not be lost.
    let mut promised = at(2);
    for moment in [at(2), at(3)] {
        let is_complete = |(_, kept, _): &(u64, Kept<()>, u64)| {
            let saves = kept.as_ref().map_or(&[][..], |kept| &kept.saves);
            saves.iter().any(|save| save.moment == moment && save.is_complete())
        };
        if kept.iter().all(is_complete) {
            promised = moment;
        }
    }
    for (member, kept, _) in kept {
        let ended = match kept {
            Ok(kept) => kept.ended,
            Err(CheckpointError::Member(ended)) => Some(*ended),
            Err(other) => panic!("{place}: process {member}: {other}"),
        };
        let named = ended.map(|ended| (ended.member, ended.cause));
        assert_eq!(named, left.then_some((who, Cause::Left)), "{place}: process {member}");
    }
    recovers(&cluster, promised, &place);
    left
}

/// What the next runs find.
fn recovers(cluster: &Cluster, promised: Moment, place: &str) {
    let (found, _) = cluster.run(&HOSTS, |checkpointer| {
        checkpointer.settle();
        checkpointer.restore(newest()).unwrap().moment
    });
    assert!(
        found.iter().all(|moment| *moment >= promised),
        "{place}: {found:?}, but {promised:?} was complete"
    );
    // Saved again by one process, then by two: nothing is in the way, and parts without the others are replaced.
    let (_, saved) = cluster.run(&["a"], |checkpointer| checkpointer.save(at(4)));
    assert!(saved[0].durable_ns.is_some(), "{place}: {saved:?}");
    let (_, saved) = cluster.run(&HOSTS, |checkpointer| {
        for step in [1, 2, 3] {
            checkpointer.save(at(step));
        }
    });
    assert!(saved.iter().all(|save| save.durable_ns.is_some()), "{place}: {saved:?}");
    let names =
        tree(&cluster.last()).into_keys().filter(|name| name.contains("draft") || name.contains("partial"));
    assert_eq!(names.collect::<Vec<_>>(), [""; 0], "{place}");
    for node in HOSTS.iter().filter(|node| cluster.fast(node).exists()) {
        assert_eq!(tree(&cluster.fast(node)).into_keys().collect::<Vec<_>>(), [""; 0], "{place}: {node}");
    }
}

fn at_every_call(mode: &str, settings: &[&str]) {
    for who in [0, 1] {
        let calls = (0..).take_while(|at_call| leaves(mode, settings, who, *at_call)).count();
        assert!(calls > 20, "{mode}: {calls} calls");
    }
}

#[test]
fn a_member_may_leave_at_any_call_of_a_direct_save() {
    at_every_call("direct", &[]);
}

#[test]
fn a_member_may_leave_at_any_call_of_a_save_without_fsync() {
    at_every_call("direct", &["checkpoint.fsync=false"]);
}

#[test]
fn a_member_may_leave_at_any_call_of_an_async_save() {
    at_every_call("async", &[]);
}

#[test]
fn a_member_may_leave_at_any_call_of_a_save_to_a_burst_buffer_and_its_drain() {
    at_every_call("burst-buffer", &[]);
}
