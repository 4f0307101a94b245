//! The page of one run: verdict, headline figures, and what was measured, section by section. Sections without data are
//! left out.

use model::ledger::{Ledger, Phase};
use model::units::{Bytes, Nanos, counted, significant};
use serde_json::Value;

use super::doc::{Doc, percent, rate, seconds, share};
use super::parts::{Card, Cell, DataTable, HtmlPage, Notice, PageBlock, PageSection, PageTone};
use super::{checkpoints, latency, ranks, requests, time};

/// The documents of a result.
#[derive(Clone, Debug)]
pub struct RunDocuments<'a> {
    /// `summary.json`.
    pub summary: &'a Value,
    /// `None`: it is missing, or of a version whose ledgers cannot be read. Then there are tables but few plots.
    pub ledger: Option<&'a Ledger>,
    /// `plan.json` and `spec.yaml`.
    pub plan: Option<&'a Value>,
    pub spec: Option<&'a str>,
    /// What the reader has to know about the files.
    pub notices: Vec<Notice>,
    /// The version of the program that makes the page.
    pub version: &'a str,
}

/// The documents, ready to be read.
pub(super) struct RunView<'a> {
    pub summary: Doc<'a>,
    /// The part of the summary that feedline adds to DLIO's keys.
    pub own: Doc<'a>,
    pub plan: Option<Doc<'a>>,
    pub ledger: Option<&'a Ledger>,
}

impl<'a> RunView<'a> {
    pub(super) fn new(documents: &RunDocuments<'a>) -> RunView<'a> {
        let summary = Doc::new(documents.summary);
        let own = summary.at("feedline");
        RunView { own, summary, plan: documents.plan.map(Doc::new), ledger: documents.ledger }
    }

    pub(super) fn ranks(&self) -> u64 {
        self.summary.at("num_accelerators").count().unwrap_or(1).max(1)
    }

    /// The epochs of a phase in the summary.
    pub(super) fn epochs(&self, phase: Phase) -> Vec<Doc<'a>> {
        self.own.at(if phase == Phase::Train { "epochs" } else { "eval_epochs" }).each()
    }

    pub(super) fn is_simulated(&self) -> bool {
        self.own.at("simulated").flag() == Some(true)
    }

    /// The AU that the workload asks for, in percent.
    pub(super) fn au_target(&self) -> Option<f64> {
        self.plan.as_ref()?.at("metric.au_target").number().map(|share| 100.0 * share)
    }

    pub(super) fn workload(&self) -> String {
        self.own.at("workload").text().unwrap_or("result").to_owned()
    }
}

/// The page of a run.
pub fn run(documents: &RunDocuments<'_>) -> HtmlPage {
    let view = RunView::new(documents);
    let status = view.own.at("verdict.status").text();
    let mut sections = vec![verdict(&view)];
    sections.extend(headline(&view));
    for phase in [Phase::Train, Phase::Eval] {
        sections.extend(time::per_epoch(&view, phase));
    }
    sections.extend(time::timeline(&view));
    sections.extend(ranks::section(&view));
    sections.extend(latency::section(&view));
    sections.extend(ceiling(&view));
    sections.extend(problems(&view));
    sections.extend(checkpoints::section(&view));
    sections.extend(requests::section(&view));
    sections.push(repeat(&view, documents));
    HtmlPage {
        title: view.workload(),
        lead: lead(&view),
        badge: status.map(|status| (status.to_owned(), tone_of(status))),
        notices: notices(&view, documents),
        sections,
        footer: format!("Made by feedline {} from the files of the result.", documents.version),
    }
}

pub(super) fn tone_of(status: &str) -> PageTone {
    match status {
        "valid" => PageTone::Good,
        "unverified" => PageTone::Doubtful,
        "invalid" | "incomplete" => PageTone::Bad,
        _ => PageTone::Neutral,
    }
}

/// A time without fractions of a second.
fn moment(time: &str) -> String {
    time.split('.').next().unwrap_or_default().replace('T', " ")
}

