//! Rules about what the job reads: wrong, repeated, old or not all data.

use model::observed::{Certainty, Severity};
use model::units::{counted, grouped};

use super::job::{JudgedJob, JudgedRank, Pass, ratio};
use super::rule::{AuditRule, FaultAnswer, FaultCase, KnownFaults, Loss, Need, PassLook, by_epoch, by_rank};
use super::text::{bytes, bytes_of, factor, percent, processes_text};

/// What is read again beyond this cannot be chance: drawing as many samples as there are, with replacement, reads
/// each drawn one 1.58 times.
pub(super) const AGAIN: f64 = 1.7;

/// Places that an order is compared over at least.
const PLACES: u64 = 20;

pub(super) const SHARED_FILE_OFFSET: AuditRule = AuditRule {
    name: "shared-file-offset",
    severity: Severity::Correctness,
    about: "Several processes read through one inherited descriptor and move each other's position.",
    needs: &[Need::Calls],
    loss: Loss::Risk,
    explained_by: &[],
    title: "Workers share one file position",
    explanation: "The file was opened before the workers were started, so all of them use one descriptor with one \
                  position. When one worker seeks or reads, the next read of every other worker begins at another \
                  place: samples are mixed up, without an error.",
    change: "Open the file in each worker at its first use (or in worker_init_fn), or read with os.pread.",
    check: "No reads on inherited descriptors, and samples equal to those of a run with one worker.",
    judge: |job, _| by_epoch(job, shared_offset),
};

fn shared_offset(pass: &Pass<'_>) -> PassLook {
    let files = &pass.row.files;
    let (reads, processes) = (files.shared_offset_reads, files.shared_offset_processes);
    if processes < 2 || reads < 2 {
        return PassLook::not(processes as f64, "No descriptor was read through by two processes.");
    }
    let evidence = format!(
        "{} made {} through descriptors that they inherited, each with one position for all.",
        processes_text(processes),
        counted(reads, "read")
    );
    FaultCase::of(pass, reads as f64, evidence)
        .figure("processes", processes as f64)
        .figure("reads", reads as f64)
        .place(files.shared_offset.as_ref())
        .sites()
        .into()
}

pub(super) const CONTENTS_KEPT: AuditRule = AuditRule {
    name: "contents-kept-in-memory",
    severity: Severity::Correctness,
    about: "After the first epoch samples are delivered, but next to nothing is read.",
    needs: &[Need::Calls, Need::Samples, Need::Epochs],
    loss: Loss::Risk,
    explained_by: &["shared-file-offset"],
    title: "After the first epoch nothing is read",
    explanation: "Workers keep the first epoch's shards and their contents: from epoch 2 on they deliver samples from \
                  their own memory. Each worker repeats what it read first, whatever the sampler asks for; files that \
                  change are not seen, memory grows, and the speed of later epochs says nothing about the storage.",
    change: "Do not keep contents in the data set object: read each sample when it is asked for, or use \
             persistent_workers=False until the cache is gone.",
    check: "Each epoch reads about as many bytes as the first one.",
    judge: |job, _| by_rank(job, contents_kept),
};

const KEPT_ALONE: &str = "The data set object keeps what it read: from epoch 2 on samples come from memory. Files that \
                          change are not seen, memory grows by the data set, and the speed of later epochs says \
                          nothing about the storage.";

