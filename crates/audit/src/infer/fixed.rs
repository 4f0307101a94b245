//! Workloads without a fault: what each finding changes in the inferred workload, or why no workload can show it.

use model::observed::{Fault, Findings};

use super::InferError;
use super::inferred::MeanSpread;
use super::job::InferredJob;
use super::requests::SampleRequests;

/// Requests of a job that reads in large pieces.
const LARGE_REQUEST: u64 = 1 << 20;
/// Samples of a file that many small files were packed into.
const PACKED_SAMPLES: u64 = 1000;
/// Workers that a job without any gets at most.
const MOST_WORKERS: u64 = 8;
/// Batches that PyTorch loads in advance for each worker.
const PREFETCH: u64 = 2;
/// Without it, this part of the time of the program is left at least.
const LEAST_OWN: f64 = 0.1;
/// A read of this share of a sample is the sample; others belong to opening its file.
const MOST_OF_SAMPLE: f64 = 0.5;

type Change = fn(&mut InferredJob, &Fault);

enum Remedy {
    /// What the workload without it has, and the change.
    Without(&'static str, Change),
    /// The replay never has this fault.
    Never(&'static str),
    /// Why a workload cannot be without it.
    No(&'static str),
}
use Remedy::{Never, No, Without};

const RESULTS: &str = "it changes what is read or delivered, not how fast";
const PROCESSES: &str = "it is about memory or processes of the job, which a replay does not have";

/// Every finding that is a fault.
const REMEDIES: &[(&str, Remedy)] = &[
    ("shared-file-offset", No(RESULTS)),
    ("contents-kept-in-memory", No(RESULTS)),
    ("stale-shards", No(RESULTS)),
    (
        "order-never-changes",
        Without("each epoch has an order of its own", |job, _| {
            job.reshuffled.fix(true, "order-never-changes");
        }),
    ),
    ("same-bytes-read-again", Without("each sample reads its own bytes once", read_once)),
    ("duplicate-reads", Without("each sample is read by one worker", read_by_one)),
    ("fork-with-threads", No(PROCESSES)),
    ("shared-memory-full", No(PROCESSES)),
    ("copy-on-write", No(PROCESSES)),
    ("descriptors-leak", No(PROCESSES)),
    ("main-process-reads", Never("readers of the replay read what the training process of the job read")),
    ("data-set-pickled", Without("workers start without the time that it cost", start_sooner)),
    (
        "workers-restarted",
        Without("workers start once", |job, _| job.start_once.fix(true, "workers-restarted")),
    ),
    ("import-storm", Without("workers start without the time that it cost", start_sooner)),
    ("files-opened-again", Without("files stay open", keep_open)),
    ("repeated-listing", Never("a replay lists no folders")),
    ("metadata-bound", Without("samples are packed into files that stay open", pack)),
    ("tiny-reads", Without("requests of 1 MiB", read_large)),
    ("mmap-amplification", No("the replay reads files and has no page faults")),
    (
        "read-ahead-amplification",
        Without("reads are announced as random", |job, _| {
            job.readahead.fix("random", "read-ahead-amplification");
        }),
    ),
    (
        "cache-too-small",
        Without("files stay in the page cache", |job, _| {
            job.cache.fix("first-cold", "cache-too-small");
        }),
    ),
    ("uneven-workers", Never("readers of the replay have equal shares")),
    ("no-overlap", Without("workers load while the training process computes", overlap)),
    (
        "serialised-reads",
        Without("readers do not wait for each other", |job, _| {
            job.in_flight_limit.fix(None, "serialised-reads");
        }),
    ),
    (
        "decode-bound",
        Without("no preprocessing: more than any real change gains", |job, _| {
            job.preprocess.fix(MeanSpread::default(), "decode-bound");
        }),
    ),
    (
        "random-where-sequential",
        Without("samples of a file are read in order", |job, _| {
            job.sample_shuffle.fix(false, "random-where-sequential");
            job.file_shuffle.fix(true, "random-where-sequential");
        }),
    ),
    ("one-file-many-workers", Without("a file for each worker at least", divide)),
    (
        "too-few-in-flight",
        Without("twice as many workers", |job, _| {
            let threads = job.threads.value.max(1).saturating_mul(2);
            set_workers(job, threads, "too-few-in-flight");
        }),
    ),
    ("storage-bound", No("only another storage changes it: replay the job there")),
    ("convoy", No("it follows from other faults; leave those out")),
    ("checkpoint-blocks", Never("a replay writes no checkpoints")),
    ("straggler-rank", No("all ranks of a replay do the same")),
];

/// Changes the workload so that it does not have the fault.
pub(super) fn leave_out(job: &mut InferredJob, name: &str, findings: &Findings) -> Result<(), InferError> {
    let refused = |reason| InferError::NotFixable { name: name.to_owned(), reason };
    let remedy = REMEDIES.iter().find(|row| row.0 == name).map(|row| &row.1);
    let fault = findings.findings.iter().find(|fault| fault.name == name);
    let sentence = match (remedy, fault) {
        (Some(Without(what, change)), Some(fault)) => {
            change(job, fault);
            what
        }
        (Some(Never(what)), Some(_)) => what,
        (Some(No(reason)), _) => return Err(refused(reason)),
        (_, None) => return Err(refused("the job does not have it")),
        (None, _) => return Err(refused("it is no fault")),
    };
    job.left_out.push(format!("{name}: {sentence}."));
    Ok(())
}

fn read_once(job: &mut InferredJob, fault: &Fault) {
    let (mean, variation) = (job.samples.distinct, job.sample_bytes.value.variation());
    let again = (job.samples.asked / mean.max(1.0)).max(1.0);
    leave_calls(job, job.samples.calls / again, fault);
    job.sample_bytes.fix(MeanSpread { mean, stdev: mean * variation }, &fault.name);
    job.rereads.fix(1, &fault.name);
    if job.samples.is_enlarged {
        job.requests.fix(SampleRequests::default(), &fault.name);
    }
    job.samples.is_enlarged = false;
}

fn read_by_one(job: &mut InferredJob, fault: &Fault) {
    job.files.fix((job.files.value / job.samples.copies).max(1), &fault.name);
    job.samples.copies = 1;
}

fn start_sooner(job: &mut InferredJob, fault: &Fault) {
    let saved = fault.cost_seconds_per_epoch.unwrap_or(0.0);
    let rest = job.start.value.mean - saved;
    job.start.fix(MeanSpread::constant(rest), &fault.name);
}

/// The program's own time goes away with calls, too: what passes between two of them. `left`: calls of a sample.
fn leave_calls(job: &mut InferredJob, left: f64, fault: &Fault) {
    let gone = (job.samples.calls - left).max(0.0);
    let MeanSpread { mean, stdev } = job.preprocess.value;
    let rest = (mean - gone * job.samples.call_gap).max(LEAST_OWN * mean);
    if rest < mean {
        job.preprocess.fix(MeanSpread { mean: rest, stdev: stdev * rest / mean }, &fault.name);
    }
    job.samples.calls = job.samples.calls.min(left);
}

fn keep_open(job: &mut InferredJob, fault: &Fault) {
    let bytes = job.sample_bytes.value.mean;
    let largest = job.requests.value.sizes.iter().max().map_or(0.0, |size| *size as f64);
    let reads = if largest >= MOST_OF_SAMPLE * bytes {
        job.sample_bytes.fix(MeanSpread::constant(largest), &fault.name);
        job.requests.fix(SampleRequests::default(), &fault.name);
        job.rereads.fix(1, &fault.name);
        1.0
    } else {
        job.samples.reads
    };
    // A seek or so remains for each read.
    leave_calls(job, 2.0 * reads, fault);
    job.opens.fix(0, &fault.name);
    job.stats.fix(0, &fault.name);
}

fn read_large(job: &mut InferredJob, fault: &Fault) {
    let large = (job.sample_bytes.value.mean / LARGE_REQUEST as f64).ceil();
    let others = (job.samples.calls - job.samples.reads).max(0.0);
    leave_calls(job, others + large, fault);
    job.requests.fix(SampleRequests::default(), &fault.name);
    job.transfer.fix(LARGE_REQUEST, &fault.name);
}

fn pack(job: &mut InferredJob, fault: &Fault) {
    let samples = job.files.value.saturating_mul(job.samples_per_file.value).max(1);
    let each = PACKED_SAMPLES.min(samples);
    leave_calls(job, 2.0 * job.samples.reads, fault);
    job.samples_per_file.fix(each, &fault.name);
    job.files.fix(samples.div_ceil(each), &fault.name);
    job.opens.fix(0, &fault.name);
    job.stats.fix(0, &fault.name);
    job.sample_shuffle.fix(false, &fault.name);
}

fn divide(job: &mut InferredJob, fault: &Fault) {
    let files = job.files.value.max(job.threads.value.max(1).saturating_mul(4));
    let samples = job.files.value.saturating_mul(job.samples_per_file.value);
    job.samples_per_file.fix((samples / files).max(1), &fault.name);
    job.files.fix(files, &fault.name);
}

fn overlap(job: &mut InferredJob, fault: &Fault) {
    set_workers(job, job.cores.clamp(2, MOST_WORKERS), &fault.name);
}

fn set_workers(job: &mut InferredJob, workers: u64, fault: &str) {
    let each = match job.threads.value {
        0 => PREFETCH,
        before => job.prefetch.value.div_ceil(before).max(1),
    };
    job.threads.fix(workers, fault);
    job.prefetch.fix(each.saturating_mul(workers), fault);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::RULES;
    use model::observed::Severity;

    #[test]
    fn every_fault_has_one_remedy() {
        let faults = RULES.iter().filter(|rule| rule.severity != Severity::Note);
        let expected: Vec<&str> = faults.map(|rule| rule.name).collect();
        let mut found: Vec<&str> = REMEDIES.iter().map(|row| row.0).collect();
        assert!(expected.iter().all(|name| found.contains(name)), "{expected:?}");
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), REMEDIES.len());
        assert_eq!(found.len(), expected.len());
    }
}
