//! What a rule says about a result.

use serde::Serialize;

/// A rule of MLPerf Storage: its number and its name in the rules. Rules of this program have a word instead of a
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MlperfRule(pub &'static str, pub &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MlperfOutcome {
    Fail,
    /// The rules advise against it, or it must be explained.
    Warning,
    /// The documents do not say.
    NotCheckable,
    Pass,
}

impl MlperfOutcome {
    pub const ALL: [MlperfOutcome; 4] =
        [MlperfOutcome::Fail, MlperfOutcome::Warning, MlperfOutcome::NotCheckable, MlperfOutcome::Pass];

    pub fn name(self) -> &'static str {
        match self {
            MlperfOutcome::Fail => "fail",
            MlperfOutcome::Warning => "warning",
            MlperfOutcome::NotCheckable => "not checkable",
            MlperfOutcome::Pass => "pass",
        }
    }
}

/// The result of one rule for one file or folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MlperfFinding {
    pub rule: &'static str,
    pub name: &'static str,
    pub outcome: MlperfOutcome,
    /// The folder, or the file, to which it applies.
    pub place: String,
    /// What was found, and what is required.
    pub evidence: String,
    /// What to do; absent if nothing is to be done.
    pub remedy: Option<String>,
}

/// The findings about one folder.
#[derive(Debug)]
pub(super) struct FindingList {
    place: String,
    pub list: Vec<MlperfFinding>,
}

impl FindingList {
    pub(super) fn at(place: &str) -> FindingList {
        FindingList { place: place.to_owned(), list: Vec::new() }
    }

    fn push(&mut self, rule: MlperfRule, outcome: MlperfOutcome, evidence: String, remedy: Option<&str>) {
        let MlperfRule(number, name) = rule;
        let (place, remedy) = (self.place.clone(), remedy.map(str::to_owned));
        self.list.push(MlperfFinding { rule: number, name, outcome, place, evidence, remedy });
    }

    /// A rule that holds or fails; `None`: the documents do not say.
    pub(super) fn judge(&mut self, rule: MlperfRule, holds: Option<bool>, evidence: String, remedy: &str) {
        match holds {
            Some(true) => self.push(rule, MlperfOutcome::Pass, evidence, None),
            Some(false) => self.push(rule, MlperfOutcome::Fail, evidence, Some(remedy)),
            None => self.push(rule, MlperfOutcome::NotCheckable, evidence, None),
        }
    }

    /// The same for a rule that only advises.
    pub(super) fn advise(&mut self, rule: MlperfRule, holds: Option<bool>, evidence: String, remedy: &str) {
        match holds {
            Some(false) => self.push(rule, MlperfOutcome::Warning, evidence, Some(remedy)),
            other => self.judge(rule, other, evidence, remedy),
        }
    }

    pub(super) fn unknown(&mut self, rule: MlperfRule, why: impl Into<String>) {
        self.push(rule, MlperfOutcome::NotCheckable, why.into(), None);
    }
}
