//! Counts of the requests that reads from an object store took, attempt by attempt, and why attempts were repeated.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::ledger::{LedgerPart, Phase};
use crate::units::grouped;

/// Why an attempt failed, by what it was that the client saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttemptFailure {
    /// The server asked for fewer requests: 429, or 503.
    Throttled,
    /// Another status from 500 on.
    ServerError,
    /// The credentials were not accepted any more; others were requested from their source, if they have one.
    Expired,
    /// No connection could be made.
    NotConnected,
    /// The connection was reset or closed before the answer was complete.
    Reset,
    /// No byte arrived for too long.
    Silent,
    /// The answer was not what was requested: another range, length or entity tag, or not HTTP.
    Malformed,
}

impl AttemptFailure {
    pub const ALL: [AttemptFailure; 7] = [
        AttemptFailure::Throttled,
        AttemptFailure::ServerError,
        AttemptFailure::Expired,
        AttemptFailure::NotConnected,
        AttemptFailure::Reset,
        AttemptFailure::Silent,
        AttemptFailure::Malformed,
    ];

    /// Whether the connection cannot be used again afterwards. An answer that refuses leaves it intact.
    pub fn breaks_connection(self) -> bool {
        use AttemptFailure::{Malformed, NotConnected, Reset, Silent};
        matches!(self, NotConnected | Reset | Silent | Malformed)
    }

    /// A word for counts and messages.
    pub fn word(self) -> &'static str {
        match self {
            AttemptFailure::Throttled => "throttled",
            AttemptFailure::ServerError => "server-error",
            AttemptFailure::Expired => "expired",
            AttemptFailure::NotConnected => "not-connected",
            AttemptFailure::Reset => "reset",
            AttemptFailure::Silent => "silent",
            AttemptFailure::Malformed => "malformed",
        }
    }
}

/// What the read requests of a phase took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// Attempts that were sent, retries included.
    pub requests: u64,
    /// Requests that succeeded, each with one attempt or more.
    pub answered: u64,
    /// Connections that were made.
    pub connects: u64,
    /// Those of them that replaced a connection that had failed or was closed.
    pub reconnects: u64,
    /// Attempts that failed, by kind, in the order of [`AttemptFailure::ALL`]. A retry followed, unless there were too
    /// many.
    pub failures: [u64; AttemptFailure::ALL.len()],
    /// Bytes of content that arrived through sockets. An attempt that follows a failed one asks for the rest.
    pub received_bytes: u64,
    /// Those of them that belong to reads that failed in the end, and so were not needed.
    #[serde(default)]
    pub failed_bytes: u64,
    /// Successful answers that came out of a cache on the way, by its own word (header `Age`).
    #[serde(default)]
    pub from_caches: u64,
}

impl RequestCounts {
    pub fn fail(&mut self, kind: AttemptFailure) {
        self.failures[kind as usize] += 1;
    }

    pub fn failed(&self, kind: AttemptFailure) -> u64 {
        self.failures[kind as usize]
    }

    /// All failed attempts.
    pub fn all_failed(&self) -> u64 {
        self.failures.iter().sum()
    }

    /// What was counted after `before`, an earlier state of the same counts.
    pub fn since(&self, before: &RequestCounts) -> RequestCounts {
        RequestCounts {
            requests: self.requests - before.requests,
            answered: self.answered - before.answered,
            connects: self.connects - before.connects,
            reconnects: self.reconnects - before.reconnects,
            failures: std::array::from_fn(|kind| self.failures[kind] - before.failures[kind]),
            received_bytes: self.received_bytes - before.received_bytes,
            failed_bytes: self.failed_bytes - before.failed_bytes,
            from_caches: self.from_caches - before.from_caches,
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == RequestCounts::default()
    }

    /// The failed attempts by kind, as text: `3 throttled, 1 reset`; `None` if there are none.
    pub fn failures_listed(&self) -> Option<String> {
        let kinds = AttemptFailure::ALL.into_iter().map(|kind| (self.failed(kind), kind.word()));
        let listed: Vec<String> = kinds
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{} {word}", grouped(count)))
            .collect();
        (!listed.is_empty()).then(|| listed.join(", "))
    }
}

/// The requests of one phase of one epoch, for a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestFigures {
    pub requests: u64,
    pub answered: u64,
    /// Attempts per delivered sample; `None` if none was delivered.
    pub requests_per_sample: Option<f64>,
    pub connects: u64,
    pub reconnects: u64,
    /// Failed attempts, by kind; kinds that did not occur are missing.
    pub failed_attempts: BTreeMap<String, u64>,
    /// Bytes of content that arrived.
    pub received_bytes: u64,
    /// Those of them that belong to reads that failed.
    #[serde(default)]
    pub failed_bytes: u64,
    /// Bytes that the reads needed, each counted once per read, without those of reads that failed.
    pub needed_bytes: u64,
    /// Answers that came out of a cache on the way, by its own word.
    #[serde(default)]
    pub from_caches: u64,
}

impl RequestFigures {
    /// The requests of a node or of all of them in one phase of one epoch.
    pub fn of(part: &LedgerPart<'_>, epoch: u64, phase: Phase) -> RequestFigures {
        let (total, observed) = (part.total(epoch, phase), part.observed(epoch, phase));
        let counts = observed.requests;
        let delivered = total.samples_delivered;
        let kinds = AttemptFailure::ALL.into_iter().map(|kind| (kind.word().to_owned(), counts.failed(kind)));
        RequestFigures {
            requests: counts.requests,
            answered: counts.answered,
            requests_per_sample: (delivered > 0).then(|| counts.requests as f64 / delivered as f64),
            connects: counts.connects,
            reconnects: counts.reconnects,
            failed_attempts: kinds.filter(|(_, count)| *count > 0).collect(),
            received_bytes: counts.received_bytes,
            failed_bytes: counts.failed_bytes,
            from_caches: counts.from_caches,
            // What a reader needs twice arrives once if the ranges overlap, so the smaller count is needed.
            needed_bytes: total
                .bytes_read
                .min(observed.cache.needed_bytes.saturating_sub(total.bytes_failed)),
        }
    }

    /// Bytes received for reads that succeeded.
    pub(crate) fn useful_bytes(&self) -> u64 {
        self.received_bytes.saturating_sub(self.failed_bytes)
    }

    /// Bytes received per byte needed.
    pub(crate) fn amplification(&self) -> f64 {
        self.received_bytes as f64 / self.needed_bytes.max(1) as f64
    }
}

impl AddAssign for RequestCounts {
    fn add_assign(&mut self, other: RequestCounts) {
        let RequestCounts {
            requests,
            answered,
            connects,
            reconnects,
            failures,
            received_bytes,
            failed_bytes,
            from_caches,
        } = other;
        self.requests += requests;
        self.answered += answered;
        self.connects += connects;
        self.reconnects += reconnects;
        self.failures.iter_mut().zip(failures).for_each(|(count, more)| *count += more);
        self.received_bytes += received_bytes;
        self.failed_bytes += failed_bytes;
        self.from_caches += from_caches;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_places() {
        let mut counts = RequestCounts::default();
        for (at, kind) in AttemptFailure::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
            counts.fail(kind);
        }
        counts += counts;
        assert!(AttemptFailure::ALL.into_iter().all(|kind| counts.failed(kind) == 2));
        assert_eq!(counts.all_failed(), 14);
    }
}
