//! Rules about what workers wait for while the training process waits for them.

use model::observed::{Certainty, Severity, WorkerRow};
use model::units::{counted, grouped};

use super::job::{JudgedJob, Pass, ratio};
use super::rule::{AuditRule, FaultCase, Loss, Need, PassLook, by_epoch};
use super::text::{factor, percent, seconds};

/// Waits that are longer than this share of the time deserve a cause.
const WAITS: f64 = 0.1;

/// Why the workers do more than they need to.
const MORE_WORK: &[&str] = &[
    "shared-file-offset",
    "duplicate-reads",
    "same-bytes-read-again",
    "files-opened-again",
    "repeated-listing",
    "metadata-bound",
    "tiny-reads",
    "copy-on-write",
    "main-process-reads",
    "mmap-amplification",
    "read-ahead-amplification",
    "cache-too-small",
    "uneven-workers",
    "no-overlap",
    "serialised-reads",
    "fork-with-threads",
    "decode-bound",
    "random-where-sequential",
];

fn little(wait: f64) -> PassLook {
    PassLook::not(wait, format!("The training process waited {} of the time.", percent(wait)))
}

pub(super) const SERIALISED_READS: AuditRule = AuditRule {
    name: "serialised-reads",
    severity: Severity::Cost,
    about: "Workers read one after the other, although they could read at once.",
    needs: &[Need::Calls, Need::Times, Need::Waits],
    loss: Loss::Input,
    explained_by: &["shared-file-offset", "fork-with-threads"],
    title: "Workers read one after the other",
    explanation: "A lock that all workers share (a multiprocessing lock, a lock on the file, a server with one \
                  connection) lets only one of them read at a time.",
    change: "Drop the lock: give each worker a handle of its own and read with os.pread.",
    check: "Reads of several workers are in flight at once.",
    judge: |job, _| by_epoch(job, serialised),
};

fn serialised(pass: &Pass<'_>) -> PassLook {
    let Some(wait) = pass.wait_share() else {
        return PassLook::unknown("Waits were not observed.");
    };
    if wait <= WAITS {
        return little(wait);
    }
    let wall = pass.wall();
    let busy: Vec<f64> =
        pass.active().map(|row| ratio(row.io.reads.ns.seconds(), wall).clamp(0.0, 1.0)).collect();
    let in_flight = &pass.row.in_flight_ns;
    let all: f64 = in_flight.iter().map(|time| time.seconds()).sum();
    if busy.len() < 2 || all <= 0.0 {
        return PassLook::not(0.0, "There are fewer than two workers that read.");
    }
    let expected = two_at_once(&busy);
    let seen = ratio(in_flight.iter().skip(2).map(|time| time.seconds()).sum(), all);
    let figures = format!(
        "Two reads were in flight {} of the time; independent workers would give {}.",
        percent(seen),
        percent(expected)
    );
    if expected <= 0.03 {
        return PassLook::unknown("Reads are too short to tell whether they exclude each other.");
    }
    if seen >= 0.2 * expected {
        return PassLook::not(1.0 - ratio(seen, expected), figures);
    }
    let waiting = (pass.fetch() - pass.file() - pass.busy().map_or(0.0, |(cpu, _)| cpu)).max(0.0);
    FaultCase::of(pass, expected - seen, figures)
        .figure("two_at_once_share", seen)
        .figure("two_at_once_expected", expected)
        .cost(pass.saved(waiting.max(pass.file() * (1.0 - 1.0 / busy.len() as f64))))
        .sites()
        .into()
}

/// The probability that two or more of independent workers read at once.
fn two_at_once(busy: &[f64]) -> f64 {
    let none: f64 = busy.iter().map(|share| 1.0 - share).product();
    let one = |at: usize| {
        let others = busy.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, share)| 1.0 - share);
        others.product::<f64>()
    };
    let single: f64 = busy.iter().enumerate().map(|(at, share)| share * one(at)).sum();
    (1.0 - none - single).clamp(0.0, 1.0)
}

