//! Several members in one process, one thread each. For tests: they show the behaviour that every world must have,
//! without a second process.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::ledger::{Agreement, ClockReading};
use model::units::Nanos;
use store::Now;

use super::{Barrier, Cause, EarlyEnd, Exchange, HostIdentity, Topology, World, clock};
use crate::figures::LiveFigures;
use crate::meter::{Clock, Monotonic};
use crate::stop::Stop;

/// How long a wait lasts before it checks whether the other members still respond.
const PERIOD: Duration = Duration::from_millis(20);

/// One member. Dropping it before the others have finished ends the run for them.
#[derive(Debug)]
pub struct ThreadMember {
    line: Line,
    background: Line,
}

/// One of a member's two sequences of collective calls.
#[derive(Debug)]
struct Line {
    hub: Arc<SharedWorld>,
    number: usize,
    /// Which of the two it is.
    line: usize,
}

/// The members of a new world, each on a host of its own.
pub fn members(members: u64) -> Vec<ThreadMember> {
    let hosts: Vec<String> = (0..members).map(|member| format!("host{member}")).collect();
    members_on(&hosts.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The members of a new world, one on each of the named hosts.
pub fn members_on(hosts: &[&str]) -> Vec<ThreadMember> {
    let identity =
        |name: &&str| HostIdentity { name: (*name).to_owned(), boot_id: "of this machine".to_owned() };
    members_of(Topology::new(&hosts.iter().map(identity).collect::<Vec<_>>()))
}

/// The members of a new world with this topology.
pub fn members_of(topology: Topology) -> Vec<ThreadMember> {
    let clock = Monotonic::new();
    let seat = || MemberState {
        barrier: None,
        offset: ClockReading::default(),
        given: [None, None],
        told: None,
        woken: false,
        seen: clock.now(),
        figures: LiveFigures::default(),
        observed: BTreeMap::new(),
    };
    let count = topology.members() as usize;
    let seats = (0..count).map(|_| seat()).collect();
    let state = SharedState {
        seats,
        release: None,
        released_at: Nanos::ZERO,
        lines: Default::default(),
        ended: None,
    };
    let hub = Arc::new(SharedWorld { topology, clock, state: Mutex::new(state), changed: Condvar::new() });
    let line = |number, line| Line { hub: Arc::clone(&hub), number, line };
    let member = |number| ThreadMember { line: line(number, 0), background: line(number, 1) };
    (0..count).map(member).collect()
}

#[derive(Debug)]
struct SharedWorld {
    topology: Topology,
    /// Measures how long a member has not responded.
    clock: Monotonic,
    state: Mutex<SharedState>,
    changed: Condvar,
}

#[derive(Debug)]
struct SharedState {
    seats: Vec<MemberState>,
    /// The last barrier that all members have arrived at, and when it is released, on member 0's clock.
    release: Option<(Barrier, Nanos)>,
    /// When that was known, on the clock of the world.
    released_at: Nanos,
    lines: [Collected; 2],
    ended: Option<EarlyEnd>,
}

/// Number of complete collective calls of one sequence, and what the members passed to the last one.
#[derive(Debug, Default)]
struct Collected {
    round: u64,
    given: Arc<Vec<Vec<u8>>>,
}

/// The state of one member.
#[derive(Debug)]
struct MemberState {
    /// The last barrier that it arrived at, and when its ranks are done, on member 0's clock.
    barrier: Option<(Barrier, Nanos)>,
    offset: ClockReading,
    /// The collective call of each sequence in which it waits, and what it passed to it.
    given: [Option<(&'static str, Vec<u8>)>; 2],
    /// The release that its `wait` has reported.
    told: Option<Barrier>,
    woken: bool,
    /// Time of its last call.
    seen: Nanos,
    figures: LiveFigures,
    /// What it observed of the barriers, by node.
    observed: BTreeMap<u64, Agreement>,
}

impl SharedState {
    /// Member 0 observes which node arrived at a barrier last.
    fn book_last(&mut self, topology: &Topology) {
        let mut arrivals: BTreeMap<u64, Nanos> = BTreeMap::new();
        for (member, seat) in (0..).zip(&self.seats) {
            let at = seat.barrier.map_or(Nanos::ZERO, |(_, at)| at);
            let latest = arrivals.entry(topology.node_of(member)).or_default();
            *latest = at.max(*latest);
        }
        let latest = arrivals.iter().map(|(node, at)| (*at, *node)).max();
        let before = arrivals.iter().map(|(node, at)| (*at, *node)).filter(|one| Some(*one) != latest).max();
        if let (Some((last, node)), Some((before, _))) = (latest, before) {
            let observed = self.seats[0].observed.entry(node).or_default();
            observed.barriers += 1;
            observed.last += u64::from(last > before);
            observed.last_ns += last.since(before);
        }
    }

    fn end(&mut self, topology: &Topology, member: usize, cause: Cause) {
        let place = self.seats[member].barrier.map(|(barrier, _)| barrier);
        self.ended.get_or_insert(EarlyEnd { place, ..EarlyEnd::new(topology, member as u64, cause) });
    }

    /// Ends the run if a member has not responded for the stall timeout.
    fn find_silent(&mut self, topology: &Topology, now: Nanos, stop: &Stop) {
        let Some(patience) = stop.patience() else { return };
        let silences = self.seats.iter().map(|seat| now.since(seat.seen)).enumerate();
        if let Some((member, silence)) = silences.max_by_key(|(_, silence)| *silence)
            && silence >= patience
        {
            self.end(topology, member, Cause::Silent(silence));
        }
    }
}

impl Line {
    /// The state; records that this member responds.
    fn state(&self) -> MutexGuard<'_, SharedState> {
        let mut state = self.hub.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.seats[self.number].seen = self.hub.clock.now();
        state
    }

    fn doze<'a>(&self, state: MutexGuard<'a, SharedState>, timeout: Duration) -> MutexGuard<'a, SharedState> {
        let mut state =
            self.hub.changed.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0;
        state.seats[self.number].seen = self.hub.clock.now();
        state
    }

    /// Checks for reasons to end: a stop request here, or a member that does not respond.
    fn check(&self, state: &mut SharedState, stop: &Stop) -> Result<(), EarlyEnd> {
        if stop.wished() {
            state.end(&self.hub.topology, self.number, Cause::Stopped);
        }
        state.find_silent(&self.hub.topology, self.hub.clock.now(), stop);
        match &state.ended {
            Some(ended) => {
                self.hub.changed.notify_all();
                Err(ended.clone())
            }
            None => Ok(()),
        }
    }

    /// Waits until all members have made the same collective call, and returns what each passed to it.
    fn collect(
        &self,
        call: &'static str,
        bytes: Vec<u8>,
        stop: &Stop,
    ) -> Result<Arc<Vec<Vec<u8>>>, EarlyEnd> {
        let mut state = self.state();
        self.check(&mut state, stop)?;
        let line = self.line;
        let round = state.lines[line].round;
        state.seats[self.number].given[line] = Some((call, bytes));
        let given = state.seats.iter().filter_map(|seat| seat.given[line].as_ref());
        let calls: Vec<&str> = given.map(|(call, _)| *call).collect();
        if calls.iter().any(|other| *other != call) {
            let cause = Cause::Failed(format!("called {call} while others called {}", calls.join(", ")));
            state.end(&self.hub.topology, self.number, cause);
        } else if calls.len() == state.seats.len() {
            let given = state.seats.iter_mut().filter_map(|seat| Some(seat.given[line].take()?.1));
            state.lines[line] = Collected { given: Arc::new(given.collect()), round: round + 1 };
            self.hub.changed.notify_all();
        }
        // A round that is complete counts, even if a member left after it.
        while state.lines[line].round == round {
            self.check(&mut state, stop)?;
            state = self.doze(state, PERIOD);
        }
        Ok(Arc::clone(&state.lines[line].given))
    }
}

impl Drop for ThreadMember {
    fn drop(&mut self) {
        let panics = std::thread::panicking();
        let cause = if panics { Cause::Failed("its thread panicked".to_owned()) } else { Cause::Left };
        self.announce(cause);
    }
}

impl Exchange for Line {
    fn topology(&self) -> &Topology {
        &self.hub.topology
    }

    fn member(&self) -> u64 {
        self.number as u64
    }

    fn announce(&self, cause: Cause) {
        self.state().end(&self.hub.topology, self.number, cause);
        self.hub.changed.notify_all();
    }

    fn agree(&self, here: Result<(), Cause>, stop: &Stop) -> Result<(), EarlyEnd> {
        if let Err(cause) = here {
            self.announce(cause);
        }
        self.collect("agree", Vec::new(), stop).map(|_| ())
    }

    fn broadcast(&self, bytes: &mut Vec<u8>, stop: &Stop) -> Result<(), EarlyEnd> {
        let given = if self.number == 0 { std::mem::take(bytes) } else { Vec::new() };
        let collected = self.collect("broadcast", given, stop)?;
        bytes.clone_from(&collected[0]);
        Ok(())
    }

    fn gather(&self, bytes: &[u8], stop: &Stop, take: &mut dyn FnMut(u64, &[u8])) -> Result<(), EarlyEnd> {
        let collected = self.collect("gather", bytes.to_vec(), stop)?;
        if self.number == 0 {
            (0..).zip(collected.iter()).for_each(|(member, bytes)| take(member, bytes));
        }
        Ok(())
    }
}

impl Exchange for ThreadMember {
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
        self.line.agree(here, stop)
    }

    fn broadcast(&self, bytes: &mut Vec<u8>, stop: &Stop) -> Result<(), EarlyEnd> {
        self.line.broadcast(bytes, stop)
    }

    fn gather(&self, bytes: &[u8], stop: &Stop, take: &mut dyn FnMut(u64, &[u8])) -> Result<(), EarlyEnd> {
        self.line.gather(bytes, stop, take)
    }
}

