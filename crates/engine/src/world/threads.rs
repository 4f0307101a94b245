//! Several members in one process, one thread each. For tests: they show the behaviour that every world must have,
//! without a second process.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::units::Nanos;
use store::Now;

use super::{Barrier, Cause, ClockOffset, EarlyEnd, World, clock, ranks_of};
use crate::meter::{Clock, Monotonic};
use crate::stop::Stop;

/// How long a wait lasts before it checks whether the other members still respond.
const PERIOD: Duration = Duration::from_millis(20);

/// One member. Dropping it before the others have finished ends the run for them.
#[derive(Debug)]
pub struct ThreadMember {
    hub: Arc<SharedWorld>,
    number: usize,
    ranks: Range<u64>,
}

/// The members of a new world, over which the ranks are distributed evenly.
pub fn members(members: u64, ranks: u64) -> Vec<ThreadMember> {
    let clock = Monotonic::new();
    let seat = || MemberState {
        barrier: None,
        offset: ClockOffset::default(),
        given: None,
        told: None,
        woken: false,
        seen: clock.now(),
    };
    let seats = (0..members).map(|_| seat()).collect();
    let state = SharedState { seats, release: None, round: 0, collected: Arc::default(), ended: None };
    let hub = Arc::new(SharedWorld { clock, state: Mutex::new(state), changed: Condvar::new() });
    let member = |number| ThreadMember {
        hub: Arc::clone(&hub),
        number: number as usize,
        ranks: ranks_of(number, members, ranks),
    };
    (0..members).map(member).collect()
}

#[derive(Debug)]
struct SharedWorld {
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
    /// Number of complete collective calls, and what the members passed to the last one.
    round: u64,
    collected: Arc<Vec<Vec<u8>>>,
    ended: Option<EarlyEnd>,
}

/// The state of one member.
#[derive(Debug)]
struct MemberState {
    /// The last barrier that it arrived at, and when its ranks are done, on member 0's clock.
    barrier: Option<(Barrier, Nanos)>,
    offset: ClockOffset,
    /// The collective call in which it waits, and what it passed to it.
    given: Option<(&'static str, Vec<u8>)>,
    /// The release that its `wait` has reported.
    told: Option<Barrier>,
    woken: bool,
    /// Time of its last call.
    seen: Nanos,
}

impl SharedState {
    fn end(&mut self, member: usize, cause: Cause) -> EarlyEnd {
        self.ended.get_or_insert(EarlyEnd { member: member as u64, cause }).clone()
    }

    /// Ends the run if a member has not responded for the stall timeout.
    fn find_silent(&mut self, now: Nanos, stop: &Stop) {
        let Some(patience) = stop.patience() else { return };
        let silences = self.seats.iter().map(|seat| now.since(seat.seen)).enumerate();
        if let Some((member, silence)) = silences.max_by_key(|(_, silence)| *silence)
            && silence >= patience
        {
            self.end(member, Cause::Silent(silence));
        }
    }
}

impl ThreadMember {
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
            state.end(self.number, Cause::Stopped);
        }
        state.find_silent(self.hub.clock.now(), stop);
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
        let round = state.round;
        state.seats[self.number].given = Some((call, bytes));
        let calls: Vec<&str> = state.seats.iter().filter_map(|seat| Some(seat.given.as_ref()?.0)).collect();
        if calls.iter().any(|other| *other != call) {
            let cause = Cause::Failed(format!("called {call} while others called {}", calls.join(", ")));
            state.end(self.number, cause);
        } else if calls.len() == state.seats.len() {
            let given = state.seats.iter_mut().filter_map(|seat| Some(seat.given.take()?.1));
            let given = given.collect();
            (state.round, state.collected) = (round + 1, Arc::new(given));
            self.hub.changed.notify_all();
        }
        // A round that is complete counts, even if a member left after it.
        while state.round == round {
            self.check(&mut state, stop)?;
            state = self.doze(state, PERIOD);
        }
        Ok(Arc::clone(&state.collected))
    }
}

impl Drop for ThreadMember {
    fn drop(&mut self) {
        let panics = std::thread::panicking();
        let cause = if panics { Cause::Failed("its thread panicked".to_owned()) } else { Cause::Left };
        self.announce(cause);
    }
}

impl World for ThreadMember {
    fn members(&self) -> u64 {
        self.state().seats.len() as u64
    }

    fn member(&self) -> u64 {
        self.number as u64
    }

    fn node(&self) -> u64 {
        self.number as u64
    }

    fn ranks(&self) -> Range<u64> {
        self.ranks.clone()
    }

    fn arrive(&self, barrier: Barrier, last_here: Nanos) {
        let mut state = self.state();
        let seat = &mut state.seats[self.number];
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
                    state.end(self.number, cause);
                    self.hub.changed.notify_all();
                    return;
                }
            }
        }
        state.release = Some((barrier, latest));
        self.hub.changed.notify_all();
    }

    fn released(&self) -> Option<Nanos> {
        let state = self.state();
        let seat = &state.seats[self.number];
        let (barrier, at) = state.release?;
        (seat.barrier.map(|(here, _)| here) == Some(barrier)).then(|| seat.offset.to_local(at))
    }

    fn wait(&self, stop: &Stop, timeout: Duration) -> Result<(), EarlyEnd> {
        let mut state = self.state();
        let has_news = |state: &SharedState| {
            let seat = &state.seats[self.number];
            let released = state.release.map(|(barrier, _)| barrier);
            seat.woken || state.ended.is_some() || released != seat.told
        };
        if !has_news(&state) {
            state = self.doze(state, timeout);
        }
        state.seats[self.number].woken = false;
        state.seats[self.number].told = state.release.map(|(barrier, _)| barrier);
        self.check(&mut state, stop)
    }

    fn wake(&self) {
        self.state().seats[self.number].woken = true;
        self.hub.changed.notify_all();
    }

    fn announce(&self, cause: Cause) {
        self.state().end(self.number, cause);
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

    fn synchronize(&self, clock: &dyn Clock, stop: &Stop) -> Result<ClockOffset, EarlyEnd> {
        let offset = clock::measure(self, clock, stop)?;
        self.state().seats[self.number].offset = offset;
        Ok(offset)
    }
}