pub(super) const DECODE_BOUND: AuditRule = AuditRule {
    name: "decode-bound",
    severity: Severity::Cost,
    about: "Workers compute all the time, and still deliver too slowly.",
    needs: &[Need::Waits, Need::Cpu],
    loss: Loss::Input,
    explained_by: &[
        "shared-file-offset",
        "duplicate-reads",
        "same-bytes-read-again",
        "files-opened-again",
        "repeated-listing",
        "metadata-bound",
        "tiny-reads",
        "copy-on-write",
        "main-process-reads",
        "uneven-workers",
        "serialised-reads",
    ],
    title: "Workers are busy decoding",
    explanation: "The workers spend their time on decoding and augmentation, not on reading. Faster storage changes \
                  nothing.",
    change: "Decode less or faster (smaller images, a faster library, work done once before training or on the \
             accelerator), or use more workers if cores are free.",
    check: "The share of CPU time in fetches, and the waits, fall.",
    judge: |job, _| by_epoch(job, |pass| decoding(job, pass)),
};

/// Whether the workers are slow because other programs use the CPUs: without their time in the run queue they would be
/// idle for half of the epoch, and the job leaves CPUs to others.
fn cpus_are_taken(job: &JudgedJob<'_>, pass: &Pass<'_>, busy: f64, queued: f64) -> bool {
    let fetching = |row: &WorkerRow| row.fetch_ns.since(row.run_queue_ns.unwrap_or_default()).seconds();
    let longest = pass.row.workers.iter().map(fetching).fold(0.0, f64::max);
    let cores = job.observed.host.cores.unwrap_or(1) as f64;
    queued > 0.3 * busy && longest < 0.5 * pass.wall() && busy - queued < 0.6 * cores * pass.wall()
}

fn decoding(job: &JudgedJob<'_>, pass: &Pass<'_>) -> PassLook {
    let (Some(wait), Some(file)) = (pass.wait_share(), pass.file_share()) else {
        return PassLook::unknown("Waits or fetches were not observed.");
    };
    let Some((busy, queued)) = pass.busy() else {
        return PassLook::unknown("CPU time of the workers is not known.");
    };
    if wait <= WAITS {
        return little(wait);
    }
    // Workers that decode too slowly are seldom idle.
    let longest = pass.row.workers.iter().map(|worker| worker.fetch_ns.seconds()).fold(0.0, f64::max);
    if longest < 0.5 * pass.wall() {
        let share = percent(ratio(longest, pass.wall()));
        return PassLook::not(0.0, format!("The busiest worker fetched {share} of the time."));
    }
    let running = ratio(busy, pass.fetch()).min(1.0);
    let figures = format!(
        "Workers were running or ready to run {} of the time of fetches, {} in calls on files.",
        percent(running),
        percent(file)
    );
    if file >= 0.2 || running <= 0.7 {
        return PassLook::not(running - file, figures);
    }
    if cpus_are_taken(job, pass, busy, queued) {
        return PassLook::not(running - file, "Workers waited for CPUs that other programs used.");
    }
    let case = FaultCase::of(pass, running, figures)
        .figure("running_share", running)
        .figure("file_share", file)
        .figure("run_queue_seconds", queued)
        .figure("wait_share", wait)
        .cost(pass.budget() * (1.0 - file));
    if queued > 0.3 * busy {
        return case
            .change("Use fewer workers or more cores: workers wait for a CPU; or decode less or faster.")
            .into();
    }
    case.into()
}

pub(super) const ONE_FILE_MANY_WORKERS: AuditRule = AuditRule {
    name: "one-file-many-workers",
    severity: Severity::Cost,
    about: "Several workers read different places of one file at once.",
    needs: &[Need::Calls],
    loss: Loss::Input,
    explained_by: &[
        "shared-file-offset",
        "duplicate-reads",
        "same-bytes-read-again",
        "read-ahead-amplification",
        "serialised-reads",
        "decode-bound",
        "random-where-sequential",
        "tiny-reads",
    ],
    title: "Several workers read one file",
    explanation: "All samples are in one file. Each worker has a handle and a position of its own, which is correct. \
                  To the storage it looks like random access: several places of one file are read in turns, so the \
                  kernel's read-ahead helps less, and all load falls on one file or one server.",
    change: "Divide the file into shards, several per worker, so that each worker reads its own from front to back.",
    check: "Each worker reads files of its own, and most reads are in sequence.",
    judge: |job, _| by_epoch(job, |pass| one_file(job, pass)),
};

