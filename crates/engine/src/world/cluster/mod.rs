//! The members of a run that a launcher started, on one host or many. Member 0 has a connection to every other member,
//! and all messages go to it or come from it. MPI starts and ends the job; messages travel over TCP, because a thread
//! that waits for a TCP connection sleeps, while one that waits for MPI polls and takes CPU time from the readers.
//!
//! Any thread that waits receives messages for all threads of the process; while none waits, a thread of its own does.
//! That thread also tells the peers once a second that this process is alive. A member whose connection ends, or that
//! is silent for the stall timeout, ends the run for all members.

mod beat;
mod clocks;
mod exchange;
mod interfaces;
mod join;
mod over_mpi;
mod state;
mod streams;
mod wire;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use model::ledger::{Agreement, ClockReading};
use model::units::Nanos;
use store::Now;

use super::mpi::Mpi;
use super::{Barrier, Cause, EarlyEnd, Exchange, Topology, World, mpi};
use crate::figures::LiveFigures;
use crate::meter::{self, Clock, Monotonic};
use crate::stop::Stop;
use exchange::ClusterLine;
pub use join::{JoinError, JoinOptions, Transport, join};
use state::{Arrival, BarrierState, ClockAnswer, ClusterState, Release};
use streams::{ByteStreams, Received};
use wire::{CallNumber, ClusterMessage, Incoming};

/// How long a wait lasts before it checks whether the run should stop.
const PERIOD: Duration = Duration::from_millis(20);
/// With more peers, member 0 leaves sending a release to the thread that waits for messages: `arrive` is called while
/// the lock of the accelerators is held, and a send takes some microseconds.
const FEW_PEERS: u64 = 16;
/// How long a member that announces its end waits for member 0's decision.
const DECISION: Nanos = Nanos(3_000_000_000);
/// How long members wait for each other's exit codes, and for the library to leave the job.
const CONCLUSION: Nanos = Nanos(10_000_000_000);
const LEAVING: Duration = Duration::from_secs(5);
/// How long `MPI_Abort` may take before the process ends without it.
const ABORTING: Duration = Duration::from_secs(3);
/// A thread receives at least once a second, so that after a longer time without, this process did not run.
const LONG_GAP: Nanos = Nanos(2_000_000_000);

/// This process as a member of a run.
#[derive(Debug)]
pub struct Cluster {
    line: ClusterLine,
    background: ClusterLine,
    beats: Option<JoinHandle<()>>,
}

/// What the threads of a member share.
#[derive(Debug)]
struct Connections {
    topology: Topology,
    member: u64,
    /// `None` in tests.
    mpi: Option<&'static Mpi>,
    streams: Box<dyn ByteStreams>,
    /// The clock of the connections. A run has a clock of its own.
    clock: Monotonic,
    state: Mutex<ClusterState>,
    changed: Condvar,
    barriers: Mutex<BarrierState>,
    /// Held by the thread that receives.
    incoming: Mutex<ReceivedSoFar>,
    /// Whether that is the thread of `beat`, which gives way to others; and how many others want to receive.
    rests: AtomicBool,
    wanting: AtomicUsize,
    own: Mutex<LiveFigures>,
    closing: AtomicBool,
    /// Requested when the run has ended and this member does not notice.
    stop: Stop,
}

/// The state of the receiving thread.
#[derive(Debug)]
struct ReceivedSoFar {
    of_peers: Vec<Incoming>,
    /// When messages were last received.
    at: Nanos,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// Takes the connections to the peers, and begins to send signs of life.
    fn new(
        topology: Topology,
        member: u64,
        streams: Box<dyn ByteStreams>,
        mpi: Option<&'static Mpi>,
        stop: &Stop,
    ) -> std::io::Result<Cluster> {
        let (clock, members) = (Monotonic::new(), topology.members());
        let of_peers = (0..members).map(|_| Incoming::default()).collect();
        let shared = Arc::new(Connections {
            member,
            mpi,
            streams,
            state: Mutex::new(ClusterState::new(members, clock.now())),
            changed: Condvar::new(),
            barriers: Mutex::new(BarrierState::new(&topology)),
            incoming: Mutex::new(ReceivedSoFar { of_peers, at: clock.now() }),
            rests: AtomicBool::new(false),
            wanting: AtomicUsize::new(0),
            own: Mutex::default(),
            closing: AtomicBool::new(false),
            stop: stop.clone(),
            topology,
            clock,
        });
        let of_thread = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("members".to_owned()).stack_size(256 << 10);
        let beats = Some(builder.spawn(move || of_thread.beat())?);
        let line = |line| ClusterLine { shared: Arc::clone(&shared), line };
        Ok(Cluster { line: line(0), background: line(1), beats })
    }

