//! Figures as text, and the sentences that many findings share.

use model::observed::{FileExample, Observed};
use model::units::{Bytes, Nanos, counted, grouped, significant};

pub(super) fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value >= 99.95 { format!("{value:.0} %") } else { format!("{} %", significant(value)) }
}

pub(super) fn seconds(value: f64) -> String {
    Nanos::from_seconds(value).to_string()
}

pub(super) fn bytes(value: u64) -> String {
    Bytes(value).to_string()
}

pub(super) fn bytes_of(value: f64) -> String {
    Bytes(value.max(0.0) as u64).to_string()
}

pub(super) fn factor(value: f64) -> String {
    significant(value)
}

/// `worker 3`, or `workers 1, 3 and 4`.
pub(super) fn list(noun: &str, numbers: &[u64]) -> String {
    const SHOWN: usize = 8;
    let names: Vec<String> = numbers.iter().take(SHOWN).map(u64::to_string).collect();
    match names.split_last() {
        None => format!("no {noun}"),
        Some((only, [])) if numbers.len() == 1 => format!("{noun} {only}"),
        Some(_) if numbers.len() > SHOWN => {
            format!("{noun}s {} and {} more", names.join(", "), numbers.len() - SHOWN)
        }
        Some((last, rest)) => format!("{noun}s {} and {last}", rest.join(", ")),
    }
}

/// `1 process`, or `3 processes`.
pub(super) fn processes_text(count: u64) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{} processes", grouped(count)) }
}

/// Which ranks have a finding.
pub(super) fn ranks(with_it: &[u64], ranks: usize) -> String {
    match with_it.len() {
        1 => format!("It holds in rank {} only.", with_it[0]),
        all if all == ranks => format!("It holds in all {ranks} ranks."),
        some => format!("It holds in {some} of {ranks} ranks: {}.", list("rank", with_it)),
    }
}

/// A file example for `places`; `None` if paths are not to be written.
pub(super) fn example(file: &FileExample) -> Option<String> {
    if file.path.is_empty() {
        return None;
    }
    let range = match (file.offset, file.bytes) {
        (Some(offset), Some(length)) => {
            format!(", {} at offset {}", bytes(length), grouped(offset))
        }
        _ => String::new(),
    };
    let times = if file.count > 0 { format!(" ({})", counted(file.count, "time")) } else { String::new() };
    Some(format!("{}{range}{times}", file.path))
}

/// What could not be observed of the job, as sentences.
pub(super) fn limits(observed: &Observed) -> Vec<String> {
    let coverage = &observed.coverage;
    let mut limits = Vec::new();
    if let Some(share) = coverage.low_share() {
        limits.push(format!(
            "Only {} of the bytes that the processes read were recorded: something reads past the library.",
            percent(share)
        ));
    }
    if coverage.events_dropped > 0 {
        limits.push(format!(
            "{} were dropped, because a ring was full. Totals include them, details of files and order do not.",
            counted(coverage.events_dropped, "event")
        ));
    }
    if let Some(first) = coverage.unseen.first() {
        let read: u64 = coverage.unseen.iter().filter_map(|process| process.read_bytes).sum();
        let read = if read > 0 { format!(" They read {}.", bytes(read)) } else { String::new() };
        limits.push(format!(
            "{} could not be observed, such as {} ({}).{read}",
            processes_text(coverage.unseen.len() as u64),
            first.command,
            first.reason
        ));
    }
    if coverage.uring_processes > 0 {
        limits.push(format!(
            "{} used io_uring, whose reads are not seen.",
            processes_text(coverage.uring_processes)
        ));
    }
    if coverage.untracked_calls > 0 {
        limits.push(format!(
            "{} used descriptors that the library does not track: their files are not known.",
            counted(coverage.untracked_calls, "call")
        ));
    }
    limits
}

/// Limits of the whole job that single findings do not repeat.
pub(super) fn job_limits(observed: &Observed) -> Vec<String> {
    let mut limits = limits(observed);
    if !observed.coverage.marks {
        limits.push(
            "No marks of a training loop were received: waits for batches are not known, and an epoch is a pass over \
             the files."
                .to_owned(),
        );
    }
    if observed.files.sample_bits > 0 {
        limits.push(format!(
            "Figures of files come from a sample of {} of about {}.",
            grouped(observed.files.sampled),
            counted(observed.files.estimated, "file")
        ));
    }
    limits
}
