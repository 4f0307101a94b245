//! Answers to the requests of a lane: heads are checked against what was requested, and content goes to the fetch.

use model::requests::AttemptFailure;
use model::spans::SpanKind;
use model::units::Nanos;

use super::{ObjectLane, WINDOW};
use crate::objects::answer::{AnswerHead, BodyEnd, MOST_HEAD, code};
use crate::objects::connection::{Connection, ConnectionProgress, Stage};
use crate::objects::retry::{self, AnswerMeaning};
use crate::objects::stream::StreamError;
use crate::{StoreError, size};

/// Bytes of kept content that are received at once, so that one connection does not delay the others.
const MOST_AT_ONCE: usize = 1 << 20;

/// Why the head of an answer does not fit its request.
enum Misfit {
    /// The object is not as planned.
    Object(StoreError),
    /// The answer is wrong; another one may be right.
    Answer(&'static str),
}

impl ObjectLane<'_> {
    /// Receives what has arrived on a connection.
    pub(super) fn receive(&mut self, mut connection: Box<Connection>, mut now: Nanos) {
        let Some(number) = connection.part else { return self.close(connection) };
        loop {
            let progress = match connection.stage {
                Stage::Head => self.receive_head(&mut connection, number),
                Stage::Body => self.receive_content(&mut connection, number),
                _ => connection.receive_explanation(&mut self.window),
            };
            let outcome = match progress {
                ConnectionProgress::Wait => return self.keep(connection, false, now),
                ConnectionProgress::Head(head, behind) => {
                    self.begin_content(&mut connection, number, head, behind, now)
                }
                ConnectionProgress::Content(count) => self.take_content(&mut connection, number, count),
                ConnectionProgress::Explained => return self.explained(connection, number, now),
                ConnectionProgress::Closed => {
                    let cause = StreamError::Lost(rustix::io::Errno::CONNRESET);
                    return self.lose(connection, &cause, now);
                }
                ConnectionProgress::Failed(cause) => return self.lose(connection, &cause, now),
                ConnectionProgress::Nonsense(what) => Err(Misfit::Answer(what)),
                ConnectionProgress::Connected => Ok(()),
            };
            match outcome {
                Err(misfit) => return self.misfit(connection, number, misfit, now),
                Ok(()) if connection.stage == Stage::Body && connection.left == 0 => {
                    now = self.traffic.clock.now();
                    return self.complete(connection, number, now);
                }
                Ok(()) if connection.stream.holds_back() || connection.stage == Stage::Explanation => {
                    if connection.stage == Stage::Explanation && connection.is_explained() {
                        return self.explained(connection, number, now);
                    }
                }
                Ok(()) => return self.keep(connection, false, now),
            }
        }
    }

    /// Receives a head, and what follows it: into the buffer of the fetch, if there is one.
    fn receive_head(&mut self, connection: &mut Connection, number: usize) -> ConnectionProgress {
        let part = *self.parts.get(number);
        let rest = part.rest();
        let is_known =
            connection.head_bytes > 0 && connection.text.is_empty() && !connection.stream.holds_back();
        match &mut self.readers[part.reader].kept {
            Some(kept) if is_known && rest.len > 0 => {
                let from = (part.place + part.done) as usize;
                let body = &mut kept.room()[from..from + rest.len as usize];
                let most = body.len().min(MOST_AT_ONCE);
                connection.head_and_body(&mut self.window, body, most)
            }
            // Only as much as a head may take, because what follows has to be copied.
            Some(_) => connection.head(&mut self.window[..MOST_HEAD]),
            None => connection.head(&mut self.window),
        }
    }

    fn receive_content(&mut self, connection: &mut Connection, number: usize) -> ConnectionProgress {
        let part = *self.parts.get(number);
        let left = usize::try_from(connection.left).unwrap_or(usize::MAX);
        match &mut self.readers[part.reader].kept {
            Some(kept) => {
                let from = (part.place + part.done) as usize;
                connection.content(&mut kept.room()[from..from + left.min(MOST_AT_ONCE)])
            }
            None => connection.content(&mut self.window[..left.min(WINDOW)]),
        }
    }

    /// The head is complete, and `behind` bytes have arrived with it.
    fn begin_content(
        &mut self,
        connection: &mut Connection,
        number: usize,
        head: AnswerHead,
        behind: usize,
        now: Nanos,
    ) -> Result<(), Misfit> {
        let part = *self.parts.get(number);
        let times = (connection.since, now);
        self.traffic.record(&mut self.spans, part.reader, SpanKind::FirstByte, times, part.rest());
        connection.since = now;
        connection.answer = Some(head);
        if let Some(track) = self.traffic.tracks.get(part.reader) {
            track.count();
        }
        connection.head_bytes = head.bytes.min(MOST_HEAD);
        if !head.is_success() {
            let bytes = match (&mut self.readers[part.reader].kept, connection.placed) {
                (Some(kept), true) => &kept.room()[(part.place + part.done) as usize..][..behind],
                _ => &self.window[..behind],
            };
            let is_head = part.rest().len == 0;
            return connection.begin_explanation(head.end, is_head, bytes).map_err(Misfit::Answer);
        }
        self.spans.requests.from_caches += u64::from(head.is_aged);
        self.check_head(number, &head)?;
        connection.left = part.rest().len;
        connection.stage = Stage::Body;
        if behind as u64 > connection.left {
            return Err(Misfit::Answer("the answer has more bytes than were requested"));
        }
        if behind == 0 {
            return Ok(());
        }
        if !connection.placed
            && let Some(kept) = &mut self.readers[part.reader].kept
        {
            let from = (part.place + part.done) as usize;
            kept.room()[from..from + behind].copy_from_slice(&self.window[..behind]);
        }
        self.take_content(connection, number, behind)
    }

