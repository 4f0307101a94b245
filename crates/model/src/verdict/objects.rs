//! Rules about reads from an object store: how many bytes arrived through sockets for those that were needed, and which
//! attempts failed. There is no page cache on this side, so the bytes were sent by the store, or by a proxy; where
//! these had them cannot be seen.

use super::rules::RuleResult;
use super::{Case, RuleOutcome, TrainingCase, seen_phases};
use crate::ledger::{LedgerPart, Phase};
use crate::requests::{AttemptFailure, RequestCounts, RequestFigures};
use crate::units::{Bytes, counted, grouped};

/// Bytes that may arrive per byte needed before the report mentions it.
const AMPLIFIED: f64 = 1.1;
/// The number of epochs up to which evidence lists each epoch.
const SHOWN: usize = 8;

const UNSEEN: &str = "there is no cache on this side; caches behind the endpoint cannot be seen";
const UNSEEN_BEHIND_PROXY: &str = "which may have a cache; caches behind the endpoint cannot be seen, either";
const LARGER: &str = "to measure what is behind such caches, use a data set that is larger than they are, or empty \
                      them before the run";

/// One phase of one epoch in which a node read something.
struct ReceivedPhase<'a> {
    epoch: u64,
    phase: Phase,
    /// The name of the node, if there are several.
    node: Option<&'a str>,
    figures: RequestFigures,
}

impl ReceivedPhase<'_> {
    fn place(&self) -> String {
        let phase = if self.phase == Phase::Train { String::new() } else { format!(", {}", self.phase) };
        let node = self.node.map_or(String::new(), |node| format!(", node {node}"));
        format!("epoch {}{phase}{node}", self.epoch)
    }

    fn bytes(&self) -> String {
        let RequestFigures { needed_bytes, failed_bytes, .. } = self.figures;
        let failed = match failed_bytes {
            0 => String::new(),
            failed => format!(", and {} for reads that failed", Bytes(failed)),
        };
        format!("{} received for {} needed{failed}", Bytes(self.figures.useful_bytes()), Bytes(needed_bytes))
    }
}

/// What each node received in each phase. A node that received too little must not hide in a sum.
fn received<'a>(case: &TrainingCase<'a>) -> Vec<ReceivedPhase<'a>> {
    let parts = case.ledger.parts();
    let phases = seen_phases(case.ledger);
    let each = phases.flat_map(|(epoch, phase)| {
        let seen = |part: &LedgerPart<'a>| {
            let figures = RequestFigures::of(part, epoch, phase);
            ReceivedPhase { epoch, phase, node: part.name(), figures }
        };
        parts.iter().map(seen).collect::<Vec<_>>()
    });
    each.filter(|seen| seen.figures.needed_bytes > 0).collect()
}

pub(super) fn served(case: &TrainingCase<'_>) -> RuleResult {
    let seen = received(case);
    if seen.is_empty() {
        return RuleResult::not_checkable("nothing was read")
            .with_remedy("run at least one epoch that reads objects");
    }
    let too_few = |seen: &&ReceivedPhase<'_>| seen.figures.useful_bytes() < seen.figures.needed_bytes;
    if let Some(seen) = seen.iter().find(too_few) {
        let place = seen.place();
        return RuleResult::fail(format!("{place}: only {}; the rest came from elsewhere", seen.bytes()))
            .with_remedy("this is a bug in feedline: please report it and attach ledger.json");
    }
    let listed = match seen.as_slice() {
        few if few.len() <= SHOWN => few
            .iter()
            .map(|seen| format!("{}: {}", seen.place(), seen.bytes()))
            .collect::<Vec<_>>()
            .join("; "),
        many => {
            let [low, high] = range(many);
            let phases = counted(many.len() as u64, "phase");
            format!("{low:.2} to {high:.2} bytes received per byte needed in {phases}")
        }
    };
    RuleResult::note(format!("{listed}; {}", unseen(case, &seen))).with_remedy(LARGER)
}

/// What is known about caches between the readers and the storage.
fn unseen(case: &TrainingCase<'_>, seen: &[ReceivedPhase<'_>]) -> String {
    let proxies: Vec<&str> = case
        .ledger
        .conditions
        .modes
        .get("proxy")
        .map(|mode| mode.observed.iter().map(String::as_str).collect())
        .unwrap_or_default();
    let caches = match proxies.as_slice() {
        [] => UNSEEN.to_owned(),
        proxies => format!("requests went through the proxy {}, {UNSEEN_BEHIND_PROXY}", proxies.join(", ")),
    };
    match seen.iter().map(|seen| seen.figures.from_caches).sum() {
        0 => caches,
        aged => format!("{} came out of a cache on the way (header Age); {caches}", counted(aged, "answer")),
    }
}

