//! Runs on two nodes, of which one breaks a rule: it is named, also if the sum over both looks right.

use super::super::tests::{all_from_storage, finding, ledger, plan};
use super::super::{RuleOutcome, Status};
use crate::histogram::Histogram;
use crate::ledger::{
    Agreement, CheckedFetches, ClockReading, ErrorExample, Errors, Ledger, NodeRow, ObservedMember, Phase,
    RankRow, ReportedBytes,
};
use crate::metrics::{self, Figures};
use crate::plan::TrainingPlan;
use crate::units::Nanos;

/// The ledger of a flawless run: rank 0 on node a, rank 1 on node b, one process each.
fn on_two_nodes(plan: &TrainingPlan) -> Ledger {
    let mut ledger = ledger(plan, |_, position| vec![position]);
    for (node, host) in [(0, "a"), (1, "b")] {
        let host = host.to_owned();
        let member =
            ObservedMember { node, host, first_rank: node, ranks: 1, reported: true, ..Default::default() };
        ledger.conditions.members.insert(node, member);
    }
    let half = plan.train.shards.delivered() / 2;
    for epoch in 1..=plan.epochs {
        // What the helper observed on the first node is divided between both.
        ledger.change_node(epoch, 0, |row| row.cache = all_from_storage(half));
        for node in 0..2 {
            let mut row = NodeRow { cpu_ns: Nanos(10), core_ns: Nanos(100), ..NodeRow::default() };
            row.checked = CheckedFetches { fetches: half, bytes: 1024, ..CheckedFetches::default() };
            row.agreement.latency.record(Nanos(20_000));
            row.agreement.clocks.insert(node, ClockReading { offset_ns: 7, bound_ns: Nanos(node * 5_000) });
            if node == 1 {
                row.cache = all_from_storage(half);
                row.agreement =
                    Agreement { barriers: 10, last: 9, last_ns: Nanos(3_000_000), ..row.agreement };
            }
            ledger.add_node(epoch, Phase::Train, node, row);
        }
    }
    ledger
}

impl Ledger {
    fn change_node(&mut self, epoch: u64, node: u64, change: impl FnOnce(&mut NodeRow)) {
        change(self.node_mut(epoch, node));
    }
}

#[test]
fn a_flawless_run_on_two_nodes_is_valid() {
    let plan = plan();
    let ledger = on_two_nodes(&plan);
    for rule in ["cache", "on-time", "data-verified", "agreement", "clocks", "complete"] {
        let (status, outcome, evidence) = finding(&plan, &ledger, rule);
        assert_eq!((status, outcome), (Status::Valid, RuleOutcome::Pass), "{rule}: {evidence}");
    }
    assert!(
        finding(&plan, &ledger, "cache").2.starts_with("bytes from the storage per epoch and node: 100 %")
    );
}

#[test]
fn one_node_that_was_served_from_memory_is_named_with_its_epoch() {
    let plan = plan();
    let mut ledger = on_two_nodes(&plan);
    // Read-ahead on the other node hides it in the sum.
    ledger.change_node(2, 0, |row| row.cache.storage.bytes *= 2);
    ledger.change_node(2, 1, |row| row.cache.storage = ReportedBytes::new(Some(0)));
    let total = ledger.cache(2, Phase::Train);
    assert!(total.storage_share().unwrap() >= 1.0);
    let (status, outcome, evidence) = finding(&plan, &ledger, "cache");
    assert_eq!((status, outcome), (Status::Invalid, RuleOutcome::Fail));
    assert!(
        evidence.starts_with("epoch 2, train, node b: only 0 % of the bytes came from the storage"),
        "{evidence}"
    );
}

