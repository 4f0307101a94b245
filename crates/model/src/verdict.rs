//! Whether the number may be believed. One table of rules, each with its threshold, its evidence from the ledger and
//! its remedy; the verdict follows from the rules and from nothing else.

mod cache;
mod checkpoints;
mod conditions;
mod delivery;
mod errors;
mod integrity;
mod prefetch;
mod proof;
mod terms;

use serde::{Deserialize, Serialize};

pub use delivery::expected_digest;

use crate::checkpoint::CheckpointPlan;
use crate::ledger::{Ledger, Phase};
use crate::plan::{PhasePlan, Plan};

/// What the run as a whole is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Every rule was checked and holds.
    Valid,
    /// A rule is broken: the figures do not mean what they say.
    Invalid,
    /// No rule is broken, but something could not be checked.
    Unverified,
    /// The run did not reach its end.
    Incomplete,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Status::Valid => "valid",
            Status::Invalid => "invalid",
            Status::Unverified => "unverified",
            Status::Incomplete => "incomplete",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Pass,
    /// It holds, and there is something to know: shown, and without effect on the status.
    Note,
    Fail,
    NotCheckable,
}

/// One rule, applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub rule: String,
    pub outcome: Outcome,
    pub threshold: String,
    pub evidence: String,
    /// What to do about it; empty when the rule holds.
    pub remedy: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub status: Status,
    pub rules: Vec<Finding>,
}

impl Verdict {
    /// The status, and of an invalid result which rules are broken: `invalid (cache)`.
    pub fn headline(&self) -> String {
        match self.status {
            Status::Invalid => format!("invalid ({})", self.broken().collect::<Vec<_>>().join(", ")),
            status => status.to_string(),
        }
    }

    /// The names of the rules that are broken.
    pub fn broken(&self) -> impl Iterator<Item = &str> {
        self.with(Outcome::Fail)
    }

    /// The names of the rules that could not be checked.
    pub fn unchecked(&self) -> impl Iterator<Item = &str> {
        self.with(Outcome::NotCheckable)
    }

    fn with(&self, outcome: Outcome) -> impl Iterator<Item = &str> {
        let rules = self.rules.iter().filter(move |finding| finding.outcome == outcome);
        rules.map(|finding| finding.rule.as_str())
    }
}

/// What the rules look at, and nothing else: so a verdict can be recomputed from a result at any time.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    pub plan: &'a Plan,
    pub ledger: &'a Ledger,
}

/// What the rules of checkpoints look at.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointCase<'a> {
    pub plan: &'a CheckpointPlan,
    pub ledger: &'a Ledger,
    /// Checkpoints that are to be saved.
    planned: u64,
}

impl<'a> CheckpointCase<'a> {
    /// Of a run that does not train.
    pub fn alone(plan: &'a CheckpointPlan, ledger: &'a Ledger) -> CheckpointCase<'a> {
        CheckpointCase { plan, ledger, planned: plan.schedule.saves(0, 0) }
    }
}

struct Rule<Check> {
    name: &'static str,
    threshold: &'static str,
    /// What to do when the rule is broken or there is something to know, and when it could not be checked.
    remedy: &'static str,
    unchecked: &'static str,
    check: Check,
}

