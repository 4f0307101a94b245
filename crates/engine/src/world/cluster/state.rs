//! What a member knows of the others, and of the barriers that they arrive at.

use model::histogram::Histogram;
use model::ledger::{Agreement, ClockReading};
use model::units::Nanos;

use super::super::{Barrier, Cause, EarlyEnd, Topology};
use super::wire::CollectiveKind;
use crate::figures::LiveFigures;

/// Everything except for barriers.
#[derive(Debug)]
pub(super) struct ClusterState {
    /// Changes with every message and every event that a wait may be for.
    pub(super) news: u64,
    pub(super) lines: [LineState; 2],
    pub(super) peers: Vec<PeerState>,
    pub(super) ended: Option<EarlyEnd>,
    /// When this member learnt that the run ends.
    pub(super) ended_at: Nanos,
    /// Why this member ends, until member 0 has decided which member counts.
    pub(super) proposed: Option<(EarlyEnd, Nanos)>,
    /// The last answer to a ping.
    pub(super) pong: Option<ClockAnswer>,
    /// The exit code of the run, once member 0 has decided it.
    pub(super) code: Option<u8>,
    /// This member has nothing more to do, so that peers may leave.
    pub(super) concludes: bool,
    /// The stall timeout of the last wait that had one.
    pub(super) patience: Option<Nanos>,
    /// The thread that follows a phase: its wait was ended by `wake`, and the releases that it knows of.
    pub(super) woken: bool,
    pub(super) told: u64,
}

/// Member 0's answer to a ping, and when it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockAnswer {
    pub(super) number: u64,
    /// Clock of the connections and wall clock: at member 0, and here.
    pub(super) there: [Nanos; 2],
    pub(super) here: [Nanos; 2],
}

/// One of the two sequences of collective calls.
#[derive(Debug, Default)]
pub(super) struct LineState {
    /// Number of the next call of this member.
    pub(super) round: u64,
    /// At member 0: the last call of each member that it has not taken part in yet.
    pub(super) calls: Vec<Option<(u64, CollectiveKind)>>,
    /// At member 0: the bytes that it asked a member for.
    pub(super) part: Option<(u64, u64, Vec<u8>)>,
    /// At other members: the call for which member 0 asked for bytes, and its answer to a call.
    pub(super) asked: Option<u64>,
    pub(super) answer: Option<(u64, Vec<u8>)>,
}

/// What is known of another member.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerState {
    /// Time of its last message.
    pub(super) heard: Nanos,
    /// Its connection has ended.
    pub(super) lost: bool,
    pub(super) figures: LiveFigures,
    pub(super) code: Option<u8>,
}

impl ClusterState {
    pub(super) fn new(members: u64, now: Nanos) -> ClusterState {
        let line = || LineState { calls: vec![None; members as usize], ..LineState::default() };
        ClusterState {
            news: 0,
            lines: [line(), line()],
            peers: vec![PeerState { heard: now, ..PeerState::default() }; members as usize],
            ended: None,
            ended_at: Nanos::ZERO,
            proposed: None,
            pong: None,
            code: None,
            concludes: false,
            patience: None,
            woken: false,
            told: 0,
        }
    }

    /// Records that the run ends, unless it is known; returns whether it was not.
    pub(super) fn end(&mut self, ended: EarlyEnd, now: Nanos) -> bool {
        let is_new = self.ended.is_none();
        if is_new {
            (self.ended, self.ended_at) = (Some(ended), now);
            self.news += 1;
        }
        is_new
    }

    /// The exit code of a run that has ended at all members: that of the member that ended it early, or else the first
    /// one that is not 0.
    pub(super) fn common_code(&self) -> u8 {
        let of = |member: u64| self.peers.get(member as usize).and_then(|peer| peer.code);
        let early = self.ended.as_ref().and_then(|ended| of(ended.member)).filter(|code| *code != 0);
        let codes = || self.peers.iter().filter_map(|peer| peer.code);
        early.or_else(|| codes().find(|code| *code != 0)).unwrap_or(0)
    }
}

/// A member's arrival at a barrier; times are on member 0's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) barrier: Barrier,
    /// When the last of its ranks is done.
    pub(super) last: Nanos,
    /// When it said so.
    pub(super) posted: Nanos,
}

/// The release of a barrier; times are on member 0's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Release {
    pub(super) barrier: Barrier,
    pub(super) at: Nanos,
    /// When the last member arrived.
    pub(super) posted: Nanos,
}