    fn shared(&self) -> &Connections {
        &self.line.shared
    }

    /// Why the run has ended early, if it has.
    pub fn ended(&self) -> Option<EarlyEnd> {
        lock(&self.shared().state).ended.clone()
    }

    /// Ends the membership. Members exchange their exit codes and all get the same one: that of the member that ended
    /// the run early, or else the first that is not 0. If a member does not take part, all processes are ended.
    pub fn conclude(mut self, own: u8) -> u8 {
        let shared = Arc::clone(&self.line.shared);
        let (code, is_clean) = shared.exchange_codes(own);
        self.close();
        match shared.mpi {
            Some(mpi) if is_clean => within(LEAVING, code, || mpi.finalise()),
            Some(_) => abort(code),
            None => {}
        }
        code
    }

    /// Ends the thread that sends signs of life.
    fn close(&mut self) {
        // Relaxed: the thread looks at it at least once a second.
        self.shared().closing.store(true, Ordering::Relaxed);
        self.shared().changed.notify_all();
        self.shared().streams.wake();
        if let Some(beats) = self.beats.take() {
            let _ = beats.join();
        }
        self.shared().streams.close();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.beats.is_some() {
            let panics = std::thread::panicking();
            let cause = if panics { Cause::Failed("its thread panicked".to_owned()) } else { Cause::Left };
            if !lock(&self.shared().state).concludes {
                self.announce(cause);
            }
            self.close();
        }
    }
}

/// Ends all processes of the job with this exit code: through the launcher if it responds, and this process in any
/// case.
pub fn abort(code: u8) -> ! {
    within(ABORTING, code, || {
        if let Some(mpi) = mpi::loaded() {
            mpi.abort(code);
        }
    });
    // SAFETY: ends the process without running exit handlers, which wait for other processes.
    unsafe { libc::_exit(i32::from(code)) }
}

/// Does work that may not return, and ends the process with this exit code if it does not in time.
fn within(limit: Duration, code: u8, work: impl FnOnce()) {
    let watch = move || {
        meter::pause(limit);
        // SAFETY: as in `abort`.
        unsafe { libc::_exit(i32::from(code)) }
    };
    let watched = std::thread::Builder::new().name("leaving".to_owned()).spawn(watch);
    // Without a thread to end it, work that may not return is not begun.
    if watched.is_ok() {
        work();
    }
}

impl Connections {
    fn peers(&self) -> std::ops::Range<u64> {
        if self.member == 0 { 1..self.topology.members() } else { 0..1 }
    }

    fn send(&self, to: u64, message: &ClusterMessage) {
        self.streams.send(to, &message.encode());
    }

    fn send_to_peers(&self, message: &ClusterMessage) {
        let bytes = message.encode();
        self.peers().for_each(|peer| self.streams.send(peer, &bytes));
    }

