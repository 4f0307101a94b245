//! Rules about who does the work: the training process, its workers, the ranks.

use model::observed::{Certainty, ProcessRow, Severity};
use model::units::grouped;

use super::job::{JudgedJob, JudgedRank, Pass, ratio};
use super::rule::{AuditRule, FaultAnswer, FaultCase, KnownFaults, Loss, Need, PassLook, by_epoch, by_rank};
use super::text::{bytes, factor, percent, seconds};

pub(super) const MAIN_PROCESS_READS: AuditRule = AuditRule {
    name: "main-process-reads",
    severity: Severity::Cost,
    about: "The training process reads the data, although there are workers.",
    needs: &[Need::Calls, Need::Waits],
    loss: Loss::Time,
    explained_by: &[],
    title: "The training process reads for its workers",
    explanation: "The data is read in the training process, by a sampler for example, and handed to the workers \
                  through pipes. One process reads for all, and it does not train while it reads.",
    change: "Hand only indices or paths to the workers, and read in __getitem__ or __iter__ of the data set.",
    check: "The workers read nearly all bytes of an epoch.",
    judge: |job, _| by_epoch(job, |pass| main_reads(job, pass)),
};

fn main_reads(job: &JudgedJob<'_>, pass: &Pass<'_>) -> PassLook {
    let (own, all) = (pass.row.rank_io.reads, pass.row.io.reads);
    let share = ratio(own.bytes as f64, all.bytes as f64);
    if pass.workers() == 0 {
        return PassLook::not(0.0, "There are no workers.");
    }
    if share <= 0.5 || own.count < pass.row.batches / 2 || pass.row.batches == 0 {
        return PassLook::not(share, format!("The training process read {} of the bytes.", percent(share)));
    }
    let (begin, end) = (pass.row.begin_ns, pass.row.end_ns);
    let nested = job.observed.epochs.iter().any(|row| {
        let other = row.rank == pass.row.rank && row.loader != pass.row.loader;
        other && row.begin_ns < end && row.end_ns > begin && row.rank_io.reads.count > 0
    });
    if nested {
        return PassLook::not(share, "Another loader of the training process read at the same time.");
    }
    let evidence = format!(
        "The training process read {} of {} of the epoch, although there are {} workers.",
        bytes(own.bytes),
        bytes(all.bytes),
        pass.workers()
    );
    // What a sampler reads is read while a batch is handed over.
    let own_calls = pass.row.rank_io.file_ns().seconds();
    let spent = pass.row.rank_fetch_ns.seconds().max(pass.row.handover_all_ns.seconds()).max(own_calls);
    FaultCase::of(pass, share, evidence)
        .figure("rank_bytes", own.bytes as f64)
        .figure("all_bytes", all.bytes as f64)
        .figure("share", share)
        .cost(spent.min(pass.wall()))
        .limit("The cost includes the handing over of batches.")
        .sites()
        .into()
}

pub(super) const NO_OVERLAP: AuditRule = AuditRule {
    name: "no-overlap",
    severity: Severity::Cost,
    about: "There are no workers: the training process loads each batch itself.",
    needs: &[Need::Calls, Need::Times],
    loss: Loss::Input,
    explained_by: &[
        "same-bytes-read-again",
        "files-opened-again",
        "repeated-listing",
        "metadata-bound",
        "tiny-reads",
        "mmap-amplification",
        "read-ahead-amplification",
        "cache-too-small",
    ],
    title: "Loading and training take turns",
    explanation: "With num_workers=0 the training process loads each batch itself and computes nothing meanwhile.",
    change: "Set num_workers to 2 or more, so that the next batches are loaded while one is trained on.",
    check: "The training process reads no data, and its waits fall.",
    judge: |job, _| by_epoch(job, |pass| no_overlap(job, pass)),
};

/// A loop without marks: less reading than this in a pass may be an accident of the scheduler.
const LEAST_READING: f64 = 0.002;

