//! An audit as text: findings with evidence, cost and change, where the time goes, and what was not seen.

use ::report::audit::{AuditFigures, training_loaders};
use model::observed::{
    Certainty, EpochTime, Fault, Findings, JobExit, LoaderRow, Observed, RuleAnswer, Severity, Source,
    StartMethod, TrainingFramework,
};
use model::units::{Bytes, Nanos, counted, grouped};

use super::super::layout::wrapped;
use super::super::printable;
use crate::terminal::Tone;

/// Where the text goes, which decides about its colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextTarget {
    Out,
    Err,
}

/// How the text is to look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuditText {
    pub stream: TextTarget,
    pub width: usize,
}

/// Where the words of a labelled line start.
const INDENT: usize = 12;
/// Where the words of a line about the whole job start.
const LABEL: usize = INDENT;
/// Places of a finding that are shown.
const MOST_PLACES: usize = 3;
/// Rules that are listed by name if they could not be judged for one reason.
const MOST_NAMES: usize = 6;
/// Lines wider than this are hard to read.
const WIDEST: usize = 100;

impl AuditText {
    pub(crate) fn render(&self, observed: &Observed, findings: &Findings) -> String {
        let mut text = self.heading(observed);
        for severity in [Severity::Correctness, Severity::Cost, Severity::Note] {
            for finding in findings.findings.iter().filter(|finding| finding.severity == severity) {
                text.push_str(&format!("\n{}", self.finding(finding)));
            }
        }
        if findings.faults().next().is_none() {
            text.push_str(&format!("\n{}\n", self.nothing(observed)));
        }
        text.push('\n');
        text.push_str(&self.time(findings.time));
        text.push_str(&self.coverage(observed, findings));
        text
    }

    /// No fault: good news only of a job that read data and succeeded.
    fn nothing(&self, observed: &Observed) -> String {
        let has_read = observed.processes.iter().any(|process| process.data.opens.count > 0);
        match (has_read, observed.exit.code) {
            (false, _) => self.tone(Tone::Doubtful, "nothing found: no data file was opened"),
            (true, Some(0) | None) if observed.exit.signal.is_none() => {
                self.tone(Tone::Good, "nothing found")
            }
            _ => self.tone(
                Tone::Doubtful,
                "nothing found: the job failed, and only what it did before was judged",
            ),
        }
    }

    fn tone(&self, tone: Tone, text: &str) -> String {
        match self.stream {
            TextTarget::Out => tone.out(text),
            TextTarget::Err => tone.err(text),
        }
    }

    fn columns(&self) -> usize {
        self.width.min(WIDEST)
    }

    fn heading(&self, observed: &Observed) -> String {
        let command = observed.command.iter().map(|word| session::quoted(word)).collect::<Vec<_>>().join(" ");
        let command =
            if command.is_empty() { source(observed.source).to_owned() } else { printable(&command) };
        let figures = AuditFigures::new(observed);
        let mut parts = vec![ending(observed.exit), observed.wall_ns.to_string()];
        if figures.ranks > 0 {
            parts.push(counted(figures.ranks, "rank"));
            parts.push(counted(figures.epochs.len() as u64, "epoch"));
        }
        parts.extend(training_loaders(observed).first().map(|row| loader(row)));
        let seen = observed.coverage.processes_seen;
        if seen > 0 {
            parts.push(if seen == 1 {
                "1 process".to_owned()
            } else {
                format!("{} processes", grouped(seen))
            });
        }
        let facts = wrapped(&format!("  {}", parts.join(", ")), 2, self.columns());
        format!("{}\n{facts}\n", wrapped(&format!("audit of {command}"), 2, self.columns()))
    }

    fn finding(&self, finding: &Fault) -> String {
        let (word, tone) = match finding.severity {
            Severity::Correctness => ("correctness", Tone::Bad),
            Severity::Cost => ("cost", Tone::Doubtful),
            Severity::Note => ("note", Tone::Help),
        };
        let mut text = format!(
            "{}: {} [{}]\n",
            self.tone(tone, word),
            printable(&finding.title),
            printable(&finding.name)
        );
        let mut line = |label: &str, words: &str| {
            let words = printable(words);
            text.push_str(&wrapped(&format!("  {label:<10}{words}"), INDENT, self.columns()));
            text.push('\n');
        };
        let place = match (finding.rank, finding.certainty) {
            (Some(rank), _) if rank > 0 => format!(" (rank {rank})"),
            _ => String::new(),
        };
        line("observed", &format!("{}{place}", finding.evidence));
        if let Some(seconds) = finding.cost_seconds_per_epoch.filter(|_| finding.severity != Severity::Note) {
            line("costs", &format!("{} per epoch", Nanos::from_seconds(seconds)));
        }
        if !finding.explanation.is_empty() {
            line("why", &finding.explanation);
        }
        if !finding.change.is_empty() {
            line("change", &finding.change);
        }
        if !finding.check.is_empty() && finding.severity != Severity::Note {
            line("check", &finding.check);
        }
        for place in finding.places.iter().take(MOST_PLACES) {
            line("at", place);
        }
        if finding.certainty != Certainty::High {
            let word = if finding.certainty == Certainty::Medium { "medium" } else { "low" };
            line("certainty", word);
        }
        if !finding.consequences.is_empty() {
            line("explains", &finding.consequences.join(", "));
        }
        finding.limits.iter().for_each(|limit| line("note", limit));
        text
    }

