//! What an attempt of a write request saw: the status, the service's word for the cause, when to try again, and the
//! checksums that the server computed. The library does not pass these on. Nothing here can hold a URL, a signature or
//! a body, because all of it may reach a message.

use std::time::Duration;

use model::requests::AttemptFailure;

use super::super::retry::is_expired;

/// How many characters of a cause are kept.
const LONGEST_WORD: usize = 64;

/// What became of one attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The server, as host and port.
    pub(super) endpoint: String,
    /// `None` if no answer arrived.
    pub(super) status: Option<u16>,
    /// The service's own word, such as `SlowDown`; empty if there is none.
    pub(super) code: String,
    pub(super) retry_after: Option<Duration>,
    pub(super) lost: Option<LostAnswer>,
    pub(super) sums: ServerSums,
}

/// Why there was no complete answer.
#[derive(Clone, Debug)]
pub(super) struct LostAnswer {
    pub(super) kind: AttemptFailure,
    pub(super) cause: String,
    /// Whether every further attempt would fail in the same way.
    pub(super) permanent: bool,
}

/// Checksums that a server computed of what it stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerSums {
    /// CRC-64/NVME of the bytes of this request.
    pub(super) crc64: Option<u64>,
    pub(super) crc32c: Option<u32>,
    /// CRC-64/NVME of the whole object, which completes an upload.
    pub(super) whole_crc64: Option<u64>,
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// It may succeed when it is repeated.
    Retry(AttemptFailure),
    /// It may succeed with new credentials.
    Renew,
    /// It will fail again.
    Final,
}

impl Seen {
    /// What follows, if the library reported an error for this attempt.
    pub(super) fn outlook(&self) -> Outlook {
        if let Some(lost) = &self.lost {
            return if lost.permanent { Outlook::Final } else { Outlook::Retry(lost.kind) };
        }
        match (self.status, self.code.as_str()) {
            (None, _) => Outlook::Final,
            (Some(status), code) if is_expired(status, code) => Outlook::Renew,
            (_, "SlowDown" | "ServerBusy" | "Throttling" | "TooManyRequests") | (Some(429 | 503), _) => {
                Outlook::Retry(AttemptFailure::Throttled)
            }
            (Some(507), _) => Outlook::Final,
            (Some(408 | 500..), _) | (_, "InternalError" | "RequestTimeout" | "OperationTimedOut") => {
                Outlook::Retry(AttemptFailure::ServerError)
            }
            // Two conditional writes met; the server does not say which of them succeeded.
            (Some(409), "ConditionalRequestConflict" | "OperationAborted") => {
                Outlook::Retry(AttemptFailure::ServerError)
            }
            // The bytes changed in flight.
            (
                _,
                "BadDigest"
                | "Md5Mismatch"
                | "Crc64Mismatch"
                | "XAmzContentChecksumMismatch"
                | "IncompleteBody",
            ) => Outlook::Retry(AttemptFailure::Malformed),
            // An answer that the library could not read.
            (Some(200..300), "") => Outlook::Retry(AttemptFailure::Malformed),
            _ => Outlook::Final,
        }
    }

    /// Whether the server may have carried out an attempt that failed like this.
    pub(super) fn may_have_succeeded(&self) -> bool {
        match &self.lost {
            Some(lost) => lost.kind != AttemptFailure::NotConnected,
            None => self.status.is_some_and(|status| !(300..500).contains(&status)),
        }
    }

    /// Whether the condition of a write did not hold.
    pub(super) fn condition_failed(&self, on_tag: bool) -> bool {
        match (self.status, self.code.as_str()) {
            (Some(412 | 304), _) => true,
            // Other conflicts say nothing about the object.
            (Some(409), "BlobAlreadyExists" | "") => !on_tag,
            (Some(404), code) => on_tag && !names_bucket(code),
            _ => false,
        }
    }

    /// Whether the object does not exist, while the bucket does.
    pub(super) fn is_missing(&self) -> bool {
        self.status == Some(404) && !names_bucket(&self.code)
    }

    /// Whether the upload whose completion this answers does not exist any more.
    pub(super) fn upload_is_gone(&self) -> bool {
        let code = self.code.as_str();
        (self.status == Some(404) && !names_bucket(code))
            || matches!(code, "NoSuchUpload" | "InvalidBlockList")
    }

    /// Whether the library took an answer without an error for one with an error: it looks for words such as SlowDown
    /// in the answer to a completion, which also repeats the key.
    pub(super) fn is_misread(&self) -> bool {
        matches!(self.status, Some(200..300)) && self.code.is_empty() && self.lost.is_none()
    }

    /// Whether the server has no space left.
    pub(super) fn is_full(&self) -> bool {
        let words = ["QuotaExceeded", "StorageFull", "InsufficientStorage", "OutOfCapacity"];
        self.status == Some(507) || words.iter().any(|word| self.code.ends_with(word))
    }
}

/// Whether a 404 is about the bucket.
fn names_bucket(code: &str) -> bool {
    matches!(code, "NoSuchBucket" | "ContainerNotFound" | "ContainerBeingDeleted" | "ResourceNotFound")
}

/// The service's word in the body of an error. A body that does not look like one has none, so that nothing else
/// reaches a message.
pub(super) fn code_of(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let after = text.find("<Error").and_then(|at| element(&text[at..], "Code"));
    after.map(word).unwrap_or_default()
}

