//! Rules about what the kernel does for the job: read-ahead, mappings, the page cache, shared memory, writing.

use model::observed::{Certainty, Severity};
use model::units::grouped;

use super::job::{JudgedJob, JudgedRank, Pass, ratio};
use super::rule::{AuditRule, FaultAnswer, FaultCase, KnownFaults, Loss, Need, PassLook, by_epoch, by_rank};
use super::text::{bytes, bytes_of, factor, percent, processes_text, seconds};

const PAGE: f64 = 4096.0;
const SIGBUS: i32 = 7;

pub(super) const MMAP_AMPLIFICATION: AuditRule = AuditRule {
    name: "mmap-amplification",
    severity: Severity::Cost,
    about: "Page faults of mapped files bring far more from storage than is used.",
    needs: &[Need::Issued],
    loss: Loss::Input,
    explained_by: &[],
    title: "Mapped files read far more than is used",
    explanation: "Samples are taken from a mapping at random places. Each page fault reads up to the \
        read-ahead size of \
                  the device, and most of it is not used.",
    change: "Call mmap.madvise(mmap.MADV_RANDOM) on the mapping, read samples with os.pread, or store them so that \
             they are read in order.",
    check: "Bytes read from storage are near the bytes used.",
    judge: |job, _| by_epoch(job, |pass| mapped(job, pass)),
};

/// Bytes that page faults brought, and bytes that were used of them, both at most.
fn brought_and_used(job: &JudgedJob<'_>, pass: &Pass<'_>, issued: u64) -> Result<(u64, u64), PassLook> {
    let files = &pass.row.files;
    // What was read by calls is not a matter of mappings.
    let issued = issued.saturating_sub(pass.asked());
    let unknown = || PassLook::unknown("What is used of the mappings is not known.");
    if !pass.has_all_faults() {
        let used = files.resident_bytes.filter(|bytes| *bytes > 0).ok_or_else(unknown)?;
        return Ok((issued, used));
    }
    if files.faults == Some(0) {
        return Err(PassLook::not(0.0, "There were no page faults in mapped files."));
    }
    // A fault that waits for storage reads ahead once, which large pages can round up. Programs and libraries are
    // read from storage, too.
    let ahead = job.observed.storage.iter().filter_map(|row| row.read_ahead_kb).max();
    let most = ahead.zip(files.faults_major).map(|(kb, major)| major.saturating_mul((2 * kb.max(4)) << 10));
    let used = files.resident_growth_bytes.filter(|bytes| *bytes > 0).or(files.fault_piece_bytes);
    Ok((issued.min(most.unwrap_or(issued)), used.ok_or_else(unknown)?))
}

fn mapped(job: &JudgedJob<'_>, pass: &Pass<'_>) -> PassLook {
    let files = &pass.row.files;
    let Some(issued) = pass.row.issued_bytes else {
        return PassLook::unknown("Bytes read from storage are not known.");
    };
    if files.mapped_bytes.unwrap_or(0) == 0 && files.faults.is_none() {
        return PassLook::not(0.0, "No data file was mapped.");
    }
    let (brought, used) = match brought_and_used(job, pass, issued) {
        Ok(both) => both,
        Err(look) => return look,
    };
    let times = ratio(brought as f64, used as f64);
    if times <= 2.0 || brought < 1 << 20 {
        return PassLook::not(
            times,
            format!("{} times the used bytes were read from storage.", factor(times)),
        );
    }
    let mut evidence = format!(
        "{} were read from storage for at most {} that were used of mapped files.",
        bytes(brought),
        bytes(used)
    );
    let exact = files.faults.filter(|faults| *faults > 0 && pass.has_all_faults());
    let major = files.faults_major.filter(|_| exact.is_some());
    let sequential = exact.zip(files.faults_sequential).map(|(all, part)| ratio(part as f64, all as f64));
    if let (Some(faults), Some(major), Some(sequential)) = (exact, major, sequential) {
        evidence += &format!(
            " Of {} page faults, {} waited for storage, and {} went on where the one before was.",
            grouped(faults),
            grouped(major),
            percent(sequential)
        );
    }
    FaultCase::of(pass, times, evidence)
        .figure("issued_bytes", brought as f64)
        .figure("used_bytes", used as f64)
        .figure("times_used", times)
        .figure_if("faults", exact.map(|faults| faults as f64))
        .figure_if("faults_waiting_for_storage", major.map(|faults| faults as f64))
        .figure_if("sequential_share", sequential)
        .certainty(if exact.is_some() { Certainty::High } else { Certainty::Medium })
        .cost(pass.budget() * (1.0 - 1.0 / times))
        .sites()
        .into()
}

pub(super) const READ_AHEAD_AMPLIFICATION: AuditRule = AuditRule {
    name: "read-ahead-amplification",
    severity: Severity::Cost,
    about: "Read-ahead of the kernel brings more from storage than small random reads ask for.",
    needs: &[Need::Calls, Need::Issued],
    loss: Loss::Input,
    explained_by: &["mmap-amplification", "shared-file-offset"],
    title: "Read-ahead reads bytes that the job does not use",
    explanation: "Reads are small and at random offsets, but the kernel takes some of them for a sequence and reads \
                  ahead. These bytes are not used before they are evicted.",
    change: "Call os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM) after opening the file.",
    check: "Bytes read from storage are near the bytes asked for.",
    judge: |job, _| by_epoch(job, |pass| read_ahead(job, pass)),
};

