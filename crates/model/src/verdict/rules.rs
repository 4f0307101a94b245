//! The table of rules: what each rule applies to and needs, and what to do if it does not hold. The checks themselves
//! are in the other files of this folder.

use super::{
    Case, CheckpointCase, RuleOutcome, TrainingCase, cache, checkpoints, cluster, conditions, delivery,
    errors, integrity, objects, prefetch, terms,
};
use crate::ledger::Ledger;
use crate::plan::Plan;

/// The result of one check.
#[derive(Debug)]
pub(super) struct RuleResult {
    pub(super) outcome: RuleOutcome,
    pub(super) evidence: String,
    /// What to do in this situation, if the rule's own remedy does not fit it.
    pub(super) remedy: Option<&'static str>,
}

impl RuleResult {
    pub(super) fn new(outcome: RuleOutcome, evidence: impl Into<String>) -> RuleResult {
        RuleResult { outcome, evidence: evidence.into(), remedy: None }
    }

    pub(super) fn pass(evidence: impl Into<String>) -> RuleResult {
        RuleResult::new(RuleOutcome::Pass, evidence)
    }

    pub(super) fn note(evidence: impl Into<String>) -> RuleResult {
        RuleResult::new(RuleOutcome::Note, evidence)
    }

    pub(super) fn fail(evidence: impl Into<String>) -> RuleResult {
        RuleResult::new(RuleOutcome::Fail, evidence)
    }

    pub(super) fn not_checkable(evidence: impl Into<String>) -> RuleResult {
        RuleResult::new(RuleOutcome::NotCheckable, evidence)
    }

    pub(super) fn with_remedy(self, remedy: impl Into<Option<&'static str>>) -> RuleResult {
        RuleResult { remedy: remedy.into(), ..self }
    }
}

pub(super) struct Rule {
    pub(super) name: &'static str,
    pub(super) applies: RuleScope,
    /// What is known about a result that passes; a sentence without its full stop.
    pub(super) proves: &'static str,
    pub(super) threshold: &'static str,
    /// What to do if the rule is broken or adds a note.
    pub(super) remedy: &'static str,
    /// What to do if the rule could not be checked.
    pub(super) unchecked: &'static str,
    pub(super) check: RuleCheck,
}

/// The kind of run that a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleScope {
    Always,
    Training,
    /// Training by several processes.
    Cluster,
    /// Training from an object store.
    Objects,
    /// With or without training.
    Checkpoints,
    CheckpointsAlone,
    /// DLIO's behaviour was requested.
    Compat,
}

impl RuleScope {
    fn about(self) -> &'static str {
        match self {
            RuleScope::Always => "every run",
            RuleScope::Training => "training",
            RuleScope::Cluster => "training by several processes",
            RuleScope::Objects => "training from an object store",
            RuleScope::Checkpoints => "checkpoints",
            RuleScope::CheckpointsAlone => "checkpoints without training",
            RuleScope::Compat => "runs with DLIO's behaviour",
        }
    }

    pub(super) fn to(self, case: &Case<'_>) -> bool {
        match self {
            RuleScope::Always => true,
            RuleScope::Training => case.trains(),
            RuleScope::Cluster => case.trains() && case.ledger.conditions.members.len() > 1,
            RuleScope::Objects => case.trains() && case.reads_objects(),
            RuleScope::Checkpoints => case.saves(),
            RuleScope::CheckpointsAlone => case.saves() && !case.trains(),
            RuleScope::Compat => case.plan.is_some_and(|plan| !plan.compat.is_empty()),
        }
    }
}