#[test]
fn a_process_cannot_tell_what_another_one_of_its_node_has_loaded() {
    let mut plan = plan();
    plan.data.train.samples_per_file = 10;
    assert!(plan.reads_again(Phase::Train));
    let half = |row: &mut NodeRow| row.cache.storage.bytes = row.cache.storage.bytes * 6 / 10;
    let mut ledger = on_two_nodes(&plan);
    for epoch in 1..=2 {
        for node in 0..2 {
            ledger.change_node(epoch, node, |row| row.cache.counted.followed = row.cache.counted.pages);
        }
    }
    ledger.change_node(1, 1, half);
    assert_eq!(finding(&plan, &ledger, "cache").1, RuleOutcome::Fail, "one process per node");
    // The second process of node b plays no rank, for simplicity.
    let second =
        ObservedMember { node: 1, host: "b".to_owned(), first_rank: 2, reported: true, ..Default::default() };
    ledger.conditions.members.insert(2, second);
    let (_, outcome, evidence) = finding(&plan, &ledger, "cache");
    assert_eq!(outcome, RuleOutcome::NotCheckable, "{evidence}");
    assert!(evidence.contains("node b") && evidence.contains("other processes of this run"), "{evidence}");
    ledger.change_node(1, 1, half);
    assert_eq!(
        finding(&plan, &ledger, "cache").1,
        RuleOutcome::Fail,
        "the reads of two processes do not explain it"
    );
}

/// Applies a change to one node, and asserts that the rule fails or is doubtful and names the node.
fn assert_named(rule: &str, outcome: RuleOutcome, words: &str, change: impl Fn(&mut Ledger)) {
    let plan = plan();
    let mut ledger = on_two_nodes(&plan);
    change(&mut ledger);
    let (_, found, evidence) = finding(&plan, &ledger, rule);
    assert_eq!(found, outcome, "{rule}: {evidence}");
    assert!(evidence.contains(words), "{rule}: {evidence}");
}

#[test]
fn one_bad_node_does_not_hide_in_the_sum() {
    let millis = |count: u64| Nanos(count * 1_000_000);
    // Over both ranks, 1.8 % of the time.
    let late = RankRow { lateness_ns_sum: millis(7), wait_ns: millis(7), ..RankRow::default() };
    assert_named("on-time", RuleOutcome::Fail, "node b: the host was late by 3.", |ledger| {
        ledger.add(1, Phase::Train, 1, late);
    });
    let idle = |ledger: &mut Ledger| {
        (1..=2).for_each(|epoch| ledger.change_node(epoch, 1, |row| row.checked = CheckedFetches::default()));
    };
    assert_named("data-verified", RuleOutcome::NotCheckable, "node b: no bytes were read", idle);
    assert_named("data-verified", RuleOutcome::Fail, "node a: wrong bytes in 2 fetches", |ledger| {
        ledger.change_node(2, 0, |row| row.checked.wrong = 2);
    });
    assert_named("read-amplification", RuleOutcome::Note, "node b: the storage delivered 1.50", |ledger| {
        ledger.change_node(2, 1, |row| row.cache.storage.bytes += row.cache.storage.bytes / 2);
    });
    let example = ErrorExample { rank: 1, step: 2, file: "f".into(), offset: 0, message: "no".into() };
    assert_named("errors", RuleOutcome::Fail, "for example on node b rank 1", |ledger| {
        let mut errors = Errors::default();
        errors.add("eio".to_owned(), example.clone());
        ledger.add_node(1, Phase::Train, 1, NodeRow { errors, ..NodeRow::default() });
    });
}

#[test]
fn bytes_that_one_node_read_too_much_and_another_too_little_are_found() {
    let mut plan = plan();
    // Only the readers know how many bytes there are.
    plan.data.exact = false;
    let mut ledger = on_two_nodes(&plan);
    ledger.add(1, Phase::Train, 0, RankRow { bytes_read: 10, ..RankRow::default() });
    ledger.add(1, Phase::Train, 1, RankRow { bytes_planned: 10, ..RankRow::default() });
    let (_, outcome, evidence) = finding(&plan, &ledger, "bytes-as-planned");
    let expected = "epoch 1, train, node a: 204,810 bytes read, 204,800 planned";
    assert_eq!((outcome, evidence.as_str()), (RuleOutcome::Fail, expected));
}

