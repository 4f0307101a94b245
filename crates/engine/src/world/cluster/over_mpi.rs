//! Bytes over MPI, for networks without IP. One thread makes all MPI calls. It polls, and sleeps longer between two
//! looks the longer nothing happens, so that it does not take much CPU time from readers; a message may wait that long.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::super::mpi::{Mpi, MpiError, MpiRequest};
use super::lock;
use super::streams::{ByteStreams, Received};
use crate::meter;

/// The tag of all messages.
const TAG: i32 = 17;
/// Bytes of a message, of which the first four are the number of those that are used.
const PIECE: usize = 64 << 10;
const HEADER: usize = 4;
/// The shortest and the longest time between two looks.
const SHORT_NAP: Duration = Duration::from_micros(20);
const LONG_NAP: Duration = Duration::from_millis(1);
/// How often the end of a receive that was given up is looked for.
const GIVING_UP: u32 = 1000;

/// Connections to the peers through MPI.
#[derive(Debug)]
pub(super) struct MpiStreams {
    shared: Arc<Mailboxes>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the threads of this process and the one that makes the calls share.
#[derive(Debug, Default)]
struct Mailboxes {
    outbox: Mutex<VecDeque<(u64, Vec<u8>)>>,
    /// Pieces that are not sent completely.
    unsent: AtomicUsize,
    inbox: Mutex<ReceivedPieces>,
    arrived: Condvar,
    closing: AtomicBool,
}

#[derive(Debug, Default)]
struct ReceivedPieces {
    pieces: VecDeque<(u64, Vec<u8>)>,
    woken: bool,
    /// Peers whose messages cannot be received.
    lost: Vec<u64>,
}

impl MpiStreams {
    pub(super) fn new(mpi: &'static Mpi, member: u64, members: u64) -> std::io::Result<MpiStreams> {
        let shared = Arc::new(Mailboxes::default());
        let of_thread = Arc::clone(&shared);
        let peers: Vec<u64> = if member == 0 { (1..members).collect() } else { vec![0] };
        let work = move || {
            let mut calls = MpiCalls { mpi, shared: &of_thread, sends: Vec::new(), receives: Vec::new() };
            calls.work(&peers);
        };
        let thread = std::thread::Builder::new().name("mpi".to_owned()).spawn(work)?;
        Ok(MpiStreams { shared, thread: Mutex::new(Some(thread)) })
    }
}

impl ByteStreams for MpiStreams {
    fn name(&self) -> String {
        "MPI".to_owned()
    }

    fn send(&self, to: u64, bytes: &[u8]) {
        let pieces = bytes.chunks(PIECE - HEADER).map(|some| {
            let length = (some.len() as u32).to_le_bytes();
            (to, [&length[..], some].concat())
        });
        let mut outbox = lock(&self.shared.outbox);
        let before = outbox.len();
        outbox.extend(pieces);
        // Relaxed: counted under the lock that hands the pieces over.
        self.shared.unsent.fetch_add(outbox.len() - before, Ordering::Relaxed);
    }

