//! Faults: planted in the figures of a job, and named first.

use model::observed::{Certainty, FileExample, MemoryChange, OutsideRow, RuleAnswer, Severity, SiteRow};

use super::*;

#[test]
fn shared_file_offset() {
    let mut observed = healthy();
    observed.sites.push(SiteRow { place: "train.py:31 in __getitem__".into(), opens: 1 });
    each(&mut observed, |row| {
        row.files.shared_offset_reads = 500;
        row.files.shared_offset_processes = 4;
        row.files.shared_offset =
            Some(FileExample { path: "/data/all.bin".into(), count: 500, ..Default::default() });
    });
    only("shared-file-offset", &observed);
    let findings = judge(&observed);
    let places = &findings.findings[0].places;
    assert_eq!(places, &["/data/all.bin (500 times)", "train.py:31 in __getitem__"]);
    each(&mut observed, |row| row.files.shared_offset_processes = 1);
    no_fault(&observed);
}

#[test]
fn contents_kept_in_memory() {
    let mut observed = healthy();
    later(&mut observed, |row| {
        row.io = IoCounts::default();
        row.files = EpochFiles::default();
        row.read_sizes = Default::default();
        row.workers.iter_mut().for_each(|worker| worker.io = IoCounts::default());
    });
    only("contents-kept-in-memory", &observed);
    // Each worker holds what it read itself, and reads what the others had.
    later(&mut observed, |row| row.io = io(SAMPLES / 2, 0.2));
    no_fault(&observed);
    // Read by the training process before the first epoch.
    each(&mut observed, |row| row.io = IoCounts::default());
    no_fault(&observed);
}

#[test]
fn an_epoch_that_is_left_early_reads_less() {
    let mut observed = healthy();
    later(&mut observed, |row| {
        row.io = io(SAMPLES / 20, 0.1);
        row.samples = Some(SAMPLES / 20);
        row.complete = false;
    });
    no_fault(&observed);
}

#[test]
fn stale_shards() {
    let mut observed = healthy();
    observed.loaders[0].iterable = true;
    later(&mut observed, |row| {
        row.files.same_reader_share = Some(1.0);
        row.files.order_correlation = Some(0.99);
    });
    only("stale-shards", &observed);
    let findings = judge(&observed);
    assert_eq!(outcome(&findings, "order-never-changes"), RuleAnswer::Explained);
    assert_eq!(findings.findings[0].consequences, ["order-never-changes"]);
    // Divided once, and shuffled by each worker.
    later(&mut observed, |row| row.files.order_correlation = Some(0.02));
    no_fault(&observed);
    // Two shards and two readers can meet again by chance.
    later(&mut observed, |row| {
        row.files.order_correlation = None;
        row.files.order_places = 4;
        row.files.same_reader_chance = Some(0.5);
    });
    no_fault(&observed);
}

#[test]
fn order_never_changes() {
    let mut observed = healthy();
    later(&mut observed, |row| {
        row.files.order_correlation = Some(0.998);
        row.files.same_reader_share = Some(1.0);
    });
    only("order-never-changes", &observed);
    observed.epochs[2].files.order_correlation = Some(0.1);
    no_fault(&observed);
}

#[test]
fn an_evaluation_may_keep_its_order() {
    let mut observed = healthy();
    let mut evaluation = healthy().epochs;
    for row in &mut evaluation {
        row.loader = 1;
        row.end_ns = row.begin_ns + seconds(1.0);
        row.files.order_correlation = Some(1.0);
    }
    observed.epochs.extend(evaluation.clone());
    no_fault(&observed);
    // Also where it takes longer than the training.
    each(&mut observed, |row| row.end_ns = row.begin_ns + seconds(if row.loader == 1 { 10.0 } else { 5.0 }));
    no_fault(&observed);
}

#[test]
fn duplicate_reads() {
    let mut observed = healthy();
    observed.loaders[0].iterable = true;
    each(&mut observed, |row| row.files.distinct_bytes = SAMPLES * FILE / 4);
    only("duplicate-reads", &observed);
    // An index that each worker reads.
    each(&mut observed, |row| row.files.distinct_bytes = SAMPLES * FILE * 9 / 10);
    no_fault(&observed);
}

