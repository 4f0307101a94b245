//! Runs through the library alone: from a request to a complete ledger, without the binary.

use engine::host::Host;
use engine::{Solo, Stop};
use feedline_session::{
    Ask, CalibrationTime, Error, ErrorKind, Generate, RunTask, Settled, SilentObserver, WorkloadText, settle,
};
use model::ledger::{Ledger, Phase, RunTimes};
use model::location::Location;
use model::metrics::Figures;
use model::plan::{Plan, PlanError};
use model::spec::Override;
use model::verdict::{Case, RuleOutcome, judge};

const TRAINING: &str = "
framework: pytorch
dataset: {format: npz, num_files_train: 200, record_length_bytes: 4096}
reader: {data_loader: pytorch, batch_size: 5, read_threads: 2}
train: {epochs: 2, computation_time: 0.001}
";

const CHECKPOINTS: &str = "
workflow: {train: false, checkpoint: true}
model: {name: m, model_size_bytes: 100000}
checkpoint: {num_checkpoints_write: 2, num_checkpoints_read: 1, time_between_checkpoints: 0, fsync: true}
";

fn ask(text: &str, store: &str, settings: &[&str]) -> Ask {
    let (name, source) = ("w".to_owned(), "w.yaml".to_owned());
    let workload = WorkloadText { name, source, text: text.to_owned(), ranks: 2, built_in: false };
    let overrides = settings.iter().map(|setting| Override::hydra(setting, *setting)).collect();
    Ask { overrides, store: Some(store.to_owned()), ..Ask::new(workload) }
}

fn run(settled: &Settled<'_>, plan: &Plan, calibrate: CalibrationTime) -> Result<Ledger, Error> {
    let (world, stop) = (Solo::new(), Stop::default());
    feedline_session::run(
        settled,
        &RunTask {
            plan,
            calibrate,
            share: false,
            world: &world,
            observer: &SilentObserver,
            recorder: None,
            stop: &stop,
        },
    )
}

#[track_caller]
fn is_complete(ledger: &Ledger, host: &Host) {
    let RunTimes { start, end, wall, .. } = &ledger.times;
    assert!(!start.is_empty() && start <= end && wall.0 > 0, "{:?}", ledger.times);
    assert_eq!(ledger.conditions.hosts.keys().collect::<Vec<_>>(), [&host.name]);
}

#[test]
fn training_on_the_null_backend_returns_a_complete_ledger() {
    let host = Host::look();
    let settled =
        settle(ask(TRAINING, "null", &[]).read().unwrap(), &host, &Solo::new(), &Stop::default()).unwrap();
    settled.check_host(&settled.plan, &Solo::new(), &Stop::default()).unwrap();
    settled.check_data(&Solo::new(), &Stop::default()).unwrap();
    let ledger = run(&settled, &settled.plan, CalibrationTime::BeforeRun).unwrap();
    is_complete(&ledger, &host);
    assert!(ledger.first_batch_ns.is_some());
    assert_eq!(ledger.calibration, None, "the run measures the ceiling itself");
    assert_eq!(Figures::new(&ledger, Phase::Train).unwrap().epochs.len(), 2);
    let verdict = judge(&Case { plan: Some(&settled.plan), ledger: &ledger });
    let finding = |rule: &str| verdict.rules.iter().find(|finding| finding.rule == rule).unwrap();
    assert_eq!(finding("complete").outcome, RuleOutcome::Pass, "{verdict:?}");
    assert_eq!(finding("mode-as-requested").evidence, "store null");
}

/// Data on a disk, calibration, and checkpoints during training: the front end does nothing for them.
#[test]
fn generated_data_a_calibration_and_checkpoints_are_part_of_a_run() {
    let (host, folder) = (Host::look(), tempfile::tempdir().unwrap());
    let saves = format!("checkpoint.checkpoint_folder={}", folder.path().join("c").display());
    let settings = ["workflow.checkpoint=true", "model.model_size_bytes=10000", &saves];
    let ask = Ask {
        data: Some(Location::Path(folder.path().join("d"))),
        generate: Generate::Missing,
        ..ask(TRAINING, "posix", &settings)
    };
    let settled = settle(ask.read().unwrap(), &host, &Solo::new(), &Stop::default()).unwrap();
    let settled = settled.make_data(&Solo::new(), &SilentObserver, &Stop::default()).unwrap();
    let ledger = run(&settled, &settled.plan, CalibrationTime::BeforeRun).unwrap();
    is_complete(&ledger, &host);
    assert!(ledger.calibration.is_some());
    assert_eq!(ledger.checkpoints.saves.len() as u64, settled.plan.saves());
    let modes: Vec<&str> = ledger.conditions.modes.keys().map(String::as_str).collect();
    assert!(modes.contains(&"data_folder") && modes.contains(&"checkpoint_folder"), "{modes:?}");
    // A variant of the same settled run.
    let null = settled.plan.on_null_backend();
    let ledger = run(&settled, &null, CalibrationTime::Never).unwrap();
    assert!(ledger.checkpoints.saves.is_empty() && ledger.calibration.is_none());
    assert!(ledger.conditions.modes["store"].observed.contains("null"), "{:?}", ledger.conditions.modes);
}