fn one_file(job: &JudgedJob<'_>, pass: &Pass<'_>) -> PassLook {
    let files = job.observed.files.estimated;
    let readers = pass.row.workers.iter().filter(|worker| worker.io.reads.bytes > 0).count() as u64;
    if files != 1 || readers < 2 {
        let read = format!("{} read {}", counted(readers, "worker"), counted(files, "file"));
        return PassLook::not(0.0, format!("{read}."));
    }
    let (wait, file) = (pass.wait_share().unwrap_or(0.0), pass.file_share().unwrap_or(0.0));
    let evidence = format!(
        "{readers} workers read one file with {} reads; {} of the time of loading passes in calls on it.",
        grouped(pass.row.io.reads.count),
        percent(file)
    );
    let slow = wait > WAITS && file > 0.5 && pass.issued_share().unwrap_or(0.0) > 0.5;
    let case = FaultCase::of(pass, file, evidence)
        .certainty(Certainty::Medium)
        .figure("workers", readers as f64)
        .figure("file_share", file)
        .place(pass.row.files.most_opened.as_ref())
        .sites();
    if !slow {
        return case.severity(Severity::Note).into();
    }
    case.limit("What shards of their own would save is not known before they are tried.").into()
}

pub(super) const TOO_FEW_IN_FLIGHT: AuditRule = AuditRule {
    name: "too-few-in-flight",
    severity: Severity::Cost,
    about: "Workers wait for storage, which could deliver more if more reads were in flight.",
    needs: &[Need::Calls, Need::Times, Need::Waits],
    loss: Loss::Input,
    explained_by: MORE_WORK,
    title: "Too few reads are in flight",
    explanation: "Each worker waits for one read at a time. The storage answers more reads at once without being \
                  slower, but it is not asked.",
    change: "Use more workers, a larger prefetch_factor, or several reads at once in each worker (threads).",
    check: "More bytes per second with more reads in flight.",
    judge: |job, _| by_epoch(job, |pass| few_in_flight(job, pass)),
};

/// How hard the storage works for an epoch that waits for it: reads in flight, and the part of the highest rate seen.
fn storage_load(job: &JudgedJob<'_>, pass: &Pass<'_>) -> Result<(f64, Option<f64>), PassLook> {
    let (Some(wait), Some(file)) = (pass.wait_share(), pass.file_share()) else {
        return Err(PassLook::unknown("Waits or fetches were not observed."));
    };
    if wait <= WAITS {
        return Err(little(wait));
    }
    if file <= 0.6 {
        let share = percent(file);
        return Err(PassLook::not(file, format!("Calls on files take {share} of the time of fetches.")));
    }
    if pass.issued_share().is_some_and(|share| share < 0.5) {
        return Err(PassLook::not(file, "Most bytes came from the page cache."));
    }
    let Some(in_flight) = pass.in_flight() else {
        return Err(PassLook::unknown("Reads in flight are not known."));
    };
    let most = job.observed.storage.iter().filter_map(|row| row.most_bytes_per_second).max();
    let bytes = pass.row.issued_bytes.unwrap_or_else(|| pass.asked()) as f64;
    let rate = ratio(bytes, pass.wall());
    Ok((in_flight, most.filter(|most| *most > 0).map(|most| ratio(rate, most as f64).min(1.0))))
}

fn few_in_flight(job: &JudgedJob<'_>, pass: &Pass<'_>) -> PassLook {
    let (in_flight, load) = match storage_load(job, pass) {
        Ok(load) => load,
        Err(look) => return look,
    };
    // Without a rate that was seen to be possible, one or two at a time are few for anything but a disk.
    let few = match load {
        Some(load) => load < 0.5 && in_flight < 4.0,
        None => in_flight < 2.0 && !rotational(job),
    };
    let rate = load.map_or(String::new(), |load| format!(", at {} of the highest rate seen", percent(load)));
    let figures = format!("{} reads were in flight on average{rate}.", factor(in_flight));
    if !few {
        return PassLook::not(1.0 / in_flight.max(1.0), figures);
    }
    FaultCase::of(pass, 1.0 / in_flight.max(1.0), figures)
        .certainty(if load.is_some() { Certainty::Medium } else { Certainty::Low })
        .figure("in_flight", in_flight)
        .figure_if("share_of_highest_rate", load)
        .cost_if(load.map(|load| pass.saved(pass.file() * (1.0 - load))))
        .limit("What the storage can deliver is not known before a replay.")
        .into()
}

fn rotational(job: &JudgedJob<'_>) -> bool {
    job.observed.storage.first().is_some_and(|row| row.rotational == Some(true))
}

