//! Rules about calls: which bytes, files and folders, how often and in which pieces.

use model::observed::{Certainty, Severity};
use model::units::{counted, grouped};

use super::correctness::AGAIN;
use super::job::{JudgedJob, JudgedRank, Pass, ratio};
use super::rule::{AuditRule, FaultCase, Loss, Need, PassLook, by_epoch, by_rank};
use super::text::{bytes, bytes_of, factor, percent, seconds};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

pub(super) const SAME_BYTES: AuditRule = AuditRule {
    name: "same-bytes-read-again",
    severity: Severity::Cost,
    about: "A process reads the same ranges of files several times in one epoch.",
    needs: &[Need::Calls],
    loss: Loss::Input,
    explained_by: &["shared-file-offset"],
    title: "The same bytes are read again and again",
    explanation: "A block that holds many samples (a chunk, a shard, a whole file) is read anew for each of them, and \
                  all but one sample are thrown away.",
    change: "Read a block once and use all of its samples (shuffle blocks, then samples within them), keep the last \
             blocks in the worker, or store one sample per block.",
    check: "Bytes read / distinct bytes of a process is near 1.",
    judge: |job, _| by_epoch(job, |pass| same_bytes(job, pass)),
};

/// How often a process reads a byte in an epoch; at least, if ranges were too many to be kept.
fn times_read(job: &JudgedJob<'_>, pass: &Pass<'_>) -> Option<f64> {
    let files = &pass.row.files;
    // A sampler that never ends goes through the files again within an epoch.
    let passes = files.passes.max(1) as f64;
    if files.ranges_cut {
        let whole = job.observed.files.bytes;
        return (whole > 0).then(|| ratio(pass.asked() as f64, whole as f64 * passes));
    }
    let times = ratio(files.asked_bytes as f64, files.process_distinct_bytes as f64);
    (files.process_distinct_bytes > 0).then(|| if times > AGAIN { (times / passes).max(1.0) } else { times })
}

/// Whether whole files are drawn at random, some often and some seldom: each draw is a sample, and repeats are wanted.
fn drawn_at_random(job: &JudgedJob<'_>, pass: &Pass<'_>, times: f64) -> bool {
    let files = &pass.row.files;
    let whole = pass.bytes_per_open().zip(job.file_bytes()).is_some_and(|(open, file)| open > 0.9 * file);
    let mean = ratio(files.opens as f64, files.sampled as f64);
    let usual = job.observed.files.samples_per_file;
    // Files of several samples differ in their number, but less.
    whole
        && (usual.is_some_and(|usual| usual < 0.6 * times)
            || files.opens_spread.is_some_and(|spread| spread > (0.2 * mean).max(0.5)))
}

fn same_bytes(job: &JudgedJob<'_>, pass: &Pass<'_>) -> PassLook {
    let files = &pass.row.files;
    let Some(times) = times_read(job, pass) else {
        return PassLook::unknown("No ranges of files are known.");
    };
    if times <= AGAIN {
        return PassLook::not(times, format!("A process reads a byte {} times in an epoch.", factor(times)));
    }
    if drawn_at_random(job, pass, times) {
        return PassLook::not(
            1.0,
            "Some files are drawn more often than others: samples are repeated on purpose.",
        );
    }
    if headers_again(job, pass) {
        return PassLook::not(1.0, "Only the headers of files that are opened again are read again.");
    }
    let evidence = format!(
        "A process read {} times the distinct bytes: {} were read, {} are distinct.",
        factor(times),
        bytes(files.asked_bytes),
        bytes(files.process_distinct_bytes)
    );
    FaultCase::of(pass, times, evidence)
        .certainty(if files.ranges_cut { Certainty::Medium } else { Certainty::High })
        .figure("times_read", times)
        .figure("asked_bytes", files.asked_bytes as f64)
        .figure("distinct_bytes", files.process_distinct_bytes as f64)
        // What a block costs beyond its reading (to decode all of it) is repeated as well.
        .cost(pass.saved(pass.fetch().max(pass.file()) * (1.0 - 1.0 / times)))
        .limit("The cost takes the whole time of loading as repeated; it is less if samples are decoded one by one.")
        .place(files.most_repeated.as_ref())
        .sites()
        .into()
}

/// Whether files are opened again, and each open reads little again.
fn headers_again(job: &JudgedJob<'_>, pass: &Pass<'_>) -> bool {
    let files = &pass.row.files;
    let extra = files.asked_bytes.saturating_sub(files.process_distinct_bytes) as f64;
    let part = pass.bytes_per_open().zip(job.file_bytes()).is_some_and(|(open, file)| open < 0.5 * file);
    reopened(pass).is_some() && part && extra / (files.opens.max(1) as f64) < 64.0 * KIB as f64
}