fn lead(view: &RunView<'_>) -> String {
    let mut parts = vec![counted(view.ranks(), "emulated accelerator")];
    if let Some(plan) = &view.plan {
        let files = plan.at("data.train.files").count();
        let format = plan.at("format").text();
        parts.extend(
            files.zip(format).map(|(files, format)| format!("{} of {format}", counted(files, "file"))),
        );
        let readers = plan.at("loader.readers_per_rank").count();
        parts.extend(readers.map(|readers| format!("{} each", counted(readers, "reader"))));
    }
    if let Some(store) = view.own.at("store.observed").text() {
        parts.push(format!("{store} backend{}", crate::simulated(view.is_simulated())));
    }
    let hosts = view.summary.at("num_hosts").count().unwrap_or(1);
    let host = view.summary.at("hostname").text().map_or(String::new(), |name| format!(" ({name})"));
    parts.push(if hosts > 1 { counted(hosts, "host") } else { format!("1 host{host}") });
    parts.extend(view.summary.at("start").text().map(|start| format!("started {}", moment(start))));
    parts.join(", ")
}

/// Notices on the files, and those that follow from the summary.
fn notices(view: &RunView<'_>, documents: &RunDocuments<'_>) -> Vec<Notice> {
    let mut notices = documents.notices.clone();
    if view.is_simulated() {
        let text = "The storage was simulated: times follow from its model, not from a device.";
        notices.push(Notice { tone: PageTone::Doubtful, text: text.to_owned() });
    }
    if !view.own.exists() {
        let text = "This summary was not written by feedline: it has no verdict, so its figures are shown as they \
                    are, without a statement on whether they can be trusted.";
        notices.push(Notice { tone: PageTone::Doubtful, text: text.to_owned() });
    }
    notices
}

/// The order in which rules are listed: what needs attention first.
const OUTCOMES: [(&str, &str, PageTone); 4] = [
    ("fail", "failed", PageTone::Bad),
    ("not-checkable", "not checkable", PageTone::Doubtful),
    ("note", "note", PageTone::Doubtful),
    ("pass", "pass", PageTone::Good),
];

fn verdict(view: &RunView<'_>) -> PageSection {
    let section = PageSection::new(
        "verdict",
        "Verdict",
        "Whether the figures can be trusted: every rule, what it requires, what was observed, and what to do about it.",
    );
    let rules = view.own.at("verdict.rules").each();
    if rules.is_empty() {
        return section.finding("This result has no verdict.".to_owned());
    }
    let row = |rule: &Doc<'_>, word: &str, tone: PageTone| {
        let text = |name: &str| Cell::from(rule.at(name).text().unwrap_or_default());
        let outcome = Cell { text: word.to_owned(), ..rule.at("outcome").plain() }.toned(tone);
        vec![rule.at("rule").plain(), outcome, text("threshold"), text("evidence"), text("remedy")]
    };
    let (mut open, mut passed) = (Vec::new(), Vec::new());
    for (key, word, tone) in OUTCOMES {
        let rows = rules.iter().filter(|rule| rule.at("outcome").text() == Some(key));
        let rows = rows.map(|rule| row(rule, word, tone));
        if tone == PageTone::Good { passed.extend(rows) } else { open.extend(rows) }
    }
    let table = |caption: &str, rows| DataTable {
        caption: caption.to_owned(),
        header: ["rule", "outcome", "required", "observed", "what to do"].map(str::to_owned).into(),
        text_columns: 5,
        rows,
    };
    let names: Vec<String> = passed.iter().map(|row| row[0].text.clone()).collect();
    let mut section = section.finding(verdict_sentence(view, &rules));
    section = section.table(table("Rules that need attention", open));
    if !names.is_empty() {
        section = section.text(format!("Passed: {}.", names.join(", ")));
        let summary =
            format!("What the {} required and observed", counted(names.len() as u64, "passed rule"));
        section = section.folded(&summary, table("Rules that passed", passed));
    }
    section
}

