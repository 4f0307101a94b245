//! The rule about what the files hold: what was read is what was written.

use super::rules::no_plan;
use super::{Case, Outcome, TrainingCase, seen_phases};
use crate::ledger::Checked;
use crate::spec::Verify;
use crate::units::{Bytes, Nanos, grouped};

pub(super) fn data_verified(case: &Case<'_>) -> (Outcome, String) {
    let (mut checked, mut read, mut cpu) = (Checked::default(), 0, Nanos::ZERO);
    for (epoch, phase) in seen_phases(case.ledger) {
        let node = case.ledger.node_total(epoch, phase);
        checked += node.checked;
        cpu += node.cpu_ns;
        read += case.ledger.total(epoch, phase).bytes_read;
    }
    let not_checkable = |why: String| (Outcome::NotCheckable, why);
    let Checked { fetches, unknown, foreign, wrong, bytes, ns } = checked;
    if wrong > 0 {
        return (Outcome::Fail, format!("wrong bytes in {} fetches", grouped(wrong)));
    }
    let Some(TrainingCase { plan, .. }) = case.training() else { return no_plan() };
    match (plan.verify, fetches) {
        (Verify::None, _) => not_checkable("reader.verify is none: nothing was compared".to_owned()),
        _ if fetches + unknown + foreign == 0 => {
            not_checkable("no bytes came that could be compared".to_owned())
        }
        (Verify::Sample, 0) if unknown == 0 => {
            let by = if plan.data.listed().is_some() { "the catalog" } else { "the plan" };
            (Outcome::Note, format!("files without a manifest of feedline's: their sizes are as {by} says"))
        }
        (_, 0) if unknown == 0 => not_checkable(
            "the files have no manifest of feedline's: nobody knows what they should hold".into(),
        ),
        (_, 0) => {
            not_checkable("compressed: what should stand in the files is found by --verify full".into())
        }
        _ if unknown + foreign > 0 => not_checkable(format!(
            "{} of {} fetches brought bytes that nobody knows",
            grouped(unknown + foreign),
            grouped(fetches + unknown + foreign)
        )),
        _ => {
            // Taken by the clock, so that what other programs took meanwhile is in it.
            let share = 100.0 * ns.0.min(cpu.0) as f64 / cpu.0.max(1) as f64;
            let (compared, read) = (Bytes(bytes), Bytes(read));
            let fetches = grouped(fetches);
            (
                Outcome::Pass,
                format!(
                    "{fetches} fetches, {compared} of {read} compared with what was written, at most {share:.1} % of \
                     CPU time"
                ),
            )
        }
    }
}
