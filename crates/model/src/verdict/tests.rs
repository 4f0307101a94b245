//! Each rule is applied to a ledger that breaks it.

use super::rules::RuleScope;
use super::*;
use crate::digest::Digest;
use crate::ledger::{
    Calibration, CheckedFetches, ErrorExample, Errors, MetricWindow, NodeRow, ObservedCache, ObservedHost,
    PARTS, RankRow, ReportedBytes, RunFault, SampleDigest, part_of,
};
use crate::metrics::Figures;
use crate::order::Unit;
use crate::plan::bare::{Bare, buffered};
use crate::plan::{Placement, Request};
use crate::spec::{self, Time, Verify, WorkloadSource};
use crate::units::Nanos;

pub(super) fn plan() -> TrainingPlan {
    let text = "
framework: pytorch
dataset: {format: jpeg, num_files_train: 103, record_length_bytes: 4096}
reader: {data_loader: pytorch, batch_size: 5, sample_shuffle: seed}
train: {epochs: 2, computation_time: 0.01}
";
    let request = Request {
        workload: "test",
        ranks: 2,
        placement: Placement::even(2, 1, 1),
        host_memory_bytes: 1 << 30,
        cores: 2,
        store: buffered(),
        memory: None,
        entropy: 1,
        measure: Some(&Bare(Unit::Sample)),
        listed: None,
    };
    TrainingPlan::resolve(&spec::read(WorkloadSource { name: "test", text }, &[]).unwrap().spec, &request)
        .unwrap()
}

/// The plan of a run that only trains.
fn whole(training: &TrainingPlan) -> Plan {
    Plan {
        workload: "test".to_owned(),
        model: "test".to_owned(),
        ranks: training.ranks(),
        hosts: 1,
        compat: Vec::new(),
        training: Some(training.clone()),
        checkpoint: None,
    }
}

/// The ledger of a flawless run, except that each position of an epoch delivers the positions that `deliver` returns.
pub(super) fn ledger(plan: &TrainingPlan, deliver: impl Fn(u64, u64) -> Vec<u64>) -> Ledger {
    let mut ledger = Ledger::default();
    ledger.calibration = Some(calibration(99.9));
    ledger.conditions.request("store", "posix");
    ledger.conditions.observe("store", "posix");
    ledger.conditions.hosts.insert("here".to_owned(), host());
    let shards = plan.train.shards;
    for epoch in 1..=plan.epochs {
        let order = plan.train.epoch_order(epoch);
        let mut parts = vec![SampleDigest::default(); PARTS as usize];
        for rank in 0..plan.ranks() {
            let steps = shards.steps;
            let mut row =
                RankRow { steps, steps_planned: steps, samples_planned: steps * 5, ..RankRow::default() };
            row.compute_ns = Nanos(10_000_000 * shards.steps);
            row.window =
                MetricWindow { steps: 9, compute_ns: Nanos(90_000_000), time_ns: Nanos(100_000_000) };
            let first = shards.position(rank, 0);
            for position in first..first + shards.steps * shards.batch {
                for from in deliver(epoch, position) {
                    let sample = order.sample(from);
                    let part = SampleDigest { samples: 1, digest: Digest::of_run(sample, 1) };
                    row.samples_delivered += 1;
                    row.bytes_planned += 4096;
                    row.bytes_read += 4096;
                    row.digest += part.digest;
                    row.order = row.order.wrapping_add(crate::digest::placed_run(position, sample, 1));
                    parts[part_of(position / shards.batch, shards.ranks * shards.steps)] += part;
                }
            }
            ledger.add(epoch, Phase::Train, rank, row);
        }
        let cache = all_from_storage(shards.delivered());
        ledger.add_node(epoch, Phase::Train, 0, NodeRow { parts, cache, ..NodeRow::default() });
    }
    ledger
}

fn host() -> ObservedHost {
    ObservedHost {
        kernels: ["6.12".to_owned()].into(),
        clock_sources: ["tsc".to_owned()].into(),
        readings: 1,
        ticks: 1000,
        ..ObservedHost::default()
    }
}