fn contents_kept(rank: &JudgedRank<'_>) -> PassLook {
    let Some((first, later)) = rank.passes.split_first().filter(|(_, later)| !later.is_empty()) else {
        return PassLook::unknown("There is only one epoch.");
    };
    if first.has_mappings() {
        return PassLook::unknown("Files are mapped: what is read of them is not known.");
    }
    let Some(samples) = first.amount() else {
        return PassLook::unknown("Samples were not counted.");
    };
    // Headers alone are no contents.
    if first.asked() < 64 * samples {
        return PassLook::not(0.0, "The first epoch read next to nothing itself.");
    }
    // An epoch that was left early reads less.
    let whole = |pass: &&Pass<'_>| pass.amount().is_some_and(|now| ratio(now as f64, samples as f64) > 0.8);
    let shares =
        later.iter().filter(whole).map(|pass| (pass, ratio(pass.asked() as f64, first.asked() as f64)));
    let Some((pass, share)) = shares.reduce(|a, b| if b.1 > a.1 { b } else { a }) else {
        return PassLook::unknown("No later epoch has as many samples as the first one.");
    };
    if share >= 0.1 {
        return kept_by_each_worker(rank).unwrap_or_else(|| {
            PassLook::not(
                1.0 - share,
                format!("Later epochs read up to {} of the first one.", percent(share)),
            )
        });
    }
    let evidence = format!(
        "Epoch 1 read {} for {} samples; epoch {} delivered {} samples and read {}.",
        bytes(first.asked()),
        grouped(samples),
        pass.row.epoch,
        grouped(pass.amount().unwrap_or(0)),
        bytes(pass.asked())
    );
    let case = FaultCase::of_rank(rank, 1.0 - share, evidence)
        .figure("bytes_first_epoch", first.asked() as f64)
        .figure("bytes_later_epoch", pass.asked() as f64)
        .figure("share_of_first_epoch", share)
        .limit("Whether the order of samples changes cannot be judged, because nothing is read.")
        .sites();
    let alone = rank.kind.workers == 0;
    let case =
        if alone { case.title("The data set keeps what it read").explanation(KEPT_ALONE) } else { case };
    // `cache()` of tf.data is asked for in so many words.
    if rank.kind.marks() && !rank.kind.pytorch() { case.severity(Severity::Note) } else { case }.into()
}

/// Samples go to another worker in each epoch, so a worker that keeps what it read still reads what is new to it: less
/// in each epoch, and nothing that it read in the one before.
fn kept_by_each_worker(rank: &JudgedRank<'_>) -> Option<PassLook> {
    let samples = rank.passes.first()?.amount()? as f64;
    let whole: Vec<&Pass<'_>> = rank
        .passes
        .iter()
        .filter(|pass| pass.amount().is_some_and(|now| now as f64 > 0.8 * samples))
        .collect();
    let (first, last) = (whole.first()?.asked(), whole.last()?.asked());
    let falls = whole.windows(2).all(|pair| pair[1].asked() < pair[0].asked());
    let read_again = |pass: &&Pass<'_>| {
        let files = &pass.row.files;
        let (share, chance) =
            (files.same_reader_share.unwrap_or(0.0), files.same_reader_chance.unwrap_or(0.0));
        share > 0.0 || (1.0 - chance).powf(files.order_places as f64) > 1e-4
    };
    // The places of three epochs have little in common, so the second one decides.
    if !rank.workers_stay()
        || !falls
        || last as f64 > 0.9 * first as f64
        || whole.iter().skip(1).take(1).any(read_again)
    {
        return None;
    }
    let read: Vec<String> = whole.iter().take(8).map(|pass| bytes(pass.asked())).collect();
    let evidence = format!(
        "Epochs with as many samples read less and less: {}. No worker read anything in epoch 2 that it had read in \
         epoch 1; by chance, {} would be.",
        read.join(", "),
        percent(whole.get(1)?.row.files.same_reader_chance.unwrap_or(0.0))
    );
    let case = FaultCase::of_rank(rank, 1.0 - ratio(last as f64, first as f64), evidence)
        .figure("bytes_first_epoch", first as f64)
        .figure("bytes_last_epoch", last as f64)
        .title("Each worker keeps the samples that it read")
        .explanation(
            "Each worker keeps every sample that it read in its copy of the data set. In the end each worker holds the \
             whole data set, so memory grows by the data set times the workers; files that change are not seen, and \
             the speed of later epochs says nothing about the storage.",
        );
    Some(case.sites().into())
}

