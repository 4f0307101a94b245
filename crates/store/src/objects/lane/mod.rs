//! Reads of objects by one thread: an epoll loop over connections that are kept open. Each fetch is one range request
//! or several in parallel, each request has one attempt or several, and all of it is state of this loop. Bodies are
//! received into the buffer of the fetch, or into one window that all connections share if nothing is kept. A request
//! allocates nothing once buffers have reached their sizes.
//!
//! An attempt that fails after some bytes is followed by one for the rest, which must be of the same version of the
//! object. Every answer must have the planned size of the object, so a changed object is found without another request.

mod failures;
mod parts;
mod poller;
mod receive;
mod slots;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::extent::Extent;
use model::requests::{AttemptFailure, RequestCounts};
use model::spans::SpanKind;
use model::units::Nanos;
use rustix::io::Errno;

use super::connection::{Connection, ConnectionProgress, Stage};
use super::random::random;
use super::sign::{BareRequest, Signer};
use super::site::Site;
use super::stream::{Stream, StreamError};
use crate::limits::allow_files;
use crate::{Fetch, FetchWait, FinishedFetch, Lane, Operation, Spans, StoreError, Traffic, WHOLE, Waker};
use parts::{DelayedPart, FirstAttempt, Part, Parts, ReaderFetch, largest};
use poller::{Poller, Ready, TICK, ticks};
use slots::{EndpointConnections, Slots};

/// Bytes that are received at once if they are not kept. Larger windows leave the CPU's cache, smaller ones take more
/// calls.
const WINDOW: usize = model::plan::WINDOW_BYTES as usize;
/// Ticks without a byte, one second in all, after which a request is one that the watchdog may ask about.
const QUIET: u64 = 1_000_000_000 / TICK.0;

pub(crate) struct ObjectLane<'a> {
    site: &'a Site,
    traffic: Traffic<'a>,
    signer: Signer,
    poller: Poller,
    slots: Slots,
    endpoints: Vec<EndpointConnections>,
    /// The endpoint of the next request.
    turn: usize,
    readers: Vec<ReaderFetch>,
    parts: Parts,
    /// Requests that have no connection yet, and those that wait for another attempt until a tick.
    pending: VecDeque<usize>,
    delayed: Vec<DelayedPart>,
    done: VecDeque<FinishedFetch>,
    busy: usize,
    in_flight: usize,
    limit: usize,
    window: Box<[u8]>,
    ready: Vec<Ready>,
    /// The beginning of every key, with a slash at its end.
    prefix: Vec<u8>,
    random: u64,
    spans: Spans,
}