fn range(seen: &[ReceivedPhase<'_>]) -> [f64; 2] {
    let shares = seen.iter().map(|seen| seen.figures.amplification());
    shares.fold([f64::INFINITY, 0.0], |[low, high], share| [low.min(share), high.max(share)])
}

/// How many bytes arrived per byte needed.
pub(super) fn read_amplification(case: &TrainingCase<'_>) -> RuleResult {
    let seen = received(case);
    let worst = seen
        .iter()
        .max_by(|one, other| one.figures.amplification().total_cmp(&other.figures.amplification()));
    let Some(worst) = worst else { return RuleResult::pass("nothing was read") };
    let share = worst.figures.amplification();
    let evidence = format!("{}: {share:.2} bytes were received per byte needed", worst.place());
    let outcome = if share > AMPLIFIED { RuleOutcome::Note } else { RuleOutcome::Pass };
    let remedy = match worst.figures.failed_bytes {
        0 => {
            "readers of frameworks read some bytes of a file twice: to read each once, set reader.access=extent"
        }
        _ => "find out why reads failed (rule errors): bytes that had arrived for them were not used",
    };
    RuleResult::new(outcome, evidence).with_remedy(remedy)
}

/// How many requests it took, and why some were repeated.
pub(super) fn requests(case: &Case<'_>) -> RuleResult {
    let (mut sum, mut samples) = (RequestCounts::default(), 0);
    for (epoch, phase) in seen_phases(case.ledger) {
        sum += case.ledger.node_total(epoch, phase).requests;
        samples += case.ledger.total(epoch, phase).samples_delivered;
    }
    if sum.is_empty() {
        return RuleResult::not_checkable("the backend counted no requests");
    }
    let each = sum.requests as f64 / samples.max(1) as f64;
    let made = format!(
        "{} requests, {each:.2} per sample, over {} connections",
        grouped(sum.requests),
        grouped(sum.connects)
    );
    match sum.all_failed() {
        0 => RuleResult::pass(format!("{made}; no attempt failed")),
        failed => {
            let evidence = format!(
                "{made}; {} failed: {}",
                counted(failed, "attempt"),
                sum.failures_listed().unwrap_or_default()
            );
            RuleResult::note(evidence).with_remedy(remedy(&sum))
        }
    }
}

/// What to do about the most frequent kind of failure.
fn remedy(sum: &RequestCounts) -> &'static str {
    let worst = AttemptFailure::ALL.into_iter().max_by_key(|kind| sum.failed(*kind));
    match worst.unwrap_or(AttemptFailure::Reset) {
        AttemptFailure::Throttled => {
            "the store limits the rate of requests: lower storage.requests_in_flight, spread keys over more prefixes, \
             or ask for a higher limit; waiting for retries is part of the figures"
        }
        AttemptFailure::ServerError => "look at the server's log; waiting for retries is part of the figures",
        AttemptFailure::Expired => "use credentials that are valid longer than the run",
        AttemptFailure::NotConnected => {
            "check the address and the load of the server, and how many connections it accepts"
        }
        AttemptFailure::Reset => {
            "look for a proxy, load balancer or server that closes connections, and at storage.requests_in_flight"
        }
        AttemptFailure::Silent => "look at the server's load, or raise storage.silence_timeout",
        AttemptFailure::Malformed => {
            "find out what changes objects or answers: another writer, a proxy, or a server that is not compatible"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Ledger, NodeRow, RankRow};
    use crate::plan::{Medium, Plan, StorePlan};
    use crate::verdict::tests::plan as training;
    use crate::verdict::{Case, Finding, judge};

    fn plan() -> Plan {
        let store = StorePlan { text: "s3".to_owned(), medium: Medium::Objects, ..StorePlan::default() };
        Plan {
            workload: "test".to_owned(),
            model: "test".to_owned(),
            ranks: 2,
            hosts: 1,
            compat: Vec::new(),
            training: Some(crate::plan::TrainingPlan { store, ..training() }),
            checkpoint: None,
        }
    }

    fn ledger(received: &[u64], failed: &[(AttemptFailure, u64)]) -> Ledger {
        let mut ledger = Ledger::default();
        for (epoch, bytes) in (1..).zip(received) {
            let row = RankRow { samples_delivered: 10, bytes_read: 1 << 20, ..RankRow::default() };
            ledger.add(epoch, Phase::Train, 0, row);
            let mut node = NodeRow::default();
            node.cache.needed_bytes = 1 << 20;
            node.requests = RequestCounts {
                requests: 12,
                answered: 10,
                connects: 2,
                received_bytes: *bytes,
                ..RequestCounts::default()
            };
            for (kind, times) in failed {
                (0..*times).for_each(|_| node.requests.fail(*kind));
            }
            ledger.add_node(epoch, Phase::Train, 0, node);
        }
        ledger
    }

    fn find(ledger: &Ledger, rule: &str) -> Finding {
        let verdict = judge(&Case { plan: Some(&plan()), ledger });
        verdict.rules.into_iter().find(|finding| finding.rule == rule).unwrap()
    }

    #[test]
    fn bytes_received_and_needed_are_noted_for_each_epoch() {
        let found = find(&ledger(&[1 << 20, 3 << 19], &[]), "cache");
        assert_eq!(found.outcome, RuleOutcome::Note);
        assert!(
            found.evidence.starts_with(
                "epoch 1: 1.0 MiB received for 1.0 MiB needed; epoch 2: 1.5 MiB received for 1.0 MiB needed"
            ),
            "{}",
            found.evidence
        );
        assert!(found.evidence.contains("caches behind the endpoint cannot be seen"), "{}", found.evidence);
        let many = find(&ledger(&[1 << 20; 20], &[]), "cache");
        assert!(many.evidence.starts_with("1.00 to 1.00 bytes received per byte needed in 20 phases"));
        assert_eq!(find(&Ledger::default(), "cache").outcome, RuleOutcome::NotCheckable);
    }

    #[test]
    fn fewer_bytes_than_needed_are_a_failure() {
        let found = find(&ledger(&[1 << 20, (1 << 20) - 1], &[]), "cache");
        assert_eq!(found.outcome, RuleOutcome::Fail);
        assert!(found.evidence.starts_with("epoch 2: only"), "{}", found.evidence);
        // Reads that failed needed bytes that did not arrive.
        let mut failed = ledger(&[1 << 19], &[]);
        let half = RankRow { bytes_failed: 1 << 19, ..RankRow::default() };
        failed.add(1, Phase::Train, 0, half);
        assert_eq!(find(&failed, "cache").outcome, RuleOutcome::Note);
    }

    #[test]
    fn amplification_is_a_note_from_a_tenth_on() {
        assert_eq!(find(&ledger(&[1 << 20], &[]), "read-amplification").outcome, RuleOutcome::Pass);
        let found = find(&ledger(&[1 << 20, 3 << 19], &[]), "read-amplification");
        assert_eq!(found.outcome, RuleOutcome::Note);
        assert_eq!(found.evidence, "epoch 2: 1.50 bytes were received per byte needed");
        assert!(found.remedy.contains("reader.access=extent"), "{}", found.remedy);
        // A failed attempt is followed by one for the rest.
        let found = find(&ledger(&[3 << 19], &[(AttemptFailure::Reset, 1)]), "read-amplification");
        assert!(found.remedy.contains("reader.access=extent"), "{}", found.remedy);
        let found = find(&with(&[3 << 19], |counts| counts.failed_bytes = 1), "read-amplification");
        assert!(found.remedy.contains("why reads failed"), "{}", found.remedy);
    }

    /// A ledger with more counts.
    fn with(received: &[u64], change: impl Fn(&mut RequestCounts)) -> Ledger {
        let mut ledger = ledger(received, &[]);
        let mut node = NodeRow::default();
        change(&mut node.requests);
        ledger.add_node(1, Phase::Train, 0, node);
        ledger
    }

    #[test]
    fn bytes_of_reads_that_failed_do_not_hide_a_shortage() {
        let found = find(&with(&[1 << 20], |counts| counts.failed_bytes = 1 << 10), "cache");
        assert_eq!(found.outcome, RuleOutcome::Fail, "{}", found.evidence);
        let more = |counts: &mut RequestCounts| {
            counts.failed_bytes = 1 << 10;
            counts.received_bytes = 1 << 10;
        };
        let found = find(&with(&[1 << 20], more), "cache");
        assert_eq!(found.outcome, RuleOutcome::Note);
        let text = "epoch 1: 1.0 MiB received for 1.0 MiB needed, and 1.0 KiB for reads that failed; there is no cache";
        assert!(found.evidence.starts_with(text), "{}", found.evidence);
    }

    #[test]
    fn proxies_and_caches_that_say_so_are_noted() {
        let mut behind = ledger(&[1 << 20], &[]);
        behind.conditions.observe("proxy", "proxy.lan:3128");
        let found = find(&behind, "cache").evidence;
        assert!(found.contains("through the proxy proxy.lan:3128, which may have a cache"), "{found}");
        assert!(!found.contains("no cache on this side"), "{found}");
        let found = find(&with(&[1 << 20], |counts| counts.from_caches = 3), "cache").evidence;
        assert!(
            found.contains("; 3 answers came out of a cache on the way (header Age); there is no"),
            "{found}"
        );
    }

    #[test]
    fn failed_attempts_are_noted_by_kind() {
        let found = find(&ledger(&[1 << 20], &[]), "requests");
        assert_eq!(found.outcome, RuleOutcome::Pass);
        assert_eq!(found.evidence, "12 requests, 1.20 per sample, over 2 connections; no attempt failed");
        let failed = [(AttemptFailure::Throttled, 3), (AttemptFailure::Reset, 1)];
        let found = find(&ledger(&[1 << 20], &failed), "requests");
        assert_eq!(found.outcome, RuleOutcome::Note);
        assert!(found.evidence.ends_with("4 attempts failed: 3 throttled, 1 reset"), "{}", found.evidence);
        assert!(found.remedy.contains("storage.requests_in_flight"), "{}", found.remedy);
        for kind in AttemptFailure::ALL {
            assert!(!find(&ledger(&[1 << 20], &[(kind, 1)]), "requests").remedy.is_empty());
        }
    }
}