impl World for ThreadMember {
    fn arrive(&self, barrier: Barrier, last_here: Nanos) {
        let (mut state, number) = (self.line.state(), self.line.number);
        let seat = &mut state.seats[number];
        seat.barrier = Some((barrier, seat.offset.to_common(last_here)));
        let mut latest = Nanos::ZERO;
        for other in 0..state.seats.len() {
            match state.seats[other].barrier {
                Some((there, at)) if there == barrier => latest = latest.max(at),
                // It has not arrived since the last release.
                None => return,
                there if there.map(|(there, _)| there) == state.release.map(|(there, _)| there) => return,
                Some((there, _)) => {
                    let cause = Cause::Diverged { at: barrier, other: other as u64, there };
                    state.end(self.topology(), number, cause);
                    self.line.hub.changed.notify_all();
                    return;
                }
            }
        }
        state.book_last(self.topology());
        state.released_at = self.line.hub.clock.now();
        state.release = Some((barrier, latest));
        self.line.hub.changed.notify_all();
    }

    fn released(&self) -> Option<Nanos> {
        let state = self.line.state();
        let seat = &state.seats[self.line.number];
        let (barrier, at) = state.release?;
        (seat.barrier.map(|(here, _)| here) == Some(barrier)).then(|| seat.offset.to_local(at))
    }

