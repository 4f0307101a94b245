//! Rules about the start of workers and what they inherit.

use model::observed::{Certainty, MemoryChange, ProcessRow, Severity, WorkerRow};
use model::units::grouped;

use super::job::{JudgedRank, Pass, ratio};
use super::rule::{AuditRule, FaultCase, Loss, Need, PassLook, by_rank};
use super::text::{bytes, bytes_of, percent, seconds};

const MIB: u64 = 1 << 20;

pub(super) const COPY_ON_WRITE: AuditRule = AuditRule {
    name: "copy-on-write",
    severity: Severity::Cost,
    about: "Forked workers copy the memory of their parent by touching its objects.",
    needs: &[Need::Processes],
    loss: Loss::Risk,
    explained_by: &[],
    title: "Workers copy the memory that they inherited",
    explanation: "The data set holds many Python objects, such as a list of paths. Reading an object changes its \
                  reference count, so each worker copies the pages one by one: memory grows by the list for each \
                  worker, and the copying takes time.",
    change: "Keep paths and labels in one NumPy or Arrow array (or a string with offsets) instead of a list \
        of objects.",
    check: "Private memory of the workers stays the same while they read.",
    judge: |job, _| by_rank(job, copied),
};

/// Growth of private memory, and loss of shared memory.
fn growth(memory: &MemoryChange) -> (u64, u64) {
    (
        memory.private_dirty_last.saturating_sub(memory.private_dirty_first),
        memory.shared_dirty_first.saturating_sub(memory.shared_dirty_last),
    )
}

fn copied(rank: &JudgedRank<'_>) -> PassLook {
    let of_processes = rank.workers.iter().filter_map(|process| process.memory.as_ref());
    let rows = rank.passes.iter().flat_map(|pass| &pass.row.workers);
    let changes = of_processes.chain(rows.filter_map(|row| row.memory.as_ref())).map(growth);
    let copied = changes.max_by_key(|(private, shared)| (*private).min(shared.saturating_mul(2)));
    let Some((private, shared)) = copied else {
        return PassLook::unknown("Memory of the workers was not measured.");
    };
    if private <= 30 * MIB || shared.saturating_mul(2) <= private {
        let figures = format!("Private memory of a worker grew by {}", bytes(private));
        return PassLook::not(private as f64, format!("{figures}, shared memory fell by {}.", bytes(shared)));
    }
    let evidence = format!(
        "Private memory of a worker grew by {}, and it shares {} less with its parent; there are {} workers.",
        bytes(private),
        bytes(shared),
        rank.kind.workers
    );
    FaultCase::of_rank(rank, private as f64, evidence)
        .figure("private_bytes_grown", private as f64)
        .figure("shared_bytes_lost", shared as f64)
        .figure("workers", rank.kind.workers as f64)
        .into()
}

pub(super) const DATA_SET_PICKLED: AuditRule = AuditRule {
    name: "data-set-pickled",
    severity: Severity::Cost,
    about: "A large data set object is pickled and sent to each worker.",
    needs: &[Need::Processes, Need::Waits],
    loss: Loss::Start,
    explained_by: &["main-process-reads"],
    title: "A large data set object is sent to each worker",
    explanation: "Workers that are spawned get a pickled copy of the data set through a pipe. Lists of many objects \
                  take long to pickle and to send, once per worker and start.",
    change: "Keep the metadata in NumPy or Arrow arrays or in a file that workers map, or start workers with fork; \
             persistent_workers=True pays for it only once.",
    check: "The training process writes less than 16 MB per worker into pipes before the first batch.",
    judge: |job, _| by_rank(job, pickled),
};

fn pickled(rank: &JudgedRank<'_>) -> PassLook {
    if rank.kind.workers == 0 {
        return PassLook::not(0.0, "There are no workers.");
    }
    let Some(sent) = rank.others().map(|process| process.pipe_bytes_early).max() else {
        return PassLook::unknown("The training process was not observed.");
    };
    let each = sent as f64 / rank.kind.workers as f64;
    if each <= 16e6 {
        return PassLook::not(
            each,
            format!("{} per worker went into pipes before the first batch.", bytes_of(each)),
        );
    }
    let starting =
        |pass: &&Pass<'_>| pass.row.epoch <= 1 || pass.row.workers.iter().any(|worker| worker.started);
    let start: f64 = rank.passes.iter().filter(starting).map(started).sum();
    let evidence = format!(
        "{} were written into pipes for {} workers before the first batch: {} each. Starting them took {}.",
        bytes(sent),
        rank.kind.workers,
        bytes_of(each),
        seconds(rank.first().map_or(0.0, started))
    );
    FaultCase::of_rank(rank, each, evidence)
        .figure("pipe_bytes", sent as f64)
        .figure("bytes_per_worker", each)
        .cost(start / rank.passes.len().max(1) as f64)
        .limit("The cost is that of starting the workers, of which pickling is a part.")
        .into()
}

/// Time of starting workers: until the first request, and the part of the first wait that no fetch explains.
fn started(pass: &Pass<'_>) -> f64 {
    let fetch = pass.row.fetch_times.quantile(0.5).map_or(0.0, |ns| ns as f64 / 1e9);
    let wait = pass.row.first_wait_ns.seconds() - fetch.max(pass.usual_wait());
    (pass.row.start_ns.seconds() + wait.max(0.0)).min(pass.wall())
}