#[test]
fn duplicate_reads_of_ranks() {
    let ranks = |share: u64| {
        let mut observed = healthy();
        let mut other = healthy();
        other.epochs.iter_mut().for_each(|row| row.rank = 1);
        other.loaders[0].rank = 1;
        observed.epochs.extend(other.epochs);
        observed.loaders.extend(other.loaders);
        each(&mut observed, |row| row.files.distinct_bytes = SAMPLES * FILE / share);
        each(&mut observed, |row| row.files.process_distinct_bytes = SAMPLES * FILE / share);
        each(&mut observed, |row| row.files.asked_bytes = SAMPLES * FILE / share);
        observed
    };
    only("duplicate-reads", &ranks(1));
    no_fault(&ranks(2));
}

#[test]
fn fork_with_threads() {
    let mut observed = healthy();
    observed.processes[2].idle_ns = seconds(120.0);
    no_fault(&observed);
    observed.processes[2].data = IoCounts::default();
    observed.epochs[2].complete = false;
    only("fork-with-threads", &observed);
    observed.processes[2].parent_threads = Some(1);
    no_fault(&observed);
}

#[test]
fn same_bytes_read_again() {
    let mut observed = starving();
    observed.files.samples_per_file = Some(400.0);
    each(&mut observed, |row| row.files.process_distinct_bytes = SAMPLES * FILE / 8);
    each(&mut observed, |row| row.files.distinct_bytes = SAMPLES * FILE / 30);
    only("same-bytes-read-again", &observed);
    assert_eq!(outcome(&judge(&observed), "duplicate-reads"), RuleAnswer::NotFound);
    // The waits are the most that can be saved.
    let cost = judge(&observed).findings[0].cost_seconds_per_epoch.unwrap();
    assert!(cost > 4.0 && cost <= 5.02, "{cost}");
    // Few samples of many are drawn again and again.
    observed.files.samples_per_file = Some(1.0);
    no_fault(&observed);
}

#[test]
fn a_cost_is_a_note_where_the_job_does_not_wait() {
    let mut observed = healthy();
    observed.files.samples_per_file = Some(400.0);
    each(&mut observed, |row| row.files.process_distinct_bytes = SAMPLES * FILE / 8);
    no_fault(&observed);
    let findings = judge(&observed);
    assert_eq!(outcome(&findings, "same-bytes-read-again"), RuleAnswer::Found);
    assert_eq!(outcome(&findings, "not-input-bound"), RuleAnswer::Found);
}

#[test]
fn files_opened_again() {
    let mut observed = starving();
    observed.files.estimated = 20;
    observed.files.samples_per_file = Some(200.0);
    each(&mut observed, |row| {
        row.files.pairs = 80;
        row.files.opens_most = 60;
        row.io.opens.ns = seconds(6.0);
    });
    only("files-opened-again", &observed);
    each(&mut observed, |row| row.files.opens = 80);
    not("files-opened-again", &observed);
}

#[test]
fn one_file_opened_for_each_sample() {
    let mut observed = starving();
    each(&mut observed, |row| {
        row.files.opens = 2 * SAMPLES;
        row.files.opens_most = SAMPLES / WORKERS;
        row.io.opens = calls(2 * SAMPLES, 0, 6.0);
    });
    only("files-opened-again", &observed);
}

#[test]
fn tiny_reads() {
    let mut observed = starving();
    each(&mut observed, |row| {
        row.io.reads.count = SAMPLES * 64;
        row.io.sequential.count = SAMPLES * 63;
        row.read_sizes = Default::default();
        row.read_sizes.record_n(2048, SAMPLES * 64);
    });
    only("tiny-reads", &observed);
    // Headers in small reads, the rest in one.
    each(&mut observed, |row| row.read_sizes.record_n(2 * FILE, SAMPLES));
    not("tiny-reads", &observed);
}

#[test]
fn metadata_bound() {
    let mut observed = starving();
    each(&mut observed, |row| {
        row.io.stats = calls(SAMPLES * 6, 0, 8.0);
        row.io.reads = calls(SAMPLES * 2, SAMPLES * 8192, 1.0);
    });
    only("metadata-bound", &observed);
    each(&mut observed, |row| row.io.reads.bytes = SAMPLES * FILE);
    not("metadata-bound", &observed);
}

#[test]
fn repeated_listing() {
    let mut observed = starving();
    let outside = OutsideRow { rank: Some(0), listings: 10, folders: 10, ..OutsideRow::default() };
    observed.outside.push(outside);
    each(&mut observed, |row| {
        row.files.folders = 10;
        row.files.listings = 400;
        row.files.listing_processes = 4;
        row.io.listings = calls(400, 0, 6.0);
    });
    only("repeated-listing", &observed);
    each(&mut observed, |row| (row.files.folders, row.files.listings) = (0, 0));
    not("repeated-listing", &observed);
}