fn verdict_sentence(view: &RunView<'_>, rules: &[Doc<'_>]) -> String {
    let with = |outcome: &str| -> Vec<&str> {
        let there = rules.iter().filter(|rule| rule.at("outcome").text() == Some(outcome));
        there.filter_map(|rule| rule.at("rule").text()).collect()
    };
    let (failed, unknown) = (with("fail"), with("not-checkable"));
    match view.own.at("verdict.status").text() {
        Some("valid") => format!(
            "Valid: all {} rules hold, so the figures below measure {}.",
            rules.len(),
            if view.is_simulated() { "the simulated storage" } else { "the storage" }
        ),
        Some("incomplete") => {
            format!(
                "Incomplete: the run ended early ({}), so its figures describe a part of the work.",
                failed.join(", ")
            )
        }
        Some("invalid") => format!(
            "Invalid: {} failed, so the figures below do not measure what the run was meant to measure.",
            failed.join(", ")
        ),
        Some("unverified") => format!(
            "Unverified: no rule failed, but {} could not be checked: the figures may not measure the storage.",
            unknown.join(", ")
        ),
        _ => "The verdict has a status that this version does not know.".to_owned(),
    }
}

fn headline(view: &RunView<'_>) -> Option<PageSection> {
    let mut cards = Vec::new();
    for (prefix, name) in [("train", "training"), ("eval", "evaluation")] {
        cards.extend(phase_cards(view, prefix, name));
    }
    cards.extend(checkpoint_cards(view));
    let mut add = |name: &str, cell: Cell, unit: &'static str| {
        if cell.text != "n/a" {
            cards.push(Card {
                name: name.to_owned(),
                cell,
                unit,
                note: String::new(),
                tone: PageTone::Neutral,
            });
        }
    };
    add("run time", view.own.at("wall_seconds").cell(seconds), "");
    add("CPU time", view.own.at("cpu_seconds").cell(seconds), "");
    let section = PageSection::new(
        "figures",
        "Headline figures",
        "The figures of the whole run, next to their targets.",
    );
    (!cards.is_empty()).then(|| {
        let mut section = section;
        section.blocks.push(PageBlock::Cards(cards));
        section
    })
}

fn phase_cards(view: &RunView<'_>, prefix: &str, name: &str) -> Vec<Card> {
    let metric = |key: &str| view.summary.at(&format!("metric.{prefix}_{key}"));
    let spread =
        |key: &str| metric(key).number().map_or(String::new(), |sd| format!("sd {}", significant(sd)));
    let au = metric("au_mean_percentage");
    if !au.exists() && !metric("throughput_mean_samples_per_second").exists() {
        return Vec::new();
    }
    let (tone, target) = match metric("au_meet_expectation").text() {
        Some("success") => (PageTone::Good, "met"),
        Some("fail") => (PageTone::Bad, "not met"),
        _ => (PageTone::Neutral, "not determined"),
    };
    let target = match view.au_target() {
        Some(wanted) => format!("target {wanted:.0} %: {target}"),
        None => format!("target {target}"),
    };
    let card = |what: &str, cell: Cell, unit: &'static str, note: String, tone: PageTone| Card {
        name: format!("{what}, {name}"),
        cell,
        unit,
        note,
        tone,
    };
    let mib = metric("io_mean_MB_per_second");
    vec![
        card("AU", au.cell(percent), "%", format!("{target}; {}", spread("au_stdev_percentage")), tone),
        card(
            "throughput",
            metric("throughput_mean_samples_per_second").cell(rate),
            "samples/s",
            format!("{}{}", demand(view, prefix), spread("throughput_stdev_samples_per_second")),
            PageTone::Neutral,
        ),
        card("throughput", mib.cell(rate), "MiB/s", spread("io_stdev_MB_per_second"), PageTone::Neutral),
    ]
}

/// The rate that the accelerators could take at most.
fn demand(view: &RunView<'_>, prefix: &str) -> String {
    let each = view.plan.as_ref().and_then(|plan| plan.at("estimate.demand.samples_per_second").number());
    let all = each.filter(|_| prefix == "train").map(|each| each * view.ranks() as f64);
    all.map_or(String::new(), |all| format!("{} at AU 100 %; ", rate(all)))
}