    fn receive(&self, timeout: Duration, take: &mut dyn FnMut(u64, Received<'_>)) {
        let inbox = lock(&self.shared.inbox);
        let is_empty =
            |inbox: &mut ReceivedPieces| inbox.pieces.is_empty() && inbox.lost.is_empty() && !inbox.woken;
        let waited = self.shared.arrived.wait_timeout_while(inbox, timeout, is_empty);
        let mut inbox = waited.unwrap_or_else(PoisonError::into_inner).0;
        inbox.woken = false;
        let (pieces, lost) = (std::mem::take(&mut inbox.pieces), std::mem::take(&mut inbox.lost));
        drop(inbox);
        pieces.iter().for_each(|(from, bytes)| take(*from, Received::Bytes(bytes)));
        lost.into_iter().for_each(|from| take(from, Received::Lost));
    }

    fn wake(&self) {
        lock(&self.shared.inbox).woken = true;
        self.shared.arrived.notify_all();
    }

    fn is_flushed(&self) -> bool {
        self.shared.unsent.load(Ordering::Relaxed) == 0
    }

    fn close(&self) {
        // Relaxed: the thread looks at it every millisecond.
        self.shared.closing.store(true, Ordering::Relaxed);
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

/// The thread that makes the MPI calls.
struct MpiCalls<'a> {
    mpi: &'static Mpi,
    shared: &'a Mailboxes,
    sends: Vec<(MpiRequest, Vec<u8>)>,
    receives: Vec<PostedReceive>,
}

/// A receive that waits for a piece of a peer.
struct PostedReceive {
    from: u64,
    request: MpiRequest,
    memory: Box<[u8]>,
}

impl MpiCalls<'_> {
    fn work(&mut self, peers: &[u64]) {
        for peer in peers {
            match self.post(*peer, vec![0; PIECE].into_boxed_slice()) {
                Ok(posted) => self.receives.push(posted),
                Err(_) => self.lose(*peer),
            }
        }
        let mut nap = SHORT_NAP;
        while !self.shared.closing.load(Ordering::Relaxed) {
            let busy = self.send() | self.finish_sends() | self.receive();
            nap = if busy { SHORT_NAP } else { (nap * 2).min(LONG_NAP) };
            meter::pause(nap);
        }
        self.give_up();
    }

    /// Gives up all requests, as the library demands before it leaves the job. It may still use the memory of one that
    /// cannot be given up, so that is never freed.
    fn give_up(&mut self) {
        for mut posted in self.receives.drain(..) {
            let tries = 0..GIVING_UP;
            let cancelled = self.mpi.cancel(&mut posted.request).is_ok();
            let is_done = |_| {
                meter::pause(SHORT_NAP);
                self.mpi.is_complete(&mut posted.request).unwrap_or(false)
            };
            if !cancelled || !tries.into_iter().any(is_done) {
                std::mem::forget(posted);
            }
        }
        std::mem::forget(std::mem::take(&mut self.sends));
    }

    fn lose(&self, peer: u64) {
        lock(&self.shared.inbox).lost.push(peer);
        self.shared.arrived.notify_all();
    }

    fn post(&self, from: u64, mut memory: Box<[u8]>) -> Result<PostedReceive, MpiError> {
        // SAFETY: the memory is not used or freed before the request is complete, and leaked if it never is.
        let request = unsafe { self.mpi.begin_receive(from, TAG, &mut memory)? };
        Ok(PostedReceive { from, request, memory })
    }

    /// Begins to send what is waiting; returns whether there was anything.
    fn send(&mut self) -> bool {
        let waiting = std::mem::take(&mut *lock(&self.shared.outbox));
        let any = !waiting.is_empty();
        for (to, bytes) in waiting {
            // SAFETY: the bytes are not changed, and are kept until the request is complete, or leaked.
            match unsafe { self.mpi.begin_send(to, TAG, &bytes) } {
                Ok(request) => self.sends.push((request, bytes)),
                Err(_) => self.sent(),
            }
        }
        any
    }

    fn sent(&self) {
        self.shared.unsent.fetch_sub(1, Ordering::Relaxed);
    }

    /// Forgets the sends that are complete; returns whether there was one.
    fn finish_sends(&mut self) -> bool {
        let before = self.sends.len();
        let mpi = self.mpi;
        self.sends.retain_mut(|(request, _)| !mpi.is_complete(request).unwrap_or(true));
        (self.sends.len()..before).for_each(|_| self.sent());
        self.sends.len() < before
    }

    /// Passes on the pieces that have arrived; returns whether there was one.
    fn receive(&mut self) -> bool {
        let mut any = false;
        for place in (0..self.receives.len()).rev() {
            match self.mpi.is_complete(&mut self.receives[place].request) {
                Ok(false) => continue,
                Ok(true) => any = true,
                Err(_) => {
                    let posted = self.receives.swap_remove(place);
                    self.lose(posted.from);
                    std::mem::forget(posted);
                    continue;
                }
            }
            let PostedReceive { from, memory, .. } = self.receives.swap_remove(place);
            let length = memory.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
            let piece = memory.get(HEADER..HEADER + length).map(<[u8]>::to_vec);
            match (piece, self.post(from, memory)) {
                (Some(piece), Ok(posted)) => {
                    lock(&self.shared.inbox).pieces.push_back((from, piece));
                    self.shared.arrived.notify_all();
                    self.receives.push(posted);
                }
                _ => self.lose(from),
            }
        }
        any
    }
}
