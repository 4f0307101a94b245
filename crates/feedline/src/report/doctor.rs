//! The report of `feedline doctor`: a table for the host and one for each folder, followed by what is limited or
//! missing, with its consequences and what to do. The same as a JSON document.

use model::units::counted;
use serde::Serialize;

use super::{layout, printable};
use crate::doctor::{HealthResult, HealthState};
use crate::terminal::{self, Tone};
use crate::version;

const STATE_COLUMNS: usize = 7;
/// The width of the column of names.
pub(crate) const NAME_COLUMNS: usize = 13;

/// What the checks found.
#[derive(Debug, Serialize)]
pub(crate) struct HealthReport {
    version: &'static str,
    commit: &'static str,
    /// The worst of all states.
    pub(crate) state: HealthState,
    pub(crate) host: Vec<HealthResult>,
    pub(crate) folders: Vec<FolderHealth>,
}

/// The results for a folder.
#[derive(Debug, Serialize)]
pub(crate) struct FolderHealth {
    pub(crate) path: String,
    pub(crate) checks: Vec<HealthResult>,
}

impl HealthReport {
    pub(crate) fn new(host: Vec<HealthResult>) -> HealthReport {
        HealthReport {
            version: env!("CARGO_PKG_VERSION"),
            commit: version::COMMIT,
            state: HealthState::Ok,
            host,
            folders: Vec::new(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &HealthResult> {
        self.host.iter().chain(self.folders.iter().flat_map(|folder| &folder.checks))
    }

    /// To be called when all folders were added.
    pub(crate) fn finish(&mut self) {
        let worst = self.all().map(|result| result.state).max();
        self.state = worst.unwrap_or(HealthState::Ok).max(HealthState::Ok);
    }

    pub(crate) fn host_text(&self) -> String {
        format!("feedline {}\n\nhost\n{}", version::SHORT, results_text(&self.host))
    }

    pub(crate) fn summary(&self) -> String {
        let count = |state| self.all().filter(|result| result.state == state).count();
        let all = counted(self.all().count() as u64, "check");
        let (limited, missing) = (count(HealthState::Limited), count(HealthState::Missing));
        super::fitted(&format!("\n{all}: {limited} limited, {missing} missing\n"))
    }
}

impl FolderHealth {
    pub(crate) fn text(&self) -> String {
        let path = printable(&self.path);
        format!(
            "\n{}\n{}",
            layout::labelled_path("folder", path, terminal::columns()),
            results_text(&self.checks)
        )
    }
}

/// A line for each check, then what is limited or missing.
fn results_text(results: &[HealthResult]) -> String {
    let hanging = 2 + STATE_COLUMNS + 2 + NAME_COLUMNS + 2;
    let mut text = String::new();
    for result in results {
        let (state, name) = (result.state.name(), result.name);
        let observed = printable(&result.observed);
        let line = format!("  {state:<STATE_COLUMNS$}  {name:<NAME_COLUMNS$}  {observed}");
        text.push_str(&coloured(&layout::wrapped(&line, hanging, terminal::columns()), result.state));
        text.push('\n');
    }
    for result in results {
        let (Some(means), Some(remedy)) = (&result.means, &result.remedy) else { continue };
        let heading = coloured(&format!("  {}", result.state.name()), result.state);
        text.push_str(&format!("\n{heading}: {}\n", result.name));
        for (label, told) in [("means: ", means), ("remedy:", remedy)] {
            let line = format!("    {label} {}", printable(told));
            text.push_str(&layout::wrapped(&line, 12, terminal::columns()));
            text.push('\n');
        }
    }
    text
}

/// A line that starts with a state, which gets the colour of the state.
fn coloured(line: &str, state: HealthState) -> String {
    let tone = match state {
        HealthState::NotApplicable => return line.to_owned(),
        HealthState::Ok => Tone::Good,
        HealthState::Limited => Tone::Doubtful,
        HealthState::Missing => Tone::Bad,
    };
    line.replacen(state.name(), &tone.out(state.name()), 1)
}
