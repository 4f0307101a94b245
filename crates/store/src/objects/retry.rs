//! Whether a failed attempt is repeated, and when.

use model::objects::RetryPolicy;
use model::requests::AttemptFailure;
use model::units::Nanos;

use super::connection::Stage;
use super::endpoint::Endpoint;
use super::stream::StreamError;

/// What an answer means for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerMeaning {
    /// The object, or the part of it that was requested.
    Success,
    /// There is no such object.
    Missing,
    /// Another attempt may succeed.
    Failed(AttemptFailure),
    /// No attempt will succeed.
    Final,
}

/// Codes of credentials that have expired.
const EXPIRED: [&str; 4] =
    ["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidAuthenticationInfo"];
/// Codes of a missing bucket, which also have the status 404.
const NO_BUCKET: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];

/// How long a request whose credential was refused waits for another one: the source has 5 s to answer, and may have
/// been asked just before.
const RENEWAL_WAIT: Nanos = Nanos(10_000_000_000);

/// How long a request may wait for another credential. `elapsed`: time since its first attempt.
pub(crate) fn renewal_wait(policy: &RetryPolicy, elapsed: Nanos) -> Nanos {
    RENEWAL_WAIT.min(policy.deadline.since(elapsed))
}

/// Whether the service says that credentials have expired.
pub(crate) fn names_expiry(code: &str) -> bool {
    EXPIRED.contains(&code)
}

/// Whether an answer means that the credential is not accepted any more, so that another one may be.
pub(crate) fn is_expired(status: u16, code: &str) -> bool {
    status == 401 || names_expiry(code)
}

/// What the answer with this status and error code means. The code of an answer to HEAD is not known.
pub(crate) fn meaning(status: u16, code: &str) -> AnswerMeaning {
    match status {
        200..=299 => AnswerMeaning::Success,
        404 if !NO_BUCKET.contains(&code) => AnswerMeaning::Missing,
        429 | 503 => AnswerMeaning::Failed(AttemptFailure::Throttled),
        408 | 500..=599 => AnswerMeaning::Failed(AttemptFailure::ServerError),
        status if is_expired(status, code) => AnswerMeaning::Failed(AttemptFailure::Expired),
        _ => AnswerMeaning::Final,
    }
}

/// What the failure of a connection means for its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LossMeaning {
    /// Another attempt may succeed.
    Failed(AttemptFailure),
    /// No attempt will succeed, for this reason.
    Final(String),
}

/// What it means that a connection to `endpoint` failed at this stage. `spoke_tls`: whether another connection to it
/// has completed the handshake of TLS.
pub(crate) fn loss(cause: &StreamError, stage: Stage, endpoint: &Endpoint, spoke_tls: bool) -> LossMeaning {
    let label = endpoint.label();
    match cause {
        StreamError::Certificate(_) => LossMeaning::Final(format!("cannot use TLS with {label}: {cause}")),
        StreamError::NotTls if !spoke_tls => {
            LossMeaning::Final(format!("cannot use TLS with {label}: {cause}"))
        }
        StreamError::Proxy(status) if !matches!(status, 408 | 429 | 500..) => {
            let what = match status {
                407 => {
                    "it asks for a user and a password: put them into the URL of the proxy (storage.proxy, HTTPS_PROXY)"
                }
                _ => "it does not pass connections to this host and port on",
            };
            LossMeaning::Final(format!("cannot connect to {label}: {cause}: {what}"))
        }
        _ if stage.is_connecting() => LossMeaning::Failed(AttemptFailure::NotConnected),
        _ => LossMeaning::Failed(AttemptFailure::Reset),
    }
}

/// The pause before another attempt; `None` if there have been too many, or it would begin too late.
///
/// `made`: attempts so far. `elapsed`: time since the first one. `random`: any number, different for each call.
pub(crate) fn pause(
    policy: &RetryPolicy,
    made: u32,
    elapsed: Nanos,
    retry_after: Option<u64>,
    random: u64,
) -> Option<Nanos> {
    if made >= policy.attempts.max(1) {
        return None;
    }
    let doubled = policy.pause.0.saturating_mul(1 << made.saturating_sub(1).min(30)).min(policy.longest.0);
    // The whole pause is random, so that clients that failed together do not return together.
    let chosen = if doubled == 0 { 0 } else { random % (doubled + 1) };
    let asked = retry_after.unwrap_or(0).saturating_mul(1_000_000_000);
    let pause = Nanos(chosen.max(asked));
    (elapsed + pause < policy.deadline).then_some(pause)
}

