//! The report on checkpoints, as text and JSON: how long each save blocked training and when it was durable, what each
//! restore read, the rates by MLPerf's rule and by DLIO's, and how often to save.

use std::fmt::Write;

use model::checkpoint::advice::{Advice, CHECKFREQ_BOUND, Costs, advise};
use model::checkpoint::{CheckpointPlan, Checkpoints, RestoreRecord, SaveRecord};
use model::metrics::Spread;
use model::spec::SaveMode;
use model::statistics::median;
use model::units::{Bytes, Nanos, counted, significant};
use serde_json::{Map, Value, json};

/// The plan and the observations of a run's checkpoints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckpointReport<'a> {
    pub plan: &'a CheckpointPlan,
    pub seen: &'a Checkpoints,
    /// Mean time between failures of the job, if advice is requested; and the time of a training step, if the run
    /// trained.
    pub between_failures: Option<Nanos>,
    pub step: Option<Nanos>,
}

const GIB: f64 = (1u64 << 30) as f64;

/// GiB per second.
fn rate(bytes: u64, span: Nanos) -> Option<f64> {
    (span > Nanos::ZERO).then(|| bytes as f64 / GIB / span.seconds())
}

impl CheckpointReport<'_> {
    fn good_saves(&self) -> impl Iterator<Item = &SaveRecord> {
        self.seen.saves.iter().filter(|save| save.is_complete())
    }

    fn good_restores(&self) -> impl Iterator<Item = &RestoreRecord> {
        self.seen.restores.iter().filter(|restore| restore.failure.is_none())
    }

    /// DLIO's keys. Its GB are GiB, and its rate is the size of the whole checkpoint divided by the time of rank 0.
    pub(crate) fn dlio_metric(&self, metric: &mut Map<String, Value>) {
        let size = self.plan.geometry.reported_bytes();
        let saves: Vec<Nanos> = self.good_saves().map(|save| save.dlio_span(self.plan.save)).collect();
        let loads: Vec<Nanos> = self.good_restores().map(|restore| restore.first_rank_ns).collect();
        for (prefix, spans) in [("save", saves), ("load", loads)] {
            let seconds: Vec<f64> = spans.iter().map(|span| span.seconds()).collect();
            let rates: Vec<f64> = spans.iter().filter_map(|span| rate(size, *span)).collect();
            let mut put = |key: &str, spread: Option<Spread>| {
                if let Some(Spread { mean, stdev }) = spread {
                    let (what, unit) = key.split_once(' ').unwrap_or((key, ""));
                    metric.insert(format!("{prefix}_checkpoint_{what}_mean_{unit}"), json!(mean));
                    metric.insert(format!("{prefix}_checkpoint_{what}_stdev_{unit}"), json!(stdev));
                }
            };
            put("io GB_per_second", Spread::of(&rates));
            put("duration seconds", Spread::of(&seconds));
        }
        metric.insert("checkpoint_size_GB".to_owned(), json!(size as f64 / GIB));
    }

    pub(crate) fn json(&self) -> Value {
        let geometry = &self.plan.geometry;
        let mlperf = |spans: Vec<(u64, Nanos)>| {
            let seconds: Vec<f64> = spans.iter().map(|(_, span)| span.seconds()).collect();
            let rates: Vec<f64> = spans.iter().filter_map(|(bytes, span)| rate(*bytes, *span)).collect();
            json!({
                "scale": geometry.scale.to_string(),
                "duration_seconds": Spread::of(&seconds).map(|spread| spread.mean),
                "throughput_GiB_per_second": Spread::of(&rates).map(|spread| spread.mean),
            })
        };
        json!({
            "scale": geometry.scale.to_string(),
            "files": geometry.file_count(),
            "bytes": geometry.total_bytes(),
            "save": self.plan.save.name(),
            "simulated": self.plan.is_simulated(),
            "mlperf": {
                "save": mlperf(self.good_saves().map(|save| (save.bytes, save.slowest_rank_ns)).collect()),
                "load": mlperf(self.good_restores().map(|one| (one.bytes, one.slowest_rank_ns)).collect()),
            },
            "step_slowdown": self.seen.step_slowdown(),
            "advice": self.advice().map(|advice| self.advice_json(&advice)),
            "saves": self.seen.saves,
            "restores": self.seen.restores.iter().map(with_share).collect::<Vec<_>>(),
        })
    }

    /// How often to save, from the medians of the measured times.
    pub(crate) fn advice(&self) -> Option<Advice> {
        self.between_failures?;
        let middle = |spans: Vec<f64>| median(&spans).map(Nanos::from_seconds);
        let blocked = middle(self.good_saves().map(|save| save.blocked_ns.seconds()).collect())?;
        let durable = self.good_saves().filter_map(|save| Some(save.durable_ns?.seconds())).collect();
        let (step, between_failures) = (self.step, self.between_failures);
        Some(advise(&Costs { blocked, durable: middle(durable)?, step, between_failures }))
    }

    /// Advice from a scaled checkpoint holds for that scale only.
    fn advice_json(&self, advice: &Advice) -> Value {
        let mut value = json!(advice);
        value["scale"] = json!(self.plan.geometry.scale.to_string());
        value
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let simulated = format!("{}{}", self.at_scale(), super::simulated(self.plan.is_simulated()));
        if !self.seen.saves.is_empty() {
            let _ = write!(text, "\nsaved{simulated}\n{}\n", self.saves_table());
            text.push_str(&self.rates_line("saved"));
        }
        if let Some(slowdown) = self.seen.step_slowdown() {
            let beside = self.seen.steps_beside.count;
            let _ = writeln!(
                text,
                "steps took {} times as long while a checkpoint was written in the background ({})",
                significant(slowdown),
                counted(beside, "step")
            );
        }
        if !self.seen.restores.is_empty() {
            let _ = write!(text, "\nrestored{simulated}\n{}\n", self.restores_table());
            text.push_str(&self.rates_line("restored"));
        }
        text.push_str(&self.advice_lines());
        text
    }

    /// The scale, if checkpoints have not their whole size.
    fn at_scale(&self) -> String {
        match self.plan.geometry.scale {
            scale if scale.is_whole() => String::new(),
            scale => format!(" at scale {scale}"),
        }
    }

    fn saves_table(&self) -> String {
        let mut header = vec!["checkpoint", "blocked", "durable", "slowest rank", "GiB/s"];
        let two_tiers = self.plan.save == SaveMode::BurstBuffer;
        let in_background = self.plan.save != SaveMode::Direct;
        if in_background {
            header.insert(2, "back-pressure");
        }
        if two_tiers {
            header.insert(3, "on fast tier");
            header.push("drain GiB/s");
        }
        let rows = self.seen.saves.iter().map(|save| {
            let mut cells = vec![
                save.moment.folder(),
                save.blocked_ns.to_string(),
                maybe(save.durable_ns),
                if save.is_complete() { save.slowest_rank_ns.to_string() } else { "n/a".to_owned() },
                figure(rate(save.bytes, save.slowest_rank_ns).filter(|_| save.is_complete())),
            ];
            if in_background {
                cells.insert(2, save.back_pressure_ns.to_string());
            }
            if two_tiers {
                cells.insert(3, maybe(save.fast_ns));
                cells.push(figure(save.drain_ns.and_then(|span| rate(save.bytes, span))));
            }
            cells
        });
        let columns = header.len();
        super::table(header, 1..columns, rows)
    }

    fn restores_table(&self) -> String {
        let header = ["checkpoint", "from", "took", "slowest rank", "GiB/s", "cached %", "compared"];
        let rows = self.seen.restores.iter().map(|restore| {
            let moment = restore.moment.folder();
            if restore.failure.is_some() {
                return [moment, "failed".to_owned()]
                    .into_iter()
                    .chain(["n/a"; 5].map(str::to_owned))
                    .collect();
            }
            let share =
                restore.cached_share().map_or("n/a".to_owned(), |share| format!("{:.1}", 100.0 * share));
            vec![
                moment,
                if restore.from_fast { "fast tier" } else { "last tier" }.to_owned(),
                restore.took_ns.to_string(),
                restore.slowest_rank_ns.to_string(),
                figure(rate(restore.bytes, restore.slowest_rank_ns)),
                share,
                Bytes(restore.verified_bytes).to_string(),
            ]
        });
        super::table(header, 2..7, rows)
    }

    fn rates_line(&self, what: &str) -> String {
        let size = self.plan.geometry.reported_bytes();
        let (slowest, dlio): (Vec<_>, Vec<_>) = if what == "saved" {
            self.good_saves()
                .map(|save| {
                    (rate(save.bytes, save.slowest_rank_ns), rate(size, save.dlio_span(self.plan.save)))
                })
                .unzip()
        } else {
            self.good_restores()
                .map(|one| (rate(one.bytes, one.slowest_rank_ns), rate(size, one.first_rank_ns)))
                .unzip()
        };
        let mean = |rates: Vec<Option<f64>>| {
            let rates: Vec<f64> = rates.into_iter().flatten().collect();
            Spread::of(&rates).map_or("n/a".to_owned(), |Spread { mean, stdev }| {
                format!("{} (sd {})", significant(mean), significant(stdev))
            })
        };
        let scale = self.at_scale();
        format!(
            "{} GiB/s by the slowest rank (MLPerf); {} by rank 0 (DLIO){scale}\n",
            mean(slowest),
            mean(dlio)
        )
    }

    fn advice_lines(&self) -> String {
        let Some(advice) = self.advice() else { return String::new() };
        let mut text = format!("\nhow often to save{}\n", self.at_scale());
        if !self.plan.geometry.scale.is_whole() {
            text.push_str(
                "  for checkpoints of this scale; whole ones take longer, so save them less often\n",
            );
        }
        if let Some((steps, share)) = advice.checkfreq_steps.zip(advice.checkfreq_overhead) {
            let _ = writeln!(
                text,
                "  CheckFreq: every {}, which costs {:.1} % of the time (bound {:.0} %)",
                counted(steps, "step"),
                100.0 * share,
                100.0 * CHECKFREQ_BOUND
            );
        }
        for (name, seconds) in [("Young", advice.young_seconds), ("Daly", advice.daly_seconds)] {
            if let Some(seconds) = seconds {
                let _ = writeln!(text, "  {name}: every {}", Nanos::from_seconds(seconds));
            }
        }
        text
    }
}

