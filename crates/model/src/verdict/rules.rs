//! The table of rules: which there are, what each applies to and needs, and what to do when it does not hold. A rule's
//! check is in another file of this folder.

use super::{
    Case, CheckpointCase, Outcome, TrainingCase, cache, checkpoints, conditions, delivery, errors, integrity,
    prefetch, terms,
};
use crate::ledger::Ledger;
use crate::plan::Plan;

/// What a rule found, and by what.
pub(super) type Found = (Outcome, String);

pub(super) struct Rule {
    pub(super) name: &'static str,
    pub(super) applies: Applies,
    pub(super) threshold: &'static str,
    /// What to do when the rule is broken or there is something to know, and when it could not be checked.
    pub(super) remedy: &'static str,
    pub(super) unchecked: &'static str,
    pub(super) check: Check,
}

/// Which work a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Applies {
    Always,
    Training,
    /// With training and without.
    Checkpoints,
    CheckpointsAlone,
}

impl Applies {
    pub(super) fn to(self, case: &Case<'_>) -> bool {
        match self {
            Applies::Always => true,
            Applies::Training => case.trains(),
            Applies::Checkpoints => case.saves(),
            Applies::CheckpointsAlone => case.saves() && !case.trains(),
        }
    }
}

/// How a rule is checked, by what it needs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Check {
    Ledger(fn(&Ledger) -> Found),
    Plan(fn(&Plan) -> Found),
    Training(fn(&TrainingCase<'_>) -> Found),
    Checkpoints(fn(&CheckpointCase<'_>) -> Found),
    /// Does what it can without a plan.
    Case(fn(&Case<'_>) -> Found),
}

impl Check {
    pub(super) fn apply(self, case: &Case<'_>) -> Found {
        let found = match self {
            Check::Ledger(check) => Some(check(case.ledger)),
            Check::Plan(check) => case.plan.map(check),
            Check::Training(check) => case.training().map(|case| check(&case)),
            Check::Checkpoints(check) => case.checkpoints().map(|case| check(&case)),
            Check::Case(check) => Some(check(case)),
        };
        found.unwrap_or_else(no_plan)
    }
}

/// What a rule answers that needs a plan where there is none.
pub(super) fn no_plan() -> Found {
    (Outcome::NotCheckable, "there is no plan".to_owned())
}

/// The rule about figures that prefetch made.
pub const WINDOW_LONG_ENOUGH: &str = "window-long-enough";

/// In the order in which a verdict lists them.
pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "complete",
        applies: Applies::Training,
        threshold: "every planned epoch and step",
        remedy: "remove the cause named in the evidence and run again",
        unchecked: "",
        check: Check::Case(delivery::complete),
    },
    Rule {
        name: "complete",
        applies: Applies::CheckpointsAlone,
        threshold: "every planned save and restore",
        remedy: "remove the cause named in the evidence and run again",
        unchecked: "",
        check: Check::Checkpoints(checkpoints::complete),
    },
    Rule {
        name: "client-not-the-limit",
        applies: Applies::CheckpointsAlone,
        threshold: "the host's cores were busy at most 95 % of the time",
        remedy: "use fewer ranks per host, or a host with more cores",
        unchecked: "",
        check: Check::Checkpoints(checkpoints::client_not_the_limit),
    },
    Rule {
        name: "exactly-once",
        applies: Applies::Training,
        threshold: "each planned sample once, no other",
        remedy: "this is a fault of feedline: please report it with the ledger",
        unchecked: "finish at least one epoch",
        check: Check::Training(delivery::exactly_once),
    },
    Rule {
        name: "bytes-as-planned",
        applies: Applies::Training,
        threshold: "bytes read = bytes planned",
        remedy: "generate the data set again with the settings of this run",
        unchecked: "",
        check: Check::Training(delivery::bytes_as_planned),
    },
    Rule {
        name: "data-verified",
        applies: Applies::Training,
        threshold: "what was read is what was written",
        remedy: "find out what changed the files; write them again with 'feedline generate --overwrite'",
        unchecked: "compare with --verify sample or full; data sets that 'feedline generate' made can be",
        check: Check::Case(integrity::data_verified),
    },
    Rule {
        name: "order-differs",
        applies: Applies::Training,
        threshold: "no two shuffled epochs alike",
        remedy: "leave train.seed_change_epoch on, or turn the shuffles off",
        unchecked: "",
        check: Check::Training(delivery::order_differs),
    },
    Rule {
        name: "window",
        applies: Applies::Training,
        threshold: "in every epoch a step is left in the metric window, and 5 to tell something by",
        remedy: "lower output.metric.exclude_start_steps and exclude_end_steps, or read more files",
        unchecked: "use a longer run: read more files, or lower --ranks or reader.batch_size",
        check: Check::Training(terms::window),
    },
    Rule {
        name: WINDOW_LONG_ENOUGH,
        applies: Applies::Training,
        threshold: "the window has 20 steps for each batch that can be ready in advance, or the rate over the whole \
                    epoch is at least 95 % of the window's",
        remedy: "",
        unchecked: "read more files, lower --ranks or reader.prefetch_size, or take the rate by the clock",
        check: Check::Training(prefetch::window_long_enough),
    },
    Rule {
        name: "errors",
        applies: Applies::Training,
        threshold: "every read ended well",
        remedy: "see to the storage; with reader.on_error: count a run goes on without such samples",
        unchecked: "",
        check: Check::Case(errors::errors),
    },
    Rule {
        name: "no-injected-faults",
        applies: Applies::Always,
        threshold: "nothing went wrong on purpose",
        remedy: "leave fault: out of the store's name",
        unchecked: "",
        check: Check::Plan(errors::no_injected_faults),
    },
    Rule {
        name: "on-time",
        applies: Applies::Training,
        threshold: "the host's lateness can have cost at most 2 % of the accelerators' time",
        remedy: "use fewer ranks per host, or a host with more cores",
        unchecked: "use a longer run",
        check: Check::Case(conditions::on_time),
    },
    Rule {
        name: "client-not-the-limit",
        applies: Applies::Training,
        threshold: "the instrument's own ceiling lies well above what was measured or wanted",
        remedy: "use fewer ranks per host, or a host with more cores",
        unchecked: "leave out --no-calibration, or use a longer run",
        check: Check::Training(conditions::client_not_the_limit),
    },
    Rule {
        name: "mode-as-requested",
        applies: Applies::Training,
        threshold: "the data was read by the store and in the mode that were asked for",
        remedy: "this is a fault of feedline: please report it with the ledger",
        unchecked: "run again with this version",
        check: Check::Ledger(terms::mode_as_requested),
    },
    Rule {
        name: "settings-honoured",
        applies: Applies::Always,
        threshold: "every setting that changes what is measured took effect",
        remedy: "remove the settings named in the evidence",
        unchecked: "",
        check: Check::Ledger(terms::settings_honoured),
    },
    Rule {
        name: "cache",
        applies: Applies::Training,
        threshold: "bytes came from where they were to come from, the storage or memory, at least 95 % of them",
        remedy: "leave reader.cache at cold, or use --store direct; to measure memory, --cache warm",
        unchecked: "use a file system and a kernel that tell (docs/cache.md), or --store direct",
        check: Check::Training(cache::served_as_asked),
    },
    Rule {
        name: "read-amplification",
        applies: Applies::Training,
        threshold: "at most 1.1 bytes from the storage for each that was read",
        remedy: "where samples are parts of files: reader.readahead=random, or larger samples",
        unchecked: "",
        check: Check::Training(cache::read_amplification),
    },
    Rule {
        name: "data-set-size",
        applies: Applies::Training,
        threshold: "at least MLPerf Storage's size: 500 steps and 5 times the memory of all hosts",
        remedy: "where MLPerf's rules count: 'feedline plan' says how many files they take",
        unchecked: "",
        check: Check::Training(terms::data_set_size),
    },
    Rule {
        name: "host",
        applies: Applies::Always,
        threshold: "a clock that is quick to read, at most 5 % of CPU time stolen and 20 % used by others, no swapping",
        remedy: "measure on a host that has nothing else to do",
        unchecked: "",
        check: Check::Ledger(terms::host),
    },
    Rule {
        name: "checkpoints-saved",
        applies: Applies::Checkpoints,
        threshold: "every checkpoint became complete on the tier where it is to stay",
        remedy: "remove the cause named in the evidence and run again",
        unchecked: "",
        check: Check::Checkpoints(checkpoints::saved),
    },
    Rule {
        name: "checkpoints-durable",
        applies: Applies::Checkpoints,
        threshold: "a save ends when its bytes would survive a crash",
        remedy: "set checkpoint.fsync, which MLPerf Storage asks for",
        unchecked: "",
        check: Check::Checkpoints(checkpoints::durable),
    },
    Rule {
        name: "restored-right",
        applies: Applies::Checkpoints,
        threshold: "every byte that was restored is the one that was saved",
        remedy: "find out what changed or lost the bytes; the evidence names the first place",
        unchecked: "use a store that holds files",
        check: Check::Checkpoints(checkpoints::restored_right),
    },
    Rule {
        name: "restored-from-storage",
        applies: Applies::Checkpoints,
        threshold: "at most 5 % of what was restored was in memory before",
        remedy: "leave reader.cache at cold, or use --store direct",
        unchecked: "use a file system and a kernel that tell (docs/cache.md), or --store direct",
        check: Check::Checkpoints(checkpoints::restored_from_storage),
    },
    Rule {
        name: "whole-model",
        applies: Applies::Checkpoints,
        threshold: "checkpoints have the size of the model",
        remedy: "leave --scale out where the figures are to stand for the model",
        unchecked: "",
        check: Check::Checkpoints(checkpoints::whole_model),
    },
];