/// Without marks, a job that reads its files several times with one thread, and does something else in between.
fn loop_without_overlap(job: &JudgedJob<'_>, pass: &Pass<'_>) -> PassLook {
    if job.passes().count() < 2 {
        return PassLook::unknown("Not observed: waits for batches.");
    }
    let readers = job.observed.processes.iter().filter(|process| process.data.reads.count > 0).count();
    if readers > 1 || pass.in_flight().is_some_and(|reads| reads > 1.0) {
        return PassLook::not(0.0, "Several processes or threads read.");
    }
    let (wall, reading) = (pass.wall(), pass.row.io.file_ns().seconds());
    let (read, other) = (ratio(reading, wall), wall - reading);
    if read <= 0.1 || reading < LEAST_READING || other <= 0.1 * wall {
        return PassLook::not(read, format!("Reading takes {} of the time.", percent(read)));
    }
    let evidence = format!(
        "One thread reads: of {} per pass over the files, {} pass in calls on files, and {} without a read.",
        seconds(wall),
        seconds(reading),
        seconds(other)
    );
    let mut case = FaultCase::of(pass, read, evidence)
        .figure("reading_seconds", reading)
        .figure("other_seconds", other)
        .certainty(Certainty::Medium)
        .cost(reading.min(other));
    case.explanation =
        Some("The thread that trains reads each file itself, and does nothing else meanwhile.".to_owned());
    case.change = Some(
        "Read the next files in other threads or processes, for instance with a DataLoader that has 2 or more workers."
            .to_owned(),
    );
    case.into()
}

fn no_overlap(job: &JudgedJob<'_>, pass: &Pass<'_>) -> PassLook {
    if !pass.kind.marks() {
        return loop_without_overlap(job, pass);
    }
    if pass.workers() > 0 || !pass.kind.pytorch() {
        return PassLook::not(0.0, "Batches are loaded by workers or threads.");
    }
    let (wall, loading) = (pass.wall(), pass.budget());
    let reading = pass.row.rank_io.file_ns().seconds().max(pass.file());
    let (read, load) = (ratio(reading, wall), ratio(loading, wall));
    if read <= 0.1 && !(load > 0.25 && read > 0.02) {
        return PassLook::not(
            read,
            format!("Reading takes {} of the time, loading {}.", percent(read), percent(load)),
        );
    }
    let cores = job.observed.host.cores.unwrap_or(1).max(1) as f64;
    let compute = pass.row.compute_ns.seconds();
    // With enough workers an epoch takes as long as the longer of computing and loading on all cores.
    let saved = loading + compute - compute.max(loading / cores);
    let evidence = format!(
        "There are no workers: of {} per epoch, {} pass in loading, {} of that in calls on files.",
        seconds(wall),
        seconds(loading),
        seconds(reading)
    );
    FaultCase::of(pass, load.max(read), evidence)
        .figure("loading_seconds", loading)
        .figure("reading_seconds", reading)
        .figure("compute_seconds", compute)
        .cost(saved.clamp(0.0, loading))
        .into()
}

pub(super) const UNEVEN_WORKERS: AuditRule = AuditRule {
    name: "uneven-workers",
    severity: Severity::Cost,
    about: "One worker delivers far more samples than the others.",
    needs: &[Need::Waits, Need::Samples],
    loss: Loss::Input,
    explained_by: &["duplicate-reads"],
    title: "The work is divided unevenly among workers",
    explanation: "Shards differ in size or cannot be divided by the number of workers. When the others have finished, \
                  one worker is still loading, and the training process waits for it.",
    change: "Use more shards than workers and divide them by size, or divide samples instead of shards.",
    check: "The largest share of a worker is below 1.25 x the mean.",
    judge: |job, _| by_epoch(job, uneven),
};

fn uneven(pass: &Pass<'_>) -> PassLook {
    let rows = &pass.row.workers;
    let workers = (rows.len() as u64).max(pass.workers()) as f64;
    if rows.len() < 2 {
        return PassLook::not(0.0, "There are fewer than two workers.");
    }
    let counts: Vec<f64> = rows.iter().map(|row| row.samples as f64).collect();
    let (all, most) = (counts.iter().sum::<f64>(), counts.iter().copied().fold(0.0, f64::max));
    let times = ratio(most, all / workers);
    let fetches = rows.iter().map(|row| row.fetches as f64).sum::<f64>() / workers;
    if fetches < 8.0 {
        return PassLook::unknown("Workers have fewer than 8 batches each.");
    }
    if times <= 1.25 {
        return PassLook::not(times, format!("The largest share is {} x the mean.", factor(times)));
    }
    let longest = rows.iter().map(|row| row.fetch_ns.seconds()).fold(0.0, f64::max);
    let mean = pass.fetch() / workers;
    let shown: Vec<String> = rows.iter().take(8).map(|row| grouped(row.samples)).collect();
    let evidence =
        format!("Samples per worker: {}; the most are {} x the mean.", shown.join(", "), factor(times));
    FaultCase::of(pass, times, evidence)
        .figure("most_to_mean", times)
        .figure("samples_most", most)
        .figure("longest_fetch_seconds", longest)
        .cost((longest - mean).max(0.0).min(pass.budget()))
        .into()
}