    /// Receives messages, or waits for the thread that does, until there are news or the time is over.
    fn receive_or_wait(&self, news: u64, timeout: Duration) {
        // SeqCst: the thread of `beat` must see the wish before it begins to receive again.
        self.wanting.fetch_add(1, Ordering::SeqCst);
        loop {
            match self.incoming.try_lock() {
                Ok(incoming) => {
                    // Nothing is received by another thread from here on, so no news are missed.
                    if lock(&self.state).news == news {
                        self.receive(incoming, timeout);
                    }
                    break;
                }
                Err(TryLockError::Poisoned(_)) => break,
                Err(TryLockError::WouldBlock) if self.rests.load(Ordering::SeqCst) => {
                    self.streams.wake();
                    meter::pause(Duration::from_micros(20));
                }
                Err(TryLockError::WouldBlock) => {
                    let state = lock(&self.state);
                    if state.news == news {
                        let _ = self.changed.wait_timeout(state, timeout.min(PERIOD));
                    }
                    break;
                }
            }
        }
        self.wanting.fetch_sub(1, Ordering::SeqCst);
        // Another thread that waits may receive now.
        self.changed.notify_all();
    }

    /// Receives messages for at most `timeout`.
    fn receive(&self, mut incoming: MutexGuard<'_, ReceivedSoFar>, timeout: Duration) {
        if let Some(release) = lock(&self.barriers).unsent.take() {
            self.send_release(release);
        }
        let ReceivedSoFar { of_peers, at } = &mut *incoming;
        self.find_own_silence(self.clock.now().since(*at));
        let mut received = false;
        self.streams.receive(timeout, &mut |from, what| {
            received = true;
            match what {
                Received::Lost => self.lose(from),
                Received::Bytes(bytes) => {
                    let taken = of_peers[from as usize].add(bytes, |message| self.take(from, message));
                    if taken.is_err() {
                        self.lose(from);
                    }
                }
            }
        });
        let now = self.clock.now();
        self.find_silent(now, now.since(*at), received);
        *at = now;
    }

    /// A peer's connection has ended.
    fn lose(&self, peer: u64) {
        let place = lock(&self.barriers).places[peer as usize];
        let mut state = lock(&self.state);
        state.peers[peer as usize].lost = true;
        state.news += 1;
        if state.concludes {
            self.changed.notify_all();
            return;
        }
        // A member that has announced its end may leave.
        let ended = match state.proposed.take() {
            Some((proposed, _)) => proposed,
            None => EarlyEnd { place, ..EarlyEnd::new(&self.topology, peer, Cause::Left) },
        };
        self.end(&mut state, ended);
    }

    /// Ends the run if this process itself did not run for the stall timeout, for instance because it was stopped. The
    /// others have ended because of it, so it must not name one of them.
    fn find_own_silence(&self, gap: Nanos) {
        let place = lock(&self.barriers).own;
        let mut state = lock(&self.state);
        if state.patience.is_some_and(|patience| gap >= patience && gap > LONG_GAP) && !state.concludes {
            let ended = EarlyEnd::new(&self.topology, self.member, Cause::Silent(gap));
            self.end(&mut state, EarlyEnd { place, ..ended });
        }
    }

    /// Ends the run if a peer has been silent for the stall timeout. Silence that began while this process itself did
    /// not run does not count.
    fn find_silent(&self, now: Nanos, gap: Nanos, received: bool) {
        let mut state = lock(&self.state);
        if gap > LONG_GAP {
            state.peers.iter_mut().for_each(|peer| peer.heard = now);
        }
        let Some(patience) = state.patience.filter(|_| !received && !state.concludes) else { return };
        let silence = |peer: u64| now.since(state.peers[peer as usize].heard);
        let Some(peer) = self.peers().max_by_key(|peer| silence(*peer)) else { return };
        let silence = silence(peer);
        if silence >= patience && state.ended.is_none() {
            drop(state);
            let place = lock(&self.barriers).places[peer as usize];
            let cause = Cause::Silent(silence);
            let ended = EarlyEnd { place, ..EarlyEnd::new(&self.topology, peer, cause) };
            let mut state = lock(&self.state);
            // Its exit code is not awaited.
            state.peers[peer as usize].lost = true;
            self.end(&mut state, ended);
        }
    }

    /// All members end. Member 0 tells the others.
    fn end(&self, state: &mut ClusterState, ended: EarlyEnd) {
        if state.end(ended.clone(), self.clock.now()) && self.member == 0 {
            self.send_to_peers(&ClusterMessage::Ended(ended));
        }
        self.changed.notify_all();
    }