    /// Compares the head of a successful answer with the request.
    fn check_head(&mut self, number: usize, head: &AnswerHead) -> Result<(), Misfit> {
        let part = *self.parts.get(number);
        let (site, rest, fetch) = (self.site, part.rest(), &mut self.readers[part.reader]);
        let BodyEnd::Length(length) = head.end else {
            return Err(Misfit::Answer("the answer does not say how long it is"));
        };
        let total = match head.range {
            Some(range) => range.total,
            None => Some(length),
        };
        let compare = |found| size::compare(found, fetch.file_bytes, || site.shown_name(&fetch.name));
        if let Some(total) = total
            && (head.range.is_some() || rest.len == 0 || rest.len == fetch.file_bytes)
        {
            compare(total).map_err(Misfit::Object)?;
        }
        let is_requested = match head.range {
            Some(range) => {
                range.bounds == Some((rest.offset, rest.end().saturating_sub(1))) && length == rest.len
            }
            None => rest.len == 0 || (rest.offset == 0 && rest.len == fetch.file_bytes && length == rest.len),
        };
        // The range was planned to go beyond the end of the object.
        if let Some(range) = head.range
            && let (Some((first, last)), Some(total)) = (range.bounds, range.total)
            && first == rest.offset
            && last + 1 == total
            && total < rest.end()
        {
            let name = site.shown_name(&fetch.name);
            return Err(Misfit::Object(StoreError::Short { name, end: total, needed: rest.end() }));
        }
        if !is_requested {
            return Err(Misfit::Answer("the server sent another range than was requested"));
        }
        match (fetch.version, head.version) {
            (Some(known), Some(found)) if known != found => {
                let name = site.shown_name(&fetch.name);
                Err(Misfit::Object(StoreError::Changed { name }))
            }
            (Some(_), None) if fetch.is_listed => Err(Misfit::Answer("the answer has no entity tag")),
            (None, found) => {
                fetch.version = found;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Content has arrived where it belongs, or in the window.
    fn take_content(
        &mut self,
        connection: &mut Connection,
        number: usize,
        count: usize,
    ) -> Result<(), Misfit> {
        let part = *self.parts.get(number);
        let fetch = &mut self.readers[part.reader];
        self.spans.requests.received_bytes += count as u64;
        fetch.received += count as u64;
        if let (Some(witness), Some(file)) = (self.traffic.witness, fetch.purpose.witnessed()) {
            let came = match &mut fetch.kept {
                Some(kept) => &kept.room()[(part.place + part.done) as usize..][..count],
                None => &self.window[..count],
            };
            let offset = part.range.offset + part.done;
            witness.see(part.reader, file, offset, came).map_err(Misfit::Object)?;
        }
        if let Some(track) = self.traffic.tracks.get(part.reader) {
            track.count();
        }
        self.parts.get(number).done += count as u64;
        connection.left -= count as u64;
        Ok(())
    }

    /// The answer is complete.
    fn complete(&mut self, connection: Box<Connection>, number: usize, now: Nanos) {
        let (part, times) = (*self.parts.get(number), (connection.since, now));
        self.traffic.record(&mut self.spans, part.reader, SpanKind::Body, times, part.range);
        match connection.answer {
            Some(AnswerHead { closes: true, .. }) | None => self.close(connection),
            Some(_) => self.rest(connection, now),
        }
        self.finish_part(number, now);
    }

    /// The answer does not fit. The connection is not used again: the rest of the answer may follow.
    fn misfit(&mut self, connection: Box<Connection>, number: usize, misfit: Misfit, now: Nanos) {
        self.close(connection);
        match misfit {
            Misfit::Object(error) => self.fail_part(number, error, now),
            Misfit::Answer(what) => self.attempt_failed(number, AttemptFailure::Malformed, &what, now),
        }
    }

    /// The server refused the request and said why.
    fn explained(&mut self, connection: Box<Connection>, number: usize, now: Nanos) {
        let Some(head) = connection.answer else { return self.close(connection) };
        let (document, is_reusable) = connection.explained();
        let code = code(document);
        match is_reusable {
            true => self.rest(connection, now),
            false => self.close(connection),
        }
        let part = *self.parts.get(number);
        let (site, fetch) = (self.site, &self.readers[part.reader]);
        let shown = || site.shown_name(&fetch.name);
        let total = head.range.and_then(|range| range.total);
        match retry::meaning(head.status, &code) {
            AnswerMeaning::Failed(kind) => {
                self.attempt_refused(number, kind, (head.status, &code, head.retry_after), now);
            }
            AnswerMeaning::Missing => {
                let error = StoreError::Missing { name: shown() };
                self.fail_part(number, error, now);
            }
            // The range is outside of the object.
            AnswerMeaning::Final | AnswerMeaning::Success => {
                let misfit = total.and_then(|total| size::compare(total, fetch.file_bytes, shown).err());
                let error = match misfit.filter(|_| head.status == 416) {
                    Some(error) => error,
                    None => self.refusal(number, head.status, &code),
                };
                self.fail_part(number, error, now);
            }
        }
    }
}
