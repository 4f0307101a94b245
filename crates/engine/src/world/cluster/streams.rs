//! Bytes between this member and its peers: all others for member 0, and member 0 for the others. What the bytes mean
//! is decided elsewhere.

use std::collections::VecDeque;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

/// What a peer sent.
pub(super) enum Received<'a> {
    Bytes(&'a [u8]),
    /// The connection has ended.
    Lost,
}

/// Connections to the peers.
pub(super) trait ByteStreams: Send + Sync + fmt::Debug {
    /// How the bytes travel, for the report.
    fn name(&self) -> String;
    /// Sends bytes. What cannot be sent at once is kept and sent later; this never waits.
    fn send(&self, to: u64, bytes: &[u8]);
    /// Waits for bytes of any peer, at most for `timeout` or until `wake` is called, and passes them on. One thread at
    /// a time calls it.
    fn receive(&self, timeout: Duration, take: &mut dyn FnMut(u64, Received<'_>));
    /// Ends the wait in `receive`, now or when it is called next.
    fn wake(&self);
    /// Whether everything was sent.
    fn is_flushed(&self) -> bool;
    /// Ends the threads of the connections, if they have any.
    fn close(&self);
}

/// The event of `wake`.
const WAKE: u64 = u64::MAX;
/// Bytes that are received at a time, and events.
const RECEIVED_BYTES: usize = 64 << 10;
const EVENTS: usize = 64;

/// One TCP connection to each peer.
#[derive(Debug)]
pub(super) struct TcpStreams {
    /// Names the network, for the report.
    network: String,
    peers: Vec<Option<PeerStream>>,
    epoll: OwnedFd,
    waker: OwnedFd,
    /// The memory of the receiving thread.
    received: Mutex<Vec<u8>>,
}

#[derive(Debug)]
struct PeerStream {
    stream: TcpStream,
    unsent: Mutex<VecDeque<u8>>,
}

impl TcpStreams {
    /// Takes connections, each with the number of its peer.
    pub(super) fn new(network: String, streams: Vec<(u64, TcpStream)>) -> std::io::Result<TcpStreams> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &waker, EventData::new_u64(WAKE), EventFlags::IN)?;
        let most = streams.iter().map(|(peer, _)| *peer as usize + 1).max().unwrap_or(0);
        let mut peers: Vec<Option<PeerStream>> = (0..most).map(|_| None).collect();
        for (peer, stream) in streams {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll::add(&epoll, &stream, EventData::new_u64(peer), EventFlags::IN)?;
            peers[peer as usize] = Some(PeerStream { stream, unsent: Mutex::default() });
        }
        Ok(TcpStreams { network, peers, epoll, waker, received: Mutex::new(vec![0; RECEIVED_BYTES]) })
    }

    fn peer(&self, number: u64) -> Option<&PeerStream> {
        self.peers.get(usize::try_from(number).ok()?)?.as_ref()
    }

    /// Waits for room to send only while there is something to send.
    fn watch(&self, number: u64, peer: &PeerStream, unsent: &VecDeque<u8>) {
        let flags = if unsent.is_empty() { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
        // It fails for a connection that has ended, which `receive` reports.
        let _ = epoll::modify(&self.epoll, &peer.stream, EventData::new_u64(number), flags);
    }

    fn send_unsent(&self, number: u64, peer: &PeerStream) {
        let mut unsent = lock(&peer.unsent);
        while !unsent.is_empty() {
            let (some, _) = unsent.as_slices();
            match (&peer.stream).write(some) {
                Ok(sent) if sent > 0 => drop(unsent.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The connection has ended; `receive` reports it.
                _ => unsent.clear(),
            }
        }
        self.watch(number, peer, &unsent);
    }

    /// Passes on everything that a peer sent.
    fn receive_from(&self, number: u64, buffer: &mut [u8], take: &mut dyn FnMut(u64, Received<'_>)) {
        let Some(peer) = self.peer(number) else { return };
        loop {
            match (&peer.stream).read(buffer) {
                Ok(read) if read > 0 => {
                    take(number, Received::Bytes(&buffer[..read]));
                    if read < buffer.len() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                _ => {
                    let _ = epoll::delete(&self.epoll, &peer.stream);
                    take(number, Received::Lost);
                    return;
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ByteStreams for TcpStreams {
    fn name(&self) -> String {
        format!("TCP ({})", self.network)
    }

    fn send(&self, to: u64, bytes: &[u8]) {
        let Some(peer) = self.peer(to) else { return };
        let mut unsent = lock(&peer.unsent);
        let mut rest = bytes;
        while unsent.is_empty() && !rest.is_empty() {
            match (&peer.stream).write(rest) {
                Ok(sent) if sent > 0 => rest = &rest[sent..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The connection has ended; `receive` reports it.
                _ => return,
            }
        }
        if !rest.is_empty() {
            unsent.extend(rest);
            self.watch(to, peer, &unsent);
        }
    }

    fn receive(&self, timeout: Duration, take: &mut dyn FnMut(u64, Received<'_>)) {
        let mut received = lock(&self.received);
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        let timeout =
            Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        // A signal ends the wait early. Nothing else can fail for descriptors that are open.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events[..], Some(&timeout)) else { return };
        for event in events {
            let (number, flags) = (event.data.u64(), event.flags);
            if number == WAKE {
                let _ = rustix::io::read(&self.waker, &mut [0; 8]);
                continue;
            }
            if flags.contains(EventFlags::OUT)
                && let Some(peer) = self.peer(number)
            {
                self.send_unsent(number, peer);
            }
            if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                self.receive_from(number, &mut received, take);
            }
        }
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }

    fn is_flushed(&self) -> bool {
        self.peers.iter().flatten().all(|peer| lock(&peer.unsent).is_empty())
    }

    fn close(&self) {}
}