pub(super) const FILES_OPENED_AGAIN: AuditRule = AuditRule {
    name: "files-opened-again",
    severity: Severity::Cost,
    about: "A process opens the same file many times in one epoch.",
    needs: &[Need::Calls],
    loss: Loss::Input,
    explained_by: &["same-bytes-read-again"],
    title: "Files are opened again for each sample",
    explanation: "Each sample opens its file, reads its header or index, and closes it, although the next sample comes \
                  from the same file.",
    change: "Open a file once per worker and keep the handle (with a bound, such as functools.lru_cache).",
    check: "Opens per worker, file and epoch are near 1.",
    judge: |job, _| by_epoch(job, |pass| opened_again(job, pass)),
};

/// Opens of a file by one process: the mean, or those of one file that is opened for every other sample.
fn reopened(pass: &Pass<'_>) -> Option<f64> {
    let files = &pass.row.files;
    let mean = ratio(files.opens as f64, files.pairs as f64);
    if mean >= 4.0 {
        return Some(mean);
    }
    let readers = pass.active().count().max(1) as f64;
    let samples = pass.row.samples? as f64 / readers;
    let most = files.opens_most as f64;
    (most >= 8.0 && most >= 0.5 * samples).then_some(most)
}

fn opened_again(job: &JudgedJob<'_>, pass: &Pass<'_>) -> PassLook {
    let files = &pass.row.files;
    let mean = ratio(files.opens as f64, files.pairs as f64);
    let Some(times) = reopened(pass) else {
        return PassLook::not(mean, format!("A process opens a file {} times in an epoch.", factor(mean)));
    };
    let whole = pass.bytes_per_open().zip(job.file_bytes()).is_some_and(|(open, file)| open > 0.9 * file);
    if whole && mean >= 4.0 && !times_read(job, pass).is_some_and(|times| times > AGAIN) {
        return PassLook::not(1.0, "Each open reads a whole file.");
    }
    if drawn_at_random(job, pass, mean) {
        return PassLook::not(
            1.0,
            "Some files are drawn more often than others: samples are repeated on purpose.",
        );
    }
    let io = &pass.row.io;
    let evidence = format!(
        "A process opens a file {} times per epoch; the most often opened one {} times. Opening takes {} of \
            {} in calls.",
        factor(times),
        grouped(files.opens_most),
        seconds(io.metadata_ns().seconds()),
        seconds(io.file_ns().seconds())
    );
    let again = 1.0 - 1.0 / times;
    // Reads that a new handle needs before the sample: those beyond one per open.
    let header = ratio(pass.reads_per_open() - 1.0, pass.reads_per_open()).max(0.0) * io.reads.ns.seconds();
    let calls = io.metadata_ns().seconds() + header;
    let around =
        pass.think() * ratio(io.metadata_calls() as f64, (io.metadata_calls() + io.reads.count) as f64);
    FaultCase::of(pass, times, evidence)
        .figure("opens_per_file", times)
        .figure("opens", io.opens.count as f64)
        .figure("metadata_seconds", io.metadata_ns().seconds())
        .cost(pass.saved((calls + around.min(calls)) * again))
        .place(files.most_opened.as_ref())
        .sites()
        .into()
}

pub(super) const TINY_READS: AuditRule = AuditRule {
    name: "tiny-reads",
    severity: Severity::Cost,
    about: "Files are read in order in pieces of less than 16 KiB.",
    needs: &[Need::Calls],
    loss: Loss::Input,
    explained_by: &["shared-file-offset", "same-bytes-read-again"],
    title: "Files are read in tiny pieces",
    explanation: "Each call costs time whatever it reads. Files are read from front to back in many small calls.",
    change: "Read with a buffer of 1 MiB (open(path, 'rb', buffering=1 << 20)), or a whole sample with one call.",
    check: "Half of the bytes come from reads of 64 KiB or more.",
    judge: |job, _| by_epoch(job, tiny_reads),
};