/// The page cache of an epoch that read `files` files of one page each, none of them in memory.
pub(super) fn all_from_storage(files: u64) -> ObservedCache {
    let bytes = 4096 * files;
    let storage = ReportedBytes::new(Some(bytes));
    let mut seen = ObservedCache { needed_bytes: bytes, storage, ..ObservedCache::default() };
    (seen.made.files, seen.made.pages) = (files, files);
    (0..files).for_each(|_| seen.counted.add(0, 1));
    seen
}

fn calibration(au_percent: f64) -> Calibration {
    Calibration {
        steps: 10,
        au_percent: Some(au_percent),
        samples_per_second: Some(1e6),
        harness_seconds_per_step: 1e-6,
        cpu_headroom: 0.9,
    }
}

pub(super) fn finding(plan: &TrainingPlan, ledger: &Ledger, rule: &str) -> (Status, RuleOutcome, String) {
    let verdict = judge(&Case { plan: Some(&whole(plan)), ledger });
    let finding = verdict.rules.into_iter().find(|finding| finding.rule == rule).unwrap();
    (verdict.status, finding.outcome, finding.evidence)
}

#[test]
fn a_flawless_run_breaks_no_rule() {
    let plan = plan();
    let mut ledger = ledger(&plan, |_, p| vec![p]);
    let checked = CheckedFetches { fetches: 200, bytes: 2048, ..CheckedFetches::default() };
    ledger.add_node(1, Phase::Train, 0, NodeRow { checked, ..NodeRow::default() });
    let verdict = judge(&Case { plan: Some(&whole(&plan)), ledger: &ledger });
    assert_eq!(verdict.status, Status::Valid, "{verdict:?}");
    assert!(
        verdict.rules.iter().all(|finding| matches!(finding.outcome, RuleOutcome::Pass | RuleOutcome::Note)),
        "{verdict:?}"
    );
}

#[test]
fn one_missing_doubled_or_swapped_sample_makes_the_run_invalid() {
    let plan = plan();
    for (words, wrong) in [
        ("position 42 (rank 0, step 8, sample ", vec![]),
        ("was delivered twice", vec![42, 42]),
        ("other samples were delivered instead", vec![43]),
    ] {
        let ledger = ledger(&plan, |epoch, p| if (epoch, p) == (2, 42) { wrong.clone() } else { vec![p] });
        let (status, outcome, evidence) = finding(&plan, &ledger, "exactly-once");
        assert_eq!((status, outcome), (Status::Invalid, RuleOutcome::Fail));
        assert!(evidence.starts_with("epoch 2, train: ") && evidence.contains(words), "{evidence}");
    }
}

#[test]
fn two_epochs_in_one_order_make_the_run_invalid() {
    let mut plan = plan();
    plan.train.order.reshuffle = false;
    let (status, outcome, evidence) = finding(&plan, &ledger(&plan, |_, p| vec![p]), "order-differs");
    assert_eq!((status, outcome), (Status::Invalid, RuleOutcome::Fail));
    assert_eq!(evidence, "epochs 1 and 2 read in the same order");
}

#[test]
fn orders_that_can_repeat_by_chance_are_not_compared() {
    let mut plan = plan();
    plan.train.order =
        crate::order::Order { files: 5, unit: Unit::File, samples_per_file: 1000, ..plan.train.order };
    plan.train.shards = crate::order::Shards::new(5000, 2, 5, Some(1));
    let (_, outcome, evidence) = finding(&plan, &Ledger::default(), "order-differs");
    assert_eq!(
        (outcome, evidence.as_str()),
        (RuleOutcome::Pass, "not compared: 5 pieces have too few possible orders")
    );
}

#[test]
fn a_missing_step_makes_the_run_incomplete() {
    let plan = plan();
    let mut whole = ledger(&plan, |_, p| vec![p]);
    whole.add_fault(RunFault {
        epoch: 2,
        phase: Phase::Train,
        message: "rank 1, step 3: x does not exist".into(),
    });
    let (status, _, evidence) = finding(&plan, &whole, "complete");
    assert_eq!(
        (status, evidence.as_str()),
        (Status::Incomplete, "epoch 2, train: rank 1, step 3: x does not exist")
    );
    let empty = Ledger::default();
    assert_eq!(finding(&plan, &empty, "complete").0, Status::Incomplete);
    assert_eq!(finding(&plan, &empty, "exactly-once").1, RuleOutcome::NotCheckable);
}

