//! An audit as text.

use model::observed::{Findings, Observed};

/// Where the text goes, which decides about its colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Err,
}

/// How the text is to look.
pub(crate) struct AuditText {
    pub stream: Stream,
    pub width: usize,
}

impl AuditText {
    pub(crate) fn render(&self, observed: &Observed, findings: &Findings) -> String {
        let _ = (self.stream, self.width);
        format!("{:?}: {} findings\n", observed.exit, findings.findings.len())
    }
}
