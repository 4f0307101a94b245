//! The table of requests to an object store, as text and CSV: how many it took, why some were repeated, and the bytes
//! that arrived for those that were needed. Latencies have a table of their own.

use std::io::Write;

use model::histogram::Quantiles;
use model::ledger::Phase;
use model::metrics::EpochFigures;
use model::requests::{AttemptFailure, RequestFigures};
use model::units::{Bytes, grouped};

use super::result::Outcome;

/// The spans of a request.
const SPANS: [&str; 3] = ["connect", "first_byte", "body"];

/// Whether the run made requests to an object store.
pub(crate) fn are_present(outcome: &Outcome<'_>) -> bool {
    let training = outcome.plan.training.as_ref();
    training.is_some_and(|training| training.store.is_objects())
}

/// The table of one phase; empty if there were no requests.
pub(crate) fn text(outcome: &Outcome<'_>, phase: Phase) -> String {
    let rows: Vec<[String; HEADER.len()]> =
        outcome.epochs(phase).filter_map(|epoch| Some(cells(epoch.epoch, &epoch.requests?))).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}\n", super::table(HEADER, 0..HEADER.len() - 1, rows))
}

const HEADER: [&str; 8] =
    ["epoch", "requests", "per sample", "connects", "reconnects", "received", "needed", "failed attempts"];

fn cells(epoch: u64, requests: &RequestFigures) -> [String; HEADER.len()] {
    let failed: Vec<String> =
        requests.failed_attempts.iter().map(|(kind, count)| format!("{} {kind}", grouped(*count))).collect();
    [
        epoch.to_string(),
        grouped(requests.requests),
        requests.requests_per_sample.map_or("n/a".to_owned(), |each| format!("{each:.2}")),
        grouped(requests.connects),
        grouped(requests.reconnects),
        Bytes(requests.received_bytes).to_string(),
        Bytes(requests.needed_bytes).to_string(),
        if failed.is_empty() { "none".to_owned() } else { failed.join(", ") },
    ]
}

/// The content of `requests.csv`: one line per phase and epoch.
pub(crate) fn write_csv(to: &mut dyn Write, outcome: &Outcome<'_>) -> anyhow::Result<()> {
    writeln!(to, "{}", csv_header())?;
    for phase in [Phase::Train, Phase::Eval] {
        for epoch in outcome.epochs(phase) {
            if let Some(line) = csv_line(phase, &epoch) {
                writeln!(to, "{line}")?;
            }
        }
    }
    Ok(())
}

fn csv_header() -> String {
    let mut names: Vec<String> =
        ["phase", "epoch", "requests", "answered", "requests_per_sample", "connects", "reconnects"]
            .map(str::to_owned)
            .into();
    names.extend(AttemptFailure::ALL.map(|kind| format!("failed_{}", kind.word().replace('-', "_"))));
    names.extend(["received_bytes", "needed_bytes", "failed_bytes", "from_caches"].map(str::to_owned));
    for span in SPANS {
        names.extend(["p50", "p99", "max"].map(|quantile| format!("{span}_{quantile}_ns")));
    }
    names.join(",")
}

/// One line. A figure that could not be measured is an empty field.
fn csv_line(phase: Phase, epoch: &EpochFigures) -> Option<String> {
    let requests = epoch.requests.as_ref()?;
    let failed = |kind: AttemptFailure| requests.failed_attempts.get(kind.word()).copied().unwrap_or(0);
    let mut fields = vec![
        phase.to_string(),
        epoch.epoch.to_string(),
        requests.requests.to_string(),
        requests.answered.to_string(),
        requests.requests_per_sample.map_or(String::new(), |each| each.to_string()),
        requests.connects.to_string(),
        requests.reconnects.to_string(),
    ];
    fields.extend(AttemptFailure::ALL.map(|kind| failed(kind).to_string()));
    let RequestFigures { received_bytes, needed_bytes, failed_bytes, from_caches, .. } = requests;
    fields.extend([received_bytes, needed_bytes, failed_bytes, from_caches].map(u64::to_string));
    for span in SPANS {
        match epoch.latency.get(span) {
            Some(Quantiles { p50_ns, p99_ns, max_ns, .. }) => {
                fields.extend([p50_ns, p99_ns, max_ns].map(|span| span.0.to_string()));
            }
            None => fields.extend([(); 3].map(|()| String::new())),
        }
    }
    Some(fields.join(","))
}

#[cfg(test)]
mod tests {
    use model::ledger::{Ledger, NodeRow, RankRow};
    use model::metrics;
    use model::requests::RequestCounts;
    use model::units::Nanos;

    use super::*;

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        let row = RankRow { samples_delivered: 1000, bytes_read: 3 << 20, ..RankRow::default() };
        ledger.add(1, Phase::Train, 0, row);
        let mut node = NodeRow::default();
        node.cache.needed_bytes = 3 << 20;
        node.requests = RequestCounts {
            requests: 1250,
            answered: 1200,
            connects: 64,
            reconnects: 3,
            ..RequestCounts::default()
        };
        node.requests.received_bytes = 4 << 20;
        node.requests.fail(AttemptFailure::Throttled);
        node.requests.fail(AttemptFailure::ServerError);
        node.latencies.first_byte.record(Nanos(2_000));
        ledger.add_node(1, Phase::Train, 0, node);
        ledger
    }

    #[test]
    fn a_row_has_requests_failures_and_bytes() {
        let epoch = metrics::epochs(&ledger(), Phase::Train).next().unwrap();
        let expected = ["1", "1,250", "1.25", "64", "3", "4.0 MiB", "3.0 MiB", "1 server-error, 1 throttled"];
        assert_eq!(cells(1, &epoch.requests.unwrap()), expected);
    }

    #[test]
    fn a_line_of_csv_has_the_fields_of_its_header() {
        let epoch = metrics::epochs(&ledger(), Phase::Train).next().unwrap();
        let line = csv_line(Phase::Train, &epoch).unwrap();
        assert_eq!(
            line,
            "train,1,1250,1200,1.25,64,3,1,1,0,0,0,0,0,4194304,3145728,0,0,,,,2000,2000,2000,,,"
        );
        assert_eq!(line.split(',').count(), csv_header().split(',').count());
        assert!(csv_header().contains("failed_server_error,"), "{}", csv_header());
    }
}
