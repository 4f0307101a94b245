//! `feedline stall`: what the accelerators wait for.

use engine::host::Host;
use session::Ask;
use session::study::{Stall, StudyControl};

use super::{ask_at, read, stop_on_signals};
use crate::exit::{Ending, Exit};
use crate::flags::StallFlags;
use crate::progress::Show;
use crate::report;
use crate::report::stall::StallReport;

pub fn stall(flags: &StallFlags) -> Ending {
    let ask = ask_at(&flags.workload, flags.overrides(), &flags.place)?;
    let asked = read(Ask { ranks: flags.ranks, checkpoints: None, ..ask })?;
    let host = Host::look();
    let stall = Stall::settle(asked, &host, flags.steps)?;
    if !flags.output.quiet {
        report::warnings(stall.warnings());
    }
    stall.check_data()?;
    let (show, stop) = (Show::choose(flags.output.quiet), stop_on_signals()?);
    let begins = |run: &str, steps: u64| {
        if show != Show::Nothing {
            report::note(&format!("{run} run, {steps} steps"));
        }
    };
    let found = stall.run(&StudyControl { observer: &show, stop: &stop }, begins)?;
    let report = StallReport { found: &found };
    match flags.output.json {
        true => report::out_json(&report.json())?,
        false => report::out(&report.text())?,
    }
    Ok(if found.broken.is_empty() { Exit::Ok } else { Exit::CheckFailed })
}