/// A restore, with the share of its bytes that was cached.
fn with_share(restore: &RestoreRecord) -> Value {
    let mut value = json!(restore);
    value["memory_share"] = json!(restore.cached_share());
    value
}

fn maybe(span: Option<Nanos>) -> String {
    span.map_or("never".to_owned(), |span| span.to_string())
}

fn figure(rate: Option<f64>) -> String {
    rate.map_or("n/a".to_owned(), significant)
}

/// The rest of the heading of a run without training, after its number of ranks.
pub(crate) fn heading(plan: &CheckpointPlan) -> String {
    let geometry = &plan.geometry;
    let scale = match geometry.scale.is_whole() {
        true => String::new(),
        false => format!(", {} of the model", geometry.scale),
    };
    format!(
        ", {} with {} per checkpoint{scale}, {} save, {} backend{}",
        counted(geometry.file_count(), "file"),
        Bytes(geometry.total_bytes()),
        plan.save.name(),
        plan.last,
        super::simulated(plan.is_simulated()),
    )
}

/// The files and bytes of checkpoints, as lines of name and value.
pub(crate) fn geometry_lines(plan: &CheckpointPlan) -> Vec<(String, String)> {
    let geometry = &plan.geometry;
    let (total, ranks) = (geometry.total_bytes(), geometry.ranks);
    let per_rank: Vec<u64> = (0..ranks).map(|rank| geometry.rank_bytes(rank)).collect();
    let (least, most) = (per_rank.iter().min().unwrap_or(&0), per_rank.iter().max().unwrap_or(&0));
    let exact = |bytes: u64| format!("{} ({})", Bytes(bytes), model::units::grouped(bytes));
    let spread = if least == most { exact(*most) } else { format!("{} to {}", exact(*least), exact(*most)) };
    let line = |name: &str, value: String| (name.to_owned(), value);
    let mut lines = vec![line(
        "parallelism",
        format!(
            "tensor {} x pipeline {} x data {}, ZeRO {}",
            geometry.tensor, geometry.pipeline, geometry.data, geometry.zero
        ),
    )];
    lines.extend(geometry.parameters.map(|count| line("parameters", model::units::grouped(count))));
    lines.extend([
        line("files", model::units::grouped(geometry.file_count())),
        line("bytes of one checkpoint", exact(total)),
        line("bytes per rank", spread),
        line("model states, unscaled", exact(geometry.model_total_bytes())),
        line("optimizer states, unscaled", exact(geometry.optimizer_total_bytes())),
        line("scale", geometry.scale.to_string()),
        line("ranks allowed", ranks_allowed(plan)),
        line("save", format!("{}, {} backend", plan.save.name(), plan.last)),
        line("memory for buffers", Bytes(plan.buffer_bytes()).to_string()),
    ]);
    let uploads = Some(plan.upload_bytes()).filter(|bytes| *bytes > 0);
    lines.extend(uploads.map(|bytes| line("memory for uploads", Bytes(bytes).to_string())));
    lines
}

fn ranks_allowed(plan: &CheckpointPlan) -> String {
    let geometry = &plan.geometry;
    match (plan.subset, geometry.group()) {
        (true, group) => format!("1 to {}", group * geometry.data),
        (false, 1) => "any number".to_owned(),
        (false, group) => format!("multiples of {group}"),
    }
}
