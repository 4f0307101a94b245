//! `feedline run`: trains on a data set with emulated accelerators, saves and restores checkpoints, judges the result
//! and writes it. All checks that can refuse a run happen before the first byte is read.

use std::path::Path;

use anyhow::anyhow;
use engine::Solo;
use engine::host::{self, Host};
use engine::meter::Monotonic;
use model::ledger::{Ledger, Phase};
use model::units::Nanos;
use session::{Ask, Asked, Measured, Settled, Task, check_folder, measure, settle};
use store::Now;

use super::{ask_at, read, results_folder, stop_on_signals};
use crate::exit::{Ending, Exit, Failure};
use crate::flags::RunFlags;
use crate::progress::Show;
use crate::report::result::{Outcome, Peak};
use crate::report::{self, folder, text};

pub fn run(flags: &RunFlags) -> Ending {
    let begun = Monotonic::new();
    let (ranks, checkpoints) = (flags.ranks, Some(flags.checkpoints.scale));
    let ask = Ask { ranks, checkpoints, ..ask_at(&flags.workload, flags.overrides(), &flags.place)? };
    let asked = read(ask)?;
    check_advice(flags, &asked)?;
    let results = results_folder(flags.results_dir.as_deref(), &asked.spec);
    let host = Host::look();
    let world = Solo::new(asked.ranks());
    let settled = settle(asked, &host, &world)?;
    let settling = begun.now();
    check_folder(&results, "results folder")?;
    settled.check_host(&settled.plan, &world)?;
    if !flags.output.quiet {
        report::warnings(&settled.asked.warnings);
    }
    settled.check_data(&world)?;
    let _fresh = folder::check_writable(&results, &settled.plan.workload).map_err(Failure::refused)?;
    let (show, stop) = (Show::choose(flags.output.quiet), stop_on_signals()?);
    let settled = settled.make_data(&world, &show, &stop)?;
    let (plan, calibrate) = (&settled.plan, !flags.no_calibration);
    let task = Task { plan, calibrate, world: &world, observer: &show, stop: &stop };
    let measured = measure(&settled, &task)?;
    conclude(flags, &settled, &measured, settling, &results)
}

/// Refuses checkpoint flags for a run without checkpoints.
fn check_advice(flags: &RunFlags, asked: &Asked) -> Result<(), Failure> {
    let what = match (flags.advise, flags.checkpoints.scale.is_whole()) {
        (Some(_), _) => "--advise",
        (None, false) => "--scale",
        (None, true) => return Ok(()),
    };
    match asked.spec.workflow.checkpoint {
        true => Ok(()),
        false => Err(Failure::usage(anyhow!(
            "{what} applies to checkpoints, but this run saves none; set workflow.checkpoint=true"
        ))),
    }
}

fn conclude(
    flags: &RunFlags,
    settled: &Settled<'_>,
    Measured { ledger, verdict }: &Measured,
    settling: Nanos,
    results: &Path,
) -> Ending {
    let outcome = Outcome {
        plan: &settled.plan,
        spec: &settled.asked.spec,
        ledger,
        verdict,
        host: settled.host,
        warnings: &settled.asked.warnings,
        settling,
        peak_rss_bytes: Peak::new(host::peak_rss_bytes),
        between_failures: flags.advise,
    };
    let fault = session::fault(ledger);
    if fault.is_none() || saw_something(ledger) {
        let saved = folder::write(results, &outcome).map_err(Failure::incomplete)?;
        show_result(flags, &outcome, &saved)?;
    }
    if let Some(fault) = fault {
        return Err(fault.into());
    }
    Ok(Exit::of(verdict.status))
}

/// Whether a failed run has anything to report: a delivered sample or an error.
fn saw_something(ledger: &Ledger) -> bool {
    let epochs = ledger.epochs(Phase::Train);
    !ledger.errors().is_empty()
        || epochs.into_iter().any(|epoch| ledger.total(epoch, Phase::Train).samples_delivered > 0)
}

fn show_result(flags: &RunFlags, outcome: &Outcome<'_>, saved: &Path) -> Result<(), Failure> {
    if flags.output.json {
        return report::out_json(&outcome.summary());
    }
    let is_demo = flags.workload.workload == "demo" && outcome.plan.training.is_some();
    report::out(&text::render(outcome, saved, is_demo))
}
