//! What this host and its folders offer to feedline, as one table of checks. A check observes a fact and says what
//! follows from it; it changes nothing and leaves nothing behind. How the answers are shown is decided in `report`.

mod folder;
mod host;

use std::path::Path;

use serde::Serialize;

use folder::FolderView;
pub(crate) use host::{HostView, mpi_libraries};

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HealthState {
    NotApplicable,
    Ok,
    /// Something that some runs need is not there.
    Limited,
    /// Something that every run needs is not there.
    Missing,
}

impl HealthState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            HealthState::NotApplicable => "n/a",
            HealthState::Ok => "ok",
            HealthState::Limited => "limited",
            HealthState::Missing => "missing",
        }
    }
}

/// What is checked.
pub(crate) enum HealthSubject {
    Host(fn(&HostView) -> HealthAnswer),
    Folder(fn(&FolderView) -> HealthAnswer),
}

/// A check.
pub(crate) struct HealthCheck {
    pub(crate) name: &'static str,
    /// What is tested.
    pub(crate) about: &'static str,
    /// What follows if the state is not `ok`.
    pub(crate) means: &'static str,
    /// What to do about it. The answer of a check can be more precise.
    pub(crate) remedy: &'static str,
    pub(crate) subject: HealthSubject,
}

/// All checks, in the order in which they are shown: those of the host, then those of each folder.
pub(crate) fn checks() -> impl Iterator<Item = &'static HealthCheck> {
    host::CHECKS.iter().chain(folder::CHECKS)
}

/// The answer of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HealthAnswer {
    state: HealthState,
    observed: String,
    means: Option<String>,
    remedy: Option<String>,
}

impl HealthAnswer {
    fn new(state: HealthState, observed: impl Into<String>) -> HealthAnswer {
        HealthAnswer { state, observed: observed.into(), means: None, remedy: None }
    }

    fn ok(observed: impl Into<String>) -> HealthAnswer {
        HealthAnswer::new(HealthState::Ok, observed)
    }

    fn limited(observed: impl Into<String>) -> HealthAnswer {
        HealthAnswer::new(HealthState::Limited, observed)
    }

    fn missing(observed: impl Into<String>) -> HealthAnswer {
        HealthAnswer::new(HealthState::Missing, observed)
    }

    fn not_applicable(observed: impl Into<String>) -> HealthAnswer {
        HealthAnswer::new(HealthState::NotApplicable, observed)
    }

    /// Replaces what the table says follows.
    fn means(self, means: impl Into<String>) -> HealthAnswer {
        HealthAnswer { means: Some(means.into()), ..self }
    }

    /// Replaces what the table says is to be done.
    fn remedy(self, remedy: impl Into<String>) -> HealthAnswer {
        HealthAnswer { remedy: Some(remedy.into()), ..self }
    }
}

/// The answer of a check as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct HealthResult {
    pub(crate) name: &'static str,
    about: &'static str,
    pub(crate) state: HealthState,
    pub(crate) observed: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) means: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl HealthResult {
    fn of(check: &HealthCheck, answer: HealthAnswer) -> HealthResult {
        let HealthAnswer { state, observed, means, remedy } = answer;
        let is_told = state >= HealthState::Limited;
        let text = |precise: Option<String>, general: &str| {
            is_told.then(|| precise.unwrap_or_else(|| general.to_owned()))
        };
        HealthResult {
            name: check.name,
            about: check.about,
            state,
            observed,
            means: text(means, check.means),
            remedy: text(remedy, check.remedy),
        }
    }
}

/// The results for the host.
pub(crate) fn check_host(view: &HostView) -> Vec<HealthResult> {
    let answer = |check: &HealthCheck| match check.subject {
        HealthSubject::Host(run) => Some(HealthResult::of(check, run(view))),
        HealthSubject::Folder(_) => None,
    };
    checks().filter_map(answer).collect()
}

/// The results for a folder.
pub(crate) fn check_folder(path: &Path) -> Vec<HealthResult> {
    let view = FolderView::of(path);
    let answer = |check: &HealthCheck| match check.subject {
        HealthSubject::Folder(run) => Some(HealthResult::of(check, run(&view))),
        HealthSubject::Host(_) => None,
    };
    checks().filter_map(answer).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PAGE: &str = include_str!("../../../../docs/reference/doctor.md");

    /// The section of a check in docs/reference/doctor.md.
    fn section(check: &HealthCheck) -> String {
        format!(
            "### {}\n\n{}\n\n- Limits: {}\n- Remedy: {}\n",
            check.name, check.about, check.means, check.remedy
        )
    }

    #[test]
    fn the_page_has_a_section_for_each_check() {
        let sections: Vec<String> = checks().map(section).collect();
        let headings = |text: &str| {
            text.lines().filter(|line| line.starts_with("### ")).map(ToOwned::to_owned).collect::<Vec<_>>()
        };
        let expected = sections.join("\n");
        assert_eq!(headings(PAGE), headings(&expected), "the sections are:\n{expected}");
        for section in &sections {
            assert!(PAGE.contains(section.as_str()), "docs/reference/doctor.md lacks:\n{section}");
        }
    }

    #[test]
    fn names_are_unique_and_fit_their_column() {
        let names: BTreeSet<&str> = checks().map(|check| check.name).collect();
        assert_eq!(names.len(), checks().count());
        assert!(names.iter().all(|name| name.len() <= crate::report::doctor::NAME_COLUMNS), "{names:?}");
    }

    #[test]
    fn texts_are_sentences() {
        for check in checks() {
            for text in [check.about, check.means, check.remedy] {
                let begins = text.starts_with(|c: char| c.is_uppercase()) || text.starts_with("feedline ");
                assert!(begins && text.ends_with('.'), "{}: {text}", check.name);
            }
        }
    }

    #[test]
    fn only_states_that_limit_have_consequences() {
        let check = checks().next().unwrap();
        for state in [HealthState::NotApplicable, HealthState::Ok] {
            let result = HealthResult::of(check, HealthAnswer::new(state, "x"));
            assert_eq!((result.means, result.remedy), (None, None));
        }
        let result = HealthResult::of(check, HealthAnswer::limited("x").means("m"));
        assert_eq!((result.means.as_deref(), result.remedy.as_deref()), (Some("m"), Some(check.remedy)));
        assert!(HealthState::Missing > HealthState::Limited && HealthState::Limited > HealthState::Ok);
    }
}