fn read_ahead(job: &JudgedJob<'_>, pass: &Pass<'_>) -> PassLook {
    let (Some(size), Some(sequential)) = (pass.read_size(), pass.sequential()) else {
        return PassLook::unknown("No reads were recorded.");
    };
    let Some(issued) = pass.row.issued_bytes else {
        return PassLook::unknown("Bytes read from storage are not known.");
    };
    // Storage is read in pages.
    let reads = pass.row.io.reads.count as f64;
    let asked = (pass.asked() as f64).max(reads.min(pass.asked() as f64) * PAGE);
    let times = ratio(issued as f64, asked);
    let large = job.file_bytes().is_some_and(|file| file >= 8.0 * size as f64);
    // Reads of one sample can follow each other.
    let random = size < 128 << 10 && sequential < 0.8 && pass.reads_per_open() > 4.0 && large;
    if times <= 1.5 || !random || pass.has_mappings() || issued < 1 << 20 {
        return PassLook::not(
            times,
            format!("{} times the asked bytes were read from storage.", factor(times)),
        );
    }
    let ahead = job.observed.storage.iter().find_map(|row| row.read_ahead_kb);
    let setting =
        ahead.map_or(String::new(), |kb| format!(" Read-ahead of the device is {}.", bytes(kb << 10)));
    let evidence = format!(
        "{} were read from storage for {} that were asked for, in reads of {} or less.{setting}",
        bytes(issued),
        bytes(pass.asked()),
        bytes(size)
    );
    FaultCase::of(pass, times, evidence)
        .figure("issued_bytes", issued as f64)
        .figure("asked_bytes", pass.asked() as f64)
        .figure("times_asked", times)
        .figure_if("read_ahead_kb", ahead.map(|kb| kb as f64))
        .cost(pass.saved(pass.file() * (1.0 - 1.0 / times)))
        .sites()
        .into()
}

pub(super) const CACHE_TOO_SMALL: AuditRule = AuditRule {
    name: "cache-too-small",
    severity: Severity::Cost,
    about: "The data set would nearly fit into memory, but each epoch reads it from storage again.",
    needs: &[Need::Calls, Need::Issued, Need::Epochs],
    loss: Loss::Input,
    explained_by: &["mmap-amplification", "read-ahead-amplification"],
    title: "The page cache is a little too small",
    explanation: "The kernel evicts files before the next epoch reads them, because the memory (or the limit of the \
                  control group) does not hold the data set and the job together.",
    change: "Give the job more memory (the limit of the container), or make the data set or the job smaller.",
    check: "Later epochs read little from storage.",
    judge: |job, _| by_rank(job, |rank| cache(job, rank)),
};

/// The share of an epoch that comes from storage again: with a new order in each epoch and a cache of nearly the size
/// of the files, up to half of them are still there.
const AGAIN_FROM_STORAGE: f64 = 0.4;

fn cache(job: &JudgedJob<'_>, rank: &JudgedRank<'_>) -> PassLook {
    let host = &job.observed.host;
    let memory = host.memory_limit_bytes.into_iter().chain(host.memory_bytes).min();
    let (Some(memory), Some(refault)) = (memory.filter(|bytes| *bytes > 0), host.refault_bytes) else {
        return PassLook::unknown("Memory, or what was evicted from it, is not known.");
    };
    let set = job.observed.files.bytes;
    let later = || rank.passes.iter().skip(1);
    let least = later().map(|pass| pass.issued_share().unwrap_or(0.0)).fold(f64::INFINITY, f64::min);
    if !least.is_finite() || job.observed.files.direct > 0 {
        return PassLook::unknown("There is only one epoch, or files are read past the page cache.");
    }
    let asked: u64 = later().map(|pass| pass.asked()).fold(0, u64::saturating_add);
    let evicted = ratio(refault as f64, asked as f64);
    let nearly = (0.5..1.2).contains(&ratio(set as f64, memory as f64));
    if least < AGAIN_FROM_STORAGE || !nearly || evicted < 0.1 {
        let figures = format!("Later epochs read {} or more of their bytes from storage", percent(least));
        return PassLook::not(
            least.min(1.0),
            format!("{figures}; {} were evicted before.", percent(evicted)),
        );
    }
    let evidence = format!(
        "Each epoch reads {} or more from storage, though the files ({}) are less than 1.2 x the memory ({}); {} had \
         been evicted shortly before.",
        percent(least.min(1.0)),
        bytes(set),
        bytes(memory),
        bytes(refault)
    );
    let epochs = rank.passes.len().max(1) as f64;
    FaultCase::of_rank(rank, least, evidence)
        .certainty(Certainty::Medium)
        .figure("files_bytes", set as f64)
        .figure("memory_bytes", memory as f64)
        .figure("refault_bytes", refault as f64)
        .cost(later().map(|pass| pass.saved(pass.file())).sum::<f64>() / epochs)
        .into()
}