    /// This member ends. Member 0 decides which of several members counts, so that all name the same one.
    fn announce(&self, cause: Cause) {
        let place = lock(&self.barriers).own;
        let ended = EarlyEnd { place, ..EarlyEnd::new(&self.topology, self.member, cause) };
        let mut state = lock(&self.state);
        if self.member == 0 {
            self.end(&mut state, ended);
        } else if state.ended.is_none() && state.proposed.is_none() {
            state.proposed = Some((ended.clone(), self.clock.now()));
            self.send(0, &ClusterMessage::Ended(ended));
        }
    }

    /// Handles a message.
    fn take(&self, from: u64, message: ClusterMessage) {
        let now = self.clock.now();
        match message {
            ClusterMessage::Arrive { barrier, last, posted } => {
                self.arrived(from, Arrival { barrier, last, posted });
            }
            ClusterMessage::Release { barrier, at, posted } => {
                lock(&self.barriers).released(Release { barrier, at, posted }, now);
            }
            ClusterMessage::Ping(number) => {
                let (clock, wall) = (self.clock.now(), meter::wall_clock());
                self.send(from, &ClusterMessage::Pong { number, clock, wall });
            }
            _ => {}
        }
        let mut state = lock(&self.state);
        state.news += 1;
        state.peers[from as usize].heard = now;
        match message {
            ClusterMessage::Beat(figures) => state.peers[from as usize].figures = *figures,
            ClusterMessage::Call { number: CallNumber { line, round }, kind } => {
                if let Some(line) = state.lines.get_mut(usize::from(line)) {
                    line.calls[from as usize] = Some((round, kind));
                }
            }
            ClusterMessage::Answer { number: CallNumber { line, round }, bytes } => {
                if let Some(line) = state.lines.get_mut(usize::from(line)) {
                    line.answer = Some((round, bytes));
                }
            }
            ClusterMessage::Ask(CallNumber { line, round }) => {
                if let Some(line) = state.lines.get_mut(usize::from(line)) {
                    line.asked = Some(round);
                }
            }
            ClusterMessage::Part { number: CallNumber { line, round }, bytes } => {
                if let Some(line) = state.lines.get_mut(usize::from(line)) {
                    line.part = Some((from, round, bytes));
                }
            }
            ClusterMessage::Ended(ended) => self.end(&mut state, ended),
            ClusterMessage::Pong { number, clock, wall } => {
                let here = [now, meter::wall_clock()];
                state.pong = Some(ClockAnswer { number, there: [clock, wall], here });
            }
            ClusterMessage::Code(code) if self.member == 0 => state.peers[from as usize].code = Some(code),
            ClusterMessage::Code(code) => state.code = Some(code),
            ClusterMessage::Arrive { .. } | ClusterMessage::Release { .. } | ClusterMessage::Ping(_) => {}
        }
        drop(state);
        self.changed.notify_all();
    }

    /// At member 0: a member has arrived at a barrier. If it was the last one, all are released.
    fn arrived(&self, member: u64, arrival: Arrival) {
        let mut barriers = lock(&self.barriers);
        match barriers.arrive(&self.topology, member, arrival) {
            Ok(None) => {}
            Ok(Some(release)) => {
                barriers.released(release, self.clock.now());
                // From another member, it is handled by the receiving thread.
                let is_late = member == 0 && self.topology.members() > FEW_PEERS;
                barriers.unsent = is_late.then_some(release);
                drop(barriers);
                if is_late { self.streams.wake() } else { self.send_release(release) }
            }
            Err(cause) => {
                drop(barriers);
                let ended = EarlyEnd::new(&self.topology, member, cause);
                self.end(&mut lock(&self.state), ended);
            }
        }
    }

    fn send_release(&self, Release { barrier, at, posted }: Release) {
        self.send_to_peers(&ClusterMessage::Release { barrier, at, posted });
    }

