//! The kinds of JSON documents that feedline writes, each with the version of its schema. A document states its version
//! in the key `schema_version`, and a reader refuses a document of a later version before it interprets it.

use serde::{Deserialize, Serialize};
use serde_json::Number;

/// A kind of JSON document. Its schema is docs/schemas/NAME.schema.json.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentKind {
    pub name: &'static str,
    /// Increases by one whenever an existing key is removed, or changes its type or meaning.
    pub version: u32,
    /// The file or the command, in Markdown.
    pub place: &'static str,
}

/// Defines a constant for each kind, and the list of all kinds.
macro_rules! documents {
    ($($constant:ident: $name:literal $version:literal, $place:literal;)+) => {
        $(pub const $constant: DocumentKind =
            DocumentKind { name: $name, version: $version, place: $place };)+

        /// All kinds.
        pub const DOCUMENTS: &[DocumentKind] = &[$($constant),+];
    };
}

documents! {
    SUMMARY: "summary" 1, "`summary.json` of a run, `result.json` in a folder of DLIO, `feedline run --json`";
    PLAN: "plan" 1, "`plan.json` of a run";
    LEDGER: "ledger" 1, "`ledger.json` of a run or an audit";
    AUDIT_SUMMARY: "audit-summary" 1, "`summary.json` of an audit";
    FINDINGS: "findings" 1, "`findings.json` of an audit, `feedline audit --json`";
    SWEEP: "sweep" 1, "`sweep.json`, `feedline sweep --json`";
    SWEEP_JOURNAL: "sweep-journal" 1, "`cells.jsonl` of a sweep, one document for each line";
    CAPACITY: "capacity" 1, "`capacity.json`, `feedline capacity --json`";
    CAPACITY_JOURNAL: "capacity-journal" 1, "`trials.jsonl` of a capacity search, one document for each line";
    STALL: "stall" 1, "`stall.json`, `feedline stall --json`";
    STALL_JOURNAL: "stall-journal" 1, "`runs.jsonl` of a stall analysis, one document for each line";
    DATA_SET: "data-set" 1, "`.feedline/dataset.json` of a data folder";
    CHECKPOINT: "checkpoint" 1,
        "`checkpoint.json` and `checkpoint.draft` of a checkpoint, followed by a line with a checksum";
    PLAN_REPORT: "plan-report" 1, "`feedline plan --json`";
    DATA_SET_PLAN: "data-set-plan" 1, "`feedline plan --json` for a workload that neither trains nor saves";
    HOST_PLANS: "host-plans" 1, "`feedline plan --hosts 1,2,4 --json`";
    GENERATION: "generation" 1, "`feedline generate --json`";
    VALIDATION: "validation" 1, "`feedline validate --json`";
    COMPARISON: "comparison" 1, "`feedline compare --json`";
    AUDIT_COMPARISON: "audit-comparison" 1, "`feedline compare --json` with an audit";
    LISTING: "listing" 1, "`feedline catalog --json`";
    LISTING_CHECK: "listing-check" 1, "`feedline catalog --check --json`";
    INSPECTION: "inspection" 1, "`feedline inspect --json`";
    TRACE_SUMMARY: "trace-summary" 1, "`feedline trace --json`";
    WORKLOADS: "workloads" 1, "`feedline workloads --json`";
    MLPERF_SIZE: "mlperf-size" 1, "`feedline mlperf size --json`";
    MLPERF_CHECK: "mlperf-check" 1, "`feedline mlperf check --json`";
    MLPERF_TABLE: "mlperf-table" 1, "`feedline mlperf table --json`";
    ERROR: "error" 1, "any command with `--json` that fails";
}

/// A document with the version of its schema as the first key.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct VersionedDocument<T> {
    schema_version: u32,
    #[serde(flatten)]
    document: T,
}

/// A document that a later version of feedline wrote, in which keys may have another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "schema_version is {found}, but this version of feedline reads {} of a {name} document; use a newer feedline",
    readable(*reads)
)]
pub struct NewerDocument {
    name: &'static str,
    found: u64,
    reads: u32,
}

/// The versions that can be read: all from 1 on.
fn readable(last: u32) -> String {
    if last == 1 { "version 1".to_owned() } else { format!("versions 1 to {last}") }
}

/// The version of a document. A summary has it in the object `feedline`, because DLIO defines its other keys.
#[derive(Deserialize)]
struct VersionHead {
    schema_version: Option<Number>,
    feedline: Option<InnerHead>,
}

#[derive(Deserialize)]
struct InnerHead {
    schema_version: Option<Number>,
}

impl DocumentKind {
    /// The document with its version.
    pub fn of<T: Serialize>(&self, document: T) -> VersionedDocument<T> {
        VersionedDocument { schema_version: self.version, document }
    }

    /// Refuses a document of a later version. A document without a version has version 1. Text that is not a document
    /// is left to the parser that follows, whose error is more exact.
    pub fn check(&self, text: &[u8]) -> Result<(), NewerDocument> {
        let Ok(head) = serde_json::from_slice::<VersionHead>(text) else { return Ok(()) };
        let inner = head.feedline.and_then(|inner| inner.schema_version);
        let found = head.schema_version.or(inner).map_or(1, |number| number.as_u64().unwrap_or(u64::MAX));
        match found > u64::from(self.version) {
            true => Err(NewerDocument { name: self.name, found, reads: self.version }),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_distinct() {
        let names: BTreeSet<&str> = DOCUMENTS.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), DOCUMENTS.len());
    }

    #[test]
    fn the_version_is_the_first_key() {
        let text = serde_json::to_string(&LEDGER.of(json!({"a": [1]}))).unwrap();
        assert_eq!(text, "{\"schema_version\":1,\"a\":[1]}");
    }

    #[test]
    fn later_versions_are_refused_and_earlier_ones_are_not() {
        let kind = DocumentKind { name: "x", version: 3, place: "" };
        for (text, refused) in [
            ("{}", None),
            ("{\"schema_version\": 1}", None),
            ("{\"schema_version\": 3}", None),
            ("{\"a\": {\"schema_version\": 9}}", None),
            ("{\"schema_version\": 4, \"feedline\": {}}", Some(4)),
            ("{\"feedline\": {\"schema_version\": 5, \"a\": 1}}", Some(5)),
            ("{\"schema_version\": 1e300}", Some(u64::MAX)),
            ("{\"schema_version\": \"4\"}", None),
            ("not JSON", None),
        ] {
            let found = kind.check(text.as_bytes()).err().map(|error| error.found);
            assert_eq!(found, refused, "{text}");
        }
        assert_eq!(
            kind.check(b"{\"schema_version\": 4}").unwrap_err().to_string(),
            "schema_version is 4, but this version of feedline reads versions 1 to 3 of a x document; use a newer \
             feedline"
        );
    }
}