pub(super) const STALE_SHARDS: AuditRule = AuditRule {
    name: "stale-shards",
    severity: Severity::Correctness,
    about: "Workers that stay alive read the shards that they read in the epoch before.",
    needs: &[Need::Calls, Need::Epochs],
    loss: Loss::Risk,
    explained_by: &["shared-file-offset", "contents-kept-in-memory"],
    title: "Workers keep the shards of the first epoch",
    explanation: "The workers stay alive and read the shards that they chose in the first epoch. set_epoch, a \
                  new seed or a new list in the training process does not reach their copies of the data set. Each \
                  worker sees the same part of the data, in the same order, in every epoch.",
    change: "Choose the shards anew at the start of each __iter__ from a seed and the epoch (a shared value that \
             workers can read), or use persistent_workers=False.",
    check: "The share of files that the same worker reads again falls to about 1 / workers.",
    judge: |job, _| by_rank(job, stale_shards),
};

fn stale_shards(rank: &JudgedRank<'_>) -> PassLook {
    let changed = rank.data_set_changed();
    if rank.kind.workers < 2 || !rank.workers_stay() {
        return PassLook::not(0.0, "No two workers stay alive from epoch to epoch.");
    }
    let mut least: Option<(f64, f64, u64)> = None;
    let mut correlation: Option<f64> = None;
    for pass in rank.passes.iter().skip(1) {
        let files = &pass.row.files;
        let (Some(share), Some(chance)) = (files.same_reader_share, files.same_reader_chance) else {
            continue;
        };
        let places = if files.order_places > 0 { files.order_places } else { files.sampled };
        if least.is_none_or(|(lowest, ..)| share < lowest) {
            least = Some((share, chance, places));
        }
        correlation =
            files.order_correlation.map(|now| correlation.map_or(now, |low| low.min(now))).or(correlation);
    }
    let Some((share, chance, places)) = least else {
        return PassLook::unknown("No file was read in two epochs.");
    };
    let by_chance = chance.clamp(0.0, 1.0).powf(places as f64);
    if share < 0.95 || by_chance > 1e-4 {
        let figures =
            format!("{} of {} places have the reader of the epoch before", percent(share), grouped(places));
        return PassLook::not(share, format!("{figures}; {} by chance.", percent(chance)));
    }
    let repeats = correlation.is_none_or(|correlation| correlation > 0.8);
    if repeats && !rank.kind.iterable {
        return PassLook::not(share, "The sampler's order repeats, and with it the shares of the workers.");
    }
    // What the rank did not change, and what is read in the order of names, was never shuffled.
    let by_name = rank.passes.iter().filter_map(|pass| pass.row.files.order_by_name).fold(0.0, f64::max);
    if changed == Some(false) && by_name > 0.95 {
        return PassLook::not(share, "Files are divided in the order of their names: nothing was shuffled.");
    }
    let note = if changed == Some(true) {
        " The training process changed its data set object meanwhile."
    } else {
        ""
    };
    let evidence = format!(
        "{} of {} places were read by the same worker as in the epoch before; chance would give {}.{note}",
        percent(share),
        grouped(places),
        percent(chance)
    );
    let case = FaultCase::of_rank(rank, share, evidence)
        .figure("same_reader_share", share)
        .figure("same_reader_chance", chance)
        .figure("places", places as f64)
        .figure_if("order_correlation", correlation)
        .limit_if(
            changed != Some(true),
            "A fixed division of the files among workers gives the same figures.",
        );
    if repeats {
        let certain = if changed == Some(true) { Certainty::High } else { Certainty::Medium };
        return case.certainty(certain).sites().into();
    }
    case.severity(Severity::Note)
        .certainty(Certainty::Medium)
        .title("Each worker reads the same files in each epoch, in a new order")
        .explanation("The files are divided among the workers once. Samples of different workers are never mixed anew.")
        .into()
}