#[test]
fn checkpoints_without_training_return_a_complete_ledger() {
    let (host, folder) = (Host::look(), tempfile::tempdir().unwrap());
    let saves = format!("checkpoint.checkpoint_folder={}", folder.path().display());
    let settled =
        settle(ask(CHECKPOINTS, "posix", &[&saves]).read().unwrap(), &host, &Solo::new(), &Stop::default())
            .unwrap();
    assert!(settled.plan.training.is_none());
    settled.check_host(&settled.plan, &Solo::new(), &Stop::default()).unwrap();
    let ledger = run(&settled, &settled.plan, CalibrationTime::BeforeRun).unwrap();
    is_complete(&ledger, &host);
    assert_eq!((ledger.checkpoints.saves.len(), ledger.checkpoints.restores.len()), (2, 1));
    let verdict = judge(&Case { plan: Some(&settled.plan), ledger: &ledger });
    assert_eq!(verdict.rules[0].outcome, RuleOutcome::Pass, "{verdict:?}");
}

#[test]
fn errors_have_a_message_and_a_kind() {
    let host = Host::look();
    let refuse =
        |ask: Ask| match ask.read().and_then(|asked| settle(asked, &host, &Solo::new(), &Stop::default())) {
            Ok(_) => panic!("it was settled"),
            Err(error) => error,
        };
    let unknown = refuse(ask(TRAINING, "nonesuch", &[]));
    assert!(
        matches!(&unknown, Error::StoreArguments(cause) if cause.to_string().contains("nonesuch")),
        "{unknown}"
    );
    assert_eq!(unknown.kind(), ErrorKind::Usage);
    let ranks = refuse(Ask { ranks: Some(0), ..ask(TRAINING, "null", &[]) });
    assert!(matches!(ranks, Error::Plan(PlanError::Ranks(0))), "{ranks}");
    let key = refuse(ask(TRAINING, "null", &["reader.read_thread=1"]));
    assert!(matches!(key, Error::Spec(_)) && key.kind() == ErrorKind::Usage, "{key}");
    let missing = Ask {
        data: Some(Location::parse("/nonexistent/data")),
        how_to_generate: "generate it".to_owned(),
        ..ask(TRAINING, "posix", &[])
    };
    let settled = settle(missing.read().unwrap(), &host, &Solo::new(), &Stop::default()).unwrap();
    let error = settled.check_data(&Solo::new(), &Stop::default()).unwrap_err();
    assert!(matches!(error, Error::NoDataSet { .. }) && error.kind() == ErrorKind::Refused, "{error}");
    assert!(error.to_string().ends_with("\ngenerate it"), "{error}");
}

/// DLIO limits the requests of a worker. A process has the workers of its ranks.
#[test]
fn limits_per_reader_count_for_the_readers_of_a_process() {
    let host = Host::look();
    for (ranks, per_host, expected) in
        [(None, 1, 2 * 2 * 8), (Some(6), 1, 6 * 2 * 8), (Some(6), 3, 2 * 2 * 8)]
    {
        let settings = [
            "storage.storage_root='s3://bucket'",
            "storage.anonymous=true",
            "storage.storage_options.prefetch_window=8",
        ];
        let ask =
            Ask { ranks, processes_per_host: per_host, only_plans: true, ..ask(TRAINING, "s3", &settings) };
        let settled = settle(ask.read().unwrap(), &host, &Solo::new(), &Stop::default()).unwrap();
        assert_eq!(settled.selection.objects.requests_in_flight, expected, "{ranks:?} {per_host}");
    }
}