fn tiny_reads(pass: &Pass<'_>) -> PassLook {
    let (Some(size), Some(sequential)) = (pass.read_size(), pass.sequential()) else {
        return PassLook::unknown("No reads were recorded.");
    };
    let per_open = pass.reads_per_open();
    if size >= 16 * KIB || per_open <= 4.0 || sequential <= 0.7 {
        let figures = format!("Half of the bytes come from reads of up to {}", bytes(size));
        let order = format!("{} reads per open, {} in sequence", factor(per_open), percent(sequential));
        return PassLook::not(ratio(16.0 * KIB as f64, size as f64).min(1.0), format!("{figures}; {order}."));
    }
    let io = &pass.row.io;
    let needed = (io.opens.count as f64).max(pass.asked() as f64 / MIB as f64);
    let calls = (io.reads.ns + io.seeks.ns).seconds();
    let evidence = format!(
        "Half of the bytes come from reads of {} or less: {} calls per MiB, {} in sequence.",
        bytes(size),
        factor(ratio(io.reads.count as f64, pass.asked() as f64 / MIB as f64)),
        percent(sequential)
    );
    let fewer = (1.0 - ratio(needed, io.reads.count as f64)).max(0.0);
    FaultCase::of(pass, ratio(16.0 * KIB as f64, size as f64), evidence)
        .figure("read_bytes_median", size as f64)
        .figure("reads", io.reads.count as f64)
        .figure("reads_per_open", per_open)
        // The code around a call takes at least as long as a call that finds its bytes in a buffer.
        .cost(pass.saved((calls + pass.think().min(calls)) * fewer))
        .sites()
        .into()
}

pub(super) const METADATA_BOUND: AuditRule = AuditRule {
    name: "metadata-bound",
    severity: Severity::Cost,
    about: "Finding and opening small files takes longer than reading them.",
    needs: &[Need::Calls, Need::Times, Need::Samples],
    loss: Loss::Input,
    explained_by: &["same-bytes-read-again", "files-opened-again", "repeated-listing"],
    title: "Opening files takes longer than reading them",
    explanation: "Each sample is a small file of its own, with several calls to look it up, open and close it.",
    change: "Pack samples into shards of 100 MiB or more (tar, TFRecord, HDF5), and drop checks such as \
             os.path.exists before each open.",
    check: "Less than one call to open or describe a file per sample.",
    judge: |job, _| by_epoch(job, metadata),
};

/// Less time in calls for metadata, in seconds of an epoch, may be an accident of the scheduler.
const LEAST_METADATA: f64 = 0.01;

fn metadata(pass: &Pass<'_>) -> PassLook {
    let io = &pass.row.io;
    let Some(samples) = pass.amount().filter(|_| pass.row.samples.is_some() || !pass.kind.marks()) else {
        return PassLook::unknown("Samples were not counted.");
    };
    let visits = if pass.row.samples.is_some() { samples } else { io.opens.count.max(1) };
    let calls = ratio(io.metadata_calls() as f64, visits as f64);
    let visit = ratio(pass.asked() as f64, io.opens.count as f64);
    let (meta, read) = (io.metadata_ns().seconds(), io.reads.ns.seconds());
    let whole = if pass.fetch() > 0.0 { pass.fetch() } else { pass.wall() };
    let share = ratio(meta, whole);
    let many = calls >= 5.0 && meta > read && share >= 0.1;
    let slow = calls >= 2.0 && meta > 2.0 * read && share >= 0.25 && visit < 32.0 * KIB as f64;
    if visit >= 64.0 * KIB as f64 || meta < LEAST_METADATA || !(many || slow) {
        let times = format!("{} to open and describe files, {} to read", seconds(meta), seconds(read));
        return PassLook::not(share, format!("{} calls per sample; {times}.", factor(calls)));
    }
    let evidence = format!(
        "{} calls to open and describe files per sample of {}: they take {}, and reading takes {}.",
        factor(calls),
        bytes_of(visit),
        seconds(meta),
        seconds(read)
    );
    let cold = pass.issued_share().is_some_and(|share| share > 0.5);
    FaultCase::of(pass, ratio(meta, read), evidence)
        .figure("metadata_calls_per_sample", calls)
        .figure("bytes_per_file", visit)
        .figure("metadata_seconds", meta)
        .figure("read_seconds", read)
        .cost(pass.saved(meta + pass.think().min(meta)))
        .limit_if(!cold, "The files were in the page cache: they take longer when they are not.")
        .sites()
        .into()
}

pub(super) const REPEATED_LISTING: AuditRule = AuditRule {
    name: "repeated-listing",
    severity: Severity::Cost,
    about: "The same folders are listed again and again.",
    needs: &[Need::Calls],
    loss: Loss::Time,
    explained_by: &[],
    title: "Folders are listed again and again",
    explanation: "Each worker, epoch or sample lists the folders of the data set, although they do not change.",
    change: "List the folders once before training and hand the list of files to the workers.",
    check: "Each folder is listed once in the whole job.",
    judge: |job, _| by_rank(job, listing),
};

