//! `feedline capacity`: how many accelerators this storage feeds at the workload's AU.

use anyhow::anyhow;
use engine::host::Host;
use model::study::search::Trial;
use session::Ask;
use session::study::{Capacity, CapacityRange, StudyControl};

use super::{ask_at, read, stop_on_signals};
use crate::exit::{Ending, Exit, Failure};
use crate::flags::CapacityFlags;
use crate::progress::Show;
use crate::report;
use crate::report::capacity::{CapacityReport, trial_line};

pub fn capacity(flags: &CapacityFlags) -> Ending {
    if let Some(up_to) = flags.up_to.filter(|up_to| *up_to < flags.from) {
        return Err(Failure::usage(anyhow!("--from {} is greater than --up-to {up_to}", flags.from)));
    }
    let ask = ask_at(&flags.workload, flags.overrides(), &flags.place)?;
    let asked = read(Ask { checkpoints: None, ..ask })?;
    let host = Host::look();
    let range = CapacityRange { from: flags.from, up_to: flags.up_to, steps: flags.steps };
    let capacity = Capacity::settle(asked, &host, range)?;
    if !flags.output.quiet {
        report::warnings(capacity.warnings());
    }
    capacity.check_data()?;
    let (show, stop) = (Show::choose(flags.output.quiet), stop_on_signals()?);
    let seen = |trial: &Trial| {
        if show != Show::Nothing {
            report::note(&trial_line(trial));
        }
    };
    let found = capacity.run(&StudyControl { observer: &show, stop: &stop }, seen)?;
    conclude(flags, &CapacityReport { found: &found })
}

fn conclude(flags: &CapacityFlags, report: &CapacityReport<'_>) -> Ending {
    match flags.output.json {
        true => report::out_json(&report.json())?,
        false => report::out(&report.text())?,
    }
    if !report.found.answer.clear {
        return Err(Failure::incomplete(anyhow!(
            "no clear limit was found: full runs contradict the probes; raise --steps, or see how the rate varies with \
             'feedline sweep --over ranks=..'"
        )));
    }
    Ok(if report.is_valid() { Exit::Ok } else { Exit::CheckFailed })
}