impl<'a> ObjectLane<'a> {
    pub(crate) fn new(site: &'a Site, traffic: Traffic<'a>) -> Result<ObjectLane<'a>, StoreError> {
        let poller = Poller::new().map_err(|cause| {
            StoreError::Refused(format!("cannot wait for connections (epoll, eventfd, timerfd): {cause}"))
        })?;
        // More connections than descriptors cannot be made, and must not be made by the first lane alone.
        let most = allow_files(site.options.requests_in_flight) as usize;
        let mut prefix = site.place.prefix.clone().into_bytes();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        let readers = traffic.readers.max(1);
        Ok(ObjectLane {
            site,
            traffic,
            signer: site.signer(),
            poller,
            slots: Slots::default(),
            endpoints: site.endpoints.iter().map(|_| EndpointConnections::new(random())).collect(),
            // Lanes begin at different endpoints and addresses, as otherwise all of them would begin at the first.
            turn: random() as usize % site.endpoints.len(),
            readers: (0..readers).map(|_| ReaderFetch::default()).collect(),
            parts: Parts::default(),
            pending: VecDeque::with_capacity(readers),
            delayed: Vec::new(),
            done: VecDeque::with_capacity(readers),
            busy: 0,
            in_flight: 0,
            limit: share(most, traffic.lanes, traffic.lane),
            window: vec![0; WINDOW].into_boxed_slice(),
            ready: Vec::new(),
            prefix,
            random: random(),
            spans: Spans::default(),
        })
    }

    /// Gives connections to requests that wait for one.
    fn launch(&mut self) {
        while self.in_flight < self.limit {
            let Some(number) = self.pending.pop_front() else { return };
            let now = self.traffic.clock.now();
            let tick = self.poller.ticks;
            let part = self.parts.get(number);
            // Relaxed: the flag publishes no other data. The first request of a fetch is always made.
            let is_begun = part.place > 0 || part.first.is_some();
            if is_begun && self.traffic.give_up.load(Ordering::Relaxed) {
                self.fail_fetch(number, StoreError::GivenUp, now);
                continue;
            }
            part.first.get_or_insert(FirstAttempt { at: now, tick });
            part.attempts += 1;
            self.turn = (self.turn + 1) % self.endpoints.len();
            part.endpoint = self.turn;
            self.in_flight += 1;
            self.show(number);
            match self.connection(number, now) {
                Ok(connection) if connection.stage == Stage::Idle => self.send(connection, number, now),
                Ok(mut connection) => {
                    connection.part = Some(number);
                    self.slots.put(connection);
                }
                Err(Errno::MFILE | Errno::NFILE) if self.wait_for_files(number) => {}
                Err(cause) => {
                    self.attempt_failed(number, AttemptFailure::NotConnected, &StreamError::Lost(cause), now);
                }
            }
        }
    }

    /// Shows the watchdog what a request asks for and of which server.
    fn show(&mut self, number: usize) {
        let part = *self.parts.get(number);
        if let Some(track) = self.traffic.tracks.get(part.reader) {
            track.attempt(part.rest(), part.attempts, part.endpoint);
        }
    }

    /// A connection to the endpoint of a request: one that is idle, or a new one.
    fn connection(&mut self, number: usize, now: Nanos) -> Result<Box<Connection>, Errno> {
        let Part { endpoint, afresh, .. } = *self.parts.get(number);
        while !afresh && let Some(token) = self.endpoints[endpoint].idle.pop() {
            if let Some(connection) = self.slots.take(token) {
                return Ok(connection);
            }
        }
        let made = self.endpoints[endpoint].made;
        // Before the attempt: one that fails at once must be followed by one to the next address.
        self.endpoints[endpoint].made = made.wrapping_add(1);
        let stream = Stream::connect(self.site.address(endpoint, made))?;
        let (_, token) = self.slots.reserve();
        if let Err(cause) = self.poller.add(&stream, token, true) {
            self.slots.release(token);
            return Err(cause);
        }
        Ok(Box::new(Connection::new(stream, endpoint, token, now, self.poller.ticks)))
    }

    /// There is no descriptor for the connection of a request. Idle connections are closed for it. If there are none,
    /// it waits for those in flight, as later requests will; `false` if nothing is in flight.
    fn wait_for_files(&mut self, number: usize) -> bool {
        let mut idle = Vec::new();
        self.endpoints.iter_mut().for_each(|endpoint| idle.append(&mut endpoint.idle));
        let others = self.in_flight - 1;
        if idle.is_empty() {
            if others == 0 {
                return false;
            }
            self.limit = others;
        }
        for token in idle {
            if let Some(connection) = self.slots.take(token) {
                self.close(connection);
            }
        }
        // No attempt was made.
        self.parts.get(number).attempts -= 1;
        self.in_flight = others;
        self.pending.push_front(number);
        true
    }

    /// Sends a request on a connection that is ready.
    fn send(&mut self, mut connection: Box<Connection>, number: usize, now: Nanos) {
        connection.part = Some(number);
        let part = self.parts.get(number);
        let fetch = &self.readers[part.reader];
        let rest = part.rest();
        let (method, range) = match rest {
            Extent { len: 0, .. } => ("HEAD", None),
            rest if rest.offset == 0 && rest.len == fetch.file_bytes => ("GET", None),
            rest => ("GET", Some(rest)),
        };
        let key = [self.prefix.as_slice(), fetch.name.as_bytes()];
        let request = BareRequest { method, key, query: "", range };
        self.signer.write(&mut connection.out, &self.site.endpoints[connection.endpoint], &request);
        part.credential = self.signer.version();
        self.spans.requests.requests += 1;
        connection.begin(now, self.poller.ticks);
        self.transmit(connection, now);
    }

    /// Sends what is left of a request.
    fn transmit(&mut self, mut connection: Box<Connection>, now: Nanos) {
        match connection.send() {
            ConnectionProgress::Connected => {
                connection.stage = Stage::Head;
                self.keep(connection, false, now);
            }
            ConnectionProgress::Failed(cause) => self.lose(connection, &cause, now),
            _ => self.keep(connection, true, now),
        }
    }

    /// Puts a connection back, to be continued when its socket is ready.
    fn keep(&mut self, mut connection: Box<Connection>, writes: bool, now: Nanos) {
        let writes = writes || connection.stream.wants_write();
        if writes != connection.writes {
            if let Err(cause) = self.poller.change(&connection.stream, connection.token, writes) {
                return self.lose(connection, &StreamError::Lost(cause), now);
            }
            connection.writes = writes;
        }
        self.slots.put(connection);
    }

    /// A socket is ready.
    fn react(&mut self, Ready { token, writes }: Ready) {
        let Some(mut connection) = self.slots.take(token) else { return };
        let now = self.traffic.clock.now();
        connection.moved = self.poller.ticks;
        match connection.stage {
            Stage::Connecting | Stage::Tunnel | Stage::Handshake => self.connect(connection, writes, now),
            // Nothing was requested, so the server closes it.
            Stage::Idle => {
                self.endpoints[connection.endpoint].idle.retain(|idle| *idle != token);
                self.close(connection);
            }
            Stage::Sending => self.transmit(connection, now),
            Stage::Head | Stage::Body | Stage::Explanation => {
                if connection.stream.wants_write()
                    && let Err(cause) = connection.stream.flush()
                {
                    return self.lose(connection, &cause, now);
                }
                self.receive(connection, now);
            }
        }
    }

    fn connect(&mut self, mut connection: Box<Connection>, writes: bool, now: Nanos) {
        let endpoint = &self.site.endpoints[connection.endpoint];
        match connection.connect(endpoint, &self.site.tls, writes) {
            ConnectionProgress::Connected => {
                // A connection that no request waits for any more is attributed to the first reader.
                let reader = connection.part.map_or(0, |number| self.parts.get(number).reader);
                let times = (connection.since, now);
                self.traffic.record(&mut self.spans, reader, SpanKind::Connect, times, WHOLE);
                self.spans.requests.connects += 1;
                self.site.connected(connection.endpoint);
                match connection.part {
                    Some(number) => {
                        self.spans.requests.reconnects += u64::from(self.parts.get(number).afresh);
                        self.send(connection, number, now);
                    }
                    None => self.rest(connection, now),
                }
            }
            ConnectionProgress::Failed(cause) => self.lose(connection, &cause, now),
            ConnectionProgress::Closed => self.lose(connection, &StreamError::Lost(Errno::CONNRESET), now),
            _ => {
                let writes = connection.stage == Stage::Connecting;
                self.keep(connection, writes, now);
            }
        }
    }

    /// Keeps a connection for a later request, unless there are as many as the lane can use at once.
    fn rest(&mut self, mut connection: Box<Connection>, now: Nanos) {
        if self.endpoints[connection.endpoint].idle.len() >= self.limit {
            return self.close(connection);
        }
        connection.stage = Stage::Idle;
        connection.part = None;
        connection.used = true;
        self.endpoints[connection.endpoint].idle.push(connection.token);
        self.keep(connection, false, now);
    }

    fn close(&mut self, connection: Box<Connection>) {
        self.slots.release(connection.token);
        drop(connection);
    }

    /// A request has ended successfully.
    fn finish_part(&mut self, number: usize, now: Nanos) {
        let part = *self.parts.get(number);
        self.parts.remove(number);
        self.in_flight -= 1;
        self.spans.requests.answered += 1;
        let times = (part.first.map_or(now, |first| first.at), now);
        self.traffic.record(&mut self.spans, part.reader, SpanKind::Read, times, part.range);
        let fetch = &mut self.readers[part.reader];
        fetch.brought.reads += 1;
        fetch.brought.bytes += part.range.len;
        fetch.parts_left -= 1;
        if fetch.parts_left == 0 {
            return self.end(part.reader, now);
        }
        if let Some(track) = self.traffic.tracks.get(part.reader) {
            track.count();
        }
    }

    fn end(&mut self, reader: usize, at: Nanos) {
        let fetch = &mut self.readers[reader];
        let began = fetch.began;
        if fetch.trouble.is_some() {
            self.spans.requests.failed_bytes += fetch.received;
        }
        let (outcome, kept) = fetch.end();
        self.traffic.end(reader);
        self.busy -= 1;
        self.done.push_back(FinishedFetch { reader, at, began, outcome, kept });
    }

    /// Time has passed: pauses end, silent connections fail, and if the bytes are no longer needed, all fetches end.
    fn passed(&mut self) {
        let (tick, now) = (self.poller.ticks, self.traffic.clock.now());
        let (mut at, version) = (0, self.site.credentials().version());
        while at < self.delayed.len() {
            let DelayedPart { until, refused, .. } = self.delayed[at];
            if until <= tick || refused.is_some_and(|refused| refused != version) {
                self.pending.push_back(self.delayed.swap_remove(at).number);
            } else {
                at += 1;
            }
        }
        let silence = ticks(self.site.options.retry.silence);
        for slot in 0..self.slots.connections.len() {
            let Some(connection) = &self.slots.connections[slot] else { continue };
            let (Some(number), quiet) = (connection.part, tick.saturating_sub(connection.moved)) else {
                continue;
            };
            if quiet > silence {
                let token = connection.token;
                self.fall_silent(token, now);
            } else if quiet > QUIET {
                // Of several requests of a reader, the one that does not move is shown.
                self.show(number);
            }
        }
        // Relaxed: the flag publishes no other data.
        if self.busy > 0 && self.traffic.give_up.load(Ordering::Relaxed) {
            self.give_up(now);
        }
    }

    /// Ends the fetches that are being repeated or have not begun.
    fn give_up(&mut self, now: Nanos) {
        while let Some(number) =
            self.pending.pop_front().or_else(|| self.delayed.pop().map(|delayed| delayed.number))
        {
            self.fail_fetch(number, StoreError::GivenUp, now);
        }
    }

    /// Lets requests and answers make progress, for at most this long.
    fn poll(&mut self, most: Nanos) {
        self.launch();
        self.poller.tick(self.busy > 0);
        let mut ready = std::mem::take(&mut self.ready);
        let ticked = match self.poller.wait(most, &mut ready) {
            Ok(ticked) => ticked,
            Err(cause) => return self.lose_all(cause),
        };
        for event in ready.drain(..) {
            self.react(event);
        }
        self.ready = ready;
        if ticked {
            self.passed();
        }
        self.launch();
    }

    /// The loop itself cannot continue.
    fn lose_all(&mut self, cause: Errno) {
        let now = self.traffic.clock.now();
        for reader in 0..self.readers.len() {
            if self.readers[reader].busy {
                let name = self.site.shown_name(&self.readers[reader].name);
                self.readers[reader].trouble = Some(StoreError::io(Operation::Read, &name, cause));
                self.end(reader, now);
            }
        }
        self.pending.clear();
        self.delayed.clear();
        (self.slots, self.in_flight) = (Slots::default(), 0);
    }
}