pub(super) const DESCRIPTORS_LEAK: AuditRule = AuditRule {
    name: "descriptors-leak",
    severity: Severity::Cost,
    about: "Files are opened for samples and never closed.",
    needs: &[Need::Processes, Need::Calls],
    loss: Loss::Risk,
    explained_by: &[],
    title: "Files are never closed",
    explanation: "Each sample leaves a file open. When the limit of open files is reached, the job ends with \
                  'Too many open files'.",
    change: "Open files in a with statement, or keep a bounded number of handles.",
    check: "The number of open files stays the same from epoch to epoch.",
    judge: |job, _| by_rank(job, |rank| leak(job, rank)),
};

fn leak(job: &JudgedJob<'_>, rank: &JudgedRank<'_>) -> PassLook {
    let left = |process: &ProcessRow| {
        let open = process.data.opens.count.saturating_sub(process.data.opens.errors);
        open.saturating_sub(process.data.closes.count).min(process.open_files_end)
    };
    let processes = rank.workers.iter().copied().chain(rank.others());
    let Some((process, open)) =
        processes.map(|process| (process, left(process))).max_by_key(|(_, open)| *open)
    else {
        return PassLook::unknown("No process of the rank was observed.");
    };
    let samples: u64 = rank.passes.iter().filter_map(Pass::amount).fold(0, u64::saturating_add);
    let opens: u64 = rank.passes.iter().map(|pass| pass.row.io.opens.count).fold(0, u64::saturating_add);
    // Handles that are kept are used for many samples, and there is one for each file at most.
    let again = open as f64 > 1.1 * job.observed.files.estimated as f64;
    let once = opens.saturating_mul(2) >= samples && open.saturating_mul(2) >= process.data.opens.count;
    let once = once || again;
    let limit = job.observed.host.open_files_limit;
    let near = limit.is_some_and(|limit| process.open_files_most as f64 > 0.8 * limit as f64);
    if open <= 100 || !(once || near) {
        return PassLook::not(open as f64, format!("A process left {} data files open.", grouped(open)));
    }
    let of = limit.map_or(String::new(), |limit| format!(", of at most {} open files", grouped(limit)));
    let evidence = format!(
        "Process {} opened {} data files and left {} open{of}.",
        process.pid,
        grouped(process.data.opens.count),
        grouped(open)
    );
    FaultCase::of_rank(rank, open as f64, evidence)
        .certainty(if once { Certainty::High } else { Certainty::Medium })
        .figure("left_open", open as f64)
        .figure("open_most", process.open_files_most as f64)
        .figure_if("open_files_limit", limit.map(|limit| limit as f64))
        .sites()
        .into()
}

pub(super) const STRAGGLER_RANK: AuditRule = AuditRule {
    name: "straggler-rank",
    severity: Severity::Cost,
    about: "One rank waits for its input far longer than the others, which wait for it.",
    needs: &[Need::Waits],
    loss: Loss::Input,
    explained_by: &["fork-with-threads"],
    title: "One rank is slower than the others",
    explanation: "Ranks train in step. When one waits for its input, all others wait for that rank.",
    change: "Compare that rank's share of the data, its workers, CPU cores and storage with those of the others.",
    check: "All ranks wait for about the same time.",
    judge: straggler,
};

fn straggler(job: &JudgedJob<'_>, _: &KnownFaults) -> FaultAnswer {
    if job.ranks.len() < 2 {
        return FaultAnswer::Not("There is one rank.".to_owned());
    }
    let mean = |rank: &JudgedRank<'_>| {
        rank.passes.iter().map(Pass::budget).sum::<f64>() / rank.passes.len().max(1) as f64
    };
    let mut waits: Vec<(f64, &JudgedRank<'_>)> = job.ranks.iter().map(|rank| (mean(rank), rank)).collect();
    waits.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some(((most, rank), others)) = waits.split_last() else {
        return FaultAnswer::Unknown("No rank was observed.".to_owned());
    };
    let usual = others.get(others.len() / 2).map_or(0.0, |(wait, _)| *wait);
    let epoch = job.epoch_seconds(Some(rank.rank));
    let evidence = format!(
        "Rank {} waits {} per epoch for its input, the others {} (median).",
        rank.rank,
        seconds(*most),
        seconds(usual)
    );
    if *most < 2.0 * usual || most - usual < 0.1 * epoch {
        return FaultAnswer::Not(evidence);
    }
    FaultCase::of_rank(rank, most - usual, evidence)
        .figure("wait_seconds", *most)
        .figure("wait_seconds_of_others", usual)
        .cost(most - usual)
        .found()
}
