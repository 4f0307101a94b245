//! Collective calls over the connections. Every member tells member 0 which call it makes; member 0 answers when all
//! have made the same one.

use std::sync::Arc;

use store::Now;

use super::super::{Cause, EarlyEnd, Exchange, Topology};
use super::state::{ClusterState, LineState};
use super::wire::{CallNumber, ClusterMessage, CollectiveKind};
use super::{Cluster, Connections, DECISION, PERIOD, lock};
use crate::stop::Stop;

/// One of a member's two sequences of collective calls.
#[derive(Debug)]
pub(super) struct ClusterLine {
    pub(super) shared: Arc<Connections>,
    pub(super) line: u8,
}

impl Connections {
    /// Waits until `ready` returns something. What is ready counts, even if the run has ended meanwhile.
    pub(super) fn until<T>(
        &self,
        stop: &Stop,
        mut ready: impl FnMut(&mut ClusterState) -> Option<T>,
    ) -> Result<T, EarlyEnd> {
        loop {
            let mut state = lock(&self.state);
            if let Some(value) = ready(&mut state) {
                return Ok(value);
            }
            self.check(&mut state, stop)?;
            let news = state.news;
            drop(state);
            self.receive_or_wait(news, PERIOD);
        }
    }

    /// Checks for reasons to end: a stop request here, or the end of the run.
    pub(super) fn check(&self, state: &mut ClusterState, stop: &Stop) -> Result<(), EarlyEnd> {
        state.patience = stop.patience().or(state.patience);
        let now = self.clock.now();
        if stop.wished() && state.ended.is_none() && state.proposed.is_none() {
            let ended = EarlyEnd::new(&self.topology, self.member, Cause::Stopped);
            if self.member == 0 {
                self.end(state, ended);
            } else {
                state.proposed = Some((ended.clone(), now));
                self.send(0, &ClusterMessage::Ended(ended));
            }
        }
        if let Some((proposed, at)) = &state.proposed
            && now.since(*at) > DECISION
        {
            let proposed = proposed.clone();
            self.end(state, proposed);
        }
        state.ended.clone().map_or(Ok(()), Err)
    }
}

impl ClusterLine {
    fn of<'s>(&self, state: &'s mut ClusterState) -> &'s mut LineState {
        &mut state.lines[usize::from(self.line)]
    }

    /// Begins a collective call. Member 0 waits until all other members have made it.
    fn begin(&self, kind: CollectiveKind, stop: &Stop) -> Result<CallNumber, EarlyEnd> {
        let mut state = lock(&self.shared.state);
        self.shared.check(&mut state, stop)?;
        let line = self.of(&mut state);
        let number = CallNumber { line: self.line, round: line.round };
        line.round += 1;
        drop(state);
        if self.shared.member != 0 {
            self.shared.send(0, &ClusterMessage::Call { number, kind });
            return Ok(number);
        }
        let other = self.shared.until(stop, |state| {
            let calls = &mut self.of(state).calls;
            let there =
                |call: &Option<(u64, CollectiveKind)>| call.filter(|(round, _)| *round == number.round);
            let others = (1..).zip(&calls[1..]).filter_map(|(member, call)| Some((member, there(call)?.1)));
            let other = others.clone().find(|(_, made)| *made != kind);
            let is_complete = others.count() == calls.len() - 1;
            if is_complete && other.is_none() {
                calls.fill(None);
            }
            (is_complete || other.is_some()).then_some(other)
        })?;
        if let Some((member, made)) = other {
            let what = format!("called {} while others called {}", made.name(), kind.name());
            let ended = EarlyEnd::new(&self.shared.topology, member, Cause::Failed(what));
            let mut state = lock(&self.shared.state);
            self.shared.end(&mut state, ended);
            self.shared.check(&mut state, stop)?;
        }
        Ok(number)
    }

    /// Waits for member 0's answer to a call, or gives it.
    fn answer(&self, number: CallNumber, bytes: Vec<u8>, stop: &Stop) -> Result<Vec<u8>, EarlyEnd> {
        if self.shared.member == 0 {
            let answer = ClusterMessage::Answer { number, bytes };
            self.shared.send_to_peers(&answer);
            let ClusterMessage::Answer { bytes, .. } = answer else { return Ok(Vec::new()) };
            return Ok(bytes);
        }
        self.shared.until(stop, |state| {
            let answer = &mut self.of(state).answer;
            answer.take_if(|(round, _)| *round == number.round).map(|(_, bytes)| bytes)
        })
    }
}

impl Exchange for ClusterLine {
    fn topology(&self) -> &Topology {
        &self.shared.topology
    }

    fn member(&self) -> u64 {
        self.shared.member
    }

    fn announce(&self, cause: Cause) {
        self.shared.announce(cause);
    }

    fn agree(&self, here: Result<(), Cause>, stop: &Stop) -> Result<(), EarlyEnd> {
        if let Err(cause) = here {
            self.announce(cause);
            // The call is not completed by any member: it ends with the decision which member ended the run.
            return self.shared.until(stop, |_| None);
        }
        let number = self.begin(CollectiveKind::Agree, stop)?;
        self.answer(number, Vec::new(), stop).map(drop)
    }

    fn broadcast(&self, bytes: &mut Vec<u8>, stop: &Stop) -> Result<(), EarlyEnd> {
        let number = self.begin(CollectiveKind::Broadcast, stop)?;
        *bytes = self.answer(number, std::mem::take(bytes), stop)?;
        Ok(())
    }

    fn gather(&self, bytes: &[u8], stop: &Stop, take: &mut dyn FnMut(u64, &[u8])) -> Result<(), EarlyEnd> {
        let number = self.begin(CollectiveKind::Gather, stop)?;
        if self.shared.member != 0 {
            self.shared.until(stop, |state| self.of(state).asked.take_if(|round| *round == number.round))?;
            self.shared.send(0, &ClusterMessage::Part { number, bytes: bytes.to_vec() });
            return Ok(());
        }
        take(0, bytes);
        for member in self.shared.peers() {
            self.shared.send(member, &ClusterMessage::Ask(number));
            let part = self.shared.until(stop, |state| {
                let part = &mut self.of(state).part;
                part.take_if(|(from, round, _)| (*from, *round) == (member, number.round))
            })?;
            take(member, &part.2);
        }
        Ok(())
    }
}

impl Exchange for Cluster {
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
