//! The nodes of a run with several processes: how fast each was, which one the others waited for, and how long the
//! processes took to agree on a step. As text, CSV and JSON.

use std::fmt::Write as _;
use std::io::Write;

use model::histogram::Quantiles;
use model::ledger::{Ledger, ObservedMember, Phase};
use model::metrics::{self, NodeFigures};
use model::units::{Bytes, Nanos, counted, grouped};
use serde_json::{Map, Value, json};

use super::{Table, csv_field};
use crate::terminal;

/// The report on the nodes of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodesReport<'a> {
    ledger: &'a Ledger,
}

/// Processes and nodes, for a heading; empty for one process.
pub(crate) fn several_processes(processes: u64, nodes: u64) -> String {
    match processes {
        1 => String::new(),
        _ => format!(" ({processes} processes on {})", counted(nodes, "node")),
    }
}

/// Up to this many nodes, all of them are shown. Of more, only the slowest are.
const ALL: usize = 12;
const SLOWEST: usize = 8;

impl<'a> NodesReport<'a> {
    /// `None` for a run of one process.
    pub(crate) fn new(ledger: &'a Ledger) -> Option<NodesReport<'a>> {
        (ledger.conditions.members.len() > 1).then_some(NodesReport { ledger })
    }

    /// The processes and nodes, for the heading of a report.
    pub(crate) fn heading(&self) -> String {
        let (processes, nodes) = (self.ledger.conditions.members.len(), self.ledger.nodes().len());
        several_processes(processes as u64, nodes as u64)
    }

    /// The peak memory of the process that used most.
    pub(crate) fn peak_rss_bytes(&self) -> Option<u64> {
        self.ledger.conditions.members.values().filter_map(|member| member.peak_rss_bytes).max()
    }

    /// The table of a phase and what it shows.
    pub(crate) fn text(&self, phase: Phase) -> String {
        self.text_at(phase, terminal::columns())
    }

    fn text_at(&self, phase: Phase, width: usize) -> String {
        let nodes = metrics::nodes(self.ledger, phase);
        let (shown, others) = most_notable(&nodes);
        let table = Table::new(HEADER, 1..HEADER.len(), shown.iter().map(|node| cells(node)));
        let mut text = format!("\n{}\n", table.at(width));
        if let Some(others) = summary(&others) {
            let _ = writeln!(text, "{others}");
        }
        let missing = self.ledger.missing_processes();
        for line in [slowest(&nodes), self.agreement(phase), missing].into_iter().flatten() {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// How long agreement took, and over what.
    fn agreement(&self, phase: Phase) -> Option<String> {
        let Quantiles { mean_ns, p99_ns, .. } = metrics::agreement(self.ledger, phase)?;
        let transport = self.transports().join(" and ");
        Some(format!("agreement on a step: mean {mean_ns}, p99 {p99_ns} ({transport})"))
    }

    fn transports(&self) -> Vec<&str> {
        self.ledger.conditions.transports.iter().map(String::as_str).collect()
    }

    /// The keys of `summary.json`.
    pub(crate) fn json(&self) -> Map<String, Value> {
        let nodes = metrics::nodes(self.ledger, Phase::Train);
        let processes = self.ledger.conditions.members.iter().map(|(number, member)| {
            let ObservedMember {
                node,
                host,
                first_rank,
                ranks,
                reported,
                cores,
                memory_bytes,
                peak_rss_bytes,
            } = member;
            json!({
                "process": number,
                "node": node,
                "name": host,
                "first_rank": first_rank,
                "ranks": ranks,
                "reported": reported,
                "cores": cores,
                "memory_bytes": memory_bytes,
                "peak_rss_bytes": peak_rss_bytes,
            })
        });
        let mut keys = Map::new();
        keys.insert("processes".to_owned(), processes.collect());
        keys.insert("slowest_node".to_owned(), json!(slowest(&nodes)));
        let latency = metrics::agreement(self.ledger, Phase::Train);
        keys.insert("agreement".to_owned(), json!({ "transports": self.transports(), "latency": latency }));
        keys.insert("nodes".to_owned(), json!(nodes));
        keys
    }

    /// The content of `nodes.csv`: one line per phase, epoch and node.
    pub(crate) fn write_csv(&self, to: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(to, "{CSV_HEADER}")?;
        for phase in [Phase::Train, Phase::Eval] {
            for epoch in self.ledger.epochs(phase) {
                for node in metrics::nodes_of_epoch(self.ledger, phase, epoch) {
                    writeln!(to, "{phase},{epoch},{}", csv_fields(&node))?;
                }
            }
        }
        Ok(())
    }
}

/// The nodes that the table shows, and the others.
fn most_notable(nodes: &[NodeFigures]) -> (Vec<&NodeFigures>, Vec<&NodeFigures>) {
    let mut all: Vec<&NodeFigures> = nodes.iter().collect();
    if all.len() <= ALL {
        return (all, Vec::new());
    }
    // Without barriers no node waits for another one; then the one with the least AU is the slowest.
    let au = |node: &NodeFigures| node.au_percent.unwrap_or(f64::INFINITY);
    all.sort_by(|one, other| {
        other.last_seconds.total_cmp(&one.last_seconds).then(au(one).total_cmp(&au(other)))
    });
    let others = all.split_off(SLOWEST);
    (all, others)
}

/// A line about the nodes that the table does not show.
fn summary(others: &[&NodeFigures]) -> Option<String> {
    let range = |figure: fn(&NodeFigures) -> Option<f64>, digits: usize| {
        let mut all: Vec<f64> = others.iter().filter_map(|node| figure(node)).collect();
        all.sort_by(f64::total_cmp);
        match (all.first(), all.last()) {
            (Some(least), Some(most)) => format!("{least:.digits$} to {most:.digits$}"),
            _ => "n/a".to_owned(),
        }
    };
    let (au, rate) = (range(|node| node.au_percent, 2), range(|node| node.mib_per_second, 1));
    let count = counted(others.len() as u64, "more node");
    (!others.is_empty()).then(|| format!("{count}: AU {au} %, {rate} MiB/s; nodes.csv lists all"))
}

/// The node that the others waited for.
fn slowest(nodes: &[NodeFigures]) -> Option<String> {
    let node = metrics::slowest(nodes)?;
    let (percent, cost) = (100.0 * node.last_share?, Nanos::from_seconds(node.last_seconds));
    Some(format!("node {} was the slowest in {percent:.0} % of steps, which cost {cost}", node.name))
}

const HEADER: [&str; 14] = [
    "node",
    "ranks",
    "AU %",
    "MiB/s",
    "wait",
    "storage %",
    "late",
    "last %",
    "cost",
    "clock",
    "samples/s",
    "device",
    "network",
    "processes",
];
fn cells(node: &NodeFigures) -> [String; HEADER.len()] {
    let number = |value: Option<f64>, digits: usize| {
        value.map_or("n/a".to_owned(), |value| format!("{value:.digits$}"))
    };
    let bytes = |bytes: Option<u64>| bytes.map_or("n/a".to_owned(), |bytes| Bytes(bytes).to_string());
    let time = |seconds: f64| Nanos::from_seconds(seconds).to_string();
    let percent = |share: Option<f64>| number(share.map(|share| 100.0 * share), 0);
    let clock = node.clock_offset_seconds.zip(node.clock_bound_seconds).map(|(offset, bound)| {
        let sign = if offset < 0.0 { "-" } else { "+" };
        format!("{sign}{} ±{}", time(offset.abs()), time(bound))
    });
    [
        node.name.clone(),
        grouped(node.ranks),
        number(node.au_percent, 2),
        number(node.mib_per_second, 1),
        time(node.wait_seconds / node.ranks.max(1) as f64),
        percent(node.storage_share),
        time(node.lateness_mean_seconds),
        percent(node.last_share),
        node.last_share.map_or("n/a".to_owned(), |_| time(node.last_seconds)),
        clock.unwrap_or_else(|| "n/a".to_owned()),
        number(node.samples_per_second, 1),
        bytes(node.device_bytes),
        bytes(node.network_bytes),
        node.processes.to_string(),
    ]
}

const CSV_HEADER: &str = "phase,epoch,node,name,processes,ranks,au_percent,samples_per_second,mib_per_second,\
wait_seconds,barrier_seconds,lateness_mean_seconds,lateness_max_seconds,storage_share,storage_bytes,device_bytes,\
network_bytes,cpu_share,last,last_share,last_seconds,clock_offset_seconds,clock_bound_seconds,agreement_mean_ns,\
agreement_p99_ns";

/// The fields of a line after the epoch. A figure that could not be measured is an empty field.
fn csv_fields(node: &NodeFigures) -> String {
    let maybe = |figure: Option<f64>| figure.map_or(String::new(), |figure| figure.to_string());
    let count = |count: Option<u64>| count.map_or(String::new(), |count| count.to_string());
    let fields = [
        node.node.to_string(),
        csv_field(&node.name),
        node.processes.to_string(),
        node.ranks.to_string(),
        maybe(node.au_percent),
        maybe(node.samples_per_second),
        maybe(node.mib_per_second),
        node.wait_seconds.to_string(),
        node.barrier_seconds.to_string(),
        node.lateness_mean_seconds.to_string(),
        node.lateness_max_seconds.to_string(),
        maybe(node.storage_share),
        count(node.storage_bytes),
        count(node.device_bytes),
        count(node.network_bytes),
        maybe(node.cpu_share),
        node.last.to_string(),
        maybe(node.last_share),
        node.last_seconds.to_string(),
        maybe(node.clock_offset_seconds),
        maybe(node.clock_bound_seconds),
        count(node.agreement.map(|spans| spans.mean_ns.0)),
        count(node.agreement.map(|spans| spans.p99_ns.0)),
    ];
    fields.join(",")
}

#[cfg(test)]
mod tests {
    use model::ledger::{ClockReading, MetricWindow, NodeRow, RankRow, ReportedBytes};

    use super::super::layout::columns_of;
    use super::*;

    /// A run of two epochs with two ranks per node. Node 1 is the last in 9 of 10 steps.
    fn ledger(nodes: u64) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.conditions.transports.insert("TCP over eth0".to_owned());
        for node in 0..nodes {
            let host = format!("c{node:02}");
            let (first_rank, ranks, reported) = (2 * node, 2, true);
            let member =
                ObservedMember { node, host, first_rank, ranks, reported, ..ObservedMember::default() };
            ledger.conditions.members.insert(node, member);
            for (epoch, rank) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
                let seconds = |tenths: u64| Nanos(tenths * 100_000_000);
                let row = RankRow {
                    steps: 10,
                    steps_planned: 10,
                    samples_planned: 50,
                    samples_delivered: 50,
                    bytes_read: 50 << 20,
                    wait_ns: seconds(node % 5),
                    lateness_ns_sum: Nanos(25_000),
                    window: MetricWindow {
                        steps: 9,
                        compute_ns: seconds(90),
                        time_ns: seconds(90 + node % 5),
                    },
                    ..RankRow::default()
                };
                ledger.add(epoch, Phase::Train, 2 * node + rank, row);
            }
            for epoch in 1..=2 {
                let mut row = NodeRow::default();
                row.cache.needed_bytes = 100 << 20;
                row.cache.storage = ReportedBytes::new(Some((100 - node % 5) << 20));
                row.cache.device = ReportedBytes::new((node != 1).then_some(101 << 20));
                (0..10).for_each(|_| row.agreement.latency.record(Nanos(40_000 + 1000 * node)));
                let (offset_ns, bound_ns) = (-1_500_000 * node as i64, Nanos(4_400 * node));
                row.agreement.clocks.insert(node, ClockReading { offset_ns, bound_ns });
                match node {
                    0 => (row.agreement.barriers, row.agreement.last) = (1, 1),
                    1 => {
                        (row.agreement.barriers, row.agreement.last, row.agreement.last_ns) =
                            (9, 9, Nanos(2_050_000_000));
                    }
                    _ => {}
                }
                ledger.add_node(epoch, Phase::Train, node, row);
            }
        }
        ledger
    }

    fn at(nodes: u64, width: usize) -> String {
        let ledger = ledger(nodes);
        let text = NodesReport::new(&ledger).unwrap().text_at(Phase::Train, width);
        assert!(text.lines().all(|line| columns_of(line) <= width), "{text}");
        text
    }

    #[test]
    fn the_table_of_nodes_is_exact() {
        assert_eq!(at(3, 80), NARROW);
        // A wide terminal shows one table: each line of the first part, and that of the second without the name.
        let narrow: Vec<&str> = NARROW.lines().collect();
        let joined: Vec<String> =
            (1..5).map(|line| format!("{} {}", narrow[line], &narrow[line + 5][6..])).collect();
        assert_eq!(at(3, 200), format!("\n{}\n{}\n", joined.join("\n"), narrow[10..].join("\n")));
    }

    const NARROW: &str = "
 node  ranks    AU %  MiB/s    wait  storage %     late  last %    cost
 c00       2  100.00   10.0     0 s        100  2.50 us      10     0 s
 c01       2   98.90    9.9  200 ms         99  2.50 us      90  4.10 s
 c02       2   97.83    9.8  400 ms         98  2.50 us       0     0 s

 node              clock  samples/s     device  network  processes
 c00           +0 s ±0 s       10.0  202.0 MiB      n/a          1
 c01   -1.50 ms ±4.40 us        9.9        n/a      n/a          1
 c02   -3.00 ms ±8.80 us        9.8  202.0 MiB      n/a          1
node c01 was the slowest in 90 % of steps, which cost 4.10 s
agreement on a step: mean 41.0 us, p99 42.0 us (TCP over eth0)
";

    #[test]
    fn of_many_nodes_the_slowest_are_shown() {
        let text = at(300, 80);
        assert_eq!(text.lines().filter(|line| line.starts_with(" c")).count(), 2 * SLOWEST, "{text}");
        let first = text.lines().nth(2).unwrap();
        assert!(first.starts_with(" c01 "), "the slowest is the first: {text}");
        assert!(
            text.contains("\n292 more nodes: AU 95.74 to 100.00 %, 9.6 to 10.0 MiB/s; nodes.csv lists all\n"),
            "{text}"
        );
        assert!(text.contains("\nnode c01 was the slowest in 90 % of steps, which cost 4.10 s\n"), "{text}");
    }

    #[test]
    fn processes_that_have_not_reported_are_named() {
        let mut ledger = ledger(3);
        ledger.conditions.members.get_mut(&2).unwrap().reported = false;
        let text = NodesReport::new(&ledger).unwrap().text_at(Phase::Train, 80);
        assert!(text.ends_with("\nthe measurements of process 2 on c02 are missing\n"), "{text}");
        assert!(!text.contains("98.90"), "no rates without all ranks: {text}");
    }

    #[test]
    fn a_run_of_one_process_has_no_table() {
        assert!(NodesReport::new(&Ledger::default()).is_none());
    }

    #[test]
    fn csv_has_a_line_for_each_epoch_and_node() {
        let ledger = ledger(3);
        let mut bytes = Vec::new();
        NodesReport::new(&ledger).unwrap().write_csv(&mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(lines.len(), 1 + 2 * 3);
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
        let of = |line: usize, key: &str| lines[line][lines[0].iter().position(|name| *name == key).unwrap()];
        assert_eq!(
            (of(5, "epoch"), of(5, "name"), of(5, "last"), of(5, "last_seconds")),
            ("2", "c01", "9", "2.05")
        );
        assert_eq!((of(5, "device_bytes"), of(4, "device_bytes")), ("", "105906176"), "unknown is empty");
    }
}