#[test]
fn a_wrong_number_of_bytes_makes_the_run_invalid() {
    let plan = plan();
    let mut short = ledger(&plan, |_, p| vec![p]);
    // Readers and backend agree, and both are wrong; the plan has the correct number.
    short.add(1, Phase::Train, 0, RankRow { bytes_planned: 10, bytes_read: 10, ..RankRow::default() });
    let (status, _, evidence) = finding(&plan, &short, "bytes-as-planned");
    assert_eq!(status, Status::Invalid);
    assert_eq!(evidence, "epoch 1, train: 409,610 bytes read, 409,600 planned");
}

#[test]
fn data_is_verified_only_by_comparison() {
    let mut plan = plan();
    let seen = |checked: CheckedFetches| {
        let mut ledger = ledger(&plan, |_, p| vec![p]);
        ledger.add_node(1, Phase::Train, 0, NodeRow { checked, cpu_ns: Nanos(1000), ..NodeRow::default() });
        ledger
    };
    let nothing = CheckedFetches::default();
    let compared = CheckedFetches { fetches: 200, bytes: 2048, ns: Nanos(4), ..nothing };
    let cases = [
        (Verify::Sample, compared, RuleOutcome::Pass, "200 fetches, 2.0 KiB of 800.0 KiB compared"),
        (Verify::Sample, compared, RuleOutcome::Pass, "at most 0.4 % of CPU time"),
        (
            Verify::Sample,
            CheckedFetches { wrong: 2, ..compared },
            RuleOutcome::Fail,
            "wrong bytes in 2 fetches",
        ),
        (Verify::None, nothing, RuleOutcome::NotCheckable, "reader.verify is none"),
        (Verify::Full, nothing, RuleOutcome::NotCheckable, "no bytes were read"),
        (
            Verify::Sample,
            CheckedFetches { foreign: 200, ..nothing },
            RuleOutcome::Note,
            "only their sizes were compared, and equal the plan's",
        ),
        (
            Verify::Full,
            CheckedFetches { foreign: 200, ..nothing },
            RuleOutcome::NotCheckable,
            "content is unknown",
        ),
        (
            Verify::Sample,
            CheckedFetches { unknown: 200, ..nothing },
            RuleOutcome::NotCheckable,
            "--verify full",
        ),
        (
            Verify::Full,
            CheckedFetches { unknown: 1, ..compared },
            RuleOutcome::NotCheckable,
            "1 of 201 fetches",
        ),
    ];
    let ledgers = cases.map(|(_, checked, ..)| seen(checked));
    for ((verify, _, outcome, words), ledger) in cases.into_iter().zip(ledgers) {
        plan.verify = verify;
        let (_, found, evidence) = finding(&plan, &ledger, "data-verified");
        assert_eq!((found, evidence.contains(words)), (outcome, true), "{words}: {evidence}");
    }
}

#[test]
fn errors_are_a_note_within_the_limit_and_a_failure_beyond() {
    let mut plan = plan();
    let mut seen = ledger(&plan, |_, p| vec![p]);
    assert_eq!(finding(&plan, &seen, "errors").1, RuleOutcome::Pass);
    let mut errors = Errors::default();
    let example = ErrorExample { rank: 1, step: 2, file: "f".into(), offset: 4096, message: "no".into() };
    errors.add("eio".into(), example);
    seen.add_node(1, Phase::Train, 0, NodeRow { errors, ..NodeRow::default() });
    for (limit, outcome) in
        [(None, RuleOutcome::Fail), (Some(0), RuleOutcome::Fail), (Some(1), RuleOutcome::Note)]
    {
        plan.loader.error_limit = limit;
        let (_, found, evidence) = finding(&plan, &seen, "errors");
        assert_eq!(found, outcome, "{limit:?}");
        let expected = "eio 1; 0 samples not delivered; for example rank 1, step 2, f at byte 4,096: no";
        assert_eq!(evidence, expected);
    }
}