pub(super) const WORKERS_RESTARTED: AuditRule = AuditRule {
    name: "workers-restarted",
    severity: Severity::Cost,
    about: "Workers are started anew in each epoch.",
    needs: &[Need::Waits, Need::Epochs],
    loss: Loss::Start,
    explained_by: &["data-set-pickled", "fork-with-threads"],
    title: "Workers are started again in each epoch",
    explanation: "Without persistent_workers the loader ends its workers after each epoch and starts new ones, which \
                  import, initialise and fill their queues while the training process waits.",
    change: "Use persistent_workers=True.",
    check: "Workers are started once, and the first batch of later epochs comes as fast as others.",
    judge: |job, _| by_rank(job, restarted),
};

fn restarted(rank: &JudgedRank<'_>) -> PassLook {
    let (workers, starts) = (rank.kind.workers, rank.kind.worker_starts);
    if workers == 0 || starts <= workers || rank.passes.len() < 2 {
        return PassLook::not(
            starts as f64,
            format!("{starts} worker processes were started for {workers} workers."),
        );
    }
    let later = rank.passes.iter().skip(1);
    let epochs = (rank.passes.len() - 1) as f64;
    let cost = later.clone().map(started).sum::<f64>() / epochs;
    let wall = later.clone().map(Pass::wall).sum::<f64>() / epochs;
    let share = ratio(cost, wall);
    let modules = later.flat_map(|pass| &pass.row.workers).map(|worker| worker.code_opens).max().unwrap_or(0);
    let code =
        if modules > 0 { format!(" Each opens {} files of code.", grouped(modules)) } else { String::new() };
    let evidence = format!(
        "{starts} worker processes were started for {workers} workers. From epoch 2 on, the start takes {} of {} \
            per epoch.{code}",
        seconds(cost),
        seconds(wall)
    );
    let case = FaultCase::of_rank(rank, share, evidence)
        .figure("worker_starts", starts as f64)
        .figure("workers", workers as f64)
        .figure("start_seconds_per_epoch", cost)
        .figure("code_opens_per_worker", modules as f64)
        .cost(cost);
    if share < 0.05 { case.severity(Severity::Note) } else { case }.into()
}

pub(super) const IMPORT_STORM: AuditRule = AuditRule {
    name: "import-storm",
    severity: Severity::Cost,
    about: "Each worker imports hundreds of modules from slow storage when it starts.",
    needs: &[Need::Calls],
    loss: Loss::Start,
    explained_by: &["data-set-pickled", "workers-restarted"],
    title: "Each worker imports hundreds of modules",
    explanation: "A worker that is spawned imports the program and all of its packages again. On a network file system \
                  each import is many slow calls, of all workers at once.",
    change: "Install the environment on local storage, use forkserver with preloaded modules, and keep imports out of \
             the main module.",
    check: "Workers make their first fetch within a second.",
    judge: |job, _| by_rank(job, imports),
};

/// Seconds: workers that import little more than the framework are near this.
const LONG_START: f64 = 0.5;

fn imports(rank: &JudgedRank<'_>) -> PassLook {
    let rows = rank.passes.iter().flat_map(|pass| &pass.row.workers).filter(|row| row.started);
    let storms = rows.filter(|row| row.code_opens > 200);
    let Some(row) = storms.max_by_key(|row| row.start_ns.unwrap_or_default()) else {
        return PassLook::not(0.0, "No worker opened more than 200 files of code.");
    };
    let start = row.start_ns.unwrap_or_default().seconds();
    if start <= LONG_START {
        let opens = grouped(row.code_opens);
        return PassLook::not(
            start,
            format!("{opens} files of code were opened, and the start took {}.", seconds(start)),
        );
    }
    let in_calls =
        rank.workers.iter().find(|process| process.pid == row.pid).map_or(0.0, |row| code_calls(row));
    let slow = in_calls > 0.5 * start;
    let epochs = rank.passes.len().max(1) as f64;
    let cost: f64 = rank.passes.iter().map(|pass| longest_start(&pass.row.workers).min(pass.budget())).sum();
    let evidence = format!(
        "A worker opened {} files of code and made its first fetch after {}; {} of that in calls on files.",
        grouped(row.code_opens),
        seconds(start),
        percent(ratio(in_calls, start).min(1.0))
    );
    let case = FaultCase::of_rank(rank, start, evidence)
        .certainty(Certainty::Medium)
        .figure("code_opens", row.code_opens as f64)
        .figure("start_seconds", start)
        .cost(cost / epochs);
    // A start that is paid once, by a processor and not by storage, is the price of spawning.
    let once = rank.workers_stay() || rank.passes.len() < 2;
    if once && !slow { case.severity(Severity::Note) } else { case }.into()
}

/// Time in calls on files that are no data.
fn code_calls(process: &ProcessRow) -> f64 {
    (process.all.metadata_ns() - process.data.metadata_ns()).seconds()
}

fn longest_start(workers: &[WorkerRow]) -> f64 {
    let started = workers.iter().filter(|worker| worker.started);
    started.filter_map(|worker| worker.start_ns).max().unwrap_or_default().seconds()
}
