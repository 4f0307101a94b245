//! The report of `feedline plan --hosts 1,2,4`: for each number of hosts, the smallest data set by MLPerf Storage's
//! rules, the rates that the storage must deliver, and the command that generates the data set.

use model::plan::{Demand, SizeRule};
use model::units::{Bytes, grouped};
use serde_json::{Value, json};

use super::{Table, layout, rate};
use crate::terminal;

/// The plan for one number of hosts.
#[derive(Clone, Debug)]
pub(crate) struct HostsPlan {
    pub hosts: u64,
    pub ranks: u64,
    pub rule: SizeRule,
    /// The command that generates the data set.
    pub generate: String,
}

impl HostsPlan {
    fn ranks_per_host(&self) -> u64 {
        self.ranks.div_ceil(self.hosts.max(1))
    }

    /// Which of the two limits decides.
    fn limit(&self) -> &'static str {
        match self.rule.steps_floor_files >= self.rule.memory_floor_files {
            true => "500 steps",
            false => "5 x memory",
        }
    }
}

/// The plans for several numbers of hosts.
#[derive(Clone, Debug)]
pub(crate) struct HostsReport<'a> {
    pub workload: &'a str,
    pub host_memory_bytes: u64,
    /// Of one accelerator; `None` if it is unlimited.
    pub demand: Option<Demand>,
    pub plans: Vec<HostsPlan>,
}

impl HostsReport<'_> {
    /// MiB/s for this many accelerators.
    fn mib_per_second(&self, ranks: u64) -> Option<f64> {
        self.demand.map(|demand| demand.mib_per_second * ranks as f64)
    }

    pub(crate) fn text(&self) -> String {
        let header = ["hosts", "ranks/host", "ranks", "files", "data set", "rate/host", "rate", "decided by"];
        let shown = |ranks| self.mib_per_second(ranks).map_or("unlimited".to_owned(), rate);
        let rows = self.plans.iter().map(|plan| {
            [
                grouped(plan.hosts),
                grouped(plan.ranks_per_host()),
                grouped(plan.ranks),
                grouped(plan.rule.required_files),
                Bytes(plan.rule.required_bytes).to_string(),
                shown(plan.ranks_per_host()),
                shown(plan.ranks),
                plan.limit().to_owned(),
            ]
        });
        let memory = Bytes(self.host_memory_bytes);
        let heading = super::fitted(&format!(
            "{}: the smallest data set by MLPerf Storage's rules (500 steps for each rank, 5 x the memory of all \
             hosts, {memory} each), and the rate that keeps all ranks busy\n",
            self.workload
        ));
        let table = Table::new(header, 0..7, rows).text();
        let mut text = format!("{heading}\n{table}\n\nto generate it\n");
        for plan in &self.plans {
            text.push_str(&layout::command(&format!("  {}", plan.generate), terminal::columns()));
            text.push('\n');
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let plans = self.plans.iter().map(|plan| {
            json!({
                "hosts": plan.hosts,
                "ranks_per_host": plan.ranks_per_host(),
                "ranks": plan.ranks,
                "mlperf": plan.rule,
                "mib_per_second_per_host": self.mib_per_second(plan.ranks_per_host()),
                "mib_per_second": self.mib_per_second(plan.ranks),
                "generate": plan.generate,
            })
        });
        json!({
            "workload": self.workload,
            "host_memory_bytes": self.host_memory_bytes,
            "plans": plans.collect::<Vec<_>>(),
        })
    }
}
