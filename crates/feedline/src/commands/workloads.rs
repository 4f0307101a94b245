//! `feedline workloads`: prints the built-in workloads as a table, or one of them as YAML.

use anyhow::anyhow;
use clap::Args;
use format::Arithmetic;
use model::plan::{Request, TrainingPlan};
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
    let rows = WORKLOADS.iter().map(row).collect::<Result<Vec<_>, _>>()?;
    if flags.json {
        report::out_json(&Value::from(rows.iter().map(WorkloadRow::json).collect::<Vec<_>>()))?;
    } else {
        report::out(&table(&rows))?;
    }
    Ok(Exit::Ok)
}

/// One row of the list.
struct WorkloadRow {
    workload: &'static Workload,
    spec: Spec,
    /// The plan for one accelerator, if the workload trains.
    plan: Option<TrainingPlan>,
}

fn row(workload: &'static Workload) -> Result<WorkloadRow, Failure> {
    let source = WorkloadSource { name: workload.name, text: workload.text };
    let mut spec = spec::read(source, &[]).map_err(|error| Failure::internal(anyhow!("{error}")))?.spec;
    // The list shows mean sizes, so there is no need to draw the sizes of millions of files.
    spec.dataset.record_length_bytes_stdev = 0.0;
    let format = session::format_of(&spec).ok();
    let arithmetic = format.as_deref().map(Arithmetic);
    let store = Selection::named(session::DEFAULT_STORE, Mode::default()).map_err(Failure::internal)?;
    let request = Request {
        workload: workload.name,
        ranks: 1,
        hosts: 1,
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

    fn cells(&self) -> [String; 9] {
        let name = self.workload.name.to_owned();
        let standing = self.workload.standing.name().to_owned();
        let Some(plan) = &self.plan else {
            return [
                name,
                standing,
                String::new(),
                String::new(),
                String::new(),
                String::new(),
                String::new(),
                String::new(),
                self.workload.summary.to_owned(),
            ];
        };
        let demand = plan.estimate.demand;
        let rate = |value: Option<f64>| value.map_or("-".to_owned(), significant);
        [
            name,
            standing,
            plan.format.clone(),
            Bytes(plan.metric.record_length_bytes as u64).to_string(),
            grouped(plan.train.shards.batch),
            format!("{} ms", significant(plan.train.compute.mean() * 1e3)),
            format!(
                "{} / {}",
                rate(demand.map(|d| d.mib_per_second)),
                rate(demand.map(|d| d.files_per_second))
            ),
            format!("{:.0} %", plan.metric.au_target * 100.0),
            self.workload.summary.to_owned(),
        ]
    }
}

fn table(rows: &[WorkloadRow]) -> String {
    let header =
        ["name", "standing", "format", "sample", "batch", "compute", "MiB/s / files/s", "AU", "description"];
    format!(
        "{}\n\nMiB/s and files/s are the demand of one accelerator that never waits. \
         'feedline workloads NAME' prints the YAML.\n",
        report::table(header, 3..8, rows.iter().map(WorkloadRow::cells))
    )
}