/// The barriers of a run.
#[derive(Debug)]
pub(super) struct BarrierState {
    /// From this member's clock to member 0's; and from the clock of the connections to the clock of the run.
    pub(super) offset: ClockReading,
    pub(super) shift_ns: i64,
    /// The barrier that this member arrived at last.
    pub(super) own: Option<Barrier>,
    pub(super) release: Option<Release>,
    /// Number of releases so far.
    pub(super) releases: u64,
    /// At member 0: who has arrived at the current barrier, and the last barrier of everyone.
    arrivals: Vec<Option<Arrival>>,
    pub(super) places: Vec<Option<Barrier>>,
    arrived: usize,
    /// At member 0: a release that the receiving thread has to send.
    pub(super) unsent: Option<Release>,
    latency: Histogram,
    /// At member 0, by node.
    lasts: Vec<(u64, Nanos)>,
    barriers: u64,
}

impl BarrierState {
    pub(super) fn new(topology: &Topology) -> BarrierState {
        let members = topology.members() as usize;
        BarrierState {
            offset: ClockReading::default(),
            shift_ns: 0,
            own: None,
            release: None,
            releases: 0,
            arrivals: vec![None; members],
            places: vec![None; members],
            arrived: 0,
            unsent: None,
            latency: Histogram::default(),
            lasts: vec![(0, Nanos::ZERO); topology.nodes() as usize],
            barriers: 0,
        }
    }

    /// A moment of the connections' clock on member 0's clock of the run.
    pub(super) fn common(&self, now: Nanos) -> Nanos {
        self.offset.to_common(Nanos(now.0.saturating_add_signed(self.shift_ns)))
    }

    /// At member 0: a member has arrived. Returns the release if it was the last one.
    pub(super) fn arrive(
        &mut self,
        topology: &Topology,
        member: u64,
        arrival: Arrival,
    ) -> Result<Option<Release>, Cause> {
        let first = (0..).zip(&self.arrivals).find_map(|(other, one)| Some((other, (*one)?)));
        self.places[member as usize] = Some(arrival.barrier);
        if let Some((other, first)) = first.filter(|(_, first)| first.barrier != arrival.barrier) {
            return Err(Cause::Diverged { at: arrival.barrier, other, there: first.barrier });
        }
        self.arrived += usize::from(self.arrivals[member as usize].is_none());
        self.arrivals[member as usize] = Some(arrival);
        if self.arrived < self.arrivals.len() {
            return Ok(None);
        }
        self.arrived = 0;
        self.book_last(topology, !arrival.barrier.checkpoint);
        let taken = self.arrivals.iter_mut().filter_map(Option::take);
        let latest = |sum: (Nanos, Nanos), one: Arrival| (sum.0.max(one.last), sum.1.max(one.posted));
        let (at, posted) = taken.fold((Nanos::ZERO, Nanos::ZERO), latest);
        Ok(Some(Release { barrier: arrival.barrier, at, posted }))
    }

    /// Records which node was the last at a step, and how much later than all others.
    fn book_last(&mut self, topology: &Topology, is_step: bool) {
        if !is_step {
            return;
        }
        self.barriers += 1;
        let mut ends = vec![Nanos::ZERO; self.lasts.len()];
        for (member, arrival) in (0..).zip(&self.arrivals) {
            let end = &mut ends[topology.node_of(member) as usize];
            *end = (*end).max(arrival.map_or(Nanos::ZERO, |arrival| arrival.last));
        }
        let mut nodes: Vec<usize> = (0..ends.len()).collect();
        nodes.sort_unstable_by_key(|node| std::cmp::Reverse(ends[*node]));
        if let [last, second, ..] = nodes[..]
            && ends[last] > ends[second]
        {
            self.lasts[last].0 += 1;
            self.lasts[last].1 += ends[last] - ends[second];
        }
    }

    /// All members have arrived; `now` is on the connections' clock.
    pub(super) fn released(&mut self, release: Release, now: Nanos) {
        self.release = Some(release);
        self.releases += 1;
        // Checkpoints are not steps.
        if !release.barrier.checkpoint {
            self.latency.record(self.common(now).since(release.posted));
        }
    }

    /// When the barrier that this member arrived at last is released, on its own clock.
    pub(super) fn known_release(&self) -> Option<Nanos> {
        let release = self.release.filter(|release| Some(release.barrier) == self.own)?;
        Some(self.offset.to_local(release.at))
    }

    /// What was recorded since the last call, by node.
    pub(super) fn take(&mut self, own: u64) -> Vec<(u64, Agreement)> {
        let nodes = self.lasts.len() as u64;
        let mut seen: Vec<(u64, Agreement)> = (0..nodes).map(|node| (node, Agreement::default())).collect();
        for ((_, seen), (last, last_ns)) in seen.iter_mut().zip(&mut self.lasts) {
            (seen.last, seen.last_ns) = (std::mem::take(last), std::mem::take(last_ns));
        }
        if let Some((_, seen)) = seen.get_mut(own as usize) {
            seen.latency = std::mem::take(&mut self.latency);
            seen.barriers = std::mem::take(&mut self.barriers);
        }
        seen.retain(|(_, seen)| !seen.is_empty());
        seen
    }
}