/// The requests that one of several lanes may have in flight, so that all of them together have `most`.
fn share(most: usize, lanes: usize, lane: usize) -> usize {
    let lanes = lanes.max(1);
    (most / lanes + usize::from(lane < most % lanes)).max(1)
}

impl Lane for ObjectLane<'_> {
    fn submit(&mut self, reader: usize, fetch: Fetch<'_>) {
        debug_assert!(!self.readers[reader].busy);
        let (ranges, most) = (fetch.ranges, largest(self.traffic.transfer));
        self.readers[reader].begin(fetch, self.traffic.clock.now());
        self.busy += 1;
        let pending = &mut self.pending;
        let count = self.parts.split(reader, ranges, most, |number| pending.push_back(number));
        self.readers[reader].parts_left = count;
    }

    fn reap(&mut self) -> Option<FinishedFetch> {
        if self.done.is_empty() && self.busy > 0 {
            self.poll(Nanos::ZERO);
        }
        self.done.pop_front()
    }

    fn awaits(&self) -> FetchWait {
        match self.busy > 0 && self.done.is_empty() {
            true => FetchWait::Medium,
            false => FetchWait::Nothing,
        }
    }

    fn wait(&mut self, most: Nanos) {
        if self.done.is_empty() {
            self.poll(most);
        }
    }

    fn waker(&self) -> Option<Arc<dyn Waker>> {
        Some(self.poller.bell())
    }

    fn requests(&self) -> Option<RequestCounts> {
        Some(self.spans.requests)
    }

    fn take_spans(&mut self) -> Spans {
        std::mem::take(&mut self.spans)
    }
}

#[cfg(test)]
mod tests;
