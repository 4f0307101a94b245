//! Healthy jobs of many kinds have no fault, and no numbers make a rule panic.

use proptest::prelude::*;

use super::*;

#[test]
fn a_healthy_job_has_no_fault() {
    no_fault(&healthy());
    no_fault(&starving());
}

#[test]
fn one_epoch_is_enough_for_no_fault() {
    let mut observed = healthy();
    observed.epochs.truncate(1);
    no_fault(&observed);
    let findings = judge(&observed);
    for name in ["order-never-changes", "stale-shards", "contents-kept-in-memory"] {
        assert_eq!(outcome(&findings, name), RuleAnswer::NotMeasurable, "{name}");
    }
}

#[test]
fn samples_may_be_drawn_with_replacement() {
    let mut observed = starving();
    observed.loaders[0].workers = 1;
    each(&mut observed, |row| {
        row.workers.truncate(1);
        let distinct = SAMPLES * 632 / 1000;
        (row.files.sampled, row.files.pairs, row.files.opens_most) = (distinct, distinct, 7);
        (row.files.distinct_bytes, row.files.process_distinct_bytes) = (distinct * FILE, distinct * FILE);
    });
    no_fault(&observed);
}

#[test]
fn a_single_file_with_an_index_is_no_fault() {
    let mut observed = healthy();
    observed.files.estimated = 1;
    observed.files.samples_per_file = Some(SAMPLES as f64);
    each(&mut observed, |row| {
        row.io.opens.count = WORKERS;
        (row.files.sampled, row.files.pairs, row.files.opens) = (1, WORKERS, WORKERS);
        // Each worker reads the index.
        row.files.process_distinct_bytes += (WORKERS - 1) * MIB;
        row.files.asked_bytes = row.files.process_distinct_bytes;
    });
    no_fault(&observed);
}

#[test]
fn a_very_short_run_is_no_fault() {
    let mut observed = healthy();
    each(&mut observed, |row| {
        (row.batches, row.samples) = (3, Some(48));
        (row.steady_batches, row.steady_samples, row.steady_ns) = (0, 0, Nanos::ZERO);
        row.blocked_ns = Nanos::ZERO;
        row.workers.truncate(3);
        row.workers.iter_mut().for_each(|worker| (worker.fetches, worker.samples) = (1, 16));
    });
    no_fault(&observed);
}

proptest! {
    /// Sizes, times and shares of a healthy job may be others.
    #[test]
    fn healthy_jobs_have_no_fault(
        factor in 0.05f64..20.0,
        correlation in -0.6f64..0.6,
        share in 0.3f64..1.0,
        iterable: bool,
        issued in 0.0f64..1.2,
        epochs in 1usize..4,
        lost in 0.0f64..0.015,
    ) {
        let mut observed = healthy();
        observed.loaders[0].iterable = iterable;
        observed.epochs.truncate(epochs);
        each(&mut observed, |row| {
            let times = |time: Nanos| seconds(time.seconds() * factor);
            let begin = times(row.begin_ns);
            (row.end_ns, row.begin_ns) = (begin + times(row.wall_ns()), begin);
            (row.compute_ns, row.steady_ns) = (times(row.compute_ns), times(row.steady_ns));
            row.blocked_ns = seconds(row.steady_ns.seconds() * lost);
            row.blocked_all_ns = row.blocked_ns;
            row.files.share = share;
            row.files.order_correlation = row.files.order_correlation.map(|_| correlation);
            row.issued_bytes = Some((row.io.reads.bytes as f64 * issued) as u64);
        });
        prop_assert_eq!(faults(&observed), Vec::<String>::new());
    }

    /// Whatever the numbers are, all rules answer, costs are finite and no longer than an epoch.
    #[test]
    fn any_numbers_are_judged(
        numbers in prop::collection::vec(0u64..1 << 50, 64),
        shares in prop::collection::vec(prop_oneof![Just(f64::NAN), Just(f64::INFINITY), -2.0f64..2.0], 8),
        workers in 0u64..6,
        marks: bool,
        persistent: bool,
    ) {
        let observed = arbitrary(&numbers, &shares, workers, (marks, persistent));
        let findings = judge(&observed);
        prop_assert_eq!(findings.rules.len(), RULES.len());
        let longest = observed.epochs.iter().map(|row| row.wall_ns().seconds()).fold(0.0, f64::max);
        for finding in &findings.findings {
            let cost = finding.cost_seconds_per_epoch.unwrap_or(0.0);
            prop_assert!(cost.is_finite() && cost >= 0.0 && cost <= longest + 1e-6, "{}: {}", finding.name, cost);
            prop_assert!(finding.figures.values().all(|figure| figure.is_finite()), "{:?}", finding.figures);
        }
    }
}

/// A job with these numbers in all of its fields.
fn arbitrary(numbers: &[u64], shares: &[f64], workers: u64, (marks, persistent): (bool, bool)) -> Observed {
    let mut observed = healthy();
    let mut next = numbers.iter().copied().cycle();
    let mut number = || next.next().unwrap_or(0);
    let mut share = shares.iter().copied().cycle();
    (observed.loaders[0].workers, observed.loaders[0].persistent) = (workers, persistent);
    if !marks {
        observed.loaders.clear();
    }
    for row in &mut observed.epochs {
        row.workers.truncate(workers as usize);
        for calls in calls_of(&mut row.io).into_iter().chain(calls_of(&mut row.rank_io)) {
            (calls.count, calls.bytes, calls.ns) = (number(), number(), Nanos(number()));
        }
        for time in [&mut row.begin_ns, &mut row.end_ns, &mut row.start_ns, &mut row.first_wait_ns] {
            *time = Nanos(number());
        }
        for time in [&mut row.blocked_ns, &mut row.blocked_all_ns, &mut row.compute_ns, &mut row.steady_ns] {
            *time = Nanos(number());
        }
        (row.batches, row.steady_batches, row.samples) = (number(), number(), Some(number()));
        (row.groups, row.convoy_groups, row.issued_bytes) = (number(), number(), Some(number()));
        (row.checkpoint_ns, row.checkpoint_bytes) = (Nanos(number()), number());
        let files = &mut row.files;
        (files.asked_bytes, files.process_distinct_bytes, files.distinct_bytes) =
            (number(), number(), number());
        (files.pairs, files.opens, files.opens_most, files.order_places) =
            (number(), number(), number(), number());
        (files.folders, files.listings, files.mapped_bytes) = (number(), number(), Some(number()));
        (files.faults, files.resident_bytes, files.sampled) = (Some(number()), Some(number()), number());
        files.share = share.next().unwrap_or(1.0);
        files.order_correlation = share.next();
        files.same_reader_share = share.next();
        files.same_reader_chance = share.next();
        row.in_flight_ns = (0..4).map(|_| Nanos(number())).collect();
        for worker in &mut row.workers {
            (worker.fetches, worker.samples) = (number(), number());
            (worker.fetch_ns, worker.file_ns, worker.cpu_ns) =
                (Nanos(number()), Nanos(number()), Some(Nanos(number())));
            (worker.code_opens, worker.start_ns) = (number(), Some(Nanos(number())));
        }
    }
    (observed.files.bytes, observed.files.estimated) = (number(), number());
    observed.wall_ns = Nanos(number());
    observed
}

fn calls_of(io: &mut IoCounts) -> [&mut Calls; 8] {
    let IoCounts { opens, reads, closes, seeks, stats, listings, sequential, writes, .. } = io;
    [opens, reads, closes, seeks, stats, listings, sequential, writes]
}