pub(super) const SHARED_MEMORY_FULL: AuditRule = AuditRule {
    name: "shared-memory-full",
    severity: Severity::Cost,
    about: "Batches fill /dev/shm, or a worker was ended by SIGBUS.",
    needs: &[],
    loss: Loss::Risk,
    explained_by: &[],
    title: "Shared memory is nearly full",
    explanation: "Workers hand over batches in /dev/shm. When it is full, a worker ends with SIGBUS and the job with \
                  'DataLoader worker is killed by signal: Bus error'.",
    change: "Give the container more shared memory (docker run --shm-size=8g), or use fewer workers, less prefetch or \
             smaller batches.",
    check: "Less than 80 % of /dev/shm is used, and no worker ends by SIGBUS.",
    judge: shared_memory,
};

fn shared_memory(job: &JudgedJob<'_>, _: &KnownFaults) -> FaultAnswer {
    let host = &job.observed.host;
    let killed = job.observed.processes.iter().filter(|process| process.signal == Some(SIGBUS)).count();
    let size = host.shm_bytes.filter(|bytes| *bytes > 0);
    let share = size.zip(host.shm_used_bytes).map(|(size, used)| ratio(used as f64, size as f64));
    if killed == 0 && share.is_none() {
        return FaultAnswer::Unknown("The use of /dev/shm is not known.".to_owned());
    }
    let share = share.unwrap_or(0.0);
    if killed == 0 && share <= 0.8 {
        return FaultAnswer::Not(format!("{} of /dev/shm was used at most.", percent(share)));
    }
    let by_signal =
        if killed > 0 { format!(" SIGBUS ended {}.", processes_text(killed as u64)) } else { String::new() };
    let of = size.map_or(String::new(), |size| format!(" of {}", bytes(size)));
    let used = bytes(host.shm_used_bytes.unwrap_or(0));
    FaultCase::of_job(share, format!("{used}{of} in /dev/shm were used at most.{by_signal}"))
        .figure("used_share", share)
        .figure("ended_by_sigbus", killed as f64)
        .limit("Other programs may use /dev/shm as well.")
        .found()
}

pub(super) const CHECKPOINT_BLOCKS: AuditRule = AuditRule {
    name: "checkpoint-blocks",
    severity: Severity::Cost,
    about: "The training process does not train while it writes checkpoints, or reads are slower then.",
    needs: &[Need::Times],
    loss: Loss::Time,
    explained_by: &[],
    title: "The training process waits for its checkpoints",
    explanation: "The training process writes and flushes checkpoints itself. It does not train while it does so.",
    change: "Copy the state and write it in another thread or process (asynchronous checkpoints), to other storage \
             than the data, or less often.",
    check: "Time of the training process in writing and flushing is below 5 % of the epoch.",
    judge: |job, _| by_rank(job, checkpoints),
};

fn checkpoints(rank: &JudgedRank<'_>) -> PassLook {
    let rows = || rank.passes.iter().map(|pass| pass.row);
    let between = rank.outside.map_or(0.0, |row| row.checkpoint_ns.seconds());
    let written_between = rank.outside.map_or(0, |row| row.checkpoint_bytes);
    let inside: f64 = rows().map(|row| row.checkpoint_ns.seconds()).sum();
    let spent = inside + between;
    let written: u64 = rows().map(|row| row.checkpoint_bytes).fold(written_between, u64::saturating_add);
    let wall: f64 = rank.passes.iter().map(Pass::wall).sum::<f64>() + between;
    let share = ratio(spent, wall).min(1.0);
    let epochs = rank.passes.len().max(1) as f64;
    let slower = rows().filter(|row| row.read_times_in_checkpoints.count() >= 8).filter_map(|row| {
        let (inside, all) = (row.read_times_in_checkpoints.quantile(0.5)?, row.read_times.quantile(0.5)?);
        Some(ratio(inside as f64, all as f64))
    });
    let slower = slower.fold(0.0, f64::max);
    // Log files are small. What is written once per epoch weighs less in the epochs of a real training.
    let least = if inside > 0.0 { 0.05 } else { 0.1 };
    if written < 1 << 20 || (share <= least && !(slower > 2.0 && share > 0.02)) {
        return PassLook::not(share, format!("Checkpoints take {} of the time.", percent(share)));
    }
    let reads = if slower > 2.0 {
        format!(" Reads take {} x as long during that time.", factor(slower))
    } else {
        String::new()
    };
    let evidence = format!(
        "Writing {} takes {} of {} per epoch.{reads}",
        bytes_of(written as f64 / epochs),
        seconds(spent / epochs),
        seconds(wall / epochs)
    );
    FaultCase::of_rank(rank, share, evidence)
        .figure("checkpoint_seconds_per_epoch", spent / epochs)
        .figure("checkpoint_bytes_per_epoch", written as f64 / epochs)
        .figure("share", share)
        .cost((spent / epochs).min(wall / epochs))
        .into()
}
