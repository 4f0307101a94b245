//! What a lane sleeps on: its sockets, a bell that other threads ring, and a timer that ticks while requests are in
//! flight. Time-outs and pauses are counted in ticks, so that they also work in lanes whose clock does not move.

use std::mem::MaybeUninit;
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};

use model::units::Nanos;

use crate::Waker;

/// The time between two ticks.
pub(crate) const TICK: Nanos = Nanos(20_000_000);
/// Ticks that count at once. More have passed if the thread did something else, such as waiting for a free slot. That
/// is no silence of the servers: their answers may have arrived, and requests may have been made since.
const MOST_AT_ONCE: u64 = 4;
/// Events that are taken at once.
const EVENTS: usize = 256;

const BELL: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

/// Ends a wait of the lane from another thread.
#[derive(Debug)]
pub(super) struct LaneBell(OwnedFd);

impl Waker for LaneBell {
    fn wake(&self) {
        // It can only fail if it was rung 2^64 - 2 times without being heard.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

pub(super) struct Poller {
    epoll: OwnedFd,
    bell: Arc<LaneBell>,
    timer: OwnedFd,
    ticking: bool,
    /// Ticks so far.
    pub(super) ticks: u64,
}

/// A socket that is ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    /// What it was added with.
    pub(super) token: u64,
    /// Whether it can be written to, is connected, or has failed.
    pub(super) writes: bool,
}

impl Poller {
    pub(super) fn new() -> Result<Poller, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = LaneBell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(&epoll, &bell.0, EventData::new_u64(BELL), EventFlags::IN)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        Ok(Poller { epoll, bell: Arc::new(bell), timer, ticking: false, ticks: 0 })
    }

    pub(super) fn bell(&self) -> Arc<dyn Waker> {
        Arc::clone(&self.bell) as Arc<dyn Waker>
    }

    /// Watches a socket until it is closed.
    pub(super) fn add(&self, socket: impl AsFd, token: u64, writes: bool) -> Result<(), Errno> {
        epoll::add(&self.epoll, socket, EventData::new_u64(token), interest(writes))
    }

    /// Changes whether the lane waits to write to a socket.
    pub(super) fn change(&self, socket: impl AsFd, token: u64, writes: bool) -> Result<(), Errno> {
        epoll::modify(&self.epoll, socket, EventData::new_u64(token), interest(writes))
    }

    /// Lets the timer tick, or stops it.
    pub(super) fn tick(&mut self, wanted: bool) {
        if wanted == self.ticking {
            return;
        }
        self.ticking = wanted;
        let span = if wanted { TICK.0 as i64 } else { 0 };
        let span = Timespec { tv_sec: 0, tv_nsec: span };
        let setting = Itimerspec { it_interval: span, it_value: span };
        // Only an invalid setting can fail.
        let _ = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting);
    }

    /// Waits for events, at most this long, and passes those of sockets to `each`. Returns whether the timer ticked.
    pub(super) fn wait(&mut self, most: Nanos, ready: &mut Vec<Ready>) -> Result<bool, Errno> {
        let most =
            Timespec { tv_sec: (most.0 / 1_000_000_000) as i64, tv_nsec: (most.0 % 1_000_000_000) as i64 };
        let mut events = [MaybeUninit::<Event>::uninit(); EVENTS];
        let events = match epoll::wait(&self.epoll, events.as_mut_slice(), Some(&most)) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(false),
            Err(cause) => return Err(cause),
        };
        let (mut number, mut ticked) = ([0; 8], false);
        for event in events {
            match event.data.u64() {
                BELL => drop(rustix::io::read(&self.bell.0, &mut number)),
                TIMER => {
                    if rustix::io::read(&self.timer, &mut number).is_ok() {
                        self.ticks += u64::from_ne_bytes(number).min(MOST_AT_ONCE);
                        ticked = true;
                    }
                }
                token => {
                    let writes = EventFlags::OUT | EventFlags::ERR | EventFlags::HUP;
                    let flags = event.flags;
                    ready.push(Ready { token, writes: flags.intersects(writes) });
                }
            }
        }
        Ok(ticked)
    }
}

fn interest(writes: bool) -> EventFlags {
    let flags = EventFlags::IN | EventFlags::RDHUP;
    if writes { flags | EventFlags::OUT } else { flags }
}

/// The number of ticks that are at least this long.
pub(super) fn ticks(span: Nanos) -> u64 {
    span.0.div_ceil(TICK.0)
}