#[test]
fn a_sample_that_failed_is_accounted_for_once() {
    let plan = plan();
    let order = plan.train.epoch_order(2);
    let missing = |epoch, p| if (epoch, p) == (2, 42) { vec![] } else { vec![p] };
    let mut seen = ledger(&plan, missing);
    let failed = SampleDigest { samples: 1, digest: Digest::of_run(order.sample(42), 1) };
    seen.add(2, Phase::Train, 0, RankRow { failed, bytes_failed: 4096, ..RankRow::default() });
    let (_, outcome, evidence) = finding(&plan, &seen, "exactly-once");
    assert_eq!(outcome, RuleOutcome::Pass);
    assert_eq!(evidence, "199 samples delivered and 1 failed; the digest of every epoch equals the plan's");
    assert_eq!(finding(&plan, &seen, "bytes-as-planned").1, RuleOutcome::Pass);
    let other = SampleDigest { samples: 1, digest: Digest::of_run(order.sample(43), 1) };
    let mut wrong = ledger(&plan, missing);
    wrong.add(2, Phase::Train, 0, RankRow { failed: other, ..RankRow::default() });
    assert_eq!(finding(&plan, &wrong, "exactly-once").1, RuleOutcome::Fail);
}

#[test]
fn a_run_with_injected_faults_is_never_valid() {
    let mut plan = plan();
    plan.store.faults = Some("posix,kind=delay,span=1ms".to_owned());
    let (status, outcome, evidence) = finding(&plan, &ledger(&plan, |_, p| vec![p]), "no-injected-faults");
    assert_eq!((status, outcome), (Status::Invalid, RuleOutcome::Fail));
    assert_eq!(evidence, "the backend injects faults: posix,kind=delay,span=1ms");
}

#[test]
fn lateness_counts_only_up_to_the_time_spent_waiting() {
    let plan = plan();
    for (late, waited, outcome) in [
        (0, 50, RuleOutcome::Pass),
        (50, 0, RuleOutcome::Pass),
        (50, 50, RuleOutcome::Fail),
        (50, 1, RuleOutcome::Pass),
    ] {
        let mut ledger = ledger(&plan, |_, p| vec![p]);
        let millis = |count: u64| Nanos(count * 1_000_000);
        ledger.add(
            1,
            Phase::Train,
            0,
            RankRow { lateness_ns_sum: millis(late), wait_ns: millis(waited), ..RankRow::default() },
        );
        assert_eq!(finding(&plan, &ledger, "on-time").1, outcome, "late {late}, waited {waited}");
    }
}

#[test]
fn a_client_that_cannot_reach_the_target_makes_the_run_invalid() {
    let mut plan = plan();
    let mut seen = ledger(&plan, |_, p| vec![p]);
    for (ceiling, target, outcome) in [
        (99.0, 0.95, RuleOutcome::Pass),
        (96.0, 0.95, RuleOutcome::Fail),
        (96.0, 0.90, RuleOutcome::Pass),
        (92.0, 0.90, RuleOutcome::Pass),
    ] {
        plan.metric.au_target = target;
        seen.calibration = Some(calibration(ceiling));
        let (_, found, evidence) = finding(&plan, &seen, "client-not-the-limit");
        // The run itself has an AU of 90 %, so a target of 90 % is met with any ceiling.
        assert_eq!(found, outcome, "ceiling {ceiling}, target {target}: {evidence}");
    }
    // A hand-over of a ninth of the compute time leaves an AU of 90 % to any client.
    plan.replay.handover = Time::Constant(plan.train.compute.mean() / 9.0);
    plan.metric.au_target = 0.92;
    for (ceiling, outcome) in [(89.0, RuleOutcome::Pass), (86.0, RuleOutcome::Fail)] {
        seen.calibration = Some(calibration(ceiling));
        let (_, found, evidence) = finding(&plan, &seen, "client-not-the-limit");
        assert_eq!(found, outcome, "{evidence}");
        assert!(evidence.contains("leaves at most 90.0 %"), "{evidence}");
    }
    seen.calibration = None;
    assert_eq!(finding(&plan, &seen, "client-not-the-limit").1, RuleOutcome::NotCheckable);
}

