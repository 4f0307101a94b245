//! Faults that other figures would hide, and what resembles a fault: draws, endless samplers, evaluations, shuffling
//! in memory.

use model::observed::{OutsideRow, Severity};

use super::*;

#[test]
fn each_worker_keeps_what_it_read() {
    let mut observed = healthy();
    for (row, share) in observed.epochs.iter_mut().zip([1.0, 0.75, 0.56]) {
        row.io.reads.bytes = (row.io.reads.bytes as f64 * share) as u64;
        row.files.same_reader_share = (row.epoch > 1).then_some(0.0);
    }
    only("contents-kept-in-memory", &observed);
    // A cache that holds a part, or workers that are new.
    let mut partly = observed.clone();
    later(&mut partly, |row| row.files.same_reader_share = Some(0.2));
    not("contents-kept-in-memory", &partly);
    observed.loaders[0].persistent = false;
    not("contents-kept-in-memory", &observed);
}

#[test]
fn an_evaluation_has_one_order() {
    let mut observed = healthy();
    later(&mut observed, |row| row.files.order_correlation = Some(1.0));
    each(&mut observed, |row| row.gradients = Some(true));
    only("order-never-changes", &observed);
    each(&mut observed, |row| row.gradients = Some(false));
    no_fault(&observed);
}

#[test]
fn samples_may_be_shuffled_in_memory() {
    let mut observed = healthy();
    observed.loaders[0].iterable = true;
    later(&mut observed, |row| row.files.order_correlation = Some(1.0));
    later(&mut observed, |row| (row.batches_compared, row.batches_equal) = (100, 100));
    only("order-never-changes", &observed);
    later(&mut observed, |row| row.batches_equal = 1);
    no_fault(&observed);
    let found = judge(&observed);
    assert!(
        found.findings.iter().any(|one| one.name == "order-never-changes" && one.severity == Severity::Note)
    );
    // A sampler decides the order: batches that differ are augmented.
    observed.loaders[0].iterable = false;
    only("order-never-changes", &observed);
    observed.loaders[0].shuffles = true;
    no_fault(&observed);
}

#[test]
fn a_division_by_name_is_no_stale_list() {
    let mut observed = healthy();
    observed.loaders[0].iterable = true;
    later(&mut observed, |row| {
        row.files.order_correlation = Some(1.0);
        row.files.same_reader_share = Some(1.0);
        row.files.order_by_name = Some(1.0);
        row.data_set_changed = Some(true);
    });
    only("stale-shards", &observed);
    later(&mut observed, |row| row.data_set_changed = Some(false));
    only("order-never-changes", &observed);
    later(&mut observed, |row| row.files.order_by_name = Some(0.1));
    only("stale-shards", &observed);
}

#[test]
fn independent_draws_overlap() {
    let mut observed = healthy();
    let all = SAMPLES * FILE;
    each(&mut observed, |row| {
        row.files.process_distinct_bytes = all * 16 / 10;
        row.files.distinct_bytes = all * 9 / 10;
        row.files.asked_bytes = all * 2;
        row.files.process_distinct_most = all * 4 / 10;
    });
    no_fault(&observed);
    // Workers with equal random numbers read the same.
    each(&mut observed, |row| row.files.distinct_bytes = all * 4 / 10);
    only("duplicate-reads", &observed);
}

#[test]
fn a_sampler_that_never_ends_reads_again() {
    let mut observed = starving();
    observed.epochs.truncate(1);
    each(&mut observed, |row| {
        row.files.asked_bytes *= 3;
        (row.files.passes, row.files.opens_spread) = (1, Some(0.0));
    });
    observed.files.samples_per_file = Some(3.0);
    only("same-bytes-read-again", &observed);
    each(&mut observed, |row| row.files.passes = 3);
    no_fault(&observed);
    each(&mut observed, |row| (row.files.passes, row.files.opens_spread) = (1, Some(0.9)));
    no_fault(&observed);
}

#[test]
fn ranks_have_a_validation_loader_as_well() {
    let mut observed = healthy();
    let all = SAMPLES * FILE;
    observed.files.bytes = all * 3 / 2;
    for (rank, loader, bytes) in [(1, 0, all), (0, 1, all / 2), (1, 1, all / 2)] {
        let mut row = epoch(1);
        (row.rank, row.loader) = (rank, loader);
        if loader == 1 {
            row.end_ns = row.begin_ns + seconds(1.0);
        }
        row.files.distinct_bytes = bytes;
        observed.epochs.push(row);
    }
    only("duplicate-reads", &observed);
    each(&mut observed, |row| {
        row.files.distinct_bytes /= 2;
        (row.files.process_distinct_bytes, row.files.asked_bytes) =
            (row.files.distinct_bytes, row.files.distinct_bytes);
    });
    no_fault(&observed);
}

#[test]
fn checkpoints_between_epochs_stop_the_training() {
    let mut observed = healthy();
    let outside = OutsideRow {
        rank: Some(0),
        checkpoint_ns: seconds(6.0),
        checkpoint_bytes: 500 * MIB,
        ..OutsideRow::default()
    };
    observed.outside.push(outside);
    only("checkpoint-blocks", &observed);
    observed.outside[0].checkpoint_ns = seconds(2.0);
    not("checkpoint-blocks", &observed);
}

#[test]
fn other_programs_may_take_the_cpus() {
    let mut observed = starving();
    let worker = |observed: &mut Observed, cpu: f64, queue: f64| {
        each(observed, |row| {
            for worker in &mut row.workers {
                (worker.file_ns, worker.cpu_ns) = (seconds(0.4), Some(seconds(cpu)));
                worker.run_queue_ns = Some(seconds(queue));
            }
        });
    };
    worker(&mut observed, 7.0, 0.1);
    only("decode-bound", &observed);
    worker(&mut observed, 3.0, 4.5);
    no_fault(&observed);
    // With few cores, it is the job that takes them.
    observed.host.cores = Some(1);
    only("decode-bound", &observed);
}
