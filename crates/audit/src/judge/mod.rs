//! Rules: from what was observed to what is wrong.

use model::observed::{FINDINGS_VERSION, Findings, Observed};

/// Judges what was observed.
pub fn judge(_observed: &Observed) -> Findings {
    Findings { version: FINDINGS_VERSION, ..Findings::default() }
}