#[test]
fn workers_restarted() {
    let mut observed = healthy();
    observed.loaders[0].persistent = false;
    observed.loaders[0].worker_starts = 3 * WORKERS;
    each(&mut observed, |row| {
        row.start_ns = seconds(1.0);
        row.first_wait_ns = seconds(1.5);
        row.workers.iter_mut().for_each(|worker| worker.started = true);
    });
    only("workers-restarted", &observed);
    each(&mut observed, |row| (row.start_ns, row.first_wait_ns) = (seconds(0.05), seconds(0.05)));
    no_fault(&observed);
}

#[test]
fn import_storm() {
    let mut observed = healthy();
    each(&mut observed, |row| {
        row.blocked_all_ns = seconds(5.0);
        row.workers.iter_mut().for_each(|worker| {
            worker.code_opens = 1800;
            worker.start_ns = Some(seconds(4.0));
        });
    });
    // A processor imports, once.
    no_fault(&observed);
    observed.processes.iter_mut().for_each(|process| process.all.opens.ns += seconds(3.5));
    only("import-storm", &observed);
}

#[test]
fn data_set_pickled() {
    let mut observed = healthy();
    observed.processes[0].pipe_bytes_early = WORKERS * 200 * MIB;
    observed.epochs[0].start_ns = seconds(3.0);
    only("data-set-pickled", &observed);
    observed.processes[0].pipe_bytes_early = WORKERS * MIB;
    no_fault(&observed);
}

#[test]
fn copy_on_write_before_decoding() {
    let mut observed = starving();
    each(&mut observed, decoding);
    for process in &mut observed.processes[1..] {
        process.memory = Some(MemoryChange {
            private_dirty_first: 10 * MIB,
            private_dirty_last: 300 * MIB,
            shared_dirty_first: 400 * MIB,
            shared_dirty_last: 120 * MIB,
        });
    }
    only("copy-on-write", &observed);
    assert_eq!(judge(&observed).findings[0].consequences, ["decode-bound"]);
    // A cache of the worker grows, too.
    for process in &mut observed.processes[1..] {
        process.memory.as_mut().unwrap().shared_dirty_last = 390 * MIB;
    }
    only("decode-bound", &observed);
}

fn decoding(row: &mut EpochRow) {
    row.workers.iter_mut().for_each(|worker| {
        worker.file_ns = seconds(0.4);
        worker.cpu_ns = Some(seconds(7.5));
    });
}

#[test]
fn decode_bound() {
    let mut observed = starving();
    each(&mut observed, decoding);
    only("decode-bound", &observed);
    each(&mut observed, |row| row.workers.iter_mut().for_each(|worker| worker.cpu_ns = Some(seconds(1.0))));
    not("decode-bound", &observed);
}

#[test]
fn main_process_reads() {
    let mut observed = starving();
    each(&mut observed, |row| {
        row.rank_io = row.io;
        row.rank_fetch_ns = seconds(4.0);
        row.workers.iter_mut().for_each(|worker| worker.io = IoCounts::default());
    });
    only("main-process-reads", &observed);
    each(&mut observed, |row| row.rank_io.reads.bytes /= 10);
    not("main-process-reads", &observed);
}

#[test]
fn no_overlap() {
    let mut observed = healthy();
    observed.loaders[0].workers = 0;
    observed.processes.truncate(1);
    each(&mut observed, |row| {
        row.workers.clear();
        row.rank_io = row.io;
        row.rank_io.reads.ns = seconds(3.0);
        row.rank_fetch_ns = seconds(4.0);
        row.blocked_all_ns = seconds(4.0);
        row.blocked_ns = seconds(3.9);
        row.compute_ns = seconds(5.9);
    });
    only("no-overlap", &observed);
    let cost = judge(&observed).findings[0].cost_seconds_per_epoch.unwrap();
    assert!((cost - 4.0).abs() < 0.01, "{cost}");
    each(&mut observed, |row| {
        row.rank_io.reads.ns = seconds(0.1);
        (row.rank_fetch_ns, row.blocked_all_ns, row.blocked_ns) = (seconds(0.1), seconds(0.1), seconds(0.1));
    });
    no_fault(&observed);
}