#[test]
fn a_setting_that_cannot_be_honoured_makes_the_run_invalid() {
    let plan = plan();
    let mut ledger = ledger(&plan, |_, p| vec![p]);
    ledger.conditions.unhonoured.insert("reader.odirect".to_owned());
    let (status, _, evidence) = finding(&plan, &ledger, "settings-honoured");
    assert_eq!(status, Status::Invalid);
    assert_eq!(evidence, "no effect in this version: reader.odirect");
}

#[test]
fn a_mode_that_was_not_requested_makes_the_run_invalid() {
    let plan = plan();
    let whole = ledger(&plan, |_, p| vec![p]);
    assert_eq!(finding(&plan, &whole, "mode-as-requested").2, "store posix");
    for (observed, words) in [
        (&[][..], "o_direct: requested true, observed nothing"),
        (&["false"], "o_direct: requested true, observed false"),
        (&["false", "true"], "o_direct: requested true, observed false and true"),
    ] {
        let mut other = whole.clone();
        other.conditions.request("o_direct", "true");
        observed.iter().for_each(|value| other.conditions.observe("o_direct", value));
        let (status, outcome, evidence) = finding(&plan, &other, "mode-as-requested");
        assert_eq!((status, outcome, evidence.as_str()), (Status::Invalid, RuleOutcome::Fail, words));
    }
    let mut mute = whole.clone();
    mute.conditions.modes.clear();
    assert_eq!(finding(&plan, &mute, "mode-as-requested").1, RuleOutcome::NotCheckable);
}

#[test]
fn a_window_must_hold_some_steps() {
    let plan = plan();
    for (steps, outcome) in [(0, RuleOutcome::Fail), (4, RuleOutcome::NotCheckable), (5, RuleOutcome::Pass)] {
        // A single rank of a single epoch decides.
        let mut ledger = Ledger::default();
        for (epoch, rank, left) in [(1, 0, 9), (1, 1, 9), (2, 0, 9), (2, 1, steps)] {
            let window = MetricWindow { steps: left, compute_ns: Nanos(1), time_ns: Nanos(2) };
            let row = RankRow { window, steps: plan.train.shards.steps, ..RankRow::default() };
            ledger.add(epoch, Phase::Train, rank, row);
        }
        let (_, found, evidence) = finding(&plan, &ledger, "window");
        assert_eq!(found, outcome, "{evidence}");
        assert!(evidence.contains("epoch 2: ") || outcome == RuleOutcome::Pass, "{evidence}");
    }
    assert_eq!(finding(&plan, &Ledger::default(), "window").1, RuleOutcome::NotCheckable);
}