    fn wait(&self, stop: &Stop, timeout: Duration) -> Result<(), EarlyEnd> {
        let (mut state, number) = (self.line.state(), self.line.number);
        let has_news = |state: &SharedState| {
            let seat = &state.seats[number];
            let released = state.release.map(|(barrier, _)| barrier);
            seat.woken || state.ended.is_some() || released != seat.told
        };
        if !has_news(&state) {
            state = self.line.doze(state, timeout);
        }
        state.seats[number].woken = false;
        let released = state.release.map(|(barrier, _)| barrier);
        if state.seats[number].told != released {
            let latency = self.line.hub.clock.now().since(state.released_at);
            let node = self.topology().node_of(number as u64);
            state.seats[number].observed.entry(node).or_default().latency.record(latency);
        }
        state.seats[number].told = released;
        self.line.check(&mut state, stop)
    }

    fn wake(&self) {
        self.line.state().seats[self.line.number].woken = true;
        self.line.hub.changed.notify_all();
    }

    fn synchronize(&self, clock: &dyn Clock, stop: &Stop) -> Result<ClockReading, EarlyEnd> {
        let offset = clock::measure(self, clock, stop)?;
        self.line.state().seats[self.line.number].offset = offset;
        Ok(offset)
    }

    fn background(&self) -> &dyn Exchange {
        &self.background
    }

    fn publish(&self, figures: LiveFigures) {
        self.line.state().seats[self.line.number].figures = figures;
    }

    fn figures(&self) -> Vec<(u64, LiveFigures)> {
        let (state, own) = (self.line.state(), self.line.number);
        let others = (0..).zip(&state.seats).filter(|(number, _)| *number != own as u64 && own == 0);
        others.map(|(number, seat)| (number, seat.figures.clone())).collect()
    }

    fn take_agreement(&self) -> Vec<(u64, Agreement)> {
        std::mem::take(&mut self.line.state().seats[self.line.number].observed).into_iter().collect()
    }

    fn transport(&self) -> Option<String> {
        Some("threads of one process".to_owned())
    }
}