#[cfg(test)]
mod tests {
    use model::objects::{ObjectOptions, ObjectPlace, Service};

    use super::*;
    use crate::objects::endpoint::endpoints;

    #[test]
    fn answers_are_successes_retries_or_errors() {
        for (status, code, expected) in [
            (200, "", AnswerMeaning::Success),
            (206, "", AnswerMeaning::Success),
            (404, "NoSuchKey", AnswerMeaning::Missing),
            (404, "", AnswerMeaning::Missing),
            (404, "NoSuchBucket", AnswerMeaning::Final),
            (503, "SlowDown", AnswerMeaning::Failed(AttemptFailure::Throttled)),
            (500, "InternalError", AnswerMeaning::Failed(AttemptFailure::ServerError)),
            (403, "ExpiredToken", AnswerMeaning::Failed(AttemptFailure::Expired)),
            (400, "InvalidAuthenticationInfo", AnswerMeaning::Failed(AttemptFailure::Expired)),
            (401, "", AnswerMeaning::Failed(AttemptFailure::Expired)),
            (403, "AccessDenied", AnswerMeaning::Final),
            (301, "PermanentRedirect", AnswerMeaning::Final),
            (412, "", AnswerMeaning::Final),
        ] {
            assert_eq!(meaning(status, code), expected, "{status} {code}");
        }
    }

    #[test]
    fn only_mistakes_of_the_configuration_are_final() {
        let place = ObjectPlace::parse(Service::S3, "b");
        let options = ObjectOptions { endpoints: vec!["https://h:1".into()], ..ObjectOptions::default() };
        let endpoint = &endpoints(&place, &options).unwrap()[0];
        let at = |cause: &StreamError, stage, spoke_tls| match loss(cause, stage, endpoint, spoke_tls) {
            LossMeaning::Failed(kind) => kind.word().to_owned(),
            LossMeaning::Final(message) => message,
        };
        for cause in [
            StreamError::Lost(rustix::io::Errno::CONNRESET),
            StreamError::Tls("bad record mac".into()),
            StreamError::Proxy(503),
            StreamError::Proxy(429),
            StreamError::ProxyNonsense("x"),
        ] {
            assert_eq!(at(&cause, Stage::Handshake, false), "not-connected", "{cause}");
            assert_eq!(at(&cause, Stage::Body, true), "reset", "{cause}");
        }
        assert_eq!(at(&StreamError::NotTls, Stage::Handshake, true), "not-connected");
        assert_eq!(at(&StreamError::NotTls, Stage::Body, true), "reset");
        let message = at(&StreamError::NotTls, Stage::Handshake, false);
        assert!(message.starts_with("cannot use TLS with h:1: it does not speak TLS"), "{message}");
        let message = at(&StreamError::Certificate("x".into()), Stage::Handshake, true);
        assert_eq!(message, "cannot use TLS with h:1: x");
        let message = at(&StreamError::Proxy(407), Stage::Tunnel, true);
        assert!(
            message.starts_with("cannot connect to h:1: the proxy answered 407: it asks for"),
            "{message}"
        );
        let message = at(&StreamError::Proxy(403), Stage::Tunnel, true);
        assert!(message.starts_with("cannot connect to h:1: the proxy answered 403: it does"), "{message}");
    }

    #[test]
    fn pauses_grow_and_end() {
        let policy = RetryPolicy {
            attempts: 4,
            pause: Nanos(100),
            longest: Nanos(250),
            deadline: Nanos(10_000_000_000),
            silence: Nanos(1),
        };
        let longest =
            |made| (0..1000).filter_map(|random| pause(&policy, made, Nanos::ZERO, None, random)).max();
        assert_eq!(
            (longest(1), longest(2), longest(3)),
            (Some(Nanos(100)), Some(Nanos(200)), Some(Nanos(250)))
        );
        assert_eq!(longest(4), None);
        assert_eq!(
            pause(&policy, 1, Nanos::ZERO, Some(2), 7),
            Some(Nanos(2_000_000_000)),
            "the server's wish"
        );
        assert_eq!(pause(&policy, 1, Nanos::ZERO, Some(60), 7), None, "it would be too late");
        assert_eq!(pause(&policy, 1, Nanos(10_000_000_000), None, 0), None);
        assert_eq!(renewal_wait(&policy, Nanos::ZERO), Nanos(10_000_000_000));
        assert_eq!(
            renewal_wait(&policy, Nanos(9_000_000_000)),
            Nanos(1_000_000_000),
            "not after the deadline"
        );
    }
}