#[test]
fn a_host_whose_cores_are_busy_is_named() {
    let mut plan = plan();
    plan.metric.au_target = 0.99;
    let mut ledger = on_two_nodes(&plan);
    let (_, outcome, evidence) = finding(&plan, &ledger, "client-not-the-limit");
    assert_eq!(outcome, RuleOutcome::Pass, "{evidence}");
    (1..=2).for_each(|epoch| ledger.change_node(epoch, 1, |row| row.cpu_ns = Nanos(97)));
    let (_, outcome, evidence) = finding(&plan, &ledger, "client-not-the-limit");
    assert_eq!(
        (outcome, evidence.as_str()),
        (RuleOutcome::Fail, "CPU cores on node b were busy 97 % of the time")
    );
}

#[test]
fn a_run_without_the_ledger_of_a_process_is_incomplete_and_has_no_rates() {
    let plan = plan();
    let mut ledger = on_two_nodes(&plan);
    ledger.conditions.members.get_mut(&1).unwrap().reported = false;
    let (status, _, evidence) = finding(&plan, &ledger, "complete");
    assert_eq!(
        (status, evidence.as_str()),
        (Status::Incomplete, "the measurements of process 1 on b are missing")
    );
    assert_eq!(Figures::new(&ledger, Phase::Train).unwrap().au_percent, None);
}

#[test]
fn clocks_are_compared_with_the_time_of_a_step() {
    // A step takes 10 ms.
    for (bound, outcome) in
        [(900_000, RuleOutcome::Pass), (1_100_000, RuleOutcome::Note), (11_000_000, RuleOutcome::Fail)]
    {
        assert_named("clocks", outcome, "process 1 on b is known to", |ledger| {
            let clock = ClockReading { offset_ns: 0, bound_ns: Nanos(bound) };
            ledger.change_node(2, 1, |row| {
                row.agreement.clocks.insert(1, clock);
            });
        });
    }
    assert_named("clocks", RuleOutcome::NotCheckable, "not compared", |ledger| {
        for (epoch, node) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
            ledger.change_node(epoch, node, |row| row.agreement.clocks.clear());
        }
    });
}

#[test]
fn agreement_costs_only_what_exceeds_the_computation() {
    let learned = |latency: u64| {
        move |ledger: &mut Ledger| {
            let mut spans = Histogram::default();
            (0..10).for_each(|_| spans.record(Nanos(latency)));
            ledger.change_node(1, 1, |row| row.agreement.latency = spans);
        }
    };
    assert_named("agreement", RuleOutcome::Pass, "0.00 % of the time", learned(10_000_000));
    assert_named("agreement", RuleOutcome::Fail, "node b: 11.", learned(11_000_000));
}

#[test]
fn figures_of_a_node_are_those_of_its_ranks() {
    let ledger = on_two_nodes(&plan());
    let nodes = metrics::nodes(&ledger, Phase::Train);
    let names: Vec<(&str, u64, u64)> =
        nodes.iter().map(|node| (node.name.as_str(), node.processes, node.ranks)).collect();
    assert_eq!(names, [("a", 1, 1), ("b", 1, 1)]);
    let all = Figures::new(&ledger, Phase::Train).unwrap();
    let rates: f64 = nodes.iter().map(|node| node.samples_per_second.unwrap()).sum();
    assert!((rates - all.samples_per_second.unwrap().mean).abs() < 1e-9, "{rates} {all:?}");
    assert_eq!((nodes[1].au_percent, nodes[1].storage_share), (Some(90.0), Some(1.0)));
    assert_eq!((nodes[1].last, nodes[1].last_share, nodes[1].last_seconds), (18, Some(0.9), 0.006));
    assert_eq!((nodes[1].clock_bound_seconds, nodes[1].cpu_share), (Some(5e-6), Some(0.1)));
    assert_eq!(metrics::slowest(&nodes).map(|node| node.name.as_str()), Some("b"));
    assert_eq!(metrics::agreement(&ledger, Phase::Train).unwrap().count, 4);
    let second = metrics::nodes_of_epoch(&ledger, Phase::Train, 2);
    assert_eq!((second[1].last, second[1].storage_bytes), (9, Some(50 * 4096)));
}