#[test]
fn uneven_workers() {
    let mut observed = starving();
    each(&mut observed, |row| {
        row.workers[0].samples = SAMPLES * 7 / 10;
        row.workers[0].fetches = BATCHES * 7 / 10;
        row.workers[0].fetch_ns = seconds(9.5);
        for worker in &mut row.workers[1..] {
            worker.samples = SAMPLES / 10;
            worker.fetches = BATCHES / 10;
            worker.fetch_ns = seconds(2.0);
            worker.file_ns = seconds(0.8);
            worker.cpu_ns = Some(seconds(0.5));
        }
    });
    only("uneven-workers", &observed);
    // A last batch more is no uneven share.
    each(&mut observed, |row| {
        for worker in &mut row.workers {
            (worker.samples, worker.fetches) = (if worker.worker == 0 { 32 } else { 16 }, 1);
        }
    });
    assert_eq!(outcome(&judge(&observed), "uneven-workers"), RuleAnswer::NotMeasurable);
}

#[test]
fn descriptors_leak() {
    let mut observed = healthy();
    observed.processes[1].data.closes = Calls::default();
    observed.processes[1].open_files_end = 700;
    observed.processes[1].data.opens.count = 700;
    only("descriptors-leak", &observed);
    // Handles that are kept and used for many samples.
    each(&mut observed, |row| row.io.opens.count = 200);
    no_fault(&observed);
}

#[test]
fn convoy_only_without_a_cause() {
    let mut observed = starving();
    each(&mut observed, |row| row.convoy_groups = 55);
    each(&mut observed, |row| row.wait_times.record_n(100_000_000, BATCHES / 4));
    only("convoy", &observed);
    each(&mut observed, decoding);
    only("decode-bound", &observed);
    assert_eq!(judge(&observed).findings[0].consequences, ["convoy"]);
    each(&mut observed, |row| row.convoy_groups = 10);
    not("convoy", &observed);
}

#[test]
fn serialised_reads() {
    let mut observed = starving();
    each(&mut observed, |row| row.in_flight_ns = [2.0, 7.9, 0.1].map(seconds).to_vec());
    only("serialised-reads", &observed);
    each(&mut observed, |row| row.in_flight_ns = [2.0, 5.0, 3.0].map(seconds).to_vec());
    not("serialised-reads", &observed);
}

/// Workers that spend their time in reads from storage.
fn reading() -> Observed {
    let mut observed = starving();
    each(&mut observed, |row| {
        row.issued_bytes = Some(SAMPLES * FILE);
        row.in_flight_ns = [0.5, 1.0, 2.0, 3.0, 3.5].map(seconds).to_vec();
        row.workers.iter_mut().for_each(|worker| worker.file_ns = seconds(7.0));
    });
    observed
}

#[test]
fn storage_bound() {
    let mut observed = reading();
    only("storage-bound", &observed);
    assert_eq!(judge(&observed).findings[0].certainty, Certainty::Low);
    observed.storage[0].most_bytes_per_second = Some(SAMPLES * FILE / 9);
    only("storage-bound", &observed);
    assert_eq!(judge(&observed).findings[0].certainty, Certainty::Medium);
    each(&mut observed, |row| row.issued_bytes = Some(0));
    no_fault(&observed);
}

#[test]
fn too_few_in_flight() {
    let mut observed = reading();
    observed.storage[0].most_bytes_per_second = Some(SAMPLES * FILE);
    each(&mut observed, |row| row.in_flight_ns = [2.0, 5.0, 3.0].map(seconds).to_vec());
    only("too-few-in-flight", &observed);
    observed.storage[0].most_bytes_per_second = Some(SAMPLES * FILE / 9);
    only("storage-bound", &observed);
}

/// Small reads at random places of large files.
fn scattered(observed: &mut Observed) {
    observed.files.estimated = 2;
    observed.files.samples_per_file = Some(2000.0);
    each(observed, |row| {
        row.io.opens.count = 8;
        row.io.sequential = Calls::default();
        (row.files.pairs, row.files.opens) = (8, 8);
        row.read_sizes = Default::default();
        row.read_sizes.record_n(64 << 10, SAMPLES * 2);
    });
}

#[test]
fn random_where_sequential() {
    let mut observed = reading();
    scattered(&mut observed);
    only("random-where-sequential", &observed);
    each(&mut observed, |row| row.io.sequential.count = SAMPLES * 2);
    not("random-where-sequential", &observed);
}