pub(super) const STORAGE_BOUND: AuditRule = AuditRule {
    name: "storage-bound",
    severity: Severity::Cost,
    about: "Workers wait for storage that delivers what it can.",
    needs: &[Need::Calls, Need::Times, Need::Waits],
    loss: Loss::Input,
    explained_by: &[
        "shared-file-offset",
        "duplicate-reads",
        "same-bytes-read-again",
        "files-opened-again",
        "repeated-listing",
        "metadata-bound",
        "tiny-reads",
        "main-process-reads",
        "mmap-amplification",
        "read-ahead-amplification",
        "cache-too-small",
        "uneven-workers",
        "no-overlap",
        "serialised-reads",
        "random-where-sequential",
        "one-file-many-workers",
        "too-few-in-flight",
    ],
    title: "Storage is the limit",
    explanation: "The workers spend most of their time in reads, with several in flight: the storage \
        delivers no faster.",
    change: "Use faster or local storage, store less (compression, smaller samples), or let the page cache \
        hold the data.",
    check: "The time of reads, and the waits, fall.",
    judge: |job, _| by_epoch(job, |pass| storage(job, pass)),
};

fn storage(job: &JudgedJob<'_>, pass: &Pass<'_>) -> PassLook {
    let (in_flight, load) = match storage_load(job, pass) {
        Ok(load) => load,
        Err(look) => return look,
    };
    let file = pass.file_share().unwrap_or(0.0);
    let evidence = format!(
        "Calls on files take {} of the time of fetches, with {} reads in flight; an epoch waits {} for batches.",
        percent(file),
        factor(in_flight),
        seconds(pass.budget())
    );
    let high = load.is_some_and(|load| load > 0.8);
    FaultCase::of(pass, file, evidence)
        .certainty(if high { Certainty::Medium } else { Certainty::Low })
        .figure("file_share", file)
        .figure("in_flight", in_flight)
        .figure_if("share_of_highest_rate", load)
        .cost(pass.budget() * file)
        .limit("What the storage can deliver is not known before a replay.")
        .into()
}

pub(super) const CONVOY: AuditRule = AuditRule {
    name: "convoy",
    severity: Severity::Cost,
    about: "The training process waits long for one batch and then gets several at once.",
    needs: &[Need::Waits],
    loss: Loss::Input,
    explained_by: &[
        "shared-file-offset",
        "duplicate-reads",
        "same-bytes-read-again",
        "files-opened-again",
        "repeated-listing",
        "metadata-bound",
        "tiny-reads",
        "copy-on-write",
        "main-process-reads",
        "mmap-amplification",
        "read-ahead-amplification",
        "cache-too-small",
        "uneven-workers",
        "serialised-reads",
        "decode-bound",
        "random-where-sequential",
        "one-file-many-workers",
        "too-few-in-flight",
        "storage-bound",
    ],
    title: "Workers deliver in bursts",
    explanation: "Batches are taken in the order of the workers. While one batch is late, the others are ready and \
                  wait for it; then all workers start their next batch at the same time.",
    change: "Make batches take equal time (mix large and small samples), raise prefetch_factor, or take batches in any \
             order (in_order=False).",
    check: "Waits are spread evenly over the batches.",
    judge: |job, _| by_epoch(job, convoy),
};

fn convoy(pass: &Pass<'_>) -> PassLook {
    let Some(wait) = pass.wait_share() else {
        return PassLook::unknown("Waits were not observed.");
    };
    let (groups, late) = (pass.row.groups, pass.row.convoy_groups);
    let share = ratio(late as f64, groups as f64);
    if pass.workers() < 3 || groups < 4 {
        return PassLook::not(0.0, "There are fewer than three workers, or too few batches.");
    }
    // Handing over takes time as well, and is no delay of loading.
    let handed = pass.row.handover_times.quantile(0.5).unwrap_or(0);
    let long = pass.row.wait_times.max().is_some_and(|most| most > handed);
    if share <= 0.6 || wait <= WAITS || !long {
        return PassLook::not(share, format!("{late} of {groups} groups of batches had one long wait."));
    }
    let evidence = format!(
        "In {late} of {groups} groups of {} batches one wait was longer than three times all others together.",
        pass.workers()
    );
    FaultCase::of(pass, share, evidence)
        .certainty(Certainty::Medium)
        .figure("groups", groups as f64)
        .figure("convoy_groups", late as f64)
        .figure("wait_share", wait)
        .cost(pass.budget() * (1.0 - 1.0 / pass.workers() as f64))
        .into()
}