/// Epochs with the given milliseconds for the first step, which is outside the window, and for the others together.
#[test]
fn a_window_filled_by_prefetching_proves_nothing() {
    let mut plan = plan();
    let millis = |count: u64| Nanos(1_000_000 * count);
    let seen = |plan: &TrainingPlan, first: u64, others: u64, pause: u64| {
        let mut ledger = Ledger::default();
        let steps = plan.train.shards.steps;
        let window =
            MetricWindow { steps: steps - 1, compute_ns: millis(steps - 1), time_ns: millis(others) };
        let (wait_ns, compute_ns) = (millis(first + others - steps), millis(steps));
        let row = RankRow {
            steps,
            window,
            wait_ns,
            compute_ns,
            checkpoint_ns: millis(pause),
            ..RankRow::default()
        };
        (0..2).for_each(|rank| ledger.add(1, Phase::Train, rank, row));
        let found = prefetch::window_long_enough(&TrainingCase { plan, checkpoint: None, ledger: &ledger });
        (found.outcome, found.evidence)
    };
    assert_eq!((plan.loader.prefetch_batches, plan.train.shards.steps), (2, 10));
    for (first, others, outcome) in [
        (100, 100, RuleOutcome::NotCheckable),
        (18, 90, RuleOutcome::NotCheckable),
        (14, 90, RuleOutcome::Pass),
        (10, 90, RuleOutcome::Pass),
    ] {
        let (found, evidence) = seen(&plan, first, others, 0);
        assert_eq!(found, outcome, "{first} {others}: {evidence}");
        assert!(
            evidence
                .starts_with("epoch 1: 9 steps in the metric window, batches ready in advance: at most 2; "),
            "{evidence}"
        );
    }
    // Queues also fill during a checkpoint, whose time is not part of the window.
    assert_eq!(seen(&plan, 10, 90, 10).0, RuleOutcome::NotCheckable);
    plan.train.shards.steps = 41;
    assert_eq!(seen(&plan, 500, 100, 0).0, RuleOutcome::Pass, "2 of 40 are 5 %");
    plan.train.shards.steps = 40;
    assert_eq!(seen(&plan, 500, 100, 0).0, RuleOutcome::NotCheckable);
    plan.loader.prefetch_batches = 0;
    assert_eq!(seen(&plan, 500, 100, 0).0, RuleOutcome::Pass, "nothing is read in advance");
    plan.loader.prefetch_batches = 2;
    assert_eq!(finding(&plan, &Ledger::default(), WINDOW_LONG_ENOUGH).1, RuleOutcome::NotCheckable);
}

#[test]
fn a_small_data_set_and_a_busy_host_are_only_noted() {
    let mut plan = plan();
    let quiet = ledger(&plan, |_, p| vec![p]);
    let status = judge(&Case { plan: Some(&whole(&plan)), ledger: &quiet }).status;
    let (_, outcome, evidence) = finding(&plan, &quiet, "data-set-size");
    assert_eq!(
        (outcome, evidence.as_str()),
        (RuleOutcome::Note, "103 files; 500 steps need 5,000, 5 times the memory needs 1,310,720")
    );
    plan.estimate.mlperf.satisfied = true;
    assert_eq!(finding(&plan, &quiet, "data-set-size").1, RuleOutcome::Pass);
    let mut limited = quiet.clone();
    let limits = ["memory 128 MiB, control group /x".to_owned()].into();
    limited.conditions.hosts.insert("here".to_owned(), ObservedHost { limits, ..host() });
    let (_, outcome, evidence) = finding(&plan, &limited, "host");
    assert_eq!(outcome, RuleOutcome::Pass);
    assert!(evidence.ends_with("limited: memory 128 MiB, control group /x"), "{evidence}");
    assert_eq!(finding(&plan, &quiet, "host").1, RuleOutcome::Pass);
    for (seen, words) in [
        (ObservedHost { stolen_ticks: 60, ..host() }, "here: the hypervisor took 6 % of CPU time"),
        (ObservedHost { foreign_ticks: 250, ..host() }, "here: other processes used 25 % of CPU time"),
        (ObservedHost { swapped_in_pages: 1, ..host() }, "here: 1 page read back from swap"),
        (
            ObservedHost { readings: 0, ..host() },
            "here: the kernel does not report CPU times, so interference is unknown",
        ),
        (
            ObservedHost { clock_sources: ["hpet".to_owned()].into(), ..host() },
            "here: the clock source is hpet, which is slow to read",
        ),
    ] {
        let mut busy = quiet.clone();
        busy.conditions.hosts.insert("here".to_owned(), seen);
        let found = finding(&plan, &busy, "host");
        assert_eq!((found.0, found.1, found.2.as_str()), (status, RuleOutcome::Note, words));
    }
}