pub(super) const ORDER_NEVER_CHANGES: AuditRule = AuditRule {
    name: "order-never-changes",
    severity: Severity::Correctness,
    about: "The training loader reads in the same order in each epoch.",
    needs: &[Need::Calls, Need::Epochs],
    loss: Loss::Risk,
    explained_by: &["shared-file-offset", "contents-kept-in-memory", "stale-shards"],
    title: "The order is the same in each epoch",
    explanation: "The samples are not shuffled, or shuffled with the same seed in each epoch. Batches repeat, which \
                  makes training worse, without an error.",
    change: "Use shuffle=True; with a DistributedSampler call sampler.set_epoch(epoch); with a seed of your own add \
             the epoch to it.",
    check: "The order correlation between epochs is near 0.",
    judge: |job, _| by_rank(job, |rank| same_order(job, rank)),
};

fn same_order(job: &JudgedJob<'_>, rank: &JudgedRank<'_>) -> PassLook {
    let mut least: Option<(f64, &Pass<'_>)> = None;
    for pass in rank.passes.iter().skip(1) {
        let files = &pass.row.files;
        let Some(correlation) = files.order_correlation.filter(|_| files.order_places >= PLACES) else {
            continue;
        };
        if least.is_none_or(|(lowest, _)| correlation < lowest) {
            least = Some((correlation, pass));
        }
    }
    let Some((correlation, pass)) = least else {
        return PassLook::unknown(format!("No two epochs have {PLACES} places in common."));
    };
    if correlation <= 0.95 {
        return PassLook::not(
            correlation,
            format!("The order correlates {correlation:.2} with the epoch before."),
        );
    }
    if rank.is_evaluation() {
        return PassLook::not(0.5, "Gradients are off in all epochs: this is an evaluation.");
    }
    if rank.kind.shuffles {
        return PassLook::not(0.5, "Samples are shuffled in memory after they were read.");
    }
    if let Some(other) = shuffled_elsewhere(job, rank) {
        return PassLook::not(0.5, format!("Loader {other} shuffles: this one is taken for an evaluation."));
    }
    let evidence = format!(
        "The order of {} places correlates {correlation:.3} or more with the epoch before.",
        grouped(pass.row.files.order_places)
    );
    let equal = rank.equal_batches();
    let same = equal.is_some_and(|share| share > 0.95);
    let order_seen = (rank.kind.marks() && !rank.kind.iterable) || same;
    let batches = equal.map_or(String::new(), |share| {
        format!(" {} of the compared batches equal those of the epoch before.", percent(share))
    });
    let case = FaultCase::of_rank(rank, correlation, evidence + &batches)
        .certainty(if order_seen { Certainty::High } else { Certainty::Medium })
        .limit_if(
            !order_seen && equal.is_none(),
            "Samples that are shuffled in memory after they were read are not seen.",
        )
        .figure("order_correlation", correlation)
        .figure("places", pass.row.files.order_places as f64)
        .figure_if("equal_batches_share", equal);
    if order_seen || equal.is_none() {
        return case.into();
    }
    case.severity(Severity::Note)
        .title("Files are read in the same order in each epoch")
        .explanation("Batches differ from epoch to epoch: samples are shuffled in memory, or changed at random.")
        .change("Nothing, if the shuffle buffer holds several files; else shuffle the list of files in each epoch.")
        .into()
}

/// A loader of this rank that shuffles and has a good part of this loader's batches.
fn shuffled_elsewhere(job: &JudgedJob<'_>, rank: &JudgedRank<'_>) -> Option<u64> {
    let own: u64 = rank.passes.iter().map(|pass| pass.row.batches).sum();
    let others =
        job.observed.epochs.iter().filter(|row| row.rank == rank.rank && Some(row.loader) != rank.loader);
    let shuffled = others.filter(|row| row.files.order_correlation.is_some_and(|order| order < 0.5));
    shuffled
        .filter(|row| row.batches * 5 >= own / rank.passes.len().max(1) as u64)
        .map(|row| row.loader)
        .next()
}

pub(super) const DUPLICATE_READS: AuditRule = AuditRule {
    name: "duplicate-reads",
    severity: Severity::Correctness,
    about: "Several workers or ranks read the same data in one epoch.",
    needs: &[Need::Calls],
    loss: Loss::Risk,
    explained_by: &["shared-file-offset", "same-bytes-read-again"],
    title: "Workers read the same data",
    explanation: "The data set is not divided: each worker (or rank) reads and delivers all of it. An epoch \
        has several \
                  times the samples, each one repeated.",
    change: "Divide the files in __iter__ by torch.utils.data.get_worker_info() (id and num_workers); across ranks use \
             a DistributedSampler or divide by rank.",
    check: "Each range is read by one worker, and an epoch has as many samples as the data set.",
    judge: duplicates,
};

fn duplicates(job: &JudgedJob<'_>, _: &KnownFaults) -> FaultAnswer {
    match across_ranks(job) {
        Some(case) => case.found(),
        None => by_epoch(job, duplicates_of_workers),
    }
}

fn duplicates_of_workers(pass: &Pass<'_>) -> PassLook {
    let files = &pass.row.files;
    let readers = pass.row.workers.iter().filter(|worker| worker.io.reads.bytes > 0).count();
    if files.ranges_cut {
        return PassLook::unknown("Ranges of a file were too many to be kept.");
    }
    if files.distinct_bytes == 0 {
        return PassLook::unknown("No ranges of files are known.");
    }
    let times = ratio(files.process_distinct_bytes as f64, files.distinct_bytes as f64);
    let again = ratio(files.asked_bytes as f64, files.process_distinct_bytes as f64);
    // Few samples that share a block are no duplicates: those of a sampler are counted by the worker itself.
    if times <= 1.5 || again >= 1.5 || readers < 2 {
        return PassLook::not(
            times,
            format!("Each range was read by {} processes on average.", factor(times)),
        );
    }
    // Independent draws of the same data overlap, too, but all workers together read more than one of them.
    let of_one = ratio(files.distinct_bytes as f64, files.process_distinct_most as f64);
    if !pass.kind.iterable && of_one > 1.25 {
        return PassLook::not(times, format!("All workers read {} times the data of one.", factor(of_one)));
    }
    let evidence = format!(
        "Each range was read by {} of {} workers on average: {} were read, {} are distinct.",
        factor(times),
        readers,
        bytes(files.asked_bytes),
        bytes(files.distinct_bytes)
    );
    let case = FaultCase::of(pass, times, evidence)
        .certainty(if pass.kind.iterable { Certainty::High } else { Certainty::Medium })
        .figure("readers_per_range", times)
        .figure("distinct_bytes", files.distinct_bytes as f64)
        .cost(pass.budget() * (1.0 - 1.0 / times))
        .place(files.most_repeated.as_ref())
        .sites();
    if pass.kind.iterable {
        return case.into();
    }
    case.title("Workers read the same places")
        .explanation(
            "The loader gives each index to one worker, but the workers read the same places. If the data set chooses \
             samples or windows by random numbers, its generator was copied into each worker with its state, and all \
             of them choose the same ones: samples repeat. If samples share blocks, each worker reads all blocks.",
        )
        .change(
            "Seed the generator in each worker (by worker_init_fn, or with get_worker_info().seed). Where samples \
             share blocks, shuffle blocks and let a worker use all samples of one.",
        )
        .into()
}

/// Bytes of the files of the training loaders: all but those that only other loaders read.
fn training_bytes(job: &JudgedJob<'_>) -> f64 {
    let mut others: std::collections::BTreeMap<u64, f64> = std::collections::BTreeMap::new();
    for row in &job.observed.epochs {
        let trains = job.ranks.iter().any(|rank| rank.loader == Some(row.loader) && rank.rank == row.rank);
        if !trains && row.files.share > 0.0 {
            let bytes = others.entry(row.loader).or_default();
            *bytes = bytes.max(row.files.distinct_bytes as f64 / row.files.share);
        }
    }
    job.observed.files.bytes as f64 - others.into_values().sum::<f64>()
}

/// Each rank reads nearly all bytes of all files.
fn across_ranks(job: &JudgedJob<'_>) -> Option<FaultCase> {
    let all = training_bytes(job);
    if job.ranks.len() < 2 || all <= 0.0 {
        return None;
    }
    let share = |rank: &JudgedRank<'_>| {
        let passes = rank.passes.iter().filter(|pass| !pass.row.files.ranges_cut);
        passes.map(|pass| ratio(pass.of_all(pass.row.files.distinct_bytes), all)).fold(0.0, f64::max)
    };
    let least = job.ranks.iter().map(share).fold(f64::INFINITY, f64::min);
    if least < 0.8 {
        return None;
    }
    let evidence = format!(
        "Each of {} ranks reads {} or more of the {} of all training files in an epoch.",
        job.ranks.len(),
        percent(least.min(1.0)),
        bytes_of(all)
    );
    let case = FaultCase::of_job(job.ranks.len() as f64, evidence)
        .certainty(Certainty::Medium)
        .title("Ranks read the same data");
    Some(case.figure("ranks", job.ranks.len() as f64).figure("share_per_rank", least.min(1.0)).sites())
}

