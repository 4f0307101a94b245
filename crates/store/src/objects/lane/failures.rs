//! Attempts that fail: whether another one follows, and what ends with a fetch that failed.

use model::order::mix;
use model::requests::AttemptFailure;
use model::units::Nanos;

use super::ObjectLane;
use super::parts::{DelayedPart, Parts};
use super::poller::{TICK, ticks};
use crate::objects::connection::{Connection, Stage};
use crate::objects::retry::{self, LossMeaning};
use crate::objects::stream::StreamError;
use crate::{NoAnswer, Operation, Refusal, StoreError};

impl ObjectLane<'_> {
    /// A connection failed; its request is attempted again.
    pub(super) fn lose(&mut self, connection: Box<Connection>, cause: &StreamError, now: Nanos) {
        let (part, stage, endpoint) = (connection.part, connection.stage, connection.endpoint);
        let is_unheard =
            connection.used && matches!(stage, Stage::Sending | Stage::Head) && connection.text.is_empty();
        self.close(connection);
        let Some(number) = part else { return };
        let kind = match self.site.loss(endpoint, stage, cause) {
            LossMeaning::Failed(kind) => kind,
            LossMeaning::Final(reason) => {
                self.spans.requests.fail(AttemptFailure::NotConnected);
                return self.fail_part(number, StoreError::Refused(reason), now);
            }
        };
        let part = self.parts.get(number);
        if is_unheard && !part.afresh {
            // The server closed a connection that was kept. That is usual, and no attempt of its own.
            part.afresh = true;
            part.attempts -= 1;
            self.in_flight -= 1;
            self.pending.push_front(number);
            return;
        }
        self.attempt_failed(number, kind, cause, now);
    }

    /// An attempt got no complete answer.
    pub(super) fn attempt_failed(
        &mut self,
        number: usize,
        kind: AttemptFailure,
        cause: &dyn std::fmt::Display,
        now: Nanos,
    ) {
        if self.retries(number, kind, None) {
            return;
        }
        let part = *self.parts.get(number);
        let how = NoAnswer {
            kind,
            cause: cause.to_string(),
            attempts: part.attempts,
            endpoint: self.site.endpoints[part.endpoint].label(),
        };
        let name = self.site.shown_name(&self.readers[part.reader].name);
        self.fail_part(
            number,
            StoreError::Unanswered { operation: Operation::Read, name, how: Box::new(how) },
            now,
        );
    }

    /// The server refused an attempt.
    pub(super) fn attempt_refused(
        &mut self,
        number: usize,
        kind: AttemptFailure,
        answer: (u16, &str, Option<u64>),
        now: Nanos,
    ) {
        let (status, code, retry_after) = answer;
        if !self.retries(number, kind, retry_after) {
            let refused = self.refusal(number, status, code);
            self.fail_part(number, refused, now);
        }
    }

    pub(super) fn refusal(&mut self, number: usize, status: u16, code: &str) -> StoreError {
        let part = *self.parts.get(number);
        let refusal = Refusal {
            status,
            code: code.to_owned(),
            attempts: part.attempts,
            endpoint: self.site.endpoints[part.endpoint].label(),
        };
        let name = self.site.shown_name(&self.readers[part.reader].name);
        StoreError::Rejected { operation: Operation::Read, name, refusal: Box::new(refusal) }
    }

    /// Counts a failed attempt and plans another one; `false` if there will be none.
    fn retries(&mut self, number: usize, kind: AttemptFailure, retry_after: Option<u64>) -> bool {
        self.spans.requests.fail(kind);
        self.site.attempt_failed(kind);
        self.random = mix(self.random, number as u64);
        let (tick, part) = (self.poller.ticks, self.parts.get(number));
        let refused = (kind == AttemptFailure::Expired).then_some(part.credential);
        if refused.is_some_and(|version| !self.site.credentials().refused(version)) {
            return false;
        }
        // A server that refuses answers on a connection that works.
        part.afresh |= kind.breaks_connection();
        let first = part.first.map_or(tick, |first| first.tick);
        let elapsed = Nanos((tick - first).saturating_mul(TICK.0));
        let policy = &self.site.options.retry;
        let Some(pause) = retry::pause(policy, part.attempts, elapsed, retry_after, self.random) else {
            return false;
        };
        let pause = if refused.is_some() { pause.max(retry::renewal_wait(policy, elapsed)) } else { pause };
        self.in_flight -= 1;
        self.delayed.push(DelayedPart { number, until: tick + ticks(pause), refused });
        true
    }

    /// A request in flight has failed, and with it its fetch.
    pub(super) fn fail_part(&mut self, number: usize, error: StoreError, now: Nanos) {
        self.in_flight -= 1;
        self.fail_fetch(number, error, now);
    }

    /// Ends the fetch of a request that is not in flight, and its other requests.
    pub(super) fn fail_fetch(&mut self, number: usize, error: StoreError, now: Nanos) {
        let reader = self.parts.get(number).reader;
        self.show(number);
        self.parts.remove(number);
        let fetch = &mut self.readers[reader];
        fetch.trouble.get_or_insert(error);
        let mut ended = 1;
        let ObjectLane { parts, pending, delayed, .. } = self;
        pending.retain(|other| keeps(parts, *other, reader, &mut ended));
        delayed.retain(|other| keeps(parts, other.number, reader, &mut ended));
        for slot in 0..self.slots.connections.len() {
            let Some(connection) = &self.slots.connections[slot] else { continue };
            let Some(other) = connection.part.filter(|other| self.parts.get(*other).reader == reader) else {
                continue;
            };
            let token = connection.token;
            if let Some(connection) = self.slots.take(token) {
                self.close(connection);
            }
            self.parts.remove(other);
            self.in_flight -= 1;
            ended += 1;
        }
        debug_assert_eq!(self.readers[reader].parts_left, ended);
        self.readers[reader].parts_left = 0;
        self.end(reader, now);
    }

    pub(super) fn fall_silent(&mut self, token: u64, now: Nanos) {
        let Some(connection) = self.slots.take(token) else { return };
        let (part, stage) = (connection.part, connection.stage);
        self.close(connection);
        let silence = self.site.options.retry.silence;
        let kind = if stage.is_connecting() { AttemptFailure::NotConnected } else { AttemptFailure::Silent };
        if let Some(number) = part {
            let cause = format!("no byte for {silence}");
            self.attempt_failed(number, kind, &cause, now);
        }
    }
}

/// Whether a request belongs to another reader; otherwise it is removed and counted.
fn keeps(parts: &mut Parts, number: usize, reader: usize, ended: &mut usize) -> bool {
    let is_other = parts.get(number).reader != reader;
    if !is_other {
        parts.remove(number);
        *ended += 1;
    }
    is_other
}