    /// Exchanges exit codes; returns the common one, and whether all members took part.
    fn exchange_codes(&self, own: u8) -> (u8, bool) {
        let begin = self.clock.now();
        {
            let mut state = lock(&self.state);
            state.concludes = true;
            state.peers[self.member as usize].code = Some(own);
        }
        if self.member != 0 {
            self.send(0, &ClusterMessage::Code(own));
        }
        let is_done = |state: &ClusterState| match self.member {
            0 => self
                .peers()
                .map(|peer| &state.peers[peer as usize])
                .all(|peer| peer.lost || peer.code.is_some()),
            _ => state.code.is_some() || state.peers[0].lost,
        };
        let in_time = loop {
            let state = lock(&self.state);
            if is_done(&state) {
                break true;
            }
            if self.clock.now().since(begin) > CONCLUSION {
                break false;
            }
            let news = state.news;
            drop(state);
            self.receive_or_wait(news, PERIOD);
        };
        let state = lock(&self.state);
        let code = state.code.unwrap_or_else(|| state.common_code());
        let is_clean = in_time && !self.peers().any(|peer| state.peers[peer as usize].lost);
        drop(state);
        if self.member == 0 {
            self.send_to_peers(&ClusterMessage::Code(code));
        }
        while !self.streams.is_flushed() && self.clock.now().since(begin) < CONCLUSION {
            let news = lock(&self.state).news;
            self.receive_or_wait(news, PERIOD);
        }
        (code, is_clean)
    }
}

impl World for Cluster {
    fn arrive(&self, barrier: Barrier, last_here: Nanos) {
        let shared = self.shared();
        let mut barriers = lock(&shared.barriers);
        barriers.own = Some(barrier);
        let last = barriers.offset.to_common(last_here);
        let posted = barriers.common(shared.clock.now());
        drop(barriers);
        match shared.member {
            0 => shared.arrived(0, Arrival { barrier, last, posted }),
            _ => shared.send(0, &ClusterMessage::Arrive { barrier, last, posted }),
        }
    }

    fn released(&self) -> Option<Nanos> {
        lock(&self.shared().barriers).known_release()
    }

    fn clock_offset(&self) -> ClockReading {
        lock(&self.shared().barriers).offset
    }

    fn wait(&self, stop: &Stop, timeout: Duration) -> Result<(), EarlyEnd> {
        let shared = self.shared();
        let releases = || lock(&shared.barriers).releases;
        let begin = shared.clock.now();
        loop {
            let mut state = lock(&shared.state);
            shared.check(&mut state, stop)?;
            let (releases, rest) = (releases(), timeout.as_nanos() as u64);
            let rest = rest.saturating_sub(shared.clock.now().since(begin).0);
            if state.woken || state.told != releases || rest == 0 {
                (state.woken, state.told) = (false, releases);
                return Ok(());
            }
            let news = state.news;
            drop(state);
            shared.receive_or_wait(news, Duration::from_nanos(rest));
        }
    }

    fn wake(&self) {
        let mut state = lock(&self.shared().state);
        state.woken = true;
        state.news += 1;
        drop(state);
        self.shared().changed.notify_all();
        self.shared().streams.wake();
    }

    fn synchronize(&self, clock: &dyn Clock, stop: &Stop) -> Result<ClockReading, EarlyEnd> {
        self.compare_clocks(clock, stop)
    }

    fn background(&self) -> &dyn Exchange {
        &self.background
    }

    fn publish(&self, figures: LiveFigures) {
        let shared = self.shared();
        let last = figures.ended.then(|| ClusterMessage::Beat(Box::new(figures.clone())));
        *lock(&shared.own) = figures;
        if let Some(last) = last.filter(|_| shared.member != 0) {
            shared.send(0, &last);
        }
    }

    fn figures(&self) -> Vec<(u64, LiveFigures)> {
        let state = lock(&self.shared().state);
        let others = self.shared().peers().filter(|_| self.member() == 0);
        others.map(|peer| (peer, state.peers[peer as usize].figures.clone())).collect()
    }

    fn take_agreement(&self) -> Vec<(u64, Agreement)> {
        lock(&self.shared().barriers).take(self.node())
    }

    fn transport(&self) -> Option<String> {
        Some(self.shared().streams.name())
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(super) use tests::over_loopback;