#[test]
fn read_ahead_amplification() {
    let mut observed = reading();
    scattered(&mut observed);
    each(&mut observed, |row| row.issued_bytes = Some(SAMPLES * FILE * 4));
    only("read-ahead-amplification", &observed);
    // Small files take whole pages.
    let mut observed = reading();
    each(&mut observed, |row| row.issued_bytes = Some(SAMPLES * FILE * 2));
    not("read-ahead-amplification", &observed);
}

#[test]
fn checkpoint_blocks() {
    let mut observed = healthy();
    each(&mut observed, |row| (row.checkpoint_ns, row.checkpoint_bytes) = (seconds(1.5), 500 * MIB));
    only("checkpoint-blocks", &observed);
    each(&mut observed, |row| row.checkpoint_bytes = 4096);
    no_fault(&observed);
}

#[test]
fn cache_too_small() {
    let mut observed = reading();
    observed.host.memory_limit_bytes = Some(SAMPLES * FILE);
    observed.host.refault_bytes = Some(SAMPLES * FILE);
    only("cache-too-small", &observed);
    observed.host.memory_limit_bytes = Some(SAMPLES * FILE / 4);
    not("cache-too-small", &observed);
}

#[test]
fn shared_memory_full() {
    let mut observed = healthy();
    observed.host.shm_used_bytes = Some(7 << 30);
    only("shared-memory-full", &observed);
    observed.host.shm_used_bytes = Some(6 << 30);
    no_fault(&observed);
    observed.processes[1].signal = Some(7);
    only("shared-memory-full", &observed);
}

#[test]
fn straggler_rank() {
    let mut observed = healthy();
    for rank in 1..4 {
        let mut other = healthy();
        other.epochs.iter_mut().for_each(|row| row.rank = rank);
        other.loaders[0].rank = rank;
        observed.epochs.extend(other.epochs);
        observed.loaders.extend(other.loaders);
    }
    each(&mut observed, |row| {
        row.files.distinct_bytes = SAMPLES * FILE / 4;
        (row.files.process_distinct_bytes, row.files.asked_bytes) = (SAMPLES * FILE / 4, SAMPLES * FILE / 4);
    });
    no_fault(&observed);
    each(&mut observed, |row| {
        if row.rank == 2 {
            (row.blocked_ns, row.blocked_all_ns) = (seconds(4.8), seconds(5.0));
        }
    });
    only("straggler-rank", &observed);
    assert_eq!(judge(&observed).findings[0].rank, Some(2));
}

#[test]
fn one_file_many_workers() {
    let mut observed = reading();
    observed.files.estimated = 1;
    observed.files.samples_per_file = Some(4000.0);
    each(&mut observed, |row| (row.files.pairs, row.files.opens) = (4, 4));
    only("one-file-many-workers", &observed);
    assert_eq!(judge(&observed).findings[0].consequences, ["storage-bound"]);
    // It costs nothing where files are in memory.
    each(&mut observed, |row| row.issued_bytes = Some(0));
    no_fault(&observed);
    let findings = judge(&observed);
    assert_eq!(outcome(&findings, "one-file-many-workers"), RuleAnswer::Found);
}

#[test]
fn notes_of_a_healthy_job() {
    let mut observed = healthy();
    observed.storage[0].file_system = "nfs4".into();
    let findings = judge(&observed);
    let names: Vec<&str> = findings.findings.iter().map(|finding| finding.name.as_str()).collect();
    for name in ["not-input-bound", "served-from-page-cache", "wrong-storage"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(findings.findings.iter().all(|finding| finding.severity == Severity::Note));
}

#[test]
fn correctness_comes_before_cost() {
    let mut observed = starving();
    each(&mut observed, decoding);
    later(&mut observed, |row| row.files.order_correlation = Some(1.0));
    assert_eq!(faults(&observed), ["order-never-changes", "decode-bound"]);
}

#[test]
fn what_was_not_observed_is_a_limit_of_each_finding() {
    let mut observed = starving();
    each(&mut observed, decoding);
    observed.coverage.events_dropped = 12;
    observed.coverage.copied_bytes = Some(1000 << 20);
    observed.coverage.recorded_bytes = 900 << 20;
    let limits = judge(&observed).findings[0].limits.join(" ");
    assert!(limits.contains("12 events") && limits.contains("90.0 %"), "{limits}");
}
