//! The report of `feedline validate`: the verdict by the rules of this version, and how it differs from the recorded
//! one.

use std::fmt::Write;

use model::units::counted;
use model::verdict::{Finding, RuleOutcome, Verdict};
use serde::Serialize;
use serde_json::{Value, json};

use super::text;
use crate::commands::saved::SavedResult;

/// A rule whose outcome changed. A new rule has no `was`, a removed rule no `is`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RuleChange {
    pub rule: String,
    pub was: Option<RuleOutcome>,
    pub is: Option<RuleOutcome>,
}

/// A recomputed verdict.
#[derive(Debug)]
pub(crate) struct Validation<'a> {
    saved: &'a SavedResult,
    pub verdict: Verdict,
    changes: Vec<RuleChange>,
}

impl<'a> Validation<'a> {
    pub(crate) fn new(saved: &'a SavedResult) -> Validation<'a> {
        let verdict = saved.judge();
        let changes = changes(&saved.recorded, &verdict);
        Validation { saved, verdict, changes }
    }

    pub(crate) fn text(&self) -> String {
        let SavedResult { folder, version, files, recorded, .. } = self.saved;
        let files = counted(*files as u64, "file");
        let state = format!("{files}, unchanged, written by feedline {version}");
        let place = super::path_heading(folder.display(), &state);
        let mut text = String::new();
        text.push_str(&text::verdict(&self.verdict));
        if recorded.status != self.verdict.status || !self.changes.is_empty() {
            let _ = writeln!(text, "recorded verdict: {}", recorded.status);
        }
        for RuleChange { rule, was, is } in &self.changes {
            let word = |outcome: Option<RuleOutcome>| outcome.map_or("absent", text::outcome);
            let _ = writeln!(text, "  {rule}: was {}, is {}", word(*was), word(*is));
        }
        place + &super::fitted(&text)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "folder": self.saved.folder,
            "refused": null,
            "version": self.saved.version,
            "verdict": self.verdict,
            "recorded_status": self.saved.recorded.status,
            "changes": self.changes,
        })
    }
}

fn changes(recorded: &Verdict, verdict: &Verdict) -> Vec<RuleChange> {
    let outcome = |verdict: &Verdict, rule: &str| {
        let finding = verdict.rules.iter().find(|finding| finding.rule == rule);
        finding.map(|finding| finding.outcome)
    };
    let gone = recorded.rules.iter().filter(|finding| outcome(verdict, &finding.rule).is_none());
    let change = |Finding { rule, .. }: &Finding| RuleChange {
        rule: rule.clone(),
        was: outcome(recorded, rule),
        is: outcome(verdict, rule),
    };
    verdict.rules.iter().chain(gone).map(change).filter(|change| change.was != change.is).collect()
}

#[cfg(test)]
mod tests {
    use model::verdict::Status;

    use super::*;

    fn verdict(rules: &[(&str, RuleOutcome)]) -> Verdict {
        let finding = |(rule, outcome): &(&str, RuleOutcome)| Finding {
            rule: (*rule).to_owned(),
            outcome: *outcome,
            threshold: String::new(),
            evidence: String::new(),
            remedy: String::new(),
        };
        Verdict { status: Status::Valid, rules: rules.iter().map(finding).collect() }
    }

    #[test]
    fn changed_new_and_removed_rules_are_named() {
        let was = verdict(&[
            ("same", RuleOutcome::Pass),
            ("other", RuleOutcome::Pass),
            ("gone", RuleOutcome::Fail),
        ]);
        let is =
            verdict(&[("other", RuleOutcome::Fail), ("new", RuleOutcome::Note), ("same", RuleOutcome::Pass)]);
        let change = |rule: &str, was, is| RuleChange { rule: rule.to_owned(), was, is };
        assert_eq!(
            changes(&was, &is),
            [
                change("other", Some(RuleOutcome::Pass), Some(RuleOutcome::Fail)),
                change("new", None, Some(RuleOutcome::Note)),
                change("gone", Some(RuleOutcome::Fail), None),
            ]
        );
    }
}