type OfTraining = fn(&Case<'_>) -> (Outcome, String);
type OfCheckpoints = fn(&CheckpointCase<'_>) -> (Outcome, String);

/// The rule about figures that prefetch made.
pub const WINDOW_LONG_ENOUGH: &str = "window-long-enough";

const RULES: &[Rule<OfTraining>] = &[
    Rule {
        name: "complete",
        threshold: "every planned epoch and step",
        remedy: "remove the cause named in the evidence and run again",
        unchecked: "",
        check: delivery::complete,
    },
    Rule {
        name: "exactly-once",
        threshold: "each planned sample once, no other",
        remedy: "this is a fault of feedline: please report it with the ledger",
        unchecked: "finish at least one epoch",
        check: delivery::exactly_once,
    },
    Rule {
        name: "bytes-as-planned",
        threshold: "bytes read = bytes planned",
        remedy: "generate the data set again with the settings of this run",
        unchecked: "",
        check: delivery::bytes_as_planned,
    },
    Rule {
        name: "data-verified",
        threshold: "what was read is what was written",
        remedy: "find out what changed the files; write them again with 'feedline generate --overwrite'",
        unchecked: "compare with --verify sample or full; data sets that 'feedline generate' made can be",
        check: integrity::data_verified,
    },
    Rule {
        name: "order-differs",
        threshold: "no two shuffled epochs alike",
        remedy: "leave train.seed_change_epoch on, or turn the shuffles off",
        unchecked: "",
        check: delivery::order_differs,
    },
    Rule {
        name: "window",
        threshold: "in every epoch a step is left in the metric window, and 5 to tell something by",
        remedy: "lower output.metric.exclude_start_steps and exclude_end_steps, or read more files",
        unchecked: "use a longer run: read more files, or lower --ranks or reader.batch_size",
        check: terms::window,
    },
    Rule {
        name: WINDOW_LONG_ENOUGH,
        threshold: "the window has 20 steps for each batch that can be ready in advance, or the rate over the whole \
                    epoch is at least 95 % of the window's",
        remedy: "",
        unchecked: "read more files, lower --ranks or reader.prefetch_size, or take the rate by the clock",
        check: prefetch::window_long_enough,
    },
    Rule {
        name: "errors",
        threshold: "every read ended well",
        remedy: "see to the storage; with reader.on_error: count a run goes on without such samples",
        unchecked: "",
        check: errors::errors,
    },
    no_injected_faults::<OfTraining>(errors::no_injected_faults),
    Rule {
        name: "on-time",
        threshold: "the host's lateness can have cost at most 2 % of the accelerators' time",
        remedy: "use fewer ranks per host, or a host with more cores",
        unchecked: "use a longer run",
        check: conditions::on_time,
    },
    Rule {
        name: "client-not-the-limit",
        threshold: "the instrument's own ceiling lies well above what was measured or wanted",
        remedy: "use fewer ranks per host, or a host with more cores",
        unchecked: "leave out --no-calibration, or use a longer run",
        check: conditions::client_not_the_limit,
    },
    Rule {
        name: "mode-as-requested",
        threshold: "the data was read by the store and in the mode that were asked for",
        remedy: "this is a fault of feedline: please report it with the ledger",
        unchecked: "run again with this version",
        check: terms::mode_as_requested,
    },
    settings_honoured::<OfTraining>(|case| terms::settings_honoured(case.ledger)),
    Rule {
        name: "cache",
        threshold: "bytes came from where they were to come from, the storage or memory, at least 95 % of them",
        remedy: "leave reader.cache at cold, or use --store direct; to measure memory, --cache warm",
        unchecked: "use a file system and a kernel that tell (docs/cache.md), or --store direct",
        check: cache::served_as_asked,
    },
    Rule {
        name: "read-amplification",
        threshold: "at most 1.1 bytes from the storage for each that was read",
        remedy: "where samples are parts of files: reader.readahead=random, or larger samples",
        unchecked: "",
        check: cache::read_amplification,
    },
    Rule {
        name: "data-set-size",
        threshold: "at least MLPerf Storage's size: 500 steps and 5 times the memory of all hosts",
        remedy: "where MLPerf's rules count: 'feedline plan' says how many files they take",
        unchecked: "",
        check: terms::data_set_size,
    },
    host::<OfTraining>(|case| terms::host(case.ledger)),
];

/// The rules of checkpoints, with training and without.
const CHECKPOINT_RULES: &[Rule<OfCheckpoints>] = &[
    Rule {
        name: "checkpoints-saved",
        threshold: "every checkpoint became complete on the tier where it is to stay",
        remedy: "remove the cause named in the evidence and run again",
        unchecked: "",
        check: checkpoints::saved,
    },
    Rule {
        name: "checkpoints-durable",
        threshold: "a save ends when its bytes would survive a crash",
        remedy: "set checkpoint.fsync, which MLPerf Storage asks for",
        unchecked: "",
        check: checkpoints::durable,
    },
    Rule {
        name: "restored-right",
        threshold: "every byte that was restored is the one that was saved",
        remedy: "find out what changed or lost the bytes; the evidence names the first place",
        unchecked: "use a store that holds files",
        check: checkpoints::restored_right,
    },
    Rule {
        name: "restored-from-storage",
        threshold: "at most 5 % of what was restored was in memory before",
        remedy: "leave reader.cache at cold, or use --store direct",
        unchecked: "use a file system and a kernel that tell (docs/cache.md), or --store direct",
        check: checkpoints::restored_from_storage,
    },
    Rule {
        name: "whole-model",
        threshold: "checkpoints have the size of the model",
        remedy: "leave --scale out where the figures are to stand for the model",
        unchecked: "",
        check: checkpoints::whole_model,
    },
];

/// What else is looked at where there is no training.
const ALONE_RULES: &[Rule<OfCheckpoints>] = &[
    Rule {
        name: "complete",
        threshold: "every planned save and restore",
        remedy: "remove the cause named in the evidence and run again",
        unchecked: "",
        check: checkpoints::complete,
    },
    Rule {
        name: "client-not-the-limit",
        threshold: "the host's cores were busy at most 95 % of the time",
        remedy: "use fewer ranks per host, or a host with more cores",
        unchecked: "",
        check: checkpoints::client_not_the_limit,
    },
    no_injected_faults::<OfCheckpoints>(|case| errors::injected(case.plan.injected_faults())),
    settings_honoured::<OfCheckpoints>(|case| terms::settings_honoured(case.ledger)),
    host::<OfCheckpoints>(|case| terms::host(case.ledger)),
];

const fn no_injected_faults<Check: Copy>(check: Check) -> Rule<Check> {
    Rule {
        name: "no-injected-faults",
        threshold: "nothing went wrong on purpose",
        remedy: "leave fault: out of the store's name",
        unchecked: "",
        check,
    }
}

const fn settings_honoured<Check: Copy>(check: Check) -> Rule<Check> {
    Rule {
        name: "settings-honoured",
        threshold: "every setting that changes what is measured took effect",
        remedy: "remove the settings named in the evidence",
        unchecked: "",
        check,
    }
}

const fn host<Check: Copy>(check: Check) -> Rule<Check> {
    Rule {
        name: "host",
        threshold: "a clock that is quick to read, at most 5 % of CPU time stolen and 20 % used by others, no swapping",
        remedy: "measure on a host that has nothing else to do",
        unchecked: "",
        check,
    }
}

/// Applies every rule to a run that trains.
pub fn judge(case: &Case<'_>) -> Verdict {
    let mut rules: Vec<Finding> = RULES.iter().map(|rule| finding(rule, (rule.check)(case))).collect();
    if let Some(plan) = &case.plan.checkpoint {
        let planned = plan.schedule.saves(case.plan.epochs, case.plan.train.shards.steps);
        rules.extend(apply(CHECKPOINT_RULES, &CheckpointCase { plan, ledger: case.ledger, planned }));
    }
    conclude(rules)
}

/// Applies the rules to a run that only saves and restores.
pub fn judge_checkpoints(case: &CheckpointCase<'_>) -> Verdict {
    conclude([ALONE_RULES, CHECKPOINT_RULES].into_iter().flat_map(|rules| apply(rules, case)).collect())
}

fn apply(rules: &[Rule<OfCheckpoints>], case: &CheckpointCase<'_>) -> Vec<Finding> {
    rules.iter().map(|rule| finding(rule, (rule.check)(case))).collect()
}

fn conclude(rules: Vec<Finding>) -> Verdict {
    let outcome_of =
        |name: &str| rules.iter().find(|finding| finding.rule == name).map(|finding| finding.outcome);
    let any = |outcome| rules.iter().any(|finding| finding.outcome == outcome);
    let status = if outcome_of("complete") == Some(Outcome::Fail) {
        Status::Incomplete
    } else if any(Outcome::Fail) {
        Status::Invalid
    } else if any(Outcome::NotCheckable) {
        Status::Unverified
    } else {
        Status::Valid
    };
    Verdict { status, rules }
}

fn finding<Check>(rule: &Rule<Check>, (outcome, evidence): (Outcome, String)) -> Finding {
    let remedy = match outcome {
        Outcome::Pass => "",
        Outcome::Note | Outcome::Fail => rule.remedy,
        Outcome::NotCheckable => rule.unchecked,
    };
    Finding {
        rule: rule.name.to_owned(),
        outcome,
        threshold: rule.threshold.to_owned(),
        evidence,
        remedy: remedy.to_owned(),
    }
}

/// Each phase of each epoch that the plan has. There may be very many: take them one by one, and stop.
fn planned_phases(plan: &Plan) -> impl Iterator<Item = (u64, &PhasePlan)> {
    (1..=plan.epochs).flat_map(|epoch| plan.phases(epoch).map(move |phase| (epoch, phase)))
}

/// Each phase that the ledger has rows of.
fn seen_phases<'a>(case: &Case<'a>) -> impl Iterator<Item = (u64, &'a PhasePlan)> {
    let (plan, ledger) = (case.plan, case.ledger);
    [Phase::Train, Phase::Eval].into_iter().flat_map(move |phase| {
        let planned = plan.phase(phase);
        ledger.epochs(phase).into_iter().filter_map(move |epoch| planned.map(|planned| (epoch, planned)))
    })
}

#[cfg(test)]
mod tests;
