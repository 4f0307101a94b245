//! Rules: from what was observed to what is wrong.
//!
//! Each rule looks at the training loader of each rank and answers whether its fault holds. Rules are judged in the
//! order of [`RULES`], causes before symptoms: a symptom whose cause was found is explained and not listed.

mod access;
mod correctness;
mod job;
mod kernel;
mod notes;
mod rule;
mod shares;
mod starts;
mod text;
mod waits;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use model::document;
use model::observed::{EpochTime, Fault, FaultOutcome, Findings, Observed, RuleAnswer, Severity};

use job::{JudgedJob, JudgedRank};
pub use rule::{AuditRule, Loss, Need};
use rule::{FaultAnswer, FaultCase, KnownFaults};

/// A loss of less than this share of an epoch is not worth a change.
const SMALL: f64 = 0.02;

/// Shorter epochs, in seconds, are those of a trial: what is lost once per epoch is a smaller share of longer ones.
const TRIAL_EPOCH: f64 = 60.0;

/// All rules, in the order of judging: causes before symptoms.
pub const RULES: &[AuditRule] = &[
    notes::NOT_INPUT_BOUND,
    correctness::SHARED_FILE_OFFSET,
    correctness::CONTENTS_KEPT,
    correctness::STALE_SHARDS,
    correctness::ORDER_NEVER_CHANGES,
    access::SAME_BYTES,
    correctness::DUPLICATE_READS,
    correctness::FORK_WITH_THREADS,
    kernel::SHARED_MEMORY_FULL,
    starts::COPY_ON_WRITE,
    shares::DESCRIPTORS_LEAK,
    shares::MAIN_PROCESS_READS,
    starts::DATA_SET_PICKLED,
    starts::WORKERS_RESTARTED,
    starts::IMPORT_STORM,
    access::FILES_OPENED_AGAIN,
    access::REPEATED_LISTING,
    access::METADATA_BOUND,
    access::TINY_READS,
    kernel::MMAP_AMPLIFICATION,
    kernel::READ_AHEAD_AMPLIFICATION,
    kernel::CACHE_TOO_SMALL,
    shares::UNEVEN_WORKERS,
    shares::NO_OVERLAP,
    waits::SERIALISED_READS,
    waits::DECODE_BOUND,
    access::RANDOM_WHERE_SEQUENTIAL,
    waits::ONE_FILE_MANY_WORKERS,
    waits::TOO_FEW_IN_FLIGHT,
    waits::STORAGE_BOUND,
    waits::CONVOY,
    kernel::CHECKPOINT_BLOCKS,
    shares::STRAGGLER_RANK,
    notes::SERVED_FROM_PAGE_CACHE,
    notes::WRONG_STORAGE,
];

/// Judges all rules.
pub fn judge(observed: &Observed) -> Findings {
    let job = JudgedJob::new(observed);
    let limits = text::limits(observed);
    let mut known = KnownFaults::default();
    let mut found: Vec<(&AuditRule, Fault)> = Vec::new();
    let mut rules = Vec::new();
    let mut consequences: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for rule in RULES {
        let answer = match rule.needs.iter().find_map(|need| need.missing(&job)) {
            Some(reason) => FaultAnswer::Unknown(reason),
            None => (rule.judge)(&job, &known),
        };
        let (outcome, reason) = match explained(rule, answer, &job, &known) {
            FaultAnswer::Found(case) => {
                let finding = finding(rule, *case, &job, &limits);
                let evidence = finding.evidence.clone();
                known.found.insert(rule.name, finding.severity != Severity::Note);
                found.push((rule, finding));
                (RuleAnswer::Found, evidence)
            }
            FaultAnswer::Explained(cause, evidence) => {
                consequences.entry(cause).or_default().push(rule.name.to_owned());
                (RuleAnswer::Explained, format!("{evidence} It follows from {cause}."))
            }
            FaultAnswer::Not(reason) => (RuleAnswer::NotFound, reason),
            FaultAnswer::Unknown(reason) => (RuleAnswer::NotMeasurable, reason),
        };
        rules.push(FaultOutcome { name: rule.name.to_owned(), outcome, reason });
    }
    found.sort_by(|(rule, a), (other, b)| {
        let risk = |rule: &AuditRule| rule.loss != Loss::Risk;
        // A fault that costs little comes before notes that ask for no change.
        let note = |rule: &AuditRule| rule.severity == Severity::Note;
        let severity = a.severity.cmp(&b.severity).then(note(rule).cmp(&note(other)));
        let loss = |rule: &AuditRule, finding: &Fault| lost_share(rule, finding, &job);
        severity.then(risk(rule).cmp(&risk(other))).then(loss(other, b).total_cmp(&loss(rule, a)))
    });
    let findings = found.into_iter().map(|(rule, mut finding)| {
        finding.consequences = consequences.remove(rule.name).unwrap_or_default();
        finding
    });
    Findings {
        version: document::FINDINGS.version,
        findings: findings.collect(),
        rules,
        time: job.longest().and_then(time),
        limits: text::job_limits(observed),
    }
}