pub(super) const FORK_WITH_THREADS: AuditRule = AuditRule {
    name: "fork-with-threads",
    severity: Severity::Correctness,
    about: "A worker was forked from a process with threads, and hangs.",
    needs: &[Need::Processes],
    loss: Loss::Risk,
    explained_by: &[],
    title: "A forked worker hangs",
    explanation: "When a process with threads forks, locks that other threads held stay locked in the child. \
                  The worker waits for such a lock and never delivers.",
    change: "Start workers with multiprocessing_context='spawn' or 'forkserver', or start them before any thread.",
    check: "No worker is without calls and CPU time while the training process waits.",
    judge: |job, _| by_rank(job, hanging),
};

fn hanging(rank: &JudgedRank<'_>) -> PassLook {
    const IDLE_SECONDS: f64 = 30.0;
    // A job that gave up before the end of an epoch waited for something.
    const IDLE_BEFORE_FAILURE: f64 = 2.0;
    let forked = |process: &&&model::observed::ProcessRow| {
        process.forked && process.parent_threads.is_some_and(|threads| threads > 1)
    };
    let idle = rank.workers.iter().filter(forked).max_by_key(|process| process.idle_ns);
    let Some(process) = idle else {
        return PassLook::not(0.0, "No worker was forked from a process with threads.");
    };
    let (seconds, threads) = (process.idle_ns.seconds(), process.parent_threads.unwrap_or(0));
    let waited = rank.passes.iter().map(|pass| pass.row.blocked_all_ns.seconds()).fold(0.0, f64::max);
    // A worker that is ahead is idle as well, but the rank does not wait for it.
    let failed = rank.passes.iter().any(|pass| !pass.row.complete);
    let left = process.data.reads.count == 0 && failed;
    let limit = if failed { IDLE_BEFORE_FAILURE } else { IDLE_SECONDS };
    if seconds < limit || (waited < seconds * 0.5 && !left) {
        return PassLook::not(
            seconds,
            format!("No worker did nothing for {limit} s while it was waited for."),
        );
    }
    let evidence = format!(
        "Worker {} (process {}) made no call and used no CPU for {}; its parent had {threads} threads when it forked.",
        process.worker.unwrap_or(0),
        process.pid,
        super::text::seconds(seconds)
    );
    FaultCase::of_rank(rank, seconds, evidence)
        .certainty(Certainty::Medium)
        .figure("idle_seconds", seconds)
        .figure("parent_threads", threads as f64)
        .into()
}