fn checkpoint_cards(view: &RunView<'_>) -> Vec<Card> {
    let kinds = [("save", "saving"), ("load", "restoring")];
    let cards = kinds.into_iter().filter_map(|(key, name)| {
        let metric = |key: String| view.summary.at(&format!("metric.{key}"));
        let rates = metric(format!("{key}_checkpoint_io_mean_GB_per_second"));
        let took = metric(format!("{key}_checkpoint_duration_mean_seconds")).number();
        rates.exists().then(|| Card {
            name: format!("{name} checkpoints"),
            cell: rates.cell(significant),
            unit: "GiB/s",
            note: took.map_or(String::new(), |took| format!("{} each", seconds(took))),
            tone: PageTone::Neutral,
        })
    });
    cards.collect()
}

/// The benchmark's own ceiling.
fn ceiling(view: &RunView<'_>) -> Option<PageSection> {
    let own = view.own.at("calibration");
    if !own.exists() {
        return None;
    }
    let metric = |key: &str| view.summary.at(&format!("metric.train_{key}"));
    let (au, highest) = (metric("au_mean_percentage"), own.at("au_percent"));
    let rates = (metric("throughput_mean_samples_per_second"), own.at("samples_per_second"));
    let idle = own.at("cpu_headroom");
    let table = DataTable {
        caption: "Result and ceiling".to_owned(),
        header: ["figure", "this run", "ceiling"].map(str::to_owned).into(),
        text_columns: 1,
        rows: vec![
            vec!["AU %".into(), au.cell(percent), highest.cell(percent)],
            vec!["samples/s".into(), rates.0.cell(rate), rates.1.cell(rate)],
            vec!["CPU time left %".into(), "".into(), idle.cell(share)],
            vec!["own time per step".into(), "".into(), own.at("harness_seconds_per_step").cell(seconds)],
        ],
    };
    let section = PageSection::new(
        "ceiling",
        "The benchmark's own ceiling",
        "The same plan on a backend that reads nothing: what feedline and this host can reach at most.",
    );
    Some(section.finding(ceiling_sentence(au.number(), highest.number())).table(table))
}

fn ceiling_sentence(au: Option<f64>, highest: Option<f64>) -> Option<String> {
    let (au, highest) = (au?, highest?);
    Some(match highest - au {
        _ if highest < 98.0 => format!(
            "The instrument itself reaches only AU {highest:.2} % here: a part of the loss is not the storage's. Use \
             more cores or fewer ranks per host."
        ),
        gap if gap > 1.0 => format!(
            "The instrument is not the limit: it reaches AU {highest:.2} %, {gap:.1} points more than this run. The \
             difference is what storage and loading cost."
        ),
        gap if gap < 0.05 => "The run reaches the ceiling: faster storage would not raise its AU.".to_owned(),
        gap => format!(
            "The run is within {gap:.2} points of the ceiling: faster storage would hardly raise its AU."
        ),
    })
}

/// Errors and warnings.
fn problems(view: &RunView<'_>) -> Option<PageSection> {
    let kinds = view.own.at("errors").entries();
    let rows: Vec<Vec<Cell>> = kinds.iter().map(|(kind, tally)| error_row(kind, tally)).collect();
    let warnings: Vec<String> = view.own.at("warnings").each().iter().map(warning_text).collect();
    if rows.is_empty() && warnings.is_empty() {
        return None;
    }
    let table = DataTable {
        caption: "Errors by kind".to_owned(),
        header: ["kind", "count", "example"].map(str::to_owned).into(),
        text_columns: 1,
        rows,
    };
    let section = PageSection::new(
        "problems",
        "Errors and warnings",
        "What went wrong and was counted, and what was warned of.",
    );
    let found = (!table.rows.is_empty()).then(|| {
        "Samples that could not be read are missing from their batches; the verdict says whether the run still counts."
            .to_owned()
    });
    Some(warnings.into_iter().fold(section.finding(found).table(table), PageSection::text))
}

