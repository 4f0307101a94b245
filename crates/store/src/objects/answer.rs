//! Heads of HTTP answers: what they say about the object, and how the body ends.

use std::mem::MaybeUninit;

use model::objects::ObjectVersion;

use super::date::parse_http;

/// Most headers of an answer. Servers send about 15, and one for each item of user metadata: S3 allows 2 KiB of it,
/// which is fewer than 256 items.
const HEADERS: usize = 256;
/// Most bytes of a head.
pub(crate) const MOST_HEAD: usize = 16 << 10;

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    /// After this many bytes.
    Length(u64),
    /// After the last chunk.
    Chunked,
    /// When the server closes the connection.
    Close,
}

/// The range of an object that a body holds, and the size of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentRange {
    /// First and last byte; `None` if no byte is in the requested range.
    pub(crate) bounds: Option<(u64, u64)>,
    pub(crate) total: Option<u64>,
}

/// The head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerHead {
    /// Its own length.
    pub(crate) bytes: usize,
    pub(crate) status: u16,
    pub(crate) end: BodyEnd,
    pub(crate) range: Option<ContentRange>,
    pub(crate) version: Option<ObjectVersion>,
    /// Seconds to wait before the next attempt.
    pub(crate) retry_after: Option<u64>,
    /// Whether the server closes the connection after it.
    pub(crate) closes: bool,
    /// Whether a cache had the answer for a second or longer, by its own word (header `Age`).
    pub(crate) is_aged: bool,
}

impl AnswerHead {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether another answer to the same request follows. A server may send such heads unasked.
    fn is_interim(&self) -> bool {
        matches!(self.status, 100 | 102 | 103)
    }
}

/// Parses the head at the beginning of `bytes`; `None` if it is not complete yet. Interim answers before it are
/// skipped, and are part of its length. `see` gets every header.
pub(crate) fn parse(
    bytes: &[u8],
    mut see: impl FnMut(&str, &[u8]),
) -> Result<Option<AnswerHead>, &'static str> {
    let mut skipped = 0;
    loop {
        match parse_one(&bytes[skipped..], &mut see)? {
            Some(head) if head.is_interim() => skipped += head.bytes,
            Some(head) => return Ok(Some(AnswerHead { bytes: skipped + head.bytes, ..head })),
            None if bytes.len() >= MOST_HEAD => return Err("the head of the answer is too long"),
            None => return Ok(None),
        }
    }
}

fn parse_one(bytes: &[u8], see: &mut impl FnMut(&str, &[u8])) -> Result<Option<AnswerHead>, &'static str> {
    // Not initialized: that would take longer than parsing.
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS];
    let mut parsed = httparse::Response::new(&mut []);
    let outcome = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut parsed,
        bytes,
        &mut headers,
    );
    let length = match outcome {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err("the answer has more than 256 headers"),
        Err(_) => return Err("the answer is not HTTP"),
    };
    let mut head = AnswerHead {
        bytes: length,
        status: parsed.code.unwrap_or(0),
        end: BodyEnd::Close,
        range: None,
        version: None,
        retry_after: None,
        closes: parsed.version == Some(0),
        is_aged: false,
    };
    let (mut date, mut retry_date) = (None, None);
    for httparse::Header { name, value } in parsed.headers.iter() {
        see(name, value);
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("content-length") {
            let length = number(value).ok_or("the answer has an invalid Content-Length")?;
            if matches!(head.end, BodyEnd::Length(other) if other != length) {
                return Err("the answer has two different Content-Lengths");
            }
            if head.end != BodyEnd::Chunked {
                head.end = BodyEnd::Length(length);
            }
        } else if is("content-range") {
            head.range = Some(content_range(value).ok_or("the answer has an invalid Content-Range")?);
        } else if is("etag") {
            head.version = ObjectVersion::of_tag(value);
        } else if is("transfer-encoding") {
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err("the answer has an unknown Transfer-Encoding");
            }
            head.end = BodyEnd::Chunked;
        } else if is("connection") {
            head.closes |= value.eq_ignore_ascii_case(b"close");
        } else if is("retry-after") {
            head.retry_after = number(value);
            retry_date = parse_http(value);
        } else if is("age") {
            head.is_aged = number(value).is_some_and(|seconds| seconds > 0);
        } else if is("date") {
            date = parse_http(value);
        }
    }
    // The server's own clock says how long that is.
    head.retry_after =
        head.retry_after.or(retry_date.zip(date).map(|(until, now)| until.saturating_sub(now)));
    if matches!(head.status, 204 | 304 | 100..=199) {
        head.end = BodyEnd::Length(0);
    }
    head.closes |= head.end == BodyEnd::Close;
    Ok(Some(head))
}

fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `bytes 0-9/100`, `bytes 0-9/*` or `bytes */100`.
fn content_range(value: &[u8]) -> Option<ContentRange> {
    let (bounds, total) = std::str::from_utf8(value).ok()?.strip_prefix("bytes ")?.split_once('/')?;
    let total = if total == "*" { None } else { Some(number(total.as_bytes())?) };
    let bounds = match bounds {
        "*" => None,
        bounds => {
            let (first, last) = bounds.split_once('-')?;
            let (first, last) = (number(first.as_bytes())?, number(last.as_bytes())?);
            Some((first <= last).then_some((first, last))?)
        }
    };
    Some(ContentRange { bounds, total })
}

