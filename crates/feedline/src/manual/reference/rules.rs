//! The page of rules: those of the verdict, and those of an audit.

use audit::judge;
use model::verdict::rule_texts;

use super::{cell, table};

const INTRODUCTION: &str = "\
# Rules

## Rules of the verdict

A rule passes, fails, is not checkable, or passes with a note. A rule that fails makes the verdict *invalid*, or
*incomplete* if the run did not finish; one that is not checkable makes it *unverified*.
[Results](results.md#verdict) has the details of each rule, [checkpoints](../guides/checkpoints.md#rules) those of
checkpoints.
";

const AUDIT: &str = "
## Rules of an audit

`feedline audit` judges these rules in this order, causes before symptoms. Each name leads to the page with an
example and its thresholds. A finding can be less severe than its rule, and says why.

";

pub(super) fn text() -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut names: Vec<&str> = Vec::new();
    for rule in rule_texts() {
        // Some rules have one form for training and another for checkpoints.
        if !names.contains(&rule.name) {
            text.push_str(&format!("\n### {}\n", rule.name));
            names.push(rule.name);
        }
        text.push_str(&format!("\n{}.\n\n- **Applies to:** {}.\n", rule.proves, rule.applies_to));
        text.push_str(&format!("- **Passes if:** {}.\n", cell(rule.threshold)));
        for (heading, remedy) in [("If it fails", rule.remedy), ("If it cannot be checked", rule.unchecked)] {
            if !remedy.is_empty() {
                text.push_str(&format!("- **{heading}:** {}.\n", cell(remedy)));
            }
        }
    }
    text.push_str(AUDIT);
    let rows = judge::RULES.iter().map(|rule| {
        let needs: Vec<&str> = rule.needs.iter().map(|need| need.about()).collect();
        let severity = format!("{:?}", rule.severity).to_lowercase();
        vec![
            format!("[{name}](findings.md#{name})", name = rule.name),
            cell(rule.about),
            severity,
            cell(&needs.join(", ")),
        ]
    });
    text.push_str(&table(&["rule", "fault", "severity", "needs"], rows));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_says_what_it_proves_and_what_to_do() {
        for rule in rule_texts() {
            let is_sentence = rule.proves.starts_with(char::is_uppercase) && !rule.proves.ends_with('.');
            assert!(is_sentence && !rule.threshold.is_empty(), "{rule:?}");
            assert!(!rule.remedy.is_empty() || !rule.unchecked.is_empty(), "{rule:?}");
        }
    }
}