/// How a rule is checked, by the input that it needs.
#[derive(Clone, Copy, Debug)]
pub(super) enum RuleCheck {
    Ledger(fn(&Ledger) -> RuleResult),
    Plan(fn(&Plan) -> RuleResult),
    Training(fn(&TrainingCase<'_>) -> RuleResult),
    Checkpoints(fn(&CheckpointCase<'_>) -> RuleResult),
    /// Checks what it can without a plan.
    Case(fn(&Case<'_>) -> RuleResult),
}

impl RuleCheck {
    pub(super) fn apply(self, case: &Case<'_>) -> RuleResult {
        let found = match self {
            RuleCheck::Ledger(check) => Some(check(case.ledger)),
            RuleCheck::Plan(check) => case.plan.map(check),
            RuleCheck::Training(check) => case.training().map(|case| check(&case)),
            RuleCheck::Checkpoints(check) => case.checkpoints().map(|case| check(&case)),
            RuleCheck::Case(check) => Some(check(case)),
        };
        found.unwrap_or_else(no_plan)
    }
}

/// The result of a rule that needs a plan if there is none.
pub(super) fn no_plan() -> RuleResult {
    RuleResult::not_checkable("the result has no plan").with_remedy("to check this rule, use 'feedline run'")
}

/// The rule about figures that prefetching inflates.
pub const WINDOW_LONG_ENOUGH: &str = "window-long-enough";

pub(super) const FINISH_EPOCH: &str = "let at least one epoch finish";
/// For files that were evicted: something loaded them afterwards.
pub(super) const STOP_READERS: &str = "stop other processes that read these files, or use --store direct";
pub(super) const RUN_TO_THE_END: &str = "run again and let the run finish";
const FIX_CAUSE: &str = "fix the cause and run again";
const LONGER_RUN: &str = "use a longer run: more files or more epochs";
const MORE_CORES: &str = "use fewer ranks per host, or a host with more cores";
const REPORT_BUG: &str = "this is a bug in feedline: please report it and attach ledger.json";
const SHOW_PAGES: &str = "use a file system and kernel that show which pages are in memory ('feedline docs cache'), or \
                          --store direct";

/// The rules, in the order in which a verdict lists them.
pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "complete",
        applies: RuleScope::Training,
        proves: "The result is of the whole plan, not of a part that happened to be fast",
        threshold: "all planned epochs and steps ran",
        remedy: FIX_CAUSE,
        unchecked: "",
        check: RuleCheck::Case(delivery::complete),
    },
    Rule {
        name: "complete",
        applies: RuleScope::CheckpointsAlone,
        proves: "Every save and restore that was planned is in the figures",
        threshold: "all planned saves and restores ran",
        remedy: FIX_CAUSE,
        unchecked: "",
        check: RuleCheck::Checkpoints(checkpoints::complete),
    },
    Rule {
        name: "client-not-the-limit",
        applies: RuleScope::CheckpointsAlone,
        proves: "The figures are those of the storage, not of a host that is too slow",
        threshold: "CPU cores busy at most 95 % of the time",
        remedy: MORE_CORES,
        unchecked: "",
        check: RuleCheck::Checkpoints(checkpoints::client_not_the_limit),
    },
    Rule {
        name: "exactly-once",
        applies: RuleScope::Training,
        proves: "No sample was left out, and none was read twice, which would be faster",
        threshold: "each planned sample delivered exactly once, and no other",
        remedy: REPORT_BUG,
        unchecked: FINISH_EPOCH,
        check: RuleCheck::Training(delivery::exactly_once),
    },
    Rule {
        name: "bytes-as-planned",
        applies: RuleScope::Training,
        proves: "Whole samples were read, not parts of them",
        threshold: "bytes read = bytes planned",
        remedy: "generate the data set again with the settings of this run",
        unchecked: "",
        check: RuleCheck::Training(delivery::bytes_as_planned),
    },
    Rule {
        name: "data-verified",
        applies: RuleScope::Training,
        proves: "What was read is what was written: no stale, short or swapped data",
        threshold: "the bytes read are the bytes that were written",
        remedy: "find out what changed the files, then write them again with 'feedline generate --overwrite'",
        unchecked: "use --verify sample or full, and a data set that 'feedline generate' wrote",
        check: RuleCheck::Case(integrity::data_verified),
    },
    Rule {
        name: "order-differs",
        applies: RuleScope::Training,
        proves: "No epoch profits from an order that a cache or a prefetcher has seen",
        threshold: "no two shuffled epochs have the same order",
        remedy: "set train.seed_change_epoch=true, or turn shuffling off",
        unchecked: "",
        check: RuleCheck::Training(delivery::order_differs),
    },
    Rule {
        name: "window",
        applies: RuleScope::Training,
        proves: "AU and rates describe more than a moment",
        threshold: "every epoch has at least 5 steps in the metric window",
        remedy: "lower output.metric.exclude_start_steps and exclude_end_steps, or use more files",
        unchecked: "run more steps: use more files, fewer ranks or a smaller reader.batch_size",
        check: RuleCheck::Training(terms::window),
    },
    Rule {
        name: WINDOW_LONG_ENOUGH,
        applies: RuleScope::Training,
        proves: "The figures are not those of batches that were ready before the clock started",
        threshold: "the metric window has 20 steps for each batch that can be ready in advance, or the rate over the \
                    whole epoch is at least 95 % of the rate in the window",
        remedy: "",
        unchecked: "use more files, fewer ranks or a smaller reader.prefetch_size, or use the rate by the clock",
        check: RuleCheck::Training(prefetch::window_long_enough),
    },
    Rule {
        name: "errors",
        applies: RuleScope::Training,
        proves: "No figure contains samples that were not delivered",
        threshold: "no read failed",
        remedy: "fix the storage; to continue without the failed samples, set reader.on_error=count",
        unchecked: "",
        check: RuleCheck::Case(errors::errors),
    },
    Rule {
        name: "no-injected-faults",
        applies: RuleScope::Always,
        proves: "The result is of the storage as it is",
        threshold: "no faults were injected",
        remedy: "remove the fault: prefix from --store",
        unchecked: "",
        check: RuleCheck::Plan(errors::no_injected_faults),
    },
    Rule {
        name: "on-time",
        applies: RuleScope::Training,
        proves: "The accelerators were not late because the host was",
        threshold: "delays of the host cost at most 2 % of the accelerators' time",
        remedy: MORE_CORES,
        unchecked: LONGER_RUN,
        check: RuleCheck::Case(conditions::on_time),
    },
    Rule {
        name: "agreement",
        applies: RuleScope::Cluster,
        proves: "The accelerators waited for data, not for the network between the processes",
        threshold: "agreement on a step, beyond its computation, takes at most 2 % of the time",
        remedy: "use fewer processes per host, a network with a shorter round trip (--interface), or longer steps",
        unchecked: FINISH_EPOCH,
        check: RuleCheck::Ledger(cluster::agreement),
    },
    Rule {
        name: "clocks",
        applies: RuleScope::Cluster,
        proves: "Times of several hosts can be compared",
        threshold: "the clocks of all processes are known to a tenth of a step",
        remedy: "use a network with a shorter round trip (--interface), or longer steps",
        unchecked: FINISH_EPOCH,
        check: RuleCheck::Ledger(cluster::clocks),
    },
    Rule {
        name: "client-not-the-limit",
        applies: RuleScope::Training,
        proves: "The figures are those of the storage, not of feedline or its host",
        threshold: "feedline's own ceiling is well above the measured or required value",
        remedy: MORE_CORES,
        unchecked: LONGER_RUN,
        check: RuleCheck::Training(conditions::client_not_the_limit),
    },
    Rule {
        name: "mode-as-requested",
        applies: RuleScope::Training,
        proves: "The result is of the backend and mode that its name says",
        threshold: "the data was read with the requested I/O backend and mode",
        remedy: REPORT_BUG,
        unchecked: "run again with this version of feedline",
        check: RuleCheck::Ledger(terms::mode_as_requested),
    },
    Rule {
        name: "settings-honoured",
        applies: RuleScope::Always,
        proves: "The result is of the settings that it lists",
        threshold: "every setting that affects the measurement took effect",
        remedy: "remove these settings",
        unchecked: "",
        check: RuleCheck::Ledger(terms::settings_honoured),
    },
    Rule {
        name: "semantics",
        applies: RuleScope::Compat,
        proves: "The result says in what it differs from results with feedline's behaviour",
        threshold: "feedline's behaviour, or a list of what was switched to DLIO's",
        remedy: "compare this result only with results that have the same settings of compat",
        unchecked: "",
        check: RuleCheck::Plan(terms::semantics),
    },
    Rule {
        name: "cache",
        applies: RuleScope::Training,
        proves: "The figures are of the storage and not of the page cache, or of memory if that was asked",
        threshold: "at least 95 % of the bytes came from storage, or from memory if the cache is warm",
        remedy: "use --cache cold or --store direct; to measure memory, use --cache warm",
        unchecked: SHOW_PAGES,
        check: RuleCheck::Training(cache::served_as_asked),
    },
    Rule {
        name: "read-amplification",
        applies: RuleScope::Training,
        proves: "The storage did not deliver much more than the samples need",
        threshold: "the storage delivered at most 1.1 bytes per byte read",
        remedy: "if samples are parts of files, set reader.readahead=random or use larger samples",
        unchecked: "",
        check: RuleCheck::Training(cache::read_amplification),
    },
    Rule {
        name: "requests",
        applies: RuleScope::Objects,
        proves: "The rates contain no failed and repeated requests",
        threshold: "no attempt of a request failed",
        remedy: "look at the server's log",
        unchecked: "run again with this version of feedline",
        check: RuleCheck::Case(objects::requests),
    },
    Rule {
        name: "data-set-size",
        applies: RuleScope::Training,
        proves: "The data set has the size of a submission to MLPerf Storage",
        threshold: "the size that MLPerf Storage requires: 500 steps and 5 times the memory of all hosts",
        remedy: "for a result by MLPerf's rules, use as many files as 'feedline plan' shows",
        unchecked: "",
        check: RuleCheck::Training(terms::data_set_size),
    },
    Rule {
        name: "host",
        applies: RuleScope::Always,
        proves: "The host was free enough to measure",
        threshold: "a fast clock, at most 5 % of CPU time stolen and 20 % used by other processes, no swapping",
        remedy: "stop other work on this host, or use another host",
        unchecked: "",
        check: RuleCheck::Ledger(terms::host),
    },
    Rule {
        name: "checkpoints-saved",
        applies: RuleScope::Checkpoints,
        proves: "The time of a save is that of a checkpoint that exists",
        threshold: "every checkpoint is complete on its final tier",
        remedy: FIX_CAUSE,
        unchecked: "",
        check: RuleCheck::Checkpoints(checkpoints::saved),
    },
    Rule {
        name: "checkpoints-durable",
        applies: RuleScope::Checkpoints,
        proves: "The time of a save includes what makes it survive a crash",
        threshold: "a save ends only when its bytes would survive a crash",
        remedy: "set checkpoint.fsync=true, as MLPerf Storage requires",
        unchecked: "",
        check: RuleCheck::Checkpoints(checkpoints::durable),
    },
    Rule {
        name: "restored-right",
        applies: RuleScope::Checkpoints,
        proves: "A restore returned the state that was saved",
        threshold: "every restored byte equals the saved byte",
        remedy: "find out what changed or lost the bytes; the evidence names the first difference",
        unchecked: "use a backend that stores files",
        check: RuleCheck::Checkpoints(checkpoints::restored_right),
    },
    Rule {
        name: "restored-from-storage",
        applies: RuleScope::Checkpoints,
        proves: "The time of a restore is that of the storage, not of the page cache",
        threshold: "at most 5 % of the restored bytes were in memory before",
        remedy: "use --cache cold or --store direct",
        unchecked: SHOW_PAGES,
        check: RuleCheck::Checkpoints(checkpoints::restored_from_storage),
    },
    Rule {
        name: "whole-model",
        applies: RuleScope::Checkpoints,
        proves: "The figures are of the model, not of a part of it",
        threshold: "checkpoints have the full size of the model",
        remedy: "remove --scale to measure the full model",
        unchecked: "",
        check: RuleCheck::Checkpoints(checkpoints::whole_model),
    },
];

/// What a rule says about itself, for the documentation.
#[derive(Clone, Copy, Debug)]
pub struct RuleText {
    pub name: &'static str,
    /// The kind of run that it applies to.
    pub applies_to: &'static str,
    /// What is known about a result that passes; a sentence without its full stop.
    pub proves: &'static str,
    pub threshold: &'static str,
    /// What to do if it is broken or adds a note, and if it could not be checked; empty: never so, or the evidence says
    /// it.
    pub remedy: &'static str,
    pub unchecked: &'static str,
}

/// All rules, in the order in which a verdict lists them.
pub fn rule_texts() -> impl Iterator<Item = RuleText> {
    RULES.iter().map(|rule| RuleText {
        name: rule.name,
        applies_to: rule.applies.about(),
        proves: rule.proves,
        threshold: rule.threshold,
        remedy: rule.remedy,
        unchecked: rule.unchecked,
    })
}