/// The text of the first element `<NAME>` in an XML document, such as the code of an error.
pub(crate) fn element<'a>(document: &'a [u8], name: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(document).ok()?;
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once("</")?.0.trim())
}

/// The service's word for an error, from its document. A word is short and has no spaces: anything else is not one.
pub(crate) fn code(document: &[u8]) -> String {
    let is_word = |code: &&str| code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    element(document, "Code").filter(is_word).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Option<AnswerHead>, &'static str> {
        parse(text.replace('\n', "\r\n").as_bytes(), |_, _| {})
    }

    #[test]
    fn heads_are_understood() {
        let found = head(
            "HTTP/1.1 206 Partial Content\nContent-Length: 10\ncontent-range: bytes 5-14/100\nETag: \"abc\"\n\nbody",
        );
        let found = found.unwrap().unwrap();
        assert_eq!((found.status, found.end, found.closes), (206, BodyEnd::Length(10), false));
        assert_eq!(found.range, Some(ContentRange { bounds: Some((5, 14)), total: Some(100) }));
        assert_eq!(found.version, ObjectVersion::of_tag(b"abc"));
        for (text, end, closes) in [
            ("HTTP/1.1 200 OK\n\n", BodyEnd::Close, true),
            ("HTTP/1.0 200 OK\nContent-Length: 1\n\n", BodyEnd::Length(1), true),
            ("HTTP/1.1 200 OK\nContent-Length: 1\nConnection: close\n\n", BodyEnd::Length(1), true),
            ("HTTP/1.1 500 x\nTransfer-Encoding: chunked\nContent-Length: 9\n\n", BodyEnd::Chunked, false),
            ("HTTP/1.1 204 x\n\n", BodyEnd::Length(0), false),
        ] {
            let found = head(text).unwrap().unwrap();
            assert_eq!((found.end, found.closes), (end, closes), "{text}");
        }
        assert_eq!(head("HTTP/1.1 200 OK\nContent-Le"), Ok(None));
        for (age, is_aged) in [("Age: 7\n", true), ("Age: 0\n", false), ("Age: x\n", false), ("", false)] {
            let found = head(&format!("HTTP/1.1 200 OK\n{age}\n")).unwrap().unwrap();
            assert_eq!(found.is_aged, is_aged, "{age}");
        }
    }

    #[test]
    fn waits_are_seconds_or_dates() {
        for (lines, seconds) in [
            ("Retry-After: 7", Some(7)),
            ("Date: Thu, 01 Jan 1970 00:00:10 GMT\nRetry-After: Thu, 01 Jan 1970 00:00:15 GMT", Some(5)),
            ("Date: Thu, 01 Jan 1970 00:01:10 GMT\nRetry-After: Thu, 01 Jan 1970 00:00:15 GMT", Some(0)),
            ("Retry-After: soon", None),
        ] {
            let found = head(&format!("HTTP/1.1 503 x\n{lines}\n\n")).unwrap().unwrap();
            assert_eq!(found.retry_after, seconds, "{lines}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "SSH-2.0-OpenSSH\n\n",
            "HTTP/1.1 200 OK\nContent-Length: -1\n\n",
            "HTTP/1.1 200 OK\nContent-Length: 1\nContent-Length: 2\n\n",
            "HTTP/1.1 206 OK\nContent-Range: bytes 9-5/10\n\n",
            "HTTP/1.1 206 OK\nContent-Range: 1-2/3\n\n",
            "HTTP/1.1 200 OK\nTransfer-Encoding: gzip\n\n",
        ] {
            assert!(head(text).is_err(), "{text}");
        }
        assert!(head(&format!("HTTP/1.1 200 OK\nX: {}", "y".repeat(MOST_HEAD))).is_err());
        let with = |headers: usize| head(&format!("HTTP/1.1 200 OK\n{}\n", "X: y\n".repeat(headers)));
        assert!(with(HEADERS).is_ok_and(|head| head.is_some()));
        assert_eq!(with(HEADERS + 1), Err("the answer has more than 256 headers"));
    }

    #[test]
    fn interim_answers_are_skipped() {
        let interim = "HTTP/1.1 100 Continue\n\nHTTP/1.1 103 Early Hints\nLink: x\n\n";
        let last = "HTTP/1.1 200 OK\nContent-Length: 7\n\n";
        let whole = format!("{interim}{last}");
        let found = head(&whole).unwrap().unwrap();
        assert_eq!((found.status, found.end), (200, BodyEnd::Length(7)));
        assert_eq!(found.bytes, whole.replace('\n', "\r\n").len());
        for end in 0..whole.len() {
            assert_eq!(head(&whole[..end]), Ok(None), "{end}");
        }
        assert_eq!(head("HTTP/1.1 101 Switching Protocols\n\n").unwrap().unwrap().status, 101);
        assert!(head(&interim.repeat(1000)).is_err(), "they end");
    }

    #[test]
    fn codes_are_words() {
        assert_eq!(code(b"<?xml?><Error><Code>NoSuchKey</Code><Message>x</Message></Error>"), "NoSuchKey");
        assert_eq!(code(b"<html>404</html>"), "");
        assert_eq!(code(b"<Code>rm -rf</Code>"), "");
    }
}