fn error_row(kind: &str, tally: &Doc<'_>) -> Vec<Cell> {
    let count = if tally.number().is_some() { tally.clone() } else { tally.at("count") };
    let example = ["example", "first", "examples.0"].iter().map(|key| tally.at(key)).find(Doc::exists);
    let example = example.map_or(String::new(), |example| example.shown());
    vec![kind.into(), count.cell(super::doc::whole), example.into()]
}

fn warning_text(warning: &Doc<'_>) -> String {
    let text = |key: &str| warning.at(key).text();
    match (warning.text(), text("text").or(text("message")).or(text("what")), text("remedy")) {
        (Some(text), ..) => text.to_owned(),
        (None, Some(what), Some(remedy)) => format!("{what} What to do: {remedy}"),
        (None, Some(what), None) => what.to_owned(),
        (None, None, _) => warning.shown(),
    }
}

/// The plan, the environment and the command.
fn repeat(view: &RunView<'_>, documents: &RunDocuments<'_>) -> PageSection {
    let mut section = PageSection::new(
        "repeat",
        "Plan, environment and command",
        "What was planned, where it ran, and how to run it again.",
    );
    section = section.table(environment(view));
    if let Some(command) = view.own.at("command").text() {
        section.blocks.push(PageBlock::Text("The command of this run:".to_owned()));
        section.blocks.push(PageBlock::Command(command.to_owned()));
    } else if view.own.exists() && documents.spec.is_some() {
        section
            .blocks
            .push(PageBlock::Text("The same workload again, from the folder of this result:".to_owned()));
        section.blocks.push(PageBlock::Command(format!("feedline run spec.yaml --ranks {}", view.ranks())));
    }
    if let Some(spec) = documents.spec {
        section = section.source("The workload with all its settings (spec.yaml)", spec);
    }
    if let Some(plan) = documents.plan {
        let text = serde_json::to_string_pretty(plan).unwrap_or_default();
        section = section.source("The plan (plan.json)", text);
    }
    section
}

fn environment(view: &RunView<'_>) -> DataTable {
    let summary = |key: &str| view.summary.at(key);
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut add = |name: &str, cell: Cell| {
        if !cell.text.is_empty() && cell.text != "n/a" {
            rows.push(vec![name.into(), cell]);
        }
    };
    add("feedline", view.own.at("version").plain());
    add("plan digest", view.own.at("plan_digest").plain());
    add("started", summary("start").plain());
    add("ended", summary("end").plain());
    add("hosts", summary("num_hosts").plain());
    add("first host", summary("hostname").plain());
    add(
        "processor",
        summary("host_cpuinfo")
            .entries()
            .into_iter()
            .find(|(key, _)| *key == "model name")
            .map_or(Cell::default(), |(_, name)| name.plain()),
    );
    add("cores", summary("host_cpu_count.0").plain());
    add("memory in GiB", summary("host_memory_GB.0").cell(|value| format!("{value:.1}")));
    add("I/O backend asked for", view.own.at("store.requested").plain());
    add("I/O backend used", view.own.at("store.observed").plain());
    for (name, fact) in view.own.at("store.facts").entries() {
        add(&name.replace('_', " "), fact.plain());
    }
    if let Some(ledger) = view.ledger {
        for (host, seen) in ledger.conditions.hosts.iter().take(8) {
            let kernels: Vec<&str> = seen.kernels.iter().map(String::as_str).collect();
            add(&format!("kernel of {host}"), kernels.join(", ").into());
        }
    }
    add("planned memory", view.own.at("memory.planned_bytes").cell(|value| Bytes(value as u64).to_string()));
    add(
        "first batch after",
        view.own.at("first_batch_seconds").cell(|value| Nanos::from_seconds(value).to_string()),
    );
    DataTable {
        caption: "Environment".to_owned(),
        header: ["what", "value"].map(str::to_owned).into(),
        text_columns: 2,
        rows,
    }
}