fn listing(rank: &JudgedRank<'_>) -> PassLook {
    let epochs = || rank.passes.iter().map(|pass| &pass.row.files);
    let outside = rank.outside.map_or((0, 0), |row| (row.listings, row.folders));
    let listings = outside.0 + epochs().map(|files| files.listings).sum::<u64>();
    let folders = epochs().map(|files| files.folders).max().unwrap_or(0).max(outside.1);
    let processes = epochs().map(|files| files.listing_processes).max().unwrap_or(0);
    if folders == 0 {
        return PassLook::not(0.0, "No folder was listed.");
    }
    let times = ratio(listings as f64, folders as f64);
    let spent = |pass: &Pass<'_>| pass.row.io.listings.ns.seconds();
    let per_epoch = rank.passes.iter().map(spent).sum::<f64>() / rank.passes.len().max(1) as f64;
    let walls: f64 = rank.passes.iter().map(Pass::wall).sum();
    let share = ratio(rank.passes.iter().map(spent).sum(), walls);
    // A parent and one child list twice.
    if times <= 2.0 || (listings <= 20 && share <= 0.01) {
        return PassLook::not(
            times,
            format!("{} listed {} times on average.", counted(folders, "folder"), factor(times)),
        );
    }
    let evidence = format!(
        "{} listed {} times on average: {} by up to {} processes in an epoch, {} per epoch.",
        counted(folders, "folder"),
        factor(times),
        counted(listings, "listing"),
        processes,
        seconds(per_epoch)
    );
    let saved = |pass: &Pass<'_>| {
        let all = spent(pass) + pass.think().min(spent(pass));
        (all * (1.0 - 1.0 / times) / pass.overlap()).min(pass.wall())
    };
    let cost = rank.passes.iter().map(saved).sum::<f64>() / rank.passes.len().max(1) as f64;
    FaultCase::of_rank(rank, times, evidence)
        .figure("folders", folders as f64)
        .figure("listings", listings as f64)
        .figure("listing_seconds_per_epoch", per_epoch)
        .cost(cost)
        .sites()
        .into()
}

pub(super) const RANDOM_WHERE_SEQUENTIAL: AuditRule = AuditRule {
    name: "random-where-sequential",
    severity: Severity::Cost,
    about: "Small reads at random offsets cover whole large files from storage.",
    needs: &[Need::Calls, Need::Issued, Need::Waits],
    loss: Loss::Input,
    explained_by: &[
        "shared-file-offset",
        "same-bytes-read-again",
        "read-ahead-amplification",
        "serialised-reads",
        "cache-too-small",
    ],
    title: "Large files are read in random order in small pieces",
    explanation: "An epoch reads nearly all of the files, but in small reads at random offsets. Storage delivers them \
                  far more slowly than the same bytes in order.",
    change: "Shuffle blocks of some MiB and the samples within a few of them, instead of single samples.",
    check: "Most reads begin where the one before ended, and reads of the same bytes take less time.",
    judge: |job, _| by_epoch(job, |pass| random(job, pass)),
};

fn random(job: &JudgedJob<'_>, pass: &Pass<'_>) -> PassLook {
    let (Some(size), Some(sequential)) = (pass.read_size(), pass.sequential()) else {
        return PassLook::unknown("No reads were recorded.");
    };
    let covered = ratio(pass.of_all(pass.row.files.distinct_bytes), job.observed.files.bytes as f64);
    let small = size < 128 * KIB && sequential < 0.3 && pass.reads_per_open() > 8.0;
    let (wait, file) = (pass.wait_share().unwrap_or(0.0), pass.file_share().unwrap_or(0.0));
    let cold = pass.issued_share().unwrap_or(0.0) > 0.5;
    if !small || covered < 0.5 || wait <= 0.1 || file <= 0.5 || !cold {
        let reads = format!("Reads of {}, {} in sequence", bytes(size), percent(sequential));
        return PassLook::not(
            1.0 - sequential,
            format!("{reads}, {} of the time of loading.", percent(file)),
        );
    }
    let most = job.observed.storage.iter().filter_map(|row| row.most_bytes_per_second).max();
    // The highest rate may be that of these reads: then it says nothing about reads in order.
    let in_order = most.filter(|most| *most > 0).map(|most| pass.asked() as f64 / most as f64);
    let in_order = in_order.filter(|needed| *needed < 0.5 * pass.file());
    let evidence = format!(
        "Half of the bytes come from reads of {} or less, {} of them in sequence; they cover {} of the files.",
        bytes(size),
        percent(sequential),
        percent(covered.min(1.0))
    );
    FaultCase::of(pass, 1.0 - sequential, evidence)
        .certainty(Certainty::Medium)
        .figure("read_bytes_median", size as f64)
        .figure("sequential_share", sequential)
        .figure("covered_share", covered.min(1.0))
        .cost_if(in_order.map(|needed| pass.saved((pass.file() - needed).max(0.0))))
        .sites()
        .into()
}