/// The share of an epoch that goes away with a fault; of an epoch of a real training, for what is lost once per epoch.
fn lost_share(rule: &AuditRule, finding: &Fault, job: &JudgedJob<'_>) -> f64 {
    let epoch = job.epoch_seconds(finding.rank);
    let epoch = if rule.loss == Loss::Start { epoch.max(TRIAL_EPOCH) } else { epoch };
    job::ratio(finding.cost_seconds_per_epoch.unwrap_or(0.0), epoch)
}

/// A rule that holds is explained by a cause that was found and matters as much.
fn explained(rule: &AuditRule, answer: FaultAnswer, job: &JudgedJob<'_>, known: &KnownFaults) -> FaultAnswer {
    let FaultAnswer::Found(case) = answer else {
        return answer;
    };
    let note = severity(rule, &case, job) == Severity::Note;
    let cause = rule.explained_by.iter().find(|cause| known.fault(cause) || (note && known.found(cause)));
    match cause {
        Some(cause) => FaultAnswer::Explained(cause, case.evidence),
        None => FaultAnswer::Found(case),
    }
}

/// A loss of time is a note if it is small, or if the job does not wait for its input.
fn severity(rule: &AuditRule, case: &FaultCase, job: &JudgedJob<'_>) -> Severity {
    let severity = case.severity.unwrap_or(rule.severity);
    if severity != Severity::Cost || rule.loss == Loss::Risk {
        return severity;
    }
    let small = case.cost.is_some_and(|cost| cost < SMALL * job.epoch_seconds(case.rank));
    let waits = || job.longest_wait().is_none_or(|(_, wait)| wait.share >= SMALL);
    if small || (rule.loss == Loss::Input && !waits()) { Severity::Note } else { Severity::Cost }
}

fn finding(rule: &AuditRule, case: FaultCase, job: &JudgedJob<'_>, limits: &[String]) -> Fault {
    let severity = severity(rule, &case, job);
    let mut evidence = case.evidence;
    if severity == Severity::Note && case.severity.unwrap_or(rule.severity) == Severity::Cost {
        evidence += " It costs this job almost no time.";
    }
    let mut places = case.places;
    if case.sites {
        places.extend(job.observed.sites.iter().take(3).map(|site| site.place.clone()));
    }
    Fault {
        name: rule.name.to_owned(),
        title: case.title.unwrap_or(rule.title).to_owned(),
        severity,
        certainty: case.certainty,
        rank: case.rank,
        loader: case.loader,
        evidence,
        figures: case.figures,
        cost_seconds_per_epoch: case.cost,
        explanation: case.explanation.unwrap_or_else(|| rule.explanation.to_owned()),
        change: case.change.unwrap_or_else(|| rule.change.to_owned()),
        check: rule.check.to_owned(),
        places,
        consequences: Vec::new(),
        limits: case.limits.into_iter().chain(limits.iter().cloned()).collect(),
    }
}

/// Where the time of an epoch of this rank goes, on average. Parts are cut so that they fit into the epoch.
fn time(rank: &JudgedRank<'_>) -> Option<EpochTime> {
    let epochs = rank.passes.len() as f64;
    if epochs == 0.0 || !rank.kind.marks() {
        return None;
    }
    let mut sum = EpochTime { epochs: rank.passes.len() as u64, ..EpochTime::default() };
    for pass in &rank.passes {
        let row = pass.row;
        let mut rest = pass.wall();
        let mut take = |seconds: f64| {
            let part = seconds.clamp(0.0, rest.max(0.0));
            rest -= part;
            part
        };
        let first = row.first_wait_ns.seconds();
        sum.wall += pass.wall() / epochs;
        sum.start += take(row.start_ns.seconds() + first) / epochs;
        sum.blocked += take(row.blocked_all_ns.seconds() - first) / epochs;
        sum.handover += take(row.handover_all_ns.seconds()) / epochs;
        sum.checkpoint += take(row.checkpoint_ns.seconds()) / epochs;
        sum.compute += take(row.compute_ns.seconds()) / epochs;
        sum.other += rest.max(0.0) / epochs;
    }
    Some(sum)
}
