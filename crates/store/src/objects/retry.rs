//! Whether a failed attempt is repeated, and when.

use model::objects::RetryPolicy;
use model::requests::AttemptFailure;
use model::units::Nanos;

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

/// Codes of credentials that have expired; new ones may have been fetched meanwhile.
const EXPIRED: [&str; 3] = ["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"];
/// Codes of a missing bucket, which also have the status 404.
const NO_BUCKET: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];

/// What the answer with this status and error code means. The code of an answer to HEAD is not known.
pub(crate) fn meaning(status: u16, code: &str) -> AnswerMeaning {
    match status {
        200..=299 => AnswerMeaning::Success,
        404 if !NO_BUCKET.contains(&code) => AnswerMeaning::Missing,
        429 | 503 => AnswerMeaning::Failed(AttemptFailure::Throttled),
        408 | 500..=599 => AnswerMeaning::Failed(AttemptFailure::ServerError),
        400 | 401 | 403 if EXPIRED.contains(&code) => AnswerMeaning::Failed(AttemptFailure::Expired),
        _ => AnswerMeaning::Final,
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
    use super::*;

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
            (403, "AccessDenied", AnswerMeaning::Final),
            (301, "PermanentRedirect", AnswerMeaning::Final),
            (412, "", AnswerMeaning::Final),
        ] {
            assert_eq!(meaning(status, code), expected, "{status} {code}");
        }
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
    }
}
