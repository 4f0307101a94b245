//! `feedline run`: train on a data set with emulated accelerators, write the result, say what it is worth. Everything
//! that can be refused is refused before the first byte is read.

use std::path::Path;

use anyhow::anyhow;
use engine::host::{self, Host};
use engine::meter::Monotonic;
use model::ledger::{Ledger, Phase};
use store::Now;

use super::stage::{Measured, Stage, Venue};
use super::{check_folder, checkpoint, prepare, results_folder, stop_on_signals};
use crate::exit::{Ending, Exit, Failure};
use crate::flags::RunFlags;
use crate::progress::Show;
use crate::report::result::{Outcome, Peak};
use crate::report::{self, folder, text};

pub fn run(flags: &RunFlags) -> Ending {
    let begun = Monotonic::new();
    let prepared = prepare(&flags.workload.workload, flags.overrides())?;
    if !prepared.spec.workflow.checkpoint && (flags.advise.is_some() || !flags.checkpoints.scale.is_whole()) {
        let what = if flags.advise.is_some() { "--advise" } else { "--scale" };
        return Err(Failure::usage(anyhow!(
            "{what} is about checkpoints, and this run takes none; set workflow.checkpoint=true"
        )));
    }
    if prepared.is_checkpoints_alone() {
        return checkpoint::run(flags, prepared);
    }
    let results = results_folder(flags.results_dir.as_deref(), &prepared.spec);
    let host = Host::look();
    let (place, ranks) = (&flags.place, flags.ranks);
    let checkpoints = Some(flags.checkpoints.scale);
    let venue = Venue { place, store: None, ranks, data_is_there: false, checkpoints, host: &host };
    let stage = Stage::settle(prepared, venue)?;
    let settling = begun.now();
    check_folder(&results, "results folder")?;
    stage.check_host()?;
    if !flags.output.quiet {
        report::warnings(&stage.prepared.warnings);
    }
    stage.check_data()?;
    let _fresh = folder::check_writable(&results, &stage.plan.workload).map_err(Failure::refused)?;
    let (show, stop) = (Show::choose(flags.output.quiet), stop_on_signals()?);
    let stage = stage.make_data(show, &stop)?;
    let calibration = if flags.no_calibration { None } else { stage.calibrate(&stop) };
    let mut measured = stage.measure(calibration, show, &stop)?;
    measured.times.settling = settling;
    conclude(flags, &stage, &measured, &host, &results)
}

fn conclude(flags: &RunFlags, stage: &Stage<'_>, measured: &Measured, host: &Host, results: &Path) -> Ending {
    let (ledger, verdict) = (&measured.ledger, &measured.verdict);
    let outcome = Outcome {
        plan: &stage.plan,
        spec: &stage.prepared.spec,
        ledger,
        verdict,
        host,
        warnings: &stage.prepared.warnings,
        times: measured.times.clone(),
        peak_rss_bytes: Peak::new(host::peak_rss_bytes),
        between_failures: flags.advise,
    };
    let fault = measured.fault();
    if fault.is_none() || saw_something(ledger) {
        let saved = folder::write(results, &outcome).map_err(Failure::incomplete)?;
        show_result(flags, &outcome, &saved)?;
    }
    if let Some(fault) = fault {
        return Err(Failure::incomplete(fault));
    }
    Ok(Exit::of(verdict.status))
}

/// Whether there is anything to tell of a run that was stopped: a sample that came, or an error that was met.
fn saw_something(ledger: &Ledger) -> bool {
    let epochs = ledger.epochs(Phase::Train);
    !ledger.errors().is_empty()
        || epochs.into_iter().any(|epoch| ledger.total(epoch, Phase::Train).samples_delivered > 0)
}

fn show_result(flags: &RunFlags, outcome: &Outcome<'_>, saved: &Path) -> Result<(), Failure> {
    if flags.output.json {
        return report::out_json(&outcome.summary());
    }
    report::out(&text::render(outcome, saved, flags.workload.workload == "demo"))
}