/// Letters, digits and dots, and not too many of them.
pub(super) fn word(text: &str) -> String {
    let plain = text.chars().take_while(|c| c.is_ascii_alphanumeric() || ".-_".contains(*c));
    plain.take(LONGEST_WORD).collect()
}

/// The text of the first element of this name.
pub(super) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(&format!("<{name}>"))?;
    Some(after.split_once('<')?.0.trim())
}

/// How long a server asks to wait: seconds, or a date, which is compared with the date of the answer itself.
pub(super) fn retry_after(value: Option<&str>, date: Option<&str>) -> Option<Duration> {
    let value = value?.trim();
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let wait = seconds_of_date(value)?.saturating_sub(seconds_of_date(date?.trim())?);
    Some(Duration::from_secs(wait))
}

/// Seconds since 1970 of a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn seconds_of_date(text: &str) -> Option<u64> {
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_once(", ")?.1.split(' ');
    let day: u64 = words.next()?.parse().ok()?;
    let month = words.next()?;
    let month = months.iter().position(|name| *name == month)? as u64 + 1;
    let year: u64 = words.next()?.parse().ok().filter(|year| (1970..10_000).contains(year))?;
    let mut clock = words.next()?.split(':').map(|part| part.parse::<u64>().ok());
    let (hours, minutes, seconds) = (clock.next()??, clock.next()??, clock.next()??);
    // Years begin in March here, so that a leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some(days * 86_400 + hours * 3600 + minutes * 60 + seconds)
}

/// The bytes of a text in base64; `None` if it is not one.
pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bits, mut count, mut bytes) = (0u32, 0, Vec::new());
    for c in text.trim_end_matches('=').bytes() {
        bits = bits << 6 | u32::from(digit(c)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_taken_from_errors_only() {
        for (body, code) in [
            ("<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>x</Message></Error>", "SlowDown"),
            ("<Error><Message>no code</Message></Error>", ""),
            ("<Result><Code>Other</Code></Result>", ""),
            ("<Error><Code>a b?sig=secret</Code></Error>", "a"),
            ("", ""),
        ] {
            assert_eq!(code_of(body.as_bytes()), code);
        }
    }

    #[test]
    fn waits_are_seconds_or_dates() {
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(retry_after(Some("2"), None), Some(Duration::from_secs(2)));
        assert_eq!(retry_after(Some("Sun, 06 Nov 1994 08:50:07 GMT"), date), Some(Duration::from_secs(30)));
        assert_eq!(retry_after(Some("Sun, 06 Nov 1994 08:49:07 GMT"), date), Some(Duration::ZERO));
        assert_eq!((retry_after(Some("soon"), date), retry_after(None, date)), (None, None));
        assert_eq!(retry_after(Some("Sun, 06 Nov 1994 08:50:07 GMT"), None), None);
        assert_eq!(seconds_of_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(seconds_of_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(seconds_of_date("Thu, 29 Feb 2024 23:59:59 GMT"), Some(1_709_251_199));
    }

    #[test]
    fn base64_is_decoded() {
        for (text, bytes) in [("", &b""[..]), ("TWE=", b"Ma"), ("TWFu", b"Man"), ("/+8=", b"\xff\xef")] {
            assert_eq!(from_base64(text).as_deref(), Some(bytes));
        }
        assert_eq!(from_base64("a b"), None);
    }

    #[test]
    fn every_kind_of_answer_has_its_consequence() {
        let seen =
            |status: u16, code: &str| Seen { status: Some(status), code: code.into(), ..Seen::default() };
        for (seen, outlook) in [
            (seen(500, ""), Outlook::Retry(AttemptFailure::ServerError)),
            (seen(503, "SlowDown"), Outlook::Retry(AttemptFailure::Throttled)),
            (seen(429, ""), Outlook::Retry(AttemptFailure::Throttled)),
            (seen(408, ""), Outlook::Retry(AttemptFailure::ServerError)),
            (seen(200, "InternalError"), Outlook::Retry(AttemptFailure::ServerError)),
            (seen(200, "InvalidPart"), Outlook::Final),
            (seen(200, ""), Outlook::Retry(AttemptFailure::Malformed)),
            (seen(400, "BadDigest"), Outlook::Retry(AttemptFailure::Malformed)),
            (seen(400, "ExpiredToken"), Outlook::Renew),
            (seen(403, "AccessDenied"), Outlook::Final),
            (seen(404, "NoSuchBucket"), Outlook::Final),
            (seen(507, ""), Outlook::Final),
            (Seen::default(), Outlook::Final),
        ] {
            assert_eq!(seen.outlook(), outlook, "{seen:?}");
        }
        assert!(
            seen(412, "").condition_failed(true) && seen(409, "BlobAlreadyExists").condition_failed(false)
        );
        for code in
            ["ConditionalRequestConflict", "OperationAborted", "BucketNotEmpty", "LeaseAlreadyPresent"]
        {
            assert!(!seen(409, code).condition_failed(false), "{code}");
        }
        assert!(seen(409, "").condition_failed(false) && !seen(409, "").condition_failed(true));
        assert!(!seen(404, "NoSuchBucket").condition_failed(true) && seen(404, "").condition_failed(true));
        assert!(seen(404, "NoSuchUpload").upload_is_gone() && !seen(404, "NoSuchBucket").upload_is_gone());
    }
}
