//! `feedline workloads`: prints the built-in workloads as a table, or one of them as YAML.

use anyhow::anyhow;
use clap::Args;
use format::Arithmetic;
use model::document;
use model::plan::{Placement, Request, TrainingPlan};
use model::spec::{self, Spec, WorkloadSource};
use model::units::{Bytes, grouped, significant};
use serde_json::{Value, json};
use store::{Mode, Selection};

use crate::exit::{CommandResult, Exit, Failure};
use crate::report;
use crate::workloads::{WORKLOADS, Workload, named};

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline workloads
  feedline workloads unet3d_h100 > mine.yaml";

#[derive(Args, Debug)]
pub(crate) struct WorkloadsFlags {
    /// Print this workload as YAML
    pub name: Option<String>,
    /// Print the list as JSON
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn workloads(flags: &WorkloadsFlags) -> CommandResult {
    if let Some(name) = &flags.name {
        report::out(named(name).map_err(Failure::usage)?.text)?;
        return Ok(Exit::Ok);
    }
    let rows = rows()?;
    if flags.json {
        let rows: Vec<Value> = rows.iter().map(WorkloadRow::json).collect();
        report::out_json(document::WORKLOADS, &json!({ "workloads": rows }))?;
    } else {
        report::out(&table(&rows))?;
    }
    Ok(Exit::Ok)
}

/// The cells of the list.
pub(crate) fn workload_cells() -> Result<Vec<[String; WORKLOAD_COLUMNS.len()]>, Failure> {
    Ok(rows()?.iter().map(WorkloadRow::cells).collect())
}

/// One row of the list.
struct WorkloadRow {
    workload: &'static Workload,
    spec: Spec,
    /// The plan for one accelerator, if the workload trains.
    plan: Option<TrainingPlan>,
}

/// All rows, planned in parallel: the sizes of millions of files are drawn, as `feedline plan` does.
fn rows() -> Result<Vec<WorkloadRow>, Failure> {
    let lost = |_| Err(Failure::internal(anyhow!("a thread that planned a workload ended early")));
    std::thread::scope(|scope| {
        let planning: Vec<_> = WORKLOADS.iter().map(|workload| scope.spawn(move || row(workload))).collect();
        planning.into_iter().map(|one| one.join().unwrap_or_else(lost)).collect()
    })
}

fn row(workload: &'static Workload) -> Result<WorkloadRow, Failure> {
    let source = WorkloadSource { name: workload.name, text: workload.text };
    let spec = spec::read(source, &[]).map_err(|error| Failure::internal(anyhow!("{error}")))?.spec;
    let format = session::format_of(&spec).ok();
    let arithmetic = format.as_deref().map(Arithmetic);
    let store = Selection::named(session::DEFAULT_STORE, Mode::default()).map_err(Failure::internal)?;
    let request = Request {
        workload: workload.name,
        ranks: 1,
        placement: Placement::even(1, 1, 1),
        host_memory_bytes: 0,
        cores: 1,
        store: &store.plan(),
        memory: None,
        entropy: 0,
        measure: arithmetic.as_ref().map(|measure| measure as _),
        listed: None,
    };
    // A workload without training has no training plan.
    let plan = TrainingPlan::resolve(&spec, &request).ok();
    Ok(WorkloadRow { workload, spec, plan })
}

impl WorkloadRow {
    fn json(&self) -> Value {
        let demand = self.plan.as_ref().and_then(|plan| plan.estimate.demand);
        json!({
            "name": self.workload.name,
            "standing": self.workload.standing.name(),
            "summary": self.workload.summary,
            "model": self.spec.model.name,
            "trains": self.spec.workflow.train,
            "format": self.plan.as_ref().map(|plan| &plan.format),
            "sample_bytes": self.plan.as_ref().map(|plan| plan.metric.record_length_bytes),
            "batch_size": self.plan.as_ref().map(|plan| plan.train.shards.batch),
            "computation_time_seconds": self.plan.as_ref().map(|plan| plan.train.compute.mean()),
            "demand_mib_per_second": demand.map(|demand| demand.mib_per_second),
            "demand_files_per_second": demand.map(|demand| demand.files_per_second),
            "au_target": self.plan.as_ref().map(|plan| plan.metric.au_target),
        })
    }

    fn cells(&self) -> [String; WORKLOAD_COLUMNS.len()] {
        let [name, standing, summary] =
            [self.workload.name, self.workload.standing.name(), self.workload.summary].map(str::to_owned);
        let Some(plan) = &self.plan else {
            let [a, b, c, d, e, f, g] = [""; 7].map(str::to_owned);
            return [name, standing, a, b, c, d, e, f, g, summary];
        };
        let shown = |rate: Option<String>| rate.unwrap_or("-".to_owned());
        let demand = plan.estimate.demand;
        [
            name,
            standing,
            plan.format.clone(),
            Bytes(plan.metric.record_length_bytes as u64).to_string(),
            grouped(plan.train.shards.batch),
            format!("{} ms", significant(plan.train.compute.mean() * 1e3)),
            shown(demand.map(|demand| report::rate(demand.mib_per_second))),
            shown(demand.map(|demand| significant(demand.files_per_second))),
            format!("{:.0} %", plan.metric.au_target * 100.0),
            summary,
        ]
    }
}

/// The columns of the list.
pub(crate) const WORKLOAD_COLUMNS: [&str; 10] =
    ["name", "standing", "format", "sample", "batch", "compute", "demand", "files/s", "AU", "description"];
/// The columns that a narrow terminal does not show, the first to go first.
const SPARE: [usize; 7] = [8, 4, 5, 1, 7, 3, 2];

fn table(rows: &[WorkloadRow]) -> String {
    let table =
        report::Table::new(WORKLOAD_COLUMNS, 3..9, rows.iter().map(WorkloadRow::cells)).spares(&SPARE);
    let left_out = match table.left_out().as_slice() {
        [] => String::new(),
        columns => format!(" A wider terminal and --json also show: {}.", columns.join(", ")),
    };
    let notes = format!(
        "demand and files/s are those of one accelerator that never waits. \
         'feedline workloads NAME' prints the YAML.{left_out}\n"
    );
    format!("{}\n\n{}", table.text(), report::fitted(&notes))
}
