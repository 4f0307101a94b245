//! Leaves of runs on a fake clock: exact documents and lines, and the rules by which other programs read them.

mod documents;
mod files;
mod lines;

use std::path::Path;

use engine::checkpoint::{CheckpointSetup, keep};
use engine::host::Host;
use engine::meter::FakeClock;
use engine::{Solo, SplitFiles, Stop, TrainingSetup, train};
use format::Arithmetic;
use model::checkpoint::{SaveRequest, Scale};
use model::ledger::{Ledger, ObservedHost};
use model::plan::{Placement, Plan, Request};
use model::spec::{self, Override, Spec, WorkloadSource};
use model::units::Nanos;
use model::verdict::{Case, Verdict, judge};
use serde_json::Value;
use session::{Activity, ActivityUnit, Observer, SilentObserver, observed};
use store::{Mode, Null, Selection};

use super::{LeafLead, LeafWriter, OwnRun};
use crate::report::result::{Outcome, PeakMemory};

/// Two ranks with different compute times, so that they wait for each other; 12 steps.
const WORKLOAD: &str = "
framework: pytorch
model: {model_size_bytes: 1000000}
workflow: {evaluation: false, checkpoint: false}
dataset: {format: jpeg, num_files_train: 192, num_files_eval: 40, record_length_bytes: 115600}
reader: {data_loader: pytorch, batch_size: 8, batch_size_eval: 4, read_threads: 2, sample_shuffle: seed}
train: {epochs: 2, computation_time: {type: uniform, min: 0.01, max: 0.03}}
evaluation: {eval_time: 0.01, epochs_between_evals: 2}
checkpoint: {fsync: true}
";
const LEADS: Option<LeafLead> = Some(LeafLead { ranks: 2, is_claimed: false });
const EVALUATES: &str = "workflow.evaluation=true";
const SAVES: [&str; 2] = ["workflow.checkpoint=true", "checkpoint.steps_between_checkpoints=5"];

/// The wall clock when the run's clock was 0.
const ORIGIN: Nanos = Nanos(1_790_000_000_123_456_789);
const DEVICE: &str = "sim:bandwidth=10MB/s";

/// A run that ended.
struct Ended {
    spec: Spec,
    plan: Plan,
    ledger: Ledger,
    verdict: Verdict,
    host: Host,
}

/// A run on the null backend; its checkpoints go to a simulated device.
fn ran(settings: &[&str], observer: &dyn Observer) -> Ended {
    let overrides: Vec<Override> = settings.iter().map(|text| Override::hydra(text, *text)).collect();
    let spec = spec::read(WorkloadSource { name: "test", text: WORKLOAD }, &overrides).unwrap().spec;
    let format = format::plain("jpeg").unwrap();
    let request = Request {
        workload: "test",
        ranks: 2,
        placement: Placement::even(2, 1, 1),
        host_memory_bytes: 1 << 34,
        cores: 2,
        store: &Selection::null().plan(),
        memory: None,
        entropy: 1,
        measure: Some(&Arithmetic(&*format)),
        listed: None,
    };
    let device = Selection::named(DEVICE, Mode::default()).unwrap();
    let saving = SaveRequest { ranks: 2, scale: Scale::WHOLE, last: device.plan(), fast: None };
    let plan = Plan::resolve(&spec, &request, Some(&saving)).unwrap().recording_steps(&request.placement);
    let (mut ledger, _) = observed(observer, &Solo::new(), activity("training"), |events| {
        let training = plan.trained().unwrap();
        let data = training.data.computed().unwrap();
        let [train_files, valid] = [&data.train, &data.valid].map(|split| data.files_of(split));
        let (clock, stop, world) = (FakeClock::default(), Stop::default(), Solo::new());
        let rig = TrainingSetup {
            plan: training,
            world: &world,
            format: &*format,
            store: &Null,
            pages: None,
            files: SplitFiles { train: &train_files, valid: &valid },
            truth: None,
            checkpoints: None,
            clock: &clock,
            stop: &stop,
            events,
        };
        let Some(checkpoint) = &plan.checkpoint else { return train(&rig).unwrap() };
        let root = tempfile::tempdir().unwrap();
        let last = device.tier(root.path()).unwrap();
        let (plan, last, fast) = (checkpoint, &*last, None);
        let (clock, stop, world) = (&clock, &stop, &world);
        let setup = CheckpointSetup { plan, model: "test", seed: 7, world, fast, last, clock, stop, events };
        let kept = keep(setup, |saver| train(&TrainingSetup { checkpoints: Some(saver), ..rig }).unwrap());
        let kept = kept.unwrap();
        let mut ledger = kept.done;
        ledger.checkpoints.saves = kept.saves;
        ledger
    });
    ledger.records.origin = ORIGIN;
    let start = engine::meter::timestamp_at(ORIGIN);
    (ledger.times.start, ledger.times.end) = (start.clone(), start);
    ledger.conditions.request("store", "null");
    ledger.conditions.observe("store", "null");
    let readings = ObservedHost { readings: 1, ..ObservedHost::default() };
    ledger.conditions.hosts.insert("here".to_owned(), readings);
    let verdict = judge(&Case { plan: Some(&plan), ledger: &ledger });
    Ended { spec, plan, ledger, verdict, host: host() }
}

fn activity(what: &'static str) -> Activity {
    Activity { what, unit: ActivityUnit::Samples, total: 1 }
}

fn host() -> Host {
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    Host {
        name: "here".to_owned(),
        cores: 2,
        memory_bytes: 8 << 30,
        cpuinfo: vec![pair("model name", "emulated"), pair("flags", "fpu")],
        meminfo: vec![pair("MemTotal", "8388608 kB"), pair("MemFree", "1024 kB")],
        ..Host::default()
    }
}

impl Ended {
    fn own(&self) -> OwnRun<'_> {
        let Ended { spec, plan, ledger, host, .. } = self;
        OwnRun { plan, spec, ledger, host, ranks: 0..2, ranks_on_host: 2 }
    }

    fn outcome(&self) -> Outcome<'_> {
        let Ended { spec, plan, ledger, verdict, host } = self;
        Outcome {
            plan,
            spec,
            ledger,
            verdict,
            host,
            warnings: &[],
            command: "feedline run".to_owned(),
            settling: Nanos(1_000_000),
            peak_rss_bytes: PeakMemory::new(|| Some(5 << 20)),
            between_failures: None,
        }
    }

    fn summary(&self) -> Value {
        serde_json::to_value(self.outcome().leaf_summary()).unwrap()
    }

    /// Writes all files of a leaf.
    fn write(&self, path: &Path) -> LeafWriter {
        let leaf = LeafWriter::begin(path, "dlio.log", LEADS).unwrap();
        leaf.write_ranks(&self.own()).unwrap();
        leaf.conclude(&self.outcome()).unwrap();
        leaf
    }
}

fn silent(settings: &[&str]) -> Ended {
    ran(settings, &SilentObserver)
}
