//! The body of an answer as it arrives, without its framing: documents, and the explanations of errors. Content that is
//! measured does not pass through here.

use super::answer::BodyEnd;
use super::chunks::Chunks;

/// A body that is being received.
#[derive(Debug)]
pub(crate) struct ReceivedBody {
    end: BodyEnd,
    chunks: Chunks,
    bytes: Vec<u8>,
    /// Whether bytes arrived behind its end. They belong to no answer, so the connection must not be used again.
    has_surplus: bool,
}

impl ReceivedBody {
    pub(crate) fn new(end: BodyEnd) -> ReceivedBody {
        ReceivedBody { end, chunks: Chunks::default(), bytes: Vec::new(), has_surplus: false }
    }

    /// Begins another body in the same memory.
    pub(crate) fn begin(&mut self, end: BodyEnd) {
        self.bytes.clear();
        let bytes = std::mem::take(&mut self.bytes);
        *self = ReceivedBody { bytes, ..ReceivedBody::new(end) };
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        let taken = match self.end {
            BodyEnd::Close => bytes.len(),
            BodyEnd::Length(length) => {
                let left = length.saturating_sub(self.bytes.len() as u64);
                usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len())
            }
            BodyEnd::Chunked => {
                let taken = self.chunks.take(bytes, &mut self.bytes)?;
                self.has_surplus |= taken < bytes.len();
                return Ok(());
            }
        };
        self.bytes.extend_from_slice(&bytes[..taken]);
        self.has_surplus |= taken < bytes.len();
        Ok(())
    }

    /// Whether the announced end has arrived. The end of a connection is announced by nothing.
    pub(crate) fn is_whole(&self) -> bool {
        match self.end {
            BodyEnd::Length(length) => self.bytes.len() as u64 >= length,
            BodyEnd::Chunked => self.chunks.is_done(),
            BodyEnd::Close => false,
        }
    }

    pub(crate) fn has_surplus(&self) -> bool {
        self.has_surplus
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_ends_where_it_should_and_what_follows_is_noticed() {
        for (end, sent, whole, surplus) in [
            (BodyEnd::Length(5), "hello", true, false),
            (BodyEnd::Length(5), "hel", false, false),
            (BodyEnd::Length(5), "hello!", true, true),
            (BodyEnd::Length(0), "x", true, true),
            (BodyEnd::Chunked, "5\r\nhello\r\n0\r\n\r\n", true, false),
            (BodyEnd::Chunked, "5\r\nhello\r\n0\r\nA: b\r\n\r\nHTTP", true, true),
            (BodyEnd::Chunked, "5\r\nhello\r\n0\r\n", false, false),
            (BodyEnd::Close, "hello", false, false),
        ] {
            for piece in 1..=sent.len() {
                let mut body = ReceivedBody::new(end);
                sent.as_bytes().chunks(piece).for_each(|bytes| body.take(bytes).unwrap());
                assert_eq!((body.is_whole(), body.has_surplus()), (whole, surplus), "{sent:?} {piece}");
                assert!("hello".as_bytes().starts_with(body.bytes()), "{sent:?}");
                body.begin(BodyEnd::Length(1));
                assert!(body.bytes().is_empty() && !body.has_surplus() && !body.is_whole());
            }
        }
    }
}