/// An observed job has a ledger but no plan. It has the same figures as a planned one, and its verdict lists what could
/// not be checked.
#[test]
fn a_ledger_without_a_plan_has_figures_and_a_verdict() {
    let plan = plan();
    let written = serde_json::to_string(&ledger(&plan, |_, p| vec![p])).unwrap();
    let recorded: Ledger = serde_json::from_str(&written).unwrap();
    let figures = Figures::new(&recorded, Phase::Train).unwrap();
    assert!((figures.au_percent.unwrap().mean - 90.0).abs() < 1e-9, "{figures:?}");
    assert!((figures.samples_per_second.unwrap().mean - 900.0).abs() < 1e-6, "{figures:?}");
    let verdict = judge(&Case { plan: None, ledger: &recorded });
    assert_eq!(verdict.status, Status::Unverified, "{verdict:?}");
    let found = |rule: &str| verdict.rules.iter().find(|finding| finding.rule == rule).unwrap();
    for rule in ["complete", "exactly-once", "cache", "no-injected-faults", "data-verified"] {
        let Finding { outcome, evidence, .. } = found(rule);
        assert_eq!(
            (*outcome, evidence.as_str()),
            (RuleOutcome::NotCheckable, "the result has no plan"),
            "{rule}"
        );
    }
    for rule in ["errors", "on-time", "mode-as-requested", "settings-honoured", "host"] {
        assert_eq!(found(rule).outcome, RuleOutcome::Pass, "{rule}");
    }
    assert!(verdict.rules.iter().all(|finding| finding.rule != "checkpoints-saved"), "none were saved");
}

#[test]
fn faults_in_a_ledger_are_judged_without_a_plan() {
    let plan = plan();
    let mut failed = ledger(&plan, |_, p| vec![p]);
    failed.add_fault(RunFault { epoch: 1, phase: Phase::Train, message: "x does not exist".into() });
    assert_eq!(judge(&Case { plan: None, ledger: &failed }).status, Status::Incomplete);
    let mut wrong = ledger(&plan, |_, p| vec![p]);
    let checked = CheckedFetches { fetches: 2, wrong: 1, ..CheckedFetches::default() };
    wrong.add_node(1, Phase::Train, 0, NodeRow { checked, ..NodeRow::default() });
    let verdict = judge(&Case { plan: None, ledger: &wrong });
    assert_eq!(verdict.broken().collect::<Vec<_>>(), ["data-verified"]);
}

/// Results of earlier versions keep their figures: values that their ledger lacks come from their plan.
#[test]
fn a_ledger_of_an_earlier_version_is_completed_from_its_plan() {
    let plan = plan();
    let whole = ledger(&plan, |_, p| vec![p]).completed_from(&plan);
    let mut value = serde_json::to_value(&whole).unwrap();
    for row in value["ranks"].as_array_mut().unwrap() {
        row["seen"].as_object_mut().unwrap().remove("steps_planned").unwrap();
    }
    for row in value["nodes"].as_array_mut().unwrap() {
        row["seen"]["cache"].as_object_mut().unwrap().remove("stored").unwrap();
    }
    let earlier: Ledger = serde_json::from_value(value).unwrap();
    assert_eq!(Figures::new(&earlier, Phase::Train).unwrap().au_percent, None);
    assert_eq!(earlier.completed_from(&plan), whole);
}

/// The names in the first column of a table in the docs, without its head.
fn documented<'a>(page: &'a str, head: &str) -> Vec<&'a str> {
    let (_, table) = page.split_once(head).unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('`').nth(1).unwrap()).collect()
}

#[test]
fn the_docs_list_every_rule_in_the_order_of_a_verdict() {
    let training = documented(include_str!("../../../../docs/reference/results.md"), "| rule | passes if |");
    let of_training = RULES.iter().filter(|rule| {
        matches!(
            rule.applies,
            RuleScope::Always | RuleScope::Training | RuleScope::Cluster | RuleScope::Objects
        )
    });
    assert_eq!(training, of_training.map(|rule| rule.name).collect::<Vec<_>>(), "docs/reference/results.md");
    let checkpoints =
        documented(include_str!("../../../../docs/guides/checkpoints.md"), "| rule | fails if |");
    for rule in RULES.iter().filter(|rule| rule.applies == RuleScope::Checkpoints) {
        assert!(checkpoints.contains(&rule.name), "docs/guides/checkpoints.md has no row for {}", rule.name);
    }
    for name in checkpoints {
        assert!(
            RULES.iter().any(|rule| rule.name == name),
            "docs/guides/checkpoints.md: there is no rule {name}"
        );
    }
}