    /// Where the time of an epoch goes, largest part first.
    fn time(&self, time: Option<EpochTime>) -> String {
        let Some(time) = time.filter(|time| time.wall > 0.0) else { return String::new() };
        let mut parts = time_parts(&time).to_vec();
        parts.retain(|(_, seconds)| *seconds > 0.0);
        parts.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let parts: Vec<String> = parts
            .iter()
            .map(|(name, seconds)| format!("{name} {:.0} %", 100.0 * seconds / time.wall))
            .collect();
        let wall = Nanos::from_seconds(time.wall);
        self.labelled("time", &format!("an epoch takes {wall}: {}", parts.join(", ")))
    }

    fn coverage(&self, observed: &Observed, findings: &Findings) -> String {
        let coverage = &observed.coverage;
        let mut text = String::new();
        let mut seen = vec![counted(coverage.events, "file call")];
        seen.extend(coverage.share().map(|share| format!("{} of the bytes read", percent_down(share))));
        if observed.files.sampled > 0 && observed.files.sampled < observed.files.estimated {
            seen.push(format!(
                "details of {} of about {} files",
                grouped(observed.files.sampled),
                grouped(observed.files.estimated)
            ));
        }
        text.push_str(&self.labelled("observed", &seen.join(", ")));
        if let Some(overhead) = observed.overhead {
            let cost = format!(
                "{:.1} % of the time of the busiest process ({} x {:.0} ns, {} x {:.0} ns)",
                100.0 * overhead.share,
                counted(overhead.calls, "call"),
                overhead.ns_per_call,
                counted(overhead.opens, "open"),
                overhead.ns_per_open
            );
            text.push_str(&self.labelled("overhead", &cost));
        }
        for limit in &unseen(observed, findings) {
            text.push_str(&self.labelled("not seen", limit));
        }
        for rules in &not_judged(findings) {
            text.push_str(&self.labelled("not judged", rules));
        }
        text
    }

    fn labelled(&self, label: &str, words: &str) -> String {
        let line = format!("{label:<11} {}", printable(words));
        wrapped(&line, LABEL, self.columns()) + "\n"
    }
}

/// A share in percent that is 100 only if it is 1.
fn percent_down(share: f64) -> String {
    format!("{:.1} %", (1000.0 * share).floor() / 10.0)
}

/// The parts of an epoch, in the order in which they occur.
pub(crate) fn time_parts(time: &EpochTime) -> [(&'static str, f64); 6] {
    [
        ("start of workers", time.start),
        ("waiting for data", time.blocked),
        ("hand-over", time.handover),
        ("compute", time.compute),
        ("checkpoints", time.checkpoint),
        ("other", time.other),
    ]
}

/// What could not be observed, as sentences.
fn unseen(observed: &Observed, findings: &Findings) -> Vec<String> {
    let coverage = &observed.coverage;
    let mut lines = findings.limits.clone();
    for process in &coverage.unseen {
        let read = process.read_bytes.map_or(String::new(), |bytes| format!(", read {}", Bytes(bytes)));
        lines.push(format!("process {} ({}): {}{read}", process.pid, process.command, process.reason));
    }
    lines.extend(coverage.notes.iter().cloned());
    let mut once = Vec::new();
    lines.into_iter().for_each(|line| {
        if !once.contains(&line) {
            once.push(line);
        }
    });
    once
}

/// Rules without an answer, by the reason.
fn not_judged(findings: &Findings) -> Vec<String> {
    let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for rule in findings.rules.iter().filter(|rule| rule.outcome == RuleAnswer::NotMeasurable) {
        match by_reason.iter_mut().find(|(reason, _)| *reason == rule.reason) {
            Some((_, names)) => names.push(&rule.name),
            None => by_reason.push((&rule.reason, vec![&rule.name])),
        }
    }
    let line = |(reason, names): (&str, Vec<&str>)| match names.len() {
        0..=MOST_NAMES => format!("{}: {reason}", names.join(", ")),
        many => format!("{many} rules: {reason}"),
    };
    by_reason.into_iter().map(line).collect()
}

fn source(source: Source) -> &'static str {
    match source {
        Source::Preload => "a job",
        Source::Strace => "a trace of strace",
        Source::Trace => "a trace",
    }
}

/// How the job ended.
pub(crate) fn ending(exit: JobExit) -> String {
    match (exit.code, exit.signal) {
        (_, Some(signal)) => format!("ended by signal {signal}"),
        (Some(0), None) => "succeeded".to_owned(),
        (Some(code), None) => format!("exit code {code}"),
        (None, None) => "exit code unknown".to_owned(),
    }
}

/// A loader in a few words.
pub(crate) fn loader(row: &LoaderRow) -> String {
    let framework = match row.framework {
        TrainingFramework::Pytorch => "PyTorch",
        TrainingFramework::Tensorflow => "TensorFlow",
        TrainingFramework::Keras => "Keras",
        TrainingFramework::Other => "a loader",
        TrainingFramework::Unknown => return "no marks of a loader".to_owned(),
    };
    let workers = match (row.workers, row.start_method) {
        (0, _) => "no workers".to_owned(),
        (workers, StartMethod::Fork) => counted(workers, "worker"),
        (workers, StartMethod::Spawn) => format!("{} (spawn)", counted(workers, "worker")),
        (workers, StartMethod::Forkserver) => format!("{} (forkserver)", counted(workers, "worker")),
    };
    let batch = row.batch.map_or(String::new(), |batch| format!(", batches of {batch}"));
    format!("{framework} with {workers}{batch}")
}
