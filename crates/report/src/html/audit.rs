//! The page of an audit: findings first, then where the time and the bytes of the job went, and what was not seen.

mod tables;

use model::observed::{Certainty, EpochTime, Fault, Findings, Observed, Severity};
use model::units::{Bytes, Nanos, counted, grouped, significant};

use super::parts::{Card, Cell, DataTable, HtmlPage, Notice, PageBlock, PageSection, PageTone};
use crate::audit::{AuditEpoch, AuditFigures};
use crate::plot::{Bar, Figure, Plot};

/// The documents of an audit.
#[derive(Clone, Debug)]
pub struct AuditDocuments<'a> {
    pub name: &'a str,
    /// When the job was started.
    pub start: &'a str,
    pub observed: &'a Observed,
    pub findings: &'a Findings,
    /// What the reader has to know about the files.
    pub notices: Vec<Notice>,
    /// The version of the program that makes the page.
    pub version: &'a str,
}

/// A part of the time of an epoch: its name and its seconds.
type TimePart = (&'static str, fn(&EpochTime) -> f64);

const PARTS: [TimePart; 6] = [
    ("start of workers", |time| time.start),
    ("waiting for data", |time| time.blocked),
    ("hand-over", |time| time.handover),
    ("compute", |time| time.compute),
    ("checkpoints", |time| time.checkpoint),
    ("other", |time| time.other),
];

/// More epochs than this are drawn in groups.
const MOST_BARS: usize = 120;

/// The page of an audit.
pub fn audit(documents: &AuditDocuments<'_>) -> HtmlPage {
    let AuditDocuments { name, observed, findings, version, .. } = documents;
    let figures = AuditFigures::new(observed);
    let mut sections = vec![findings_section(findings), headline(observed, &figures)];
    sections.extend(time(&figures));
    sections.extend(bytes(&figures));
    sections.extend(tables::requests(&figures));
    sections.extend(tables::workers(observed));
    sections.extend(tables::files(observed));
    sections.push(tables::coverage(observed, findings));
    HtmlPage {
        title: format!("Audit of {name}"),
        lead: lead(documents, &figures),
        badge: Some(badge(findings)),
        notices: documents.notices.clone(),
        sections,
        footer: format!("Made by feedline {version} from the files of the result."),
    }
}

fn badge(findings: &Findings) -> (String, PageTone) {
    let wrong = findings.findings.iter().any(|finding| finding.severity == Severity::Correctness);
    match (findings.faults().count() as u64, wrong) {
        (0, _) => ("nothing found".to_owned(), PageTone::Good),
        (faults, true) => (counted(faults, "finding"), PageTone::Bad),
        (faults, false) => (counted(faults, "finding"), PageTone::Doubtful),
    }
}

fn lead(documents: &AuditDocuments<'_>, figures: &AuditFigures) -> String {
    let observed = documents.observed;
    let mut parts = Vec::new();
    if !observed.command.is_empty() {
        parts.push(observed.command.join(" "));
    }
    if figures.ranks > 0 {
        parts.push(counted(figures.ranks, "rank"));
    }
    parts.push(format!("took {}", observed.wall_ns));
    match (observed.exit.code, observed.exit.signal) {
        (_, Some(signal)) => parts.push(format!("ended by signal {signal}")),
        (Some(0), None) => parts.push("succeeded".to_owned()),
        (Some(code), None) => parts.push(format!("exit code {code}")),
        (None, None) => {}
    }
    if !observed.host.name.is_empty() {
        parts.push(format!("on {}", observed.host.name));
    }
    if !documents.start.is_empty() {
        let start = documents.start.split('.').next().unwrap_or_default().replace('T', " ");
        parts.push(format!("started {start}"));
    }
    parts.join(", ")
}

fn findings_section(findings: &Findings) -> PageSection {
    let section = PageSection::new(
        "findings",
        "Findings",
        "What is wrong with how the job reads its data: wrong data first, then what costs most time. The cost is the \
         time per epoch that would be saved.",
    );
    let mut section = match findings.faults().next() {
        None => section.finding("Nothing found.".to_owned()),
        Some(_) => section,
    };
    let cards: Vec<FindingCard> = findings.findings.iter().map(FindingCard::new).collect();
    if !cards.is_empty() {
        section.blocks.push(PageBlock::Findings(cards));
    }
    let row = |rule: &model::observed::FaultOutcome| -> Vec<Cell> {
        let outcome = match rule.outcome {
            model::observed::RuleAnswer::Found => "found",
            model::observed::RuleAnswer::NotFound => "not found",
            model::observed::RuleAnswer::Explained => "follows from another",
            model::observed::RuleAnswer::NotMeasurable => "not measurable",
        };
        vec![rule.name.as_str().into(), outcome.into(), rule.reason.as_str().into()]
    };
    if findings.rules.is_empty() {
        return section;
    }
    let table = DataTable {
        caption: "Rules in the order of judging".to_owned(),
        header: ["rule", "outcome", "reason"].map(str::to_owned).into(),
        rows: findings.rules.iter().map(row).collect(),
        text_columns: 3,
    };
    section.folded(&format!("All {}", counted(findings.rules.len() as u64, "rule")), table)
}

/// A finding as it is shown.
#[derive(Clone, Debug)]
pub(super) struct FindingCard {
    pub name: String,
    pub title: String,
    pub word: &'static str,
    pub tone: PageTone,
    pub cost: Option<String>,
    /// Labels and texts.
    pub lines: Vec<(&'static str, String)>,
}

impl FindingCard {
    fn new(finding: &Fault) -> FindingCard {
        let (word, tone) = match finding.severity {
            Severity::Correctness => ("wrong data", PageTone::Bad),
            Severity::Cost => ("cost", PageTone::Doubtful),
            Severity::Note => ("note", PageTone::Neutral),
        };
        let certainty = match finding.certainty {
            Certainty::High => "",
            Certainty::Medium => "medium",
            Certainty::Low => "low",
        };
        let rank = finding.rank.map_or(String::new(), |rank| format!("rank {rank}"));
        let lines = [
            ("Observed", finding.evidence.clone()),
            ("Where", rank),
            ("Why", finding.explanation.clone()),
            ("Change", finding.change.clone()),
            ("Check", finding.check.clone()),
            ("Places", finding.places.join("\n")),
            ("Explains", finding.consequences.join(", ")),
            ("Unless", finding.limits.join("\n")),
            ("Certainty", certainty.to_owned()),
        ];
        let cost = finding.cost_seconds_per_epoch.filter(|_| finding.severity != Severity::Note);
        FindingCard {
            name: finding.name.clone(),
            title: finding.title.clone(),
            word,
            tone,
            cost: cost.map(|seconds| format!("{} per epoch", Nanos::from_seconds(seconds))),
            lines: lines.into_iter().filter(|(_, text)| !text.is_empty()).collect(),
        }
    }
}

fn headline(observed: &Observed, figures: &AuditFigures) -> PageSection {
    let card = |name: &str, text: Option<String>, unit: &'static str, note: &str| Card {
        name: name.to_owned(),
        cell: Cell::from(text.unwrap_or_else(|| "n/a".to_owned())),
        unit,
        note: note.to_owned(),
        tone: PageTone::Neutral,
    };
    let mib = figures.bytes_per_second().map(|rate| significant(rate / f64::from(1 << 20)));
    let waiting = figures.wait_share().map(|share| format!("{:.1}", 100.0 * share));
    let overhead = observed.overhead.map(|overhead| format!("{:.1}", 100.0 * overhead.share));
    let cards = vec![
        card("waiting for data", waiting, "%", "of the epochs, start of workers included"),
        card("samples", figures.samples_per_second().map(significant), "per second", "over all epochs"),
        card("bytes asked for", mib, "MiB/s", "over all epochs"),
        card("data files", Some(grouped(observed.files.estimated)), "", "estimated from a sample"),
        card("cost of observing", overhead, "%", "of the busiest process, from calibrated calls"),
    ];
    let mut section = PageSection::new("figures", "In figures", "The job as a whole.");
    section.blocks.push(PageBlock::Cards(cards));
    section
}

fn time(figures: &AuditFigures) -> Option<PageSection> {
    let parts: Vec<_> = PARTS
        .into_iter()
        .filter(|(_, part)| figures.epochs.iter().any(|epoch| part(&epoch.time) > 0.0))
        .collect();
    if parts.is_empty() {
        return None;
    }
    let values = |epochs: &[AuditEpoch]| -> Vec<f64> {
        let mean = |part: fn(&EpochTime) -> f64| {
            epochs.iter().map(|epoch| part(&epoch.time)).sum::<f64>() / epochs.len() as f64
        };
        parts.iter().map(|(_, part)| mean(*part)).collect()
    };
    let names = parts.iter().map(|(name, _)| (*name).to_owned()).collect();
    let (figure, rows) = stacked(figures, "Where the time went", "seconds", names, true, &values);
    let mut header = vec!["epoch".to_owned()];
    header.extend(figure.series.iter().cloned());
    let seconds = |value: &f64| Cell::from(Nanos::from_seconds(*value).to_string());
    let rows = rows.iter().map(|(name, values)| {
        std::iter::once(Cell::from(name.clone())).chain(values.iter().map(seconds)).collect()
    });
    let table =
        DataTable { caption: "Time per epoch".to_owned(), header, rows: rows.collect(), text_columns: 0 };
    let section = PageSection::new(
        "time",
        "Where the time went",
        "How an average rank spent each epoch of its training loader. Hand-over is the time from a loaded batch until \
         the training process has it; it is not storage.",
    );
    let caption = "Mean over ranks, in seconds";
    Some(section.plot("time-per-epoch", caption, Plot::Bars(figure), Some(table)))
}

fn bytes(figures: &AuditFigures) -> Option<PageSection> {
    if figures.epochs.iter().all(|epoch| epoch.asked_bytes == 0 && epoch.issued_bytes.is_none()) {
        return None;
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let values = |epochs: &[AuditEpoch]| -> Vec<f64> {
        let mean = |of: fn(&AuditEpoch) -> u64| mib(epochs.iter().map(of).sum::<u64>()) / epochs.len() as f64;
        vec![
            mean(|epoch| epoch.asked_bytes),
            mean(|epoch| epoch.issued_bytes.unwrap_or(0)),
            mean(|epoch| epoch.served_bytes.unwrap_or(0)),
        ]
    };
    let names = ["asked by the job", "issued by the kernel", "served by devices"].map(str::to_owned).into();
    let (figure, _) = stacked(figures, "Asked, issued, served", "MiB", names, false, &values);
    let shown =
        |bytes: Option<u64>| Cell::from(bytes.map_or("n/a".to_owned(), |bytes| Bytes(bytes).to_string()));
    let row = |epoch: &AuditEpoch| -> Vec<Cell> {
        vec![
            epoch.epoch.to_string().into(),
            shown(Some(epoch.asked_bytes)),
            shown(epoch.issued_bytes),
            shown(epoch.served_bytes),
            grouped(epoch.io.opens.count).into(),
            grouped(epoch.io.reads.count).into(),
            grouped(epoch.io.stats.count).into(),
            epoch.samples.map_or("n/a".to_owned(), grouped).into(),
        ]
    };
    let table = DataTable {
        caption: "Bytes and calls on data files per epoch".to_owned(),
        header: ["epoch", "asked", "issued", "served", "opens", "reads", "stats", "samples"]
            .map(str::to_owned)
            .into(),
        rows: figures.epochs.iter().map(row).collect(),
        text_columns: 0,
    };
    let section = PageSection::new(
        "bytes",
        "Where the bytes came from",
        "What the job asked for, what the kernel had to read for it, and what the devices served to all programs. \
         What was asked for and not issued came from the page cache.",
    );
    Some(section.plot("bytes-per-epoch", "Sums over ranks", Plot::Bars(figure), None).table(table))
}

/// A bar plot over epochs, in groups if there are many; and its groups with their values.
fn stacked(
    figures: &AuditFigures,
    title: &str,
    y_label: &str,
    series: Vec<String>,
    stacked: bool,
    values: &dyn Fn(&[AuditEpoch]) -> Vec<f64>,
) -> (Figure, Vec<(String, Vec<f64>)>) {
    let size = figures.epochs.len().div_ceil(MOST_BARS).max(1);
    let name = |group: &[AuditEpoch]| match group {
        [first, .., last] => format!("{}-{}", first.epoch, last.epoch),
        group => group.first().map_or(String::new(), |epoch| epoch.epoch.to_string()),
    };
    let rows: Vec<(String, Vec<f64>)> =
        figures.epochs.chunks(size).map(|group| (name(group), values(group))).collect();
    let bar = |value: &f64| Some(Bar { value: *value, whisker: None, simulated: false });
    let figure = Figure {
        title: title.to_owned(),
        x_label: "epoch".to_owned(),
        y_label: y_label.to_owned(),
        groups: rows.iter().map(|(name, _)| name.clone()).collect(),
        series,
        bars: rows.iter().map(|(_, values)| values.iter().map(bar).collect()).collect(),
        stacked,
        ..Figure::default()
    };
    (figure, rows)
}
