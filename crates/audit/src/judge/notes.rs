//! Rules that tell what is worth knowing and ask for no change.

use model::observed::Severity;
use model::units::counted;

use super::job::{JudgedJob, JudgedRank};
use super::rule::{AuditRule, FaultAnswer, FaultCase, KnownFaults, Loss, Need, PassLook, by_rank};
use super::text::{bytes, percent, seconds};

/// A larger share of the time in the handing over of batches is a matter of input.
const HANDED: f64 = 0.2;

pub(super) const NOT_INPUT_BOUND: AuditRule = AuditRule {
    name: "not-input-bound",
    severity: Severity::Note,
    about: "The training process waits for batches for less than 2 % of the time.",
    needs: &[Need::Waits],
    loss: Loss::Input,
    explained_by: &[],
    title: "The job does not wait for its input",
    explanation: "Batches are loaded before they are asked for. Faster storage or loading makes this job no faster.",
    change: "Nothing.",
    check: "Waits stay below 2 % of the time.",
    judge: not_input_bound,
};

fn not_input_bound(job: &JudgedJob<'_>, _: &KnownFaults) -> FaultAnswer {
    let Some((rank, wait)) = job.longest_wait() else {
        return FaultAnswer::Unknown("No waits were observed.".to_owned());
    };
    let part = if wait.steady { " after the first batches" } else { "" };
    let evidence = format!(
        "Rank {} waited {} of {} ({}) for batches{part}.",
        rank.rank,
        seconds(wait.seconds),
        seconds(wait.of),
        percent(wait.share)
    );
    if wait.share >= super::SMALL {
        return FaultAnswer::Not(evidence);
    }
    let handed = rank.handover_share();
    if handed >= HANDED {
        return FaultAnswer::Not(format!(
            "{evidence} Handing over batches takes {} of the time.",
            percent(handed)
        ));
    }
    let case = FaultCase::of_rank(rank, 1.0 - wait.share, evidence).figure("wait_share", wait.share);
    let case = case.figure("batches", wait.batches as f64);
    case.limit_if(!wait.steady, "There are few batches: the start counts as well.").found()
}

pub(super) const SERVED_FROM_PAGE_CACHE: AuditRule = AuditRule {
    name: "served-from-page-cache",
    severity: Severity::Note,
    about: "After the first epoch the data comes from the page cache.",
    needs: &[Need::Calls, Need::Issued],
    loss: Loss::Risk,
    explained_by: &[],
    title: "Data comes from the page cache",
    explanation: "The files fit into memory, and the kernel keeps them. The speed of these epochs is not that of the \
                  storage.",
    change: "Nothing for a job; a benchmark of the storage needs a larger data set or an empty cache.",
    check: "Bytes read from storage per epoch.",
    judge: |job, _| by_rank(job, from_cache),
};

fn from_cache(rank: &JudgedRank<'_>) -> PassLook {
    let shares: Vec<f64> = rank.passes.iter().filter_map(|pass| pass.issued_share()).collect();
    let (Some(first), Some((last, later))) = (rank.first(), shares.split_last()) else {
        return PassLook::unknown("Bytes read from storage are not known.");
    };
    let most = later.iter().skip(1).copied().fold(*last, f64::max);
    if most >= 0.1 {
        return PassLook::not(
            1.0 - most,
            format!("Epochs read up to {} of their bytes from storage.", percent(most)),
        );
    }
    let evidence = format!(
        "Epoch {} read {} from storage and asked for {}; of what later epochs asked for, at most {} came from storage.",
        first.row.epoch,
        first.row.issued_bytes.map_or("an unknown amount".to_owned(), bytes),
        bytes(first.asked()),
        percent(most)
    );
    FaultCase::of_rank(rank, 1.0 - most, evidence).figure("issued_share_later", most).into()
}

pub(super) const WRONG_STORAGE: AuditRule = AuditRule {
    name: "wrong-storage",
    severity: Severity::Note,
    about: "Data files are on a network file system or in a container's layers.",
    needs: &[Need::Storage],
    loss: Loss::Risk,
    explained_by: &[],
    title: "Data files are on a network or container file system",
    explanation: "Each call on a network file system can be a request to a server, and opening a \
                  file in the layers of a container is slow.",
    change: "Copy the data to a local disk before training if it fits.",
    check: "The file system of the data files in this report.",
    judge: wrong_storage,
};

fn wrong_storage(job: &JudgedJob<'_>, _: &KnownFaults) -> FaultAnswer {
    const REMOTE: &[&str] = &[
        "nfs",
        "cifs",
        "smb",
        "lustre",
        "ceph",
        "gpfs",
        "beegfs",
        "glusterfs",
        "9p",
        "fuse",
        "overlay",
        "afs",
    ];
    let remote = |name: &str| REMOTE.iter().any(|kind| name.starts_with(kind));
    let Some(row) = job.observed.storage.iter().find(|row| remote(&row.file_system) && row.bytes > 0) else {
        return FaultAnswer::Not(format!(
            "{} examined.",
            counted(job.observed.storage.len() as u64, "file system")
        ));
    };
    let place = if row.mount.is_empty() { String::new() } else { format!(" at {}", row.mount) };
    let evidence = format!("{} of the data is on {}{place}.", bytes(row.bytes), row.file_system);
    FaultCase::of_job(row.bytes as f64, evidence).figure("bytes", row.bytes as f64).found()
}
