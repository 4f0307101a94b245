//! The result of a run that saves and restores and does not train: `summary.json` with DLIO's keys, and the report.

use std::fmt::Write;
use std::path::Path;

use engine::host::Host;
use model::checkpoint::AlonePlan;
use model::ledger::Ledger;
use model::spec::Spec;
use model::units::{Bytes, Nanos, counted};
use model::verdict::Verdict;
use model::warning::Warning;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::checkpoints::CheckpointReport;
use super::folder::Document;
use super::result::{Described, Peak, Times, observed_store};
use super::{text, write_pretty};

/// A run that is over, with all that is known about it.
#[derive(Debug)]
pub struct AloneOutcome<'a> {
    pub plan: &'a AlonePlan,
    pub spec: &'a Spec,
    pub ledger: &'a Ledger,
    pub verdict: &'a Verdict,
    pub host: &'a Host,
    pub warnings: &'a [Warning],
    pub times: Times,
    pub peak_rss_bytes: Peak,
    pub between_failures: Option<Nanos>,
}

impl AloneOutcome<'_> {
    fn report(&self) -> CheckpointReport<'_> {
        CheckpointReport {
            plan: &self.plan.checkpoint,
            seen: &self.ledger.checkpoints,
            between_failures: self.between_failures,
            step: None,
        }
    }

    /// The content of `summary.json`. DLIO describes the data set also of a run that reads none.
    pub fn summary(&self) -> impl Serialize {
        let mut metric = Map::new();
        self.report().dlio_metric(&mut metric);
        let set = &self.spec.dataset;
        let samples = set.num_files_train.saturating_mul(set.num_samples_per_file);
        let described = Described {
            times: &self.times,
            host: self.host,
            ranks: self.plan.ranks,
            hosts: self.plan.hosts,
            files_train: set.num_files_train,
            files_eval: set.num_files_eval,
            samples_per_file: set.num_samples_per_file,
            bytes: samples as f64 * set.record_length_bytes,
            epochs: 0,
        };
        described.summary(metric, self.feedline())
    }

    fn feedline(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "workload": self.plan.workload,
            "plan_digest": self.plan.digest(),
            "verdict": self.verdict,
            "store": observed_store(&self.plan.checkpoint.last.text, self.ledger),
            "simulated": self.plan.is_simulated(),
            "memory": {
                "peak_rss_bytes": *self.peak_rss_bytes,
                "planned_bytes": self.plan.memory_bytes,
            },
            "limits": self.host.limits,
            "cpu_seconds": self.times.cpu_seconds,
            "wall_seconds": self.times.span.seconds(),
            "warnings": self.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "checkpoint": self.report().json(),
        })
    }

    /// The files of the result. The summary is the last one: it has the most memory that was taken.
    pub fn documents(&self) -> Vec<Document<'_>> {
        let mut documents: Vec<Document<'_>> = Document::of_work(self.spec, self.plan, self.ledger).into();
        documents.push(Document::new("summary.json", |to| write_pretty(to, &self.summary())));
        documents
    }

    pub fn render(&self, saved: &Path) -> String {
        let plan = &self.plan.checkpoint;
        let geometry = &plan.geometry;
        let scale = match geometry.scale.is_whole() {
            true => String::new(),
            false => format!(", {} of the model", geometry.scale),
        };
        let mut text = format!(
            "{}: {}, {} of {} a checkpoint{scale}, saved {}, {} store{}\n",
            self.plan.workload,
            counted(self.plan.ranks, "rank"),
            counted(geometry.file_count(), "file"),
            Bytes(geometry.total_bytes()),
            plan.save.name(),
            plan.last,
            super::simulated(self.plan.is_simulated()),
        );
        text.push_str(&self.report().text());
        let _ = write!(text, "\n{}", text::verdict(self.verdict));
        let memory = (*self.peak_rss_bytes).map_or("n/a".to_owned(), |bytes| Bytes(bytes).to_string());
        let (span, cpu) = (self.times.span, self.times.cpu_seconds);
        let _ = writeln!(text, "took {span}, {cpu:.1} s of CPU, {memory} of memory");
        let _ = writeln!(text, "\nresult in {}", saved.display());
        text
    }
}
